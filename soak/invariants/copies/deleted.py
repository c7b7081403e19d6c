"""A run deletes no copy that a rule requires or retains."""

from __future__ import annotations

from collections.abc import Iterator

from soak.history import Object
from soak.invariants.copies.mistakes import is_lifted, is_open, is_retained, missing_namespace
from soak.invariants.copies.stamps import JOB, stamped_rule, stamped_source
from soak.invariants.copies.window import Reads, Window
from soak.invariants.reads import is_managed, shown, window_start
from soak.observed import Observed, Write
from tests.model import FIELDS, Copy


def deleted(observed: Observed, write: Write) -> Iterator[str]:
    """Check a deletion of a copy."""
    if write.verb != "delete" or not is_managed(write.before, JOB):
        return
    about = f"delete of {shown(write.key)} by {write.pod}"
    reads = Reads(observed.history, window_start(observed, write), write.revision)
    window, rule = reads.about(write.key), stamped_rule(write.before)
    if is_recreated(window, write.before):
        return
    if required := window.always(stamped_source(write.before)):
        yield f"{about}: rule {required.rule} required a copy of {required.source} there during the whole run"
    elif is_retained(reads, write.before):
        yield f"{about}: it was to be retained during the whole run"
    is_blocked = all(map(is_open, window.namespaces)) and not is_lifted(observed, write.pod)
    if is_blocked and (name := missing_namespace(reads, rule)):
        yield f"{about}: namespace {name} of rule {rule.namespace}/{rule.name} did not exist"


def is_recreated(window: Window, copy: Object | None) -> bool:
    """Whether a copy can only become one that is required by a deletion."""
    return any(_needs_recreation(copy or {}, each) for each in window.allowed)


def _needs_recreation(found: Object, copy: Copy) -> bool:
    if found["kind"] == "ResourceQuota":
        return bool(found["spec"].get("scopes") != copy.content["spec"].get("scopes"))
    fixed = FIELDS[found["kind"]] if found.get("immutable") else ("type", "roleRef")
    return any(found.get(name) != copy.content.get(name) for name in fixed if name in FIELDS[found["kind"]])
