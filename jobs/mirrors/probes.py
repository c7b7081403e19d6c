"""What is to be said of one mirror beyond its resources: credentials, who answers /v2/, its cache. Pure.

https://distribution.github.io/distribution/spec/api/#api-version-check
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import NamedTuple

from jobs.kit.decoding import decode
from jobs.kit.errors import ApiError, InvalidObjectError
from jobs.kit.model import ExitCode, Finding, Need, ObjectKey
from jobs.kit.objects import SECRETS
from jobs.kit.web import NOT_FETCHED, NOT_IN_TIME, Page
from jobs.mirrors.findings import could_not_look, finding, unreadable
from jobs.mirrors.mirror import CACHE_PORT, CACHE_PORT_NAME, PORT, PORT_NAME, Mirror
from jobs.mirrors.observed import SERVICE_PROXY, SLICES, CacheState, Credentials, Observed, Probing, Settings
from jobs.mirrors.registry_mirrors import IMAGES, PASSWORD, UPSTREAM, USERNAME, served_by
from jobs.mirrors.resources import is_ours

# Who writes RegistryMirrors can have all of them name hosts that are silent: that fails no run.
_UNASKED = {NOT_FETCHED: ExitCode.FAILED, NOT_IN_TIME: ExitCode.DONE}
# By this a later run knows again who did not answer, in the message of the condition.
NO_REGISTRY = "does not answer as a registry"
_THROUGH = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})


class Asked(NamedTuple):
    """What is known of a question: findings, or what must be read first."""

    findings: Sequence[Finding] = ()
    need: Need | None = None
    url: str = ""


def secret_key(mirror: Mirror) -> ObjectKey:
    """Return which Secret holds the credentials of a mirror."""
    return ObjectKey(SECRETS.kind, mirror.spec.credentials_secret, mirror.namespace)


def credentials(mirror: Mirror, observed: Observed) -> Asked:
    """Return what is wrong with the credentials of a mirror: nothing where it has none."""
    if not mirror.spec.credentials_secret:
        return Asked()
    key = secret_key(mirror)
    if key not in observed.looks:
        return Asked(need=Need(key))
    found = _exposed(mirror)
    look = observed.looks[key]
    if isinstance(look, ApiError) and look.status != HTTPStatus.NOT_FOUND:
        return Asked([*found, unreadable(key, look, (mirror.asked.name,))])
    if not isinstance(look, Credentials):
        return Asked([*found, finding("credentials-missing", key, "is not there", mirror.asked)])
    absent = [name for name in (USERNAME, PASSWORD) if name not in look.keys]
    if absent:
        reason = f"has no value for {' and '.join(absent)}"
        found.append(finding("credentials-missing", key, reason, mirror.asked))
    if served_by(look.upstream) != mirror.spec.upstream:
        reason = f"is not annotated {UPSTREAM}: {mirror.spec.upstream}, so it is not for this mirror"
        found.append(finding("credentials-upstream-not-allowed", key, reason, mirror.asked))
    # Whoever writes the RegistryMirror chooses the image, which reads the credentials.
    if mirror.spec.image and mirror.spec.image not in look.images:
        reason = f"is not annotated {IMAGES}: {mirror.spec.image}, so this image does not get it"
        found.append(finding("credentials-image-not-allowed", key, reason, mirror.asked))
    return Asked(found)


def _exposed(mirror: Mirror) -> list[Finding]:
    if mirror.spec.allow_unauthenticated_readers:
        return []
    reason = "has credentials, and serves what they open to all who reach it; see spec.allowUnauthenticatedReaders"
    return [finding("credentials-exposed", mirror.asked.head.key, reason, mirror.asked)]


def upstream(mirror: Mirror, observed: Observed, settings: Settings) -> Asked:
    """Return whether the upstream answers: it may ask who we are, since then it is there."""
    if settings.probing is not Probing.NETWORK:
        return Asked()
    url = _upstream_url(mirror)
    about = mirror.asked.head.key
    return _fetched("upstream-down", url, about, mirror, observed, (HTTPStatus.OK, HTTPStatus.UNAUTHORIZED))


def _upstream_url(mirror: Mirror) -> str:
    return f"https://{mirror.spec.upstream}/v2/"


def is_upstream_unknown(mirror: Mirror, observed: Observed) -> bool:
    """Whether the upstream was to be asked and was not."""
    page = observed.pages.get(_upstream_url(mirror))
    return page is not None and page.error in _UNASKED


def mirror_itself(mirror: Mirror, observed: Observed, settings: Settings) -> Asked:
    """Return whether the mirror answers; one of which is known that it cannot is not asked."""
    service = mirror.service.key
    actual = observed.children.get(service)
    stands = actual is not None and is_ours(actual)
    if not stands or not _is_only_the_registry(service, observed):
        return Asked()
    if settings.probing is Probing.NETWORK:
        url = f"http://{service.name}.{service.namespace}.svc:{PORT}/v2/"
        return _fetched("mirror-down", url, service, mirror, observed, (HTTPStatus.OK,))
    return _through_the_api_server(mirror, observed) if settings.probing is Probing.SERVICE_PROXY else Asked()


def _is_only_the_registry(service: ObjectKey, observed: Observed) -> bool:
    """Whether what answers at a Service is the registry: not while requests go to pods of others too."""
    found = observed.endpoints_of(service)
    return SLICES.kind in observed.denied or bool(found.own and not found.foreign)


def _fetched(
    code: str, url: str, about: ObjectKey, mirror: Mirror, observed: Observed, good: tuple[HTTPStatus, ...]
) -> Asked:
    if url not in observed.pages:
        return Asked(url=url)
    page = observed.pages[url]
    if page.status in good:
        return Asked()
    if page.error in _UNASKED:
        return Asked([could_not_look(about, f"{url}: {page.error}", (mirror.asked.name,), _UNASKED[page.error])])
    # One text for whatever is there: else statuses would map a network for whoever writes RegistryMirrors.
    reason = f"{url} {NO_REGISTRY}; the reason is in the log of the run"
    return Asked([finding(code, about, reason, mirror.asked)])


def _through_the_api_server(mirror: Mirror, observed: Observed) -> Asked:
    service = mirror.service.key
    key = ObjectKey(SERVICE_PROXY.kind, f"http:{service.name}:{PORT_NAME}/proxy/v2/", service.namespace)
    if key not in observed.looks:
        return Asked(need=Need(key))
    look = observed.looks[key]
    if not isinstance(look, ApiError):
        return Asked()
    if look.is_permission or look.status in (0, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.FORBIDDEN):
        return Asked([unreadable(service, look, (mirror.asked.name,))])
    return Asked([finding("mirror-down", service, f"/v2/ through the API server: {look.message}", mirror.asked)])


def cache(mirror: Mirror, observed: Observed, settings: Settings) -> Asked:
    """Return what the container `cache` of a mirror reports, also while the mirror is not ready."""
    service = mirror.headless_service.key
    if not _has_cache(mirror, observed) or not _is_only_the_registry(service, observed):
        return Asked()
    if settings.probing is Probing.NETWORK:
        url = f"http://{service.name}.{service.namespace}.svc:{CACHE_PORT}/"
        return (
            Asked(_of_cache(mirror, _decoded(observed.pages[url]), observed))
            if url in observed.pages
            else Asked(url=url)
        )
    if settings.probing is Probing.SERVICE_PROXY:
        key = ObjectKey(SERVICE_PROXY.kind, f"http:{service.name}:{CACHE_PORT_NAME}/proxy/", service.namespace)
        if key not in observed.looks:
            return Asked(need=Need(key))
        look = observed.looks[key]
        return Asked(_of_cache(mirror, look if isinstance(look, CacheState) else None, observed))
    return Asked()


def _has_cache(mirror: Mirror, observed: Observed) -> bool:
    """Whether the registry's pod has the container: it does not before the first repair after an upgrade."""
    actual, service = observed.children.get(mirror.stateful_set.key), observed.children.get(mirror.headless_service.key)
    if not (actual and is_ours(actual) and service and is_ours(service)):
        return False
    return any(each.get("name") == CACHE_PORT_NAME for each in actual["spec"]["template"]["spec"]["containers"])


def _decoded(page: Page) -> CacheState | None:
    try:
        return None if page.error else decode(page.body, CacheState)
    except InvalidObjectError:
        return None


def _of_cache(mirror: Mirror, state: CacheState | None, observed: Observed) -> list[Finding]:
    subjects = (mirror.asked.name,)
    if state is None or state.shortage == "answer":
        if not observed.endpoints_of(mirror.service.key).own:
            return []
        what = "its container cache does not answer" if state is None else "its volume does not answer"
        reason = f"{what}; the reason is in the log of the run or of the container"
        return [could_not_look(mirror.stateful_set.key, reason, subjects, ExitCode.DONE)]
    found = []
    # Figures that move by themselves would have each run write the status.
    if state.shortage == "layers":
        reason = "sent a layer in the last minutes that ended before it was whole"
        found.append(finding("layers-interrupted", mirror.stateful_set.key, reason, mirror.asked))
    elif state.shortage == "access":
        reason = "cannot be used by the registry; the reason is in the log of its container cache"
        found.append(finding("volume-unusable", mirror.claim.key, reason, mirror.asked))
    elif state.shortage:
        least = f"at least {state.least_free_bytes >> 20} MiB must be free"
        reason = f"has too few free inodes; {least}" if state.shortage == "inodes" else f"has too little space; {least}"
        found.append(finding("volume-filling", mirror.claim.key, reason, mirror.asked))
    if state.corrupt_blobs:
        count = f"{state.corrupt_blobs} blob{'s' * (state.corrupt_blobs > 1)}"
        reason = f"{count} did not match the digest in the last 24 hours and had to be removed"
        found.append(finding("cache-corrupt", mirror.claim.key, reason, mirror.asked))
    if not state.used and state.shortage != "access":
        reason = f"nobody has pulled an image of {mirror.spec.host} through the mirror yet"
        found.append(finding("never-used", mirror.asked.head.key, reason, mirror.asked))
    return found
