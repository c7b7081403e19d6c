"""What rules can have required during a run: what tests/model.py requires in each combination of what it can have read.

A run reads all rules with one request, so at one revision. It reads sources with several requests, and large ones
again when it writes their copies: each source can be any of its versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from soak.history import History, Key, Object
from soak.invariants.copies.stamps import JOB, RULE, source_key, source_of, stamped_source
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
        found: list[list[Copy]] = []
        for rules, namespace, sources in product(self.rules, self.namespaces, product(*self.sources.values())):
            there = [each for each in sources if each]
            copies = model.desired(rules, there, [namespace] if namespace else []).get(self.place, [])
            if copies not in found:
                found.append(copies)
        return found

    @cached_property
    def kept(self) -> set[str]:
        """The sources that the copy can have had: it stays a copy of its source."""
        return {stamped_source(each) for each in self.copies if is_managed(each, JOB)}

    def allowed(self) -> Iterator[Copy]:
        """Yield the copies that a run can write: the only one, that of the source it has, or of a shadowed one."""
        for each in map(usable, self.outcomes):
            yield from (copy for copy in each if len(each) == 1 or source_of(copy) in self.kept)
        for key in {source_key(each, self.place.kind) for each in self.kept} & self.sources.keys():
            yield from (
                copy for each in replace(self, sources={key: self.sources[key]}).outcomes for copy in usable(each)
            )

    def always(self, source: str) -> Copy | None:
        """Return a copy if one was required all the time; one of a refused source, only if it is a copy of `source`."""
        found = [next(iter(_kept(each, source)), None) for each in self.outcomes]
        return found[0] if all(found) else None

    def rule_can(self, test: Callable[[Object], bool]) -> bool:
        """Whether a rule about the place passed a test at some time."""
        return any(test(rule) for rules in self.rules for rule in rules)


def usable(copies: Iterable[Copy]) -> list[Copy]:
    """Return the copies whose sources are not refused."""
    return [each for each in copies if not each.refused]


def _kept(copies: Iterable[Copy], source: str) -> list[Copy]:
    return [each for each in copies if not each.refused or source_of(each) == source]


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
        every = [each for rules in rules for each in rules]
        keys = {key for rule in every for key in self.history.keys(kind_of(rule)) if can_select(rule, key, place)}
        sources = {key: distinct(self.states(key), essence) for key in sorted(keys)}
        used = {
            key: states
            for key, states in sources.items()
            if any(state and model.selects(rule, state) for rule in every for state in states)
        }
        namespaces = distinct(self.states(Key("Namespace", "", place.namespace)), essence)
        copies = possible(self.history, place, self.start, self.revision - 1)
        return Window(place, rules, used, namespaces, copies)


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


def kind_of(rule: Object) -> str:
    """Return the kind of a rule's sources."""
    return model.KINDS[rule["spec"]["ruleType"]]


def spaces_of(rule: Object) -> list[str]:
    """Return the namespaces of a rule's sources."""
    return list(rule["spec"].get("namespaces", [rule["metadata"]["namespace"]]))


def is_about(rule: Object, place: Key) -> bool:
    """Whether a rule can require a copy at a place."""
    spec = rule["spec"]
    kind = spec.get("copyAs", {}).get("kind", kind_of(rule))
    return bool(kind == place.kind and spec.get("targetName", place.name) == place.name)


def can_select(rule: Object, key: Key, place: Key) -> bool:
    """Whether an object of the rule's kind, if it has the labels, is a source of a copy at a place."""
    name = key.name if "targetName" in rule["spec"] else place.name
    return key.namespace in spaces_of(rule) and key.name == name and key.name in rule["spec"].get("names", [name])
