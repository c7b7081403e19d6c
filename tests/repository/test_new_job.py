"""`tools/new-job` writes a complete job: in a copy of the tree, it passes the tests that every job must pass."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.manifests import ROOT

NAME = "summarize-namespaces"  # as long as the tool allows
# What `make docs` writes, without the outputs of other jobs.
DOCS = (
    "tests/repository/test_docs.py::test_the_cli_reference_is_the_output_of_help",
    "tests/repository/test_chart.py",
    "tests/repository/test_manifests_command.py::test_the_shipped_manifests_are_what_kubectl_builds",
    "tests/repository/test_outputs.py",
)
TESTS = (
    "tests/test_every_job.py",
    "tests/repository/test_registry.py",
    "tests/unit/test_{module}.py",
    "tests/api/test_{module}.py",
    "tests/api/test_rights.py::test_the_shipped_rights_are_enough_and_none_is_unused[sandbox-{name}]",
    "tests/sandbox/test_every_fault.py::test_each_world_has_all_kinds_of_requests_and_lists_of_several_pages",
    "tests/sandbox/test_wording.py",
    "tests/repository/test_docs.py::test_links_between_docs_are_valid",
    "tests/repository/test_docs.py::test_each_summary_of_a_command_fits_in_80_columns",
)
BIN = Path(sys.executable).parent


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the files that are tracked or could be, as they are now."""
    listed = subprocess.check_output(["git", "ls-files", "-z", "-c", "-o", "--exclude-standard"], cwd=ROOT, text=True)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists() or (ROOT / name).is_symlink():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / name, follow_symlinks=False)
    for name in (".venv", ".tools"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def run(tree: Path, *command: str | Path, **env: str) -> str:
    """Run a command in the copy; return its output, or fail with it."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    path = {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=tree, env={**inherited, **path, **env}, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stdout[-4000:]}{done.stderr[-2000:]}"
    return done.stdout


def pytest_in(tree: Path, *arguments: str, **env: str) -> None:
    selected = ("-q", "-m", "not cluster", "-p", "no:cacheprovider")
    run(tree, sys.executable, "-m", "pytest", *selected, *arguments, **env)


def modules(tree: Path, name: str) -> list[str]:
    """Write a job; return its modules."""
    written = run(tree, "tools/new-job", name).split()
    return [each for each in written if each.endswith(".py") and each != "jobs/kit/values/registry.py"]


def check_style(tree: Path, files: list[str]) -> None:
    run(tree, BIN / "ruff", "check", "--no-cache", *files)
    run(tree, BIN / "ruff", "format", "--no-cache", "--check", *files)


def test_a_new_job_has_all_that_a_job_needs(tree: Path) -> None:
    files = modules(tree, NAME)
    pytest_in(tree, "tests/repository/test_registry.py", UPDATE_DOCS="1")
    pytest_in(tree, *DOCS, "-k", f"not test_outputs or {NAME}", UPDATE_DOCS="1")

    pytest_in(tree, *(each.format(name=NAME, module=NAME.replace("-", "_")) for each in TESTS))
    check_style(tree, files)
    run(tree, BIN / "codespell")
    run(tree, BIN / "lint-imports", "--no-cache", "--no-logo")
    if (ROOT / ".mypy_cache").exists():  # much faster than without
        shutil.copytree(ROOT / ".mypy_cache", tree / ".mypy_cache")
    run(tree, BIN / "mypy", *files)


def test_lines_break_where_the_length_of_a_name_and_of_the_list_needs_it(tree: Path) -> None:
    for name in ("a", "new-job", "y" * 20, "z" * 20):
        check_style(tree, [*modules(tree, name), "jobs/kit/values/registry.py"])

    listed = run(tree, sys.executable, "-c", "from jobs.kit.values.registry import JOBS; print(*JOBS[-4:])")
    assert listed.split() == ["a", "new-job", "y" * 20, "z" * 20]


def contents(tree: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}


def test_a_released_version_of_the_changelog_stays_as_it_is(tree: Path) -> None:
    changelog = tree / "CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## [Unreleased]\n\n### Fixed\n\n- a\n\n## [0.1.0]\n\n### Added\n\n- b\n")
    before = contents(tree)

    done = subprocess.run([tree / "tools" / "new-job", NAME], capture_output=True, text=True)

    assert (done.returncode, "CHANGELOG.md has nothing like" in done.stderr) == (1, True)
    assert contents(tree) == before


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("", ["lower-case letters"]),
        ("Count", ["lower-case letters"]),
        ("count-", ["lower-case letters"]),
        ("9-nodes", ["begins with a letter"]),
        ("a" * 21, ["at most 20 characters, this one has 21"]),
        ("count--nodes-of-a-cluster", ["two hyphens", "at most 20"]),
        ("class", ["keyword"]),
        ("count-settings", ["ends in -settings"]),
        ("farm-pods", ["jobs/farm_pods.py exists", "cronjobs/farm-pods exists", "registry.py has this name"]),
        ("demo", ["jobs/commands/demo.py exists"]),
        ("kit", ["jobs/kit exists"]),
        ("index", ["mkdocs.yml has a page of this name"]),
        ("base", ["cronjobs/base exists"]),
        ("sync-copies-verify", ["cronjobs/sync-copies/verify.yaml has an object of this name"]),
    ],
)
def test_a_name_that_is_not_valid_or_in_use_is_refused(tree: Path, name: str, reasons: list[str]) -> None:
    before = contents(tree)

    done = subprocess.run([tree / "tools" / "new-job", name], capture_output=True, text=True)

    assert done.returncode == 1
    assert [each for each in reasons if each not in done.stderr] == []
    assert contents(tree) == before
