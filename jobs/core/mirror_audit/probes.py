"""Probe a mirror, its upstream, and the container `cache`, which guards the volume of the mirror. Pure.

Each check yields findings, or what the run must read first.
https://distribution.github.io/distribution/spec/api/#api-version-check
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus

from msgspec import structs

from jobs.core.mirror_audit.actual import Object
from jobs.core.mirror_audit.desired import CACHE_PORT, CACHE_PORT_NAME, PORT, PORT_NAME, Mirror
from jobs.core.mirror_audit.findings import Problem, finding, unreadable
from jobs.core.mirror_audit.observed import CacheState, Observed, Probing, Settings
from jobs.core.mirror_audit.registry_mirrors import PASSWORD
from jobs.kit.values.errors import ApiError, InvalidObjectError
from jobs.kit.values.model import Dependency, ExitCode, Fetch, Finding, ObjectKey
from jobs.kit.values.reads import NAME_NOT_FOUND, NO_DNS, NOT_FETCHED, NOT_IN_TIME, Download, decode
from jobs.kit.values.resources import ENDPOINT_SLICES, SERVICE_PROXY, SERVICES

# Authors of RegistryMirrors can name hosts that do not respond. That does not fail a run.
_NOT_PROBED = {NOT_FETCHED: ExitCode.FAILED, NOT_IN_TIME: ExitCode.DONE}
# What a finding reports if the probes of all mirrors failed with one code.
_ALL = ObjectKey(SERVICES.kind, "(all)")
_OF_ALL: Mapping[str, str] = {
    "name-not-resolved": "the names of all {} mirrors were not resolved, so the cluster's DNS does not work",
    "mirror-down": "none of the {} mirrors responds",
}
# No figures that change by themselves: otherwise each run writes the status.
_SHORTAGES: Mapping[str, Problem] = {
    "layers": Problem("layers-interrupted", "sent an incomplete layer in the last minutes"),
    "access": Problem(
        "volume-unusable", 'cannot be used by the registry; the reason is in the log of its container "cache"'
    ),
    "inodes": Problem("volume-filling", "has too few free inodes"),
    "space": Problem("volume-filling", "has too little free space; at least {} MiB must be free"),
}


def upstream(mirror: Mirror, observed: Observed, settings: Settings) -> Iterator[Finding | Fetch]:
    """Probe the upstream over the network. A 401 is a success: the upstream only requires a login."""
    if settings.probing is Probing.NETWORK and not is_unresolved(mirror, observed):
        url, about = _upstream_url(mirror), mirror.registry_mirror.head.key
        yield from _fetched("upstream-down", url, about, mirror, observed, (HTTPStatus.OK, HTTPStatus.UNAUTHORIZED))


def _upstream_url(mirror: Mirror) -> str:
    return f"https://{mirror.spec.upstream}/v2/"


def is_upstream_unknown(mirror: Mirror, observed: Observed) -> bool:
    """Return whether the probe of the upstream was planned and not done, or cannot succeed."""
    download = observed.downloads.get(_upstream_url(mirror))
    return (download is not None and download.error in _NOT_PROBED) or is_unresolved(mirror, observed)


def _mirror_url(mirror: Mirror) -> str:
    return f"http://{_host(mirror)}:{PORT}/v2/"


def _host(mirror: Mirror) -> str:
    return f"{mirror.name}.{mirror.namespace}.svc"


def is_unresolved(mirror: Mirror, observed: Observed) -> bool:
    """Return whether the cluster's DNS did not resolve the name of the mirror's Service."""
    download = observed.downloads.get(_mirror_url(mirror))
    return download is not None and download.error in (NO_DNS, NAME_NOT_FOUND)


def mirror_itself(mirror: Mirror, observed: Observed, settings: Settings) -> Iterator[Finding | Fetch | Dependency]:
    """Probe the mirror, unless it is known that it cannot respond."""
    service = mirror.service.key
    if not observed.managed(service) or not _has_only_registry_pods(service, observed):
        return
    url = _mirror_url(mirror)
    if is_unresolved(mirror, observed):
        reason = f"the name {_host(mirror)} was not resolved: {observed.downloads[url].error}"
        yield finding("name-not-resolved", reason, service, mirror.registry_mirror)
    elif settings.probing is Probing.NETWORK:
        yield from _fetched("mirror-down", url, service, mirror, observed, (HTTPStatus.OK,))
    elif settings.probing is Probing.SERVICE_PROXY:
        yield from _through_api_server(mirror, observed)


def _has_only_registry_pods(service: ObjectKey, observed: Observed) -> bool:
    """Return whether all endpoints of a Service are the registry's, so that a response is the registry's too."""
    found = observed.endpoints_of(service)
    return ENDPOINT_SLICES.kind in observed.list_errors or bool(found.own and not found.foreign)


def registry_url(mirror: Mirror, observed: Observed, settings: Settings) -> str:
    """Return the URL of a mirror that can be asked for manifests, else an empty string."""
    service = mirror.service.key
    is_reached = settings.probing is Probing.NETWORK and observed.managed(service) is not None
    if not is_reached or is_unresolved(mirror, observed) or not _has_only_registry_pods(service, observed):
        return ""
    return f"http://{_host(mirror)}:{PORT}"


def _fetch(url: str, mirror: Mirror) -> Fetch:
    """Return the probe of a URL: https of an upstream, or http of a mirror, whose response a repair may change."""
    return Fetch(url, mirror.registry_mirror.name, is_probe=True, again=url.startswith("http://"))


def _fetched(
    code: str, url: str, about: ObjectKey, mirror: Mirror, observed: Observed, expected: tuple[HTTPStatus, ...]
) -> Iterator[Finding | Fetch]:
    download = observed.downloads.get(url)
    if download is None:
        yield _fetch(url, mirror)
    elif download.error in _NOT_PROBED:
        yield _not_probed(url, download, about, mirror)
    elif download.status not in expected:
        # One text for every failure: otherwise statuses show the network to the authors of RegistryMirrors.
        reason = f"{url} does not respond as a registry; the reason is in the log of the run"
        yield finding(code, reason, about, mirror.registry_mirror)


def _not_probed(url: str, download: Download, about: ObjectKey, mirror: Mirror) -> Finding:
    reason, exit_code = f"{url}: {download.error}", _NOT_PROBED[download.error]
    return finding("unreadable", reason, about, mirror.registry_mirror, exit_code=exit_code)


def together(found: Sequence[Finding], mirrors: Sequence[Mirror], observed: Observed) -> list[Finding]:
    """Return the findings, with one in place of those of all probed mirrors if all failed alike."""
    probed = sum(_mirror_url(each) in observed.downloads for each in mirrors)
    for code, what in _OF_ALL.items():
        alike = [each for each in found if each.code == code]
        if probed > 1 and len(alike) == probed:
            subjects = tuple(sorted(name for each in alike for name in each.subjects))
            reason = f"{what.format(probed)}; {alike[0].reason}"
            of_all = structs.replace(alike[0], object=_ALL._replace(namespace=alike[0].object.namespace))
            rest = [each for each in found if each.code != code]
            return [*rest, structs.replace(of_all, reason=reason, subjects=subjects)]
    return list(found)


def _through_api_server(mirror: Mirror, observed: Observed) -> Iterator[Finding | Dependency]:
    service = mirror.service.key
    key = ObjectKey(SERVICE_PROXY.kind, f"http:{service.name}:{PORT_NAME}/proxy/v2/", service.namespace)
    document = observed.documents.get(key)
    if key not in observed.documents:
        yield Dependency(key)
    elif not isinstance(document, ApiError):
        return
    elif document.is_permission or document.status in (0, HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.FORBIDDEN):
        yield unreadable(service, document, (mirror.registry_mirror.name,))
    else:
        reason = f"GET /v2/ through the API server: {document.message}"
        yield finding("mirror-down", reason, service, mirror.registry_mirror)


def cache(mirror: Mirror, observed: Observed, settings: Settings) -> Iterator[Finding | Fetch | Dependency]:
    """Read the report of the container `cache` of a mirror, also while the mirror is not ready."""
    service = mirror.headless_service.key
    if not _has_cache(mirror, observed) or not _has_only_registry_pods(service, observed):
        return
    if settings.probing is Probing.NETWORK:
        url = f"http://{service.name}.{service.namespace}.svc:{CACHE_PORT}/"
        download = observed.downloads.get(url)
        if download is None:
            yield _fetch(url, mirror)
        elif download.error in _NOT_PROBED:
            yield _not_probed(url, download, mirror.stateful_set.key, mirror)
        else:
            yield from _cache_findings(mirror, _cache_state(download), observed)
    elif settings.probing is Probing.SERVICE_PROXY:
        key = ObjectKey(SERVICE_PROXY.kind, f"http:{service.name}:{CACHE_PORT_NAME}/proxy/", service.namespace)
        document = observed.documents.get(key)
        if key not in observed.documents:
            yield Dependency(key)
        else:
            yield from _cache_findings(mirror, document if isinstance(document, CacheState) else None, observed)


def _has_cache(mirror: Mirror, observed: Observed) -> bool:
    """Return whether the registry's pod has the container. After an upgrade, the first repair adds it."""
    names = {each.get("name") for each in _containers(mirror, observed)}
    return CACHE_PORT_NAME in names and bool(observed.managed(mirror.headless_service.key))


def _containers(mirror: Mirror, observed: Observed) -> list[Object]:
    actual = observed.managed(mirror.stateful_set.key)
    return list(actual["spec"]["template"]["spec"]["containers"]) if actual else []


def _cache_state(download: Download) -> CacheState | None:
    try:
        return None if download.error else decode(download.body, CacheState)
    except InvalidObjectError:
        return None


def _cache_findings(mirror: Mirror, state: CacheState | None, observed: Observed) -> Iterator[Finding]:
    if state is None or state.shortage == "answer":
        if observed.endpoints_of(mirror.service.key).own:
            what = 'its container "cache" does not respond' if state is None else "its volume does not respond"
            reason = f"{what}; the reason is in the log of the run or of the container"
            yield finding("unreadable", reason, mirror.stateful_set.key, mirror.registry_mirror)
        return
    if state.shortage:
        code, reason = _SHORTAGES[state.shortage]
        about = mirror.stateful_set.key if state.shortage == "layers" else mirror.claim.key
        yield finding(code, reason.format(state.least_free_bytes >> 20), about, mirror.registry_mirror)
    if state.corrupt_blobs:
        count = f"{state.corrupt_blobs} blob{'s' * (state.corrupt_blobs > 1)}"
        reason = f"{count} removed in the last 24 hours, because of a digest mismatch"
        yield finding("cache-corrupt", reason, mirror.claim.key, mirror.registry_mirror)
    yield from _refusals(mirror, state, observed)
    if not state.used and state.shortage != "access":
        reason = f"no image of {mirror.spec.host} was pulled through the mirror yet"
        yield finding("never-used", reason, mirror.registry_mirror.head.key, mirror.registry_mirror)


def _refusals(mirror: Mirror, state: CacheState, observed: Observed) -> Iterator[Finding]:
    """Report that the upstream refuses the requests that the registry sends, with its login if it has one."""
    if state.refusal == "rate":
        reason = f"{mirror.spec.upstream} answers requests of the registry with 429 Too Many Requests"
        yield finding("rate-limited", reason, mirror.registry_mirror.head.key, mirror.registry_mirror)
    is_rejected = state.refusal == "login" or (state.refusal == "unauthorized" and _requires_basic(mirror, observed))
    if is_rejected and _has_login(mirror, observed):
        reason = f"{mirror.spec.upstream} rejects its username or password"
        yield finding("credentials-rejected", reason, mirror.secret, mirror.registry_mirror)


def _has_login(mirror: Mirror, observed: Observed) -> bool:
    """Return whether the registry has the login of the spec. After a change of the spec, a repair gives it to it."""
    password = {"secretKeyRef": {"name": mirror.spec.credentials_secret, "key": PASSWORD}}
    env = (variable for each in _containers(mirror, observed) for variable in each.get("env") or ())
    return any(variable.get("valueFrom") == password for variable in env)


def _requires_basic(mirror: Mirror, observed: Observed) -> bool:
    """Return whether the upstream itself checks logins: with tokens, it also answers 401 for an unknown repository."""
    download = observed.downloads.get(_upstream_url(mirror))
    challenge = download.challenge.lower() if download else ""
    return "basic" in challenge and "bearer" not in challenge
