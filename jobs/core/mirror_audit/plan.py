"""Compare the cluster with what RegistryMirrors define. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from jobs.core.mirror_audit.checks.evaluate import Evaluation, evaluate, unchanged
from jobs.core.mirror_audit.checks.mirrors import evaluate_together, mirrors_of
from jobs.core.mirror_audit.checks.probes import NO_REGISTRY
from jobs.core.mirror_audit.desired.mirror import Mirror
from jobs.core.mirror_audit.observed import Observed, Settings
from jobs.core.mirror_audit.registry_mirrors import MirrorStatus
from jobs.core.mirror_audit.repair.repairs import Repairs, repairs
from jobs.kit.values.conditions import READY
from jobs.kit.values.findings import invalid, terminating
from jobs.kit.values.model import Fetch, Finding, ObjectKey, Plan, Summary
from jobs.kit.values.reads import Head
from jobs.kit.values.resources import REGISTRY_MIRRORS


def plan(observed: Observed, settings: Settings, _now: datetime) -> Plan:
    """Compare the cluster with what RegistryMirrors define. The same input gives the same findings, sorted."""
    mirrors = mirrors_of(observed, settings)
    evaluations = [evaluate(each, observed, settings) for each in mirrors]
    found = list(evaluate_together(mirrors, observed, settings))
    found += [each for evaluation in evaluations for each in evaluation.findings]
    healthy = _healthy(mirrors, observed, {each.object for each in found})
    repaired = repairs(found, mirrors, observed, settings) if settings.repair else Repairs(found)
    findings = [*repaired.findings, *map(invalid, observed.invalid_mirrors), *_skipped(observed)]
    findings += [unchanged(mirror, key) for mirror, key in healthy] if settings.verbose else []
    return Plan(
        findings,
        len(healthy),
        [*repaired.needs, *(need for each in evaluations for need in each.needs)],
        Summary({"mirrors": len(observed.mirrors)}, _note(observed), by_subject=True),
        _fetches(evaluations),
        brakes=repaired.brakes,
        may_progress=repaired.may_progress,
    )


def _healthy(
    mirrors: Sequence[Mirror], observed: Observed, with_finding: Collection[ObjectKey]
) -> list[tuple[Mirror, ObjectKey]]:
    """Return the resources without a finding, each with its mirror."""
    resources = ((mirror, each.key) for mirror in mirrors for each in mirror.resources)
    return [(mirror, key) for mirror, key in resources if key in observed.resources and key not in with_finding]


def _skipped(observed: Observed) -> list[Finding]:
    return [terminating(each.head.key, each.name) for each in observed.mirrors if each.head.terminating]


def _note(observed: Observed) -> str:
    is_empty = not (observed.mirrors or observed.invalid_mirrors or observed.list_errors)
    return f"no {REGISTRY_MIRRORS.kind} in the cluster" if is_empty else ""


def _fetches(evaluations: Sequence[Evaluation]) -> list[Fetch]:
    """Return the URLs to request, first those of mirrors that responded in the last run."""
    fetches = (
        (_probe_order(each.mirror.registry_mirror.head), _fetch(url, each.mirror.registry_mirror.name))
        for each in evaluations
        for url in each.urls
    )
    return [fetch for _, fetch in sorted(fetches)]


def _fetch(url: str, subject: str) -> Fetch:
    """Return the probe of a URL: https of an upstream, or http of a mirror, whose response a repair may change."""
    return Fetch(url, subject, is_probe=True, again=url.startswith("http://"))


def _probe_order(head: Head) -> int:
    """Return when to probe a mirror: those that did not respond in the last run come last.

    Each one that does not respond takes seconds from those after it.
    """
    ready = next((each for each in head.status_as(MirrorStatus).conditions if each.type == READY), None)
    if ready is None or ready.status == "Unknown" or ready.observed_generation != head.generation:
        return 1
    return 2 if NO_REGISTRY in ready.message else 0
