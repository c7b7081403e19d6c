"""No Secret value is in a log, an Event, a status, or in any object that is not a Secret."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from soak.history import KINDS, Object
from soak.invariants.reads import shown
from soak.observed import Invariant, Observed
from tests.canary import leaks


def invariants() -> list[Invariant]:
    """Return the invariant."""
    return [Invariant("no Secret value leaves a Secret", Values())]


@dataclass
class Values:
    """Look for the values of all Secrets, which contain a canary, in what is new."""

    _seen: Counter[str] = field(default_factory=Counter)

    def __call__(self, observed: Observed) -> Iterator[str]:
        """Yield a sentence for each text with a value."""
        for run in observed.runs:
            yield from (f"the log of {run.pod} has a Secret value as {form}" for form in leaks(run.log))
        for kind in KINDS:
            changes = observed.history.changes(kind, self._seen[kind])
            self._seen[kind] += len(changes)
            for version in changes:
                if version.object:
                    found = leaks(json.dumps(_searched(kind, version.object)))
                    yield from (f"{shown(version.key)} has a Secret value as {form}" for form in found)


def _searched(kind: str, obj: Object) -> Object:
    """Return what may have no value of a Secret. managedFields have only names of fields, and are long."""
    metadata = {key: value for key, value in obj["metadata"].items() if key != "managedFields"}
    if kind == "Secret":
        return {"metadata": metadata}
    return {**obj, "metadata": metadata}
