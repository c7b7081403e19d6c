"""sync-copies: labelled ConfigMaps and Secrets, copied to every namespace that a CopyratorRule names.

Desired copies are worked out over all rules and compared with what a metadata-only list shows of the copies that
exist: each carries a fingerprint of what was written, and managedFields tell whether somebody changed it since.
The parts are in jobs/copies: rules, seen, desired, mistakes, verdicts, status.
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
    """Return the settings.

    Raises:
        ConfigurationError: with all problems of all rules in files.
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
    """Read copies, then rules, namespaces, sources: what an overlapping run copies meanwhile is never an orphan then.

    Raises:
        ConfigurationError: the CRD is missing, or the rule that is asked for.
        ApiError: rules or namespaces cannot be read, without which nothing can be said.
    """
    rules, _ = _rules(cluster, settings)
    copies, denied = _all_copies(cluster, settings, rules)
    rules, invalid_rules = _rules(cluster, settings)
    # A rule that came meanwhile, of a type that was not looked at, waits for the next run.
    rules = tuple(rule for rule in rules if rule.spec.rule_type in {*copies, *denied})
    failures = [
        _failure("invalid", each.head.key, "; ".join(each.problems), ExitCode.REFUSED) for each in invalid_rules
    ]
    for rule_type, denial in denied.items():
        failures += _without_copies(rule_type, denial, rules)
    invalid: list[InvalidObject] = []
    namespaces = retry_if_expired(partial(_namespaces, cluster, rules, invalid))
    failures += [_going(each) for each in namespaces if each.name == settings.namespace and not each.active]
    reducer = ObjectReducer(used_keys(rules))
    sources: dict[SourceQuery, tuple[ReducedObject | InvalidObject, ...]] = {}
    for query in sorted({query for rule in rules for query in rule.queries() if query.rule_type in copies}):
        try:
            sources[query] = retry_if_expired(partial(_sources, cluster, query, reducer))
        except ApiError as error:
            asking = [rule for rule in rules if query in rule.queries()]
            failures += [_unreadable(rule, f"its sources in namespace {query.namespace}", error) for rule in asking]
    failures += [_undecoded(each) for each in invalid]
    return Observed(rules, namespaces, sources, copies, invalid_rules, tuple(failures), reducer=reducer)


def _all_copies(
    cluster: Cluster, settings: Settings, rules: Sequence[Rule]
) -> tuple[dict[str, Copies], dict[str, ApiError]]:
    """Return the copies by type, and apart why those of a type could not be read."""
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
    """Return what to say where the copies of a type could not be read: to each rule that waits for them, or at all."""
    waiting = [rule for rule in rules if rule.spec.rule_type == rule_type]
    if waiting:
        return [_unreadable(rule, "its copies", denial) for rule in waiting]
    all_copies = ObjectKey(KINDS[rule_type].kind, "(all copies)")
    return [_failure("unreadable", all_copies, denial.message, denial.exit_code)]


def _types(cluster: Cluster, settings: Settings, rules: Sequence[Rule]) -> list[str]:
    """Return the types whose copies are looked at: those of rules, and those that the last rule may have left behind.

    A type without rules is looked at only where the rights allow it, and what they allow is asked without trying: an
    installation that has no rights on Secrets sends no request about them.
    """
    desired_by_kind: set[str] = {rule.spec.rule_type for rule in rules}
    if settings.rules is None and settings.rule_name is None:
        desired_by_kind |= {each for each in KINDS.keys() - desired_by_kind if cluster.can_i("list", KINDS[each])}
    return sorted(desired_by_kind)


def _rules(cluster: Cluster, settings: Settings) -> tuple[tuple[Rule, ...], tuple[Invalid, ...]]:
    if settings.rules is not None:
        return settings.rules, ()
    rules, invalid_rules = from_cluster(cluster, RULES, parse_rule, settings.namespace)
    names = sorted([*(rule.name for rule in rules), *(each.head.key.name for each in invalid_rules)])
    if settings.rule_name is not None and settings.rule_name not in names:
        listed = ", ".join(names) or "none"
        raise ConfigurationError(
            f"no {RULES.kind} {settings.rule_name!r} in namespace {settings.namespace}; it has {listed}"
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
    """Return the namespaces with the labels that rules look at; `invalid` is given those that cannot be decoded."""
    invalid.clear()  # what a list that expired half-way had found
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
    remedy = "; the manifests in cronjobs/ hold the rights that this job needs" if error.is_permission else ""
    return _failure("unreadable", rule.head.key, f"{what} cannot be read: {error.message}{remedy}", error.exit_code)


def _going(namespace: Namespace) -> Finding:
    """Return what to say where the rules go with their namespace, as in an uninstall: nobody wanted less copies."""
    reason = "is being deleted and its rules with it, which says nothing of copies"
    return Finding("unreadable", Severity.WARNING, ObjectKey("Namespace", namespace.name), reason)


def _failure(code: str, key: ObjectKey, reason: str, exit_code: ExitCode) -> Finding:
    return Finding(code, Severity.ERROR, key, reason, subjects=(key.name,), exit_code=exit_code)


def plan(observed: Observed, settings: Settings, now: datetime) -> Plan:
    """Compare desired and actual copies, place by place: the same input gives the same findings in the same order."""
    desired_by_kind, skipped = candidates(observed)
    targets = targets_of_rules(observed)
    mistaken = mistakes(observed, desired_by_kind, targets)
    judged_by = context(observed, settings, skipped, mistaken)
    # A run for one rule says nothing of others, but decides nothing either that hangs on what could not be read.
    concerned = [f for f in observed.failures if settings.rule_name is None or settings.rule_name in f.subjects]
    told = [each.finding() for name, each in mistaken.items() if settings.rule_name in (None, name)]
    findings = [*concerned, *skipped, *told]
    needs: list[Need] = []
    right = 0
    asked: dict[str, int] = {}
    in_all: Counter[str] = Counter()
    for place in places(observed, desired_by_kind, targets):
        in_all[place.key.kind] += bool(place.desired)
        if not _is_asked_for(place, observed, settings):
            continue
        for rule in place.rules:
            asked[rule] = asked.get(rule, 0) + 1
        verdict = evaluate(place, judged_by)
        if isinstance(verdict, Need):
            needs.append(verdict)
        elif verdict is not None:
            findings.append(verdict)
        elif place.desired:
            right += 1
            findings += [unchanged(place)] if settings.verbose else []
    return Plan(
        tuple(sorted(findings, key=lambda finding: (finding.object, finding.code))),
        right,
        tuple(sorted(needs)),
        _facts(observed, desired_by_kind),
        "" if observed.rules or observed.failures else f"no {RULES.kind} in namespace {settings.namespace}",
        desired_by_kind=in_all,
        desired_by_subject=asked,
        brakes=_brakes(findings, mistaken),
    )


def _brakes(findings: Sequence[Finding], mistaken: Mapping[str, Mistake]) -> tuple[Brake, ...]:
    """Return the brake that keeps copies of rules that may be mistaken, if it keeps any."""
    orphans = [each for each in findings if each.code == "orphan" and (each.fix or each.exit_code is ExitCode.BRAKE)]
    kept = Counter(each.subjects[0] for each in orphans if each.exit_code is ExitCode.BRAKE)
    most = max(Counter(each.object.kind for each in orphans).values(), default=0)
    return (brake(mistaken, kept, most),) if kept else ()


def _is_asked_for(place: Place, observed: Observed, settings: Settings) -> bool:
    """Whether this run speaks of the place. Of copies that no rule wants only a run that saw every rule can speak."""
    if not place.desired:
        return settings.rules is None and settings.rule_name is None and not observed.failures
    return settings.rule_name is None or any(settings.rule_name in desired.rules for desired in place.desired)


def _facts(observed: Observed, desired_by_kind: Mapping[tuple[str, str], Sequence[Candidate]]) -> Mapping[str, int]:
    sources = {(rule_type, c.source.uid) for (rule_type, _), group in desired_by_kind.items() for c in group}
    active = sum(1 for namespace in observed.namespaces if namespace.active)
    return {"rules": len(observed.rules), "sources": len(sources), "namespaces": active}


@click.command(NAME)
@options.option(
    "--rule-name", env=("RULE_NAME",), metavar="NAME", help="Follow this rule alone; the others are still read."
)
@options.option(
    "--filename",
    "-f",
    "filenames",
    multiple=True,
    metavar="FILE",
    help="Read rules from this file, folder or - instead of the cluster. Implies a dry run, which shows no deletions; "
    "needs no CRD.",
)
@options.option(
    "--verify",
    default="metadata",
    show_default=True,
    type=click.Choice(["metadata", "content"]),
    help="How copies are compared: by fingerprint and managedFields, or by reading all of them in full.",
)
@options.max_deletes(
    "orphaned copies of a kind", " Given, it also confirms deletions because of rules that may be mistaken."
)
@options.run_options("Namespace that rules are read from; default is the pod's own, or the context's.")
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

    Missing copies are made, changed ones repaired, those that no rule wants any more deleted; whatever else has the
    name of a copy is left untouched. A second run in a row writes nothing. Exits 0 when done, 1 when a retry is useful,
    2 when a person must act first, 3 with --check when anything is not as it should be, 4 when copies stay because the
    deletion brake held or their rule may be mistaken.

    \b
    Examples:
      chores sync-copies --dry-run --diff            what would change, and how
      chores sync-copies -n kube-chores              copy, by the rules of that namespace
      chores sync-copies -f rules.yaml -o json       try rules before they are applied
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
