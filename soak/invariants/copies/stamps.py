"""The stamp of a copy: docs/architecture.md, "Labels and annotations"."""

from __future__ import annotations

import hashlib

from soak.history import Key, Object
from soak.invariants.reads import annotations_of, labels_of
from tests.model import FIELDS, Copy

JOB = "sync-copies"
RULE = "CopyRator"  # the kind in the history
RULES = "kube-chores"  # the namespace of the rules
MANAGED_BY = "app.kubernetes.io/managed-by"
PREFIX = "kubechores.dev/"
STAMPED_RULE, STAMPED_SOURCE, ORPHANS = f"{PREFIX}rule", f"{PREFIX}source", f"{PREFIX}orphans"
FINGERPRINT = f"{PREFIX}fingerprint"  # depends on a uid
HUB = f"{PREFIX}hub"  # no copy of a rule in its own cluster has it


def stamp_of(copy: Object | None) -> dict[str, str]:
    """Return the labels and annotations by which a copy is managed, but for its fingerprint."""
    found = {**labels_of(copy), **annotations_of(copy)}
    return {key: found[key] for key in found if key.startswith((MANAGED_BY, PREFIX)) and key != FINGERPRINT}


def required_stamp(copy: Copy) -> dict[str, str]:
    """Return the stamp that a copy must have."""
    rule = f"{RULES}/{copy.rule}"
    return {
        MANAGED_BY: "kube-chores",
        f"{PREFIX}job": JOB,
        f"{PREFIX}rule-namespace": RULES,
        f"{PREFIX}rule-hash": hashlib.sha256(rule.encode()).hexdigest()[:16],
        STAMPED_RULE: rule,
        STAMPED_SOURCE: copy.source,
        ORPHANS: copy.orphans,
    }


def differing(found: Object, copy: Copy) -> list[str]:
    """Return the names of fields, labels and annotations that are not as required; others may have added some."""
    kinds = FIELDS[found["kind"]]
    contents = [
        {name: each.get(name) for name in kinds if each.get(name) not in (None, {}, [])}
        for each in (found, copy.content)
    ]
    actual, expected = (
        {**labels_of(found), **annotations_of(found)},
        {**copy.labels, **copy.annotations, **required_stamp(copy)},
    )
    fields = [name for name in kinds if contents[0].get(name) != contents[1].get(name)]
    return [*fields, *(key for key in expected if actual.get(key) != expected[key]), *({HUB} & actual.keys())]


def is_bundle(copy: Copy) -> bool:
    """Whether a copy has the certificates of all sources of its rule, which its stamp names as the source."""
    return copy.source.startswith("CopyratorRule/")


def stamped_rule(copy: Object | None) -> Key:
    """Return the rule that a copy is stamped with."""
    return Key(RULE, *annotations_of(copy).get(STAMPED_RULE, "").partition("/")[::2])


def stamped_source(copy: Object | None) -> str:
    """Return the source that a copy is stamped with, NAMESPACE/NAME or KIND/NAMESPACE/NAME."""
    return annotations_of(copy).get(STAMPED_SOURCE, "")


def source_key(source: str, kind: str) -> Key:
    """Return the key of the source that the stamp of a copy of a kind names."""
    *others, namespace, name = ("", "", *source.split("/"))[-3:]
    return Key(others[0] or kind, namespace, name)
