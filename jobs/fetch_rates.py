"""fetch-rates: exchange rates in ConfigMaps that pods can use, one for each ExchangeRate.

Each provider's document is fetched once a run, and only when an ExchangeRate needs it. The parts are in jobs/rates:
exchange_rates, providers, figures, choice, seen, verdicts, status, quote.
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
from jobs.rates.choice import Ask, Unusable
from jobs.rates.evaluate import Verdict, collision, evaluate, leftovers, unchanged
from jobs.rates.exchange_rates import EXCHANGE_RATES, ExchangeRate, Spec, parse_exchange_rate, spec_problems, subject
from jobs.rates.figures import PIVOT
from jobs.rates.observed import MAX_CHANGE_PERCENT, NAME, Observed, Settings
from jobs.rates.print_rate import print_rate
from jobs.rates.providers import PROVIDERS
from jobs.rates.status import status_updates

COMMAND_LINE = "(command line)"  # stands for the ExchangeRate that --configmap has not


class Asked(NamedTuple):
    """What the command line asks for beside the options that all jobs have."""

    spec: Spec | None
    configmap: str | None
    filenames: Sequence[str]
    max_change: int
    urls: Mapping[str, str]


def settings(connection: Connection, run_options: options.RunOptions, asked: Asked) -> Settings:
    """Return the settings.

    Raises:
        ConfigurationError: with all problems of all ExchangeRates in files.
    """
    return Settings(
        run_options.namespace or "",
        asked.urls,
        _rates(connection.namespace, asked, elsewhere=run_options.namespace is None),
        asked.max_change,
        dry_run=run_options.dry_run is not DryRun.NONE,
        diff=run_options.diff,
        verbose=run_options.verbose,
    )


def _rates(namespace: str, asked: Asked, *, elsewhere: bool) -> tuple[ExchangeRate, ...] | None:
    if asked.spec:
        head = Head(ObjectKey(EXCHANGE_RATES.kind, COMMAND_LINE, namespace))
        return (ExchangeRate(head, asked.spec),)
    if asked.filenames:
        return from_files(asked.filenames, EXCHANGE_RATES, parse_exchange_rate, namespace, any_namespace=elsewhere)
    return None


def observe(cluster: Cluster, settings: Settings) -> Observed:
    """Read the ConfigMaps that are ours, then the ExchangeRates: what an overlapping run makes is never left over then.

    Raises:
        ConfigurationError: the CRD is missing.
        ApiError: ExchangeRates cannot be read, without which nothing can be said.
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
    return Observed(rates, invalid_rates, configmaps, tuple(failures), blind=denied is not None)


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


def _invalid(invalid_rates: Invalid) -> Finding:
    key, reason = invalid_rates.head.key, "; ".join(invalid_rates.problems)
    return Finding("invalid", Severity.ERROR, key, reason, subjects=(subject(key),), exit_code=ExitCode.REFUSED)


def _unreadable(keys: Sequence[ObjectKey], error: ApiError) -> Finding:
    remedy = "; the manifests in cronjobs/ hold the rights that this job needs" if error.is_permission else ""
    reason = f"cannot be read: {error.message}{remedy}"
    all_of_them = ObjectKey(CONFIGMAPS.kind, "(all of this job)")
    subjects = tuple(sorted(subject(key) for key in keys))
    return Finding("unreadable", Severity.ERROR, all_of_them, reason, subjects=subjects, exit_code=error.exit_code)


def plan(observed: Observed, settings: Settings, now: datetime) -> Plan:
    """Compare each ExchangeRate with its ConfigMap: the same input gives the same findings in the same order."""
    verdicts = _verdicts(observed, settings, now)
    places = _places(observed)
    findings = [*observed.failures, *_unusable(observed, settings, now)]
    findings += [finding for verdict in verdicts.values() for finding in verdict.findings]
    findings += [each for rates in places.values() if len(rates) > 1 for each in collision(rates)]
    findings += [_going(rate) for rate in observed.rates if rate.head.terminating]
    right = {rate: each.figures for rate, each in verdicts.items() if each.figures and not each.findings}
    settled = [rate for rate, each in verdicts.items() if each.figures and not each.is_missing]
    findings += leftovers(observed, places, {rate.head.uid: rate for rate in settled if rate.head.uid})
    if settings.rates is None and not settings.namespace:
        limited = {rate.subject for rate in observed.rates if rate.spec.max_change}
        findings = [_failing_no_run(each) if _is_of_a_tenant(each, limited) else each for each in findings]
    if settings.verbose:
        findings += [unchanged(rate, figures) for rate, figures in right.items()]
    needs = [verdict.need for verdict in verdicts.values()]
    asked = {need.provider for need in needs if isinstance(need, Ask)}
    return Plan(
        tuple(sorted(findings, key=lambda finding: (finding.object, finding.code))),
        len(right),
        tuple(sorted(need for need in needs if isinstance(need, Need))),
        {"rates": len(observed.rates), "providers": len(observed.pages)},
        "" if observed.rates or observed.failures else f"no {EXCHANGE_RATES.kind} in {_where(settings)}",
        desired_by_kind={CONFIGMAPS.kind: len(places)},
        brakes=_brakes([verdict for rate, verdict in verdicts.items() if rate.spec.max_change is None], settings),
        urls=tuple(settings.urls[provider] for provider in PROVIDERS if provider in asked),
    )


def _is_of_a_tenant(finding: Finding, limited: Container[str]) -> bool:
    """Whether only the author of an ExchangeRate can resolve this; `limited` have a maxChange of their own."""
    if finding.code == "jump":
        return all(name in limited for name in finding.subjects)
    return finding.code in ("invalid", "collision", "unavailable") and finding.exit_code is ExitCode.REFUSED


def _failing_no_run(finding: Finding) -> Finding:
    return structs.replace(finding, severity=Severity.WARNING, exit_code=ExitCode.DONE)


def _verdicts(observed: Observed, settings: Settings, now: datetime) -> dict[ExchangeRate, Verdict]:
    if observed.blind:
        return {}
    answers = observed.answers(settings.urls, now.date())
    alone = (rates[0] for _, rates in sorted(_places(observed).items()) if len(rates) == 1)
    return {rate: evaluate(rate, observed, answers, settings, now.date()) for rate in alone}


def _places(observed: Observed) -> dict[ObjectKey, list[ExchangeRate]]:
    places: dict[ObjectKey, list[ExchangeRate]] = {}
    for rate in observed.rates:
        if not rate.head.terminating:
            places.setdefault(rate.place, []).append(rate)
    return places


def _unusable(observed: Observed, settings: Settings, now: datetime) -> Iterator[Finding]:
    for provider, answer in observed.answers(settings.urls, now.date()).items():
        if isinstance(answer, Unusable):
            reason = f"{without_credentials(settings.urls[provider])} {answer.reason}"
            yield Finding("provider-failed", Severity.WARNING, ObjectKey("Provider", provider), reason)


def _going(rate: ExchangeRate) -> Finding:
    return Finding("skipped", Severity.INFO, rate.head.key, "is being deleted", subjects=(rate.subject,))


def _where(settings: Settings) -> str:
    return f"namespace {settings.namespace}" if settings.namespace else "any namespace"


def _brakes(verdicts: Iterable[Verdict], settings: Settings) -> tuple[Brake, ...]:
    """Return what lifts the jumps of ExchangeRates that have no limit of their own."""
    held = [verdict.jump.percent for verdict in verdicts if verdict.jump]
    if not held or settings.rates is not None:
        return ()
    many = len(held) > 1
    what = f"{len(held)} rates" if many else "1 rate"
    fate = "stay as they are" if many else "stays as it is"
    return (Brake(f"{what} changed by more than {settings.max_change} % and {fate}", "--max-change", str(max(held))),)


def conditions(
    observed: Observed, settings: Settings, _plan: Plan, results: Sequence[Result], now: datetime
) -> Sequence[StatusUpdate]:
    """Return what the statuses of ExchangeRates should say: of those in the cluster, not in files."""
    if settings.rates is not None:
        return []
    verdicts = _verdicts(observed, settings, now)
    held = {rate.subject: verdict.figures for rate, verdict in verdicts.items() if verdict.figures}
    asked = [
        *((rate.head, rate.spec) for rate in observed.rates),
        *((each.head, None) for each in observed.invalid_rates),
    ]
    return status_updates([each for each in asked if not each[0].terminating], held, results, now)


def _urls(command: options.F) -> options.F:
    for provider, (url, _) in reversed(list(PROVIDERS.items())):
        add = options.option(
            f"--{provider}-url",
            default=url,
            show_default=True,
            metavar="URL",
            callback=options.url,
            help=f"Where the document of {provider} is: its own place, or a mirror of yours.",
        )
        command = add(command)
    return command


@click.command(NAME)
@options.option("--currency", metavar="CODE", help="Print the rate of this currency: needs no cluster.")
@options.option("--base", metavar="CODE", help=f"With --currency: of what one unit is priced; default {PIVOT}.")
@options.option("--provider", type=click.Choice(list(PROVIDERS)), help="With --currency: ask this provider alone.")
@options.option("--configmap", metavar="NAME", help="With --currency: write the rate to this ConfigMap instead.")
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
    help="Hold a rate that changed by more, unless another provider agrees or spec.maxChange allows it.",
)
@options.max_deletes("ConfigMaps that are no longer named")
@_urls
@options.run_options("Serve this namespace; default is all. With --configmap and -f the context's is the default.")
@click.pass_context
def command(
    context: click.Context,
    /,
    options: options.RunOptions,
    max_deletes: int | None,
    **given: Any,
) -> None:
    """Write the rates of ExchangeRates into ConfigMaps. Pods can use these.

    A rate comes from the first provider that has a good one: ecb, then frankfurter; open-er-api only when named. On any
    failure the last good rate stays. A second run in a row writes nothing. Exits 0 when done, 1 when a retry is useful,
    2 when a person must act first, 3 with --check when anything is not as it should be, 4 when a rate changed so much
    that it is held.

    \b
    Examples:
      chores fetch-rates --currency USD              print the rate of the dollar
      chores fetch-rates --dry-run --diff            what would change, and how
      chores fetch-rates -n shop                     serve the ExchangeRates of one namespace
    """
    asked = _asked(given)
    if asked.spec and not asked.configmap:
        context.exit(print_rate(asked.spec, asked.urls, options))
    if asked.filenames and options.dry_run is DryRun.NONE:
        options = replace(options, dry_run=DryRun.CLIENT)
    job = Job(
        NAME,
        {CONFIGMAPS.kind: CONFIGMAPS, EXCHANGE_RATES.kind: EXCHANGE_RATES},
        lambda connection: settings(connection, options, asked),
        observe,
        plan,
        conditions,
        max_deletes,
        needs_namespace=not asked.filenames,
    )
    context.exit(run(job, options))


def _asked(given: Mapping[str, Any]) -> Asked:
    """Return what the command line asks for.

    Raises:
        click.UsageError: with all that does not go together or cannot be.
    """
    currency, filenames = given["currency"], given["filenames"]
    alone = [name for name in ("base", "provider", "configmap") if given[name] and currency is None]
    problems = [f"--{name} needs --currency" for name in alone]
    spec = None
    if currency is not None:
        name = given["configmap"] or ""
        spec = Spec(currency, given["base"] or PIVOT, name, given["provider"])
        problems += [f"--{problem}" for problem in spec_problems(spec)]
        problems += ["--filename does not go with --currency"] if filenames else []
        if name and not is_name(name):
            problems.append(f"--configmap: {name!r} cannot be the name of a ConfigMap")
    if problems:
        raise click.UsageError("; ".join(problems))
    urls = {provider: given[f"{provider.replace('-', '_')}_url"] for provider in PROVIDERS}
    return Asked(spec, given["configmap"], filenames, given["max_change"], urls)
