"""sync-copies: copy the objects that a CopyratorRule selects to every namespace that it targets.

The desired copies of all rules are computed first. They are compared with a metadata-only list of the copies that
exist: each copy has a fingerprint of what was written, and its managedFields show whether somebody changed it since.
The parts are in jobs/core/sync_copies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import click

from jobs.core.sync_copies.kinds import RESOURCES
from jobs.core.sync_copies.observe import observe, rules_from_files
from jobs.core.sync_copies.observed import NAME, Observed, Settings
from jobs.core.sync_copies.plan import plan
from jobs.core.sync_copies.status import gauges, status_updates
from jobs.kit.api.connect import Connection
from jobs.kit.run import flags
from jobs.kit.run.job import Job, Limits
from jobs.kit.run.runner import run
from jobs.kit.values.model import DryRun, ObjectKey, RunOptions
from jobs.kit.values.registry import VERIFY
from jobs.kit.values.resources import RULES, by_kind


@dataclass(frozen=True)
class Options:
    """The options of this job, with those of all jobs in `run`."""

    run: RunOptions
    rule_name: str | None
    verify: str
    max_deletes: int | None
    explain: ObjectKey | None = None


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
        max_deletes=options.max_deletes,
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
        status_updates,
        Limits(options.max_deletes),
        metrics=None if in_full else gauges,  # metrics of rules would be as of last night for a day
        own_cronjob=VERIFY if in_full else "",
    )


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
@flags.explain(
    "Write nothing. Print for each rule which copies it has in this namespace, or why it has none; with NAME, only for "
    "objects of this name."
)
@flags.max_deletes("orphaned copies of a kind", " If set, also deletes copies of rules that may be mistaken.")
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
    if (place := options.explain) is not None:
        from jobs.core.sync_copies import explain as core
        from jobs.kit.run.explain import explain

        options = replace(options, run=replace(options.run, dry_run=DryRun.CLIENT))
        planned = partial(core.plan_to_explain, place)
        context.exit(explain(replace(job(options), plan=planned), options, place, core.explanation))
    context.exit(run(job(options), options))
