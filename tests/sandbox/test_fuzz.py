"""One hostile object among good ones: it stops no job, and a job that cannot use it names it.

`make test` tries a fifth of the examples, and CI all of them: tests/sweeps.py.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, event, given
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
from tests.sweeps import examples

# Without worlds whose requests are in two sweeps: the hostile objects of all kinds are tried in the other world.
WORLDS = [
    name for name, world in fault_worlds().items() if world.job in SLOTS and (name in SLOTS or not world.disturbs)
]
PROFILE = examples(
    phases=[Phase.explicit, Phase.generate],  # an example has one hostile object, and shrinking it takes minutes
    suppress_health_check=list(HealthCheck),
)


pytestmark = pytest.mark.usefixtures("recursion_as_in_a_pod")
DOCUMENTED = {each.value for each in ExitCode if each is not ExitCode.STOPPED}


def slots(built: Built) -> st.SearchStrategy[Slot]:
    return st.sampled_from(SLOTS[built.world.job]())


def check_run(built: Built, world: World, slot: Slot, drawn: Drawn, untouched: State, before: State) -> None:
    """Check that a run ends as documented, with the same good objects as without the hostile one."""
    *earlier, ran = [world.run() for _ in range(built.world.runs)]
    assert {each.exit_code for each in (*earlier, ran)} <= DOCUMENTED, ran
    end = built.world.state(world)
    assert {key: end.get(key) for key in built.end} == built.end, ran
    after = built.world.untouched(world)
    assert {key: after.get(key) for key in untouched} == untouched, ran
    assert slot.managed or fixed_fields(world, slot) == before, ran
    assert not slot.reported or drawn.opts_out or NAME in ran.stdout + ran.stderr, ran
    assert not slot.result or drawn.opts_out or is_processed(world, slot) or NAME in ran.stdout + ran.stderr, ran


@pytest.mark.parametrize("built", WORLDS, indirect=True)
@PROFILE
@given(data=st.data())
def test_an_object_that_the_api_server_accepts_stops_no_job(built: Built, data: st.DataObject) -> None:
    slot = data.draw(slots(built))
    event(slot.name)
    with built.serve() as world:
        untouched = built.world.untouched(world)
        drawn = data.draw(hostile(slot.obj))
        place(world, slot, drawn.obj)
        check_run(built, world, slot, drawn, untouched, fixed_fields(world, slot))


@pytest.mark.parametrize("built", WORLDS, indirect=True)
@PROFILE
@given(data=st.data())
def test_an_object_that_no_api_server_serves_stops_no_job(built: Built, data: st.DataObject) -> None:
    slot = data.draw(slots(built))
    event(slot.name)
    with built.serve() as world:
        untouched = built.world.untouched(world)
        place(world, slot, slot.obj)
        before = fixed_fields(world, slot)
        drawn = data.draw(malformed(stored_in(world, slot).obj))
        serve_instead(world, slot, drawn.obj)
        check_run(built, world, slot, drawn, untouched, before)


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
