"""Compute the status of each RegistryMirror after an audit. Pure: the same findings give the same status."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from jobs.core.mirror_audit.checks.findings import RANK, reason
from jobs.core.mirror_audit.checks.progress import IN_PROGRESS, changes
from jobs.core.mirror_audit.observed import Observed, Probing, Settings
from jobs.core.mirror_audit.registry_mirrors import MirrorStatus
from jobs.kit.values.conditions import READY, Condition, StatusUpdate, about, new_condition, status_update
from jobs.kit.values.findings import by_subject
from jobs.kit.values.model import Finding, Outcome, Plan, Result, Severity
from jobs.kit.values.reads import Head
from jobs.kit.values.resources import REGISTRY_MIRRORS

_MOST_NAMED = 3


def status_updates(
    observed: Observed, settings: Settings, plan: Plan, results: Sequence[Result], now: datetime
) -> Sequence[StatusUpdate]:
    """Return the status updates of the RegistryMirrors in the cluster that are not pending."""
    updates = []
    for head, found, condition in conditions(observed, settings, plan, results):
        last = head.status_as(MirrorStatus)
        fields = {"findings": len(found), **changes(last, found, observed, now)}
        updates.append(status_update(head, REGISTRY_MIRRORS, last, condition, now, **fields))
    return [update for update in updates if update]


def conditions(
    observed: Observed, settings: Settings, plan: Plan, results: Sequence[Result]
) -> list[tuple[Head, Sequence[Finding], Condition]]:
    """Return the findings and condition Ready of the RegistryMirrors in the cluster that are not pending, by name."""
    findings = by_subject(
        result
        for result in results
        if result.finding.severity is not Severity.INFO and result.outcome is not Outcome.DONE
    )
    probed = settings.probing is Probing.NETWORK
    # Those of files have no uid.
    heads = [each.head for each in observed.mirrors] + [each.head for each in observed.invalid_mirrors]
    final = (head for head in heads if head.uid and not head.terminating and head.key.name not in plan.pending)
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
