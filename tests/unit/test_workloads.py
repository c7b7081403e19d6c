"""When a workload can be rolled, and what pods use: from objects as they come."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from msgspec import structs

from jobs.kit.model import Finding, ObjectKey
from jobs.rolls import baseline
from jobs.rolls.evaluate import BaselinePatch, evaluate
from jobs.rolls.observed import Observed, Settings
from jobs.rolls.references import Reference
from jobs.rolls.sources import Source, fingerprint, source
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
SETTINGS = ("ConfigMap", "settings", "shop")
THREE: Object = {"replicas": 3}
DONE: Object = {"replicas": 3, "updatedReplicas": 3, "availableReplicas": 3}
PARTITION: Object = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}
REVISIONS: Object = {"currentRevision": "1", "updateRevision": "2"}


@pytest.mark.parametrize(
    ("kind", "spec", "status", "progress"),
    [
        ("Deployment", THREE, {**SEEN, **DONE}, ""),
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
def test_progress_is_as_kubectl_reports_it(kind: str, spec: Object, status: Object, progress: str) -> None:
    assert read(kind, status, **spec).progress == progress


ONE: Object = {"replicas": 1}
OF_THREE = {**SEEN, "replicas": 3, **REVISIONS}
ROLLING: Object = {"desiredNumberScheduled": 3, "updatedNumberScheduled": 1}


@pytest.mark.parametrize(
    ("kind", "spec", "status", "is_blocked"),
    [
        ("Deployment", THREE, {**SEEN, **DONE, "updatedReplicas": 1}, False),
        ("Deployment", THREE, {**SEEN, **DONE, "replicas": 4, "updatedReplicas": 1, "unavailableReplicas": 1}, True),
        ("Deployment", THREE, {**SEEN, **DONE, **FAILED, "updatedReplicas": 1, "unavailableReplicas": 1}, True),
        ("Deployment", THREE, {**SEEN, **DONE, **FAILED, "updatedReplicas": 1}, False),
        ("Deployment", THREE, {**SEEN, **DONE, **OVER, "availableReplicas": 2, "unavailableReplicas": 1}, False),
        ("Deployment", THREE, {**SEEN, **DONE, **OVER, "availableReplicas": 0, "unavailableReplicas": 3}, True),
        ("Deployment", {"replicas": 0}, SEEN, False),
        ("StatefulSet", THREE, {**OF_THREE, "updatedReplicas": 1, "availableReplicas": 3}, False),
        ("StatefulSet", THREE, {**OF_THREE, "updatedReplicas": 1, "availableReplicas": 2}, True),
        ("StatefulSet", THREE, {**SEEN, **DONE, "availableReplicas": 2}, False),
        ("StatefulSet", THREE, {**SEEN, **DONE, "availableReplicas": 0}, True),
        ("DaemonSet", {}, {**SEEN, **ROLLING, "numberAvailable": 3}, False),
        ("DaemonSet", {}, {**SEEN, **ROLLING, "numberAvailable": 2, "numberUnavailable": 1}, True),
        ("DaemonSet", {}, {**SEEN, "desiredNumberScheduled": 1, "updatedNumberScheduled": 1}, True),
        ("DaemonSet", {}, SEEN, False),
    ],
)
def test_a_rollout_is_blocked_by_pods_that_are_not_available(
    kind: str, spec: Object, status: Object, is_blocked: bool
) -> None:
    assert read(kind, status, **spec).is_blocked is is_blocked


@pytest.mark.parametrize(
    ("spec", "status", "pod", "is_outdated"),
    [
        (THREE, {"currentReplicas": 2, "updatedReplicas": 1, "availableReplicas": 2}, "web-2", False),
        (THREE, {"currentReplicas": 2, "updatedReplicas": 0, "availableReplicas": 2}, "web-2", True),
        (THREE, {"currentReplicas": 1, "updatedReplicas": 1, "availableReplicas": 2}, "web-N", True),
        (THREE, {"currentReplicas": 1, "updatedReplicas": 0, "availableReplicas": 2}, "web-1", True),
        (THREE, {"currentReplicas": 3, "updatedReplicas": 0, "availableReplicas": 2}, "web-N", False),
        (THREE, {"currentReplicas": 2, "updatedReplicas": 1, "availableReplicas": 3}, "", False),
        (THREE, {"replicas": 2, "currentReplicas": 2, "availableReplicas": 1}, "web-1", True),
        (ONE, {"replicas": 1, "currentReplicas": 1}, "web-0", True),
        (ONE, {"replicas": 1, "updatedReplicas": 1}, "web-0", False),
        (ONE, {"replicas": 0}, "", True),
        ({**ONE, "ordinals": {"start": 5}}, {"replicas": 1, "currentReplicas": 1}, "web-5", True),
        ({**ONE, "podManagementPolicy": "Parallel"}, {"replicas": 1, "currentReplicas": 1}, "", True),
    ],
)
def test_the_pod_that_a_stateful_set_does_not_replace_is_named(
    spec: Object, status: Object, pod: str, is_outdated: bool
) -> None:
    found = read("StatefulSet", {**OF_THREE, **status}, **spec)

    assert (found.in_the_way, found.is_outdated) == (pod, is_outdated)


def test_a_config_that_changes_each_minute_does_not_keep_a_slow_rollout_from_ending() -> None:
    """Each run sees a changed config, and pods that take 45 minutes to start."""
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    found = read("Deployment", {**SEEN, **DONE, "replicas": 4, "updatedReplicas": 1, "unavailableReplicas": 1}, **THREE)
    (reference,) = found.references
    found = structs.replace(found, baseline=baseline.of(found.uid, {reference.used: "x"}, "", start).encode())
    settings, rolls = Settings(cool_down=timedelta(minutes=10)), [start]
    for run in range(1, 24 * 12):
        now = start + timedelta(minutes=5 * run)
        source = Source(str(run), frozenset(), {}, now - timedelta(minutes=1))
        observed = Observed((found.key,), workloads={found.key: found}, sources={ObjectKey(*SETTINGS): source})
        verdict = evaluate(found.key, observed, settings, now)
        assert isinstance(verdict, Finding)
        if verdict.fix:
            assert isinstance(verdict.fix.body, BaselinePatch)
            found = structs.replace(found, baseline=verdict.fix.body.baseline)
            rolls.append(now)

    minutes = [int((later - earlier).total_seconds() / 60) for earlier, later in pairwise(rolls)]
    assert minutes == [5, 10, 20, 40, 80, 160, 320, 640]


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


@pytest.mark.parametrize(("changed", "busy", "code"), [(60, 0, "changed"), (0, 60, "deferred")])
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
    observed = Observed((found.key,), workloads={found.key: found}, sources=sources)

    verdict = evaluate(found.key, observed, Settings(settle=timedelta(minutes=5)), now)

    assert isinstance(verdict, Finding)
    assert verdict.code == code
