"""Find the server and the credentials of a kubeconfig. The kubernetes package runs plugins and renews OIDC tokens.

That package ignores impersonation, prefers the last current-context, writes keys into files, and sends requests without
credentials if those fail. This module does these parts itself. In a pod, nothing imports it.
"""

from __future__ import annotations

import base64
import io
import ipaddress
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from datetime import date, datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple, TypeVar
from urllib.parse import SplitResult, urlsplit, urlunsplit

import certifi
import msgspec
import yaml
from msgspec import Meta, Struct

from jobs.kit.api.endpoint import Certificate, Endpoint, bearer, cached, impersonation, read_limited
from jobs.kit.values.errors import ConfigurationError
from jobs.kit.values.resources import is_label
from jobs.kit.values.text import visible

try:
    from kubernetes.config.config_exception import ConfigException
    from kubernetes.config.exec_provider import ExecProvider
    from kubernetes.config.kube_config import ConfigNode, KubeConfigLoader
except ImportError as error:
    raise ConfigurationError(
        f"a kubeconfig needs the Python package kubernetes, which cannot be imported ({error}): the image does not have"
        " it; in a pod, use its ServiceAccount; elsewhere, install kube-chores with pip"
    ) from None

_PARTS = ("cluster", "user", "context")  # a kubeconfig has a list of each
_PROXIES = ("http", "https", "socks5")
_AUTHORITY = "idp-certificate-authority"
_OIDC_SECONDS = 30.0
_EXTENSION = "client.authentication.k8s.io/exec"
_FRESH_SECONDS = 5.0  # if a credential is expired at once, the plugin still does not run for each request
_SHOWN_CHARACTERS = 500
_JWT = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]*")
# What the package and the YAML parser raise for content that has another shape.
_SHAPE_ERRORS = (ConfigException, OSError, LookupError, TypeError, ValueError, AttributeError, RecursionError)
_log = logging.getLogger("chores")

Part = TypeVar("Part", bound=Struct)
# `authorization` and `certificate` of an Endpoint.
Credentials = tuple[Callable[[], str], Callable[[], Certificate | None]]


class _Named(Struct):
    name: str


class _File(Struct):
    clusters: list[_Named] | None = None
    users: list[_Named] | None = None
    contexts: list[_Named] | None = None
    current_context: str | None = msgspec.field(default=None, name="current-context")


class _Cluster(Struct, rename="kebab"):
    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    extensions: list[dict[str, Any]] = []


class _Plugin(Struct, rename="camel", omit_defaults=True):
    """The settings of a credential plugin. The package validates those of type Any."""

    command: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""
    api_version: Any = None
    args: Any = None
    env: Any = None


class _AuthProvider(Struct):
    name: str = ""
    config: dict[str, str] = {}


class _User(Struct, rename="kebab"):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    as_user: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: list[str] = []
    as_user_extra: dict[str, list[str]] = {}
    username: str = ""
    password: str = ""
    auth_provider: _AuthProvider | None = None
    exec: _Plugin | None = None


class _Context(Struct):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _Credential(Struct, rename="camel"):
    """The `status` of an ExecCredential."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, Meta(tz=True)] | None = None


class _Entry(NamedTuple):
    """A named cluster, user or context, and the file that it is in."""

    content: dict[str, Any]
    path: Path
    document: dict[str, Any]


@dataclass
class _Kubeconfig:
    """A context with its cluster and user. `entries` are those of all files, by part and name.

    `folders` are those to which the paths in a part are relative.
    """

    where: str
    name: str
    entries: Mapping[str, Mapping[str, _Entry]]
    context: _Context = field(default_factory=_Context)
    cluster: _Cluster = field(default_factory=_Cluster)
    user: _User = field(default_factory=_User)
    folders: dict[str, Path] = field(default_factory=dict)

    def problem(self, *texts: str) -> ConfigurationError:
        return ConfigurationError(*(f"{self.where}: context {self.name!r}: {text}" for text in texts))

    def of(self, part: str) -> str:
        return f"{part} {getattr(self.context, part)!r}"

    def pem(self, part: str, name: str) -> bytes:
        """Return the content of a file, or of the field with -data; empty without both."""
        what = f"{self.of(part)}: {name}"
        settings, field = getattr(self, part), name.replace("-", "_")
        data, file = getattr(settings, f"{field}_data"), getattr(settings, field)
        try:
            content = base64.standard_b64decode(data) if data or not file else read_limited(self.folders[part] / file)
        except OSError as error:
            raise self.problem(f"{what} cannot be read: {error}") from error
        except ValueError:
            raise self.problem(f"{what} is not valid: {name}-data must be base64") from None
        if content and b"-----BEGIN " not in content:
            raise self.problem(f"{what} is not PEM")
        return content


def choose(
    paths: Sequence[str],
    context: str | None,
    as_user: str | None,
    as_groups: Sequence[str],
    environ: Mapping[str, str],
) -> tuple[Endpoint, str, str, str]:
    """Return the endpoint of this context, or of the current one, its namespace, its name and the impersonated user.

    `as_user` and `as_groups`, if set, replace the user and groups that the kubeconfig impersonates. If several files
    have a cluster, user or context of one name, or a current context, the first file counts.

    Raises:
        ConfigurationError: a file, or the context's cluster or user, is not valid, or its credentials cannot be read.
    """
    config = _choose(paths, context)
    user = config.user
    name = as_user or user.as_user
    headers = impersonation(name, as_groups or user.as_groups, user.as_uid, user.as_user_extra)
    endpoint = _endpoint(config, headers, environ)
    return endpoint, config.context.namespace or "default", config.name, name


def _choose(paths: Sequence[str], context: str | None) -> _Kubeconfig:
    where = f"kubeconfig {os.pathsep.join(paths)} cannot be used"
    files = [path for path in (Path(each).expanduser() for each in paths) if path.exists()]
    if not files:
        raise ConfigurationError(f"{where}: the file does not exist")
    entries: dict[str, dict[str, _Entry]] = {part: {} for part in _PARTS}
    current = ""
    for path in files:
        document = _load(path)
        current = current or document.get("current-context") or ""
        for part, found in entries.items():
            for each in document.get(f"{part}s") or ():
                found.setdefault(each["name"], _Entry(each, path, document))
    name = context or current
    if not name:
        raise ConfigurationError(f"{where}: current-context is not set; use --context")
    if name not in entries["context"]:
        names = ", ".join(sorted(entries["context"])) or "none"
        raise ConfigurationError(f"{where}: it has no context {name!r}; its contexts are: {names}")
    config = _Kubeconfig(where, name, entries)
    config.context = _part(config, "context", name, _Context)
    config.cluster = _part(config, "cluster", config.context.cluster, _Cluster)
    config.user = _part(config, "user", config.context.user, _User)
    if problems := [*_problems(config)]:
        raise config.problem(*problems)
    return config


def _load(path: Path) -> dict[str, Any]:
    """Return the content of a file, whose clusters, users and contexts have names."""
    where = f"kubeconfig {path} cannot be used"
    try:
        document = yaml.safe_load(path.read_bytes())
        document = {} if document is None else document  # an empty file: kubectl accepts that
        msgspec.convert(document, _File)
    except yaml.MarkedYAMLError as error:  # its text quotes the file, which may contain a token
        mark = error.problem_mark
        at = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigurationError(f"{where}: it is not valid YAML{at}: {error.problem}") from None
    except OSError as error:
        raise ConfigurationError(f"{where}: {error.strerror}") from error
    except (*_SHAPE_ERRORS, yaml.YAMLError):
        raise ConfigurationError(
            f"{where}: it is not a YAML object with lists of clusters, users and contexts, each with a name"
        ) from None
    for part in _PARTS:
        names = [each["name"] for each in document.get(f"{part}s") or ()]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigurationError(f"{where}: more than one {part} has the name {', '.join(repeated)}; rename one")
    return dict(document)


def _part(config: _Kubeconfig, part: str, name: str, form: type[Part]) -> Part:
    """Return this part of a named entry, whose fields have the right types."""
    entry = config.entries[part].get(name)
    if entry is None:
        if part == "user" and not name:
            return form()
        raise config.problem(f"{part} {name!r} is not in the kubeconfig")
    config.folders[part] = entry.path.absolute().parent
    try:
        return msgspec.convert(_without_unset(entry.content.get(part) or {}), form)
    except msgspec.ValidationError as error:
        text, _, at = str(error).partition(" - at `$")
        raise config.problem(f"{part} {name!r}{at.removesuffix('`')}: {text[:1].lower()}{text[1:]}") from None


def _without_unset(value: Any) -> Any:
    """Return the value without fields that are null; a text that YAML reads as a date is a text again."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return {key: _without_unset(each) for key, each in value.items() if each is not None}
    return [_without_unset(each) for each in value] if isinstance(value, list) else value


def _problems(config: _Kubeconfig) -> Iterator[str]:
    """Yield what kubectl refuses, since it would not be clear which of two fields counts."""
    cluster, user = config.cluster, config.user
    if config.context.namespace and not is_label(config.context.namespace):
        yield f"namespace {config.context.namespace!r} is not a valid namespace name"
    if (cluster.certificate_authority or cluster.certificate_authority_data) and cluster.insecure_skip_tls_verify:
        yield f"{config.of('cluster')} has both insecure-skip-tls-verify and a certificate authority; remove one"
    if (user.token or user.token_file) and (user.username or user.password):
        yield f"{config.of('user')} has both a token and a username or password; remove one"
    if (user.client_certificate or user.client_certificate_data) and not (user.client_key or user.client_key_data):
        yield f"{config.of('user')} has a client certificate but no key; set client-key or client-key-data"
    if user.auth_provider and user.auth_provider.name != "oidc":
        yield f"{config.of('user')}: only the auth-provider oidc is supported; use a credential plugin (exec) instead"


def _endpoint(config: _Kubeconfig, headers: Sequence[str], environ: Mapping[str, str]) -> Endpoint:
    server = _server(config)
    proxy, no_proxy = _proxy(config, server, environ)
    user, cluster = config.user, config.cluster
    secrets = (user.token, user.token_file, user.username, user.password, user.exec, user.auth_provider)
    parts = urlsplit(server)
    is_private = parts.scheme == "https" or (_is_loopback(parts.hostname) and not proxy)
    if any(secrets) and not is_private:
        raise config.problem(
            f"{config.of('cluster')}: server {server}: a token or password is not sent over http;"
            " use https, or remove it from the user"
        )
    authority = config.pem("cluster", "certificate-authority")
    url, host, connect_to = _with_tls_server_name(config, server)
    authorization, certificate = _credentials(config, _cluster_info(cluster, server, proxy, authority))
    authorization()  # fails before the run starts if there is no credential
    return Endpoint(
        url,
        authorization,
        ca_data=authority,
        verify=not cluster.insecure_skip_tls_verify,
        certificate=certificate,
        connect_to=connect_to,
        host=host,
        proxy=proxy,
        no_proxy=no_proxy,
        impersonation=headers,
        compression=not cluster.disable_compression,
    )


def _server(config: _Kubeconfig) -> str:
    """Return the URL of the API server without query and fragment, which are not sent to it."""
    server, where = config.cluster.server, f"{config.of('cluster')}: server"
    if not server:
        raise config.problem(f"{where} is not set")
    if "@" in server:
        raise config.problem(f"{where} contains a user name or password; move it to the user")
    parts = _split_url(server)
    if parts is None or parts.scheme not in ("http", "https"):
        raise config.problem(f"{where} {server!r} is not an https URL; write https://HOST:PORT")
    return urlunsplit(parts._replace(query="", fragment="")).rstrip("/")


def _split_url(url: str) -> SplitResult | None:
    """Return the parts of a URL, or None if it has no host or is not valid."""
    try:
        parts = urlsplit(url)
        is_valid = parts.hostname and parts.port != 0 and not re.search(r"\s", url) and url.isprintable()
    except ValueError:
        return None
    return parts if is_valid else None


def _proxy(config: _Kubeconfig, server: str, environ: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the URL of the proxy and its NO_PROXY list. A proxy-url of the kubeconfig applies to all hosts."""
    url, where, no_proxy = config.cluster.proxy_url, f"{config.of('cluster')}: proxy-url", None
    if not url:
        name = f"{urlsplit(server).scheme}_proxy"
        url, where = environ.get(name.upper()) or environ.get(name) or "", f"${name.upper()}"
        no_proxy = environ.get("NO_PROXY") or environ.get("no_proxy")
        if not url or _is_loopback(urlsplit(server).hostname):
            return None, None
        url = url if "://" in url else f"http://{url}"
    parts = _split_url(url)
    if parts is None or parts.scheme not in _PROXIES:  # not shown: any part of it may be a password
        raise config.problem(f"{where} is not the URL of a proxy; its scheme must be {', '.join(_PROXIES)}")
    # As in Go, the proxy resolves the server's name.
    return re.sub("^socks5:", "socks5h:", url), no_proxy


def _is_loopback(host: str | None) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def _with_tls_server_name(config: _Kubeconfig, server: str) -> tuple[str, str, str | None]:
    """Return the URL with the tls-server-name as its host, the header Host, and libcurl's CURLOPT_CONNECT_TO."""
    name, parts = config.cluster.tls_server_name, urlsplit(server)
    if not name or parts.scheme != "https":
        return server, "", None
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
        raise config.problem(f"{config.of('cluster')}: tls-server-name {name!r} is not a host name")
    port = parts.port or 443
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return urlunsplit(parts._replace(netloc=f"{name}:{port}")), parts.netloc, f"{name}:{port}:{host}:{port}"


def _credentials(config: _Kubeconfig, cluster: Mapping[str, Any]) -> Credentials:
    """Return the user's credentials. As in client-go, a credential plugin is used only if there are no others."""
    own = Certificate(config.pem("user", "client-certificate"), config.pem("user", "client-key"))
    authorization = _authorization(config)
    if config.user.exec and not authorization and not own.certificate:
        return _plugin_credentials(config, config.user.exec, cluster)
    return authorization or (lambda: ""), lambda: own if own.certificate else None


def _authorization(config: _Kubeconfig) -> Callable[[], str] | None:
    user = config.user
    if user.token_file:
        file = config.folders["user"] / user.token_file
        return cached(lambda: bearer(_read_token(config, file), f"{config.of('user')}: tokenFile {file}"))
    if user.token:
        return lambda: bearer(user.token, f"{config.of('user')}: token")
    if user.username or user.password:
        basic = base64.b64encode(f"{user.username}:{user.password}".encode(errors="replace")).decode()
        return lambda: f"Basic {basic}"
    provider = user.auth_provider
    return cached(lambda: _oidc_token(config, provider.config)) if provider else None


def _read_token(config: _Kubeconfig, file: Path) -> str:
    """Return the token of the file, or `token` if the file is empty or cannot be read."""
    try:
        token, problem = read_limited(file).decode().strip(), "is empty"
    except (OSError, ValueError) as error:
        token, problem = "", f"cannot be read: {error}"
    if token or config.user.token:
        return token or config.user.token
    raise config.problem(f"{config.of('user')}: tokenFile {file} {problem}")


def _oidc_token(config: _Kubeconfig, settings: dict[str, str]) -> str:
    """Return the ID token of an OIDC provider; an expired one is refreshed and, as by kubectl, saved.

    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#using-kubectl
    """
    # Without an authority, the package would not verify the provider that gets the refresh token.
    is_verified = settings.get(_AUTHORITY) or settings.get(f"{_AUTHORITY}-data")
    authority = {} if is_verified else {_AUTHORITY: certifi.where()}
    current: dict[str, Any] = {"client-secret": "", **settings, **authority}
    document = {
        "current-context": "oidc",
        "contexts": [{"name": "oidc", "context": {"cluster": "oidc", "user": "oidc"}}],
        "clusters": [{"name": "oidc", "cluster": {}}],
        "users": [{"name": "oidc", "user": {"auth-provider": {"name": "oidc", "config": current}}}],
    }

    def save() -> None:
        entry = config.entries["user"][config.context.user]
        for tokens in (settings, entry.content["user"]["auth-provider"]["config"]):
            tokens.update({key: current[key] for key in ("id-token", "refresh-token")})
        try:
            entry.path.write_text(yaml.safe_dump(entry.document, default_flow_style=False))
        except OSError as error:
            _log.warning("the renewed tokens of %s cannot be saved in the kubeconfig: %s", config.of("user"), error)

    loader = KubeConfigLoader(document, config_persister=save)
    loaded = SimpleNamespace(api_key={})
    done: Future[None] = Future()

    def load() -> None:
        try:
            done.set_result(loader.load_and_set(loaded))
        except Exception as error:  # whatever the network, the provider or the token is
            done.set_exception(error)

    threading.Thread(target=load, daemon=True).start()  # the package has no limits on the time of its requests
    try:
        done.result(_OIDC_SECONDS)
    except Exception as error:
        why = _printable(str(error)) or f"no answer within {_OIDC_SECONDS:g} seconds"
        raise config.problem(f"{config.of('user')}: no token of the OIDC provider: {why}") from None
    if "BearerToken" not in loaded.api_key:
        raise config.problem(
            f"{config.of('user')}: the id-token of auth-provider is not a JSON Web Token; log in again"
        )
    return str(loaded.api_key["BearerToken"])


def _plugin_credentials(config: _Kubeconfig, plugin: _Plugin, cluster: Mapping[str, Any]) -> Credentials:
    latest: _Credential | None = None
    moment = 0.0

    def authorization() -> str:
        nonlocal latest, moment
        if latest is None or (_is_expired(latest) and time.monotonic() - moment >= _FRESH_SECONDS):
            latest = _run_plugin(config, plugin, cluster, latest)
            moment = time.monotonic()
        token = latest.token
        return bearer(token, f"{config.of('user')}: the token of the credential plugin") if token else ""

    def certificate() -> Certificate | None:
        assert latest, "authorization() is called before"  # so both are of the same run of the plugin
        own, key = latest.client_certificate_data, latest.client_key_data
        return Certificate(own.encode(), key.encode()) if own and key else None

    return authorization, certificate


def _is_expired(credential: _Credential) -> bool:
    end = credential.expiration_timestamp
    return end is not None and datetime.now(timezone.utc) >= end


def _run_plugin(
    config: _Kubeconfig, plugin: _Plugin, cluster: Mapping[str, Any], latest: _Credential | None
) -> _Credential:
    """Run the credential plugin. Messages do not show its output, which may contain a token.

    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
    """

    def problem(what: str, detail: str = "") -> ConfigurationError:
        known = latest.token if latest and latest.token else ""
        detail = _printable(detail.replace(known, "[token]") if known else detail)
        text = f"{config.of('user')}: the credential plugin {plugin.command!r} {what}"
        return config.problem(f"{text}: {detail}" if detail else text)

    # The package looks at stdout, but a plugin reads from stdin, which may be a file of -f.
    terminal = sys.stdin if sys.stdin and sys.stdin.isatty() and plugin.interactive_mode != "Never" else io.StringIO()
    settings = msgspec.to_builtins(plugin)
    if os.sep in plugin.command:  # relative to the file; else $PATH has it
        settings["command"] = str(config.folders["user"] / plugin.command)
    try:
        provider = ExecProvider(ConfigNode("exec", settings), "", ConfigNode("cluster", dict(cluster)))
        if terminal is not sys.stdin:
            provider.args = ["/bin/sh", "-c", 'exec "$0" "$@" < /dev/null', *provider.args]
        with redirect_stdout(terminal):
            status = provider.run()
        credential = msgspec.convert(status or {}, _Credential)
    except msgspec.ValidationError as error:
        raise problem("did not print an ExecCredential", str(error)) from None
    except _SHAPE_ERRORS as error:
        # On a terminal the package does not read the plugin's messages, and cannot report why it failed.
        why = "see its messages above" if terminal is sys.stdin and isinstance(error, AttributeError) else str(error)
        raise problem("failed", "; ".join(filter(None, [why, plugin.install_hint]))) from None
    if bool(credential.client_certificate_data) != bool(credential.client_key_data):
        raise problem("printed only one of clientCertificateData and clientKeyData")
    if not credential.token and not credential.client_certificate_data:
        raise problem("printed an ExecCredential without token and client certificate")
    return credential


def _cluster_info(cluster: _Cluster, server: str, proxy: str | None, authority: bytes) -> dict[str, Any]:
    """Return the `cluster` of an ExecCredential.

    https://kubernetes.io/docs/reference/config-api/client-authentication.v1/#client-authentication-k8s-io-v1-Cluster
    """
    own = (each.get("extension") for each in cluster.extensions if each.get("name") == _EXTENSION)
    info = {
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(authority).decode(),
        "proxy-url": cluster.proxy_url or proxy,
        "disable-compression": cluster.disable_compression,
        "config": next(own, None),
    }
    return {"server": server, **{name: value for name, value in info.items() if value}}


def _printable(text: str) -> str:
    """Return the end of the text on one line, with tokens removed and control characters escaped."""
    text = visible(" ".join(re.split(r"[ \t\r\n]+", _JWT.sub("[token]", text).strip())))
    return text if len(text) <= _SHOWN_CHARACTERS else "..." + text[-_SHOWN_CHARACTERS:]
