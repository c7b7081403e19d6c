"""Which figures an ExchangeRate gets: from the first provider that has good ones, or the last good ones. Pure.

Nothing from two providers is ever mixed: a second one only takes the place of the first, or confirms a jump.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import ROUND_CEILING, Decimal
from typing import NamedTuple

from msgspec import Struct

from jobs.rates.exchange_rates import Spec
from jobs.rates.figures import BadRateError, Figures, MissingError, Table, change, figures, same
from jobs.rates.providers import DEFAULTS

MOST_DAYS = 6  # at Easter, the longest break, a rate gets five days old
AGREEING_PERCENT = 1


class Unusable(Struct, frozen=True):
    """Why a provider's document is of no use to anybody."""

    reason: str


Answers = Mapping[str, Table | Unusable]  # by provider, as far as they were asked


class Ask(NamedTuple):
    """The provider that must be asked before more can be said."""

    provider: str


class Choice(NamedTuple):
    """Figures, and what was wrong with those of providers that come before.

    `contradiction` is empty, or figures of two providers: a jump, and what denies it.
    """

    figures: Figures
    instead_of: tuple[str, ...] = ()
    contradiction: tuple[Figures, ...] = ()


class Refusal(NamedTuple):
    """Why no provider's figures are good. `lasting`: only a person can change that, asking again cannot.

    `first` is the reason of the first provider if that is lasting: those of the others may change with each run.
    """

    reason: str
    lasting: bool
    first: str = ""


class Jump(NamedTuple):
    """Figures that differ from the last ones by more than is allowed, and that nobody confirms."""

    figures: Figures
    reason: str
    percent: int  # what must be allowed for these


def unusable_by_date(table: Table, today: date) -> Unusable | None:
    """Return why a table of that date is not used on this day, if it is not."""
    age = (today - date.fromisoformat(table.date)).days
    if age < 0:
        return Unusable(f"is of {table.date}, which is in the future")
    return Unusable(f"is of {table.date}, more than {MOST_DAYS} days old") if age > MOST_DAYS else None


def chain(spec: Spec) -> Sequence[str]:
    """Return the providers of an ExchangeRate, the one to ask first first."""
    return (spec.provider,) if spec.provider else DEFAULTS


def choose(spec: Spec, last: Figures | None, answers: Answers, max_change: int) -> Choice | Jump | Refusal | Ask:
    """Return the figures that the ExchangeRate should have, why it can have none, or whom to ask first.

    `last` are the figures that it was given last of this currency and base, `max_change` is in percent.
    """
    names = chain(spec)
    reasons: list[str] = []
    lasting: list[bool] = []
    jumped: Figures | None = None
    for name in names:
        if name not in answers:
            return Ask(name)
        found = _from(answers[name], spec)
        if isinstance(found, Refusal):
            reasons.append(f"{name} {found.reason}")
            lasting.append(found.lasting)
        elif last and _is_no_news(found, last, names):
            if jumped is None:
                return Choice(last)
            if _denies(jumped, last, found, max_change):
                return Choice(last, contradiction=(jumped, found))
        elif last and change(last.rate, found.rate) > max_change:
            jumped = jumped or found
            reasons.append(f"{name} has {found.rate}")
        else:
            return Choice(found, tuple(reasons), (jumped, found) if jumped else ())
    if jumped and last:
        return _confirmed(spec, last, jumped, answers, max_change)
    return Refusal("; ".join(reasons), all(lasting), reasons[0] if lasting[0] else "")


def _from(answer: Table | Unusable, spec: Spec) -> Figures | Refusal:
    if isinstance(answer, Unusable):
        return Refusal(answer.reason, lasting=False)
    try:
        return figures(answer, spec.base, spec.currency)
    except MissingError as error:
        return Refusal(str(error), lasting=True)
    except BadRateError as error:
        return Refusal(str(error), lasting=False)


def _is_no_news(found: Figures, last: Figures, names: Sequence[str]) -> bool:
    """Whether to keep the last figures: these are older, or as old and the same or from a lesser provider."""
    if last.source not in names or found.date > last.date:
        return False
    if found.date < last.date or same(found.rate, last.rate):
        return True
    return names.index(found.source) > names.index(last.source)


def _denies(jumped: Figures, last: Figures, found: Figures, max_change: int) -> bool:
    """Whether a provider that knows the day of a jump has none: then the last figures are good, not just held."""
    return found.date >= jumped.date and change(last.rate, found.rate) <= max_change


def _confirmed(spec: Spec, last: Figures, jumped: Figures, answers: Answers, max_change: int) -> Choice | Jump | Ask:
    """Return the figures if another provider has nearly the same, else the jump."""
    others: list[Figures] = []
    for name in DEFAULTS:
        if name == jumped.source:
            continue
        if name not in answers:
            return Ask(name)
        other = _from(answers[name], spec)
        if isinstance(other, Figures) and change(jumped.rate, other.rate) <= AGREEING_PERCENT:
            return Choice(jumped, contradiction=(jumped, others[0]) if others else ())
        others += [other] if isinstance(other, Figures) else []
    percent = change(last.rate, jumped.rate)
    denials = f" ({', '.join(map(said, others))})" if others else ""
    reason = (
        f"{said(jumped)}, {_percent(percent)} % from {last.rate} of {last.date}: "
        f"more than {max_change} %, and no other provider agrees{denials}"
    )
    return Jump(jumped, reason, int(percent.to_integral_value(ROUND_CEILING)))


def said(figures: Figures) -> str:
    """Return what a provider has."""
    return f"{figures.source} has {figures.rate} of {figures.date}"


def _percent(value: Decimal) -> str:
    return format(value.quantize(Decimal("0.1"), ROUND_CEILING).normalize(), "f") if value < 10**9 else "over 10^9"
