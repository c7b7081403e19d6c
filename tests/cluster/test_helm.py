"""The Helm chart: what it renders, compared with kubectl kustomize, and its releases on a real control plane."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.kit.values.registry import ACCOUNTS, CLUSTERS
from tests.api.conftest import runs, with_rule
from tests.apis import Api, real_api, wait_for
from tests.control_plane import control_plane, programs
from tests.control_plane import missing as no_control_plane
from tests.helm import CHART, Helm, documents, missing
from tests.manifests import COPIES, OLD, OPTIONAL, ROOT, Object, dangling, old_accounts
from tests.mirrors import Mirrors
from tests.policies import wait_until_policies_act
from tests.rates import RatesServer, serve
from tests.workloads import rollouts, settle, workload
from tests.worlds import at, configmap, content, exchange_rate, rule, secret

pytestmark = pytest.mark.cluster

Key = tuple[str, str, str]
Values = Mapping[str, Any]
Kustomize = Callable[..., dict[Key, Object]]
JOBS = [*ACCOUNTS]
WITH_SECRETS = ["sync-copies", "mirror-audit", "roll-workloads", *OPTIONAL]
# The values that the docs show: of an installation, and of a second release.
OF_DOCS, SECOND = (
    yaml.safe_load(text.replace("sha256:...", "sha256:" + "0" * 64))
    for text in re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "helm.md").read_text(), re.DOTALL)
)


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
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        return keyed([as_in_the_chart(each) for each in documents(done.stdout)])

    def as_in_the_chart(obj: Object) -> Object:
        """Add what the chart alone has: Helm keeps the definitions, what mirrors need, and the key."""
        kept = ("CustomResourceDefinition", "Namespace", "PriorityClass", "Secret")
        if obj["kind"] in kept or obj["metadata"]["name"] == "kube-chores-uninstall":
            obj["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
        return obj

    return build


def copying(**copies: Any) -> Values:
    return {"jobs": {"sync-copies": {"copies": copies}}}


MORE_COPIES = copying(
    networkPolicies=True,
    limitRanges=True,
    resourceQuotas=True,
    roleBindings={"clusterRoles": ["view"]},
    serviceAccounts=True,
    pullSecrets=True,
)
ALONE = {
    name: (
        only(name),
        ["namespace", "crds", "view", "policies", name],
        # the folders of these jobs contain their permissions on Secrets
        [f"secrets/{each}" for each in (name, "view") if name in WITH_SECRETS and each not in OPTIONAL],
    )
    for name in JOBS
}
DEFAULT, AUDIT = [".", "mirror-audit"], "secrets/mirror-audit"
CASES: dict[str, tuple[Values, list[str], list[str]]] = {
    "default values": ({}, DEFAULT, [AUDIT]),
    "without permissions on Secrets": (
        {"jobs": {name: {"secrets": False} for name in WITH_SECRETS}},
        ["without-secrets", "mirror-audit"],
        [],
    ),
    "with repairs of mirrors": (
        {"jobs": {"mirror-repair": {"enabled": True}}},
        [".", "mirror-repair", "mirror-audit/job"],
        ["mirrors/mirror-audit", AUDIT],
    ),
    "with copies to other clusters": ({"jobs": {CLUSTERS: {"enabled": True}}}, [*DEFAULT, CLUSTERS], [AUDIT]),
    "with copies to other clusters and without permissions on Secrets": (
        {"jobs": {CLUSTERS: {"enabled": True, "secrets": False}}},
        [*DEFAULT, f"{CLUSTERS}/job"],
        [AUDIT],
    ),
    "with more to copy": (MORE_COPIES, DEFAULT, [AUDIT, *(f"copies/{each}" for each in COPIES)]),
    "with copies of limits": (
        copying(limitRanges=True, resourceQuotas=True),
        DEFAULT,
        [AUDIT, "copies/limit-ranges", "copies/resource-quotas"],
    ),
    "with checks of images": ({"jobs": {"mirror-audit": {"images": 50}}}, DEFAULT, [AUDIT, "images"]),
    "with checks of images and pull secrets": (
        {"jobs": {"mirror-audit": {"images": 50, "imagesSecrets": True}}},
        DEFAULT,
        [AUDIT, "images", "images/secrets"],
    ),
    "with network policies": (
        {"networkPolicies": True},
        [*DEFAULT, "components/network-policies/mirrors"],
        [AUDIT, "network-policies"],
    ),
    "with network policies and without mirrors": (
        {**only("farm-pods"), "networkPolicies": True},
        ["namespace", "crds", "view", "policies", "farm-pods", "components/network-policies/jobs"],
        [],
    ),
    "with alerts and the dashboard": (
        {"metrics": {"alerts": True, "dashboard": True}},
        DEFAULT,
        [AUDIT, "monitoring"],
    ),
    "without policies": ({"policies": False}, DEFAULT, [AUDIT, "without-policies"]),
    **{f"only {name}": case for name, case in ALONE.items()},
}


@pytest.mark.parametrize("case", CASES)
def test_the_chart_renders_the_objects_that_kubectl_builds(case: str, helm: Helm, kustomize: Kustomize) -> None:
    values, resources, components = CASES[case]
    expected = kustomize(resources, components)
    # Helm needs the namespace of a release before: a command of the docs creates it.
    del expected["Namespace", "", "kube-chores"]
    if case == "without policies":  # kustomize keeps the roles that only the policies use
        expected = {
            key: obj for key, obj in expected.items() if key[2] not in ("kube-chores-adopt", "kube-chores-restore")
        }

    rendered = keyed(helm.render(values))

    assert sorted(rendered) == sorted(expected)
    assert {key: rendered[key] for key in expected if rendered[key] != expected[key]} == {}


def test_names_and_bindings_follow_the_namespace_of_the_release(helm: Helm, tmp_path: Path) -> None:
    audit = {"images": 50, "imagesSecrets": True}
    jobs = {**MORE_COPIES["jobs"], **{name: {"enabled": True} for name in OPTIONAL}, "mirror-audit": audit}
    values = {"jobs": jobs, "networkPolicies": True}
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
    other = Helm(tmp_path, namespace="team-b")
    first = keyed(helm.render({**MORE_COPIES, "networkPolicies": True}))
    second = keyed(other.render({**SECOND, "networkPolicies": True}))
    more = {**SECOND, "jobs": {**MORE_COPIES["jobs"], "mirror-audit": {"enabled": False}}}

    assert first.keys() & keyed(other.render(more)).keys() == set()
    assert first.keys() & second.keys() == set()
    assert {name for kind, _, name in second if kind == "CronJob"} == {"sync-copies", "sync-copies-verify"}


def test_the_values_of_the_docs_choose_jobs_and_change_them(helm: Helm) -> None:
    objects = keyed(helm.render(OF_DOCS))

    assert ("CronJob", "kube-chores", "farm-pods") not in objects
    assert ("ClusterRole", "", "kube-chores-roll-workloads-secrets") not in objects
    assert objects["CronJob", "kube-chores", "sync-copies"]["spec"]["schedule"] == "*/5 * * * *"
    assert objects["ConfigMap", "kube-chores", "kube-chores-settings"]["data"] == {"DIFF": "1"}
    bound = objects["ClusterRole", "", "kube-chores-sync-copies-rolebindings"]["rules"][1]
    assert (bound["verbs"], bound["resourceNames"]) == (["bind"], ["view", "team-member"])
    assert ("ClusterRole", "", "kube-chores-sync-copies-networkpolicies") in objects


def test_the_values_name_the_cluster_roles_of_copied_role_bindings(helm: Helm) -> None:
    name = "kube-chores-sync-copies-rolebindings"
    named = {"clusterRoles": ["team-member", "system:image-puller"]}
    role = keyed(helm.render(copying(roleBindings=named)))["ClusterRole", "", name]
    off = {"jobs": {"sync-copies": {**MORE_COPIES["jobs"]["sync-copies"], "enabled": False}}}

    assert role["rules"][1]["resourceNames"] == named["clusterRoles"]
    assert [rule["verbs"] for rule in role["rules"]] == [["list", "get", "create", "update", "delete"], ["bind"]]
    assert ("ClusterRole", "", name) not in keyed(helm.render(copying(roleBindings={"clusterRoles": []})))
    assert [name for _, _, name in keyed(helm.render(off)) if name.endswith(tuple(COPIES.values()))] == []


def test_a_push_gateway_is_a_setting_of_all_jobs_and_an_allowed_connection(helm: Helm, kustomize: Kustomize) -> None:
    metrics = {"pushGateway": "http://gateway:9091", "alerts": True, "labels": {"release": "prometheus"}}
    objects = keyed(helm.render({"metrics": metrics, "networkPolicies": True, "settings": {"DIFF": "1"}}))
    policy = ("NetworkPolicy", "kube-chores", "kube-chores-push-gateway")
    built = kustomize(["."], ["network-policies", "monitoring/network-policies"])

    settings = objects["ConfigMap", "kube-chores", "kube-chores-settings"]["data"]
    assert settings == {"DIFF": "1", "PUSH_GATEWAY": "http://gateway:9091"}
    assert objects[policy] == built[policy]
    labels = objects["PrometheusRule", "kube-chores", "kube-chores-alerts"]["metadata"]["labels"]
    assert (labels["release"], labels["app.kubernetes.io/component"]) == ("prometheus", "monitoring")
    assert policy not in keyed(helm.render({"metrics": metrics}))


def test_the_health_checks_for_argo_cd_are_those_to_apply(helm: Helm) -> None:
    file = yaml.safe_load((ROOT / "cronjobs" / "argocd" / "health.yaml").read_text())
    default = helm.render()

    (added,) = (each for each in helm.render({"argocdHealth": True}) if each not in default)

    assert (added["kind"], added["metadata"]["name"]) == ("ConfigMap", "kube-chores-argocd-health")
    assert added["data"] == file["data"]


def test_values_change_the_cron_jobs(helm: Helm) -> None:
    digest = "sha256:" + "0" * 64
    toleration = {"key": "batch", "operator": "Exists", "effect": "NoSchedule"}
    job = {
        "schedule": "*/5 * * * *",
        "verifySchedule": "@daily",
        "suspend": True,
        "flags": ["--log-format=json"],
        "settings": {"DIFF": 1, "MAX_DELETES": 1000000, "CHECK": True},
        "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}},
    }
    image = {"repository": "registry.example.com/chores", "digest": digest, "pullPolicy": "Always"}
    values = {
        "image": {**image, "pullSecrets": ["123"]},
        "settings": {"LOG_FORMAT": "json"},
        "jobs": {"sync-copies": job},
        "nodeSelector": {"pool": "batch"},
        "tolerations": [toleration],
        "priorityClassName": "true",
    }
    objects = keyed(helm.render(values))
    run, verify, other = (
        objects["CronJob", "kube-chores", name] for name in ("sync-copies", "sync-copies-verify", "farm-pods")
    )
    pod = run["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert [each["spec"].get("suspend") for each in (run, verify, other)] == [True, True, None]
    assert [each["spec"]["schedule"] for each in (run, verify)] == ["*/5 * * * *", "@daily"]
    assert container["image"] == f"registry.example.com/chores@{digest}"
    assert (container["args"], container["imagePullPolicy"]) == (["sync-copies", "--log-format=json"], "Always")
    assert container["resources"] == {
        "requests": {"cpu": "1", "memory": "64Mi", "ephemeral-storage": "10Mi"},
        "limits": {"memory": "1Gi", "ephemeral-storage": "64Mi"},
    }
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "batch"}
    assert (pod["tolerations"], pod["priorityClassName"]) == ([toleration], "true")
    assert pod["imagePullSecrets"] == [{"name": "123"}]
    settings = {name: obj["data"] for (kind, _, name), obj in objects.items() if kind == "ConfigMap"}
    assert settings == {
        "kube-chores-settings": {"LOG_FORMAT": "json"},
        "sync-copies-settings": {"DIFF": "1", "MAX_DELETES": "1000000", "CHECK": "true"},
    }
    assert {each["configMapRef"]["name"] for each in container["envFrom"]} == set(settings)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("jobs.sync-copy.enabled=true", "jobs': additional properties 'sync-copy' not allowed"),
        ("jobs.sync-copies=null", "jobs': missing property 'sync-copies'"),
        ("jobs.sync-copies.schedule=null", "jobs/sync-copies': missing property 'schedule'"),
        ("jobs.sync-copies.schedule=hourly", "jobs/sync-copies/schedule': 'hourly' does not match pattern"),
        ("jobs.sync-copies.flags=--diff", "jobs/sync-copies/flags': got string, "),
        ("jobs.sync-copies.flags={--max-deletes 50}", "jobs/sync-copies/flags/0': '--max-deletes 50' does not match"),
        ("jobs.sync-copies.settings.DIF=1", "jobs/sync-copies/settings': additional properties 'DIF' not allowed"),
        ("settings.DRY_RUN=true", "settings/DRY_RUN': value must be one of 'none', 'client', 'server'"),
        ("settings.VERBOSE=2", "settings/VERBOSE': value must be one of true, false"),
        ("jobs.sync-copies.settings.MAX_DELETES=-1", "MAX_DELETES': minimum: got -1, "),
        ("jobs.farm-pods.settings.WRITES_PER_SECOND=0s", "WRITES_PER_SECOND': '0s' does not match pattern"),
        ("jobs.fetch-rates.settings.CURRENCY=EUR", "settings': additional properties 'CURRENCY' not allowed"),
        ("settings.KEY_SECRET=x/y", "settings': additional properties 'KEY_SECRET' not allowed"),
        ("jobs.sync-copies.copies.secrets=true", "sync-copies/copies': additional properties 'secrets' not allowed"),
        ("jobs.sync-copies.copies.roleBindings=true", "sync-copies/copies/roleBindings': got boolean, "),
        ("jobs.sync-copies.copies.roleBindings.clusterRoles={*}", "roleBindings/clusterRoles/0': '*' does not match"),
        ("jobs.fetch-rates.copies.limitRanges=true", "jobs/fetch-rates': additional properties 'copies' not allowed"),
        ("jobs.mirror-audit.images=-1", "jobs/mirror-audit/images': minimum: got -1, "),
        ("jobs.mirror-audit.images=true", "jobs/mirror-audit/images': got boolean, "),
        ("jobs.farm-pods.secrets=true", "jobs/farm-pods': additional properties 'secrets' not allowed"),
        ("image.digest=0123", "image/digest': '0123' does not match pattern"),
        ("image.repository=example.com/chores:1", "image/repository': 'example.com/chores:1' does not match pattern"),
        ("image.tag=1\n  privileged: true", "image/tag': '1\\n  privileged: true' does not match pattern"),
        ("priorityClassName=low\nhostNetwork: true", "priorityClassName': 'low\\nhostNetwork: true' does not match"),
        ("networkPolicies=yes", "networkPolicies': got string, "),
        ("metrics.pushGateway=gateway:9091", "metrics/pushGateway': 'gateway:9091' does not match pattern"),
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


# releases

FLAGS = {
    "roll-workloads": ("--key-secret", "kube-chores/roll-workloads-key", "--settle", "0", "--cool-down", "0"),
}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """A control plane without an installation, which ends with the test."""
    if reason := no_control_plane() or missing():
        pytest.skip(reason)
    with control_plane() as plane:
        yield real_api(plane, tmp_path)


@pytest.fixture
def rates() -> Iterator[RatesServer]:
    with serve() as server:
        yield server


@pytest.fixture
def old(api: Api, tmp_path: Path) -> None:
    """An installation by kubectl, whose default had mirror-audit and the namespaces of mirrors."""
    line = [str(programs() / "kubectl"), "--kubeconfig", str(api.kubeconfig), f"--cache-dir={api.folder}"]
    subprocess.run([*line, "apply", "-f", str(OLD)], capture_output=True, timeout=600, check=True)
    wait_until_policies_act(api)


def run_jobs(api: Api, rates: RatesServer, jobs: list[str]) -> dict[str, dict[str, int]]:
    """Run each job as its account. Return the counts of the reports."""
    found = {}
    for name in jobs:
        job, *flags = OPTIONAL.get(name, (name, *FLAGS.get(name, ())))
        done = runs(job, api.service_account_kubeconfig("kube-chores", name), rates.env())(*flags)
        assert done.exit_code == 0, done.stderr
        found[name] = done.summary
    return found


def create_objects_of_users(api: Api) -> Object:
    """Create sources with rules, a rate, and a workload that uses the copies. Return the workload."""
    home, team = api.namespace("home"), api.namespace("team")
    with_rule(api, configmap(home))
    with_rule(api, secret(home))
    api.create(exchange_rate(team))
    volumes = [
        {"name": "config", "configMap": {"name": "settings"}},
        {"name": "login", "secret": {"secretName": "login"}},
    ]
    return settle(api, api.create(workload(team, pod={"volumes": volumes})))


def observed(api: Api) -> dict[Key, tuple[Any, ...]]:
    """Return the objects of users and those that jobs created: the UID, the generation and the content of each."""
    kinds = {
        "v1": ["ConfigMap", "Secret", "Service", "PersistentVolumeClaim"],
        "apps/v1": ["Deployment", "StatefulSet", "DaemonSet", "ControllerRevision", "ReplicaSet"],
        "kubechores.dev/v1": ["CopyratorRule", "ExchangeRate", "RegistryMirror"],
    }
    found = keyed([obj for version in kinds for kind in kinds[version] for obj in api.items(version, kind)])
    return {
        key: (obj["metadata"]["uid"], obj["metadata"].get("generation"), content(obj))
        for key, obj in found.items()
        if obj.get("type") != "helm.sh/release.v1"
    }


def specs(api: Api, objects: list[Object], *, fresh: bool = False) -> dict[str, Any]:
    """Return the specs of the CronJobs as they are, or as they would be if they were created now."""
    found = {}
    for obj in objects:
        if obj["kind"] == "CronJob":
            other = obj | {"metadata": {**obj["metadata"], "name": "fresh"}}
            path = f"{api.path(other, named=False)}?dryRun=All"
            found[obj["metadata"]["name"]] = (api.call("POST", path, other) if fresh else api.read(obj))["spec"]
    return found


def states(api: Api, objects: list[Object]) -> dict[Key, Object]:
    """Return the objects that exist, without the fields that controllers write."""
    found = keyed([found for obj in objects if (found := api.get(obj))])
    for obj in found.values():  # the first apply after a controller wrote the status changes the time of managed fields
        del obj["metadata"]["managedFields"], obj["metadata"]["resourceVersion"]
        obj.pop("status", None)
    return found


def uids(objects: dict[Key, Object]) -> dict[Key, str]:
    return {key: obj["metadata"]["uid"] for key, obj in objects.items()}


@pytest.mark.usefixtures("old")
def test_an_installation_of_kubectl_becomes_a_release_that_can_be_rolled_back(
    api: Api, rates: RatesServer, tmp_path: Path
) -> None:
    deployment = create_objects_of_users(api)
    mirrors = Mirrors(api)
    mirrors.node()
    mirrors.healthy()
    run_jobs(api, rates, [*old_accounts(), "roll-workloads"])  # the first run writes the key, then the baselines
    unchanged = run_jobs(api, rates, old_accounts())
    assert {count for counts in unchanged.values() for count in counts} == {"unchanged"}
    helm = Helm(tmp_path, api.kubeconfig)
    without = {"farm-pods": {"enabled": False}}
    values: Values = {"jobs": {**without, **{name: {"enabled": True} for name in OPTIONAL}}}
    jobs = [name for name in JOBS if name != "farm-pods"]
    unchanged.pop("farm-pods")
    unchanged[CLUSTERS] = {}  # the old version had no such job, and the inventory has no cluster
    objects = helm.render(values)
    before, installed = observed(api), uids(states(api, objects))

    helm.from_docs("helm template kube-chores charts/kube-chores", values)
    helm.from_docs("helm upgrade --install")
    assert run_jobs(api, rates, jobs) == unchanged
    assert observed(api) == before
    taken = states(api, objects)
    assert uids(taken) | installed == uids(taken)
    leftovers = "kubectl get cronjobs,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings"
    left = helm.from_docs(leftovers)
    for kind in ("cronjob.batch", "serviceaccount", "clusterrole.rbac.", "clusterrolebinding.rbac."):
        assert re.search(rf"{kind}\S*/(kube-chores-)?farm-pods ", left), kind
    helm.from_docs("kubectl delete cronjobs,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings")
    assert helm.from_docs(leftovers) == ""
    assert specs(api, objects) == specs(api, objects, fresh=True)

    helm.from_docs("helm upgrade kube-chores", values)
    assert states(api, objects) == taken

    off = {name: {"enabled": False} for name in ("fetch-rates", "roll-workloads", "mirror-audit")}
    changed = {"jobs": {**without, **off, "sync-copies": {"suspend": True}}, "networkPolicies": True}
    helm.from_docs("helm upgrade kube-chores", changed)
    assert len(api.items("networking.k8s.io/v1", "NetworkPolicy")) == 2
    assert (
        api.items("batch/v1", "CronJob", "kube-chores", labelSelector="app.kubernetes.io/component=mirror-audit") == []
    )
    kept = {key: uid for key, uid in uids(taken).items() if key[0] in ("Namespace", "PriorityClass")}
    assert kept.items() <= uids(states(api, objects)).items()
    assert observed(api) == before
    helm.from_docs("helm rollback kube-chores")
    assert api.items("networking.k8s.io/v1", "NetworkPolicy") == []
    assert specs(api, objects) == specs(api, objects, fresh=True)
    assert run_jobs(api, rates, jobs) == unchanged
    assert observed(api) == before
    assert rollouts(api, deployment) == 1


def test_two_releases_do_not_touch_each_other_and_an_uninstall_leaves_what_the_docs_name(
    api: Api, rates: RatesServer, tmp_path: Path
) -> None:
    first, second = Helm(tmp_path, api.kubeconfig), Helm(tmp_path, api.kubeconfig, "team-b")
    chart = ("kube-chores", str(CHART), "--create-namespace")
    first.from_docs("helm install kube-chores charts/kube-chores", {})
    first.from_docs("kubectl label namespace kube-chores")
    wait_until_policies_act(api)
    home, team = api.namespace("home-b"), api.namespace("target-b")
    create_objects_of_users(api)
    jobs = [name for name in JOBS if name not in OPTIONAL]
    run_jobs(api, rates, [*jobs, "roll-workloads"])  # its first run writes the key
    first.from_docs("kubectl patch cronjob farm-pods")
    objects = first.render()
    before, of_users = states(api, objects), observed(api)

    second("install", *chart, values=SECOND)
    source = api.create(configmap(home, "of-team-b"))
    of_team_b = rule("of-team-b", home, team)
    api.create({**of_team_b, "metadata": {"name": "of-team-b", "namespace": "team-b"}})
    sync = runs("sync-copies", api.service_account_kubeconfig("team-b", "sync-copies"))
    assert sync("-n", "team-b").summary == {"created": 1}
    assert run_jobs(api, rates, jobs)["sync-copies"] == {"unchanged": 6}
    assert sync("-n", "team-b").summary == {"unchanged": 1}

    first("upgrade", *chart)
    assert states(api, objects) == before
    second("uninstall", "kube-chores", "--wait")
    assert states(api, second.render(SECOND)) == {}
    assert states(api, objects) == before
    assert {key: each for key, each in observed(api).items() if key in of_users} == of_users

    first.from_docs("helm uninstall kube-chores")
    policies = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}  # kube-chores-uninstall
    kept = {"CustomResourceDefinition", "Namespace", "PriorityClass", "Secret", *policies}
    wait_for(lambda: {kind for kind, _, _ in states(api, objects)} == kept, "the end of the release")
    assert {key: each for key, each in observed(api).items() if key in of_users} == of_users
    for words in (
        "kubectl delete namespaces kube-chores",
        "kubectl delete crds,priorityclasses,validatingadmissionpolicies,validatingadmissionpolicybindings",
    ):
        first.from_docs(words)
    assert states(api, objects) == {}
    assert content(api.read(at(team, source)))
