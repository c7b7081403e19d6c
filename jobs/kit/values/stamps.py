"""The stamp: labels and annotations of a managed object, with its job, rule, source and fingerprint of its content.

An object is managed by one job of one installation, which has one namespace for rules. Copies whose rule is in another
cluster, the hub, also have the uid of namespace kube-system there. No job changes an object of another job,
installation or hub, or one without a stamp. The labels are for lists, the annotations for people and jobs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from jobs.kit.values.model import ObjectKey

MANAGER = "kube-chores"  # the field manager of all writes
MANAGED_BY = "app.kubernetes.io/managed-by"
JOB = "kubechores.dev/job"
RULE_NAMESPACE = "kubechores.dev/rule-namespace"
RULE_HASH = "kubechores.dev/rule-hash"
HUB = "kubechores.dev/hub"
RULE = "kubechores.dev/rule"
SOURCE = "kubechores.dev/source"
FINGERPRINT = "kubechores.dev/fingerprint"
ORPHANS = "kubechores.dev/orphans"
ATTACHED = "kubechores.dev/pull-secrets"  # a label and an annotation of ServiceAccounts

KEYS = frozenset({MANAGED_BY, JOB, RULE_NAMESPACE, RULE_HASH, HUB, RULE, SOURCE, FINGERPRINT, ORPHANS})

# Keys that only one tool may set: those of kube-chores, and those that mark objects of other tools.
RESERVED_PREFIXES = ("kubechores.dev/", "argocd.argoproj.io/", "meta.helm.sh/", "helm.sh/")
RESERVED_KEYS = frozenset(
    {MANAGED_BY, "app.kubernetes.io/instance", "kubectl.kubernetes.io/last-applied-configuration"}
)
# Labels and annotations that mark the objects of Helm, Argo CD and Flux.
_OTHER_TOOLS = {
    "meta.helm.sh/release-name": "Helm",
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
}
KEYS_OF_OTHER_TOOLS = frozenset(_OTHER_TOOLS)


class Stamp(NamedTuple):
    """The labels and annotations of a stamp."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def stamp(
    job: str,
    rule_namespace: str,
    rule_name: str,
    source: str,
    fingerprint: str,
    orphans: str = "Delete",
    hub: str = "",
) -> Stamp:
    """Return the stamp of one object. `source` is the result of `source()`; `orphans` is Delete or Retain.

    `rule_namespace` is empty for a cluster-scoped rule, and `hub` for a rule in the cluster of the object.
    """
    rule = f"{rule_namespace}/{rule_name}" if rule_namespace else rule_name
    labels = {
        MANAGED_BY: MANAGER,
        JOB: job,
        **({RULE_NAMESPACE: rule_namespace} if rule_namespace else {}),
        # A hash: NAMESPACE/NAME is not a valid label value, and the name of a rule may be too long for one.
        RULE_HASH: hashlib.sha256(rule.encode()).hexdigest()[:16],
        **({HUB: hub} if hub else {}),
    }
    return Stamp(labels, {RULE: rule, SOURCE: source, FINGERPRINT: fingerprint, ORPHANS: orphans})


def source(key: ObjectKey, kind: str) -> str:
    """Return the source as the stamp of a copy of this kind names it: NAMESPACE/NAME, or KIND/NAMESPACE/NAME."""
    return f"{key.namespace}/{key.name}" if key.kind == kind else f"{key.kind}/{key.namespace}/{key.name}"


def source_key(text: str, kind: str) -> ObjectKey:
    """Return the source that the stamp of a copy of this kind names; a user may have changed the text."""
    first, _, rest = text.partition("/")
    namespace, slash, name = rest.partition("/")
    return ObjectKey(first, name, namespace) if slash else ObjectKey(kind, rest, first)


def selector(job: str, rule_namespace: str = "", hub: str = "") -> str:
    """Return the label selector of all objects that a job manages for one rule namespace of a hub, or for all."""
    where = f",{RULE_NAMESPACE}={rule_namespace}" if rule_namespace else ""
    return f"{MANAGED_BY}={MANAGER},{JOB}={job}{where},{f'{HUB}={hub}' if hub else f'!{HUB}'}"


def is_managed(labels: Mapping[str, str], job: str, rule_namespace: str, hub: str = "") -> bool:
    """Whether an object with these labels is managed by this job for this rule namespace of this hub."""
    stamp = (labels.get(MANAGED_BY), labels.get(JOB), labels.get(RULE_NAMESPACE, ""), labels.get(HUB, ""))
    return stamp == (MANAGER, job, rule_namespace, hub)


def is_stamped(labels: Mapping[str, str]) -> bool:
    """Whether an object with these labels is managed by any job of any installation."""
    return labels.get(MANAGED_BY) == MANAGER and JOB in labels


def is_reserved(key: str) -> bool:
    """Whether rules must not set or copy this label or annotation key."""
    return key in RESERVED_KEYS or key.startswith(RESERVED_PREFIXES)


def other_owner(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return the other tool that owns an object by a label or annotation; empty if there is none."""
    marked = next((tool for key, tool in _OTHER_TOOLS.items() if key in annotations or key in labels), "")
    managed_by = labels.get(MANAGED_BY, MANAGER)
    return marked or (managed_by if managed_by != MANAGER else "")


def is_helm_label(key: str, value: str) -> bool:
    """Whether this label makes an object a release of Helm, whatever its name or type."""
    return (key, value) == ("owner", "helm")
