"""Deployments, StatefulSets and DaemonSets, reduced to what decides about a roll. Pure."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from jobs.kit.decoding import decode
from jobs.kit.errors import InvalidObjectError
from jobs.kit.model import ObjectKey
from jobs.kit.objects import Resource
from jobs.rolls.baseline import BASELINE, ROLLED
from jobs.rolls.references import PodSpec, Reference, references

# A run has 256 MiB of memory (cronjobs/), and tenants may opt in as many workloads as they have.
_MOST_REFERENCES_BYTES = 16 << 10
_MOST_BASELINE_BYTES = 64 << 10
_LONGEST_MARK = 64
_FAILED = "ProgressDeadlineExceeded"

DEPLOYMENTS = Resource("apps/v1", "Deployment", "deployments")
STATEFUL_SETS = Resource("apps/v1", "StatefulSet", "statefulsets")
DAEMON_SETS = Resource("apps/v1", "DaemonSet", "daemonsets")
KINDS = (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS)


class Workload(Struct, frozen=True):
    """A workload that opted in. `mark` is that of its pod template.

    `hold` is why it cannot be rolled at all just now. `progress` is how far a rollout is; `is_blocked`: it may never
    end, or no pod is available. `in_the_way` is the pod of a StatefulSet that its controller does not replace once the
    template changes; `is_outdated`: such a pod is of an older template. `newest_revision` is that of the newest
    template, empty if no pod is of it.
    """

    key: ObjectKey
    uid: str
    resource_version: str
    baseline: str
    mark: str
    references: tuple[Reference, ...]
    hold: str
    progress: str
    is_blocked: bool
    in_the_way: str
    is_outdated: bool
    newest_revision: str
    terminating: bool

    def run(self, command: str, *arguments: str) -> str:
        """Return the kubectl command for this workload."""
        return kubectl(self.key, command, *arguments)


def kubectl(key: ObjectKey, command: str, *arguments: str) -> str:
    """Return the kubectl command for an object."""
    return " ".join((f"kubectl {command} {key.kind.lower()}/{key.name} -n {key.namespace}", *arguments))


class _Metadata(Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None


class _TemplateMetadata(Struct):
    annotations: dict[str, str] | None = None


class _Template(Struct):
    metadata: _TemplateMetadata | None = None
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class _RollingUpdate(Struct):
    partition: int | None = None


class _UpdateStrategy(Struct, rename="camel"):
    type: str = ""
    rolling_update: _RollingUpdate | None = None


class _Ordinals(Struct):
    start: int = 0


class _Spec(Struct, rename="camel"):
    template: _Template
    replicas: int | None = None
    paused: bool | None = None
    update_strategy: _UpdateStrategy = msgspec.field(default_factory=_UpdateStrategy)
    pod_management_policy: str = ""
    ordinals: _Ordinals | None = None


class _Condition(Struct):
    type: str = ""
    reason: str = ""


class _Status(Struct, rename="camel"):
    observed_generation: int = 0
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


class _Document(Struct):
    metadata: _Metadata
    spec: _Spec
    status: _Status = msgspec.field(default_factory=_Status)


def workload(key: ObjectKey, body: bytes) -> Workload:
    """Return a workload from its JSON, reduced."""
    document = decode(body, _Document)
    metadata, template = document.metadata, document.spec.template
    marks = (template.metadata.annotations if template.metadata else None) or {}
    uses = references(template.spec)
    if (size := sum(len(each.used) for each in uses)) > _MOST_REFERENCES_BYTES:
        raise InvalidObjectError(
            f"it names ConfigMaps, Secrets and keys by {size >> 10} KiB, more than a baseline holds"
        )
    before = (metadata.annotations or {}).get(BASELINE, "")
    status = document.status
    progress = _PROGRESS[key.kind](document.spec, status)
    return Workload(
        key,
        metadata.uid,
        metadata.resource_version,
        before if len(before) <= _MOST_BASELINE_BYTES else "",
        marks.get(ROLLED, "")[:_LONGEST_MARK],
        uses,
        _hold(key, document),
        progress,
        _BLOCKED[key.kind](document.spec, status, progress),
        _in_the_way(key.name, document.spec, status) if key.kind == STATEFUL_SETS.kind else "",
        _is_outdated(document.spec, status),
        status.update_revision if status.updated_replicas else "",
        metadata.deletion_timestamp is not None,
    )


def _hold(key: ObjectKey, document: _Document) -> str:
    """Return why the workload cannot be rolled just now and what ends that, or nothing."""
    spec = document.spec
    if spec.paused:
        return f"it is paused: run {kubectl(key, 'rollout resume')}"
    if spec.update_strategy.type == "OnDelete":
        forget = kubectl(key, "annotate", f"{BASELINE}-")
        return f"its update strategy is OnDelete: delete its pods, then run {forget}"
    if _partition(spec) and _partition(spec) >= _replicas(spec):
        patch = """-p '{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}'"""
        why = f"partition {_partition(spec)} of its update strategy keeps all its pods as they are"
        return f"{why}: run {kubectl(key, 'patch', patch)}"
    if document.status.observed_generation < document.metadata.generation:
        observed = kubectl(key, "rollout status")
        return f"a rollout is in progress, its controller has not seen the latest change yet: see {observed}"
    return ""


# As `kubectl rollout status` has it (k8s.io/kubectl/pkg/polymorphichelpers/rollout_status.go), but for pods that are
# not available though their rollout was over, and for a rollout that failed: another one may be what helps.


def _deployment(spec: _Spec, status: _Status) -> str:
    over, desired = _progressing(status) == "NewReplicaSetAvailable", _replicas(spec)
    if _progressing(status) == _FAILED:
        return ""
    if status.updated_replicas < desired and not over:
        return f"{status.updated_replicas} of {desired} pods are new"
    if status.replicas > status.updated_replicas:
        return f"{status.replicas - status.updated_replicas} old pods are not gone"
    if status.available_replicas < status.updated_replicas and not over:
        return f"{status.available_replicas} of {status.updated_replicas} new pods are available"
    return ""


def _progressing(status: _Status) -> str:
    """Return the reason of a Deployment's condition Progressing."""
    return next((each.reason for each in status.conditions or () if each.type == "Progressing"), "")


def _stateful_set(spec: _Spec, status: _Status) -> str:
    desired = _replicas(spec) - _partition(spec)
    if _partition(spec):
        return f"{status.updated_replicas} of {desired} pods are new" if status.updated_replicas < desired else ""
    if status.update_revision == status.current_revision:
        return ""
    if status.updated_replicas < desired:
        return f"{status.updated_replicas} of {desired} pods are new"
    return "not all new pods are ready"


def _replicas(spec: _Spec) -> int:
    return 1 if spec.replicas is None else spec.replicas


def _partition(spec: _Spec) -> int:
    """Return from which ordinal on pods of a StatefulSet are updated."""
    rolling = spec.update_strategy.rolling_update
    return (rolling.partition if rolling else None) or 0


def _daemon_set(_spec: _Spec, status: _Status) -> str:
    if status.updated_number_scheduled < status.desired_number_scheduled:
        return f"{status.updated_number_scheduled} of {status.desired_number_scheduled} pods are new"
    return ""


_PROGRESS = {DEPLOYMENTS.kind: _deployment, STATEFUL_SETS.kind: _stateful_set, DAEMON_SETS.kind: _daemon_set}


# Whether a rollout may never end by itself. No status tells a pod that starts slowly from one that never starts.


def _deployment_blocked(spec: _Spec, status: _Status, progress: str) -> bool:
    """Pods of a surge count too: all that are wanted may be there, and be old."""
    is_rolling = bool(progress) or _progressing(status) == _FAILED
    return _blocked(is_rolling and status.unavailable_replicas > 0, _replicas(spec), status.available_replicas)


def _stateful_set_blocked(spec: _Spec, status: _Status, progress: str) -> bool:
    desired = _replicas(spec)
    return _blocked(bool(progress) and status.available_replicas < desired, desired, status.available_replicas)


def _daemon_set_blocked(_spec: _Spec, status: _Status, progress: str) -> bool:
    is_waiting = bool(progress) and status.number_unavailable > 0
    return _blocked(is_waiting, status.desired_number_scheduled, status.number_available)


def _blocked(is_waiting: bool, desired: int, available: int) -> bool:
    return is_waiting or (desired > 0 and available == 0)


_BLOCKED = {
    DEPLOYMENTS.kind: _deployment_blocked,
    STATEFUL_SETS.kind: _stateful_set_blocked,
    DAEMON_SETS.kind: _daemon_set_blocked,
}


def _in_the_way(name: str, spec: _Spec, status: _Status) -> str:
    """Return the pod that is not available and that no newer template replaces, or nothing.

    It is the last that was made, or the last that was updated: pods are made upwards and updated downwards. The status
    does not name it if several of one template are there, nor once a pod between the templates was recreated.
    https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#forced-rollback
    """
    desired = _replicas(spec)
    if spec.pod_management_policy == "Parallel" or status.available_replicas >= desired or not status.replicas:
        return ""
    place = status.current_replicas if status.replicas >= desired > 1 else status.replicas - 1
    if place >= desired or (status.updated_replicas and _between(status) > 0):
        return f"{name}-N"
    return f"{name}-{(spec.ordinals.start if spec.ordinals else 0) + place}"


def _is_outdated(spec: _Spec, status: _Status) -> bool:
    """Whether there are pods of a template between the current and the newest, or the first ones did not start."""
    did_not_start = status.replicas < _replicas(spec) or _replicas(spec) == 1
    return _between(status) > 0 or (status.updated_replicas == 0 and did_not_start)


def _between(status: _Status) -> int:
    """Return how many pods of a StatefulSet are of a template between the current and the newest."""
    return status.replicas - status.current_replicas - status.updated_replicas
