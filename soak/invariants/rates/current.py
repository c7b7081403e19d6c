"""Each ConfigMap has the current rate in time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from soak.history import History, Key, Object
from soak.invariants.rates.documents import Document, Provided
from soak.invariants.rates.figures import FIELDS, JOB, Figures, Spec, last_figures, may_replace, owner_of, uid_of
from soak.invariants.reads import RUNS, changed_at, is_managed, is_terminating, latest, runs_since, shown
from soak.observed import Observed

TROUBLE = "tenant-provider-"


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
        if not figures or owner_of(found) != uid_of(rate):
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
        keys = (each for each in history.keys("ExchangeRate") if each.namespace == key.namespace)
        named = {each: [Spec.of(one.object).configmap for one in history.versions(each) if one.object] for each in keys}
        return max((changed_at(history, each) for each in named if spec.configmap in named[each]), default=0.0)

    def _is_late(self, observed: Observed, since: float) -> bool:
        if observed.settled:
            return True
        runs = runs_since(observed, JOB, since)
        if len(runs) < RUNS:
            return False
        troubles = observed.journal.faults_between(runs[-1].created, runs[0].ended)
        return not any(each.kind.startswith(TROUBLE) for each in troubles)
