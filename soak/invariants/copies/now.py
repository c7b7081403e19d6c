"""What rules require now, since when, and until when a fault prevents it."""

from __future__ import annotations

import math

from soak.history import History, Key, Object
from soak.invariants.copies.stamps import JOB, RULE, differing, source_key, stamped_rule, stamped_source
from soak.invariants.copies.window import is_about, sources_at, usable
from soak.invariants.reads import changed_at, edited_at, is_managed, latest
from soak.journal import Fault
from soak.observed import Observed
from tests import model
from tests.model import Copy, Place

QUOTA = "tenant-copies-quota"
CLAIM = "tenant-copies-claim"  # of a name by sources of two rules: no new copy of either is created
REFUSALS = ("admission-", "credentials-", QUOTA, CLAIM)


def objects(history: History, *kinds: str) -> list[Object]:
    """Return all objects of these kinds."""
    return [each.object for kind in kinds for each in history.now(kind) if each.object]


def required(history: History) -> dict[Place, list[Copy]]:
    """Return what all rules require, by place."""
    return model.desired(objects(history, RULE), objects(history, *model.FIELDS), objects(history, "Namespace"))


def copies(history: History) -> dict[Place, Object]:
    """Return the copies that are as rules require."""
    found: dict[Place, Object] = {}
    for at, every in required(history).items():
        actual, claims = latest(history, Key(*at)), usable(every)
        if actual and is_managed(actual, JOB) and len(claims) == 1 and not differing(actual, claims[0]):
            found[at] = actual
    return found


def since(observed: Observed, place: Key) -> float:
    """Return the time since when what is required at a place, and what is there, does not change by others."""
    history, actual = observed.history, latest(observed.history, place)
    keys = {Key("Namespace", "", place.namespace), stamped_rule(actual), source_key(stamped_source(actual), place.kind)}
    for key in history.keys(RULE):
        version = history.versions(key)[-1]
        rule = version.object or version.last
        if rule and is_about(rule, place):
            keys |= {key, *sources_at(history, rule, place)}
    edited = (edited_at(history, key) for key in keys)
    return max(changed_at(history, place), _excused_until(observed, place), *edited)


def _excused_until(observed: Observed, place: Key) -> float:
    """Return the end of the last fault that lets the API server refuse a copy, or that claims its name."""
    faults = (each for each in observed.journal.faults if each.kind.startswith(REFUSALS) and _refuses(each, place))
    return max((each.ended or math.inf for each in faults), default=0.0)


def _refuses(fault: Fault, place: Key) -> bool:
    if fault.kind.startswith("credentials-"):
        return JOB in fault.detail  # else of another job
    if fault.kind == QUOTA:
        return fault.detail == place.namespace
    if fault.kind == CLAIM:
        return fault.detail.rpartition("/")[2] == place.name
    names, _, is_for = fault.detail.removeprefix("in ").rpartition(" for ")
    return not is_for or place.namespace in names.split(", ")
