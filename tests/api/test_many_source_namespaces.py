"""Rules with the same selector in many source namespaces: one list of metadata and one of sources, exactly counted."""

from collections.abc import Sequence

import pytest

from jobs.core.sync_copies import observe
from jobs.core.sync_copies.kinds import KINDS
from jobs.kit.api import cluster
from tests.api.conftest import Run
from tests.apis import Api, Request, wait_for
from tests.canary import canary
from tests.worlds import configmap, encoded, rule, secret

FEWEST = 4
LISTS = 2 + 1 + len(KINDS) + 1  # of rules, of namespaces, of copies of each kind, and of names that attachTo added
REVIEWS = {"POST": 1}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "PAGE_SIZE", 500)
    monkeypatch.setattr(observe, "_FEWEST_NAMESPACES", FEWEST)


@pytest.fixture
def team(api: Api) -> str:
    return api.namespace("target")


def homes(api: Api, number: int) -> list[str]:
    return [api.namespace(f"home-{each:02}") for each in range(number)]


def a_rule_for_each(api: Api, namespaces: Sequence[str], team: str, **spec: object) -> None:
    for number, namespace in enumerate(namespaces):
        api.create(secret(namespace, f"login-{number:02}", data={"key": encoded(canary())}))
        api.create(rule(f"rule-{number:02}", namespace, team, ruleType="secret", **spec))


def reads(api: Api, path: str) -> list[Request]:
    """The lists of sources at a path."""
    return [each for each in api.requests() if each.path == path and "copyrator" in each.query.get("labelSelector", "")]


SECRETS = "/api/v1/secrets"


def requests_of(run: Run, **summary: int) -> dict[str, int]:
    ran = run()
    assert (ran.exit_code, ran.summary) == (0, summary), ran
    return dict(ran.report["traffic"]["requests"])


@pytest.mark.parametrize(("number", "lists"), [(FEWEST - 1, FEWEST - 1), (FEWEST, 2), (FEWEST + 5, 2)])
def test_rules_with_one_selector_are_two_lists(api: Api, sync: Run, team: str, number: int, lists: int) -> None:
    a_rule_for_each(api, homes(api, number), team)
    sync()
    api.mark()

    assert requests_of(sync, unchanged=number) == {"GET": LISTS + lists, **REVIEWS}
    assert len(reads(api, SECRETS)) == (2 if number >= FEWEST else 0)


def test_each_selector_and_each_kind_has_its_own_lists(api: Api, sync: Run, team: str) -> None:
    namespaces = homes(api, FEWEST)
    a_rule_for_each(api, namespaces, team)
    for number, namespace in enumerate(namespaces):
        api.create(configmap(namespace, f"settings-{number}"))
        api.create(rule(f"settings-{number}", namespace, team))
        api.create(secret(namespace, f"other-{number}", labels={"other": "yes"}))
        selector = {"matchLabels": {"other": "yes"}}
        api.create(rule(f"other-{number}", namespace, team, ruleType="secret", selector=selector))
    sync()

    assert requests_of(sync, unchanged=3 * FEWEST) == {"GET": LISTS + 3 * 2, **REVIEWS}


def test_sources_by_name_are_read_by_name(api: Api, sync: Run, team: str) -> None:
    namespaces = homes(api, FEWEST)
    for number, namespace in enumerate(namespaces):
        api.create(secret(namespace, f"login-{number}"))
        by_name = rule(f"rule-{number}", namespace, team, ruleType="secret", names=[f"login-{number}"])
        del by_name["spec"]["selector"]
        api.create(by_name)
    sync()

    assert requests_of(sync, unchanged=FEWEST) == {"GET": LISTS + FEWEST, **REVIEWS}


def test_no_content_of_a_namespace_that_no_rule_names_is_read(api: Api, sync: Run, team: str) -> None:
    other, large = api.namespace("other"), 50_000
    a_rule_for_each(api, homes(api, FEWEST), team)
    sync()
    before = sync().report["traffic"]["bytesReceived"]
    api.create(secret(other, "foreign", data={"key": encoded(canary("x" * large))}))
    api.mark()

    ran = sync()

    assert ran.summary == {"unchanged": FEWEST}
    first, second = reads(api, SECRETS)
    assert "fieldSelector" not in first.query
    assert second.query["fieldSelector"] == f"metadata.namespace!={other}"
    # Only its metadata are in an answer.
    assert ran.report["traffic"]["bytesReceived"] - before < large // 10


def test_with_too_many_objects_each_namespace_is_listed(
    api: Api, sync: Run, team: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "_MOST_OBJECTS", 1)
    namespaces = homes(api, FEWEST)
    a_rule_for_each(api, namespaces, team)
    sync()
    api.create(secret(namespaces[0], "one-more"))

    assert sync().summary == {"created": 1, "unchanged": FEWEST}
    assert requests_of(sync, unchanged=FEWEST + 1) == {"GET": LISTS + 1 + FEWEST, **REVIEWS}


def test_copies_of_a_deleted_source_are_deleted_and_those_of_a_new_one_created(api: Api, sync: Run, team: str) -> None:
    namespaces = homes(api, FEWEST + 1)
    a_rule_for_each(api, namespaces, team)
    sync()
    api.delete(secret(namespaces[0], "login-00"))
    api.create(secret(namespaces[1], "fresh"))

    assert sync().summary == {"created": 1, "deleted": 1, "unchanged": FEWEST}


def test_rules_with_different_keys_share_the_lists(api: Api, sync: Run, team: str) -> None:
    namespaces = homes(api, FEWEST)
    for number, namespace in enumerate(namespaces):
        api.create(secret(namespace, f"login-{number}"))
        api.create(rule(f"whole-{number}", namespace, team, ruleType="secret"))
        part = {"keys": {"include": ["user"]}, "targetName": f"part-{number}"}
        api.create(rule(f"part-{number}", namespace, team, ruleType="secret", **part))

    assert sync().summary == {"created": 2 * FEWEST}
    assert requests_of(sync, unchanged=2 * FEWEST) == {"GET": LISTS + 2, **REVIEWS}


def bytes_of_rules(api: Api) -> int:
    """The bytes of a list of rules."""
    status, _, body = api.request("GET", "/apis/kubechores.dev/v1/namespaces/kube-chores/copyrators?limit=500")
    assert status == 200
    return len(body)


def test_many_rules_receive_the_bytes_of_one_rule_and_the_rules_themselves(api: Api, sync: Run, team: str) -> None:
    def all_active() -> bool:
        return {each["status"]["phase"] for each in api.items("v1", "Namespace")} == {"Active"}

    wait_for(all_active, "the deletion of the namespaces of earlier tests", 120)
    namespaces = homes(api, FEWEST + 4)
    a_rule_for_each(api, namespaces, team)
    sync()

    def received() -> int:
        ran = sync()
        assert ran.summary == {"unchanged": len(namespaces)}, ran
        return int(ran.report["traffic"]["bytesReceived"])

    many = received() - 2 * bytes_of_rules(api)
    for number in range(len(namespaces)):
        api.delete(rule(f"rule-{number:02}", "", team))
    api.create(rule("rule-00", "", team, ruleType="secret", namespaces=namespaces))
    assert sync().summary["configured"] == len(namespaces) - 1

    # Versions may have one more digit.
    assert abs(received() - 2 * bytes_of_rules(api) - many) < 20 * len(namespaces)
