"""sync-copies --clusters: the worlds in which runs use the rights of its account, and of the one in a spoke."""

from collections.abc import Callable

import pytest

from jobs.commands.manifests import HUB
from jobs.kit.values.registry import CLUSTERS
from tests.api.conftest import Run
from tests.api.test_inventory import CRD, EXTENSION
from tests.apis import Api, Object, wait_for
from tests.every_job import RightsWorld
from tests.hostile_clusters import kubeconfig
from tests.rights import account, can_i, grant
from tests.worlds import (
    at,
    configmap,
    encoded,
    limit_range,
    namespace_object,
    network_policy,
    resource_quota,
    rule,
    secret,
)

HERE = ("-n", "kube-chores", "--clusters")
IN_SPOKES = (configmap, secret)  # what the account in a spoke can write


def _fleet_rule(kind: str, home: str, to: str) -> Object:
    made = rule(kind.lower(), home, to, ruleType=kind.lower())
    made["spec"]["targets"]["clusters"] = {}
    return made


def _authority(api: Api) -> bytes:
    assert api.ca_file
    return api.ca_file.read_bytes()


# the account in the hub


def _to_push(request: pytest.FixtureRequest, _push: Run) -> None:
    """Build a hub with sources of each kind, and a spoke with an object in the place of a copy, which is an Event."""
    hub, spoke = request.getfixturevalue("api"), request.getfixturevalue("other")
    home = hub.namespace("home")
    spoke.create(namespace_object("team"))
    makers: tuple[Callable[..., Object], ...] = (*IN_SPOKES, limit_range, network_policy, resource_quota)
    for make in makers:
        source = hub.create(make(home))
        hub.create(_fleet_rule(source["kind"], home, "team"))
    spoke.create(configmap("team", labels={}))
    _profile(hub, spoke)


def _profile(hub: Api, spoke: Api) -> None:
    """Add the spoke to the inventory: a ClusterProfile, and a Secret with the token that it names."""
    name = f"spoke-{hub.token}"
    token = hub.create(secret("kube-chores", name, labels={}))
    hub.patch(token, {"data": {"token": encoded(spoke.admin_token)}})
    wait_for(lambda: hub.get(CRD) is None, "an earlier test's CRD to be deleted")
    hub.create(CRD)
    made = hub.create(
        {
            "apiVersion": "multicluster.x-k8s.io/v1alpha1",
            "kind": "ClusterProfile",
            "metadata": {"name": name, "namespace": "kube-chores"},
            "spec": {"clusterManager": {"name": "tests"}},
        }
    )
    cluster = {
        "server": spoke.url,
        "certificate-authority-data": encoded(_authority(spoke).decode()),
        "extensions": [{"name": EXTENSION, "extension": {"clusterName": name}}],
    }
    hub.patch_status(made, {"accessProviders": [{"name": "secretreader", "cluster": cluster}]})


# the account in a spoke


def _to_be_pushed_to(request: pytest.FixtureRequest, push_here: Run) -> None:
    """Build a spoke in which a run of the hub has a write of each kind, and conflicts."""
    spoke, hub = request.getfixturevalue("api"), request.getfixturevalue("other")
    team = spoke.namespace("team")
    hub.create(namespace_object("home"))
    for make in IN_SPOKES:
        for name in ("kept", "withdrawn"):
            hub.create(make("home", name))
        hub.create(_fleet_rule(make("")["kind"], "home", team))
    _enlist(hub, spoke)
    ran = push_here(*HERE, "*")
    assert (ran.exit_code, ran.summary) == (0, {"created": 4}), ran
    for make in IN_SPOKES:
        hub.delete(make("home", "withdrawn"))
        spoke.patch(at(team, make("home", "kept")), {"data": {"extra": "eA=="}})
        for name in ("fresh", "taken"):
            hub.create(make("home", name))
        spoke.create(make(team, "taken", labels={}))


def _enlist(hub: Api, spoke: Api) -> None:
    """Add the spoke to the inventory, with its account, which can write copies of this hub."""
    uid = hub.read(namespace_object("kube-system"))["metadata"]["uid"]
    hubs = {"apiGroups": ["kubechores.dev"], "resources": ["hubs"], "resourceNames": [uid], "verbs": ["push"]}
    grant(spoke, account("kube-chores", HUB), hubs)
    wait_for(lambda: can_i(spoke, HUB, "push", "hubs", of=uid), "the right to push")
    config = kubeconfig(spoke.url, _authority(spoke), spoke.service_account_token("kube-chores", HUB))
    labels = {"kubechores.dev/cluster": "true"}
    hub.create(secret("kube-chores", "spoke", labels=labels, data={"value": encoded(config)}))


RIGHTS = [
    RightsWorld(CLUSTERS, _to_push, "push"),
    RightsWorld(HUB, _to_be_pushed_to, "push_here", (*HERE, "*")),
]
