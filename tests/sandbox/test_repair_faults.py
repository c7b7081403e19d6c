"""mirror-audit --repair that is killed, disturbed or runs twice at once: the next run ends where one ends."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.kit import cluster, transport
from kubesandbox import Fault, Request, Sandbox
from tests.apis import sandbox_api
from tests.manifests import ROOT, load
from tests.mirrors import Mirrors, credentials, registry_mirror
from tests.sandbox.small_world import PAGE, Key, Object, World, differing, forked, served
from tests.sandbox.test_every_fault import ONCE

pytestmark = pytest.mark.sweep
JOB = "mirror-audit"
ENV = {"CHORES_REPAIR": "1", "CHORES_ALLOW_CACHE_LOSS": "1"}
FOREIGN = ("services", "kube-chores-mirrors", "registry-mirror-taken")


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Small pages, one request after the other, and no pauses before a retry: from the first run of this module on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "PAGE_SIZE", PAGE)
        patch.setattr(transport, "IN_FLIGHT", 1)
        patch.setattr(transport, "LONGEST_PAUSE_SECONDS", 0.0)
        yield


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A world with mirrors that drifted, lack something, are new, too large, gone, or find something in their way."""
    folder: Path = tmp_path_factory.mktemp("world")
    with Sandbox() as sandbox:
        api = sandbox_api(sandbox, folder)
        for obj in [*load(ROOT / "cronjobs"), *load(ROOT / "cronjobs" / "mirror-repair")]:
            api.put(obj)
        mirrors = Mirrors(api)
        mirrors.node()
        api.create(credentials("login", "quay.io"))
        asked = {
            "hub": ("docker.io", {}),
            "quay": ("quay.io", {"credentialsSecret": "login"}),
            "large": ("example.com", {}),
            "gone": ("gcr.io", {}),
        }
        made = {
            name: mirrors.make(api.create(registry_mirror(name, upstream, **spec)))
            for name, (upstream, spec) in asked.items()
        }
        api.delete(registry_mirror("gone"))
        World(sandbox, JOB, ENV).run()
        mirrors.settle(made["gone"])
        mirrors.edit(made["hub"].stateful_set.document(), {"spec": {"replicas": 0}})
        mirrors.edit(made["hub"].daemon_set.document(), {"metadata": {"labels": {"app.kubernetes.io/name": None}}})
        api.delete(made["quay"].headless_service.document())
        mirrors.edit(registry_mirror("large"), {"spec": {"storage": {"size": "10Gi"}}})
        api.create(registry_mirror("new", "ghcr.io"))
        theirs = {"name": FOREIGN[2], "namespace": FOREIGN[1]}
        api.create({"apiVersion": "v1", "kind": "Service", "metadata": theirs, "spec": {"ports": [{"port": 80}]}})
        api.create(registry_mirror("taken", "registry.example.com"))
        yield Sandbox(of=sandbox)


def end(world: World) -> dict[Key, Object]:
    """What there is, but for what a second making changes, and what the mirrors say."""
    found: dict[Key, Object] = {}
    for plural, group in (
        ("services", ""),
        ("persistentvolumeclaims", ""),
        ("statefulsets", "apps"),
        ("daemonsets", "apps"),
    ):
        found |= {key: _without_identity(obj) for key, obj in world.stored(plural, group).items()}
    mirrors = world.stored("registrymirrors", "kubechores.dev")
    return found | world.stored("secrets") | {key: _told(obj) for key, obj in mirrors.items()}


def _without_identity(obj: Object) -> Object:
    metadata = {name: obj["metadata"].get(name) for name in ("labels", "annotations")}
    addresses = ("clusterIP", "clusterIPs")
    return {"metadata": metadata, "spec": {name: obj["spec"][name] for name in obj["spec"] if name not in addresses}}


def _told(mirror: Object) -> Object:
    status = mirror.get("status", {})
    return {**status, "conditions": [{**each, "lastTransitionTime": ""} for each in status.get("conditions", [])]}


@pytest.fixture(scope="module")
def trace(before: Sandbox) -> list[Request]:
    """The requests of a run that nothing disturbs."""
    with served(before, JOB, ENV) as world:
        world.run()
        return world.requests()


@pytest.fixture(scope="module")
def undisturbed(before: Sandbox) -> dict[Key, Object]:
    """How the world is after a run that nothing disturbs."""
    with served(before, JOB, ENV) as world:
        ran = world.run()
        written = {"created": 8, "serverside-applied": 2, "deleted": 7}
        assert ran.exit_code == 0
        assert {name: ran.summary.get(name) for name in written} == written, ran.summary
        return end(world)


def points(trace: list[Request]) -> list[int]:
    """The numbers of all writes, and of the first of each read: later looks read the same again."""
    reads: set[tuple[str, bool]] = set()
    found = []
    for number, each in enumerate(trace):
        read = (each.path, "continue" in each.query)
        if each.method != "GET" or read not in reads:
            found.append(number)
        reads.add(read)
    return found


def _wrong(world: World, undisturbed: dict[Key, Object]) -> list[object]:
    """What is not as it should be after the run that follows, and after one more."""
    foreign = world.stored("services")[FOREIGN]
    ran = world.run()
    found = [*([ran] if ran.exit_code else []), *differing(end(world), undisturbed)]
    writes = len(world.writes())
    again = world.run()
    found += [*([again] if again.exit_code else []), *(each.path for each in world.writes()[writes:])]
    return found if world.stored("services")[FOREIGN] == foreign else [*found, "touched what is not ours"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_next_run_finishes_what_a_killed_one_began(
    before: Sandbox,
    trace: list[Request],
    undisturbed: dict[Key, Object],
    capsys: pytest.CaptureFixture[str],
    when: str,
) -> None:
    wrong: dict[str, object] = {}
    # After a read is before what comes next.
    hit = [number for number, each in enumerate(trace) if when == "before" or each.method != "GET"]
    for number in hit:
        with served(before, JOB, ENV) as world:
            assert world.run_killed(number, when)
            found = _wrong(world, undisturbed)
        if found:
            wrong[f"killed {when} request {number}, {trace[number].method} {trace[number].path}"] = found

    with capsys.disabled():
        print(f"\n{len(hit)} repairs killed {when} a request")  # noqa: T201 - seen without -s
    assert wrong == {}
    assert len(hit) > (40 if when == "before" else 15)


@pytest.mark.parametrize("fault", [name for name in ONCE if name != "late"])
def test_a_run_or_the_next_makes_good_for_a_fault_at_any_request(
    before: Sandbox,
    trace: list[Request],
    undisturbed: dict[Key, Object],
    capsys: pytest.CaptureFixture[str],
    fault: str,
) -> None:
    wrong: dict[str, object] = {}
    codes: Counter[int] = Counter()
    numbers = [n for n in points(trace) if fault != "410 in a list" or "continue" in trace[n].query]
    for number in numbers:
        with served(before, JOB, ENV) as world:
            world.sandbox.inject(Fault(skip=number, **ONCE[fault]))
            code = world.run().exit_code
            world.sandbox.clear_faults()
            codes[int(code)] += 1
            # 401 is the one that no retry helps; a later look may.
            found: list[object] = [] if code in ((0, 2) if fault == "401" else (0,)) else [f"exit {code}"]
            found += _wrong(world, undisturbed)
        if found:
            wrong[f"{number} {trace[number].method} {trace[number].path}"] = found

    with capsys.disabled():
        print(f"\n{len(numbers)} repairs with {fault}: exit codes {dict(codes)}")  # noqa: T201
    assert wrong == {}
    assert numbers


def test_runs_that_overlap_anywhere_end_where_one_ends(
    before: Sandbox, trace: list[Request], undisturbed: dict[Key, Object]
) -> None:
    wrong: dict[str, object] = {}
    for number in points(trace):
        request = trace[number]
        with served(before, JOB, ENV) as world:
            world.sandbox.inject(Fault(kind="call-before", call=lambda world=world: _another(world), skip=number))  # type: ignore[misc]
            ran = world.run()
            found: list[object] = [ran] if ran.exit_code else []
            found += _wrong(world, undisturbed)
        if found:
            wrong[f"a whole run before request {number}, {request.method} {request.path}"] = found
    assert wrong == {}


def _another(world: World) -> None:
    """Run the job in a process of its own, from beginning to end."""
    os.waitpid(forked(world.run), 0)


def test_the_world_takes_every_kind_of_write(trace: list[Request]) -> None:
    kinds = {(each.method, each.path.split("/")[-2]) for each in trace}

    assert kinds >= {
        ("PATCH", "services"),
        ("PATCH", "persistentvolumeclaims"),
        ("PATCH", "statefulsets"),
        ("PATCH", "daemonsets"),
        ("DELETE", "services"),
        ("DELETE", "persistentvolumeclaims"),
        ("DELETE", "statefulsets"),
        ("DELETE", "daemonsets"),
    }
