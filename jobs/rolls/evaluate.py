"""What is to be said and done of each workload: adopt it, roll it, hold it, or nothing. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from operator import itemgetter

import msgspec
from msgspec import Struct, field, structs

from jobs.kit.decoding import decode
from jobs.kit.errors import ApiError
from jobs.kit.model import Action, Change, Finding, Fix, Need, ObjectKey, Severity
from jobs.kit.objects import SECRETS
from jobs.rolls import baseline
from jobs.rolls.baseline import BASELINE, ROLLED, Baseline
from jobs.rolls.key import Key
from jobs.rolls.observed import Observed, Settings
from jobs.rolls.references import Reference
from jobs.rolls.sources import Source, fingerprint, missing
from jobs.rolls.workloads import Workload

_MOST_DOUBLINGS = 6
_TEMPLATE_FIELD = f"spec.template.metadata.annotations[{ROLLED}]"


class BaselinePatch(Struct, frozen=True, gc=False):
    """The merge patch of that very version of a workload: a baseline, and with `mark` a rolling restart.

    `rolled_before` is not sent: it is when the workload was rolled last, as text.
    """

    uid: str
    resource_version: str
    baseline: str
    mark: str = ""
    rolled_before: str = ""

    def encode(self) -> bytes:
        """Return the patch as JSON."""
        metadata = {"uid": self.uid, "resourceVersion": self.resource_version, "annotations": {BASELINE: self.baseline}}
        template = {"template": {"metadata": {"annotations": {ROLLED: self.mark}}}}
        return msgspec.json.encode({"metadata": metadata, **({"spec": template} if self.mark else {})})

    def changed_by_server(self, answer: bytes) -> tuple[str, ...]:
        """Return the annotations that the server did not keep as they were sent."""
        kept = decode(answer, _Marks)
        found = kept.metadata.annotations.get(BASELINE) == self.baseline
        rolled = not self.mark or kept.spec.template.metadata.annotations.get(ROLLED) == self.mark
        lost = {f"metadata.annotations[{BASELINE}]": not found, _TEMPLATE_FIELD: not rolled}
        return tuple(field for field, is_lost in lost.items() if is_lost)

    def redact(self, text: str) -> str:
        """Return the text as it is: no secret was sent."""
        return text


class _Metadata(Struct):
    annotations: dict[str, str] = field(default_factory=dict)


class _Template(Struct):
    metadata: _Metadata = field(default_factory=_Metadata)


class _Spec(Struct):
    template: _Template


class _Marks(Struct):
    """What the server answers to a patch of a workload, as far as a patch can change it."""

    metadata: _Metadata
    spec: _Spec


def evaluate(key: ObjectKey, observed: Observed, settings: Settings, now: datetime) -> Finding | Sequence[Need] | None:
    """Return what is found of a workload, or what must be read before that can be said; None: all is well.

    Whether the rolls of a run are used up is another question (`within_budget`).
    """
    if key not in observed.workloads:
        return [Need(key)]
    found = observed.workloads[key]
    if found is None or (isinstance(found, Workload) and found.terminating):
        return _finding("skipped", key, "is being deleted" if found else "is gone", Severity.INFO)
    if isinstance(found, ApiError):
        return unreadable(key, "it", found)
    places = {each: _place(found, each) for each in found.references if each.can_be}
    uses_secrets = any(each.kind == SECRETS.kind for each in places)
    if uses_secrets and isinstance(observed.key, ApiError):
        return unreadable(key, "the key of fingerprints of Secrets", observed.key)
    if uses_secrets and observed.key is None:
        assert observed.key_secret, "without it there is an error"
        return [Need(observed.key_secret)]
    if unread := [place for each, place in places.items() if not _is_known(each, place, observed)]:
        return [Need(place) for place in unread]
    sources = {each: observed.sources[places[each]] if each in places else None for each in found.references}
    key_id = observed.key.id if uses_secrets and isinstance(observed.key, Key) else ""
    return _judge(found, sources, key_id, settings, now)


def _is_known(reference: Reference, place: ObjectKey, observed: Observed) -> bool:
    found = observed.sources.get(place, place)
    return found is not place and not (isinstance(found, Source) and not found.covers(reference))


def _place(workload: Workload, reference: Reference) -> ObjectKey:
    return ObjectKey(reference.kind, reference.name, workload.key.namespace)


def _judge(
    workload: Workload,
    sources: Mapping[Reference, Source | ApiError | None],
    key_id: str,
    settings: Settings,
    now: datetime,
) -> Finding | None:
    key = workload.key
    for reference, source in sources.items():
        if isinstance(source, ApiError):
            return unreadable(key, str(reference), source)
    readable = {each: source for each, source in sources.items() if not isinstance(source, ApiError)}
    if lacks := [why for each, source in readable.items() if (why := missing(each, source))]:
        return _finding("deferred", key, f"new pods would not start: {', '.join(lacks)}")
    actual = {each.used: fingerprint(each, source) for each, source in readable.items()}
    before = baseline.parse(workload.baseline, workload.uid)
    if before is None or before.key != key_id or before.sources.keys() != actual.keys():
        rolled_at, early = (before.rolled_at, before.early) if before else (None, 0)
        return _adopted(workload, before, baseline.of(workload.uid, actual, key_id, rolled_at, early))
    changed = [each for each in readable if each.used in before.changed(actual)]
    if not changed:
        return _stuck(workload, before, settings, now)
    what = f"{', '.join(map(str, changed))} changed"
    if workload.hold:
        return _finding("deferred", key, f"{what}, but {workload.hold}")
    if why := _too_soon(workload, {each: readable[each] for each in changed}, before, settings, now):
        return _finding("deferred", key, f"{what}, but {why}{_in_brackets(_way_out(workload))}")
    if workload.is_blocked:
        what = f"{what}, and pods are not available{_in_brackets(_deletion(workload))}"
    early = before.early + 1 if workload.is_blocked else 0
    return _rolled(workload, what, before, baseline.of(workload.uid, actual, key_id, now, early))


def _stuck(workload: Workload, before: Baseline, settings: Settings, now: datetime) -> Finding | None:
    """Return that pods of a StatefulSet do not get the template of its last roll, if they do not."""
    if workload.hold or not (workload.in_the_way and workload.is_outdated and workload.progress):
        return None
    if before.rolled_at is None or _is_within(settings.settle, now - before.rolled_at):
        return None
    return _finding(
        "rollout-stuck", workload.key, f"a rollout is in progress, {workload.progress}: {_way_out(workload)}"
    )


def _way_out(workload: Workload) -> str:
    """Return what to do about a pod of a StatefulSet that is not replaced, if there may be one.

    No pod is named that may be of the newest template: it may only be slow to start.
    """
    if not workload.newest_revision:
        return _deletion(workload)
    if not (workload.is_blocked and workload.in_the_way and workload.is_outdated):
        return ""
    name, namespace = workload.key.name, workload.key.namespace
    older = f"statefulset.kubernetes.io/pod-name,controller-revision-hash!={workload.newest_revision}"
    return (
        f"if pod {name}-N is of an older template and does not become ready, no roll replaces it: "
        f"delete it, see kubectl get pods -n {namespace} -l {older}"
    )


def _deletion(workload: Workload) -> str:
    """Return the pod to delete for a template that is newer than that of all pods, if there is one."""
    if not (workload.is_blocked and workload.in_the_way):
        return ""
    pod, namespace = workload.in_the_way, workload.key.namespace
    return f"if pod {pod} does not become ready, no roll replaces it: run kubectl delete pod {pod} -n {namespace}"


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _adopted(workload: Workload, before: Baseline | None, after: Baseline) -> Finding:
    fix = Fix(Action.ANNOTATE, BaselinePatch(workload.uid, workload.resource_version, after.encode()))
    reason = f"{_why_adopted(before, after)}: taken as it is, no pod restarts"
    return structs.replace(_finding("baseline-recorded", workload.key, reason), fix=fix)


def _why_adopted(before: Baseline | None, after: Baseline) -> str:
    if before is None:
        return "its config was not known before"
    if before.sources.keys() != after.sources.keys():
        return "uses other config than before"
    return "its baseline was made with another key"


def _too_soon(
    workload: Workload, changed: Mapping[Reference, Source | None], before: Baseline, settings: Settings, now: datetime
) -> str:
    """Return why to wait for a rollout, for more changes, or for what the last roll does; and what ends the wait."""
    if workload.progress and not workload.is_blocked:
        return f"a rollout is in progress, {workload.progress}: see {workload.run('rollout status')}"
    for reference, source in changed.items():
        if source and source.changed and _is_within(settings.settle, now - source.changed):
            until = f"a run rolls it {_span(settings.settle)} after the last change (--settle)"
            return f"{reference} changed {_ago(now - source.changed)}, and it may change more: {until}"
    wait = _wait(workload, before, settings.cool_down)
    if before.rolled_at and _is_within(wait, now - before.rolled_at):
        until = f"a run rolls it {_span(wait)} after that (--cool-down)"
        return f"it was rolled {_ago(now - before.rolled_at)}: {until}"
    return ""


def _wait(workload: Workload, before: Baseline, cool_down: timedelta) -> timedelta:
    """Return how long after its last roll a workload may be rolled again.

    The first change after a rollout got blocked is likely the fix, and its pods serve nobody. If the pods
    are blocked again they may only be slow to start, so the wait doubles until a rollout can end.
    """
    if not workload.is_blocked:
        return cool_down
    if not before.early:
        return timedelta()
    return cool_down * 2 ** min(before.early - 1, _MOST_DOUBLINGS) if workload.progress else cool_down


def _is_within(limit: timedelta, age: timedelta) -> bool:
    """Whether something is younger than that. Clocks differ, so its time may be still to come, though not far."""
    return -limit < age < limit


def _ago(age: timedelta) -> str:
    return f"{_span(age)} ago"


def _span(age: timedelta) -> str:
    seconds = max(0, int(age.total_seconds()))
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"


def _rolled(workload: Workload, what: str, before: Baseline, after: Baseline) -> Finding:
    mark = baseline.template_mark(workload.mark, after)
    last = before.rolled_at.isoformat() if before.rolled_at else ""
    fix = Fix(Action.ROLL, BaselinePatch(workload.uid, workload.resource_version, after.encode(), mark, last))
    changes = (Change(_TEMPLATE_FIELD, workload.mark or None, mark),)
    return structs.replace(_finding("changed", workload.key, what), fix=fix, changes=changes)


def within_budget(findings: Sequence[Finding], max_rolls: int) -> tuple[list[Finding], list[Finding]]:
    """Return the findings with as many rolls as a run may do, and those to try in place of rolls that fail.

    The others are held. There are as many to try as rolls allowed: requests are bounded, whatever fails.
    """
    rolls = _in_turn([each for each in findings if each.fix and _is_roll(each.fix)])
    held = {each.object for each in rolls[max_rolls:]}
    why = f"this run has no roll left of {max_rolls} (--max-rolls): a next run rolls it"
    allowed = [
        _finding("deferred", each.object, f"{each.reason}, but {why}") if each.object in held else each
        for each in findings
    ]
    return allowed, rolls[max_rolls : 2 * max_rolls]


def _in_turn(rolls: Sequence[Finding]) -> list[Finding]:
    """Return the rolls with the first of each namespace before the second of any.

    In a turn those are first whose last roll is longest ago, or that were never rolled; then names decide. A tenant
    forges the time of the last roll, which is in the baseline: it gains the first place in a turn and no second turn.
    """
    turns: Counter[str] = Counter()
    placed: list[tuple[int, Finding]] = []
    for each in sorted(rolls, key=lambda found: (_last_roll(found), found.object)):
        turns[each.object.namespace] += 1
        placed.append((turns[each.object.namespace], each))
    return [each for _, each in sorted(placed, key=itemgetter(0))]


def _is_roll(fix: Fix) -> bool:
    return fix.action is Action.ROLL


def _last_roll(found: Finding) -> str:
    """Return when a workload that is to be rolled was rolled last, as text that sorts by it; empty for never."""
    assert found.fix
    assert isinstance(found.fix.body, BaselinePatch)
    return found.fix.body.rolled_before


def unreadable(key: ObjectKey, what: str, error: ApiError) -> Finding:
    """Return what to say where something cannot be read, which is never the same as that it is not there."""
    remedy = "; the manifests in cronjobs/ grant the permissions that this job needs" if error.is_permission else ""
    reason = f"{what} cannot be read: {error.message}{remedy}"
    return structs.replace(_finding("unreadable", key, reason, error.severity), exit_code=error.exit_code)


def _finding(code: str, key: ObjectKey, reason: str, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(code, severity, key, reason)
