"""The invariants of imagePullSecrets of ServiceAccounts, with constructed histories."""

from pathlib import Path
from typing import Any

import pytest

from soak.history import Key
from soak.invariants.copies import invariants
from soak.tests.story import Story
from soak.tests.test_copies import copied, namespace, rule
from tests.apis import Object

RULE, SECRET = Key("CopyRator", "kube-chores", "settings"), Key("Secret", "source-1", "login")
COPY, ACCOUNT = Key("Secret", "team-1", "login"), Key("ServiceAccount", "team-1", "default")
PULL: Object = {"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "e30="}}
ATTACHED = {"attachTo": {"serviceAccounts": ["default", "build-*"]}}
STAMPS: Object = {"annotations": {"kubechores.dev/source": "source-1/login"}}


def attaching(**spec: Any) -> Object:
    return rule(ruleType="secret", selector={}, names=["login"], **spec)


def account(*names: str, record: str = "") -> Object:
    """A ServiceAccount with these names, and a record of those that the job added."""
    pulls = "kubechores.dev/pull-secrets"
    metadata: Object = {"name": ACCOUNT.name, "namespace": "team-1"}
    if record:
        metadata |= {"labels": {pulls: "true"}, "annotations": {pulls: f"kube-chores/{record}"}}
    return {"metadata": metadata, "imagePullSecrets": [{"name": each} for each in names]}


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """A rule whose copy is attached to ServiceAccounts, 100 s ago."""
    made = Story("sync-copies", tmp_path)
    for name in ("source-1", "team-1"):
        made.past.add(-100, Key("Namespace", "", name), namespace(name))
    made.past.add(-100, SECRET, {"metadata": {"name": "login", "namespace": "source-1"}, **PULL})
    made.past.add(-100, RULE, attaching(**ATTACHED))
    made.past.add(-90, COPY, copied("login", **STAMPS) | PULL)
    return made


def found(story: Story, *, settled: bool = False) -> list[str]:
    return story.violations((each.check for each in invariants()), settled=settled)


def patch(story: Story, before: Object, after: Object) -> list[str]:
    """Let a run patch the ServiceAccount; return what is wrong after the colon."""
    story.past.add(-50, ACCOUNT, before)
    story.write(story.run(0), 2, ACCOUNT, after)
    return [each.partition(": ")[2] for each in found(story)]


def test_a_copy_is_attached_next_to_what_others_added(story: Story) -> None:
    assert patch(story, account("own"), account("own", "login", record="login")) == []
    assert found(story, settled=True) == []


@pytest.mark.parametrize(
    "spec", [{}, {"attachTo": {"serviceAccounts": ["build-*"]}}, {**ATTACHED, "targets": {"exclude": ["team-1"]}}]
)
def test_only_copies_that_a_rule_attaches_are_added(story: Story, spec: Object) -> None:
    story.past.add(-60, RULE, attaching(**spec))
    assert patch(story, account(), account("login", record="login")) == [
        "no rule attached login at any time of the run"
    ]


def test_secrets_of_other_types_are_not_attached(story: Story) -> None:
    story.past.add(-60, SECRET, {"metadata": {"name": "login", "namespace": "source-1"}, "type": "Opaque"})
    assert patch(story, account(), account("login", record="login")) == [
        "no rule attached login at any time of the run"
    ]


@pytest.mark.parametrize("spec", [{}, {"attachTo": {"serviceAccounts": ["build-*"]}}])
def test_a_name_that_no_rule_attaches_is_removed(story: Story, spec: Object) -> None:
    story.past.add(-60, RULE, attaching(**spec))
    assert patch(story, account("own", "login", record="login"), account("own")) == []


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (account("login", record="login"), account(), "it removed login, which a rule attached during the whole run"),
        (account("own", "login"), account("login"), "it removed own, which the job had not added"),
        (account("b", "a"), account("a", "b", "login", record="login"), "it changed the entries of others"),
    ],
)
def test_what_a_rule_attaches_and_what_others_added_stays(
    story: Story, before: Object, after: Object, problem: str
) -> None:
    assert patch(story, before, after) == [problem]


@pytest.mark.parametrize(
    ("spec", "there", "violation"),
    [
        (ATTACHED, account("own"), "lacks login, which a rule attaches"),
        ({}, account("login", record="login"), "has login, which no rule attaches"),
    ],
)
def test_service_accounts_are_changed_within_two_runs(
    story: Story, spec: Object, there: Object, violation: str
) -> None:
    story.past.add(-60, RULE, attaching(**spec))
    story.past.add(-50, ACCOUNT, there)
    story.run(0)
    assert found(story) == []

    story.run(60)
    assert found(story) == [f"serviceaccount/default in team-1 {violation}"]
    assert found(story, settled=True) == [f"serviceaccount/default in team-1 {violation}"]


@pytest.mark.parametrize(("exit_code", "number"), [(0, 1), (4, 0)])
def test_a_name_stays_while_the_brake_may_block_that_it_is_removed(story: Story, exit_code: int, number: int) -> None:
    story.past.add(-60, RULE, attaching())
    story.past.add(-50, ACCOUNT, account("login", record="login"))
    for seconds in (0, 60):
        story.run(seconds, exit_code)

    assert len([each for each in found(story) if "which no rule attaches" in each]) == number


def test_the_name_of_a_retained_copy_may_stay(story: Story) -> None:
    story.past.add(-60, SECRET, None)
    story.past.add(-60, RULE, attaching(orphans="Retain", **ATTACHED))
    story.past.add(-50, ACCOUNT, account("login", record="login"))

    assert found(story, settled=True) == []


@pytest.mark.parametrize(("number", "violations"), [(10, 0), (11, 1)])
def test_a_run_removes_the_name_of_a_copy_that_stays_from_at_most_ten(
    story: Story, number: int, violations: int
) -> None:
    story.past.add(-60, RULE, attaching())
    keys = [ACCOUNT._replace(name=f"build-{each}") for each in range(number)]
    for key in keys:
        story.past.add(-50, key, account("login", record="login"))
    run = story.run(0)
    for key in keys:
        story.write(run, 2, key, account())

    assert found(story) == [f"{run.pod} removed names from {number} objects of kind ServiceAccount"] * violations


def test_the_brake_counts_no_names_of_copies_that_go(story: Story) -> None:
    story.past.add(-60, RULE, None)
    run = story.run(0)
    for number in range(11):
        key = ACCOUNT._replace(name=f"build-{number}")
        story.past.add(-50, key, account("login", record="login"))
        story.write(run, 2, key, account())

    assert found(story) == []


def test_the_brake_counts_names_and_copies_of_service_accounts_apart(story: Story) -> None:
    story.past.add(-60, RULE, attaching())
    run = story.run(0)
    for number in range(7):
        key = ACCOUNT._replace(name=f"build-{number}")
        story.past.add(-50, key, account("login", record="login"))
        story.write(run, 2, key, account())
    for number in range(4):
        key = ACCOUNT._replace(name=f"robot-{number}")
        story.past.add(-50, key, copied(key.name, **STAMPS))
        story.write(run, 3, key, None)

    assert not any("11" in each for each in found(story))


def test_copies_of_service_accounts_do_not_count_as_changed_names(story: Story) -> None:
    run = story.run(0)
    for number in range(11):
        key = ACCOUNT._replace(name=f"robot-{number}")
        made = copied(key.name)
        story.past.add(-50, key, made | {"imagePullSecrets": [{"name": "login"}]})
        story.write(run, 2, key, made | {"imagePullSecrets": []})

    assert not any("removed names" in each for each in found(story))


@pytest.mark.parametrize(("number", "violations"), [(11, 0), (10, 1)])
def test_more_names_to_remove_are_the_reason_of_a_run_that_the_brake_stopped(
    story: Story, number: int, violations: int
) -> None:
    story.past.add(-60, RULE, attaching())
    for each in range(number):
        story.past.add(-50, ACCOUNT._replace(name=f"build-{each}"), account("login", record="login"))
    story.past.add(-1, Key("Pod", "kube-chores", "any"), {"metadata": {}})
    story.run(0, 4)

    assert len(found(story)) == violations
