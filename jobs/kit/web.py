"""Small documents from the web, over HTTP, from servers that owe us nothing. The only importer of requests.

Proxies and authorities come from the environment, as requests has it: HTTPS_PROXY, NO_PROXY, REQUESTS_CA_BUNDLE.
https://requests.readthedocs.io/en/latest/user/advanced/#proxies
"""

from __future__ import annotations

import random
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillRunning
from contextlib import suppress
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urljoin, urlsplit

if TYPE_CHECKING:
    import requests

CONNECT_SECONDS = 5.0
READ_SECONDS = 10.0
TOTAL_SECONDS = 30.0  # for one document, with all attempts, pauses and redirects
ATTEMPTS = 3
LONGEST_PAUSE_SECONDS = 4.0
MOST_REDIRECTS = 5
IN_FLIGHT = 16
NOT_FETCHED = "not fetched: the run was stopped"
MAX_BODY_BYTES = 1 << 20  # the documents that jobs want have some kilobytes

_RETRIED = frozenset({429, 500, 502, 503, 504})


class Page(NamedTuple):
    """A document, or why there is none, in words that are the same for the same reason.

    `status` is that of the last answer, 0 where there was none.
    """

    body: bytes = b""
    error: str = ""
    status: int = 0


def fetch(
    url: str, user_agent: str, stopping: Callable[[], bool] = lambda: False, *, follow_redirects: bool = True
) -> Page:
    """Return the document at `url`, within TOTAL_SECONDS whatever the server does; sooner when the run is to stop."""
    page: Future[Page] = Future()
    deadline = monotonic() + TOTAL_SECONDS

    def work() -> None:
        try:
            page.set_result(_tried(url, user_agent, deadline, follow_redirects))
        except BaseException as error:  # not lost: it is raised where the result is asked for
            page.set_exception(error)

    # A byte now and then keeps a socket's time limits, and a resolver has none: only another thread ends these. It
    # is a daemon, so that it cannot keep the program from ending.
    if not stopping():
        threading.Thread(target=work, daemon=True).start()
    while not stopping():
        left = deadline - monotonic()
        if left <= 0:
            return Page(error=f"no whole answer within {TOTAL_SECONDS:g} seconds")
        with suppress(StillRunning):
            return page.result(timeout=min(left, 0.1))
    return Page(error=NOT_FETCHED)


def fetch_all(
    urls: Sequence[str],
    user_agent: str,
    stopping: Callable[[], bool] = lambda: False,
    is_probe: Callable[[str], bool] = lambda url: False,
) -> dict[str, Page]:
    """Return the documents at `urls`, some at a time, each within the limits of `fetch`; a probe is not redirected."""
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        pages = pool.map(lambda url: fetch(url, user_agent, stopping, follow_redirects=not is_probe(url)), urls)
        return dict(zip(urls, pages, strict=True))


def shown(url: str) -> str:
    """Return a URL as it may be shown: without the credentials and the query that it may hold."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class _AgainError(Exception):
    """A failure that another attempt may not meet; `after` seconds at the least, if the server says so."""

    def __init__(self, reason: str, after: float = 0.0, status: int = 0) -> None:
        super().__init__(reason)
        self.after = after
        self.status = status


class _RefusedError(Exception):
    """A failure that the next attempt would meet too."""

    def __init__(self, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.status = status


def _tried(url: str, user_agent: str, deadline: float, follow_redirects: bool) -> Page:
    import requests

    with requests.Session() as session:
        session.headers["User-Agent"] = user_agent
        session.max_redirects = MOST_REDIRECTS
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return Page(_body(session, url, follow_redirects), status=HTTPStatus.OK)
            except _RefusedError as error:
                return Page(error=str(error), status=error.status)
            except _AgainError as error:
                pause = error.after + random.uniform(0, min(LONGEST_PAUSE_SECONDS, 2.0**attempt))  # noqa: S311
                if attempt == ATTEMPTS or monotonic() + pause >= deadline:
                    return Page(error=str(error), status=error.status)
                sleep(pause)
    raise AssertionError("unreachable")


def _body(session: requests.Session, url: str, follow_redirects: bool) -> bytes:
    """Return the body of one GET.

    Raises:
        _AgainError, _RefusedError: with the reason.
    """
    import requests

    try:
        look = {"response": _look_before_following} if follow_redirects else {}
        limits = (CONNECT_SECONDS, READ_SECONDS)
        with session.get(url, stream=True, timeout=limits, hooks=look, allow_redirects=follow_redirects) as answer:
            _check(answer)
            return _whole(answer)
    except requests.TooManyRedirects as error:
        raise _RefusedError(f"more than {MOST_REDIRECTS} redirects") from error
    except requests.exceptions.SSLError as error:
        if any(isinstance(each, ssl.SSLCertVerificationError) for each in _chain(error)):
            why = "its certificate is not accepted; REQUESTS_CA_BUNDLE can name other authorities"
            raise _RefusedError(why) from error
        raise _AgainError("TLS fails: does it serve HTTPS, and is REQUESTS_CA_BUNDLE right?") from error
    except requests.exceptions.ProxyError as error:
        raise _AgainError(f"the proxy of HTTPS_PROXY or HTTP_PROXY does not serve: {_cause(error)}") from error
    except requests.ConnectTimeout as error:
        raise _AgainError(f"no connection within {CONNECT_SECONDS:g} seconds") from error
    except requests.Timeout as error:
        raise _AgainError(f"no answer within {READ_SECONDS:g} seconds") from error
    except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
        raise _AgainError(_cause(error)) from error
    except (requests.RequestException, ValueError) as error:  # not all errors of addresses are of requests
        raise _RefusedError("it cannot be asked for: is the URL right?") from error
    except OSError as error:
        raise _RefusedError("it cannot be asked for: does what REQUESTS_CA_BUNDLE names exist?") from error


def _look_before_following(answer: requests.Response, **_settings: Any) -> None:
    """Raise if a redirect leaves https or has a large body: requests would follow the one and keep the other."""
    if not answer.is_redirect:
        return
    to = urlsplit(urljoin(answer.url, answer.headers["Location"]))
    if answer.url.startswith("https:") and to.scheme != "https":
        raise _RefusedError("redirected from https to http")
    _whole(answer)


def _check(answer: requests.Response) -> None:
    """Raise unless this is a document."""
    status = answer.status_code
    if status in _RETRIED:
        raise _AgainError(_phrase(status), _retry_after(answer.headers.get("Retry-After", "")), status)
    if status != HTTPStatus.OK:
        raise _RefusedError(_phrase(status), status)


def _whole(answer: requests.Response) -> bytes:
    body = bytearray()
    for part in answer.iter_content(1 << 14):
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise _RefusedError(f"more than {MAX_BODY_BYTES >> 10} KiB")
    return bytes(body)


def _phrase(status: int) -> str:
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"


def _retry_after(value: str) -> float:
    """Return the seconds that a server asks to wait: https://www.rfc-editor.org/rfc/rfc9110#field.retry-after ."""
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(timezone.utc)).total_seconds())
    except (TypeError, ValueError, OverflowError):
        return 0.0


def _cause(error: BaseException) -> str:
    """Return the reason at the bottom of a chain of errors, without the addresses that those in between quote."""
    for each in _chain(error):
        if isinstance(each, socket.gaierror):
            return "its name is not known"
        if isinstance(each, TimeoutError):
            return f"no answer within {READ_SECONDS:g} seconds"
        if isinstance(each, OSError) and each.errno and each.strerror:
            return each.strerror.lower()
    return "the answer was cut short"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it came from: requests and urllib3 put that in args and `reason` as well."""
    found = [error]
    for each in found:
        yield each
        inner = (*each.args, getattr(each, "reason", None), each.__cause__, each.__context__)
        found += [one for one in inner if isinstance(one, BaseException) and one not in found]
