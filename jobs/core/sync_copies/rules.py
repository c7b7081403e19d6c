"""The CopyratorRule: its types, and its validation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import msgspec
from msgspec import Struct, structs

from jobs.core.sync_copies.kinds import ALL_KEYS, BY_NAME, KINDS, LABELS, CopyKind, KeySelection, Kind
from jobs.core.sync_copies.selectors import LabelSelector, glob_matcher, selector_problems
from jobs.kit.values import stamps
from jobs.kit.values.conditions import Condition
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import Head, Invalid, parse
from jobs.kit.values.resources import is_name, key_problems, value_problems

RuleType = Literal[
    "configmap", "secret", "networkpolicy", "limitrange", "resourcequota", "rolebinding", "serviceaccount"
]
RULE_TYPES: tuple[str, ...] = get_args(RuleType)
_MOST_REQUESTS = 1000
_NAME_OF_SOURCE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.:]*[A-Za-z0-9])?")  # of any kind; a RoleBinding has colons
# https://kubernetes.io/docs/concepts/configuration/configmap/#configmap-object
_KEY = re.compile(r"[.]?[-_a-zA-Z0-9][-._a-zA-Z0-9]*")


class Keys(Struct, frozen=True):
    """Which keys of a source are copied; `rename` has the key in a copy by the key of the source."""

    include: tuple[str, ...] = ()
    rename: Mapping[str, str] = msgspec.field(default_factory=dict)


class CopyAs(Struct, frozen=True):
    """The kind of the copies, if it is not that of the source; `type` is that of a Secret, Opaque if it is not set."""

    kind: CopyKind
    type: Literal["Opaque", ""] = ""


class Merge(Struct, frozen=True):
    """The only key of the one copy of all sources: it has their certificates."""

    key: str


class AttachTo(Struct, frozen=True, rename="camel"):
    """The ServiceAccounts of the target namespaces that use the copies for pulls, by name or glob."""

    service_accounts: tuple[str, ...] = ()


class ClusterTargets(Struct, frozen=True):
    """Which clusters of the inventory receive copies: both their name and their labels must match."""

    names: tuple[str, ...] = ("*",)
    selector: LabelSelector = LabelSelector()


class Targets(Struct, frozen=True, rename="camel"):
    """Which namespaces receive copies: of this cluster, unless `clusters` is set; with `local`, of both."""

    namespace_selector: LabelSelector = LabelSelector()
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    clusters: ClusterTargets | None = None
    local: bool = False


class CopyMetadata(Struct, frozen=True, rename="camel"):
    """Labels and annotations of copies, in addition to the stamp."""

    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    copy_labels: tuple[str, ...] = ()
    copy_annotations: tuple[str, ...] = ()


class Spec(Struct, frozen=True, rename="camel"):
    """The spec of a CopyratorRule; its fields are described in cronjobs/crds/copyrators.yaml."""

    rule_type: RuleType
    selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    keys: Keys | None = None
    copy_as: CopyAs | None = None
    merge: Merge | None = None
    attach_to: AttachTo | None = None
    target_name: str = ""
    subject_namespace: Literal["source", "target"] = "source"
    targets: Targets = Targets()
    conflict: Literal["Skip", "Adopt"] = "Skip"
    orphans: Literal["Delete", "Retain"] = "Delete"
    metadata: CopyMetadata = CopyMetadata()


class Conflict(Struct, frozen=True):
    """The place of a copy where an object exists that kube-chores does not manage."""

    namespace: str
    name: str


class SourceNamespace(Struct, frozen=True):
    """A source namespace, and its uid."""

    name: str
    uid: str


class FailedNamespace(Struct, frozen=True):
    """A namespace where the rule has a problem, and the reason of the worst one, as in condition Ready."""

    namespace: str
    reason: str


class ClusterStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The copies of a rule in another cluster. `copies` and `desired` are None if they are not known.

    `reason` is that of the worst problem there, or Synced.
    """

    name: str
    reason: str
    desired: int | None = None
    copies: int | None = None
    last_run_time: str = ""


class KnownCluster(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A cluster that a rule selected: the uid of its namespace kube-system, and the last generation that had a copy.

    `conflict_count` is the number of places there with an object that is not managed by kube-chores. `left`: it is no
    longer in the inventory, and a run has reported it. `last_run_time` and `reason` are those of ClusterStatus, whose
    list is cut; `reason` is empty if the copies were as desired.
    """

    name: str
    uid: str = ""
    selected_generation: int | None = None
    conflict_count: int = 0
    left: bool = False
    last_run_time: str = ""
    reason: str = ""


class Pushed(Struct, frozen=True, rename="camel"):
    """What a run for other clusters has to know of the last one. `source_namespaces` as in RuleStatus."""

    rule_uid: str = ""
    source_namespaces: tuple[SourceNamespace, ...] = ()
    clusters: tuple[KnownCluster, ...] = ()

    def cluster(self, name: str) -> KnownCluster | None:
        """Return what is known of a cluster."""
        return next((each for each in self.clusters if each.name == name), None)


class RuleStatus(Struct, frozen=True, rename="camel"):
    """The status that an earlier run wrote. `conflicts` and `failed_namespaces` are truncated, their counts are not.

    `selected_generation` is the last generation that selected a source and a target, of the rule with `selected_uid`.
    `source_namespaces` are those of the last run that deleted, or would have deleted, the orphans of the rule.
    `conflict_count`, `sources`, `desired_copies` and `copies` are None if they are not known.
    `last_run_time` is a time in RFC 3339.
    """

    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()
    conflict_count: int | None = None
    conflicts: tuple[Conflict, ...] = ()
    selected_generation: int | None = None
    selected_uid: str = ""
    source_namespaces: tuple[SourceNamespace, ...] = ()
    sources: int | None = None
    desired_copies: int | None = None
    copies: int | None = None
    failed_namespace_count: int = 0
    failed_namespaces: tuple[FailedNamespace, ...] = ()
    last_run_time: str = ""
    clusters: tuple[ClusterStatus, ...] = ()
    pushed: Pushed = Pushed()


class Rule(Struct, frozen=True):
    """A valid rule. `hub` is the uid of its cluster, if copies are in another one, and `cluster` that one's name.

    If it `is_elsewhere`, it requires no copy in the cluster that is compared: it selects others.
    """

    head: Head
    spec: Spec
    hub: str = ""
    cluster: str = ""
    is_elsewhere: bool = False
    selects_no_cluster: bool = False

    @property
    def name(self) -> str:
        """The rule's name."""
        return self.head.key.name

    @property
    def namespace(self) -> str:
        """The rule's namespace."""
        return self.head.key.namespace

    @property
    def kind(self) -> Kind:
        """The kind of its sources."""
        return KINDS[self.spec.rule_type]

    @property
    def copy_type(self) -> str:
        """The rule type of its copies."""
        return self.spec.copy_as.kind.lower() if self.spec.copy_as else self.spec.rule_type

    @property
    def copy_kind(self) -> Kind:
        """The kind of its copies."""
        return KINDS[self.copy_type]

    @property
    def is_local(self) -> bool:
        """Whether it requires copies in its own cluster."""
        return self.spec.targets.clusters is None or self.spec.targets.local

    @property
    def stamp(self) -> str:
        """The rule as the stamp of its copies names it: NAMESPACE/NAME."""
        return f"{self.namespace}/{self.name}"

    @property
    def status(self) -> RuleStatus:
        """The status that an earlier run wrote; for another cluster, with what was selected there."""
        status = self.head.status_as(RuleStatus)
        if not self.cluster:
            return status
        pushed = status.pushed
        known = pushed.cluster(self.cluster) or KnownCluster(self.cluster)
        return structs.replace(
            status,
            selected_generation=known.selected_generation,
            selected_uid=pushed.rule_uid,
            source_namespaces=pushed.source_namespaces,
            conflict_count=known.conflict_count,  # more than `conflicts`: a run reads each place first
            conflicts=(),
        )

    @property
    def source_namespaces(self) -> Sequence[str]:
        """The namespaces of its sources."""
        return self.spec.namespaces or (self.namespace,)

    @property
    def label_selector(self) -> LabelSelector:
        """The selector of its sources; one that matches everything if only names select them."""
        return self.spec.selector or LabelSelector()

    @property
    def key_selection(self) -> KeySelection:
        """Which keys of its sources are copied, and in which form."""
        keys, copy_as, merge = self.spec.keys or Keys(), self.spec.copy_as, self.spec.merge
        return KeySelection(
            tuple(sorted(keys.include)),
            tuple(sorted(keys.rename.items())),
            copy_as.kind if copy_as else "",
            merge.key if merge else "",
        )

    @property
    def moves_subjects(self) -> bool:
        """Whether ServiceAccounts among the subjects get the namespace of the copy."""
        return self.spec.subject_namespace == "target"

    @property
    def service_accounts(self) -> Sequence[str]:
        """Names and globs of the ServiceAccounts that use its copies for pulls."""
        return self.spec.attach_to.service_accounts if self.spec.attach_to else ()

    def selects(self, key: ObjectKey, labels: Mapping[str, str]) -> bool:
        """Whether the rule selects an object with these labels as a source."""
        is_named = not self.spec.names or key.name in self.spec.names
        is_there = key.kind == self.kind.name and key.namespace in self.source_namespaces
        return is_there and is_named and self.label_selector.matches(labels)

    def selects_cluster(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the rule selects another cluster, by its name and labels."""
        clusters = self.spec.targets.clusters
        return (
            clusters is not None
            and glob_matcher(clusters.names).fullmatch(name) is not None
            and clusters.selector.matches(labels)
        )

    def queries(self) -> list[SourceQuery]:
        """Return the lists that find this rule's sources; without a selector, one for each name."""
        selector, keys = self.label_selector.query(), self.key_selection
        names = ("",) if selector else self.spec.names
        return [
            SourceQuery(self.spec.rule_type, namespace, selector, name, keys)
            for namespace in sorted(set(self.source_namespaces))
            for name in sorted(set(names))
        ]


def used_keys(rules: Iterable[Rule]) -> frozenset[str]:
    """Return the keys of labels and annotations of sources and copies that these rules read or set."""
    found = set(stamps.KEYS | stamps.KEYS_OF_OTHER_TOOLS | LABELS | {stamps.ATTACHED})
    for rule in rules:
        extra = rule.spec.metadata
        found.update(extra.labels, extra.annotations, extra.copy_labels, extra.copy_annotations)
        found |= rule.label_selector.label_keys()
    return frozenset(found)


class SourceQuery(NamedTuple):
    """A list request for sources: rule type, namespace, label selector in the syntax of the API, or a name.

    `keys` are the keys of these sources that are copied.
    """

    rule_type: str
    namespace: str
    selector: str
    name: str = ""
    keys: KeySelection = ALL_KEYS


def spec_problems(spec: Spec, *, has_type: bool = True) -> Iterator[str]:
    """Yield the problems of a spec, each with its field; without `has_type`, those that no rule type changes."""
    if has_type:
        yield from _problems_of_type(spec)
    yield from _source_problems(spec)
    if spec.keys:
        yield from _keys_problems(spec.keys)
    yield from _form_problems(spec)
    if spec.target_name and len(spec.names) > 1 and not spec.merge:
        yield (
            "targetName: names has more than one entry, and copies with the same name collide: "
            "use a rule for each source"
        )
    yield from selector_problems(spec.targets.namespace_selector, "targets.namespaceSelector")
    yield from _cluster_problems(spec)
    yield from _metadata_problems(spec.metadata)


def _problems_of_type(spec: Spec) -> Iterator[str]:
    kind = KINDS[spec.rule_type]
    if not kind.has_subjects and not all(map(is_name, spec.names)):
        yield (
            "names: only names of RoleBindings may have capitals, _ or colons: use lower case letters, digits, - and ."
        )
    if spec.keys and not kind.layout.has_data:
        yield "keys: only a ruleType of configmap or secret has keys: remove this field"
    if spec.subject_namespace != "source" and not kind.has_subjects:
        yield "subjectNamespace: only a ruleType of rolebinding has subjects: remove this field"
    if spec.copy_as and not kind.has_type:
        yield "copyAs: only Secrets can be copied as another kind or type: remove this field"
    if spec.merge and not kind.layout.has_data:
        yield "merge: only a ruleType of configmap or secret has certificates: remove this field"
    if spec.merge and kind.has_type and not spec.copy_as:
        yield "merge: a Secret of another type cannot have its key: set copyAs"
    if spec.attach_to and (not kind.has_type or spec.copy_as):
        yield "attachTo: only Secrets for pulls can be attached, without copyAs: remove this field"
    if spec.targets.clusters and not kind.is_pushed:
        yield (
            "targets.clusters: RoleBindings and ServiceAccounts are not copied to other clusters, where they would "
            "give rights: remove this field"
        )


def _source_problems(spec: Spec) -> Iterator[str]:
    if spec.selector:
        if not spec.selector.requires_a_label():
            yield (
                "selector: must name at least one label that sources have: "
                "a matchLabels entry, or an expression with operator In or Exists"
            )
        yield from selector_problems(spec.selector, "selector")
    elif not spec.names:
        yield "selector: neither selector nor names is set: set one of them"
    elif len(spec.names) * max(1, len(spec.namespaces)) > _MOST_REQUESTS:
        yield (
            f"names: names times namespaces is more than {_MOST_REQUESTS}, and each is a request: "
            "set a selector, or use several rules"
        )


def _keys_problems(keys: Keys) -> Iterator[str]:
    if not keys.include and not keys.rename:
        yield "keys: neither include nor rename is set: set one of them, or remove keys"
    if not all(map(_KEY.fullmatch, keys.rename)):
        yield "keys.rename: has a key that is not valid: rename FROM: TO, without globs, both of A-Z a-z 0-9 - _ ."
    if any(key == renamed for key, renamed in keys.rename.items()):
        yield "keys.rename: renames a key to itself: write it in include"
    if len(set(keys.rename.values())) < len(keys.rename):
        yield "keys.rename: gives two keys the same name: a copy has each key once"


def _cluster_problems(spec: Spec) -> Iterator[str]:
    clusters = spec.targets.clusters
    if spec.attach_to and clusters:
        yield "attachTo: ServiceAccounts of other clusters are not changed: remove attachTo, or targets.clusters"
    if spec.targets.local and not clusters:
        yield "targets.local: without targets.clusters all copies are in this cluster: remove this field"
    if clusters:
        yield from selector_problems(clusters.selector, "targets.clusters.selector")


def _form_problems(spec: Spec) -> Iterator[str]:
    """Yield the problems of copyAs, merge and attachTo that no rule type changes."""
    if spec.attach_to and not spec.attach_to.service_accounts:
        yield "attachTo: serviceAccounts is not set: name them, or remove attachTo"
    if spec.copy_as and not (spec.keys and spec.keys.include):
        yield "copyAs: keys.include is not set: name the keys that are copied"
    if spec.copy_as and spec.copy_as.type and not BY_NAME[spec.copy_as.kind].has_type:
        yield "copyAs.type: a ConfigMap has no type: remove this field"
    if spec.copy_as and not BY_NAME[spec.copy_as.kind].has_type and spec.metadata.copy_annotations:
        yield "metadata.copyAnnotations: annotations of a Secret may have its values: remove this field, or copyAs"
    if spec.merge:
        if not _KEY.fullmatch(spec.merge.key):
            yield "merge.key: is not valid: use A-Z a-z 0-9 - _ ."
        if not spec.target_name:
            yield "merge: targetName is not set: name the copy"
        if spec.metadata.copy_labels or spec.metadata.copy_annotations:
            yield "merge: the copy has many sources: remove metadata.copyLabels and metadata.copyAnnotations"
        if spec.keys and spec.keys.rename:
            yield "merge: the copy has only the key merge.key: remove keys.rename"


def _metadata_problems(metadata: CopyMetadata) -> Iterator[str]:
    for name, keys in {
        "labels": metadata.labels,
        "annotations": metadata.annotations,
        "copyLabels": metadata.copy_labels,
        "copyAnnotations": metadata.copy_annotations,
    }.items():
        for key in keys:
            yield from key_problems(key, f"metadata.{name}")
            if stamps.is_reserved(key):
                yield f"metadata.{name}: {key} is reserved for the tool that manages the object; remove it"
    for key, value in metadata.labels.items():
        yield from value_problems(value, f"metadata.labels[{key}]")
        if stamps.is_helm_label(key, value):
            yield f"metadata.labels[{key}]: {value} is reserved: Helm treats such objects as releases; remove it"


def parse_rule(head: Head, spec: bytes) -> Rule | Invalid:
    """Return the rule, or its problems if it is not valid."""
    return parse(head, spec, Spec, _all_problems, Rule)


def _all_problems(spec: Spec) -> Iterator[str]:
    """Yield the problems; also those that the schema refuses, of names that become a part of a request."""
    for name in spec.namespaces:
        if not is_name(name):
            yield f"namespaces: {name!r} is not a valid namespace name"
    for name in spec.names:
        if not _NAME_OF_SOURCE.fullmatch(name):
            yield f"names: {name!r} is not a valid name"
    if spec.target_name and not is_name(spec.target_name):
        yield f"targetName: {spec.target_name!r} is not a valid name"
    yield from spec_problems(spec)
