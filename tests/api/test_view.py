"""The roles for users: sufficient for a dry run of each job, without unused rights, and without rights to write."""

import json
import re
from collections.abc import Callable
from functools import partial
from itertools import product

import pytest

from jobs.commands.manifests import HUB
from jobs.kit.values.registry import CLUSTERS
from tests.api.conftest import Ran, Run, connect_with
from tests.api.test_explain import rows
from tests.api.test_rights import REVIEWS, used
from tests.apis import Api, Request, wait_for
from tests.every_job import fault_worlds, rights_worlds
from tests.manifests import COPIES, everything
from tests.rights import RBAC, bind, grant

pytestmark = pytest.mark.usefixtures("installed")
ROLES = {each["metadata"]["name"]: each for each in everything() if each["kind"] == "ClusterRole"}
OF_COPIES = [f"kube-chores-view-{resource}" for resource in COPIES.values()]
READER = ("kube-chores-view", "kube-chores-farm-view", "kube-chores-view-secrets", *OF_COPIES)
ARGUMENTS = {"sync-copies": ("-n", "kube-chores")}  # outside of a pod, its rules are not in the default namespace
OWN = "kubechores.dev"
# Runs for other clusters need credentials of these, which no role for users can read.
WORLDS = {account: world for account, world in rights_worlds().items() if account not in (CLUSTERS, HUB)}
# What --explain reads, in the worlds of tests/every_job.
EXPLAINED = {"sync-copies": "team-{}/none", "roll-workloads": "shop-{}/rolled"}
# Argo Rollouts installs a role with these rights, which is aggregated to `view`.
OF_ROLLOUTS = {("get", "rollouts"), ("list", "rollouts")}
ROLLOUTS_READ = {"apiGroups": ["argoproj.io"], "resources": ["rollouts"], "verbs": ["get", "list"]}
CUSTOM_RESOURCES = [each["spec"]["names"]["plural"] for each in everything() if each["kind"].startswith("Custom")]


def granted(role: str) -> set[tuple[str, str, str]]:
    """The rights of a ClusterRole: API group, verb and resource."""
    return {
        right for rule in ROLES[role]["rules"] for right in product(rule["apiGroups"], rule["verbs"], rule["resources"])
    }


def user(api: Api, *roles: str) -> str:
    """Return a user with these ClusterRoles in the whole cluster."""
    name = f"user-{api.token}"
    for role in roles:
        bind(api, role, {"apiGroup": RBAC, "kind": "User", "name": name})
    return name


def reads(api: Api, name: str, path: str) -> bool:
    """Whether a user can read a list."""
    return api.request("GET", path, headers={"Impersonate-User": name})[0] == 200


def test_the_roles_for_users_are_enough_for_every_dry_run_and_no_right_is_unused(
    api: Api, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: dict[str, Run] = {}
    tokens: dict[str, str] = {}
    for number, (account, world) in enumerate(WORLDS.items()):
        api.token = f"{number}{api.token[1:]}"  # the worlds have the same names of namespaces, with this token
        runs[account], tokens[account] = world.runner(request, api), api.token
        if account != "mirror-audit":  # it audits the mirrors of mirror-repair
            world.build(request, runs[account])
    connect_with(monkeypatch, in_pod=False)
    name = user(api, *READER)
    grant(api, {"apiGroup": RBAC, "kind": "User", "name": name}, ROLLOUTS_READ)
    wait_for(lambda: reads(api, name, "/api/v1/secrets?limit=1"), "the rights of the user")
    wait_for(lambda: reads(api, name, "/apis/argoproj.io/v1alpha1/rollouts?limit=1"), "the rights on Rollouts")
    needed = set()
    for account, world in WORLDS.items():
        arguments = (*world.arguments, *ARGUMENTS.get(account, ()), "-v")
        run = partial(runs[account], *arguments, "--dry-run", kubeconfig=api.kubeconfig)
        dry, expected, requests = _between_two_equal_runs(api, partial(run, "--as", name), run)

        assert (dry.exit_code, _without_digests(dry)) == (expected.exit_code, _without_digests(expected)), account
        assert dry.summary, account
        api.mark()
        if explained := EXPLAINED.get(account):
            where = (*arguments, "--explain", explained.format(tokens[account]))
            assert rows(runs[account](*where, "--as", name, kubeconfig=api.kubeconfig)), account
        needed |= set().union(*map(used, [*requests, *api.requests()]))
        assert api.writes() == []
        api.mark()
        runs[account](*arguments, "--as", name, kubeconfig=api.kubeconfig)
        assert {each.status for each in api.writes()} == ({403} if fault_worlds()[account].writes else set()), account

    rights = set().union(*map(granted, READER))
    assert needed - REVIEWS - OF_ROLLOUTS <= {right[1:] for right in rights}
    assert {right[1:] for right in rights if right[0] != OWN} <= needed


def _between_two_equal_runs(
    api: Api, user: Callable[[], Ran], admin: Callable[[], Ran]
) -> tuple[Ran, Ran, list[Request]]:
    """Return a dry run of a user, the run of an admin after it, and the requests of the user.

    The run before it was equal to the one after it: so nothing changed meanwhile, although controllers still write
    statuses, and delete what earlier tests left.
    """
    for _ in range(10):
        before = admin()
        api.mark()
        ran = user()
        requests = api.requests()
        assert api.writes() == []
        after = admin()
        if _without_digests(before) == _without_digests(after):
            break
    return ran, after, requests


def _without_digests(ran: Ran) -> str:
    """Return the results; as long as there is no key, each dry run of roll-workloads has digests with another one."""
    return re.sub(r'"[0-9a-f]{32}"', '"digest"', json.dumps(ran.results))


def test_users_with_role_view_read_custom_resources_and_nodes_and_no_secrets(api: Api) -> None:
    name = user(api, "view")

    wait_for(lambda: reads(api, name, f"/apis/{OWN}/v1/registrymirrors"), "the aggregated rights")

    paths = [f"/apis/{OWN}/v1/{each}" for each in CUSTOM_RESOURCES] + ["/api/v1/nodes", "/api/v1/secrets"]
    assert [path for path in paths if not reads(api, name, path)] == ["/api/v1/secrets"]
