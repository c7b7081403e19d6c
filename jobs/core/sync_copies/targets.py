"""Target namespaces: which namespaces a rule targets, for all rules of a run, and why one namespace is none. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache

import msgspec
from msgspec import structs

from jobs.core.sync_copies.observed import OPT_IN, Namespace
from jobs.core.sync_copies.rules import Rule, Targets
from jobs.core.sync_copies.selectors import LabelSelector, glob_matcher, is_glob, names_matching
from jobs.kit.values.decoding import decode
from jobs.kit.values.text import listed


def targets_of_rules(rules: Iterable[Rule], namespaces: Iterable[Namespace]) -> Mapping[str, Sequence[str]]:
    """Return the target namespaces by rule, sorted; rules with the same targets share one list.

    Each distinct glob and selector is compared with all namespaces only once. The result for a namespace is that of
    `why_no_target`, which also has the reason.
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


def why_no_target(targets: Targets, namespace: Namespace) -> tuple[str, str] | None:
    """Return the code and the text of the first reason why a namespace is not a target; None if it is one."""
    name = namespace.name
    if not namespace.active:
        return "terminating", f"namespace {name} is terminating"
    if namespace.opted_out:
        why = f'namespace {name} opted out by annotation {OPT_IN}: "{namespace.invalid_choice or "false"}"'
        otherwise = why_no_target(targets, structs.replace(namespace, opted_out=False))
        return "opted-out", f"{why}, and {otherwise[1]}" if otherwise else f"{why}; remove it to get copies"
    if terms := targets.namespace_selector.mismatches(namespace.labels):
        why = f"namespaceSelector does not match {name}: {listed(terms)}"
    elif namespace.is_system and name not in targets.include:
        why = f"include does not list {name}; no glob selects a kube-* namespace"
    elif not glob_matcher(targets.include).fullmatch(name):
        why = f"include does not match {name}: it is {listed(targets.include)}"
    elif excluded := [each for each in targets.exclude if glob_matcher([each]).fullmatch(name)]:
        why = f"exclude matches {name}: {excluded[0]}"
    else:
        return None
    return "not-a-target", f"spec.targets.{why}"
