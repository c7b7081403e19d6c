"""Each job in each of its worlds, with a kill, a fault, a delay or a second run at each of its requests.

`make test` tries a fifth of the requests, and CI all of them: tests/sweeps.py.
"""

import json
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import pytest

from jobs.kit.api import transport
from kubesandbox import Fault, Request
from tests.every_job import fault_worlds
from tests.fault_world import Built, Key, State, World, differing, resource_of
from tests.sandbox.conftest import Limit
from tests.sweeps import sampled

WORLDS = fault_worlds()
every_world = pytest.mark.parametrize("built", WORLDS, indirect=True, scope="module")
INDEPENDENT = [name for name, world in WORLDS.items() if world.independent_writes and world.writes]
worlds_of_independent_writes = pytest.mark.parametrize("built", INDEPENDENT, indirect=True, scope="module")

MANY = transport.IN_FLIGHT  # its value before these tests set it to 1
TIME_LIMIT = 0.06  # the timeout of a request; the answer comes later
GIVE_UP = 30.0

# Faults by name. Of several, each request has one, in turn: a run repeats a request after each of these statuses.
ONCE: dict[str, Sequence[dict[str, Any]]] = {
    "429, 500 or 503": ({"status": 429, "retry_after": 0}, {"status": 500}, {"status": 503}),
    "reset before": ({"kind": "reset-before"},),
    "reset after": ({"kind": "reset-after"},),
    "truncated": ({"kind": "truncate"},),
    "410 in a list": ({"status": 410},),
    "401": ({"status": 401},),
}
# Answers of a proxy, or of the API server of another cluster.
FOREIGN: list[tuple[int, bytes]] = [
    (200, b'{"error": "access denied"}'),
    (200, b'{"metadata": {}, "items": []}'),
    (200, b'{"apiVersion": "v1", "kind": "PodTemplateList", "metadata": {}, "items": []}'),
    (200, b"<html>log in first</html>"),
    (404, b"404 page not found"),
]
LASTING: dict[str, dict[str, Any]] = {"500": {"status": 500}, "403": {"status": 403}, "reset": {"kind": "reset-before"}}


def wrong_afterwards(built: Built, cluster: World, untouched: State) -> list[object]:
    """Return what is wrong after the next run, and after one more, which has nothing to write."""
    before = len(cluster.writes())
    ran = cluster.run()
    found = [*differing(built.world.end(cluster), built.end)]
    writes = len(cluster.writes())
    # After a run without writes, the cluster is the same, and so would be the next run.
    again = cluster.run() if writes > before else ran
    return [
        *(each for each in (ran, again) if each.exit_code != built.world.exit_code),
        *found,
        *(f"again {each.method} {each.path}" for each in cluster.writes()[writes:]),
        *(f"{path} was deleted" for path in sorted(deleted(cluster.requests()) - deleted(built.trace))),
        *differing(built.world.untouched(cluster), untouched),
    ]


def deleted(requests: Sequence[Request]) -> set[str]:
    """Return the paths of the objects that these requests delete, or may have deleted."""
    return {each.path for each in requests if each.method == "DELETE"}


def sweep(built: Built, numbers: Sequence[int], disturb: Callable[[World, int], list[object]]) -> dict[str, object]:
    """Inject a fault at each of these requests; return what was wrong, by request."""
    wrong: dict[str, object] = {}
    for number in numbers:
        with built.serve() as cluster:
            untouched = built.world.untouched(cluster)
            found = disturb(cluster, number) + wrong_afterwards(built, cluster, untouched)
        if found:
            wrong[built.name(number)] = found
    return wrong


def report(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with capsys.disabled():
        print(f"\n{text}")  # noqa: T201 - visible without -s


def kill(when: str, cluster: World, number: int) -> list[object]:
    return [] if cluster.run_killed(number, when) else ["it ended by itself"]


@every_world
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_next_run_completes_the_writes_of_a_killed_run(
    built: Built, capsys: pytest.CaptureFixture[str], when: str
) -> None:
    numbers = sampled(built.writes())
    wrong = sweep(built, numbers, partial(kill, when))

    report(capsys, f"{len(numbers)} runs of {built.world} killed {when} a write")
    assert wrong == {}


@every_world
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_next_run_completes_the_writes_of_a_run_killed_with_many_requests_in_flight(
    built: Built, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(transport, "IN_FLIGHT", MANY)

    assert sweep(built, sampled(built.writes()[::2]), partial(kill, when)) == {}


@every_world
@pytest.mark.parametrize("fault", ONCE)
def test_a_run_or_the_next_recovers_from_a_fault_at_any_request(
    built: Built, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    numbers = sampled([n for n in built.to_disturb() if fault != "410 in a list" or "continue" in built.trace[n].query])
    expected = built.world.codes_after_401 if fault == "401" else {built.world.exit_code}
    codes: Counter[int] = Counter()

    def disturb(cluster: World, number: int) -> list[object]:
        faults = ONCE[fault]
        cluster.sandbox.inject(Fault(skip=number, **faults[number % len(faults)]))
        code = cluster.run().exit_code
        cluster.sandbox.clear_faults()
        codes[int(code)] += 1
        if fault == "401" or code not in expected:
            return [] if code in expected else [f"exit {code}"]
        return [*differing(built.world.end(cluster), built.end)]

    wrong = sweep(built, numbers, disturb)

    report(capsys, f"{len(numbers)} runs of {built.world} with {fault}: exit codes {dict(codes)}")
    assert wrong == {}


@every_world
def test_a_run_or_the_next_recovers_from_a_write_that_is_handled_after_its_timeout(
    built: Built, limit: Limit, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = sampled(built.writes())
    codes: Counter[int] = Counter()

    def disturb(cluster: World, number: int) -> list[object]:
        """Handle a request after the end of the run. On a busy machine, other requests may be late too."""
        release, handled = threading.Event(), threading.Event()
        cluster.sandbox.inject(Fault(kind="call-before", skip=number, call=lambda: release.wait(GIVE_UP)))
        cluster.sandbox.inject(Fault(kind="call-after", skip=number, call=handled.set))
        limit(request_seconds=TIME_LIMIT)
        code = cluster.run().exit_code
        limit(request_seconds=GIVE_UP)
        release.set()
        assert handled.wait(GIVE_UP)
        codes[int(code)] += 1
        if code == built.world.exit_code:
            return [*differing(built.world.end(cluster), built.end)]
        return [] if code == 1 else [f"exit {code}"]

    wrong = sweep(built, numbers, disturb)

    report(capsys, f"{len(numbers)} runs of {built.world} with a late write: exit codes {dict(codes)}")
    assert wrong == {}


@every_world
def test_overlapping_runs_have_the_same_result_as_one_run(built: Built) -> None:
    def disturb(cluster: World, number: int) -> list[object]:
        with cluster.run_elsewhere() as run:
            cluster.sandbox.inject(Fault(kind="call-before", call=run, skip=number))
            ran = cluster.run()
        return [] if ran.exit_code == built.world.exit_code else [ran]

    assert sweep(built, sampled(built.to_disturb()), disturb) == {}


@worlds_of_independent_writes
@pytest.mark.parametrize("fault", LASTING)
def test_a_write_that_always_fails_stops_no_other_and_is_reported_once(built: Built, limit: Limit, fault: str) -> None:
    limit(retry_seconds=0)
    wrong: dict[str, object] = {}

    writes = sorted({(each.method, each.path) for each in built.trace if writes_state(built, each)})
    for method, path in sampled(writes):
        with built.serve() as cluster:
            untouched = built.world.untouched(cluster)
            cluster.sandbox.inject(Fault(method, path, times=None, **LASTING[fault]))
            found = _while_it_lasts(built, cluster, method, path)
            cluster.sandbox.clear_faults()
            found += wrong_afterwards(built, cluster, untouched)
        if found:
            wrong[f"{method} {path}"] = found

    assert wrong == {}
    assert writes


def writes_state(built: Built, request: Request) -> bool:
    """Whether the request writes an object, and not a status, an Event or a review."""
    is_state = resource_of(request) in {plural for plural, _, _ in built.end}
    return request.method != "GET" and is_state and built.is_disturbed(request)


def _while_it_lasts(built: Built, cluster: World, method: str, path: str) -> list[object]:
    """Return what is wrong while writes to `path` fail: other writes missing, the exit code, or repeated reports."""
    first = cluster.run()
    statuses = {plural for plural, _, _ in built.end if f"patch {plural}/status" in built.world.sent}
    undone = [key for key in differing(built.world.state(cluster), built.end) if key[0] not in statuses]
    reported = len(cluster.writes())
    second = cluster.run()
    again = [each.path for each in cluster.writes()[reported:] if not writes_state(built, each)]
    return [
        *(ran for ran in (first, second) if ran.exit_code != 1),
        *(key for key in undone if not _is_written(key, method, path)),
        *(f"again {path}" for path in again),
        *([] if undone else ["nothing was undone"]),
    ]


def wrong_with(built: Built, fault: Fault, exit_codes: Collection[int]) -> list[object]:
    """Return what is wrong with a run with this fault of a list, which must delete nothing, and with the next runs."""
    with built.serve() as cluster:
        untouched, before = built.world.untouched(cluster), built.world.state(cluster)
        cluster.sandbox.inject(fault)
        ran = cluster.run()
        cluster.sandbox.clear_faults()
        deleted = before.keys() - built.world.state(cluster).keys()
        return [
            *([] if ran.exit_code in exit_codes else [ran]),
            # A repair reads everything again after a step that deleted, and reads the lists of kinds one by one.
            *(key for key in deleted if not (built.world.reads_again and is_deleted(built, key))),
            *wrong_afterwards(built, cluster, untouched),
        ]


def is_replaced(built: Built, listed: Request) -> bool:
    """Whether a run reads the objects of this list one by one if it fails."""
    return listed.accept == "application/json" and resource_of(listed) in built.world.read_singly


@every_world
@pytest.mark.parametrize("status", [410, 500])
def test_a_list_that_fails_half_way_never_leads_to_a_deletion(built: Built, limit: Limit, status: int) -> None:
    limit(retry_seconds=0)
    wrong: dict[str, object] = {}
    lists = [number for number in built.to_disturb() if "limit" in built.trace[number].query]

    for number in sampled(lists):
        path = built.trace[number].path
        earlier = [(each.method, each.path) for each in built.trace[:number]].count(("GET", path))
        code = built.world.exit_code if is_replaced(built, built.trace[number]) else 1
        if found := wrong_with(built, Fault("GET", path, status=status, skip=earlier, times=None), {code}):
            wrong[built.name(number)] = found

    assert wrong == {}
    assert lists


@every_world
def test_an_answer_of_another_server_is_an_error_and_the_next_run_recovers(
    built: Built, capsys: pytest.CaptureFixture[str]
) -> None:
    codes: Counter[int] = Counter()

    def disturb(cluster: World, number: int) -> list[object]:
        status, body = FOREIGN[number % len(FOREIGN)]
        before = built.world.state(cluster)
        cluster.sandbox.inject(Fault(kind="answer", status=status, body=body, skip=number))
        code = cluster.run().exit_code
        cluster.sandbox.clear_faults()
        codes[int(code)] += 1
        deleted = before.keys() - built.world.state(cluster).keys()
        found: list[object] = [f"{key} was deleted" for key in deleted if not is_deleted(built, key)]
        return found if code in (built.world.exit_code, 1, 2) else [*found, f"exit {code}"]

    numbers = sampled(built.to_disturb())
    wrong = sweep(built, numbers, disturb)

    report(capsys, f"{len(numbers)} runs of {built.world} with another answer: exit codes {dict(codes)}")
    assert wrong == {}


def _almost_right(built: Built, listed: Request) -> list[tuple[int, bytes]]:
    """Return changed answers, as of a faulty proxy: an empty list without a version, objects of another namespace."""
    with built.serve() as cluster:
        url = f"{cluster.sandbox.url}{listed.path}"
        headers = {"Authorization": f"Bearer {cluster.sandbox.admin_token}", "Accept": listed.accept}
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            right = json.load(answer)
    empty = {**right, "metadata": {}, "items": []}
    moved = json.loads(json.dumps(right))
    for each in moved["items"] or []:
        each["metadata"]["namespace"] = "elsewhere"
    others = [moved] if "/namespaces/" in listed.path and moved["items"] else []
    return [(200, json.dumps(each).encode()) for each in (empty, *others)]


@every_world
def test_a_list_of_another_server_deletes_nothing(built: Built) -> None:
    wrong: dict[str, object] = {}
    lists = {each.path: each for each in built.trace if built.is_disturbed(each) and "limit" in each.query}

    answers = [
        (each, *answer)
        for number, each in enumerate(lists.values())
        for answer in (FOREIGN[number % len(FOREIGN)], *_almost_right(built, each))
    ]

    for listed, status, body in sampled(answers):
        may_succeed = is_replaced(built, listed) or resource_of(listed) in built.world.optional
        codes = {1, 2, built.world.exit_code} if may_succeed else {1, 2}
        fault = Fault("GET", listed.path, kind="answer", status=status, body=body, times=None)
        if found := wrong_with(built, fault, codes):
            wrong[f"{listed.path} {body!r}"] = found

    assert wrong == {}
    assert lists


@every_world
def test_each_world_has_all_kinds_of_requests_and_lists_of_several_pages(built: Built) -> None:
    assert {kind(each) for each in built.trace} == built.world.sent
    assert [each for each in built.trace if "continue" in each.query]


def _is_written(key: Key, method: str, path: str) -> bool:
    """Whether a write to this path may be of this object; the path of a create does not contain its name."""
    plural, namespace, name = key
    collection = f"/namespaces/{namespace}/{plural}"
    return path.endswith(collection if method == "POST" else f"{collection}/{name}")


def is_deleted(built: Built, key: Key) -> bool:
    """Whether a run without faults deletes this object, also if it recreates it."""
    plural, namespace, name = key
    path = f"/namespaces/{namespace}/{plural}/{name}"
    return any(each.method == "DELETE" and each.path.endswith(path) for each in built.trace)


VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def kind(request: Request) -> str:
    """The verb and the resource of a request, as in RBAC rules."""
    verb = VERBS.get(request.method) or ("list" if "limit" in request.query else "get")
    return f"{verb} {resource_of(request)}" + " (dry run)" * ("dryRun" in request.query)
