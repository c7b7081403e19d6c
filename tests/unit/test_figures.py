"""Rates to the last digit of values computed by hand, documents without loss of digits, and the choice of a rate."""

import tracemalloc
from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from jobs.core.fetch_rates.exchange_rates import (
    BadRateError,
    MissingError,
    ProviderName,
    Quote,
    Spec,
    Table,
    change,
    quote,
    same,
)
from jobs.core.fetch_rates.providers import (
    BadDocumentError,
    Choice,
    Jump,
    NoQuote,
    ProviderNeed,
    choose,
    date_failure,
    table,
)
from jobs.kit.web import MAX_BODY_BYTES
from tests.rates import DOCUMENTS, RATES, ago, ecb, frankfurter, open_er_api, today

DAY = "2026-11-20"
PER_EURO = {
    "USD": "1.1380",
    "GBP": "0.87125",
    "JPY": "163.20",
    "CHF": "0.9360",
    "TWO": "2",
    "THREE": "3",
    "HALF": "0.5",
    "IDR": "18950.55",
    "BTC": "0.00001",
    "ODD": "2.000000003",
    "EVEN": "2.000000001",
    "LONG": "1.234567890123456789012345678901234",
}

# base, currency, rate and inverse; computed by long division to eleven digits, then rounded half-even.
BY_HAND = [
    # one of the two is EUR: the digits of the table, and one division
    ("EUR", "USD", "1.1380", "0.8787346221"),  # 1/1.138 = 0.87873462214...
    ("USD", "EUR", "0.8787346221", "1.1380"),
    ("EUR", "JPY", "163.20", "0.006127450980"),  # 1/163.2 = 0.00612745098039...
    ("THREE", "EUR", "0.3333333333", "3"),
    ("EUR", "IDR", "18950.55", "0.00005276891700"),  # 1/18950.55 = 0.0000527689169971...
    ("EUR", "LONG", "1.234567890123456789012345678901234", "0.8100000073"),  # 0.81000000729...
    # crosses: one division each way, never the inverse of a rounded one
    ("USD", "GBP", "0.7655975395", "1.306169297"),  # 0.87125/1.138 = 0.76559753954..., 1.138/0.87125 = 1.3061692969...
    ("USD", "JPY", "143.4094903", "0.006973039216"),  # 143.40949033..., 0.00697303921568...
    ("THREE", "TWO", "0.6666666667", "1.5"),
    # a half goes to the even digit: 2.000000001/2 = 1.0000000005, 2.000000003/2 = 1.0000000015
    ("TWO", "EVEN", "1.000000000", "0.9999999995"),
    ("TWO", "ODD", "1.000000002", "0.9999999985"),
]


@pytest.mark.parametrize(("base", "currency", "rate", "inverse"), BY_HAND)
def test_a_rate_is_exact_to_the_last_digit(base: str, currency: str, rate: str, inverse: str) -> None:
    given = Table("ecb", DAY, {code: Decimal(text) for code, text in PER_EURO.items()})

    assert quote(given, base, currency) == Quote(rate, inverse, base, currency, DAY, "ecb")


@pytest.mark.parametrize("base", ["EUR", *PER_EURO])
@pytest.mark.parametrize("currency", ["EUR", *PER_EURO])
def test_computed_rates_are_the_nearest_with_ten_digits(base: str, currency: str) -> None:
    exact = {"EUR": Fraction(1), **{code: Fraction(text) for code, text in PER_EURO.items()}}
    given = Table("ecb", DAY, {code: Decimal(text) for code, text in PER_EURO.items()})

    found = quote(given, base, currency)

    for text, expected in ((found.rate, exact[currency] / exact[base]), (found.inverse, exact[base] / exact[currency])):
        if "EUR" in (base, currency) and Fraction(text) == expected:
            continue  # the provider's own digits
        unit = Fraction(10) ** (Decimal(text).adjusted() - 9)
        assert abs(Fraction(text) - expected) <= unit / 2
        assert "e" not in text.lower()


def test_the_digits_of_a_document_are_preserved() -> None:
    """A float changes each of these numbers."""
    rates = {"USD": "1.10", "GBP": "0.30000000000000004441", "JPY": "162.100000000000000001", "CHF": "0.1000"}

    assert {c: str(rate) for c, rate in table("ecb", ecb(rates=rates)).rates.items()} == rates
    numbers = b'{"USD":1.10,"GBP":0.30000000000000004441,"CHF":1e-7}'
    read = table("frankfurter", b'{"amount":1.0,"base":"EUR","date":"2026-11-20","rates":%s}' % numbers)
    found = [quote(read, "EUR", code).rate for code in ("USD", "GBP", "CHF")]
    assert found == ["1.10", "0.30000000000000004441", "0.0000001"]
    for text in rates.values():
        assert str(float(text)) != text, "this test needs numbers that a float changes"


@pytest.mark.parametrize("provider", DOCUMENTS)
def test_the_document_of_each_provider_is_read(provider: str) -> None:
    read = table(provider, DOCUMENTS[provider](ago(3), {"USD": "1.138", "JPY": "163.2"}))

    assert (read.provider, read.date) == (provider, str(ago(3)))
    others = {code: rate for code, rate in read.rates.items() if code != "EUR"}
    assert others == {"USD": Decimal("1.138"), "JPY": Decimal("163.2")}


@pytest.mark.parametrize("rate", ["0", "-1", "NaN", "sNaN", "Infinity", "-Infinity", "1e16", "1e-16", "1." + "1" * 34])
def test_a_number_that_cannot_be_a_rate_is_refused(rate: str) -> None:
    given = Table("ecb", DAY, {"USD": Decimal(rate)})

    for pair in (("EUR", "USD"), ("USD", "EUR")):
        with pytest.raises(BadRateError):
            quote(given, *pair)
    with pytest.raises(MissingError, match="has no JPY"):
        quote(given, "EUR", "JPY")


@pytest.mark.parametrize(
    ("before", "after", "percent"),
    [("1.00", "1.20", "20"), ("1.20", "1.00", "16.66666667"), ("1.1380", "1.138", "0"), ("0.1", "0.3", "200")],
)
def test_a_change_is_in_percent_of_the_old_rate(before: str, after: str, percent: str) -> None:
    assert change(before, after) == Decimal(percent)
    assert same(before, after) == (percent == "0")


def test_figures_with_an_invalid_field_are_not_complete() -> None:
    complete = Quote("1.1", "0.9", "EUR", "USD", DAY, "ecb")

    assert complete.is_complete()
    for field, value in [("rate", ""), ("rate", "x"), ("rate", "0"), ("rate", "NaN"), ("date", ""), ("source", "")]:
        assert not Quote(**{**complete.data(), field: value}).is_complete()


@pytest.mark.parametrize(("age", "is_valid"), [(-1, False), (0, True), (6, True), (7, False)])
def test_a_table_is_valid_on_its_day_and_for_six_days(age: int, is_valid: bool) -> None:
    today = date.fromisoformat(DAY) + timedelta(age)

    assert (date_failure(Table("ecb", DAY, {}), today) == "") == is_valid


BOMB = b"""<?xml version="1.0"?>
<!DOCTYPE bomb [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;">]>
<Envelope><Cube><Cube time="2026-01-01"><Cube currency="USD" rate="&c;"/></Cube></Cube></Envelope>"""
HTML = b"<!doctype html><html><body><p>We will be back soon.<br></body></html>"
_UPDATE = b'last_update_unix": '
NO_DATE, TWICE = "returned no valid date", "returned a document with a duplicate name"
INVALID: dict[str, dict[str, tuple[bytes, str]]] = {
    "ecb": {
        "HTML": (HTML, "returned a document that is not XML"),
        "nothing": (b"", "returned a document that is not XML"),
        "cut off": (ecb()[:-30], "returned a document that is not XML"),
        "XML of something else": (b"<feed><entry/></feed>", "returned rates of 0 days instead of one"),
        "entities": (BOMB, "returned XML with a DTD or entities, which is not allowed"),
        "twice": (
            ecb().replace(b"<Cube currency='USD'", b"<Cube currency='USD' rate='1'/><Cube currency='USD'"),
            TWICE,
        ),
        "no date": (ecb().replace(str(today()).encode(), b"yesterday"), NO_DATE),
    },
    "frankfurter": {
        "another base": (frankfurter(base="USD"), "returned rates with a base other than 1 EUR"),
        "another amount": (frankfurter(amount="10"), "returned rates with a base other than 1 EUR"),
        "not an object": (b"[1, 2]", "returned JSON that is not an object"),
        "nested": (b"[" * 100_000, "returned a document that is not JSON"),
        "HTML": (HTML, "returned a document that is not JSON"),
        "no such day": (b'{"amount":1,"base":"EUR","date":"2026-02-30","rates":{}}', NO_DATE),
        "no day": (b'{"amount":1,"base":"EUR","rates":{"USD":1.1}}', NO_DATE),
        "no rates": (frankfurter().replace(b"rates", b"quotes"), "returned no rates"),
        "twice": (frankfurter().replace(b'"JPY"', b'"USD"'), TWICE),
    },
    "open-er-api": {
        "another base": (open_er_api(base="USD"), "returned rates with a base other than EUR"),
        "not a success": (
            b'{"result":"error","error-type":"quota"}',
            "returned a result other than success",
        ),
        "no day": (open_er_api().replace(b"time_last_update_unix", b"x"), NO_DATE),
        "an endless day": (open_er_api().replace(_UPDATE, _UPDATE + b'1e999999999, "x": '), NO_DATE),
        "not a number": (open_er_api().replace(_UPDATE, _UPDATE + b'NaN, "x": '), NO_DATE),
    },
}


@pytest.mark.parametrize(("provider", "case"), [(provider, case) for provider, of in INVALID.items() for case in of])
def test_an_invalid_document_is_refused(provider: str, case: str) -> None:
    document, message = INVALID[provider][case]

    with pytest.raises(BadDocumentError) as refused:
        table(provider, document)
    assert str(refused.value) == message


LARGEST = {
    "elements that are never closed": ("ecb", b"<a>" * (MAX_BODY_BYTES // 3)),
    "empty elements": ("ecb", b"<a>" + b"<b/>" * (MAX_BODY_BYTES // 4) + b"</a>"),
    "attributes": ("ecb", b"<a " + b" ".join(b"a%d=''" % n for n in range(MAX_BODY_BYTES // 9)) + b"/>"),
    "numbers": ("frankfurter", b'{"a":[' + b"1," * (MAX_BODY_BYTES // 2) + b"1]}"),
    "objects": ("frankfurter", b'{"a":[' + b"{}," * (MAX_BODY_BYTES // 3) + b"{}]}"),
    "lists that are never closed": ("open-er-api", b"[" * MAX_BODY_BYTES),
}


@pytest.mark.parametrize("case", LARGEST)
def test_the_largest_document_takes_a_tenth_of_the_memory_of_a_pod(case: str) -> None:
    provider, document = LARGEST[case]
    table("ecb", ecb())  # imports the parser

    tracemalloc.start()
    with pytest.raises(BadDocumentError):
        table(provider, document)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 12.8 * (1 << 20)


@pytest.mark.parametrize(
    "document",
    [
        *(ecb(rates={**RATES, "USD": rate}) for rate in ("0", "-1.1", "NaN", "Infinity", "1e400", "n/a", "")),
        *(frankfurter(rates={"USD": rate}) for rate in ('"1.1"', "NaN", "1e400", "-Infinity")),
    ],
)
def test_an_invalid_rate_of_a_document_is_refused(document: bytes) -> None:
    with pytest.raises(BadRateError, match="has an invalid USD rate"):
        quote(table("ecb" if document.startswith(b"<") else "frankfurter", document), "EUR", "USD")


YESTERDAY = "2026-11-19"


def published(**rates: str) -> dict[str, Table | str]:
    """Return tables by provider (er: open-er-api) with this rate of USD: today's, or another day's after an @."""
    found: dict[str, Table | str] = {}
    for name, text in rates.items():
        provider = "open-er-api" if name == "er" else name
        rate, _, day = text.partition("@")
        if rate == "failed":
            found[provider] = rate
        else:
            found[provider] = Table(provider, day or DAY, {} if rate == "none" else {"USD": Decimal(rate)})
    return found


def last(rate: str, day: str, source: str = "ecb") -> Quote:
    return Quote(rate, "1", "EUR", "USD", day, source)


OLD, NEW = last("1.1380", YESTERDAY), last("1.1380", DAY)
OF_OTHER = last("1.1380", DAY, "frankfurter")
# spec.provider, the last figures, what the providers have; then the rate, its source, and rates that contradict it
CHOICES: dict[str, tuple[ProviderName | None, Quote, dict[str, str], tuple[str, ...]]] = {
    "the same rate of another day": (None, OLD, {"ecb": "1.1380"}, ("1.1380", "ecb")),
    "a correction of the same day": (None, NEW, {"ecb": "1.1381"}, ("1.1381", "ecb")),
    "an older rate": (None, NEW, {"ecb": f"1.1111@{YESTERDAY}"}, ("1.1380", "ecb")),
    "a change of exactly the limit": (None, last("1.0", YESTERDAY), {"ecb": "1.2"}, ("1.2", "ecb")),
    "a jump of all providers": (None, OLD, {"ecb": "1.5932", "frankfurter": "1.6000"}, ("1.5932", "ecb")),
    "a jump that another provider confirms": (
        "open-er-api",
        OLD,
        {"er": "1.5932", "ecb": "1.6"},
        ("1.5932", "open-er-api"),
    ),
    "a jump that one confirms and one contradicts": (
        "open-er-api",
        OLD,
        {"er": "1.5932", "ecb": "1.14", "frankfurter": "1.6000"},
        ("1.5932", "open-er-api", "1.5932", "1.14"),
    ),
    "a jump of the first only": (
        None,
        OLD,
        {"ecb": "1.5932", "frankfurter": "1.14"},
        ("1.14", "frankfurter", "1.5932", "1.14"),
    ),
    "a correction that another confirms": (None, NEW, {"ecb": "1.5932", "frankfurter": "1.5932"}, ("1.5932", "ecb")),
    "a correction that another contradicts": (
        None,
        NEW,
        {"ecb": "1.5932", "frankfurter": "1.14"},
        ("1.1380", "ecb", "1.5932", "1.14"),
    ),
    "a provider that is named later": ("open-er-api", NEW, {"er": f"1.139@{YESTERDAY}"}, ("1.139", "open-er-api")),
    "the same rate of one that is named later": (
        "open-er-api",
        NEW,
        {"er": f"1.1380@{YESTERDAY}"},
        ("1.1380", "open-er-api"),
    ),
    "the second provider on the same day": (None, NEW, {"ecb": "failed", "frankfurter": "1.14"}, ("1.1380", "ecb")),
    "a first provider that recovered": (None, OF_OTHER, {"ecb": "1.1380"}, ("1.1380", "frankfurter")),
}


@pytest.mark.parametrize("case", CHOICES)
def test_the_first_valid_rate_is_chosen_unless_it_jumps_alone(case: str) -> None:
    provider, before, rates, expected = CHOICES[case]

    found = choose(Spec("USD", provider=provider), before, published(**rates), 20)

    assert isinstance(found, Choice)
    differing = [each.rate for each in found.differing]
    assert (found.quote.rate, found.quote.source, *differing) == expected


@pytest.mark.parametrize(
    ("rates", "percent", "words"),
    [
        (
            {"ecb": "1.36561", "frankfurter": "failed"},
            21,
            "20.1 % from 1.1380 of 2026-11-19; the limit is 20 %, and no",
        ),
        ({"ecb": "0.6828", "frankfurter": "none"}, 40, "no other provider confirms the new rate"),
        ({"ecb": "1.5932", "frankfurter": "1.61"}, 40, f"the new rate (frankfurter has 1.61 of {DAY})"),
        ({"ecb": "1.5932", "frankfurter": f"1.14@{YESTERDAY}"}, 40, f"(frankfurter has 1.14 of {YESTERDAY})"),
    ],
)
def test_a_jump_that_nobody_confirms_is_not_chosen(rates: Mapping[str, str], percent: int, words: str) -> None:
    found = choose(Spec("USD"), OLD, published(**rates), 20)

    assert isinstance(found, Jump)
    assert (found.percent, words in found.reason) == (percent, True), found.reason


def test_a_correction_that_jumps_and_that_another_provider_does_not_confirm_is_not_chosen() -> None:
    assert isinstance(choose(Spec("USD"), NEW, published(ecb="1.5932", frankfurter="1.40"), 20), Jump)


def test_many_small_changes_in_a_day_are_a_jump() -> None:
    found = choose(Spec("USD"), last("1.3", DAY), published(ecb="1.4", frankfurter="1.1"), 20, "1.1")

    assert isinstance(found, Choice)
    assert (found.quote.rate, [each.rate for each in found.differing]) == ("1.3", ["1.4", "1.1"])
    alone = choose(Spec("USD"), last("1.3", DAY), published(ecb="1.4", frankfurter="failed"), 20, "1.1")
    assert isinstance(alone, Jump)
    assert "ecb has 1.4 of 2026-11-20, a change of 27.3 % from 1.1, the rate before this day" in alone.reason


def test_the_reason_of_a_currency_that_the_first_provider_lacks_does_not_depend_on_the_second() -> None:
    lacking = [choose(Spec("USD"), None, published(ecb="none", frankfurter=other), 20) for other in ("failed", "none")]

    assert [isinstance(each, NoQuote) and each.first_reason for each in lacking] == ["ecb has no USD"] * 2
    assert [isinstance(each, NoQuote) and each.permanent for each in lacking] == [False, True]


def test_a_provider_is_read_only_if_it_is_needed() -> None:
    assert choose(Spec("USD"), OLD, {}, 20) == ProviderNeed("ecb")
    assert choose(Spec("USD"), OLD, published(ecb="1.5932"), 20) == ProviderNeed("frankfurter")
    assert choose(Spec("USD", provider="open-er-api"), OLD, published(er="1.5932"), 20) == ProviderNeed("ecb")
