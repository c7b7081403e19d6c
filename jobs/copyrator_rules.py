"""The CopyratorRule: its types, what no rule may say, and rules from files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import yaml
from msgspec import Raw, Struct

from jobs.kit import files, stamps
from jobs.kit.errors import ConfigurationError
from jobs.kit.model import ObjectKey
from jobs.kit.objects import Metadata, Resource
from jobs.kit.selectors import LabelSelector, key_problems, selector_problems, value_problems

RULES = Resource("kubechores.dev/v1", "CopyratorRule", "copyrators")


class Targets(Struct, frozen=True, rename="camel"):
    """Which namespaces receive copies."""

    namespace_selector: LabelSelector = LabelSelector()
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()


class CopyMetadata(Struct, frozen=True, rename="camel"):
    """Labels and annotations that copies carry beside the stamp."""

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
    metadata: CopyMetadata = CopyMetadata()


class Rule(Struct, frozen=True):
    """A rule that can be followed."""

    namespace: str
    name: str
    spec: Spec

    @property
    def key(self) -> ObjectKey:
        """The rule's own key."""
        return ObjectKey(RULES.kind, self.name, self.namespace)

    def queries(self) -> list[SourceQuery]:
        """Return the lists that find this rule's sources."""
        namespaces = self.spec.namespaces or (self.namespace,)
        return [SourceQuery(self.spec.rule_type, each, self.spec.selector.query()) for each in sorted(set(namespaces))]


class SourceQuery(NamedTuple):
    """A list of sources: their type, their namespace, a label selector as the API takes it."""

    rule_type: str
    namespace: str
    selector: str


class RuleObject(Struct):
    """A CopyratorRule as it comes; its spec stays raw, so that a bad one spoils no list."""

    metadata: Metadata
    spec: Raw = Raw()


def rule_problems(spec: Spec) -> Iterator[str]:
    """Yield what no rule may say, wherever it comes from, each problem with its field."""
    if not spec.selector.names_a_label():
        yield (
            "spec.selector: must name at least one label that sources have: "
            "a matchLabels entry, or an expression with operator In or Exists"
        )
    yield from selector_problems(spec.selector, "spec.selector")
    yield from selector_problems(spec.targets.namespace_selector, "spec.targets.namespaceSelector")
    for name, keys in {
        "labels": spec.metadata.labels,
        "annotations": spec.metadata.annotations,
        "copyLabels": spec.metadata.copy_labels,
        "copyAnnotations": spec.metadata.copy_annotations,
    }.items():
        for key in keys:
            yield from key_problems(key, f"spec.metadata.{name}")
            if stamps.is_reserved(key):
                yield f"spec.metadata.{name}: {key} is reserved: it says which tool an object belongs to"
    for key, value in spec.metadata.labels.items():
        yield from value_problems(value, f"spec.metadata.labels[{key}]")


def parse_rule(namespace: str, name: str, spec: bytes) -> Rule | list[str]:
    """Return the rule, or what is wrong with it."""
    try:
        rule = Rule(namespace, name, msgspec.json.decode(spec, type=Spec))
    except msgspec.ValidationError as error:
        return [f"spec: {error}"]
    return list(rule_problems(rule.spec)) or rule


def rules_from_files(filenames: Sequence[str], namespace: str, rule_name: str | None) -> tuple[Rule, ...]:
    """Return the rules in these files; `namespace` is the one that rules are read from.

    Raises:
        ConfigurationError: with all problems of all rules.
    """
    rules: list[Rule] = []
    problems: list[str] = []
    for document in files.documents(filenames):
        if not isinstance(document.content, dict) or document.content.get("kind") != RULES.kind:
            continue
        rule = _rule_from_file(document.content, namespace)
        if isinstance(rule, Rule):
            rules.append(rule)
        else:
            problems += [f"{document.where}: {RULES.kind} {problem}" for problem in rule]
    names = [rule.name for rule in rules]
    problems += [
        f"{RULES.kind} {name}: is in the files more than once" for name in sorted({*names}) if names.count(name) > 1
    ]
    if not problems and not rules:
        problems = [f"{', '.join(filenames)}: holds no {RULES.kind}"]
    if not problems and rule_name and rule_name not in names:
        problems = [f"{', '.join(filenames)}: holds no {RULES.kind} {rule_name}; it has {', '.join(sorted(names))}"]
    if problems:
        raise ConfigurationError(*problems)
    return tuple(sorted(rules, key=lambda rule: rule.name))


def _rule_from_file(content: dict[str, Any], namespace: str) -> Rule | list[str]:
    """Return the rule, or its problems, each beginning with its name."""
    from jobs.kit.schema import schema_problems

    given = content.get("metadata")
    metadata: dict[str, Any] = given if isinstance(given, dict) else {}
    name = str(metadata.get("name") or "(without a name)")
    if "spec" not in content and "ruleType" in content:
        return [f"{name}: {_in_the_new_form(content)}"]
    problems = schema_problems(content, RULES.plural)
    if content.get("apiVersion") != RULES.api_version:
        problems.append(f"apiVersion: must be {RULES.api_version}, is {content.get('apiVersion')!r}")
    if not metadata.get("name"):
        problems.append("metadata.name: is required")
    if metadata.get("namespace", namespace) != namespace:
        problems.append(
            f"metadata.namespace: is {metadata['namespace']!r}, but rules are read from {namespace!r}; use -n"
        )
    if not problems:
        rule = parse_rule(namespace, name, msgspec.json.encode(content["spec"]))
        if isinstance(rule, Rule):
            return rule
        problems = rule
    return [f"{name}: {problem}" for problem in problems]


def _in_the_new_form(content: dict[str, Any]) -> str:
    """Return the message for a rule without `spec`: the same rule as it has to be written now."""
    spec: dict[str, Any] = {"ruleType": content["ruleType"]}
    namespaces = content.get("namespaces") or ([content["namespace"]] if "namespace" in content else [])
    if namespaces:
        spec["namespaces"] = namespaces
    selector = content.get("selector") or {}
    spec["selector"] = selector if {"matchLabels", "matchExpressions"} & selector.keys() else {"matchLabels": selector}
    kept = ("name", "namespace", "labels", "annotations")
    metadata = {key: value for key, value in (content.get("metadata") or {}).items() if key in kept}
    rule = {"apiVersion": RULES.api_version, "kind": RULES.kind, "metadata": metadata, "spec": spec}
    text = yaml.safe_dump(rule, sort_keys=False).strip().replace("\n", "\n    ")
    return f"has no spec: this is the form of an older tool. Write this rule as\n\n    {text}\n"
