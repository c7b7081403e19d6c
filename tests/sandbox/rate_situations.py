"""The situations of fetch-rates, for docs/outputs.md; dates are made the same for every day."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from jobs.__main__ import chores
from kubesandbox import Sandbox
from tests.apis import Api
from tests.rates import RATES, RatesServer, ago, ecb, frankfurter, serve, status, today
from tests.worlds import configmap, exchange_rate

Situation = Callable[[Sandbox, Api, Path], str]
TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
LISTED = "/apis/kubechores.dev/v1/namespaces/team-shop/exchangerates"


def run(api: Api, rates: RatesServer, *arguments: str) -> str:
    """Run the command as its ServiceAccount and return what a terminal would show, with its exit code."""
    kubeconfig = api.service_account_kubeconfig("kube-chores", "fetch-rates")
    done = CliRunner().invoke(chores, ["fetch-rates", *arguments], env={**rates.env(), "KUBECONFIG": str(kubeconfig)})
    text = re.sub(r"^fetch-rates: writing to .*\n", "", done.output, flags=re.M)
    return always(f"$ chores fetch-rates {' '.join(arguments)}".rstrip() + f"\n{text}(exit code {int(done.exit_code)})")


def always(text: str) -> str:
    """The same text on every day."""
    for days in range(-1, 8):
        text = text.replace(str(ago(days)), f"2026-01-{20 - days}")
    return re.sub(r"http://127\.0\.0\.1:\d+", "https://rates.example.com", text)


def listed(api: Api) -> str:
    """What `kubectl get exchangerates` shows, without the age."""
    table = api.call("GET", LISTED, headers=TABLE)
    shown = [n for n, column in enumerate(table["columnDefinitions"]) if not column["priority"]][:-1]
    rows = [[table["columnDefinitions"][n]["name"].upper() for n in shown]]
    rows += [[str(row["cells"][n] or "") for n in shown] for row in table["rows"]]
    widths = [max(len(row[n]) for row in rows) for n in range(len(shown))]
    lines = ("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return always("\n".join(["$ kubectl get exchangerates -n team-shop", *lines]))


def first(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    with serve() as rates:
        api.create(exchange_rate("team-shop"))
        api.create(exchange_rate("team-shop", "usd-to-jpy", "JPY", base="USD"))
        return "\n".join([run(api, rates), listed(api), run(api, rates)])


def another_day(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    with serve() as rates:
        rates.publish(day=ago(1))
        api.create(exchange_rate("team-shop"))
        run(api, rates)
        rates.publish(rates={**RATES, "USD": "1.1402"})
        return run(api, rates, "--diff")


def fallback(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    with serve() as rates:
        api.create(exchange_rate("team-shop"))
        rates.tell("ecb", status(404))
        return run(api, rates)


def unavailable(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    with serve() as rates:
        rates.publish(day=ago(2))
        api.create(exchange_rate("team-shop"))
        run(api, rates)
        rates.tell("ecb", b"<html>We will be back soon")
        rates.tell("frankfurter", frankfurter(ago(7)))
        return "\n".join([run(api, rates), listed(api)])


def jump(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    with serve() as rates:
        rates.publish(day=ago(1))
        api.create(exchange_rate("team-shop"))
        run(api, rates)
        rates.tell("ecb", ecb(today(), {**RATES, "USD": "1.5932"}))
        rates.tell("frankfurter", status(404))
        return re.sub(r"--kubeconfig \S+", "--kubeconfig ~/.kube/config", run(api, rates))


def conflict(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    with serve() as rates:
        api.create({**configmap("team-shop", "usd", labels={}), "data": {"rate": "theirs"}})
        api.create(exchange_rate("team-shop"))
        return "\n".join([run(api, rates), listed(api)])


def unknown(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    with serve() as rates:
        api.create(exchange_rate("team-shop", "odd", "XAF"))
        return run(api, rates)


def printed(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    with serve() as rates:
        usual = run(api, rates, "--currency", "USD")
        return "\n".join([usual, run(api, rates, "--currency", "JPY", "--base", "USD", "-o", "json")])


SITUATIONS: dict[str, Situation] = {
    "A first run, and a second one": first,
    "New rates": another_day,
    "A provider fails": fallback,
    "All providers fail": unavailable,
    "A rate jumps": jump,
    "A ConfigMap of that name is not ours": conflict,
    "No provider has the currency": unknown,
    "A rate on a laptop, without a cluster": printed,
}
