"""roll-workloads: restart each workload that opted in, once, when the config that its pods use changed.

A run lists the metadata of workloads and reads those that opted in. Then it reads by name the ConfigMaps and Secrets in
their pod templates. The parts are in jobs/rolls: opt_in, workloads, references, sources, key, baseline, observed,
evaluate.
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
from jobs.rolls.baseline import ROLL_OPT_IN
from jobs.rolls.evaluate import evaluate, unreadable, within_budget
from jobs.rolls.key import KEY_NAME, Key, key_secret_not_set, key_secret_patch
from jobs.rolls.observed import NAME, Observed, Settings
from jobs.rolls.opt_in import JOBS, OptIn, first_of_each_namespace, invalid_value, opt_in, reduced
from jobs.rolls.workloads import KINDS, Workload

SETTLE_SECONDS = 30
COOL_DOWN_SECONDS = 600
MAX_ROLLS = 10
_RESOURCES = {resource.kind: resource for resource in (*KINDS, CONFIGMAPS, SECRETS)}


def settings(connection: Connection, run_options: options.RunOptions, given: Mapping[str, Any]) -> Settings:
    """Return the settings. In a pod the default Secret of the key is in the namespace of the pod, not in that of -n."""
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
    """List the workloads and select those that opted in; a list that fails does not stop the others.

    Raises:
        ApiError: namespaces cannot be listed, which every evaluation needs.
    """
    spaces, failures = _namespaces(cluster, settings.namespace)
    candidates: list[ObjectKey] = []
    mistakes: list[Finding] = []
    for resource in (*KINDS, *JOBS):
        try:
            found, invalid = retry_if_expired(
                partial(_list_annotated, cluster, resource, settings.namespace, spaces.opted_in)
            )
        except ApiError as error:
            failures.append(_list_failed(resource, error))
            continue
        failures += [unreadable(each.key, "the object", each.error) for each in invalid]
        mistakes += [mistake for each in found if (mistake := each.mistake())]
        candidates += [each.key for each in found if each.is_opted_in]
    opted_in = tuple(sorted(key for key in candidates if key.namespace not in spaces.terminating))
    terminating = [
        Finding("skipped", Severity.INFO, key, f"namespace {key.namespace} is terminating")
        for key in candidates
        if key.namespace in spaces.terminating
    ]
    no_key = None if settings.key_secret else key_secret_not_set()
    shown = mistakes if settings.verbose else first_of_each_namespace(mistakes)
    findings = (*failures, *shown, *terminating)
    namespaces = tuple(sorted(spaces.opted_in - spaces.terminating))
    return Observed(opted_in, findings, settings.key_secret, settings.new_key, no_key, namespaces=namespaces)


class _Namespaces(NamedTuple):
    opted_in: frozenset[str]
    terminating: frozenset[str]


def _namespaces(cluster: Cluster, only: str) -> tuple[_Namespaces, list[Finding]]:
    """Return namespaces that opted in and that are terminating; with -n, permission to list namespaces is optional."""
    try:
        found, invalid = retry_if_expired(partial(_list_namespaces, cluster))
    except ApiError as error:
        if not (only and _is_forbidden(error)):
            raise
        reason = f"annotations of namespaces cannot be read: {error.message}"
        return _Namespaces(frozenset(), frozenset()), [
            Finding("skipped", Severity.INFO, ObjectKey(NAMESPACES.kind, only), reason)
        ]
    failures = [unreadable(each.key, "the object", each.error) for each in invalid if only in ("", each.key.name)]
    for key, (value, active) in found.items():
        if value is not None and active and only in ("", key.name) and (mistake := invalid_value(key, value)):
            failures.append(mistake)
    opted_in = frozenset(key.name for key, (value, _) in found.items() if value == "true" and only in ("", key.name))
    terminating = frozenset(key.name for key, (_, active) in found.items() if not active)
    return _Namespaces(opted_in, terminating), failures


def _is_forbidden(error: ApiError) -> bool:
    """Return whether only the permission is missing; with invalid credentials, all other requests fail too."""
    return error.status == 403 and error.is_permission


def _list_namespaces(cluster: Cluster) -> tuple[dict[ObjectKey, tuple[str | None, bool]], Sequence[InvalidObject]]:
    """Return the annotation of each namespace, and whether it is active."""
    invalid: list[InvalidObject] = []
    read = cluster.objects(
        NAMESPACES, NamespaceObject, lambda each: (each.metadata.name, opt_in(each.metadata), each.active)
    )
    found = without_invalid(read, invalid)
    return {ObjectKey(NAMESPACES.kind, name): (value, active) for name, value, active in found}, invalid


def _list_annotated(
    cluster: Cluster, resource: Resource, namespace: str, opted_in: frozenset[str]
) -> tuple[list[OptIn], Sequence[InvalidObject]]:
    """Return the objects with the annotation: their own, that of their template, or that of their namespace."""
    invalid: list[InvalidObject] = []
    reduce = partial(reduced, resource.kind, opted_in)
    read = cluster.objects(resource, PartialObject, reduce, namespace=namespace, metadata_only=True)
    return [each for each in without_invalid(read, invalid) if each], invalid


def _list_failed(resource: Resource, error: ApiError) -> Finding:
    """Return the finding for a kind that cannot be listed; Jobs and CronJobs are only listed to find mistakes."""
    key = ObjectKey(resource.kind, "(all)")
    if resource in JOBS and _is_forbidden(error):
        return Finding(
            "skipped", Severity.INFO, key, f"annotations of {resource.plural} are not checked: {error.message}"
        )
    return unreadable(key, resource.plural, error)


def plan(observed: Observed, settings: Settings, now: datetime) -> Plan:
    """Compare baselines with the current config; the same input gives the same findings in the same order."""
    findings = list(observed.failures)
    needs: set[Need] = set()
    unchanged: list[ObjectKey] = []
    for key in observed.opted_in:
        result = evaluate(key, observed, settings, now)
        if isinstance(result, Finding):
            findings.append(result)
        elif result is None:
            unchanged.append(key)
        else:
            needs.update(result)
    findings, substitutes = within_budget(findings, settings.max_rolls)
    if settings.verbose:
        findings += [Finding("unchanged", Severity.INFO, key, "runs with its current config") for key in unchanged]
    return Plan(
        tuple(sorted(findings, key=lambda each: (each.object, each.code))),
        len(unchanged),
        tuple(sorted(needs)),
        {"workloads": len(observed.opted_in), "sources": len(observed.sources)},
        "" if observed.opted_in or observed.failures else _note(observed.namespaces, settings.namespace),
        prerequisites=_prerequisites(observed),
        substitutes=tuple(substitutes),
    )


def _note(namespaces: Sequence[str], only: str) -> str:
    """Return the note of a run that found no workload that opted in."""
    if not namespaces:
        return f"no workload in {f'namespace {only}' if only else 'any namespace'} has the annotation {ROLL_OPT_IN}"
    count = len(namespaces)
    subject = f"namespace {namespaces[0]} has" if count == 1 else f"{count} namespaces have"
    return f"{subject} the annotation {ROLL_OPT_IN}, but no Deployment, StatefulSet or DaemonSet that opted in"


def _prerequisites(observed: Observed) -> tuple[Finding, ...]:
    """Return the write of a missing key, on which fingerprints of Secrets depend."""
    if observed.key_secret and isinstance(observed.key, Key) and observed.key.empty_secret:
        return (key_secret_patch(observed.key_secret, observed.key),)
    return ()


def events(
    observed: Observed, _settings: Settings, _plan: Plan, results: Sequence[Result], now: datetime
) -> Sequence[StatusUpdate]:
    """Return an Event for each workload that was rolled: `kubectl describe` prints why its pods were replaced."""
    return [
        StatusUpdate(found.key, found.uid, None, _event(found, result.finding.reason, now))
        for result in results
        if result.finding.fix and result.finding.fix.action is Action.ROLL and result.outcome is Outcome.DONE
        if isinstance(found := observed.workloads.get(result.finding.object), Workload)
    ]


def _event(workload: Workload, reason: str, now: datetime) -> Mapping[str, Any]:
    message = f"{reason}: pods are replaced according to the update strategy"
    rolled = new_condition("Rolled", "True", "ConfigChanged", message)
    return event(workload.key, _RESOURCES[workload.key.kind].api_version, workload.uid, rolled, now)


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
    help="Defer the roll of a workload until its config is unchanged for this time: several changes cause one rollout.",
)
@options.option(
    "--cool-down",
    type=click.IntRange(min=0),
    default=COOL_DOWN_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Minimum time between two rolls of a workload. The first roll of a stuck rollout is not deferred.",
)
@options.option(
    "--max-rolls",
    type=click.IntRange(min=0),
    default=MAX_ROLLS,
    show_default=True,
    metavar="N",
    help="Roll at most N workloads in one run, first one of each namespace; later runs roll the others.",
)
@options.option(
    "--key-secret",
    metavar="NAMESPACE/NAME",
    callback=_key_secret,
    help=f"Secret with the key for the fingerprints of Secrets; default in a pod is {KEY_NAME} in its namespace.",
)
@options.run_options("Process only the workloads of this namespace; default is all.")
@click.pass_context
def command(context: click.Context, /, options: options.RunOptions, **given: Any) -> None:
    """Restart workloads whose ConfigMaps or Secrets changed. Kinds: Deployment, StatefulSet, DaemonSet.

    A workload opts in with the annotation kubechores.dev/roll-on-config-change: "true". The annotation of a namespace
    opts in all workloads there, except those with "false". The first run records the ConfigMaps and Secrets that pods
    use as the baseline, and restarts nothing. If their content changes later, a run restarts the workload once, as
    `kubectl rollout restart` does, also if several changed. Exits 0 when done, also if rolls are deferred, 1 when a
    retry is useful, 2 when a person must act first, 3 with --check when there are findings.

    \b
    Examples:
      chores roll-workloads --dry-run                show which workloads a run would restart, and why
      chores roll-workloads -n shop                  process one namespace
      chores roll-workloads --settle 0 --cool-down 0 roll without waiting
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
