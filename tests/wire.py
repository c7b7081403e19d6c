"""Servers and proxies on loopback that keep what they were sent."""

import contextlib
import ipaddress
import select
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseServer, StreamRequestHandler, ThreadingTCPServer
from typing import Any

from tests.serving import QuietHandler, serving


@dataclass(frozen=True)
class Sent:
    """One request: its line's words, and its headers with lower-case names, repeated ones in order."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()

    def values(self, name: str) -> list[str]:
        """The values of a header."""
        return [value for key, value in self.headers if key == name]


@dataclass
class Recorder:
    """A server, and what it was sent so far."""

    port: int
    requests: list[Sent] = field(default_factory=list)


class _Handler(QuietHandler):
    server: Any

    def _record(self) -> None:
        # As raw as can be: the parser of the headers takes Latin-1.
        pairs = ((name.lower(), value.encode("latin-1").decode()) for name, value in self.headers.items())
        self.server.recorder.requests.append(Sent(self.command, self.path, tuple(pairs)))

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        self._record()
        location = self.server.location
        self.send(302 if location else 200, {"Location": location} if location else {}, b"{}")

    def do_CONNECT(self) -> None:  # noqa: N802 - the name that http.server calls
        self._record()
        with socket.create_connection(("127.0.0.1", int(self.path.rpartition(":")[2]))) as there:
            self.send_response(200)
            self.end_headers()
            splice(self.connection, there)
        self.close_connection = True


class _Socks(StreamRequestHandler):
    server: Any

    def handle(self) -> None:
        _, methods = self.rfile.read(2)
        self.rfile.read(methods)
        self.wfile.write(b"\x05\x00")
        kind = self.rfile.read(4)[3]
        # 3 is a name, which this proxy resolves; 1 and 4 are addresses.
        host = self.rfile.read({1: 4, 4: 16}.get(kind) or self.rfile.read(1)[0])
        port = int.from_bytes(self.rfile.read(2), "big")
        name = host.decode() if kind == 3 else str(ipaddress.ip_address(host))
        self.server.recorder.requests.append(Sent("SOCKS5", f"{name}:{port}"))
        with socket.create_connection(("127.0.0.1", port)) as there:
            self.wfile.write(b"\x05\x00\x00\x01" + bytes(6))
            splice(self.connection, there)


def splice(here: socket.socket, there: socket.socket) -> None:
    pairs = {here: there, there: here}
    while True:
        pending = isinstance(here, ssl.SSLSocket) and here.pending()
        for ready in [here] if pending else select.select(list(pairs), [], [], 30)[0]:
            data = ready.recv(65536)
            if not data:
                return
            pairs[ready].sendall(data)


@contextlib.contextmanager
def recorder(tls: Path | None = None, location: str = "", client_certificates: bool = False) -> Iterator[Recorder]:
    """A server of HTTP, and proxy for CONNECT, with the certificate of a folder; it redirects to `location`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    if tls:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(tls / "ca.crt", tls / "ca.key")
        if client_certificates:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(tls / "ca.crt")
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.location = location  # type: ignore[attr-defined]
    with _served(server) as kept:
        yield kept


@contextlib.contextmanager
def socks_proxy() -> Iterator[Recorder]:
    """A SOCKS5 proxy."""
    ThreadingTCPServer.daemon_threads = True
    with _served(ThreadingTCPServer(("127.0.0.1", 0), _Socks)) as kept:
        yield kept


@contextlib.contextmanager
def _served(server: BaseServer) -> Iterator[Recorder]:
    kept = Recorder(server.server_address[1])  # type: ignore[arg-type, index]
    server.recorder = kept  # type: ignore[attr-defined]
    with serving(server):
        yield kept
