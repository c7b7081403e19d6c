"""The ways in which clients change an object, as functions that do it."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.apis import Api, ApiError, Object, wait_for
from tests.worlds import content

Edit = Callable[[Api, Object], None]
FieldPath = tuple[str, ...]

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


def patch(body: Any, kind: str = MERGE, manager: str = "kubectl-edit", subresource: str = "") -> Edit:
    def edit(api: Api, obj: Object) -> None:
        path = f"{api.path(obj)}{subresource}?fieldManager={manager}"
        api.call("PATCH", path, body, headers={"Content-Type": kind})

    return edit


def apply(manager: str = "other", force: bool = False, **fields: Any) -> Edit:
    def edit(api: Api, obj: Object) -> None:
        metadata = {"name": obj["metadata"]["name"], "namespace": obj["metadata"]["namespace"]}
        body = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata, **fields}
        query = f"fieldManager={manager}" + "&force=true" * force
        api.call("PATCH", f"{api.path(obj)}?{query}", body, headers={"Content-Type": APPLY})

    return edit


def put(change: Callable[[Object], object], manager: str = "kubectl-replace") -> Edit:
    """Return a replace that is repeated after a conflict: a controller writes the status of a new quota."""

    def edit(api: Api, obj: Object) -> None:
        wait_for(lambda: is_replaced(api, obj), f"a replace of {api.path(obj)} without a conflict")

    def is_replaced(api: Api, obj: Object) -> bool:
        now = api.read(obj)
        change(now)
        try:
            api.call("PUT", f"{api.path(obj)}?fieldManager={manager}", now)
        except ApiError as error:
            if error.status != 409:
                raise
            return False
        return True

    return edit


def in_turn(*edits: Edit) -> Edit:
    def edit(api: Api, obj: Object) -> None:
        for each in edits:
            each(api, obj)

    return edit


def nested(path: FieldPath, value: Any) -> Any:
    """Return maps in each other with the value in the last one, as a merge patch has it."""
    return {path[0]: nested(path[1:], value)} if path else value


def set_in(obj: Object, path: FieldPath, value: Any) -> Object:
    """Set a field of an object, or remove it if the value is None; return the object."""
    parent = obj
    for name in path[:-1]:
        parent = parent.setdefault(name, {})
    if value is None:
        parent.pop(path[-1], None)
    else:
        parent[path[-1]] = value
    return obj


def setting(path: FieldPath, value: Any) -> Mapping[str, Edit]:
    """Return the ways to set a field that may be absent, by name."""
    pointer = "/" + "/".join(path)
    return {
        "merge patch": patch(nested(path, value)),
        "strategic merge patch": patch(nested(path, value), STRATEGIC),
        "JSON patch": patch([{"op": "add", "path": pointer, "value": value}], JSON_PATCH),
        "replace": put(lambda now: set_in(now, path, value)),
        "forced server-side apply": apply(force=True, **nested(path, value)),
    }


def removing(path: FieldPath, other: Any) -> Mapping[str, Edit]:
    """Return the ways to remove a field, by name. An apply can only remove what it has set before, to `other`."""
    pointer = "/" + "/".join(path)
    return {
        "merge patch": patch(nested(path, None)),
        "strategic merge patch": patch(nested(path, None), STRATEGIC),
        "JSON patch": patch([{"op": "remove", "path": pointer}], JSON_PATCH),
        "replace": put(lambda now: set_in(now, path, None)),
        "server-side apply": in_turn(apply(force=True, **nested(path, other)), apply()),
    }


def nothing(api: Api, copy: Object) -> None:
    """Do not change the copy."""


def annotated(key: str, value: str | None) -> Edit:
    return patch({"metadata": {"annotations": {f"kubechores.dev/{key}": value}}})


def same_values(send: Callable[[Object], Edit]) -> Edit:
    """Return an edit that sends the present content of the copy."""
    return lambda api, copy: send(content(api.read(copy)) or {})(api, copy)


def client_side_apply(fields: Object) -> Edit:
    """Return a patch as a client-side apply sends it: with the applied configuration in an annotation."""
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "{}"}
    return patch({"metadata": {"annotations": applied}, **fields}, STRATEGIC, "kubectl-client-side-apply")


def changed_and_changed_back(path: FieldPath, other: Any) -> Edit:
    def edit(api: Api, copy: Object) -> None:
        now = api.read(copy)
        patch(nested(path, other))(api, copy)
        put(lambda changed: changed.update(content(now) or {}))(api, copy)

    return edit


def created_by_hand(**fields: Any) -> Edit:
    """Return an edit that deletes the copy, and creates it again without labels, with these fields."""

    def edit(api: Api, copy: Object) -> None:
        before = api.read(copy)
        api.delete(copy)
        api.create({**copy, **(content(before) or {}), **fields})

    return edit


def restored(path: FieldPath, other: Any) -> Edit:
    """Return an edit that creates the copy again with its labels and annotations, but with another value."""

    def edit(api: Api, copy: Object) -> None:
        now = set_in(api.read(copy), path, other)
        api.delete(copy)
        metadata = {key: now["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
        api.create({**now, "metadata": metadata})

    return edit


def forged_by(change: Edit) -> Edit:
    """Return an edit that also writes managedFields which name kube-chores as the manager."""

    def edit(api: Api, copy: Object) -> None:
        entries = api.read(copy)["metadata"]["managedFields"]
        change(api, copy)
        patch({"metadata": {"managedFields": entries}}, manager="forger")(api, copy)

    return edit
