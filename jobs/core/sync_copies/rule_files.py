"""CopyratorRules from files, with checks beyond the schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

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


def rules_from_files(filenames: Sequence[str], namespace: str, rule_name: str | None) -> tuple[Rule, ...]:
    """Return the rules in these files; `namespace` is the namespace of the rules.

    Raises:
        ConfigurationError: a rule is not valid, or no rule is named `rule_name`; lists all problems of all rules.
    """
    rules = from_files(filenames, RULES, parse_rule, namespace, beyond_schema=_problems_beyond_schema)
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
