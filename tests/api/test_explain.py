"""--explain: why there is or is not a copy, and what happens to a workload. It writes nothing."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.api.conftest import Ran, Run
from tests.apis import Api
from tests.workloads import KINDS, OPT_IN, settle, workload
from tests.worlds import configmap, namespace_object, rule, secret


def rows(ran: Ran) -> list[dict[str, Any]]:
    """The rows of an explanation with -o json."""
    assert ran.exit_code == 0, ran.stderr
    found: list[dict[str, Any]] = ran.report["rows"]
    return found


def why(ran: Ran) -> dict[str, tuple[str, str]]:
    """The code and the reason of the only row of each rule."""
    found = {row["rule"]: (row["code"], row["reason"]) for row in rows(ran)}
    assert len(found) == len(rows(ran)), rows(ran)
    return found


@pytest.fixture
def explain(api: Api, sync: Run) -> Run:
    """Explain as the account of sync-copies; the run must write nothing."""

    def run(*arguments: str, **given: Any) -> Ran:
        api.mark()
        ran = sync("--explain", *arguments, **given)
        assert api.writes() == []
        return ran

    return run


def test_each_rule_has_its_copies_in_a_namespace_or_why_there_is_none(
    api: Api, sync: Run, explain: Run, home: str, team: str
) -> None:
    for name in ("a", "b"):
        api.create(configmap(home, name))
    api.create(rule("copies", home, team))
    assert sync().summary == {"created": 2}
    api.create(secret(home))
    api.create(rule("missing", home, team, ruleType="secret"))
    api.create(rule("other", home, ["other-*", "more-*"]))
    api.create(rule("excluded", home, "*", targets={"exclude": ["team-*"]}))
    selector = {"matchLabels": {"tier": "web"}}
    api.create(rule("labels", home, "*", targets={"namespaceSelector": selector}))
    api.create(rule("misspelt", f"hoem-{api.token}", team))
    api.create(rule("nothing", home, team, selector={"matchLabels": {"share": "all"}}))
    api.create(rule("own", team, team))
    api.create(configmap(team, "its-own"))
    bad = {"labels": {"helm.sh/chart": "x"}}
    api.create(rule("odd", home, team, metadata=bad))

    found = why(explain(team))

    missing = found.pop("misspelt")
    assert missing[0] == "source-namespace-missing"
    assert missing[1].startswith(f"source namespace hoem-{api.token} does not exist; ")
    assert found == {
        "copies": ("unchanged", f"from {home}/a; from {home}/b"),
        "missing": ("missing", f"from {home}/login: the next run creates it"),
        "other": ("not-a-target", f"spec.targets.include does not match {team}: it is other-*, more-*"),
        "excluded": ("not-a-target", f"spec.targets.exclude matches {team}: team-*"),
        "labels": (
            "not-a-target",
            f"spec.targets.namespaceSelector does not match {team}: label tier is not set and must be web",
        ),
        "nothing": (
            "nothing-selected",
            f"selects no configmap to copy in namespace {home}; none of the rule's copies is deleted until the rule "
            "selects a source and a target",
        ),
        "own": ("own-namespace", f"{team} is the namespace of the source"),
        "odd": ("invalid", found["odd"][1]),
    }


def test_a_name_explains_why_a_rule_does_not_select_that_object(
    api: Api, sync: Run, explain: Run, home: str, team: str
) -> None:
    api.create(secret(home, labels={"share": "few"}))
    api.create(secret(team, "other"))
    for name in ("all", "some"):
        api.create(rule(name, home, team, ruleType="secret", selector={"matchLabels": {"share": name}}))
    api.create(rule("elsewhere", team, home, ruleType="secret"))
    api.create(rule("few", home, "nowhere", ruleType="secret", selector={"matchLabels": {"share": "few"}}))
    api.create(rule("kind", home, team))

    found = explain(f"{team}/login")

    labels = f"spec.selector does not match secret/login in namespace {home}: label share is few and must be"
    assert why(found) == {
        "all": ("not-selected", f"{labels} all"),
        "some": ("not-selected", f"{labels} some"),
        "few": ("not-a-target", f"spec.targets.include does not match {team}: it is nowhere"),
        "elsewhere": (
            "not-a-target",
            f"spec.targets.include does not match {team}: it is {home}; "
            f"also, there is no secret login in namespace {team}",
        ),
        "kind": ("not-selected", f"there is no configmap login in namespace {home}"),
    }
    assert [row["rule"] for row in rows(found)] == ["all", "few", "some", "elsewhere", "kind"]
    api.patch(secret(home), {"metadata": {"labels": {"share": "all"}}})
    assert why(explain(f"{team}/login"))["all"] == ("missing", f"from {home}/login: the next run creates it")
    sync()
    (row,) = (each for each in rows(explain(f"{team}/login")) if each["rule"] == "all")
    assert row == {
        "rule": "all",
        "object": {"kind": "Secret", "name": "login", "namespace": team},
        "copies": 1,
        "code": "unchanged",
        "reason": f"from {home}/login",
    }


def test_namespaces_that_are_not_targets_and_copies_that_no_rule_requires(
    api: Api, sync: Run, explain: Run, home: str, team: str
) -> None:
    kube = api.namespace("kube-x")
    api.create(configmap(home))
    api.create(rule("settings", home, ["*", "kube-*"]))
    sync()
    api.patch(namespace_object(team), {"metadata": {"annotations": {"kubechores.dev/copies": "False"}}})

    assert why(explain(kube))["settings"] == (
        "not-a-target",
        f"spec.targets.include does not list {kube}; no glob selects a kube-* namespace",
    )
    found = rows(explain(team))
    assert [(row["code"], row["copies"]) for row in found] == [("invalid", 0), ("opted-out", 1), ("opted-out", 0)]
    assert (
        found[0]["reason"]
        == 'annotation kubechores.dev/copies is "False", which opts out as "false" does; set it to "false"'
    )
    assert (
        found[2]["reason"]
        == f'namespace {team} opted out by annotation kubechores.dev/copies: "False"; remove it to get copies'
    )
    api.create(rule("elsewhere", home, "other-*"))
    assert rows(explain(team))[1]["reason"] == (
        f'namespace {team} opted out by annotation kubechores.dev/copies: "False", '
        f"and spec.targets.include does not match {team}: it is other-*"
    )
    api.delete(rule("elsewhere", home, ""))
    api.delete(rule("settings", home, ""))
    (_, orphan) = rows(explain(team))
    assert (orphan["rule"], orphan["code"]) == ("settings", "opted-out")
    assert orphan["reason"].endswith(
        f"it was created for kube-chores/settings from {home}/settings: the next run deletes it"
    )


def test_a_namespace_that_does_not_exist_is_an_error_with_names_that_are_close(
    api: Api, explain: Run, team: str
) -> None:
    ran = explain(team[:-1])

    assert ran.exit_code == 2
    assert f"namespace {team[:-1]} does not exist; did you mean {team}" in ran.stderr
    assert "namespace a does not exist; check --explain" in explain("a").stderr


def test_a_value_that_is_not_a_name_is_a_usage_error(explain: Run) -> None:
    for value in ("", "A", "a/", "a/B", "a/b/c/d", "-"):
        ran = explain(value)
        assert ran.exit_code == 2
        assert f"{value!r} is not NAMESPACE or NAMESPACE/NAME." in ran.stderr


def test_a_run_reports_a_choice_that_is_neither_true_nor_false_and_deletes_as_usual(
    api: Api, sync: Run, home: str, team: str
) -> None:
    api.create(configmap(home))
    api.create(rule("settings", home, team))
    sync()
    api.patch(namespace_object(team), {"metadata": {"annotations": {"kubechores.dev/copies": "no\x1b" + 99 * "x"}}})
    api.delete(configmap(home))

    ran = sync(output="text")

    shown = f'annotation kubechores.dev/copies is "no\\x1b{37 * "x"}", which has no effect; set it to "true" or "false"'
    assert ran.exit_code == 0
    assert [line for line in ran.stdout.splitlines() if line.endswith(f"invalid  {shown}")], ran.stdout
    assert "sync-copies: 1 deleted, 1 invalid (" in ran.stdout
    (invalid,) = sync().results
    assert (invalid["code"], invalid["severity"], invalid["object"]) == (
        "invalid",
        "warning",
        {"kind": "Namespace", "name": team},
    )
    assert rows(sync("--explain", team))[0]["object"] == {"kind": "Namespace", "name": team}


def test_without_rules_a_run_names_the_namespaces_that_have_some(api: Api, sync: Run, home: str) -> None:
    api.create(rule("settings", home, "*"))

    ran = sync("-n", home, "--dry-run", output="text", kubeconfig=api.kubeconfig)

    assert ran.exit_code == 0
    assert f"no CopyratorRule in namespace {home}; there are rules in kube-chores, which -n selects" in ran.stdout
    shown = sync("-n", home, "--explain", home, output="text", kubeconfig=api.kubeconfig).stdout
    assert f"sync-copies --explain {home}: no CopyratorRule in namespace {home}; there are rules in" in shown


@pytest.fixture
def explain_roll(api: Api, roll: Run) -> Run:
    """Explain as the account of roll-workloads; the run must write nothing."""

    def run(*arguments: str, **given: Any) -> Ran:
        api.mark()
        ran = roll("--explain", *arguments, **given)
        assert api.writes() == []
        return ran

    return run


def test_each_workload_has_how_it_opted_in_and_what_the_next_run_does(api: Api, roll: Run, explain_roll: Run) -> None:
    shop = api.namespace("shop")
    api.create(configmap(shop))
    api.create(workload(shop, "none", opted_in=None))
    for kind in KINDS:
        settle(api, api.create(workload(shop, "web", kind)))
    roll()
    for kind in KINDS:
        settle(api, workload(shop, "web", kind))
    api.create(workload(shop, "fresh"))
    api.create(workload(shop, "out", opted_in="false"))
    api.create(workload(shop, "odd", opted_in="yes"))
    api.patch(
        workload(shop, "web", "StatefulSet"), {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}}
    )
    settle(api, workload(shop, "web", "StatefulSet"))

    def found(*arguments: str) -> dict[tuple[str, str], tuple[str, str]]:
        ran = explain_roll(shop, *arguments)
        return {(row["object"]["kind"], row["object"]["name"]): (row["code"], row["reason"]) for row in rows(ran)}

    unchanged = "its pods use the current config"
    assert found() == {
        ("DaemonSet", "web"): ("unchanged", unchanged),
        ("Deployment", "fresh"): (
            "baseline-recorded",
            "had no baseline: the current config is recorded as its baseline; no pod restarts",
        ),
        ("Deployment", "none"): (
            "not-opted-in",
            f"neither it nor its namespace has annotation {OPT_IN}; run kubectl annotate deployment/none -n {shop} "
            f"{OPT_IN}=true",
        ),
        ("Deployment", "odd"): ("invalid", f'annotation {OPT_IN} is "yes"; set it to "true" or "false"'),
        ("Deployment", "out"): ("opted-out", f'annotation {OPT_IN} is "false"'),
        ("Deployment", "web"): ("unchanged", unchanged),
        ("StatefulSet", "web"): ("unchanged", unchanged),
    }
    api.patch(configmap(shop), {"data": {"a": "changed"}})
    now = found()
    assert now[("Deployment", "web")] == ("changed", "configmap/settings changed: the next run restarts it")
    assert now[("StatefulSet", "web")][0] == "deferred"
    limited = found("--max-rolls", "0")[("Deployment", "web")]
    assert limited == (
        "deferred",
        "configmap/settings changed, but this run reached --max-rolls (0): a later run rolls the workload",
    )


def test_a_name_explains_what_a_workload_uses_and_when_a_deferral_ends(api: Api, roll: Run, explain_roll: Run) -> None:
    shop = api.namespace("shop", annotations={OPT_IN: "true"})
    api.create(configmap(shop))
    api.create(secret(shop))
    reads = {"secretKeyRef": {"name": "login", "key": "user"}}
    pod = {
        "volumes": [{"name": "config", "configMap": {"name": "settings"}}],
        "container": {"env": [{"name": "USER", "valueFrom": reads}]},
    }
    settle(api, api.create(workload(shop, opted_in=None, pod=pod)))
    api.create(workload(shop, "other", opted_in=None))
    roll()
    settle(api, workload(shop, pod=pod))
    changed = api.patch(configmap(shop), {"data": {"a": "changed"}})

    (row,) = rows(explain_roll(f"{shop}/web", "--settle", "3600"))

    last = max(datetime.fromisoformat(each["time"][:-1]) for each in changed["metadata"]["managedFields"])
    assert row["until"] == f"{last + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    assert {key: row[key] for key in ("code", "deferral", "optedInBy", "hasBaseline", "lastRoll", "uses")} == {
        "code": "deferred",
        "deferral": "settling",
        "optedInBy": "namespace",
        "hasBaseline": True,
        "lastRoll": None,
        "uses": [
            {"kind": "ConfigMap", "name": "settings", "keys": None, "state": "changed"},
            {"kind": "Secret", "name": "login", "keys": ["user"], "state": "unchanged"},
        ],
    }
    roll()
    settle(api, workload(shop, pod=pod))
    api.patch(configmap(shop), {"data": {"a": "again"}})
    (again,) = rows(explain_roll(f"{shop}/web", "--settle", "60", "--cool-down", "3600"))
    rolled = datetime.fromisoformat(again["lastRoll"][:-1])
    assert again["until"] == f"{rolled + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    text = explain_roll(f"{shop}/web", "--settle", "3600", output="text").stdout.splitlines()
    assert text[1].startswith("deployment/web  deferred  configmap/settings changed, but the last change of")
    assert text[1].endswith("Z restarts it")
    assert text[2:] == [
        f"    opted in by namespace {shop}",
        f"    baseline: 2 objects, last roll by kube-chores {again['lastRoll']}",
        "    configmap/settings: changed",
        "    secret/login (keys user): unchanged",
        f"roll-workloads --explain {shop}/web: 1 of 1 workload opted in",
    ]


def test_a_namespace_without_such_a_workload_and_a_wrong_namespace(api: Api, explain_roll: Run) -> None:
    shop = api.namespace("shop")

    none = explain_roll(f"{shop}/web", output="text")
    assert (none.exit_code, none.stdout) == (
        0,
        f"roll-workloads --explain {shop}/web: no Deployment, StatefulSet or DaemonSet web in namespace {shop}\n",
    )
    wrong = explain_roll(f"{shop}x")
    assert (wrong.exit_code, f"did you mean {shop}" in wrong.stderr) == (2, True)
    other = explain_roll(shop, "-n", "default")
    assert (other.exit_code, "is not in the namespace of -n, default" in other.stderr) == (2, True)
