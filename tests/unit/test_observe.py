"""What a run holds in memory of what it reads."""

from __future__ import annotations

import json

import pytest

from jobs.copies.seen import Settings
from jobs.kit.cluster import DATA_PAGE_SIZE, PAGE_SIZE, Cluster
from jobs.kit.errors import ApiError
from jobs.kit.transport import Answer, Request
from jobs.sync_copies import _copies
from tests.canary import canary
from tests.worlds import encoded


class Server:
    """Answers every list with two copies of one source, as the transport would."""

    def __init__(self) -> None:
        self.data = {"password": encoded(canary())}
        self.asked: list[str] = []

    def send(self, request: Request) -> Answer:
        self.asked.append(request.path)
        items = [{"metadata": {"name": "login", "namespace": name}, "data": self.data} for name in ("a", "b")]
        return Answer(request, 200, json.dumps({"metadata": {}, "items": items}).encode())


def test_what_copies_hold_is_read_in_small_pages_and_held_once() -> None:
    server = Server()

    copies = _copies(Cluster(server, "test"), "secret", Settings("home", verify_content=True))["login"]  # type: ignore[arg-type]

    assert copies["a"].content is copies["b"].content
    assert copies["a"].content and copies["a"].content.data == server.data
    assert [f"limit={DATA_PAGE_SIZE}&" in path for path in server.asked] == [True]


def test_metadata_is_read_in_large_pages() -> None:
    server = Server()

    copies = _copies(Cluster(server, "test"), "secret", Settings("home"))["login"]  # type: ignore[arg-type]

    assert copies["a"].content is None
    assert [f"limit={PAGE_SIZE}&" in path for path in server.asked] == [True]


def test_an_answer_that_is_no_list_is_an_error_in_a_sentence() -> None:
    class Proxy(Server):
        def send(self, request: Request) -> Answer:
            return Answer(request, 200, b"<html>log in first</html>")

    with pytest.raises(ApiError, match="is no list of the Kubernetes API"):
        _copies(Cluster(Proxy(), "test"), "secret", Settings("home"))  # type: ignore[arg-type]
