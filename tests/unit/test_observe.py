"""The parts of objects that a run keeps in memory."""

import json
from collections.abc import Iterable, Iterator, Mapping

import pytest

from jobs.core.sync_copies.observe import _by_name, _list_of_copies
from jobs.core.sync_copies.observed import Settings
from jobs.kit.api.cluster import PAGE_SIZE, Cluster
from jobs.kit.api.responses import Request, Response
from jobs.kit.data.contents import Content
from jobs.kit.data.objects import ObjectReducer, ReducedObject
from jobs.kit.values.errors import ApiError
from tests.canary import canary
from tests.worlds import encoded


class Server:
    """A fake transport: answers every list with two copies of one source."""

    def __init__(self) -> None:
        self.data = {"password": encoded(canary())}
        self.asked: list[str] = []

    def stream(self, requests: Iterable[Request]) -> Iterator[Response]:
        return map(self.answer, requests)

    def answer(self, request: Request) -> Response:
        self.asked.append(request.path)
        kind = {"apiVersion": "v1", "kind": "SecretList"}
        if "PartialObjectMetadata" in request.accept:
            kind = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList"}
        items = [{"metadata": {"name": "login", "namespace": name}, "data": self.data} for name in ("a", "b")]
        return Response(
            request, 200, json.dumps({**kind, "metadata": {"resourceVersion": "1"}, "items": items}).encode()
        )


def copies_of(server: Server, *, verify_content: bool) -> Mapping[str, ReducedObject | ApiError]:
    settings = Settings("home", verify_content=verify_content)
    requested = _list_of_copies("secret", settings, ObjectReducer(()), "")
    ((_, found),) = Cluster(server, "test").lists([requested])  # type: ignore[arg-type]
    if isinstance(found, ApiError):
        raise found
    return _by_name(found)["login"]


def test_equal_contents_of_copies_are_stored_once() -> None:
    server = Server()

    first, second = copies_of(server, verify_content=True).values()

    assert isinstance(first, ReducedObject) and isinstance(second, ReducedObject)
    assert isinstance(first.content, Content) and first.content is second.content
    assert first.content.data == server.data


def test_metadata_has_no_content() -> None:
    server = Server()

    copies = copies_of(server, verify_content=False)

    assert [isinstance(each, ReducedObject) and each.content is None for each in copies.values()] == [True, True]
    assert [f"limit={PAGE_SIZE}&" in path for path in server.asked] == [True]


def test_an_answer_that_is_not_a_list_is_an_error_in_one_sentence() -> None:
    class Proxy(Server):
        def answer(self, request: Request) -> Response:
            return Response(request, 200, b"<html>log in first</html>")

    with pytest.raises(ApiError, match="is not PartialObjectMetadataList"):
        copies_of(Proxy(), verify_content=False)
