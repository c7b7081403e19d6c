"""Which API server to talk to, and as whom: kubeconfig with its contexts and plugins, or the service account of a pod.

The only importer of `kubernetes`, which reads kubeconfigs. It takes a third of a second and 20 MB, and is therefore
imported where it is used: not in a pod, where a run begins every minute and three files say all.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from jobs.kit.errors import ConfigurationError

# Asking costs more than the request that it is for; a token outlives its replacement by minutes.
_FRESH_SECONDS = 5.0
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True)
class Endpoint:
    """An API server and how to reach it. `authorization` returns the header's value, fresh for each request."""

    server: str
    authorization: Callable[[], str]
    ca_file: str | None = None
    verify: bool = True
    cert_file: str | None = None
    key_file: str | None = None
    connect_to: str | None = None
    proxy: str | None = None
    no_proxy: str | None = None


@dataclass(frozen=True)
class Connection:
    """An endpoint, the namespace that goes with it, and where it was found (`in_pod`, or a kubeconfig's `context`)."""

    endpoint: Endpoint
    namespace: str
    context: str = ""
    in_pod: bool = False


def connect(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection:
    """Find the cluster as kubectl does: the named kubeconfig, else $KUBECONFIG or ~/.kube/config, else the pod's.

    Raises:
        ConfigurationError: there is none, or it cannot be used.
    """
    home = Path(environ.get("HOME") or "/") / ".kube" / "config"
    named = kubeconfig or environ.get("KUBECONFIG")
    if named or context or home.is_file():
        return _from_kubeconfig(named or str(home), context)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return _from_pod(environ, service_account)
    raise ConfigurationError("no cluster: not in a pod, and no kubeconfig found; use --kubeconfig or set KUBECONFIG")


def _from_kubeconfig(path: str, context: str | None) -> Connection:
    import yaml
    from kubernetes import config
    from kubernetes.client import Configuration

    if not any(each.startswith("~") or Path(each).exists() for each in path.split(os.pathsep) if each):
        raise ConfigurationError(f"kubeconfig {path} cannot be used: there is no such file")
    configuration = Configuration()
    try:
        contexts, active = config.list_kube_config_contexts(path)
        chosen = next((c for c in contexts if c["name"] == context), None) if context else active
        if chosen is None:
            names = ", ".join(sorted(c["name"] for c in contexts)) or "none"
            raise ConfigurationError(f"context {context!r} is not in {path}; it has: {names}")
        config.load_kube_config(path, context=chosen["name"], client_configuration=configuration)
    except (config.ConfigException, OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"kubeconfig {path} cannot be used: {' '.join(str(error).split())}") from error
    namespace = chosen["context"].get("namespace") or "default"
    return Connection(_endpoint(configuration), namespace, chosen["name"])


def _from_pod(environ: Mapping[str, str], service_account: Path) -> Connection:
    """Return the API server of the cluster that this pod runs in, as its ServiceAccount.

    https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/#directly-accessing-the-rest-api
    """
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    token, ca = service_account / "token", service_account / "ca.crt"
    _, _, namespace = (_read(each) for each in (token, ca, service_account / "namespace"))
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    # Read again and again: the kubelet replaces the token before it expires.
    authorization = _now_and_then(lambda: f"Bearer {_read(token)}")
    return Connection(Endpoint(server, authorization, ca_file=str(ca)), namespace, in_pod=True)


def _read(path: Path) -> str:
    try:
        text = path.read_text().strip()
    except OSError as error:
        raise ConfigurationError(f"the pod's service account cannot be used: {error}") from error
    if not text:
        raise ConfigurationError(f"the pod's service account cannot be used: {path} is empty")
    return text


def _now_and_then(ask: Callable[[], str]) -> Callable[[], str]:
    """Return a function that asks again only after some seconds."""
    asked, answer = 0.0, ""

    def cached() -> str:
        nonlocal asked, answer
        now = time.monotonic()
        if not asked or now - asked > _FRESH_SECONDS:
            asked, answer = now, ask()
        return answer

    return cached


def _endpoint(configuration: Any) -> Endpoint:
    def ask() -> str:
        # Refreshes what has expired: a projected token is read again, an exec plugin is asked again.
        token = configuration.get_api_key_with_prefix("authorization", alias="BearerToken")
        if token:
            return str(token)
        return str(configuration.get_basic_auth_token()) if configuration.username else ""

    server, connect_to = _under_its_tls_name(configuration.host.rstrip("/"), configuration.tls_server_name)
    return Endpoint(
        server,
        _now_and_then(ask),
        ca_file=configuration.ssl_ca_cert,
        verify=bool(configuration.verify_ssl),
        cert_file=configuration.cert_file,
        key_file=configuration.key_file,
        connect_to=connect_to,
        proxy=configuration.proxy,
        no_proxy=configuration.no_proxy,
    )


def _under_its_tls_name(server: str, tls_server_name: str | None) -> tuple[str, str | None]:
    """Return the URL that TLS is to verify, and libcurl's rule for where to connect instead (CURLOPT_CONNECT_TO)."""
    if not tls_server_name:
        return server, None
    parts = urlsplit(server)
    port = parts.port or 443
    named = urlunsplit(parts._replace(netloc=f"{tls_server_name}:{port}"))
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return named, f"{tls_server_name}:{port}:{host}:{port}"
