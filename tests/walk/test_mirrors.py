"""Every mutation of every field of a RegistryMirror, repaired, on the embedded server; on a node: tests/node."""

import json
import re
from typing import Any

import pytest

from tests.api.conftest import OWN_IMAGE, Run, run_in_a_pod, runs
from tests.apis import Api, Object
from tests.mirrors import KINDS, NAMESPACE, NODES, Mirrors, credentials, registry_mirror
from tests.walk.crds import fields
from tests.walk.ground import Placed
from tests.walk.mirrors import FIELDS, found, shown
from tests.walk.walk import Field, check_row, walk

SCHEMAS = fields("registrymirrors")
MOST_RUNS = 12
CLAIM = {"size", "class"}
# Reasons of mirrors, and the fields that stay as they were.
STAYING: dict[str, set[str]] = {
    "NotProbed": set(),
    "ImageDependsOnMirror": set(),
    "Drifted": CLAIM,
    "VolumeShrink": CLAIM,
}
EXPOSED = ("CredentialsExposed", "Missing")  # the registry is not changed, or not created
HASH = re.compile(r'"kubechores.dev/config-hash": "\w+"')  # also of the address


class Repaired(Placed):
    """The ground of a RegistryMirror: its resources, which a repair maintains, and controllers that do their work."""

    def __init__(self, api: Api, mirrors: Mirrors, repair: Run) -> None:
        self.mirrors, self.repair, name = mirrors, repair, mirrors.name()
        self.last: Object | None = None  # its nodes and pods also act after it was deleted
        made = registry_mirror(name)
        super().__init__(api, {key: made[key] for key in ("apiVersion", "kind", "metadata")})
        for each in ("login", "other"):
            api.create(credentials(mirrors.name(each)))
        for each in ("fast", "slow"):
            metadata, version = {"name": mirrors.name(each)}, "storage.k8s.io/v1"
            able = {"provisioner": "example.com/none", "allowVolumeExpansion": True}
            api.create({"apiVersion": version, "kind": "StorageClass", "metadata": metadata, **able})
        for each in ("important", "other"):
            metadata, version = {"name": mirrors.name(each)}, "scheduling.k8s.io/v1"
            api.create({"apiVersion": version, "kind": "PriorityClass", "metadata": metadata, "value": 9})

    def run(self) -> dict[str, Any]:
        """Repair until nothing is written; return the resources."""
        is_quiet = False
        for _ in range(MOST_RUNS):
            self.api.mark()
            ran = self.repair()
            writes = [each for each in self.api.writes() if not each.path.endswith(("/status", "/events"))]
            if self.ready()["reason"] != "Invalid":
                self.last = self.api.get(self.obj) or self.last
                self.mirrors.settle(self.mirrors.of(self.last)) if self.last else None
            if not writes and is_quiet:
                break
            is_quiet = not writes
        else:
            raise AssertionError(f"run {MOST_RUNS} writes: {ran}")
        resources = {kind: self.resource(kind) for kind in ("PersistentVolumeClaim", "StatefulSet", "DaemonSet")}
        reason = self.ready()["reason"]
        self._check(resources, reason)
        service = self.resource("Service")
        address = service["spec"]["clusterIP"] if service else "none"
        specs = json.dumps({kind: each and each["spec"] for kind, each in resources.items()})
        state: dict[str, Any] = json.loads(HASH.sub('"hash": ""', specs).replace(address, "ADDRESS"))
        return state | {"reason": reason}

    def _check(self, resources: dict[str, Any], reason: str) -> None:
        """Compare the resources with those that docs/registrymirror.md describes for this spec and reason."""
        if reason == "Invalid":
            return
        there = self.api.get(self.obj)
        if there is None:
            assert [kind for kind, each in resources.items() if each] in ([], ["PersistentVolumeClaim"])
        elif there["spec"].get("credentialsSecret") and not there["spec"].get("allowUnauthenticatedReaders"):
            assert reason == EXPOSED[resources["StatefulSet"] is None]
        else:
            other = {key for key, each in shown(there["spec"]).items() if found(resources)[key] != each}
            assert other <= STAYING[reason], (reason, other)

    def resource(self, kind: str) -> Object | None:
        """A resource of the mirror."""
        suffix, namespace = ("-node", NODES) if kind == "DaemonSet" else ("", NAMESPACE)
        metadata = {"name": f"registry-mirror-{self.obj['metadata']['name']}{suffix}", "namespace": namespace}
        return self.api.get({"apiVersion": KINDS[kind], "kind": kind, "metadata": metadata})

    def reset(self) -> None:
        """Delete the mirror with its resources."""
        self.put(None)
        self.last = None
        for kind in KINDS:
            if there := self.resource(kind):
                self.api.delete(there)


@pytest.mark.parametrize("api", ["sandbox"], indirect=True)  # the real one has no volumes: tests/node
@pytest.mark.parametrize("row", FIELDS, ids=str)
def test_each_mutation_of_a_field_does_what_the_docs_say(
    api: Api, installed: object, monkeypatch: pytest.MonkeyPatch, row: Field
) -> None:
    mirrors = Mirrors(api, [Mirrors(api).node()])
    run_in_a_pod(api, monkeypatch, OWN_IMAGE)
    run = runs("mirror-audit", api.service_account_kubeconfig("kube-chores", "mirror-repair"))
    ground = Repaired(api, mirrors, lambda *arguments: run("--repair", *arguments))

    outcomes, wrong = walk(ground, row, SCHEMAS[row.path])

    assert wrong == []
    check_row("RegistryMirror", row, outcomes)


def test_each_field_of_a_registry_mirror_is_walked() -> None:
    assert {each.path for each in FIELDS} == SCHEMAS.keys()
