"""Other clusters in the document, from the statuses of the rules that select them. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from jobs.core.status.custom import Custom, code_of
from jobs.core.status.problems import Problem, problem, remedy
from jobs.core.sync_copies.clusters import CLUSTERS_READY, MOST_CLUSTERS, rank
from jobs.core.sync_copies.rules import ClusterStatus
from jobs.kit.values.conditions import Condition
from jobs.kit.values.errors import InvalidObjectError
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import decode
from jobs.kit.values.registry import CLUSTERS
from jobs.kit.values.text import listed

_MOST_NAMED = 3


class _Targets(Struct):
    clusters: dict[str, Any] | None = None


class _Spec(Struct):
    targets: _Targets | None = None


class _Status(Struct):
    conditions: tuple[Condition, ...] = ()
    clusters: tuple[ClusterStatus, ...] = ()


def selecting(rules: Iterable[Custom]) -> list[Custom]:
    """Return the rules with spec.targets.clusters: the statuses of others may have clusters of an earlier spec."""
    return [each for each in rules if _selects_clusters(each)]


def _selects_clusters(rule: Custom) -> bool:
    try:
        targets = decode(rule.spec or b"{}", _Spec).targets
    except InvalidObjectError:
        return False
    return targets is not None and targets.clusters is not None


def clusters(rules: Sequence[Custom]) -> list[dict[str, Any]]:
    """Return the clusters of the document, the worst first."""
    found: dict[str, dict[str, ClusterStatus]] = {}
    for rule in rules:
        for each in rule.head.status_as(_Status).clusters:
            found.setdefault(each.name, {})[rule.head.key.name] = each
    incomplete = {*_cut(rules)}
    rows = [_cluster(name, by_rule, is_complete=by_rule.keys() >= incomplete) for name, by_rule in found.items()]
    return sorted(rows, key=lambda row: (rank(row["reason"]), row["name"]))


def cut(rules: Iterable[Custom]) -> str:
    """Return which rules may have more clusters than their statuses; empty if there are none."""
    names = _cut(rules)
    return f"{listed(names, _MOST_NAMED)}: a status has only the worst {MOST_CLUSTERS} clusters" if names else ""


def _cut(rules: Iterable[Custom]) -> list[str]:
    return [each.head.key.name for each in rules if len(each.head.status_as(_Status).clusters) >= MOST_CLUSTERS]


def _cluster(name: str, by_rule: Mapping[str, ClusterStatus], *, is_complete: bool) -> dict[str, Any]:
    statuses = list(by_rule.values())
    return {
        "name": name,
        "desired": _sum([each.desired for each in statuses]) if is_complete else None,
        "copies": _sum([each.copies for each in statuses]) if is_complete else None,
        "reason": min((each.reason for each in statuses), key=lambda reason: (rank(reason), reason)),
        "lastRun": min(each.last_run_time for each in statuses) or None,
        "rules": {rule: each.reason for rule, each in sorted(by_rule.items())},
    }


def _sum(numbers: Sequence[int | None]) -> int | None:
    known = [each for each in numbers if each is not None]
    return sum(known) if len(known) == len(numbers) else None


def problems(rules: Iterable[Custom]) -> Iterator[Problem]:
    """Yield a problem for each rule whose copies are not as desired in all of its clusters."""
    for rule in rules:
        key = rule.head.key
        for each in rule.head.status_as(_Status).conditions:
            if each.type == CLUSTERS_READY and each.status == "False":
                code = code_of(each.reason)
                yield problem(CLUSTERS, "warning", code, key, each.message, _todo(code, key), (key.name,))


def _todo(code: str, rule: ObjectKey) -> str:
    words = remedy(CLUSTERS, code) or remedy("sync-copies", code)
    flags = ("-n", rule.namespace, "--clusters", "*", "--rule-name", rule.name, "--check")
    command = shlex.join(["chores", "sync-copies", *flags])
    return f"{words}; see {command}" if words else command
