"""What `make release` checks before it builds anything."""

import os
import subprocess
import zipfile
from pathlib import Path

import pytest
import yaml

from tests.manifests import ROOT
from tools import release

DIGEST = f"sha256:{64 * 'a'}"
FILES = {
    "jobs/__init__.py": '__version__ = "1.2.0"\n',
    "cronjobs/base/cronjob.yaml": "containers:\n  - image: kube-chores:1.2.0\n",
    "charts/kube-chores/Chart.yaml": 'version: 1.2.0\nappVersion: "1.2.0"\n',
    "Dockerfile": f"ARG BASE=python:3.13-slim@{DIGEST}\n",
    "CHANGELOG.md": "# X\n\n## [1.2.0] - 2026-05-04\n\nFaster.\n\n### Added\n\n- x\n\n## [1.1.0] - 2026-01-02\n\n- y\n",
}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree of which a release can be built."""
    monkeypatch.delenv("BASE", raising=False)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x", *words], cwd=folder, check=True)


def commit(folder: Path) -> None:
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "x")


def test_a_tree_that_agrees_has_no_problem(tree: Path) -> None:
    assert list(release.problems(tree)) == []
    git(tree, "tag", "v1.2.0")
    assert list(release.problems(tree)) == []


def test_all_problems_are_named_at_once(tree: Path) -> None:
    (tree / "jobs" / "__init__.py").write_text('__version__ = "1.3.0"\n')
    (tree / "Dockerfile").write_text("ARG BASE=python:3.13-slim\n")
    commit(tree)
    git(tree, "tag", "v1.2.0")
    (tree / "new.txt").write_text("")

    assert list(release.problems(tree)) == [
        "cronjobs/base/cronjob.yaml: image is 1.2.0, but the version in jobs/__init__.py is 1.3.0",
        "charts/kube-chores/Chart.yaml: version is 1.2.0, but the version in jobs/__init__.py is 1.3.0",
        "charts/kube-chores/Chart.yaml: appVersion is 1.2.0, but the version in jobs/__init__.py is 1.3.0",
        "CHANGELOG.md: no section [1.3.0] with a date; write `## [1.3.0] - YYYY-MM-DD`",
        "Dockerfile: the base image has no digest; run `make base-digest`, or set BASE=... for a trial",
        "git: the commit has the tag v1.2.0, but the version is 1.3.0",
        "git: not committed: new.txt",
    ]


@pytest.mark.parametrize(
    "registry", ["https://ghcr.io/x", "ghcr.io/x/", "127.0.0.1:5000@x", "-x", "a b", "x:y", "Ghcr.io"]
)
def test_a_registry_that_no_image_can_have_is_a_problem(tree: Path, registry: str) -> None:
    (problem,) = release.problems(tree, registry)

    assert problem == f"REGISTRY is {registry!r}; write it as ghcr.io/OWNER or 127.0.0.1:5000"


@pytest.mark.parametrize("registry", ["ghcr.io/x", "127.0.0.1.example.com", "registry.example.com:5000/a/b-c"])
def test_only_a_tagged_commit_of_an_account_is_pushed_to_others(
    tree: Path, registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "SOURCE", "https://github.com/{}/kube-chores".format("OWNER"))
    assert list(release.problems(tree, registry)) == [
        "git: the commit has no tag v1.2.0; without it, REGISTRY can only be on 127.0.0.1",
        "tools/release.py: OWNER is not an account; run `tools/owner NAME`",
    ]
    assert list(release.problems(tree, "127.0.0.1:5000")) == []

    git(tree, "tag", "v1.2.0")
    monkeypatch.setattr(release, "SOURCE", "https://github.com/x/kube-chores")
    assert list(release.problems(tree, registry)) == []


def test_the_chart_gets_the_image_and_keeps_its_time(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_bytes((ROOT / "charts/kube-chores/values.yaml").read_bytes())
    os.utime(values, (86400, 86400))

    release.set_image(values, "127.0.0.1:5000/kube-chores", DIGEST)

    assert yaml.safe_load(values.read_text())["image"] == {
        "repository": "127.0.0.1:5000/kube-chores",
        "tag": "",
        "digest": DIGEST,
        "pullPolicy": "",
        "pullSecrets": [],
    }
    assert values.stat().st_mtime == 86400
    with pytest.raises(SystemExit, match="has not one line `repository: kube-chores`"):
        release.set_image(values, "x", DIGEST)


def test_the_notes_are_the_section_of_the_version(tree: Path) -> None:
    assert release.notes(tree) == "Faster.\n\n### Added\n\n- x"


@pytest.mark.parametrize("heading", ["## [Unreleased] 1.2.0", "## [1.2.0]", "## [11.2.0] - 2026-05-04"])
def test_a_section_without_this_version_and_a_date_has_no_notes(tree: Path, heading: str) -> None:
    (tree / "CHANGELOG.md").write_text(f"{heading}\n\n- x\n")

    assert release.notes(tree) == ""


def test_the_versions_of_this_repository_agree() -> None:
    assert list(release.other_versions(ROOT)) == []


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (release.IN_THE_WHEEL - {"cronjobs/kustomization.yaml"}, "x.whl lacks cronjobs/kustomization.yaml"),
        (release.IN_THE_WHEEL | {"tests/unit/x.py"}, "x.whl contains tests/unit/x.py"),
    ],
)
def test_a_wheel_without_manifests_or_with_tests_is_an_error(tmp_path: Path, names: set[str], problem: str) -> None:
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as wheel:
        for name in names:
            wheel.writestr(name, "")

    with pytest.raises(SystemExit, match=problem):
        release.check_wheel(tmp_path / "x.whl")
