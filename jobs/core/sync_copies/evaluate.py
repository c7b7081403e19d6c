"""Evaluate one place: no finding, a finding with its fix, or the object that must be read first. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jobs.core.sync_copies.desired import Desired, Place, invalid_sources, why_never_copied
from jobs.core.sync_copies.mistakes import Mistake, blocked
from jobs.core.sync_copies.observed import KINDS, NAME, Observed, Settings
from jobs.core.sync_copies.rules import RuleStatus
from jobs.kit.data.diff import changes, metadata_changes
from jobs.kit.data.manifests import DataManifest, Deletion, Replacement, repair
from jobs.kit.data.objects import Content, Digested, Header, ReducedObject, same_content
from jobs.kit.values import stamps
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Action, Change, ExitCode, Finding, Fix, Need, ObjectKey, Severity
from jobs.kit.values.resources import SECRETS
from jobs.kit.values.text import HIDDEN

_MOST_FIELDS_NAMED = 4


class Context(NamedTuple):
    """What `evaluate` needs in addition to the place.

    `known_conflicts` are places where the status of a rule reports an object that kube-chores does not manage.
    `truncated_rules` are rules with more conflicts than their status lists. `orphans` is spec.orphans by
    NAMESPACE/NAME of the rule. `opted_out` are namespaces that opted out, and `closed` kube-* namespaces that did not
    opt in. `mistaken` are the rules that may be mistaken, by NAMESPACE/NAME.
    """

    observed: Observed
    settings: Settings
    known_conflicts: frozenset[ObjectKey]
    truncated_rules: frozenset[str]
    orphans: Mapping[str, str]
    opted_out: frozenset[str]
    closed: frozenset[str]
    invalid_sources: frozenset[ObjectKey]
    never_copied: frozenset[ObjectKey]
    mistaken: Mapping[str, Mistake]

    def rule_in_doubt(self, key: ObjectKey, actual: ReducedObject) -> str:
        """Return the rule that may be mistaken and blocks the deletion of this orphan; empty if none does.

        It is the rule that the copy was created for. If that was deleted: a mistaken rule that may select the copy.
        """
        if key.namespace in self.opted_out or _source_of(key, actual) in self.never_copied:
            return ""
        rule = actual.header.annotations.get(stamps.RULE, "")
        if rule in self.orphans:
            return rule.rpartition("/")[2] if rule in self.mistaken else ""
        source = actual.header.annotations.get(stamps.SOURCE, "")
        return next((each.rule.name for each in self.mistaken.values() if each.may_select(key, source)), "")

    def must_read_first(self, place: Place) -> bool:
        """Whether to read the place before a create: in a dry run, or if an earlier run found a conflict there."""
        return (
            self.settings.dry_run
            or place.key in self.known_conflicts
            or not self.truncated_rules.isdisjoint(place.rules)
        )


def context(
    observed: Observed, settings: Settings, skipped: Sequence[Finding], mistaken: Mapping[str, Mistake]
) -> Context:
    """Return the context of all places; `skipped` are findings of sources that are not copied.

    A run with `max_deletes` also deletes copies of rules that may be mistaken.
    """
    known_conflicts, truncated_rules, orphans = set(), set(), {}
    for rule in observed.rules:
        status = rule.head.status_as(RuleStatus)
        kind = KINDS[rule.spec.rule_type].kind
        known_conflicts |= {ObjectKey(kind, conflict.name, conflict.namespace) for conflict in status.conflicts}
        if status.conflict_count > len(status.conflicts):
            truncated_rules.add(rule.name)
        orphans[f"{rule.namespace}/{rule.name}"] = rule.spec.orphans
    opted_out = frozenset(namespace.name for namespace in observed.namespaces if namespace.opted_out)
    closed = frozenset(namespace.name for namespace in observed.namespaces if namespace.is_closed)
    by_rule = {f"{settings.namespace}/{name}": each for name, each in sorted(mistaken.items())}
    return Context(
        observed,
        settings,
        frozenset(known_conflicts),
        frozenset(truncated_rules),
        orphans,
        opted_out,
        closed,
        invalid_sources(observed),
        frozenset(each.object for each in skipped if each.code == "skipped"),
        by_rule if settings.max_deletes is None else {},
    )


def evaluate(place: Place, context: Context) -> Finding | Need | None:
    """Return the finding of a place, or the object that must be read first, or None if the place is as desired."""
    if len(place.desired) > 1:
        return _collision(place)
    if place.desired and place.key.namespace in context.closed:
        return _not_opted_in(place)
    actual = _latest(place, context.observed)
    if isinstance(actual, ApiError):
        return _unreadable(place, actual)
    if actual is None:
        if not place.desired:
            return None
        reads_first = context.must_read_first(place) and place.key not in context.observed.single_reads
        return Need(place.key, full=False) if reads_first else _missing(place, context.settings)
    if not stamps.is_managed(actual.header.labels, NAME, context.settings.namespace):
        return _conflict_or_adoption(place, actual, context.observed)
    if actual.header.terminating:
        return _terminating(place, actual)
    return _evaluate_copy(place, actual, context)


def _evaluate_copy(place: Place, actual: ReducedObject, context: Context) -> Finding | Need | None:
    """Evaluate a copy that exists: compare it, block its change to another source, or treat it as an orphan."""
    before = actual.header.annotations.get(stamps.SOURCE, "")
    invalid = _source_of(place.key, actual) in context.invalid_sources
    if not place.desired:
        return _undecided(place, before) if invalid else _orphan(place.key, actual, context)
    if before not in ("", place.desired[0].source):
        if context.observed.failures or invalid:
            return _uncertain(place, before, "not all rules and sources could be read")
        if actual.header.annotations.get(stamps.RULE) in context.mistaken:
            return _uncertain(place, before, "its rule may be mistaken")
    return _compare(place.key, place.desired[0], actual, context.settings)


def _source_of(key: ObjectKey, actual: ReducedObject) -> ObjectKey:
    """Return the source that the stamp of a copy names."""
    namespace, _, name = actual.header.annotations.get(stamps.SOURCE, "").partition("/")
    return ObjectKey(key.kind, name, namespace)


def _latest(place: Place, observed: Observed) -> ReducedObject | ApiError | None:
    """Return the object as it was read last: by a single read if there was one, otherwise in the list."""
    found = observed.single_reads.get(place.key, place.copy)
    return None if isinstance(found, ApiError) and found.status == 404 else found


def _compare(key: ObjectKey, desired: Desired, actual: ReducedObject, settings: Settings) -> Finding | Need | None:
    """Compare a copy with the desired one; from its metadata alone, if that is sufficient."""
    known = actual.content is not None
    current = actual.header.annotations.get(stamps.FINGERPRINT) == desired.annotations[stamps.FINGERPRINT]
    ownership = actual.header.ownership
    if not known and current and (ownership.others or ownership.content != desired.fields):
        return Need(key)  # possible drift: another manager owns a field, or a field was added or removed
    same = same_content(actual.content, desired.content) if actual.content is not None else current
    relabelled = metadata_changes(desired.labels, desired.annotations, actual.header)
    if same and not relabelled:
        return None
    if not known and not same and (ownership.has_immutable or settings.diff):
        return Need(key)
    differing = changes(actual.content, desired.content, secret=desired.resource is SECRETS) if known else ()
    code = "drifted" if current else "outdated"
    reason = _why(desired, actual, differing, relabelled, current=current, same=same)
    others = [change for change in relabelled if "kubechores.dev/" not in change.field]
    shown = (*differing, *(_hidden(change) if desired.resource is SECRETS else change for change in others))
    fix = repair(_manifest(key, desired), actual)
    return Finding(code, Severity.WARNING, key, reason, fix, shown if settings.diff else (), desired.rules)


def _hidden(change: Change) -> Change:
    """Return the change without values: an annotation of a Secret may contain its data."""
    return change._replace(actual=change.actual and HIDDEN, desired=change.desired and HIDDEN)


def _manifest(key: ObjectKey, desired: Desired) -> DataManifest:
    return DataManifest(
        desired.resource, key, desired.labels, desired.annotations, desired.content, source=desired.origin
    )


def _conflict_or_adoption(place: Place, actual: ReducedObject, observed: Observed) -> Finding | Need | None:
    """Evaluate an object that this job does not manage: a conflict, or an adoption if the rule allows it."""
    if not place.desired:
        return None
    desired = place.desired[0]
    if stamps.is_stamped(actual.header.labels):
        return _conflict(place, "is managed by another job or installation of kube-chores: left untouched")
    if not desired.adopts:
        return _conflict(place, "exists and is not managed by kube-chores: left untouched")
    if _is_source(place.key, actual.header, observed):
        return _conflict(place, "exists and cannot be adopted: a rule selects it as a source; left untouched")
    if actual.content is None:
        return Need(place.key)
    why_not = _why_not_adopted(actual.header, actual.content, desired)
    if why_not:
        return _conflict(place, f"exists and cannot be adopted: {why_not}; left untouched")
    fix = Fix(Action.REPLACE, Replacement(_manifest(place.key, desired), actual))
    reason = f"adopted: was not managed by kube-chores; now a copy of {desired.source}"
    return Finding("adopted", Severity.WARNING, place.key, reason, fix, subjects=desired.rules)


def _is_source(key: ObjectKey, actual: Header, observed: Observed) -> bool:
    """Whether a rule selects this object as a source; by its labels, since the list of sources may have failed."""
    return any(
        KINDS[query.rule_type].kind == key.kind
        and query.namespace == key.namespace
        and rule.spec.selector.matches(actual.labels)
        for rule in observed.rules
        for query in rule.queries()
    )


def _why_not_adopted(actual: Header, content: Content | Digested, desired: Desired) -> str:
    """Return why the object cannot be adopted: it has another owner, or adoption needs a delete; empty if it can."""
    if why_never_copied(content.type):
        return f"it is of type {content.type}"
    if any(owner.controller for owner in actual.owners):
        return "it is owned by a controller"
    if other := stamps.other_owner(actual.labels, actual.annotations):
        return f"it is managed by {other}"
    if actual.terminating:
        return "it is being deleted"
    if content.type != desired.content.type:
        return f"its type is {content.type}, the type of the source is {desired.content.type}"
    return "it is immutable" if content.immutable and not same_content(content, desired.content) else ""


def _missing(place: Place, settings: Settings) -> Finding:
    desired = place.desired[0]
    shown = changes(None, desired.content, secret=desired.resource is SECRETS) if settings.diff else ()
    fix = Fix(Action.CREATE, _manifest(place.key, desired))
    reason = sys.intern(f"from {desired.source}")  # a first sweep has thousands of the same reason
    return Finding("missing", Severity.WARNING, place.key, reason, fix, shown, desired.rules)


def _why(
    desired: Desired,
    actual: ReducedObject,
    differing: Sequence[Change],
    relabelled: Sequence[Change],
    *,
    current: bool,
    same: bool,
) -> str:
    source_before = actual.header.annotations.get(stamps.SOURCE)
    if source_before is not None and source_before != desired.source:
        return f"source changed from {source_before} to {desired.source}"
    if not current:
        return sys.intern(f"source {desired.source} {'was recreated' if same else 'changed'}")
    names = [change.field for change in (differing or relabelled)]
    named = ", ".join(names[:_MOST_FIELDS_NAMED]) + (
        f" and {len(names) - _MOST_FIELDS_NAMED} more" * (len(names) > _MOST_FIELDS_NAMED)
    )
    by = ", ".join(actual.header.ownership.others) if differing else ""
    return f"{named} changed" + (f" by {by}" if by else "")


def _collision(place: Place) -> Finding:
    sources = " and ".join(desired.source for desired in place.desired)
    reason = f"sources {sources} have the same target, so none of them is copied; narrow the targets of one rule"
    return Finding("collision", Severity.ERROR, place.key, reason, subjects=place.rules, exit_code=ExitCode.REFUSED)


def _conflict(place: Place, reason: str) -> Finding:
    return Finding("conflict", Severity.WARNING, place.key, reason, subjects=place.rules)


def _orphan(key: ObjectKey, actual: ReducedObject, context: Context) -> Finding:
    """Evaluate a copy that no rule requires: by spec.orphans of its rule, or by the stamp if the rule was deleted."""
    rule = actual.header.annotations.get(stamps.RULE, "an unknown rule")
    source = actual.header.annotations.get(stamps.SOURCE, "an unknown source")
    subjects = (rule.rpartition("/")[2],)
    opted_out = key.namespace in context.opted_out
    cause = "its namespace opted out" if opted_out else "no rule requires this copy"
    why = f"{cause}; it was created for {rule} from {source}"
    if context.orphans.get(rule, actual.header.annotations.get(stamps.ORPHANS)) != "Delete":
        return Finding("retained", Severity.INFO, key, why, subjects=subjects)
    fix = Fix(Action.DELETE, Deletion(actual.uid, actual.resource_version))
    # The brake counts by code. With a separate code, opt-outs of many tenants do not block other deletions.
    found = Finding("opted-out" if opted_out else "orphan", Severity.WARNING, key, why, fix, subjects=subjects)
    rule_in_doubt = context.rule_in_doubt(key, actual)
    return blocked(found, rule_in_doubt) if rule_in_doubt else found


def _terminating(place: Place, actual: ReducedObject) -> Finding:
    """Return the finding of a copy that is being deleted and still exists: pods continue to use its content."""
    reason = "is being deleted, but a finalizer keeps it, with its old content; see its metadata.finalizers"
    if place.desired:
        return Finding("terminating", Severity.WARNING, place.key, reason, subjects=place.rules)
    rule = actual.header.annotations.get(stamps.RULE, "").rpartition("/")[2]
    return Finding("orphan", Severity.WARNING, place.key, reason, subjects=(rule,))


def _unreadable(place: Place, error: ApiError) -> Finding:
    return Finding(
        "unreadable", error.severity, place.key, error.message, subjects=place.rules, exit_code=error.exit_code
    )


def _undecided(place: Place, before: str) -> Finding:
    reason = f"no rule requires this copy, but it is not deleted: its source {before} cannot be decoded"
    return Finding("unreadable", Severity.WARNING, place.key, reason)


def _uncertain(place: Place, before: str, why: str) -> Finding:
    """Return the finding of a copy of another source, which may still be desired."""
    now = place.desired[0].source
    reason = f"stays a copy of {before}, and does not become a copy of {now}: {why}"
    return Finding("unreadable", Severity.WARNING, place.key, reason, subjects=place.rules)


def _not_opted_in(place: Place) -> Finding:
    reason = (
        f"left untouched: namespace {place.key.namespace} did not opt in;"
        ' annotate it with kubechores.dev/copies: "true", or remove it from the rule'
    )
    return Finding(
        "not-opted-in", Severity.WARNING, place.key, reason, subjects=place.rules, exit_code=ExitCode.REFUSED
    )


def unchanged(place: Place) -> Finding:
    """Return the finding of a place that is as desired; shown with -v."""
    desired = place.desired[0]
    return Finding("unchanged", Severity.INFO, place.key, f"from {desired.source}", subjects=desired.rules)
