"""Copies in other clusters: sync-copies --clusters, with an inventory of Secrets in the cluster with the rules."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs import sync_copies_clusters
from jobs.kit.run import clusters
from kubesandbox import Fault, Sandbox
from tests import embedded
from tests.api.conftest import Run, runs
from tests.apis import Api, ApiError, Object, sandbox_api
from tests.canary import canary
from tests.rights import account, grant
from tests.worlds import at, configmap, encoded, namespace_object, rule, secret

HUB = "kubechores.dev/hub"


@dataclass
class Spoke:
    """A cluster of the inventory."""

    name: str
    sandbox: Sandbox
    api: Api

    @property
    def uid(self) -> str:
        return str(self.api.read(namespace_object("kube-system"))["metadata"]["uid"])

    def kubeconfig(self) -> str:
        """The kubeconfig of the account that the hub uses there."""
        token = self.api.service_account_token("kube-chores", "sync-copies")
        cluster = {"server": self.api.url, "certificate-authority-data": encoded(self.sandbox.authority.decode())}
        name = canary()  # no value of a kubeconfig may be in any output
        context = {"name": "hub", "context": {"cluster": name, "user": name}}
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": name, "cluster": cluster}],
                "users": [{"name": name, "user": {"token": token}}],
                "contexts": [context],
                "current-context": "hub",
            }
        )


@pytest.fixture
def hub(api: Api, installed: Path) -> Api:
    return api


@pytest.fixture
def uid(hub: Api) -> str:
    return str(hub.read(namespace_object("kube-system"))["metadata"]["uid"])


@pytest.fixture
def spokes(hub: Api, uid: str, tmp_path: Path) -> Iterator[list[Spoke]]:
    """Two clusters, one and two, in which the account of the job has the rights of a hub's."""
    made = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        sandbox = Sandbox(of=embedded.installed(), tls=True)
        sandbox.start()
        spoke = Spoke(f"{name}-{hub.token}", sandbox, sandbox_api(sandbox, folder))
        push = {"apiGroups": ["kubechores.dev"], "resources": ["hubs"], "resourceNames": [uid], "verbs": ["push"]}
        grant(spoke.api, account("kube-chores", "sync-copies"), push)
        made.append(spoke)
    yield made
    for each in made:
        each.sandbox.stop()


def enlist(hub: Api, spoke: Spoke, **labels: str) -> Object:
    """Add a cluster to the inventory, as Cluster API writes it."""
    data = {"value": encoded(spoke.kubeconfig())}
    made = secret("kube-chores", spoke.name, data=data)
    made["metadata"]["labels"] = {"kubechores.dev/cluster": "true", **labels}
    if hub.get(made):
        return hub.patch(made, {"data": data})
    return hub.create(made)


@pytest.fixture
def push(hub: Api, spokes: list[Spoke]) -> Run:
    """Run sync-copies --clusters in the hub, with both clusters in its inventory."""
    for each in spokes:
        enlist(hub, each, env="prod", name=each.name)
    run = runs("sync-copies", hub.kubeconfig)
    return lambda *arguments, **given: run("-n", "kube-chores", "--clusters", f"*-{hub.token}", *arguments, **given)


def fleet(name: str, home: str, targets: Any, **clusters: Any) -> Object:
    """A rule for other clusters."""
    made = rule(name, home, targets)
    made["spec"]["targets"]["clusters"] = clusters
    return made


@pytest.fixture
def spaces(spokes: list[Spoke]) -> None:
    """Namespaces team-a and team-b in each cluster."""
    for each in spokes:
        for name in ("team-a", "team-b"):
            each.api.create(namespace_object(name))


def status_of(hub: Api, name: str = "settings") -> Object:
    """The status of a rule."""
    return dict(hub.read(rule(name, "", ""))["status"])


def ready(hub: Api, name: str = "settings") -> tuple[str, str, str]:
    """Condition ClustersReady of a rule: its status, reason and message."""
    (found,) = [each for each in status_of(hub, name)["conditions"] if each["type"] == "ClustersReady"]
    return found["status"], found["reason"], found["message"]


def copies(spoke: Spoke) -> list[tuple[str, str]]:
    """The namespaces and names of all copies of hubs in a cluster."""
    listed = spoke.api.call("GET", f"/api/v1/configmaps?labelSelector={HUB}")["items"]
    return sorted((each["metadata"]["namespace"], each["metadata"]["name"]) for each in listed)


def test_a_copy_is_written_whose_answer_is_much_longer_than_what_was_sent(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    """The API server escapes these characters as six each: answers to writes are limited by what was written."""
    source = hub.create(configmap(home, data={"page": "<&>" * 250_000}))
    hub.create(fleet("settings", home, "team-a", names=[spokes[0].name]))

    ran = push()

    assert (ran.exit_code, ran.summary) == (0, {"created": 1}), ran.stderr + ran.stdout
    assert spokes[0].api.read(at("team-a", source))["data"] == source["data"]


def test_copies_are_in_each_selected_cluster(
    hub: Api, uid: str, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    source = hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*", names=[f"*-{hub.token}"], selector={"matchLabels": {"env": "prod"}}))

    ran = push()

    assert (ran.exit_code, ran.summary) == (0, {"created": 4}), ran.stderr + ran.stdout
    assert {each["cluster"] for each in ran.results} == {each.name for each in spokes}
    assert f"sync-copies: writing to clusters {spokes[0].name}, {spokes[1].name}\n" in ran.stderr
    for each in spokes:
        copy = each.api.read(at("team-a", source))
        assert (copy["data"], copy["metadata"]["labels"][HUB]) == (source["data"], uid)
    assert ready(hub) == ("True", "Synced", "the copies in 2 clusters are as desired")
    assert [(each["name"], each["copies"]) for each in status_of(hub)["clusters"]] == [(e.name, 2) for e in spokes]
    hub.mark()
    assert push().summary == {"unchanged": 4}
    assert hub.writes() == []
    hub.patch(source, {"data": {"a": "changed"}})
    assert push().summary == {"configured": 4}
    assert spokes[1].api.read(at("team-b", source))["data"]["a"] == "changed"


def test_a_rule_for_other_clusters_has_no_local_copies_unless_it_says_so(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, sync: Run, home: str, team: str
) -> None:
    source = hub.create(configmap(home))
    made = hub.create(fleet("settings", home, ["team-*", team], names=[spokes[0].name]))

    assert sync().summary == {}
    conditions = {each["type"]: each for each in status_of(hub)["conditions"]}
    assert conditions["Ready"]["status"] == "True"
    assert push().summary == {"created": 2}
    assert copies(spokes[1]) == []
    hub.patch(made, {"spec": {"targets": {"local": True}}})
    assert sync().summary == {"created": 1}
    assert HUB not in hub.read(at(team, source))["metadata"]["labels"]
    assert push().summary == {"unchanged": 2}
    assert {each["type"] for each in status_of(hub)["conditions"]} == {"Ready", "ClustersReady"}


def test_a_cluster_that_does_not_answer_changes_nothing_and_delays_no_other(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    source = hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    push()
    spokes[0].sandbox.stop()
    hub.patch(source, {"data": {"a": "changed"}})

    ran = push()

    assert (ran.exit_code, ran.summary) == (1, {"configured": 2, "unreachable": 1}), ran.stderr
    assert ready(hub) == ("False", "Unreachable", f"1 of 2 clusters not ready: {spokes[0].name} (Unreachable)")
    (first, second) = status_of(hub)["clusters"]
    assert (first["name"], first["reason"], "copies" in first) == (spokes[0].name, "Unreachable", False)
    assert (second["name"], second["copies"]) == (spokes[1].name, 2)
    events = hub.call("GET", "/api/v1/namespaces/kube-chores/events")["items"]
    assert "Unreachable" in {each["reason"] for each in events}
    spokes[0].sandbox = Sandbox(of=spokes[1].sandbox)  # the fixture stops it
    spokes[0].sandbox.start()


def test_copies_of_a_deleted_rule_go_from_all_clusters_within_the_brake_of_each(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    made = hub.create(fleet("settings", home, "team-*"))
    for number in range(20):
        spokes[0].api.create(namespace_object(f"team-{number}"))
    push()
    hub.delete(made)

    ran = push()

    assert ran.exit_code == 4
    assert (len(copies(spokes[0])), copies(spokes[1])) == (22, [])
    assert f"cluster {spokes[0].name}: the deletion brake blocks the deletion of 22 ConfigMaps" in ran.stderr
    assert f"--max-deletes 22 --clusters {spokes[0].name}" in ran.stderr
    assert push("--max-deletes", "22", "--clusters", spokes[0].name).summary == {"deleted": 22}


def test_a_rule_that_selects_no_cluster_may_be_mistaken(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    made = hub.create(fleet("settings", home, "team-*", names=[spokes[0].name]))
    push()
    hub.patch(made, {"spec": {"targets": {"clusters": {"names": ["typo"]}}}})

    ran = push()

    assert (ran.exit_code, len(copies(spokes[0]))) == (4, 2)
    assert ready(hub) == ("False", "NothingSelected", "spec.targets.clusters selects no cluster")
    hub.patch(made, {"spec": {"targets": {"clusters": {"names": [spokes[1].name]}}}})
    assert push().summary == {"created": 2, "deleted": 2}
    assert (copies(spokes[0]), len(copies(spokes[1]))) == ([], 2)


@pytest.mark.parametrize("is_pushed", [True, False])
def test_a_rule_that_retains_orphans_keeps_those_in_clusters_that_it_no_longer_selects(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str, is_pushed: bool
) -> None:
    hub.create(configmap(home))
    made = hub.create(fleet("settings", home, "team-*"))
    push()
    chosen = {"names": [spokes[1].name]} if is_pushed else None
    hub.patch(made, {"spec": {"orphans": "Retain", "targets": {"clusters": chosen}}})

    assert "deleted" not in push().summary
    assert push("--forget-cluster", spokes[0].name).exit_code == 0

    assert len(copies(spokes[0])) == 2


def test_a_cluster_that_leaves_the_inventory_keeps_its_copies_until_it_is_forgotten(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    push()
    member = secret("kube-chores", spokes[0].name)
    hub.patch(member, {"metadata": {"labels": {"kubechores.dev/cluster": None}}})

    first, second = push(), push()

    assert (first.exit_code, first.summary) == (0, {"unchanged": 2, "left-inventory": 1})
    assert f"--forget-cluster {spokes[0].name}" in first.results[0]["reason"]
    assert second.summary == {"unchanged": 2}
    assert len(copies(spokes[0])) == 2
    assert [each["name"] for each in status_of(hub)["clusters"]] == [spokes[1].name]
    forgotten = push("--forget-cluster", spokes[0].name)
    assert (forgotten.exit_code, forgotten.summary) == (0, {"deleted": 2}), forgotten.stderr
    assert (copies(spokes[0]), len(copies(spokes[1]))) == ([], 2)
    assert [each["name"] for each in status_of(hub)["pushed"]["clusters"]] == [spokes[1].name]


def test_another_cluster_under_a_known_name_gets_nothing(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*", names=[spokes[0].name]))
    push()
    enlist(hub, Spoke(spokes[0].name, spokes[1].sandbox, spokes[1].api), name="other")
    hub.delete(secret("kube-chores", spokes[1].name))

    ran = push()

    assert (ran.exit_code, ran.summary, copies(spokes[1])) == (2, {"replaced": 1}, [])
    assert ready(hub)[:2] == ("False", "Replaced")
    assert push("--forget-cluster", spokes[0].name).exit_code == 0
    assert push().summary == {"created": 2}


def test_two_names_of_one_cluster_and_the_hub_itself_get_nothing(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    enlist(hub, Spoke(spokes[1].name, spokes[0].sandbox, spokes[0].api))

    ran = push()

    assert (ran.exit_code, ran.summary) == (2, {"duplicate": 2})
    assert (copies(spokes[0]), copies(spokes[1])) == ([], [])


def test_an_installation_in_a_cluster_and_the_hub_leave_each_others_copies(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    spoke = spokes[0]
    local = runs("sync-copies", spoke.api.service_account_kubeconfig("kube-chores", "sync-copies"))
    source = hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*", names=[spoke.name]))
    spoke.api.create(namespace_object("there"))
    spoke.api.create(configmap("there", "other"))
    spoke.api.create(rule("settings", "there", "team-*"))

    assert push().summary == {"created": 2}
    assert local().summary == {"created": 2}
    before = spoke.api.read(at("team-a", source))
    spoke.api.delete(rule("settings", "", ""))
    assert local().summary == {"deleted": 2}
    assert spoke.api.read(at("team-a", source)) == before
    assert push().summary == {"unchanged": 2}


def test_an_object_in_the_way_is_reported_for_its_cluster(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    source = hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    own = spokes[0].api.create(configmap("team-a", source["metadata"]["name"]))

    assert push().summary == {"created": 3, "conflict": 1}
    spokes[0].api.mark()
    assert push().summary == {"conflict": 1, "unchanged": 3}
    assert spokes[0].api.writes() == []
    assert spokes[0].api.read(own)["metadata"]["uid"] == own["metadata"]["uid"]
    assert ready(hub) == ("False", "Conflict", f"1 of 2 clusters not ready: {spokes[0].name} (Conflict)")


@pytest.mark.parametrize(
    ("kubeconfig", "why"),
    [
        ({"users": [{"name": "a", "user": {"exec": {"command": "curl"}}}]}, "remove exec"),
        (
            {"clusters": [{"name": "hub", "cluster": {"server": "https://a", "proxy-url": "http://b"}}]},
            "remove proxy-url",
        ),
    ],
)
def test_credentials_are_read_by_a_strict_reader(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str, kubeconfig: Object, why: str
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    config = yaml.safe_load(spokes[0].kubeconfig()) | kubeconfig
    hub.patch(secret("kube-chores", spokes[0].name), {"data": {"value": encoded(yaml.safe_dump(config))}})

    ran = push()

    assert (ran.exit_code, ran.summary) == (2, {"created": 2, "invalid": 1})
    (found,) = [each for each in ran.results if each["code"] == "invalid"]
    assert (found["object"], why in found["reason"]) == ({"kind": "Cluster", "name": spokes[0].name}, True), found


def test_a_dry_run_and_a_run_for_one_cluster_and_rule(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-a"))
    hub.create(fleet("others", home, "team-b"))

    assert push("--dry-run", "--diff").summary == {"created": 4}
    assert [copies(each) for each in spokes] == [[], []]
    assert push("--rule-name", "others", "--clusters", spokes[1].name).summary == {"created": 1}
    assert [len(copies(each)) for each in spokes] == [0, 1]
    assert push("--check").exit_code == 3


@pytest.mark.parametrize("rule_type", ["rolebinding", "serviceaccount"])
def test_rights_are_not_copied_to_other_clusters(hub: Api, home: str, rule_type: str) -> None:
    refused = fleet("settings", home, "team-*")
    refused["spec"] |= {"ruleType": rule_type}

    with pytest.raises(ApiError, match="not copied to other clusters"):
        hub.create(refused)


def test_a_place_in_another_cluster_is_explained(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*", names=[spokes[0].name]))
    push()

    rows = push("--explain", f"{spokes[0].name}/team-a/settings").report["rows"]
    other = push("--clusters", spokes[1].name, "--explain", "team-a").report["rows"]
    unknown = push("--explain", "unknown/team-a/settings")

    assert [each["code"] for each in rows] == ["unchanged"]
    assert [(each["code"], each["reason"]) for each in other] == [
        ("not-a-target", "spec.targets.clusters selects other clusters")
    ]
    assert (unknown.exit_code, "no cluster 'unknown' in the inventory" in unknown.stderr) == (2, True)


def test_copies_of_a_rule_that_appears_during_a_run_stay(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run creates them, while this one has read the rules before, and reads the copies."""
    monkeypatch.setattr(clusters, "ASK_SECONDS", 60.0)  # a whole run, in a process of its own, on a busy machine
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*", names=[spokes[0].name]))
    push()
    spokes[0].api.mark()
    push()
    reads = len(spokes[0].api.requests())
    assert reads > 3
    command = ["sync-copies", "-n", "kube-chores", "--clusters", spokes[0].name, "--kubeconfig", str(hub.kubeconfig)]

    def appear(name: str) -> None:
        hub.create(configmap(home, name, labels={"copy": name}))
        late = fleet(name, home, "team-a", names=[spokes[0].name])
        late["spec"]["selector"] = {"matchLabels": {"copy": name}}
        hub.create(late)
        subprocess.run([sys.executable, "-m", "jobs", *command], check=True, capture_output=True, timeout=300)

    for number in range(reads):
        spokes[0].sandbox.inject(Fault(kind="call-before", call=partial(appear, f"late-{number}"), skip=number))
        ran = push()
        assert (ran.exit_code, "deleted" in ran.summary) == (0, False), ran.stdout


def test_a_rule_that_selects_clusters_no_longer_has_no_status_of_them(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str
) -> None:
    hub.create(configmap(home))
    made = hub.create(fleet("settings", home, "team-*"))
    push()
    hub.patch(made, {"spec": {"targets": {"clusters": None}}})

    assert push().summary == {"deleted": 4}

    status = status_of(hub)
    assert not {"clusters", "pushed"} & status.keys()
    assert "ClustersReady" not in {each["type"] for each in status["conditions"]}
    hub.mark()
    push()
    assert hub.writes() == []


def test_a_cluster_that_does_not_say_which_one_it_is_delays_no_other_for_long(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "ASK_SECONDS", 3.0)
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    released = threading.Event()
    spokes[0].sandbox.inject(Fault("GET", kind="call-before", call=released.wait, times=None))

    ran = push()
    released.set()

    assert (ran.exit_code, ran.summary) == (1, {"created": 2, "unreadable": 1}), ran.stderr + ran.stdout
    assert push().summary == {"created": 2, "unchanged": 2}


def test_clusters_that_a_run_did_not_reach_come_first_in_the_next_one(
    hub: Api, spokes: list[Spoke], spaces: None, push: Run, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.create(configmap(home))
    hub.create(fleet("settings", home, "team-*"))
    monkeypatch.setattr(clusters, "AT_ONCE", 1)
    monkeypatch.setattr(sync_copies_clusters, "RUN_SECONDS", 3.0)
    released = threading.Event()
    for each in spokes:  # the first of them takes all of the time
        each.sandbox.inject(Fault("POST", "*/configmaps", kind="call-before", call=lambda: released.wait(3.5)))

    first, second = push(), push()

    assert first.exit_code == second.exit_code == 1
    reasons = [each["reason"] for each in status_of(hub)["clusters"]]
    assert "not-read" in {each["code"] for each in first.results}, first.stdout
    assert [len(copies(each)) for each in spokes] == [2, 2], reasons
