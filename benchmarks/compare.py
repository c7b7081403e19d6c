"""Measure the programs of a world in turn, on the same real API server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.cluster import BenchCluster, bench_cluster
from benchmarks.measured import Measured, run_once
from tests.apis import real_api

BARE = "bare Python"  # the least client, which each job is compared with
Before = Callable[[BenchCluster, str, int], int]


def always(program: str, scenario: str, size: int) -> int:
    """Return how often to run a program at most: always."""
    return sys.maxsize


@dataclass(frozen=True)
class World:
    """A cluster in which programs do the same work.

    Attributes:
        name: of the job.
        unit: what `sizes` are numbers of, as `pods`.
        prepare: fill a new cluster to a size.
        scenarios: by name, in the order in which they run. Each brings the cluster to the state before the run of a
            program, and returns how many objects the run must write.
        programs: by name, the job first. Each returns a command, which gets KUBECONFIG in its environment.
        at_most: how often a program runs at most, by its name, the scenario and the size; 0 is never.
        controllers: whether kube-controller-manager runs.
        touched: paths of objects in the API, one of each kind with several pages. One is changed before each run, so
            that kube-apiserver has a snapshot of the list in its cache: without a change for five minutes, all pages
            after the first come from etcd, and take ten times as much CPU of the server.
        pairs: programs and those that they are compared with, by default the job with the least client.
    """

    name: str
    unit: str
    sizes: Sequence[int]
    prepare: Callable[[BenchCluster, int], None]
    scenarios: Mapping[str, Before]
    programs: Mapping[str, Callable[[BenchCluster], Sequence[str]]]
    at_most: Callable[[str, str, int], int] = always
    controllers: bool = False
    touched: Sequence[str] = ()
    pairs: Sequence[tuple[str, str]] = ()

    def compared(self) -> Sequence[tuple[str, str]]:
        """Return the pairs of programs that are compared."""
        return self.pairs or [(next(iter(self.programs)), BARE)]


def compare(world: World, runs: int, sizes: Sequence[int] = ()) -> Iterator[Measured]:
    """Run all programs in all scenarios `runs` times at each size, each size in a cluster of its own.

    The k-th runs of two programs are a pair.
    """
    for size in sizes or world.sizes:
        with bench_cluster(controllers=world.controllers) as cluster:
            world.prepare(cluster, size)
            _warm_up(world, cluster, size)
            for number in range(runs):
                for program in rotated(list(world.programs), number):
                    for scenario in world.scenarios:
                        if number < world.at_most(program, scenario, size):
                            measured = measure(world, cluster, program, scenario, size)
                            print_measured(measured, world.unit)
                            yield measured


def measure(world: World, cluster: BenchCluster, program: str, scenario: str, size: int) -> Measured:
    """Run one program once in one scenario. It must write exactly what the scenario requires."""
    cluster.api = real_api(cluster.plane, cluster.folder)  # the server can close a connection that is idle during a run
    expected = world.scenarios[scenario](cluster, program, size)
    for path in world.touched:
        cluster.touch(path)
    env = {"KUBECONFIG": str(cluster.plane.kubeconfig)}
    measured = run_once(world.programs[program](cluster), env, world.name, program, scenario, size)
    assert measured.written == expected, f"{program} wrote {measured.written} in {scenario}, not {expected}"
    return measured


def _warm_up(world: World, cluster: BenchCluster, size: int) -> None:
    """Run the job once in the first scenario that is not too long: a server is slower right after its start."""
    program = next(iter(world.programs))
    scenario = max(world.scenarios, key=lambda name: world.at_most(program, name, size))
    measure(world, cluster, program, scenario, size)


def rotated(programs: list[str], by: int) -> list[str]:
    """Return the programs in a different order for each run: the first program finds the server in another state."""
    by %= len(programs)
    return programs[by:] + programs[:by]


def print_measured(measured: Measured, unit: str) -> None:
    """Print a measurement to stderr, as progress."""
    server = measured.apiserver_cpu_seconds + measured.etcd_cpu_seconds
    figures = (
        f"{measured.seconds:6.2f} s",
        f"{measured.cpu_seconds:5.2f} + {server:5.1f} s CPU",
        f"{measured.peak_mib:4.0f} MiB",
        f"{measured.requests:6} requests",
        f"{measured.received / 1e6:6.1f} MB in",
    )
    head = f"{measured.size:7} {unit}  {measured.scenario:12}  {measured.program:20}"
    print(head, *figures, sep="  ", file=sys.stderr, flush=True)
