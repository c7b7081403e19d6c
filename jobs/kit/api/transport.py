"""Send requests to one API server: connections, timeouts, retries, many requests in flight on one thread.

The only module that imports libcurl. All requests share one HTTP/2 connection. A server without HTTP/2 gets one
HTTP/1.1 connection for each request in flight.
"""

from __future__ import annotations

import heapq
import math
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from itertools import count
from typing import Any

import pycurl

from jobs.kit.api.endpoint import Endpoint
from jobs.kit.values.errors import (
    FAILED_WEBHOOK,
    TOO_LARGE,
    ChoresError,
    ConfigurationError,
    StoppedError,
    UnreachableError,
)

IN_FLIGHT = 16  # more would save little time (docs/decisions/0003)
CONNECT_SECONDS = 10
REQUEST_SECONDS = 60
RETRY_SECONDS = 30  # how long after its first attempt a request may be retried
STOP_SECONDS = 4.0  # how long requests in flight may take after a stop
LONGEST_PAUSE_SECONDS = 10.0
BYTES_IN_FLIGHT = 8 << 20  # of requests and their answers: a run has 128 MiB of memory (cronjobs/)
ANSWER_BYTES = BYTES_IN_FLIGHT // IN_FLIGHT  # the longest answer that is read, unless the request sets another limit

_LONGEST_WAIT = 0.2  # between two checks for a stop
_PROTOCOLS = pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS
# Errors of certificates: a retry would fail too.
_FINAL_ERRORS = frozenset({pycurl.E_PEER_FAILED_VERIFICATION, pycurl.E_SSL_CACERT_BADFILE, pycurl.E_SSL_CERTPROBLEM})
_RETRIED = frozenset({429, 500, 502, 503, 504})
# With the quotes of the JSON string: in a longer message that quotes this text, they are escaped.
_FINAL_500 = re.compile(f'"({TOO_LARGE})"|"{FAILED_WEBHOOK}'.encode())


@dataclass(frozen=True)
class Request:
    """One HTTP request. `repeatable`: idempotent, so that it is retried if its answer is lost.

    A body of more than `max_bytes` in the answer is not read to its end.
    """

    method: str
    path: str
    body: bytes | None = None
    accept: str = "application/json"
    content_type: str = "application/json"
    repeatable: bool = True
    tag: Any = None
    max_bytes: int = ANSWER_BYTES

    @property
    def weight(self) -> int:
        """The bytes that the request and its answer may need: the answer to a write has about the size of its body."""
        return self.max_bytes if self.body is None else 2 * len(self.body)


@dataclass(frozen=True)
class Answer:
    """The answer to a request. `status` is 0 without a complete answer; `error` then has the reason.

    `attempts` counts from 1. `is_too_long`: the body has more than the `max_bytes` of the request. `is_unsent`: the
    request was not sent, since its credentials are missing.
    """

    request: Request
    status: int
    body: bytes = b""
    error: str = ""
    attempts: int = 1
    is_too_long: bool = False
    is_unsent: bool = False


@dataclass
class Traffic:
    """Counts of a run: requests by method (with retries), and bytes of bodies received and sent."""

    requests: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0


class _Body(BytesIO):
    """The body of an answer as it arrives, up to a limit."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self.is_too_long = False

    def receive(self, part: bytes) -> int:
        """Store a part and return its length; any other number ends the transfer (CURLOPT_WRITEFUNCTION)."""
        self.is_too_long = self.getbuffer().nbytes + len(part) > self._limit
        return 0 if self.is_too_long else self.write(part)


@dataclass(order=True)
class _Attempt:
    due: float
    order: int
    request: Request = field(compare=False)
    number: int = field(compare=False, default=1)
    deadline: float = field(compare=False, default=0.0)
    throttled: bool = field(compare=False, default=False)
    received: _Body = field(compare=False, init=False)

    def __post_init__(self) -> None:
        self.received = _Body(self.request.max_bytes)


@dataclass
class _Pace:
    """The interval between new requests, and the time at which the newest one is due."""

    seconds: float
    newest: float = -math.inf

    def next(self, now: float) -> float:
        """Return the time at which one more request is due."""
        self.newest = max(now, self.newest + self.seconds)
        return self.newest


@dataclass
class _Stream:
    """The state of `Transport.stream`: requests to come, requests that are due later, requests in flight by handle."""

    source: Iterator[Request]
    pace: _Pace
    multi: Any
    waiting: list[_Attempt] = field(default_factory=list)
    in_flight: dict[Any, _Attempt] = field(default_factory=dict)
    unsent: list[Answer] = field(default_factory=list)
    exhausted: bool = False

    def fits(self, request: Request) -> bool:
        """Whether the request and those in flight fit into memory; a request alone always may be sent."""
        return not self.in_flight or request.weight + sum(each.request.weight for each in self.in_flight.values()) <= (
            BYTES_IN_FLIGHT
        )

    @property
    def is_full(self) -> bool:
        """Whether a new request has to wait for others.

        A request that was throttled (429) keeps its place: else new ones would take it and be throttled too. The bodies
        of all requests stay in memory.
        """
        throttled = sum(attempt.throttled for attempt in self.waiting)
        kept = sum(len(attempt.request.body or b"") for attempt in (*self.waiting, *self.in_flight.values()))
        return len(self.in_flight) + throttled >= IN_FLIGHT or kept > BYTES_IN_FLIGHT


class Transport:
    """Sends requests to `endpoint`. Not thread-safe.

    `stopping` is called before each new request. Once it returns true, no request is started, and those in flight are
    finished. If the server accepts no connection, requests fail after `unreached_seconds`; `on_unreached` is called
    with the first error.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        user_agent: str,
        *,
        stopping: Callable[[], bool] = lambda: False,
        request_seconds: float = REQUEST_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        unreached_seconds: float = RETRY_SECONDS,
        on_unreached: Callable[[str], None] = lambda error: None,
    ) -> None:
        self.traffic = Traffic()
        self._endpoint = endpoint
        self._user_agent = user_agent
        self._stopping = stopping
        self._request_seconds = request_seconds
        self._retry_seconds = retry_seconds
        self._unreached_seconds = min(unreached_seconds, retry_seconds)
        self._on_unreached = on_unreached
        self._reached = False
        self._multis: list[Any] = []  # not in use by a stream
        self._idle: list[Any] = []
        self._order = count()
        self._stop_by: float | None = None
        self._no_credentials = ""

    def send(self, request: Request) -> Answer:
        """Send one request and return its answer.

        Raises:
            StoppedError: the run was stopped before the request was sent.
            UnreachableError: the server never accepted a connection.
        """
        for answer in self.stream([request]):
            return answer
        raise StoppedError

    def stream(self, requests: Iterable[Request], per_second: float | None = None) -> Iterator[Answer]:
        """Send requests, a limited number at a time, and yield answers as they arrive, in no order.

        `requests` is consumed lazily, at most `per_second` of them in a second; retries do not count. After `stopping`,
        the remaining requests are not consumed and have no answer. `requests` may use this transport itself: each
        stream has connections of its own.

        Raises:
            UnreachableError: the server never accepted a connection.
        """
        stream = _Stream(iter(requests), _Pace(1 / per_second if per_second else 0.0), self._take_multi())
        try:
            while True:
                self._start_due(stream)
                while stream.unsent:
                    yield stream.unsent.pop()
                if not stream.in_flight and (not stream.waiting or self._stopping()):
                    return
                if self._is_overdue():
                    pending = stream.in_flight.values()
                    yield from (Answer(each.request, 0, error="no answer before the stop") for each in pending)
                    return
                for handle, error in _next_finished(stream):
                    attempt = stream.in_flight.pop(handle)
                    answer, retry_in = self._evaluate(attempt, handle, error)
                    self._release(stream, handle)
                    if retry_in is None:
                        yield self._or_unreachable(answer)
                    else:
                        self._retry(stream, attempt, retry_in, answer)
        finally:
            for handle in stream.in_flight:
                self._release(stream, handle)
            self._multis.append(stream.multi)

    def _take_multi(self) -> Any:
        if self._multis:
            return self._multis.pop()
        multi = pycurl.CurlMulti()
        multi.setopt(pycurl.M_MAX_HOST_CONNECTIONS, IN_FLIGHT)
        return multi

    def _is_overdue(self) -> bool:
        if not self._stopping():
            return False
        self._stop_by = self._stop_by or time.monotonic() + STOP_SECONDS
        return time.monotonic() > self._stop_by

    def close(self) -> None:
        """Close all connections."""
        for handle in self._idle:
            handle.close()
        self._idle.clear()
        for multi in self._multis:
            multi.close()

    def _start_due(self, stream: _Stream) -> None:
        while len(stream.in_flight) + len(stream.unsent) < IN_FLIGHT and not self._stopping():
            now = time.monotonic()
            if stream.waiting and stream.waiting[0].due <= now:
                if not stream.fits(stream.waiting[0].request):
                    return
                attempt = heapq.heappop(stream.waiting)
            elif stream.exhausted or stream.is_full or stream.pace.newest > now:
                return
            else:
                request = next(stream.source, None)
                if request is None:
                    stream.exhausted = True
                    continue
                due = stream.pace.next(now)
                attempt = _Attempt(due, next(self._order), request, deadline=due + self._retry_seconds)
                if due > now or not stream.fits(request):
                    heapq.heappush(stream.waiting, attempt)
                    return
            try:
                handle = self._create_handle(attempt)
            except ChoresError as error:  # a credential plugin failed: it would fail again
                self._no_credentials = self._no_credentials or str(error)
                unsent = Answer(attempt.request, 0, error=self._no_credentials, attempts=attempt.number, is_unsent=True)
                stream.unsent.append(unsent)
                continue
            stream.in_flight[handle] = attempt
            stream.multi.add_handle(handle)

    def _evaluate(self, attempt: _Attempt, handle: Any, error: tuple[int, str] | None) -> tuple[Answer, float | None]:
        """Return the answer, and the seconds until the next attempt; None: this answer is final."""
        request = attempt.request
        body = attempt.received.getvalue()
        status = 0 if error else int(handle.getinfo(pycurl.RESPONSE_CODE))
        self._reached = self._reached or bool(status or handle.getinfo(pycurl.REQUEST_SIZE))
        self.traffic.requests[request.method] += 1
        self.traffic.bytes_received += len(body)
        self.traffic.bytes_sent += len(request.body or b"")
        if attempt.received.is_too_long:
            why = f"the answer has more than {request.max_bytes >> 10} KiB"
            return Answer(request, 0, b"", why, attempt.number, is_too_long=True), None
        answer = Answer(request, status, b"" if error else body, self._explain(error), attempt.number)
        if (error[0] in _FINAL_ERRORS) if error else _is_final(answer):
            return answer, None
        # A 429 was not processed, so it may always be repeated; of the others, only the repeatable requests.
        if not (request.repeatable or status == 429):
            return answer, None
        pause = random.uniform(0, min(LONGEST_PAUSE_SECONDS, 0.25 * 2**attempt.number))  # noqa: S311 - jitter
        pause += float(handle.getinfo(pycurl.RETRY_AFTER)) if status else 0.0
        deadline = attempt.deadline - (0 if self._reached else self._retry_seconds - self._unreached_seconds)
        return answer, pause if time.monotonic() + pause < deadline else None

    def _or_unreachable(self, answer: Answer) -> Answer:
        if not self._reached:
            raise UnreachableError(answer.error)
        return answer

    def _explain(self, error: tuple[int, str] | None) -> str:
        if error is None:
            return ""
        number, text = error
        if number == pycurl.E_OPERATION_TIMEDOUT:
            return f"no answer from {self._endpoint.server} within {self._request_seconds:g} seconds"
        return f"{self._endpoint.server}: {text or 'connection failed'}"

    def _retry(self, stream: _Stream, attempt: _Attempt, pause: float, answer: Answer) -> None:
        if not (self._reached or self.traffic.retries):
            self._on_unreached(answer.error)
        self.traffic.retries += 1
        again = _Attempt(
            time.monotonic() + pause,
            next(self._order),
            attempt.request,
            attempt.number + 1,
            attempt.deadline,
            throttled=answer.status == 429,
        )
        heapq.heappush(stream.waiting, again)

    def _release(self, stream: _Stream, handle: Any) -> None:
        stream.multi.remove_handle(handle)
        handle.reset()
        self._idle.append(handle)

    def _create_handle(self, attempt: _Attempt) -> Any:
        handle = self._idle.pop() if self._idle else pycurl.Curl()
        request, endpoint = attempt.request, self._endpoint
        handle.setopt(pycurl.URL, endpoint.server + request.path)
        handle.setopt(pycurl.PATH_AS_IS, 1)  # a name with dots must not lead to another path
        handle.setopt(pycurl.PROTOCOLS, _PROTOCOLS)
        handle.setopt(pycurl.REDIR_PROTOCOLS, _PROTOCOLS)  # though no redirect is followed: a redirect is an answer
        if endpoint.connect_to:
            handle.setopt(pycurl.CONNECT_TO, [endpoint.connect_to])
        handle.setopt(pycurl.HTTPHEADER, self._request_headers(request))
        handle.setopt(pycurl.WRITEFUNCTION, attempt.received.receive)
        handle.setopt(pycurl.NOSIGNAL, 1)
        handle.setopt(pycurl.CONNECTTIMEOUT_MS, CONNECT_SECONDS * 1000)
        handle.setopt(pycurl.TIMEOUT_MS, int(self._request_seconds * 1000))
        handle.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_2TLS)
        handle.setopt(pycurl.PIPEWAIT, 1)
        if request.body is not None:
            handle.setopt(pycurl.POSTFIELDS, request.body)
        handle.setopt(pycurl.CUSTOMREQUEST, request.method)
        _set_security(handle, endpoint)
        return handle

    def _request_headers(self, request: Request) -> list[bytes]:
        headers = [f"Accept: {request.accept}", f"User-Agent: {self._user_agent}", "Expect:"]
        if request.body is not None:
            headers.append(f"Content-Type: {request.content_type}")
        if self._no_credentials:
            raise ConfigurationError(self._no_credentials)
        authorization = self._endpoint.authorization()
        if authorization:
            headers.append(f"Authorization: {authorization}")
        return [header.encode() for header in (*headers, *self._endpoint.impersonation)]


def _is_final(answer: Answer) -> bool:
    """Whether a retry would get the same answer, or may take as long as the rest of the run."""
    return answer.status not in _RETRIED or (answer.status == 500 and bool(_FINAL_500.search(answer.body)))


def _next_finished(stream: _Stream) -> list[tuple[Any, tuple[int, str] | None]]:
    """Return the completed handles with their errors; wait a moment if there is none."""
    stream.multi.perform()
    done = _read_completed(stream.multi)
    if not done:
        _wait(stream)
        stream.multi.perform()
        done = _read_completed(stream.multi)
    return done


def _wait(stream: _Stream) -> None:
    """Wait until a socket is ready, or the next request is due."""
    pause = _seconds_to_wait(stream)
    if not stream.in_flight:
        time.sleep(pause)
        return
    # libcurl may have buffered data, and then has to run although no socket is ready.
    timeout = stream.multi.timeout()
    pause = min(pause, timeout / 1000) if timeout >= 0 else pause
    # Without a socket, as while a name is resolved, select() returns at once.
    if any(stream.multi.fdset()):
        stream.multi.select(pause)
    else:
        time.sleep(min(pause, 0.01))


def _seconds_to_wait(stream: _Stream) -> float:
    """Return the seconds until the next request is due."""
    if stream.waiting and len(stream.in_flight) < IN_FLIGHT and stream.fits(stream.waiting[0].request):
        return min(max(stream.waiting[0].due - time.monotonic(), 0.001), _LONGEST_WAIT)
    return _LONGEST_WAIT


def _read_completed(multi: Any) -> list[tuple[Any, tuple[int, str] | None]]:
    done: list[tuple[Any, tuple[int, str] | None]] = []
    more = 1
    while more:
        more, succeeded, failed = multi.info_read()
        done += [(handle, None) for handle in succeeded]
        done += [(handle, (number, text)) for handle, number, text in failed]
    return done


def _public_authorities() -> str:
    import certifi

    return certifi.where()


def _set_security(handle: Any, endpoint: Endpoint) -> None:
    # As in Go, the cluster's certificate authority also applies to an https proxy.
    if endpoint.ca_data:
        handle.setopt(pycurl.CAINFO_BLOB, endpoint.ca_data)
        handle.setopt(pycurl.PROXY_CAINFO_BLOB, endpoint.ca_data)
    else:
        handle.setopt(pycurl.CAINFO, endpoint.ca_file or _public_authorities())
        handle.setopt(pycurl.PROXY_CAINFO, endpoint.ca_file or _public_authorities())
    if certificate := endpoint.certificate():
        handle.setopt(pycurl.SSLCERT_BLOB, certificate.certificate)
        handle.setopt(pycurl.SSLKEY_BLOB, certificate.key)
    if not endpoint.verify:
        handle.setopt(pycurl.SSL_VERIFYPEER, 0)
        handle.setopt(pycurl.SSL_VERIFYHOST, 0)
    # Set even if empty: else libcurl reads the environment, by its own rules.
    handle.setopt(pycurl.PROXY, endpoint.proxy or "")
    handle.setopt(pycurl.NOPROXY, endpoint.no_proxy or "")
