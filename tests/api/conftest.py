"""Running jobs as the shipped installation does, against the embedded and the real API server."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import structs

from jobs.__main__ import chores
from jobs.core.mirror_audit.desired import Mirror
from jobs.kit import web
from jobs.kit.api import transport
from jobs.kit.run import session
from kubesandbox import Sandbox
from tests import embedded
from tests.apis import Api, Object, sandbox_api
from tests.image_registries import ImageRegistries
from tests.image_registries import serve as images_served
from tests.mirrors import Mirrors
from tests.rates import RatesServer, serve
from tests.registries import Registries
from tests.registries import serve as registries_served
from tests.workloads import KEY_FLAG, set_key
from tests.worlds import rule

Run = Callable[..., "Ran"]
OWN_IMAGE = "registry.example.com/kube-chores@sha256:" + 64 * "0"
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@dataclass(frozen=True)
class Ran:
    """The output of a run of the command."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def report(self) -> dict[str, Any]:
        """The report of a run with `-o json`."""
        decoded: dict[str, Any] = json.loads(self.stdout)
        return decoded

    @property
    def summary(self) -> dict[str, int]:
        """The counts of a run with `-o json`."""
        counts: dict[str, int] = self.report["summary"]
        return counts

    @property
    def results(self) -> list[dict[str, Any]]:
        """The findings of a run with `-o json`."""
        found: list[dict[str, Any]] = self.report["results"]
        return found


@pytest.fixture
def sync(api: Api, installed: Path) -> Run:
    """Run sync-copies with the rights of the shipped ServiceAccount, `-o json` by default."""
    return runs("sync-copies", installed)


@pytest.fixture
def home(api: Api) -> str:
    """The namespace of the sources."""
    return api.namespace("home")


@pytest.fixture
def team(api: Api) -> str:
    """A namespace that gets copies."""
    return api.namespace("team")


@pytest.fixture
def push(api: Api, installed: Path) -> Run:
    """Run sync-copies --clusters with the rights of the shipped ServiceAccount, for the clusters of the test."""
    run = runs("sync-copies", api.service_account_kubeconfig("kube-chores", "sync-copies-clusters"))
    return lambda *arguments, **given: run("--clusters", f"*-{api.token}", *arguments, **given)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Api]:
    """Another cluster with our manifests, the hub of this one or its spoke."""
    folder = tmp_path / "other"
    folder.mkdir()
    with Sandbox(of=embedded.installed(), tls=True) as sandbox:
        yield sandbox_api(sandbox, folder)


@pytest.fixture
def push_here(api: Api, installed: Path, other: Api) -> Run:
    """Run sync-copies in the other cluster, the hub of this one."""
    return runs("sync-copies", other.kubeconfig)


def with_rule(api: Api, source: Object, name: str = "", **spec: Any) -> Object:
    """Create a source and a rule for all other namespaces of the test, named settings or logins; return the source."""
    kind = source["kind"].lower()
    created = api.create(source)
    name = name or {"configmap": "settings", "secret": "logins"}[kind]
    api.create(rule(name, source["metadata"]["namespace"], f"*-{api.token}", ruleType=kind, **spec))
    return created


def copied(api: Api, sync: Run, source: Object, name: str = "", **spec: Any) -> Object:
    """Create a source and a rule as `with_rule`, and their copies with a run; return the source."""
    created = with_rule(api, source, name, **spec)
    sync()
    return created


@pytest.fixture
def rates() -> Iterator[RatesServer]:
    """A server that publishes rates of today as each provider does."""
    with serve() as server:
        yield server


@pytest.fixture
def fetch(api: Api, installed: Path, rates: RatesServer) -> Run:
    """Run fetch-rates with the rights of the shipped ServiceAccount and the providers of `rates`, `-o json`."""
    return runs("fetch-rates", api.service_account_kubeconfig("kube-chores", "fetch-rates"), rates.env())


@pytest.fixture
def roll(api: Api, installed: Path) -> Run:
    """Run roll-workloads with the rights of the shipped ServiceAccount and a key, waiting for nothing."""
    set_key(api)
    run = runs("roll-workloads", api.service_account_kubeconfig("kube-chores", "roll-workloads"))
    return lambda *arguments, **given: run(*KEY_FLAG, "--settle", "0", "--cool-down", "0", *arguments, **given)


@pytest.fixture
def mirrors(api: Api, installed: Path) -> Iterator[Mirrors]:
    """The mirrors of a test, on two nodes."""
    mirrors = Mirrors(api)
    mirrors.node("node-1")
    mirrors.node("node-2")
    yield mirrors
    mirrors.clean()


@pytest.fixture
def mirror(mirrors: Mirrors) -> Mirror:
    """A mirror whose resources all work."""
    return mirrors.healthy()


@pytest.fixture
def audit(api: Api, installed: Path) -> Run:
    """Run mirror-audit with the rights of the shipped ServiceAccount, `-o json` by default."""
    return runs("mirror-audit", api.service_account_kubeconfig("kube-chores", "mirror-audit"))


@pytest.fixture
def repair(api: Api, installed: Path) -> Run:
    """Run mirror-audit --repair with the rights of the shipped ServiceAccount."""
    run = runs("mirror-audit", api.service_account_kubeconfig("kube-chores", "mirror-repair"))
    return lambda *arguments, **given: run("--repair", *arguments, **given)


@pytest.fixture
def own_pod(api: Api, installed: Path, monkeypatch: pytest.MonkeyPatch) -> Object:
    """Run the jobs as in a pod with OWN_IMAGE; return that pod."""
    return run_in_a_pod(api, monkeypatch, OWN_IMAGE)


def run_in_a_pod(api: Api, monkeypatch: pytest.MonkeyPatch, image: str) -> Object:
    """Run the jobs as in a pod of the installation with this image, without probes; return that pod."""
    container = {"name": "chores", "image": image, "securityContext": RESTRICTED}
    pod = api.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"mirrors-{api.token}", "namespace": "kube-chores"},
            "spec": {
                "serviceAccountName": "mirror-audit",
                "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [{"name": "sidecar", "image": "none:1", "securityContext": RESTRICTED}, container],
            },
        }
    )
    connect_with(monkeypatch, in_pod=True, pod_namespace="kube-chores", pod_name=pod["metadata"]["name"])
    monkeypatch.setenv("CHORES_PROBE", "none")
    return pod


def connect_with(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Connect the jobs as before, but with these fields of the connection."""
    connect = vars(session)["connect"]
    monkeypatch.setattr(session, "connect", lambda *a, **options: structs.replace(connect(*a, **options), **fields))


def with_message(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Run the jobs as in a pod of the installation; return the file with the message of the pod's status."""
    file = folder / "termination-log"
    file.touch()
    monkeypatch.setattr(session, "TERMINATION_LOG", file)
    connect_with(monkeypatch, pod_namespace="kube-chores")
    return file


@pytest.fixture
def farm(api: Api, installed: Path) -> Run:
    """Run farm-pods with the rights of the shipped ServiceAccount, `-o json` by default."""
    return runs("farm-pods", api.service_account_kubeconfig("kube-chores", "farm-pods"))


@pytest.fixture
def registries(tmp_path: Path) -> Iterator[Registries]:
    """Mirrors and an upstream that answer."""
    folder = tmp_path / "registries"
    folder.mkdir()
    with registries_served(folder) as served:
        yield served


@pytest.fixture
def probe(api: Api, installed: Path, registries: Registries) -> Run:
    """Run mirror-audit as in a pod: it probes mirrors and upstreams over the network."""
    return runs("mirror-audit", api.service_account_kubeconfig("kube-chores", "mirror-audit"), registries.env)


@pytest.fixture
def repairing(api: Api, installed: Path, registries: Registries) -> Run:
    """Run mirror-audit --repair as in a pod: it probes mirrors and upstreams over the network."""
    env = {**registries.env, "CHORES_REPAIR": "1"}
    return runs("mirror-audit", api.service_account_kubeconfig("kube-chores", "mirror-repair"), env)


@pytest.fixture
def images(tmp_path: Path) -> Iterator[ImageRegistries]:
    """Registries of images, which have none yet."""
    folder = tmp_path / "images"
    folder.mkdir()
    with images_served(folder) as served:
        yield served


@pytest.fixture
def check_images(api: Api, installed: Path, images: ImageRegistries) -> Run:
    """Run mirror-audit --images with the rights of the shipped ServiceAccount and of the components."""
    return runs("mirror-audit", api.service_account_kubeconfig("kube-chores", "mirror-audit"), images.env)


def runs(job: str, account: Path, env: Mapping[str, str] | None = None) -> Run:
    """Return what runs a job as the account of a kubeconfig."""

    def run(*arguments: str, output: str = "json", kubeconfig: Path = account, **given: Any) -> Ran:
        command = [job, "-o", output, *arguments]
        set_to = {**(env or {}), **given.pop("env", {}), "KUBECONFIG": str(kubeconfig)}
        done = CliRunner().invoke(chores, command, env=set_to, **given)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Ran(done.exit_code, done.stdout, done.stderr)

    return run


@pytest.fixture
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run sends one request at a time: a server may answer those in flight together in any order."""
    import jobs.kit.run.apply  # noqa: F401 - the size of its turns depends on the real number, and is set once

    monkeypatch.setattr(transport, "IN_FLIGHT", 1)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts at a provider follow each other at once."""
    monkeypatch.setattr(web, "LONGEST_PAUSE_SECONDS", 0.0)
