"""What each job contributes to the suites that run over all jobs: one module per job, with the job's name.

A module has three constants:
- `FAULTS`, worlds in which tests/sandbox/test_every_fault.py disturbs a run at each of its requests;
- `RIGHTS`, worlds in which tests/api/test_rights.py has a run use each right of a ServiceAccount;
- `SCENARIOS`, runs whose output tests/repository/test_outputs.py compares with docs/outputs.md.

tests/test_every_job.py names what a job lacks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from jobs.kit.values.registry import JOBS
from tests.api.conftest import Ran, Run, runs
from tests.apis import Api
from tests.fault_world import FaultWorld

Scenario = Callable[[Api, Path], str]
CONSTANTS = ("FAULTS", "RIGHTS", "SCENARIOS")


@dataclass(frozen=True)
class RightsWorld:
    """A cluster in which one run as a ServiceAccount uses each of its rights.

    `build` makes the objects with the test's fixtures; it may run the job to get there. `fixture` of
    tests/api/conftest.py runs the job as the account; if it is empty, the job has the name of the account and needs no
    options. `arguments` are those of the run that uses each right.
    """

    account: str
    build: Callable[[pytest.FixtureRequest, Callable[..., Ran]], None]
    fixture: str = ""
    arguments: tuple[str, ...] = ()

    def runner(self, request: pytest.FixtureRequest, api: Api) -> Run:
        """Return what runs the job as the account."""
        if self.fixture:
            found: Run = request.getfixturevalue(self.fixture)
            return found
        return runs(self.account, api.service_account_kubeconfig("kube-chores", self.account))

    def __str__(self) -> str:
        return self.account


def file_of(job: str) -> Path:
    """The file of a job's contributions; it need not be there."""
    return Path(__file__).parent / f"{job.replace('-', '_')}.py"


def contribution(job: str, constant: str) -> Any:
    """The constant of a job's module, or None; tests/test_every_job.py fails for a job that has none."""
    path = file_of(job)
    return getattr(import_module(f"{__name__}.{path.stem}"), constant, None) if path.exists() else None


def _named(constant: str) -> dict[str, Any]:
    worlds = [world for job in JOBS for world in contribution(job, constant) or ()]
    found = {str(world): world for world in worlds}
    assert len(found) == len(worlds), f"two of {constant} have one name: {', '.join(map(str, worlds))}"
    return found


def fault_worlds() -> Mapping[str, FaultWorld]:
    """The worlds of all jobs in which runs are disturbed, by their names."""
    return _named("FAULTS")


def rights_worlds() -> Mapping[str, RightsWorld]:
    """The worlds of all jobs in which each right is used, by their ServiceAccounts."""
    return _named("RIGHTS")


def scenarios() -> Mapping[str, Scenario]:
    """The sections of docs/outputs.md, by their title; `chores status` has some too."""
    return {
        f"{job}: {title}": scenario
        for job in (*JOBS, "status")
        for title, scenario in (contribution(job, "SCENARIOS") or {}).items()
    }
