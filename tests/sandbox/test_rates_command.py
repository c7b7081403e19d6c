"""The command line of fetch-rates without a cluster: a printed rate, and options that are refused before a run."""

import json
from collections.abc import Iterator

import pytest
import yaml
from click.testing import CliRunner, Result

from jobs.__main__ import chores
from tests.rates import RATES, RatesServer, ecb, serve, status, today

NO_CLUSTER = {"KUBECONFIG": "/nowhere/kubeconfig", "KUBERNETES_SERVICE_HOST": None}


@pytest.fixture
def rates() -> Iterator[RatesServer]:
    with serve() as server:
        yield server


def command(*arguments: str, **env: str) -> Result:
    return CliRunner().invoke(chores, ["fetch-rates", *arguments], env={**NO_CLUSTER, **env})


def test_a_rate_is_printed_without_any_cluster(rates: RatesServer) -> None:
    printed = command("--currency", "JPY", "--base", "USD", **rates.env())

    assert (printed.exit_code, printed.stdout) == (0, f"1 USD = 143.4094903 JPY (ecb, {today()})\n")
    assert rates.fetched() == ["ecb"]
    by_env = command(**rates.env(), CHORES_CURRENCY="JPY", CHORES_BASE="USD", CHORES_OUTPUT="json")
    figures = json.loads(by_env.stdout)
    assert figures["rate"] == "143.4094903"
    as_yaml = command("--currency", "JPY", "--base", "USD", "-o", "yaml", **rates.env())
    assert yaml.safe_load(as_yaml.stdout) == figures


def test_a_rate_of_the_next_provider_is_explained_on_stderr(rates: RatesServer) -> None:
    rates.serve("ecb", status(404))

    printed = command("--currency", "USD", **rates.env())

    assert (printed.exit_code, printed.stdout) == (0, f"1 EUR = 1.138 USD (frankfurter, {today()})\n")
    assert "ecb request failed: HTTP 404 Not Found" in printed.stderr
    assert command("--currency", "USD", "--provider", "ecb", **rates.env()).exit_code == 1


@pytest.mark.parametrize(
    ("answer", "exit_code"), [(ecb(rates={"JPY": "163"}), 2), (ecb(rates={**RATES, "USD": "0"}), 1)]
)
def test_no_rate_is_an_exit_code_and_nothing_on_stdout(rates: RatesServer, answer: bytes, exit_code: int) -> None:
    rates.serve("ecb", answer)

    printed = command("--currency", "USD", "--provider", "ecb", **rates.env())

    assert (printed.exit_code, printed.stdout) == (exit_code, "")
    assert printed.stderr.startswith("error: no rate: ecb ")


@pytest.mark.parametrize(
    "url",
    [
        *("http://[", "https://rates.example.com:0", "/daily.xml?key=of-the-tests"),
        *("user:of-the-tests@rates.example.com/x", "http:user:of-the-tests@rates.example.com"),
        *("https://user:of-the/tests@rates.example.com", "ftp://user:of-the-tests@rates.example.com"),
    ],
)
def test_an_invalid_url_is_refused_and_not_printed(url: str) -> None:
    for refused in (command("--ecb-url", url), command(CHORES_ECB_URL=url)):
        assert refused.exit_code == 2
        option = "Invalid value for '--ecb-url' (env var: 'CHORES_ECB_URL')"
        assert f"{option}: the value is not an http or https URL" in refused.stderr
        assert url not in refused.output
        assert "tests" not in refused.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--currency", ""], "--currency: '' is not an ISO 4217 code; use three capital letters, such as USD"),
        (["--currency", "EUR"], "--currency: must differ from base, both are EUR"),
        (["--base", "USD", "--provider", "ecb", "--configmap", "x"], "--base needs --currency; --provider needs"),
        (["--currency", "usd", "--base", "x", "-f", "-"], "such as USD; --base: 'x' is not an ISO 4217 code"),
        (["--currency", "USD", "-f", "-"], "--filename cannot be used with --currency"),
        (["--currency", "USD", "--configmap", "A_b"], "--configmap: 'A_b' is not a valid name of a ConfigMap"),
    ],
)
def test_contradictory_options_are_refused_before_a_run(arguments: list[str], message: str) -> None:
    refused = command(*arguments)

    assert refused.exit_code == 2
    assert message in refused.stderr


def test_an_empty_currency_in_the_environment_is_ignored() -> None:
    assert "kubeconfig" in command(CHORES_CURRENCY="").stderr
