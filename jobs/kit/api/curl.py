"""Transfer requests with libcurl, many at a time on one thread. The only module that imports it.

All requests share one HTTP/2 connection. A server without HTTP/2 gets one HTTP/1.1 connection for each request in
flight.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import pycurl

from jobs.kit.api.endpoint import Endpoint
from jobs.kit.api.responses import Request

CONNECT_SECONDS = 10
# With many transfers, other responses arrive during a short pause: one call of libcurl receives them together.
_MANY, _PAUSE_SECONDS = 8, 0.0005
_PROTOCOLS = pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS
# Errors of certificates: a retry would fail too.
_FINAL_ERRORS = frozenset({pycurl.E_PEER_FAILED_VERIFICATION, pycurl.E_SSL_CACERT_BADFILE, pycurl.E_SSL_CERTPROBLEM})


class Ended(NamedTuple):
    """A transfer that ended. Without a complete response, `status` is 0, and `error` has the reason.

    `is_final`: a retry would fail too. `is_sent`: the server accepted the connection. `retry_after` is in seconds.
    `received` are the bytes of the body as the server sent it, which may be compressed.
    """

    handle: Any
    status: int
    error: str = ""
    is_final: bool = False
    is_sent: bool = True
    retry_after: float = 0.0
    received: int = 0


# A handle keeps its options, so it only serves requests that set the same ones: whether they have a body, whether the
# response may be compressed, whether its headers are read, and whether there is a client certificate.
_Shape: TypeAlias = tuple[bool, bool, bool, bool]


class Transfers:
    """Transfers to `endpoint`, each of at most `seconds`, on at most `most_connections`."""

    def __init__(self, endpoint: Endpoint, seconds: float, most_connections: int) -> None:
        self._endpoint = endpoint
        self._seconds = seconds
        self._options = _options(endpoint, seconds)
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAX_HOST_CONNECTIONS, most_connections)
        self._running: dict[Any, _Shape] = {}
        self._idle: defaultdict[_Shape, list[Any]] = defaultdict(list)

    def start(
        self,
        request: Request,
        headers: Sequence[bytes],
        receive: Callable[[bytes], int],
        on_header: Callable[[bytes], None] | None = None,
    ) -> Any:
        """Start a transfer and return its handle. `receive` is called with each part of the body.

        It returns the length of the part; any other number ends the transfer (CURLOPT_WRITEFUNCTION). `on_header` is
        called with each line of the response's headers, and before with those of a proxy.

        Raises:
            ConfigurationError: the client certificate cannot be read.
        """
        certificate = self._endpoint.certificate()
        is_compressed = request.compressed and self._endpoint.compression
        shape = (request.body is not None, is_compressed, on_header is not None, certificate is not None)
        handle = self._idle[shape].pop() if self._idle[shape] else self._create(is_compressed=is_compressed)
        handle.setopt(pycurl.HTTPHEADER, headers)
        handle.setopt(pycurl.URL, self._endpoint.server + request.path)
        handle.setopt(pycurl.WRITEFUNCTION, receive)
        if on_header:
            handle.setopt(pycurl.HEADERFUNCTION, on_header)
        if request.body is not None:
            handle.setopt(pycurl.POSTFIELDS, request.body)
        handle.setopt(pycurl.CUSTOMREQUEST, request.method)
        if certificate:
            handle.setopt(pycurl.SSLCERT_BLOB, certificate.certificate)
            handle.setopt(pycurl.SSLKEY_BLOB, certificate.key)
        self._running[handle] = shape
        self._multi.add_handle(handle)
        if request.method == "GET":
            self._multi.perform()  # sends it now: the caller may decode a page of a list before it calls `ended()`
        return handle

    def _create(self, *, is_compressed: bool) -> Any:
        handle = pycurl.Curl()
        for option, value in self._options.items():
            handle.setopt(option, value)
        if is_compressed:
            handle.setopt(pycurl.ACCEPT_ENCODING, "gzip")
        return handle

    def ended(self, wait_seconds: float = 0.0) -> list[Ended]:
        """Continue all transfers and return those that ended; before, wait until a socket is ready."""
        if wait_seconds:
            self._wait(wait_seconds)
        self._multi.perform()
        found: list[Ended] = []
        more = 1
        while more:
            more, succeeded, failed = self._multi.info_read()
            for handle in succeeded:
                status, retry_after = handle.getinfo(pycurl.RESPONSE_CODE), handle.getinfo(pycurl.RETRY_AFTER)
                received = _received(handle)
                found.append(Ended(handle, int(status), retry_after=float(retry_after), received=received))
            found += [self._failed(handle, number, text) for handle, number, text in failed]
        return found

    def _wait(self, seconds: float) -> None:
        if not self._running:
            time.sleep(seconds)
            return
        # libcurl may have buffered data, and then has to run although no socket is ready.
        timeout = self._multi.timeout()
        seconds = min(seconds, timeout / 1000) if timeout >= 0 else seconds
        # Without a socket, as while a name is resolved, select() returns at once.
        if any(self._multi.fdset()):
            self._multi.select(seconds)
            if len(self._running) >= _MANY and seconds > _PAUSE_SECONDS:
                time.sleep(_PAUSE_SECONDS)
        else:
            time.sleep(min(seconds, 0.01))

    def _failed(self, handle: Any, number: int, text: str) -> Ended:
        server = self._endpoint.server
        error = f"{server}: {text or 'connection failed'}"
        if number == pycurl.E_OPERATION_TIMEDOUT:
            error = f"no answer from {server} within {self._seconds:g} seconds"
        is_sent = bool(handle.getinfo(pycurl.REQUEST_SIZE))
        return Ended(handle, 0, error, number in _FINAL_ERRORS, is_sent, received=_received(handle))

    def release(self, handle: Any) -> None:
        """End the transfer, if it did not end. Its connection may serve others."""
        self._multi.remove_handle(handle)
        shape = self._running.pop(handle)
        handle.setopt(pycurl.WRITEFUNCTION, len)  # the handle must not keep the body of the response in memory
        if shape[0]:
            handle.setopt(pycurl.POSTFIELDS, b"")  # nor that of the request
        self._idle[shape].append(handle)

    def close(self) -> None:
        """Close all connections."""
        for handle in chain.from_iterable(self._idle.values()):
            handle.close()
        self._idle.clear()
        self._multi.close()


def _received(handle: Any) -> int:
    return int(handle.getinfo(pycurl.SIZE_DOWNLOAD_T))


def _options(endpoint: Endpoint, seconds: float) -> dict[int, Any]:
    """Return the options of libcurl that all requests have."""
    options: dict[int, Any] = {
        pycurl.NOSIGNAL: 1,
        pycurl.CONNECTTIMEOUT_MS: CONNECT_SECONDS * 1000,
        pycurl.TIMEOUT_MS: int(seconds * 1000),
        pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_2TLS,
        pycurl.PIPEWAIT: 1,
        pycurl.PATH_AS_IS: 1,  # a name with dots must not lead to another path
        pycurl.PROTOCOLS: _PROTOCOLS,
        pycurl.REDIR_PROTOCOLS: _PROTOCOLS,  # though no redirect is followed: a redirect is a response
        # Set even if empty: else libcurl reads the environment, by its own rules.
        pycurl.PROXY: endpoint.proxy or "",
        pycurl.NOPROXY: endpoint.no_proxy or "",
        pycurl.SSL_VERIFYPEER: 1 if endpoint.verify else 0,
        pycurl.SSL_VERIFYHOST: 2 if endpoint.verify else 0,
    }
    if endpoint.connect_to:
        options[pycurl.CONNECT_TO] = [endpoint.connect_to]
    # As in Go, the cluster's certificate authority also applies to an https proxy.
    if endpoint.ca_data:
        return {**options, pycurl.CAINFO_BLOB: endpoint.ca_data, pycurl.PROXY_CAINFO_BLOB: endpoint.ca_data}
    authorities = endpoint.ca_file or _public_authorities()
    return {**options, pycurl.CAINFO: authorities, pycurl.PROXY_CAINFO: authorities}


def _public_authorities() -> str:
    import certifi

    return certifi.where()
