"""kube-apiserver closes connections, is replaced, gets other certificates, or lacks an aggregated API."""

import contextlib
import itertools
import shutil
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from urllib.parse import urlsplit

import pytest

from jobs.kit.values.registry import JOBS
from tests.apis import Object, real_api, wait_for
from tests.control_plane import ROOT, minor_of, version
from tests.planes import Plane
from tests.serving import serving
from tests.travel.conftest import before_write, connections
from tests.travel.town import WRITING, Town
from tests.wire import splice
from tests.worlds import at, namespace_object

pytestmark = pytest.mark.travel
GOAWAY = "--goaway-chance=0.02"  # more is not possible
AUTHORITY = "; check that the certificate authority of this client is that of the API server"
METRICS: Object = {
    "apiVersion": "apiregistration.k8s.io/v1",
    "kind": "APIService",
    "metadata": {"name": "v1beta1.metrics.k8s.io"},
    "spec": {
        "group": "metrics.k8s.io",
        "version": "v1beta1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": {"namespace": "kube-system", "name": "metrics-server"},
    },
}


def check_that_each_job_writes_once(town: Town, url: str = "") -> None:
    """Run each job twice: the first writes each object exactly once, the second nothing."""
    for job in WRITING:
        town.api.mark()
        ran = town.run(job, url=url)
        assert ran.exit_code == 0, ran
        assert town.written(job) == town.once(job), job
        town.check_nothing_is_left(job, url)
    assert town.copies_that_differ() == []


def test_each_object_is_written_once_if_the_server_ends_connections(hub: Plane, town: Town) -> None:
    """With HTTP/2 the server sends GOAWAY: it answers what it received, and the next requests need a connection."""
    with connections() as before:
        town.run("mirror-audit")
    hub.restart_api_server(GOAWAY)

    with connections() as begun:
        for number in range(1, 20):  # one request in fifty ends a connection: of one town, at times none does
            check_that_each_job_writes_once(town)
            if sum(begun) > number * 2 * len(WRITING) * sum(before):
                return
            town = Town(hub, town.rates)
            town.build()

    pytest.fail("no connection was ended")


# certificates


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("job", WRITING)
def test_a_run_continues_if_the_server_gets_another_certificate(hub: Plane, town: Town, job: str) -> None:
    town.prepare(job)
    town.api.mark()
    with before_write(20, lambda: hub.restart_api_server(*hub.new_serving_certificate())):
        ran = town.run(job)

    assert ran.exit_code == 0, ran
    assert town.written(job) == town.once(job)


@pytest.mark.parametrize("is_replaced", [True, False], ids=["replaced", "not replaced"])
def test_a_run_ends_if_the_server_gets_another_authority(
    hub: Plane, town: Town, tmp_path: Path, is_replaced: bool
) -> None:
    def another_authority() -> None:
        hub.new_certificate()
        hub.restart_api_server()  # ends connections

    hub.restart_api_server()  # with the certificate that is also that of the authority
    account = town.account("sync-copies")
    if not is_replaced:
        shutil.copy(hub.folder / "ca.crt", tmp_path)
        account.write_text(account.read_text().replace(str(hub.folder / "ca.crt"), str(tmp_path / "ca.crt")))
    with before_write(20, another_authority):
        ran = town.run("sync-copies", account=account)

    assert ran.exit_code == 1
    assert AUTHORITY in ran.stdout
    assert 0 < len(town.copies_that_differ()) < len(town.paths("sync-copies"))
    town.api.mark()
    again = town.run("sync-copies", account=account)
    if is_replaced:
        assert (again.exit_code, town.copies_that_differ()) == (0, [])
    else:
        assert (again.exit_code, town.api.requests()) == (1, [])
        assert AUTHORITY in again.stderr
    assert town.run("sync-copies").exit_code == 0
    assert town.copies_that_differ() == []
    assert [each for each in town.api.writes() if each.method == "DELETE"] == []


# aggregated APIs


def test_an_aggregated_api_that_is_down_disturbs_no_run(hub: Plane, town: Town) -> None:
    """The namespace controller then completes no deletion, because it cannot discover all resources."""
    check_that_each_job_writes_once(town)
    stuck = namespace_object(town.teams[0])
    with hub.controllers():
        hub.api.create(METRICS)
        wait_for(lambda: hub.api.request("GET", "/apis/metrics.k8s.io/v1beta1")[0] == 503, "the API to be down")
        hub.api.delete(stuck)
        wait_for(lambda: "NamespaceDeletionDiscoveryFailure" in str(hub.api.read(stuck)), "the deletion to be stuck")
        town.wait_for_rollouts(town.teams[1:])
        hub.api.delete(at(town.teams[1], town.sources[0]))
        town.change()
        hub.api.mark()
        ran = {job: town.run(job) for job in JOBS}
        assert {job: each.exit_code for job, each in ran.items()} == dict.fromkeys(JOBS, 0)
        assert [each for each in hub.api.writes() if each.method == "DELETE" or town.teams[0] in each.path] == []
        assert [each for each in town.copies_that_differ() if not each.startswith(f"{town.teams[0]}/")] == []
        town.wait_for_rollouts(town.teams[1:])
        for job in WRITING:
            town.check_nothing_is_left(job)
        hub.api.delete(METRICS)
        wait_for(lambda: hub.api.get(stuck) is None, "the deletion of the namespace")


# several servers


@contextlib.contextmanager
def in_turn(urls: Sequence[str], used: list[str]) -> Iterator[str]:
    """Send each new connection to the next of these addresses, and add that to `used`; yields the address of all."""
    addresses = itertools.cycle(urls)

    class Turn(StreamRequestHandler):
        def handle(self) -> None:
            url = next(addresses)
            with socket.create_connection(("127.0.0.1", urlsplit(url).port or 0)) as there:
                used.append(url)
                splice(self.connection, there)

    class Server(ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Turn) as server, serving(server):
        yield f"https://127.0.0.1:{server.server_address[1]}"


def older_programs() -> list[Path]:
    """Return the folders of older versions that `make test-versions` built, the newest first."""
    versions = [each for each in (ROOT / "tools/kubernetes/versions").read_text().split("\n") if each.startswith("v")]
    older = (each for each in versions if minor_of(each) < minor_of(version()))
    return [found for each in older if (found := ROOT / ".tools" / f"kubernetes-{each}").exists()]


@pytest.mark.parametrize("is_emulated", [True, False], ids=["emulated", "older programs"])
def test_servers_of_two_versions_behind_one_address(hub: Plane, town: Town, is_emulated: bool) -> None:
    """As while a control plane is upgraded: connections end often, and the next one is to the other version."""
    folders = [None] if is_emulated else older_programs()
    if not folders:
        pytest.skip("no older version is built: run `tools/kubernetes/build v1.35.4`")
    emulated = [f"--emulated-version=1.{minor_of(version()) - 1}"] if is_emulated else []
    hub.restart_api_server(GOAWAY)
    with hub.another_api_server(GOAWAY, *emulated, folder=folders[0]) as other:
        assert real_api(other, hub.folder).call("GET", "/version") != hub.api.call("GET", "/version")
        urls, used = [hub.plane.url, other.url], list[str]()
        with in_turn(urls, used) as url:
            check_that_each_job_writes_once(town, url)
        assert min(map(used.count, urls)) >= len(WRITING)  # each job runs twice
