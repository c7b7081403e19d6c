"""One command's connection to an API server. What prevents it becomes a message and an exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from jobs.kit.api.cluster import Cluster
from jobs.kit.api.connect import Connection, connect
from jobs.kit.api.transport import Transport
from jobs.kit.run import log, target
from jobs.kit.run.stop import Stop, stopped_by_signals
from jobs.kit.values.errors import ChoresError, UnreachableError
from jobs.kit.values.model import ExitCode, RunOptions
from jobs.kit.values.stamps import MANAGER

if TYPE_CHECKING:
    from jobs.kit.values.metrics import Sample

# The default of terminationMessagePath: kubelet mounts it into each container, writable.
# https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
TERMINATION_LOG = Path("/dev/termination-log")


@dataclass(frozen=True)
class Session:
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


@dataclass
class Measured:
    """What a run leaves for its metrics and for the status of its pod: less if it fails early.

    - `started`: on time.monotonic.
    - `gauges`: the metrics of a complete run.
    - `message`: lines for the status of the pod, if the run succeeds.
    """

    started: float = field(default_factory=monotonic)
    session: Session | None = None
    gauges: Callable[[], Iterable[Sample]] = tuple
    message: list[str] = field(default_factory=list)

    def report_to_pod(self) -> None:
        """Write the message of the pod's status; a pod without that file has none."""
        if self.message and self.session and self.session.connection.pod_namespace:
            with suppress(OSError), TERMINATION_LOG.open("r+", encoding="utf-8") as file:
                file.write("\n".join(self.message))


def in_session(command: str, options: RunOptions, body: Callable[[Session], ExitCode]) -> ExitCode:
    """Call `body` with a connection and return its exit code; log an error and return the code of it."""
    with stopped_by_signals() as stopping:
        try:
            connection = connect(
                options.kubeconfig, options.context, as_user=options.as_user, as_groups=options.as_group
            )
            transport = target.create_transport(command, connection, stopping)
            return body(Session(connection, options, transport, stopping))
        except UnreachableError as error:
            log.log.error("%s", target.unreachable_message(connection, error))
            return stopping.exit_code or error.exit_code
        except ChoresError as error:
            log.log.error(error.lines())
            return stopping.exit_code or error.exit_code
