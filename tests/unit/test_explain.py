"""The rows of --explain: cases that a cluster does not produce on demand."""

import json
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from jobs.core.roll_workloads.baseline import BASELINE
from jobs.core.roll_workloads.explain import explanation as explain_rolls
from jobs.core.roll_workloads.observed import Observed as Rolls
from jobs.core.roll_workloads.observed import OptIn
from jobs.core.roll_workloads.observed import Settings as RollSettings
from jobs.core.roll_workloads.plan import plan as plan_rolls
from jobs.core.roll_workloads.references import Source
from jobs.core.roll_workloads.workloads import workload
from jobs.core.sync_copies.explain import explanation, plan_to_explain
from jobs.core.sync_copies.observed import Namespace, Observed
from jobs.core.sync_copies.rules import Rule, Targets
from jobs.kit.run.brakes import block_deletes
from jobs.kit.run.explain import _lines
from jobs.kit.values.errors import ApiError, ConfigurationError, InvalidObjectError
from jobs.kit.values.model import Dependency, Explanation, Finding, ObjectKey, Row, RunOptions, Severity
from jobs.kit.values.reads import Head, Invalid, ReadResult, invalid, unreadable
from tests.unit.test_plan import NOW, SELECTOR, SETTINGS, copy, head, observed, rule, source
from tests.workloads import workload as manifest

TEAM = ObjectKey("", "", "team")
NAMED_WEB = ObjectKey("", "web", "team")
NAMED = ObjectKey("", "settings", "team")


def explained(world: Observed, where: ObjectKey = TEAM) -> Explanation:
    """Return the explanation; objects that the plan needs do not exist."""
    while needs := (made := plan_to_explain(where, world, SETTINGS, NOW)).dependencies:
        missing = ReadResult(error=ApiError(404, "not found"))
        world = world.with_documents(dict.fromkeys(needs, missing), {})
    return explanation(where, made, world, SETTINGS, NOW)


def texts(world: Observed, where: ObjectKey = TEAM) -> list[tuple[str, ...]]:
    return [(*row.cells, row.reason) for row in explained(world, where).rows]


def test_a_terminating_namespace_gets_no_copies() -> None:
    world = observed([rule()], [source()], [], "team")
    namespaces = (Namespace("home", {}, True, False), Namespace("team", {}, False, False))

    assert texts(replace(world, namespaces=namespaces)) == [
        ("rule", "no copy", "terminating", "namespace team is terminating")
    ]


def test_the_reason_of_a_failed_write_is_that_of_the_last_run() -> None:
    status = {"failedNamespaces": [{"namespace": "team", "reason": "QuotaExceeded"}]}
    full = replace(rule(), head=replace(head("rule"), status=json.dumps(status).encode()))
    conflict = {"failedNamespaces": [{"namespace": "team", "reason": "Conflict"}]}
    other = replace(rule(), head=replace(head("rule"), status=json.dumps(conflict).encode()))
    nothing = "from home/settings: the next run creates it"

    ((*_, reason),) = texts(observed([full], [source()], [], "team"))
    assert reason == (
        "from home/settings: the next run tries again: the last write failed (QuotaExceeded), "
        "see kubectl describe copyrator rule -n kube-chores"
    )
    assert [each[-1] for each in texts(observed([other], [source()], [], "team"))] == [nothing]
    equal = observed([full], [source()], [copy("team", source(), full)], "team")
    assert [each[-1] for each in texts(equal)] == ["from home/settings"]


def test_many_copies_of_a_rule_are_a_row_for_each_state_and_with_a_name_one_each() -> None:
    sources = [replace(source(), name=f"s-{number}") for number in range(5)]

    assert texts(observed([rule()], sources, [], "team")) == [
        (
            "rule",
            "5 copies",
            "missing",
            "; ".join(f"from home/s-{number}: the next run creates it" for number in range(3)) + " and 2 more",
        )
    ]
    assert texts(observed([rule()], sources, [], "team"), ObjectKey("", "s-1", "team")) == [
        ("rule", "configmap/s-1", "missing", "from home/s-1: the next run creates it")
    ]


def test_a_copy_that_two_sources_claim_is_explained_for_both_rules() -> None:
    world = observed([rule("a"), rule("b", "other")], [source(), source("other")], [], "team")

    assert [each[:3] for each in texts(world)] == [
        ("a", "configmap/settings", "collision"),
        ("b", "configmap/settings", "collision"),
    ]


def test_an_object_that_is_never_copied_is_named_also_where_it_is_a_copy() -> None:
    stamped = copy("home", source("other"), rule("first", "other"))
    labels = {**stamped.header.labels, **SELECTOR.match_labels}
    stamped = replace(stamped, header=replace(stamped.header, labels=labels))
    both = [rule("first", "other"), rule("second", "home", targets=Targets(include=("team",)))]
    key = ObjectKey("ConfigMap", "settings", "home")
    world = replace(observed(both, [source("other"), stamped], [stamped], "team"), single_reads={key: stamped})

    assert next(each[2] for each in texts(world, ObjectKey("", "settings", "home"))) == "unchanged"
    assert ("second", "no copy", "skipped") in [each[:3] for each in texts(world, NAMED)]
    assert [each[3] for each in texts(world, NAMED) if each[0] == "second"] == [
        "configmap/settings in namespace home: is managed by kube-chores: a copy is never a source"
    ]


def test_a_name_needs_one_read_of_metadata_for_each_source_namespace_and_content_never() -> None:
    world = observed([rule("a"), rule("b"), rule("c", "other")], [], [], "team")

    made = plan_to_explain(NAMED, world, SETTINGS, NOW)

    keys = [ObjectKey("ConfigMap", "settings", namespace) for namespace in ("home", "other")]
    assert made.dependencies == tuple(Dependency(key, full=False) for key in keys)
    assert plan_to_explain(TEAM, world, SETTINGS, NOW).dependencies == ()


def test_copies_in_other_namespaces_are_not_read_and_the_brake_counts_all_deletions() -> None:
    teams = [f"team-{number:02}" for number in range(11)]
    orphans = [replace(copy(name, source(), rule()), name="old") for name in teams]
    world = observed([rule()], [source()], [], *teams)
    world = replace(world, copies={"configmap": {"old": {each.namespace: each for each in orphans}}})
    team = ObjectKey("", "", "team-03")

    made = plan_to_explain(team, world, SETTINGS, NOW)

    assert made.dependencies == (Dependency(ObjectKey("ConfigMap", "settings", "team-03"), full=False),)
    assert [each.action for each in block_deletes(made, None).findings if each.code == "orphan"] == 11 * [None]


def test_an_unreadable_object_of_the_name_and_a_rule_that_is_not_valid_are_rows() -> None:
    world = observed([rule()], [], [], "team")
    bad = Invalid(Head(ObjectKey("CopyratorRule", "bad", "kube-chores")), ("spec.selector: is empty",))
    key = ObjectKey("ConfigMap", "settings", "home")
    world = replace(world, invalid_rules=(bad,), single_reads={key: ApiError(403, "no right")})
    failure = plan_to_explain(NAMED, world, SETTINGS, NOW)
    assert failure.dependencies == ()

    with_finding = replace(world, failures=(invalid(bad),))

    assert texts(with_finding, NAMED) == [
        ("rule", "no copy", "not-selected", "configmap/settings in namespace home cannot be read: no right"),
        ("bad", "no copy", "invalid", "spec.selector: is empty"),
    ]


def test_copies_that_cannot_be_read_are_unknown() -> None:
    world = replace(observed([rule()], [], [], "team"), failures=(unreadable(rule().head.key, ApiError(403, "no")),))

    assert [each[:3] for each in texts(world)] == [("rule", "unknown", "unreadable")]


def test_a_forged_stamp_names_any_rule_and_adds_only_its_own_row() -> None:
    its_rule: Rule = rule()
    forged = copy("team", source(), its_rule)
    annotations = {**forged.header.annotations, "kubechores.dev/rule": "kube-chores/</script>\x1b[2J"}
    forged = replace(forged, name="forged", header=replace(forged.header, annotations=annotations))
    world = replace(observed([its_rule], [source()], [], "team"), copies={"configmap": {"forged": {"team": forged}}})

    assert [each[:3] for each in texts(world)] == [
        ("rule", "configmap/settings", "missing"),
        ("script>\x1b[2J", "configmap/forged", "orphan"),
    ]


def test_a_namespace_that_cannot_be_decoded_is_not_reported_as_missing() -> None:

    world = observed([rule()], [source()], [])
    with pytest.raises(ConfigurationError, match="namespace team does not exist; check --explain"):
        explained(world)
    failure = unreadable(ObjectKey("Namespace", "team"), InvalidObjectError("no text"))

    assert texts(replace(world, failures=(failure,))) == [
        ("-", "namespace/team", "unreadable", "its content is not valid: no text")
    ]


def test_text_is_escaped_and_bounded_and_verbose_shows_all_rows() -> None:
    hostile = Row(("a\x1b[2J", "\u202eb"), "one\ntwo " + 2000 * "x", {}, ("detail\r",))
    found = Explanation(("RULE", "STATE", "WHY"), (hostile, *59 * [Row(("b", "c"), "d", {})]), "")

    lines = list(_lines(found, RunOptions()))

    assert lines[0] == "RULE      STATE    WHY"
    assert lines[1].startswith("a\\x1b[2J  \\u202eb  one\\ntwo xxx")
    assert lines[1].endswith("x… (2008 characters)")
    assert lines[2:4] == ["    detail\\r", "b         c        d"]
    assert lines[-1] == "... and 10 more; -v or -o json shows all of them"
    assert len(lines) == 1 + 50 + 1 + 1
    assert len(list(_lines(found, RunOptions(verbose=True)))) == 1 + 60 + 1


LAST = "9999-12-31T23:59:59-12:00"


def rolls(*findings: Finding, rolled_at: str, changed: str, value: str | None = "true") -> Explanation:
    """Return the explanation of a workload whose config changed, and which was rolled at a time."""
    made = manifest("team")
    key, used = ObjectKey("Deployment", "web", "team"), Source("new", frozenset(), {}, datetime.fromisoformat(changed))
    before = {"version": 1, "uid": "", "sources": {"configmap/settings": "old"}, "rolledAt": rolled_at}
    made["metadata"]["annotations"] = {BASELINE: json.dumps(before)}
    read = workload(key, json.dumps(made).encode())
    world = Rolls(
        (key,) if value == "true" else (),
        findings,
        workloads={key: read},
        sources={ObjectKey("ConfigMap", "settings", "team"): used},
        listed=(OptIn(key, value, default=False, in_template=False),),
    )
    settings = RollSettings(settle=timedelta(hours=1), cool_down=timedelta(hours=1))
    return explain_rolls(NAMED_WEB, plan_rolls(world, settings, NOW), world, settings, NOW)


def test_times_that_tenants_forge_neither_fail_nor_end_a_deferral() -> None:
    (future,) = rolls(rolled_at=LAST, changed="2025-12-31T23:30:00+00:00").rows

    assert (future.document["lastRoll"], future.document["until"]) == (LAST, "2026-01-01T00:30:00Z")
    (other,) = rolls(rolled_at="2025-12-31T23:45:00.5+05:00", changed=LAST).rows
    assert (other.document["code"], other.document["until"]) == ("changed", None)
    assert other.details[1] == "baseline: 1 object, last roll by kube-chores 2025-12-31T23:45:00+05:00"


def test_an_invalid_annotation_of_the_namespace_is_a_row_also_for_a_name() -> None:
    key = ObjectKey("Namespace", "team")
    wrong = Finding("invalid", Severity.WARNING, key, "annotation is odd")
    elsewhere = Finding("invalid", Severity.WARNING, ObjectKey("Deployment", "web", "other"), "not here")

    found = rolls(wrong, elsewhere, rolled_at=LAST, changed=LAST, value=None)

    assert [row.cells for row in found.rows] == [("deployment/web", "not-opted-in"), ("namespace/team", "invalid")]
