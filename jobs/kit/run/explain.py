"""The flag --explain: evaluate as a dry run does, and print why, for one namespace. Writes nothing."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import zip_longest
from typing import Any

import click

from jobs import __version__
from jobs.kit.run.job import Job, Observed, OptionsOfJob, Settings
from jobs.kit.run.runner import evaluate, settings_of
from jobs.kit.run.session import Session, check_namespace, in_session
from jobs.kit.values.model import ExitCode, Explanation, ObjectKey, Plan, Row, RunOptions
from jobs.kit.values.text import brief

_MAX_ROWS = 50
_GAP = "  "

Explain = Callable[[ObjectKey, Plan, Observed, Settings, datetime], Explanation]


def explain(
    job: Job[OptionsOfJob, Settings, Observed],
    job_options: OptionsOfJob,
    where: ObjectKey,
    explanation: Explain[Observed, Settings],
    at: Callable[[Job[OptionsOfJob, Settings, Observed], Session], tuple[Any, Session]] = lambda *here: here,
    cluster: str = "",
) -> ExitCode:
    """Print the explanation of a plan that is not written, and return the exit code.

    `where` is a namespace, or an object there of any kind. `at` returns the job and the session in another `cluster`.
    """

    def body(session: Session) -> ExitCode:
        if not job.observe_from:
            check_namespace(session.cluster(), session.connection, session.options)
        there, session = at(job, session)
        plan, observed = evaluate(there, session, job_options)
        settings = settings_of(job, session, job_options)
        found = explanation(where, plan, observed, settings, session.transport.clock.now())
        _write(job.name, where, cluster, found, job_options.run)
        return ExitCode.DONE

    return in_session(job.name, job_options.run, body)


def _write(job: str, where: ObjectKey, cluster: str, found: Explanation, options: RunOptions) -> None:
    """Print the explanation; `-o json` and `-o yaml` have the shape in docs/report.md."""
    if options.output == "text":
        for line in _lines(found, options):
            click.echo(line)
        named = "/".join(filter(None, (cluster, where.namespace, where.name)))
        click.echo(f"{job} --explain {named}: {brief(found.summary)}")
        return
    document = {
        "job": job,
        "version": __version__,
        "namespace": where.namespace,
        "name": where.name,
        "rows": [dict(row.document) for row in found.rows],
        "summary": found.summary,
    }
    if options.output == "json":
        click.echo(json.dumps(document, indent=2))
    else:
        import yaml

        click.echo(yaml.safe_dump(document, sort_keys=False), nl=False)


def _lines(found: Explanation, options: RunOptions) -> Iterator[str]:
    """Yield the rows in columns; on a terminal that is too narrow, the reason is on lines of its own."""
    rows = found.rows if options.verbose else found.rows[:_MAX_ROWS]
    cells = [tuple(map(brief, row.cells)) for row in rows]
    widths = [max(map(len, column)) for column in zip_longest(found.columns[:-1], *cells, fillvalue="")]
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    if rows:
        yield _GAP.join([*map(str.ljust, found.columns, widths), found.columns[-1]])
    for row, each in zip(rows, cells, strict=True):
        yield from _wrapped(_GAP.join(map(str.ljust, each, widths)), row, columns)
    if len(found.rows) > len(rows):
        yield f"... and {len(found.rows) - len(rows)} more; -v or -o json shows all of them"


def _wrapped(head: str, row: Row, columns: int) -> Iterator[str]:
    reason = brief(row.reason)
    if len(head) + len(_GAP) + len(reason) <= columns:
        yield f"{head}{_GAP}{reason}".rstrip()
    else:
        yield head.rstrip()
        yield from textwrap.wrap(reason, max(columns, 40), initial_indent="    ", subsequent_indent="    ")
    yield from (f"    {brief(detail)}" for detail in row.details)
