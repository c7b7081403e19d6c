"""A minimal client for the work of mirror-audit.

It lists all that the job lists, and checks that each mirror has its resources. It does not compare their fields, and
has no statuses, no retries and no report. Prints requests and bytes as JSON.
"""

from __future__ import annotations

import sys

from msgspec import Struct

from benchmarks.bare.client import METADATA_ONLY, Client, Head, Metadata

REGISTRIES, NODES = "kube-chores-mirrors", "kube-chores-nodes"
KINDS = ("api/v1 services", "api/v1 persistentvolumeclaims", "apis/apps/v1 statefulsets", "apis/apps/v1 daemonsets")


class _Spec(Struct):
    """The spec, decoded as in an audit, which compares all fields."""

    template: dict[str, object] | None = None
    selector: dict[str, object] | None = None


class _Resource(Struct):
    metadata: Metadata
    spec: _Spec


class _Endpoint(Struct):
    addresses: list[str]


class _Slice(Struct):
    metadata: Metadata
    endpoints: list[_Endpoint] | None = None


def main(kubeconfig: str) -> None:
    """Run one audit."""
    client = Client.of(kubeconfig)
    found = {
        (plural, each.metadata.name): each
        for base, plural in (each.split() for each in KINDS)
        for each in client.objects(f"/{base}/namespaces/{REGISTRIES}/{plural}", _Resource)
    }
    for each in client.objects(f"/apis/apps/v1/namespaces/{NODES}/daemonsets", _Resource):
        found["daemonsets", each.metadata.name] = each
    slices = client.objects(f"/apis/discovery.k8s.io/v1/namespaces/{REGISTRIES}/endpointslices", _Slice)
    endpoints = {each.metadata.name: len(each.endpoints or ()) for each in slices}
    linux = "labelSelector=kubernetes.io%2Fos%3Dlinux"
    nodes = sum(1 for _ in client.objects(f"/api/v1/nodes?{linux}", Head, METADATA_ONLY))
    assert nodes, endpoints
    for mirror in client.objects("/apis/kubechores.dev/v1/registrymirrors", Head):
        name = f"registry-mirror-{mirror.metadata.name}"
        resources = ("services", name), ("services", f"{name}-headless"), ("persistentvolumeclaims", name)
        workloads = ("statefulsets", name), ("daemonsets", f"{name}-node")
        assert not [key for key in (*resources, *workloads) if key not in found], mirror
    client.print_traffic(0)


if __name__ == "__main__":
    main(sys.argv[1])
