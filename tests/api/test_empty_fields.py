"""Fields whose empty value the API server does not list in managedFields, or lists only after a change."""

from typing import Any

import pytest

from tests.api.conftest import Run
from tests.apis import Api
from tests.more_kinds import of_kind
from tests.worlds import SELECTED, rule

Object = dict[str, Any]
FULL, EMPTY = {"matchLabels": {"a": "b"}}, dict[str, Any]()


def policy(selector: Object) -> Object:
    return {"spec": {"podSelector": selector, "policyTypes": ["Ingress"]}}


@pytest.fixture
def team(api: Api) -> str:
    return api.namespace("team")


def copied(api: Api, home: str, team: str, kind: str, *contents: Object) -> Object:
    """Create a source and a rule with the first content; return the source."""
    source = api.create(of_kind(kind, home, SELECTED, **contents[0]))
    api.create(rule("all", home, team, ruleType=kind.lower()))
    return {"apiVersion": source["apiVersion"], "kind": kind, "metadata": {"name": "x", "namespace": home}}


@pytest.mark.parametrize(
    ("kind", "contents"),
    [
        pytest.param("NetworkPolicy", [policy(EMPTY)], id="an empty podSelector"),
        pytest.param("NetworkPolicy", [policy(FULL), policy(EMPTY)], id="a podSelector that becomes empty"),
        pytest.param("NetworkPolicy", [policy(EMPTY), policy(FULL)], id="a podSelector that gets labels"),
        pytest.param("LimitRange", [{"spec": {"limits": []}}], id="no limits"),
        pytest.param("ResourceQuota", [{"spec": {}}], id="an empty quota"),
        pytest.param(
            "ServiceAccount", [{"imagePullSecrets": [], "automountServiceAccountToken": None}], id="no fields"
        ),
        pytest.param("RoleBinding", [{"subjects": []}], id="no subjects"),
    ],
)
def test_a_converged_run_reads_no_copy(
    api: Api, sync: Run, home: str, team: str, kind: str, contents: list[Object]
) -> None:
    source = copied(api, home, team, kind, *contents)
    sync()
    for content in contents[1:]:
        api.replace(of_kind(kind, home, SELECTED, **content))
        sync()
    api.mark()

    ran = sync()

    assert ran.summary == {"unchanged": 1}
    path = api.path({**source, "metadata": {"name": "x", "namespace": team}})
    assert [each for each in api.requests() if each.path == path] == []


@pytest.mark.parametrize(
    ("desired", "applied"),
    [
        pytest.param(FULL, EMPTY, id="emptied"),
        pytest.param(EMPTY, FULL, id="set"),
    ],
)
def test_a_changed_pod_selector_is_repaired(
    api: Api, sync: Run, home: str, team: str, desired: Object, applied: Object
) -> None:
    source = copied(api, home, team, "NetworkPolicy", policy(desired))
    sync()
    copy = {**source, "metadata": {"name": "x", "namespace": team}}
    headers = {"Content-Type": "application/apply-patch+yaml"}
    path = f"{api.path(copy)}?fieldManager=applier&force=true"
    api.call("PATCH", path, {**copy, "spec": {"podSelector": applied}}, headers=headers)
    if not applied:  # withdrawn: then no manager owns the field, and its value stays empty
        api.call("PATCH", path, {**copy, "spec": {}}, headers=headers)
    assert api.read(copy)["spec"]["podSelector"] == applied

    ran = sync()

    assert ran.summary == {"configured": 1}
    assert api.read(copy)["spec"]["podSelector"] == desired
