"""mirror-audit and its repairs in the suites that cover all jobs."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from jobs.core.mirror_audit.desired import NODE_IMAGE
from tests.api.conftest import Run, run_in_a_pod, runs
from tests.apis import Api
from tests.every_job import RightsWorld, Scenario
from tests.every_job.outputs import listed, shown
from tests.fault_world import FaultWorld, Object, State, World, kinds, metadata, status_of
from tests.image_registries import HUB, ImageRegistries, account, cron_job, digest, namespace, pod, pull_login
from tests.image_registries import serve as serve_images
from tests.mirrors import NAMESPACE, Mirrors, before_the_move, credentials, registry_mirror
from tests.rates import status
from tests.registries import Registries, serve
from tests.worlds import namespace_object

JOB = "mirror-audit"
REPAIR = {"CHORES_REPAIR": "1", "CHORES_ALLOW_CACHE_LOSS": "1"}


# worlds for the tests with faults


@contextmanager
def _audited(api: Api) -> Iterator[Mapping[str, str]]:
    """Mirrors: one without findings, one drifted, one with credentials, one without resources, one deleted."""
    mirrors = Mirrors(api)
    mirrors.node()
    api.create(credentials("login", "quay.io"))
    for name, upstream, spec in (("hub", "docker.io", {}), ("quay", "quay.io", {"credentialsSecret": "login"})):
        mirrors.deploy(api.create(registry_mirror(name, upstream, **spec)))
    mirrors.edit(mirrors.of(registry_mirror("hub")).stateful_set.document(), {"spec": {"replicas": 2}})
    api.delete(mirrors.of(registry_mirror("quay", "quay.io")).headless_service.document())
    mirrors.apply(mirrors.of(registry_mirror("removed", "gcr.io")).service.document())
    api.create(registry_mirror("new", "ghcr.io"))
    yield {}


def _statuses(world: World) -> State:
    return {key: status_of(obj) for key, obj in world.stored("registrymirrors", "kubechores.dev").items()}


def _resources(world: World) -> State:
    found: State = {}
    for plural in ("services", "persistentvolumeclaims", "secrets", "nodes"):
        found |= world.stored(plural)
    for plural in ("statefulsets", "daemonsets"):
        found |= world.stored(plural, "apps")
    return found


@contextmanager
def _to_repair(api: Api) -> Iterator[Mapping[str, str]]:
    """Mirrors: drifted and incomplete, too large, deleted, and without a repair: a duplicate, and a name conflict."""
    mirrors = Mirrors(api)
    mirrors.node()
    api.create(credentials("login"))
    login = {"credentialsSecret": "login", "allowUnauthenticatedReaders": True}
    hub, _, removed = (
        mirrors.deploy(api.create(registry_mirror(name, upstream, **spec)))
        for name, upstream, spec in (("hub", "docker.io", login), ("large", "quay.io", {}), ("removed", "gcr.io", {}))
    )
    api.create(registry_mirror("hub-again"))
    other = {"name": TAKEN[2], "namespace": TAKEN[1]}
    api.create({"apiVersion": "v1", "kind": "Service", "metadata": other, "spec": {"ports": [{"port": 80}]}})
    api.create(registry_mirror("taken", "registry.example.com"))
    api.delete(registry_mirror("removed"))
    runs(JOB, api.kubeconfig, REPAIR)()
    mirrors.settle(removed)
    mirrors.edit(hub.stateful_set.document(), {"spec": {"replicas": 0}})
    mirrors.edit(hub.daemon_set.document(), {"metadata": {"labels": {"app.kubernetes.io/name": None}}})
    api.delete(hub.headless_service.document())
    mirrors.edit(registry_mirror("large"), {"spec": {"storage": {"size": "10Gi"}}})
    yield REPAIR


@contextmanager
def _with_images(api: Api) -> Iterator[Mapping[str, str]]:
    """Images: one that is fine, one that is missing, and one that a CronJob pulls with the login of its account."""
    api.create(registry_mirror("new", "ghcr.example.com"))
    for name in ("team", "other"):
        api.create(namespace_object(name))
    with tempfile.TemporaryDirectory() as folder, serve_images(Path(folder)) as images:
        private_image(api, images, "team")
        images.registry("public.example.com").push("app:1")
        for number in (1, 2):
            pod(api, "other", f"pod-{number}", f"public.example.com/app:{number}")
        images.registry(HUB).push(f"library/{NODE_IMAGE}")
        yield images.env


def private_image(api: Api, images: ImageRegistries, team: str) -> None:
    """A CronJob whose image requires the login of its ServiceAccount."""
    registry = images.registry("private.example.com")
    registry.push("app:1")
    pull_login(api, team, "private.example.com", registry.require_login())
    api.create(account(team, "robot") | {"imagePullSecrets": [{"name": "login"}]})
    cron_job(api, team, "nightly", "private.example.com/app:1", serviceAccountName="robot")


TAKEN = ("services", NAMESPACE, "registry-mirror-taken")
_RESOURCE_PLURALS = {
    "services": "",
    "persistentvolumeclaims": "",
    "statefulsets": "apps",
    "daemonsets": "apps",
}  # by group


def _repaired(world: World) -> State:
    """Return the statuses of mirrors, and their resources without fields that a recreation changes."""
    found: State = {}
    for plural, group in _RESOURCE_PLURALS.items():
        found |= {key: _without_identity(obj) for key, obj in world.stored(plural, group).items()}
    return found | world.stored("secrets") | {key: _not_ready(each) for key, each in _statuses(world).items()}


_NOT_READY = ("InProgress", "NoEndpoints", "NotRolledOut", "VolumePending")


def _not_ready(status: Object) -> Object:
    """Return a status without the difference between not ready and in progress: a run that failed may not report it."""
    found = status.get("conditions", [])
    status = {name: value for name, value in status.items() if name not in ("registryChanged", "nodesChanged")}
    return {**status, "conditions": [None if each["reason"] in _NOT_READY else each for each in found]}


def _without_identity(obj: Object) -> Object:
    spec = {name: value for name, value in obj["spec"].items() if name not in ("clusterIP", "clusterIPs")}
    return {"metadata": metadata(obj, "labels", "annotations"), "spec": spec}


def _taken(world: World) -> State:
    return {TAKEN: world.stored("services")[TAKEN]}


FAULTS = [
    FaultWorld(
        name=JOB,
        job=JOB,
        build=_audited,
        state=_statuses,
        untouched=_resources,
        independent_writes=False,  # it writes only statuses and Events
        summary={
            "unchanged": 8,
            "credentials-exposed": 1,
            "drifted": 1,
            "missing": 6,
            "not-rolled-out": 1,
            "orphan": 1,
        },
        sent=kinds(
            list=f"registrymirrors nodes endpointslices events {' '.join(_RESOURCE_PLURALS)}",
            get="secrets",
            create="events",
            patch="registrymirrors/status",
        ),
        read_by_name=frozenset({"login"}),
    ),
    FaultWorld(
        name="mirror-audit of images",
        job=JOB,
        build=_with_images,
        state=_statuses,
        untouched=_resources,
        independent_writes=False,
        summary={"image-missing": 1, "missing": 5},
        sent=kinds(
            list=f"registrymirrors nodes endpointslices pods cronjobs {' '.join(_RESOURCE_PLURALS)}",
            get="secrets serviceaccounts",
            create="events",
            patch="registrymirrors/status",
        ),
        disturbs=frozenset({"pods", "cronjobs", "secrets", "serviceaccounts"}),
        read_by_name=frozenset({"login", "robot"}),
    ),
    FaultWorld(
        name="mirror-repair",
        job=JOB,
        build=_to_repair,
        state=_repaired,
        untouched=_taken,
        summary={
            "created": 3,
            "serverside-applied": 2,
            "deleted": 7,
            "unchanged": 8,
            "conflict": 1,
            "duplicate-upstream": 1,
            "image-unknown": 1,
            "in-progress": 3,
            "missing": 3,
        },
        codes_after_401=frozenset({0, 2}),  # a later step may succeed
        reads_again=True,
        independent_writes=False,  # each step depends on the result of the one before
        sent=kinds(
            list=f"registrymirrors nodes endpointslices events {' '.join(_RESOURCE_PLURALS)}",
            get="priorityclasses secrets",
            create="events",
            patch=f"registrymirrors/status {' '.join(_RESOURCE_PLURALS)}",
            delete=" ".join(_RESOURCE_PLURALS),
        ),
        read_by_name=frozenset({"login", "kube-chores-mirrors"}),
    ),
]


# worlds that use all permissions


def _to_audit(request: pytest.FixtureRequest, _audit: Run) -> None:
    mirrors: Mirrors = request.getfixturevalue("mirrors")
    run_in_a_pod(mirrors.api, request.getfixturevalue("monkeypatch"), NODE_IMAGE)
    mirrors.api.create(credentials(mirrors.name("login")))
    mirrors.healthy(credentialsSecret=mirrors.name("login"))
    mirrors.create("missing", "gcr.io")
    mirrors.apply(mirrors.of(mirrors.create("new", "quay.io")).claim.document())  # not bound, so Events are read
    private_image(mirrors.api, request.getfixturevalue("images"), namespace(mirrors.api, "team"))


def _to_repair_with_all_rights(request: pytest.FixtureRequest, repair: Run) -> None:
    mirrors: Mirrors = request.getfixturevalue("mirrors")
    run_in_a_pod(mirrors.api, request.getfixturevalue("monkeypatch"), NODE_IMAGE)
    api = mirrors.api
    api.create(credentials(mirrors.name("login"), "quay.io"))
    storage_class = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "example.com/none"}
    api.create({**storage_class, "metadata": {"name": mirrors.name("fixed")}, "allowVolumeExpansion": False})
    removed = mirrors.healthy("removed", "gcr.io")
    api.delete(registry_mirror(removed.registry_mirror.name))
    assert repair().exit_code == 0
    mirrors.settle(removed)
    api.delete(registry_mirror(mirrors.healthy("terminating", "ghcr.io").registry_mirror.name))
    drifted = mirrors.healthy("drifted", "quay.io", credentialsSecret=mirrors.name("login"))
    for each in drifted.resources:
        mirrors.edit(each.document(), {"metadata": {"labels": {"app.kubernetes.io/name": "other"}}})
    api.delete(mirrors.healthy("partly", "docker.io").daemon_set.document())
    small = mirrors.healthy("small", "example.com", storage={"storageClassName": mirrors.name("fixed")})
    mirrors.specify(small, storage={"size": "30Gi"})
    mirrors.create("new", "registry.example.com")
    mirrors.apply(before_the_move(small))


RIGHTS = [
    RightsWorld(JOB, _to_audit, "check_images"),
    RightsWorld("mirror-repair", _to_repair_with_all_rights, "repair", ("--allow-cache-loss",)),
]


# output for users


def run(api: Api, *arguments: str, registries: Registries | None = None) -> str:
    text = shown(api, JOB, *arguments, env=registries.env if registries else None)
    return text.replace(registries.upstream, "registry.example.com") if registries else text


def two(api: Api) -> Mirrors:
    """Two healthy mirrors, on three nodes."""
    mirrors = Mirrors(api)
    for number in range(3):
        mirrors.node(f"node-{number}")
    for name, upstream in (("docker-hub", "docker.io"), ("quay", "quay.io")):
        mirrors.deploy(api.create(registry_mirror(name, upstream)))
    return mirrors


def changed(api: Api, _folder: Path) -> str:
    mirrors = two(api)
    hub, quay = (mirrors.of(registry_mirror(*each)) for each in (("docker-hub",), ("quay", "quay.io")))
    document = quay.stateful_set.document()
    document["spec"]["replicas"] = 2
    document["spec"]["template"]["spec"]["containers"][0]["image"] = "registry:2"
    mirrors.apply(document, "kubectl-client-side-apply")
    numbers = {"replicas": 2, "updatedReplicas": 1, "readyReplicas": 2}
    mirrors.status(document, **numbers)
    mirrors.edit(registry_mirror("docker-hub"), {"spec": {"storage": {"size": "50Gi"}}})
    api.delete(quay.headless_service.document())
    mirrors.slice(hub, ready=True)
    found = run(api, "--diff")
    table = listed(api, "/apis/kubechores.dev/v1/registrymirrors", "kubectl get registrymirrors")
    return "\n".join([found, table, run(api, "--check", "--min-severity", "critical")])


def unresponsive(api: Api, folder: Path) -> str:
    mirrors = Mirrors(api)
    mirrors.node()
    with serve(folder) as registries:
        mirror = mirrors.deploy(api.create(registry_mirror("internal", registries.upstream)))
        registries.answers[registries.upstream] = status(404)
        registries.answers[f"{mirror.name}.{NAMESPACE}.svc:5000"] = status(404)
        return run(api, "--probe", "network", registries=registries)


def checked_images(api: Api, folder: Path) -> str:
    two(api)
    api.create(namespace_object("shop"))
    with serve_images(folder) as images:
        registry = images.registry("registry.example.com")
        for number in (1, 2, 3):
            registry.push("web:1", number)
        registry.push("report:2")
        images.registry(HUB).push(f"library/{NODE_IMAGE}")
        for name, running in (("web-0", 2), ("web-1", 3)):
            pod(api, "shop", name, "registry.example.com/web:1", digest(running))
        cron_job(api, "shop", "nightly", "registry.example.com/report:1")
        return shown(api, JOB, "--images", "--probe", "none", env={**images.env, "CHORES_IMAGES": ""})


SCENARIOS: dict[str, Scenario] = {
    "Mirrors with drift": changed,
    "A mirror and its upstream do not respond": unresponsive,
    "Images that registries do not have": checked_images,
}
