"""What a tenant can do to its own copies: runs report it, do not fail, and write all other copies."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from jobs.kit.values import stamps
from tests.api.conftest import Ran, Run, copied, with_rule
from tests.api.test_fetch_rates import condition, configmap_of
from tests.api.test_safety import ready
from tests.apis import Api, Object, wait_for
from tests.canary import canary
from tests.rates import RATES, RatesServer, ago
from tests.rights import create_account
from tests.rivals import rival
from tests.worlds import at, configmap, content, encoded, exchange_rate, namespace_object, rule, secret

MERGE = {"Content-Type": "application/merge-patch+json"}
FINALIZER = "tests.kubechores.dev/keep"
FULL = 256 << 10
ON_THE_REAL_SERVER = pytest.mark.parametrize("api", [pytest.param("real", marks=pytest.mark.cluster)], indirect=True)


class Tenant:
    """An account with role `edit` in one namespace."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.token = api, create_account(api, namespace, "tenant", "edit")

    def patch(self, obj: Object, **patch: Any) -> None:
        self.api.call("PATCH", self.api.path(obj), patch, headers=MERGE, token=self.token)

    def keep(self, obj: Object) -> None:
        """Have a finalizer keep the object when it is deleted."""
        self.patch(obj, metadata={"finalizers": [FINALIZER]})

    def delete(self, obj: Object) -> None:
        self.api.call("DELETE", self.api.path(obj), token=self.token)


@pytest.fixture
def team(api: Api) -> Iterator[str]:
    """Yield a namespace; afterwards, remove the finalizers of its copies."""
    name = api.namespace("team")
    yield name
    for kind in ("ConfigMap", "Secret"):
        for obj in api.items("v1", kind, name):
            api.patch(obj, {"metadata": {"finalizers": None}})


@pytest.fixture
def tenant(api: Api, team: str) -> Tenant:
    return Tenant(api, team)


def only(ran: Ran) -> tuple[str, str, str]:
    """Return code, severity and outcome of the only finding of a run."""
    (found,) = ran.results
    return found["code"], found["severity"], found["outcome"]


# copies that a finalizer keeps


def test_a_desired_copy_that_a_finalizer_keeps_is_a_warning_and_its_rule_is_not_ready(
    api: Api, sync: Run, home: str, team: str, tenant: Tenant
) -> None:
    source = copied(api, sync, secret(home))
    tenant.keep(at(team, source))
    tenant.delete(at(team, source))

    ran = sync()

    assert (ran.exit_code, ran.summary, only(ran)) == (0, {"terminating": 1}, ("terminating", "warning", "reported"))
    assert ready(api, "logins") == {
        "status": "False",
        "reason": "Terminating",
        "message": f"1 of 1 copies still being deleted: secret/login in namespace {team}",
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
    source = copied(api, sync, configmap(home))
    tenant.keep(at(team, source))
    tenant.patch(at(team, source), immutable=True)
    api.patch(source, {"data": {"a": "new"}})

    for _ in range(2):
        ran = sync()
        assert (ran.exit_code, only(ran)) == (0, ("terminating", "warning", "reported"))
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

    assert (ran.exit_code, only(ran)) == (0, ("orphan", "warning", "reported"))
    assert "a finalizer keeps it" in ran.results[0]["reason"]
    assert ready(api, "logins") == {
        "status": "True",
        "reason": "OrphansTerminating",
        "message": f"1 copy; 1 orphan is still being deleted: secret/login in namespace {team}",
    }
    assert sync("--check").exit_code == 3
    api.mark()
    assert (sync().exit_code, api.writes()) == (0, [])
    tenant.patch(at(team, withdrawn), metadata={"finalizers": None})
    assert sync().summary == {"unchanged": 1}
    assert ready(api, "logins")["reason"] == "Synced"
    assert api.get(at(team, other))


def opt_out(api: Api, team: str, _source: Object) -> None:
    annotation = {"kubechores.dev/copies": "false"}
    api.patch(namespace_object(team), {"metadata": {"annotations": annotation}})


def unlabel(api: Api, _team: str, source: Object) -> None:
    api.patch(source, {"metadata": {"labels": {"copyrator": None}}})


@pytest.mark.parametrize("withdraw", [opt_out, unlabel])
def test_the_run_that_deletes_a_copy_already_reports_that_a_finalizer_keeps_it(
    api: Api, sync: Run, home: str, team: str, tenant: Tenant, withdraw: Callable[[Api, str, Object], None]
) -> None:
    source = api.create(secret(home))
    api.create(secret(home, "other"))
    api.namespace("search")
    api.create(rule("logins", home, f"*-{api.token}", ruleType="secret"))
    sync()
    tenant.keep(at(team, source))
    withdraw(api, team, source)

    ran = sync()

    kept = [
        each["message"]
        for each in ran.results
        if each["object"] == {"kind": "Secret", "name": "login", "namespace": team}
    ]
    assert (ran.exit_code, kept) == (0, ["a finalizer keeps it; see its metadata.finalizers"])
    reported = ready(api, "logins")
    assert (reported["status"], reported["reason"]) == ("True", "OrphansTerminating")
    assert reported["message"].endswith(f"1 orphan is still being deleted: secret/login in namespace {team}")
    api.mark()
    assert (sync().exit_code, api.writes()) == (0, [])


def test_a_withdrawn_copy_that_a_finalizer_keeps_is_reported_after_its_rule_was_deleted(
    api: Api, sync: Run, home: str, team: str, tenant: Tenant
) -> None:
    source = api.create(secret(home))
    logins = api.create(rule("logins", home, f"*-{api.token}", ruleType="secret"))
    sync()
    tenant.keep(at(team, source))
    api.delete(logins)
    sync()

    ran = sync()

    assert (ran.exit_code, only(ran)) == (0, ("orphan", "warning", "reported"))


# copies that cannot be written


def fill_annotations(tenant: Tenant, copy: Object) -> None:
    """Fill the annotations to their limit, without room for the stamp."""
    without_stamp = dict.fromkeys((stamps.RULE, stamps.SOURCE, stamps.FINGERPRINT, stamps.ORPHANS))
    tenant.patch(copy, metadata={"annotations": {**without_stamp, "fill": "x" * (FULL - len("fill"))}})


def test_a_copy_whose_annotations_are_full_fails_no_run(
    api: Api, sync: Run, home: str, team: str, tenant: Tenant
) -> None:
    source = api.create(configmap(home))
    other = api.namespace("other")
    api.create(rule("settings", home, f"*-{api.token}"))
    sync()
    fill_annotations(tenant, at(team, source))
    api.patch(source, {"data": {"a": "new"}})

    ran = sync()

    assert (ran.exit_code, ran.summary) == (0, {"configured": 1, "failed": 1})
    assert content(api.get(at(other, source))) == content(api.get(source))
    reported = ready(api, "settings")
    assert (reported["status"], reported["reason"]) == ("False", "TooLarge")
    assert reported["message"].startswith(f"configmap/settings in namespace {team}: ")
    assert "metadata.annotations: Too long" in reported["message"]
    assert "labels and annotations of other clients leave no room" in reported["message"]
    assert sync("--check").exit_code == 3
    tenant.patch(at(team, source), metadata={"annotations": {"fill": None}})
    assert sync().summary == {"configured": 1, "unchanged": 1}


@pytest.mark.parametrize("copied_before", [True, False])
def test_annotations_of_a_source_that_leave_no_room_for_the_stamp_fail_the_run(
    api: Api, sync: Run, home: str, team: str, copied_before: bool
) -> None:
    source = with_rule(api, configmap(home), metadata={"copyAnnotations": ["fill"]})
    if copied_before:
        sync()
    api.patch(source, {"metadata": {"annotations": {"fill": "x" * (FULL - len("fill"))}}})

    ran = sync()

    assert (ran.exit_code, ran.summary) == (1, {"failed": 1})
    assert bool(api.get(at(team, source))) is copied_before


def test_a_configmap_of_a_rate_whose_annotations_are_full_fails_no_run(
    api: Api, fetch: Run, rates: RatesServer, team: str, tenant: Tenant
) -> None:
    rate = api.create(exchange_rate(team))
    rates.publish(day=ago(1))
    fetch()
    fill_annotations(tenant, configmap_of(rate))
    rates.publish()

    ran = fetch()

    assert (ran.exit_code, ran.summary) == (0, {"failed": 1})
    assert condition(api, rate)["reason"] == "TooLarge"


@ON_THE_REAL_SERVER
@pytest.mark.parametrize(("size", "count"), [(900_000, 7000), ((1 << 20) - 100, 7000), ((1 << 20) - 100, 10_000)])
def test_a_copy_whose_labels_leave_no_room_in_etcd_fails_no_run(
    api: Api, sync: Run, home: str, team: str, tenant: Tenant, size: int, count: int
) -> None:
    source = copied(api, sync, configmap(home, data={"a": "x" * size}))
    labels = {f"{number:05}{'k' * 58}": "v" * 63 for number in range(count)}
    tenant.patch(at(team, source), data={"a": "y"}, metadata={"labels": labels})

    ran = sync()

    assert (ran.exit_code, ran.summary) == (0, {"failed": 1})
    assert "labels and annotations of other clients leave no room" in ready(api, "settings")["message"]
    tenant.patch(at(team, source), metadata={"labels": dict.fromkeys(labels)})
    assert sync().summary == {"configured": 1}


def quota(api: Api, namespace: str, what: str) -> Object:
    """Create a quota that allows none of these objects, and wait until it is enforced."""
    created = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": namespace}}
    api.create({**created, "spec": {"hard": {what: "0"}}})
    wait_for(lambda: (api.get(created) or {}).get("status", {}).get("used"), "the quota to be in force")
    return created


@ON_THE_REAL_SERVER
@pytest.mark.parametrize(("kind", "counted"), [("secret", "count/secrets"), ("configmap", "configmaps")])
def test_a_full_quota_fails_no_run(api: Api, sync: Run, home: str, team: str, kind: str, counted: str) -> None:
    source = api.create(secret(home) if kind == "secret" else configmap(home))
    other = api.namespace("other")
    full = quota(api, team, counted)
    api.create(rule("rule", home, f"*-{api.token}", ruleType=kind))

    ran = sync()

    assert (ran.exit_code, ran.summary) == (0, {"created": 1, "failed": 1})
    assert api.get(at(other, source))
    reported = ready(api, "rule")
    assert (reported["status"], reported["reason"]) == ("False", "QuotaExceeded")
    assert f"{kind}/{source['metadata']['name']} in namespace {team}: " in reported["message"]
    assert "exceeded quota: none" in reported["message"]
    assert sync("--check").exit_code == 3
    api.delete(full)
    assert sync().summary == {"created": 1, "unchanged": 1}


@ON_THE_REAL_SERVER
def test_an_immutable_copy_in_a_namespace_with_a_full_quota_stays(api: Api, sync: Run, home: str, team: str) -> None:
    source = copied(api, sync, configmap(home, immutable=True, data={"a": "1"}))
    quota(api, team, "count/configmaps")
    api.delete(source)
    api.create(configmap(home, immutable=True, data={"a": "2"}))

    ran = sync()

    assert (ran.exit_code, ran.summary) == (0, {"failed": 1})
    assert content(api.get(at(team, source))) == content(source)


@ON_THE_REAL_SERVER
def test_a_full_quota_fails_no_run_of_fetch_rates(api: Api, fetch: Run, team: str) -> None:
    rate = api.create(exchange_rate(team))
    quota(api, team, "count/configmaps")

    ran = fetch()

    assert (ran.exit_code, ran.summary) == (0, {"failed": 1})
    assert condition(api, rate)["reason"] == "QuotaExceeded"


# copies that a tenant changes all the time


def annotates(tenant: Tenant, copy: Object) -> Callable[[], None]:
    """Return a change that updates the resourceVersion, but no field that the job writes."""
    numbers = count()
    return lambda: tenant.patch(copy, metadata={"annotations": {"tests/beat": str(next(numbers))}})


def test_a_copy_that_a_tenant_changes_all_the_time_is_reported(
    api: Api, installed: Path, sync: Run, home: str, team: str, tenant: Tenant
) -> None:
    other = api.namespace("other")
    source = api.create(configmap(home))
    api.create(rule("settings", home, [team, other]))
    sync()
    api.patch(source, {"data": {"a": "new"}})

    with rival(api, installed, annotates(tenant, at(team, source))) as contested:
        ran = sync(kubeconfig=contested)
        reported = ready(api, "settings")
        api.mark()
        again = sync(kubeconfig=contested)
        assert [each for each in api.writes() if each.path.endswith("/status")] == []

    for each in (ran, again):
        assert (each.exit_code, only_failed(each)) == (0, ("write-conflict", "warning"))
    assert (reported["status"], reported["reason"]) == ("False", "WriteConflict")
    assert reported["message"].startswith(f"configmap/settings in namespace {team}: not in its desired state")
    assert content(api.get(at(other, source))) == content(api.get(source))
    assert sync().summary == {"configured": 1, "unchanged": 1}
    assert ready(api, "settings")["reason"] == "Synced"


def test_a_rate_that_a_tenant_changes_all_the_time_is_reported(
    api: Api, fetch: Run, rates: RatesServer, team: str, tenant: Tenant
) -> None:
    rate = api.create(exchange_rate(team))
    rates.publish(day=ago(1))
    fetch()
    before = api.read(rate)["status"]["date"]
    rates.publish(rates={**RATES, "USD": "1.14"})
    account = api.service_account_kubeconfig("kube-chores", "fetch-rates")

    with rival(api, account, annotates(tenant, configmap_of(rate))) as contested:
        ran = fetch(kubeconfig=contested)
        reported, date = condition(api, rate), api.read(rate)["status"]["date"]
        api.mark()
        again = fetch(kubeconfig=contested)
        assert [each for each in api.writes() if each.path.endswith("/status")] == []

    for each in (ran, again):
        assert (each.exit_code, only_failed(each)) == (0, ("write-conflict", "warning"))
    assert (reported["status"], reported["reason"], date) == ("False", "WriteConflict", before)
    assert fetch().summary == {"configured": 1}
    assert condition(api, rate)["status"] == "True"


def test_a_tenant_cannot_set_options_by_a_copy(api: Api, sync: Run, team: str) -> None:
    home = api.namespace("home")
    source = with_rule(api, configmap(home, "mirror-repair-settings", data={"ALLOW_CACHE_LOSS": "true"}))
    other = api.create(configmap(home, "own-settings"))
    api.create(rule("adopting", home, team, conflict="Adopt"))

    ran = sync()

    assert (ran.exit_code, ran.summary) == (0, {"created": 1, "reserved-name": 1})
    assert [each["reason"] for each in ran.results if each["code"] == "reserved-name"] == [
        "left untouched: jobs read their settings from a ConfigMap of this name, so "
        f"{home}/mirror-repair-settings is not copied; rename it, or change what the rule selects"
    ]
    assert (api.get(at(team, source)), bool(api.get(at(team, other)))) == (None, True)
    assert ready(api, "settings") == {
        "status": "False",
        "reason": "ReservedName",
        "message": "1 of 2 copies not written: their name is reserved: "
        f"configmap/mirror-repair-settings in namespace {team}",
    }

    own = api.create(configmap(team, "mirror-repair-settings", labels={}))
    assert sync().summary == {"reserved-name": 1, "unchanged": 1}
    assert api.read(own) == own


def test_a_tenant_cannot_choose_the_key_of_roll_workloads_by_a_copy(api: Api, sync: Run, team: str) -> None:
    home = api.namespace("home")
    source = with_rule(api, secret(home, "roll-workloads-key", data={"key": encoded(canary("-" * 20))}))

    ran = sync()

    assert (ran.exit_code, ran.summary, api.get(at(team, source))) == (0, {"reserved-name": 1}, None)
    assert [each["reason"] for each in ran.results] == [
        "left untouched: roll-workloads reads its key from a Secret of this name, so "
        f"{home}/roll-workloads-key is not copied; rename it, or change what the rule selects"
    ]
    assert ready(api, "logins")["message"] == (
        f"1 of 1 copies not written: their name is reserved: secret/roll-workloads-key in namespace {team}"
    )


@pytest.mark.parametrize(
    ("make", "name", "why"),
    [
        (configmap, "sync-copies-settings", "jobs read their settings from a ConfigMap of this name"),
        (secret, "roll-workloads-key", "roll-workloads reads its key from a Secret of this name"),
    ],
)
def test_a_copy_of_a_reserved_name_that_exists_stays_with_a_warning(
    api: Api, sync: Run, team: str, make: Callable[[str, str], Object], name: str, why: str
) -> None:
    home = api.namespace("home")
    source = with_rule(api, make(home, name))
    stamp = stamps.stamp("sync-copies", "kube-chores", "any", f"{home}/{name}", "0" * 32)
    copy = at(team, source)
    copy["metadata"] |= {"labels": dict(stamp.labels), "annotations": dict(stamp.annotations)}
    before = api.create(copy)

    ran = sync()

    assert (ran.exit_code, only(ran)) == (0, ("reserved-name", "warning", "reported"))
    assert ran.results[0]["reason"] == (
        f"left untouched: {why}, so delete this copy; then rename {home}/{name}, or change what the rule selects"
    )
    assert api.read(before) == before


def only_failed(ran: Ran) -> tuple[str, str]:
    """Return code and severity of the only failed write of a run."""
    (found,) = [each for each in ran.results if each["outcome"] == "failed"]
    return found["code"], found["severity"]


def test_many_new_copies_of_one_source_namespace_do_not_delay_those_of_others(
    api: Api, sync: Run, team: str, one_at_a_time: None
) -> None:
    platform, tenants = api.namespace("platform"), api.namespace("tenants")
    for name, home in (("all", tenants), ("ours", platform)):
        api.create(rule(name, home, team, selector={"matchLabels": {"of": home}}))
    rotated, withdrawn = (api.create(configmap(platform, name, labels={"of": platform})) for name in ("k", "w"))
    sync()
    for number in range(140):
        api.create(configmap(tenants, f"a-{number:03}", labels={"of": tenants}))
    api.create(configmap(platform, "new", labels={"of": platform}))
    api.patch(rotated, {"data": {"a": "rotated"}})
    api.delete(withdrawn)
    api.mark()

    assert sync().summary == {"configured": 1, "created": 141, "deleted": 1}

    written = [(each.method, each.path.rpartition("/")[2]) for each in api.copy_writes()]
    assert written[0] == ("PUT", "k")
    assert [method for method, _ in written].index("DELETE") == 129, "two turns of 64 after the rotated one"
    for number in range(140):
        api.patch(configmap(tenants, f"a-{number:03}"), {"data": {"a": "rotated"}})
    api.patch(rotated, {"data": {"a": "rotated again"}})
    api.mark()
    assert sync().summary == {"configured": 141, "unchanged": 1}
    assert [each.path.rpartition("/")[2] for each in api.copy_writes()].index("k") == 64, "in the second turn"
