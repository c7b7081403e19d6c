"""The exact requests and bytes of mirror-audit: pages of lists, whatever nodes and other Services contain."""

from math import ceil

import pytest

from jobs.kit.api import cluster
from tests.api.conftest import Ran, Run
from tests.apis import Api, Object, wait_for
from tests.mirrors import NAMESPACE, Mirrors

LISTS = 8  # of Services, claims, StatefulSets, DaemonSets in two namespaces, slices, nodes and RegistryMirrors


def quiet(api: Api, audit: Run) -> Ran:
    """Run until nothing is written: controllers have observed all resources."""
    ran: list[Ran] = []

    def is_quiet() -> bool:
        api.mark()
        ran[:] = [audit()]
        return api.writes() == []

    wait_for(is_quiet, "runs to write no statuses", 60)
    return ran[0]


def endpoint_slice(name: str, service: str, endpoints: int) -> Object:
    """Return a slice of another Service, as Kubernetes writes it: with up to 100 endpoints."""
    addresses = [{"addresses": [f"10.3.0.{number}"], "conditions": {"ready": True}} for number in range(endpoints)]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "endpoints": addresses,
        "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
    }


def test_a_converged_audit_is_one_list_of_each_kind(api: Api, audit: Run, mirrors: Mirrors) -> None:
    for number in range(3):
        mirrors.healthy(f"m{number}", f"registry-{number}.example.com")

    ran = quiet(api, audit)

    assert (ran.summary, ran.report["traffic"]["requests"]) == ({"unchanged": 15}, {"GET": LISTS})


def test_requests_grow_with_pages(api: Api, audit: Run, mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch) -> None:
    page = 3
    for number in range(5):
        mirrors.node(f"more-{number}")
    for number in range(2):
        mirrors.healthy(f"m{number}", f"registry-{number}.example.com")
    for number in range(4):
        api.create(endpoint_slice(f"other-{number}-{api.token}", "other", 100))
    quiet(api, audit)
    nodes, slices = (
        len(api.items(*kind, labelSelector=selector))
        for kind, selector in (
            (("v1", "Node"), "kubernetes.io/os=linux"),
            (("discovery.k8s.io/v1", "EndpointSlice", NAMESPACE), ""),
        )
    )
    monkeypatch.setattr(cluster, "PAGE_SIZE", page)
    api.mark()

    ran = audit()

    assert ran.summary == {"unchanged": 10}
    # Of each mirror: 2 Services, and one object of each other kind.
    numbers = [4, 2, 2, 2, slices, nodes, 2]
    expected = sum(ceil(number / page) for number in numbers) + 1  # no DaemonSet of an earlier version
    assert ran.report["traffic"]["requests"] == {"GET": expected}
    assert {each.query["limit"] for each in api.requests()} == {str(page)}


def test_bytes_do_not_grow_with_the_content_of_nodes(api: Api, audit: Run, mirrors: Mirrors) -> None:
    mirrors.healthy()
    before = quiet(api, audit).report["traffic"]["bytesReceived"]
    images = [{"names": [f"example.com/app-{number}:1"], "sizeBytes": 1} for number in range(400)]
    for name in mirrors.nodes:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        api.patch_status(node, {"images": images})

    after = quiet(api, audit).report["traffic"]["bytesReceived"]

    # Two nodes have 20 kB more each. Another entry of managedFields, and versions, may be longer.
    assert abs(after - before) < 2000
