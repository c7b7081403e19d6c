"""A minimal client for the work of fetch-rates.

It writes the rate of each ExchangeRate to a ConfigMap and to its status. It does not check rates or repair ConfigMaps,
and has no Events, no retries, no report, no safety. Prints requests and bytes as JSON.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping

import msgspec
import requests
from msgspec import Raw, Struct

from benchmarks.bare.client import Client, Metadata, Request

LABELS = {
    "app.kubernetes.io/managed-by": "bare-python",
    "kubechores.dev/job": "fetch-rates",
    "kubechores.dev/rule-hash": "0123456789abcdef",
    "kubechores.dev/rule-namespace": "shop-00000",
}
ANNOTATIONS = {
    "kubechores.dev/fingerprint": "v1:0123456789abcdef0123456789abcdef",
    "kubechores.dev/orphans": "Delete",
    "kubechores.dev/rule": "shop-00000/exchange-00000",
    "kubechores.dev/source": "ecb",
}
DIGITS = 10
MERGE = "application/merge-patch+json"


class _Spec(Struct):
    currency: str
    provider: str = "ecb"


class _ExchangeRate(Struct):
    metadata: Metadata
    spec: _Spec


class _ConfigMap(Struct):
    metadata: Metadata
    data: dict[str, str]


class _Rates(Struct):
    rates: dict[str, Raw]


def _tables(url: str, paths: list[str]) -> dict[str, Mapping[str, str]]:
    """Return the rates of each provider: units of a currency per EUR."""
    tables: dict[str, Mapping[str, str]] = {}
    for provider, path in zip(("ecb", "frankfurter", "open-er-api"), paths, strict=True):
        body = requests.get(url + path, timeout=10).content
        if provider == "ecb":
            tables[provider] = dict(re.findall(r"currency='(\w+)' rate='([^']+)'", body.decode()))
        else:
            rates = msgspec.json.decode(body, type=_Rates).rates
            tables[provider] = {name: bytes(rate).decode() for name, rate in rates.items()}
    return tables


def main(kubeconfig: str, url: str, *paths: str) -> None:
    """Run once."""
    client = Client.of(kubeconfig)
    selector = "labelSelector=app.kubernetes.io/managed-by%3Dbare-python"
    configmaps = {
        (one.metadata.namespace, one.metadata.name): one
        for one in client.objects(f"/api/v1/configmaps?{selector}", _ConfigMap)
    }
    rates = list(client.objects("/apis/kubechores.dev/v1/exchangerates", _ExchangeRate))
    tables = _tables(url, list(paths))
    outdated: list[tuple[_ExchangeRate, dict[str, str]]] = []
    for each in rates:
        provider, currency = each.spec.provider, each.spec.currency
        rate = tables[provider][currency]
        data = {
            "rate": rate,
            "inverse": f"{1 / float(rate):.{DIGITS}g}",
            "base": "EUR",
            "currency": currency,
            "date": "2026-01-01",
            "source": provider,
        }
        found = configmaps.get((each.metadata.namespace, each.metadata.name))
        if not found or found.data != data:
            outdated.append((each, data))

    def writes() -> Iterator[Request]:
        for each, data in outdated:
            name, namespace = each.metadata.name, each.metadata.namespace
            owner = {"apiVersion": "kubechores.dev/v1", "kind": "ExchangeRate", "name": name, "uid": each.metadata.uid}
            metadata = {"name": name, "labels": LABELS, "annotations": ANNOTATIONS, "ownerReferences": [owner]}
            body = msgspec.json.encode({"metadata": metadata, "data": data})
            path = f"/api/v1/namespaces/{namespace}/configmaps"
            exists = (namespace, name) in configmaps
            yield ("PUT", f"{path}/{name}", body) if exists else ("POST", path, body)

    def statuses() -> Iterator[Request]:
        for each, data in outdated:
            path = f"/apis/kubechores.dev/v1/namespaces/{each.metadata.namespace}/exchangerates/{each.metadata.name}"
            yield "PATCH", f"{path}/status", msgspec.json.encode({"status": data})

    written = len(client.send(writes()))
    client.send(statuses(), content=MERGE)
    client.print_traffic(written)


if __name__ == "__main__":
    main(*sys.argv[1:])
