"""Servers on loopback that run in a thread of their own while a context is open."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer
from typing import Any


class QuietHandler(BaseHTTPRequestHandler):
    """A handler of HTTP/1.1 that logs nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_words: Any) -> None:
        """Log nothing."""

    def send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        """Send a complete response; to a HEAD without the body, which a client would take for the next response."""
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def serving(server: BaseServer) -> Iterator[None]:
    """Serve until the context ends. A client that closes the connection is not a failure."""
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
