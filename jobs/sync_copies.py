"""sync-copies: copy labelled ConfigMaps and Secrets to every namespace that a CopyratorRule targets.

The desired copies of all rules are computed first. They are compared with a metadata-only list of the copies that
exist: each copy has a fingerprint of what was written, and its managedFields show whether somebody changed it since.
The parts are in jobs/copies: rules, observed, desired, mistakes, evaluate, status.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

import click

from jobs.copies.desired import Candidate, Place, candidates, places, targets_of_rules
from jobs.copies.evaluate import context, evaluate, unchanged
from jobs.copies.mistakes import Mistake, brake, mistakes
from jobs.copies.observed import KINDS, NAME, Copies, Namespace, Observed, Settings
from jobs.copies.rules import RULES, Rule, SourceQuery, parse_rule, used_keys
from jobs.copies.status import status_updates
from jobs.kit import options, stamps
from jobs.kit.apply import DryRun
from jobs.kit.cluster import Cluster, InvalidObject, retry_if_expired, without_invalid
from jobs.kit.connect import Connection
from jobs.kit.custom_resources import Invalid, from_cluster
from jobs.kit.errors import ApiError, ConfigurationError
from jobs.kit.model import Brake, ExitCode, Finding, Need, ObjectKey, Plan, Severity
from jobs.kit.objects import (
    NAMESPACES,
    DataObject,
    NamespaceObject,
    ObjectReducer,
    PartialObject,
    ReducedObject,
    string_map,
)
from jobs.kit.runner import Job, run

OPT = "kubechores.dev/copies"


def settings(
    connection: Connection,
    run_options: options.RunOptions,
    rule_name: str | None = None,
    filenames: Sequence[str] = (),
    verify: str = "metadata",
    max_deletes: int | None = None,
) -> Settings:
    """Return the settings, with the rules if they come from files.

    Raises:
        ConfigurationError: a rule in the files is not valid; lists all problems of all rules.
    """
    rules = None
    if filenames:
        from jobs.copies.rule_files import rules_from_files

        rules = rules_from_files(filenames, connection.namespace, rule_name)
    return Settings(
        connection.namespace,
        rule_name,
        rules,
        verify_content=verify == "content",
        dry_run=run_options.dry_run is not DryRun.NONE,
        diff=run_options.diff,
        verbose=run_options.verbose,
        max_deletes=max_deletes,
    )


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
    failures = [
        _failure("invalid", each.head.key, "; ".join(each.problems), ExitCode.REFUSED) for each in invalid_rules
    ]
    for rule_type, denial in denied.items():
        failures += _without_copies(rule_type, denial, rules)
    invalid: list[InvalidObject] = []
    namespaces = retry_if_expired(partial(_namespaces, cluster, rules, invalid))
    failures += [_terminating(each) for each in namespaces if each.name == settings.namespace and not each.active]
    reducer = ObjectReducer(used_keys(rules))
    sources: dict[SourceQuery, tuple[ReducedObject | InvalidObject, ...]] = {}
    for query in sorted({query for rule in rules for query in rule.queries() if query.rule_type in copies}):
        try:
            sources[query] = retry_if_expired(partial(_sources, cluster, query, reducer))
        except ApiError as error:
            affected = [rule for rule in rules if query in rule.queries()]
            failures += [_unreadable(rule, f"its sources in namespace {query.namespace}", error) for rule in affected]
    failures += [_undecoded(each) for each in invalid]
    return Observed(rules, namespaces, sources, copies, invalid_rules, tuple(failures), reducer=reducer)


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
        return [_unreadable(rule, "its copies", denial) for rule in affected]
    all_copies = ObjectKey(KINDS[rule_type].kind, "(all copies)")
    return [_failure("unreadable", all_copies, denial.message, denial.exit_code)]


def _types(cluster: Cluster, settings: Settings, rules: Sequence[Rule]) -> list[str]:
    """Return the types whose copies are read: the types of rules, and types whose last rule may have been deleted.

    A type without rules is read only with permission to list it. An access review checks the permission first: an
    installation without rights on Secrets sends no request for Secrets.
    """
    types: set[str] = {rule.spec.rule_type for rule in rules}
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


def _namespaces(cluster: Cluster, rules: Sequence[Rule], invalid: list[InvalidObject]) -> tuple[Namespace, ...]:
    """Return the namespaces, with the labels that rules select by; adds those that cannot be decoded to `invalid`."""
    invalid.clear()  # of an earlier attempt, whose list expired
    used = frozenset(key for rule in rules for key in rule.spec.targets.namespace_selector.label_keys())
    found = without_invalid(cluster.objects(NAMESPACES, NamespaceObject, partial(_namespace, used)), invalid)
    return tuple(sorted(found, key=lambda namespace: namespace.name))


def _namespace(used: frozenset[str], read: NamespaceObject) -> Namespace:
    at = read.metadata
    labels = {key: value for key, value in string_map(at.labels).items() if key in used}
    chosen = string_map(at.annotations).get(OPT, "").lower()
    return Namespace(sys.intern(at.name), labels, read.active, chosen == "false", chosen == "true")


def _sources(cluster: Cluster, query: SourceQuery, reducer: ObjectReducer) -> tuple[ReducedObject | InvalidObject, ...]:
    resource = KINDS[query.rule_type]
    found = cluster.objects(resource, DataObject, reducer.reduce, namespace=query.namespace, selector=query.selector)
    return tuple(sorted(found, key=lambda each: each.key.name if isinstance(each, InvalidObject) else each.name))


def _undecoded(namespace: InvalidObject) -> Finding:
    error = namespace.error
    return Finding("unreadable", error.severity, namespace.key, error.message, exit_code=error.exit_code)


def _unreadable(rule: Rule, what: str, error: ApiError) -> Finding:
    remedy = "; the manifests in cronjobs/ grant the permissions that this job needs" if error.is_permission else ""
    return _failure("unreadable", rule.head.key, f"{what} cannot be read: {error.message}{remedy}", error.exit_code)


def _terminating(namespace: Namespace) -> Finding:
    """Return the finding of the rules' namespace if it is being deleted, as in an uninstall.

    Its rules are deleted with it. Nobody intended to delete their copies, so this finding prevents deletions.
    """
    reason = "is being deleted, and its rules with it; no copy is deleted"
    return Finding("unreadable", Severity.WARNING, ObjectKey("Namespace", namespace.name), reason)


def _failure(code: str, key: ObjectKey, reason: str, exit_code: ExitCode) -> Finding:
    return Finding(code, Severity.ERROR, key, reason, subjects=(key.name,), exit_code=exit_code)


def plan(observed: Observed, settings: Settings, now: datetime) -> Plan:
    """Compare desired and observed copies, place by place; the same input gives the same findings in the same order."""
    selected, skipped = candidates(observed)
    targets = targets_of_rules(observed)
    mistaken = mistakes(observed, selected, targets)
    place_context = context(observed, settings, skipped, mistaken)
    # A run for one rule does not report other rules. But it makes no decision that depends on what could not be read.
    concerned = [f for f in observed.failures if settings.rule_name is None or settings.rule_name in f.subjects]
    mistake_findings = [each.finding() for name, each in mistaken.items() if settings.rule_name in (None, name)]
    findings = [*concerned, *skipped, *mistake_findings]
    needs: list[Need] = []
    unchanged_count = 0
    desired_by_subject: dict[str, int] = {}
    desired_by_kind: Counter[str] = Counter()
    for place in places(observed, selected, targets):
        desired_by_kind[place.key.kind] += bool(place.desired)
        if not _is_in_scope(place, observed, settings):
            continue
        for rule in place.rules:
            desired_by_subject[rule] = desired_by_subject.get(rule, 0) + 1
        result = evaluate(place, place_context)
        if isinstance(result, Need):
            needs.append(result)
        elif result is not None:
            findings.append(result)
        elif place.desired:
            unchanged_count += 1
            findings += [unchanged(place)] if settings.verbose else []
    return Plan(
        tuple(sorted(findings, key=lambda finding: (finding.object, finding.code))),
        unchanged_count,
        tuple(sorted(needs)),
        _facts(observed, selected),
        "" if observed.rules or observed.failures else f"no {RULES.kind} in namespace {settings.namespace}",
        desired_by_kind=desired_by_kind,
        desired_by_subject=desired_by_subject,
        brakes=_brakes(findings, mistaken),
    )


def _brakes(findings: Sequence[Finding], mistaken: Mapping[str, Mistake]) -> tuple[Brake, ...]:
    """Return the brake for copies of rules that may be mistaken, if it blocks a deletion."""
    orphans = [each for each in findings if each.code == "orphan" and (each.fix or each.exit_code is ExitCode.BRAKE)]
    blocked = Counter(each.subjects[0] for each in orphans if each.exit_code is ExitCode.BRAKE)
    most = max(Counter(each.object.kind for each in orphans).values(), default=0)
    return (brake(mistaken, blocked, most),) if blocked else ()


def _is_in_scope(place: Place, observed: Observed, settings: Settings) -> bool:
    """Whether this run evaluates the place. Only a run that could read everything evaluates possible orphans."""
    if not place.desired:
        return settings.rules is None and settings.rule_name is None and not observed.failures
    return settings.rule_name is None or any(settings.rule_name in desired.rules for desired in place.desired)


def _facts(observed: Observed, selected: Mapping[tuple[str, str], Sequence[Candidate]]) -> Mapping[str, int]:
    sources = {(rule_type, c.source.uid) for (rule_type, _), group in selected.items() for c in group}
    active = sum(1 for namespace in observed.namespaces if namespace.active)
    return {"rules": len(observed.rules), "sources": len(sources), "namespaces": active}


@click.command(NAME)
@options.option(
    "--rule-name", env=("RULE_NAME",), metavar="NAME", help="Apply only this rule; the others are still read."
)
@options.option(
    "--filename",
    "-f",
    "filenames",
    multiple=True,
    metavar="FILE",
    help="Read rules from this file, folder or - (stdin) instead of the cluster. Implies a dry run, which shows no "
    "deletions. Needs no CRD.",
)
@options.option(
    "--verify",
    default="metadata",
    show_default=True,
    type=click.Choice(["metadata", "content"]),
    help="How to compare copies: by fingerprint and managedFields (metadata), or by reading all of them (content).",
)
@options.max_deletes("orphaned copies of a kind", " If set, also deletes copies of rules that may be mistaken.")
@options.run_options("Namespace of the rules. Default is the pod's own namespace, or the context's.")
@click.pass_context
def command(
    context: click.Context,
    options: options.RunOptions,
    rule_name: str | None,
    filenames: tuple[str, ...],
    verify: str,
    max_deletes: int | None,
) -> None:
    """Copy Secrets and ConfigMaps as CopyratorRules define.

    Creates missing copies, repairs changed copies, and deletes copies that no rule requires. Objects that are not
    managed by kube-chores stay untouched. A second run in a row writes nothing. Exits 0 when done, 1 when a retry is
    useful, 2 when a person must act first, 3 with --check when there are findings, 4 when the deletion brake or a rule
    that may be mistaken blocked deletions.

    \b
    Examples:
      chores sync-copies --dry-run --diff            show what would change, and how
      chores sync-copies -n kube-chores              apply the rules of that namespace
      chores sync-copies -f rules.yaml -o json       try rules before you apply them
    """
    if filenames and options.dry_run is DryRun.NONE:
        options = replace(options, dry_run=DryRun.CLIENT)
    job = Job(
        NAME,
        {**{resource.kind: resource for resource in KINDS.values()}, RULES.kind: RULES},
        lambda connection: settings(connection, options, rule_name, filenames, verify, max_deletes),
        observe,
        plan,
        status_updates,
        max_deletes,
        needs_namespace=not filenames,
    )
    context.exit(run(job, options))
