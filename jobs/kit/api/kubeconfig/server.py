"""Find the endpoint of a kubeconfig's context: the URL of the server, its proxy and its certificate authority."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

from jobs.kit.api.endpoint import Endpoint, Impersonation
from jobs.kit.api.kubeconfig.choose import Chosen
from jobs.kit.api.kubeconfig.credentials import find_credentials, has_secret

_PROXIES = ("http", "https", "socks5")


def find_endpoint(chosen: Chosen, acting: Impersonation, environ: Mapping[str, str]) -> Endpoint:
    """Return the endpoint of the context; its requests impersonate `acting`.

    Raises:
        ConfigurationError: the server, its proxy, the credentials or the impersonated user are not valid.
    """
    impersonation = acting.headers()
    server = _validate_server(chosen)
    proxy, no_proxy = _find_proxy(chosen, server, environ)
    if has_secret(chosen.user) and not _is_private(server, proxy):
        raise chosen.problem(
            f"cluster {chosen.context.cluster!r}: server {server}: a token or password is not sent over http;"
            " use https, or remove it from the user"
        )
    authority = _read_authority(chosen)
    host, connect_to = _with_tls_server_name(chosen, server)
    authorization, certificate = find_credentials(chosen, server, proxy, environ)
    return Endpoint(
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
        compression=not chosen.cluster.disable_compression,
    )


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
        chosen.read_pem(where, cluster.certificate_authority, b"")
    elif cluster.certificate_authority_data:
        return chosen.read_pem(where, "", cluster.certificate_authority_data)
    return b""


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
