"""HTTP: connections kept alive, one send per answer, faults, and a record of every request."""

from __future__ import annotations

import contextlib
import gzip
import socket
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from email.utils import formatdate
from http.client import responses
from http.server import ThreadingHTTPServer
from socketserver import StreamRequestHandler
from typing import Any

import msgspec

from ..api.cluster import Answer, Cluster
from ..api.errors import ApiError, PlainNotFoundError
from ..api.rbac import ANONYMOUS, User
from .faults import Faults, answer_of
from .identity import user_of
from .routes import dispatch, parse_query
from .tls import Identity

BODY_LIMIT = 3 * 1024 * 1024
COMPRESSED_BYTES = 128 * 1024
# Those of Go. Python 3.13 has other phrases for these two.
_PHRASES = {**responses, 413: "Request Entity Too Large", 422: "Unprocessable Entity"}


@dataclass
class Request:
    """What one request was, and what it cost on the wire."""

    method: str
    path: str
    query: dict[str, str]
    status: int
    sent: int
    received: int
    user: str
    user_agent: str
    accept: str
    accept_encoding: str = ""


@dataclass(frozen=True)
class Incoming:
    """One request as it was read; the values of a header that is there twice are joined by a newline."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes


class _Closed(Exception):  # noqa: N818 - the end of a connection is not an error
    """The client closed the connection."""


def _compressed(incoming: Incoming, answer: Answer) -> Answer:
    """Compress an object or a list of at least COMPRESSED_BYTES for a client that accepts it, as kube-apiserver does.

    https://kubernetes.io/docs/reference/using-api/api-concepts/#response-compression
    """
    encodings = [each.strip() for each in incoming.headers.get("accept-encoding", "").split(",")]
    if incoming.method != "GET" or "gzip" not in encodings or len(answer.body) < COMPRESSED_BYTES:
        return answer
    headers = {**answer.headers, "Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return replace(answer, body=gzip.compress(answer.body, compresslevel=1), headers=headers)


class Server(ThreadingHTTPServer):
    """The HTTP server of one cluster."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(
        self, port: int, cluster: Cluster, faults: Faults, admin_token: str, identity: Identity | None = None
    ) -> None:
        self.identity = identity
        self.cluster, self.faults, self.admin_token = cluster, faults, admin_token
        self.requests: list[Request] = []
        self.stopping = threading.Event()
        self.connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), Handler)

    def server_bind(self) -> None:
        """Bind without the name lookup of HTTPServer."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection; its thread makes the TLS handshake."""
        connection, address = super().get_request()
        if self.identity:
            context = self.identity.context
            connection = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is the client's affair."""

    def close_connections(self) -> None:
        """End all connections, watches included."""
        self.stopping.set()
        with self.cluster.store.changed:
            self.cluster.store.changed.notify_all()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class Handler(StreamRequestHandler):
    """One connection."""

    server: Server
    disable_nagle_algorithm = True
    rbufsize = 64 * 1024

    def handle(self) -> None:
        """Answer requests until the connection ends."""
        self.server.connections.add(self.connection)
        try:
            while not self.server.stopping.is_set():
                incoming = self._read()
                if not self._serve(incoming) or incoming.headers.get("connection", "").lower() == "close":
                    return
        except (_Closed, OSError):
            return
        finally:
            self.server.connections.discard(self.connection)

    def _read(self) -> Incoming:
        line = self.rfile.readline(65537)
        if not line.strip():
            raise _Closed
        method, target, _ = line.decode("latin-1").split(" ", 2)
        headers: dict[str, str] = {}
        while True:
            raw = self.rfile.readline(65537)
            if raw in (b"\r\n", b"\n", b""):
                break
            name, _, value = raw.decode(errors="replace").partition(":")
            name = name.strip().lower()
            headers[name] = f"{headers[name]}\n{value.strip()}" if name in headers else value.strip()
        path, _, query = target.partition("?")
        if headers.get("expect", "").lower() == "100-continue":
            self.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        return Incoming(method, path, query, headers, self._read_body(headers))

    def _read_body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline(1024).split(b";")[0] or b"0", 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline(8)
            self.rfile.readline(8)
            return b"".join(parts)
        length = int(headers.get("content-length") or 0)
        return self.rfile.read(length) if length else b""

    def _serve(self, incoming: Incoming) -> bool:
        faults = self.server.faults.take(incoming.method, incoming.path, incoming.query)
        for fault in faults:
            if fault.kind == "delay":
                time.sleep(fault.seconds)
            elif fault.kind == "call-before" and fault.call:
                fault.call()
            elif fault.kind == "reset-before":
                return self._reset(incoming, ANONYMOUS)
            elif fault.kind in ("status", "answer"):
                return self._send(incoming, answer_of(fault), ANONYMOUS)
        user, answer = self._answer(incoming)
        answer = _compressed(incoming, answer)
        for fault in faults:
            if fault.kind == "call-after" and fault.call:
                fault.call()
        kinds = {fault.kind for fault in faults}
        if "reset-after" in kinds:
            return self._reset(incoming, user)
        if answer.stream is not None:
            return self._stream(incoming, answer, user)
        return self._send(incoming, answer, user, truncate="truncate" in kinds)

    def _answer(self, incoming: Incoming) -> tuple[User, Answer]:
        user = ANONYMOUS
        try:
            user = user_of(self.server.cluster, self.server.admin_token, incoming.headers)
            if len(incoming.body) > BODY_LIMIT:
                text = f"Request entity too large: limit is {BODY_LIMIT}"
                raise ApiError(413, "RequestEntityTooLarge", text)
            return user, dispatch(self.server.cluster, user, *vars(incoming).values())
        except ApiError as error:
            body = msgspec.json.encode(error.status())
            return user, Answer(error.code, body, headers=error.headers, warnings=error.warnings)
        except PlainNotFoundError:
            return user, Answer(404, b"404 page not found\n", "text/plain; charset=utf-8")
        except Exception as error:  # as the server does: a panic is a 500, the connection goes on
            failure = ApiError(500, "InternalError", f"Internal error occurred: {type(error).__name__}: {error}")
            return user, Answer(500, msgspec.json.encode(failure.status()))

    def _record(self, incoming: Incoming, status: int, sent: int, user: User) -> None:
        self.server.requests.append(
            Request(
                incoming.method,
                incoming.path,
                parse_query(incoming.query),
                status,
                sent,
                len(incoming.body),
                user.name,
                incoming.headers.get("user-agent", ""),
                incoming.headers.get("accept", ""),
                incoming.headers.get("accept-encoding", ""),
            )
        )

    def _reset(self, incoming: Incoming, user: User) -> bool:
        self._record(incoming, 0, 0, user)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with contextlib.suppress(OSError):
            self.connection.close()
        return False

    def _head(self, answer: Answer, length: int | None) -> bytes:
        phrase = _PHRASES.get(answer.status, "Status")
        size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        lines = [f"HTTP/1.1 {answer.status} {phrase}", f"Content-Type: {answer.content_type}", size]
        lines.append(f"Date: {formatdate(usegmt=True)}")
        lines += [f"{name}: {value}" for name, value in answer.headers.items()]
        lines += ['Warning: 299 - "' + text.replace('"', '\\"') + '"' for text in answer.warnings]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")

    def _send(self, incoming: Incoming, answer: Answer, user: User, truncate: bool = False) -> bool:
        body = b"" if incoming.method == "HEAD" else answer.body
        part = body[: len(body) // 2] if truncate else body
        self._record(incoming, answer.status, len(part), user)
        self.connection.sendall(self._head(answer, len(answer.body)) + part)
        return not truncate

    def _stream(self, incoming: Incoming, answer: Answer, user: User) -> bool:
        self._record(incoming, answer.status, 0, user)
        record = self.server.requests[-1]
        self.connection.sendall(self._head(answer, None))
        for part in answer.stream or ():
            if self.server.stopping.is_set() or (not part and self._is_disconnected()):
                return False
            if part:
                self.connection.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
                record.sent += len(part)
        self.connection.sendall(b"0\r\n\r\n")
        return True

    def _is_disconnected(self) -> bool:
        try:
            return not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
