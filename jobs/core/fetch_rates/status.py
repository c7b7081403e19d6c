"""The desired status of each ExchangeRate after a run. Pure: the same input gives the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import structs

from jobs.core.fetch_rates.evaluate import CONFLICT
from jobs.core.fetch_rates.exchange_rates import RateStatus, Spec, subject
from jobs.core.fetch_rates.figures import Figures
from jobs.core.fetch_rates.observed import Observed, Settings
from jobs.core.fetch_rates.plan import evaluations
from jobs.kit.run.refusals import REASONS, kind_of, stable_message
from jobs.kit.values.conditions import READY, Condition, StatusUpdate, new_condition, status_update
from jobs.kit.values.findings import by_subject
from jobs.kit.values.model import Outcome, Plan, Result
from jobs.kit.values.reads import Head
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


def _of_rates(
    rates: Sequence[tuple[Head, Spec | None]],
    figures: Mapping[str, Figures],
    results: Sequence[Result],
    now: datetime,
) -> list[StatusUpdate]:
    """Return the updates of the statuses that differ from the desired ones.

    `rates` are ExchangeRates, each with its spec if that is valid. `figures` are the desired figures of their
    ConfigMaps, by subject: ConfigMaps contain them if no write failed.
    """
    of_rate = by_subject(results)
    updates = (
        _status_update(head, spec, figures.get(subject(head.key)), of_rate.get(subject(head.key), []), now)
        for head, spec in sorted(rates, key=lambda each: each[0].key)
        if head.uid
    )
    return [update for update in updates if update]


def _status_update(
    head: Head, spec: Spec | None, desired: Figures | None, results: Sequence[Result], now: datetime
) -> StatusUpdate | None:
    before = head.status_as(RateStatus)
    written = all(result.outcome in (Outcome.DONE, Outcome.REPORTED) for result in results)
    figures = desired if desired and written else before.figures
    if figures and spec and not figures.are_for(spec.base, spec.currency):
        figures = None  # kubectl would print them next to another currency
    values = structs.asdict(figures) if figures else dict.fromkeys(Figures.__struct_fields__, "")
    return status_update(head, EXCHANGE_RATES, before, _condition(results), now, **values)


def _condition(results: Sequence[Result]) -> Condition:
    kinds = {kind_of(result): result for result in results}
    for kind, reason in _REASONS:
        if kind in kinds:
            return new_condition(READY, "False", reason, _message(kinds[kind]))
    if PROVIDERS_DIFFER in kinds:
        return new_condition(READY, "True", "ProvidersDiffer", _message(kinds[PROVIDERS_DIFFER]))
    return new_condition(READY, "True", "Current", "the ConfigMap contains the rate")


def _message(result: Result) -> str:
    finding = result.finding
    about = "" if finding.object.kind == EXCHANGE_RATES.kind else f"{finding.object}: "
    return f"{about}{stable_message(result)}"


def status_updates(
    observed: Observed, settings: Settings, _plan: Plan, results: Sequence[Result], now: datetime
) -> Sequence[StatusUpdate]:
    """Return the status updates of ExchangeRates in the cluster; those of files have no status."""
    if settings.rates is not None:
        return []
    found = evaluations(observed, settings, now)
    figures = {rate.subject: each.figures for rate, each in found.items() if each.figures}
    rates = [
        *((rate.head, rate.spec) for rate in observed.rates),
        *((each.head, None) for each in observed.invalid_rates),
    ]
    return _of_rates([each for each in rates if not each[0].terminating], figures, results, now)
