"""The comparison of copies with those of a fresh cluster; tests/cluster/test_soak_fresh.py compares real clusters."""

from collections.abc import Mapping
from typing import Any

import pytest

from soak.fresh import compare
from tests.apis import Object

LABELS = {
    "app.kubernetes.io/managed-by": "kube-chores",
    "kubechores.dev/job": "sync-copies",
    "kubechores.dev/rule-namespace": "kube-chores",
    "kubechores.dev/rule-hash": "9444e05167cfc327",
}
ANNOTATIONS = {
    "kubechores.dev/rule": "kube-chores/settings",
    "kubechores.dev/source": "source-1/settings",
    "kubechores.dev/orphans": "Delete",
    "kubechores.dev/fingerprint": "v1:1",
}


class Cluster:
    """An API server with one copy, with these labels and annotations."""

    def __init__(self, stamp: Mapping[str, str], rule: Object | None = None) -> None:
        self._rules = [{"metadata": {"name": "settings"}, "spec": rule}] if rule is not None else []
        labels = {key: stamp.get(key, value) for key, value in LABELS.items()}
        annotations = {key: stamp.get(key, value) for key, value in {**ANNOTATIONS, "example.com/note": ""}.items()}
        metadata = {"name": "settings", "namespace": "team-1", "labels": labels, "annotations": annotations}
        self._copy: Object = {"kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}}

    def items(self, version: str, kind: str, namespace: str = "") -> list[Object]:
        return {"ConfigMap": [self._copy], "CopyratorRule": self._rules}.get(kind, [])


class Empty:
    """An API server without copies."""

    def items(self, version: str, kind: str, namespace: str = "") -> list[Object]:
        return []


@pytest.mark.parametrize("key", ["kubechores.dev/fingerprint", "example.com/note"])
def test_the_key_of_a_fingerprint_is_another_one_in_a_fresh_cluster(key: str) -> None:
    soaked: Any = Cluster({key: "another"})
    fresh: Any = Cluster({})

    assert compare(soaked, fresh) == []


@pytest.mark.parametrize("key", ["kubechores.dev/rule-hash", *list(ANNOTATIONS)[:3]])
def test_the_rest_of_a_stamp_is_the_same_in_a_fresh_cluster(key: str) -> None:
    soaked: Any = Cluster({key: "another"})
    fresh: Any = Cluster({})

    assert compare(soaked, fresh) == [f"configmap/settings in team-1 is not as in a fresh cluster: {key}"]


@pytest.mark.parametrize(
    ("rule", "orphans", "number"),
    [(None, "Delete", 1), (None, "Retain", 0), ({}, "Retain", 1), ({"orphans": "Retain"}, "Delete", 0)],
)
def test_only_a_retained_copy_may_be_missing_in_a_fresh_cluster(rule: Object | None, orphans: str, number: int) -> None:
    soaked: Any = Cluster({"kubechores.dev/orphans": orphans}, rule)
    fresh: Any = Empty()

    assert compare(soaked, fresh) == ["configmap/settings in team-1 would not exist in a fresh cluster"] * number
