"""Answer kubelet and mirror-audit over HTTP: whether the registry is ready, and the figures of its volume."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NoReturn

from jobs.core.mirror_cache.cache import Cache
from jobs.kit.run.log import log

NAME = "mirror-cache"
_MOST_CONNECTIONS = 16
_CONNECTION_SECONDS = 5.0


def serve(cache: Cache, port: int) -> None:
    """Guard the volume and answer requests until a signal comes."""
    for work in (cache.follow_room, cache.follow_uploads, cache.follow_upstream, cache.watch, cache.verify_all):
        threading.Thread(target=_for_ever, args=(work,), daemon=True).start()
    with _listening(cache, port) as server:
        log.info("listening on port %s", server.server_address[1])
        server.serve_forever(poll_interval=0.5)


def _listening(cache: Cache, port: int) -> _Server:
    """Listen on all IPv4 addresses, and on IPv6 where the pod has it. End the process if the port is not free."""
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):
            return _Server(("::", port), cache)
    try:
        return _Server(("0.0.0.0", port), cache)  # noqa: S104 - kubelet and the audit come from elsewhere
    except OSError as error:
        log.error("%s: cannot listen on port %d: %s; set another one with --port", NAME, port, error.strerror)
        sys.exit(1)


def _for_ever(work: Callable[[], NoReturn]) -> None:
    """End the process at an unexpected error, so that kubelet restarts the container: each thread is needed."""
    try:
        work()
    except BaseException:
        log.exception("%s", NAME)
        os._exit(1)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    cache: Cache

    def __init__(self, address: tuple[str, int], cache: Cache) -> None:
        self.cache = cache
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # A socket's timeout does not limit a client that sends a byte from time to time.
        limit = threading.Timer(_CONNECTION_SECONDS, _hang_up, [request])
        limit.daemon = True
        limit.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            limit.cancel()
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing about clients that disconnect."""


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = NAME, ""
    timeout = _CONNECTION_SECONDS

    def do_GET(self) -> None:
        if self.path == "/ready":
            why = self.server.cache.unready()
            self._response(
                HTTPStatus.SERVICE_UNAVAILABLE if why else HTTPStatus.OK, "text/plain", f"{why or 'ready'}\n"
            )
        elif self.path == "/":
            self._response(HTTPStatus.OK, "application/json", json.dumps(self.server.cache.state()))
        else:
            self._response(HTTPStatus.NOT_FOUND, "text/plain", "not found\n")

    def _response(self, status: HTTPStatus, media: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_about: Any) -> None:
        """Log no requests: kubelet sends one each second."""
