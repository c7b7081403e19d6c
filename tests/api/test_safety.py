"""Ownership, deletion, replacement and status: what sync-copies must never do, on both API servers."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests import canary as canaries
from tests.api.conftest import Run, copied, with_rule
from tests.apis import GIVE_UP_SECONDS, Api, ready_of, wait_for
from tests.canary import canary
from tests.conftest import WITHOUT_POLICIES_TOO, Chores, served
from tests.rights import bind_adopt
from tests.worlds import (
    at,
    by_name,
    cluster_role_ref,
    configmap,
    content,
    encoded,
    namespace_object,
    network_policy,
    role_binding,
    rule,
    secret,
)

Object = dict[str, Any]
RULE = {"apiVersion": "kubechores.dev/v1", "kind": "CopyratorRule"}


@pytest.fixture(params=WITHOUT_POLICIES_TOO)
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    """Each API server, also without the admission policies."""
    yield from served(request, tmp_path)


def ready(api: Api, name: str) -> Object:
    """The Ready condition of a rule, without its time."""
    found = api.read({**RULE, "metadata": {"name": name, "namespace": "kube-chores"}})
    condition = ready_of(found["status"]["conditions"])
    assert condition.pop("lastTransitionTime")
    assert (
        condition.pop("observedGeneration") == found["status"]["observedGeneration"] == found["metadata"]["generation"]
    )
    assert condition.pop("type") == "Ready"
    return dict(condition)


def events_of(api: Api) -> list[tuple[str, str]]:
    """The Events about rules since the test began: type and reason."""
    events = [event for event in api.events() if event["involvedObject"]["kind"] == "CopyratorRule"]
    return [(event["type"], event["reason"]) for event in events]


# objects that are not managed


def test_an_object_in_the_way_is_reported_once_and_then_read_without_a_write(api: Api, sync: Run) -> None:
    home, team = api.namespace("home"), api.namespace("team")
    api.namespace("free")
    source = api.create(configmap(home))
    unmanaged = api.create(configmap(team, labels={}, data={"mine": "x" * 200_000}))
    api.create(rule("settings", home, f"*-{api.token}"))

    first = sync()

    assert (first.exit_code, first.summary) == (0, {"created": 1, "conflict": 1})
    assert ready(api, "settings") == {
        "status": "False",
        "reason": "Conflict",
        "message": "1 of 2 copies blocked by an object that is not managed by kube-chores:"
        f" configmap/settings in namespace {team}",
    }
    assert events_of(api) == [("Warning", "Conflict")]
    assert first.report["traffic"]["bytesReceived"] < 200_000, "what others hold was not read"

    api.mark()
    second = sync()

    assert second.summary == {"unchanged": 1, "conflict": 1}
    assert api.writes() == []
    looks = [each for each in api.requests() if f"/{team}/" in each.path]
    assert [each.method for each in looks] == ["GET"]
    assert api.get(unmanaged) == unmanaged

    api.delete(unmanaged)
    assert sync().summary == {"created": 1, "unchanged": 1}
    assert content(api.get(at(team, source))) == content(source)
    assert ready(api, "settings") == {"status": "True", "reason": "Synced", "message": "2 copies"}
    assert sorted(events_of(api)) == [("Normal", "Synced"), ("Warning", "Conflict")]


def test_an_object_in_the_way_that_is_a_refused_source_is_reported_once_as_each(api: Api, sync: Run, home: str) -> None:
    annex = api.namespace("annex")
    for namespace in (home, annex):
        api.create(configmap(namespace))
    api.create(by_name("part", home, "*", names=["settings"], keys={"include": ["absent"]}))
    api.create(rule("settings", annex, home))

    first, second = sync(), sync()

    assert first.summary == second.summary == {"conflict": 1, "refused": 1}
    assert first.results == second.results
    assert ready(api, "part")["message"].count("it has no key absent") == 1


def test_adopt_takes_over_an_object_that_was_not_managed(api: Api, sync: Run, home: str, team: str) -> None:
    bind_adopt(api)
    source = api.create(secret(home))
    unmanaged = secret(team, labels={"team": "blue"}, data={"old": encoded(canary())})
    before = api.create(unmanaged)
    api.create(rule("logins", home, f"*-{api.token}", ruleType="secret", conflict="Adopt"))

    planned = sync("--dry-run")
    assert planned.summary == {"configured": 1}
    assert planned.results[0]["reason"].startswith("adopted: was not managed by kube-chores; now a copy of ")
    assert api.copy_writes() == []
    assert sync().summary == {"configured": 1}

    after = api.read(unmanaged)
    assert content(after) == content(source)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["labels"]["team"] == "blue"
    assert sync().summary == {"unchanged": 1}


OTHER_INSTALL = {
    "app.kubernetes.io/managed-by": "kube-chores",
    "kubechores.dev/job": "sync-copies",
    "kubechores.dev/rule-namespace": "another",
}


def owned(api: Api, unmanaged: Object) -> None:
    owner = api.create(configmap(unmanaged["metadata"]["namespace"], "owner", labels={}))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    unmanaged["metadata"]["ownerReferences"] = [{**reference, "controller": True}]


def changed(**fields: Any) -> Callable[[Api, Object], None]:
    return lambda _api, unmanaged: unmanaged.update(fields)


def stamped(_api: Api, unmanaged: Object) -> None:
    unmanaged["metadata"]["labels"] = OTHER_INSTALL


def labelled(key: str, value: str) -> Callable[[Api, Object], None]:
    return lambda _api, unmanaged: unmanaged["metadata"].update(labels={key: value})


def annotated(key: str) -> Callable[[Api, Object], None]:
    return lambda _api, unmanaged: unmanaged["metadata"].update(annotations={key: "x"})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (owned, "it is owned by a controller"),
        (changed(type="helm.sh/release.v1"), "Helm releases are never copied"),
        (changed(type="example.com/other"), "its type is example.com/other"),
        (changed(immutable=True), "it is immutable"),
        (stamped, "another job or installation"),
        (labelled("app.kubernetes.io/managed-by", "Helm"), "it is managed by Helm"),
        (annotated("meta.helm.sh/release-name"), "it is managed by Helm"),
        (annotated("argocd.argoproj.io/tracking-id"), "it is managed by Argo CD"),
        (labelled("kustomize.toolkit.fluxcd.io/name", "shop"), "it is managed by Flux"),
    ],
    ids=["controller", "helm", "type", "immutable", "other install", "helm label", "helm annotation", "argo", "flux"],
)
def test_adopt_does_not_change_objects_that_it_must_not_take(
    api: Api, sync: Run, change: Callable[[Api, Object], None], why: str, home: str, team: str
) -> None:
    bind_adopt(api)
    api.create(secret(home))
    unmanaged = secret(team, labels={}, data={"old": encoded(canary())})
    change(api, unmanaged)
    before = api.create(unmanaged)
    api.create(rule("logins", home, f"*-{api.token}", ruleType="secret", conflict="Adopt"))

    ran = sync()

    assert (ran.exit_code, ran.summary) == (0, {"conflict": 1})
    assert why in ran.results[0]["reason"]
    assert api.get(unmanaged) == before


# orphans


def drop_label(api: Api, source: Object, team: str) -> None:
    api.patch(source, {"metadata": {"labels": {"copyrator": None}}})


def drop_source(api: Api, source: Object, team: str) -> None:
    api.delete(source)


def drop_rule(api: Api, source: Object, team: str) -> None:
    api.delete({**RULE, "metadata": {"name": "rule", "namespace": "kube-chores"}})


def change_selector(api: Api, source: Object, team: str) -> None:
    api.create(configmap(source["metadata"]["namespace"], "another", labels={"other": "yes"}))
    api.create(secret(source["metadata"]["namespace"], "another", labels={"other": "yes"}))
    spec = {"selector": {"matchLabels": {"copyrator": None, "other": "yes"}}}
    api.patch({**RULE, "metadata": {"name": "rule", "namespace": "kube-chores"}}, {"spec": spec})


def exclude_namespace(api: Api, source: Object, team: str) -> None:
    api.namespace("another-team")
    spec = {"targets": {"exclude": [team]}}
    api.patch({**RULE, "metadata": {"name": "rule", "namespace": "kube-chores"}}, {"spec": spec})


def opt_out(api: Api, source: Object, team: str) -> None:
    api.patch(namespace_object(team), {"metadata": {"annotations": {"kubechores.dev/copies": "false"}}})


WAYS = [drop_label, drop_source, drop_rule, change_selector, exclude_namespace, opt_out]


@pytest.mark.parametrize(
    ("way", "kind"),
    list(zip(WAYS, cycle(["secret", "configmap"]), strict=False)),
    ids=lambda each: getattr(each, "__name__", each),
)
def test_a_copy_that_no_rule_requires_is_deleted(api: Api, sync: Run, way: Any, kind: str) -> None:
    home, team = api.namespace("home"), api.namespace("team")
    source = api.create((secret if kind == "secret" else configmap)(home))
    unmanaged = api.create(configmap(team, "unmanaged", labels={}))
    api.create(rule("rule", home, f"*-{api.token}", ruleType=kind))
    sync()
    way(api, source, team)

    ran = sync()

    assert (ran.exit_code, ran.summary["deleted"]) == (0, 1)
    unwanted = "its namespace opted out" if way is opt_out else "no rule requires this copy"
    made_for = f"kube-chores/rule from {home}/{source['metadata']['name']}"
    (reason,) = (result["reason"] for result in ran.results if result["action"] == "deleted")
    assert reason == f"{unwanted}; it was created for {made_for}"
    assert api.get(at(team, source)) is None
    assert api.get(unmanaged) == unmanaged
    api.mark()
    assert "deleted" not in sync().summary
    assert api.writes() == []


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_copy_with_orphans_retain_stays(api: Api, sync: Run, way: Any, home: str, team: str) -> None:
    source = copied(api, sync, configmap(home), name="rule", orphans="Retain")
    copy = api.get(at(team, source))
    way(api, source, team)

    assert "deleted" not in sync().summary
    assert api.get(at(team, source)) == copy


def test_a_copy_stays_while_one_of_two_rules_requires_it(api: Api, sync: Run, home: str, team: str) -> None:
    source = api.create(configmap(home))
    first, second = (api.create(rule(name, home, f"*-{api.token}")) for name in ("first", "second"))
    assert sync().summary == {"created": 1}

    api.delete(first)
    assert sync().summary == {"configured": 1}  # the stamp has the remaining rule
    assert sync().summary == {"unchanged": 1}
    copy = api.get(at(team, source))
    assert copy and copy["metadata"]["annotations"]["kubechores.dev/rule"] == "kube-chores/second"

    api.delete(second)
    assert sync().summary == {"deleted": 1}


def test_a_collision_keeps_the_copy_that_is_there_and_its_source(api: Api, sync: Run) -> None:
    home, other, team = api.namespace("home"), api.namespace("other"), api.namespace("team")
    source = api.create(configmap(home))
    api.create(configmap(other, data={"a": "other"}))
    api.create(rule("first", home, team))
    sync()
    copy = api.get(at(team, source))
    api.create(rule("second", other, team))

    ran = sync()

    assert (ran.exit_code, ran.summary) == (2, {"collision": 1, "unchanged": 1})
    assert api.get(at(team, source)) == copy
    for name in ("first", "second"):
        assert ready(api, name)["reason"] == "Collision"
    api.mark()
    assert sync().exit_code == 2
    assert api.writes() == []
    api.patch(source, {"data": {"a": "rotated"}})
    assert sync("--rule-name", "second").summary == {"collision": 1}
    assert sync().summary == {"collision": 1, "configured": 1}
    assert api.read(at(team, source))["data"]["a"] == "rotated"
    api.delete(copy or {})
    assert sync().summary == {"collision": 1}, "which of them it would be is not known"


@pytest.fixture
def shared(api: Api) -> tuple[str, str, str]:
    """A rule with two source namespaces, of which a tenant has the second one, and the namespace of its copies."""
    home, tenant, team = (api.namespace(name) for name in ("home", "tenant", "team"))
    api.create(rule("shared", home, team, namespaces=[home, tenant]))
    return home, tenant, team


def test_the_first_namespace_of_a_rule_that_has_a_source_is_copied(
    api: Api, sync: Run, shared: tuple[str, str, str]
) -> None:
    home, tenant, team = shared
    source, other = api.create(configmap(home)), api.create(configmap(tenant, data={"a": "of the tenant"}))

    ran = sync()

    assert (ran.exit_code, ran.summary) == (0, {"created": 1, "shadowed": 1})
    assert content(api.get(at(team, source))) == content(source)
    api.patch(source, {"data": {"a": "rotated"}})
    assert sync().summary == {"configured": 1, "shadowed": 1}
    assert api.read(at(team, source))["data"]["a"] == "rotated"
    assert ready(api, "shared")["reason"] == "Synced"
    api.delete(other)
    assert sync().summary == {"unchanged": 1}


def test_a_copy_does_not_move_to_a_source_in_another_namespace_until_a_person_confirms_it(
    api: Api, sync: Run, shared: tuple[str, str, str]
) -> None:
    home, tenant, team = shared
    source = api.create(configmap(home))
    sync()
    copy = api.get(at(team, source))
    theirs = api.create(configmap(tenant, data={"a": "of the tenant"}))
    api.delete(source)

    ran = sync()

    assert (ran.exit_code, ran.summary) == (4, {"source-changed": 1})
    (result,) = ran.results
    assert f"stays a copy of {home}/settings, although its rule now selects {tenant}/settings" in result["reason"]
    assert ran.stderr.strip().endswith("--max-deletes 10 --rule-name shared"), "it confirms nothing about other rules"
    assert api.get(at(team, source)) == copy
    condition = ready(api, "shared")
    assert condition["reason"] == "SourceChanged"
    assert "1 of 1 copies of a source in another namespace" in condition["message"]

    api.create(configmap(home, data={"a": "again"}))
    assert sync().summary == {"configured": 1, "shadowed": 1}
    api.delete(source)
    assert sync("--max-deletes", "10", "--rule-name", "shared").summary == {"configured": 1}
    assert content(api.get(at(team, source))) == content(theirs)
    # The same the other way: a first namespace does not take over either.
    api.create(configmap(home))
    assert sync().exit_code == 4
    api.patch(theirs, {"data": {"a": "rotated"}})
    assert sync().summary == {"configured": 1, "source-changed": 1, "shadowed": 1}
    assert api.read(at(team, source))["data"]["a"] == "rotated", "the copy follows its own source"
    api.delete(at(team, source))
    assert sync().summary == {"created": 1, "shadowed": 1}


def test_a_copy_moves_if_its_rule_no_longer_names_the_old_namespace(
    api: Api, sync: Run, shared: tuple[str, str, str]
) -> None:
    home, tenant, team = shared
    source = api.create(configmap(home))
    theirs = api.create(configmap(tenant, data={"a": "of the tenant"}))
    sync()

    api.patch(rule("shared", "", ""), {"spec": {"namespaces": [tenant]}})

    assert sync().summary == {"configured": 1}
    assert content(api.get(at(team, source))) == content(theirs)


def test_an_invalid_rule_stops_deletions_and_nothing_else(api: Api, sync: Run, home: str, team: str) -> None:
    source, removed = api.create(configmap(home)), api.create(configmap(home, "removed"))
    api.create(rule("good", home, f"*-{api.token}"))
    sync()
    api.delete(removed)
    api.patch(source, {"data": {"a": "new"}})
    api.create(rule("broken", home, f"*-{api.token}", metadata={"labels": {"kubechores.dev/job": "mine"}}))

    ran = sync()

    assert (ran.exit_code, ran.summary) == (2, {"configured": 1, "invalid": 1})
    assert api.get(at(team, removed))
    assert "kubechores.dev/job is reserved" in ready(api, "broken")["message"]
    assert ready(api, "good")["status"] == "True"
    api.mark()
    assert sync().exit_code == 2
    assert api.writes() == []


# the brake


@pytest.fixture
def many(api: Api, sync: Run) -> Object:
    """Create twelve copies in one namespace with a source each, one of which changed; return the rule."""
    home = api.namespace("home")
    api.namespace("team")
    for number in range(12):
        api.create(configmap(home, f"settings-{number}"))
    made = api.create(rule("rule", home, f"*-{api.token}"))
    assert sync().summary == {"created": 12}
    for number in range(11):
        api.delete(configmap(home, f"settings-{number}"))
    api.patch(configmap(home, "settings-11"), {"data": {"a": "new"}})
    return made


def test_too_many_deletions_are_blocked_and_other_writes_continue(api: Api, sync: Run, many: Object) -> None:
    ran = sync()

    assert (ran.exit_code, ran.summary) == (4, {"configured": 1, "orphan": 11})
    assert "11 ConfigMaps (code orphan, limit 10); none of them is deleted" in ran.stderr
    assert ready(api, "rule") == {
        "status": "False",
        "reason": "DeletionsBlocked",
        "message": ready(api, "rule")["message"],
    }
    api.mark()
    assert sync().exit_code == 4
    assert api.writes() == []


def test_the_printed_command_lifts_the_brake_once(
    api: Api, sync: Run, many: Object, chores: Chores, installed: Path
) -> None:
    command = sync().stderr.strip().splitlines()[-1].split()

    assert command[0] == "chores"
    done = chores(*command[1:], kubeconfig=installed)

    assert done.returncode == 0, done.stderr
    assert "11 deleted" in done.stdout
    assert sync().exit_code == 0


def test_a_dry_run_and_max_deletes_0_show_the_brake_too(api: Api, sync: Run, many: Object) -> None:
    assert sync("--dry-run").exit_code == 4
    assert sync("--max-deletes", "11", "--dry-run").summary == {"configured": 1, "deleted": 11}
    assert sync("--max-deletes", "0").exit_code == 4


# immutable fields


def test_a_copy_of_another_type_is_replaced(api: Api, sync: Run, home: str, team: str) -> None:
    source = copied(api, sync, secret(home))
    before = api.get(at(team, source))
    api.delete(source)
    recreated = api.create(secret(home, type="kubernetes.io/basic-auth", data={"username": encoded(canary())}))

    assert sync().summary == {"replaced": 1}

    after = api.get(at(team, recreated))
    assert before and after
    assert content(after) == content(recreated)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert sync().summary == {"unchanged": 1}


@pytest.mark.parametrize("kind", ["configmap", "secret"])
def test_an_immutable_copy_is_replaced(api: Api, sync: Run, kind: str, home: str, team: str) -> None:
    make = secret if kind == "secret" else configmap
    source = api.create(make(home, "x", immutable=True, data={"a": encoded(canary())}))
    api.create(rule("rule", home, f"*-{api.token}", ruleType=kind))
    sync()
    api.delete(source)
    recreated = api.create(make(home, "x", immutable=True, data={"a": encoded(canary())}))

    assert sync("--dry-run=server").summary == {"replaced": 1}
    assert content(api.get(at(team, source))) == content(source)
    assert sync().summary == {"replaced": 1}
    assert content(api.get(at(team, recreated))) == content(recreated)
    assert sync().summary == {"unchanged": 1}


def test_a_copy_that_was_made_immutable_by_hand_is_replaced(api: Api, sync: Run, home: str, team: str) -> None:
    source = copied(api, sync, configmap(home))
    api.patch(at(team, source), {"immutable": True})

    assert sync().summary == {"replaced": 1}
    assert content(api.get(at(team, source))) == content(source)


# terminating namespaces


def test_a_terminating_namespace_is_skipped(api: Api, sync: Run, home: str, team: str) -> None:
    api.namespace("other")
    metadata = {"name": "protected", "namespace": team, "finalizers": ["example.com/protect"]}
    protected = api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    with_rule(api, configmap(home))
    api.delete(namespace_object(team))

    ran = sync()

    assert (ran.exit_code, ran.summary) == (0, {"created": 1})
    api.patch(protected, {"metadata": {"finalizers": None}})


def test_rules_deleted_with_their_namespace_delete_no_copy(api: Api, sync: Run) -> None:
    """An uninstall during a run."""
    home, rules, team = (api.namespace(name) for name in ("home", "rules", "team"))
    source = api.create(configmap(home))
    requested = rule("settings", home, team)
    requested["metadata"]["namespace"] = rules
    api.create(requested)
    assert sync("-n", rules, kubeconfig=api.kubeconfig).exit_code == 0
    metadata = {"name": "protected", "namespace": rules, "finalizers": ["example.com/protect"]}
    protected = api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    api.delete(namespace_object(rules))
    wait_for(lambda: api.get(requested) is None, "the rule to go")

    ran = sync("-n", rules, kubeconfig=api.kubeconfig)

    assert ran.exit_code == 0
    assert [result["object"]["kind"] for result in ran.results] == ["Namespace"]
    assert content(api.get(at(team, source))) == content(source)
    api.patch(protected, {"metadata": {"finalizers": None}})


# status and Events


def test_status_and_events_change_only_when_the_state_does(api: Api, sync: Run, home: str, team: str) -> None:
    copied(api, sync, configmap(home))
    assert ready(api, "settings") == {"status": "True", "reason": "Synced", "message": "1 copy"}
    assert events_of(api) == [("Normal", "Synced")]
    api.mark()

    for _ in range(3):
        sync()

    assert api.writes() == []
    assert events_of(api) == [("Normal", "Synced")]


@pytest.mark.parametrize("api", [pytest.param("real", marks=pytest.mark.cluster)], indirect=True)
def test_a_lasting_error_creates_one_event(api: Api, sync: Run, home: str, team: str) -> None:
    quota = {"hard": {"count/configmaps": "0"}}
    limit = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": team}, "spec": quota}
    api.create(limit)
    wait_for(lambda: (api.get(limit) or {}).get("status", {}).get("used"), "the quota to be in force")
    with_rule(api, configmap(home))
    assert "exceeded quota" in sync().stdout
    assert ready(api, "settings")["reason"] == "QuotaExceeded"
    api.mark()

    ran = sync()

    assert (ran.exit_code, ran.summary) == (0, {"failed": 1})
    assert [write.status for write in api.writes()] == [403]


# two runs at once


def test_two_runs_at_once_have_the_same_result_as_one(api: Api, sync: Run, installed: Path, home: str) -> None:
    for number in range(4):
        api.namespace(f"team-{number}")
    for number in range(5):
        api.create(configmap(home, f"settings-{number}"))
    api.create(rule("settings", home, f"team-*-{api.token}"))
    command = [sys.executable, "-m", "jobs", "sync-copies", "-o", "json", "--kubeconfig", str(installed)]

    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [run.communicate(timeout=GIVE_UP_SECONDS) for run in both]

    for run, (stdout, stderr) in zip(both, outputs, strict=True):
        canaries.observed("stdout", stdout + stderr)
        assert run.returncode == 0, stderr
        assert json.loads(stdout)["summary"].keys() <= {"created", "unchanged"}
    assert sync().summary == {"unchanged": 20}


# the other kinds


def test_a_network_policy_is_updated_in_place_whatever_changes(api: Api, sync: Run, home: str, team: str) -> None:
    """Without the policy, even for a moment, each client could reach the pods of the namespace."""
    source = api.create(network_policy(home))
    api.create(rule("policies", home, team, ruleType="networkpolicy"))
    sync()
    before = api.read(at(team, source))
    spec = {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Egress"], "ingress": None, "egress": []}
    api.patch(source, {"spec": spec})

    updated = sync()
    api.delete(source)
    api.create(network_policy(home, spec={"podSelector": {}}))
    recreated = sync()

    after = api.read(at(team, source))
    assert (updated.summary, recreated.summary) == ({"configured": 1}, {"configured": 1})
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert content(after) == content(api.get(source))
    assert {each.method for each in api.copy_writes()} == {"POST", "PUT"}


def test_a_role_binding_stays_if_the_new_role_may_not_be_bound(api: Api, sync: Run, home: str, team: str) -> None:
    source = role_binding(home)
    api.create(source)
    api.create(rule("bindings", home, team, ruleType="rolebinding"))
    sync()
    before = api.get(at(team, source))
    api.delete(source)
    api.create({**source, "roleRef": cluster_role_ref("edit")})

    ran = sync()

    assert (ran.exit_code, ran.summary) == (0, {"refused": 1})
    assert api.get(at(team, source)) == before
    assert ready(api, "bindings")["reason"] == "SourceRefused"
    api.delete(source)
    api.create(source)
    assert (sync().summary, ready(api, "bindings")["reason"]) == ({"configured": 1}, "Synced")
