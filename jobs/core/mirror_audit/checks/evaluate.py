"""Evaluate one mirror: its resources, its images, its credentials and its responses. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from jobs.core.mirror_audit.checks.credentials import credentials
from jobs.core.mirror_audit.checks.findings import finding
from jobs.core.mirror_audit.checks.probes import cache, mirror_itself, upstream
from jobs.core.mirror_audit.checks.resources import resource_findings
from jobs.core.mirror_audit.desired.mirror import Mirror
from jobs.core.mirror_audit.desired.names import is_pinned, registry_of
from jobs.core.mirror_audit.observed import Observed, Settings
from jobs.kit.values.model import Fetch, Finding, Need


def evaluate(mirror: Mirror, observed: Observed, settings: Settings) -> list[Finding | Need | Fetch]:
    """Return the findings about one mirror, and the objects and URLs that the run must read first."""
    itself, its_cache = list(mirror_itself(mirror, observed, settings)), cache(mirror, observed, settings)
    # One finding about a mirror that does not respond is enough.
    is_down = any(isinstance(each, Finding) for each in itself)
    return [
        *resource_findings(mirror, observed, settings),
        *_unpinned(mirror),
        *_self_dependent(mirror),
        *credentials(mirror, observed),
        *upstream(mirror, observed, settings),
        *itself,
        *(each for each in its_cache if not (is_down and isinstance(each, Finding) and each.code == "unreadable")),
    ]


def _unpinned(mirror: Mirror) -> Iterator[Finding]:
    if not is_pinned(mirror.image):
        reason = f"spec.image {mirror.image} has neither a digest nor a fixed tag"
        yield finding("image-unpinned", reason, mirror.registry_mirror.head.key, mirror.registry_mirror)
    if not is_pinned(mirror.node_image):
        reason = f"--node-image {mirror.node_image} has neither a digest nor a fixed tag"
        yield finding("image-unpinned", reason, mirror.daemon_set.key, mirror.registry_mirror)


def _self_dependent(mirror: Mirror) -> Iterator[Finding]:
    """Yield the images of the mirror that nodes can pull only through the mirror itself."""
    if mirror.spec.fallback == "Upstream":
        return
    for key, images in (
        (mirror.stateful_set.key, {mirror.image: None, mirror.node_image: None}),
        (mirror.daemon_set.key, {mirror.node_image: None}),
    ):
        if through_itself := [image for image in images if registry_of(image) == mirror.spec.host]:
            names = " and ".join(through_itself)
            reason = f"uses {names}; nodes pull images of {mirror.spec.host} only through this mirror"
            yield finding("image-depends-on-mirror", reason, key, mirror.registry_mirror)
