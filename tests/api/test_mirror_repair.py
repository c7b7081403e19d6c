"""mirror-audit --repair as users run it, on the embedded and the real API server."""

import time
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import takewhile
from typing import Any

import pytest

from jobs.core.mirror_audit.desired import NODE_IMAGE, REGISTRY_IMAGE, Mirror
from jobs.core.mirror_node.hosts import CERTS
from jobs.kit.api.cluster import Cluster
from jobs.kit.run import runner
from tests.api.conftest import OWN_IMAGE, Ran, Run, connect_with
from tests.api.test_mirror_audit import BREAKS, changes, codes, condition, deleted, workload
from tests.apis import Api, Object, wait_for
from tests.conftest import Chores
from tests.mirrors import (
    KINDS,
    NAMESPACE,
    NODES,
    Mirrors,
    allow_any_name,
    before_the_move,
    credentials,
    places,
    registry_mirror,
)
from tests.rates import status
from tests.registries import Registries
from tests.rights import RBAC, can_i
from tests.worlds import configmap

WITH_FINALIZER = {"finalizers": ["example.com/keep"]}
EXPOSED = "a repair continues when spec.allowUnauthenticatedReaders is true: every client then pulls private images"


def created(api: Api, mirror: Mirror) -> list[Object]:
    """Return the existing resources of a mirror, each with its kind."""
    selector = f"kubechores.dev/mirror={mirror.registry_mirror.name}"
    return [
        {"kind": kind, **each}
        for kind, version, namespace in places()
        for each in api.items(version, kind, namespace, labelSelector=selector)
    ]


def current(mirrors: Mirrors, mirror: Mirror) -> Mirror:
    """Return the mirror that the RegistryMirror defines now."""
    return mirrors.of(mirrors.api.read(registry_mirror(mirror.registry_mirror.name)))


def test_three_fields_create_a_mirror_and_later_runs_write_nothing(api: Api, repair: Run, mirrors: Mirrors) -> None:
    api.create(credentials(mirrors.name("login")))
    document = mirrors.create(credentialsSecret=mirrors.name("login"), allowUnauthenticatedReaders=True)
    mirror = mirrors.of(document)
    mirrors.volume(mirror)

    first = repair()
    assert (first.exit_code, first.summary["created"]) == (0, 4), first
    (waiting,) = [each for each in first.results if each["object"]["kind"] == "DaemonSet"]
    assert (waiting["code"], waiting["remedy"]) == (
        "in-progress",
        f"a repair creates it when statefulset/{mirror.name} in namespace {NAMESPACE} is ready to serve nodes",
    )
    mirrors.settle(mirror)
    assert repair().summary["created"] == 1
    mirrors.settle(mirror)
    repair()
    api.mark()
    last = repair()

    assert (last.exit_code, last.summary, api.writes()) == (0, {"unchanged": 5}, [])
    container, _ = api.read(mirror.stateful_set.document())["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "docker.io/library/registry:3"  # of one registry, whatever a node searches
    there = created(api, mirror)
    assert sorted(each["kind"] for each in there) == sorted([*KINDS, "Service"])
    for each in there:
        assert each["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "kube-chores"
        assert each["metadata"]["annotations"]["kubechores.dev/rule"] == mirror.registry_mirror.name


def reasons(ran: Ran) -> set[tuple[str, str]]:
    """Return the action and the reason of each write of a run."""
    written = [each for each in ran.results if each["outcome"] in ("done", "planned")]
    return {(each["action"], each["reason"]) for each in written}


def test_a_write_is_reported_by_its_result_and_not_by_its_reason(api: Api, repair: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.of(mirrors.create())
    mirrors.volume(mirror)

    assert reasons(repair("--dry-run")) == {("created", f"for registrymirror/{mirror.registry_mirror.name}")}
    text = repair(output="text").stdout

    assert f"  created  service/{mirror.name}\n    for registrymirror/{mirror.registry_mirror.name}\n" in text
    assert text.count("  created  ") == 4
    assert "    to do: a repair creates it when" in text
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("does not exist") == 1, "only of the DaemonSet"


def test_corrected_fields_are_named_with_the_manager_that_changed_them(api: Api, repair: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.healthy()
    mirrors.edit(mirror.stateful_set.document(), {"spec": {"replicas": 2}})
    mirrors.edit(mirror.service.document(), {"metadata": {"labels": {"app.kubernetes.io/name": None}}})

    assert reasons(repair()) == {
        ("serverside-applied", "spec.replicas corrected; was changed by kubectl-edit"),
        ("serverside-applied", "metadata.labels[app.kubernetes.io/name] corrected"),
    }


def test_nodes_get_a_new_address_in_the_same_run(api: Api, repair: Run, mirrors: Mirrors, mirror: Mirror) -> None:
    deleted("service")(mirrors, mirror)

    ran = repair()

    assert ran.summary["created"] == ran.summary["serverside-applied"] == 1
    address = api.read(mirror.service.document())["spec"]["clusterIP"]
    (container,) = api.read(mirror.daemon_set.document())["spec"]["template"]["spec"]["containers"]
    assert f"--mirror=http://{address}:5000" in container["args"]
    assert address != mirror.cluster_ip


def test_another_upstream_rolls_the_registry_and_keeps_the_cache(api: Api, repair: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.healthy()
    claim = api.read(mirror.claim.document())["metadata"]["uid"]
    mirrors.specify(mirror, upstreamUrl="quay.io")

    first = repair()

    # Nodes remove the files of docker.io. They pull images of quay.io when the registry has quay.io as its upstream.
    assert (first.exit_code, first.summary["configured"]) == (0, 1)
    forget = ["mirror-node", f"--name={mirror.registry_mirror.name}", "--host=docker.io", "--remove"]
    (node,) = api.read(mirror.daemon_set.document())["spec"]["template"]["spec"]["containers"]
    assert (node["args"], node["volumeMounts"]) == (forget, [{"name": "certs", "mountPath": CERTS}])
    assert remedy_of(repair(), "drifted") == "a repair corrects it when all nodes have removed the files of docker.io"
    mirrors.settle(mirrors.of(api.read(registry_mirror(mirror.registry_mirror.name))))
    second = repair()
    assert (second.summary["deleted"], second.summary["created"]) == (1, 1)
    container, _ = api.read(mirror.stateful_set.document())["spec"]["template"]["spec"]["containers"]
    assert {"name": "REGISTRY_PROXY_REMOTEURL", "value": "https://quay.io"} in container["env"]
    root = "REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY"
    assert {"name": root, "value": "/var/lib/registry/quay.io"} in container["env"]
    (node,) = api.read(mirror.daemon_set.document())["spec"]["template"]["spec"]["containers"]
    assert {"--host=quay.io", "--upstream=https://quay.io"} <= {*node["args"]}
    assert node["volumeMounts"][0] == {"name": "certs", "mountPath": f"{CERTS}/quay.io", "subPath": "quay.io"}
    assert api.read(mirror.claim.document())["metadata"]["uid"] == claim


def test_nodes_do_not_use_a_registry_that_still_serves_another_upstream(
    api: Api, repairing: Run, mirrors: Mirrors, registries: Registries
) -> None:
    mirror = mirrors.healthy(upstream=registries.upstream, registryHost="old.example.com")
    mirrors.specify(mirror, ttl="1h", registryHost="new.example.com")
    registries.answers[registries.upstream] = status(404)
    repairing()
    mirrors.settle(current(mirrors, mirror))

    ran = repairing()

    assert ran.summary["deleted"] == 1
    assert api.get(mirror.daemon_set.document()) is None
    del registries.answers[registries.upstream]
    repairing()
    mirrors.settle(current(mirrors, mirror))
    assert repairing().summary["created"] == 1
    (node,) = api.read(mirror.daemon_set.document())["spec"]["template"]["spec"]["containers"]
    assert "--host=new.example.com" in node["args"]


@pytest.mark.parametrize("lacks", ["", "nodes"])
def test_new_credentials_roll_the_registry_once_also_while_other_reads_fail(
    api: Api, repair: Run, mirrors: Mirrors, lacks: str
) -> None:
    login = mirrors.name("login")
    api.create(credentials(login))
    mirror = mirrors.healthy(credentialsSecret=login, allowUnauthenticatedReaders=True)
    api.patch(credentials(login), {"data": credentials(login)["data"]})
    before = api.read(mirror.stateful_set.document())["metadata"]["generation"]
    if lacks:
        role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole"}
        found = api.read({**role, "metadata": {"name": "kube-chores-mirror-repair"}})
        rules = [each for each in found["rules"] if each["resources"] != [lacks]]
        assert len(rules) < len(found["rules"])
        api.patch({**role, **found}, {"rules": rules})

    assert [repair().exit_code for _ in range(2)] == ([2, 2] if lacks else [0, 0])

    assert api.read(mirror.stateful_set.document())["metadata"]["generation"] == before + 1


def test_a_mirror_that_would_expose_its_credentials_is_not_created(api: Api, repair: Run, mirrors: Mirrors) -> None:
    login = mirrors.name("login")
    api.create(credentials(login))
    mirror = mirrors.of(mirrors.create(credentialsSecret=login))
    mirrors.volume(mirror)

    ran = repair()

    assert (ran.exit_code, api.get(mirror.stateful_set.document())) == (0, None)
    assert codes(ran).count("credentials-exposed") == 1
    (missing,) = [each for each in ran.results if each["object"]["kind"] == "StatefulSet"]
    assert missing["remedy"] == EXPOSED
    mirrors.specify(mirror, allowUnauthenticatedReaders=True)
    assert "credentials-exposed" not in codes(repair())
    assert api.get(mirror.stateful_set.document())


@pytest.mark.parametrize("exposed", [True, False])
def test_a_running_mirror_does_not_get_credentials_without_permission(
    api: Api, repair: Run, mirrors: Mirrors, exposed: bool
) -> None:
    login = mirrors.name("login")
    api.create(credentials(login))
    image = "registry.example.com/mine:3"
    mirror = mirrors.healthy(image=image)
    readers = {} if exposed else {"allowUnauthenticatedReaders": True}
    spec = {"credentialsSecret": login, "image": None if exposed else image, "storage": {"size": "10Gi"}, **readers}
    mirrors.specify(mirror, **spec)
    api.mark()

    ran = repair("--allow-cache-loss")

    drifted = [each["remedy"] for each in ran.results if each["code"] == "drifted"]
    remedy = EXPOSED if exposed else f"a repair continues when secret/{login} in namespace {NAMESPACE} is usable"
    assert (ran.exit_code, drifted, changes(api)) == (0, [remedy], [])


def test_a_registry_is_not_rolled_while_its_upstream_is_down(
    api: Api, repairing: Run, mirrors: Mirrors, registries: Registries
) -> None:
    mirror = mirrors.healthy(upstream=registries.upstream)
    mirrors.specify(mirror, ttl="24h")
    registries.answers[registries.upstream] = status(404)
    api.mark()

    blocked = repairing()
    assert changes(api) == []
    (drifted,) = [each for each in blocked.results if each["code"] == "drifted"]
    assert drifted["remedy"].startswith("a repair continues when the upstream responds")
    mirrors.specify(mirror, storage={"size": "10Gi"})
    shrink = repairing("--allow-cache-loss")
    assert "a repair continues when the upstream responds" in remedy_of(shrink, "volume-shrink")
    assert changes(api) == []

    del registries.answers[registries.upstream]
    assert repairing().summary["serverside-applied"] == 1


def priority_class(name: str) -> Object:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 5}


def test_pods_get_a_priority_class_only_if_it_exists(api: Api, repair: Run, mirrors: Mirrors, mirror: Mirror) -> None:
    high = mirrors.name("high")
    mirrors.specify(mirror, priorityClassName=high)
    mirrors.create("new", "quay.io", priorityClassName=high)
    when = f"a repair continues when priorityclass/{high} exists"

    repair()  # creates the Services and the claim of the new mirror
    api.mark()
    blocked = repair()
    workloads = [each for each in blocked.results if each["object"]["kind"].endswith("Set")]
    remedy = f"{when}: apply the manifests again, or change spec.priorityClassName"
    assert [each["remedy"] for each in workloads] == [remedy] * 4
    assert (blocked.exit_code, changes(api)) == (0, [])
    assert len([each for each in api.requests() if "priorityclasses" in each.path]) == 1

    api.create(priority_class(high))
    assert repair().summary["serverside-applied"] == 2
    pod = api.read(mirror.stateful_set.document())["spec"]["template"]["spec"]
    assert pod["priorityClassName"] == high


def test_a_mirror_has_a_priority_by_default_which_a_repair_restores(
    api: Api, repair: Run, mirrors: Mirrors, mirror: Mirror
) -> None:
    workloads = [mirror.stateful_set.document(), mirror.daemon_set.document()]
    for each in workloads:
        pod = api.read(each)["spec"]["template"]["spec"]
        assert pod["priorityClassName"] == "kube-chores-mirrors"
        mirrors.edit(each, {"spec": {"template": {"spec": {"priorityClassName": None}}}})
    mirrors.settle(mirror)

    repair()
    mirrors.settle(mirror)
    repair()

    for each in workloads:
        assert api.read(each)["spec"]["template"]["spec"]["priorityClassName"] == "kube-chores-mirrors"


def test_an_immutable_field_rolls_no_registry_while_its_upstream_is_down(
    api: Api, repairing: Run, mirrors: Mirrors, registries: Registries
) -> None:
    mirror = mirrors.healthy(upstream=registries.upstream)
    ordered = mirror.stateful_set.document()
    api.delete(ordered)
    wait_for(lambda: api.get(ordered) is None, "the StatefulSet to be deleted")
    ordered["spec"]["podManagementPolicy"] = "OrderedReady"
    mirrors.apply(ordered)
    mirrors.settle(mirror)
    before = api.read(ordered)["metadata"]["uid"]
    registries.answers[registries.upstream] = status(404)

    assert remedy_of(repairing(), "drifted").startswith("a repair continues when the upstream responds")
    assert api.read(ordered)["metadata"]["uid"] == before

    del registries.answers[registries.upstream]
    repairing()
    wait_for(lambda: repairing() and (found := api.get(ordered)) and found["metadata"]["uid"] != before, "a new one")
    assert api.read(ordered)["spec"]["podManagementPolicy"] == "Parallel"


def remedy_of(ran: Ran, code: str) -> str:
    """Return the remedy of the only finding with this code."""
    (found,) = [each for each in ran.results if each["code"] == code]
    return str(found["remedy"])


@pytest.mark.parametrize("spec", [{}, {"upstream": "quay.io", "registryHost": "docker.io"}])
def test_the_oldest_of_duplicate_mirrors_is_maintained(api: Api, repair: Run, mirrors: Mirrors, spec: Object) -> None:
    oldest = mirrors.healthy("z")
    claim = api.read(oldest.claim.document())["metadata"]["uid"]
    wait_until_younger(api, oldest)
    younger = mirrors.of(mirrors.create("a", **spec))
    mirrors.volume(younger)
    deleted("service")(mirrors, oldest)

    ran = repair()

    assert ran.summary["created"] == ran.summary["serverside-applied"] == 1  # the Service, and its address on nodes
    (duplicate,) = [each for each in ran.results if each["subjects"] == [younger.registry_mirror.name]]
    assert (duplicate["code"], duplicate["severity"]) == ("duplicate-upstream", "critical")
    assert duplicate["reason"].endswith(f" registrymirror/{oldest.registry_mirror.name}, which is older")
    assert created(api, younger) == []
    mirrors.settle(current(mirrors, oldest))
    repair()
    assert condition(api, oldest)["reason"] == "NotProbed"
    assert condition(api, younger)["reason"] == "DuplicateUpstream"

    api.delete(registry_mirror(oldest.registry_mirror.name))
    repair()
    assert len(created(api, younger)) == 4
    assert api.read(oldest.claim.document())["metadata"]["uid"] == claim


def wait_until_younger(api: Api, mirror: Mirror) -> None:
    """Wait until new objects are younger than the mirror: a server's timestamps have a resolution of seconds."""
    created = api.read(registry_mirror(mirror.registry_mirror.name))["metadata"]["creationTimestamp"]
    wait_for(lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) > created, "the next second")


def test_of_duplicates_of_the_same_second_the_first_by_name_is_maintained(
    api: Api, repair: Run, mirrors: Mirrors
) -> None:
    def same_second() -> bool:
        documents = [mirrors.create(name) for name in ("b", "a", "c")]
        if len({each["metadata"]["creationTimestamp"] for each in documents}) == 1:
            return True
        for each in documents:
            api.delete(registry_mirror(each["metadata"]["name"]))
        return False

    wait_for(same_second, "three mirrors of one second")

    ran = repair()

    assert sorted(each["subjects"][0] for each in ran.results if each["code"] == "duplicate-upstream") == [
        mirrors.name("b"),
        mirrors.name("c"),
    ]
    first = {mirrors.name("a")}
    assert {
        each["metadata"]["labels"]["kubechores.dev/mirror"] for each in api.items("v1", "Service", NAMESPACE)
    } == first


def test_a_mirror_with_an_invalid_name_does_not_block_others(api: Api, repair: Run, mirrors: Mirrors) -> None:
    allow_any_name(api)
    unusable = api.create(registry_mirror(f"a.{api.token}"))
    mirror = mirrors.of(mirrors.create("b"))
    mirrors.volume(mirror)

    ran = repair()

    assert "duplicate-upstream" not in codes(ran)
    assert [each["code"] for each in ran.results if each.get("subjects") == [unusable["metadata"]["name"]]] == [
        "invalid-name"
    ]
    assert len(created(api, mirror)) == 4


def test_a_duplicate_waits_until_the_older_mirror_is_deleted(api: Api, repair: Run, mirrors: Mirrors) -> None:
    older = api.create(registry_mirror(mirrors.name("a")) | {"metadata": WITH_FINALIZER | {"name": mirrors.name("a")}})
    younger = mirrors.of(mirrors.create("b"))
    mirrors.volume(younger)
    api.delete(registry_mirror(mirrors.name("a")))

    ran = repair()

    assert sorted(codes(ran)) == ["duplicate-upstream"]
    assert created(api, younger) == []
    mirrors.edit(
        {"apiVersion": "kubechores.dev/v1", "kind": "RegistryMirror", **older}, {"metadata": {"finalizers": None}}
    )
    repair()
    assert len(created(api, younger)) == 4


def test_a_moved_daemon_set_is_deleted_when_its_successor_is_on_all_nodes(
    api: Api, repair: Run, audit: Run, mirrors: Mirrors, mirror: Mirror
) -> None:
    api.delete(mirror.daemon_set.document())  # with its pods: otherwise the successor adopts them, and they are ready
    wait_for(lambda: not mirrors.pods(mirror, "node"), "its pods to be deleted")
    before = mirrors.apply(before_the_move(mirror))
    api.mark()

    first = repair()

    assert (first.exit_code, first.summary["created"]) == (0, 1)
    assert remedy_of(first, "orphan") == f"a repair deletes it when {mirror.daemon_set.key} is ready"
    mirrors.settle(mirror)
    api.mark()
    assert repair().summary == {"deleted": 1, "unchanged": 5}
    assert changes(api) == [f"DELETE {api.path(before)}"]
    assert (api.get(before), codes(audit())) == (None, [])


def test_a_moved_daemon_set_without_a_successor_is_not_deleted(api: Api, repair: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.healthy()
    deleted("daemon_set")(mirrors, mirror)
    mirrors.apply(before_the_move(mirror))
    api.delete(registry_mirror(mirror.registry_mirror.name))
    api.mark()

    ran = repair("--allow-cache-loss")

    assert (ran.exit_code, changes(api), len(created(api, mirror))) == (0, [], 5)
    (remedy,) = [each["remedy"] for each in ran.results if each["object"]["kind"] == "DaemonSet"]
    name = mirror.registry_mirror.name
    assert remedy == f"recreate registrymirror/{name}; when {mirror.daemon_set.key} is ready, delete the mirror"


@pytest.mark.since(30, "admission policies")
@pytest.mark.parametrize("of", ["registry", "node"])
@pytest.mark.parametrize("api", ["real"], indirect=True)
@pytest.mark.cluster
def test_only_the_namespace_of_nodes_allows_a_pod_with_a_host_path(api: Api, mirrors: Mirrors, of: str) -> None:
    mirror = mirrors.of(mirrors.create())
    template = (mirror.stateful_set if of == "registry" else mirror.daemon_set).document()["spec"]["template"]
    answers = {}
    for namespace in (NAMESPACE, NODES):
        metadata = template["metadata"] | {"name": f"try-{api.token}", "namespace": namespace}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        answers[namespace], _, body = api.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)

    own, other = (NAMESPACE, NODES) if of == "registry" else (NODES, NAMESPACE)
    assert answers == {own: 201, other: 403}, body


@pytest.mark.parametrize("rule", [None, "deleted"])
@pytest.mark.parametrize("broken", ["stateful_set", "claim", "service"])
def test_a_desired_resource_is_not_an_orphan_whatever_its_annotation(
    api: Api, repair: Run, mirrors: Mirrors, broken: str, rule: str | None, mirror: Mirror
) -> None:
    document = getattr(mirror, broken).document()
    mirrors.edit(document, {"metadata": {"annotations": {"kubechores.dev/rule": rule}}})
    before = api.read(document)["metadata"]["uid"]

    ran = repair("--allow-cache-loss")

    after = api.read(document)["metadata"]
    assert (ran.exit_code, ran.summary.get("serverside-applied"), "orphan" in codes(ran)) == (0, 1, False)
    assert (after["uid"], after["annotations"]["kubechores.dev/rule"]) == (before, mirror.registry_mirror.name)


def test_an_orphan_without_the_name_of_its_mirror_is_not_deleted(api: Api, repair: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.healthy()
    for each in mirror.resources:
        mirrors.edit(each.document(), {"metadata": {"annotations": {"kubechores.dev/rule": None}}})
    api.delete(registry_mirror(mirror.registry_mirror.name))
    api.mark()

    ran = repair("--allow-cache-loss")

    assert (ran.exit_code, changes(api), len(created(api, mirror))) == (0, [], 5)
    assert {each["remedy"] for each in ran.results} == {
        "restore its annotation kubechores.dev/rule, which names its mirror, or delete it manually"
    }


def test_outside_a_pod_workloads_keep_their_image(api: Api, repair: Run, mirrors: Mirrors, mirror: Mirror) -> None:
    daemon_set = api.read(mirror.daemon_set.document())
    (container,) = daemon_set["spec"]["template"]["spec"]["containers"]
    pulled = "registry.example.com/kube-chores:1"
    mirrors.edit(daemon_set, {"spec": {"template": {"spec": {"containers": [{**container, "image": pulled}]}}}})
    registry = api.read(mirror.stateful_set.document())
    containers = registry["spec"]["template"]["spec"]["containers"]
    containers[1]["image"] = pulled
    mirrors.edit(registry, {"spec": {"template": {"spec": {"containers": containers}}}})

    assert "serverside-applied" not in repair().summary
    assert repair("--node-image", "registry.example.com/kube-chores:2").summary["serverside-applied"] == 2


def test_outside_a_pod_a_registry_keeps_its_image_before_its_daemon_set_exists(
    api: Api, repair: Run, audit: Run, mirrors: Mirrors
) -> None:
    mirror = mirrors.of(mirrors.create())
    mirrors.volume(mirror)
    pulled = "registry.example.com/kube-chores:1"
    repair("--node-image", pulled)

    assert api.get(mirror.daemon_set.document()) is None
    assert "drifted" not in codes(audit())
    assert not {"drifted", "image-unknown", "serverside-applied"} & repair().summary.keys()

    mirrors.settle(mirror)
    assert repair().summary["created"] == 1
    assert images(api, mirror) == {pulled}


def images(api: Api, mirror: Mirror) -> set[str]:
    """Return the images of kube-chores in the pods of a mirror."""
    templates = [api.read(each.document())["spec"]["template"] for each in (mirror.stateful_set, mirror.daemon_set)]
    return {each["image"] for template in templates for each in template["spec"]["containers"]} - {REGISTRY_IMAGE}


def test_in_a_pod_mirrors_get_the_image_of_that_pod(
    api: Api, repair: Run, mirrors: Mirrors, mirror: Mirror, own_pod: Object
) -> None:
    path = api.path(own_pod)
    api.mark()

    assert [each["outcome"] for each in repair("--dry-run").results] == 2 * ["planned"]
    assert [each.path for each in api.requests()].count(path) == 1
    assert repair().summary["serverside-applied"] == 2
    assert images(api, mirror) == {OWN_IMAGE}

    mirrors.settle(mirror)
    api.mark()
    assert repair("--node-image", "registry.example.com/kube-chores:2").summary["serverside-applied"] == 2
    assert path not in {each.path for each in api.requests()}


def lacks_right(api: Api, job: str) -> bool:
    """Return whether a job has no permission to read its pod."""
    return not can_i(api, job, "get", "pods", "", "kube-chores")


@pytest.mark.parametrize("api", ["sandbox"], indirect=True)
@pytest.mark.parametrize("lacks", ["the right", "the pod", "the variable", "the container"])
def test_if_the_image_of_the_pod_is_not_known_mirrors_keep_theirs_and_the_run_reports_it(
    api: Api,
    repair: Run,
    audit: Run,
    mirrors: Mirrors,
    mirror: Mirror,
    own_pod: Object,
    monkeypatch: pytest.MonkeyPatch,
    lacks: str,
) -> None:
    before = images(api, mirror)
    mirrors.create("new", "quay.io")
    if lacks == "the right":
        for job in ("mirror-repair", "mirror-audit"):
            metadata = {"name": f"{job}-image", "namespace": "kube-chores"}
            api.patch({"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata}, {"rules": []})
            wait_for(partial(lacks_right, api, job), "the right to be removed")
    elif lacks in ("the pod", "the container"):
        api.delete(own_pod)
    else:
        connect_with(monkeypatch, pod_name="")
    if lacks == "the container":
        del own_pod["spec"]["containers"][1]
        api.create({**own_pod, "metadata": {"name": own_pod["metadata"]["name"], "namespace": "kube-chores"}})

    ran = repair()

    (found,) = (each for each in ran.results if each["code"] == "image-unknown")
    why, exit_code, name = {
        "the right": ('cannot get resource "pods"', 2, own_pod["metadata"]["name"]),
        "the pod": ("not found", 1, own_pod["metadata"]["name"]),
        "the variable": ("POD_NAME is not set", 2, "(own)"),
        "the container": ("has no container chores", 2, own_pod["metadata"]["name"]),
    }[lacks]
    assert (ran.exit_code, found["object"]["name"], found["severity"]) == (exit_code, name, "warning")
    assert why in found["reason"]
    assert f"each mirror keeps its image, and new mirrors get {NODE_IMAGE}" in found["reason"]
    assert "add --node-image to" in found["remedy"]
    assert found["remedy"] not in found["reason"]
    (audited,) = (each for each in audit().results if each["code"] == "image-unknown")
    assert audited["remedy"] == found["remedy"]
    assert found["remedy"] not in audited["reason"]
    assert images(api, mirror) == before


def test_in_a_pod_the_image_of_the_run_removes_the_files_of_deleted_mirrors(
    api: Api, repair: Run, mirror: Mirror, own_pod: Object
) -> None:
    api.delete(registry_mirror(mirror.registry_mirror.name))

    repair()

    assert api.read(mirror.daemon_set.document())["spec"]["template"]["spec"]["containers"][0]["image"] == OWN_IMAGE


@pytest.fixture
def growing(api: Api, mirrors: Mirrors) -> str:
    """Create a storage class that allows volumes to expand; return its name."""
    name = mirrors.name("growing")
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "example.com/none"}
    api.create({**kind, "metadata": {"name": name}, "allowVolumeExpansion": True})
    return name


def test_a_claim_is_expanded_if_its_storage_class_allows_it(
    api: Api, repair: Run, mirrors: Mirrors, growing: str
) -> None:
    mirror = mirrors.healthy(storage={"storageClassName": growing})
    mirrors.specify(mirror, storage={"size": "30Gi"})

    assert repair().summary["serverside-applied"] == 1

    assert api.read(mirror.claim.document())["spec"]["resources"]["requests"] == {"storage": "30Gi"}


def test_a_claim_without_its_storage_class_is_not_expanded(
    api: Api, repair: Run, mirrors: Mirrors, growing: str
) -> None:
    mirror = mirrors.healthy(storage={"storageClassName": growing})
    api.delete({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": growing}})
    mirrors.specify(mirror, storage={"size": "30Gi"})

    ran = repair()

    assert (ran.exit_code, codes(ran)) == (0, ["volume-too-small"])
    missing = f"storageclass/{growing}, which sets whether it can expand, does not exist"
    assert remedy_of(ran, "volume-too-small").startswith(missing)


def test_a_claim_is_recreated_only_with_allow_cache_loss(api: Api, repair: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.healthy()
    mirrors.specify(mirror, storage={"size": "10Gi"})
    smaller = current(mirrors, mirror)
    uid = api.read(mirror.claim.document())["metadata"]["uid"]
    remedy = repair().results[0]["remedy"]
    assert "a volume cannot shrink" in remedy
    assert "--allow-cache-loss" in remedy
    assert api.read(mirror.claim.document())["metadata"]["uid"] == uid
    if api.kind == "real":
        api.delete({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": mirror.name}})

    assert repair("--allow-cache-loss").exit_code == 0

    def is_recreated() -> bool:
        for pod in mirrors.pods(mirror, "registry") if api.kind == "real" else []:
            mirrors.run_pod(pod)
        repair("--allow-cache-loss")
        claim = api.get(mirror.claim.document())
        return bool(claim and claim["spec"]["resources"]["requests"] == {"storage": "10Gi"})

    wait_for(is_recreated, "the claim to be recreated", 60)
    assert api.get(smaller.stateful_set.document())
    assert api.read(mirror.claim.document())["metadata"]["uid"] != uid


def test_a_claim_that_lost_its_volume_is_recreated(api: Api, repair: Run, mirrors: Mirrors, mirror: Mirror) -> None:
    uid = api.read(mirror.claim.document())["metadata"]["uid"]
    BREAKS["the volume of the claim was deleted"][0](mirrors, mirror)
    api.mark()

    def recreated() -> bool:
        for pod in mirrors.pods(mirror, "registry") if api.kind == "real" else []:
            mirrors.run_pod(pod)
        repair()
        claim = api.get(mirror.claim.document())
        return bool(claim and claim["metadata"]["uid"] != uid and api.get(mirror.stateful_set.document()))

    wait_for(recreated, "the claim to be recreated, and the registry after it", 60)
    deleted = [
        each.path.split("/")[-2] for each in api.writes() if each.method == "DELETE" and "/pods/" not in each.path
    ]
    assert deleted == ["statefulsets", "persistentvolumeclaims"]
    mirrors.volume(mirror)
    mirrors.settle(mirror)
    assert codes(repair()) == []


def test_a_registry_with_a_lost_volume_is_not_deleted_while_its_upstream_is_down(
    api: Api, repairing: Run, mirrors: Mirrors, registries: Registries
) -> None:
    mirror = mirrors.healthy(upstream=registries.upstream)
    BREAKS["the volume of the claim was deleted"][0](mirrors, mirror)
    registries.answers[registries.upstream] = status(404)
    api.mark()

    ran = repairing()

    assert remedy_of(ran, "volume-lost").startswith("a repair continues when the upstream responds")
    assert changes(api) == []


def test_a_resource_to_be_recreated_is_not_corrected_first(api: Api, repair: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.healthy()
    mirrors.specify(mirror, storage={"size": "10Gi"})
    BREAKS["another image"][0](mirrors, mirror)
    api.mark()

    assert repair("--allow-cache-loss").exit_code == 0

    claim = mirror.claim.document()
    first = [each.method for each in takewhile(lambda each: each.path != api.path(claim), api.writes())]
    assert first == ["DELETE"]


def test_objects_not_managed_by_the_job_are_not_changed(api: Api, repair: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.healthy()
    BREAKS["an object that is not managed"][0](mirrors, mirror)
    other = {"name": f"other-{api.token}", "namespace": NAMESPACE, "labels": {"kubechores.dev/mirror": "deleted"}}
    others = [
        api.read(mirror.service.document()) | {"apiVersion": "v1", "kind": "Service"},
        api.create({"apiVersion": "v1", "kind": "Service", "metadata": other, "spec": {"ports": [{"port": 80}]}}),
        api.create(configmap(NAMESPACE, f"other-{api.token}")),
    ]
    before = [api.read(each) for each in others]

    assert repair("--allow-cache-loss").exit_code == 0

    assert [api.read(each) for each in others] == before


def test_nodes_are_cleaned_up_before_a_mirror_is_deleted_and_its_cache_is_retained(
    api: Api, repair: Run, audit: Run, mirrors: Mirrors
) -> None:
    mirror = mirrors.healthy(tolerations=[])
    api.delete(registry_mirror(mirror.registry_mirror.name))
    api.mark()

    first = repair()

    assert (first.exit_code, first.summary) == (0, {"configured": 1, "orphan": 4})
    waiting = {each["remedy"] for each in first.results if each["code"] == "orphan" and each.get("remedy")}
    assert "a repair deletes it when all nodes have removed the files of the mirror" in waiting
    name = mirror.registry_mirror.name
    assert reasons(first) == {("configured", f"nodes remove the files of registrymirror/{name}, which does not exist")}
    (container,) = api.read(mirror.daemon_set.document())["spec"]["template"]["spec"]["containers"]
    forget = ["mirror-node", f"--name={name}", "--host=docker.io", "--remove"]
    assert container["args"] == forget
    pod = api.read(mirror.daemon_set.document())["spec"]["template"]["spec"]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    probes = {each: container[each] for each in container if each.endswith("Probe")}
    assert {each: probe["exec"]["command"] for each, probe in probes.items()} == {
        "readinessProbe": ["chores", *forget, "--check"]
    }
    assert (
        [each["name"] for each in container["volumeMounts"]] == [each["name"] for each in pod["volumes"]] == ["certs"]
    )
    assert len(created(api, mirror)) == 5

    mirrors.settle(mirror)
    second = repair()

    assert (second.exit_code, second.summary) == (0, {"deleted": 4})
    deletes = [each.path.split("/")[-2] for each in api.writes() if each.method == "DELETE"]
    assert deletes == ["daemonsets", "statefulsets", "services", "services"]
    assert [each["kind"] for each in created(api, mirror)] == ["PersistentVolumeClaim"]
    assert audit("--check").exit_code == 0
    (kept,) = repair("-v").results
    assert (kept["code"], kept["severity"], kept["object"]["name"]) == ("retained", "info", mirror.name)
    assert "--allow-cache-loss" in kept["remedy"]
    assert repair("--allow-cache-loss", "--dry-run").summary == {"deleted": 1}

    assert repair("--allow-cache-loss").summary["deleted"] == 1
    wait_for(lambda: _is_deleted(mirrors, mirror), "the claim to be deleted")
    assert codes(audit()) == []


def _is_deleted(mirrors: Mirrors, mirror: Mirror) -> bool:
    if mirrors.api.kind == "real":
        mirrors.pods(mirror, "registry")
    return mirrors.api.get(mirror.claim.document()) is None


def test_a_recreated_mirror_uses_its_retained_cache(api: Api, repair: Run, mirrors: Mirrors, mirror: Mirror) -> None:
    claim = api.read(mirror.claim.document())["metadata"]["uid"]
    api.delete(registry_mirror(mirror.registry_mirror.name))
    repair()
    mirrors.create()

    ran = repair()

    assert (ran.summary["deleted"], ran.summary["created"]) == (1, 1)
    (container,) = api.read(mirror.daemon_set.document())["spec"]["template"]["spec"]["containers"]
    assert "--remove" not in container["args"]
    assert api.read(mirror.claim.document())["metadata"]["uid"] == claim


def test_the_brake_blocks_the_removal_of_too_many_mirrors(
    api: Api, repair: Run, mirrors: Mirrors, chores: Chores, mirror: Mirror
) -> None:
    api.delete(registry_mirror(mirror.registry_mirror.name))
    api.mark()

    blocked = repair("--max-deletes", "0")

    assert (blocked.exit_code, changes(api)) == (4, [])
    assert "the deletion brake blocks the removal of 1 mirror" in blocked.stderr
    command = blocked.stderr.strip().splitlines()[-1].split()
    account = api.service_account_kubeconfig("kube-chores", "mirror-repair")
    allowed = chores(*command[1:], kubeconfig=account)
    assert (command[:3], allowed.returncode) == (["chores", "mirror-audit", "--repair"], 0), allowed.stderr
    (container,) = api.read(mirror.daemon_set.document())["spec"]["template"]["spec"]["containers"]
    assert "--remove" in container["args"]

    # The brake does not block a removal in progress: otherwise the user must allow each step.
    mirrors.settle(mirror)
    assert repair("--max-deletes", "0").summary == {"deleted": 4}
    # It counts the retained cache.
    assert repair("--max-deletes", "0", "--allow-cache-loss").exit_code == 4
    assert api.get(mirror.claim.document())


def test_a_dry_run_writes_nothing_and_prints_the_first_steps(api: Api, repair: Run, mirrors: Mirrors) -> None:
    mirrors.create()
    api.mark()

    ran = repair("--dry-run")

    assert (ran.exit_code, api.writes()) == (0, [])
    assert ran.summary == {"created": 2, "image-unknown": 1, "missing": 3}
    (found,) = (each for each in ran.results if each["code"] == "image-unknown")
    assert found["reason"] == f"this run is not in a pod, so new mirrors get image {NODE_IMAGE}"
    assert "image-unknown" not in repair("--dry-run", "--node-image", "registry.example.com/kube-chores:1").summary
    assert repair("--check").exit_code == 3


@pytest.mark.parametrize("option", [("--allow-cache-loss",), ("--wait", "5")])
def test_options_of_a_repair_require_repair(api: Api, audit: Run, option: tuple[str, ...]) -> None:
    ran = audit(*option)

    assert ran.exit_code == 2
    assert "cannot be used without --repair" in ran.stderr


def test_a_repair_and_an_audit_write_the_same_status(api: Api, repair: Run, audit: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.healthy()
    BREAKS["two replicas"][0](mirrors, mirror)
    BREAKS["a smaller volume is requested"][0](mirrors, mirror)
    repair()
    mirrors.settle(mirror)
    repair()
    before = condition(api, mirror)
    api.mark()

    audit()

    assert before["reason"] == "VolumeShrink"
    assert api.writes() == []


def test_of_two_simultaneous_repairs_one_counts_the_created_resources(
    api: Api, repair: Run, mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirrors.volume(mirrors.of(mirrors.create()))
    others: list[Ran] = []
    write = Cluster.write

    def late(self: Cluster, *arguments: Any, **given: Any) -> Any:
        monkeypatch.setattr(Cluster, "write", write)
        others.append(repair())
        return write(self, *arguments, **given)

    monkeypatch.setattr(Cluster, "write", late)

    ran = repair()

    assert [each.summary["created"] for each in others] == [4]
    assert (ran.exit_code, ran.summary.get("created", 0), ran.summary["serverside-applied"]) == (0, 0, 2)


# What a run changed and that is not ready yet


def roll(mirrors: Mirrors, name: str = "hub") -> Mirror:
    """Have a healthy mirror whose next repair rolls its registry, which takes a while."""
    mirror = mirrors.healthy(name)
    mirrors.specify(mirror, ttl="24h")
    return mirror


def unready(mirrors: Mirrors, mirror: Mirror) -> None:
    """Have the controller observe the change, while no pod is ready."""
    api = mirrors.api
    if api.kind == "sandbox":
        mirrors.status(mirror.stateful_set.document(), replicas=1, updatedReplicas=0, readyReplicas=0)
        return mirrors.slice(mirror, ready=False)

    def is_unready() -> bool:
        mirrors.pods(mirror, "registry")  # ends the pod that is replaced
        return not api.read(mirror.stateful_set.document())["status"].get("readyReplicas")

    return wait_for(is_unready, "the pod to end")


def state(api: Api, mirror: Mirror) -> tuple[str, str]:
    ready = condition(api, mirror)
    return ready["status"], ready["reason"]


def minutes_ago(api: Api, mirror: Mirror, minutes: int) -> None:
    """Have the status report the same, but since some minutes more."""
    document = registry_mirror(mirror.registry_mirror.name)
    then = f"{datetime.now(timezone.utc) - timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%SZ}"
    changed = api.read(document)["status"].keys() & {"registryChanged", "nodesChanged"}
    assert changed
    api.patch_status(document, dict.fromkeys(changed, then))


def test_a_registry_that_this_run_rolled_is_in_progress_and_later_reported(
    api: Api, repair: Run, audit: Run, mirrors: Mirrors
) -> None:
    mirror = roll(mirrors)

    ran = repair()

    left = [each for each in ran.results if each["outcome"] == "reported"]
    assert {(each["code"], each["severity"]) for each in left} == {("in-progress", "warning")}
    assert {each["remedy"] for each in left} == {"wait: if it does not become ready, the next run reports why"}
    assert state(api, mirror) == ("Unknown", "InProgress")

    unready(mirrors, mirror)
    overlapping = audit()
    assert set(codes(overlapping)) == {"in-progress"}, "also what became unready meanwhile"
    minutes_ago(api, mirror, 6)
    assert set(codes(audit())) == {"no-endpoints", "not-rolled-out"}
    assert state(api, mirror) == ("False", "NoEndpoints")
    mirrors.settle(current(mirrors, mirror))
    audit()
    assert state(api, mirror) == ("Unknown", "NotProbed")


def test_a_new_mirror_is_in_progress_until_its_nodes_are_configured(api: Api, repair: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.of(mirrors.create())
    mirrors.volume(mirror)

    repair()
    assert state(api, mirror) == ("Unknown", "InProgress")
    minutes_ago(api, mirror, 15)
    mirrors.settle(mirror)
    ran = repair()

    assert (ran.summary["created"], state(api, mirror)) == (1, ("Unknown", "InProgress"))


def test_a_registry_that_every_repair_changes_and_is_never_ready_is_reported(
    api: Api, repair: Run, mirrors: Mirrors
) -> None:
    mirror = roll(mirrors)
    states = []
    for number in range(3):
        ran = repair()
        assert ran.summary["serverside-applied"] == 1
        unready(mirrors, mirror)
        states.append(state(api, mirror)[1])
        if number == 0:
            minutes_ago(api, mirror, 15)
        mirrors.edit(mirror.stateful_set.document(), {"spec": {"replicas": 2}})

    assert states == ["InProgress", "NoEndpoints", "NoEndpoints"]


def test_another_cause_is_not_in_progress_with_the_change_of_a_run(api: Api, repair: Run, mirrors: Mirrors) -> None:
    mirror, other = mirrors.healthy(), mirrors.healthy("quay", "quay.io")
    mirrors.edit(mirror.daemon_set.document(), {"metadata": {"labels": {"app.kubernetes.io/name": None}}})
    for each in (mirror, other):
        workload(mirrors, each, ready=False)

    ran = repair()

    assert ran.summary["serverside-applied"] == 1
    assert {state(api, each) for each in (mirror, other)} == {("False", "NoEndpoints")}


def test_a_run_waits_until_what_it_changed_is_ready(
    api: Api, repair: Run, mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_POLL_SECONDS", 0.1)
    mirror = roll(mirrors)
    early: list[tuple[str, str]] = []

    def becomes_ready(_: float) -> None:
        if not early:
            early.append(state(api, mirror))
            mirrors.settle(current(mirrors, mirror))

    monkeypatch.setattr(runner, "sleep", becomes_ready)

    ran = repair("--wait", "60")

    assert early == [("Unknown", "InProgress")]
    assert (codes(ran), state(api, mirror)) == (["drifted"], ("Unknown", "NotProbed"))


def test_a_cache_that_does_not_respond_after_a_roll_is_in_progress(
    api: Api, repairing: Run, mirrors: Mirrors, registries: Registries
) -> None:
    mirror = mirrors.healthy(upstream=registries.upstream)
    mirrors.specify(mirror, ttl="24h")
    registries.caches[mirror.name] = "not a report"

    assert "unreadable" not in codes(repairing())
    assert state(api, mirror) == ("Unknown", "InProgress")
