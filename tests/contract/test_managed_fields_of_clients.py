"""managedFields that a client sends: which entries are stored, and how deep they may be nested."""

import json
from typing import Any

import pytest

from tests.contract.conftest import APPLY, MERGE, ONE_METADATA, STRATEGIC, Place

POD = {"automountServiceAccountToken": False, "containers": [{"name": "main", "image": "example.com/app:1"}]}
WORKLOAD = {
    "selector": {"matchLabels": {"app": "web"}},
    "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": POD["containers"]}},
}
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ConfigMap": ("v1", "configmaps", {"data": {"a": "1"}}),
    "Pod": ("v1", "pods", {"spec": POD}),
    "Deployment": ("apps/v1", "deployments", {"spec": WORKLOAD}),
    "ExchangeRate": ("kubechores.dev/v1", "exchangerates", {"spec": {"currency": "USD"}}),
}


def nested(levels: int) -> str:
    return '{"f:a":' * levels + "{}" + "}" * levels


def entry(fields: str = nested(2), **changed: str) -> str:
    given = {"manager": "other", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", **changed}
    return f'{json.dumps(given)[:-1]},"time":"2026-01-01T00:00:00Z","fieldsV1":{fields}}}'


def body(*entries: str, kind: str = "ConfigMap") -> bytes:
    version, _, fields = KINDS[kind]
    head = json.dumps({"apiVersion": version, "kind": kind, **fields})[:-1]
    return f'{head},"metadata":{{"name":"a","managedFields":[{",".join(entries)}]}}}}'.encode()


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("kind", KINDS)
def test_deep_fields_are_kept_and_served(place: Place, kind: str) -> None:
    version, plural, _ = KINDS[kind]
    group = version if "/" in version else ""
    path, deep = place.path(plural, "a", group), f'"fieldsV1":{nested(2000)}'.encode()

    made = place.send("POST", place.path(plural, group=group), body(entry(nested(2000), apiVersion=version), kind=kind))

    assert (made.status, deep in made.raw) == (201, True)
    assert deep in place.send("GET", path).raw
    assert deep in place.send("GET", path, accept=ONE_METADATA).raw
    assert deep in place.send("GET", place.path(plural, group=group)).raw


def test_deep_fields_outlive_the_writes_of_others(place: Place) -> None:
    place.send("POST", place.path("configmaps"), body(entry(nested(2000))))
    path, deep = place.path("configmaps", "a"), nested(2000).encode()
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"d": "4"}}

    patched = place.send("PATCH", path, {"data": {"b": "2"}}, MERGE)
    merged = place.send("PATCH", path, {"data": {"c": "3"}}, STRATEGIC)
    owned = place.send("PATCH", f"{path}?fieldManager=third", applied, APPLY)
    replaced = place.send("PUT", path, owned.raw.replace(b'"1"', b'"9"'))
    emptied = place.send("PATCH", path, {"metadata": {"managedFields": [{}]}}, MERGE)

    assert [(each.status, deep in each.raw) for each in (patched, merged, owned, replaced)] == [(200, True)] * 4
    assert b'"data":{"a":"9","b":"2","c":"3","d":"4"}' in replaced.raw
    assert (emptied.status, b"managedFields" in emptied.raw) == (200, False)


def test_json_deeper_than_ten_thousand_levels_is_refused(place: Place) -> None:
    refused = place.send("POST", place.path("configmaps"), body(entry(nested(10_000))))

    assert (refused.status, refused.body["reason"]) == (400, "BadRequest")
    assert "exceeded max depth" in refused.message


_EMPTY = ("null", "{}", '{"x:y":{}}')


@pytest.mark.parametrize(
    "fields",
    [
        *('{"f:metadata":[]}', '{"f:data":3}', '{"k:{not json":{}}', '{"k:[]":{}}', '{"v:{":{}}', '{"i:x":{}}'),
        *('{"x":{}}', '{"":{}}', "[]", '"x"', *_EMPTY),
    ],
)
def test_entries_that_are_not_valid_are_dropped_with_all_others(place: Place, fields: str) -> None:
    made = place.send("POST", place.path("configmaps"), body(entry(), entry(fields, manager="odd")))

    kept = {"other"} if fields in _EMPTY else set()
    assert {name.partition(" ")[0] for name in made.owners()} == {"tests"} | kept


@pytest.mark.parametrize("changed", [{"operation": "Delete"}, {"fieldsType": ""}])
def test_entries_of_another_form_are_dropped_with_all_others(place: Place, changed: dict[str, str]) -> None:
    made = place.send("POST", place.path("configmaps"), body(entry(), entry(**changed)))

    assert made.owners().keys() == {"tests Update"}


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ('{"f:x":null}', '{"f:x":{}}'),
        ('{"f:x":{".":{"f:y":{}}}}', '{"f:x":{}}'),
        ('{"k:{\\"a\\":{\\"b\\":1}}":{}}', '{"k:{\\"a\\":{\\"b\\":1}}":{}}'),
        ('{"f:\\u0001":{}}', '{"f:\\u0001":{}}'),
    ],
)
def test_odd_entries_are_kept_in_their_usual_form(place: Place, fields: str, kept: str) -> None:
    made = place.send("POST", place.path("configmaps"), body(entry(fields)))

    assert f'"fieldsV1":{kept}'.encode() in made.raw
