"""The metrics of mirror-audit: the state and the findings of each RegistryMirror. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from jobs.core.mirror_audit.observed import Observed, Settings
from jobs.core.mirror_audit.status import conditions
from jobs.kit.run.gauges import MOST_RESOURCES, OMITTED, Metric, Sample, of_resources
from jobs.kit.values.model import Plan, Result, Severity

MIRROR_READY = Metric(
    "kube_chores_mirror_ready",
    "1 if condition Ready of a RegistryMirror is True, 0 if it is False; no series if it is Unknown.",
    ("mirror",),
)
MIRROR_FINDINGS = Metric("kube_chores_mirror_findings", "Findings about a RegistryMirror.", ("mirror", "severity"))


def gauges(
    observed: Observed, settings: Settings, plan: Plan, results: Sequence[Result], _now: datetime
) -> Iterator[Sample]:
    """Yield the metrics of the RegistryMirrors in the cluster, by name."""
    found = conditions(observed, settings, results)
    known = [
        (head.key.name, condition.status == "True") for head, _, condition in found if condition.status != "Unknown"
    ]
    yield from of_resources(MIRROR_READY, known)
    for head, findings, _ in found[:MOST_RESOURCES]:
        counted = Counter(each.severity for each in findings)
        for severity in Severity:
            if severity is not Severity.INFO:
                yield MIRROR_FINDINGS.sample(counted[severity], head.key.name, severity.value)
    yield OMITTED.sample(max(0, len(found) - MOST_RESOURCES), MIRROR_FINDINGS.name)
