"""The stamp: how an object says that it is ours, made by which job for which rule from which source, holding what.

Ours means this job and this rule namespace; two installs never touch each other's objects. Labels are there to list
by, annotations to read. No write touches an object without our stamp.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from jobs.kit.objects import MANAGER, Content, Digested

MANAGED_BY = "app.kubernetes.io/managed-by"
JOB = "kubechores.dev/job"
RULE_NAMESPACE = "kubechores.dev/rule-namespace"
RULE_HASH = "kubechores.dev/rule-hash"
RULE = "kubechores.dev/rule"
SOURCE = "kubechores.dev/source"
FINGERPRINT = "kubechores.dev/fingerprint"
ORPHANS = "kubechores.dev/orphans"

KEYS = frozenset({MANAGED_BY, JOB, RULE_NAMESPACE, RULE_HASH, RULE, SOURCE, FINGERPRINT, ORPHANS})

# Keys that nobody but their own tool may set on an object: ours, and those by which other tools claim it as theirs.
RESERVED_PREFIXES = ("kubechores.dev/", "argocd.argoproj.io/", "meta.helm.sh/", "helm.sh/")
RESERVED_KEYS = frozenset(
    {MANAGED_BY, "app.kubernetes.io/instance", "kubectl.kubernetes.io/last-applied-configuration"}
)
# Annotations by which Helm and Argo CD know what they own.
_OTHERS = {"meta.helm.sh/release-name": "Helm", "argocd.argoproj.io/tracking-id": "Argo CD"}
KEYS_OF_OTHER_TOOLS = frozenset(_OTHERS)


class Stamp(NamedTuple):
    """Labels and annotations of an object that we make."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def stamp(
    job: str, rule_namespace: str, rule_name: str, source: str, fingerprint: str, orphans: str = "Delete"
) -> Stamp:
    """Return the stamp of one object; `source` is NAMESPACE/NAME, `orphans` what becomes of it when unwanted.

    A rule that is cluster-scoped has no namespace.
    """
    rule = f"{rule_namespace}/{rule_name}" if rule_namespace else rule_name
    labels = {
        MANAGED_BY: MANAGER,
        JOB: job,
        **({RULE_NAMESPACE: rule_namespace} if rule_namespace else {}),
        # NAMESPACE/NAME is no label value and a rule's name may be too long for one.
        RULE_HASH: hashlib.sha256(rule.encode()).hexdigest()[:16],
    }
    return Stamp(labels, {RULE: rule, SOURCE: source, FINGERPRINT: fingerprint, ORPHANS: orphans})


def selector(job: str, rule_namespace: str = "") -> str:
    """Return the label selector of all objects that this job made for a rule namespace, or for any."""
    where = f",{RULE_NAMESPACE}={rule_namespace}" if rule_namespace else ""
    return f"{MANAGED_BY}={MANAGER},{JOB}={job}{where}"


def is_managed(labels: Mapping[str, str], job: str, rule_namespace: str) -> bool:
    """Whether these labels are those of an object that this job made for this rule namespace."""
    stamp = (labels.get(MANAGED_BY), labels.get(JOB), labels.get(RULE_NAMESPACE, ""))
    return stamp == (MANAGER, job, rule_namespace)


def is_stamped(labels: Mapping[str, str]) -> bool:
    """Whether any job of any install made this object."""
    return labels.get(MANAGED_BY) == MANAGER and JOB in labels


def is_reserved(key: str) -> bool:
    """Whether a label or annotation key may not be set or copied by a rule."""
    return key in RESERVED_KEYS or key.startswith(RESERVED_PREFIXES)


def other_owner(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return the other tool that says by a label or annotation that it owns an object; empty if none does."""
    by_annotation = next((tool for key, tool in _OTHERS.items() if key in annotations), "")
    managed_by = labels.get(MANAGED_BY, MANAGER)
    return by_annotation or (managed_by if managed_by != MANAGER else "")


def is_helm_label(key: str, value: str) -> bool:
    """Whether a label has Helm take an object for a release, whatever its name or type."""
    return (key, value) == ("owner", "helm")


def fingerprint(content: Content | Digested, key: str) -> str:
    """Return the fingerprint of `content`: an HMAC-SHA256 keyed, where it may be secret, with the uid of its source.

    A plain hash of a short secret could be guessed by whoever reads the annotation; the uid is 122 random bits that a
    reader of the copy does not see.
    """
    return f"v1:{content.fingerprint(key)}"
