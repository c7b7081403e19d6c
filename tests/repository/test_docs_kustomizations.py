"""Every kustomization in the docs builds, with what its page promises."""

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import yaml

from jobs.kit.values.registry import ACCOUNTS, DEFAULT_JOBS
from tests.apis import Object
from tests.manifests import ROOT, dangling, everything
from tests.pages import kustomizations
from tests.sandbox.conftest import any_kubectl

DIGEST = "sha256:" + "0" * 64
BLOCKS = {
    f"{Path(page).name}-{number}": block
    for page in ("README.md", "docs/install.md", "docs/mirror-audit.md", "docs/alerts.md")
    for number, block in enumerate(kustomizations(page))
}


@pytest.fixture
def build(tmp_path: Path, request: pytest.FixtureRequest) -> list[Object]:
    """Return the objects that kubectl builds from a block of the docs, next to a copy of cronjobs/ and other blocks."""
    shutil.copytree(ROOT / "cronjobs", tmp_path / "cronjobs")
    chosen, _ = BLOCKS[request.param]
    for folder, text in [*(block for block in BLOCKS.values() if block[0] != "."), BLOCKS[request.param]]:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "kustomization.yaml").write_text(text.replace("sha256:...", DIGEST))
    command = [any_kubectl(), "kustomize", str(tmp_path / chosen)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    objects = [each for each in yaml.load_all(done.stdout, yaml.CSafeLoader) if each]
    assert dangling(objects) == []
    return objects


def kinds(objects: list[Object]) -> Counter[str]:
    return Counter(each["kind"] for each in objects)


def named(objects: list[Object], kind: str) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def container(cron_job: Object) -> Object:
    (only,) = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    found: Object = only
    return found


def test_the_docs_have_kustomizations() -> None:
    of_install = [f"install.md-{number}" for number in range(9)]
    assert list(BLOCKS) == ["README.md-0", *of_install, "mirror-audit.md-0", "alerts.md-0"]


@pytest.mark.parametrize("build", ["README.md-0"], indirect=True)
def test_the_readme_sets_the_image_of_all_cron_jobs(build: list[Object]) -> None:
    images = {container(each)["image"] for each in named(build, "CronJob").values()}

    assert images == {f"registry.example.com/kube-chores@{DIGEST}"}


@pytest.mark.parametrize("build", ["install.md-0"], indirect=True)
def test_one_job_can_be_installed_alone(build: list[Object]) -> None:
    rules = [(each["metadata"]["name"], rule) for each in build for rule in each.get("rules", [])]
    secrets = [name for name, rule in rules if "secrets" in rule.get("resources", [])]

    assert list(named(build, "CronJob")) == ["sync-copies", "sync-copies-verify"]
    assert secrets == ["kube-chores-sync-copies-secrets"]
    assert kinds(build)["Namespace"] == 1


@pytest.mark.parametrize("build", ["install.md-1"], indirect=True)
def test_components_remove_admission_policies_and_add_network_policies(build: list[Object]) -> None:
    assert kinds(build)["ValidatingAdmissionPolicy"] == kinds(build)["ValidatingAdmissionPolicyBinding"] == 0
    assert kinds(build)["NetworkPolicy"] == 2


@pytest.mark.parametrize("build", ["install.md-2"], indirect=True)
def test_components_let_sync_copies_copy_more_and_a_patch_names_cluster_roles(build: list[Object]) -> None:
    roles = named(build, "ClusterRole")

    assert roles["kube-chores-sync-copies-rolebindings"]["rules"][1]["resourceNames"] == ["view", "team-member"]
    assert {"kube-chores-sync-copies-networkpolicies", "kube-chores-view-networkpolicies"} < roles.keys()
    assert "kube-chores-sync-copies-resourcequotas" not in roles


@pytest.mark.parametrize("build", ["install.md-3"], indirect=True)
def test_a_patch_suspends_one_job(build: list[Object]) -> None:
    suspended = [name for name, each in named(build, "CronJob").items() if each["spec"].get("suspend")]

    assert suspended == ["farm-pods"]


@pytest.mark.parametrize("build", ["install.md-4"], indirect=True)
def test_an_overlay_has_each_setting(build: list[Object]) -> None:
    cron_jobs = named(build, "CronJob")
    rolls = cron_jobs["roll-workloads"]
    pods = [each["spec"]["jobTemplate"]["spec"]["template"]["spec"] for each in cron_jobs.values()]

    assert {container(each)["image"] for each in cron_jobs.values()} == {f"registry.example.com/kube-chores@{DIGEST}"}
    assert {(pod["priorityClassName"], pod["tolerations"][0]["key"]) for pod in pods} == {("low", "infra")}
    assert rolls["spec"]["schedule"] == "*/10 * * * *"
    assert container(rolls)["args"] == ["roll-workloads", "--max-rolls=5"]
    assert container(rolls)["resources"]["limits"]["memory"] == "512Mi"
    assert {name: each["data"] for name, each in named(build, "ConfigMap").items()} == {
        "kube-chores-settings": {"LOG_FORMAT": "json"},
        "sync-copies-settings": {"MAX_DELETES": "20"},
    }
    read = [each["configMapRef"]["name"] for each in container(cron_jobs["sync-copies-verify"])["envFrom"]]
    assert read == ["kube-chores-settings", "sync-copies-settings"]


@pytest.mark.parametrize("build", ["install.md-5"], indirect=True)
def test_the_default_moves_to_another_namespace_with_one_file(build: list[Object]) -> None:
    assert {each["metadata"].get("namespace") for each in build} == {None, "my-chores"}
    assert set(named(build, "Namespace")) == {"my-chores"}
    assert set(named(build, "ServiceAccount")) == set(DEFAULT_JOBS)


@pytest.mark.parametrize("build", ["install.md-7"], indirect=True)
def test_all_jobs_move_to_another_namespace_with_two_files(build: list[Object]) -> None:
    assert {name: each["metadata"]["namespace"] for name, each in named(build, "ServiceAccount").items()} == (
        dict.fromkeys(ACCOUNTS, "my-chores")
    )
    assert {each["metadata"]["namespace"] for each in named(build, "CronJob").values()} == {"my-chores"}
    places = {each["metadata"]["namespace"] for each in build if each["kind"] in ("Role", "RoleBinding")}
    assert places == {"my-chores", "kube-chores-mirrors", "kube-chores-nodes", "default"}
    assert set(named(build, "Namespace")) == {"my-chores", "kube-chores-mirrors", "kube-chores-nodes"}
    assert kinds(build)["CustomResourceDefinition"] == 5


@pytest.mark.parametrize("build", ["mirror-audit.md-0"], indirect=True)
def test_repairs_and_checks_of_images_are_in_one_kustomization(build: list[Object]) -> None:
    cron_jobs = named(build, "CronJob")

    assert {"mirror-audit", "mirror-repair"} <= cron_jobs.keys()
    assert container(cron_jobs["mirror-audit"])["args"] == ["mirror-audit", "--images=50"]
    assert {"mirror-audit", "mirror-audit-secrets", "mirror-repair"} <= named(build, "RoleBinding").keys()
    assert set(named(build, "Namespace")) == {"kube-chores", "kube-chores-mirrors", "kube-chores-nodes"}


@pytest.mark.parametrize("build", ["install.md-8"], indirect=True)
def test_a_second_installation_has_no_cluster_scoped_object_of_the_first(build: list[Object]) -> None:
    first = {(each["kind"], each["metadata"]["name"]) for each in everything()}
    second = {(each["kind"], each["metadata"]["name"]) for each in build if "namespace" not in each["metadata"]}

    assert first & second == set()
    assert {name for kind, name in second if kind == "ClusterRole"} == {
        "team-b-kube-chores-sync-copies",
        "team-b-kube-chores-sync-copies-secrets",
    }


@pytest.mark.parametrize("build", ["alerts.md-0"], indirect=True)
def test_jobs_send_metrics_and_may_connect_to_the_gateway(build: list[Object]) -> None:
    (settings,) = (each["data"] for name, each in named(build, "ConfigMap").items() if name == "kube-chores-settings")
    (labels,) = (each["metadata"]["labels"] for each in named(build, "PrometheusRule").values())

    assert settings == {"PUSH_GATEWAY": "http://prometheus-pushgateway.monitoring:9091"}
    assert labels["release"] == "prometheus"
    assert kinds(build)["NetworkPolicy"] == 3
    assert "kube-chores-dashboard" in named(build, "ConfigMap")
