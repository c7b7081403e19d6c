"""Documents from the web: requests, retries, limits, and errors without addresses or credentials."""

import gzip
import socket
import ssl
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from functools import partial
from itertools import count
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer

import pytest
import requests
import responses
from urllib3.exceptions import SSLError

from jobs.kit import web
from jobs.kit.values.reads import Download
from jobs.kit.values.text import without_credentials
from jobs.kit.web import fetch, fetch_all
from tests.control_plane import expire, make_certificates
from tests.serving import serving
from tests.wire import recorder

URL = "https://user:of-the-tests@rates.example.com:8443/daily.xml?key=of-the-tests"
RESET, NO_TLS = "connection reset by peer", "the TLS connection failed; check that the server serves HTTPS"
AGENT = "kube-chores/0 (tests)"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "LONGEST_PAUSE_SECONDS", 0.0)


@responses.activate
def test_a_document_is_requested_once_with_the_user_agent() -> None:
    answer = responses.get(URL, b"<rates/>")

    assert fetch(URL, AGENT) == Download(b"<rates/>", status=200)

    (call,) = answer.calls
    assert call.request.headers["User-Agent"] == AGENT


@responses.activate
@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_temporary_failure_is_retried(status: int) -> None:
    responses.get(URL, b"", status=status)
    responses.get(URL, b"", status=status)
    responses.get(URL, b"at last")

    assert fetch(URL, AGENT) == Download(b"at last", status=200)
    assert len(responses.calls) == 3


@responses.activate
def test_the_range_of_random_pauses_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(web, "LONGEST_PAUSE_SECONDS", 3.0)
    monkeypatch.setattr(web, "sleep", pauses.append)
    monkeypatch.setattr("random.uniform", lambda low, high: (low + high) / 2)
    responses.get(URL, b"", status=503)

    assert fetch(URL, AGENT).error == "HTTP 503 Service Unavailable"
    assert pauses == [1.0, 1.5]


@responses.activate
@pytest.mark.parametrize("status", [204, 304, 400, 401, 403, 404, 410, 599])
def test_a_permanent_failure_is_not_retried(status: int) -> None:
    answer = responses.get(URL, b"", status=status)

    page = fetch(URL, AGENT)

    assert (page.error[:8], page.status) == (f"HTTP {status}", status)
    assert answer.call_count == 1


def test_many_documents_are_fetched_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(web.IN_FLIGHT, timeout=300)
    numbers = [f"https://rates.example.com/{number}" for number in range(2 * web.IN_FLIGHT)]

    def tried(_session: object, url: str, *_: object) -> bytes:
        together.wait()
        return url.encode()

    monkeypatch.setattr(web, "_get_body", tried)

    pages = fetch_all(numbers, AGENT, lambda: False)

    assert pages == {url: Download(url.encode(), status=200) for url in numbers}
    assert list(pages) == numbers


def test_a_request_that_never_ends_delays_the_next_only_until_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    end, silent, good = threading.Event(), "https://silent.example.com/", "https://rates.example.com/"

    def tried(_session: object, url: str, *_: object) -> bytes:
        if url == silent:
            end.wait(30)
        return b""

    monkeypatch.setattr(web, "IN_FLIGHT", 1)
    monkeypatch.setattr(web, "TOTAL_SECONDS", 2.0)
    monkeypatch.setattr(web, "_get_body", tried)

    pages = fetch_all([silent, good], AGENT, lambda: False)

    assert pages == {silent: Download(error="no complete answer within 2 seconds"), good: Download(status=200)}
    end.set()


@responses.activate
@pytest.mark.parametrize(
    ("error", "described", "tries"),
    [
        (requests.ConnectionError(ConnectionResetError(104, RESET.capitalize())), RESET, 3),
        (requests.ConnectionError("HTTPSConnectionPool(host='x', port=1)"), "the answer is incomplete", 3),
        (requests.ConnectTimeout("x"), "no connection within 5 seconds", 3),
        (requests.ReadTimeout("x"), "no answer within 10 seconds", 3),
        (requests.exceptions.ChunkedEncodingError("x"), "the answer is incomplete", 3),
        (requests.exceptions.ProxyError(OSError(111, "Connection refused")), "the proxy of HTTPS_PROXY", 3),
        (requests.exceptions.SSLError(SSLError(ssl.SSLEOFError(8, "EOF"))), NO_TLS, 3),
        (requests.TooManyRedirects("x"), "more than 5 redirects", 1),
        (requests.exceptions.InvalidURL(URL), "the request failed; check the URL", 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_each_failure_is_described_without_addresses(error: Exception, described: str, tries: int) -> None:
    answer = responses.get(URL, body=error)

    page = fetch(URL, AGENT)

    assert page.error.startswith(described)
    assert "of-the-tests" not in page.error
    assert answer.call_count == tries


@responses.activate
@pytest.mark.parametrize("url", [URL, URL.replace("https", "HTTPS")])
def test_a_redirect_that_leaves_https_is_not_followed(url: str) -> None:
    responses.get(URL, status=302, headers={"Location": "http://rates.example.com/daily.xml"})
    plain = responses.get("http://rates.example.com/daily.xml", b"<rates/>")

    assert fetch(url, AGENT) == Download(error="redirected from https to http")
    assert plain.call_count == 0


@responses.activate
def test_a_redirect_within_https_is_followed() -> None:
    responses.get(URL, status=301, headers={"Location": "https://elsewhere.example.com/daily.xml"})
    responses.get("https://elsewhere.example.com/daily.xml", b"<rates/>")

    assert fetch(URL, AGENT) == Download(b"<rates/>", status=200)


@responses.activate
def test_the_size_of_a_redirect_is_limited_too() -> None:
    responses.get(URL, b"x" * (web.MAX_BODY_BYTES + 1), status=302, headers={"Location": "/elsewhere"})

    assert fetch(URL, AGENT).error == "the answer has more than 128 KiB"


@responses.activate
def test_the_body_of_a_redirect_is_not_decompressed() -> None:
    responses.get(URL, b"broken", status=302, headers={"Location": "/elsewhere", "Content-Encoding": "gzip"})
    responses.get(URL.partition("/daily")[0] + "/elsewhere", b"<rates/>")

    assert fetch(URL, AGENT) == Download(b"<rates/>", status=200)


@responses.activate
@pytest.mark.parametrize(("size", "error"), [(0, ""), (1, "the answer has more than 128 KiB")])
def test_the_size_of_a_document_is_limited(size: int, error: str) -> None:
    responses.get(URL, b"x" * (web.MAX_BODY_BYTES + size))

    page = fetch(URL, AGENT)

    assert page.error == error
    assert len(page.body) == (0 if error else web.MAX_BODY_BYTES)


@responses.activate
@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_retry_after_beyond_the_deadline_is_not_waited_for(form: str) -> None:
    in_an_hour = format_datetime(datetime.now(timezone.utc) + timedelta(hours=1), usegmt=True)
    value = {"seconds": "3600", "date": in_an_hour}[form]
    answer = responses.get(URL, b"", status=429, headers={"Retry-After": value})

    assert fetch(URL, AGENT).error == "HTTP 429 Too Many Requests"
    assert answer.call_count == 1


@responses.activate
@pytest.mark.parametrize(
    "value", ["soon", "-5", "", "Fri, 31 Dec 1999 23:59:59 GMT", "1" * 400, f"Fri, 31 Dec 1999 23:59:59 +{'9' * 20}"]
)
def test_an_invalid_retry_after_counts_as_0(value: str) -> None:
    responses.get(URL, b"", status=503, headers={"Retry-After": value})

    assert fetch(URL, AGENT).error == "HTTP 503 Service Unavailable"


def test_a_stopped_run_does_not_wait_for_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()

    def hang(*_: object) -> bytes:
        end.wait(30)
        return b""

    monkeypatch.setattr(web, "_get_body", hang)
    asked = count()

    page = fetch(URL, AGENT, lambda: next(asked) > 2)

    assert page == Download(error="not fetched: the run was stopped")
    assert not end.is_set(), "the server would still be waited for"
    end.set()


@pytest.mark.parametrize("url", ["http://a..b/", f"http://{'a' * 64}.example.com/", "http://[::1/", "http://x:y/"])
def test_an_invalid_url_is_an_error(url: str) -> None:
    assert fetch(url, AGENT) == Download(error="the request failed; check the URL")


def test_a_missing_file_of_authorities_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere/authorities.pem")

    assert fetch("https://127.0.0.1:1/", AGENT).error.endswith("check that the file of REQUESTS_CA_BUNDLE exists")


def test_an_endless_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()
    monkeypatch.setattr(web, "TOTAL_SECONDS", 0.2)
    monkeypatch.setattr(web, "_get_body", lambda *_: end.wait(30))

    assert fetch(URL, AGENT) == Download(error="no complete answer within 0.2 seconds")
    end.set()


@pytest.mark.parametrize("beginning", [b"HTTP/1.1 200 OK\r\nA: ", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["header", "body"])
def test_single_bytes_do_not_extend_the_limit(beginning: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()

    def in_bytes() -> Iterator[bytes]:
        yield beginning
        while not end.wait(0.05):
            yield b"a"

    monkeypatch.setattr(web, "TOTAL_SECONDS", 0.5)

    with answering(in_bytes()) as url:
        error = fetch(url, AGENT).error
        end.set()

    assert error == "no complete answer within 0.5 seconds"


def test_a_url_is_shown_without_credentials_and_query() -> None:
    assert without_credentials(URL) == "https://rates.example.com:8443/daily.xml"
    assert without_credentials("http://[::1]:1/x") == "http://[::1]:1/x"


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


@contextmanager
def answering(answer: bytes | Iterator[bytes]) -> Iterator[str]:
    """Answer each request with these bytes and close the connection; yield the URL."""

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            for part in [answer] if isinstance(answer, bytes) else answer:
                self.wfile.write(part)

    server = ThreadingTCPServer(("127.0.0.1", 0), Handler)
    with serving(server):
        yield f"http://127.0.0.1:{server.server_address[1]}/rates"


def encoded(encoding: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


DOCUMENT = b"<rates>" + b"<rate/>" * 100 + b"</rates>"
zipped = partial(gzip.compress, mtime=0)
ZIPPED = zipped(DOCUMENT)
BOMB = zipped(bytes(50 << 20))
NOT_GZIP = "the answer has a body that is not valid gzip"
NOT_HTTP = "the answer is not HTTP"
NOT_READ = "the answer has Content-Encoding {}; only gzip is read"
FOUND = b"HTTP/1.1 302 Found\r\nLocation: %s\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


ANSWERS = {
    "gzip without its end": (encoded("gzip", ZIPPED[:-12]), NOT_GZIP),
    "gzip without its content": (encoded("gzip", ZIPPED[:20]), NOT_GZIP),
    "gzip with a wrong checksum": (encoded("gzip", ZIPPED[:-8] + bytes(8)), NOT_GZIP),
    "gzip and more": (encoded("gzip", ZIPPED + b"more"), NOT_GZIP),
    "gzip that is none": (encoded("gzip", DOCUMENT), NOT_GZIP),
    "gzip of nothing": (encoded("gzip", b""), NOT_GZIP),
    "gzip bomb": (encoded("gzip", BOMB), "the answer has more than 128 KiB"),
    "5,000 times gzip": (encoded("gzip", zipped(b"") * 5_000), NOT_GZIP),
    "gzip twice": (encoded("gzip, gzip", zipped(BOMB)), NOT_READ.format("gzip, gzip")),
    "br": (encoded("br", b"\x8b\x02\x80rates\x03"), NOT_READ.format("br")),
    "an encoding with a long name": (encoded("x" * 100, DOCUMENT), NOT_READ.format("x" * 32 + "… (100 characters)")),
    "deflate": (encoded("deflate", zlib.compress(DOCUMENT)), NOT_READ.format("deflate")),
    "nothing": (b"", "the connection was closed without an answer"),
    "SSH": (b"SSH-2.0-OpenSSH_9.2\r\n", NOT_HTTP),
    "a status that is not a number": (b"HTTP/1.1 abc\r\n\r\n", NOT_HTTP),
    "many headers": (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", NOT_HTTP),
    "a long header": (b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000 + b"\r\n\r\n", NOT_HTTP),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nab", "the answer has headers that are not valid"),
    "a chunk of no length": (CHUNKED + b"zz\r\n", NOT_HTTP),
    "a chunk that is cut short": (CHUNKED + b"5\r\nab", "the answer is incomplete"),
    "a body that is cut short": (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab", "the answer is incomplete"),
    "redirect to FTP": (FOUND % b"ftp://127.0.0.1/", "redirected to a URL that is not http or https"),
    "redirect to no URL": (FOUND % b"http://[", "redirected to a URL that is not valid"),
    "redirect to an address cut short": (FOUND % b"https://[::1", "redirected to a URL that is not valid"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_a_response_that_is_not_a_document_is_described(case: str) -> None:
    answer, error = ANSWERS[case]

    with answering(answer) as url:
        page = fetch(url, AGENT)

    assert (page.error, page.body) == (error, b"")


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("gzip", ZIPPED), ("GZIP", ZIPPED), ("x-gzip", ZIPPED), ("identity", DOCUMENT), ("", DOCUMENT)],
    ids=["gzip", "GZIP", "x-gzip", "identity", "none"],
)
def test_a_compressed_document_is_decompressed(encoding: str, body: bytes) -> None:
    with answering(encoded(encoding, body)) as url:
        assert fetch(url, AGENT) == Download(DOCUMENT, status=200)


def test_gzip_is_the_only_encoding_that_is_accepted() -> None:
    with recorder() as server:
        fetch(f"http://127.0.0.1:{server.port}/", AGENT)

    (sent,) = server.requests
    assert sent.values("accept-encoding") == ["gzip"]


@pytest.mark.parametrize("proxy", ["http://:3128", "http:"])
def test_a_proxy_whose_url_is_not_valid_is_named(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)

    assert fetch("http://rates.example.com/", AGENT).error == "the URL of HTTPS_PROXY or HTTP_PROXY is not valid"


def test_a_proxy_that_refuses_is_named_with_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n") as url:
        monkeypatch.setenv("HTTPS_PROXY", url)

        error = fetch("https://rates.example.com/", AGENT).error

    why = "it answered 407 Proxy Authentication Required"
    assert error == f"the proxy of HTTPS_PROXY or HTTP_PROXY failed: {why}"


def test_a_certificate_of_another_name_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_certificates(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.crt"))

    with recorder(tls=tmp_path) as server:
        at = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: at)
        error = fetch(URL, AGENT).error

    assert error.startswith("its certificate is not accepted: Hostname mismatch")
    assert "REQUESTS_CA_BUNDLE" not in error


def test_a_certificate_of_an_unknown_authority_is_named_with_a_remedy(tmp_path: Path) -> None:
    make_certificates(tmp_path)

    with recorder(tls=tmp_path) as server:
        error = fetch(f"https://localhost:{server.port}/", AGENT).error

    assert error.startswith("its certificate is not accepted: self-signed certificate")
    assert error.endswith("; to trust another authority, set REQUESTS_CA_BUNDLE")


def test_an_expired_certificate_has_the_clock_as_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_certificates(tmp_path)
    expire(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.crt"))

    with recorder(tls=tmp_path) as server:
        error = fetch(f"https://localhost:{server.port}/", AGENT).error

    assert error == "its certificate is not accepted: certificate has expired; check the clock of the node"


def test_a_resolver_that_hangs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: ended.wait())

    monkeypatch.setattr(web, "TOTAL_SECONDS", 0.1)

    error = fetch("https://rates.example.com/", AGENT).error
    ended.set()

    assert error == "no DNS server answered"


def test_a_resolver_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)

    assert fetch(URL, AGENT).error == "no DNS server answered"


def test_the_body_of_a_redirect_that_is_not_followed_is_not_read() -> None:
    parts = iter([b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\n\r\n", *1000 * [bytes(1 << 16)]])

    with answering(parts) as url:
        pages = fetch_all([url], AGENT, lambda: False, probes=[url])

    assert (pages[url].error, pages[url].status) == ("HTTP 302 Found", 302)
    assert next(parts, b""), "the client closed the connection before the end"
