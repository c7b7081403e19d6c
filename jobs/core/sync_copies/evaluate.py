"""Evaluate one place: no finding, a finding with its fix, or the object that must be read first. Pure."""

from __future__ import annotations

import sys

from msgspec import structs

from jobs.core.sync_copies.desired import Desired, Place
from jobs.core.sync_copies.kinds import BY_NAME
from jobs.core.sync_copies.mistakes import blocked
from jobs.core.sync_copies.observed import NAME, OPT_IN, Settings
from jobs.core.sync_copies.state import Context, found, required, why_not_adopted
from jobs.kit.data.contents import same_content
from jobs.kit.data.manifests import (
    ContentManifest,
    Replacement,
    content_diff,
    fields_changed,
    metadata_diff,
    repair,
    shown_metadata,
)
from jobs.kit.data.objects import ReducedObject
from jobs.kit.values import stamps
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Action, Change, Deletion, Dependency, ExitCode, Finding, ObjectKey, Severity
from jobs.kit.values.reads import unreadable

SOURCE_CHANGED = "source-changed"
_TERMINATING = "is being deleted, but a finalizer keeps it in effect, with its old content; see its metadata.finalizers"


def evaluate(place: Place, context: Context, equal: Place | None = None) -> Finding | Dependency | None:
    """Return the finding of a place, or the object that must be read first, or None if nothing is to be done.

    `equal` is another place that has an equal copy. Copies of one source share header and content, so with it the
    decision about most places takes one comparison: of such a place `_decide` uses nothing else.
    """
    if equal and isinstance(place.found, ReducedObject) and isinstance(equal.found, ReducedObject):
        found, other = place.found, equal.found
        if (
            place.desired is equal.desired
            and found.header is other.header
            and found.content is other.content
            and place.key.namespace not in context.closed
        ):
            return None
    return _decide(place, context)


def _decide(place: Place, context: Context) -> Finding | Dependency | None:  # noqa: C901 - a table
    """Decide about a place: the cases are the rows of the table in docs/sync-copies.md#decisions, in the same order."""
    match required(place, context), found(place, context):
        case "one copy", "an equal copy":
            return None
        case "one copy", "nothing":
            return _missing(place, context.settings)
        case "one copy", "an older copy":
            return _replaced("outdated", place, context.settings)
        case "one copy", "an edited copy":
            return _replaced("drifted", place, context.settings)
        case "one copy", "a copy in doubt":
            both = f"stays a copy of {place.annotations[stamps.SOURCE]}, and does not become a copy of"
            return _stays("unreadable", place, f"{both} {place.desired[0].source}: {context.why_uncertain(place)}")
        case "one copy", "a copy of a source in another namespace":
            return _held(place)
        case "one copy", "a terminating copy":
            return _stays("terminating", place, _TERMINATING)
        case "one copy", "an object to adopt":
            return _adopted(place)
        case "one copy", "another object":
            return _stays("conflict", place, why_not_adopted(place, context.observed))
        case "one copy", "a place to read first":
            return Dependency(place.key, full=place.found is not None)
        case "no copy", "an orphan":
            return _orphan("orphan", place, context)
        case "no copy", "an opted-out orphan":
            return _orphan("opted-out", place, context)
        case "no copy", "an orphan to retain":
            return structs.replace(_orphan("retained", place, context), severity=Severity.INFO, change=None)
        case "no copy", "an orphan of a mistaken rule":
            return blocked(_orphan("orphan", place, context), context.rule_in_doubt(place))
        case "no copy", "a copy in doubt":
            why = f"its source {place.annotations.get(stamps.SOURCE, '')} cannot be decoded"
            return _stays("unreadable", place, f"no rule requires this copy, but it is not deleted: {why}")
        case "no copy", "a terminating copy":
            return _stays("orphan", place, _TERMINATING, (place.stamped_rule.rpartition("/")[2],))
        case "no copy", "a copy of a refused source" | "another object" | "nothing":
            return None
        case "a copy of a reserved name", _:
            return _reserved(place)
        case "several copies", _:
            return _collision(place)
        case "a copy, not opted in", _:
            return _not_opted_in(place)
        case _, "an unreadable object":
            assert isinstance(place.found, ApiError)
            return unreadable(place.key, place.found, subjects=place.rules)
    raise AssertionError(place.key)


def _stays(code: str, place: Place, reason: str, subjects: tuple[str, ...] = ()) -> Finding:
    """Return the finding of a place that the run leaves as it is."""
    return Finding(code, Severity.WARNING, place.key, reason, subjects=subjects or place.rules)


def contested(place: Place) -> Finding:
    """Return the finding of a place that other desired copies claim than that of the source it has."""
    return _collision(place) if len(place.others) > 1 else _held(place)


def unchanged(place: Place) -> Finding:
    """Return the finding of a place that is as desired; shown with -v."""
    desired = place.desired[0]
    return Finding("unchanged", Severity.INFO, place.key, f"from {desired.source}", subjects=desired.rules)


def _missing(place: Place, settings: Settings) -> Finding:
    desired = place.desired[0]
    shown = content_diff(None, desired.content, secret=desired.kind.layout.is_secret) if settings.run.diff else ()
    change = Change(Action.CREATE, _manifest(place.key, desired), origin=desired.origin.namespace)
    reason = sys.intern(f"from {desired.source}")  # a first sweep has thousands of the same reason
    return Finding("missing", Severity.WARNING, place.key, reason, change, shown, desired.rules)


def _manifest(key: ObjectKey, desired: Desired) -> ContentManifest:
    layout, labels, annotations = desired.kind.layout, desired.labels, desired.annotations
    return ContentManifest(
        layout, key, labels, annotations, desired.content, source=desired.origin, select=desired.select
    )


def _replaced(code: str, place: Place, settings: Settings) -> Finding:
    """Return the finding of a copy that differs from the desired one; with its fields if its content was read."""
    actual, desired = place.actual, place.desired[0]
    secret = desired.kind.layout.is_secret
    differing = () if actual.content is None else content_diff(actual.content, desired.content, secret=secret)
    relabelled = metadata_diff(desired.labels, desired.annotations, actual.header)
    source_before = place.annotations.get(stamps.SOURCE)
    if source_before not in (None, desired.source):
        reason = f"source changed from {source_before} to {desired.source}"
    elif code == "outdated":
        recreated = actual.content is not None and same_content(actual.content, desired.content)
        reason = sys.intern(f"source {desired.source} {'was recreated' if recreated else 'changed'}")
    else:
        reason = fields_changed(differing or relabelled, actual.header.ownership.others if differing else ())
    shown = (*differing, *shown_metadata(relabelled, secret=secret)) if settings.run.diff else ()
    change = structs.replace(repair(_manifest(place.key, desired), actual), origin=desired.origin.namespace)
    return Finding(code, Severity.WARNING, place.key, reason, change, shown, desired.rules)


def _held(place: Place) -> Finding:
    """Return the finding of a copy that does not move to a source in another namespace until a person confirms it."""
    before, now = place.annotations[stamps.SOURCE], (place.others or place.desired)[0].source
    reason = f"stays a copy of {before}, although its rule now selects {now}; if you want that one, delete this copy"
    return Finding(SOURCE_CHANGED, Severity.CRITICAL, place.key, reason, subjects=place.rules, exit_code=ExitCode.BRAKE)


def _adopted(place: Place) -> Finding:
    desired = place.desired[0]
    change = Change(Action.REPLACE, Replacement(_manifest(place.key, desired), place.actual))
    reason = f"adopted: was not managed by kube-chores; now a copy of {desired.source}"
    return Finding("adopted", Severity.WARNING, place.key, reason, change, subjects=desired.rules)


def _orphan(code: str, place: Place, context: Context) -> Finding:
    """Return the finding that deletes a copy, if the brake allows it.

    The brake counts by code. With a separate code, opt-outs of many tenants do not block other deletions.
    """
    deletion = Deletion(place.actual.uid, place.actual.resource_version)
    change = Change(Action.DELETE, deletion, origin=place.stamped_source.namespace)
    rule = place.annotations.get(stamps.RULE, "an unknown rule")
    source = place.annotations.get(stamps.SOURCE, "an unknown source")
    cause = "its namespace opted out" if place.key.namespace in context.opted_out else "no rule requires this copy"
    why = f"{cause}; it was created for {rule} from {source}"
    return Finding(code, Severity.WARNING, place.key, why, change, subjects=(rule.rpartition("/")[2],))


def _reserved(place: Place) -> Finding:
    """Return the finding of a copy that something else reads or writes: jobs, or the control plane."""
    sources = " and ".join(sorted({desired.source for desired in place.desired}))
    kind, actual = BY_NAME[place.key.kind], place.found
    reader = kind.readers.get(place.key.name)
    why = f"{reader} of this name" if reader else kind.why_no_name(place.key.name)
    is_copied = isinstance(actual, ReducedObject) and actual.header.labels.get(stamps.JOB) == NAME
    is_renamed = any(desired.origin.name != place.key.name for desired in place.desired)
    source = sources if is_copied else "it"
    correct = "set another targetName" if is_renamed else f"rename {source}, or change what the rule selects"
    todo = f"delete this copy; then {correct}" if is_copied else f"{sources} is not copied; {correct}"
    reason = f"left untouched: {why}, so {todo}"
    return _stays("reserved-name", place, reason)


def _collision(place: Place) -> Finding:
    claims = place.others or place.desired
    sources, rules = sorted({desired.source for desired in claims}), " and ".join(place.rules)
    if len(sources) == 1:
        what = f"rules {rules} require different copies of source {sources[0]}"
    else:
        what = f"sources {' and '.join(sources)} have the same target"
    one_rule = f"rule {rules} has a targetName, so it must select one source only"
    todo = one_rule if len(place.rules) == 1 else "narrow the targets of one rule, or set its targetName"
    kept = f"the copy that exists stays one of {place.desired[0].source}" if place.others else "none of them is copied"
    reason = f"{what}, so {kept}; {todo}"
    return Finding("collision", Severity.CRITICAL, place.key, reason, subjects=place.rules, exit_code=ExitCode.REFUSED)


def _not_opted_in(place: Place) -> Finding:
    remedy = f'annotate it with {OPT_IN}: "true", or remove it from the rule'
    reason = f"left untouched: namespace {place.key.namespace} did not opt in; {remedy}"
    return structs.replace(_stays("not-opted-in", place, reason), exit_code=ExitCode.REFUSED)
