"""sync-copies: copy labelled ConfigMaps and Secrets to every namespace that a CopyratorRule targets.

The desired copies of all rules are computed first. They are compared with a metadata-only list of the copies that
exist: each copy has a fingerprint of what was written, and its managedFields show whether somebody changed it since.
The parts are in jobs/core/sync_copies: rules, observed, desired, mistakes, evaluate, status.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from jobs.core.sync_copies.observe import observe
from jobs.core.sync_copies.observed import KINDS, NAME, Settings
from jobs.core.sync_copies.plan import plan
from jobs.core.sync_copies.status import status_updates
from jobs.kit.api.connect import Connection
from jobs.kit.run import options
from jobs.kit.run.runner import Job, run
from jobs.kit.values.model import DryRun
from jobs.kit.values.resources import RULES


def settings(
    connection: Connection,
    run_options: options.RunOptions,
    rule_name: str | None = None,
    filenames: Sequence[str] = (),
    verify: str = "metadata",
    max_deletes: int | None = None,
) -> Settings:
    """Return the settings, with the rules if they come from files.

    Raises:
        ConfigurationError: a rule in the files is not valid; lists all problems of all rules.
    """
    rules = None
    if filenames:
        from jobs.core.sync_copies.rule_files import rules_from_files

        rules = rules_from_files(filenames, connection.namespace, rule_name)
    return Settings(
        connection.namespace,
        rule_name,
        rules,
        verify_content=verify == "content",
        dry_run=run_options.dry_run is not DryRun.NONE,
        diff=run_options.diff,
        verbose=run_options.verbose,
        max_deletes=max_deletes,
    )


@click.command(NAME)
@options.option(
    "--rule-name", env=("RULE_NAME",), metavar="NAME", help="Apply only this rule; the others are still read."
)
@options.option(
    "--filename",
    "-f",
    "filenames",
    multiple=True,
    metavar="FILE",
    help="Read rules from this file, folder or - (stdin) instead of the cluster. Implies a dry run, which shows no "
    "deletions. Needs no CRD.",
)
@options.option(
    "--verify",
    default="metadata",
    show_default=True,
    type=click.Choice(["metadata", "content"]),
    help="How to compare copies: by fingerprint and managedFields (metadata), or by reading all of them (content).",
)
@options.max_deletes("orphaned copies of a kind", " If set, also deletes copies of rules that may be mistaken.")
@options.run_options("Namespace of the rules. Default is the pod's own namespace, or the context's.")
@click.pass_context
def command(
    context: click.Context,
    options: options.RunOptions,
    rule_name: str | None,
    filenames: tuple[str, ...],
    verify: str,
    max_deletes: int | None,
) -> None:
    """Copy Secrets and ConfigMaps as CopyratorRules define.

    Creates missing copies, repairs changed copies, and deletes copies that no rule requires. Objects that are not
    managed by kube-chores stay untouched. A second run in a row writes nothing. Exits 0 when done, 1 when a retry is
    useful, 2 when a person must act first, 3 with --check when there are findings, 4 when the deletion brake or a rule
    that may be mistaken blocked deletions.

    \b
    Examples:
      chores sync-copies --dry-run --diff            show what would change, and how
      chores sync-copies -n kube-chores              apply the rules of that namespace
      chores sync-copies -f rules.yaml -o json       try rules before you apply them
    """
    if filenames and options.dry_run is DryRun.NONE:
        options = replace(options, dry_run=DryRun.CLIENT)
    job = Job(
        NAME,
        {**{resource.kind: resource for resource in KINDS.values()}, RULES.kind: RULES},
        lambda connection: settings(connection, options, rule_name, filenames, verify, max_deletes),
        observe,
        plan,
        status_updates,
        max_deletes,
        needs_namespace=not filenames,
    )
    context.exit(run(job, options))
