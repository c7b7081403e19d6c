"""The messages of conditions and Events, which users of the cluster read."""

from __future__ import annotations

from datetime import datetime, timezone

from jobs.kit.values.conditions import LONGEST_MESSAGE, event, new_condition
from jobs.kit.values.model import ObjectKey
from tests.hostile_text import HOSTILE, left_in

WEB = ObjectKey("Deployment", "web", "shop")
NOW = datetime(2026, 1, 20, tzinfo=timezone.utc)


def test_text_from_outside_is_escaped_in_conditions_and_events() -> None:
    condition = new_condition("Rolled", "True", "ConfigChanged", HOSTILE)
    created = event(WEB, "apps/v1", "uid", condition, NOW)

    assert left_in(condition.message) == left_in(created["message"]) == []
    assert (
        created["message"] == condition.message == new_condition("Rolled", "True", "Other", condition.message).message
    )


def test_messages_are_cut_to_what_is_allowed() -> None:
    condition = new_condition("Ready", "False", "Failed", "\x1b" * 5000)

    assert len(condition.message) == LONGEST_MESSAGE
    assert len(event(WEB, "apps/v1", "uid", condition, NOW)["message"]) == 1024
