"""fetch-rates: write exchange rates to ConfigMaps for pods, one for each ExchangeRate.

A run fetches each provider's document at most once, and only if an ExchangeRate needs it. The parts are in
jobs/core/fetch_rates.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone

import click
from msgspec import Struct

from jobs.core.fetch_rates.exchange_rates import (
    PIVOT,
    ExchangeRate,
    ProviderName,
    Quote,
    Spec,
    parse_exchange_rate,
    spec_problems,
)
from jobs.core.fetch_rates.observe import observe
from jobs.core.fetch_rates.observed import MAX_CHANGE_PERCENT, NAME, Observed, Settings
from jobs.core.fetch_rates.plan import gauges, plan, status_updates
from jobs.core.fetch_rates.providers import PROVIDERS, Choice, Jump, ProviderNeed, choose
from jobs.kit.api.connect import Connection
from jobs.kit.api.custom_resources import from_files
from jobs.kit.run import flags, log
from jobs.kit.run.job import Job, Limits
from jobs.kit.run.runner import run
from jobs.kit.run.session import user_agent
from jobs.kit.values.model import ExitCode, ObjectKey, RunOptions
from jobs.kit.values.reads import Head
from jobs.kit.values.resources import CONFIGMAPS, EXCHANGE_RATES, by_kind, is_name
from jobs.kit.web import fetch

COMMAND_LINE = "(command line)"  # in place of the name of an ExchangeRate, with --configmap


def print_rate(spec: Spec, urls: Mapping[str, str], options: RunOptions) -> ExitCode:
    """Print the rate to stdout, or the reason why there is none to stderr; return the exit code."""
    today = datetime.now(timezone.utc).date()
    observed = Observed(())
    while isinstance(chosen := choose(spec, None, observed.tables(urls, today), 0), ProviderNeed):
        url = urls[chosen.provider]
        observed = replace(observed, downloads={**observed.downloads, url: fetch(url, user_agent(NAME))})
    if isinstance(chosen, Choice):
        click.echo(_shown(chosen.quote, options.output))
        for reason in chosen.skipped:
            log.log.warning(reason)
        return ExitCode.DONE
    assert not isinstance(chosen, Jump)  # a jump needs a last rate, and there is none here
    log.log.error("no rate: %s", chosen.reason)
    return ExitCode.REFUSED if chosen.permanent else ExitCode.FAILED


def _shown(quote: Quote, output: str) -> str:
    if output == "json":
        return json.dumps(quote.data(), indent=2)
    if output == "yaml":
        import yaml

        return str(yaml.safe_dump(quote.data(), sort_keys=False)).rstrip()
    return f"1 {quote.base} = {quote.rate} {quote.currency} ({quote.source}, {quote.date})"


class Options(Struct, frozen=True):
    """The options of this job, with those of all jobs in `run`; `max_change` is in percent."""

    run: RunOptions
    currency: str | None
    base: str | None
    provider: ProviderName | None
    configmap: str | None
    max_change: int
    max_deletes: int | None
    ecb_url: str
    frankfurter_url: str
    open_er_api_url: str

    @property
    def urls(self) -> Mapping[str, str]:
        """The URLs of the documents by provider."""
        return {"ecb": self.ecb_url, "frankfurter": self.frankfurter_url, "open-er-api": self.open_er_api_url}

    @property
    def spec(self) -> Spec | None:
        """What --currency requests; None without that option."""
        if self.currency is None:
            return None
        return Spec(self.currency, self.base or PIVOT, self.configmap or "", self.provider)


def settings(connection: Connection, options: Options) -> Settings:
    """Return the settings.

    Raises:
        ConfigurationError: ExchangeRates in files are not valid; it lists all problems.
    """
    return Settings(
        options.run.namespace or "",
        options.urls,
        _rates(connection.namespace, options),
        options.max_change,
        run=options.run,
    )


def _rates(namespace: str, options: Options) -> tuple[ExchangeRate, ...] | None:
    if options.spec:
        head = Head(ObjectKey(EXCHANGE_RATES.kind, COMMAND_LINE, namespace))
        return (ExchangeRate(head, options.spec),)
    if files := options.run.filenames:
        elsewhere = options.run.namespace is None
        return from_files(files, EXCHANGE_RATES, parse_exchange_rate, namespace, any_namespace=elsewhere)
    return None


def job(options: Options) -> Job[Options, Settings, Observed]:
    """Return the job as these options have it run."""
    resources, limits = by_kind(CONFIGMAPS, EXCHANGE_RATES), Limits(options.max_deletes)
    return Job(NAME, resources, settings, observe, plan, status_updates, limits, metrics=gauges)


def _urls(command: flags.F) -> flags.F:
    for provider, (url, _) in reversed(list(PROVIDERS.items())):
        add = flags.option(
            f"--{provider}-url",
            default=url,
            show_default=True,
            metavar="URL",
            callback=flags.url,
            help=f"URL of the document of {provider}, or of a mirror of it.",
        )
        command = add(command)
    return command


@click.command(NAME)
@flags.option("--currency", metavar="CODE", help="Print the rate of this currency; no cluster is needed.")
@flags.option(
    "--base",
    metavar="CODE",
    help=f"With --currency: the base currency; the rate is the price of 1 unit of it. Default is {PIVOT}.",
)
@flags.option("--provider", type=click.Choice(list(PROVIDERS)), help="With --currency: use only this provider.")
@flags.option(
    "--configmap", metavar="NAME", help="With --currency: write the rate to this ConfigMap, and do not print it."
)
@flags.filenames(
    "Read ExchangeRates from this file, folder or - instead of the cluster. Implies a dry run; needs no CRD."
)
@flags.option(
    "--max-change",
    default=MAX_CHANGE_PERCENT,
    show_default=True,
    type=click.IntRange(min=1),
    metavar="PERCENT",
    help="Block a change of a rate by more than this, unless another provider confirms it or spec.maxChange allows it.",
)
@flags.max_deletes("ConfigMaps that no ExchangeRate names")
@_urls
@flags.metrics
@flags.run_options(
    Options, "Process only this namespace; default is all. With --configmap or -f, default is that of the context."
)
def command(context: click.Context, options: Options) -> None:
    """Write exchange rates to ConfigMaps for pods. Each ExchangeRate defines one ConfigMap.

    A rate comes from the first provider that has a valid one: ecb, then frankfurter. open-er-api is used only if
    spec.provider or --provider names it. On any failure the last valid rate stays. A second run in a row writes
    nothing. Exits 0 when done, 1 when a retry is useful, 2 when a person must act first, 3 with --check when there are
    findings, 4 when a rate is not updated because it changed too much.

    \b
    Examples:
      chores fetch-rates --currency USD              print the rate of the dollar
      chores fetch-rates --dry-run --diff            show what a run would change
      chores fetch-rates -n shop                     process the ExchangeRates of one namespace
    """
    _check(context, options)
    if options.spec and not options.configmap:
        context.exit(print_rate(options.spec, options.urls, options.run))
    context.exit(run(job(options), options))


def _check(context: click.Context, options: Options) -> None:
    """Check the options that depend on each other.

    Raises:
        click.UsageError: options contradict each other or are not valid; it lists all problems.
    """
    spec, configmap = options.spec, options.configmap
    if spec:
        problems = [f"--{problem}" for problem in spec_problems(spec)]
        problems += ["--filename cannot be used with --currency"] if options.run.filenames else []
        if configmap and not is_name(configmap):
            problems.append(f"--configmap: {configmap!r} is not a valid name of a ConfigMap")
    else:
        with_currency = {"base": options.base, "provider": options.provider, "configmap": configmap}
        needing = (flags.named(context, name) for name, value in with_currency.items() if value)
        problems = [f"{name} needs --currency" for name in needing]
    if problems:
        raise click.UsageError("; ".join(problems))
