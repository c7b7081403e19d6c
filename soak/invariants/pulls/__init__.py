"""Each pull succeeds that would succeed without mirrors, and files of others on nodes stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from soak.invariants.mirrors import as_specified, healthy
from soak.invariants.pulls.files import Expected, ForeignFiles, HostsToml
from soak.invariants.pulls.succeeded import Pulls
from soak.observed import Invariant


def invariants(mirrors: Callable[[], list[Expected]], foreign: Mapping[Path, str]) -> list[Invariant]:
    """Return the invariants of mirrors."""
    known = mirrors()
    fallbacks = {each.host: each.fallback for each in known}
    return [
        Invariant("pulls", Pulls(fallbacks, {each.host: each.pod for each in known})),
        Invariant("foreign-files", ForeignFiles(foreign)),
        Invariant("hosts-toml", HostsToml(mirrors)),
        Invariant("mirrors-healthy", healthy([each.name for each in known])),
        Invariant("mirrors-as-specified", as_specified),
    ]
