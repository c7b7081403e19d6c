"""CopyratorRules from files: checked as the API server would, all problems at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import yaml

from jobs.copies.rules import RULES, Head, Rule, Spec, parse_rule, rule_problems
from jobs.kit import files
from jobs.kit.errors import ConfigurationError


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
    if not problems and rule_name is not None and rule_name not in names:
        problems = [f"{', '.join(filenames)}: holds no {RULES.kind} {rule_name!r}; it has {', '.join(sorted(names))}"]
    if problems:
        raise ConfigurationError(*problems)
    return tuple(sorted(rules, key=lambda rule: rule.name))


def _rule_from_file(content: dict[str, Any], namespace: str) -> Rule | list[str]:
    """Return the rule, or its problems, each beginning with its name."""
    from jobs.kit.schema import schema_problems

    given = content.get("metadata")
    metadata: dict[str, Any] = given if isinstance(given, dict) else {}
    name = str(metadata.get("name") or "(without a name)")
    selector = content.get("selector") or {}
    if "spec" not in content and "ruleType" in content and isinstance(selector, dict):
        return [f"{name}: {_in_the_new_form(content, metadata, selector)}"]
    problems = schema_problems(content, RULES.plural)
    if content.get("apiVersion") != RULES.api_version:
        problems.append(f"apiVersion: must be {RULES.api_version}, is {content.get('apiVersion')!r}")
    if not metadata.get("name"):
        problems.append("metadata.name: is required")
    if metadata.get("namespace", namespace) != namespace:
        problems.append(
            f"metadata.namespace: is {metadata['namespace']!r}, but rules are read from {namespace!r}; use -n"
        )
    spec = content.get("spec")
    if not problems:
        rule = parse_rule(Head(namespace, name), msgspec.json.encode(spec))
        if isinstance(rule, Rule):
            return rule
        problems = list(rule.problems)
    elif isinstance(spec, dict):
        problems += _beyond_the_schema(spec)
    return [f"{name}: {problem}" for problem in problems]


def _beyond_the_schema(spec: dict[str, Any]) -> list[str]:
    """Return the problems that no schema finds in a spec which has others, as far as it can be read at all."""
    try:
        return list(rule_problems(msgspec.convert({**spec, "ruleType": "configmap"}, Spec)))
    except msgspec.ValidationError:
        return []


def _in_the_new_form(content: dict[str, Any], given: dict[str, Any], selector: dict[str, Any]) -> str:
    """Return the message for a rule without `spec`: the same rule as it has to be written now."""
    spec: dict[str, Any] = {"ruleType": content["ruleType"]}
    namespaces = content.get("namespaces") or ([content["namespace"]] if "namespace" in content else [])
    if namespaces:
        spec["namespaces"] = namespaces
    spec["selector"] = selector if {"matchLabels", "matchExpressions"} & selector.keys() else {"matchLabels": selector}
    kept = ("name", "namespace", "labels", "annotations")
    metadata = {key: value for key, value in given.items() if key in kept}
    rule = {"apiVersion": RULES.api_version, "kind": RULES.kind, "metadata": metadata, "spec": spec}
    text = yaml.safe_dump(rule, sort_keys=False).strip().replace("\n", "\n    ")
    return f"has no spec: this is the form of an older tool. Write this rule as\n\n    {text}\n"
