"""The copies of the sample namespace-defaults take effect in the namespace of a team."""

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.apis import Api, Object, real_api, wait_for
from tests.canary import canary
from tests.manifests import ROOT, load
from tests.node.conftest import Figure
from tests.node.connections import Connections, serve
from tests.node.enforcer import enforcing
from tests.node.kubectl import Jobs, Kubectl
from tests.node.mirrored import FAILED_TO_PULL
from tests.one_node import Node
from tests.upstream import Login, Upstream, upstream
from tests.worlds import encoded

pytestmark = pytest.mark.node
HOME = "namespace-defaults"
SAMPLES = ROOT / "cronjobs" / "samples" / HOME
POLICY = "default-deny"
PAUSE = "localhost/pause:1"


class Team:
    """The namespace of a team with its copies, and the registry that their login is for."""

    def __init__(self, node: Node, kubectl: Kubectl, api: Api, registry: Upstream, login: Login) -> None:
        self.node, self.kubectl, self.api, self.registry = node, kubectl, api, registry
        self.jobs = Jobs(api, kubectl)
        self.name = api.namespace("team")
        self.elsewhere = api.namespace("elsewhere")
        self.samples = samples(self.name, registry.host, login)
        for obj in self.samples:
            if obj["metadata"]["name"] != POLICY:
                api.create(obj)
        self.first_run = self.copy("first")

    def copy(self, name: str) -> str:
        """Run sync-copies as a Job of this name. Return the last line that it prints."""
        self.jobs.create(name)
        assert self.jobs.end(name) == "Complete", self.jobs.log(name)
        return self.jobs.log(name).splitlines()[-1]

    def read(self, kind: str, name: str, api_version: str = "v1") -> Object:
        """Return an object in the namespace."""
        return self.api.read(in_namespace(self.name, kind, name, api_version))

    def start(self, name: str, image: str = PAUSE, namespace: str = "", **fields: Any) -> Object:
        """Create a pod, by default in the namespace of the team."""
        return self.api.create(pod(name, namespace or self.name, image, **fields))

    def refusal(self, name: str, **resources: Object) -> str:
        """Return why the API server refuses a pod with these resources."""
        refused = pod(name, self.name, PAUSE, resources=resources)
        status, _, body = self.api.request("POST", self.api.path(refused, named=False), refused)
        assert status == 403
        return str(json.loads(body)["message"])

    def run(self, *arguments: Any, **fields: Any) -> Object:
        """Create a pod, wait until it runs, and return it."""
        return self.running(self.start(*arguments, **fields))

    def running(self, obj: Object) -> Object:
        """Wait until a pod runs, and return it."""
        wait_for(lambda: self.api.read(obj)["status"]["phase"] == "Running", f"pod {obj['metadata']['name']}", 60)
        return self.api.read(obj)


def samples(target: str, host: str, login: Login) -> list[Object]:
    """Return the samples for this namespace, with a login for this registry, and with a limit that they do not have."""
    objects = load(SAMPLES)
    for obj in objects:
        if obj["kind"] == "CopyratorRule":
            obj["spec"]["targets"]["include"] = [target]
        if obj["kind"] == "Secret":
            document = {"auths": {host: {"username": login.user, "password": login.password}}}
            del obj["stringData"]
            obj["data"] = {".dockerconfigjson": encoded(json.dumps(document))}
        if obj["kind"] == "LimitRange":
            obj["spec"]["limits"][0]["max"] = {"memory": "1Gi"}
    return objects


def in_namespace(namespace: str, kind: str, name: str, api_version: str = "v1") -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}}


def pod(
    name: str,
    namespace: str,
    image: str,
    labels: Object | None = None,
    service_account: str = "default",
    **container: Any,
) -> Object:
    """Return a pod with one container."""
    obj = in_namespace(namespace, "Pod", name)
    obj["metadata"]["labels"] = labels or {}
    obj["spec"] = {
        "containers": [{"name": "app", "image": image, **container}],
        "serviceAccountName": service_account,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
    }
    return obj


@pytest.fixture(scope="module")
def team(node: Node, kubectl: Kubectl, with_copies: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """A namespace with the copies of all samples but the NetworkPolicy."""
    login, folder = Login("robot", canary()), tmp_path_factory.mktemp("team")
    api = real_api(node.plane, folder)
    try:
        with upstream(node, folder / "registry", login) as registry:
            yield Team(node, kubectl, api, registry, login)
    finally:
        kubectl("delete jobs --all -n kube-chores")
        api.clean()


def test_a_copied_limit_range_sets_defaults_and_refuses_more(team: Team, figure: Figure) -> None:
    (container,) = team.start("without-resources")["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}}

    message = team.refusal("large", limits={"memory": "2Gi"})
    assert "maximum memory usage per Container is 1Gi, but limit is 2Gi" in message
    figure(f"the first run printed: {team.first_run}")
    figure(f"a copied LimitRange refuses: {message.rpartition(': ')[2]}")


def test_a_copied_quota_refuses_more_and_its_status_is_not_a_change(team: Team, figure: Figure) -> None:
    hard = team.read("ResourceQuota", "quota")["spec"]["hard"]
    wait_for(lambda: team.read("ResourceQuota", "quota").get("status", {}).get("hard") == hard, "the quota's status")

    message = team.refusal("many-cpus", requests={"cpu": "9"})
    assert "exceeded quota: quota, requested: requests.cpu=9" in message
    assert team.copy("second").startswith("sync-copies: 5 unchanged (")
    figure(f"a copied ResourceQuota refuses: {message[message.index('exceeded') :]}")


def test_pods_pull_with_a_copied_service_account_and_login(team: Team, figure: Figure) -> None:
    image = team.registry.push("private")
    without = team.start("without-login", image)

    def waits() -> str:
        statuses = team.api.read(without)["status"].get("containerStatuses", [{"state": {}}])
        return str(statuses[0]["state"].get("waiting", {}).get("reason", ""))

    wait_for(lambda: waits() in FAILED_TO_PULL, "the pull without a login to fail")
    assert {each.status for each in team.registry.accesses()} == {401}

    began = time.monotonic()
    pulling = team.start("with-login", image, service_account="deployer")
    assert pulling["spec"]["imagePullSecrets"] == [{"name": "registry-login"}]
    team.running(pulling)
    figure(f"a pod of a copied ServiceAccount runs an image that needs the login: {time.monotonic() - began:.1f} s")


def test_pods_pull_with_a_login_that_a_rule_attaches_to_their_service_account(team: Team, figure: Figure) -> None:
    image = team.registry.push("attached")
    rule = in_namespace("kube-chores", "CopyratorRule", "pull-secret", "kubechores.dev/v1")
    team.api.patch(rule, {"spec": {"attachTo": {"serviceAccounts": ["default"]}}})
    assert "1 patched" in team.copy("attached")

    pulling = team.run("attached", image)
    assert pulling["spec"]["imagePullSecrets"] == [{"name": "registry-login"}], "the pod has none of its own"

    team.api.patch(rule, {"spec": {"attachTo": None}})
    assert "1 patched" in team.copy("detached")
    assert not team.read("ServiceAccount", "default").get("imagePullSecrets")
    figure("a pod without imagePullSecrets runs an image that needs a login, after a rule attached the copy")


def test_a_copied_role_binding_permits_until_its_rule_is_deleted(team: Team, figure: Figure) -> None:
    path = "/api/v1/namespaces/{}/configmaps"

    def answers() -> list[int]:
        places = ((team.name, team.name), (team.name, team.elsewhere), (HOME, team.name))
        tokens = [(team.api.service_account_token(account, "deployer"), place) for account, place in places]
        return [team.api.request("GET", path.format(place), token=token)[0] for token, place in tokens]

    def can_i() -> str:
        account = f"--as=system:serviceaccount:{team.name}:deployer"
        return team.kubectl.shell(f"kubectl auth can-i list configmaps {account} -n {team.name} || true").strip()

    # In its own namespace, elsewhere, and of the ServiceAccount with the same name next to the source.
    assert (answers(), can_i()) == ([200, 403, 403], "yes")
    team.api.delete(in_namespace("kube-chores", "CopyratorRule", "team-view", "kubechores.dev/v1"))
    team.copy("without-binding")
    wait_for(lambda: answers() == [403, 403, 403], "the authorizer to forget the RoleBinding")
    assert can_i() == "no"
    figure("a copied RoleBinding permits a ServiceAccount of the namespace: 200, and 403 after its rule was deleted")


def test_a_copied_network_policy_never_opens_while_its_source_changes(team: Team, figure: Figure) -> None:
    (container,) = team.jobs.template("server")["spec"]["template"]["spec"]["containers"]
    server = serve(team.run, container["image"])
    connect = partial(Connections, team.api, team.run, container["image"], server)
    outside = connect("outside", namespace=team.elsewhere)
    client = connect("client", labels={"role": "client"})
    other = connect("other")
    sample = {obj["kind"]: obj for obj in team.samples if obj["metadata"]["name"] == POLICY}
    rule, source = sample["CopyratorRule"], sample["NetworkPolicy"]
    with enforcing(team.node, team.api, team.kubectl, team.name) as enforcer:
        for each in (outside, client, other):
            each.wait("open")

        team.api.create(source)
        team.api.create(rule)
        team.copy("policy")
        outside.wait("open", "refused")
        began = outside.attempts()

        peers = [{"from": [{"podSelector": {"matchLabels": {"role": "client"}}}]}]
        team.api.patch(source, {"spec": {"ingress": peers}})
        team.copy("edited-policy")
        other.wait("open", "refused")
        assert outside.changes() == ["open", "refused"]

        team.api.delete(rule)
        team.copy("without-policy")
        for each in (outside, other):
            each.wait("open", "refused", "open")
        assert client.changes() == ["open"]
    assert [each.event for each in enforcer.enforced] == ["ADDED", "MODIFIED", "DELETED"]
    assert len({each.uid for each in enforcer.enforced}) == 1, "the copy is never recreated"
    figure(f"a copied NetworkPolicy refused all {outside.attempts() - began} connections until its rule was deleted")
