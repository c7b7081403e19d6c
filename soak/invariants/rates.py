"""A rate is never older or further off than docs/fetch-rates.md promises."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from soak.history import History, Key, Object
from soak.invariants.reads import (
    RUNS,
    changed_at,
    each_write,
    is_managed,
    is_terminating,
    latest,
    possible,
    runs_since,
    shown,
    window_start,
)
from soak.observed import Invariant, Observed, Write
from soak.rate_server import Served

JOB = "fetch-rates"
DEFAULTS = ("ecb", "frankfurter")
FIELDS = ("rate", "inverse", "base", "currency", "date", "source")
MOST_DAYS = 6
MAX_CHANGE = 20
AGREEING_PERCENT = 1
PRECISION = Decimal("1e-9")
TROUBLE = "tenant-provider-"


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
    is_later = last.source in spec.providers and spec.providers.index(figures.source) > spec.providers.index(
        last.source
    )
    if is_later and figures.date == last.date and figures.rate != last.rate:
        return f"{last.source} comes before {figures.source}, and the last rate is of the same day"
    if (percent := change(last.rate, figures.rate)) > spec.max_change and not _is_confirmed(figures, documents):
        return f"it changed by {percent:.1f} percent from {last.rate}, and no other provider confirms it"
    return ""


def _is_confirmed(figures: Figures, documents: Sequence[Document]) -> bool:
    for each in documents:
        if each.provider in DEFAULTS and each.provider != figures.source:
            rate = each.rate(figures.base, figures.currency)
            if rate and change(figures.rate, rate) <= AGREEING_PERCENT + PRECISION:
                return True
    return False


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


@dataclass(frozen=True)
class Rates:
    """Check each write of fetch-rates to a ConfigMap or to the status of an ExchangeRate."""

    provided: Provided

    def __call__(self, observed: Observed, write: Write) -> Iterator[str]:
        """Yield a sentence for each rule that the write violates."""
        about = f"{write.verb} of {shown(write.key)} by {write.pod}"
        start = window_start(observed, write)
        check = self._status if write.key.kind == "ExchangeRate" else self._configmap
        yield from (f"{about}: {each}" for each in check(observed.history, write, start))

    def _status(self, history: History, write: Write, start: float) -> Iterator[str]:
        if write.subresource != "status" or not write.before or not write.after:
            yield "only patches of the status are allowed"
            return
        figures, before = Figures.of(write.after.get("status")), Figures.of(write.before.get("status"))
        if figures and figures != before:
            earlier = replace(write, revision=write.revision - 1)
            yield from self._figures(figures, [write.before], history, earlier, start)

    def _configmap(self, history: History, write: Write, start: float) -> Iterator[str]:
        if write.before and not is_managed(write.before, JOB):
            yield "it was not managed by kube-chores"
        if not write.after:
            yield from self._deletion(history, write, start)
            return
        uid, data = _owner(write.after), write.after.get("data") or {}
        figures = Figures.of(data)
        rates = [each for each in _rates(history, write.key.namespace, start, write.revision) if _uid(each) == uid]
        named = [each for each in rates if Spec.of(each).configmap == write.key.name]
        if not named:
            yield "no ExchangeRate of its owner named it at any time of the run"
        elif not figures or set(data) != set(FIELDS):
            yield f"its data are not a rate: {data}"
        else:
            yield from self._figures(figures, named, history, write, start)
        yield from _collision(history, write, start, uid)

    def _figures(
        self, figures: Figures, rates: Sequence[Object], history: History, write: Write, start: float
    ) -> Iterator[str]:
        """Compare with what the run may have read: the documents, and all states of the ExchangeRate."""
        if not figures.is_consistent():
            yield f"the inverse {figures.inverse} is not that of {figures.rate}"
        uids = {_uid(each) for each in rates}
        states = [each for each in _rates(history, write.key.namespace, start, write.revision) if _uid(each) in uids]
        documents = self.provided.between(start, write.seconds)
        reasons = [
            self._reason(figures, Spec.of(one), last, documents)
            for one in (*rates, *states)
            for last in _each_last([*states, *rates], Spec.of(one))
        ]
        if all(reasons):
            yield f"{figures.rate} of {figures.date} from {figures.source}: {reasons[-1]}"

    def _reason(self, figures: Figures, spec: Spec, last: Figures | None, documents: Sequence[Document]) -> str:
        if (figures.base, figures.currency) != (spec.base, spec.currency):
            return f"its spec has {spec.currency} per {spec.base}"
        if last and figures.are_same(last):
            return ""
        if not any(figures.is_of(each) for each in documents):
            return "no provider sent this rate with a valid date during the run, and it is not the last valid rate"
        return may_replace(figures, last, spec, documents)

    def _deletion(self, history: History, write: Write, start: float) -> Iterator[str]:
        """Yield why a ConfigMap must not be deleted: its ExchangeRate named it all the time, or no other exists."""
        for each in _rates(history, write.key.namespace, start, write.revision):
            name = Spec.of(each).configmap
            other = Key("ConfigMap", write.key.namespace, name)
            exists = any(possible(history, other, start, write.revision))
            if _uid(each) == _owner(write.before) and name != write.key.name and exists:
                return
        yield "its ExchangeRate did not name another ConfigMap that exists"


def _each_last(rates: Sequence[Object], spec: Spec) -> list[Figures | None]:
    return list(dict.fromkeys(last_figures(each, spec) for each in rates))


def _uid(obj: Object) -> str:
    return str(obj["metadata"]["uid"])


def _owner(obj: Object | None) -> str:
    """Return the uid of the ExchangeRate that owns a ConfigMap."""
    owners = obj["metadata"].get("ownerReferences", []) if obj else []
    return next((str(each["uid"]) for each in owners if each["kind"] == "ExchangeRate"), "")


def _rates(history: History, namespace: str, start: float, revision: int) -> list[Object]:
    """Return all states of all ExchangeRates of a namespace that a run may have read."""
    keys = [key for key in history.keys("ExchangeRate") if key.namespace == namespace]
    return [each for key in keys for each in possible(history, key, start, revision) if each]


def _collision(history: History, write: Write, start: float, uid: str) -> Iterator[str]:
    """Yield the other ExchangeRate that named the ConfigMap all the time."""
    for key in history.keys("ExchangeRate"):
        if key.namespace != write.key.namespace:
            continue
        states = possible(history, key, start, write.revision)
        if all(
            each and not is_terminating(each) and _uid(each) != uid and Spec.of(each).configmap == write.key.name
            for each in states
        ):
            yield f"{shown(key)} named it too"


@dataclass
class Current:
    """Check that each ConfigMap has the current rate in time."""

    provided: Provided
    prefix: str
    _reported: set[tuple[Key, float]] = field(default_factory=set)

    def __call__(self, observed: Observed) -> Iterator[str]:
        """Yield a sentence for each ConfigMap that several runs with good providers did not update."""
        since, documents = self.provided.current()
        for version in observed.history.now("ExchangeRate"):
            if version.object and version.key.namespace.startswith(self.prefix):
                yield from self._rate(observed, version.key, version.object, since, documents)

    def _rate(
        self, observed: Observed, key: Key, rate: Object, since: float, documents: Mapping[str, Document]
    ) -> Iterator[str]:
        history, spec = observed.history, Spec.of(rate)
        place = Key("ConfigMap", key.namespace, spec.configmap)
        found = latest(history, place)
        if is_terminating(rate) or is_terminating(latest(history, Key("Namespace", "", key.namespace))):
            return
        if found and (not is_managed(found, JOB) or is_terminating(found)):
            return
        if self._collides(history, key, spec):
            return
        why = self._problem(rate, spec, found, documents)
        began = max(since, changed_at(history, key), changed_at(history, place), self._others(history, key, spec))
        if why and (key, began) not in self._reported and self._is_late(observed, began):
            self._reported.add((key, began))
            yield f"{shown(key)} is unchanged, and {why}"

    def _problem(self, rate: Object, spec: Spec, found: Object | None, documents: Mapping[str, Document]) -> str:
        usable = [documents[name] for name in spec.providers if name in documents]
        usable = [each for each in usable if each.rate(spec.base, spec.currency)]
        if not usable:
            return ""
        if not found:
            return f"ConfigMap {spec.configmap} does not exist"
        figures, last = Figures.of(found.get("data")), last_figures(rate, spec)
        if not figures or _owner(found) != _uid(rate):
            return f"ConfigMap {spec.configmap} has no rate, or another owner"
        if last and last.date > usable[0].date and figures.are_same(last):
            return ""  # a provider had a later date before
        expected = usable[0]._replace(provider=figures.source)
        if figures.source in spec.providers and figures.is_of(expected):
            return ""
        if last and figures.are_same(last) and self._is_jump(last, spec, expected, documents):
            return ""
        current = usable[0].rate(spec.base, spec.currency)
        return f"ConfigMap {spec.configmap} has {dict(zip(FIELDS, map(str, figures), strict=True))}, not {current}"

    def _is_jump(self, last: Figures, spec: Spec, document: Document, documents: Mapping[str, Document]) -> bool:
        """Whether the current rate must be blocked."""
        current = document.rate(spec.base, spec.currency)
        assert current
        figures = Figures(current, 1 / current, spec.base, spec.currency, document.date, spec.providers[0])
        return bool(may_replace(figures, last, spec, list(documents.values())))

    def _collides(self, history: History, key: Key, spec: Spec) -> bool:
        others = (each for each in history.now("ExchangeRate") if each.key.namespace == key.namespace)
        return any(
            each.object and each.key != key and Spec.of(each.object).configmap == spec.configmap for each in others
        )

    def _others(self, history: History, key: Key, spec: Spec) -> float:
        """Return the last time when an ExchangeRate was changed that ever named the same ConfigMap."""
        keys = [each for each in history.keys("ExchangeRate") if each.namespace == key.namespace]
        of_others = {each: [one.object for one in history.versions(each) if one.object] for each in keys}
        sharing = [
            each
            for each, objects in of_others.items()
            if any(Spec.of(one).configmap == spec.configmap for one in objects)
        ]
        return max((changed_at(history, each) for each in sharing), default=0.0)

    def _is_late(self, observed: Observed, since: float) -> bool:
        if observed.settled:
            return True
        runs = runs_since(observed, JOB, since)
        if len(runs) < RUNS:
            return False
        troubles = observed.journal.faults_between(runs[-1].created, runs[0].ended)
        return not any(each.kind.startswith(TROUBLE) for each in troubles)


def invariants(provided: Provided, prefix: str = "rates-") -> Sequence[Invariant]:
    """Return the invariants of rates; `prefix` is that of the tenants' namespaces."""
    return (
        each_write("rates", JOB, ("ConfigMap", "ExchangeRate"), Rates(provided)),
        Invariant("rates-current", Current(provided, prefix)),
    )
