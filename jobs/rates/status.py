"""What each ExchangeRate's status should say after a run. Pure; the same facts give the same status, to the byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import structs

from jobs.kit.conditions import Condition, StatusUpdate, changed, dated, event, new_condition
from jobs.kit.custom_resources import Head
from jobs.kit.model import Outcome, Result
from jobs.kit.refusals import REASONS, kind_of, stable_message
from jobs.rates.evaluate import CONFLICT
from jobs.rates.exchange_rates import EXCHANGE_RATES, RateStatus, Spec, subject
from jobs.rates.figures import Figures

READY = "Ready"
PROVIDERS_DIFFER = "providers-differ"  # a good rate of one provider that another one denies
# Why an ExchangeRate is not ready, by finding or outcome; the first that applies is the condition's reason.
_REASONS = (
    ("invalid", "Invalid"),
    ("unreadable", "Unreadable"),
    ("failed", "Failed"),
    *REASONS,
    ("collision", "Collision"),
    ("conflict", CONFLICT),
    ("skipped", "Terminating"),
    ("jump", "Jump"),
    ("unavailable", "Unavailable"),
)


def status_updates(
    asked: Sequence[tuple[Head, Spec | None]], held: Mapping[str, Figures], results: Sequence[Result], now: datetime
) -> list[StatusUpdate]:
    """Return what is to be written for ExchangeRates whose status does not say it yet.

    `asked` are these, with their spec if it can be followed; `held` are by subject the figures that their ConfigMaps
    should hold now, if all went well.
    """
    by_subject: dict[str, list[Result]] = {}
    for result in results:
        for name in result.finding.subjects:
            by_subject.setdefault(name, []).append(result)
    stated = (
        _status_update(head, spec, held.get(subject(head.key)), by_subject.get(subject(head.key), []), now)
        for head, spec in sorted(asked, key=lambda each: each[0].key)
        if head.uid
    )
    return [status_update for status_update in stated if status_update]


def _status_update(
    head: Head, spec: Spec | None, held: Figures | None, results: Sequence[Result], now: datetime
) -> StatusUpdate | None:
    before = head.status_as(RateStatus)
    written = all(result.outcome in (Outcome.DONE, Outcome.REPORTED) for result in results)
    figures = held if held and written else before.figures
    if figures and spec and not figures.are_of(spec.base, spec.currency):
        figures = None  # of another currency than kubectl would show beside it
    condition = dated(before.conditions, _condition(head, results), now)
    others = (other for other in before.conditions if other.type != READY)
    values = structs.asdict(figures) if figures else {}
    after = RateStatus(head.generation, (*others, condition), **values)
    if after == before:
        return None
    is_changed = changed(before.conditions, condition)
    new_event = event(head.key, EXCHANGE_RATES.api_version, head.uid, condition, now) if is_changed else None
    return StatusUpdate(head.key, head.uid, _merge_patch(after), new_event)


def _condition(head: Head, results: Sequence[Result]) -> Condition:
    kinds = {kind_of(result): result for result in results}
    for kind, reason in _REASONS:
        if kind in kinds:
            message = _message(kinds[kind])
            return new_condition(READY, "False", reason, message, head.generation)
    if PROVIDERS_DIFFER in kinds:
        return new_condition(READY, "True", "ProvidersDiffer", _message(kinds[PROVIDERS_DIFFER]), head.generation)
    return new_condition(READY, "True", "Current", "the ConfigMap holds the rate", head.generation)


def _message(result: Result) -> str:
    finding = result.finding
    about = "" if finding.object.kind == EXCHANGE_RATES.kind else f"{finding.object}: "
    return f"{about}{stable_message(result)}"


def _merge_patch(status: RateStatus) -> Mapping[str, Any]:
    """Return the status with every field: a merge patch leaves alone what it does not name, and null removes."""
    values = {field: getattr(status, field) or None for field in Figures.__struct_fields__}
    return {
        "observedGeneration": status.observed_generation,
        "conditions": msgspec.to_builtins(status.conditions),
        **values,
    }
