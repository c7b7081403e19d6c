"""What each RegistryMirror's status should say after an audit. Pure; the same facts give the same status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from jobs.kit.conditions import Condition, StatusUpdate, changed, dated, event, new_condition
from jobs.kit.custom_resources import Head
from jobs.kit.model import Finding, Outcome, Result, Severity
from jobs.mirrors.codes import RANK, reason
from jobs.mirrors.registry_mirrors import REGISTRY_MIRRORS, MirrorStatus

READY = "Ready"
_MOST_NAMED = 3


def status_updates(
    heads: Sequence[Head], results: Sequence[Result], now: datetime, *, asked: bool
) -> list[StatusUpdate]:
    """Return what is to be written for RegistryMirrors whose status does not say it yet.

    `asked` is whether mirrors and upstreams were: of one that was not nobody knows that it is healthy.
    """
    findings = [
        result.finding
        for result in results
        if result.finding.severity is not Severity.INFO and result.outcome is not Outcome.DONE
    ]
    by_head = ((head, [each for each in findings if head.key.name in each.subjects]) for head in heads if head.uid)
    stated = (_status_update(head, _condition(head, found, asked=asked), len(found), now) for head, found in by_head)
    return [status_update for status_update in stated if status_update]


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


def _condition(head: Head, findings: Sequence[Finding], *, asked: bool) -> Condition:
    if not findings and not asked:
        message = "nothing to find fault with, but whether it and its upstream answer was not asked"
        return new_condition(READY, "Unknown", "NotProbed", message, head.generation)
    if not findings:
        return new_condition(READY, "True", "Healthy", "as it should be; it and its upstream answer", head.generation)
    worst = sorted(findings, key=lambda each: (RANK[each.code], each.object))
    told = "; ".join(_told(each) for each in worst[:_MOST_NAMED])
    more = f"; and {len(worst) - _MOST_NAMED} more" if len(worst) > _MOST_NAMED else ""
    # Of what could not be seen nobody knows whether it is well.
    observed = any(each.code != "unreadable" for each in findings)
    state = "False" if observed else "Unknown"
    return new_condition(READY, state, reason(worst[0].code), f"{told}{more}", head.generation)


def _told(finding: Finding) -> str:
    about = "" if finding.object.kind == REGISTRY_MIRRORS.kind else f"{finding.object}: "
    return f"{about}{finding.reason}"


def _merge_patch(status: MirrorStatus) -> Mapping[str, Any]:
    return {
        "observedGeneration": status.observed_generation,
        "findings": status.findings,
        "conditions": msgspec.to_builtins(status.conditions),
    }
