"""The providers of rates, the format of their documents, and which quote an ExchangeRate gets. Pure.

All documents are read as tables with base EUR. An ExchangeRate gets the quote of the first provider that has a valid
one, else the last valid one. Quotes of two providers are never mixed: a second provider only replaces the first one,
or confirms a jump.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import ROUND_CEILING, Decimal
from operator import itemgetter
from typing import Any, NamedTuple

from jobs.core.fetch_rates.exchange_rates import (
    PIVOT,
    BadRateError,
    MissingError,
    Quote,
    Spec,
    Table,
    change,
    is_day,
    quote,
    same,
)

_NUMBER = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,4})?")
# Both publish the reference rates of the ECB. The figures of open-er-api differ, so it is only used by name.
DEFAULTS = ("ecb", "frankfurter")
MOST_DAYS = 6  # at Easter, the longest break, a rate gets five days old
AGREEING_PERCENT = 1
# By provider, for the providers that were read. A text is the predicate why no ExchangeRate can use the document, such
# as "request failed: timed out".
Tables = Mapping[str, Table | str]


class BadDocumentError(ValueError):
    """A document that does not have the format of its provider."""


class Provider(NamedTuple):
    """A publisher of rates: the default URL of its document, and the function that reads it."""

    url: str
    read: Callable[[bytes], tuple[str, Mapping[str, Decimal]]]


def table(provider: str, document: bytes) -> Table:
    """Return the rates of a provider's document.

    Raises:
        BadDocumentError: the document does not have the format that the provider publishes.
    """
    day, rates = PROVIDERS[provider].read(document)
    return Table(provider, day, rates)


def _read_ecb(document: bytes) -> tuple[str, Mapping[str, Decimal]]:
    """Read https://www.ecb.europa.eu/stats/policy_and_exchange_rates/euro_reference_exchange_rates ."""
    from xml.etree.ElementTree import ParseError

    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import fromstring

    try:
        root = fromstring(document, forbid_dtd=True)
    except DefusedXmlException as error:
        raise BadDocumentError("returned XML with a DTD or entities, which is not allowed") from error
    except (ParseError, ValueError, LookupError) as error:  # LookupError: an unknown encoding
        raise BadDocumentError("returned a document that is not XML") from error
    days = root.findall(".//{*}Cube[@time]")
    if len(days) != 1:
        raise BadDocumentError(f"returned rates of {len(days)} days instead of one")
    cubes = days[0].findall("{*}Cube[@currency][@rate]")
    rates = _unique((cube.attrib["currency"], _number(cube.attrib["rate"])) for cube in cubes)
    return _day(days[0].attrib["time"]), rates


def _read_frankfurter(document: bytes) -> tuple[str, Mapping[str, Decimal]]:
    """Read https://frankfurter.dev/v1/ ."""
    content = _json(document)
    if content.get("base") != PIVOT or content.get("amount") != 1:
        raise BadDocumentError(f"returned rates with a base other than 1 {PIVOT}")
    return _day(content.get("date")), _rates(content)


def _read_open_er_api(document: bytes) -> tuple[str, Mapping[str, Decimal]]:
    """Read https://www.exchangerate-api.com/docs/free ."""
    content = _json(document)
    if content.get("result") != "success":
        raise BadDocumentError("returned a result other than success")
    if content.get("base_code") != PIVOT:
        raise BadDocumentError(f"returned rates with a base other than {PIVOT}")
    seconds = content.get("time_last_update_unix")
    try:
        # As an int a number such as 1e999999999 would take all memory; as a float it is infinite.
        day = datetime.fromtimestamp(float(seconds), timezone.utc).date().isoformat()  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise BadDocumentError("returned no valid date") from error
    return day, _rates(content)


# DEFAULTS are read in this order; the others are only read if an ExchangeRate names them.
PROVIDERS: Mapping[str, Provider] = {
    "ecb": Provider("https://www.ecb.europa.eu/stats/eurofxref/eurofxref-daily.xml", _read_ecb),
    "frankfurter": Provider("https://api.frankfurter.dev/v1/latest", _read_frankfurter),
    "open-er-api": Provider("https://open.er-api.com/v6/latest/EUR", _read_open_er_api),
}


def _json(document: bytes) -> dict[str, Any]:
    """Return a JSON object; its numbers are decimals with all their digits."""
    try:
        content = json.loads(
            document, parse_float=Decimal, parse_int=Decimal, parse_constant=Decimal, object_pairs_hook=_unique
        )
    except BadDocumentError:
        raise
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise BadDocumentError("returned a document that is not JSON") from error
    if not isinstance(content, dict):
        raise BadDocumentError("returned JSON that is not an object")
    return content


def _rates(content: Mapping[str, Any]) -> Mapping[str, Decimal]:
    rates = content.get("rates")
    if not isinstance(rates, dict):
        raise BadDocumentError("returned no rates")
    return {code: rate if isinstance(rate, Decimal) else Decimal("NaN") for code, rate in rates.items()}


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise BadDocumentError("returned a document with a duplicate name")
        found[name] = value
    return found


def _number(text: str) -> Decimal:
    """Return the number, or NaN if it is not valid: only its own currency fails then."""
    return Decimal(text if _NUMBER.fullmatch(text) else "NaN")


def _day(text: object) -> str:
    if isinstance(text, str) and is_day(text):
        return text
    raise BadDocumentError("returned no valid date")


class ProviderNeed(NamedTuple):
    """The provider to read before the quote can be chosen."""

    provider: str


class Choice(NamedTuple):
    """The chosen quote.

    `skipped` are the reasons against the providers that come first. `differing` is empty, or the quotes of two
    providers: a jump, and one that contradicts it.
    """

    quote: Quote
    skipped: tuple[str, ...] = ()
    differing: tuple[Quote, ...] = ()


class NoQuote(NamedTuple):
    """Why no provider has a valid quote. `permanent`: only a user can change that, a retry cannot.

    `first_reason` is that of the first provider if it is permanent: those of the others may change with each run.
    """

    reason: str
    permanent: bool
    first_reason: str = ""


class Jump(NamedTuple):
    """Why a new quote is not chosen: no other provider confirms it. `percent` is the limit that accepts it."""

    reason: str
    percent: int


class _Limit(NamedTuple):
    """The limit of a change from the last quote, and from the rate before the changes of this day."""

    last: Quote
    rate_before: str
    percent: int

    def largest_change(self, found: Quote) -> tuple[str, Decimal]:
        """Return the rate from which the quote differs most, in words, and by how many percent."""
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
    spec: Spec, last: Quote | None, tables: Tables, max_change: int, rate_before: str = ""
) -> Choice | Jump | NoQuote | ProviderNeed:
    """Return the quote for the ExchangeRate, why there is none, or the provider to read first.

    `last` is the quote that it got last for this currency and base; `max_change` is in percent. `rate_before` is the
    rate before the changes of this day, by default the last one: many small changes in a day are a jump too.
    """
    limit = _Limit(last, rate_before or last.rate, max_change) if last else None
    names = (spec.provider,) if spec.provider else DEFAULTS  # in the order in which they are read
    reasons: list[str] = []
    permanent: list[bool] = []
    jumped: Quote | None = None
    for name in names:
        if name not in tables:
            return ProviderNeed(name)
        found = _quote(tables[name], spec)
        if isinstance(found, NoQuote):
            reasons.append(f"{name} {found.reason}")
            permanent.append(found.permanent)
            continue
        is_jump = limit is not None and limit.largest_change(found)[1] > max_change
        if last and _keeps_last(found, last, names):
            if jumped is None:
                return Choice(last)
            if found.date >= jumped.date and not is_jump:  # it confirms the last quote
                return Choice(last, differing=(jumped, found))
        elif is_jump:
            jumped = jumped or found
            reasons.append(f"{name} has {found.rate}")
        else:
            return Choice(found, tuple(reasons), (jumped, found) if jumped else ())
    if jumped and limit:
        return _confirmed(spec, limit, jumped, tables)
    return NoQuote("; ".join(reasons), all(permanent), reasons[0] if permanent[0] else "")


def _quote(table: Table | str, spec: Spec) -> Quote | NoQuote:
    if isinstance(table, str):
        return NoQuote(table, permanent=False)
    try:
        return quote(table, spec.base, spec.currency)
    except (MissingError, BadRateError) as error:
        return NoQuote(str(error), permanent=isinstance(error, MissingError))


def _keeps_last(found: Quote, last: Quote, names: Sequence[str]) -> bool:
    """Return whether `found` is older, or of the same day and either equal or from a later provider."""
    if last.source not in names or found.date > last.date:
        return False
    is_later = names.index(found.source) > names.index(last.source)
    return found.date < last.date or same(found.rate, last.rate) or is_later


def _confirmed(spec: Spec, limit: _Limit, jumped: Quote, tables: Tables) -> Choice | Jump | ProviderNeed:
    """Return the quote if another provider has nearly the same, else the jump."""
    others: list[Quote] = []
    for name in DEFAULTS:
        if name == jumped.source:
            continue
        if name not in tables:
            return ProviderNeed(name)
        other = _quote(tables[name], spec)
        if isinstance(other, NoQuote):
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


def provider_rate(quote: Quote) -> str:
    """Return the rate of a provider for messages: "ecb has 1.1380 of 2026-11-20"."""
    return f"{quote.source} has {quote.rate} of {quote.date}"


def _percent(value: Decimal) -> str:
    return format(value.quantize(Decimal("0.1"), ROUND_CEILING).normalize(), "f") if value < 10**9 else "over 10^9"
