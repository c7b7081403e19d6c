"""A mistake in a rule deletes no copy, and users can confirm a deletion; on both API servers."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.conftest import Ran, Run
from tests.apis import Api, ApiError, ready_of, wait_for
from tests.conftest import Chores
from tests.worlds import at, configmap, content, namespace_object, rule, secret

Object = dict[str, Any]
COPIES = 3


class Installation:
    """One rule with three copies, and an unrelated rule."""

    def __init__(self, api: Api, sync: Run, kind: str = "configmap") -> None:
        self.api, self.sync = api, sync
        self.home = api.namespace("home")
        self.teams = [api.namespace(f"team-{number}") for number in range(COPIES)]
        self.other = api.namespace("bystander")
        self.source = api.create((secret if kind == "secret" else configmap)(self.home))
        self.rule = api.create(rule("logins", self.home, f"team-*-{api.token}", ruleType=kind))
        self.bystander = api.create(configmap(self.home, "bystander", labels={"app": "other"}))
        api.create(rule("other", self.home, self.other, selector={"matchLabels": {"app": "other"}}))
        assert sync().summary == {"created": COPIES + 1}

    def edit(self, **spec: Any) -> None:
        """Change the spec of the rule."""
        self.api.patch(self.rule, {"spec": spec})

    def ready(self, name: str = "logins") -> Object:
        """Return the Ready condition of a rule."""
        found = self.api.read(rule(name, "", ""))
        condition = ready_of(found["status"]["conditions"])
        return dict(condition)

    def copies(self) -> int:
        """Return how many copies of the rule exist."""
        return sum(self.api.get(at(team, self.source)) is not None for team in self.teams)

    def assert_copies_stay(self, reason: str, code: str, copies: int = COPIES) -> Ran:
        """Assert that no run deletes or writes a copy, and that the run and the rule's status report the reason."""
        ran = self.sync()
        assert (ran.exit_code, ran.summary) == (4, {"orphan": copies, code: 1, "unchanged": 1}), ran
        assert self.copies() == copies
        condition = self.ready()
        assert (condition["status"], condition["reason"]) == ("False", reason)
        assert self.ready("other")["status"] == "True"
        assert "correct or delete these rules" in ran.stderr
        self.api.mark()
        assert self.sync().exit_code == 4
        assert self.api.writes() == []
        return ran


@pytest.fixture
def small(api: Api, sync: Run) -> Installation:
    """Return an installation with ConfigMaps only."""
    return Installation(api, sync)


# mistakes


def test_a_source_namespace_that_does_not_exist_deletes_nothing(small: Installation) -> None:
    small.edit(namespaces=["platfrom"])

    ran = small.assert_copies_stay("SourceNamespaceMissing", "source-namespace-missing")

    message = (
        "source namespace platfrom does not exist; none of the rule's copies is deleted; correct or delete the rule"
    )
    assert small.ready()["message"] == message
    rules = "logins (source namespace platfrom does not exist); correct or delete these rules"
    assert f"rules that may be mistaken block the deletion of 3 copies: {rules}" in ran.stderr
    small.edit(namespaces=[small.home])
    small.api.mark()
    assert small.sync().summary == {"unchanged": COPIES + 1}
    assert small.api.copy_writes() == []
    assert small.ready()["status"] == "True"


def test_a_mistyped_selector_or_target_deletes_nothing(small: Installation) -> None:
    correct: Object = {"selector": {"matchLabels": {"copyrator": "true"}}, "targets": small.rule["spec"]["targets"]}
    for mistake, message in (
        (
            {"selector": {"matchLabels": {"copyrator": "treu"}}},
            f"selects no configmap to copy in namespace {small.home}",
        ),
        ({"targets": {"include": ["taem-*"]}}, "spec.targets selects no namespace"),
        ({"targets": {"include": [small.home]}}, "spec.targets selects only the namespace of the source"),
    ):
        small.edit(**mistake)
        small.assert_copies_stay("NothingSelected", "nothing-selected")
        assert small.ready()["message"].startswith(message)
        small.edit(**correct)
        assert small.sync().summary == {"unchanged": COPIES + 1}


def test_a_source_namespace_that_is_terminating_or_deleted_deletes_no_copy(api: Api, sync: Run) -> None:
    installation = Installation(api, sync)
    last = api.create(configmap(installation.home, "last", labels={}))
    api.patch(last, {"metadata": {"finalizers": ["example.com/slow"]}})
    namespace = namespace_object(installation.home)
    api.delete(namespace)
    wait_for(lambda: api.get(installation.source) is None, "the source to be deleted")

    ran = sync()

    assert ran.exit_code == 4
    assert installation.copies() == COPIES
    assert installation.ready()["message"].startswith(f"source namespace {installation.home} is being deleted; ")
    api.patch(last, {"metadata": {"finalizers": None}})
    wait_for(lambda: api.get(namespace) is None, "the namespace to be deleted")
    assert sync().exit_code == 4
    assert installation.copies() == COPIES
    assert installation.ready()["message"].startswith(f"source namespace {installation.home} does not exist; ")


def test_a_source_namespace_that_is_recreated_between_two_runs_deletes_no_copy(small: Installation) -> None:
    api, namespace = small.api, namespace_object(small.home)
    api.delete(namespace)
    wait_for(lambda: api.get(namespace) is None, "the namespace to be deleted")
    api.create(namespace)

    ran = small.sync()

    assert (ran.exit_code, ran.summary) == (4, {"orphan": COPIES + 1, "source-namespace-recreated": 2})
    assert small.copies() == COPIES
    assert small.ready()["reason"] == "SourceNamespaceRecreated"
    api.mark()
    assert small.sync("--rule-name", "logins").exit_code == 0, "it does not decide about orphans"
    assert small.sync().exit_code == 4
    assert api.copy_writes() == []

    api.create(configmap(small.home, "bystander", labels={"app": "other"}))
    ran = small.sync()
    assert (ran.exit_code, ran.summary) == (4, {"orphan": COPIES, "configured": 1, "source-namespace-recreated": 1})
    assert small.ready("other")["reason"] == "Synced"
    api.create(configmap(small.home))
    assert small.sync().summary == {"configured": COPIES, "unchanged": 1}

    api.delete(configmap(small.home))
    assert small.sync().summary == {"deleted": COPIES, "unchanged": 1}


def test_copies_of_a_recreated_source_namespace_can_be_withdrawn(small: Installation) -> None:
    api, namespace = small.api, namespace_object(small.home)
    api.delete(namespace)
    wait_for(lambda: api.get(namespace) is None, "the namespace to be deleted")
    api.create(namespace)
    assert small.sync().exit_code == 4

    assert small.sync("--max-deletes", "4").summary == {"deleted": COPIES + 1}
    assert small.sync().exit_code == 0


def test_a_recreated_source_namespace_keeps_no_copies_of_sources_in_others(small: Installation) -> None:
    api, namespace, annex = small.api, namespace_object(small.home), small.api.namespace("annex")
    theme = api.create(configmap(annex, "theme"))
    small.edit(namespaces=[small.home, annex])
    assert small.sync().summary["created"] == COPIES
    api.delete(namespace)
    wait_for(lambda: api.get(namespace) is None, "the namespace to be deleted")
    api.create(namespace)
    api.delete(theme)

    small.edit(selector={"matchLabels": {"app": "mistyped"}})
    assert small.sync().summary["orphan"] == 2 * COPIES + 1, "the rule selects nothing, so all its copies stay"
    small.edit(selector={"matchLabels": {"app": None, "copyrator": "true"}})
    api.create(configmap(annex, "more"))

    ran = small.sync()

    assert (ran.exit_code, ran.summary["deleted"], ran.summary["orphan"]) == (4, COPIES, COPIES + 1)
    api.create(configmap(small.home))
    api.create(configmap(small.home, "bystander", labels={"app": "other"}))
    assert small.sync().exit_code == 0


def test_a_rule_with_one_missing_namespace_of_two_keeps_all_its_copies(small: Installation) -> None:
    api = small.api
    annex = api.namespace("annex")
    api.create(configmap(annex, "theme"))
    small.edit(namespaces=[small.home, annex])
    assert small.sync().summary["created"] == COPIES
    small.edit(namespaces=[small.home, "anex"])

    ran = small.sync()

    assert ran.exit_code == 4
    assert ran.summary == {"orphan": COPIES, "source-namespace-missing": 1, "unchanged": COPIES + 1}
    assert small.copies() == COPIES
    api.patch(small.source, {"data": {"a": "new"}})
    assert small.sync().summary["configured"] == COPIES, "sources that can be read are still copied"


def test_a_lost_status_deletes_nothing(small: Installation) -> None:
    small.api.patch_status(small.rule, None)
    small.api.delete(small.source)

    small.assert_copies_stay("NothingSelected", "nothing-selected")


def test_a_status_that_is_restored_with_a_recreated_rule_does_not_count(small: Installation) -> None:
    before = small.api.get(small.rule)
    assert before and before["status"]["selectedGeneration"] == before["metadata"]["generation"] == 1
    small.api.delete(small.rule)
    small.rule = small.api.create(rule("logins", "platfrom", f"team-*-{small.api.token}"))
    small.api.patch(small.rule, {"spec": {"namespaces": [small.home], "selector": {"matchLabels": {"app": "typo"}}}})
    small.api.patch_status(small.rule, {**before["status"], "selectedGeneration": 2})

    small.assert_copies_stay("NothingSelected", "nothing-selected")


@pytest.mark.parametrize(
    ("recorded", "reason"),
    [(True, "SourceNamespaceRecreated"), (False, "NothingSelected")],
    ids=["recorded", "older-version"],
)
def test_a_source_namespace_that_is_recreated_empty_takes_no_copy_along(
    small: Installation, recorded: bool, reason: str
) -> None:
    api = small.api
    if not recorded:
        api.patch_status(small.rule, {"sourceNamespaces": None})
    namespace = namespace_object(small.home)
    api.delete(namespace)
    wait_for(lambda: api.get(namespace) is None, "the namespace to be deleted")
    assert small.sync().exit_code == 4

    api.create(namespace)
    again = small.sync()

    assert again.exit_code == 4
    assert small.copies() == COPIES
    assert small.ready()["reason"] == reason
    api.create(configmap(small.home))
    assert small.sync().summary["configured"] == COPIES
    api.delete(small.source)
    assert small.sync().summary["deleted"] == COPIES


def test_a_selector_that_selects_only_what_is_never_copied_deletes_nothing(api: Api, sync: Run) -> None:
    installation = Installation(api, sync, "secret")
    owner = {"kubernetes.io/service-account.name": "ci"}
    token = secret(installation.home, "token", labels={"app": "ci"}, type="kubernetes.io/service-account-token")
    token["metadata"]["annotations"] = owner
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "ci", "namespace": installation.home}}
    api.create(account)
    api.create(token)
    installation.edit(selector={"matchLabels": {"copyrator": None, "app": "ci"}})

    installation.assert_copies_stay("NothingSelected", "nothing-selected")


def test_a_rule_whose_only_target_did_not_opt_in_deletes_nothing_elsewhere(small: Installation) -> None:
    small.edit(targets={"include": ["kube-public"]})

    ran = small.sync()

    assert (ran.exit_code, ran.summary["orphan"], small.copies()) == (4, COPIES, COPIES)
    assert small.ready()["reason"] == "NamespaceNotOptedIn"
    assert (small.sync().exit_code, small.copies()) == (4, COPIES)


def test_copies_of_a_deleted_rule_stay_if_a_mistaken_one_may_select_them(small: Installation) -> None:
    mistake = {"namespaces": ["platfrom"]}
    other = rule("renamed", small.home, f"team-*-{small.api.token}")
    other = small.api.create({**other, "spec": other["spec"] | mistake})
    assert small.sync().exit_code == 0
    small.api.delete(small.rule)

    ran = small.sync()

    assert (ran.exit_code, small.copies()) == (4, COPIES)
    assert "rules that may be mistaken block the deletion of 3 copies: renamed (" in ran.stderr
    small.api.patch(other, {"spec": rule("renamed", small.home, f"team-*-{small.api.token}")["spec"]})
    assert small.sync().summary == {"configured": COPIES, "unchanged": 1}


def test_a_new_rule_that_selects_nothing_does_not_block_deletions_of_other_copies(small: Installation) -> None:
    early = rule("early", small.home, f"team-*-{small.api.token}", selector={"matchLabels": {"app": "later"}})
    elsewhere = rule("elsewhere", small.other, small.home, selector={"matchLabels": {"app": "later"}})
    small.api.create(early)
    small.api.create(elsewhere)
    small.api.delete(small.source)

    assert small.sync().summary == {"deleted": COPIES, "nothing-selected": 2, "unchanged": 1}

    small.api.delete(early)
    small.api.delete(rule("other", "", ""))
    assert small.sync().summary == {"deleted": 1, "nothing-selected": 1}


def test_a_copy_does_not_change_its_source_while_its_rule_may_be_mistaken(small: Installation) -> None:
    api = small.api
    annex = api.namespace("annex")
    api.create(configmap(annex, data={"a": "another"}))
    before = api.get(at(small.teams[0], small.source))
    small.edit(namespaces=["platfrom"])
    api.create(rule("second", annex, small.teams[0]))

    ran = small.sync()

    assert ran.summary["unreadable"] == 1
    assert api.get(at(small.teams[0], small.source)) == before
    api.delete(small.rule)
    assert small.sync("--max-deletes", "10").summary["configured"] == 1


# intended deletions


def test_the_printed_command_deletes_the_copies_of_a_mistaken_rule_once(
    small: Installation, chores: Chores, installed: Path
) -> None:
    small.edit(namespaces=["platfrom"])
    command = small.sync().stderr.strip().splitlines()[-1].split()

    assert (command[0], command[-2:]) == ("chores", ["--max-deletes", "3"])
    done = chores(*command[1:], kubeconfig=installed)

    assert done.returncode == 0, done.stderr
    assert "3 deleted" in done.stdout
    assert small.copies() == 0
    after = small.sync()
    assert (after.exit_code, after.summary) == (0, {"source-namespace-missing": 1, "unchanged": 1})
    assert small.ready()["reason"] == "SourceNamespaceMissing"


def test_the_printed_number_counts_the_other_deletions_too(small: Installation) -> None:
    small.edit(namespaces=["platfrom"])
    small.api.delete(small.bystander)

    blocked = small.sync("--dry-run")

    assert blocked.summary == {"orphan": COPIES, "deleted": 1, "source-namespace-missing": 1}
    assert blocked.stderr.strip().endswith("--max-deletes 4")
    limited = small.sync("--max-deletes", "3")
    assert (limited.exit_code, small.copies()) == (4, COPIES)
    assert limited.stderr.strip().endswith("--max-deletes 4")
    assert limited.summary["deleted"] == 1, "the copy of the other rule"
    assert small.sync("--max-deletes", "4").summary == {"deleted": COPIES, "source-namespace-missing": 1}


def test_a_deleted_rule_withdraws_its_copies_although_it_was_mistaken(small: Installation) -> None:
    small.edit(namespaces=["platfrom"])
    small.assert_copies_stay("SourceNamespaceMissing", "source-namespace-missing")
    small.api.delete(small.rule)

    assert small.sync().summary == {"deleted": COPIES, "unchanged": 1}


def test_an_opt_out_deletes_its_copy_although_the_rule_may_be_mistaken(small: Installation) -> None:
    small.edit(namespaces=["platfrom"])
    _opt_out(small.api, small.teams[0])

    ran = small.sync()

    assert (ran.exit_code, ran.summary["deleted"], ran.summary["orphan"]) == (4, 1, COPIES - 1)
    assert small.api.get(at(small.teams[0], small.source)) is None


def test_a_new_rule_that_selects_nothing_is_reported_and_exits_0(api: Api, sync: Run, home: str, team: str) -> None:
    api.create(rule("early", home, team))

    ran = sync()

    assert (ran.exit_code, ran.summary) == (0, {"nothing-selected": 1})
    assert sync("--check").exit_code == 3
    found = api.get(rule("early", "", ""))
    assert found and found["status"]["conditions"][0]["reason"] == "NothingSelected"
    api.create(configmap(home))
    assert sync().summary == {"created": 1}
    api.delete(configmap(home))
    assert sync().summary == {"deleted": 1}
    found = api.read(rule("early", "", ""))["status"]["conditions"][0]
    assert (found["reason"], found["message"]) == ("Synced", "0 copies")


def test_copies_that_rules_retain_are_not_an_error(api: Api, sync: Run) -> None:
    installation = Installation(api, sync)
    installation.edit(orphans="Retain")
    sync()
    installation.edit(namespaces=["platfrom"])

    ran = sync()

    assert (ran.exit_code, ran.summary) == (0, {"source-namespace-missing": 1, "unchanged": 1})
    assert installation.copies() == COPIES


# rules that are renamed, changed, or share a copy


def test_the_type_of_a_rule_cannot_be_changed(small: Installation) -> None:
    with pytest.raises(ApiError, match="cannot be changed: create another rule, and delete this one"):
        small.edit(ruleType="secret")


def test_a_copy_that_another_rule_requires_too_becomes_a_copy_of_that_rule(small: Installation) -> None:
    api = small.api
    api.create(rule("second", small.home, small.teams[0]))
    assert small.sync().summary == {"unchanged": COPIES + 1}
    small.edit(namespaces=["platfrom"])

    ran = small.sync()

    assert (ran.exit_code, ran.summary["configured"], ran.summary["orphan"]) == (4, 1, COPIES - 1)
    assert content(api.get(at(small.teams[0], small.source))) == content(small.source)


# runs for some rules only


def test_a_run_for_one_rule_reports_that_it_may_be_mistaken_and_deletes_nothing(small: Installation) -> None:
    small.edit(namespaces=["platfrom"])

    assert small.sync("--rule-name", "other").summary == {"unchanged": 1}
    ran = small.sync("--rule-name", "logins")

    assert (ran.exit_code, ran.summary) == (0, {"source-namespace-missing": 1})
    assert small.ready()["reason"] == "SourceNamespaceMissing"
    small.api.mark()
    assert small.sync().exit_code == 4
    assert small.api.writes() == [], "both kinds of run write the same status"
    assert small.sync("--rule-name", "logins", "--max-deletes", "9").exit_code == 0
    assert small.copies() == COPIES


def test_a_rule_of_a_file_that_selects_nothing_is_reported(small: Installation, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    tried = [rule("a", small.home, "taem-*"), rule("b", "platfrom", "team-*")]
    file.write_text(yaml.safe_dump_all(tried))

    ran = small.sync("-f", str(file))

    assert (ran.exit_code, ran.summary) == (0, {"nothing-selected": 1, "source-namespace-missing": 1})
    assert small.sync("-f", str(file), "--check").exit_code == 3


# limits of the brake


def test_forged_stamps_do_not_raise_what_the_brake_allows(api: Api, sync: Run) -> None:
    home, tenant = api.namespace("home"), api.namespace("tenant")
    teams = [api.namespace(f"team-{number}") for number in range(4)]
    for number in range(5):
        api.create(configmap(home, f"settings-{number}"))
    api.create(rule("rule", home, f"team-*-{api.token}"))
    assert sync().summary == {"created": 20}
    for number in range(110):
        api.create(_forged(api.get(at(teams[0], configmap("", "settings-0"))), tenant, f"forged-{number}"))
    for number in range(3):
        api.delete(configmap(home, f"settings-{number}"))

    ran = sync()

    assert ran.exit_code == 4
    assert ran.summary == {"orphan": 12, "unchanged": 8}
    assert "12 ConfigMaps (code orphan, limit 10); none of them is deleted" in ran.stderr


def test_opt_outs_have_an_allowance_of_their_own(api: Api, sync: Run, home: str) -> None:
    leavers = [api.namespace(f"team-{number}") for number in range(11)]
    stays = api.namespace("team-stays")
    source, moved = api.create(configmap(home)), api.create(configmap(home, "moved"))
    api.create(rule("rule", home, f"team-*-{api.token}"))
    api.create(rule("moved", home, stays, selector={"matchLabels": {"app": "moved"}}))
    api.patch(moved, {"metadata": {"labels": {"copyrator": None, "app": "moved"}}})
    assert sync().summary == {"created": 13}
    for namespace in leavers:
        _opt_out(api, namespace)
    api.delete(moved)

    ran = sync()

    assert (ran.exit_code, ran.summary) == (4, {"deleted": 1, "opted-out": 11, "unchanged": 1})
    assert api.get(at(stays, moved)) is None
    assert all(api.get(at(namespace, source)) for namespace in leavers)
    assert sync("--max-deletes", "11").summary == {"deleted": 11, "unchanged": 1}


# kube-* namespaces


def test_a_kube_namespace_receives_copies_once_it_opted_in(api: Api, sync: Run, home: str) -> None:
    source = api.create(configmap(home, f"settings-{api.token}"))
    api.create(rule("system", home, ["kube-public"]))
    public = namespace_object("kube-public")

    refused = sync()

    assert (refused.exit_code, refused.summary) == (2, {"not-opted-in": 1, "nothing-selected": 1})
    assert 'kube-public did not opt in; annotate it with kubechores.dev/copies: "true"' in refused.results[0]["reason"]
    assert api.get(at("kube-public", source)) is None
    try:
        api.patch(public, {"metadata": {"annotations": {"kubechores.dev/copies": "True"}}})
        found = {each["code"]: each["reason"] for each in sync().results}
        assert found["invalid"].endswith('is "True", which has no effect; set it to "true"')
        assert "not-opted-in" in found, "the admission policy compares with exactly true"
        api.patch(public, {"metadata": {"annotations": {"kubechores.dev/copies": "true"}}})
        assert sync().summary == {"created": 1}
        api.patch(public, {"metadata": {"annotations": {"kubechores.dev/copies": None}}})
        assert sync().summary == {"not-opted-in": 1}
        assert api.get(at("kube-public", source)), "a copy of an earlier release stays"
        api.delete(source)
        assert sync().summary == {"deleted": 1}
    finally:
        api.patch(public, {"metadata": {"annotations": {"kubechores.dev/copies": None}}})


def _opt_out(api: Api, namespace: str) -> None:
    api.patch(namespace_object(namespace), {"metadata": {"annotations": {"kubechores.dev/copies": "false"}}})


def _forged(copy: Object | None, namespace: str, name: str) -> Object:
    """Return the object that a tenant creates from a copy that it can read."""
    assert copy
    metadata = {key: copy["metadata"][key] for key in ("labels", "annotations")}
    annotations = {
        **metadata["annotations"],
        "kubechores.dev/orphans": "Retain",
        "kubechores.dev/rule": "kube-chores/x",
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": metadata["labels"], "annotations": annotations},
    }
