"""Evaluate each workload: record its baseline, roll it, defer the roll, or do nothing. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from jobs.core.roll_workloads import baseline
from jobs.core.roll_workloads.baseline import TEMPLATE_FIELD, Baseline, BaselinePatch
from jobs.core.roll_workloads.observed import Observed, Settings
from jobs.core.roll_workloads.references import Reference, Source, fingerprint, missing
from jobs.core.roll_workloads.workloads import Deferral, DeferralCode, Workload, kubectl
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Action, Change, Dependency, FieldDiff, Finding, ObjectKey, Severity
from jobs.kit.values.reads import read_failure, unreadable
from jobs.kit.values.resources import SECRETS

_MOST_DOUBLINGS = 6
ROLLOUT_STUCK = "rollout-stuck"
ROLLOUT_INCOMPLETE = "rollout-incomplete"


def evaluate(
    key: ObjectKey, observed: Observed, settings: Settings, now: datetime
) -> Finding | Sequence[Dependency] | None:
    """Return the finding for a workload, or what a run must read first; None: its pods run with the current config.

    The limit of rolls in one run is applied later, in plan.py.
    """
    if key not in observed.workloads:
        return [Dependency(key)]
    found = observed.workloads[key]
    if found is None or (isinstance(found, Workload) and found.terminating):
        return _finding("skipped", key, "is being deleted" if found else "does not exist", Severity.INFO)
    if isinstance(found, ApiError):
        return unreadable(key, found, read_failure(found, "the workload"))
    keys = {each: ObjectKey(each.kind, each.name, key.namespace) for each in found.references if each.has_valid_name}
    key_id = ""
    if any(each.kind == SECRETS.kind for each in keys):
        if observed.key is None:
            assert observed.key_secret, "observed.key is an error without it"
            return [Dependency(observed.key_secret)]
        if isinstance(observed.key, ApiError):
            return unreadable(key, observed.key, read_failure(observed.key, "the key for fingerprints of Secrets"))
        if observed.key.empty_secret:
            # A baseline that was recorded with a key whose write fails would have no effect.
            why = "uses Secrets, and the key for their fingerprints is not written yet; the next run continues"
            return _finding("skipped", key, why)
        key_id = observed.key.id
    if unread := [Dependency(source) for each, source in keys.items() if not _is_read(each, source, observed)]:
        return unread
    sources = {each: observed.sources[keys[each]] if each in keys else None for each in found.references}
    return _compare(found, sources, key_id, settings, now)


def _is_read(reference: Reference, key: ObjectKey, observed: Observed) -> bool:
    found = observed.sources.get(key)
    return found.covers(reference) if isinstance(found, Source) else key in observed.sources


def _compare(
    workload: Workload,
    sources: Mapping[Reference, Source | ApiError | None],
    key_id: str,
    settings: Settings,
    now: datetime,
) -> Finding | None:
    key = workload.key
    readable: dict[Reference, Source | None] = {}
    for reference, source in sources.items():
        if isinstance(source, ApiError):
            return unreadable(key, source, read_failure(source, str(reference)))
        readable[reference] = source
    if problems := [why for each, source in readable.items() if (why := missing(each, source))]:
        return _deferred(key, Deferral(DeferralCode.MISSING_SOURCE, f"new pods would not start: {'; '.join(problems)}"))
    actual = {each.used: fingerprint(each, source) for each, source in readable.items()}
    before = baseline.parse(workload.baseline, workload.uid)
    if before is None or before.key != key_id or before.sources.keys() != actual.keys():
        last = (before.rolled_at, before.early, before.template, before.generation) if before else ()
        return _baseline_recorded(workload, before, baseline.create(workload.uid, actual, key_id, *last))
    changed = [each for each in readable if each.used in before.changed(actual)]
    if not changed:
        return _rollout(workload, before, settings, now)
    what = f"{', '.join(map(str, changed))} changed"
    if workload.deferral:
        return _deferred(key, workload.deferral, f"{what}, but ")
    if too_soon := _too_soon(workload, {each: readable[each] for each in changed}, before, settings, now):
        remedy = _stuck_pod_remedy(workload)
        return _deferred(key, too_soon, f"{what}, but ", f" ({remedy})" * bool(remedy))
    if workload.is_stuck:
        remedy = _delete_pod_remedy(workload)
        what += f", and pods are not available{f' ({remedy})' * bool(remedy)}"
    early = before.early + 1 if workload.is_stuck else 0
    after = baseline.create(workload.uid, actual, key_id, now, early, workload.template, workload.generation + 1)
    return _roll(workload, what, before, after)


def _rollout(workload: Workload, before: Baseline, settings: Settings, now: datetime) -> Finding | None:
    """Return the finding that the last roll is not complete, or None. The rollouts of others are theirs to watch.

    A rollout is of the last roll if nobody changed the pod template since. Of the others, only what waiting does not
    end is reported, and nothing that somebody chose, such as a pause. While the controller has not observed a later
    change, such as one by an autoscaler, the last roll may be complete.
    """
    if before.rolled_at is None or not workload.incomplete:
        return None
    is_chosen = workload.deferral and workload.deferral.code is not DeferralCode.ROLLOUT_IN_PROGRESS
    remedy = workload.deferral.reason if workload.deferral and is_chosen else _stuck_pod_remedy(workload)
    is_stuck = workload.has_failed or bool(remedy)
    is_known = workload.is_observed or workload.generation == before.generation
    is_of_last_roll = workload.template == before.template and is_known
    if not is_of_last_roll and (is_chosen or not is_stuck):
        return None
    code = ROLLOUT_STUCK if is_stuck else ROLLOUT_INCOMPLETE
    is_recent = _is_within(settings.settle, now - before.rolled_at)
    # The Events of any kind of workload report why its pods are not created, or are not ready.
    remedy = remedy or f"see kubectl get events -n {workload.key.namespace} --field-selector type=Warning"
    reason = f"a rollout is not complete, {workload.incomplete}; {remedy}"
    return _finding(code, workload.key, reason, Severity.INFO if is_recent else Severity.WARNING)


def _stuck_pod_remedy(workload: Workload) -> str:
    """Return how to remove a pod that the StatefulSet controller does not replace, or an empty string.

    A pod of the newest template does not count: it may only be slow to start.
    """
    if not workload.newest_revision:
        return _delete_pod_remedy(workload)
    return _delete_pod_remedy(workload, f"!={workload.newest_revision}") if workload.is_outdated else ""


def _delete_pod_remedy(workload: Workload, revisions: str = "") -> str:
    """Return how to find and delete the stuck pod, or an empty string."""
    if not (workload.is_stuck and workload.is_blocked):
        return ""
    pod, selector = f"a pod of {workload.key.name}", "statefulset.kubernetes.io/pod-name"
    if revisions:
        pod, selector = f"{pod} with an older template", f"{selector},controller-revision-hash{revisions}"
    find = f"kubectl get pods -n {workload.key.namespace} -l {selector}"
    return f"if {pod} does not become ready, no roll replaces it; find it with {find}, then delete it"


def _baseline_recorded(workload: Workload, before: Baseline | None, after: Baseline) -> Finding:
    change = Change(Action.ANNOTATE, BaselinePatch(workload.uid, workload.resource_version, after.encode()))
    why = "its baseline was computed with another key"
    if before is None:
        why = "had no baseline"
    elif before.sources.keys() != after.sources.keys():
        why = "its pod template uses other config than before"
    reason = f"{why}: the current config is recorded as its baseline; no pod restarts"
    return Finding("baseline-recorded", Severity.WARNING, workload.key, reason, change)


def _too_soon(
    workload: Workload, changed: Mapping[Reference, Source | None], before: Baseline, settings: Settings, now: datetime
) -> Deferral | None:
    """Return why a later run must do the roll, and what ends the wait; None if it can be done now.

    A roll waits for a rollout in progress, for more changes of the config (settle) and after the last roll (cool_down).
    """
    if workload.progress and not workload.is_stuck:
        see = kubectl(workload.key, "rollout status")
        return Deferral(DeferralCode.ROLLOUT_IN_PROGRESS, f"a rollout is in progress, {workload.progress}; see {see}")
    for reference, source in changed.items():
        if source and source.changed and _is_within(settings.settle, now - source.changed):
            until = f"a run rolls the workload {_span(settings.settle)} after the last change (--settle)"
            last = f"the last change of {reference} was {_span(now - source.changed)} ago"
            return Deferral(DeferralCode.SETTLING, f"{last}, and more may follow: {until}")
    wait = _wait(workload, before, settings.cool_down)
    if before.rolled_at and _is_within(wait, now - before.rolled_at):
        until = f"a run rolls it again {_span(wait)} after that roll (--cool-down)"
        last = f"the workload was rolled {_span(now - before.rolled_at)} ago"
        return Deferral(DeferralCode.COOLING_DOWN, f"{last}: {until}")
    return None


def _wait(workload: Workload, before: Baseline, cool_down: timedelta) -> timedelta:
    """Return the minimum time between the last roll of a workload and the next one.

    The first change after a rollout got stuck is likely the fix, and its pods serve no requests. If the rollout is
    stuck again, the pods may only be slow to start. So the wait doubles with each roll, until a rollout can complete.
    """
    if not workload.is_stuck:
        return cool_down
    if not before.early:
        return timedelta()
    return cool_down * 2 ** min(before.early - 1, _MOST_DOUBLINGS) if workload.progress else cool_down


def _is_within(limit: timedelta, age: timedelta) -> bool:
    """Return whether an age is below the limit. Clocks differ, so it may also be negative, down to -limit."""
    return -limit < age < limit


def _span(age: timedelta) -> str:
    seconds = max(0, int(age.total_seconds()))
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"


def _roll(workload: Workload, what: str, before: Baseline, after: Baseline) -> Finding:
    roll_id = baseline.next_roll_id(workload.roll_id, after)
    last = before.rolled_at.isoformat() if before.rolled_at else ""
    change = Change(Action.ROLL, BaselinePatch(workload.uid, workload.resource_version, after.encode(), roll_id, last))
    diff = (FieldDiff(TEMPLATE_FIELD, workload.roll_id or None, roll_id),)
    return Finding("changed", Severity.WARNING, workload.key, what, change, diff)


def _deferred(key: ObjectKey, why: Deferral, before: str = "", after: str = "") -> Finding:
    return Finding("deferred", Severity.WARNING, key, f"{before}{why.reason}{after}", deferral=why.code.value)


def _finding(code: str, key: ObjectKey, reason: str, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(code, severity, key, reason)
