"""A server on loopback that records pushed metrics, as a Pushgateway receives them, and what metrics contain."""

import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tests.serving import QuietHandler, serving

Series = dict[tuple[str, ...], float]
Answer = Callable[["Handler"], None]


class Push(NamedTuple):
    """A request with metrics."""

    method: str
    path: str
    headers: dict[str, str]
    text: str


def series(text: str, metric: str, without: Collection[str] = ()) -> Series:
    """Return the values of a metric by the values of its labels, in the order of their names.

    The labels that all metrics have are left out, and those in `without`.
    """
    found = [each for family in text_string_to_metric_families(text) for each in family.samples if each.name == metric]
    left_out = {"chore", "installation", *without}
    return {tuple(v for name, v in sorted(each.labels.items()) if name not in left_out): each.value for each in found}


def status(code: int, **headers: str) -> Answer:
    """Return a response with this status, and a body that no message may show."""
    return lambda handler: handler.send(code, headers, b"the body of the answer")


class Handler(QuietHandler):
    """Record the request, and send the response that its server serves."""

    def do_PUT(self) -> None:  # noqa: N802 - the name that http.server calls
        """Record the request; ignore a client that closed the connection."""
        gateway: Gateway = self.server.gateway  # type: ignore[attr-defined]
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        gateway.pushes.append(Push(self.command, self.path, dict(self.headers), text))
        with contextlib.suppress(OSError):
            gateway.answer(self)

    do_POST = do_GET = do_PUT  # noqa: N815 - the names that http.server calls


@dataclass
class Gateway:
    """The server."""

    url: str
    answer: Answer = field(default_factory=lambda: status(200))
    pushes: list[Push] = field(default_factory=list)

    @property
    def last(self) -> Push:
        """The last request."""
        return self.pushes[-1]


@contextlib.contextmanager
def serve() -> Iterator[Gateway]:
    """Record pushes on a free port of loopback until the context ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    gateway = Gateway(f"http://127.0.0.1:{server.server_port}")
    server.gateway = gateway  # type: ignore[attr-defined]
    with serving(server):
        yield gateway
