"""Evaluate one mirror beyond its resources: its credentials, the probes of /v2/, and its cache. Pure.

https://distribution.github.io/distribution/spec/api/#api-version-check
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import NamedTuple

from jobs.core.mirror_audit.checks.findings import finding, not_readable, unreadable
from jobs.core.mirror_audit.desired.mirror import Mirror
from jobs.core.mirror_audit.desired.names import CACHE_PORT, CACHE_PORT_NAME, PORT, PORT_NAME
from jobs.core.mirror_audit.observed import CacheState, Credentials, Observed, Probing, Settings
from jobs.core.mirror_audit.registry_mirrors import IMAGES, PASSWORD, UPSTREAM, USERNAME, served_by
from jobs.kit.values.decoding import decode
from jobs.kit.values.errors import ApiError, InvalidObjectError
from jobs.kit.values.model import ExitCode, Finding, Need, ObjectKey
from jobs.kit.values.reads import NOT_FETCHED, NOT_IN_TIME, Page
from jobs.kit.values.resources import ENDPOINT_SLICES, SECRETS, SERVICE_PROXY

# Authors of RegistryMirrors can name hosts that do not respond. That does not fail a run.
_NOT_PROBED = {NOT_FETCHED: ExitCode.FAILED, NOT_IN_TIME: ExitCode.DONE}
# A later run finds this text in the message of the condition, and then probes the mirror last.
NO_REGISTRY = "does not respond as a registry"


class ProbeResult(NamedTuple):
    """The findings of a probe, or what the run must read first: an object (`need`) or a URL."""

    findings: Sequence[Finding] = ()
    need: Need | None = None
    url: str = ""


def secret_key(mirror: Mirror) -> ObjectKey:
    """Return the key of the Secret with the credentials of a mirror."""
    return ObjectKey(SECRETS.kind, mirror.spec.credentials_secret, mirror.namespace)


def credentials(mirror: Mirror, observed: Observed) -> ProbeResult:
    """Check the Secret of a mirror, if its spec names one."""
    if not mirror.spec.credentials_secret:
        return ProbeResult()
    key = secret_key(mirror)
    if key not in observed.documents:
        return ProbeResult(need=Need(key))
    found = _exposed_credentials(mirror)
    document = observed.documents[key]
    if isinstance(document, ApiError) and document.status != HTTPStatus.NOT_FOUND:
        return ProbeResult([*found, unreadable(key, document, (mirror.registry_mirror.name,))])
    if not isinstance(document, Credentials):
        return ProbeResult([*found, finding("credentials-missing", key, "does not exist", mirror.registry_mirror)])
    absent = [name for name in (USERNAME, PASSWORD) if name not in document.keys]
    if absent:
        reason = f"has no value for {' and '.join(absent)}"
        found.append(finding("credentials-missing", key, reason, mirror.registry_mirror))
    if served_by(document.upstream) != mirror.spec.upstream:
        reason = f"its annotation {UPSTREAM} is not {mirror.spec.upstream}, so the mirror does not use the Secret"
        found.append(finding("credentials-upstream-not-allowed", key, reason, mirror.registry_mirror))
    # The author of the RegistryMirror chooses the image, and the image reads the credentials.
    if mirror.spec.image and mirror.spec.image not in document.images:
        reason = f"does not list {mirror.spec.image} in its annotation {IMAGES}, so the mirror does not use the Secret"
        found.append(finding("credentials-image-not-allowed", key, reason, mirror.registry_mirror))
    return ProbeResult(found)


def _exposed_credentials(mirror: Mirror) -> list[Finding]:
    if mirror.spec.allow_unauthenticated_readers:
        return []
    reason = (
        "has credentials, and serves private images to every client that reaches it, without a login; "
        "see spec.allowUnauthenticatedReaders"
    )
    return [finding("credentials-exposed", mirror.registry_mirror.head.key, reason, mirror.registry_mirror)]


def upstream(mirror: Mirror, observed: Observed, settings: Settings) -> ProbeResult:
    """Probe the upstream over the network. A 401 is a success: the upstream only requires a login."""
    if settings.probing is not Probing.NETWORK:
        return ProbeResult()
    url = _upstream_url(mirror)
    about = mirror.registry_mirror.head.key
    return _fetched("upstream-down", url, about, mirror, observed, (HTTPStatus.OK, HTTPStatus.UNAUTHORIZED))


def _upstream_url(mirror: Mirror) -> str:
    return f"https://{mirror.spec.upstream}/v2/"


def is_upstream_unknown(mirror: Mirror, observed: Observed) -> bool:
    """Return whether the probe of the upstream was planned and not done."""
    page = observed.pages.get(_upstream_url(mirror))
    return page is not None and page.error in _NOT_PROBED


def mirror_itself(mirror: Mirror, observed: Observed, settings: Settings) -> ProbeResult:
    """Probe the mirror, unless it is known that it cannot respond."""
    service = mirror.service.key
    if not observed.managed(service) or not _has_only_registry_pods(service, observed):
        return ProbeResult()
    if settings.probing is Probing.NETWORK:
        url = f"http://{service.name}.{service.namespace}.svc:{PORT}/v2/"
        return _fetched("mirror-down", url, service, mirror, observed, (HTTPStatus.OK,))
    return _through_api_server(mirror, observed) if settings.probing is Probing.SERVICE_PROXY else ProbeResult()


def _has_only_registry_pods(service: ObjectKey, observed: Observed) -> bool:
    """Return whether all endpoints of a Service are the registry's, so that a response is the registry's too."""
    found = observed.endpoints_of(service)
    return ENDPOINT_SLICES.kind in observed.list_errors or bool(found.own and not found.foreign)


def _fetched(
    code: str, url: str, about: ObjectKey, mirror: Mirror, observed: Observed, expected: tuple[HTTPStatus, ...]
) -> ProbeResult:
    if url not in observed.pages:
        return ProbeResult(url=url)
    page = observed.pages[url]
    if page.status in expected:
        return ProbeResult()
    if page.error in _NOT_PROBED:
        return ProbeResult(
            [not_readable(about, f"{url}: {page.error}", (mirror.registry_mirror.name,), _NOT_PROBED[page.error])]
        )
    # One text for every failure: otherwise statuses show the network to the authors of RegistryMirrors.
    reason = f"{url} {NO_REGISTRY}; the reason is in the log of the run"
    return ProbeResult([finding(code, about, reason, mirror.registry_mirror)])


def _through_api_server(mirror: Mirror, observed: Observed) -> ProbeResult:
    service = mirror.service.key
    key = ObjectKey(SERVICE_PROXY.kind, f"http:{service.name}:{PORT_NAME}/proxy/v2/", service.namespace)
    if key not in observed.documents:
        return ProbeResult(need=Need(key))
    document = observed.documents[key]
    if not isinstance(document, ApiError):
        return ProbeResult()
    if document.is_permission or document.status in (0, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.FORBIDDEN):
        return ProbeResult([unreadable(service, document, (mirror.registry_mirror.name,))])
    return ProbeResult(
        [
            finding(
                "mirror-down", service, f"GET /v2/ through the API server: {document.message}", mirror.registry_mirror
            )
        ]
    )


def cache(mirror: Mirror, observed: Observed, settings: Settings) -> ProbeResult:
    """Read the report of the container `cache` of a mirror, also while the mirror is not ready."""
    service = mirror.headless_service.key
    if not _has_cache(mirror, observed) or not _has_only_registry_pods(service, observed):
        return ProbeResult()
    if settings.probing is Probing.NETWORK:
        url = f"http://{service.name}.{service.namespace}.svc:{CACHE_PORT}/"
        return (
            ProbeResult(_cache_findings(mirror, _cache_state(observed.pages[url]), observed))
            if url in observed.pages
            else ProbeResult(url=url)
        )
    if settings.probing is Probing.SERVICE_PROXY:
        key = ObjectKey(SERVICE_PROXY.kind, f"http:{service.name}:{CACHE_PORT_NAME}/proxy/", service.namespace)
        if key not in observed.documents:
            return ProbeResult(need=Need(key))
        document = observed.documents[key]
        return ProbeResult(_cache_findings(mirror, document if isinstance(document, CacheState) else None, observed))
    return ProbeResult()


def _has_cache(mirror: Mirror, observed: Observed) -> bool:
    """Return whether the registry's pod has the container. After an upgrade, the first repair adds it."""
    actual = observed.managed(mirror.stateful_set.key)
    if not actual or not observed.managed(mirror.headless_service.key):
        return False
    return any(each.get("name") == CACHE_PORT_NAME for each in actual["spec"]["template"]["spec"]["containers"])


def _cache_state(page: Page) -> CacheState | None:
    try:
        return None if page.error else decode(page.body, CacheState)
    except InvalidObjectError:
        return None


def _cache_findings(mirror: Mirror, state: CacheState | None, observed: Observed) -> list[Finding]:
    subjects = (mirror.registry_mirror.name,)
    if state is None or state.shortage == "answer":
        if not observed.endpoints_of(mirror.service.key).own:
            return []
        what = 'its container "cache" does not respond' if state is None else "its volume does not respond"
        reason = f"{what}; the reason is in the log of the run or of the container"
        return [not_readable(mirror.stateful_set.key, reason, subjects, ExitCode.DONE)]
    found = []
    # No figures that change by themselves: otherwise each run writes the status.
    if state.shortage == "layers":
        reason = "sent an incomplete layer in the last minutes"
        found.append(finding("layers-interrupted", mirror.stateful_set.key, reason, mirror.registry_mirror))
    elif state.shortage == "access":
        reason = 'cannot be used by the registry; the reason is in the log of its container "cache"'
        found.append(finding("volume-unusable", mirror.claim.key, reason, mirror.registry_mirror))
    elif state.shortage:
        least = f"at least {state.least_free_bytes >> 20} MiB must be free"
        reason = "has too few free inodes" if state.shortage == "inodes" else f"has too little free space; {least}"
        found.append(finding("volume-filling", mirror.claim.key, reason, mirror.registry_mirror))
    if state.corrupt_blobs:
        count = f"{state.corrupt_blobs} blob{'s' * (state.corrupt_blobs > 1)}"
        reason = f"{count} removed in the last 24 hours, because of a digest mismatch"
        found.append(finding("cache-corrupt", mirror.claim.key, reason, mirror.registry_mirror))
    if not state.used and state.shortage != "access":
        reason = f"no image of {mirror.spec.host} was pulled through the mirror yet"
        found.append(finding("never-used", mirror.registry_mirror.head.key, reason, mirror.registry_mirror))
    return found
