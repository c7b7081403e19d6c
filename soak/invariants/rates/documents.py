"""What the providers of rates send."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from soak.rate_server import Served

MOST_DAYS = 6


class Document(NamedTuple):
    """The rates of a provider for a day: units of each currency per 1 EUR. No rates: the document is not valid."""

    provider: str
    date: str
    rates: Mapping[str, Decimal]

    def rate(self, base: str, currency: str) -> Decimal | None:
        """Return units of a currency per 1 base, None if one of them is missing."""
        per_euro = {"EUR": Decimal(1), **self.rates}
        if not self.rates or base not in per_euro or currency not in per_euro:
            return None
        return per_euro[currency] / per_euro[base]

    def is_valid(self, days: Iterable[datetime.date]) -> bool:
        """Whether the date is valid on one of these days."""
        return any(0 <= (day - datetime.date.fromisoformat(self.date)).days <= MOST_DAYS for day in days)


@dataclass
class Provided:
    """The documents of the providers: those that exist, which were sent when, and what the providers do now."""

    documents: Mapping[str, Document]
    served: Callable[[], Sequence[Served]]
    current: Callable[[], tuple[float, Mapping[str, Document]]]

    def between(self, start: float, end: float) -> list[Document]:
        """Return the valid documents that were sent in this time; their date is valid then."""
        days = _days(start, end)
        names = {each.document for each in self.served() if start <= each.seconds <= end}
        found = [self.documents[name] for name in sorted(names)]
        return [each for each in found if each.rates and each.is_valid(days)]


def _days(*times: float) -> list[datetime.date]:
    return [datetime.date(*time.gmtime(each)[:3]) for each in times]
