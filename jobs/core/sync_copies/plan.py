"""Compare desired and observed copies, place by place. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from jobs.core.sync_copies.desired import Place, Selected, candidates, is_copy, name_of, places, sources_of
from jobs.core.sync_copies.evaluate import SOURCE_CHANGED, contested, evaluate, unchanged
from jobs.core.sync_copies.mistakes import SOURCE_NAMESPACE_RECREATED, Mistake, brake, mistakes
from jobs.core.sync_copies.observed import OPT_IN, Namespace, Observed, Settings
from jobs.core.sync_copies.rules import Rule
from jobs.core.sync_copies.state import context
from jobs.core.sync_copies.targets import targets_of_rules
from jobs.kit.data.manifests import manifest_of
from jobs.kit.run.brakes import MIN_DELETES
from jobs.kit.values.model import Brake, DesiredCounts, ExitCode, Finding, Need, ObjectKey, Plan, Severity, Summary
from jobs.kit.values.resources import NAMESPACES, RULES
from jobs.kit.values.text import listed

_MOST_NAMED = 3
_MOST_INVALID = 20
_LARGE_WRITES = 100 << 20


def plan(observed: Observed, settings: Settings, _now: datetime) -> Plan:
    """Compare desired and observed copies, place by place; the same input gives the same findings in the same order."""
    sources = candidates(observed)
    selected, shadowed, skipped = sources
    targets = targets_of_rules(observed.rules, observed.namespaces)
    mistaken = mistakes(observed, sources, targets)
    place_context = context(observed, settings, skipped, mistaken, targets)
    # A run for one rule does not report other rules. But it makes no decision that depends on what could not be read.
    concerned = [f for f in (*observed.failures, *skipped) if settings.rule_name in (None, *f.subjects)]
    decides = _decides_about_orphans(observed, settings)
    mistake_findings = [
        each.finding()
        for name, each in mistaken.items()
        if settings.rule_name in (None, name) and not (decides and each.code == SOURCE_NAMESPACE_RECREATED)
    ]
    missing_names = [
        each
        for rule in observed.rules
        if settings.rule_name in (None, rule.name) and rule.name not in mistaken
        for each in _missing_names(rule, observed)
    ]
    invalid_choices = _invalid_choices(observed, settings) if settings.rule_name is None else []
    findings = [*concerned, *mistake_findings, *missing_names, *invalid_choices]
    needs: list[Need] = []
    unchanged_count = 0
    equal: Place | None = None  # the last place with a copy that is as desired
    desired_by_subject = dict.fromkeys(sorted(rule.name for rule in observed.rules), 0)
    desired_by_kind: Counter[str] = Counter()
    # With --max-deletes, a person confirms that copies move.
    for place in places(observed, selected, targets, shadowed if settings.max_deletes is None else {}):
        desired_by_kind[place.key.kind] += bool(place.desired)
        if not _is_in_scope(place, observed, settings):
            continue
        for rule in place.rules:
            desired_by_subject[rule] += 1  # faster than a Counter, for 100,000 places
        if place.others:
            findings.append(contested(place))
            if settings.rule_name not in (None, *place.desired[0].rules):
                continue
        result = evaluate(place, place_context, equal)
        if isinstance(result, Need):
            needs.append(result)
        elif result is not None:
            findings.append(result)
        elif place.desired:
            equal = place
            unchanged_count += 1
            findings += [unchanged(place)] if settings.run.verbose else []
    findings += _recreated(findings, mistaken)
    findings += _large_writes(findings, observed.rules)
    return Plan(
        findings,
        unchanged_count,
        needs,
        Summary(
            _facts(observed, selected),
            "" if observed.rules or observed.failures else _no_rule(observed, settings),
        ),
        desired=DesiredCounts(desired_by_kind, desired_by_subject),
        brakes=_brakes(findings, mistaken),
    )


def _recreated(findings: Sequence[Finding], mistaken: Mapping[str, Mistake]) -> list[Finding]:
    """Return the findings of rules with a recreated source namespace of which a copy is not deleted."""
    held = {each.subjects[0] for each in findings if each.code == "orphan" and each.exit_code is ExitCode.BRAKE}
    return [mistaken[name].finding() for name in sorted(held) if mistaken[name].code == SOURCE_NAMESPACE_RECREATED]


def _missing_names(rule: Rule, observed: Observed) -> Iterator[Finding]:
    """Yield the finding of names in spec.names that no source has; a rule without any source has one of its own."""
    if not rule.spec.names or any(query not in observed.sources for query in rule.queries()):
        return
    names = {name_of(each) for each in sources_of(rule, observed) if not is_copy(each)}
    if missing := sorted({*rule.spec.names} - names):
        where = listed(rule.source_namespaces, _MOST_NAMED)
        reason = (
            f"spec.names: there is no {rule.spec.rule_type} {listed(missing, _MOST_NAMED)} in namespace {where}"
            + " with the labels of spec.selector" * bool(rule.spec.selector)
            + " (copies do not count); correct spec.names, or create it"
        )
        yield Finding("source-missing", Severity.WARNING, rule.head.key, reason, subjects=(rule.name,))


def _large_writes(findings: Sequence[Finding], rules: Sequence[Rule]) -> list[Finding]:
    """Return a finding for each rule of which this run writes more than _LARGE_WRITES: etcd keeps each version."""
    sizes: dict[int, int] = {}  # copies of one source share their content
    written: Counter[str] = Counter()
    for each in findings:
        if each.fix and (manifest := manifest_of(each.fix.body)):
            content = manifest.content
            size = sizes.get(id(content)) or sizes.setdefault(id(content), content.size)
            written[each.subjects[0]] += size
    return [
        Finding(
            "large-writes",
            Severity.WARNING,
            rule.head.key,
            f"a run writes {written[rule.name] >> 20} MiB of its copies; etcd, where the API server stores them, has "
            "2 GiB by default, and keeps old versions for minutes; copy smaller objects, or to fewer namespaces",
            subjects=(rule.name,),
        )
        for rule in rules
        if written[rule.name] > _LARGE_WRITES
    ]


def _no_rule(observed: Observed, settings: Settings) -> str:
    others = observed.rules_elsewhere
    hint = f"; there are rules in {listed(others, _MOST_NAMED)}, which -n selects" if others else ""
    return f"no {RULES.kind} in namespace {settings.namespace}{hint}"


def _invalid_choices(observed: Observed, settings: Settings) -> list[Finding]:
    """Return the findings of namespaces whose annotation is neither true nor false; without -v, of the first ones.

    Tenants annotate their namespaces. They do not count as failures, which would prevent deletions.
    """
    found = [each for each in observed.namespaces if each.invalid_choice is not None and each.active]
    shown = found if settings.run.verbose else found[:_MOST_INVALID]
    more = f" ({len(found) - len(shown)} more namespaces, see -v)" if len(found) > len(shown) else ""
    return [
        Finding(
            "invalid",
            Severity.WARNING,
            ObjectKey(NAMESPACES.kind, each.name),
            f'annotation {OPT_IN} is "{each.invalid_choice}", which {_effect(each)}' + more * (each is shown[-1]),
        )
        for each in shown
    ]


def _effect(namespace: Namespace) -> str:
    """Return the effect of an annotation that is not valid, and the value to set."""
    if namespace.opted_out:
        return 'opts out as "false" does; set it to "false"'
    is_opt_in = (namespace.invalid_choice or "").lower() == "true"
    return "has no effect; set it to " + ('"true"' if is_opt_in else '"true" or "false"')


def _brakes(findings: Sequence[Finding], mistaken: Mapping[str, Mistake]) -> tuple[Brake, ...]:
    """Return the brakes that a person can lift: of rules that may be mistaken, and of copies that do not move."""
    held = Counter(each.subjects[0] for each in findings if each.code == SOURCE_CHANGED)
    of_sources = tuple(_brake_of_sources(rule, held[rule]) for rule in sorted(held)[:_MOST_NAMED])
    orphans = [each for each in findings if each.code == "orphan" and (each.fix or each.exit_code is ExitCode.BRAKE)]
    blocked = Counter(each.subjects[0] for each in orphans if each.exit_code is ExitCode.BRAKE)
    most = max(Counter(each.object.kind for each in orphans).values(), default=0)
    return (*of_sources, brake(mistaken, blocked, most)) if blocked else of_sources


def _brake_of_sources(rule: str, held: int) -> Brake:
    copies = "1 copy stays a copy" if held == 1 else f"{held} copies stay copies"
    message = f"rule {rule}: {copies} of a source in another namespace than the one that the rule now selects"
    return Brake(message, "--max-deletes", str(MIN_DELETES), ("--rule-name", rule))


def _decides_about_orphans(observed: Observed, settings: Settings) -> bool:
    """Whether this run evaluates possible orphans: only one that could read everything does."""
    return settings.rules is None and settings.rule_name is None and not observed.failures


def _is_in_scope(place: Place, observed: Observed, settings: Settings) -> bool:
    """Whether this run evaluates the place."""
    if not place.desired:
        return _decides_about_orphans(observed, settings)
    return settings.rule_name is None or settings.rule_name in place.rules


def _facts(observed: Observed, selected: Selected) -> Mapping[str, int]:
    sources = {(rule_type, c.source.uid) for (rule_type, _), group in selected.items() for c in group}
    active = sum(1 for namespace in observed.namespaces if namespace.active)
    return {"rules": len(observed.rules), "sources": len(sources), "namespaces": active}
