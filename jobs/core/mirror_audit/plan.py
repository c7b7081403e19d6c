"""Compare the cluster with what RegistryMirrors define. Pure."""

from __future__ import annotations

from datetime import datetime

from jobs.core.mirror_audit.checks.evaluate import audit, unchanged
from jobs.core.mirror_audit.observed import Observed, Settings
from jobs.kit.values.findings import invalid, terminating
from jobs.kit.values.model import Plan, Summary
from jobs.kit.values.resources import REGISTRY_MIRRORS


def plan(observed: Observed, settings: Settings, _now: datetime) -> Plan:
    """Compare the cluster with what RegistryMirrors define. The same input gives the same findings, sorted."""
    found = audit(observed, settings)
    findings = [*found.findings, *map(invalid, observed.invalid_mirrors)]
    findings += [terminating(each.head.key, each.name) for each in observed.mirrors if each.head.terminating]
    if settings.verbose:
        findings += [unchanged(mirror, key) for mirror, key in found.healthy]
    return Plan(
        findings,
        len(found.healthy),
        found.needs,
        Summary({"mirrors": len(observed.mirrors)}, _note(observed), by_subject=True),
        found.fetches,
        brakes=found.brakes,
        may_progress=found.may_progress,
    )


def _note(observed: Observed) -> str:
    is_empty = not (observed.mirrors or observed.invalid_mirrors or observed.list_errors)
    return f"no {REGISTRY_MIRRORS.kind} in the cluster" if is_empty else ""
