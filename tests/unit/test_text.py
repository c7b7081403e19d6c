"""Untrusted text: its escapes, and the messages of conditions and Events, which users of the cluster read."""

from datetime import datetime, timezone
from functools import partial

import pytest
from msgspec import Struct, structs

from jobs.kit.values.conditions import LONGEST_MESSAGE, Condition, event, new_condition, status_update
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import Head
from jobs.kit.values.resources import RULES
from jobs.kit.values.text import brief, visible
from tests.hostile_text import HOSTILE, left_in


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\x1b[31m", r"\x1b[31m"),
        ("\x00\x1b[31m\x7f\x85\x9b", r"\x00\x1b[31m\x7f\x85\x9b"),
        ("\u061c\u200b\u200e\u202e\u2066", r"\u061c\u200b\u200e\u202e\u2066"),
        ("\u2028\u2029\ufeff\u3164\u2800", r"\u2028\u2029\ufeff\u3164\u2800"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
        ("a\u00a0b", r"a\xa0b"),
        (r"^[a-z]\.\n$", r"^[a-z]\.\n$"),
        ("kölner Straße 東京 ☸", "kölner Straße 東京 ☸"),
        ("", ""),
    ],
)
def test_control_and_invisible_characters_are_escaped(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(shown) == shown


def test_long_text_is_cut_with_the_number_of_its_characters() -> None:
    assert brief("x" * 1024) == "x" * 1024
    assert brief("x" * 1_000_000) == "x" * 1024 + "… (1000000 characters)"
    assert brief("\x1b" * 1024).startswith(r"\x1b\x1b")
    assert len(brief("\x1b" * 1024)) < 1100


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


class Status(Struct, frozen=True):
    observed_generation: int = 1
    conditions: tuple[Condition, ...] = ()


def test_a_status_is_written_only_if_it_changed_and_keeps_the_time_of_its_last_transition() -> None:
    head, earlier = Head(ObjectKey("CopyratorRule", "a", "b"), "uid", 1), "2020-01-01T00:00:00Z"
    condition = new_condition("Ready", "True", "Synced", "1 copy")
    before = Status(1, (structs.replace(condition, observed_generation=1, last_transition_time=earlier),))

    update_of = partial(status_update, head, RULES, before, now=NOW, transient={"Other"})
    assert update_of(condition) is None
    for status, time in (("True", earlier), ("False", "2026-01-20T00:00:00Z")):
        update = update_of(new_condition("Ready", status, "Other", "2 copies"))
        assert update
        assert update.event
        made = {each["type"]: each["lastTransitionTime"] for each in (update.status or {})["conditions"]}
        assert made == ({"Ready": time} if status == "True" else {"Ready": time, "Reconciling": time})
