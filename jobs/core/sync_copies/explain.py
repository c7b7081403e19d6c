"""Explain a namespace: each rule with its copies there, or why there is none. Pure.

It shows the plan of a dry run, and decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from msgspec import structs

from jobs.core.sync_copies.desired import candidates
from jobs.core.sync_copies.kinds import KINDS, LAYOUTS
from jobs.core.sync_copies.mistakes import NOTHING_SELECTED, SOURCE_NAMESPACE_MISSING
from jobs.core.sync_copies.observed import OPT_IN, Namespace, Observed, Settings
from jobs.core.sync_copies.plan import plan
from jobs.core.sync_copies.rules import Rule, RuleStatus, Targets
from jobs.core.sync_copies.selectors import glob_matcher
from jobs.core.sync_copies.targets import NoTarget, target_check
from jobs.kit.data.objects import ReducedObject
from jobs.kit.run.results import REASONS
from jobs.kit.values.errors import ApiError
from jobs.kit.values.explanation import Explanation, Row, does_not_exist
from jobs.kit.values.model import Action, DryRun, Finding, Need, ObjectKey, Plan
from jobs.kit.values.resources import NAMESPACES, RULES
from jobs.kit.values.text import listed

_COLUMNS = ("RULE", "OBJECT", "STATE", "WHY")
_MOST_NAMED = 3
_NEXT = {
    Action.CREATE: "the next run creates it",
    Action.REPLACE: "the next run replaces it",
    Action.DELETE: "the next run deletes it",
    Action.RECREATE: "the next run deletes and recreates it",
}
_NOT_REQUIRED = {"orphan", "opted-out", "retained"}  # codes of objects that are not desired copies
_SOURCE_REFUSED = "SourceRefused"
_REFUSED = {"Failed", *(reason for _, reason in REASONS)}  # of failed writes
_CODES = {NoTarget.TERMINATING: "terminating", NoTarget.OPTED_OUT: "opted-out"}
NOT_A_TARGET, OWN_NAMESPACE = "not-a-target", "own-namespace"


class _World(NamedTuple):
    """What all rules share, by rule: its sources, the findings of those that are not copied, and those of its copies.

    `about` are the findings of rules themselves, by rule.
    """

    where: ObjectKey
    namespace: Namespace
    observed: Observed
    sources: Mapping[str, Sequence[ReducedObject]]
    left: Mapping[str, Sequence[Finding]]
    by_rule: Mapping[str, Sequence[Finding]]
    about: Mapping[str, Finding]


class _Problem(NamedTuple):
    """Why there is no copy; `is_near`: the object exists that the user named, so the rule is probably the one."""

    code: str
    reason: str
    is_near: bool = True


def plan_to_explain(where: ObjectKey, observed: Observed, settings: Settings, now: datetime) -> Plan:
    """Return the plan of a dry run with -v, which reads only what the namespace needs, and the objects with the name.

    Their metadata is read in the source namespaces of rules. Places of other namespaces stay undecided. None of them is
    a deletion, so the brake is that of a run.
    """
    run = replace(settings.run, dry_run=DryRun.CLIENT, verbose=True)
    made = plan(observed, replace(settings, run=run), now)
    needs = [each for each in made.needs if each.key.namespace == where.namespace]
    if not needs and where.name:
        named = {key for rule in observed.rules for key in _named_sources(where.name, rule)}
        needs = [Need(key, full=False) for key in named - observed.single_reads.keys()]
    return replace(made, needs=needs)


def explanation(where: ObjectKey, made: Plan, observed: Observed, settings: Settings, _now: datetime) -> Explanation:
    """Return a row for each rule and state of its copies in the namespace.

    Raises:
        ConfigurationError: the namespace does not exist.
    """
    about_namespace = [each for each in made.findings if each.object == ObjectKey(NAMESPACES.kind, where.namespace)]
    rows = [_row("", [each]) for each in about_namespace]
    world = _world(where, made, observed)
    if world is None:
        if not rows:
            raise does_not_exist(where.namespace, [each.name for each in observed.namespaces])
        return Explanation(_COLUMNS, tuple(rows), "the namespace cannot be read")
    rules = [each for each in observed.rules if settings.rule_name in (None, each.name)]
    near: list[Row] = []
    far: list[Row] = []
    for rule in rules:
        found, is_near = _rows_of_rule(rule, world, settings)
        (near if is_near else far).extend(found)
    rows += [*near, *far, *_rows_of_other_rules(world, settings)]
    return Explanation(_COLUMNS, tuple(rows), _summary(made, world, len(rules), settings))


def _world(where: ObjectKey, made: Plan, observed: Observed) -> _World | None:
    namespace = next((each for each in observed.namespaces if each.name == where.namespace), None)
    if namespace is None:
        return None
    selected, _, left = candidates(observed)
    sources: dict[str, list[ReducedObject]] = {}
    for (_, name), group in selected.items():
        for rule, source in group if where.name in ("", name) else ():
            sources.setdefault(rule.name, []).append(source)
    of_sources = {(each.object, each.code, each.reason) for each in left}
    here = (each for each in made.findings if each.object.namespace == where.namespace)
    copies = [each for each in here if (each.object, each.code, each.reason) not in of_sources]
    return _World(
        where,
        namespace,
        observed,
        sources,
        _by_rule(each for each in left if where.name in ("", *_names_of_copies(each, observed))),
        _by_rule(each for each in copies if where.name in ("", each.object.name)),
        {each.object.name: each for each in made.findings if each.object.kind == RULES.kind},
    )


def _names_of_copies(left: Finding, observed: Observed) -> Iterator[str]:
    """Yield the names that copies of a source would have."""
    for rule in observed.rules:
        if rule.name in left.subjects:
            yield rule.spec.target_name or left.object.name


def _by_rule(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for each in findings:
        for name in each.subjects or ("",):
            found.setdefault(name, []).append(each)
    return found


def _summary(made: Plan, world: _World, rules: int, settings: Settings) -> str:
    if not rules and made.summary.note:
        return made.summary.note
    found = {each.object: each for group in world.by_rule.values() for each in group if _is_copy(each)}
    equal = sum(each.code == "unchanged" for each in found.values())
    copies = f"{equal} of {len(found)} copies are as desired" if found else "no copy"
    return f"{copies} ({rules} {'rule' if rules == 1 else 'rules'} in namespace {settings.namespace})"


def _is_copy(finding: Finding) -> bool:
    return finding.object.kind in LAYOUTS and finding.code not in _NOT_REQUIRED


def _rows_of_rule(rule: Rule, world: _World, settings: Settings) -> tuple[list[Row], bool]:
    """Return the rows of a rule, and whether they are about objects with the name to explain."""
    found = [each for each in world.by_rule.get(rule.name, ()) if each.object != rule.head.key]
    last = _last_failure(rule, world.where.namespace)
    is_each = settings.run.verbose or bool(world.where.name)
    rows = _grouped(rule.name, found, last, is_each=is_each)
    if any(map(_is_copy, found)):
        return rows + _rows_of_sources(rule.name, world.left.get(rule.name, ()), is_each=is_each), True
    problems = list(_problems(rule, world))
    reason = "; also, ".join(each.reason for each in problems)
    rows.append(_row_of(rule.name, None, 0, problems[0].code, reason))
    return rows, bool(found) or all(each.is_near for each in problems)


def _rows_of_other_rules(world: _World, settings: Settings) -> Iterator[Row]:
    """Yield the rows of rules that are not valid, and of copies whose rule does not exist."""
    for invalid in world.observed.invalid_rules:
        if settings.rule_name in (None, invalid.head.key.name):
            yield _row_of(invalid.head.key.name, None, 0, "invalid", world.about[invalid.head.key.name].reason)
    for name in sorted(world.by_rule.keys() - {rule.name for rule in world.observed.rules}):
        found = [each for each in world.by_rule[name] if each.object.kind in LAYOUTS]
        yield from _grouped(name, found, is_each=settings.run.verbose or bool(world.where.name))


def _last_failure(rule: Rule, namespace: str) -> str:
    """Return what the status of the rule reports about writes in the namespace: a dry run does not try them.

    It does not check the right of the job to bind ClusterRoles either.
    """
    status = rule.head.status_as(RuleStatus)
    failed = next((each.reason for each in status.failed_namespaces if each.namespace == namespace), "")
    if failed in _REFUSED:
        what = f"the last write failed ({failed})"
    elif any(each.reason == _SOURCE_REFUSED for each in status.conditions):
        what = f"the last run refused a source ({_SOURCE_REFUSED})"
    else:
        return ""
    return f"the next run tries again: {what}, see kubectl describe copyrator {rule.name} -n {rule.namespace}"


def _grouped(rule: str, findings: Sequence[Finding], last: str = "", *, is_each: bool) -> list[Row]:
    """Return a row for each code, so that many copies are few rows; or a row for each copy.

    `last` replaces what the next run does with copies that it writes.
    """
    return [_row(rule, group, last) for group in _groups(findings, is_each=is_each)]


def _rows_of_sources(rule: str, left: Sequence[Finding], *, is_each: bool) -> list[Row]:
    """Return the rows of sources that are not copied."""
    return [
        _row_of(rule, group[0].object if len(group) == 1 else None, 0, group[0].code, _reasons(group), len(group))
        for group in _groups(left, is_each=is_each)
    ]


def _groups(findings: Sequence[Finding], *, is_each: bool) -> Iterable[Sequence[Finding]]:
    groups: dict[object, list[Finding]] = {}
    for each in findings:
        groups.setdefault(each.object if is_each else each.code, []).append(each)
    return groups.values()


def _reasons(left: Sequence[Finding]) -> str:
    return listed(left, _MOST_NAMED, lambda each: f"{each.object}: {each.reason}", "; ")


def _row(rule: str, findings: Sequence[Finding], last: str = "") -> Row:
    first, reasons = findings[0], list(dict.fromkeys(_reason(each, last) for each in findings))
    key = first.object if len(findings) == 1 else None
    copies = len(findings) if _is_copy(first) or first.code in _NOT_REQUIRED else 0
    return _row_of(rule, key, copies, first.code, listed(reasons, _MOST_NAMED, separator="; "))


def _reason(finding: Finding, last: str) -> str:
    return f"{finding.reason}: {last or _NEXT[finding.fix.action]}" if finding.fix else finding.reason


def _row_of(rule: str, key: ObjectKey | None, copies: int, code: str, reason: str, sources: int = 0) -> Row:
    if key:
        shown, found = f"{key.kind.lower()}/{key.name}", {name: value for name, value in key._asdict().items() if value}
    else:
        number = f"{copies} copies" if copies else f"{sources} sources" if sources else ""
        shown, found = number or ("unknown" if code == "unreadable" else "no copy"), None
    document = {"rule": rule, "object": found, "copies": copies, "code": code, "reason": reason}
    return Row((rule or "-", shown, code), reason, document)


def _problems(rule: Rule, world: _World) -> Iterator[_Problem]:
    """Yield why the rule has no copy in the namespace; at least one problem."""
    about_rule = world.about.get(rule.name)
    if about_rule and about_rule.code == "unreadable":
        yield _Problem("unreadable", about_rule.reason)
        return
    no_target = target_check(rule.spec.targets)(world.namespace)
    if no_target:
        yield _Problem(_CODES.get(no_target, NOT_A_TARGET), _why_no_target(no_target, rule.spec.targets, world))
    sources = world.sources.get(rule.name, ())
    if not sources:
        yield _why_no_source(rule, about_rule, world)
    elif all(each.namespace == world.where.namespace for each in sources):
        yield _Problem(OWN_NAMESPACE, f"{world.where.namespace} is the namespace of the source")
    elif not no_target:
        yield _Problem("unreadable", "the run could not evaluate its copies here")


def _why_no_target(reason: NoTarget, targets: Targets, world: _World) -> str:
    name = world.namespace.name
    if reason is NoTarget.TERMINATING:
        return f"namespace {name} is terminating"
    if reason is NoTarget.OPTED_OUT:
        value = world.namespace.invalid_choice or "false"
        why = f'namespace {name} opted out by annotation {OPT_IN}: "{value}"'
        otherwise = target_check(targets)(structs.replace(world.namespace, opted_out=False, invalid_choice=None))
        return (
            f"{why}, and {_why_no_target(otherwise, targets, world)}"
            if otherwise
            else f"{why}; remove it to get copies"
        )
    if reason is NoTarget.NOT_NAMED:
        return f"spec.targets.include does not list {name}; no glob selects a kube-* namespace"
    if reason is NoTarget.NOT_INCLUDED:
        return f"spec.targets.include does not match {name}: it is {listed(targets.include, _MOST_NAMED)}"
    if reason is NoTarget.EXCLUDED:
        (glob, *_) = (each for each in targets.exclude if glob_matcher([each]).fullmatch(name))
        return f"spec.targets.exclude matches {name}: {glob}"
    terms = targets.namespace_selector.mismatches(world.namespace.labels)
    return f"spec.targets.namespaceSelector does not match {name}: {listed(terms, _MOST_NAMED)}"


def _why_no_source(rule: Rule, about_rule: Finding | None, world: _World) -> _Problem:
    if about_rule and about_rule.code == SOURCE_NAMESPACE_MISSING:
        return _Problem(about_rule.code, about_rule.reason)
    if left := world.left.get(rule.name):
        return _Problem(left[0].code, _reasons(left))
    if world.where.name:
        return _why_not_selected(rule, world)
    where = listed(rule.source_namespaces, _MOST_NAMED)
    reason = f"the rule selects no {rule.spec.rule_type} in namespace {where}"
    return _Problem(NOTHING_SELECTED, about_rule.reason if about_rule else reason)


def _why_not_selected(rule: Rule, world: _World) -> _Problem:
    """Return why no copy of the rule has the name: what the rule selects, or there is no such object."""
    name, target = world.where.name, rule.spec.target_name
    reasons: list[str] = []
    absent: list[ObjectKey] = []
    for key in _named_sources(name, rule):
        found = world.observed.single_reads.get(key)
        if isinstance(found, ApiError):
            reasons.append(f"{key} cannot be read: {found.message}")
        elif found is None:
            absent.append(key)
        elif target not in ("", name):
            reasons.append(f"copies of this rule have the name {target} (spec.targetName)")
        else:
            reasons.append(_why_no_source_now(rule, key, found))
    if reasons:
        return _Problem("not-selected", listed(list(dict.fromkeys(reasons)), _MOST_NAMED, separator="; "))
    source = absent[0].name if absent else name
    where = listed(rule.source_namespaces, _MOST_NAMED)
    return _Problem("not-selected", f"there is no {rule.spec.rule_type} {source} in namespace {where}", is_near=False)


def _why_no_source_now(rule: Rule, key: ObjectKey, found: ReducedObject) -> str:
    """Return why the rule does not select an object that exists."""
    if rule.spec.names and key.name not in rule.spec.names:
        return f"spec.names does not have {key.name}: it is {listed(rule.spec.names, _MOST_NAMED)}"
    if terms := rule.label_selector.mismatches(found.header.labels):
        return f"spec.selector does not match {key}: {listed(terms, _MOST_NAMED)}"
    return f"{key} was labelled a moment ago: the next run reads it"


def _named_sources(name: str, rule: Rule) -> list[ObjectKey]:
    """Return the objects whose copies could have the name, or that have it: a user may give either."""
    kind = KINDS[rule.spec.rule_type].name
    is_target = name == rule.spec.target_name
    names = rule.spec.names if is_target and rule.spec.names else (name,)
    return [ObjectKey(kind, each, namespace) for namespace in sorted(set(rule.source_namespaces)) for each in names]
