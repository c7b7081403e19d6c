"""mirror-audit --repair step by step: it waits for the condition of the next step, and adopts no objects."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from jobs.core.mirror_audit.desired import Mirror
from kubesandbox import Fault, Sandbox
from tests.apis import GIVE_UP_SECONDS, Api, sandbox_api, wait_for
from tests.fault_world import World
from tests.manifests import ROOT
from tests.mirrors import NAMESPACE, Mirrors, credentials, registry_mirror
from tests.registries import serve

REPAIR = [sys.executable, "-m", "jobs", "mirror-audit", "--repair", "-o", "json"]


@pytest.fixture
def api(sandbox: Sandbox, tmp_path: Path) -> Api:
    return sandbox_api(sandbox, tmp_path)


def created(api: Api) -> tuple[Mirrors, Mirror]:
    """Create two nodes and a RegistryMirror without resources."""
    mirrors = Mirrors(api)
    mirrors.node("node-1")
    mirrors.node("node-2")
    return mirrors, mirrors.of(mirrors.create())


def begun(api: Api, mirror: Mirror) -> subprocess.Popen[str]:
    """Start a repair with --wait. Return it when it waits for the registry to become ready."""
    kubeconfig = api.service_account_kubeconfig("kube-chores", "mirror-repair")
    env = {**os.environ, "KUBECONFIG": str(kubeconfig), "CHORES_WAIT": "60"}
    process = subprocess.Popen(REPAIR, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    wait_for(lambda: api.get(mirror.stateful_set.document()), "the registry")
    return process


def test_a_run_that_waits_creates_all_resources_of_a_mirror(api: Api) -> None:
    mirrors, mirror = created(api)
    process = begun(api, mirror)
    assert api.get(mirror.daemon_set.document()) is None
    mirrors.settle(mirror)
    wait_for(lambda: api.get(mirror.daemon_set.document()), "the DaemonSet")
    mirrors.settle(mirror)

    stdout, _ = process.communicate(timeout=GIVE_UP_SECONDS)

    assert process.returncode == 0
    assert json.loads(stdout)["summary"] == {"created": 5, "unchanged": 5}


def test_a_resource_that_another_client_creates_meanwhile_is_not_taken_over(sandbox: Sandbox, api: Api) -> None:
    api.create(registry_mirror("hub"))
    other = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "registry-mirror-hub", "namespace": NAMESPACE},
        "spec": {"selector": {"other": "yes"}, "ports": [{"port": 80}]},
    }
    path = api.path(other)
    sandbox.inject(Fault("PATCH", path, kind="call-before", call=lambda: api.create(other)))

    ran = World(sandbox, "mirror-audit", {"CHORES_REPAIR": "1"}).run()

    assert ran.exit_code == 0
    service = ("Service", "registry-mirror-hub")
    (conflict,) = [each for each in ran.results if (each["object"]["kind"], each["object"]["name"]) == service]
    assert conflict["code"] == "conflict"
    found = api.read(other)
    assert (found["spec"]["selector"], "labels" in found["metadata"]) == ({"other": "yes"}, False)


def test_a_resource_that_changes_before_its_deletion_is_deleted_after_another_read(sandbox: Sandbox, api: Api) -> None:
    mirrors = Mirrors(api)
    mirror = mirrors.healthy()
    api.delete(registry_mirror(mirror.registry_mirror.name))
    world = World(sandbox, "mirror-audit", {"CHORES_REPAIR": "1"})
    assert world.run().exit_code == 0
    mirrors.settle(mirror)
    service = mirror.headless_service.document()
    call = partial(mirrors.edit, service, {"metadata": {"annotations": {"other": "yes"}}})
    sandbox.inject(Fault("DELETE", api.path(service), kind="call-before", call=call))

    ran = world.run()

    assert (ran.exit_code, ran.summary["deleted"]) == (0, 4)
    assert api.get(service) is None


def test_a_step_that_was_not_done_is_reported_with_its_reason(sandbox: Sandbox, api: Api) -> None:
    _, mirror = created(api)
    path = api.path(mirror.service.document())
    sandbox.inject(Fault("PATCH", path, status=403, message="denied by a policy", times=None))

    ran = World(sandbox, "mirror-audit", {"CHORES_REPAIR": "1"}).run()

    (failed,) = [each for each in ran.results if each["outcome"] == "failed"]
    assert (failed["reason"], failed["message"]) == ("does not exist", "denied by a policy")


def test_a_mirror_is_probed_at_each_observation(sandbox: Sandbox, api: Api, tmp_path: Path) -> None:
    with serve(tmp_path) as registries:
        mirrors = Mirrors(api)
        mirrors.node()
        mirror = mirrors.healthy(upstream=registries.upstream)
        api.delete(mirror.headless_service.document())
        world = World(sandbox, "mirror-audit", {**registries.env, "CHORES_REPAIR": "1"})

        ran = world.run()

        assert ran.summary["created"] == 1
        host = f"{mirror.name}.{NAMESPACE}.svc"
        paths = [path for name, path in registries.requests if name.startswith(host)]
        assert paths == ["/v2/", "/v2/"]


@pytest.mark.usefixtures("quick")
def test_each_step_reads_the_same_objects_in_the_same_order(sandbox: Sandbox, api: Api) -> None:
    mirrors = Mirrors(api)
    mirrors.node()
    for number in range(6):
        host = f"registry-{number}.example.com"
        api.create(credentials(f"login-{number}", host))
        api.create(registry_mirror(f"m{number}", host, credentialsSecret=f"login-{number}"))
    world = World(sandbox, "mirror-audit", {"CHORES_REPAIR": "1"})

    assert world.run().exit_code == 0

    names = [each.path.rpartition("/")[2] for each in world.requests() if "/secrets/" in each.path]
    assert len(names) > 6
    assert names == [f"login-{number}" for number in range(6)] * (len(names) // 6)
