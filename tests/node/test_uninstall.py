"""An uninstall removes what was installed and leaves copies, which a new installation manages again."""

import time
from collections.abc import Iterator

import pytest

from tests.apis import OURS, Api, Object, wait_for
from tests.manifests import everything
from tests.more_kinds import MORE_KINDS, of_kind
from tests.namespaces import ADDRESS
from tests.node.conftest import Figure, Start
from tests.node.kubectl import Jobs, Kubectl, install
from tests.upstream import Upstream
from tests.worlds import SELECTED, at, configmap, content, rule, secret

pytestmark = pytest.mark.node

PART = "app.kubernetes.io/part-of=kube-chores"


@pytest.fixture
def copied(api: Api, jobs: Jobs) -> list[Object]:
    """Two sources, their copies, and an object that is not a copy."""
    home, team = api.namespace("home"), api.namespace("team")
    sources = [api.create(configmap(home)), api.create(secret(home))]
    for obj in rules(api, home, team):
        api.create(obj)
    jobs.create("before")
    assert jobs.end("before") == "Complete"
    copies = [api.get(at(team, source)) for source in sources]
    theirs = [api.create(configmap(team, "theirs", labels={}))]
    read_all_kinds(api)
    return [obj for obj in (*sources, *copies, *theirs) if obj]


def read_all_kinds(api: Api) -> None:
    """List our custom resources: kube-apiserver can take five minutes to delete a new CRD that nobody has read."""
    plurals = [crd["spec"]["names"]["plural"] for crd in everything() if crd["kind"] == "CustomResourceDefinition"]
    paths = [f"/apis/kubechores.dev/v1/{plural}" for plural in plurals]
    wait_for(lambda: all(api.request("GET", path)[0] == 200 for path in paths), f"a list of each of {plurals}")


def rules(api: Api, home: str, team: str) -> list[Object]:
    return [rule(f"{kind}s-{api.token}", home, team, ruleType=kind) for kind in ("configmap", "secret")]


def copies_of_more_kinds(api: Api, jobs: Jobs, copied: list[Object]) -> list[Object]:
    """Copy one object of each kind that needs a component, between the namespaces of the other copies."""
    home, team = (copied[index]["metadata"]["namespace"] for index in (0, 2))
    for kind in MORE_KINDS:
        api.create(of_kind(kind, home, SELECTED))
        api.create(rule(f"{kind.lower()}s", home, team, ruleType=kind.lower()))
    jobs.create("more")
    assert jobs.end("more") == "Complete"
    return [api.read(of_kind(kind, team)) for kind in MORE_KINDS]


@pytest.fixture
def installed_again(kubectl: Kubectl) -> Iterator[None]:
    """Install kube-chores again for the tests that follow."""
    yield
    install(kubectl)


@pytest.mark.usefixtures("installed_again")
@pytest.mark.usefixtures("with_copies")
def test_an_uninstall_leaves_copies_and_unmanaged_objects(
    api: Api, jobs: Jobs, kubectl: Kubectl, copied: list[Object], figure: Figure
) -> None:
    assert len(copied) == 5
    more = copies_of_more_kinds(api, jobs, copied)
    jobs.create("under-way", command=["sleep", "600"])
    jobs.running("under-way")
    began = time.monotonic()
    kubectl.from_docs("kubectl delete namespace kube-chores-nodes")
    kubectl.from_docs("kubectl delete -k cronjobs/mirror-repair")
    kubectl.from_docs("kubectl delete -k cronjobs/mirror-audit")
    kubectl.from_docs("kubectl delete -k cronjobs ")
    kubectl.from_docs("kubectl delete clusterroles,clusterrolebindings")
    figure(f"uninstall, while a Job runs: {time.monotonic() - began:.1f} s")

    assert [api.get(obj) for obj in copied] == copied
    assert [api.read(obj)["metadata"]["uid"] for obj in more] == [obj["metadata"]["uid"] for obj in more]
    shipped = [obj for obj in everything() if "kubechores.dev" not in obj["apiVersion"]]
    assert [obj["metadata"]["name"] for obj in shipped if api.get(obj)] == []
    for kind in ("ClusterRole", "ClusterRoleBinding"):
        assert api.items("rbac.authorization.k8s.io/v1", kind, labelSelector=PART) == []
    assert api.request("GET", "/apis/kubechores.dev/v1")[0] == 404
    phases = {obj["metadata"]["name"]: obj["status"]["phase"] for obj in api.items("v1", "Namespace")}
    assert [name for name in phases if name.startswith("kube-chores")] == []


@pytest.mark.usefixtures("installed_again")
def test_a_new_installation_manages_the_copies_and_deletes_them_without_their_rules(
    api: Api, jobs: Jobs, kubectl: Kubectl, copied: list[Object]
) -> None:
    home, team = (copied[index]["metadata"]["namespace"] for index in (0, 2))
    kubectl.from_docs("kubectl delete -k cronjobs")
    # A run before the CronJobs are suspended would find no rules, and delete the copies.
    wait_for(lambda: time.time() % 60 < 40, "the beginning of a minute")
    install(kubectl)
    for obj in rules(api, home, team):
        api.create(obj)
    jobs.create("again")
    assert jobs.end("again") == "Complete"
    assert "sync-copies: 2 unchanged" in jobs.log("again")
    assert [api.get(obj) for obj in copied] == copied

    for obj in rules(api, home, team):
        api.delete(obj)
    jobs.create("without-rules")
    assert jobs.end("without-rules") == "Complete"
    assert [content(api.get(obj)) for obj in copied] == [*map(content, copied[:2]), None, None, content(copied[4])]


@pytest.mark.usefixtures("installed_again")
def test_an_uninstall_is_refused_until_nodes_no_longer_use_mirrors(
    api: Api, kubectl: Kubectl, mirrored: Start, upstream: Upstream
) -> None:
    lab = mirrored(fallback="None")
    read_all_kinds(api)
    images = [upstream.push(name) for name in ("meanwhile", "afterwards")]
    refused = f"registrymirror/{lab.mirror.registry_mirror.name} exists, so nodes may pull through it"

    with pytest.raises(AssertionError, match=refused):
        kubectl.from_docs("kubectl delete namespace kube-chores-nodes")
    with pytest.raises(AssertionError, match=refused):
        kubectl.from_docs("kubectl delete -k cronjobs ")
    lab.run("meanwhile", images[0])
    assert ADDRESS not in {each.sender for each in upstream.accesses()}

    kubectl("wait --for=delete namespace/kube-chores --timeout=60s")
    install(kubectl)
    api.delete(lab.asked)
    lab.repair()
    assert not lab.hosts_toml.exists()
    read_all_kinds(api)
    for part in ("mirror-repair", "mirror-audit", ""):
        kubectl(f"delete -k cronjobs/{part} --ignore-not-found")
    assert api.request("GET", "/apis/kubechores.dev/v1")[0] == 404
    lab.run("afterwards", images[1])


def test_copies_can_be_deleted_by_hand(api: Api, kubectl: Kubectl, copied: list[Object]) -> None:
    deleted = kubectl.from_docs("kubectl delete configmaps,secrets -A -l")
    assert len(deleted.splitlines()) == 2
    assert api.items("v1", "ConfigMap", labelSelector=OURS) == api.items("v1", "Secret", labelSelector=OURS) == []
    assert [bool(api.get(obj)) for obj in copied] == [True, True, False, False, True]
