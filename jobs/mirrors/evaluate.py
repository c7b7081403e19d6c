"""What is to be said of all mirrors: of each by itself, of those in each other's way, of what is left. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from jobs.kit.model import Brake, Finding, Need, ObjectKey, Severity
from jobs.kit.objects import EVENTS
from jobs.mirrors.codes import CODES
from jobs.mirrors.findings import finding, unreadable
from jobs.mirrors.mirror import CREDENTIALS_VERSION, NODE_IMAGE, Mirror, is_pinned, name_problem, registry_of
from jobs.mirrors.observed import Credentials, Observed, Settings
from jobs.mirrors.probes import NO_REGISTRY, Asked, cache, credentials, mirror_itself, secret_key, upstream
from jobs.mirrors.registry_mirrors import MirrorStatus, RegistryMirror
from jobs.mirrors.removals import removals
from jobs.mirrors.repairs import Repairs, refused, repairs
from jobs.mirrors.resources import is_ours, made_for, resource_findings
from jobs.mirrors.status import READY


class Audit(NamedTuple):
    """What an audit says, and what it must know first. `right` are the resources that nothing is wrong with.

    `urls` are in the order in which to ask. `pending` are the mirrors of which a document of the web must be known
    first.
    """

    findings: Sequence[Finding]
    needs: Sequence[Need]
    urls: Sequence[str]
    right: Sequence[tuple[Mirror, ObjectKey]]
    may_progress: bool = False
    brakes: Sequence[Brake] = ()
    pending: frozenset[str] = frozenset()


def audit(observed: Observed, settings: Settings) -> Audit:
    """Compare what is there with what RegistryMirrors ask for."""
    active = [asked for asked in observed.mirrors if not asked.head.terminating]
    older = _older([asked for asked in observed.mirrors if not name_problem(asked.name)])
    mirrors = [
        _mirror(each, observed, settings) for each in active if not (name_problem(each.name) or each.name in older)
    ]
    findings = [
        *_unreadable(observed, active),
        *_invalid(observed, mirrors),
        *_unusable(active),
        *_duplicates(active, older),
        *_orphans(observed, settings),
    ]
    questions: list[Asked] = []
    pending: set[str] = set()
    urls: list[tuple[int, str]] = []
    for mirror in mirrors:
        findings += [*resource_findings(mirror, observed, settings), *_unpinned(mirror), *_locked_out(mirror)]
        itself, its_cache = mirror_itself(mirror, observed, settings), cache(mirror, observed, settings)
        if itself.findings:  # one reason is enough
            its_cache = its_cache._replace(findings=[each for each in its_cache.findings if each.code != "unreadable"])
        asked = [credentials(mirror, observed), upstream(mirror, observed, settings), itself, its_cache]
        questions += asked
        if any(question.url for question in asked):
            pending.add(mirror.asked.name)
            urls += [(_turn(mirror.asked), question.url) for question in asked if question.url]
    findings += [each for question in questions for each in question.findings]
    wrong = {each.object for each in findings}
    found = Audit(
        findings,
        [question.need for question in questions if question.need],
        list(dict.fromkeys(url for _, url in sorted(urls))),
        [(mirror, each.key) for mirror in mirrors for each in mirror.children if _is_right(each.key, observed, wrong)],
        pending=frozenset(pending),
    )
    return _repaired(found, mirrors, observed, settings) if settings.repair else found


def _turn(asked: RegistryMirror) -> int:
    """Return when a mirror is asked: each silent one takes seconds from those behind it, so who was silent is last."""
    ready = next((each for each in asked.head.status_as(MirrorStatus).conditions if each.type == READY), None)
    if ready is None or ready.status == "Unknown" or ready.observed_generation != asked.head.generation:
        return 1
    return 2 if NO_REGISTRY in ready.message else 0


def _repaired(found: Audit, mirrors: Sequence[Mirror], observed: Observed, settings: Settings) -> Audit:
    """Return the same with what is done about each finding, mirror by mirror; no mirror is in another one's way."""
    orphans = [each for each in found.findings if each.code == "orphan"]
    done = [removals(orphans, observed, settings)]
    by_name: dict[tuple[str, ...], Mirror] = {(mirror.asked.name,): mirror for mirror in mirrors}
    of_mirrors: dict[tuple[str, ...], list[Finding]] = {}
    for each in found.findings:
        if each.code != "orphan":
            of_mirrors.setdefault(each.subjects, []).append(each)
    for subjects, findings in of_mirrors.items():
        mirror = by_name.get(subjects)
        done.append(
            repairs(mirror, findings, observed, settings) if mirror else Repairs([refused(each) for each in findings])
        )
    return found._replace(
        findings=[each for repaired in done for each in repaired.findings],
        needs=[*found.needs, *(need for repaired in done for need in repaired.needs)],
        may_progress=any(repaired.may_progress for repaired in done),
        brakes=[brake for repaired in done for brake in repaired.brakes],
    )


def _mirror(asked: RegistryMirror, observed: Observed, settings: Settings) -> Mirror:
    """Return the mirror with all that is known of it: what is not known stays as it is in the cluster."""
    mirror = Mirror(asked, settings.namespace, settings.node_image or NODE_IMAGE)
    if not settings.node_image and (in_use := _image_in_use(mirror, observed)):
        mirror = replace(mirror, node_image=in_use)
    service = observed.children.get(mirror.service.key)
    address = service["spec"].get("clusterIP", "") if service and is_ours(service) else ""
    look = observed.looks.get(secret_key(mirror)) if asked.spec.credentials_secret else None
    version = look.version if isinstance(look, Credentials) else _version_in_use(mirror, observed)
    return replace(mirror, cluster_ip="" if address == "None" else address, credentials_version=version)


def _image_in_use(mirror: Mirror, observed: Observed) -> str:
    key = mirror.daemon_set.key
    for actual in (observed.children.get(key), observed.children.get(key._replace(namespace=mirror.namespace))):
        if actual and is_ours(actual):
            return str(actual["spec"]["template"]["spec"]["containers"][0].get("image", ""))
    return ""


def _version_in_use(mirror: Mirror, observed: Observed) -> str:
    actual = observed.children.get(mirror.stateful_set.key)
    if not actual or not is_ours(actual) or not mirror.spec.credentials_secret:
        return ""
    annotations: Mapping[str, str] = actual["spec"]["template"]["metadata"].get("annotations") or {}
    return annotations.get(CREDENTIALS_VERSION, "")


def _is_right(key: ObjectKey, observed: Observed, wrong: set[ObjectKey]) -> bool:
    return key in observed.children and key not in wrong


def _unreadable(observed: Observed, mirrors: Sequence[RegistryMirror]) -> Iterator[Finding]:
    """Yield which kinds could not be listed: that is one finding of all mirrors."""
    subjects = tuple(sorted(mirror.name for mirror in mirrors))
    for kind, error in sorted(observed.denied.items()):
        # Events only explain what is found: no mirror is unknown for want of them.
        yield unreadable(ObjectKey(kind, "(all)"), error, () if kind == EVENTS.kind else subjects)


def _invalid(observed: Observed, mirrors: Sequence[Mirror]) -> Iterator[Finding]:
    """Yield which objects cannot be decoded, each of the mirror in whose place it is."""
    for key, error in sorted(observed.invalid.items()):
        subjects = tuple(each.asked.name for each in mirrors if key in [child.key for child in each.children])
        yield unreadable(key, error, subjects)


def _unusable(mirrors: Iterable[RegistryMirror]) -> Iterator[Finding]:
    for asked in mirrors:
        if problem := name_problem(asked.name):
            yield finding("invalid-name", asked.head.key, f"its name {problem}", asked)


def _older(mirrors: Sequence[RegistryMirror]) -> Mapping[str, RegistryMirror]:
    """Return, by the name of each mirror that is to wait, the older one that has its upstream or its file on nodes."""
    found: dict[str, RegistryMirror] = {}
    upstreams: dict[str, RegistryMirror] = {}
    hosts: dict[str, RegistryMirror] = {}
    for asked in sorted(mirrors, key=lambda each: (each.head.created, each.name)):
        older = upstreams.get(asked.spec.upstream) or hosts.get(asked.spec.host)
        if older:
            found[asked.name] = older
        else:
            upstreams[asked.spec.upstream] = hosts[asked.spec.host] = asked
    return found


def _duplicates(mirrors: Sequence[RegistryMirror], older: Mapping[str, RegistryMirror]) -> Iterator[Finding]:
    for asked in mirrors:
        if other := older.get(asked.name):
            same = asked.spec.upstream == other.spec.upstream
            what = f"has the upstream {asked.spec.upstream}" if same else f"is for images of {asked.spec.host}"
            why = "older" if other.head.created < asked.head.created else "first by name"
            reason = f"{what}, like {other.head.key}, which is {why}"
            yield finding("duplicate-upstream", asked.head.key, reason, asked)


def _unpinned(mirror: Mirror) -> Iterator[Finding]:
    if not is_pinned(mirror.image):
        reason = f"spec.image {mirror.image} has no tag that stays, and no digest"
        yield finding("image-unpinned", mirror.asked.head.key, reason, mirror.asked)
    if not is_pinned(mirror.node_image):
        reason = f"--node-image {mirror.node_image} has no tag that stays, and no digest"
        yield finding("image-unpinned", mirror.daemon_set.key, reason, mirror.asked)


def _locked_out(mirror: Mirror) -> Iterator[Finding]:
    """Yield which images of the mirror nodes could only pull through the mirror itself."""
    if mirror.spec.fallback == "Upstream":
        return
    for key, images in (
        (mirror.stateful_set.key, {mirror.image: None, mirror.node_image: None}),
        (mirror.daemon_set.key, {mirror.node_image: None}),
    ):
        if through_itself := [image for image in images if registry_of(image) == mirror.spec.host]:
            reason = (
                f"{' and '.join(through_itself)}: of {mirror.spec.host}, which nodes pull through this mirror alone"
            )
            yield finding("image-depends-on-mirror", key, reason, mirror.asked)


def _orphans(observed: Observed, settings: Settings) -> Iterator[Finding]:
    """Yield what was made for mirrors and nobody asks for. Files say nothing of mirrors that are not in them."""
    if settings.mirrors is not None:
        return
    asked = {asked.name: asked for asked in observed.mirrors}
    known = asked.keys() | {each.head.key.name for each in observed.invalid_mirrors}
    desired = {key for each in observed.mirrors for key in _keys(each, settings)}
    for key, actual in sorted(observed.children.items()):
        name = made_for(actual)
        # What a mirror asks for is that mirror's, whatever somebody made of its annotation.
        if not is_ours(actual) or key in desired or (name in known and not _is_left(key, asked.get(name), settings)):
            continue
        why = "does not ask for it" if name in known else "is not there"
        reason = f"was made for registrymirror/{name}, which {why}"
        subjects = (name,) if name in known else ()
        yield Finding("orphan", CODES["orphan"].severity, key, reason, subjects=subjects)


def _is_left(key: ObjectKey, asked: RegistryMirror | None, settings: Settings) -> bool:
    """Whether an object was made for a mirror that can be followed and that does not ask for it."""
    if asked is None or asked.head.terminating or name_problem(asked.name):
        return False
    return key not in _keys(asked, settings)


def _keys(asked: RegistryMirror, settings: Settings) -> list[ObjectKey]:
    if name_problem(asked.name):
        return []
    return [each.key for each in Mirror(asked, settings.namespace, settings.node_image).children]


def unchanged(mirror: Mirror, key: ObjectKey) -> Finding:
    """Return the finding that all is well with a resource, for those who ask to see it."""
    return Finding("unchanged", Severity.INFO, key, "", subjects=(mirror.asked.name,))
