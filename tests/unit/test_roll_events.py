"""The Events of deferred rolls: one for each reason and config, bounded, and in turns."""

from datetime import datetime, timedelta, timezone

import pytest

from jobs.core.roll_workloads.observed import Observed, Settings
from jobs.core.roll_workloads.plan import MOST_REPORTED, status_updates
from jobs.core.roll_workloads.references import Reference, Source
from jobs.core.roll_workloads.workloads import DeferralCode, Workload
from jobs.kit.values.conditions import StatusUpdate
from jobs.kit.values.model import Finding, ObjectKey, Outcome, Plan, Result, Severity
from tests.hostile_text import HOSTILE

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
REFERENCE = Reference("ConfigMap", "settings", None, True, ())
PAUSED, MAX_ROLLS = DeferralCode.PAUSED.value, DeferralCode.MAX_ROLLS.value
Deferred = tuple[str, str, str]  # namespace, name, code


def workload(namespace: str, name: str, uid: str = "") -> Workload:
    key = ObjectKey("Deployment", name, namespace)
    unset = ("1", 1, True, "", "", "", (REFERENCE,), None, "", "", False, False, False, False, "", False)
    return Workload(key, uid or f"uid of {namespace}/{name}", *unset)


def updates(
    *deferred: Deferred, config: str = "1", now: datetime = NOW, uid: str = "", reason: str = "why"
) -> list[StatusUpdate]:
    found = [workload(namespace, name, uid) for namespace, name, _ in deferred]
    sources = {
        ObjectKey("ConfigMap", "settings", each.key.namespace): Source(config, frozenset(), {}) for each in found
    }
    observed = Observed((), workloads={each.key: each for each in found}, sources=sources)
    findings = [
        Finding("deferred", Severity.WARNING, each.key, reason, deferral=code)
        for each, (_, _, code) in zip(found, deferred, strict=True)
    ]
    results = [Result(finding, Outcome.REPORTED) for finding in findings]
    return list(status_updates(observed, Settings(), Plan(), results, now))


def name_of(update: StatusUpdate) -> str:
    assert update.event
    return str(update.event["metadata"]["name"])


@pytest.mark.parametrize("code", ["settling", "cooling-down"])
def test_a_deferred_roll_has_an_event_unless_it_follows_within_minutes(code: str) -> None:
    (only,) = updates(("shop", "web", DeferralCode(code).value), ("shop", "other", PAUSED))

    assert only.key.name == "other"
    assert only.event
    assert [only.event[each] for each in ("type", "reason", "message")] == ["Normal", "RollDeferred", "why"]
    assert only.status is None


def test_an_event_has_another_name_only_if_its_reason_or_its_config_changes() -> None:
    web = ("shop", "web", PAUSED)
    (first,) = updates(web)

    (again,) = updates(web, now=NOW + timedelta(minutes=5), reason="the same in other words")
    assert name_of(again) == name_of(first)
    others = [*updates(("shop", "web", MAX_ROLLS)), *updates(web, config="2"), *updates(web, uid="recreated")]
    assert len({name_of(first), *map(name_of, others)}) == 4


@pytest.mark.parametrize("other", [PAUSED, MAX_ROLLS])
def test_a_namespace_with_many_workloads_hides_no_other_one(other: str) -> None:
    many = [("aaa", f"web-{number}", PAUSED) for number in range(500)]
    few = [(f"shop-{number}", "web", other) for number in range(20)]

    reported = [each.key.namespace for each in updates(*many, *few)]

    assert len(reported) == MOST_REPORTED
    assert {each for each in reported if each != "aaa"} == ({each[0] for each in few} if other == PAUSED else set())


def test_rolls_over_the_limit_come_last() -> None:
    many = [(f"shop-{number}", "web", MAX_ROLLS) for number in range(MOST_REPORTED)]

    reported = [each.key.name for each in updates(*many, ("shop-0", "paused", PAUSED), ("shop-0", "also", PAUSED))]

    assert (len(reported), set(reported[:2])) == (MOST_REPORTED, {"paused", "also"})


def test_later_runs_report_the_others() -> None:
    many = [("shop", f"web-{number}", PAUSED) for number in range(2 * MOST_REPORTED)]

    runs = [{each.key for each in updates(*many, now=NOW + timedelta(minutes=5 * number))} for number in range(12)]

    assert len(set().union(*runs)) == len(many)
    assert updates(*many) == updates(*reversed(many)), "the order of the input does not matter"


def test_hostile_text_is_escaped_and_limited() -> None:
    (update,) = updates(("n" * 63, "w" * 253, PAUSED), reason=HOSTILE + "x" * 10_000)

    assert update.event
    assert len(name_of(update)) <= 253
    assert update.event["message"].isprintable()
    assert len(update.event["message"]) <= 1024
