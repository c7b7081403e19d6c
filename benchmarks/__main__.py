"""Repeat all measurements (`make benchmark`): write benchmarks/results/performance.json, and docs/performance.md.

Takes about an hour on two cores, which should have no other work. With --context, measure sync-copies on that cluster
instead, in namespaces that are deleted afterwards, and print a table: docs/performance.md#on-your-own-cluster.
"""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from benchmarks.signals import Signals

MOST_NAMESPACES = 10_000  # of a cluster: https://github.com/kubernetes/community/blob/main/sig-scalability/configs-and-limits/thresholds.md


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """End with 2 and one line."""
        self.exit(2, f"error: {message}\n")


def _number(text: str) -> int:
    if text.isdecimal() and len(text) <= len(str(MOST_NAMESPACES)) and 1 <= int(text) <= MOST_NAMESPACES:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MOST_NAMESPACES:,}")


def _context(text: str) -> str:
    if text:
        return text
    raise argparse.ArgumentTypeError("is empty; name a context of the kubeconfig")


def main() -> None:
    """Measure here, or on another cluster."""
    parser = _Parser(prog="python -m benchmarks", description=__doc__, allow_abbrev=False)
    parser.add_argument("--runs", type=_number, default=5, help="of each program; long ones run less often")
    parser.add_argument("--only", metavar="NAME", help="keep the other results")
    parser.add_argument("--context", type=_context, metavar="NAME", help="the cluster, by its context")
    parser.add_argument("--namespaces", type=_number, metavar="N", help="that get copies, with --context; default: 100")
    given = parser.parse_args()
    # What is imported only here may take a while, or is not installed.
    if given.context:
        if given.only:
            parser.error("argument --only: not allowed with --context")
        signals = Signals()
        from benchmarks import own_cluster

        sys.exit(own_cluster.measure(given.context, given.namespaces or 100, given.runs, signals))
    if given.namespaces:
        parser.error("argument --namespaces: needs --context")
    from benchmarks.measurements import MEASUREMENTS
    from benchmarks.repeat import repeat

    if given.only and given.only not in MEASUREMENTS:
        parser.error(f"argument --only: choose from {', '.join(MEASUREMENTS)}")
    repeat([given.only] if given.only else [*MEASUREMENTS], given.runs)


if __name__ == "__main__":
    main()
