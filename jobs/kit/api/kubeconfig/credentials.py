"""Find the credentials of a kubeconfig's user: token, password, client certificate, or a plugin that prints them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jobs.kit.api.endpoint import Certificate, bearer, cached, read_limited
from jobs.kit.api.kubeconfig.choose import Chosen
from jobs.kit.api.kubeconfig.structs import Cluster, User

# `authorization` and `certificate` of an Endpoint.
Credentials = tuple[Callable[[], str], Callable[[], Certificate | None]]


def has_secret(user: User) -> bool:
    """Whether requests of this user have a header with a token or password."""
    return bool(user.token or user.token_file or user.username or user.password or user.exec)


def find_credentials(chosen: Chosen, server: str, proxy: str | None, environ: Mapping[str, str]) -> Credentials:
    """Return the user's credentials. As in client-go, a credential plugin is used only if there are no others.

    Raises:
        ConfigurationError: a file cannot be read or is not valid, or the plugin failed.
    """
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
        return cached(lambda: bearer(_read_token_file(chosen), f"{name}: tokenFile {user.token_file}"))
    if user.token:
        return lambda: bearer(user.token, f"{name}: token")
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


def _certificate(chosen: Chosen) -> Certificate | None:
    user, name = chosen.user, f"user {chosen.context.user!r}"
    if not (user.client_certificate or user.client_certificate_data):
        return None
    return Certificate(
        chosen.read_pem(f"{name}: client-certificate", user.client_certificate, user.client_certificate_data),
        chosen.read_pem(f"{name}: client-key", user.client_key, user.client_key_data),
    )


def _plugin_credentials(chosen: Chosen, server: str, proxy: str | None, environ: Mapping[str, str]) -> Credentials:
    from jobs.kit.api.kubeconfig.plugin import Plugin

    user = chosen.user
    assert user.exec
    cluster = _cluster_info(chosen.cluster, server, proxy) if user.exec.provide_cluster_info else None
    plugin = Plugin(chosen.context.user, user.exec, cluster, environ)

    def authorization() -> str:
        token = plugin.credential().token
        return bearer(token, f"user {chosen.context.user!r}: the token of the credential plugin") if token else ""

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
