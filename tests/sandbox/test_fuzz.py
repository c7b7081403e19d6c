"""One hostile object among good ones: it stops no job, and a job that cannot use it names it.

`FUZZ_EXAMPLES=2000 pytest tests/sandbox/test_fuzz.py` tries more than the suite does.
"""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from jobs.kit.values.model import ExitCode
from tests.every_job import fault_worlds
from tests.fault_world import Built, State, World
from tests.hostile import (
    NAME,
    SLOTS,
    Drawn,
    Slot,
    fixed_fields,
    hostile,
    is_processed,
    malformed,
    place,
    serve_instead,
    stored_in,
    worst,
)
from tests.processes import run_in_512_mib

# Without worlds whose requests are in two sweeps: the hostile objects of all kinds are tried in the other world.
WORLDS = [
    name for name, world in fault_worlds().items() if world.job in SLOTS and (name in SLOTS or not world.disturbs)
]
DOCUMENTED = {each.value for each in ExitCode if each is not ExitCode.STOPPED}


def tried(built: Built, check: Callable[[World, Slot, st.DataObject], None]) -> None:
    """Check hostile objects in a world, each in a fresh copy of it: three for each slot, at least 40."""
    slots = SLOTS[built.world.job]()

    @settings(
        max_examples=int(os.environ.get("FUZZ_EXAMPLES", max(40, 3 * len(slots)))),
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.explicit, Phase.generate],  # an example has one hostile object, and shrinking it takes minutes
        suppress_health_check=list(HealthCheck),
    )
    @given(slot=st.sampled_from(slots), data=st.data())
    def example(slot: Slot, data: st.DataObject) -> None:
        with built.serve() as world:
            check(world, slot, data)

    example()


@pytest.fixture(autouse=True)
def _recursion_as_in_a_pod() -> Iterator[None]:
    """The embedded cluster's CEL library raises the limit for the whole process."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(limit)


def check_run(built: Built, world: World, slot: Slot, drawn: Drawn, untouched: State, before: State) -> None:
    """Check that a run ends as documented, with the same good objects as without the hostile one."""
    ran = world.run()
    assert ran.exit_code in DOCUMENTED, ran
    end = built.world.state(world)
    assert {key: end.get(key) for key in built.end} == built.end, ran
    after = built.world.untouched(world)
    assert {key: after.get(key) for key in untouched} == untouched, ran
    assert slot.managed or fixed_fields(world, slot) == before, ran
    assert not slot.reported or drawn.opts_out or NAME in ran.stdout + ran.stderr, ran
    assert not slot.result or drawn.opts_out or is_processed(world, slot) or NAME in ran.stdout + ran.stderr, ran


@pytest.mark.parametrize("built", WORLDS, indirect=True)
def test_an_object_that_the_api_server_accepts_stops_no_job(built: Built) -> None:
    def check(world: World, slot: Slot, data: st.DataObject) -> None:
        untouched = built.world.untouched(world)
        drawn = data.draw(hostile(slot.obj))
        place(world, slot, drawn.obj)
        check_run(built, world, slot, drawn, untouched, fixed_fields(world, slot))

    tried(built, check)


@pytest.mark.parametrize("built", WORLDS, indirect=True)
def test_an_object_that_no_api_server_serves_stops_no_job(built: Built) -> None:
    def check(world: World, slot: Slot, data: st.DataObject) -> None:
        untouched = built.world.untouched(world)
        place(world, slot, slot.obj)
        before = fixed_fields(world, slot)
        drawn = data.draw(malformed(stored_in(world, slot).obj))
        serve_instead(world, slot, drawn.obj)
        check_run(built, world, slot, drawn, untouched, before)

    tried(built, check)


@pytest.mark.parametrize("built", WORLDS, indirect=True)
def test_the_largest_and_deepest_objects_take_little_memory(built: Built, tmp_path: Path) -> None:
    with built.serve() as world:
        for slot in SLOTS[world.job]():
            place(world, slot, worst(slot.obj))
        kubeconfig = world.sandbox.kubeconfig(tmp_path / "kubeconfig", namespace="kube-chores")

        done = run_in_512_mib(world.job, env={**world.env, "KUBECONFIG": str(kubeconfig)})

        assert done.returncode in DOCUMENTED, done.stderr
        assert "Traceback" not in done.stderr
        assert NAME in done.stdout
