"""The ExchangeRate: its types and its validation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from jobs.core.fetch_rates.figures import Figures, is_rate
from jobs.kit.values.conditions import Condition
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import Head, Invalid, parse
from jobs.kit.values.resources import CONFIGMAPS

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
    """The status that an earlier run wrote: the last figures of the ConfigMap, and the conditions.

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
    def figures(self) -> Figures | None:
        """The figures, if all fields are set and valid."""
        found = Figures(self.rate, self.inverse, self.base, self.currency, self.date, self.source)
        return found if found.are_complete() else None

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
