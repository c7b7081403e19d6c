"""Find the API server and the credentials: in a kubeconfig with contexts and plugins, or a pod's service account.

Modules that only a kubeconfig needs are imported where they are used. In a pod, a run may start every minute, and
three files have all it needs.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit

from jobs.kit.files.limited_files import read_limited
from jobs.kit.values.errors import ConfigurationError

if TYPE_CHECKING:
    from jobs.kit.api.kubeconfig import Chosen, Cluster, User

# To read a token costs more than the request itself; the old token stays valid for minutes after its replacement.
_FRESH_SECONDS = 5.0
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Characters that would end the line of a header, and surrogates, which have no UTF-8.
_INVALID_IN_HEADER = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_VALID_IN_KEY = "!#$&'*+-.^_`|~"  # in the name of a header, in addition to letters, digits and the escape itself
_PROXIES = ("http", "https", "socks5")


class Certificate(NamedTuple):
    """A client certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


def _no_certificate() -> Certificate | None:
    return None


@dataclass(frozen=True)
class Endpoint:
    """An API server and how to connect to it.

    `authorization` returns the value of the header, `certificate` the client certificate; both are called for each
    request.
    """

    server: str
    authorization: Callable[[], str]
    ca_file: str | None = None
    ca_data: bytes = b""
    verify: bool = True
    certificate: Callable[[], Certificate | None] = _no_certificate
    connect_to: str | None = None
    proxy: str | None = None
    no_proxy: str | None = None
    impersonation: Sequence[str] = ()  # lines of headers


@dataclass(frozen=True)
class Connection:
    """An endpoint, its default namespace, and its origin (`in_pod`, or a kubeconfig's `context`).

    `as_user` is the user that requests impersonate, if any. `pod_namespace` is the namespace of the pod, also if
    --namespace sets another `namespace`.
    """

    endpoint: Endpoint
    namespace: str
    context: str = ""
    in_pod: bool = False
    as_user: str = ""
    pod_namespace: str = ""


@dataclass(frozen=True)
class Impersonation:
    """The user that requests impersonate; the API server checks that the credentials have the right to do so."""

    user: str = ""
    groups: Sequence[str] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def headers(self) -> list[str]:
        """Return the lines of the headers, as client-go sends them.

        Raises:
            ConfigurationError: another field is set without a user, or a value is not valid in a header.
        """
        if not self.user:
            if self.groups or self.uid or self.extra:
                raise ConfigurationError(
                    "requesting uid, groups or user-extra without impersonating a user; set --as, or `as` in the"
                    " kubeconfig"
                )
            return []
        extra = ((f"Extra-{quote(key, safe=_VALID_IN_KEY)}", value) for key, all in self.extra.items() for value in all)
        groups = (("Group", group) for group in self.groups)
        uid = [("Uid", self.uid)] if self.uid else []
        return [_impersonate(*each) for each in (("User", self.user), *uid, *groups, *extra)]


def _impersonate(name: str, value: str) -> str:
    line = f"Impersonate-{name}"
    # libcurl omits a header without a value, unless its line ends with a semicolon.
    return f"{line}: {header_value(value, f'the impersonated user: {line}')}" if value else f"{line};"


def connect(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    as_user: str | None = None,
    as_groups: Sequence[str] = (),
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection:
    """Find the cluster as kubectl does: `kubeconfig`, else $KUBECONFIG or ~/.kube/config, else the pod's.

    `as_user` and `as_groups`, if set, replace the user and groups that the kubeconfig impersonates.

    Raises:
        ConfigurationError: no cluster is configured, or its configuration is not valid.
    """
    home = Path(environ.get("HOME") or "/") / ".kube" / "config"
    named = kubeconfig or environ.get("KUBECONFIG")
    if named or context or home.is_file():
        return _from_kubeconfig(named or str(home), context, as_user, as_groups, environ)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return _from_pod(environ, service_account, Impersonation(as_user or "", as_groups))
    raise ConfigurationError("no cluster: not in a pod, and no kubeconfig found; use --kubeconfig or set KUBECONFIG")


def _from_kubeconfig(
    paths: str, name: str | None, as_user: str | None, as_groups: Sequence[str], environ: Mapping[str, str]
) -> Connection:
    from jobs.kit.api.kubeconfig import choose

    chosen = choose(paths, name)
    user = chosen.user
    acting = Impersonation(as_user or user.as_user, as_groups or user.as_groups, user.as_uid, user.as_user_extra)
    impersonation = acting.headers()
    server = _validate_server(chosen)
    proxy, no_proxy = _find_proxy(chosen, server, environ)
    if _has_secret(chosen.user) and not _is_private(server, proxy):
        raise chosen.problem(
            f"cluster {chosen.context.cluster!r}: server {server}: a token or password is not sent over http;"
            " use https, or remove it from the user"
        )
    authority = _read_authority(chosen)
    host, connect_to = _with_tls_server_name(chosen, server)
    authorization, certificate = _find_credentials(chosen, server, proxy, environ)
    endpoint = Endpoint(
        host,
        authorization,
        ca_file=chosen.cluster.certificate_authority or None,
        ca_data=authority,
        verify=not chosen.cluster.insecure_skip_tls_verify,
        certificate=certificate,
        connect_to=connect_to,
        proxy=proxy,
        no_proxy=no_proxy,
        impersonation=impersonation,
    )
    return Connection(endpoint, chosen.context.namespace or "default", chosen.name, as_user=acting.user)


def _validate_server(chosen: Chosen) -> str:
    """Return the URL of the API server without query and fragment, which are not sent to it."""
    server, where = chosen.cluster.server, f"cluster {chosen.context.cluster!r}: server"
    if not server:
        raise chosen.problem(f"{where} is not set")
    if "@" in server:
        raise chosen.problem(f"{where} contains a user name or password; move it to the user")
    parts = _split_url(server)
    if parts is None or parts[0] not in ("http", "https"):
        raise chosen.problem(f"{where} {server!r} is not an https URL; write https://HOST:PORT")
    return urlunsplit(urlsplit(server)._replace(query="", fragment="")).rstrip("/")


def _split_url(url: str) -> tuple[str, str] | None:
    """Return scheme and host of a URL, or None if it has no host or is not valid."""
    try:
        parts = urlsplit(url)
        is_valid = parts.hostname and parts.port != 0 and not re.search(r"\s", url) and url.isprintable()
    except ValueError:
        return None
    return (parts.scheme, parts.hostname or "") if is_valid else None


def _find_proxy(chosen: Chosen, server: str, environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the URL of the proxy and its NO_PROXY list. A proxy-url of the kubeconfig applies to all hosts."""
    if chosen.cluster.proxy_url:
        where = f"cluster {chosen.context.cluster!r}: proxy-url"
        return _validate_proxy(chosen, chosen.cluster.proxy_url, where), None
    scheme, host = _split_url(server) or ("", "")
    name = f"{scheme}_proxy"
    url = environ.get(name.upper()) or environ.get(name)
    if not url or _is_loopback(host):
        return None, None
    url = url if "://" in url else f"http://{url}"
    return _validate_proxy(chosen, url, f"${name.upper()}"), environ.get("NO_PROXY") or environ.get("no_proxy")


def _validate_proxy(chosen: Chosen, url: str, where: str) -> str:
    parts = _split_url(url)
    if parts is None or parts[0] not in _PROXIES:  # not shown: any part of it may be a password
        raise chosen.problem(f"{where} is not the URL of a proxy; its scheme must be {', '.join(_PROXIES)}")
    # As in Go, the proxy resolves the server's name.
    return url.replace("socks5://", "socks5h://", 1) if parts[0] == "socks5" else url


def _has_secret(user: User) -> bool:
    return bool(user.token or user.token_file or user.username or user.password or user.exec)


def _is_private(server: str, proxy: str | None) -> bool:
    """Whether requests are encrypted up to the server, or do not leave the machine."""
    scheme, host = _split_url(server) or ("", "")
    return scheme == "https" or (_is_loopback(host) and not proxy)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read_authority(chosen: Chosen) -> bytes:
    """Return certificate-authority-data; check that it, or the file, is PEM."""
    cluster, where = chosen.cluster, f"cluster {chosen.context.cluster!r}: certificate-authority"
    if cluster.certificate_authority:
        _read_pem(chosen, where, cluster.certificate_authority, b"")
    elif cluster.certificate_authority_data:
        return _read_pem(chosen, where, "", cluster.certificate_authority_data)
    return b""


def _read_pem(chosen: Chosen, where: str, path: str, data: bytes) -> bytes:
    """Return the content of the file at `path`, or `data` if there is no path.

    Raises:
        ConfigurationError: the file cannot be read, or the content is not PEM.
    """
    try:
        content = read_limited(Path(path)) if path else data
    except OSError as error:
        raise chosen.problem(f"{where} cannot be read: {error}") from error
    if b"-----BEGIN " not in content:
        raise chosen.problem(f"{where if path else f'{where}-data'} is not PEM")
    return content


def _find_credentials(
    chosen: Chosen, server: str, proxy: str | None, environ: Mapping[str, str]
) -> tuple[Callable[[], str], Callable[[], Certificate | None]]:
    """Return the user's credentials. As in client-go, a credential plugin is used only if there are no others."""
    user = chosen.user
    certificate = _certificate(chosen)
    if user.exec and not (user.token or user.token_file or user.username or user.password or certificate):
        return _plugin_credentials(chosen, server, proxy, environ)
    authorization = _authorization(chosen)
    authorization()  # fails before the run starts if the token cannot be read
    return authorization, lambda: certificate


def _authorization(chosen: Chosen) -> Callable[[], str]:
    user, name = chosen.user, f"user {chosen.context.user!r}"
    if user.token_file:
        return _cached(lambda: _bearer(_read_token_file(chosen), f"{name}: tokenFile {user.token_file}"))
    if user.token:
        return lambda: _bearer(user.token, f"{name}: token")
    if user.username or user.password:
        basic = base64.b64encode(f"{user.username}:{user.password}".encode(errors="surrogateescape")).decode()
        return lambda: f"Basic {basic}"
    return lambda: ""


def _read_token_file(chosen: Chosen) -> str:
    """Return the token of the file, or `token` if the file is empty or cannot be read."""
    user = chosen.user
    try:
        token = read_limited(Path(user.token_file)).decode().strip() or user.token
    except (OSError, UnicodeDecodeError) as error:
        if user.token:
            return user.token
        raise chosen.problem(f"user {chosen.context.user!r}: tokenFile cannot be read: {error}") from error
    if not token:
        raise chosen.problem(f"user {chosen.context.user!r}: tokenFile {user.token_file} is empty")
    return token


def _bearer(token: str, where: str) -> str:
    return f"Bearer {header_value(token, where)}"


def header_value(value: str, where: str) -> str:
    """Return the value of a header, unchanged.

    Raises:
        ConfigurationError: it contains a control character or a surrogate. The message does not show the value.
    """
    if _INVALID_IN_HEADER.search(value):
        raise ConfigurationError(f"{where} contains a control character, such as a newline; remove it")
    return value


def _certificate(chosen: Chosen) -> Certificate | None:
    user, name = chosen.user, f"user {chosen.context.user!r}"
    if not (user.client_certificate or user.client_certificate_data):
        return None
    return Certificate(
        _read_pem(chosen, f"{name}: client-certificate", user.client_certificate, user.client_certificate_data),
        _read_pem(chosen, f"{name}: client-key", user.client_key, user.client_key_data),
    )


def _plugin_credentials(
    chosen: Chosen, server: str, proxy: str | None, environ: Mapping[str, str]
) -> tuple[Callable[[], str], Callable[[], Certificate | None]]:
    from jobs.kit.api.plugin import Plugin

    user = chosen.user
    assert user.exec
    cluster = _cluster_info(chosen.cluster, server, proxy) if user.exec.provide_cluster_info else None
    plugin = Plugin(chosen.context.user, user.exec, cluster, environ)

    def authorization() -> str:
        token = plugin.credential().token
        return _bearer(token, f"user {chosen.context.user!r}: the token of the credential plugin") if token else ""

    def certificate() -> Certificate | None:
        credential = plugin.latest or plugin.credential()  # from the same run of the plugin as the token
        if not credential.client_certificate_data or not credential.client_key_data:
            return None
        return Certificate(credential.client_certificate_data.encode(), credential.client_key_data.encode())

    authorization()  # fails before the run starts if the plugin fails
    return authorization, certificate


def _cluster_info(cluster: Cluster, server: str, proxy: str | None) -> dict[str, Any]:
    """Return the `cluster` of an ExecCredential.

    https://kubernetes.io/docs/reference/config-api/client-authentication.v1/#client-authentication-k8s-io-v1-Cluster
    """
    path = cluster.certificate_authority
    authority = read_limited(Path(path)) if path else cluster.certificate_authority_data
    config = (each.extension for each in cluster.extensions if each.name == "client.authentication.k8s.io/exec")
    info = {
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(authority).decode(),
        "proxy-url": cluster.proxy_url or proxy,
        "disable-compression": cluster.disable_compression,
        "config": next(config, None),
    }
    return {"server": server, **{name: value for name, value in info.items() if value}}


def _from_pod(environ: Mapping[str, str], service_account: Path, acting: Impersonation) -> Connection:
    """Return the connection to the cluster of this pod with the credentials of its ServiceAccount.

    https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/#directly-accessing-the-rest-api
    """
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    token, ca = service_account / "token", service_account / "ca.crt"
    _, _, namespace = (_read(each) for each in (token, ca, service_account / "namespace"))
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    # Read again during the run: the kubelet replaces the token before it expires.
    authorization = _cached(lambda: _bearer(_read(token), f"the pod's service account: {token}"))
    endpoint = Endpoint(server, authorization, ca_file=str(ca), impersonation=acting.headers())
    return Connection(endpoint, namespace, in_pod=True, as_user=acting.user, pod_namespace=namespace)


def _read(path: Path) -> str:
    try:
        text = read_limited(path).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the pod's service account cannot be used: {error}") from error
    if not text:
        raise ConfigurationError(f"the pod's service account cannot be used: {path} is empty")
    return text


def _cached(read: Callable[[], str]) -> Callable[[], str]:
    """Return a function that returns the result of `read`, and calls it again only after some seconds."""
    read_at, value = 0.0, ""

    def cached() -> str:
        nonlocal read_at, value
        now = time.monotonic()
        if not read_at or now - read_at > _FRESH_SECONDS:
            read_at, value = now, read()
        return value

    return cached


def _with_tls_server_name(chosen: Chosen, server: str) -> tuple[str, str | None]:
    """Return the URL with the tls-server-name as its host, and libcurl's CURLOPT_CONNECT_TO with the real host."""
    name, parts = chosen.cluster.tls_server_name, urlsplit(server)
    if not name or parts.scheme != "https":
        return server, None
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise chosen.problem(f"cluster {chosen.context.cluster!r}: tls-server-name {name!r} is not a host name")
    port = parts.port or 443
    named = urlunsplit(parts._replace(netloc=f"{name}:{port}"))
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return named, f"{name}:{port}:{host}:{port}"
