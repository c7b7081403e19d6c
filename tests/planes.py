"""Real clusters of a test that are stopped, restored, replaced by others, and that get new certificates.

Each has etcd and kube-apiserver, and no controllers: so it starts fast, and namespaces stay as they are.
"""

import base64
import contextlib
import http.client
import json
import shutil
import signal
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.apis import Api, real_api, wait_for
from tests.canary import canary
from tests.control_plane import (
    ControlPlane,
    free_port,
    issue_certificate,
    make_certificates,
    prepare,
    run_api_server,
    start_api_server,
    start_controllers,
    wait_for_200,
)
from tests.processes import Processes
from tests.worlds import encoded, namespace_object

Object = dict[str, Any]
OWN = "own"  # the name of the data of a cluster itself, which another cluster may replace
RULES = "apis/kubechores.dev/v1/copyrators"  # not in each cluster
KEY_PAIR = {"cert": "crt", "private-key": "key"}
PLURALS = {"ConfigMap": "configmaps", "Secret": "secrets"}


class Plane:
    """One address with a cluster: `data` is the name of its data, and with that of the cluster."""

    api: Api  # of the admin, while it is up

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        port, self._etcd_port = free_port(), free_port()
        self.plane = prepare(folder, f"https://127.0.0.1:{port}")
        self.folder, self._processes = folder, Processes(folder)
        self._flags = ["--bind-address=127.0.0.1", f"--secure-port={port}", "--endpoint-reconciler-type=none"]
        self.is_up, self.data = False, OWN

    # what happens to clusters

    def start(self) -> None:
        start_api_server(self.plane, self._processes, self._etcd_port, self._flags)
        self.is_up, self.api = True, real_api(self.plane, self.folder)
        self._wait_until_read()

    def restart_api_server(self, *flags: str) -> None:
        """Stop kube-apiserver, and start it with more flags. etcd and the audit log continue."""
        self._processes.stop("kube-apiserver")
        run_api_server(self.plane, self._processes, self._etcd_port, [*self._flags, *flags])
        self._wait_until_read()

    @contextlib.contextmanager
    def another_api_server(self, *flags: str, folder: Path | None = None) -> Iterator[ControlPlane]:
        """Run a second kube-apiserver with the same data, also of another version; yields it with its own address."""
        port, name = free_port(), "another-kube-apiserver"
        plane = replace(self.plane, url=f"https://127.0.0.1:{port}")
        more = [*self._flags, f"--secure-port={port}", *flags]
        run_api_server(plane, self._processes, self._etcd_port, more, name=name, folder=folder)
        try:
            yield plane
        finally:
            self._processes.stop(name)

    @contextlib.contextmanager
    def controllers(self) -> Iterator[None]:
        """Run kube-controller-manager."""
        start_controllers(self.plane, self._processes)
        try:
            yield
        finally:
            self._processes.stop("kube-controller-manager")

    def new_serving_certificate(self) -> list[str]:
        """Return the flags for another certificate of the same authority."""
        issue_certificate(self.folder, "serving")
        return [f"--tls-{kind}-file={self.folder}/serving.{end}" for kind, end in KEY_PAIR.items()]

    def _wait_until_read(self) -> None:
        for path in ("api/v1/namespaces", *(f"api/v1/{each}" for each in PLURALS.values()), RULES):
            wait_for(lambda: self.api.request("GET", f"/{path}")[0] in (200, 404), f"/{path} to be read")  # noqa: B023

    def stop(self) -> None:
        if self.is_up:
            self._processes.end()
            self._processes.started.clear()
            self.is_up = False

    def snapshot(self) -> None:
        """Keep the data as it is now, in place of the snapshot before: etcd is frozen while its files are copied."""
        (etcd,) = [process for name, process in self._processes.started if name == "etcd"]
        shutil.rmtree(self.folder / "snapshot", ignore_errors=True)
        etcd.send_signal(signal.SIGSTOP)
        try:
            shutil.copytree(self.folder / "etcd", self.folder / "snapshot")
        finally:
            etcd.send_signal(signal.SIGCONT)

    def restore(self) -> None:
        """Start with the data of the snapshot, as after the restore of a backup."""
        self.stop()
        shutil.rmtree(self.folder / "etcd")
        shutil.copytree(self.folder / "snapshot", self.folder / "etcd")
        self.start()

    def become(self, data: str) -> bool:
        """Start with other data: another cluster, at the same address. Return whether it is new, and so empty."""
        self.stop()
        etcd, kept = self.folder / "etcd", self.folder / f"etcd-{data}"
        etcd.rename(self.folder / f"etcd-{self.data}")
        is_new, self.data = not kept.exists(), data
        if not is_new:
            kept.rename(etcd)
        self.start()
        return is_new

    def new_certificate(self) -> None:
        """Serve with another certificate of another authority; tokens stay valid."""
        key = (self.folder / "accounts.key").read_bytes()
        make_certificates(self.folder)
        (self.folder / "accounts.key").write_bytes(key)
        if self.is_up:
            wait_for_200(self.plane, self._processes, "/readyz", "kube-apiserver")  # it reads the files again
            self.api = real_api(self.plane, self.folder)

    # its accounts

    def kubeconfig(self, token: str) -> Object:
        """A kubeconfig as an inventory has it. No value of it may be in any output."""
        authority = encoded((self.folder / "ca.crt").read_text())
        name = canary()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": name, "cluster": {"server": self.plane.url, "certificate-authority-data": authority}}
            ],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "hub", "context": {"cluster": name, "user": name}}],
            "current-context": "hub",
        }

    def expired(self, token: str) -> str:
        """The same token of a ServiceAccount, as if it had expired an hour ago."""
        header, claims, _ = token.split(".")
        now = int(time.time())
        times = {"iat": now - 7200, "nbf": now - 7200, "exp": now - 3600}
        content = f"{header}.{_encoded(json.dumps({**json.loads(_decoded(claims)), **times}).encode())}"
        key = load_pem_private_key((self.folder / "accounts.key").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        numbers = utils.decode_dss_signature(key.sign(content.encode(), ec.ECDSA(SHA256())))
        return f"{content}.{_encoded(b''.join(each.to_bytes(32, 'big') for each in numbers))}"


def uid_of(api: Api) -> str:
    """The uid of a cluster."""
    return str(api.read(namespace_object("kube-system"))["metadata"]["uid"])


def answers(kubeconfig: Object) -> tuple[str, frozenset[str]]:
    """The uid of the cluster that answers these credentials, and the kinds that they can list; empty: none does."""
    try:
        namespaces = _listed(kubeconfig, "namespaces?fieldSelector=metadata.name=kube-system")
        if not namespaces:
            return "", frozenset()
        readable = {kind for kind, plural in PLURALS.items() if _listed(kubeconfig, f"{plural}?limit=1") is not None}
        return namespaces[0]["metadata"]["uid"], frozenset(readable)
    except (OSError, http.client.HTTPException):
        return "", frozenset()


def _listed(kubeconfig: Object, what: str) -> list[Object] | None:
    """The objects of a list; None if it is refused."""
    cluster, user = kubeconfig["clusters"][0]["cluster"], kubeconfig["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    connection = http.client.HTTPSConnection(urlsplit(cluster["server"]).netloc, context=context, timeout=30)
    try:
        headers = {"Authorization": f"Bearer {user['token']}", "User-Agent": "tests"}
        connection.request("GET", f"/api/v1/{what}", headers=headers)
        answer = connection.getresponse()
        return json.loads(answer.read())["items"] if answer.status == 200 else None
    finally:
        connection.close()


def _encoded(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
