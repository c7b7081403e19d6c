"""The cluster of a soak: a node, the manifests with shorter schedules, and an audit log of what our accounts write."""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import yaml

from jobs import __version__
from jobs.kit.values.registry import ACCOUNTS, CLUSTERS, VERIFY
from soak.history import History
from soak.journal import Journal
from soak.lab import Lab
from soak.programs import Programs
from soak.tenants import rates
from tests.apis import real_api
from tests.cluster_process import cluster
from tests.control_plane import AUDIT_POLICY, ROOT, wait_for_200
from tests.manifests import COMPONENTS, COPIES
from tests.node.kubectl import Kubectl
from tests.processes import Processes
from tests.rights import RBAC, account
from tests.worlds import Object, cluster_role_ref, configmap

# Each minute is the shortest that a CronJob can have. The shipped ones are rarer, except that of sync-copies.
# There is no other cluster.
SCHEDULES = {**{each: "* * * * *" for each in ACCOUNTS if each != CLUSTERS}, VERIFY: "*/4 * * * *"}
# A Secret that changed twice within the default of 5 minutes is rolled once: an hour would see few rolls.
SETTINGS = {"roll-workloads": {"SETTLE": "2", "COOL_DOWN": "15"}}
IMAGE = f"kube-chores:{__version__}"
PREFIX = "CHORES_"
# Whole objects of each change by our accounts. The log is deleted with the cluster.
_OUR_WRITES = {
    "level": "RequestResponse",
    "userGroups": [f"system:serviceaccounts:{name}" for name in ("kube-chores", "kube-chores-mirrors")],
    "verbs": ["create", "update", "patch", "delete", "deletecollection"],
}


@contextlib.contextmanager
def lab(seed: int, journal: Path, jobs: Sequence[str], image: str = "") -> Iterator[tuple[Lab, Programs]]:
    """Run a cluster with all jobs. `jobs` are to run, but all are suspended. `image` replaces that of this version."""
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(cluster())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kube-chores-soak-")))
        programs = Programs(node, folder)
        stack.callback(programs.end)
        _audit(node.plane.folder, programs)
        wait_for_200(node.plane, Processes(folder), "/readyz", "kube-apiserver")
        kubectl = Kubectl(node.plane.kubeconfig)
        manifests = kustomizations(folder, image)
        for each in manifests:
            kubectl(f"apply -k {each}")
        history = History(node.plane.url, node.plane.admin_token, node.plane.ca_file)
        stack.callback(history.stop)
        api = real_api(node.plane, folder)
        here = Lab(seed, node, api, kubectl, Journal(journal), history, folder, image or IMAGE, jobs, manifests)
        yield here, programs


def _audit(folder: Path, programs: Programs) -> None:
    """Let the API server log whole objects of what our accounts write."""
    policy = {**AUDIT_POLICY, "rules": [_OUR_WRITES, *AUDIT_POLICY["rules"]]}
    (folder / "audit-policy.yaml").write_text(yaml.safe_dump(policy))
    programs.restart("kube-apiserver", signal.SIGKILL)


def kustomizations(folder: Path, image: str = "") -> list[Path]:
    """Write the kustomization that installs all jobs, as the docs describe it, with the settings of a soak."""
    shutil.copytree(ROOT / "cronjobs", folder / "cronjobs")
    resources = [f"../cronjobs/{each}" for each in (".", "mirror-repair", "mirror-audit/job")]
    components = [f"../cronjobs/{each}" for each in (*COMPONENTS, *(f"components/copies/{kind}" for kind in COPIES))]
    listed: dict[str, object] = {"resources": [*resources, "settings.yaml"], "components": components}
    _write(folder / "all", listed, [*SCHEDULES], image)
    (folder / "all" / "settings.yaml").write_text(yaml.safe_dump_all(_settings()))
    return [folder / "all"]


def _write(folder: Path, kustomization: dict[str, object], jobs: list[str], image: str) -> None:
    patches = [
        {
            "target": {"kind": "CronJob", "name": f"^{name}$"},
            "patch": yaml.safe_dump(
                [
                    {"op": "replace", "path": "/spec/schedule", "value": SCHEDULES[name]},
                    {"op": "add", "path": "/spec/suspend", "value": True},
                ]
            ),
        }
        for name in jobs
    ]
    name, _, tag = image.rpartition(":")
    images = [{"name": "kube-chores", "newName": name, "newTag": tag}] if image else []
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({**kustomization, "patches": patches, "images": images}))


def _settings() -> list[Object]:
    """Return the settings of the jobs, and what lets sync-copies adopt objects for rules with `conflict: Adopt`."""
    urls = {name.removeprefix(PREFIX): value for name, value in rates.env().items()}
    settings = {**SETTINGS, "fetch-rates": urls}
    adopts = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "soak-sync-copies-adopt"},
        "roleRef": cluster_role_ref("kube-chores-adopt"),
        "subjects": [account("kube-chores", "sync-copies")],
    }
    return [
        adopts,
        *(configmap("kube-chores", f"{job}-settings", labels={}, data=data) for job, data in settings.items()),
    ]


def resume(kubectl: Kubectl, jobs: Iterable[str]) -> None:
    """Let CronJobs run."""
    _suspend(kubectl, jobs, "false")


def suspend(kubectl: Kubectl, jobs: Iterable[str]) -> None:
    """Let CronJobs create no Jobs."""
    _suspend(kubectl, jobs, "true")


def _suspend(kubectl: Kubectl, jobs: Iterable[str], value: str) -> None:
    kubectl(f"""patch cronjob {" ".join(jobs)} -n kube-chores -p '{{"spec": {{"suspend": {value}}}}}'""")
