"""The real server accepts and keeps the objects that the embedded server has in the fuzz tests."""

import copy
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from kubesandbox.api.patch import merge_patch
from tests import hostile
from tests.apis import Api, Object, wait_for
from tests.worlds import namespace_object

pytestmark = pytest.mark.cluster
MOST_PODS = 10  # for a billion pods kube-controller-manager needs 16 GiB


@pytest.fixture
def api(api: Api) -> Api:
    """A server with the namespaces of the worlds, in which pods can be created."""
    for name in ("home", "team-a", "team-b", "shop", hostile.NAME):
        api.create(namespace_object(name))
    return api


def objects() -> dict[str, Object]:
    """Return one object of each kind."""
    return {slot.obj["kind"]: slot.obj for made in hostile.SLOTS.values() for slot in made()}


def with_metadata(**metadata: Any) -> Object:
    made = objects()["ConfigMap"]
    return {**made, "metadata": {**made["metadata"], **metadata}}


def _metadata() -> Iterator[Object]:
    entry = {"operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "manager": "m"}
    for element in hostile.ELEMENTS:
        nested = msgspec.Raw(f'{{"{element}":{{"{element}":{{}}}}}}'.encode())
        yield with_metadata(managedFields=[{**entry, "fieldsV1": nested}])
    for manager in hostile.MANAGERS:
        yield with_metadata(managedFields=[{**entry, "manager": manager, "fieldsV1": msgspec.Raw(b'{"f:x":{}}')}])
    yield from (with_metadata(ownerReferences=each) for each in hostile.OWNERS)
    yield from (with_metadata(labels=each) for each in hostile.LABELS)
    yield from (with_metadata(finalizers=each) for each in hostile.FINALIZERS)
    yield from (with_metadata(annotations={each: "\0\x1b\u202e"}) for each in hostile.ANNOTATIONS)
    yield hostile.worst(with_metadata())


def _contents() -> Iterator[Object]:
    for kind, obj in objects().items():
        yield from (merge_patch(copy.deepcopy(obj), each) for each in hostile.CONTENT[kind])


@pytest.mark.parametrize("api", ["real"], indirect=True)
@pytest.mark.usefixtures("installed")
def test_the_real_server_accepts_each_legal_object(api: Api) -> None:
    owner = api.call("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"]
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "shop"}}
    wait_for(lambda: api.get(account), "the account of pods")
    refused = []
    for number, each in enumerate([*_metadata(), *_contents()]):
        obj = copy.deepcopy(each)
        obj["metadata"]["name"] += f"-{number}"
        for reference in obj["metadata"].get("ownerReferences", ()):
            reference["uid"] = reference["uid"] or owner
        refused += _sent(api, obj)

    assert refused == []


def _sent(api: Api, obj: Object) -> list[str]:
    """Create the object and write its status. Return the server's errors and the lost managed fields."""
    status = obj.pop("status", None)
    if (obj.get("spec") or {}).get("replicas", 0) > MOST_PODS:
        checked, _, body = api.request("POST", f"{api.path(obj, named=False)}?dryRun=All", msgspec.json.encode(obj))
        return [body.decode()[:300]] if checked != 201 else []
    made, _, body = api.request("POST", api.path(obj, named=False), msgspec.json.encode(obj))
    if made != 201:
        return [body.decode()[:300]]
    api.made(obj)
    if obj["metadata"].get("finalizers"):
        api.patch(obj, {"metadata": {"finalizers": None}})  # otherwise it could not be deleted
    kept = [entry["fieldsV1"] for entry in obj["metadata"].get("managedFields", ())]
    lost = [f"{obj['metadata']['name']}: not kept: {bytes(each)[:99]!r}" for each in kept if bytes(each) not in body]
    if status is not None:
        media = {"Content-Type": "application/merge-patch+json"}
        text = msgspec.json.encode({"status": status})
        written, _, body = api.request("PATCH", f"{api.path(obj)}/status", text, headers=media)
        lost += [body.decode()[:300]] if written != 200 else []
    return lost
