"""What a repair does about what an audit found: the next step of each resource, or what has to happen first. Pure.

Steps follow from what is there, never from what a run remembers: a resource is made when those before it are there, the
DaemonSet when the registry is ready; what cannot be changed in place is deleted, and is missing at the next look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple

import msgspec
from msgspec import Struct, structs

from jobs.kit.decoding import decode_plain
from jobs.kit.errors import ApiError
from jobs.kit.manifests import Deletion
from jobs.kit.model import Action, Brake, ExitCode, Finding, Fix, Need, ObjectKey
from jobs.mirrors.actual import Object
from jobs.mirrors.codes import CODES
from jobs.mirrors.drift import drift
from jobs.mirrors.findings import finding
from jobs.mirrors.manifests import CLAIMS, DAEMON_SETS, SERVICES, STATEFUL_SETS, Manifest, VolumeResources
from jobs.mirrors.mirror import Mirror
from jobs.mirrors.node_cleanup import NodeCleanup, host, is_node_cleanup
from jobs.mirrors.observed import SLICES, STORAGE_CLASSES, Observed, Settings, StorageClass
from jobs.mirrors.probes import is_upstream_unknown, secret_key
from jobs.mirrors.resources import NOT_DRIFT, behind, is_ours, named

# What the API lets nobody change, of what we set.
# https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#updating-statefulsets
_FROZEN: Mapping[str, tuple[str, ...]] = {
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
_HOSTS = ("--host=", "--upstream=")  # arguments that say for which images nodes ask the mirror


class ApplyRequest(Struct, frozen=True, gc=False):
    """What a server-side apply of a resource sends. With `uid` it changes that very object, and never makes one."""

    manifest: Manifest
    uid: str = ""

    def encode(self) -> bytes:
        """Return the object as JSON."""
        document = self.manifest.document()
        if self.uid:
            document["metadata"]["uid"] = self.uid
        return msgspec.json.encode(document)

    def changed_by_server(self, answer: bytes) -> tuple[str, ...]:
        """Return the fields in which the server's answer differs: admission changed them."""
        found = drift(self.manifest.body(), decode_plain(answer), NOT_DRIFT)
        return tuple(each.change.field for each in found)

    def redact(self, text: str) -> str:
        """Return the text as it is: no secret was sent."""
        return text


class Step(NamedTuple):
    """What is next for a resource: a write, or why there is none yet. `may_progress`: time may bring what it hangs on.

    `first` is a write to another object that comes before.
    """

    fix: Fix | None = None
    remedy: str = ""
    need: Need | None = None
    may_progress: bool = False
    first: Finding | None = None
    exit_code: ExitCode = ExitCode.DONE


class _Case(NamedTuple):
    """One mirror, and what was found of it, by code."""

    mirror: Mirror
    observed: Observed
    settings: Settings
    codes: frozenset[str]
    without_credentials: bool

    def actual(self, key: ObjectKey) -> Object | None:
        """What is there of that name and made for a mirror, and is to stay."""
        found = self.observed.children.get(key)
        return found if found and is_ours(found) and not found["metadata"].get("deletionTimestamp") else None

    def is_going(self, key: ObjectKey) -> bool:
        """Whether what is there of that name is being deleted."""
        found = self.observed.children.get(key)
        return bool(found and found["metadata"].get("deletionTimestamp"))


class Repairs(NamedTuple):
    """The findings with their next steps, and what must be known first."""

    findings: Sequence[Finding]
    needs: Sequence[Need] = ()
    may_progress: bool = False
    brakes: Sequence[Brake] = ()


def repairs(mirror: Mirror, findings: Sequence[Finding], observed: Observed, settings: Settings) -> Repairs:
    """Return what is found of one mirror with what is done about it."""
    unusable = any(each.object == secret_key(mirror) and each.code in _CREDENTIALS for each in findings)
    case = _Case(mirror, observed, settings, frozenset(each.code for each in findings), unusable)
    desired = {child.key: child for child in mirror.children}
    steps = [(each, _step(case, each, desired.get(each.object))) for each in findings]
    return with_steps(steps)


def with_steps(steps: Sequence[tuple[Finding, Step]]) -> Repairs:
    """Return findings with their steps: one write to each object."""
    return Repairs(
        _one_write_each([each for found, step in steps for each in _with_step(found, step)]),
        [step.need for _, step in steps if step.need],
        any(step.may_progress for _, step in steps),
    )


def _one_write_each(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings with one write to each object: its deletion, if there is one, after which all is new."""
    writes: dict[ObjectKey, Finding] = {}
    for each in findings:
        before = writes.get(each.object)
        if each.fix and (before is None or _deletes(each) > _deletes(before)):
            writes[each.object] = each
    return [
        structs.replace(each, fix=None, remedy="comes with another step for the same object")
        if each.fix and writes[each.object] is not each
        else each
        for each in findings
    ]


def _deletes(found: Finding) -> bool:
    return found.fix is not None and found.fix.action is Action.DELETE


def refused(found: Finding) -> Finding:
    """Return a finding that no repair does anything about, with what a person must do."""
    return structs.replace(found, remedy=CODES[found.code].remedy)


def _with_step(found: Finding, step: Step) -> list[Finding]:
    """Return a finding with its step, after what comes before that."""
    exit_code = step.exit_code or found.exit_code
    told = structs.replace(found, fix=step.fix, remedy=step.remedy, exit_code=exit_code)
    return [step.first, told] if step.first else [told]


def _step(case: _Case, found: Finding, desired: Manifest | None) -> Step:
    choose = _STEPS.get(found.code)
    if choose is None or desired is None:
        return Step(remedy=CODES[found.code].remedy)
    return choose(case, desired)


def _make(case: _Case, desired: Manifest) -> Step:
    """Make what is missing, once all before it is there."""
    for before in case.mirror.children:
        comes_first = _ORDER.index(before.resource.kind) < _ORDER.index(desired.resource.kind)
        if comes_first and not case.actual(before.key):
            return Step(remedy=f"made once {before.key} is there", may_progress=case.is_going(before.key))
    if desired is case.mirror.stateful_set:
        if problem := _no_credentials(case):
            return Step(remedy=problem)
        if _may_lose_cache(case) and _why_anew(case):
            return Step(remedy=f"made once {case.mirror.claim.key} was made anew", may_progress=True)
    if desired is case.mirror.daemon_set and not _serves_as_asked(case):
        return Step(
            remedy=f"made once {case.mirror.stateful_set.key} is ready: nodes would ask in vain", may_progress=True
        )
    return Step(Fix(Action.APPLY_NEW, ApplyRequest(desired), f"for registrymirror/{case.mirror.asked.name}"))


def _no_credentials(case: _Case) -> str:
    if case.without_credentials:
        return f"done once {secret_key(case.mirror)} can be used"
    if "credentials-exposed" in case.codes:
        return "done once spec.allowUnauthenticatedReaders is true: all who reach the mirror may use its login"
    return ""


def _is_ready(case: _Case) -> bool:
    registry = case.actual(case.mirror.stateful_set.key)
    if not registry or behind(STATEFUL_SETS.kind, registry) or not (registry.get("status") or {}).get("readyReplicas"):
        return False
    return SLICES.kind in case.observed.denied or bool(case.observed.endpoints_of(case.mirror.service.key).own)


def _set_right(case: _Case, desired: Manifest) -> Step:
    """Set drifted fields right, in place where the API allows that."""
    actual = case.actual(desired.key)
    assert actual
    if desired is case.mirror.claim:
        desired = _of_its_size(case, actual)
        return _anew(case) or _apply(desired, actual, _as_wanted(desired, actual))
    fields = _drifted(desired, actual)
    if desired is case.mirror.stateful_set and (problem := _not_now(case, fields)):
        return Step(remedy=problem)
    if desired is case.mirror.daemon_set and (step := _forgotten_first(case, actual)):
        return step
    if desired is case.mirror.daemon_set and _is_for_others(desired, actual) and not _serves_as_asked(case):
        key = case.mirror.stateful_set.key
        remedy = f"done once {key} is ready, as asked: it would serve what it has for another host"
        return Step(remedy=remedy, may_progress=True)
    without_address = desired is case.mirror.service and not case.mirror.cluster_ip
    if without_address or _frozen(desired, fields):
        return Step(delete(actual))
    return _apply(desired, actual, _as_wanted(desired, actual))


def _forgotten_first(case: _Case, actual: Object) -> Step | None:
    """Have nodes forget the host of before, whose folder the pods of another host do not mount."""
    before = host(actual)
    is_for_another_host = before not in ("", case.mirror.spec.host)
    if is_node_cleanup(actual):
        if is_for_another_host and behind(DAEMON_SETS.kind, actual):
            return Step(remedy=f"done once all nodes have forgotten {before}", may_progress=True)
        return Step(delete(actual))  # an apply would leave it the mount of all folders
    if is_for_another_host:
        fix = Fix(Action.REPLACE, NodeCleanup(actual, case.settings.node_image), f"nodes forget {before}")
        return Step(fix, may_progress=True)
    return None


def _is_for_others(desired: Manifest, actual: Object) -> bool:
    """Whether nodes ask the mirror for images of another host so far."""
    return _for_what(desired.body()) != _for_what(actual)


def _for_what(daemon_set: Object) -> set[str]:
    args = [arg for each in daemon_set["spec"]["template"]["spec"]["containers"] for arg in each.get("args") or []]
    return {arg for arg in args if arg.startswith(_HOSTS)}


def _serves_as_asked(case: _Case) -> bool:
    registry = case.actual(case.mirror.stateful_set.key)
    return bool(registry) and not _drifted(case.mirror.stateful_set, registry or {}) and _is_ready(case)


def _drifted(desired: Manifest, actual: Object) -> list[str]:
    return [each.change.field for each in drift(desired.body(), actual, NOT_DRIFT)]


def _frozen(desired: Manifest, fields: Sequence[str]) -> list[str]:
    return [field for field in fields if field.startswith(_FROZEN[desired.resource.kind])]


def _as_wanted(desired: Manifest, actual: Object) -> str:
    found = drift(desired.body(), actual, NOT_DRIFT)
    by = ", ".join(sorted({each.by for each in found if each.by}))
    fields = named([each.change.field for each in found])
    return f"{fields} as the mirror asks for" + (f"; changed before by {by}" if by else "")


def _apply(desired: Manifest, actual: Object, result: str) -> Step:
    return Step(Fix(Action.APPLY, ApplyRequest(desired, actual["metadata"]["uid"]), result))


def delete(actual: Object) -> Fix:
    """Return the deletion of that very version of an object."""
    meta = actual["metadata"]
    return Fix(Action.DELETE, Deletion(meta["uid"], meta["resourceVersion"]))


def _not_now(case: _Case, fields: Sequence[str]) -> str:
    """Return why the registry is not to be rolled: without its upstream it would not start, and serve nothing."""
    if problem := _no_credentials(case):
        return problem
    rolls = any(field.startswith("spec.template") for field in fields) or _frozen(case.mirror.stateful_set, fields)
    return _not_without_upstream(case) if rolls else ""


def _not_without_upstream(case: _Case) -> str:
    is_unknown = is_upstream_unknown(case.mirror, case.observed)
    if not (is_unknown or "upstream-down" in case.codes) or not _is_ready(case):
        return ""
    when = "it is known whether the upstream answers" if is_unknown else "the upstream answers"
    return f"done once {when}: a registry does not start without it, and this one serves what it has"


def _of_its_size(case: _Case, actual: Object) -> Manifest:
    """Return the claim as wanted, of the size that it asks for: whether that may change is another question."""
    claim = case.mirror.claim
    resources = VolumeResources(requests={"storage": actual["spec"]["resources"]["requests"]["storage"]})
    return structs.replace(claim, spec=structs.replace(claim.spec, resources=resources))


def _grow(case: _Case, desired: Manifest) -> Step:
    """Have the claim ask for more, where its storage class lets volumes grow."""
    actual = case.actual(desired.key)
    assert actual
    if not _asks_for_less(desired, actual):
        return Step(remedy="it was asked to grow: kubectl describe it if it does not")
    if not _is_bound(actual):
        return Step(remedy="a claim can grow once it is bound")
    key = _storage_class(actual)
    if key and key not in case.observed.looks:
        return Step(need=Need(key))
    look = case.observed.looks.get(key) if key else None
    if isinstance(look, ApiError) and look.status != HTTPStatus.NOT_FOUND:
        # No finding of its own: an audit, which does not look there, would not have it.
        remedy = f"done once {key} can be read, which says whether volumes can grow: {look.message}"
        return Step(remedy=remedy, exit_code=look.exit_code)
    return _anew(case) or _apply(desired, actual, f"asks for {case.mirror.spec.storage.size}")


def _asks_for_less(desired: Manifest, actual: Object) -> bool:
    """Whether the claim asks for another size than the mirror; if not it is the volume that lags behind."""
    fields = [each.change.field for each in drift(desired.body(), actual)]
    return "spec.resources.requests.storage" in fields


def _is_bound(claim: Object) -> bool:
    return bool((claim.get("status") or {}).get("phase") == "Bound")


def _storage_class(claim: Object) -> ObjectKey | None:
    name = claim["spec"].get("storageClassName")
    return ObjectKey(STORAGE_CLASSES.kind, name) if name else None


def _recreate(case: _Case, _wanted: Manifest) -> Step:
    step = _anew(case)
    assert step
    return step


def _anew(case: _Case) -> Step | None:
    """Make the claim anew where nothing else helps, if its loss is allowed: first what holds it goes, then it."""
    why = _why_anew(case)
    if not why:
        return None
    if not _may_lose_cache(case):
        return Step(remedy=f"{why}: it can only be made anew, empty, which --allow-cache-loss does")
    if STATEFUL_SETS.kind in case.observed.denied:
        return Step(remedy=f"made anew once it can be seen whether a {STATEFUL_SETS.kind} holds it")
    claim, holder = case.actual(case.mirror.claim.key), case.actual(case.mirror.stateful_set.key)
    assert claim
    key = case.mirror.stateful_set.key
    if holder is None:
        return Step(remedy=f"recreated once {key} is gone") if key in case.observed.invalid else Step(delete(claim))
    if problem := _no_credentials(case) or _not_without_upstream(case):
        return Step(remedy=problem)
    reason = f"holds {case.mirror.claim.key}, which is to be made anew"
    first = structs.replace(finding("drifted", key, reason, case.mirror.asked), fix=delete(holder))
    return Step(remedy=f"made anew once {key} is gone", may_progress=True, first=first)


def _may_lose_cache(case: _Case) -> bool:
    """Whether the claim may be deleted: its cache may be lost, or is lost already."""
    return case.settings.allow_cache_loss or "volume-lost" in case.codes


def _why_anew(case: _Case) -> str:
    """Return why the claim cannot become what the mirror asks for, or nothing."""
    claim = case.actual(case.mirror.claim.key)
    if claim is None:
        return ""
    if "volume-lost" in case.codes:
        return "its volume is gone"
    if frozen := _frozen(case.mirror.claim, _drifted(case.mirror.claim, claim)):
        return f"{', '.join(frozen)} cannot be changed"
    if "volume-shrink" in case.codes:
        return "a volume cannot shrink"
    if "volume-too-small" in case.codes and _is_bound(claim) and _asks_for_less(case.mirror.claim, claim):
        key = _storage_class(claim)
        look = case.observed.looks.get(key) if key else None
        if key is None:
            return "it has no storage class that could let it grow"
        if isinstance(look, ApiError) and look.status == HTTPStatus.NOT_FOUND:
            return f"{key} is not there, which could let it grow"
        if isinstance(look, StorageClass) and not look.allow_volume_expansion:
            return f"{key} does not let volumes grow"
    return ""


_STEPS: Mapping[str, Callable[[_Case, Manifest], Step]] = {
    "missing": _make,
    "drifted": _set_right,
    "volume-too-small": _grow,
    "volume-lost": _recreate,
    "volume-shrink": _recreate,
}
