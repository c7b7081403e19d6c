"""A real Kubernetes control plane for tests: etcd, kube-apiserver with RBAC and kube-controller-manager.

Everything is in one temporary folder and gone afterwards. kube-apiserver keeps its defaults for requests in flight and
for priority and fairness, because that is what a job meets in a cluster. There is no node: pods stay Pending.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
START_SECONDS = 60.0
STOP_SECONDS = 3.0

# RequestReceived is written before a request is handled. A reader that sees every received request completed has
# seen all of them (Api.requests waits for that).
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["ResponseStarted"],
    "rules": [
        {"level": "None", "users": ["system:apiserver", "system:kube-controller-manager"]},
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata"},
    ],
}


@dataclass(frozen=True)
class ControlPlane:
    """How to reach a running control plane."""

    url: str
    ca_file: Path
    admin_token: str
    kubeconfig: Path
    folder: Path
    audit_log: Path


def programs() -> Path:
    """The folder that `make control-plane` fills; it need not be there."""
    found = re.search(r"^require k8s\.io/kubernetes (v\S+)", (ROOT / "tools/kubernetes/go.mod").read_text(), re.M)
    assert found, "tools/kubernetes/go.mod does not require k8s.io/kubernetes"
    return ROOT / ".tools" / f"kubernetes-{found[1]}"


def missing() -> str | None:
    """Why no control plane can be started here, or None."""
    absent = [name for name in PROGRAMS if not (programs() / name).exists()]
    if absent:
        return f"no {', '.join(absent)} in {programs().relative_to(ROOT)}: run `make control-plane`"
    return None if shutil.which("openssl") else "no openssl to make certificates with"


@contextlib.contextmanager
def control_plane() -> Iterator[ControlPlane]:
    """Start a control plane, wait until it is ready, and end it."""
    with tempfile.TemporaryDirectory(prefix="kube-chores-tests-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        plane = _prepare(folder)
        with _processes(folder) as start:
            etcd = _free_port()
            start("etcd", *_etcd_flags(folder, etcd))
            start("kube-apiserver", *_apiserver_flags(plane, etcd))
            start.wait(plane, "/readyz", "kube-apiserver")
            start("kube-controller-manager", *_controller_manager_flags(folder))
            start.wait(plane, "/api/v1/namespaces/default/serviceaccounts/default", "kube-controller-manager")
            yield plane


def _prepare(folder: Path) -> ControlPlane:
    plane = ControlPlane(
        url=f"https://127.0.0.1:{_free_port()}",
        ca_file=folder / "ca.crt",
        admin_token=secrets.token_hex(16),
        kubeconfig=folder / "admin.kubeconfig",
        folder=folder,
        audit_log=folder / "audit.log",
    )
    controller_manager = secrets.token_hex(16)
    _make_certificates(folder)
    write_kubeconfig(plane.kubeconfig, plane.url, plane.admin_token, plane.ca_file)
    write_kubeconfig(folder / "controller-manager.kubeconfig", plane.url, controller_manager, plane.ca_file)
    (folder / "audit-policy.yaml").write_text(yaml.safe_dump(AUDIT_POLICY))
    (folder / "tokens.csv").write_text(
        f'{plane.admin_token},admin,admin,"system:masters"\n'
        f"{controller_manager},system:kube-controller-manager,system:kube-controller-manager\n"
    )
    return plane


def write_kubeconfig(path: Path, url: str, token: str, ca_file: Path | None, namespace: str = "default") -> Path:
    """Write a kubeconfig with one context, for a bearer token."""
    cluster = {"server": url} | ({"certificate-authority": str(ca_file)} if ca_file else {})
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": "tests", "user": {"token": token}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests", "namespace": namespace}}],
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path


def _make_certificates(folder: Path) -> None:
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    extensions = [
        "basicConstraints=critical,CA:TRUE",
        "keyUsage=critical,digitalSignature,keyCertSign",
        "subjectAltName=IP:127.0.0.1,IP:10.0.0.1,DNS:localhost",
    ]
    added = [word for extension in extensions for word in ("-addext", extension)]
    out = ["-keyout", str(folder / "ca.key"), "-out", str(folder / "ca.crt")]
    subject = ["-subj", "/CN=kube-chores-tests", "-days", "2"]
    _openssl("req", "-x509", "-config", "/dev/null", *key, *subject, *added, *out)
    _openssl("ecparam", "-genkey", "-noout", "-name", "prime256v1", "-out", str(folder / "accounts.key"))


def _openssl(*words: str) -> None:
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl {words[0]} failed: {done.stderr}")


def _etcd_flags(folder: Path, port: int) -> list[str]:
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{_free_port()}"
    return [
        "--unsafe-no-fsync",
        "--log-level=warn",
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    ]


def _apiserver_flags(plane: ControlPlane, etcd: int) -> list[str]:
    folder = plane.folder
    return [
        f"--etcd-servers=http://127.0.0.1:{etcd}",
        "--bind-address=127.0.0.1",
        f"--secure-port={plane.url.rpartition(':')[2]}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={folder / 'ca.crt'}",
        f"--tls-private-key-file={folder / 'ca.key'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={folder / 'accounts.key'}",
        f"--service-account-signing-key-file={folder / 'accounts.key'}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        "--shutdown-delay-duration=0",
        f"--audit-policy-file={folder / 'audit-policy.yaml'}",
        f"--audit-log-path={plane.audit_log}",
        "--audit-log-mode=blocking",
        "--audit-log-format=json",
        "--audit-log-maxsize=100000",
    ]


def _controller_manager_flags(folder: Path) -> list[str]:
    return [
        f"--kubeconfig={folder / 'controller-manager.kubeconfig'}",
        "--use-service-account-credentials",
        f"--root-ca-file={folder / 'ca.crt'}",
        f"--service-account-private-key-file={folder / 'accounts.key'}",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=1000",
        "--kube-api-burst=1000",
        "--concurrent-namespace-syncs=50",
    ]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class _Processes:
    """Starts programs in the folder and remembers them in order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[tuple[str, subprocess.Popen[bytes]]] = []

    def __call__(self, program: str, *flags: str) -> None:
        # A test run that is killed cannot end its processes: the kernel does, where setpriv can ask it to.
        setpriv = shutil.which("setpriv") if sys.platform == "linux" else None
        command = [*([setpriv, "--pdeathsig", "KILL"] if setpriv else []), str(programs() / program), *flags]
        with (self.folder / f"{program}.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )
        self.started.append((program, process))

    def wait(self, plane: ControlPlane, path: str, program: str) -> None:
        """Wait until the path answers 200, while all that was started lives."""
        deadline = time.monotonic() + START_SECONDS
        while _status(plane, path) != 200:
            for name, process in self.started:
                if process.poll() is not None:
                    raise RuntimeError(f"{name} exited with {process.returncode}:\n{self.tail(name)}")
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{path} is not 200 after {START_SECONDS:g} s, {program} says:\n{self.tail(program)}"
                )
            time.sleep(0.1)

    def tail(self, program: str) -> str:
        return "\n".join((self.folder / f"{program}.log").read_text(errors="replace").splitlines()[-25:])

    def end(self) -> None:
        """End the last one first, so that etcd outlives its clients."""
        for _, process in reversed(self.started):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def _processes(folder: Path) -> Iterator[_Processes]:
    processes = _Processes(folder)
    try:
        yield processes
    finally:
        processes.end()


def _status(plane: ControlPlane, path: str) -> int | None:
    context = ssl.create_default_context(cafile=str(plane.ca_file))
    connection = http.client.HTTPSConnection(plane.url.removeprefix("https://"), context=context, timeout=5)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {plane.admin_token}"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def audit_events(log: Path, start: int = 0) -> list[dict[str, Any]]:
    """What the audit log holds from a position on; a line that is still being written is left out."""
    with log.open("rb") as file:
        file.seek(start)
        whole, _, _ = file.read().rpartition(b"\n")
    return [json.loads(line) for line in whole.splitlines()]
