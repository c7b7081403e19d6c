"""Messages of a server that is not trusted, without the values of Secrets and not too long. Pure."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterable
from contextlib import suppress

from jobs.kit.values.text import HIDDEN, LONGEST_MESSAGE

_SHORTEST_HIDDEN = 4  # a shorter value, such as "a", would redact most of the text
_START = 24  # characters of a form by which it is found
_MOST_TEXT = 1 << 20  # of all messages of one server; later ones are short
_LONG, _SHORT = LONGEST_MESSAGE - 100, 200  # with the rest of a message, not longer than any other


def quoted_forms(values: Iterable[str]) -> set[str]:
    """Return the forms in which values of a Secret may be quoted: in base64, and decoded, line by line."""
    found = set()
    for value in values:
        found.add(value)
        with suppress(ValueError):  # not base64; kube-apiserver never serves that
            lines = map(str.strip, b64decode(value).decode(errors="replace").splitlines())
            found |= {form for line in lines for form in (line, json.dumps(line)[1:-1], f"{line!r}"[1:-1])}
    return {form for form in found if len(form) >= _SHORTEST_HIDDEN}


class Forms:
    """The forms of many values, by their first characters, so that a search takes one look at each character."""

    def __init__(self, forms: Iterable[str]) -> None:
        # By a longer start first: many values may begin with the same few characters.
        self._by_start: dict[int, dict[str, list[str]]] = {_START: {}, _SHORTEST_HIDDEN: {}}
        for form in sorted(forms, key=len, reverse=True):
            start = _START if len(form) >= _START else _SHORTEST_HIDDEN
            self._by_start[start].setdefault(form[:start], []).append(form)

    def at(self, text: str, position: int) -> str:
        """Return the longest form that begins at a position; empty if there is none."""
        for start, forms in self._by_start.items():
            for each in forms.get(text[position : position + start], ()):
                if text.startswith(each, position):
                    return each
        return ""


class Messages:
    """The messages of one server. `forms` are those of all values that other requests may have written there."""

    def __init__(self, forms: Callable[[], Forms]) -> None:
        self._forms = forms
        self._left = _MOST_TEXT

    def __call__(self, message: str) -> str:
        """Return a message without values; of a long one, the start and the number of all characters."""
        end = min(len(message), _LONG if self._left > 0 else _SHORT)
        forms, shown, position = self._forms(), [], 0
        while position < end:
            form = forms.at(message, position)
            shown.append(HIDDEN if form else message[position])
            position += len(form) or 1
        self._left -= end
        return "".join(shown) + f"… ({len(message)} characters)" * (len(message) > position)
