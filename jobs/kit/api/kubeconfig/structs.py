"""The content of kubeconfig files. docs/kubeconfig.md describes the use of each field.

The types are those of https://github.com/kubernetes/client-go/blob/master/tools/clientcmd/api/v1/types.go.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field


class NamedExtension(Struct):
    """Data of another program in a kubeconfig."""

    name: str = ""
    extension: Any = None


class EnvVar(Struct):
    """An environment variable of a credential plugin."""

    name: str = ""
    value: str = ""


class Exec(Struct, rename="camel"):
    """A credential plugin: a command that prints an ExecCredential."""

    command: str = ""
    args: list[str] = []
    env: list[EnvVar] = []
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class AuthProvider(Struct):
    """A plugin that was built into kubectl; not supported here."""

    name: str = ""
    config: dict[str, str] = {}


class Cluster(Struct, rename="kebab"):
    """An API server and how to connect to it."""

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: bytes = b""
    proxy_url: str = ""
    disable_compression: bool = False
    extensions: list[NamedExtension] = []


class User(Struct, rename="kebab"):
    """Credentials, and the user to impersonate with them."""

    client_certificate: str = ""
    client_certificate_data: bytes = b""
    client_key: str = ""
    client_key_data: bytes = b""
    token: str = ""
    token_file: str = field(default="", name="tokenFile")
    as_user: str = field(default="", name="as")
    as_uid: str = ""
    as_groups: list[str] = []
    as_user_extra: dict[str, list[str]] = {}
    username: str = ""
    password: str = ""
    auth_provider: AuthProvider | None = None
    exec: Exec | None = None
    extensions: list[NamedExtension] = []


class Context(Struct):
    """A cluster, a user and a namespace, by name."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""
    extensions: list[NamedExtension] = []


class NamedCluster(Struct):
    """A cluster and its name."""

    name: str
    cluster: Cluster = field(default_factory=Cluster)


class NamedUser(Struct):
    """A user and its name."""

    name: str
    user: User = field(default_factory=User)


class NamedContext(Struct):
    """A context and its name."""

    name: str
    context: Context = field(default_factory=Context)


class Preferences(Struct):
    """Preferences that no Kubernetes program reads."""

    colors: bool = False
    extensions: list[NamedExtension] = []


class Kubeconfig(Struct):
    """The content of one file."""

    kind: str = ""
    api_version: str = field(default="", name="apiVersion")
    preferences: Preferences | None = None
    clusters: list[NamedCluster] = []
    users: list[NamedUser] = []
    contexts: list[NamedContext] = []
    current_context: str = field(default="", name="current-context")
    extensions: list[NamedExtension] = []
