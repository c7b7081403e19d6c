"""Rules and sources in another cluster, the hub: sync-copies --source-kubeconfig."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kubesandbox import Sandbox
from tests import embedded
from tests.api.conftest import Run, runs
from tests.apis import Api, sandbox_api
from tests.rights import account, grant
from tests.worlds import at, configmap, namespace_object, rule

HUB = "kubechores.dev/hub"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Api]:
    """A cluster with rules and sources."""
    folder = tmp_path / "hub"
    folder.mkdir()
    with Sandbox(of=embedded.installed()) as sandbox:
        yield sandbox_api(sandbox, folder)


@pytest.fixture
def uid(hub: Api) -> str:
    return str(hub.read(namespace_object("kube-system"))["metadata"]["uid"])


@pytest.fixture
def pull(api: Api, installed: Path, hub: Api, uid: str) -> Run:
    """Run sync-copies with the rules and sources of the hub."""
    push = {"apiGroups": ["kubechores.dev"], "resources": ["hubs"], "resourceNames": [uid], "verbs": ["push"]}
    grant(api, account("kube-chores", "sync-copies"), push)
    run = runs("sync-copies", installed)
    there = hub.service_account_kubeconfig("kube-chores", "sync-copies")
    return lambda *arguments, **given: run("--source-kubeconfig", str(there), *arguments, **given)


@pytest.fixture
def there(hub: Api) -> str:
    """A namespace of the hub with sources."""
    return hub.namespace("there")


def test_copies_of_the_rules_of_a_hub_have_its_uid_and_the_hub_is_only_read(
    api: Api, hub: Api, uid: str, pull: Run, there: str, team: str
) -> None:
    source = hub.create(configmap(there))
    hub.create(rule("settings", there, [team, there]))
    hub.mark()

    assert pull().summary == {"created": 1}
    labels = api.read(at(team, source))["metadata"]["labels"]
    assert (labels[HUB], labels["kubechores.dev/rule-namespace"]) == (uid, "kube-chores")
    assert pull().summary == {"unchanged": 1}
    assert {each.method for each in hub.requests()} == {"GET"}
    hub.patch(source, {"data": {"a": "changed"}})
    assert pull().summary == {"configured": 1}
    assert api.read(at(team, source))["data"]["a"] == "changed"
    hub.delete(rule("settings", "", ""))
    assert pull().summary == {"deleted": 1}


def test_an_installation_in_the_cluster_and_a_hub_leave_each_others_copies(
    api: Api, hub: Api, pull: Run, sync: Run, there: str, home: str, team: str
) -> None:
    other = api.namespace("other")
    source = hub.create(configmap(there))
    hub.create(rule("settings", there, [team, other]))
    api.create(configmap(home, "local"))
    api.create(rule("settings", home, [team, other]))

    assert pull().summary == {"created": 2}
    assert sync().summary == {"created": 2}
    before = [api.read(at(space, source)) for space in (team, other)]
    api.create(configmap(home))
    ran = sync()
    assert ran.summary == {"conflict": 2, "unchanged": 2}
    api.delete(rule("settings", "", ""))
    assert sync().summary == {"deleted": 2}
    assert [api.read(at(space, source)) for space in (team, other)] == before
    assert pull().summary == {"unchanged": 2}


def test_copies_of_another_hub_are_not_those_of_this_one(api: Api, hub: Api, pull: Run, there: str, team: str) -> None:
    source = hub.create(configmap(there))
    hub.create(rule("settings", there, team))
    pull()
    api.patch(at(team, source), {"metadata": {"labels": {HUB: "11111111-2222-3333-4444-555555555555"}}})

    assert pull().summary == {"conflict": 1}
    hub.delete(rule("settings", "", ""))
    assert pull().summary == {}
    assert api.get(at(team, source))


def test_a_hub_that_does_not_answer_changes_nothing(api: Api, hub: Api, pull: Run, there: str, team: str) -> None:
    source = hub.create(configmap(there))
    hub.create(rule("settings", there, team))
    pull()
    before = api.read(at(team, source))
    nowhere = (
        "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"
    )
    nowhere += 'clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]\nusers: [{name: a, user: {}}]\n'
    file = hub.folder / "nowhere"
    file.write_text(nowhere)

    ran = pull("--source-kubeconfig", str(file))

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert "no connection to a cluster: http://127.0.0.1:1: " in ran.stderr
    assert api.read(at(team, source)) == before


def test_deletions_because_of_a_mistake_in_the_hub_are_braked(
    api: Api, hub: Api, pull: Run, there: str, team: str
) -> None:
    source = hub.create(configmap(there))
    made = hub.create(rule("settings", there, team))
    pull()
    hub.patch(made, {"spec": {"namespaces": ["typo"]}})

    assert pull().exit_code == 4
    assert api.get(at(team, source))


def test_rules_of_a_hub_that_would_give_rights_or_are_pushed_are_left_out(
    hub: Api, pull: Run, there: str, team: str
) -> None:
    hub.create(configmap(there))
    pushed = rule("pushed", there, team)
    pushed["spec"]["targets"]["clusters"] = {"names": ["one"]}
    hub.create(pushed)
    hub.create(rule("rights", there, team, ruleType="rolebinding"))
    hub.create(rule("settings", there, team))

    ran = pull("-v")

    assert (ran.exit_code, ran.summary) == (0, {"created": 1, "skipped": 2})
    reasons = {each["object"]["name"]: each["reason"] for each in ran.results if each["code"] == "skipped"}
    assert "would give rights" in reasons["rights"]
    assert "spec.targets.clusters" in reasons["pushed"]


def test_the_namespace_of_the_rules_is_one_of_the_hub(
    api: Api, hub: Api, installed: Path, uid: str, there: str, team: str
) -> None:
    """Nobody has to create it where the copies are."""
    push = {"apiGroups": ["kubechores.dev"], "resources": ["hubs"], "resourceNames": [uid], "verbs": ["push"]}
    grant(api, account("kube-chores", "sync-copies"), push)
    edge = hub.namespace("edge")
    source = hub.create(configmap(there))
    of_edge = rule("settings", there, team)
    of_edge["metadata"]["namespace"] = edge
    hub.create(of_edge)

    ran = runs("sync-copies", installed)("-n", edge, "--source-kubeconfig", str(hub.kubeconfig))

    assert ran.summary == {"created": 1}, ran.stderr
    assert api.read(at(team, source))["metadata"]["labels"]["kubechores.dev/rule-namespace"] == edge


def test_a_place_is_explained_with_the_rules_of_the_hub(hub: Api, pull: Run, there: str, team: str) -> None:
    hub.create(configmap(there))
    hub.create(rule("settings", there, team))
    pull()

    assert [each["code"] for each in pull("--explain", f"{team}/settings").report["rows"]] == ["unchanged"]
