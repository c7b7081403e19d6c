"""A cluster with a node for the whole session, our manifests in it, and what people do there with kubectl."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.apis import Api, real_api, wait_for
from tests.cluster_process import cluster
from tests.node.kubectl import Jobs, Kubectl, install
from tests.node.mirrored import Mirrored
from tests.node.publisher import Publisher, publish
from tests.one_node import Node, missing
from tests.orphans import machine
from tests.upstream import Upstream
from tests.upstream import upstream as running

_figures: list[str] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _figures:
        terminalreporter.section("figures of the node")
        for figure in _figures:
            terminalreporter.write_line(figure)


@pytest.fixture
def figure() -> Callable[[str], None]:
    """Note a figure for the summary."""
    return _figures.append


@pytest.fixture(scope="session")
def _tools() -> None:
    if reason := missing():
        pytest.skip(reason)


@pytest.fixture
def nothing_left(_tools: None) -> Iterator[None]:
    """Nothing is on the machine afterwards that was not there before."""
    before = machine()
    yield
    wait_for(lambda: machine() <= before, "nothing to be left", seconds=10, detail=lambda: machine() - before)


@pytest.fixture(scope="session")
def node(_tools: None) -> Iterator[Node]:
    """The cluster. It leaves nothing behind."""
    before = machine()
    with cluster() as started:
        _figures.append(f"a cluster with a ready node: {started.seconds:.1f} s")
        yield started
    wait_for(lambda: machine() <= before, "nothing to be left", seconds=10, detail=lambda: machine() - before)


@pytest.fixture(scope="session")
def kubectl(node: Node) -> Kubectl:
    """kubectl, as the cluster's administrator."""
    return Kubectl(node.plane.kubeconfig)


@pytest.fixture(scope="session")
def _installed(kubectl: Kubectl) -> None:
    install(kubectl)


@pytest.fixture
def api(node: Node, tmp_path: Path) -> Iterator[Api]:
    """The API server as other tests know it."""
    api = real_api(node.plane, tmp_path)
    yield api
    api.clean()


@pytest.fixture
def publisher(api: Api, kubectl: Kubectl, jobs: Jobs) -> Publisher:
    """A publisher of rates in the cluster."""
    (container,) = jobs.template("publisher")["spec"]["template"]["spec"]["containers"]
    return publish(api, kubectl, container["image"])


@pytest.fixture
def jobs(api: Api, kubectl: Kubectl, _installed: None) -> Iterator[Jobs]:
    """Jobs of the shipped CronJobs, deleted after the test."""
    kubectl("delete jobs --all -n kube-chores")
    yield Jobs(api, kubectl)
    kubectl("delete jobs --all -n kube-chores")


@pytest.fixture
def upstream(node: Node, tmp_path: Path) -> Iterator[Upstream]:
    """A registry on the node that mirrors are of."""
    with running(node, tmp_path / "upstream") as started:
        yield started


@pytest.fixture
def mirrored(node: Node, api: Api, jobs: Jobs, upstream: Upstream) -> Callable[..., Mirrored]:
    """Start a mirror of the upstream."""
    return lambda **spec: Mirrored(node, api, jobs, upstream, **spec)
