"""Run a soak: `make soak`."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from soak import bugs, images
from soak.checker import Checker
from soak.cluster import lab
from soak.epochs import Soak
from soak.faults import Faults
from soak.invariants import bounds, ours, runs, secrets
from soak.lab import Action, Lab, Part
from soak.report import Report, Violation
from soak.tenants.copies import Copies
from soak.tenants.farm import Farm
from soak.tenants.mirrors import Mirrors
from soak.tenants.rates import Rates
from soak.tenants.workloads import Workloads
from tests.control_plane import ROOT
from tests.one_node import missing

OUTPUT = ROOT / "build" / "soak"
IMAGE = "localhost/kube-chores"
PARTS: dict[str, tuple[Callable[[Lab], Part], tuple[str, ...]]] = {
    "copies": (Copies, ("sync-copies", "sync-copies-verify")),
    "workloads": (Workloads, ("roll-workloads",)),
    "farm": (Farm, ("farm-pods",)),
    "rates": (Rates, ("fetch-rates",)),
    "mirrors": (Mirrors, ("mirror-audit", "mirror-repair")),
}


@dataclass(frozen=True)
class Choices:
    """The options of the command."""

    minutes: float
    seed: int
    bug: str | None
    parts: Sequence[str]
    with_faults: bool
    previous: str | None

    @property
    def jobs(self) -> list[str]:
        """The CronJobs of the parts."""
        return [job for name in self.parts for job in PARTS[name][1]]


@click.command(context_settings={"max_content_width": 100})
@click.option("--minutes", default=60.0, show_default=True, help="Time of all epochs. The last one may end later.")
@click.option("--seed", type=int, help="Number that decides on the order of actions and faults. Random by default.")
@click.option("--bug", type=click.Choice(bugs.names()), help="Add a deliberate bug of soak/patches to the jobs.")
@click.option("--part", "parts", type=click.Choice([*PARTS]), multiple=True, help="Only this part; can be repeated.")
@click.option("--faults/--no-faults", "with_faults", default=True, help="With --no-faults, only tenants act.")
@click.option("--previous", metavar="REVISION", help="The revision of git that upgrades begin with.")
def main(
    minutes: float, seed: int | None, bug: str | None, parts: Sequence[str], with_faults: bool, previous: str | None
) -> None:
    """Run all jobs on a node next to tenants and faults, and check invariants meanwhile.

    The order of actions and of faults follows from the seed. What happens at the same time does not.

    \b
    Exit codes:
      0  no invariant was violated
      1  an invariant was violated; with --bug, the soak ends then
      2  the soak could not run, or the cluster did not work again after a fault
    """
    if reason := missing():
        raise click.UsageError(reason)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the cluster and the folders end with it
    chosen = random.randrange(1_000_000) if seed is None else seed
    choices = Choices(minutes, chosen, bug, parts or [*PARTS], with_faults, previous)
    folder = OUTPUT / (f"{bug}-{chosen}" if bug else str(chosen))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    click.echo(f"soak: seed {chosen}, files in {folder.relative_to(ROOT)}")
    try:
        report = _run(choices, folder)
    except RuntimeError as error:
        click.echo(f"soak: {error}", err=True)  # a cluster, an image or a program
        sys.exit(2)
    sys.exit(1 if report.violations else 0)


def _run(choices: Choices, folder: Path) -> Report:
    with contextlib.ExitStack() as stack:
        archives = stack.enter_context(_archives(choices))
        bug, previous = (archives.get(name, ("", None))[0] for name in ("bug", "previous"))
        journal = folder / "journal.jsonl"
        here, programs = stack.enter_context(lab(choices.seed, journal, choices.jobs, bug))
        for _, archive in archives.values():
            images.import_image(here.node, archive)
        parts = []
        for name in choices.parts:
            parts.append(PARTS[name][0](here))
            stack.callback(parts[-1].end)
        faults = Faults(here, programs, previous)
        stack.callback(faults.end)
        soak = _soak(choices, here, parts, faults, lambda: programs.revive(here.journal), folder)
        report = soak.checker.report
        try:
            soak.run(choices.minutes)
        finally:
            report.write(folder / "report.json", here.journal)
            click.echo(f"{_clear()}{report.text(here.journal)}")
        return report


def _soak(choices: Choices, here: Lab, parts: Sequence[Part], faults: Faults, revive: Action, folder: Path) -> Soak:
    report = Report(choices.seed, choices.bug)

    def show(violation: Violation) -> None:
        click.echo(f"{_clear()}{report.shown(violation)}")

    def progress(phase: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"{_clear()}{report.line(here.journal, phase)}", nl=False, err=True)

    invariants = [each for module in (ours, secrets, runs, bounds) for each in module.invariants()]
    invariants += [each for part in parts for each in part.invariants()]
    checker = Checker(here, invariants, report, folder, show)
    kinds = faults.kinds() if choices.with_faults else {}
    return Soak(here, parts, kinds, checker, revive, progress, stops_at_first=choices.bug is not None)


def _clear() -> str:
    return "\r\x1b[K" if sys.stderr.isatty() else ""


@contextlib.contextmanager
def _archives(choices: Choices) -> Iterator[dict[str, tuple[str, Path]]]:
    """Build the images of a deliberate bug and of a previous revision, if any. Yield their names and archives."""
    with tempfile.TemporaryDirectory(prefix="kube-chores-images-") as name:
        folder, archives = Path(name), {}
        if choices.bug:
            archives["bug"] = _built(choices.bug, bugs.jobs_with(choices.bug, folder / "bug"), folder)
        if choices.previous:
            jobs = images.jobs_of(choices.previous, folder / "previous")
            archives["previous"] = _built(choices.previous, jobs, folder)
        yield archives


def _built(tag: str, jobs: Path, folder: Path) -> tuple[str, Path]:
    name = f"{IMAGE}:{tag}-{os.getpid()}"  # several soaks can build images at the same time
    return name, images.build_image(jobs, name, folder / f"{tag}.tar")


if __name__ == "__main__":
    main()
