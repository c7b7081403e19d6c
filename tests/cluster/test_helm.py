"""The Helm chart: what it renders, compared with kubectl kustomize, and its releases on a real control plane."""

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.control_plane import missing as no_control_plane
from tests.control_plane import programs
from tests.helm import CHART, Helm, missing
from tests.manifests import ROOT, Object
from tests.sandbox.test_overlays import dangling

pytestmark = pytest.mark.cluster

Key = tuple[str, str, str]
Values = Mapping[str, Any]
Kustomize = Callable[..., dict[Key, Object]]
JOBS = ["sync-copies", "fetch-rates", "mirror-audit", "mirror-repair", "roll-workloads", "farm-pods"]
WITH_SECRETS = ["sync-copies", "mirror-audit", "mirror-repair", "roll-workloads"]
# The objects that exist once per cluster: a second release has none of them.
SECOND: Values = {"crds": False, "policies": False, "jobs": {"mirror-audit": {"enabled": False}}}


def keyed(objects: list[Object]) -> dict[Key, Object]:
    found = {(obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]): obj for obj in objects}
    assert len(found) == len(objects)
    return found


def only(*names: str) -> Values:
    return {"jobs": {name: {"enabled": name in names} for name in JOBS}}


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    if reason := missing():
        pytest.skip(reason)
    return Helm(tmp_path)


@pytest.fixture
def kustomize(tmp_path: Path) -> Kustomize:
    """Return the objects of folders and components of cronjobs/, as the chart is to render them."""
    if reason := no_control_plane():
        pytest.skip(reason)
    where = os.path.relpath(ROOT / "cronjobs", tmp_path)

    def build(resources: list[str], components: list[str]) -> dict[Key, Object]:
        content = {
            "resources": [f"{where}/{each}" for each in resources],
            "components": [f"{where}/components/{each}" for each in components],
        }
        (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(content))
        command = [str(programs() / "kubectl"), "kustomize", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return keyed([as_in_the_chart(each) for each in yaml.safe_load_all(done.stdout) if each])

    def as_in_the_chart(obj: Object) -> Object:
        """Add what the chart alone has: an uninstall leaves the definitions, and the namespaces of mirrors."""
        if obj["kind"] in ("CustomResourceDefinition", "Namespace"):
            obj["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
        return obj

    return build


ALONE = {
    name: (
        only(name),
        ["namespace", "crds", "policies", name, *(["mirror-namespaces"] if name == "mirror-repair" else [])],
        [f"secrets/{name}"] if name in WITH_SECRETS and name != "mirror-repair" else [],
    )
    for name in JOBS
}
CASES: dict[str, tuple[Values, list[str], list[str]]] = {
    "default values": ({}, ["."], []),
    "without permissions on Secrets": (
        {"jobs": {name: {"secrets": False} for name in WITH_SECRETS}},
        ["without-secrets"],
        [],
    ),
    "with repairs of mirrors": ({"jobs": {"mirror-repair": {"enabled": True}}}, [".", "mirror-repair"], []),
    "with network policies": ({"networkPolicies": True}, ["."], ["network-policies"]),
    "without policies": ({"policies": False}, ["."], ["without-policies"]),
    **{f"only {name}": case for name, case in ALONE.items()},
}


@pytest.mark.parametrize("case", CASES)
def test_the_chart_renders_the_objects_that_kubectl_builds(case: str, helm: Helm, kustomize: Kustomize) -> None:
    values, resources, components = CASES[case]
    expected = kustomize(resources, components)
    # Helm needs the namespace of a release before: a command of the docs creates it.
    del expected["Namespace", "", "kube-chores"]
    if case == "without policies":  # kustomize keeps the roles that only the policies use
        expected = {key: obj for key, obj in expected.items() if key[2] not in ("kube-chores-adopt", "kube-chores-restore")}

    rendered = keyed(helm.render(values))

    assert sorted(rendered) == sorted(expected)
    assert {key: rendered[key] for key in expected if rendered[key] != expected[key]} == {}


def test_names_and_bindings_follow_the_namespace_of_the_release(helm: Helm, tmp_path: Path) -> None:
    values = {"jobs": {"mirror-repair": {"enabled": True}}, "networkPolicies": True}
    first, other = helm.render(values), Helm(tmp_path, namespace="team-b").render(values)

    def renamed(obj: Object) -> Key:
        kind, namespace, name = next(iter(keyed([obj])))
        if kind in ("ClusterRole", "ClusterRoleBinding") and name.removeprefix("kube-chores-").startswith(tuple(JOBS)):
            name = name.replace("kube-chores-", "team-b-", 1)
        return kind, "team-b" if namespace == "kube-chores" else namespace, name

    assert dangling(first) == dangling(other) == []
    assert list(keyed(other)) == [renamed(each) for each in first]
    assert {each["namespace"] for obj in other for each in obj.get("subjects", ())} == {"team-b"}


def test_a_second_release_renders_no_object_of_the_first(helm: Helm, tmp_path: Path) -> None:
    first, second = keyed(helm.render()), keyed(Helm(tmp_path, namespace="team-b").render(SECOND))

    assert first.keys() & second.keys() == set()
    assert {name for kind, _, name in second if kind == "CronJob"} == {
        "farm-pods",
        "fetch-rates",
        "roll-workloads",
        "sync-copies",
        "sync-copies-verify",
    }


def test_values_change_the_cron_jobs(helm: Helm) -> None:
    digest = "sha256:" + "0" * 64
    toleration = {"key": "batch", "operator": "Exists", "effect": "NoSchedule"}
    job = {
        "schedule": "*/5 * * * *",
        "verifySchedule": "@daily",
        "suspend": True,
        "flags": ["--max-deletes=50"],
        "settings": {"DIFF": 1, "VERBOSE": "2", "CHECK": True},
        "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
    }
    values = {
        "image": {"repository": "registry.example.com/chores", "digest": digest, "pullSecrets": ["login"]},
        "settings": {"LOG_FORMAT": "json"},
        "jobs": {"sync-copies": job},
        "nodeSelector": {"pool": "batch"},
        "tolerations": [toleration],
        "priorityClassName": "low",
    }
    objects = keyed(helm.render({**values, "image": {**values["image"], "pullPolicy": "Always"}}))
    run, verify, other = (
        objects["CronJob", "kube-chores", name] for name in ("sync-copies", "sync-copies-verify", "farm-pods")
    )
    pod = run["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert [each["spec"].get("suspend") for each in (run, verify, other)] == [True, True, None]
    assert [each["spec"]["schedule"] for each in (run, verify)] == ["*/5 * * * *", "@daily"]
    assert container["image"] == f"registry.example.com/chores@{digest}"
    assert (container["args"], container["imagePullPolicy"]) == (["sync-copies", "--max-deletes=50"], "Always")
    assert container["resources"] == {
        "requests": {"cpu": "1", "memory": "64Mi", "ephemeral-storage": "10Mi"},
        "limits": {"memory": "1Gi", "ephemeral-storage": "64Mi"},
    }
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "batch"}
    assert (pod["tolerations"], pod["priorityClassName"]) == ([toleration], "low")
    assert pod["imagePullSecrets"] == [{"name": "login"}]
    settings = {name: obj["data"] for (kind, _, name), obj in objects.items() if kind == "ConfigMap"}
    assert settings == {
        "kube-chores-settings": {"LOG_FORMAT": "json"},
        "sync-copies-settings": {"DIFF": "1", "VERBOSE": "2", "CHECK": "true"},
    }
    assert {each["configMapRef"]["name"] for each in container["envFrom"]} == set(settings)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("jobs.sync-copy.enabled=true", "jobs': additional properties 'sync-copy' not allowed"),
        ("jobs.sync-copies=null", "jobs': missing property 'sync-copies'"),
        ("jobs.sync-copies.schedule=null", "jobs/sync-copies': missing property 'schedule'"),
        ("jobs.sync-copies.schedule=hourly", "jobs/sync-copies/schedule': 'hourly' does not match pattern"),
        ("jobs.sync-copies.flags=--diff", "jobs/sync-copies/flags': got string, want array"),
        ("jobs.sync-copies.flags={--max-deletes 50}", "jobs/sync-copies/flags/0': '--max-deletes 50' does not match"),
        ("jobs.sync-copies.settings.DIF=1", "jobs/sync-copies/settings': additional properties 'DIF' not allowed"),
        ("settings.KEY_SECRET=x/y", "settings': additional properties 'KEY_SECRET' not allowed"),
        ("jobs.farm-pods.secrets=true", "jobs/farm-pods': additional properties 'secrets' not allowed"),
        ("image.digest=0123", "image/digest': '0123' does not match pattern"),
        ("image.repository=example.com/chores:1", "image/repository': 'example.com/chores:1' does not match pattern"),
        ("image.tag=1\n  privileged: true", "image/tag': '1\\n  privileged: true' does not match pattern"),
        ("priorityClassName=low\nhostNetwork: true", "priorityClassName': 'low\\nhostNetwork: true' does not match"),
        ("networkPolicies=yes", "networkPolicies': got string, want boolean"),
        ("tolerations[0].effect=NoRun", "tolerations/0/effect': value must be one of"),
        ("replicas=2", "additional properties 'replicas' not allowed"),
    ],
)
def test_a_mistake_in_the_values_is_an_error(given: str, message: str, helm: Helm) -> None:
    done = helm.run("template", "kube-chores", str(CHART), "--set", given)

    assert done.returncode != 0
    assert message in done.stderr


def test_a_packaged_chart_renders_the_same(helm: Helm, tmp_path: Path) -> None:
    helm("lint", "--strict", str(CHART))
    helm("package", str(CHART), "--destination", str(tmp_path))
    (package,) = tmp_path.glob("*.tgz")

    assert helm.render(chart=package) == helm.render()
