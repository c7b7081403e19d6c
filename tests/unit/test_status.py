"""The document of `chores status`, and its text, as pure functions."""

import json
import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from jobs.core.mirror_audit.findings import CODES
from jobs.core.status.document import Observed, document
from jobs.core.status.installed import CronJob, JobPod, RunJob, Served, job_pod
from jobs.core.status.page import page
from jobs.core.status.problems import Evaluated, todo
from jobs.core.status.text import text
from jobs.kit.values.model import Brake, ExitCode, Finding, ObjectKey, Plan, Severity, Summary
from jobs.kit.values.registry import JOBS
from tests.generated import check
from tests.hostile_text import HOSTILE, left_in
from tests.installations import (
    NOW,
    TARGET,
    ago,
    configmap,
    cronjob,
    custom,
    deployment,
    example,
    finding,
    pod,
    run,
    with_jobs,
    write,
)
from tests.manifests import ROOT

COLORS = re.compile(r"\x1b\[[0-9;]*m")


def shown(observed: Observed, *, verbose: bool = False) -> str:
    return COLORS.sub("", "\n".join(text(document(observed, NOW), verbose=verbose)))


def job(observed: Observed, name: str = "sync-copies") -> dict[str, Any]:
    return next(each for each in document(observed, NOW)["jobs"] if each["name"] == name)


def problems(observed: Observed) -> list[tuple[str, str, str]]:
    return [(each["severity"], each["job"], each["code"]) for each in document(observed, NOW)["problems"]]


def synced(*jobs: RunJob, last: str = ago(seconds=30), success: str | None = None, **fields: Any) -> Observed:
    """Return an installation with the CronJob sync-copies, the times of its last run and success, and its Jobs."""
    return with_jobs(*jobs, cronjobs=[cronjob("sync-copies", last, success)], **fields)


def evaluated(*found: Finding, **fields: Any) -> Observed:
    """Return an installation in which sync-copies has these findings."""
    return synced(evaluated={"sync-copies": Evaluated(found)}, **fields)


def the_problem(observed: Observed) -> dict[str, Any]:
    (found,) = document(observed, NOW)["problems"]
    return dict(found)


def test_the_example_document_is_what_the_code_makes() -> None:
    check(ROOT / "tests" / "status_document.json", json.dumps(document(example(), NOW), indent=1) + "\n")


def test_the_worst_problems_come_first() -> None:
    assert problems(example()) == [
        ("critical", "fetch-rates", "job-failing"),
        ("critical", "mirror-audit", "no-endpoints"),
        ("warning", "fetch-rates", "jump"),
        ("warning", "sync-copies", "conflict"),
        ("warning", "sync-copies", "not-read"),
        ("warning", "sync-copies", "quota-exceeded"),
        ("warning", "sync-copies-clusters", "conflict"),
    ]


def test_the_text_fits_a_terminal_of_80_columns() -> None:
    lines = shown(example()).splitlines()

    assert [line for line in lines if len(line) > 80 and not line.startswith(("    kubectl ", "    chores "))] == []
    assert len(lines) <= 47 + len(JOBS)


def test_the_text_is_what_the_docs_show() -> None:
    path = ROOT / "docs" / "status.md"
    head, begin, rest = path.read_text().partition("```text\nkube-chores ")
    end = rest.index("\n```\n")

    check(path, f"{head}{begin.removesuffix('kube-chores ')}{shown(example())}{rest[end:]}")


def other_installation() -> list[CronJob]:
    return [cronjob(name, ago(seconds=30), namespace="ops") for name in ("sync-copies", "fetch-rates")]


@pytest.mark.parametrize(
    ("observed", "words"),
    [
        (Observed(TARGET), "the status is unknown: kube-chores is not installed in namespace kube-chores"),
        (
            with_jobs(
                cronjobs=other_installation(),
                rates=[custom("ExchangeRate", "usd", "team", {}, ("True", "Current", ""), date="2026-03-03")],
            ),
            "the status is unknown: kube-chores is not installed in namespace kube-chores; it is in ops",
        ),
        (
            Observed(TARGET, cronjobs_known=False),
            "the status is unknown: you cannot list cronjobs; bind the ClusterRole",
        ),
    ],
    ids=["nothing", "elsewhere", "no-rights"],
)
def test_without_cronjobs_the_status_is_unknown(observed: Observed, words: str) -> None:
    found = document(observed, NOW)

    assert found["problems"] == []
    assert words in " ".join(shown(observed).split())
    assert "nothing is wrong" not in shown(observed)


@pytest.mark.parametrize(
    "fields", [{"is_partial": True}, {"evaluated": {"sync-copies": Evaluated(note="no rights")}}], ids=["read", "job"]
)
def test_what_could_not_be_read_may_be_wrong(fields: dict[str, Any]) -> None:
    assert "nothing is wrong in what could be read" in shown(synced(**fields))
    assert "nothing is wrong\n" in shown(synced()) + "\n"


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [
        (1, "next run succeeds"),
        (2, "correct what"),
        (4, "that the brake blocked"),
        (143, "was stopped"),
        (137, "memory limit"),
    ],
)
def test_three_failed_runs_are_critical_with_their_message_and_what_to_do(exit_code: int, words: str) -> None:
    jobs = [run("sync-copies", n, ago(minutes=n, seconds=30), ago(minutes=n), "failed") for n in (1, 2, 3)]
    jobs += [run("sync-copies", 9, ago(minutes=9), ago(minutes=8))]
    pods = tuple(pod(f"sync-copies-{n}", exit_code, f"the cause of {n}\n") for n in (1, 2, 3))
    observed = synced(*jobs, success=ago(minutes=8), pods=pods)

    found = the_problem(observed)

    assert (found["severity"], found["code"]) == ("critical", "job-failing")
    assert found["reason"] == f"the last 3 runs failed (exit code {exit_code}): the cause of 1"
    assert words in found["todo"]
    assert "kubectl logs -n kube-chores job/sync-copies-1" in found["todo"]
    assert job(observed)["state"] == "failing"


FAILED = run("sync-copies", 1, ago(minutes=1, seconds=30), ago(minutes=1), "failed")
BEFORE = run("sync-copies", 2, ago(minutes=2, seconds=30), ago(minutes=2))


@pytest.mark.parametrize(
    ("other", "exit_code", "found", "state"),
    [
        ([BEFORE], 1, ["warning"], "failing"),
        ([BEFORE], 2, ["critical"], "failing"),
        ([], 1, ["critical"], "failing"),
        ([run("sync-copies", 3, ago(seconds=30), ago(seconds=20))], 1, [], "ok"),
    ],
    ids=["a success before it", "a person must act", "the first run", "a success after it"],
)
def test_a_failed_run_is_not_critical_next_to_a_success(
    other: list[RunJob], exit_code: int, found: list[str], state: str
) -> None:
    success = max((each.end for each in other), default="")
    observed = synced(FAILED, *other, success=success, pods=(pod("sync-copies-1", exit_code, "a write failed"),))

    assert problems(observed) == [(severity, "sync-copies", "job-failing") for severity in found]
    assert job(observed)["state"] == state


@pytest.mark.parametrize(
    ("waiting", "event", "age", "words", "todo"),
    [
        ("ErrImagePull: not found", "", 2, "ErrImagePull: not found", "kubectl describe pod"),
        ("CreateContainerConfigError: no key", "", 2, "CreateContainerConfigError", "kubectl describe pod"),
        ("", 'pods "x" is forbidden: exceeded quota: pods', 2, "exceeded quota", "kubectl describe quota"),
        ("", "denied by a policy", 2, "denied by a policy", "kubectl describe job sync-copies-1 -n kube-chores"),
        ("Unschedulable: 0/3 nodes are available", "", 50, "", ""),
        ("Unschedulable: 0/3 nodes are available", "", 70, "0/3 nodes", "kubectl describe pod"),
        ("", "", 70, "", ""),
    ],
)
def test_a_run_that_cannot_start_fails_at_once_but_an_unscheduled_one_after_a_minute(
    waiting: str, event: str, age: int, words: str, todo: str
) -> None:
    made = msgspec.structs.replace(
        pod("sync-copies-1", waiting=waiting), is_unscheduled="Unsched" in waiting, created=ago(seconds=age)
    )
    fields = {"warnings": {"sync-copies-1": event}} if event else {}
    start, success = ago(seconds=age), ago(seconds=age + 60)
    before = run("sync-copies", 0, ago(minutes=9), ago(minutes=8), "failed")

    observed = synced(
        run("sync-copies", 1, start), before, last=start, success=success, pods=(made,) if waiting else (), **fields
    )

    assert job(observed)["state"] == ("failing" if words else "running")
    found = document(observed, NOW)["problems"]
    stuck = [(each["severity"], each["code"], words in each["reason"], todo in each["todo"]) for each in found]
    assert stuck == ([("critical", "job-stuck", True, True)] if words else [])
    assert words in " ".join(shown(observed).split())


@pytest.mark.parametrize(
    ("code", "reason", "log", "shown", "words"),
    [
        (137, "OOMKilled", "", "exit code 137, OOMKilled", "no message"),
        (137, "OOMKilled", "row 1\nrow 2\n3\n4\n5\n", "exit code 137, OOMKilled", "5"),
        (1, "Error", "why", "exit code 1", "why"),  # this reason has no more than the code
    ],
)
def test_the_reason_of_a_killed_container_is_shown_with_and_without_a_log(
    code: int, reason: str, log: str, shown: str, words: str
) -> None:
    ended = {"exitCode": code, "reason": reason, "message": log}
    status = {"phase": "Failed", "containerStatuses": [{"name": "chores", "state": {"terminated": ended}}]}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "sync-copies-1", "uid": "u"}
    metadata = {"name": "p", "namespace": "kube-chores", "ownerReferences": [owner]}
    read = msgspec.json.decode(json.dumps({"metadata": metadata, "status": status}), type=Served)

    found = the_problem(synced(FAILED, last=ago(minutes=2), success=ago(minutes=9), pods=(job_pod(read),)))

    assert found["reason"].startswith(f"the last run failed ({shown}): ")
    assert found["reason"].endswith(words)
    assert found["todo"].startswith("raise the memory limit") == (reason == "OOMKilled")


def test_a_brake_is_shown_also_if_a_later_run_failed_for_another_reason() -> None:
    brake = Brake("the deletion brake blocks the deletion of 30 ConfigMaps", "--max-deletes", "30")
    jobs = [run("sync-copies", n, ago(minutes=n, seconds=9), ago(minutes=n), "failed") for n in (1, 2)]
    pods = (pod("sync-copies-1", 1, "a write failed"), pod("sync-copies-2", 4, "a brake"))
    braked = {"sync-copies": Evaluated((), brakes=[brake])}

    observed = synced(*jobs, last=ago(minutes=1), success=ago(minutes=9), pods=pods, evaluated=braked)

    assert [code for _, _, code in problems(observed)] == ["job-failing", "brake"]
    lines = " ".join(shown(observed).split())
    assert "the deletion brake blocks" in lines and "a write failed" in lines
    earlier = run("sync-copies", 2, ago(minutes=8), ago(minutes=6), "failed")
    waits = stuck(earlier, pods=(pending(), pod("sync-copies-2", 4, "a brake")))
    assert [code for _, _, code in problems(replace(waits, evaluated=braked))] == ["job-stuck", "brake"]


NOT_SENT = "metrics are not pushed to http://gateway:9091: no answer"


def test_a_success_without_its_metrics_is_a_warning_until_a_run_sends_them() -> None:
    jobs = [run("sync-copies", n, ago(minutes=n, seconds=30), ago(minutes=n, seconds=20)) for n in (1, 2)]
    not_sent, earlier = (pod(f"sync-copies-{n}", 0, f"metrics-not-sent: {NOT_SENT}\n") for n in (1, 2))

    observed = synced(*jobs, last=ago(minutes=1), pods=(not_sent, earlier))
    found = the_problem(observed)

    assert (found["severity"], found["code"], job(observed)["state"]) == ("warning", "metrics-not-sent", "ok")
    assert found["reason"] == f"run sync-copies-1 succeeded, but no alert can see it: {NOT_SENT}"
    assert "PUSH_GATEWAY" in found["todo"]
    assert problems(synced(*jobs, last=ago(minutes=1), pods=(pod("sync-copies-1", 0), earlier))) == []


def test_a_line_of_a_pod_without_a_known_code_is_left_out() -> None:
    """It is of another version. A run that failed has the end of its log, also if that looks like a code."""
    lines = [
        NOT_SENT,
        "too-new: text",
        "",
        "metrics-not-sent",
        "a writes-failed: b",
        "writes-failed: 2 writes failed: c: d",
    ]

    def with_lines(exit_code: int) -> Observed:
        outcome = "failed" if exit_code else "succeeded"
        ended = run("sync-copies", 1, ago(minutes=1), ago(seconds=50), outcome)
        left = pod("sync-copies-1", exit_code, "\n".join(lines))
        return synced(ended, last=ago(minutes=1), success=ago(minutes=9), pods=(left,))

    found = the_problem(with_lines(0))

    assert (found["severity"], found["code"]) == ("warning", "writes-failed")
    assert found["reason"] == "run sync-copies-1 succeeded, but 2 writes failed: c: d"
    assert [code for _, _, code in problems(with_lines(1))] == ["job-failing"]


def stuck(*jobs: RunJob, pods: tuple[JobPod, ...], warnings: dict[str, str] | None = None) -> Observed:
    active = run("sync-copies", 1, ago(minutes=4))
    return synced(active, *jobs, last=ago(minutes=4), success=ago(minutes=9), pods=pods, warnings=warnings or {})


def pending(**fields: Any) -> JobPod:
    return msgspec.structs.replace(pod("sync-copies-1"), is_pending=True, **fields)


@pytest.mark.parametrize(
    ("warnings", "words"),
    [
        ({}, "it is pending for more than two minutes"),
        ({"sync-copies-1-x7k2p": "secret not found"}, "secret not found"),
    ],
)
def test_a_pod_that_is_pending_for_minutes_is_critical(warnings: dict[str, str], words: str) -> None:
    found = the_problem(stuck(pods=(pending(),), warnings=warnings))

    assert (found["code"], words in found["reason"]) == ("job-stuck", True)
    assert found["todo"] == "kubectl describe pod sync-copies-1-x7k2p -n kube-chores"
    assert problems(stuck(pods=(pending(created=ago(minutes=1)),))) == []


def test_a_second_pod_that_waits_is_not_blamed_on_the_log_of_the_first() -> None:
    first = msgspec.structs.replace(pod("sync-copies-1", 1, "connection refused"), name="first", created=ago(minutes=4))

    found = the_problem(stuck(pods=(first, pending(waiting="ImagePullBackOff"))))

    assert found["reason"].splitlines() == [
        "run sync-copies-1 does not start: pod sync-copies-1-x7k2p does not start: ImagePullBackOff",
        "the pod before it failed (exit code 1): connection refused",
    ]
    assert problems(stuck(pods=(first, pod("sync-copies-1")))) == [("warning", "sync-copies", "job-slow")]  # it runs


def test_a_run_that_is_stuck_comes_before_those_that_failed_without_a_pod() -> None:
    deadline = run("sync-copies", 2, ago(minutes=8), ago(minutes=6), "failed", "DeadlineExceeded", "too long")

    active = the_problem(stuck(deadline, pods=(pending(),)))
    ended = the_problem(synced(deadline, last=ago(minutes=8), success=ago(minutes=9)))

    assert (active["code"], "the last run failed" in active["reason"]) == ("job-stuck", True)
    assert ended["reason"] == "the last run failed (DeadlineExceeded): too long"
    assert ended["todo"].startswith("if no pod of the run started, find out why; if runs need longer, raise ")
    assert ended["todo"].endswith("see kubectl get events -n kube-chores --field-selector type=Warning")


def test_the_warning_about_a_pod_is_of_the_run_whose_pods_the_deadline_deleted() -> None:
    deadline = run("sync-copies", 2, ago(minutes=8), ago(minutes=6), "failed", "DeadlineExceeded", "too long")
    warnings = {"sync-copies-2-x7k2p": "no node", "sync-copies-2-more-x7k2p": "of another Job", "other-x7k2p": "no"}

    def reason(*pods: JobPod) -> str:
        ended = synced(deadline, last=ago(minutes=8), success=ago(minutes=9), pods=pods, warnings=warnings)
        return str(the_problem(ended)["reason"])

    last = "the last run failed (DeadlineExceeded)"
    assert reason() == f"{last}: the last warning about pod sync-copies-2-x7k2p: no node"
    assert reason(pod("sync-copies-2")) == f"{last}: too long"


def test_a_run_that_its_deadline_ended_is_shown_for_an_hour_after_a_later_success() -> None:
    def after(**end: float) -> Observed:
        stopped = run("sync-copies", 2, ago(hours=2), ago(**end), "failed", "DeadlineExceeded", "too long")
        return synced(stopped, run("sync-copies", 1, ago(seconds=30), ago(seconds=28)))

    found = the_problem(after(minutes=59))

    assert (found["severity"], found["code"], job(after(minutes=59))["state"]) == ("warning", "job-failing", "ok")
    assert found["reason"] == "run sync-copies-2 was ended by its deadline after 1 h: too long"
    assert "activeDeadlineSeconds" in found["todo"]
    assert problems(after(minutes=61)) == []


@pytest.mark.parametrize(
    ("schedule", "deadline", "took", "age", "slow"),
    [
        ("* * * * *", 120, 2, 55, False),  # a start that takes longer
        ("* * * * *", 120, 2, 65, True),
        ("* * * * *", 120, 40, 110, False),  # the last run took long, too
        ("* * * * *", 0, 2, 65, True),
        ("* * * * *", 3600, 40, 1700, False),
        ("* * * * *", 3600, 40, 1900, True),
        ("*/5 * * * *", 300, 20, 180, False),
        ("*/5 * * * *", 300, 20, 210, True),
        ("*/5 * * * *", 1500, 600, 890, False),
        ("*/5 * * * *", 1500, 600, 910, True),  # 3 periods
        ("not a schedule", 120, None, 110, False),
    ],
)
def test_a_run_is_slow_after_ten_times_the_last_one_or_three_periods_and_half_of_its_deadline(
    schedule: str, deadline: int, took: int | None, age: int, slow: bool
) -> None:
    active = msgspec.structs.replace(run("sync-copies", 1, ago(seconds=age)), deadline=deadline)
    before = [run("sync-copies", 2, ago(hours=1, seconds=took), ago(hours=1))] if took else []
    own = cronjob("sync-copies", ago(seconds=age), ago(seconds=age), schedule=schedule)
    runs = msgspec.structs.replace(pod("sync-copies-1"), node="node-7")
    observed = with_jobs(active, *before, cronjobs=[own], pods=(runs,))

    found = [each for each in document(observed, NOW)["problems"] if each["code"] == "job-slow"]

    assert job(observed)["runs"][0]["slow"] is slow
    assert len(found) == slow
    for each in found:
        assert each["reason"].startswith("run sync-copies-1 on node node-7 has not ended after ")
        assert each["todo"].startswith("nothing before its deadline, if it has more to do than usual; else ")
        assert each["todo"].endswith("kubectl delete job sync-copies-1 -n kube-chores")
    waits = msgspec.structs.replace(runs, is_pending=True)
    assert not job(with_jobs(active, *before, cronjobs=[own], pods=(waits,)))["runs"][0]["slow"]


def test_a_pod_that_no_scheduler_has_seen_is_critical_after_a_minute() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "sync-copies-1", "uid": "u"}

    def found(age: int, **spec: str) -> list[str]:
        at = {"name": "p", "namespace": "n", "ownerReferences": [owner], "creationTimestamp": ago(seconds=age)}
        text = json.dumps({"metadata": at, "spec": spec, "status": {"phase": "Pending"}})
        read = msgspec.json.decode(text, type=Served)
        return [each["reason"] for each in document(stuck(pods=(job_pod(read),)), NOW)["problems"]]

    reason = "run sync-copies-1 does not start: pod p does not start: it has no node after a minute"
    assert [found(59), found(61)] == [[], [f"{reason}; check that kube-scheduler runs"]]
    assert found(119, nodeName="node-7") == [], "its image may be pulled"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({}, (True, "")),
        ({"waiting": {"reason": "ContainerCreating"}}, (True, "")),
        ({"waiting": {"reason": "ErrImagePull"}}, (True, "ErrImagePull")),
    ],
)
def test_a_pod_is_pending_until_its_container_starts(state: dict[str, Any], expected: tuple[bool, str]) -> None:
    status = {"phase": "Pending", "containerStatuses": [{"name": "chores", "state": state}]}
    read = job_pod(msgspec.convert({"metadata": {"name": "p", "namespace": "n"}, "status": status}, Served))

    assert (read.is_pending, read.waiting) == expected


def test_a_first_run_that_is_active_never_succeeded() -> None:
    own = cronjob("sync-copies", ago(seconds=9), "", created=ago(minutes=1))

    assert job(with_jobs(run("sync-copies", 1, ago(seconds=9)), cronjobs=[own]))["state"] == "never"


@pytest.mark.parametrize(
    ("fields", "state", "code"),
    [
        ({"last": ago(seconds=30)}, "ok", []),
        ({"last": ago(hours=2)}, "late", ["job-late"]),
        ({"created": ago(minutes=1)}, "never", []),
        ({}, "late", ["job-late"]),
        ({"suspended": True}, "suspended", []),
        ({"last": ago(hours=2), "schedule": "0 3 * * *"}, "ok", []),
        ({"last": ago(hours=2), "schedule": "@hourly"}, "ok", []),
        ({"last": ago(minutes=8)}, "late", ["job-late"]),
        ({"last": ago(minutes=2, seconds=50)}, "ok", []),  # clocks differ
        ({"last": ago(minutes=1), "success": ago(minutes=8)}, "ok", []),
        ({"last": ago(minutes=1), "success": ago(minutes=11)}, "late", ["job-late"]),
        ({"last": ago(minutes=14), "schedule": "*/5 * * * *"}, "late", ["job-late"]),
        ({"last": ago(minutes=9), "schedule": "*/5 * * * *"}, "ok", []),
        ({"last": ago(hours=9), "schedule": "0 ? ? * ?"}, "late", ["job-late"]),
        ({"last": ago(hours=2), "schedule": "not a schedule"}, "ok", []),
        ({"last": ago(hours=2), "time_zone": "No/Zone"}, "late", ["job-late"]),
        ({"last": ago(minutes=-5)}, "ok", []),  # a clock that differs
        ({"last": "not a time"}, "ok", []),
        ({"last": ago(seconds=70), "warning": "exceeded quota"}, "late", ["job-late"]),
    ],
)
def test_the_state_of_a_cronjob(fields: dict[str, Any], state: str, code: list[str]) -> None:
    observed = with_jobs(cronjobs=[cronjob("sync-copies", **fields)])

    assert job(observed)["state"] == state
    assert [each[2] for each in problems(observed)] == code


@pytest.mark.parametrize(
    ("exit_code", "brakes", "active", "codes"),
    [
        (2, 0, [], ["job-failing", "job-late"]),
        (1, 0, [], ["job-late", "job-failing"]),  # a warning, after a success
        (4, 1, [], ["job-late", "brake"]),
        (2, 0, [run("sync-copies", 3, ago(seconds=20))], ["job-failing"]),
    ],
    ids=["critical", "warning", "known from a brake", "a run starts"],
)
def test_a_job_that_failed_and_starts_no_run_now_has_both_causes(
    exit_code: int, brakes: int, active: list[RunJob], codes: list[str]
) -> None:
    own = cronjob("sync-copies", ago(minutes=2), ago(minutes=2, seconds=20), warning="invalid schedule: 0 0 31 2 * : x")
    blocked = Evaluated((), brakes=brakes * [Brake("blocked", "--max-deletes", "30")])
    observed = with_jobs(
        FAILED,
        BEFORE,
        *active,
        cronjobs=[own],
        pods=(pod("sync-copies-1", exit_code, "a write failed"),),
        evaluated={"sync-copies": blocked},
    )

    found = document(observed, NOW)["problems"]

    assert [each["code"] for each in found] == codes
    reasons = [each["reason"] for each in found if each["code"] == "job-late"]
    assert reasons == [f"no run starts: {own.warning}"] * ("job-late" in codes)
    assert job(observed)["state"] == "failing"


@pytest.mark.parametrize("argument", ["--dry-run=server", "--check"])
def test_a_cronjob_that_writes_nothing_is_not_the_job(argument: str) -> None:
    dry = cronjob("sync-copies", ago(seconds=30), args=("sync-copies", argument))

    assert job(with_jobs(cronjobs=[dry]))["state"] == "not-installed"


def test_custom_resources_whose_job_is_suspended_or_missing_are_a_problem() -> None:
    rate = custom("ExchangeRate", "usd", "team", {}, ("True", "Current", ""), rate="1", date="2026-03-03")
    rule = custom("CopyratorRule", "ca", "kube-chores", {}, ("True", "Synced", ""))

    observed = with_jobs(cronjobs=[cronjob("sync-copies", suspended=True)], rates=[rate], rules=[rule])

    assert problems(observed) == [
        ("warning", "fetch-rates", "job-not-installed"),
        ("warning", "sync-copies", "job-suspended"),
    ]
    todo = document(observed, NOW)["problems"][1]["todo"]
    assert todo.startswith("kubectl patch cronjob sync-copies -n kube-chores -p ")
    assert "2 things are wrong:" in shown(observed)
    assert "1 thing is wrong:" in shown(with_jobs(cronjobs=[cronjob("sync-copies", suspended=True)], rules=[rule]))


def test_a_suspended_sync_copies_of_another_namespace_reads_no_rules() -> None:
    """A tenant may create such a CronJob."""
    stray = custom("CopyratorRule", "stray", "team-shop", {}, None)
    own, tenant = cronjob("sync-copies", ago(seconds=30)), cronjob("sync-copies", namespace="team-shop")

    suspended = with_jobs(cronjobs=[own, msgspec.structs.replace(tenant, suspended=True)], rules=[stray])

    assert problems(with_jobs(cronjobs=[own, tenant], rules=[stray])) == []
    assert problems(suspended) == [("warning", "sync-copies", "not-read")]
    assert document(suspended, NOW)["problems"][0]["todo"].startswith("move them to namespace kube-chores")
    (unread,) = document(with_jobs(cronjobs=[cronjob("fetch-rates", ago(minutes=8))], rules=[stray]), NOW)["problems"]
    assert (unread["code"], unread["todo"]) == ("not-read", "install the job, or delete them")


def test_mirrors_need_one_of_the_jobs_that_audit_them() -> None:
    mirror = custom("RegistryMirror", "quay", "", {}, ("True", "Healthy", ""))
    audit, repair = cronjob("mirror-audit", suspended=True), cronjob("mirror-repair", ago(minutes=8))

    both = with_jobs(cronjobs=[audit, repair], mirrors=[mirror])
    none = with_jobs(cronjobs=[audit, cronjob("mirror-repair", suspended=True)], mirrors=[mirror])

    assert problems(both) == []
    for each in (none, with_jobs(cronjobs=[audit], mirrors=[mirror])):
        assert problems(each) == [("warning", "mirror-audit", "job-suspended")]


@pytest.mark.parametrize(("job", "noun"), [("roll-workloads", "workloads"), ("farm-pods", "pods")])
def test_objects_whose_job_is_suspended_are_a_problem(job: str, noun: str) -> None:
    evaluated = {job: Evaluated(facts={noun: 1, "namespaces": 1})}

    observed = with_jobs(cronjobs=[cronjob(job, suspended=True)], evaluated=evaluated)

    assert problems(observed) == [("warning", job, "job-suspended")]
    (found,) = document(observed, NOW)["problems"]
    assert found["reason"] == f"1 {noun[:-1]} needs this job, which is suspended"
    assert problems(with_jobs(cronjobs=[cronjob(job, suspended=True)], evaluated={job: Evaluated()})) == []


def test_what_a_brake_blocks_is_one_problem() -> None:
    blocked = [finding("orphan", configmap(f"team-{n}"), exit_code=ExitCode.BRAKE) for n in range(30)]
    brake = Brake("the deletion brake blocks the deletion of 30 ConfigMaps", "--max-deletes", "30")

    found = the_problem(synced(evaluated={"sync-copies": Evaluated(blocked, brakes=[brake])}))

    assert (found["severity"], found["code"]) == ("critical", "brake")
    assert found["todo"].endswith(": chores sync-copies -n kube-chores --max-deletes 30")


def test_a_mistaken_rule_is_one_problem_that_names_the_correction_first() -> None:
    rule_key = ObjectKey("CopyratorRule", "ca", "kube-chores")
    missing = finding("source-namespace-missing", rule_key, "source namespace typo does not exist")
    blocked = finding("orphan", configmap("team-shop"), exit_code=ExitCode.BRAKE)
    brake = Brake("rules that may be mistaken block the deletion of 1 copy: ca (typo)", "--max-deletes", "1")
    braked = {"sync-copies": Evaluated([missing, blocked], brakes=[brake])}
    observed = synced(FAILED, success=ago(minutes=9), pods=(pod("sync-copies-1", 4, "blocked"),), evaluated=braked)

    found = the_problem(observed)

    assert (found["code"], found["subjects"], job(observed)["state"]) == ("brake", ["ca"], "failing")
    assert found["todo"] == (
        "correct spec.namespaces of the rule, or delete the rule; only if this is intended, run once, "
        "with the rights of the job: chores sync-copies -n kube-chores --max-deletes 1"
    )


def test_of_a_long_log_the_text_has_the_last_lines() -> None:
    log = "".join(f"row {n} \x1b[2J\n" for n in range(90)) + "\nthe cause\n"

    lines = shown(synced(FAILED, success=ago(minutes=9), pods=(pod("sync-copies-1", 2, log),))).splitlines()

    assert "    row 89 \\x1b[2J" in lines
    assert "    the cause" in lines
    assert "row 80" not in "".join(lines)


def test_a_condition_that_the_evaluation_does_not_confirm_is_not_a_problem() -> None:
    failed = [{"namespace": "team-shop", "reason": "Conflict"}]
    ready = ("False", "Conflict", "1 of 3 copies")
    rule = custom("CopyratorRule", "ca", "kube-chores", {}, ready, failedNamespaces=failed)

    not_evaluated = synced(rules=[rule], evaluated={"sync-copies": Evaluated(note="no rights")})

    assert problems(evaluated(rules=[rule])) == []
    assert [code for _, _, code in problems(not_evaluated)] == ["conflict"]
    assert document(not_evaluated, NOW)["rules"][0]["namespaces"] == {"team-shop": "conflict"}


def test_a_missing_right_of_the_user_is_a_note_and_the_status_stands_in() -> None:
    denied = 'its copies cannot be read: secrets is forbidden: User "a" cannot list resource "secrets" in API group ""'
    key = ObjectKey("CopyratorRule", "logins", "kube-chores")
    ready = ("True", "Synced", "")
    rule = custom("CopyratorRule", "logins", "kube-chores", {"ruleType": "secret"}, ready, desiredCopies=7, copies=6)

    observed = evaluated(finding("unreadable", key, denied, "logins"), rules=[rule])

    assert problems(observed) == []
    (shown,) = document(observed, NOW)["rules"]
    assert shown["namespaces"] == {}, "the namespace of the rule has no copy"
    assert (shown["copies"], shown["desiredCopies"]) == (6, 7)
    assert job(observed)["notes"] == [
        "not evaluated: copyratorrule/logins in namespace kube-chores: you cannot list secrets; "
        "bind the ClusterRole kube-chores-view-secrets"
    ]


@pytest.mark.parametrize("is_evaluated", [True, False], ids=["evaluated", "no-rights"])
def test_each_reason_of_failed_writes_is_a_problem_with_its_number_of_namespaces(is_evaluated: bool) -> None:
    reasons = {f"team-{n:03}": "QuotaExceeded" if n else "Denied" for n in range(100)}
    failed = [{"namespace": name, "reason": reason} for name, reason in reasons.items()]
    ready = ("False", "Denied", "a policy refused it")
    rule = custom("CopyratorRule", "ca", "kube-chores", {}, ready, failedNamespaces=failed, failedNamespaceCount=700)
    planned = [finding("missing", configmap(name), change=write()) for name in reasons]
    own = Evaluated(planned) if is_evaluated else Evaluated(note="no rights")

    observed = synced(rules=[rule], evaluated={"sync-copies": own})

    assert [(each["code"], each["reason"]) for each in document(observed, NOW)["problems"]] == [
        ("denied", "copies are not as desired in at least 1 of 700 namespaces: team-000; a policy refused it"),
        (
            "quota-exceeded",
            "copies are not as desired in at least 99 of 700 namespaces: team-001, team-002, team-003 and 96 more",
        ),
    ]


def test_a_conflict_that_the_evaluation_lists_is_not_a_second_problem() -> None:
    failed = [{"namespace": "team-a", "reason": "Conflict"}, {"namespace": "team-b", "reason": "Denied"}]
    rule = custom("CopyratorRule", "ca", "kube-chores", {}, ("False", "Conflict", "x"), failedNamespaces=failed)
    found = [finding("conflict", configmap("team-a")), finding("missing", configmap("team-c"), change=write())]

    assert the_problem(evaluated(*found, rules=[rule]))["object"]["kind"] == "ConfigMap"


def test_of_deferred_rolls_only_a_missing_source_is_a_problem() -> None:
    found = [
        finding("deferred", deployment("web"), "paused", deferral="paused"),
        finding("deferred", deployment("api"), "new pods would not start", deferral="missing-source"),
    ]
    observed = with_jobs(
        cronjobs=[cronjob("roll-workloads", ago(minutes=1))], evaluated={"roll-workloads": Evaluated(found)}
    )

    assert problems(observed) == [("warning", "roll-workloads", "missing-source")]
    assert [each["code"] for each in document(observed, NOW)["deferred"]] == ["paused", "missing-source"]


def test_what_the_last_audit_found_about_all_mirrors_is_one_problem() -> None:
    message = "service/(all) in namespace mirrors: none of the 2 mirrors responds"
    mirrors = [custom("RegistryMirror", each, "", {}, ("False", "MirrorDown", message)) for each in ("hub", "quay")]

    made = document(with_jobs(cronjobs=[cronjob("mirror-audit", ago(minutes=4))], mirrors=mirrors), NOW)

    (found,) = made["problems"]
    assert (found["code"], found["subjects"], found["object"]) == ("mirror-down", ["hub", "quay"], None)
    assert [len(each["checks"]) for each in made["mirrors"]] == [1, 1]


def test_what_the_last_audit_found_by_its_probes_comes_before_what_follows_from_it() -> None:
    key = ObjectKey("Service", "registry-mirror-quay", "mirrors")
    found = [finding("no-endpoints", key, "has no ready endpoint", "quay", severity=Severity.CRITICAL)]
    message = f"has 0 MB of free space; {key}: has no ready endpoint"
    mirror = custom("RegistryMirror", "quay", "", {}, ("False", "VolumeFilling", message))
    cronjobs = [cronjob("mirror-audit", ago(minutes=4))]

    made = document(with_jobs(cronjobs=cronjobs, mirrors=[mirror], evaluated={"mirror-audit": Evaluated(found)}), NOW)

    expected = ["volume-filling", "no-endpoints"]
    assert [each["code"] for each in made["problems"]] == expected
    assert [each["code"] for each in made["mirrors"][0]["checks"]] == expected
    assert made["problems"][0]["reason"] == f"the last audit found: {message}"
    assert "the last audit found: has 0 MB of free space" in page(made).split("<h2", 4)[2]


@pytest.mark.parametrize(
    ("ready", "code"),
    [
        (("False", "NoEndpoints", "service/s in namespace mirrors: has no ready endpoint; and 2 more"), []),
        (("Unknown", "NotProbed", "not probed"), []),
        (("True", "Healthy", "no findings"), []),
        (("False", "MirrorDown", "does not respond"), ["mirror-down"]),
    ],
)
def test_the_last_audit_is_not_repeated(ready: tuple[str, str, str], code: list[str]) -> None:
    key = ObjectKey("Service", "s", "mirrors")
    found = [finding("no-endpoints", key, "has no ready endpoint", "quay", severity=Severity.CRITICAL)]
    mirror = custom("RegistryMirror", "quay", "", {}, ready)
    cronjobs = [cronjob("mirror-audit", ago(minutes=4))]

    observed = with_jobs(cronjobs=cronjobs, mirrors=[mirror], evaluated={"mirror-audit": Evaluated(found)})

    assert [each for _, _, each in problems(observed)] == [*code, "no-endpoints"]


def test_what_only_the_last_audit_found_is_shown_next_to_an_equal_code() -> None:
    found = [
        finding("missing", ObjectKey("DaemonSet", "d", "nodes"), "does not exist", "quay", severity=Severity.CRITICAL)
    ]
    message = (
        "daemonset/d in namespace nodes: does not exist; statefulset/s in namespace mirrors: its volume is 97% full"
    )
    mirror = custom("RegistryMirror", "quay", "", {}, ("False", "Missing", message), findings=2)

    made = document(
        with_jobs(
            cronjobs=[cronjob("mirror-audit", ago(minutes=4))],
            mirrors=[mirror],
            evaluated={"mirror-audit": Evaluated(found)},
        ),
        NOW,
    )

    assert "its volume is 97% full" in made["problems"][0]["reason"]


def test_what_to_do_about_a_finding_is_a_command_or_what_resolves_it() -> None:
    deferred = finding("deferred", deployment("api"), "would not start", deferral="missing-source")
    own = Evaluated([finding("conflict", configmap("team-b"), "exists")])
    cronjobs = [cronjob("sync-copies", ago(seconds=30)), cronjob("roll-workloads", ago(minutes=1))]
    of_jobs = {"sync-copies": own, "roll-workloads": Evaluated([deferred])}

    lines = shown(with_jobs(cronjobs=cronjobs, evaluated=of_jobs)).splitlines()

    assert "    chores sync-copies -n kube-chores --explain team-b/ca-bundle" in lines
    assert "    chores roll-workloads --key-secret kube-chores/roll-workloads-key --explain team-shop/api" in lines
    assert todo("mirror-audit", "conflict", None) == CODES["conflict"].remedy
    assert "Adopt" in todo("sync-copies", "conflict", None)
    found = todo("mirror-audit", "missing", ObjectKey("Service", "s", "mirrors"))
    assert "mirror-repair" in found and "describe" not in found


def test_a_mirror_that_does_not_exist_yet_is_one_problem() -> None:
    missing = [finding("missing", configmap("mirrors", f"part-{n}"), "", "quay") for n in range(9)]
    absent = finding("missing", ObjectKey("RegistryMirror", "quay"), "does not exist yet", "quay")
    plan = Plan(missing, summary=Summary(absent={"quay": absent}))

    assert [each.object.kind for each in Evaluated.of(plan).findings] == ["RegistryMirror"]


@pytest.mark.parametrize("name", ["sync-copies", "fetch-rates", "roll-workloads", "farm-pods"])
def test_what_to_do_is_known_for_each_code_that_needs_a_person(name: str) -> None:
    section = (ROOT / "docs" / "report.md").read_text().partition(f"## Codes of {name}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \| .* \| (.*) \|$", section, re.M)
    by_hand = [code for code, what in rows if not what.startswith(("nothing", "open its URL", "leave it to", "grant"))]
    generic = {"deferred", "retained", "provider-failed", "status-failed"}  # not problems, or the message is enough

    unknown = [code for code in by_hand if code not in generic and todo(name, code, None).startswith("chores ")]

    assert len(rows) > 5
    assert unknown == []


def test_what_to_do_about_an_object_with_finalizers_is_a_command_that_prints_them() -> None:
    command = "kubectl get configmap ca -o 'jsonpath={.metadata.finalizers}' -n team-a"

    for code in ("orphan", "terminating", "opted-out"):
        found = todo("sync-copies", code, ObjectKey("ConfigMap", "ca", "team-a"))
        assert found == f"find the owner of its finalizers: {command}"
    assert todo("sync-copies", "terminating", ObjectKey("Namespace", "team-a")).endswith("finalizers}'")


def test_many_problems_of_one_tenant_hide_no_other_problem() -> None:
    flood = [finding("conflict", configmap("tenant", f"c-{n}"), "exists") for n in range(3000)]
    other = finding("collision", configmap("other"), "two sources")
    same = finding("conflict", configmap("zebra"), "exists")

    observed = evaluated(*flood, other, same)
    found = document(observed, NOW)

    assert len(found["problems"]) == 102
    assert found["problems"][-1]["object"]["namespace"] == "zebra"
    assert found["limits"] == {"problems sync-copies conflict in tenant": "3000 problems, the first 100 are listed"}
    assert "collision" in shown(observed)
    assert len(shown(observed).splitlines()) < 40
    assert len(shown(observed, verbose=True).splitlines()) > 100


@pytest.mark.parametrize(
    ("names", "line"),
    [
        (["a", "b", "c"], "also configmap/b in team, configmap/c in team"),
        (["a", "b", "b"], "also configmap/b in team and 1 more (-v)"),
        (["a", "a", "a"], "also 2 more (-v)"),
        (
            ["a", "b", "c", "d", "e"],
            "also configmap/b in team, configmap/c in team, configmap/d in team and 1 more (-v)",
        ),
    ],
)
def test_an_object_with_several_problems_of_a_code_is_named_once(names: list[str], line: str) -> None:
    found = [finding("conflict", configmap("team", name), f"reason {n}") for n, name in enumerate(names)]

    lines = shown(evaluated(*found)).partition(f"conflict ({len(names)})\n")[2].split("  to do: ")[0]

    assert " ".join(lines.split()) == f"configmap/a in team (ca): reason 0 {line}"


def test_hostile_text_is_escaped() -> None:
    hostile = finding("conflict", configmap(HOSTILE, HOSTILE), HOSTILE, f"{HOSTILE}y")
    observed = with_jobs(
        FAILED,
        cronjobs=[cronjob("sync-copies", ago(minutes=2), "", schedule=HOSTILE)],
        pods=(pod("sync-copies-1", 1, HOSTILE),),
        evaluated={"sync-copies": Evaluated([hostile])},
        notes=[HOSTILE],
    )

    assert left_in(shown(observed)) == []
    assert left_in(shown(observed, verbose=True)) == []


def test_the_document_is_bounded() -> None:
    rates = [custom("ExchangeRate", f"r-{n}", "tenant", {}, None) for n in range(6000)]
    long = finding("conflict", configmap("tenant"), "x" * 10_000)

    found = document(evaluated(long, rates=rates), NOW)

    assert [len(each["reason"]) for each in found["problems"] if each["code"] == "conflict"] == [2000]
    assert len(found["rates"]) == 5000
    assert found["limits"]["rates"] == "6000 rates, the first 5000 are listed"


def test_an_old_rate_is_a_problem() -> None:
    rates = [
        custom("ExchangeRate", f"r-{day}", "team", {}, ("True", "Current", ""), rate="1", date=f"2026-02-{day}")
        for day in ("26", "27")
    ]
    observed = with_jobs(cronjobs=[cronjob("fetch-rates", ago(minutes=5))], rates=rates)

    assert [each["object"]["name"] for each in document(observed, NOW)["problems"]] == ["r-26"]


@pytest.mark.parametrize(
    ("schedule", "printed"),
    [("0,15,30,45 * * * *", "0,15,30,45 * * * *"), ("0," * 15 + "0 * * * *", "0," * 15 + "0…")],
)
def test_a_schedule_is_never_printed_longer_than_it_is(schedule: str, printed: str) -> None:
    found = with_jobs(cronjobs=[cronjob("sync-copies", ago(minutes=2), "", schedule=schedule)])

    (line,) = [each for each in shown(found).splitlines() if each.startswith("sync-copies ")]
    assert f"  {printed} " in f"{line} "
