"""A minimal client for the work of sync-copies.

No rules, no repairs of hand-edited copies, no retries, no report, no safety. Prints requests and bytes as JSON.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator

import msgspec

from benchmarks.bare.client import METADATA_ONLY, Client, Head, Metadata, Request

HOME = "bench-home"
# As long as those of sync-copies: larger objects are more work for the server.
LABELS = {
    "app.kubernetes.io/managed-by": "bare-python",
    "kubechores.dev/job": "sync-copies",
    "kubechores.dev/rule-hash": "0123456789abcdef",
    "kubechores.dev/rule-namespace": "kube-chores",
}
ANNOTATIONS = {"kubechores.dev/orphans": "Delete", "kubechores.dev/rule": "kube-chores/bench"}
HASH, SOURCE = "kubechores.dev/fingerprint", "kubechores.dev/source"


class _Secret(msgspec.Struct):
    metadata: Metadata
    data: dict[str, str] | None = None


def writes(
    sources: list[_Secret], namespaces: list[str], copies: dict[tuple[str, str], tuple[str, str]]
) -> Iterator[Request]:
    """Yield writes for copies that are missing or outdated. `copies` are (hash, version) by namespace and name."""
    for source in sources:
        name, data = source.metadata.name, source.data or {}
        mark = hashlib.sha256(json.dumps(data).encode()).hexdigest()
        for namespace in namespaces:
            found = copies.get((namespace, name))
            if found and found[0] == mark:
                continue
            annotations = {**ANNOTATIONS, SOURCE: f"{HOME}/{name}", HASH: mark}
            metadata = {"name": name, "namespace": namespace, "labels": LABELS, "annotations": annotations}
            if found:
                metadata["resourceVersion"] = found[1]
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}
            path = f"/api/v1/namespaces/{namespace}/secrets"
            encoded = msgspec.json.encode(body)
            yield ("PUT", f"{path}/{name}", encoded) if found else ("POST", path, encoded)


def main(kubeconfig: str, *options: str) -> None:
    """Run one sweep. With option `plain`, the server does not compress lists, as it does for sync-copies."""
    client = Client.of(kubeconfig, compressed="plain" not in options)
    found_by = "labelSelector=app.kubernetes.io/managed-by%3Dbare-python"
    copies = {
        (one.metadata.namespace, one.metadata.name): (
            (one.metadata.annotations or {}).get(HASH, ""),
            one.metadata.resource_version,
        )
        for one in client.objects(f"/api/v1/secrets?{found_by}", Head, METADATA_ONLY)
    }
    namespaces = [
        one.metadata.name
        for one in client.objects("/api/v1/namespaces", Head)
        if one.metadata.name.startswith("bench-team-")
    ]
    sources = list(client.objects(f"/api/v1/namespaces/{HOME}/secrets?labelSelector=bench%3Dyes", _Secret))
    written = sum(1 for _ in client.answers(writes(sources, namespaces, copies)))
    client.print_traffic(written)


if __name__ == "__main__":
    main(*sys.argv[1:])
