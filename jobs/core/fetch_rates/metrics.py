"""The metrics of fetch-rates: the age and the state of each ExchangeRate. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from jobs.core.fetch_rates.exchange_rates import subject
from jobs.core.fetch_rates.observed import Observed, Settings
from jobs.core.fetch_rates.plan import reported
from jobs.kit.run.gauges import Metric, Sample, of_resources
from jobs.kit.values.model import Plan, Result
from jobs.kit.values.turns import in_turns

RATE_TIMESTAMP = Metric(
    "kube_chores_rate_timestamp_seconds", "Time of the start of the day of a rate, in UTC.", ("rate",)
)
RATE_READY = Metric("kube_chores_rate_ready", "1 if condition Ready of an ExchangeRate is True, else 0.", ("rate",))


def gauges(
    observed: Observed, settings: Settings, _plan: Plan, results: Sequence[Result], now: datetime
) -> Iterator[Sample]:
    """Yield the metrics of the ExchangeRates in the cluster."""
    # One namespace with many ExchangeRates does not displace those of others.
    rates = in_turns(reported(observed, settings, results, now), lambda each: each.head.key.namespace)
    dated = [(subject(each.head.key), datetime.fromisoformat(each.figures.date)) for each in rates if each.figures]
    starts = [(name, day.replace(tzinfo=timezone.utc).timestamp()) for name, day in dated]
    yield from of_resources(RATE_TIMESTAMP, starts)
    yield from of_resources(RATE_READY, ((subject(each.head.key), each.condition.status == "True") for each in rates))
