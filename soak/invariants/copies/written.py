"""A run creates and changes only the copies that a rule requires, as it requires them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import not_

from soak.history import Key, Object
from soak.invariants.copies.mistakes import is_lifted, missing_namespace
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
from soak.invariants.copies.window import Reads, Window, spaces_of, usable
from soak.invariants.reads import essence, is_managed, labels_of, shown, window_start
from soak.observed import Observed, Write
from tests.model import FIELDS, Copy


def written(observed: Observed, write: Write) -> Iterator[str]:
    """Check a create or an update of a copy."""
    if write.verb == "delete" or write.after is None or not is_managed(write.after, JOB):
        return
    reads = Reads(observed.history, window_start(observed, write), write.revision)
    window = reads.about(write.key)
    fitting = [copy for copy in window.allowed if not differing(write.after, copy)]
    problems = [_why_not_fitting(write.after, window)] if not fitting else [_why_not_adopted(write, window, fitting)]
    if not is_lifted(observed, write.pod):
        problems += [_moved(reads, write), _incomplete(reads, fitting)]
    if write.before and essence(write.before) == essence(write.after):
        problems.append("it changed nothing")
    yield from (f"{write.verb} of {shown(write.key)} by {write.pod}: {each}" for each in problems if each)


def _why_not_fitting(found: Object, window: Window) -> str:
    claims = sorted({copy.source for copies in window.outcomes for copy in usable(copies)})
    if window.allowed:
        names = {name for copy in window.allowed for name in differing(found, copy)}
        return f"no rule required it so at any time of the run: it differs in {', '.join(sorted(names))}"
    if len(claims) > 1 and all(map(usable, window.outcomes)):
        return f"{' and '.join(claims)} claimed it during the whole run"
    return "no rule required it at any time of the run"


def _why_not_adopted(write: Write, window: Window, copies: Iterable[Copy]) -> str:
    """Return why the object of someone else may not become one of these copies; empty if it may, or is a copy."""
    if write.before is None or is_managed(write.before, JOB):
        return ""
    names = {copy.rule for copy in copies}
    rules = [rule["spec"] for each in window.rules for rule in each if rule["metadata"]["name"] in names]
    if not any(spec.get("conflict") == "Adopt" for spec in rules):
        return "it was not managed, and no rule adopts it"
    return why_never_adopted(write.before, copies)


def why_never_adopted(found: Object, copies: Iterable[Copy]) -> str:
    """Return why no rule may adopt an object as one of these copies: docs/copyratorrule.md; empty if one may."""
    if any(owner.get("controller") for owner in found["metadata"].get("ownerReferences", ())):
        return "it had a controller"
    if labels_of(found).get("app.kubernetes.io/managed-by"):
        return "another tool managed it"
    fixed = FIELDS[found["kind"]] if found.get("immutable") else {"type", "roleRef"} & {*FIELDS[found["kind"]]}
    is_fitting = any(all(found.get(name) == copy.content.get(name) for name in fixed) for copy in copies)
    return "" if is_fitting else "it had to be recreated to adopt it"


def _incomplete(reads: Reads, copies: Sequence[Copy]) -> str:
    """Return that a bundle was written without the sources of a namespace that did not exist."""
    if not copies or not all(map(is_bundle, copies)):
        return ""
    missing = missing_namespace(reads, Key(RULE, RULES, copies[0].rule), not_)
    return missing and f"it is a bundle, and namespace {missing} of its rule did not exist"


def _moved(reads: Reads, write: Write) -> str:
    """Return that a copy became one of a source in another namespace, although its rule named that of the old one."""
    before, after = (source_key(stamped_source(each), write.key.kind) for each in (write.before, write.after))
    rules = reads.states(stamped_rule(write.before))
    is_other = before.name and before.namespace != after.namespace and after.kind != "CopyratorRule"
    is_moved = is_other and is_managed(write.before, JOB) and all(before.namespace in spaces_of(rule) for rule in rules)
    return f"it was a copy of {shown(before)}" if is_moved else ""
