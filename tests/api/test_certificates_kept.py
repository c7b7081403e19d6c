"""Certificates that stay in copies while a run does not know that they may go: spec.copyAs and spec.merge of rules."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from jobs.kit.data.objects import ObjectReducer
from tests.api.conftest import Run
from tests.api.test_certificates import BUNDLE, bundle_of, with_form
from tests.api.test_explain import rows
from tests.api.test_safety import ready
from tests.apis import Api, Object, wait_for
from tests.certificates import NOW, certificate, issued
from tests.rights import RBAC, account, bind, can_i
from tests.worlds import configmap, encoded, namespace_object, rule

TYPO = {"matchLabels": {"copyrator": "typo"}}


def merging(api: Api, home: str, to: str | list[str], name: str = "trust", **spec: object) -> Object:
    """Create a rule that merges the ConfigMaps of a namespace into ConfigMap trust; return it."""
    return api.create(rule(name, home, to, merge=BUNDLE, targetName="trust", **spec))


def test_a_bundle_stays_while_a_source_namespace_cannot_be_read(api: Api, sync: Run, home: str, team: str) -> None:
    other = api.namespace("other")
    for namespace in (home, other):
        api.create(issued(namespace, ca=certificate(namespace)))
    with_form(api, home, team, "trust", merge=BUNDLE, targetName="trust", namespaces=[home, other])
    sync()
    before = bundle_of(api, team)
    assert len(before) == 2

    role = "kube-chores-sync-copies-secrets"
    api.delete({"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": role}})
    bind(api, role, account("kube-chores", "sync-copies"), home)
    wait_for(lambda: not can_i(api, "sync-copies", "list", "secrets", "", other), "the authorizer to forget the right")
    wait_for(lambda: can_i(api, "sync-copies", "list", "secrets", "", home), "the right in one namespace")
    api.patch(issued(home), {"data": {"ca.crt": encoded(certificate("renewed"))}})

    assert sync().exit_code == 2
    assert bundle_of(api, team) == before
    assert ready(api, "trust")["reason"] == "Unreadable"


def test_a_bundle_stays_while_a_source_is_too_large_to_be_merged(
    api: Api, sync: Run, home: str, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = "".join(certificate(f"root-{number}") for number in range(10))
    for name, text in (("one", certificate("one")), ("many", many)):
        api.create(configmap(home, name, data={"ca.pem": text}))
    merging(api, home, team)
    sync()
    before = bundle_of(api, team)
    monkeypatch.setattr(ObjectReducer.__init__, "__defaults__", (4096, None))
    api.patch(configmap(home, "one"), {"data": {"ca.pem": certificate("renewed")}})

    ran = sync()

    assert (ran.summary, bundle_of(api, team)) == ({"refused": 1}, before)
    assert ran.results[0]["object"]["name"] == "many"
    assert "it is too large to be merged" in ran.results[0]["reason"]
    assert ready(api, "trust")["reason"] == "SourceRefused"


def test_a_rule_that_begins_to_merge_changes_its_copies_into_bundles(api: Api, sync: Run, home: str, team: str) -> None:
    for name in ("one", "two"):
        api.create(configmap(home, name, labels={"app": name}, data={"ca.pem": certificate(name)}))
    made = api.create(rule("trust", home, team, selector={"matchLabels": {"app": "one"}}, targetName="trust"))
    assert sync().summary == {"created": 1}

    selector = {"matchLabels": None, "matchExpressions": [{"key": "app", "operator": "Exists"}]}
    api.patch(made, {"spec": {"merge": BUNDLE, "selector": selector}})

    assert sync().summary == {"configured": 1}
    assert sorted(bundle_of(api, team)) == sorted([certificate("one"), certificate("two")])


def test_a_bundle_is_not_deleted_while_a_source_namespace_is_recreated(
    api: Api, sync: Run, home: str, team: str
) -> None:
    other, last = api.namespace("other"), api.namespace("last")
    for namespace in (home, other):
        api.create(configmap(namespace, data={"ca.pem": certificate(namespace)}))
    merging(api, home, [team, last], namespaces=[home, other])
    assert sync().summary == {"created": 2}
    api.delete(namespace_object(other))
    wait_for(lambda: api.get(namespace_object(other)) is None, "the namespace to be deleted")
    api.create(namespace_object(other))
    api.patch(rule("trust", "", ""), {"spec": {"targets": {"include": [team]}}})

    assert sync().exit_code == 4
    assert len(bundle_of(api, last)) == 2


def test_a_mistaken_rule_that_merges_blocks_the_deletion_of_bundles_only(
    api: Api, sync: Run, home: str, team: str
) -> None:
    api.create(configmap(home, "ca", data={"ca.pem": certificate("root")}))
    merging(api, home, team)
    api.create(configmap(home, labels={"app": "web"}))
    api.create(rule("settings", home, team, selector={"matchLabels": {"app": "web"}}))
    assert sync().summary == {"created": 2}

    for name in ("trust", "settings"):
        api.delete(rule(name, "", ""))
    merging(api, home, team, "renamed", selector=TYPO)

    ran = sync()

    assert (ran.exit_code, ran.summary) == (4, {"deleted": 1, "nothing-selected": 1, "orphan": 1})
    assert bundle_of(api, team) == [certificate("root")]
    assert api.get(configmap(team)) is None


def test_a_mistaken_rule_that_does_not_merge_blocks_the_deletion_of_no_bundle(
    api: Api, sync: Run, home: str, team: str
) -> None:
    api.create(configmap(home, "ca", data={"ca.pem": certificate("root")}))
    merging(api, home, team)
    sync()
    api.delete(rule("trust", "", ""))
    api.create(rule("settings", home, team, selector=TYPO))

    assert sync().summary == {"deleted": 1, "nothing-selected": 1}
    assert api.get(configmap(team, "trust")) is None


def test_a_run_of_one_rule_reports_the_expired_certificates_of_no_other(
    api: Api, sync: Run, home: str, team: str
) -> None:
    old = certificate("old", NOW - timedelta(days=3))
    api.create(configmap(home, "ca", data={"ca.pem": certificate("root") + old}))
    merging(api, home, team)
    api.create(configmap(home, labels={"app": "web"}))
    api.create(rule("settings", home, team, selector={"matchLabels": {"app": "web"}}))

    assert sync("--rule-name", "settings").summary == {"created": 1}
    assert sync("--rule-name", "trust").summary == {"created": 1, "expired": 1}


def test_an_explanation_has_the_bundle_of_a_rule(api: Api, sync: Run, home: str, team: str) -> None:
    for name in ("one", "two"):
        api.create(configmap(home, name, data={"ca.pem": certificate(name)}))
    merging(api, home, f"*-{api.token}")

    (planned,) = rows(sync("--rule-name", "trust", "--explain", f"{home}/trust"))
    sync()
    (row,) = rows(sync("--explain", team))

    assert (planned["code"], row["code"], row["copies"]) == ("missing", "unchanged", 1)
    assert row["reason"] == "from CopyratorRule/kube-chores/trust"
    api.patch(configmap(home, "two"), {"data": {"ca.pem": "no certificate"}})
    (row,) = rows(sync("--explain", team))
    assert row["code"] == "refused"


def without_a_source_namespace(api: Api, sync: Run, home: str, team: str) -> tuple[Object, str]:
    """Make a bundle of two source namespaces, and delete the second; return the rule and that namespace."""
    other = api.namespace("other")
    for namespace in (home, other):
        api.create(configmap(namespace, data={"ca.pem": certificate(namespace)}))
    made = merging(api, home, team, namespaces=[home, other])
    sync()
    api.delete(namespace_object(other))
    wait_for(lambda: api.get(namespace_object(other)) is None, "the namespace to be deleted")
    return made, other


def test_a_bundle_stays_while_a_source_namespace_is_missing_or_new_and_empty(
    api: Api, sync: Run, home: str, team: str
) -> None:
    _, other = without_a_source_namespace(api, sync, home, team)
    before = bundle_of(api, team)

    assert (sync().exit_code, len(before), bundle_of(api, team)) == (4, 2, before)
    api.create(namespace_object(other))
    assert (sync().exit_code, bundle_of(api, team)) == (4, before)
    api.create(configmap(other, data={"ca.pem": certificate("renewed")}))
    assert (sync().exit_code, len({*bundle_of(api, team)} - {*before})) == (0, 1)


def test_a_person_withdraws_the_certificates_of_a_source_namespace_that_is_gone_and_no_others(
    api: Api, sync: Run, home: str, team: str
) -> None:
    made, _ = without_a_source_namespace(api, sync, home, team)
    assert sync().exit_code == 4

    ran = sync("--max-deletes", "1")

    assert ran.summary == {"configured": 1, "source-namespace-missing": 1}
    assert bundle_of(api, team) == [certificate(home)]
    assert sync().exit_code == 4
    api.patch(made, {"spec": {"namespaces": [home]}})
    assert sync().summary == {"unchanged": 1}


def test_a_bundle_does_not_depend_on_its_rule(api: Api, sync: Run, home: str, team: str, tmp_path: Path) -> None:
    api.create(configmap(home, data={"ca.pem": certificate("root")}))
    merging(api, home, team)
    sync()
    file = tmp_path / "rule.yaml"
    file.write_text(json.dumps(rule("trust", home, team, merge=BUNDLE, targetName="trust")))
    assert sync("-f", str(file)).summary == {"unchanged": 1}

    api.delete(rule("trust", "", ""))
    merging(api, home, team)

    assert sync().summary == {"unchanged": 1}


def test_expired_certificates_name_their_source_in_one_short_line(api: Api, sync: Run, home: str, team: str) -> None:
    ended = certificate("x" * 40 + "\u001b[31m", until=NOW - timedelta(days=1))
    api.create(configmap(home, "old", data={"ca.pem": ended}))
    merging(api, home, team)

    ran = sync()

    (found,) = [each["reason"] for each in ran.results if each["code"] == "expired"]
    assert f"of configmap {home}/old has expired" in found
    assert "\u001b" not in found
    assert "Warning" not in ran.stderr
