"""Failures of providers over real sockets: results of the run and conditions of the ExchangeRate."""

import shlex

import pytest

from jobs.kit import web
from tests.api.conftest import Ran, Run
from tests.api.test_fetch_rates import condition, configmap_of, data, fetched, fetched_yesterday, figures
from tests.apis import Api
from tests.rates import (
    RATES,
    Answer,
    Handler,
    RatesServer,
    ago,
    document,
    ecb,
    frankfurter,
    silence,
    status,
    today,
)
from tests.worlds import exchange_rate

pytestmark = [pytest.mark.parametrize("api", ["sandbox"], indirect=True), pytest.mark.usefixtures("quick")]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run without pauses."""
    monkeypatch.setattr(web, "LONGEST_PAUSE_SECONDS", 0.0)


# The response of the ECB, the message about it, and the number of requests. Other failures of requests are in
# tests/unit/test_web.py, other documents in tests/unit/test_figures.py.
BAD: dict[str, tuple[Answer | bytes | None, str, int]] = {
    "refused": (None, "ecb request failed: connection refused", 0),
    "no answer": (silence, "ecb request failed: no answer within 1 seconds", web.ATTEMPTS),
    "500": (status(500), "ecb request failed: HTTP 500 Internal Server Error", web.ATTEMPTS),
    "404": (status(404), "ecb request failed: HTTP 404 Not Found", 1),
    "HTML": (b"<html><body><p>We will be back soon.<br></body></html>", "ecb returned a document that is not XML", 1),
    "missing currency": (ecb(rates={"JPY": "163"}), "ecb has no USD", 1),
    "rate 0": (ecb(rates={**RATES, "USD": "0"}), "ecb has an invalid USD rate", 1),
    "a week old": (ecb(ago(7)), f"ecb returned rates of {ago(7)}, more than 6 days old", 1),
}


@pytest.mark.parametrize("name", BAD)
def test_the_next_provider_takes_over_or_the_last_valid_rate_stays(
    api: Api, fetch: Run, rates: RatesServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    answer, message, requests = BAD[name]
    if answer is silence:
        monkeypatch.setattr(web, "READ_SECONDS", 1.0)
    shop = api.namespace("shop")
    rate = api.create(exchange_rate(shop, provider="ecb"))
    rates.publish(day=ago(2))
    fetch()
    before = data(api, rate)
    new = api.create(exchange_rate(shop, "new"))
    rates.serve("frankfurter", frankfurter(rates={**RATES, "USD": "1.15"}))
    rates.serve("ecb", answer or b"")
    url = () if answer else ("--ecb-url", "http://user:of-the-tests@127.0.0.1:1/ecb.xml?key=of-the-tests")
    rates.requests.clear()

    ran = fetch(*url)

    assert (ran.exit_code, ran.summary["created"]) == (0 if name == "missing currency" else 1, 1)
    fetched = rates.fetched()
    assert [fetched.count(each) for each in ("ecb", "frankfurter", "open-er-api")] == [requests, 1, 0]
    assert data(api, new) == figures("1.15", "0.8695652174", "frankfurter")
    assert condition(api, new)["status"] == "True"
    assert message.partition(" ")[2] in ran.stdout
    assert "of-the-tests" not in ran.stdout + ran.stderr, "credentials of a URL"
    assert data(api, rate) == before
    ready = condition(api, rate)
    assert (ready["status"], ready["reason"]) == ("False", "Unavailable")
    assert ready["message"].startswith(f"the rate of {ago(2)} stays: {message}")
    assert [event["message"] for event in api.events() if event["type"] == "Warning"] == [ready["message"]]
    api.mark()
    fetch(*url)
    assert api.writes() == [], "the condition is written once and keeps its time"
    rates.publish()
    assert fetch().exit_code == 0
    assert condition(api, rate)["status"] == "True"


def test_a_retry_after_header_is_respected(
    api: Api, fetch: Run, rates: RatesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.create(exchange_rate(api.namespace("shop")))
    pauses: list[float] = []
    monkeypatch.setattr(web, "sleep", pauses.append)
    monkeypatch.setattr(web, "LONGEST_PAUSE_SECONDS", 0.5)

    def busy_once(handler: Handler) -> None:
        (document(ecb()) if pauses else status(429, Retry_After="2"))(handler)

    rates.serve("ecb", busy_once)

    assert fetch().summary == {"created": 1}
    assert rates.fetched() == ["ecb", "ecb"]
    assert [2 <= pause <= 2.5 for pause in pauses] == [True], "the pause is at least Retry-After; jitter is added"


@pytest.mark.parametrize("rate", ["0.6828", "1.5932"])
def test_a_jump_is_blocked_until_a_user_accepts_it(api: Api, fetch: Run, rates: RatesServer, rate: str) -> None:
    shop = api.namespace("shop")
    usd = api.create(exchange_rate(shop))
    calm = api.create(exchange_rate(shop, "jpy", "JPY"))
    rates.publish(day=ago(1))
    fetch()
    before = data(api, usd)
    rates.serve("ecb", ecb(rates={**RATES, "USD": rate}))
    rates.serve("frankfurter", frankfurter(ago(1)))

    ran = fetch()

    assert ran.exit_code == 4
    assert data(api, usd) == before
    assert (data(api, calm) or {})["date"] == str(today()), "other rates are updated"
    ready = condition(api, usd)
    assert (ready["status"], ready["reason"]) == ("False", "Jump")
    assert (
        f"ecb has {rate} of {today()}, a change of 40 % from 1.1380 of {ago(1)}; the limit is 20 %" in ready["message"]
    )
    assert "set spec.maxChange to 40 to accept the new rate" in ready["message"]
    assert "1 rate changed by more than 20 % and is not updated" in ran.stderr
    api.mark()
    assert fetch().exit_code == 4
    assert api.writes() == []
    command = shlex.split(ran.stderr.strip().splitlines()[-1])
    assert command[:2] == ["chores", "fetch-rates"]
    assert fetch(*command[2:]).summary == {"configured": 1, "unchanged": 1}
    assert (data(api, usd) or {})["rate"] == rate


def test_max_change_of_the_exchange_rate_overrides_that_of_the_run(api: Api, fetch: Run, rates: RatesServer) -> None:
    usd = fetched_yesterday(api, fetch, rates, maxChange=2)
    rates.publish(rates={**RATES, "USD": "1.1800"})
    rates.serve("frankfurter", status(503))

    ran = fetch("--max-change", "50")
    assert (ran.exit_code, ran.summary["jump"]) == (0, 1), "spec.maxChange blocks it; --max-change cannot override it"
    assert condition(api, usd)["reason"] == "Jump"
    assert fetch("-n", usd["metadata"]["namespace"]).exit_code == 4
    assert "run once" not in ran.stderr, "--max-change would not override it"
    api.patch(usd, {"spec": {"maxChange": 4}})
    assert fetch().summary == {"configured": 1}
    assert (data(api, usd) or {})["rate"] == "1.1800"


def test_a_jump_of_one_configmap_names_the_option_and_no_other_command(
    api: Api, fetch: Run, rates: RatesServer
) -> None:
    arguments = ("--currency", "USD", "--configmap", "dollar", "--provider", "ecb", "-n", api.namespace("shop"))
    rates.publish(day=ago(1))
    fetch(*arguments)
    rates.serve("ecb", ecb(rates={**RATES, "USD": "1.5932"}))

    ran = fetch(*arguments)

    assert (ran.exit_code, ran.summary) == (4, {"jump": 1})
    assert ran.results[0]["reason"].endswith("the last rate stays; use --max-change 40 to accept the new rate")
    assert "run once" not in ran.stderr, "that would serve the ExchangeRates of the cluster"
    assert fetch(*arguments, "--max-change", "40").summary == {"configured": 1}


def differences(ran: Ran) -> list[str]:
    """Return the reasons of the findings providers-differ."""
    return [each["reason"] for each in ran.results if each["code"] == "providers-differ"]


def test_differing_providers_are_in_the_status_until_they_agree(api: Api, fetch: Run, rates: RatesServer) -> None:
    usd = fetched_yesterday(api, fetch, rates)
    rates.serve("ecb", ecb(rates={**RATES, "USD": "1.5932"}))
    rates.serve("frankfurter", frankfurter(rates={**RATES, "USD": "1.14"}))
    reason = (
        f"ecb has 1.5932 of {today()}, frankfurter has 1.14 of {today()}: 1.14 of {today()} from frankfurter is used"
    )

    ran = fetch()

    assert (ran.exit_code, ran.summary, differences(ran)) == (0, {"configured": 1, "providers-differ": 1}, [reason])
    assert data(api, usd) == figures("1.14", "0.8771929825", "frankfurter")
    found = condition(api, usd)
    assert (found["status"], found["reason"], found["message"]) == ("True", "ProvidersDiffer", reason)
    assert [event["message"] for event in api.events() if event["reason"] == "ProvidersDiffer"] == [reason]
    api.mark()
    again = fetch()
    assert (again.exit_code, differences(again), api.writes()) == (0, [reason], [])
    assert fetch("--check").exit_code == 3
    rates.publish(rates={**RATES, "USD": "1.14"})
    assert differences(fetch()) == []
    assert condition(api, usd)["reason"] == "Current"


def test_a_correction_that_the_other_provider_contradicts_is_reported(api: Api, fetch: Run, rates: RatesServer) -> None:
    usd = fetched(api, fetch)
    rates.serve("ecb", ecb(rates={**RATES, "USD": "1.5932"}))
    rates.serve("frankfurter", frankfurter(rates={**RATES, "USD": "1.14"}))

    reason = f"ecb has 1.5932 of {today()}, frankfurter has 1.14 of {today()}: 1.1380 of {today()} from ecb is kept"
    assert differences(fetch()) == [reason]
    assert condition(api, usd)["message"] == reason


def test_a_last_rate_with_a_future_date_is_ignored(api: Api, fetch: Run, rates: RatesServer) -> None:
    rate = fetched(api, fetch)
    for day in (str(ago(-1)), "9999-12-31", "zzz"):
        api.patch_status(rate, {"date": day})
        api.delete(configmap_of(rate))

        assert fetch().summary == {"created": 1}
        assert (data(api, rate) or {})["date"] == str(today())
