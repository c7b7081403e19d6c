"""Installations of chosen jobs, in other namespaces, side by side, and from an older version, on a real API server."""

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.core.sync_copies.clusters import NO_CLUSTER
from jobs.kit.values.registry import ACCOUNTS, CLUSTERS, DEFAULT_JOBS, REPAIR
from tests.api.conftest import Ran, Run, runs
from tests.apis import Api, Object, real_api, wait_for
from tests.control_plane import ControlPlane, control_plane, missing, programs
from tests.farm import farmed, pod
from tests.manifests import (
    COMPONENTS,
    COPIES,
    FOLDERS,
    MORE_RIGHTS,
    OLD,
    OPTIONAL,
    ROOT,
    dangling,
    everything,
    load,
    old_accounts,
    without_more_copies,
)
from tests.mirrors import Mirrors
from tests.pages import command, kustomizations
from tests.policies import wait_until_policies_act
from tests.rates import RatesServer, serve
from tests.workloads import KINDS, settle, workload
from tests.worlds import at, configmap, exchange_rate, rule, secret

pytestmark = pytest.mark.cluster
OF_THE_CLUSTER = ["namespace", "crds", "policies"]
EVERYTHING: Object = {
    "resources": [f"cronjobs/{each}" for each in FOLDERS],
    "components": [
        *(f"cronjobs/{each}" for each in COMPONENTS),
        *(f"cronjobs/components/{each}" for each in (*(f"copies/{kind}" for kind in COPIES), *MORE_RIGHTS)),
    ],
}
PART_OF = "app.kubernetes.io/part-of=kube-chores"
RIGHTS = "serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings"
POLICIES = "validatingadmissionpolicies,validatingadmissionpolicybindings"
ALL = f"{RIGHTS},cronjobs,secrets,namespaces,customresourcedefinitions,{POLICIES}"
Kubectl = Callable[..., str]


@pytest.fixture(scope="module")
def empty_plane() -> Iterator[ControlPlane]:
    """A control plane without the shipped manifests."""
    if reason := missing():
        pytest.skip(reason)
    with control_plane() as started:
        yield started


@pytest.fixture
def kubectl(empty_plane: ControlPlane, tmp_path: Path) -> Kubectl:
    """Run kubectl, next to a copy of cronjobs/."""
    shutil.copytree(ROOT / "cronjobs", tmp_path / "cronjobs")
    words = [str(programs() / "kubectl"), "--kubeconfig", str(empty_plane.kubeconfig), f"--cache-dir={tmp_path}/cache"]

    def run(*arguments: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            [*words, *arguments], cwd=tmp_path, input=stdin, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def api(empty_plane: ControlPlane, tmp_path: Path, kubectl: Kubectl) -> Iterator[Api]:
    """That control plane. After the test, no job is left; what exists once per cluster stays for the next test."""
    api = real_api(empty_plane, tmp_path)
    yield api
    api.clean()
    kubectl("delete", f"{RIGHTS},cronjobs,jobs,secrets", "-A", "-l", PART_OF, "--wait=false")


@pytest.fixture
def rates() -> Iterator[RatesServer]:
    with serve() as server:
        yield server


@pytest.fixture
def run(api: Api, rates: RatesServer) -> Callable[..., Ran]:
    """Run a job as an account of an installation."""

    def as_account(account: str, *arguments: str, namespace: str = "kube-chores") -> Ran:
        job, *flags = OPTIONAL.get(account, (account,))
        if account == "roll-workloads":
            flags = ["--key-secret", f"{namespace}/roll-workloads-key", "--settle", "0", "--cool-down", "0"]
        kubeconfig = api.service_account_kubeconfig(namespace, account)
        found: Run = runs(job, kubeconfig, rates.env())
        return found(*flags, *arguments)

    return as_account


def write(folder: Path, kustomization: Object | str) -> None:
    folder.mkdir(exist_ok=True)
    text = kustomization if isinstance(kustomization, str) else yaml.safe_dump(kustomization)
    (folder / "kustomization.yaml").write_text(text)


def rendered(kubectl: Kubectl, folder: str) -> list[Object]:
    return [each for each in yaml.safe_load_all(kubectl("kustomize", folder)) if each]


def installed(kubectl: Kubectl, kinds: str = f"{RIGHTS},cronjobs,secrets") -> list[Object]:
    """Return the installed objects of these kinds, in all namespaces."""
    found: list[Object] = json.loads(kubectl("get", kinds, "-A", "-l", PART_OF, "-o", "json"))["items"]
    return found


def names(objects: Sequence[Object]) -> set[tuple[str, str, str]]:
    return {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in objects}


def stored(api: Api, objects: Sequence[Object]) -> list[Object]:
    """Return the objects without what controllers write: status, and what changes with it.

    kube-apiserver gives the entry of an apply a new time if it is the first one after a status was written.
    """
    found = [api.read(each) for each in objects]
    for each in found:
        has_status = each.pop("status", None) is not None
        fields = [entry for entry in each["metadata"]["managedFields"] if "subresource" not in entry]
        each["metadata"]["managedFields"] = fields
        if has_status:
            del each["metadata"]["resourceVersion"]
            for entry in fields:
                entry.pop("time", None)
    return found


def rules_of(objects: Sequence[Object], account: str) -> list[Any]:
    """Return the rules that bindings grant to an account, with their place."""
    roles = {
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]): each["rules"]
        for each in objects
        if each["kind"] in ("Role", "ClusterRole")
    }
    return [
        (
            each["metadata"].get("namespace"),
            roles[each["roleRef"]["kind"], each["metadata"].get("namespace"), each["roleRef"]["name"]],
        )
        for each in sorted(objects, key=lambda each: (each["kind"], each["metadata"]["name"]))
        if "roleRef" in each and each["subjects"][0]["name"] == account
    ]


@pytest.mark.parametrize("job", ACCOUNTS)
def test_a_job_can_be_installed_alone(
    api: Api, kubectl: Kubectl, run: Callable[..., Ran], tmp_path: Path, job: str
) -> None:
    secrets = [f"cronjobs/components/secrets/{job}"] if job in ("sync-copies", "mirror-audit", "roll-workloads") else []
    write(tmp_path, {"resources": [f"cronjobs/{each}" for each in (*OF_THE_CLUSTER, job)], "components": secrets})
    built = rendered(kubectl, ".")
    kubectl("apply", "-k", ".")

    there = installed(kubectl)
    assert names(there) < names(built)
    assert {name for kind, _, name in names(there) if kind == "ServiceAccount"} == {job}
    assert dangling(there) == []
    assert rules_of(built, job) == rules_of(without_more_copies(), job)  # tests/api/test_rights.py: each is used
    assert run(job).exit_code == 0


@pytest.mark.parametrize("folder", [CLUSTERS, f"{CLUSTERS}/job"])
def test_an_empty_inventory_is_a_note_with_and_without_rights_on_secrets(
    api: Api, kubectl: Kubectl, run: Callable[..., Ran], tmp_path: Path, folder: str
) -> None:
    write(tmp_path, {"resources": [f"cronjobs/{each}" for each in (*OF_THE_CLUSTER, folder)]})
    kubectl("apply", "-k", ".")

    ran = run(CLUSTERS)

    assert dangling(installed(kubectl)) == []
    assert (ran.exit_code, ran.summary, ran.report["note"]) == (0, {}, NO_CLUSTER)
    assert api.writes() == []


def test_all_jobs_run_without_secrets_and_then_with_them_and_an_uninstall_leaves_copies(
    api: Api, kubectl: Kubectl, run: Callable[..., Ran]
) -> None:
    kubectl("apply", "-k", "cronjobs/without-secrets")
    without = installed(kubectl)
    assert dangling(without) == []
    assert [rule for each in without for rule in each.get("rules", ()) if "secrets" in rule["resources"]] == []
    assert [run(job).exit_code for job in DEFAULT_JOBS] == [0] * len(DEFAULT_JOBS)
    kubectl("apply", "-k", "cronjobs/mirror-audit")
    assert run("mirror-audit").exit_code == 0
    assert [
        rule for each in installed(kubectl) for rule in each.get("rules", ()) if "secrets" in rule["resources"]
    ] == []

    kubectl("apply", "-k", "cronjobs")
    for each in OPTIONAL:
        kubectl("apply", "-k", f"cronjobs/{each}")
    assert names(installed(kubectl)) <= names(everything())
    assert dangling(installed(kubectl)) == []
    home, team = api.namespace("home"), api.namespace("team")
    source = api.create(secret(home))
    api.create(rule("logins", home, team, ruleType="secret"))
    assert [run(job).exit_code for job in ACCOUNTS] == [0] * len(ACCOUNTS)
    copy = api.read(at(team, source))

    kubectl("delete", "-k", f"cronjobs/{CLUSTERS}")
    for folder in ("cronjobs/mirror-repair", "cronjobs/mirror-audit", "cronjobs"):
        kubectl(*shlex.split(command(f"kubectl delete -k {folder}"))[1:])

    assert names(installed(kubectl, ALL)) & names(everything()) == set()
    assert api.read(copy) == copy


@pytest.mark.parametrize(
    ("how", "result"),
    [((), "unchanged"), (("--server-side", "--force-conflicts"), "serverside-applied")],
    ids=["client", "server"],
)
def test_a_second_apply_changes_no_object(
    api: Api, kubectl: Kubectl, tmp_path: Path, how: tuple[str, ...], result: str
) -> None:
    write(tmp_path, EVERYTHING)
    kubectl("apply", *how, "-k", ".")
    before = stored(api, everything())

    again = kubectl("apply", *how, "-k", ".").splitlines()

    assert [line for line in again if not line.endswith(f" {result}")] == []
    assert stored(api, everything()) == before


@pytest.mark.parametrize(("number", "accounts"), [(5, DEFAULT_JOBS), (7, ACCOUNTS)], ids=["default", "all"])
def test_jobs_run_in_another_namespace(
    api: Api, kubectl: Kubectl, run: Callable[..., Ran], tmp_path: Path, number: int, accounts: tuple[str, ...]
) -> None:
    of_docs = kustomizations("docs/install.md")
    for folder, text in (of_docs[6], of_docs[number]):
        write(tmp_path / folder, text)
    kubectl("apply", "-k", ".")

    there = installed(kubectl)
    assert names(there) < names(rendered(kubectl, "."))
    assert {each["metadata"]["namespace"] for each in there if each["kind"] == "CronJob"} == {"my-chores"}
    assert dangling(there) == []
    for account in accounts:
        of_default = [
            ("my-chores" if place == "kube-chores" else place, rules)
            for place, rules in rules_of(without_more_copies(), account)
        ]
        assert rules_of(there, account) == of_default
        assert run(account, namespace="my-chores").exit_code == 0

    again = kubectl("apply", "-k", ".").splitlines()
    assert [line for line in again if not line.endswith(" unchanged")] == []


@pytest.fixture
def side_by_side(api: Api, kubectl: Kubectl, tmp_path: Path) -> None:
    """The default installation, and the second one of docs/install.md."""
    *_, (folder, second) = kustomizations("docs/install.md")
    write(tmp_path / folder, second)
    kubectl("apply", "-k", "cronjobs")
    kubectl("apply", "-k", folder)


@pytest.mark.usefixtures("side_by_side")
def test_two_installations_do_not_touch_each_others_copies(api: Api, kubectl: Kubectl, run: Callable[..., Ran]) -> None:
    home, team = api.namespace("home"), api.namespace("team")
    first, second = configmap(home, "first"), configmap(home, "second", labels={"of": "team-b"})
    of_first, of_second = rule("first", home, team), rule("second", home, team)
    of_second["metadata"]["namespace"] = "team-b"
    of_second["spec"]["selector"] = {"matchLabels": {"of": "team-b"}}
    for obj in (first, second, of_first, of_second):
        api.create(obj)
    installations = ("kube-chores", "team-b")

    assert dangling(installed(kubectl)) == []
    assert [run("sync-copies", namespace=each).summary for each in installations] == [{"created": 1}] * 2
    copies = [api.read(at(team, source)) for source in (first, second)]
    assert [run("sync-copies", namespace=each).summary for each in installations] == [{"unchanged": 1}] * 2
    assert [api.read(each) for each in copies] == copies

    api.patch(second, {"metadata": {"labels": {"of": None, **first["metadata"]["labels"]}}})
    assert run("sync-copies").summary == {"unchanged": 1, "conflict": 1}
    api.patch(second, {"metadata": {"labels": second["metadata"]["labels"]}})
    api.delete(of_first)
    assert run("sync-copies", namespace="team-b").summary == {"unchanged": 1}
    assert run("sync-copies").summary == {"deleted": 1}
    assert api.get(copies[0]) is None
    assert api.read(copies[1]) == copies[1]

    kubectl("delete", "-k", "team-b", "--wait=false")
    there = installed(kubectl)
    assert {each["metadata"].get("namespace") for each in there} & {"team-b"} == set()
    assert dangling(there) == []
    assert names(there) <= names(everything())
    assert run("sync-copies").exit_code == 0


def test_the_annotations_of_rolls_can_be_removed_by_hand(api: Api, kubectl: Kubectl) -> None:
    namespace = api.namespace("rolled")
    annotations = {"kubechores.dev/config-baseline": "{}", "kubechores.dev/roll-on-config-change": "true"}
    workloads = [workload(namespace, kind=kind) for kind in KINDS]
    for each in workloads:
        each["metadata"]["annotations"] = annotations
        api.create(each)

    def annotated() -> set[str]:
        return {
            kind
            for kind in (*KINDS, "ReplicaSet", "ControllerRevision")
            for each in api.items("apps/v1", kind, namespace)
            if annotations.keys() & each["metadata"].get("annotations", {}).keys()
        }

    wait_for(lambda: len(annotated()) == 5, "the controllers to copy the annotations")
    words = "kubectl annotate deployments,statefulsets,daemonsets,replicasets,controllerrevisions -A"
    kubectl(*shlex.split(command(words))[1:])
    assert annotated() == set()
    for each in workloads:
        api.patch(each, {"spec": {"minReadySeconds": 1}})
        settle(api, each)
    assert annotated() == set()


# an upgrade from the old manifests


MANAGED = "configmaps,secrets,farmpods,deployments,statefulsets,daemonsets,services,persistentvolumeclaims"


def managed(kubectl: Kubectl) -> dict[tuple[str, str, str], Object]:
    """Return what the jobs wrote, and the workloads that they may roll: all but statuses."""
    found = json.loads(kubectl("get", MANAGED, "-A", "-o", "json"))["items"]
    return {
        (each["kind"], each["metadata"]["namespace"], each["metadata"]["name"]): {
            key: value for key, value in each["metadata"].items() if key in ("uid", "generation", "annotations")
        }
        | {key: each.get(key) for key in ("spec", "data")}
        for each in found
        if each["metadata"]["name"] not in ("kube-root-ca.crt", "kubernetes")
    }


@pytest.fixture
def old(api: Api, kubectl: Kubectl) -> list[Object]:
    """The old installation."""
    objects = [each for each in yaml.safe_load_all(OLD.read_text()) if each]
    kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return objects


@pytest.fixture
def mirrors(api: Api, old: list[Object]) -> Iterator[Mirrors]:
    mirrors = Mirrors(api)
    mirrors.node()
    yield mirrors
    mirrors.clean()


@pytest.fixture
def world(api: Api, mirrors: Mirrors, run: Callable[..., Ran]) -> tuple[str, str]:
    """Everything that jobs of the old installation write; returns the namespace of sources, and one with copies."""
    home, team, shop = api.namespace("home"), api.namespace("team"), farmed(api)
    for obj in (
        configmap(home),
        secret(home),
        rule("settings", home, [team, shop]),
        rule("logins", home, [team, shop], ruleType="secret"),
        exchange_rate(shop),
        workload(shop, pod=USES),
        pod(shop, "web"),
    ):
        api.create(obj)
    mirrors.healthy()
    for account in old_accounts():
        assert run(account).exit_code == 0, account
    settle(api, workload(shop))
    assert run("roll-workloads").exit_code == 0  # the first run writes its key, the second one the baselines
    return home, shop


USES = {
    "volumes": [
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "login", "secret": {"secretName": "login"}},
    ]
}


def summaries(run: Callable[..., Ran]) -> dict[str, dict[str, int]]:
    """Run each job, which changes nothing; return what it found."""
    found = {account: run(account).summary for account in old_accounts()}
    assert {outcome for summary in found.values() for outcome in summary} == {"unchanged"}, found
    return found


def uids(kubectl: Kubectl, *selector: str) -> dict[tuple[str, str, str], str]:
    """Return the uid of each object of an installation, of users, and of what jobs write."""
    kinds = f"{ALL},priorityclasses,copyratorrules,exchangerates,registrymirrors,farmpods,{MANAGED}"
    found = json.loads(kubectl("get", kinds, "-A", *selector, "-o", "json"))["items"]
    return {next(iter(names([each]))): each["metadata"]["uid"] for each in found}


REPAIRS = {"resources": ["cronjobs", "cronjobs/mirror-repair"]}
AUDITS = {
    "resources": ["cronjobs", "cronjobs/mirror-audit"],
    "components": ["cronjobs/components/secrets/mirror-audit"],
}


@pytest.mark.parametrize(
    ("listed", "pruned"),
    [
        (EVERYTHING, set[str]()),
        (REPAIRS, {"mirror-audit"}),
        (AUDITS, {"mirror-repair"}),
        ({"resources": ["cronjobs"]}, {"mirror-audit", "mirror-repair", "mirrors", "mirror-nodes"}),
    ],
    ids=["repairs and audits", "repairs", "audits", "no mirrors"],
)
def test_the_kustomizations_of_an_upgrade_have_all_other_objects_of_the_old_one(
    kubectl: Kubectl, tmp_path: Path, listed: Object, pruned: set[str]
) -> None:
    write(tmp_path, listed)
    built = names(rendered(kubectl, "."))

    lost = [each for each in yaml.safe_load_all(OLD.read_text()) if not names([each]) <= built]

    assert {each["metadata"]["labels"]["app.kubernetes.io/component"] for each in lost} == pruned


def test_an_upgrade_deletes_nothing_and_the_jobs_find_everything_unchanged(
    api: Api, kubectl: Kubectl, run: Callable[..., Ran], world: tuple[str, str], tmp_path: Path
) -> None:
    home, shop = world
    found, before, there = summaries(run), managed(kubectl), uids(kubectl)
    assert {"RegistryMirror", "PersistentVolumeClaim", "StatefulSet", "CopyratorRule"} <= {kind for kind, *_ in there}

    for listed in ({"resources": ["cronjobs"]}, AUDITS, REPAIRS, EVERYTHING):
        write(tmp_path, listed)
        kubectl("apply", "-k", ".")
        assert there.items() <= uids(kubectl).items()
        assert summaries(run) == found
        assert managed(kubectl) == before
    assert dangling(installed(kubectl)) == []
    wait_until_policies_act(api)
    with pytest.raises(AssertionError, match="exists, so nodes may pull through it"):
        kubectl(*shlex.split(command("kubectl delete -k cronjobs/mirror-namespaces"))[1:])
    assert there.items() <= uids(kubectl).items()

    api.patch(configmap(home), {"data": {"a": "changed"}})
    assert run("sync-copies").summary == {"configured": 2, "unchanged": 2}
    assert run("roll-workloads").summary == {"restarted": 1}
    api.delete(rule("logins", home, shop))
    assert run("sync-copies").summary == {"deleted": 2, "unchanged": 2}


def test_without_mirrors_what_remains_after_an_upgrade_can_be_deleted(
    api: Api, kubectl: Kubectl, run: Callable[..., Ran]
) -> None:
    objects = [each for each in load(OLD) if each["metadata"]["labels"].get("app.kubernetes.io/component") != REPAIR]
    kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    home, team = api.namespace("home"), api.namespace("team")
    for obj in (configmap(home), rule("settings", home, team)):
        api.create(obj)
    assert run("sync-copies").summary == {"created": 1}
    there = uids(kubectl, "-l", PART_OF)

    kubectl("apply", "-k", "cronjobs")
    assert there.items() <= uids(kubectl).items()

    kubectl(*shlex.split(command("kubectl delete -A -l app.kubernetes.io/component=mirror-audit"))[1:])
    kubectl(*shlex.split(command("kubectl delete -k cronjobs/mirror-namespaces"))[1:])

    assert there.keys() - uids(kubectl).keys() == names(objects) - names(load(ROOT / "cronjobs"))
    assert dangling(installed(kubectl)) == []
    assert run("sync-copies").summary == {"unchanged": 1}
    assert [run(job).exit_code for job in DEFAULT_JOBS] == [0] * len(DEFAULT_JOBS)
