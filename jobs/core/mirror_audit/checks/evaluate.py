"""Evaluate all mirrors: each mirror by itself, duplicates, and orphans. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from jobs.core.mirror_audit.checks.codes import CODES
from jobs.core.mirror_audit.checks.findings import finding, unreadable
from jobs.core.mirror_audit.checks.probes import (
    NO_REGISTRY,
    ProbeResult,
    cache,
    credentials,
    mirror_itself,
    secret_key,
    upstream,
)
from jobs.core.mirror_audit.checks.resources import is_managed, mirror_name, resource_findings
from jobs.core.mirror_audit.desired.mirror import (
    CREDENTIALS_VERSION,
    NODE_IMAGE,
    Mirror,
    is_pinned,
    name_problem,
    registry_of,
)
from jobs.core.mirror_audit.observed import Credentials, Observed, Settings
from jobs.core.mirror_audit.registry_mirrors import MirrorStatus, RegistryMirror
from jobs.core.mirror_audit.repair.removals import removals
from jobs.core.mirror_audit.repair.repairs import Repairs, refused, repairs
from jobs.kit.values.conditions import READY
from jobs.kit.values.model import Brake, Fetch, Finding, Need, ObjectKey, Severity
from jobs.kit.values.resources import EVENTS


class Audit(NamedTuple):
    """The findings of an audit, and what the run must read first.

    `fetches` are in the order in which to request them. `healthy` are the resources without a finding.
    """

    findings: Sequence[Finding]
    needs: Sequence[Need]
    fetches: Sequence[Fetch]
    healthy: Sequence[tuple[Mirror, ObjectKey]]
    may_progress: bool = False
    brakes: Sequence[Brake] = ()


def audit(observed: Observed, settings: Settings) -> Audit:
    """Compare the cluster with what RegistryMirrors define."""
    active = [each for each in observed.mirrors if not each.head.terminating]
    older = _older([each for each in observed.mirrors if not name_problem(each.name)])
    mirrors = [
        _mirror(each, observed, settings) for each in active if not (name_problem(each.name) or each.name in older)
    ]
    findings = [
        *_unreadable(observed, active),
        *_invalid(observed, mirrors),
        *_invalid_names(active),
        *_duplicates(active, older),
        *_orphans(observed, settings),
    ]
    results: list[ProbeResult] = []
    fetches: list[tuple[int, Fetch]] = []
    for mirror in mirrors:
        findings += [*resource_findings(mirror, observed, settings), *_unpinned(mirror), *_self_dependent(mirror)]
        itself, its_cache = mirror_itself(mirror, observed, settings), cache(mirror, observed, settings)
        if itself.findings:  # one finding about a mirror that does not respond is enough
            its_cache = its_cache._replace(findings=[each for each in its_cache.findings if each.code != "unreadable"])
        of_mirror = [credentials(mirror, observed), upstream(mirror, observed, settings), itself, its_cache]
        results += of_mirror
        if urls := [result.url for result in of_mirror if result.url]:
            order = _probe_order(mirror.registry_mirror)
            fetches += [(order, _fetch(url, mirror.registry_mirror.name)) for url in urls]
    findings += [each for result in results for each in result.findings]
    with_finding = {each.object for each in findings}
    found = Audit(
        findings,
        [result.need for result in results if result.need],
        [fetch for _, fetch in sorted(fetches)],
        [
            (mirror, each.key)
            for mirror in mirrors
            for each in mirror.resources
            if each.key in observed.resources and each.key not in with_finding
        ],
    )
    return _with_repairs(found, mirrors, observed, settings) if settings.repair else found


def _fetch(url: str, subject: str) -> Fetch:
    """Return the probe of a URL: https of an upstream, or http of a mirror, whose response a repair may change."""
    return Fetch(url, subject, is_probe=True, again=url.startswith("http://"))


def _probe_order(registry_mirror: RegistryMirror) -> int:
    """Return when to probe a mirror: those that did not respond in the last run come last.

    Each one that does not respond takes seconds from those after it.
    """
    head = registry_mirror.head
    ready = next((each for each in head.status_as(MirrorStatus).conditions if each.type == READY), None)
    if ready is None or ready.status == "Unknown" or ready.observed_generation != head.generation:
        return 1
    return 2 if NO_REGISTRY in ready.message else 0


def _with_repairs(found: Audit, mirrors: Sequence[Mirror], observed: Observed, settings: Settings) -> Audit:
    """Add the next step of each finding, mirror by mirror: no mirror blocks the repair of another."""
    orphans = [each for each in found.findings if each.code == "orphan"]
    all_repairs = [removals(orphans, observed, settings)]
    by_name: dict[tuple[str, ...], Mirror] = {(mirror.registry_mirror.name,): mirror for mirror in mirrors}
    of_mirrors: dict[tuple[str, ...], list[Finding]] = {}
    for each in found.findings:
        if each.code != "orphan":
            of_mirrors.setdefault(each.subjects, []).append(each)
    for subjects, findings in of_mirrors.items():
        mirror = by_name.get(subjects)
        all_repairs.append(
            repairs(mirror, findings, observed, settings) if mirror else Repairs([refused(each) for each in findings])
        )
    return found._replace(
        findings=[finding for each in all_repairs for finding in each.findings],
        needs=[*found.needs, *(need for each in all_repairs for need in each.needs)],
        may_progress=any(each.may_progress for each in all_repairs),
        brakes=[brake for each in all_repairs for brake in each.brakes],
    )


def _mirror(registry_mirror: RegistryMirror, observed: Observed, settings: Settings) -> Mirror:
    """Return the mirror with the values that come from the cluster. A value that is not known keeps its current one."""
    mirror = Mirror(registry_mirror, settings.namespace, settings.node_image or NODE_IMAGE)
    if not settings.node_image and (in_use := _image_in_use(mirror, observed)):
        mirror = replace(mirror, node_image=in_use)
    service = observed.resources.get(mirror.service.key)
    address = service["spec"].get("clusterIP", "") if service and is_managed(service) else ""
    document = observed.documents.get(secret_key(mirror)) if registry_mirror.spec.credentials_secret else None
    version = document.version if isinstance(document, Credentials) else _version_in_use(mirror, observed)
    return replace(mirror, cluster_ip="" if address == "None" else address, credentials_version=version)


def _image_in_use(mirror: Mirror, observed: Observed) -> str:
    key = mirror.daemon_set.key
    for actual in (observed.resources.get(key), observed.resources.get(key._replace(namespace=mirror.namespace))):
        if actual and is_managed(actual):
            return str(actual["spec"]["template"]["spec"]["containers"][0].get("image", ""))
    return ""


def _version_in_use(mirror: Mirror, observed: Observed) -> str:
    actual = observed.resources.get(mirror.stateful_set.key)
    if not actual or not is_managed(actual) or not mirror.spec.credentials_secret:
        return ""
    annotations: Mapping[str, str] = actual["spec"]["template"]["metadata"].get("annotations") or {}
    return annotations.get(CREDENTIALS_VERSION, "")


def _unreadable(observed: Observed, mirrors: Sequence[RegistryMirror]) -> Iterator[Finding]:
    """Yield one finding for each kind that could not be listed; it is about all mirrors."""
    subjects = tuple(sorted(mirror.name for mirror in mirrors))
    for kind, error in sorted(observed.list_errors.items()):
        # Events only explain findings: without them, no mirror is Unknown.
        yield unreadable(ObjectKey(kind, "(all)"), error, () if kind == EVENTS.kind else subjects)


def _invalid(observed: Observed, mirrors: Sequence[Mirror]) -> Iterator[Finding]:
    """Yield which objects cannot be decoded, each with the mirror that has a resource of that name."""
    for key, error in sorted(observed.invalid.items()):
        subjects = tuple(
            mirror.registry_mirror.name for mirror in mirrors if key in [each.key for each in mirror.resources]
        )
        yield unreadable(key, error, subjects)


def _invalid_names(mirrors: Iterable[RegistryMirror]) -> Iterator[Finding]:
    for each in mirrors:
        if problem := name_problem(each.name):
            yield finding("invalid-name", each.head.key, f"its name {problem}", each)


def _older(mirrors: Sequence[RegistryMirror]) -> Mapping[str, RegistryMirror]:
    """Return, by the name of each duplicate, the older mirror with the same upstream or the same file on nodes."""
    found: dict[str, RegistryMirror] = {}
    upstreams: dict[str, RegistryMirror] = {}
    hosts: dict[str, RegistryMirror] = {}
    for mirror in sorted(mirrors, key=lambda each: (each.head.created, each.name)):
        older = upstreams.get(mirror.spec.upstream) or hosts.get(mirror.spec.host)
        if older:
            found[mirror.name] = older
        else:
            upstreams[mirror.spec.upstream] = hosts[mirror.spec.host] = mirror
    return found


def _duplicates(mirrors: Sequence[RegistryMirror], older: Mapping[str, RegistryMirror]) -> Iterator[Finding]:
    for mirror in mirrors:
        if other := older.get(mirror.name):
            same = mirror.spec.upstream == other.spec.upstream
            what = f"has the upstream {mirror.spec.upstream}" if same else f"is for images of {mirror.spec.host}"
            why = "is older" if other.head.created < mirror.head.created else "comes first by name"
            reason = f"{what}, like {other.head.key}, which {why}"
            yield finding("duplicate-upstream", mirror.head.key, reason, mirror)


def _unpinned(mirror: Mirror) -> Iterator[Finding]:
    if not is_pinned(mirror.image):
        reason = f"spec.image {mirror.image} has neither a digest nor a fixed tag"
        yield finding("image-unpinned", mirror.registry_mirror.head.key, reason, mirror.registry_mirror)
    if not is_pinned(mirror.node_image):
        reason = f"--node-image {mirror.node_image} has neither a digest nor a fixed tag"
        yield finding("image-unpinned", mirror.daemon_set.key, reason, mirror.registry_mirror)


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
            yield finding("image-depends-on-mirror", key, reason, mirror.registry_mirror)


def _orphans(observed: Observed, settings: Settings) -> Iterator[Finding]:
    """Yield the resources that no RegistryMirror defines, but none with RegistryMirrors from files.

    Files do not list all mirrors of the cluster.
    """
    if settings.mirrors is not None:
        return
    by_name = {each.name: each for each in observed.mirrors}
    known = by_name.keys() | {each.head.key.name for each in observed.invalid_mirrors}
    desired = {key for each in observed.mirrors for key in _keys(each, settings)}
    for key, actual in sorted(observed.resources.items()):
        name = mirror_name(actual)
        # A resource that a mirror defines is not an orphan, even if somebody changed its annotation.
        if not is_managed(actual) or key in desired:
            continue
        if name in known and not _is_superseded(key, by_name.get(name), settings):
            continue
        why = "does not define it" if name in known else "does not exist"
        reason = f"was created for registrymirror/{name}, which {why}"
        subjects = (name,) if name in known else ()
        yield Finding("orphan", CODES["orphan"].severity, key, reason, subjects=subjects)


def _is_superseded(key: ObjectKey, registry_mirror: RegistryMirror | None, settings: Settings) -> bool:
    """Return whether a valid, active RegistryMirror no longer defines an object that was created for it."""
    if registry_mirror is None or registry_mirror.head.terminating or name_problem(registry_mirror.name):
        return False
    return key not in _keys(registry_mirror, settings)


def _keys(registry_mirror: RegistryMirror, settings: Settings) -> list[ObjectKey]:
    if name_problem(registry_mirror.name):
        return []
    return [each.key for each in Mirror(registry_mirror, settings.namespace, settings.node_image).resources]


def unchanged(mirror: Mirror, key: ObjectKey) -> Finding:
    """Return the INFO finding of a resource without problems, which --verbose prints."""
    return Finding("unchanged", Severity.INFO, key, "", subjects=(mirror.registry_mirror.name,))
