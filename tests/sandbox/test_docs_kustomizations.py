"""Every kustomization in the docs builds, with what its page promises."""

import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.apis import Object
from tests.manifests import ROOT
from tests.sandbox.conftest import any_kubectl

DIGEST = "sha256:" + "0" * 64
BLOCKS = {
    f"{path.name}-{number}": text
    for path in (ROOT / "README.md", ROOT / "docs" / "install.md")
    for number, text in enumerate(re.findall(r"```yaml\n(.*?)```", path.read_text(), re.DOTALL))
    if "kind: Kustomization" in text
}


@pytest.fixture
def build(tmp_path: Path, request: pytest.FixtureRequest) -> list[Object]:
    """Return the objects that kubectl builds from a block of the docs, next to a copy of cronjobs/."""
    shutil.copytree(ROOT / "cronjobs", tmp_path / "cronjobs")
    (tmp_path / "kustomization.yaml").write_text(BLOCKS[request.param].replace("sha256:...", DIGEST))
    command = [any_kubectl(), "kustomize", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def kinds(objects: list[Object]) -> Counter[str]:
    return Counter(each["kind"] for each in objects)


def test_the_docs_have_kustomizations() -> None:
    assert list(BLOCKS) == ["README.md-0", "install.md-0", "install.md-1", "install.md-2"]


@pytest.mark.parametrize("build", ["README.md-0"], indirect=True)
def test_the_readme_sets_the_image_of_all_cron_jobs(build: list[Object]) -> None:
    images = [
        container["image"]
        for each in build
        if each["kind"] == "CronJob"
        for container in each["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    ]

    assert set(images) == {f"registry.example.com/kube-chores@{DIGEST}"}


@pytest.mark.parametrize("build", ["install.md-0"], indirect=True)
def test_components_remove_admission_policies_and_add_network_policies(build: list[Object]) -> None:
    assert kinds(build)["ValidatingAdmissionPolicy"] == kinds(build)["ValidatingAdmissionPolicyBinding"] == 0
    assert kinds(build)["NetworkPolicy"] == 4


@pytest.mark.parametrize("build", ["install.md-1"], indirect=True)
def test_one_job_can_be_installed_alone(build: list[Object]) -> None:
    jobs = [each["metadata"]["name"] for each in build if each["kind"] == "CronJob"]
    rules = [(each["metadata"]["name"], rule) for each in build for rule in each.get("rules", [])]
    secrets = [name for name, rule in rules if "secrets" in rule.get("resources", [])]

    assert jobs == ["sync-copies", "sync-copies-verify"]
    assert secrets == ["kube-chores-sync-copies-secrets"]
    assert kinds(build)["Namespace"] == 1


@pytest.mark.parametrize("build", ["install.md-2"], indirect=True)
def test_a_patch_suspends_one_job(build: list[Object]) -> None:
    jobs = {each["metadata"]["name"]: each["spec"] for each in build if each["kind"] == "CronJob"}
    suspended = [name for name, spec in jobs.items() if spec.get("suspend")]

    assert suspended == ["farm-pods"]
