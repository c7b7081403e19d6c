"""What docs/gitops.md shows for Flux, with its kustomize-controller on a real control plane."""

import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path

import pytest
import yaml

from tests.api.conftest import Run, runs
from tests.apis import Api, Object, real_api, wait_for
from tests.control_plane import control_plane, programs
from tests.control_plane import missing as no_control_plane
from tests.flux import Flux, files_of, missing, of_docs, running
from tests.manifests import ROOT, everything, load
from tests.mirrors import Mirrors, registry_mirror
from tests.pages import command
from tests.rates import RatesServer
from tests.rates import serve as rates_served
from tests.registries import Registries
from tests.registries import serve as registries_served
from tests.rights import bind_adopt
from tests.workloads import KEY, KEY_FLAG, roll_annotations, rollouts, settle, workload
from tests.worlds import at, configmap, content, exchange_rate, rule

pytestmark = pytest.mark.cluster

REPOSITORY, INSTALL, RULES, FOR_MIRRORS = of_docs()
# The repository of a user, with the path of the second Kustomization and a kustomization that chooses parts.
OWN = {**REPOSITORY, "metadata": {**REPOSITORY["metadata"], "name": RULES["spec"]["sourceRef"]["name"]}}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """A control plane without an installation, which ends with the test."""
    if reason := no_control_plane() or missing():
        pytest.skip(reason)
    with control_plane() as plane:
        yield real_api(plane, tmp_path)


@pytest.fixture
def flux(api: Api) -> Iterator[Flux]:
    with running(api) as started:
        yield started


@pytest.fixture
def home(api: Api) -> str:
    return api.namespace("home")


@pytest.fixture
def team(api: Api) -> str:
    return api.namespace("team")


@pytest.fixture
def rates() -> Iterator[RatesServer]:
    with rates_served() as server:
        yield server


@pytest.fixture
def registries(tmp_path: Path) -> Iterator[Registries]:
    with registries_served(tmp_path) as server:
        yield server


def install(api: Api, flux: Flux, files: Mapping[str, str] | None = None, **spec: object) -> Object:
    """Install with the first Kustomization of the docs, changed by `spec`, and return it once it is Ready."""
    revision = flux.publish(REPOSITORY, {**files_of("cronjobs"), **(files or {})})
    made = api.create({**INSTALL, "spec": {**INSTALL["spec"], **spec}})
    flux.wait_until_applied(made, revision)
    return made


def install_with_mirrors(api: Api, flux: Flux) -> Object:
    """The same with mirrors, and with the patch of the docs."""
    text = yaml.safe_dump({"resources": ["../cronjobs", "../cronjobs/mirror-repair"]})
    return install(api, flux, {"own/kustomization.yaml": text}, path="./own", **FOR_MIRRORS["spec"])


def publish(api: Api, flux: Flux, *objects: Object) -> str:
    """Publish objects for the second Kustomization of the docs, wait until it applied them, and return the revision."""
    return publish_parts(api, flux, [(RULES, objects)])


def publish_parts(api: Api, flux: Flux, parts: Sequence[tuple[Object, Sequence[Object]]]) -> str:
    """The same for several Kustomizations."""
    files = {f"{each['spec']['path']}/objects.yaml": yaml.safe_dump_all(objects) for each, objects in parts}
    revision = flux.publish(OWN, files)
    for kustomization, _ in parts:
        if not api.get(kustomization):
            api.create(kustomization)
    for kustomization, _ in parts:
        flux.wait_until_checked(kustomization, revision)
    return revision


def job(api: Api, name: str, *flags: str, account: str = "", env: Mapping[str, str] | None = None) -> Run:
    run = runs(name, api.service_account_kubeconfig("kube-chores", account or name), env)
    return lambda *arguments: run(*flags, *arguments)


def kubectl(api: Api, line: str, *more: str) -> None:
    words = [*shlex.split(line, comments=True)[1:], *more, f"--cache-dir={api.folder}"]
    program = [str(programs() / "kubectl"), "--kubeconfig", str(api.kubeconfig)]
    subprocess.run([*program, *words], capture_output=True, timeout=300, check=True)


def part_of(name: str) -> Object:
    """Return another Kustomization like the second one of the docs, with a path of its own."""
    return {**RULES, "metadata": {**RULES["metadata"], "name": name}, "spec": {**RULES["spec"], "path": f"./{name}"}}


def versions(api: Api, *objects: Object) -> list[str]:
    return [api.read(obj)["metadata"]["resourceVersion"] for obj in objects]


def test_flux_upgrades_and_prunes_and_does_not_write_what_jobs_wrote(
    api: Api, flux: Flux, home: str, team: str
) -> None:
    installed = install(api, flux)
    assert len(flux.status(installed)["inventory"]["entries"]) == len(load(ROOT / "cronjobs"))
    source, web, copies = configmap(home), workload(home), rule("settings", home, team)
    first = publish(api, flux, source, web, copies)
    sync, roll = job(api, "sync-copies"), job(api, "roll-workloads", *KEY_FLAG, "--settle=0", "--cool-down=0")
    settle(api, web)
    assert [sync().summary, roll().exit_code, roll().exit_code] == [{"created": 1}, 0, 0]
    flux.wait_until_applied(RULES, first)

    api.mark()
    assert [flux.reconcile(each)["status"] for each in (installed, RULES)] == ["True", "True"]
    assert flux.writes() == [], "the key, the baseline and the statuses of jobs are no drift"

    source["data"] = {"a": "2"}
    second = publish(api, flux, source, web, copies)
    assert [sync().summary, roll().exit_code] == [{"configured": 1}, 0]
    flux.wait_until_applied(RULES, second)
    settle(api, web)
    assert (rollouts(api, api.read(web)), all(roll_annotations(api.read(web)))) == (2, True)

    written = (at(team, source), KEY, web)
    before = versions(api, *written)
    files = files_of("cronjobs")
    cronjob = "cronjobs/fetch-rates/cronjob.yaml"
    new = {cronjob: files[cronjob].replace('schedule: "11 ', 'schedule: "7 ')}
    image = {**INSTALL["spec"]["images"][0], "newTag": "9.9.9"}
    suspend = command("kubectl patch cronjob farm-pods")
    kubectl(api, suspend)
    kubectl(api, suspend.replace("farm-pods", "sync-copies"), "--field-manager=admin")
    api.mark()
    upgraded = flux.publish(REPOSITORY, {**files, **new})
    api.patch(INSTALL, {"spec": {"images": [image]}})
    flux.wait_until_applied(installed, upgraded)
    assert [flux.reconcile(each)["status"] for each in (installed, RULES)] == ["True", "True"]
    assert {each.partition(" ")[0] for each in flux.writes()} == {"PATCH"}
    found = {each["metadata"]["name"]: each["spec"] for each in api.items("batch/v1", "CronJob")}
    assert {each.rpartition("/")[2] for each in flux.writes()} == found.keys()
    assert [found[each]["suspend"] for each in ("farm-pods", "sync-copies")] == [False, True]
    assert found["fetch-rates"]["schedule"] == "7 * * * *"
    assert "9.9.9" in str(found["sync-copies"]["jobTemplate"])
    assert versions(api, *written) == before

    publish(api, flux, source, web)
    assert api.get(copies) is None
    assert sync().summary == {"deleted": 1}
    assert api.get(at(team, source)) is None


def test_flux_prunes_no_copy_with_its_labels_and_sync_copies_adopts_nothing_of_flux(
    api: Api, flux: Flux, home: str, team: str
) -> None:
    install(api, flux)
    bind_adopt(api)
    labels = [f"kustomize.toolkit.fluxcd.io/{each}" for each in ("name", "namespace")]
    other = api.namespace("other")
    source, theirs = configmap(home), configmap(team, labels={}, data={"own": "1"})
    made = rule("settings", home, [team, other], conflict="Adopt", metadata={"copyLabels": labels})
    publish(api, flux, source, theirs, made)
    sync = job(api, "sync-copies")

    ran = sync()
    assert ran.summary == {"created": 1, "conflict": 1}
    assert [each["reason"] for each in ran.results if "it is managed by Flux" in each["reason"]]
    copy = api.read(at(other, source))
    assert set(labels) < copy["metadata"]["labels"].keys()
    assert api.read(theirs)["data"] == {"own": "1"}

    publish(api, flux, source, made)
    assert api.get(theirs) is None
    assert api.read(copy) == copy
    assert sync().summary == {"created": 1, "unchanged": 1}
    api.mark()
    flux.reconcile(RULES)
    assert flux.writes() == []
    assert sync().summary == {"unchanged": 2}


def test_a_kustomization_is_ready_if_the_last_runs_of_jobs_found_no_error(
    api: Api, flux: Flux, home: str, team: str, rates: RatesServer, registries: Registries
) -> None:
    install_with_mirrors(api, flux)
    mirrors = Mirrors(api)
    mirrors.node()
    mirror = registry_mirror(mirrors.name(), registries.upstream)
    good = (rule("settings", home, team), exchange_rate(home), mirror)
    bad = deepcopy(good)
    bad[0]["spec"]["keys"] = {"include": ["typo"]}
    bad[1]["spec"]["configMapName"] = "settings"
    bad[2]["spec"]["credentialsSecret"] = "missing"
    api.create(configmap(home))
    parts = [part_of(each["kind"].lower()) for each in good]
    jobs = (
        job(api, "sync-copies"),
        job(api, "fetch-rates", env=rates.env()),
        job(api, "mirror-audit", account="mirror-repair", env=registries.env),
    )

    def publish_all(objects: Sequence[Object]) -> str:
        return publish_parts(api, flux, [(part, [obj]) for part, obj in zip(parts, objects, strict=True)])

    def run_jobs() -> None:
        for run in jobs:
            run()

    def wait_until_ready(revision: str) -> None:
        for part in parts:
            flux.wait_until_applied(part, revision)

    first = publish_all(good)
    assert {flux.ready(part)["status"] for part in parts} == {"Unknown"}, "no job ran yet"
    mirrors.deploy(mirror)
    run_jobs()
    wait_until_ready(first)

    publish_all(bad)
    run_jobs()
    for part, obj in zip(parts, bad, strict=True):
        ready = flux.reconcile(part)
        assert (ready["status"], ready["reason"]) == ("False", "HealthCheckFailed")
        assert f"{obj['kind']}/" in ready["message"]
        assert f"/{obj['metadata']['name']} status: 'Failed'" in ready["message"]
    assert flux.ready(INSTALL)["status"] == "True"

    fixed = publish_all(good)
    run_jobs()
    wait_until_ready(fixed)
    assert {flux.reconcile(part)["status"] for part in parts} == {"True"}


def test_removed_kustomizations_leave_copies_and_what_mirrors_need(api: Api, flux: Flux, home: str, team: str) -> None:
    install_with_mirrors(api, flux)
    source, mirror = configmap(home), registry_mirror()
    revision = publish(api, flux, source, rule("settings", home, team))
    assert job(api, "sync-copies")().summary == {"created": 1}
    flux.wait_until_applied(RULES, revision)
    api.create(mirror)
    for crd in load(ROOT / "cronjobs" / "crds"):  # kube-apiserver can take minutes to delete a CRD that nobody has read
        path = f"/apis/kubechores.dev/v1/{crd['spec']['names']['plural']}"
        wait_for(lambda: api.request("GET", path)[0] == 200, path)  # noqa: B023
    uninstall = [each for each in everything() if each["metadata"]["name"] == "kube-chores-uninstall"]
    objects = [each for each in everything() if "kubechores.dev" not in each["apiVersion"]]

    def left() -> set[str]:
        return {f"{each['kind']}/{each['metadata']['name']}" for each in objects if api.get(each)}

    protected = {
        "CustomResourceDefinition/registrymirrors.kubechores.dev",
        "Namespace/kube-chores-mirrors",
        "Namespace/kube-chores-nodes",
        "PriorityClass/kube-chores-mirrors",
    }
    kept = {f"{each['kind']}/kube-chores-uninstall" for each in uninstall}

    kubectl(api, command("kubectl delete kustomizations.kustomize.toolkit.fluxcd.io kube-chores-rules"))
    kubectl(api, command("kubectl delete kustomizations.kustomize.toolkit.fluxcd.io kube-chores"), "--wait=false")

    wait_for(lambda: left() == protected | kept, "all else to be deleted", detail=left)
    assert api.read(INSTALL)["metadata"]["deletionTimestamp"]
    assert (api.get(RULES), api.get(source)) == (None, None)
    assert content(api.get(at(team, source))) == content(source), "no run deleted the copy"
    api.delete(mirror)
    wait_for(lambda: left() == kept, "all to be deleted", detail=left)
    wait_for(lambda: api.get(INSTALL) is None, "the Kustomization to be deleted", detail=flux.log)
    kubectl(
        api,
        command("kubectl delete validatingadmissionpolicies,validatingadmissionpolicybindings kube-chores-uninstall"),
    )
    assert left() == set()
