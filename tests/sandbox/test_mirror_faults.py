"""mirror-audit with read errors: it never reports an unreadable object as missing."""

from pathlib import Path
from typing import Any

import pytest

from kubesandbox import Fault
from tests.apis import ready_of, sandbox_api
from tests.fault_world import Built, World
from tests.manifests import ROOT, load
from tests.mirrors import NAMESPACE, registry_mirror
from tests.sandbox.conftest import Limit

pytestmark = pytest.mark.parametrize("built", ["mirror-audit"], indirect=True)


@pytest.mark.parametrize("status", [403, 500])
def test_a_resource_that_cannot_be_read_is_never_reported_as_missing(
    built: Built, world: World, status: int, limit: Limit
) -> None:
    limit(retry_seconds=0)
    usual = _findings(world.run("--check").results)
    paths = sorted({each.path for each in built.trace if each.method == "GET"})
    assert len(paths) == 11
    for path in paths:
        with built.serve() as world:
            world.sandbox.inject(Fault("GET", path, status=status, times=None))
            ran = world.run("--check")
        if path.endswith("/registrymirrors"):
            assert (ran.exit_code, ran.stdout) == (1, "")
            continue
        found = _findings(ran.results)
        assert ran.exit_code == 1, path
        assert "unreadable" in [code for code, _, _ in found], path
        # Fewer findings than when everything is readable, and no others.
        assert {each for each in found if each[0] != "unreadable"} <= usual, path


def _findings(results: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {(each["code"], each["object"]["kind"], each["object"]["name"]) for each in results}


def test_a_login_that_cannot_be_read_affects_no_other_mirror(built: Built, world: World) -> None:
    world.sandbox.inject(Fault("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/login", status=403, times=None))
    ran = world.run()

    assert (ran.exit_code, ran.summary) == (1, {**built.world.summary, "unreadable": 1})
    (unreadable,) = [each for each in ran.results if each["code"] == "unreadable"]
    assert unreadable["subjects"] == ["quay"]
    quay = ready_of(built.world.state(world)[("registrymirrors", "", "quay")]["conditions"])
    assert (quay["status"], quay["reason"]) == ("False", "Unreadable")


def test_an_invalid_mirror_stops_no_other_and_its_resources_are_not_orphans(
    built: Built, world: World, tmp_path: Path
) -> None:
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
    condition = ready_of(built.world.state(world)[("registrymirrors", "", "quay")]["conditions"])
    assert (condition["status"], condition["reason"]) == ("False", "Invalid")


def test_a_mirror_that_is_being_deleted_is_skipped(world: World, tmp_path: Path) -> None:
    api = sandbox_api(world.sandbox, tmp_path)
    api.patch(registry_mirror("quay"), {"metadata": {"finalizers": ["example.com/keep"]}})
    api.delete(registry_mirror("quay"))

    ran = world.run("-v")

    (skipped,) = [each for each in ran.results if each.get("subjects") == ["quay"]]
    assert (skipped["code"], skipped["reason"]) == ("skipped", "is being deleted")
    quay = world.stored("registrymirrors", "kubechores.dev")[("registrymirrors", "", "quay")]
    assert ready_of(quay["status"]["conditions"])["reason"] == "NotRead"
