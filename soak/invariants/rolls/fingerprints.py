"""Which contents a fingerprint may be of."""

from __future__ import annotations

from dataclasses import dataclass, field

from soak.invariants.rolls.workloads import Baseline
from soak.invariants.uses import Content, Use


@dataclass
class Fingerprints:
    """The contents that each fingerprint may be of, by what it is computed from.

    Two equal fingerprints are of the same content, and two different ones of different contents. Each write of a
    baseline excludes the contents that no run could have read then.
    """

    _known: dict[tuple[str, str, str], dict[str, set[Content]]] = field(default_factory=dict)

    def may_be(self, scope: tuple[str, str, str], fingerprint: str, content: Content) -> bool:
        """Whether a fingerprint may be of this content; True if it is not known."""
        known = self._known.get(scope, {}).get(fingerprint)
        return known is None or content in known

    def learn(self, scope: tuple[str, str, str], fingerprint: str, contents: set[Content]) -> bool:
        """Record that a fingerprint was computed of one of these contents. Return False if that cannot be."""
        known = self._known.setdefault(scope, {})
        of_others = {next(iter(each)) for name, each in known.items() if name != fingerprint and len(each) == 1}
        left = (known.get(fingerprint, contents) & contents) - of_others
        known[fingerprint] = left or contents
        if len(left) == 1:
            for name, each in known.items():
                if name != fingerprint and len(each) > 1:
                    each -= left
        return bool(left)


def scope_of(namespace: str, use: Use, baseline: Baseline) -> tuple[str, str, str]:
    """Return what a fingerprint is computed from; that of a Secret also from the key."""
    return namespace, use.text, baseline.key if use.kind == "Secret" else ""
