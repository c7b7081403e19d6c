"""The workflows of .github only call make targets that exist, with few rights and with pinned actions."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.manifests import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.M))
# What jobs may write, by workflow. All else can only read.
WRITES = {"codeql": {"security-events"}, "scorecard": {"id-token", "security-events"}}


@pytest.fixture(params=WORKFLOWS, ids=lambda path: path.name)
def workflow(request: pytest.FixtureRequest) -> Any:
    path: Path = request.param
    return yaml.safe_load(path.read_text())


def steps(workflow: Any) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_there_are_workflows() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "codeql.yml", "release.yml", "scorecard.yml"]


def test_each_command_is_a_make_target(workflow: Any) -> None:
    commands = [step["run"] for step in steps(workflow) if "run" in step]

    called = [
        re.fullmatch(r'(?:sudo env "PATH=\$PATH" )?make ([a-z-]+)(?: [A-Z]+=\w+)*', command) for command in commands
    ]

    assert called or workflow["name"] in WRITES  # these only run actions
    assert [
        command for command, found in zip(commands, called, strict=True) if not found or found[1] not in TARGETS
    ] == []


def test_a_workflow_writes_only_what_it_must(workflow: Any) -> None:
    permissions = [job["permissions"].items() for job in workflow["jobs"].values() if "permissions" in job]
    written = {name for each in permissions for name, right in each if right == "write"}
    checkouts = [step for step in steps(workflow) if step.get("uses", "").startswith("actions/checkout@")]

    assert workflow["permissions"] == {"contents": "read"}
    assert written == WRITES.get(workflow["name"], set())
    assert [step["with"]["persist-credentials"] for step in checkouts] == len(workflow["jobs"]) * [False]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_with_their_version(path: Path) -> None:
    actions = re.findall(r"uses: (.*)", path.read_text())
    pinned = r"(actions|github|ossf)/[a-z/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+"

    assert actions
    assert [action for action in actions if not re.fullmatch(pinned, action)] == []


def test_an_action_has_one_version() -> None:
    found = {action for path in WORKFLOWS for action in re.findall(r"uses: (.*)", path.read_text())}
    repositories = ["/".join(action.split("@")[0].split("/")[:2]) + "@" + action.split("@")[1] for action in found]

    assert len({each.split("@")[0] for each in repositories}) == len(set(repositories))


def test_scorecard_publishes_only_of_a_job_of_actions() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "scorecard.yml").read_text())

    assert [step for step in steps(workflow) if "run" in step] == []


def test_each_folder_of_tests_is_in_a_target() -> None:
    """`make test-cluster` runs only tests with the mark cluster, wherever they are."""
    commands = re.findall(r"/pytest (.*)", MAKEFILE)
    named = {word for command in commands for word in command.split() if word.startswith("tests/")}
    folders = {str(path.parent.relative_to(ROOT)) for path in (ROOT / "tests").glob("*/test_*.py")}

    assert folders - named == set()
