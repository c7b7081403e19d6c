"""farm-pods while pods are replaced during its runs, and with a pod that cannot be decoded."""

import json
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from kubesandbox import Fault, Sandbox
from tests.apis import Api, sandbox_api
from tests.farm import farmed, listed, owner, pod
from tests.fault_world import Built, World
from tests.sandbox.conftest import Limit

NOWHERE = json.dumps({
    "apiVersion": "meta.k8s.io/v1",
    "kind": "PartialObjectMetadataList",
    "metadata": {"resourceVersion": "1"},
    "items": [{"metadata": {"name": "web"}}],
}).encode()  # fmt: skip


@pytest.mark.parametrize("built", ["farm-pods"], indirect=True)
def test_a_pod_recreated_at_any_moment_of_a_run_owns_its_farm_pod_after_the_next(built: Built, tmp_path: Path) -> None:
    """The result is the same if the job or the garbage collector is first."""
    wrong: dict[str, object] = {}
    for number in range(len(built.trace)):
        with built.serve() as world:
            api = sandbox_api(world.sandbox, tmp_path)
            world.sandbox.inject(Fault(kind="call-before", call=partial(_renew, api), skip=number))
            codes = {world.run().exit_code for _ in range(2)}
            end = built.world.state(world).get(("farmpods", "shop", "farm-kept"))
            now = world.stored("pods")["pods", "shop", "kept"]
        if codes != {0} or not end or (end["ownerReferences"], end["spec"]["containers"]) != ([owner(now)], 3):
            wrong[f"before {built.name(number)}"] = (codes, end, now["metadata"]["uid"])
    assert wrong == {}


def _renew(api: Api) -> None:
    api.delete(pod("shop", "kept"))
    api.create(pod("shop", "kept", containers=3))


@pytest.mark.parametrize("built", ["farm-pods"], indirect=True)
def test_a_pod_without_its_namespace_only_matters_to_the_namespace_of_its_list(built: Built, tmp_path: Path) -> None:
    """In the list of all namespaces nothing shows where such a pod is. So each namespace is listed."""
    with built.serve() as world:
        api = sandbox_api(world.sandbox, tmp_path)
        namespaces = [farmed(api, name) for name in ("one", "two", "three")]
        for namespace in namespaces:
            api.create(pod(namespace, "web"))
        for path in ("/api/v1/pods", f"/api/v1/namespaces/{namespaces[0]}/pods"):
            world.sandbox.inject(Fault("GET", path, query="limit=[!1]*", kind="answer", status=200, body=NOWHERE))

        done = world.run()

        unreadable = [each["object"] for each in done.report["results"] if each["code"] == "unreadable"]
        assert unreadable == [{"kind": "Pod", "name": "web"}]
        assert [len(listed(api, namespace)) for namespace in namespaces] == [0, 1, 1]


def test_a_pod_that_is_deleted_before_it_has_a_farm_pod_is_skipped(sandbox: Sandbox, tmp_path: Path) -> None:
    api, world = sandbox_api(sandbox, tmp_path), World(sandbox, "farm-pods")
    shop = farmed(api, "shop")
    api.create(pod(shop, "kept"))
    assert world.run().summary == {"created": 1}
    api.create(pod(shop, "web"))
    path = f"/api/v1/namespaces/{shop}/pods/web"
    sandbox.inject(Fault("GET", path, kind="call-before", call=lambda: api.delete(pod(shop, "web"))))

    done = world.run("-v")

    assert (done.exit_code, done.summary) == (0, {"skipped": 1, "unchanged": 1})
    (found,) = [each for each in done.results if each["code"] == "skipped"]
    assert (found["object"]["name"], found["severity"]) == ("farm-web", "info")
    assert found["reason"] == "its pod was deleted or is terminating"


@pytest.mark.parametrize("built", ["farm-pods"], indirect=True)
@pytest.mark.parametrize("status", [403, 500])
def test_pods_of_a_list_in_full_that_fails_are_read_one_by_one(built: Built, status: int, limit: Limit) -> None:
    limit(retry_seconds=0)
    lists = [each for each in built.trace if each.path.endswith("/pods") and "limit" in each.query]
    metadata = Counter(each.path for each in lists if "as=PartialObjectMetadataList" in each.accept)
    assert 0 < metadata.total() < len(lists)
    with built.serve() as world:
        for path, pages in metadata.items():
            world.sandbox.inject(Fault("GET", path, status=status, skip=pages, times=None))

        done = world.run()

        assert (done.exit_code, done.summary) == (0, built.world.summary)
        assert built.world.state(world) == built.end
