"""Every way to change a copy behind our back that we know of, and what the next run makes of it.

A sweep sees metadata alone. REPAIRED: it found the change and undid it. LEFT: the content is right, so nothing is
written whoever owns the fields now. FOREIGN: the object is not ours any more, so it is told and not touched. HIDDEN:
metadata does not show it, and only `--verify=content` does (docs/drift.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.api.conftest import Run
from tests.apis import Api
from tests.canary import canary
from tests.worlds import at, configmap, content, encoded, rule, secret

Object = dict[str, Any]
Edit = Callable[[Api, Object], None]
REPAIRED, LEFT, FOREIGN, HIDDEN = "repaired", "left", "foreign", "hidden"

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


def patch(body: Any, kind: str = MERGE, manager: str = "kubectl-edit", query: str = "") -> Edit:
    def edit(api: Api, copy: Object) -> None:
        path = f"{api.path(copy)}?fieldManager={manager}{query}"
        api.call("PATCH", path, body, headers={"Content-Type": kind})

    return edit


def apply(manager: str = "other", force: bool = False, **fields: Any) -> Edit:
    def edit(api: Api, copy: Object) -> None:
        metadata = {"name": copy["metadata"]["name"], "namespace": copy["metadata"]["namespace"]}
        body = {"apiVersion": "v1", "kind": copy["kind"], "metadata": metadata, **fields}
        query = f"fieldManager={manager}" + "&force=true" * force
        api.call("PATCH", f"{api.path(copy)}?{query}", body, headers={"Content-Type": APPLY})

    return edit


def put(change: Callable[[Object], None], manager: str = "kubectl-replace") -> Edit:
    def edit(api: Api, copy: Object) -> None:
        now = api.get(copy)
        assert now
        change(now)
        api.call("PUT", f"{api.path(copy)}?fieldManager={manager}", now)

    return edit


def in_turn(*edits: Edit) -> Edit:
    def edit(api: Api, copy: Object) -> None:
        for each in edits:
            each(api, copy)

    return edit


def nothing(api: Api, copy: Object) -> None:
    """Leave the copy as it is."""


def same_value(api: Api, copy: Object) -> None:
    now = api.get(copy)
    assert now
    patch({"data": now["data"]})(api, copy)


def apply_same_values(api: Api, copy: Object) -> None:
    now = api.get(copy)
    assert now
    apply(data=now["data"])(api, copy)


def kubectl_apply_same_values(api: Api, copy: Object) -> None:
    """As a client-side apply does: the values, and what was applied in an annotation."""
    now = api.get(copy)
    assert now
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    patch({"metadata": {"annotations": applied}, "data": now["data"]}, STRATEGIC, "kubectl-client-side-apply")(
        api, copy
    )


def there_and_back(api: Api, copy: Object) -> None:
    now = api.get(copy)
    assert now
    patch({"data": {"a": OTHER}})(api, copy)
    patch({"data": {"a": now["data"]["a"]}})(api, copy)


def made_by_hand(api: Api, copy: Object) -> None:
    now = api.get(copy)
    assert now
    api.delete(copy)
    metadata = {"name": copy["metadata"]["name"], "namespace": copy["metadata"]["namespace"]}
    api.create({"apiVersion": "v1", "kind": copy["kind"], "metadata": metadata, "data": {"a": OTHER}})


def copied_by_hand(api: Api, copy: Object) -> None:
    """The copy, stamp and all, saved and created again with another value: our labels, somebody else's fields."""
    now = api.get(copy)
    assert now
    api.delete(copy)
    metadata = {key: now["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
    api.create({**now, "metadata": metadata, "data": {**now["data"], "a": OTHER}})


def forged(api: Api, copy: Object) -> None:
    """Edit, and write into managedFields that kube-chores did it."""
    before = api.get(copy)
    assert before
    entries = before["metadata"]["managedFields"]
    patch({"data": {"a": OTHER}})(api, copy)
    patch({"metadata": {"managedFields": entries}}, manager="forger")(api, copy)


OTHER = encoded(canary())
CLEARED: Object = {"metadata": {"managedFields": [{}]}}

EDITS: dict[str, tuple[Edit, str]] = {
    "nothing": (nothing, LEFT),
    "the same value patched": (same_value, LEFT),
    "the same value replaced": (put(lambda now: None), LEFT),
    "the same value by client-side apply": (kubectl_apply_same_values, LEFT),
    "the same values by server-side apply": (apply_same_values, LEFT),
    "a changed by merge patch": (patch({"data": {"a": OTHER}}), REPAIRED),
    "a changed by strategic patch": (patch({"data": {"a": OTHER}}, STRATEGIC), REPAIRED),
    "a changed by JSON patch": (patch([{"op": "replace", "path": "/data/a", "value": OTHER}], JSON_PATCH), REPAIRED),
    "a changed by replace": (put(lambda now: now["data"].update(a=OTHER)), REPAIRED),
    "a changed and changed back": (there_and_back, LEFT),
    "c added": (patch({"data": {"c": OTHER}}), REPAIRED),
    "c added by server-side apply": (apply(data={"c": OTHER}), REPAIRED),
    "a removed": (patch({"data": {"a": None}}), REPAIRED),
    "a removed by replace": (put(lambda now: now["data"].pop("a")), REPAIRED),
    "all data removed": (patch({"data": None}), REPAIRED),
    "a renamed": (patch({"data": {"a": None, "renamed": OTHER}}), REPAIRED),
    "another value by forced server-side apply": (apply(force=True, data={"a": OTHER}), REPAIRED),
    "a applied by another, then withdrawn": (
        in_turn(apply(force=True, data={"a": OTHER}), apply(metadata={}, data={})),
        REPAIRED,
    ),
    "managedFields cleared": (patch(CLEARED), LEFT),
    "managedFields cleared, then a changed": (in_turn(patch(CLEARED), patch({"data": {"a": OTHER}})), REPAIRED),
    "a changed, then managedFields cleared": (in_turn(patch({"data": {"a": OTHER}}), patch(CLEARED)), REPAIRED),
    "immutable: false set": (patch({"immutable": False}), LEFT),
    "the fingerprint changed": (
        patch({"metadata": {"annotations": {"kubechores.dev/fingerprint": "v1:0"}}}),
        REPAIRED,
    ),
    "the fingerprint removed": (patch({"metadata": {"annotations": {"kubechores.dev/fingerprint": None}}}), REPAIRED),
    "the rule's annotation changed": (
        patch({"metadata": {"annotations": {"kubechores.dev/rule": "kube-chores/other"}}}),
        REPAIRED,
    ),
    "the hash of the rule removed": (patch({"metadata": {"labels": {"kubechores.dev/rule-hash": None}}}), REPAIRED),
    "a label of somebody's": (patch({"metadata": {"labels": {"team": "blue"}}}), LEFT),
    "an annotation of somebody's": (patch({"metadata": {"annotations": {"note": "hello"}}}), LEFT),
    "the managed-by label changed": (
        in_turn(
            patch({"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}}), patch({"data": {"a": OTHER}})
        ),
        FOREIGN,
    ),
    "deleted and made by hand": (made_by_hand, FOREIGN),
    "deleted and copied by hand": (copied_by_hand, REPAIRED),
    "a changed under our own manager's name": (patch({"data": {"a": OTHER}}, manager="kube-chores"), HIDDEN),
    "a changed and managedFields forged": (forged, HIDDEN),
}

SECRET_EDITS: dict[str, tuple[Edit, str]] = {
    "stringData patched": (patch({"stringData": {"a": canary()}}), REPAIRED),
    "stringData applied by another": (apply(stringData={"a": canary()}), REPAIRED),
    "stringData of a new key applied by another": (apply(stringData={"new": canary()}), REPAIRED),
    "stringData applied and withdrawn": (in_turn(apply(stringData={"a": canary()}), apply(metadata={})), HIDDEN),
    "stringData of a new key applied and withdrawn": (
        in_turn(apply(stringData={"new": canary()}), apply(metadata={})),
        HIDDEN,
    ),
}

CASES = [
    *(
        pytest.param(kind, edit, end, id=f"{kind}: {name}")
        for name, (edit, end) in EDITS.items()
        for kind in ("configmap", "secret")
    ),
    *(
        pytest.param("configmap", patch({"binaryData": {"bin": "AAEC"}}), REPAIRED, id="configmap: binaryData added")
        for _ in "1"
    ),
    *(pytest.param("secret", edit, end, id=f"secret: {name}") for name, (edit, end) in SECRET_EDITS.items()),
]


@pytest.mark.parametrize(("kind", "edit", "end"), CASES)
def test_an_edit_of_a_copy(api: Api, sync: Run, kind: str, edit: Edit, end: str) -> None:
    home, team = api.namespace("home"), api.namespace("team")
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
        assert ran.summary == ({"conflict": 1} if end == FOREIGN else {"unchanged": 1})
        assert api.get(copy) == edited
        # What is missing from our list is tried once; the server says that it exists.
        assert [write.status for write in api.copy_writes()] == [409] * (end == FOREIGN)
    if end == HIDDEN:
        assert content(edited) != content(source)
        assert sync("--verify=content").summary == {"configured": 1}
        assert content(api.get(copy)) == content(source)
    if end != FOREIGN:
        api.mark()
        assert sync().summary == sync("--verify=content").summary == {"unchanged": 1}
        assert api.writes() == []


def test_a_suspect_is_read_in_full_and_nothing_else_is(api: Api, sync: Run) -> None:
    home = api.namespace("home")
    source = api.create(secret(home, data={"a": encoded(canary())}))
    teams = [api.namespace(f"team-{number}") for number in range(3)]
    api.create(rule("rule", home, f"team-*-{api.token}", ruleType="secret"))
    sync()
    there_and_back(api, at(teams[1], source))
    api.mark()

    assert sync().summary == {"unchanged": 3}

    whole = [each.path for each in api.requests() if each.method == "GET" and "limit" not in each.query]
    assert whole == [f"/api/v1/namespaces/{teams[1]}/secrets/login"]
