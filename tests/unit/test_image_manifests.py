"""Requests for manifests: limits of time, of a run that is stopped, and what a client never sends or connects to."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, cast

import pytest
import responses

from jobs.kit import web
from jobs.kit.image_manifests import request_all
from jobs.kit.values.addresses import is_local_address
from jobs.kit.values.model import Login, ManifestRequest
from jobs.kit.values.reads import NO_DNS, NOT_FETCHED, NOT_IN_TIME, NOT_REQUESTED, Download
from tests import rates
from tests.canary import canary
from tests.image_registries import INDEX, ImageRegistries, basic, digest, serve

OTHER = "other.example.com"
AGENT = "kube-chores/0 (tests)"


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ImageRegistries]:
    """Registries of images, to which clients in this process connect."""
    monkeypatch.setattr(web, "LONGEST_PAUSE_SECONDS", 0.0)
    with serve(tmp_path) as served:
        for name, value in served.env.items():
            monkeypatch.setenv(name, value)
        yield served


def request(host: str, reference: str = "1", *logins: Login) -> ManifestRequest:
    return ManifestRequest(f"{host} {reference}", f"https://{host}", "app", reference, logins)


def run(
    *requests: ManifestRequest, seconds: float = 30, stopping: Callable[[], bool] = lambda: False
) -> dict[str, Any]:
    return request_all(requests, AGENT, stopping, monotonic() + seconds)


def test_a_silent_registry_takes_time_from_no_other(images: ImageRegistries, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "READ_SECONDS", 1.5)
    images.registry("good.example.com").push("app:1")
    end = threading.Event()
    images.registry("silent.example.com").answer = lambda _: cast("None", end.wait(20))

    found = run(*(request(f"{name}.example.com", tag) for name in ("silent", "good") for tag in ("1", "2")))

    assert found["good.example.com 1"] == Download(status=200, digest=digest(1), media_type=INDEX)
    assert found["good.example.com 2"].status == 404
    assert found["silent.example.com 1"].error == "no answer within 1.5 seconds"
    assert found["silent.example.com 2"].error == NOT_REQUESTED
    end.set()


def test_what_is_not_requested_in_time_or_before_a_stop_is_not_missing(images: ImageRegistries) -> None:
    registry = images.registry("r.example.com")
    registry.push("app:1")

    assert run(request("r.example.com"), seconds=-1) == {"r.example.com 1": Download(error=NOT_IN_TIME)}
    stopped = run(request("r.example.com"), stopping=lambda: True)
    assert stopped == {"r.example.com 1": Download(error=NOT_FETCHED)}
    assert images.requests == []
    end = threading.Event()
    registry.answer = lambda _: cast("None", end.wait(20))
    assert run(request("r.example.com"), seconds=0.3)["r.example.com 1"].error == NOT_IN_TIME
    end.set()


def test_a_resolver_that_does_not_answer_is_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: end.wait(20) and [])
    assert run(request("r.example.com"), seconds=0.2)["r.example.com 1"].error == NO_DNS
    end.set()


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "::1", "169.254.169.254", "fe80::1%eth0", "0.0.0.0", "224.0.0.1", "::ffff:127.0.0.1"]
)
def test_a_name_of_an_address_of_the_machine_itself_is_not_connected_to(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("10.0.0.1", 0)), (0, 0, 0, "", (address, 0))]
    )
    monkeypatch.setattr(socket, "create_connection", None)

    assert run(request("r.example.com"))["r.example.com 1"].error.startswith("its address is of this machine")


@pytest.mark.parametrize("address", ["10.0.0.1", "192.168.1.1", "203.0.113.7", "2001:db8::1", "not an address"])
def test_private_addresses_may_be_of_registries(address: str) -> None:
    assert not is_local_address(address)


def test_a_login_of_netrc_and_cookies_are_never_sent(
    images: ImageRegistries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine r.example.com login robot password {canary()}\n")
    monkeypatch.setenv("NETRC", str(netrc))
    cookies: list[str | None] = []

    def answer(handler: rates.Handler) -> None:
        cookies.append(handler.headers.get("Cookie"))
        handler.send(404, {"Set-Cookie": "session=1; Domain=example.com; Path=/"}, b"")

    images.registry("r.example.com").answer = answer

    run(request("r.example.com", "1"), request("r.example.com", "2"))

    assert cookies == [None, None]
    assert images.sent("r.example.com") == set()


def test_several_logins_are_tried_until_one_is_accepted(images: ImageRegistries) -> None:
    registry = images.registry("r.example.com")
    registry.push("app:1")
    login = registry.require_login()
    wrong, right = Login("robot", canary()), Login(*login)

    found = run(request("r.example.com", "1", wrong, right))

    assert found["r.example.com 1"].status == 200
    assert canary() not in repr(request("r.example.com", "1", right))
    assert repr(right) == "Login()"


@pytest.mark.parametrize(
    "challenge", [f'Bearer realm="https://{OTHER}/token"', 'Basic realm="x"'], ids=["token", "basic"]
)
def test_a_host_that_a_registry_redirects_to_gets_no_login(images: ImageRegistries, challenge: str) -> None:
    login = Login("robot", canary())
    images.registry("r.example.com").answer = rates.redirect(f"https://{OTHER}/v2/app/manifests/1")
    images.registry(OTHER).answer = rates.status(401, WWW_Authenticate=challenge)

    found = run(request("r.example.com", "1", login))

    assert found["r.example.com 1"].status == 401
    assert images.asked(OTHER) == ["app/manifests/1"], "not for a token"
    assert images.sent(OTHER) == set()


@pytest.mark.parametrize(("scheme", "sent"), [("https", True), ("http", False)])
def test_a_registry_without_tls_gets_no_login(images: ImageRegistries, scheme: str, sent: bool) -> None:
    login = images.registry("r.example.com").require_login(tokens=False)

    run(ManifestRequest("key", f"{scheme}://r.example.com", "app", "1", (Login(*login),)))

    assert images.sent("r.example.com") == ({basic(login)} if sent else set())


def test_a_registry_that_fails_three_times_gets_no_more_requests(images: ImageRegistries) -> None:
    statuses = iter([500, 404, *10 * [500]])
    images.registry("r.example.com").answer = lambda handler: rates.status(next(statuses))(handler)

    found = run(*(request("r.example.com", str(number)) for number in range(10)))

    assert [each.status for each in found.values()] == [500, 404, 500, 500, 500, *5 * [0]]
    assert {each.error for each in [*found.values()][5:]} == {NOT_REQUESTED}


def test_connections_stay_open_and_tokens_are_used_again(images: ImageRegistries) -> None:
    registry = images.registry("r.example.com")
    registry.tokens = True
    for number in range(5):
        registry.push(f"app:{number}", number)

    found = run(*(request("r.example.com", str(number)) for number in range(5)))

    assert [each.status for each in found.values()] == 5 * [200]
    assert [method for method, *_ in images.requests].count("GET") == 1


@responses.activate
def test_the_fields_of_a_challenge_are_read_in_any_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    for number, challenge in enumerate(
        (
            'Bearer realm="https://auth.example.com/token?a=b",service="a, \\"b\\"",scope="repository:app:pull"',
            'Basic realm="x", Bearer realm=https://auth.example.com/token?a=b, scope="repository:app:pull"',
            'bearer  REALM="https://auth.example.com/token?a=b#fragment"',
        )
    ):
        responses.head(
            f"https://r{number}.example.com/v2/app/manifests/1", status=401, headers={"WWW-Authenticate": challenge}
        )
    responses.get("https://auth.example.com/token", json={"access_token": "x"})

    run(*(request(f"r{number}.example.com") for number in range(3)))

    asked = [call.request for call in responses.calls if call.request.method == "GET"]
    assert len(asked) == 3
    assert {"scope=repository%3Aapp%3Apull" in str(each.url) for each in asked} == {True}
    assert {str(each.url).partition("&")[0] for each in asked} == {"https://auth.example.com/token?a=b"}
    sent = [call.request.headers.get("Authorization") for call in responses.calls if call.request.method == "HEAD"]
    assert sorted(map(str, sent)) == [*3 * ["Bearer x"], *3 * ["None"]]


def test_a_name_that_resolves_to_this_machine_only_for_the_connection_gets_no_byte(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    lookups: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def resolve(*arguments: Any, **_: Any) -> list[Any]:
            lookups.append(arguments)
            address = ("203.0.113.7", 0) if len(lookups) == 1 else listener.getsockname()
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address)]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        for scheme in ("http", "https"):
            lookups.clear()
            found = run(ManifestRequest("key", f"{scheme}://r.example.com", "app", "1"))
            assert found["key"].error.startswith("its address is of this machine"), scheme
            assert len(lookups) == 2, "a second attempt would fail too"
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(1) == b"", scheme
