"""What a run says of itself: rows and a summary line as text, or the whole as JSON or YAML."""

from __future__ import annotations

import difflib
import json
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import click

from jobs import __version__
from jobs.kit import terminal
from jobs.kit.apply import DryRun
from jobs.kit.diff import HIDDEN
from jobs.kit.model import Change, ExitCode, Finding, Outcome, Plan, Result, Severity
from jobs.kit.options import RunOptions
from jobs.kit.text import brief, visible
from jobs.kit.transport import Traffic

_DRY = {DryRun.NONE: "", DryRun.CLIENT: " (dry run)", DryRun.SERVER: " (server dry run)"}
_ORDER = (
    "created",
    "configured",
    "replaced",
    "restarted",
    "annotated",
    "deleted",
    "unchanged",
    "deferred",
    "over-limit",
    "skipped",
    "conflict",
    "failed",
    "stopped",
)
_COLORS = {
    "created": "green",
    "configured": "yellow",
    "replaced": "yellow",
    "restarted": "yellow",
    "annotated": "green",
    "deferred": "magenta",
    "over-limit": "magenta",
    "deleted": "red",
    "failed": "red",
    "conflict": "magenta",
}
_LONGEST_VALUE = 50
_NARROW = 80
_WIDEST = 60  # of a column
_MOST_NAMED = 3
_MOST_ROWS = 50  # of one kind and outcome
_MOST_LINES = 100  # of one field in a diff
_WORST = (Severity.ERROR, Severity.WARNING, Severity.INFO)
_SEVERITIES = {Severity.ERROR: "errors", Severity.WARNING: "warnings", Severity.INFO: "notes"}
_SEVERITY_COLORS = {Severity.ERROR: "red", Severity.WARNING: "yellow"}
_PIECES = 100  # of a report that are printed at once


@dataclass(frozen=True)
class Report:
    """All that a run has to tell."""

    job: str
    options: RunOptions
    plan: Plan
    results: Sequence[Result]
    traffic: Traffic
    exit_code: ExitCode


def write(report: Report) -> None:
    """Print the report to stdout in the format that was asked for; what is only worth a note is told with -v."""
    report = replace(report, results=[each for each in report.results if _is_told(each, report.options)])
    if report.options.output == "yaml":
        import yaml

        document = as_document(report, [_result_document(result) for result in report.results])
        click.echo(yaml.safe_dump(document, sort_keys=False), nl=False)
        return
    pieces = _json(report) if report.options.output == "json" else (f"{line}\n" for line in _text(report))
    while text := "".join(islice(pieces, _PIECES)):
        click.echo(text, nl=False)


def _is_told(result: Result, options: RunOptions) -> bool:
    return options.verbose or result.finding.severity is not Severity.INFO


def _json(report: Report) -> Iterator[str]:
    """Yield the document piece by piece: that of 30,000 writes would take more memory than the run before it."""
    before, _, after = json.dumps(as_document(report, []), indent=2).partition('"results": []')
    yield f'{before}"results": ['
    separator = "\n    "
    for result in report.results:
        text = json.dumps(_result_document(result), indent=2)
        yield separator + text.replace("\n", "\n    ")
        separator = ",\n    "
    yield ("\n  ]" if report.results else "]") + f"{after}\n"


def as_document(report: Report, results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the report as plain data, the shape of `-o json` (docs/report.md)."""
    return {
        "job": report.job,
        "version": __version__,
        "dryRun": report.options.dry_run.value,
        "exitCode": int(report.exit_code),
        "summary": _counts(report),
        "facts": dict(report.plan.facts),
        "note": report.plan.note,
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
        "subjects": list(finding.subjects),
        "changes": [change._asdict() for change in finding.changes],
    }
    return {key: value for key, value in document.items() if value not in (None, "", [])}


def word(result: Result) -> str:
    """Return the one word for what became of a finding: kubectl's for writes."""
    if result.outcome in (Outcome.DONE, Outcome.PLANNED) and result.finding.fix:
        return result.finding.fix.action.word
    return result.finding.code if result.outcome is Outcome.REPORTED else result.outcome.value


def _counts(report: Report) -> dict[str, int]:
    counted = Counter(word(result) for result in report.results if result.finding.code != "unchanged")
    counted["unchanged"] += report.plan.unchanged
    order = [name for name in _ORDER if name in counted] + sorted(counted.keys() - set(_ORDER))
    return {name: counted[name] for name in order if counted[name]}


def _text(report: Report) -> Iterator[str]:
    dry = _DRY[report.options.dry_run]
    yield from (_grouped if report.plan.by_subject else _listed)(report.results, report.options)
    counts = ", ".join(f"{number} {name}" for name, number in _counts(report).items())
    facts = ", ".join(_fact(visible(name), number) for name, number in report.plan.facts.items())
    summary = f"{report.job}{dry}: {counts or brief(report.plan.note) or 'nothing to do'} ({facts})"
    yield from _indented(summary, "", "    ") if report.plan.by_subject else [summary]


class _Rows:
    """Which results have a row: with -v all, else the first of each kind and outcome."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._counts: Counter[tuple[str, str]] = Counter()

    def take(self, result: Result) -> bool:
        """Count a result; return whether it has a row."""
        sort = (result.finding.object.kind.lower(), _verb(result, self._options))
        self._counts[sort] += 1
        return self._options.verbose or self._counts[sort] <= _MOST_ROWS

    def rest(self) -> Iterator[str]:
        """Yield how many results have none."""
        for (kind, verb), number in self._counts.items():
            if number > _MOST_ROWS and not self._options.verbose:
                yield f"... and {number - _MOST_ROWS} more: {visible(kind)} {verb}; -v or -o json shows all"


def _verb(result: Result, options: RunOptions) -> str:
    written = result.finding.fix and result.outcome in (Outcome.DONE, Outcome.PLANNED)
    return word(result) + (_DRY[options.dry_run] if written else "")


def _listed(results: Sequence[Result], options: RunOptions) -> Iterator[str]:
    """Yield a row for each object, in columns."""
    rows = _Rows(options)
    shown = [result for result in results if rows.take(result)]
    widths = [0, 0, 0]
    for result in shown:
        cells = _row(result, options)
        widths = [max(width, _padding(cell)) for width, cell in zip(widths, cells, strict=False)]
    for result in shown:
        yield from _wrapped(_row(result, options), widths, word(result))
        if options.diff:
            yield from (f"    {line}" for change in result.finding.changes for line in _diff(change, options))
    yield from rows.rest()


def _grouped(shown: Sequence[Result], options: RunOptions) -> Iterator[str]:
    """Yield what was found of each custom resource or of several, the worst first; for a narrow terminal."""
    rows = _Rows(options)
    groups: dict[tuple[str, ...], list[Result]] = {}
    for result in shown:
        groups.setdefault(result.finding.subjects, []).append(result)
    for subjects, results in sorted(groups.items(), key=_badness):
        counted = _open(results)
        numbers = [_fact(_SEVERITIES[severity], counted[severity]) for severity in _WORST if counted[severity]]
        if done := len(results) - counted.total():
            numbers.append(f"{done} mended{_DRY[options.dry_run]}")
        yield f"{click.style(_named(subjects), bold=True)}: {', '.join(numbers)}"
        for result in sorted(results, key=lambda each: _WORST.index(each.finding.severity)):
            if rows.take(result):
                yield from _told(result, options)
    yield from rows.rest()


def _badness(group: tuple[tuple[str, ...], Sequence[Result]]) -> tuple[object, ...]:
    """Return what groups are sorted by: how many of the worst findings they have, then of the next, then names."""
    subjects, results = group
    counted = _open(results)
    return (not subjects, *(-counted[severity] for severity in _WORST), subjects)


def _open(results: Sequence[Result]) -> Counter[Severity]:
    """Count the findings that are still findings."""
    return Counter(result.finding.severity for result in results if result.outcome is not Outcome.DONE)


def _named(subjects: Sequence[str]) -> str:
    more = f" and {len(subjects) - _MOST_NAMED} more" if len(subjects) > _MOST_NAMED else ""
    return brief(", ".join(subjects[:_MOST_NAMED])) + more if subjects else "(of none)"


def _told(result: Result, options: RunOptions) -> Iterator[str]:
    finding = result.finding
    code = click.style(_verb(result, options), fg=_SEVERITY_COLORS.get(finding.severity))
    yield f"  {code}  {_name(finding)}"
    yield from _indented(_why(result), "    ")
    if finding.remedy:
        yield from _indented(f"to do: {brief(finding.remedy)}", "    ")
    if options.diff:
        lines = (line for change in finding.changes for line in _diff(change, options))
        yield from (part for line in lines for part in _indented(line, "      "))


def _indented(text: str, indent: str, further: str = "") -> list[str]:
    further = further or indent
    return textwrap.wrap(text, _NARROW, initial_indent=indent, subsequent_indent=further, break_on_hyphens=False)


def _row(result: Result, options: RunOptions) -> tuple[str, str, str, str]:
    finding = result.finding
    return _name(finding), brief(finding.object.namespace), _verb(result, options), _why(result)


def _name(finding: Finding) -> str:
    return brief(f"{finding.object.kind.lower()}/{finding.object.name}")


def _why(result: Result) -> str:
    return brief("; ".join(text for text in (result.reason, result.message) if text))


def _padding(cell: str) -> int:
    """Return how wide a cell makes its column; a longer one overflows, and moves nothing in other rows."""
    return len(cell) if len(cell) <= _WIDEST else 0


def _wrapped(row: tuple[str, str, str, str], widths: Sequence[int], verb: str) -> Iterator[str]:
    """Yield the row in columns; on a terminal too narrow for the reason, that goes to lines of its own."""
    cells = [cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)]
    plain = "  ".join(cells)
    cells[2] = click.style(cells[2], fg=_COLORS.get(verb))
    head, reason = "  ".join(cells), row[3]
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    if len(plain) + 2 + len(reason) <= columns:
        yield f"{head}  {reason}".rstrip()
        return
    yield head.rstrip()
    yield from textwrap.wrap(reason, max(columns, 40), initial_indent="    ", subsequent_indent="    ")


def _diff(change: Change, options: RunOptions) -> Iterator[str]:
    field = brief(change.field)
    if change.actual is None or change.desired is None:
        sign, value = ("+", change.desired) if change.actual is None else ("-", change.actual)
        yield f"{sign} {field}: {_quoted(value or '')}"
    elif change.desired == HIDDEN:
        yield f"~ {field}: {HIDDEN} (changed)"
    elif "\n" not in change.actual + change.desired:
        yield f"~ {field}: {_quoted(change.actual)} -> {_quoted(change.desired)}"
    else:
        yield f"~ {field}:"
        yield from (f"    {line}" for line in _changed_lines(change.actual, change.desired, options))


def _changed_lines(actual: str, desired: str, options: RunOptions) -> Iterator[str]:
    before, after = (value.removesuffix("\n").split("\n") for value in (actual, desired))
    lines = list(difflib.unified_diff(before, after, lineterm="", n=1))[2:]
    most = len(lines) if options.verbose else _MOST_LINES
    yield from map(brief, lines[:most])
    if len(lines) > most:
        yield f"... and {len(lines) - most} more lines (-v or -o json shows all)"


def _quoted(value: str) -> str:
    if value == HIDDEN:
        return value
    short = value if len(value) <= _LONGEST_VALUE else value[: _LONGEST_VALUE - 1] + "…"
    return visible(json.dumps(short, ensure_ascii=False))


def _fact(name: str, number: int) -> str:
    return f"{number} {name[:-1] if number == 1 else name}"


@contextmanager
def progress(job: str, writes: int, options: RunOptions) -> Iterator[Callable[[int], None]]:
    """Yield what shows on a terminal how many of the writes are done; quiet in a pipe and for small runs."""
    shows = writes > 100 and options.dry_run is not DryRun.CLIENT and terminal.shows_progress()

    def line(done: int) -> str:
        return f"\r{job}: {done} of {writes} written"

    def show(done: int) -> None:
        if shows and (done % 50 == 0 or done == writes):
            click.echo(line(done), nl=False, err=True)

    yield show
    if shows:
        click.echo(f"\r{' ' * len(line(writes))}\r", nl=False, err=True)
