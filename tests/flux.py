"""Run Flux's kustomize-controller, which `make control-plane` builds, with artifacts that are served on loopback.

There is no source-controller: `Flux.publish()` writes an artifact into the status of a GitRepository, as it does.
"""

import contextlib
import hashlib
import io
import re
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import ThreadingHTTPServer

import yaml

from tests.apis import Api, Object, ready_of, wait_for
from tests.control_plane import built, free_port
from tests.manifests import ROOT
from tests.processes import processes
from tests.serving import QuietHandler, serving
from tests.worlds import namespace_object

FOLDER = built("flux", "github.com/fluxcd/kustomize-controller")
PROGRAM = FOLDER / "kustomize-controller"
NAMESPACE = "flux-system"
USER_AGENT = "kustomize-controller"
REQUESTED = "reconcile.fluxcd.io/requestedAt"


def missing() -> str | None:
    """Return why Flux cannot run on this machine, or None."""
    return None if PROGRAM.exists() else f"no {PROGRAM.relative_to(ROOT)}: run `make control-plane`"


def of_docs() -> list[Object]:
    """Return what docs/gitops.md shows for Flux, in order: a GitRepository, two Kustomizations, and a part of one."""
    section = (ROOT / "docs" / "gitops.md").read_text().partition("## Flux\n")[2].partition("\n## ")[0]
    texts = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    return [each for text in texts for each in yaml.safe_load_all(text)]


class Handler(QuietHandler):
    """Send the artifacts of its server."""

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        """Send an artifact."""
        found: bytes | None = self.server.artifacts.get(self.path)  # type: ignore[attr-defined]
        self.send(200 if found else 404, {}, found or b"")


@dataclass
class Flux:
    """A controller that runs, and its sources."""

    api: Api
    url: str
    artifacts: dict[str, bytes]

    def publish(self, source: Object, files: Mapping[str, str]) -> str:
        """Publish files by their paths as the next artifact of a GitRepository; return its revision."""
        content = _archive(files)
        digest = hashlib.sha256(content).hexdigest()
        path = f"/{source['metadata']['name']}/{digest}.tar.gz"
        self.artifacts[path] = content
        revision = f"main@sha1:{hashlib.sha1(content, usedforsecurity=False).hexdigest()}"
        artifact = {"path": path[1:], "url": self.url + path, "revision": revision, "digest": f"sha256:{digest}"}
        found = self.api.get(source) or self.api.create(source)
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ready = {"type": "Ready", "status": "True", "reason": "Succeeded", "message": "", "lastTransitionTime": now}
        status = {"artifact": {**artifact, "lastUpdateTime": now, "size": len(content)}, "conditions": [ready]}
        self.api.patch_status(source, {**status, "observedGeneration": found["metadata"]["generation"]})
        return revision

    def reconcile(self, kustomization: Object) -> Object:
        """Request a reconciliation, as `flux reconcile` does, and wait for its end; return condition Ready.

        A new artifact for a Kustomization reconciles also those that it depends on, which are not ready meanwhile.
        """
        token = str(time.time_ns())
        self.api.patch(kustomization, {"metadata": {"annotations": {REQUESTED: token}}})

        def is_handled() -> bool:
            is_seen = self.status(kustomization).get("lastHandledReconcileAt") == token
            return is_seen and self.ready(kustomization)["reason"] not in ("DependencyNotReady", "Progressing")

        wait_for(is_handled, f"a reconciliation of {kustomization['metadata']['name']}", detail=self.log)
        return self.ready(kustomization)

    def status(self, kustomization: Object) -> Object:
        """Return the status of a Kustomization."""
        found: Object = self.api.read(kustomization).get("status", {})
        return found

    def ready(self, kustomization: Object) -> Object:
        """Return condition Ready of a Kustomization."""
        return ready_of(self.status(kustomization)["conditions"])

    def wait_until_applied(self, kustomization: Object, revision: str) -> None:
        """Wait until a Kustomization is Ready with a revision."""

        def is_applied() -> bool:
            return self.status(kustomization).get("lastAppliedRevision") == revision

        wait_for(is_applied, f"{kustomization['metadata']['name']} at {revision}", detail=self.log)

    def wait_until_checked(self, kustomization: Object, revision: str) -> None:
        """Wait until a Kustomization has applied a revision, and checks or has checked the health of its objects."""

        def is_checked() -> bool:
            status = self.status(kustomization)
            messages = [each["message"] for each in status.get("conditions", ()) if each["type"] == "Reconciling"]
            checks = any(each.startswith(f"Running health checks for revision {revision}") for each in messages)
            return checks or status.get("lastAppliedRevision") == revision

        wait_for(is_checked, f"{kustomization['metadata']['name']} at {revision}", detail=self.log)

    def writes(self) -> list[str]:
        """Return what the controller wrote since `api.mark()`, except statuses and Events of its own objects."""
        return [
            f"{each.method} {each.path}"
            for each in self.api.writes(USER_AGENT)
            if "dryRun" not in each.query and "toolkit.fluxcd.io" not in each.path and not each.path.endswith("/events")
        ]

    def log(self) -> str:
        """Return the end of the controller's log."""
        return (self.api.folder / f"{PROGRAM.name}.log").read_text()[-3000:]


def _archive(files: Mapping[str, str]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for path, text in files.items():
            head = tarfile.TarInfo(path)
            head.size = len(text.encode())
            archive.addfile(head, io.BytesIO(text.encode()))
    return content.getvalue()


@contextlib.contextmanager
def running(api: Api) -> Iterator[Flux]:
    """Install the CRDs of Flux, and run its controller as an administrator of the cluster until the context ends."""
    place = {"name": "kustomize-controller", "namespace": NAMESPACE}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": place}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "kustomize-controller"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", **place}],
    }
    crds = [yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yaml"))]
    for obj in (*crds, namespace_object(NAMESPACE), account, binding):
        api.create(obj)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.artifacts = {}  # type: ignore[attr-defined]
    kubeconfig = api.service_account_kubeconfig(NAMESPACE, "kustomize-controller")
    health = free_port()
    flags = [f"--health-addr=127.0.0.1:{health}", "--metrics-addr=0", "--requeue-dependency=1s"]
    with serving(server), processes(api.folder) as run:
        run(PROGRAM, *flags, env={"KUBECONFIG": str(kubeconfig), "TMPDIR": str(api.folder)})
        yield Flux(api, f"http://127.0.0.1:{server.server_port}", server.artifacts)  # type: ignore[attr-defined]


def files_of(folder: str) -> dict[str, str]:
    """Return the files of a folder of this repository, by their paths in it."""
    return {str(each.relative_to(ROOT)): each.read_text() for each in (ROOT / folder).rglob("*") if each.is_file()}
