"""Deliberate bugs: small patches, each with the test that must fail. `make bugs` tries all of them.

A file `NAME.patch` begins with one sentence: what is wrong with the bug. Then comes a line `Caught by: NODE_ID` with
the id of a test, without parameters if any of its cases may fail, and then the diff.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Bug:
    """One patch: its path, what is wrong with it, and the id of the test that must fail."""

    path: Path
    about: str
    test: str

    @property
    def name(self) -> str:
        """The name of the file without its suffix."""
        return self.path.stem


def bugs() -> list[Bug]:
    """Return all bugs, by name.

    Raises:
        ValueError: a patch does not begin as the docstring of this package describes.
    """
    return [_read(each) for each in sorted(FOLDER.glob("*.patch"))]


def _read(path: Path) -> Bug:
    head, found, test = path.read_text().partition("\ndiff ")[0].strip().rpartition("\nCaught by: ")
    if not found or "\n" in test or not (head := head.strip()).endswith("."):
        raise ValueError(f"{path.name}: the file must begin with a sentence and a line `Caught by: NODE_ID`")
    return Bug(path, head, test)


def apply_patch(path: Path, folder: Path, *options: str) -> None:
    """Apply a patch to the files in a folder, only where all its lines are as in the patch.

    Raises:
        RuntimeError: the patch does not fit the present code.
    """
    command = ["patch", "--strip=1", "--forward", "--fuzz=0", "--quiet", "--reject-file=-", *options]
    done = subprocess.run(
        [*command, f"--input={path.absolute()}"], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{path.name} does not apply: {done.stdout}{done.stderr}")
