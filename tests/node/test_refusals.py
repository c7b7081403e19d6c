"""What a registry answers while its upstream refuses it: by status, by its token server, and for other reasons."""

import contextlib
import json
import socket
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from jobs.core.mirror_cache.cache import refusal
from tests.one_node import registry
from tests.processes import Processes
from tests.serving import QuietHandler, serving

pytestmark = [pytest.mark.node, pytest.mark.usefixtures("_tools")]
BEARER = 'Bearer realm="{url}/token",service="tests"'
NO_ACCESS = f'{BEARER},scope="repository:x:pull",error="insufficient_scope"'
BASIC = 'Basic realm="tests"'
# What an upstream requires, what it answers to a login and to its blob, and what follows.
UPSTREAMS: dict[str, tuple[str, int, int, str, str | None]] = {
    "no login": ("", 0, 404, "", ""),
    "too many requests without a login": ("", 0, 429, "", "rate"),
    "a failure": ("", 0, 503, "", None),
    "a login that is accepted": (BASIC, 0, 404, "", ""),
    "a login that is rejected": (BASIC, 0, 401, BASIC, "unauthorized"),
    "no access to the repository": (BASIC, 0, 403, "", ""),
    "too many requests": (BASIC, 0, 429, "", "rate"),
    "a token": (BEARER, 200, 404, "", ""),
    "a token without access to the repository": (BEARER, 200, 401, NO_ACCESS, ""),
    "the same without a reason, as Harbor answers": (BEARER, 200, 401, BEARER, "unauthorized"),
    "too many requests with a token": (BEARER, 200, 429, "", "rate"),
    "a token server that rejects the login": (BEARER, 401, 0, "", "login"),
    "a token server that denies the login": (BEARER, 403, 0, "", "login"),
    "a token server with too many requests": (BEARER, 429, 0, "", "rate"),
    "a token server that fails": (BEARER, 503, 0, "", None),
}


class Upstream(QuietHandler):
    """An upstream that answers as UPSTREAMS defines."""

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        """Answer a request for a token or for a blob."""
        challenge, token, blob, refused, _ = self.server.upstream  # type: ignore[attr-defined]
        if self.path.startswith("/token?"):
            self._answer(token, "")
        elif challenge and "Authorization" not in self.headers:
            self._answer(401, challenge)
        else:
            self._answer(blob if self.path != "/v2/" else 200, refused)

    do_HEAD = do_GET  # noqa: N815

    def _answer(self, status: int, challenge: str) -> None:
        url = f"http://127.0.0.1:{self.server.server_port}"  # type: ignore[attr-defined]
        headers = {"WWW-Authenticate": challenge.format(url=url)} if challenge else {}
        body = b"" if self.command == "HEAD" else json.dumps({"token": "t", "details": "wrong"}).encode()
        self.send(status, {"Content-Type": "application/json", **headers}, body)


@contextlib.contextmanager
def mirror_of(url: str, folder: Path) -> Iterator[int]:
    """Run a registry as the mirror of an upstream, with a login. Yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    run = Processes(folder)
    settings = {
        "OTEL_TRACES_EXPORTER": "none",
        "REGISTRY_HTTP_ADDR": f"127.0.0.1:{port}",
        "REGISTRY_HTTP_DEBUG_ADDR": "",
        "REGISTRY_PROXY_REMOTEURL": url,
        "REGISTRY_PROXY_USERNAME": "robot",
        "REGISTRY_PROXY_PASSWORD": "wrong",
        "REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY": str(folder / "cache"),
    }
    run(registry(), "serve", str(registry().parent / "config.yml"), env=settings)
    try:
        run.wait(lambda: _listens(port), "the registry does not listen", "registry")
        yield port
    finally:
        run.end()


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@pytest.mark.parametrize("what", UPSTREAMS)
def test_the_registry_shows_why_its_upstream_refuses_it_and_stores_nothing(tmp_path: Path, what: str) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    server.upstream = UPSTREAMS[what]  # type: ignore[attr-defined]
    with serving(server), mirror_of(f"http://127.0.0.1:{server.server_port}", tmp_path) as port:
        assert refusal(port) == UPSTREAMS[what][-1]
        assert [each for each in tmp_path.rglob("*") if each.parent.name == "repositories"] == []
