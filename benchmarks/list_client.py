"""Read the same objects of a server in one of several ways, N times. Prints what it cost the client as JSON.

A job lists in the way that is called TODAY; benchmarks/server_cost.py compares it with the others.
"""

from __future__ import annotations

import json
import re
import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any
from urllib.parse import urlencode

import msgspec
import pycurl
from msgspec import Raw, Struct

from jobs.kit.api.connect import connect
from jobs.kit.api.endpoint import Endpoint

_META = "g=meta.k8s.io;v=v1"
METADATA = f"application/json;as=PartialObjectMetadataList;{_META}"
PROTOBUF_TOKEN = re.compile(rb"eyJ2Ijoi[A-Za-z0-9_-]+")  # JSON that begins with {"v": in Base64
END_OF_LIST = b'"k8s.io/initial-events-end":"true"'
TODAY = "pages of 500"


@dataclass(frozen=True)
class Way:
    """One way to list. `version`: a resourceVersion, or "last" for the version of the list before."""

    limit: int = 500
    accept: str = METADATA
    version: str = ""
    match: str = ""
    gzip: bool = False
    http1: bool = False
    watch: bool = False
    first_page_only: bool = False
    since: str = "1.33"  # the first version of Kubernetes with it on by default


WAYS: Mapping[str, Way] = {
    TODAY: Way(),
    "pages of 1,000": Way(limit=1000),
    "pages of 2,000": Way(limit=2000),
    "one page": Way(limit=0),
    'one page, version "0"': Way(limit=0, version="0"),
    'pages of 500, version "0"': Way(version="0"),
    "one page, not older than the list before": Way(limit=0, version="last", match="NotOlderThan"),
    "pages of 500, gzip": Way(gzip=True),
    "pages of 500, HTTP/1.1": Way(http1=True),
    "pages of 500, protobuf": Way(accept=f"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;{_META}"),
    "pages of 500, table": Way(accept=f"application/json;as=Table;{_META}"),
    "pages of 500, full objects": Way(accept="application/json"),
    "pages of 500, full objects, gzip": Way(accept="application/json", gzip=True),
    "watch with initial events": Way(
        limit=0,
        accept=f"application/json;as=PartialObjectMetadata;{_META}",
        match="NotOlderThan",
        watch=True,
        since="1.36",
    ),
    "limit=1, only its version": Way(limit=1, first_page_only=True),
}


class _ListMetadata(Struct, rename={"token": "continue", "version": "resourceVersion"}):
    version: str
    token: str = ""


class _Metadata(Struct, rename="camel"):
    name: str
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Item(Struct):
    metadata: _Metadata


class _List(Struct):
    metadata: _ListMetadata
    items: list[_Item] | None = None
    rows: list[Raw] | None = None


class Reader:
    """Sends lists on one connection, and counts."""

    def __init__(self, endpoint: Endpoint, way: Way) -> None:
        self.endpoint, self.way = endpoint, way
        self.requests = self.received = self.objects = 0
        self.last = ""
        self.handle: Any = pycurl.Curl()
        self.decoder = msgspec.json.Decoder(_List)

    def read(self, path: str, selector: str) -> None:
        """Read all objects once."""
        way, token = self.way, ""
        version = self.last if way.version == "last" else way.version
        while True:
            query = {"labelSelector": selector, "limit": way.limit or "", "continue": token}
            if not token:
                query |= {"resourceVersion": version, "resourceVersionMatch": way.match if version or way.watch else ""}
            if way.watch:
                query |= {"watch": "true", "sendInitialEvents": "true", "allowWatchBookmarks": "true"}
            body = self.get(f"{path}?{urlencode({key: value for key, value in query.items() if value})}")
            if way.watch:
                self.objects += sum(msgspec.json.decode(line)["type"] == "ADDED" for line in body.splitlines())
                return
            if "protobuf" in way.accept:
                # Not decoded: no library of the jobs can. The metadata of the list come first, with the token.
                found = PROTOBUF_TOKEN.search(body, 0, 1000)
                token = found[0].decode() if found else ""
            else:
                page = self.decoder.decode(body)
                self.objects += len(page.items or page.rows or [])
                token, self.last = page.metadata.token, page.metadata.version
            if not token or way.first_page_only:
                return

    def get(self, path: str) -> bytes:
        """Return the body of one answer; of a watch, the events until the list is complete."""
        handle, buffer = self.handle, BytesIO()
        handle.reset()
        handle.setopt(pycurl.URL, self.endpoint.server + path)
        handle.setopt(
            pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1 if self.way.http1 else pycurl.CURL_HTTP_VERSION_2TLS
        )
        handle.setopt(pycurl.CAINFO_BLOB, self.endpoint.ca_data)
        headers = [f"Authorization: {self.endpoint.authorization()}", f"Accept: {self.way.accept}"]
        handle.setopt(pycurl.HTTPHEADER, [*headers, "User-Agent: list-client"])
        if self.way.gzip:
            handle.setopt(pycurl.ACCEPT_ENCODING, "gzip")

        def receive(part: bytes) -> int:
            buffer.write(part)
            return 0 if self.way.watch and END_OF_LIST in part else len(part)

        handle.setopt(pycurl.WRITEFUNCTION, receive)
        try:
            handle.perform()
        except pycurl.error as error:
            if not (self.way.watch and error.args[0] == pycurl.E_WRITE_ERROR):
                raise
        assert handle.getinfo(pycurl.RESPONSE_CODE) == 200, buffer.getvalue()[:300]
        self.requests += 1
        self.received += int(handle.getinfo(pycurl.SIZE_DOWNLOAD_T))
        return buffer.getvalue()


def main(kubeconfig: str, name: str, times: str, path: str, selector: str) -> None:
    """Read `times` times, after one read that is not measured."""
    reader = Reader(connect(kubeconfig).endpoint, WAYS[name])
    for count in range(-1, int(times)):
        if count == 0:
            reader.requests = reader.received = reader.objects = 0
            sys.stdout.write("\n")
            sys.stdout.flush()
            sys.stdin.readline()
            began, cpu = time.monotonic(), _cpu()
        reader.read(path, selector)
    found = {"seconds": time.monotonic() - began, "cpu": _cpu() - cpu, "requests": reader.requests}
    found |= {"received": reader.received, "objects": reader.objects}
    sys.stdout.write(json.dumps(found) + "\n")


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(*sys.argv[1:])
