"""Requests to a faulty server: which are retried, and for how long."""

import gc
import json
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from jobs.kit.api import transport as kit
from jobs.kit.api.curl import Transfers
from jobs.kit.api.endpoint import Endpoint
from jobs.kit.api.responses import Request, Response
from jobs.kit.api.transport import BYTES_IN_FLIGHT, IN_FLIGHT, Transport
from jobs.kit.values.errors import StoppedError, UnreachableError
from kubesandbox import Fault, Sandbox
from tests.api.conftest import runs
from tests.apis import sandbox_api

GET = Request("GET", "/api/v1/namespaces/default/configmaps")
Connect = Callable[..., Transport]
BODY = b'{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}'
POST = Request("POST", GET.path, BODY, repeatable=False)


@pytest.fixture
def connected(sandbox: Sandbox) -> Iterator[Connect]:
    made: list[Transport] = []

    def connect(**limits: Any) -> Transport:
        endpoint = Endpoint(sandbox.url, lambda: f"Bearer {sandbox.admin_token}")
        made.append(Transport(endpoint, "kube-chores/test", **limits))
        return made[-1]

    yield connect
    for transport in made:
        transport.close()


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry almost without pauses."""
    monkeypatch.setattr("jobs.kit.api.transport.LONGEST_PAUSE_SECONDS", 0.01)


@pytest.mark.parametrize(
    "fault",
    [
        Fault("GET", status=429, retry_after=0),
        Fault("GET", status=500, times=2),
        Fault("GET", status=503),
        Fault("GET", kind="reset-before"),
        Fault("GET", kind="truncate"),
    ],
    ids=lambda fault: f"{fault.kind} {fault.status}",
)
def test_a_read_is_retried(sandbox: Sandbox, connected: Connect, fault: Fault) -> None:
    sandbox.inject(fault)
    transport = connected()

    answer = transport.send(GET)

    assert answer.status == 200
    assert answer.attempts == 1 + (fault.times or 0)
    assert transport.traffic.retries == fault.times


def test_retry_after_is_the_shortest_pause(sandbox: Sandbox, connected: Connect) -> None:
    sandbox.inject(Fault("GET", status=429, retry_after=1))
    began = time.monotonic()

    connected().send(GET)

    assert time.monotonic() - began >= 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 422])
def test_an_answer_that_a_retry_would_not_change_is_final(sandbox: Sandbox, connected: Connect, status: int) -> None:
    sandbox.inject(Fault("GET", status=status))

    answer = connected().send(GET)

    assert (answer.status, answer.attempts) == (status, 1)


TOO_LARGE = "etcdserver: request is too large"


@pytest.mark.parametrize(
    "message",
    [TOO_LARGE, "rpc error: code = ResourceExhausted desc = trying to send message larger than max (3 vs. 2)"],
)
def test_a_write_that_is_too_large_for_etcd_is_not_sent_again(
    sandbox: Sandbox, connected: Connect, short_pauses: None, message: str
) -> None:
    sandbox.inject(Fault("PUT", status=500, message=message, times=2))

    answer = connected().send(Request("PUT", f"{GET.path}/x", BODY))

    assert (answer.status, answer.attempts) == (500, 1)
    assert len([each for each in sandbox.requests if each.method == "PUT"]) == 1


def test_a_write_is_retried_if_a_server_error_only_quotes_that_it_is_too_large(
    sandbox: Sandbox, connected: Connect, short_pauses: None
) -> None:
    sandbox.inject(Fault("GET", status=500, message=f'a webhook quotes "{TOO_LARGE}"', times=2))

    answer = connected().send(GET)

    assert (answer.status, answer.attempts) == (200, 3)


@pytest.mark.parametrize(
    "fault",
    [Fault("POST", status=500), Fault("POST", status=503), Fault("POST", kind="reset-after")],
    ids=lambda fault: f"{fault.kind} {fault.status}",
)
def test_a_create_is_never_sent_twice(sandbox: Sandbox, connected: Connect, fault: Fault) -> None:
    sandbox.inject(fault)

    answer = connected().send(POST)

    assert answer.attempts == 1
    assert len([each for each in sandbox.requests if each.method == "POST"]) == 1


def test_a_throttled_create_is_sent_again(sandbox: Sandbox, connected: Connect) -> None:
    sandbox.inject(Fault("POST", status=429, retry_after=0))

    assert connected().send(POST).status == 201


def test_a_server_that_does_not_answer_is_an_error_that_names_it(sandbox: Sandbox, connected: Connect) -> None:
    sandbox.inject(Fault("GET", kind="delay", seconds=5, times=None))

    answer = connected(request_seconds=0.3, retry_seconds=0).send(GET)

    assert answer.status == 0
    assert answer.error == f"no answer from {sandbox.url} within 0.3 seconds"


@pytest.fixture
def nowhere() -> Iterator[str]:
    """The URL of a port that is reserved, and on which no server listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def test_an_address_without_a_server_is_named(nowhere: str) -> None:
    transport = Transport(Endpoint(nowhere, lambda: ""), "kube-chores/test", retry_seconds=0)

    with pytest.raises(UnreachableError, match=f"^{nowhere}: "):
        transport.send(GET)


def test_retries_of_a_server_that_was_never_reached_end_earlier(nowhere: str, short_pauses: None) -> None:
    transport = Transport(Endpoint(nowhere, lambda: ""), "kube-chores/test", unreached_seconds=0)

    with pytest.raises(UnreachableError):
        transport.send(GET)

    assert transport.traffic.retries == 0


def test_a_server_that_is_not_reached_at_first_is_logged_once_and_retried(nowhere: str, short_pauses: None) -> None:
    announced: list[str] = []
    transport = Transport(
        Endpoint(nowhere, lambda: ""), "kube-chores/test", retry_seconds=0.5, on_unreached=announced.append
    )

    with pytest.raises(UnreachableError):
        transport.send(GET)

    assert transport.traffic.retries > 1
    (error,) = announced
    assert error.startswith(f"{nowhere}: ")


def test_a_server_that_was_reached_once_has_the_full_time_for_retries(
    sandbox: Sandbox, connected: Connect, short_pauses: None
) -> None:
    announced: list[str] = []
    transport = connected(unreached_seconds=0, on_unreached=announced.append)
    sandbox.inject(Fault("GET", kind="reset-before", times=3))

    assert transport.send(GET).attempts == 4
    assert announced == []


def noted(requests: Iterable[Request], taken: list[Request]) -> Iterator[Request]:
    """Yield the requests, and add each to `taken` when it is consumed."""
    for request in requests:
        taken.append(request)
        yield request


def test_many_requests_are_all_answered_once_and_sent_lazily(sandbox: Sandbox, connected: Connect) -> None:
    requests = [Request("GET", GET.path, tag=number) for number in range(200)]
    sent: list[Request] = []
    ahead = 0

    answered: list[Response] = []
    for answer in connected().stream(noted(requests, sent)):
        answered.append(answer)
        ahead = max(ahead, len(sent) - len(answered))

    assert sorted(answer.request.tag for answer in answered) == list(range(200))
    assert {answer.status for answer in answered} == {200}
    assert ahead <= 2 * IN_FLIGHT


def test_throttled_requests_come_before_new_ones(sandbox: Sandbox, connected: Connect) -> None:
    sandbox.inject(Fault("GET", status=429, retry_after=0, times=2 * IN_FLIGHT + 1))
    requests = (Request("GET", GET.path, tag=number) for number in range(4 * IN_FLIGHT))

    answers = list(connected().stream(requests))

    assert {answer.status for answer in answers} == {200}
    assert sorted(answer.request.tag for answer in answers if answer.attempts > 1) == list(range(IN_FLIGHT))


def test_once_stopping_no_request_is_sent_but_those_in_flight_are_answered(
    sandbox: Sandbox, connected: Connect
) -> None:
    stopping = False
    transport = connected(stopping=lambda: stopping)
    answers = []
    for answer in transport.stream(Request("GET", GET.path) for _ in range(500)):
        answers.append(answer)
        stopping = True

    assert {answer.status for answer in answers} == {200}
    assert len(answers) == len(sandbox.requests) < 100
    with pytest.raises(StoppedError):
        transport.send(GET)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time at which each request was started."""
    times: list[float] = []
    start = Transfers.start

    def noted(self: Transfers, *arguments: Any) -> Any:
        times.append(time.monotonic())
        return start(self, *arguments)

    monkeypatch.setattr(Transfers, "start", noted)
    return times


def test_requests_with_a_rate_limit_start_no_sooner(connected: Connect, begun: list[float]) -> None:
    transport, earliest = connected(), time.monotonic()

    answers = list(transport.stream([GET] * 12, per_second=50))

    assert [answer.status for answer in answers] == [200] * 12
    assert [number for number, moment in enumerate(begun) if moment < earliest + number / 50] == []


def test_a_rate_limit_is_reached_while_answers_are_slow(
    sandbox: Sandbox, connected: Connect, begun: list[float]
) -> None:
    sandbox.inject(Fault("GET", kind="delay", seconds=2, times=None))

    answers = connected().stream([GET] * IN_FLIGHT, per_second=200)
    next(answers)

    assert len(begun) == IN_FLIGHT, "while the first answer is awaited"
    assert len(list(answers)) == IN_FLIGHT - 1


def test_the_first_request_is_due_at_once_also_on_a_machine_that_has_just_started(
    connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = time.monotonic()
    monkeypatch.setattr(kit, "time", SimpleNamespace(monotonic=lambda: time.monotonic() - begun))

    answers = connected(stopping=lambda: time.monotonic() - begun > 60).stream([GET], per_second=0.001)

    assert [answer.status for answer in answers] == [200]


def test_requests_with_a_rate_limit_are_consumed_when_they_are_due(sandbox: Sandbox, connected: Connect) -> None:
    sandbox.inject(Fault("GET", kind="delay"))
    taken: list[Request] = []
    answers: list[Response] = []

    for answer in connected(stopping=lambda: bool(answers)).stream(noted([GET] * 100, taken), per_second=0.001):
        answers.append(answer)

    assert taken in ([GET], [GET, GET])


def test_a_rate_limit_delays_neither_answers_nor_a_stop(connected: Connect, begun: list[float]) -> None:
    answers: list[Response] = []
    transport = connected(stopping=lambda: bool(answers))

    for answer in transport.stream([GET] * 3, per_second=0.001):
        answers.append(answer)

    assert (len(answers), len(begun)) == (1, 1)


def test_a_retry_does_not_wait_for_the_rate_limit(sandbox: Sandbox, connected: Connect) -> None:
    sandbox.inject(Fault("GET", status=503))

    answers = list(connected().stream([GET], per_second=0.001))

    assert [answer.attempts for answer in answers] == [2]


@pytest.fixture
def cpu_used() -> Callable[[], float]:
    """The processor time of this thread only, in seconds: the embedded server runs in others."""
    began = time.thread_time()
    return lambda: time.thread_time() - began


def test_a_paced_run_uses_no_processor_while_it_waits(connected: Connect, cpu_used: Callable[[], float]) -> None:
    answers = list(connected().stream([GET] * 5, per_second=4))

    assert [answer.status for answer in answers] == [200] * 5
    assert cpu_used() < 0.2, "of the second that the run took"


def test_a_retrying_run_uses_no_processor_while_it_waits(
    sandbox: Sandbox, connected: Connect, cpu_used: Callable[[], float]
) -> None:
    sandbox.inject(Fault("GET", status=503, retry_after=1))

    answer = connected().send(GET)

    assert (answer.status, answer.attempts) == (200, 2)
    assert cpu_used() < 0.2, "of the second that the run took"


def test_an_answer_that_is_too_long_is_not_read_to_its_end(connected: Connect) -> None:
    transport = connected()

    answer = transport.send(replace(GET, max_bytes=100))

    assert (answer.status, answer.body, answer.is_too_long, answer.attempts) == (0, b"", True, 1)
    assert transport.send(GET).status == 200


def test_the_bytes_in_flight_are_limited(sandbox: Sandbox, connected: Connect) -> None:
    sandbox.inject(Fault("POST", kind="delay", seconds=0.3, times=None))
    large = replace(POST, body=BODY + b" " * (BYTES_IN_FLIGHT // 7))
    taken: list[Request] = []

    answers = connected().stream(noted([large] * 12, taken))
    next(answers)

    assert len(taken) == 4, "three in flight and one that waits"
    assert len(list(answers)) == 11


# compression


@pytest.fixture
def large(sandbox: Sandbox, connected: Connect) -> int:
    """The length of a list with a ConfigMap of 300 kB, which compresses well."""
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": {"a": "x" * 300_000}}
    assert connected().send(Request("POST", GET.path, json.dumps(made).encode())).status == 201
    return len(connected().send(GET).body)


def test_the_traffic_is_that_of_the_compressed_answer(sandbox: Sandbox, connected: Connect, large: int) -> None:
    transport = connected()

    answer = transport.send(replace(GET, compressed=True))

    assert len(answer.body) == large
    assert transport.traffic.bytes_received == sandbox.requests[-1].sent < large / 100


def test_a_compressed_answer_is_not_read_beyond_the_limit_of_its_content(
    sandbox: Sandbox, connected: Connect, large: int
) -> None:
    answer = connected().send(replace(GET, compressed=True, max_bytes=100_000))

    assert sandbox.requests[-1].sent < 10_000
    assert (answer.is_too_long, answer.body) == (True, b"")


def test_a_damaged_compressed_answer_is_an_error(
    sandbox: Sandbox, connected: Connect, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gzip.compress", lambda body, **_: b"\x1f\x8b\x08" + 30 * b"x")

    answer = connected(retry_seconds=0).send(replace(GET, compressed=True))

    assert (answer.status, answer.body) == (0, b"")


HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("value", "ahead"),
    [
        (-HOUR, HOUR),
        (HOUR, -HOUR),
        (timedelta(seconds=2), timedelta()),
        (timedelta(days=4000), timedelta()),
        *(
            (text, timedelta())
            for text in ("", "now", "Thu, 01 Jan 99999 00:00:00 GMT", "Thu, 01 Foo 2026 é GMT", "9" * 5000)
        ),
        ("Fri, 31 Dec 9999 23:59:59 GMT", timedelta()),
        ("Mon, 01 Jan 0001 00:00:00 GMT", timedelta()),
    ],
)
def test_the_clock_is_that_of_the_server_if_its_date_is_valid(
    connected: Connect, monkeypatch: pytest.MonkeyPatch, value: timedelta | str, ahead: timedelta
) -> None:
    date = value if isinstance(value, str) else format_datetime(datetime.now(timezone.utc) + value, usegmt=True)
    monkeypatch.setattr("kubesandbox.http.server.formatdate", lambda usegmt: date)
    transport = connected()

    assert transport.send(GET).is_success

    assert abs(transport.clock.ahead - ahead) < timedelta(minutes=1)
    assert abs(transport.clock.now() - (datetime.now(timezone.utc) - ahead)) < timedelta(minutes=1)


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_set_during_a_run_changes_no_time(monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    clock = kit.ServerClock()
    clock.read(f"Date: {format_datetime(datetime.now(timezone.utc), usegmt=True)}".encode())
    before = clock.now()
    monkeypatch.setattr(kit, "local_time", lambda: datetime.now(timezone.utc) + timedelta(hours=hours))

    assert timedelta() <= clock.now() - before < timedelta(minutes=30)


@pytest.mark.usefixtures("short_pauses")
def test_the_clock_of_a_proxy_that_answers_with_an_error_does_not_count(
    sandbox: Sandbox, connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(timezone.utc)
    dates = iter([now - HOUR, now, now - HOUR])
    monkeypatch.setattr(
        "kubesandbox.http.server.formatdate", lambda usegmt: format_datetime(next(dates), usegmt=usegmt)
    )
    sandbox.inject(Fault("GET", status=503))
    transport = connected()

    assert transport.send(GET).is_success

    assert transport.clock.ahead == timedelta()
    sandbox.inject(Fault("POST", status=503))
    assert transport.send(Request("POST", "/api/v1/namespaces", repeatable=False)).status == 503
    assert transport.clock.ahead == timedelta(), "after a success, no Date is read"


def test_the_garbage_of_a_run_is_collected_although_its_modules_are_not(sandbox: Sandbox, tmp_path: Path) -> None:
    run = runs("sync-copies", sandbox_api(sandbox, tmp_path).kubeconfig)
    run()
    kept = gc.get_freeze_count()

    run()

    assert 0 < gc.get_freeze_count() <= kept
