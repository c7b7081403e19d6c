"""Which figures an ExchangeRate gets: those of the first provider that has valid ones, else the last valid ones. Pure.

Figures of two providers are never mixed: a second provider only replaces the first one, or confirms a jump.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import ROUND_CEILING, Decimal
from operator import itemgetter
from typing import NamedTuple

from jobs.core.fetch_rates.exchange_rates import BadRateError, Figures, MissingError, Spec, Table, change, figures, same
from jobs.core.fetch_rates.providers import DEFAULTS

MOST_DAYS = 6  # at Easter, the longest break, a rate gets five days old
AGREEING_PERCENT = 1


# By provider, for the providers that were read. A text is the predicate why no ExchangeRate can use the document, such
# as "request failed: timed out".
Tables = Mapping[str, Table | str]


class ProviderNeed(NamedTuple):
    """The provider to read before the figures can be chosen."""

    provider: str


class Choice(NamedTuple):
    """The chosen figures.

    `skipped` are the reasons against the providers that come first. `differing` is empty, or the figures of two
    providers: a jump, and figures that contradict it.
    """

    figures: Figures
    skipped: tuple[str, ...] = ()
    differing: tuple[Figures, ...] = ()


class NoFigures(NamedTuple):
    """Why no provider has valid figures. `permanent`: only a user can change that, a retry cannot.

    `first_reason` is that of the first provider if it is permanent: those of the others may change with each run.
    """

    reason: str
    permanent: bool
    first_reason: str = ""


class Jump(NamedTuple):
    """Why new figures are not chosen: no other provider confirms them. `percent` is the limit that accepts them."""

    reason: str
    percent: int


class _Limit(NamedTuple):
    """The limit of a change from the last figures, and from the rate before the changes of this day."""

    last: Figures
    rate_before: str
    percent: int

    def largest_change(self, found: Figures) -> tuple[str, Decimal]:
        """Return the rate from which the figures differ most, in words, and by how many percent."""
        of_last = f"{self.last.rate} of {self.last.date}", change(self.last.rate, found.rate)
        of_day = f"{self.rate_before}, the rate before this day", change(self.rate_before, found.rate)
        return max(of_last, of_day, key=itemgetter(1))


def date_failure(table: Table, today: date) -> str:
    """Return why the date of a table is not valid today, or nothing."""
    age = (today - date.fromisoformat(table.date)).days
    if age < 0:
        return f"returned rates of {table.date}, which is in the future"
    return f"returned rates of {table.date}, more than {MOST_DAYS} days old" if age > MOST_DAYS else ""


def choose(
    spec: Spec, last: Figures | None, tables: Tables, max_change: int, rate_before: str = ""
) -> Choice | Jump | NoFigures | ProviderNeed:
    """Return the figures for the ExchangeRate, why there are none, or the provider to read first.

    `last` are the figures that it got last for this currency and base; `max_change` is in percent. `rate_before` is the
    rate before the changes of this day, by default the last one: many small changes in a day are a jump too.
    """
    limit = _Limit(last, rate_before or last.rate, max_change) if last else None
    names = (spec.provider,) if spec.provider else DEFAULTS  # in the order in which they are read
    reasons: list[str] = []
    permanent: list[bool] = []
    jumped: Figures | None = None
    for name in names:
        if name not in tables:
            return ProviderNeed(name)
        found = _figures(tables[name], spec)
        if isinstance(found, NoFigures):
            reasons.append(f"{name} {found.reason}")
            permanent.append(found.permanent)
            continue
        is_jump = limit is not None and limit.largest_change(found)[1] > max_change
        if last and _keeps_last(found, last, names):
            if jumped is None:
                return Choice(last)
            if found.date >= jumped.date and not is_jump:  # it confirms the last figures
                return Choice(last, differing=(jumped, found))
        elif is_jump:
            jumped = jumped or found
            reasons.append(f"{name} has {found.rate}")
        else:
            return Choice(found, tuple(reasons), (jumped, found) if jumped else ())
    if jumped and limit:
        return _confirmed(spec, limit, jumped, tables)
    return NoFigures("; ".join(reasons), all(permanent), reasons[0] if permanent[0] else "")


def _figures(table: Table | str, spec: Spec) -> Figures | NoFigures:
    if isinstance(table, str):
        return NoFigures(table, permanent=False)
    try:
        return figures(table, spec.base, spec.currency)
    except (MissingError, BadRateError) as error:
        return NoFigures(str(error), permanent=isinstance(error, MissingError))


def _keeps_last(found: Figures, last: Figures, names: Sequence[str]) -> bool:
    """Return whether `found` is older, or of the same day and either equal or from a later provider."""
    if last.source not in names or found.date > last.date:
        return False
    is_later = names.index(found.source) > names.index(last.source)
    return found.date < last.date or same(found.rate, last.rate) or is_later


def _confirmed(spec: Spec, limit: _Limit, jumped: Figures, tables: Tables) -> Choice | Jump | ProviderNeed:
    """Return the figures if another provider has nearly the same, else the jump."""
    others: list[Figures] = []
    for name in DEFAULTS:
        if name == jumped.source:
            continue
        if name not in tables:
            return ProviderNeed(name)
        other = _figures(tables[name], spec)
        if isinstance(other, NoFigures):
            continue
        if change(jumped.rate, other.rate) <= AGREEING_PERCENT:
            return Choice(jumped, differing=(jumped, others[0]) if others else ())
        others.append(other)
    before, percent = limit.largest_change(jumped)
    differing = f" ({', '.join(map(provider_rate, others))})" if others else ""
    reason = (
        f"{provider_rate(jumped)}, a change of {_percent(percent)} % from {before}; "
        f"the limit is {limit.percent} %, and no other provider confirms the new rate{differing}"
    )
    return Jump(reason, int(percent.to_integral_value(ROUND_CEILING)))


def provider_rate(figures: Figures) -> str:
    """Return the rate of a provider for messages: "ecb has 1.1380 of 2026-11-20"."""
    return f"{figures.source} has {figures.rate} of {figures.date}"


def _percent(value: Decimal) -> str:
    return format(value.quantize(Decimal("0.1"), ROUND_CEILING).normalize(), "f") if value < 10**9 else "over 10^9"
