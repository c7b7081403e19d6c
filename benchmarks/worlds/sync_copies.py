"""The world of sync-copies: 10 Secrets of 1 KiB, copied to 100, 1,000 and 10,000 namespaces."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from benchmarks.cluster import BenchCluster, Clone
from benchmarks.compare import BARE, World
from benchmarks.measured import run_process
from tests.apis import Object
from tests.canary import canary
from tests.manifests import ROOT, everything, load
from tests.worlds import encoded, namespace_object, rule, secret

HOME = "bench-home"
SOURCES, BYTES = 10, 1024
OWN, IN_POD, GO = "sync-copies", "sync-copies in a pod", "bare Go"
PLAIN = "bare Python, not compressed"
WRITERS = {IN_POD: OWN, PLAIN: BARE}  # whose copies these programs find converged
SECRETS = "/api/v1/secrets"
# Any Secret and any namespace.
TOUCHED = (f"/api/v1/namespaces/{HOME}/secrets/other", f"/api/v1/namespaces/{HOME}")
PERMISSIONS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
# Run a job as in a pod: with the files of a service account, from a folder of this machine.
WITH_SERVICE_ACCOUNT = """
import sys
from functools import partial
from pathlib import Path
from jobs.kit.api import connect
from jobs.kit.run import session
session.connect = partial(connect.connect, service_account=Path(sys.argv.pop(1)))
from jobs.__main__ import main
main(sys.argv[1:])
"""


def team(number: int) -> str:
    """Return the name of a namespace that receives copies."""
    return f"bench-team-{number:05}"


def value(size: int = BYTES) -> str:
    """Return a new value of this size."""
    return canary().ljust(size, "x")


def prepare_cluster(cluster: BenchCluster, namespaces: int) -> None:
    """Create the CRDs, the account of sync-copies, and the namespaces."""
    cluster.put(load(ROOT / "cronjobs" / "crds"))
    cluster.put([namespace_object("kube-chores"), namespace_object(HOME), namespace_object(team(0))])
    cluster.put([secret(HOME, "other")])
    objects = (obj for obj in everything() if obj["kind"] in PERMISSIONS)
    cluster.put(obj for obj in objects if "sync-copies" in obj["metadata"]["name"])
    clone_namespaces(cluster, namespaces)


def clone_namespaces(cluster: BenchCluster, namespaces: int) -> None:
    """Clone the first namespace until there are so many."""
    cluster.clone(f"/api/v1/namespaces/{team(0)}", (Clone("", team(number)) for number in range(1, namespaces)))


def chores(*arguments: str, python: Sequence[str] = ("-m", "jobs")) -> list[str]:
    """Return the command of a job that prints its report as JSON."""
    return [sys.executable, *python, *arguments, "-o", "json"]


def in_a_pod(cluster: BenchCluster, job: str, *options: str) -> list[str]:
    """Return the command of a job with the files of its service account in place of a kubeconfig."""
    folder = cluster.folder / f"service-account-of-{job}"
    if not folder.exists():
        folder.mkdir()
        (folder / "token").write_text(cluster.api.service_account_token("kube-chores", job))
        (folder / "namespace").write_text("kube-chores")
        shutil.copy(cluster.plane.ca_file, folder / "ca.crt")
    host, port = cluster.plane.url.removeprefix("https://").split(":")
    address = [f"KUBERNETES_SERVICE_HOST={host}", f"KUBERNETES_SERVICE_PORT={port}"]
    command = chores(job, *options, python=("-c", WITH_SERVICE_ACCOUNT, str(folder)))
    return ["/usr/bin/env", "--unset=KUBECONFIG", f"HOME={folder}", *address, *command]


@cache
def go_program() -> Path:
    """Build the Go program once, and return its path."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    source = ROOT / "benchmarks" / "bare_go"
    env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}
    command = ["go", "build", "-trimpath", "-ldflags=-s -w", "-o", str(folder / "bare-go"), "."]
    subprocess.run(command, cwd=source, env=env, check=True)
    return folder / "bare-go"


def bare(module: str, cluster: BenchCluster, *arguments: str) -> list[str]:
    """Return the command of a bare client by the name of its module."""
    return [sys.executable, "-m", f"benchmarks.bare.{module}", str(cluster.plane.kubeconfig), *arguments]


PROGRAMS = {
    OWN: lambda cluster: chores("sync-copies", "-n", "kube-chores"),
    IN_POD: lambda cluster: in_a_pod(cluster, "sync-copies"),
    BARE: lambda cluster: bare("sync_copies", cluster),
    PLAIN: lambda cluster: bare("sync_copies", cluster, "plain"),
    GO: lambda cluster: [str(go_program()), str(cluster.plane.kubeconfig)],
}


def prepare(
    cluster: BenchCluster, size: int, programs: Sequence[str] = (OWN, BARE, GO), source_bytes: int = BYTES
) -> None:
    """Create sources, rule and namespaces. Keep as templates what each program writes to the first namespace."""
    prepare_cluster(cluster, 1)
    cluster.notes["sources"] = [[encoded(value(source_bytes)) for _ in range(SOURCES)] for _ in range(2)]
    put_sources(cluster, 0)
    cluster.put([RULE])
    for program in programs:
        done = run_process(PROGRAMS[program](cluster), {"KUBECONFIG": str(cluster.plane.kubeconfig)})
        assert done.exit_code == 0, done.stderr
        paths = [f"/api/v1/namespaces/{team(0)}/secrets/{source(number)}" for number in range(SOURCES)]
        cluster.notes[program] = [cluster.template(path) for path in paths]
        delete_copies(cluster)
    clone_namespaces(cluster, size // SOURCES)


def source(number: int) -> str:
    """Return the name of a source and of its copies."""
    return f"source-{number}"


def put_sources(cluster: BenchCluster, version: int) -> None:
    """Write one of two contents to all sources."""
    cluster.notes["version"] = version
    for number, content in enumerate(cluster.notes["sources"][version]):
        cluster.api.put(secret(HOME, source(number), labels={"bench": "yes"}, data={"key": content}))


def delete_copies(cluster: BenchCluster) -> None:
    """Delete all copies."""
    cluster.delete_prefix("/registry/secrets/bench-team-", SECRETS)
    cluster.notes["copies"] = None


def with_copies(cluster: BenchCluster, program: str, size: int) -> None:
    """Bring the cluster to the state after a run of a program. Copies of another program are overwritten."""
    writer = WRITERS.get(program, program)
    if cluster.notes["copies"] == writer:
        return
    put_sources(cluster, 0)  # as the templates

    def copies() -> Iterator[tuple[str, bytes]]:
        for template in cluster.notes[writer]:
            for number in range(size // SOURCES):
                yield template.clone(Clone(team(number), template.name))

    cluster.write(copies())
    cluster.wait_until_served(SECRETS)
    cluster.notes["copies"] = writer


def first(cluster: BenchCluster, program: str, size: int) -> int:
    """Delete all copies: the run must create them."""
    delete_copies(cluster)
    cluster.notes["copies"] = program
    return size


def converged(cluster: BenchCluster, program: str, size: int) -> int:
    """Have all copies as the program wrote them: nothing must be written."""
    with_copies(cluster, program, size)
    return 0


def changed(cluster: BenchCluster, program: str, size: int) -> int:
    """Change the content of all sources: the run must replace all copies."""
    with_copies(cluster, program, size)
    put_sources(cluster, 1 - cluster.notes["version"])
    return size


def at_most(program: str, scenario: str, size: int) -> int:
    """Return how often to run a program at most. To write 100,000 copies takes two minutes."""
    if program in WRITERS and scenario != "converged":
        return 0
    if size < 10_000:
        return sys.maxsize
    if scenario == "converged":
        return sys.maxsize if size < 100_000 else 3
    if size < 100_000:
        return 1 if program == GO else 2
    return int(scenario == "changed" and program in (OWN, BARE))


RULE: Object = rule("bench", HOME, "bench-team-*", ruleType="secret", selector={"matchLabels": {"bench": "yes"}})
WORLD = World(
    name="sync-copies",
    unit="copies",
    sizes=(1_000, 10_000, 100_000),
    prepare=prepare,
    scenarios={"first": first, "converged": converged, "changed": changed},
    programs=PROGRAMS,
    at_most=at_most,
    touched=TOUCHED,
    pairs=((OWN, BARE), (OWN, PLAIN), (OWN, GO), (IN_POD, BARE)),
)
