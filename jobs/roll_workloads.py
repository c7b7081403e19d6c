"""roll-workloads: restart each workload that opted in, once, when the config that its pods use changed.

A run lists the metadata of workloads and reads those that opted in. Then it reads by name the ConfigMaps and Secrets in
their pod templates. The parts are in jobs/core/roll_workloads.
"""

from __future__ import annotations

import secrets
from datetime import timedelta
from functools import partial

import click
from msgspec import Struct
from msgspec.structs import replace

from jobs.core.roll_workloads.observe import observe
from jobs.core.roll_workloads.observed import COOL_DOWN_SECONDS, MAX_ROLLS, NAME, SETTLE_SECONDS, Observed, Settings
from jobs.core.roll_workloads.plan import gauges, plan, status_updates
from jobs.core.roll_workloads.schedule import EXAMPLE, WINDOW, Window, parse_windows
from jobs.core.roll_workloads.workloads import KINDS
from jobs.kit.api.connect import Connection
from jobs.kit.run import flags
from jobs.kit.run.job import Job
from jobs.kit.run.runner import run
from jobs.kit.values.model import ExitCode, ObjectKey, RunOptions
from jobs.kit.values.resources import CONFIGMAPS, KEY_NAME, SECRETS, by_kind, is_name


class Options(Struct, frozen=True):
    """The options of this job, with those of all jobs in `run`; `settle` and `cool_down` are in seconds."""

    run: RunOptions
    settle: int
    cool_down: int
    max_rolls: int
    key_secret: ObjectKey | None
    roll_window: tuple[Window, ...] = ()
    now: ObjectKey | None = None
    argo_rollouts: bool = False
    explain: ObjectKey | None = None


def settings(connection: Connection, options: Options) -> Settings:
    """Return the settings. In a pod the default Secret of the key is in the namespace of the pod, not in that of -n."""
    own = connection.pod_namespace
    return Settings(
        options.now.namespace if options.now else options.run.namespace or "",
        timedelta(seconds=options.settle),
        timedelta(seconds=options.cool_down),
        options.max_rolls,
        options.key_secret or (ObjectKey(SECRETS.kind, KEY_NAME, own) if own else None),
        secrets.token_hex(32),
        run=options.run,
        windows=options.roll_window,
        only=options.now,
        argo_rollouts=options.argo_rollouts,
    )


def _windows(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[Window, ...]:
    try:
        return parse_windows(value) if value is not None else ()
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


def _now(_context: click.Context, _parameter: click.Parameter, value: str | None) -> ObjectKey | None:
    return None if value is None else _place("", value)


def _key_secret(_context: click.Context, _parameter: click.Parameter, value: str | None) -> ObjectKey | None:
    return None if value is None else _place(SECRETS.kind, value)


def _place(kind: str, value: str) -> ObjectKey:
    namespace, slash, name = value.partition("/")
    if not slash or not is_name(name) or not is_name(namespace):
        raise click.BadParameter(f"{value!r} is not NAMESPACE/NAME.")
    return ObjectKey(kind, name, namespace)


def job(_options: Options) -> Job[Options, Settings, Observed]:
    """Return the job."""
    resources = by_kind(*KINDS, CONFIGMAPS, SECRETS)
    return Job(NAME, resources, settings, observe, plan, status_updates, metrics=gauges)


@click.command(NAME)
@flags.option(
    "--settle",
    type=click.IntRange(min=0),
    default=SETTLE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Defer the roll of a workload until its config is unchanged for this time: several changes cause one rollout.",
)
@flags.option(
    "--cool-down",
    type=click.IntRange(min=0),
    default=COOL_DOWN_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Minimum time between two rolls of a workload. The first roll of a stuck rollout is not deferred.",
)
@flags.option(
    "--max-rolls",
    type=click.IntRange(min=0),
    default=MAX_ROLLS,
    show_default=True,
    metavar="N",
    help="Roll at most N workloads in one run, first one of each namespace; later runs roll the others.",
)
@flags.option(
    "--key-secret",
    settable=False,
    metavar="NAMESPACE/NAME",
    callback=_key_secret,
    help=f"Secret with the key for the fingerprints of Secrets; default in a pod is {KEY_NAME} in its namespace.",
)
@flags.option(
    "--roll-window",
    metavar="WINDOWS",
    callback=_windows,
    help=f"Roll only in these windows: cron expression, duration and time zone, such as '{EXAMPLE}'; several are "
    f"separated by ';'. The annotation {WINDOW} of a workload or namespace overrides it; default: at any time.",
)
@flags.option("--argo-rollouts", is_flag=True, help="Also process the Rollouts of Argo Rollouts, if it is installed.")
@flags.option(
    "--now",
    settable=False,
    metavar="NAMESPACE/NAME",
    callback=_now,
    help="Process only workloads of this name, and roll them at once if their config changed or their period is over: "
    "do not wait for a window, --settle and --cool-down.",
)
@flags.explain(
    "Write nothing. Print for each workload of this namespace whether it opted in, and what the next run does; with "
    "NAME, for workloads of this name, also what they use and whether that changed."
)
@flags.metrics
@flags.run_options(Options, "Process only the workloads of this namespace; default is all.")
def command(context: click.Context, options: Options) -> None:
    """Restart workloads whose ConfigMaps or Secrets changed. Kinds: Deployment, StatefulSet, DaemonSet, Rollout.

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
      chores roll-workloads --now shop/web           restart this workload now, if its config changed
      chores roll-workloads --explain shop/web       print why a workload was not restarted
    """
    if options.now and options.run.namespace not in (None, options.now.namespace):
        raise click.UsageError(f"--now {options.now.namespace}/{options.now.name} is not in the namespace of -n.")
    if options.now and options.explain:
        raise click.UsageError("--now rolls a workload, and --explain writes nothing: use one of them.")
    if options.explain:
        context.exit(_explain(options, options.explain))
    context.exit(run(job(options), options))


def _explain(options: Options, where: ObjectKey) -> ExitCode:
    from jobs.core.roll_workloads.explain import explanation
    from jobs.core.roll_workloads.observe import observe_with_listed
    from jobs.kit.run.explain import explain

    if options.run.namespace not in (None, where.namespace):
        raise click.UsageError(f"--explain {where.namespace} is not in the namespace of -n, {options.run.namespace}.")
    return explain(replace(job(options), observe=partial(observe_with_listed, where)), options, where, explanation)
