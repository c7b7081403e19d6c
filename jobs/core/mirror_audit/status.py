"""Compute the status of each RegistryMirror after an audit. Pure: the same findings give the same status."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from jobs.core.mirror_audit.checks.codes import RANK, reason
from jobs.core.mirror_audit.observed import Observed, Probing, Settings
from jobs.core.mirror_audit.registry_mirrors import MirrorStatus
from jobs.kit.values.conditions import READY, Condition, StatusUpdate, new_condition, status_update
from jobs.kit.values.model import Finding, Outcome, Plan, Result, Severity
from jobs.kit.values.reads import Head
from jobs.kit.values.resources import REGISTRY_MIRRORS

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
    updates = (
        status_update(
            head,
            REGISTRY_MIRRORS,
            head.status_as(MirrorStatus),
            _condition(found, probed=probed),
            now,
            findings=len(found),
        )
        for head, found in by_head
    )
    return [update for update in updates if update]


def _condition(findings: Sequence[Finding], *, probed: bool) -> Condition:
    if not findings and not probed:
        message = "no findings, but the mirror and its upstream were not probed"
        return new_condition(READY, "Unknown", "NotProbed", message)
    if not findings:
        message = "no findings; the mirror and its upstream respond"
        return new_condition(READY, "True", "Healthy", message)
    worst = sorted(findings, key=lambda each: (RANK[each.code], each.object))
    message = "; ".join(_described(each) for each in worst[:_MOST_NAMED])
    more = f"; and {len(worst) - _MOST_NAMED} more" if len(worst) > _MOST_NAMED else ""
    # If nothing but unreadable objects was found, the state of the mirror is not known.
    is_known = any(each.code != "unreadable" for each in findings)
    state = "False" if is_known else "Unknown"
    return new_condition(READY, state, reason(worst[0].code), f"{message}{more}")


def _described(finding: Finding) -> str:
    about = "" if finding.object.kind == REGISTRY_MIRRORS.kind else f"{finding.object}: "
    return f"{about}{finding.reason}"


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
