"""Every mutation of the fields of a CopyratorRule that choose other clusters; their API servers are embedded."""

import copy
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from kubesandbox import Sandbox
from tests import embedded, model
from tests.api.conftest import Run, runs
from tests.api.test_clusters import Spoke, enlist
from tests.apis import Api, sandbox_api
from tests.rights import account, grant
from tests.walk.crds import fields
from tests.walk.ground import Placed
from tests.walk.rules import FIELDS_OF_CLUSTERS
from tests.walk.walk import Field, Object, check_row, walk
from tests.worlds import at, configmap, namespace_object, rule

SCHEMAS = fields("copyrators")
LABELS = {"one": {"zone": "eu", "env": "prod", "size": "big"}, "two": {"zone": "eu", "env": "test"}}


class Pushed(Placed):
    """The ground of a rule for other clusters: the inventory of the hub, and namespaces in the clusters."""

    def __init__(self, hub: Api, spokes: list[Spoke], push: Run) -> None:
        super().__init__(hub, at("kube-chores", rule(f"walk-{hub.token}", "", "")))
        self.spokes, self.push = spokes, push
        home = hub.namespace("home")
        self.source = hub.create(configmap(home, data={"a": "1", "b": "2"}))
        for spoke, labels in zip(spokes, LABELS.values(), strict=True):
            enlist(hub, spoke, **labels)
            for name in ("team-a", "team-b"):
                spoke.api.create(namespace_object(name))

    def run(self) -> dict[str, Any]:
        """Run sync-copies --clusters twice; return the copies in each cluster."""
        for _ in range(2):
            ran = self.push()
            assert ran.exit_code in (0, 4), ran
        self._check()
        found: dict[str, Any] = {
            spoke.name: {model.place(each): each["data"] for each in _copies(spoke)} for spoke in self.spokes
        }
        return found | {"reason": self.ready()["reason"]}

    def _check(self) -> None:
        """Compare the clusters with what the rule requires by the model."""
        there = self.api.get(self.obj)
        for spoke, labels in zip(self.spokes, LABELS.values(), strict=True):
            rules = [_in_cluster(there)] if there and _selects(there, spoke.name, labels) else []
            wanted = model.desired(rules, [self.source], spoke.api.items("v1", "Namespace"))
            assert {model.place(each) for each in _copies(spoke)} == wanted.keys(), spoke.name

    def reset(self) -> None:
        """Delete the rule and its copies."""
        self.put(None)
        for spoke in self.spokes:
            for each in _copies(spoke):
                spoke.api.delete(each)


def _copies(spoke: Spoke) -> list[Object]:
    return [each for each in spoke.api.items("v1", "ConfigMap") if model.is_managed(each)]


def _in_cluster(rule: Object) -> Object:
    made = copy.deepcopy(rule)
    del made["spec"]["targets"]["clusters"]
    return made


def _selects(rule: Object, name: str, labels: dict[str, str]) -> bool:
    clusters = rule["spec"].get("targets", {}).get("clusters")
    if clusters is None:
        return False
    is_named = any(fnmatchcase(name, each) for each in clusters.get("names", ["*"]))
    return is_named and model.matches(clusters.get("selector"), labels)


@pytest.fixture
def spokes(api: Api, installed: Path, tmp_path: Path) -> Iterator[list[Spoke]]:
    """Two clusters in which the account of the job has the rights of a hub's."""
    uid = api.read(namespace_object("kube-system"))["metadata"]["uid"]
    made = []
    for name in LABELS:
        (tmp_path / name).mkdir()
        sandbox = Sandbox(of=embedded.installed(), tls=True)
        sandbox.start()
        made.append(Spoke(f"{name}-{api.token}", sandbox, sandbox_api(sandbox, tmp_path / name)))
        push = {"apiGroups": ["kubechores.dev"], "resources": ["hubs"], "resourceNames": [uid], "verbs": ["push"]}
        grant(made[-1].api, account("kube-chores", "sync-copies"), push)
    yield made
    for each in made:
        each.sandbox.stop()


@pytest.mark.parametrize("row", FIELDS_OF_CLUSTERS, ids=str)
def test_each_mutation_of_a_field_does_what_the_docs_say(api: Api, spokes: list[Spoke], row: Field) -> None:
    run = runs("sync-copies", api.service_account_kubeconfig("kube-chores", "sync-copies-clusters"))
    ground = Pushed(api, spokes, lambda *given: run("-n", "kube-chores", "--clusters", f"*-{api.token}", *given))

    outcomes, wrong = walk(ground, row, SCHEMAS[row.path])

    assert wrong == []
    check_row("CopyratorRule", row, outcomes)
