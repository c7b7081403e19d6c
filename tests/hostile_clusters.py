"""A cluster whose API server an attacker controls: HTTPS on loopback, with any answer to any request."""

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml

from kubesandbox.http.tls import Identity
from tests.canary import canary, observed
from tests.serving import QuietHandler, serving
from tests.worlds import encoded

Object = dict[str, Any]
UID = "11111111-1111-4111-8111-111111111111"
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Asked:
    """A request as the attacker received it."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_write(self) -> bool:
        """Whether it would change an object."""
        return self.method != "GET" and "selfsubject" not in self.path

    @property
    def is_list(self) -> bool:
        """Whether it lists namespaces or copies."""
        return self.method == "GET" and self.path.rpartition("/")[2] in ("namespaces", "configmaps", "secrets")

    @property
    def page(self) -> int:
        """The number of a page of a list, from its continue token."""
        return int(self.query.get("continue", "0").strip("<") or 0)


@dataclass(frozen=True)
class Reply:
    """An answer: a whole body, or parts that are sent until the client leaves. `is_raw`: without a head."""

    status: int = 200
    body: bytes | Iterable[bytes] = b""
    headers: Mapping[str, str] = field(default_factory=lambda: JSON)
    is_raw: bool = False


Attack = Callable[[Asked], Reply | None]  # None: answer as a small cluster does


def reply(content: object, status: int = 200, **headers: str) -> Reply:
    """Answer with JSON."""
    return Reply(status, json.dumps(content).encode(), {**JSON, **{k.replace("_", "-"): v for k, v in headers.items()}})


def listing(asked: Asked, items: Iterable[object], token: str = "", **metadata: object) -> Object:
    """Return a page of a list, of the kind that the request accepts."""
    kinds = {"namespaces": "NamespaceList", "configmaps": "ConfigMapList", "secrets": "SecretList"}
    kind = ("v1", kinds[asked.path.rpartition("/")[2]])
    if "PartialObjectMetadataList" in asked.headers.get("accept", ""):
        kind = ("meta.k8s.io/v1", "PartialObjectMetadataList")
    head: Object = {"resourceVersion": "1", **({"continue": token} if token else {}), **metadata}
    return {"apiVersion": kind[0], "kind": kind[1], "metadata": head, "items": list(items)}


def failure(code: int, message: str, reason: str = "") -> Object:
    """Return an error as the API server sends it."""
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "message": message,
        "reason": reason,
    }


def namespace(name: str, uid: str = UID) -> Object:
    """Return an active namespace."""
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": "1"}, "status": {"phase": "Active"}}


def as_a_small_cluster(asked: Asked) -> Reply:
    """Answer as a cluster with namespaces team-a and team-b, which allows everything and stores nothing."""
    if asked.path.endswith("/selfsubjectrulesreviews"):
        rules = [{"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps", "secrets"]}]
        status = {"resourceRules": rules, "nonResourceRules": [], "incomplete": False}
        return reply({**json.loads(asked.body), "status": status}, 201)
    if asked.is_list and asked.path.endswith("/namespaces"):
        names = ("kube-system",) if "fieldSelector" in asked.query else ("kube-system", "team-a", "team-b")
        return reply(listing(asked, map(namespace, names)))
    if asked.is_list:
        return reply(listing(asked, ()))
    if asked.method in ("POST", "PUT"):
        made = json.loads(asked.body)
        made["metadata"] |= {"uid": UID, "resourceVersion": "2"}
        return reply(made, 201 if asked.method == "POST" else 200)
    return reply(failure(404, "not found", "NotFound"), 404)


@dataclass
class HostileCluster:
    """The server, and what it was sent."""

    port: int
    authority: bytes
    attack: Attack
    token: str = ""
    asked: list[Asked] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"https://127.0.0.1:{self.port}"

    def answer(self, asked: Asked) -> Reply:
        """Return the answer of the attack, or that of a small cluster."""
        self.asked.append(asked)
        return self.attack(asked) or as_a_small_cluster(asked)

    def kubeconfig(self) -> str:
        """The kubeconfig that a hub has of it."""
        return kubeconfig(self.url, self.authority, self.token)


def kubeconfig(url: str, authority: bytes, token: str) -> str:
    """Return a kubeconfig as Cluster API writes it."""
    cluster = {"server": url, "certificate-authority-data": encoded(authority.decode())}
    name = canary()  # no value of a kubeconfig may be in any output
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "hub", "context": {"cluster": name, "user": name}}],
            "current-context": "hub",
        }
    )


class _Handler(QuietHandler):
    server: Any

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.cluster.answer(
            Asked(self.command, parts.path, dict(parse_qsl(parts.query)), headers, body)
        )
        if isinstance(answer.body, bytes) and not answer.is_raw:
            self.send(answer.status, dict(answer.headers), answer.body)
            return
        self.close_connection = True
        if not answer.is_raw:
            self.send_response(answer.status)
            for name, value in {**answer.headers, "Connection": "close"}.items():
                self.send_header(name, value)
            self.end_headers()
        for part in [answer.body] if isinstance(answer.body, bytes) else answer.body:
            self.wfile.write(part)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - the names that http.server calls


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, identity: Identity) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.identity = identity

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection; its thread makes the TLS handshake."""
        connection, address = super().get_request()
        context = self.identity.context
        return context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address


@contextmanager
def hostile_cluster(attack: Attack, token: str = "") -> Iterator[HostileCluster]:
    """Serve a hostile cluster."""
    identity = Identity()
    server = _Server(identity)
    cluster = HostileCluster(server.server_address[1], identity.authority, attack, token)
    server.cluster = cluster  # type: ignore[attr-defined]
    with serving(server):
        yield cluster


def bomb(content: bytes, mebibytes: int) -> bytes:
    """Return gzip of a text and so many MiB of spaces, which takes about a thousandth of that."""
    made = zlib.compressobj(9, zlib.DEFLATED, 31)
    spaces = b" " * (1 << 20)
    parts = [made.compress(content), *(made.compress(spaces) for _ in range(mebibytes))]
    return b"".join([*parts, made.flush()])


_PROGRAM = """
import atexit, pathlib, re, sys
from jobs.__main__ import main
from jobs.kit.run import clusters
peak, clusters.CLUSTER_SECONDS = pathlib.Path(sys.argv.pop(1)), float(sys.argv.pop(1))
status = pathlib.Path("/proc/self/status")
atexit.register(lambda: peak.write_text(re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1]))
main()
"""


@dataclass(frozen=True)
class Measured:
    """The result of sync-copies in a process of its own, and its most memory in bytes."""

    exit_code: int
    peak: int
    output: str


def measured(arguments: Sequence[str], account: Path, folder: Path, seconds: float = 240.0) -> Measured:
    """Run sync-copies with so much time for each cluster."""
    peak = folder / "peak"
    command = [sys.executable, "-c", _PROGRAM, str(peak), str(seconds), "sync-copies", "-o", "json", *arguments]
    done = subprocess.run(
        command,
        env={**os.environ, "KUBECONFIG": str(account)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    observed("its output", done.stdout)
    return Measured(done.returncode, int(peak.read_text()) << 10, done.stdout)
