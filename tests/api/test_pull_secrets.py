"""Copies that ServiceAccounts use for pulls: spec.attachTo of rules."""

from typing import Any

import pytest

from jobs.kit.data.objects import ObjectReducer
from tests.api.conftest import Run
from tests.api.test_safety import ready
from tests.apis import Api, Object, wait_for
from tests.rights import account as subject
from tests.rights import bind, can_i
from tests.worlds import at, configmap, namespace_object, pull_secret, resource_quota, rule, secret, service_account

RECORD = "kubechores.dev/pull-secrets"
ATTACHED = {"serviceAccounts": ["robot", "build-*"]}


def attaching(api: Api, home: str, team: str, name: str = "logins", **spec: Any) -> Object:
    return api.create(rule(name, home, team, **{"ruleType": "secret", "attachTo": ATTACHED, **spec}))


def account(namespace: str, *names: str, name: str = "robot") -> Object:
    """Return a ServiceAccount with these names in imagePullSecrets."""
    return service_account(namespace, name, labels={}, imagePullSecrets=[{"name": each} for each in names])


def names(api: Api, account: Object) -> list[str]:
    """Return the names in imagePullSecrets."""
    return [each["name"] for each in api.read(account).get("imagePullSecrets") or []]


def record(api: Api, account: Object) -> str | None:
    """Return the record of names that kube-chores added; None if there is none."""
    metadata = api.read(account)["metadata"]
    text: str | None = metadata.get("annotations", {}).get(RECORD)
    assert (metadata.get("labels", {}).get(RECORD) == "true") == (text is not None)
    return text


def test_service_accounts_get_the_copy_and_foreign_names_stay(api: Api, sync: Run, home: str, team: str) -> None:
    robot = api.create(account(team, "theirs"))
    builds = [api.create(account(team, name=name)) for name in ("build-a", "build-b")]
    other = api.create(account(team, name="other"))
    source = api.create(pull_secret(home))
    attaching(api, home, team)

    ran = sync("--diff")

    assert ran.summary == {"created": 1, "patched": 3}
    assert [names(api, each) for each in (robot, *builds, other)] == [["theirs", "login"], ["login"], ["login"], []]
    assert record(api, robot) == "kube-chores/login"
    shown = [each["changes"] for each in ran.results if each["object"]["name"] == "robot"]
    assert shown == [
        [
            {
                "field": "imagePullSecrets",
                "actual": '[{"name": "theirs"}]',
                "desired": '[{"name": "theirs"}, {"name": "login"}]',
            }
        ]
    ]
    api.mark()
    assert (sync().summary, api.writes()) == ({"unchanged": 1}, [])
    assert ready(api, "logins") == {"status": "True", "reason": "Synced", "message": "1 copy"}

    api.patch(robot, {"imagePullSecrets": [{"name": "theirs"}, {"name": "more"}]})
    assert sync().summary == {"patched": 1, "unchanged": 1}
    assert names(api, robot) == ["theirs", "more", "login"]

    api.delete(source)
    assert sync().summary == {"deleted": 1, "patched": 3}
    assert [names(api, each) for each in (robot, *builds)] == [["theirs", "more"], [], []]
    assert [record(api, each) for each in (robot, *builds)] == [None, None, None]


def test_a_missing_service_account_is_awaited(api: Api, sync: Run, home: str, team: str) -> None:
    api.create(pull_secret(home))
    attaching(api, home, team)
    assert sync().summary == {"created": 1}

    robot = api.create(account(team))
    assert sync().summary == {"patched": 1, "unchanged": 1}
    assert names(api, robot) == ["login"]


def test_only_the_name_of_the_rule_goes_with_the_rule_or_its_field(api: Api, sync: Run, home: str, team: str) -> None:
    robot = api.create(account(team, "login-1"))
    for number in (1, 2, 3):
        api.create(pull_secret(home, f"login-{number}", labels={"app": str(number)}))
        attaching(api, home, team, f"rule-{number}", selector={"matchLabels": {"app": str(number)}})
    assert sync().summary == {"created": 3, "patched": 1}
    assert names(api, robot) == ["login-1", "login-2", "login-3"]
    assert record(api, robot) == "kube-chores/login-2,kube-chores/login-3", "login-1 is an entry of others"

    api.patch(rule("rule-2", "", ""), {"spec": {"attachTo": None}})
    assert sync().summary == {"patched": 1, "unchanged": 3}
    assert names(api, robot) == ["login-1", "login-3"]

    for number in (1, 3):
        api.delete(rule(f"rule-{number}", "", ""))
    assert sync().summary == {"deleted": 2, "patched": 1, "unchanged": 1}
    assert (names(api, robot), record(api, robot)) == (["login-1"], None)


def test_names_go_after_the_last_rule_that_attached_was_deleted(api: Api, sync: Run, home: str, team: str) -> None:
    robot = api.create(account(team))
    api.create(pull_secret(home))
    attaching(api, home, team)
    sync()
    api.delete(rule("logins", "", ""))

    assert sync().summary == {"deleted": 1, "patched": 1}
    assert names(api, robot) == []


def test_names_stay_as_long_as_the_brake_keeps_the_copies(api: Api, sync: Run, home: str) -> None:
    robots = []
    for number in range(11):
        robots.append(api.create(account(api.namespace(f"team-{number}"))))
    api.create(pull_secret(home))
    attaching(api, home, f"*-{api.token}")
    assert sync().summary == {"created": 11, "patched": 11}
    api.delete(rule("logins", "", ""))

    assert (sync().exit_code, {len(names(api, each)) for each in robots}) == (4, {1})
    assert sync("--max-deletes", "11").summary == {"deleted": 11, "patched": 11}
    assert {len(names(api, each)) for each in robots} == {0}


def test_an_opted_out_namespace_keeps_only_its_own_names(api: Api, sync: Run, home: str, team: str) -> None:
    robot = api.create(account(team, "theirs"))
    api.create(pull_secret(home))
    attaching(api, home, team)
    sync()
    api.patch(namespace_object(team), {"metadata": {"annotations": {"kubechores.dev/copies": "false"}}})

    assert sync().summary == {"deleted": 1, "patched": 1}
    assert names(api, robot) == ["theirs"]


def test_an_object_of_others_in_the_place_of_the_copy_is_not_attached(
    api: Api, sync: Run, home: str, team: str
) -> None:
    robot = api.create(account(team))
    api.create(pull_secret(team, labels={}))
    api.create(pull_secret(home))
    attaching(api, home, team)

    for _ in range(2):  # the first run finds the conflict when it creates the copy
        assert sync().summary["conflict"] == 1
        assert names(api, robot) == []


def test_a_name_is_not_added_before_its_copy_is_there(api: Api, sync: Run, home: str, team: str) -> None:
    robot = api.create(account(team))
    api.create(pull_secret(home))
    attaching(api, home, team)
    quota = api.create(resource_quota(team, "few", labels={}, spec={"hard": {"secrets": "0"}}))
    wait_for(lambda: "used" in api.read(quota).get("status", {}) or api.kind != "real", "the quota to count")
    refused = api.kind == "real"  # the embedded server has no quotas

    if refused:
        codes = {each["code"]: each["outcome"] for each in sync().results}
        assert codes == {"not-attached": "reported", "quota-exceeded": "failed"}
        assert names(api, robot) == []
    api.delete(quota)
    api.mark()
    sync()
    assert [each.method for each in api.copy_writes()] == ["POST", "PATCH"], "the copy, then the ServiceAccount"
    assert names(api, robot) == ["login"]


def test_a_secret_that_is_not_for_pulls_is_reported(api: Api, sync: Run, home: str, team: str) -> None:
    robot = api.create(account(team))
    for name in ("login", "other"):
        api.create(secret(home, name))
    attaching(api, home, team)
    api.create(rule("settings", home, team))

    ran = sync()

    assert ran.summary["not-for-pulls"] == 1
    assert f"the type of secret {home}/login (Opaque), {home}/other (Opaque); narrow" in str(ran.results)
    assert "not-for-pulls" not in sync("--rule-name", "settings").summary
    assert names(api, robot) == []


def test_a_copied_service_account_is_left_to_its_source(api: Api, sync: Run, home: str, team: str) -> None:
    api.create(pull_secret(home))
    attaching(api, home, team)
    api.create(service_account(home, imagePullSecrets=[]))
    api.create(rule("accounts", home, team, ruleType="serviceaccount"))
    assert sync().summary == {"created": 2}

    assert sync("-v").summary["not-attached"] == 1
    assert names(api, service_account(team)) == []
    status = api.read(rule("logins", "", ""))["status"]
    assert (status["copies"], status["failedNamespaceCount"]) == (1, 0), "the ServiceAccount is not a copy of the rule"


@pytest.mark.parametrize(
    "text",
    ["", "login", "kube-chores/theirs,", " kube-chores/theirs", '{"kube-chores": ["theirs"]}', "[" * 100_000],
)
def test_a_record_that_somebody_changed_removes_nothing_of_others(
    api: Api, sync: Run, home: str, team: str, text: str
) -> None:
    robot = api.create(account(team, "theirs"))
    api.create(pull_secret(home))
    attaching(api, home, team)
    sync()
    api.patch(robot, {"metadata": {"annotations": {RECORD: text}}})

    assert sync().exit_code == 0
    assert names(api, robot) == ["theirs", "login"]
    api.delete(rule("logins", "", ""))
    sync()
    assert "theirs" in names(api, robot)


def test_sources_that_use_up_the_memory_of_contents_leave_names_as_they_are(
    api: Api, sync: Run, home: str, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ObjectReducer.__init__, "__defaults__", (4096, None))
    robot = api.create(account(team, "theirs", "more"))
    for number, size in enumerate((2000, 1000, 500, 250, 125, 60, 30, 10, 1, 1, 1, 1)):
        api.create(configmap(home, f"a-{number}", data={"a": "x" * size, "b": str(number)}))
    api.create(rule("settings", home, team))
    api.create(pull_secret(home))
    attaching(api, home, team)

    sync()

    assert names(api, robot) == ["theirs", "more", "login"]


def test_a_list_that_the_run_did_not_keep_is_reported_and_stays(
    api: Api, sync: Run, home: str, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ObjectReducer.__init__, "__defaults__", (0, None))
    robot = api.create(account(team, "theirs", "more"))
    api.create(pull_secret(home))
    attaching(api, home, team)

    assert sync().summary == {"created": 1, "unreadable": 1}
    assert names(api, robot) == ["theirs", "more"]


def test_a_name_stays_while_its_copy_cannot_be_read(api: Api, sync: Run, home: str, team: str) -> None:
    robot = api.create(account(team))
    source = api.create(pull_secret(home))
    attaching(api, home, team)
    sync()
    copy = at(team, source)
    finalizers = [f"example.com/{'x' * 60}{number}" for number in range(80)]
    api.patch(copy, {"metadata": {"finalizers": finalizers}})
    try:
        assert sync().summary["unreadable"] == 1
        assert names(api, robot) == ["login"]
    finally:
        api.patch(copy, {"metadata": {"finalizers": None}})


def test_a_service_account_that_is_too_large_fails_no_run(api: Api, sync: Run, home: str, team: str) -> None:
    robot = account(team)
    robot["metadata"]["annotations"] = {"example.com/notes": "x" * 262_120}
    api.create(robot)
    api.create(pull_secret(home))
    attaching(api, home, team)

    ran = sync()

    assert (ran.exit_code, [each["code"] for each in ran.results]) == (0, ["missing", "too-large"])
    assert ready(api, "logins")["reason"] != "Failed"


def test_a_typo_in_attach_to_is_stopped_by_the_brake(api: Api, sync: Run, home: str) -> None:
    robots = [api.create(account(api.namespace(f"team-{number}"))) for number in range(11)]
    api.create(pull_secret(home))
    attaching(api, home, f"*-{api.token}")
    sync()
    api.patch(rule("logins", "", ""), {"spec": {"attachTo": {"serviceAccounts": ["robto"]}}})

    ran = sync()

    assert ran.exit_code == 4
    assert "blocks the removal or change of 11 ServiceAccounts (code still-attached, limit 10)" in ran.stderr
    assert {len(names(api, each)) for each in robots} == {1}
    assert sync("--max-deletes", "11").summary == {"patched": 11, "unchanged": 11}
    assert {len(names(api, each)) for each in robots} == {0}


def test_a_name_that_another_installation_recorded_stays(api: Api, sync: Run, home: str, team: str) -> None:
    robot = account(team, "login", "more")
    robot["metadata"] |= {"annotations": {RECORD: "other/login,other/more"}, "labels": {RECORD: "true"}}
    api.create(robot)
    api.create(pull_secret(home))
    attaching(api, home, team)

    assert sync().summary == {"created": 1, "patched": 1}
    assert record(api, robot) == "kube-chores/login,other/login,other/more"
    api.patch(robot, {"imagePullSecrets": [{"name": "login"}]})
    assert sync().summary == {"unchanged": 1}, "what is not there any more is for the other installation"
    api.patch(robot, {"imagePullSecrets": [{"name": "login"}, {"name": "more"}]})
    api.delete(rule("logins", "", ""))
    sync()
    assert (names(api, robot), record(api, robot)) == (["login", "more"], "other/login,other/more")


def test_without_its_rights_a_rule_names_the_component_and_copies_are_written(
    api: Api, sync: Run, home: str, team: str
) -> None:
    robot = api.create(account(team))
    api.create(pull_secret(home))
    attaching(api, home, team)
    for name in ("pullsecrets", "serviceaccounts"):
        binding = {"metadata": {"name": f"kube-chores-sync-copies-{name}"}}
        api.delete({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", **binding})
    wait_for(lambda: not can_i(api, "sync-copies", "list", "serviceaccounts", ""), "the authorizer to forget the right")

    ran = sync()

    assert (ran.exit_code, ran.summary) == (2, {"created": 1, "unreadable": 1})
    assert "component cronjobs/components/copies/pull-secrets grants the permissions" in str(ran.results)
    assert names(api, robot) == []
    assert ready(api, "logins")["reason"] == "Unreadable"
    assert at(team, pull_secret(home)) and api.get(at(team, pull_secret(home)))

    role = "kube-chores-view-pullsecrets"
    assert f"for a dry run, bind ClusterRole {role}, which component" in str(sync("--dry-run").results)
    bind(api, role, subject("kube-chores", "sync-copies"))
    wait_for(lambda: can_i(api, "sync-copies", "list", "serviceaccounts", ""), "the right of the role")
    assert sync("--dry-run").summary == {"patched": 1, "unchanged": 1}
