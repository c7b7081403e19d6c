"""Target namespaces: which namespaces a rule targets, for all rules of a run, and why one namespace is none. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache

import msgspec

from jobs.core.sync_copies.observed import Namespace
from jobs.core.sync_copies.rules import Rule, Targets
from jobs.core.sync_copies.selectors import LabelSelector, glob_matcher, is_glob, names_matching
from jobs.kit.values.decoding import decode


class NoTarget(Enum):
    """Why a namespace is not a target of a rule."""

    TERMINATING = "terminating"
    OPTED_OUT = "opted-out"
    NOT_NAMED = "not named literally"
    NOT_INCLUDED = "not included"
    EXCLUDED = "excluded"
    LABELS = "labels"


def targets_of_rules(rules: Iterable[Rule], namespaces: Iterable[Namespace]) -> Mapping[str, Sequence[str]]:
    """Return the target namespaces by rule, sorted; rules with the same targets share one list.

    Each distinct glob and selector is compared with all namespaces only once. The result for a namespace is that of
    `target_check`, which also has the reason.
    """
    by_name = {each.name: each for each in namespaces if each.active and not each.opted_out}
    names = sorted(by_name)
    not_system = [name for name in names if not by_name[name].is_system]

    @cache
    def matching(pattern: str, with_system: bool) -> Collection[str]:
        if not is_glob(pattern):
            return (by_name[pattern].name,) if pattern in by_name else ()  # the string that all places share
        return names_matching(pattern, names if with_system else not_system)

    @cache
    def labelled(selector: bytes) -> Collection[str]:
        matches = decode(selector, LabelSelector).matches
        return {name for name, each in by_name.items() if matches(each.labels)}

    @cache
    def selected(spec: bytes) -> Sequence[str]:
        targets, found = decode(spec, Targets), set[str]()
        for pattern in targets.include:
            # Only a literal name selects a system namespace, never a glob.
            found.update(matching(pattern, not is_glob(pattern)))
        for pattern in targets.exclude:
            found.difference_update(matching(pattern, True))
        if targets.namespace_selector.label_keys():
            found.intersection_update(labelled(msgspec.json.encode(targets.namespace_selector)))
        return sorted(found)

    return {rule.name: selected(msgspec.json.encode(rule.spec.targets)) for rule in rules}


def target_check(targets: Targets) -> Callable[[Namespace], NoTarget | None]:
    """Return a function that returns the first reason why a namespace is not a target; None if it is one.

    It is for one rule and a few namespaces: `targets_of_rules` returns the same for all.
    """
    included, excluded = (glob_matcher(globs).fullmatch for globs in (targets.include, targets.exclude))
    selector = targets.namespace_selector
    requires_labels = bool(selector.label_keys())

    def first_reason(namespace: Namespace) -> NoTarget | None:
        name = namespace.name
        if not namespace.active:
            return NoTarget.TERMINATING
        if namespace.opted_out:
            return NoTarget.OPTED_OUT
        if requires_labels and not selector.matches(namespace.labels):
            return NoTarget.LABELS
        # Only a literal name selects a system namespace, never a glob.
        if namespace.is_system and name not in targets.include:
            return NoTarget.NOT_NAMED
        if not included(name):
            return NoTarget.NOT_INCLUDED
        return NoTarget.EXCLUDED if excluded(name) else None

    return first_reason
