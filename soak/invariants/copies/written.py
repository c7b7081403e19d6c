"""A run creates and changes only the copies that a rule requires, as it requires them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from soak.history import Object
from soak.invariants.copies.mistakes import is_lifted
from soak.invariants.copies.stamps import JOB, source_key, source_of, stamped_rule, stamped_source
from soak.invariants.copies.window import Reads, Window, spaces_of
from soak.invariants.reads import essence, is_managed, labels_of, shown, window_start
from soak.observed import Observed, Write
from tests.model import FIELDS, Copy, is_as


def written(observed: Observed, write: Write) -> Iterator[str]:
    """Check a create or an update of a copy."""
    if write.verb == "delete" or not is_managed(write.after, JOB):
        return
    about = f"{write.verb} of {shown(write.key)} by {write.pod}"
    reads = Reads(observed.history, window_start(observed, write), write.revision)
    window = reads.about(write.key)
    allowed = list(window.allowed())
    if not allowed:
        yield f"{about}: {_why_none(window)}"
    elif not (fitting := [copy for copy in allowed if is_as(write.after, copy)]):
        yield f"{about}: it is not as any rule required it during the run, but {_differing(write.after or {}, allowed)}"
    elif write.before and not is_managed(write.before, JOB) and (why := _why_not_adopted(write, window, fitting)):
        yield f"{about}: it was not managed, and {why}"
    if not is_lifted(observed, write.pod):
        yield from _moved(reads, write)
    if write.before and write.after and essence(write.before) == essence(write.after):
        yield f"{about}: it changed nothing"


def _why_none(window: Window) -> str:
    claims = sorted({source_of(copy) for each in window.outcomes for copy in each if not copy.refused})
    if len(claims) > 1 and all(window.outcomes):
        return f"{' and '.join(claims)} claimed it during the whole run"
    refused = any(window.outcomes)
    return "its source was refused during the whole run" if refused else "no rule required it at any time of the run"


def _differing(found: Object, allowed: Collection[Copy]) -> str:
    """Return which fields differ, without values."""
    fields = {
        field
        for copy in allowed
        for field in FIELDS[found["kind"]]
        if (found.get(field) or copy.content.get(field)) and found.get(field) != copy.content.get(field)
    }
    return f"differs in {', '.join(sorted(fields)) or 'labels or annotations'}"


def _why_not_adopted(write: Write, window: Window, copies: Collection[Copy]) -> str:
    """Return why the object of someone else may not become one of these copies; empty if it may."""
    names = {copy.rule for copy in copies}
    if not window.rule_can(lambda rule: rule["metadata"]["name"] in names and rule["spec"].get("conflict") == "Adopt"):
        return "no rule was set to adopt it"
    return why_never_adopted(write.before or {}, copies)


def why_never_adopted(found: Object, copies: Collection[Copy]) -> str:
    """Return why no rule may adopt an object as one of these copies: docs/copyratorrule.md; empty if one may."""
    if any(owner.get("controller") for owner in found["metadata"].get("ownerReferences", ())):
        return "it has a controller"
    if labels_of(found).get("app.kubernetes.io/managed-by"):
        return "another tool manages it"
    fixed = FIELDS[found["kind"]] if found.get("immutable") else {"type", "roleRef"} & {*FIELDS[found["kind"]]}
    if not any(all(found.get(field) == copy.content.get(field) for field in fixed) for copy in copies):
        return "it has to be recreated"
    return ""


def _moved(reads: Reads, write: Write) -> Iterator[str]:
    """Yield that a copy became one of a source in another namespace, although its rule named that of the old one."""
    before, after = (source_key(stamped_source(each), write.key.kind) for each in (write.before, write.after))
    if not before.name or before.namespace == after.namespace or after.kind == "CopyratorRule":
        return
    rules = reads.states(stamped_rule(write.before))
    if all(rule and before.namespace in spaces_of(rule) for rule in rules):
        yield f"{write.verb} of {shown(write.key)} by {write.pod}: it was a copy of {shown(before)}"
