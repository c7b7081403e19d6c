"""Injected faults, and the requests that the embedded cluster records."""

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from kubesandbox import Fault, Sandbox

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@dataclass
class Client:
    """One kept-alive connection."""

    sandbox: Sandbox
    connection: http.client.HTTPConnection

    def send(self, method: str, path: str, body: Any = None, token: str = "") -> tuple[int, bytes]:
        status, _, raw = self.answer(method, path, body, token)
        return status, raw

    def answer(self, method: str, path: str, body: Any = None, token: str = "") -> tuple[int, dict[str, str], bytes]:
        headers = {"Authorization": f"Bearer {token or self.sandbox.admin_token}", "User-Agent": "tests/1"}
        content = None if body is None else json.dumps(body).encode()
        self.connection.request(method, path, content, headers)
        found = self.connection.getresponse()
        return found.status, dict(found.headers), found.read()

    def make(self, name: str) -> int:
        return self.send("POST", CONFIG_MAPS, {"metadata": {"name": name}, "data": {"a": "1"}})[0]

    def exists(self, name: str) -> bool:
        return self.send("GET", f"{CONFIG_MAPS}/{name}")[0] == 200


@pytest.fixture
def client() -> Iterator[Client]:
    """A fresh sandbox and a connection to it."""
    with Sandbox() as sandbox:
        yield Client(sandbox, http.client.HTTPConnection(sandbox.url.removeprefix("http://"), timeout=300))


def test_too_many_requests_with_retry_after(client: Client) -> None:
    client.sandbox.inject(Fault(method="POST", path=CONFIG_MAPS, status=429, retry_after=3, times=2))

    found = [client.answer("POST", CONFIG_MAPS, {"metadata": {"name": "a"}}) for _ in range(3)]

    assert [status for status, _, _ in found] == [429, 429, 201]
    assert found[0][1]["Retry-After"] == "3"
    assert json.loads(found[0][2])["reason"] == "TooManyRequests"


def test_a_fault_can_let_requests_pass_first(client: Client) -> None:
    client.sandbox.inject(Fault(path=f"{CONFIG_MAPS}*", status=503, skip=2, times=1))

    assert [client.make(name) for name in "abcd"] == [201, 201, 503, 201]


def test_a_permanent_fault(client: Client) -> None:
    client.sandbox.inject(Fault(path="/api/v1/*", status=401, times=None))

    assert [client.make("a") for _ in range(3)] == [401] * 3
    client.sandbox.clear_faults()
    assert client.make("a") == 201


@pytest.mark.parametrize(("kind", "written"), [("reset-before", False), ("reset-after", True)])
def test_a_connection_that_breaks(client: Client, kind: Any, written: bool) -> None:
    client.sandbox.inject(Fault(method="POST", kind=kind))

    with pytest.raises((ConnectionError, http.client.HTTPException)):
        client.make("a")

    client.connection.close()
    assert client.exists("a") is written
    assert client.sandbox.requests[0].status == 0


def test_a_body_that_is_cut(client: Client) -> None:
    client.make("a")
    client.sandbox.inject(Fault(method="GET", kind="truncate"))

    with pytest.raises(http.client.IncompleteRead) as cut:
        client.send("GET", f"{CONFIG_MAPS}/a")

    assert len(cut.value.partial) == client.sandbox.requests[-1].sent


def test_a_delay_changes_nothing_else(client: Client) -> None:
    client.sandbox.inject(Fault(method="POST", kind="delay", seconds=0.01))

    assert client.make("a") == 201
    assert client.exists("a")


def first_page(client: Client) -> str:
    """Create objects a, b and c, and read the first page of their list. Return the token of the next page."""
    for name in "abc":
        client.make(name)
    _, raw = client.send("GET", f"{CONFIG_MAPS}?limit=1")
    return str(json.loads(raw)["metadata"]["continue"])


def test_a_list_expires_on_its_second_page(client: Client) -> None:
    client.sandbox.inject(Fault(method="GET", query="*continue=*", status=410))
    token = first_page(client)

    status, raw = client.send("GET", f"{CONFIG_MAPS}?limit=1&continue={token}")

    assert (status, json.loads(raw)["reason"]) == (410, "Expired")


def test_an_expired_token_gives_a_fresh_one(client: Client) -> None:
    token = first_page(client)
    client.sandbox.expire_continue_tokens()

    status, raw = client.send("GET", f"{CONFIG_MAPS}?limit=1&continue={token}")
    expired = json.loads(raw)
    rest, raw = client.send("GET", f"{CONFIG_MAPS}?limit=10&continue={expired['metadata']['continue']}")

    assert (status, expired["reason"], rest) == (410, "Expired", 200)
    assert [item["metadata"]["name"] for item in json.loads(raw)["items"]] == ["b", "c", "kube-root-ca.crt"]


def test_every_request_is_recorded_with_its_size(client: Client) -> None:
    body = {"metadata": {"name": "a"}, "data": {"a": "1"}}
    status, raw = client.send("POST", f"{CONFIG_MAPS}?fieldManager=x&dryRun=All", body)

    observed = client.sandbox.requests[-1]
    assert (observed.method, observed.path) == ("POST", CONFIG_MAPS)
    assert observed.query == {"fieldManager": "x", "dryRun": "All"}
    assert (observed.status, observed.sent, observed.received) == (status, len(raw), len(json.dumps(body)))
    assert (observed.user, observed.user_agent) == ("kubernetes-admin", "tests/1")


def test_a_fault_on_the_command_line() -> None:
    fault = Fault.parse("PUT /api/v1/namespaces/*/secrets/* status=429 retry-after=1 times=2 skip=3 kind=status")

    assert fault == Fault("PUT", "/api/v1/namespaces/*/secrets/*", status=429, retry_after=1, times=2, skip=3)


@pytest.mark.parametrize("text", ["PUT", "PUT /x status", "PUT /x kind=unknown", "PUT /x nothing=1"])
def test_a_fault_that_is_not_valid(text: str) -> None:
    with pytest.raises(ValueError):
        Fault.parse(text)


def test_requests_without_credentials_are_refused(client: Client) -> None:
    client.connection.request("GET", CONFIG_MAPS, headers={"User-Agent": "anything"})
    answer = client.connection.getresponse()

    assert answer.status == 403
    assert b'User \\"system:anonymous\\" cannot list resource' in answer.read()
