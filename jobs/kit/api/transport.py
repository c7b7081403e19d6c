"""Send requests to one API server: which one is sent when, retries, limits, and the end after a stop.

The header Date of the responses has the server's time: the clock of this machine may be wrong.
"""

from __future__ import annotations

import heapq
import math
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from io import BytesIO
from itertools import count
from time import monotonic
from typing import Any

from msgspec import Struct, structs

from jobs.kit.api import responses
from jobs.kit.api.curl import Ended, Transfers
from jobs.kit.api.endpoint import Endpoint
from jobs.kit.api.responses import RESPONSE_BYTES, Request, Response, Traffic
from jobs.kit.values import errors
from jobs.kit.values.errors import ChoresError, ConfigurationError, StoppedError, UnreachableError
from jobs.kit.values.text import HIDDEN

_CLOSE = timedelta(seconds=5)  # a Date has whole seconds, and a response takes some time
_FARTHEST = timedelta(days=3650)  # a larger difference is a broken header, not a clock: TLS would fail too
_MONTHS = b"Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
IN_FLIGHT = 16  # more would save little time (docs/decisions/0003)
REQUEST_SECONDS = 60
RETRY_SECONDS = 30  # how long after its first attempt a request may be retried
STOP_SECONDS = 4.0  # how long requests in flight may take after a stop
LONGEST_PAUSE_SECONDS = 10.0
BYTES_IN_FLIGHT = IN_FLIGHT * RESPONSE_BYTES  # of requests and their responses: a run has 128 MiB of memory (cronjobs/)
_SHORTEST_TOKEN = 8  # a shorter one may be part of any word
_LONGEST_WAIT = 0.2  # between two checks for a stop
_RETRIED = frozenset({429, 500, 502, 503, 504})
# With the quotes of the JSON string: in a longer message that quotes this text, they are escaped.
_FINAL_500 = re.compile(f'"({errors.TOO_LARGE})"|"{errors.FAILED_WEBHOOK}'.encode())


def local_time() -> datetime:
    """Return the time of this machine."""
    return datetime.now(timezone.utc)


class ServerClock:
    """The clock of the API server. `ahead` is how far this machine is ahead of it; 0 if both are close, or unknown."""

    def __init__(self) -> None:
        self.ahead = timedelta()
        self._date, self._moment = local_time(), monotonic()

    def read(self, header: bytes) -> None:
        """Read a line of headers. Lines other than a valid Date are ignored."""
        name, _, value = header.partition(b":")
        date = _parsed(value) if name.lower() == b"date" else None
        if date:
            here, self._moment = local_time(), monotonic()
            is_other = _CLOSE < abs(here - date) < _FARTHEST
            self.ahead = here - date if is_other else timedelta()
            self._date = date if is_other else here  # which is more precise

    def now(self) -> datetime:
        """Return the time of the server. If the clock of this machine is set during a run, that changes nothing."""
        return self._date + timedelta(seconds=monotonic() - self._moment)


def _parsed(value: bytes) -> datetime | None:
    """Return the time of a Date, such as Wed, 04 Mar 2026 03:00:30 GMT, or None.

    The standard library's parsers take 3 to 30 ms to import.
    """
    try:
        _, day, month, year, time, _ = value.split()
        text = f"{int(year):04}-{_MONTHS.index(month) + 1:02}-{int(day):02}T{time.decode()}+00:00"
        return datetime.fromisoformat(text)
    except ValueError:
        return None


class _Body(BytesIO):
    """The body of a response as it arrives, up to a limit."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self.is_too_long = False

    def receive(self, part: bytes) -> int:
        """Store a part and return its length; 0 if the body is too long."""
        self.is_too_long = self.tell() + len(part) > self._limit
        return 0 if self.is_too_long else self.write(part)


class _Attempt(Struct, order=True):
    due: float
    order: int  # unique, so that no other field is compared
    request: Request
    received: _Body
    number: int = 1
    deadline: float = 0.0
    throttled: bool = False


class _Stream(Struct):
    """The state of `Transport.stream`: requests to come, requests that are due later, requests in flight by handle."""

    source: Iterator[Request]
    transfers: Transfers
    interval: float  # between new requests
    newest_due: float = -math.inf
    waiting: list[_Attempt] = []
    in_flight: dict[Any, _Attempt] = {}
    weight: int = 0  # of those in flight
    bodies: int = 0  # their bytes
    unsent: list[Response] = []

    def start(self, handle: Any, attempt: _Attempt) -> None:
        """Add an attempt to those in flight."""
        self.in_flight[handle] = attempt
        self.weight += attempt.request.weight
        self.bodies += len(attempt.request.body or b"")

    def end(self, handle: Any) -> _Attempt:
        """Remove the attempt of a handle from those in flight, and return it."""
        attempt = self.in_flight.pop(handle)
        self.weight -= attempt.request.weight
        self.bodies -= len(attempt.request.body or b"")
        return attempt

    def fits(self, request: Request) -> bool:
        """Whether the request and those in flight fit into memory; a request alone always may be sent."""
        return not self.in_flight or self.weight + request.weight <= BYTES_IN_FLIGHT

    @property
    def is_full(self) -> bool:
        """Whether a new request has to wait for others.

        A request that was throttled (429) keeps its place: else new ones would take it and be throttled too. The bodies
        of all requests stay in memory.
        """
        throttled = sum(attempt.throttled for attempt in self.waiting)
        waiting = sum(len(attempt.request.body or b"") for attempt in self.waiting)
        return len(self.in_flight) + throttled >= IN_FLIGHT or self.bodies + waiting > BYTES_IN_FLIGHT


class Transport:
    """Sends requests to `endpoint`. Not thread-safe.

    `stopping` is called before each new request. Once it returns true, no request is started, and those in flight are
    finished. If the server accepts no connection, requests fail after `unreached_seconds`; `on_unreached` is called
    with the first error. `message` changes the message of each error of the server.
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
        message: Callable[[str], str] | None = None,
    ) -> None:
        self.endpoint, self.user_agent, self.stopping, self.message = endpoint, user_agent, stopping, message
        self.request_seconds, self.retry_seconds = request_seconds, retry_seconds
        self.unreached_seconds, self.on_unreached = unreached_seconds, on_unreached
        self.traffic, self.clock = Traffic(), ServerClock()
        self._has_succeeded = self._reached = False
        self._unused: list[Transfers] = []  # not in use by a stream
        self._order = count()
        self._stop_by: float | None = None
        self._no_credentials = ""
        self._authorization, self._token = "", b""  # of the last request
        self._headers: dict[tuple[str, str], list[bytes]] = {}  # with that authorization

    def send(self, request: Request) -> Response:
        """Send one request and return its response.

        Raises:
            StoppedError: the run was stopped before the request was sent.
            UnreachableError: the server never accepted a connection.
        """
        for response in self.stream([request]):
            return response
        raise StoppedError

    def stream(self, requests: Iterable[Request], per_second: float | None = None) -> Iterator[Response]:
        """Send requests, a limited number at a time, and yield responses as they arrive, in no order.

        `requests` is consumed lazily, at most `per_second` of them in a second; retries do not count. After `stopping`,
        the remaining requests are not consumed and have no response. `requests` may use this transport itself: each
        stream has connections of its own.

        Raises:
            UnreachableError: the server never accepted a connection.
        """
        transfers = self._unused.pop() if self._unused else Transfers(self.endpoint, self.request_seconds, IN_FLIGHT)
        stream = _Stream(iter(requests), transfers, 1 / per_second if per_second else 0.0)
        try:
            while True:
                self._start_due(stream)
                while stream.unsent:
                    yield stream.unsent.pop()
                if not stream.in_flight and (not stream.waiting or self.stopping()):
                    return
                if self._is_overdue():
                    pending = stream.in_flight.values()
                    yield from (Response(each.request, 0, error="no answer before the stop") for each in pending)
                    return
                for ended in transfers.ended() or transfers.ended(_seconds_to_wait(stream)):
                    attempt = stream.end(ended.handle)
                    transfers.release(ended.handle)
                    response, retry_in = self._evaluate(attempt, ended)
                    if retry_in is not None:
                        self._retry(stream, attempt, retry_in, response)
                    elif self._reached:
                        yield response
                    else:
                        raise UnreachableError(response.error)
        finally:
            for handle in stream.in_flight:
                transfers.release(handle)
            self._unused.append(transfers)

    def _is_overdue(self) -> bool:
        if not self.stopping():
            return False
        self._stop_by = self._stop_by or time.monotonic() + STOP_SECONDS
        return time.monotonic() > self._stop_by

    def close(self) -> None:
        """Close all connections."""
        for transfers in self._unused:
            transfers.close()

    def _start_due(self, stream: _Stream) -> None:
        while len(stream.in_flight) + len(stream.unsent) < IN_FLIGHT and not self.stopping():
            attempt = self._next_due(stream)
            if attempt is None:
                return
            try:
                headers = self._request_headers(attempt.request)
                # Until a request succeeds: the Date of an error may be that of a proxy.
                on_header = None if self._has_succeeded else self.clock.read
                handle = stream.transfers.start(attempt.request, headers, attempt.received.receive, on_header)
                stream.start(handle, attempt)
            except ChoresError as error:  # a credential plugin failed: it would fail again
                self._no_credentials = self._no_credentials or str(error)
                unsent = Response(
                    attempt.request, 0, error=self._no_credentials, attempts=attempt.number, is_unsent=True
                )
                stream.unsent.append(unsent)

    def _next_due(self, stream: _Stream) -> _Attempt | None:
        """Return the attempt to start now. A new request that is not due yet, or does not fit yet, has to wait."""
        now = time.monotonic()
        if stream.waiting and stream.waiting[0].due <= now:
            return heapq.heappop(stream.waiting) if stream.fits(stream.waiting[0].request) else None
        if stream.is_full or stream.newest_due > now:
            return None
        request = next(stream.source, None)
        if request is None:
            return None
        stream.newest_due = due = max(now, stream.newest_due + stream.interval)
        attempt = _Attempt(due, next(self._order), request, _Body(request.max_bytes), deadline=due + self.retry_seconds)
        if due > now or not stream.fits(request):
            heapq.heappush(stream.waiting, attempt)
            return None
        return attempt

    def _evaluate(self, attempt: _Attempt, ended: Ended) -> tuple[Response, float | None]:
        """Return the response, and the seconds until the next attempt; None: this response is final."""
        request, status = attempt.request, ended.status
        body = attempt.received.getvalue()
        if status >= 300 and len(self._token) >= _SHORTEST_TOKEN:  # an error may quote the headers of its request
            body = body.replace(self._token, HIDDEN.encode())
        if status >= 300 and self.message:
            body = responses.with_message(body, self.message)
        self._reached = self._reached or ended.is_sent
        self.traffic.requests[request.method] += 1
        self.traffic.bytes_received += ended.received
        self.traffic.bytes_sent += len(request.body or b"")
        if attempt.received.is_too_long:
            why = f"the answer has more than {request.max_bytes >> 10} KiB"
            return Response(request, 0, b"", why, attempt.number, is_too_long=True, start=body), None
        response = Response(request, status, body if status else b"", ended.error, attempt.number)
        self._has_succeeded = self._has_succeeded or response.is_success
        # A retry would get the same response, or may take as long as the rest of the run.
        is_final = status and (status not in _RETRIED or (status == 500 and _FINAL_500.search(body)))
        # A 429 was not processed, so it may always be repeated; of the others, only the repeatable requests.
        if ended.is_final or is_final or not (request.repeatable or status == 429):
            return response, None
        pause = random.uniform(0, min(LONGEST_PAUSE_SECONDS, 0.25 * 2**attempt.number))  # noqa: S311 - jitter
        pause += ended.retry_after
        deadline = attempt.deadline - (0 if self._reached else max(0, self.retry_seconds - self.unreached_seconds))
        return response, pause if time.monotonic() + pause < deadline else None

    def _retry(self, stream: _Stream, attempt: _Attempt, pause: float, response: Response) -> None:
        if not (self._reached or self.traffic.retries):
            self.on_unreached(response.error)
        self.traffic.retries += 1
        again = structs.replace(
            attempt,
            due=time.monotonic() + pause,
            order=next(self._order),
            received=_Body(attempt.request.max_bytes),
            number=attempt.number + 1,
            throttled=response.status == 429,
        )
        heapq.heappush(stream.waiting, again)

    def _request_headers(self, request: Request) -> Sequence[bytes]:
        if self._no_credentials:
            raise ConfigurationError(self._no_credentials)
        authorization = self.endpoint.authorization()
        if authorization != self._authorization:
            self._authorization, self._token = authorization, authorization.partition(" ")[2].encode()
            self._headers.clear()
        types = (request.accept, "" if request.body is None else request.content_type)
        if types not in self._headers:
            self._headers[types] = [line.encode() for line in self._header_lines(*types)]
        return self._headers[types]

    def _header_lines(self, accept: str, content_type: str) -> Iterator[str]:
        yield from (f"Accept: {accept}", f"User-Agent: {self.user_agent}", "Expect:")
        if content_type:
            yield f"Content-Type: {content_type}"
        if self._authorization:
            yield f"Authorization: {self._authorization}"
        yield from self.endpoint.impersonation
        if self.endpoint.host:
            yield f"Host: {self.endpoint.host}"


def _seconds_to_wait(stream: _Stream) -> float:
    """Return the seconds until the next request is due."""
    if stream.waiting and len(stream.in_flight) < IN_FLIGHT and stream.fits(stream.waiting[0].request):
        return min(max(stream.waiting[0].due - time.monotonic(), 0.001), _LONGEST_WAIT)
    return _LONGEST_WAIT
