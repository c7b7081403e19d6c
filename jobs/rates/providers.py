"""Who publishes rates, and what their documents look like. All are read as tables of EUR; crosses are computed here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any, NamedTuple

from jobs.rates.figures import PIVOT, Table, is_day

_NUMBER = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,4})?")


class BadDocumentError(ValueError):
    """A document that is not what its provider publishes."""


class Provider(NamedTuple):
    """A publisher of rates: where its document is, unless told otherwise, and how it is read."""

    url: str
    read: Callable[[bytes], tuple[str, Mapping[str, Decimal]]]


def table(provider: str, document: bytes) -> Table:
    """Return what a document of this provider says.

    Raises:
        BadDocumentError: it is not of the shape that the provider publishes.
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
        raise BadDocumentError("is XML with a DTD or entities, which no document of rates has") from error
    except (ParseError, ValueError, LookupError) as error:  # also for an encoding that nobody knows
        raise BadDocumentError("is no XML") from error
    days = root.findall(".//{*}Cube[@time]")
    if len(days) != 1:
        raise BadDocumentError(f"has rates of {len(days)} days, not of one")
    cubes = days[0].findall("{*}Cube[@currency][@rate]")
    rates = _unique((cube.attrib["currency"], _number(cube.attrib["rate"])) for cube in cubes)
    return _day(days[0].attrib["time"]), rates


def _read_frankfurter(document: bytes) -> tuple[str, Mapping[str, Decimal]]:
    """Read https://frankfurter.dev/v1/ ."""
    content = _json(document)
    if content.get("base") != PIVOT or content.get("amount") != 1:
        raise BadDocumentError(f"is of another base than 1 {PIVOT}")
    return _day(content.get("date")), _rates(content)


def _read_open_er_api(document: bytes) -> tuple[str, Mapping[str, Decimal]]:
    """Read https://www.exchangerate-api.com/docs/free ."""
    content = _json(document)
    if content.get("result") != "success":
        raise BadDocumentError("does not say that it is a success")
    if content.get("base_code") != PIVOT:
        raise BadDocumentError(f"is of another base than {PIVOT}")
    seconds = content.get("time_last_update_unix")
    try:
        # As an int a number such as 1e999999999 would take all memory; as a float it is infinite.
        day = datetime.fromtimestamp(float(seconds), timezone.utc).date().isoformat()  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise BadDocumentError("has no date") from error
    return day, _rates(content)


# The order is the one in which they are asked, as far as they are asked without being named: see DEFAULTS.
PROVIDERS: Mapping[str, Provider] = {
    "ecb": Provider("https://www.ecb.europa.eu/stats/eurofxref/eurofxref-daily.xml", _read_ecb),
    "frankfurter": Provider("https://api.frankfurter.dev/v1/latest", _read_frankfurter),
    "open-er-api": Provider("https://open.er-api.com/v6/latest/EUR", _read_open_er_api),
}
# Both publish the reference rates of the ECB. The figures of open-er-api differ, so it has to be named.
DEFAULTS = ("ecb", "frankfurter")


def _json(document: bytes) -> dict[str, Any]:
    """Return a JSON object with its numbers as decimals, digit by digit."""
    try:
        content = json.loads(
            document, parse_float=Decimal, parse_int=Decimal, parse_constant=Decimal, object_pairs_hook=_unique
        )
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise error if isinstance(error, BadDocumentError) else BadDocumentError("is no JSON") from error
    if not isinstance(content, dict):
        raise BadDocumentError("is no JSON object")
    return content


def _rates(content: Mapping[str, Any]) -> Mapping[str, Decimal]:
    rates = content.get("rates")
    if not isinstance(rates, dict):
        raise BadDocumentError("has no rates")
    return {code: rate if isinstance(rate, Decimal) else Decimal("NaN") for code, rate in rates.items()}


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise BadDocumentError("names something twice")
        found[name] = value
    return found


def _number(text: str) -> Decimal:
    """Return the number, or NaN: what is no number spoils its own currency only."""
    return Decimal(text if _NUMBER.fullmatch(text) else "NaN")


def _day(text: object) -> str:
    if isinstance(text, str) and is_day(text):
        return text
    raise BadDocumentError("has no date")
