"""A run with a thousand namespaces stays within the memory limit of the manifests.

Last in the alphabet: it does not delete its namespaces, which would take a minute, since the cluster ends then.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.apis import real_api
from tests.node.conftest import Figure
from tests.node.kubectl import Jobs, Kubectl
from tests.one_node import Node
from tests.worlds import configmap, rule

pytestmark = [pytest.mark.node, pytest.mark.usefixtures("_installed")]
MIB = 2**20
# The highest resident memory of the run, and the highest use that the limit counts, which includes the page cache.
MEASURE = """
import pathlib, resource, subprocess, sys
code = subprocess.call(["chores", "sync-copies", *sys.argv[1:]])
counted = [*pathlib.Path("/sys/fs/cgroup").glob("memory/memory.max_usage_in_bytes")]
counted += pathlib.Path("/sys/fs/cgroup").glob("memory.peak")
print("peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, counted[0].read_text().strip())
sys.exit(code)
"""


def test_the_memory_limit_is_enough_for_a_thousand_namespaces(
    node: Node, kubectl: Kubectl, tmp_path: Path, figure: Figure
) -> None:
    api = real_api(node.plane, tmp_path)
    jobs = Jobs(api, kubectl)
    home = api.namespace("home")
    api.create(configmap(home))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: api.namespace(f"many-{number}"), range(1000)))
    api.create(rule("settings", home, f"many-*-{api.token}"))

    for what, summary, arguments in (
        ("that copies", "1000 created", []),
        ("that changes nothing", "1000 unchanged", []),
        ("that reads everything", "1000 unchanged", ["--verify=content"]),
    ):
        name = f"many-{len(arguments)}-{summary.split()[1]}"
        job = jobs.create(name, command=["python3", "-c", MEASURE, *arguments])
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert container["resources"]["limits"]["memory"] == "128Mi"
        assert jobs.end(name, 120) == "Complete"
        log = jobs.log(name)
        assert summary in log
        found = re.search(r"^peak (\d+) (\d+)$", log, re.M)
        assert found
        resident, counted = (int(number) / MIB for number in found.groups())
        assert resident < 96
        figure(f"1,000 namespaces, a run {what}: {resident:.1f} MiB resident, {counted:.1f} MiB counted by the limit")
