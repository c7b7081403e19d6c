"""What a run that succeeds leaves in the status of its pod, as nobody reads its log: lines of `CODE: text`. Pure.

`chores status` reads the codes. A client of the API server, such as a webhook, may have written parts of a text.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from jobs.kit.values.model import Outcome, Result
from jobs.kit.values.text import listed, visible
from jobs.kit.values.turns import in_turns

METRICS_NOT_SENT = "metrics-not-sent"
WRITES_FAILED = "writes-failed"
_MOST_NAMED = 3
# In bytes. Two lines about metrics and one about writes fit into the 2000 characters that `chores status` reads, and
# into the 4096 bytes that kubelet keeps.
_LONGEST_OBJECT, _LONGEST_REASON = 120, 280


def of_metrics(reason: str) -> str:
    """Return the line about metrics that were not sent."""
    return f"{METRICS_NOT_SENT}: {_cut(reason, _LONGEST_REASON)}"


def of_writes(results: Sequence[Result], reported: Container[str]) -> list[str]:
    """Return the line about writes that failed without failing the run; none if there are none.

    Left out are writes for `reported`, the custom resources that exist: their statuses have the failure. And Events:
    they only repeat what a status or a finding has.
    """
    failed = [
        each
        for each in results
        if each.outcome is Outcome.FAILED and not each.is_event
        if not any(name in reported for name in each.finding.subjects)
    ]
    number = f"{len(failed)} write{'' if len(failed) == 1 else 's'}"
    named = listed(in_turns(failed, lambda each: each.finding.object.namespace), _MOST_NAMED, _failure, "; ")
    return [f"{WRITES_FAILED}: {number} failed: {named}"] if failed else []


def read(message: str) -> list[tuple[str, str]]:
    """Return code and text of each line. A line without a known code is of another version, and left out."""
    lines = (line.partition(": ") for line in message.split("\n"))
    return [(code, text) for code, _, text in lines if text and code in (METRICS_NOT_SENT, WRITES_FAILED)]


def _failure(result: Result) -> str:
    return f"{_cut(str(result.finding.object), _LONGEST_OBJECT)}: {_cut(result.message, _LONGEST_REASON)}"


def _cut(text: str, longest: int) -> str:
    """Return the text escaped, so that it has one line, and cut to so many bytes."""
    whole = visible(text).encode()
    return whole[:longest].decode(errors="ignore") + "…" * (len(whole) > longest)
