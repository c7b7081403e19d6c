"""CopyratorRules from files: checks beyond the schema, and rules in the format of an older tool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import yaml

from jobs.core.sync_copies.rules import (
    RULE_TYPES,
    Rule,
    Spec,
    parse_rule,
    problems_of_any_type,
    spec_problems,
)
from jobs.kit.api.custom_resources import from_files
from jobs.kit.values.errors import ConfigurationError
from jobs.kit.values.resources import RULES

# In bytes of JSON; a longer rule is not printed.
_LONGEST_RULE = 4096


def rules_from_files(filenames: Sequence[str], namespace: str, rule_name: str | None) -> tuple[Rule, ...]:
    """Return the rules in these files; `namespace` is the namespace of the rules.

    Raises:
        ConfigurationError: a rule is not valid, or no rule is named `rule_name`; lists all problems of all rules.
    """
    rules = from_files(
        filenames, RULES, parse_rule, namespace, beyond_schema=_problems_beyond_schema, older_form=_old_format_message
    )
    names = [rule.name for rule in rules]
    if rule_name is not None and rule_name not in names:
        raise ConfigurationError(
            f"{', '.join(filenames)}: no {RULES.kind} {rule_name!r}; the rules are: {', '.join(names)}"
        )
    return rules


def _problems_beyond_schema(spec: dict[str, Any]) -> list[str]:
    """Return the problems that the schema does not find; none if the spec cannot be decoded."""
    has_type = spec.get("ruleType") in RULE_TYPES
    try:
        decoded = msgspec.convert(spec if has_type else {**spec, "ruleType": RULE_TYPES[0]}, Spec)
    except msgspec.ValidationError:
        return []
    problems = spec_problems(decoded) if has_type else problems_of_any_type(decoded)
    return [f"spec.{problem}" for problem in problems]


def _old_format_message(content: dict[str, Any]) -> str | None:
    """Return the message for a rule in the older format, which has no `spec`: the same rule in the new format."""
    selector = content.get("selector") or {}
    if "spec" in content or "ruleType" not in content or not isinstance(selector, dict):
        return None
    spec: dict[str, Any] = {"ruleType": content["ruleType"]}
    namespaces = content.get("namespaces") or ([content["namespace"]] if "namespace" in content else [])
    if namespaces:
        spec["namespaces"] = namespaces
    spec["selector"] = selector if {"matchLabels", "matchExpressions"} & selector.keys() else {"matchLabels": selector}
    given = content.get("metadata")
    copied_fields = ("name", "namespace", "labels", "annotations")
    metadata = {key: value for key, value in given.items() if key in copied_fields} if isinstance(given, dict) else {}
    rule = {"apiVersion": RULES.api_version, "kind": RULES.kind, "metadata": metadata, "spec": spec}
    if len(msgspec.json.encode(rule)) > _LONGEST_RULE:
        return "has no spec: this is the format of an older tool; write ruleType, namespaces and selector under spec"
    text = yaml.safe_dump(rule, sort_keys=False).strip().replace("\n", "\n    ")
    return f"has no spec: this is the format of an older tool; write this rule as\n\n    {text}\n"
