"""Choose the next repair step for each finding about a mirror: a write, or the condition for it. Pure.

Steps depend only on the observed state; a run keeps no state. A resource is created when those before it exist, the
DaemonSet when the registry is ready. A resource that cannot be changed in place is deleted; the next observation then
finds it missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple

import msgspec
from msgspec import Struct, structs

from jobs.core.mirror_audit.checks.actual import Object
from jobs.core.mirror_audit.checks.codes import CODES
from jobs.core.mirror_audit.checks.drift import drift
from jobs.core.mirror_audit.checks.findings import finding
from jobs.core.mirror_audit.checks.probes import is_upstream_unknown, secret_key
from jobs.core.mirror_audit.checks.resources import NOT_DRIFT, is_managed, named, rollout_problem
from jobs.core.mirror_audit.desired.manifests import Manifest, VolumeResources
from jobs.core.mirror_audit.desired.mirror import Mirror
from jobs.core.mirror_audit.observed import Observed, Settings, StorageClass
from jobs.core.mirror_audit.repair.node_cleanup import NodeCleanup, host, is_node_cleanup
from jobs.kit.data.manifests import Deletion
from jobs.kit.values.decoding import decode_plain
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Action, Brake, ExitCode, Finding, Fix, Need, ObjectKey
from jobs.kit.values.resources import CLAIMS, DAEMON_SETS, ENDPOINT_SLICES, SERVICES, STATEFUL_SETS, STORAGE_CLASSES

# The fields that kube-chores sets and that the API does not allow to change.
# https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#updating-statefulsets
_IMMUTABLE: Mapping[str, tuple[str, ...]] = {
    SERVICES.kind: ("spec.clusterIP",),
    CLAIMS.kind: ("spec.accessModes", "spec.storageClassName"),
    STATEFUL_SETS.kind: ("spec.selector", "spec.serviceName", "spec.podManagementPolicy"),
    DAEMON_SETS.kind: ("spec.selector",),
}
_ORDER = (SERVICES.kind, CLAIMS.kind, STATEFUL_SETS.kind, DAEMON_SETS.kind)
_CREDENTIALS = (
    "credentials-missing",
    "credentials-upstream-not-allowed",
    "credentials-image-not-allowed",
    "unreadable",
)
_HOSTS = ("--host=", "--upstream=")  # arguments that set which images nodes pull through the mirror


class ApplyRequest(Struct, frozen=True, gc=False):
    """The body of a server-side apply. With `uid` it changes exactly that object, and never creates one."""

    manifest: Manifest
    uid: str = ""

    def encode(self) -> bytes:
        """Return the object as JSON."""
        document = self.manifest.document()
        if self.uid:
            document["metadata"]["uid"] = self.uid
        return msgspec.json.encode(document)

    def changed_by_server(self, answer: bytes) -> tuple[str, ...]:
        """Return the fields that differ in the server's response: admission changed them."""
        found = drift(self.manifest.body(), decode_plain(answer), NOT_DRIFT)
        return tuple(each.change.field for each in found)

    def redact(self, text: str) -> str:
        """Return the text unchanged: the request contains no secret."""
        return text


class Step(NamedTuple):
    """The next step for a resource: a write (`fix`), or the condition for it (`remedy`).

    `need` is an object to read first. `may_progress` is whether a later observation in the same run may allow the next
    step. `first` is a write to another object before this one.
    """

    fix: Fix | None = None
    remedy: str = ""
    need: Need | None = None
    may_progress: bool = False
    first: Finding | None = None
    exit_code: ExitCode = ExitCode.DONE


class _RepairContext(NamedTuple):
    """One mirror, with the codes of its findings."""

    mirror: Mirror
    observed: Observed
    settings: Settings
    codes: frozenset[str]
    without_credentials: bool

    def actual(self, key: ObjectKey) -> Object | None:
        """Return the object of this name, if kube-chores manages it and it is not being deleted."""
        found = self.observed.resources.get(key)
        return found if found and is_managed(found) and not found["metadata"].get("deletionTimestamp") else None

    def is_terminating(self, key: ObjectKey) -> bool:
        """Return whether an object of this name exists and is being deleted."""
        found = self.observed.resources.get(key)
        return bool(found and found["metadata"].get("deletionTimestamp"))


class Repairs(NamedTuple):
    """Findings with their next steps, and what the run must read first."""

    findings: Sequence[Finding]
    needs: Sequence[Need] = ()
    may_progress: bool = False
    brakes: Sequence[Brake] = ()


def repairs(mirror: Mirror, findings: Sequence[Finding], observed: Observed, settings: Settings) -> Repairs:
    """Add the next step to each finding about one mirror."""
    without_credentials = any(each.object == secret_key(mirror) and each.code in _CREDENTIALS for each in findings)
    codes = frozenset(each.code for each in findings)
    context = _RepairContext(mirror, observed, settings, codes, without_credentials)
    desired = {each.key: each for each in mirror.resources}
    steps = [(each, _step(context, each, desired.get(each.object))) for each in findings]
    return with_steps(steps)


def with_steps(steps: Sequence[tuple[Finding, Step]]) -> Repairs:
    """Add steps to findings, with at most one write to each object."""
    return Repairs(
        _one_write_per_object([each for found, step in steps for each in _with_step(found, step)]),
        [step.need for _, step in steps if step.need],
        any(step.may_progress for _, step in steps),
    )


def _one_write_per_object(findings: Sequence[Finding]) -> list[Finding]:
    """Keep one write to each object. A deletion comes first, because it makes other writes unnecessary."""
    writes: dict[ObjectKey, Finding] = {}
    for each in findings:
        before = writes.get(each.object)
        if each.fix and (before is None or _deletes(each) > _deletes(before)):
            writes[each.object] = each
    return [
        structs.replace(each, fix=None, remedy="another step for this object includes it")
        if each.fix and writes[each.object] is not each
        else each
        for each in findings
    ]


def _deletes(found: Finding) -> bool:
    return found.fix is not None and found.fix.action is Action.DELETE


def refused(found: Finding) -> Finding:
    """Return a finding that no repair can resolve, with the remedy of its code for a person."""
    return structs.replace(found, remedy=CODES[found.code].remedy)


def _with_step(found: Finding, step: Step) -> list[Finding]:
    exit_code = step.exit_code or found.exit_code
    planned = structs.replace(found, fix=step.fix, remedy=step.remedy, exit_code=exit_code)
    return [step.first, planned] if step.first else [planned]


def _step(context: _RepairContext, found: Finding, desired: Manifest | None) -> Step:
    choose = _STEPS.get(found.code)
    if choose is None or desired is None:
        return Step(remedy=CODES[found.code].remedy)
    return choose(context, desired)


def _create(context: _RepairContext, desired: Manifest) -> Step:
    """Create a missing resource when the resources before it exist."""
    for before in context.mirror.resources:
        comes_first = _ORDER.index(before.resource.kind) < _ORDER.index(desired.resource.kind)
        if comes_first and not context.actual(before.key):
            remedy = f"a repair creates it when {before.key} exists"
            return Step(remedy=remedy, may_progress=context.is_terminating(before.key))
    if desired is context.mirror.stateful_set:
        if problem := _credentials_blocker(context):
            return Step(remedy=problem)
        if _may_lose_cache(context) and _recreation_reason(context):
            remedy = f"a repair creates it after {context.mirror.claim.key} is recreated"
            return Step(remedy=remedy, may_progress=True)
    if desired is context.mirror.daemon_set and not _is_current_and_ready(context):
        remedy = f"a repair creates it when {context.mirror.stateful_set.key} is ready to serve nodes"
        return Step(remedy=remedy, may_progress=True)
    result = f"for registrymirror/{context.mirror.registry_mirror.name}"
    return Step(Fix(Action.APPLY_NEW, ApplyRequest(desired), result))


def _credentials_blocker(context: _RepairContext) -> str:
    if context.without_credentials:
        return f"a repair continues when {secret_key(context.mirror)} is usable"
    if "credentials-exposed" in context.codes:
        return (
            "a repair continues when spec.allowUnauthenticatedReaders is true: every client then pulls private images"
        )
    return ""


def _is_ready(context: _RepairContext) -> bool:
    registry = context.actual(context.mirror.stateful_set.key)
    if not registry or rollout_problem(STATEFUL_SETS.kind, registry):
        return False
    if not (registry.get("status") or {}).get("readyReplicas"):
        return False
    endpoints = context.observed.endpoints_of(context.mirror.service.key)
    return ENDPOINT_SLICES.kind in context.observed.list_errors or bool(endpoints.own)


def _correct(context: _RepairContext, desired: Manifest) -> Step:
    """Correct drifted fields: in place where the API allows it, otherwise by deleting the object."""
    actual = context.actual(desired.key)
    assert actual
    if desired is context.mirror.claim:
        desired = _claim_of_current_size(context, actual)
        return _recreate_claim(context) or _apply(desired, actual, _correction(desired, actual))
    fields = _drifted(desired, actual)
    if desired is context.mirror.stateful_set and (problem := _roll_blocker(context, fields)):
        return Step(remedy=problem)
    if desired is context.mirror.daemon_set and (step := _clean_up_old_host(context, actual)):
        return step
    if desired is context.mirror.daemon_set and _changes_hosts(desired, actual) and not _is_current_and_ready(context):
        key = context.mirror.stateful_set.key
        remedy = f"a repair corrects it when {key}, which still serves images of another host, is up to date and ready"
        return Step(remedy=remedy, may_progress=True)
    without_address = desired is context.mirror.service and not context.mirror.cluster_ip
    if without_address or _immutable(desired, fields):
        return Step(delete(actual))
    return _apply(desired, actual, _correction(desired, actual))


def _clean_up_old_host(context: _RepairContext, actual: Object) -> Step | None:
    """Have the DaemonSet remove the files of an earlier host, whose folder pods of the new host do not mount."""
    before = host(actual)
    is_for_another_host = before not in ("", context.mirror.spec.host)
    if is_node_cleanup(actual):
        if is_for_another_host and rollout_problem(DAEMON_SETS.kind, actual):
            remedy = f"a repair corrects it when all nodes have removed the files of {before}"
            return Step(remedy=remedy, may_progress=True)
        return Step(delete(actual))  # after an apply it still has the mount of all folders
    if is_for_another_host:
        result = f"nodes remove the files of {before}"
        fix = Fix(Action.REPLACE, NodeCleanup(actual, context.settings.node_image), result)
        return Step(fix, may_progress=True)
    return None


def _changes_hosts(desired: Manifest, actual: Object) -> bool:
    """Return whether nodes currently pull images of another host through the mirror."""
    return _host_args(desired.body()) != _host_args(actual)


def _host_args(daemon_set: Object) -> set[str]:
    args = [arg for each in daemon_set["spec"]["template"]["spec"]["containers"] for arg in each.get("args") or []]
    return {arg for arg in args if arg.startswith(_HOSTS)}


def _is_current_and_ready(context: _RepairContext) -> bool:
    registry = context.actual(context.mirror.stateful_set.key)
    return bool(registry) and not _drifted(context.mirror.stateful_set, registry or {}) and _is_ready(context)


def _drifted(desired: Manifest, actual: Object) -> list[str]:
    return [each.change.field for each in drift(desired.body(), actual, NOT_DRIFT)]


def _immutable(desired: Manifest, fields: Sequence[str]) -> list[str]:
    return [field for field in fields if field.startswith(_IMMUTABLE[desired.resource.kind])]


def _correction(desired: Manifest, actual: Object) -> str:
    found = drift(desired.body(), actual, NOT_DRIFT)
    by = ", ".join(sorted({each.by for each in found if each.by}))
    fields = named([each.change.field for each in found])
    return f"{fields} corrected" + (f"; was changed by {by}" if by else "")


def _apply(desired: Manifest, actual: Object, result: str) -> Step:
    return Step(Fix(Action.APPLY, ApplyRequest(desired, actual["metadata"]["uid"]), result))


def delete(actual: Object) -> Fix:
    """Return the deletion of exactly this version of an object."""
    meta = actual["metadata"]
    return Fix(Action.DELETE, Deletion(meta["uid"], meta["resourceVersion"]))


def _roll_blocker(context: _RepairContext, fields: Sequence[str]) -> str:
    """Return why the registry must not be rolled now, or an empty string: it does not start without its upstream."""
    if problem := _credentials_blocker(context):
        return problem
    rolls = any(field.startswith("spec.template") for field in fields)
    if rolls or _immutable(context.mirror.stateful_set, fields):
        return _upstream_blocker(context)
    return ""


def _upstream_blocker(context: _RepairContext) -> str:
    is_unknown = is_upstream_unknown(context.mirror, context.observed)
    if not (is_unknown or "upstream-down" in context.codes) or not _is_ready(context):
        return ""
    when = "a probe shows that the upstream responds" if is_unknown else "the upstream responds"
    why = "a registry does not start without its upstream, but the running one serves its cache"
    return f"a repair continues when {when}: {why}"


def _claim_of_current_size(context: _RepairContext, actual: Object) -> Manifest:
    """Return the desired claim with its current size: _expand and _recreate_claim change the size."""
    claim = context.mirror.claim
    resources = VolumeResources(requests={"storage": actual["spec"]["resources"]["requests"]["storage"]})
    return structs.replace(claim, spec=structs.replace(claim.spec, resources=resources))


def _expand(context: _RepairContext, desired: Manifest) -> Step:
    """Request more storage for the claim if its storage class allows expansion."""
    actual = context.actual(desired.key)
    assert actual
    if not _requests_other_size(desired, actual):
        return Step(remedy="expansion requested; if its capacity does not grow, see kubectl describe")
    if not _is_bound(actual):
        return Step(remedy="a repair expands it when the claim is bound")
    key = _storage_class(actual)
    if key and key not in context.observed.documents:
        return Step(need=Need(key))
    document = context.observed.documents.get(key) if key else None
    if isinstance(document, ApiError) and document.status != HTTPStatus.NOT_FOUND:
        # Not a separate finding: an audit does not read storage classes, so it does not report it.
        what = f"{key}, which sets whether volumes can expand,"
        remedy = f"a repair continues when {what} is readable: {document.message}"
        return Step(remedy=remedy, exit_code=document.exit_code)
    return _recreate_claim(context) or _apply(desired, actual, f"requests {context.mirror.spec.storage.size}")


def _requests_other_size(desired: Manifest, actual: Object) -> bool:
    """Return whether the claim requests another size than the mirror. If not, only the volume is too small."""
    fields = [each.change.field for each in drift(desired.body(), actual)]
    return "spec.resources.requests.storage" in fields


def _is_bound(claim: Object) -> bool:
    return bool((claim.get("status") or {}).get("phase") == "Bound")


def _storage_class(claim: Object) -> ObjectKey | None:
    name = claim["spec"].get("storageClassName")
    return ObjectKey(STORAGE_CLASSES.kind, name) if name else None


def _replace_volume(context: _RepairContext, _desired: Manifest) -> Step:
    step = _recreate_claim(context)
    assert step
    return step


def _recreate_claim(context: _RepairContext) -> Step | None:
    """Recreate the claim if it cannot be corrected and its loss is allowed: delete the StatefulSet, then the claim."""
    why = _recreation_reason(context)
    if not why:
        return None
    if not _may_lose_cache(context):
        return Step(remedy=f"{why}: the claim can only be recreated, empty; a repair with --allow-cache-loss does that")
    if STATEFUL_SETS.kind in context.observed.list_errors:
        return Step(remedy=f"a repair recreates it when {STATEFUL_SETS.kind}s, which may use it, are readable")
    claim, stateful_set = context.actual(context.mirror.claim.key), context.actual(context.mirror.stateful_set.key)
    assert claim
    key = context.mirror.stateful_set.key
    remedy = f"a repair recreates it when {key} no longer exists"
    if stateful_set is None:
        return Step(remedy=remedy) if key in context.observed.invalid else Step(delete(claim))
    if problem := _credentials_blocker(context) or _upstream_blocker(context):
        return Step(remedy=problem)
    reason = f"uses {context.mirror.claim.key}, which is to be recreated"
    first = structs.replace(finding("drifted", key, reason, context.mirror.registry_mirror), fix=delete(stateful_set))
    return Step(remedy=remedy, may_progress=True, first=first)


def _may_lose_cache(context: _RepairContext) -> bool:
    """Return whether the claim may be deleted: --allow-cache-loss is set, or the cache is lost already."""
    return context.settings.allow_cache_loss or "volume-lost" in context.codes


def _recreation_reason(context: _RepairContext) -> str:
    """Return why the claim must be recreated, or an empty string."""
    claim = context.actual(context.mirror.claim.key)
    if claim is None:
        return ""
    if "volume-lost" in context.codes:
        return "its volume was deleted"
    if immutable := _immutable(context.mirror.claim, _drifted(context.mirror.claim, claim)):
        return f"{', '.join(immutable)} cannot be changed"
    if "volume-shrink" in context.codes:
        return "a volume cannot shrink"
    if "volume-too-small" in context.codes and _is_bound(claim) and _requests_other_size(context.mirror.claim, claim):
        key = _storage_class(claim)
        document = context.observed.documents.get(key) if key else None
        if key is None:
            return "it has no storage class that allows expansion"
        if isinstance(document, ApiError) and document.status == HTTPStatus.NOT_FOUND:
            return f"{key}, which sets whether it can expand, does not exist"
        if isinstance(document, StorageClass) and not document.allow_volume_expansion:
            return f"{key} does not allow volumes to expand"
    return ""


_STEPS: Mapping[str, Callable[[_RepairContext, Manifest], Step]] = {
    "missing": _create,
    "drifted": _correct,
    "volume-too-small": _expand,
    "volume-lost": _replace_volume,
    "volume-shrink": _replace_volume,
}
