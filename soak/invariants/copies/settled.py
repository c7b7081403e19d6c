"""Copies are exactly those that rules require, with their stamps, after everything settled."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from soak.history import History, Key, Object
from soak.invariants.copies import stamps
from soak.invariants.copies.attached import differences
from soak.invariants.copies.mistakes import retains, uid
from soak.invariants.copies.now import copies, required
from soak.invariants.copies.repaired import differs
from soak.invariants.copies.stamps import FINGERPRINT, JOB, RULE, RULES
from soak.invariants.copies.window import usable
from soak.invariants.ours import COPIED
from soak.invariants.reads import annotations_of, is_managed, latest, shown
from soak.observed import Observed
from tests.model import Copy, Place

HMAC_SHA256 = re.compile("[0-9a-f]{64}$")  # docs/drift.md


@dataclass
class Settled:
    """Compare all copies with what rules require; a fingerprint is of one content of one source in all epochs."""

    _fingerprints: dict[str, tuple[str, str]] = field(default_factory=dict)  # the source's uid and the content of each

    def __call__(self, observed: Observed) -> Iterator[str]:
        """Yield a sentence for each difference from what rules require."""
        if not observed.settled:
            return
        history, there, every = observed.history, copies(observed.history), required(observed.history)
        for place, claims in every.items():
            if place not in there:
                yield _why_not(history, Key(*place), claims)
        yield from self._fingerprints_of(
            history, {Key(*at): (copy, usable(every[at])[0]) for at, copy in there.items()}
        )
        for version in (each for kind in COPIED for each in history.now(kind)):
            if is_managed(version.object, JOB) and version.key not in every and not _is_retained(history, version.key):
                yield f"{shown(version.key)} is a copy that no rule requires"
        yield from (sentence for _, _, sentence in differences(history))
        yield from _not_ready(history, {copy.rule for claims in every.values() for copy in claims})

    def _fingerprints_of(self, history: History, there: dict[Key, tuple[Object, Copy]]) -> Iterator[str]:
        fingerprints: dict[tuple[str, str], str] = {}  # each content of each source has one
        for place, (actual, copy) in there.items():
            source = uid(latest(history, stamps.source_key(copy.source, place.kind)))
            of, mark = (source, json.dumps(copy.content, sort_keys=True)), annotations_of(actual).get(FINGERPRINT, "")
            if not HMAC_SHA256.search(mark):
                yield f"{shown(place)} has {FINGERPRINT} {mark!r}, which is not an HMAC"
            elif self._fingerprints.setdefault(mark, of) != of:
                yield f"{shown(place)} has the {FINGERPRINT} of another content or an earlier source"
            elif fingerprints.setdefault(of, mark) != mark:
                yield f"{shown(place)} has another {FINGERPRINT} than an equal copy of {copy.source}"


def _why_not(history: History, place: Key, claims: list[Copy]) -> str:
    if len(found := usable(claims)) == 1:
        return differs(place, found[0], latest(history, place))
    what = "claim" if found else "are refused for"
    return f"{len(claims)} sources {what} {shown(place)}: the tenants of the soak did not resolve this"


def _is_retained(history: History, place: Place) -> bool:
    copy = latest(history, Key(*place))
    return retains(latest(history, stamps.stamped_rule(copy)), copy)


def _not_ready(history: History, rules: Iterable[str]) -> Iterator[str]:
    for name in sorted(rules):
        key = Key(RULE, RULES, name)
        conditions = (latest(history, key) or {}).get("status", {}).get("conditions", [])
        ready: Object = next((each for each in conditions if each["type"] == "Ready"), {})
        if ready.get("status") != "True":
            yield f"{shown(key)} is not Ready: {ready.get('reason')} {ready.get('message')}"
