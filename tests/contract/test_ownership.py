"""managedFields after every kind of edit, byte for byte: sync-copies detects drift by them."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.conftest import (
    APPLY,
    JSON_PATCH,
    MERGE,
    ONE_METADATA,
    OTHER_NAME,
    STRATEGIC,
    Place,
    bad_request,
    conflict,
    unprocessable,
)

BOTH = '{"f:data":{".":{},"f:a":{},"f:b":{}}}'
ONLY_B = '{"f:data":{".":{},"f:b":{}}}'
ONLY_A = '{"f:data":{"f:a":{}}}'
MANAGER, OTHER = "kube-chores Update", "other Update"
A_TAKEN = {MANAGER: ONLY_B, OTHER: ONLY_A}
Edit = Callable[[Place], Any]


def patch(body: Any, media: str = MERGE) -> Edit:
    return lambda place: place.send("PATCH", place.path("configmaps", "a") + "?fieldManager=other", body, media)


def replace(data: dict[str, str], manager: str = "other") -> Edit:
    def edit(place: Place) -> Any:
        path = place.path("configmaps", "a")
        live = place.send("GET", path).body
        return place.send("PUT", f"{path}?fieldManager={manager}", {**live, "data": data})

    return edit


def apply(force: bool = False, **data: str) -> Edit:
    return lambda place: place.apply("ConfigMap", "other", force=force, data=data)


CHANGE_A, CLEAR = patch({"data": {"a": "9"}}), patch({"metadata": {"managedFields": [{}]}})


def in_turn(*edits: Edit) -> Edit:
    return lambda place: [edit(place) for edit in edits][-1]


OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": "u-1"}
EDITS: dict[str, tuple[Edit, dict[str, str]]] = {
    "nothing": (lambda place: None, {MANAGER: BOTH}),
    "the same value patched": (patch({"data": {"a": "1"}}), {MANAGER: BOTH}),
    "the same value patched strategically": (patch({"data": {"a": "1"}}, STRATEGIC), {MANAGER: BOTH}),
    "the same value replaced": (replace({"a": "1", "b": "2"}), {MANAGER: BOTH}),
    "a changed": (CHANGE_A, A_TAKEN),
    "a changed by strategic patch": (patch({"data": {"a": "9"}}, STRATEGIC), A_TAKEN),
    "a changed by JSON patch": (patch([{"op": "replace", "path": "/data/a", "value": "9"}], JSON_PATCH), A_TAKEN),
    "a changed and changed back": (in_turn(CHANGE_A, patch({"data": {"a": "1"}})), A_TAKEN),
    "c added": (patch({"data": {"c": "3"}}), {MANAGER: BOTH, OTHER: '{"f:data":{"f:c":{}}}'}),
    "a removed": (patch({"data": {"a": None}}), {MANAGER: ONLY_B}),
    "a removed by replace": (replace({"b": "2"}), {MANAGER: ONLY_B}),
    "all data removed": (patch({"data": None}), {}),
    "the same values applied": (apply(a="1", b="2"), {"other Apply": '{"f:data":{"f:a":{},"f:b":{}}}', MANAGER: BOTH}),
    "another value applied by force": (apply(force=True, a="9"), {"other Apply": ONLY_A, MANAGER: ONLY_B}),
    "another value applied, then the first value replaced by its owner": (
        in_turn(apply(force=True, a="9"), replace({"a": "1", "b": "2"}, "kube-chores")),
        {MANAGER: BOTH},
    ),
    "applied and withdrawn": (in_turn(apply(c="3"), apply()), {"other Apply": '{"f:data":{}}', MANAGER: BOTH}),
    "managedFields cleared with an empty entry": (CLEAR, {}),
    "managedFields cleared with an empty list": (patch({"metadata": {"managedFields": []}}), {}),
    "managedFields cleared, then edited": (in_turn(CLEAR, CHANGE_A), {}),
    "managedFields cleared, then applied": (
        in_turn(CLEAR, apply(a="1")),
        {"other Apply": ONLY_A, "before-first-apply Update": BOTH},
    ),
    "labels and annotations": (
        patch({"metadata": {"labels": {"x": "y"}, "annotations": {"k": "v"}}}),
        {MANAGER: BOTH, OTHER: '{"f:metadata":{"f:annotations":{".":{},"f:k":{}},"f:labels":{".":{},"f:x":{}}}}'},
    ),
    "finalizers and owners": (
        patch({"metadata": {"finalizers": ["contract.test/protect"], "ownerReferences": [OWNER]}}),
        {
            MANAGER: BOTH,
            OTHER: '{"f:metadata":{"f:finalizers":{".":{},"v:\\"contract.test/protect\\"":{}},'
            '"f:ownerReferences":{".":{},"k:{\\"uid\\":\\"u-1\\"}":{}}}}',
        },
    ),
    "made immutable": (patch({"immutable": True}), {MANAGER: BOTH, OTHER: '{"f:immutable":{}}'}),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_of_a_config_map(place: Place, name: str) -> None:
    edit, owners = EDITS[name]
    place.config_map(data={"a": "1", "b": "2"})

    edit(place)

    answer = place.send("GET", place.path("configmaps", "a"), accept=ONE_METADATA)
    assert answer.owners() == owners
    place.send("PATCH", place.path("configmaps", "a"), {"metadata": {"finalizers": None}}, MERGE)


def test_ownership_of_everything_a_secret_has(place: Place) -> None:
    answer = place.secret(
        metadata={"labels": {"x": "y"}}, stringData={"a": "canary-1"}, data={"b": "Y2FuYXJ5LTI="}, immutable=False
    )

    assert answer.owners() == {
        MANAGER: '{"f:data":{".":{},"f:a":{},"f:b":{}},"f:immutable":{},'
        '"f:metadata":{"f:labels":{".":{},"f:x":{}}},"f:type":{}}'
    }
    assert answer.body["data"] == {"a": "Y2FuYXJ5LTE=", "b": "Y2FuYXJ5LTI="}
    assert "stringData" not in answer.body
    assert answer.body["type"] == "Opaque"


def test_string_data_of_another_applier_changes_data_that_the_first_still_owns(place: Place) -> None:
    place.secret(stringData={"a": "canary-1"})

    answer = place.apply("Secret", "other", stringData={"a": "canary-2"})

    assert answer.body["data"] == {"a": "Y2FuYXJ5LTI="}
    owned = '{"f:data":{".":{},"f:a":{}},"f:type":{}}'
    assert answer.owners() == {"other Apply": '{"f:stringData":{"f:a":{}}}', MANAGER: owned}


def test_removed_string_data_leaves_no_trace(place: Place) -> None:
    place.secret(stringData={"a": "canary-1"})
    place.apply("Secret", "other", stringData={"a": "canary-2"})

    answer = place.apply("Secret", "other")

    assert answer.body["data"] == {"a": "Y2FuYXJ5LTI="}
    assert answer.owners() == {MANAGER: '{"f:data":{".":{},"f:a":{}},"f:type":{}}'}


def test_patched_string_data_counts_as_data(place: Place) -> None:
    place.secret(stringData={"a": "canary-1"})

    path = place.path("secrets", "a") + "?fieldManager=other"

    answer = place.send("PATCH", path, {"stringData": {"a": "canary-2"}}, MERGE)

    assert answer.owners() == {MANAGER: '{"f:data":{},"f:type":{}}', OTHER: '{"f:data":{"f:a":{}}}'}


def test_the_manager_is_the_program_in_the_user_agent_unless_named(place: Place) -> None:
    body = {"metadata": {"name": "a"}, "data": {"a": "1"}}
    agent = {"User-Agent": "some-tool/v1.2 (linux)"}

    _, _, raw = place.api.request("POST", place.path("configmaps"), body, headers=agent)

    assert b'"manager":"some-tool","operation":"Update","apiVersion":"v1"' in raw


def test_a_write_of_equal_content_changes_nothing(place: Place) -> None:
    made = place.config_map(data={"a": "1"})

    patched = place.send("PATCH", place.path("configmaps", "a") + "?fieldManager=other", {"data": {"a": "1"}}, MERGE)
    put = place.send("PUT", place.path("configmaps", "a") + "?fieldManager=third", patched.body)

    assert made.version == patched.version == put.version


def test_an_apply_conflict_names_manager_and_fields(place: Place) -> None:
    place.config_map(data={"a": "1", "b": "2"})

    one = place.apply("ConfigMap", "other", data={"a": "9"})
    two = place.apply("ConfigMap", "other", data={"a": "9", "b": "9"})

    assert one.problem == conflict('Apply failed with 1 conflict: conflict with "kube-chores" using v1: .data.a')
    assert one.causes == {(".data.a", "FieldManagerConflict", 'conflict with "kube-chores" using v1')}
    message = 'Apply failed with 2 conflicts: conflicts with "kube-chores" using v1:\n- .data.a\n- .data.b'
    assert two.message == message


def test_applying_less_removes_what_only_the_applier_owned(place: Place) -> None:
    place.config_map(data={"a": "1"})
    place.apply("ConfigMap", "other", data={"a": "1", "c": "3"}, metadata={"labels": {"x": "y"}})

    answer = place.apply("ConfigMap", "other", data={"a": "1"})

    assert answer.body["data"] == {"a": "1"}
    assert "labels" not in answer.body["metadata"]


def test_applying_creates(place: Place) -> None:
    answer = place.apply("ConfigMap", "other", data={"a": "1"})

    assert answer.status == 201
    assert answer.owners() == {"other Apply": '{"f:data":{"f:a":{}}}'}


HEAD = {"apiVersion": "v1", "kind": "ConfigMap"}


@pytest.mark.parametrize(
    ("query", "body", "problem"),
    [
        (
            "",
            {**HEAD, "metadata": {"name": "a"}},
            unprocessable(
                'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
            ),
        ),
        ("?fieldManager=x", {"metadata": {"name": "a"}}, bad_request("invalid object type: /, Kind=")),
        ("?fieldManager=x", {**HEAD, "metadata": {"name": "b"}}, bad_request(OTHER_NAME)),
    ],
)
def test_an_apply_that_is_refused(place: Place, query: str, body: Any, problem: tuple[int, str, str]) -> None:
    assert place.send("PATCH", place.path("configmaps", "a") + query, body, APPLY).problem == problem
