"""The status of each RegistryMirror after an audit, its metrics, and what it reports as in progress. Pure.

The same findings give the same status. What a repair changed minutes ago and that is not ready yet is in progress, not
broken. The run that changed it knows its writes; other runs know it from the status of the RegistryMirror.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from msgspec import structs

from jobs.core.mirror_audit.findings import CODES, RANK, reason
from jobs.core.mirror_audit.observed import Observed, Probing, Settings
from jobs.core.mirror_audit.registry_mirrors import MirrorStatus
from jobs.kit.run.gauges import MOST_RESOURCES, OMITTED, Metric, Sample, of_resources
from jobs.kit.values.conditions import (
    READY,
    Condition,
    StatusUpdate,
    about,
    is_recent,
    new_condition,
    status_update,
    timestamp,
)
from jobs.kit.values.model import Finding, Outcome, Plan, Result, Severity
from jobs.kit.values.reads import Head, by_subject
from jobs.kit.values.resources import DAEMON_SETS, REGISTRY_MIRRORS, STATEFUL_SETS

IN_PROGRESS = "in-progress"
_PERIOD = timedelta(minutes=5)  # longer than --wait of the CronJob, shorter than the time until the next run
# The parts of a mirror, by the field of the status that has the time of the repair after which they are not ready yet.
_REGISTRY, _NODES = "registry_changed", "nodes_changed"
# Codes of what a change causes for a while, with the parts that may have them.
_NOT_READY = {
    "mirror-down": (_REGISTRY,),
    "no-endpoints": (_REGISTRY,),
    "volume-pending": (_REGISTRY,),
    "not-rolled-out": (_REGISTRY, _NODES),
}
_MOST_NAMED = 3
# Reasons that another run, or a repair, may find resolved. The others need a person.
_TRANSIENT = frozenset(
    map(
        reason,
        (
            "drifted",
            "in-progress",
            "layers-interrupted",
            "mirror-down",
            "missing",
            "name-not-resolved",
            "no-endpoints",
            "not-rolled-out",
            "orphan",
            "rate-limited",
            "scaled-to-zero",
            "terminating",
            "unreadable",
            "upstream-down",
            "volume-lost",
            "volume-pending",
            "volume-too-small",
        ),
    )
)


def with_progress(plan: Plan, observed: Observed, written: Sequence[Finding], now: datetime) -> Plan:
    """Return the plan in which what is in progress has that code; `written` are the writes of this run.

    While something is in progress, the run may wait for it.
    """
    changed = {(each.subjects, _part(each)) for each in written}
    statuses: dict[tuple[str, ...], MirrorStatus] = {
        (each.name,): each.head.status_as(MirrorStatus) for each in observed.mirrors
    }
    findings, waits = [], False
    registries: dict[tuple[str, ...], str] = {}
    for each in plan.findings:
        since = ""
        if _is_not_ready(each):
            part, last = _part(each), statuses.get(each.subjects, MirrorStatus())
            is_changed = (each.subjects, part) in changed
            since = _since(last, part, now, is_changed=is_changed)
            waits = waits or is_changed or bool(since)
        if since and _part(each) is _REGISTRY:
            registries[each.subjects] = since
        findings.append(_as_progress(each, since) if since else each)
    findings = [_as_next(each, registries.get(each.subjects, "")) for each in findings]
    return structs.replace(plan, findings=findings, may_progress=plan.may_progress or waits)


def changes(last: MirrorStatus, findings: Sequence[Finding], observed: Observed, now: datetime) -> dict[str, str]:
    """Return the fields of the status of a mirror with these findings: a time stays until its part is ready."""
    # A DaemonSet that is missing is in progress with its registry: its own change is its creation.
    of_parts = [(_part(each), each.code) for each in findings if each.object in observed.resources]
    not_ready = {part for part, code in of_parts if code == IN_PROGRESS or code in _NOT_READY}
    in_progress = {part for part, code in of_parts if code == IN_PROGRESS}
    return {
        part: (getattr(last, part) or (timestamp(now) if part in in_progress else "")) if part in not_ready else ""
        for part in (_REGISTRY, _NODES)
    }


def _is_not_ready(found: Finding) -> bool:
    """Return whether a finding reports what a change causes for a while, such as a cache that does not respond."""
    is_cache = found.code == "unreadable" and found.object.kind == STATEFUL_SETS.kind and not found.exit_code
    return (found.code in _NOT_READY or is_cache) and not found.change


def _part(found: Finding) -> str:
    """Return the part of a mirror that a finding is about."""
    return _NODES if found.object.kind == DAEMON_SETS.kind else _REGISTRY


def _since(last: MirrorStatus, part: str, now: datetime, *, is_changed: bool) -> str:
    """Return since when a part that is not ready is in progress, or an empty string.

    What the last status reports as not ready, or for minutes as in progress, is not in progress again: every repair may
    change it, and it may never become ready.
    """
    changed = getattr(last, part)
    if is_recent(changed, now + _PERIOD, 2 * _PERIOD):  # the run that changed it may have begun later
        return str(changed)
    reported = {reason(code) for code, parts in _NOT_READY.items() if part in parts}
    is_reported = any(each.type == READY and each.reason in reported for each in last.conditions)
    return timestamp(now) if is_changed and not changed and not is_reported else ""


def _as_next(found: Finding, since: str) -> Finding:
    """Return a DaemonSet that is missing because its registry is in progress as in progress."""
    is_next = since and found.code == "missing" and _part(found) is _NODES and not found.change
    return _as_progress(found, since) if is_next else found


def _as_progress(found: Finding, since: str) -> Finding:
    code = CODES[IN_PROGRESS]
    why = f"in progress since {since}: {found.reason}"
    remedy = found.remedy if found.code == "missing" else code.remedy
    return structs.replace(found, code=IN_PROGRESS, severity=code.severity, reason=why, remedy=remedy)


# the status


def status_updates(
    observed: Observed, settings: Settings, plan: Plan, results: Sequence[Result], now: datetime
) -> Sequence[StatusUpdate]:
    """Return the status updates of the RegistryMirrors in the cluster."""
    updates = []
    for head, found, condition in conditions(observed, settings, results):
        last = head.status_as(MirrorStatus)
        fields = changes(last, found, observed, now)
        updates.append(
            status_update(
                head, REGISTRY_MIRRORS, last, condition, now, transient=_TRANSIENT, findings=len(found), **fields
            )
        )
    return [update for update in updates if update]


def conditions(
    observed: Observed, settings: Settings, results: Sequence[Result]
) -> list[tuple[Head, Sequence[Finding], Condition]]:
    """Return the findings and condition Ready of the RegistryMirrors in the cluster, by name."""
    findings = by_subject(
        result
        for result in results
        if result.finding.severity is not Severity.INFO and result.outcome is not Outcome.DONE
    )
    probed = settings.probing is Probing.NETWORK
    # Those of files have no uid.
    heads = [each.head for each in observed.mirrors] + [each.head for each in observed.invalid_mirrors]
    final = (head for head in heads if head.uid and not head.terminating)
    of_mirror = [
        (head, [each.finding for each in findings.get(head.key.name, [])])
        for head in sorted(final, key=lambda head: head.key)
    ]
    return [(head, found, _condition(found, probed=probed)) for head, found in of_mirror]


def _condition(findings: Sequence[Finding], *, probed: bool) -> Condition:
    """Return the condition; without a probe, that of a mirror without findings is Unknown."""
    if not findings and not probed:
        message = "no findings, but the mirror and its upstream were not probed"
        return new_condition(READY, "Unknown", "NotProbed", message)
    if not findings:
        message = "no findings; the mirror and its upstream respond"
        return new_condition(READY, "True", "Healthy", message)
    worst = sorted(findings, key=lambda each: (RANK[each.code], each.object))
    message = "; ".join(about(each.object, REGISTRY_MIRRORS, each.reason) for each in worst[:_MOST_NAMED])
    more = f"; and {len(worst) - _MOST_NAMED} more" if len(worst) > _MOST_NAMED else ""
    # With nothing else, the state of the mirror is not known, or not yet.
    is_known = any(each.code not in ("unreadable", IN_PROGRESS) for each in findings)
    state = "False" if is_known else "Unknown"
    return new_condition(READY, state, reason(worst[0].code), f"{message}{more}")


MIRROR_READY = Metric(
    "kube_chores_mirror_ready",
    "1 if condition Ready of a RegistryMirror is True, 0 if it is False; no series if it is Unknown.",
    ("mirror",),
)
IMAGES = Metric("kube_chores_images", "Images of pods and CronJobs; no series without --images.")
IMAGES_CHECKED = Metric(
    "kube_chores_images_checked", "Images that the last complete run checked; no series without --images."
)
MIRROR_FINDINGS = Metric("kube_chores_mirror_findings", "Findings about a RegistryMirror.", ("mirror", "severity"))


def gauges(
    observed: Observed, settings: Settings, plan: Plan, results: Sequence[Result], _now: datetime
) -> Iterator[Sample]:
    """Yield the metrics of the RegistryMirrors in the cluster, by name."""
    found = conditions(observed, settings, results)
    known = [
        (head.key.name, condition.status == "True") for head, _, condition in found if condition.status != "Unknown"
    ]
    yield from of_resources(MIRROR_READY, known)
    for head, findings, _ in found[:MOST_RESOURCES]:
        counted = Counter(each.severity for each in findings)
        for severity in Severity:
            if severity is not Severity.INFO:
                yield MIRROR_FINDINGS.sample(counted[severity], head.key.name, severity.value)
    yield OMITTED.sample(max(0, len(found) - MOST_RESOURCES), MIRROR_FINDINGS.name)
    if settings.images:
        yield IMAGES.sample(plan.summary.facts["images"])
        yield IMAGES_CHECKED.sample(plan.summary.facts["checked"])
