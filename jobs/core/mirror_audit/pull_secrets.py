"""The logins in pull secrets, matched with images as kubelet does. Pure.

https://kubernetes.io/docs/concepts/containers/images/#config-json
https://github.com/kubernetes/kubernetes/blob/master/pkg/credentialprovider/keyring.go
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple
from urllib.parse import urlsplit

from msgspec import Struct

from jobs.core.mirror_audit.image_uses import Image
from jobs.core.mirror_audit.registry_mirrors import DOCKER_HUB
from jobs.kit.values.errors import InvalidObjectError
from jobs.kit.values.model import Login
from jobs.kit.values.reads import decode

TYPES: Mapping[str, str] = {
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
    "kubernetes.io/dockercfg": ".dockercfg",
}  # with the key of the data
_MOST_ENTRIES = 64  # of one Secret
_MOST_CHARACTERS = 32 << 10  # of the logins of one Secret
_HUB_ENTRY = "index.docker.io"


class Entry(NamedTuple):
    """A login, and the registries that it is for: a host, which may have `*`, its port and the begin of a path."""

    host: str
    path: str
    login: Login


class _Auth(Struct):
    username: str = ""
    password: str = ""
    auth: str = ""

    def __repr__(self) -> str:
        return "_Auth()"


class _Config(Struct):
    auths: dict[str, _Auth] | None = None

    def __repr__(self) -> str:
        return "_Config()"


def entries(secret_type: str, data: Mapping[str, str | None]) -> tuple[Entry, ...]:
    """Return the logins of a Secret: none if it is not a valid pull secret, and only the first of too many."""
    try:
        text = base64.b64decode(data.get(TYPES.get(secret_type, "")) or "", validate=True)
        if secret_type == "kubernetes.io/dockercfg":  # noqa: S105 - a type
            auths = decode(text, dict[str, _Auth])
        else:
            auths = decode(text, _Config).auths or {}
    except (InvalidObjectError, ValueError):
        return ()
    found: list[Entry] = []
    characters = 0
    for place, auth in auths.items():
        entry = _entry(place, auth)
        characters += len(place) + len(entry.login.username) + len(entry.login.password) if entry else 0
        if len(found) == _MOST_ENTRIES or characters > _MOST_CHARACTERS:
            break
        if entry:
            found.append(entry)
    return tuple(found)


def _entry(place: str, auth: _Auth) -> Entry | None:
    username, password = auth.username, auth.password
    if auth.auth:
        try:
            text = base64.b64decode(f"{auth.auth.rstrip('=')}==").decode()
        except ValueError:
            return None
        username, _, password = text.partition(":")
    try:
        parts = urlsplit(place if place.startswith(("https://", "http://")) else f"https://{place}")
    except ValueError:
        return None
    path = parts.path[3:] if parts.path.startswith(("/v1/", "/v2/")) else parts.path
    if not parts.netloc or not password:
        return None
    return Entry(parts.netloc, "" if path == "/" else path, Login(username, password))


def matching(found: Iterable[Entry], image: Image) -> Iterator[Login]:
    """Yield the logins for an image, those with the longest path first."""
    entries_of = [each for each in found if _matches(each, image)]
    if not entries_of and image.host == DOCKER_HUB:
        entries_of = [each for each in found if each.host == _HUB_ENTRY]
    yield from (each.login for each in sorted(entries_of, key=lambda each: len(each.path), reverse=True))


def _matches(entry: Entry, image: Image) -> bool:
    name, _, port = entry.host.partition(":")
    host, _, its_port = image.host.partition(":")
    parts, its_parts = name.split("."), host.split(".")
    return (
        port == its_port
        and len(parts) == len(its_parts)
        and f"/{image.repository}".startswith(entry.path)
        and all(map(_is_like, its_parts, parts))
    )


def _is_like(part: str, pattern: str) -> bool:
    """Return whether a part of a host is like a pattern. A long pattern is refused: matching could take long."""
    return part == pattern or (len(pattern) <= 63 and pattern.count("*") <= 3 and fnmatchcase(part, pattern))
