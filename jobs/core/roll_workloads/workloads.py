"""Deployments, StatefulSets and DaemonSets, reduced to the fields that decide about a roll. Pure."""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Struct

from jobs.core.roll_workloads.baseline import BASELINE, ROLL_ID
from jobs.core.roll_workloads.references import PodSpec, Reference, references
from jobs.core.roll_workloads.schedule import Annotations, annotations_of
from jobs.kit.values.errors import InvalidObjectError
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import decode
from jobs.kit.values.resources import DAEMON_SETS, DEPLOYMENTS, ROLLOUTS, STATEFUL_SETS, is_name

# A run has 256 MiB of memory (cronjobs/), and tenants can opt in any number of workloads.
_MOST_REFERENCES_BYTES = 16 << 10
_MOST_BASELINE_BYTES = 64 << 10
_LONGEST_ROLL_ID = 64
_LONGEST_FAILURE = 300
_REFERENCE_BYTES = 200
_FAILED = "ProgressDeadlineExceeded"
_HEALTHY, _PAUSED, _DEGRADED = "Healthy", "Paused", "Degraded"  # phases of a Rollout
_LONGEST_GENERATION = 19  # digits
_NOT_OBSERVED = "its controller has not observed the latest change yet"
_DIGEST_LENGTH = 16

BUILT_IN = (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS)
KINDS = (*BUILT_IN, ROLLOUTS)


class DeferralCode(str, Enum):
    """Why rolls are deferred, as in `Finding.deferral`; docs/roll-workloads.md explains these stable codes."""

    MISSING_SOURCE = "missing-source"
    PAUSED = "paused"
    ON_DELETE = "on-delete"
    PARTITION = "partition"
    ROLLOUT_IN_PROGRESS = "rollout-in-progress"
    SETTLING = "settling"
    COOLING_DOWN = "cooling-down"
    OUTSIDE_WINDOW = "outside-window"
    INVALID_WINDOW = "invalid-window"
    MAX_ROLLS = "max-rolls"


class Deferral(NamedTuple):
    """Why a roll is deferred: the code, and the reason in words with the remedy."""

    code: DeferralCode
    reason: str


class Workload(Struct, frozen=True):
    """A workload that opted in. `roll_id` is the annotation of its pod template, `template` the digest of the rest.

    `is_observed`: its controller has observed this `generation`. `deferral` is why it cannot be rolled now, or None.
    `incomplete` is the state of a rollout that is not complete, or empty; `progress` is the same, but
    empty if its deadline is over. `has_failed`: the controller reports a failure.
    `is_stuck`: the rollout may never complete, or no pod is available. `is_blocked`: a StatefulSet has a pod that its
    controller does not replace after a change of the template; `is_outdated`: pods have a template between the current
    and the newest. `newest_revision` is that of the newest template, or empty if no pod has it. `schedule`
    are its annotations about the time of rolls. `template_of` is the workload whose pod template a Rollout uses; None:
    its own.
    """

    key: ObjectKey
    uid: str
    resource_version: str
    generation: int
    is_observed: bool
    baseline: str
    roll_id: str
    template: str
    references: tuple[Reference, ...]
    deferral: Deferral | None
    incomplete: str
    progress: str
    has_failed: bool
    is_stuck: bool
    is_blocked: bool
    is_outdated: bool
    newest_revision: str
    terminating: bool
    schedule: Annotations = Annotations()
    template_of: ObjectKey | None = None

    @property
    def size(self) -> int:
        """About how many bytes of memory its parts take that tenants can make large."""
        return (
            len(self.baseline)
            + sum(len(each or "") for each in self.schedule)
            + sum(_REFERENCE_BYTES + len(each.used) for each in self.references)
        )


def kubectl(key: ObjectKey, command: str, *arguments: str) -> str:
    """Return the kubectl command for an object: "kubectl COMMAND deployment/web -n shop ARGUMENTS".

    `kubectl rollout` does not know the kind Rollout, so the command is that of the plugin of Argo Rollouts.
    """
    if key.kind == ROLLOUTS.kind and command.startswith("rollout "):
        plugin = {"rollout status": "status", "rollout resume": "promote"}[command]
        return f"kubectl argo rollouts {plugin} {key.name} -n {key.namespace}"
    return " ".join((f"kubectl {command} {key.kind.lower()}/{key.name} -n {key.namespace}", *arguments))


class _Metadata(Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class _Template(Struct):
    metadata: _Metadata | None = None
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class _RollingUpdate(Struct):
    partition: int | None = None


class _UpdateStrategy(Struct, rename="camel"):
    type: str = ""
    rolling_update: _RollingUpdate | None = None


class _WorkloadRef(Struct, rename="camel"):
    kind: str = ""
    name: str = ""


class _Spec(Struct, rename="camel"):
    template: msgspec.Raw = msgspec.Raw(b"{}")
    workload_ref: _WorkloadRef | None = None
    restart_at: Annotated[datetime, Meta(tz=True)] | None = None
    replicas: int | None = None
    paused: bool | None = None
    update_strategy: _UpdateStrategy = msgspec.field(default_factory=_UpdateStrategy)
    pod_management_policy: str = ""


class _Condition(Struct):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(Struct, rename="camel"):
    observed_generation: int | str = 0
    phase: str = ""
    message: str = ""
    restarted_at: Annotated[datetime, Meta(tz=True)] | None = None
    conditions: list[_Condition] | None = None
    replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    current_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0
    number_available: int = 0
    number_unavailable: int = 0


class Document(Struct):
    """The fields of a Deployment, StatefulSet, DaemonSet or Rollout that a run reads."""

    metadata: _Metadata
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


def workload(key: ObjectKey, body: bytes) -> Workload:
    """Return a reduced workload from its JSON.

    Raises:
        InvalidObjectError: it cannot be decoded, or the names in its pod template are too long for a baseline.
    """
    return reduced(key, decode(body, Document))


def reduced(key: ObjectKey, document: Document) -> Workload:
    """Return a reduced workload; errors as for `workload`."""
    metadata, spec, status = document.metadata, document.spec, document.status
    template = decode(spec.template, _Template)
    annotations = (template.metadata.annotations if template.metadata else None) or {}
    uses = references(template.spec)
    if (size := sum(len(each.used) for each in uses)) > _MOST_REFERENCES_BYTES:
        raise InvalidObjectError(
            f"its names of ConfigMaps, Secrets and keys are {size >> 10} KiB, too long for a baseline"
        )
    own = metadata.annotations or {}
    before = own.get(BASELINE, "")
    is_observed = _generation(status.observed_generation) >= metadata.generation
    # The state of a rollout that is not complete, or an empty string.
    incomplete = _INCOMPLETE[key.kind](spec, status) if is_observed else _NOT_OBSERVED
    failure = _failure(status)
    return Workload(
        key,
        metadata.uid,
        metadata.resource_version,
        metadata.generation,
        is_observed,
        before if len(before) <= _MOST_BASELINE_BYTES else "",
        annotations.get(ROLL_ID, "")[:_LONGEST_ROLL_ID],
        _digest(spec.template),
        uses,
        _deferral(key, spec, status, is_observed=is_observed),
        f"{incomplete}: {failure}" if incomplete and failure else incomplete,
        "" if _progressing(status) == _FAILED or status.phase == _DEGRADED else incomplete,
        bool(incomplete and failure),
        _is_stuck(key.kind, spec, status, incomplete),
        key.kind == STATEFUL_SETS.kind and _is_blocked(spec, status),
        status.replicas > status.current_replicas + status.updated_replicas,
        status.update_revision if status.updated_replicas else "",
        metadata.deletion_timestamp is not None,
        annotations_of(own),
        _template_of(key, spec.workload_ref),
    )


def _generation(observed: int | str) -> int:
    """Return the generation that the controller observed: a Rollout has it as text."""
    if isinstance(observed, int):
        return observed
    return int(observed) if observed.isdecimal() and len(observed) < _LONGEST_GENERATION else 0


def _template_of(key: ObjectKey, reference: _WorkloadRef | None) -> ObjectKey | None:
    """Return the workload whose pod template a Rollout uses; None: its own.

    Raises:
        InvalidObjectError: that is an object of another kind, which a run does not read.
    """
    if reference is None:
        return None
    if reference.kind != DEPLOYMENTS.kind or not is_name(reference.name):
        raise InvalidObjectError(f"spec.workloadRef: {reference.kind!r} {reference.name!r} is not a Deployment")
    return ObjectKey(DEPLOYMENTS.kind, reference.name, key.namespace)


def _digest(template: msgspec.Raw) -> str:
    """Return a digest of a pod template without the annotation of a roll."""
    found = decode(template, dict[str, Any])
    if annotations := (found.get("metadata") or {}).get("annotations"):
        annotations.pop(ROLL_ID, None)
    if not annotations:
        (found.get("metadata") or {}).pop("annotations", None)
    return hashlib.sha256(msgspec.json.encode(found, order="sorted")).hexdigest()[:_DIGEST_LENGTH]


def _deferral(key: ObjectKey, spec: _Spec, status: _Status, *, is_observed: bool) -> Deferral | None:
    """Return why the workload cannot be rolled now, or None."""
    if spec.paused or status.phase == _PAUSED:
        return Deferral(DeferralCode.PAUSED, f"the workload is paused; run {kubectl(key, 'rollout resume')}")
    if spec.update_strategy.type == "OnDelete":
        remove = kubectl(key, "annotate", f"{BASELINE}-")
        reason = f"the update strategy is OnDelete; delete the pods of the workload, then run {remove}"
        return Deferral(DeferralCode.ON_DELETE, reason)
    if _partition(spec) and _partition(spec) >= _replicas(spec):
        patch = """-p '{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}'"""
        why = f"partition {_partition(spec)} of the update strategy excludes all pods from updates"
        return Deferral(DeferralCode.PARTITION, f"{why}; run {kubectl(key, 'patch', patch)}")
    if is_observed:
        return None
    reason = f"a rollout is in progress, and {_NOT_OBSERVED}; see {kubectl(key, 'rollout status')}"
    return Deferral(DeferralCode.ROLLOUT_IN_PROGRESS, reason)


# The same rules as `kubectl rollout status` (k8s.io/kubectl/pkg/polymorphichelpers/rollout_status.go), except that pods
# that became unavailable after their rollout do not count. Those of a DaemonSet count if none is available: its status
# does not distinguish them from new ones.


def _deployment(spec: _Spec, status: _Status) -> str:
    complete, desired = spec.paused or _progressing(status) == "NewReplicaSetAvailable", _replicas(spec)
    if status.updated_replicas < desired and not complete:
        return f"{status.updated_replicas} of {desired} pods are new"
    if (old := status.replicas - status.updated_replicas) > 0:
        unavailable = (
            f"; pods that are not available: {status.unavailable_replicas}" if status.unavailable_replicas else ""
        )
        return f"old pods that still exist: {old}{unavailable}"
    if status.available_replicas < status.updated_replicas and not complete:
        return f"{status.available_replicas} of {status.updated_replicas} new pods are available"
    return ""


def _failure(status: _Status) -> str:
    """Return why the controller of a Deployment cannot continue, or an empty string.

    https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#deployment-status
    """
    failed = [_FAILED] if _progressing(status) == _FAILED else []
    failed += [_DEGRADED] if status.phase == _DEGRADED else []
    refused = [each for each in status.conditions or () if each.type == "ReplicaFailure" and each.status == "True"]
    return ", ".join([*failed, *(f"{each.reason}: {each.message}"[:_LONGEST_FAILURE] for each in refused[:1])])


def _progressing(status: _Status) -> str:
    """Return the reason of a Deployment's condition Progressing."""
    return next((each.reason for each in status.conditions or () if each.type == "Progressing"), "")


def _stateful_set(spec: _Spec, status: _Status) -> str:
    """With a partition, no status tells whether a pod became unavailable after the rollout."""
    replicas, desired = _replicas(spec), _replicas(spec) - _partition(spec)
    if status.update_revision == status.current_revision or desired <= 0:
        return ""
    if status.updated_replicas < desired:
        missing = f", {status.replicas} of {replicas} pods exist" if status.replicas < replicas else ""
        return f"{status.updated_replicas} of {desired} pods are new{missing}"
    is_complete = spec.update_strategy.type == "OnDelete" or (
        _partition(spec) and status.available_replicas >= replicas
    )
    return "" if is_complete else "not all pods are ready"


def _replicas(spec: _Spec) -> int:
    return 1 if spec.replicas is None else spec.replicas


def _partition(spec: _Spec) -> int:
    """Return the ordinal of the first pod of a StatefulSet that is updated."""
    rolling = spec.update_strategy.rolling_update
    return (rolling.partition if rolling else None) or 0


def _daemon_set(_spec: _Spec, status: _Status) -> str:
    if status.updated_number_scheduled < status.desired_number_scheduled:
        return f"{status.updated_number_scheduled} of {status.desired_number_scheduled} pods are new"
    if status.desired_number_scheduled and not status.number_available:
        return f"0 of {status.desired_number_scheduled} new pods are available"
    return ""


def _rollout(spec: _Spec, status: _Status) -> str:
    """Return what the controller of Argo Rollouts reports; a restart is complete if no older pod is left.

    https://argo-rollouts.readthedocs.io/en/stable/features/restart/
    """
    if spec.restart_at and (status.restarted_at is None or status.restarted_at < spec.restart_at):
        return "its pods are restarted"
    if status.phase in ("", _HEALTHY, _PAUSED):
        return ""
    return f"its phase is {status.phase[:_LONGEST_FAILURE]}: {status.message[:_LONGEST_FAILURE]}"


_INCOMPLETE = {
    DEPLOYMENTS.kind: _deployment,
    STATEFUL_SETS.kind: _stateful_set,
    DAEMON_SETS.kind: _daemon_set,
    ROLLOUTS.kind: _rollout,
}


def _is_stuck(kind: str, spec: _Spec, status: _Status, incomplete: str) -> bool:
    """Return whether the rollout may never complete by itself, or no pod is available.

    A status does not distinguish a slow pod from one that never starts. The pods of a Deployment's surge count too: all
    desired pods may be available, but with the old template.
    """
    desired, available, unavailable = _replicas(spec), status.available_replicas, status.unavailable_replicas
    if kind == STATEFUL_SETS.kind:
        unavailable = desired - available
    elif kind == DAEMON_SETS.kind:
        desired, available = status.desired_number_scheduled, status.number_available
        unavailable = status.number_unavailable
    elif kind == ROLLOUTS.kind:
        return status.phase == _DEGRADED or (desired > 0 and available == 0)
    return (bool(incomplete) and unavailable > 0) or (desired > 0 and available == 0)


def _is_blocked(spec: _Spec, status: _Status) -> bool:
    """Return whether an unavailable pod of a StatefulSet exists that its controller does not replace.

    https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#forced-rollback
    """
    if spec.pod_management_policy == "Parallel":
        return False
    return status.available_replicas < min(_replicas(spec), status.replicas)  # not if a pod cannot be created
