"""Registries on localhost: mirrors and their caches behind a proxy for their names, and an upstream with TLS."""

import contextlib
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from tests import rates
from tests.control_plane import make_certificates
from tests.rates import Answer, document, status
from tests.serving import serving


class Handler(rates.Handler):
    """Responds as its Registries define."""

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        """Respond, and ignore a client that closed the connection."""
        served: Registries = self.server.registries  # type: ignore[attr-defined]
        parts = urlsplit(self.path)
        host = parts.netloc or self.headers["Host"]
        served.requests.append((host, parts.path))
        with contextlib.suppress(OSError):
            served.answer(host, parts.path)(self)


@dataclass
class Registries:
    """The responses of registries, and the requests that they got.

    `answers` are the responses of hosts with a problem. `caches` are the reports of mirrors' caches, by name.
    """

    proxy: str
    upstream: str
    ca_file: Path
    answers: dict[str, Answer] = field(default_factory=dict)
    caches: dict[str, object] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)

    @property
    def other_name(self) -> str:
        """The upstream by a name that is not in its certificate."""
        return self.upstream.replace("localhost", "127.0.0.2")

    def answering(self, answer: Answer) -> str:
        """Set the response of the upstream; return its host."""
        self.answers[self.upstream] = answer
        return self.upstream

    @property
    def env(self) -> dict[str, str]:
        """The environment with which the job connects to them."""
        return {
            "HTTP_PROXY": self.proxy,
            "NO_PROXY": "localhost,127.0.0.1,127.0.0.2,no-such-name.invalid",
            "REQUESTS_CA_BUNDLE": str(self.ca_file),
            "CHORES_PROBE": "network",
        }

    def answer(self, host: str, path: str) -> Answer:
        """Return the response of a host: healthy unless it is in `answers`."""
        if host in self.answers:
            return self.answers[host]
        if host.endswith(".svc:5001"):
            name = host.partition("-headless.")[0]
            return document(json.dumps(self.caches.get(name, cache_state())).encode())
        return document(b"{}") if host.endswith(".svc:5000") else status(401)


def cache_state(**differing: object) -> dict[str, object]:
    """Return the report of a healthy cache, with these fields changed."""
    return {
        "freeBytes": 9 << 30,
        "capacityBytes": 20 << 30,
        "leastFreeBytes": 2 << 30,
        "shortage": "",
        "used": True,
        "corruptBlobs": 0,
        "refusal": "",
        "lastFullRound": "2026-01-01T00:00:00Z",
        **differing,
    }


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[Registries]:
    """Serve on two ports of localhost while the context is open."""
    make_certificates(folder)
    plain, tls = (ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.crt", folder / "ca.key")
    tls.socket = context.wrap_socket(tls.socket, server_side=True)
    registries = Registries(f"http://127.0.0.1:{plain.server_port}", f"localhost:{tls.server_port}", folder / "ca.crt")
    for server in (plain, tls):
        server.registries = registries  # type: ignore[attr-defined]
    with serving(plain), serving(tls):
        yield registries
