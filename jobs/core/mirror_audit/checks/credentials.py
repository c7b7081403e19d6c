"""Check the Secret with the credentials of a mirror. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

from jobs.core.mirror_audit.checks.findings import Problem, finding, unreadable
from jobs.core.mirror_audit.desired.mirror import Mirror
from jobs.core.mirror_audit.observed import Credentials, Observed
from jobs.core.mirror_audit.registry_mirrors import IMAGES, PASSWORD, UPSTREAM, USERNAME, Spec, served_by
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Finding, Need, ObjectKey
from jobs.kit.values.resources import SECRETS

_EXPOSED = Problem(
    "credentials-exposed",
    "has credentials, and serves private images to every client that reaches it, without a login; "
    "see spec.allowUnauthenticatedReaders",
)


def secret_key(mirror: Mirror) -> ObjectKey:
    """Return the key of the Secret with the credentials of a mirror."""
    return ObjectKey(SECRETS.kind, mirror.spec.credentials_secret, mirror.namespace)


def credentials(mirror: Mirror, observed: Observed) -> Iterator[Finding | Need]:
    """Check the Secret of a mirror, if its spec names one: yield the findings, or that the run must read it first."""
    if not mirror.spec.credentials_secret:
        return
    key = secret_key(mirror)
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
