"""Fetch small documents over HTTP from untrusted servers. The only module that imports requests.

Proxies and certificate authorities come from the environment: HTTPS_PROXY, NO_PROXY, REQUESTS_CA_BUNDLE.
https://requests.readthedocs.io/en/latest/user/advanced/#proxies
"""

from __future__ import annotations

import math
import random
import socket
import ssl
import threading
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.client import HTTPException, IncompleteRead, RemoteDisconnected
from http.cookiejar import DefaultCookiePolicy
from itertools import islice
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from jobs.kit.values.addresses import is_local_address
from jobs.kit.values.reads import NAME_NOT_FOUND, NO_DNS, NOT_FETCHED, NOT_IN_TIME, Download
from jobs.kit.values.text import brief

if TYPE_CHECKING:
    import requests

CONNECT_SECONDS = 5.0
READ_SECONDS = 10.0
TOTAL_SECONDS = 30.0  # for one document, with all attempts, pauses and redirects
PROBE_SECONDS = 9.0  # for one probe: 200 registries that do not answer take 13 rounds of 16, less than two minutes
ATTEMPTS = 3
LONGEST_PAUSE_SECONDS = 4.0
MOST_REDIRECTS = 5
IN_FLIGHT = 16
MAX_BODY_BYTES = 128 << 10  # the documents that jobs fetch have some kilobytes; parsed, one can take 80 times as much

_POLL_SECONDS = 0.1  # between two checks whether the run is stopped, or a request is over its limit
_REGISTRY_STATUSES = frozenset({HTTPStatus.OK, HTTPStatus.UNAUTHORIZED})
_RETRIED = frozenset({429, 500, 502, 503, 504})
_GZIP = 16 + zlib.MAX_WBITS
_CLOCK = "; check the clock of the node"
_AUTHORITY = "; to trust another authority, set REQUESTS_CA_BUNDLE"
# By the code of an error of a certificate: not yet valid, expired; another name, another address.
# https://docs.openssl.org/3.0/man3/X509_STORE_CTX_get_error/
_REMEDIES = {9: _CLOCK, 10: _CLOCK, 62: "", 64: ""}
_NOT_GZIP = "the answer has a body that is not valid gzip"
_NOT_HTTP = "the answer is not HTTP"
_LOCAL = "its address is of this machine, or link-local; the run requests no images there"
_CUT_SHORT = "the answer is incomplete"


def fetch(url: str, user_agent: str, stopping: Callable[[], bool] = lambda: False) -> Download:
    """Return the document at `url`, or an error after TOTAL_SECONDS, or once the run is stopped."""
    return fetch_all([url], user_agent, stopping)[url]


def fetch_all(
    urls: Collection[str],
    user_agent: str,
    stopping: Callable[[], bool],
    probes: Collection[str] = (),
    probes_end: float = math.inf,
) -> dict[str, Download]:
    """Return the documents at `urls`, or errors, once there are all or the run is stopped.

    They are requested in this order, IN_FLIGHT at a time. The redirects of `probes` are not followed, and each has
    PROBE_SECONDS. A probe that has less time before `probes_end` (of time.monotonic) and finds no registry has the
    error NOT_IN_TIME: with more time it may succeed.
    """

    def requests() -> Iterator[Task]:
        for url in urls:
            seconds = min(PROBE_SECONDS, probes_end - monotonic()) if url in probes else TOTAL_SECONDS
            if seconds > 0:
                yield Task(url, seconds, partial(_fetch, user_agent, url not in probes))

    downloads = {}
    for request, download in completed(requests(), stopping):
        is_cut = request.url in probes and request.seconds < PROBE_SECONDS
        if not is_cut or download.status in _REGISTRY_STATUSES:
            downloads[request.url] = download
    unknown = Download(error=NOT_FETCHED if stopping() else NOT_IN_TIME)
    return {url: downloads.get(url, unknown) for url in urls}


def send(
    method: str,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    seconds: float,
    stopping: Callable[[], bool] = lambda: False,
) -> Download:
    """Send a body once, without following redirects; return an empty Page, or an error after `seconds`."""
    requests = (Task(each, seconds, lambda _: _send(method, url, body, headers)) for each in [url])
    return next((download for _, download in completed(requests, stopping)), Download(error=NOT_FETCHED))


class Answer(NamedTuple):
    """The answer to a request: `headers` by their names in any case. An error, and no status: there is no answer."""

    status: int = 0
    headers: Mapping[str, str] = {}
    body: bytes = b""
    error: str = ""


class Client:
    """Sends requests one after another to servers that users of the cluster name; connections stay open.

    It follows no redirects, keeps no cookies, reads no logins of ~/.netrc, and connects to no address of this machine.
    """

    def __init__(self, user_agent: str, task: Task) -> None:
        import requests
        from requests.adapters import HTTPAdapter

        from jobs.kit.remote_pools import POOLS

        self.session, self.task = requests.Session(), task
        adapter = HTTPAdapter()
        adapter.poolmanager.pool_classes_by_scheme = POOLS
        for scheme in ("http://", "https://"):
            self.session.mount(scheme, adapter)
        self.session.headers.update({"User-Agent": user_agent, "Accept-Encoding": "identity"})
        self.session.auth = lambda request: request  # otherwise, a login of ~/.netrc replaces the header
        self.session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        _follow_no_redirects(self.session)
        self.resolved: dict[str, str] = {}  # the problem of a host, or an empty string

    def close(self) -> None:
        """Close the connections."""
        self.session.close()

    def send(self, method: str, url: str, headers: Mapping[str, str], most: int = 0) -> Answer:
        """Send a request, at most twice; return the answer with at most `most` bytes of its body."""
        if problem := self._local(url):
            return Answer(error=problem)
        try:
            return self._send(method, url, headers, most)
        except _FetchError as error:
            if error.retry_after is None or monotonic() >= self.task.deadline:
                return Answer(error=str(error))
        sleep(random.uniform(0, min(1.0, LONGEST_PAUSE_SECONDS)))  # noqa: S311
        try:
            return self._send(method, url, headers, most)
        except _FetchError as error:
            return Answer(error=str(error))

    def _send(self, method: str, url: str, headers: Mapping[str, str], most: int) -> Answer:
        limits = (CONNECT_SECONDS, READ_SECONDS)
        try:
            with self.session.request(
                method, url, headers=dict(headers), timeout=limits, allow_redirects=False, stream=True
            ) as response:
                if method == "HEAD":
                    response.content  # noqa: B018 - it has none; after this, the connection is used again
                body = _read_limited(response, most) if most else b""
                return Answer(response.status_code, response.headers, body)
        except (OSError, ValueError) as error:
            raise _classify(error) from error

    def _local(self, url: str) -> str:
        """Return the problem of the address of a host, unless a proxy resolves it."""
        host = urlsplit(url).hostname or ""
        if host not in self.resolved:
            addresses = _resolve(self.task, url)
            self.resolved[host] = _LOCAL if any(map(is_local_address, addresses)) else ""
        return self.resolved[host]


class Task:
    """A request that is sent in a thread of its own, for a limit on the total time.

    Single bytes keep a socket within its timeouts, and a resolver has none. It is a daemon thread, so that the program
    can end before it.
    """

    def __init__(self, url: str, seconds: float, work: Callable[[Task], Download]) -> None:
        self.url, self.seconds, self.deadline = url, seconds, monotonic() + seconds
        self.is_resolving = False
        self.response: Future[Download] = Future()
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def _run(self, work: Callable[[Task], Download]) -> None:
        try:
            self.response.set_result(work(self))
        except BaseException as error:  # raised again by download()
            self.response.set_exception(error)

    def download(self) -> Download | None:
        """Return the response, or an error after the deadline. None: there is no response yet."""
        if self.response.done():
            return self.response.result()
        if monotonic() < self.deadline:
            return None
        return Download(error=NO_DNS if self.is_resolving else f"no complete answer within {self.seconds:g} seconds")


def completed(requests: Iterator[Task], stopping: Callable[[], bool]) -> Iterator[tuple[Task, Download]]:
    """Yield the requests with their responses until the run is stopped. `requests` sends each when it is taken."""
    running: list[Task] = []
    while not stopping():
        running += islice(requests, IN_FLIGHT - len(running))
        if not running:
            return
        wait([each.response for each in running], _POLL_SECONDS, FIRST_COMPLETED)
        responses = [(each, each.download()) for each in running]
        running = [each for each, download in responses if download is None]
        yield from ((each, download) for each, download in responses if download is not None)


class _FetchError(Exception):
    """A failed request. Another attempt may succeed after `retry_after` seconds or more; None: it would fail too."""

    def __init__(self, reason: str, *, retry_after: float | None = None, status: int = 0, challenge: str = "") -> None:
        super().__init__(reason)
        self.retry_after, self.status, self.challenge = retry_after, status, challenge


def _fetch(user_agent: str, follow_redirects: bool, request: Task) -> Download:
    """Return the document, after at most ATTEMPTS.

    Not by urllib3's Retry: it repeats no request whose body is not complete, and waits for any time in Retry-After.
    """
    import requests

    _resolve(request, request.url)
    with requests.Session() as session:
        session.headers.update({"User-Agent": user_agent, "Accept-Encoding": "gzip"})
        session.max_redirects = MOST_REDIRECTS
        if not follow_redirects:
            _follow_no_redirects(session)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return Download(_get_body(session, request.url, follow_redirects), status=HTTPStatus.OK)
            except _FetchError as error:
                failed = Download(error=str(error), status=error.status, challenge=error.challenge)
                if error.retry_after is None or attempt == ATTEMPTS:
                    return failed
                pause = error.retry_after + random.uniform(0, min(LONGEST_PAUSE_SECONDS, 2.0**attempt))  # noqa: S311
                if monotonic() + pause >= request.deadline:
                    return failed
                sleep(pause)
    raise AssertionError("unreachable")


def _follow_no_redirects(session: requests.Session) -> None:
    """Have requests take no answer for a redirect: even with allow_redirects=False, it reads the whole body of one."""
    session.get_redirect_target = lambda resp: None  # type: ignore[method-assign]


def _resolve(task: Task, url: str) -> list[str]:
    """Return the addresses of the host, unless a proxy resolves it. A resolver without an answer is then the error."""
    from requests.utils import get_environ_proxies, select_proxy

    found: list[str] = []
    with suppress(OSError, ValueError):  # the request fails for the same reason
        if not select_proxy(url, get_environ_proxies(url)):
            task.is_resolving = True
            found = [str(address[0]) for *_, address in socket.getaddrinfo(urlsplit(url).hostname, None)]
    task.is_resolving = False
    return found


def _send(method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Download:
    import requests

    limits = (CONNECT_SECONDS, READ_SECONDS)
    try:
        with requests.request(
            method, url, data=body, headers=dict(headers), timeout=limits, allow_redirects=False, stream=True
        ) as response:
            status = response.status_code
    except (OSError, ValueError) as error:
        return Download(error=str(_classify(error)))
    is_accepted = status in (HTTPStatus.OK, HTTPStatus.ACCEPTED)
    return Download(status=status) if is_accepted else Download(error=_status_text(status), status=status)


def _get_body(session: requests.Session, url: str, follow_redirects: bool) -> bytes:
    """Return the body of one GET, or raise a _FetchError."""
    hooks = {"response": _check_redirect} if follow_redirects else {}
    limits = (CONNECT_SECONDS, READ_SECONDS)
    try:
        with session.get(url, stream=True, timeout=limits, hooks=hooks, allow_redirects=follow_redirects) as response:
            if (status := response.status_code) == HTTPStatus.OK:
                return _read_content(response)
            retry_after = _retry_after(response.headers.get("Retry-After", "")) if status in _RETRIED else None
            challenge = response.headers.get("WWW-Authenticate", "")
            raise _FetchError(_status_text(status), retry_after=retry_after, status=status, challenge=challenge)
    except (OSError, ValueError) as error:  # requests raises OSErrors; some URLs raise others
        raise _classify(error) from error


def _classify(error: OSError | ValueError) -> _FetchError:
    """Return the _FetchError for an error of requests."""
    from requests import exceptions as known

    from jobs.kit.remote_pools import LocalAddressError

    if isinstance(error, known.SSLError):
        for each in _walk_causes(error):
            if isinstance(each, ssl.SSLCertVerificationError):
                why = f"its certificate is not accepted: {each.verify_message.rstrip('.')}"
                return _FetchError(f"{why}{_REMEDIES.get(each.verify_code, _AUTHORITY)}")
    innermost = _innermost_reason(error)
    tls_failed = "the TLS connection failed; check that the server serves HTTPS, and the value of REQUESTS_CA_BUNDLE"
    # The first class that fits counts: some of them are subclasses of others.
    reasons = (
        (LocalAddressError, _LOCAL),
        (known.SSLError, tls_failed),
        (known.ProxyError, f"the proxy of HTTPS_PROXY or HTTP_PROXY failed: {innermost}"),
        (known.ConnectTimeout, f"no connection within {CONNECT_SECONDS:g} seconds"),
        (known.Timeout, f"no answer within {READ_SECONDS:g} seconds"),
        ((known.ConnectionError, known.ChunkedEncodingError), innermost),
        (known.TooManyRedirects, f"more than {MOST_REDIRECTS} redirects"),
        (known.InvalidProxyURL, "the URL of HTTPS_PROXY or HTTP_PROXY is not valid"),
        (known.InvalidHeader, "the answer has headers that are not valid"),
        ((known.RequestException, ValueError), "the request failed; check the URL"),
        (OSError, "the request failed; check that the file of REQUESTS_CA_BUNDLE exists"),
    )
    is_temporary = isinstance(error, (known.ConnectionError, known.Timeout, known.ChunkedEncodingError))
    reason = next(reason for kind, reason in reasons if isinstance(error, kind))
    return _FetchError(reason, retry_after=0 if is_temporary else None)


def _check_redirect(response: requests.Response, **_settings: Any) -> None:
    """Raise if a redirect leaves HTTP, or https, or has a large body: requests would follow it and read the body."""
    if not response.is_redirect:
        return
    try:
        to = urlsplit(urljoin(response.url, response.headers["Location"]))
    except ValueError as error:
        raise _FetchError("redirected to a URL that is not valid") from error
    if to.scheme not in ("http", "https"):
        raise _FetchError("redirected to a URL that is not http or https")
    if response.url.startswith("https:") and to.scheme != "https":
        raise _FetchError("redirected from https to http")
    _read_limited(response)


def _read_content(response: requests.Response) -> bytes:
    """Return the body, decompressed; raise a _FetchError if it is too long, or not valid."""
    encoding = response.headers.get("Content-Encoding", "").lower()
    body = _read_limited(response)
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "x-gzip"):
        raise _FetchError(f"the answer has Content-Encoding {brief(encoding, 32)}; only gzip is read")
    # One member of gzip. Several are refused: servers do not send them, and they may take long.
    member = zlib.decompressobj(_GZIP)
    try:
        content = member.decompress(body, MAX_BODY_BYTES + 1)
    except zlib.error as error:
        raise _FetchError(_NOT_GZIP, retry_after=0) from error
    _check_size(content)
    if not member.eof or member.unused_data:
        raise _FetchError(_NOT_GZIP, retry_after=0)
    return content


def _read_limited(response: requests.Response, most: int = MAX_BODY_BYTES) -> bytes:
    # Without the header, urllib3 does not decompress: it accepts an incomplete gzip body, and has no limit.
    response.raw.headers.pop("Content-Encoding", "")
    body = bytearray()  # a sum of bytes would copy the whole body for each part
    for part in response.iter_content(1 << 14):
        body += part
        _check_size(body, most)
    return bytes(body)


def _check_size(body: bytes | bytearray, most: int = MAX_BODY_BYTES) -> None:
    if len(body) > most:
        raise _FetchError(f"the answer has more than {most >> 10} KiB")


def _status_text(status: int) -> str:
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"


def _retry_after(value: str) -> float:
    """Return the seconds of a Retry-After header, 0 if it is not valid."""
    from urllib3.exceptions import InvalidHeader
    from urllib3.util import Retry

    try:
        return float(Retry().parse_retry_after(value))
    except (InvalidHeader, ValueError, OverflowError):
        return 0.0


def _innermost_reason(error: BaseException) -> str:
    """Return the reason of the innermost error of a chain, without addresses that the other errors quote."""
    from urllib3.exceptions import InvalidChunkLength

    for each in _walk_causes(error):
        if isinstance(each, socket.gaierror):
            return NO_DNS if each.errno == socket.EAI_AGAIN else NAME_NOT_FOUND
        if isinstance(each, TimeoutError):
            return f"no answer within {READ_SECONDS:g} seconds"
        if isinstance(each, OSError) and each.errno and each.strerror:
            return each.strerror.lower()
        if isinstance(each, OSError) and str(each).startswith("Tunnel connection failed: "):
            return f"it answered {str(each).partition(': ')[2]}"
        if isinstance(each, RemoteDisconnected):
            return "the connection was closed without an answer"
        if isinstance(each, InvalidChunkLength):
            return _NOT_HTTP if each.length else _CUT_SHORT
        if isinstance(each, HTTPException) and not isinstance(each, IncompleteRead):
            return _NOT_HTTP
    return _CUT_SHORT


def _walk_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, which requests and urllib3 also put in args and `reason`."""
    found = [error]
    for each in found:
        yield each
        inner = (*each.args, getattr(each, "reason", None), each.__cause__, each.__context__)
        found += [one for one in inner if isinstance(one, BaseException) and one not in found]
