"""Check whether registries still have the images that pods and CronJobs use. Pure.

A registry itself is asked first, because a mirror pulls a manifest that it does not have; at Docker Hub, a HEAD is not
a pull. If the registry does not confirm the image, its mirror is asked, and then the registry with the logins of the
pods. Results are for the report of the run only: no status shows tenants what the run reaches.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import NamedTuple

from jobs.core.mirror_audit.desired import Mirror
from jobs.core.mirror_audit.findings import finding, unreadable
from jobs.core.mirror_audit.image_uses import Image, Images, Pull, Use, choose, is_of_node, parse_image, turn_of
from jobs.core.mirror_audit.observed import Account, Observed, PullSecret, Settings
from jobs.core.mirror_audit.probes import registry_url
from jobs.core.mirror_audit.pull_secrets import matching
from jobs.core.mirror_audit.registry_mirrors import served_by
from jobs.kit.values.errors import ApiError, InvalidObjectError
from jobs.kit.values.model import INDEX_TYPES, Dependency, Finding, Login, ManifestRequest, ObjectKey
from jobs.kit.values.reads import NOT_FETCHED, NOT_IN_TIME, NOT_REQUESTED, REFUSED, Download
from jobs.kit.values.resources import SECRETS
from jobs.kit.values.text import listed

IMAGE, REGISTRY = "Image", "Registry"  # in the place of the kind of an object
MOST_SECRETS = 200  # pull secrets and ServiceAccounts that one run reads
_MOST_LOGINS = 3
_MOST_PULLS = 3  # of one image, in one run
_MOST_RUNNING = 3
_NOT_TRIED = frozenset({NOT_FETCHED, NOT_IN_TIME, NOT_REQUESTED})
# Registries for which nodes of a cloud have credentials of their own:
# https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/
_OF_CLOUD = re.compile(
    r".*\.dkr[.-]ecr(-fips)?\.[-a-z0-9.]+|.*\.azurecr\.[a-z]+|(.*\.)?gcr\.io|[-a-z0-9]+-docker\.pkg\.dev"
)

Part = Finding | Dependency | ManifestRequest


class Checks(NamedTuple):
    """The findings of the checks, and what must be read first; the numbers of images, all and checked."""

    parts: Sequence[Part]
    images: int
    checked: int


def check_images(mirrors: Iterable[Mirror], observed: Observed, settings: Settings, now: datetime) -> Checks:
    """Return the findings about images that have their turn, and the requests and objects that are missing for them."""
    if observed.images is None:
        return Checks([], 0, 0)
    run = _Run(mirrors, observed, settings, now)
    parts = [*_not_valid(observed.images, run.images), *_not_counted(observed.images), *run.parts()]
    return Checks(parts, len(observed.images.uses), run.checked)


def _not_valid(images: Images, valid: Mapping[str, Image]) -> Iterator[Finding]:
    """Yield the images that no run checks."""
    for text, use in images.uses.items():
        if text in valid:
            continue
        image = parse_image(text)
        about = ObjectKey(IMAGE, text)
        if image or text.startswith("["):  # an IPv6 address
            reason = f"is not checked: a run does not reach the registry {image.host if image else text}"
            yield finding("image-not-checked", reason, about)
        else:
            reason = f"is not a valid reference of an image, so nodes cannot pull it; used by {use.users}"
            yield finding("image-missing", reason, about)


def _not_counted(images: Images) -> Iterator[Finding]:
    for namespace, number in images.omitted.items():
        reason = f"{number} uses of images are not checked: the namespace, or the cluster, has too many images"
        yield finding("image-not-checked", reason, ObjectKey(IMAGE, "(others)", namespace))


class _Problem(NamedTuple):
    """What is wrong with an image; with the code of a registry, it is not known."""

    code: str
    reason: str = ""


_LATER = _Problem("")  # something must be read first
_LIMITED, _UNREACHABLE, _NOT_CHECKED = "image-rate-limited", "image-unreachable", "image-not-checked"
_OF_REGISTRY = (_LIMITED, _UNREACHABLE)
# If the pods of an image have several logins, the first of these is reported.
_ORDER = ("", "image-missing", "image-no-access", *_OF_REGISTRY, _NOT_CHECKED)


class _Run:
    """The checks of one run. `checked` is the number of images whose state is known."""

    def __init__(self, mirrors: Iterable[Mirror], observed: Observed, settings: Settings, now: datetime) -> None:
        found = observed.images or Images()
        self.observed, self.uses, self.turn = observed, found.uses, turn_of(now)
        parsed = ((text, parse_image(text)) for text in self.uses)
        self.images = {text: image for text, image in parsed if image and not is_of_node(image.host)}
        self.chosen = choose(self.images, self.uses, settings.images, self.turn)
        self.mirrors = {each.spec.host: registry_url(each, observed, settings) for each in mirrors}
        self.needed: dict[ManifestRequest | Dependency, None] = {}
        answers = [(key.partition("/v2/")[0], download) for key, download in observed.downloads.items()]
        self.limited = {server for server, each in answers if each.status == HTTPStatus.TOO_MANY_REQUESTS}
        self.failures = {
            server: each.error for server, each in answers if not each.status and each.error not in _NOT_TRIED
        }
        # These get no requests in later plans either.
        self.stopped = {
            *self.limited,
            *self.failures,
            *(server for server, each in answers if each.error == NOT_REQUESTED),
        }
        self.documents: set[ObjectKey] = set()
        self.unread: dict[ObjectKey, ApiError] = {}
        self.checked = 0

    def parts(self) -> Iterator[Part]:
        """Yield the findings, and the requests and objects that they need."""
        of_registries: dict[tuple[str, str], list[str]] = {}
        numbers = Counter(self.images[text].host for text in self.chosen)
        for text in self.chosen:
            image, use = self.images[text], self.uses[text]
            problem = self._problem(image, use)
            if problem is None or problem.code not in ("", *_OF_REGISTRY, _NOT_CHECKED):
                self.checked += 1
            if problem and problem.code in _OF_REGISTRY:
                of_registries.setdefault((image.host, problem.code), []).append(problem.reason)
            elif problem and problem.code:
                has_users = problem.code in (_NOT_CHECKED, "image-moved")
                reason = problem.reason if has_users else f"{problem.reason}; used by {use.users}"
                yield finding(problem.code, reason, ObjectKey(IMAGE, text))
        for (host, code), reasons in of_registries.items():
            yield from _of_registry(host, code, reasons, numbers[host])
        yield from (unreadable(key, error, ()) for key, error in self.unread.items())
        yield from self.needed

    def _problem(self, image: Image, use: Use) -> _Problem | None:
        """Return the problem of an image, None without one."""
        server = f"https://{served_by(image.host)}"
        answer = self._ask(server, image)
        if answer is None:
            return _LATER
        if answer.status == HTTPStatus.OK:
            return self._moved(server, image, use, answer)
        problem = self._as_problem(server, answer)
        is_missing = answer.status == HTTPStatus.NOT_FOUND
        mirror = self.mirrors.get(image.host, "")
        if mirror and problem.code != _LIMITED:
            cached = self._ask(mirror, image)
            if cached is None:
                return _LATER
            if cached.status == HTTPStatus.OK and not is_missing:
                return self._moved(mirror, image, use, cached)
            if cached.status == HTTPStatus.OK:
                why = f"only the cache of mirror {mirror} has it: its registry does not"
                problem = _Problem("image-only-cached", why)
        if is_missing:  # some registries also answer 404 if a login is required
            return self._with_logins(server, image, use, problem)
        return self._with_logins(server, image, use) if answer.status in REFUSED else problem

    def _as_problem(self, server: str, answer: Download) -> _Problem:
        if answer.status == HTTPStatus.NOT_FOUND:
            return _Problem("image-missing", "its registry does not have it")
        if answer.status == HTTPStatus.TOO_MANY_REQUESTS or (server in self.limited and not answer.status):
            return _Problem(_LIMITED)
        first = self.failures.get(server, NOT_REQUESTED) if answer.error == NOT_REQUESTED else answer.error
        return _Problem(_UNREACHABLE, first)

    def _ask(self, server: str, image: Image, logins: tuple[Login, ...] = (), of: str = "") -> Download | None:
        """Return what a registry answered; None if it was not asked yet. `of` names the owner of the logins."""
        key = f"{server}/v2/{image.repository}/manifests/{image.reference}{of}"
        if key not in self.observed.downloads:
            if server in self.stopped:
                return Download(error=NOT_REQUESTED)
            self.needed[ManifestRequest(key, server, image.repository, image.reference, logins)] = None
        return self.observed.downloads.get(key)

    # the tag

    def _moved(
        self, server: str, image: Image, use: Use, answer: Download, logins: tuple[Login, ...] = (), of: str = ""
    ) -> _Problem | None:
        """Return the problem if a tag is of another image than pods run, None if that cannot be compared.

        Some container runtimes report the manifest of the platform and not the index, which the tag is of.
        """
        old = sorted(each for each in use.running if each != answer.digest)[:_MOST_RUNNING]
        if image.is_digest or not answer.digest or not old:
            return None
        moved, gone = old, False
        if answer.media_type in INDEX_TYPES:
            answers = [self._ask(server, image._replace(reference=each), logins, of) for each in old]
            if None in answers:
                return _LATER
            found = {digest: each for digest, each in zip(old, answers, strict=True) if each}
            gone = any(each.status == HTTPStatus.NOT_FOUND for each in found.values())
            moved = [
                digest
                for digest, each in found.items()
                if each.status == HTTPStatus.NOT_FOUND or each.media_type in INDEX_TYPES
            ]
        if not moved:
            return None
        count = sum(use.running[each][0] for each in moved)
        pod = use.running[moved[0]][1]
        others = f" and {count - 1} more" if count > 1 else ""
        no_longer = ", which the registry no longer has" if gone else ""
        run = "run" if count > 1 else "runs"
        why = f"its tag is of {answer.digest} now; {pod}{others} {run} {listed(moved)}{no_longer}"
        return _Problem("image-moved", why)

    # logins

    def _with_logins(self, server: str, image: Image, use: Use, missing: _Problem | None = None) -> _Problem | None:
        """Return the problem of an image with the logins of the pods; `missing`, if given, if none has access."""
        pulls = sorted(use.pulls)
        first = self.turn % len(pulls) if pulls else 0
        chosen = [*pulls[first:], *pulls[:first]][:_MOST_PULLS]
        problems = [self._with_login(server, image, use, each) for each in chosen] or [_no_login(image)]
        if missing:
            no_access = ("image-missing", "image-no-access", _NOT_CHECKED)
            problems = [missing if each and each.code in no_access else each for each in problems]
        found = [each for each in problems if each]
        if len(found) < len(problems) or "image-moved" in (each.code for each in found):  # one of them has access
            found = [each for each in found if each.code in ("", "image-no-access", "image-moved")]
        rank = {code: number for number, code in enumerate(_ORDER)}
        return min(found, key=lambda each: rank.get(each.code, len(rank)), default=None)

    def _with_login(self, server: str, image: Image, use: Use, pull: Pull) -> _Problem | None:
        names = self._secrets(pull)
        if isinstance(names, _Problem):
            return names
        logins: list[Login] = []
        unread: _Problem | None = None
        for key in (ObjectKey(SECRETS.kind, name, pull.namespace) for name in names):
            document = self._document(key)
            if isinstance(document, PullSecret):
                logins += matching(document.entries, image)
            elif isinstance(document, _Problem):
                unread = unread if unread is _LATER else document
        if unread is _LATER or (unread and not logins):
            return unread
        if not logins:
            return _no_login(image, names, pull)
        of = f" {pull.namespace}/{','.join(names)}"
        answer = self._ask(server, image, tuple(logins[:_MOST_LOGINS]), of)
        if answer is None:
            return _LATER
        if answer.status == HTTPStatus.OK:
            return self._moved(server, image, use, answer, tuple(logins[:_MOST_LOGINS]), of)
        if answer.status in REFUSED:
            where = f"{_named(names)} in namespace {pull.namespace}"
            return _Problem("image-no-access", f"{image.host} refuses access with the login of {where}")
        return self._as_problem(server, answer)

    def _secrets(self, pull: Pull) -> tuple[str, ...] | _Problem:
        """Return the names of the Secrets with which pods pull."""
        if not pull.account:
            return pull.secrets
        document = self._document(pull.account_key)
        if isinstance(document, _Problem):
            return document
        return document.secrets if isinstance(document, Account) else ()

    def _document(self, key: ObjectKey) -> object:
        """Return a document; None if it does not exist, a problem if it is not read."""
        self.documents.add(key)
        if key not in self.observed.documents:
            if len(self.documents) > MOST_SECRETS:
                return _Problem(_NOT_CHECKED, "requires a login; the run reads no more pull secrets")
            self.needed[Dependency(key)] = None
            return _LATER
        document = self.observed.documents[key]
        if not isinstance(document, ApiError):
            return document
        if document.status == HTTPStatus.NOT_FOUND:
            return None
        # Content that is not valid is of a tenant, and the permission is of a component; other failures fail the run.
        if not isinstance(document, InvalidObjectError) and document.status != HTTPStatus.FORBIDDEN:
            self.unread[key] = document
        component = "; component images/secrets grants the permission" if document.is_permission else ""
        return _Problem(_NOT_CHECKED, f"requires a login, and {key} cannot be read: {document.message}{component}")


def _no_login(image: Image, names: tuple[str, ...] = (), pull: Pull | None = None) -> _Problem:
    if _OF_CLOUD.fullmatch(image.host.partition(":")[0]):
        return _Problem(_NOT_CHECKED, f"{image.host} requires a login; nodes may have one of their own")
    without = ""
    if pull:
        without = f"; {pull.account_key} names no pull secret"
        if names:
            without = f"; {_named(names)} in namespace {pull.namespace} has none for it"
    return _Problem("image-no-access", f"{image.host} refuses access without a login, or does not have it{without}")


def _named(names: Sequence[str]) -> str:
    return listed([f"secret/{each}" for each in names])


def _of_registry(host: str, code: str, reasons: Sequence[str], chosen: int) -> Iterator[Finding]:
    """Yield the finding about a registry of which images were not checked."""
    about = ObjectKey(REGISTRY, host)
    number = f"{len(reasons)} of {chosen} images were not checked in this run"
    if code == _LIMITED:
        yield finding(code, f"answers 429 Too Many Requests; {number}", about)
        return
    why = next((each for each in reasons if each not in _NOT_TRIED), "")
    if why:
        yield finding(code, f"{why}; {number}", about)
    else:
        yield finding(_NOT_CHECKED, f"{reasons[0]}; {number}", about)
