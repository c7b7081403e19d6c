"""Rates compared to the last digit with values computed by hand, and documents read without loss of digits."""

from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from jobs.core.fetch_rates.choice import date_failure
from jobs.core.fetch_rates.figures import BadRateError, Figures, MissingError, Table, change, figures, same
from jobs.core.fetch_rates.providers import table
from tests.rates import DOCUMENTS, ago, ecb, frankfurter, open_er_api, today

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
    ("EUR", "TWO", "2", "0.5"),
    ("EUR", "THREE", "3", "0.3333333333"),
    ("THREE", "EUR", "0.3333333333", "3"),
    ("EUR", "IDR", "18950.55", "0.00005276891700"),  # 1/18950.55 = 0.0000527689169971...
    ("EUR", "BTC", "0.00001", "100000"),
    ("EUR", "LONG", "1.234567890123456789012345678901234", "0.8100000073"),  # 0.81000000729...
    # crosses: one division each way, never the inverse of a rounded one
    ("USD", "GBP", "0.7655975395", "1.306169297"),  # 0.87125/1.138 = 0.76559753954..., 1.138/0.87125 = 1.3061692969...
    ("USD", "JPY", "143.4094903", "0.006973039216"),  # 143.40949033..., 0.00697303921568...
    ("GBP", "CHF", "1.074318508", "0.9308226496"),  # 1.07431850789..., 0.93082264957...
    ("TWO", "THREE", "1.5", "0.6666666667"),
    ("THREE", "TWO", "0.6666666667", "1.5"),
    # a half goes to the even digit: 2.000000001/2 = 1.0000000005, 2.000000003/2 = 1.0000000015
    ("TWO", "EVEN", "1.000000000", "0.9999999995"),
    ("TWO", "ODD", "1.000000002", "0.9999999985"),
]


@pytest.mark.parametrize(("base", "currency", "rate", "inverse"), BY_HAND)
def test_a_rate_is_exact_to_the_last_digit(base: str, currency: str, rate: str, inverse: str) -> None:
    given = Table("ecb", DAY, {code: Decimal(text) for code, text in PER_EURO.items()})

    assert figures(given, base, currency) == Figures(rate, inverse, base, currency, DAY, "ecb")


@pytest.mark.parametrize("base", ["EUR", *PER_EURO])
@pytest.mark.parametrize("currency", ["EUR", *PER_EURO])
def test_computed_rates_are_the_nearest_with_ten_digits(base: str, currency: str) -> None:
    exact = {"EUR": Fraction(1), **{code: Fraction(text) for code, text in PER_EURO.items()}}
    given = Table("ecb", DAY, {code: Decimal(text) for code, text in PER_EURO.items()})

    found = figures(given, base, currency)

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
    found = [figures(read, "EUR", code).rate for code in ("USD", "GBP", "CHF")]
    assert found == ["1.10", "0.30000000000000004441", "0.0000001"]
    for text in rates.values():
        assert str(float(text)) != text, "this test needs numbers that a float changes"


@pytest.mark.parametrize("provider", DOCUMENTS)
def test_the_document_of_each_provider_is_read(provider: str) -> None:
    read = table(provider, DOCUMENTS[provider](ago(3), {"USD": "1.138", "JPY": "163.2"}))

    assert (read.provider, read.date) == (provider, str(ago(3)))
    others = {code: rate for code, rate in read.rates.items() if code != "EUR"}
    assert others == {"USD": Decimal("1.138"), "JPY": Decimal("163.2")}


def test_the_same_rates_of_different_providers_give_the_same_figures() -> None:
    found = [
        figures(table(name, document), "USD", "GBP")
        for name, document in (("ecb", ecb()), ("frankfurter", frankfurter()), ("open-er-api", open_er_api()))
    ]

    assert {(each.rate, each.inverse, each.date) for each in found} == {("0.7655975395", "1.306169297", str(today()))}


@pytest.mark.parametrize(
    "rate", ["0", "-1", "NaN", "sNaN", "Infinity", "-Infinity", "1e400", "1e-400", "1." + "1" * 34]
)
def test_a_number_that_cannot_be_a_rate_is_refused(rate: str) -> None:
    given = Table("ecb", DAY, {"USD": Decimal(rate)})

    for pair in (("EUR", "USD"), ("USD", "EUR")):
        with pytest.raises(BadRateError):
            figures(given, *pair)
    with pytest.raises(MissingError, match="has no JPY"):
        figures(given, "EUR", "JPY")


@pytest.mark.parametrize(
    ("before", "after", "percent"),
    [("1.00", "1.20", "20"), ("1.20", "1.00", "16.66666667"), ("1.1380", "1.138", "0"), ("0.1", "0.3", "200")],
)
def test_a_change_is_in_percent_of_the_old_rate(before: str, after: str, percent: str) -> None:
    assert change(before, after) == Decimal(percent)
    assert same(before, after) == (percent == "0")


def test_figures_with_an_invalid_field_are_not_complete() -> None:
    complete = Figures("1.1", "0.9", "EUR", "USD", DAY, "ecb")

    assert complete.are_complete()
    for field, value in [("rate", ""), ("rate", "x"), ("rate", "0"), ("rate", "NaN"), ("date", ""), ("source", "")]:
        assert not Figures(**{**complete.data(), field: value}).are_complete()


@pytest.mark.parametrize(("age", "is_valid"), [(-1, False), (0, True), (6, True), (7, False)])
def test_a_table_is_valid_on_its_day_and_for_six_days(age: int, is_valid: bool) -> None:
    today = date.fromisoformat(DAY) + timedelta(age)

    assert (date_failure(Table("ecb", DAY, {}), today) is None) == is_valid
