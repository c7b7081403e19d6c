"""FarmPods of running pods: the job creates them, and the garbage collector deletes them while the job is suspended."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.apis import Api, wait_for
from tests.farm import farm_pod, farmed, listed, owner, pod, wait_until_collected
from tests.node.conftest import Figure
from tests.node.kubectl import Jobs, Kubectl

pytestmark = pytest.mark.node
Object = dict[str, Any]
Start = Callable[..., Object]


@pytest.fixture
def shop(api: Api, jobs: Jobs) -> str:
    return farmed(api)


@pytest.fixture
def start(api: Api, jobs: Jobs, shop: str) -> Start:
    """Start a pod of the project's image that sleeps, and wait until it runs."""
    (container,) = jobs.template("sleeper", "farm-pods")["spec"]["template"]["spec"]["containers"]

    def start(name: str, containers: int = 2) -> Object:
        manifest = pod(shop, name, containers)
        manifest["spec"] = {"terminationGracePeriodSeconds": 1, "containers": manifest["spec"]["containers"]}
        for each in manifest["spec"]["containers"]:
            each |= {"image": container["image"], "command": ["sleep", "600"]}
        created = api.create(manifest)
        wait_for(lambda: api.read(created)["status"]["phase"] == "Running", f"pod {name} to run", 60)
        return created

    return start


def run_job(jobs: Jobs, name: str) -> str:
    """Run farm-pods once, in a pod. Return its log."""
    jobs.create(name, of="farm-pods")
    assert jobs.end(name) == "Complete"
    return jobs.log(name)


def test_a_farm_pod_is_deleted_with_its_pod_while_the_job_is_suspended(
    api: Api, jobs: Jobs, kubectl: Kubectl, shop: str, start: Start, figure: Figure
) -> None:
    start("web-0")
    start("web-1")
    kubectl.from_docs("kubectl create job farm --from=cronjob/farm-pods")
    assert jobs.end("farm") == "Complete"
    assert "farm-pods: 2 created (2 pods, 1 namespace)" in jobs.log("farm")
    columns = [line.split()[:3] for line in kubectl(f"get fp -n {shop}").splitlines()]
    assert columns == [["NAME", "CONTAINERS", "POD"], ["farm-web-0", "2", "web-0"], ["farm-web-1", "2", "web-1"]]
    suspended = kubectl("get cronjob farm-pods -n kube-chores -o jsonpath={.spec.suspend}")
    assert suspended == "true"
    # The garbage collector discovers new kinds twice a minute, and the CRDs may just have been installed.
    past = {"apiVersion": "v1", "kind": "Pod", "name": "past", "uid": "of-the-past"}
    wait_until_collected(api, api.create(farm_pod(shop, "past", ownerReferences=[past])))
    api.mark()

    kubectl(f"delete pod web-0 -n {shop}")
    began = time.monotonic()
    wait_until_collected(api, farm_pod(shop, "web-0"))

    figure(f"a FarmPod collected after its pod was deleted: {time.monotonic() - began:.2f} s")
    assert list(listed(api, shop)) == ["farm-web-1"]
    assert api.requests() == []


def test_a_recreated_pod_of_the_same_name_owns_its_farm_pod(
    api: Api, jobs: Jobs, kubectl: Kubectl, shop: str, start: Start
) -> None:
    first = start("web")
    run_job(jobs, "first")
    created = listed(api, shop)["farm-web"]
    assert created["metadata"]["ownerReferences"] == [owner(first)]

    kubectl(f"delete pod web -n {shop}")
    wait_until_collected(api, created)
    second = start("web", containers=1)
    run_job(jobs, "second")
    recreated = listed(api, shop)["farm-web"]

    kubectl(f"delete pod web -n {shop} --cascade=orphan")
    third = start("web")
    assert "metadata.ownerReferences, spec.containers changed" in run_job(jobs, "third")
    adopted = listed(api, shop)["farm-web"]

    assert len({each["metadata"]["uid"] for each in (first, second, third)}) == 3
    assert recreated["metadata"]["uid"] != created["metadata"]["uid"] != adopted["metadata"]["uid"]
    assert recreated["metadata"]["ownerReferences"] == [owner(second)]
    assert adopted["metadata"]["uid"] == recreated["metadata"]["uid"], "it was not deleted: it got the new owner"
    assert (adopted["metadata"]["ownerReferences"], adopted["spec"]["containers"]) == ([owner(third)], 2)


def test_names_at_the_limit(api: Api, jobs: Jobs, kubectl: Kubectl, shop: str) -> None:
    names = ["a" * 248, "b" * 249, "c" * 253]
    for name in names:
        manifest = pod(shop, name)
        manifest["spec"]["nodeSelector"] = {
            "no": "node"
        }  # a node cannot run it: the name of its log folder is too long
        api.create(manifest)

    run_job(jobs, "long")

    found = listed(api, shop)
    assert {each["spec"]["pod"] for each in found.values()} == set(names)
    assert [len(name) for name in found] == [253] * 3
    assert "3 unchanged" in run_job(jobs, "again")
    kubectl(f"delete pods --all -n {shop}")
    for each in found.values():
        wait_until_collected(api, each)
