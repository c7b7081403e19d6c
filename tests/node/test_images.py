"""mirror-audit --images with a real registry, and pods that pull from it."""

import itertools
import json
from pathlib import Path

import pytest

from tests.apis import Api, Object, wait_for
from tests.canary import canary
from tests.image_registries import cron_job, namespace, pull_login, spec
from tests.manifests import ROOT
from tests.node.conftest import Figure
from tests.node.kubectl import Jobs, Kubectl
from tests.one_node import UPSTREAM, Node
from tests.upstream import Login, upstream

pytestmark = pytest.mark.node
_numbers = itertools.count(1)
RIGHTS = ROOT / "cronjobs" / "components" / "images"


def check(api: Api, jobs: Jobs, host: str) -> list[tuple[str, str]]:
    """Run mirror-audit --images in a pod that trusts the registry; return the codes and images of its findings."""
    metadata = {"name": "upstream", "namespace": "kube-chores"}
    api.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.crt": UPSTREAM.read_text()}})
    name = f"images-{next(_numbers)}"
    job = jobs.template(name, "mirror-audit")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container["args"] += ["--images", "-o", "json"]
    container.setdefault("env", []).append({"name": "REQUESTS_CA_BUNDLE", "value": "/upstream/ca.crt"})
    container.setdefault("volumeMounts", []).append({"name": "upstream", "mountPath": "/upstream"})
    pod.setdefault("volumes", []).append({"name": "upstream", "configMap": {"name": "upstream"}})
    jobs.start(job)
    assert jobs.end(name, 120) == "Complete", jobs.log(name)
    log = jobs.log(name)
    report = json.loads(log[log.index("{\n") : log.rindex("}") + 1])
    found = [(each["code"], each["object"]["name"]) for each in report["results"]]
    return [(code, image.removeprefix(f"{host}/")) for code, image in found if image.startswith(host)]


def test_images_of_a_registry_that_requires_a_login_are_compared_with_what_pods_run(
    node: Node, api: Api, kubectl: Kubectl, jobs: Jobs, tmp_path: Path, figure: Figure
) -> None:
    files = f"-f {RIGHTS / 'rbac.yaml'} -f {RIGHTS / 'secrets' / 'rbac.yaml'}"
    kubectl(f"apply {files}")
    team, login = namespace(api, "team"), Login("robot", canary())
    secrets = [{"name": "login"}]
    try:
        with upstream(node, tmp_path / "registry", login) as registry:
            pull_login(api, team, registry.host, (login.user, login.password))
            images = {name: registry.push(name, index=name == "index") for name in ("single", "index")}
            for name, image in images.items():
                running(api, start(api, team, name, image, imagePullSecrets=secrets))
            cron_job(api, team, "nightly", f"{registry.host}/single:2", imagePullSecrets=secrets)

            assert check(api, jobs, registry.host) == [("image-missing", "single:2")]

            for name in images:
                registry.push(name, index=name == "index")
            moved = [("image-moved", "index:1"), ("image-moved", "single:1"), ("image-missing", "single:2")]
            assert check(api, jobs, registry.host) == moved
            registry.delete(images["single"])
            gone = [("image-moved", "index:1"), ("image-missing", "single:1"), ("image-missing", "single:2")]
            assert check(api, jobs, registry.host) == gone
            figure(
                "an audit compares tags with what containerd runs, behind a login: " + ", ".join(map(" ".join, gone))
            )
    finally:
        kubectl(f"delete {files}")


def start(api: Api, team: str, name: str, image: str, **fields: object) -> Object:
    metadata = {"name": name, "namespace": team}
    given = spec(image, terminationGracePeriodSeconds=0, **fields)
    return api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": given})


def running(api: Api, pod: Object) -> None:
    name = pod["metadata"]["name"]
    wait_for(lambda: api.read(pod)["status"]["phase"] == "Running", f"pod {name}", 60)
