"""The only writer, and the only reader of the dry-run decision: a plan goes in, what became of each fix comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum

from jobs.kit.cluster import Cluster, error_of
from jobs.kit.model import ExitCode, Finding, Fix, Outcome, Result
from jobs.kit.objects import Resource
from jobs.kit.transport import Answer


class DryRun(str, Enum):
    """Whether writes happen, as kubectl has it: `client` sends none, `server` has the server check and drop them."""

    NONE = "none"
    CLIENT = "client"
    SERVER = "server"


def apply(
    cluster: Cluster,
    findings: Iterable[Finding],
    resources: Mapping[str, Resource],
    dry_run: DryRun,
    progress: Callable[[int], None] = lambda done: None,
) -> Iterator[Result]:
    """Carry out the fixes of `findings` and yield a result for each finding, in no order.

    `resources` says by kind where the API serves it; `progress` is told how many writes were answered so far.
    """
    findings = list(findings)
    yield from (Result(finding, Outcome.TOLD, exit_code=finding.exit_code) for finding in findings if not finding.fix)
    to_write = [(finding, finding.fix) for finding in findings if finding.fix]
    if dry_run is DryRun.CLIENT:
        yield from (Result(finding, Outcome.PLANNED) for finding, _ in to_write)
        return
    unanswered = {id(finding): finding for finding, _ in to_write}
    writes = ((fix.action, _path(resources, finding), fix.body.encode(), (finding, fix)) for finding, fix in to_write)
    for done, answer in enumerate(cluster.write(writes, dry_run=dry_run is DryRun.SERVER), 1):
        finding, fix = answer.request.tag
        del unanswered[id(finding)]
        yield _result(finding, fix, answer)
        progress(done)
    yield from (Result(finding, Outcome.STOPPED, "the run was stopped") for finding in unanswered.values())


def _path(resources: Mapping[str, Resource], finding: Finding) -> str:
    return resources[finding.object.kind].path(finding.object.namespace, finding.object.name)


def _result(finding: Finding, fix: Fix, answer: Answer) -> Result:
    error = error_of(answer)
    if error is None:
        altered = fix.body.unlike(answer.body)
        note = f"the server keeps other values than were sent in {', '.join(altered)}: admission changed them"
        return Result(finding, Outcome.DONE, note if altered else "")
    if error.is_terminating_namespace:
        return Result(finding, Outcome.SKIPPED, f"namespace {finding.object.namespace} is terminating")
    if _needs_a_look(answer):
        return Result(finding, Outcome.CONTESTED, error.message, ExitCode.FAILED)
    return Result(finding, Outcome.FAILED, error.message, error.exit_code)


def _needs_a_look(answer: Answer) -> bool:
    """Whether to read the object before believing: it exists, changed, is gone, or was perhaps written."""
    lost = answer.status == 0 or answer.status >= 500
    return answer.status == 409 or lost or (answer.status == 404 and answer.request.method != "POST")
