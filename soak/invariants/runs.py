"""Each run ends within its deadline, and each failed run has a cause that is an injected fault."""

from __future__ import annotations

from collections.abc import Iterator

from soak.journal import Fault
from soak.observed import Invariant, Observed, Run

NAMESPACE = "kube-chores"
BEFORE_SECONDS = 30.0  # a pod that was created later can still suffer from a fault: a cache, a queue, a backoff
AFTER_SECONDS = 5.0  # a time of a pod has a resolution of a second
LATE_SECONDS = 30.0  # the kubelet's report of an end, and the time that a container has to end
KILLED_SECONDS = 5.0  # a container that its deadline ends with SIGTERM ends earlier than this, one with SIGKILL later
TRACEBACK = "Traceback (most recent call last)"
SIGKILL, SIGTERM = 137, 143
BRAKE = 4
NO_START = (125, 126, 127, 128)

# The faults that can let a run end with an exit code. A fault of tenants explains only runs of its own jobs.
_SERVER = ("api-", "etcd-", "network-")
_KILLED = ("kill-", "node-evict", "kubelet-", "containerd-", "overlap-", "credentials-account", "suspend-", "upgrade")
EXPLAINED: dict[int | None, tuple[str, ...]] = {
    1: (*_SERVER, "credentials-account", "admission-", "controller-", "tenant-"),
    # An API server that starts refuses all but administrators until it has read roles and bindings.
    2: ("credentials-", "admission-", "tenant-", "api-restart", "api-kill"),
    BRAKE: ("tenant-",),
    SIGTERM: ("kill-run", "node-evict", "kubelet-", "containerd-"),
    SIGKILL: ("kill-", "node-evict", "kubelet-", "containerd-"),
    None: (*_KILLED, "controller-", "api-", "etcd-"),
    **dict.fromkeys(NO_START, ("containerd-", "kubelet-", "kill-", "node-evict")),
}
OF_JOBS = {
    "tenant-copies-": ("sync-copies", "sync-copies-verify"),
    "tenant-provider-": ("fetch-rates",),
    "tenant-upstream-": ("mirror-audit", "mirror-repair"),
    "tenant-mirror-": ("mirror-audit", "mirror-repair"),
}


def invariants() -> list[Invariant]:
    """Return the invariants."""
    return [
        Invariant("each run ends within its deadline", within_deadline),
        Invariant("each failed run is explained by a fault", explained),
    ]


def within_deadline(observed: Observed) -> Iterator[str]:
    """Yield a sentence for each run that ended after the deadline of its Job, or because of it."""
    for run in observed.runs:
        seconds, lasted = run.ended - run.job_created, run.ended - run.began
        # A retry may have begun shortly before; a pod that was deleted may never have begun.
        has_run = run.exit_code is not None and lasted > run.deadline / 2
        if run.deadline and seconds > run.deadline + (KILLED_SECONDS if has_run else LATE_SECONDS):
            yield f"{run.pod} ended {seconds:g} s after its Job began; the deadline is {run.deadline:g} s"
        elif run.deadline and run.exit_code == SIGTERM and has_run:
            yield f"{run.pod} ran for {lasted:g} s until it was ended"


def explained(observed: Observed) -> Iterator[str]:
    """Yield a sentence for each run that failed although no fault was injected that lets a run end like this."""
    for run in observed.runs:
        if TRACEBACK in run.log:
            yield f"{run.pod} printed a traceback: {run.log[-1500:]}"
        elif run.reason == "OOMKilled":
            yield f"{run.pod} used more memory than its limit"
        elif run.exit_code != 0 and not _explains(observed, run):
            yield f"{run.pod} ended with {run.exit_code} {run.reason} without a fault: {run.log[-1500:]}"


def _explains(observed: Observed, run: Run) -> bool:
    if run.exit_code == BRAKE and run.job.startswith("sync-copies"):
        return True  # an invariant of copies looks for the reason
    kinds = EXPLAINED.get(run.exit_code, ())
    faults = observed.journal.faults_between(run.created - BEFORE_SECONDS, run.ended + AFTER_SECONDS)
    return any(each.kind.startswith(kinds) and _is_about(each, run) for each in faults)


def _is_about(fault: Fault, run: Run) -> bool:
    if fault.kind.startswith("kill-"):
        return fault.detail == run.pod
    if fault.kind == "node-evict":
        return fault.detail == f"{NAMESPACE}/{run.pod}"
    if fault.kind == "credentials-account":
        return run.job.startswith(fault.detail)  # sync-copies-verify has that of sync-copies
    jobs = next((jobs for prefix, jobs in OF_JOBS.items() if fault.kind.startswith(prefix)), None)
    return jobs is None or run.job in jobs
