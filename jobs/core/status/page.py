"""The page of `chores status -o html`: one file that loads nothing, readable without JavaScript too. Pure.

Its time line is an SVG with a lane for each job, and a table with the same runs.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import Any
from xml.etree.ElementTree import Element

from jobs.core.status import sections
from jobs.core.status.problems import all_clear
from jobs.core.status.runs import ago, clock, seconds_between, span
from jobs.core.status.sections import (
    MOST_ROWS,
    Cell,
    Columns,
    badge,
    element,
    html,
    last_lines,
    section,
    state_cell,
    table,
)
from jobs.kit.values.text import format_count

MOST_RUNS = 50  # of one job
_LANE = 38  # pixels
_YOUNGEST = 10.0  # seconds: left of this age, the scale is logarithmic
_TICKS = (60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 30 * 86400, 365 * 86400)
_MARKS = {"succeeded": "M-4,-4H4V4H-4Z", "failed": "M-5,-5L5,5M-5,5L5,-5", "running": "M-4,-5L5,0L-4,5Z"}

Document = Mapping[str, Any]
Place = Callable[[float], str]


def timeline(document: Document) -> Element:
    """Return the section with the runs of all jobs."""
    now = document["time"]
    lanes = {
        job["name"]: [{**run, "job": job["name"]} for run in job["runs"][:MOST_RUNS] if ago(run["start"], now)]
        for job in document["jobs"]
    }
    runs = [run for lane in lanes.values() for run in lane]
    if not runs:
        return section("runs", "Runs", element("p", "No runs.", class_="quiet"))
    shown = runs[:MOST_ROWS]
    content = table("Runs of all jobs", _columns(now), shown)
    drawn = _svg([lane for lane in lanes.values() if lane], max(_seconds(run["start"], now) for run in runs), now)
    as_table = element("details", element("summary", f"All {len(shown)} runs as a table"), content)
    return section("runs", "Runs", _key(), drawn, as_table)


def _columns(now: str) -> Columns:
    def duration(run: Document) -> Cell:
        seconds = _seconds(run["start"], run["end"] or now)
        return Cell(span(seconds), seconds)

    return {
        "Job": lambda run: run["job"],
        "Start": lambda run: Cell(clock(run["start"]), run["start"]),
        "Age": lambda run: Cell(ago(run["start"], now), _seconds(run["start"], now)),
        "Duration": duration,
        "Outcome": lambda run: state_cell(run["outcome"]),
        "Exit code": lambda run: " ".join(str(each) for each in (run["exitCode"], run["reason"]) if each is not None),
        "Message": lambda run: element("div", last_lines(run["message"] or ""), class_="log"),
    }


def _key() -> Element:
    text = "Now is on the right. The scale is logarithmic: recent runs have more room."
    marks = []
    for outcome, path in _MARKS.items():
        mark = element("path", d=path, class_=f"mark {outcome}")
        drawn = element("svg", mark, viewBox="-8 -8 16 16", width="14", height="14", aria_hidden="true")
        marks.append(element("li", drawn, f" {outcome}"))
    return element("div", element("ul", *marks, class_="key"), element("p", text, class_="quiet"))


def _svg(lanes: Sequence[Sequence[Document]], oldest: float, now: str) -> Element:
    """Return the drawing. Positions are in percent of the width: now at 98 %, the oldest run about at 2 %."""
    longest = math.log1p(max(oldest, 60.0) * 1.3 / _YOUNGEST)

    def place(age: float) -> str:
        return f"{98 - 96 * min(1.0, math.log1p(age / _YOUNGEST) / longest):.2f}%"

    height = _LANE * len(lanes) + 24
    names = ", ".join(lane[0]["job"] for lane in lanes)
    label = f"Time line of the runs of {names}. The table after it has the same runs."
    ages = [age for age in (0, *_TICKS) if math.log1p(age / _YOUNGEST) < longest]
    drawn = [each for age in ages for each in _tick(age, place(age), height)]
    for number, runs in enumerate(lanes):
        drawn += _lane(runs, number * _LANE, place, now)
    return element("svg", *drawn, role="img", aria_label=label, class_="timeline", width="100%", height=str(height))


def _seconds(start: str, end: str) -> float:
    return seconds_between(start, end) or 0.0


def _tick(age: int, at: str, height: int) -> Iterator[Element]:
    yield element("line", x1=at, x2=at, y1="0", y2=str(height - 20), class_="tick")
    text, x, anchor = (span(age), at, "middle") if age else ("now", "100%", "end")
    yield element("text", text, x=x, y=str(height - 4), text_anchor=anchor, class_="label")


def _lane(runs: Sequence[Document], top: int, place: Place, now: str) -> Iterator[Element]:
    middle = str(top + 26)
    yield element("text", runs[0]["job"], x="0", y=str(top + 14), class_="lane")
    yield element("line", x1="2%", x2="98%", y1=middle, y2=middle, class_="track")
    for run in reversed(runs):
        start, end = (place(_seconds(time, now)) for time in (run["start"], run["end"] or now))
        yield element("line", x1=start, x2=end, y1=middle, y2=middle, class_=f"bar {run['outcome']}")
        code = "" if run["exitCode"] is None else f", exit code {run['exitCode']}"
        title = element("title", f"{run['name']}: {run['outcome']}, {clock(run['start'])}{code}")
        path = element("path", title, d=_MARKS.get(run["outcome"], _MARKS["failed"]), class_=f"mark {run['outcome']}")
        yield element("svg", path, x=end, y=middle, width="1", height="1", overflow="visible")


def page(document: Document) -> str:
    """Return the page as HTML. The document comes from `document()`; its texts may be hostile."""
    style, script = _file("page.css"), _file("page.js")
    return Template(_file("page.html")).substitute(
        style_hash=_hash(style),
        script_hash=_hash(script),
        style=style,
        script=script,
        title=html([element("title", f"{_headline(document)} · {document['namespace']} · kube-chores")]),
        body=html(_body(document)),
        data=_data(sections.matrix(document)),
    )


def _file(name: str) -> str:
    return (files("jobs.core.status") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _data(value: Any) -> str:
    """Return JSON that cannot end its script element, nor begin a comment in it."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")


def _headline(document: Document) -> str:
    counts = Counter(each["severity"] for each in document["problems"])
    if not counts:
        return sections.sentence(all_clear(document))
    parts = [f"{counts['critical']} critical"] if counts["critical"] else []
    parts += [format_count("warnings", counts["warning"])] if counts["warning"] else []
    prefix = "The status is unknown; " if document["unknown"] else ""
    return f"{prefix}{format_count('problems', counts.total())}: {', '.join(parts)}"


def _body(document: Document) -> list[Element]:
    made = [
        sections.jobs,
        sections.problems,
        timeline,
        sections.rules,
        sections.clusters,
        sections.mirrors,
        sections.rates,
        sections.deferred,
        sections.notes,
    ]
    parts = [part for each in made if (part := each(document)) is not None]
    links = (element("li", element("a", part[0].text or "", href=f"#{part.get('id')}")) for part in parts)
    navigation = element("nav", element("ul", *links), aria_label="Sections")
    return [_header(document), navigation, element("div", id="filter"), element("main", *parts, id="main")]


def _header(document: Document) -> Element:
    is_clear = not document["unknown"] and not document["partial"]
    worst = document["problems"][:1]  # they are sorted
    state = worst[0]["severity"] if worst else "ok" if is_clear else "not known"
    facts = [
        ("Namespace", document["namespace"]),
        ("Context", document["context"]),
        ("Server", document["server"]),
        ("As of", clock(document["time"])),
        ("Version", document["version"]),
    ]
    listed = (element("div", element("dt", name), element("dd", value)) for name, value in facts if value)
    return element(
        "header", element("h1", "kube-chores"), element("p", badge(state, _headline(document)), class_="headline"),
        element("dl", *listed),
    )  # fmt: skip
