"""A run that dies by SIGKILL at any of its requests: the next one ends where an undisturbed one does."""

from __future__ import annotations

import pytest

from jobs.kit import transport
from kubesandbox import Request, Sandbox
from tests.sandbox.small_world import FOREIGN, Key, Object, World, differing, served, trace

pytestmark = [pytest.mark.usefixtures("quick"), pytest.mark.sweep]


@pytest.mark.parametrize(("in_flight", "every"), [(1, 1), (transport.IN_FLIGHT, 4)])
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_next_run_finishes_what_a_killed_one_began(
    small_world: Sandbox,
    undisturbed: dict[Key, Object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    when: str,
    in_flight: int,
    every: int,
) -> None:
    monkeypatch.setattr(transport, "IN_FLIGHT", in_flight)
    sent = trace(small_world)
    wrong: dict[str, object] = {}
    cases = 0

    for number in range(0, len(sent), every):
        with served(small_world) as world:
            before = world.objects()
            assert world.run_killed(number, when)
            cases += 1
            found = [*_wrong(world, undisturbed), *(key for key in FOREIGN if world.objects()[key] != before[key])]
        if found:
            wrong[f"killed {when} request {number}, {sent[number].method} {sent[number].path}"] = found

    with capsys.disabled():
        print(f"\n{cases} runs killed {when} a request, {in_flight} in flight")  # noqa: T201 - seen without -s
    assert wrong == {}
    assert cases == -(-len(sent) // every)
    assert len(sent) > 20


def _wrong(world: World, undisturbed: dict[Key, Object]) -> list[object]:
    """What is not as it should be after the run that follows, and after one more."""
    ran = world.run()
    end = world.end()
    writes = len(world.writes())
    again = world.run()
    return [
        *(each for each in (ran, again) if each.exit_code),
        *differing(end, undisturbed),
        *world.writes()[writes:],
    ]


def test_the_small_world_takes_every_kind_of_request(small_world: Sandbox) -> None:
    kinds = {_kind(request) for request in trace(small_world)}

    assert kinds >= {
        "GET page 1",
        "GET page 2",
        "GET one",
        "POST configmaps",
        "POST secrets",
        "POST secrets dry run",
        "PUT configmaps",
        "PUT secrets",
        "DELETE configmaps",
        "DELETE secrets",
        "PATCH status",
        "POST events",
    }


def _kind(request: Request) -> str:
    if request.method == "GET":
        return "GET page " + ("2" if "continue" in request.query else "1") if "limit" in request.query else "GET one"
    parts = request.path.split("/")
    what = parts[-1] if request.method in ("POST", "PATCH") else parts[-2]
    return f"{request.method} {what}" + " dry run" * ("dryRun" in request.query)
