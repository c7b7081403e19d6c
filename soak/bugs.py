"""Deliberate bugs: patches of jobs/, each of which an invariant must detect."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.bugs import apply_patch
from tests.control_plane import ROOT

FOLDER = ROOT / "soak" / "patches"


def names() -> list[str]:
    """Return the names of all bugs."""
    return sorted(each.stem for each in FOLDER.glob("*.patch"))


def about(name: str) -> str:
    """Return what is wrong with a bug."""
    return (FOLDER / f"{name}.patch").read_text().partition("\ndiff ")[0].strip()


def jobs_with(name: str, folder: Path) -> Path:
    """Write the package `jobs` with a bug into a new folder, and return its path.

    Raises:
        RuntimeError: the patch does not fit the present code.
    """
    shutil.copytree(ROOT / "jobs", folder / "jobs", ignore=shutil.ignore_patterns("__pycache__"))
    apply_patch(FOLDER / f"{name}.patch", folder)
    return folder / "jobs"
