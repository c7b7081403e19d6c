"""fetch-rates: write exchange rates to ConfigMaps for pods, one for each ExchangeRate.

A run fetches each provider's document at most once, and only if an ExchangeRate needs it. The parts are in
jobs/core/fetch_rates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import click

from jobs.core.fetch_rates.exchange_rates import ExchangeRate, Spec, parse_exchange_rate, spec_problems
from jobs.core.fetch_rates.figures import PIVOT
from jobs.core.fetch_rates.observe import observe
from jobs.core.fetch_rates.observed import MAX_CHANGE_PERCENT, NAME, Settings
from jobs.core.fetch_rates.plan import plan
from jobs.core.fetch_rates.print_rate import print_rate
from jobs.core.fetch_rates.providers import PROVIDERS
from jobs.core.fetch_rates.status import conditions
from jobs.kit.api.connect import Connection
from jobs.kit.api.custom_resources import from_files
from jobs.kit.run import options
from jobs.kit.run.runner import Job, run
from jobs.kit.values.model import DryRun, ObjectKey
from jobs.kit.values.names import is_name
from jobs.kit.values.reads import Head
from jobs.kit.values.resources import CONFIGMAPS, EXCHANGE_RATES

COMMAND_LINE = "(command line)"  # in place of the name of an ExchangeRate, with --configmap


class RateOptions(NamedTuple):
    """The options of this job, in addition to those of all jobs; `max_change` is in percent, `urls` are by provider."""

    spec: Spec | None
    configmap: str | None
    filenames: Sequence[str]
    max_change: int
    urls: Mapping[str, str]


def settings(connection: Connection, run_options: options.RunOptions, given: RateOptions) -> Settings:
    """Return the settings.

    Raises:
        ConfigurationError: ExchangeRates in files are not valid; it lists all problems.
    """
    return Settings(
        run_options.namespace or "",
        given.urls,
        _rates(connection.namespace, given, elsewhere=run_options.namespace is None),
        given.max_change,
        dry_run=run_options.dry_run is not DryRun.NONE,
        diff=run_options.diff,
        verbose=run_options.verbose,
    )


def _rates(namespace: str, given: RateOptions, *, elsewhere: bool) -> tuple[ExchangeRate, ...] | None:
    if given.spec:
        head = Head(ObjectKey(EXCHANGE_RATES.kind, COMMAND_LINE, namespace))
        return (ExchangeRate(head, given.spec),)
    if given.filenames:
        return from_files(given.filenames, EXCHANGE_RATES, parse_exchange_rate, namespace, any_namespace=elsewhere)
    return None


def _urls(command: options.F) -> options.F:
    for provider, (url, _) in reversed(list(PROVIDERS.items())):
        add = options.option(
            f"--{provider}-url",
            default=url,
            show_default=True,
            metavar="URL",
            callback=options.url,
            help=f"URL of the document of {provider}, or of a mirror of it.",
        )
        command = add(command)
    return command


@click.command(NAME)
@options.option("--currency", metavar="CODE", help="Print the rate of this currency; no cluster is needed.")
@options.option(
    "--base",
    metavar="CODE",
    help=f"With --currency: the base currency; the rate is the price of 1 unit of it. Default is {PIVOT}.",
)
@options.option("--provider", type=click.Choice(list(PROVIDERS)), help="With --currency: use only this provider.")
@options.option(
    "--configmap", metavar="NAME", help="With --currency: write the rate to this ConfigMap, and do not print it."
)
@options.option(
    "--filename",
    "-f",
    "filenames",
    multiple=True,
    metavar="FILE",
    help="Read ExchangeRates from this file, folder or - instead of the cluster. Implies a dry run; needs no CRD.",
)
@options.option(
    "--max-change",
    default=MAX_CHANGE_PERCENT,
    show_default=True,
    type=click.IntRange(min=1),
    metavar="PERCENT",
    help="Block a change of a rate by more than this, unless another provider confirms it or spec.maxChange allows it.",
)
@options.max_deletes("ConfigMaps that no ExchangeRate names")
@_urls
@options.run_options(
    "Process only this namespace; default is all. With --configmap or -f, default is that of the context."
)
@click.pass_context
def command(
    context: click.Context,
    /,
    options: options.RunOptions,
    max_deletes: int | None,
    **given: Any,
) -> None:
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
    rate_options = _rate_options(given)
    if rate_options.spec and not rate_options.configmap:
        context.exit(print_rate(rate_options.spec, rate_options.urls, options))
    if rate_options.filenames and options.dry_run is DryRun.NONE:
        options = replace(options, dry_run=DryRun.CLIENT)
    job = Job(
        NAME,
        {CONFIGMAPS.kind: CONFIGMAPS, EXCHANGE_RATES.kind: EXCHANGE_RATES},
        lambda connection: settings(connection, options, rate_options),
        observe,
        plan,
        conditions,
        max_deletes,
        needs_namespace=not rate_options.filenames,
    )
    context.exit(run(job, options))


def _rate_options(given: Mapping[str, Any]) -> RateOptions:
    """Return the options of this job.

    Raises:
        click.UsageError: options contradict each other or are not valid; it lists all problems.
    """
    currency, filenames = given["currency"], given["filenames"]
    alone = [name for name in ("base", "provider", "configmap") if given[name] and currency is None]
    problems = [f"--{name} needs --currency" for name in alone]
    spec = None
    if currency is not None:
        name = given["configmap"] or ""
        spec = Spec(currency, given["base"] or PIVOT, name, given["provider"])
        problems += [f"--{problem}" for problem in spec_problems(spec)]
        problems += ["--filename cannot be used with --currency"] if filenames else []
        if name and not is_name(name):
            problems.append(f"--configmap: {name!r} is not a valid name of a ConfigMap")
    if problems:
        raise click.UsageError("; ".join(problems))
    urls = {provider: given[f"{provider.replace('-', '_')}_url"] for provider in PROVIDERS}
    return RateOptions(spec, given["configmap"], filenames, given["max_change"], urls)
