"""What a stranger reads before an install: the chart's page on Artifact Hub, licences, updates, the account."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs import __version__
from tests.generated import check
from tests.manifests import ROOT
from tools.krew import LOCKS

CHART = ROOT / "charts" / "kube-chores" / "Chart.yaml"
PAGE = re.compile(r"https://github\.com/([^/\s]+)/kube-chores\b")
# tools/owner replaces none in this line.
PLACEHOLDERS = b"https://github.com/%s/x ghcr.io/%s/x @%s \xff OWNER=1\n" % (3 * (b"OWNER",))
MARK = "annotations: # for Artifact Hub; written by `make docs`\n"


def listed() -> list[str]:
    """Return the files of the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in found.split("\0") if (ROOT / name).is_file()]


def crds() -> Iterator[dict[str, Any]]:
    for path in sorted((ROOT / "cronjobs" / "crds").glob("*.yaml")):
        if (crd := yaml.safe_load(path.read_text()))["kind"] == "CustomResourceDefinition":
            yield crd


def described(crd: Any) -> dict[str, str]:
    """Return the entry of a CRD, with the first sentence of its description."""
    kind, version = crd["spec"]["names"]["kind"], crd["spec"]["versions"][0]
    sentence = version["schema"]["openAPIV3Schema"]["description"].split(". ")[0].rstrip(".")
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind)
    return {
        "kind": kind,
        "version": version["name"],
        "name": crd["metadata"]["name"],
        "displayName": words,
        "description": f"{sentence}.",
    }


def sample(kind: str) -> Any:
    """Return the first object of a kind in the samples. Jobs write FarmPods, so these have none."""
    for path in sorted((ROOT / "cronjobs" / "samples").rglob("*.yaml")):
        for obj in yaml.safe_load_all(path.read_text()):
            if obj["kind"] == kind:
                return obj
    return None


def summary() -> str:
    """Return the text of the newest section of the changelog, before its lists."""
    changelog = (ROOT / "CHANGELOG.md").read_text()
    found = re.search(rf"^## .*{re.escape(__version__)}.*\n\n((?:[^#\n].*\n)+)", changelog, re.M)
    assert found, f"CHANGELOG.md: the section of {__version__} has no summary after its heading"
    return " ".join(found[1].split())


def annotations(owner: str) -> dict[str, Any]:
    page = f"https://github.com/{owner}/kube-chores"
    account = owner if owner == "OWNER" else owner.lower()  # names of images are in lower case
    described_crds = [described(crd) for crd in crds()]
    return {
        "license": "Apache-2.0",
        "changes": [summary()],
        "crds": described_crds,
        "crdsExamples": [found for crd in described_crds if (found := sample(crd["kind"]))],
        "images": [{"name": "kube-chores", "image": f"ghcr.io/{account}/kube-chores:{__version__}"}],
        "links": [
            {"name": "Documentation", "url": f"{page}/tree/main/docs"},
            {"name": "What each account can do", "url": f"{page}/blob/main/docs/security.md"},
            {"name": "Support", "url": f"{page}/issues"},
        ],
    }


def test_the_annotations_of_the_chart_are_generated() -> None:
    text = CHART.read_text()
    head, mark, _ = text.partition(MARK)
    found = PAGE.search(head)
    assert mark and found
    lines = []
    for name, value in annotations(found[1]).items():
        lines.append(f"  artifacthub.io/{name}:")
        if isinstance(value, str):
            lines[-1] += f" {value}"
            continue
        lines[-1] += " |"
        dumped = yaml.safe_dump(value, sort_keys=False, width=200)
        lines += [f"    {line}" for line in dumped.splitlines()]

    check(CHART, head + MARK + "\n".join(lines) + "\n")


def test_the_chart_names_one_account() -> None:
    chart = yaml.safe_load(CHART.read_text())
    owners = set(PAGE.findall(CHART.read_text()))

    assert owners == {each["name"] for each in chart["maintainers"]}
    assert [chart["home"]] == chart["sources"]
    assert {each["url"] for each in chart["maintainers"]} == {f"https://github.com/{owner}" for owner in owners}
    assert f"[@{owners.pop()}](" in (ROOT / "MAINTAINERS.md").read_text()


def test_each_crd_that_users_write_has_an_example() -> None:
    kinds = {crd["spec"]["names"]["kind"] for crd in crds()}

    assert {kind for kind in kinds if not sample(kind)} == {"FarmPod"}


def test_private_reports_have_a_way() -> None:
    for name in ("SECURITY.md", "CODE_OF_CONDUCT.md"):
        assert "**Report a vulnerability**" in " ".join((ROOT / name).read_text().split())


def matched(patterns: list[str]) -> set[str]:
    """Return the files that these patterns of Renovate match: regular expressions between slashes."""
    return {name for name in listed() for pattern in patterns if re.search(pattern[1:-1], name)}


def test_renovate_updates_each_file_that_pins_something() -> None:
    renovate = json.loads((ROOT / "renovate.json").read_text())
    (custom,) = renovate["customManagers"]
    versions = ROOT / "tools" / "kubernetes" / "versions"
    pattern = custom["matchStrings"][0].replace("(?<", "(?P<")  # as Python writes it
    lines = [line for line in versions.read_text().splitlines() if not line.startswith("#")]

    locks = {str(lock.relative_to(ROOT)) for lock in LOCKS}
    assert matched(renovate["pip_requirements"]["managerFilePatterns"]) == locks | {"tools/manifests/requirements.txt"}
    assert matched(custom["managerFilePatterns"]) == {"tools/kubernetes/versions"}
    assert re.findall(pattern, versions.read_text()) == lines
    assert sorted(renovate["enabledManagers"]) == renovate["enabledManagers"]


def test_modules_of_tools_are_updated_although_nothing_imports_them() -> None:
    """Renovate skips requirements with `// indirect`, and these are the programs that tools build."""
    rules = json.loads((ROOT / "renovate.json").read_text())["packageRules"]
    (enabled,) = (rule for rule in rules if rule.get("matchDepTypes") == ["indirect"])
    indirect = set()
    for path in (ROOT / "tools").glob("*/build"):
        for module in re.findall(r"^module=(\S+)", path.read_text(), re.M):
            indirect |= set(re.findall(rf"({module}) v\S+ // indirect", path.with_name("go.mod").read_text()))

    assert indirect - set(enabled["matchPackageNames"]) == {"github.com/argoproj/argo-rollouts"}  # has copied replaces


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository that has the tool, and a page with the placeholder."""
    (tmp_path / "tools").mkdir()
    shutil.copy2(ROOT / "tools" / "owner", tmp_path / "tools")
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    (tmp_path / "page.md").write_bytes(PLACEHOLDERS)
    return tmp_path


def owner(tree: Path, *names: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, tree / "tools" / "owner", *names], capture_output=True, text=True)


def test_the_account_is_named_once(tree: Path) -> None:
    first, second = owner(tree, "Some-Account"), owner(tree, "another")

    assert (first.returncode, first.stdout, first.stderr) == (0, "page.md\n", "")
    assert (tree / "page.md").read_bytes() == (
        b"https://github.com/Some-Account/x ghcr.io/some-account/x @Some-Account \xff OWNER=1\n"
    )
    assert (second.returncode, second.stdout) == (
        0,
        "no placeholder is left; to name another account, undo the change with git\n",
    )


def test_this_tree_has_no_placeholder_left_after_that_and_its_tests_pass(tree: Path) -> None:
    for name in listed():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    (tree / "charts" / "kube-chores" / "cronjobs").symlink_to("../../cronjobs")
    done = owner(tree, "Some-Account")
    assert (done.returncode, "page.md" in done.stdout.split()) == (0, True), done.stderr
    placeholder = re.compile(rb"(github\.com/|ghcr\.io/|@|\bname: \")OWNER\b")
    assert [name for name in listed() if placeholder.search((tree / name).read_bytes())] == []
    assert [name for name in listed() if name.endswith(".md") and b"OWNER" in (tree / name).read_bytes()] == []
    assert (tree / "tools" / "owner").stat().st_mode & 0o111

    (tree / "page.md").unlink()
    links = "tests/repository/test_docs.py::test_links_between_docs_are_valid"
    here = f"{Path(__file__).relative_to(ROOT)}::test_"
    names = ("the_annotations_of_the_chart_are_generated", "the_chart_names_one_account")
    tests = (links, *(f"{here}{name}" for name in (*names, "a_name_that_github_refuses_changes_nothing[OWNER]")))
    env = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    checked = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "4 passed" in checked.stdout


@pytest.mark.parametrize("name", ["", "a b", "-a", "a-", "a--b", "a_b", "a/b", 40 * "a", "ä", "a\n", "OWNER"])
def test_a_name_that_github_refuses_changes_nothing(tree: Path, name: str) -> None:
    done = owner(tree, name)

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert (tree / "page.md").read_bytes() == PLACEHOLDERS
