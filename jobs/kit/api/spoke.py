"""Read the kubeconfig in a Secret of an inventory of clusters: one server, its authority, and a token or certificate.

Whoever writes such a Secret is not the operator. So it names no file, plugin, proxy or user to impersonate, and this
module shares nothing with the one that reads people's kubeconfigs.

https://cluster-api.sigs.k8s.io/developer/core/controllers/cluster#secrets
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jobs.kit.api.endpoint import Certificate, Endpoint, bearer, read_limited
from jobs.kit.files import load
from jobs.kit.values.errors import ConfigurationError
from jobs.kit.values.text import listed

_LONGEST = 64 << 10
_AUTHORITY, _CERTIFICATE, _KEY = "certificate-authority-data", "client-certificate-data", "client-key-data"
_PEM = b"-----BEGIN CERTIFICATE-----"
# The fields of each part; preferences and extensions have no effect on a connection.
_FIELDS: Mapping[str, frozenset[str]] = {
    "": frozenset(
        {"apiVersion", "kind", "clusters", "users", "contexts", "current-context", "preferences", "extensions"}
    ),
    "cluster": frozenset({"server", _AUTHORITY, "extensions"}),
    "user": frozenset({"token", _CERTIFICATE, _KEY, "extensions"}),
    "context": frozenset({"cluster", "user", "namespace", "extensions"}),
}
# Other fields of kubeconfigs; names of unknown ones are not shown: a value may be in the wrong place.
_REFUSED = frozenset(
    {
        "as",
        "as-groups",
        "as-uid",
        "as-user-extra",
        "auth-provider",
        "certificate-authority",
        "client-certificate",
        "client-key",
        "disable-compression",
        "exec",
        "insecure-skip-tls-verify",
        "password",
        "proxy-url",
        "tls-server-name",
        "tokenFile",
        "username",
    }
)


def endpoint(content: bytes) -> Endpoint:
    """Return the endpoint of a kubeconfig.

    Raises:
        ConfigurationError: it has anything else than one server with its authority and its credentials; lists all
            problems, and no value.
    """
    return endpoint_of(document(content))


def document(content: bytes) -> dict[str, Any]:
    """Return the fields of a kubeconfig.

    Raises:
        ConfigurationError: it is too long, or not one document with fields.
    """
    if len(content) > _LONGEST:
        raise ConfigurationError(f"the kubeconfig has more than {_LONGEST >> 10} KiB")
    try:
        documents, problems = load(content.decode())
    except UnicodeDecodeError:
        documents, problems = [], ["is not text"]
    if not problems and (len(documents) != 1 or not isinstance(documents[0], dict)):
        problems = ["is not one YAML document with fields"]
    if problems:
        raise ConfigurationError(f"the kubeconfig {problems[0]}")
    found: dict[str, Any] = documents[0]
    return found


def from_file(path: Path) -> Endpoint:
    """Return the endpoint of a kubeconfig that a Secret is mounted as.

    Raises: as `endpoint`; also if the file cannot be read.
    """
    try:
        return endpoint(read_limited(path))
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error


def endpoint_of(config: Mapping[str, Any]) -> Endpoint:
    """Return the endpoint of the content of a kubeconfig.

    Raises: as `endpoint`.
    """
    parts = {part: _only(config, part) for part in ("cluster", "user", "context")}
    if problems := list(_problems(config, parts)):
        raise ConfigurationError(f"the kubeconfig is not valid: {'; '.join(problems)}")
    cluster, user = parts["cluster"], parts["user"]
    token, certificate = user.get("token", ""), None
    if not token:
        certificate = Certificate(_decoded(user, _CERTIFICATE), _decoded(user, _KEY))
    authorization = bearer(token, "the token in the kubeconfig") if token else ""
    server = str(cluster["server"]).rstrip("/")
    authority = _decoded(cluster, _AUTHORITY)
    return Endpoint(server, lambda: authorization, ca_data=authority, certificate=lambda: certificate)


def _only(config: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    """Return the fields of the only cluster, user or context; none if there is not exactly one."""
    entries = config.get(f"{part}s")
    entry = entries[0] if isinstance(entries, list) and len(entries) == 1 else None
    fields = entry.get(part) if isinstance(entry, dict) else None
    return fields if isinstance(fields, dict) else {}


def _problems(config: Mapping[str, Any], parts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for part, fields in {"": config, **parts}.items():
        if unknown := set(map(str, fields)) - _FIELDS[part]:
            named = [*sorted(unknown & _REFUSED), *(["the unknown fields"] if unknown - _REFUSED else [])]
            yield f"{part or 'it'}: remove {listed(named, len(named))}"
        if part and not fields:
            yield f"{part}s: must have exactly one entry with {part}"
    yield from _problems_of_connection(parts["cluster"], parts["user"])
    if config.get("current-context") not in (None, "", *(_names(config, "context"))):
        yield "current-context: must be the name of the context"
    for part in ("cluster", "user"):
        if parts["context"] and parts["context"].get(part) not in _names(config, part):
            yield f"context.{part}: must be the name of the {part}"


def _problems_of_connection(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> Iterator[str]:
    if cluster and not _is_https(cluster.get("server")):
        yield "cluster.server: must be an https URL without a login, query or fragment"
    if cluster and not (_is_base64(cluster.get(_AUTHORITY)) and _PEM in _decoded(cluster, _AUTHORITY)):
        yield f"cluster.{_AUTHORITY}: must have the authority of the server as PEM in base64"
    has_certificate = _is_base64(user.get(_CERTIFICATE)) and _is_base64(user.get(_KEY))
    has_token = isinstance(user.get("token"), str) and bool(user["token"])
    if user and has_token == has_certificate:
        yield f"user: must have either token, or {_CERTIFICATE} and {_KEY} in base64"


def _names(config: Mapping[str, Any], part: str) -> list[Any]:
    entries = config.get(f"{part}s")
    return [each.get("name") for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []


def _is_https(server: object) -> bool:
    if not isinstance(server, str) or not server.isascii() or not server.isprintable() or " " in server:
        return False
    try:
        parts = urlsplit(server)
        is_host = bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
    except ValueError:
        return False
    return parts.scheme == "https" and is_host and not set("?#\\") & set(server)


def _is_base64(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(base64.b64decode(value, validate=True))
    except ValueError:
        return False


def _decoded(fields: Mapping[str, Any], name: str) -> bytes:
    return base64.b64decode(fields[name])
