"""A Kubernetes with one node that runs pods: control plane, kube-scheduler, kube-proxy, kubelet, containerd and runc.

tests/cluster_process.py starts and ends it.
"""

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests import control_plane, namespaces
from tests.control_plane import ROOT, ControlPlane, built, programs
from tests.dns import DOMAIN
from tests.namespaces import ADDRESS, CONTAINERD, PODS
from tests.processes import Processes

PROGRAMS = ("kube-scheduler", "kube-proxy", "kubelet")
PACKAGES = ("containerd", "runc", "iptables", "conntrack", "ip", "buildah", "mmdebstrap", "busybox")
PLUGINS = "/usr/lib/cni"
UPSTREAM = ROOT / ".tools/node/upstream.crt"  # the certificate that containerd and the registry image trust
CONTAINERD_COMMAND = ("containerd", f"--config={CONTAINERD}/config.toml")
CONTAINERD_ENV = {"SSL_CERT_FILE": str(UPSTREAM)}
USERS = {"system:kube-scheduler": "", "system:kube-proxy": "", "system:node:node": "system:nodes"}
PORT = 6443


@dataclass(frozen=True)
class Node:
    """A running cluster. The prefix `enter` runs a command in its namespaces; its start took `seconds`."""

    plane: ControlPlane
    enter: tuple[str, ...]
    seconds: float


def impossible() -> str | None:
    """Return why this machine cannot run a node with any programs installed, or None."""
    if sys.platform != "linux":
        return f"a node needs Linux, and this is {platform.system()}"
    if os.geteuid() != 0:
        return "a node needs root"
    return namespaces.refused()


def missing() -> str | None:
    """Return why a node cannot be started with the programs that are installed, or None."""
    if reason := impossible():
        return reason
    absent = [path.name for path in (*(programs() / name for name in PROGRAMS), registry()) if not path.exists()]
    absent += [name for name in PACKAGES if not shutil.which(name, path=path())]
    absent += [] if Path(PLUGINS, "bridge").exists() else ["CNI plugins"]
    return f"no {', '.join(absent)}: run `make node-tools`" if absent else control_plane.missing()


def registry() -> Path:
    """Return the registry program of mirrors and of tests' upstreams. Its folder has the configuration of its image."""
    return built("registry", "github.com/distribution/distribution/v3") / "registry"


def path() -> str:
    """Return PATH with the folders of administration programs, which not every shell has."""
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def images() -> list[str]:
    """Return the archives of the images that the node needs. Build those again whose inputs changed."""
    built = subprocess.run([str(ROOT / "tools/node/images")], stdout=subprocess.PIPE, text=True, check=True)
    return built.stdout.split()


def start(run: Processes, listening: socket.socket, archives: Sequence[str], cgroup: str) -> ControlPlane:
    """Start all programs, and wait until the node is ready and has the images.

    Clients connect to the API server through `listening`, a socket in the machine's own network namespace.
    """
    folder = run.folder
    url = f"https://127.0.0.1:{listening.getsockname()[1]}"
    plane = control_plane.prepare(folder, url, f"https://127.0.0.1:{PORT}", USERS)
    _forward(run, listening)
    _start_containerd(run, archives)
    control_plane.start(plane, run, 2379, _apiserver_flags(folder))
    run(
        programs() / "kube-scheduler", *_kubeconfig(folder, "kube-scheduler"), "--leader-elect=false", "--secure-port=0"
    )
    run(programs() / "kube-proxy", *_kubeconfig(folder, "kube-proxy"), *_proxy_flags())
    dns = ["-m", "tests.dns", str(folder / "kube-proxy.kubeconfig"), ADDRESS]
    run(sys.executable, *dns, name="dns", env={"PYTHONPATH": str(ROOT)})
    run(programs() / "kubelet", *_kubeconfig(folder, "node:node"), *_kubelet_flags(folder, cgroup))
    run.wait(lambda: _ready(plane), "the node is not ready", "kubelet")
    return plane


def _forward(run: Processes, listening: socket.socket) -> None:
    handed = listening.fileno()
    run(
        sys.executable,
        str(ROOT / "tests/forward.py"),
        str(handed),
        "127.0.0.1",
        str(PORT),
        name="forward",
        pass_fds=[handed],
    )


def _apiserver_flags(folder: Path) -> list[str]:
    return [
        "--bind-address=0.0.0.0",
        f"--secure-port={PORT}",
        f"--advertise-address={ADDRESS}",
        f"--client-ca-file={folder / 'ca.crt'}",
        # The only certificate: the kubelet requires one of its authority.
        f"--kubelet-client-certificate={folder / 'ca.crt'}",
        f"--kubelet-client-key={folder / 'ca.key'}",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def _kubeconfig(folder: Path, user: str) -> list[str]:
    return [f"--kubeconfig={folder / f'{user}.kubeconfig'}"]


def _proxy_flags() -> list[str]:
    # Pods of one bridge answer each other directly, past the node. So traffic to Services gets the node's address.
    return ["--proxy-mode=iptables", "--masquerade-all", "--conntrack-max-per-core=0", "--hostname-override=node"]


# containerd


def _start_containerd(run: Processes, archives: Sequence[str]) -> None:
    (run.folder / "cni").mkdir()
    (run.folder / "cni" / "10-bridge.conflist").write_text(json.dumps(_network()))
    containerd_config(run.folder).write_text(_containerd_config(run.folder))
    run(*CONTAINERD_COMMAND, env=CONTAINERD_ENV)
    run.wait(lambda: containerd_answers(run.inside), "containerd does not answer", "containerd")
    for archive in archives:
        command = [*run.inside, "ctr", "--namespace=k8s.io", "images", "import", archive]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def containerd_config(folder: Path) -> Path:
    """Return the path of containerd's configuration outside of the node's namespaces."""
    return folder / CONTAINERD.name / "config.toml"


def containerd_answers(enter: Sequence[str]) -> bool:
    """Whether containerd serves requests."""
    return subprocess.run([*enter, "ctr", "version"], capture_output=True, check=False).returncode == 0


def _containerd_config(folder: Path) -> str:
    return f"""
        version = 2
        [plugins."io.containerd.internal.v1.opt"]
        path = "{folder}/opt"
        [plugins."io.containerd.grpc.v1.cri"]
        sandbox_image = "localhost/pause:1"
        restrict_oom_score_adj = true  # this process may have no right to lower it
        [plugins."io.containerd.grpc.v1.cri".cni]
        bin_dir = "{PLUGINS}"
        conf_dir = "{folder}/cni"
        [plugins."io.containerd.grpc.v1.cri".registry]
        config_path = "/etc/containerd/certs.d"
    """


def _network() -> dict[str, Any]:
    ranges = [[{"subnet": PODS}]]
    ipam = {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "ipam": ipam}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, {"type": "portmap", "capabilities": {}}]}


# kubelet


def _kubelet_flags(folder: Path, cgroup: str) -> list[str]:
    (folder / "kubelet.yaml").write_text(yaml.safe_dump(_kubelet_config(folder, cgroup)))
    (folder / "resolv.conf").write_text("")
    return [f"--config={folder / 'kubelet.yaml'}", "--hostname-override=node", f"--node-ip={ADDRESS}"]


def _kubelet_config(folder: Path, cgroup: str) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "0.0.0.0",
        "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(folder / "ca.crt")}},
        "authorization": {"mode": "AlwaysAllow"},  # only the API server has a certificate of that authority
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "failCgroupV1": False,
        # A machine with little free disk space is not a reason to evict: the cluster is deleted in minutes.
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
        "clusterDNS": [ADDRESS],
        "clusterDomain": DOMAIN,
        "resolvConf": str(folder / "resolv.conf"),
        "volumePluginDir": str(folder / "volume-plugins"),
        "nodeStatusUpdateFrequency": "2s",
        "syncFrequency": "10s",  # the delay of a changed Secret in its volume
    }


def _ready(plane: ControlPlane) -> bool:
    question = ["get", "node", "node", "-o", 'jsonpath={.status.conditions[?(@.type=="Ready")].status}']
    kubectl = [str(programs() / "kubectl"), f"--kubeconfig={plane.kubeconfig}", f"--cache-dir={plane.folder}/kubectl"]
    return subprocess.run([*kubectl, *question], capture_output=True, text=True, check=False).stdout == "True"
