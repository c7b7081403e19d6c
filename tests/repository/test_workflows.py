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


@pytest.fixture(params=WORKFLOWS, ids=lambda path: path.name)
def workflow(request: pytest.FixtureRequest) -> Any:
    path: Path = request.param
    return yaml.safe_load(path.read_text())


def steps(workflow: Any) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_there_are_workflows() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "release.yml"]


def test_each_command_is_a_make_target(workflow: Any) -> None:
    commands = [step["run"] for step in steps(workflow) if "run" in step]

    called = [
        re.fullmatch(r'(?:sudo env "PATH=\$PATH" )?make ([a-z-]+)(?: [A-Z]+=\w+)*', command) for command in commands
    ]

    assert called
    assert [
        command for command, found in zip(commands, called, strict=True) if not found or found[1] not in TARGETS
    ] == []


def test_a_workflow_can_only_read_the_repository(workflow: Any) -> None:
    checkouts = [step for step in steps(workflow) if step.get("uses", "").startswith("actions/checkout@")]

    assert workflow["permissions"] == {"contents": "read"}
    assert not [job for job in workflow["jobs"].values() if "permissions" in job]
    assert [step["with"]["persist-credentials"] for step in checkouts] == len(workflow["jobs"]) * [False]


def test_actions_are_pinned_by_commit(workflow: Any) -> None:
    actions = {step["uses"] for step in steps(workflow) if "uses" in step}

    assert actions
    assert [action for action in actions if not re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", action)] == []


def test_each_folder_of_tests_is_in_a_target() -> None:
    """`make test-cluster` runs only tests with the mark cluster, wherever they are."""
    commands = re.findall(r"/pytest (.*)", MAKEFILE)
    named = {word for command in commands for word in command.split() if word.startswith("tests/")}
    folders = {str(path.parent.relative_to(ROOT)) for path in (ROOT / "tests").glob("*/test_*.py")}

    assert folders - named == set()
