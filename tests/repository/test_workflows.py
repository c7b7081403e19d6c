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
# What only a release needs.
PUBLISHING = {"sudo apt-get ", "docker login ghcr.io ", "cat dist/digests.env ", "cosign sign ", "gh release create "}
# What jobs may do, by workflow. All else can only read the repository.
SCAN = {"contents": "read", "security-events": "write"}
PERMISSIONS = {
    "codeql": {"analyze": SCAN},
    "release": {
        "push": {"contents": "read", "packages": "write"},
        "sign": {"attestations": "write", "id-token": "write", "packages": "write"},
        "publish": {"contents": "write"},
    },
    "scorecard": {"analysis": {**SCAN, "id-token": "write"}},
}
PUSHED = ("image", "chart")
ORDER = [
    "make release ",
    "cosign sign ",
    "actions/attest-build-provenance@",
    "actions/attest-sbom@",
    "gh release create ",
]


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

    called = [re.fullmatch(r'(?:sudo env "PATH=\$PATH" )?make ([a-z-]+)(?: [A-Z]+=\S+)*', each) for each in commands]
    others = [each for each, found in zip(commands, called, strict=True) if not found or found[1] not in TARGETS]

    assert len(others) < len(commands) or workflow["name"] in PERMISSIONS  # some only run actions
    assert [each for each in others if not each.startswith(tuple(PUBLISHING))] == []


def test_commands_contain_no_expressions(workflow: Any) -> None:
    """Whoever names a tag would run commands with them. The value of an expression gets into a command by `env`."""
    assert [step["run"] for step in steps(workflow) if "${{" in step.get("run", "")] == []


def test_a_workflow_writes_only_what_it_must(workflow: Any) -> None:
    checkouts = [step for step in steps(workflow) if step.get("uses", "").startswith("actions/checkout@")]
    given = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}

    assert workflow["permissions"] == {"contents": "read"}
    assert given == PERMISSIONS.get(workflow["name"], {})
    assert checkouts
    assert [each for each in checkouts if each["with"]["persist-credentials"] is not False] == []


def test_actions_are_pinned_by_commit_with_their_version() -> None:
    used = [found for path in WORKFLOWS for found in re.findall(r"(?m)^ +(?:- )?uses: (.+)", path.read_text())]
    pinned = [
        re.fullmatch(r"((?:actions|github|ossf|sigstore)/[a-z-]+)(?:/[a-z-]+)?@([0-9a-f]{40} # v\d+\.\d+\.\d+)", each)
        for each in used
    ]

    assert used
    assert [each for each, found in zip(used, pinned, strict=True) if not found] == []
    pairs = {(found[1], found[2]) for found in pinned if found}
    assert len(pairs) == len(dict(pairs)), "an action is pinned to two commits"


def test_a_release_is_pushed_then_signed_then_attested_then_published() -> None:
    release = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    done = [step.get("run") or step["uses"] for step in steps(release)]
    order = [name for each in done for name in ORDER if each.startswith(name)]

    assert list(release["jobs"]) == ["push", "sign", "publish"]
    assert [job.get("needs") for job in release["jobs"].values()] == [None, "push", "sign"]
    assert list(dict.fromkeys(order)) == ORDER


def test_what_is_attested_is_what_was_pushed() -> None:
    release = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    attested = [step["with"] for step in steps(release) if "actions/attest" in step.get("uses", "")]
    subjects = [
        (each.get("subject-name"), each.get("subject-digest", each.get("subject-checksums"))) for each in attested
    ]
    image, chart = (("${{ env." + name.upper() + " }}", "${{ needs.push.outputs." + name + " }}") for name in PUSHED)

    assert subjects == [image, chart, (None, "dist/SHA256SUMS"), image]
    assert release["jobs"]["push"]["outputs"].keys() == {"registry", *PUSHED}


def test_scorecard_publishes_only_of_a_job_of_actions() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "scorecard.yml").read_text())

    assert [step for step in steps(workflow) if "run" in step] == []


def test_each_folder_of_tests_is_in_a_target() -> None:
    """`make test-cluster` runs only tests with the mark cluster, wherever they are."""
    commands = re.findall(r"/pytest ((?:.*\\\n)?.*)", MAKEFILE)
    named = {word for command in commands for word in command.split() if word.startswith("tests/")}
    folders = {str(path.parent.relative_to(ROOT)) for path in (ROOT / "tests").glob("*/test_*.py")}

    assert folders - named == set()
