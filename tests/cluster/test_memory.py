"""Each job within the memory limit and the deadline of its CronJob, with objects of any valid size and number.

The kernel kills a job that needs more memory.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests import canary
from tests.api.conftest import Ran
from tests.apis import Api, Object
from tests.cgroups import refused, run_limited
from tests.farm import farm_pod, farmed, listed, pod
from tests.manifests import everything
from tests.mirrors import NAMESPACE as MIRRORS
from tests.mirrors import registry_mirror
from tests.more_kinds import MORE_KINDS, NOBODY, VIEW, of_kind
from tests.rates import RatesServer, serve
from tests.workloads import roll_annotations, settle, workload
from tests.worlds import SELECTED, at, configmap, content, exchange_rate, rule

pytestmark = [pytest.mark.cluster, pytest.mark.parametrize("api", ["real"], indirect=True)]
HOSTILE = 8
WORKLOADS = 4  # each uses all large ConfigMaps; more take the server minutes
MANY = 20
# Objects of one tenant. With 10,000, the tests take minutes, and the jobs have all memory of their CronJobs.
NUMBER = int(os.environ.get("NUMBER", "400"))
MIB = 1 << 20
Limited = Callable[..., Ran]
T = TypeVar("T")


def limits_of(job: str) -> tuple[int, int]:
    """Return five eighths of the memory limit of the CronJob in bytes, and its deadline in seconds.

    To reach the whole limit, the server needs minutes.
    """
    (manifest,) = (obj for obj in everything() if (obj["kind"], obj["metadata"]["name"]) == ("CronJob", job))
    spec = manifest["spec"]["jobTemplate"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    amount: str = container["resources"]["limits"]["memory"]
    assert amount.endswith("Mi")
    return int(amount[:-2]) * MIB * (8 if NUMBER >= 10_000 else 5) // 8, spec["activeDeadlineSeconds"]


@pytest.fixture
def limited(api: Api, installed: Path, capsys: pytest.CaptureFixture[str]) -> Limited:
    """Run a job with the permissions and the memory limit of its CronJob; print its peak memory."""
    if reason := refused():
        pytest.skip(reason)

    def run(job: str, *arguments: str, **env: str) -> Ran:
        kubeconfig = api.service_account_kubeconfig("kube-chores", job)
        command = [sys.executable, "-m", "jobs", job, "-o", "json", "--kubeconfig", str(kubeconfig), *arguments]
        (memory, deadline), began = limits_of(job), time.monotonic()
        ended = run_limited(memory, command, env, deadline)
        canary.observed("its output", ended.done.stdout + ended.done.stderr)
        with capsys.disabled():
            took = f"{time.monotonic() - began:.0f} s"
            print(f"\n{job} {' '.join(arguments)}: {ended.peak / MIB:.0f} of {memory // MIB} MiB, {took}")  # noqa: T201
        assert ended.done.returncode >= 0, f"killed by signal {-ended.done.returncode}"
        return Ran(ended.done.returncode, ended.done.stdout, ended.done.stderr)

    return run


def in_parallel(make: Callable[[T], object], objects: list[T]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, objects))


def many_labels(number: int, size: int = 1_100_000) -> dict[str, str]:
    """Return labels of `size` bytes in total, different for each number."""
    value = f"v{number:02}" + "x" * 60
    return {f"k{index:06}-{number:02}": value for index in range(size // 80)}


def stamp(job: str, namespace: str = "kube-chores") -> dict[str, str]:
    labels = {"app.kubernetes.io/managed-by": "kube-chores", "kubechores.dev/job": job}
    return {**labels, "kubechores.dev/rule-namespace": namespace} if namespace else labels


def large(number: int, size: int = 900_000) -> dict[str, str]:
    """Return data of `size` bytes, different for each number."""
    return {"data": f"{number:06}" + "x" * size}


def test_stamped_objects_with_large_labels_do_not_end_sync_copies(api: Api, limited: Limited) -> None:
    home, tenant, team = api.namespace("home"), api.namespace("tenant"), api.namespace("team")
    source = api.create(configmap(home))
    forged = [configmap(tenant, f"forged-{n}", labels={**stamp("sync-copies"), **many_labels(n)}) for n in range(MANY)]
    in_parallel(api.create, forged)
    api.create(rule("memory", home, team))

    ran = limited("sync-copies")

    assert content(api.get(at(team, source))) == content(source)
    assert (ran.exit_code, ran.summary) == (0, {"created": 1})


def test_large_sources_are_copied_and_verified(api: Api, limited: Limited) -> None:
    home, teams = api.namespace("home"), [api.namespace(f"team-{n}") for n in range(2)]
    sources = [configmap(home, f"large-{n}", data=large(n)) for n in range(HOSTILE)]
    sources.append(configmap(home, "keys", data={f"k{n:06}": "" for n in range(60_000)}))
    sources.append(configmap(home, "controls", data={"a": "\x01" * 500_000}))
    sources.append(configmap(home, "wide", data={"a": "x" * 900_000 + "\N{LLAMA}"}))
    in_parallel(api.create, sources)
    api.create(rule("memory", home, f"team-*-{api.token}"))

    made = limited("sync-copies")
    for each in sources[::8]:
        api.patch(at(teams[0], each), {"data": {"data": "changed"}})
    verified = limited("sync-copies", "--verify", "content")
    again = limited("sync-copies", "--verify", "content")

    assert (made.exit_code, made.summary) == (0, {"created": len(sources) * 2})
    assert (verified.exit_code, verified.summary["configured"]) == (0, len(sources[::8]))
    assert (again.exit_code, again.summary) == (0, {"unchanged": len(sources) * 2})
    assert [each for team in teams for each in sources if content(api.get(at(team, each))) != content(each)] == []


def _large(number: int) -> dict[str, Object]:
    """Return the content of an object of each other kind: as large as etcd accepts, or as the server handles soon."""
    names = [f"n{number:02}-{'x' * 40}-{index:05}" for index in range(12_000)]
    ports = [{"ports": [{"protocol": "TCP", "port": index + 1}]} for index in range(30_000)]
    return {
        "NetworkPolicy": {"spec": {"podSelector": {"matchLabels": {"number": str(number)}}, "ingress": ports}},
        "LimitRange": {"spec": {"limits": [{"type": f"example.com/{name}"} for name in names]}},
        "ResourceQuota": {"spec": {"hard": {f"count/{name}.example.com": "1" for name in names[:1000]}}},
        "RoleBinding": {"roleRef": VIEW, "subjects": [{**NOBODY, "name": name} for name in names[:7000]]},
        "ServiceAccount": {"imagePullSecrets": [{"name": name} for name in names]},
    }


def test_large_sources_of_each_kind_are_copied_and_verified(api: Api, limited: Limited) -> None:
    home, team = api.namespace("home"), api.namespace("team")
    sources = [
        of_kind(kind, home, SELECTED, name=f"large-{n}", **_large(n)[kind]) for kind in MORE_KINDS for n in range(2)
    ]
    in_parallel(api.create, sources)
    for kind in MORE_KINDS:
        spec = {"subjectNamespace": "target"} if kind == "RoleBinding" else {}
        api.create(rule(kind.lower(), home, team, ruleType=kind.lower(), **spec))

    made = limited("sync-copies")
    for kind, (*_, change) in MORE_KINDS.items():
        api.patch(of_kind(kind, team, name="large-0"), change)
    repaired = limited("sync-copies")
    again = limited("sync-copies", "--verify", "content")

    assert (made.exit_code, made.summary) == (0, {"created": len(sources)})
    assert (repaired.exit_code, repaired.summary["configured"]) == (0, len(MORE_KINDS))
    assert (again.exit_code, again.summary) == (0, {"unchanged": len(sources)})
    assert [each for each in sources if content(api.get(at(team, each))) != content(api.get(each))] == []


def test_many_copies_of_each_kind_fit_into_the_memory_of_a_run(api: Api, limited: Limited) -> None:
    """Five times COPIES: `COPIES=10000 make test-cluster` takes minutes."""
    home, teams = api.namespace("home"), [f"team-{n}" for n in range(int(os.environ.get("COPIES", "400")) // 10)]
    in_parallel(api.namespace, teams)
    sources = [of_kind(kind, home, SELECTED, name=f"s{n}") for kind in MORE_KINDS for n in range(10)]
    in_parallel(api.create, sources)
    for kind in MORE_KINDS:
        api.create(rule(kind.lower(), home, f"team-*-{api.token}", ruleType=kind.lower()))

    made, again = limited("sync-copies"), limited("sync-copies")
    for each in sources:
        api.patch(each, MORE_KINDS[each["kind"]][1])
    changed = limited("sync-copies")

    copies = len(sources) * len(teams)
    assert (made.summary, again.summary) == ({"created": copies}, {"unchanged": copies})
    assert (changed.exit_code, changed.summary) == (0, {"configured": copies})


def test_stamped_objects_with_large_data_do_not_end_fetch_rates(api: Api, limited: Limited) -> None:
    shop, tenant = api.namespace("shop"), api.namespace("tenant")
    labels = stamp("fetch-rates", tenant)
    forged = [
        configmap(tenant, f"f-{n}", labels={**labels, **many_labels(n, 400_000)}, data=large(n, 500_000))
        for n in range(MANY)
    ]
    in_parallel(api.create, forged)
    api.create(exchange_rate(shop))

    with serve() as rates:
        ran = _fetch(limited, rates)

    assert ran.exit_code == 0, ran
    assert api.get({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": shop, "name": "usd"}})


def _fetch(limited: Limited, rates: RatesServer) -> Ran:
    return limited("fetch-rates", **rates.env())


def test_large_workloads_and_their_config_do_not_end_roll_workloads(api: Api, limited: Limited) -> None:
    space, good = api.namespace("tenant"), api.namespace("shop")
    in_parallel(api.create, [configmap(space, f"large-{n}", data=large(n)) for n in range(HOSTILE)])
    keys = {f"k{n:06}": "" for n in range(60_000)}
    for n in range(HOSTILE):  # one after another: the server takes seconds for each
        api.create(configmap(space, f"keys-{n}", data=keys))
    api.create(configmap(good))
    made = settle(api, api.create(workload(good)))
    in_parallel(api.create, [_hostile_workload(space, n) for n in range(WORKLOADS)])

    ran = limited("roll-workloads", "--settle", "0", "--cool-down", "0")

    assert roll_annotations(api.get(made))[0], "the good one has a baseline"
    assert ran.summary["annotated"] >= 1


def _hostile_workload(namespace: str, number: int) -> Object:
    volumes: list[Any] = [{"name": f"v{n}", "configMap": {"name": f"large-{n}"}} for n in range(HOSTILE)]
    env = [
        {"name": f"E{n}", "valueFrom": {"configMapKeyRef": {"name": f"keys-{n % HOSTILE}", "key": f"k{n:06}"}}}
        for n in range(1000)
    ]
    made = workload(namespace, f"web-{number}", pod={"volumes": volumes, "container": {"env": env}})
    made["metadata"]["labels"] = many_labels(number, 400_000)
    made["metadata"]["annotations"]["kubechores.dev/config-baseline"] = json.dumps(
        {"version": 1, "uid": "x", "sources": {f"s{n}-{number}": "x" * 100 for n in range(1800)}}
    )
    return made


def test_large_pods_and_farm_pods_do_not_end_farm_pods(api: Api, limited: Limited) -> None:
    shop = farmed(api)
    names = [f"p-{n:02}" for n in range(HOSTILE)]
    hostile: list[Object] = [pod(shop, name, labels=many_labels(n)) for n, name in enumerate(names)]
    labels = stamp("farm-pods", "")
    hostile += [farm_pod(shop, name, labels={**labels, **many_labels(n)}) for n, name in enumerate(names)]
    in_parallel(api.create, hostile)
    api.create(pod(shop, "good", 2))

    ran = limited("farm-pods")

    assert listed(api, shop)["farm-good"]["spec"] == {"pod": "good", "containers": 2}
    assert ran.exit_code == 0
    assert ran.summary == {"created": 1, "unreadable": HOSTILE}, "others are too large to be repaired"


def test_large_resources_do_not_end_mirror_audit(api: Api, limited: Limited) -> None:
    name = f"hub-{api.token}"
    api.create(registry_mirror(name, "registry.example.com"))
    of = {**stamp("mirror-audit", ""), "kubechores.dev/mirror": "forged"}
    hostile: list[Object] = []
    for n in range(HOSTILE):
        metadata = {"namespace": MIRRORS, "name": f"forged-{n}-{api.token}", "labels": {**of, **many_labels(n)}}
        hostile.append({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}})
        endpoints = {"addressType": "IPv4", "endpoints": [{"addresses": [f"10.1.{n}.{i}"]} for i in range(250)]}
        slices = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", **endpoints}
        hostile.append({**slices, "metadata": metadata})
    in_parallel(api.create, hostile)

    ran = limited("mirror-audit")

    assert ran.exit_code == 0
    missing = [each for each in ran.results if each["code"] == "missing" and name in str(each)]
    assert missing, "the good one is audited"
    assert sum(each["code"] == "unreadable" for each in ran.results) == HOSTILE


# One namespace with NUMBER of what its tenant may create, and what is served beside it.


def test_many_sources_and_objects_in_the_way_do_not_end_sync_copies(api: Api, limited: Limited) -> None:
    home, tenant, taken, team = (api.namespace(name) for name in ("home", "tenant", "taken", "team"))
    good = api.create(configmap(home, "good"))
    api.create(rule("good", home, team))
    limited("sync-copies")
    in_parallel(api.create, [configmap(tenant, f"s-{n}") for n in range(NUMBER)])
    in_parallel(api.create, [configmap(taken, f"s-{n}", labels={}) for n in range(NUMBER)])
    api.create(rule("tenant", tenant, [taken, team]))
    api.patch(good, {"data": {"a": "rotated"}})

    ran = limited("sync-copies")

    assert ran.summary == {"configured": 1, "created": NUMBER, "conflict": NUMBER}
    assert content(api.get(at(team, good))) == content(api.get(good))
    in_parallel(api.delete, [configmap(tenant, f"s-{n}") for n in range(NUMBER)])
    api.delete(good)
    emptied = limited("sync-copies")
    assert emptied.summary == {"deleted": 1, "orphan": NUMBER}, "only the deletions of the tenant's copies are blocked"


def test_many_exchange_rates_do_not_end_fetch_rates(api: Api, limited: Limited) -> None:
    shop, tenant = api.namespace("shop"), api.namespace("tenant")
    in_parallel(api.create, [exchange_rate(tenant, f"r-{n}") for n in range(NUMBER)])
    api.create(exchange_rate(shop))

    with serve() as rates:
        ran = _fetch(limited, rates)

    assert ran.exit_code == 0
    assert ran.summary["created"] == min(NUMBER, 1000) + 1
    assert api.get({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": shop, "name": "usd"}})


def test_many_workloads_and_sources_do_not_end_roll_workloads(api: Api, limited: Limited) -> None:
    tenant, shop = api.namespace("tenant"), api.namespace("shop")
    used = api.create(configmap(shop))
    made = settle(api, api.create(workload(shop)))
    limited("roll-workloads")
    settle(api, made)
    in_parallel(api.create, [_uses_many(tenant, n) for n in range(NUMBER)])
    api.patch(used, {"data": {"a": "changed"}})

    ran = limited("roll-workloads", "--settle", "0", "--cool-down", "0")

    assert (ran.exit_code, ran.summary["restarted"]) == (0, 1)
    assert roll_annotations(api.get(made))[1], "the good one is rolled"


def _uses_many(namespace: str, number: int) -> Object:
    """Return a workload with 40 optional references to ConfigMaps that do not exist, different for each number."""
    absent = [{"configMapRef": {"name": f"absent-{number}-{n}", "optional": True}} for n in range(40)]
    return workload(namespace, f"web-{number}", pod={"container": {"envFrom": absent}})


def test_many_pods_do_not_end_farm_pods(api: Api, limited: Limited) -> None:
    tenant, shop = farmed(api, "tenant"), farmed(api, "shop")
    in_parallel(api.create, [pod(tenant, f"p-{n}") for n in range(NUMBER)])
    api.create(pod(shop, "good"))

    ran = limited("farm-pods")

    assert ran.exit_code in (0, 4), ran.stderr
    assert "farm-good" in listed(api, shop)


def test_many_events_and_services_do_not_end_mirror_audit(api: Api, limited: Limited) -> None:
    """Tenants have no rights in the namespace of mirrors, but whoever has some may create any number there."""
    name = f"hub-{api.token}"
    mirror = api.create(registry_mirror(name, "registry.example.com"))
    about = {"kind": "RegistryMirror", "name": name, "namespace": MIRRORS, "uid": mirror["metadata"]["uid"]}
    event = {"apiVersion": "v1", "kind": "Event", "involvedObject": about, "type": "Warning", "message": "x" * 1000}
    services = {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}], "clusterIP": "None"}}
    named = [
        {"namespace": MIRRORS, "name": f"many-{n}-{api.token}", "labels": stamp("mirror-audit", "")}
        for n in range(NUMBER)
    ]
    in_parallel(api.create, [{**each, "metadata": metadata} for each in (event, services) for metadata in named])

    ran = limited("mirror-audit")

    assert ran.exit_code == 0
    assert [each for each in ran.results if each["code"] == "missing" and name in str(each)], "the good one is audited"
