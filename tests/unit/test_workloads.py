"""Progress and problems of rollouts, and the references of pod templates, from objects of the API."""

import json
import re
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from msgspec import structs

from jobs.core.roll_workloads import baseline
from jobs.core.roll_workloads.baseline import BaselinePatch
from jobs.core.roll_workloads.evaluate import evaluate
from jobs.core.roll_workloads.observed import Observed, Settings
from jobs.core.roll_workloads.references import Reference, Source, fingerprint, source
from jobs.core.roll_workloads.workloads import DeferralCode, Workload, workload
from jobs.kit.values.model import Finding, ObjectKey
from tests.manifests import ROOT
from tests.workloads import workload as manifest

Object = dict[str, Any]


def read(kind: str, status: Object, generation: int = 2, **spec: Any) -> Workload:
    made = manifest("shop", kind=kind, **spec)
    made["metadata"]["generation"] = generation
    return workload(ObjectKey(kind, "web", "shop"), json.dumps({**made, "status": status}).encode())


CURRENT: Object = {"observedGeneration": 2}
FAILED = {"conditions": [{"type": "Progressing", "reason": "ProgressDeadlineExceeded"}]}
COMPLETE = {"conditions": [{"type": "Progressing", "reason": "NewReplicaSetAvailable"}]}
SETTINGS = ("ConfigMap", "settings", "shop")
THREE: Object = {"replicas": 3}
DONE: Object = {"replicas": 3, "updatedReplicas": 3, "availableReplicas": 3}
ON_DELETE: Object = {"updateStrategy": {"type": "OnDelete"}}
PARTITION: Object = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}
SCHEDULED: Object = {"desiredNumberScheduled": 3, "updatedNumberScheduled": 3}
REVISIONS: Object = {"currentRevision": "1", "updateRevision": "2"}
OF_THREE = {**CURRENT, "replicas": 3, **REVISIONS}


@pytest.mark.parametrize(
    ("kind", "spec", "status", "progress"),
    [
        ("Deployment", THREE, {**CURRENT, **DONE}, ""),
        ("Deployment", THREE, {**CURRENT, **DONE, "updatedReplicas": 1}, "1 of 3 pods are new"),
        ("Deployment", THREE, {**CURRENT, **DONE, "replicas": 4}, "old pods that still exist: 1"),
        (
            "Deployment",
            THREE,
            {**CURRENT, **DONE, "updatedReplicas": 4},
            "3 of 4 new pods are available",
        ),  # an odd status
        ("Deployment", THREE, {**CURRENT, **DONE, "availableReplicas": 2}, "2 of 3 new pods are available"),
        ("Deployment", {**THREE, "paused": True}, {**CURRENT, **DONE, "availableReplicas": 2}, ""),
        ("Deployment", THREE, {**CURRENT, **DONE, **COMPLETE, "availableReplicas": 2}, ""),
        # A quota prevents more pods.
        ("Deployment", THREE, {**CURRENT, **COMPLETE, "replicas": 1, "updatedReplicas": 1}, ""),
        ("Deployment", THREE, {**CURRENT, **DONE, **FAILED, "updatedReplicas": 1}, ""),
        ("Deployment", {"replicas": None}, {**CURRENT, "replicas": 1, "updatedReplicas": 0}, "0 of 1 pods are new"),
        ("StatefulSet", THREE, {**CURRENT, **DONE}, ""),
        ("StatefulSet", THREE, {**CURRENT, **DONE, **REVISIONS, "updatedReplicas": 2}, "2 of 3 pods are new"),
        ("StatefulSet", THREE, {**CURRENT, **DONE, **REVISIONS}, "not all pods are ready"),
        ("StatefulSet", {**THREE, **PARTITION}, {**OF_THREE, "updatedReplicas": 1, "availableReplicas": 3}, ""),
        (
            "StatefulSet",
            {**THREE, **PARTITION},
            {**OF_THREE, "updatedReplicas": 1, "availableReplicas": 2},
            "not all pods are ready",
        ),
        ("StatefulSet", {**THREE, **PARTITION}, {**CURRENT, **DONE, "availableReplicas": 2}, ""),
        ("StatefulSet", {**THREE, **ON_DELETE}, {**OF_THREE, "updatedReplicas": 3}, ""),
        ("StatefulSet", {**THREE, **ON_DELETE}, {**OF_THREE, "updatedReplicas": 2}, "2 of 3 pods are new"),
        ("StatefulSet", {"replicas": 0}, {**CURRENT, **REVISIONS}, ""),
        ("StatefulSet", {**THREE, **PARTITION}, OF_THREE, "0 of 1 pods are new"),
        ("StatefulSet", {"replicas": 2, **PARTITION}, {**CURRENT, **REVISIONS, "replicas": 2}, ""),
        ("StatefulSet", THREE, {**OF_THREE, "replicas": 2}, "0 of 3 pods are new, 2 of 3 pods exist"),
        ("DaemonSet", {}, {**CURRENT, **SCHEDULED}, "0 of 3 new pods are available"),
        ("DaemonSet", {}, {**CURRENT, **SCHEDULED, "updatedNumberScheduled": 1}, "1 of 3 pods are new"),
        ("DaemonSet", {}, {**CURRENT, **SCHEDULED, "numberAvailable": 1}, ""),
    ],
)
def test_progress_is_as_kubectl_reports_it(kind: str, spec: Object, status: Object, progress: str) -> None:
    assert read(kind, status, **spec).progress == progress


NOT_OBSERVED = "has not observed the latest change yet; see kubectl rollout status deployment/web -n shop"
REMOVE = "the update strategy is OnDelete; delete the pods of the workload, then run kubectl annotate"


@pytest.mark.parametrize(
    ("kind", "spec", "code", "reason"),
    [
        ("Deployment", {"paused": True}, "paused", "is paused; run kubectl rollout resume deployment/web -n shop"),
        ("StatefulSet", ON_DELETE, "on-delete", f"{REMOVE} statefulset/web -n shop {baseline.BASELINE}-"),
        ("DaemonSet", ON_DELETE, "on-delete", f"{REMOVE} daemonset/web -n shop {baseline.BASELINE}-"),
        (
            "StatefulSet",
            {"replicas": 2, **PARTITION},
            "partition",
            "partition 2 of the update strategy excludes all pods from updates; run kubectl patch statefulset/web "
            """-n shop -p '{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}'""",
        ),
        ("Deployment", {"generation": 3}, "rollout-in-progress", NOT_OBSERVED),
    ],
)
def test_a_workload_that_cannot_be_rolled_is_deferred(kind: str, spec: Object, code: str, reason: str) -> None:
    found = read(kind, CURRENT, **spec).deferral

    assert found
    assert (found.code.value, found.reason.endswith(reason)) == (code, True)
    assert read(kind, CURRENT).deferral is None


ONE: Object = {"replicas": 1}
ROLLING: Object = {"desiredNumberScheduled": 3, "updatedNumberScheduled": 1}


@pytest.mark.parametrize(
    ("kind", "spec", "status", "is_stuck"),
    [
        ("Deployment", THREE, {**CURRENT, **DONE, "updatedReplicas": 1}, False),
        ("Deployment", THREE, {**CURRENT, **DONE, "replicas": 4, "updatedReplicas": 1, "unavailableReplicas": 1}, True),
        ("Deployment", THREE, {**CURRENT, **DONE, **FAILED, "updatedReplicas": 1, "unavailableReplicas": 1}, True),
        ("Deployment", THREE, {**CURRENT, **DONE, **FAILED, "updatedReplicas": 1}, False),
        ("Deployment", THREE, {**CURRENT, **DONE, **COMPLETE, "availableReplicas": 2, "unavailableReplicas": 1}, False),
        ("Deployment", THREE, {**CURRENT, **DONE, **COMPLETE, "availableReplicas": 0, "unavailableReplicas": 3}, True),
        ("Deployment", {"replicas": 0}, CURRENT, False),
        ("StatefulSet", THREE, {**OF_THREE, "updatedReplicas": 1, "availableReplicas": 3}, False),
        ("StatefulSet", THREE, {**OF_THREE, "updatedReplicas": 1, "availableReplicas": 2}, True),
        ("StatefulSet", THREE, {**CURRENT, **DONE, "availableReplicas": 2}, False),
        ("StatefulSet", THREE, {**CURRENT, **DONE, "availableReplicas": 0}, True),
        ("DaemonSet", {}, {**CURRENT, **ROLLING, "numberAvailable": 3}, False),
        ("DaemonSet", {}, {**CURRENT, **ROLLING, "numberAvailable": 2, "numberUnavailable": 1}, True),
        ("DaemonSet", {}, {**CURRENT, "desiredNumberScheduled": 1, "updatedNumberScheduled": 1}, True),
        ("DaemonSet", {}, CURRENT, False),
    ],
)
def test_a_rollout_is_stuck_by_pods_that_are_not_available(
    kind: str, spec: Object, status: Object, is_stuck: bool
) -> None:
    assert read(kind, status, **spec).is_stuck is is_stuck


@pytest.mark.parametrize(
    ("spec", "status", "is_blocked", "is_outdated"),
    [
        (THREE, {"currentReplicas": 2, "updatedReplicas": 1, "availableReplicas": 2}, True, False),
        (THREE, {"currentReplicas": 2, "updatedReplicas": 0, "availableReplicas": 2}, True, True),
        (THREE, {"currentReplicas": 1, "updatedReplicas": 1, "availableReplicas": 2}, True, True),
        (THREE, {"currentReplicas": 1, "updatedReplicas": 0, "availableReplicas": 2}, True, True),
        (THREE, {"currentReplicas": 3, "updatedReplicas": 0, "availableReplicas": 2}, True, False),
        (THREE, {"currentReplicas": 2, "updatedReplicas": 1, "availableReplicas": 3}, False, False),
        (THREE, {"replicas": 2, "currentReplicas": 2, "availableReplicas": 1}, True, False),
        (THREE, {"replicas": 2, "currentReplicas": 2, "availableReplicas": 2}, False, False),  # a quota
        (ONE, {"replicas": 1, "currentReplicas": 1}, True, False),
        (ONE, {"replicas": 1, "updatedReplicas": 1}, True, False),
        (ONE, {"replicas": 0}, False, False),
        ({**ONE, "podManagementPolicy": "Parallel"}, {"replicas": 1, "currentReplicas": 1}, False, False),
    ],
)
def test_a_pod_that_is_not_available_blocks_an_ordered_stateful_set(
    spec: Object, status: Object, is_blocked: bool, is_outdated: bool
) -> None:
    found = read("StatefulSet", {**OF_THREE, **status}, **spec)

    assert (found.is_blocked, found.is_outdated) == (is_blocked, is_outdated)


QUOTA = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: small"}
REFUSED = {"conditions": [QUOTA]}


@pytest.mark.parametrize(
    ("kind", "spec", "status", "incomplete", "has_failed"),
    [
        ("Deployment", THREE, {**CURRENT, **DONE}, "", False),
        ("Deployment", THREE, {**CURRENT, **DONE, **COMPLETE, "availableReplicas": 2}, "", False),
        ("Deployment", THREE, {**DONE, "observedGeneration": 0}, "has not observed the latest change yet", False),
        ("Deployment", THREE, {**CURRENT, **DONE, "updatedReplicas": 1}, "1 of 3 pods are new", False),
        ("Deployment", THREE, {**CURRENT, **DONE, **REFUSED}, "", False),
        (
            "Deployment",
            THREE,
            {**CURRENT, **DONE, "conditions": [{**QUOTA, "status": "False"}], "updatedReplicas": 0},
            "0 of 3 pods are new",
            False,
        ),
        (
            "Deployment",
            THREE,
            {**CURRENT, **DONE, "replicas": 4, "unavailableReplicas": 1},
            "old pods that still exist: 1; pods that are not available: 1",
            False,
        ),
        (
            "Deployment",
            THREE,
            {**CURRENT, **DONE, **REFUSED, "updatedReplicas": 0},
            "0 of 3 pods are new: FailedCreate: exceeded quota: small",
            True,
        ),
        (
            "Deployment",
            THREE,
            {**CURRENT, **DONE, **FAILED, "updatedReplicas": 1},
            "1 of 3 pods are new: ProgressDeadlineExceeded",
            True,
        ),
        ("StatefulSet", THREE, {**CURRENT, **DONE, **REVISIONS}, "not all pods are ready", False),
        ("DaemonSet", {}, {**CURRENT, **SCHEDULED, "numberAvailable": 2}, "", False),
    ],
)
def test_a_rollout_is_incomplete_with_the_reason_of_its_controller(
    kind: str, spec: Object, status: Object, incomplete: str, has_failed: bool
) -> None:
    found = read(kind, status, **spec)

    assert (found.incomplete.removeprefix("its controller "), found.has_failed) == (incomplete, has_failed)


def test_a_long_message_of_a_controller_is_cut() -> None:
    long = {"conditions": [{**QUOTA, "message": "x" * 10_000}]}

    assert len(read("Deployment", {**CURRENT, **long, "updatedReplicas": 0}, **THREE).incomplete) < 400


def test_a_slow_rollout_completes_although_its_config_changes_each_minute() -> None:
    """Each run reads a changed config, and pods need 45 minutes to start."""
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    status = {**CURRENT, **DONE, "replicas": 4, "updatedReplicas": 1, "unavailableReplicas": 1}
    found = read("Deployment", status, **THREE)
    (reference,) = found.references
    found = structs.replace(found, baseline=baseline.create(found.uid, {reference.used: "x"}, "", start).encode())
    settings, rolls = Settings(cool_down=timedelta(minutes=10)), [start]
    for run in range(1, 24 * 12):
        now = start + timedelta(minutes=5 * run)
        source = Source(str(run), frozenset(), {}, now - timedelta(minutes=1))
        observed = Observed((found.key,), workloads={found.key: found}, sources={ObjectKey(*SETTINGS): source})
        result = evaluate(found.key, observed, settings, now)
        assert isinstance(result, Finding)
        if result.change:
            assert isinstance(result.change.body, BaselinePatch)
            found = structs.replace(found, baseline=result.change.body.baseline)
            rolls.append(now)

    minutes = [int((later - earlier).total_seconds() / 60) for earlier, later in pairwise(rolls)]
    assert minutes == [5, 10, 20, 40, 80, 160, 320, 640]


def test_the_time_of_a_roll_is_in_whole_seconds() -> None:
    made = baseline.create("uid", {}, "", datetime(2026, 1, 1, microsecond=5, tzinfo=timezone.utc))

    assert '"rolledAt":"2026-01-01T00:00:00Z"' in made.encode()


def test_long_annotations_of_tenants_are_not_kept() -> None:
    made = manifest("shop")
    made["metadata"]["annotations"][baseline.BASELINE] = "x" * (64 << 10) + "x"
    made["spec"]["template"]["metadata"]["annotations"] = {baseline.ROLL_ID: "x" * 1000}

    found = workload(ObjectKey("Deployment", "web", "shop"), json.dumps(made).encode())

    assert (found.baseline, len(found.roll_id)) == ("", 64)


def test_a_volume_that_no_container_mounts_is_not_used() -> None:
    pod = {"volumes": [{"name": "v", "configMap": {"name": "settings"}}], "container": {"volumeMounts": []}}
    assert read("Deployment", CURRENT, pod=pod).references == ()


DATA = {"time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:data": {"f:a": {}}}}
LABELS = {"time": "2026-02-01T00:00:00Z", "fieldsV1": {"f:metadata": {"f:labels": {}}}}
BINARY = {"time": "2026-03-01T00:00:00Z", "fieldsV1": {"f:binaryData": {}}}


@pytest.mark.parametrize(
    ("entries", "changed"),
    [
        ([DATA, LABELS], "2026-01-01"),
        ([BINARY, DATA], "2026-03-01"),
        ([LABELS], "2025-01-01"),
        ([{"fieldsV1": None}, {}], "2025-01-01"),
        ([{"time": "2026-04-01T00:00:00Z", "fieldsV1": 3}], "2026-04-01"),
        (None, "2025-01-01"),
    ],
)
def test_content_changed_when_its_owner_last_wrote(entries: list[Object] | None, changed: str) -> None:
    metadata = {"creationTimestamp": "2025-01-01T00:00:00Z", "managedFields": entries}
    found = source("ConfigMap", frozenset(), json.dumps({"metadata": metadata, "data": {"a": "1"}}).encode())
    assert found.changed
    assert str(found.changed.date()) == changed


def test_uses_of_one_source_are_merged() -> None:
    items = {"items": [{"key": "c", "path": "c"}, {"key": "a", "path": "a"}]}
    pod = {
        "volumes": [{"name": "v", "configMap": {"name": "settings", "optional": True, **items}}],
        "initContainers": [{"name": "init", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
        "container": {
            "env": [
                {"name": "PLAIN", "value": "ignored"},
                {"name": "FIELD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "b"}}},
            ],
            "envFrom": [{"secretRef": {"name": "login", "optional": True}}, {"configMapRef": {"name": ""}}],
        },
    }

    assert read("Deployment", CURRENT, pod=pod).references == (
        Reference("ConfigMap", "settings", ("a", "b", "c"), True, ("b",)),
        Reference("Secret", "login", None, False, ()),
    )
    all_keys = {**pod, "volumes": [{"name": "v", "configMap": {"name": "settings"}}]}
    merged, _ = read("Deployment", CURRENT, pod=all_keys).references
    assert merged == Reference("ConfigMap", "settings", None, True, ("b",))


@pytest.mark.parametrize(("changed", "busy", "code"), [(60, 0, "changed"), (0, 60, "deferred")])
def test_only_a_changed_source_must_settle(changed: int, busy: int, code: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=timezone.utc)
    volumes = [{"name": name, "configMap": {"name": name}} for name in ("settings", "busy")]
    found = read("Deployment", CURRENT, pod={"volumes": volumes})
    same = {each.used: fingerprint(each, Source("1", frozenset(), {})) for each in found.references}
    found = structs.replace(found, baseline=baseline.create(found.uid, same, "").encode())
    sources = {
        ObjectKey("ConfigMap", "settings", "shop"): Source("2", frozenset(), {}, now - timedelta(minutes=changed)),
        ObjectKey("ConfigMap", "busy", "shop"): Source("1", frozenset(), {}, now - timedelta(minutes=busy)),
    }
    observed = Observed((found.key,), workloads={found.key: found}, sources=sources)

    result = evaluate(found.key, observed, Settings(settle=timedelta(minutes=5)), now)

    assert isinstance(result, Finding)
    assert result.code == code


def test_the_docs_explain_each_code_of_a_deferred_roll() -> None:
    page = (ROOT / "docs/roll-workloads.md").read_text()
    table = page.partition("### Why a roll is deferred")[2].partition("\n## ")[0]
    first_cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`([^`]+)`", "".join(first_cells))) == sorted(DeferralCode)
