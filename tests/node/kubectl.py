"""What people do in a cluster with kubectl, and the Jobs that they make of our CronJobs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from tests import canary
from tests.apis import Api, Object, wait_for
from tests.control_plane import programs
from tests.manifests import ROOT, everything
from tests.pages import command

# The CronJobs with a schedule; their dry-run twins are suspended as they come.
SCHEDULED = [
    obj["metadata"]["name"] for obj in everything() if obj["kind"] == "CronJob" and not obj["spec"].get("suspend")
]


class Kubectl:
    """kubectl as people use it."""

    def __init__(self, kubeconfig: Path) -> None:
        path = f"{programs()}:{os.environ['PATH']}"
        self.env = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path, "HOME": str(kubeconfig.parent)}

    def __call__(self, *words: str) -> str:
        """Run kubectl, which must succeed, and give what it says."""
        return self.shell(" ".join(["kubectl", *words]))

    def shell(self, line: str) -> str:
        """Run a line of a shell, which must succeed, and give what it says."""
        done = subprocess.run(
            line, shell=True, cwd=ROOT, env=self.env, capture_output=True, text=True, timeout=120, check=False
        )
        canary.observed(line, done.stdout + done.stderr)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return done.stdout

    def from_docs(self, beginning: str) -> str:
        """Run the command of the docs that begins like this."""
        return self.shell(command(beginning))


def install(kubectl: Kubectl) -> None:
    """Install our manifests as the README says; no run is to come by itself, but where a test waits for it."""
    kubectl.from_docs("kubectl apply -k cronjobs")
    kubectl.from_docs("kubectl apply -k cronjobs/mirror-repair")
    suspend(kubectl, *SCHEDULED)


def suspend(kubectl: Kubectl, *cron_jobs: str) -> None:
    """Switch the schedule of CronJobs off."""
    kubectl(f"""patch cronjob {" ".join(cron_jobs)} -n kube-chores -p '{{"spec": {{"suspend": true}}}}'""")


class Jobs:
    """Makes Jobs by hand and waits for them."""

    def __init__(self, api: Api, kubectl: Kubectl) -> None:
        self.api, self.kubectl = api, kubectl

    def create(
        self,
        name: str,
        *,
        of: str = "sync-copies",
        env: dict[str, str] | None = None,
        command: list[str] | None = None,
    ) -> Object:
        """Make a Job of a CronJob, with environment variables or another command."""
        job = self.template(name, of)
        (container,) = job["spec"]["template"]["spec"]["containers"]
        container["env"] = container.get("env", []) + [
            {"name": key, "value": value} for key, value in (env or {}).items()
        ]
        if command:
            container["command"], container["args"] = command, []
        return self.start(job)

    def template(self, name: str, of: str = "sync-copies") -> Object:
        """What `kubectl create job --from=cronjob/NAME` would make."""
        words = f"create job {name} --from=cronjob/{of} -n kube-chores --dry-run=client -o json"
        job: Object = json.loads(self.kubectl(words))
        return job

    def start(self, job: Object) -> Object:
        """Make this Job."""
        return self.api.call("POST", self.api.path(job, named=False), job)

    def pods(self, name: str) -> list[Object]:
        """The pods of a Job, the oldest first."""
        pods = self.api.items("v1", "Pod", "kube-chores", labelSelector=f"batch.kubernetes.io/job-name={name}")
        return sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def running(self, name: str) -> Object:
        """The one pod of a Job, once it runs."""
        wait_for(lambda: [pod["status"]["phase"] for pod in self.pods(name)] == ["Running"], f"the pod of {name}", 30)
        return self.pods(name)[0]

    def exit_codes(self, name: str) -> list[int | None]:
        """How the pods of a Job ended, in order."""
        return [exit_code(pod) for pod in self.pods(name)]

    def ended(self, name: str) -> str:
        """How a Job ended, Complete or the reason for its failure; empty while it goes on."""
        found = self.api.call("GET", f"/apis/batch/v1/namespaces/kube-chores/jobs/{name}")
        for one in found.get("status", {}).get("conditions", []):
            if one["status"] == "True" and one["type"] in ("Complete", "Failed"):
                return "Complete" if one["type"] == "Complete" else str(one["reason"])
        return ""

    def end(self, name: str, seconds: float = 60) -> str:
        """Wait for a Job to end; Complete, or the reason for its failure."""
        wait_for(lambda: self.ended(name), f"Job {name} to end", seconds)
        return self.ended(name)

    def log(self, name: str) -> str:
        """What the pods of a Job said."""
        return self.kubectl(f"logs -n kube-chores -l batch.kubernetes.io/job-name={name} --tail=-1")


def exit_code(pod: Object) -> int | None:
    """How the pod's container ended, if it has."""
    statuses = pod["status"].get("containerStatuses", [])
    return next((one["state"]["terminated"]["exitCode"] for one in statuses if "terminated" in one["state"]), None)
