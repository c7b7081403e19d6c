"""The status of a CopyratorRule: numbers of copies, namespaces with a problem, and the time of the last run."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from msgspec.structs import replace

from jobs.core.sync_copies.observed import Namespace, Observed, Settings, Source
from jobs.core.sync_copies.plan import plan
from jobs.core.sync_copies.rules import Rule, Spec
from jobs.core.sync_copies.selectors import LabelSelector
from jobs.core.sync_copies.status import MOST_LISTED, RULE_READY, gauges, status_updates
from jobs.kit.data.contents import Content, field_set
from jobs.kit.data.objects import Header, Ownership, ReducedObject
from jobs.kit.values.conditions import StatusUpdate
from jobs.kit.values.errors import DENIED, QUOTA_EXCEEDED, ApiError, InvalidObjectError
from jobs.kit.values.model import Finding, ObjectKey, Outcome, Result, RunOptions
from jobs.kit.values.reads import Head, Invalid, unreadable

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
SETTINGS = Settings("kube-chores")
TEAMS = ("team-a", "team-b", "team-c")
HEAD = Head(ObjectKey("CopyratorRule", "rule", "kube-chores"), "uid-1", 1)
NOBODY = Ownership(field_set([]), (), False, frozenset(), frozenset())
Status = dict[str, Any]
Settle = Callable[[Finding], Result]


def rule(status: Status | None = None, *namespaces: str) -> Rule:
    head = replace(HEAD, status=json.dumps(status).encode() if status else b"")
    return Rule(head, Spec("configmap", LabelSelector({"share": "true"}), namespaces or ("home",)))


def source(name: str = "settings") -> ReducedObject:
    return ReducedObject("home", name, "uid 1", Header({}, {}, NOBODY), Content(data={"a": "1"}))


def observed(by: Rule, *sources: Source, namespaces: tuple[str, ...] = TEAMS) -> Observed:
    spaces = tuple(Namespace(name, {}, True, False) for name in sorted({"home", *namespaces}))
    return Observed((by,), spaces, dict.fromkeys(by.queries(), sources), {"configmap": {}})


def done(finding: Finding) -> Result:
    return Result(finding, Outcome.DONE if finding.change else Outcome.REPORTED)


def refused(code: str, *namespaces: str) -> Settle:
    """Return what refuses the writes in these namespaces, and accepts all others."""

    def settle(finding: Finding) -> Result:
        if finding.object.namespace not in namespaces:
            return done(finding)
        return Result(replace(finding, code=code), Outcome.FAILED, "refused", cause=code)

    return settle


def updates(world: Observed, settle: Settle = done, now: datetime = NOW) -> list[StatusUpdate]:
    planned = plan(world, SETTINGS, now)
    return list(status_updates(world, SETTINGS, planned, [settle(each) for each in planned.findings], now))


def status(world: Observed, settle: Settle = done, now: datetime = NOW) -> Status:
    (update,) = updates(world, settle, now)
    assert update.status
    return json.loads(update.encode())["status"]  # type: ignore[no-any-return]


def counts(found: Status) -> tuple[int | None, ...]:
    return tuple(found[name] for name in ("sources", "desiredCopies", "copies", "conflictCount"))


def test_the_numbers_of_sources_and_copies() -> None:
    assert counts(status(observed(rule(), source(), source("more")))) == (2, 6, 6, 0)
    assert counts(status(observed(rule()))) == (0, 0, 0, 0)

    found = status(observed(rule(), source()), refused("conflict", "team-a", "team-c"))
    assert counts(found) == (1, 3, 1, 2)


def test_copies_that_are_not_written_are_not_counted() -> None:
    found = status(observed(rule(), source()), lambda finding: Result(finding, Outcome.FAILED))

    assert counts(found) == (1, 3, 0, 0)
    assert found["failedNamespaces"] == [{"namespace": name, "reason": "Failed"} for name in TEAMS]


def test_unchanged_copies_count_also_if_the_run_reports_them() -> None:
    def settle(finding: Finding) -> Result:
        return Result(replace(finding, code="unchanged", change=None), Outcome.REPORTED)

    assert counts(status(observed(rule(), source()), settle)) == (1, 3, 3, 0)


def test_a_source_that_cannot_be_decoded_is_not_a_copy_with_a_problem() -> None:
    broken = unreadable(ObjectKey("ConfigMap", "broken", "home"), InvalidObjectError("no"))

    found = status(observed(rule(), source(), broken))

    assert counts(found) == (1, 3, 3, 0)
    assert (found["conditions"][0]["reason"], found["failedNamespaces"]) == ("Unreadable", [])


def test_numbers_are_absent_if_the_sources_cannot_be_read() -> None:
    before = status(observed(rule(), source()))
    by = rule(before)
    denied = unreadable(HEAD.key, ApiError(403, "Forbidden", "no"), subjects=("rule",))
    world = replace(observed(by), sources={}, failures=(denied,))

    assert counts(status(world)) == (None, None, None, None)
    samples = list(gauges(world, SETTINGS, plan(world, SETTINGS, NOW), [done(denied)], NOW))
    assert [each.metric for each in samples if each.labels == ("rule",)] == [RULE_READY]

    invalid = Invalid(by.head, ("spec: is wrong",))
    world = replace(observed(by), rules=(), sources={}, invalid_rules=(invalid,))
    assert counts(status(world)) == (None, None, None, None)


def test_each_namespace_has_its_worst_reason() -> None:
    def settle(finding: Finding) -> Result:
        name, namespace = finding.object.name, finding.object.namespace
        if namespace == "team-b":
            return refused("conflict" if name == "settings" else DENIED, "team-b")(finding)
        return refused(QUOTA_EXCEEDED, "team-c")(finding)

    found = status(observed(rule(), source(), source("more")), settle)

    assert found["failedNamespaceCount"] == 2
    assert found["failedNamespaces"] == [
        {"namespace": "team-b", "reason": "Denied"},
        {"namespace": "team-c", "reason": "QuotaExceeded"},
    ]
    assert counts(found) == (2, 6, 2, 1)


def test_the_list_of_namespaces_is_bounded_and_its_number_is_not() -> None:
    many = tuple(f"n{number:03}".ljust(63, "x") for number in range(MOST_LISTED + 1))
    world = observed(rule(), source(), namespaces=many)

    found = status(world, refused(QUOTA_EXCEEDED, *many))

    listed = [each["namespace"] for each in found["failedNamespaces"]]
    assert (listed, found["failedNamespaceCount"]) == (list(many[:MOST_LISTED]), MOST_LISTED + 1)
    assert len(json.dumps(found)) < 32 << 10


def test_conflicts_of_one_namespace_hide_those_of_no_other() -> None:
    sources = [source(f"s{number:03}") for number in range(MOST_LISTED + 1)]

    def settle(finding: Finding) -> Result:
        is_last = finding.object.name == sources[-1].name
        return refused("conflict", "team-a", *["team-b"] * is_last)(finding)

    found = status(observed(rule(), *sources), settle)

    listed = [each["namespace"] for each in found["conflicts"]]
    assert (listed.count("team-a"), listed.count("team-b")) == (MOST_LISTED - 1, 1)


@pytest.mark.parametrize("settle", [done, refused(QUOTA_EXCEEDED, "team-a")])
def test_a_run_that_observes_the_same_writes_nothing_for_ten_minutes(settle: Settle) -> None:
    before = status(observed(rule(), source()), settle)
    by = observed(rule(before), source())

    assert updates(by, settle, NOW) == updates(by, settle, NOW + timedelta(minutes=9, seconds=59)) == []

    (update,) = updates(by, settle, NOW + timedelta(minutes=10))
    assert update.event is None
    assert json.loads(update.encode())["status"] == {**before, "lastRunTime": "2026-01-01T00:10:00Z"}


def test_any_other_change_sets_the_time_of_the_last_run() -> None:
    before = status(observed(rule(), source()))

    found = status(observed(rule(before), source(), source("more")), now=NOW + timedelta(minutes=1))

    assert (found["sources"], found["lastRunTime"]) == (2, "2026-01-01T00:01:00Z")


@pytest.mark.parametrize("time", ["2026-01-01T00:00:01Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00", "x", ""])
def test_a_time_in_the_future_or_without_meaning_is_replaced(time: str) -> None:
    before = status(observed(rule(), source()))

    assert status(observed(rule({**before, "lastRunTime": time}), source())) == before


def test_an_upgrade_adds_the_new_fields_in_one_write_without_an_event() -> None:
    full = status(observed(rule(), source()))
    older = {name: full[name] for name in ("observedGeneration", "conditions", "conflictCount", "conflicts")}
    older |= {name: full[name] for name in ("selectedGeneration", "selectedUid")}

    (update,) = updates(observed(rule(older), source()), now=NOW + timedelta(days=1))

    assert update.event is None
    found = json.loads(update.encode())["status"]
    assert found == {**full, "lastRunTime": "2026-01-02T00:00:00Z"}
    assert updates(observed(rule(found), source()), now=NOW + timedelta(days=1)) == []


def test_a_status_of_which_another_client_wrote_a_part_is_not_used() -> None:
    strange = {"failedNamespaces": [{"namespace": 5}], "copies": "many"}

    assert counts(status(observed(rule(strange), source()))) == (1, 3, 3, 0)


def test_the_default_of_a_status_is_replaced_with_a_transition() -> None:
    not_read = {"type": "Ready", "status": "Unknown", "reason": "NotRead", "message": "not yet"}
    default = {"conditions": [{**not_read, "lastTransitionTime": "1970-01-01T00:00:00Z"}]}

    (ready,) = status(observed(rule(default), source()))["conditions"]
    assert (ready["reason"], ready["lastTransitionTime"]) == ("Synced", "2026-01-01T00:00:00Z")


def test_a_verbose_run_writes_the_same_status() -> None:
    before = status(observed(rule(), source()))
    world = observed(rule(before), source())
    settings = Settings("kube-chores", run=RunOptions(verbose=True))
    planned = plan(world, settings, NOW)

    assert list(status_updates(world, settings, planned, [done(each) for each in planned.findings], NOW)) == []
