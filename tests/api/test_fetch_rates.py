"""fetch-rates on the embedded and on a real API server, with providers on loopback."""

from typing import Any

import pytest
import yaml

from jobs.core.fetch_rates import observe
from jobs.kit.data.contents import Content, fingerprint
from jobs.kit.values import stamps
from tests.api.conftest import Run
from tests.apis import Api, Object, ready_of, wait_for
from tests.rates import RATES, RatesServer, ago, ecb, status, today
from tests.rights import account, create_account, grant
from tests.worlds import exchange_rate

TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}


def configmap_of(rate: Object, name: str | None = None) -> Object:
    """Return the ConfigMap of an ExchangeRate without its data: apiVersion, kind and metadata."""
    at = rate["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name or rate["spec"].get("configMapName") or at["name"], "namespace": at["namespace"]},
    }


def data(api: Api, rate: Object, name: str | None = None) -> dict[str, str] | None:
    """Return the data of the ConfigMap of an ExchangeRate, or None if it does not exist."""
    found = api.get(configmap_of(rate, name))
    values: dict[str, str] | None = found and found.get("data")
    return values


def fetched(api: Api, fetch: Run, name: str = "usd", currency: str = "USD", **spec: Any) -> Object:
    """Create an ExchangeRate in a new namespace, and its ConfigMap with a run; return the ExchangeRate."""
    rate = api.create(exchange_rate(api.namespace("shop"), name, currency, **spec))
    fetch()
    return rate


def fetched_yesterday(api: Api, fetch: Run, rates: RatesServer, **spec: Any) -> Object:
    """Do the same with the rates of yesterday."""
    rates.publish(day=ago(1))
    return fetched(api, fetch, **spec)


def figures(rate: str, inverse: str, source: str = "ecb", base: str = "EUR", currency: str = "USD") -> dict[str, str]:
    """Return the data of a ConfigMap with a rate of today."""
    pair = {"base": base, "currency": currency}
    return {"rate": rate, "inverse": inverse, **pair, "date": str(today()), "source": source}


def condition(api: Api, rate: Object) -> dict[str, Any]:
    """Return the Ready condition; fail if it is not of the current generation."""
    found = api.read(rate)
    ready = ready_of(found["status"]["conditions"])
    assert ready["observedGeneration"] == found["metadata"]["generation"]
    return dict(ready)


def columns(api: Api, namespace: str) -> list[list[str]]:
    """Return the rows that `kubectl get er` prints."""
    table = api.call("GET", f"/apis/kubechores.dev/v1/namespaces/{namespace}/exchangerates", headers=TABLE)
    shown = [n for n, column in enumerate(table["columnDefinitions"]) if not column["priority"]][:6]
    names = [table["columnDefinitions"][n]["name"] for n in shown]
    assert names == ["Name", "Currency", "Base", "Rate", "Date", "State"]
    return [[str(row["cells"][n]) for n in shown] for row in table["rows"]]


def test_each_exchange_rate_owns_its_configmap(api: Api, fetch: Run, rates: RatesServer) -> None:
    shop = api.namespace("shop")
    made = [api.create(exchange_rate(shop, code.lower(), code)) for code in RATES]
    made += [api.create(exchange_rate(shop, f"{c.lower()}-in-usd", c, base="USD")) for c in RATES if c != "USD"]

    ran = fetch()

    assert (ran.exit_code, ran.summary) == (0, {"created": 15})
    ((_, agent),) = rates.requests
    assert agent.startswith("kube-chores/0.1.0 (fetch-rates")
    assert data(api, made[5]) == figures("1.1380", "0.8787346221")
    assert data(api, exchange_rate(shop, "gbp-in-usd")) == figures(
        "0.7655975395", "1.306169297", base="USD", currency="GBP"
    )
    assert [(row[1], row[2], row[5]) for row in columns(api, shop)] == sorted(
        (rate["spec"]["currency"], rate["spec"]["base"], "Current") for rate in made
    )
    assert columns(api, shop)[-1] == ["usd", "USD", "EUR", "1.1380", str(today()), "Current"]
    for rate in made:
        found = api.read(configmap_of(rate))
        (owner,) = found["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("ExchangeRate", rate["metadata"]["uid"], True)
        assert "blockOwnerDeletion" not in owner
        api.delete(rate)
    # A garbage collector discovers a new CRD within 30 seconds.
    wait_for(lambda: not any(api.get(configmap_of(rate)) for rate in made), "the ConfigMaps to be collected", 90)


@pytest.mark.parametrize("name", ["a" * 199 + "-" + "b" * 53, "a" * 199 + "." + "b" * 53])
def test_an_exchange_rate_may_have_the_longest_name(api: Api, fetch: Run, name: str) -> None:
    rate = api.create(exchange_rate(api.namespace("shop"), name))

    assert (fetch().exit_code, fetch().summary) == (0, {"unchanged": 1})
    assert data(api, rate)
    assert [each["involvedObject"]["name"] for each in api.events() if each["reason"] == "Current"] == [name]


def test_a_new_rate_updates_configmap_and_status_without_an_event(api: Api, fetch: Run, rates: RatesServer) -> None:
    rate = fetched_yesterday(api, fetch, rates)
    before = api.read(configmap_of(rate))
    rates.publish(rates={**RATES, "USD": "1.1402"})

    ran = fetch("--diff")

    assert ran.summary == {"configured": 1}
    assert {"field": "data.rate", "actual": "1.1380", "desired": "1.1402"} in ran.results[0]["changes"]
    assert data(api, rate) == figures("1.1402", "0.8770391159")
    assert api.read(configmap_of(rate))["metadata"]["uid"] == before["metadata"]["uid"]
    assert api.read(rate)["status"]["rate"] == "1.1402"
    mine = [each for each in api.events() if each["involvedObject"].get("uid") == rate["metadata"]["uid"]]
    assert [each["reason"] for each in mine] == ["Current"]


# Arguments of figures(), which are of the day of the test.
FORGED = {
    "a jump of today": ("99", "0.0101010101"),
    "a rate that no provider has yet": ("1.2", "0.8333333333"),
    "another provider's": ("1.2", "0.8333333333", "frankfurter"),
}


def test_manual_changes_are_repaired(api: Api, fetch: Run) -> None:
    rate = fetched(api, fetch)
    right, space = data(api, rate), rate["metadata"]["namespace"]
    metadata = {"labels": {"mine": "yes"}, "ownerReferences": None, "annotations": {"kubechores.dev/rule": "x"}}
    for change in ({"data": {"rate": "99", "extra": "x", "base": None}}, {"metadata": metadata}):
        api.patch(configmap_of(rate), change)

        ran = fetch()

        assert ran.summary == {"configured": 1}, "a changed rate is not compared with the new one"
        assert data(api, rate) == right
    found = api.read(configmap_of(rate))["metadata"]
    assert found["labels"]["mine"] == "yes"
    assert [owner["uid"] for owner in found["ownerReferences"]] == [rate["metadata"]["uid"]]
    assert found["annotations"]["kubechores.dev/rule"] == f"{space}/usd"
    assert fetch().summary == {"unchanged": 1}


def forge(api: Api, rate: Object, forged: dict[str, str], name: str = "usd") -> None:
    """Write figures with a valid fingerprint: the key of fingerprints is public."""
    mark = fingerprint(Content(data=forged), f"{rate['metadata']['namespace']}/{name}")
    api.patch(configmap_of(rate), {"data": forged, "metadata": {"annotations": {stamps.FINGERPRINT: mark}}})


def with_forged_figures(api: Api, fetch: Run) -> list[tuple[Object, dict[str, str] | None]]:
    """Create an ExchangeRate for each of FORGED, forge its ConfigMap after a run, and return both as they were."""
    shop = api.namespace("shop")
    made = [api.create(exchange_rate(shop, f"usd-{number}")) for number, _ in enumerate(FORGED)]
    fetch()
    right = [(rate, data(api, rate)) for rate in made]
    for rate, forged in zip(made, FORGED.values(), strict=True):
        forge(api, rate, figures(*forged), rate["metadata"]["name"])
    return right


def test_forged_figures_are_repaired_from_the_provider(api: Api, fetch: Run, rates: RatesServer) -> None:
    rates.publish(day=ago(1))
    right = with_forged_figures(api, fetch)

    ran = fetch()

    assert (ran.exit_code, ran.summary) == (0, {"configured": len(FORGED)})
    assert [(rate, data(api, rate)) for rate, _ in right] == right


def test_forged_figures_are_repaired_from_the_status_while_no_provider_answers(
    api: Api, fetch: Run, rates: RatesServer, no_pauses: None
) -> None:
    right = with_forged_figures(api, fetch)
    rates.fail(500)

    for _ in range(2):
        assert fetch().exit_code == 1
        assert [(rate, data(api, rate)) for rate, _ in right] == right
        for rate, _ in right:
            assert condition(api, rate)["message"].startswith(f"the rate of {today()} stays: ")
            api.delete(configmap_of(rate))


def test_a_jump_is_compared_with_the_status_and_not_with_forged_figures(
    api: Api, fetch: Run, rates: RatesServer, no_pauses: None
) -> None:
    rate = fetched_yesterday(api, fetch, rates, provider="ecb")
    right = data(api, rate)
    forge(api, rate, figures("1.5", "0.6666666667"))
    rates.serve("ecb", ecb(rates={**RATES, "USD": "1.5932"}))
    rates.serve("frankfurter", status(500))

    ran = fetch()

    assert ran.exit_code == 4
    assert data(api, rate) == right


def test_a_namespace_with_too_many_exchange_rates_takes_nothing_from_others(
    api: Api, fetch: Run, rates: RatesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "MOST_OF_NAMESPACE", 3)
    tenant, shop = api.namespace("a-tenant"), api.namespace("shop")
    made = [api.create(exchange_rate(tenant, f"usd-{number}")) for number in range(5)]
    ours = api.create(exchange_rate(shop))

    ran = fetch()

    assert (ran.exit_code, ran.summary) == (0, {"created": 4, "too-many": 1})
    assert [each["reason"] for each in ran.results if each["code"] == "too-many"] == [
        "has 5 ExchangeRates, and a run evaluates the first 3 by name; delete some, or create them in another namespace"
    ]
    assert [api.get(configmap_of(each)) is not None for each in [*made, ours]] == [True] * 3 + [False] * 2 + [True]
    api.delete(made[0])
    wait_for(lambda: api.get(configmap_of(made[0])) is None, "the ConfigMap to be deleted with its owner")
    assert fetch().summary == {"created": 1, "too-many": 1, "unchanged": 3}


def test_many_changes_of_a_rate_in_one_day_are_limited_together(api: Api, fetch: Run, rates: RatesServer) -> None:
    rate = api.create(exchange_rate(api.namespace("shop"), maxChange=10))
    rates.publish(rates={**RATES, "USD": "1.1000"})
    assert fetch().exit_code == 0

    for usd in ("1.2089", "1.3286", "1.4601"):  # 9.9 % each
        rates.serve("ecb", ecb(rates={**RATES, "USD": usd}))
        assert fetch().exit_code == 0

    assert api.read(rate)["status"]["rate"] == "1.2089"
    assert condition(api, rate)["reason"] == "ProvidersDiffer"


def test_an_exchange_rate_without_status_is_like_a_new_one(
    api: Api, fetch: Run, rates: RatesServer, no_pauses: None
) -> None:
    rate = fetched(api, fetch, provider="ecb")
    right = data(api, rate)
    api.patch_status(rate, dict.fromkeys(api.read(rate)["status"]))
    rates.serve("ecb", status(500))
    api.mark()

    ran = fetch()

    assert (ran.exit_code, ran.summary) == (1, {"unavailable": 1, "provider-failed": 1})
    assert (data(api, rate), api.copy_writes()) == (right, [])
    assert condition(api, rate)["message"].startswith("the ConfigMap is left untouched: ecb request failed")

    rates.publish(rates={**RATES, "USD": "1.5932"})

    assert (fetch().exit_code, (data(api, rate) or {})["rate"]) == (0, "1.5932"), "the first rate is not a jump"
    assert api.read(rate)["status"]["rate"] == "1.5932"


def test_a_configmap_forged_before_the_first_run_is_repaired(api: Api, fetch: Run, rates: RatesServer) -> None:
    rate = exchange_rate(api.namespace("shop"))
    labels = stamps.stamp("fetch-rates", rate["metadata"]["namespace"], "usd", "ecb", "").labels
    made = configmap_of(rate)
    api.create({**made, "metadata": {**made["metadata"], "labels": labels}})
    forge(api, rate, figures(*FORGED["a jump of today"]))
    api.create(rate)
    rates.serve("frankfurter", status(500))

    ran = fetch()

    assert (ran.exit_code, ran.summary) == (0, {"configured": 1})
    assert (data(api, rate) or {})["rate"] == "1.1380"


def test_users_who_edit_exchange_rates_cannot_set_the_status(api: Api, fetch: Run, rates: RatesServer) -> None:
    shop = api.namespace("shop")
    edits = {"apiGroups": ["kubechores.dev"], "resources": ["exchangerates"], "verbs": ["*"]}
    token = create_account(api, shop, "tenant")
    grant(api, account(shop, "tenant"), edits, namespace=shop)
    forged = figures(*FORGED["a jump of today"])
    body = {**exchange_rate(shop), "status": forged}
    merge = {"Content-Type": "application/merge-patch+json"}

    path = api.path(body, named=False)
    wait_for(lambda: api.request("POST", f"{path}?dryRun=All", body, token=token)[0] == 201, "the rights of the tenant")
    made = api.call("POST", path, body, token=token)
    api.made(made)
    patched = api.call("PATCH", api.path(body), {"status": forged}, headers=merge, token=token)
    replaced = api.call("PUT", api.path(body), {**patched, "status": forged}, token=token)
    refused = api.request("PATCH", f"{api.path(body)}/status", {"status": forged}, headers=merge, token=token)

    assert [[*each["status"]] for each in (made, patched, replaced)] == [["conditions"]] * 3, "the default"
    assert refused[0] == 403
    assert (fetch().exit_code, (data(api, body) or {})["rate"]) == (0, "1.1380")


def test_the_last_rate_of_another_currency_is_not_used(
    api: Api, fetch: Run, rates: RatesServer, no_pauses: None
) -> None:
    shop = api.namespace("shop")
    moved, stays = (api.create(exchange_rate(shop, name)) for name in ("moved", "stays"))
    fetch()
    right = data(api, stays)
    api.patch(moved, {"spec": {"currency": "JPY", "configMapName": "yen"}})
    api.patch(stays, {"spec": {"currency": "JPY"}})
    rates.fail(500)

    ran = fetch()

    assert (ran.exit_code, ran.summary) == (1, {"unavailable": 2, "provider-failed": 2})
    assert data(api, moved, "yen") is None, "the rate of USD must not be in the ConfigMap of JPY"
    assert (data(api, moved), data(api, stays)) == (right, right)
    assert condition(api, moved)["message"].startswith("there is no rate yet: ecb request failed")
    assert condition(api, stays)["message"].startswith("the ConfigMap is left untouched: ecb request failed")
    assert [row[1:] for row in columns(api, shop)] == [["JPY", "EUR", "None", "None", "Unavailable"]] * 2


def test_owner_references_of_other_kinds_stay(api: Api, fetch: Run) -> None:
    shop = api.namespace("shop")
    rate, other = (api.create(exchange_rate(shop, name)) for name in ("usd", "other"))
    them = api.create({**configmap_of(rate, "theirs"), "data": {}})
    fetch()
    uid = them["metadata"]["uid"]
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": uid, "controller": True}
    foreign = {"apiVersion": "rates.example.com/v1", "kind": "ExchangeRate", "name": "usd", "uid": "0-0"}
    wrong = {
        "apiVersion": "kubechores.dev/v1",
        "kind": "ExchangeRate",
        "name": "other",
        "uid": other["metadata"]["uid"],
    }
    owners = [theirs, wrong] + [foreign] * (api.kind == "sandbox")  # a real cluster would delete the ConfigMap
    api.patch(configmap_of(rate), {"metadata": {"ownerReferences": owners}})

    assert fetch().summary == {"configured": 1, "unchanged": 1}
    found = api.read(configmap_of(rate))
    kept = [each["uid"] for each in owners if each is not wrong]
    assert [each["uid"] for each in found["metadata"]["ownerReferences"]] == [*kept, rate["metadata"]["uid"]]
    assert [each.get("controller", False) for each in found["metadata"]["ownerReferences"]].count(True) == 1
    assert fetch().summary == {"unchanged": 2}


def test_an_exchange_rate_that_is_being_deleted_is_skipped(api: Api, fetch: Run, rates: RatesServer) -> None:
    rate = fetched(api, fetch)
    api.patch(rate, {"metadata": {"finalizers": ["tests.kubechores.dev/slow"]}})
    api.delete(rate)
    rates.publish(rates={**RATES, "USD": "1.1400"})
    api.mark()

    assert (fetch().summary, fetch("-v").summary) == ({}, {"retained": 1, "skipped": 1})
    assert api.writes() == []
    api.patch(rate, {"metadata": {"finalizers": None}})


def test_a_configmap_that_is_being_deleted_is_not_ready(api: Api, fetch: Run, rates: RatesServer) -> None:
    rate = fetched(api, fetch)
    api.patch(configmap_of(rate), {"metadata": {"finalizers": ["tests.kubechores.dev/slow"]}})
    api.delete(configmap_of(rate))
    rates.publish(rates={**RATES, "USD": "1.1400"})

    assert fetch().summary == {"skipped": 1}
    assert (condition(api, rate)["status"], condition(api, rate)["reason"]) == ("False", "Terminating")
    api.mark()
    assert fetch("-v").summary == {"skipped": 1}
    assert api.writes() == []
    api.patch(configmap_of(rate), {"metadata": {"finalizers": None}})
    assert fetch().summary == {"created": 1}
    assert (data(api, rate) or {})["rate"] == "1.1400"
    assert condition(api, rate)["status"] == "True"


def test_an_immutable_configmap_is_replaced_without_its_other_owners(api: Api, fetch: Run, rates: RatesServer) -> None:
    """The admission policy allows the account to set only the ExchangeRate as an owner."""
    rate = fetched(api, fetch)
    them = api.create({**configmap_of(rate, "theirs"), "data": {}})
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": them["metadata"]["uid"]}
    owners = [*api.read(configmap_of(rate))["metadata"]["ownerReferences"], theirs]
    api.patch(configmap_of(rate), {"immutable": True, "metadata": {"ownerReferences": owners}})
    rates.publish(rates={**RATES, "USD": "1.1400"})

    ran = fetch()

    assert (ran.exit_code, ran.summary) == (0, {"replaced": 1})
    assert (data(api, rate) or {})["rate"] == "1.1400"
    found = api.read(configmap_of(rate))["metadata"]["ownerReferences"]
    assert [(owner["uid"], owner["controller"]) for owner in found] == [(rate["metadata"]["uid"], True)]


def test_a_configmap_that_is_not_managed_stays_and_is_reported_once(api: Api, fetch: Run) -> None:
    shop = api.namespace("shop")
    rate = api.create(exchange_rate(shop))
    theirs = api.create({**configmap_of(rate), "data": {"rate": "theirs"}})

    first = fetch()

    assert (first.exit_code, first.summary) == (0, {"conflict": 1})
    assert api.get(theirs) == theirs
    ready = condition(api, rate)
    assert (ready["status"], ready["reason"]) == ("False", "Conflict")
    assert "configmap/usd" in ready["message"]
    events = [each for each in api.events() if each["involvedObject"]["kind"] == "ExchangeRate"]
    assert [event["reason"] for event in events] == ["Conflict"]
    api.mark()
    assert fetch().summary == {"conflict": 1}
    assert api.writes() == []
    api.delete(theirs)
    assert fetch().summary == {"created": 1}
    assert condition(api, rate)["status"] == "True"


def test_another_name_moves_the_rate_and_then_removes_the_old_configmap(api: Api, fetch: Run) -> None:
    rate = fetched(api, fetch)
    api.patch(rate, {"spec": {"configMapName": "dollar"}})

    assert fetch().summary == {"created": 1}
    assert data(api, rate), "the old one stays until a run observes the new one"
    assert fetch().summary == {"deleted": 1, "unchanged": 1}

    assert data(api, rate) is None
    assert (data(api, rate, "dollar") or {})["rate"] == "1.1380"
    assert fetch().summary == {"unchanged": 1}


def test_configmaps_are_listed_before_exchange_rates(api: Api, fetch: Run) -> None:
    fetched(api, fetch)
    api.mark()

    fetch()

    # Otherwise a ConfigMap that another run creates meanwhile for a new configMapName is deleted as an orphan.
    lists = [each.path.rpartition("/")[2] for each in api.requests()]
    assert lists == ["configmaps", "exchangerates"]


def test_two_exchange_rates_never_share_a_configmap(api: Api, fetch: Run) -> None:
    shop = api.namespace("shop")
    first = api.create(exchange_rate(shop, "one", configMapName="both"))
    second = api.create(exchange_rate(shop, "two", "JPY", configMapName="both"))

    ran = fetch()

    assert (ran.exit_code, ran.summary) == (0, {"collision": 1}), "only the authors of these can resolve it"
    assert fetch("-n", shop).exit_code == 2, "a run for one namespace fails"
    assert data(api, first) is None
    for rate in (first, second):
        assert condition(api, rate)["reason"] == "Collision"
        assert "one and two" in condition(api, rate)["message"]
    usd = api.create(exchange_rate(shop, "usd"))
    fetch()
    before = api.get(configmap_of(usd))
    api.create(exchange_rate(shop, "thief", "JPY", configMapName="usd"))
    assert fetch().exit_code == 0
    assert api.get(configmap_of(usd)) == before


def test_the_schema_refuses_invalid_specs(api: Api, installed: object) -> None:
    shop = api.namespace("shop")
    for spec in (
        {"currency": "EUR"},
        {"currency": "USD", "base": "USD"},
        {"currency": "usd"},
        {"currency": "DOLLAR"},
        {"currency": "USD", "provider": "https://rates.example.com"},
        {"currency": "USD", "maxChange": 0},
        {"currency": "USD", "configMapName": "Not_A_Name"},
        {"base": "USD"},
    ):
        body = exchange_rate(shop) | {"spec": spec}
        code, _, answer = api.request("POST", api.path(body, named=False), body)
        assert code == 422, answer


def test_one_failing_exchange_rate_does_not_stop_others(api: Api, fetch: Run) -> None:
    shop = api.namespace("shop")
    good, bad = api.create(exchange_rate(shop)), api.create(exchange_rate(shop, "none", "XXX"))

    ran = fetch()

    assert (ran.exit_code, ran.summary) == (0, {"created": 1, "unavailable": 1})
    assert fetch("-n", shop).exit_code == 2, "a run for one namespace fails"
    assert fetch("--check").exit_code == 3
    assert (data(api, good) or {})["rate"] == "1.1380"
    assert condition(api, bad)["message"] == "there is no rate yet: ecb has no XXX"
    assert columns(api, shop)[0][3:] == ["None", "None", "Unavailable"]


def test_a_run_serves_all_namespaces_or_the_given_one(api: Api, fetch: Run) -> None:
    shop, bank = api.namespace("shop"), api.namespace("bank")
    rates = [api.create(exchange_rate(each)) for each in (shop, bank)]

    assert fetch("-n", shop).summary == {"created": 1}
    assert data(api, rates[1]) is None
    assert fetch().summary == {"created": 1, "unchanged": 1}


def test_a_dry_run_writes_nothing_and_reports_what_a_run_does(api: Api, fetch: Run) -> None:
    shop = api.namespace("shop")
    api.create(exchange_rate(shop))
    taken = api.create(exchange_rate(shop, "taken", "JPY"))
    api.create({**configmap_of(taken), "data": {}})
    for mode in ("client", "server"):
        api.mark()
        ran = fetch(f"--dry-run={mode}")
        assert ran.summary == {"created": 1, "conflict": 1}
        assert [each for each in api.writes() if each.query.get("dryRun") != "All"] == []
    assert fetch("--check").exit_code == 3
    assert data(api, exchange_rate(shop)) is None


def test_exchange_rates_from_a_file_are_a_dry_run(api: Api, fetch: Run) -> None:
    shop = api.namespace("shop")
    api.create(exchange_rate(shop))
    fetch()
    api.mark()
    usd, jpy = exchange_rate(shop, "usd", "USD"), exchange_rate(shop, "jpy", "JPY")

    ran = fetch("-f", "-", input=yaml.safe_dump_all([usd, jpy]))

    assert (ran.exit_code, ran.report["dryRun"], ran.summary) == (0, "client", {"created": 1, "unchanged": 1})
    assert api.writes() == []
    broken = [exchange_rate(shop, "usd", "EUR"), exchange_rate(shop, "jpy", "yen")]
    bad = fetch("-f", "-", input=yaml.safe_dump_all(broken))
    assert bad.exit_code == 2
    assert "ExchangeRate usd: spec.currency: must differ from base" in bad.stderr
    assert "ExchangeRate jpy: spec.currency: 'yen' does not match" in bad.stderr


@pytest.mark.parametrize("api", ["sandbox"], indirect=True)  # other tests need the CRDs of the real one
def test_the_crd_is_missing(api: Api, fetch: Run) -> None:
    api.call("DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/exchangerates.kubechores.dev")

    ran = fetch()

    assert ran.exit_code == 2
    assert "'kubectl apply -k cronjobs/crds', or name a file with -f" in ran.stderr


def test_forged_figures_of_one_configmap_block_a_jump_and_are_never_kept(
    api: Api, fetch: Run, rates: RatesServer, no_pauses: None
) -> None:
    rate = exchange_rate(api.namespace("shop"))
    arguments = ("--currency", "USD", "--configmap", "usd", "-n", rate["metadata"]["namespace"])
    rates.publish(day=ago(1))
    fetch(*arguments)
    right = data(api, rate)

    forge(api, rate, figures(*FORGED["a rate that no provider has yet"]), "(command line)")
    assert (fetch(*arguments).summary, data(api, rate)) == ({"configured": 1}, right)

    forge(api, rate, figures(*FORGED["a jump of today"]), "(command line)")
    rates.serve("frankfurter", status(500))
    assert fetch(*arguments).exit_code == 4
    assert fetch(*arguments, "--max-change", "100").summary == {"configured": 1}
    assert data(api, rate) == right

    forge(api, rate, figures(*FORGED["another provider's"]), "(command line)")
    rates.serve("ecb", status(500))
    ran = fetch(*arguments)
    assert (ran.exit_code, ran.summary) == (1, {"unavailable": 1, "provider-failed": 2})
    assert ran.results[0]["reason"].startswith("the ConfigMap is left untouched: ecb request failed")


def test_one_configmap_from_the_command_line(api: Api, fetch: Run) -> None:
    shop = api.namespace("shop")
    dollar = exchange_rate(shop, "dollar")
    arguments = ("--currency", "USD", "--base", "GBP", "--configmap", "dollar", "-n", shop)

    assert fetch(*arguments, "--dry-run").summary == {"created": 1}
    assert data(api, dollar) is None
    assert fetch(*arguments).summary == {"created": 1}
    assert (data(api, dollar) or {})["rate"] == "1.306169297"
    api.mark()
    assert fetch(*arguments).summary == {"unchanged": 1}
    assert api.writes() == []
    assert fetch().summary == {}, "no ExchangeRate owns it, so it stays"
    assert data(api, dollar)
    made = api.create(exchange_rate(shop, "jpy", "JPY"))
    fetch()
    assert fetch("--currency", "USD", "--configmap", "jpy", "-n", shop).summary == {"conflict": 1}
    assert (data(api, made) or {})["currency"] == "JPY"
