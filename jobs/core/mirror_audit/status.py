"""Compute the status of each RegistryMirror after an audit. Pure: the same findings give the same status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from jobs.core.mirror_audit.checks.codes import RANK, reason
from jobs.core.mirror_audit.observed import Observed, Probing, Settings
from jobs.core.mirror_audit.registry_mirrors import MirrorStatus
from jobs.kit.values.conditions import Condition, StatusUpdate, changed, dated, event, new_condition
from jobs.kit.values.model import Finding, Outcome, Plan, Result, Severity
from jobs.kit.values.reads import Head
from jobs.kit.values.resources import (
    REGISTRY_MIRRORS,
)

READY = "Ready"
_MOST_NAMED = 3


def _of_mirrors(heads: Sequence[Head], results: Sequence[Result], now: datetime, *, probed: bool) -> list[StatusUpdate]:
    """Return the updates of RegistryMirrors whose status changes.

    `probed` is whether mirrors and upstreams were probed. Without a probe, a mirror without findings is Unknown.
    """
    findings = [
        result.finding
        for result in results
        if result.finding.severity is not Severity.INFO and result.outcome is not Outcome.DONE
    ]
    by_head = ((head, [each for each in findings if head.key.name in each.subjects]) for head in heads if head.uid)
    updates = (_status_update(head, _condition(head, found, probed=probed), len(found), now) for head, found in by_head)
    return [update for update in updates if update]


def _status_update(head: Head, condition: Condition, findings: int, now: datetime) -> StatusUpdate | None:
    before = head.status_as(MirrorStatus)
    condition = dated(before.conditions, condition, now)
    others = (other for other in before.conditions if other.type != READY)
    after = MirrorStatus(head.generation, findings, (*others, condition))
    if after == before:
        return None
    is_changed = changed(before.conditions, condition)
    new_event = event(head.key, REGISTRY_MIRRORS.api_version, head.uid, condition, now) if is_changed else None
    return StatusUpdate(head.key, head.uid, _merge_patch(after), new_event)


def _condition(head: Head, findings: Sequence[Finding], *, probed: bool) -> Condition:
    if not findings and not probed:
        message = "no findings, but the mirror and its upstream were not probed"
        return new_condition(READY, "Unknown", "NotProbed", message, head.generation)
    if not findings:
        message = "no findings; the mirror and its upstream respond"
        return new_condition(READY, "True", "Healthy", message, head.generation)
    worst = sorted(findings, key=lambda each: (RANK[each.code], each.object))
    message = "; ".join(_described(each) for each in worst[:_MOST_NAMED])
    more = f"; and {len(worst) - _MOST_NAMED} more" if len(worst) > _MOST_NAMED else ""
    # If nothing but unreadable objects was found, the state of the mirror is not known.
    is_known = any(each.code != "unreadable" for each in findings)
    state = "False" if is_known else "Unknown"
    return new_condition(READY, state, reason(worst[0].code), f"{message}{more}", head.generation)


def _described(finding: Finding) -> str:
    about = "" if finding.object.kind == REGISTRY_MIRRORS.kind else f"{finding.object}: "
    return f"{about}{finding.reason}"


def _merge_patch(status: MirrorStatus) -> Mapping[str, Any]:
    return {
        "observedGeneration": status.observed_generation,
        "findings": status.findings,
        "conditions": msgspec.to_builtins(status.conditions),
    }


def status_updates(
    observed: Observed, settings: Settings, plan: Plan, results: Sequence[Result], now: datetime
) -> Sequence[StatusUpdate]:
    """Return the status updates of the RegistryMirrors in the cluster that are not pending."""
    if settings.mirrors is not None:
        return []
    heads = [*(each.head for each in observed.mirrors), *(each.head for each in observed.invalid_mirrors)]
    final = (head for head in heads if not head.terminating and head.key.name not in plan.pending)
    active = sorted(final, key=lambda head: head.key)
    return _of_mirrors(active, results, now, probed=settings.probing is Probing.NETWORK)
