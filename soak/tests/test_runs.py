"""Runs end within their deadlines, and each failure has a cause."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from soak.history import Key
from soak.invariants.runs import explained, within_deadline
from soak.journal import Fault
from soak.runs import ATTEMPTS, Runs
from soak.tests.story import START, Story


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story("fetch-rates", tmp_path)


def fault(kind: str, began: float, ended: float, detail: str = "fetch-rates-100") -> Fault:
    return Fault(kind, detail, START + began, START + ended)


def test_a_successful_run_needs_no_explanation(story: Story) -> None:
    story.run(10)

    assert story.violations([explained, within_deadline]) == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, "network-down"),
        (1, "api-kill"),
        (1, "tenant-provider-refused"),
        (2, "credentials-binding"),
        (2, "api-kill"),  # a server that starts does not know any roles
        (4, "tenant-provider-refused"),
        (128, "containerd-kill"),
        (137, "kill-run-now"),
        (143, "kill-run"),
        (None, "overlap-job"),
    ],
)
def test_a_failed_run_is_explained_by_a_fault_at_its_time(story: Story, code: int | None, kind: str) -> None:
    story.run(100, code)
    story.journal.faults.append(fault(kind, 95, 110))

    assert story.violations([explained]) == []


@pytest.mark.parametrize(
    ("code", "kind", "began", "ended"),
    [
        (1, "network-down", 20, 60),  # long before
        (1, "network-down", 120, 130),  # after
        (1, "kill-run", 95, 110),  # kills do not end with 1
        (4, "network-down", 95, 110),  # a brake has other causes
        (1, "tenant-mirror-pod", 95, 110),  # of another job
        (137, "network-down", 95, 110),
        (2, "network-down", 95, 110),  # a network that fails is not a wrong configuration
        (128, "api-kill", 95, 110),
        (143, "api-kill", 95, 110),
        (None, "network-down", 95, 110),
        (139, "kill-run-now", 95, 110),  # a signal that nobody sent
    ],
)
def test_another_fault_does_not_explain_it(
    story: Story, code: int | None, kind: str, began: float, ended: float
) -> None:
    story.run(100, code)
    story.journal.faults.append(fault(kind, began, ended))

    assert len(story.violations([explained])) == 1


@pytest.mark.parametrize(
    ("code", "kind", "detail", "number"),
    [
        (137, "kill-run-now", "fetch-rates-100", 0),
        (137, "kill-run-now", "fetch-rates-40", 1),
        (143, "node-evict", "kube-chores/fetch-rates-100", 0),
        (None, "node-evict", "kube-chores/fetch-rates-100", 0),
        (143, "node-evict", "kube-chores/fetch-rates-40", 1),
        (None, "node-evict", "shop-1/fetch-rates-100", 1),
        (2, "credentials-account", "fetch-rates", 0),
        (2, "credentials-account", "farm-pods", 1),
    ],
)
def test_a_fault_of_one_pod_or_job_explains_only_its_runs(
    story: Story, code: int | None, kind: str, detail: str, number: int
) -> None:
    story.run(100, code)
    story.journal.faults.append(fault(kind, 95, 110, detail))

    assert len(story.violations([explained])) == number


def test_a_fault_that_lasts_explains_a_failed_run(story: Story) -> None:
    story.run(100, 1)
    story.journal.faults.append(Fault("network-down", "", START + 50))

    assert story.violations([explained]) == []


def test_the_brake_of_copies_has_its_own_invariant(tmp_path: Path) -> None:
    story = Story("sync-copies", tmp_path)
    story.run(100, 4)

    assert story.violations([explained]) == []


@pytest.mark.parametrize(
    "wrong", [{"log": "Traceback (most recent call last):\n"}, {"reason": "OOMKilled", "exit_code": 137}]
)
def test_a_traceback_and_too_much_memory_have_no_excuse(story: Story, wrong: dict[str, Any]) -> None:
    story.runs.append(replace(story.run(100), **wrong))
    del story.runs[0]
    story.journal.faults.append(fault("kill-run-process", 95, 110))

    assert len(story.violations([explained])) == 1


def test_a_run_after_its_deadline_is_reported(story: Story) -> None:
    story.run(100, 143, seconds=300)

    (violation,) = story.violations([within_deadline])
    assert "the deadline is 240 s" in violation


def test_a_run_that_a_fault_ended_early_is_within_its_deadline(story: Story) -> None:
    story.run(100, 143, seconds=20)

    assert story.violations([within_deadline]) == []


def test_a_run_that_its_deadline_ended_is_reported(story: Story) -> None:
    story.run(100, 143, seconds=239)

    (violation,) = story.violations([within_deadline])
    assert "until it was ended" in violation


@pytest.mark.parametrize(("code", "seconds", "number"), [(137, 250, 1), (0, 247, 1), (1, 244, 0), (None, 250, 0)])
def test_a_run_that_lasted_longer_than_its_deadline_is_reported_whatever_its_exit_code(
    story: Story, code: int | None, seconds: float, number: int
) -> None:
    story.run(100, code, seconds=seconds)

    assert len(story.violations([within_deadline])) == number


def test_a_retry_that_began_shortly_before_the_deadline_is_not_reported(story: Story) -> None:
    story.runs.append(replace(story.run(330, 137, seconds=20), job_created=START + 100))
    del story.runs[0]

    assert story.violations([within_deadline]) == []


# the runs themselves


class NoLogs:
    """An API server that has no logs now."""

    def request(self, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
        return 404, {}, b"{}"


def pod(exit_code: int | None) -> dict[str, Any]:
    times = {"startedAt": "2027-01-15T08:00:02Z", "finishedAt": "2027-01-15T08:00:05Z"}
    ended = {"exitCode": exit_code, "reason": "Error", "message": "the end of the log", **times}
    state = {"terminated": ended} if exit_code is not None else {"running": {}}
    labels = {"batch.kubernetes.io/job-name": "sync-1", "app.kubernetes.io/component": "sync-copies"}
    metadata = {"name": "sync-1-x", "uid": "1", "creationTimestamp": "2027-01-15T08:00:01Z", "labels": labels}
    return {"metadata": metadata, "status": {"containerStatuses": [{"state": state}]}}


@pytest.fixture
def runs() -> Runs:
    api: Any = NoLogs()
    return Runs(api)


KEY = Key("Pod", "kube-chores", "sync-1-x")


def test_a_run_is_found_once_when_its_container_ended(story: Story, runs: Runs) -> None:
    story.past.add(1, KEY, pod(None))
    history: Any = story.past
    assert runs.new(history) == []

    job = {"metadata": {"creationTimestamp": "2027-01-15T08:00:00Z"}, "spec": {"activeDeadlineSeconds": 300}}
    story.past.add(1, Key("Job", "kube-chores", "sync-1"), job)
    story.past.add(5, KEY, pod(1))
    for _ in range(ATTEMPTS):  # to read its log, which a kubelet that is busy may refuse
        assert runs.new(history) == []
    (run,) = runs.new(history)

    assert (run.job, run.job_name, run.exit_code, run.log) == ("sync-copies", "sync-1", 1, "the end of the log")
    assert (run.job_created, run.created, run.began, run.ended) == (START, START + 1, START + 2, START + 5)
    assert run.deadline == 300
    assert runs.new(history) == []


def test_a_deleted_pod_is_a_run_without_an_exit_code(story: Story, runs: Runs) -> None:
    story.past.add(1, KEY, pod(None))
    story.past.add(3, KEY, None)
    history: Any = story.past

    (run,) = runs.new(history)
    assert (run.exit_code, run.ended) == (None, START + 3)
