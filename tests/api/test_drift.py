"""The known ways to change a copy, and what the next run does about each.

A sweep reads metadata only. REPAIRED: the run detects the change and reverts it. UNCHANGED: the content is as desired,
so nothing is written, whatever manager owns the fields now. CONFLICT: the object is no longer managed by kube-chores,
so it is reported and not changed. NOT_DETECTED: metadata does not show the change, only `--verify=content` does
(docs/drift.md).
"""

import pytest

from tests.api.conftest import Run
from tests.apis import Api, Object
from tests.canary import canary
from tests.edits import JSON_PATCH, STRATEGIC, Edit, apply, in_turn, patch, put
from tests.worlds import at, configmap, content, encoded, rule, secret

REPAIRED, UNCHANGED, CONFLICT, NOT_DETECTED = "repaired", "unchanged", "conflict", "not detected"


def nothing(api: Api, copy: Object) -> None:
    """Do not change the copy."""


def same_value(api: Api, copy: Object) -> None:
    patch({"data": api.read(copy)["data"]})(api, copy)


def apply_same_values(api: Api, copy: Object) -> None:
    apply(data=api.read(copy)["data"])(api, copy)


def kubectl_apply_same_values(api: Api, copy: Object) -> None:
    """Patch as a client-side apply does: with the applied configuration in an annotation."""
    now = api.read(copy)
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    patch({"metadata": {"annotations": applied}, "data": now["data"]}, STRATEGIC, "kubectl-client-side-apply")(
        api, copy
    )


def changed_and_changed_back(api: Api, copy: Object) -> None:
    now = api.read(copy)
    patch({"data": {"a": OTHER}})(api, copy)
    patch({"data": {"a": now["data"]["a"]}})(api, copy)


def recreated_by_hand(api: Api, copy: Object) -> None:
    api.delete(copy)
    metadata = {"name": copy["metadata"]["name"], "namespace": copy["metadata"]["namespace"]}
    api.create({"apiVersion": "v1", "kind": copy["kind"], "metadata": metadata, "data": {"a": OTHER}})


def restored_by_hand(api: Api, copy: Object) -> None:
    """Create the copy again with its labels and annotations, but with another value and another field manager."""
    now = api.read(copy)
    api.delete(copy)
    metadata = {key: now["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
    api.create({**now, "metadata": metadata, "data": {**now["data"], "a": OTHER}})


def forged_by(change: Edit) -> Edit:
    """Return an edit that also writes managedFields which name kube-chores as the manager."""

    def edit(api: Api, copy: Object) -> None:
        entries = api.read(copy)["metadata"]["managedFields"]
        change(api, copy)
        patch({"metadata": {"managedFields": entries}}, manager="forger")(api, copy)

    return edit


OTHER = encoded(canary())
CLEARED: Object = {"metadata": {"managedFields": [{}]}}
CHANGE_A = patch({"data": {"a": OTHER}})
OF_HELM = patch({"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}})


def annotated(key: str, value: str | None) -> Edit:
    return patch({"metadata": {"annotations": {f"kubechores.dev/{key}": value}}})


EDITS: dict[str, tuple[Edit, str]] = {
    "no change": (nothing, UNCHANGED),
    "same value by merge patch": (same_value, UNCHANGED),
    "same object by replace": (put(lambda now: None), UNCHANGED),
    "same values by client-side apply": (kubectl_apply_same_values, UNCHANGED),
    "same values by server-side apply": (apply_same_values, UNCHANGED),
    "key a changed by merge patch": (CHANGE_A, REPAIRED),
    "key a changed by strategic merge patch": (patch({"data": {"a": OTHER}}, STRATEGIC), REPAIRED),
    "key a changed by JSON patch": (
        patch([{"op": "replace", "path": "/data/a", "value": OTHER}], JSON_PATCH),
        REPAIRED,
    ),
    "key a changed by replace": (put(lambda now: now["data"].update(a=OTHER)), REPAIRED),
    "key a changed and changed back": (changed_and_changed_back, UNCHANGED),
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
    "label managed-by changed, and key a": (
        in_turn(
            patch({"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}}), patch({"data": {"a": OTHER}})
        ),
        CONFLICT,
    ),
    "copy deleted, and created by hand without labels": (recreated_by_hand, CONFLICT),
    "copy deleted, and restored from a backup with another value": (restored_by_hand, REPAIRED),
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

CASES = [
    *(
        pytest.param(kind, edit, end, id=f"{kind}: {name}")
        for name, (edit, end) in EDITS.items()
        for kind in ("configmap", "secret")
    ),
    pytest.param("configmap", patch({"binaryData": {"bin": "AAEC"}}), REPAIRED, id="configmap: binaryData added"),
    *(pytest.param("secret", edit, end, id=f"secret: {name}") for name, (edit, end) in SECRET_EDITS.items()),
]


@pytest.mark.parametrize(("kind", "edit", "end"), CASES)
def test_an_edit_of_a_copy(api: Api, sync: Run, kind: str, edit: Edit, end: str, home: str, team: str) -> None:
    data = {"a": encoded(canary()), "b": encoded(canary())}
    source = api.create((secret if kind == "secret" else configmap)(home, "x", data=data))
    api.create(rule("rule", home, f"*-{api.token}", ruleType=kind))
    assert sync().summary == {"created": 1}
    copy = at(team, source)
    edit(api, copy)
    edited = api.get(copy)
    api.mark()

    ran = sync()

    assert ran.exit_code == 0
    if end == REPAIRED:
        assert ran.summary == {"configured": 1}
        assert content(api.get(copy)) == content(source)
    else:
        assert ran.summary == ({"conflict": 1} if end == CONFLICT else {"unchanged": 1})
        assert api.get(copy) == edited
        # The list by label has no such object, so the run tries to create it once: 409 Conflict.
        assert [write.status for write in api.copy_writes()] == [409] * (end == CONFLICT)
    if end == NOT_DETECTED:
        assert content(edited) != content(source)
        assert sync("--verify=content").summary == {"configured": 1}
        assert content(api.get(copy)) == content(source)
    if end != CONFLICT:
        api.mark()
        assert sync().summary == sync("--verify=content").summary == {"unchanged": 1}
        assert api.writes() == []


def test_only_a_suspect_is_read_in_full(api: Api, sync: Run, home: str) -> None:
    source = api.create(secret(home, data={"a": encoded(canary())}))
    teams = [api.namespace(f"team-{number}") for number in range(3)]
    api.create(rule("rule", home, f"team-*-{api.token}", ruleType="secret"))
    sync()
    changed_and_changed_back(api, at(teams[1], source))
    api.mark()

    assert sync().summary == {"unchanged": 3}

    whole = [each.path for each in api.requests() if each.method == "GET" and "limit" not in each.query]
    assert whole == [f"/api/v1/namespaces/{teams[1]}/secrets/login"]
