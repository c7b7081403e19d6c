"""mirror-audit from a laptop: it probes mirrors through the API server, and no upstreams."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from jobs.core.mirror_audit.desired import Mirror
from kubesandbox import Fault, Sandbox
from tests.apis import sandbox_api
from tests.fault_world import World
from tests.mirrors import NAMESPACE, Mirrors, registry_mirror
from tests.rates import Answer, document, status
from tests.registries import Registries, cache_state, serve
from tests.sandbox.conftest import Limit

FLAGS = ("--probe", "service-proxy")


@pytest.fixture
def registries(tmp_path: Path) -> Iterator[Registries]:
    with serve(tmp_path) as registries:
        yield registries


@pytest.fixture
def world(sandbox: Sandbox, tmp_path: Path, limit: Limit) -> tuple[World, Mirrors, Mirror]:
    limit(retry_seconds=0)
    api = sandbox_api(sandbox, tmp_path)
    mirrors = Mirrors(api)
    mirrors.node()
    return World(sandbox, "mirror-audit"), mirrors, mirrors.deploy(api.create(registry_mirror()))


def as_endpoint(registries: Registries, mirrors: Mirrors, mirror: Mirror, answer: Answer) -> None:
    """Make a server of this test the endpoint of the mirror's Services."""
    host, _, port = registries.proxy.partition("//")[2].partition(":")
    registries.answers[f"{host}:{port}"] = answer
    mirrors.slice(mirror, ready=True, address=host, port=int(port))


def test_a_mirror_is_probed_through_the_api_server(
    world: tuple[World, Mirrors, Mirror], registries: Registries
) -> None:
    as_endpoint(registries, *world[1:], document(json.dumps(cache_state()).encode()))

    ran = world[0].run(*FLAGS)

    assert (ran.exit_code, ran.results) == (0, [])
    assert sorted(path for _, path in registries.requests) == ["/", "/v2/"]
    services = f"/api/v1/namespaces/{NAMESPACE}/services/http:registry-mirror-hub"
    paths = {each.path for each in world[0].requests()}
    assert {f"{services}:registry/proxy/v2/", f"{services}-headless:cache/proxy/"} <= paths


def test_a_cache_is_probed_through_the_api_server(world: tuple[World, Mirrors, Mirror], registries: Registries) -> None:
    as_endpoint(registries, *world[1:], document(json.dumps(cache_state(shortage="space")).encode()))

    (found,) = world[0].run(*FLAGS).results

    assert (found["code"], found["severity"]) == ("volume-filling", "critical")


@pytest.mark.parametrize("code", [404, 502])
def test_a_mirror_with_another_answer_is_down(
    world: tuple[World, Mirrors, Mirror], registries: Registries, code: int
) -> None:
    as_endpoint(registries, *world[1:], status(code))

    (found,) = world[0].run(*FLAGS).results

    assert found["code"] == "mirror-down"
    assert found["reason"].startswith(f"GET /v2/ through the API server: HTTP {code} ")


def test_an_unreachable_pod_is_down(world: tuple[World, Mirrors, Mirror]) -> None:
    _, mirrors, mirror = world
    mirrors.slice(mirror, ready=True, address="127.0.0.1", port=1)

    (found,) = world[0].run(*FLAGS).results

    assert found["code"] == "mirror-down"
    assert found["reason"].startswith("GET /v2/ through the API server: error trying to reach service: ")


@pytest.mark.parametrize("code", [403, 500])
def test_an_error_of_the_api_server_itself_makes_the_mirror_unreadable(
    world: tuple[World, Mirrors, Mirror], code: int
) -> None:
    world[0].sandbox.inject(Fault("GET", "*/proxy/v2/", status=code, times=None))

    ran = world[0].run(*FLAGS)

    assert (ran.exit_code, [each["code"] for each in ran.results]) == (1, ["unreadable"])


def test_a_repair_probes_no_mirror_that_lost_its_pod_meanwhile(
    sandbox: Sandbox, world: tuple[World, Mirrors, Mirror], registries: Registries
) -> None:
    as_endpoint(registries, *world[1:], document(json.dumps(cache_state()).encode()))
    _, mirrors, mirror = world
    mirrors.edit(mirror.service.document(), {"metadata": {"labels": {"app.kubernetes.io/name": "other"}}})
    stop = partial(mirrors.slice, mirror, ready=False)
    sandbox.inject(Fault("PATCH", "*/services/*", kind="call-before", call=stop))

    ran = World(sandbox, "mirror-audit", {"CHORES_REPAIR": "1"}).run(*FLAGS)

    assert ran.summary["serverside-applied"] == 1
    probes = [each.path for each in world[0].requests() if each.path.endswith("/proxy/v2/")]
    assert len(probes) == 1, "of the first step: in the second one, no pod can respond"
