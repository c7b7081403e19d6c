"""What a repair changed minutes ago and that is not ready yet: it is in progress, not broken. Pure.

The run that changed it knows its writes. Other runs know it from the status of the RegistryMirror.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from msgspec import structs

from jobs.core.mirror_audit.checks.findings import CODES, reason
from jobs.core.mirror_audit.observed import Observed
from jobs.core.mirror_audit.registry_mirrors import MirrorStatus
from jobs.kit.values.conditions import READY, Condition, is_recent, timestamp
from jobs.kit.values.model import Finding, Plan
from jobs.kit.values.resources import DAEMON_SETS, STATEFUL_SETS

IN_PROGRESS = "in-progress"
_PERIOD = timedelta(minutes=5)  # longer than --wait of the CronJob, shorter than the time until the next run
# The parts of a mirror, by the kinds of their objects.
_REGISTRY, _NODES = "service|persistentvolumeclaim|statefulset", "daemonset"
_NOT_READY = ("mirror-down", "no-endpoints", "volume-pending", "not-rolled-out")


def with_progress(plan: Plan, observed: Observed, written: Sequence[Finding], now: datetime) -> Plan:
    """Return the plan in which what is in progress has that code; `written` are the writes of this run.

    While something is in progress, the run may wait for it.
    """
    changed = {(each.subjects, _part(each)) for each in written}
    conditions = _conditions(observed)
    findings, waits = [], False
    registries: dict[tuple[str, ...], str] = {}
    for each in plan.findings:
        since = ""
        if _is_not_ready(each):
            is_changed, last = (each.subjects, _part(each)) in changed, conditions.get(each.subjects)
            waits = waits or is_changed or _is_running(last, _part(each), now)
            since = _since(last, _part(each), now, is_changed=is_changed)
        if since and _part(each) is _REGISTRY:
            registries[each.subjects] = since
        findings.append(_as_progress(each, since) if since else each)
    findings = [_as_next(each, registries.get(each.subjects, "")) for each in findings]
    return replace(plan, findings=findings, may_progress=plan.may_progress or waits)


def _conditions(observed: Observed) -> dict[tuple[str, ...], Condition]:
    """Return the conditions that the last run wrote, by the subjects of findings."""
    found = ((each.name, each.head.status_as(MirrorStatus).conditions) for each in observed.mirrors)
    return {(name,): each for name, conditions in found for each in conditions if each.type == READY}


def _is_not_ready(found: Finding) -> bool:
    """Return whether a finding reports what a change causes for a while, such as a cache that does not respond."""
    is_cache = found.code == "unreadable" and found.object.kind == STATEFUL_SETS.kind and not found.exit_code
    return (found.code in _NOT_READY or is_cache) and not found.fix


def _part(found: Finding) -> str:
    """Return the part of a mirror that a finding is about."""
    return _NODES if found.object.kind == DAEMON_SETS.kind else _REGISTRY


def _since(last: Condition | None, part: str, now: datetime, *, is_changed: bool) -> str:
    """Return since when a part that is not ready is in progress, or an empty string.

    What the last status reports as not ready, or for minutes as in progress, is not in progress again: every repair may
    change it, and it may never become ready.
    """
    if _is_running(last, part, now):
        return _reported_since(last, part)
    is_reported = last and last.reason in map(reason, _NOT_READY) and re.search(rf"\b({part})/", last.message)
    return timestamp(now) if is_changed and not is_reported and not _reported_since(last, part) else ""


def _is_running(last: Condition | None, part: str, now: datetime) -> bool:
    """Return whether the last status reports the part as in progress, for minutes. That run may have begun later."""
    return is_recent(_reported_since(last, part), now + _PERIOD, 2 * _PERIOD)


def _reported_since(last: Condition | None, part: str) -> str:
    """Return since when the last status reports the part as in progress, and not as missing, or an empty string."""
    if last is None or last.reason != reason(IN_PROGRESS):
        return ""
    reported = rf"\b({part})/[^:]+: in progress since ([0-9T:-]+Z): (?!does not exist)"
    return min((found[2] for found in re.finditer(reported, last.message)), default="")


def _as_next(found: Finding, since: str) -> Finding:
    """Return a DaemonSet that is missing because its registry is in progress as in progress."""
    is_next = since and found.code == "missing" and _part(found) is _NODES and not found.fix
    return _as_progress(found, since) if is_next else found


def _as_progress(found: Finding, since: str) -> Finding:
    code = CODES[IN_PROGRESS]
    why = f"in progress since {since}: {found.reason}"
    remedy = found.remedy if found.code == "missing" else code.remedy
    return structs.replace(found, code=IN_PROGRESS, severity=code.severity, reason=why, remedy=remedy)
