"""Evaluate the report of the container `cache`, which guards the volume of a mirror. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobs.core.mirror_audit.checks.findings import Problem, finding, not_readable
from jobs.core.mirror_audit.checks.probes import fetch, has_only_registry_pods
from jobs.core.mirror_audit.desired.mirror import Mirror
from jobs.core.mirror_audit.desired.names import CACHE_PORT, CACHE_PORT_NAME
from jobs.core.mirror_audit.observed import CacheState, Observed, Probing, Settings
from jobs.kit.values.decoding import decode
from jobs.kit.values.errors import InvalidObjectError
from jobs.kit.values.model import ExitCode, Fetch, Finding, Need, ObjectKey
from jobs.kit.values.reads import Page
from jobs.kit.values.resources import SERVICE_PROXY

# No figures that change by themselves: otherwise each run writes the status.
_SHORTAGES: Mapping[str, Problem] = {
    "layers": Problem("layers-interrupted", "sent an incomplete layer in the last minutes"),
    "access": Problem(
        "volume-unusable", 'cannot be used by the registry; the reason is in the log of its container "cache"'
    ),
    "inodes": Problem("volume-filling", "has too few free inodes"),
    "space": Problem("volume-filling", "has too little free space; at least {} MiB must be free"),
}


def cache(mirror: Mirror, observed: Observed, settings: Settings) -> Iterator[Finding | Fetch | Need]:
    """Read the report of the container `cache` of a mirror, also while the mirror is not ready."""
    service = mirror.headless_service.key
    if not _has_cache(mirror, observed) or not has_only_registry_pods(service, observed):
        return
    if settings.probing is Probing.NETWORK:
        url = f"http://{service.name}.{service.namespace}.svc:{CACHE_PORT}/"
        if url not in observed.pages:
            yield fetch(url, mirror)
        else:
            yield from _findings(mirror, _cache_state(observed.pages[url]), observed)
    elif settings.probing is Probing.SERVICE_PROXY:
        key = ObjectKey(SERVICE_PROXY.kind, f"http:{service.name}:{CACHE_PORT_NAME}/proxy/", service.namespace)
        document = observed.documents.get(key)
        if key not in observed.documents:
            yield Need(key)
        else:
            yield from _findings(mirror, document if isinstance(document, CacheState) else None, observed)


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


def _findings(mirror: Mirror, state: CacheState | None, observed: Observed) -> Iterator[Finding]:
    if state is None or state.shortage == "answer":
        if observed.endpoints_of(mirror.service.key).own:
            what = 'its container "cache" does not respond' if state is None else "its volume does not respond"
            reason = f"{what}; the reason is in the log of the run or of the container"
            yield not_readable(mirror.stateful_set.key, reason, (mirror.registry_mirror.name,), ExitCode.DONE)
        return
    if state.shortage:
        code, reason = _SHORTAGES[state.shortage]
        about = mirror.stateful_set.key if state.shortage == "layers" else mirror.claim.key
        yield finding(code, reason.format(state.least_free_bytes >> 20), about, mirror.registry_mirror)
    if state.corrupt_blobs:
        count = f"{state.corrupt_blobs} blob{'s' * (state.corrupt_blobs > 1)}"
        reason = f"{count} removed in the last 24 hours, because of a digest mismatch"
        yield finding("cache-corrupt", reason, mirror.claim.key, mirror.registry_mirror)
    if not state.used and state.shortage != "access":
        reason = f"no image of {mirror.spec.host} was pulled through the mirror yet"
        yield finding("never-used", reason, mirror.registry_mirror.head.key, mirror.registry_mirror)
