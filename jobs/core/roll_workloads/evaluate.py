"""Evaluate each workload: record its baseline, roll it, defer the roll, or do nothing. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from msgspec import structs

from jobs.core.roll_workloads import baseline
from jobs.core.roll_workloads.baseline import RESTART_FIELD, TEMPLATE_FIELD, Baseline, BaselinePatch
from jobs.core.roll_workloads.observed import Observed, Settings
from jobs.core.roll_workloads.references import Reference, Source, fingerprint, missing
from jobs.core.roll_workloads.schedule import (
    EVERY,
    WINDOW,
    Annotations,
    Window,
    due,
    is_open,
    next_opening,
    parse_period,
    parse_windows,
)
from jobs.core.roll_workloads.workloads import Deferral, DeferralCode, Workload, kubectl
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Action, Change, Dependency, FieldDiff, Finding, ObjectKey, Severity
from jobs.kit.values.reads import read_failure, unreadable
from jobs.kit.values.resources import DEPLOYMENTS, ROLLOUTS, SECRETS

_MOST_DOUBLINGS = 6
ROLLOUT_STUCK = "rollout-stuck"
ROLLOUT_INCOMPLETE = "rollout-incomplete"
PERIOD_OVER = "period-over"
T = TypeVar("T")


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
    if found.template_of and found.template_of not in observed.workloads:
        return [Dependency(found.template_of)]
    others = observed.other_rollouts if key.kind == DEPLOYMENTS.kind else ()
    if unread := [Dependency(each) for each in others if each not in observed.workloads]:
        return unread
    if rollout := observed.rollouts.get(key):
        return _finding("skipped", key, f"its pod template is that of {rollout}, which is restarted", Severity.INFO)
    uses = _uses(found, observed)
    if isinstance(uses, ApiError):
        return unreadable(key, uses, read_failure(uses, str(found.template_of)))
    return _evaluate_uses(found, uses, observed, settings, now)


def references_of(workload: Workload, observed: Observed) -> Sequence[Reference]:
    """Return what the pods of a workload use, as far as it is known."""
    found = _uses(workload, observed)
    return () if isinstance(found, ApiError) else found


def _uses(workload: Workload, observed: Observed) -> Sequence[Reference] | ApiError:
    """Return what the pods of a workload use; a Rollout may have the pod template of a Deployment."""
    if workload.template_of is None:
        return workload.references
    of = observed.workloads.get(workload.template_of)
    if of is None:
        return ApiError(404, f"spec.workloadRef: {workload.template_of} does not exist")
    return of.references if isinstance(of, Workload) else of


def _evaluate_uses(
    found: Workload, uses: Sequence[Reference], observed: Observed, settings: Settings, now: datetime
) -> Finding | Sequence[Dependency] | None:
    key = found.key
    keys = {each: ObjectKey(each.kind, each.name, key.namespace) for each in uses if each.has_valid_name}
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
    sources = {each: observed.sources[keys[each]] if each in keys else None for each in uses}
    times = _times(found, observed, settings)
    return _compare(found, sources, key_id, times, settings, now)


class _Times(NamedTuple):
    """When a workload may be rolled, and must be. A problem is that of the annotation that has priority."""

    windows: tuple[Window, ...]
    window_problem: str
    period: timedelta | None
    period_problem: str
    period_text: str = ""


def opening_after(workload: Workload, observed: Observed, settings: Settings, time: datetime) -> datetime | None:
    """Return when the next window of a workload opens after this time; None if it has none."""
    return next_opening(_times(workload, observed, settings).windows, time)


def _times(workload: Workload, observed: Observed, settings: Settings) -> _Times:
    """Return the times of a workload: its own annotations, else those of its namespace, else the options."""
    namespace, own = workload.key.namespace, workload.schedule
    shared = observed.schedules.get(namespace, Annotations())
    windows, window_problem = _parsed(WINDOW, own.window, shared.window, namespace, parse_windows)
    period, period_problem = _parsed(EVERY, own.every, shared.every, namespace, parse_period)
    text = (own.every or shared.every or "") if period else ""
    return _Times(settings.windows if windows is None else windows, window_problem, period, period_problem, text)


def _parsed(
    name: str, own: str | None, shared: str | None, namespace: str, parse: Callable[[str], T]
) -> tuple[T | None, str]:
    """Return the value of an annotation of a workload, else of its namespace, and its problem."""
    text, where = (own, "") if own is not None else (shared, f"of namespace {namespace} ")
    try:
        return (None if text is None else parse(text)), ""
    except ValueError as error:
        return None, f"annotation {name} {where}is not valid: {error}"


def _is_read(reference: Reference, key: ObjectKey, observed: Observed) -> bool:
    found = observed.sources.get(key)
    return found.covers(reference) if isinstance(found, Source) else key in observed.sources


def _compare(
    workload: Workload,
    sources: Mapping[Reference, Source | ApiError | None],
    key_id: str,
    times: _Times,
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
        after = baseline.create(workload.uid, actual, key_id)
        if before:
            after = structs.replace(before, version=after.version, sources=actual, key=key_id)
        return _baseline_recorded(workload, before, after)
    changed = [each for each in readable if each.used in before.changed(actual)]
    if not changed:
        return _unchanged(workload, before, times, settings, now)
    what = f"{', '.join(map(str, changed))} changed"
    if too_soon := _too_soon(workload, {each: readable[each] for each in changed}, before, settings, now):
        remedy = "" if workload.deferral else _stuck_pod_remedy(workload)
        return _deferred(key, too_soon, f"{what}, but ", f" ({remedy})" * bool(remedy))
    if closed := _closed(times, settings, now):
        return _deferred(key, closed, f"{what}, but ")
    if workload.is_stuck:
        remedy = _delete_pod_remedy(workload)
        what += f", and pods are not available{f' ({remedy})' * bool(remedy)}"
    return _roll(workload, what, before, _rolled(workload, before, actual, now))


def _rolled(workload: Workload, before: Baseline, sources: Mapping[str, str], now: datetime) -> Baseline:
    """Return the baseline after a roll."""
    return structs.replace(
        before,
        sources=sources,
        rolled_at=now.replace(microsecond=0),
        early=before.early + 1 if workload.is_stuck else 0,
        template=workload.template,
        generation=workload.generation + 1,
    )


def _unchanged(
    workload: Workload, before: Baseline, times: _Times, settings: Settings, now: datetime
) -> Finding | None:
    """Return the finding of a workload whose config is unchanged, or None."""
    if rollout := _rollout(workload, before, settings, now):
        return rollout
    if problems := workload.schedule.problems():
        return _finding("invalid", workload.key, "; ".join(problems))
    return _periodic(workload, before, times, settings, now)


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
    why = "its baseline was computed with another key"
    if before is None:
        why = "had no baseline"
    elif before.sources.keys() != after.sources.keys():
        why = "its pod template uses other config than before"
    return _recorded(workload, after, f"{why}: the current config is recorded as its baseline; no pod restarts")


def _recorded(workload: Workload, after: Baseline, reason: str) -> Finding:
    change = Change(Action.ANNOTATE, BaselinePatch(workload.uid, workload.resource_version, after.encode()))
    return Finding("baseline-recorded", Severity.WARNING, workload.key, reason, change)


def _too_soon(
    workload: Workload, changed: Mapping[Reference, Source | None], before: Baseline, settings: Settings, now: datetime
) -> Deferral | None:
    """Return why a later run must do the roll, and what ends the wait; None if it can be done now.

    A roll waits for a rollout in progress, for more changes of the config (settle) and after the last roll (cool_down).
    """
    if workload.deferral:
        return workload.deferral
    if workload.progress and not workload.is_stuck:
        see = kubectl(workload.key, "rollout status")
        return Deferral(DeferralCode.ROLLOUT_IN_PROGRESS, f"a rollout is in progress, {workload.progress}; see {see}")
    if settings.only:
        return None
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


def _closed(times: _Times, settings: Settings, now: datetime) -> Deferral | None:
    """Return that no window for rolls is open, and until when; None if one is, or none is set."""
    if settings.only:
        return None
    if times.window_problem:
        return Deferral(DeferralCode.INVALID_WINDOW, times.window_problem)
    if not times.windows or is_open(times.windows, now):
        return None
    until = next_opening(times.windows, now)
    then = f"until {until.isoformat(timespec='minutes')} ({until.tzinfo})" if until else "for a year at least"
    return Deferral(DeferralCode.OUTSIDE_WINDOW, f"its window for rolls is closed {then}")


def _periodic(workload: Workload, before: Baseline, times: _Times, settings: Settings, now: datetime) -> Finding | None:
    """Return the finding of a workload whose period is over, begins or ends; None otherwise."""
    if times.period_problem:
        return None
    if times.period is None:
        after = structs.replace(before, recorded=None, period="")
        ends = f"annotation {EVERY} was removed: its period is removed from the baseline; no pod restarts"
        return _recorded(workload, after, ends) if before.period else None
    # An earlier period does not count. Nor does a time in the future, unless it is by less than a period: a run that
    # rolled the workload meanwhile has a later time than this one.
    latest = now + times.period
    if before.recorded is None or before.recorded > latest or before.period != times.period_text:
        after = structs.replace(before, recorded=now.replace(microsecond=0), period=times.period_text)
        return _recorded(workload, after, f"its period ({EVERY}) begins: recorded in its baseline; no pod restarts")
    begins = [each for each in (before.rolled_at, before.recorded) if each and each <= latest]
    moment = due(times.period, str(workload.key), max(begins), now)
    if moment is None:
        return None
    what = f"{EVERY} is due since {moment:%Y-%m-%dT%H:%M:%SZ}"
    if why := _too_soon(workload, {}, before, settings, now) or _closed(times, settings, now):
        return _deferred(workload.key, why, f"{what}, but ")
    return _roll(workload, what, before, _rolled(workload, before, before.sources, now), PERIOD_OVER)


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


def _roll(workload: Workload, what: str, before: Baseline, after: Baseline, code: str = "changed") -> Finding:
    last = before.rolled_at.isoformat() if before.rolled_at else ""
    patch = BaselinePatch(workload.uid, workload.resource_version, after.encode(), last_roll=last)
    if workload.key.kind == ROLLOUTS.kind:
        assert after.rolled_at
        patch = structs.replace(patch, restart_at=f"{after.rolled_at:%Y-%m-%dT%H:%M:%SZ}")
        diff = (FieldDiff(RESTART_FIELD, None, patch.restart_at),)
    else:
        patch = structs.replace(patch, roll_id=baseline.next_roll_id(workload.roll_id, after))
        diff = (FieldDiff(TEMPLATE_FIELD, workload.roll_id or None, patch.roll_id),)
    change = Change(Action.ROLL, patch)
    return Finding(code, Severity.WARNING, workload.key, what, change, diff)


def _deferred(key: ObjectKey, why: Deferral, before: str = "", after: str = "") -> Finding:
    return Finding("deferred", Severity.WARNING, key, f"{before}{why.reason}{after}", deferral=why.code.value)


def _finding(code: str, key: ObjectKey, reason: str, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(code, severity, key, reason)
