"""The API server goes back in time: its data are restored from a backup of a moment before a run, during or after it.

What the run has written is lost, and what it has read may never have been. `make test` tries a fifth of the requests.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from kubesandbox import Fault, Sandbox
from tests.api.conftest import Ran, runs
from tests.api.test_older_crds import without
from tests.apis import Api, sandbox_api
from tests.fault_world import Built, Object, World, differing, served
from tests.sandbox.test_every_fault import deleted, every_world
from tests.sweeps import sampled
from tests.worlds import configmap, namespace_object, rule

pytestmark = pytest.mark.usefixtures("quick")
RUNS = 3
COPIES = [(each, "settings") for each in ("team-a", "team-b")]


def restore(built: Built, cluster: World) -> None:
    cluster.sandbox.cluster.store.restore(built.template.cluster.store)


def wrong_afterwards(built: Built, cluster: World, undisturbed: World) -> Iterator[object]:
    for _ in range(RUNS):
        cluster.run()
    if not built.world.reads_again:  # its steps depend on controllers, which work on a real server
        yield from differing(built.world.state(cluster), built.world.state(undisturbed))
    yield from differing(built.world.untouched(cluster), built.world.untouched(undisturbed))
    yield from deleted(cluster.requests()) - deleted(undisturbed.requests())


@every_world
def test_the_next_runs_complete_what_a_restore_undid(built: Built) -> None:
    wrong: dict[str, object] = {}

    with built.serve() as undisturbed:
        for _ in range(1 + RUNS):
            undisturbed.run()
        for number in sampled(built.to_disturb()):
            with built.serve() as cluster:
                cluster.sandbox.inject(Fault(kind="call-before", call=partial(restore, built, cluster), skip=number))
                ran = cluster.run()
                cluster.sandbox.clear_faults()
                found: list[object] = [] if ran.exit_code in (0, 1, 2, built.world.exit_code) else [ran]
                found += wrong_afterwards(built, cluster, undisturbed)
            if found:
                wrong[built.name(number)] = found

    assert wrong == {}


@every_world
def test_the_next_runs_do_again_what_a_restore_undid_after_a_run(built: Built) -> None:
    with built.serve() as undisturbed, built.serve() as cluster:
        for _ in range(1 + RUNS):
            undisturbed.run()
        cluster.run()
        restore(built, cluster)
        cluster.run()

        assert [*wrong_afterwards(built, cluster, undisturbed)] == []


def sync(api: Api) -> Ran:
    return runs("sync-copies", api.kubeconfig)("-n", "kube-chores")


def change_rule(api: Api) -> Object:
    return api.patch(rule("settings", "", ""), {"spec": {"targets": {"exclude": ["team-b"]}}})


def status_writes(api: Api) -> list[int]:
    """Return the codes of the responses since `mark()`."""
    return [each.status for each in api.writes() if each.path.endswith("/status")]


@pytest.mark.parametrize("change", [sync, change_rule], ids=["status", "generation"])
def test_a_status_is_not_written_to_another_version_that_a_restore_brings_back(
    sandbox: Sandbox, tmp_path: Path, change: Callable[[Api], object]
) -> None:
    """The run has read another status or generation than the restored rule has; its copies are gone, too."""
    api, store = sandbox_api(sandbox, tmp_path), sandbox.cluster.store
    for name in ("home", "team-a"):
        api.create(namespace_object(name))
    api.create(configmap("home"))
    made = api.create(rule("settings", "home", "team-*"))
    backup = store.copy()
    change(api)
    api.create(configmap("home", "theme"))
    sandbox.inject(Fault("PATCH", "*/status", kind="call-before", call=partial(store.restore, backup)))
    api.mark()

    sync(api)

    assert status_writes(api) == [409]
    assert api.read(made) == made
    assert sync(api).exit_code == 0
    assert status_writes(api) == [409, 200]
    status = api.read(made)["status"]
    assert (status["observedGeneration"], status["copies"]) == (1, 1)


def test_a_crd_that_drops_a_field_during_a_run_changes_no_copy_into_another(sandbox: Sandbox, tmp_path: Path) -> None:
    api = sandbox_api(sandbox, tmp_path)
    for name in ("home", "team-a", "team-b"):
        api.create(namespace_object(name))
    api.create(configmap("home"))
    api.create(rule("settings", "home", "team-*", keys={"include": ["a"]}))
    sync(api)
    api.patch(configmap("home"), {"data": {"a": "new"}})
    with served(sandbox, "sync-copies") as undisturbed:
        assert undisturbed.run().summary == {"configured": 2}
        trace = undisturbed.requests()
    wrong: dict[str, object] = {}

    for number in range(len(trace)):
        with served(sandbox, "sync-copies") as cluster:
            replace = partial(without, sandbox_api(cluster.sandbox, tmp_path), "copyrators", "keys")
            cluster.sandbox.inject(Fault(kind="call-before", call=replace, skip=number))
            codes = [cluster.run().exit_code, cluster.run().exit_code]
            copies = [each for key, each in cluster.stored("configmaps").items() if key[1:] in COPIES]
        if codes not in ([0, 2], [2, 2]) or [each for each in copies if each["data"].keys() != {"a"}]:
            wrong[f"{number} {trace[number].path}"] = codes, copies

    assert wrong == {}
