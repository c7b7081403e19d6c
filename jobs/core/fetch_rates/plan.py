"""Compare each ExchangeRate with its ConfigMap; status and metrics of each after a run. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import NamedTuple

from msgspec import structs

from jobs.core.fetch_rates.evaluate import CONFLICT, Evaluation, collision, evaluate, orphans, unchanged
from jobs.core.fetch_rates.exchange_rates import ExchangeRate, Quote, RateStatus, Spec, subject
from jobs.core.fetch_rates.observed import Observed, Settings
from jobs.core.fetch_rates.providers import PROVIDERS, ProviderNeed
from jobs.kit.run.brakes import in_turns
from jobs.kit.run.gauges import Metric, Sample, of_resources
from jobs.kit.run.results import REASONS, kind_of, stable_message
from jobs.kit.values.conditions import READY, Condition, StatusUpdate, about, new_condition, status_update
from jobs.kit.values.model import (
    Brake,
    Dependency,
    DesiredCounts,
    ExitCode,
    Fetch,
    Finding,
    ObjectKey,
    Outcome,
    Plan,
    Result,
    Severity,
    Summary,
)
from jobs.kit.values.reads import Head, by_subject, terminating
from jobs.kit.values.resources import CONFIGMAPS, EXCHANGE_RATES
from jobs.kit.values.text import without_credentials

_PROVIDERS_DIFFER = "providers-differ"  # the rate is valid, and another provider contradicts it
# Reasons of the condition Ready, by the code of a finding or by outcome; the first that applies is used.
_REASONS = (
    ("invalid", "Invalid"),
    ("unreadable", "Unreadable"),
    ("failed", "Failed"),
    *REASONS,
    ("collision", "Collision"),
    ("conflict", CONFLICT),
    ("skipped", "Terminating"),
    ("jump", "Jump"),
    ("unavailable", "Unavailable"),
    (_PROVIDERS_DIFFER, "ProvidersDiffer"),
)
# Reasons that another run may find resolved.
_TRANSIENT = frozenset({"Failed", "Terminating", "Unavailable", "Unreadable", "WebhookFailed", "WriteConflict"})


def plan(observed: Observed, settings: Settings, now: datetime) -> Plan:
    """Compare each ExchangeRate with its ConfigMap; the same input gives the same findings in the same order."""
    by_configmap = _by_configmap(observed)
    found = _evaluations(by_configmap, observed, settings, now)
    findings = [*observed.failures, *_provider_failures(observed, settings, now)]
    findings += [finding for each in found.values() for finding in each.findings]
    findings += [collision(rates) for rates in by_configmap.values() if len(rates) > 1]
    findings += [terminating(rate.head.key, rate.subject) for rate in observed.rates if rate.head.terminating]
    current = {rate: each.quote for rate, each in found.items() if each.quote and not each.findings}
    missing = {finding.object for finding in findings if finding.code == "missing"}
    existing = [rate for rate, each in found.items() if each.quote and rate.configmap not in missing]
    findings += orphans(observed, by_configmap, {rate.head.uid: rate for rate in existing if rate.head.uid})
    if settings.rates is None and not settings.namespace:
        limited = {rate.subject for rate in observed.rates if rate.spec.max_change}
        findings = [_as_warning(each, limited) for each in findings]
    if settings.run.verbose:
        findings += [unchanged(rate, quote) for rate, quote in current.items()]
    where = f"namespace {settings.namespace}" if settings.namespace else "any namespace"
    dependencies = [each.dependency for each in found.values()]
    providers = {dependency.provider for dependency in dependencies if isinstance(dependency, ProviderNeed)}
    return Plan(
        findings,
        len(current),
        [dependency for dependency in dependencies if isinstance(dependency, Dependency)],
        Summary(
            {"rates": len(observed.rates), "providers": len(observed.downloads)},
            "" if observed.rates or observed.failures else f"no {EXCHANGE_RATES.kind} in {where}",
        ),
        [Fetch(settings.urls[provider]) for provider in PROVIDERS if provider in providers],
        DesiredCounts({CONFIGMAPS.kind: len(by_configmap)}, {rate.subject: 1 for rate in observed.rates}),
        brakes=_brakes([each for rate, each in found.items() if rate.spec.max_change is None], settings),
        computed={rate: each.quote for rate, each in found.items()},
    )


def _as_warning(finding: Finding, limited: Container[str]) -> Finding:
    """Make it a warning if only the author of an ExchangeRate can resolve it; `limited` are subjects with maxChange."""
    of_author = finding.code in ("invalid", "collision", "unavailable") and finding.exit_code is ExitCode.REFUSED
    if of_author or (finding.code == "jump" and all(name in limited for name in finding.subjects)):
        return structs.replace(finding, severity=Severity.WARNING, exit_code=ExitCode.DONE)
    return finding


def _evaluations(
    by_configmap: Mapping[ObjectKey, Sequence[ExchangeRate]], observed: Observed, settings: Settings, now: datetime
) -> dict[ExchangeRate, Evaluation]:
    """Return the evaluation of each ExchangeRate that is alone with its ConfigMap; none if the list failed."""
    if observed.list_failed:
        return {}
    today = now.date()
    tables = observed.tables(settings.urls, today)
    unique = (rates[0] for _, rates in sorted(by_configmap.items()) if len(rates) == 1)
    return {rate: evaluate(rate, observed, settings, tables, today) for rate in unique}


def _by_configmap(observed: Observed) -> dict[ObjectKey, list[ExchangeRate]]:
    found: dict[ObjectKey, list[ExchangeRate]] = {}
    for rate in observed.rates:
        if not rate.head.terminating:
            found.setdefault(rate.configmap, []).append(rate)
    return found


def _provider_failures(observed: Observed, settings: Settings, now: datetime) -> Iterator[Finding]:
    for provider, table in observed.tables(settings.urls, now.date()).items():
        if isinstance(table, str):
            reason = f"{without_credentials(settings.urls[provider])} {table}"
            yield Finding("provider-failed", Severity.WARNING, ObjectKey("Provider", provider), reason)


def _brakes(evaluations: Iterable[Evaluation], settings: Settings) -> tuple[Brake, ...]:
    """Return the brake of jumps over --max-change, with the value that accepts them all."""
    blocked = [each.jump.percent for each in evaluations if each.jump]
    if not blocked or settings.rates is not None:
        return ()
    what, are = (f"{len(blocked)} rates", "are") if len(blocked) > 1 else ("1 rate", "is")
    message = f"{what} changed by more than {settings.max_change} % and {are} not updated"
    return (Brake(message, "--max-change", str(max(blocked))),)


class Reported(NamedTuple):
    """What a run reports about an ExchangeRate: its condition Ready, and the quote that its ConfigMap contains."""

    head: Head
    quote: Quote | None
    condition: Condition


def status_updates(
    observed: Observed, _settings: Settings, plan: Plan, results: Sequence[Result], now: datetime
) -> Sequence[StatusUpdate]:
    """Return the status updates of ExchangeRates in the cluster that are not being deleted."""
    updates = []
    for head, quote, condition in reported(observed, plan, results):
        before = head.status_as(RateStatus)
        values = structs.asdict(quote) if quote else dict.fromkeys(Quote.__struct_fields__, "")
        values |= _last_change(before, quote, now)
        updates.append(status_update(head, EXCHANGE_RATES, before, condition, now, transient=_TRANSIENT, **values))
    return [update for update in updates if update]


def reported(observed: Observed, plan: Plan, results: Sequence[Result]) -> list[Reported]:
    """Return what to report about the ExchangeRates in the cluster that are not being deleted, by name."""
    rates = [
        *((each.head, each.spec, plan.computed.get(each)) for each in observed.rates),
        *((each.head, None, None) for each in observed.invalid_rates),
    ]
    of_rate = by_subject(results)
    return [
        _report(head, spec, desired, of_rate.get(subject(head.key), []))
        for head, spec, desired in sorted(rates, key=lambda each: each[0].key)
        if head.uid and not head.terminating  # those of files have no uid
    ]


def _report(head: Head, spec: Spec | None, desired: Quote | None, results: Sequence[Result]) -> Reported:
    """Return what to report; `desired` is the quote of the ConfigMap, which contains it if no write failed."""
    written = all(result.outcome in (Outcome.DONE, Outcome.REPORTED) for result in results)
    quote = desired if desired and written else head.status_as(RateStatus).quote
    if quote and spec and not quote.is_for(spec.base, spec.currency):
        quote = None  # kubectl would print them next to another currency
    return Reported(head, quote, _condition(results))


def _last_change(before: RateStatus, quote: Quote | None, now: datetime) -> dict[str, str]:
    """Return the day of the last change of a rate, and the rate before that day."""
    if not (quote and before.quote and quote.is_for(before.base, before.currency)):
        return {"changed_on": "", "previous_rate": ""}
    if quote.rate == before.rate:
        return {"changed_on": before.changed_on, "previous_rate": before.previous_rate}
    today = str(now.date())
    return {"changed_on": today, "previous_rate": before.rate_before(today)}


def _condition(results: Sequence[Result]) -> Condition:
    by_kind = {kind_of(result): result for result in results}
    for kind, reason in _REASONS:
        if result := by_kind.get(kind):
            message = about(result.finding.object, EXCHANGE_RATES, stable_message(result))
            return new_condition(READY, "True" if kind == _PROVIDERS_DIFFER else "False", reason, message)
    return new_condition(READY, "True", "Current", "the ConfigMap contains the rate")


RATE_TIMESTAMP = Metric(
    "kube_chores_rate_timestamp_seconds", "Time of the start of the day of a rate, in UTC.", ("rate",)
)
RATE_READY = Metric("kube_chores_rate_ready", "1 if condition Ready of an ExchangeRate is True, else 0.", ("rate",))


def gauges(
    observed: Observed, _settings: Settings, plan: Plan, results: Sequence[Result], _now: datetime
) -> Iterator[Sample]:
    """Yield the metrics of the ExchangeRates in the cluster."""
    # One namespace with many ExchangeRates does not displace those of others.
    rates = in_turns(reported(observed, plan, results), lambda each: each.head.key.namespace)
    dated = [(subject(each.head.key), datetime.fromisoformat(each.quote.date)) for each in rates if each.quote]
    starts = [(name, day.replace(tzinfo=timezone.utc).timestamp()) for name, day in dated]
    yield from of_resources(RATE_TIMESTAMP, starts)
    yield from of_resources(RATE_READY, ((subject(each.head.key), each.condition.status == "True") for each in rates))
