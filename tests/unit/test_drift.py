"""The drift of objects."""

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.core.mirror_audit.registry_mirrors import quantity
from jobs.core.mirror_audit.resources import drift
from tests.sweeps import examples


def owned(manager: str, operation: str = "Apply", **fields: Any) -> dict[str, Any]:
    return {"manager": manager, "operation": operation, "fieldsV1": fields}


def object_of(spec: Any, *entries: Any) -> dict[str, Any]:
    return {"metadata": {"managedFields": list(entries)}, "spec": spec}


def found(desired: Any, actual: Any, *entries: Any) -> list[tuple[str, str | None, str | None, str]]:
    return [(*each.difference, each.by) for each in drift({"spec": desired}, object_of(actual, *entries))]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(("1Gi", "1024Mi"), ("0.5", "500m"), ("1", 1), ("1e3", "1k"), ("100M", "100000k")),
        *(("1.5Gi", "1536Mi"), ("1", "1000m")),
    ],
)
def test_equal_quantities_with_other_suffixes_are_not_drift(one: str | int, other: str | int) -> None:
    assert quantity(one) == quantity(other)
    assert found({"requests": {"x": one}}, {"requests": {"x": other}}) == []


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "1gi", "one", "1.2.3"])
def test_an_invalid_quantity_is_an_error_and_drift(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        quantity(text)
    assert found({"requests": {"x": "1"}}, {"requests": {"x": text}}) == [("spec.requests.x", text, "1", "")]


@given(st.integers(0, 10**6), st.sampled_from(["", "Ki", "Mi", "k", "M", "m"]))
def test_a_quantity_is_a_number_times_its_suffix(number: int, suffix: str) -> None:
    assert quantity(f"{number}{suffix}") == number * quantity(f"1{suffix}")
    assert quantity("1Ki") == Decimal(1024)


def test_only_desired_fields_are_compared() -> None:
    ours = {"port": 80, "protocol": "TCP", "name": "a"}
    desired = {"replicas": 1, "ports": [ours]}
    others = {"revisionHistoryLimit": 3, "ports": [{"port": 81, "protocol": "TCP"}, ours]}

    assert found(desired, {**desired, **others}) == []


def test_a_list_without_merge_keys_is_compared_as_one_value() -> None:
    assert found({"args": ["a", "b"]}, {"args": ["b", "a"]}) == [("spec.args", '["b","a"]', '["a","b"]', "")]


def test_the_manager_that_changed_a_field_is_named() -> None:
    by = owned("kubectl-edit", "Update", **{"f:spec": {"f:replicas": {}}})

    assert found({"replicas": 1}, {"replicas": 2}, by) == [("spec.replicas", "2", "1", "kubectl-edit")]
    assert found({"replicas": 1}, {}, by) == [("spec.replicas", None, "1", "kubectl-edit")]


def test_a_manager_of_the_status_is_not_named() -> None:
    controller = {**owned("controller", "Update", **{"f:spec": {"f:replicas": {}}}), "subresource": "status"}

    assert found({"replicas": 1}, {"replicas": 2}, controller) == [("spec.replicas", "2", "1", "")]


def test_an_owned_field_that_is_no_longer_desired_is_drift() -> None:
    env = [{"name": "OLD", "value": "1"}, {"name": "NEW", "value": "1"}]
    fields: dict[str, Any] = {".": {}, "f:name": {}, "f:image": {}, "f:tty": {}, "f:env": {}}
    fields["f:env"] = {'k:{"name":"OLD"}': {".": {}, "f:name": {}}}
    spec: dict[str, Any] = {"f:spec": {"f:containers": {'k:{"name":"a"}': fields}}}
    ours = {"manager": "kube-chores", "operation": "Apply", "fieldsV1": spec}
    desired = {"containers": [{"name": "a", "image": "x", "env": [{"name": "NEW", "value": "1"}]}]}
    actual = {"containers": [{"name": "a", "image": "x", "tty": True, "env": env}]}

    assert found(desired, actual, ours) == [
        ("spec.containers[a].env[OLD]", '{"name":"OLD","value":"1"}', None, ""),
        ("spec.containers[a].tty", "true", None, ""),
    ]
    # An update by kube-chores also owns the fields that the server set.
    assert found(desired, actual, {**ours, "operation": "Update"}) == []
    assert found(desired, actual, {**ours, "manager": "somebody"}) == []


@pytest.mark.parametrize(
    "key", ["[" * 100_000, '{"a":' * 100_000, '[["name","a"]]', '["ab"]', '{"name":["a"]}', "{}", "1", "x"]
)
def test_an_invalid_key_of_managed_fields_is_not_a_field(key: str) -> None:
    fields: dict[str, Any] = {"f:spec": {"f:containers": {f"k:{key}": {"f:tty": {}}}}}
    ours = owned("kube-chores", **fields)
    containers = {"containers": [{"name": "a"}]}

    assert found(containers, containers, ours) == []


def test_a_user_in_a_url_is_not_printed() -> None:
    ((_, actual, _, _),) = found({"url": "https://a"}, {"url": "https://robot:of-the-tests@a"})

    assert actual == "https://***@a"


@examples()
@given(
    st.recursive(st.integers() | st.text() | st.booleans(), lambda inner: st.dictionaries(st.text(min_size=1), inner))
)
def test_a_desired_object_has_no_drift(spec: Any) -> None:
    assert found(spec, json.loads(json.dumps(spec))) == []
