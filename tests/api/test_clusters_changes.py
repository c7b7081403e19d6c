# ruff: noqa: F811
"""Copies in other clusters while names of clusters, rules or statuses change; and flags that contradict each other."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from jobs import sync_copies_clusters
from kubesandbox import Fault, Sandbox
from tests import embedded
from tests.api.conftest import Run, runs
from tests.api.test_clusters import (  # noqa: F401
    HUB,
    Spoke,
    copies,
    enlist,
    fleet,
    hub,
    push,
    ready,
    spaces,
    spokes,
    status_of,
    uid,
)
from tests.apis import Api, sandbox_api, wait_for
from tests.rights import account, can_i, grant
from tests.worlds import at, configmap, encoded, namespace_object, rule, secret

NAMESPACES = "/api/v1/namespaces"


@pytest.fixture
def server() -> Iterator[Sandbox]:
    """The embedded server that is the hub."""
    with Sandbox(of=embedded.installed()) as sandbox:
        yield sandbox


@pytest.fixture
def api(server: Sandbox, tmp_path: Path) -> Api:
    return sandbox_api(server, tmp_path)


def test_no_copy_is_deleted_by_rules_that_were_read_before_it(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str, server: Sandbox
) -> None:
    """The second read of the hub fails in one thread; another one must not use the first read."""
    hub.create(configmap(home, "old", labels={"copy": "old"}))
    hub.create(configmap(home, "late", labels={"copy": "late"}))

    def made(name: str) -> dict[str, object]:
        each = fleet(name, home, "team-*")
        each["spec"]["selector"] = {"matchLabels": {"copy": name}}
        return each

    hub.create(made("old"))
    hub.create(made("late"))
    push()
    late = hub.read(rule("late", "", ""))
    hub.delete(late)  # as in the first read of the run; an overlapping run has its copies
    hub.delete(rule("old", "", ""))
    barrier = threading.Barrier(2, timeout=20)
    appeared = threading.Event()

    def both_have_listed() -> None:
        if barrier.wait() == 0:
            hub.create(made("late"))
            appeared.set()
        appeared.wait(20)

    for each in spokes:
        each.sandbox.inject(
            Fault("GET", NAMESPACES, kind="call-before", call=both_have_listed, skip=1)
        )  # the first one asks for the uid
    server.inject(Fault("GET", "*/namespaces/kube-chores/copyrators", status=403, skip=1))
    ran = push()

    names = {name for each in spokes for _, name in copies(each)}
    assert "late" in names and sum(len([n for _, n in copies(e) if n == "late"]) for e in spokes) == 4, ran.stdout


def test_a_cluster_is_not_forgotten_by_a_run_that_deletes_nothing(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    push()

    ran = push("--forget-cluster", spokes[0].name, "--rule-name", "settings")

    known = [each["name"] for each in status_of(hub)["pushed"]["clusters"]]
    assert ran.exit_code == 2 or not copies(spokes[0]) or spokes[0].name in known, (ran.exit_code, ran.stdout)


def test_an_annotation_of_a_tenant_does_not_prevent_that_a_cluster_is_forgotten(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    push()
    other = namespace_object("strange")
    other["metadata"]["annotations"] = {"kubechores.dev/copies": "maybe"}
    spokes[0].api.create(other)

    ran = push("--forget-cluster", spokes[0].name)

    assert (ran.exit_code, copies(spokes[0])) == (0, [])
    assert [each["name"] for each in status_of(hub)["pushed"]["clusters"]] == [spokes[1].name], ran.stdout


@pytest.mark.parametrize("how", ["only", "unreachable", "renamed"])
def test_a_new_name_of_a_known_cluster_deletes_nothing(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str, how: str
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*", names=[each.name for each in spokes]))
    push()
    before = copies(spokes[0])
    new = Spoke(f"uno-{hub.token}", spokes[0].sandbox, spokes[0].api)
    enlist(hub, new)
    chosen = []
    if how == "only":
        chosen = ["--clusters", new.name]
    elif how == "renamed":
        hub.delete(secret("kube-chores", spokes[0].name))
    else:
        config = yaml.safe_load(spokes[0].kubeconfig())
        config["users"][0]["user"]["token"] = "expired"
        hub.patch(secret("kube-chores", spokes[0].name), {"data": {"value": encoded(yaml.safe_dump(config))}})

    ran = push(*chosen)

    assert copies(spokes[0]) == before, (ran.exit_code, ran.stdout)


def test_a_rule_that_changes_during_a_run_is_not_known_to_select_something(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    made = hub.create(fleet("settings", home, "team-*"))
    gone = fleet("gone", home, "team-*", names=[spokes[0].name])
    gone["spec"]["selector"] = {"matchLabels": {"copy": "gone"}}
    gone = hub.create(gone)
    hub.create(configmap(home, "gone", labels={"copy": "gone"}))
    push()
    hub.delete(gone)  # so that the rules are read again

    def typo() -> None:
        hub.patch(made, {"spec": {"targets": {"include": ["typo-*"]}}})

    spokes[0].sandbox.inject(Fault("GET", NAMESPACES, kind="call-before", call=typo, skip=1))
    before = copies(spokes[1])
    first = push()
    second = push()

    assert copies(spokes[1]) == before, (first.stdout, second.stdout, status_of(hub)["pushed"])


def test_the_uids_of_clusters_are_known_after_a_run_of_the_local_job_meanwhile(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, installed: Path, home: str
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    command = [sys.executable, "-m", "jobs", "sync-copies", "--kubeconfig", str(installed)]

    def local() -> None:
        subprocess.run(command, check=True, capture_output=True, timeout=300)

    spokes[0].sandbox.inject(Fault("POST", "*/configmaps", kind="call-before", call=local))

    ran = push()

    assert (ran.exit_code, ran.summary) == (0, {"created": 4})
    assert status_of(hub).get("pushed", {}).get("clusters"), status_of(hub)


def test_a_run_for_one_cluster_does_not_end_as_another_one(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    hub.patch(secret("kube-chores", spokes[0].name), {"data": {"value": encoded("{}")}})

    assert push("--clusters", spokes[1].name).exit_code == 0


def test_a_run_for_one_rule_writes_no_status_of_another(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    made = hub.create(fleet("settings", home, "team-*"))
    hub.create(fleet("others", home, "team-x"))
    push()
    hub.patch(made, {"spec": {"targets": {"clusters": None}}})

    push("--rule-name", "others")

    assert "pushed" in status_of(hub)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_cluster_is_not_forgotten_while_its_secrets_cannot_be_listed(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str, is_deleted: bool
) -> None:
    hub.create(secret(home, "login", labels={"copy": "true"}))
    made = fleet("logins", home, "team-*")
    made["spec"] |= {"ruleType": "secret", "selector": {"matchLabels": {"copy": "true"}}}
    made = hub.create(made)
    assert push().summary == {"created": 4}
    for each in spokes[0].api.call("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles")["items"]:
        rules = each.get("rules") or []
        without = [it for it in rules if "secrets" not in it.get("resources", ())]
        if each["metadata"]["name"].startswith("kube-chores") and without != rules:
            spokes[0].api.patch(
                {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"} | each, {"rules": without}
            )
    if is_deleted:
        hub.delete(made)

    ran = push("--forget-cluster", spokes[0].name)

    assert (ran.exit_code, ran.summary) == (2, {"unreadable": 1}), ran.stdout
    assert len(spokes[0].api.call("GET", f"/api/v1/secrets?labelSelector={HUB}")["items"]) == 2
    if not is_deleted:
        assert spokes[0].name in [each["name"] for each in status_of(hub, "logins")["pushed"]["clusters"]]


def test_copies_that_are_pulled_and_copies_that_are_pushed_stay(
    hub: Api, uid: str, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-a", names=[spokes[0].name]))
    hub.create(rule("settings-pulled", home, "team-b"))
    push()
    there = runs("sync-copies", spokes[0].api.service_account_kubeconfig("kube-chores", "sync-copies"))
    source = hub.service_account_kubeconfig("kube-chores", "sync-copies")
    pulled = there("--source-kubeconfig", str(source))

    assert "deleted" not in pulled.summary, pulled.stdout
    assert "deleted" not in push().summary


def test_a_cluster_does_not_pull_from_itself(hub: Api, uid: str, home: str, team: str) -> None:
    push = {"apiGroups": ["kubechores.dev"], "resources": ["hubs"], "resourceNames": [uid], "verbs": ["push"]}
    grant(hub, account("kube-chores", "sync-copies"), push)
    hub.create(configmap(home))
    hub.create(rule("settings", home, team))
    here = hub.service_account_kubeconfig("kube-chores", "sync-copies")

    ran = runs("sync-copies", here)("--source-kubeconfig", str(here))

    assert (ran.exit_code, hub.get(at(team, configmap(home)))) == (2, None), ran.stdout


@pytest.mark.parametrize(
    "flags",
    [
        ("--source-kubeconfig", "{hub}", "--explain", "{cluster}/team-a/settings"),
        ("--forget-cluster", "{cluster}", "--explain", "team-a/settings"),
        ("--forget-cluster", "{cluster}", "--rule-name", "settings"),
        ("--forget-cluster", "{cluster}", "-f", "{rules}"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    hub.create(configmap(home))
    hub.create(namespace_object("team-a"))
    made = fleet("settings", home, "team-*")
    hub.create(made)
    push()
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(made))
    values = {"hub": hub.kubeconfig, "cluster": spokes[0].name, "rules": tmp_path / "rules.yaml"}
    run = runs("sync-copies", hub.kubeconfig)

    ran = run("-n", "kube-chores", *(each.format(**values) for each in flags))

    assert ran.exit_code == 2, (ran.stdout[:3000], ran.stderr)


def test_a_glob_that_matches_no_cluster_is_refused(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))

    assert push("--clusters", "typo-*").exit_code == 2


def test_statuses_are_written_after_a_run_was_stopped_by_its_end(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str, server: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the run counts from its beginning: the CronJob's deadline does."""
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    monkeypatch.setattr(sync_copies_clusters, "RUN_SECONDS", 3.0)
    server.inject(
        Fault("GET", "*/namespaces/kube-chores/secrets", kind="call-before", call=lambda: threading.Event().wait(4))
    )

    ran = push()

    assert ran.summary == {"not-read": 2}, ran.stdout


def test_the_local_job_does_not_remove_the_condition_of_clusters(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, installed: Path, home: str, server: Sandbox
) -> None:
    """A run for other clusters ends between the read and the write of the local one."""
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    command = [sys.executable, "-m", "jobs", "sync-copies", "--kubeconfig", str(installed)]
    here = [*command[:-1], str(hub.kubeconfig), "-n", "kube-chores", "--clusters", f"*-{hub.token}"]

    def other() -> None:
        subprocess.run(here, check=True, capture_output=True, timeout=300)

    server.inject(Fault("PATCH", "*/settings/status", kind="call-before", call=other))
    subprocess.run(command, check=True, capture_output=True, timeout=300)

    assert ready(hub)[0] == "True"


def test_a_replaced_cluster_gets_nothing_although_the_local_job_wrote_the_status_meanwhile(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, installed: Path, home: str
) -> None:
    """The first run loses what it has to know of the cluster."""
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*", names=[spokes[0].name]))
    command = [sys.executable, "-m", "jobs", "sync-copies", "--kubeconfig", str(installed)]

    def local() -> None:
        subprocess.run(command, check=True, capture_output=True, timeout=300)

    spokes[0].sandbox.inject(Fault("POST", "*/configmaps", kind="call-before", call=local))
    assert push().summary == {"created": 2}
    enlist(hub, Spoke(spokes[0].name, spokes[1].sandbox, spokes[1].api), name="other")
    hub.delete(secret("kube-chores", spokes[1].name))

    ran = push()

    assert copies(spokes[1]) == [], ran.stdout


def test_a_cluster_with_two_names_that_left_can_be_forgotten(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    """It was renamed: nobody can forget its old name, which has no credentials."""
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    push()
    hub.delete(secret("kube-chores", spokes[0].name))
    new = Spoke(f"uno-{hub.token}", spokes[0].sandbox, spokes[0].api)
    enlist(hub, new)
    push()

    ran = push("--forget-cluster", new.name)

    assert (ran.exit_code, copies(spokes[0])) == (0, []), ran.stdout


def test_the_credentials_of_a_cluster_are_never_copied(
    hub: Api, spokes: list[Spoke], push: Run, sync: Run, team: str
) -> None:
    for each in spokes:
        each.api.create(namespace_object(team))
    made = fleet("inventory", "kube-chores", team, names=[spokes[0].name])
    made["spec"] |= {"ruleType": "secret", "names": [spokes[1].name]}
    made["spec"]["targets"]["local"] = True
    del made["spec"]["selector"]
    hub.create(made)

    ran, pushed = sync(), push()

    for found in (ran, pushed):
        assert "the credentials of a cluster are never copied" in found.results[0]["reason"]
    for api in (hub, *(each.api for each in spokes)):
        assert api.get(secret(team, spokes[1].name)) is None


def test_no_other_cluster_is_explained_under_a_name(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*", names=[spokes[0].name]))
    push()
    enlist(hub, Spoke(spokes[0].name, spokes[1].sandbox, spokes[1].api))

    ran = push("--explain", f"{spokes[0].name}/team-a/settings")

    assert ran.exit_code == 2
    assert f"cluster {spokes[0].name}: another cluster answers" in ran.stderr


@pytest.mark.parametrize("how", ["only one", "one is down"])
def test_a_recreated_source_namespace_blocks_deletions_until_all_clusters_were_read(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str, how: str
) -> None:
    extra = hub.create(configmap(home, "extra"))
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    if how == "only one":  # the other one has no copy that it could lose
        spokes[0].api.delete(namespace_object("team-a"))
        spokes[0].api.delete(namespace_object("team-b"))
    assert push().exit_code == 0
    before = copies(spokes[1])
    hub.delete(namespace_object(home))
    wait_for(lambda: hub.get(namespace_object(home)) is None, "the namespace to be deleted")
    hub.create(namespace_object(home))
    hub.create(configmap(home))
    assert hub.get(extra) is None

    if how == "only one":
        push("--clusters", spokes[0].name)
    else:
        config = hub.read(secret("kube-chores", spokes[1].name))["data"]["value"]
        hub.patch(secret("kube-chores", spokes[1].name), {"data": {"value": encoded("{}")}})
        push("--max-deletes", "10")
        push()
        hub.patch(secret("kube-chores", spokes[1].name), {"data": {"value": config}})
    ran = push()

    assert (ran.exit_code, copies(spokes[1])) == (4, before), ran.stdout


def test_a_cluster_that_loses_its_label_keeps_the_copies_of_a_rule_that_then_selects_none(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*", selector={"matchLabels": {"name": spokes[0].name}}))
    push()
    hub.patch(secret("kube-chores", spokes[0].name), {"metadata": {"labels": {"name": None}}})

    ran = push()

    assert (ran.exit_code, len(copies(spokes[0]))) == (4, 2), ran.stdout


def test_another_name_that_nothing_is_known_of_is_not_forgotten(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    made = hub.create(fleet("settings", home, "team-*"))
    push()
    twin = Spoke(f"twin-{hub.token}", spokes[0].sandbox, spokes[0].api)
    enlist(hub, twin)
    hub.delete(made)

    ran = push("--forget-cluster", twin.name)

    assert (ran.exit_code, ran.summary) == (2, {"duplicate": 1}), ran.stdout
    assert len(copies(spokes[0])) == 2


def test_a_rule_that_is_only_for_other_clusters_needs_no_rights_here(hub: Api, home: str) -> None:
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    hub.delete({**kind, "metadata": {"name": "kube-chores-sync-copies-limitranges"}})
    wait_for(lambda: not can_i(hub, "sync-copies", "list", "limitranges", group=""), "the right to be gone")
    made = fleet("policies", home, "team-*", names=["other"])
    made["spec"]["ruleType"] = "limitrange"
    hub.create(made)

    ran = runs("sync-copies", hub.service_account_kubeconfig("kube-chores", "sync-copies"))("-n", "kube-chores")

    assert (ran.exit_code, ran.summary) == (0, {}), ran.stdout
    (ready,) = [each for each in status_of(hub, "policies")["conditions"] if each["type"] == "Ready"]
    assert ready["status"] == "True"


@pytest.mark.parametrize(("value", "code"), [("True", 2), ("yes", 2), ("false", 0)])
def test_another_value_of_the_label_is_not_valid(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str, value: str, code: int
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    hub.patch(secret("kube-chores", spokes[0].name), {"metadata": {"labels": {"kubechores.dev/cluster": value}}})

    ran = push()

    assert (ran.exit_code, copies(spokes[0]), len(copies(spokes[1]))) == (code, [], 2)
    reasons = [each["reason"] for each in ran.results if each["code"] == "invalid"]
    assert reasons == ['label kubechores.dev/cluster must be "true", or "false" to leave it out'] * (code > 0)


def test_a_rule_that_is_also_local_may_be_pulled_where_it_is_not_pushed(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    made = fleet("settings", home, "team-a", names=[spokes[0].name])
    made["spec"]["targets"]["local"] = True
    hub.create(made)
    there = runs("sync-copies", spokes[1].api.service_account_kubeconfig("kube-chores", "sync-copies"))
    pulled = there("--source-kubeconfig", str(hub.service_account_kubeconfig("kube-chores", "sync-copies")))

    pushed = push()

    assert (pulled.summary, len(copies(spokes[1]))) == ({"created": 1}, 1)
    assert "deleted" not in pushed.summary


@pytest.mark.parametrize("how", ["a source cannot be read", "retained"])
def test_copies_of_a_rule_that_became_local_are_deleted_once_orphans_are_known(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str, server: Sandbox, how: str
) -> None:
    hub.create(configmap(home))
    made = hub.create(fleet("settings", home, "team-*"))
    push()
    if how == "retained":
        hub.patch(made, {"spec": {"orphans": "Retain"}})
    else:
        hub.create(configmap(home, "other", labels={"copy": "other"}))
        other = fleet("other", home, "team-*")
        other["spec"]["selector"] = {"matchLabels": {"copy": "other"}}
        hub.create(other)
        server.inject(Fault("GET", f"*/namespaces/{home}/configmaps", status=403))
    hub.patch(made, {"spec": {"targets": {"clusters": None}}})
    push()
    assert len(copies(spokes[0])) == 2
    assert [each["name"] for each in status_of(hub)["pushed"]["clusters"]] == [each.name for each in spokes]

    server.clear_faults()
    hub.patch(made, {"spec": {"orphans": "Delete"}})
    ran = push()

    assert [name for each in spokes for _, name in copies(each) if name == "settings"] == [], ran.stdout
    assert "pushed" not in status_of(hub)


def test_a_cluster_is_forgotten_although_rules_elsewhere_have_kinds_that_its_account_cannot_list(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    local = rule("limits", home, "team-*")
    local["spec"]["ruleType"] = "limitrange"
    hub.create(local)
    push()
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    spokes[0].api.delete({**kind, "metadata": {"name": "kube-chores-sync-copies-limitranges"}})
    wait_for(lambda: not can_i(spokes[0].api, "sync-copies", "list", "limitranges", group=""), "the right to be gone")

    ran = push("--forget-cluster", spokes[0].name)

    assert (ran.exit_code, copies(spokes[0])) == (0, []), ran.stdout


def test_the_report_has_what_was_written_although_the_rules_cannot_be_read_again(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str, server: Sandbox
) -> None:
    hub.create(configmap(home))
    made = hub.create(fleet("settings", home, "team-*"))

    def touch() -> None:
        hub.patch(made, {"metadata": {"annotations": {"touched": "true"}}})
        server.inject(Fault("GET", "*/namespaces/kube-chores/copyrators", status=403, times=None))

    server.inject(Fault("PATCH", "*/settings/status", kind="call-before", call=touch))

    ran = push()

    assert ran.exit_code == 1
    assert ran.summary == {"created": 4, "failed": 1}


def test_a_glob_of_which_all_clusters_left_reports_them(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    push()
    hub.delete(secret("kube-chores", spokes[0].name))

    ran = push("--clusters", spokes[0].name)

    assert (ran.exit_code, ran.summary) == (0, {"left-inventory": 1}), ran.stdout + ran.stderr


@pytest.mark.parametrize(("number", "left"), [(10, 0), (11, 11)])
def test_copies_of_rules_that_a_restored_hub_lacks_go_within_the_brake(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str, server: Sandbox, number: int, left: int
) -> None:
    backup = server.cluster.store.copy()
    for each in range(number):
        hub.create(configmap(home, f"settings-{each}"))
    hub.create(fleet("settings", home, "team-a"))
    assert push().exit_code == 0
    assert [len(copies(each)) for each in spokes] == [number, number]
    server.cluster.store.restore(backup)

    ran = push()

    assert ran.exit_code == (4 if left else 0), ran.stderr
    assert [len(copies(each)) for each in spokes] == [left, left]
