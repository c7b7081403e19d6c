"""Many lists at once, from the embedded server: pages, lists that expire, errors, large objects, and a stop."""

import gc
import json
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import pytest

from jobs.kit.api import cluster as kit
from jobs.kit.api import responses
from jobs.kit.api.cluster import Cluster, List
from jobs.kit.api.curl import Transfers
from jobs.kit.api.endpoint import Endpoint
from jobs.kit.api.responses import Request, Response
from jobs.kit.api.transport import IN_FLIGHT, Transport
from jobs.kit.data.objects import WholeObject
from jobs.kit.values.errors import ApiError, StoppedError
from jobs.kit.values.resources import CLUSTER_ROLES, CONFIGMAPS, NAMESPACES, ROLE_BINDINGS, SECRETS, Resource
from kubesandbox import Fault, Sandbox

PAGE = 3
CREATED = {f"team-{number}": [f"x-{each}" for each in range(number * 2)] for number in range(6)}
PATHS = "/api/v1/namespaces/*/configmaps"


@pytest.fixture
def stopping() -> list[bool]:
    """Not empty: the transport is to stop."""
    return []


@pytest.fixture
def cluster(sandbox: Sandbox, stopping: list[bool], monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr("jobs.kit.api.transport.LONGEST_PAUSE_SECONDS", 0.01)
    endpoint = Endpoint(sandbox.url, lambda: f"Bearer {sandbox.admin_token}")
    transport = Transport(endpoint, "kube-chores/test", stopping=lambda: bool(stopping))
    yield Cluster(transport, "test")
    transport.close()


@pytest.fixture
def teams(sandbox: Sandbox, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    """Six namespaces with 0, 2, 4, 6, 8 and 10 labelled ConfigMaps, which are up to four pages."""
    monkeypatch.setattr(kit, "PAGE_SIZE", PAGE)
    for namespace, names in CREATED.items():
        create(cluster, "", namespace)
        for name in names:
            create(cluster, namespace, name)
    sandbox.requests.clear()
    return sandbox


def create(cluster: Cluster, namespace: str, name: str, size: int = 1) -> None:
    resource = CONFIGMAPS if namespace else NAMESPACES
    made = {"apiVersion": "v1", "kind": resource.kind, "metadata": {"name": name, "labels": {"made": "yes"}}}
    made |= {"data": {"a": "x" * size}} if namespace else {}
    request = Request("POST", resource.path(namespace), json.dumps(made).encode(), max_bytes=2 << 20)
    assert cluster.transport.send(request).status == 201


def of(namespace: str, **options: Any) -> List:
    return List(
        CONFIGMAPS, WholeObject, lambda each: each.metadata.name, namespace, "made=yes", tag=namespace, **options
    )


def lists(cluster: Cluster, *namespaces: str) -> dict[str, Any]:
    """The objects, or the status of the error, by namespace. Each list is yielded once."""
    found: dict[str, Any] = {}
    for tag, each in cluster.lists(map(of, namespaces)):
        assert tag not in found
        found[tag] = each.status if isinstance(each, ApiError) else each
    return found


def limits(sandbox: Sandbox, namespace: str) -> list[str]:
    return [each.query["limit"] for each in sandbox.requests if f"/{namespace}/configmaps" in each.path]


def test_lists_of_several_pages_are_all_complete(teams: Sandbox, cluster: Cluster) -> None:
    assert lists(cluster, *CREATED) == CREATED

    requests = Counter(each.path.split("/")[4] for each in teams.requests)
    assert requests == {"team-0": 1, "team-1": 1, "team-2": 2, "team-3": 2, "team-4": 3, "team-5": 4}


@pytest.mark.parametrize("metadata_only", [True, False])
def test_pages_of_metadata_grow_to_a_tenth_of_what_was_listed(
    sandbox: Sandbox, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, metadata_only: bool
) -> None:
    monkeypatch.setattr(kit, "PAGE_SIZE", PAGE)
    monkeypatch.setattr(kit, "LARGEST_PAGE_SIZE", PAGE + 2)
    create(cluster, "", "many")
    names = ["kube-root-ca.crt", *(f"x-{number:02}" for number in range(69))]
    for name in names[1:]:
        create(cluster, "many", name)
    sandbox.requests.clear()

    found = cluster.objects(
        CONFIGMAPS, WholeObject, lambda each: each.metadata.name, namespace="many", metadata_only=metadata_only
    )

    assert list(found) == names
    by_then = 14 * ["3"] + 2 * ["4"] + 4 * ["5"]  # after 42 objects four, after 50 five, and not seven at the end
    assert limits(sandbox, "many") == (by_then if metadata_only else 24 * ["3"])


def test_an_empty_set_of_lists_sends_nothing(teams: Sandbox, cluster: Cluster) -> None:
    assert lists(cluster) == {}
    assert teams.requests == []


def test_metadata_fields_and_all_namespaces_are_requested_as_by_objects(teams: Sandbox, cluster: Cluster) -> None:
    requested = [
        List(CONFIGMAPS, WholeObject, lambda each: each.data, "team-2", "", "metadata.name=x-1", True, tag="one"),
        List(CONFIGMAPS, WholeObject, lambda each: each.metadata.name, selector="made=yes", tag="all"),
    ]

    found = dict(cluster.lists(requested))

    assert found == {"one": [None], "all": [name for names in CREATED.values() for name in names]}


def test_a_list_that_expires_starts_again_and_has_each_object_once(teams: Sandbox, cluster: Cluster) -> None:
    teams.inject(Fault("GET", "/api/v1/namespaces/team-5/*", query="*continue=*", status=410, skip=1, times=1))

    assert lists(cluster, *CREATED) == CREATED
    assert len(limits(teams, "team-5")) == 3 + 4
    assert len(limits(teams, "team-4")) == 3


def test_a_list_that_always_expires_fails_after_three_attempts(teams: Sandbox, cluster: Cluster) -> None:
    teams.inject(Fault("GET", "/api/v1/namespaces/team-5/*", query="*continue=*", status=410, times=None))

    assert lists(cluster, *CREATED) == {**CREATED, "team-5": 410}
    assert len(limits(teams, "team-5")) == 3 * 2


def test_a_page_that_is_repeated_for_ever_is_an_error(teams: Sandbox, cluster: Cluster) -> None:
    head = {"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "1", "continue": "again"}}
    body = json.dumps({**head, "items": []}).encode()
    teams.inject(Fault("GET", "/api/v1/namespaces/team-5/*", kind="answer", status=200, body=body, times=None))

    assert lists(cluster, *CREATED) == {**CREATED, "team-5": 0}
    assert len(limits(teams, "team-5")) == 2


@pytest.mark.parametrize("status", [403, 404])
def test_a_list_that_fails_does_not_stop_the_others(teams: Sandbox, cluster: Cluster, status: int) -> None:
    teams.inject(Fault("GET", "/api/v1/namespaces/team-5/*", query="*continue=*", status=status))

    assert lists(cluster, *CREATED) == {**CREATED, "team-5": status}


def test_an_answer_of_another_namespace_fails_only_its_list(teams: Sandbox, cluster: Cluster) -> None:
    head = {"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "1"}}
    body = {**head, "items": [{"metadata": {"name": "a", "namespace": "team-4"}}]}
    fault = Fault("GET", "/api/v1/namespaces/team-5/*", kind="answer", status=200, body=json.dumps(body).encode())
    teams.inject(fault)

    assert lists(cluster, *CREATED) == {**CREATED, "team-5": 0}


def test_a_page_that_is_too_large_is_requested_again_and_only_its_list(
    teams: Sandbox, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kit, "RESPONSE_BYTES", 100_000)
    monkeypatch.setattr(kit, "PAGE_BYTES", 250_000)
    for number in range(3):
        create(cluster, "team-0", f"large-{number}", 90_000)
    teams.requests.clear()

    found = lists(cluster, *CREATED)

    assert found == {**CREATED, "team-0": ["large-0", "large-1", "large-2"]}
    # With the limit of all lists, then with that of a large one, then with fewer objects.
    assert limits(teams, "team-0")[:3] == ["3", "3", "1"]
    assert set(limits(teams, "team-4")) == {"3"}


def test_a_large_list_of_a_namespace_is_not_requested_twice(
    teams: Sandbox, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kit, "RESPONSE_BYTES", 100_000)
    for number in range(3):
        create(cluster, "team-0", f"large-{number}", 90_000)
    teams.requests.clear()

    (found,) = (objects for _, objects in cluster.lists([of("team-0", large=True)]))

    assert found == ["large-0", "large-1", "large-2"]
    assert len(teams.requests) == 1


def test_an_object_that_is_too_large_fails_only_its_list(
    teams: Sandbox, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RESPONSE_BYTES", "PAGE_BYTES", "OBJECT_BYTES"):
        monkeypatch.setattr(kit, name, 50_000)
    create(cluster, "team-0", "large", 60_000)

    assert lists(cluster, *CREATED) == {**CREATED, "team-0": 0}


@pytest.mark.parametrize("after", range(13))
def test_a_list_that_is_stopped_is_never_complete(
    teams: Sandbox, cluster: Cluster, stopping: list[bool], monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr("jobs.kit.api.transport.IN_FLIGHT", 2)
    teams.inject(Fault("GET", PATHS, kind="call-after", call=partial(stopping.append, True), skip=after))
    found: dict[str, Any] = {}

    def read() -> None:
        found.update(cluster.lists(map(of, CREATED)))

    if after < 11:
        with pytest.raises(StoppedError):
            read()
    elif after == 11:  # two are in flight: the last one may have been sent, or not
        with suppress(StoppedError):
            read()
    else:
        read()
        assert found == CREATED
    for tag, names in found.items():
        assert names == CREATED[tag]


def test_a_list_that_waits_for_a_retry_at_the_stop_is_not_left_out(
    teams: Sandbox, cluster: Cluster, stopping: list[bool]
) -> None:
    for fault in ({"kind": "call-before", "call": partial(stopping.append, True)}, {"status": 503}):
        teams.inject(Fault("GET", "/api/v1/namespaces/team-1/*", **fault))

    with pytest.raises(StoppedError):
        lists(cluster, "team-0", "team-1")


class Counting(Transport):
    """A transport that counts the requests that were consumed and not yet answered."""

    most = 0

    def stream(self, requests: Any, per_second: float | None = None) -> Any:
        consumed = 0

        def counted() -> Iterator[Request]:
            nonlocal consumed
            for each in requests:
                consumed += 1
                yield each

        for answered, answer in enumerate(super().stream(counted(), per_second)):
            self.most = max(self.most, consumed - answered)
            yield answer


def test_of_a_thousand_lists_only_a_few_are_in_flight(sandbox: Sandbox) -> None:
    transport = Counting(Endpoint(sandbox.url, lambda: f"Bearer {sandbox.admin_token}"), "kube-chores/test")
    names = [f"absent-{number:04}" for number in range(1000)]

    found = lists(Cluster(transport, "test"), *names)

    assert found == {name: [] for name in names}
    # One may be consumed and wait; answers that ended together are counted until each is taken.
    assert 2 <= transport.most <= 2 * IN_FLIGHT
    transport.close()


def test_no_page_is_in_memory_after_the_next_one_was_reduced(
    teams: Sandbox, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = responses.decode_response
    pages: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def noted(*arguments: Any) -> Any:
        gc.collect()
        alive.append(sum(page() is not None for page in pages))
        page = decode(*arguments)

        class Page:
            metadata, items = page.metadata, page.items

        pages.append(weakref.ref(found := Page()))
        return found

    monkeypatch.setattr(responses, "decode_response", noted)

    assert lists(cluster, *CREATED) == CREATED
    assert (len(alive), max(alive)) == (13, 0)


def test_a_page_is_reduced_while_the_next_one_is_in_flight(
    teams: Sandbox, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    start, ended = Transfers.start, Transfers.ended

    def noted_start(self: Transfers, *arguments: Any) -> Any:
        events.append("request")
        return start(self, *arguments)

    def noted_ended(self: Transfers, *arguments: Any) -> Any:
        found = ended(self, *arguments)
        events.extend("answer" for _ in found)
        return found

    def reduce(read: WholeObject) -> str:
        events.append("object")
        return read.metadata.name

    monkeypatch.setattr(Transfers, "start", noted_start)
    monkeypatch.setattr(Transfers, "ended", noted_ended)
    requested = List(CONFIGMAPS, WholeObject, reduce, "team-4", "made=yes")

    assert list(cluster.lists([requested])) == [(None, CREATED["team-4"])]
    first = ["request", "answer"]
    assert events == [
        *first,
        "request",
        *["object"] * 3,
        "answer",
        "request",
        *["object"] * 3,
        "answer",
        "object",
        "object",
    ]


# access reviews

ACCESS_REVIEWS = "*selfsubjectaccessreviews"
DENIED = 'x is forbidden: User "x" cannot create resource'


def reviews(number: int) -> list[tuple[str, Any, str]]:
    return [("bind", CLUSTER_ROLES, f"role-{each}") for each in range(number)] + [("list", SECRETS, "")]


def test_access_reviews_are_sent_once_each(sandbox: Sandbox, cluster: Cluster) -> None:
    sandbox.requests.clear()

    found = cluster.can_i([*reviews(30), *reviews(30)])

    assert found == dict.fromkeys(reviews(30), True)
    assert len(sandbox.requests) == 31


def test_an_access_review_that_is_not_allowed_is_a_right_that_is_missing(sandbox: Sandbox, cluster: Cluster) -> None:
    sandbox.inject(Fault("POST", ACCESS_REVIEWS, status=403, message=DENIED))

    assert sorted(cluster.can_i(reviews(3)).values()) == [False, True, True, True]


@pytest.mark.parametrize("status", [401, 409])
def test_an_access_review_that_fails_is_an_error(sandbox: Sandbox, cluster: Cluster, status: int) -> None:
    sandbox.inject(Fault("POST", ACCESS_REVIEWS, status=status, skip=2))

    with pytest.raises(ApiError) as raised:
        cluster.can_i(reviews(30))

    assert raised.value.status == status


def test_a_right_is_not_missing_because_the_run_was_stopped(
    sandbox: Sandbox, cluster: Cluster, stopping: list[bool]
) -> None:
    stop = partial(stopping.append, True)
    sandbox.inject(Fault("POST", ACCESS_REVIEWS, kind="call-after", call=stop))

    with pytest.raises(StoppedError):
        cluster.can_i(reviews(100))


# which resources the credentials can list

RULES_REVIEWS = "*selfsubjectrulesreviews"
ALL = (CONFIGMAPS, ROLE_BINDINGS, SECRETS)


def can_list(cluster: Cluster) -> set[Resource]:
    return {resource for _, resource in cluster.can_in_all_namespaces([("list", each) for each in ALL])}


def rule(groups: str, resources: str, verbs: str, **more: Any) -> dict[str, Any]:
    """A rule of a rules review: "core" is the API group without a name."""
    named = ["" if each == "core" else each for each in groups.split()]
    return {"verbs": verbs.split(), "apiGroups": named, "resources": resources.split(), **more}


def report(sandbox: Sandbox, *rules: dict[str, Any], incomplete: bool = False) -> None:
    """Let the next rules review have these rules."""
    status = {"resourceRules": list(rules), "nonResourceRules": [], "incomplete": incomplete}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "status": status}
    sandbox.inject(Fault("POST", RULES_REVIEWS, kind="answer", status=201, body=json.dumps(review).encode()))


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        ([], set()),
        ([rule("core", "secrets", "get list")], {SECRETS}),
        ([rule("core", "secrets", "get watch")], set()),
        ([rule("core", "secrets configmaps", "list", resourceNames=["x"])], set()),
        ([rule("core", "secrets/status", "list"), rule("apps", "secrets", "list")], set()),
        ([rule("*", "rolebindings", "*")], {ROLE_BINDINGS}),
        ([rule("core", "*", "list", resourceNames=[])], {CONFIGMAPS, SECRETS}),
        ([{"verbs": ["*"]}, rule("*", "*", "*")], set(ALL)),
    ],
)
def test_one_review_tells_which_resources_can_be_listed(
    sandbox: Sandbox, cluster: Cluster, rules: list[dict[str, Any]], found: set[Resource]
) -> None:
    report(sandbox, *rules)

    assert can_list(cluster) == found
    assert len(sandbox.requests) == 1


def test_no_resource_needs_no_review(sandbox: Sandbox, cluster: Cluster) -> None:
    sandbox.requests.clear()

    assert (cluster.can_in_all_namespaces(()), sandbox.requests) == (set(), [])


def test_what_an_incomplete_review_does_not_name_is_reviewed_alone(sandbox: Sandbox, cluster: Cluster) -> None:
    report(sandbox, rule("core", "secrets", "list"), incomplete=True)
    sandbox.inject(Fault("POST", ACCESS_REVIEWS, status=403, message=DENIED))

    assert len(can_list(cluster)) == 2
    assert len(sandbox.requests) == 3


@pytest.mark.parametrize(("status", "error"), [(403, None), (401, ApiError), (409, ApiError)])
def test_a_rules_review_that_is_not_allowed_is_incomplete_and_one_that_fails_is_an_error(
    sandbox: Sandbox, cluster: Cluster, status: int, error: type[ApiError] | None
) -> None:
    sandbox.inject(Fault("POST", RULES_REVIEWS, status=status, message=DENIED))

    with pytest.raises(error) if error else nullcontext():
        assert can_list(cluster) == set(ALL)


@pytest.mark.parametrize("created", [0, 1, 30])
def test_the_objects_of_a_kind_are_counted_with_one_small_request(
    sandbox: Sandbox, cluster: Cluster, created: int
) -> None:
    there = cluster.count(CONFIGMAPS)
    for number in range(created):
        create(cluster, "default", f"x-{number}", size=1000)
    sandbox.requests.clear()
    before = cluster.transport.traffic.bytes_received

    assert cluster.count(CONFIGMAPS) == created + (there or 0)

    assert [each.query for each in sandbox.requests] == [{"limit": "1"}]
    assert cluster.transport.traffic.bytes_received - before < 2000


def test_a_count_that_the_server_does_not_report_is_not_taken_for_a_small_one() -> None:
    page = {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "items": [{"metadata": {"name": "x"}}]}

    class Fixed(Transport):
        def __init__(self, **metadata: object) -> None:
            self.body = json.dumps({**page, "metadata": {"resourceVersion": "1", **metadata}}).encode()

        def send(self, request: Request) -> Response:
            return Response(request, 200, self.body)

    def count(**metadata: object) -> int | None:
        return Cluster(Fixed(**metadata), "test").count(CONFIGMAPS)

    assert count() == 1
    assert count(**{"continue": "x", "remainingItemCount": 4}) == 5
    assert count(**{"continue": "x"}) is None
    for wrong in ("x", -1, None, 1.5, [4]):
        assert count(**{"continue": "x", "remainingItemCount": wrong}) is None, wrong
