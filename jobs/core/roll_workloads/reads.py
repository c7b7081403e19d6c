"""How many workloads, ConfigMaps and Secrets a run reads: tenants choose their numbers. Pure."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from jobs.core.roll_workloads.workloads import Workload
from jobs.kit.values.model import Finding, Need, ObjectKey, Severity
from jobs.kit.values.resources import NAMESPACES

MOST_BYTES_OF_NAMESPACE = 16 << 20  # of its workloads, which are a few KiB each
MOST_OF_NAMESPACE = 5_000
MOST = 50_000  # a run reads about 500 in a second, and ends after 240
_MANY_SOURCES = (
    f"a run reads at most {MOST_OF_NAMESPACE} ConfigMaps and Secrets of a namespace, and {MOST} of all; the next run "
    "reads those of others"
)


class Bounds:
    """Which workloads a run keeps in memory: of each namespace, those that a list has first."""

    def __init__(self) -> None:
        self.left_out: set[ObjectKey] = set()
        self._kept: set[ObjectKey] = set()
        self._bytes: Counter[str] = Counter()

    def keep(self, workload: Workload) -> bool:
        """Return whether to keep this workload. If a list begins again, the answer is the same."""
        key = workload.key
        if key not in self._kept and key not in self.left_out:
            fits = self._bytes[key.namespace] + workload.size <= MOST_BYTES_OF_NAMESPACE
            self._bytes[key.namespace] += workload.size if fits else 0
            (self._kept if fits else self.left_out).add(key)
        return key in self._kept

    def findings(self) -> list[Finding]:
        """Return a finding for each namespace of which workloads are left out."""
        most = f"a run keeps at most {MOST_BYTES_OF_NAMESPACE >> 20} MiB of the workloads of a namespace; opt out some"
        numbers = Counter(each.namespace for each in self.left_out)
        return [_finding(namespace, number, most) for namespace, number in sorted(numbers.items())]


def within_bounds(
    wanted: Mapping[ObjectKey, Collection[Need]], read: Iterable[ObjectKey], now: datetime
) -> tuple[set[Need], list[Finding]]:
    """Return what to read next, and a finding for each namespace that wants more than this run reads.

    `wanted` is what workloads want, `read` what this run read before. The namespace that wants least comes first.
    Within one, the order is another one in each run, so that later runs read what this one does not.
    """
    left = MOST
    done: Counter[str] = Counter()
    for each in read:
        done[each.namespace] += 1
        left -= 1
    by_namespace: dict[str, list[ObjectKey]] = {}
    for workload in wanted:
        by_namespace.setdefault(workload.namespace, []).append(workload)
    sizes = {name: len({need for each in of for need in wanted[each]}) for name, of in by_namespace.items()}
    chosen: set[Need] = set()
    findings: list[Finding] = []
    for namespace in sorted(by_namespace, key=lambda name: (sizes[name], name)):
        bound = min(MOST_OF_NAMESPACE - done[namespace], left)
        fitting: set[Need] = set()
        left_out = 0
        for workload in sorted(by_namespace[namespace], key=lambda each: _place(each, now)):
            more = {need for need in wanted[workload] if need not in fitting}
            if len(fitting) + len(more) <= bound:
                fitting |= more
            else:
                left_out += 1
        left -= len(fitting)
        chosen |= fitting
        findings += [_finding(namespace, left_out, _MANY_SOURCES)] if left_out else []
    return chosen, findings


def _place(workload: ObjectKey, now: datetime) -> str:
    return hashlib.sha256(f"{now.isoformat()} {workload}".encode()).hexdigest()


def _finding(namespace: str, workloads: int, why: str) -> Finding:
    number = "1 workload was" if workloads == 1 else f"{workloads} workloads were"
    return Finding("too-many", Severity.WARNING, ObjectKey(NAMESPACES.kind, namespace), f"{number} not compared: {why}")
