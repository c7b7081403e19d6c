"""Compare baselines with the current config of each workload. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from jobs.core.roll_workloads.baseline import ROLL_OPT_IN
from jobs.core.roll_workloads.budget import within_budget
from jobs.core.roll_workloads.evaluate import evaluate
from jobs.core.roll_workloads.key import Key, key_secret_patch
from jobs.core.roll_workloads.observed import Observed, Settings
from jobs.kit.values.model import Finding, Need, ObjectKey, Plan, Severity, Summary, WriteOrder


def plan(observed: Observed, settings: Settings, now: datetime) -> Plan:
    """Compare baselines with the current config; the same input gives the same findings in the same order."""
    findings = list(observed.failures)
    needs: set[Need] = set()
    unchanged: list[ObjectKey] = []
    for key in observed.opted_in:
        result = evaluate(key, observed, settings, now)
        if isinstance(result, Finding):
            findings.append(result)
        elif result is None:
            unchanged.append(key)
        else:
            needs.update(result)
    findings, substitutes = within_budget(findings, settings.max_rolls)
    if settings.verbose:
        findings += [Finding("unchanged", Severity.INFO, key, "runs with its current config") for key in unchanged]
    return Plan(
        findings,
        len(unchanged),
        needs,
        Summary(
            {"workloads": len(observed.opted_in), "sources": len(observed.sources)},
            "" if observed.opted_in or observed.failures else _note(observed.namespaces, settings.namespace),
        ),
        order=WriteOrder(prerequisites=_prerequisites(observed), substitutes=substitutes),
    )


def _note(namespaces: Sequence[str], only: str) -> str:
    """Return the note of a run that found no workload that opted in."""
    if not namespaces:
        return f"no workload in {f'namespace {only}' if only else 'any namespace'} has the annotation {ROLL_OPT_IN}"
    count = len(namespaces)
    subject = f"namespace {namespaces[0]} has" if count == 1 else f"{count} namespaces have"
    return f"{subject} the annotation {ROLL_OPT_IN}, but no Deployment, StatefulSet or DaemonSet that opted in"


def _prerequisites(observed: Observed) -> tuple[Finding, ...]:
    """Return the write of a missing key, on which fingerprints of Secrets depend."""
    if observed.key_secret and isinstance(observed.key, Key) and observed.key.empty_secret:
        return (key_secret_patch(observed.key_secret, observed.key),)
    return ()
