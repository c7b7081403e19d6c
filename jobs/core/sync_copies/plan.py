"""Compare desired and observed copies, place by place. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from jobs.core.sync_copies.attach import Evaluated, attachments, types_problems
from jobs.core.sync_copies.bundles import texts_of
from jobs.core.sync_copies.desired import Place, places
from jobs.core.sync_copies.evaluate import SOURCE_CHANGED, contested, evaluate, unchanged
from jobs.core.sync_copies.kinds import BY_NAME
from jobs.core.sync_copies.mistakes import SOURCE_NAMESPACE_RECREATED, Mistake
from jobs.core.sync_copies.observed import OPT_IN, Observed, Settings
from jobs.core.sync_copies.rules import Rule
from jobs.core.sync_copies.state import Context, context
from jobs.kit.data.manifests import manifest_of
from jobs.kit.run.brakes import MIN_DELETES, block_deletes
from jobs.kit.values.errors import TooMuchError
from jobs.kit.values.model import (
    Action,
    Brake,
    Dependency,
    DesiredCounts,
    ExitCode,
    Finding,
    ObjectKey,
    Plan,
    Severity,
    Summary,
)
from jobs.kit.values.resources import NAMESPACES, RULES
from jobs.kit.values.text import listed

_MOST_NAMED = 3
_MOST_INVALID = 20
_LARGE_WRITES = 100 << 20


def plan(observed: Observed, settings: Settings, now: datetime) -> Plan:
    """Compare desired and observed copies, place by place; the same input gives the same findings in the same order.

    Raises:
        TooMuchError: there are more findings than `observed` allows.
    """
    known = context(observed, settings)
    # Only a run that could read everything evaluates possible orphans.
    has_orphans = settings.rules is None and settings.rule_name is None and not observed.failures
    # A run for one rule does not report other rules. But it makes no decision that depends on what could not be read.
    reported = (*observed.failures, *observed.notes, *known.found.findings)
    findings = [f for f in reported if settings.applies(*f.subjects)]
    findings += _about_rules(known, has_orphans=has_orphans)
    findings += _invalid_choices(observed, settings)
    findings += _expired(known, now)
    findings += types_problems(known.found.all(), settings)
    dependencies: list[Dependency] = []
    unchanged_count = 0
    equal: Place | None = None  # the last place with a copy that is as desired
    desired_by_subject = dict.fromkeys(sorted(rule.name for rule in observed.rules), 0)
    desired_by_kind: Counter[str] = Counter()
    attached: list[Evaluated] | None = [] if observed.accounts else None
    # With --max-deletes, a person confirms that copies move.
    shadowed = known.found.shadowed if settings.max_deletes is None else {}
    for place in places(observed, known.found.selected, known.targets, shadowed):
        desired_by_kind[place.key.kind] += bool(place.desired)
        rules = place.rules
        if not (settings.applies(*rules) if rules else has_orphans):
            continue
        for rule in rules:
            desired_by_subject[rule] += 1  # faster than a Counter, for 100,000 places
        if place.others:
            findings.append(contested(place))
            if not settings.applies(*place.desired[0].rules):
                continue
        result = evaluate(place, known, equal)
        if attached is not None and BY_NAME[place.key.kind].has_type:
            attached.append(Evaluated(place, result))
        if isinstance(result, Dependency):
            dependencies.append(result)
        elif result is not None:
            findings.append(result)
        elif place.desired:
            equal = place
            unchanged_count += 1
            findings += [unchanged(place)] if settings.run.verbose else []
        _check_number(len(findings) + len(dependencies), observed)
    findings += _recreated(findings, known)
    findings += list(_large_writes(findings, observed.rules))
    sources = {source.uid for each in known.found.all() for source in each.sources}
    facts = {
        "rules": len(observed.rules),
        "sources": len(sources),
        "namespaces": sum(each.active for each in observed.namespaces),
    }
    note = "" if observed.rules or observed.failures or observed.notes else _no_rule(observed, settings)
    made = Plan(
        findings,
        unchanged_count,
        dependencies,
        Summary(facts, note),
        desired=DesiredCounts(desired_by_kind, desired_by_subject),
        brakes=tuple(_brakes(findings, known.mistakes)),
    )
    return _with_attachments(made, observed, settings, attached, has_orphans) if attached is not None else made


def _check_number(findings: int, observed: Observed) -> None:
    if findings > observed.most_findings:
        raise TooMuchError


def _with_attachments(
    made: Plan, observed: Observed, settings: Settings, places: Sequence[Evaluated], has_orphans: bool
) -> Plan:
    """Return the plan with the findings of ServiceAccounts: names of copies that the brake keeps stay there."""
    deleted = {
        each.object for each in block_deletes(made, settings.max_deletes).findings if each.action is Action.DELETE
    }
    return replace(made, findings=[*made.findings, *attachments(observed, settings, places, deleted, has_orphans)])


def _about_rules(known: Context, *, has_orphans: bool) -> Iterator[Finding]:
    """Yield the findings of rules that may be mistaken, and of names that no source has.

    With orphans, a recreated source namespace is a finding only if a copy is not deleted because of it.
    """
    for rule in known.observed.rules:
        if not known.settings.applies(rule.name):
            continue
        if mistake := known.mistakes.get(rule.name):
            if not (has_orphans and _is_recreated(mistake)):
                yield mistake.finding()
        elif known.observed.sources.keys() >= {*rule.queries()}:
            yield from _missing_names(rule, known.found.names[rule.name])


def _recreated(findings: Iterable[Finding], known: Context) -> list[Finding]:
    """Return the findings of recreated source namespaces because of which copies are not deleted."""
    held = {each.subjects[0] for each in findings if each.code == "orphan" and each.exit_code is ExitCode.BRAKE}
    return [each.finding() for name, each in known.mistakes.items() if name in held and _is_recreated(each)]


def _is_recreated(mistake: Mistake) -> bool:
    return mistake.code == SOURCE_NAMESPACE_RECREATED


def _expired(known: Context, now: datetime) -> Iterator[Finding]:
    """Yield a finding for each rule that merges certificates that are no longer valid: they stay in its copies."""
    for each in (each for each in known.found.all() if each.merged and known.settings.applies(each.rule.name)):
        from jobs.core.sync_copies.certificates import expired

        are_public = not each.rule.copy_kind.has_type
        found = [
            f"{certificate} of {each.rule.kind.name.lower()} {source.namespace}/{source.name}"
            for source in each.merged
            for certificate in expired(texts_of(source), now, are_public=are_public)
        ]
        if found:
            verb = "has expired and stays" if len(found) == 1 else "have expired and stay"
            reason = f"{listed(found)} {verb} in the copies of the rule; remove it from the source"
            yield Finding("expired", Severity.WARNING, each.rule.head.key, reason, subjects=(each.rule.name,))


def _missing_names(rule: Rule, names: Collection[str]) -> Iterator[Finding]:
    """Yield the finding of names in spec.names that no source has; a rule without any source has one of its own."""
    if missing := sorted({*rule.spec.names} - {*names}):
        where = listed(rule.source_namespaces)
        reason = (
            f"spec.names: there is no {rule.spec.rule_type} {listed(missing)} in namespace {where}"
            + " with the labels of spec.selector" * bool(rule.spec.selector)
            + " (copies do not count); correct spec.names, or create it"
        )
        yield Finding("source-missing", Severity.WARNING, rule.head.key, reason, subjects=(rule.name,))


def _large_writes(findings: Sequence[Finding], rules: Sequence[Rule]) -> Iterator[Finding]:
    """Yield a finding for each rule of which this run writes more than _LARGE_WRITES: etcd keeps each version."""
    sizes: dict[int, int] = {}  # copies of one source share their content
    written: Counter[str] = Counter()
    for each in findings:
        if each.change and (manifest := manifest_of(each.change.body)):
            content = manifest.content
            size = sizes.get(id(content)) or sizes.setdefault(id(content), content.size)
            written[each.subjects[0]] += size
    for rule in rules:
        if (size := written[rule.name]) > _LARGE_WRITES:
            reason = (
                f"a run writes {size >> 20} MiB of its copies; etcd, where the API server stores them, has "
                "2 GiB by default, and keeps old versions for minutes; copy smaller objects, or to fewer namespaces"
            )
            yield Finding("large-writes", Severity.WARNING, rule.head.key, reason, subjects=(rule.name,))


def _no_rule(observed: Observed, settings: Settings) -> str:
    others = observed.rules_elsewhere
    hint = f"; there are rules in {listed(others)}, which -n selects" if others else ""
    return f"no {RULES.kind} in namespace {settings.namespace}{hint}"


def _invalid_choices(observed: Observed, settings: Settings) -> Iterator[Finding]:
    """Yield the findings of namespaces whose annotation is neither true nor false; without -v, of the first ones.

    Tenants annotate their namespaces. They do not count as failures, which would prevent deletions.
    """
    found = [each for each in observed.namespaces if each.invalid_choice is not None and each.active]
    shown = found if settings.run.verbose else found[:_MOST_INVALID]
    more = f" ({len(found) - len(shown)} more namespaces, see -v)" if len(found) > len(shown) else ""
    for each in shown if settings.rule_name is None else ():
        effect, value = "has no effect", '"true" or "false"'
        if each.opted_out:
            effect, value = 'opts out as "false" does', '"false"'
        elif (each.invalid_choice or "").lower() == "true":
            value = '"true"'
        reason = f'annotation {OPT_IN} is "{each.invalid_choice}", which {effect}; set it to {value}'
        key = ObjectKey(NAMESPACES.kind, each.name)
        yield Finding("invalid", Severity.WARNING, key, reason + more * (each is shown[-1]))


def _brakes(findings: Sequence[Finding], mistaken: Mapping[str, Mistake]) -> Iterator[Brake]:
    """Yield the brakes that a person can lift: of copies that do not move, and of rules that may be mistaken."""
    moved = Counter(each.subjects[0] for each in findings if each.code == SOURCE_CHANGED)
    for rule, number in sorted(moved.items())[:_MOST_NAMED]:
        copies = "1 copy stays a copy" if number == 1 else f"{number} copies stay copies"
        message = f"rule {rule}: {copies} of a source in another namespace than the one that the rule now selects"
        yield Brake(message, "--max-deletes", str(MIN_DELETES), ("--rule-name", rule))
    orphans = [each for each in findings if each.code == "orphan" and (each.change or each.exit_code is ExitCode.BRAKE)]
    held = [each for each in orphans if each.exit_code is ExitCode.BRAKE]
    if held:
        named = sorted({each.subjects[0] for each in held})
        rules = listed([f"{rule} ({mistaken[rule].reason})" for rule in named])
        copies = "1 copy" if len(held) == 1 else f"{len(held)} copies"
        message = f"rules that may be mistaken block the deletion of {copies}: {rules}; correct or delete these rules"
        # With this value, a run deletes all of them.
        most = max(Counter(each.object.kind for each in orphans).values())
        yield Brake(message, "--max-deletes", str(most))
