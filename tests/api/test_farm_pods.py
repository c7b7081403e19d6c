"""farm-pods, on the embedded and the real API server."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jobs.__main__ import chores
from jobs.kit.api.cluster import Cluster
from jobs.kit.api.transport import IN_FLIGHT, Transport
from tests.api.conftest import Ran, Run
from tests.api.test_rights import Right, drop
from tests.apis import METADATA_ONLY, Api, wait_for
from tests.canary import TOKEN
from tests.farm import VERSION, farm_pod, farmed, listed, llama, owner, pod, wait_until_collected
from tests.manifests import everything
from tests.rights import account, create_account, grant
from tests.worlds import namespace_object

TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
Object = dict[str, Any]


def is_deleted(api: Api, obj: Object) -> Callable[[], bool]:
    return lambda: api.get(obj) is None


def codes(ran: Ran, namespace: str) -> list[tuple[str, str, str]]:
    """Return name, code and outcome of FarmPods of this namespace; those of other tests may still be terminating."""
    found = [each for each in ran.results if each["object"].get("namespace") == namespace]
    return [(each["object"]["name"], each["code"], each["outcome"]) for each in found]


def farmed_pod(api: Api, farm: Run) -> tuple[str, Object]:
    """Create a pod in a namespace that opted in, and its FarmPod with a run; return the namespace and the pod."""
    shop = farmed(api)
    created = api.create(pod(shop, "web"))
    farm()
    return shop, created


def disown(api: Api, obj: Object) -> None:
    api.patch(obj, {"metadata": {"ownerReferences": None}})


def test_writes_have_the_rate_of_the_option(api: Api, farm: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    api.create(pod(farmed(api), "web"))
    rates: list[float | None] = []
    stream = Transport.stream

    def noted(self: Transport, requests: Any, per_second: float | None = None) -> Any:
        rates.append(per_second)
        return stream(self, requests, per_second)

    monkeypatch.setattr(Transport, "stream", noted)

    assert farm("--writes-per-second", "7").summary == {"created": 1}
    assert {*rates} - {None} == {7}


def test_each_pod_of_a_namespace_that_opted_in_gets_a_farm_pod(api: Api, farm: Run) -> None:
    shop, other = farmed(api), farmed(api, "other", labels={"kubechores.dev/farm": "false"})
    web = api.create(pod(shop, "web-0", containers=2))
    api.create(pod(shop, "job"))
    api.create(pod(other, "hidden"))

    ran = farm()

    assert (ran.exit_code, ran.summary, ran.report["facts"]) == (0, {"created": 2}, {"pods": 2, "namespaces": 1})
    found = listed(api, shop)
    assert {name: each["spec"] for name, each in found.items()} == {
        "farm-web-0": {"pod": "web-0", "containers": 2},
        "farm-job": {"pod": "job", "containers": 1},
    }
    metadata = found["farm-web-0"]["metadata"]
    assert metadata["ownerReferences"] == [owner(web)]
    assert metadata["labels"] == {"app.kubernetes.io/managed-by": "kube-chores", "kubechores.dev/job": "farm-pods"}
    assert metadata["annotations"] == {"kubechores.dev/source": f"{shop}/web-0"}
    assert listed(api, other) == {}


def test_a_converged_run_writes_nothing_even_after_others_add_to_farm_pods(api: Api, farm: Run) -> None:
    shop, _ = farmed_pod(api, farm)
    theirs = {"metadata": {"labels": {"team": "search"}, "annotations": {"note": "x"}}}
    before = api.patch(farm_pod(shop, "web"), theirs)
    api.mark()

    ran = farm()

    assert (ran.exit_code, ran.summary) == (0, {"unchanged": 1})
    assert api.writes() == []
    assert api.get(farm_pod(shop, "web")) == {"apiVersion": VERSION, "kind": "FarmPod"} | before


OWNERS = "metadata.ownerReferences"
SOURCE = "metadata.annotations[kubechores.dev/source]"
EDITS: list[tuple[str, Callable[[Object, Object], Object]]] = [  # the field, and the edit for a pod and another one
    ("spec.containers", lambda *_: {"spec": {"containers": 7}}),
    ("spec.pod", lambda *_: {"spec": {"pod": "other"}}),
    (OWNERS, lambda *_: {"metadata": {"ownerReferences": None}}),
    (OWNERS, lambda *pods: {"metadata": {"ownerReferences": [owner(each) for each in pods]}}),
    (OWNERS, lambda web, _: {"metadata": {"ownerReferences": [{**owner(web), "blockOwnerDeletion": True}]}}),
    (SOURCE, lambda *_: {"metadata": {"annotations": {"kubechores.dev/source": None}}}),
]


def test_manual_changes_are_repaired_and_additions_of_others_stay(api: Api, farm: Run) -> None:
    shop = farmed(api)
    other, *pods = (api.create(pod(shop, name)) for name in ("other", *(f"web-{n}" for n in range(len(EDITS)))))
    farm()
    theirs = {"metadata": {"labels": {"team": "search"}, "finalizers": ["example.com/protected"]}}
    created = {}
    for web, (_, edit) in zip(pods, EDITS, strict=True):
        key = farm_pod(shop, web["metadata"]["name"])
        created[key["metadata"]["name"]] = api.patch(key, theirs)
        api.patch(key, edit(web, other))

    ran = farm("--diff")

    found = listed(api, shop)
    for name in created:
        api.patch(found[name], {"metadata": {"finalizers": None}})
    assert (ran.exit_code, ran.summary) == (0, {"configured": len(EDITS), "unchanged": 1})
    changes = [[each["field"] for each in result["changes"]] for result in ran.results]
    assert changes == [[field] for field, _ in EDITS]
    for web, (name, before) in zip(pods, created.items(), strict=True):
        metadata = found[name]["metadata"]
        assert found[name]["spec"] == {"pod": web["metadata"]["name"], "containers": 1}
        assert metadata["ownerReferences"] == [owner(web)]
        assert metadata["annotations"] == {"kubechores.dev/source": f"{shop}/{web['metadata']['name']}"}
        assert (metadata["labels"]["team"], metadata["finalizers"]) == ("search", ["example.com/protected"])
        assert metadata["uid"] == before["metadata"]["uid"]
    assert farm().summary == {"unchanged": len(EDITS) + 1}


def test_a_farm_pod_that_remains_after_its_pod_gets_the_next_pod_as_owner(api: Api, farm: Run) -> None:
    shop, first = farmed_pod(api, farm)
    created = listed(api, shop)["farm-web"]
    orphaning = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan"}
    api.call("DELETE", api.path(first), orphaning)
    wait_for(is_deleted(api, first), "the pod to be deleted")
    second = api.create(pod(shop, "web", containers=3))
    api.mark()

    assert farm().summary == {"configured": 1}

    found = listed(api, shop)["farm-web"]
    assert found["metadata"]["uid"] == created["metadata"]["uid"], "the job has no permission to delete"
    assert (found["metadata"]["ownerReferences"], found["spec"]["containers"]) == ([owner(second)], 3)
    assert [each.method for each in api.writes()] == ["PUT"]


def test_a_farm_pod_that_another_client_wrote_is_compared_with_the_whole_pod(api: Api, farm: Run) -> None:
    """For example an object that was restored from a backup."""
    shop = farmed(api)
    for name in ("web", "other", "third"):
        api.create(pod(shop, name, containers=2))
    farm()
    kept = listed(api, shop)["farm-web"]
    api.delete(kept)
    metadata = {name: kept["metadata"][name] for name in ("name", "namespace", "labels", "annotations")}
    api.create({**kept, "metadata": {**metadata, "ownerReferences": kept["metadata"]["ownerReferences"]}})
    before = listed(api, shop)
    api.mark()

    ran = farm()

    assert (ran.exit_code, ran.summary, api.writes()) == (0, {"unchanged": 3}, [])
    assert listed(api, shop) == before
    single = [each.path.rpartition("/")[2] for each in api.requests() if each.path.endswith(("/farm-web", "/web"))]
    assert single == ["farm-web", "web"]


@pytest.mark.parametrize("arguments", [(), ("-v",)])
def test_an_edit_with_the_field_manager_of_the_job_is_repaired(api: Api, farm: Run, arguments: tuple[str, ...]) -> None:
    shop, _ = farmed_pod(api, farm)
    path = f"{api.path(farm_pod(shop, 'web'))}?fieldManager=kube-chores"
    merge = {"Content-Type": "application/merge-patch+json"}
    api.call("PATCH", path, {"spec": {"containers": 9}}, headers=merge)

    # With -v the report has FarmPods of earlier tests too, which end with their namespaces.
    assert farm("-n", shop, *arguments).summary == {"configured": 1}

    assert listed(api, shop)["farm-web"]["spec"]["containers"] == 1
    assert farm("-n", shop, *arguments).summary == {"unchanged": 1}


def test_a_farm_pod_that_is_being_deleted_stays_untouched(api: Api, farm: Run) -> None:
    shop = farmed(api)
    for name in ("web", "orphaned"):
        api.create(pod(shop, name))
    farm()
    for name in ("web", "orphaned"):
        api.patch(
            farm_pod(shop, name), {"metadata": {"ownerReferences": None, "finalizers": ["example.com/protected"]}}
        )
        api.delete(farm_pod(shop, name))
    api.delete(pod(shop, "orphaned"))
    api.mark()

    ran = farm()
    writes = api.writes()
    for name in ("web", "orphaned"):
        api.patch(farm_pod(shop, name), {"metadata": {"finalizers": None}})

    assert (ran.exit_code, codes(ran, shop), writes) == (0, [("farm-web", "skipped", "reported")], [])


def test_names_at_the_limit(api: Api, farm: Run) -> None:
    shop = farmed(api)
    whole, cut, dotted = "a" * 248, "b" * 249, "cc." * 84 + "c"  # the last is cut at a dot
    for name in (whole, cut, dotted):
        api.create(pod(shop, name))

    assert farm().summary == {"created": 3}
    assert farm().summary == {"unchanged": 3}

    names = {each["spec"]["pod"]: name for name, each in listed(api, shop).items()}
    assert names[whole] == f"farm-{whole}"
    assert {len(names[whole]), len(names[cut])} == {253}
    assert names[cut].startswith("farm-" + "b" * 231 + "-")
    assert names[dotted].startswith("farm-cc.cc.")
    assert len(names) == 3
    api.delete(pod(shop, cut))
    found = farm_pod(shop, cut)
    found["metadata"]["name"] = names[cut]
    wait_until_collected(api, found)


def test_a_collision_of_names_is_reported_and_nothing_is_written(api: Api, farm: Run) -> None:
    shop = farmed(api)
    api.create(pod(shop, "b" * 250))
    farm()
    (name,) = listed(api, shop)
    api.create(pod(shop, name.removeprefix("farm-")))
    before = listed(api, shop)

    ran = farm()

    assert (ran.exit_code, ran.summary) == (0, {"collision": 1})
    assert listed(api, shop) == before


def test_a_conflict_is_reported_without_a_write(api: Api, farm: Run) -> None:
    shop = farmed(api)
    for name in ("web", "other"):
        api.create(pod(shop, name))
    theirs = [api.create(farm_pod(shop, "web", containers=9)), api.create(farm_pod(shop, "no-pod"))]
    other_job = {"app.kubernetes.io/managed-by": "kube-chores", "kubechores.dev/job": "sync-copies"}
    theirs.append(api.create(farm_pod(shop, "other", labels=other_job)))
    api.mark()

    ran = farm()

    assert (ran.exit_code, ran.summary) == (0, {"conflict": 2})
    assert ran.results[0]["reason"] == "exists and is not managed by kube-chores: left untouched"
    assert api.writes() == []
    assert [api.get(each) for each in theirs] == theirs


def test_a_completed_pod_gets_a_farm_pod_and_a_terminating_one_does_not(api: Api, farm: Run) -> None:
    shop = farmed(api)
    api.create(pod(shop, "ended"))
    api.patch_status(pod(shop, "ended"), {"phase": "Succeeded"})
    terminating = api.create(pod(shop, "terminating", finalizers=["example.com/protected"]))
    api.delete(terminating)

    ran = farm()
    api.patch(terminating, {"metadata": {"finalizers": None}})

    assert (ran.exit_code, ran.summary, ran.report["facts"]["pods"]) == (0, {"created": 1}, 1)
    assert list(listed(api, shop)) == ["farm-ended"]


def test_only_the_namespace_of_the_option_is_handled_even_without_a_label(api: Api, farm: Run) -> None:
    shop, other = farmed(api, labels={}), farmed(api, "other")
    for namespace in (shop, other):
        api.create(pod(namespace, "web"))
    api.mark()

    assert farm("-n", shop).summary == {"created": 1}

    assert {each.path.split("/namespaces/")[1].split("/")[0] for each in api.requests()} == {shop}
    assert (list(listed(api, shop)), listed(api, other)) == (["farm-web"], {})


def test_a_terminating_namespace_is_not_read(api: Api, farm: Run) -> None:
    shop = farmed(api)
    protected = api.create(farm_pod(shop, "protected", finalizers=["example.com/protected"]))
    api.create(pod(shop, "web", finalizers=["example.com/protected"]))
    api.delete(namespace_object(shop))
    api.mark()

    ran = farm()
    for each in (protected, pod(shop, "web")):
        api.patch(each, {"metadata": {"finalizers": None}})

    assert (ran.exit_code, ran.summary, ran.report["note"]) == (
        0,
        {},
        "no active namespace is labelled kubechores.dev/farm=true",
    )
    assert [each for each in api.requests() if "/pods" in each.path] == []


def test_farm_pods_of_a_namespace_that_opted_out_are_deleted_with_their_pods(api: Api, farm: Run) -> None:
    shop, _ = farmed_pod(api, farm)
    api.patch(namespace_object(shop), {"metadata": {"labels": None}})
    api.mark()

    assert codes(farm("-v"), shop) == [("farm-web", "retained", "reported")]
    assert farm("--check").exit_code == 0
    assert api.writes() == []

    api.delete(pod(shop, "web"))
    wait_until_collected(api, farm_pod(shop, "web"))


def test_a_farm_pod_that_is_never_collected_is_reported_with_its_remedy(api: Api, farm: Run) -> None:
    shop, _ = farmed_pod(api, farm)
    disown(api, farm_pod(shop, "web"))
    api.delete(pod(shop, "web"))

    ran = farm()

    assert (ran.exit_code, ran.summary) == (0, {"orphan": 1})
    assert ran.results[0]["reason"].endswith(f"kubectl delete farmpods farm-web -n {shop}")
    assert list(listed(api, shop)) == ["farm-web"]


def test_a_farm_pod_with_an_owner_or_a_terminating_pod_is_not_an_orphan(api: Api, farm: Run) -> None:
    shop = farmed(api)
    terminating, other = (
        api.create(pod(shop, name, finalizers=["example.com/protected"])) for name in ("leaving", "other")
    )
    api.create(pod(shop, "web"))
    farm()
    disown(api, farm_pod(shop, "leaving"))
    api.delete(terminating)
    api.patch(farm_pod(shop, "web"), {"metadata": {"ownerReferences": [{**owner(other), "controller": True}]}})
    api.delete(pod(shop, "web"))

    found = codes(farm("-v"), shop)
    check = farm("--check")
    for each in (terminating, other):
        api.patch(each, {"metadata": {"finalizers": None}})

    notes = [(f"farm-{name}", "retained", "reported") for name in ("leaving", "web")]
    assert found == [notes[0], ("farm-other", "unchanged", "reported"), notes[1]]
    assert (check.exit_code, check.summary) == (0, {"unchanged": 1})


def test_the_object_brake_blocks_a_whole_namespace_and_prints_how_to_lift_it(api: Api, farm: Run) -> None:
    shop = farmed(api)
    for number in range(3):
        api.create(pod(shop, f"web-{number}"))
    farm("-n", shop)
    api.patch(farm_pod(shop, "web-0"), {"spec": {"containers": 9}})
    for number in range(3, 5):
        api.create(pod(shop, f"web-{number}"))

    blocked = farm("-n", shop, "--max-objects", "4")

    assert (blocked.exit_code, blocked.summary) == (4, {"configured": 1, "over-limit": 1, "unchanged": 2})
    (over_limit,) = [each for each in blocked.results if each["code"] == "over-limit"]
    assert over_limit["object"] == {"kind": "Namespace", "name": shop}
    assert over_limit["reason"].startswith("2 pods have no FarmPod")
    assert "the object brake blocks 2 of 2 creates: there would be 5 FarmPods, the limit is 4" in blocked.stderr
    command = blocked.stderr.strip().splitlines()[-1].split()
    assert command[:2] == ["chores", "farm-pods"]
    assert command[-2:] == ["--max-objects", "5"]
    assert len(listed(api, shop)) == 3
    assert farm(*command[2:]).summary == {"created": 2, "unchanged": 3}
    full = farm("-n", shop, "--max-objects", "0")
    assert (full.exit_code, "brake" in full.stderr) == (0, False), "existing FarmPods do not trigger the brake"


def test_dry_runs_and_checks_write_nothing_and_report_the_plan(api: Api, farm: Run) -> None:
    shop = farmed(api)
    for name in ("web", "new"):
        api.create(pod(shop, name))
        farm("-n", shop) if name == "web" else None
    disown(api, farm_pod(shop, "web"))
    before = listed(api, shop)

    client, server, check = farm("--dry-run"), farm("--dry-run=server"), farm("--check")

    assert [ran.summary for ran in (client, server, check)] == 3 * [{"created": 1, "configured": 1}]
    assert [ran.exit_code for ran in (client, server, check)] == [0, 0, 3]
    assert listed(api, shop) == before
    assert farm().summary == client.summary


def test_unreadable_pods_of_one_namespace_do_not_stop_other_namespaces(api: Api, farm: Run) -> None:
    shop, other = farmed(api), farmed(api, "other")
    for namespace in (shop, other):
        api.create(pod(namespace, "web"))
    drop(api, Right("farm-pods", "ClusterRole", "kube-chores-farm-pods", "pods", "list"))
    lists = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    grant(api, account("kube-chores", "farm-pods"), lists, namespace=other)
    wait_for(lambda: farm("-n", other, "--dry-run").exit_code == 0, "the authorizer to read the new RoleBinding")

    ran = farm()

    assert (ran.exit_code, ran.summary) == (2, {"created": 1, "unreadable": 1})
    assert 'cannot list resource "pods"' in ran.results[1]["reason"]
    assert ran.results[1]["reason"].endswith("the manifests in cronjobs/ grant the permissions that this job needs")
    assert (listed(api, shop), list(listed(api, other))) == ({}, ["farm-web"])


@pytest.fixture
def overtaken(api: Api, farm: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Run the job, and call `first` before its first write."""
    write = Cluster.write

    def run(first: Callable[[], object], *arguments: str) -> Ran:
        def late(self: Cluster, *writes: Any, **given: Any) -> Any:
            monkeypatch.setattr(Cluster, "write", write)
            first()
            return write(self, *writes, **given)

        monkeypatch.setattr(Cluster, "write", late)
        return farm(*arguments)

    return run


def test_objects_that_another_run_wrote_are_reported_with_v(api: Api, farm: Run, overtaken: Callable[..., Ran]) -> None:
    shop = farmed(api)
    for name in ("kept", "new"):
        api.create(pod(shop, name))

    ran = overtaken(lambda: farm(), "-n", shop, "-v")

    assert (ran.summary, {each["code"] for each in ran.results}) == ({"unchanged": 2}, {"unchanged"})
    assert {each["message"] for each in ran.results} == {"another run wrote it meanwhile"}


def test_an_object_of_others_that_is_created_during_a_run_stays(api: Api, overtaken: Callable[..., Ran]) -> None:
    shop = farmed(api)
    api.create(pod(shop, "web"))
    theirs: list[Object] = []

    ran = overtaken(lambda: theirs.append(api.create(farm_pod(shop, "web", containers=9))))

    assert (ran.exit_code, ran.summary) == (0, {"conflict": 1})
    assert api.get(farm_pod(shop, "web")) == theirs[0]


NOT_SERVED = (
    "farmpods.kubechores.dev is not installed, or does not serve v1; install the CRDs with 'chores install-crds'"
)


@pytest.mark.parametrize("api", ["sandbox"], indirect=True)  # others need the CRDs of the real one
def test_a_missing_crd_is_reported_with_its_remedy(api: Api, farm: Run) -> None:
    definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    api.delete({**definition, "metadata": {"name": "farmpods.kubechores.dev"}})
    wait_for(lambda: api.request("GET", "/apis/kubechores.dev/v1/farmpods")[0] == 404, "the CRD to be deleted")

    ran = farm()

    assert ran.exit_code == 2
    assert NOT_SERVED in ran.stderr


@pytest.mark.parametrize("api", ["sandbox"], indirect=True)
def test_a_crd_that_does_not_serve_the_version_is_reported_and_its_remedy_works(api: Api, farm: Run) -> None:
    crd = next(each for each in everything() if each["metadata"]["name"] == "farmpods.kubechores.dev")
    (version,) = crd["spec"]["versions"]
    api.patch(crd, {"spec": {"versions": [{**version, "served": False}]}})
    wait_for(lambda: api.request("GET", "/apis/kubechores.dev/v1/farmpods")[0] == 404, "the end of the version")

    ran = farm()

    assert ran.exit_code == 2
    assert NOT_SERVED in ran.stderr
    installed = CliRunner().invoke(chores, ["install-crds"], env={"KUBECONFIG": str(api.kubeconfig)})
    assert (installed.exit_code, farm().exit_code) == (0, 0), installed.output


def test_users_with_permission_to_read_only_farm_pods_see_no_environment(api: Api, farm: Run) -> None:
    shop = farmed(api)
    for name in ("web", "repaired"):
        api.create(pod(shop, name, containers=2))
    farm()
    disown(api, farm_pod(shop, "repaired"))
    assert farm().summary == {"configured": 1, "unchanged": 1}
    token = create_account(api, shop, "visitor", "kube-chores-farm-view")
    farm_pods = f"/apis/kubechores.dev/v1/namespaces/{shop}/farmpods"
    wait_for(lambda: api.request("GET", farm_pods, token=token)[0] == 200, "the authorizer to read the new RoleBinding")

    for path in (f"/api/v1/namespaces/{shop}/pods", f"/api/v1/namespaces/{shop}/pods/web"):
        assert api.request("GET", path, token=token)[0] == 403
        assert TOKEN in api.request("GET", path)[2].decode(), "a user with permission to read pods sees the password"
    for path in (farm_pods, f"{farm_pods}/farm-web", f"{farm_pods}?watch=true&timeoutSeconds=1"):
        for headers in ({},) if "watch" in path else ({}, TABLE, METADATA_ONLY if path == farm_pods else {}):
            status, _, body = api.request("GET", path, token=token, headers=headers)
            assert status == 200
            assert "farm-web" in body.decode()
            assert TOKEN not in body.decode()
            assert "PASSWORD" not in body.decode()


@pytest.mark.parametrize(("role", "may_keep"), [("view", False), ("edit", True)])
def test_role_view_reads_the_farm_and_role_edit_writes_llamas(
    api: Api, installed: Path, role: str, may_keep: bool
) -> None:
    shop = farmed(api)
    token = create_account(api, shop, "visitor", role)
    base = f"/apis/kubechores.dev/v1/namespaces/{shop}"
    wait_for(lambda: api.request("GET", f"{base}/farmpods", token=token)[0] == 200, "the roles to be aggregated")

    assert api.request("GET", f"{base}/llamas", token=token)[0] == 200
    assert api.request("POST", f"{base}/llamas", llama(shop), token=token)[0] == (201 if may_keep else 403)
    assert api.request("POST", f"{base}/farmpods", farm_pod(shop, "x"), token=token)[0] == 403


def test_the_many_pods_of_one_namespace_do_not_delay_those_of_another(api: Api, farm: Run, one_at_a_time: None) -> None:
    large, small = farmed(api, "large"), farmed(api, "small")
    for number in range(2 * IN_FLIGHT):
        api.create(pod(large, f"a{number}"))
    api.create(pod(small, "z"))
    api.mark()

    assert farm().summary == {"created": 2 * IN_FLIGHT + 1}

    assert any(f"/namespaces/{small}/" in each.path for each in api.writes()[:2])
