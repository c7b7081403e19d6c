"""roll-workloads: one rolling restart of each workload that asks for it, when the config that its pods use changed.

Workloads are listed by their metadata; those with the annotation are read, then the ConfigMaps and Secrets that their
pod templates name, each by its name. The parts are in jobs/rolls: opt_in, workloads, references, sources, baseline,
seen, verdicts.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import click

from jobs.kit import options
from jobs.kit.cluster import Cluster, InvalidObject, retry_if_expired, without_invalid
from jobs.kit.conditions import StatusUpdate, event, new_condition
from jobs.kit.connect import Connection
from jobs.kit.errors import ApiError
from jobs.kit.model import Action, Finding, Need, ObjectKey, Outcome, Plan, Result, Severity
from jobs.kit.objects import CONFIGMAPS, NAMESPACES, SECRETS, NamespaceObject, PartialObject, Resource, is_name
from jobs.kit.runner import Job, run
from jobs.rolls.baseline import OPT_IN
from jobs.rolls.evaluate import evaluate, unreadable, within_budget
from jobs.rolls.key import KEY_NAME, Key, key_secret_patch, unnamed
from jobs.rolls.observed import NAME, Observed, Settings
from jobs.rolls.opt_in import JOBS, OptIn, first_of_each_namespace, opt_in, reduced, unclear
from jobs.rolls.workloads import KINDS, Workload

SETTLE_SECONDS = 30
COOL_DOWN_SECONDS = 600
MAX_ROLLS = 10
_RESOURCES = {resource.kind: resource for resource in (*KINDS, CONFIGMAPS, SECRETS)}


def settings(connection: Connection, run_options: options.RunOptions, given: Mapping[str, Any]) -> Settings:
    """Return the settings. In a pod the key is in the namespace of the pod, whatever namespace is given."""
    own = connection.pod_namespace
    return Settings(
        run_options.namespace or "",
        timedelta(seconds=given["settle"]),
        timedelta(seconds=given["cool_down"]),
        given["max_rolls"],
        given["key_secret"] or (ObjectKey(SECRETS.kind, KEY_NAME, own) if own else None),
        secrets.token_hex(32),
        diff=run_options.diff,
        verbose=run_options.verbose,
    )


def observe(cluster: Cluster, settings: Settings) -> Observed:
    """List the workloads and pick those that opted in; what one list does not say stops no other.

    Raises:
        ApiError: namespaces cannot be read, without which nothing can be said.
    """
    spaces, failures = _namespaces(cluster, settings.namespace)
    asking: list[ObjectKey] = []
    mistakes: list[Finding] = []
    for resource in (*KINDS, *JOBS):
        try:
            found, invalid = retry_if_expired(
                partial(_annotated, cluster, resource, settings.namespace, spaces.opted_in)
            )
        except ApiError as error:
            failures.append(_unlisted(resource, error))
            continue
        failures += [unreadable(each.key, "it", each.error) for each in invalid]
        mistakes += [mistake for each in found if (mistake := each.mistake())]
        asking += [each.key for each in found if each.is_opted_in]
    opted_in = tuple(sorted(key for key in asking if key.namespace not in spaces.terminating))
    going = [
        Finding("skipped", Severity.INFO, key, f"namespace {key.namespace} is terminating")
        for key in asking
        if key.namespace in spaces.terminating
    ]
    no_key = None if settings.key_secret else unnamed()
    shown = mistakes if settings.verbose else first_of_each_namespace(mistakes)
    found_so_far = (*failures, *shown, *going)
    namespaces = tuple(sorted(spaces.opted_in - spaces.terminating))
    return Observed(opted_in, found_so_far, settings.key_secret, settings.new_key, no_key, namespaces=namespaces)


class _Namespaces(NamedTuple):
    opted_in: frozenset[str]
    terminating: frozenset[str]


def _namespaces(cluster: Cluster, only: str) -> tuple[_Namespaces, list[Finding]]:
    """Return what is known of namespaces; a user who names one needs no right to list them."""
    try:
        found, invalid = retry_if_expired(partial(_list_namespaces, cluster))
    except ApiError as error:
        if not (only and _is_forbidden(error)):
            raise
        reason = f"annotations of namespaces cannot be read: {error.message}"
        return _Namespaces(frozenset(), frozenset()), [
            Finding("skipped", Severity.INFO, ObjectKey(NAMESPACES.kind, only), reason)
        ]
    failures = [unreadable(each.key, "it", each.error) for each in invalid if only in ("", each.key.name)]
    for key, (answer, active) in found.items():
        if answer is not None and active and only in ("", key.name) and (mistake := unclear(key, answer)):
            failures.append(mistake)
    opted_in = frozenset(key.name for key, (answer, _) in found.items() if answer == "true" and only in ("", key.name))
    terminating = frozenset(key.name for key, (_, active) in found.items() if not active)
    return _Namespaces(opted_in, terminating), failures


def _is_forbidden(error: ApiError) -> bool:
    """Whether only the right is missing; credentials that are not accepted read nothing else either."""
    return error.status == 403 and error.is_permission


def _list_namespaces(cluster: Cluster) -> tuple[dict[ObjectKey, tuple[str | None, bool]], Sequence[InvalidObject]]:
    """Return the annotation of each namespace, and whether it is active."""
    invalid: list[InvalidObject] = []
    read = cluster.objects(
        NAMESPACES, NamespaceObject, lambda each: (each.metadata.name, opt_in(each.metadata), each.active)
    )
    found = without_invalid(read, invalid)
    return {ObjectKey(NAMESPACES.kind, name): (answer, active) for name, answer, active in found}, invalid


def _annotated(
    cluster: Cluster, resource: Resource, namespace: str, opted_in: frozenset[str]
) -> tuple[list[OptIn], Sequence[InvalidObject]]:
    """Return the objects that are annotated themselves, in their template or by their namespace."""
    invalid: list[InvalidObject] = []
    reduce = partial(reduced, resource.kind, opted_in)
    read = cluster.objects(resource, PartialObject, reduce, namespace=namespace, metadata_only=True)
    return [each for each in without_invalid(read, invalid) if each], invalid


def _unlisted(resource: Resource, error: ApiError) -> Finding:
    """Return why a kind cannot be listed; Jobs and CronJobs are only listed to find mistakes."""
    key = ObjectKey(resource.kind, "(all)")
    if resource in JOBS and _is_forbidden(error):
        return Finding(
            "skipped", Severity.INFO, key, f"annotations of {resource.plural} are not checked: {error.message}"
        )
    return unreadable(key, resource.plural, error)


def plan(observed: Observed, settings: Settings, now: datetime) -> Plan:
    """Compare what pods run with and what there is now: the same input gives the same findings in the same order."""
    findings = list(observed.failures)
    needs: set[Need] = set()
    right: list[ObjectKey] = []
    for key in observed.opted_in:
        verdict = evaluate(key, observed, settings, now)
        if isinstance(verdict, Finding):
            findings.append(verdict)
        elif verdict is None:
            right.append(key)
        else:
            needs.update(verdict)
    findings, substitutes = within_budget(findings, settings.max_rolls)
    if settings.verbose:
        findings += [Finding("unchanged", Severity.INFO, key, "runs with its config as it is") for key in right]
    return Plan(
        tuple(sorted(findings, key=lambda each: (each.object, each.code))),
        len(right),
        tuple(sorted(needs)),
        {"workloads": len(observed.opted_in), "sources": len(observed.sources)},
        "" if observed.opted_in or observed.failures else _nothing(observed.namespaces, settings.namespace),
        prerequisites=_prerequisites(observed),
        substitutes=tuple(substitutes),
    )


def _nothing(namespaces: Sequence[str], only: str) -> str:
    """Return why there is no workload to look at."""
    if not namespaces:
        return f"no workload in {f'namespace {only}' if only else 'any namespace'} has the annotation {OPT_IN}"
    count = len(namespaces)
    who = f"namespace {namespaces[0]} has" if count == 1 else f"{count} namespaces have"
    return f"{who} the annotation {OPT_IN}, but no Deployment, StatefulSet or DaemonSet that follows its config"


def _prerequisites(observed: Observed) -> tuple[Finding, ...]:
    """Return the finding that the key is to be written, which fingerprints of Secrets depend on."""
    if observed.key_secret and isinstance(observed.key, Key) and observed.key.unfilled:
        return (key_secret_patch(observed.key_secret, observed.key),)
    return ()


def events(
    observed: Observed, _settings: Settings, _plan: Plan, results: Sequence[Result], now: datetime
) -> Sequence[StatusUpdate]:
    """Return an Event for each workload that was rolled: `kubectl describe` says why its pods are new."""
    return [
        StatusUpdate(found.key, found.uid, None, _event(found, result.finding.reason, now))
        for result in results
        if result.finding.fix and result.finding.fix.action is Action.ROLL and result.outcome is Outcome.DONE
        if isinstance(found := observed.workloads.get(result.finding.object), Workload)
    ]


def _event(workload: Workload, reason: str, now: datetime) -> Mapping[str, Any]:
    told = new_condition("Rolled", "True", "ConfigChanged", f"{reason}: pods are replaced, as the update strategy says")
    return event(workload.key, _RESOURCES[workload.key.kind].api_version, workload.uid, told, now)


def _key_secret(_context: click.Context, _parameter: click.Parameter, value: str | None) -> ObjectKey | None:
    if value is None:
        return None
    namespace, slash, name = value.partition("/")
    if not slash or not is_name(name) or not is_name(namespace):
        raise click.BadParameter(f"{value!r} is not NAMESPACE/NAME.")
    return ObjectKey(SECRETS.kind, name, namespace)


@click.command(NAME)
@options.option(
    "--settle",
    type=click.IntRange(min=0),
    default=SETTLE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Hold a workload whose config changed less than this ago: several changes make one rollout.",
)
@options.option(
    "--cool-down",
    type=click.IntRange(min=0),
    default=COOL_DOWN_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Hold a workload that was rolled less than this ago, but for the first roll of a rollout that is blocked.",
)
@options.option(
    "--max-rolls",
    type=click.IntRange(min=0),
    default=MAX_ROLLS,
    show_default=True,
    metavar="N",
    help="Roll at most N workloads in one run, the first of each namespace first; the next runs roll the others.",
)
@options.option(
    "--key-secret",
    metavar="NAMESPACE/NAME",
    callback=_key_secret,
    help=f"Secret with the key of fingerprints of Secrets; default in a pod is {KEY_NAME} of its namespace.",
)
@options.run_options("Look at the workloads of this namespace; default is all.")
@click.pass_context
def command(context: click.Context, /, options: options.RunOptions, **given: Any) -> None:
    """Restart workloads whose ConfigMaps or Secrets changed. Kinds: Deployment, StatefulSet, DaemonSet.

    Those with the annotation kubechores.dev/roll-on-config-change: "true" are looked at, and those of a namespace with
    it that do not say "false". The first run takes note of the ConfigMaps and Secrets that their pods use and restarts
    nothing; when what pods use of them changes, a later run restarts the workload once, as `kubectl rollout restart`
    would, however many changed. Exits 0 when done, also with workloads on hold, 1 when a retry is useful, 2 when a
    person must act first, 3 with --check when anything is not as it should be.

    \b
    Examples:
      chores roll-workloads --dry-run                what would be restarted, and why
      chores roll-workloads -n shop                  look at one namespace
      chores roll-workloads --settle 0 --cool-down 0 roll at once
    """
    job = Job(
        NAME,
        _RESOURCES,
        lambda connection: settings(connection, options, given),
        observe,
        plan,
        events,
    )
    context.exit(run(job, options))
