"""What rules can have required during a run: what tests/model.py requires in each combination of what it can have read.

A run reads all rules with one request, so at one revision. It reads sources with several requests, and large ones
again when it writes their copies: each source can be any of its versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from soak.history import History, Key, Object
from soak.invariants.copies.stamps import JOB, RULE, source_key, stamped_source
from soak.invariants.reads import distinct, essence, is_managed, possible
from tests import model
from tests.model import Copy


@dataclass(frozen=True)
class Window:
    """What a run can have read about one place: rules of each revision, and the states of everything else."""

    place: Key
    rules: list[list[Object]]
    sources: Mapping[Key, list[Object | None]]
    namespaces: list[Object | None]
    copies: list[Object | None]

    @cached_property
    def outcomes(self) -> list[list[Copy]]:
        """What rules can have required at the place, each list once: of two copies, neither is created."""
        every = product(self.rules, self.namespaces, product(*self.sources.values()))
        found = [
            model.desired(rules, filter(None, sources), [namespace] if namespace else []).get(self.place, [])
            for rules, namespace, sources in every
        ]
        return distinct(found, lambda copies: copies)

    @cached_property
    def allowed(self) -> list[Copy]:
        """The copies that a run can write: the only one, that of the source it has, also if that is shadowed."""
        kept = {stamped_source(each) for each in self.copies if is_managed(each, JOB)}
        usual = [(copy, len(each)) for each in map(usable, self.outcomes) for copy in each]
        found = [copy for copy, number in usual if number == 1 or copy.source in kept]
        for key in {source_key(each, self.place.kind) for each in kept} & self.sources.keys():
            found += [
                copy for each in replace(self, sources={key: self.sources[key]}).outcomes for copy in usable(each)
            ]
        return found

    def always(self, source: str) -> Copy | None:
        """Return a copy if one was required all the time; one of a refused source, only if it is a copy of `source`."""
        found = [
            next((copy for copy in each if not copy.refused or copy.source == source), None) for each in self.outcomes
        ]
        return found[0] if all(found) else None


def usable(copies: Iterable[Copy]) -> list[Copy]:
    """Return the copies whose sources are not refused."""
    return [each for each in copies if not each.refused]


class Reads:
    """What a run can have read from a time up to a revision."""

    def __init__(self, history: History, start: float, revision: int) -> None:
        self.history, self.start, self.revision = history, start, revision
        self.rules = list(_snapshots(history, start, revision))

    def states(self, key: Key) -> list[Object | None]:
        """Return the states of an object."""
        return possible(self.history, key, self.start, self.revision)

    def about(self, place: Key) -> Window:
        """Return what is about a place."""
        about = ([each for each in rules if is_about(each, place)] for rules in self.rules)
        rules = distinct(about, lambda rules: [essence(each) for each in rules])
        keys = {key for each in rules for rule in each for key in sources_at(self.history, rule, place)}
        sources = {key: distinct(self.states(key), essence) for key in sorted(keys)}
        used = {
            key: states
            for key, states in sources.items()
            if any(state and model.selects(rule, state) for each in rules for rule in each for state in states)
        }
        namespaces = distinct(self.states(Key("Namespace", "", place.namespace)), essence)
        return Window(place, rules, used, namespaces, possible(self.history, place, self.start, self.revision - 1))


def _snapshots(history: History, start: float, revision: int) -> Iterator[list[Object]]:
    """Yield all rules at each revision."""
    now: dict[Key, Object | None] = {}
    changes = []
    for key in history.keys(RULE):
        versions = history.during(key, start, revision)
        begin = 1 if versions and versions[0].seconds <= start else 0
        now[key] = versions[0].object if begin else None
        changes += versions[begin:]
    yield [each for each in now.values() if each]
    for change in sorted(changes, key=lambda each: each.revision):
        now[change.key] = change.object
        yield [each for each in now.values() if each]


def spaces_of(rule: Object | None) -> list[str]:
    """Return the namespaces of a rule's sources."""
    return list(rule["spec"].get("namespaces", [rule["metadata"]["namespace"]])) if rule else []


def is_about(rule: Object, place: Key) -> bool:
    """Whether a rule can require a copy at a place."""
    spec = rule["spec"]
    kind = spec.get("copyAs", {}).get("kind", model.KINDS[spec["ruleType"]])
    return bool(kind == place.kind and spec.get("targetName", place.name) == place.name)


def sources_at(history: History, rule: Object, place: Key) -> list[Key]:
    """Return the objects that are sources of a rule's copy at a place while they have the labels."""
    spec, spaces = rule["spec"], spaces_of(rule)
    keys = [each for each in history.keys(model.KINDS[spec["ruleType"]]) if each.namespace in spaces]
    names = spec.get("names", [each.name for each in keys])
    return [each for each in keys if each.name in names and ("targetName" in spec or each.name == place.name)]
