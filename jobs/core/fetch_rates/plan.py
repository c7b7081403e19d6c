"""Compare each ExchangeRate with its ConfigMap. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from datetime import datetime

from msgspec import structs

from jobs.core.fetch_rates.choice import ProviderFailure, ProviderNeed
from jobs.core.fetch_rates.evaluate import Evaluation, collision, evaluate, orphans, unchanged
from jobs.core.fetch_rates.exchange_rates import ExchangeRate
from jobs.core.fetch_rates.observed import Observed, Settings
from jobs.core.fetch_rates.providers import PROVIDERS
from jobs.kit.values.model import (
    Brake,
    DesiredCounts,
    ExitCode,
    Fetch,
    Finding,
    Need,
    ObjectKey,
    Plan,
    Severity,
    Summary,
)
from jobs.kit.values.reads import terminating
from jobs.kit.values.resources import CONFIGMAPS, EXCHANGE_RATES
from jobs.kit.values.text import without_credentials


def plan(observed: Observed, settings: Settings, now: datetime) -> Plan:
    """Compare each ExchangeRate with its ConfigMap; the same input gives the same findings in the same order."""
    found = evaluations(observed, settings, now)
    by_configmap = _by_configmap(observed)
    findings = [*observed.failures, *_provider_failures(observed, settings, now)]
    findings += [finding for each in found.values() for finding in each.findings]
    findings += [collision(rates) for rates in by_configmap.values() if len(rates) > 1]
    findings += [terminating(rate.head.key, rate.subject) for rate in observed.rates if rate.head.terminating]
    current = {rate: each.figures for rate, each in found.items() if each.figures and not each.findings}
    existing = [rate for rate, each in found.items() if each.figures and not each.is_missing]
    findings += orphans(observed, by_configmap, {rate.head.uid: rate for rate in existing if rate.head.uid})
    if settings.rates is None and not settings.namespace:
        limited = {rate.subject for rate in observed.rates if rate.spec.max_change}
        findings = [_as_warning(each) if _is_tenant_problem(each, limited) else each for each in findings]
    if settings.run.verbose:
        findings += [unchanged(rate, figures) for rate, figures in current.items()]
    needs = [each.need for each in found.values()]
    providers = {need.provider for need in needs if isinstance(need, ProviderNeed)}
    return Plan(
        findings,
        len(current),
        [need for need in needs if isinstance(need, Need)],
        Summary(
            {"rates": len(observed.rates), "providers": len(observed.pages)},
            "" if observed.rates or observed.failures else f"no {EXCHANGE_RATES.kind} in {_where(settings)}",
        ),
        [Fetch(settings.urls[provider]) for provider in PROVIDERS if provider in providers],
        DesiredCounts({CONFIGMAPS.kind: len(by_configmap)}, {rate.subject: 1 for rate in observed.rates}),
        brakes=_brakes([each for rate, each in found.items() if rate.spec.max_change is None], settings),
    )


def _is_tenant_problem(finding: Finding, limited: Container[str]) -> bool:
    """Return whether only the author of an ExchangeRate can resolve this; `limited` are subjects with maxChange."""
    if finding.code == "jump":
        return all(name in limited for name in finding.subjects)
    return finding.code in ("invalid", "collision", "unavailable") and finding.exit_code is ExitCode.REFUSED


def _as_warning(finding: Finding) -> Finding:
    return structs.replace(finding, severity=Severity.WARNING, exit_code=ExitCode.DONE)


def evaluations(observed: Observed, settings: Settings, now: datetime) -> dict[ExchangeRate, Evaluation]:
    """Return the evaluation of each ExchangeRate that is alone with its ConfigMap; none if the list failed."""
    if observed.list_failed:
        return {}
    tables = observed.tables(settings.urls, now.date())
    unique = (rates[0] for _, rates in sorted(_by_configmap(observed).items()) if len(rates) == 1)
    return {rate: evaluate(rate, observed, settings, tables, now.date()) for rate in unique}


def _by_configmap(observed: Observed) -> dict[ObjectKey, list[ExchangeRate]]:
    found: dict[ObjectKey, list[ExchangeRate]] = {}
    for rate in observed.rates:
        if not rate.head.terminating:
            found.setdefault(rate.configmap, []).append(rate)
    return found


def _provider_failures(observed: Observed, settings: Settings, now: datetime) -> Iterator[Finding]:
    for provider, table in observed.tables(settings.urls, now.date()).items():
        if isinstance(table, ProviderFailure):
            reason = f"{without_credentials(settings.urls[provider])} {table.reason}"
            yield Finding("provider-failed", Severity.WARNING, ObjectKey("Provider", provider), reason)


def _where(settings: Settings) -> str:
    return f"namespace {settings.namespace}" if settings.namespace else "any namespace"


def _brakes(evaluations: Iterable[Evaluation], settings: Settings) -> tuple[Brake, ...]:
    """Return the brake of jumps over --max-change, with the value that accepts them all."""
    blocked = [each.jump.percent for each in evaluations if each.jump]
    if not blocked or settings.rates is not None:
        return ()
    what = f"{len(blocked)} rates" if len(blocked) > 1 else "1 rate"
    are = "are" if len(blocked) > 1 else "is"
    message = f"{what} changed by more than {settings.max_change} % and {are} not updated"
    return (Brake(message, "--max-change", str(max(blocked))),)
