"""The world of fetch-rates: ExchangeRates of eight currencies and three providers, 20 in each namespace."""

from __future__ import annotations

import sys
from decimal import Decimal

from benchmarks.cluster import BenchCluster, Clone
from benchmarks.compare import BARE, World
from benchmarks.measured import run_process
from benchmarks.worlds.sync_copies import bare, chores
from tests.manifests import ROOT, load
from tests.rates import PATHS, RATES, RatesServer, serve
from tests.worlds import configmap, exchange_rate, namespace_object

OWN = "fetch-rates"
IN_NAMESPACE = 20
PROVIDERS = (None, "frankfurter", "open-er-api")  # None: the default, ecb
RESOURCES = "/apis/kubechores.dev/v1/exchangerates"
CONFIGMAPS = "/api/v1/configmaps"


def shop(number: int) -> str:
    """Return the name of a namespace."""
    return f"shop-{number:05}"


def prepare(cluster: BenchCluster, size: int) -> None:
    """Create the namespaces, and serve the documents of the providers in this process."""
    cluster.put(load(ROOT / "cronjobs" / "crds"))
    cluster.put([namespace_object("kube-chores"), namespace_object(shop(0)), configmap("kube-chores", "other")])
    cluster.clone(f"/api/v1/namespaces/{shop(0)}", (Clone("", shop(n)) for n in range(1, size // IN_NAMESPACE)))
    serving = serve()
    cluster.notes.update(serving=serving, rates=serving.__enter__(), current="", version=0)
    # As many templates as there are pairs of a currency and a provider.
    cluster.notes["templates"] = []
    for number in range(len(RATES) * len(PROVIDERS)):
        provider = PROVIDERS[number % len(PROVIDERS)]
        spec = {"provider": provider} if provider else {}
        made = exchange_rate(shop(0), f"template-{number:05}", sorted(RATES)[number % len(RATES)], **spec)
        cluster.api.put(made)
        cluster.notes["templates"].append(cluster.template(cluster.api.path(made)))
        cluster.api.delete(made)


def first(cluster: BenchCluster, program: str, size: int) -> int:
    """Have ExchangeRates without statuses and no ConfigMap: the run must create all ConfigMaps."""
    for each in range(max(1, size // IN_NAMESPACE)):
        cluster.delete_prefix(f"/registry/configmaps/{shop(each)}/", CONFIGMAPS)
    templates = cluster.notes["templates"]
    places = (Clone(shop(number // IN_NAMESPACE), f"exchange-{number:05}") for number in range(size))
    cluster.write(templates[number % len(templates)].clone(each) for number, each in enumerate(places))
    cluster.wait_until_served(RESOURCES)
    publish(cluster)
    cluster.notes["current"] = program
    return size


def converged(cluster: BenchCluster, program: str, size: int) -> int:
    """Have all ConfigMaps as the program wrote them: nothing must be written."""
    if cluster.notes["current"] != program:
        first(cluster, program, size)
        done = run_process(PROGRAMS[program](cluster), {"KUBECONFIG": str(cluster.plane.kubeconfig)})
        assert done.exit_code == 0, done.stderr
    return 0


def changed(cluster: BenchCluster, program: str, size: int) -> int:
    """Publish rates that are one percent higher: the run must update all ConfigMaps."""
    converged(cluster, program, size)
    cluster.notes["version"] = 1 - cluster.notes["version"]
    publish(cluster)
    return size


def publish(cluster: BenchCluster) -> None:
    """Serve one of two sets of rates."""
    factor = Decimal("1.01") if cluster.notes["version"] else Decimal(1)
    _rates(cluster).publish(rates={code: str(Decimal(rate) * factor) for code, rate in RATES.items()})


def _rates(cluster: BenchCluster) -> RatesServer:
    served: RatesServer = cluster.notes["rates"]
    return served


PROGRAMS = {
    OWN: lambda cluster: [
        "/usr/bin/env",
        *(f"{name}={value}" for name, value in _rates(cluster).env().items()),
        *chores(OWN),
    ],
    BARE: lambda cluster: bare("fetch_rates", cluster, _rates(cluster).url, *PATHS.values()),
}
WORLD = World(
    name="fetch-rates",
    unit="ExchangeRates",
    sizes=(20, 200, 2_000),
    prepare=prepare,
    scenarios={"first": first, "converged": converged, "changed": changed},
    programs=PROGRAMS,
    touched=[
        f"/apis/kubechores.dev/v1/namespaces/{shop(0)}/exchangerates/exchange-00000",
        "/api/v1/namespaces/kube-chores/configmaps/other",
    ],
    at_most=lambda program, scenario, size: 2 if size > 200 and scenario != "converged" else sys.maxsize,
)
