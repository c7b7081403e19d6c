"""Rates as exact decimals: the provider's digits where it has them, ten significant digits where they are computed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext

from msgspec import Struct, structs

PIVOT = "EUR"  # what all tables are in
_COMPUTED = Context(prec=10, rounding=ROUND_HALF_EVEN)
# Beyond these no rate of a currency is meant, however it is written: the widest today are some 1:100,000.
_MOST_DIGITS = 34  # of IEEE 754 decimal128
_WIDEST_EXPONENT = 15


class Table(Struct, frozen=True):
    """What one provider says of one day: units of each currency per 1 EUR."""

    provider: str
    date: str
    rates: Mapping[str, Decimal]


class Figures(Struct, frozen=True):
    """A rate, as its ConfigMap holds it: `rate` units of `currency` per 1 `base`; `inverse` the other way round."""

    rate: str
    inverse: str
    base: str
    currency: str
    date: str
    source: str

    def are_whole(self) -> bool:
        """Whether they are figures at all, not just some fields of them or what somebody wrote into these."""
        return all(structs.astuple(self)) and is_sane(_decimal(self.rate)) and is_day(self.date)

    def are_of(self, base: str, currency: str) -> bool:
        """Whether they are what is asked for."""
        return (self.base, self.currency) == (base, currency)

    def data(self) -> dict[str, str]:
        """Return them as the data of a ConfigMap."""
        return structs.asdict(self)


class MissingError(LookupError):
    """The table has no such currency."""


class BadRateError(ValueError):
    """The table has a figure for the currency that cannot be one."""


def figures(table: Table, base: str, currency: str) -> Figures:
    """Return units of `currency` per 1 `base`: from the table as it stands if one is EUR, else rounded once.

    Raises:
        MissingError: the table lacks one of the two.
        BadRateError: what it has is not positive, not finite or out of all proportion.
    """
    one, other = _per_euro(table, base), _per_euro(table, currency)
    return Figures(_quotient(other, one), _quotient(one, other), base, currency, table.date, table.provider)


def is_sane(rate: Decimal) -> bool:
    """Whether a number can be a rate: finite, positive, and neither its size nor its digits absurd."""
    if not rate.is_finite() or rate <= 0:
        return False
    return abs(rate.adjusted()) <= _WIDEST_EXPONENT and len(rate.as_tuple().digits) <= _MOST_DIGITS


def is_day(text: str) -> bool:
    """Whether this is a day as YYYY-MM-DD, by which days sort."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def change(before: str, after: str) -> Decimal:
    """Return by how many percent `after` differs from `before`, always positive."""
    old, new = Decimal(before), Decimal(after)
    return abs(_COMPUTED.divide((new - old) * 100, old))


def same(one: str, other: str) -> bool:
    """Whether two rates are the same number, however many zeros they end with."""
    return Decimal(one) == Decimal(other)


def _per_euro(table: Table, currency: str) -> Decimal:
    if currency == PIVOT:
        return Decimal(1)
    if currency not in table.rates:
        raise MissingError(f"has no {currency}")
    rate = table.rates[currency]
    if not is_sane(rate):
        raise BadRateError(f"its {currency} is no rate: not a positive number of a sensible size")
    return rate


def _quotient(dividend: Decimal, divisor: Decimal) -> str:
    """Return the quotient; what is not divided keeps its digits."""
    return format(dividend if divisor == 1 else _COMPUTED.divide(dividend, divisor), "f")


def _decimal(text: str) -> Decimal:
    with localcontext() as context:
        context.clear_traps()
        return Decimal(text)  # what is no number is NaN
