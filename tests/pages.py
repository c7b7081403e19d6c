"""The README and the pages of docs/, as tests read them."""

from __future__ import annotations

import re
from pathlib import Path

from tests.manifests import ROOT


def pages() -> list[Path]:
    """The README and docs/*.md."""
    return [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]


def commands() -> list[str]:
    """The lines of all blocks of shell commands."""
    blocks = "\n".join(
        found for page in pages() for found in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    )
    return [line for line in blocks.splitlines() if line.strip()]


def command(beginning: str) -> str:
    """The one command in the docs that begins like this."""
    found = [line for line in commands() if re.match(rf"{re.escape(beginning)}(?: |$)", line)]
    assert len(found) == 1, f"the docs have {len(found)} commands that begin with {beginning!r}"
    return found[0]
