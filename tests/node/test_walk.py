"""Fields of a RegistryMirror change on a node, and change back: what each of them does alone is in tests/walk."""

from pathlib import Path
from typing import Any

import pytest

from tests.apis import Api
from tests.canary import canary
from tests.mirrors import KINDS, NAMESPACE, NODES, credentials
from tests.node.conftest import Start
from tests.node.mirrored import Mirrored, rolled_out
from tests.one_node import Node
from tests.upstream import Login, Upstream
from tests.upstream import upstream as running
from tests.walk.mirrors import OTHER, TOLERATION, found, shown
from tests.worlds import encoded

pytestmark = [pytest.mark.node, pytest.mark.usefixtures("_installed")]
HOST = "images.example.com"


def resources(lab: Mirrored) -> dict[str, Any]:
    """The resources of the mirror that the model knows, by kind."""
    names = {"PersistentVolumeClaim": (NAMESPACE, lab.mirror.name), "StatefulSet": (NAMESPACE, lab.mirror.name)}
    names["DaemonSet"] = NODES, lab.mirror.daemon_set.name
    return {
        kind: lab.api.read({"apiVersion": KINDS[kind], "kind": kind, "metadata": {"name": name, "namespace": space}})
        for kind, (space, name) in names.items()
    }


def change(lab: Mirrored, **spec: Any) -> None:
    """Replace the spec, repair, and wait until all pods have it."""
    lab.api.replace({**lab.api.read(lab.asked), "spec": spec})
    lab.repair_once_the_upstream_answers()
    for kind, name in (("statefulset", lab.mirror.name), ("daemonset", lab.mirror.daemon_set.name)):
        rolled_out(lab.kubectl, kind, name)


def test_the_fields_of_a_mirror_change_on_a_node_and_change_back(
    node: Node, api: Api, mirrored: Start, upstream: Upstream, tmp_path: Path
) -> None:
    lab, login = mirrored(), Login(canary(), canary())
    before = resources(lab)
    data = {"username": encoded(login.user), "password": encoded(login.password)}
    metadata = {"name": f"important-{api.token}"}
    api.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": 9})
    with running(node, tmp_path / "private", login) as private:
        api.create(credentials("login", private.host, data=data))
        base = {"upstreamUrl": upstream.host}
        amounts = {"requests": {"cpu": "20m"}, "limits": {"memory": "300Mi"}}
        reached = {"registryHost": HOST, "fallback": "None", "ttl": "24h", "tolerations": [TOLERATION]}
        other = {"upstreamUrl": private.host, "credentialsSecret": "login", "allowUnauthenticatedReaders": True}
        placed = {"priorityClassName": metadata["name"], "registryTolerations": [OTHER]}

        for name, source, host, spec in (
            ("reached", upstream, HOST, {**base, **reached, "resources": amounts}),
            ("other", private, private.host, {**other, **placed}),
            ("base", upstream, upstream.host, base),
        ):
            change(lab, **spec)
            assert found(resources(lab)) == shown(spec), name
            image = source.push(name).replace(source.host, host)
            lab.run(name, image)
            assert any(name in each.path for each in lab.accesses()), "the image came through the mirror"

    after = resources(lab)
    assert {kind: each["spec"] for kind, each in after.items()} == {kind: each["spec"] for kind, each in before.items()}
