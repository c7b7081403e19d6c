"""Kustomizations of users over cronjobs/: chosen jobs, another namespace, and components that require their job."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.kit.values import registry
from tests.apis import Object
from tests.manifests import COPIES, ROOT, dangling, load, rights_on_copies
from tests.sandbox.conftest import any_kubectl

JOBS = [*registry.DEFAULT_JOBS]
IN_ONE_NAMESPACE = [*JOBS, "mirror-audit/job", "mirror-repair/job", "sync-copies-clusters/job"]
OF_MIRRORS = ["mirrors/mirror-audit", "mirrors/mirror-repair", "secrets/mirror-audit", "secrets/mirror-repair"]
SECRETS = ["secrets/sync-copies", "secrets/roll-workloads"]
OF_CLUSTERS = "secrets/sync-copies-clusters"
OF_COPIES = [f"copies/{each}" for each in COPIES]
Build = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Write kustomizations next to a copy of cronjobs/, by their folders, and build the one in folder `.`."""
    shutil.copytree(ROOT / "cronjobs", tmp_path / "cronjobs")

    def run(**folders: Object) -> subprocess.CompletedProcess[str]:
        for folder, content in folders.items():
            path = tmp_path if folder == "top" else tmp_path / folder
            path.mkdir(exist_ok=True)
            (path / "kustomization.yaml").write_text(yaml.safe_dump(content))
        command = [any_kubectl(), "kustomize", str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    return run


def folders(prefix: str, names: list[str]) -> list[str]:
    return [f"{prefix}/{name}" for name in names]


def built(done: subprocess.CompletedProcess[str]) -> list[Object]:
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.load_all(done.stdout, yaml.CSafeLoader) if each]


@pytest.mark.parametrize("folder", ["cronjobs", "cronjobs/without-secrets"])
def test_the_default_can_be_installed_in_another_namespace_with_its_components(folder: str, build: Build) -> None:
    components = folders("cronjobs/components", [*OF_COPIES, "network-policies", "dry-run", "argo-rollouts"])
    objects = built(build(top={"namespace": "x", "resources": [folder], "components": components}))

    assert {obj["metadata"].get("namespace", "x") for obj in objects} == {"x"}
    assert {each["namespace"] for obj in objects for each in obj.get("subjects", ()) if "namespace" in each} == {"x"}
    assert [obj["metadata"]["name"] for obj in objects if obj["kind"] == "Namespace"] == ["x"]
    assert dangling(objects) == []


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ({"resources": ["cronjobs", "cronjobs/mirror-repair"], "namespace": "x"}, "namespace transformation"),
        ({"resources": ["cronjobs", "cronjobs/mirror-repair", "cronjobs/mirror-audit"]}, "already registered id"),
        ({"resources": ["cronjobs", "cronjobs/mirror-repair", "cronjobs/mirror-namespaces"]}, "already registered id"),
    ],
)
def test_mirrors_that_are_moved_or_listed_twice_fail_the_build(listed: Object, message: str, build: Build) -> None:
    done = build(top=listed)

    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr


def test_the_component_dry_run_adds_a_suspended_cron_job_for_each_job_and_nothing_else(build: Build) -> None:
    without = built(build(top={"resources": ["cronjobs"]}))
    objects = built(build(top={"resources": ["cronjobs"], "components": ["cronjobs/components/dry-run"]}))

    twins = [obj for obj in objects if obj not in without]
    assert len(objects) == len(without) + len(twins)
    assert sorted(obj["metadata"]["name"] for obj in twins) == [f"{job}-dry-run" for job in sorted(JOBS)]
    for twin in twins:
        pod = twin["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        assert twin["kind"] == "CronJob"
        assert twin["spec"]["suspend"] is True
        assert pod["containers"][0]["args"][-1] == "--dry-run"
        assert f"{pod['serviceAccountName']}-dry-run" == twin["metadata"]["name"]


@pytest.mark.parametrize("component", [*SECRETS, OF_CLUSTERS, *OF_COPIES, *OF_MIRRORS, "dry-run"])
def test_a_component_of_a_job_that_is_not_listed_fails_the_build(component: str, build: Build) -> None:
    job = "sync-copies" if component in ("dry-run", *OF_COPIES) else component.rpartition("/")[2]
    other = "fetch-rates" if job == "farm-pods" else "farm-pods"
    done = build(top={"resources": [f"cronjobs/{other}"], "components": [f"cronjobs/components/{component}"]})

    assert done.returncode != 0
    assert f"ServiceAccount.[noVer].[noGrp]/{job}." in done.stderr or f"ServiceAccount.v1.[noGrp]/{job}." in done.stderr


@pytest.mark.parametrize(
    "folder",
    [
        ".",
        "without-secrets",
        "mirror-audit",
        "mirror-repair",
        "sync-copies-clusters",
        "spoke",
        "components/network-policies",
    ],
)
def test_the_loader_of_the_tests_reads_what_kubectl_builds(folder: str, build: Build, tmp_path: Path) -> None:
    def key(obj: Object) -> tuple[str, str, str]:
        return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]

    kind = "components" if folder == "components/network-policies" else "resources"
    objects = built(build(top={kind: [f"cronjobs/{folder}"]}))

    assert sorted(objects, key=key) == sorted(load(tmp_path / "cronjobs" / folder), key=key)


def test_the_components_of_copies_add_their_objects_and_change_no_other(build: Build) -> None:
    def key(obj: Object) -> tuple[str, str]:
        return obj["kind"], obj["metadata"]["name"]

    without = built(build(top={"resources": ["cronjobs"]}))
    listed = {"resources": ["cronjobs"], "components": folders("cronjobs/components", OF_COPIES)}
    objects = built(build(top=listed))

    assert [obj for obj in objects if obj in without] == without
    assert sorted((obj for obj in objects if obj not in without), key=key) == sorted(rights_on_copies(), key=key)


def leaves(value: Any, *path: str) -> set[tuple[str, ...]]:
    """Return the paths of the fields of an object; elements of lists with a name count by their name."""
    if isinstance(value, dict):
        return {leaf for key, each in value.items() for leaf in leaves(each, *path, key)}
    if isinstance(value, list) and value and all(isinstance(each, dict) and "name" in each for each in value):
        return {leaf for each in value for leaf in leaves(each, *path, each["name"])}
    return {path}


def test_no_job_sets_a_field_of_the_base_which_would_be_overwritten() -> None:
    base = yaml.safe_load((ROOT / "cronjobs" / "base" / "cronjob.yaml").read_text())["spec"]
    files = [*(ROOT / "cronjobs").glob("*/*.yaml"), *(ROOT / "cronjobs").glob("*/job/*.yaml")]
    documents = [
        obj
        for path in files
        if path.parent.name != "base"
        for obj in yaml.safe_load_all(path.read_text())
        if obj and obj["kind"] == "CronJob"
    ]

    assert len(documents) == len({*registry.ACCOUNTS, registry.VERIFY})
    name = ("jobTemplate", "spec", "template", "spec", "containers", "chores", "name")
    assert {leaf for obj in documents for leaf in leaves(obj["spec"]) & leaves(base)} == {name}
