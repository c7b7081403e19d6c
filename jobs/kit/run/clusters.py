"""Several clusters in one run, some at once: each has a connection, an end and results of its own.

A cluster that does not answer, or answers without an end, takes none of the time of the others: it has a thread, and
the number of its objects is limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NamedTuple, TypeAlias, TypeVar

from msgspec import structs

from jobs.kit.api.cluster import Cluster
from jobs.kit.api.endpoint import Endpoint
from jobs.kit.api.memory import Memory, Share
from jobs.kit.api.responses import Traffic
from jobs.kit.api.transport import REQUEST_SECONDS, RETRY_SECONDS, Transport
from jobs.kit.run import log, report
from jobs.kit.run.job import Job
from jobs.kit.run.runner import Run
from jobs.kit.run.session import user_agent
from jobs.kit.values.errors import ChoresError, StoppedError
from jobs.kit.values.hidden import Forms, Messages
from jobs.kit.values.model import Body, Brake, DesiredCounts, Result, RunOptions
from jobs.kit.values.stamps import MANAGER

AT_ONCE = 8
ASKED_AT_ONCE = 32  # for one small request each
ASK_SECONDS = 10.0  # no cluster is visited before each was asked
CLUSTER_SECONDS = 240.0
RUN_SECONDS = 540.0  # less than the deadline of the CronJob
MOST_OBJECTS = 200_000  # of one list: a cluster that sends more is broken, or wants the memory of the run

_SENT = Body()

T = TypeVar("T")
InCluster: TypeAlias = Callable[[str, Cluster, Callable[[], bool]], T]
Answers: TypeAlias = Iterator[tuple[str, T | ChoresError]]


class NotStartedError(ChoresError):
    """The run had no time left for a cluster."""

    def __init__(self) -> None:
        super().__init__(f"not read: the run had ended after {RUN_SECONDS:g} seconds; the next run begins with it")


class TimedOutError(ChoresError):
    """A cluster had not answered everything at its end."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"not complete within {seconds:g} seconds; the next run continues")


class Visited(NamedTuple):
    """What a run did in one cluster. `summary` is what the job keeps of what it observed there."""

    results: Sequence[Result]
    unchanged: int
    desired: DesiredCounts
    facts: Mapping[str, int]
    brakes: Sequence[Brake]
    summary: Any
    is_complete: bool


@dataclass(frozen=True)
class Clusters:
    """The connections of a run to other clusters. `stopping`: whether a signal stopped it; `end` is on monotonic().

    `secrets` are the values that no message of a cluster may show.
    """

    command: str
    options: RunOptions
    stopping: Callable[[], bool]
    end: float
    traffic: Traffic
    secrets: Callable[[], Forms]
    _memory: Memory = field(init=False, default_factory=Memory)

    def ask(self, endpoints: Mapping[str, Endpoint], body: InCluster[T]) -> Answers[T]:
        """Do the same as `each`, for one request that must have its answer within seconds."""
        return self._each(endpoints, body, ASKED_AT_ONCE, ASK_SECONDS)

    def each(self, endpoints: Mapping[str, Endpoint], body: InCluster[T]) -> Answers[T]:
        """Call `body` with the name of each cluster, the cluster, and whether its time is over; in no order.

        Yield the names with the results, or the errors that `body` raised.
        """
        return self._each(endpoints, body, AT_ONCE, CLUSTER_SECONDS)

    def _each(self, endpoints: Mapping[str, Endpoint], body: InCluster[T], at_once: int, seconds: float) -> Answers[T]:
        with ThreadPoolExecutor(at_once) as threads:
            waiting = {threads.submit(self._call, body, name, each, seconds): name for name, each in endpoints.items()}
            with report.progress(self.command, len(waiting), self.options, what="clusters") as progress:
                for each in as_completed(waiting):
                    result, traffic = each.result()
                    self.traffic.add(traffic)
                    progress(1)
                    yield waiting.pop(each), result

    def _call(
        self, body: InCluster[T], name: str, endpoint: Endpoint, seconds: float
    ) -> tuple[T | ChoresError, Traffic]:
        begin, share, is_kept = monotonic(), Share(self._memory), False
        if begin > self.end and not self.stopping():
            return NotStartedError(), Traffic()
        end = min(begin + seconds, self.end)

        def is_over() -> bool:
            return self.stopping() or monotonic() > end

        transport = Transport(
            endpoint,
            user_agent(self.command),
            stopping=is_over,
            request_seconds=min(seconds, REQUEST_SECONDS),
            retry_seconds=min(seconds, RETRY_SECONDS),
            unreached_seconds=0.0,
            message=Messages(self.secrets),
        )
        try:
            found = body(name, Cluster(transport, MANAGER, most_objects=MOST_OBJECTS, share=share), is_over)
            is_kept = True
            return found, transport.traffic
        except StoppedError as error:
            return error if self.stopping() else TimedOutError(seconds), transport.traffic
        except ChoresError as error:
            return error, transport.traffic
        except Exception as error:  # a mistake in this program must not hide, and not end the run of the others
            log.log.exception("cluster %s", name)
            return ChoresError(f"internal error: {type(error).__name__}; see the log"), transport.traffic
        finally:
            transport.close()
            share.release(findings=not is_kept)


def visit(
    name: str,
    job: Job[Any, Any, Any],
    cluster: Cluster,
    settings: Any,
    options: RunOptions,
    is_over: Callable[[], bool],
    namespace: str,
) -> Visited:
    """Run all phases in a cluster, and return what is left to report. `namespace` is that of the operator.

    Raises:
        ChoresError: something could not be read that is necessary; nothing was written.
    """
    run = Run(job, cluster, settings, options, is_over, namespace, is_quiet=True)
    plan, results = run.execute()
    assert job.summary
    return Visited(
        [structs.replace(_without_body(each), cluster=name) for each in results],
        plan.unchanged,
        plan.desired,
        plan.summary.facts,
        [
            each._replace(message=f"cluster {name}: {each.message}", only=(*each.only, "--clusters", name))
            for each in plan.brakes
        ],
        job.summary(run.observed, settings, plan, results),
        not is_over(),
    )


def _without_body(result: Result) -> Result:
    """Return the result without the body of its write: else the copies of all clusters stay in memory."""
    finding = result.finding
    if finding.change is None:
        return result
    change = structs.replace(finding.change, body=_SENT)
    return structs.replace(result, finding=structs.replace(finding, change=change))
