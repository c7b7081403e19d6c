"""ConfigMaps and Secrets that are not valid: every cause, with the message of the server."""

import base64
from typing import Any

import pytest

from tests.contract.conftest import MERGE, Place, bad_request

Causes = set[tuple[str, str, str]]
REQUIRED, INVALID, FORBIDDEN = "FieldValueRequired", "FieldValueInvalid", "FieldValueForbidden"
IMMUTABLE = (FORBIDDEN, "Forbidden: field is immutable when `immutable` is set")
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
DATA_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
FINALIZER = "name is neither a standard finalizer name nor is it fully qualified"
NOT_BASE64 = 'Secret in version "v1" cannot be handled as a Secret: illegal base64 data at input byte 6'
NOT_JSON = "invalid character 'x' looking for beginning of value"


def invalid(field: str, value: str, why: str) -> tuple[str, str, str]:
    return field, INVALID, f'Invalid value: "{value}": {why}'


def too_long(field: str, most: int) -> tuple[str, str, str]:
    return field, "FieldValueTooLong", f"Too long: may not be more than {most} bytes"


def missing(key: str) -> tuple[str, str, str]:
    return f"data[{key}]", REQUIRED, "Required value"


def meta(**fields: Any) -> dict[str, Any]:
    return {"metadata": fields}


def test_an_object_has_one_controller_at_most(place: Place) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "controller": True}
    owners = [{**owner, "name": name, "uid": name} for name in ("x", "y")]

    answer = place.config_map(metadata={"ownerReferences": owners})

    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert {(field, reason) for field, reason, _ in answer.causes} == {("metadata.ownerReferences", INVALID)}
    expected = (
        'Only one reference can have Controller set to true. Found "true" in references for ConfigMap/x and ConfigMap/y'
    )
    assert expected in answer.message


@pytest.mark.parametrize(
    ("fields", "causes"),
    [
        (meta(name="A_b"), {invalid("metadata.name", "A_b", SUBDOMAIN)}),
        (meta(name=""), {("metadata.name", REQUIRED, "Required value: name or generateName is required")}),
        (meta(name="a" * 254), {invalid("metadata.name", "a" * 254, "must be no more than 253 characters")}),
        (
            {"metadata": {"labels": {"b ad": "x y"}}},
            {invalid("metadata.labels", "b ad", LABEL_KEY), invalid("metadata.labels", "x y", LABEL_VALUE)},
        ),
        (meta(labels={"a": "x" * 64}), {invalid("metadata.labels", "x" * 64, "must be no more than 63 bytes")}),
        (meta(labels={"a": "team/shop"}), {invalid("metadata.labels", "team/shop", LABEL_VALUE)}),
        (meta(annotations={"b ad": "x"}), {invalid("metadata.annotations", "b ad", LABEL_KEY)}),
        (meta(annotations={"a": "x" * (256 * 1024)}), {too_long("metadata.annotations", 262144)}),
        (meta(finalizers=["plain"]), {invalid("metadata.finalizers[0]", "plain", FINALIZER)}),
        ({"data": {"b/d": "x"}}, {invalid("data[b/d]", "b/d", DATA_KEY)}),
        ({"data": {"..x": "x"}}, {invalid("data[..x]", "..x", "must not start with '..'")}),
        (
            {"data": {"a": "x"}, "binaryData": {"a": "eA=="}},
            {invalid("data[a]", "a", "duplicate of key present in binaryData")},
        ),
        ({"data": {"a": "x" * (1024 * 1024 + 1)}}, {too_long("[]", 1048576)}),
    ],
)
def test_a_config_map_that_is_refused(place: Place, fields: dict[str, Any], causes: Causes) -> None:
    answer = place.config_map(**fields)

    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert answer.causes == causes
    assert answer.body["details"]["kind"] == "ConfigMap"
    assert answer.message.startswith(f'ConfigMap "{fields.get("metadata", {}).get("name", "a")}" is invalid: ')
    assert all(message in answer.message for _, _, message in causes)


def test_an_owner_reference_without_kind_name_and_uid_is_refused(place: Place) -> None:
    owner = {"apiVersion": "v1", "kind": "", "name": "", "uid": ""}
    empty = ("kind", "name", "uid")
    why = "Required value: must not be empty"

    answer = place.config_map(metadata={"ownerReferences": [owner]})

    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert answer.causes in (
        {invalid(f"metadata.ownerReferences.{each}", "", "must not be empty") for each in empty},
        {(f"metadata.ownerReferences[0].{each}", REQUIRED, why) for each in empty},  # since 1.37
    )


@pytest.mark.parametrize(
    ("fields", "causes"),
    [
        ({"type": "kubernetes.io/tls"}, {missing("tls.crt"), missing("tls.key")}),
        ({"type": "kubernetes.io/tls", "stringData": {"tls.crt": "canary-1"}}, {missing("tls.key")}),
        ({"type": "kubernetes.io/dockerconfigjson"}, {missing(".dockerconfigjson")}),
        (
            {"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "x-canary-1"}},
            {invalid("data[.dockerconfigjson]", "<secret contents redacted>", NOT_JSON)},
        ),
        ({"stringData": {"b/d": "canary-1"}}, {invalid("data[b/d]", "b/d", DATA_KEY)}),
        ({"data": {"a": base64.b64encode(b"canary-" * 150_000).decode()}}, {too_long("data", 1048576)}),
    ],
)
def test_a_secret_that_is_refused(place: Place, fields: dict[str, Any], causes: Causes) -> None:
    answer = place.secret(**fields)

    assert (answer.status, answer.body["reason"]) == (422, "Invalid")
    assert answer.causes == causes


def test_data_of_exactly_one_mebibyte(place: Place) -> None:
    assert place.config_map(data={"a": "x" * (1024 * 1024)}).status == 201


@pytest.mark.parametrize(
    ("plural", "body", "message"),
    [
        ("secrets", {"data": {"a": "canary-*"}}, NOT_BASE64),
        (
            "configmaps",
            {"data": {"a": 1}},
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct '
            "field ConfigMap.data of type string",
        ),
        (
            "configmaps",
            {"apiVersion": "v1", "kind": "Secret"},
            'Secret in version "v1" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): '
            "unknown conversion",
        ),
    ],
)
def test_a_body_of_another_shape(place: Place, plural: str, body: dict[str, Any], message: str) -> None:
    answer = place.send("POST", place.path(plural), {**body, "metadata": {"name": "a"}})

    assert answer.problem == bad_request(message)


def test_unknown_fields(place: Place) -> None:
    body = {"metadata": {"name": "a"}, "extra": 1}

    strict = place.send("POST", place.path("configmaps") + "?fieldValidation=Strict", body)
    warned = place.send("POST", place.path("configmaps") + "?fieldValidation=Warn", body)

    unknown = 'strict decoding error: unknown field "extra"'
    assert strict.problem == bad_request(f'ConfigMap in version "v1" cannot be handled as a ConfigMap: {unknown}')
    assert (warned.status, warned.headers["Warning"]) == (201, '299 - "unknown field \\"extra\\""')
    assert "extra" not in warned.body


def test_immutable_objects_keep_data_and_immutability(place: Place) -> None:
    place.secret(stringData={"a": "canary-1"}, immutable=True)
    place.config_map(data={"a": "1"}, immutable=True)
    secret, config_map = place.path("secrets", "a"), place.path("configmaps", "a")

    edited = place.send("PATCH", secret, {"data": {"a": "Y2FuYXJ5LTI="}}, MERGE)
    released = place.send("PATCH", secret, {"immutable": None, "data": {"a": "Y2FuYXJ5LTI="}}, MERGE)
    both = place.send("PATCH", config_map, {"data": {"a": "2"}, "binaryData": {"b": "eA=="}}, MERGE)
    labelled = place.send("PATCH", config_map, {"metadata": {"labels": {"x": "y"}}}, MERGE)

    assert edited.causes == {("data", *IMMUTABLE)}
    assert released.causes == {("immutable", *IMMUTABLE), ("data", *IMMUTABLE)}
    assert both.causes == {("data", *IMMUTABLE), ("binaryData", *IMMUTABLE)}
    assert labelled.status == 200


def test_the_type_of_a_secret_is_fixed(place: Place) -> None:
    place.secret(stringData={"a": "canary-1"})

    answer = place.send("PATCH", place.path("secrets", "a"), {"type": "other"}, MERGE)

    assert answer.causes == {invalid("type", "other", "field is immutable")}
