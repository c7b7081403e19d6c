"""A minimal client of the API: one HTTP/2 connection, typed objects, 16 requests in flight; it counts bytes.

It uses the libraries of the jobs. It has no retries, no checks of answers and no safety.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import islice
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import click  # noqa: F401 - the jobs import it, so this client does too
import msgspec
import pycurl
import yaml  # noqa: F401
from msgspec import Struct

from jobs.kit.api.connect import connect
from jobs.kit.api.endpoint import Endpoint

IN_FLIGHT = 16
PAGE = 500
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
Request = tuple[str, str, bytes]  # method, path with query, body
T = TypeVar("T")


class Metadata(Struct, rename="camel"):
    """What bare clients use of the metadata of an object."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class Head(Struct):
    """An object of which only the metadata are used."""

    metadata: Metadata


class ListMetadata(Struct, rename={"token": "continue"}):
    """The metadata of a page of a list."""

    token: str = ""


class Page(Struct, Generic[T]):
    """A page of a list."""

    metadata: ListMetadata
    items: list[T] | None = None


class Client:
    """One HTTP/2 connection with IN_FLIGHT concurrent requests. `compressed`: the server may compress lists."""

    def __init__(self, endpoint: Endpoint, *, compressed: bool = True) -> None:
        self.endpoint, self.compressed = endpoint, compressed
        self.requests = self.received = self.sent = 0
        self.multi = pycurl.CurlMulti()

    @classmethod
    def of(cls, kubeconfig: str, *, compressed: bool = True) -> Client:
        """Return a client for the current context of a kubeconfig."""
        return cls(connect(kubeconfig).endpoint, compressed=compressed)

    def objects(self, path: str, item: type[T], accept: str = "application/json") -> Iterator[T]:
        """Yield the objects of a list, page by page. `path` may have a query."""
        decoder = msgspec.json.Decoder(Page[item])  # type: ignore[valid-type]
        token = ""
        while True:
            (body,) = self.send([("GET", paged(path, token), b"")], accept)
            page = decoder.decode(body)
            yield from page.items or []
            token = page.metadata.token
            if not token:
                return

    def get(self, path: str, item: type[T], accept: str = "application/json") -> T:
        """Read an object."""
        (body,) = self.send([("GET", path, b"")], accept)
        return msgspec.json.decode(body, type=item)

    def send(
        self, requests: Iterable[Request], accept: str = "application/json", content: str = "application/json"
    ) -> list[bytes]:
        """Send requests, IN_FLIGHT at a time; all must succeed. Return the bodies in the order of the answers."""
        return [body for _, body in self.answers(requests, accept, content)]

    def answers(
        self, requests: Iterable[Request], accept: str = "application/json", content: str = "application/json"
    ) -> Iterator[tuple[Request, bytes]]:
        """Send requests, IN_FLIGHT at a time; all must succeed. Yield each with the body of its answer."""
        waiting = iter(requests)
        free: list[Any] = [pycurl.Curl() for _ in range(IN_FLIGHT)]
        running = 0
        while True:
            for request in islice(waiting, len(free)):
                self._start(free.pop(), request, accept, content)
                running += 1
            if not running:
                return
            self.multi.perform()
            _, done, failed = self.multi.info_read()
            if not (done or failed):
                timeout_ms = self.multi.timeout()
                self.multi.select(timeout_ms / 1000 if timeout_ms >= 0 else 0.2)
            assert not failed, failed
            for handle in done:
                assert handle.getinfo(pycurl.RESPONSE_CODE) < 300, handle.buffer.getvalue()
                request, body = handle.request, handle.buffer.getvalue()
                self.received += int(handle.getinfo(pycurl.SIZE_DOWNLOAD_T))
                self.multi.remove_handle(handle)
                free.append(handle)
                running -= 1
                yield request, body

    def _start(self, handle: Any, request: Request, accept: str, content: str) -> None:
        method, path, body = request
        handle.reset()
        handle.buffer, handle.request = BytesIO(), request
        handle.setopt(pycurl.URL, self.endpoint.server + path)
        handle.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS)
        handle.setopt(pycurl.PIPEWAIT, 1)
        handle.setopt(pycurl.CAINFO_BLOB, self.endpoint.ca_data)
        handle.setopt(pycurl.WRITEDATA, handle.buffer)
        if self.compressed and method == "GET":
            handle.setopt(pycurl.ACCEPT_ENCODING, "gzip")
        headers = [f"Authorization: {self.endpoint.authorization()}", f"Accept: {accept}", "User-Agent: bare-python"]
        if body:
            handle.setopt(pycurl.CUSTOMREQUEST, method)
            handle.setopt(pycurl.POSTFIELDS, body)
            headers.append(f"Content-Type: {content}")
        handle.setopt(pycurl.HTTPHEADER, headers)
        self.multi.add_handle(handle)
        self.requests += 1
        self.sent += len(body)

    def print_traffic(self, written: int) -> None:
        """Print requests, bytes and the number of objects written, as `benchmarks.measured` reads them."""
        traffic = {"requests": self.requests, "received": self.received, "sent": self.sent, "written": written}
        sys.stdout.write(json.dumps(traffic) + "\n")


def paged(path: str, token: str = "") -> str:
    """Return the path of a page of a list."""
    more = f"&continue={quote(token)}" if token else ""
    return f"{path}{'&' if '?' in path else '?'}limit={PAGE}{more}"
