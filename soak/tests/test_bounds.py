"""What our jobs leave in a cluster is bounded."""

from pathlib import Path

import pytest

from soak.history import Key
from soak.invariants.bounds import EVENTS, RETRIES, ROLLED, RUNNING, SAME_EVENTS, STATUS_BYTES, check
from soak.tests.story import Story
from tests.apis import Object

KEPT = 3 + 1
MOST_JOBS = KEPT + 2 * RUNNING
MOST_PODS = (KEPT + 2 * RUNNING) * (RETRIES + 1)
RULE = {"kind": "CopyRator", "namespace": "kube-chores", "name": "settings"}
NOW = 1_000_000  # the time of a check in Story


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """A CronJob that keeps 3 successful Jobs and a failed one."""
    made = Story("sync-copies", tmp_path)
    spec = {"successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1}
    made.past.add(0, Key("CronJob", "kube-chores", "sync-copies"), {"metadata": {"name": "sync-copies"}, "spec": spec})
    return made


def add_jobs(story: Story, number: int, namespace: str = "kube-chores") -> None:
    for each in range(number):
        name, owner = f"sync-copies-{each}", {"kind": "CronJob", "name": "sync-copies"}
        story.past.add(each, Key("Job", namespace, name), {"metadata": {"name": name, "ownerReferences": [owner]}})


def add_pods(story: Story, number: int) -> None:
    for each in range(number):
        story.past.add(each, Key("Pod", "kube-chores", f"sync-copies-{each}"), {"metadata": {}})


def add_events(
    story: Story, number: int, seconds: float = NOW, component: str = "kube-chores", reason: str = "Blocked"
) -> None:
    event = {"source": {"component": component}, "involvedObject": RULE, "reason": reason, "message": "brake"}
    for _ in range(number):
        key = Key("Event", "kube-chores", f"settings.{story.past.revision}")
        story.past.add(seconds, key, {"metadata": {}, **event})


def rule(size: int) -> Object:
    return {"metadata": {"name": "settings"}, "status": {"message": "x" * size}}


def test_the_most_that_is_allowed(story: Story) -> None:
    add_jobs(story, MOST_JOBS)
    add_pods(story, MOST_PODS)
    add_events(story, SAME_EVENTS)
    story.past.add(0, Key("CopyRator", "kube-chores", "settings"), rule(STATUS_BYTES - 100))

    assert story.violations([check]) == []


def test_too_many_jobs_of_a_cronjob(story: Story) -> None:
    add_jobs(story, MOST_JOBS + 1)

    (violation,) = story.violations([check])
    assert violation == f"CronJob sync-copies has {MOST_JOBS + 1} Jobs, more than {MOST_JOBS}"


def test_jobs_of_tenants_and_deleted_jobs_do_not_count(story: Story) -> None:
    add_jobs(story, 50, "team-1")
    add_jobs(story, 50)
    for key in story.past.keys("Job")[-50:]:
        story.past.add(60, key, None)

    assert story.violations([check]) == []


def test_too_many_pods(story: Story) -> None:
    add_pods(story, MOST_PODS + 1)

    (violation,) = story.violations([check])
    assert violation == f"namespace kube-chores has {MOST_PODS + 1} pods, more than {MOST_PODS}"


def test_the_same_event_again_and_again(story: Story) -> None:
    add_events(story, SAME_EVENTS + 1)

    (violation,) = story.violations([check])
    assert violation == "CopyRator settings in kube-chores got the same Event Blocked more than 5 times in a row"


def test_each_roll_has_an_event(story: Story) -> None:
    add_events(story, SAME_EVENTS + 1, reason=ROLLED)

    assert story.violations([check]) == []


def test_a_state_may_come_back(story: Story) -> None:
    for _ in range(EVENTS // 2):
        add_events(story, 1)
        add_events(story, 1, reason="Ready")

    assert story.violations([check]) == []

    add_events(story, 1)
    assert story.violations([check]) == [f"CopyRator settings in kube-chores got more than {EVENTS} Events in 600 s"]


@pytest.mark.parametrize(("seconds", "component"), [(NOW - 700, "kube-chores"), (NOW, "kubelet")])
def test_old_events_and_those_of_others_do_not_count(story: Story, seconds: float, component: str) -> None:
    add_events(story, 50, seconds, component)

    assert story.violations([check]) == []


@pytest.mark.parametrize("kind", ["CopyRator", "ExchangeRate", "RegistryMirror"])
def test_a_status_that_is_too_large(story: Story, kind: str) -> None:
    story.past.add(0, Key(kind, "kube-chores", "settings"), rule(STATUS_BYTES))

    (violation,) = story.violations([check])
    assert violation.startswith(f"the status of {kind.lower()}/settings in kube-chores has 200")
