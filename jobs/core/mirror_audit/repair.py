"""Choose the next repair step for each finding: a write, or the condition for it. Pure.

Steps depend only on the observed state; a run keeps no state. A resource is created when those before it exist, the
DaemonSet when the registry is ready. A resource that cannot be changed in place is deleted; the next observation then
finds it missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from jobs.core.mirror_audit.actual import UNKNOWN, Object, is_terminating, mirror_name, rollout_problem, status_of
from jobs.core.mirror_audit.desired import NODE_NAMESPACE, Manifest, Mirror
from jobs.core.mirror_audit.findings import CODES, finding
from jobs.core.mirror_audit.observed import Observed, Settings, StorageClass
from jobs.core.mirror_audit.probes import is_upstream_unknown
from jobs.core.mirror_audit.registry_mirrors import quantity
from jobs.core.mirror_audit.resources import drift, named, storage
from jobs.core.mirror_node.hosts import CERTS
from jobs.kit.run.brakes import allowed
from jobs.kit.values import stamps
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Action, Body, Brake, Change, Deletion, Dependency, ExitCode, Finding, ObjectKey, Plan
from jobs.kit.values.reads import decode_plain
from jobs.kit.values.resources import (
    CLAIMS,
    DAEMON_SETS,
    ENDPOINT_SLICES,
    PRIORITY_CLASSES,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
)

# a step, and the state of one mirror that its steps depend on

_CREDENTIALS = (
    "credentials-missing",
    "credentials-upstream-not-allowed",
    "credentials-image-not-allowed",
    "unreadable",
)


class Step(NamedTuple):
    """The next step for a resource: a write (`change`), or the condition for it (`remedy`).

    `dependency` is an object to read first. `may_progress` is whether a later observation in the same run may allow the
    next step. `first` is a write to another object before this one.
    """

    remedy: str = ""
    change: Change | None = None
    dependency: Dependency | None = None
    may_progress: bool = False
    first: Finding | None = None
    exit_code: ExitCode = ExitCode.DONE


def _waiting(remedy: str) -> Step:
    """Return the step for which a later observation in the same run may show that its condition is met."""
    return Step(remedy, may_progress=True)


class Context(NamedTuple):
    """One mirror, with its findings."""

    mirror: Mirror
    findings: list[Finding]
    observed: Observed
    settings: Settings

    @property
    def codes(self) -> frozenset[str]:
        """The codes of its findings."""
        return frozenset(each.code for each in self.findings)

    @property
    def claim(self) -> Object | None:
        """Its claim, as actual() returns it."""
        return self.actual(self.mirror.claim.key)

    @property
    def registry(self) -> Object | None:
        """Its StatefulSet, as actual() returns it."""
        return self.actual(self.mirror.stateful_set.key)

    def actual(self, key: ObjectKey) -> Object | None:
        """Return the object of this name, if kube-chores manages it and it is not being deleted."""
        found = self.observed.managed(key)
        return found if found and not is_terminating(found) else None

    def is_ready(self) -> bool:
        """Return whether the registry serves nodes."""
        registry = self.registry
        is_rolled_out = registry and not rollout_problem(STATEFUL_SETS.kind, registry)
        if not (registry and is_rolled_out and status_of(registry).get("readyReplicas")):
            return False
        endpoints = self.observed.endpoints_of(self.mirror.service.key)
        return ENDPOINT_SLICES.kind in self.observed.list_errors or bool(endpoints.own)

    def is_current_and_ready(self) -> bool:
        """Return whether the registry serves nodes, with its desired configuration."""
        registry = self.registry
        return bool(registry) and not drift(self.mirror.stateful_set.body, registry or {}) and self.is_ready()

    def credentials_blocker(self) -> str:
        """Return why no registry may start with the credentials, or an empty string."""
        secret = self.mirror.secret
        if any(each.object == secret and each.code in _CREDENTIALS for each in self.findings):
            return f"a repair continues when {secret} is usable"
        if "credentials-exposed" in self.codes:
            when = "spec.allowUnauthenticatedReaders is true"
            return f"a repair continues when {when}: every client then pulls private images"
        return ""

    def roll_blocker(self) -> str:
        """Return why the registry must not restart now, or an empty string: it does not start without its upstream."""
        if problem := self.credentials_blocker():
            return problem
        is_unknown = is_upstream_unknown(self.mirror, self.observed)
        if not (is_unknown or "upstream-down" in self.codes) or not self.is_ready():
            return ""
        when = "a probe shows that the upstream responds" if is_unknown else "the upstream responds"
        why = "a registry does not start without its upstream, but the running one serves its cache"
        return f"a repair continues when {when}: {why}"


def _read(context: Context, key: ObjectKey, what: str = "") -> Step | None:
    """Return the step that reads an object, or why it is not readable; None if it was read or does not exist."""
    if key not in context.observed.documents:
        return Step(dependency=Dependency(key))
    document = context.observed.documents[key]
    if not isinstance(document, ApiError) or document.status == HTTPStatus.NOT_FOUND:
        return None
    remedy = f"a repair continues when {key}{what} is readable: {document.message}"
    return Step(remedy, exit_code=document.exit_code)


# writes: server-side applies of desired resources, deletions, and the cleanup of nodes

# The fields that kube-chores sets and that the API does not allow to change.
# https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#updating-statefulsets
_IMMUTABLE: Mapping[str, tuple[str, ...]] = {
    SERVICES.kind: ("spec.clusterIP",),
    CLAIMS.kind: ("spec.accessModes", "spec.storageClassName"),
    STATEFUL_SETS.kind: ("spec.selector", "spec.serviceName", "spec.podManagementPolicy"),
    DAEMON_SETS.kind: ("spec.selector",),
}
_REMOVE = "--remove"
_HOST = "--host="


class ApplyRequest(Body, frozen=True, gc=False):
    """The body of a server-side apply. With `uid` it changes exactly that object, and never creates one."""

    manifest: Manifest
    uid: str = ""

    def encode(self) -> bytes:
        """Return the object as JSON."""
        document = self.manifest.document()
        if self.uid:
            document["metadata"]["uid"] = self.uid
        return msgspec.json.encode(document)

    def changed_by_server(self, response: bytes) -> tuple[str, ...]:
        """Return the fields that differ in the server's response: admission changed them."""
        return tuple(drifted_fields(self.manifest, decode_plain(response)))


def apply(desired: Manifest, actual: Object, result: str) -> Change:
    """Return the apply of a desired resource to exactly this object."""
    return Change(Action.APPLY, ApplyRequest(desired, actual["metadata"]["uid"]), result)


def delete(actual: Object) -> Change:
    """Return the deletion of exactly this version of an object."""
    meta = actual["metadata"]
    return Change(Action.DELETE, Deletion(meta["uid"], meta["resourceVersion"]))


def drifted_fields(desired: Manifest, actual: Object) -> list[str]:
    """Return the fields of a resource that drifted."""
    return [each.difference.field for each in drift(desired.body, actual)]


def immutable_fields(desired: Manifest, actual: Object) -> list[str]:
    """Return the drifted fields that the API does not allow to change."""
    return [field for field in drifted_fields(desired, actual) if field.startswith(_IMMUTABLE[desired.resource.kind])]


def correction(desired: Manifest, actual: Object) -> str:
    """Return the result of an apply: the fields that it corrects, and who changed them."""
    found = drift(desired.body, actual)
    by = ", ".join(sorted({each.by for each in found if each.by}))
    fields = named([each.difference.field for each in found])
    return f"{fields} corrected" + (f"; was changed by {by}" if by else "")


class NodeCleanup(Body, frozen=True, gc=False):
    """A DaemonSet that removes the files it wrote: exactly the observed version, with other arguments.

    Its pods mount the folder of all hosts: the folder of one host cannot be removed while it is mounted. Pods
    that become ready show that nodes removed the files, so the answer to the write is not checked.
    """

    actual: Any
    image: str

    def encode(self) -> bytes:
        """Return the object as JSON."""
        template = self.actual["spec"]["template"]
        (container,) = template["spec"]["containers"]
        args = [*file_args(self.actual), _REMOVE]
        changed = {
            **{field: value for field, value in container.items() if not field.endswith("Probe")},
            "image": self.image or container["image"],
            "args": args,
            "readinessProbe": {
                "exec": {"command": ["chores", *args, "--check"]},
                "periodSeconds": 10,
                "timeoutSeconds": 10,
            },
            "volumeMounts": [{"name": "certs", "mountPath": CERTS}],
        }
        pod = {
            **template["spec"],
            "containers": [changed],
            "volumes": [{"name": "certs", "hostPath": {"path": CERTS, "type": "DirectoryOrCreate"}}],
            # Also on nodes that it no longer tolerates: files that it wrote there still exist.
            "tolerations": [{"operator": "Exists"}],
        }
        spec = {**self.actual["spec"], "template": {**template, "spec": pod}}
        kind = {"apiVersion": DAEMON_SETS.api_version, "kind": DAEMON_SETS.kind}
        return msgspec.json.encode({**self.actual, **kind, "spec": spec})


def is_node_cleanup(daemon_set: Object) -> bool:
    """Return whether a DaemonSet is a NodeCleanup, which removes the files it wrote."""
    return _REMOVE in _args(daemon_set)


def file_args(daemon_set: Object) -> list[str]:
    """Return the arguments that name the files on nodes, or nothing if somebody changed them."""
    named = [arg for arg in _args(daemon_set) if arg.startswith(("--name=", _HOST))]
    return ["mirror-node", *sorted(named, reverse=True)] if len(named) == 2 else []


def _clean_up(actual: Object, image: str, result: str, waiting: str) -> Step:
    """Have the DaemonSet remove the files that it wrote; delete it when all nodes have."""
    if not is_node_cleanup(actual):
        return Step(change=Change(Action.REPLACE, NodeCleanup(actual, image), result), may_progress=True)
    return _waiting(waiting) if rollout_problem(DAEMON_SETS.kind, actual) else Step(change=delete(actual))


def _args(daemon_set: Object) -> list[str]:
    containers = daemon_set["spec"]["template"]["spec"]["containers"]
    return list(containers[0].get("args") or []) if len(containers) == 1 else []


# the claim of a mirror: expand it, or recreate it, empty, if it cannot be corrected


def expand(context: Context, desired: Manifest) -> Step:
    """Request more storage for the claim if its storage class allows expansion."""
    actual = context.claim
    assert actual
    if not _requests_other_size(context, actual):
        return Step("expansion requested; if its capacity does not grow, see kubectl describe")
    if not _is_bound(actual):
        return Step("a repair expands it when the claim is bound")
    key = _storage_class(actual)
    # Not a separate finding: an audit does not read storage classes, so it does not report it.
    if key and (step := _read(context, key, ", which sets whether volumes can expand,")):
        return step
    size = context.mirror.spec.storage.size
    return _recreate(context, desired) or Step(change=apply(desired, actual, f"requests {size}"))


def _requested(claim: Object) -> str:
    return storage(claim["spec"].get("resources", {}).get("requests", {}))


def _requests_other_size(context: Context, claim: Object) -> bool:
    """Return whether the claim requests another size than the mirror. If not, only the volume is too small."""
    return quantity(_requested(claim)) != quantity(context.mirror.spec.storage.size)


def _is_bound(claim: Object) -> bool:
    return bool(status_of(claim).get("phase") == "Bound")


def _storage_class(claim: Object) -> ObjectKey | None:
    name = claim["spec"].get("storageClassName")
    return ObjectKey(STORAGE_CLASSES.kind, name) if name else None


def _recreate(context: Context, desired: Manifest) -> Step | None:
    """Recreate the claim if it cannot be corrected and its loss is allowed: delete the StatefulSet, then the claim."""
    claim, why = context.claim, recreation_reason(context)
    if not claim or not why:
        return None
    if not may_lose_cache(context):
        return Step(f"{why}: the claim can only be recreated, empty; a repair with --allow-cache-loss does that")
    if STATEFUL_SETS.kind in context.observed.list_errors:
        return Step(f"a repair recreates it when {STATEFUL_SETS.kind}s, which may use it, are readable")
    key = context.mirror.stateful_set.key
    remedy = f"a repair recreates it when {key} no longer exists"
    if context.registry is None:
        return Step(remedy) if key in context.observed.invalid else Step(change=delete(claim))
    if problem := context.roll_blocker():
        return Step(problem)
    reason = f"uses {desired.key}, which is to be recreated"
    first = finding("drifted", reason, key, context.mirror.registry_mirror)
    return Step(remedy, may_progress=True, first=structs.replace(first, change=delete(context.registry)))


def may_lose_cache(context: Context) -> bool:
    """Return whether the claim may be deleted: --allow-cache-loss is set, or the cache is lost already."""
    return context.settings.allow_cache_loss or "volume-lost" in context.codes


def recreation_reason(context: Context) -> str:
    """Return why the claim must be recreated, or an empty string."""
    claim = context.claim
    if claim is None:
        return ""
    if "volume-lost" in context.codes:
        return "its volume was deleted"
    if immutable := immutable_fields(context.mirror.claim, claim):
        return f"{', '.join(immutable)} cannot be changed"
    if "volume-shrink" in context.codes:
        return "a volume cannot shrink"
    if "volume-too-small" in context.codes and _is_bound(claim) and _requests_other_size(context, claim):
        key = _storage_class(claim)
        document = context.observed.documents.get(key) if key else None
        if key is None:
            return "it has no storage class that allows expansion"
        if isinstance(document, ApiError) and document.status == HTTPStatus.NOT_FOUND:
            return f"{key}, which sets whether it can expand, does not exist"
        if isinstance(document, StorageClass) and not document.allow_volume_expansion:
            return f"{key} does not allow volumes to expand"
    return ""


# resources of deleted mirrors: first the files on nodes, then the rest; the cache is retained

_DELETED_AFTER: Mapping[str, tuple[str, ...]] = {
    STATEFUL_SETS.kind: (DAEMON_SETS.kind,),
    SERVICES.kind: (DAEMON_SETS.kind, STATEFUL_SETS.kind),
    CLAIMS.kind: (DAEMON_SETS.kind, STATEFUL_SETS.kind),
}
_BLOCKED = Step("blocked by the deletion brake", exit_code=ExitCode.BRAKE)


def removals(
    orphans: Sequence[Finding], observed: Observed, settings: Settings
) -> tuple[list[tuple[Finding, Step]], Sequence[Brake]]:
    """Choose the next step for each orphan, unless too many mirrors would be removed at once.

    The deletion brake counts mirrors whose removal starts. It blocks all removals, also those in progress.
    """
    by_mirror: dict[str, list[ObjectKey]] = {}
    removed: set[str] = set()
    steps: list[tuple[Finding, Step]] = []
    for each in orphans:
        by_mirror.setdefault(mirror_name(observed.resources[each.object]), []).append(each.object)
    for each in orphans:
        name = mirror_name(observed.resources[each.object])
        step = _removal(each, by_mirror[name], observed, settings)
        steps.append((each, step))
        # The removal of a mirror starts with the files on nodes; a deleted claim loses a cache.
        if step.change and (isinstance(step.change.body, NodeCleanup) or each.object.kind == CLAIMS.kind):
            removed.add(name)
    most = allowed(len(observed.mirrors) + len(observed.invalid_mirrors), settings.max_deletes)
    if len(removed) <= most:
        return steps, ()
    what = f"{len(removed)} mirror{'s' * (len(removed) != 1)}"
    brake = Brake(f"the deletion brake blocks the removal of {what}", "--max-deletes", str(len(removed)))
    return [(each, step if each.code == "retained" else _BLOCKED) for each, step in steps], (brake,)


def _removal(orphan: Finding, others: Sequence[ObjectKey], observed: Observed, settings: Settings) -> Step:
    """Return the next step for one orphan; `others` are all orphans of its mirror.

    Nodes remove the files of the mirror before the mirror is deleted. The cache is retained unless its loss is allowed.
    """
    key = orphan.object
    actual = observed.resources[key]
    if is_terminating(actual):
        return _waiting("being deleted")
    if mirror_name(actual) == UNKNOWN:
        return Step(f"restore its annotation {stamps.RULE}, which names its mirror, or delete it manually")
    if key.kind == DAEMON_SETS.kind and key.namespace != NODE_NAMESPACE:
        return _remove_moved(orphan, actual, observed)
    # If the mirror exists, the nodes' files must stay: the mirror's own DaemonSet writes them.
    mirror_exists = bool(orphan.subjects)
    if key.kind == DAEMON_SETS.kind and not mirror_exists:
        return _clean_up_nodes(actual, observed.node_image(settings))
    if key.kind == CLAIMS.kind and not settings.allow_cache_loss:
        return Step("retained for a later mirror of this name; with --allow-cache-loss, a repair deletes it")
    before = _DELETED_AFTER.get(key.kind, ())
    if unlisted := [kind for kind in before if kind in observed.list_errors]:
        return Step(f"a repair deletes it when {unlisted[0]}s, which may use it, are readable")
    if blockers := [other for other in others if other.kind in before]:
        return _waiting(f"a repair deletes it when {blockers[0]} no longer exists")
    return Step(change=delete(actual))


def _remove_moved(orphan: Finding, actual: Object, observed: Observed) -> Step:
    """Delete a DaemonSet of an earlier version in the registries' namespace, when its successor is on all nodes.

    That namespace does not allow new pods of it, so it cannot remove the files of a deleted mirror.
    """
    successor = orphan.object._replace(namespace=NODE_NAMESPACE)
    if found := observed.managed(successor):
        is_ready = not rollout_problem(DAEMON_SETS.kind, found)
        remedy = f"a repair deletes it when {successor} is ready"
        return Step(change=delete(actual)) if is_ready else _waiting(remedy)
    if orphan.subjects:
        return Step(f"a repair deletes it when {successor} is ready")
    return Step(f"recreate registrymirror/{mirror_name(actual)}; when {successor} is ready, delete the mirror")


def _clean_up_nodes(actual: Object, image: str) -> Step:
    if not is_node_cleanup(actual) and not file_args(actual):
        return Step("its arguments do not name its files on nodes: delete the files and the DaemonSet manually")
    result = f"nodes remove the files of registrymirror/{mirror_name(actual)}, which does not exist"
    waiting = "a repair deletes it when all nodes have removed the files of the mirror"
    return _clean_up(actual, image, result, waiting)


# all findings

_ORDER = (SERVICES.kind, CLAIMS.kind, STATEFUL_SETS.kind, DAEMON_SETS.kind)
_REMOVALS = ("orphan", "retained")
_HOSTS = ("--host=", "--upstream=")  # arguments that set which images nodes pull through the mirror


def repairs(findings: Sequence[Finding], mirrors: Sequence[Mirror], observed: Observed, settings: Settings) -> Plan:
    """Add the next step to each finding, mirror by mirror: no mirror blocks the repair of another."""
    by_subjects: dict[tuple[str, ...], list[Finding]] = {}
    for each in findings:
        if each.code not in _REMOVALS:
            by_subjects.setdefault(each.subjects, []).append(each)
    by_name: dict[tuple[str, ...], Mirror] = {(mirror.registry_mirror.name,): mirror for mirror in mirrors}
    steps, brakes = removals([each for each in findings if each.code in _REMOVALS], observed, settings)
    for subjects, found in by_subjects.items():
        mirror = by_name.get(subjects)
        context = Context(mirror, found, observed, settings) if mirror else None
        steps += [(each, _step(context, each)) for each in found]
    dependencies = [step.dependency for _, step in steps if step.dependency]
    may_progress = any(step.may_progress for _, step in steps)
    return Plan(_with_steps(steps), dependencies=dependencies, brakes=brakes, may_progress=may_progress)


def _with_steps(steps: Sequence[tuple[Finding, Step]]) -> list[Finding]:
    """Return the findings with their steps, with at most one write to each object."""
    planned: list[Finding] = []
    for found, step in steps:
        planned += [step.first] if step.first else []
        exit_code = step.exit_code or found.exit_code
        planned.append(structs.replace(found, change=step.change, remedy=step.remedy, exit_code=exit_code))
    return _one_write_per_object(planned)


def _one_write_per_object(findings: Sequence[Finding]) -> list[Finding]:
    """Keep one write to each object. A deletion comes first, because it makes other writes unnecessary."""
    kept: dict[ObjectKey, Finding] = {}
    for each in findings:
        before = kept.get(each.object)
        if each.change and (before is None or (each.action is Action.DELETE) > (before.action is Action.DELETE)):
            kept[each.object] = each
    return [
        structs.replace(each, change=None, remedy="another step for this object includes it")
        if each.change and kept[each.object] is not each
        else each
        for each in findings
    ]


def _step(context: Context | None, found: Finding) -> Step:
    """Return the step for a finding; if there is none, the remedy of its code for a person."""
    choose = _STEPS.get(found.code)
    desired = {each.key: each for each in context.mirror.resources}.get(found.object) if context else None
    step = None
    if context and choose and desired:
        step = _wait_for_priority_class(context, desired) or choose(context, desired)
    return step or Step(CODES[found.code].remedy)


def _wait_for_priority_class(context: Context, desired: Manifest) -> Step | None:
    """Give pods another PriorityClass only if it exists: otherwise the server refuses them after the old ones ended."""
    if desired.resource not in (STATEFUL_SETS, DAEMON_SETS):
        return None
    name, actual = desired.body["spec"]["template"]["spec"]["priorityClassName"], context.actual(desired.key)
    if actual and actual["spec"]["template"]["spec"].get("priorityClassName") == name:
        return None
    key = ObjectKey(PRIORITY_CLASSES.kind, name)
    if (step := _read(context, key)) or not isinstance(context.observed.documents[key], ApiError):
        return step
    return Step(f"a repair continues when {key} exists: apply the manifests again, or change spec.priorityClassName")


def _create(context: Context, desired: Manifest) -> Step:
    """Create a missing resource when the resources before it exist."""
    mirror = context.mirror
    for before in mirror.resources:
        comes_first = _ORDER.index(before.resource.kind) < _ORDER.index(desired.resource.kind)
        if comes_first and not context.actual(before.key):
            found = context.observed.resources.get(before.key)
            remedy = f"a repair creates it when {before.key} exists"
            return Step(remedy, may_progress=bool(found and is_terminating(found)))
    if desired is mirror.stateful_set:
        if problem := context.credentials_blocker():
            return Step(problem)
        if may_lose_cache(context) and recreation_reason(context):
            return _waiting(f"a repair creates it after {mirror.claim.key} is recreated")
    if desired is mirror.daemon_set and not context.is_current_and_ready():
        return _waiting(f"a repair creates it when {mirror.stateful_set.key} is ready to serve nodes")
    result = f"for registrymirror/{mirror.registry_mirror.name}"
    return Step(change=Change(Action.APPLY_NEW, ApplyRequest(desired), result))


def _correct(context: Context, desired: Manifest) -> Step:
    """Correct drifted fields: in place where the API allows it, otherwise by deleting the object."""
    mirror, actual = context.mirror, context.actual(desired.key)
    assert actual
    if desired is mirror.claim:
        if step := _recreate(context, desired):
            return step
        # Not its size, which has findings of its own.
        spec = {**desired.body["spec"], "resources": {"requests": {"storage": _requested(actual)}}}
        desired = structs.replace(desired, body={**desired.body, "spec": spec})
    if desired is mirror.stateful_set and (problem := _restart_blocker(context, actual)):
        return Step(problem)
    if desired is mirror.daemon_set and (
        step := _clean_up_old_host(context, actual) or _wait_for_registry(context, actual)
    ):
        return step
    without_address = desired is mirror.service and not mirror.cluster_ip
    if without_address or immutable_fields(desired, actual):
        return Step(change=delete(actual))
    return Step(change=apply(desired, actual, correction(desired, actual)))


def _restart_blocker(context: Context, actual: Object) -> str:
    """Return why the StatefulSet must not be corrected now, or an empty string."""
    desired = context.mirror.stateful_set
    rolls = any(field.startswith("spec.template") for field in drifted_fields(desired, actual))
    restarts = rolls or immutable_fields(desired, actual)
    return context.roll_blocker() if restarts else context.credentials_blocker()


def _clean_up_old_host(context: Context, actual: Object) -> Step | None:
    """Have the DaemonSet remove the files of an earlier host, whose folder pods of the new host do not mount."""
    before = next((arg.removeprefix(_HOST) for arg in file_args(actual) if arg.startswith(_HOST)), "")
    if before not in ("", context.mirror.spec.host):
        waiting = f"a repair corrects it when all nodes have removed the files of {before}"
        image = context.observed.node_image(context.settings)
        return _clean_up(actual, image, f"nodes remove the files of {before}", waiting)
    # After an apply, a cleanup still has the mount of all folders.
    return Step(change=delete(actual)) if is_node_cleanup(actual) else None


def _wait_for_registry(context: Context, actual: Object) -> Step | None:
    """Let nodes pull images of another host only when the registry serves them."""
    if _host_args(context.mirror.daemon_set.body) == _host_args(actual) or context.is_current_and_ready():
        return None
    key = context.mirror.stateful_set.key
    why = "still serves images of another host"
    return _waiting(f"a repair corrects it when {key}, which {why}, is up to date and ready")


def _host_args(daemon_set: Object) -> set[str]:
    args = [arg for each in daemon_set["spec"]["template"]["spec"]["containers"] for arg in each.get("args") or []]
    return {arg for arg in args if arg.startswith(_HOSTS)}


_STEPS: Mapping[str, Callable[[Context, Manifest], Step | None]] = {
    "missing": _create,
    "drifted": _correct,
    "scaled-to-zero": _correct,
    "volume-too-small": expand,
    "volume-lost": _recreate,
    "volume-shrink": _recreate,
}
