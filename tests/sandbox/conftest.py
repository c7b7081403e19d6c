"""Fixtures of the tests with faults."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jobs.kit.api import cluster, transport
from jobs.kit.api.transport import Transport
from jobs.kit.run import clusters
from kubesandbox import Sandbox
from tests import embedded
from tests.apis import sandbox_api
from tests.control_plane import make_certificates, programs
from tests.every_job import fault_worlds
from tests.fault_world import Built, World, differing, served
from tests.wire import Recorder, recorder

Limit = Callable[..., None]
PAGE = 3  # so that lists have several pages
PATIENT_SECONDS = 600.0


@pytest.fixture(scope="module")
def quick() -> Iterator[None]:
    """Use small pages, one request at a time and no pauses before a retry, for all tests of a module.

    A request may wait for a whole run in another process, on a busy machine.
    """
    defaults = Transport.__init__.__kwdefaults__
    assert defaults
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(defaults, "request_seconds", PATIENT_SECONDS)
        patch.setattr(clusters, "REQUEST_SECONDS", PATIENT_SECONDS)
        patch.setattr(clusters, "ASK_SECONDS", PATIENT_SECONDS)
        patch.setattr(cluster, "PAGE_SIZE", PAGE)
        patch.setattr(transport, "IN_FLIGHT", 1)
        patch.setattr(transport, "LONGEST_PAUSE_SECONDS", 0.0)
        yield


@pytest.fixture(scope="module")
def built(request: pytest.FixtureRequest, quick: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """The world of this name, built."""
    world = fault_worlds()[request.param]
    with ExitStack() as stack:
        with Sandbox(of=embedded.installed()) as sandbox:
            folder: Path = tmp_path_factory.mktemp(world.name)
            env = stack.enter_context(world.build(sandbox_api(sandbox, folder)))
            template = Sandbox(of=sandbox)
        with served(template, world.job, env) as undisturbed:
            untouched = world.untouched(undisturbed)
            ran = undisturbed.run()
            assert (ran.exit_code, ran.summary) == (world.exit_code, dict(world.summary)), ran
            assert differing(world.untouched(undisturbed), untouched) == []
            trace = undisturbed.requests()
            yield Built(world, template, env, trace, world.end(undisturbed))


@pytest.fixture
def world(built: Built) -> Iterator[World]:
    """A cluster that begins as the world was built."""
    with built.serve() as world:
        yield world


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    """An embedded cluster with the manifests of kube-chores."""
    with Sandbox(of=embedded.installed()) as sandbox:
        yield sandbox


@pytest.fixture
def server() -> Iterator[Recorder]:
    """A server without TLS that keeps the requests that it is sent."""
    with recorder() as server:
        yield server


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Limit:
    """Set the transport's time limits."""
    defaults = Transport.__init__.__kwdefaults__
    assert defaults

    def limit(**seconds: float) -> None:
        for name, value in seconds.items():
            monkeypatch.setitem(defaults, name, value)

    return limit


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the self-signed certificate of a server on loopback."""
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


def any_kubectl() -> str:
    """Return the kubectl of the control plane or of the machine. Skip the test if both are missing."""
    for name in (str(programs() / "kubectl"), "kubectl"):
        if found := shutil.which(name):
            return found
    pytest.skip("no kubectl here: run make control-plane")
