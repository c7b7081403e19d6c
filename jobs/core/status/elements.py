"""HTML as a tree of elements, so that all text is escaped where it is written. Pure.

Names, annotations and messages come from tenants and from servers. `element()` is the only way to write them: it
escapes what is invisible or changes the direction, and cuts what is too long. The serializer escapes HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from xml.etree.ElementTree import Element, tostring  # written only: nothing is parsed

from jobs.kit.values.text import brief

MOST_LINES = 20  # of a log

Content = Element | str


class Level(Enum):
    """The worst first. Each has a symbol of its own: color is never the only sign."""

    CRITICAL = "critical"
    WARNING = "warning"
    PENDING = "pending"
    OK = "ok"
    OFF = "off"

    @property
    def rank(self) -> int:
        """Return 0 for the worst."""
        return list(Level).index(self)


SYMBOLS = {Level.CRITICAL: "✕", Level.WARNING: "!", Level.PENDING: "↻", Level.OK: "✓", Level.OFF: "○"}
PROBLEMS = (Level.CRITICAL, Level.WARNING)

_LEVELS = {
    Level.CRITICAL: ("critical", "failing", "failed", "not ready", "collision"),
    Level.PENDING: ("running", "missing", "outdated", "drifted", "adopted", "orphan", "opted-out"),
    Level.OK: ("ok", "succeeded", "ready", "unchanged"),
    Level.OFF: ("suspended", "not-installed", "skipped", "retained", "deferred", "not known"),
}
_LEVEL_OF = {state: level for level, states in _LEVELS.items() for state in states}
_READY = {"True": "ready", "False": "not ready"}


def level_of(state: str) -> Level:
    """Return the level of a job's state, a run's outcome, a condition, a severity or a code of sync-copies.

    A code that is not known here is a warning, so that a new one is not overlooked.
    """
    return _LEVEL_OF.get(state, Level.WARNING)


def ready_state(status: str) -> str:
    """Return the state of a condition Ready in words."""
    return _READY.get(status, "unknown")


@dataclass(frozen=True)
class Cell:
    """A cell of a table; `sort` orders it if its text does not."""

    content: Content
    sort: str | float | None = None


@dataclass(frozen=True)
class Row:
    """A row of a table; `states` are the words of the filter by state."""

    cells: Sequence[Cell | Content]
    states: Sequence[str] = ()

    @property
    def level(self) -> Level:
        """Return the worst level of its states."""
        return min(map(level_of, self.states), key=lambda level: level.rank, default=Level.OFF)


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
    symbol = element("span", SYMBOLS[level], class_="symbol", aria_hidden="true")
    return element("span", symbol, f" {text or state}", class_=f"badge {level.value}")


def state_cell(state: str) -> Cell:
    """Return a cell with a state, which sorts by its level."""
    return Cell(badge(state), f"{level_of(state).rank} {state}")


def last_lines(text: str) -> Element:
    """Return the last lines of a log, each on its own line."""
    ends = text.splitlines()[-MOST_LINES:]
    return element("div", *(element("div", line) for line in ends))


def lines(texts: Sequence[str]) -> Content:
    """Return texts below each other."""
    return element("ul", *(element("li", text) for text in texts), class_="plain") if texts else ""


def table(caption: str, columns: Sequence[str], rows: Sequence[Row], **attributes: str) -> Element:
    """Return a table that scrolls on its own. Roles are explicit, because the style of narrow screens drops them."""
    head = element("tr", *(element("th", name, scope="col", role="columnheader") for name in columns), role="row")
    made = element(
        "table",
        element("caption", caption, class_="hidden"),
        element("thead", head, role="rowgroup"),
        element("tbody", *(_row(row, columns) for row in rows), role="rowgroup"),
        role="table",
        **attributes,
    )
    return element("div", made, class_="scroll")


def _row(row: Row, columns: Sequence[str]) -> Element:
    cells = [
        _cell(each, name, first=not number) for number, (each, name) in enumerate(zip(row.cells, columns, strict=True))
    ]
    states = " ".join(each.replace(" ", "-") for each in row.states)
    return element("tr", *cells, role="row", class_=row.level.value, data_states=states, data_level=row.level.value)


def _cell(given: Cell | Content, column: str, first: bool) -> Element:
    cell = given if isinstance(given, Cell) else Cell(given)
    sort = {} if cell.sort is None else {"data_sort": str(cell.sort)}
    text = cell.content if isinstance(cell.content, str) else "".join(cell.content.itertext())
    empty = {} if text.strip() else {"class_": "empty"}
    if first:
        return element("th", cell.content, scope="row", role="rowheader", data_label=column, **sort)
    return element("td", cell.content, role="cell", data_label=column, **sort, **empty)
