"""Compare desired and observed copies, place by place. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from jobs.core.sync_copies.context import context
from jobs.core.sync_copies.desired import Place, places, targets_of_rules
from jobs.core.sync_copies.evaluate import evaluate, unchanged
from jobs.core.sync_copies.mistakes import Mistake, brake, mistakes
from jobs.core.sync_copies.observed import Observed, Settings
from jobs.core.sync_copies.sources import Selected, candidates
from jobs.kit.values.model import Brake, DesiredCounts, ExitCode, Finding, Need, Plan, Summary
from jobs.kit.values.resources import RULES


def plan(observed: Observed, settings: Settings, _now: datetime) -> Plan:
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
            desired_by_subject[rule] = desired_by_subject.get(rule, 0) + 1  # faster than a Counter, for 100,000 places
        result = evaluate(place, observed, settings, place_context)
        if isinstance(result, Need):
            needs.append(result)
        elif result is not None:
            findings.append(result)
        elif place.desired:
            unchanged_count += 1
            findings += [unchanged(place)] if settings.run.verbose else []
    return Plan(
        findings,
        unchanged_count,
        needs,
        Summary(
            _facts(observed, selected),
            "" if observed.rules or observed.failures else f"no {RULES.kind} in namespace {settings.namespace}",
        ),
        desired=DesiredCounts(desired_by_kind, desired_by_subject),
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


def _facts(observed: Observed, selected: Selected) -> Mapping[str, int]:
    sources = {(rule_type, c.source.uid) for (rule_type, _), group in selected.items() for c in group}
    active = sum(1 for namespace in observed.namespaces if namespace.active)
    return {"rules": len(observed.rules), "sources": len(sources), "namespaces": active}
