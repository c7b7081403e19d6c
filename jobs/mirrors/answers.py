"""What is to be said of one mirror beyond its resources: credentials, who answers /v2/, how full its volume is. Pure.

https://distribution.github.io/distribution/spec/api/#api-version-check
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlencode

from msgspec import Struct

from jobs.kit.decoding import decode
from jobs.kit.errors import ApiError, InvalidObjectError
from jobs.kit.model import ExitCode, Finding, Need, ObjectKey
from jobs.kit.objects import SECRETS
from jobs.kit.web import NOT_FETCHED, Page, shown
from jobs.mirrors.children import is_ours
from jobs.mirrors.findings import could_not_look, finding, unreadable
from jobs.mirrors.mirror import PORT, PORT_NAME, Mirror
from jobs.mirrors.registry_mirrors import IMAGES, PASSWORD, UPSTREAM, USERNAME, served_by
from jobs.mirrors.seen import SERVICE_PROXY, SLICES, Credentials, Reach, Seen, Settings

FULL_PERCENT = 90
_STEP = 5  # a volume that fills changes by itself; a status that followed it would be written by every run
_THROUGH = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})


class Asked(NamedTuple):
    """What is known of a question: findings, or what must be read first."""

    findings: Sequence[Finding] = ()
    need: Need | None = None
    url: str = ""


def secret_key(mirror: Mirror) -> ObjectKey:
    """Return which Secret holds the credentials of a mirror."""
    return ObjectKey(SECRETS.kind, mirror.spec.credentials_secret, mirror.namespace)


def credentials(mirror: Mirror, seen: Seen) -> Asked:
    """Return what is wrong with the credentials of a mirror: nothing where it has none."""
    if not mirror.spec.credentials_secret:
        return Asked()
    key = secret_key(mirror)
    if key not in seen.looks:
        return Asked(need=Need(key))
    found = _exposed(mirror)
    look = seen.looks[key]
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
        found.append(finding("credentials-upstream", key, reason, mirror.asked))
    # Whoever writes the RegistryMirror chooses the image, which reads the credentials.
    if mirror.spec.image and mirror.spec.image not in look.images:
        reason = f"is not annotated {IMAGES}: {mirror.spec.image}, so this image does not get it"
        found.append(finding("credentials-image", key, reason, mirror.asked))
    return Asked(found)


def _exposed(mirror: Mirror) -> list[Finding]:
    if mirror.spec.allow_unauthenticated_readers:
        return []
    reason = "has credentials, and serves what they open to all who reach it; see spec.allowUnauthenticatedReaders"
    return [finding("credentials-exposed", mirror.asked.head.key, reason, mirror.asked)]


def upstream(mirror: Mirror, seen: Seen, settings: Settings) -> Asked:
    """Return whether the upstream answers: it may ask who we are, since then it is there."""
    if settings.reach is not Reach.NETWORK:
        return Asked()
    url = f"https://{mirror.spec.upstream}/v2/"
    about = mirror.asked.head.key
    return _fetched("upstream-down", url, about, mirror, seen, (HTTPStatus.OK, HTTPStatus.UNAUTHORIZED))


def mirror_itself(mirror: Mirror, seen: Seen, settings: Settings) -> Asked:
    """Return whether the mirror answers; one of which is known that it cannot is not asked."""
    service = mirror.service.key
    actual = seen.children.get(service)
    stands = actual is not None and is_ours(actual)
    if not stands or (SLICES.kind not in seen.denied and not seen.endpoints.get(service.name)):
        return Asked()
    if settings.reach is Reach.NETWORK:
        url = f"http://{service.name}.{service.namespace}.svc:{PORT}/v2/"
        return _fetched("mirror-down", url, service, mirror, seen, (HTTPStatus.OK,))
    return _through_the_api_server(mirror, seen) if settings.reach is Reach.SERVICE_PROXY else Asked()


def _fetched(code: str, url: str, about: ObjectKey, mirror: Mirror, seen: Seen, good: tuple[HTTPStatus, ...]) -> Asked:
    if url not in seen.pages:
        return Asked(url=url)
    page = seen.pages[url]
    if page.status in good:
        return Asked()
    if page.error == NOT_FETCHED:
        return Asked([could_not_look(about, f"{url}: {page.error}", (mirror.asked.name,), ExitCode.FAILED)])
    # One text for whatever is there: else statuses would map a network for whoever writes RegistryMirrors.
    reason = f"{url} does not answer as a registry; the reason is in the log of the run"
    return Asked([finding(code, about, reason, mirror.asked)])


def _through_the_api_server(mirror: Mirror, seen: Seen) -> Asked:
    service = mirror.service.key
    key = ObjectKey(SERVICE_PROXY.kind, f"http:{service.name}:{PORT_NAME}/proxy/v2/", service.namespace)
    if key not in seen.looks:
        return Asked(need=Need(key))
    look = seen.looks[key]
    if not isinstance(look, ApiError):
        return Asked()
    if look.is_permission or look.status in (0, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.FORBIDDEN):
        return Asked([unreadable(service, look, (mirror.asked.name,))])
    return Asked([finding("mirror-down", service, f"/v2/ through the API server: {look.message}", mirror.asked)])


class _Labels(Struct):
    persistentvolumeclaim: str = ""


class _Sample(Struct):
    metric: _Labels
    value: tuple[float, str]


class _Data(Struct):
    result: list[_Sample]


class _Answer(Struct):
    data: _Data


def volumes_url(settings: Settings) -> str:
    """Return the query for how much of each volume is free, or nothing where no Prometheus was named.

    kubelets know, and so does Prometheus. To ask kubelets takes the right nodes/proxy, which can run commands in pods.
    https://kubernetes.io/docs/reference/instrumentation/metrics/
    """
    if not settings.metrics_url:
        return ""
    of = f'{{namespace="{settings.namespace}"}}'
    query = f"kubelet_volume_stats_available_bytes{of} / kubelet_volume_stats_capacity_bytes{of}"
    return f"{settings.metrics_url.rstrip('/')}/api/v1/query?{urlencode({'query': query})}"


def volumes(mirrors: Sequence[Mirror], page: Page, settings: Settings) -> list[Finding]:
    """Return which volumes are nearly full, by what Prometheus says."""
    try:
        free = _free(page)
    except ValueError as error:
        about = ObjectKey("Prometheus", shown(settings.metrics_url))
        subjects = tuple(sorted(mirror.asked.name for mirror in mirrors))
        return [could_not_look(about, f"does not say how full volumes are: {error}", subjects, ExitCode.FAILED)]
    filling = ((mirror, _full(free[mirror.name])) for mirror in mirrors if mirror.name in free)
    return [
        finding("volume-filling", mirror.claim.key, f"is {percent} % full", mirror.asked)
        for mirror, percent in filling
        if percent >= FULL_PERCENT
    ]


def _free(page: Page) -> Mapping[str, float]:
    if page.error:
        raise ValueError(page.error)
    try:
        samples = decode(page.body, _Answer).data.result
        return {each.metric.persistentvolumeclaim: float(each.value[1]) for each in samples}
    except (InvalidObjectError, ValueError) as error:
        raise ValueError("its answer is none of Prometheus' HTTP API") from error


def _full(free: float) -> int:
    """Return how full a volume is, in percent and in steps; what is no number is not known to be full."""
    return int((1 - free) * 100 // _STEP * _STEP) if 0 <= free <= 1 else 0
