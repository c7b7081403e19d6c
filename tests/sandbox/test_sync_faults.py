"""sync-copies when it cannot read copies."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jobs.kit.run.results import REASONS
from kubesandbox import Fault
from tests.apis import Api, ready_of, sandbox_api
from tests.every_job.sync_copies import rules
from tests.fault_world import Built, World
from tests.worlds import at, configmap, content, namespace_object, rule, service_account

pytestmark = pytest.mark.parametrize("built", ["sync-copies"], indirect=True)


def test_a_failed_list_of_copies_without_a_rule_is_reported(world: World, tmp_path: Path) -> None:
    api = sandbox_api(world.sandbox, tmp_path)
    for _, _, name in rules(world):
        api.delete(rule(name, "", ""))
    world.sandbox.inject(Fault("GET", "/api/v1/secrets", status=403, times=None))
    ran = world.run()

    assert ran.exit_code == 1
    assert [each["code"] for each in ran.results if each["severity"] == "critical"] == ["unreadable"]
    assert "a fault was injected" in ran.stdout


def test_after_a_create_with_a_server_error_the_object_is_read_before_a_retry(world: World) -> None:
    path = "/api/v1/namespaces/team-a/secrets"
    world.sandbox.inject(Fault("POST", path, "fieldManager=kube-chores", status=500))
    ran = world.run()
    about = [(each.method, each.path, each.status) for each in world.requests() if "dryRun" not in each.query]

    failed = about.index(("POST", path, 500))
    read = about.index(("GET", f"{path}/fresh", 404))
    assert ran.exit_code == 0
    assert failed < read < about.index(("POST", path, 201))


def test_sources_of_one_namespace_that_cannot_be_listed_stop_no_other_rule_and_all_deletions(world: World) -> None:
    message = 'configmaps is forbidden: User "x" cannot list resource "configmaps"'
    world.sandbox.inject(Fault("GET", "/api/v1/namespaces/annex/configmaps", status=403, message=message, times=None))
    ran = world.run()

    unread = {each["object"]["name"] for each in ran.results if each["code"] == "unreadable"}
    assert (ran.exit_code, "adopted" in unread) == (2, True)
    assert ran.summary["created"] > 0
    assert "deleted" not in ran.summary
    world.sandbox.clear_faults()
    assert world.run().summary["deleted"] > 0


OF_A_POLICY = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not here"
REFUSALS = {
    "policy": (403, OF_A_POLICY, "denied"),
    "policy without a reason": (422, OF_A_POLICY, "denied"),
    "policy that is not valid": (422, "ValidatingAdmissionPolicy 'p' denied request: no such key", "denied"),
    "webhook": (400, 'admission webhook "validate.kyverno.svc-fail" denied the request: not here', "denied"),
    "webhook that is down": (500, 'Internal error occurred: failed calling webhook "w": refused', "webhook-failed"),
    "new quota": (403, 'secrets "fresh" is forbidden: status unknown for quota: q, resources: x', "quota-exceeded"),
    "quota of a group with a digit": (
        403,
        'rolebindings.rbac.authorization.k8s.io "fresh" is forbidden: exceeded quota: q, requested: x=1',
        "quota-exceeded",
    ),
    "quoted webhook": (500, 'failed calling webhook "w": denied the request', ""),
    "quoted quota": (403, "exceeded quota: q, requested: count/secrets=1", ""),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_write_that_one_namespace_refuses_fails_no_run(world: World, refusal: str) -> None:
    status, message, code = REFUSALS[refusal]
    world.sandbox.inject(Fault("POST", "*/namespaces/team-a/secrets", status=status, message=message, times=None))
    ran = world.run()

    failed = [each for each in ran.results if each["outcome"] == "failed"]
    assert ran.exit_code == (0 if code else 1)
    assert {(each["object"]["namespace"], each["message"]) for each in failed} == {("team-a", message)}
    assert {each["code"] for each in failed} & dict(REASONS).keys() == ({code} if code else set())


def test_one_policy_fails_a_run_only_if_it_refuses_in_several_namespaces_and_nothing_else_is_written(
    world: World, tmp_path: Path
) -> None:
    api = sandbox_api(world.sandbox, tmp_path)
    world.run()
    for name in ("team-c", "team-d", "team-e"):
        api.create(namespace_object(name))

    def codes(*refused: str) -> list[int]:
        """Return the exit codes of two runs, in which copies are refused in these namespaces."""
        world.sandbox.clear_faults()
        for name in refused:
            path = f"/api/v1/namespaces/{name}/configmaps"
            world.sandbox.inject(Fault("POST", path, status=403, message=OF_A_POLICY, times=None))
        ran = [world.run(), world.run()]
        assert all(each.summary["failed"] and each.summary["unchanged"] for each in ran)
        return [each.exit_code for each in ran]

    assert codes("team-c", "team-d") == [0, 2], "the first one wrote in team-e"
    assert codes("team-c") == [0, 0]


def test_a_copy_that_changes_before_it_is_deleted_stays_until_the_next_run(world: World, tmp_path: Path) -> None:
    orphan = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "team-b", "name": "withdrawn"}}
    api = sandbox_api(world.sandbox, tmp_path)
    change = partial(api.patch, orphan, {"metadata": {"labels": {"theirs": "yes"}}})
    world.sandbox.inject(Fault("DELETE", api.path(orphan), kind="call-before", call=change))

    ran = world.run()
    kept = api.get(orphan)
    again = world.run()

    assert (ran.exit_code, ran.summary["deleted"], ran.summary["skipped"]) == (0, 4, 1)
    assert kept
    assert (again.exit_code, again.summary["deleted"], api.get(orphan)) == (0, 1, None)


def test_copies_of_a_rule_that_appears_during_a_run_stay(built: Built, tmp_path: Path) -> None:
    """Another run creates them while this one reads the copies; it may have read the rules before."""
    late = configmap("home", "late", labels={"copy": "late"})
    wrong = []
    first_write = built.writes()[0]  # after that, a run deletes only what it has read before
    for number in [each for each in built.to_disturb() if each <= first_write and "secrets" not in built.name(each)]:
        with built.serve() as world, world.run_elsewhere() as run:
            api = sandbox_api(world.sandbox, tmp_path)

            def appear(run: Callable[[], None] = run, api: Api = api) -> None:
                api.create(late)
                api.create(rule("late", "home", "team-b", selector={"matchLabels": {"copy": "late"}}))
                run()

            world.sandbox.inject(Fault(kind="call-before", call=appear, skip=number))
            world.run()
            if not api.get(at("team-b", late)):
                wrong.append(built.name(number))
    assert wrong == []


def test_a_copy_that_is_deleted_before_it_is_read_for_its_update_is_created_again(world: World, tmp_path: Path) -> None:
    api, source = sandbox_api(world.sandbox, tmp_path), service_account("home")
    copy = at("team-a", source)
    for each in (source, rule("robots", "home", "team-a", ruleType="serviceaccount")):
        api.create(each)
    world.run()
    api.patch(copy, {"automountServiceAccountToken": True})
    delete = partial(api.delete, copy)
    world.sandbox.inject(Fault("GET", api.path(copy), kind="call-before", call=delete, skip=1))

    ran = world.run()

    assert (ran.exit_code, "failed" in ran.summary) == (0, False)
    assert content(api.get(copy)) == content(api.get(source))


NEW_RULE = rule("adopted", "annex", "")  # the first run writes its first status


def conditions(api: Api) -> list[Any]:
    found = api.get(NEW_RULE)
    assert found
    return list(found["status"]["conditions"])


def events(api: Api) -> list[Any]:
    return [each for each in api.events() if each["involvedObject"]["name"] == "adopted"]


@pytest.mark.parametrize("times", [1, 2])
def test_a_status_is_written_although_another_client_labels_the_rule(world: World, tmp_path: Path, times: int) -> None:
    api = sandbox_api(world.sandbox, tmp_path)
    path = f"{api.path(NEW_RULE)}/status"
    names = iter("abc")

    def label() -> None:
        api.patch(NEW_RULE, {"metadata": {"labels": {next(names): "theirs"}}})

    world.sandbox.inject(Fault("PATCH", path, kind="call-before", call=label, times=times))
    ran = world.run()

    assert ran.exit_code == 0
    assert [each.status for each in world.requests() if each.path == path] == [*[409] * times, 200]
    assert ready_of(conditions(api))["status"] == "True"
    assert len(events(api)) == 1


def test_two_runs_that_write_the_same_status_create_one_event(world: World, tmp_path: Path) -> None:
    api = sandbox_api(world.sandbox, tmp_path)
    with world.run_elsewhere() as run:
        world.sandbox.inject(Fault("PATCH", f"{api.path(NEW_RULE)}/status", kind="call-before", call=run))
        ran = world.run()

    assert ran.exit_code == 0
    assert len(events(api)) == 1


def test_a_status_of_another_spec_is_not_written(world: World, tmp_path: Path) -> None:
    api = sandbox_api(world.sandbox, tmp_path)
    change = partial(api.patch, NEW_RULE, {"spec": {"orphans": "Retain"}})
    world.sandbox.inject(Fault("PATCH", f"{api.path(NEW_RULE)}/status", kind="call-before", call=change))
    ran = world.run()

    assert ran.exit_code == 0
    assert ready_of(conditions(api))["reason"] == "NotRead"
    world.run()
    assert ready_of(conditions(api))["observedGeneration"] == 2
