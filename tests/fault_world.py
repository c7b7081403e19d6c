"""Runs of a job in embedded clusters that kill, disturb and delay it, and the worlds that jobs contribute for that."""

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from unittest import mock

from click.testing import CliRunner

from jobs.__main__ import chores
from jobs.kit.api.connect import Connection
from jobs.kit.api.endpoint import Endpoint
from jobs.kit.run import session
from kubesandbox import Fault, Request, Sandbox
from tests.api.conftest import Ran
from tests.apis import Api

Object = dict[str, Any]
Key = tuple[str, str, str]  # plural, namespace, name
State = dict[Key, Object]


@dataclass(frozen=True)
class World:
    """An embedded cluster that is being served, and the job that runs in it."""

    sandbox: Sandbox
    job: str
    env: Mapping[str, str] = field(default_factory=dict)

    def run(self, *arguments: str, input: bytes | None = None) -> Ran:
        """Run the job as the admin, without the detour over a kubeconfig: that is most of a small run's time."""
        endpoint = Endpoint(self.sandbox.url, lambda: f"Bearer {self.sandbox.admin_token}")
        connection = Connection(endpoint, "kube-chores", "sandbox", pod_namespace="kube-chores")
        with mock.patch.object(session, "connect", return_value=connection):
            done = CliRunner().invoke(chores, [self.job, "-o", "json", *arguments], env=self.env, input=input)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Ran(done.exit_code, done.stdout, done.stderr)

    def run_killed(self, number: int, when: str) -> bool:
        """Run the job in a process that dies by SIGKILL at its request `number`: before or after that is handled.

        Return whether it did: a run with fewer requests ends by itself.
        """
        return killed(self.run, self.sandbox, number, when)

    @contextmanager
    def run_elsewhere(self) -> Iterator[Callable[[], None]]:
        """Yield a function that runs the job in a process of its own, from beginning to end."""
        with elsewhere(self.run) as other:

            def run() -> None:
                assert other.ran() == 0, "the run in a process of its own ended with an exception"

            yield run

    def requests(self) -> list[Request]:
        """The requests of the job so far."""
        return [each for each in self.sandbox.requests if each.user_agent.startswith("kube-chores")]

    def writes(self) -> list[Request]:
        """Those requests that change something; not an Event that exists."""
        sent = filter(is_write, self.requests())
        return [each for each in sent if not (each.path.endswith("/events") and each.status == 409)]

    def stored(self, plural: str, group: str = "", version: str = "v1") -> State:
        """All objects of a resource, whole, as the embedded cluster stores them."""
        cluster = self.sandbox.cluster
        resource = cluster.find(group, version, plural)
        assert resource
        with cluster.store.lock:
            return {(plural, each.namespace, each.name): each.obj for each in cluster.store.items(resource)}


@dataclass(frozen=True)
class FaultWorld:
    """A cluster in which one run of a job sends each kind of its requests; tests/sandbox/test_every_fault.py sweeps it.

    `build` creates the objects in a cluster with our manifests and returns the environment of the command. Both last
    as long as its context. `state` returns what a run must produce, without uids and times, and `untouched` what no run
    may change. `exit_code`, `summary` and `sent` are those of a run that nothing disturbs:
    `sent` are the verbs and resources of its requests, as in RBAC rules, `create secrets (dry run)` where the server
    only checks. `codes_after_401` are the exit codes of a run that was not authorized once, which no retry helps. A job
    that `reads_again` reads everything after each step: such reads are disturbed once. With `independent_writes` each
    object is written whatever becomes of the others. `disturbs` are the resources whose requests are disturbed, if
    another world of the job has the others; None: all. `read_singly` are the resources whose objects a run reads one by
    one if a list of whole objects fails. The API of `optional` resources need not be installed. `read_by_name` are the
    names of objects that each run reads with one request. After this number of `runs` nothing is left to write.
    """

    name: str
    job: str
    build: Callable[[Api], AbstractContextManager[Mapping[str, str]]]
    state: Callable[[World], State]
    untouched: Callable[[World], State]
    summary: Mapping[str, int]
    sent: frozenset[str]
    exit_code: int = 0
    codes_after_401: frozenset[int] = frozenset({2})
    reads_again: bool = False
    independent_writes: bool = True
    disturbs: frozenset[str] | None = None
    read_singly: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    read_by_name: frozenset[str] = frozenset()
    runs: int = 1

    def __str__(self) -> str:
        return self.name

    def end(self, cluster: World) -> State:
        """Return the state after the runs that follow the first one."""
        for _ in range(self.runs - 1):
            cluster.run()
        return self.state(cluster)

    @property
    def writes(self) -> bool:
        """Whether a run writes anything."""
        return any(each.split()[0] not in ("list", "get") for each in self.sent)


def kinds(**resources: str) -> frozenset[str]:
    """The kinds of requests of `FaultWorld.sent`: resources by verb, `list="pods nodes"`."""
    return frozenset(f"{verb} {each}" for verb, named in resources.items() for each in named.split())


@dataclass(frozen=True)
class Built:
    """A world that was built, and a run of its job that nothing disturbs."""

    world: FaultWorld
    template: Sandbox
    env: Mapping[str, str]
    trace: Sequence[Request]
    end: State

    def serve(self) -> AbstractContextManager[World]:
        """A cluster of its own that begins as the world was built."""
        return served(self.template, self.world.job, self.env)

    def to_disturb(self) -> list[int]:
        """The numbers of the requests to disturb: all, or without reads that were there before."""
        reads: set[tuple[str, bool]] = set()
        found = []
        for number, each in enumerate(self.trace):
            read = (each.path, "continue" in each.query)
            if self.is_disturbed(each) and not (self.world.reads_again and each.method == "GET" and read in reads):
                found.append(number)
            reads.add(read)
        return found

    def is_disturbed(self, request: Request) -> bool:
        """Whether the sweeps of this world disturb the request."""
        return self.world.disturbs is None or resource_of(request) in self.world.disturbs

    def writes(self) -> list[int]:
        """The numbers of the writes. To kill a run before or after a read is to kill it before the next write."""
        return [number for number, each in enumerate(self.trace) if self.is_disturbed(each) and is_write(each)]

    def name(self, number: int) -> str:
        """A request as failures show it."""
        return f"request {number}, {self.trace[number].method} {self.trace[number].path}"


@contextmanager
def served(template: Sandbox, job: str, env: Mapping[str, str] | None = None) -> Iterator[World]:
    """A world of its own that begins as `template` was left."""
    with Sandbox(of=template) as sandbox:
        yield World(sandbox, job, env or {})


def is_write(request: Request) -> bool:
    """Whether a request changes something: a question for the own rights is a POST that does not."""
    return request.method != "GET" and not resource_of(request).endswith("reviews")


def resource_of(request: Request) -> str:
    """The resource of a request, with its subresource."""
    parts = request.path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    parts = parts[2:] if parts[0] == "namespaces" and len(parts) > 2 else parts
    return "/".join(parts[::2])


def differing(one: State, other: State) -> list[Key]:
    """The objects in which two states differ."""
    return sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))


def status_of(obj: Object) -> Object:
    """The status of a custom resource, without the times of its conditions."""
    status = dict(obj.get("status", {}))
    found = [{**each, "lastTransitionTime": ""} for each in status.pop("conditions", [])]
    return {**status, "conditions": found}


def metadata(obj: Object, *names: str) -> Object:
    """These fields of an object's metadata, absent ones as None."""
    return {name: obj["metadata"].get(name) for name in names}


def killed(call: Callable[[], object], sandbox: Sandbox, number: int, when: str) -> bool:
    """Make `call` in a process that dies by SIGKILL at its request `number`: before or after that is handled.

    Return whether it did: a call with fewer requests ends by itself.
    """
    with elsewhere(call) as other:
        sandbox.inject(Fault(kind="call-before" if when == "before" else "call-after", call=other.kill, skip=number))
        sandbox.inject(Fault(kind="reset-before" if when == "before" else "reset-after", skip=number))
        status = other.ran()
    sandbox.clear_faults()
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


@dataclass(frozen=True)
class Elsewhere:
    """A copy of this process that waits for `opener`, a pipe."""

    pid: int
    opener: int

    def ran(self) -> int:
        """Let it begin, and wait for its end; return its wait status, whose exit code is 1 if the call raised."""
        os.write(self.opener, b".")
        return os.waitpid(self.pid, 0)[1]

    def kill(self) -> None:
        """End it by SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)


@contextmanager
def elsewhere(call: Callable[[], object]) -> Iterator[Elsewhere]:
    """Make `call` in a copy of this process, once that is let begin. `ran()` must be called once, or not at all.

    It is copied before: in the midst of a run, a thread may hold a lock of OpenSSL, which stays locked in the copy.
    """
    gate, opener = os.pipe()
    _wait_for_ended_threads()
    with warnings.catch_warnings():
        # Newer Pythons warn of threads that hold locks: the child uses nothing of the embedded cluster's.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        code = 1
        try:
            os.close(opener)
            if os.read(gate, 1):
                call()
            code = 0
        finally:
            os._exit(code)
    os.close(gate)
    try:
        yield Elsewhere(child, opener)
    finally:
        os.close(opener)
        with suppress(ChildProcessError):  # it has ended, and was waited for
            os.waitpid(child, 0)


def _wait_for_ended_threads() -> None:
    """Wait for threads that Python has forgotten, but which still end: they may hold a lock of OpenSSL."""
    end = monotonic() + 60
    while left := threads() - {str(each.native_id) for each in threading.enumerate()} - _NOT_OF_PYTHON:
        assert monotonic() < end, f"threads that Python does not know: {sorted(left)}"
        sleep(0.001)


def threads() -> set[str]:
    """The threads of this process, as the kernel knows them."""
    return {each.name for each in Path("/proc/self/task").iterdir()}


_NOT_OF_PYTHON = threads() - {str(each.native_id) for each in threading.enumerate()}
