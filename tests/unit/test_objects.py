"""Ownership from managedFields, content without values in its repr, and replacements."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import structs

from jobs.core.sync_copies.kinds import KINDS
from jobs.kit.data.contents import SECRET, Content, FieldContent, field_content, field_set
from jobs.kit.data.manifests import ContentManifest, Replacement, content_diff
from jobs.kit.data.objects import Header, ObjectReducer, Ownership, ReducedObject, WholeObject
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import FieldDiff, ObjectKey
from jobs.kit.values.resources import SECRETS
from tests.canary import canary

ENTRIES = [{"manager": "kube-chores", "operation": "Update", "fieldsV1": {"f:data": {"f:a": {}}}}]


def _header(*managed_fields: tuple[str, Any], reducer: ObjectReducer | None = None) -> Header:
    entries = [{"manager": manager, "operation": "Update", "fieldsV1": fields} for manager, fields in managed_fields]
    raw = json.dumps({"metadata": {"name": "x", "namespace": "n", "managedFields": entries}})
    return (reducer or ObjectReducer(())).decode(SECRET, raw.encode(), full=False).header


FIRST_TEN = [tuple(f"manager-{n:02}" for n in range(10))]
LABEL: dict[str, Any] = {"f:metadata": {"f:labels": {"f:x": {}}}}
OURS: dict[str, Any] = {"f:data": {".": {}, "f:a": {}, "f:b.c": {}}, "f:type": {}}


@pytest.mark.parametrize(
    ("managed_fields", "content", "others", "has_immutable"),
    [
        ([("kube-chores", OURS)], {"data.a", "data.b.c", "type"}, (), False),
        ([("kube-chores", {"f:data": {".": {}}})], set(), (), False),
        ([("kube-chores", {"f:data": {}})], {"data"}, (), False),
        ([("kube-chores", {"f:immutable": {}})], {"immutable"}, (), True),
        ([("kube-chores", OURS), ("them", LABEL)], {"data.a", "data.b.c", "type"}, (), False),
        ([("them", {"f:data": {"f:a": {}}, "f:immutable": {}})], set(), ("them",), True),
        ([("them", {"f:stringData": {"f:a": {}}})], set(), ("them",), False),
        ([], set(), (), False),
        ([("them", {"f:data": None}), ("others", {"f:metadata": [], "f:type": "x"})], set(), ("others", "them"), False),
        ([("kube-chores", {"f:metadata": {"f:labels": [], "f:annotations": 3}})], set(), (), False),
        ([("them", None), ("them", "text"), ("them", [])], set(), (), False),
        ([(f"manager-{n:02}", {"f:data": {}}) for n in range(20)], set(), *FIRST_TEN, False),
    ],
)
def test_ownership_is_read_from_managed_fields(
    managed_fields: list[tuple[str, Any]], content: set[str], others: tuple[str, ...], has_immutable: bool
) -> None:
    ownership = _header(*managed_fields).ownership

    assert (ownership.content, ownership.others, ownership.has_immutable) == (field_set(content), others, has_immutable)


def test_headers_of_copies_are_shared() -> None:
    reducer = ObjectReducer(())
    first, second = _header(("kube-chores", OURS), reducer=reducer), _header(("kube-chores", OURS), reducer=reducer)

    assert first is second


def test_headers_that_differ_in_an_annotation_share_the_rest() -> None:
    reducer = ObjectReducer(("a", "b"))
    bodies = [
        {"metadata": {"name": "x", "labels": {"a": "1"}, "annotations": {"b": each}, "managedFields": ENTRIES}}
        for each in ("1", "2")
    ]
    first, second = (reducer.decode(SECRET, json.dumps(each).encode(), full=False).header for each in bodies)

    assert (first.annotations, second.annotations) == ({"b": "1"}, {"b": "2"})
    assert first.ownership is second.ownership
    assert first.labels is second.labels


def test_no_repr_shows_a_value() -> None:
    value = canary()
    content = Content("Opaque", {"password": value})
    key = ObjectKey("Secret", "x", "n")
    read = msgspec.json.decode(json.dumps({"metadata": {"name": "x"}, "data": {"password": value}}), type=WholeObject)
    manifest = ContentManifest(SECRET, key, {}, {}, content)

    assert value not in repr(content) + repr(manifest) + repr(read)
    assert "data.password" in repr(content)


def test_null_values_count_as_empty() -> None:
    raw = b'{"metadata": {"name": "x"}, "data": {"a": null}, "immutable": null}'

    assert msgspec.json.decode(raw, type=WholeObject).content(SECRET) == Content(data={"a": ""})


def test_changes_name_every_field_and_hide_the_values_of_secrets() -> None:
    actual = Content("Opaque", {"a": canary(), "deleted": canary()}, immutable=True)
    desired = Content("kubernetes.io/tls", {"a": canary(), "new": canary()})

    assert content_diff(actual, desired, secret=True) == (
        FieldDiff("data.a", "***", "***"),
        FieldDiff("data.deleted", "***", None),
        FieldDiff("data.new", None, "***"),
        FieldDiff("immutable", "true", None),
        FieldDiff("type", "Opaque", "kubernetes.io/tls"),
    )
    assert content_diff(desired, desired, secret=True) == ()
    assert content_diff(Content(data={"a": "1"}), Content(data={"a": "2"}), secret=False) == (
        FieldDiff("data.a", "1", "2"),
    )


def test_a_replacement_keeps_labels_and_annotations_of_other_clients() -> None:
    content = Content("Opaque", {"k": "dg=="})
    manifest = ContentManifest(SECRET, ObjectKey("Secret", "x", "n"), {"l": "1"}, {"a": "2"}, content)
    own = Ownership(field_set([]), (), False, frozenset({"l", "taken-back"}), frozenset({"a"}))
    labels = {"l": "0", "taken-back": "0", "theirs": "1"}
    before = Header(labels, {"a": "0", "b": "3"}, own, False, b'[{"name":"o"}]', b'["f"]')

    replacement = Replacement(manifest, ReducedObject("n", "x", "u 7", before))

    sent = json.loads(replacement.encode())
    assert sent.pop("metadata") == {
        "name": "x",
        "namespace": "n",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {"l": "1", "theirs": "1"},
        "annotations": {"a": "2", "b": "3"},
        "ownerReferences": [{"name": "o"}],
        "finalizers": ["f"],
    }
    assert sent == {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"k": "dg=="}}


def test_fields_that_the_server_changed_are_named() -> None:
    manifest = ContentManifest(SECRET, ObjectKey("Secret", "x", "n"), {}, {}, Content("Opaque", {"k": "dg=="}))
    answer = b'{"metadata": {"name": "x"}, "type": "Opaque", "data": {"k": "eA==", "injected": "eA=="}}'

    assert manifest.changed_by_server(answer) == ("data.injected", "data.k")
    assert manifest.changed_by_server(manifest.encode()) == ()


def test_an_invalid_name_cannot_change_the_path() -> None:
    path = SECRETS.path("a/../b", "\0x?y\n#z")

    assert path == "/api/v1/namespaces/a%2F..%2Fb/secrets/%00x%3Fy%0A%23z"
    assert SECRETS.path("shop", "system:login.v1") == "/api/v1/namespaces/shop/secrets/system:login.v1"


def test_a_replacement_applies_only_to_the_version_that_was_compared() -> None:
    key = ObjectKey("ConfigMap", "x", "n")
    manifest = ContentManifest(SECRET, key, {}, {}, Content())
    now = {"metadata": {"name": "x", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"theirs": "1"}}}
    read = {key: json.dumps(now).encode()}
    header = structs.replace(_header(), is_whole=False)

    completed = Replacement(manifest, ReducedObject("n", "x", "u 7", header)).completed(read)

    assert json.loads(completed.encode())["metadata"]["labels"] == {"theirs": "1"}
    with pytest.raises(ApiError, match="changed meanwhile"):
        Replacement(manifest, ReducedObject("n", "x", "u 6", header)).completed(read)


def listed(*peers: str) -> FieldContent:
    rules = [{"from": [{"namespaceSelector": {"matchLabels": {"team": each}}}]} for each in peers]
    return field_content(KINDS["networkpolicy"].layout, {"spec": {"ingress": rules, "policyTypes": ["Ingress"]}})


def test_a_changed_list_is_compared_item_by_item() -> None:
    (change,) = content_diff(listed("a"), listed("a", "b"), secret=False)
    (created, _) = content_diff(None, listed("a"), secret=False)

    before, after = ((each or "").splitlines() for each in (change.actual, change.desired))
    assert [each.strip() for each in after if each not in before] == ["},", '"team": "b"']
    assert created.desired == '[{"from":[{"namespaceSelector":{"matchLabels":{"team":"a"}}}]}]'


def test_a_name_that_begins_with_a_bracket_is_compared_as_it_is() -> None:
    def binding(name: str) -> FieldContent:
        return field_content(KINDS["rolebinding"].layout, {"roleRef": {"kind": "ClusterRole", "name": name}})

    (change,) = content_diff(binding("["), binding("[" + 99 * "x"), secret=False)

    assert (change.actual, change.desired) == ("[", "[" + 99 * "x")
