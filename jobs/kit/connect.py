"""Which API server to talk to, and as whom: kubeconfig with its contexts and plugins, or the service account of a pod.

What only a kubeconfig needs is imported where it is used: not in a pod, where a run begins every minute and three files
say all.
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

from jobs.kit.errors import ConfigurationError
from jobs.kit.limited_files import read_limited

if TYPE_CHECKING:
    from jobs.kit.kubeconfig import Chosen, Cluster, User

# Asking costs more than the request that it is for; a token outlives its replacement by minutes.
_FRESH_SECONDS = 5.0
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# What would end a header's line, and what has no UTF-8.
_NOT_IN_A_HEADER = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_IN_A_KEY = "!#$&'*+-.^_`|~"  # what the name of a header may have, apart from letters, digits and the escape itself
_PROXIES = ("http", "https", "socks5")


class Certificate(NamedTuple):
    """A client certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


def _no_certificate() -> Certificate | None:
    return None


@dataclass(frozen=True)
class Endpoint:
    """An API server and how to reach it.

    `authorization` returns the header's value and `certificate` the client certificate, fresh for each request.
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
    """An endpoint, the namespace that goes with it, and where it was found (`in_pod`, or a kubeconfig's `context`).

    `as_user` is the user that requests impersonate, if any. `pod_namespace` is the namespace of the pod, also where the
    run is given another `namespace`.
    """

    endpoint: Endpoint
    namespace: str
    context: str = ""
    in_pod: bool = False
    as_user: str = ""
    pod_namespace: str = ""


@dataclass(frozen=True)
class Impersonation:
    """The user as whom requests act, by its name; the server decides whether the credentials have that right."""

    user: str = ""
    groups: Sequence[str] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def headers(self) -> list[str]:
        """Return the lines that client-go sends.

        Raises:
            ConfigurationError: there is no user, but another field, or a value that a header cannot have.
        """
        if not self.user:
            if self.groups or self.uid or self.extra:
                raise ConfigurationError(
                    "requesting uid, groups or user-extra without impersonating a user; set --as, or `as` in the"
                    " kubeconfig"
                )
            return []
        extra = ((f"Extra-{quote(key, safe=_IN_A_KEY)}", value) for key, all in self.extra.items() for value in all)
        groups = (("Group", group) for group in self.groups)
        uid = [("Uid", self.uid)] if self.uid else []
        return [_impersonate(*each) for each in (("User", self.user), *uid, *groups, *extra)]


def _impersonate(name: str, value: str) -> str:
    line = f"Impersonate-{name}"
    # Without a value libcurl leaves a header out, unless it ends with a semicolon.
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
    """Find the cluster as kubectl does: the named kubeconfig, else $KUBECONFIG or ~/.kube/config, else the pod's.

    `as_user` and `as_groups` replace those that the kubeconfig impersonates, each where it is given.

    Raises:
        ConfigurationError: there is none, or it cannot be used.
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
    from jobs.kit.kubeconfig import choose

    chosen = choose(paths, name)
    user = chosen.user
    acting = Impersonation(as_user or user.as_user, as_groups or user.as_groups, user.as_uid, user.as_user_extra)
    impersonation = acting.headers()
    server = _server(chosen)
    proxy, no_proxy = _proxy(chosen, server, environ)
    if _has_secret(chosen.user) and not _is_private(server, proxy):
        raise chosen.problem(
            f"cluster {chosen.context.cluster!r}: server {server}: a token or password is not sent over http;"
            " use https, or remove it from the user"
        )
    authority = _authority(chosen)
    host, connect_to = _under_its_tls_name(chosen, server)
    authorization, certificate = _credentials(chosen, server, proxy, environ)
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


def _server(chosen: Chosen) -> str:
    """Return the URL of the API server, without what is not sent to it: a query and a fragment."""
    server, where = chosen.cluster.server, f"cluster {chosen.context.cluster!r}: server"
    if not server:
        raise chosen.problem(f"{where} is not set")
    if "@" in server:
        raise chosen.problem(f"{where} holds a user name or password; move it to the user")
    parts = _url_parts(server)
    if parts is None or parts[0] not in ("http", "https"):
        raise chosen.problem(f"{where} {server!r} is not a URL of https; write https://HOST:PORT")
    return urlunsplit(urlsplit(server)._replace(query="", fragment="")).rstrip("/")


def _url_parts(url: str) -> tuple[str, str] | None:
    """Return scheme and host of a URL, or None if it has no host, or a character that a URL cannot have."""
    try:
        parts = urlsplit(url)
        is_whole = parts.hostname and parts.port != 0 and not re.search(r"\s", url) and url.isprintable()
    except ValueError:
        return None
    return (parts.scheme, parts.hostname or "") if is_whole else None


def _proxy(chosen: Chosen, server: str, environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the proxy, and for which hosts it is not used: that of the cluster for none, that of the environment."""
    if chosen.cluster.proxy_url:
        where = f"cluster {chosen.context.cluster!r}: proxy-url"
        return _checked_proxy(chosen, chosen.cluster.proxy_url, where), None
    scheme, host = _url_parts(server) or ("", "")
    name = f"{scheme}_proxy"
    url = environ.get(name.upper()) or environ.get(name)
    if not url or _is_loopback(host):
        return None, None
    url = url if "://" in url else f"http://{url}"
    return _checked_proxy(chosen, url, f"${name.upper()}"), environ.get("NO_PROXY") or environ.get("no_proxy")


def _checked_proxy(chosen: Chosen, url: str, where: str) -> str:
    parts = _url_parts(url)
    if parts is None or parts[0] not in _PROXIES:  # nor is it shown: a password may be anywhere in it
        raise chosen.problem(f"{where} is not a URL of a proxy; its scheme must be {', '.join(_PROXIES)}")
    # As in Go, the proxy resolves the server's name.
    return url.replace("socks5://", "socks5h://", 1) if parts[0] == "socks5" else url


def _has_secret(user: User) -> bool:
    return bool(user.token or user.token_file or user.username or user.password or user.exec)


def _is_private(server: str, proxy: str | None) -> bool:
    """Whether nobody else can read what is sent: it is encrypted up to the server, or does not leave the machine."""
    scheme, host = _url_parts(server) or ("", "")
    return scheme == "https" or (_is_loopback(host) and not proxy)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _authority(chosen: Chosen) -> bytes:
    """Return certificate-authority-data, having checked that it, or the file, is a certificate."""
    cluster, where = chosen.cluster, f"cluster {chosen.context.cluster!r}: certificate-authority"
    if cluster.certificate_authority:
        _pem(chosen, where, cluster.certificate_authority, b"")
    elif cluster.certificate_authority_data:
        return _pem(chosen, where, "", cluster.certificate_authority_data)
    return b""


def _pem(chosen: Chosen, where: str, path: str, data: bytes) -> bytes:
    """Return the content of a file, or else `data`."""
    try:
        content = read_limited(Path(path)) if path else data
    except OSError as error:
        raise chosen.problem(f"{where} cannot be read: {error}") from error
    if b"-----BEGIN " not in content:
        raise chosen.problem(f"{where if path else f'{where}-data'} is not PEM")
    return content


def _credentials(
    chosen: Chosen, server: str, proxy: str | None, environ: Mapping[str, str]
) -> tuple[Callable[[], str], Callable[[], Certificate | None]]:
    """Return the user's credentials. As in client-go, a credential plugin is used where there are no others."""
    user = chosen.user
    certificate = _certificate(chosen)
    if user.exec and not (user.token or user.token_file or user.username or user.password or certificate):
        return _of_plugin(chosen, server, proxy, environ)
    authorization = _authorization(chosen)
    authorization()  # a token that cannot be read is a reason not to begin
    return authorization, lambda: certificate


def _authorization(chosen: Chosen) -> Callable[[], str]:
    user, name = chosen.user, f"user {chosen.context.user!r}"
    if user.token_file:
        return _cached(lambda: _bearer(_token_of_file(chosen), f"{name}: tokenFile {user.token_file}"))
    if user.token:
        return lambda: _bearer(user.token, f"{name}: token")
    if user.username or user.password:
        basic = base64.b64encode(f"{user.username}:{user.password}".encode(errors="surrogateescape")).decode()
        return lambda: f"Basic {basic}"
    return lambda: ""


def _token_of_file(chosen: Chosen) -> str:
    """Return the token of the file, which takes precedence over `token` while it can be read."""
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
    """Return the value if a header can have it.

    Raises:
        ConfigurationError: a character in it would end the header's line, or has no UTF-8; the value is not shown.
    """
    if _NOT_IN_A_HEADER.search(value):
        raise ConfigurationError(f"{where} holds a control character, such as a newline; remove it")
    return value


def _certificate(chosen: Chosen) -> Certificate | None:
    user, name = chosen.user, f"user {chosen.context.user!r}"
    if not (user.client_certificate or user.client_certificate_data):
        return None
    return Certificate(
        _pem(chosen, f"{name}: client-certificate", user.client_certificate, user.client_certificate_data),
        _pem(chosen, f"{name}: client-key", user.client_key, user.client_key_data),
    )


def _of_plugin(
    chosen: Chosen, server: str, proxy: str | None, environ: Mapping[str, str]
) -> tuple[Callable[[], str], Callable[[], Certificate | None]]:
    from jobs.kit.plugin import Plugin

    user = chosen.user
    assert user.exec
    cluster = _cluster_info(chosen.cluster, server, proxy) if user.exec.provide_cluster_info else None
    plugin = Plugin(chosen.context.user, user.exec, cluster, environ)

    def authorization() -> str:
        token = plugin.credential().token
        return _bearer(token, f"user {chosen.context.user!r}: the token of the credential plugin") if token else ""

    def certificate() -> Certificate | None:
        credential = plugin.latest or plugin.credential()  # of the same run as the token
        if not credential.client_certificate_data or not credential.client_key_data:
            return None
        return Certificate(credential.client_certificate_data.encode(), credential.client_key_data.encode())

    authorization()  # a plugin that fails is a reason not to begin
    return authorization, certificate


def _cluster_info(cluster: Cluster, server: str, proxy: str | None) -> dict[str, Any]:
    """Return what an ExecCredential says of the cluster.

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
    """Return the API server of the cluster that this pod runs in, as its ServiceAccount.

    https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/#directly-accessing-the-rest-api
    """
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    token, ca = service_account / "token", service_account / "ca.crt"
    _, _, namespace = (_read(each) for each in (token, ca, service_account / "namespace"))
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    # Read again and again: the kubelet replaces the token before it expires.
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


def _cached(ask: Callable[[], str]) -> Callable[[], str]:
    """Return a function that asks again only after some seconds."""
    asked, answer = 0.0, ""

    def cached() -> str:
        nonlocal asked, answer
        now = time.monotonic()
        if not asked or now - asked > _FRESH_SECONDS:
            asked, answer = now, ask()
        return answer

    return cached


def _under_its_tls_name(chosen: Chosen, server: str) -> tuple[str, str | None]:
    """Return the URL that TLS is to verify, and libcurl's rule for where to connect instead (CURLOPT_CONNECT_TO)."""
    name, parts = chosen.cluster.tls_server_name, urlsplit(server)
    if not name or parts.scheme != "https":
        return server, None
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise chosen.problem(f"cluster {chosen.context.cluster!r}: tls-server-name {name!r} is not the name of a host")
    port = parts.port or 443
    named = urlunsplit(parts._replace(netloc=f"{name}:{port}"))
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return named, f"{name}:{port}:{host}:{port}"
