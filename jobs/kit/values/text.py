"""Escape untrusted text (names, annotations, values, messages of servers) for a terminal or a log. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import urlsplit

import click

HIDDEN = "***"  # in place of a value of a Secret
LONGEST = 1024  # characters of a cell or a message
LONGEST_MESSAGE = 4000  # characters of an error that a run keeps; a line of the log has 96 more

Item = TypeVar("Item")

# Invisible characters that Unicode classifies as letters, marks or symbols: fillers, variation selectors and others.
# https://www.unicode.org/reports/tr44/#Default_Ignorable_Code_Point and U+2800, a braille cell without dots.
_SELECTORS = (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
_INVISIBLE = frozenset(map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, *_SELECTORS)))


class Lines(str):
    """A message of several lines. Untrusted text in it is escaped before, so that it cannot start a line of its own."""


def visible(text: str) -> str:
    r"""Return the text with each character escaped that is invisible, moves the cursor or changes the direction.

    These are control and format characters, separators except the space, surrogates, private and unassigned characters:
    \n, \x1b, \u202e. Backslashes stay, so that text that is escaped already does not change.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if each.isprintable() and each not in _INVISIBLE else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def brief(text: str, longest: int = LONGEST) -> str:
    """Return the text escaped, and cut to `longest` characters, with the number of all characters."""
    shown = visible(text)
    return shown if len(shown) <= longest else f"{shown[:longest]}… ({len(text)} characters)"


def cut(text: str, longest: int = LONGEST_MESSAGE) -> str:
    """Return the text as it is, cut to `longest` characters, with the number of all characters."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)"


def coloured(text: str, color: str | None) -> str:
    """Return the text in this color; as it is if that is None, where click.style would end a color that none began."""
    return click.style(text, fg=color) if color else text


def listed(items: Sequence[Item], most: int = 3, text: Callable[[Item], str] = str, separator: str = ", ") -> str:
    """Return the texts of the first `most` items, and the number of the others."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return separator.join(map(text, items[:most])) + more


def plural(noun: str) -> str:
    """Return the plural of a noun, such as the kind of an object."""
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"


def format_count(name: str, number: int) -> str:
    """Return a number with its noun, of which `name` is the plural; or with an adjective, which has none."""
    return f"{number} {name.removesuffix('s') if number == 1 else name}"


def without_credentials(url: str) -> str:
    """Return a URL for messages, without its credentials and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
