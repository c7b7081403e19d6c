"""The desired status of each ExchangeRate after a run. Pure: the same input gives the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec import structs

from jobs.core.fetch_rates.evaluate import CONFLICT
from jobs.core.fetch_rates.exchange_rates import RateStatus, Spec, subject
from jobs.core.fetch_rates.figures import Figures
from jobs.core.fetch_rates.observed import Observed, Settings
from jobs.core.fetch_rates.plan import evaluations
from jobs.kit.run.results import REASONS, kind_of, stable_message
from jobs.kit.values.conditions import READY, Condition, StatusUpdate, about, new_condition, status_update
from jobs.kit.values.model import Outcome, Plan, Result
from jobs.kit.values.reads import Head, by_subject
from jobs.kit.values.resources import EXCHANGE_RATES

PROVIDERS_DIFFER = "providers-differ"  # the rate is valid, and another provider contradicts it
# Reasons of Ready=False, by the code of a finding or by outcome; the first that applies is used.
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
)


class Reported(NamedTuple):
    """What a run reports about an ExchangeRate: its condition Ready, and the figures that its ConfigMap contains."""

    head: Head
    figures: Figures | None
    condition: Condition


def status_updates(
    observed: Observed, settings: Settings, _plan: Plan, results: Sequence[Result], now: datetime
) -> Sequence[StatusUpdate]:
    """Return the status updates of ExchangeRates in the cluster that are not being deleted."""
    updates = (_status_update(each, now) for each in reported(observed, settings, results, now))
    return [update for update in updates if update]


def reported(observed: Observed, settings: Settings, results: Sequence[Result], now: datetime) -> list[Reported]:
    """Return what to report about the ExchangeRates in the cluster that are not being deleted, by name."""
    figures = {rate: each.figures for rate, each in evaluations(observed, settings, now).items()}
    rates = [
        *((each.head, each.spec, figures.get(each)) for each in observed.rates),
        *((each.head, None, None) for each in observed.invalid_rates),
    ]
    of_rate = by_subject(results)
    return [
        _report(head, spec, desired, of_rate.get(subject(head.key), []))
        for head, spec, desired in sorted(rates, key=lambda each: each[0].key)
        if head.uid and not head.terminating  # those of files have no uid
    ]


def _report(head: Head, spec: Spec | None, desired: Figures | None, results: Sequence[Result]) -> Reported:
    """Return what to report; `desired` are the figures of the ConfigMap, which contains them if no write failed."""
    written = all(result.outcome in (Outcome.DONE, Outcome.REPORTED) for result in results)
    figures = desired if desired and written else head.status_as(RateStatus).figures
    if figures and spec and not figures.are_for(spec.base, spec.currency):
        figures = None  # kubectl would print them next to another currency
    return Reported(head, figures, _condition(results))


def _status_update(reported: Reported, now: datetime) -> StatusUpdate | None:
    head, figures = reported.head, reported.figures
    before = head.status_as(RateStatus)
    values = structs.asdict(figures) if figures else dict.fromkeys(Figures.__struct_fields__, "")
    values |= _last_change(before, figures, now)
    return status_update(head, EXCHANGE_RATES, before, reported.condition, now, **values)


def _last_change(before: RateStatus, figures: Figures | None, now: datetime) -> dict[str, str]:
    """Return the day of the last change of a rate, and the rate before that day."""
    if not (figures and before.figures and figures.are_for(before.base, before.currency)):
        return {"changed_on": "", "previous_rate": ""}
    if figures.rate == before.rate:
        return {"changed_on": before.changed_on, "previous_rate": before.previous_rate}
    today = str(now.date())
    return {"changed_on": today, "previous_rate": before.rate_before(today)}


def _condition(results: Sequence[Result]) -> Condition:
    kinds = {kind_of(result): result for result in results}
    for kind, reason in _REASONS:
        if kind in kinds:
            return new_condition(READY, "False", reason, _message(kinds[kind]))
    if PROVIDERS_DIFFER in kinds:
        return new_condition(READY, "True", "ProvidersDiffer", _message(kinds[PROVIDERS_DIFFER]))
    return new_condition(READY, "True", "Current", "the ConfigMap contains the rate")


def _message(result: Result) -> str:
    return about(result.finding.object, EXCHANGE_RATES, stable_message(result))
