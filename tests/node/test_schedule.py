"""The CronJob creates a Job on schedule, and its pod copies."""

from datetime import datetime

import pytest

from tests.apis import Api, Object, wait_for
from tests.node.conftest import Figure
from tests.node.kubectl import Jobs, Kubectl, suspend
from tests.worlds import at, configmap, content, rule, secret

pytestmark = pytest.mark.node
SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"


def test_the_cron_job_fires_each_minute_and_copies(api: Api, jobs: Jobs, kubectl: Kubectl, figure: Figure) -> None:
    home, team = api.namespace("home"), api.namespace("team")
    sources = [configmap(home), secret(home)]
    for source in sources:
        api.create(source)
        api.create(rule(f"{source['kind'].lower()}s", home, team, ruleType=source["kind"].lower()))

    # Recreated: a CronJob that is resumed would run at once for the minute that it missed.
    kubectl("delete cronjob sync-copies -n kube-chores")
    kubectl.from_docs("kubectl apply -k cronjobs")
    wait_for(lambda: api.items("batch/v1", "Job", "kube-chores"), "the scheduled Job", seconds=70)
    suspend(kubectl, "sync-copies")
    (job,) = api.items("batch/v1", "Job", "kube-chores")
    assert jobs.end(job["metadata"]["name"]) == "Complete"

    assert job["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
    scheduled, created = (
        moment(text) for text in (job["metadata"]["annotations"][SCHEDULED], job["metadata"]["creationTimestamp"])
    )
    assert scheduled.second == 0
    assert (created - scheduled).total_seconds() < 60
    (pod,) = jobs.pods(job["metadata"]["name"])
    assert pod["spec"]["serviceAccountName"] == "sync-copies"
    labels = api.call("GET", "/api/v1/namespaces/kube-chores")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert {one.user for one in api.copy_writes()} == {"system:serviceaccount:kube-chores:sync-copies"}
    for source in sources:
        assert content(api.get(at(team, source))) == content(api.get(source))
    log = kubectl(f"logs -n kube-chores job/{job['metadata']['name']}")
    assert f"configmap/settings  {team}  created  from {home}/settings" in log
    assert log.splitlines()[-1].startswith("sync-copies: 2 created (2 rules, 2 sources, ")
    events = events_of(api, job, pod)
    assert events == {
        "CronJob": ["SawCompletedJob", "SuccessfulCreate"],
        "Job": ["Completed", "SuccessfulCreate"],
        "Pod": ["Created", "Pulled", "Scheduled", "Started"],
    }
    figure(f"Events of a scheduled Job: {sum(map(len, events.values()))}, and one when the history limit deletes it")
    finished = moment(pod["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"])
    figure(f"from the minute of the schedule to the end of its pod: {(finished - scheduled).total_seconds():.0f} s")
    figure(f"the scheduled pod printed: {log.splitlines()[-1]}")


def events_of(api: Api, *objects: Object) -> dict[str, list[str]]:
    """Wait for the last Event about a CronJob, its Job and its pod. Return the reasons of their Events by kind."""
    names = {"sync-copies", *(each["metadata"]["name"] for each in objects)}

    def found() -> dict[str, list[str]]:
        reasons: dict[str, list[str]] = {}
        for each in api.items("v1", "Event", "kube-chores"):
            about = each["involvedObject"]
            is_of_this_job = objects[0]["metadata"]["name"] in each["message"] or about["kind"] != "CronJob"
            # The kubelet retries a mount of a ConfigMap that its cache does not have yet: that depends on the machine.
            if about["name"] in names and is_of_this_job and each["reason"] != "FailedMount":
                reasons.setdefault(about["kind"], []).append(each["reason"])
        return {kind: sorted(each) for kind, each in reasons.items()}

    wait_for(lambda: "SawCompletedJob" in found().get("CronJob", []), "the last Event")
    return found()


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
