"""Other clusters: which rules are about one, which stay as they are, and the statuses of rules."""

import dataclasses
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec import structs

from jobs.core.sync_copies import clusters as core
from jobs.core.sync_copies.clusters import InCluster, Member, Outcomes
from jobs.core.sync_copies.mistakes import NOTHING_SELECTED, SOURCE_NAMESPACE_RECREATED
from jobs.core.sync_copies.observed import Settings
from jobs.core.sync_copies.rules import ClusterTargets, Rule, RuleStatus, SourceNamespace, Targets, spec_problems
from jobs.core.sync_copies.selectors import LabelSelector
from jobs.kit.values.model import Finding, ObjectKey, Outcome, Result, Severity
from tests.unit.test_plan import NOW, rule

HOME = SourceNamespace("home", "uid-home")


def fleet(name: str = "rule", status: bytes = b"", **targets: Any) -> Rule:
    """A rule for other clusters, as an earlier run left its status."""
    made = rule(name, targets=Targets(clusters=ClusterTargets(**targets)))
    return structs.replace(made, head=structs.replace(made.head, uid=f"uid-{name}", status=status, version="7"))


def state(reason: str = "Synced", desired: int = 2, copies: int | None = 2, *codes: str) -> InCluster:
    return InCluster(desired, copies, reason, 0, (HOME,), frozenset(codes), "uid-rule", 1)


def outcomes(rules: list[Rule], visited: dict[str, InCluster], problems: dict[str, str] | None = None) -> Outcomes:
    """The outcomes of a run over these clusters, each with the same state of all rules, or with a problem."""
    names = [*visited, *(problems or {})]
    return Outcomes(
        core.selected(rules, [Member(name, {}) for name in names]),
        {name: f"uid-{name}" for name in visited},
        {name: {each.name: found._replace(uid=each.head.uid) for each in rules} for name, found in visited.items()},
        {name: core.problem(name, code, "why") for name, code in (problems or {}).items()},
        set(names),
        Settings("kube-chores", clusters="*"),
    )


def written(one: Rule, found: Outcomes) -> tuple[dict[str, Any], Rule]:
    """Return the status that a run writes, and the rule with it."""
    (update,) = core.status_updates([one], found, NOW)
    assert update.status
    assert update.head.version == "7", "another job may have written the status meanwhile"
    return dict(update.status), with_status(one, dict(update.status))


def with_status(one: Rule, status: dict[str, Any]) -> Rule:
    encoded = msgspec.json.encode(status)
    msgspec.json.decode(encoded, type=RuleStatus)
    return structs.replace(one, head=structs.replace(one.head, status=encoded))


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ({}, {"prod-eu", "prod-us", "test"}),
        ({"names": ("prod-*",)}, {"prod-eu", "prod-us"}),
        ({"names": ("prod-*",), "selector": LabelSelector({"region": "eu"})}, {"prod-eu"}),
        ({"names": ("prod",)}, set()),
    ],
)
def test_a_rule_selects_clusters_by_name_and_labels(targets: dict[str, Any], expected: set[str]) -> None:
    members = [Member("prod-eu", {"region": "eu"}), Member("prod-us", {"region": "us"}), Member("test", {})]

    assert core.selected([fleet(**targets)], members) == {"rule": expected}


def test_a_cluster_has_its_rules_and_those_that_select_none() -> None:
    rules = [fleet("here", names=("one",)), fleet("there", names=("two",)), fleet("typo", names=("three",))]
    clusters = core.selected(rules, [Member("one", {}), Member("two", {})])

    found = core.rules_about("one", rules, clusters)

    assert [(each.name, each.cluster, each.is_elsewhere) for each in found] == [
        ("here", "one", False),
        ("typo", "one", True),
    ]


def test_one_cluster_of_two_names_the_hub_and_another_one_are_left_alone() -> None:
    uids = {"a": "1", "b": "1", "hub": "h", "c": "2", "d": "3"}

    found = {each.object.name: each.code for each in core.mismatches(uids, {"c": "old", "d": "3"}, "h", {*uids})}

    assert found == {"a": "duplicate", "b": "duplicate", "hub": "duplicate", "c": "replaced"}


def test_a_cluster_that_is_known_under_another_name_is_not_forgotten() -> None:
    assert [each.code for each in core.shared("old", "1", {"old": "1", "new": "1"}, {"new"})] == ["duplicate"]
    assert list(core.shared("old", "1", {"old": "1", "new": "2", "left": "1"}, {"new"})) == []


def test_the_status_lists_the_worst_clusters_first_and_keeps_all_uids() -> None:
    visited = {f"c-{number:02}": state() for number in range(60)} | {"zzz": state("Conflict", 2, 1)}

    status, after = written(fleet(), outcomes([fleet()], visited, {"down": "unreachable"}))

    assert [each["name"] for each in status["clusters"]][:3] == ["down", "zzz", "c-00"]
    assert len(status["clusters"]) == 50
    assert len(core.known_uids([after])) == 61
    (condition,) = [each for each in status["conditions"] if each["type"] == "ClustersReady"]
    assert (condition["status"], condition["reason"]) == ("False", "Unreachable")
    assert condition["message"] == "2 of 62 clusters not ready: down (Unreachable), zzz (Conflict)"
    assert "copies" not in status, "another job writes the other fields"


def test_a_run_that_finds_the_same_writes_nothing_for_ten_minutes() -> None:
    found = outcomes([fleet()], {"one": state()})
    _, after = written(fleet(), found)

    assert core.status_updates([after], found, NOW + timedelta(minutes=9)) == []
    (later,) = core.status_updates([after], found, NOW + timedelta(minutes=11))
    assert later.event is None


def test_what_a_rule_selected_in_a_cluster_is_known_to_the_next_run() -> None:
    _, first = written(
        fleet(), outcomes([fleet()], {"one": state(), "two": state("NothingSelected", 0, 0, NOTHING_SELECTED)})
    )

    here, there = (structs.replace(first, cluster=name).status for name in ("one", "two"))

    assert (here.selected_generation, here.selected_uid, there.selected_generation) == (1, "uid-rule", None)
    _, down = written(first, outcomes([first], {"two": state()}, {"one": "unreachable"}))
    assert structs.replace(down, cluster="one").status.selected_generation == 1
    assert core.known_uids([down]) == {"one": "uid-one", "two": "uid-two"}


def test_recreated_source_namespaces_are_kept_until_all_clusters_have_their_sources_again() -> None:
    _, first = written(fleet(), outcomes([fleet()], {"one": state()}))
    other = state("SourceNamespaceRecreated", 2, 2, SOURCE_NAMESPACE_RECREATED)._replace(
        namespaces=(SourceNamespace("home", "new"),)
    )

    status, _ = written(first, outcomes([first], {"one": other}))

    assert [each["uid"] for each in status["pushed"]["sourceNamespaces"]] == ["uid-home"]


def test_a_cluster_that_left_is_reported_once_and_its_uid_is_kept() -> None:
    _, first = written(fleet(), outcomes([fleet()], {"one": state(), "two": state()}))
    gone = outcomes([first], {"one": state()})

    assert [each.object.name for each in core.left([first], gone)] == ["two"]
    assert [each.event["reason"] for each in core.left_events([first], gone, NOW) if each.event] == ["LeftInventory"]
    _, second = written(first, gone)
    assert core.left([second], gone) == []
    assert core.known_uids([second])["two"] == "uid-two"
    (forgotten,) = core.forgotten([second], dataclasses.replace(gone, cleared={"two"}), NOW)
    assert forgotten.status
    assert [each["name"] for each in forgotten.status["pushed"]["clusters"]] == ["one"]


def test_a_cluster_that_left_before_a_run_reached_it_is_not_reported() -> None:
    _, first = written(fleet(), outcomes([fleet()], {"one": state()}, {"two": "unreachable"}))
    gone = outcomes([first], {"one": state()})

    assert [each.name for each in first.status.pushed.clusters] == ["one", "two"]
    assert core.left([first], gone) == []
    _, second = written(first, gone)
    assert [each.name for each in second.status.pushed.clusters] == ["one"]


def test_what_all_clusters_report_about_the_hub_is_reported_once() -> None:
    about_hub = Finding("refused", Severity.WARNING, ObjectKey("Secret", "a", "home"), "why")
    about_one = Finding("conflict", Severity.WARNING, ObjectKey("Secret", "a", "team"), "why")

    def results(name: str, *findings: Finding) -> list[Result]:
        return [Result(each, Outcome.REPORTED, cluster=name) for each in findings]

    found = core.once([results("one", about_hub, about_one), results("two", about_hub)], set())

    assert [(each.cluster, each.finding.code) for each in found] == [("", "refused"), ("one", "conflict")]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (fleet(selector=LabelSelector({"a b": "c"})).spec, "targets.clusters.selector.matchLabels: 'a b' is not"),
        (structs.replace(fleet().spec, rule_type="rolebinding"), "targets.clusters: RoleBindings"),
        (structs.replace(fleet().spec, targets=Targets(local=True)), "targets.local: without targets.clusters"),
    ],
)
def test_a_spec_with_clusters_that_is_not_valid_has_its_problems(spec: Any, problem: str) -> None:
    assert any(each.startswith(problem) for each in spec_problems(spec))


def test_each_of_many_clusters_has_its_turn() -> None:
    """Each run has time for 60 of 500 clusters."""
    names = [f"c-{number:03}" for number in range(500)]
    one, read = fleet(), set()
    for number in range(20):
        turn = core.in_order(names, [one])[:60]
        read |= {*turn}
        problems = dict.fromkeys({*names} - {*turn}, "not-read")
        found = outcomes([one], dict.fromkeys(turn, state()), problems)
        for update in core.status_updates([one], found, NOW + timedelta(minutes=11 * number)):
            assert update.status
            one = with_status(one, dict(update.status))

    assert len(read) == 500


def test_a_run_for_one_cluster_does_not_report_others_that_a_long_status_does_not_have() -> None:
    names = [f"c-{number:02}" for number in range(60)]
    _, one = written(fleet(), outcomes([fleet()], dict.fromkeys(names, state())))
    every = outcomes([one], dict.fromkeys(names, state()))
    only = dataclasses.replace(every, visited={"c-00": every.visited["c-00"]})

    assert core.status_updates([one], only, NOW) == []


def test_the_number_of_clusters_is_right_after_one_of_many_was_forgotten() -> None:
    names = [f"c-{number:02}" for number in range(60)]
    _, one = written(fleet(), outcomes([fleet()], dict.fromkeys(names, state())))

    found = outcomes([one], dict.fromkeys(names, state()))
    (update,) = core.forgotten([one], dataclasses.replace(found, cleared={"c-00"}), NOW)

    assert update.status
    assert "59 clusters" in {each["type"]: each for each in update.status["conditions"]}["ClustersReady"]["message"]


def test_the_generation_of_a_recreated_rule_does_not_count_in_a_cluster_that_was_not_read() -> None:
    _, first = written(fleet(), outcomes([fleet()], {"one": state(), "two": state()}))
    again = structs.replace(first, head=structs.replace(first.head, uid="uid-new"))

    _, after = written(again, outcomes([again], {"two": state()}, {"one": "unreachable"}))

    assert [each.selected_generation for each in after.status.pushed.clusters] == [None, 1]


@pytest.mark.parametrize(("policy", "code"), [("kube-chores-copies", 2), ("theirs", 0), ("", 0)])
def test_a_write_that_the_policy_of_copies_refuses_fails_the_run(policy: str, code: int) -> None:
    finding = Finding("denied", Severity.WARNING, ObjectKey("Secret", "a", "team"), "why")
    failed = Result(finding, Outcome.FAILED, "forbidden", refused_by=policy)

    found = core.as_refused(failed, "uid-hub")

    assert found.exit_code == code
    assert ("chores manifests --spoke uid-hub" in found.message) == bool(code)
    done = structs.replace(failed, outcome=Outcome.DONE)
    assert core.as_refused(done, "uid-hub") == done


def test_the_times_of_all_clusters_are_written_at_once() -> None:
    _, first = written(fleet(), outcomes([fleet()], {"one": state()}))
    both = outcomes([first], {"one": state(), "two": state()})
    (update,) = core.status_updates([first], both, NOW + timedelta(minutes=5))

    assert update.status
    assert len({each["lastRunTime"] for each in update.status["clusters"]}) == 1


def test_a_cluster_that_was_not_read_keeps_the_uids_of_source_namespaces() -> None:
    _, first = written(fleet(), outcomes([fleet()], {"one": state()}))
    unread = state("Unreadable", 0, None)._replace(namespaces=(SourceNamespace("home", "new"),))

    _, after = written(first, outcomes([first], {"one": unread}))

    assert [each.uid for each in after.status.pushed.source_namespaces] == ["uid-home"]


@pytest.mark.parametrize(
    ("code", "kind", "expected"), [("invalid", "Namespace", True), ("unreadable", "Namespace", False)]
)
def test_only_what_a_tenant_writes_does_not_prevent_that_a_cluster_is_forgotten(
    code: str, kind: str, expected: bool
) -> None:
    found = Result(Finding(code, Severity.WARNING, ObjectKey(kind, "team"), "why"), Outcome.REPORTED)

    assert core.is_empty([found]) == expected


def test_a_reason_that_the_list_of_a_status_cuts_is_not_written_in_each_run() -> None:
    names = [f"c-{number:02}" for number in range(60)]
    found = outcomes([fleet()], dict.fromkeys(names, state("OrphansTerminating")))
    _, after = written(fleet(), found)

    assert core.status_updates([after], found, NOW + timedelta(minutes=5)) == []
