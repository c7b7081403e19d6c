"""Every mutation of every field of an ExchangeRate, on both servers."""

from decimal import Decimal
from typing import Any

import pytest

from tests.api.conftest import Run, runs
from tests.apis import Api, Object
from tests.rates import RATES, RatesServer, ago, ecb, serve
from tests.walk.crds import fields
from tests.walk.ground import Placed
from tests.walk.rates import FIELDS
from tests.walk.walk import Field, check_row, walk
from tests.worlds import at, exchange_rate

SCHEMAS = fields("exchangerates")
JUMPED = {**RATES, "CHF": "1.2168"}
REASONS = {"CHF": ("Current", "Jump"), "XXX": ("Unavailable",)}  # of others: Current
FIGURES = ("rate", "inverse", "base", "currency", "source")


class Rates(Placed):
    """The ground of an ExchangeRate: its namespace, and providers of which all have the same rates."""

    def __init__(self, api: Api, fetch: Run, rates: RatesServer) -> None:
        self.space, self.fetch, self.rates = api.namespace("shop"), fetch, rates
        super().__init__(api, at(self.space, exchange_rate(self.space, "usd")))

    def run(self) -> dict[str, Any]:
        """Run fetch-rates until it writes nothing; with the next rates, which no other provider has."""
        self._converge()
        self.rates.serve("ecb", ecb(rates=JUMPED))
        self._converge()
        found = {
            each["metadata"]["name"]: {key: each["data"][key] for key in FIGURES}
            for each in self.api.items("v1", "ConfigMap", self.space)
            if each["metadata"]["name"] != "kube-root-ca.crt"
        }
        reason = self.ready()["reason"]
        spec = self.api.read(self.obj)["spec"] if reason else {}
        assert not reason or reason in REASONS.get(spec["currency"], ("Current",)), (reason, spec)
        if reason in ("Current", "Jump"):
            assert found == {spec.get("configMapName", "usd"): _figures(spec, RATES if reason == "Jump" else JUMPED)}
        return {**found, "reason": reason}

    def _converge(self) -> None:
        for _ in range(3):
            self.api.mark()
            ran = self.fetch("-n", self.space)
            if not [each for each in self.api.writes() if "/configmaps" in each.path]:
                return
        raise AssertionError(f"the last run writes: {ran}")

    def reset(self) -> None:
        """Delete the ExchangeRate and its ConfigMap, and publish the first rates."""
        self.put(None)
        for each in self.api.items("v1", "ConfigMap", self.space):
            if each["metadata"]["name"] != "kube-root-ca.crt":
                self.api.request("DELETE", self.api.path(each))  # the garbage collector may have been faster
        self.rates.publish(day=ago(1))


def _figures(spec: Object, rates: dict[str, str]) -> dict[str, str]:
    """Return the data of the ConfigMap by docs/fetch-rates.md, without the date."""
    base, currency = spec["base"], spec["currency"]
    rate = Decimal(rates[currency]) / (Decimal(rates[base]) if base != "EUR" else 1)
    return {
        "rate": _short(rate) if base != "EUR" or spec.get("provider", "ecb") != "ecb" else rates[currency],
        "inverse": _short(1 / rate),
        "base": base,
        "currency": currency,
        "source": spec.get("provider", "ecb"),
    }


def _short(number: Decimal) -> str:
    """At most ten significant digits."""
    return format(Decimal(f"{number:.10g}").normalize(), "f")


@pytest.mark.parametrize("row", FIELDS, ids=str)
def test_each_mutation_of_a_field_does_what_the_docs_say(api: Api, installed: object, row: Field) -> None:
    account = api.service_account_kubeconfig("kube-chores", "fetch-rates")
    with serve() as rates:
        outcomes, wrong = walk(Rates(api, runs("fetch-rates", account, rates.env()), rates), row, SCHEMAS[row.path])

    assert wrong == []
    check_row("ExchangeRate", row, outcomes)


def test_each_field_of_an_exchange_rate_is_walked() -> None:
    assert {each.path for each in FIELDS} == SCHEMAS.keys()
