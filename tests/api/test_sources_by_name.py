"""Rules that select their sources by name, and copies with another name than their source."""

from typing import Any

import pytest

from tests.api.conftest import Run
from tests.api.test_safety import ready
from tests.apis import Api, Object, wait_for
from tests.worlds import at, by_name, configmap, content, network_policy, rule, secret, service_account


def named(source_namespace: str, to: str | list[str], *names: str, name: str = "named", **spec: Any) -> Object:
    """Return a rule that selects sources by these names only."""
    return by_name(name, source_namespace, to, names=list(names), **spec)


def rows(ran: Any) -> list[tuple[str, str]]:
    return [(each["code"], each["reason"]) for each in ran.report["rows"]]


# names


def test_names_select_sources_without_labels(api: Api, sync: Run, home: str, team: str) -> None:
    for name in ("a", "b", "c"):
        api.create(configmap(home, name, labels={}, data={"is": name}))
    api.create(named(home, team, "a", "c", "absent"))
    api.mark()

    ran = sync()
    assert (ran.exit_code, ran.summary) == (0, {"created": 2, "source-missing": 1})
    condition = ready(api, "named")
    assert (condition["status"], condition["reason"]) == ("False", "SourceMissing")
    missing = f"spec.names: there is no configmap absent in namespace {home}"
    assert condition["message"] == f"{missing} (copies do not count); correct spec.names, or create it"
    assert [bool(api.get(configmap(team, name))) for name in ("a", "b", "c")] == [True, False, True]
    fields = [each.query.get("fieldSelector") for each in api.requests() if each.path.endswith(f"/{home}/configmaps")]
    assert sorted(filter(None, fields)) == ["metadata.name=a", "metadata.name=absent", "metadata.name=c"]
    assert sync().summary == {"unchanged": 2, "source-missing": 1}

    api.patch(configmap(home, "a"), {"data": {"is": "changed"}})
    assert sync().summary == {"configured": 1, "unchanged": 1, "source-missing": 1}
    api.patch(rule("named", "", ""), {"spec": {"names": ["c"]}})
    assert sync().summary == {"deleted": 1, "unchanged": 1}
    api.delete(configmap(home, "c"))
    assert sync().summary == {"deleted": 1, "source-missing": 1}


def test_a_copy_with_the_name_of_a_source_is_a_missing_source_before_and_after_it_is_deleted(
    api: Api, sync: Run, home: str, team: str
) -> None:
    api.create(configmap(home, "a"))
    api.create(named(home, team, "a", name="first"))
    sync()
    api.patch(rule("first", "", ""), {"spec": {"names": ["b"]}})
    api.create(configmap(home, "b"))
    api.create(configmap(team, "c"))
    api.create(named(team, home, "a", "c", name="second"))

    assert sync().summary["deleted"] == 1
    before = api.get(rule("second", "", ""))
    assert before is not None
    assert ready(api, "second")["reason"] == "SourceMissing"
    sync()
    assert api.get(rule("second", "", "")) == before


def test_with_a_selector_a_source_must_match_both(api: Api, sync: Run, home: str, team: str) -> None:
    api.create(secret(home, "both"))
    api.create(secret(home, "named", labels={}))
    api.create(secret(home, "labelled"))
    api.create(rule("things", home, team, ruleType="secret", names=["both", "named"]))

    ran = sync()
    assert ran.summary == {"created": 1, "source-missing": 1}
    assert f"no secret named in namespace {home} with the labels of spec.selector" in ran.stdout
    assert api.get(secret(team, "both"))
    assert rows(sync("--explain", f"{team}/labelled")) == [
        ("not-selected", "spec.names does not have labelled: it is both, named")
    ]
    assert rows(sync("--explain", f"{team}/named")) == [
        (
            "not-selected",
            f"spec.selector does not match secret/named in namespace {home}: "
            "label copyrator is not set and must be true",
        )
    ]


def test_names_in_several_namespaces(api: Api, sync: Run, home: str, team: str) -> None:
    other = api.namespace("other")
    api.create(network_policy(home, "a", labels={}))
    api.create(network_policy(other, "b", labels={}))
    api.create(named(home, team, "a", "b", ruleType="networkpolicy", namespaces=[home, other]))

    assert sync().summary == {"created": 2}
    assert ready(api, "named")["message"] == "2 copies"

    api.create(network_policy(other, "a", labels={}))
    ran = sync()
    assert (ran.exit_code, ran.summary) == (0, {"shadowed": 1, "unchanged": 2})
    assert f"rule named selects a networkpolicy for the same copies in namespace {home}" in ran.stdout


def test_a_rule_whose_names_do_not_exist_selects_nothing_and_the_explanation_names_them(
    api: Api, sync: Run, home: str, team: str
) -> None:
    source = api.create(configmap(home, "real", labels={}))
    api.create(named(home, team, "real"))
    sync()
    api.patch(rule("named", "", ""), {"spec": {"names": ["reel"]}})

    ran = sync()

    assert (ran.exit_code, ran.summary) == (4, {"nothing-selected": 1, "orphan": 1})
    assert ready(api, "named")["reason"] == "NothingSelected"
    assert api.get(at(team, source)), "a typo deletes nothing"
    ((_, why), _) = rows(sync("--explain", team))
    assert "no rule requires this copy" in why
    assert (
        "not-selected",
        "spec.names does not have real: it is reel",
    ) in rows(sync("--explain", f"{team}/real"))


def test_a_name_that_is_never_copied_has_the_reason(api: Api, sync: Run, home: str, team: str) -> None:
    wait_for(lambda: api.get(configmap(home, "kube-root-ca.crt")), "the ConfigMap that each namespace has")
    api.create(named(home, team, "kube-root-ca.crt"))

    assert sync("-v").summary == {"nothing-selected": 1, "skipped": 1}
    assert "(every namespace has its own kube-root-ca.crt)" in ready(api, "named")["message"]


# targetName


def test_copies_have_the_target_name(api: Api, sync: Run, home: str, team: str) -> None:
    source = api.create(configmap(home, "settings-2026", labels={}))
    api.create(named(home, team, "settings-2026", targetName="settings"))

    assert sync().summary == {"created": 1}
    copy = api.read(configmap(team))
    assert content(copy) == content(source)
    assert copy["metadata"]["annotations"]["kubechores.dev/source"] == f"{home}/settings-2026"
    assert sync().summary == {"unchanged": 1}
    assert rows(sync("--explain", f"{team}/settings")) == [("unchanged", f"from {home}/settings-2026")]
    assert rows(sync("--explain", f"{team}/settings-2026")) == [
        ("not-selected", "copies of this rule have the name settings (spec.targetName)")
    ]

    api.patch(rule("named", "", ""), {"spec": {"targetName": "config"}})
    assert sync().summary == {"created": 1, "deleted": 1}
    assert (api.get(configmap(team)), bool(api.get(configmap(team, "config")))) == (None, True)
    api.patch(rule("named", "", ""), {"spec": {"targetName": None}})
    assert sync().summary == {"created": 1, "deleted": 1}
    assert api.get(at(team, source))


def test_a_new_source_under_the_same_target_name_replaces_the_copy(api: Api, sync: Run, home: str, team: str) -> None:
    for year in ("2025", "2026"):
        api.create(configmap(home, f"settings-{year}", labels={}, data={"year": year}))
    api.create(named(home, team, "settings-2025", targetName="settings"))
    sync()

    api.patch(rule("named", "", ""), {"spec": {"names": ["settings-2026"]}})
    ran = sync()

    assert ran.summary == {"configured": 1}
    assert [each["reason"] for each in ran.results] == [
        f"source changed from {home}/settings-2025 to {home}/settings-2026"
    ]
    assert api.read(configmap(team))["data"] == {"year": "2026"}


def test_a_target_name_with_a_selector_that_selects_two_sources_collides(
    api: Api, sync: Run, home: str, team: str
) -> None:
    for name in ("a", "b"):
        api.create(configmap(home, name))
    api.create(rule("things", home, team, targetName="one"))

    ran = sync()

    assert (ran.exit_code, ran.summary) == (2, {"collision": 1})
    assert [each["reason"] for each in ran.results] == [
        f"sources {home}/a and {home}/b have the same target, so none of them is copied; "
        "rule things has a targetName, so it must select one source only"
    ]


@pytest.mark.parametrize(
    ("make", "kind", "target", "why"),
    [
        (configmap, "configmap", "sync-copies-settings", "jobs read their settings from a ConfigMap of this name"),
        (service_account, "serviceaccount", "default", "every namespace has its own ServiceAccount default"),
    ],
)
def test_a_reserved_target_name_is_refused(
    api: Api, sync: Run, make: Any, kind: str, target: str, why: str, home: str, team: str
) -> None:
    source = api.create(make(home, "mine"))
    api.create(rule("things", home, team, ruleType=kind, targetName=target))
    place = {**at(team, source), "metadata": {"name": target, "namespace": team}}
    before = api.get(place)

    ran = sync()

    assert (ran.exit_code, ran.summary) == (0, {"reserved-name": 1})
    assert [each["reason"] for each in ran.results] == [
        f"left untouched: {why}, so {home}/mine is not copied; set another targetName"
    ]
    after = api.get(place) or {"metadata": {}}  # a controller may have created it meanwhile
    assert before in (None, after)
    assert "kubechores.dev/job" not in after["metadata"].get("labels", {})


def test_there_is_no_copy_in_the_namespace_of_the_source_also_under_another_name(
    api: Api, sync: Run, home: str
) -> None:
    api.create(configmap(home))
    api.create(rule("things", home, home, targetName="other"))

    assert sync().summary == {"nothing-selected": 1}
    assert api.get(configmap(home, "other")) is None
    assert rows(sync("--explain", home)) == [("own-namespace", f"{home} is the namespace of the source")]


def test_copies_of_another_name_are_there_before_the_old_ones_are_deleted(api: Api, sync: Run, home: str) -> None:
    teams = [api.namespace(f"team-{number}") for number in range(4)]
    api.create(network_policy(home, "closed"))
    api.create(named(home, f"team-*-{api.token}", "closed", ruleType="networkpolicy", targetName="one"))
    sync()
    api.patch(rule("named", "", ""), {"spec": {"targetName": "two"}})
    api.mark()

    assert sync().summary == {"created": len(teams), "deleted": len(teams)}

    assert [each.method for each in api.copy_writes()] == ["POST"] * len(teams) + ["DELETE"] * len(teams)
