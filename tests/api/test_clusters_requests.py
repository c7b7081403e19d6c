"""The exact number of requests of sync-copies --clusters, counted by the servers of the hub and of each cluster.

And what a run keeps in memory of a cluster that it has visited.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs import sync_copies_clusters
from jobs.kit.run.clusters import Visited, visit
from jobs.kit.values.model import Body
from kubesandbox import Sandbox
from tests import embedded
from tests.api.conftest import Run, runs
from tests.api.test_clusters import Spoke, enlist, fleet
from tests.apis import Api, Request, sandbox_api
from tests.worlds import configmap, namespace_object

# What a run that writes nothing reads in the hub: the namespace of -n; the inventory, which are Secrets and
# ClusterProfiles; the uid of the hub; rules, namespaces and sources.
OF_HUB = 7
# What it requests in each cluster: its uid, the rights on kinds without rules, copies of two kinds, and namespaces.
OF_SPOKE = {"GET": 4, "POST": 1}

Spokes = Callable[[int], list[Spoke]]


class OfHub(Spoke):
    """A cluster in which the hub has the rights of cronjobs/spoke."""

    def kubeconfig(self) -> str:
        config = yaml.safe_load(super().kubeconfig())
        (user,) = config["users"]
        user["user"] = {"token": self.api.service_account_token("kube-chores", "sync-copies-hub")}
        return yaml.safe_dump(config)


@pytest.fixture
def spokes(api: Api, installed: Path, tmp_path: Path) -> Iterator[Spokes]:
    """Start clusters with two target namespaces, in the inventory of the hub."""
    with ExitStack() as stack:

        def start(number: int) -> list[Spoke]:
            made: list[Spoke] = []
            for index in range(number):
                sandbox = stack.enter_context(Sandbox(of=embedded.installed(), tls=True))
                folder = tmp_path / str(index)
                folder.mkdir()
                made.append(OfHub(f"spoke-{index}-{api.token}", sandbox, sandbox_api(sandbox, folder)))
                for name in ("team-a", "team-b"):
                    made[-1].api.create(namespace_object(name))
                enlist(api, made[-1])
            return made

        yield start


@pytest.fixture
def push(api: Api, installed: Path) -> Run:
    """Run sync-copies for the clusters of the test."""
    run = runs("sync-copies", api.service_account_kubeconfig("kube-chores", "sync-copies-clusters"))
    return lambda *arguments: run("-n", "kube-chores", "--clusters", f"*-{api.token}", *arguments)


def methods(requests: list[Request]) -> dict[str, int]:
    """The number of requests by method."""
    found = [each.method for each in requests]
    return {each: found.count(each) for each in sorted(set(found))}


@pytest.mark.parametrize("number", [2, 5])
def test_a_converged_run_reads_the_hub_once_and_each_cluster_alike(
    api: Api, spokes: Spokes, push: Run, home: str, number: int
) -> None:
    started = spokes(number)
    api.create(configmap(home))
    api.create(fleet("settings", home, "team-*"))
    assert push().summary == {"created": 2 * number}
    for each in (api, *(spoke.api for spoke in started)):
        each.mark()

    ran = push()

    assert ran.summary == {"unchanged": 2 * number}
    assert methods(api.requests()) == {"GET": OF_HUB}
    assert [methods(each.api.requests()) for each in started] == number * [OF_SPOKE]
    assert ran.report["traffic"]["requests"] == {"GET": OF_HUB + number * OF_SPOKE["GET"], "POST": number}


@pytest.mark.parametrize("number", [2, 5])
def test_a_change_is_one_write_for_each_copy(api: Api, spokes: Spokes, push: Run, home: str, number: int) -> None:
    started = spokes(number)
    source = api.create(configmap(home))
    api.create(fleet("settings", home, "team-*"))
    push()
    api.patch(source, {"data": {"a": "changed"}})
    for each in (api, *(spoke.api for spoke in started)):
        each.mark()

    assert push().summary == {"configured": 2 * number}

    assert methods(api.requests()) == {"GET": OF_HUB}
    assert [methods(each.api.requests()) for each in started] == number * [{**OF_SPOKE, "PUT": 2}]


def test_a_run_that_deletes_reads_rules_and_sources_again_after_the_copies(
    api: Api, spokes: Spokes, push: Run, home: str
) -> None:
    started = spokes(5)
    source = api.create(configmap(home))
    api.create(fleet("settings", home, "team-*"))
    push()
    api.delete(source)
    for each in (api, *(spoke.api for spoke in started)):
        each.mark()

    assert push().summary == {"deleted": 10}

    requests = [each for each in api.requests() if each.method == "GET"]
    assert OF_HUB + 3 <= len(requests) <= OF_HUB + 3 * len(started)
    assert [methods(each.api.requests()) for each in started] == 5 * [{**OF_SPOKE, "DELETE": 2, "GET": 5}]


def test_a_run_keeps_no_body_of_a_write_of_the_clusters_that_it_has_visited(
    api: Api, spokes: Spokes, push: Run, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spokes(2)
    source = api.create(configmap(home))
    api.create(fleet("settings", home, "team-*"))
    push()
    api.patch(source, {"data": {"a": "changed"}})
    kept: list[Visited] = []

    def recorded(*given: Any) -> Visited:
        kept.append(visit(*given))
        return kept[-1]

    monkeypatch.setattr(sync_copies_clusters, "visit", recorded)

    ran = push()

    assert ran.summary == {"configured": 4}
    bodies = [each.finding.change.body for visited in kept for each in visited.results if each.finding.change]
    assert ([type(each) for each in bodies], len({id(each) for each in bodies})) == (4 * [Body], 1)
