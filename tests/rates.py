"""A server of rates on loopback: documents in the formats of the providers, and failures of these providers."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from http.server import ThreadingHTTPServer

from tests.serving import QuietHandler, serving

# Invented rates of eight currencies: none was ever a real rate.
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

SLOW_SECONDS = 20.0  # few tests take that long

Answer = Callable[["Handler"], None]


def today() -> date:
    """The current day in UTC, as the job computes it."""
    return datetime.now(timezone.utc).date()


def ago(days: int) -> date:
    """The date that many days ago; a negative number is a future date."""
    return today() - timedelta(days)


def ecb(day: date | None = None, rates: Mapping[str, str] = RATES) -> bytes:
    """Return a daily document of the ECB."""
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
    """Return a response of Frankfurter's v1/latest; its rates are JSON numbers without trailing zeros."""
    numbers = ",".join(f'"{code}":{_short(rate)}' for code, rate in rates.items())
    return f'{{"amount":{amount},"base":"{base}","date":"{day or today()}","rates":{{{numbers}}}}}'.encode()


def open_er_api(day: date | None = None, rates: Mapping[str, str] = RATES, base: str = "EUR") -> bytes:
    """Return a response of open.er-api.com's v6/latest."""
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


class Handler(QuietHandler):
    """Send the responses that its server serves."""

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        """Send the response; ignore a client that closed the connection."""
        served: RatesServer = self.server.rates  # type: ignore[attr-defined]
        served.requests.append((self.path, self.headers.get("User-Agent", "")))
        with contextlib.suppress(OSError):
            served.answers.get(self.path.partition("?")[0], status(404))(self)


@dataclass
class RatesServer:
    """The server; `answers` are by path, `requests` are paths and User-Agents in order."""

    url: str
    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)

    def serve(self, provider: str, answer: Answer | bytes) -> None:
        """Serve this response, or this document, for a provider from now on."""
        self.answers[PATHS[provider]] = answer if callable(answer) else document(answer)

    def publish(self, *, day: date | None = None, rates: Mapping[str, str] = RATES) -> None:
        """Serve these rates for all providers."""
        for provider, write in DOCUMENTS.items():
            self.serve(provider, write(day, rates))

    def fail(self, code: int) -> None:
        """Serve this status for the providers that are used by default."""
        for provider in ("ecb", "frankfurter"):
            self.serve(provider, status(code))

    def env(self) -> dict[str, str]:
        """Return the environment with the URLs of the providers for the job."""
        return {f"CHORES_{name.upper().replace('-', '_')}_URL": self.url + path for name, path in PATHS.items()}

    def fetched(self) -> list[str]:
        """Return the providers that were fetched since the last call, in order."""
        by_path = {path: provider for provider, path in PATHS.items()}
        fetched = [by_path[path] for path, _ in self.requests if path in by_path]
        self.requests.clear()
        return fetched


@contextlib.contextmanager
def serve() -> Iterator[RatesServer]:
    """Serve rates on a free port of loopback until the context ends, all on one day if the test is not slow."""
    tomorrow = datetime.combine(ago(-1), datetime.min.time(), timezone.utc)
    left = (tomorrow - datetime.now(timezone.utc)).total_seconds()
    if left < SLOW_SECONDS:
        time.sleep(left + 0.1)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    rates = RatesServer(f"http://127.0.0.1:{server.server_port}")
    server.rates = rates  # type: ignore[attr-defined]
    rates.publish()
    with serving(server):
        yield rates


# responses


def document(body: bytes, status: int = 200, **headers: str) -> Answer:
    """Return a complete response with this body."""

    def answer(handler: Handler) -> None:
        handler.send(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)

    return answer


def status(code: int, **headers: str) -> Answer:
    """Return a response with this status and a page of HTML."""
    return document(b"<html><body>sorry</body></html>", code, **headers)


def redirect(to: str) -> Answer:
    return status(302, Location=to)


def silence(handler: Handler) -> None:
    """Accept the request and never respond; the client closes the connection."""
    handler.connection.recv(1)
    handler.close_connection = True


def flood(megabytes: int) -> Answer:
    """Return a response with a body of this size without Content-Length."""

    def answer(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.close_connection = True
        for _ in range(megabytes):
            handler.wfile.write(b" " * (1 << 20))

    return answer
