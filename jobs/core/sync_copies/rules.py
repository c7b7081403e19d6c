"""The CopyratorRule: its types, and its validation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

from jobs.core.sync_copies.selectors import LabelSelector, key_problems, selector_problems, value_problems
from jobs.kit.values import stamps
from jobs.kit.values.conditions import Condition
from jobs.kit.values.names import is_name
from jobs.kit.values.reads import Head, Invalid, parse


class Targets(Struct, frozen=True, rename="camel"):
    """Which namespaces receive copies."""

    namespace_selector: LabelSelector = LabelSelector()
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()


class CopyMetadata(Struct, frozen=True, rename="camel"):
    """Labels and annotations of copies, in addition to the stamp."""

    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    copy_labels: tuple[str, ...] = ()
    copy_annotations: tuple[str, ...] = ()


class Spec(Struct, frozen=True, rename="camel"):
    """The spec of a CopyratorRule; its fields are described in cronjobs/crds/copyrators.yaml."""

    rule_type: Literal["configmap", "secret"]
    selector: LabelSelector
    namespaces: tuple[str, ...] = ()
    targets: Targets = Targets()
    conflict: Literal["Skip", "Adopt"] = "Skip"
    orphans: Literal["Delete", "Retain"] = "Delete"
    metadata: CopyMetadata = CopyMetadata()


class Conflict(Struct, frozen=True):
    """The place of a copy where an object exists that kube-chores does not manage."""

    namespace: str
    name: str


class FailedNamespace(Struct, frozen=True):
    """A namespace where the rule has a problem, and the reason of the worst one, as in condition Ready."""

    namespace: str
    reason: str


class RuleStatus(Struct, frozen=True, rename="camel"):
    """The status that an earlier run wrote. `conflicts` and `failed_namespaces` are truncated, their counts are not.

    `selected_generation` is the last generation that selected a source and a target, of the rule with `selected_uid`.
    `conflict_count`, `sources`, `desired_copies` and `copies` are None if they are not known.
    `last_run_time` is a time in RFC 3339.
    """

    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()
    conflict_count: int | None = None
    conflicts: tuple[Conflict, ...] = ()
    selected_generation: int | None = None
    selected_uid: str = ""
    sources: int | None = None
    desired_copies: int | None = None
    copies: int | None = None
    failed_namespace_count: int = 0
    failed_namespaces: tuple[FailedNamespace, ...] = ()
    last_run_time: str = ""


class Rule(Struct, frozen=True):
    """A valid rule."""

    head: Head
    spec: Spec

    @property
    def name(self) -> str:
        """The rule's name."""
        return self.head.key.name

    @property
    def namespace(self) -> str:
        """The rule's namespace."""
        return self.head.key.namespace

    @property
    def source_namespaces(self) -> Sequence[str]:
        """The namespaces of its sources."""
        return self.spec.namespaces or (self.namespace,)

    def queries(self) -> list[SourceQuery]:
        """Return the lists that find this rule's sources."""
        namespaces = sorted(set(self.source_namespaces))
        return [SourceQuery(self.spec.rule_type, each, self.spec.selector.query()) for each in namespaces]


def used_keys(rules: Iterable[Rule]) -> frozenset[str]:
    """Return the keys of labels and annotations of ConfigMaps and Secrets that these rules read or set."""
    found = set(stamps.KEYS | stamps.KEYS_OF_OTHER_TOOLS)
    for rule in rules:
        extra = rule.spec.metadata
        found.update(extra.labels, extra.annotations, extra.copy_labels, extra.copy_annotations)
        found |= rule.spec.selector.label_keys()
    return frozenset(found)


class SourceQuery(NamedTuple):
    """A list request for sources: rule type, namespace, and label selector in the syntax of the API."""

    rule_type: str
    namespace: str
    selector: str


def spec_problems(spec: Spec) -> Iterator[str]:
    """Yield the problems of a spec, from the cluster or from a file, each with its field."""
    if not spec.selector.requires_a_label():
        yield (
            "selector: must name at least one label that sources have: "
            "a matchLabels entry, or an expression with operator In or Exists"
        )
    yield from selector_problems(spec.selector, "selector")
    yield from selector_problems(spec.targets.namespace_selector, "targets.namespaceSelector")
    for name, keys in {
        "labels": spec.metadata.labels,
        "annotations": spec.metadata.annotations,
        "copyLabels": spec.metadata.copy_labels,
        "copyAnnotations": spec.metadata.copy_annotations,
    }.items():
        for key in keys:
            yield from key_problems(key, f"metadata.{name}")
            if stamps.is_reserved(key):
                yield f"metadata.{name}: {key} is reserved for the tool that manages the object; remove it"
    for key, value in spec.metadata.labels.items():
        yield from value_problems(value, f"metadata.labels[{key}]")
        if stamps.is_helm_label(key, value):
            yield f"metadata.labels[{key}]: {value} is reserved: Helm treats such objects as releases; remove it"


def parse_rule(head: Head, spec: bytes) -> Rule | Invalid:
    """Return the rule, or its problems if it is not valid."""
    return parse(head, spec, Spec, _all_problems, Rule)


def _all_problems(spec: Spec) -> Iterator[str]:
    for name in spec.namespaces:
        if not is_name(name):  # the schema rejects them
            yield f"namespaces: {name!r} is not a valid namespace name"
    yield from spec_problems(spec)
