"""One command's connection to an API server, the signals that stop it, and messages about that server.

What prevents a connection becomes a message and an exit code. A signal stops a run: requests in flight are answered,
and no other is sent.
"""

from __future__ import annotations

import gc
import secrets
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from itertools import chain
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING

from msgspec import Struct, field

from jobs import __version__
from jobs.kit.api.cluster import Cluster
from jobs.kit.api.connect import Connection, connect
from jobs.kit.api.responses import error_of, what_to_check
from jobs.kit.api.transport import RETRY_SECONDS, Transport
from jobs.kit.run import log
from jobs.kit.run.flags import variable
from jobs.kit.values.errors import ChoresError, ConfigurationError, UnreachableError
from jobs.kit.values.model import Brake, DryRun, ExitCode, Result, RunOptions
from jobs.kit.values.resources import NAMESPACES
from jobs.kit.values.stamps import MANAGER
from jobs.kit.values.text import Lines, visible

if TYPE_CHECKING:
    from jobs.kit.run.gauges import Sample

# The default of terminationMessagePath: kubelet mounts it into each container, writable.
# https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
TERMINATION_LOG = Path("/dev/termination-log")


_UNREACHED_SECONDS = 2.0  # with a user at a terminal: how long to retry an API server that accepts no connection


class Stop:
    """Whether a signal stopped the run, and its exit code. The transport calls it before each request."""

    exit_code: ExitCode | None = None
    _is_announced = True

    def __call__(self) -> bool:
        """Return whether the run is stopped, and log it once."""
        if not self._is_announced:
            self._is_announced = True
            if sys.stderr.isatty():
                sys.stderr.write("\n")  # ends the line on which the terminal shows ^C
            log.log.info("stopping: waiting for answers to requests in flight; press Ctrl-C again to stop at once")
        return self.exit_code is not None

    def terminate(self, _signal: int, _frame: FrameType | None) -> None:
        """Stop with the exit code of SIGTERM."""
        self.exit_code = ExitCode.STOPPED

    def interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        """Stop with the exit code of SIGINT; the second time, end at once."""
        if self.exit_code is ExitCode.INTERRUPTED:
            raise SystemExit(ExitCode.INTERRUPTED)
        self.exit_code = ExitCode.INTERRUPTED
        self._is_announced = False  # __call__ logs it: a signal handler may interrupt the writing of a message


@contextmanager
def stopped_by_signals() -> Iterator[Stop]:
    """Yield a Stop that SIGTERM and SIGINT set."""
    stop = Stop()
    before = [signal.signal(signal.SIGTERM, stop.terminate), signal.signal(signal.SIGINT, stop.interrupt)]
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])


class Session(Struct, frozen=True):
    """The API server of a command, and whether a signal stopped the command."""

    connection: Connection
    options: RunOptions
    transport: Transport
    stopping: Stop

    @property
    def namespace(self) -> str:
        """The namespace that was given, or that of the pod or the context."""
        return self.options.namespace or self.connection.namespace

    def cluster(self, writes_per_second: float | None = None) -> Cluster:
        """Return the cluster, for a job that may start so many writes in a second; None: no limit."""
        return Cluster(self.transport, MANAGER, writes_per_second)


class Measured(Struct):
    """What a run leaves for its metrics and for the status of its pod: less if it fails early.

    - `started`: on time.monotonic.
    - `gauges`, `results`: the metrics and the results of a complete run; None: it is not complete.
    - `message`: lines for the status of the pod, if the run succeeds.
    """

    started: float = field(default_factory=monotonic)
    session: Session | None = None
    gauges: Callable[[], Iterable[Sample]] = tuple
    results: Sequence[Result] | None = None
    message: list[str] = field(default_factory=list)

    def report_to_pod(self) -> None:
        """Write the message of the pod's status; a pod without that file has none."""
        if self.message and self.session and self.session.connection.pod_namespace:
            with suppress(OSError), TERMINATION_LOG.open("r+", encoding="utf-8") as file:
                file.write("\n".join(self.message))


@cache  # once a process: a second time would keep what an earlier run left behind
def _freeze_modules() -> None:
    """Let the garbage collector pass over what was imported, which stays until the end of the process."""
    gc.freeze()


def in_session(command: str, options: RunOptions, body: Callable[[Session], ExitCode]) -> ExitCode:
    """Call `body` with a connection and return its exit code; log an error and return the code of it."""
    _freeze_modules()
    with stopped_by_signals() as stopping:
        try:
            connection = connect(
                options.kubeconfig, options.context, as_user=options.as_user, as_groups=options.as_group
            )
            transport = create_transport(command, connection, stopping)
            return body(Session(connection, options, transport, stopping))
        except UnreachableError as error:
            log.log.error("%s", unreachable_message(connection, error))
            return stopping.exit_code or error.exit_code
        except ChoresError as error:
            log.log.error(error.lines())
            return stopping.exit_code or error.exit_code


def user_agent(job: str) -> str:
    """Return the User-Agent header of a job's requests."""
    return f"kube-chores/{__version__} ({job})"


def create_transport(job: str, connection: Connection, stopping: Callable[[], bool]) -> Transport:
    """Return the transport to the API server. At a terminal, it gives up on an unreachable server sooner."""

    def announce(error: str) -> None:
        log.log.warning("%s: the run tries again for %g seconds", error, RETRY_SECONDS)

    if sys.stderr.isatty():
        return Transport(connection.endpoint, user_agent(job), stopping=stopping, unreached_seconds=_UNREACHED_SECONDS)
    return Transport(connection.endpoint, user_agent(job), stopping=stopping, on_unreached=announce)


def check_namespace(cluster: Cluster, connection: Connection, options: RunOptions) -> None:
    """Check that the namespace that was given exists. A run without the right to get it continues.

    Raises:
        ConfigurationError: the namespace does not exist.
    """
    own = connection.namespace if connection.in_pod else None
    if options.filenames or options.namespace in (None, own):  # resources of files need no namespace
        return
    for response in cluster.read([(NAMESPACES, "", options.namespace, False)]):
        error = error_of(response)
        if error and error.is_missing_namespace:
            raise ConfigurationError(f"namespace {options.namespace} does not exist; check --namespace")


def log_target(name: str, connection: Connection, options: RunOptions) -> None:
    """Log the context and the server that a run outside of a pod writes to."""
    if options.dry_run is DryRun.NONE and not connection.in_pod:
        acting = f", as user {connection.as_user}" if connection.as_user else ""
        log.log.info("%s: writing to context %s, %s%s", name, connection.context, connection.endpoint.server, acting)


def unreachable_message(connection: Connection, error: UnreachableError) -> str:
    """Return why there is no connection, and what to check."""
    check = what_to_check(str(error))
    if connection.in_pod:
        check = check or "check that network policies let this pod reach the API server"
        return f"no connection to the cluster: {error}; {check}"
    check = check or "check that the cluster is running, that the context is correct, and check the VPN or proxy"
    which = f"the cluster of context {connection.context}" if connection.endpoint.server in str(error) else "a cluster"
    return f"no connection to {which}: {error}; {check}"


def clock_message(ahead: timedelta) -> str:
    """Return that the clock of this machine is wrong, and what a run does."""
    word = "ahead of" if ahead > timedelta() else "behind"
    difference = timedelta(seconds=round(abs(ahead).total_seconds()))
    return f"the clock of this machine is {difference} {word} that of the API server, which the run uses; correct it"


def brake_message(job: str, cronjob: str, brake: Brake, connection: Connection, options: RunOptions) -> Lines:
    """Return what a brake blocked, and the command that allows it in one run."""
    chosen = [(brake.option, brake.value), *zip(brake.only[::2], brake.only[1::2], strict=True)]
    if connection.in_pod:
        name = f"{cronjob}-lift-{secrets.token_hex(3)}"
        variables = " ".join(f"{variable(option)}={value}" for option, value in chosen)
        command = (
            f"kubectl create job {name} --from=cronjob/{cronjob} -n {connection.namespace}"
            f" --dry-run=client -o yaml | kubectl set env --local -f - {variables} -o yaml"
            " | kubectl create -f -"
        )
    else:
        # The kubeconfig's current context may change before the command runs.
        context = ["--context", connection.context] if connection.context and not options.context else []
        given = [part for words in options.given if words[0] not in dict(chosen) for part in words]
        command = shlex.join(["chores", job, *given, *context, *chain.from_iterable(chosen)])
    return Lines(f"{visible(brake.message)}; if the blocked change is intended, run once:\n  {visible(command)}")
