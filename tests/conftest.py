"""Fixtures, and two checks of every test: nothing shows a Secret value, and CI skips no cluster test."""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import click.testing
import hypothesis
import pytest

from tests import buildah, canary, cgroups, sweeps
from tests.apis import Api, Object, real_api, sandbox_api
from tests.browser import chromium
from tests.control_plane import ControlPlane, control_plane, deprecated_requests, minor_of, missing, version
from tests.manifests import everything
from tests.one_node import impossible
from tests.policies import has_policies, wait_until_policies_act, without_policies

# Whatever a busy machine takes for one example, and the same examples in each run.
hypothesis.settings.register_profile("any machine", deadline=None, derandomize=True)
hypothesis.settings.load_profile("any machine")

Chores = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def recursion_as_in_a_pod() -> Iterator[None]:
    """The embedded cluster's CEL library raises the limit for the whole process."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(limit)


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """The real control plane, one for the whole session. At its end, no job used a deprecated API.

    No object outlived its namespace either, which would mean that Api.clean() deleted too little.
    """
    reason = missing()
    if reason:
        pytest.skip(reason)
    with control_plane() as started:
        yield started
        assert real_api(started, started.folder).lost() == []
        deprecated = deprecated_requests(started.audit_log)
        assert deprecated == [], "jobs requested deprecated APIs"


@pytest.fixture(scope="session")
def plane_without_policies() -> Iterator[ControlPlane]:
    """Another real control plane for the whole session: what is installed there has no admission policies."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    with control_plane() as started:
        yield started


@pytest.fixture(scope="session")
def manifests(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Object]:
    """The manifests of cronjobs/, installed on the real control plane once for the whole session, by their paths.

    They include the admission policies, if this Kubernetes has such an API.
    """
    api = real_api(plane, tmp_path_factory.mktemp("install"))
    if not has_policies(version()):
        return _installed(api, without_policies())
    kept = _installed(api, everything())
    wait_until_policies_act(api)
    return kept


@pytest.fixture(scope="session")
def manifests_without_policies(
    plane_without_policies: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Object]:
    """The same on the other control plane, without the admission policies."""
    return _installed(real_api(plane_without_policies, tmp_path_factory.mktemp("install")), without_policies())


def _installed(api: Api, objects: list[Object]) -> dict[str, Object]:
    for obj in objects:
        api.put(obj)
    return {api.path(obj): obj for obj in objects}


SERVERS = ["sandbox", pytest.param("real", marks=pytest.mark.cluster)]
# Safety and rights do not depend on the policies: the embedded server has none, but it is not Kubernetes.
WITHOUT_POLICIES_TOO = [*SERVERS, pytest.param("real without policies", marks=pytest.mark.cluster)]


@pytest.fixture(params=SERVERS)
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    """An API server: the embedded one, fresh, and then the real one, shared by all tests and with our manifests."""
    yield from served(request, tmp_path)


def served(request: pytest.FixtureRequest, tmp_path: Path, tls: bool = False) -> Iterator[Api]:
    """Give the API server of the parameter, the embedded one as HTTPS if asked, and clean up what the test made."""
    if request.param == "sandbox":
        from kubesandbox import Sandbox
        from tests import embedded

        template = embedded.installed() if "installed" in request.fixturenames else embedded.empty()
        with Sandbox(of=template, tls=tls) as sandbox:
            yield sandbox_api(sandbox, tmp_path)
        return
    which = "_without_policies" if request.param == "real without policies" else ""
    kept = request.getfixturevalue(f"manifests{which}")
    api = real_api(request.getfixturevalue(f"plane{which}"), tmp_path, kept)
    yield api
    api.clean()


@pytest.fixture
def installed(api: Api) -> Path:
    """The manifests of cronjobs/ are installed; gives the kubeconfig of the sync-copies job."""
    return api.service_account_kubeconfig("kube-chores", "sync-copies")


@pytest.fixture
def chores() -> Chores:
    """Run the program in a process of its own; its output is searched for Secret values when the test ends."""

    def run(*args: str, kubeconfig: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "jobs", *args]
        added = {"KUBECONFIG": str(kubeconfig)} if kubeconfig else {}
        done = subprocess.run(
            command, env={**os.environ, **added, **env}, capture_output=True, text=True, timeout=600, check=False
        )
        canary.observed("its stdout", done.stdout)
        canary.observed("its stderr", done.stderr)
        return done

    return run


@pytest.fixture(autouse=True)
def _outputs_are_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test takes out of CliRunner and of pytest's capture is searched as well."""
    canary.take_observed()
    invoke, readouterr = click.testing.CliRunner.invoke, pytest.CaptureFixture.readouterr

    def observed_invoke(self: click.testing.CliRunner, *args: Any, **options: Any) -> click.testing.Result:
        result = invoke(self, *args, **options)
        canary.observed("the command's output", result.output)
        canary.observed("the command's exception", repr(result.exception))
        return result

    def observed_readouterr(self: pytest.CaptureFixture[str]) -> Any:
        captured = readouterr(self)
        canary.observed("captured output", f"{captured.out}\n{captured.err}")
        return captured

    monkeypatch.setattr(click.testing.CliRunner, "invoke", observed_invoke)
    monkeypatch.setattr(pytest.CaptureFixture, "readouterr", observed_readouterr)


def pytest_configure() -> None:
    """Choose what the long sweeps try, before tests are imported and before workers start."""
    sweeps.choose_seed()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how to repeat what the long sweeps tried, if some ran."""
    if any(
        "tests/sandbox/" in getattr(each, "nodeid", "") for each in itertools.chain(*terminalreporter.stats.values())
    ):
        terminalreporter.write_line(sweeps.described())


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs a newer version of Kubernetes than the one of this session."""
    if reason := _too_old(item):
        pytest.skip(reason)


def _too_old(item: pytest.Item) -> str | None:
    mark = item.get_closest_marker("since")
    if mark is None or minor_of(version()) >= mark.args[0]:
        return None
    return f"needs Kubernetes 1.{mark.args[0]}: {mark.args[1]}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that showed a Secret value, and in CI one that needs a cluster and was skipped without need."""
    report = yield
    if report.when == "setup" and report.outcome == "passed":
        return report
    leaked = [
        f"{where} shows a Secret value ({form})" for where, text in _texts(item, report) for form in canary.leaks(text)
    ]
    if leaked and report.outcome == "passed":
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: {'; '.join(sorted(set(leaked)))}"
    if report.skipped and os.environ.get("CI") == "true" and _could_have_run(item):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped in CI: {call.excinfo.value if call.excinfo else ''}"
    return report


def _could_have_run(item: pytest.Item) -> bool:
    """A machine that cannot do what a test needs is a reason to skip; that nobody built what it needs is none."""
    if "limited" in getattr(item, "fixturenames", ()) and cgroups.refused() is not None:
        return False
    if _too_old(item):
        return False
    if item.get_closest_marker("browser"):
        return chromium.is_installed()
    if item.get_closest_marker("release") and buildah.impossible():
        return False
    on_node = item.get_closest_marker("node") or item.get_closest_marker("release")
    node = on_node is not None and impossible() is None
    monitored = item.get_closest_marker("monitoring") is not None and shutil.which("prometheus") is not None
    return node or monitored or item.get_closest_marker("cluster") is not None


def _texts(item: pytest.Item, report: pytest.TestReport) -> list[tuple[str, str]]:
    texts = [*report.sections, *canary.take_observed()]
    api = getattr(item, "funcargs", {}).get("api")
    if report.when == "call" and isinstance(api, Api):
        texts += api.public().items()
    return texts
