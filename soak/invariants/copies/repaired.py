"""A copy that differs from what a rule requires is repaired within two runs."""

from __future__ import annotations

from collections.abc import Iterator

from soak.history import History, Key, Object
from soak.invariants.copies.mistakes import may_be_mistaken
from soak.invariants.copies.now import required, since
from soak.invariants.copies.stamps import (
    JOB,
    RULE,
    RULES,
    differing,
    is_bundle,
    source_key,
    stamped_rule,
    stamped_source,
)
from soak.invariants.copies.window import Reads, spaces_of, usable
from soak.invariants.copies.written import why_never_adopted
from soak.invariants.reads import MARGIN_SECONDS, NO_REVISION, RUNS, is_managed, latest, runs_since, shown
from soak.observed import Observed
from tests.model import Copy, selects


def repaired(observed: Observed) -> Iterator[str]:
    """Yield a sentence for each copy that is not as required although two runs could repair it."""
    for at, every in required(observed.history).items() if not observed.settled else ():
        place, copies = Key(*at), usable(every)
        if len(copies) != 1 or not is_to_write(observed.history, place, copies[0]):
            continue
        began = since(observed, place)
        # A brake, exit code 4, blocks only deletions.
        runs = runs_since(observed, JOB, began, (0, 4))
        if len(runs) >= RUNS and not _may_stay(observed, place, copies[0], began):
            yield differs(place, copies[0], latest(observed.history, place))


def differs(place: Key, copy: Copy, actual: Object | None) -> str:
    """Return that there is another object than the required one."""
    what = f"it differs in {', '.join(differing(actual, copy))}" if actual else "it is missing"
    return f"{shown(place)} is not as rule {copy.rule} requires it: {what}"


def is_to_write(history: History, place: Key, copy: Copy) -> bool:
    """Whether a run must write a copy, because it differs, or adopt the object of someone else."""
    actual = latest(history, place)
    if actual is None or is_managed(actual, JOB):
        return actual is None or bool(differing(actual, copy))
    rule = latest(history, Key(RULE, RULES, copy.rule))
    is_adopted = rule is not None and rule["spec"].get("conflict") == "Adopt"
    return is_adopted and not why_never_adopted(actual, [copy])


def _may_stay(observed: Observed, place: Key, copy: Copy, began: float) -> bool:
    """Whether a copy of another source may stay one, as docs/sync-copies.md describes it under "Decisions".

    The source may be in another namespace of the rule; a rule may have selected that source since then, and claims the
    place or refuses the source; or the rule that the copy is stamped with may be mistaken. While a source namespace of
    a bundle is missing, the bundle stays too.
    """
    reads = Reads(observed.history, began - MARGIN_SECONDS, NO_REVISION)
    if is_bundle(copy) and may_be_mistaken(reads, Key(RULE, RULES, copy.rule)):
        return True
    actual = latest(observed.history, place)
    source = stamped_source(actual)
    if not source or source == copy.source:
        return False
    states = [each for each in reads.states(source_key(source, place.kind)) if each]
    rules = [rule for each in reads.about(place).rules for rule in each]
    is_selected = any(selects(rule, each) for rule in rules for each in states)
    return is_held(reads, actual, copy, place.kind) or is_selected or may_be_mistaken(reads, stamped_rule(actual))


def is_held(reads: Reads, actual: Object | None, copy: Copy, kind: str) -> bool:
    """Whether a copy does not become one of this source by itself: its rule may name the namespace of another one."""
    before, after = source_key(stamped_source(actual), kind), source_key(copy.source, kind)
    if not is_managed(actual, JOB) or before.namespace == after.namespace or is_bundle(copy):
        return False
    return any(before.namespace in spaces_of(rule) for rule in reads.states(stamped_rule(actual)))
