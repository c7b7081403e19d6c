"""The report of a run: rows and a summary line as text, or a document as JSON or YAML."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import click

from jobs import __version__
from jobs.kit.api.messages import Traffic
from jobs.kit.run.results import UNCHANGED, is_reported
from jobs.kit.run.rows import DRY_RUN, WORDS, format_groups, format_rows, indented, word
from jobs.kit.values.model import DryRun, ExitCode, Plan, Result, RunOptions, Severity
from jobs.kit.values.text import brief, format_count, visible

_PIECES = 100  # of a report that are printed at once


@dataclass(frozen=True)
class Report:
    """The content of a report."""

    job: str
    options: RunOptions
    plan: Plan
    results: Sequence[Result]
    traffic: Traffic
    exit_code: ExitCode


def write(report: Report) -> None:
    """Print the report to stdout in the format of -o."""
    every = report.results
    report = replace(report, results=[each for each in every if is_reported(each, report.options)])
    if report.options.output == "yaml":
        import yaml

        document = _document(report, [_result_document(result) for result in report.results])
        click.echo(yaml.safe_dump(document, sort_keys=False), nl=False)
        return
    if report.options.output == "json":
        pieces = _format_json(report)
    else:
        pieces = (f"{line}\n" for line in _format_text(report, _count_less_severe(every, report.options)))
    while text := "".join(islice(pieces, _PIECES)):
        click.echo(text, nl=False)


def _format_json(report: Report) -> Iterator[str]:
    """Yield the document in pieces: with 30,000 results, it would take more memory than the rest of the run."""
    before, _, after = json.dumps(_document(report, []), indent=2).partition('"results": []')
    yield f'{before}"results": ['
    separator = "\n    "
    for result in report.results:
        text = json.dumps(_result_document(result), indent=2)
        yield separator + text.replace("\n", "\n    ")
        separator = ",\n    "
    yield ("\n  ]" if report.results else "]") + f"{after}\n"


def _document(report: Report, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the report as plain data, the shape of `-o json` (docs/report.md)."""
    return {
        "job": report.job,
        "version": __version__,
        "dryRun": report.options.dry_run.value,
        "exitCode": int(report.exit_code),
        "summary": _count_words(report),
        "facts": dict(report.plan.summary.facts),
        "note": report.plan.summary.note,
        "results": results,
        "traffic": {
            "requests": dict(sorted(report.traffic.requests.items())),
            "retries": report.traffic.retries,
            "bytesReceived": report.traffic.bytes_received,
            "bytesSent": report.traffic.bytes_sent,
        },
    }


def _result_document(result: Result) -> dict[str, Any]:
    finding = result.finding
    document = {
        "object": {key: value for key, value in finding.object._asdict().items() if value},
        "code": finding.code,
        "severity": finding.severity.value,
        "action": finding.fix.action.word if finding.fix else None,
        "outcome": result.outcome.value,
        "reason": result.reason,
        "message": result.message,
        "remedy": finding.remedy,
        "deferral": finding.deferral,
        "subjects": list(finding.subjects),
        "changes": [change._asdict() for change in finding.changes],
    }
    return {key: value for key, value in document.items() if value not in (None, "", [])}


def _count_words(report: Report) -> dict[str, int]:
    counted = Counter(word(result) for result in report.results if result.finding.code != UNCHANGED)
    counted[UNCHANGED] += report.plan.unchanged
    order = [name for name in WORDS if name in counted] + sorted(counted.keys() - set(WORDS))
    return {name: counted[name] for name in order if counted[name]}


def _count_less_severe(results: Sequence[Result], options: RunOptions) -> int:
    if not options.min_severity:
        return 0
    left_out = (each for each in results if not is_reported(each, options))
    return sum(each.finding.severity is not Severity.INFO for each in left_out)


def _format_text(report: Report, less_severe: int) -> Iterator[str]:
    dry = DRY_RUN[report.options.dry_run]
    if report.plan.summary.by_subject:
        yield from format_groups(report.results, report.options, report.plan.summary.absent)
    else:
        yield from format_rows(report.results, report.options)
    if less_severe:
        yield f"... and {format_count('findings', less_severe)} that {'is' if less_severe == 1 else 'are'} less severe"
    counts = ", ".join(f"{number} {name}" for name, number in _count_words(report).items())
    facts = ", ".join(format_count(visible(name), number) for name, number in report.plan.summary.facts.items())
    summary = f"{report.job}{dry}: {counts or brief(report.plan.summary.note) or 'nothing to do'} ({facts})"
    yield from indented(summary, "", "    ") if report.plan.summary.by_subject else [summary]


@contextmanager
def progress(job: str, writes: int, options: RunOptions) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts writes in a progress bar on a terminal; not in a pipe, nor for small runs."""
    overwrites_lines = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if writes <= 100 or options.dry_run is DryRun.CLIENT or not overwrites_lines:
        yield lambda _writes: None
        return
    label = f"{job}: writing"
    with click.progressbar(
        length=writes, label=label, show_pos=True, width=20, update_min_steps=50, file=sys.stderr
    ) as bar:
        yield bar.update
