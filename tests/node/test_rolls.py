"""Pods of a workload restart once when their config changed, and not before."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.apis import Api, Object, wait_for
from tests.canary import canary
from tests.node.conftest import Figure
from tests.node.kubectl import Jobs, Kubectl
from tests.workloads import FROM_A_VOLUME, rollouts, workload
from tests.worlds import configmap, encoded, secret

pytestmark = pytest.mark.node
IMAGE = "localhost/pause:1"
AT_ONCE = {"CHORES_SETTLE": "0", "CHORES_COOL_DOWN": "0", "CHORES_MAX_ROLLS": "50"}
LATER = {"CHORES_SETTLE": "0", "CHORES_COOL_DOWN": "3600"}
FIVE = [f"settings-{number}" for number in range(5)]
# The sources that pods use, by kind and name of the workload.
PODS: dict[tuple[str, str], Object] = {
    ("Deployment", "file"): FROM_A_VOLUME,
    ("Deployment", "server-side"): FROM_A_VOLUME,
    ("Deployment", "variable"): {
        "container": {"env": [{"name": "USER", "valueFrom": {"secretKeyRef": {"name": "login", "key": "user"}}}]}
    },
    ("Deployment", "init"): {
        "initContainers": [
            {
                "name": "init",
                "image": IMAGE,
                "command": ["/busybox", "true"],
                "envFrom": [{"secretRef": {"name": "login"}}],
            }
        ]
    },
    ("StatefulSet", "projected"): {
        "volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": "settings"}}]}}]
    },
    ("DaemonSet", "agent"): FROM_A_VOLUME,
    ("Deployment", "optional"): {"volumes": [{"name": "v", "configMap": {"name": "to-come", "optional": True}}]},
    ("Deployment", "five"): {"volumes": [{"name": name, "configMap": {"name": name}} for name in FIVE]},
    ("Deployment", "unused-key"): {
        "container": {"env": [{"name": "B", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "b"}}}]}
    },
}
ROLLED = {name for _, name in PODS} - {"unused-key"}


def sleeping(space: str, kind: str, name: str, uses: Object) -> Object:
    """Return a workload with one idle pod."""
    manifest = workload(space, name, kind, pod=uses)
    pod = manifest["spec"]["template"]["spec"]
    pod["containers"][0]["image"] = IMAGE
    pod["terminationGracePeriodSeconds"] = 0
    if kind != "DaemonSet":
        manifest["spec"]["replicas"] = 1
    return manifest


def pods(api: Api, space: str) -> dict[str, set[str]]:
    """Return the uids of pods by workload, without pods that are being deleted."""
    found: dict[str, set[str]] = {}
    for pod in api.items("v1", "Pod", space):
        if "deletionTimestamp" not in pod["metadata"]:
            found.setdefault(pod["metadata"]["labels"]["app"], set()).add(pod["metadata"]["uid"])
    return found


def counted(api: Api, manifests: Sequence[Object]) -> dict[str, int]:
    """Return the number of rollouts of each workload."""
    found = [api.get(each) for each in manifests]
    return {each["metadata"]["name"]: rollouts(api, each) for each in found if each}


def test_pods_restart_once_when_their_config_changed(
    api: Api, jobs: Jobs, kubectl: Kubectl, tmp_path: Path, figure: Figure
) -> None:
    space = api.namespace("shop")
    for name in ("settings", *FIVE):
        api.create(configmap(space, name))
    api.create(secret(space))
    manifests = [sleeping(space, kind, name, uses) for (kind, name), uses in PODS.items()]
    for each in manifests:
        apply(kubectl, tmp_path, each)
        api.made(each)
    all_rolled_out(kubectl, manifests)
    at_first = pods(api, space)

    ran(jobs, "key")  # the first run of an installation writes it, and the next one continues
    ran(jobs, "record")
    assert ran(jobs, "recorded").endswith(f" {len(PODS)} unchanged ({len(PODS)} workloads, 8 sources)")
    assert pods(api, space) == at_first, "installing the job restarts nothing"

    for name in ("settings", *FIVE):
        api.patch(configmap(space, name), {"data": {"a": "changed"}})
    api.patch(secret(space), {"data": {"user": encoded(canary())}})
    api.create(configmap(space, "to-come"))
    last_line = ran(jobs, "roll")
    assert last_line.endswith(f" {len(ROLLED)} restarted, 1 unchanged ({len(PODS)} workloads, 8 sources)"), last_line
    all_rolled_out(kubectl, manifests)
    wait_for(lambda: [len(each) for each in pods(api, space).values()] == len(PODS) * [1], "the old pods to be deleted")

    assert counted(api, manifests) == {name: 1 + (name in ROLLED) for _, name in PODS}
    now = pods(api, space)
    assert {name for name in now if now[name] != at_first[name]} == ROLLED
    assert kubectl(f"exec deployment/file -n {space} -- /busybox cat /config/a") == "changed"
    assert "configmap/settings changed" in kubectl(f"describe deployment/file -n {space}")

    assert ran(jobs, "again").endswith(f" {len(PODS)} unchanged ({len(PODS)} workloads, 8 sources)")
    for each in manifests:
        apply(kubectl, tmp_path, each)
    all_rolled_out(kubectl, manifests)
    assert ran(jobs, "after-apply").endswith(f" {len(PODS)} unchanged ({len(PODS)} workloads, 8 sources)")
    assert pods(api, space) == now, "applying the same manifests again restarts nothing"
    assert counted(api, manifests) == {name: 1 + (name in ROLLED) for _, name in PODS}

    # The older baseline is restored with the older template of a Deployment; other kinds restore only the template.
    kubectl(f"rollout undo deployment/file -n {space}")
    kubectl(f"rollout undo daemonset/agent -n {space}")
    all_rolled_out(kubectl, manifests)
    assert ran(jobs, "after-undo").endswith(
        f" 1 restarted, {len(PODS) - 1} unchanged ({len(PODS)} workloads, 8 sources)"
    )
    all_rolled_out(kubectl, manifests)
    assert ran(jobs, "at-last").endswith(f" {len(PODS)} unchanged ({len(PODS)} workloads, 8 sources)")


# A program that reads its config once: with a bad config it runs, but never becomes ready.
READS_ONCE = '[ "$(/busybox cat /config/a)" = bad ] || /busybox touch /ready; exec /busybox sleep 1000000'


def read_once(space: str, kind: str, name: str) -> Object:
    manifest = sleeping(space, kind, name, FROM_A_VOLUME)
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    container["command"] = ["/busybox", "sh", "-c", READS_ONCE]
    ready = {"exec": {"command": ["/busybox", "test", "-e", "/ready"]}}
    container["readinessProbe"] = {**ready, "periodSeconds": 1, "timeoutSeconds": 10}
    return manifest


def test_the_fix_of_a_stuck_rollout_is_rolled(api: Api, jobs: Jobs, kubectl: Kubectl, figure: Figure) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    web, db = [
        api.create(read_once(space, kind, name)) for kind, name in (("Deployment", "web"), ("StatefulSet", "db"))
    ]
    all_rolled_out(kubectl, [web, db])
    assert "2 annotated" in ran(jobs, "record", LATER)
    api.patch(source, {"data": {"a": "bad"}})
    assert "2 restarted" in ran(jobs, "roll", LATER)
    wait_for(lambda: [is_stuck(api, each) for each in (web, db)] == [True, True], "the rollouts to be stuck")
    assert "2 rollout-incomplete" in ran(jobs, "rollout-incomplete", LATER)
    assert "RolloutIncomplete" in kubectl(f"describe deployment/web -n {space}")

    began = time.monotonic()
    api.patch(source, {"data": {"a": "good"}})
    assert "2 restarted" in ran(jobs, "fix", LATER)
    all_rolled_out(kubectl, [web])
    figure(f"a Deployment was available {time.monotonic() - began:.1f} s after the fix of its config")

    remedy = f"find it with kubectl get pods -n {space} -l statefulset.kubernetes.io/pod-name, then delete it"
    assert remedy in jobs.log("fix")
    assert "1 rollout-stuck" in ran(jobs, "rollout-stuck", LATER)
    assert remedy in jobs.log("rollout-stuck")
    assert is_stuck(api, db)
    kubectl(f"delete pod db-0 -n {space}")
    all_rolled_out(kubectl, [db])
    figure(f"a StatefulSet was available {time.monotonic() - began:.1f} s after it, once its pod was deleted")
    assert "2 unchanged" in ran(jobs, "at-last", LATER)


def is_stuck(api: Api, workload: Object) -> bool:
    """Whether the only new pod was created and is not available."""
    status = api.read(workload)["status"]
    if workload["kind"] == "Deployment":
        return bool(status.get("unavailableReplicas") and status.get("updatedReplicas"))
    return bool(status["updateRevision"] != status["currentRevision"] and not status.get("availableReplicas"))


def apply(kubectl: Kubectl, folder: Path, manifest: Object) -> None:
    """Apply with kubectl; workload `server-side` with server-side apply."""
    file = folder / "manifest.json"
    file.write_text(json.dumps(manifest))
    kubectl(f"apply {'--server-side ' if manifest['metadata']['name'] == 'server-side' else ''}-f {file}")


def all_rolled_out(kubectl: Kubectl, manifests: Sequence[Object]) -> None:
    for each in manifests:
        about = each["metadata"]
        kubectl(f"rollout status {each['kind'].lower()}/{about['name']} -n {about['namespace']} --timeout=100s")


def ran(jobs: Jobs, name: str, env: dict[str, str] = AT_ONCE) -> str:
    """Run a Job of the CronJob to completion with `env`; return the last line of its log."""
    jobs.create(name, of="roll-workloads", env=env)
    assert jobs.end(name) == "Complete", jobs.log(name)
    return jobs.log(name).strip().splitlines()[-1]
