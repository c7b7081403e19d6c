"""Measure sync-copies --clusters: 20 clusters of 500 namespaces, 20 local runs of that size, and one large cluster.

Each cluster is an embedded server with TLS in a fork of this process: the CPU of servers is not that of a run, and a
fork has the objects of its template at once.
"""

from __future__ import annotations

import gc
import itertools
import json
import multiprocessing
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import yaml

from benchmarks.compare import print_measured, rotated
from benchmarks.measured import Measured, figures_of, run_process, server_cpu
from benchmarks.tables import CLIENT, MIB, REQUESTS, SECONDS, row, spread, table
from benchmarks.worlds.sync_copies import HOME, PERMISSIONS, RULE, SOURCES, chores, source, team, value
from kubesandbox import Sandbox
from tests.apis import Api, Object, sandbox_api
from tests.manifests import ROOT, load, without_more_copies
from tests.worlds import encoded, namespace_object, secret

NAMESPACES, CLUSTERS = 500, 20
AT_ONCE, ONE_BY_ONE, LOCAL, LARGE = "clusters", "clusters, 1 at once", "local runs", "one large cluster"
FIRST, CONVERGED, CHANGED = "first", "converged", "changed"
SHOWN = (SECONDS, CLIENT._replace(digits=2), MIB, REQUESTS)
FORKS = multiprocessing.get_context("fork")
# Run a job with another number of clusters at once.
WITH_AT_ONCE = """
import sys
from jobs.kit.run import clusters
clusters.AT_ONCE = int(sys.argv.pop(1))
from jobs.__main__ import main
main(sys.argv[1:])
"""
_numbers = itertools.count()


def serve(sandbox: Sandbox) -> None:
    """Serve in this process until its parent ends."""
    sandbox.start()
    parent = multiprocessing.parent_process()
    assert parent
    parent.join()


@dataclass
class Servers:
    """Servers in forks of this process, until the context ends."""

    folder: Path
    started: list[BaseProcess] = field(default_factory=list)

    def __enter__(self) -> Servers:
        gc.freeze()  # else each fork would copy what the garbage collector marks
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.started:
            each.terminate()
            each.join()

    def start(self, sandbox: Sandbox) -> Api:
        """Serve a sandbox."""
        process = FORKS.Process(target=serve, args=(sandbox,), daemon=True)
        process.start()
        self.started.append(process)
        return api_of(sandbox, self.folder)


def api_of(sandbox: Sandbox, folder: Path) -> Api:
    """Return the API of a sandbox, with files in a folder of its own."""
    own = folder / str(next(_numbers))
    own.mkdir()
    return sandbox_api(sandbox, own)


class Templates(NamedTuple):
    """What clusters begin with: the hub, a spoke without and with copies, and a large cluster."""

    hub: Sandbox
    small: Sandbox
    converged: Sandbox
    large: Sandbox


def templates(folder: Path, namespaces: int, clusters: int) -> Templates:
    """Create the templates. The fingerprints of copies depend on the uids of the sources in the hub."""
    small, large = (sandbox_of(folder, objects(number)) for number in (namespaces, namespaces * clusters))
    hub = Sandbox(of=sandbox_of(folder, [*objects(0), *sources(), rule_of(clusters={"names": ["*"]})]), tls=True)
    converged = Sandbox(of=small, tls=True)
    with Servers(folder) as servers:
        fleet = Fleet(servers.start(hub), [])
        with converged:
            fleet.enlist(api_of(converged, folder))
            fleet.run(AT_ONCE, FIRST, SOURCES * namespaces)
    return Templates(hub, small, converged, large)


def sandbox_of(folder: Path, content: Iterable[Object]) -> Sandbox:
    """Return a sandbox with these objects, which is not served any more."""
    with Sandbox() as sandbox:
        api = api_of(sandbox, folder)
        for each in content:
            api.put(each)
    return sandbox


def objects(namespaces: int) -> Iterator[Object]:
    """Yield the CRDs, the accounts, and namespaces that receive copies."""
    yield from load(ROOT / "cronjobs" / "crds")
    yield from map(namespace_object, ("kube-chores", HOME))
    yield from (
        each
        for each in without_more_copies()
        if each["kind"] in PERMISSIONS and "sync-copies" in each["metadata"]["name"]
    )
    yield from (namespace_object(team(number)) for number in range(namespaces))


def sources() -> Iterator[Object]:
    """Yield the sources, with new values."""
    for number in range(SOURCES):
        yield secret(HOME, source(number), labels={"bench": "yes"}, data={"key": encoded(value())})


def rule_of(**targets: Any) -> Object:
    """Return the rule, with more fields of `spec.targets`."""
    spec: Object = RULE["spec"]
    return {**RULE, "spec": {**spec, "targets": {**spec["targets"], **targets}}}


@dataclass
class Fleet:
    """A hub and the clusters of its inventory."""

    hub: Api
    spokes: list[Api]

    def enlist(self, spoke: Api) -> None:
        """Add a cluster to the inventory, with the account that is made for a hub."""
        name = f"cluster-{len(self.spokes):02}"
        self.spokes.append(spoke)
        made = secret("kube-chores", name, labels={"kubechores.dev/cluster": "true"}, stringData=kubeconfig(spoke))
        self.hub.call("POST", "/api/v1/namespaces/kube-chores/secrets", made)

    def run(self, program: str, scenario: str, written: int) -> Measured:
        """Run sync-copies for all clusters, which must write so many objects."""
        at_once = "1" if program == ONE_BY_ONE else "8"
        command = chores("sync-copies", *_options("--clusters", "*"), python=("-c", WITH_AT_ONCE, at_once))
        account = self.hub.service_account_kubeconfig("kube-chores", "sync-copies-clusters")
        return measured(program, scenario, len(self.spokes), command, [account], written)


def kubeconfig(spoke: Api) -> dict[str, str]:
    """Return the data of the Secret of a cluster."""
    assert spoke.ca_file
    token = spoke.service_account_token("kube-chores", "sync-copies-hub")
    cluster = {"server": spoke.url, "certificate-authority-data": encoded(spoke.ca_file.read_text())}
    config = {
        "clusters": [{"name": "spoke", "cluster": cluster}],
        "users": [{"name": "hub", "user": {"token": token}}],
        "contexts": [{"name": "spoke", "context": {"cluster": "spoke", "user": "hub"}}],
    }
    return {"value": yaml.safe_dump(config)}


def local_run(program: str, scenario: str, clusters: int, api: Api, times: int, written: int) -> Measured:
    """Run sync-copies in a cluster with rules of its own so many times, one after another."""
    account = api.service_account_kubeconfig("kube-chores", "sync-copies")
    command = chores("sync-copies", *_options())
    return measured(program, scenario, clusters, command, times * [account], written)


def _options(*arguments: str) -> list[str]:
    return ["-n", "kube-chores", *arguments]


def measured(
    program: str, scenario: str, size: int, command: Sequence[str], accounts: Sequence[Path], written: int
) -> Measured:
    """Run a command once with each kubeconfig; return the sums of its figures, and the highest peak of memory."""
    before = sum(server_cpu().values())
    ran = [run_process(command, {"KUBECONFIG": str(each)}) for each in accounts]
    of_servers = sum(server_cpu().values()) - before
    figures = Counter[str]()
    for each in ran:
        assert each.exit_code == 0, each.stderr + each.stdout.decode()[-2000:]
        figures.update(figures_of(json.loads(each.stdout)))
    assert figures["written"] == written, f"{program} wrote {figures['written']} in {scenario}, not {written}"
    seconds, cpu = sum(each.seconds for each in ran), sum(each.cpu_seconds for each in ran)
    peak = max(each.peak_mib for each in ran)
    found = Measured("clusters", program, scenario, size, seconds, cpu, of_servers, 0.0, peak, **figures)
    print_measured(found, "clusters")
    return found


def measure(runs: int, namespaces: int = NAMESPACES, clusters: int = CLUSTERS) -> list[dict[str, Any]]:
    """Return the figures of all runs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = templates(folder, namespaces, clusters)
        found = [*compared(folder, made, runs, namespaces, clusters)]
        for number in sorted({1, min(8, clusters), 2 * clusters} - {clusters}):
            with Servers(folder) as servers:
                fleet = fleet_of(servers, made.hub, made.converged, number)
                found += [fleet.run(AT_ONCE, CONVERGED, 0) for _ in range(3)][1:]  # the first writes statuses
    return [asdict(each) for each in found]


def fleet_of(servers: Servers, hub: Sandbox, spoke: Sandbox, number: int) -> Fleet:
    """Start a hub and clusters."""
    fleet = Fleet(servers.start(hub), [])
    for _ in range(number):
        fleet.enlist(servers.start(Sandbox(of=spoke, tls=True)))
    return fleet


def compared(folder: Path, made: Templates, runs: int, namespaces: int, clusters: int) -> Iterator[Measured]:
    """Measure the programs in turn."""
    copies = SOURCES * namespaces
    with Servers(folder) as servers:
        fleet = fleet_of(servers, made.hub, made.small, clusters)
        small, large = (servers.start(Sandbox(of=each, tls=True)) for each in (made.small, made.large))
        for api in (small, large):
            for each in (*sources(), rule_of()):
                api.put(each)
        programs = {
            AT_ONCE: lambda scenario, written: fleet.run(AT_ONCE, scenario, written),
            LARGE: lambda scenario, written: local_run(LARGE, scenario, 1, large, 1, written),
            LOCAL: lambda scenario, written: local_run(LOCAL, scenario, clusters, small, clusters, written),
            ONE_BY_ONE: lambda scenario, written: fleet.run(ONE_BY_ONE, scenario, written),
        }
        yield from (programs[name](FIRST, clusters * copies) for name in (AT_ONCE, LARGE))
        local_run(LOCAL, FIRST, 1, small, 1, copies)
        for number in range(runs):
            for name in rotated(list(programs), number):
                yield programs[name](CONVERGED, 0)
        for api in (fleet.hub, large):
            for each in sources():
                api.put(each)
        yield from (programs[name](CHANGED, clusters * copies) for name in (AT_ONCE, LARGE))


def rows(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Return a row for each scenario and number of clusters: medians, and the ratio of pairs to local runs."""
    groups: dict[tuple[str, str, int], list[Measured]] = {}
    for each in (Measured(**each) for each in runs):
        groups.setdefault((each.scenario, each.program, each.size), []).append(each)
    ((clusters, local),) = ((size, several) for (_, program, size), several in groups.items() if program == LOCAL)
    found = table("run", *(each.name for each in SHOWN), "time ratio")
    for (scenario, program, size), several in groups.items():
        if scenario != CONVERGED and program == LARGE:
            continue
        is_pair = scenario == CONVERGED and size == clusters and program != LOCAL
        ratios = [one.seconds / other.seconds for one, other in zip(several, local, strict=True)] if is_pair else []
        what = program if program == LARGE else f"{size} {program.removesuffix('s') if size == 1 else program}"
        figures = (f"{median(map(each.of, several)):,.{each.digits}f}" for each in SHOWN)
        found.append(row(f"{scenario}: {what}", *figures, spread(ratios, 2) if ratios else "-"))
    return found


if __name__ == "__main__":
    print("\n".join(rows(measure(*map(int, sys.argv[1:])))))
