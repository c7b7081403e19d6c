"""Find the API server and the credentials: in a kubeconfig, or the service account of a pod.

Modules that only a kubeconfig needs are imported where they are used. In a pod, a run may start every minute, and
three files have all it needs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from jobs.kit.api.endpoint import Endpoint, bearer, cached, impersonation, read_limited
from jobs.kit.values.errors import ConfigurationError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Connection(Struct, frozen=True):
    """An endpoint, its default namespace, and its origin (`in_pod`, or a kubeconfig's `context`).

    `as_user` is the user that requests impersonate, if any. `pod_namespace` is the namespace of the pod, also if
    --namespace sets another `namespace`. `pod_name` is empty if the environment variable POD_NAME is not set.
    """

    endpoint: Endpoint
    namespace: str
    context: str = ""
    in_pod: bool = False
    as_user: str = ""
    pod_namespace: str = ""
    pod_name: str = ""


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
    files = [kubeconfig] if kubeconfig else environ.get("KUBECONFIG", "").split(os.pathsep)
    if any(files) or context or home.is_file():
        from jobs.kit.api.kubeconfig import choose

        paths = [*filter(None, files)] or [str(home)]
        endpoint, namespace, name, user = choose(paths, context, as_user, as_groups, environ)
        return Connection(endpoint, namespace, name, as_user=user)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return _from_pod(environ, service_account, as_user or "", impersonation(as_user or "", as_groups, "", {}))
    raise ConfigurationError("no cluster: not in a pod, and no kubeconfig found; use --kubeconfig or set KUBECONFIG")


def _from_pod(environ: Mapping[str, str], service_account: Path, as_user: str, headers: Sequence[str]) -> Connection:
    """Return the connection to the cluster of this pod with the credentials of its ServiceAccount.

    https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/#directly-accessing-the-rest-api
    """
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    token, ca = service_account / "token", service_account / "ca.crt"
    _, _, namespace = (_read(each) for each in (token, ca, service_account / "namespace"))
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    # Read again during the run: the kubelet replaces the token before it expires.
    authorization = cached(lambda: bearer(_read(token), f"the pod's service account: {token}"))
    endpoint = Endpoint(server, authorization, ca_file=str(ca), impersonation=headers)
    name = environ.get("POD_NAME", "")
    return Connection(endpoint, namespace, in_pod=True, as_user=as_user, pod_namespace=namespace, pod_name=name)


def _read(path: Path) -> str:
    try:
        text = read_limited(path).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the pod's service account cannot be used: {error}") from error
    if not text:
        raise ConfigurationError(f"the pod's service account cannot be used: {path} is empty")
    return text
