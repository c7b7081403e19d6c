"""Label selectors and name globs: validate them, match them, and write selectors as the API does."""

from __future__ import annotations

import fnmatch
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from jobs.kit.values.resources import key_problems, value_problems
from jobs.kit.values.text import listed

_WILDCARD = re.compile(r"[*?]")
_WITH_VALUES = ("In", "NotIn")
_QUERIES = {"In": "{key} in ({values})", "NotIn": "{key} notin ({values})", "Exists": "{key}", "DoesNotExist": "!{key}"}


class Expression(Struct, frozen=True):
    """One matchExpressions entry of a LabelSelector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Struct, frozen=True, rename="camel"):
    """A LabelSelector; an empty one selects everything.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/label-selector/
    """

    match_labels: Mapping[str, str] = field(default_factory=dict)
    match_expressions: tuple[Expression, ...] = ()

    def query(self) -> str:
        """Return the selector as the value of the API's `labelSelector` parameter, in a stable order."""
        terms = [f"{key}={value}" for key, value in self.match_labels.items()]
        for each in self.match_expressions:
            terms.append(_QUERIES[each.operator].format(key=each.key, values=",".join(sorted(each.values))))
        return ",".join(sorted(terms))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the selector selects these labels; the API evaluates `query()` to the same."""
        for key, value in self.match_labels.items():  # a generator is slower, for 10,000 namespaces and 1,000 rules
            if labels.get(key) != value:
                return False
        return all(_matches(expression, labels) for expression in self.match_expressions)

    def mismatches(self, labels: Mapping[str, str]) -> list[str]:
        """Return each term that does not select these labels, and the label that it finds; empty if it matches."""
        terms = [Expression(key, "In", (value,)) for key, value in self.match_labels.items()]
        return [_mismatch(each, labels) for each in (*terms, *self.match_expressions) if not _matches(each, labels)]

    def label_keys(self) -> frozenset[str]:
        """Return the label keys that the selector uses."""
        return frozenset([*self.match_labels, *(each.key for each in self.match_expressions)])

    def requires_a_label(self) -> bool:
        """Whether the selector matches only objects with some label; an empty one selects everything."""
        return bool(self.match_labels) or any(e.operator in ("In", "Exists") for e in self.match_expressions)


def _matches(expression: Expression, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression.key)
    if expression.operator == "In":
        return value in expression.values
    if expression.operator == "NotIn":
        return value not in expression.values
    return (value is not None) == (expression.operator == "Exists")


def _mismatch(expression: Expression, labels: Mapping[str, str]) -> str:
    key, values = expression.key, listed(expression.values, separator=" or ")
    actual = f"is {labels[key] or 'empty'}" if key in labels else "is not set"
    required = {"In": f"be {values}", "NotIn": f"not be {values}", "Exists": "be set", "DoesNotExist": "not be set"}
    return f"label {key} {actual} and must {required[expression.operator]}"


def selector_problems(selector: LabelSelector, path: str) -> Iterator[str]:
    """Yield the problems for which the API would refuse a selector, each with its field."""
    for key, value in selector.match_labels.items():
        yield from key_problems(key, f"{path}.matchLabels")
        yield from value_problems(value, f"{path}.matchLabels[{key}]")
    for number, expression in enumerate(selector.match_expressions):
        where = f"{path}.matchExpressions[{number}]"
        yield from key_problems(expression.key, f"{where}.key")
        if (expression.operator in _WITH_VALUES) != bool(expression.values):
            yield f"{where}.values: In and NotIn need values, Exists and DoesNotExist take none"
        for value in expression.values:
            yield from value_problems(value, f"{where}.values")


def is_glob(pattern: str) -> bool:
    """Whether a pattern has `*` or `?`, so that it may match several names."""
    return "*" in pattern or "?" in pattern


def glob_matcher(patterns: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern that fully matches names of any of the globs; `*` is any characters, `?` any one."""
    # fnmatch also has sets in brackets; here, a bracket matches itself.
    parts = [fnmatch.translate(pattern.replace("[", "[[]")) for pattern in patterns]
    return re.compile("|".join(f"(?:{part})" for part in parts) if parts else r"(?!)")


def names_matching(glob: str, names: Sequence[str]) -> Sequence[str]:
    """Return the names that a glob matches. They are sorted: only those with its literal prefix are compared."""
    prefix = _WILDCARD.split(glob, maxsplit=1)[0]
    begin = bisect_left(names, prefix)
    end = bisect_right(names, prefix, begin, key=lambda name: name[: len(prefix)])
    if glob == f"{prefix}*":
        return names[begin:end]
    matches = glob_matcher([glob]).fullmatch
    return [name for name in names[begin:end] if matches(name)]
