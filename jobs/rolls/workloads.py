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

DEPLOYMENTS = Resource("apps/v1", "Deployment", "deployments")
STATEFUL_SETS = Resource("apps/v1", "StatefulSet", "statefulsets")
DAEMON_SETS = Resource("apps/v1", "DaemonSet", "daemonsets")
KINDS = (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS)


class Workload(Struct, frozen=True):
    """A workload that opted in. `mark` is that of its pod template; `hold` says why it cannot be rolled just now."""

    key: ObjectKey
    uid: str
    resource_version: str
    baseline: str
    mark: str
    references: tuple[Reference, ...]
    hold: str
    terminating: bool


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


class _Spec(Struct, rename="camel"):
    template: _Template
    replicas: int | None = None
    paused: bool | None = None
    update_strategy: _UpdateStrategy = msgspec.field(default_factory=_UpdateStrategy)


class _Condition(Struct):
    type: str = ""
    reason: str = ""


class _Status(Struct, rename="camel"):
    observed_generation: int = 0
    conditions: list[_Condition] | None = None
    replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    desired_number_scheduled: int = 0
    updated_number_scheduled: int = 0


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
    return Workload(
        key,
        metadata.uid,
        metadata.resource_version,
        before if len(before) <= _MOST_BASELINE_BYTES else "",
        marks.get(ROLLED, "")[:_LONGEST_MARK],
        uses,
        _hold(key.kind, document),
        metadata.deletion_timestamp is not None,
    )


def _hold(kind: str, document: _Document) -> str:
    """Return why the workload cannot be rolled just now, or nothing."""
    spec = document.spec
    if spec.paused:
        return "it is paused"
    if spec.update_strategy.type == "OnDelete":
        return "its update strategy is OnDelete: pods change when somebody deletes them"
    if _partition(spec) and _partition(spec) >= _replicas(spec):
        return f"partition {_partition(spec)} of its update strategy keeps all its pods as they are"
    if document.status.observed_generation < document.metadata.generation:
        return "a rollout is in progress: its controller has not seen the latest change yet"
    progress = _PROGRESS[kind](spec, document.status)
    return f"a rollout is in progress: {progress}" if progress else ""


# As `kubectl rollout status` has it (k8s.io/kubectl/pkg/polymorphichelpers/rollout_status.go), but for pods that are
# not available though their rollout was over, and for a rollout that failed: another one may be what helps.


def _deployment(spec: _Spec, status: _Status) -> str:
    reasons = {each.type: each.reason for each in status.conditions or ()}
    if reasons.get("Progressing") == "ProgressDeadlineExceeded":
        return ""
    over, wanted = reasons.get("Progressing") == "NewReplicaSetAvailable", _replicas(spec)
    if status.updated_replicas < wanted and not over:
        return f"{status.updated_replicas} of {wanted} pods are new"
    if status.replicas > status.updated_replicas:
        return f"{status.replicas - status.updated_replicas} old pods are not gone"
    if status.available_replicas < status.updated_replicas and not over:
        return f"{status.available_replicas} of {status.updated_replicas} new pods are available"
    return ""


def _stateful_set(spec: _Spec, status: _Status) -> str:
    wanted = _replicas(spec) - _partition(spec)
    if _partition(spec):
        return f"{status.updated_replicas} of {wanted} pods are new" if status.updated_replicas < wanted else ""
    if status.update_revision == status.current_revision:
        return ""
    if status.updated_replicas < wanted:
        return f"{status.updated_replicas} of {wanted} pods are new"
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
