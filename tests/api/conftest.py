"""Running sync-copies as the shipped installation does, against the embedded and the real API server."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jobs.__main__ import chores
from tests.apis import Api

Run = Callable[..., "Ran"]


@dataclass(frozen=True)
class Ran:
    """What a run of the command said."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def report(self) -> dict[str, Any]:
        """The report of a run with `-o json`."""
        decoded: dict[str, Any] = json.loads(self.stdout)
        return decoded

    @property
    def summary(self) -> dict[str, int]:
        """The counts of a run with `-o json`."""
        counts: dict[str, int] = self.report["summary"]
        return counts

    @property
    def results(self) -> list[dict[str, Any]]:
        """The findings of a run with `-o json`."""
        found: list[dict[str, Any]] = self.report["results"]
        return found


@pytest.fixture
def sync(api: Api, installed: Path) -> Run:
    """Run sync-copies with the rights of the shipped ServiceAccount, `-o json` unless told otherwise."""

    def run(*arguments: str, output: str = "json", kubeconfig: Path = installed, **given: Any) -> Ran:
        command = ["sync-copies", "-o", output, *arguments]
        done = CliRunner().invoke(chores, command, env={"KUBECONFIG": str(kubeconfig)}, **given)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Ran(done.exit_code, done.stdout, done.stderr)

    return run
