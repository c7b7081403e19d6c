"""The shipped rights are sufficient, none is unused, and a missing one is named."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jobs.commands.manifests import HUB
from tests.api.conftest import Ran, Run
from tests.apis import Api, Request, wait_for
from tests.conftest import WITHOUT_POLICIES_TOO, served
from tests.every_job import rights_worlds
from tests.every_job.fetch_rates import rates_to_fetch
from tests.manifests import everything, rights_on_secrets
from tests.more_kinds import of_kind
from tests.rates import RatesServer
from tests.rights import RBAC, account, grant
from tests.worlds import SELECTED, configmap, rule

pytestmark = pytest.mark.usefixtures("installed")
Object = dict[str, Any]
SHIPPED = everything()
VERBS = {"POST": "create", "PUT": "update", "DELETE": "delete", "PATCH": "patch"}
# A run continues without these.
OPTIONAL = {("roll-workloads", "cronjobs"), ("roll-workloads", "jobs"), ("mirror-audit", "serviceaccounts")}
COPIED_AS_CONFIGMAPS = {"limitranges", "resourcequotas", "serviceaccounts", "networkpolicies"}
MARKS = {"stamp", "roll", "adopt", "restore", "push"}  # verbs that only admission policies check; no request has them
REVIEWS = {("create", "selfsubjectaccessreviews"), ("create", "selfsubjectrulesreviews")}  # all users have these rights
BIND = "bind"  # kube-apiserver checks it when a RoleBinding is written; no request has it either


@pytest.fixture(params=WITHOUT_POLICIES_TOO)
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    """Each API server, also without the admission policies."""
    yield from served(request, tmp_path, tls=True)  # a hub connects to its spoke only so


@dataclass(frozen=True)
class Right:
    """One verb on one resource, in one shipped role of a job."""

    job: str
    kind: str
    role: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return f"{self.job}: {self.verb} {self.resource}"


def component(obj: Object) -> str:
    """The job of an object of the manifests."""
    job: str = obj["metadata"]["labels"]["app.kubernetes.io/component"]
    return HUB if job == "spoke" else job


def is_for_people(role: Object) -> bool:
    """Whether a role is for users, and not for a job: see tests/api/test_view.py."""
    return component(role) == "view" or any("/aggregate-to-" in label for label in role["metadata"]["labels"])


def rights() -> list[Right]:
    """Every right to send a request that the shipped manifests give to jobs."""
    roles = [obj for obj in SHIPPED if obj["kind"] in ("Role", "ClusterRole") and not is_for_people(obj)]
    return [
        Right(
            component(role),
            role["kind"],
            role["metadata"]["name"],
            resource,
            verb,
            role["metadata"].get("namespace", ""),
            "".join(each.get("resourceNames", ())),
        )
        for role in roles
        for each in role["rules"]
        for resource in each["resources"]
        for verb in each["verbs"]
        if verb not in (*MARKS, BIND)
    ]


GROUPS = {
    "copyrators": "kubechores.dev",
    "exchangerates": "kubechores.dev",
    "registrymirrors": "kubechores.dev",
    "clusterprofiles": "multicluster.x-k8s.io",
    "cronjobs": "batch",
    "deployments": "apps",
    "farmpods": "kubechores.dev",
    "jobs": "batch",
    "clusterroles": RBAC,
    "networkpolicies": "networking.k8s.io",
    "rolebindings": RBAC,
    "statefulsets": "apps",
    "daemonsets": "apps",
    "endpointslices": "discovery.k8s.io",
    "storageclasses": "storage.k8s.io",
}


@pytest.fixture
def run(api: Api, request: pytest.FixtureRequest, account: str) -> Run:
    """Run the job as an account, in a cluster where it uses each of its rights."""
    world = rights_worlds()[account]
    run = world.runner(request, api)
    world.build(request, run)
    return partial(run, *world.arguments)


@pytest.mark.parametrize("account", rights_worlds())
def test_the_shipped_rights_are_enough_and_none_is_unused(api: Api, account: str, run: Run) -> None:
    api.mark()

    assert run().exit_code == 0

    needed = set().union(*map(used, api.requests()))
    assert needed - REVIEWS == {(right.verb, right.resource) for right in rights() if right.job == account}


def used(request: Request) -> set[tuple[str, str]]:
    """Return the rights that a request required: a patch that creates an object requires two."""
    parts = request.path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    parts = parts[2:] if parts[0] == "namespaces" and len(parts) > 2 else parts
    resource = f"{parts[0]}/{parts[2]}" if len(parts) > 2 else parts[0]
    verb = VERBS.get(request.method) or ("get" if len(parts) > 1 else "list")
    return {(verb, resource), ("create" if (verb, request.status) == ("patch", 201) else verb, resource)}


# On the embedded server: tests/contract proves that both authorizers decide alike.
@pytest.mark.parametrize("api", ["sandbox"], indirect=True)
@pytest.mark.parametrize(
    ("account", "right"),
    # Once each: several roles may have the same right, and sync-copies copies several kinds with the same requests.
    {str(each): (each.job, each) for each in rights() if each.resource not in COPIED_AS_CONFIGMAPS}.values(),
    ids=str,
)
def test_a_missing_right_is_named_and_exits_2_or_0_if_it_is_optional(api: Api, right: Right, run: Run) -> None:
    drop(api, right)

    ran = run("-v")

    assert ran.exit_code == (0 if (right.job, right.resource) in OPTIONAL else 2)
    assert f'cannot {right.verb} resource "{right.resource}"' in output_of(ran)


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
    """Remove one verb of one resource from each role of the job, and wait until the authorizer uses that."""
    same = [
        each for each in rights() if (each.job, each.resource, each.verb) == (right.job, right.resource, right.verb)
    ]
    for kind, role in sorted({(each.kind, each.role) for each in same}):
        found = next(o for o in SHIPPED if (o["kind"], o["metadata"]["name"]) == (kind, role))
        api.patch(found, {"rules": [part for each in found["rules"] for part in without(each, right)]})
    wait_for(lambda: not allowed(api, right), f"the authorizer to forget {right}")


def without(rule: Object, right: Right) -> Iterator[Object]:
    """Yield a rule of a role as those that have the same rights, except one."""
    if others := [each for each in rule["resources"] if each != right.resource]:
        yield {**rule, "resources": others}
    verbs = [each for each in rule["verbs"] if each != right.verb]
    if verbs and right.resource in rule["resources"]:
        yield {**rule, "resources": [right.resource], "verbs": verbs}


def allowed(api: Api, right: Right) -> bool:
    resource, _, subresource = right.resource.partition("/")
    group = GROUPS.get(resource, "")
    attributes = {"verb": right.verb, "group": group, "resource": resource, "subresource": subresource}
    attributes |= {"namespace": right.namespace, "name": right.name}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    token = api.service_account_token("kube-chores", right.job)
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return bool(json.loads(api.request("POST", path, review, token=token)[2])["status"]["allowed"])


def output_of(ran: Ran) -> str:
    if not ran.stdout:
        return ran.stderr
    return "\n".join(f"{result.get('reason')} {result.get('message')} {result.get('remedy')}" for result in ran.results)


def test_without_the_secrets_component_no_request_is_about_secrets(api: Api, sync: Run) -> None:
    for obj in rights_on_secrets():
        api.delete(obj)
    only_here = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}
    grant(api, account("kube-chores", "sync-copies"), only_here, namespace="kube-chores")
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


def test_without_the_right_to_bind_its_cluster_role_a_role_binding_is_refused(
    api: Api, sync: Run, home: str, team: str
) -> None:
    role = next(each for each in SHIPPED if each["metadata"]["name"] == "kube-chores-sync-copies-rolebindings")
    source = api.create(of_kind("RoleBinding", home, SELECTED))
    api.create(rule("bindings", home, team, ruleType="rolebinding"))
    api.patch(role, {"rules": role["rules"][:1]})
    right = Right("sync-copies", "ClusterRole", "", "clusterroles", BIND, name="view")
    wait_for(lambda: not allowed(api, right), "the authorizer to forget the right to bind")

    ran = sync()

    assert (ran.exit_code, [each["code"] for each in ran.results]) == (0, ["refused"])
    assert "no right to bind ClusterRole view" in output_of(ran)
    assert api.get({**source, "metadata": {"name": "x", "namespace": team}}) is None
