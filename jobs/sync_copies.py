"""sync-copies: copy the objects that a CopyratorRule selects to every namespace that it targets.

The desired copies of all rules are computed first. They are compared with a metadata-only list of the copies that
exist: each copy has a fingerprint of what was written, and its managedFields show whether somebody changed it since.
The parts are in jobs/core/sync_copies.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
from msgspec import Struct
from msgspec.structs import replace

from jobs.core.sync_copies.kinds import RESOURCES
from jobs.core.sync_copies.observe import observe, rules_from_files
from jobs.core.sync_copies.observed import NAME, Observed, Settings
from jobs.core.sync_copies.plan import plan
from jobs.core.sync_copies.status import gauges, status_updates
from jobs.kit.api.cluster import Cluster
from jobs.kit.api.connect import Connection, connect
from jobs.kit.run import flags
from jobs.kit.run.job import Execution, Job, Limits
from jobs.kit.run.runner import run, settings_of
from jobs.kit.run.session import Session, create_transport
from jobs.kit.values.errors import ConfigurationError
from jobs.kit.values.model import DryRun, ExitCode, ObjectKey, RunOptions
from jobs.kit.values.registry import CLUSTERS, VERIFY
from jobs.kit.values.resources import RULES, by_kind, is_name
from jobs.kit.values.stamps import MANAGER


class Explained(NamedTuple):
    """What to explain: a namespace or an object there, in this cluster or in another one."""

    key: ObjectKey
    cluster: str = ""


class Options(Struct, frozen=True):
    """The options of this job, with those of all jobs in `run`."""

    run: RunOptions
    rule_name: str | None
    verify: str
    max_deletes: int | None
    explain: Explained | None = None
    source_kubeconfig: str | None = None
    source_context: str | None = None
    clusters: str | None = None
    forget_cluster: str | None = None

    @property
    def has_hub(self) -> bool:
        """Whether rules and sources are in another cluster."""
        return bool(self.source_kubeconfig or self.source_context)

    @property
    def is_push(self) -> bool:
        """Whether copies are in other clusters."""
        return bool(self.clusters or self.forget_cluster)


def settings(connection: Connection, options: Options) -> Settings:
    """Return the settings, with the rules if they come from files.

    Raises:
        ConfigurationError: a rule in the files is not valid; lists all problems of all rules.
    """
    files = options.run.filenames
    return Settings(
        connection.namespace,
        options.rule_name,
        rules_from_files(files, connection.namespace, options.rule_name) if files else None,
        verify_content=options.verify == "content",
        run=options.run,
        max_deletes=sys.maxsize if options.forget_cluster and options.max_deletes is None else options.max_deletes,
        clusters=options.clusters or "",
        forgotten=options.forget_cluster or "",
    )


def job(options: Options) -> Job[Options, Settings, Observed]:
    """Return the job as these options have it run."""
    in_full = options.verify == "content"
    return Job(
        NAME,
        by_kind(*RESOURCES, RULES),
        settings,
        observe,
        plan,
        None if options.has_hub else status_updates,
        Limits(options.max_deletes),
        metrics=None if in_full else gauges,  # metrics of rules would be as of last night for a day
        own_cronjob=CLUSTERS if options.is_push else VERIFY if in_full else "",
        observe_from=partial(_observe_from, options) if options.has_hub else None,
        execution=_push if options.is_push else None,
    )


def _push(job: Job[Options, Settings, Observed], session: Session, options: Options) -> Execution:
    from jobs.sync_copies_clusters import Push

    return Push(job, session, settings_of(job, session, options))


def _observe_from(options: Options, session: Session) -> Callable[[Cluster, Settings], Observed]:
    """Return `observe` with the cluster that has the rules and sources.

    In a pod, its kubeconfig comes from a Secret, so that it is read as those of an inventory.

    Raises:
        ConfigurationError: the kubeconfig is not valid.
    """
    if session.connection.in_pod:
        from jobs.kit.api import spoke

        if options.source_context or not options.source_kubeconfig:
            raise ConfigurationError("in a pod, use --source-kubeconfig without --source-context")
        connection = replace(session.connection, endpoint=spoke.from_file(Path(options.source_kubeconfig)))
    else:
        connection = connect(options.source_kubeconfig, options.source_context)
    return partial(observe, hub=Cluster(create_transport(NAME, connection, session.stopping), MANAGER))


def _glob(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"[-.a-z0-9*?]{1,253}", value):
        raise click.BadParameter(f"{value!r} is not the name of a cluster, or a glob such as 'prod-*'.")
    return value


def _cluster(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not is_name(value):
        raise click.BadParameter(f"{value!r} is not the name of a cluster.")
    return value


def _explained(context: click.Context, parameter: click.Parameter, value: str | None) -> Explained | None:
    cluster, _, rest = (value or "").partition("/")
    if rest.count("/") != 1 or not is_name(cluster):
        key = flags.where(context, parameter, value)
        return Explained(key) if key else None
    key = flags.where(context, parameter, rest)
    assert key
    return Explained(key, cluster)


@click.command(NAME)
@flags.option(
    "--rule-name", env=("RULE_NAME",), metavar="NAME", help="Apply only this rule; the others are still read."
)
@flags.filenames(
    "Read rules from this file, folder or - (stdin) instead of the cluster. Implies a dry run, which shows no "
    "deletions. Needs no CRD."
)
@flags.option(
    "--verify",
    default="metadata",
    show_default=True,
    type=click.Choice(["metadata", "content"]),
    help="How to compare copies: by fingerprint and managedFields (metadata), or by reading all of them (content).",
)
@flags.option(
    "--source-kubeconfig",
    settable=False,
    metavar="FILE",
    help="Read rules and sources from the cluster of this kubeconfig, and write no statuses there.",
)
@flags.option(
    "--source-context",
    settable=False,
    metavar="NAME",
    help="Context of the cluster with the rules and sources; default is the current one of --source-kubeconfig.",
)
@flags.option(
    "--clusters",
    env=("KUBE_CHORES_CLUSTERS",),
    settable=False,
    metavar="GLOB",
    callback=_glob,
    help="Copy to the clusters of the inventory with these names, such as '*', and not to this one. Applies the rules "
    "that have spec.targets.clusters.",
)
@flags.option(
    "--forget-cluster",
    settable=False,
    metavar="NAME",
    callback=_cluster,
    help="Delete all copies in this cluster and forget it. If it is still in the inventory, the next run copies again.",
)
@flags.explain(
    "Write nothing. Print for each rule which copies it has in this namespace, or why it has none; with NAME, only for "
    "objects of this name. With a cluster, or --clusters, in that one.",
    "NAMESPACE[/NAME] | CLUSTER/NAMESPACE/NAME",
    _explained,
)
@flags.max_deletes(
    "orphaned copies of a kind",
    " If set, also deletes copies of rules that may be mistaken, and "
    "withdraws the certificates of a source namespace that is gone.",
)
@flags.metrics
@flags.run_options(
    Options,
    "Namespace of the rules. Default is the pod's own namespace, or the context's.",
    namespace_env=("NAMESPACE",),
)
def command(context: click.Context, options: Options) -> None:
    """Copy Secrets, ConfigMaps, policies and role bindings.

    Copies the objects that CopyratorRules select to other namespaces: Secrets and ConfigMaps; with further rights also
    NetworkPolicies, LimitRanges, ResourceQuotas, RoleBindings and ServiceAccounts.

    Creates missing copies, repairs changed copies, and deletes copies that no rule requires. Objects that are not
    managed by kube-chores stay untouched. A second run in a row writes nothing. Exits 0 when done, 1 when a retry is
    useful, 2 when a person must act first, 3 with --check when there are findings, 4 when the deletion brake or a rule
    that may be mistaken blocked deletions.

    \b
    Examples:
      chores sync-copies --dry-run --diff            show what would change, and how
      chores sync-copies -n kube-chores              apply the rules of that namespace
      chores sync-copies -f rules.yaml -o json       try rules before you apply them
      chores sync-copies --explain team-shop/login   print why there is no copy, or from where it is
    """
    _check(options)
    context.exit(_explain(options, options.explain) if options.explain else run(job(options), options))


def _check(options: Options) -> None:
    is_elsewhere = options.is_push or (options.explain and options.explain.cluster)
    if options.has_hub and is_elsewhere:
        flag = (
            "--forget-cluster"
            if options.forget_cluster
            else "--clusters"
            if options.clusters
            else "--explain CLUSTER/…"
        )
        raise click.UsageError(f"{flag} is about other clusters, and --source-* reads rules from one: use one of them.")
    if options.forget_cluster and (options.explain or options.rule_name or options.run.filenames):
        flag = "--explain" if options.explain else "--rule-name" if options.rule_name else "--filename"
        raise click.UsageError(f"--forget-cluster deletes the copies of all rules: use it without {flag}.")


def _explain(options: Options, explained: Explained) -> ExitCode:
    from jobs.core.sync_copies import explain as core
    from jobs.kit.run.explain import explain

    options = replace(options, run=replace(options.run, dry_run=DryRun.CLIENT))
    here = replace(job(options), plan=partial(core.plan_to_explain, explained.key), execution=None)
    name = explained.cluster or options.clusters
    if not name:
        return explain(here, options, explained.key, core.explanation)
    from jobs.sync_copies_clusters import in_cluster

    def at(job: Job[Options, Settings, Observed], session: Session) -> tuple[Job[Any, Any, Any], Session]:
        return in_cluster(name, job, session, settings_of(job, session, options))

    return explain(here, options, explained.key, core.explanation, at, name)
