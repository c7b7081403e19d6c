"""The sections of the page, each a table of the status document with its notes. Pure.

Names, annotations and messages come from tenants and from servers. `element()` is the only way to write them: it
escapes what is invisible or changes the direction, and cuts what is too long. The serializer escapes HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, tostring  # written only: nothing is parsed

from jobs.core.status.problems import LOGGED, all_clear, by_namespace, with_command
from jobs.core.status.runs import ago, clock, seconds_between
from jobs.core.sync_copies.clusters import is_ready, rank
from jobs.kit.run.brakes import first_of_each
from jobs.kit.values.text import brief, format_count, listed

MOST_LINES = 20  # of a log

Content = Element | str
MOST_PLACES = 2_000_000  # of a rule in a namespace: 4 MB of the page
MOST_ROWS = 500  # of a table
MOST_ALIKE = 10  # problems of one job and code in one namespace: a tenant can cause many, and must not crowd out others
MOST_NAMES = 5  # of namespaces in a cell
_NO_TARGET = {"word": "no target", "symbol": "·", "level": "none", "rank": 9}
_READY = {"True": "ready", "False": "not ready"}
Document = Mapping[str, Any]


class Level(NamedTuple):
    """How bad a state is: the worst has rank 0. Each has a symbol of its own: color is never the only sign."""

    rank: int
    name: str
    symbol: str


WARNING = Level(1, "warning", "!")
_LEVELS = {
    Level(0, "critical", "✕"): ("critical", "failing", "failed", "not ready", "collision"),
    Level(2, "pending", "↻"): ("running", "missing", "outdated", "drifted", "adopted", "orphan", "opted-out"),
    Level(3, "ok", "✓"): ("ok", "succeeded", "ready", "unchanged"),
    Level(4, "off", "○"): ("suspended", "not-installed", "skipped", "retained", "deferred", "not known"),
}
_LEVEL_OF = {state: level for level, states in _LEVELS.items() for state in states}


def level_of(state: str) -> Level:
    """Return the level of a job's state, a run's outcome, a condition, a severity or a code of sync-copies.

    A code that is not known here is a warning, so that a new one is not overlooked.
    """
    return _LEVEL_OF.get(state, WARNING)


class Cell(NamedTuple):
    """A cell of a table; `sort` orders it if its text does not. `states` are words of the filter by state."""

    content: Content
    sort: str | float | None = None
    states: tuple[str, ...] = ()


# The columns of a table by their heads: each returns the cell of an item.
Columns = Mapping[str, Callable[[Any], Cell | Content]]


def element(tag: str, *children: Content, **attributes: str) -> Element:
    """Return an element. `class_` is written as class, `data_sort` as data-sort."""
    made = Element(tag, {name.strip("_").replace("_", "-"): brief(value) for name, value in attributes.items()})
    last: Element | None = None
    for child in children:
        if isinstance(child, Element):
            made.append(child)
            last = child
        elif last is None:
            made.text = (made.text or "") + brief(child)
        else:
            last.tail = (last.tail or "") + brief(child)
    return made


def html(elements: Iterable[Element]) -> str:
    """Serialize elements. None is void in HTML; so the rules of XML fit, which escape more than those of HTML."""
    return "\n".join(tostring(each, encoding="unicode", short_empty_elements=False) for each in elements)


def badge(state: str, text: str = "") -> Element:
    """Return the symbol and the word of a state, or another text for it."""
    level = level_of(state)
    symbol = element("span", level.symbol, class_="symbol", aria_hidden="true")
    return element("span", symbol, f" {text or state}", class_=f"badge {level.name}")


def state_cell(state: str) -> Cell:
    """Return a cell with a state, which sorts by its level."""
    return Cell(badge(state), f"{level_of(state).rank} {state}", (state,))


def last_lines(text: str) -> Element:
    """Return the last lines of a log, each on its own line."""
    return element("div", *(element("div", line) for line in text.splitlines()[-MOST_LINES:]))


def lines(texts: Sequence[str]) -> Content:
    """Return texts below each other."""
    return element("ul", *(element("li", text) for text in texts), class_="plain") if texts else ""


def table(caption: str, columns: Columns, items: Iterable[Any]) -> Element:
    """Return a table that scrolls on its own. Roles are explicit, because the style of narrow screens drops them."""
    head = element("tr", *(element("th", name, scope="col", role="columnheader") for name in columns), role="row")
    made = element(
        "table",
        element("caption", caption, class_="hidden"),
        element("thead", head, role="rowgroup"),
        element("tbody", *(_row(columns, item) for item in items), role="rowgroup"),
        role="table",
    )
    return element("div", made, class_="scroll")


def _row(columns: Columns, item: Any) -> Element:
    given = [cell_of(item) for cell_of in columns.values()]
    cells = [each if isinstance(each, Cell) else Cell(each) for each in given]
    states = [state for cell in cells for state in cell.states]
    made = [_cell(*each, first=not number) for number, each in enumerate(zip(cells, columns, strict=True))]
    level = min(map(level_of, states)).name
    words = " ".join(state.replace(" ", "-") for state in states)
    return element("tr", *made, role="row", class_=level, data_states=words, data_level=level)


def _cell(cell: Cell, column: str, *, first: bool) -> Element:
    sort = {} if cell.sort is None else {"data_sort": str(cell.sort)}
    if first:
        return element("th", cell.content, scope="row", role="rowheader", data_label=column, **sort)
    text = cell.content if isinstance(cell.content, str) else "".join(cell.content.itertext())
    empty = {} if text.strip() else {"class_": "empty"}
    return element("td", cell.content, role="cell", data_label=column, **sort, **empty)


def matrix(document: Document) -> dict[str, Any]:
    """Return namespaces, rules, codes, and for each rule the index of its code in each namespace."""
    namespaces = document["namespaces"]
    rules = document["rules"][: max(1, MOST_PLACES // max(1, len(namespaces)))]
    found = {code for rule in rules for code in rule["namespaces"].values()}
    levels = sorted((level_of(code), code) for code in found)
    index = {code: number for number, (_, code) in enumerate(levels, 1)}
    codes = [{"word": code, "symbol": each.symbol, "level": each.name, "rank": each.rank} for each, code in levels]
    one_namespace = len({rule["namespace"] for rule in rules}) == 1
    return {
        "namespaces": [brief(name) for name in namespaces],
        "rules": [brief(rule["name"] if one_namespace else f"{rule['namespace']}/{rule['name']}") for rule in rules],
        "codes": [_NO_TARGET, *codes],
        "note": f"The first {len(rules)} rules are shown." if len(rules) < len(document["rules"]) else "",
        "cells": [[index.get(rule["namespaces"].get(name, ""), 0) for name in namespaces] for rule in rules],
    }


def section(name: str, title: str, *content: Content) -> Element:
    """Return a section that the navigation links to."""
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, *content, id=name, aria_labelledby=f"{name}-title")


def jobs(document: Document) -> Element:
    """Return the table of the jobs."""
    columns: Columns = {
        "Job": itemgetter("name"),
        "State": lambda job: state_cell(job["state"]),
        "Last success": lambda job: _age(job["lastSuccess"], document["time"]),
        "Schedule": lambda job: " ".join(filter(None, (job["schedule"], (job["timeZone"] or "").removeprefix("Etc/")))),
        "Summary": _summary,
    }
    return section("jobs", "Jobs", _table("Jobs and their last success", columns, document["jobs"], "No jobs."))


def _summary(job: Document) -> Element:
    counted = [f"{number} {word}" for word, number in job["summary"].items() if number]
    counted += [format_count(word, number) for word, number in job["facts"].items() if number]
    return element("div", ", ".join(counted), lines(job["notes"]))


def problems(document: Document) -> Element:
    """Return the table of what is wrong, the worst first."""
    given = document["problems"]
    shown, repeated = first_of_each(given, by_namespace, MOST_ALIKE)
    columns: Columns = {
        "Object": _about,
        "Severity": lambda each: state_cell(each["severity"]),
        "Code and job": lambda each: Cell(_with_quiet(each["code"], each["job"]), states=(each["code"],)),
        "Reason": lambda each: last_lines(each["reason"]) if each["code"] in LOGGED else each["reason"],
        "What to do": _todo,
    }
    content = _table("What is wrong, the worst first", columns, shown, f"{sentence(all_clear(document))}.", len(given))
    texts = [
        f"{more} more {code} of {job}{f' in {place}' if place else ''}"
        for (job, code, place), more in repeated.most_common(MOST_ROWS)
    ]
    note = f"Not shown: {listed(texts, MOST_NAMES)}. `chores status -o json` has more."
    return section("problems", "Problems", *([_note(note)] if texts else []), content)


def sentence(text: str) -> str:
    """Return the text with a capital letter at its begin."""
    return text[:1].upper() + text[1:]


def _about(problem: Document) -> Element:
    key = problem["object"] or {}
    about = listed([str(each) for each in problem["subjects"] if each != key.get("name")], MOST_NAMES)
    places = (("in", key.get("namespace")), ("for", about))
    quiet = ", ".join(f"{word} {place}" for word, place in places if place)
    return _with_quiet(_name(key) if key else problem["job"], quiet)


def rules(document: Document) -> Element:
    """Return the table of CopyratorRules; page.js replaces the element after it by the matrix."""
    columns: Columns = {
        "Rule": lambda rule: _named(rule, rule["type"]),
        "Ready": _ready,
        "Sources": lambda rule: _number(rule["sources"]),
        "Copies": lambda rule: _copies(rule["copies"], rule["desiredCopies"]),
        "Conflicts": lambda rule: _number(rule["conflicts"]),
        "Last run": lambda rule: _age(rule["lastRun"], document["time"]),
        "Problems in": _affected,
        "Message": _condition,
    }
    content = _table("CopyratorRules", columns, document["rules"], "No CopyratorRules.")
    note = _note("The matrix of rules and namespaces needs JavaScript. `chores status -o json` has it too.")
    return section("rules", "Copies", content, element("div", *([note] if document["rules"] else []), id="matrix"))


def _copies(copies: int | None, desired: int | None) -> Cell:
    return Cell(_number(copies)) if desired is None else Cell(f"{_number(copies)} of {desired}", copies or 0)


def _affected(rule: Document) -> Cell:
    affected = [name for name, code in rule["namespaces"].items() if level_of(code) <= WARNING]
    return Cell(listed(affected, MOST_NAMES), len(affected))


def clusters(document: Document) -> Element | None:
    """Return the matrix of other clusters and the rules that are not ready there; None if rules select none."""
    columns: Columns = {
        "Cluster": itemgetter("name"),
        "State": _cluster_state,
        "Copies": lambda cluster: _copies(cluster["copies"], cluster["desired"]),
        "Last run": lambda cluster: _age(cluster["lastRun"], document["time"]),
        "Rules not ready": _rules_not_ready,
    }
    content = _table("Other clusters, the worst first", columns, document["clusters"], "")
    return section("clusters", "Clusters", content) if document["clusters"] else None


def _cluster_state(cluster: Document) -> Cell:
    reason = cluster["reason"]
    state = "ready" if is_ready(reason) else "not ready"
    return Cell(badge(state, reason), f"{rank(reason):03} {reason}", (state,))


def _rules_not_ready(cluster: Document) -> Cell:
    wrong = [f"{name} ({reason})" for name, reason in cluster["rules"].items() if not is_ready(reason)]
    return Cell(listed(wrong, MOST_NAMES), len(wrong))


def mirrors(document: Document) -> Element:
    """Return the tables of RegistryMirrors and of the findings about them."""
    columns: Columns = {
        "Mirror": itemgetter("name"),
        "Upstream": itemgetter("registry"),
        "Ready": _ready,
        "Findings": lambda mirror: str(len(mirror["checks"])),
        "Message": _condition,
    }
    of_checks: Columns = {
        "Mirror": itemgetter("mirror"),
        "Severity": lambda check: state_cell(check["severity"]),
        "Code": lambda check: Cell(check["code"], states=(check["code"],)),
        "Object": lambda check: _object(check["object"]) if check["object"] else "",
        "Reason": itemgetter("reason"),
        "What to do": _todo,
    }
    content = [_table("RegistryMirrors", columns, document["mirrors"], "No RegistryMirrors.")]
    if checks := [{**each, "mirror": mirror["name"]} for mirror in document["mirrors"] for each in mirror["checks"]]:
        content += [element("h3", "Checks of mirrors"), _table("Findings of mirrors", of_checks, checks, "")]
    return section("mirrors", "Registry mirrors", *content)


def rates(document: Document) -> Element:
    """Return the table of ExchangeRates."""
    now = document["time"]
    columns: Columns = {
        "Rate": _named,
        "Pair": lambda rate: f"{rate['base']}/{rate['currency']}",
        "Value": lambda rate: str(rate["rate"] or ""),
        "Date": lambda rate: Cell(_with_quiet(rate["date"] or "none", ago(rate["date"], now)), rate["date"] or ""),
        "Last change": lambda rate: _age(rate["lastChange"], now, "not known"),
        "Ready": _ready,
        "Message": _condition,
    }
    return section("rates", "Exchange rates", _table("ExchangeRates", columns, document["rates"], "No ExchangeRates."))


def deferred(document: Document) -> Element:
    """Return the table of rolls that a later run makes."""
    columns: Columns = {
        "Workload": lambda roll: Cell(_object(roll), states=("deferred",)),
        "Code": lambda roll: Cell(roll["code"], states=(roll["code"],)),
        "Reason": itemgetter("reason"),
    }
    content = _table("Deferred rolls", columns, document["deferred"], "No roll is deferred.")
    return section("deferred", "Deferred rolls", content)


def notes(document: Document) -> Element | None:
    """Return what could not be read, and what the document leaves out."""
    texts = [*document["notes"], *(f"{name}: {text}" for name, text in document["limits"].items())]
    return section("notes", "Notes", lines(texts[:MOST_ROWS])) if texts else None


def _table(caption: str, columns: Columns, items: Sequence[Document], empty: str, of_all: int = 0) -> Element:
    if not items:
        return element("p", empty, class_="quiet")
    made = table(caption, columns, items[:MOST_ROWS])
    if len(items) > MOST_ROWS:
        number = max(of_all, len(items))
        made.append(_note(f"The first {MOST_ROWS} of {number} rows. `chores status -o json` has more."))
    return made


def _note(text: str) -> Element:
    return element("p", text, class_="note")


def _ready(resource: Document) -> Cell:
    return state_cell(_READY.get(resource["ready"], "unknown"))


def _condition(resource: Document) -> str:
    return ": ".join(filter(None, (resource["reason"], resource["message"])))


def _object(key: Document) -> Element:
    return _named({**key, "name": _name(key)})


def _named(given: Document, kind: str = "") -> Element:
    place = f"{kind} in {given['namespace']}".strip() if given.get("namespace") else ""
    return _with_quiet(given["name"], place)


def _with_quiet(text: Content, quiet: str) -> Element:
    return element("div", text, element("div", quiet, class_="quiet"))


def _name(key: Document) -> str:
    return f"{key['kind'].lower()}/{key['name']}"


def _todo(problem: Document) -> Content:
    words, command = with_command(problem["todo"])
    return element("div", words, element("code", command)) if command else problem["todo"]


def _age(time: str | None, now: str, absent: str = "never") -> Cell:
    if time is None:
        return Cell(absent, float(2**40))
    return Cell(element("time", ago(time, now) or time, title=clock(time)), seconds_between(time, now))


def _number(given: int | None) -> str:
    return "" if given is None else str(given)
