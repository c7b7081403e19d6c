"""CopyratorRules from files: what is checked beyond their schema, and the form of an older tool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import yaml

from jobs.copies.rules import RULES, Rule, Spec, parse_rule, rule_problems
from jobs.kit.custom_resources import from_files
from jobs.kit.errors import ConfigurationError

# As JSON; a longer one is not shown.
_LONGEST_RULE = 4096


def rules_from_files(filenames: Sequence[str], namespace: str, rule_name: str | None) -> tuple[Rule, ...]:
    """Return the rules in these files; `namespace` is the one that rules are read from.

    Raises:
        ConfigurationError: with all problems of all rules.
    """
    rules = from_files(
        filenames, RULES, parse_rule, namespace, beyond_schema=_beyond_the_schema, older_form=_in_the_new_form
    )
    names = [rule.name for rule in rules]
    if rule_name is not None and rule_name not in names:
        raise ConfigurationError(
            f"{', '.join(filenames)}: holds no {RULES.kind} {rule_name!r}; it has {', '.join(names)}"
        )
    return rules


def _beyond_the_schema(spec: dict[str, Any]) -> list[str]:
    """Return the problems that no schema finds in a spec which has others, as far as it can be read at all."""
    try:
        return list(rule_problems(msgspec.convert({**spec, "ruleType": "configmap"}, Spec)))
    except msgspec.ValidationError:
        return []


def _in_the_new_form(content: dict[str, Any]) -> str | None:
    """Return the message for a rule of the older form, which has no `spec`: the same rule as it has to be written."""
    selector = content.get("selector") or {}
    if "spec" in content or "ruleType" not in content or not isinstance(selector, dict):
        return None
    spec: dict[str, Any] = {"ruleType": content["ruleType"]}
    namespaces = content.get("namespaces") or ([content["namespace"]] if "namespace" in content else [])
    if namespaces:
        spec["namespaces"] = namespaces
    spec["selector"] = selector if {"matchLabels", "matchExpressions"} & selector.keys() else {"matchLabels": selector}
    given = content.get("metadata")
    kept = ("name", "namespace", "labels", "annotations")
    metadata = {key: value for key, value in given.items() if key in kept} if isinstance(given, dict) else {}
    rule = {"apiVersion": RULES.api_version, "kind": RULES.kind, "metadata": metadata, "spec": spec}
    if len(msgspec.json.encode(rule)) > _LONGEST_RULE:
        return "has no spec: this is the form of an older tool. Write ruleType, namespaces and selector under spec"
    text = yaml.safe_dump(rule, sort_keys=False).strip().replace("\n", "\n    ")
    return f"has no spec: this is the form of an older tool. Write this rule as\n\n    {text}\n"
