"""The sections of the page, each a table of the status document with its notes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from jobs.core.status.elements import (
    PROBLEMS,
    SYMBOLS,
    Cell,
    Content,
    Row,
    element,
    last_lines,
    level_of,
    lines,
    ready_state,
    state_cell,
    table,
)
from jobs.core.status.problems import all_clear, by_namespace, numbered, with_command
from jobs.core.status.runs import ago, clock, seconds_between
from jobs.kit.values.text import brief, listed
from jobs.kit.values.turns import first_of_each

NO_TARGET = "no target"
MOST_PLACES = 2_000_000  # of a rule in a namespace: 4 MB of the page


def matrix(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return namespaces, rules, codes, and for each rule the index of its code in each namespace."""
    namespaces = document["namespaces"]
    rules = document["rules"][: max(1, MOST_PLACES // max(1, len(namespaces)))]
    codes = sorted(
        {code for rule in rules for code in rule["namespaces"].values()}, key=lambda code: (level_of(code).rank, code)
    )
    one_namespace = len({rule["namespace"] for rule in rules}) == 1
    index = {code: number for number, code in enumerate(codes, 1)}
    return {
        "namespaces": [brief(name) for name in namespaces],
        "rules": [brief(rule["name"] if one_namespace else f"{rule['namespace']}/{rule['name']}") for rule in rules],
        "codes": [_code(NO_TARGET, "·", "none", 9), *(_code_of(code) for code in codes)],
        "note": f"The first {len(rules)} rules are shown." if len(rules) < len(document["rules"]) else "",
        "cells": [[index.get(rule["namespaces"].get(name, ""), 0) for name in namespaces] for rule in rules],
    }


def _code_of(code: str) -> dict[str, Any]:
    level = level_of(code)
    return _code(code, SYMBOLS[level], level.value, level.rank)


def _code(word: str, symbol: str, level: str, rank: int) -> dict[str, Any]:
    return {"word": word, "symbol": symbol, "level": level, "rank": rank}


MOST_ROWS = 500  # of a table
MOST_ALIKE = 10  # problems of one job and code in one namespace: a tenant can cause many, and must not crowd out others
MOST_NAMES = 5  # of namespaces in a cell


Document = Mapping[str, Any]


def section(name: str, title: str, *content: Content) -> Element:
    """Return a section that the navigation links to."""
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, *content, id=name, aria_labelledby=f"{name}-title")


def jobs(document: Document) -> Element:
    """Return the table of the jobs."""
    columns = ("Job", "State", "Last success", "Schedule", "Summary")
    rows = [Row(_job_cells(each, document["time"]), (each["state"],)) for each in document["jobs"]]
    return section("jobs", "Jobs", _table("Jobs and their last success", columns, rows, "No jobs."))


def _job_cells(job: Document, now: str) -> list[Cell | Content]:
    schedule = " ".join(filter(None, (job["schedule"], (job["timeZone"] or "").removeprefix("Etc/"))))
    counted = [f"{number} {word}" for word, number in job["summary"].items() if number]
    counted += [numbered(number, word) for word, number in job["facts"].items() if number]
    summary = element("div", ", ".join(counted), lines(job["notes"]) or "")
    return [job["name"], state_cell(job["state"]), _age(job["lastSuccess"], now, "never"), schedule, summary]


def problems(document: Document) -> Element:
    """Return the table of what is wrong, the worst first."""
    given = document["problems"]
    shown, repeated = first_of_each(given, by_namespace, MOST_ALIKE)
    rows = [Row(_problem_cells(each), (each["severity"], each["code"])) for each in shown]
    empty = f"{sentence(all_clear(document))}."
    content = _table("What is wrong, the worst first", _PROBLEM_COLUMNS, rows, empty, len(given))
    return section("problems", "Problems", *_notes_of_repeats(repeated), content)


_PROBLEM_COLUMNS = ("Object", "Severity", "Code and job", "Reason", "What to do")


def sentence(text: str) -> str:
    """Return the text with a capital letter at its begin."""
    return text[:1].upper() + text[1:]


def _problem_cells(problem: Document) -> list[Cell | Content]:
    key = problem["object"] or {}
    about = listed([str(each) for each in problem["subjects"] if each != key.get("name")], MOST_NAMES)
    places = (("in", key.get("namespace")), ("for", about))
    quiet = ", ".join(f"{word} {place}" for word, place in places if place)
    where = _with_quiet(_name(key) if key else problem["job"], quiet)
    code = _with_quiet(problem["code"], problem["job"])
    return [where, state_cell(problem["severity"]), code, _reason(problem), _todo(problem["todo"])]


def _reason(problem: Document) -> Content:
    """Return the reason; that of a failed run has the end of its log."""
    return last_lines(problem["reason"]) if problem["code"] in ("job-failing", "job-stuck") else problem["reason"]


def _notes_of_repeats(repeated: Counter[tuple[str, str, str]]) -> Iterator[Element]:
    if repeated:
        texts = [
            f"{more} more {code} of {job}{f' in {place}' if place else ''}"
            for (job, code, place), more in repeated.most_common(MOST_ROWS)
        ]
        yield element(
            "p", f"Not shown: {listed(texts, MOST_NAMES)}. `chores status -o json` has all of them.", class_="note"
        )


def rules(document: Document) -> Element:
    """Return the table of CopyratorRules; JavaScript adds the matrix of rules and namespaces after it."""
    columns = (
        "Rule",
        "Ready",
        "Sources",
        "Copies",
        "Conflicts",
        "Last run",
        "Problems in",
        "Message",
    )
    rows = [Row(_rule_cells(each, document["time"]), _states_of_rule(each)) for each in document["rules"]]
    content = _table("CopyratorRules", columns, rows, "No CopyratorRules.")
    return section("rules", "Copies", content, _place_of_matrix(rows))


def _place_of_matrix(rows: Sequence[Row]) -> Element:
    """Return what page.js replaces by the matrix."""
    text = "The matrix of rules and namespaces needs JavaScript. `chores status -o json` has it too."
    return element("div", *([element("p", text, class_="note")] if rows else []), id="matrix")


def _states_of_rule(rule: Document) -> list[str]:
    return [ready_state(rule["ready"])]


def _rule_cells(rule: Document, now: str) -> list[Cell | Content]:
    affected = [name for name, code in rule["namespaces"].items() if level_of(code) in PROBLEMS]
    copies = Cell(f"{_number(rule['copies'])} of {_number(rule['desiredCopies'])}", rule["copies"] or 0)
    if rule["desiredCopies"] is None:
        copies = Cell(_number(rule["copies"]))
    return [
        _named(rule, rule["type"]),
        state_cell(ready_state(rule["ready"])),
        _number(rule["sources"]),
        copies,
        _number(rule["conflicts"]),
        _age(rule["lastRun"], now, "never"),
        Cell(listed(affected, MOST_NAMES), len(affected)),
        _condition(rule),
    ]


def mirrors(document: Document) -> Element:
    """Return the tables of RegistryMirrors and of the findings about them."""
    given = document["mirrors"]
    rows = [Row(_mirror_cells(each), (ready_state(each["ready"]),)) for each in given]
    checks = [
        Row(_check_cells(mirror, each), (each["severity"], each["code"]))
        for mirror in given
        for each in mirror["checks"]
    ]
    columns = ("Mirror", "Upstream", "Ready", "Findings", "Message")
    content = [_table("RegistryMirrors", columns, rows, "No RegistryMirrors.")]
    if checks:
        content += [element("h3", "Checks of mirrors"), _table("Findings of mirrors", _CHECK_COLUMNS, checks, "")]
    return section("mirrors", "Registry mirrors", *content)


_CHECK_COLUMNS = ("Mirror", "Severity", "Code", "Object", "Reason", "What to do")


def _mirror_cells(mirror: Document) -> list[Cell | Content]:
    return [
        mirror["name"],
        mirror["registry"],
        state_cell(ready_state(mirror["ready"])),
        str(len(mirror["checks"])),
        _condition(mirror),
    ]


def _check_cells(mirror: Document, check: Document) -> list[Cell | Content]:
    severity = state_cell(check["severity"])
    return [mirror["name"], severity, check["code"], _object(check["object"]), check["reason"], _todo(check["todo"])]


def rates(document: Document) -> Element:
    """Return the table of ExchangeRates."""
    columns = ("Rate", "Pair", "Value", "Date", "Last change", "Ready", "Message")
    rows = [Row(_rate_cells(each, document["time"]), (ready_state(each["ready"]),)) for each in document["rates"]]
    return section("rates", "Exchange rates", _table("ExchangeRates", columns, rows, "No ExchangeRates."))


def _rate_cells(rate: Document, now: str) -> list[Cell | Content]:
    day = rate["date"] or ""
    return [
        _named(rate),
        f"{rate['base']}/{rate['currency']}",
        str(rate["rate"] or ""),
        Cell(_with_quiet(day or "none", ago(day, now)), day),
        _age(rate["lastChange"], now, "not known"),
        state_cell(ready_state(rate["ready"])),
        _condition(rate),
    ]


def deferred(document: Document) -> Element:
    """Return the table of rolls that a later run makes."""
    rows = [Row(_deferred_cells(each), ("deferred", each["code"])) for each in document["deferred"]]
    content = _table("Deferred rolls", ("Workload", "Code", "Reason"), rows, "No roll is deferred.")
    return section("deferred", "Deferred rolls", content)


def _deferred_cells(roll: Document) -> list[Cell | Content]:
    return [_object(roll), roll["code"], roll["reason"]]


def notes(document: Document) -> Element | None:
    """Return what could not be read, and what the document leaves out."""
    texts = [*document["notes"], *(f"{name}: {text}" for name, text in document["limits"].items())]
    return section("notes", "Notes", lines(texts[:MOST_ROWS])) if texts else None


def _table(caption: str, columns: Sequence[str], rows: Sequence[Row], empty: str, all_rows: int = 0) -> Element:
    if not rows:
        return element("p", empty, class_="quiet")
    made = table(caption, columns, rows[:MOST_ROWS])
    if len(rows) > MOST_ROWS:
        text = f"The first {MOST_ROWS} of {max(all_rows, len(rows))} rows. `chores status -o json` has all of them."
        made.append(element("p", text, class_="note"))
    return made


def _condition(resource: Document) -> str:
    return ": ".join(filter(None, (resource["reason"], resource["message"])))


def _object(key: Document | None) -> Content:
    if not key:
        return ""
    return _named({**key, "name": _name(key)})


def _named(given: Document, kind: str = "") -> Element:
    place = f"{kind} in {given['namespace']}".strip() if given.get("namespace") else ""
    return _with_quiet(given["name"], place)


def _with_quiet(text: Content, quiet: str) -> Element:
    return element("div", text, element("div", quiet, class_="quiet"))


def _name(key: Document) -> str:
    return f"{key['kind'].lower()}/{key['name']}"


def _todo(text: str) -> Content:
    words, command = with_command(text)
    return element("div", words, element("code", command)) if command else text


def _age(time: str | None, now: str, absent: str) -> Cell:
    if time is None:
        return Cell(absent, float(2**40))
    return Cell(element("time", ago(time, now) or time, title=clock(time)), seconds_between(time, now))


def _number(given: int | None) -> str:
    return "" if given is None else str(given)
