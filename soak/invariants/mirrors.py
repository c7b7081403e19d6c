"""Mirrors are healthy and as specified when nothing happens any more: see tests/walk/mirrors.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from soak.history import Key, Object
from soak.invariants.reads import latest
from soak.observed import Observed
from tests.walk.mirrors import found, shown

NAMESPACE, NODES = "kube-chores-mirrors", "kube-chores-nodes"


def healthy(names: Sequence[str]) -> Callable[[Observed], Iterator[str]]:
    """Return a check that each of these RegistryMirrors is healthy."""

    def check(observed: Observed) -> Iterator[str]:
        for name in names if observed.settled else ():
            ready = _ready(latest(observed.history, Key("RegistryMirror", "", name)) or {})
            # docs/mirror-volume.md: `cache-corrupt` for 24 hours after a blob was changed
            blobs = observed.journal.faults_between(0, observed.until, "tenant-mirror-blob")
            corrupt = any(each.detail.endswith(f" {name}") for each in blobs)
            if ready.get("reason") not in ("Healthy", "NeverUsed", *(["CacheCorrupt"] if corrupt else [])):
                yield f"RegistryMirror {name} is not healthy at the end: {ready.get('reason')}: {ready.get('message')}"

    return check


def _ready(mirror: Object) -> Object:
    conditions = (mirror.get("status") or {}).get("conditions") or []
    return next((dict(each) for each in conditions if each["type"] == "Ready"), {})


def as_specified(observed: Observed) -> Iterator[str]:
    """Check that each mirror has the resources that its spec requires."""
    for version in observed.history.now("RegistryMirror") if observed.settled else ():
        name, wanted = version.key.name, shown((version.object or {})["spec"])
        places = {"DaemonSet": (NODES, f"registry-mirror-{name}-node")}
        places |= dict.fromkeys(("PersistentVolumeClaim", "StatefulSet"), (NAMESPACE, f"registry-mirror-{name}"))
        resources = {kind: latest(observed.history, Key(kind, *place)) for kind, place in places.items()}
        if missing := sorted(kind for kind, each in resources.items() if not each):
            yield f"RegistryMirror {name} has no {', '.join(missing)} at the end"
        elif wrong := [field for field, value in found(resources).items() if value != wanted[field]]:
            yield f"RegistryMirror {name} is not as it is specified at the end: {', '.join(wrong)}"
