"""An upstream for mirrors: a registry on the node, with unique images."""

import base64
import contextlib
import ctypes
import gzip
import hashlib
import http.client
import io
import itertools
import json
import re
import secrets
import shutil
import socket
import ssl
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from jobs.core.mirror_cache.cache import PROBE_PATH as PROBE
from tests.apis import wait_for
from tests.control_plane import ROOT
from tests.namespaces import ADDRESS
from tests.one_node import UPSTREAM, Node, path, registry
from tests.processes import Processes, dying_with_parent

_ports = itertools.count(7001)
_ACCESS = re.compile(r'^(\S+) - \S* \[[^]]*\] "(\S+) (\S+) [^"]*" (\d+) \d+ "[^"]*" "([^"]*)"', re.M)
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"


class Access(NamedTuple):
    """A request in the log of a registry."""

    sender: str
    method: str
    path: str
    status: int
    agent: str


def accesses(log: str) -> list[Access]:
    """Return the requests in the log of a registry, except probes."""
    found = (Access(who, how, where, int(status), agent) for who, how, where, status, agent in _ACCESS.findall(log))
    return [each for each in found if each.path not in ("/v2/", PROBE)]


class Login(NamedTuple):
    """The user and the password that a registry requires."""

    user: str
    password: str

    def header(self) -> dict[str, str]:
        """Return the header with the login: https://www.rfc-editor.org/rfc/rfc7617#section-2."""
        encoded = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
        return {"Authorization": f"Basic {encoded}"}


class Upstream:
    """A registry at `host` on the node, which tests start and stop. They connect to it through a port of localhost.

    With a login, it refuses clients that do not send it.
    """

    def __init__(self, node: Node, folder: Path, listening: socket.socket, login: Login | None = None) -> None:
        self._folder = folder
        self._login = login
        self._outer = listening.getsockname()[1]
        self._inner = next(_ports)
        # nsenter enters the process namespace in a child process, which must end with its parent.
        self._inside = (*node.enter, *dying_with_parent())
        self._forward = Processes(folder, self._inside)
        self._forward(
            sys.executable,
            str(ROOT / "tests/forward.py"),
            str(listening.fileno()),
            ADDRESS,
            str(self._inner),
            pass_fds=[listening.fileno()],
        )
        self._run: Processes | None = None
        self._logs: list[Path] = []

    @property
    def host(self) -> str:
        """Its host in the names of images."""
        return f"{ADDRESS}:{self._inner}"

    def start(self) -> None:
        """Start it with the images of earlier starts, and wait until it responds."""
        log = self._folder / f"run-{len(self._logs)}"
        log.mkdir()
        self._logs.append(log / "registry.log")
        self._run = Processes(log, self._inside)
        self._run(registry(), "serve", str(registry().parent / "config.yml"), env=self._settings())
        self._run.wait(self._answers, "the upstream does not answer", "registry")

    def _settings(self) -> Mapping[str, str]:
        return self._required_login() | {
            "OTEL_TRACES_EXPORTER": "none",
            "REGISTRY_HTTP_ADDR": self.host,
            "REGISTRY_HTTP_DEBUG_ADDR": "127.0.0.1:0",
            "REGISTRY_HTTP_RELATIVEURLS": "true",
            "REGISTRY_HTTP_TLS_CERTIFICATE": str(UPSTREAM),
            "REGISTRY_HTTP_TLS_KEY": str(UPSTREAM.with_suffix(".key")),
            "REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY": str(self._folder / "images"),
        }

    def _required_login(self) -> dict[str, str]:
        if not self._login:
            return {}
        users = self._folder / "htpasswd"
        users.write_text(f"{self._login.user}:{_bcrypt(self._login.password)}\n")
        return {
            "REGISTRY_AUTH": "htpasswd",
            "REGISTRY_AUTH_HTPASSWD_REALM": "tests",
            "REGISTRY_AUTH_HTPASSWD_PATH": str(users),
        }

    def stop(self) -> None:
        """Stop it; `start` starts it again with the same images."""
        if self._run:
            self._run.end()
            self._run = None
            wait_for(lambda: not self._answers(), "the upstream to stop")

    def end(self) -> None:
        """Stop it and its forwarded port; it cannot be started again."""
        self.stop()
        self._forward.end()

    def accesses(self) -> list[Access]:
        """Return the requests that it answered, except those of tests."""
        found = [each for log in self._logs for each in accesses(log.read_text())]
        return [each for each in found if each.agent != "tests"]

    def senders(self, image: str = "") -> set[str]:
        """Return the addresses of the clients that fetched blobs, of this image or of any."""
        name = image.removeprefix(f"{self.host}/").partition(":")[0]
        blobs = f"/v2/{name}/blobs/" if image else "/blobs/"
        return {each.sender for each in self.accesses() if blobs in each.path and each.method == "GET"}

    # images

    def push(self, name: str, tag: str = "1", more: int = 32, layer: bytes = b"", *, index: bool = False) -> str:
        """Push a new image of busybox and `more` random bytes; return its name for pods.

        With `layer`, push another image with that layer. With `index`, the tag is of an index with the image.
        """
        layer = layer or new_layer(more)
        config = json.dumps({
            "author": f"{name}:{tag}",  # otherwise two images of one layer have the same digest
            "architecture": _architecture(),
            "os": "linux",
            "config": {"Entrypoint": ["/busybox"], "Cmd": ["sleep", "600"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(gzip.decompress(layer))]},
        }).encode()  # fmt: skip
        parts = [self._blob(name, media, content) for media, content in ((_CONFIG, config), (_LAYER, layer))]
        manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": parts[0], "layers": parts[1:]}
        content, media = json.dumps(manifest).encode(), _MANIFEST
        if index:
            self._put(f"/v2/{name}/manifests/{_digest(content)}", content, media)
            platform = {"architecture": _architecture(), "os": "linux"}
            part = {"mediaType": media, "digest": _digest(content), "size": len(content), "platform": platform}
            media = _INDEX
            content = json.dumps({"schemaVersion": 2, "mediaType": media, "manifests": [part]}).encode()
        self._put(f"/v2/{name}/manifests/{tag}", content, media)
        return f"{self.host}/{name}:{tag}"

    def _blob(self, name: str, media: str, content: bytes) -> dict[str, object]:
        place = self._call("POST", f"/v2/{name}/blobs/uploads/", 202)["Location"]
        digest = _digest(content)
        self._put(f"{place}&digest={digest}", content, "application/octet-stream")
        return {"mediaType": media, "digest": digest, "size": len(content)}

    def _put(self, url: str, content: bytes, media: str) -> None:
        self._call("PUT", url, 201, content, {"Content-Type": media})

    def delete(self, image: str) -> None:
        name, _, tag = image.removeprefix(f"{self.host}/").partition(":")
        url = f"/v2/{name}/manifests/"
        digest = self._call("HEAD", url + tag, 200, None, {"Accept": _MANIFEST})["Docker-Content-Digest"]
        self._call("DELETE", url + digest, 202)
        self._call("HEAD", url + tag, 404, None, {"Accept": _MANIFEST})

    def _answers(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            self._call("GET", "/v2/", 200)
            return True
        return False

    def _call(
        self, method: str, url: str, status: int, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Mapping[str, str]:
        trusted = ssl.create_default_context(cafile=str(UPSTREAM))
        connection = http.client.HTTPSConnection("127.0.0.1", self._outer, context=trusted, timeout=30)
        try:
            own = self._login.header() if self._login else {}
            connection.request(method, url, body, {"User-Agent": "tests", **own, **(headers or {})})
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status == status, f"{method} {url}: {answer.status} {content!r}"
            return dict(answer.headers)
        finally:
            connection.close()


@contextlib.contextmanager
def upstream(node: Node, folder: Path, login: Login | None = None) -> Iterator[Upstream]:
    """Run an upstream while the context is open."""
    folder.mkdir()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        started = Upstream(node, folder, listening, login)
        try:
            started.start()
            yield started
        finally:
            started.end()


def new_layer(more: int) -> bytes:
    """Return a layer of busybox and `more` random bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
        busybox = shutil.which("busybox", path=path())
        assert busybox
        tar.add(busybox, "busybox")
        unique = tarfile.TarInfo("unique")
        unique.size = more
        tar.addfile(unique, io.BytesIO(secrets.token_bytes(more)))
    return packed.getvalue()


def _bcrypt(password: str) -> str:
    """Return the only hash that the registry accepts. Python has none, and glibc's library for passwords has it."""
    crypt = ctypes.CDLL("libcrypt.so.1").crypt
    crypt.restype = ctypes.c_char_p
    hashed: bytes = crypt(password.encode(), f"$2b$05${secrets.token_hex(11)[:21]}O".encode())
    return hashed.decode()


def _architecture() -> str:
    """Return this machine's architecture as Go names it."""
    printed = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True)
    return printed.stdout.strip()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
