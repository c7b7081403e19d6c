"""mirror-audit that is denied, killed, disturbed or runs twice at once: what it cannot see it never calls missing."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.kit import cluster, transport
from jobs.kit.transport import Transport
from kubesandbox import Fault, Request, Sandbox
from tests.apis import sandbox_api
from tests.manifests import ROOT, load
from tests.mirrors import NAMESPACE, Mirrors, credentials, registry_mirror
from tests.sandbox.small_world import PAGE, Key, Object, World, differing, forked, served
from tests.sandbox.test_every_fault import ONCE

pytestmark = pytest.mark.sweep
JOB = "mirror-audit"
# What audits are about and must not change.
UNTOUCHED = ("services", "persistentvolumeclaims", "secrets", "nodes")
FOUND = {"unchanged": 8, "credentials-exposed": 1, "drifted": 1, "missing": 6, "not-rolled-out": 1, "orphan": 1}


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
    """A world with a mirror that is well, one that was changed, one with a login, one that nobody made, one gone."""
    folder: Path = tmp_path_factory.mktemp("world")
    with Sandbox() as sandbox:
        api = sandbox_api(sandbox, folder)
        for obj in load(ROOT / "cronjobs"):
            api.put(obj)
        mirrors = Mirrors(api)
        mirrors.node()
        api.create(credentials("login", "quay.io"))
        for name, upstream, spec in (
            ("hub", "docker.io", {}),
            ("quay", "quay.io", {"credentialsSecret": "login"}),
        ):
            mirrors.make(api.create(registry_mirror(name, upstream, **spec)))
        mirrors.edit(mirrors.of(registry_mirror("hub")).stateful_set.document(), {"spec": {"replicas": 0}})
        api.delete(mirrors.of(registry_mirror("quay", "quay.io")).headless_service.document())
        mirrors.apply(mirrors.of(registry_mirror("gone", "gcr.io")).service.document())
        api.create(registry_mirror("new", "ghcr.io"))
        yield Sandbox(of=sandbox)


def told(world: World) -> dict[Key, Object]:
    """What the mirrors say, without the times."""
    found = world.stored("registrymirrors", "kubechores.dev")
    return {key: _told(obj.get("status", {})) for key, obj in found.items()}


def _told(status: Object) -> Object:
    conditions = [{**each, "lastTransitionTime": ""} for each in status.get("conditions", [])]
    return {**status, "conditions": conditions}


def things(world: World) -> dict[Key, Object]:
    """What no audit may change."""
    found: dict[Key, Object] = {}
    for plural in UNTOUCHED:
        found |= world.stored(plural)
    for plural in ("statefulsets", "daemonsets"):
        found |= world.stored(plural, "apps")
    return found


@pytest.fixture(scope="module")
def trace(before: Sandbox) -> list[Request]:
    """The requests of a run that nothing disturbs."""
    with served(before, JOB) as world:
        world.run()
        return world.requests()


@pytest.fixture(scope="module")
def undisturbed(before: Sandbox) -> dict[Key, Object]:
    """What the mirrors say after a run that nothing disturbs."""
    with served(before, JOB) as world:
        ran = world.run()
        assert (ran.exit_code, ran.summary) == (0, FOUND), ran
        return told(world)


def _reads(trace: list[Request]) -> list[str]:
    return sorted({each.path for each in trace if each.method == "GET"})


@pytest.mark.parametrize("status", [403, 500])
def test_what_cannot_be_read_is_never_called_missing(
    before: Sandbox, trace: list[Request], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = Transport.__init__.__kwdefaults__
    assert defaults
    monkeypatch.setitem(defaults, "retry_seconds", 0)
    with served(before, JOB) as world:
        usual = _findings(world.run("--check").results)
    paths = _reads(trace)
    assert len(paths) == 8
    for path in paths:
        with served(before, JOB) as world:
            world.sandbox.inject(Fault("GET", path, status=status, times=None))
            ran = world.run("--check")
        if path.endswith("/registrymirrors"):
            assert (ran.exit_code, ran.stdout) == (1, "")
            continue
        found = _findings(ran.results)
        assert ran.exit_code == 1, path
        assert "unreadable" in [code for code, _, _ in found], path
        # Less is known, and nothing else is said than when all could be read.
        assert {each for each in found if each[0] != "unreadable"} <= usual, path


def _findings(results: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {(each["code"], each["object"]["kind"], each["object"]["name"]) for each in results}


def test_a_login_that_cannot_be_read_says_nothing_of_other_mirrors(before: Sandbox) -> None:
    with served(before, JOB) as world:
        world.sandbox.inject(Fault("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/login", status=403, times=None))
        ran = world.run()

        assert (ran.exit_code, ran.summary) == (1, {**FOUND, "unreadable": 1})
        (unreadable,) = [each for each in ran.results if each["code"] == "unreadable"]
        assert unreadable["subjects"] == ["quay"]
        (quay,) = told(world)[("registrymirrors", "", "quay")]["conditions"]
        assert (quay["status"], quay["reason"]) == ("False", "Unreadable")


def test_a_mirror_that_cannot_be_followed_stops_no_other_and_leaves_nothing_over(
    before: Sandbox, tmp_path: Path
) -> None:
    with served(before, JOB) as world:
        api = sandbox_api(world.sandbox, tmp_path)
        (crd,) = load(ROOT / "cronjobs" / "crds" / "registrymirrors.yaml")
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = anything
        api.replace(crd)
        api.patch(registry_mirror("quay"), {"spec": {"upstreamUrl": 7}})
        ran = world.run()

        assert (ran.exit_code, ran.summary["invalid"], ran.summary["orphan"]) == (2, 1, 1)
        assert {name for each in ran.results for name in each.get("subjects", [])} == {"hub", "new", "quay"}
        (invalid,) = [each for each in ran.results if each["code"] == "invalid"]
        assert invalid["reason"].startswith("spec: Expected `str`, got `int`")
        (condition,) = told(world)[("registrymirrors", "", "quay")]["conditions"]
        assert (condition["status"], condition["reason"]) == ("False", "Invalid")


def test_a_mirror_that_is_being_deleted_is_left_alone(before: Sandbox, tmp_path: Path) -> None:
    with served(before, JOB) as world:
        api = sandbox_api(world.sandbox, tmp_path)
        api.patch(registry_mirror("quay"), {"metadata": {"finalizers": ["example.com/held"]}})
        api.delete(registry_mirror("quay"))

        ran = world.run("-v")

        (skipped,) = [each for each in ran.results if each.get("subjects") == ["quay"]]
        assert (skipped["code"], skipped["reason"]) == ("skipped", "is being deleted")
        assert "status" not in world.stored("registrymirrors", "kubechores.dev")[("registrymirrors", "", "quay")]


def _wrong(world: World, undisturbed: dict[Key, Object], before: dict[Key, Object]) -> list[object]:
    """What is not as it should be after the run that follows, and after one more."""
    ran = world.run()
    end = told(world)
    writes = len(world.writes())
    again = world.run()
    codes = [each for each in (ran, again) if each.exit_code]
    return [
        *codes,
        *differing(end, undisturbed),
        *differing(things(world), before),
        *(each.path for each in world.writes()[writes:]),
    ]


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_next_run_finishes_what_a_killed_one_began(
    before: Sandbox,
    trace: list[Request],
    undisturbed: dict[Key, Object],
    capsys: pytest.CaptureFixture[str],
    when: str,
) -> None:
    wrong: dict[str, object] = {}
    for number, request in enumerate(trace):
        with served(before, JOB) as world:
            there = things(world)
            assert world.run_killed(number, when)
            found = _wrong(world, undisturbed, there)
        if found:
            wrong[f"killed {when} request {number}, {request.method} {request.path}"] = found

    with capsys.disabled():
        print(f"\n{len(trace)} runs of mirror-audit killed {when} a request")  # noqa: T201 - seen without -s
    assert wrong == {}
    assert len(trace) > 12


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
    numbers = [n for n, each in enumerate(trace) if fault != "410 in a list" or "continue" in each.query]
    for number in numbers:
        with served(before, JOB) as world:
            there = things(world)
            world.sandbox.inject(Fault(skip=number, **ONCE[fault]))
            code = world.run().exit_code
            world.sandbox.clear_faults()
            codes[int(code)] += 1
            # 401 is the one that no retry helps.
            found: list[object] = [] if code == (2 if fault == "401" else 0) else [f"exit {code}"]
            found += _wrong(world, undisturbed, there)
        if found:
            wrong[f"{trace[number].method} {trace[number].path}"] = found

    with capsys.disabled():
        print(f"\n{len(numbers)} runs of mirror-audit with {fault}: exit codes {dict(codes)}")  # noqa: T201
    assert wrong == {}
    assert numbers


def test_runs_that_overlap_anywhere_end_where_one_ends(
    before: Sandbox, trace: list[Request], undisturbed: dict[Key, Object]
) -> None:
    wrong: dict[str, object] = {}
    for number, request in enumerate(trace):
        with served(before, JOB) as world:
            there = things(world)
            world.sandbox.inject(Fault(kind="call-before", call=lambda world=world: _another(world), skip=number))  # type: ignore[misc]
            ran = world.run()
            found: list[object] = [ran] if ran.exit_code else []
            found += _wrong(world, undisturbed, there)
        if found:
            wrong[f"a whole run before request {number}, {request.method} {request.path}"] = found
    assert wrong == {}


def _another(world: World) -> None:
    """Run the job in a process of its own, from beginning to end."""
    os.waitpid(forked(world.run), 0)


def test_the_world_takes_every_kind_of_request(trace: list[Request]) -> None:
    kinds = {(each.method, each.path.split("/")[-1]) for each in trace}

    assert kinds >= {("PATCH", "status"), ("POST", "events"), ("GET", "login"), ("GET", "nodes")}
    assert [each for each in trace if "continue" in each.query]
