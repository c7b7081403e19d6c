"""The report of a run: rows and a summary line as text, or a document as JSON or YAML."""

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
from jobs.kit.api.messages import Traffic
from jobs.kit.run import terminal
from jobs.kit.run.flags import RunOptions
from jobs.kit.values.model import Change, DryRun, ExitCode, Finding, Outcome, Plan, Result, Severity
from jobs.kit.values.text import HIDDEN, brief, visible

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
_MAX_VALUE = 50
_GROUPED_WIDTH = 80
_MAX_WIDTH = 60  # of a column
_MAX_NAMES = 3
_MAX_ROWS = 50  # of one kind and outcome
_MAX_LINES = 100  # of one field in a diff
_WORST = (Severity.ERROR, Severity.WARNING, Severity.INFO)
_SEVERITIES = {Severity.ERROR: "errors", Severity.WARNING: "warnings", Severity.INFO: "notes"}
_SEVERITY_COLORS = {Severity.ERROR: "red", Severity.WARNING: "yellow"}
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
    """Print the report to stdout in the format of -o. Results of severity INFO are printed with -v only."""
    report = replace(report, results=[each for each in report.results if _is_reported(each, report.options)])
    if report.options.output == "yaml":
        import yaml

        document = as_document(report, [_result_document(result) for result in report.results])
        click.echo(yaml.safe_dump(document, sort_keys=False), nl=False)
        return
    pieces = _format_json(report) if report.options.output == "json" else (f"{line}\n" for line in _format_text(report))
    while text := "".join(islice(pieces, _PIECES)):
        click.echo(text, nl=False)


def _is_reported(result: Result, options: RunOptions) -> bool:
    return options.verbose or result.finding.severity is not Severity.INFO


def _format_json(report: Report) -> Iterator[str]:
    """Yield the document in pieces: with 30,000 results, it would take more memory than the rest of the run."""
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
        "subjects": list(finding.subjects),
        "changes": [change._asdict() for change in finding.changes],
    }
    return {key: value for key, value in document.items() if value not in (None, "", [])}


def word(result: Result) -> str:
    """Return the word for a result: the one that kubectl prints for a write, else the code or the outcome."""
    if result.outcome in (Outcome.DONE, Outcome.PLANNED) and result.finding.fix:
        return result.finding.fix.action.word
    return result.finding.code if result.outcome is Outcome.REPORTED else result.outcome.value


def _count_words(report: Report) -> dict[str, int]:
    counted = Counter(word(result) for result in report.results if result.finding.code != "unchanged")
    counted["unchanged"] += report.plan.unchanged
    order = [name for name in _ORDER if name in counted] + sorted(counted.keys() - set(_ORDER))
    return {name: counted[name] for name in order if counted[name]}


def _format_text(report: Report) -> Iterator[str]:
    dry = _DRY[report.options.dry_run]
    yield from (_format_groups if report.plan.summary.by_subject else _format_rows)(report.results, report.options)
    counts = ", ".join(f"{number} {name}" for name, number in _count_words(report).items())
    facts = ", ".join(_format_count(visible(name), number) for name, number in report.plan.summary.facts.items())
    summary = f"{report.job}{dry}: {counts or brief(report.plan.summary.note) or 'nothing to do'} ({facts})"
    yield from _indent(summary, "", "    ") if report.plan.summary.by_subject else [summary]


class _Rows:
    """Limits the rows: with -v all results have one, else the first ones of each kind and outcome."""

    def __init__(self, options: RunOptions) -> None:
        self._options = options
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, result: Result) -> bool:
        """Count a result and return whether it has a row."""
        group = (result.finding.object.kind.lower(), _verb(result, self._options))
        self._counts[group] += 1
        return self._options.verbose or self._counts[group] <= _MAX_ROWS

    def omitted(self) -> Iterator[str]:
        """Yield a line for each kind and outcome with results that have no row, with their number."""
        for (kind, verb), number in self._counts.items():
            if number > _MAX_ROWS and not self._options.verbose:
                yield f"... and {number - _MAX_ROWS} more: {visible(kind)} {verb}; -v or -o json shows all of them"


def _verb(result: Result, options: RunOptions) -> str:
    written = result.finding.fix and result.outcome in (Outcome.DONE, Outcome.PLANNED)
    return word(result) + (_DRY[options.dry_run] if written else "")


def _format_rows(results: Sequence[Result], options: RunOptions) -> Iterator[str]:
    """Yield a row for each result, in columns."""
    rows = _Rows(options)
    shown = [result for result in results if rows.add(result)]
    widths = [0, 0, 0]
    for result in shown:
        cells = _cells(result, options)
        widths = [max(width, _column_width(cell)) for width, cell in zip(widths, cells, strict=False)]
    for result in shown:
        yield from _wrap(_cells(result, options), widths, word(result))
        if options.diff:
            yield from (f"    {line}" for change in result.finding.changes for line in _format_change(change, options))
    yield from rows.omitted()


def _format_groups(shown: Sequence[Result], options: RunOptions) -> Iterator[str]:
    """Yield the results by custom resource (or set of them), the worst first; fits a narrow terminal."""
    rows = _Rows(options)
    groups: dict[tuple[str, ...], list[Result]] = {}
    for result in shown:
        groups.setdefault(result.finding.subjects, []).append(result)
    for subjects, results in sorted(groups.items(), key=_worst_first):
        counted = _unresolved(results)
        numbers = [_format_count(_SEVERITIES[severity], counted[severity]) for severity in _WORST if counted[severity]]
        if done := len(results) - counted.total():
            numbers.append(f"{done} repaired{_DRY[options.dry_run]}")
        yield f"{click.style(_join_names(subjects), bold=True)}: {', '.join(numbers)}"
        for result in sorted(results, key=lambda each: _WORST.index(each.finding.severity)):
            if rows.add(result):
                yield from _format_details(result, options)
    yield from rows.omitted()


def _worst_first(group: tuple[tuple[str, ...], Sequence[Result]]) -> tuple[object, ...]:
    """Return the sort key of a group: its number of errors, then of warnings, then of notes, then its names."""
    subjects, results = group
    counted = _unresolved(results)
    return (not subjects, *(-counted[severity] for severity in _WORST), subjects)


def _unresolved(results: Sequence[Result]) -> Counter[Severity]:
    """Count by severity the findings that this run did not resolve."""
    return Counter(result.finding.severity for result in results if result.outcome is not Outcome.DONE)


def _join_names(subjects: Sequence[str]) -> str:
    more = f" and {len(subjects) - _MAX_NAMES} more" if len(subjects) > _MAX_NAMES else ""
    return brief(", ".join(subjects[:_MAX_NAMES])) + more if subjects else "(without a custom resource)"


def _format_details(result: Result, options: RunOptions) -> Iterator[str]:
    finding = result.finding
    code = click.style(_verb(result, options), fg=_SEVERITY_COLORS.get(finding.severity))
    yield f"  {code}  {_name(finding)}"
    yield from _indent(_message(result), "    ")
    if finding.remedy:
        yield from _indent(f"to do: {brief(finding.remedy)}", "    ")
    if options.diff:
        lines = (line for change in finding.changes for line in _format_change(change, options))
        yield from (part for line in lines for part in _indent(line, "      "))


def _indent(text: str, indent: str, further: str = "") -> list[str]:
    further = further or indent
    return textwrap.wrap(text, _GROUPED_WIDTH, initial_indent=indent, subsequent_indent=further, break_on_hyphens=False)


def _cells(result: Result, options: RunOptions) -> tuple[str, str, str, str]:
    finding = result.finding
    return _name(finding), brief(finding.object.namespace), _verb(result, options), _message(result)


def _name(finding: Finding) -> str:
    return brief(f"{finding.object.kind.lower()}/{finding.object.name}")


def _message(result: Result) -> str:
    return brief("; ".join(text for text in (result.reason, result.message) if text))


def _column_width(cell: str) -> int:
    """Return the width that a cell needs of its column; a cell that is too long overflows in its own row only."""
    return len(cell) if len(cell) <= _MAX_WIDTH else 0


def _wrap(row: tuple[str, str, str, str], widths: Sequence[int], verb: str) -> Iterator[str]:
    """Yield the row in columns. On a terminal that is too narrow, the reason is on lines of its own."""
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


def _format_change(change: Change, options: RunOptions) -> Iterator[str]:
    field = brief(change.field)
    if change.actual is None or change.desired is None:
        sign, value = ("+", change.desired) if change.actual is None else ("-", change.actual)
        yield f"{sign} {field}: {_quote(value or '')}"
    elif change.desired == HIDDEN:
        yield f"~ {field}: {HIDDEN} (changed)"
    elif "\n" not in change.actual + change.desired:
        yield f"~ {field}: {_quote(change.actual)} -> {_quote(change.desired)}"
    else:
        yield f"~ {field}:"
        yield from (f"    {line}" for line in _changed_lines(change.actual, change.desired, options))


def _changed_lines(actual: str, desired: str, options: RunOptions) -> Iterator[str]:
    before, after = (value.removesuffix("\n").split("\n") for value in (actual, desired))
    lines = list(difflib.unified_diff(before, after, lineterm="", n=1))[2:]
    most = len(lines) if options.verbose else _MAX_LINES
    yield from map(brief, lines[:most])
    if len(lines) > most:
        yield f"... and {len(lines) - most} more lines (-v or -o json shows all of them)"


def _quote(value: str) -> str:
    if value == HIDDEN:
        return value
    short = value if len(value) <= _MAX_VALUE else value[: _MAX_VALUE - 1] + "…"
    return visible(json.dumps(short, ensure_ascii=False))


def _format_count(name: str, number: int) -> str:
    return f"{number} {name[:-1] if number == 1 else name}"


@contextmanager
def progress(job: str, writes: int, options: RunOptions) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts writes in a progress bar on a terminal; not in a pipe, nor for small runs."""
    if writes <= 100 or options.dry_run is DryRun.CLIENT or not terminal.shows_progress():
        yield lambda _writes: None
        return
    label = f"{job}: writing"
    with click.progressbar(
        length=writes, label=label, show_pos=True, width=20, update_min_steps=50, file=sys.stderr
    ) as bar:
        yield bar.update
