"""Ask registries whether they have the manifests of images. Tenants choose the images, and so the registries.

One registry after another request, several registries at a time. A registry that fails or limits requests gets no
further ones. Logins go only to their registry, and to the token server that it names, over https.

https://github.com/opencontainers/distribution-spec/blob/main/spec.md#checking-if-content-exists-in-the-registry
https://distribution.github.io/distribution/spec/auth/token/
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from http import HTTPStatus
from time import monotonic
from urllib.parse import quote, urlencode, urljoin, urlsplit

from msgspec import Struct

from jobs.kit.values.errors import InvalidObjectError
from jobs.kit.values.model import INDEX_TYPES, Login, ManifestRequest
from jobs.kit.values.reads import NO_DNS, NOT_FETCHED, NOT_IN_TIME, NOT_REQUESTED, REFUSED, Download, decode
from jobs.kit.web import Answer, Client, Task, completed

MOST_REDIRECTS = 5
_ACCEPT = ", ".join(
    (
        *INDEX_TYPES,
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_MANIFEST_TYPES = ("application/vnd.oci.image.", "application/vnd.docker.distribution.manifest.")
_DIGEST = re.compile(r"[a-z0-9]+:[a-f0-9]{32,128}")
_BEARER = re.compile(r"(?<![^ ,])bearer +", re.IGNORECASE)
_TOKEN = re.compile(r"[\x21-\x7e]+")
_TOKEN_BYTES = 16 << 10  # a token; the answer may have two of them
_LONGEST_CHALLENGE = 2048
_FAILURES = 3  # answers that are neither yes nor no, before a registry gets no further requests
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CONCLUSIVE = REFUSED | {HTTPStatus.OK, HTTPStatus.NOT_FOUND}


def request_all(
    manifests: Sequence[ManifestRequest], user_agent: str, stopping: Callable[[], bool], end: float
) -> dict[str, Download]:
    """Return the Download of each request by its key: without a body, with the digest of the manifest.

    Registries are asked in the order of their first request. What is not requested before `end` (of time.monotonic) has
    the error NOT_IN_TIME; after a failure or a 429 of a registry, its other requests have the error NOT_REQUESTED.
    """
    by_server: dict[str, list[ManifestRequest]] = {}
    for each in manifests:
        by_server.setdefault(each.server, []).append(each)
    found: dict[str, Download] = {}

    def tasks() -> Iterator[Task]:
        for server, requests in by_server.items():
            if (seconds := end - monotonic()) > 0:
                yield Task(server, seconds, partial(_ask, requests, user_agent, stopping, found))

    for task, failed in completed(tasks(), stopping):
        if failed.error == NO_DNS:
            _add_failure(by_server[task.url], failed, found)
    unknown = Download(error=NOT_FETCHED if stopping() else NOT_IN_TIME)
    return {each.key: found.get(each.key, unknown) for each in manifests}


def _ask(
    requests: Sequence[ManifestRequest],
    user_agent: str,
    stopping: Callable[[], bool],
    found: dict[str, Download],
    task: Task,
) -> Download:
    """Send the requests to one registry; add each result to `found` at once, since the time may end."""
    failures = 0
    with closing(Client(user_agent, task)) as client:
        registry = _Registry(client, task.url)
        for each in requests:
            if stopping() or monotonic() >= task.deadline:
                return Download(error=NOT_IN_TIME)
            result = found[each.key] = registry.manifest(each)
            failures = 0 if result.status in _CONCLUSIVE else failures + 1
            if failures == _FAILURES or not result.status or result.status == HTTPStatus.TOO_MANY_REQUESTS:
                break
    _add_failure(requests, Download(error=NOT_REQUESTED), found)
    return Download()


def _add_failure(requests: Sequence[ManifestRequest], failed: Download, found: dict[str, Download]) -> None:
    """Add a result for each request that has none yet."""
    for each in requests:
        found.setdefault(each.key, failed)


class _TokenAnswer(Struct):
    token: str = ""
    access_token: str = ""

    def __repr__(self) -> str:
        return "_TokenAnswer()"


class _Registry:
    """One registry, with the tokens that were used last. `server` is its URL."""

    def __init__(self, client: Client, server: str) -> None:
        self.client, self.server = client, server
        self.authorization: dict[tuple[str, Login | None], str] = {}  # by repository and login

    def manifest(self, request: ManifestRequest) -> Download:
        """Return whether the manifest exists, after each of the logins if the registry requires one."""
        result = Download()
        for login in request.logins or (None,):
            result = self._manifest(request, login)
            if result.status not in REFUSED:
                break
        return result

    def _manifest(self, request: ManifestRequest, login: Login | None) -> Download:
        url = f"{self.server}/v2/{quote(request.repository)}/manifests/{quote(request.reference, safe=':')}"
        known = self.authorization.get((request.repository, login), "")
        answer, at = self._head(url, known)
        challenge = answer.headers.get("WWW-Authenticate", "")
        if answer.status != HTTPStatus.UNAUTHORIZED or not challenge or known or not _is_same_host(url, at):
            return _result(answer)
        authorization = self._authorize(challenge, request.repository, login)
        if isinstance(authorization, Download):
            return authorization
        if not authorization:
            return _result(answer)
        self.authorization[request.repository, login] = authorization
        return _result(self._head(url, authorization)[0])

    def _head(self, url: str, authorization: str) -> tuple[Answer, str]:
        """Send a HEAD, and follow its redirects: over https only, and without the authorization to another host.

        Return the answer, and the URL that it is from.
        """
        for _ in range(MOST_REDIRECTS + 1):
            headers = {"Accept": _ACCEPT, **({"Authorization": authorization} if authorization else {})}
            answer = self.client.send("HEAD", url, headers)
            if answer.status not in _REDIRECTS:
                return answer, url
            try:
                to = urljoin(url, answer.headers.get("Location", ""))
                after = urlsplit(to)
            except ValueError:
                return Answer(error="redirected to a URL that is not valid"), url
            if after.scheme != "https" or after.username is not None or not after.hostname:
                return Answer(error="redirected to a URL that is not https"), url
            if not _is_same_host(url, to):
                authorization = ""
            url = to
        return Answer(error=f"more than {MOST_REDIRECTS} redirects"), url

    def _authorize(self, challenge: str, repository: str, login: Login | None) -> str | Download:
        """Return the header Authorization for a challenge; empty without one, or the failure of the token server."""
        challenge = challenge[:_LONGEST_CHALLENGE]
        bearer = _BEARER.search(challenge)
        if not bearer:
            is_basic = challenge.lower().startswith("basic ") and self.server.startswith("https:")
            return _basic(login) if login and is_basic else ""
        url = _token_url(_fields(challenge[bearer.end() :]), repository)
        if not url:
            return Download(error="it names a token server that is not an https URL")
        headers = {"Authorization": _basic(login)} if login else {}
        return _token(self.client.send("GET", url, headers, 3 * _TOKEN_BYTES))


def _is_same_host(one: str, other: str) -> bool:
    before, after = urlsplit(one), urlsplit(other)
    return (before.scheme, before.netloc) == (after.scheme, after.netloc)


def _fields(challenge: str) -> Mapping[str, str]:
    """Return the fields of a challenge, whose values may be in quotes."""
    from urllib.request import parse_http_list  # only for registries with tokens: it imports much

    fields = (each.partition("=") for each in parse_http_list(challenge))
    return {name.strip().lower(): value.strip().strip('"') for name, _, value in fields}


def _token_url(fields: Mapping[str, str], repository: str) -> str:
    """Return the URL of the token of a challenge, empty if its realm is not an https URL."""
    realm = fields.get("realm", "")
    try:
        parts = urlsplit(realm)
        is_valid = parts.scheme == "https" and bool(parts.hostname) and parts.username is None and parts.port != 0
    except ValueError:
        return ""
    if not is_valid:
        return ""
    service, scope = fields.get("service"), fields.get("scope") or f"repository:{repository}:pull"
    query = urlencode([*([("service", service)] if service else []), ("scope", scope)])
    return parts._replace(query=f"{parts.query}&{query}".lstrip("&"), fragment="").geturl()


def _token(answer: Answer) -> str | Download:
    """Return the header Authorization with the token of an answer, or the failure."""
    if answer.error:
        return Download(error=f"its token server: {answer.error}")
    if answer.status in REFUSED:
        return Download(error="its token server refuses a token", status=HTTPStatus.UNAUTHORIZED)
    if answer.status != HTTPStatus.OK:
        # Of this server, a 404 does not mean that the image is missing.
        is_limited = answer.status == HTTPStatus.TOO_MANY_REQUESTS
        status = HTTPStatus.TOO_MANY_REQUESTS if is_limited else HTTPStatus.BAD_GATEWAY
        return Download(error=f"its token server: HTTP {answer.status}", status=status)
    try:
        decoded = decode(answer.body, _TokenAnswer)
    except InvalidObjectError:
        return Download(error="its token server: the answer is not a token")
    token = decoded.token or decoded.access_token
    if not _TOKEN.fullmatch(token) or len(token) > _TOKEN_BYTES:
        return Download(error="its token server: the answer is not a token")
    return f"Bearer {token}"


def _basic(login: Login) -> str:
    text = f"{login.username}:{login.password}".encode("utf-8", "replace")
    return f"Basic {base64.b64encode(text).decode('ascii')}"


def _result(answer: Answer) -> Download:
    if answer.error:
        return Download(error=answer.error)
    if answer.status != HTTPStatus.OK:
        return Download(error=f"HTTP {answer.status}", status=answer.status)
    digest, media_type = (answer.headers.get(name, "") for name in ("Docker-Content-Digest", "Content-Type"))
    media_type = media_type.partition(";")[0].strip().lower()
    if not (digest or media_type.startswith(_MANIFEST_TYPES)):
        return Download(error="the answer is not that of a registry")
    return Download(status=HTTPStatus.OK, digest=digest if _DIGEST.fullmatch(digest) else "", media_type=media_type)
