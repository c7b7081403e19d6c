"""Namespaces in which the API server refuses writes of the jobs: reported, without an effect on other namespaces."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import count

import pytest

from jobs.kit.api.transport import IN_FLIGHT
from tests.admission import denied, patched, refusing, silent, webhook
from tests.api.conftest import Ran, Run
from tests.api.test_copies_of_tenants import quota
from tests.api.test_fetch_rates import condition
from tests.api.test_requests import BIND
from tests.api.test_safety import ready
from tests.apis import Api, Object, wait_for
from tests.farm import farmed, pod
from tests.rights import RBAC, account, can_i, grant
from tests.workloads import settle, workload
from tests.worlds import at, cluster_role_ref, configmap, content, exchange_rate, role_binding, rule, secret

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.parametrize("api", ["real"], indirect=True),
    pytest.mark.usefixtures("installed"),
]

Refusing = Callable[..., AbstractContextManager[object]]
# For each cause: the code, the reason in a status, and the exit code if all writes are refused.
REFUSALS: dict[str, tuple[Refusing, str, str, int]] = {
    "a policy": (refusing, "denied", "Denied", 2),
    "a webhook that denies": (lambda api, *at: webhook(api, denied, *at), "denied", "Denied", 2),
    "a webhook that is down": (lambda api, *at: webhook(api, None, *at), "webhook-failed", "WebhookFailed", 1),
    "a webhook that does not answer": (
        lambda api, *at: webhook(api, silent, *at),
        "webhook-failed",
        "WebhookFailed",
        1,
    ),
}
needs_policies = pytest.mark.since(30, "admission policies")
NEWER = {"a policy": needs_policies}
each_refusal = pytest.mark.parametrize("refusal", [pytest.param(name, marks=NEWER.get(name, ())) for name in REFUSALS])
# For jobs other than sync-copies: one refusal of each code.
each_code = pytest.mark.parametrize("refusal", ["a webhook that denies", "a webhook that is down"])


def failed(ran: Ran) -> list[tuple[str, str, str]]:
    """Namespace, code and severity of each failed write."""
    return [
        (each["object"]["namespace"], each["code"], each["severity"])
        for each in ran.results
        if each["outcome"] == "failed"
    ]


def with_two_targets(api: Api) -> tuple[Object, str, str]:
    """Create a source, two namespaces, and a rule that copies it to both; return all three."""
    home, team, other = (api.namespace(name) for name in ("home", "team", "other"))
    source = api.create(configmap(home))
    api.create(rule("settings", home, [team, other]))
    return source, team, other


@each_refusal
def test_copies_that_one_namespace_refuses_fail_no_run(api: Api, sync: Run, refusal: str) -> None:
    refuse, code, reason, _ = REFUSALS[refusal]
    source, team, other = with_two_targets(api)

    with refuse(api, team):
        ran = sync()
        condition = ready(api, "settings")
        api.mark()
        again = sync()

        assert [event["reason"] for event in api.events()] == [reason]
    assert (ran.exit_code, ran.summary, failed(ran)) == (0, {"created": 1, "failed": 1}, [(team, code, "warning")])
    assert content(api.get(at(other, source))) == content(api.get(source))
    assert (condition["status"], condition["reason"]) == ("False", reason)
    assert condition["message"].startswith(f"configmap/settings in namespace {team}: ")
    assert (again.exit_code, again.summary) == (0, {"failed": 1, "unchanged": 1})
    assert [each.status for each in api.writes()] == [500 if code == "webhook-failed" else api.writes()[0].status]

    assert sync().summary == {"created": 1, "unchanged": 1}
    assert ready(api, "settings")["reason"] == "Synced"


@needs_policies
def test_a_role_binding_that_its_namespace_refuses_to_recreate_stays(api: Api, sync: Run) -> None:
    home, team, other = (api.namespace(name) for name in ("home", "team", "other"))
    grant(api, account("kube-chores", "sync-copies"), BIND)
    source = role_binding(home)
    api.create(source)
    api.create(rule("bindings", home, [team, other], ruleType="rolebinding"))
    sync()
    before = api.get(at(team, source))
    api.delete(source)
    recreated = api.create({**source, "roleRef": cluster_role_ref("edit")})
    wait_for(lambda: can_i(api, "sync-copies", "bind", "clusterroles", RBAC), "the right to bind ClusterRoles")

    with refusing(api, team):
        api.mark()
        ran = sync()
        deleted = [each for each in api.copy_writes() if each.method == "DELETE"]

    assert (ran.exit_code, ran.summary, failed(ran)) == (0, {"failed": 1, "replaced": 1}, [(team, "denied", "warning")])
    assert [each.path.split("/")[-3] for each in deleted] == [other]
    assert api.get(at(team, source)) == before
    assert content(api.get(at(other, source))) == content(recreated)
    assert sync().summary == {"replaced": 1, "unchanged": 1}


@each_refusal
def test_a_policy_that_refuses_writes_in_the_whole_cluster_fails_a_run_without_other_changes(
    api: Api, sync: Run, refusal: str
) -> None:
    refuse, code, _, exit_code = REFUSALS[refusal]
    home, teams = api.namespace("home"), [api.namespace(f"team-{number}") for number in range(6)]
    source = api.create(configmap(home))
    api.create(configmap(home, "other"))
    api.create(rule("settings", home, teams))
    sync()
    api.patch(source, {"data": {"a": "new"}})

    with refuse(api):
        sync()  # the Event in the namespace of the run is refused too
        ran = sync()

    assert (ran.exit_code, ran.summary) == (exit_code, {"failed": 6, "unchanged": 6})
    assert [(namespace, found) for namespace, found, _ in failed(ran)] == [(team, code) for team in teams]


@each_code
def test_a_refusal_in_the_namespace_of_the_run_fails_it(api: Api, fetch: Run, refusal: str) -> None:
    refuse, code, _, exit_code = REFUSALS[refusal]
    team = api.namespace("team")
    api.create(exchange_rate(team))
    fetch("-n", team)
    api.create(exchange_rate(team, "chf", "CHF"))

    with refuse(api, team):
        ran = fetch("-n", team)

    assert (ran.exit_code, ran.summary) == (exit_code, {"failed": 2, "unchanged": 1})
    assert [(namespace, found) for namespace, found, _ in failed(ran)] == [(team, code)] * 2


@each_code
def test_a_rate_that_its_namespace_refuses_fails_no_run(api: Api, fetch: Run, refusal: str) -> None:
    refuse, code, reason, _ = REFUSALS[refusal]
    team, other = api.namespace("team"), api.namespace("other")
    refused, served = api.create(exchange_rate(team)), api.create(exchange_rate(other))

    with refuse(api, team):
        ran = fetch()

    event = (team, code, "warning")
    assert (ran.exit_code, failed(ran)) == (0, [(team, code, "warning"), event])
    assert (condition(api, refused)["status"], condition(api, refused)["reason"]) == ("False", reason)
    assert condition(api, served)["status"] == "True"
    assert fetch().summary == {"created": 1, "unchanged": 1}


@each_code
def test_farm_pods_that_their_namespace_refuses_fail_no_run(api: Api, farm: Run, refusal: str) -> None:
    refuse, code, _, _ = REFUSALS[refusal]
    team, other = farmed(api, "team"), farmed(api, "other")
    for namespace in (team, other):
        api.create(pod(namespace, "web"))

    with refuse(api, team):
        ran = farm()

    assert (ran.exit_code, failed(ran)) == (0, [(team, code, "warning")])
    assert ran.summary == {"created": 1, "failed": 1}


@each_code
def test_a_workload_that_its_namespace_refuses_to_roll_fails_no_run(api: Api, roll: Run, refusal: str) -> None:
    refuse, code, _, _ = REFUSALS[refusal]
    team, other = api.namespace("team"), api.namespace("other")
    for namespace in (team, other):
        api.create(configmap(namespace))
        settle(api, api.create(workload(namespace)))

    with refuse(api, team):
        ran = roll()

    assert (ran.exit_code, failed(ran)) == (0, [(team, code, "warning")])
    assert ran.summary == {"annotated": 1, "failed": 1}


def test_a_copy_that_another_client_changes_at_each_write_fails_no_run(api: Api, sync: Run) -> None:
    source, team, other = with_two_targets(api)
    sync()
    api.patch(source, {"data": {"a": "new"}})
    numbers = count()

    def fights(_request: object) -> dict[str, object]:
        api.patch(at(team, source), {"metadata": {"labels": {"changed": str(next(numbers))}}})
        return {"allowed": True}

    with webhook(api, fights, team):
        ran = sync()
        condition = ready(api, "settings")
        api.mark()
        again = sync()
        assert [each for each in api.writes() if each.path.endswith("/status")] == []

    assert (ran.exit_code, failed(ran)) == (0, [(team, "write-conflict", "warning")])
    assert content(api.get(at(other, source))) == content(api.get(source))
    assert (condition["status"], condition["reason"]) == ("False", "WriteConflict")
    assert (again.exit_code, failed(again)) == (0, [(team, "write-conflict", "warning")])
    assert sync().summary == {"configured": 1, "unchanged": 1}


def test_a_webhook_that_is_down_gets_few_requests(api: Api, sync: Run, home: str, team: str) -> None:
    for number in range(2 * IN_FLIGHT):
        api.create(configmap(home, f"settings-{number}"))
    api.create(rule("settings", home, [team, api.namespace("other")]))

    with webhook(api, None, team):
        api.mark()
        ran = sync()
        sent = [each for each in api.writes() if each.path == f"/api/v1/namespaces/{team}/configmaps"]

    assert (ran.exit_code, ran.summary) == (0, {"created": 2 * IN_FLIGHT, "failed": 2 * IN_FLIGHT})
    assert len(sent) <= IN_FLIGHT
    assert {each.status for each in sent} == {500}
    assert sync().summary == {"created": 2 * IN_FLIGHT, "unchanged": 2 * IN_FLIGHT}


def test_a_quota_whose_use_is_not_known_yet_fails_no_run(api: Api, farm: Run) -> None:
    """The controller starts to count custom resources half a minute after their CRD is created."""
    team, other = farmed(api, "team"), farmed(api, "other")
    meta = {"name": "none", "namespace": team}
    hard = {"count/farmpods.kubechores.dev": "0"}
    api.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": hard}})
    for namespace in (team, other):
        api.create(pod(namespace, "web"))

    ran = farm()

    assert (ran.exit_code, ran.summary) == (0, {"created": 1, "failed": 1})
    assert failed(ran) == [(team, "quota-exceeded", "warning")]


@needs_policies
def test_a_label_of_helm_on_a_copy_fails_no_run(api: Api, sync: Run) -> None:
    """A shipped policy denies the job writes to such copies, and a tenant can label a copy."""
    source, team, other = with_two_targets(api)
    sync()
    api.patch(at(team, source), {"metadata": {"labels": {"owner": "helm"}}})
    api.patch(source, {"data": {"a": "new"}})

    ran = sync()

    assert (ran.exit_code, failed(ran)) == (0, [(team, "denied", "warning")])
    assert content(api.get(at(other, source))) == content(api.get(source))
    assert "label owner: helm" in ready(api, "settings")["message"]
    api.patch(at(team, source), {"metadata": {"labels": {"owner": None}}})
    assert sync().summary == {"configured": 1, "unchanged": 1}


def test_a_status_does_not_contain_the_use_of_a_quota(api: Api, sync: Run, home: str, team: str) -> None:
    full = quota(api, team, "count/secrets")
    api.create(secret(home))
    api.create(rule("logins", home, [team, api.namespace("other")], ruleType="secret"))
    sync()
    before = ready(api, "logins")
    api.patch(full, {"spec": {"hard": {"count/secrets": "1"}}})
    other = secret(team, "other")
    wait_for(lambda: api.request("POST", api.path(other, named=False), other)[0] == 201, "the quota to be raised")
    api.mark()

    ran = sync()

    assert "used: count/secrets=1" in ran.results[0]["message"]
    assert (before["reason"], ready(api, "logins")) == ("QuotaExceeded", before)
    assert before["message"].endswith("exceeded quota: none")
    assert [each.method for each in api.writes()] == ["POST"]


def test_a_status_does_not_contain_how_a_webhook_failed(api: Api, sync: Run, home: str, team: str) -> None:
    api.create(configmap(home))
    api.create(rule("settings", home, [team, api.namespace("other")]))
    with webhook(api, None, team):
        down = sync()
        before = ready(api, "settings")
    api.mark()
    with webhook(api, silent, team):
        late = sync()

    assert len({ran.results[-1]["message"] for ran in (down, late)}) == 2
    assert ready(api, "settings") == before
    assert [each.method for each in api.writes()] == ["POST"]


def test_a_copy_that_admission_changes_creates_an_event_for_its_rule(api: Api, sync: Run) -> None:
    source, team, other = with_two_targets(api)

    with webhook(api, patched({"op": "replace", "path": "/data/a", "value": "theirs"}), team, mutating=True):
        ran = sync()

    assert (ran.exit_code, ran.summary) == (0, {"created": 2})
    assert content(api.get(at(other, source))) == content(api.get(source))
    events = [event for event in api.events() if event["reason"] == "ChangedByAdmission"]
    assert [(event["type"], event["involvedObject"]["name"]) for event in events] == [("Warning", "settings")]
    where = f"configmap/settings in namespace {team}"
    assert events[0]["message"].startswith(f"{where}: admission changed data.a")
    assert "theirs" not in events[0]["message"]
    assert ready(api, "settings")["reason"] == "Synced"


def test_a_roll_that_admission_undoes_fails_no_run(api: Api, roll: Run) -> None:
    team, other = api.namespace("team"), api.namespace("other")
    made = {}
    for namespace in (team, other):
        api.create(configmap(namespace))
        made[namespace] = settle(api, api.create(workload(namespace)))
    roll()
    for namespace in (team, other):
        api.patch(configmap(namespace), {"data": {"a": "changed"}})
        settle(api, made[namespace])
    undone = {"op": "remove", "path": "/spec/template/metadata/annotations"}

    with webhook(api, patched(undone), team, mutating=True):
        ran = roll()

    assert (ran.exit_code, failed(ran)) == (0, [(team, "changed-by-admission", "warning")])
    assert ran.summary == {"restarted": 1, "failed": 1}
