"""Explain a namespace: each rule with its copies there, or why there is none. Pure.

It shows the plan of a dry run, and decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from jobs.core.sync_copies.desired import by_rule, candidates, why_no_target
from jobs.core.sync_copies.kinds import LAYOUTS
from jobs.core.sync_copies.mistakes import NOTHING_SELECTED, SOURCE_NAMESPACE_MISSING
from jobs.core.sync_copies.observed import Observed, Settings
from jobs.core.sync_copies.plan import plan
from jobs.core.sync_copies.rules import Rule
from jobs.kit.data.objects import ReducedObject
from jobs.kit.run.results import REASONS
from jobs.kit.values.errors import ApiError, no_such_namespace
from jobs.kit.values.model import Action, Dependency, DryRun, Explanation, Finding, ObjectKey, Plan, Row
from jobs.kit.values.resources import NAMESPACES, RULES
from jobs.kit.values.text import listed

_COLUMNS = ("RULE", "OBJECT", "STATE", "WHY")
_NEXT = {
    Action.CREATE: "the next run creates it",
    Action.REPLACE: "the next run replaces it",
    Action.PATCH: "the next run patches it",
    Action.DELETE: "the next run deletes it",
    Action.RECREATE: "the next run deletes and recreates it",
}
_OF_ACCOUNTS = {"not-attached", "still-attached"}
_NOT_REQUIRED = {"orphan", "opted-out", "retained", *_OF_ACCOUNTS}  # codes of objects that are not desired copies
_SOURCE_REFUSED = "SourceRefused"
_ELSEWHERE = "spec.targets.clusters selects other clusters"
_REFUSED = {"Failed", *(reason for _, reason in REASONS)}  # of failed writes


class _World(NamedTuple):
    """What the rows of all rules have in common.

    By rule: the namespaces of its sources, the findings of sources that are not copied (`left`) and of its copies, and
    the finding `about` the rule itself. `is_each`: each copy has a row, in place of each state.
    """

    where: ObjectKey
    observed: Observed
    sources: Mapping[str, set[str]]
    left: Mapping[str, Sequence[Finding]]
    copies: Mapping[str, Sequence[Finding]]
    about: Mapping[str, Finding]
    is_each: bool


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
    dependencies = [each for each in made.dependencies if each.key.namespace == where.namespace]
    if not dependencies and where.name:
        named = {key for rule in observed.rules for key in _named_sources(where.name, rule)}
        dependencies = [Dependency(key, full=False) for key in named - observed.single_reads.keys()]
    return replace(made, dependencies=dependencies)


def explanation(where: ObjectKey, made: Plan, observed: Observed, settings: Settings, _now: datetime) -> Explanation:
    """Return a row for each rule and state of its copies in the namespace.

    Raises:
        ConfigurationError: the namespace does not exist.
    """
    about_namespace = [each for each in made.findings if each.object == ObjectKey(NAMESPACES.kind, where.namespace)]
    rows = [_row("", [each], _reason) for each in about_namespace]
    names = [each.name for each in observed.namespaces]
    if where.namespace not in names:
        if not rows:
            raise no_such_namespace(where.namespace, names)
        return Explanation(_COLUMNS, tuple(rows), "the namespace cannot be read")
    world = _world(where, made, observed, settings)
    rules = [each for each in observed.rules if settings.applies(each.name)]
    of_rules = [_rows_of_rule(each, world) for each in rules]
    for found, _ in sorted(of_rules, key=lambda each: not each[1]):  # the near ones first
        rows += found
    rows += _rows_of_other_rules(world, settings)
    return Explanation(_COLUMNS, tuple(rows), _summary(made, world, len(rules), settings))


def _world(where: ObjectKey, made: Plan, observed: Observed, settings: Settings) -> _World:
    found = candidates(observed, settings)
    sources: dict[str, set[str]] = {}
    for (_, name), group in found.selected.items():
        for each in group if where.name in ("", name) else ():
            sources.setdefault(each.rule.name, set()).add(each.own_namespace)
    target_names = {each.name: each.spec.target_name for each in observed.rules}
    left = [
        each
        for each in found.findings
        if where.name in ("", *(target_names[name] or each.object.name for name in each.subjects))
    ]
    of_sources = {(each.object, each.code, each.reason) for each in found.findings}
    copies = [
        each
        for each in made.findings
        if each.object.namespace == where.namespace and where.name in ("", each.object.name)
        if (each.object, each.code, each.reason) not in of_sources
    ]
    about = {each.object.name: each for each in made.findings if each.object.kind == RULES.kind}
    is_each = settings.run.verbose or bool(where.name)
    return _World(where, observed, sources, by_rule(left), by_rule(copies), about, is_each)


def _summary(made: Plan, world: _World, rules: int, settings: Settings) -> str:
    if not rules and made.summary.note:
        return made.summary.note
    found = {each.object: each for group in world.copies.values() for each in group if _is_copy(each)}
    equal = sum(each.code == "unchanged" for each in found.values())
    copies = f"{equal} of {len(found)} copies are as desired" if found else "no copy"
    return f"{copies} ({rules} {'rule' if rules == 1 else 'rules'} in namespace {settings.namespace})"


def _is_copy(finding: Finding) -> bool:
    return finding.object.kind in LAYOUTS and finding.code not in _NOT_REQUIRED


def _rows_of_rule(rule: Rule, world: _World) -> tuple[list[Row], bool]:
    """Return the rows of a rule, and whether they are about objects with the name to explain."""
    found = [each for each in world.copies.get(rule.name, ()) if each.object != rule.head.key]
    rows = _rows(rule.name, found, partial(_reason, last=_last_failure(rule, world.where.namespace)), world)
    if any(map(_is_copy, found)):
        return rows + _rows(rule.name, world.left.get(rule.name, ()), _with_object, world, "sources"), True
    problems = list(_problems(rule, world))
    rows.append(_row_of_none(rule.name, problems[0].code, "; also, ".join(each.reason for each in problems)))
    return rows, bool(found) or all(each.is_near for each in problems)


def _rows_of_other_rules(world: _World, settings: Settings) -> Iterator[Row]:
    """Yield the rows of rules that are not valid, and of copies whose rule does not exist."""
    for invalid in world.observed.invalid_rules:
        name = invalid.head.key.name
        if settings.applies(name):
            yield _row_of_none(name, "invalid", world.about[name].reason)
    for name in sorted(world.copies.keys() - {rule.name for rule in world.observed.rules}):
        found = [each for each in world.copies[name] if each.object.kind in LAYOUTS]
        yield from _rows(name, found, _reason, world)


def _last_failure(rule: Rule, namespace: str) -> str:
    """Return what the status of the rule reports about writes in the namespace: a dry run does not try them.

    It does not check the right of the job to bind ClusterRoles either.
    """
    status = rule.status
    failed = next((each.reason for each in status.failed_namespaces if each.namespace == namespace), "")
    if failed in _REFUSED:
        what = f"the last write failed ({failed})"
    elif any(each.reason == _SOURCE_REFUSED for each in status.conditions):
        what = f"the last run refused a source ({_SOURCE_REFUSED})"
    else:
        return ""
    return f"the next run tries again: {what}, see kubectl describe copyrator {rule.name} -n {rule.namespace}"


def _rows(
    rule: str, findings: Sequence[Finding], text: Callable[[Finding], str], world: _World, noun: str = "copies"
) -> list[Row]:
    """Return a row for each code, so that many copies or sources are few rows; or a row for each object."""
    groups: dict[object, list[Finding]] = {}
    for each in findings:
        groups.setdefault(each.object if world.is_each else each.code, []).append(each)
    return [_row(rule, group, text, noun) for group in groups.values()]


def _row(rule: str, group: Sequence[Finding], text: Callable[[Finding], str], noun: str = "copies") -> Row:
    key, code, number = group[0].object, group[0].code, len(group)
    reason = _reasons(map(text, group))
    noun = "ServiceAccounts" if code in _OF_ACCOUNTS else noun
    copies = number if noun == "copies" and key.kind in LAYOUTS else 0
    named = {name: value for name, value in key._asdict().items() if value} if number == 1 else None
    document = {"rule": rule, "object": named, "copies": copies, "code": code, "reason": reason}
    shown = f"{key.kind.lower()}/{key.name}" if named else f"{number} {noun}"
    return Row((rule or "-", shown, code), reason, document)


def _row_of_none(rule: str, code: str, reason: str) -> Row:
    document = {"rule": rule, "object": None, "copies": 0, "code": code, "reason": reason}
    return Row((rule, "unknown" if code == "unreadable" else "no copy", code), reason, document)


def _reasons(reasons: Iterable[str]) -> str:
    return listed(list(dict.fromkeys(reasons)), separator="; ")


def _with_object(finding: Finding) -> str:
    return f"{finding.object}: {finding.reason}"


def _reason(finding: Finding, last: str = "") -> str:
    """Return the reason, and what the next run does; `last` is in its place, if the last write failed."""
    return f"{finding.reason}: {last or _NEXT[finding.change.action]}" if finding.change else finding.reason


def _problems(rule: Rule, world: _World) -> Iterator[_Problem]:
    """Yield why the rule has no copy in the namespace; at least one problem."""
    about_rule, here = world.about.get(rule.name), world.where.namespace
    if about_rule and about_rule.code == "unreadable":
        yield _Problem("unreadable", about_rule.reason)
        return
    (namespace,) = (each for each in world.observed.namespaces if each.name == here)
    no_target = ("not-a-target", _ELSEWHERE) if rule.is_elsewhere else why_no_target(rule.spec.targets, namespace)
    if no_target:
        yield _Problem(*no_target)
    if rule.name not in world.sources:
        yield _why_no_source(rule, about_rule, world)
    elif world.sources[rule.name] == {here}:
        yield _Problem("own-namespace", f"{here} is the namespace of the source")
    elif not no_target:
        yield _Problem("unreadable", "the run could not evaluate its copies here")


def _why_no_source(rule: Rule, about_rule: Finding | None, world: _World) -> _Problem:
    if about_rule and about_rule.code == SOURCE_NAMESPACE_MISSING:
        return _Problem(about_rule.code, about_rule.reason)
    if left := world.left.get(rule.name):
        return _Problem(left[0].code, _reasons(map(_with_object, left)))
    if world.where.name:
        return _why_not_selected(rule, world)
    where = listed(rule.source_namespaces)
    reason = f"the rule selects no {rule.spec.rule_type} in namespace {where}"
    return _Problem(NOTHING_SELECTED, about_rule.reason if about_rule else reason)


def _why_not_selected(rule: Rule, world: _World) -> _Problem:
    """Return why no copy of the rule has the name: what the rule selects, or there is no such object."""
    sources = {key: world.observed.single_reads.get(key) for key in _named_sources(world.where.name, rule)}
    if reasons := [_why_not_this(rule, world.where.name, key, found) for key, found in sources.items() if found]:
        return _Problem("not-selected", _reasons(reasons))
    where = listed(rule.source_namespaces)
    reason = f"there is no {rule.spec.rule_type} {next(iter(sources)).name} in namespace {where}"
    return _Problem("not-selected", reason, is_near=False)


def _why_not_this(rule: Rule, name: str, key: ObjectKey, found: ReducedObject | ApiError) -> str:
    """Return why the rule does not select an object that exists, or has no copy of it with the name."""
    if isinstance(found, ApiError):
        return f"{key} cannot be read: {found.message}"
    if rule.spec.target_name not in ("", name):
        return f"copies of this rule have the name {rule.spec.target_name} (spec.targetName)"
    if rule.spec.names and key.name not in rule.spec.names:
        return f"spec.names does not have {key.name}: it is {listed(rule.spec.names)}"
    if terms := rule.label_selector.mismatches(found.header.labels):
        return f"spec.selector does not match {key}: {listed(terms)}"
    return f"{key} was labelled a moment ago: the next run reads it"


def _named_sources(name: str, rule: Rule) -> list[ObjectKey]:
    """Return the objects whose copies could have the name, or that have it: a user may give either."""
    names = (rule.spec.names if name == rule.spec.target_name else ()) or (name,)
    return [
        ObjectKey(rule.kind.name, each, namespace)
        for namespace in sorted(set(rule.source_namespaces))
        for each in names
    ]
