"""HTML as a tree of elements, so that all text is escaped where it is written. Pure.

Names, annotations and messages come from tenants and from servers. `element()` is the only way to write them: it
escapes what is invisible or changes the direction, and cuts what is too long. The serializer escapes HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, tostring  # written only: nothing is parsed

from jobs.kit.values.text import brief

MOST_LINES = 20  # of a log

Content = Element | str


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
