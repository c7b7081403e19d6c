"""The copied fields of kinds other than ConfigMaps and Secrets, compared with managedFields, and their differences."""

import json
from typing import Any

import pytest

from jobs.core.sync_copies.kinds import KINDS
from jobs.kit.data.contents import FieldContent, can_update, field_content
from jobs.kit.data.manifests import content_diff
from jobs.kit.data.objects import ObjectReducer, ReducedObject

WEB = {"matchLabels": {"app": "web"}}


def content_of(rule_type: str, **fields: Any) -> FieldContent:
    return field_content(KINDS[rule_type].layout, fields)


def owned(rule_type: str, *paths: str) -> ReducedObject:
    """Return an object with these fields in its managedFields, written by kube-chores."""
    tree: dict[str, Any] = {}
    for path in paths:
        below = tree
        for name in path.split("/"):
            below = below.setdefault(f"f:{name}", {})
    entry = {"manager": "kube-chores", "operation": "Update", "fieldsV1": tree}
    raw = json.dumps({"metadata": {"name": "x", "namespace": "n", "managedFields": [entry]}})
    return ObjectReducer(None).decode(KINDS[rule_type].layout, raw.encode(), full=False)


# As kube-apiserver 1.36.3 lists them after a create. After an update that empties it, it also lists the empty field.
@pytest.mark.parametrize(
    ("rule_type", "spec", "paths"),
    [
        ("networkpolicy", {"podSelector": WEB}, ["spec/podSelector"]),
        ("networkpolicy", {"podSelector": {}, "policyTypes": ["Ingress"]}, ["spec/policyTypes"]),
        ("networkpolicy", {"podSelector": {}, "egress": [{}]}, ["spec/podSelector", "spec/egress"]),
        ("limitrange", {"limits": None}, []),
        ("limitrange", {"limits": None}, ["spec/limits"]),
        ("resourcequota", {}, []),
        ("resourcequota", {"hard": {"pods": "1", "cpu": "2"}}, ["spec/hard/pods", "spec/hard/cpu"]),
        ("resourcequota", {"scopeSelector": {}}, ["spec/scopeSelector"]),
    ],
)
def test_a_copy_without_drift_is_not_suspect(rule_type: str, spec: dict[str, Any], paths: list[str]) -> None:
    desired = content_of(rule_type, spec=spec)

    assert owned(rule_type, *paths).header.ownership.content in desired.field_sets()


@pytest.mark.parametrize(
    ("rule_type", "spec", "paths"),
    [
        # Another manager applied a podSelector and withdrew it: it is empty, and has no manager.
        ("networkpolicy", {"podSelector": WEB, "policyTypes": ["Ingress"]}, ["spec/policyTypes"]),
        ("limitrange", {"limits": [{"type": "Pod"}]}, []),
        ("resourcequota", {"hard": {"pods": "1", "cpu": "2"}}, ["spec/hard/pods"]),
        ("resourcequota", {"hard": {"pods": "1"}}, ["spec/hard/pods", "spec/hard/cpu"]),
    ],
)
def test_a_copy_with_other_fields_is_suspect(rule_type: str, spec: dict[str, Any], paths: list[str]) -> None:
    desired = content_of(rule_type, spec=spec)

    assert owned(rule_type, *paths).header.ownership.content not in desired.field_sets()


def test_a_field_of_a_source_without_content_is_shown_by_its_name() -> None:
    actual, desired = content_of("serviceaccount", imagePullSecrets=[{"name": "x"}]), content_of("serviceaccount")

    assert [(each.field, each.desired) for each in content_diff(actual, desired, secret=False)] == [
        ("imagePullSecrets", None)
    ]


@pytest.mark.parametrize(
    ("rule_type", "before", "after", "possible"),
    [
        ("rolebinding", {"roleRef": {"name": "view"}}, {"roleRef": {"name": "edit"}}, False),
        ("rolebinding", {"roleRef": {"name": "view"}}, {"roleRef": {"name": "view"}, "subjects": []}, True),
        ("resourcequota", {"spec": {"hard": {}}}, {"spec": {"scopes": ["BestEffort"]}}, False),
        ("resourcequota", {"spec": {"scopes": ["A", "B"]}}, {"spec": {"scopes": ["B"]}}, False),
        ("resourcequota", {"spec": {"scopes": ["A", "B"]}}, {"spec": {"scopes": ["B", "A"]}}, True),
        ("resourcequota", {"spec": {"hard": {}}}, {"spec": {"hard": {"pods": "1"}}}, True),
        ("limitrange", {"spec": {"limits": []}}, {"spec": {"limits": [{}]}}, True),
    ],
)
def test_an_update_cannot_change_a_role_ref_or_scopes(
    rule_type: str, before: dict[str, Any], after: dict[str, Any], possible: bool
) -> None:
    assert can_update(content_of(rule_type, **before), content_of(rule_type, **after)) is possible
