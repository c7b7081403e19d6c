"""The least client that does the work of farm-pods. It makes no check, and repairs nothing.

It lists FarmPods and the metadata of pods, all at once or those of labelled namespaces, and creates missing FarmPods.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from benchmarks.bare.client import METADATA_ONLY, PAGE, Client, Head, Request

FARM_PODS = "/apis/kubechores.dev/v1/farmpods"
LABELS = {"app.kubernetes.io/managed-by": "kube-chores", "kubechores.dev/job": "farm-pods"}
Key = tuple[str, str]


class _Spec(Struct):
    containers: list[Struct]


class _Pod(Head):
    spec: _Spec


class _FarmPodSpec(Struct):
    pod: str
    containers: int


class _FarmPod(Head):
    spec: _FarmPodSpec


class _Heads(Struct):
    items: list[Head] | None = None


def _by_namespace(client: Client) -> Iterator[Head]:
    """Yield the pods of labelled namespaces, none of which has more than a page."""
    labelled = client.objects("/api/v1/namespaces?labelSelector=kubechores.dev%2Ffarm%3Dtrue", Head, METADATA_ONLY)
    paths = [f"/api/v1/namespaces/{each.metadata.name}/pods?limit={PAGE}" for each in labelled]
    for body in client.send((("GET", path, b"") for path in paths), METADATA_ONLY):
        yield from msgspec.json.decode(body, type=_Heads).items or []


def _creates(client: Client, missing: Iterable[Key]) -> Iterator[Request]:
    """Yield the creation of a FarmPod for each pod, which is read first: its metadata do not have its containers."""
    reads = [("GET", f"/api/v1/namespaces/{namespace}/pods/{name}", b"") for namespace, name in missing]
    for body in client.send(reads):
        pod = msgspec.json.decode(body, type=_Pod)
        at = pod.metadata
        owner = {"apiVersion": "v1", "kind": "Pod", "name": at.name, "uid": at.uid}
        made: dict[str, Any] = {
            "apiVersion": "kubechores.dev/v1",
            "kind": "FarmPod",
            "metadata": {
                "name": f"farm-{at.name}",
                "namespace": at.namespace,
                "labels": LABELS,
                "annotations": {"kubechores.dev/source": f"{at.namespace}/{at.name}"},
                "ownerReferences": [owner],
            },
            "spec": _FarmPodSpec(at.name, len(pod.spec.containers)),
        }
        path = f"/apis/kubechores.dev/v1/namespaces/{at.namespace}/farmpods?fieldManager=kube-chores"
        yield "POST", path, msgspec.json.encode(made)


def main(kubeconfig: str, how: str) -> None:
    """Run once. `how`: "metadata" or "in-full" lists all pods at once, "by-namespace" those of labelled namespaces."""
    client = Client.of(kubeconfig)
    farm_pods = {
        (each.metadata.namespace, each.spec.pod): each.spec.containers for each in client.objects(FARM_PODS, _FarmPod)
    }
    pods: Iterable[Head]
    if how == "by-namespace":
        pods = _by_namespace(client)
    elif how == "in-full":
        pods = client.objects("/api/v1/pods", _Pod)
    else:
        pods = client.objects("/api/v1/pods", Head, METADATA_ONLY)
    found = ((each.metadata.namespace, each.metadata.name) for each in pods)
    missing = [key for key in found if key not in farm_pods]
    client.print_traffic(len(client.send(_creates(client, missing))))


if __name__ == "__main__":
    main(*sys.argv[1:])
