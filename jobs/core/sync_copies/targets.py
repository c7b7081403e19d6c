"""Target namespaces: which namespaces a rule targets, for all rules of a run, and why one namespace is none. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum

import msgspec

from jobs.core.sync_copies.observed import Namespace
from jobs.core.sync_copies.rules import Rule, Targets
from jobs.core.sync_copies.selectors import LabelSelector, glob_matcher, is_glob, names_matching


class NoTarget(Enum):
    """Why a namespace is not a target of a rule."""

    TERMINATING = "terminating"
    OPTED_OUT = "opted-out"
    NOT_NAMED = "not named literally"
    NOT_INCLUDED = "not included"
    EXCLUDED = "excluded"
    LABELS = "labels"


def targets_of_rules(rules: Iterable[Rule], namespaces: Iterable[Namespace]) -> Mapping[str, Sequence[str]]:
    """Return the target namespaces by rule, sorted; rules with the same targets share one list."""
    candidates = _Candidates(namespaces)
    by_spec: dict[bytes, Sequence[str]] = {}
    found: dict[str, Sequence[str]] = {}
    for rule in rules:
        spec = msgspec.json.encode(rule.spec.targets)
        if spec not in by_spec:
            by_spec[spec] = sorted(candidates.selected(rule.spec.targets))
        found[rule.name] = by_spec[spec]
    return found


class _Candidates:
    """The namespaces that may be targets. Each distinct glob and selector is compared with all of them only once.

    The result for a namespace is that of `target_check`, which also has the reason.
    """

    def __init__(self, namespaces: Iterable[Namespace]) -> None:
        self._by_name = {each.name: each for each in namespaces if each.active and not each.opted_out}
        self._names = sorted(self._by_name)
        self._not_system = [name for name in self._names if not self._by_name[name].is_system]
        self._by_pattern: dict[tuple[str, bool], frozenset[str]] = {}
        self._by_selector: dict[bytes, frozenset[str]] = {}

    def selected(self, targets: Targets) -> set[str]:
        """Return the names of the namespaces that are targets."""
        found: set[str] = set()
        for pattern in targets.include:
            # Only a literal name selects a system namespace, never a glob.
            found |= self._matching(pattern, with_system=not is_glob(pattern))
        for pattern in targets.exclude:
            found -= self._matching(pattern, with_system=True)
        if targets.namespace_selector.label_keys():
            found &= self._labelled(targets.namespace_selector)
        return found

    def _matching(self, pattern: str, *, with_system: bool) -> frozenset[str]:
        if not is_glob(pattern):
            return frozenset({pattern} & self._by_name.keys())
        key = pattern, with_system
        if key not in self._by_pattern:
            names = self._names if with_system else self._not_system
            self._by_pattern[key] = frozenset(names_matching(pattern, names))
        return self._by_pattern[key]

    def _labelled(self, selector: LabelSelector) -> frozenset[str]:
        key = msgspec.json.encode(selector)
        if key not in self._by_selector:
            found = (name for name, each in self._by_name.items() if selector.matches(each.labels))
            self._by_selector[key] = frozenset(found)
        return self._by_selector[key]


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
