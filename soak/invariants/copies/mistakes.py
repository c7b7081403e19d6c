"""What blocks deletions: docs/sync-copies.md, "How a deletion is decided"."""

from __future__ import annotations

import json
from collections.abc import Callable

from soak.history import Key, Object
from soak.invariants.copies.stamps import ORPHANS, stamped_rule
from soak.invariants.copies.window import Reads, spaces_of
from soak.invariants.reads import annotations_of, is_terminating
from soak.observed import Observed

OPT_IN = "kubechores.dev/copies"
LIFTED = "max-deletes"


def is_open(namespace: Object | None) -> bool:
    """Whether a namespace is active and did not opt out."""
    return not is_terminating(namespace) and annotations_of(namespace).get(OPT_IN, "").lower() != "false"


def is_lifted(observed: Observed, pod: str) -> bool:
    """Whether a person ran the Job with another limit."""
    versions = observed.history.versions(Key("Pod", "kube-chores", pod))
    return any(LIFTED in json.dumps((each.object or {}).get("spec", {})).lower().replace("_", "-") for each in versions)


def retains(rule: Object | None, copy: Object | None) -> bool:
    """Whether an orphan stays: as its rule is set, or as it is annotated if there is no rule."""
    value = rule["spec"].get("orphans", "Delete") if rule else annotations_of(copy).get(ORPHANS)
    return bool(value != "Delete")


def is_retained(reads: Reads, copy: Object | None) -> bool:
    """Whether an orphan stayed during the whole run."""
    return all(retains(rule, copy) for rule in reads.states(stamped_rule(copy)))


def may_be_mistaken(reads: Reads, key: Key) -> bool:
    """Whether a rule may be mistaken.

    It named a namespace that does not exist, or that was recreated, or has not selected anything since it was edited.
    """
    for rule in filter(None, reads.states(key)):
        status, metadata = rule.get("status", {}), rule["metadata"]
        uids = {each["name"]: each["uid"] for each in status.get("sourceNamespaces", [])}
        for name in spaces_of(rule):
            states = reads.states(Key("Namespace", "", name))
            if any(is_terminating(each) or uids.get(name, uid(each)) != uid(each) for each in states):
                return True
        selected = status.get("selectedGeneration"), status.get("selectedUid")
        if selected != (metadata["generation"], metadata.get("uid")):
            return True
    return False


def missing_namespace(reads: Reads, key: Key, is_missing: Callable[[Object | None], bool] = is_terminating) -> str:
    """Return a namespace that a rule named during the whole run, and that did not exist; empty if there is none."""
    rules = reads.states(key)
    for name in spaces_of(rules[-1]):
        states = reads.states(Key("Namespace", "", name))
        if all(map(is_missing, states)) and all(name in spaces_of(rule) for rule in rules):
            return name
    return ""


def uid(obj: Object | None) -> str:
    """Return the uid of an object."""
    return str(((obj or {}).get("metadata") or {}).get("uid"))
