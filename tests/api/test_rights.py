"""The shipped rights are enough, none is unused, and each that is missing is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from tests.api.conftest import Ran, Run
from tests.apis import Api, Request, wait_for
from tests.farm import farm_pod, farmed, pod
from tests.manifests import ROOT, load
from tests.mirrors import Mirrors, credentials, registry_mirror
from tests.rates import RatesServer
from tests.workloads import FROM_A_VOLUME, KINDS, settle, workload
from tests.worlds import at, configmap, exchange_rate, rule, secret

Object = dict[str, Any]
SHIPPED = [*load(ROOT / "cronjobs"), *load(ROOT / "cronjobs" / "mirror-repair")]
VERBS = {"POST": "create", "PUT": "update", "DELETE": "delete", "PATCH": "patch"}


@dataclass(frozen=True)
class Right:
    """One verb on one resource, in one shipped role of a job."""

    job: str
    kind: str
    role: str
    resource: str
    verb: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.job}: {self.verb} {self.resource}"


def component(obj: Object) -> str:
    """The job that an object of the manifests belongs to."""
    job: str = obj["metadata"]["labels"]["app.kubernetes.io/component"]
    return job


def is_for_people(role: Object) -> bool:
    """Whether a role is aggregated to those that people have."""
    return any("/aggregate-to-" in label for label in role["metadata"]["labels"])


def rights() -> list[Right]:
    """Every right that the shipped manifests give."""
    roles = [obj for obj in SHIPPED if obj["kind"] in ("Role", "ClusterRole") and not is_for_people(obj)]
    return [
        Right(
            component(role),
            role["kind"],
            role["metadata"]["name"],
            resource,
            verb,
            role["metadata"].get("namespace", ""),
        )
        for role in roles
        for each in role["rules"]
        for resource in each["resources"]
        for verb in each["verbs"]
    ]


GROUPS = {
    "copyrators": "kubechores.dev",
    "exchangerates": "kubechores.dev",
    "registrymirrors": "kubechores.dev",
    "deployments": "apps",
    "farmpods": "kubechores.dev",
    "statefulsets": "apps",
    "daemonsets": "apps",
    "endpointslices": "discovery.k8s.io",
    "storageclasses": "storage.k8s.io",
}


@pytest.fixture
def run(request: pytest.FixtureRequest, api: Api, job: str) -> Run:
    """Run the job in a world in which that does everything: list, read one, create, replace, delete, tell."""
    if job == "sync-copies":
        run: Run = request.getfixturevalue("sync")
        copies_to_make(api, run)
    elif job == "fetch-rates":
        run = request.getfixturevalue("fetch")
        rates_to_fetch(api, run)
    elif job == "roll-workloads":
        run = request.getfixturevalue("roll")
        workloads_to_roll(api, run)
    elif job == "mirror-audit":
        run = request.getfixturevalue("audit")
        mirrors_to_audit(request.getfixturevalue("mirrors"))
    elif job == "farm-pods":
        run = request.getfixturevalue("farm")
        pods_to_tell_of(api, run)
    else:
        repair: Run = request.getfixturevalue("repair")
        mirrors_to_repair(request.getfixturevalue("mirrors"), repair)
        run = partial(repair, "--allow-cache-loss")
    return run


def mirrors_to_repair(mirrors: Mirrors, repair: Run) -> None:
    api = mirrors.api
    api.create(credentials(mirrors.name("login"), "quay.io"))
    storage_class = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "example.com/none"}
    api.create({**storage_class, "metadata": {"name": mirrors.name("fixed")}, "allowVolumeExpansion": False})
    gone = mirrors.well("gone", "gcr.io")
    api.delete(registry_mirror(gone.asked.name))
    assert repair().exit_code == 0
    mirrors.settle(gone)
    api.delete(registry_mirror(mirrors.well("going", "ghcr.io").asked.name))
    drifted = mirrors.well("drifted", "quay.io", credentialsSecret=mirrors.name("login"))
    for child in drifted.children:
        mirrors.edit(child.document(), {"metadata": {"labels": {"app.kubernetes.io/name": "theirs"}}})
    api.delete(mirrors.well("partly", "docker.io").daemon_set.document())
    small = mirrors.well("small", "example.com", storage={"storageClassName": mirrors.name("fixed")})
    mirrors.edit(registry_mirror(small.asked.name), {"spec": {"storage": {"size": "30Gi"}}})
    mirrors.ask("new", "registry.example.com")


def mirrors_to_audit(mirrors: Mirrors) -> None:
    mirrors.api.create(credentials(mirrors.name("login")))
    mirrors.well(credentialsSecret=mirrors.name("login"))
    mirrors.ask("missing", "gcr.io")


def pods_to_tell_of(api: Api, farm: Callable[[], Ran]) -> None:
    shop = farmed(api)
    api.create(pod(shop, "kept"))
    assert farm().exit_code == 0
    api.patch(farm_pod(shop, "kept"), {"metadata": {"ownerReferences": None}})
    api.create(pod(shop, "new"))


def rates_to_fetch(api: Api, fetch: Callable[[], Ran]) -> None:
    shop = api.namespace("shop")
    moved = api.create(exchange_rate(shop, "moved"))
    stale = api.create(exchange_rate(shop, "stale"))
    taken = api.create(exchange_rate(shop, "taken"))
    api.create({**configmap(shop, "taken"), "data": {}})
    assert fetch().exit_code == 0
    api.patch(moved, {"spec": {"configMapName": "elsewhere"}})
    assert fetch().exit_code == 0
    api.patch(configmap(shop, stale["metadata"]["name"]), {"data": {"rate": "0"}})
    api.patch(taken, {"spec": {"maxChange": 5}})
    api.create(exchange_rate(shop, "fresh", "JPY"))


def workloads_to_roll(api: Api, roll: Callable[[], Ran]) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    api.create(secret(space))
    login = {"name": "login", "secret": {"secretName": "login"}}
    pod = {"volumes": [*FROM_A_VOLUME["volumes"], login]}
    made = [api.create(workload(space, "rolled", kind, pod=pod)) for kind in KINDS]
    assert roll().exit_code == 0
    for each in made:
        settle(api, each)
    api.patch(source, {"data": {"a": "changed"}})


def copies_to_make(api: Api, sync: Callable[[], Ran]) -> None:
    home, team = api.namespace("home"), api.namespace("team")
    for make, kind in ((configmap, "configmap"), (secret, "secret")):
        for name in ("kept", "gone"):
            api.create(make(home, name))
        api.create(rule(f"{kind}s", home, f"*-{api.token}", ruleType=kind))
    assert sync().exit_code == 0
    for make in (configmap, secret):
        api.delete(make(home, "gone"))
        api.patch(at(team, make(home, "kept")), {"data": {"extra": "eA=="}})
    for number in range(2):
        api.namespace(f"new-{number}")


@pytest.mark.parametrize(
    "job", ["sync-copies", "fetch-rates", "mirror-audit", "mirror-repair", "roll-workloads", "farm-pods"]
)
def test_the_shipped_rights_are_enough_and_none_is_unused(api: Api, job: str, run: Run) -> None:
    api.mark()

    assert run().exit_code == 0

    needed = set().union(*map(used, api.requests()))
    assert needed - {("create", "selfsubjectaccessreviews")} == {
        (right.verb, right.resource) for right in rights() if right.job == job
    }


def used(request: Request) -> set[tuple[str, str]]:
    """Which rights a request needed: to make something by a patch takes two."""
    parts = request.path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    parts = parts[2:] if parts[0] == "namespaces" and len(parts) > 2 else parts
    resource = f"{parts[0]}/{parts[2]}" if len(parts) > 2 else parts[0]
    verb = VERBS.get(request.method) or ("get" if len(parts) > 1 else "list")
    return {(verb, resource), ("create" if (verb, request.status) == ("patch", 201) else verb, resource)}


@pytest.mark.parametrize(("job", "right"), [(right.job, right) for right in rights()], ids=str)
def test_a_dropped_right_is_named_and_exits_2(api: Api, right: Right, run: Run) -> None:
    drop(api, right)

    ran = run()

    assert ran.exit_code == 2
    assert f'cannot {right.verb} resource "{right.resource}"' in said(ran)


def test_without_the_list_of_configmaps_nothing_is_decided(api: Api, fetch: Run, rates: RatesServer) -> None:
    rates_to_fetch(api, fetch)
    rates.fetched()
    drop(api, Right("fetch-rates", "ClusterRole", "kube-chores-fetch-rates", "configmaps", "list"))
    api.mark()

    ran = fetch()

    assert (ran.exit_code, ran.summary, rates.fetched()) == (2, {"unreadable": 1}, [])
    assert api.copy_writes() == []
    assert [each for each in api.requests() if each.path.rpartition("/")[0].endswith("/configmaps")] == []


def drop(api: Api, right: Right) -> None:
    """Take one verb of one resource from its role, and wait until the authorizer knows."""
    found = next(o for o in SHIPPED if (o["kind"], o["metadata"]["name"]) == (right.kind, right.role))
    rules = [{**each, "verbs": list(each["verbs"])} for each in found["rules"]]
    for each in rules:
        if right.resource in each["resources"]:
            each["verbs"].remove(right.verb)
    api.patch(found, {"rules": [each for each in rules if each["verbs"]]})
    wait_for(lambda: not allowed(api, right), f"the authorizer to forget {right}")


def allowed(api: Api, right: Right) -> bool:
    resource, _, subresource = right.resource.partition("/")
    group = GROUPS.get(resource, "")
    attributes = {"verb": right.verb, "group": group, "resource": resource, "subresource": subresource}
    attributes["namespace"] = right.namespace
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    token = api.service_account_token("kube-chores", right.job)
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return bool(json.loads(api.request("POST", path, review, token=token)[2])["status"]["allowed"])


def said(ran: Ran) -> str:
    if not ran.stdout:
        return ran.stderr
    return "\n".join(f"{result.get('reason')} {result.get('message')} {result.get('remedy')}" for result in ran.results)


def test_without_the_secrets_component_nothing_about_secrets_is_asked(api: Api, sync: Run) -> None:
    for obj in load(ROOT / "cronjobs" / "components" / "secrets"):
        api.delete(obj)
    busy_configmaps = rule("configmaps", api.namespace("home"), f"*-{api.token}")
    api.namespace("team")
    api.create(configmap(f"home-{api.token}"))
    api.create(busy_configmaps)
    right = Right("sync-copies", "ClusterRole", "", "secrets", "list")
    wait_for(lambda: not allowed(api, right), "the authorizer to forget Secrets")
    api.mark()

    assert sync().summary == {"created": 1}
    assert sync().summary == {"unchanged": 1}

    assert [request.path for request in api.requests() if "secrets" in request.path] == []


def test_copies_that_the_last_rule_left_behind_are_found(api: Api, sync: Run) -> None:
    home, team = api.namespace("home"), api.namespace("team")
    source = api.create(secret(home))
    last = api.create(rule("logins", home, f"*-{api.token}", ruleType="secret"))
    sync()
    api.delete(last)

    assert sync().summary == {"deleted": 1}
    assert api.get(at(team, source)) is None
