"""The report of a run: rows and a summary line as text, or a document as JSON or YAML.

For people it has one row for each result, in columns, or grouped by custom resource; and diffs.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import click
import msgspec
from msgspec import Struct, structs

from jobs import __version__
from jobs.kit.api.responses import Traffic
from jobs.kit.run.brakes import in_turns
from jobs.kit.run.results import UNCHANGED, is_reported
from jobs.kit.values.model import DryRun, ExitCode, FieldDiff, Finding, Outcome, Plan, Result, RunOptions, Severity
from jobs.kit.values.text import HIDDEN, brief, coloured, format_count, visible

# The words that each line of a dry run has.
DRY_RUN = {DryRun.NONE: "", DryRun.CLIENT: " (dry run)", DryRun.SERVER: " (server dry run)"}
# The words for results in the order of the summary, with their colors.
WORDS = {
    "created": "green",
    "configured": "yellow",
    "replaced": "yellow",
    "restarted": "yellow",
    "annotated": "green",
    "deleted": "red",
    "unchanged": None,
    "deferred": "magenta",
    "over-limit": "magenta",
    "skipped": None,
    "conflict": "magenta",
    "failed": "red",
    "stopped": None,
}
_MAX_VALUE = 50
_GROUPED_WIDTH = 80
_MAX_WIDTH = 60  # of a column
_MAX_NAMES = 3
_MAX_ROWS = 50  # of one kind and outcome
_MAX_LINES = 100  # of one field in a diff
_WORST = (Severity.CRITICAL, Severity.WARNING, Severity.INFO)
_SEVERITIES = {Severity.CRITICAL: "critical", Severity.WARNING: "warnings", Severity.INFO: "notes"}
_SEVERITY_COLORS = {Severity.CRITICAL: "red", Severity.WARNING: "yellow"}
_PIECES = 100  # of a report that are printed at once


def format_rows(results: Sequence[Result], options: RunOptions) -> Iterator[str]:
    """Yield a row for each result, in columns."""
    rows = _Rows(results, options)
    shown = [result for result in results if rows.have(result)]
    widths = [0, 0, 0]
    for result in shown:
        cells = _cells(result, options)
        widths = [max(width, _column_width(cell)) for width, cell in zip(widths, cells, strict=False)]
    for result in shown:
        yield from _wrap(_cells(result, options), widths, word(result))
        if options.diff:
            yield from (
                f"    {line}" for difference in result.finding.diff for line in _format_change(difference, options)
            )
    yield from rows.omitted()


def format_groups(
    shown: Sequence[Result], options: RunOptions, absent: Mapping[str, Finding] | None = None
) -> Iterator[str]:
    """Yield the results by custom resource (or set of them), the worst first; fits a narrow terminal.

    `absent` as in Summary.
    """
    results = list(shown if options.verbose else _with_absent(shown, absent or {}))
    rows = _Rows(results, options)
    groups: dict[tuple[str, ...], list[Result]] = {}
    for result in results:
        groups.setdefault(result.finding.subjects, []).append(result)
    for subjects, of_group in sorted(groups.items(), key=_group_order):
        counted = _unresolved(of_group)
        numbers = [format_count(_SEVERITIES[severity], counted[severity]) for severity in _WORST if counted[severity]]
        if done := len(of_group) - counted.total():
            numbers.append(f"{done} repaired{DRY_RUN[options.dry_run]}")
        yield f"{click.style(join_names(subjects), bold=True)}: {', '.join(numbers)}"
        for result in worst_first(of_group):
            if rows.have(result):
                yield from _format_details(result, options)
    yield from rows.omitted()


def _with_absent(results: Iterable[Result], absent: Mapping[str, Finding]) -> Iterator[Result]:
    """Yield the results, with one for each absent custom resource in place of those of its missing objects."""
    replaced = {name: Result(finding, Outcome.REPORTED) for name, finding in absent.items()}
    for result in results:
        subjects = result.finding.subjects
        if result.finding.code != "missing" or len(subjects) != 1 or subjects[0] not in absent:
            yield result
        elif only := replaced.pop(subjects[0], None):
            yield only


def worst_first(results: Iterable[Result]) -> list[Result]:
    """Return the results sorted by severity; those of the same severity stay in their order."""
    return sorted(results, key=lambda each: _WORST.index(each.finding.severity))


def word(result: Result) -> str:
    """Return the word for a result: the one that kubectl prints for a write, else the code or the outcome."""
    if result.outcome in (Outcome.DONE, Outcome.PLANNED) and result.finding.change:
        return result.finding.change.action.word
    return result.finding.code if result.outcome is Outcome.REPORTED else result.outcome.value


class _Rows:
    """Limits the rows: with -v all results have one, else some of each kind and outcome, in turns by namespace."""

    def __init__(self, results: Iterable[Result], options: RunOptions) -> None:
        self._groups: dict[tuple[str, str], list[Result]] = {}
        for each in results:
            group = each.finding.object.kind.lower(), _verb(each, options)
            self._groups.setdefault(group, []).append(each)
        most = None if options.verbose else _MAX_ROWS
        turns = (in_turns(group, _place)[:most] for group in self._groups.values())
        self._shown = {id(each) for group in turns for each in group}

    def have(self, result: Result) -> bool:
        """Return whether a result has a row."""
        return id(result) in self._shown

    def omitted(self) -> Iterator[str]:
        """Yield a line for each kind and outcome with results that have no row, with their number."""
        for (kind, verb), results in self._groups.items():
            if number := sum(not self.have(each) for each in results):
                yield f"... and {number} more: {visible(kind)} {verb}; -v or -o json shows all of them"


def _place(result: Result) -> tuple[str, str]:
    return result.cluster, result.finding.object.namespace


def _verb(result: Result, options: RunOptions) -> str:
    written = result.finding.change and result.outcome in (Outcome.DONE, Outcome.PLANNED)
    return word(result) + (DRY_RUN[options.dry_run] if written else "")


def _group_order(group: tuple[tuple[str, ...], Sequence[Result]]) -> tuple[object, ...]:
    """Return the sort key of a group: its number of findings by severity, the worst first, then its names."""
    subjects, results = group
    counted = _unresolved(results)
    return (not subjects, *(-counted[severity] for severity in _WORST), subjects)


def _unresolved(results: Sequence[Result]) -> Counter[Severity]:
    """Count by severity the findings that this run did not resolve."""
    return Counter(result.finding.severity for result in results if result.outcome is not Outcome.DONE)


def join_names(subjects: Sequence[str]) -> str:
    """Return the names of the first custom resources, and the number of the others."""
    more = f" and {len(subjects) - _MAX_NAMES} more" if len(subjects) > _MAX_NAMES else ""
    return brief(", ".join(subjects[:_MAX_NAMES])) + more if subjects else "(without a custom resource)"


def _format_details(result: Result, options: RunOptions) -> Iterator[str]:
    finding = result.finding
    code = coloured(_verb(result, options), _SEVERITY_COLORS.get(finding.severity))
    yield f"  {code}  {_name(finding)}"
    yield from details(result, options)


def details(result: Result, options: RunOptions) -> Iterator[str]:
    """Yield the lines below the row of a result: its message, its remedy, and with --diff its changes."""
    finding = result.finding
    yield from indented(_message(result), "    ")
    if finding.remedy:
        yield from indented(f"to do: {brief(finding.remedy)}", "    ")
    if options.diff:
        lines = (line for difference in finding.diff for line in _format_change(difference, options))
        yield from (part for line in lines for part in indented(line, "      "))


def indented(text: str, indent: str, further: str = "") -> list[str]:
    """Return the lines of a text for a narrow terminal; lines after the first begin with `further`."""
    further = further or indent
    return textwrap.wrap(text, _GROUPED_WIDTH, initial_indent=indent, subsequent_indent=further, break_on_hyphens=False)


def _cells(result: Result, options: RunOptions) -> tuple[str, str, str, str]:
    finding = result.finding
    where = "/".join(filter(None, (result.cluster, finding.object.namespace)))
    return _name(finding), brief(where), _verb(result, options), _message(result)


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
    cells[2] = coloured(cells[2], WORDS.get(verb))
    head, reason = "  ".join(cells), row[3]
    columns = sys.maxsize
    if sys.stdout.isatty():
        import shutil  # imported on a terminal only: a CronJob may start every minute

        columns = shutil.get_terminal_size().columns
    if len(plain) + 2 + len(reason) <= columns:
        yield f"{head}  {reason}".rstrip()
        return
    yield head.rstrip()
    yield from textwrap.wrap(reason, max(columns, 40), initial_indent="    ", subsequent_indent="    ")


def _format_change(difference: FieldDiff, options: RunOptions) -> Iterator[str]:
    field = brief(difference.field)
    if difference.actual is None or difference.desired is None:
        sign, value = ("+", difference.desired) if difference.actual is None else ("-", difference.actual)
        yield f"{sign} {field}: {_quote(value or '')}"
    elif difference.desired == HIDDEN:
        yield f"~ {field}: {HIDDEN} (changed)"
    elif "\n" not in difference.actual + difference.desired:
        yield f"~ {field}: {_quote(difference.actual)} -> {_quote(difference.desired)}"
    else:
        yield f"~ {field}:"
        yield from (f"    {line}" for line in _changed_lines(difference.actual, difference.desired, options))


def _changed_lines(actual: str, desired: str, options: RunOptions) -> Iterator[str]:
    import difflib

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
    quoted = json.dumps(short, ensure_ascii=False)
    marks = short.count('"')
    # As in YAML: in single quotes, JSON needs no escapes.
    return visible(f"'{short}'" if marks and quoted.count("\\") == marks and "'" not in short else quoted)


class Report(Struct, frozen=True):
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
    report = structs.replace(report, results=[each for each in every if is_reported(each, report.options)])
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
    before, _, after = _indented_json(_document(report, [])).partition('"results": []')
    yield f'{before}"results": ['
    separator = "\n    "
    for result in report.results:
        yield separator + _indented_json(_result_document(result)).replace("\n", "\n    ")
        separator = ",\n    "
    yield ("\n  ]" if report.results else "]") + f"{after}\n"


def _indented_json(document: Mapping[str, Any]) -> str:
    # With an indent, the encoder of the standard library is not the one in C, and takes five times as long.
    try:
        return msgspec.json.format(json.dumps(document), indent=2)
    except msgspec.DecodeError:  # half of a surrogate pair, which a YAML file of -f may contain
        return json.dumps(document, indent=2)


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
        "cluster": result.cluster,
        "object": {key: value for key, value in finding.object._asdict().items() if value},
        "code": finding.code,
        "severity": finding.severity.value,
        "action": finding.change.action.word if finding.change else None,
        "outcome": result.outcome.value,
        "reason": result.reason,
        "message": result.message,
        "remedy": finding.remedy,
        "deferral": finding.deferral,
        "subjects": list(finding.subjects),
        "changes": [difference._asdict() for difference in finding.diff],
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
def progress(job: str, number: int, options: RunOptions, what: str = "writing") -> Iterator[Callable[[int], None]]:
    """Yield a function that counts writes in a progress bar on a terminal; not in a pipe, nor for small runs."""
    overwrites_lines = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    is_small = options.dry_run is DryRun.CLIENT or number <= 100
    if (what == "writing" and is_small) or not (number and overwrites_lines):
        yield lambda _writes: None
        return
    label = f"{job}: {what}"
    with click.progressbar(
        length=number, label=label, show_pos=True, width=20, update_min_steps=50, file=sys.stderr
    ) as bar:
        yield bar.update
