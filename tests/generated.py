"""Documents, or tables in them, that a test compares, or writes where UPDATE_DOCS is set."""

import os
from collections.abc import Iterable
from pathlib import Path

from tests.manifests import ROOT

END = "<!-- end -->\n"


def with_rows(text: str, begin: str, rows: Iterable[str]) -> str:
    """Return the page with these rows between the line `begin` and the next line `<!-- end -->`."""
    before, mark, rest = text.partition(f"{begin}\n")
    old, end, after = rest.partition(END)
    assert mark and end and "<!--" not in old, f"the page needs the lines {begin} and {END.strip()}"
    return "".join([before, mark, *(f"{row}\n" for row in rows), end, after])


def check(path: Path, text: str) -> None:
    """Compare a generated document with what stands in the file, or write it where UPDATE_DOCS is set."""
    if os.environ.get("UPDATE_DOCS"):
        path.write_text(text)
    assert path.exists() and path.read_text() == text, f"{path.relative_to(ROOT)} is out of date: run `make docs`"


def check_table(path: Path, name: str, rows: Iterable[str]) -> None:
    """Compare a generated table with the one between its marks in the file, or write it there."""
    check(path, with_rows(path.read_text(), f"<!-- {name}: written by `make docs` -->", rows))
