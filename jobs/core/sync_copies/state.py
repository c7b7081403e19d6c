"""The state of a place: what rules require there, and what is there. These two decide what a run does. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from typing import Literal, NamedTuple

from jobs.core.sync_copies.desired import Candidates, Desired, Place, candidates, targets_of_rules
from jobs.core.sync_copies.kinds import BY_NAME
from jobs.core.sync_copies.mistakes import Mistake, mistakes
from jobs.core.sync_copies.observed import NAME, Observed, Settings
from jobs.core.sync_copies.rules import Rule
from jobs.kit.data.contents import same_content
from jobs.kit.data.manifests import metadata_diff
from jobs.kit.data.objects import ReducedObject
from jobs.kit.values import stamps
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import DryRun, ObjectKey
from jobs.kit.values.resources import RULES

# The words of the table in docs/sync-copies.md#decisions, and of the match in evaluate.py.
Required = Literal["one copy", "no copy", "several copies", "a copy, not opted in", "a copy of a reserved name"]
Found = Literal[
    "an equal copy",
    "an older copy",
    "an edited copy",
    "a copy in doubt",
    "a copy of a source in another namespace",
    "a terminating copy",
    "an object to adopt",
    "another object",
    "nothing",
    "a place to read first",
    "an orphan",
    "an opted-out orphan",
    "an orphan to retain",
    "an orphan of a mistaken rule",
    "a copy of a refused source",
    "an unreadable object",
]


def required(place: Place, context: Context) -> Required:
    """Return what rules require at a place."""
    if not place.desired:
        return "no copy"
    kind = BY_NAME[place.key.kind]
    if place.key.name in kind.readers or kind.why_no_name(place.key.name):
        return "a copy of a reserved name"
    if len(place.desired) > 1:
        return "several copies"
    return "a copy, not opted in" if place.key.namespace in context.closed else "one copy"


def found(place: Place, context: Context) -> Found:
    """Return what is at a place; of several desired copies, compare with the first."""
    actual, observed, settings = place.found, context.observed, context.settings
    if isinstance(actual, ApiError):
        return "an unreadable object"
    if actual is None:
        if not place.desired or place.key in observed.single_reads:
            return "nothing"
        # An earlier run found a conflict there, or may have found one.
        had_conflict = place.key in context.known_conflicts or not context.truncated_rules.isdisjoint(place.rules)
        return "a place to read first" if had_conflict or settings.run.dry_run is not DryRun.NONE else "nothing"
    if not stamps.is_managed(actual.header.labels, NAME, settings.namespace, observed.hub):
        return _another_object(place, observed)
    if actual.header.terminating:
        return "a terminating copy"
    return _compared(place, actual, context) if place.desired else _unrequired(place, context)


def _another_object(place: Place, observed: Observed) -> Found:
    if not place.desired or why_not_adopted(place, observed):
        return "another object"
    return "a place to read first" if place.actual.content is None else "an object to adopt"


def _compared(place: Place, actual: ReducedObject, context: Context) -> Found:
    """Compare a copy with the desired one; from its metadata alone, if that is sufficient."""
    desired, header = place.desired[0], actual.header
    if header.annotations.get(stamps.SOURCE, "") not in ("", desired.source):
        if context.why_uncertain(place):
            return "a copy in doubt"
        # Who can delete a source, or create one, would otherwise decide which one all copies have.
        old, rule = place.stamped_source.namespace, context.rules.get(place.stamped_rule)
        is_own = old == desired.origin.namespace or desired.origin.kind == RULES.kind
        is_confirmed = context.settings.max_deletes is not None or is_own
        if rule and old in rule.source_namespaces and not is_confirmed:
            return "a copy of a source in another namespace"
    current = header.annotations.get(stamps.FINGERPRINT) == desired.annotations[stamps.FINGERPRINT]
    # The content may have drifted if another manager owns a field, or a field was added or removed.
    is_suspect = bool(header.ownership.others) or header.ownership.content not in desired.field_sets
    if actual.content is None and current and is_suspect:
        return "a place to read first"
    same = current if actual.content is None else same_content(actual.content, desired.content)
    if same and not metadata_diff(desired.labels, desired.annotations, header):
        return "an equal copy"
    if actual.content is None and not same and (header.ownership.has_immutable or context.settings.run.diff):
        return "a place to read first"
    return "an edited copy" if current else "an older copy"


def _unrequired(place: Place, context: Context) -> Found:
    rule = context.rules.get(place.stamped_rule)
    if (place.stamped_source, "unreadable") in context.left:
        return "a copy in doubt"
    if context.is_of_refused_source(place):
        return "a copy of a refused source"
    # By its stamp, if its rule was deleted.
    otherwise = context.observed.orphans.get(place.stamped_rule, place.annotations.get(stamps.ORPHANS))
    if (rule.spec.orphans if rule else otherwise) != "Delete":
        return "an orphan to retain"
    if place.key.namespace in context.opted_out:
        return "an opted-out orphan"
    return "an orphan of a mistaken rule" if context.rule_in_doubt(place) else "an orphan"


def why_not_adopted(place: Place, observed: Observed) -> str:
    """Return why an object that this job does not manage stays as it is; empty if it is adopted.

    Without its content, the reason may still be unknown.
    """
    actual, desired = place.actual, place.desired[0]
    if stamps.is_stamped(actual.header.labels):
        return "is managed by another job or installation of kube-chores: left untouched"
    if not desired.adopts:
        return "exists and is not managed by kube-chores: left untouched"
    # By its labels: the list of sources may have failed.
    if any(rule.selects(place.key, actual.header.labels) for rule in observed.rules):
        why = "a rule selects it as a source"
    else:
        why = _obstacle(actual, desired) if actual.content is not None else ""
    return f"exists and cannot be adopted: {why}; left untouched" if why else ""


def _obstacle(actual: ReducedObject, desired: Desired) -> str:
    """Return why the object cannot be adopted: it has another owner, or adoption needs a delete; empty if it can."""
    header, before, after = actual.header, actual.content, desired.content
    assert before is not None
    if why := desired.kind.why_no_content(before, header.labels):
        return why
    if any(owner.controller for owner in header.owners):
        return "it is owned by a controller"
    if other := stamps.other_owner(header.labels, header.annotations):
        return f"it is managed by {other}"
    if header.terminating:
        return "it is being deleted"
    if before.fixed != after.fixed:
        field, shown, unset = desired.kind.layout.fixed, desired.kind.shown_fixed, "not set"
        now, then = (shown(each.fixed) if each.fixed else unset for each in (before, after))
        return f"its {field} is {now}, the {field} of the source is {then}"
    return "it is immutable" if before.immutable and not same_content(before, after) else ""


class Context(NamedTuple):
    """What is the same for all places.

    `found` are the sources of rules, `targets` their namespaces, and `mistakes` rules that may be mistaken, by name.
    `rules` are by NAMESPACE/NAME. `known_conflicts` are places where the status of a rule reports an object that
    kube-chores does not manage, and `truncated_rules` have more conflicts than their status lists. `opted_out` are
    namespaces that opted out, and `closed` kube-* namespaces that did not opt in. `left` are the names of the rules
    that select a source which is not copied, by source and code.
    """

    observed: Observed
    settings: Settings
    found: Candidates
    targets: Mapping[str, Sequence[str]]
    mistakes: Mapping[str, Mistake]
    rules: Mapping[str, Rule]
    known_conflicts: Set[ObjectKey]
    truncated_rules: Set[str]
    opted_out: Set[str]
    closed: Set[str]
    left: Mapping[tuple[ObjectKey, str], Collection[str]]

    def mistake(self, rule: str) -> Mistake | None:
        """Return why the rule, NAMESPACE/NAME, may be mistaken. With `max_deletes`, none is: a person confirms that."""
        found = self.rules.get(rule) if self.settings.max_deletes is None else None
        return self.mistakes.get(found.name) if found else None

    def why_uncertain(self, place: Place) -> str:
        """Return why a copy of another source may still be desired; empty if it is not."""
        if self.observed.failures or (place.stamped_source, "unreadable") in self.left:
            return "not all rules and sources could be read"
        if self.is_of_refused_source(place):
            return "a rule requires it, and refuses its source"
        return "its rule may be mistaken" if self.mistake(place.stamped_rule) else ""

    def is_of_refused_source(self, place: Place) -> bool:
        """Whether this copy stays, since its source exists and cannot be copied as its rule, or another one, requires.

        A namespace that opted out gets none, whatever the source becomes.
        """
        if place.key.namespace in self.opted_out:
            return False
        source, at = place.stamped_source, place.key
        rules = [self.rules[f"{self.settings.namespace}/{each}"] for each in self.left.get((source, "refused"), ())]
        return any(
            place.stamped_rule == each.stamp
            or ((each.spec.target_name or source.name) == at.name and at.namespace in self.targets[each.name])
            for each in rules
        )

    def rule_in_doubt(self, place: Place) -> str:
        """Return the rule that may be mistaken and blocks the deletion of this orphan; empty if none does.

        It is the rule that the copy was created for. If that was deleted: a mistaken rule that may select the copy.
        """
        if self.settings.max_deletes is not None or (place.stamped_source, "skipped") in self.left:
            return ""
        if place.stamped_rule in self.rules:
            mistake = self.mistake(place.stamped_rule)
            return mistake.rule.name if mistake and mistake.concerns(place.stamped_source.namespace) else ""
        source = place.annotations.get(stamps.SOURCE, "")
        return next((name for name, each in self.mistakes.items() if each.may_select(place.key, source)), "")


def context(observed: Observed, settings: Settings) -> Context:
    """Return the context of all places."""
    found, targets = candidates(observed, settings), targets_of_rules(observed.rules, observed.namespaces)
    left: dict[tuple[ObjectKey, str], set[str]] = {}
    merging = {rule.name: rule.head.key for rule in observed.rules if rule.spec.merge}
    for each in found.findings:
        left.setdefault((each.object, each.code), set()).update(each.subjects)
        for name in each.subjects if each.code in ("refused", "unreadable") else ():
            if origin := merging.get(name):
                left.setdefault((origin, each.code), set()).add(name)
    known_conflicts, truncated_rules = set[ObjectKey](), set[str]()
    for rule in observed.rules:
        status = rule.status
        known_conflicts |= {ObjectKey(rule.copy_kind.name, each.name, each.namespace) for each in status.conflicts}
        if (status.conflict_count or 0) > len(status.conflicts):
            truncated_rules.add(rule.name)
    return Context(
        observed,
        settings,
        found,
        targets,
        mistakes(observed, found, targets),
        {rule.stamp: rule for rule in observed.rules},
        known_conflicts,
        truncated_rules,
        {namespace.name for namespace in observed.namespaces if namespace.opted_out},
        {namespace.name for namespace in observed.namespaces if namespace.is_closed},
        left,
    )
