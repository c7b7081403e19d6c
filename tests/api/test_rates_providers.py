"""Providers with a bad day, each over a real socket: what a run makes of it, and what an ExchangeRate says."""

from __future__ import annotations

import gzip
import shlex
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from jobs.kit import web
from tests.api.conftest import Ran, Run
from tests.api.test_fetch_rates import columns, condition, configmap_of, data
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
GZIP = "ecb cannot be had: the answer has a body that"
HTML = b"<!doctype html><html><body><p>We will be back soon.<br></body></html>"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses, and short time limits: nothing of what is tested depends on how long they are."""
    monkeypatch.setattr(web, "LONGEST_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(web, "READ_SECONDS", 0.4)
    monkeypatch.setattr(web, "TOTAL_SECONDS", 2.0)


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """What ends an answer that takes for ever, at the end of the test."""
    done = threading.Event()
    yield done
    done.set()


@dataclass(frozen=True)
class Bad:
    """A bad answer: what it is made of, what is told of it, and how often it is asked for."""

    answer: Callable[[RatesServer, threading.Event], Answer | bytes | None]
    told: str
    asked: int = 1


def wrong_rate(rate: str) -> Bad:
    return Bad(lambda *_: ecb(rates={**RATES, "USD": rate}), "ecb its USD is no rate")


BAD: dict[str, Bad] = {
    "refused": Bad(lambda *_: None, "ecb cannot be had: connection refused", 0),
    "no answer": Bad(lambda *_: silence, "ecb cannot be had: no answer within 0.4 seconds", web.ATTEMPTS),
    "slow drip": Bad(lambda _, end: drip(ecb(), end), "ecb cannot be had: no whole answer within 2 seconds"),
    "429": Bad(lambda *_: status(429), "ecb cannot be had: HTTP 429 Too Many Requests", web.ATTEMPTS),
    "429 for long": Bad(lambda *_: status(429, Retry_After="1200"), "ecb cannot be had: HTTP 429 Too Many Requests"),
    "500": Bad(lambda *_: status(500), "ecb cannot be had: HTTP 500 Internal Server Error", web.ATTEMPTS),
    "404": Bad(lambda *_: status(404), "ecb cannot be had: HTTP 404 Not Found"),
    "redirect loop": Bad(lambda *_: redirect(PATHS["ecb"]), "ecb cannot be had: more than 5 redirects", 6),
    "HTML": Bad(lambda *_: HTML, "ecb is no XML"),
    "nothing": Bad(lambda *_: b"", "ecb is no XML"),
    "XML of something else": Bad(lambda *_: b"<feed><entry/></feed>", "ecb has rates of 0 days, not of one"),
    "cut off": Bad(lambda *_: truncated(ecb()), "ecb cannot be had: the answer was cut short", web.ATTEMPTS),
    "cut off in itself": Bad(lambda *_: ecb()[:-30], "ecb is no XML"),
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
    "an encoding that nobody accepts": Bad(
        lambda *_: document(b"\x8b\x02\x80rates\x03", Content_Encoding="br"),
        "ecb cannot be had: the answer has Content-Encoding br; only gzip is read",
    ),
    "gzip bomb": Bad(
        lambda *_: document(gzip.compress(bytes(50 << 20)), Content_Encoding="gzip"),
        "ecb cannot be had: more than 1024 KiB",
    ),
    "50 MB": Bad(lambda *_: flood(50), "ecb cannot be had: more than 1024 KiB"),
    "entity bomb": Bad(lambda *_: BOMB, "ecb is XML with a DTD or entities, which no document of rates has"),
    "missing currency": Bad(lambda *_: ecb(rates={"JPY": "163"}), "ecb has no USD"),
    "twice the same currency": Bad(
        lambda *_: ecb().replace(b"<Cube currency='USD'", b"<Cube currency='USD' rate='1'/><Cube currency='USD'"),
        "ecb names something twice",
    ),
    "rate 0": wrong_rate("0"),
    "negative": wrong_rate("-1.1"),
    "NaN": wrong_rate("NaN"),
    "infinite": wrong_rate("Infinity"),
    "1e400": wrong_rate("1e400"),
    "a word": wrong_rate("n/a"),
    "empty": wrong_rate(""),
    "a week old": Bad(lambda *_: ecb(ago(7)), f"ecb is of {ago(7)}, more than 6 days old"),
    "tomorrow's": Bad(lambda *_: ecb(ago(-1)), f"ecb is of {ago(-1)}, which is in the future"),
    "no date": Bad(lambda *_: ecb().replace(str(today()).encode(), b"yesterday"), "ecb has no date"),
}


@pytest.fixture
def bad_run(
    api: Api, fetch: Run, rates: RatesServer, hanging: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Bad, Object], Ran]:
    """Run fetch-rates while the ECB's document is bad."""

    def run(bad: Bad, rate: Object) -> Ran:
        rates.requests.clear()
        if bad.answer(rates, hanging) is None:
            return fetch("--ecb-url", "http://127.0.0.1:1/ecb.xml")
        rates.tell("ecb", bad.answer(rates, hanging) or b"")
        return fetch()

    return run


@pytest.mark.parametrize("name", BAD)
def test_the_next_provider_takes_over(
    api: Api, bad_run: Callable[[Bad, Object], Ran], rates: RatesServer, name: str
) -> None:
    rate = api.create(exchange_rate(api.namespace("shop")))
    rates.tell("frankfurter", frankfurter(rates={**RATES, "USD": "1.15"}))

    ran = bad_run(BAD[name], rate)

    assert ran.exit_code == 0
    assert ran.summary["created"] == 1
    asked = rates.fetched()
    assert (asked.count("ecb"), asked.count("frankfurter"), asked.count("open-er-api")) == (BAD[name].asked, 1, 0)
    assert data(api, rate) == {
        "rate": "1.15",
        "inverse": "0.8695652174",
        "base": "EUR",
        "currency": "USD",
        "date": str(today()),
        "source": "frankfurter",
    }
    assert condition(api, rate)["status"] == "True"
    assert BAD[name].told.partition(" ")[2] in ran.stdout


@pytest.mark.parametrize("name", BAD)
def test_the_last_good_rate_stays_where_no_provider_is_left(
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
    assert set(rates.fetched()) <= {"ecb"}, "a provider that is named is the only one"
    assert api.copy_writes() == []
    assert data(api, rate) == before
    told = condition(api, rate)
    assert (told["status"], told["reason"]) == ("False", "Unavailable")
    assert told["message"].startswith(f"the rate of {ago(2)} stays: {bad.told}")
    assert [event["message"] for event in api.events() if event["type"] == "Warning"] == [told["message"]]
    api.mark()
    bad_run(bad, rate)
    assert api.writes() == [], "it is told once, and since when"
    rates.publish()
    assert fetch().exit_code == 0
    assert condition(api, rate)["status"] == "True"


def test_a_server_that_asks_to_wait_a_moment_is_waited_for(
    api: Api, fetch: Run, rates: RatesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.create(exchange_rate(api.namespace("shop")))
    pauses: list[float] = []
    monkeypatch.setattr(web, "sleep", pauses.append)
    monkeypatch.setattr(web, "LONGEST_PAUSE_SECONDS", 0.5)
    monkeypatch.setattr(web, "TOTAL_SECONDS", 30.0)

    def busy_once(handler: Handler) -> None:
        (document(ecb()) if pauses else status(429, Retry_After="2"))(handler)

    rates.tell("ecb", busy_once)

    assert fetch().summary == {"created": 1}
    assert rates.fetched() == ["ecb", "ecb"]
    assert [2 <= pause <= 2.5 for pause in pauses] == [True], "what a server asks for is the least; jitter comes on top"


def test_yesterday_s_rate_is_a_good_one(api: Api, fetch: Run, rates: RatesServer) -> None:
    rate = api.create(exchange_rate(api.namespace("shop")))
    rates.publish(day=ago(1))

    assert fetch().summary == {"created": 1}
    assert (data(api, rate) or {})["date"] == str(ago(1))


@pytest.mark.parametrize("rate", ["0.6828", "1.5932"])
def test_a_jump_is_blocked_until_somebody_accepts_it(api: Api, fetch: Run, rates: RatesServer, rate: str) -> None:
    shop = api.namespace("shop")
    wanted = api.create(exchange_rate(shop))
    calm = api.create(exchange_rate(shop, "jpy", "JPY"))
    rates.publish(day=ago(1))
    fetch()
    before = data(api, wanted)
    rates.tell("ecb", ecb(rates={**RATES, "USD": rate}))
    rates.tell("frankfurter", frankfurter(ago(1)))

    ran = fetch()

    assert ran.exit_code == 4
    assert data(api, wanted) == before
    assert (data(api, calm) or {})["date"] == str(today()), "the others go on"
    told = condition(api, wanted)
    assert (told["status"], told["reason"]) == ("False", "Jump")
    assert f"ecb has {rate} of {today()}, 40 % from 1.1380 of {ago(1)}: more than 20 %" in told["message"]
    assert "set spec.maxChange to 40 to accept it" in told["message"]
    assert "1 rate changed by more than 20 % and stays as it is" in ran.stderr
    api.mark()
    assert fetch().exit_code == 4
    assert api.writes() == []
    command = shlex.split(ran.stderr.strip().splitlines()[-1])
    assert command[:2] == ["chores", "fetch-rates"]
    assert fetch(*command[2:]).summary == {"configured": 1, "unchanged": 1}
    assert (data(api, wanted) or {})["rate"] == rate


def test_a_limit_of_its_own_goes_before_that_of_the_run(api: Api, fetch: Run, rates: RatesServer) -> None:
    wanted = api.create(exchange_rate(api.namespace("shop"), maxChange=2))
    rates.publish(day=ago(1))
    fetch()
    rates.publish(rates={**RATES, "USD": "1.1800"})
    rates.tell("frankfurter", status(503))

    held = fetch("--max-change", "50")
    assert (held.exit_code, held.summary["jump"]) == (0, 1), "its own limit holds it, which the operator cannot lift"
    assert condition(api, wanted)["reason"] == "Jump"
    assert fetch("-n", wanted["metadata"]["namespace"]).exit_code == 4
    assert "run once" not in held.stderr, "--max-change would not lift it"
    api.patch(wanted, {"spec": {"maxChange": 4}})
    assert fetch().summary == {"configured": 1}
    assert (data(api, wanted) or {})["rate"] == "1.1800"


def test_a_jump_of_one_configmap_names_the_option_and_no_other_command(
    api: Api, fetch: Run, rates: RatesServer
) -> None:
    arguments = ("--currency", "USD", "--configmap", "dollar", "--provider", "ecb", "-n", api.namespace("shop"))
    rates.publish(day=ago(1))
    fetch(*arguments)
    rates.tell("ecb", ecb(rates={**RATES, "USD": "1.5932"}))

    held = fetch(*arguments)

    assert (held.exit_code, held.summary) == (4, {"jump": 1})
    assert held.results[0]["reason"].endswith("the last rate stays; use --max-change 40 to accept it")
    assert "run once" not in held.stderr, "that would serve the ExchangeRates of the cluster"
    assert fetch(*arguments, "--max-change", "40").summary == {"configured": 1}


def test_a_jump_just_over_the_limit_reads_as_one(api: Api, fetch: Run, rates: RatesServer) -> None:
    wanted = api.create(exchange_rate(api.namespace("shop"), "pln", "PLN", provider="ecb"))
    rates.publish(day=ago(1), rates={**RATES, "PLN": "4.0000"})
    fetch()
    rates.tell("ecb", ecb(rates={**RATES, "PLN": "4.8001"}))

    assert fetch().exit_code == 4
    assert f"20.1 % from 4.0000 of {ago(1)}: more than 20 %" in condition(api, wanted)["message"]
    assert "set spec.maxChange to 21" in condition(api, wanted)["message"]


def test_a_jump_that_another_provider_has_too_is_believed(api: Api, fetch: Run, rates: RatesServer) -> None:
    wanted = api.create(exchange_rate(api.namespace("shop"), provider="open-er-api"))
    rates.publish(day=ago(1))
    fetch()
    rates.fetched()
    rates.tell("open-er-api", open_er_api(rates={**RATES, "USD": "1.5932"}))
    rates.tell("ecb", ecb(rates={**RATES, "USD": "1.6000"}))

    assert fetch().summary == {"configured": 1}
    assert rates.fetched() == ["open-er-api", "ecb"]
    assert (data(api, wanted) or {})["rate"] == "1.5932", "the figures are of one provider, confirmed by the other"
    assert (data(api, wanted) or {})["source"] == "open-er-api"


@pytest.mark.parametrize(("other", "exit_code"), [("1.14", 0), ("1.5932", 0), ("1.40", 4)])
def test_a_correction_that_jumps_is_weighed_against_the_other_provider_s(
    api: Api, fetch: Run, rates: RatesServer, other: str, exit_code: int
) -> None:
    wanted = api.create(exchange_rate(api.namespace("shop")))
    fetch()
    rates.tell("ecb", ecb(rates={**RATES, "USD": "1.5932"}))
    rates.tell("frankfurter", frankfurter(rates={**RATES, "USD": other}))

    assert fetch().exit_code == exit_code
    assert (data(api, wanted) or {})["rate"] == ("1.5932" if other == "1.5932" else "1.1380")


def test_a_jump_that_all_have_gives_the_figures_of_the_first(api: Api, fetch: Run, rates: RatesServer) -> None:
    wanted = api.create(exchange_rate(api.namespace("shop")))
    rates.publish(day=ago(1))
    fetch()
    rates.tell("ecb", ecb(rates={**RATES, "USD": "1.5932"}))
    rates.tell("frankfurter", frankfurter(rates={**RATES, "USD": "1.6000"}))

    assert fetch().summary == {"configured": 1}
    held = data(api, wanted) or {}
    assert (held["rate"], held["source"]) == ("1.5932", "ecb")


def test_where_providers_disagree_the_one_without_a_jump_is_believed(api: Api, fetch: Run, rates: RatesServer) -> None:
    wanted = api.create(exchange_rate(api.namespace("shop")))
    rates.publish(day=ago(1))
    fetch()
    rates.tell("ecb", ecb(rates={**RATES, "USD": "1.5932"}))
    rates.tell("frankfurter", frankfurter(rates={**RATES, "USD": "1.14"}))

    ran = fetch("--diff")

    assert ran.summary == {"configured": 1, "providers-differ": 1}
    assert "ecb has 1.5932" in ran.results[0]["reason"]
    assert data(api, wanted) == {
        "rate": "1.14",
        "inverse": "0.8771929825",
        "base": "EUR",
        "currency": "USD",
        "date": str(today()),
        "source": "frankfurter",
    }
    api.mark()
    assert (fetch().exit_code, api.writes()) == (0, []), "and goes on to be believed"


def contradictions(ran: Ran) -> list[str]:
    """What a run reports of providers that contradict each other."""
    return [each["reason"] for each in ran.results if each["code"] == "providers-differ"]


def test_a_contradiction_of_two_providers_is_in_the_status_and_an_event_until_they_agree(
    api: Api, fetch: Run, rates: RatesServer
) -> None:
    wanted = api.create(exchange_rate(api.namespace("shop")))
    rates.publish(day=ago(1))
    fetch()
    rates.tell("ecb", ecb(rates={**RATES, "USD": "1.5932"}))
    rates.tell("frankfurter", frankfurter(rates={**RATES, "USD": "1.14"}))
    told = f"ecb has 1.5932 of {today()}, frankfurter has 1.14 of {today()}: used is 1.14 of {today()} from frankfurter"

    ran = fetch()

    assert (ran.exit_code, ran.summary, contradictions(ran)) == (0, {"configured": 1, "providers-differ": 1}, [told])
    found = condition(api, wanted)
    assert (found["status"], found["reason"], found["message"]) == ("True", "ProvidersDiffer", told)
    assert [event["message"] for event in api.events() if event["reason"] == "ProvidersDiffer"] == [told]
    api.mark()
    again = fetch()
    assert (again.exit_code, contradictions(again), api.writes()) == (0, [told], [])
    assert fetch("--check").exit_code == 3
    rates.publish(rates={**RATES, "USD": "1.14"})
    assert contradictions(fetch()) == []
    assert condition(api, wanted)["reason"] == "Current"


def test_a_correction_that_the_other_provider_contradicts_is_reported(api: Api, fetch: Run, rates: RatesServer) -> None:
    wanted = api.create(exchange_rate(api.namespace("shop")))
    fetch()
    rates.tell("ecb", ecb(rates={**RATES, "USD": "1.5932"}))
    rates.tell("frankfurter", frankfurter(rates={**RATES, "USD": "1.14"}))

    told = f"ecb has 1.5932 of {today()}, frankfurter has 1.14 of {today()}: kept is 1.1380 of {today()} from ecb"
    assert contradictions(fetch()) == [told]
    assert condition(api, wanted)["message"] == told


def test_a_jump_that_one_provider_confirms_and_another_contradicts_is_reported(
    api: Api, fetch: Run, rates: RatesServer
) -> None:
    wanted = api.create(exchange_rate(api.namespace("shop"), provider="open-er-api"))
    rates.publish(day=ago(1))
    fetch()
    rates.tell("open-er-api", open_er_api(rates={**RATES, "USD": "1.5932"}))
    rates.tell("ecb", ecb(rates={**RATES, "USD": "1.14"}))
    rates.tell("frankfurter", frankfurter(rates={**RATES, "USD": "1.6000"}))

    ran = fetch()

    used = f"used is 1.5932 of {today()} from open-er-api"
    assert contradictions(ran) == [f"open-er-api has 1.5932 of {today()}, ecb has 1.14 of {today()}: {used}"]
    assert condition(api, wanted)["reason"] == "ProvidersDiffer"


def test_a_jump_that_nobody_confirms_names_the_figures_of_the_others(api: Api, fetch: Run, rates: RatesServer) -> None:
    wanted = api.create(exchange_rate(api.namespace("shop")))
    rates.publish(day=ago(1))
    fetch()
    rates.tell("ecb", ecb(rates={**RATES, "USD": "1.5932"}))
    rates.tell("frankfurter", frankfurter(rates={**RATES, "USD": "1.7000"}))

    assert fetch().exit_code == 4
    assert f"no other provider agrees (frankfurter has 1.7 of {today()}): the last" in condition(api, wanted)["message"]
    rates.tell("frankfurter", status(503))
    assert fetch().exit_code == 4
    assert "no other provider agrees: the last" in condition(api, wanted)["message"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (frankfurter(base="USD"), "frankfurter is of another base than 1 EUR"),
        (frankfurter(amount="10"), "frankfurter is of another base than 1 EUR"),
        (b"[1, 2]", "frankfurter is no JSON object"),
        (b"[" * 100_000, "frankfurter is no JSON"),
        (HTML, "frankfurter is no JSON"),
        (b'{"amount":1,"base":"EUR","date":"2026-02-30","rates":{}}', "frankfurter has no date"),
        (b'{"amount":1,"base":"EUR","rates":{"USD":1.1}}', "frankfurter has no date"),
        (frankfurter().replace(b"rates", b"quotes"), "frankfurter has no rates"),
        (frankfurter(rates={"USD": '"1.1"'}), "frankfurter its USD is no rate"),
        (frankfurter(rates={"USD": "NaN"}), "frankfurter its USD is no rate"),
        (frankfurter(rates={"USD": "1e400"}), "frankfurter its USD is no rate"),
        (frankfurter(rates={"USD": "-Infinity"}), "frankfurter its USD is no rate"),
        (frankfurter().replace(b'"JPY"', b'"USD"'), "frankfurter names something twice"),
    ],
    ids=[
        "another base",
        "another amount",
        "no object",
        "nested",
        "HTML",
        "no such day",
        "no day",
        "no rates",
        "text",
        "NaN",
        "1e400",
        "infinite",
        "twice",
    ],
)
def test_json_that_is_not_what_the_provider_publishes(
    api: Api, fetch: Run, rates: RatesServer, answer: bytes, told: str
) -> None:
    rate = api.create(exchange_rate(api.namespace("shop"), provider="frankfurter"))
    rates.tell("frankfurter", answer)

    assert fetch().exit_code == 1
    assert told in condition(api, rate)["message"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (open_er_api(base="USD"), "open-er-api is of another base than EUR"),
        (b'{"result":"error","error-type":"unsupported-code"}', "open-er-api does not say that it is a success"),
        (open_er_api().replace(b"time_last_update_unix", b"x"), "open-er-api has no date"),
        (
            open_er_api().replace(b'last_update_unix": ', b'last_update_unix": 1e999999999, "x": '),
            "open-er-api has no date",
        ),
        (open_er_api().replace(b'last_update_unix": ', b'last_update_unix": NaN, "x": '), "open-er-api has no date"),
    ],
    ids=["another base", "no success", "no day", "an endless day", "no number"],
)
def test_the_open_api_has_its_own_ways(api: Api, fetch: Run, rates: RatesServer, answer: bytes, told: str) -> None:
    rate = api.create(exchange_rate(api.namespace("shop"), provider="open-er-api"))
    rates.tell("open-er-api", answer)

    assert fetch().exit_code == 1
    assert told in condition(api, rate)["message"]


def test_the_figures_of_a_named_provider_are_its_own(api: Api, fetch: Run, rates: RatesServer) -> None:
    shop = api.namespace("shop")
    named = api.create(exchange_rate(shop, "named", provider="open-er-api"))
    usual = api.create(exchange_rate(shop, "usual"))
    rates.tell("open-er-api", open_er_api(rates={"USD": "1.139"}))

    assert fetch().summary == {"created": 2}
    assert [(data(api, each) or {})["source"] for each in (named, usual)] == ["open-er-api", "ecb"]
    assert (data(api, named) or {})["rate"] == "1.139"
    assert sorted(rates.fetched()) == ["ecb", "open-er-api"]


@pytest.mark.parametrize("rate", ["1.1390", RATES["USD"]])
def test_a_provider_that_is_named_later_gives_the_rate_from_then_on(
    api: Api, fetch: Run, rates: RatesServer, rate: str
) -> None:
    wanted = api.create(exchange_rate(api.namespace("shop")))
    fetch()
    rates.tell("open-er-api", open_er_api(ago(1), rates={**RATES, "USD": rate}))
    api.patch(wanted, {"spec": {"provider": "open-er-api"}})

    assert fetch().summary == {"configured": 1}
    held = data(api, wanted) or {}
    assert (held["source"], held["date"]) == ("open-er-api", str(ago(1)))


def test_a_provider_that_is_back_changes_nothing_of_the_same_day(api: Api, fetch: Run, rates: RatesServer) -> None:
    rate = api.create(exchange_rate(api.namespace("shop")))
    rates.tell("ecb", status(503))
    fetch()
    rates.publish()
    api.mark()

    assert fetch().summary == {"unchanged": 1}
    assert api.writes() == []
    assert (data(api, rate) or {})["source"] == "frankfurter"


def test_no_rate_of_another_currency_is_shown_or_written(api: Api, fetch: Run, rates: RatesServer) -> None:
    shop = api.namespace("shop")
    rate = api.create(exchange_rate(shop))
    fetch()
    before = data(api, rate)
    api.patch(rate, {"spec": {"currency": "JPY"}})
    for provider in ("ecb", "frankfurter"):
        rates.tell(provider, status(404))

    assert fetch().exit_code == 1

    assert data(api, rate) == before, "pods go on with what they have"
    assert columns(api, shop) == [["usd", "JPY", "EUR", "None", "None", "Unavailable"]]


def test_a_last_rate_of_a_day_to_come_is_none(api: Api, fetch: Run, rates: RatesServer) -> None:
    rate = api.create(exchange_rate(api.namespace("shop")))
    fetch()
    path = f"{api.path(rate)}/status"
    merge = {"Content-Type": "application/merge-patch+json"}
    for day in (str(ago(-1)), "9999-12-31", "zzz"):
        api.call("PATCH", path, {"status": {"date": day}}, headers=merge)
        api.delete(configmap_of(rate))

        assert fetch().summary == {"created": 1}
        assert (data(api, rate) or {})["date"] == str(today())


def test_the_status_of_a_currency_that_the_first_provider_lacks_does_not_depend_on_the_second(
    api: Api, fetch: Run, rates: RatesServer
) -> None:
    wanted = api.create(exchange_rate(api.namespace("shop"), "none", "XXX"))
    fetch()
    told = condition(api, wanted)
    api.mark()

    rates.tell("frankfurter", status(503))
    gone = fetch()
    rates.publish()
    back = fetch()

    assert [ran.summary["unavailable"] for ran in (gone, back)] == [1, 1]
    assert (condition(api, wanted), api.writes()) == (told, [])
    assert told["message"] == "there is no rate yet: ecb has no XXX"
