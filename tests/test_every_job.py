"""Every job of the list of jobs: what it lacks, and a run of it; the suites over all jobs find it by itself."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from jobs.__main__ import chores
from jobs.commands.manifests import HUB
from jobs.core.status.document import Observed, document
from jobs.kit.values import registry
from jobs.kit.values.registry import DEFAULT_JOBS, JOBS
from kubesandbox import Sandbox
from tests import embedded
from tests.apis import sandbox_api
from tests.every_job import CONSTANTS, contribution, fault_worlds, file_of, rights_worlds
from tests.fault_world import World, differing
from tests.installations import NOW, TARGET, cronjob
from tests.manifests import ROOT, everything, load

IN_MODULE = ("Options", "job", "command")
ACCOUNTS = [obj["metadata"]["name"] for obj in everything() if obj["kind"] == "ServiceAccount"]
# The account HUB is in a cluster without jobs: the hub connects with it. So it has no CronJob, only rights.
OF_JOBS = {*ACCOUNTS} - {HUB}
# A run has requests to several servers, so its faults are in tests/sandbox/test_clusters_faults.py.
OF_SEVERAL_SERVERS = {registry.CLUSTERS}


def lacks(job: str) -> Iterator[str]:
    """What is missing of a job, each with the file to write."""
    name = job.replace("-", "_")
    if not (ROOT / "jobs" / f"{name}.py").exists():
        yield f"jobs/{name}.py, with {', '.join(IN_MODULE)}"
    else:
        found = import_module(f"jobs.{name}")
        yield from (f"{each} in jobs/{name}.py" for each in IN_MODULE if not hasattr(found, each))
    yield from lacks_manifests(job)
    if file_of(job).exists():
        yield from (f"{each} in tests/every_job/{name}.py" for each in CONSTANTS if not contribution(job, each))
    else:
        yield f"tests/every_job/{name}.py, with {', '.join(CONSTANTS)}"
    yield from lacks_docs(job, name)


def lacks_manifests(job: str) -> Iterator[str]:
    folder = ROOT / "cronjobs" / job
    if not folder.exists():
        yield f"cronjobs/{job}/rbac.yaml with its ServiceAccount and rights, and cronjob.yaml"
        return
    if not (folder / "kustomization.yaml").exists():
        yield f"cronjobs/{job}/kustomization.yaml: run `make docs`"
        return
    own, all_of_them = (
        {each["metadata"]["name"] for each in load(path) if each["kind"] == "CronJob"}
        for path in (folder, ROOT / "cronjobs")
    )
    if job not in own:
        yield f"CronJob {job} in cronjobs/{job}"
    elif job in DEFAULT_JOBS and job not in all_of_them:
        yield f"cronjobs/{job} in cronjobs/without-secrets/kustomization.yaml: run `make docs`"


def lacks_docs(job: str, name: str) -> Iterator[str]:
    for page, text, what in (
        ("README.md", f"](docs/{job}.md)", f"a link to docs/{job}.md"),
        ("mkdocs.yml", f": {job}.md", f"{job}.md in the nav (`make docs`)"),
        (".importlinter", f" {name} ", f"the layer of jobs/{name} and jobs/core/{name} (`make docs`)"),
        ("docs/outputs.md", f"\n## {job}: ", f"a scenario of {job} (`make docs` writes it from SCENARIOS)"),
    ):
        if text not in (ROOT / page).read_text():
            yield f"{what}, in {page}"
    if not (ROOT / "docs" / f"{job}.md").exists():
        yield f"docs/{job}.md"


@pytest.mark.parametrize("job", JOBS)
def test_a_job_lacks_nothing(job: str) -> None:
    missing = list(lacks(job))

    assert not missing, f"{job} lacks:\n- " + "\n- ".join(missing)


def test_a_job_that_has_nothing_yet_lacks_everything() -> None:
    found = list(lacks("no-such-job"))

    assert len(found) == 8
    assert [each for each in found if not re.search("no[-_]such[-_]job", each)] == []


@pytest.mark.parametrize("job", JOBS)
def test_the_status_shows_each_job_that_is_installed_or_not(job: str) -> None:
    shown = {each["name"]: each["state"] for each in document(Observed(TARGET, [cronjob(job)]), NOW)["jobs"]}

    assert list(shown) == [*JOBS]
    assert {name for name, state in shown.items() if state != "not-installed"} == {job}


@pytest.mark.parametrize("job", registry.ACCOUNTS)
def test_only_the_manifests_of_a_job_are_printed_if_it_is_named(job: str) -> None:
    printed = CliRunner().invoke(chores, ["manifests", "--only", job])

    assert printed.exit_code == 0, printed.output
    objects = yaml.safe_load_all(printed.stdout)
    accounts = [each["metadata"]["name"] for each in objects if each["kind"] == "ServiceAccount"]
    assert accounts == [job]


def test_each_account_of_the_manifests_is_in_the_list() -> None:
    assert sorted(ACCOUNTS) == sorted([*registry.ACCOUNTS, HUB])


@pytest.mark.parametrize("account", ACCOUNTS)
def test_the_rights_of_every_service_account_are_tested(account: str) -> None:
    assert account in rights_worlds(), f"no RightsWorld of {account} in RIGHTS of a module of tests/every_job"


def test_every_folder_of_manifests_is_of_a_job() -> None:
    folders = {path.relative_to(ROOT / "cronjobs").parts[0] for path in (ROOT / "cronjobs").rglob("cronjob.yaml")}

    assert folders - {"base"} == OF_JOBS <= fault_worlds().keys() | OF_SEVERAL_SERVERS
    assert {world.job for world in fault_worlds().values()} == set(JOBS)


@pytest.mark.parametrize("name", fault_worlds())
def test_a_run_does_its_work_and_a_second_one_writes_nothing(name: str, tmp_path: Path) -> None:
    world = fault_worlds()[name]
    with Sandbox(of=embedded.installed()) as sandbox, world.build(sandbox_api(sandbox, tmp_path)) as env:
        cluster = World(sandbox, world.job, env)
        untouched = world.untouched(cluster)
        first = cluster.run()
        end, writes = world.end(cluster), len(cluster.writes())
        second = cluster.run()

        assert (first.exit_code, first.summary) == (world.exit_code, dict(world.summary))
        assert second.exit_code == world.exit_code
        assert cluster.writes()[writes:] == []
        assert differing(world.state(cluster), end) == []
        assert differing(world.untouched(cluster), untouched) == []
