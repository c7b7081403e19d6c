"""The stamp of a copy: docs/architecture.md, "Labels and annotations"."""

from __future__ import annotations

import hashlib

from soak.history import Key, Object
from soak.invariants.reads import annotations_of, labels_of
from tests.model import Copy

JOB = "sync-copies"
RULE = "CopyRator"  # the kind in the history
RULES = "kube-chores"  # the namespace of the rules
OPT_IN = "kubechores.dev/copies"
STAMPED_RULE = "kubechores.dev/rule"
STAMPED_SOURCE = "kubechores.dev/source"
ORPHANS = "kubechores.dev/orphans"
FINGERPRINT = "kubechores.dev/fingerprint"
HUB = "kubechores.dev/hub"  # no copy of a rule in its own cluster has it
STAMP = (  # without the fingerprint, which depends on a uid
    "app.kubernetes.io/managed-by",
    "kubechores.dev/job",
    "kubechores.dev/rule-namespace",
    "kubechores.dev/rule-hash",
    STAMPED_RULE,
    STAMPED_SOURCE,
    ORPHANS,
)


def stamp_of(copy: Object | None) -> dict[str, str]:
    """Return the labels and annotations by which a copy is managed."""
    found = {**labels_of(copy), **annotations_of(copy)}
    return {key: found[key] for key in (*STAMP, HUB) if key in found}


def required_stamp(copy: Copy) -> dict[str, str]:
    """Return the stamp that a copy must have."""
    rule = f"{RULES}/{copy.rule}"
    rule_hash = hashlib.sha256(rule.encode()).hexdigest()[:16]
    values = ("kube-chores", JOB, RULES, rule_hash, rule, source_of(copy), copy.orphans)
    return dict(zip(STAMP, values, strict=True))


def source_of(copy: Copy) -> str:
    """Return the source that the stamp of a copy names: that of a bundle is its rule."""
    return copy.source or f"CopyratorRule/{RULES}/{copy.rule}"


def stamped_rule(copy: Object | None) -> Key:
    """Return the rule that a copy is stamped with."""
    return Key(RULE, *annotations_of(copy).get(STAMPED_RULE, "").partition("/")[::2])


def stamped_source(copy: Object | None) -> str:
    """Return the source that a copy is stamped with, NAMESPACE/NAME or KIND/NAMESPACE/NAME."""
    return annotations_of(copy).get(STAMPED_SOURCE, "")


def source_key(source: str, kind: str) -> Key:
    """Return the key of the source that the stamp of a copy of a kind names."""
    *kinds, namespace, name = source.split("/")[-3:] if "/" in source else ("", source)
    return Key(kinds[0] if kinds else kind, namespace, name)
