"""Mirrors on the node whose volume was deleted, whose Service has a foreign pod, or whose login is wrong."""

import time
from pathlib import Path

import pytest

from tests.apis import Api, Object, wait_for
from tests.canary import canary
from tests.mirrors import NAMESPACE, credentials
from tests.namespaces import ADDRESS
from tests.node.conftest import Figure
from tests.node.kubectl import Jobs, Kubectl
from tests.node.mirrored import Mirrored, rolled_out
from tests.one_node import Node
from tests.upstream import Login, Upstream
from tests.upstream import upstream as running

pytestmark = [pytest.mark.node, pytest.mark.usefixtures("_installed")]


def phase(lab: Mirrored) -> str:
    """Return the phase of the claim, empty if it does not exist."""
    found = lab.api.get(lab.mirror.claim.document())
    return str(found["status"]["phase"]) if found else ""


def lose_volume(api: Api, lab: Mirrored) -> None:
    """Delete the volume that the claim is bound to, also its finalizers."""
    volume: Object = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": lab.mirror.name}}
    api.delete(volume)
    if api.get(volume):
        api.patch(volume, {"metadata": {"finalizers": None}})
    wait_for(lambda: phase(lab) == "Lost", "the phase Lost of the claim", 60)


def test_a_mirror_whose_volume_is_deleted_breaks_no_pull_and_is_recreated(
    node: Node, api: Api, jobs: Jobs, upstream: Upstream, kubectl: Kubectl, figure: Figure
) -> None:
    lab = Mirrored(node, api, jobs, upstream)
    uid = api.call("GET", api.path(lab.mirror.claim.document()))["metadata"]["uid"]
    lose_volume(api, lab)
    lab.pod("while-lost", upstream.push("one"))
    figure(f"while the volume of the mirror's claim is deleted: pulled in {lab.runs('while-lost')}")
    found = lab.audit()
    assert (found["status"], found["reason"]) == ("False", "VolumeLost")

    lab.add_volume(name=f"{lab.mirror.name}-new")
    began = time.monotonic()
    lab.repair_once_the_upstream_answers()
    wait_for(lambda: phase(lab) == "Bound", "the new claim to be bound", 60)
    rolled_out(kubectl, "statefulset", lab.mirror.name)
    figure(f"a repair of a claim that lost its volume: {time.monotonic() - began:.0f} s")
    assert (phase(lab), lab.audit()["reason"] == "VolumeLost") == ("Bound", False)
    assert api.call("GET", api.path(lab.mirror.claim.document()))["metadata"]["uid"] != uid
    before = len(lab.accesses())
    lab.run("recreated", upstream.push("two"))
    assert len(lab.accesses()) > before


def foreign_pod(lab: Mirrored) -> Object:
    """Return a pod with the labels of the registry, which is a web server without images."""
    template = lab.mirror.stateful_set.document()["spec"]["template"]
    (container,) = lab.mirror.daemon_set.document()["spec"]["template"]["spec"]["containers"]
    web: Object = {
        "name": "web",
        "image": container["image"],
        "command": ["python3", "-m", "http.server", "5000"],
        "ports": [{"name": "registry", "containerPort": 5000}],
        "securityContext": container["securityContext"],
    }
    security = template["spec"]["securityContext"]
    spec = {"containers": [web], "securityContext": security, "terminationGracePeriodSeconds": 0}
    metadata = {"name": "foreign", "namespace": NAMESPACE, "labels": template["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_a_foreign_pod_behind_the_service_breaks_no_pull_and_is_reported(
    node: Node, api: Api, jobs: Jobs, upstream: Upstream, kubectl: Kubectl, figure: Figure
) -> None:
    lab = Mirrored(node, api, jobs, upstream)
    pod = api.create(foreign_pod(lab))
    kubectl(f"wait pod foreign -n {NAMESPACE} --for=condition=Ready --timeout=60s")
    for number in range(4):
        lab.pod(f"shared-{number}", upstream.push(f"image-{number}"))
        figure(f"a foreign pod behind the mirror's Service: pulled in {lab.runs(f'shared-{number}')}")
    found = [lab.audit() for _ in range(2)]
    assert [each["reason"] for each in found] == ["ForeignEndpoints", "ForeignEndpoints"]
    assert found[0] == found[1]
    assert ADDRESS in {each.sender for each in upstream.accesses()}

    api.delete(pod)
    wait_for(lambda: lab.audit()["reason"] != "ForeignEndpoints", "the end of the finding", 60)


def test_a_login_that_the_upstream_rejects_is_reported_until_it_is_corrected(
    node: Node, api: Api, jobs: Jobs, kubectl: Kubectl, figure: Figure, tmp_path: Path
) -> None:
    login = Login("robot", canary())
    with running(node, tmp_path / "upstream", login) as upstream:
        image = upstream.push("app")
        secret = api.create(credentials("login", upstream.host))
        lab = Mirrored(
            node, api, jobs, upstream, credentialsSecret="login", allowUnauthenticatedReaders=True, fallback="None"
        )
        began = time.monotonic()
        wait_for(lambda: lab.audit()["reason"] == "CredentialsRejected", "the finding", 120)
        figure(f"a login that the upstream rejects: found after {time.monotonic() - began:.0f} s")
        assert f": {upstream.host} rejects its username or password; " in lab.ready["message"]
        lab.pod("refused", image)
        figure(f"a pull while the upstream rejects the login: {lab.waits('refused')}")

        api.patch(secret, {"stringData": {"username": login.user, "password": login.password}})
        lab.repair_once_the_upstream_answers()
        rolled_out(kubectl, "statefulset", lab.mirror.name)
        lab.run("app", upstream.push("other"))  # kubelet may have pulled the first image again meanwhile
        assert lab.audit()["reason"] == "Healthy"
