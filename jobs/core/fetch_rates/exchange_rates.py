"""The ExchangeRate, and its rates as exact decimals: the digits of the provider, ten where they are computed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from functools import lru_cache
from typing import Literal

from msgspec import Struct, structs

from jobs.kit.values.conditions import Condition
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import Head, Invalid, parse
from jobs.kit.values.resources import CONFIGMAPS

PIVOT = "EUR"  # the base of all tables
_COMPUTED = Context(prec=10, rounding=ROUND_HALF_EVEN)
# A number beyond these limits is not a rate of a currency: the largest rates today are about 1:100,000.
_MOST_DIGITS = 34  # of IEEE 754 decimal128
_WIDEST_EXPONENT = 15


class Table(Struct, frozen=True):
    """The rates of one provider for one day: units of each currency per 1 EUR."""

    provider: str
    date: str
    rates: Mapping[str, Decimal]


class Quote(Struct, frozen=True):
    """A rate as its ConfigMap contains it: `rate` is units of `currency` per 1 `base`, `inverse` the reverse."""

    rate: str
    inverse: str
    base: str
    currency: str
    date: str
    source: str

    def is_complete(self) -> bool:
        """Return whether all fields are set, and rate and date are valid: users can edit them."""
        return all(structs.astuple(self)) and is_rate(self.rate) and is_day(self.date)

    def is_for(self, base: str, currency: str) -> bool:
        """Return whether they are the rate of this currency in this base."""
        return (self.base, self.currency) == (base, currency)

    def data(self) -> dict[str, str]:
        """Return the data of the ConfigMap."""
        return structs.asdict(self)


class MissingError(LookupError):
    """The table does not contain the currency."""


class BadRateError(ValueError):
    """The table contains a rate of the currency that is not valid."""


def quote(table: Table, base: str, currency: str) -> Quote:
    """Return units of `currency` per 1 `base`: the digits of the table if one of the two is EUR, else rounded once.

    Raises:
        MissingError: the table lacks one of the two.
        BadRateError: the rate of one of the two is not positive, not finite, or its size is not plausible.
    """
    one, other = _per_euro(table, base), _per_euro(table, currency)
    return Quote(_quotient(other, one), _quotient(one, other), base, currency, table.date, table.provider)


@lru_cache(maxsize=512)  # statuses have the few rates and days of providers
def is_rate(text: str) -> bool:
    """Return whether a text is a number that can be a rate: users can edit it."""
    with localcontext() as context:
        context.clear_traps()
        return is_sane(Decimal(text))  # NaN if the text is not a number


def is_sane(rate: Decimal) -> bool:
    """Return whether a number can be a rate: finite, positive, of a plausible size and number of digits."""
    if not rate.is_finite() or rate <= 0:
        return False
    return abs(rate.adjusted()) <= _WIDEST_EXPONENT and len(rate.as_tuple().digits) <= _MOST_DIGITS


@lru_cache(maxsize=512)
def is_day(text: str) -> bool:
    """Return whether the text is a date in the form YYYY-MM-DD, which sorts as text."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def change(before: str, after: str) -> Decimal:
    """Return by how many percent `after` differs from `before`, always positive."""
    old, new = Decimal(before), Decimal(after)
    return abs(_COMPUTED.divide((new - old) * 100, old))


def same(one: str, other: str) -> bool:
    """Return whether two rates are the same number: trailing zeros do not count."""
    return Decimal(one) == Decimal(other)


def _per_euro(table: Table, currency: str) -> Decimal:
    if currency == PIVOT:
        return Decimal(1)
    if currency not in table.rates:
        raise MissingError(f"has no {currency}")
    rate = table.rates[currency]
    if not is_sane(rate):
        raise BadRateError(f"has an invalid {currency} rate: not a positive number of a plausible size")
    return rate


def _quotient(dividend: Decimal, divisor: Decimal) -> str:
    """Return the quotient; a dividend that is divided by 1 keeps its digits."""
    return format(dividend if divisor == 1 else _COMPUTED.divide(dividend, divisor), "f")


ProviderName = Literal["ecb", "frankfurter", "open-er-api"]
_CURRENCY = re.compile("[A-Z]{3}")  # https://www.iso.org/iso-4217-currency-codes.html


class Spec(Struct, frozen=True, rename="camel"):
    """The spec of an ExchangeRate; its fields are described in cronjobs/crds/exchangerates.yaml."""

    currency: str
    base: str = "EUR"
    config_map_name: str = ""
    provider: ProviderName | None = None
    max_change: int | None = None


class RateStatus(Struct, frozen=True, rename="camel"):
    """The status that an earlier run wrote: the last quote of the ConfigMap, and the conditions.

    `previous_rate` is the rate before the day `changed_on`, the day of the last change.
    """

    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()
    rate: str = ""
    inverse: str = ""
    base: str = ""
    currency: str = ""
    date: str = ""
    source: str = ""
    changed_on: str = ""
    previous_rate: str = ""

    @property
    def quote(self) -> Quote | None:
        """The quote, if all fields are set and valid."""
        found = Quote(self.rate, self.inverse, self.base, self.currency, self.date, self.source)
        return found if found.is_complete() else None

    def rate_before(self, day: str) -> str:
        """Return the rate before the changes of a day."""
        return self.previous_rate if self.changed_on == day and is_rate(self.previous_rate) else self.rate


class ExchangeRate(Struct, frozen=True):
    """A valid ExchangeRate. One without a uid comes from a file or from the command line."""

    head: Head
    spec: Spec

    @property
    def configmap(self) -> ObjectKey:
        """The key of its ConfigMap."""
        at = self.head.key
        return ObjectKey(CONFIGMAPS.kind, self.spec.config_map_name or at.name, at.namespace)

    @property
    def subject(self) -> str:
        """Its name in findings: NAMESPACE/NAME."""
        return subject(self.head.key)


def subject(key: ObjectKey) -> str:
    """Return the name of an ExchangeRate in findings: NAMESPACE/NAME."""
    return f"{key.namespace}/{key.name}"


def spec_problems(spec: Spec) -> Iterator[str]:
    """Yield the problems of a spec from any origin, each with its field."""
    for field, code in (("currency", spec.currency), ("base", spec.base)):
        if not _CURRENCY.fullmatch(code):
            yield f"{field}: {code!r} is not an ISO 4217 code; use three capital letters, such as USD"
    if spec.currency == spec.base:
        yield f"currency: must differ from base, both are {spec.base}"


def parse_exchange_rate(head: Head, spec: bytes) -> ExchangeRate | Invalid:
    """Return the ExchangeRate, or the problems of its spec."""
    return parse(head, spec, Spec, spec_problems, ExchangeRate)
