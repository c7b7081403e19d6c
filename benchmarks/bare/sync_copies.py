"""A minimal client: it sends the requests of a sweep with the libraries of sync-copies, and does nothing else.

No rules, no repairs of hand-edited copies, no retries, no report, no safety. Prints requests and bytes as JSON.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from io import BytesIO
from itertools import islice
from typing import Any
from urllib.parse import quote

import click  # noqa: F401 - the command imports it, so this client does too
import msgspec
import pycurl
import yaml  # noqa: F401
from msgspec import Struct

from jobs.kit.api.connect import connect
from jobs.kit.api.endpoint import Endpoint

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
FOUND_BY = "labelSelector=app.kubernetes.io/managed-by%3Dbare-python"
IN_FLIGHT = 16
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class _Metadata(Struct, rename="camel"):
    name: str
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Object(Struct):
    metadata: _Metadata
    data: dict[str, str] | None = None


class _ListMetadata(Struct, rename={"token": "continue"}):
    token: str = ""


class _List(Struct):
    metadata: _ListMetadata
    items: list[_Object] | None = None


Write = tuple[str, str, bytes]


class Client:
    """One HTTP/2 connection with IN_FLIGHT concurrent requests."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.requests = self.received = self.sent = 0
        self.multi = pycurl.CurlMulti()
        self.decoder = msgspec.json.Decoder(_List)

    def objects(self, path: str, accept: str = "application/json") -> Iterator[_Object]:
        """Yield the objects of a list, page by page."""
        token = ""
        while True:
            more = f"&continue={quote(token)}" if token else ""
            (body,) = self.send(iter([("GET", f"{path}limit=500{more}", b"")]), accept)
            page = self.decoder.decode(body)
            yield from page.items or []
            token = page.metadata.token
            if not token:
                return

    def send(self, writes: Iterator[Write], accept: str = "application/json") -> list[bytes]:
        """Send requests, IN_FLIGHT at a time; all must succeed."""
        bodies: list[bytes] = []
        free: list[Any] = [pycurl.Curl() for _ in range(IN_FLIGHT)]
        running = 0
        while True:
            for write in islice(writes, len(free)):
                self._start(free.pop(), *write, accept)
                running += 1
            if not running:
                return bodies
            self.multi.perform()
            _, done, failed = self.multi.info_read()
            if not (done or failed):
                timeout_ms = self.multi.timeout()
                self.multi.select(timeout_ms / 1000 if timeout_ms >= 0 else 0.2)
            assert not failed, failed
            for handle in done:
                assert handle.getinfo(pycurl.RESPONSE_CODE) < 300, handle.buffer.getvalue()
                bodies.append(handle.buffer.getvalue())
                self.received += len(bodies[-1])
                self.multi.remove_handle(handle)
                free.append(handle)
                running -= 1

    def _start(self, handle: Any, method: str, path: str, body: bytes, accept: str) -> None:
        handle.reset()
        handle.buffer = BytesIO()
        handle.setopt(pycurl.URL, self.endpoint.server + path)
        handle.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS)
        handle.setopt(pycurl.PIPEWAIT, 1)
        handle.setopt(pycurl.CAINFO, self.endpoint.ca_file)
        handle.setopt(pycurl.WRITEDATA, handle.buffer)
        headers = [f"Authorization: {self.endpoint.authorization()}", f"Accept: {accept}", "User-Agent: bare-python"]
        if body:
            handle.setopt(pycurl.CUSTOMREQUEST, method)
            handle.setopt(pycurl.POSTFIELDS, body)
            headers.append("Content-Type: application/json")
        handle.setopt(pycurl.HTTPHEADER, headers)
        self.multi.add_handle(handle)
        self.requests += 1
        self.sent += len(body)


def writes(
    sources: list[_Object], namespaces: list[str], copies: dict[tuple[str, str], tuple[str, str]]
) -> Iterator[Write]:
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


def main(kubeconfig: str) -> None:
    """Run one sweep."""
    client = Client(connect(kubeconfig).endpoint)
    copies = {
        (one.metadata.namespace, one.metadata.name): (
            (one.metadata.annotations or {}).get(HASH, ""),
            one.metadata.resource_version,
        )
        for one in client.objects(f"/api/v1/secrets?{FOUND_BY}&", METADATA_ONLY)
    }
    namespaces = [
        one.metadata.name
        for one in client.objects("/api/v1/namespaces?")
        if one.metadata.name.startswith("bench-team-")
    ]
    sources = list(client.objects(f"/api/v1/namespaces/{HOME}/secrets?labelSelector=bench%3Dyes&"))
    written = len(client.send(writes(sources, namespaces, copies)))
    traffic = {"requests": client.requests, "received": client.received, "sent": client.sent, "written": written}
    sys.stdout.write(json.dumps(traffic) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
