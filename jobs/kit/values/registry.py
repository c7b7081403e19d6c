"""The jobs. What else names them is derived from this list, or written from it by `make docs`."""

from __future__ import annotations

JOBS = ("sync-copies", "fetch-rates", "mirror-audit", "roll-workloads", "farm-pods")
DEFAULT_JOBS = tuple(job for job in JOBS if job != "mirror-audit")  # of `kubectl apply -k cronjobs`
# CronJobs of the manifests that run a job in another way.
VERIFY = "sync-copies-verify"  # reads all copies in full
CLUSTERS = "sync-copies-clusters"  # copies to other clusters
REPAIR = "mirror-repair"  # has the rights to repair, so it is as good as root on nodes
ACCOUNTS = (*JOBS, REPAIR, CLUSTERS)  # ServiceAccounts. Each has a folder in cronjobs/
# ConfigMaps from which the CronJobs read options: docs/security.md#settings-configmaps.
SETTINGS = tuple(f"{each}-settings" for each in ("kube-chores", *ACCOUNTS))
OF_THE_WEB = frozenset({"fetch-rates"})  # what they plan depends on documents of the web


def module(job: str) -> str:
    """Return the name of a job's module in `jobs` and in `jobs.core`."""
    return job.replace("-", "_")
