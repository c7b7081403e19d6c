"""The known ways to change a copy, and what the next run does about each.

A sweep reads metadata only. REPAIRED: the run detects the change and reverts it. UNCHANGED: the content is as desired,
so nothing is written, whatever manager owns the fields now. CONFLICT: the object is no longer managed by kube-chores,
so it is reported and not changed. NOT_DETECTED: metadata does not show the change, only `--verify=content` does
(docs/drift.md).
"""

from collections.abc import Sequence

import pytest

from tests.api.conftest import Run
from tests.apis import Api, ApiError, Object
from tests.canary import canary
from tests.edits import (
    JSON_PATCH,
    STRATEGIC,
    Edit,
    annotated,
    apply,
    changed_and_changed_back,
    client_side_apply,
    created_by_hand,
    forged_by,
    in_turn,
    nothing,
    patch,
    put,
    restored,
    same_values,
)
from tests.worlds import at, configmap, content, encoded, rule, secret

REPAIRED, UNCHANGED, CONFLICT, NOT_DETECTED, REJECTED = "repaired", "unchanged", "conflict", "not detected", "rejected"
KEY = ("data", "a")
OTHER = encoded(canary())
CLEARED: Object = {"metadata": {"managedFields": [{}]}}
CHANGE_A = patch({"data": {"a": OTHER}})
OF_HELM = patch({"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}})
CHANGED_AND_CHANGED_BACK = changed_and_changed_back(KEY, OTHER)

EDITS: dict[str, tuple[Edit, str]] = {
    "no change": (nothing, UNCHANGED),
    "same value by merge patch": (same_values(patch), UNCHANGED),
    "same object by replace": (put(lambda now: None), UNCHANGED),
    "same values by client-side apply": (same_values(client_side_apply), UNCHANGED),
    "same values by server-side apply": (same_values(lambda fields: apply(**fields)), UNCHANGED),
    "key a changed by merge patch": (CHANGE_A, REPAIRED),
    "key a changed by strategic merge patch": (patch({"data": {"a": OTHER}}, STRATEGIC), REPAIRED),
    "key a changed by JSON patch": (
        patch([{"op": "replace", "path": "/data/a", "value": OTHER}], JSON_PATCH),
        REPAIRED,
    ),
    "key a changed by replace": (put(lambda now: now["data"].update(a=OTHER)), REPAIRED),
    "key a changed and changed back": (CHANGED_AND_CHANGED_BACK, UNCHANGED),
    "key c added": (patch({"data": {"c": OTHER}}), REPAIRED),
    "key c added by server-side apply": (apply(data={"c": OTHER}), REPAIRED),
    "key a removed": (patch({"data": {"a": None}}), REPAIRED),
    "key a removed by replace": (put(lambda now: now["data"].pop("a")), REPAIRED),
    "all data removed": (patch({"data": None}), REPAIRED),
    "key a renamed": (patch({"data": {"a": None, "renamed": OTHER}}), REPAIRED),
    "key a changed by forced server-side apply": (apply(force=True, data={"a": OTHER}), REPAIRED),
    "key a applied by another manager, then removed from its configuration": (
        in_turn(apply(force=True, data={"a": OTHER}), apply(metadata={}, data={})),
        REPAIRED,
    ),
    "managedFields cleared": (patch(CLEARED), UNCHANGED),
    "managedFields cleared, then key a changed": (in_turn(patch(CLEARED), CHANGE_A), REPAIRED),
    "key a changed, then managedFields cleared": (in_turn(CHANGE_A, patch(CLEARED)), REPAIRED),
    "`immutable: false` set": (patch({"immutable": False}), UNCHANGED),
    "annotation with the fingerprint changed": (annotated("fingerprint", "v1:0"), REPAIRED),
    "annotation with the fingerprint removed": (annotated("fingerprint", None), REPAIRED),
    "annotation with the rule changed": (annotated("rule", "kube-chores/other"), REPAIRED),
    "label with the hash of the rule removed": (
        patch({"metadata": {"labels": {"kubechores.dev/rule-hash": None}}}),
        REPAIRED,
    ),
    "label added": (patch({"metadata": {"labels": {"team": "blue"}}}), UNCHANGED),
    "annotation added": (patch({"metadata": {"annotations": {"note": "hello"}}}), UNCHANGED),
    "label managed-by changed, and key a": (in_turn(OF_HELM, CHANGE_A), CONFLICT),
    "copy deleted, and created by hand without labels": (created_by_hand(data={"a": OTHER}), CONFLICT),
    "copy deleted, and restored from a backup with another value": (restored(KEY, OTHER), REPAIRED),
    "key a changed by a client with the field manager kube-chores": (
        patch({"data": {"a": OTHER}}, manager="kube-chores"),
        NOT_DETECTED,
    ),
    "key a changed, and managedFields forged": (forged_by(CHANGE_A), NOT_DETECTED),
}

SECRET_EDITS: dict[str, tuple[Edit, str]] = {
    "stringData by merge patch": (patch({"stringData": {"a": canary()}}), REPAIRED),
    "stringData of key a by server-side apply": (apply(stringData={"a": canary()}), REPAIRED),
    "stringData of a new key by server-side apply": (apply(stringData={"new": canary()}), REPAIRED),
    "stringData of key a by server-side apply, then removed from its configuration": (
        in_turn(apply(stringData={"a": canary()}), apply(metadata={})),
        NOT_DETECTED,
    ),
    "stringData of a new key by server-side apply, then removed from its configuration": (
        in_turn(apply(stringData={"new": canary()}), apply(metadata={})),
        NOT_DETECTED,
    ),
}

BINARY_DATA_ADDED = patch({"binaryData": {"bin": "AAEC"}}), REPAIRED
CASES = {"configmap": {**EDITS, "binaryData added": BINARY_DATA_ADDED}, "secret": {**EDITS, **SECRET_EDITS}}


def ends_of(
    api: Api, sync: Run, edits: Sequence[Edit], copies: Sequence[Object], contents: Sequence[Object | None]
) -> list[str]:
    """Edit each copy; return what the next run does about each. Later runs must find nothing but the conflicts.

    `contents` are the desired contents of the copies.
    """
    statuses = [_status_of(api, edit, copy) for edit, copy in zip(edits, copies, strict=True)]
    edited = [api.get(copy) for copy in copies]
    api.mark()

    ran = sync("-v")

    assert ran.exit_code == 0
    # The list by label has no object of a conflict, so the run tries to create it once.
    written = {each.path for each in api.copy_writes() if each.method != "POST" or each.status != 409}
    codes = {each["object"]["name"]: each["code"] for each in ran.results}

    def end(number: int) -> str:
        copy, before = copies[number], edited[number]
        now, code = api.get(copy), codes[copy["metadata"]["name"]]
        is_written = api.path(copy) in written or not before
        match code, is_written, content(now) == contents[number]:
            case "conflict", False, _:
                return CONFLICT if _seen(now) == _seen(before) else "changed"
            case "unchanged", False, True:
                return {200: UNCHANGED, 422: REJECTED}[statuses[number]] if _seen(now) == _seen(before) else "changed"
            case "unchanged", False, False:
                return NOT_DETECTED if _seen(now) == _seen(before) else "changed"
            case _, True, True:
                return REPAIRED
        return f"{code}: {content(now)}"

    found = [end(number) for number in range(len(copies))]
    assert sync("--verify=content").summary.get("configured", 0) == found.count(NOT_DETECTED)
    api.mark()
    conflicts = found.count(CONFLICT)
    for summary in (sync().summary, sync("--verify=content").summary):
        assert summary == {"unchanged": len(copies) - conflicts, "conflict": conflicts}
    assert api.writes() == []
    return found


def _seen(obj: Object | None) -> tuple[Object | None, ...]:
    """Return what a run may write; a controller writes the status of a quota meanwhile."""
    metadata = obj["metadata"] if obj else {}
    return content(obj), metadata.get("labels"), metadata.get("annotations"), metadata.get("uid")


def _status_of(api: Api, edit: Edit, copy: Object) -> int:
    """Edit a copy; return the status of the response."""
    try:
        edit(api, copy)
    except ApiError as error:
        return error.status
    return 200


@pytest.mark.parametrize("kind", CASES)
def test_an_edit_of_a_copy(api: Api, sync: Run, kind: str, home: str, team: str) -> None:
    data = {"a": encoded(canary()), "b": encoded(canary())}
    make, edits = (secret if kind == "secret" else configmap), CASES[kind]
    sources = [api.create(make(home, f"edit-{number}", data=data)) for number in range(len(edits))]
    api.create(rule("rule", home, team, ruleType=kind))
    assert sync().summary == {"created": len(edits)}

    found = ends_of(
        api, sync, [edit for edit, _ in edits.values()], [at(team, each) for each in sources], [*map(content, sources)]
    )

    assert dict(zip(edits, found, strict=True)) == {name: end for name, (_, end) in edits.items()}


def test_only_a_suspect_is_read_in_full(api: Api, sync: Run, home: str) -> None:
    source = api.create(secret(home, data={"a": encoded(canary())}))
    teams = [api.namespace(f"team-{number}") for number in range(3)]
    api.create(rule("rule", home, f"team-*-{api.token}", ruleType="secret"))
    sync()
    CHANGED_AND_CHANGED_BACK(api, at(teams[1], source))
    api.mark()

    assert sync().summary == {"unchanged": 3}

    whole = [each.path for each in api.requests() if each.method == "GET" and "limit" not in each.query]
    assert whole == [f"/api/v1/namespaces/{teams[1]}/secrets/login"]
