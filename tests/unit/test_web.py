"""Documents from the web: what is asked for, how often, and that nothing shows which must not."""

from __future__ import annotations

import ssl
import threading
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from itertools import count
from time import monotonic

import pytest
import requests
import responses
from urllib3.exceptions import SSLError

from jobs.kit import web
from jobs.kit.web import Page, fetch, fetch_all, shown

URL = "https://user:of-the-tests@rates.example.com:8443/daily.xml?key=of-the-tests"
AGENT = "kube-chores/0 (tests)"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "LONGEST_PAUSE_SECONDS", 0.0)


@responses.activate
def test_a_document_is_asked_for_once_by_name() -> None:
    answer = responses.get(URL, b"<rates/>")

    assert fetch(URL, AGENT) == Page(b"<rates/>", status=200)

    (call,) = answer.calls
    assert call.request.headers["User-Agent"] == AGENT


@responses.activate
@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again(status: int) -> None:
    responses.get(URL, b"", status=status)
    responses.get(URL, b"", status=status)
    responses.get(URL, b"at last")

    assert fetch(URL, AGENT) == Page(b"at last", status=200)
    assert len(responses.calls) == 3


@responses.activate
def test_pauses_are_drawn_from_an_ever_wider_range(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(web, "LONGEST_PAUSE_SECONDS", 3.0)
    monkeypatch.setattr(web, "sleep", pauses.append)
    monkeypatch.setattr("random.uniform", lambda low, high: (low + high) / 2)
    responses.get(URL, b"", status=503)

    assert fetch(URL, AGENT).error == "HTTP 503 Service Unavailable"
    assert pauses == [1.0, 1.5]


@responses.activate
@pytest.mark.parametrize("status", [204, 304, 400, 401, 403, 404, 410, 599])
def test_what_does_not_pass_is_not_tried_again(status: int) -> None:
    answer = responses.get(URL, b"", status=status)

    page = fetch(URL, AGENT)

    assert (page.error[:8], page.status) == (f"HTTP {status}", status)
    assert answer.call_count == 1


def test_many_documents_are_fetched_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(web.IN_FLIGHT, timeout=10)
    numbers = [f"https://rates.example.com/{number}" for number in range(2 * web.IN_FLIGHT)]

    def tried(url: str, *_: object) -> Page:
        together.wait()
        return Page(url.encode(), status=200)

    monkeypatch.setattr(web, "_tried", tried)

    assert fetch_all(numbers, AGENT) == {url: Page(url.encode(), status=200) for url in numbers}
    assert fetch_all([], AGENT) == {}


@responses.activate
@pytest.mark.parametrize(
    ("error", "told", "tries"),
    [
        (
            requests.ConnectionError(ConnectionResetError(104, "Connection reset by peer")),
            "connection reset by peer",
            3,
        ),
        (requests.ConnectionError("HTTPSConnectionPool(host='x', port=1)"), "the answer was cut short", 3),
        (requests.ConnectTimeout("x"), "no connection within 5 seconds", 3),
        (requests.ReadTimeout("x"), "no answer within 10 seconds", 3),
        (requests.exceptions.ChunkedEncodingError("x"), "the answer was cut short", 3),
        (requests.exceptions.ProxyError(OSError(111, "Connection refused")), "the proxy of HTTPS_PROXY", 3),
        (
            requests.exceptions.SSLError(SSLError(ssl.SSLCertVerificationError(1, "self-signed"))),
            "its certificate is not accepted; REQUESTS_CA_BUNDLE",
            1,
        ),
        (requests.exceptions.SSLError(SSLError(ssl.SSLEOFError(8, "EOF"))), "TLS fails: does it serve HTTPS", 3),
        (requests.TooManyRedirects("x"), "more than 5 redirects", 1),
        (requests.exceptions.InvalidURL(URL), "it cannot be asked for: is the URL right?", 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_each_failure_is_told_in_words_without_addresses(error: Exception, told: str, tries: int) -> None:
    answer = responses.get(URL, body=error)

    page = fetch(URL, AGENT)

    assert page.error.startswith(told)
    assert "of-the-tests" not in page.error
    assert answer.call_count == tries


@responses.activate
@pytest.mark.parametrize("url", [URL, URL.replace("https", "HTTPS")])
def test_a_redirect_that_leaves_https_is_not_followed(url: str) -> None:
    responses.get(URL, status=302, headers={"Location": "http://rates.example.com/daily.xml"})
    plain = responses.get("http://rates.example.com/daily.xml", b"<rates/>")

    assert fetch(url, AGENT) == Page(error="redirected from https to http")
    assert plain.call_count == 0


@responses.activate
def test_a_redirect_within_https_is_followed() -> None:
    responses.get(URL, status=301, headers={"Location": "https://elsewhere.example.com/daily.xml"})
    responses.get("https://elsewhere.example.com/daily.xml", b"<rates/>")

    assert fetch(URL, AGENT) == Page(b"<rates/>", status=200)


@responses.activate
def test_a_redirect_has_a_greatest_size_too() -> None:
    responses.get(URL, b"x" * (web.MAX_BODY_BYTES + 1), status=302, headers={"Location": "/elsewhere"})

    assert fetch(URL, AGENT).error == "more than 1024 KiB"


@responses.activate
@pytest.mark.parametrize(("size", "error"), [(0, ""), (1, "more than 1024 KiB")])
def test_a_document_has_a_greatest_size(size: int, error: str) -> None:
    responses.get(URL, b"x" * (web.MAX_BODY_BYTES + size))

    page = fetch(URL, AGENT)

    assert page.error == error
    assert len(page.body) == (0 if error else web.MAX_BODY_BYTES)


@responses.activate
@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_wait_that_is_too_long_is_not_begun(form: str) -> None:
    in_an_hour = format_datetime(datetime.now(timezone.utc) + timedelta(hours=1), usegmt=True)
    value = {"seconds": "3600", "date": in_an_hour}[form]
    answer = responses.get(URL, b"", status=429, headers={"Retry-After": value})

    assert fetch(URL, AGENT).error == "HTTP 429 Too Many Requests"
    assert answer.call_count == 1


@responses.activate
@pytest.mark.parametrize(
    "value",
    ["soon", "-5", "", "Fri, 31 Dec 1999 23:59:59 GMT", "1" * 400, f"Fri, 31 Dec 1999 23:59:59 +{'9' * 20}"],
)
def test_a_wait_that_makes_no_sense_is_none(value: str) -> None:
    responses.get(URL, b"", status=503, headers={"Retry-After": value})

    assert fetch(URL, AGENT).error == "HTTP 503 Service Unavailable"


def test_a_run_that_is_to_stop_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()

    def hang(*_: object) -> bytes:
        end.wait(30)
        return b""

    monkeypatch.setattr(web, "_body", hang)
    asked = count()

    page = fetch(URL, AGENT, lambda: next(asked) > 2)

    assert page == Page(error="not fetched: the run was stopped")
    assert not end.is_set(), "the server would still be waited for"
    end.set()


@responses.activate
@pytest.mark.parametrize("location", ["http://[", "https://[::1"])
def test_a_redirect_to_no_address_is_told(location: str) -> None:
    responses.get(URL, status=302, headers={"Location": location})

    assert fetch(URL, AGENT) == Page(error="it cannot be asked for: is the URL right?")


@pytest.mark.parametrize("url", ["http://a..b/", f"http://{'a' * 64}.example.com/", "http://[::1/", "http://x:y/"])
def test_a_url_that_is_no_address_is_told(url: str) -> None:
    assert fetch(url, AGENT) == Page(error="it cannot be asked for: is the URL right?")


def test_authorities_that_are_not_there_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere/authorities.pem")

    assert fetch("https://127.0.0.1:1/", AGENT).error.endswith("does what REQUESTS_CA_BUNDLE names exist?")


def test_a_server_that_never_ends_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()
    monkeypatch.setattr(web, "TOTAL_SECONDS", 0.2)
    monkeypatch.setattr(web, "_body", lambda *_: end.wait(30))
    begun = monotonic()

    assert fetch(URL, AGENT) == Page(error="no whole answer within 0.2 seconds")
    assert monotonic() - begun < 5
    end.set()


def test_a_url_is_shown_without_what_it_may_hold() -> None:
    assert shown(URL) == "https://rates.example.com:8443/daily.xml"
    assert shown("http://[::1]:1/x") == "http://[::1]:1/x"


def test_proxies_and_authorities_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[str, object] = {}

    def send(_self: object, request: requests.PreparedRequest, **settings: object) -> requests.Response:
        sent.update(settings)
        raise requests.exceptions.InvalidURL

    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", send)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.com:3128")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/etc/authorities.pem")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)

    fetch(URL, AGENT)

    assert sent["verify"] == "/etc/authorities.pem"
    assert sent["proxies"]["https"] == "http://proxy.example.com:3128"  # type: ignore[index]
    assert sent["timeout"] == (web.CONNECT_SECONDS, web.READ_SECONDS)
