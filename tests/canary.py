"""Unique Secret values, and the search for them where no Secret value is allowed."""

import base64
import hashlib
import itertools
import secrets

TOKEN = f"canary-{secrets.token_hex(8)}"
_numbers = itertools.count(1)
_hashes: set[str] = set()
_outputs: list[tuple[str, str]] = []


def canary(extra: str = "") -> str:
    """A new Secret value. Every Secret of a test has such values, and no output of a job may show one."""
    value = f"{TOKEN}-{next(_numbers)}{extra}"
    remember(value.encode())
    return value


def remember(value: bytes) -> None:
    """Look for this whole value's plain hash as well."""
    _hashes.add(hashlib.sha256(value).hexdigest())


def leaks(text: str) -> list[str]:
    """In which forms the text shows a canary."""
    found = ["plain"] if TOKEN in text else []
    if any(part in text for part in _base64_parts()):
        found.append("base64")
    lowered = text.lower()
    return found + (["sha256"] if any(digest in lowered for digest in tuple(_hashes)) else [])


def _base64_parts() -> list[str]:
    """The token as it looks inside the base64 of a longer value, for each of the three ways it can be aligned."""
    parts = []
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + TOKEN.encode()).decode()
        # The first and the last group of four also hold bits of the neighbours.
        parts.append(encoded[4:-4])
    return parts


def observed(where: str, text: str) -> None:
    """Have a text that a job wrote searched when the test ends."""
    _outputs.append((where, text))


def take_observed() -> list[tuple[str, str]]:
    """The texts since the last call."""
    taken = list(_outputs)
    _outputs.clear()
    return taken
