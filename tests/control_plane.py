"""A real Kubernetes control plane for tests: etcd, kube-apiserver with RBAC and kube-controller-manager.

All files are in one temporary folder, which is deleted at the end. kube-apiserver keeps its defaults for requests in
flight and for priority and fairness, as in a cluster. There is no node, so pods stay Pending; tests/one_node.py adds a
node.
"""

import contextlib
import http.client
import json
import os
import re
import secrets
import shutil
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from tests.processes import Processes, processes

ROOT = Path(__file__).parent.parent
_CHOSEN: list[socket.socket] = []
FILL_SECONDS = 300.0  # until kube-apiserver has read hundreds of thousands of objects
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
# Users by name, each with its group. Each has a token and a NAME.kubeconfig; the file's name omits `system:`.
ADMIN = {"admin": "system:masters"}
CONTROLLERS = {"system:kube-controller-manager": ""}

# RequestReceived is written before a request is handled. When each received request has a completed one, the log is
# complete (Api.requests waits for that).
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["ResponseStarted"],
    "rules": [
        {"level": "None", "users": ["system:apiserver", "system:kube-controller-manager"]},
        {"level": "None", "users": ["system:kube-scheduler", "system:kube-proxy"]},
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system", "system:nodes"]},
        {"level": "Metadata"},
    ],
}


@dataclass(frozen=True)
class ControlPlane:
    """The address, credentials and files of a running control plane."""

    url: str
    ca_file: Path
    admin_token: str
    kubeconfig: Path
    folder: Path
    audit_log: Path
    etcd_url: str = ""  # of `control_plane()`, as the next one, in which kube-apiserver does not run
    without_api_server: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext


def version() -> str:
    """Return the version of the programs, as v1.36.3: KUBERNETES_VERSION, or that of `make control-plane`."""
    return os.environ.get("KUBERNETES_VERSION") or required("kubernetes", "k8s.io/kubernetes")


def minor_of(version: str) -> int:
    """Return the minor version, as 36, of a version as v1.36.3."""
    return int(version.split(".")[1])


def programs() -> Path:
    """Return the folder of the programs, which may not exist."""
    return ROOT / ".tools" / f"kubernetes-{version()}"


def built(name: str, module: str) -> Path:
    """Return the folder of the programs that tools/NAME/build builds from a Go module."""
    return ROOT / ".tools" / f"{name}-{required(name, module)}"


def required(name: str, module: str) -> str:
    """Return the version of a Go module that tools/NAME/go.mod requires."""
    found = re.search(rf"^require {re.escape(module)} (v\S+)", (ROOT / f"tools/{name}/go.mod").read_text(), re.M)
    assert found, f"tools/{name}/go.mod does not require {module}"
    return found[1]


def missing() -> str | None:
    """Return why a control plane cannot be started on this machine, or None."""
    absent = [name for name in PROGRAMS if not (programs() / name).exists()]
    if absent:
        return f"no {', '.join(absent)} in {programs().relative_to(ROOT)}: run `tools/kubernetes/build {version()}`"
    return None if shutil.which("openssl") else "no openssl, which creates the certificates: install it"


@contextlib.contextmanager
def control_plane(etcd_flags: Sequence[str] = (), *, controllers: bool = True) -> Iterator[ControlPlane]:
    """Run a control plane until the context ends; it is ready at the start.

    Args:
        etcd_flags: more flags of etcd.
        controllers: whether kube-controller-manager runs too.
    """
    with tempfile.TemporaryDirectory(prefix="kube-chores-tests-", ignore_cleanup_errors=True) as name:
        port, etcd = free_port(), free_port()
        plane = prepare(Path(name), f"https://127.0.0.1:{port}")
        flags = ["--bind-address=127.0.0.1", f"--secure-port={port}", "--endpoint-reconciler-type=none"]
        with processes(plane.folder) as run:
            start_api_server(plane, run, etcd, flags, etcd_flags)
            if controllers:
                start_controllers(plane, run)

            @contextlib.contextmanager
            def without_api_server() -> Iterator[None]:
                run.stop("kube-apiserver")
                try:
                    yield
                finally:
                    run(programs() / "kube-apiserver", *_apiserver_flags(plane, etcd), *flags)
                run.wait(lambda: _status(plane, "/readyz") == 200, "/readyz is not 200", "kube-apiserver", FILL_SECONDS)

            yield replace(plane, etcd_url=f"http://127.0.0.1:{etcd}", without_api_server=without_api_server)


def prepare(folder: Path, url: str, inner_url: str = "", users: Mapping[str, str] | None = None) -> ControlPlane:
    """Write the files that the programs need.

    The programs connect to the API server at `inner_url`, by default `url`. `users` maps more users to their groups.
    """
    groups = {**ADMIN, **CONTROLLERS, **(users or {})}
    tokens = {name: secrets.token_hex(16) for name in groups}
    make_certificates(folder)
    for name, token in tokens.items():
        at = url if name in ADMIN else inner_url or url
        write_kubeconfig(folder / f"{name.removeprefix('system:')}.kubeconfig", at, token, folder / "ca.crt")
    lines = [",".join([token, name, name, *filter(None, [groups[name]])]) for name, token in tokens.items()]
    (folder / "tokens.csv").write_text("\n".join(lines))
    (folder / "audit-policy.yaml").write_text(yaml.safe_dump(AUDIT_POLICY))
    return ControlPlane(
        url=url,
        ca_file=folder / "ca.crt",
        admin_token=tokens["admin"],
        kubeconfig=folder / "admin.kubeconfig",
        folder=folder,
        audit_log=folder / "audit.log",
    )


def start(plane: ControlPlane, run: Processes, etcd_port: int, flags: Sequence[str]) -> None:
    """Start the programs, with flags for the API server's address. Wait until the default ServiceAccount exists."""
    start_api_server(plane, run, etcd_port, flags)
    start_controllers(plane, run)


def start_api_server(
    plane: ControlPlane, run: Processes, etcd_port: int, flags: Sequence[str], etcd_flags: Sequence[str] = ()
) -> None:
    """Start etcd and kube-apiserver, with more flags for each."""
    run(programs() / "etcd", *_etcd_flags(plane.folder, etcd_port), *etcd_flags)
    run_api_server(plane, run, etcd_port, flags)


def run_api_server(
    plane: ControlPlane,
    run: Processes,
    etcd_port: int,
    flags: Sequence[str],
    name: str = "kube-apiserver",
    folder: Path | None = None,
) -> None:
    """Start kube-apiserver, with more flags, by default of `programs()`; `name` is that of its log."""
    run((folder or programs()) / "kube-apiserver", *_apiserver_flags(plane, etcd_port), *flags, name=name)
    wait_for_200(plane, run, "/readyz", name)


def start_controllers(plane: ControlPlane, run: Processes) -> None:
    """Start kube-controller-manager, and wait until the default ServiceAccount exists."""
    run(programs() / "kube-controller-manager", *_controller_manager_flags(plane.folder))
    wait_for_200(plane, run, "/api/v1/namespaces/default/serviceaccounts/default", "kube-controller-manager")


def wait_for_200(plane: ControlPlane, run: Processes, path: str, program: str) -> None:
    """Wait until the API server answers the path with 200.

    Raises:
        RuntimeError: it did not within START_SECONDS, or a program ended; the message has the end of a log.
    """
    run.wait(lambda: _status(plane, path) == 200, f"{path} is not 200", program)


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


def make_certificates(folder: Path, *names: str) -> None:
    """Write ca.crt and ca.key, which are both authority and server certificate of loopback, and a key for tokens.

    `names` are more hosts of the certificate.
    """
    usage = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,digitalSignature,keyCertSign"]
    _certify(folder / "ca", "kube-chores-tests", [*usage, _hosts(*names)])
    _openssl("ecparam", "-genkey", "-noout", "-name", "prime256v1", "-out", str(folder / "accounts.key"))


def issue_certificate(folder: Path, name: str) -> None:
    """Write NAME.crt and NAME.key, a server certificate of loopback that the authority of the folder issues."""
    authority = ["-CA", str(folder / "ca.crt"), "-CAkey", str(folder / "ca.key")]
    _certify(folder / name, name, ["basicConstraints=critical,CA:FALSE", _hosts()], *authority)


def _hosts(*names: str) -> str:
    hosts = ("IP:127.0.0.1", "IP:10.0.0.1", "DNS:localhost", *(f"DNS:{each}" for each in names))
    return f"subjectAltName={','.join(hosts)}"


def _certify(path: Path, name: str, extensions: Sequence[str], *words: str) -> None:
    """Write PATH.crt with these extensions and PATH.key."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    added = [word for extension in extensions for word in ("-addext", extension)]
    out = ["-keyout", f"{path}.key", "-out", f"{path}.crt"]
    subject = ["-subj", f"/CN={name}", "-days", "2"]
    _openssl("req", "-x509", "-config", "/dev/null", *words, *key, *subject, *added, *out)


def expire(folder: Path) -> None:
    """Replace the certificate by one that expired a day ago."""
    certificate, key = (str(folder / name) for name in ("ca.crt", "ca.key"))
    _openssl("x509", "-in", certificate, "-signkey", key, "-days", "-1", "-out", certificate)


def _openssl(*words: str) -> None:
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl {words[0]} failed: {done.stderr}")


def _etcd_flags(folder: Path, port: int) -> list[str]:
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
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
        "--service-cluster-ip-range=10.0.0.0/16",
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
        f"--kubeconfig={folder / 'kube-controller-manager.kubeconfig'}",
        "--use-service-account-credentials",
        f"--root-ca-file={folder / 'ca.crt'}",
        f"--service-account-private-key-file={folder / 'accounts.key'}",
        "--leader-elect=false",
        "--secure-port=0",
        "--node-monitor-grace-period=1h",  # else it evicts from the nodes of tests, which have no kubelet
        "--kube-api-qps=1000",
        "--kube-api-burst=1000",
        "--concurrent-namespace-syncs=50",
        f"--flex-volume-plugin-dir={folder / 'volume-plugins'}",  # else it creates one in /usr/libexec
    ]


def free_port() -> int:
    """Return a free port of the loopback interface, which no other process of tests chooses until this one ends.

    It is below those that systems give to connections: one of these may get the port before the server listens. A UDP
    socket of the same number keeps it from the other processes.
    """
    while True:
        port = 20_000 + secrets.randbelow(10_000)
        chosen = socket.socket(type=socket.SOCK_DGRAM)
        with socket.socket() as free, contextlib.suppress(OSError):
            chosen.bind(("127.0.0.1", port))
            free.bind(("127.0.0.1", port))
            _CHOSEN.append(chosen)
            return port
        chosen.close()


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
    """Return the events in the audit log from a position on, without an incomplete last line."""
    with log.open("rb") as file:
        file.seek(start)
        whole, _, _ = file.read().rpartition(b"\n")
    return [json.loads(line) for line in whole.splitlines()]


def deprecated_requests(log: Path, user_agent: str = "kube-chores") -> list[str]:
    """Return the paths of a program's requests to APIs that this version of Kubernetes reports as deprecated."""
    with log.open() as file:
        marked = [json.loads(line) for line in file if '"k8s.io/deprecated"' in line]
    found = (event for event in marked if event.get("userAgent", "").startswith(user_agent))
    return sorted({event["requestURI"] for event in found})
