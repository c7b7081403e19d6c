"""A server of rates on loopback: documents of the providers' shapes, written for the tests, and bad days of theirs."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# The six currencies of the blog and two more; none of these is or was a rate.
RATES = {
    "CAD": "1.6250",
    "CHF": "0.9360",
    "GBP": "0.87125",
    "JPY": "163.20",
    "PLN": "4.2500",
    "USD": "1.1380",
    "SEK": "11.0125",
    "ISK": "143.10",
}
PATHS = {"ecb": "/ecb.xml", "frankfurter": "/v1/latest", "open-er-api": "/v6/latest/EUR"}

Answer = Callable[["Handler"], None]


def today() -> date:
    """The day of the tests, as the job has it."""
    return datetime.now(timezone.utc).date()


def ago(days: int) -> date:
    """The day so many days ago."""
    return today() - timedelta(days)


def ecb(day: date | None = None, rates: Mapping[str, str] = RATES) -> bytes:
    """A daily document of the ECB."""
    cubes = "\n".join(f"\t\t\t<Cube currency='{code}' rate='{rate}'/>" for code, rate in rates.items())
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<gesmes:Envelope xmlns:gesmes="http://www.gesmes.org/xml/2002-08-01" xmlns="http://www.ecb.int/vocabulary/2002-08-01/eurofxref">
\t<gesmes:subject>Reference rates</gesmes:subject>
\t<gesmes:Sender>
\t\t<gesmes:name>European Central Bank</gesmes:name>
\t</gesmes:Sender>
\t<Cube>
\t\t<Cube time='{day or today()}'>
{cubes}
\t\t</Cube>
\t</Cube>
</gesmes:Envelope>""".encode()


def frankfurter(
    day: date | None = None, rates: Mapping[str, str] = RATES, base: str = "EUR", amount: str = "1.0"
) -> bytes:
    """An answer of Frankfurter's v1/latest; its rates are JSON numbers, without zeros at the end."""
    numbers = ",".join(f'"{code}":{_short(rate)}' for code, rate in rates.items())
    return f'{{"amount":{amount},"base":"{base}","date":"{day or today()}","rates":{{{numbers}}}}}'.encode()


def open_er_api(day: date | None = None, rates: Mapping[str, str] = RATES, base: str = "EUR") -> bytes:
    """An answer of open.er-api.com's v6/latest."""
    at = int(datetime.combine(day or today(), datetime.min.time(), timezone.utc).timestamp()) + 151
    numbers = ",".join(f'"{code}":{_short(rate)}' for code, rate in {"EUR": "1", **rates}.items())
    head = {
        "result": "success",
        "provider": "https://www.exchangerate-api.com",
        "documentation": "https://www.exchangerate-api.com/docs/free",
        "terms_of_use": "https://www.exchangerate-api.com/terms",
        "time_last_update_unix": at,
        "time_next_update_unix": at + 86400,
        "time_eol_unix": 0,
        "base_code": base,
    }
    return f'{json.dumps(head)[:-1]}, "rates": {{{numbers}}}}}'.encode()


def _short(rate: str) -> str:
    try:
        return format(Decimal(rate).normalize(), "f") if "e" not in rate and Decimal(rate).is_finite() else rate
    except ArithmeticError:
        return rate


DOCUMENTS: dict[str, Callable[..., bytes]] = {"ecb": ecb, "frankfurter": frankfurter, "open-er-api": open_er_api}


class Handler(BaseHTTPRequestHandler):
    """Answers as its server was told."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer, and let a client that has gone away go."""
        served: RatesServer = self.server.rates  # type: ignore[attr-defined]
        served.requests.append((self.path, self.headers.get("User-Agent", "")))
        with contextlib.suppress(OSError):
            served.answers.get(self.path.partition("?")[0], status(404))(self)

    def log_message(self, *_words: Any) -> None:
        """Say nothing."""


@dataclass
class RatesServer:
    """The server; `answers` are by path, `requests` are paths and User-Agents in order."""

    url: str
    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)

    def tell(self, provider: str, answer: Answer | bytes) -> None:
        """Have a provider answer like this, or with this document."""
        self.answers[PATHS[provider]] = answer if callable(answer) else document(answer)

    def publish(self, *, day: date | None = None, rates: Mapping[str, str] = RATES) -> None:
        """Have all providers publish these rates."""
        for provider, write in DOCUMENTS.items():
            self.tell(provider, write(day, rates))

    def env(self) -> dict[str, str]:
        """Where the job finds the providers."""
        return {f"CHORES_{name.upper().replace('-', '_')}_URL": self.url + path for name, path in PATHS.items()}

    def fetched(self) -> list[str]:
        """Which providers were asked, in order, since the last call."""
        by_path = {path: provider for provider, path in PATHS.items()}
        asked = [by_path[path] for path, _ in self.requests if path in by_path]
        self.requests.clear()
        return asked


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_about: Any) -> None:
        """Say nothing of clients that hang up: that is what tests have them do."""


@contextlib.contextmanager
def serve() -> Iterator[RatesServer]:
    """Serve rates on a port of loopback until the end."""
    server = _Server(("127.0.0.1", 0), Handler)
    rates = RatesServer(f"http://127.0.0.1:{server.server_port}")
    server.rates = rates  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    rates.publish()
    try:
        yield rates
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# answers


def document(body: bytes, status: int = 200, **headers: str) -> Answer:
    """A whole answer."""

    def answer(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def status(code: int, **headers: str) -> Answer:
    """An answer with this status and a page of HTML."""
    return document(b"<html><body>sorry</body></html>", code, **headers)


def redirect(to: str) -> Answer:
    """A redirect."""
    return status(302, Location=to)


def silence(handler: Handler) -> None:
    """Take the request and never answer it; the client hangs up."""
    handler.connection.recv(1)
    handler.close_connection = True


def drip(body: bytes, pause: threading.Event) -> Answer:
    """A byte every now and then, which keeps a socket's time limit for ever."""

    def answer(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        for number in range(len(body)):
            handler.wfile.write(body[number : number + 1])
            if pause.wait(0.05):
                return

    return answer


def truncated(body: bytes) -> Answer:
    """Half of a body of the announced length, and then the end."""

    def answer(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: len(body) // 2])
        handler.close_connection = True
        handler.connection.shutdown(socket.SHUT_WR)

    return answer


def flood(megabytes: int) -> Answer:
    """A large body of unknown length."""

    def answer(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        for _ in range(megabytes):
            handler.wfile.write(b" " * (1 << 20))

    return answer
