"""The exact number of requests and bytes of a sweep, counted by the server."""

import json
from math import ceil
from typing import Any

import pytest

from jobs.core.farm_pods import observe as farm_pods
from jobs.core.sync_copies.kinds import KINDS
from jobs.kit.api import cluster
from jobs.kit.api.curl import Transfers
from tests.api.conftest import Ran, Run
from tests.apis import Api, Object, Request, wait_for
from tests.canary import canary
from tests.farm import VERSION, farmed, pod
from tests.manifests import rights_on_copies, rights_on_secrets
from tests.more_kinds import MORE_KINDS, VIEW, of_kind
from tests.rights import RBAC, account, can_i, grant
from tests.worlds import SELECTED, by_name, configmap, encoded, rule, secret

PAGE = 4
RULES_READ = 2  # before the copies for their types, and after the copies
OTHER_KINDS = len(KINDS) - 1  # a run lists the copies of kinds without rules too, if it can
REVIEWS = 1  # of the rights on all of these kinds


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "PAGE_SIZE", PAGE)


def pages(items: int) -> int:
    """Return the maximum number of requests for a list of items: an empty page may follow a last full one."""
    return ceil(items / PAGE) + 1


@pytest.fixture
def quiet(api: Api) -> None:
    """Wait until no namespace of an earlier test is terminating: their status adds bytes to the answers."""

    def all_active() -> bool:
        return {each["status"]["phase"] for each in api.items("v1", "Namespace")} == {"Active"}

    wait_for(all_active, "the deletion of the namespaces of earlier tests", 120)


def lists(requests: list[Request]) -> bool:
    return all(each.method == "GET" and each.query["limit"] == str(PAGE) for each in requests)


def test_a_first_sweep_is_one_write_per_copy_and_reads_no_copy(api: Api, sync: Run, home: str) -> None:
    teams = [api.namespace(f"team-{number}") for number in range(6)]
    for number in range(3):
        api.create(secret(home, f"login-{number}"))
    api.create(rule("logins", home, f"team-*-{api.token}", ruleType="secret"))
    namespaces = len(api.items("v1", "Namespace"))
    api.mark()

    ran = sync()

    assert ran.summary == {"created": 18}
    writes = api.copy_writes()
    reads = [each for each in api.requests() if each.method == "GET"]
    assert {(write.method, write.status) for write in writes} == {("POST", 201)}
    assert sorted(write.path for write in writes) == sorted(3 * [f"/api/v1/namespaces/{t}/secrets" for t in teams])
    assert lists(reads)
    assert len(reads) <= pages(namespaces) + len(KINDS) * pages(0) + pages(3) + RULES_READ


@pytest.mark.parametrize("teams", [2, 9])
def test_a_converged_sweep_is_lists_by_page_and_nothing_else(api: Api, sync: Run, teams: int, home: str) -> None:
    for number in range(teams):
        api.namespace(f"team-{number}")
    for number in range(3):
        api.create(secret(home, f"login-{number}"))
    api.create(rule("logins", home, f"team-*-{api.token}", ruleType="secret"))
    sync()
    namespaces = len(api.items("v1", "Namespace"))
    api.mark()

    ran = sync()

    assert ran.summary == {"unchanged": 3 * teams}
    assert api.writes() == []
    requests = [each for each in api.requests() if each.method == "GET"]
    assert lists(requests)
    # One more list of each other kind: of copies that the last deleted rule may have left as orphans.
    assert len(requests) <= pages(namespaces) + pages(3 * teams) + pages(3) + OTHER_KINDS * pages(0) + RULES_READ
    assert ran.report["traffic"]["requests"] == {"GET": len(requests), "POST": REVIEWS}
    full = [each for each in requests if each.path.endswith("/secrets") and f"/{home}/" in each.path]
    assert len(full) <= pages(3)


def test_changed_sources_are_one_write_per_copy_and_read_no_copy(api: Api, sync: Run, home: str) -> None:
    for number in range(5):
        api.namespace(f"team-{number}")
    source = api.create(secret(home))
    api.create(rule("logins", home, f"team-*-{api.token}", ruleType="secret"))
    sync()
    api.patch(source, {"data": {"password": encoded(canary())}})
    api.mark()

    assert sync().summary == {"configured": 5}

    writes = api.copy_writes()
    assert {(write.method, write.status) for write in writes} == {("PUT", 200)}
    assert len(writes) == 5
    assert lists([each for each in api.requests() if each.method == "GET"])


def test_bytes_do_not_grow_with_the_content_of_copies(
    api: Api, quiet: None, sync: Run, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.setattr(cluster, "PAGE_SIZE", 500)
    teams = 8
    for number in range(teams):
        api.namespace(f"team-{number}")
    source = api.create(secret(home, data={"key": encoded(canary("x" * 1024))}))
    api.create(rule("logins", home, f"team-*-{api.token}", ruleType="secret"))
    sync()

    def cost() -> tuple[int, int]:
        ran = sync()
        assert ran.summary == {"unchanged": teams}
        size = len(json.dumps(api.get(source)))
        return int(ran.report["traffic"]["bytesReceived"]), size

    small, small_source = cost()
    api.patch(source, {"data": {"key": encoded(canary("x" * 16 * 1024))}})
    assert sync().summary == {"configured": teams}
    large, large_source = cost()

    # The source is read once in full; the eight copies with 20 kB more each are not. Versions may have one more digit.
    assert large_source - small_source > 15 * 1024
    assert abs((large - small) - (large_source - small_source)) < 500


def test_one_page_of_large_copies_is_discarded_and_all_others_are_read_once(
    api: Api, sync: Run, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.setattr(cluster, "PAGE_SIZE", 500)
    monkeypatch.setattr(cluster, "PAGE_BYTES", 400_000)
    teams = [api.namespace(f"team-{number}") for number in range(3)]
    for number in range(8):
        api.create(secret(home, f"login-{number}", data={"key": encoded(canary("x" * 30_000))}))
    api.create(rule("logins", home, f"team-*-{api.token}", ruleType="secret"))
    assert sync().summary == {"created": 8 * len(teams)}
    api.mark()

    ran = sync("--verify=content")

    assert ran.summary == {"unchanged": 8 * len(teams)}
    lists = [each for each in api.requests() if each.path == "/api/v1/secrets"]
    # About ten copies fit into a page. The first page shows that, and the others have half of them. The order is that
    # in which the server ended its answers.
    assert sorted(each.query["limit"] for each in lists) == [*["5"] * 5, "500"]
    copies = len(teams) * len(json.dumps(api.items("v1", "Secret", teams[0])))
    sources = len(json.dumps(api.items("v1", "Secret", home)))
    assert copies + sources < ran.report["traffic"]["bytesReceived"] < copies + 2 * sources + 400_000 + 100_000


def test_unrelated_objects_add_no_requests(api: Api, quiet: None, sync: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "PAGE_SIZE", 500)
    home, team = api.namespace("home"), api.namespace("team")
    api.create(secret(home))
    api.create(rule("logins", home, f"team-{api.token}", ruleType="secret"))
    sync()
    before = sync().report["traffic"]
    for namespace in (home, team):
        for number in range(10):
            data = {"key": encoded(canary("x" * 10_000))}
            api.create(secret(namespace, f"unrelated-{number}", labels={"other": "yes"}, data=data))

    after = sync().report["traffic"]

    assert after["requests"] == before["requests"]
    # The cluster has 260 kB more; in the answers, only versions may have one more digit.
    assert abs(after["bytesReceived"] - before["bytesReceived"]) < 500


def test_requests_grow_with_places_of_sources_and_not_with_rules_times_namespaces(
    api: Api, sync: Run, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.setattr(cluster, "PAGE_SIZE", 500)
    for number in range(4):
        api.namespace(f"team-{number}")
    api.create(secret(home))
    api.create(rule("logins", home, f"team-*-{api.token}", ruleType="secret"))
    sync()
    one_rule = sync().report["traffic"]["requests"]
    for number in range(20):
        api.create(rule(f"logins-{number}", home, f"team-{number % 4}-{api.token}", ruleType="secret"))

    sync()  # writes the status of each new rule

    assert sync().report["traffic"]["requests"] == one_rule

    for number in range(3):
        api.create(secret(api.namespace(f"source-{number}")))
        api.create(rule(f"further-{number}", f"source-{number}-{api.token}", "nowhere", ruleType="secret"))
    sync()

    assert sync().report["traffic"]["requests"] == {**one_rule, "GET": one_rule["GET"] + 3}


def of_pods(requests: list[Request]) -> list[str]:
    """Return the paths below /api/v1 of the requests for pods, sorted."""
    return sorted(each.path.removeprefix("/api/v1/") for each in requests if "/pods" in each.path)


def shops_with_pods(api: Api, shops: int, pods: int) -> list[str]:
    """Create namespaces that opted in, with pods."""
    names = [farmed(api, f"shop-{number}") for number in range(shops)]
    for name in names:
        for number in range(pods):
            api.create(pod(name, f"web-{number}"))
    return names


@pytest.mark.parametrize("shops", [1, 3])
def test_farm_pods_lists_by_page_the_pods_of_each_namespace_that_opted_in(
    api: Api, farm: Run, shops: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(farm_pods, "PODS_PER_LIST", -1000)  # as with many pods in other namespaces
    names = shops_with_pods(api, shops, 5)
    api.create(pod(farmed(api, "other", labels={}), "web"))
    counts = [] if shops < farm_pods.LEAST_NAMESPACES else ["pods"]
    api.mark()

    assert farm().summary == {"created": 5 * shops}

    # The metadata of all pods, and in full those of namespaces without FarmPods; no pod is read alone.
    by_page = [f"namespaces/{name}/pods" for name in names for _ in range(2)]
    assert of_pods(api.requests()) == sorted(2 * by_page + counts)
    assert [each.method for each in api.writes()] == 5 * shops * ["POST"]
    api.mark()

    ran = farm()

    assert ran.summary == {"unchanged": 5 * shops}
    requests = api.requests()
    assert (api.writes(), of_pods(requests)) == ([], sorted(by_page + counts))
    assert lists([each for each in requests if each.path != "/api/v1/pods"])
    most = pages(len(api.items(VERSION, "FarmPod"))) + pages(shops) + len(counts) + len(by_page)
    assert len(requests) <= most
    assert ran.report["traffic"]["requests"] == {"GET": len(requests)}


def test_farm_pods_lists_all_pods_at_once_if_most_namespaces_opted_in(api: Api, farm: Run) -> None:
    shops_with_pods(api, 9, 1)
    api.create(pod(farmed(api, "other", labels={}), "web"))
    farm()
    pods = len(api.items("v1", "Pod"))
    api.mark()

    ran = farm()

    assert ran.summary == {"unchanged": 9}
    found = of_pods(api.requests())
    assert set(found) == {"pods"}
    assert 1 + ceil(pods / PAGE) <= len(found) <= 1 + pages(pods)


def test_the_pages_of_a_large_namespace_do_not_delay_the_lists_of_others(
    api: Api, farm: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(farm_pods, "PODS_PER_LIST", -1000)
    large, *small = (farmed(api, name) for name in ("a-large", "small-0", "small-1", "small-2"))
    for number in range(4 * PAGE):
        api.create(pod(large, f"web-{number}"))
    for each in small:
        api.create(pod(each, "web"))
    farm()
    # As sent: a server may answer requests that are in flight together in any order.
    sent: list[str] = []
    start = Transfers.start

    def record(transfers: Transfers, request: Any, *rest: Any) -> Any:
        sent.append(request.path.partition("?")[0])
        return start(transfers, request, *rest)

    monkeypatch.setattr(Transfers, "start", record)

    assert farm().summary == {"unchanged": 4 * PAGE + 3}

    lists = [path.split("/")[4] for path in sent if path.startswith("/api/v1/namespaces/") and path.endswith("/pods")]
    assert sorted(lists) == sorted([*small, *4 * [large]])
    assert set(lists[:4]) == {large, *small}


def test_farm_pods_reads_a_new_pod_and_no_other_in_full(api: Api, farm: Run) -> None:
    (shop,) = shops_with_pods(api, 1, 3)
    farm()
    for name in ("new-0", "new-1"):
        api.create(pod(shop, name))
    api.mark()

    assert farm().summary == {"created": 2, "unchanged": 3}

    paths = [f"namespaces/{shop}/pods", f"namespaces/{shop}/pods"]
    assert of_pods(api.requests()) == [*paths, *(f"namespaces/{shop}/pods/{name}" for name in ("new-0", "new-1"))]


def test_farm_pods_does_not_read_the_pods_of_namespaces_that_the_brake_blocks(api: Api, farm: Run) -> None:
    large, small = farmed(api, "large"), farmed(api, "small")
    for namespace, name in ((small, "web"), *((large, f"web-{number}") for number in range(3))):
        api.create(pod(namespace, name))
    there = len(api.items(VERSION, "FarmPod"))
    api.mark()

    ran = farm("--max-objects", str(there + 2))

    assert (ran.exit_code, ran.summary) == (4, {"created": 1, "over-limit": 1})
    assert of_pods(api.requests()) == [f"namespaces/{large}/pods", *2 * [f"namespaces/{small}/pods"]]


@pytest.mark.parametrize("together", [True, False])
def test_a_converged_run_of_farm_pods_does_not_read_the_specs_of_pods(
    api: Api, quiet: None, farm: Run, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "PAGE_SIZE", 500)
    monkeypatch.setattr(farm_pods, "PODS_PER_LIST", 1000 if together else -1000)
    shops_with_pods(api, 3, 1)
    farm()

    def cost() -> int:
        return int(farm().report["traffic"]["bytesReceived"])

    before = cost()
    large = pod(farmed(api, "other", labels={}) if together else farmed(api, "shop-9"), "large", 2)
    large["spec"]["containers"][1]["env"] = [{"name": "LARGE", "value": canary("x" * 100_000)}]
    api.create(large)
    farm()

    assert 0 < cost() - before < 20_000


# each kind, with one page for each list

BIND = {"apiGroups": [RBAC], "resources": ["clusterroles"], "verbs": ["bind"]}
ATTACHED = 1  # list of ServiceAccounts with names that attachTo added, with the rights of its component
LISTS = RULES_READ + 1 + len(KINDS) + ATTACHED  # of rules, of namespaces, and of copies of each kind


@pytest.fixture
def one_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "PAGE_SIZE", 500)


def requests_of(ran: Ran) -> dict[str, int]:
    """The number of requests of a run by method."""
    assert ran.exit_code == 0, ran
    return dict(ran.report["traffic"]["requests"])


def settled(api: Api, kind: str) -> None:
    """Wait for the status of ResourceQuotas: until then a controller may write them at the same time as a run."""

    def is_counted(obj: Object) -> bool:
        return bool(obj.get("status", {}).get("hard") == obj["spec"]["hard"])

    if kind == "ResourceQuota" and api.kind == "real":
        wait_for(lambda: all(map(is_counted, api.items("v1", kind))), "the status of each ResourceQuota")


def test_kinds_without_their_components_are_one_request(api: Api, one_page: None, sync: Run, home: str) -> None:
    for each in (*rights_on_secrets(), *rights_on_copies()):
        api.delete(each)
    wait_for(lambda: not can_i(api, "sync-copies", "list", "secrets", ""), "the authorizer to forget the right")
    wait_for(lambda: not can_i(api, "sync-copies", "list", "limitranges", ""), "the authorizer to forget the right")
    api.create(configmap(home))
    api.create(rule("rule", home, api.namespace("team")))
    sync()

    ran = sync()

    # The rules twice, the namespaces, the copies and their sources.
    assert (ran.summary, requests_of(ran)) == ({"unchanged": 1}, {"GET": RULES_READ + 3, "POST": REVIEWS})


@pytest.mark.parametrize("kind", MORE_KINDS)
def test_a_rule_of_each_kind_is_one_list_of_copies_and_one_of_sources(
    api: Api, one_page: None, sync: Run, home: str, kind: str
) -> None:
    for number in range(3):
        api.namespace(f"team-{number}")
    for name in ("x", "y"):
        api.create(of_kind(kind, home, SELECTED, name=name))
    api.create(rule("rule", home, f"team-*-{api.token}", ruleType=kind.lower()))
    reads = {"GET": LISTS + 1, "POST": REVIEWS + (kind == "RoleBinding")}  # for the ClusterRole view
    event, status = 1, {"PATCH": 1}
    reads_of_copies = 3 * (kind == "ServiceAccount")  # an update retains the field `secrets` of a copy

    first = sync()
    settled(api, kind)
    converged = sync()
    api.patch(of_kind(kind, home), MORE_KINDS[kind][1])
    changed = sync()

    assert requests_of(first) == {**reads, "POST": reads["POST"] + 6 + event, **status}
    assert requests_of(converged) == reads
    assert requests_of(changed) == {**reads, "GET": reads["GET"] + reads_of_copies, "PUT": 3}
    assert (first.summary, changed.summary) == ({"created": 6}, {"configured": 3, "unchanged": 3})


def test_a_recreated_role_binding_is_tried_before_it_is_deleted(api: Api, one_page: None, sync: Run, home: str) -> None:
    team = api.namespace("team")
    source = of_kind("RoleBinding", home, SELECTED)
    api.create(source)
    api.create(rule("rule", home, team, ruleType="rolebinding"))
    sync()
    api.delete(source)
    api.create({**source, "roleRef": {**VIEW, "name": "edit"}})
    grant(api, account("kube-chores", "sync-copies"), BIND)
    wait_for(lambda: can_i(api, "sync-copies", "bind", "clusterroles", RBAC), "the right to bind ClusterRoles")
    api.mark()

    ran = sync()

    path = f"/apis/{RBAC}/v1/namespaces/{team}/rolebindings"
    copies = [each for each in api.requests() if each.path.startswith(path)]
    assert [(each.method, each.path.removeprefix(path), "dryRun" in each.query) for each in copies] == [
        ("PUT", "/x", False),
        ("GET", "/x", False),
        ("POST", "", True),
        ("DELETE", "/x", False),
        ("POST", "", False),
    ]
    assert ran.summary == {"replaced": 1}


def test_without_the_component_of_attach_to_a_run_sends_no_request_for_it(
    api: Api, one_page: None, sync: Run, home: str, team: str
) -> None:
    api.create(secret(home))
    api.create(rule("logins", home, team, ruleType="secret"))
    sync()
    for name in ("pullsecrets", "serviceaccounts"):
        metadata = {"name": f"kube-chores-sync-copies-{name}"}
        api.delete({"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": metadata})
    wait_for(lambda: not can_i(api, "sync-copies", "list", "serviceaccounts", ""), "the authorizer to forget this")

    ran = sync()

    without = ATTACHED + 1  # and of copies of ServiceAccounts
    assert (ran.summary, requests_of(ran)) == ({"unchanged": 1}, {"GET": LISTS - without + 1, "POST": REVIEWS})


def test_sources_by_name_are_one_list_for_each_name_and_namespace(api: Api, one_page: None, sync: Run) -> None:
    places = [api.namespace(name) for name in ("home", "annex")]
    team = api.namespace("team")
    for name in ("x", "y", "z"):
        api.create(configmap(places[0], name))
    api.create(by_name("rule", "", team, namespaces=places, names=["x", "y", "absent"]))
    sync()
    api.mark()

    ran = sync()

    assert ran.summary == {"unchanged": 2, "source-missing": 1}
    assert requests_of(ran) == {"GET": LISTS + 6, "POST": REVIEWS}
    sources = [each for each in api.requests() if each.path.split("/")[-2] in places]
    assert sorted((each.path.split("/")[-2], each.query["fieldSelector"]) for each in sources) == sorted(
        (place, f"metadata.name={name}") for place in places for name in ("x", "y", "absent")
    )


def test_sources_by_name_and_selector_are_one_list(api: Api, one_page: None, sync: Run, home: str) -> None:
    team = api.namespace("team")
    for name in ("x", "y", "z"):
        api.create(configmap(home, name))
    api.create(rule("rule", home, team, names=["x", "y"]))
    sync()

    ran = sync()

    assert (ran.summary, requests_of(ran)) == ({"unchanged": 2}, {"GET": LISTS + 1, "POST": REVIEWS})


def test_rules_with_different_keys_of_the_same_sources_share_one_list(
    api: Api, one_page: None, sync: Run, home: str
) -> None:
    team = api.namespace("team")
    api.create(secret(home))
    api.create(by_name("whole", home, team, ruleType="secret", names=["login"]))
    for number, keys in enumerate(({"include": ["user"]}, {"include": ["pass*"]}, {"rename": {"user": "name"}})):
        part = {"names": ["login"], "keys": keys, "targetName": f"part-{number}"}
        api.create(by_name(f"part-{number}", home, team, ruleType="secret", **part))
    sync()

    ran = sync()

    assert (ran.summary, requests_of(ran)) == ({"unchanged": 4}, {"GET": LISTS + 1, "POST": REVIEWS})


def test_each_cluster_role_of_the_sources_is_one_access_review(api: Api, one_page: None, sync: Run, home: str) -> None:
    team = api.namespace("team")
    for name, role in {"x": "view", "y": "view", "z": "edit"}.items():
        api.create(of_kind("RoleBinding", home, SELECTED, name=name, roleRef={**VIEW, "name": role}))
    api.create(rule("rule", home, team, ruleType="rolebinding"))
    sync()

    ran = sync()

    assert ran.summary == {"unchanged": 2, "refused": 1}
    assert requests_of(ran) == {"GET": LISTS + 1, "POST": REVIEWS + 2}
