"""The project's image: its size, its user, and its start time in a pod."""

import json
import tarfile
from datetime import datetime

import pytest

from tests.apis import Api
from tests.control_plane import audit_events
from tests.node.conftest import Figure
from tests.node.kubectl import Jobs
from tests.one_node import Node, images
from tests.worlds import at, configmap, content, rule

pytestmark = pytest.mark.node
MB = 10**6


def test_the_image_adds_little_to_its_base_and_only_what_pods_need(node: Node, figure: Figure) -> None:
    with tarfile.open(images()[-1]) as archive:
        manifest = archive.extractfile("manifest.json")
        assert manifest
        (image,) = json.load(manifest)
        *base, added = [archive.getmember(layer) for layer in image["Layers"]]
        with tarfile.open(fileobj=archive.extractfile(added)) as layer:
            modules = {name for name in layer.getnames() if name.startswith("app/") and name.endswith(".py")}
            packages = {name.partition("/site-packages/")[2].partition("/")[0] for name in layer.getnames()}
            bytecode = {each.name: layer.extractfile(each) for each in layer if each.name.endswith(".pyc")}
            of_python = sum(each.size for each in layer if each.name.startswith("usr/lib/python3")) / MB
            depends_on_times = [name for name, file in bytecode.items() if file and file.read(8)[4:] == bytes(4)]
    sizes = [each.size / MB for each in (*base, added)]
    figure(
        f"image: {sizes[-1]:.0f} MB on a base of {sum(sizes[:-1]):.0f} MB, uncompressed, {of_python:.0f} of Python's"
    )
    assert len(sizes) == 2
    assert sizes[-1] - of_python < 60, "without the bytecode of Python itself, which some bases lack"
    assert {"jobs", "cronjobs", "pycurl"} <= packages
    assert not packages & {"pip", "setuptools", "kubesandbox", "kubernetes", "tests"}
    assert sum(name.startswith("app/") for name in bytecode) == len(modules) > 300
    assert depends_on_times == [], "not valid after a tool sets or rounds the times of files (PEP 552)"


def test_it_runs_as_any_user_with_a_read_only_root(api: Api, jobs: Jobs) -> None:
    home, team = api.namespace("home"), api.namespace("team")
    source = api.create(configmap(home))
    api.create(rule("settings", home, team))
    try_to_write = "for place in / /app /tmp /home /var/tmp; do touch $place/x; done"

    job = jobs.template("any-user")
    pod = job["spec"]["template"]["spec"]
    pod["securityContext"] |= {"runAsUser": 1000670000, "runAsGroup": 0}
    pod["containers"][0]["command"] = ["sh", "-c", f"id -u; {try_to_write}; exec chores sync-copies"]
    jobs.start(job)

    assert jobs.end("any-user") == "Complete"
    log = jobs.log("any-user")
    assert "1000670000" in log.splitlines()  # stdout and stderr are mixed in any order
    assert log.count("Read-only file system") == 5
    assert content(api.get(at(team, source))) == content(source)


def test_a_run_sends_its_first_request_soon(node: Node, api: Api, jobs: Jobs, figure: Figure) -> None:
    seconds = sorted(first_request(node, jobs, f"start-{number}") for number in range(3))
    figure(f"from exec in the pod to the first request: {', '.join(f'{each:.2f}' for each in seconds)} s")
    assert seconds[0] < 5


def first_request(node: Node, jobs: Jobs, name: str) -> float:
    """Return the seconds from the program's start until the API server received its first request."""
    start = node.plane.audit_log.stat().st_size
    jobs.create(name, command=["sh", "-c", "date +%s.%N; exec chores sync-copies"])
    assert jobs.end(name) == "Complete"
    began = float(jobs.log(name).splitlines()[0])
    user = "system:serviceaccount:kube-chores:sync-copies"
    events = [event for event in audit_events(node.plane.audit_log, start) if event["user"]["username"] == user]
    received = datetime.fromisoformat(events[0]["requestReceivedTimestamp"].replace("Z", "+00:00"))
    return received.timestamp() - began
