"""What each job contributes to the suites that run over all jobs: one module per job, with the job's name.

A module has three constants:
- `FAULTS`, worlds in which tests/sandbox/test_every_fault.py disturbs a run at each of its requests;
- `RIGHTS`, worlds in which tests/api/test_rights.py has a run use each right of a ServiceAccount;
- `SCENARIOS`, runs whose output tests/sandbox/test_outputs.py compares with docs/outputs.md.

tests/test_every_job.py names what a job lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jobs.__main__ import JOBS
from kubesandbox import Sandbox
from tests.api.conftest import Ran
from tests.apis import Api
from tests.fault_world import FaultWorld

Scenario = Callable[[Sandbox, Api, Path], str]
CONSTANTS = ("FAULTS", "RIGHTS", "SCENARIOS")


@dataclass(frozen=True)
class RightsWorld:
    """A cluster in which one run as a ServiceAccount uses each of its rights.

    `fixture` of tests/api/conftest.py runs the job as the account. `build` makes the objects with the test's fixtures;
    it may run the job to get there. `arguments` are those of the run that uses each right.
    """

    account: str
    fixture: str
    build: Callable[[pytest.FixtureRequest, Callable[..., Ran]], None]
    arguments: tuple[str, ...] = ()


def module_of(job: str) -> ModuleType:
    """Import the module of a job; an ImportError names the file that is missing."""
    name = f"tests.every_job.{job.replace('-', '_')}"
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        file = f"{name.replace('.', '/')}.py"
        raise ImportError(f"{job}: no {file} with {', '.join(CONSTANTS)}") from None


def _contributions(constant: str) -> dict[str, Any]:
    """The constant of every job that has one; tests/test_every_job.py fails for a job that has none."""
    found = {}
    for job in JOBS:
        try:
            found[job] = getattr(module_of(job), constant, None)
        except ImportError:
            continue
    return {job: value for job, value in found.items() if value}


def fault_worlds() -> Mapping[str, FaultWorld]:
    """The worlds of all jobs in which runs are disturbed, by their names."""
    return {world.name: world for worlds in _contributions("FAULTS").values() for world in worlds}


def rights_worlds() -> Mapping[str, RightsWorld]:
    """The worlds of all jobs in which each right is used, by their ServiceAccounts."""
    return {world.account: world for worlds in _contributions("RIGHTS").values() for world in worlds}


def scenarios() -> Mapping[str, Scenario]:
    """The sections of docs/outputs.md, by their title."""
    return {
        f"{job}: {title}": scenario
        for job, found in _contributions("SCENARIOS").items()
        for title, scenario in found.items()
    }
