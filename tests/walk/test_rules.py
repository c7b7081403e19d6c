"""Every mutation of every field of a CopyratorRule, on both servers."""

from pathlib import Path
from typing import Any

import pytest

from tests import model
from tests.api.conftest import Run, runs
from tests.apis import Api
from tests.certificates import certificate, issued
from tests.rights import bind_adopt
from tests.walk.crds import fields
from tests.walk.ground import Placed
from tests.walk.rules import FIELDS, FIELDS_OF_CLUSTERS
from tests.walk.walk import Field, Object, check_row, walk
from tests.worlds import (
    at,
    configmap,
    limit_range,
    network_policy,
    pull_secret,
    resource_quota,
    role_binding,
    rule,
    secret,
    service_account,
)

SCHEMAS = fields("copyrators")
VERSIONS = {"NetworkPolicy": "networking.k8s.io/v1", "RoleBinding": "rbac.authorization.k8s.io/v1"}
BOTH, TRUST = {"copyrator": "true", "stage": "prod"}, {"trust": "internal"}
MOST_RUNS = 4
ATTACHED = "kubechores.dev/pull-secrets"


class Rules(Placed):
    """The ground of a rule: the namespaces and objects of a test, and the job with the rights of its installation."""

    def __init__(self, api: Api, sync: Run) -> None:
        end = f"-{api.token}"
        super().__init__(api, at("kube-chores", rule(f"walk{end}", "", "")))
        self.sync = sync
        api.namespace("home")
        api.namespace("annex")
        api.namespace("team-a", labels={"tier": "web", "size": "big"})
        api.namespace("team-b", labels={"tier": "data", "size": "web"})
        api.namespace("team-c", labels={"tier": "web"})
        api.namespace("kube-extra", annotations={"kubechores.dev/copies": "true"})
        api.namespace("closed", annotations={"kubechores.dev/copies": "false"})
        home, annex = f"home{end}", f"annex{end}"
        settings = configmap(home, labels=BOTH, data={"a": "1", "b": "2"}, binaryData={"raw": "AAEC"})
        settings["metadata"]["annotations"] = {"note": "n", "other": "o"}
        self.made: list[Object] = [
            settings,
            configmap(home, "theme", data={"a": "3"}),
            configmap(home, "plain", labels={"copyrator": "false", "stage": "test"}, data={"a": "4"}),
            configmap(annex, "flags", data={"a": "5"}),
            configmap("kube-chores", f"own{end}", data={"a": "6"}),
            configmap(home, "root-1", labels=TRUST, data={"one.crt": certificate("one"), "note": "none"}),
            configmap(home, "root-2", labels=TRUST, data={"two.crt": certificate("two") + certificate("one")}),
            configmap(home, "taken", labels={}, data={"a": "7"}),
            configmap(f"team-a{end}", "taken", labels={}, data={"a": "theirs"}),
            secret(home),
            issued(home, "ca-1"),
            pull_secret(home, "pull", labels={}),
            network_policy(home),
            limit_range(home),
            resource_quota(home),
            role_binding(home),
            service_account(home),
            *(service_account(f"team-{each}{end}", f"build-{number}") for each in "ab" for number in (1, 2)),
        ]
        for each in self.made:
            api.create(each)
        bind_adopt(api, f"team-a{end}")

    def run(self) -> Any:
        """Run sync-copies until it writes nothing; return the state."""
        for _ in range(MOST_RUNS):
            self.api.mark()
            ran = self.sync()
            if not self.api.copy_writes():
                break
        else:
            raise AssertionError(f"run {MOST_RUNS} writes: {ran}")
        self._check()
        return self.state()

    def _check(self) -> None:
        """Compare the cluster with what the rule requires by the model."""
        reason = self.ready()["reason"]
        if reason == "Invalid":
            return
        there, spaces = {model.place(each): each for each in self.objects()}, self.api.items("v1", "Namespace")
        own = [self.api.read(each) for each in self.made if each["metadata"]["namespace"] == "kube-chores"]
        sources = [*there.values(), *own]
        rules = [each for each in (self.api.get(self.obj),) if each]
        wanted = model.desired(rules, sources, spaces)
        for place, copies in wanted.items():
            found = there.get(place)
            if len(copies) == 1 and not copies[0].refused and (found is None or model.is_managed(found)):
                assert model.is_as(found, copies[0]), (place, found, copies)
        left = [place for place, each in there.items() if model.is_managed(each) and place not in wanted]
        retained = [
            place for place in left if there[place]["metadata"]["annotations"]["kubechores.dev/orphans"] == "Retain"
        ]
        assert reason in ("SourceRefused", "Collision") or left == retained, (reason, left)
        accounts = [each for each in there.values() if each["kind"] == "ServiceAccount"]
        names = model.attached(
            rules, {place: each for place, each in there.items() if model.is_managed(each)}, accounts
        )
        for each in accounts:
            pulls = {one["name"] for one in each.get("imagePullSecrets", ())} - {"registry", "mirror"}
            assert pulls == names.get(model.place(each), set()), (each, names)

    def state(self) -> dict[str, Any]:
        """Return all that a rule may change: objects of the kinds that are copied, and its own status."""
        found: dict[str, Any] = {}
        for each in self.objects():
            metadata = each["metadata"]
            annotations = {**metadata.get("annotations", {})}
            annotations.pop("kubechores.dev/fingerprint", None)
            shown = {key: each[key] for key in model.FIELDS[each["kind"]] if key in each}
            key = f"{each['kind']} {metadata['namespace']}/{metadata['name']}"
            found[key] = shown | {"labels": metadata.get("labels", {}), "annotations": annotations}
        status = (self.api.get(self.obj) or {}).get("status", {})
        counts = {key: status.get(key) for key in ("sources", "desiredCopies", "copies", "conflictCount")}
        return found | {"reason": self.ready()["reason"], "status": counts}

    def objects(self) -> list[Object]:
        found = []
        for kind in model.FIELDS:
            for each in self.api.items(VERSIONS.get(kind, "v1"), kind):
                if each["metadata"]["namespace"].endswith(self.api.token) or model.is_managed(each):
                    found.append(each)
        return found

    def reset(self) -> None:
        """Delete the rule and its copies, and restore what was changed."""
        self.put(None)
        for each in self.objects():
            if model.is_managed(each):
                self.api.delete(each)
        for each in self.made:
            there = self.api.get(each)
            if there is None:
                self.api.create(each)
            elif _own(there) != _own(each):
                self.api.replace(each)


def _own(obj: Object) -> Object:
    metadata = {key: obj["metadata"].get(key) or {} for key in ("labels", "annotations")}
    return {key: obj.get(key) for key in model.FIELDS[obj["kind"]]} | metadata


@pytest.mark.parametrize("row", FIELDS, ids=str)
def test_each_mutation_of_a_field_does_what_the_docs_say(api: Api, installed: Path, row: Field) -> None:
    outcomes, wrong = walk(Rules(api, runs("sync-copies", installed)), row, SCHEMAS[row.path])

    assert wrong == []
    check_row("CopyratorRule", row, outcomes)


def test_each_field_of_a_rule_is_walked() -> None:
    assert {each.path for each in [*FIELDS, *FIELDS_OF_CLUSTERS]} == SCHEMAS.keys()
