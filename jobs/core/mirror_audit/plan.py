"""Compare the cluster with what RegistryMirrors define. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from msgspec import structs

from jobs.core.mirror_audit.desired import Mirror
from jobs.core.mirror_audit.evaluate import evaluate, evaluate_together, mirrors_of
from jobs.core.mirror_audit.findings import CODES, finding, reason
from jobs.core.mirror_audit.observed import RESOURCE_KINDS, Observed, Settings
from jobs.core.mirror_audit.probes import together
from jobs.core.mirror_audit.registry_mirrors import MirrorStatus
from jobs.core.mirror_audit.repair import repairs
from jobs.core.mirror_audit.status import with_progress
from jobs.kit.values.conditions import READY
from jobs.kit.values.model import Dependency, Fetch, Finding, ManifestRequest, ObjectKey, Plan, Severity, Summary
from jobs.kit.values.reads import Head, invalid, terminating
from jobs.kit.values.resources import REGISTRY_MIRRORS

_NOT_RESPONDING = frozenset(map(reason, ("mirror-down", "upstream-down")))


def plan(observed: Observed, settings: Settings, now: datetime) -> Plan:
    """Compare the cluster with what RegistryMirrors define. The same input gives the same findings, sorted."""
    mirrors = mirrors_of(observed, settings)
    evaluated: list[Finding | Dependency | Fetch | ManifestRequest] = [*evaluate_together(mirrors, observed, settings)]
    evaluated += [found for each in mirrors for found in evaluate(each, observed, settings)]
    facts = {"mirrors": len(observed.mirrors)}
    if settings.images:
        from jobs.core.mirror_audit.image_checks import check_images

        checks = check_images(mirrors, observed, settings, now)
        evaluated += checks.parts
        facts |= {"images": checks.images, "checked": checks.checked}
    found = [each for each in evaluated if isinstance(each, Finding)]
    healthy = _healthy(mirrors, observed, {each.object for each in found})
    found = together(found, mirrors, observed)
    repaired = repairs(found, mirrors, observed, settings) if settings.repair else Plan(found)
    repaired = with_progress(repaired, observed, (), now)
    findings = [*repaired.findings, *map(invalid, observed.invalid_mirrors)]
    findings += [terminating(each.head.key, each.name) for each in observed.mirrors if each.head.terminating]
    if not settings.repair:
        findings = list(map(_with_remedy, findings))
    if settings.run.verbose:
        findings += healthy
    is_empty = not (observed.mirrors or observed.invalid_mirrors or observed.list_errors)
    return Plan(
        findings,
        len(healthy),
        [*repaired.dependencies, *(each for each in evaluated if isinstance(each, Dependency))],
        Summary(
            facts,
            f"no {REGISTRY_MIRRORS.kind} in the cluster" if is_empty else "",
            by_subject=True,
            # A repair reports each resource, because it creates them one by one.
            absent={} if settings.repair else _absent(mirrors, observed),
        ),
        _in_order([each for each in evaluated if isinstance(each, Fetch)], observed),
        brakes=repaired.brakes,
        may_progress=repaired.may_progress,
        manifests=[each for each in evaluated if isinstance(each, ManifestRequest)],
    )


def _with_remedy(found: Finding) -> Finding:
    """Return the finding of an audit with the remedy of its code; that of a repair has what blocks its write."""
    if found.remedy or found.severity is Severity.INFO:
        return found
    return structs.replace(found, remedy=CODES[found.code].remedy)


def _healthy(mirrors: Sequence[Mirror], observed: Observed, with_finding: Collection[ObjectKey]) -> list[Finding]:
    """Return the findings of the resources without problems, which --verbose prints."""
    return [
        Finding("unchanged", Severity.INFO, each.key, "", subjects=(mirror.registry_mirror.name,))
        for mirror in mirrors
        for each in mirror.resources
        if each.key in observed.resources and each.key not in with_finding
    ]


def _absent(mirrors: Sequence[Mirror], observed: Observed) -> dict[str, Finding]:
    """Return a finding for each mirror without any resource, by its name. A kind that was not read may have one."""
    if any(each.kind in observed.list_errors for each in RESOURCE_KINDS):
        return {}
    existing = observed.resources.keys() | observed.invalid.keys()
    absent = {}
    for mirror in mirrors:
        keys = [each.key for each in mirror.resources]
        if existing.isdisjoint(keys):
            its = mirror.registry_mirror
            why = f"does not exist yet: {len(keys)} resources are missing; mirror-repair creates them"
            absent[its.name] = _with_remedy(finding("missing", why, its.head.key, its))
    return absent


def _in_order(fetches: Sequence[Fetch], observed: Observed) -> list[Fetch]:
    """Sort the URLs to request: first those of mirrors that responded in the last run."""
    heads = {each.name: each.head for each in observed.mirrors}
    return sorted(fetches, key=lambda each: (_probe_order(heads[each.subject]), each))


def _probe_order(head: Head) -> int:
    """Return when to probe a mirror: those that did not respond in the last run come last.

    Each one that does not respond takes seconds from those after it.
    """
    ready = next((each for each in head.status_as(MirrorStatus).conditions if each.type == READY), None)
    if ready is None or ready.status == "Unknown" or ready.observed_generation != head.generation:
        return 1
    return 2 if ready.reason in _NOT_RESPONDING else 0
