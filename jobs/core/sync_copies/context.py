"""What a run derives once from rules and namespaces, and uses to decide about each place. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jobs.core.sync_copies.desired import Place
from jobs.core.sync_copies.kinds import KINDS
from jobs.core.sync_copies.mistakes import Mistake
from jobs.core.sync_copies.observed import Observed, Settings
from jobs.core.sync_copies.rules import Rule, RuleStatus
from jobs.kit.values import stamps
from jobs.kit.values.model import Finding, ObjectKey


class Refused(NamedTuple):
    """A rule that requires copies of a source which cannot be copied so.

    `rule` is NAMESPACE/NAME. `name` and `targets` are the name and the namespaces that its copies would have.
    """

    rule: str
    name: str
    targets: frozenset[str]


class Context(NamedTuple):
    """What is the same for all places.

    `rules` are by NAMESPACE/NAME, and so are `mistaken`, those that may be mistaken. `known_conflicts` are places where
    the status of a rule reports an object that kube-chores does not manage. `truncated_rules` are rules with more
    conflicts than their status lists. `opted_out` are namespaces that opted out, and `closed` kube-* namespaces that
    did not opt in. `refused` are sources that are not copied as their rule requires, with the rules and their targets.
    """

    observed: Observed
    settings: Settings
    rules: Mapping[str, Rule]
    mistaken: Mapping[str, Mistake]
    known_conflicts: frozenset[ObjectKey]
    truncated_rules: frozenset[str]
    opted_out: frozenset[str]
    closed: frozenset[str]
    invalid_sources: frozenset[ObjectKey]
    never_copied: frozenset[ObjectKey]
    refused: Mapping[ObjectKey, Sequence[Refused]]

    def moves(self, place: Place) -> bool:
        """Whether the desired copy is of a source in another namespace, although the rule still names the old one.

        Who can delete a source, or create one, would otherwise decide which one all copies have.
        """
        old, rule = place.stamped_source.namespace, self.rules.get(place.stamped_rule)
        return rule is not None and old != place.desired[0].origin.namespace and old in rule.source_namespaces

    def had_conflict(self, place: Place) -> bool:
        """Whether an earlier run found a conflict there, or may have found one."""
        return place.key in self.known_conflicts or not self.truncated_rules.isdisjoint(place.rules)

    def is_retained(self, place: Place) -> bool:
        """Whether this orphan stays: by spec.orphans of its rule, or by its stamp if the rule was deleted."""
        rule = self.rules.get(place.stamped_rule)
        orphans = rule.spec.orphans if rule else place.actual.header.annotations.get(stamps.ORPHANS)
        return orphans != "Delete"

    def why_uncertain(self, place: Place) -> str:
        """Return why a copy of another source may still be desired; empty if it is not."""
        if self.observed.failures or place.stamped_source in self.invalid_sources:
            return "not all rules and sources could be read"
        if self.is_of_refused_source(place):
            return "a rule requires it, and refuses its source"
        return "its rule may be mistaken" if place.stamped_rule in self.mistaken else ""

    def is_of_refused_source(self, place: Place) -> bool:
        """Whether this copy stays, since its source exists and cannot be copied as its rule, or another one, requires.

        A namespace that opted out gets none, whatever the source becomes.
        """
        if place.key.namespace in self.opted_out:
            return False
        return any(
            each.rule == place.stamped_rule or (each.name == place.key.name and place.key.namespace in each.targets)
            for each in self.refused.get(place.stamped_source, ())
        )

    def rule_in_doubt(self, place: Place) -> str:
        """Return the rule that may be mistaken and blocks the deletion of this orphan; empty if none does.

        It is the rule that the copy was created for. If that was deleted: a mistaken rule that may select the copy.
        """
        if not self.mistaken or place.stamped_source in self.never_copied:
            return ""
        if (rule := place.stamped_rule) in self.rules:
            mistake = self.mistaken.get(rule)
            return mistake.rule.name if mistake and mistake.concerns(place.stamped_source.namespace) else ""
        source = place.actual.header.annotations.get(stamps.SOURCE, "")
        return next((each.rule.name for each in self.mistaken.values() if each.may_select(place.key, source)), "")


def context(
    observed: Observed,
    settings: Settings,
    skipped: Sequence[Finding],
    mistaken: Mapping[str, Mistake],
    targets: Mapping[str, Sequence[str]],
) -> Context:
    """Return the context of all places; `skipped` are findings of sources that are not copied.

    `targets` are the target namespaces by rule.

    A run with `max_deletes` also deletes copies of rules that may be mistaken.
    """
    rules = {f"{each.namespace}/{each.name}": each for each in observed.rules}
    known_conflicts, truncated_rules = set(), set()
    for rule in observed.rules:
        status = rule.head.status_as(RuleStatus)
        kind = KINDS[rule.spec.rule_type].name
        known_conflicts |= {ObjectKey(kind, conflict.name, conflict.namespace) for conflict in status.conflicts}
        if (status.conflict_count or 0) > len(status.conflicts):
            truncated_rules.add(rule.name)
    refused: dict[ObjectKey, list[Refused]] = {}
    for each in skipped:
        for subject in each.subjects if each.code == "refused" else ():
            rule = rules[name := f"{settings.namespace}/{subject}"]
            copies = Refused(name, rule.spec.target_name or each.object.name, frozenset(targets[subject]))
            refused.setdefault(each.object, []).append(copies)
    return Context(
        observed,
        settings,
        rules,
        {f"{settings.namespace}/{name}": each for name, each in sorted(mistaken.items())}
        if settings.max_deletes is None
        else {},
        frozenset(known_conflicts),
        frozenset(truncated_rules),
        frozenset(namespace.name for namespace in observed.namespaces if namespace.opted_out),
        frozenset(namespace.name for namespace in observed.namespaces if namespace.is_closed),
        frozenset(each.object for each in skipped if each.code == "unreadable"),
        frozenset(each.object for each in skipped if each.code == "skipped"),
        refused,
    )
