"""Failures of providers over real sockets: results of the run and conditions of the ExchangeRate."""

import gzip
import shlex
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from jobs.kit import web
from tests.api.conftest import Ran, Run
from tests.api.test_fetch_rates import columns, condition, configmap_of, data, fetched, fetched_yesterday, figures
from tests.apis import Api, Object
from tests.rates import (
    PATHS,
    RATES,
    Answer,
    Handler,
    RatesServer,
    ago,
    document,
    drip,
    ecb,
    flood,
    frankfurter,
    open_er_api,
    redirect,
    silence,
    status,
    today,
    truncated,
)
from tests.worlds import exchange_rate

pytestmark = [pytest.mark.parametrize("api", ["sandbox"], indirect=True), pytest.mark.usefixtures("quick")]

BOMB = b"""<?xml version="1.0"?>
<!DOCTYPE bomb [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]>
<Envelope><Cube><Cube time="2026-01-01"><Cube currency="USD" rate="&c;"/></Cube></Cube></Envelope>"""
GZIP = "ecb request failed: the answer has a body that"
HTML = b"<!doctype html><html><body><p>We will be back soon.<br></body></html>"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run without pauses and with short time limits: no test depends on their length."""
    monkeypatch.setattr(web, "LONGEST_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(web, "READ_SECONDS", 0.4)
    monkeypatch.setattr(web, "TOTAL_SECONDS", 2.0)


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """Yield the event that ends an endless response after the test."""
    done = threading.Event()
    yield done
    done.set()


@dataclass(frozen=True)
class Bad:
    """An invalid response: how it is built, the message about it, and the number of requests."""

    answer: Callable[[RatesServer, threading.Event], Answer | bytes | None]
    message: str
    requests: int = 1


def wrong_rate(rate: str) -> Bad:
    return Bad(lambda *_: ecb(rates={**RATES, "USD": rate}), "ecb has an invalid USD rate")


BAD: dict[str, Bad] = {
    "refused": Bad(lambda *_: None, "ecb request failed: connection refused", 0),
    "no answer": Bad(lambda *_: silence, "ecb request failed: no answer within 0.4 seconds", web.ATTEMPTS),
    "slow drip": Bad(lambda _, end: drip(ecb(), end), "ecb request failed: no complete answer within 2 seconds"),
    "429": Bad(lambda *_: status(429), "ecb request failed: HTTP 429 Too Many Requests", web.ATTEMPTS),
    "429 for long": Bad(lambda *_: status(429, Retry_After="1200"), "ecb request failed: HTTP 429 Too Many Requests"),
    "500": Bad(lambda *_: status(500), "ecb request failed: HTTP 500 Internal Server Error", web.ATTEMPTS),
    "404": Bad(lambda *_: status(404), "ecb request failed: HTTP 404 Not Found"),
    "redirect loop": Bad(lambda *_: redirect(PATHS["ecb"]), "ecb request failed: more than 5 redirects", 6),
    "HTML": Bad(lambda *_: HTML, "ecb returned a document that is not XML"),
    "nothing": Bad(lambda *_: b"", "ecb returned a document that is not XML"),
    "XML of something else": Bad(lambda *_: b"<feed><entry/></feed>", "ecb returned rates of 0 days instead of one"),
    "cut off": Bad(lambda *_: truncated(ecb()), "ecb request failed: the answer is incomplete", web.ATTEMPTS),
    "cut off in itself": Bad(lambda *_: ecb()[:-30], "ecb returned a document that is not XML"),
    "gzip that is cut off": Bad(
        lambda *_: document(gzip.compress(ecb())[:-12], Content_Encoding="gzip"),
        f"{GZIP} is not valid gzip",
        web.ATTEMPTS,
    ),
    "gzip with a wrong checksum": Bad(
        lambda *_: document(gzip.compress(ecb())[:-8] + bytes(8), Content_Encoding="gzip"),
        f"{GZIP} is not valid gzip",
        web.ATTEMPTS,
    ),
    "an encoding that is not accepted": Bad(
        lambda *_: document(b"\x8b\x02\x80rates\x03", Content_Encoding="br"),
        "ecb request failed: the answer has Content-Encoding br; only gzip is read",
    ),
    "gzip bomb": Bad(
        lambda *_: document(gzip.compress(bytes(50 << 20)), Content_Encoding="gzip"),
        "ecb request failed: the answer has more than 1024 KiB",
    ),
    "50 MB": Bad(lambda *_: flood(50), "ecb request failed: the answer has more than 1024 KiB"),
    "entity bomb": Bad(lambda *_: BOMB, "ecb returned XML with a DTD or entities, which is not allowed"),
    "missing currency": Bad(lambda *_: ecb(rates={"JPY": "163"}), "ecb has no USD"),
    "twice the same currency": Bad(
        lambda *_: ecb().replace(b"<Cube currency='USD'", b"<Cube currency='USD' rate='1'/><Cube currency='USD'"),
        "ecb returned a document with a duplicate name",
    ),
    "rate 0": wrong_rate("0"),
    "negative": wrong_rate("-1.1"),
    "NaN": wrong_rate("NaN"),
    "infinite": wrong_rate("Infinity"),
    "1e400": wrong_rate("1e400"),
    "a word": wrong_rate("n/a"),
    "empty": wrong_rate(""),
    "a week old": Bad(lambda *_: ecb(ago(7)), f"ecb returned rates of {ago(7)}, more than 6 days old"),
    "tomorrow's": Bad(lambda *_: ecb(ago(-1)), f"ecb returned rates of {ago(-1)}, which is in the future"),
    "no date": Bad(lambda *_: ecb().replace(str(today()).encode(), b"yesterday"), "ecb returned no valid date"),
}


@pytest.fixture
def bad_run(
    api: Api, fetch: Run, rates: RatesServer, hanging: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Bad, Object], Ran]:
    """Return a function that runs fetch-rates while the ECB's document is invalid."""

    def run(bad: Bad, rate: Object) -> Ran:
        rates.requests.clear()
        if bad.answer(rates, hanging) is None:
            return fetch("--ecb-url", "http://127.0.0.1:1/ecb.xml")
        rates.serve("ecb", bad.answer(rates, hanging) or b"")
        return fetch()

    return run


@pytest.mark.parametrize("name", BAD)
def test_the_next_provider_takes_over(
    api: Api, bad_run: Callable[[Bad, Object], Ran], rates: RatesServer, name: str
) -> None:
    rate = api.create(exchange_rate(api.namespace("shop")))
    rates.serve("frankfurter", frankfurter(rates={**RATES, "USD": "1.15"}))

    ran = bad_run(BAD[name], rate)

    assert ran.exit_code == 0
    assert ran.summary["created"] == 1
    fetched = rates.fetched()
    assert (fetched.count("ecb"), fetched.count("frankfurter"), fetched.count("open-er-api")) == (
        BAD[name].requests,
        1,
        0,
    )
    assert data(api, rate) == figures("1.15", "0.8695652174", "frankfurter")
    assert condition(api, rate)["status"] == "True"
    assert BAD[name].message.partition(" ")[2] in ran.stdout


@pytest.mark.parametrize("name", BAD)
def test_the_last_valid_rate_stays_if_all_providers_fail(
    api: Api, fetch: Run, bad_run: Callable[[Bad, Object], Ran], rates: RatesServer, name: str
) -> None:
    rate = api.create(exchange_rate(api.namespace("shop"), provider="ecb"))
    rates.publish(day=ago(2))
    fetch()
    before = data(api, rate)
    bad = BAD[name]
    api.mark()

    ran = bad_run(bad, rate)

    assert ran.exit_code == (0 if name == "missing currency" else 1)
    assert set(rates.fetched()) <= {"ecb"}, "only the named provider is used"
    assert api.copy_writes() == []
    assert data(api, rate) == before
    ready = condition(api, rate)
    assert (ready["status"], ready["reason"]) == ("False", "Unavailable")
    assert ready["message"].startswith(f"the rate of {ago(2)} stays: {bad.message}")
    assert [event["message"] for event in api.events() if event["type"] == "Warning"] == [ready["message"]]
    api.mark()
    bad_run(bad, rate)
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
    monkeypatch.setattr(web, "TOTAL_SECONDS", 30.0)

    def busy_once(handler: Handler) -> None:
        (document(ecb()) if pauses else status(429, Retry_After="2"))(handler)

    rates.serve("ecb", busy_once)

    assert fetch().summary == {"created": 1}
    assert rates.fetched() == ["ecb", "ecb"]
    assert [2 <= pause <= 2.5 for pause in pauses] == [True], "the pause is at least Retry-After; jitter is added"


def test_the_rate_of_yesterday_is_valid(api: Api, fetch: Run, rates: RatesServer) -> None:
    rate = api.create(exchange_rate(api.namespace("shop")))
    rates.publish(day=ago(1))

    assert fetch().summary == {"created": 1}
    assert (data(api, rate) or {})["date"] == str(ago(1))


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


def test_a_jump_just_over_the_limit_is_not_rounded_down_to_it(api: Api, fetch: Run, rates: RatesServer) -> None:
    usd = api.create(exchange_rate(api.namespace("shop"), "pln", "PLN", provider="ecb"))
    rates.publish(day=ago(1), rates={**RATES, "PLN": "4.0000"})
    fetch()
    rates.serve("ecb", ecb(rates={**RATES, "PLN": "4.8001"}))

    assert fetch().exit_code == 4
    assert f"20.1 % from 4.0000 of {ago(1)}; the limit is 20 %" in condition(api, usd)["message"]
    assert "set spec.maxChange to 21" in condition(api, usd)["message"]


def test_a_jump_that_another_provider_confirms_is_accepted(api: Api, fetch: Run, rates: RatesServer) -> None:
    usd = fetched_yesterday(api, fetch, rates, provider="open-er-api")
    rates.fetched()
    rates.serve("open-er-api", open_er_api(rates={**RATES, "USD": "1.5932"}))
    rates.serve("ecb", ecb(rates={**RATES, "USD": "1.6000"}))

    assert fetch().summary == {"configured": 1}
    assert rates.fetched() == ["open-er-api", "ecb"]
    assert (data(api, usd) or {})["rate"] == "1.5932", "the other provider confirms the figures, and they are not mixed"
    assert (data(api, usd) or {})["source"] == "open-er-api"


@pytest.mark.parametrize(("other", "exit_code"), [("1.14", 0), ("1.5932", 0), ("1.40", 4)])
def test_a_correction_that_jumps_is_compared_with_the_other_provider(
    api: Api, fetch: Run, rates: RatesServer, other: str, exit_code: int
) -> None:
    usd = fetched(api, fetch)
    rates.serve("ecb", ecb(rates={**RATES, "USD": "1.5932"}))
    rates.serve("frankfurter", frankfurter(rates={**RATES, "USD": other}))

    assert fetch().exit_code == exit_code
    assert (data(api, usd) or {})["rate"] == ("1.5932" if other == "1.5932" else "1.1380")


def test_a_jump_of_all_providers_gives_the_figures_of_the_first(api: Api, fetch: Run, rates: RatesServer) -> None:
    usd = fetched_yesterday(api, fetch, rates)
    rates.serve("ecb", ecb(rates={**RATES, "USD": "1.5932"}))
    rates.serve("frankfurter", frankfurter(rates={**RATES, "USD": "1.6000"}))

    assert fetch().summary == {"configured": 1}
    found = data(api, usd) or {}
    assert (found["rate"], found["source"]) == ("1.5932", "ecb")


def test_if_providers_differ_the_rate_without_a_jump_is_used(api: Api, fetch: Run, rates: RatesServer) -> None:
    usd = fetched_yesterday(api, fetch, rates)
    rates.serve("ecb", ecb(rates={**RATES, "USD": "1.5932"}))
    rates.serve("frankfurter", frankfurter(rates={**RATES, "USD": "1.14"}))

    ran = fetch("--diff")

    assert ran.summary == {"configured": 1, "providers-differ": 1}
    assert "ecb has 1.5932" in ran.results[0]["reason"]
    assert data(api, usd) == figures("1.14", "0.8771929825", "frankfurter")
    api.mark()
    assert (fetch().exit_code, api.writes()) == (0, []), "the next run keeps it"


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


def test_a_jump_that_one_provider_confirms_and_another_contradicts_is_reported(
    api: Api, fetch: Run, rates: RatesServer
) -> None:
    usd = fetched_yesterday(api, fetch, rates, provider="open-er-api")
    rates.serve("open-er-api", open_er_api(rates={**RATES, "USD": "1.5932"}))
    rates.serve("ecb", ecb(rates={**RATES, "USD": "1.14"}))
    rates.serve("frankfurter", frankfurter(rates={**RATES, "USD": "1.6000"}))

    ran = fetch()

    used = f"1.5932 of {today()} from open-er-api is used"
    assert differences(ran) == [f"open-er-api has 1.5932 of {today()}, ecb has 1.14 of {today()}: {used}"]
    assert condition(api, usd)["reason"] == "ProvidersDiffer"


def test_a_blocked_jump_names_the_figures_of_other_providers(api: Api, fetch: Run, rates: RatesServer) -> None:
    usd = fetched_yesterday(api, fetch, rates)
    rates.serve("ecb", ecb(rates={**RATES, "USD": "1.5932"}))
    rates.serve("frankfurter", frankfurter(rates={**RATES, "USD": "1.7000"}))

    assert fetch().exit_code == 4
    assert (
        f"no other provider confirms the new rate (frankfurter has 1.7 of {today()}): the last"
        in condition(api, usd)["message"]
    )
    rates.serve("frankfurter", status(503))
    assert fetch().exit_code == 4
    assert "no other provider confirms the new rate: the last" in condition(api, usd)["message"]


OF_FRANKFURTER = {
    "another base": (frankfurter(base="USD"), "returned rates with a base other than 1 EUR"),
    "another amount": (frankfurter(amount="10"), "returned rates with a base other than 1 EUR"),
    "not an object": (b"[1, 2]", "returned JSON that is not an object"),
    "nested": (b"[" * 100_000, "returned a document that is not JSON"),
    "HTML": (HTML, "returned a document that is not JSON"),
    "no such day": (b'{"amount":1,"base":"EUR","date":"2026-02-30","rates":{}}', "returned no valid date"),
    "no day": (b'{"amount":1,"base":"EUR","rates":{"USD":1.1}}', "returned no valid date"),
    "no rates": (frankfurter().replace(b"rates", b"quotes"), "returned no rates"),
    "text": (frankfurter(rates={"USD": '"1.1"'}), "has an invalid USD rate"),
    "NaN": (frankfurter(rates={"USD": "NaN"}), "has an invalid USD rate"),
    "1e400": (frankfurter(rates={"USD": "1e400"}), "has an invalid USD rate"),
    "infinite": (frankfurter(rates={"USD": "-Infinity"}), "has an invalid USD rate"),
    "twice": (frankfurter().replace(b'"JPY"', b'"USD"'), "returned a document with a duplicate name"),
}
_UPDATE = b'last_update_unix": '
OF_OPEN_ER_API = {
    "another base": (open_er_api(base="USD"), "returned rates with a base other than EUR"),
    "not a success": (b'{"result":"error","error-type":"unsupported-code"}', "returned a result other than success"),
    "no day": (open_er_api().replace(b"time_last_update_unix", b"x"), "returned no valid date"),
    "an endless day": (open_er_api().replace(_UPDATE, _UPDATE + b'1e999999999, "x": '), "returned no valid date"),
    "not a number": (open_er_api().replace(_UPDATE, _UPDATE + b'NaN, "x": '), "returned no valid date"),
}


@pytest.mark.parametrize(
    ("provider", "answer", "message"),
    [
        pytest.param(provider, *of[name], id=f"{provider}: {name}")
        for provider, of in (("frankfurter", OF_FRANKFURTER), ("open-er-api", OF_OPEN_ER_API))
        for name in of
    ],
)
def test_an_invalid_document_in_json_is_refused(
    api: Api, fetch: Run, rates: RatesServer, provider: str, answer: bytes, message: str
) -> None:
    rate = api.create(exchange_rate(api.namespace("shop"), provider=provider))
    rates.serve(provider, answer)

    assert fetch().exit_code == 1
    assert f"{provider} {message}" in condition(api, rate)["message"]


def test_a_named_provider_does_not_affect_other_exchange_rates(api: Api, fetch: Run, rates: RatesServer) -> None:
    shop = api.namespace("shop")
    named = api.create(exchange_rate(shop, "named", provider="open-er-api"))
    usual = api.create(exchange_rate(shop, "usual"))
    rates.serve("open-er-api", open_er_api(rates={"USD": "1.139"}))

    assert fetch().summary == {"created": 2}
    assert [(data(api, each) or {})["source"] for each in (named, usual)] == ["open-er-api", "ecb"]
    assert (data(api, named) or {})["rate"] == "1.139"
    assert sorted(rates.fetched()) == ["ecb", "open-er-api"]


@pytest.mark.parametrize("rate", ["1.1390", RATES["USD"]])
def test_a_provider_that_is_named_later_replaces_the_rate(api: Api, fetch: Run, rates: RatesServer, rate: str) -> None:
    usd = fetched(api, fetch)
    rates.serve("open-er-api", open_er_api(ago(1), rates={**RATES, "USD": rate}))
    api.patch(usd, {"spec": {"provider": "open-er-api"}})

    assert fetch().summary == {"configured": 1}
    found = data(api, usd) or {}
    assert (found["source"], found["date"]) == ("open-er-api", str(ago(1)))


def test_a_recovered_provider_does_not_replace_a_rate_of_the_same_day(api: Api, fetch: Run, rates: RatesServer) -> None:
    rate = api.create(exchange_rate(api.namespace("shop")))
    rates.serve("ecb", status(503))
    fetch()
    rates.publish()
    api.mark()

    assert fetch().summary == {"unchanged": 1}
    assert api.writes() == []
    assert (data(api, rate) or {})["source"] == "frankfurter"


def test_the_rate_of_another_currency_is_neither_printed_nor_written(api: Api, fetch: Run, rates: RatesServer) -> None:
    shop = api.namespace("shop")
    rate = api.create(exchange_rate(shop))
    fetch()
    before = data(api, rate)
    api.patch(rate, {"spec": {"currency": "JPY"}})
    rates.fail(404)

    assert fetch().exit_code == 1

    assert data(api, rate) == before, "pods keep the rate that they have"
    assert columns(api, shop) == [["usd", "JPY", "EUR", "None", "None", "Unavailable"]]


def test_a_last_rate_with_a_future_date_is_ignored(api: Api, fetch: Run, rates: RatesServer) -> None:
    rate = fetched(api, fetch)
    for day in (str(ago(-1)), "9999-12-31", "zzz"):
        api.patch_status(rate, {"date": day})
        api.delete(configmap_of(rate))

        assert fetch().summary == {"created": 1}
        assert (data(api, rate) or {})["date"] == str(today())


def test_the_status_of_a_currency_that_the_first_provider_lacks_does_not_depend_on_the_second(
    api: Api, fetch: Run, rates: RatesServer
) -> None:
    usd = fetched(api, fetch, "none", "XXX")
    before = condition(api, usd)
    api.mark()

    rates.serve("frankfurter", status(503))
    without = fetch()
    rates.publish()
    recovered = fetch()

    assert [ran.summary["unavailable"] for ran in (without, recovered)] == [1, 1]
    assert (condition(api, usd), api.writes()) == (before, [])
    assert before["message"] == "there is no rate yet: ecb has no XXX"
