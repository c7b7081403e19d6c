"""Explain the workloads of a namespace: how each opted in, what it uses, and what the next run does. Pure.

It shows the plan of a dry run, and decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from jobs.core.roll_workloads import baseline
from jobs.core.roll_workloads.baseline import ROLL_OPT_IN, Baseline
from jobs.core.roll_workloads.evaluate import evaluate, opening_after, references_of
from jobs.core.roll_workloads.observed import Observed, OptIn, Settings
from jobs.core.roll_workloads.references import Reference, Source, fingerprint, missing
from jobs.core.roll_workloads.workloads import DeferralCode, Workload, kubectl
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Action, Explanation, Finding, ObjectKey, Plan, Row
from jobs.kit.values.resources import NAMESPACES
from jobs.kit.values.text import listed

_COLUMNS = ("WORKLOAD", "STATE", "WHY")
_MOST_KEYS = 3
_MOST_REFERENCES = 50
_MOST_DOUBLINGS = 7  # of --cool-down
_ENDING = (DeferralCode.SETTLING.value, DeferralCode.COOLING_DOWN.value, DeferralCode.OUTSIDE_WINDOW.value)


def explanation(where: ObjectKey, made: Plan, observed: Observed, settings: Settings, now: datetime) -> Explanation:
    """Return a row for each workload; then one for each other finding, such as a list that failed."""
    findings: dict[ObjectKey, list[Finding]] = {}
    for each in made.findings:
        findings.setdefault(each.object, []).append(each)
    known = {each.key for each in observed.listed}
    is_detailed = bool(where.name) or settings.run.verbose
    rows = [_row_of(each, findings.get(each.key, ()), observed, settings, now) for each in observed.listed]
    rows = rows if is_detailed else [each._replace(details=()) for each in rows]
    for key, some in findings.items():
        is_named = key.namespace == where.namespace and where.name in ("", key.name)
        is_general = key.name == "(all)" or key == ObjectKey(NAMESPACES.kind, where.namespace)
        if key not in known and (is_named or is_general):
            rows += [_row(key, each.code, each.reason) for each in some]
    return Explanation(_COLUMNS, tuple(rows), _summary(where, observed, settings))


def _summary(where: ObjectKey, observed: Observed, settings: Settings) -> str:
    count = len(observed.listed)
    if not count:
        named = f" {where.name}" if where.name else ""
        return f"no {settings.any_kind}{named} in namespace {where.namespace}"
    opted_in = sum(each.is_opted_in for each in observed.listed)
    return f"{opted_in} of {count} workload{'s' * (count > 1)} opted in"


def _row_of(each: OptIn, findings: Sequence[Finding], observed: Observed, settings: Settings, now: datetime) -> Row:
    mistake = each.mistake()
    if not each.is_opted_in:
        return _row(each.key, *((mistake.code, mistake.reason) if mistake else _why_not_opted_in(each)))
    finding = next((found for found in findings if mistake is None or found.code != mistake.code), None)
    until = _until(finding, each.key, observed, settings, now) if finding else None
    workload = observed.workloads.get(each.key)
    code, reason = (finding.code, _reason(finding, until)) if finding else ("unchanged", _unchanged(workload))
    if not isinstance(workload, Workload):
        return _row(each.key, code, reason)
    before = baseline.parse(workload.baseline, workload.uid)
    compared = None if code == "baseline-recorded" else before
    uses = [(use, _state(use, compared, each.key, observed)) for use in references_of(workload, observed)]
    opted_in_by = f"namespace {each.key.namespace}" if each.value is None else "its annotation"
    return _row(
        each.key,
        code,
        reason,
        (
            f"opted in by {opted_in_by}",
            *([mistake.reason] if mistake else []),
            _shown_baseline(before),
            *_shown_uses(uses),
        ),
        optedInBy="namespace" if each.value is None else "annotation",
        deferral=finding.deferral if finding else "",
        until=_shown_time(until) if until else None,
        hasBaseline=before is not None,
        lastRoll=_shown_time(before.rolled_at) if before and before.rolled_at else None,
        uses=[
            {"kind": use.kind, "name": use.name, "keys": None if use.keys is None else list(use.keys), "state": state}
            for use, state in uses
        ],
    )


def _row(key: ObjectKey, code: str, reason: str, details: tuple[str, ...] = (), **fields: Any) -> Row:
    named = {name: value for name, value in key._asdict().items() if value}
    document = {"object": named, "code": code, "reason": reason, **fields}
    return Row((f"{key.kind.lower()}/{key.name}", code), reason, document, details)


def _unchanged(workload: Workload | ApiError | None) -> str:
    if isinstance(workload, Workload) and workload.incomplete:
        return f"its config is unchanged; a rollout is not complete, {workload.incomplete}"
    return "its pods use the current config"


def _reason(finding: Finding, until: datetime | None) -> str:
    if finding.action is Action.ROLL:
        return f"{finding.reason}: the next run restarts it"
    return f"{finding.reason}; the first run after {_shown_time(until)} restarts it" if until else finding.reason


def _shown_time(time: datetime) -> str:
    """Return a time in RFC 3339; tenants can write any time with any offset."""
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


def _why_not_opted_in(each: OptIn) -> tuple[str, str]:
    if each.value == "false":
        return "opted-out", f'annotation {ROLL_OPT_IN} is "false"'
    command = kubectl(each.key, "annotate", f"{ROLL_OPT_IN}=true")
    return "not-opted-in", f"neither it nor its namespace has annotation {ROLL_OPT_IN}; run {command}"


def _until(finding: Finding, key: ObjectKey, observed: Observed, settings: Settings, now: datetime) -> datetime | None:
    """Return when a run may restart the workload: the first time at which its evaluation is a roll."""
    workload = observed.workloads.get(key)
    if finding.deferral not in _ENDING or not isinstance(workload, Workload):
        return None
    before = baseline.parse(workload.baseline, workload.uid)
    sources = [observed.sources.get(_key(use, key)) for use in references_of(workload, observed)]
    waits = [(each.changed, settings.settle) for each in sources if isinstance(each, Source) and each.changed]
    if before and before.rolled_at:
        waits += [(before.rolled_at, settings.cool_down * 2**doublings) for doublings in range(_MOST_DOUBLINGS)]
    ends = [now, *_ends(waits, now)]
    openings = [opening for each in ends if (opening := opening_after(workload, observed, settings, each))]
    for time in sorted({*ends, *openings} - {now}):
        later = evaluate(key, observed, settings, time)
        if isinstance(later, Finding) and later.action is Action.ROLL:
            return time
    return None


def _ends(waits: Sequence[tuple[datetime, timedelta]], now: datetime) -> Iterator[datetime]:
    """Yield the ends of waits in the future; a tenant can write a start near the last possible time."""
    for start, length in waits:
        with suppress(OverflowError):
            if start + length > now:
                yield start + length


def _key(use: Reference, workload: ObjectKey) -> ObjectKey:
    return ObjectKey(use.kind, use.name, workload.namespace)


def _state(use: Reference, before: Baseline | None, workload: ObjectKey, observed: Observed) -> str:
    """Return whether what pods use changed; without a baseline `before`, it is new."""
    key = _key(use, workload)
    source = observed.sources.get(key)
    if isinstance(source, ApiError):
        return "unreadable"
    if use.has_valid_name and key not in observed.sources:
        return "not read"
    if missing(use, source):
        return "missing"
    if before is None or use.used not in before.sources:
        return "new"
    return "changed" if before.changed({use.used: fingerprint(use, source)}) else "unchanged"


def _shown_baseline(before: Baseline | None) -> str:
    if before is None:
        return "baseline: none yet"
    last = f", last roll by kube-chores {_shown_time(before.rolled_at)}" if before.rolled_at else ""
    count = len(before.sources)
    return f"baseline: {count} {'object' if count == 1 else 'objects'}{last}"


def _shown_uses(uses: Sequence[tuple[Reference, str]]) -> Iterator[str]:
    for use, state in uses[:_MOST_REFERENCES]:
        keys = "" if use.keys is None else f" (keys {listed(use.keys, _MOST_KEYS)})"
        yield f"{use}{keys}: {state}"
    if len(uses) > _MOST_REFERENCES:
        yield f"... and {len(uses) - _MOST_REFERENCES} more"
