"""The output of `chores status`, which is not a job: its scenarios for docs/outputs.md."""

import re
from datetime import datetime, timedelta, timezone
from pathlib import Path

from tests.api.conftest import runs
from tests.apis import Api, Object
from tests.every_job import Scenario
from tests.every_job.outputs import invoked

NAMESPACE = "kube-chores"


def run(api: Api, *arguments: str) -> str:
    """Run the command as a user of a laptop; the time is always the same."""
    done = invoked("status", *arguments, env={"KUBECONFIG": str(api.kubeconfig)})
    text = re.sub(r"20\d\d-\d\d-\d\dT[\d:]+Z", "2026-03-04T03:00:30Z", done.output)
    text = re.sub(r"\d+s ago ?", "30s ago ", text)
    return f"$ chores status {' '.join(arguments)}".rstrip() + f"\n{text}(exit code {int(done.exit_code)})"


def ago(**span: float) -> str:
    return f"{datetime.now(timezone.utc) - timedelta(**span):%Y-%m-%dT%H:%M:%SZ}"


def all_succeeded(api: Api) -> None:
    """Write the statuses of CronJobs whose last runs succeeded."""
    for each in api.items("batch/v1", "CronJob", NAMESPACE):
        api.patch_status(each, {"lastScheduleTime": ago(seconds=33), "lastSuccessfulTime": ago(seconds=30)})


def in_order(api: Api, _folder: Path) -> str:
    runs("sync-copies", api.service_account_kubeconfig(NAMESPACE, "sync-copies"))()
    all_succeeded(api)
    return run(api)


def failed(api: Api, cronjob: str, exit_code: int, message: str, reason: str = "Error") -> None:
    """Create a Job of a CronJob whose pod ended with this exit code and log."""
    job = ended(api, cronjob, exit_code, message, reason)
    condition = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "lastTransitionTime": ago(seconds=1)}
    api.patch_status(job, {"startTime": ago(seconds=9), "conditions": [condition]})


def succeeded(api: Api, cronjob: str, message: str) -> None:
    """Create a Job of a CronJob whose pod succeeded and left this message."""
    job, end = ended(api, cronjob, 0, message, "Completed"), ago(seconds=20)
    condition = {"type": "Complete", "status": "True", "lastTransitionTime": end}
    api.patch_status(job, {"startTime": ago(seconds=25), "completionTime": end, "conditions": [condition]})


def ended(api: Api, cronjob: str, exit_code: int, message: str, reason: str) -> Object:
    """Create a Job of a CronJob whose pod ended with this exit code and message; return the Job."""
    owner = api.call("GET", f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs/{cronjob}")
    template = owner["spec"]["jobTemplate"]
    job = _owned("batch/v1", "Job", f"{cronjob}-29543221", owner, "batch/v1") | {"spec": template["spec"]}
    made = api.create(job)
    pod = _owned("v1", "Pod", f"{cronjob}-29543221-x7k2p", {**made, "kind": "Job"}, "batch/v1")
    api.create({**pod, "spec": template["spec"]["template"]["spec"]})
    terminated = {"exitCode": exit_code, "reason": reason, "message": message}
    container = {"name": "chores", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    phase = "Failed" if exit_code else "Succeeded"
    api.patch_status(pod, {"phase": phase, "containerStatuses": [{**container, "state": {"terminated": terminated}}]})
    return job


def _owned(api_version: str, kind: str, name: str, owner: Object, owner_version: str) -> Object:
    reference = {"apiVersion": owner_version, "kind": owner.get("kind", "CronJob"), "controller": True}
    at = owner["metadata"]
    labels = {"app.kubernetes.io/part-of": "kube-chores"}
    references = [{**reference, "name": at["name"], "uid": at["uid"]}]
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels, "ownerReferences": references}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


SCENARIOS: dict[str, Scenario] = {
    "Nothing is wrong": in_order,
}
