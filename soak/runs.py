"""Runs of our CronJobs, from their pods."""

from __future__ import annotations

import http.client
import urllib.parse
from collections import Counter

from soak.history import History, Key, Object
from soak.invariants.reads import seconds
from soak.observed import Run
from tests.apis import Api, ApiError

NAMESPACE = "kube-chores"
COMPONENT = "app.kubernetes.io/component"
ATTEMPTS = 4
JOB_NAME = "batch.kubernetes.io/job-name"


class Runs:
    """Find runs that ended, and read their logs."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: set[str] = set()  # UIDs of pods
        self._attempts: Counter[str] = Counter()  # to read a log

    def new(self, history: History) -> list[Run]:
        """Return the runs that ended since the last call, in the order of their ends."""
        found = []
        for key in history.keys("Pod"):
            if key.namespace == NAMESPACE and (run := self._ended(history, key)):
                found.append(run)
        return sorted(found, key=lambda each: each.ended)

    def _ended(self, history: History, key: Key) -> Run | None:
        versions = history.versions(key)
        latest = versions[-1]
        pod = latest.object or latest.last
        if pod is None or pod["metadata"]["uid"] in self._known or JOB_NAME not in pod["metadata"].get("labels", {}):
            return None
        terminated = _terminated(pod)
        if latest.object is not None and not terminated:
            return None
        uid = pod["metadata"]["uid"]
        log = self._log(key) if latest.object is not None else ""
        if not log and latest.object is not None and self._attempts[uid] < ATTEMPTS:
            self._attempts[uid] += 1  # the kubelet or the API server did not respond
            return None
        self._known.add(uid)
        return _run(history, pod, terminated, log, latest.seconds)

    def _log(self, key: Key) -> str:
        """Return the log of a pod; its end in the status is the rest if the pod was deleted meanwhile."""
        path = f"/api/v1/namespaces/{key.namespace}/pods/{urllib.parse.quote(key.name)}/log"
        try:
            status, _, body = self._api.request("GET", path)
        except (OSError, http.client.HTTPException, ApiError):
            return ""
        return body.decode(errors="replace") if status == 200 else ""


def _terminated(pod: Object) -> Object:
    for each in pod["status"].get("containerStatuses") or []:
        if found := each.get("state", {}).get("terminated"):
            return dict(found)
    return {}


def _run(history: History, pod: Object, terminated: Object, log: str, deleted: float) -> Run:
    metadata = pod["metadata"]
    labels = metadata["labels"]
    created = seconds(metadata["creationTimestamp"])
    job = _job(history, labels[JOB_NAME])
    return Run(
        job=labels.get(COMPONENT, ""),
        job_name=labels[JOB_NAME],
        pod=metadata["name"],
        created=created,
        began=_seconds(terminated.get("startedAt"), created),
        ended=_seconds(terminated.get("finishedAt"), deleted),
        exit_code=terminated.get("exitCode"),
        reason=terminated.get("reason", ""),
        log=log or terminated.get("message", ""),
        deadline=float(job.get("spec", {}).get("activeDeadlineSeconds", 0)),
        job_created=seconds(job["metadata"]["creationTimestamp"]) if job else created,
    )


def _seconds(stamp: str | None, default: float) -> float:
    """Return the time of a stamp; the kubelet reports none for a container that it does not know any more."""
    return seconds(stamp) if stamp and not stamp.startswith(("0001", "1970")) else default


def _job(history: History, name: str) -> Object:
    versions = history.versions(Key("Job", NAMESPACE, name))
    latest = versions[-1] if versions else None
    return (latest.object or latest.last or {}) if latest else {}
