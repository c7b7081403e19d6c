"""The figures of a rate, and when new ones may replace the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from soak.history import Object
from soak.invariants.rates.documents import Document

JOB = "fetch-rates"
DEFAULTS = ("ecb", "frankfurter")
FIELDS = ("rate", "inverse", "base", "currency", "date", "source")
MAX_CHANGE = 20
AGREEING_PERCENT = 1
PRECISION = Decimal("1e-9")


class Figures(NamedTuple):
    """The data of a ConfigMap, or the fields of a status."""

    rate: Decimal
    inverse: Decimal
    base: str
    currency: str
    date: str
    source: str

    @staticmethod
    def of(fields: Mapping[str, str] | None) -> Figures | None:
        """Return the figures, None if a field is not set or not a number."""
        values = [(fields or {}).get(name, "") for name in FIELDS]
        if not all(values):
            return None
        try:
            return Figures(Decimal(values[0]), Decimal(values[1]), *values[2:])
        except InvalidOperation:
            return None

    def is_consistent(self) -> bool:
        """Whether the inverse is that of the rate."""
        return abs(self.rate * self.inverse - 1) <= PRECISION

    def is_of(self, document: Document) -> bool:
        """Whether they are the rate of a document."""
        expected = document.rate(self.base, self.currency)
        if (self.source, self.date) != (document.provider, document.date) or expected is None:
            return False
        return abs(self.rate - expected) <= PRECISION * expected

    def are_same(self, other: Figures) -> bool:
        """Whether both are the same rate of the same day and provider."""
        return self == other or (self[2:] == other[2:] and abs(self.rate - other.rate) <= PRECISION * other.rate)


class Spec(NamedTuple):
    """What an ExchangeRate requests."""

    currency: str
    base: str
    configmap: str
    provider: str
    max_change: int

    @staticmethod
    def of(rate: Object) -> Spec:
        """Return the spec with its defaults."""
        spec = rate["spec"]
        return Spec(
            spec["currency"],
            spec.get("base", "EUR"),
            spec.get("configMapName") or rate["metadata"]["name"],
            spec.get("provider", ""),
            spec.get("maxChange") or MAX_CHANGE,
        )

    @property
    def providers(self) -> tuple[str, ...]:
        """The providers that may be used, in their order."""
        return (self.provider,) if self.provider else DEFAULTS


def change(before: Decimal, after: Decimal) -> Decimal:
    """Return the change in percent."""
    return abs(after - before) * 100 / before


def last_figures(rate: Object, spec: Spec) -> Figures | None:
    """Return the last valid rate in the status, None if it is of another currency."""
    found = Figures.of(rate.get("status"))
    return found if found and (found.base, found.currency) == (spec.base, spec.currency) else None


def may_replace(figures: Figures, last: Figures | None, spec: Spec, documents: Sequence[Document]) -> str:
    """Return why new figures must not replace the last ones, given the documents that a run may have read."""
    if figures.source not in spec.providers:
        return f"{figures.source} is not a provider of its spec"
    if not last:
        return ""
    if last.source in spec.providers and figures.date < last.date:
        return f"the last rate is of {last.date}"
    is_later = last.source in spec.providers[: spec.providers.index(figures.source)]
    if is_later and figures.date == last.date and figures.rate != last.rate:
        return f"{last.source} comes before {figures.source}, and the last rate is of the same day"
    if (percent := change(last.rate, figures.rate)) > spec.max_change and not _is_confirmed(figures, documents):
        return f"it changed by {percent:.1f} percent from {last.rate}, and no other provider confirms it"
    return ""


def _is_confirmed(figures: Figures, documents: Sequence[Document]) -> bool:
    others = (each for each in documents if each.provider in DEFAULTS and each.provider != figures.source)
    rates = (each.rate(figures.base, figures.currency) for each in others)
    return any(rate and change(figures.rate, rate) <= AGREEING_PERCENT + PRECISION for rate in rates)


def uid_of(obj: Object) -> str:
    """Return the uid of an object."""
    return str(obj["metadata"]["uid"])


def owner_of(obj: Object | None) -> str:
    """Return the uid of the ExchangeRate that owns a ConfigMap."""
    owners = obj["metadata"].get("ownerReferences", []) if obj else []
    return next((str(each["uid"]) for each in owners if each["kind"] == "ExchangeRate"), "")
