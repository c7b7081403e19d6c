"""fetch-rates: write exchange rates to ConfigMaps for pods, one for each ExchangeRate.

A run fetches each provider's document at most once, and only if an ExchangeRate needs it. The parts are in jobs/rates:
exchange_rates, providers, figures, choice, observed, evaluate, status, print_rate.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import click
from msgspec import structs

from jobs.kit import options, stamps
from jobs.kit.apply import DryRun
from jobs.kit.cluster import Cluster, InvalidObject, retry_if_expired
from jobs.kit.conditions import StatusUpdate
from jobs.kit.connect import Connection
from jobs.kit.custom_resources import Head, Invalid, from_cluster, from_files
from jobs.kit.errors import ApiError
from jobs.kit.model import Brake, ExitCode, Finding, Need, ObjectKey, Plan, Result, Severity
from jobs.kit.objects import CONFIGMAPS, DataObject, ObjectReducer, ReducedObject, is_name
from jobs.kit.runner import Job, run
from jobs.kit.web import without_credentials
from jobs.rates.choice import ProviderFailure, ProviderNeed
from jobs.rates.evaluate import Evaluation, collision, evaluate, orphans, unchanged
from jobs.rates.exchange_rates import EXCHANGE_RATES, ExchangeRate, Spec, parse_exchange_rate, spec_problems, subject
from jobs.rates.figures import PIVOT
from jobs.rates.observed import MAX_CHANGE_PERCENT, NAME, Observed, Settings
from jobs.rates.print_rate import print_rate
from jobs.rates.providers import PROVIDERS
from jobs.rates.status import status_updates

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


def observe(cluster: Cluster, settings: Settings) -> Observed:
    """Read the managed ConfigMaps, then the ExchangeRates.

    In this order a ConfigMap that an overlapping run creates for a new `configMapName` is never taken for an orphan.

    Raises:
        ConfigurationError: the CRD is missing.
        ApiError: ExchangeRates cannot be read, which every evaluation needs.
    """
    if settings.rates is not None:
        return Observed(settings.rates)
    try:
        configmaps, denied = retry_if_expired(partial(_configmaps, cluster, settings.namespace)), None
    except ApiError as error:
        configmaps, denied = {}, error
    rates, invalid_rates = from_cluster(cluster, EXCHANGE_RATES, parse_exchange_rate, settings.namespace)
    failures = [_invalid(each) for each in invalid_rates]
    if denied:
        failures.append(
            _unreadable([*(each.head.key for each in rates), *(each.head.key for each in invalid_rates)], denied)
        )
    return Observed(rates, invalid_rates, configmaps, tuple(failures), list_failed=denied is not None)


def _configmaps(cluster: Cluster, namespace: str) -> dict[ObjectKey, ReducedObject | ApiError]:
    found: dict[ObjectKey, ReducedObject | ApiError] = {}
    reducer = ObjectReducer(stamps.KEYS)
    selector = stamps.selector(NAME)
    for each in cluster.objects(CONFIGMAPS, DataObject, reducer.reduce, namespace=namespace, selector=selector):
        if isinstance(each, InvalidObject):
            found[each.key] = each.error
        else:
            found[ObjectKey(CONFIGMAPS.kind, each.name, each.namespace)] = each
    return found


def _invalid(rate: Invalid) -> Finding:
    key, reason = rate.head.key, "; ".join(rate.problems)
    return Finding("invalid", Severity.ERROR, key, reason, subjects=(subject(key),), exit_code=ExitCode.REFUSED)


def _unreadable(keys: Sequence[ObjectKey], error: ApiError) -> Finding:
    remedy = "; the manifests in cronjobs/ grant the permissions that this job needs" if error.is_permission else ""
    reason = f"cannot be read: {error.message}{remedy}"
    every_configmap = ObjectKey(CONFIGMAPS.kind, "(all of this job)")
    subjects = tuple(sorted(subject(key) for key in keys))
    return Finding("unreadable", Severity.ERROR, every_configmap, reason, subjects=subjects, exit_code=error.exit_code)


def plan(observed: Observed, settings: Settings, now: datetime) -> Plan:
    """Compare each ExchangeRate with its ConfigMap; the same input gives the same findings in the same order."""
    evaluations = _evaluations(observed, settings, now)
    by_configmap = _by_configmap(observed)
    findings = [*observed.failures, *_provider_failures(observed, settings, now)]
    findings += [finding for each in evaluations.values() for finding in each.findings]
    findings += [each for rates in by_configmap.values() if len(rates) > 1 for each in collision(rates)]
    findings += [_terminating(rate) for rate in observed.rates if rate.head.terminating]
    current = {rate: each.figures for rate, each in evaluations.items() if each.figures and not each.findings}
    existing = [rate for rate, each in evaluations.items() if each.figures and not each.is_missing]
    findings += orphans(observed, by_configmap, {rate.head.uid: rate for rate in existing if rate.head.uid})
    if settings.rates is None and not settings.namespace:
        limited = {rate.subject for rate in observed.rates if rate.spec.max_change}
        findings = [_as_warning(each) if _is_tenant_problem(each, limited) else each for each in findings]
    if settings.verbose:
        findings += [unchanged(rate, figures) for rate, figures in current.items()]
    needs = [each.need for each in evaluations.values()]
    providers = {need.provider for need in needs if isinstance(need, ProviderNeed)}
    return Plan(
        tuple(sorted(findings, key=lambda finding: (finding.object, finding.code))),
        len(current),
        tuple(sorted(need for need in needs if isinstance(need, Need))),
        {"rates": len(observed.rates), "providers": len(observed.pages)},
        "" if observed.rates or observed.failures else f"no {EXCHANGE_RATES.kind} in {_where(settings)}",
        desired_by_kind={CONFIGMAPS.kind: len(by_configmap)},
        brakes=_brakes([each for rate, each in evaluations.items() if rate.spec.max_change is None], settings),
        urls=tuple(settings.urls[provider] for provider in PROVIDERS if provider in providers),
    )


def _is_tenant_problem(finding: Finding, limited: Container[str]) -> bool:
    """Return whether only the author of an ExchangeRate can resolve this; `limited` are subjects with maxChange."""
    if finding.code == "jump":
        return all(name in limited for name in finding.subjects)
    return finding.code in ("invalid", "collision", "unavailable") and finding.exit_code is ExitCode.REFUSED


def _as_warning(finding: Finding) -> Finding:
    return structs.replace(finding, severity=Severity.WARNING, exit_code=ExitCode.DONE)


def _evaluations(observed: Observed, settings: Settings, now: datetime) -> dict[ExchangeRate, Evaluation]:
    if observed.list_failed:
        return {}
    tables = observed.tables(settings.urls, now.date())
    unique = (rates[0] for _, rates in sorted(_by_configmap(observed).items()) if len(rates) == 1)
    return {rate: evaluate(rate, observed, tables, settings, now.date()) for rate in unique}


def _by_configmap(observed: Observed) -> dict[ObjectKey, list[ExchangeRate]]:
    found: dict[ObjectKey, list[ExchangeRate]] = {}
    for rate in observed.rates:
        if not rate.head.terminating:
            found.setdefault(rate.configmap, []).append(rate)
    return found


def _provider_failures(observed: Observed, settings: Settings, now: datetime) -> Iterator[Finding]:
    for provider, table in observed.tables(settings.urls, now.date()).items():
        if isinstance(table, ProviderFailure):
            reason = f"{without_credentials(settings.urls[provider])} {table.reason}"
            yield Finding("provider-failed", Severity.WARNING, ObjectKey("Provider", provider), reason)


def _terminating(rate: ExchangeRate) -> Finding:
    return Finding("skipped", Severity.INFO, rate.head.key, "is being deleted", subjects=(rate.subject,))


def _where(settings: Settings) -> str:
    return f"namespace {settings.namespace}" if settings.namespace else "any namespace"


def _brakes(evaluations: Iterable[Evaluation], settings: Settings) -> tuple[Brake, ...]:
    """Return the brake of jumps over --max-change, with the value that accepts them all."""
    blocked = [each.jump.percent for each in evaluations if each.jump]
    if not blocked or settings.rates is not None:
        return ()
    what = f"{len(blocked)} rates" if len(blocked) > 1 else "1 rate"
    are = "are" if len(blocked) > 1 else "is"
    message = f"{what} changed by more than {settings.max_change} % and {are} not updated"
    return (Brake(message, "--max-change", str(max(blocked))),)


def conditions(
    observed: Observed, settings: Settings, _plan: Plan, results: Sequence[Result], now: datetime
) -> Sequence[StatusUpdate]:
    """Return the status updates of ExchangeRates in the cluster; those of files have no status."""
    if settings.rates is not None:
        return []
    evaluations = _evaluations(observed, settings, now)
    figures = {rate.subject: each.figures for rate, each in evaluations.items() if each.figures}
    rates = [
        *((rate.head, rate.spec) for rate in observed.rates),
        *((each.head, None) for each in observed.invalid_rates),
    ]
    return status_updates([each for each in rates if not each[0].terminating], figures, results, now)


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
