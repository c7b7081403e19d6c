"""Properties of the shipped manifests, checked without a cluster."""

import re
from itertools import product
from pathlib import Path

import pytest
import yaml

import jobs
from jobs.__main__ import chores
from jobs.core.mirror_audit.desired import NODE_IMAGE, Mirror
from jobs.core.mirror_audit.registry_mirrors import RegistryMirror, parse_registry_mirror
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import Head
from tests.manifests import (
    CLUSTER_SCOPED,
    COPIES,
    MORE_RIGHTS,
    ROOT,
    Object,
    everything,
    load,
    minutes,
    rights_on_copies,
    with_component,
    without_more_copies,
)

CRONJOBS = ROOT / "cronjobs"
REPAIR = CRONJOBS / "mirror-repair"  # optional: not part of the default installation
AUDIT = CRONJOBS / "mirror-audit"  # optional as well
NETWORK_POLICIES = CRONJOBS / "components" / "network-policies"
MONITORING = CRONJOBS / "components" / "monitoring"
EVERYTHING = everything()
WITHOUT_SECRETS = load(CRONJOBS / "without-secrets")
FOR_PEOPLE = [obj for obj in EVERYTHING if any("/aggregate-to-" in label for label in obj["metadata"]["labels"])]
# Roles that an administrator binds: to restore backups, for rules that adopt, for dry runs of more kinds.
_OF_DRY_RUNS = [f"kube-chores-view-{resource}" for resource in ("secrets", *COPIES.values())]
_UNBOUND = ("kube-chores-restore", "kube-chores-adopt", *_OF_DRY_RUNS)
UNBOUND = [obj for obj in EVERYTHING if obj["metadata"]["name"] in _UNBOUND]
OF_JOBS = [obj for obj in EVERYTHING if obj not in FOR_PEOPLE + UNBOUND]
CRON = {obj["metadata"]["name"]: obj for obj in EVERYTHING if obj["kind"] == "CronJob"}
LABELS = "app.kubernetes.io/"
COMPONENT = f"{LABELS}component"
# Mirrors have two namespaces of their own. Events about cluster-scoped objects are in default.
_OF_MIRRORS = ["kube-chores", "kube-chores-mirrors", "kube-chores-nodes", "default"]
PLACES = {"mirror-audit": _OF_MIRRORS, "mirror-repair": _OF_MIRRORS}


def mirror() -> Mirror:
    asked = parse_registry_mirror(Head(ObjectKey("RegistryMirror", "try")), b'{"upstreamUrl": "quay.io"}')
    assert isinstance(asked, RegistryMirror)
    return Mirror(asked, "kube-chores-mirrors", NODE_IMAGE)


WORKLOADS = [mirror().stateful_set, mirror().daemon_set]


def rules(objects: list[Object]) -> list[Object]:
    return [rule for obj in objects if obj["kind"] in ("Role", "ClusterRole") for rule in obj["rules"]]


def pod_spec(cron_job: Object) -> Object:
    spec: Object = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return spec


def test_every_yaml_file_is_part_of_the_install_a_sample_or_for_another_tool() -> None:
    read: set[Path] = set()

    def follow(folder: Path) -> None:
        kustomization = folder / "kustomization.yaml"
        read.add(kustomization)
        content = yaml.safe_load(kustomization.read_text())
        patches = [patch["path"] for patch in content.get("patches", []) if "path" in patch]
        for entry in content.get("resources", []) + content.get("components", []) + patches:
            path = (folder / entry).resolve()
            follow(path) if path.is_dir() else read.add(path)

    follow(CRONJOBS)
    follow(REPAIR)
    follow(AUDIT)
    follow(CRONJOBS / "components" / "secrets" / "mirror-audit")
    follow(CRONJOBS / "sync-copies-clusters")
    follow(CRONJOBS / "spoke")
    follow(CRONJOBS / "components" / "without-policies")
    follow(CRONJOBS / "components" / "dry-run")
    for each in (*(f"copies/{each}" for each in COPIES), *MORE_RIGHTS):
        follow(CRONJOBS / "components" / each)
    follow(NETWORK_POLICIES)
    follow(NETWORK_POLICIES / "mirrors")
    follow(MONITORING)
    follow(MONITORING / "network-policies")
    others = {*(CRONJOBS / "samples").rglob("*.yaml"), CRONJOBS / "argocd" / "health.yaml"}
    assert set(CRONJOBS.rglob("*.yaml")) - read == others


def test_an_unknown_field_in_a_kustomization_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: []\nreplicas: []\nimages: []\n")
    with pytest.raises(ValueError, match="does not understand images, replicas"):
        load(tmp_path)


@pytest.mark.parametrize("obj", EVERYTHING, ids=lambda obj: f"{obj['kind']}-{obj['metadata']['name']}")
def test_every_object_has_the_recommended_labels(obj: Object) -> None:
    labels = obj["metadata"]["labels"]
    assert (labels[f"{LABELS}name"], labels[f"{LABELS}part-of"]) == ("kube-chores", "kube-chores")
    if obj["kind"] not in ("Namespace", "PriorityClass", "CustomResourceDefinition"):
        assert (CRONJOBS / labels[f"{LABELS}component"]).is_dir(), "the component is the job's folder"
    cluster_wide = obj["kind"].startswith(CLUSTER_SCOPED)
    place = obj["metadata"].get("namespace")
    assert place in ([None] if cluster_wide else PLACES.get(labels.get(COMPONENT, ""), ["kube-chores"]))


def test_only_the_secrets_component_gives_rights_on_secrets() -> None:
    added = [obj for obj in load(CRONJOBS) if obj not in WITHOUT_SECRETS]
    kinds = {obj["kind"] for obj in added}
    assert kinds == {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Secret"}
    assert {resource for rule in rules(added) for resource in rule["resources"]} == {"secrets"}
    assert not [rule for rule in rules([*WITHOUT_SECRETS, *load(AUDIT)]) if "secrets" in rule["resources"]]


def test_the_key_is_shipped_without_data_and_only_one_job_writes_it_by_its_name() -> None:
    (secret,) = [obj for obj in EVERYTHING if obj["kind"] == "Secret"]
    assert secret.keys() == {"apiVersion", "kind", "metadata", "type"}, "applying it with data would empty it"
    (rule,) = [rule for rule in rules(EVERYTHING) if secret["metadata"]["name"] in rule.get("resourceNames", ())]
    assert rule["verbs"] == ["get", "update"]


def test_no_right_has_a_wildcard_or_is_more_than_the_job_uses() -> None:
    for rule in rules(EVERYTHING):
        assert "*" not in rule["apiGroups"] + rule["resources"] + rule["verbs"]
    for rule in rules(OF_JOBS):
        assert set(rule["verbs"]) <= {
            "list",
            "get",
            "create",
            "update",
            "patch",
            "delete",
            "stamp",
            "roll",
            "bind",
            "push",
        }


def test_each_account_that_writes_what_others_may_own_has_the_verb_by_which_policies_limit_it() -> None:
    resources = {"secrets", "configmaps", "deployments", "statefulsets", "daemonsets", "services", *COPIES.values()}
    writers, marked = set(), set()
    for role in (obj for obj in OF_JOBS if obj["kind"] in ("Role", "ClusterRole")):
        for each in role["rules"]:
            writes = {"create", "update", "patch", "delete"} & {*each["verbs"]} and resources & {*each["resources"]}
            named = each.get("resourceNames")  # RBAC limits these writes, so that no policy has to
            writers |= {role["metadata"]["labels"][COMPONENT]} if writes and not named else set()
            marked |= {role["metadata"]["labels"][COMPONENT]} if {"stamp", "roll"} & {*each["verbs"]} else set()
    assert writers == marked == {"sync-copies", "fetch-rates", "roll-workloads", "mirror-repair", "spoke"}


def by_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}


@pytest.mark.parametrize("resource", [each for each in COPIES.values() if each != "pullsecrets"])
def test_a_component_of_copies_gives_sync_copies_one_more_resource(resource: str) -> None:
    added = by_name(rights_on_copies())
    job = added["ClusterRole", f"kube-chores-sync-copies-{resource}"]["rules"]
    bound = added["ClusterRoleBinding", f"kube-chores-sync-copies-{resource}"]
    (view,) = added["ClusterRole", f"kube-chores-view-{resource}"]["rules"]
    of_bindings = [
        {
            "apiGroups": ["rbac.authorization.k8s.io"],
            "resources": ["clusterroles"],
            "resourceNames": ["view"],
            "verbs": ["bind"],
        }
    ]

    assert job[0] == {**view, "verbs": ["list", "get", "create", "update", "delete"]}
    assert (view["resources"], view["verbs"]) == ([resource], ["get", "list"])
    assert job[1:] == (of_bindings if resource == "rolebindings" else [])
    assert bound["roleRef"]["name"] == f"kube-chores-sync-copies-{resource}"
    assert bound["subjects"] == [{"kind": "ServiceAccount", "name": "sync-copies", "namespace": "kube-chores"}]


def test_the_component_pull_secrets_lets_sync_copies_patch_service_accounts_and_no_more() -> None:
    added = by_name(rights_on_copies())
    (job,) = added["ClusterRole", "kube-chores-sync-copies-pullsecrets"]["rules"]
    (view,) = added["ClusterRole", "kube-chores-view-pullsecrets"]["rules"]
    bound = added["ClusterRoleBinding", "kube-chores-sync-copies-pullsecrets"]

    assert job == {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["list", "get", "patch"]}
    assert view == {**job, "verbs": ["get", "list"]}
    assert bound["roleRef"]["name"] == "kube-chores-sync-copies-pullsecrets"
    assert bound["subjects"] == [{"kind": "ServiceAccount", "name": "sync-copies", "namespace": "kube-chores"}]


def test_no_component_of_copies_is_part_of_the_default_installation() -> None:
    assert len(rights_on_copies()) == 3 * len(COPIES)
    assert by_name(rights_on_copies()).keys().isdisjoint(by_name(without_more_copies()))
    assert {name for _, name in by_name(rights_on_copies())} == {
        f"kube-chores-{who}-{resource}" for who in ("sync-copies", "view") for resource in COPIES.values()
    }


def test_checks_of_images_get_no_right_to_write_or_to_list_secrets() -> None:
    files = [CRONJOBS / "components" / each / "rbac.yaml" for each in ("images", "images/secrets")]
    found = [rule for each in files for rule in rules(load(each))]
    granted_rights = {(verb, resource) for rule in found for verb in rule["verbs"] for resource in rule["resources"]}
    lists, gets = {("list", "pods"), ("list", "cronjobs")}, {("get", "secrets"), ("get", "serviceaccounts")}
    assert granted_rights == lists | gets


def test_no_role_gives_a_way_to_more_rights() -> None:
    verbs = {verb for rule in rules(EVERYTHING) for verb in rule["verbs"]}
    binding = [rule for rule in rules(EVERYTHING) if "bind" in rule["verbs"]]
    roles = {"roles", "clusterroles", "clusterrolebindings", "serviceaccounts/token"}

    assert not verbs & {"escalate", "impersonate"}
    assert [(rule["verbs"], rule["resourceNames"]) for rule in binding] == [(["bind"], ["view"])]
    assert [rule for rule in rules(EVERYTHING) if roles & {*rule["resources"]} and rule not in binding] == []


@pytest.mark.parametrize("policy", ["kube-chores-copies", "kube-chores-rates", "kube-chores-adoption"])
def test_the_policies_limit_each_resource_that_sync_copies_and_fetch_rates_create(policy: str) -> None:
    roles = [obj for obj in OF_JOBS if obj["metadata"]["labels"].get(COMPONENT) in ("sync-copies", "fetch-rates")]
    created = {
        (group, resource)
        for rule in rules(roles)
        if "create" in rule["verbs"] and rule["resources"] != ["events"]
        for group, resource in product(rule["apiGroups"], rule["resources"])
    }
    matched = by_name(EVERYTHING)["ValidatingAdmissionPolicy", policy]["spec"]["matchConstraints"]["resourceRules"]
    limited = [rule for rule in matched if rule["resources"] != ["resourcequotas/status"]]

    assert all(rule["operations"] == ["CREATE", "UPDATE", "DELETE"] for rule in limited)
    assert {each for rule in limited for each in product(rule["apiGroups"], rule["resources"])} == created


def test_the_component_without_policies_omits_only_the_policies() -> None:
    whole = load(CRONJOBS)
    policies = [obj for obj in whole if obj["kind"].startswith("ValidatingAdmissionPolicy")]

    assert with_component("without-policies") == [obj for obj in whole if obj not in policies]
    assert len(policies) == 20


def test_farm_pods_has_no_right_to_delete_and_only_reads_pods() -> None:
    of_the_job = rules([obj for obj in OF_JOBS if obj["metadata"]["labels"].get(COMPONENT) == "farm-pods"])
    assert {verb for rule in of_the_job for verb in rule["verbs"]} == {"list", "get", "create", "update"}
    assert [rule["verbs"] for rule in of_the_job if "pods" in rule["resources"]] == [["list", "get"]]


def test_farm_pods_can_only_be_read_and_llamas_also_written_by_users() -> None:
    given = {
        (label.rpartition("-")[2], resource): set(rule["verbs"])
        for obj in FOR_PEOPLE
        if obj["metadata"]["name"].startswith("kube-chores-farm-")
        for label in obj["metadata"]["labels"]
        if "/aggregate-to-" in label
        for rule in obj["rules"]
        for resource in rule["resources"]
    }
    read = {"get", "list", "watch"}
    assert {place for place, verbs in given.items() if verbs == read} == {("view", "farmpods"), ("view", "llamas")}
    assert {place for place, verbs in given.items() if not verbs & read} == {("edit", "llamas")}
    assert len(given) == 3


def granted(role: str) -> set[tuple[str, str, str]]:
    """Return the rights of a ClusterRole: API group, verb and resource."""
    (found,) = (each for each in EVERYTHING if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", role))
    return {right for each in found["rules"] for right in product(each["apiGroups"], each["verbs"], each["resources"])}


def test_each_custom_resource_is_in_one_role_for_readers() -> None:
    own = "kubechores.dev"
    names = [each["spec"]["names"]["plural"] for each in EVERYTHING if each["kind"] == "CustomResourceDefinition"]
    jobs, farm = ({each for each in granted(f"kube-chores-{role}") if each[0] == own} for role in ("view", "farm-view"))

    assert jobs | farm == set(product([own], ["get", "list", "watch"], names))
    assert jobs.isdisjoint(farm)


def test_role_view_gets_no_right_on_secrets_and_nobody_gets_kube_chores_view_secrets() -> None:
    secrets = "kube-chores-view-secrets"

    assert granted(secrets) == set(product([""], ["get", "list"], ["secrets"]))
    assert [rule for rule in rules(FOR_PEOPLE) if "secrets" in rule["resources"]] == []
    assert secrets not in {each["roleRef"]["name"] for each in EVERYTHING if "roleRef" in each}
    assert secrets not in {each["metadata"]["name"] for each in FOR_PEOPLE}


def test_every_binding_binds_a_shipped_role_to_a_shipped_account() -> None:
    there = {(obj["kind"], obj["metadata"]["name"]) for obj in EVERYTHING}
    bindings = [obj for obj in EVERYTHING if obj["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    assert len(bindings) == len([obj for obj in OF_JOBS if obj["kind"] in ("Role", "ClusterRole")])
    for binding in bindings:
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in there
        for subject in binding["subjects"]:
            assert ("ServiceAccount", subject["name"]) in there
            assert subject["namespace"] == "kube-chores"


def test_only_jobs_that_read_their_pod_get_its_name() -> None:
    pods = {name: pod_spec(each)["containers"][0].get("env", []) for name, each in CRON.items()}
    field = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    assert {name for name, env in pods.items() if field in env} == {"mirror-audit", "mirror-repair"}


@pytest.mark.parametrize("name", CRON)
def test_runs_of_a_cron_job_cannot_overlap_or_hang(name: str) -> None:
    spec = CRON[name]["spec"]
    job = spec["jobTemplate"]["spec"]
    assert len(name) <= 52
    assert (spec["concurrencyPolicy"], spec["timeZone"]) == ("Forbid", "Etc/UTC")
    assert spec["startingDeadlineSeconds"] >= (60 if minutes(spec["schedule"]) else 3 * 3600), "a daily run can be late"
    assert spec["successfulJobsHistoryLimit"] + spec["failedJobsHistoryLimit"] <= 6
    period = 3600 / minutes(spec["schedule"]) if minutes(spec["schedule"]) else 86400
    assert 0 < job["activeDeadlineSeconds"] <= min(2 * period, 600), "a run that hangs costs at most one run more"
    assert job["backoffLimit"] <= 2
    assert job["ttlSecondsAfterFinished"] > 0
    assert job["podReplacementPolicy"] == "Failed"
    assert pod_spec(CRON[name])["restartPolicy"] == "Never"


@pytest.mark.parametrize("name", CRON)
def test_exit_codes_decide_about_a_retry(name: str) -> None:
    policy = CRON[name]["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    assert policy[0] == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    decided = {code: rule["action"] for rule in policy[1:] for code in rule["onExitCodes"]["values"]}
    assert decided == {1: "Count", 2: "FailJob", 4: "FailJob", 143: "Count"}
    containers = {container["name"] for container in pod_spec(CRON[name])["containers"]}
    assert {rule["onExitCodes"]["containerName"] for rule in policy[1:]} == containers


@pytest.mark.parametrize("name", CRON)
def test_the_image_is_this_version(name: str) -> None:
    (container,) = pod_spec(CRON[name])["containers"]
    assert container["image"] == f"kube-chores:{jobs.__version__}"


@pytest.mark.parametrize("name", CRON)
def test_the_command_takes_the_args_of_its_cron_job(name: str) -> None:
    (container,) = pod_spec(CRON[name])["containers"]
    group = chores.make_context("chores", [], resilient_parsing=True)
    command = chores.get_command(group, container["args"][0])
    assert command
    parsed = command.make_context(name, container["args"][1:], parent=group).params
    assert parsed.get("verify", "metadata") == ("content" if name.endswith("-verify") else "metadata")
    assert parsed["dry_run"] == "none"


def test_no_cron_job_sets_suspend_so_that_applying_again_keeps_it() -> None:
    assert [name for name, obj in CRON.items() if "suspend" in obj["spec"]] == []


def test_the_pods_of_the_cron_jobs_of_a_job_differ_only_in_args() -> None:
    for obj in CRON.values():
        same = pod_spec(CRON[obj["metadata"]["labels"][f"{LABELS}component"]])
        (container,), (of_first,) = pod_spec(obj)["containers"], same["containers"]
        assert pod_spec(obj) | {"containers": []} == same | {"containers": []}
        assert container | {"args": []} == of_first | {"args": []}


def test_one_network_policy_selects_each_pod() -> None:
    policies = [*load(NETWORK_POLICIES), *load(NETWORK_POLICIES / "mirrors")]
    assert {obj["kind"] for obj in policies} == {"NetworkPolicy"}
    pods = {
        **{name: ("kube-chores", obj["spec"]["jobTemplate"]["spec"]["template"]) for name, obj in CRON.items()},
        **{child.key.name: (child.key.namespace, child.document()["spec"]["template"]) for child in WORKLOADS},
    }
    selecting = {
        name: [obj["metadata"]["name"] for obj in policies if selects(obj, *place)] for name, place in pods.items()
    }

    of_mirrors = {"registry-mirror-try": "kube-chores-registries", "registry-mirror-try-node": "kube-chores-nodes"}
    of_jobs = {name: "kube-chores-mirror-jobs" if name.startswith("mirror-") else "kube-chores-jobs" for name in CRON}
    assert selecting == {name: [policy] for name, policy in (of_mirrors | of_jobs).items()}


def test_network_policies_deny_connections_to_jobs_and_to_pods_that_write_files_on_nodes() -> None:
    policies = [*load(NETWORK_POLICIES), *load(NETWORK_POLICIES / "mirrors")]
    specs = {obj["metadata"]["name"]: obj["spec"] for obj in policies}

    assert [name for name, spec in specs.items() if spec.get("ingress")] == []
    assert [name for name, spec in specs.items() if "Ingress" not in spec["policyTypes"]] == ["kube-chores-registries"]
    assert [name for name, spec in specs.items() if "egress" not in spec] == ["kube-chores-nodes"]
    assert {policy for spec in specs.values() for policy in spec["policyTypes"]} == {"Ingress", "Egress"}
    egress = [(name, rule) for name, spec in specs.items() for rule in spec.get("egress", [])]
    open_ports = {(name, port["port"]) for name, rule in egress for port in rule["ports"]}
    usual = {(name, port) for name in ("kube-chores-jobs", "kube-chores-mirror-jobs") for port in (53, 443, 6443)}
    mirrors = {("kube-chores-mirror-jobs", port) for port in (5000, 5001)}
    registries = {("kube-chores-registries", port) for port in (53, 443)}
    assert open_ports == usual | mirrors | registries


def test_with_monitoring_each_job_may_also_connect_to_a_push_gateway_and_nothing_else() -> None:
    (policy,) = load(MONITORING / "network-policies" / "policy")
    spec = policy["spec"]
    templates = [obj["spec"]["jobTemplate"]["spec"]["template"] for obj in CRON.values()]
    pod = {"matchLabels": {"app.kubernetes.io/name": "prometheus-pushgateway"}}

    assert all(selects(policy, "kube-chores", each) for each in templates)
    assert spec["policyTypes"] == ["Egress"]
    assert spec["egress"] == [
        {"to": [{"namespaceSelector": {}, "podSelector": pod}], "ports": [{"port": 9091, "protocol": "TCP"}]}
    ]


def selects(policy: Object, namespace: str, template: Object) -> bool:
    """Whether a NetworkPolicy selects the pods of this template in this namespace."""
    selector, labels = policy["spec"]["podSelector"], template["metadata"]["labels"]
    if policy["metadata"]["namespace"] != namespace or not selector.get("matchLabels", {}).items() <= labels.items():
        return False
    meets = {"In": lambda value, values: value in values, "NotIn": lambda value, values: value not in values}
    terms = selector.get("matchExpressions", [])
    return all(meets[term["operator"]](labels.get(term["key"]), term["values"]) for term in terms)


def test_the_docker_file_runs_as_the_user_of_the_manifests() -> None:
    users = {pod_spec(obj)["securityContext"]["runAsUser"] for obj in CRON.values()}
    assert [str(user) for user in users] == re.findall(r"^USER (\d+)", (ROOT / "Dockerfile").read_text(), re.M)
