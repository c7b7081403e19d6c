"""The document as text for a terminal of 80 columns. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from jobs.core.status.problems import LOGGED, UNCHANGED, all_clear, with_command
from jobs.core.status.runs import seconds_between
from jobs.core.sync_copies.clusters import is_ready
from jobs.kit.values.text import brief, coloured, format_count, listed, visible

_WIDTH = 80
_MOST_GROUPS = 15
_MOST_NAMES = 3
_LONGEST_SCHEDULE = 32
_MOST_CLUSTERS = 15
_LONGEST_REASON = 24  # of a cluster
_ROOM_FOR_RULES = 16
_LONGEST = 300  # characters of one reason without -v
_COLORS = {
    "ok": "green",
    "Synced": "green",
    "failing": "red",
    "late": "red",
    "never": "yellow",
    "critical": "red",
    "warning": "yellow",
}


def text(document: Mapping[str, Any], *, verbose: bool = False) -> Iterator[str]:
    """Yield the lines of the document: the jobs, then what is wrong, the worst first.

    Problems of one job and code are one entry: so many problems of one tenant do not hide those of others.
    """
    where = f"context {document['context']}, " if document["context"] else ""
    head = f"kube-chores {document['version']}: {where}namespace {document['namespace']}, {document['time']}"
    yield from _wrapped(visible(head))
    yield ""
    yield from _jobs(document)
    yield ""
    if document["clusters"]:
        yield from _clusters(document)
        yield ""
    yield from _problems(document, verbose=verbose)
    notes = [*document["notes"], *document["limits"].values()]
    notes += [f"{job['name']}: {note}" for job in document["jobs"] for note in job["notes"]]
    for note in notes:
        yield from _wrapped(f"note: {brief(note)}", "      ")


def _jobs(document: Mapping[str, Any]) -> Iterator[str]:
    now = document["time"]
    rows = [("JOB", "STATE", "SUCCEEDED", "SCHEDULE")]
    for job in document["jobs"]:
        age = f"{_age(job['lastSuccess'], now)} ago" if job["lastSuccess"] else "-"
        rows.append((job["name"], job["state"], age, _cut(visible(job["schedule"] or "-"), _LONGEST_SCHEDULE)))
    room = _room(rows)
    yield from _aligned(rows, ["OBJECTS", *(_objects(job, room) for job in document["jobs"])], 1)


def _clusters(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of other clusters: of one that is not ready, with the rules that are not."""
    shown = document["clusters"][:_MOST_CLUSTERS]
    states = [("COPIES", "REASON")]
    for each in shown:
        copies = "-" if each["copies"] is None else f"{each['copies']} of {each['desired']}"
        states.append((copies, _cut(visible(each["reason"]), _LONGEST_REASON)))
    longest = _room(states) - _ROOM_FOR_RULES
    names = ["CLUSTER", *(_cut(visible(each["name"]), longest) for each in shown)]
    rows = [(name, *state) for name, state in zip(names, states, strict=True)]
    room = _room(rows)
    yield from _aligned(rows, ["RULES", *(_cut(_rules(each), room) for each in shown)], 2)
    if more := len(document["clusters"]) - len(shown):
        yield f"... and {more} more; -o json shows all of them"


def _rules(cluster: Mapping[str, Any]) -> str:
    wrong = [visible(name) for name, reason in cluster["rules"].items() if not is_ready(reason)]
    return f"{len(wrong)} of {len(cluster['rules'])}: {', '.join(wrong)}" if wrong else str(len(cluster["rules"]))


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _room(rows: Sequence[Sequence[str]]) -> int:
    """Return how wide a column after these may be."""
    return _WIDTH - sum(len(max(column, key=len)) + 2 for column in zip(*rows, strict=True))


def _aligned(rows: Sequence[Sequence[str]], last: Sequence[str], coloured_column: int) -> Iterator[str]:
    """Yield the lines of a table with a last column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, end in zip(rows, last, strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        cells[coloured_column] = coloured(cells[coloured_column], _COLORS.get(row[coloured_column]))
        yield "  ".join([*cells, end]).rstrip()


def _objects(job: Mapping[str, Any], room: int) -> str:
    """Return the numbers of objects by code, as many as fit, and the number of the others."""
    counts = [(number, "ok" if code == UNCHANGED else code) for code, number in job["summary"].items() if number]
    for shown in range(len(counts), -1, -1):
        rest = sum(number for number, _ in counts[shown:])
        parts = [*(f"{number} {code}" for number, code in counts[:shown]), *([f"{rest} other"] if rest else [])]
        line = ", ".join(parts)
        if parts and len(line) <= room:
            return line
    return next((format_count(name, number) for name, number in job["facts"].items()), "")


def _problems(document: Mapping[str, Any], *, verbose: bool) -> Iterator[str]:
    problems = document["problems"]
    if document["unknown"] or not problems:
        color = "yellow" if document["unknown"] else "green"
        yield from (click.style(line, fg=color) for line in _wrapped(visible(all_clear(document)), "  "))
    if not problems:
        return
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for number, each in enumerate(problems):
        key = (str(number),) if verbose else (each["severity"], each["job"], each["code"])
        groups.setdefault(key, []).append(each)
    yield click.style("1 thing is wrong:" if len(problems) == 1 else f"{len(problems)} things are wrong:", bold=True)
    shown = list(groups.values()) if verbose else list(groups.values())[:_MOST_GROUPS]
    for group in shown:
        yield from _group(group, verbose=verbose)
    if hidden := sum(map(len, groups.values())) - sum(map(len, shown)):
        yield f"... and {hidden} more; -v shows all of them"


def _group(group: Sequence[Mapping[str, Any]], *, verbose: bool) -> Iterator[str]:
    """Yield the lines of the problems of one job and code: the first one in full, the names of some others."""
    first = group[0]
    count = f" ({len(group)})" if len(group) > 1 else ""
    severity = coloured(first["severity"], _COLORS.get(first["severity"]))
    yield f"{severity}  {first['job']}  {brief(first['code'])}{count}"
    longest = 2000 if verbose else _LONGEST
    # A log has several lines; other reasons quote tenants, and stay one line.
    lines = first["reason"].split("\n") if first["code"] in LOGGED else [first["reason"]]
    yield from _wrapped(f"  {_name(first)}{brief(lines[0], longest)}", "    ")
    for line in lines[1:]:
        yield from _wrapped(f"    {brief(line, longest)}", "    ")
    others = [_object(each["object"]) for each in group[1:] if each["object"]]
    own = _object(first["object"]) if first["object"] else ""
    named = [each for each in dict.fromkeys(others) if each != own][:_MOST_NAMES]
    more = f"{len(others) - len(named)} more (-v)" if len(others) > len(named) else ""
    if others:
        yield from _wrapped(f"  also {' and '.join(filter(None, (', '.join(named), more)))}", "    ")
    words, command = with_command(brief(first["todo"]))
    yield from _wrapped(f"  to do: {words}".rstrip(), "    ")
    if command:  # on a line of its own that can be copied
        yield f"    {command}"


def _name(problem: Mapping[str, Any]) -> str:
    """Return the object of a problem, with the rule or other custom resource that it is about, and a colon."""
    found = problem["object"]
    if not found:
        return ""
    own = (found["name"], f"{found.get('namespace', '')}/{found['name']}")
    subjects = [each for each in problem["subjects"] if each not in own]
    return f"{_object(found)}{f' ({brief(listed(subjects, _MOST_NAMES), 200)})' if subjects else ''}: "


def _object(found: Mapping[str, str]) -> str:
    where = f" in {found['namespace']}" if "namespace" in found else ""
    return brief(f"{found['kind'].lower()}/{found['name']}{where}", 200)


def _wrapped(line: str, further: str = "") -> list[str]:
    """Return the lines of a text; a word that is longer than a line, such as a command's URL, stays whole."""
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(
        line.strip(),
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=further,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _age(time: str, now: str) -> str:
    """Return how long ago a time was, as kubectl prints it: 35s, 12m, 3h, 5d."""
    found = seconds_between(time, now)
    if found is None:
        return "?"
    seconds = int(found)
    for unit, size, most in (("s", 1, 120), ("m", 60, 120), ("h", 3600, 48)):
        if seconds < size * most:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"
