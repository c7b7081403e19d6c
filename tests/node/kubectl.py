"""Run kubectl as users do, and create Jobs from the shipped CronJobs."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import yaml

from jobs.kit.values.registry import CLUSTERS
from tests import canary
from tests.apis import Api, Object, wait_for
from tests.control_plane import programs
from tests.manifests import COPIES, ROOT, everything
from tests.pages import command

CRON_JOBS = [
    obj["metadata"]["name"]
    for obj in everything()
    if obj["kind"] == "CronJob" and obj["metadata"]["name"] != CLUSTERS  # there is no other cluster
]


class Kubectl:
    """kubectl with a kubeconfig; the repository is the working directory."""

    def __init__(self, kubeconfig: Path) -> None:
        path = f"{programs()}:{os.environ['PATH']}"
        self.env = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path, "HOME": str(kubeconfig.parent)}

    def __call__(self, *words: str) -> str:
        """Run kubectl, which must succeed. Return its stdout."""
        return self.shell(" ".join(["kubectl", *words]))

    def shell(self, line: str) -> str:
        """Run a shell command, which must succeed. Return its stdout."""
        done = subprocess.run(
            line, shell=True, cwd=ROOT, env=self.env, capture_output=True, text=True, timeout=600, check=False
        )
        canary.observed(line, done.stdout + done.stderr)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return done.stdout

    def from_docs(self, beginning: str) -> str:
        """Run the command of the docs that begins with these words. Return its stdout."""
        return self.shell(command(beginning))


def install(kubectl: Kubectl) -> None:
    """Install the shipped manifests with the README's commands, suspend all CronJobs, and end the runs that began."""
    kubectl.from_docs("kubectl apply -k cronjobs")
    kubectl.from_docs("kubectl apply -k cronjobs/mirror-repair")
    for folder in ("mirror-audit", "mirror-audit/secrets"):
        kubectl(f"apply -k cronjobs/{folder}")
    suspend(kubectl, *CRON_JOBS)
    kubectl("delete jobs --all -n kube-chores --cascade=foreground --timeout=60s")


def kustomization_with_copies(folder: Path) -> Path:
    """Write a kustomization of the default installation and of all that sync-copies can copy. Return its folder."""
    shutil.copytree(ROOT / "cronjobs", folder / "cronjobs")
    components = [f"cronjobs/components/copies/{each}" for each in COPIES]
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({"resources": ["cronjobs"], "components": components}))
    return folder


def suspend(kubectl: Kubectl, *cron_jobs: str) -> None:
    """Suspend CronJobs."""
    kubectl(f"""patch cronjob {" ".join(cron_jobs)} -n kube-chores -p '{{"spec": {{"suspend": true}}}}'""")


class Jobs:
    """Create Jobs and wait for them."""

    def __init__(self, api: Api, kubectl: Kubectl) -> None:
        self.api, self.kubectl = api, kubectl

    def create(
        self, name: str, *, of: str = "sync-copies", env: dict[str, str] | None = None, command: list[str] | None = None
    ) -> Object:
        """Create a Job from a CronJob, with more environment variables or another command."""
        job = self.template(name, of)
        (container,) = job["spec"]["template"]["spec"]["containers"]
        container["env"] = container.get("env", []) + [
            {"name": key, "value": value} for key, value in (env or {}).items()
        ]
        if command:
            container["command"], container["args"] = command, []
        return self.start(job)

    def template(self, name: str, of: str = "sync-copies") -> Object:
        """Return the Job that `kubectl create job --from=cronjob/NAME` would create."""
        words = f"create job {name} --from=cronjob/{of} -n kube-chores --dry-run=client -o json"
        job: Object = json.loads(self.kubectl(words))
        return job

    def start(self, job: Object) -> Object:
        """Create this Job."""
        return self.api.call("POST", self.api.path(job, named=False), job)

    def pods(self, name: str) -> list[Object]:
        """Return the pods of a Job, the oldest first."""
        pods = self.api.items("v1", "Pod", "kube-chores", labelSelector=f"batch.kubernetes.io/job-name={name}")
        return sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def running(self, name: str) -> Object:
        """Wait until the one pod of a Job runs, and return it."""
        wait_for(lambda: [pod["status"]["phase"] for pod in self.pods(name)] == ["Running"], f"the pod of {name}", 60)
        return self.pods(name)[0]

    def exit_codes(self, name: str) -> list[int | None]:
        """Return the exit codes of a Job's pods in order; None for a pod that has not ended."""
        return [exit_code(pod) for pod in self.pods(name)]

    def ended(self, name: str) -> str:
        """Return "Complete" or the reason of the failure; empty while the Job runs."""
        found = self.api.call("GET", f"/apis/batch/v1/namespaces/kube-chores/jobs/{name}")
        for one in found.get("status", {}).get("conditions", []):
            if one["status"] == "True" and one["type"] in ("Complete", "Failed"):
                return "Complete" if one["type"] == "Complete" else str(one["reason"])
        return ""

    def end(self, name: str, seconds: float = 60) -> str:
        """Wait for the end of a Job. Return "Complete" or the reason of the failure."""
        wait_for(lambda: self.ended(name), f"the end of Job {name}", seconds)
        return self.ended(name)

    def log(self, name: str) -> str:
        """Return the logs of a Job's pods."""
        return self.kubectl(f"logs -n kube-chores -l batch.kubernetes.io/job-name={name} --tail=-1")


def exit_code(pod: Object) -> int | None:
    """Return the exit code of the pod's container, None if it has not ended."""
    statuses = pod["status"].get("containerStatuses", [])
    return next((one["state"]["terminated"]["exitCode"] for one in statuses if "terminated" in one["state"]), None)
