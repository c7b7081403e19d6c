"""Rules that copy some keys of their sources, or copy them under other names."""

import base64
from typing import Any

from tests.api.conftest import Run
from tests.api.test_safety import ready
from tests.apis import Api, Object
from tests.canary import canary
from tests.worlds import at, configmap, content, encoded, namespace_object, rule, secret

PAIR = ("tls.crt", "tls.key")
CORRECT = "correct the source, or spec.keys of the rule"


def keyed(home: str, *keys: str, name: str = "login", **fields: Any) -> Object:
    """Return a Secret with a value for each of these keys."""
    return secret(home, name, data={key: encoded(canary()) for key in keys}, **fields)


def rule_with(api: Api, home: str, team: str, name: str = "logins", *, kind: str = "secret", **keys: Any) -> Object:
    return api.create(rule(name, home, team, ruleType=kind, keys=keys))


def with_keys(api: Api, name: str = "logins", **keys: Any) -> None:
    """Set spec.keys of a rule; the fields that are not given are removed."""
    api.patch(rule(name, "", ""), {"spec": {"keys": {"include": None, "rename": None, **keys}}})


def test_a_copy_has_the_chosen_keys_under_their_names(api: Api, sync: Run, home: str, team: str) -> None:
    everything = {key: key for key in ("tls.crt", "tls.key", "ca.crt", "user1")}
    pair = {"tls.crt": "tls.crt", "tls.key": "tls.key"}
    cases: dict[str, tuple[Object, dict[str, str]]] = {
        "globs": ({"include": ["tls.*"]}, pair),
        "keys-and-globs": ({"include": ["ca.crt", "user?"]}, {"ca.crt": "ca.crt", "user1": "user1"}),
        "renamed": ({"rename": {"ca.crt": "ca.pem"}}, {**pair, "ca.pem": "ca.crt", "user1": "user1"}),
        "both": ({"include": ["tls.*"], "rename": {"ca.crt": "ca.pem"}}, {**pair, "ca.pem": "ca.crt"}),
        "included-and-renamed": ({"include": ["ca.crt"], "rename": {"ca.crt": "user1"}}, {"user1": "ca.crt"}),
        "swapped": (
            {"rename": {"tls.crt": "tls.key", "tls.key": "tls.crt"}, "include": ["tls.*"]},
            {"tls.key": "tls.crt", "tls.crt": "tls.key"},
        ),
    }
    data = api.create(keyed(home, *everything))["data"]
    for name, (keys, _) in cases.items():
        api.create(rule(name, home, team, ruleType="secret", keys=keys, targetName=name))

    assert sync().summary == {"created": len(cases)}
    for name, (_, copied) in cases.items():
        assert api.read(secret(team, name))["data"] == {key: data[of] for key, of in copied.items()}, name
    assert sync().summary == {"unchanged": len(cases)}
    assert sync("--verify", "content").summary == {"unchanged": len(cases)}


def test_keys_of_binary_data_are_chosen_and_renamed_too(api: Api, sync: Run, home: str, team: str) -> None:
    value = base64.b64encode(bytes(range(256))).decode()
    source = api.create(configmap(home, data={"a": "1", "b": "2"}, binaryData={"c": value, "d": value}))
    rule_with(api, home, team, kind="configmap", include=["b"], rename={"c": "e"})

    assert sync().summary == {"created": 1}
    assert content(api.read(at(team, source))) == {"data": {"b": "2"}, "binaryData": {"e": value}}


def test_copies_follow_changed_keys_and_keys_that_appear_later(api: Api, sync: Run, home: str, team: str) -> None:
    source = api.create(configmap(home, data={"app.a": "1", "other": "2"}))
    rule_with(api, home, team, kind="configmap", include=["app.*"])
    sync()

    api.patch(source, {"data": {"other": "changed"}})
    assert sync().summary == {"unchanged": 1}, "a key that is not copied changed"
    api.patch(source, {"data": {"app.b": "later"}})
    assert sync().summary == {"configured": 1}
    assert api.read(at(team, source))["data"] == {"app.a": "1", "app.b": "later"}

    with_keys(api, rename={"app.a": "a"}, include=["other"])
    assert sync().summary == {"configured": 1}
    assert api.read(at(team, source))["data"] == {"a": "1", "other": "changed"}

    api.patch(rule("logins", "", ""), {"spec": {"keys": None}})
    assert sync().summary == {"configured": 1}
    assert content(api.read(at(team, source))) == content(api.read(source))


def test_a_key_that_is_not_chosen_is_removed_from_a_copy(api: Api, sync: Run, home: str, team: str) -> None:
    source = api.create(configmap(home))
    rule_with(api, home, team, kind="configmap", include=["a"])
    sync()
    api.patch(at(team, source), {"data": {"b": "2"}})

    assert [each["reason"] for each in sync().results] == ["data.b changed by tests"]
    assert api.read(at(team, source))["data"] == {"a": "1"}


def test_an_immutable_copy_with_other_keys_is_recreated(api: Api, sync: Run, home: str, team: str) -> None:
    source = api.create(configmap(home, immutable=True, data={"a": "1", "b": "2"}))
    rule_with(api, home, team, kind="configmap", include=["a"])
    sync()
    before = api.read(at(team, source))["metadata"]["uid"]

    with_keys(api, include=["b"])

    assert sync().summary == {"replaced": 1}
    after = api.read(at(team, source))
    assert (after["data"], after["immutable"], after["metadata"]["uid"] == before) == ({"b": "2"}, True, False)


# two rules for one source


def test_two_rules_with_different_keys_of_one_source_collide_at_one_place(
    api: Api, sync: Run, home: str, team: str
) -> None:
    source = api.create(configmap(home))
    rule_with(api, home, team, "first", kind="configmap", include=["a"])
    rule_with(api, home, team, "second", kind="configmap", include=["b"])

    ran = sync()

    assert (ran.exit_code, ran.summary, api.get(at(team, source))) == (2, {"collision": 1}, None)
    assert [each["reason"] for each in ran.results] == [
        f"rules first and second require different copies of source {home}/settings, so none of them is copied; "
        "narrow the targets of one rule, or set its targetName"
    ]
    assert ready(api, "first")["reason"] == ready(api, "second")["reason"] == "Collision"

    api.patch(rule("second", "", ""), {"spec": {"targetName": "others"}})
    assert (sync().exit_code, sync().summary) == (0, {"unchanged": 2})
    assert api.read(configmap(team))["data"] == {"a": "1"}
    assert api.read(configmap(team, "others"))["data"] == {"b": "2"}


def test_two_rules_that_choose_the_same_keys_in_different_words_share_a_copy(
    api: Api, sync: Run, home: str, team: str
) -> None:
    api.create(configmap(home))
    rule_with(api, home, team, "first", kind="configmap", include=["a", "b"])
    rule_with(api, home, team, "second", kind="configmap", include=["*"])
    api.create(rule("third", home, team))

    assert sync().summary == {"created": 1}
    assert sync().summary == {"unchanged": 1}


# refused sources


def test_a_refused_source_has_the_reason_everywhere_and_its_copies_stay_until_it_is_corrected(
    api: Api, sync: Run, home: str, team: str
) -> None:
    source = api.create(keyed(home, *PAIR, type="kubernetes.io/tls"))
    api.create(keyed(home, *PAIR, "ca.crt", name="good"))
    api.create(rule("logins", home, team, ruleType="secret"))
    assert sync().summary == {"created": 2}
    before = api.read(at(team, source))
    with_keys(api, include=["ca.crt", "tls.crt"])

    ran = sync()

    reason = f"it has no key ca.crt; {CORRECT}"
    (found,) = (each for each in ran.results if each["code"] == "refused")
    assert (ran.exit_code, found["reason"], found["severity"], found["outcome"]) == (0, reason, "warning", "reported")
    assert found["object"] == {"kind": "Secret", "name": "login", "namespace": home}
    assert found["subjects"] == ["logins"]
    assert api.read(before) == before
    assert ready(api, "logins") == {
        "status": "False",
        "reason": "SourceRefused",
        "message": f"secret/login in namespace {home}: {reason}",
    }
    (row,) = sync("--explain", f"{team}/login").report["rows"]
    assert (row["code"], row["reason"]) == ("refused", f"secret/login in namespace {home}: {reason}")

    api.patch(source, {"data": {"ca.crt": encoded(canary())}})
    with_keys(api, include=["ca.crt", *PAIR])
    assert sync().summary == {"configured": 2}
    assert ready(api, "logins") == {"status": "True", "reason": "Synced", "message": "2 copies"}

    with_keys(api, include=["absent"])
    api.patch(source, {"metadata": {"labels": {"copyrator": None}}})
    assert sync().summary.get("deleted") == 1, "a rule that no longer selects the source releases its copies"
    assert api.get(before) is None


def test_a_refused_source_next_to_good_ones_does_not_stop_them(api: Api, sync: Run, home: str, team: str) -> None:
    for name, data in {"first": {"a": "1"}, "bad": {"b": "1"}, "last": {"a": "2", "b": "2"}}.items():
        api.create(configmap(home, name, data=data))
    rule_with(api, home, team, kind="configmap", include=["a"])

    assert sync().summary == {"created": 2, "refused": 1}
    assert [bool(api.get(configmap(team, name))) for name in ("first", "bad", "last")] == [True, False, True]
    rows = sync("--explain", team).report["rows"]
    assert [(each["code"], each["copies"]) for each in rows] == [("unchanged", 2), ("refused", 0)]
    api.create(configmap(home, "worse", data={"b": "1"}))
    (_, row) = sync("--explain", team, output="text").stdout.splitlines()[1:3]
    why = "it has no key a; correct the source, or spec.keys of the rule"
    assert row.split("  ")[:3] == ["logins", "2 sources", "refused"]
    assert row.endswith(f"  configmap/bad in namespace {home}: {why}; configmap/worse in namespace {home}: {why}")


def test_a_run_for_one_rule_does_not_report_what_others_refuse(api: Api, sync: Run, home: str, team: str) -> None:
    api.create(configmap(home))
    rule_with(api, home, team, kind="configmap", include=["absent"])
    api.create(rule("good", home, team, names=["settings"]))

    assert sync("--rule-name", "good", "--dry-run").summary == {"created": 1}
    assert sync("--rule-name", "logins").summary == {"refused": 1}
    assert sync().summary == {"created": 1, "refused": 1}
    assert sync("--rule-name", "good", "--check").exit_code == 0


def test_a_copy_stays_if_only_a_rule_that_refuses_its_source_still_requires_it(
    api: Api, sync: Run, home: str, team: str
) -> None:
    other = api.namespace("other")
    source = api.create(configmap(home))
    api.create(rule("first", home, [team, other]))
    rule_with(api, home, team, "second", kind="configmap", include=["absent"])
    sync()

    api.delete(rule("first", "", ""))

    assert sync().summary == {"deleted": 1, "refused": 1}
    assert (bool(api.get(at(team, source))), api.get(at(other, source))) == (True, None)


def test_a_namespace_that_opts_out_loses_copies_of_refused_sources(api: Api, sync: Run, home: str, team: str) -> None:
    source = api.create(configmap(home))
    rule_with(api, home, team, kind="configmap", include=["a"])
    sync()
    with_keys(api, include=["absent"])
    api.patch(namespace_object(team), {"metadata": {"annotations": {"kubechores.dev/copies": "false"}}})

    assert sync().summary == {"deleted": 1, "refused": 1}
    assert api.get(at(team, source)) is None


def test_the_copy_of_a_refused_source_does_not_become_one_of_another_source(
    api: Api, sync: Run, home: str, team: str
) -> None:
    other = api.namespace("other")
    source = api.create(configmap(home))
    rule_with(api, home, team, kind="configmap", include=["a"])
    sync()
    with_keys(api, include=["absent"])
    api.create(configmap(other))
    api.create(rule("others", other, team))
    before = api.read(at(team, source))

    ran = sync()

    assert (ran.exit_code, ran.summary) == (0, {"refused": 1, "unreadable": 1})
    assert api.read(before) == before
    assert (
        f"stays a copy of {home}/settings, and does not become a copy of {other}/settings: "
        "a rule requires it, and refuses its source"
    ) in ran.stdout


def test_a_source_that_is_never_copied_is_not_refused(api: Api, sync: Run, home: str, team: str) -> None:
    api.create(configmap(home, "sh.helm.release.v1.shop.v1"))
    rule_with(api, home, team, kind="configmap", include=["absent"])

    assert sync("-v").summary == {"nothing-selected": 1, "skipped": 1}


def test_a_copy_that_lacks_a_key_is_not_a_refused_source(api: Api, sync: Run, home: str, team: str) -> None:
    api.create(configmap(home))
    api.create(rule("first", home, team, metadata={"copyLabels": ["copyrator"]}))
    rule_with(api, team, home, "back", kind="configmap", include=["absent"])
    sync()
    api.mark()

    ran = sync("-v")

    assert ran.summary == {"nothing-selected": 1, "skipped": 1, "unchanged": 1}
    assert api.writes() == [], "the status does not depend on copies, which a run creates after it read the sources"
