"""Runs on a time line: an SVG with a lane for each job, and a table with the same runs. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from jobs.core.status.elements import Cell, Content, Row, element, last_lines, state_cell, table
from jobs.core.status.runs import ago, clock, seconds_between, span
from jobs.core.status.sections import MOST_ROWS, section

MOST_RUNS = 50  # of one job
_LANE = 38  # pixels
_YOUNGEST = 10.0  # seconds: left of this age, the scale is logarithmic
_TICKS = (60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400, 365 * 86400)
_MARKS = {"succeeded": "M-4,-4H4V4H-4Z", "failed": "M-5,-5L5,5M-5,5L5,-5", "running": "M-4,-5L5,0L-4,5Z"}

Document = Mapping[str, Any]


def timeline(document: Document) -> Element:
    """Return the section with the runs of all jobs."""
    now = document["time"]
    of_jobs = ((job["name"], job["runs"][:MOST_RUNS]) for job in document["jobs"])
    started = (
        (name, [run for run in runs if seconds_between(run["start"], now) is not None]) for name, runs in of_jobs
    )
    lanes = [(name, runs) for name, runs in started if runs]
    if not lanes:
        return section("runs", "Runs", element("p", "No runs.", class_="quiet"))
    rows = [_row(job, run, now) for job, runs in lanes for run in runs][:MOST_ROWS]
    columns = ("Job", "Start", "Age", "Duration", "Outcome", "Exit code", "Message")
    content = table("Runs of all jobs", columns, rows)
    runs = element("details", element("summary", f"All {len(rows)} runs as a table"), content)
    return section("runs", "Runs", _key(), _svg(lanes, now), runs)


def _key() -> Element:
    text = "Now is on the right. The scale is logarithmic: recent runs have more room."
    marks = (element("li", _small_mark(outcome), f" {outcome}") for outcome in _MARKS)
    return element("div", element("ul", *marks, class_="key"), element("p", text, class_="quiet"))


def _small_mark(outcome: str) -> Element:
    path = element("path", d=_MARKS[outcome], class_=f"mark {outcome}")
    return element("svg", path, viewBox="-8 -8 16 16", width="14", height="14", aria_hidden="true")


def _row(job: str, run: Document, now: str) -> Row:
    code = run["exitCode"]
    duration = _seconds(run["start"], run["end"] or now)
    cells: list[Cell | Content] = [
        job,
        Cell(clock(run["start"]), run["start"]),
        Cell(ago(run["start"], now), _seconds(run["start"], now)),
        Cell(span(duration), duration),
        state_cell(run["outcome"]),
        " ".join(str(each) for each in (code, run["reason"]) if each is not None),
        element("div", last_lines(run["message"] or ""), class_="log"),
    ]
    return Row(cells, (run["outcome"],))


def _svg(lanes: Sequence[tuple[str, Sequence[Document]]], now: str) -> Element:
    oldest = max(_seconds(run["start"], now) for _, runs in lanes for run in runs)
    scale = _Scale(oldest)
    height = _LANE * len(lanes) + 24
    label = f"Time line of the runs of {', '.join(job for job, _ in lanes)}. The table after it has the same runs."
    drawn = [*_ticks(scale, height)]
    for number, (job, runs) in enumerate(lanes):
        drawn += _lane(job, runs, number * _LANE, scale, now)
    return element("svg", *drawn, role="img", aria_label=label, class_="timeline", width="100%", height=str(height))


def _seconds(start: str, end: str) -> float:
    return seconds_between(start, end) or 0.0


class _Scale:
    """Positions in percent of the width: now at 98 %, the oldest run at 2 %."""

    def __init__(self, oldest: float) -> None:
        self._longest = math.log1p(max(oldest, 60.0) * 1.3 / _YOUNGEST)

    def percent(self, age: float) -> str:
        """Return where this age is, at most at the left edge."""
        return f"{98 - 96 * min(1.0, math.log1p(age / _YOUNGEST) / self._longest):.2f}%"

    def ticks(self) -> list[int]:
        """Return the ages with a label."""
        return [age for age in _TICKS if math.log1p(age / _YOUNGEST) < self._longest]


def _ticks(scale: _Scale, height: int) -> Iterator[Element]:
    for age in (0, *scale.ticks()):
        at = scale.percent(age)
        yield element("line", x1=at, x2=at, y1="0", y2=str(height - 20), class_="tick")
        anchor = "middle" if age else "end"
        place = at if age else "100%"
        text = span(age) if age else "now"
        yield element("text", text, x=place, y=str(height - 4), text_anchor=anchor, class_="label")


def _lane(job: str, runs: Sequence[Document], top: int, scale: _Scale, now: str) -> Iterator[Element]:
    middle = top + 26
    yield element("text", job, x="0", y=str(top + 14), class_="lane")
    yield element("line", x1="2%", x2="98%", y1=str(middle), y2=str(middle), class_="track")
    for run in reversed(runs):
        start, end = (scale.percent(_seconds(time, now)) for time in (run["start"], run["end"] or now))
        yield element("line", x1=start, x2=end, y1=str(middle), y2=str(middle), class_=f"bar {run['outcome']}")
        yield _mark(run, end, middle)


def _mark(run: Document, at: str, middle: int) -> Element:
    code = "" if run["exitCode"] is None else f", exit code {run['exitCode']}"
    title = element("title", f"{run['name']}: {run['outcome']}, {clock(run['start'])}{code}")
    path = element("path", title, d=_MARKS.get(run["outcome"], _MARKS["failed"]), class_=f"mark {run['outcome']}")
    return element("svg", path, x=at, y=str(middle), width="1", height="1", overflow="visible")
