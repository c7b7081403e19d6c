"""Other clusters in `chores status`, as pure functions."""

import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from jobs.core.status import clusters
from jobs.core.status import document as of_document
from jobs.core.status.custom import Custom
from jobs.core.status.document import Observed, document
from jobs.core.status.text import text
from jobs.core.sync_copies.clusters import MOST_CLUSTERS
from tests.hostile_text import HOSTILE, left_in
from tests.installations import NOW, TARGET, ago, cronjob, custom, fleet_rule, in_cluster

COLORS = re.compile(r"\x1b\[[0-9;]*m")
LAST, SUCCESS = ago(seconds=30), ago(seconds=24)
INSTALLED = (cronjob("sync-copies", LAST, SUCCESS), cronjob("sync-copies-clusters", LAST, SUCCESS))


def observed(*rules: Custom, cronjobs: Any = INSTALLED) -> Observed:
    """Return an installation with these rules, and both jobs of sync-copies."""
    return Observed(TARGET, cronjobs=cronjobs, rules=rules)


def rows(*rules: Custom) -> list[dict[str, Any]]:
    return list(document(observed(*rules), NOW)["clusters"])


def problems(of: Observed) -> list[dict[str, Any]]:
    return [each for each in document(of, NOW)["problems"] if each["job"] == "sync-copies-clusters"]


def shown(*rules: Custom) -> list[str]:
    """Return the table of clusters as text."""
    lines = COLORS.sub("", "\n".join(text(document(observed(*rules), NOW)))).splitlines()
    begin = next((number for number, line in enumerate(lines) if line.startswith("CLUSTER ")), len(lines))
    return lines[begin : lines.index("", begin)] if begin < len(lines) else []


def test_a_cluster_has_what_all_its_rules_report() -> None:
    ca = fleet_rule("ca", in_cluster("prod-eu"), in_cluster("prod-us"))
    logins = fleet_rule("logins", in_cluster("prod-us", "Conflict", desired=3, copies=1, lastRunTime=ago(minutes=9)))

    assert rows(ca, logins) == [
        {
            "name": "prod-us",
            "desired": 5,
            "copies": 3,
            "reason": "Conflict",
            "lastRun": ago(minutes=9),
            "rules": {"ca": "Synced", "logins": "Conflict"},
        },
        {
            "name": "prod-eu",
            "desired": 2,
            "copies": 2,
            "reason": "Synced",
            "lastRun": ago(minutes=1),
            "rules": {"ca": "Synced"},
        },
    ]


@pytest.mark.parametrize("reason", ["Unreachable", "Conflict", "NotRead", "FromALaterRelease"])
def test_the_worst_clusters_come_first_then_by_name(reason: str) -> None:
    names = [("b", "Synced"), ("d", reason), ("a", "OrphansTerminating"), ("c", reason)]

    found = rows(fleet_rule("ca", *(in_cluster(*each) for each in names)))

    assert [each["name"] for each in found] == ["c", "d", "a", "b"]


def test_the_worst_reason_of_a_cluster_is_that_of_the_whole_cluster() -> None:
    reasons = ["Synced", "Conflict", "NotRead", "Unreachable", "SourceRefused"]

    (found,) = rows(*(fleet_rule(f"rule-{number}", in_cluster("a", each)) for number, each in enumerate(reasons)))

    assert found["reason"] == "Unreachable"
    assert list(found["rules"].values()) == reasons


@pytest.mark.parametrize(
    ("unknown", "field"),
    [({"copies": None}, "copies"), ({"desired": None}, "desired"), ({"lastRunTime": ""}, "lastRun")],
)
def test_a_number_that_one_rule_does_not_report_is_unknown(unknown: Any, field: str) -> None:
    (found,) = rows(fleet_rule("ca", in_cluster("a")), fleet_rule("logins", in_cluster("a", **unknown)))

    assert [name for name, value in found.items() if value is None] == [field]


def test_numbers_of_a_cluster_that_a_long_status_does_not_have_are_unknown() -> None:
    long = fleet_rule("long", *(in_cluster(f"a-{number:02}") for number in range(MOST_CLUSTERS)))
    short = fleet_rule("short", in_cluster("a-00"), in_cluster("z"))

    found = document(observed(long, short), NOW)

    known = {each["name"]: each["copies"] for each in found["clusters"]}
    assert (known["a-00"], known["a-01"], known["z"]) == (4, 2, None)
    assert found["limits"] == {"clusters of rules": "long: a status has only the worst 50 clusters"}


def test_a_rule_that_selects_clusters_no_longer_counts_nowhere() -> None:
    failed = ("False", "Unreachable", "1 of 1 cluster not ready: a (Unreachable)")
    local = fleet_rule("ca", in_cluster("a", "Unreachable"), ready=failed, targets={"include": ["team-*"]})
    invalid = fleet_rule("logins", in_cluster("a", "Unreachable"), ready=failed, targets=["typo"])
    elsewhere = fleet_rule("ca", in_cluster("a", "Unreachable"), ready=failed)
    key = msgspec.structs.replace(elsewhere.head, key=elsewhere.head.key._replace(namespace="team-b"))

    of_all = observed(local, invalid, msgspec.structs.replace(elsewhere, head=key))

    assert document(of_all, NOW)["clusters"] == []
    assert problems(of_all) == []


@pytest.mark.parametrize(
    "status", [{"clusters": "none"}, {"clusters": [{"name": 1}]}, {"conditions": [{}]}, {"clusters": None}]
)
def test_a_status_that_another_client_wrote_has_no_clusters(status: Any) -> None:
    rule = fleet_rule("ca")
    head = msgspec.structs.replace(rule.head, status=msgspec.json.encode(status))

    assert rows(msgspec.structs.replace(rule, head=head)) == []


def test_a_rule_is_one_problem_and_not_one_for_each_cluster() -> None:
    message = "2 of 3 clusters not ready: a (Unreachable), b (Unreachable)"
    found = [in_cluster("a", "Unreachable"), in_cluster("b", "Unreachable"), in_cluster("c")]

    (problem,) = problems(
        observed(
            fleet_rule("ca", *found, ready=("False", "Unreachable", message)),
            fleet_rule("logins", in_cluster("c"), ready=("True", "Synced", "the copies in 1 cluster are as desired")),
        )
    )

    assert (problem["severity"], problem["code"], problem["reason"]) == ("warning", "unreachable", message)
    assert problem["object"] == {"kind": "CopyratorRule", "name": "ca", "namespace": "kube-chores"}
    assert problem["todo"] == (
        "check that the API server of each of these clusters answers, and the address in its kubeconfig; "
        "see chores sync-copies -n kube-chores --clusters '*' --rule-name ca --check"
    )


@pytest.mark.parametrize(
    ("reason", "todo"),
    [
        (
            "Replaced",
            "only if these clusters were replaced on purpose, run sync-copies --forget-cluster once for each; ",
        ),
        ("NothingSelected", "correct spec.targets of the rule, or label the Secret of a cluster "),
        ("Conflict", "rename or delete the object, "),
        ("QuotaExceeded", "raise the quota"),
        ("DeletionsBlocked", "chores sync-copies -n kube-chores --clusters '*'"),
    ],
)
def test_what_to_do_is_that_of_the_reason(reason: str, todo: str) -> None:
    (problem,) = problems(observed(fleet_rule("ca", ready=("False", reason, "why"))))

    assert problem["todo"].startswith(todo)
    assert problem["todo"].endswith("chores sync-copies -n kube-chores --clusters '*' --rule-name ca --check")


@pytest.mark.parametrize(
    ("cronjobs", "code", "todo"),
    [
        (INSTALLED[:1], "job-not-installed", "install cronjobs/sync-copies-clusters, or remove spec.targets.clusters"),
        (
            (INSTALLED[0], cronjob("sync-copies-clusters", LAST, SUCCESS, namespace="ops")),
            "job-not-installed",
            "install cronjobs/sync-copies-clusters, ",
        ),
        (
            (INSTALLED[0], cronjob("sync-copies-clusters", LAST, SUCCESS, suspended=True)),
            "job-suspended",
            "kubectl patch cronjob sync-copies-clusters -n kube-chores",
        ),
    ],
    ids=["not installed", "of another installation", "suspended"],
)
def test_rules_for_other_clusters_need_their_job(cronjobs: Any, code: str, todo: str) -> None:
    local = custom("CopyratorRule", "local", "kube-chores", {"ruleType": "configmap"}, ("True", "Synced", ""))

    (problem,) = problems(observed(fleet_rule("ca"), local, cronjobs=cronjobs))

    assert (problem["severity"], problem["code"]) == ("warning", code)
    assert problem["reason"].startswith("1 CopyratorRule needs this job, which is ")
    assert problem["todo"].startswith(todo)
    assert problems(observed(local, cronjobs=cronjobs)) == []


def test_without_rights_on_cronjobs_it_is_not_known_whether_the_job_is_missing() -> None:
    assert problems(replace(observed(fleet_rule("ca"), cronjobs=()), cronjobs_known=False)) == []


def test_the_job_is_one_of_the_installation_unless_it_is_a_dry_run() -> None:
    for args, names in (((), ["sync-copies-clusters"]), (("sync-copies", "--dry-run"), [])):
        made = cronjob("sync-copies-clusters", LAST, SUCCESS, args=args)
        jobs = document(observed(cronjobs=[INSTALLED[0], made]), NOW)["jobs"]
        assert [each["name"] for each in jobs if each["name"].endswith("-clusters")] == names


def test_the_text_has_a_table_of_clusters_after_that_of_the_jobs() -> None:
    ca = fleet_rule("ca", in_cluster("prod-eu"), in_cluster("prod-us", "Unreachable", desired=None, copies=None))
    logins = fleet_rule("logins", in_cluster("prod-eu", desired=4, copies=4))

    assert shown(ca, logins) == [
        "CLUSTER  COPIES  REASON       RULES",
        "prod-us  -       Unreachable  1 of 1: ca",
        "prod-eu  6 of 6  Synced       2",
    ]
    assert shown(fleet_rule("ca")) == []


def test_the_table_of_clusters_is_short_and_fits_a_terminal() -> None:
    names = [f"{'n' * 200}-{number:02}" for number in range(17)]
    found = [in_cluster(name, "SourceNamespaceRecreated", desired=500_000, copies=500_000) for name in names]

    lines = shown(*(fleet_rule(f"{'r' * 200}-{number}", *found) for number in range(9)))

    assert len(lines) == 17
    assert lines[-1] == "... and 2 more; -o json shows all of them"
    assert max(map(len, lines)) <= 80
    assert re.fullmatch(r"n+…  4500000 of 4500000  SourceNamespaceRecreated  9 of 9: r*…", lines[1])


def test_hostile_names_in_a_status_are_escaped() -> None:
    hostile = fleet_rule(HOSTILE, in_cluster(HOSTILE, HOSTILE), ready=("False", HOSTILE, HOSTILE))

    printed = "\n".join(text(document(observed(hostile), NOW), verbose=True))

    assert left_in(COLORS.sub("", printed)) == []


def test_the_number_of_clusters_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_document, "_MOST_OF_A_KIND", 2)

    found = document(observed(fleet_rule("ca", *map(in_cluster, "abc"))), NOW)

    assert [each["name"] for each in found["clusters"]] == ["a", "b"]
    assert found["limits"] == {"clusters": "3 clusters, the first 2 are listed"}


def test_only_rules_with_the_field_select_clusters() -> None:
    specs: list[Any] = [
        {},
        {"targets": {}},
        {"targets": {"clusters": None}},
        {"targets": {"clusters": {"names": ["a"]}}},
    ]
    rules = [custom("CopyratorRule", str(number), "kube-chores", each, None) for number, each in enumerate(specs)]

    assert [each.head.key.name for each in clusters.selecting(rules)] == ["3"]
