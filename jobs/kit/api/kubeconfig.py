"""Read, merge and validate kubeconfig files as kubectl does. docs/kubeconfig.md describes the use of each field.

The types are those of https://github.com/kubernetes/client-go/blob/master/tools/clientcmd/api/v1/types.go.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct, field

from jobs.kit.files.limited_files import read_limited
from jobs.kit.values.errors import ConfigurationError
from jobs.kit.values.names import is_label

_log = logging.getLogger("chores")


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


@dataclass(frozen=True)
class Chosen:
    """A context with its cluster and user, validated, with absolute paths."""

    source: str
    name: str
    context: Context
    cluster: Cluster
    user: User

    def problem(self, text: str) -> ConfigurationError:
        """Return the error for a field of this cluster or user."""
        return ConfigurationError(f"{_problem_in(self.source)}: context {self.name!r}: {text}")


def choose(paths: str, context: str | None) -> Chosen:
    """Return this context, or the current one, of the files in `paths`, which are separated as in $KUBECONFIG.

    If several files have a cluster, user or context of one name, the first file counts.

    Raises:
        ConfigurationError: a file, or the context's cluster or user, is not valid; has every problem found.
    """
    found = [path for each in paths.split(os.pathsep) if each and (path := Path(each).expanduser()).exists()]
    if not found:
        raise ConfigurationError(f"{_problem_in(paths)}: the file does not exist")
    files = [_read(path) for path in found]
    contexts = _merge((each.name, each.context) for file in files for each in file.contexts)
    name = context or next((file.current_context for file in files if file.current_context), "")
    if not name:
        raise ConfigurationError(f"{_problem_in(paths)}: current-context is not set; use --context")
    if name not in contexts:
        names = ", ".join(sorted(contexts)) or "none"
        raise ConfigurationError(f"{_problem_in(paths)}: it has no context {name!r}; its contexts are: {names}")
    clusters = _merge((each.name, each.cluster) for file in files for each in file.clusters)
    users = _merge((each.name, each.user) for file in files for each in file.users)
    chosen = contexts[name]
    problems = [*_context_problems(chosen, clusters, users)]
    cluster, user = clusters.get(chosen.cluster, Cluster()), users.get(chosen.user, User())
    problems = problems or [*_cluster_problems(chosen.cluster, cluster), *_user_problems(chosen.user, user)]
    if problems:
        raise ConfigurationError(*(f"{_problem_in(paths)}: context {name!r}: {problem}" for problem in problems))
    return Chosen(paths, name, chosen, cluster, user)


def _problem_in(path: object) -> str:
    return f"kubeconfig {path} cannot be used"


Named = TypeVar("Named")


def _merge(named: Iterable[tuple[str, Named]]) -> dict[str, Named]:
    merged: dict[str, Named] = {}
    for name, value in named:
        merged.setdefault(name, value)
    return merged


def _read(path: Path) -> Kubeconfig:
    document = _load_document(path)
    try:
        config = msgspec.convert(document, Kubeconfig)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{_problem_in(path)}: {_format_error(str(error))}") from None
    if config.kind not in ("", "Config") or config.api_version not in ("", "v1"):
        raise ConfigurationError(f"{_problem_in(path)}: kind and apiVersion are not Config and v1")
    if repeated := [
        *_find_repeated("clusters", config),
        *_find_repeated("users", config),
        *_find_repeated("contexts", config),
    ]:
        raise ConfigurationError(*(f"{_problem_in(path)}: {each}" for each in repeated))
    for field_path in _find_unknown(document, Kubeconfig):
        # Ignored as in kubectl. Logged, since with a typo in `as` the run would have more rights.
        _log.warning("kubeconfig %s: unknown field %s is ignored", path, field_path)
    _resolve_paths(config, path.absolute().parent)
    return config


def _load_document(path: Path) -> Any:
    from jobs.kit.files.limited_yaml import load

    try:
        text = read_limited(path).decode("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{_problem_in(path)}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigurationError(f"{_problem_in(path)}: it is not UTF-8") from None
    documents, problems = load(text)
    if problems:
        raise ConfigurationError(*(f"{_problem_in(path)}: {problem}" for problem in problems))
    return _normalize(documents[0] or {}) if documents else {}


def _normalize(value: Any, name: Any = "") -> Any:
    """Return the document without null fields, which count as not set, and without line breaks in base64 data."""
    if isinstance(value, dict):
        return {key: _normalize(each, key) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_normalize(each) for each in value]
    return "".join(value.split()) if isinstance(value, str) and str(name).endswith("-data") else value


def _format_error(error: str) -> str:
    """Return an error of msgspec with the field first, as in: users[0].user.as: expected `str`, got `int`."""
    text, _, where = error.partition(" - at `$")
    text = text[:1].lower() + text[1:]
    return f"{where.removesuffix('`').lstrip('.')}: {text}" if where else text


def _find_repeated(kind: str, config: Kubeconfig) -> Iterator[str]:
    names = [each.name for each in getattr(config, kind)]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"{kind}: the name {name!r} is used twice; rename or remove one"


def _find_unknown(value: Any, struct: type[Struct] | None, path: str = "") -> Iterator[str]:
    """Yield the paths of unknown fields."""
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from _find_unknown(each, struct, f"{path}[{number}]")
    elif isinstance(value, dict) and struct:
        known = {each.encode_name: _struct_in(each.type) for each in msgspec.structs.fields(struct)}
        for name, each in value.items():
            where = f"{path}.{name}" if path else name
            if name not in known:
                yield where
            yield from _find_unknown(each, known.get(name), where)


def _struct_in(type_: Any) -> type[Struct] | None:
    """Return the Struct in a field's type, also in a list or an optional one."""
    found = (each for each in (type_, *get_args(type_)) if get_origin(each) is None and isinstance(each, type))
    return next((each for each in found if issubclass(each, Struct)), None)


def _resolve_paths(config: Kubeconfig, folder: Path) -> None:
    """Make paths absolute: they are relative to the file's folder. A command without a slash stays: $PATH has it."""
    for cluster in (each.cluster for each in config.clusters):
        cluster.certificate_authority = _absolute(cluster.certificate_authority, folder)
    for user in (each.user for each in config.users):
        user.client_certificate = _absolute(user.client_certificate, folder)
        user.client_key = _absolute(user.client_key, folder)
        user.token_file = _absolute(user.token_file, folder)
        if user.exec and os.sep in user.exec.command:
            user.exec.command = _absolute(user.exec.command, folder)


def _absolute(path: str, folder: Path) -> str:
    return str(folder / path) if path else ""


def _context_problems(context: Context, clusters: Mapping[str, Cluster], users: Mapping[str, User]) -> Iterator[str]:
    if context.cluster not in clusters:
        yield f"cluster {context.cluster!r} is not in the kubeconfig"
    if context.user and context.user not in users:
        yield f"user {context.user!r} is not in the kubeconfig"
    if context.namespace and not is_label(context.namespace):
        yield f"namespace {context.namespace!r} is not a valid namespace name"


def _cluster_problems(name: str, cluster: Cluster) -> Iterator[str]:
    authorities = [cluster.certificate_authority, cluster.certificate_authority_data]
    if all(authorities):
        yield f"cluster {name!r} has both certificate-authority and certificate-authority-data; remove one"
    if any(authorities) and cluster.insecure_skip_tls_verify:
        yield (
            f"cluster {name!r} has both insecure-skip-tls-verify and a certificate authority;"
            " remove insecure-skip-tls-verify"
        )


def _user_problems(name: str, user: User) -> Iterator[str]:
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
    certificates, keys = (
        [user.client_certificate, user.client_certificate_data],
        [user.client_key, user.client_key_data],
    )
    for kind, both in (("client-certificate", certificates), ("client-key", keys)):
        if all(both):
            yield f"user {name!r} has both {kind} and {kind}-data; remove one"
    if any(certificates) and not any(keys):
        yield f"user {name!r} has a client certificate but no key; set client-key or client-key-data"


_API = "client.authentication.k8s.io"
_API_VERSIONS = (f"{_API}/v1", f"{_API}/v1beta1")
_MODES = ("Never", "IfAvailable", "Always")


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
