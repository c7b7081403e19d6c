"""When a workload can be rolled, and what pods use: from objects as they come."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from msgspec import structs

from jobs.kit.model import Finding, ObjectKey
from jobs.rolls import baseline
from jobs.rolls.references import Reference
from jobs.rolls.seen import Seen, Settings
from jobs.rolls.sources import Source, fingerprint, source
from jobs.rolls.verdicts import judge
from jobs.rolls.workloads import Workload, workload
from tests.workloads import workload as manifest

Object = dict[str, Any]


def read(kind: str, status: Object, generation: int = 2, **spec: Any) -> Workload:
    made = manifest("shop", kind=kind, **spec)
    made["metadata"]["generation"] = generation
    return workload(ObjectKey(kind, "web", "shop"), json.dumps({**made, "status": status}).encode())


SEEN: Object = {"observedGeneration": 2}
FAILED = {"conditions": [{"type": "Progressing", "reason": "ProgressDeadlineExceeded"}]}
OVER = {"conditions": [{"type": "Progressing", "reason": "NewReplicaSetAvailable"}]}
THREE: Object = {"replicas": 3}
DONE: Object = {"replicas": 3, "updatedReplicas": 3, "availableReplicas": 3}
PARTITION: Object = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}
REVISIONS: Object = {"currentRevision": "1", "updateRevision": "2"}


@pytest.mark.parametrize(
    ("kind", "spec", "status", "hold"),
    [
        ("Deployment", THREE, {**SEEN, **DONE}, ""),
        ("Deployment", THREE, DONE, "its controller has not seen the latest change yet"),
        ("Deployment", THREE, {**SEEN, **DONE, "updatedReplicas": 1}, "1 of 3 pods are new"),
        ("Deployment", THREE, {**SEEN, **DONE, "replicas": 4}, "1 old pods are not gone"),
        ("Deployment", THREE, {**SEEN, **DONE, "availableReplicas": 2}, "2 of 3 new pods are available"),
        ("Deployment", THREE, {**SEEN, **DONE, **OVER, "availableReplicas": 2}, ""),
        ("Deployment", THREE, {**SEEN, **OVER, "replicas": 1, "updatedReplicas": 1}, ""),  # no quota for more
        ("Deployment", THREE, {**SEEN, **DONE, **FAILED, "updatedReplicas": 1}, ""),
        ("Deployment", {"replicas": None}, {**SEEN, "replicas": 1, "updatedReplicas": 0}, "0 of 1 pods are new"),
        ("StatefulSet", THREE, {**SEEN, **DONE}, ""),
        ("StatefulSet", THREE, {**SEEN, **DONE, **REVISIONS, "updatedReplicas": 2}, "2 of 3 pods are new"),
        ("StatefulSet", THREE, {**SEEN, **DONE, **REVISIONS}, "not all new pods are ready"),
        ("StatefulSet", {**THREE, **PARTITION}, {**SEEN, **REVISIONS, "updatedReplicas": 1}, ""),
        ("StatefulSet", {**THREE, **PARTITION}, {**SEEN, **REVISIONS}, "0 of 1 pods are new"),
        ("DaemonSet", {}, {**SEEN, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3}, ""),
        ("DaemonSet", {}, {**SEEN, "desiredNumberScheduled": 3, "updatedNumberScheduled": 1}, "1 of 3 pods are new"),
        ("DaemonSet", {}, {**SEEN, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberAvailable": 1}, ""),
    ],
)
def test_a_rollout_in_progress_holds(kind: str, spec: Object, status: Object, hold: str) -> None:
    assert read(kind, status, **spec).hold == (f"a rollout is in progress: {hold}" if hold else "")


def test_a_volume_that_no_container_mounts_is_not_used() -> None:
    pod = {"volumes": [{"name": "v", "configMap": {"name": "settings"}}], "container": {"volumeMounts": []}}
    assert read("Deployment", SEEN, pod=pod).references == ()


OURS = {"time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:data": {"f:a": {}}}}
LABELS = {"time": "2026-02-01T00:00:00Z", "fieldsV1": {"f:metadata": {"f:labels": {}}}}
BINARY = {"time": "2026-03-01T00:00:00Z", "fieldsV1": {"f:binaryData": {}}}


@pytest.mark.parametrize(
    ("entries", "changed"),
    [
        ([OURS, LABELS], "2026-01-01"),
        ([BINARY, OURS], "2026-03-01"),
        ([LABELS], "2025-01-01"),
        ([{"fieldsV1": None}, {}], "2025-01-01"),
        (None, "2025-01-01"),
    ],
)
def test_content_changed_when_who_holds_it_last_wrote(entries: list[Object] | None, changed: str) -> None:
    metadata = {"creationTimestamp": "2025-01-01T00:00:00Z", "managedFields": entries}
    found = source("ConfigMap", frozenset(), json.dumps({"metadata": metadata, "data": {"a": "1"}}).encode())
    assert found.changed
    assert str(found.changed.date()) == changed


def test_what_several_places_use_of_one_source_comes_together() -> None:
    items = {"items": [{"key": "c", "path": "c"}, {"key": "a", "path": "a"}]}
    pod = {
        "volumes": [{"name": "v", "configMap": {"name": "settings", "optional": True, **items}}],
        "initContainers": [{"name": "init", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "container": {
            "env": [
                {"name": "PLAIN", "value": "of no matter"},
                {"name": "FIELD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "b"}}},
            ],
            "envFrom": [{"secretRef": {"name": "login", "optional": True}}, {"configMapRef": {"name": ""}}],
        },
    }

    assert read("Deployment", SEEN, pod=pod).references == (
        Reference("ConfigMap", "settings", ("a", "b", "c"), True, ("b",)),
        Reference("Secret", "login", None, False, ()),
    )
    whole = {**pod, "volumes": [{"name": "v", "configMap": {"name": "settings"}}]}
    assert read("Deployment", SEEN, pod=whole).references[0] == Reference("ConfigMap", "settings", None, True, ("b",))


@pytest.mark.parametrize(("changed", "busy", "code"), [(60, 0, "changed"), (0, 60, "held")])
def test_only_what_changed_has_to_settle(changed: int, busy: int, code: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    volumes = [{"name": name, "configMap": {"name": name}} for name in ("settings", "busy")]
    found = read("Deployment", SEEN, pod={"volumes": volumes})
    same = {each.used: fingerprint(each, Source("1", frozenset(), {})) for each in found.references}
    found = structs.replace(found, baseline=baseline.of(found.uid, same, "").encode())
    sources = {
        ObjectKey("ConfigMap", "settings", "shop"): Source("2", frozenset(), {}, now - timedelta(minutes=changed)),
        ObjectKey("ConfigMap", "busy", "shop"): Source("1", frozenset(), {}, now - timedelta(minutes=busy)),
    }
    seen = Seen((found.key,), workloads={found.key: found}, sources=sources)

    verdict = judge(found.key, seen, Settings(settle=timedelta(minutes=5)), now)

    assert isinstance(verdict, Finding)
    assert verdict.code == code
