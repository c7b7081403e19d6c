"""ServiceAccounts name the copies that spec.attachTo of rules attaches; what others put there stays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from soak.history import History, Key, Object
from soak.invariants.copies.now import copies, objects, since
from soak.invariants.copies.stamps import JOB, RULE, RULES, STAMPED_RULE
from soak.invariants.copies.window import Reads, usable
from soak.invariants.ours import PULLS
from soak.invariants.reads import (
    RUNS,
    annotations_of,
    edited_at,
    is_managed,
    is_terminating,
    labels_of,
    latest,
    runs_since,
    shown,
    window_start,
)
from soak.observed import Observed, Write
from tests import model
from tests.model import Copy


def names_of(account: Object | None) -> list[str]:
    """Return the names in imagePullSecrets."""
    return [str(each.get("name", "")) for each in (account or {}).get("imagePullSecrets") or ()]


def recorded(account: Object | None) -> set[str]:
    """Return the names that the job added: the annotation has RULE-NAMESPACE/NAME of each."""
    record = annotations_of(account).get(PULLS, "") if labels_of(account).get(PULLS) == "true" else ""
    return {each.partition("/")[2] for each in record.split(",") if each}


def removed(write: Write) -> set[str]:
    """Return the names that a write removed from a ServiceAccount that is not a copy."""
    is_copy = is_managed(write.before, JOB) or is_managed(write.after, JOB)
    return set() if is_copy else {*names_of(write.before)} - {*names_of(write.after)}


def patched(observed: Observed, write: Write) -> Iterator[str]:
    """Check a write of a ServiceAccount that is not a copy."""
    if write.before is None or write.after is None or is_managed(write.after, JOB):
        return
    about = f"{write.verb} of {shown(write.key)} by {write.pod}"
    reads = Reads(observed.history, window_start(observed, write), write.revision)
    before, after = names_of(write.before), names_of(write.after)
    gone, added = removed(write), {*after} - {*before}
    for name in sorted(added):
        window = reads.about(Key("Secret", write.key.namespace, name))
        if not any(_attach(rules, copy, write.key) for rules in window.rules for copy in window.allowed):
            yield f"{about}: no rule attached {name} at any time of the run"
    for name in sorted(gone):
        if name not in recorded(write.before):
            yield f"{about}: it removed {name}, which the job had not added"
        elif _is_always_attached(reads, write.key, name):
            yield f"{about}: it removed {name}, which a rule attached during the whole run"
    if [each for each in before if each not in gone] != [each for each in after if each not in added]:
        yield f"{about}: it changed the entries of others"


def _attach(rules: Iterable[Object], copy: Copy, account: Key) -> bool:
    """Whether rules attach a copy to a ServiceAccount."""
    metadata = {"annotations": {STAMPED_RULE: f"{RULES}/{copy.rule}"}}
    copies = {("Secret", account.namespace, ""): {"metadata": metadata, "type": copy.content.get("type")}}
    there = {"metadata": {"namespace": account.namespace, "name": account.name}}
    return bool(model.attached(rules, copies, [there]))


def _is_always_attached(reads: Reads, account: Key, name: str) -> bool:
    window = reads.about(Key("Secret", account.namespace, name))
    return all(is_managed(each, JOB) for each in window.copies) and all(
        any(_attach(rules, copy, account) for copy in usable(outcome))
        for rules in window.rules
        for outcome in window.outcomes
    )


def may_be_removed(reads: Reads, account: Key) -> bool:
    """Whether a run can have found a name in a ServiceAccount that the job had added, and that no rule attached."""
    names = {name for state in reads.states(account) for name in recorded(state)}
    return any(not _is_always_attached(reads, account, name) for name in names)


def attached(observed: Observed) -> Iterator[str]:
    """Yield a sentence for each ServiceAccount with other names than rules attach although two runs could change it."""
    different = [] if observed.settled else list(differences(observed.history))
    for key, name, sentence in different:
        place = Key("Secret", key.namespace, name)
        began = max(since(observed, place), edited_at(observed.history, key))
        # The brake, exit code 4, may block that names are removed.
        codes = (0,) if name in recorded(latest(observed.history, key)) else (0, 4)
        if len(runs_since(observed, JOB, began, codes)) >= RUNS:
            yield sentence


def differences(history: History) -> Iterator[tuple[Key, str, str]]:
    """Yield each ServiceAccount that lacks the name of a copy, or has one too many; names of retained copies stay."""
    there = copies(history)
    wanted = model.attached(objects(history, RULE), there, objects(history, "ServiceAccount"))
    for version in history.now("ServiceAccount"):
        key, account = version.key, version.object
        if is_managed(account, JOB) or is_terminating(account):
            continue
        names = wanted.get(key, set())
        for name in sorted(names - {*names_of(account)}):
            yield key, name, f"{shown(key)} lacks {name}, which a rule attaches"
        for name in sorted(recorded(account) - names):
            place = Key("Secret", key.namespace, name)
            if place in there or not is_managed(latest(history, place), JOB):
                yield key, name, f"{shown(key)} has {name}, which no rule attaches"
