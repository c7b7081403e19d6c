"""Providers of rates in the node's network namespace: each has a port, and serves what `state.json` in a folder names.

A soak writes documents and `state.json` there, and reads from `served.jsonl` which documents were served when.
Run it with `python -m soak.rate_server FOLDER ADDRESS`.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from tests.rates import PATHS
from tests.serving import QuietHandler, serving

PORTS = {"ecb": 8101, "frankfurter": 8102, "open-er-api": 8103}
SLOW_SECONDS = 30.0
POLL_SECONDS = 0.1


class Served(NamedTuple):
    """A complete document that was sent, and when its response began."""

    seconds: float
    provider: str
    document: str


@dataclass(frozen=True)
class Folder:
    """The files by which a soak and its rate server communicate."""

    path: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def log(self) -> Path:
        """The file with a line of JSON for each document that was sent."""
        return self.path / "served.jsonl"

    def add(self, name: str, content: bytes) -> None:
        """Add a document."""
        (self.path / name).write_bytes(content)

    def document(self, name: str) -> bytes:
        """Return a document."""
        return (self.path / name).read_bytes()

    def write(self, state: dict[str, tuple[str, str]]) -> None:
        """Set what each provider does: a mode and the name of its document."""
        part = self.path / "state.part"
        part.write_text(json.dumps(state))
        part.rename(self.path / "state.json")

    def read(self, provider: str) -> tuple[str, str]:
        """Return what a provider does; `refused` if nothing is set."""
        try:
            mode, document = json.loads((self.path / "state.json").read_text())[provider]
        except (OSError, KeyError):
            return "refused", ""
        return mode, document

    def record(self, provider: str, document: str) -> None:
        """Record that a document is sent now."""
        line = json.dumps([round(time.time(), 3), provider, document])
        with self._lock, self.log.open("a") as file:
            file.write(line + "\n")

    def served(self) -> list[Served]:
        """Return all documents that were sent, in their order."""
        if not self.log.exists():
            return []
        complete, _, _ = self.log.read_text().rpartition("\n")
        return [Served(*json.loads(line)) for line in complete.splitlines()]


class Handler(QuietHandler):
    """Send what the state of a provider names."""

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        """Send a document, a part of it, or a status."""
        provider: Provider = self.server.provider  # type: ignore[attr-defined]
        mode, document = provider.folder.read(provider.name)
        with contextlib.suppress(OSError):
            if mode == "refused":  # a connection that is still open
                self.close_connection = True
            elif self.path != PATHS[provider.name]:
                self.send(404, {}, b"")
            elif mode.startswith("status-"):
                self.send(int(mode.removeprefix("status-")), {}, b"<html><body>sorry</body></html>")
            else:
                self._send(provider, mode, document)

    def _send(self, provider: Provider, mode: str, document: str) -> None:
        body = provider.folder.document(document)
        if mode == "slow":
            time.sleep(SLOW_SECONDS)
        if mode == "truncated":
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_WR)
            return
        provider.folder.record(provider.name, document)
        self.send(200, {}, body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


@dataclass
class Provider:
    """A provider, which listens unless its mode is `refused`."""

    name: str
    folder: Folder
    address: str
    port: int

    def run(self) -> None:
        """Listen and stop, as the state names it."""
        while True:
            if self._is_refused():
                time.sleep(POLL_SECONDS)
                continue
            server = _Server((self.address, self.port), Handler)
            server.provider = self  # type: ignore[attr-defined]
            with serving(server):
                while not self._is_refused():
                    time.sleep(POLL_SECONDS)

    def _is_refused(self) -> bool:
        return self.folder.read(self.name)[0] == "refused"


def main(folder: str, address: str) -> None:
    """Run all providers."""
    providers = [Provider(name, Folder(Path(folder)), address, port) for name, port in PORTS.items()]
    threads = [threading.Thread(target=each.run) for each in providers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
