"""The world of `python -m benchmarks --context NAME`: what is created and deleted on any cluster, and the table.

Nothing here sends a request. Objects of others are safe, because

- the names of the namespaces have a random part, and the rule selects only names with it as targets;
- a run manages only copies with the namespace of its rules in their labels, and with --rule-name it deletes none;
- a namespace is deleted only with its name and its uid.
"""

from __future__ import annotations

import json
import secrets
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from benchmarks.measured import Usage, figures_of
from benchmarks.tables import row, spread, table
from jobs.kit.api.cluster import Write
from jobs.kit.api.responses import Request
from jobs.kit.values import stamps
from jobs.kit.values.model import Action
from jobs.kit.values.resources import NAMESPACES, RULES, SECRETS, Resource
from jobs.kit.values.text import listed

SOURCES, BYTES = 10, 1024
LABEL = "kubechores.dev/benchmark"
RULE = "benchmark"
SCENARIOS = ("first", "converged", "changed")
Object = dict[str, Any]


class Run(NamedTuple):
    """One run of sync-copies."""

    scenario: str
    seconds: float
    peak_mib: float
    requests: int


@dataclass(frozen=True)
class World:
    """What is created: names and objects, by a token that nobody can guess."""

    token: str
    size: int

    @property
    def home(self) -> str:
        """The namespace of the rule and its sources."""
        return f"chores-benchmark-{self.token}"

    @property
    def targets(self) -> list[str]:
        """The namespaces that get copies."""
        return [f"{self.home}-{number:05}" for number in range(self.size)]

    @property
    def copies(self) -> int:
        """The number of copies."""
        return self.size * SOURCES

    def _object(self, resource: Resource, name: str, namespace: str = "", **fields: Any) -> Object:
        place = {"namespace": namespace} if namespace else {}
        metadata = {"name": name, **place, "labels": {LABEL: self.token}}
        return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields}

    def namespaces(self) -> Iterable[Write]:
        """Yield the writes of the namespaces."""
        return (
            _write(Action.CREATE, NAMESPACES, self._object(NAMESPACES, name)) for name in (self.home, *self.targets)
        )

    def rule(self) -> Write:
        """Return the write of the rule."""
        spec = {
            "ruleType": "secret",
            "selector": {"matchLabels": {LABEL: self.token}},
            "targets": {"include": [f"{self.home}-*"]},
        }
        return _write(Action.CREATE, RULES, self._object(RULES, RULE, self.home, spec=spec))

    def sources(self, action: Action) -> Iterable[Write]:
        """Yield the writes of the sources, with new values. No rule of others has sources of these names."""
        for number in range(SOURCES):
            data = {"key": b64encode(secrets.token_hex(BYTES // 2).encode()).decode()}
            yield _write(action, SECRETS, self._object(SECRETS, f"{self.home}-{number}", self.home, data=data))

    def deletions(self, existing: Iterable[tuple[str, str]]) -> Iterator[Write]:
        """Yield the deletions of our namespaces among the existing ones, given as names with uids."""
        own = {self.home, *self.targets}
        for name, uid in existing:
            if name in own:
                options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
                yield Write(Action.DELETE, NAMESPACES, "", name, msgspec.json.encode(options), None)

    def deletions_of_copies(self) -> Iterable[Request]:
        """Yield requests that delete all copies."""
        query = f"labelSelector={quote(stamps.selector('sync-copies', self.home))}"
        return (Request("DELETE", f"{SECRETS.path(namespace)}?{query}") for namespace in self.targets)

    def table(self, runs: Sequence[Run]) -> list[str]:
        """Return the figures as a table: medians, and the range of seconds."""
        rows = table("run", "size", "seconds", "peak MiB", "requests")
        for scenario in SCENARIOS:
            own = [each for each in runs if each.scenario == scenario]
            seconds = spread([each.seconds for each in own], 2)
            others = (f"{median(each):,.0f}" for each in ([run.peak_mib for run in own], [run.requests for run in own]))
            rows.append(row(scenario, f"{self.copies:,} copies", seconds, *others))
        return rows


def _write(action: Action, resource: Resource, obj: Object) -> Write:
    metadata = obj["metadata"]
    return Write(action, resource, metadata.get("namespace", ""), metadata["name"], msgspec.json.encode(obj), None)


def figures(scenario: str, used: Usage, copies: int) -> Run | str:
    """Return the figures of a run, or what is wrong with it: it must write exactly what its scenario requires."""
    report = json.loads(used.stdout or "{}")
    expected = 0 if scenario == "converged" else copies
    problem = f"ended with exit code {used.exit_code}"
    if not used.exit_code:
        found = figures_of(report)
        if found["written"] == expected:
            return Run(scenario, used.seconds, used.peak_mib, found["requests"])
        problem = f"wrote {found['written']} copies in place of {expected}"
    failed = (each for each in report.get("results", ()) if each["outcome"] != "done")
    why = listed([*dict.fromkeys(each.get("message") or each["reason"] for each in failed)], separator="; ")
    return f"run {scenario!r} of sync-copies {problem}{why and f': {why}'}"
