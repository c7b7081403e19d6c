"""Evaluate one mirror: its resources, its images, its credentials and its responses. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

from jobs.core.mirror_audit.checks.findings import Problem, finding, unreadable
from jobs.core.mirror_audit.checks.probes import cache, mirror_itself, upstream
from jobs.core.mirror_audit.checks.resources import resource_findings
from jobs.core.mirror_audit.desired.mirror import Mirror
from jobs.core.mirror_audit.desired.names import is_pinned, registry_of
from jobs.core.mirror_audit.observed import Credentials, Observed, Settings
from jobs.core.mirror_audit.registry_mirrors import IMAGES, PASSWORD, UPSTREAM, USERNAME, Spec, served_by
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Fetch, Finding, Need

_EXPOSED = Problem(
    "credentials-exposed",
    "has credentials, and serves private images to every client that reaches it, without a login; "
    "see spec.allowUnauthenticatedReaders",
)


def evaluate(mirror: Mirror, observed: Observed, settings: Settings) -> list[Finding | Need | Fetch]:
    """Return the findings about one mirror, and the objects and URLs that the run must read first."""
    itself, its_cache = list(mirror_itself(mirror, observed, settings)), cache(mirror, observed, settings)
    # One finding about a mirror that does not respond is enough.
    is_down = any(isinstance(each, Finding) for each in itself)
    return [
        *resource_findings(mirror, observed, settings),
        *_unpinned(mirror),
        *_self_dependent(mirror),
        *_credentials(mirror, observed),
        *upstream(mirror, observed, settings),
        *itself,
        *(each for each in its_cache if not (is_down and isinstance(each, Finding) and each.code == "unreadable")),
    ]


def _unpinned(mirror: Mirror) -> Iterator[Finding]:
    if not is_pinned(mirror.image):
        reason = f"spec.image {mirror.image} has neither a digest nor a fixed tag"
        yield finding("image-unpinned", reason, mirror.registry_mirror.head.key, mirror.registry_mirror)
    if not is_pinned(mirror.node_image):
        reason = f"the image of kube-chores, {mirror.node_image}, has neither a digest nor a fixed tag"
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


def _credentials(mirror: Mirror, observed: Observed) -> Iterator[Finding | Need]:
    """Check the Secret of a mirror, if its spec names one."""
    if not mirror.spec.credentials_secret:
        return
    key = mirror.secret
    if key not in observed.documents:
        yield Need(key)
        return
    document = observed.documents[key]
    if not mirror.spec.allow_unauthenticated_readers:
        yield finding(*_EXPOSED, mirror.registry_mirror.head.key, mirror.registry_mirror)
    if isinstance(document, ApiError) and document.status != HTTPStatus.NOT_FOUND:
        yield unreadable(key, document, (mirror.registry_mirror.name,))
        return
    for each in _problems(document if isinstance(document, Credentials) else None, mirror.spec):
        yield finding(*each, key, mirror.registry_mirror)


def _problems(secret: Credentials | None, spec: Spec) -> Iterator[Problem]:
    if not secret:
        yield Problem("credentials-missing", "does not exist")
        return
    if absent := [name for name in (USERNAME, PASSWORD) if name not in secret.keys]:
        yield Problem("credentials-missing", f"has no value for {' and '.join(absent)}")
    unused = "so the mirror does not use the Secret"
    if served_by(secret.upstream) != spec.upstream:
        yield Problem("credentials-upstream-not-allowed", f"its annotation {UPSTREAM} is not {spec.upstream}, {unused}")
    # The author of the RegistryMirror chooses the image, and the image reads the credentials.
    if spec.image and spec.image not in secret.images:
        reason = f"does not list {spec.image} in its annotation {IMAGES}, {unused}"
        yield Problem("credentials-image-not-allowed", reason)
