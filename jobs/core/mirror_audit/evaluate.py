"""Evaluate all mirrors together, and each of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus

from msgspec.structs import replace

from jobs.core.mirror_audit.actual import UNKNOWN, is_managed, is_terminating, mirror_name
from jobs.core.mirror_audit.desired import CREDENTIALS_VERSION, NODE_IMAGE, Mirror, is_pinned, name_problem, registry_of
from jobs.core.mirror_audit.findings import CODES, Problem, finding, unreadable
from jobs.core.mirror_audit.observed import Credentials, Observed, Settings
from jobs.core.mirror_audit.probes import cache, mirror_itself, upstream
from jobs.core.mirror_audit.registry_mirrors import (
    IMAGES,
    PASSWORD,
    UPSTREAM,
    USERNAME,
    RegistryMirror,
    Spec,
    served_by,
)
from jobs.core.mirror_audit.resources import resource_findings
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Dependency, ExitCode, Fetch, Finding, ObjectKey
from jobs.kit.values.resources import CLAIMS, CRON_JOBS, EVENTS, PODS

# together: names, duplicates, orphans, and what could not be read


def mirrors_of(observed: Observed, settings: Settings) -> list[Mirror]:
    """Return the mirrors to evaluate one by one: without duplicates and names that are not valid."""
    older = _older(observed)
    return [
        _mirror(each, observed, settings)
        for each in _active(observed)
        if not name_problem(each.name) and each.name not in older
    ]


def evaluate_together(
    mirrors: Sequence[Mirror], observed: Observed, settings: Settings
) -> Iterator[Finding | Dependency]:
    """Yield the findings that are not about one of the `mirrors` alone, and the objects that must be read first."""
    yield from _own_image(mirrors, observed, settings)
    yield from _unreadable(observed, mirrors)
    yield from _invalid_names_and_duplicates(observed)
    yield from _orphans(observed, settings)


def _active(observed: Observed) -> list[RegistryMirror]:
    return [each for each in observed.mirrors if not each.head.terminating]


def _mirror(registry_mirror: RegistryMirror, observed: Observed, settings: Settings) -> Mirror:
    """Return the mirror with the values that come from the cluster. A value that is not known keeps its current one."""
    image = observed.node_image(settings)
    mirror = Mirror(registry_mirror, settings.namespace, image or NODE_IMAGE)
    if not image and (in_use := _image_in_use(mirror, observed)):
        mirror = replace(mirror, node_image=in_use)
    service = observed.managed(mirror.service.key)
    address = service["spec"].get("clusterIP", "") if service else ""
    document = observed.documents.get(mirror.secret) if registry_mirror.spec.credentials_secret else None
    version = document.version if isinstance(document, Credentials) else _version_in_use(mirror, observed)
    return replace(mirror, cluster_ip="" if address == "None" else address, credentials_version=version)


def _image_in_use(mirror: Mirror, observed: Observed) -> str:
    """Return the image of kube-chores in a workload of the mirror: of the registry's while nodes have no pods yet."""
    node = mirror.daemon_set.key
    for key in (node, node._replace(namespace=mirror.namespace), mirror.stateful_set.key):
        if actual := observed.managed(key):
            containers = actual["spec"]["template"]["spec"]["containers"]
            if found := next((each.get("image") for each in containers if each["name"] in ("node", "cache")), None):
                return str(found)
    return ""


def _version_in_use(mirror: Mirror, observed: Observed) -> str:
    actual = observed.managed(mirror.stateful_set.key)
    if not actual or not mirror.spec.credentials_secret:
        return ""
    annotations: Mapping[str, str] = actual["spec"]["template"]["metadata"].get("annotations") or {}
    return annotations.get(CREDENTIALS_VERSION, "")


def _own_image(mirrors: Sequence[Mirror], observed: Observed, settings: Settings) -> Iterator[Finding | Dependency]:
    """Read the pod of the run, because the pods of mirrors get its image; or yield why that is not known."""
    pod = settings.pod
    if settings.node_image or not (observed.mirrors or observed.resources):
        return
    is_default = any(each.node_image == NODE_IMAGE and not observed.managed(each.daemon_set.key) for each in mirrors)
    if not pod:
        if settings.repair and is_default:
            reason = f"this run is not in a pod, so new mirrors get image {NODE_IMAGE}"
            yield finding("image-unknown", reason, ObjectKey(PODS.kind, "(own)"))
        return
    if pod.name and pod not in observed.documents:
        yield Dependency(pod)
        return
    if observed.node_image(settings):
        return
    document, exit_code = observed.documents.get(pod), ExitCode.REFUSED
    why = "it has no container chores" if pod.name else "the environment variable POD_NAME is not set"
    if isinstance(document, ApiError):
        why, exit_code = f"its pod cannot be read: {document.message}", document.exit_code
    reason = f"the image of this run is not known: {why}; each mirror keeps its image"
    if is_default:
        reason += f", and new mirrors get {NODE_IMAGE}"
    yield finding("image-unknown", reason, pod if pod.name else pod._replace(name="(own)"), exit_code=exit_code)


def _unreadable(observed: Observed, mirrors: Sequence[Mirror]) -> Iterator[Finding]:
    """Yield the kinds that could not be listed, about all mirrors; and the objects that cannot be decoded."""
    subjects = tuple(sorted(each.name for each in _active(observed)))
    for kind, error in sorted(observed.list_errors.items()):
        # Events and pods only explain findings, or are about images: without them, no mirror is Unknown.
        is_of_mirrors = kind not in (CRON_JOBS.kind, EVENTS.kind, PODS.kind)
        yield unreadable(ObjectKey(kind, "(all)"), error, subjects if is_of_mirrors else ())

    for key, error in sorted(observed.invalid.items()):
        of = [mirror for mirror in mirrors if key in [each.key for each in mirror.resources]]
        yield unreadable(key, error, tuple(each.registry_mirror.name for each in of))


def _invalid_names_and_duplicates(observed: Observed) -> Iterator[Finding]:
    older = _older(observed)
    for mirror in _active(observed):
        if problem := name_problem(mirror.name):
            yield finding("invalid-name", f"its name {problem}", mirror.head.key, mirror)
        elif other := older.get(mirror.name):
            same = mirror.spec.upstream == other.spec.upstream
            what = f"has the upstream {mirror.spec.upstream}" if same else f"is for images of {mirror.spec.host}"
            why = "is older" if other.head.created < mirror.head.created else "comes first by name"
            yield finding("duplicate-upstream", f"{what}, like {other.head.key}, which {why}", mirror.head.key, mirror)


def _older(observed: Observed) -> Mapping[str, RegistryMirror]:
    """Return, by the name of each duplicate, the older mirror with the same upstream or the same file on nodes."""
    found: dict[str, RegistryMirror] = {}
    upstreams: dict[str, RegistryMirror] = {}
    hosts: dict[str, RegistryMirror] = {}
    valid = (each for each in observed.mirrors if not name_problem(each.name))
    for mirror in sorted(valid, key=lambda each: (each.head.created, each.name)):
        older = upstreams.get(mirror.spec.upstream) or hosts.get(mirror.spec.host)
        if older:
            found[mirror.name] = older
        else:
            upstreams[mirror.spec.upstream] = hosts[mirror.spec.host] = mirror
    return found


def _orphans(observed: Observed, settings: Settings) -> Iterator[Finding]:
    """Yield the resources that no RegistryMirror defines, but none with RegistryMirrors from files.

    Files do not list all mirrors of the cluster.
    """
    if settings.mirrors is not None:
        return
    valid = {each.name for each in _active(observed) if not name_problem(each.name)}
    known = {each.name for each in observed.mirrors} | {each.head.key.name for each in observed.invalid_mirrors}
    desired = {
        each.key
        for mirror in observed.mirrors
        if not name_problem(mirror.name)
        for each in Mirror(mirror, settings.namespace, settings.node_image).resources
    }
    for key, actual in sorted(observed.resources.items()):
        name = mirror_name(actual)
        # A resource that a mirror defines is not an orphan, even if somebody changed its annotation.
        if not is_managed(actual) or key in desired or name in known - valid:
            continue
        why = "does not define it" if name in known else "does not exist"
        reason = f"was created for registrymirror/{name}, which {why}"
        subjects = (name,) if name in known else ()
        may_delete = key.kind != CLAIMS.kind or settings.allow_cache_loss or is_terminating(actual) or name == UNKNOWN
        code = "orphan" if may_delete else "retained"  # on purpose, for a later mirror of its name
        yield Finding(code, CODES[code].severity, key, reason, subjects=subjects)


# one mirror: its resources, images, credentials and responses


def evaluate(mirror: Mirror, observed: Observed, settings: Settings) -> list[Finding | Dependency | Fetch]:
    """Return the findings about one mirror, and the objects and URLs that the run must read first."""
    itself, its_cache = list(mirror_itself(mirror, observed, settings)), cache(mirror, observed, settings)
    # One finding about a mirror that does not respond is enough.
    is_down = any(isinstance(each, Finding) for each in itself)
    return [
        *resource_findings(mirror, observed, settings),
        *_images(mirror),
        *_credentials(mirror, observed),
        *upstream(mirror, observed, settings),
        *itself,
        *(each for each in its_cache if not (is_down and isinstance(each, Finding) and each.code == "unreadable")),
    ]


def _images(mirror: Mirror) -> Iterator[Finding]:
    """Yield the images that are not pinned, and those that nodes can pull only through the mirror itself."""
    if not is_pinned(mirror.image):
        reason = f"spec.image {mirror.image} has neither a digest nor a fixed tag"
        yield finding("image-unpinned", reason, mirror.registry_mirror.head.key, mirror.registry_mirror)
    if not is_pinned(mirror.node_image):
        reason = f"the image of kube-chores, {mirror.node_image}, has neither a digest nor a fixed tag"
        yield finding("image-unpinned", reason, mirror.daemon_set.key, mirror.registry_mirror)
    if mirror.spec.fallback == "Upstream":
        return
    for key, images in (
        (mirror.stateful_set.key, dict.fromkeys((mirror.image, mirror.node_image))),
        (mirror.daemon_set.key, (mirror.node_image,)),
    ):
        if through_itself := [image for image in images if registry_of(image) == mirror.spec.host]:
            reason = (
                f"uses {' and '.join(through_itself)}; nodes pull images of {mirror.spec.host} only through this mirror"
            )
            yield finding("image-depends-on-mirror", reason, key, mirror.registry_mirror)


def _credentials(mirror: Mirror, observed: Observed) -> Iterator[Finding | Dependency]:
    """Check the Secret of a mirror, if its spec names one."""
    if not mirror.spec.credentials_secret:
        return
    key = mirror.secret
    if key not in observed.documents:
        yield Dependency(key)
        return
    document = observed.documents[key]
    if not mirror.spec.allow_unauthenticated_readers:
        reason = (
            "has credentials, and serves private images to every client that reaches it, without a login; "
            "see spec.allowUnauthenticatedReaders"
        )
        yield finding("credentials-exposed", reason, mirror.registry_mirror.head.key, mirror.registry_mirror)
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
