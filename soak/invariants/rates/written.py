"""Each write of fetch-rates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from soak.history import History, Key, Object
from soak.invariants.rates.documents import Document, Provided
from soak.invariants.rates.figures import FIELDS, JOB, Figures, Spec, last_figures, may_replace, owner_of, uid_of
from soak.invariants.reads import is_managed, is_terminating, possible, shown, window_start
from soak.observed import Observed, Write


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
        uid, data = owner_of(write.after), write.after.get("data") or {}
        figures = Figures.of(data)
        rates = [each for each in _rates(history, write.key.namespace, start, write.revision) if uid_of(each) == uid]
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
        uids = {uid_of(each) for each in rates}
        states = [each for each in _rates(history, write.key.namespace, start, write.revision) if uid_of(each) in uids]
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
            if uid_of(each) == owner_of(write.before) and name != write.key.name and exists:
                return
        yield "its ExchangeRate did not name another ConfigMap that exists"


def _each_last(rates: Sequence[Object], spec: Spec) -> list[Figures | None]:
    return list(dict.fromkeys(last_figures(each, spec) for each in rates))


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
            each and not is_terminating(each) and uid_of(each) != uid and Spec.of(each).configmap == write.key.name
            for each in states
        ):
            yield f"{shown(key)} named it too"
