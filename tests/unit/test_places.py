"""Decisions about places: `make docs` writes the table of this test into docs/sync-copies.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from jobs.core.sync_copies.desired import places
from jobs.core.sync_copies.evaluate import evaluate
from jobs.core.sync_copies.observed import Namespace, Observed, refused
from jobs.core.sync_copies.rules import Rule, Targets
from jobs.core.sync_copies.state import context, found, required
from jobs.kit.data.objects import ReducedObject
from jobs.kit.values import stamps
from jobs.kit.values.errors import ApiError, InvalidObjectError
from jobs.kit.values.model import Action, Dependency, Finding, ObjectKey, Severity
from jobs.kit.values.reads import unreadable
from tests.unit.test_plan import CONTENT, SETTINGS, copy, observed, rule, source

# What rules require, what the run finds, the code of the finding, and what the run does: the first row that fits.
TABLE = """\
| one copy | an equal copy | `unchanged` | leaves it |
| one copy | nothing | `missing` | creates the copy |
| one copy | an older copy | `outdated` | replaces it |
| one copy | an edited copy | `drifted` | replaces it |
| one copy | a copy in doubt | `unreadable` | leaves it |
| one copy | a copy of a source in another namespace | `source-changed` | leaves it, and exits 4 |
| one copy | a terminating copy | `terminating` | leaves it; a later run recreates it |
| one copy | an object to adopt | `adopted` | replaces it |
| one copy | another object | `conflict` | leaves it |
| one copy | a place to read first | | reads the object, then decides |
| no copy | an orphan | `orphan` | deletes it |
| no copy | an opted-out orphan | `opted-out` | deletes it |
| no copy | an orphan to retain | `retained` | leaves it |
| no copy | an orphan of a mistaken rule | `orphan` | leaves it, and exits 4 |
| no copy | a copy in doubt | `unreadable` | leaves it |
| no copy | a copy of a refused source | | leaves it |
| no copy | a terminating copy | `orphan` | leaves it |
| no copy | another object or nothing | | leaves it |
| a copy of a reserved name | anything | `reserved-name` | leaves it |
| several copies | anything | `collision` | leaves it |
| a copy, not opted in | anything | `not-opted-in` | leaves it, and exits 2 |
| anything | an unreadable object | `unreadable` | leaves it |
""".splitlines()
ANYTHING = "anything"
VERBS = {Action.CREATE: "creates", Action.REPLACE: "replaces", Action.DELETE: "deletes", None: "leaves"}
PLACE = ObjectKey("ConfigMap", "settings", "team")


class Row(NamedTuple):
    """A row of the table: what decides, the code of the finding, and the verb of what the run does."""

    required: str
    found: str
    code: str
    verb: str

    def covers(self, other: Row) -> bool:
        """Whether this is the row for a place whose state is that of `other`."""
        return self.required in (ANYTHING, other.required) and self.found in (ANYTHING, other.found)


def rows() -> Iterator[Row]:
    for line in TABLE:
        required, found, code, does = (cell.strip(" `") for cell in line.strip("|").split("|"))
        yield from (Row(required, each, code, does.split()[0]) for each in found.split(" or "))


def decided(world: Observed) -> Row:
    """What a run finds and does at the place in namespace team, or kube-team."""
    known = context(world, SETTINGS)
    found_places = places(world, known.found.selected, known.targets, known.found.shadowed)
    (place,) = (each for each in found_places if each.key.namespace.endswith("team"))
    state = required(place, known), found(place, known)
    result = evaluate(place, known)
    if isinstance(result, Dependency):
        return Row(*state, "", "reads")
    if result is None:
        return Row(*state, "unchanged" if place.desired else "", "leaves")
    return Row(*state, result.code, VERBS[result.change.action if result.change else None])


def worlds() -> Iterator[Observed]:
    """One world for each row of the table, in any order."""
    its_rule, its_source = rule(), source()
    equal = copy("team", its_source, its_rule)

    def changed(labels: dict[str, str] | None = None, **annotations: str) -> ReducedObject:
        keys = {f"kubechores.dev/{name}": value for name, value in annotations.items()}
        header = equal.header
        both = {"labels": {**header.labels, **(labels or {})}, "annotations": {**header.annotations, **keys}}
        return replace(equal, header=replace(header, **both))

    terminating = replace(equal, header=replace(equal.header, terminating=True))
    foreign = replace(changed({stamps.MANAGED_BY: ""}), content=CONTENT)
    unread = Finding("unreadable", Severity.CRITICAL, its_rule.head.key, "")

    def one(*copies: ReducedObject, by: Rule = its_rule) -> Observed:
        return observed([by], [its_source], [*copies], "team")

    yield one(equal)
    yield one()
    yield one(changed(fingerprint="old"))
    yield one(changed({stamps.RULE_HASH: "edited"}))
    yield replace(one(changed(source="other/settings")), failures=(unread,))
    both = replace(its_rule, spec=replace(its_rule.spec, namespaces=("other", "home")))
    moved = copy("team", source("other"), both)
    yield observed([both], [its_source], [moved], "team")
    yield one(terminating)
    yield one(foreign, by=rule(conflict="Adopt"))
    yield one(foreign)
    yield one(copy("team", its_source, its_rule, "kubectl"))

    def none(*copies: ReducedObject, by: Rule = its_rule) -> Observed:
        return observed([by], [], [*copies], "team")

    namespaces = (Namespace("home", {}, True, False), Namespace("team", {}, True, opted_out=True))
    invalid = unreadable(ObjectKey("ConfigMap", "settings", "home"), InvalidObjectError("is not valid"))
    mistaken = replace(its_rule, head=replace(its_rule.head, generation=2))
    yield none(equal)
    yield replace(none(equal), namespaces=namespaces)
    yield none(equal, by=rule(orphans="Retain"))
    yield none(equal, by=mistaken)
    yield replace(none(equal), sources=dict.fromkeys(none().sources, (invalid,)))
    without_key = refused(invalid.object, "has no key a")
    yield replace(none(equal), sources=dict.fromkeys(none().sources, (without_key,)))
    yield none(terminating)
    yield none(foreign)
    yield replace(none(equal), single_reads={PLACE: None})

    reserved = replace(its_source, name="sync-copies-settings")
    its_copy = replace(equal, name=reserved.name)
    world = observed([its_rule], [reserved], [], "team")
    yield replace(world, copies={"configmap": {reserved.name: {"team": its_copy}}})
    yield observed([rule("a"), rule("b", "other")], [its_source, source("other")], [], "team")
    yield observed([rule(targets=Targets(include=("kube-team",)))], [its_source], [], "kube-team")
    yield replace(one(equal), single_reads={PLACE: ApiError(500, "cannot be decoded")})


def test_a_run_does_at_each_place_what_is_in_the_table() -> None:
    left = list(rows())
    for done in map(decided, worlds()):
        row = next(row for row in left if row.covers(done))
        assert row[2:] == done[2:], done
        left.remove(row)  # each row has one world

    assert left == []
