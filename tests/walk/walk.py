"""The walk over one field: the outcome of each mutation, the way back, and a new cluster with the final spec."""

import copy
import fcntl
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tests.sweeps import sampled

Object = dict[str, Any]
ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).parent / "README.md"
COLUMNS = (("changes",), ("nothing",), ("refused", "invalid"))
ABSENT = object()
WRONG_TYPES = {"string": 7, "boolean": "yes", "integer": "many", "array": "a", "object": "a"}
EMPTY: Mapping[str, Any] = {"string": "", "array": [], "object": {}}


@dataclass(frozen=True)
class Field:
    """The values that the walk gives a field, each with a different effect. The rest of the spec is `base`.

    Three maps have reasons, by the name of a mutation, in words of docs/ or of the CRD. `nothing`: the mutation has no
    effect. `stays`: the cluster is not as before when the mutation is taken back. `differs`: a new cluster with the
    final spec is different. A reason without such a mutation or difference is an error.
    """

    path: str
    values: Sequence[Any]
    base: Object = field(default_factory=dict)
    invalid: Sequence[Any] = ()
    nothing: Mapping[str, str] = field(default_factory=dict)
    stays: Mapping[str, str] = field(default_factory=dict)
    differs: Mapping[str, str] = field(default_factory=dict)
    about: str = ""  # the difference from another row of the field

    def __str__(self) -> str:
        return f"{self.path} {self.about}".strip()


class Mutation(NamedTuple):
    """A change of a spec. Without one `before`, there is no object yet."""

    name: str
    before: Object | None
    after: Object


class Trial(NamedTuple):
    """The outcome of a mutation: refused, invalid, changes or nothing; and the differences that it leaves."""

    outcome: str
    back: str = ""  # between the state before, and that after the way back
    new: str = ""  # between the state after, and that of a new cluster with the same spec


class Ground(Protocol):
    """A cluster in which a walk is done, with one object of a custom resource."""

    def put(self, spec: Object | None) -> str:
        """Write the object with this spec, or delete it if that is None; return the server's reason to refuse it."""

    def run(self) -> Any:
        """Run the job until it writes nothing, check the cluster by a model, and return its state."""

    def is_invalid(self, state: Any) -> bool:
        """Whether the run reports that the object is not valid."""

    def reset(self) -> None:
        """Make the cluster as new."""


def mutations(row: Field, schema: Object) -> Iterator[Mutation]:
    """Yield all mutations that a field of this type has."""
    first, kind = row.values[0], schema.get("type", "string")

    def change(name: str, before: Any, after: Any) -> Mutation:
        return Mutation(name, None if before is None else with_field(row, before), with_field(row, after))

    if not schema["isRequired"]:
        yield change("set", ABSENT, first)
    yield change("remove", first, ABSENT)
    for number, each in enumerate(row.values[1:], 2):
        yield change(f"change to value {number}", first, each)
    for each in schema.get("enum", ()):
        yield change(f"create with {each}", None, each)
    if kind in EMPTY:
        yield change("empty", first, EMPTY[kind])
    if kind == "array" or "additionalProperties" in schema:
        shorter, longer = _of_two_entries(row)
        for name, before, after in (
            ("push" if kind == "array" else "add a key", shorter, longer),
            ("pop" if kind == "array" else "remove a key", longer, shorter),
        ):
            yield change(name, before, after)
    for number, each in enumerate([WRONG_TYPES[kind], *row.invalid], 1):
        yield change(f"invalid {number}", first, each)


def _of_two_entries(row: Field) -> tuple[Any, Any]:
    """Return the longest value without its last entry, and the longest value."""
    longest = max(row.values, key=len)
    assert len(longest) > 1, f"{row}: no value has two entries"
    return longest[:-1] if isinstance(longest, list) else dict([*longest.items()][:-1]), longest


def with_field(row: Field, value: Any) -> Object:
    """Return the spec with a field of this value; of the first item in a list."""
    spec = copy.deepcopy(row.base)
    *parents, last = re.findall(r"[^.\[\]]+|\[", row.path)
    at: Any = spec
    for each in parents:
        at = at[0] if each == "[" else at.setdefault(each, {})
    if value is ABSENT:
        at.pop(last, None)
    else:
        at[last] = value
    return spec


def walk(ground: Ground, row: Field, schema: Object) -> tuple[dict[str, str], list[str]]:
    """Return the outcome of each mutation, and the errors.

    `make test` tries a fifth of the mutations: tests/sweeps.py.
    """
    every = [*mutations(row, schema)]
    trials = {}
    for mutation in every if os.environ.get("UPDATE_DOCS") else sampled(every):
        ground.reset()
        if (trial := _try(ground, mutation)) is not None:
            trials[mutation.name] = trial
    reasons = (*row.nothing.values(), *row.stays.values(), *row.differs.values())
    known = {each.name for each in every}
    wrong = [f"no docs say: {each}" for each in reasons if not is_documented(each)]
    wrong += [f"no mutation {each}" for each in sorted({*row.nothing, *row.stays, *row.differs} - known)]
    wrong += [f"{name}: {each}" for name, trial in trials.items() for each in _wrong(row, name, trial)]
    return {name: trial.outcome for name, trial in trials.items()}, wrong


def _try(ground: Ground, mutation: Mutation) -> Trial | None:
    """Return the trial of a mutation in a new cluster, or None if the spec before it is refused."""
    if refusal := ground.put(mutation.before):
        assert mutation.name == "set", f"{mutation.name}: the spec before it is refused: {refusal}"  # as after "remove"
        return None
    before = ground.run()
    if ground.put(mutation.after):
        return Trial("refused")
    after = ground.run()
    if ground.is_invalid(after):
        return Trial("invalid")
    refusal = ground.put(mutation.before)
    back = f"refused: {refusal}" if refusal else difference(before, ground.run())
    ground.reset()
    ground.put(mutation.after)
    new = difference(after, ground.run())
    return Trial("nothing" if after == before else "changes", back, new)


def _wrong(row: Field, name: str, trial: Trial) -> Iterator[str]:
    """Yield each difference without a reason, and each reason without a difference."""
    if name.startswith("invalid") and trial.outcome not in ("refused", "invalid"):
        yield "not valid, and accepted"
    if trial.outcome == "nothing" and name not in row.nothing:
        yield "does nothing, and no docs say so"
    if trial.outcome != "nothing" and name in row.nothing:
        yield f"{trial.outcome}, and not nothing"
    for place, reasons, found in (
        ("after the way back", row.stays, trial.back),
        ("in a new cluster", row.differs, trial.new),
    ):
        if found and name not in reasons:
            yield f"{place}: {found}"
        if not found and name in reasons:
            yield f"{place}: no difference, although {reasons[name]}"


def check_row(kind: str, row: Field, outcomes: Mapping[str, str]) -> None:
    """Compare the outcomes with the row of the table in README.md, or write it where UPDATE_DOCS is set."""
    begin = f"| {kind} `{row.path}` {row.about}".rstrip() + " |"
    if os.environ.get("UPDATE_DOCS"):
        columns = [", ".join(name for name, each in outcomes.items() if each in column) for column in COLUMNS]
        with TABLE.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            lines = file.read().splitlines()
            places = [number for number, each in enumerate(lines) if each.startswith(begin)] or [len(lines)]
            lines[places[0] : places[0] + 1] = [f"{begin} {' | '.join(columns)} |"]
            file.seek(0)
            file.truncate()
            file.write("\n".join(lines) + "\n")
    (line,) = [each for each in TABLE.read_text().splitlines() if each.startswith(begin)]
    cells = [each.strip().split(", ") for each in line.removeprefix(begin).split("|")]
    known = {name: column for cell, column in zip(cells, COLUMNS, strict=False) for name in cell}
    other = {name: outcome for name, outcome in outcomes.items() if outcome not in known.get(name, ())}
    assert other == {}, f"{TABLE.relative_to(ROOT)} has other outcomes: make test-walk UPDATE_DOCS=1"


def difference(expected: Any, found: Any) -> str:
    """Return the difference between two states."""
    return "; ".join(_differing("", expected, found))


def _differing(path: str, expected: Any, found: Any) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in {**expected, **found}:
            yield from _differing(f"{path} {key}".strip(), expected.get(key), found.get(key))
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for number, pair in enumerate(zip(expected, found, strict=True)):
            yield from _differing(f"{path} {number}", *pair)
    elif expected != found:
        yield f"{path}: {expected} became {found}"


@cache
def _words() -> str:
    files = [*ROOT.glob("docs/*.md"), *ROOT.glob("cronjobs/crds/*.yaml")]
    return " ".join(" ".join(each.read_text().split()) for each in files)


def is_documented(sentence: str) -> bool:
    """Whether docs/ or a CRD has these words."""
    return sentence in _words()
