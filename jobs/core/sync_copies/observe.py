"""Read what sync-copies compares: copies, rules, namespaces and sources."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import partial

from jobs.core.sync_copies.observed import KINDS, NAME, OPT_IN, Copies, Namespace, Observed, Settings
from jobs.core.sync_copies.rules import Rule, SourceQuery, parse_rule, used_keys
from jobs.kit.api.cluster import Cluster, complete, retry_if_expired
from jobs.kit.api.custom_resources import from_cluster
from jobs.kit.data.objects import DataObject, ObjectReducer, ReducedObject
from jobs.kit.values import stamps
from jobs.kit.values.errors import ApiError, ConfigurationError
from jobs.kit.values.findings import invalid, read_failure, unreadable
from jobs.kit.values.metadata import NamespaceObject, PartialObject, string_map
from jobs.kit.values.model import Finding, ObjectKey, Severity
from jobs.kit.values.reads import Invalid, InvalidObject
from jobs.kit.values.resources import NAMESPACES, RULES

_LONGEST_CHOICE = 40  # of an annotation of a tenant


def observe(cluster: Cluster, settings: Settings) -> Observed:
    """Read copies, then rules, namespaces and sources.

    In this order a copy that an overlapping run creates meanwhile is never an orphan.

    Raises:
        ConfigurationError: the CRD is not installed, or there is no rule with the name in --rule-name.
        ApiError: rules or namespaces cannot be read; without them nothing can be evaluated.
    """
    rules, _ = _rules(cluster, settings)
    copies, denied = _all_copies(cluster, settings, rules)
    rules, invalid_rules = _rules(cluster, settings)
    # The next run handles a rule that was created meanwhile, if copies of its type were not read.
    rules = tuple(rule for rule in rules if rule.spec.rule_type in {*copies, *denied})
    failures = [invalid(each) for each in invalid_rules]
    for rule_type, denial in denied.items():
        failures += _without_copies(rule_type, denial, rules)
    namespaces, undecoded = _namespaces(cluster, rules)
    failures += [_terminating(each) for each in namespaces if each.name == settings.namespace and not each.active]
    reducer = ObjectReducer(used_keys(rules))
    sources: dict[SourceQuery, tuple[ReducedObject | InvalidObject, ...]] = {}
    for query in sorted({query for rule in rules for query in rule.queries() if query.rule_type in copies}):
        try:
            sources[query] = retry_if_expired(partial(_sources, cluster, query, reducer))
        except ApiError as error:
            affected = [rule for rule in rules if query in rule.queries()]
            failures += _unreadable(affected, f"its sources in namespace {query.namespace}", error)
    failures += [unreadable(each.key, each.error) for each in undecoded]
    elsewhere = () if rules or invalid_rules or settings.rules is not None else _rules_elsewhere(cluster)
    return Observed(
        rules, namespaces, sources, copies, invalid_rules, tuple(failures), reducer=reducer, rules_elsewhere=elsewhere
    )


def _all_copies(
    cluster: Cluster, settings: Settings, rules: Sequence[Rule]
) -> tuple[dict[str, Copies], dict[str, ApiError]]:
    """Return the copies by rule type, and the errors of types whose copies could not be read."""
    copies: dict[str, Copies] = {}
    denied: dict[str, ApiError] = {}
    reducer = ObjectReducer(used_keys(rules))
    for rule_type in _types(cluster, settings, rules):
        try:
            copies[rule_type] = retry_if_expired(partial(_copies, cluster, rule_type, settings, reducer))
        except ApiError as error:
            denied[rule_type] = error
    return copies, denied


def _without_copies(rule_type: str, denial: ApiError, rules: Sequence[Rule]) -> list[Finding]:
    """Return the findings of a type whose copies could not be read: one for each rule of the type, or at least one."""
    affected = [rule for rule in rules if rule.spec.rule_type == rule_type]
    if affected:
        return _unreadable(affected, "its copies", denial)
    all_copies = ObjectKey(KINDS[rule_type].kind, "(all copies)")
    return [unreadable(all_copies, denial, subjects=(all_copies.name,))]


def _unreadable(rules: Iterable[Rule], what: str, error: ApiError) -> list[Finding]:
    return [unreadable(each.head.key, error, read_failure(error, what), (each.name,)) for each in rules]


def _types(cluster: Cluster, settings: Settings, rules: Sequence[Rule]) -> list[str]:
    """Return the types whose copies are read: the types of rules, and types whose last rule may have been deleted.

    A type without rules is read only with permission to list it. An access review checks the permission first: an
    installation without rights on Secrets sends no request for Secrets.
    """
    types: set[str] = {rule.spec.rule_type for rule in rules if rule.spec.rule_type in KINDS}
    if settings.rules is None and settings.rule_name is None:
        types |= {each for each in KINDS.keys() - types if cluster.can_i("list", KINDS[each])}
    return sorted(types)


def _rules(cluster: Cluster, settings: Settings) -> tuple[tuple[Rule, ...], tuple[Invalid, ...]]:
    if settings.rules is not None:
        return settings.rules, ()
    rules, invalid_rules = from_cluster(cluster, RULES, parse_rule, settings.namespace)
    names = sorted([*(rule.name for rule in rules), *(each.head.key.name for each in invalid_rules)])
    if settings.rule_name is not None and settings.rule_name not in names:
        listed = ", ".join(names) or "none"
        raise ConfigurationError(
            f"no {RULES.kind} {settings.rule_name!r} in namespace {settings.namespace}; its rules are: {listed}"
        )
    return rules, invalid_rules


def _rules_elsewhere(cluster: Cluster) -> tuple[str, ...]:
    """Return the namespaces with rules; none without permission to list them, which the account of the job lacks."""
    try:
        found, _ = complete(cluster.objects, RULES, PartialObject, lambda each: each.metadata.namespace)
    except ApiError:
        return ()
    return tuple(sorted(set(found)))


def _copies(cluster: Cluster, rule_type: str, settings: Settings, reducer: ObjectReducer) -> Copies:
    selector = stamps.selector(NAME, settings.namespace)
    item: type[DataObject] | type[PartialObject] = DataObject if settings.verify_content else PartialObject
    found: dict[str, dict[str, ReducedObject | ApiError]] = {}
    for each in cluster.objects(
        KINDS[rule_type], item, reducer.reduce, selector=selector, metadata_only=not settings.verify_content
    ):
        if isinstance(each, InvalidObject):
            found.setdefault(each.key.name, {})[each.key.namespace] = each.error
        else:
            found.setdefault(each.name, {})[each.namespace] = each
    return found


def _namespaces(cluster: Cluster, rules: Sequence[Rule]) -> tuple[tuple[Namespace, ...], Sequence[InvalidObject]]:
    """Return the namespaces, with the labels that rules select by, and those that cannot be decoded."""
    used = frozenset(key for rule in rules for key in rule.spec.targets.namespace_selector.label_keys())
    found, invalid = complete(cluster.objects, NAMESPACES, NamespaceObject, partial(_namespace, used))
    return tuple(sorted(found, key=lambda namespace: namespace.name)), invalid


def _namespace(used: frozenset[str], read: NamespaceObject) -> Namespace:
    at = read.metadata
    labels = {key: value for key, value in string_map(at.labels).items() if key in used}
    value = string_map(at.annotations).get(OPT_IN)
    opted_out = (value or "").lower() == "false"
    invalid_choice = None if value in (None, "true", "false") else value[:_LONGEST_CHOICE]
    return Namespace(sys.intern(at.name), labels, read.active, opted_out, value == "true", invalid_choice)


def _sources(cluster: Cluster, query: SourceQuery, reducer: ObjectReducer) -> tuple[ReducedObject | InvalidObject, ...]:
    resource = KINDS[query.rule_type]
    found = cluster.objects(resource, DataObject, reducer.reduce, namespace=query.namespace, selector=query.selector)
    return tuple(sorted(found, key=lambda each: each.key.name if isinstance(each, InvalidObject) else each.name))


def _terminating(namespace: Namespace) -> Finding:
    """Return the finding of the rules' namespace if it is being deleted, as in an uninstall.

    Its rules are deleted with it. Nobody intended to delete their copies, so this finding prevents deletions.
    """
    reason = "is being deleted, and its rules with it; no copy is deleted"
    return Finding("unreadable", Severity.WARNING, ObjectKey("Namespace", namespace.name), reason)
