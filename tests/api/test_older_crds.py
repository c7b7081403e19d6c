"""A CRD of another version: a spec without the fields that it drops must not be taken for the whole."""

import copy
from typing import Any

import pytest

from tests.api.conftest import Run
from tests.apis import Api, ApiError, Object, ready_of, wait_for
from tests.manifests import everything
from tests.model import is_managed
from tests.rates import RatesServer, ago, today
from tests.worlds import configmap, exchange_rate, rule


def without(api: Api, plural: str, *path: str) -> None:
    """Replace a CRD by one without this field of the spec."""
    crd, below = crd_and_fields(plural)
    for name in path[:-1]:
        below = below[name]["properties"]
    del below[path[-1]]
    api.replace(crd)


def crd_and_fields(plural: str) -> tuple[Object, Any]:
    """Return a copy of a CRD, without validations of the spec as a whole, and the fields of the spec in it."""
    (crd,) = [each for each in everything() if each["metadata"]["name"] == f"{plural}.kubechores.dev"]
    crd = copy.deepcopy(crd)
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["x-kubernetes-validations"] = []
    return crd, spec["properties"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["keys"], {"include": ["a"]}),
        (["names"], ["settings"]),
        (["targets", "exclude"], ["team-b*"]),
        (["targetName"], "copied"),
    ],
)
def test_a_rule_whose_field_the_crd_drops_is_invalid_and_its_copies_stay(
    api: Api, sync: Run, home: str, path: list[str], value: Any
) -> None:
    team, other = api.namespace("team-a"), api.namespace("team-b")
    api.create(configmap(home))
    if path != ["targetName"]:
        api.create(configmap(home, "theme"))
    made = rule("settings", home, f"team-*-{api.token}")
    below: Any = made["spec"]
    for name in path[:-1]:
        below = below.setdefault(name, {})
    below[path[-1]] = value
    api.create(made)
    assert sync().exit_code == 0
    before = _copies(api, team, other)
    without(api, "copyrators", *path)
    wait_for(lambda: _value(api.read(made), path) is None, "the CRD to be used")

    ran = sync()

    name = ".".join(path)
    assert ran.exit_code == 2
    (found,) = [each for each in ran.results if each["object"]["name"] == "settings"]
    assert found["code"] == "invalid"
    assert f"spec.{name} was set, and an older CRD dropped it: install the CRDs" in found["reason"]
    ready = ready_of(api.read(made)["status"]["conditions"])
    assert (ready["status"], ready["reason"]) == ("False", "Invalid")
    assert _copies(api, team, other) == before


def test_an_exchange_rate_whose_field_the_crd_drops_is_invalid_and_its_rate_stays(
    api: Api, fetch: Run, rates: RatesServer
) -> None:
    rates.publish(day=ago(1))
    made = api.create(exchange_rate(api.namespace("shop"), "usd", "USD", maxChange=50))
    assert fetch().summary == {"created": 1}
    without(api, "exchangerates", "maxChange")
    wait_for(lambda: "maxChange" not in api.read(made)["spec"], "the CRD to be used")
    rates.publish(day=today())

    ran = fetch()

    ready = ready_of(api.read(made)["status"]["conditions"])
    assert (ran.summary, ready["status"], ready["reason"]) == ({"invalid": 1}, "False", "Invalid")
    assert "spec.maxChange was set, and an older CRD dropped it" in ready["message"]
    (configmap,) = [each for each in api.items("v1", "ConfigMap", made["metadata"]["namespace"]) if is_managed(each)]
    assert configmap["data"]["date"] == str(ago(1))


def test_a_rule_can_do_without_a_field_that_the_crd_drops(api: Api, sync: Run, home: str) -> None:
    team = api.namespace("team-a")
    api.create(configmap(home, data={"a": "1", "b": "2"}))
    made = rule("settings", home, team, keys={"include": ["a"]})
    api.create(made)
    assert sync().exit_code == 0
    without(api, "copyrators", "keys")
    wait_for(lambda: _value(api.read(made), ["keys"]) is None, "the CRD to be used")
    api.patch(made, {"spec": {"orphans": "Retain"}})
    assert sync().exit_code == 2, "another field changes nothing"

    api.patch(made, {"metadata": {"managedFields": [{}]}})

    assert sync().exit_code == 0
    assert [each["data"] for each in _copies(api, team)[0]] == [{"a": "1", "b": "2"}]


def test_a_field_that_only_a_newer_crd_has_changes_no_copy(api: Api, sync: Run, home: str) -> None:
    team = api.namespace("team")
    api.create(configmap(home))
    made = api.create(rule("settings", home, f"team-{api.token}"))
    assert sync().summary == {"created": 1}
    before = _copies(api, team)
    crd, fields = crd_and_fields("copyrators")
    fields["newer"] = {"type": "string"}
    api.replace(crd)
    wait_for(lambda: _is_kept(api, made, {"newer": "a"}), "the CRD to be used")

    ran = sync()

    assert (ran.exit_code, ran.summary) == (0, {"unchanged": 1})
    assert _copies(api, team) == before


def _is_kept(api: Api, made: Object, fields: Object) -> bool:
    """Whether the server keeps these fields of a spec; for a moment after a CRD changed, it does not serve its kind."""
    try:
        return bool(fields.items() <= api.patch(made, {"spec": fields})["spec"].items())
    except ApiError as error:
        if error.status != 429:
            raise
        return False


def _copies(api: Api, *namespaces: str) -> list[list[Object]]:
    return [[one for one in api.items("v1", "ConfigMap", each) if is_managed(one)] for each in namespaces]


def _value(obj: Object, path: list[str]) -> Any:
    below: Any = obj["spec"]
    for name in path:
        below = below.get(name, {}) if name != path[-1] else below.get(name)
    return below
