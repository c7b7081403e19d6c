"""Escapes of untrusted text."""

from __future__ import annotations

import pytest

from jobs.kit.values.text import brief, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\tc\r", r"a\nb\tc\r"),
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
