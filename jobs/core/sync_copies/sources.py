"""Sources: those that rules select, and those that are never copied. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from jobs.core.sync_copies.observed import KINDS, Observed
from jobs.core.sync_copies.rules import Rule
from jobs.kit.data.objects import ReducedObject
from jobs.kit.values import stamps
from jobs.kit.values.findings import unreadable
from jobs.kit.values.model import Finding, ObjectKey, Severity
from jobs.kit.values.reads import InvalidObject
from jobs.kit.values.resources import Resource

# By the prefix of the Secret's type. The cluster or Helm acts on these Secrets: a copy would be a credential for the
# cluster, or a release. Built-in types: https://kubernetes.io/docs/concepts/configuration/secret/#secret-types
NEVER_COPIED = {
    "kubernetes.io/service-account-token": "service-account tokens are never copied",
    "bootstrap.kubernetes.io/": "bootstrap tokens are never copied",
    "helm.sh/": "Helm releases are never copied",
}
_ROOT_CA = "kube-root-ca.crt"
_HELM_RELEASE = "sh.helm.release."  # also a ConfigMap: https://helm.sh/docs/topics/advanced/#configmap-storage-backend


class Candidate(NamedTuple):
    """A source, and a rule that selects it."""

    rule: Rule
    source: ReducedObject


Selected = Mapping[tuple[str, str], Sequence[Candidate]]  # by rule type and name of the source


def candidates(observed: Observed) -> tuple[Selected, list[Finding]]:
    """Return the selected sources by rule type and name, and the findings of sources that are never copied."""
    selected: dict[tuple[str, str], list[Candidate]] = {}
    skipped: dict[ObjectKey, Finding] = {}
    for rule in observed.rules:
        for query in rule.queries():
            for source in observed.sources.get(query, ()):
                if isinstance(source, ReducedObject) and not _why_skipped(source):
                    selected.setdefault((query.rule_type, source.name), []).append(Candidate(rule, source))
                    continue
                found = _skipped_source(KINDS[query.rule_type], source)
                others = skipped.get(found.object, found).subjects
                skipped[found.object] = structs.replace(found, subjects=tuple(sorted({*others, rule.name})))
    return selected, list(skipped.values())


def _skipped_source(resource: Resource, source: ReducedObject | InvalidObject) -> Finding:
    if isinstance(source, InvalidObject):
        return unreadable(source.key, source.error)
    key = ObjectKey(resource.kind, source.name, source.namespace)
    return Finding("skipped", Severity.INFO, key, _why_skipped(source))


def _why_skipped(source: ReducedObject) -> str:
    if stamps.is_stamped(source.header.labels):
        return "is managed by kube-chores: a copy is never a source"
    if source.name == _ROOT_CA:
        return "every namespace has its own kube-root-ca.crt"
    if source.name.startswith(_HELM_RELEASE):
        return NEVER_COPIED["helm.sh/"]
    return why_never_copied(source.content.type) if source.content else ""


def why_never_copied(kind: str) -> str:
    """Return why Secrets of this type are never copied; empty if they are copied."""
    return next((why for prefix, why in NEVER_COPIED.items() if kind.startswith(prefix)), "")
