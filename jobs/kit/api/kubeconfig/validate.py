"""Find the problems of a kubeconfig's context, cluster and user: what kubectl refuses, and what it would ignore."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jobs.kit.api.kubeconfig.structs import Cluster, Context, Exec, User
from jobs.kit.values.names import is_label

_API = "client.authentication.k8s.io"
_API_VERSIONS = (f"{_API}/v1", f"{_API}/v1beta1")
_MODES = ("Never", "IfAvailable", "Always")


def context_problems(context: Context, clusters: Mapping[str, Cluster], users: Mapping[str, User]) -> Iterator[str]:
    """Yield what a context names that does not exist or is not valid."""
    if context.cluster not in clusters:
        yield f"cluster {context.cluster!r} is not in the kubeconfig"
    if context.user and context.user not in users:
        yield f"user {context.user!r} is not in the kubeconfig"
    if context.namespace and not is_label(context.namespace):
        yield f"namespace {context.namespace!r} is not a valid namespace name"


def cluster_problems(name: str, cluster: Cluster) -> Iterator[str]:
    """Yield what is contradictory in the certificate authority of a cluster."""
    authorities = [cluster.certificate_authority, cluster.certificate_authority_data]
    if all(authorities):
        yield f"cluster {name!r} has both certificate-authority and certificate-authority-data; remove one"
    if any(authorities) and cluster.insecure_skip_tls_verify:
        yield (
            f"cluster {name!r} has both insecure-skip-tls-verify and a certificate authority;"
            " remove insecure-skip-tls-verify"
        )


def user_problems(name: str, user: User) -> Iterator[str]:
    """Yield what is contradictory, missing or not supported in the credentials of a user."""
    if user.auth_provider:
        yield (
            f"user {name!r} has the auth-provider {user.auth_provider.name!r}, which is not supported;"
            " use a credential plugin (exec) instead"
        )
    if (user.token or user.token_file) and (user.username or user.password):
        yield f"user {name!r} has both a token and a username or password; remove one"
    yield from _certificate_problems(name, user)
    if user.exec:
        yield from _exec_problems(name, user.exec)


def _certificate_problems(name: str, user: User) -> Iterator[str]:
    certificates = [user.client_certificate, user.client_certificate_data]
    keys = [user.client_key, user.client_key_data]
    for kind, both in (("client-certificate", certificates), ("client-key", keys)):
        if all(both):
            yield f"user {name!r} has both {kind} and {kind}-data; remove one"
    if any(certificates) and not any(keys):
        yield f"user {name!r} has a client certificate but no key; set client-key or client-key-data"


def _exec_problems(name: str, plugin: Exec) -> Iterator[str]:
    if plugin.api_version.endswith("/v1beta1"):
        plugin.interactive_mode = plugin.interactive_mode or "IfAvailable"
    yield from _not_one_of(f"user {name!r}: exec.apiVersion", plugin.api_version, _API_VERSIONS)
    yield from _not_one_of(f"user {name!r}: exec.interactiveMode", plugin.interactive_mode, _MODES)
    if not plugin.command:
        yield f"user {name!r}: exec.command is not set"
    for number, variable in enumerate(plugin.env):
        if not variable.name:
            yield f"user {name!r}: exec.env[{number}].name is not set"


def _not_one_of(what: str, value: str, values: Sequence[str]) -> Iterator[str]:
    if value not in values:
        yield f"{what} is {value!r}; set it to {' or '.join(values)}"
