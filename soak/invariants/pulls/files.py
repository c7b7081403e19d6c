"""Files of containerd on nodes: those of kube-chores are right, and those of others stay."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from soak.history import Key
from soak.invariants.pulls.excuses import DAMAGES
from soak.observed import Observed

_FIRST_LINE = "# Written by kube-chores for registrymirror "


class ForeignFiles:
    """Files below certs.d that kube-chores did not write never change. `files` are their contents by path."""

    def __init__(self, files: Mapping[Path, str]) -> None:
        self._files = dict(files)

    def __call__(self, observed: Observed) -> Iterator[str]:
        """Yield the files that are different."""
        for path, content in list(self._files.items()):
            found = path.read_text() if path.exists() else None
            if found != content:
                del self._files[path]
                how = "deleted" if found is None else "changed"
                yield f"{path.parent.name}/{path.name}, which others wrote, was {how}"


@dataclass(frozen=True)
class Expected:
    """A mirror: its RegistryMirror, the host of its upstream, its hosts.toml, and how to read its Service's address."""

    name: str
    host: str
    fallback: str
    hosts_toml: Path
    address: Callable[[], str]

    @property
    def pod(self) -> Key:
        """The pod of the registry."""
        return Key("Pod", "kube-chores-mirrors", f"registry-mirror-{self.name}-0")


class HostsToml:
    """A hosts.toml that kube-chores wrote has the fallback, and the mirror's address when nothing happens any more."""

    def __init__(self, mirrors: Callable[[], list[Expected]]) -> None:
        self._mirrors = mirrors
        self._reported: set[tuple[str, str]] = set()

    def __call__(self, observed: Observed) -> Iterator[str]:
        """Yield what is wrong with the files."""
        for mirror in self._mirrors():
            text = _text(mirror.hosts_toml)
            wrong = self._wrong(observed, mirror, text)
            if wrong and (mirror.name, text) not in self._reported:
                self._reported.add((mirror.name, text))
                yield f"hosts.toml of RegistryMirror {mirror.name} {wrong}: {text!r}"

    def _wrong(self, observed: Observed, mirror: Expected, text: str) -> str:
        if observed.journal.faults_between(time.time() - 5, time.time(), "tenant-mirror-hosts", *DAMAGES):
            return ""
        server = f'server = "https://{mirror.host}"'
        if text.startswith(_FIRST_LINE) and mirror.fallback == "Upstream" and server not in text.splitlines():
            return "has no fallback"
        if observed.settled and f'[host."http://{mirror.address()}:5000"]' not in text.splitlines():
            return "does not name the mirror's Service"
        return ""


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
