"""Send the metrics of a run to a Prometheus Pushgateway or to a file. Imported only if a run does so.

A failure is a warning: it changes neither the exit code nor the report. After a success, the status of the pod has it.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from types import MappingProxyType

from prometheus_client import generate_latest, push_to_gateway, pushadd_to_gateway
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from jobs.kit import web
from jobs.kit.api.endpoint import read_limited
from jobs.kit.run import log, results
from jobs.kit.run.gauges import KEPT, Metric, Sample, is_working, of_end, of_traffic
from jobs.kit.run.session import Measured, Stop, user_agent
from jobs.kit.values.model import DryRun, ExitCode, RunOptions
from jobs.kit.values.reads import NOT_FETCHED
from jobs.kit.values.text import without_credentials

PUSH_SECONDS = 5.0
_STOPPED_PUSH_SECONDS = 3.0  # a pod has 10 seconds to end, and requests to the API server may take 4 of them
_STOPPED = (ExitCode.INTERRUPTED, ExitCode.STOPPED)


class _NotSentError(Exception):
    """Why metrics were not sent."""


class Families(Collector):
    """Samples as Prometheus metrics, with the labels `chore` and `installation`."""

    def __init__(self, samples: Iterable[Sample], chore: str, installation: str) -> None:
        self._labels = {"chore": chore, "installation": installation}
        self._values: dict[Metric, dict[tuple[str, ...], float]] = {}
        for each in samples:
            values = self._values.setdefault(each.metric, {})
            values[each.labels] = values.get(each.labels, 0.0) + each.value

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield each metric with its samples, sorted by labels."""
        for metric, values in self._values.items():
            family = GaugeMetricFamily(metric.name, metric.help, labels=[*self._labels, *metric.labels])
            for labels, value in sorted(values.items()):
                family.add_metric([*self._labels.values(), *labels], value)
            yield family


def send(chore: str, options: RunOptions, measured: Measured, code: ExitCode, stopping: Stop) -> None:
    """Send the metrics of a run that ended with `code`. `chore` is the CronJob in the manifests that runs the job.

    Ctrl-C ends a push; `stopping` is about signals after the run.
    """
    if options.dry_run is not DryRun.NONE:
        log.log.info("%s: a dry run sends no metrics", chore)
        return
    installation = _installation(measured, options)
    if not installation:
        log.log.warning("%s: metrics are not sent: the run found no cluster, so its namespace is not known", chore)
        return
    samples = [*measured.gauges()]
    works = measured.results is not None and is_working(code, measured.results, samples)
    samples += _traffic(measured)
    ended = _Ended(chore, installation, code, works, time(), monotonic() - measured.started, samples, stopping)
    for target, write in ((options.metrics_file, _write), (options.push_gateway, _push)):
        try:
            if target:
                write(target, ended)
        except _NotSentError as error:
            log.log.warning("%s: %s", chore, error)
            measured.message.append(results.line_of_metrics(str(error)))


def _installation(measured: Measured, options: RunOptions) -> str:
    """Return the namespace of the pod; elsewhere that of -n, or of the context."""
    if measured.session:
        return measured.session.connection.pod_namespace or measured.session.namespace
    return options.namespace or ""


def _traffic(measured: Measured) -> Iterable[Sample]:
    if not measured.session:
        return []
    traffic = measured.session.transport.traffic
    return of_traffic(traffic.requests, traffic.retries, traffic.bytes_received)


@dataclass(frozen=True)
class _Ended:
    """A run that ended. `end` is a Unix time; `seconds` is its duration."""

    chore: str
    installation: str
    code: ExitCode
    is_working: bool
    end: float
    seconds: float
    gauges: Sequence[Sample]
    stopping: Stop

    def families(self, before: Mapping[Metric, float] = MappingProxyType({})) -> Families:
        """Return the metrics. `before` has those of earlier runs that a run keeps, as far as they are known."""
        of_run = of_end(self.code, self.end, self.seconds, before, is_working=self.is_working)
        return Families([*of_run, *self.gauges], self.chore, self.installation)


def _push(gateway: str, ended: _Ended) -> None:
    """Push the metrics.

    A success replaces all metrics of earlier runs, so that a rule that no longer exists has none. After a failure,
    those that this run does not send stay: the last success, for example.
    https://github.com/prometheus/pushgateway#put-method
    """
    limit = _STOPPED_PUSH_SECONDS if ended.code in _STOPPED else PUSH_SECONDS

    def is_interrupted() -> bool:
        return ended.stopping.exit_code is ExitCode.INTERRUPTED

    def handler(
        *, url: str, method: str, headers: Sequence[tuple[str, str]], data: bytes, **_: object
    ) -> Callable[[], None]:
        def send() -> None:
            sent = {**dict(headers), "User-Agent": user_agent(ended.chore)}
            if error := web.send(method, url, data, sent, limit, is_interrupted).error:
                error = "interrupted" if error == NOT_FETCHED else error
                raise _NotSentError(f"metrics are not pushed to {without_credentials(gateway)}: {error}")

        return send

    push = push_to_gateway if ended.code is ExitCode.DONE else pushadd_to_gateway
    push(gateway, ended.chore, ended.families(), {"installation": ended.installation}, handler=handler)


def _write(name: str, ended: _Ended) -> None:
    """Replace the file with the metrics, and keep the times of earlier runs from the file before."""
    path = Path(name)
    try:
        before = _kept(_read(path), ended)
        _replace(path, generate_latest(ended.families(before)))
    except ValueError as error:
        remedy = f"{name} has other metrics; use a file for {ended.chore} of {ended.installation} only"
        raise _NotSentError(f"metrics are not written: {remedy}") from error
    except OSError as error:
        remedy = "check that the folder exists, and that the run can write to it"
        raise _NotSentError(f"metrics are not written to {name}: {error.strerror}; {remedy}") from error


def _read(path: Path) -> str:
    """Return the content of the file; empty if it does not exist."""
    if not path.exists():
        return ""
    if not path.is_file():
        raise OSError(errno.EINVAL, "it is not a file")
    return read_limited(path).decode()


def _kept(text: str, ended: _Ended) -> Mapping[Metric, float]:
    """Return the metrics of earlier runs in a file that a run keeps.

    Raises:
        ValueError: the file has other metrics than those of this chore and installation.
    """
    found = [each for family in text_string_to_metric_families(text) for each in family.samples]
    labels = {"chore": ended.chore, "installation": ended.installation}
    if any(labels.items() - each.labels.items() for each in found) or (text and not found):
        raise ValueError
    return {metric: each.value for metric in KEPT for each in found if each.name == metric.name}


def _replace(path: Path, content: bytes) -> None:
    """Replace a file at once, so that a reader never sees a part of it. Everybody can read it."""
    number, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # no .prom: the collector ignores it
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            os.fchmod(number, 0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink()
        raise
