"""What tokens of sync-copies and roll-workloads can do to ServiceAccounts and Rollouts, with the admission policies."""

from pathlib import Path

import pytest

from tests.api.test_pull_secrets import RECORD, account
from tests.apis import Api, Object, wait_for
from tests.rights import create_account
from tests.workloads import BASELINE, install_rollouts, rollout
from tests.worlds import namespace_object, service_account

pytestmark = [pytest.mark.cluster, pytest.mark.parametrize("api", ["real"], indirect=True)]
MERGE = {"Content-Type": "application/merge-patch+json"}


def recorded(text: str | None) -> Object:
    return {"metadata": {"annotations": {RECORD: text}, "labels": {RECORD: "true" if text else None}}}


def test_a_stolen_token_changes_nothing_but_names_of_copies(api: Api, installed: Path) -> None:
    token = api.service_account_token("kube-chores", "sync-copies")
    robot = api.create(account(api.namespace("team"), "theirs"))
    record = recorded("kube-chores/login")
    path = api.path(robot)

    def patch(body: Object, to: str = path, token: str = token) -> int:
        return api.request("PATCH", to, body, headers=MERGE, token=token)[0]

    theirs = [{"name": "theirs"}, {"name": "kube-chores"}]  # the second has the name of the rule's namespace
    ours = [*theirs, {"name": "login"}]
    assert patch({"imagePullSecrets": theirs}, token="") == 200
    wait_for(lambda: patch({**record, "imagePullSecrets": ours}) == 200, "the rights of the token")
    forbidden: list[Object] = [
        {"imagePullSecrets": []},
        {"imagePullSecrets": [*ours, {"name": "more"}]},
        {"imagePullSecrets": [{"name": "login"}, {"name": "kube-chores"}]},
        {"imagePullSecrets": [{"name": "login"}, {"name": "theirs"}]},
        {"imagePullSecrets": [ours[1], ours[0], ours[2]]},
        {"imagePullSecrets": [*ours, ours[0]]},
        recorded(None),
        recorded("kube-chores/login,kube-chores/theirs"),
        {**recorded("kube-chores/login,kube-chores/theirs"), "imagePullSecrets": [{"name": "login"}]},
        recorded("kube-chores/login,kube-chores/later"),
        recorded("kube-chores/login, kube-chores/theirs"),
        recorded("kube-chores/login,"),
        recorded("login"),
        {"metadata": {"labels": {RECORD: None}}},
        {"metadata": {"labels": {RECORD: "x"}}},
        {**recorded(f"kube-chores/login,kube-chores/{'x' * 254}"), "imagePullSecrets": [*ours, {"name": "x" * 254}]},
        {"secrets": [{"name": "x"}]},
        {"automountServiceAccountToken": True},
        {"metadata": {"labels": {"team": "x"}}},
        {"metadata": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/x"}}},
        {"metadata": {"finalizers": ["example.com/x"]}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "x"}]}},
        {"metadata": {"labels": {"kubechores.dev/job": "sync-copies"}}},
    ]
    assert [patch(each) for each in forbidden] == [403] * len(forbidden)
    system = api.path(service_account("kube-system", "default"))
    assert patch({**record, "imagePullSecrets": ours}, system) == 403
    assert api.request("DELETE", path, None, token=token)[0] == 403
    assert patch(recorded("kube-chores/login,other/gone"), token="") == 200
    assert patch({**recorded("other/gone"), "imagePullSecrets": theirs}) == 200, "the name of another is not there"
    assert patch({**record, "imagePullSecrets": ours}, token="") == 200
    both = {**recorded("kube-chores/login,other/more"), "imagePullSecrets": [*ours, {"name": "more"}]}
    assert patch(both) == 403, "it cannot list the rules of namespace other"
    assert patch(both, token="") == 200
    assert patch({**record, "imagePullSecrets": ours}) == 403, "the name of another installation"
    assert patch({**recorded("other/more"), "imagePullSecrets": [*theirs, {"name": "more"}]}) == 200
    assert patch({**recorded(None), "imagePullSecrets": theirs}, token="") == 200
    unlabelled: Object = {"metadata": {"annotations": {RECORD: "kube-chores/theirs"}}}
    assert patch(unlabelled, token="") == 200
    assert patch({**recorded(None), "imagePullSecrets": [theirs[1]]}) == 403, "without the label, it is no record"
    garbage: Object = {"metadata": {"annotations": {RECORD: "[theirs"}, "labels": {RECORD: "true"}}}
    assert patch(garbage, token="") == 200
    assert patch({**recorded(None), "imagePullSecrets": [theirs[0]]}) == 403
    assert patch({**record, "imagePullSecrets": ours}) == 200, "a record of a user that is not valid counts as none"


def test_a_namespace_that_opts_out_loses_the_names_of_copies_and_gets_no_more(api: Api, installed: Path) -> None:
    token = api.service_account_token("kube-chores", "sync-copies")
    system = api.namespace("kube-team", annotations={"kubechores.dev/copies": "true"})
    robot = api.create(account(system, "theirs"))
    theirs = [{"name": "theirs"}]
    attached = {**recorded("kube-chores/login"), "imagePullSecrets": [*theirs, {"name": "login"}]}

    def patch(body: Object) -> int:
        return api.request("PATCH", api.path(robot), body, headers=MERGE, token=token)[0]

    wait_for(lambda: patch(attached) == 200, "the rights of the token")
    api.patch(namespace_object(system), {"metadata": {"annotations": {"kubechores.dev/copies": None}}})
    wait_for(lambda: patch({**recorded(None), "imagePullSecrets": theirs}) == 200, "the namespace to opt out")
    wait_for(lambda: patch(attached) == 403, "the policy to have the namespace without its annotation")


def test_users_cannot_write_the_record_of_names(api: Api, installed: Path) -> None:
    team = api.namespace("team")
    robot = api.create(account(team))
    tenant = create_account(api, team, "tenant", "edit")

    def patch(body: Object) -> int:
        return api.request("PATCH", api.path(robot), body, headers=MERGE, token=tenant)[0]

    wait_for(lambda: patch({"imagePullSecrets": [{"name": "login"}]}) == 200, "the rights of the tenant")
    assert patch(recorded("kube-chores/login")) == 403
    forged = account(team, "login", name="forged")
    forged["metadata"] |= recorded("kube-chores/login")["metadata"]
    assert api.request("POST", api.path(forged).rpartition("/")[0], forged, token=tenant)[0] == 403
    api.patch(robot, recorded("kube-chores/login"))
    assert [patch(recorded("kube-chores/other")), patch({"metadata": {"labels": {RECORD: None}}})] == [403, 403]
    assert patch({"imagePullSecrets": [{"name": "mine"}, {"name": "login"}]}) == 200
    assert patch(recorded(None)) == 200, "as kubectl replace does"


def test_a_stolen_token_changes_nothing_but_the_time_of_a_restart(api: Api, installed: Path) -> None:
    install_rollouts(api)
    token = api.service_account_token("kube-chores", "roll-workloads")
    web = api.create(rollout(api.namespace("shop")))
    other = rollout(web["metadata"]["namespace"], opted_in=None)
    other["metadata"]["name"] = "other"
    api.create(other)

    def patch(body: Object, to: Object = web, status: str = "") -> int:
        return api.request("PATCH", f"{api.path(to)}{status}", body, headers=MERGE, token=token)[0]

    restart = {"metadata": {"annotations": {BASELINE: "{}"}}, "spec": {"restartAt": "2026-01-01T00:00:00Z"}}
    wait_for(lambda: patch(restart) == 200, "the rights of the token")
    forbidden: list[Object] = [
        {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "x"}]}}}},
        {"spec": {"replicas": 0}},
        {"spec": {"paused": True}},
        {"metadata": {"labels": {"team": "x"}}},
        {"metadata": {"annotations": {"kubechores.dev/roll-on-config-change": "false"}}},
        {"metadata": {"finalizers": ["example.com/x"]}},
    ]
    assert [patch(each) for each in forbidden] == [403] * len(forbidden)
    assert (patch(restart, other), patch({"status": {"phase": "Paused"}}, web, "/status")) == (403, 403)
    assert api.request("DELETE", api.path(web), None, token=token)[0] == 403
