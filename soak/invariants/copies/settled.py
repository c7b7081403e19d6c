"""Copies are exactly those that rules require, with their stamps, after everything settled."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from soak.history import History, Key, Object
from soak.invariants.copies.attached import differences
from soak.invariants.copies.mistakes import retains, uid
from soak.invariants.copies.now import required
from soak.invariants.copies.repaired import differs
from soak.invariants.copies.stamps import (
    FINGERPRINT,
    JOB,
    RULE,
    RULES,
    required_stamp,
    source_key,
    source_of,
    stamp_of,
    stamped_rule,
)
from soak.invariants.copies.window import usable
from soak.invariants.ours import COPIED
from soak.invariants.reads import annotations_of, is_managed, latest, shown
from soak.observed import Observed
from tests.model import Copy, is_as

HMAC_SHA256 = re.compile("[0-9a-f]{64}$")  # docs/drift.md


@dataclass
class Settled:
    """Compare all copies with what rules require; a fingerprint is of one content of one source in all epochs."""

    _fingerprints: dict[str, tuple[str, str]] = field(default_factory=dict)  # the source's uid and the content of each

    def __call__(self, observed: Observed) -> Iterator[str]:
        """Yield a sentence for each difference from what rules require."""
        if not observed.settled:
            return
        history, copies = observed.history, dict[Key, Copy]()
        every = required(history)
        for at, claims in every.items():
            place, actual, found = Key(*at), latest(history, Key(*at)), usable(claims)
            if len(found) != 1:
                what = "claim" if found else "are refused for"
                yield f"{len(claims)} sources {what} {shown(place)}: the tenants of the soak did not resolve this"
            elif not (is_managed(actual, JOB) and is_as(actual, found[0])):
                yield differs(place, found[0], actual)
            else:
                copies[place] = found[0]
        yield from self._stamps(history, copies)
        for version in (each for kind in COPIED for each in history.now(kind)):
            if is_managed(version.object, JOB) and version.key not in every and not _is_retained(history, version.key):
                yield f"{shown(version.key)} is a copy that no rule requires"
        yield from (sentence for _, _, sentence in differences(history))
        yield from _not_ready(history, {copy.rule for claims in every.values() for copy in claims})

    def _stamps(self, history: History, copies: dict[Key, Copy]) -> Iterator[str]:
        fingerprints: dict[tuple[str, str], str] = {}  # each content of each source has one
        for place, copy in copies.items():
            actual, expected = latest(history, place), required_stamp(copy)
            if wrong := sorted(key for key, value in expected.items() if stamp_of(actual).get(key) != value):
                yield f"{shown(place)} has another {' and '.join(wrong)} than rule {copy.rule} requires"
            source = uid(latest(history, source_key(source_of(copy), place.kind)))
            of = source, json.dumps(copy.content, sort_keys=True)
            found = annotations_of(actual).get(FINGERPRINT, "")
            if not HMAC_SHA256.search(found):
                yield f"{shown(place)} has {FINGERPRINT} {found!r}, which is not an HMAC"
            elif self._fingerprints.setdefault(found, of) != of:
                yield f"{shown(place)} has the {FINGERPRINT} of another content or an earlier source"
            elif fingerprints.setdefault(of, found) != found:
                yield f"{shown(place)} has another {FINGERPRINT} than an equal copy of {source_of(copy)}"


def _is_retained(history: History, place: Key) -> bool:
    copy = latest(history, place)
    return retains(latest(history, stamped_rule(copy)), copy)


def _not_ready(history: History, rules: Iterable[str]) -> Iterator[str]:
    for name in sorted(rules):
        key = Key(RULE, RULES, name)
        conditions = (latest(history, key) or {}).get("status", {}).get("conditions", [])
        ready: Object = next((each for each in conditions if each["type"] == "Ready"), {})
        if ready.get("status") != "True":
            yield f"{shown(key)} is not Ready: {ready.get('reason')} {ready.get('message')}"
