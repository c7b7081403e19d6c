"""sync-copies --clusters with a hub and two spokes: a kill or a fault at each request to any of the three.

`make test` tries a fifth of the requests, and CI all of them: tests/sweeps.py.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.kit.run import clusters
from kubesandbox import Fault, Request, Sandbox
from kubesandbox.api.bootstrap import become_another
from kubesandbox.schema.resources import NAMESPACES
from tests import canary, embedded
from tests.apis import Api, sandbox_api
from tests.every_job.sync_copies import STAMP, objects, rules
from tests.fault_world import State, World, differing, is_write, killed, metadata, resource_of
from tests.sweeps import sampled
from tests.worlds import at, configmap, encoded, namespace_object, rule, secret

pytestmark = pytest.mark.usefixtures("quick")

Object = dict[str, Any]
HUB = "kubechores.dev/hub"
ENV = {"KUBE_CHORES_CLUSTERS": "*"}
SERVERS = ("hub", "one", "two")
FIXED = {"copy": "fixed"}
WRITES = {"conflict": 1, "configured": 7, "replaced": 2, "created": 7, "deleted": 6, "unchanged": 3}
OTHER_HUB = {**STAMP, HUB: "11111111-2222-3333-4444-555555555555"}
FAULTS: Mapping[str, Mapping[str, Any]] = {
    "reset before": {"kind": "reset-before"},
    "reset after": {"kind": "reset-after"},
    "500": {"status": 500},
    "401": {"status": 401},
    "403": {"status": 403},
    "truncated": {"kind": "truncate"},
}


@dataclass(frozen=True)
class Fleet:
    """The hub and the spokes, which are being served, by name."""

    worlds: Mapping[str, World]

    @property
    def hub(self) -> World:
        return self.worlds["hub"]

    def state(self, name: str) -> State:
        """The copies of a server without uids and versions, and other objects whole; of the hub, statuses of rules."""
        found = objects(self.worlds[name])
        copies = {key: {**each, "metadata": metadata(each, "labels", "annotations")} for key, each in found.items()}
        if name != "hub":
            return {key: copies[key] if _is_of_hub(each) else each for key, each in found.items()}
        return {key: _status(each) for key, each in rules(self.hub).items()}

    def states(self) -> dict[str, State]:
        return {name: self.state(name) for name in SERVERS}

    def writes(self) -> int:
        return sum(len(each.writes()) for each in self.worlds.values())

    def run_killed(self, name: str, number: int, when: str) -> bool:
        """Run in a process that dies at this request to a server; return whether it did."""
        return killed(self.hub.run, self.worlds[name].sandbox, number, when)


@dataclass(frozen=True)
class Built:
    """A fleet in which a run has writes of each kind in both spokes, and such a run without a fault."""

    templates: Mapping[str, Sandbox]
    folder: Path
    traces: Mapping[str, Sequence[Request]]
    end: Mapping[str, State]

    @contextmanager
    def serve(self) -> Iterator[Fleet]:
        """A fleet of its own that begins as this one was built."""
        with ExitStack() as stack:
            served = {
                name: stack.enter_context(_same_cluster(each, name != "hub")) for name, each in self.templates.items()
            }
            _enlist(sandbox_api(served["hub"], self.folder), served)
            yield Fleet({name: World(each, "sync-copies", ENV) for name, each in served.items()})

    def requests(self) -> list[tuple[str, int]]:
        """All requests of the run without a fault: the server, and the number of the request there."""
        return [(name, number) for name in SERVERS for number in range(len(self.traces[name]))]

    def name(self, server: str, number: int) -> str:
        request = self.traces[server][number]
        return f"{server}: request {number}, {request.method} {request.path}"


def _same_cluster(template: Sandbox, tls: bool) -> Sandbox:
    """A copy that is the same cluster, and not another one with the same objects."""
    made = Sandbox(of=template, tls=tls)
    store = made.cluster.store
    system = template.cluster.store.get(NAMESPACES, "", "kube-system")
    assert system
    with store.lock:
        store.put(NAMESPACES, system.obj)
    return made


def _is_of_hub(obj: Object) -> bool:
    labels = obj["metadata"].get("labels") or {}
    return STAMP.items() <= labels.items() and labels.get(HUB, OTHER_HUB[HUB]) != OTHER_HUB[HUB]


def _status(obj: Object) -> Object:
    status = obj.get("status", {})
    conditions = [(each["type"], each["status"], each["reason"]) for each in status.get("conditions", ())]
    clusters = [{**each, "lastRunTime": ""} for each in status.get("clusters", ())]
    pushed = {**status.get("pushed", {})}
    pushed["clusters"] = [{**each, "lastRunTime": ""} for each in pushed.get("clusters", ())]
    return {"conditions": conditions, "clusters": clusters, "pushed": pushed}


def _enlist(hub: Api, served: Mapping[str, Sandbox]) -> None:
    for name, each in served.items():
        if name == "hub":
            continue
        entry, authority = canary.canary(), encoded(each.authority.decode())
        config = {
            "clusters": [{"name": entry, "cluster": {"server": each.url, "certificate-authority-data": authority}}],
            "users": [{"name": entry, "user": {"token": each.admin_token}}],
            "contexts": [{"name": entry, "context": {"cluster": entry, "user": entry}}],
        }
        labels, data = {"kubechores.dev/cluster": "true"}, {"value": encoded(yaml.safe_dump(config))}
        made = secret("kube-chores", name, labels=labels, data=data)
        hub.patch(made, {"data": data}) if hub.get(made) else hub.create(made)


def _first(apis: Mapping[str, Api]) -> None:
    hub = apis["hub"]
    hub.create(namespace_object("home"))
    for name in ("one", "two"):
        for namespace in ("team-a", "team-b"):
            apis[name].create(namespace_object(namespace))
        apis[name].create(configmap("team-a", "unrelated"))
        apis[name].create(configmap("team-a", "of-another-hub", labels=OTHER_HUB))
        apis[name].create(configmap("team-b", "of-the-spoke", labels=STAMP))
    for name in ("settings", "theme", "withdrawn"):
        hub.create(configmap("home", name))
    hub.create(configmap("home", "fixed", labels=FIXED, immutable=True, data={"a": "1"}))
    hub.create(secret("home", "login"))
    hub.create(secret("home", "old"))
    hub.create(_fleet_rule("settings", "team-*"))
    hub.create(_fleet_rule("fixed", "team-a", selector={"matchLabels": FIXED}))
    hub.create(_fleet_rule("logins", "team-a", ruleType="secret", names=["login"]))
    hub.create(_fleet_rule("old", "team-b", ruleType="secret", names=["old"]))


def _fleet_rule(name: str, to: str, **spec: Any) -> Object:
    made = rule(name, "home", to, **spec)
    made["spec"]["targets"]["clusters"] = {}
    return made


def _change(apis: Mapping[str, Api]) -> None:
    hub = apis["hub"]
    hub.patch(configmap("home", "settings"), {"data": {"a": "new", "b": None}})
    apis["one"].patch(at("team-a", configmap("home", "theme")), {"data": {"a": "by hand"}})
    hub.delete(configmap("home", "withdrawn"))
    hub.delete(configmap("home", "fixed"))
    hub.create(configmap("home", "fixed", labels=FIXED, immutable=True, data={"a": "2"}))
    hub.patch(secret("home", "login"), {"data": {"password": encoded(canary.canary())}})
    hub.delete(rule("old", "", ""))
    for name in ("fresh", "taken"):
        hub.create(configmap("home", name))
    apis["two"].create(configmap("team-a", "taken", labels={}))


@pytest.fixture(scope="module")
def in_turn(quick: None) -> Iterator[None]:
    """Visit one cluster at a time. Else one may use what was read for another, and the number of requests varies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clusters, "AT_ONCE", 1)
        yield


@pytest.fixture(scope="module")
def built(in_turn: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    folder = tmp_path_factory.mktemp("fleet")
    with ExitStack() as stack:
        served = {name: stack.enter_context(Sandbox(of=embedded.installed(), tls=name != "hub")) for name in SERVERS}
        for name in SERVERS:
            (folder / name).mkdir()
        apis = {name: sandbox_api(each, folder / name) for name, each in served.items()}
        _enlist(apis["hub"], served)
        _first(apis)
        ran = World(served["hub"], "sync-copies", ENV).run()
        assert (ran.exit_code, ran.summary) == (0, {"created": 18}), ran
        _change(apis)
        templates = {name: _same_cluster(each, False) for name, each in served.items()}
    undisturbed = Built(templates, folder, {}, {})
    with undisturbed.serve() as fleet:
        ran = fleet.hub.run()
        assert ran.exit_code == 0, ran
        assert ran.summary == WRITES, ran
        yield Built(templates, folder, {name: fleet.worlds[name].requests() for name in SERVERS}, fleet.states())


def sweep(built: Built, requests: Sequence[tuple[str, int]], disturb: Any) -> dict[str, object]:
    """Disturb a run at each of these requests, run again; return what was wrong, by request."""
    wrong: dict[str, object] = {}
    for server, number in requests:
        with built.serve() as fleet:
            found = [*disturb(fleet, server, number), *wrong_afterwards(built, fleet)]
        if found:
            wrong[built.name(server, number)] = found
    return wrong


def wrong_afterwards(built: Built, fleet: Fleet) -> Iterator[object]:
    """Yield what is wrong after the next run, and after one more, which has nothing to write."""
    ran = fleet.hub.run()
    if ran.exit_code != 0:
        yield ran
    yield from wrong_states(built, fleet, SERVERS)
    for _ in range(2):  # one run in ten minutes writes the time of the last run
        writes = fleet.writes()
        fleet.hub.run()
        if fleet.writes() == writes:
            break
    else:
        yield "runs after the next one write"
    for name in SERVERS:
        yield from (f"{name}: {each} was deleted" for each in deleted(fleet.worlds[name].requests(), built, name))


def wrong_states(built: Built, fleet: Fleet, servers: Sequence[str]) -> Iterator[object]:
    for name in servers:
        yield from ((name, key) for key in differing(fleet.state(name), built.end[name]))


def deleted(requests: Sequence[Request], built: Built, name: str) -> set[str]:
    """The paths that these requests delete and a run without a fault does not."""
    return _deletes(requests) - _deletes(built.traces[name])


def _deletes(requests: Sequence[Request]) -> set[str]:
    return {each.path for each in requests if each.method == "DELETE"}


def report(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with capsys.disabled():
        print(f"\n{text}")  # noqa: T201 - visible without -s


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_next_run_completes_the_writes_of_a_killed_run(
    built: Built, capsys: pytest.CaptureFixture[str], when: str
) -> None:
    def disturb(fleet: Fleet, server: str, number: int) -> list[object]:
        return [] if fleet.run_killed(server, number, when) else ["it ended by itself"]

    requests = sampled([each for each in built.requests() if is_write(built.traces[each[0]][each[1]])])
    wrong = sweep(built, requests, disturb)

    report(capsys, f"{len(requests)} runs for two clusters killed {when} a write")
    assert wrong == {}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_run_or_the_next_recovers_from_a_fault_of_any_server(
    built: Built, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    codes: Counter[int] = Counter()

    def disturb(fleet: Fleet, server: str, number: int) -> Iterator[object]:
        fleet.worlds[server].sandbox.inject(Fault(skip=number, **FAULTS[fault]))
        ran = fleet.hub.run()
        fleet.worlds[server].sandbox.clear_faults()
        codes[int(ran.exit_code)] += 1
        if ran.exit_code not in (0, 1, 2):
            yield ran
        if ran.exit_code == 0 and fault not in ("401", "403"):
            yield from wrong_states(built, fleet, SERVERS)
        if server != "hub":  # it delays no other
            yield from wrong_states(built, fleet, [each for each in SERVERS if each not in ("hub", server)])

    requests = sampled(built.requests())
    wrong = sweep(built, requests, disturb)

    report(capsys, f"{len(requests)} runs for two clusters with {fault}: exit codes {dict(codes)}")
    assert wrong == {}


def test_overlapping_runs_have_the_same_result_as_one_run(built: Built) -> None:
    def disturb(fleet: Fleet, server: str, number: int) -> list[object]:
        with fleet.hub.run_elsewhere() as run:
            fleet.worlds[server].sandbox.inject(Fault(kind="call-before", call=run, skip=number))
            ran = fleet.hub.run()
        return [] if ran.exit_code == 0 else [ran]

    assert sweep(built, sampled(built.requests()), disturb) == {}


def test_a_cluster_that_is_replaced_during_a_run_gets_nothing_more(built: Built) -> None:
    wrong: dict[str, object] = {}

    for server, number in sampled([each for each in built.requests() if each[0] != "hub"]):
        of_namespaces = [n for n, each in enumerate(built.traces[server]) if each.path == "/api/v1/namespaces"]
        last = [n for n in of_namespaces if "continue" not in built.traces[server][n].query][-1]
        with built.serve() as fleet:
            spoke = fleet.worlds[server]
            spoke.sandbox.inject(Fault(kind="call-before", call=partial(_replace, spoke.sandbox), skip=number))
            fleet.hub.run()
            writes = len(spoke.writes())
            found: list[object] = [f"{writes} writes"] if writes and number <= last else []
            ran = fleet.hub.run()
            found += [] if ran.summary.get("replaced") == 1 else [ran]
            found += spoke.writes()[writes:]
        if found:
            wrong[built.name(server, number)] = found

    assert wrong == {}


def _replace(sandbox: Sandbox) -> None:
    with sandbox.cluster.store.lock:
        become_another(sandbox.cluster)


@pytest.mark.parametrize("status", [403, 500])
def test_a_list_that_always_fails_deletes_nothing_that_depends_on_it(built: Built, limit: Any, status: int) -> None:
    limit(retry_seconds=0)
    wrong: dict[str, object] = {}
    lists = {(name, each.path) for name in SERVERS for each in built.traces[name] if "limit" in each.query}

    for server, path in sampled(sorted(lists)):
        with built.serve() as fleet:
            fleet.worlds[server].sandbox.inject(Fault("GET", path, status=status, times=None))
            before = fleet.states()
            ran = fleet.hub.run()
            fleet.worlds[server].sandbox.clear_faults()
            concerned = [each for each in SERVERS if server in ("hub", each)]
            found: list[object] = [] if ran.exit_code in (1, 2) else [ran]
            found += [key for each in concerned for key in before[each].keys() - fleet.state(each).keys()]
            if server != "hub":
                plural = path.rpartition("/")[2]
                found += [each for each in fleet.worlds[server].writes() if resource_of(each) == plural]
            found += wrong_afterwards(built, fleet)
        if found:
            wrong[f"{server}: {path}"] = found

    assert wrong == {}
