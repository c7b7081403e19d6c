"""A cluster with a node for the whole session, with the shipped manifests, and kubectl for its administrator.

Tests mostly wait, so `make test-node` has two workers. Each has its own session and its own cluster.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.apis import Api, real_api, wait_for
from tests.cluster_process import cluster
from tests.manifests import rights_on_copies
from tests.node.kubectl import Jobs, Kubectl, install, kustomization_with_copies
from tests.node.mirrored import Mirrored
from tests.node.publisher import Publisher, publish
from tests.one_node import Node, missing
from tests.orphans import machine, mark
from tests.upstream import Upstream
from tests.upstream import upstream as running

Figure = Callable[[str], None]
Start = Callable[..., Mirrored]
FIGURE = "figure of the node"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the figures of all tests, also of those that other workers ran."""
    reports = [report for each in terminalreporter.stats.values() for report in each]
    found = [pair for report in reports for pair in getattr(report, "user_properties", ())]
    if figures := dict.fromkeys(text for name, text in found if name == FIGURE):
        terminalreporter.section("figures of the node")
        for figure in figures:
            terminalreporter.write_line(str(figure))


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Figure:
    """Add a line to the summary of the test run."""
    return lambda text: record_property(FIGURE, text)


@pytest.fixture(scope="session")
def _tools() -> None:
    if reason := missing():
        pytest.skip(reason)
    mark()


@pytest.fixture
def nothing_left(_tools: None) -> Iterator[None]:
    """Compare the machine before and after the test: the test leaves nothing behind."""
    before = machine()
    yield
    wait_for(lambda: machine() <= before, "nothing to be left", seconds=10, detail=lambda: machine() - before)


@pytest.fixture(scope="session")
def node(_tools: None) -> Iterator[Node]:
    """The cluster of the session, which leaves nothing behind."""
    before = machine()
    with cluster() as started:
        yield started
    wait_for(lambda: machine() <= before, "nothing to be left", seconds=10, detail=lambda: machine() - before)


@pytest.fixture(scope="session")
def kubectl(node: Node) -> Kubectl:
    """Run kubectl as the cluster's administrator."""
    return Kubectl(node.plane.kubeconfig)


@pytest.fixture(scope="session")
def _installed(kubectl: Kubectl) -> None:
    install(kubectl)


@pytest.fixture(scope="module")
def with_copies(kubectl: Kubectl, _installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Add all components that let sync-copies copy more. Yield the folder of the kustomization."""
    # It sets no `suspend`, so the CronJobs stay suspended.
    folder = kustomization_with_copies(tmp_path_factory.mktemp("with-copies"))
    kubectl(f"apply -k {folder}")
    yield folder
    added = " ".join(f"{each['kind']}/{each['metadata']['name']}" for each in rights_on_copies())
    kubectl(f"delete --ignore-not-found {added}")


@pytest.fixture
def api(node: Node, tmp_path: Path) -> Iterator[Api]:
    """The API server with the helpers of the other tests."""
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
    """A registry on the node, which is the upstream of mirrors."""
    with running(node, tmp_path / "upstream") as started:
        yield started


@pytest.fixture
def mirrored(node: Node, api: Api, jobs: Jobs, upstream: Upstream) -> Start:
    """Create mirrors of the upstream."""
    return lambda **spec: Mirrored(node, api, jobs, upstream, **spec)
