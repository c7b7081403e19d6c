"""Fields of custom resources that the CRD of another version drops."""

import msgspec
import pytest

from jobs.kit.api.custom_resources import _dropped
from jobs.kit.values.reads import Metadata, decode


@pytest.mark.parametrize(
    ("owned", "spec", "dropped"),
    [
        ({"f:spec": {"f:keys": {"f:include": {}}}}, {}, ["keys"]),
        ({"f:spec": {"f:names": {'v:"a"': {}}}}, {}, ["names"]),
        ({"f:spec": {"f:targets": {".": {}, "f:clusters": {"f:names": {}}}}}, {"targets": {}}, ["targets.clusters"]),
        ({"f:spec": {"f:targetName": {}}}, {}, ["targetName"]),
        ({"f:spec": {"f:keys": {"f:include": {}}}}, {"keys": {"include": []}}, []),
        ({"f:metadata": {"f:labels": {"f:a": {}}}}, {}, []),
        ({"f:status": {"f:conditions": {"k": {}}}}, {}, []),
        ({"f:spec": "none"}, {}, []),
        (["f:spec"], {}, []),
        (None, {}, []),
    ],
)
def test_fields_that_a_client_set_are_missed(owned: object, spec: object, dropped: list[str]) -> None:
    entry = {"manager": "kubectl", "fieldsV1": owned} if owned is not None else {"manager": "kubectl"}
    given = msgspec.json.encode({"name": "settings", "managedFields": [entry, entry]})
    metadata = msgspec.json.decode(given, type=Metadata)

    assert _dropped(metadata, msgspec.Raw(msgspec.json.encode(spec))) == dropped


@pytest.mark.parametrize("levels", [*range(100, 1100, 25), 5000])
def test_managed_fields_and_a_spec_that_are_nested_deep_end_no_run(levels: int) -> None:
    def nested(name: str) -> str:
        return f'{{"{name}":' * levels + "{}" + "}" * levels

    fields = f'{{"name": "a", "managedFields": [{{"manager": "a", "fieldsV1": {{"f:spec": {nested("f:a")}}}}}]}}'
    metadata = decode(fields, Metadata)

    assert _dropped(metadata, msgspec.Raw(nested("a").encode())) == []
    assert _dropped(metadata, msgspec.Raw(b'{"a": {}}')) == ["a.a"]
