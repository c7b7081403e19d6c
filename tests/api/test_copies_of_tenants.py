"""What a tenant can do to its own copies: the run reports it, and it fails no run and no other copy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.conftest import Ran, Run
from tests.api.test_safety import ready
from tests.apis import Api, Object, wait_for
from tests.worlds import at, configmap, content, rule, secret

MERGE = {"Content-Type": "application/merge-patch+json"}
FINALIZER = "tests.kubechores.dev/keep"


class Tenant:
    """An account with the role `edit` in one namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        account = {"name": "tenant", "namespace": namespace}
        api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        api.create(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": account,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
                "subjects": [{"kind": "ServiceAccount", **account}],
            }
        )
        self.api, self.token = api, api.service_account_token(namespace, "tenant")

    def patch(self, obj: Object, **patch: Any) -> None:
        self.api.call("PATCH", self.api.path(obj), patch, headers=MERGE, token=self.token)

    def keep(self, obj: Object) -> None:
        """Have a finalizer keep the object when it is deleted."""
        self.patch(obj, metadata={"finalizers": [FINALIZER]})

    def delete(self, obj: Object) -> None:
        self.api.call("DELETE", self.api.path(obj), token=self.token)


@pytest.fixture
def home(api: Api) -> str:
    return api.namespace("home")


@pytest.fixture
def team(api: Api) -> Iterator[str]:
    """A namespace whose copies lose their finalizers in the end."""
    name = api.namespace("team")
    yield name
    for kind in ("ConfigMap", "Secret"):
        for obj in api.items("v1", kind, name):
            api.patch(obj, {"metadata": {"finalizers": None}})


@pytest.fixture
def tenant(api: Api, team: str) -> Tenant:
    return Tenant(api, team)


def only(ran: Ran) -> tuple[str, str, str]:
    """Code, severity and outcome of the only finding of a run."""
    (found,) = ran.results
    return found["code"], found["severity"], found["outcome"]


# copies that a finalizer keeps


def test_a_wanted_copy_that_a_finalizer_keeps_is_a_warning_and_its_rule_is_not_ready(
    api: Api, sync: Run, home: str, team: str, tenant: Tenant
) -> None:
    source = api.create(secret(home))
    api.create(rule("logins", home, f"*-{api.token}", ruleType="secret"))
    sync()
    tenant.keep(at(team, source))
    tenant.delete(at(team, source))

    ran = sync()

    assert (ran.exit_code, ran.summary, only(ran)) == (0, {"terminating": 1}, ("terminating", "warning", "told"))
    assert ready(api, "logins") == {
        "status": "False",
        "reason": "Terminating",
        "message": f"1 of 1 places still being deleted: secret/login in namespace {team}",
    }
    assert sync("--check").exit_code == 3
    api.mark()
    assert (sync().exit_code, api.writes()) == (0, [])
    tenant.patch(at(team, source), metadata={"finalizers": None})
    assert sync().summary == {"created": 1}
    assert ready(api, "logins")["reason"] == "Synced"


def test_a_replacement_that_a_finalizer_stops_halfway_is_a_warning(
    api: Api, sync: Run, home: str, team: str, tenant: Tenant
) -> None:
    source = api.create(configmap(home))
    api.create(rule("settings", home, f"*-{api.token}"))
    sync()
    tenant.keep(at(team, source))
    tenant.patch(at(team, source), immutable=True)
    api.patch(source, {"data": {"a": "new"}})

    for _ in range(2):
        ran = sync()
        assert (ran.exit_code, only(ran)) == (0, ("terminating", "warning", "told"))
        assert ready(api, "settings")["reason"] == "Terminating"

    tenant.patch(at(team, source), metadata={"finalizers": None})
    assert sync().summary == {"created": 1}
    assert content(api.get(at(team, source))) == content(api.get(source))


def test_a_withdrawn_copy_that_a_finalizer_keeps_is_in_the_status_of_a_rule_that_stays_ready(
    api: Api, sync: Run, home: str, team: str, tenant: Tenant
) -> None:
    withdrawn, other = api.create(secret(home)), api.create(secret(home, "other"))
    api.create(rule("logins", home, f"*-{api.token}", ruleType="secret"))
    sync()
    tenant.keep(at(team, withdrawn))
    api.delete(withdrawn)
    assert sync().summary == {"deleted": 1, "unchanged": 1}

    ran = sync()

    assert (ran.exit_code, only(ran)) == (0, ("orphan", "warning", "told"))
    assert "a finalizer keeps it" in ran.results[0]["reason"]
    assert ready(api, "logins") == {
        "status": "True",
        "reason": "OrphansTerminating",
        "message": f"1 copy; 1 that no rule wants is still being deleted: secret/login in namespace {team}",
    }
    assert sync("--check").exit_code == 3
    api.mark()
    assert (sync().exit_code, api.writes()) == (0, [])
    tenant.patch(at(team, withdrawn), metadata={"finalizers": None})
    assert sync().summary == {"unchanged": 1}
    assert ready(api, "logins")["reason"] == "Synced"
    assert api.get(at(team, other))


def test_a_withdrawn_copy_that_a_finalizer_keeps_is_reported_when_its_rule_is_gone(
    api: Api, sync: Run, home: str, team: str, tenant: Tenant
) -> None:
    source = api.create(secret(home))
    logins = api.create(rule("logins", home, f"*-{api.token}", ruleType="secret"))
    sync()
    tenant.keep(at(team, source))
    api.delete(logins)
    sync()

    ran = sync()

    assert (ran.exit_code, only(ran)) == (0, ("orphan", "warning", "told"))


def test_a_copy_in_a_namespace_that_is_being_deleted_is_no_finding(
    api: Api, sync: Run, home: str, team: str, tenant: Tenant
) -> None:
    source = api.create(secret(home))
    api.create(rule("logins", home, f"*-{api.token}", ruleType="secret"))
    sync()
    tenant.keep(at(team, source))
    api.delete({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}})
    wait_for(lambda: "deletionTimestamp" in (api.get(at(team, source)) or {})["metadata"], "the copy to be deleted")

    ran = sync()

    assert (ran.exit_code, ran.results) == (0, [])
