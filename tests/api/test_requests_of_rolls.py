"""The exact requests of roll-workloads: what it lists, what it reads by name, and the writes of a change."""

from collections import Counter
from collections.abc import Iterable

import pytest

from jobs.core.roll_workloads import observe
from jobs.kit.api import cluster
from tests.api.conftest import Run
from tests.apis import Api, Object
from tests.canary import canary
from tests.workloads import FROM_A_VOLUME, KEY, KINDS, roll_annotations, settle, workload
from tests.worlds import configmap, encoded, secret

LISTS = 6  # of namespaces, of three kinds of workloads, of Jobs and of CronJobs
# The same ConfigMap and Secret as volumes, as an environment, and by their keys.
ALL_USES: Object = {
    "volumes": [*FROM_A_VOLUME["volumes"], {"name": "login", "secret": {"secretName": "login"}}],
    "container": {
        "envFrom": [{"configMapRef": {"name": "settings"}}],
        "env": [
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}},
            {"name": "USER", "valueFrom": {"secretKeyRef": {"name": "login", "key": "user"}}},
        ],
    },
}


@pytest.fixture(autouse=True)
def one_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "PAGE_SIZE", 500)


def settled(api: Api, made: Iterable[Object]) -> list[Object]:
    return [settle(api, each) for each in made]


def place(api: Api, name: str, **given: int) -> tuple[str, list[Object]]:
    """Create a namespace with a ConfigMap, a Secret and workloads that use both: so many of each kind opted in."""
    space = api.namespace(name)
    api.create(configmap(space))
    api.create(secret(space))
    made = [
        api.create(workload(space, f"web-{number}", kind, pod=ALL_USES))
        for kind, count in given.items()
        for number in range(count)
    ]
    return space, made


def read(api: Api) -> Counter[str]:
    """Return how often each path of a namespace was requested."""
    paths = (each.path for each in api.requests() if each.method == "GET")
    return Counter(path for path in paths if "/namespaces/" in path)


def test_a_converged_run_reads_each_source_once(api: Api, roll: Run) -> None:
    shop, made = place(api, "shop", Deployment=3, StatefulSet=1, DaemonSet=2)
    store, more = place(api, "store", Deployment=2)
    # Every fourth workload of a kind opted in, at most: two reads are less than a list of nine in full.
    more += [api.create(workload(store, f"other-{number}", opted_in=None)) for number in range(7)]
    more += [api.create(workload(shop, f"other-{number}", opted_in=None)) for number in range(3)]
    settled(api, [*made, *more])
    assert roll().summary == {"annotated": 8}
    settled(api, made)
    api.mark()

    ran = roll()

    assert (ran.summary, api.writes()) == ({"unchanged": 8}, [])
    apps, core = "/apis/apps/v1/namespaces", "/api/v1/namespaces"
    listed = [f"{apps}/{shop}/deployments", f"{apps}/{shop}/daemonsets"]
    workloads = [f"{apps}/{shop}/statefulsets/web-0", *(f"{apps}/{store}/deployments/web-{n}" for n in range(2))]
    sources = [f"{core}/{space}/{each}" for space in (shop, store) for each in ("configmaps/settings", "secrets/login")]
    key = f"{core}/{KEY['metadata']['namespace']}/secrets/{KEY['metadata']['name']}"
    assert read(api) == Counter([*listed, *workloads, *sources, key])
    assert ran.report["traffic"]["requests"] == {"GET": LISTS + len([*listed, *workloads, *sources, key])}


def use_absent(api: Api, namespace: str, count: int) -> None:
    """Create four workloads with `count` optional references each to ConfigMaps that do not exist."""
    for number in range(4):
        absent = [{"configMapRef": {"name": f"absent-{number}-{each}", "optional": True}} for each in range(count)]
        settle(api, api.create(workload(namespace, f"web-{number}", pod={"container": {"envFrom": absent}})))


def test_a_namespace_with_many_sources_takes_no_reads_from_others(
    api: Api, roll: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "MOST_OF_NAMESPACE", 6)
    tenant, (_, made) = api.namespace("a-tenant"), place(api, "shop", Deployment=1)
    use_absent(api, tenant, 3)
    settled(api, made)
    api.mark()

    ran = roll()

    assert (ran.exit_code, ran.summary) == (0, {"annotated": 3, "too-many": 1})
    assert sum(f"/{tenant}/configmaps/" in path for path in read(api)) == 6
    (found,) = [each for each in ran.results if each["code"] == "too-many"]
    assert found["object"] == {"kind": "Namespace", "name": tenant}, found


def test_a_namespace_with_large_workloads_takes_no_memory_from_others(
    api: Api, roll: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "MOST_BYTES_OF_NAMESPACE", 2000)
    tenant, (_, made) = api.namespace("a-tenant"), place(api, "shop", Deployment=2)
    use_absent(api, tenant, 4)
    settled(api, made)
    api.mark()

    ran = roll()

    assert (ran.exit_code, ran.summary) == (0, {"annotated": 4, "too-many": 1})
    assert sum(f"/{tenant}/" in path for path in read(api)) == 1 + 2 * 4, "a list, and the sources of two workloads"
    (found,) = [each for each in ran.results if each["code"] == "too-many"]
    assert found["object"] == {"kind": "Namespace", "name": tenant}
    assert found["reason"].startswith("2 workloads were not compared")


def test_an_invalid_workload_of_a_list_affects_only_itself(api: Api, roll: Run) -> None:
    names = [f"{'x' * 240}-{number:03}" for number in range(90)]
    volumes = [{"name": f"v-{number}", "configMap": {"name": name}} for number, name in enumerate(names)]
    shop, made = place(api, "shop", Deployment=2)
    api.create(workload(shop, "invalid", pod={"volumes": volumes}))
    settled(api, made)

    ran = roll()

    assert ran.summary == {"annotated": 2, "unreadable": 1}
    (found,) = [each for each in ran.results if each["code"] == "unreadable"]
    assert found["object"]["name"] == "invalid"
    assert "too long for a baseline" in found["reason"]


def test_a_change_of_a_shared_source_is_one_write_for_each_workload_within_the_limit(api: Api, roll: Run) -> None:
    shop, made = place(api, "shop", **dict.fromkeys(KINDS, 3))
    store, more = place(api, "store", Deployment=2)
    others = [api.create(workload(shop, f"other-{number}", pod={})) for number in range(2)]
    settled(api, [*made, *more, *others])
    assert roll().summary == {"annotated": 13}
    settled(api, [*made, *more, *others])
    for space in (shop, store):
        api.patch(secret(space), {"data": {"user": encoded(canary())}})

    rolled: list[list[str]] = []
    while len(rolled) < 10:
        api.mark()
        ran = roll("--max-rolls", "4")
        writes = [each for each in api.writes() if not each.path.endswith("/events")]
        assert {each.method for each in writes} <= {"PATCH"}
        rolled.append([each.path.partition("/namespaces/")[2] for each in writes])
        settled(api, [*made, *more])
        if not rolled[-1]:
            break

    assert ran.summary == {"unchanged": 13}
    paths = [f"{shop}/{kind.lower()}s/web-{number}" for kind in sorted(KINDS) for number in range(3)]
    theirs = [f"{store}/deployments/web-{number}" for number in range(2)]
    # The namespaces take turns; within one, the order is that of the report: kind and name.
    in_order = [paths[0], theirs[0], paths[1], theirs[1], *paths[2:]]
    assert [sorted(each) for each in rolled] == [sorted(in_order[at : at + 4]) for at in (0, 4, 8)] + [[]]
    assert all(roll_annotations(api.get(each))[1] is None for each in others)
