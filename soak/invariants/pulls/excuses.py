"""Why a pull may fail: faults outside of mirrors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from soak.history import Key, Object
from soak.invariants.pulls.read import Failure, Pull
from soak.invariants.reads import NO_REVISION
from soak.journal import Fault
from soak.observed import Observed

# Without a mirror, a pull fails too. `detail` of these faults begins with the host of the upstream.
UPSTREAM_FAULTS = ("tenant-upstream-down", "tenant-upstream-hangs")
# docs/registrymirror.md, "When something breaks": the next pull works only when the damage is repaired.
DAMAGES = ("tenant-mirror-blob", "tenant-mirror-hosts-broken")
MIRROR_FAULT = "tenant-mirror-"
# The node itself is in trouble: it cannot pull, or nobody can observe it.
NODE_FAULTS = ("containerd", "kubelet", "api-", "etcd-", "node-")
# containerd pulls without the API server. But a registry that starts meanwhile is not known to be ready, nor are its
# endpoints to kube-proxy; and a server that starts keeps a small machine busy.
SERVER_FAULTS = ("api-", "etcd-")
TIMEOUTS = ("timeout", "timed out", "deadline exceeded")
# The next repair after an upgrade or a rollback restarts the registries: without a fallback, pulls fail meanwhile.
UPGRADE, ROLLOUT_SECONDS = "upgrade", 150.0
MIRROR_SECONDS = 60.0  # containerd waits up to 28 s for a registry that does not respond, with each request
ATTEMPT_SECONDS = 60.0  # an attempt that began during a fault can fail this long after its end
CACHED_SECONDS = 180.0


@dataclass(frozen=True)
class Excuses:
    """By the host of the upstream: `spec.fallback` of the mirror, and the key of its pod."""

    fallbacks: Mapping[str, str]
    pods: Mapping[str, Key]

    def explains(self, observed: Observed, excuse: Fault, failure: Failure) -> bool:
        """Whether an excuse explains a failed attempt: that of the API server only if something else was in trouble."""
        pull, at = failure.pull, failure.at
        if not excuse.kind.startswith(SERVER_FAULTS) or any(each in failure.message for each in TIMEOUTS):
            return True
        start = min(excuse.began, at - ATTEMPT_SECONDS) - ROLLOUT_SECONDS
        return not self._was_ready(observed, pull, start) or any(
            each.kind == UPGRADE
            or (is_of_node(each) and not each.kind.startswith(SERVER_FAULTS))
            or (each.kind.startswith(MIRROR_FAULT) and each.detail.partition(" ")[0] == pull.host)
            for each in observed.journal.faults_between(start, at + 1)
        )

    def _was_ready(self, observed: Observed, pull: Pull, start: float) -> bool:
        """Whether the mirror's pod was ready all the time."""
        versions = observed.history.during(self.pods[pull.host], start, NO_REVISION) if self.pods else []
        return bool(versions) and all(each.object and _is_ready(each.object) for each in versions)

    def needs_no_upstream(self, observed: Observed, pull: Pull, at: float) -> bool:
        """Whether the mirror had the image and worked during a failed attempt: the upstream may then be down."""
        if not pull.is_cached or at - pull.created > CACHED_SECONDS:
            return False
        start = min(pull.created, at - ATTEMPT_SECONDS) - MIRROR_SECONDS
        faults = observed.journal.faults_between(start, at + 1)
        if any(is_of_node(each) or each.kind.startswith((MIRROR_FAULT, UPSTREAM_FAULTS[1])) for each in faults):
            return False
        return self._was_ready(observed, pull, start)

    def during(self, observed: Observed, pull: Pull, start: float, end: float) -> list[Fault]:
        """Return the faults from start to end during which pulls may fail."""
        excuses = [
            each
            for each in observed.journal.faults_between(start, end)
            if is_of_node(each) or (each.detail.partition(" ")[0] == pull.host and self._may_break(pull, each))
        ]
        if self.fallbacks.get(pull.host) == "None":
            excuses += observed.journal.faults_between(start - ROLLOUT_SECONDS, end, UPGRADE)
        return excuses

    def _may_break(self, pull: Pull, fault: Fault) -> bool:
        if fault.kind in (*UPSTREAM_FAULTS, *DAMAGES):
            return True
        return fault.kind.startswith(MIRROR_FAULT) and self.fallbacks.get(pull.host) == "None"


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    is_deleted = "deletionTimestamp" in pod["metadata"]
    return not is_deleted and any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def is_of_node(fault: Fault) -> bool:
    """Whether a fault is one of the node or of the API server."""
    return fault.kind.startswith(NODE_FAULTS)
