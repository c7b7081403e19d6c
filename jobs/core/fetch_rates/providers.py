"""The providers of rates and the format of their documents. All are read as tables with base EUR."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any, NamedTuple

from jobs.core.fetch_rates.exchange_rates import PIVOT, Table, is_day

_NUMBER = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,4})?")


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
# Both publish the reference rates of the ECB. The figures of open-er-api differ, so it is only used by name.
DEFAULTS = ("ecb", "frankfurter")


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
