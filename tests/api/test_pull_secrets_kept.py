"""Names in imagePullSecrets that stay, and ServiceAccounts that stay as they are: spec.attachTo of rules."""

from collections.abc import Callable
from typing import Any

import pytest

from jobs.core.sync_copies import observe, observe_accounts
from tests.api.conftest import Run
from tests.api.test_explain import rows
from tests.api.test_pull_secrets import RECORD, account, attaching, names, record
from tests.api.test_safety import ready
from tests.apis import Api
from tests.worlds import pull_secret, rule

TYPO = {"matchLabels": {"copyrator": "typo"}}


def after_reads(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Make a change once, after a run read the ServiceAccounts and before it writes."""
    read, changes = vars(observe)["attached_accounts"], [change]

    def accounts(*arguments: Any) -> Any:
        found = read(*arguments)
        if changes:
            changes.pop()()
        return found

    monkeypatch.setattr(observe, "attached_accounts", accounts)


@pytest.mark.parametrize("is_copied", [True, False], ids=["the copy exists", "the run creates the copy"])
def test_a_change_by_others_between_read_and_write_is_not_lost(
    api: Api, sync: Run, home: str, team: str, monkeypatch: pytest.MonkeyPatch, is_copied: bool
) -> None:
    api.create(pull_secret(home))
    attaching(api, home, team)
    if is_copied:
        sync()
    robot = api.create(account(team))
    after_reads(monkeypatch, lambda: api.patch(robot, {"imagePullSecrets": [{"name": "theirs"}]}))

    ran = sync()

    assert names(api, robot) == ["theirs", "login"]
    assert (ran.exit_code, ran.summary["patched"]) == (0, 1)


def test_a_service_account_that_is_deleted_between_read_and_write_is_skipped(
    api: Api, sync: Run, home: str, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.create(pull_secret(home))
    attaching(api, home, team)
    sync()
    robot = api.create(account(team))
    after_reads(monkeypatch, lambda: api.delete(robot))

    ran = sync()

    (result,) = ran.results
    assert (ran.exit_code, result["outcome"], result["message"]) == (0, "skipped", "does not exist")
    assert ready(api, "logins")["reason"] == "Synced"


def test_names_stay_with_a_copy_that_is_retained(api: Api, sync: Run, home: str, team: str) -> None:
    robot = api.create(account(team))
    api.create(pull_secret(home))
    attaching(api, home, team, orphans="Retain")
    sync()
    api.patch(rule("logins", "", ""), {"spec": {"selector": TYPO}})
    assert sync("-v").exit_code == 0
    assert names(api, robot) == ["login"]
    api.delete(rule("logins", "", ""))
    sync()
    assert names(api, robot) == ["login"]


def test_names_stay_with_a_copy_whose_rule_may_be_mistaken(api: Api, sync: Run, home: str, team: str) -> None:
    robot = api.create(account(team))
    api.create(pull_secret(home))
    attaching(api, home, team)
    sync()
    api.patch(rule("logins", "", ""), {"spec": {"selector": TYPO}})

    assert (sync().exit_code, names(api, robot)) == (4, ["login"])
    assert sync("--max-deletes", "1").summary == {"deleted": 1, "patched": 1, "nothing-selected": 1}
    assert names(api, robot) == []


def test_a_run_of_one_rule_removes_no_name_of_another(api: Api, sync: Run, home: str, team: str) -> None:
    robot = api.create(account(team))
    for name in ("a", "b"):
        api.create(pull_secret(home, name, labels={"app": name}))
        attaching(api, home, team, f"rule-{name}", selector={"matchLabels": {"app": name}})
    sync()
    api.delete(rule("rule-b", "", ""))

    assert sync("--rule-name", "rule-a").summary == {"unchanged": 1}
    assert names(api, robot) == ["a", "b"]
    (row,) = rows(sync("--rule-name", "rule-a", "--explain", team))
    assert (row["rule"], row["code"]) == ("rule-a", "unchanged")
    sync()
    assert names(api, robot) == ["a"]


def test_a_run_that_could_not_read_a_rule_removes_no_name(api: Api, sync: Run, home: str, team: str) -> None:
    robot = api.create(account(team))
    api.create(pull_secret(home))
    attaching(api, home, team)
    sync()
    api.delete(rule("logins", "", ""))
    invalid = api.create(rule("odd", home, team, metadata={"labels": {"helm.sh/chart": "x"}}))

    assert sync().summary == {"invalid": 1}
    assert names(api, robot) == ["login"]
    api.delete(invalid)
    sync()
    assert names(api, robot) == []


def test_a_terminating_service_account_is_left_alone(api: Api, sync: Run, home: str, team: str) -> None:
    robot = account(team)
    robot["metadata"]["finalizers"] = ["example.com/protected"]
    api.create(robot)
    api.delete(robot)
    api.create(pull_secret(home))
    attaching(api, home, team)

    assert sync().summary == {"created": 1}
    assert names(api, robot) == []


def test_a_service_account_with_a_long_list_is_reported_and_left_alone(
    api: Api, sync: Run, home: str, team: str
) -> None:
    theirs = [f"{'n' * 60}-{number}" for number in range(260)]
    robot = api.create(account(team, *theirs))
    api.create(pull_secret(home))
    attaching(api, home, team)

    ran = sync()

    assert ran.summary == {"created": 1, "unreadable": 1}
    assert "its imagePullSecrets are not read: they have more than 16 KiB" in str(ran.results)
    assert (names(api, robot), record(api, robot)) == (theirs, None)


def test_an_explanation_has_service_accounts_that_are_not_as_desired(api: Api, sync: Run, home: str, team: str) -> None:
    api.create(pull_secret(home))
    attaching(api, home, team)
    sync()
    api.create(account(team))

    ran = sync("--explain", team)

    assert {row["code"]: row["reason"] for row in rows(ran)} == {
        "unchanged": f"from {home}/login",
        "not-attached": "imagePullSecrets lacks login: the next run patches it",
    }
    assert ran.report["summary"] == "1 of 1 copies are as desired (1 rule in namespace kube-chores)"

    sync()
    api.patch(rule("logins", "", ""), {"spec": {"attachTo": None}})
    (copy, left) = rows(sync("--explain", team))
    assert (copy["code"], left["code"], left["object"]["name"]) == ("unchanged", "still-attached", "robot")


def test_a_renamed_copy_is_there_before_the_other_name_goes(api: Api, sync: Run, home: str, team: str) -> None:
    robot = api.create(account(team))
    api.create(pull_secret(home))
    made = attaching(api, home, team, targetName="login")
    sync()
    api.patch(made, {"spec": {"targetName": "fresh"}})

    assert sync().summary == {"created": 1, "deleted": 1, "patched": 1}
    assert names(api, robot) == ["fresh"]
    assert sync().summary == {"unchanged": 1}


def test_a_patch_that_also_adds_a_name_is_braked_like_another_removal(
    api: Api, sync: Run, home: str, team: str
) -> None:
    robots = [api.create(account(team, name=f"build-{number}")) for number in range(11)]
    api.create(pull_secret(home))
    made = attaching(api, home, team)
    sync()
    api.create(pull_secret(home, "second", labels={"second": "true"}))
    attaching(api, home, team, "others", selector={"matchLabels": {"second": "true"}})
    api.patch(made, {"spec": {"attachTo": {"serviceAccounts": ["typo"]}}})

    assert sync().exit_code == 4
    assert {tuple(names(api, each)) for each in robots} == {("login",)}
    assert ready(api, "logins")["reason"] == "DeletionsBlocked"


def test_one_namespace_does_not_use_up_the_memory_of_others(
    api: Api, sync: Run, home: str, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenant = api.namespace("a-tenant")
    for number in range(4):
        api.create(account(tenant, *(f"{number}-{'n' * 60}-{each}" for each in range(20)), name=f"build-{number}"))
    robot = api.create(account(team))
    api.create(pull_secret(home))
    attaching(api, home, team, targets={"include": [team, tenant]})
    monkeypatch.setattr(observe_accounts, "_LONGEST_OF_NAMESPACE", 4096)

    ran = sync()

    assert ran.summary == {"created": 2, "patched": 3, "unreadable": 2}
    assert "together with those before it in its namespace" in str(ran.results)
    assert names(api, robot) == ["login"]


def test_a_record_without_its_label_removes_no_name_of_others(api: Api, sync: Run, home: str, team: str) -> None:
    robot = account(team, "theirs")
    robot["metadata"]["annotations"] = {RECORD: "kube-chores/theirs"}
    api.create(robot)
    api.create(pull_secret(home))
    attaching(api, home, team)

    assert sync().summary == {"created": 1, "patched": 1}
    assert (names(api, robot), record(api, robot)) == (["theirs", "login"], "kube-chores/login")
