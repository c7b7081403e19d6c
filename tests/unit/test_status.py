"""The document of `chores status`, and its text, as pure functions."""

import json
import re
from typing import Any

import msgspec
import pytest

from jobs.core.mirror_audit.checks.findings import CODES
from jobs.core.status.document import Observed, document
from jobs.core.status.installed import CronJob, JobPod, PodObject, RunJob, job_pod
from jobs.core.status.page import page
from jobs.core.status.problems import Evaluated, todo
from jobs.core.status.text import text
from jobs.kit.values.model import Brake, ExitCode, ObjectKey, Plan, Severity, Summary
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
from tests.unit.test_docs import check

COLORS = re.compile(r"\x1b\[[0-9;]*m")


def shown(observed: Observed, *, verbose: bool = False) -> str:
    return COLORS.sub("", "\n".join(text(document(observed, NOW), verbose=verbose)))


def job(observed: Observed, name: str = "sync-copies") -> dict[str, Any]:
    return next(each for each in document(observed, NOW)["jobs"] if each["name"] == name)


def problems(observed: Observed) -> list[tuple[str, str, str]]:
    return [(each["severity"], each["job"], each["code"]) for each in document(observed, NOW)["problems"]]


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
    ]


def test_the_text_fits_a_terminal_of_80_columns() -> None:
    lines = shown(example()).splitlines()

    assert [line for line in lines if len(line) > 80 and not line.startswith(("    kubectl ", "    chores "))] == []
    assert len(lines) <= 40


def test_the_text_is_what_the_docs_show() -> None:
    block = re.search(r"```text\n(kube-chores .*?)\n```", (ROOT / "docs" / "status.md").read_text(), re.S)

    assert block
    assert block[1] == shown(example())


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
    cronjobs = [cronjob("sync-copies", ago(seconds=30))]

    assert "nothing is wrong in what could be read" in shown(with_jobs(cronjobs=cronjobs, **fields))
    assert "nothing is wrong\n" in shown(with_jobs(cronjobs=cronjobs)) + "\n"


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
    observed = with_jobs(*jobs, cronjobs=[cronjob("sync-copies", ago(seconds=30), ago(minutes=8))], pods=pods)

    (found,) = document(observed, NOW)["problems"]

    assert (found["severity"], found["code"]) == ("critical", "job-failing")
    assert found["reason"] == f"the last 3 runs failed (exit code {exit_code}): the cause of 1"
    assert words in found["todo"]
    assert "kubectl logs -n kube-chores job/sync-copies-1" in found["todo"]
    assert job(observed)["state"] == "failing"


@pytest.mark.parametrize(
    ("waiting", "event", "age", "state"),
    [
        ("ErrImagePull: not found", "", 2, "failing"),
        ("CreateContainerConfigError: no key", "", 2, "failing"),
        ("", "exceeded quota: pods", 2, "failing"),
        ("Unschedulable: 0/3 nodes are available", "", 50, "running"),
        ("Unschedulable: 0/3 nodes are available", "", 70, "failing"),
        ("", "", 70, "running"),
    ],
)
def test_a_run_that_cannot_start_fails_at_once_but_an_unscheduled_one_after_a_minute(
    waiting: str, event: str, age: int, state: str
) -> None:
    made = msgspec.structs.replace(
        pod("sync-copies-1", waiting=waiting), is_unscheduled="Unsched" in waiting, created=ago(seconds=age)
    )
    cronjobs = [cronjob("sync-copies", ago(seconds=age), ago(seconds=age + 60))]
    fields = {"warnings": {"sync-copies-1": event}} if event else {}

    observed = with_jobs(
        run("sync-copies", 1, ago(seconds=age)), cronjobs=cronjobs, pods=(made,) if waiting else (), **fields
    )

    assert job(observed)["state"] == state
    assert [code for _, _, code in problems(observed)] == (["job-stuck"] if state == "failing" else [])


def test_a_run_that_cannot_start_is_shown_although_the_run_before_failed() -> None:
    jobs = [run("sync-copies", 1, ago(seconds=2)), run("sync-copies", 0, ago(minutes=2), ago(minutes=1), "failed")]
    pods = (pod("sync-copies-0", 1, "a write failed"), pod("sync-copies-1", waiting="ErrImagePull: not found"))

    observed = with_jobs(*jobs, cronjobs=[cronjob("sync-copies", ago(seconds=2), ago(minutes=9))], pods=pods)

    assert "pod sync-copies-1-x7k2p does not start: ErrImagePull: not found" in " ".join(shown(observed).split())


@pytest.mark.parametrize(("log", "words"), [("", "no message"), ("row 1\nrow 2\n3\n4\n5\n", "5")])
def test_the_reason_of_a_killed_container_is_shown_with_and_without_a_log(log: str, words: str) -> None:
    ended = {"exitCode": 137, "reason": "OOMKilled", "message": log}
    status = {"phase": "Failed", "containerStatuses": [{"name": "chores", "state": {"terminated": ended}}]}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "sync-copies-1", "uid": "u"}
    metadata = {"name": "p", "namespace": "kube-chores", "ownerReferences": [owner]}
    read = msgspec.json.decode(json.dumps({"metadata": metadata, "status": status}), type=PodObject)
    jobs = [run("sync-copies", 1, ago(minutes=2), ago(minutes=1), "failed")]

    observed = with_jobs(
        *jobs, cronjobs=[cronjob("sync-copies", ago(minutes=2), ago(minutes=9))], pods=(job_pod(read),)
    )
    (found,) = document(observed, NOW)["problems"]

    assert found["reason"].startswith("the last run failed (exit code 137, OOMKilled): ")
    assert found["reason"].endswith(words)
    assert found["todo"].startswith("raise the memory limit")


def test_a_brake_is_shown_also_if_a_later_run_failed_for_another_reason() -> None:
    brake = Brake("the deletion brake blocks the deletion of 30 ConfigMaps", "--max-deletes", "30")
    jobs = [run("sync-copies", n, ago(minutes=n, seconds=9), ago(minutes=n), "failed") for n in (1, 2)]
    pods = (pod("sync-copies-1", 1, "a write failed"), pod("sync-copies-2", 4, "a brake"))
    cronjobs = [cronjob("sync-copies", ago(minutes=1), ago(minutes=9))]

    observed = with_jobs(*jobs, cronjobs=cronjobs, pods=pods, evaluated={"sync-copies": Evaluated((), brakes=[brake])})

    assert [code for _, _, code in problems(observed)] == ["job-failing", "brake"]
    lines = " ".join(shown(observed).split())
    assert "the deletion brake blocks" in lines and "a write failed" in lines


def test_one_failed_run_is_a_warning_since_the_next_one_tries_again() -> None:
    jobs = [
        run("sync-copies", 1, ago(minutes=1, seconds=30), ago(minutes=1), "failed"),
        run("sync-copies", 2, ago(minutes=2, seconds=30), ago(minutes=2)),
    ]
    pods = (pod("sync-copies-1", 1, "a write failed"),)

    observed = with_jobs(*jobs, cronjobs=[cronjob("sync-copies", ago(seconds=30), ago(minutes=2))], pods=pods)

    assert problems(observed) == [("warning", "sync-copies", "job-failing")]


def test_a_first_run_that_failed_is_critical() -> None:
    jobs = [run("sync-copies", 1, ago(minutes=1, seconds=30), ago(minutes=1), "failed")]
    pods = (pod("sync-copies-1", 1, "a write failed"),)

    observed = with_jobs(*jobs, cronjobs=[cronjob("sync-copies", ago(seconds=30), "")], pods=pods)

    assert problems(observed) == [("critical", "sync-copies", "job-failing")]


NOT_SENT = "metrics are not pushed to http://gateway:9091: no answer"


def test_a_success_without_its_metrics_is_a_warning_until_a_run_sends_them() -> None:
    jobs = [run("sync-copies", n, ago(minutes=n, seconds=30), ago(minutes=n, seconds=20)) for n in (1, 2)]
    cronjobs = [cronjob("sync-copies", ago(minutes=1), ago(minutes=1))]
    not_sent = pod("sync-copies-1", 0, f"{NOT_SENT}\n")
    earlier = pod("sync-copies-2", 0, f"{NOT_SENT}\n")

    observed = with_jobs(*jobs, cronjobs=cronjobs, pods=(not_sent, earlier))
    (found,) = document(observed, NOW)["problems"]

    assert (found["severity"], found["code"], job(observed)["state"]) == ("warning", "metrics-not-sent", "ok")
    assert found["reason"] == f"run sync-copies-1 succeeded, but no alert can see it: {NOT_SENT}"
    assert "PUSH_GATEWAY" in found["todo"]
    assert problems(with_jobs(*jobs, cronjobs=cronjobs, pods=(pod("sync-copies-1", 0), earlier))) == []


def test_a_success_after_a_failure_is_ok() -> None:
    jobs = [
        run("sync-copies", 1, ago(minutes=2), ago(minutes=1), "failed"),
        run("sync-copies", 2, ago(seconds=30), ago(seconds=20)),
    ]

    observed = with_jobs(*jobs, cronjobs=[cronjob("sync-copies", ago(seconds=30), ago(seconds=20))])

    assert (job(observed)["state"], problems(observed)) == ("ok", [])


@pytest.mark.parametrize(
    ("waiting", "event", "words", "todo"),
    [
        ("ImagePullBackOff: Back-off pulling image", "", "ImagePullBackOff", "kubectl describe pod"),
        ("Unschedulable: 0/3 nodes are available", "", "0/3 nodes", "kubectl describe pod"),
        ("", 'pods "x" is forbidden: exceeded quota: pods', "exceeded quota", "kubectl describe quota"),
    ],
)
def test_a_run_whose_pod_does_not_start_is_critical(waiting: str, event: str, words: str, todo: str) -> None:
    pods = (pod("sync-copies-1", waiting=waiting),) if waiting else ()
    events = {"sync-copies-1": event} if event else {}
    cronjobs = [cronjob("sync-copies", ago(minutes=4), ago(minutes=5))]

    observed = with_jobs(run("sync-copies", 1, ago(minutes=4)), cronjobs=cronjobs, pods=pods, warnings=events)
    (found,) = document(observed, NOW)["problems"]

    assert (found["severity"], found["code"], job(observed)["state"]) == ("critical", "job-stuck", "failing")
    assert words in found["reason"]
    assert todo in found["todo"]


def stuck(*jobs: RunJob, pods: tuple[JobPod, ...], warnings: dict[str, str] | None = None) -> Observed:
    cronjobs = [cronjob("sync-copies", ago(minutes=4), ago(minutes=9))]
    return with_jobs(
        run("sync-copies", 1, ago(minutes=4)), *jobs, cronjobs=cronjobs, pods=pods, warnings=warnings or {}
    )


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
    (found,) = document(stuck(pods=(pending(),), warnings=warnings), NOW)["problems"]

    assert (found["code"], words in found["reason"]) == ("job-stuck", True)
    assert problems(stuck(pods=(pending(created=ago(minutes=1)),))) == []


def test_a_second_pod_that_waits_is_not_blamed_on_the_log_of_the_first() -> None:
    first = msgspec.structs.replace(pod("sync-copies-1", 1, "connection refused"), name="first", created=ago(minutes=4))
    waits = stuck(pods=(first, msgspec.structs.replace(pending(), waiting="ImagePullBackOff")))

    (found,) = document(waits, NOW)["problems"]

    assert found["reason"].splitlines() == [
        "run sync-copies-1 does not start: pod sync-copies-1-x7k2p does not start: ImagePullBackOff",
        "the pod before it failed (exit code 1): connection refused",
    ]
    assert problems(stuck(pods=(first, pod("sync-copies-1")))) == []  # the second one runs


def test_a_run_that_is_stuck_comes_before_those_that_failed_without_a_pod() -> None:
    deadline = run("sync-copies", 2, ago(minutes=8), ago(minutes=6), "failed", "DeadlineExceeded: too long")

    (active,) = document(stuck(deadline, pods=(pending(),)), NOW)["problems"]
    only = with_jobs(deadline, cronjobs=[cronjob("sync-copies", ago(minutes=8), ago(minutes=9))])
    (ended,) = document(only, NOW)["problems"]

    assert (active["code"], "the last run failed" in active["reason"]) == ("job-stuck", True)
    assert ended["todo"] == "kubectl describe job sync-copies-2 -n kube-chores"


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
    read = job_pod(msgspec.convert({"metadata": {"name": "p", "namespace": "n"}, "status": status}, PodObject))

    assert (read.is_pending, read.waiting) == expected


def test_a_first_run_that_is_active_never_succeeded() -> None:
    observed = with_jobs(
        run("sync-copies", 1, ago(seconds=9)),
        cronjobs=[cronjob("sync-copies", ago(seconds=9), "", created=ago(minutes=1))],
    )

    assert job(observed)["state"] == "never"


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
        ({"last": ago(minutes=8)}, "ok", []),
        ({"last": ago(hours=9), "schedule": "0 ? ? * ?"}, "late", ["job-late"]),
        ({"last": ago(hours=2), "schedule": "not a schedule"}, "ok", []),
        ({"last": ago(hours=2), "time_zone": "No/Zone"}, "late", ["job-late"]),
        ({"last": ago(minutes=-5)}, "ok", []),  # a clock that differs
        ({"last": "not a time"}, "ok", []),
    ],
)
def test_the_state_of_a_cronjob(fields: dict[str, Any], state: str, code: list[str]) -> None:
    observed = with_jobs(cronjobs=[cronjob("sync-copies", **fields)])

    assert job(observed)["state"] == state
    assert [each[2] for each in problems(observed)] == code


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


def test_a_suspended_sync_copies_of_another_namespace_reads_no_rules() -> None:
    """A tenant may create such a CronJob."""
    stray = custom("CopyratorRule", "stray", "team-shop", {}, None)
    own, tenant = cronjob("sync-copies", ago(seconds=30)), cronjob("sync-copies", namespace="team-shop")

    suspended = with_jobs(cronjobs=[own, msgspec.structs.replace(tenant, suspended=True)], rules=[stray])

    assert problems(with_jobs(cronjobs=[own, tenant], rules=[stray])) == []
    assert problems(suspended) == [("warning", "sync-copies", "not-read")]


def test_the_todo_of_a_suspended_job_names_its_namespace() -> None:
    rule = custom("CopyratorRule", "ca", "kube-chores", {}, ("True", "Synced", ""))

    (found,) = document(with_jobs(cronjobs=[cronjob("sync-copies", suspended=True)], rules=[rule]), NOW)["problems"]

    assert found["todo"].startswith("kubectl patch cronjob sync-copies -n kube-chores -p ")


def test_one_object_is_singular() -> None:
    cronjobs = [cronjob("roll-workloads", ago(minutes=1))]

    found = shown(with_jobs(cronjobs=cronjobs, evaluated={"roll-workloads": Evaluated(facts={"workloads": 1})}))

    assert re.search(r"1 workload$", found, re.M)


def test_mirrors_need_one_of_the_jobs_that_audit_them() -> None:
    mirror = custom("RegistryMirror", "quay", "", {}, ("True", "Healthy", ""))
    audit, repair = cronjob("mirror-audit", suspended=True), cronjob("mirror-repair", ago(minutes=8))

    both = with_jobs(cronjobs=[audit, repair], mirrors=[mirror])
    none = with_jobs(cronjobs=[audit, cronjob("mirror-repair", suspended=True)], mirrors=[mirror])

    assert problems(both) == []
    assert problems(none) == [("warning", "mirror-audit", "job-suspended")]


def test_what_a_brake_blocks_is_one_problem() -> None:
    blocked = [finding("orphan", configmap(f"team-{n}"), exit_code=ExitCode.BRAKE) for n in range(30)]
    brake = Brake("the deletion brake blocks the deletion of 30 ConfigMaps", "--max-deletes", "30")
    observed = with_jobs(
        cronjobs=[cronjob("sync-copies", ago(seconds=30))],
        evaluated={"sync-copies": Evaluated(blocked, brakes=[brake])},
    )

    (found,) = document(observed, NOW)["problems"]

    assert (found["severity"], found["code"]) == ("critical", "brake")
    assert found["todo"].endswith(": chores sync-copies -n kube-chores --max-deletes 30")


def test_a_mistaken_rule_is_one_problem_that_names_the_correction_first() -> None:
    rule_key = ObjectKey("CopyratorRule", "ca", "kube-chores")
    missing = finding("source-namespace-missing", rule_key, "source namespace typo does not exist")
    blocked = finding("orphan", configmap("team-shop"), exit_code=ExitCode.BRAKE)
    brake = Brake("rules that may be mistaken block the deletion of 1 copy: ca (typo)", "--max-deletes", "1")
    failed = run("sync-copies", 1, ago(minutes=2), ago(minutes=1), "failed")
    observed = with_jobs(
        failed,
        cronjobs=[cronjob("sync-copies", ago(minutes=2), ago(minutes=9))],
        pods=(pod("sync-copies-1", 4, "blocked"),),
        evaluated={"sync-copies": Evaluated([missing, blocked], brakes=[brake])},
    )

    (found,) = document(observed, NOW)["problems"]

    assert (found["code"], found["subjects"], job(observed)["state"]) == ("brake", ["ca"], "failing")
    assert found["todo"] == (
        "correct spec.namespaces of the rule, or delete the rule; only if this is intended, run once, "
        "with the rights of the job: chores sync-copies -n kube-chores --max-deletes 1"
    )


def test_of_a_long_log_the_text_has_the_last_lines() -> None:
    log = "".join(f"row {n} \x1b[2J\n" for n in range(90)) + "\nthe cause\n"
    jobs = [run("sync-copies", 1, ago(minutes=2), ago(minutes=1), "failed")]
    pods = (pod("sync-copies-1", 2, log),)
    observed = with_jobs(*jobs, cronjobs=[cronjob("sync-copies", ago(minutes=2), ago(minutes=9))], pods=pods)

    lines = shown(observed).splitlines()

    assert "    row 89 \\x1b[2J" in lines
    assert "    the cause" in lines
    assert "row 80" not in "".join(lines)


def test_a_condition_that_the_evaluation_does_not_confirm_is_not_a_problem() -> None:
    cronjobs = [cronjob("sync-copies", ago(seconds=30))]
    rule = custom("CopyratorRule", "ca", "kube-chores", {}, ("False", "Conflict", "1 of 3 copies"))

    resolved = with_jobs(cronjobs=cronjobs, rules=[rule], evaluated={"sync-copies": Evaluated()})
    not_evaluated = with_jobs(cronjobs=cronjobs, rules=[rule], evaluated={"sync-copies": Evaluated(note="no rights")})

    assert problems(resolved) == []
    assert [code for _, _, code in problems(not_evaluated)] == ["conflict"]


def test_a_missing_right_of_the_user_is_a_note_and_the_status_stands_in() -> None:
    denied = 'its copies cannot be read: secrets is forbidden: User "a" cannot list resource "secrets" in API group ""'
    key = ObjectKey("CopyratorRule", "logins", "kube-chores")
    evaluated = Evaluated([finding("unreadable", key, denied, "logins")])
    rule = custom(
        "CopyratorRule",
        "logins",
        "kube-chores",
        {"ruleType": "secret"},
        ("True", "Synced", ""),
        desiredCopies=7,
        copies=7,
    )

    observed = with_jobs(
        cronjobs=[cronjob("sync-copies", ago(seconds=30))], rules=[rule], evaluated={"sync-copies": evaluated}
    )

    assert problems(observed) == []
    assert (document(observed, NOW)["rules"][0]["copies"], document(observed, NOW)["rules"][0]["desiredCopies"]) == (
        7,
        7,
    )
    assert job(observed)["notes"] == [
        "not evaluated: copyratorrule/logins in namespace kube-chores: you cannot list secrets; "
        "bind the ClusterRole kube-chores-view-secrets"
    ]


def test_without_an_evaluation_the_namespaces_of_a_rule_are_those_of_its_status() -> None:
    failed = [{"namespace": "team-shop", "reason": "QuotaExceeded"}]
    rule = custom("CopyratorRule", "ca", "kube-chores", {}, ("True", "Synced", ""), failedNamespaces=failed)
    cronjobs = [cronjob("sync-copies", ago(seconds=30))]

    observed = with_jobs(cronjobs=cronjobs, rules=[rule], evaluated={"sync-copies": Evaluated(note="no rights")})

    assert document(observed, NOW)["rules"][0]["namespaces"] == {"team-shop": "quota-exceeded"}


@pytest.mark.parametrize("is_evaluated", [True, False], ids=["evaluated", "no-rights"])
def test_each_reason_of_failed_writes_is_a_problem_with_its_number_of_namespaces(is_evaluated: bool) -> None:
    reasons = {f"team-{n:03}": "QuotaExceeded" if n else "Denied" for n in range(100)}
    failed = [{"namespace": name, "reason": reason} for name, reason in reasons.items()]
    ready = ("False", "Denied", "a policy refused it")
    rule = custom("CopyratorRule", "ca", "kube-chores", {}, ready, failedNamespaces=failed, failedNamespaceCount=700)
    planned = [finding("missing", configmap(name), fix=write()) for name in reasons]
    evaluated = Evaluated(planned) if is_evaluated else Evaluated(note="no rights")

    observed = with_jobs(
        cronjobs=[cronjob("sync-copies", ago(seconds=30))], rules=[rule], evaluated={"sync-copies": evaluated}
    )

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
    found = [finding("conflict", configmap("team-a")), finding("missing", configmap("team-c"), fix=write())]

    observed = with_jobs(
        cronjobs=[cronjob("sync-copies", ago(seconds=30))], rules=[rule], evaluated={"sync-copies": Evaluated(found)}
    )

    assert [each["object"]["kind"] for each in document(observed, NOW)["problems"]] == ["ConfigMap"]


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


def test_what_to_do_about_a_conflict_and_a_deferred_roll_has_the_command_that_explains_it() -> None:
    deferred = finding("deferred", deployment("api"), "would not start", deferral="missing-source")
    evaluated = {
        "sync-copies": Evaluated([finding("conflict", configmap("team-b"), "exists")]),
        "roll-workloads": Evaluated([deferred]),
    }
    cronjobs = [cronjob("sync-copies", ago(seconds=30)), cronjob("roll-workloads", ago(minutes=1))]

    lines = shown(with_jobs(cronjobs=cronjobs, evaluated=evaluated)).splitlines()

    assert "    chores sync-copies -n kube-chores --explain team-b/ca-bundle" in lines
    assert "    chores roll-workloads --key-secret kube-chores/roll-workloads-key --explain team-shop/api" in lines


def test_what_to_do_about_a_missing_resource_of_a_mirror_is_what_creates_it() -> None:
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


def test_what_to_do_about_mirrors_is_that_of_the_audit() -> None:
    assert todo("mirror-audit", "conflict", None) == CODES["conflict"].remedy
    assert "Adopt" in todo("sync-copies", "conflict", None)


def test_many_problems_of_one_tenant_hide_no_other_problem() -> None:
    flood = [finding("conflict", configmap("tenant", f"c-{n}"), "exists") for n in range(3000)]
    other = finding("collision", configmap("other"), "two sources")
    same = finding("conflict", configmap("zebra"), "exists")
    cronjobs = [cronjob("sync-copies", ago(seconds=30))]

    observed = with_jobs(cronjobs=cronjobs, evaluated={"sync-copies": Evaluated([*flood, other, same])})
    found = document(observed, NOW)

    assert len(found["problems"]) == 102
    assert found["problems"][-1]["object"]["namespace"] == "zebra"
    assert found["limits"] == {"problems sync-copies conflict in tenant": "3000 problems, the first 100 are listed"}
    assert "collision" in shown(observed)
    assert len(shown(observed).splitlines()) < 40
    assert len(shown(observed, verbose=True).splitlines()) > 100


def test_hostile_text_is_escaped() -> None:
    hostile = finding("conflict", configmap(HOSTILE, HOSTILE), HOSTILE, f"{HOSTILE}y")
    failed = run("sync-copies", 1, ago(minutes=2), ago(minutes=1), "failed")
    observed = with_jobs(
        failed,
        cronjobs=[cronjob("sync-copies", ago(minutes=2), "", schedule=HOSTILE)],
        pods=(pod("sync-copies-1", 1, HOSTILE),),
        evaluated={"sync-copies": Evaluated([hostile])},
        notes=[HOSTILE],
    )

    assert left_in(shown(observed)) == []
    assert left_in(shown(observed, verbose=True)) == []


def test_the_document_is_bounded() -> None:
    rates = [custom("ExchangeRate", f"r-{n}", "tenant", {}, None) for n in range(6000)]

    found = document(with_jobs(cronjobs=[], rates=rates), NOW)

    assert len(found["rates"]) == 5000
    assert found["limits"]["rates"] == "6000 rates, the first 5000 are listed"


def test_an_old_rate_is_a_problem() -> None:
    rates = [
        custom("ExchangeRate", f"r-{day}", "team", {}, ("True", "Current", ""), rate="1", date=f"2026-02-{day}")
        for day in ("26", "27")
    ]
    observed = with_jobs(cronjobs=[cronjob("fetch-rates", ago(minutes=5))], rates=rates)

    assert [each["object"]["name"] for each in document(observed, NOW)["problems"]] == ["r-26"]
