"""The exact requests of fetch-rates: lists, one fetch of each provider, and two writes for each changed rate."""

from math import ceil

import pytest

from jobs.kit.api import cluster
from tests.api.conftest import Run
from tests.apis import Api
from tests.rates import RATES, RatesServer
from tests.worlds import configmap, exchange_rate

PROVIDERS = ("ecb", "frankfurter", "open-er-api")
LISTS = 2  # of ConfigMaps and ExchangeRates


@pytest.fixture(autouse=True)
def one_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "PAGE_SIZE", 500)


def create(api: Api, namespaces: int, each: int) -> int:
    """Create ExchangeRates of all providers and currencies; return how many."""
    spaces = [api.namespace(f"shop-{number}") for number in range(namespaces)]
    for number in range(namespaces * each):
        provider = PROVIDERS[number % len(PROVIDERS)]
        currency = sorted(RATES)[number % len(RATES)]
        api.create(exchange_rate(spaces[number % namespaces], f"rate-{number}", currency, provider=provider))
    return namespaces * each


@pytest.mark.parametrize(("namespaces", "each"), [(1, 3), (3, 8)])
def test_requests_are_two_lists_one_fetch_of_each_provider_and_the_writes_of_changed_rates(
    api: Api, fetch: Run, rates: RatesServer, namespaces: int, each: int
) -> None:
    number = create(api, namespaces, each)

    ran = fetch()

    assert ran.summary == {"created": number}
    # A ConfigMap, an Event and a status for each ExchangeRate.
    assert ran.report["traffic"]["requests"] == {"GET": LISTS, "POST": 2 * number, "PATCH": number}
    assert sorted(rates.fetched()) == sorted(PROVIDERS)

    ran = fetch()

    assert ran.summary == {"unchanged": number}
    assert ran.report["traffic"]["requests"] == {"GET": LISTS}
    assert sorted(rates.fetched()) == sorted(PROVIDERS)

    rates.publish(rates={**RATES, "CAD": "1.6300"})
    changed = ceil(number / len(RATES))
    api.mark()

    ran = fetch()

    assert ran.summary == {"configured": changed, "unchanged": number - changed}
    assert ran.report["traffic"]["requests"] == {"GET": LISTS, "PUT": changed, "PATCH": changed}
    assert len(api.writes()) == 2 * changed
    assert sorted(rates.fetched()) == sorted(PROVIDERS)


def test_other_configmaps_add_no_bytes(api: Api, fetch: Run) -> None:
    create(api, 1, 3)
    fetch()
    before = fetch().report["traffic"]
    space = api.namespace("other")
    for number in range(10):
        api.create(configmap(space, f"unrelated-{number}", data={"key": "x" * 10_000}))

    after = fetch().report["traffic"]

    assert after["requests"] == before["requests"]
    assert abs(after["bytesReceived"] - before["bytesReceived"]) < 100  # versions may have one more digit
