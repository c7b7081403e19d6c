"""Registries of images on localhost, behind a proxy for their names: tokens, logins, limits, redirects and tags."""

import base64
import contextlib
import json
import select
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests import rates
from tests.apis import Api, Object, wait_for
from tests.canary import canary
from tests.control_plane import make_certificates
from tests.rates import Answer
from tests.serving import serving
from tests.worlds import encoded, pull_secret

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
TOKENS = "auth.example.com"  # the server of tokens
HUB = "registry-1.docker.io"


def digest(number: int) -> str:
    """Return a digest of a manifest."""
    return f"sha256:{number:064x}"


@dataclass
class Registry:
    """One registry.

    `manifests` are its manifests by repository and tag or digest: the digest, and the type. With `login`, a username
    and a password, it requires one: directly, or with `tokens` by a token. It answers 429 after `limit` requests.
    `answer` replaces all of its answers.
    """

    manifests: dict[str, tuple[str, str]] = field(default_factory=dict)
    login: tuple[str, str] | None = None
    tokens: bool = False
    realm: str = f"https://{TOKENS}/token"
    limit: int = 1_000_000
    answer: Answer | None = None

    def push(self, image: str, number: int = 1, media_type: str = INDEX) -> str:
        """Add an image such as app:1 with a digest of this number; return that."""
        repository, _, tag = image.partition(":")
        for reference in (tag, digest(number)):
            self.manifests[f"{repository}/manifests/{reference}"] = (digest(number), media_type)
        return digest(number)

    def require_login(self, *, tokens: bool = True) -> tuple[str, str]:
        """Have it require a login from now on; return that."""
        self.login, self.tokens = ("robot", canary()), tokens
        return self.login


@dataclass
class ImageRegistries:
    """The registries by host, and the requests that they got: method, host, path, and the header Authorization."""

    proxy: str
    ca_file: Path
    hosts: dict[str, Registry] = field(default_factory=dict)
    requests: list[tuple[str, str, str, str]] = field(default_factory=list)
    token: str = field(default_factory=canary)

    def registry(self, host: str) -> Registry:
        """Return the registry of a host, which is new."""
        return self.hosts.setdefault(host, Registry())

    @property
    def env(self) -> dict[str, str]:
        """The environment with which the job connects to them."""
        return {
            "HTTP_PROXY": self.proxy,
            "HTTPS_PROXY": self.proxy,
            "NO_PROXY": "localhost,127.0.0.1",
            "REQUESTS_CA_BUNDLE": str(self.ca_file),
            "CHORES_PROBE": "network",
            "CHORES_IMAGES": "50",
        }

    def asked(self, host: str) -> list[str]:
        """Return the references of which manifests a registry was asked, in order, each once."""
        return list(dict.fromkeys(path.removeprefix("/v2/") for method, at, path, _ in self.requests if at == host))

    def sent(self, host: str) -> set[str]:
        """Return the schemes and values of the header Authorization that a host got."""
        return {authorization for _, at, _, authorization in self.requests if at == host and authorization}


def basic(login: tuple[str, str]) -> str:
    """Return the header Authorization of a login."""
    return f"Basic {base64.b64encode(':'.join(login).encode()).decode()}"


class Handler(rates.Handler):
    """Responds as its ImageRegistries define."""

    def do_HEAD(self) -> None:  # noqa: N802 - the name that http.server calls
        """Answer whether a manifest exists."""
        self._answer()

    def do_GET(self) -> None:  # noqa: N802
        """Answer with a token, or as a mirror that works."""
        self._answer()

    def do_CONNECT(self) -> None:  # noqa: N802
        """Connect to the registries with TLS, whatever the name."""
        port = self.server.tls_port  # type: ignore[attr-defined]
        with socket.create_connection(("127.0.0.1", port)) as other:
            self.send_response(200)
            self.end_headers()
            pair = (self.connection, other)
            with contextlib.suppress(OSError):
                while True:
                    for each in select.select(pair, (), ())[0]:
                        if not (part := each.recv(1 << 16)):
                            return
                        pair[each is self.connection].sendall(part)

    def _answer(self) -> None:
        served: ImageRegistries = self.server.registries  # type: ignore[attr-defined]
        parts = urlsplit(self.path)
        host = parts.netloc or self.headers["Host"]
        authorization = self.headers.get("Authorization", "")
        served.requests.append((self.command, host, parts.path, authorization))
        with contextlib.suppress(OSError):
            if host == TOKENS and TOKENS not in served.hosts:
                self._send_token(served, parse_qs(parts.query), authorization)
            else:
                self._send_manifest(served, host, parts.path.removeprefix("/v2/"), authorization)

    def _send_token(self, served: ImageRegistries, query: dict[str, list[str]], authorization: str) -> None:
        registry = served.hosts[query["service"][0]]
        if authorization and (not registry.login or authorization != basic(registry.login)):
            return self.send(401, {}, b"")
        # Docker Hub also gives tokens to who has no access.
        token = served.token if authorization or not registry.login else "of-nobody"
        return self.send(200, {}, json.dumps({"token": token}).encode())

    def _send_manifest(self, served: ImageRegistries, host: str, path: str, authorization: str) -> None:
        registry = served.hosts.get(host)
        if registry is None or not path:
            return self.send(404 if path else 200, {}, b"")
        if registry.answer:
            return registry.answer(self)
        registry.limit -= 1
        if registry.limit < 0:
            return self.send(429, {}, b"")
        if registry.tokens and not authorization:
            scope = f"repository:{path.partition('/manifests')[0]}:pull"
            challenge = f'Bearer realm="{registry.realm}",service="{host}",scope="{scope}"'
            return self.send(401, {"WWW-Authenticate": challenge}, b"")
        accepted = f"Bearer {served.token}" if registry.tokens else basic(registry.login or ("", ""))
        if registry.login and authorization != accepted:
            return self.send(401, {} if registry.tokens else {"WWW-Authenticate": 'Basic realm="registry"'}, b"")
        found = registry.manifests.get(path)
        if not found:
            return self.send(404, {}, b"")
        return self.send(200, {"Docker-Content-Digest": found[0], "Content-Type": found[1]}, b"")


RUNNING = {"name": "main", "ready": True, "restartCount": 0, "state": {}, "lastState": {}}


def namespace(api: Api, name: str) -> str:
    made = api.namespace(name)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": made}}
    wait_for(lambda: api.get(account), f"the account of pods in {made}")
    return made


def account(team: str, name: str) -> Object:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": team}}


def spec(image: str, **fields: Any) -> Object:
    return {"containers": [{"name": "main", "image": image}], "restartPolicy": "Never", **fields}


def pod(api: Api, team: str, name: str, image: str, running: str = "", phase: str = "Running", **fields: Any) -> None:
    """Create a pod; `running` is the digest that its container runs."""
    made = api.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": team},
            "spec": spec(image, **fields),
        }
    )
    image_id = f"{image.partition(':')[0]}@{running}" if running else ""
    container = {**RUNNING, "image": image, "imageID": image_id}
    api.patch_status(made, {"phase": phase, "containerStatuses": [container]})


def cron_job(api: Api, team: str, name: str, image: str, **fields: Any) -> None:
    job = {"spec": {"template": {"spec": spec(image, **fields)}}}
    metadata = {"name": name, "namespace": team}
    given = {"schedule": "0 3 * * *", "jobTemplate": job}
    api.create({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": given})


def pull_login(api: Api, team: str, host: str, found: tuple[str, str], name: str = "login") -> None:
    auths = {"auths": {host: {"username": found[0], "password": found[1]}}}
    api.create(pull_secret(team, name, data={".dockerconfigjson": encoded(json.dumps(auths))}))


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[ImageRegistries]:
    """Serve on two ports of localhost while the context is open: the registries, and the proxy, which mirrors use."""
    make_certificates(folder, "*.example.com", HUB)
    plain, tls = (ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.crt", folder / "ca.key")
    tls.socket = context.wrap_socket(tls.socket, server_side=True, do_handshake_on_connect=False)
    registries = ImageRegistries(f"http://127.0.0.1:{plain.server_port}", folder / "ca.crt")
    for server in (plain, tls):
        server.daemon_threads = True
        server.registries = registries  # type: ignore[attr-defined]
        server.tls_port = tls.server_port  # type: ignore[attr-defined]
    with serving(plain), serving(tls):
        yield registries
