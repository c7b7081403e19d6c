"""Apply each deliberate bug to a copy of the repository, and run the test that must fail: `python -m tests.bugs`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import click

from tests.bugs import Bug, apply_patch, bugs
from tests.control_plane import ROOT

TEST_FAILED = 1  # exit code of pytest
SECONDS = 300  # the time limit of one test


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1)
@click.option("--workers", default=2, show_default=True, help="How many bugs are tried at the same time.")
def main(names: tuple[str, ...], workers: int) -> None:
    """Try the bugs of these NAMES, or all. Exit with 1 if one is not caught or does not apply."""
    began = time.monotonic()
    chosen = [each for each in bugs() if not names or each.name in names]
    if unknown := set(names) - {each.name for each in chosen}:
        raise click.UsageError(f"no such bug: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="bugs-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(workers):
            copies.put(_copy(Path(folder) / str(number)))
        if failing := _failing_without(chosen, copies):
            raise click.ClickException(failing)
        problems = _not_caught(chosen, copies, workers)
    for problem in problems:
        click.echo(problem, err=True)
    click.echo(f"{len(chosen) - len(problems)} of {len(chosen)} bugs caught in {time.monotonic() - began:.0f} s")
    sys.exit(bool(problems))


def _copy(folder: Path) -> Path:
    """Copy the files that git tracks, as they are now, and link the tools, which no bug changes."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    if (ROOT / ".tools").exists():
        (folder / ".tools").symlink_to(ROOT / ".tools")
    return folder


def _failing_without(chosen: list[Bug], copies: SimpleQueue[Path]) -> str:
    """Return why the tests prove nothing, or an empty string: they must pass without a bug."""
    copy = copies.get()
    done = _pytest(copy, *sorted({each.test for each in chosen}))
    copies.put(copy)
    passed = done.returncode == 0 and " skipped" not in done.stdout.splitlines()[-1]
    return "" if passed else f"without a bug, all these tests must pass, and none is skipped:\n{done.stdout}"


def _not_caught(chosen: list[Bug], copies: SimpleQueue[Path], workers: int) -> list[str]:
    def attempt(bug: Bug) -> str:
        copy = copies.get()
        try:
            began = time.monotonic()
            problem = _problem(bug, copy)
            click.echo(f"{time.monotonic() - began:5.1f} s  {bug.name}: {'NOT caught' if problem else 'caught'}")
            return problem
        finally:
            copies.put(copy)

    with ThreadPoolExecutor(workers) as pool:
        return list(filter(None, pool.map(attempt, chosen)))


def _problem(bug: Bug, copy: Path) -> str:
    """Return what is wrong with a bug in this copy, or an empty string; the copy is as before."""
    try:
        apply_patch(bug.path, copy)
    except RuntimeError as error:
        return str(error)
    done = _pytest(copy, "--exitfirst", bug.test)
    apply_patch(bug.path, copy, "--reverse")
    if done.returncode == TEST_FAILED and re.search(rf"^FAILED {re.escape(bug.test)}(?!\w)", done.stdout, re.M):
        return ""
    return f"{bug.name} is not caught by {bug.test} (pytest ended with {done.returncode}):\n{done.stdout[-2000:]}"


def _pytest(copy: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run tests of a copy, whose programs import the copy too, with all of their sweeps.

    There is a time limit, since a bug can make a run endless.
    """
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-rfs", "-p", "no:cacheprovider", *args]
    env = {**os.environ, "PYTHONPATH": str(copy), "SWEEPS": "all"}
    try:
        return subprocess.run(
            command, cwd=copy, env=env, capture_output=True, text=True, timeout=SECONDS * len(args), check=False
        )
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(command, -1, f"not done after {error.timeout:.0f} s")


if __name__ == "__main__":
    main()
