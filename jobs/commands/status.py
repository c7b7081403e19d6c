"""status: how an installation is: its jobs, what is wrong, and what to do. It only reads.

The jobs are evaluated as their dry runs do. The parts are in jobs/core/status.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import click
from msgspec.structs import replace

from jobs import __version__
from jobs.core.status.document import Observed, Target, document
from jobs.core.status.observe import Reads, why_unread
from jobs.core.status.problems import Evaluated
from jobs.core.status.text import text
from jobs.kit.run import flags
from jobs.kit.run.flags import PREFIX, Option
from jobs.kit.run.job import NoOptions
from jobs.kit.run.runner import evaluate
from jobs.kit.run.session import Session, in_session
from jobs.kit.values.errors import ApiError, ConfigurationError
from jobs.kit.values.model import ExitCode, RunOptions
from jobs.kit.values.registry import JOBS, OF_THE_WEB, REPAIR, module
from jobs.kit.values.resources import REGISTRY_MIRRORS, RULES
from jobs.kit.values.text import listed

NAME = "status"
_DEFAULT_NAMESPACE = "kube-chores"  # of the manifests
_MOST_NAMED = 5
# It reads no copies in full, probes nothing and plans no repair, whatever the CronJobs set.
_READ_ONLY = {"verify": "metadata", "probe": "none", "repair": False}


@click.command(NAME)
@flags.option("--check", settable=False, is_flag=True, help="Exit 3 if something is wrong.")
@flags.option(
    "--output",
    "-o",
    settable=False,
    default="text",
    show_default=True,
    type=click.Choice([*flags.FORMATS, "html"]),
    help="Format on stdout.",
)
@flags.option("--verbose", "-v", is_flag=True, help="Show each problem in full, on its own.")
@flags.run_options(
    NoOptions, "Namespace of the installation; default is the one that has its CronJobs.", reads_only=True
)
def command(context: click.Context, options: NoOptions) -> None:
    """Show each job, what is wrong, and what to do.

    Reads CronJobs, their Jobs and pods, and the statuses of custom resources. Evaluates all
    jobs but fetch-rates as a dry run does; sends no request to the web. Writes nothing. Without the permission to read
    something, a note names it. Exits 0 when done, also if something is wrong; 1 when a retry is useful, 2 when
    a person must act first, 3 with --check when something is wrong. With --check, 2 also when the
    status is unknown: CronJobs cannot be listed, or none is in the namespace.

    \b
    Examples:
      chores status                                  one screen for all jobs
      chores status -v                               each problem in full
      chores status --check -o json                  for scripts
      chores status -o html > status.html            a page for a browser
    """
    context.exit(in_session(NAME, options.run, lambda session: _status(context, session, options.run)))


def _status(context: click.Context, session: Session, options: RunOptions) -> ExitCode:
    found = _document(context, session)
    if options.output == "json":
        click.echo(json.dumps(found, indent=2))
    elif options.output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(found, sort_keys=False), nl=False)
    elif options.output == "html":
        from jobs.core.status.page import page

        click.echo(page(found), nl=False)
    else:
        click.echo("\n".join(text(found, verbose=options.verbose)))
    if not options.check:
        return ExitCode.DONE
    if found["unknown"]:
        return ExitCode.REFUSED
    return ExitCode.FINDINGS if found["problems"] else ExitCode.DONE


def _document(context: click.Context, session: Session) -> dict[str, Any]:
    reads = Reads(session.cluster())
    cronjobs = reads.cron_jobs(session.namespace)
    is_known = not reads.notes
    installations = sorted({each.namespace for each in cronjobs})
    namespace = _installation(session, installations)
    if namespace in installations and namespace not in (session.namespace, _DEFAULT_NAMESPACE):
        reads.notes.append(f"namespace {namespace} is shown: no other has CronJobs of kube-chores; -n selects another")
    cronjobs = reads.with_warnings(cronjobs, namespace)
    jobs, pods, warnings = reads.runs(namespace)
    now = session.transport.clock.now()
    rules, mirrors, rates = reads.custom(RULES), reads.custom(REGISTRY_MIRRORS), reads.rates()
    own = {each.name: each for each in cronjobs if each.namespace == namespace}
    connection = session.connection
    # Evaluated as in a pod of the installation.
    in_pod = replace(connection, in_pod=False, pod_name="", pod_namespace=namespace)
    there = replace(session, connection=in_pod, options=replace(session.options, namespace=namespace))
    evaluated: dict[str, Evaluated] = {}
    namespaces: list[str] = []
    for name in JOBS:
        is_installed = name in own or (name == "mirror-audit" and REPAIR in own)
        if name in OF_THE_WEB or (is_known and not is_installed):
            continue
        arguments = own[name].args[1:] if name in own else ()
        options = _options(context, name, arguments, reads.settings(namespace, name))
        evaluated[name], listed_namespaces = _evaluated(name, there, {**options, **_READ_ONLY})
        namespaces += listed_namespaces
    observed = Observed(
        Target(__version__, connection.endpoint.server, connection.context, namespace),
        cronjobs,
        jobs,
        pods,
        warnings,
        rules,
        mirrors,
        rates,
        namespaces,
        evaluated,
        reads.notes,
        is_known,
        reads.is_partial,
    )
    return document(observed, now)


def _installation(session: Session, namespaces: Sequence[str]) -> str:
    """Return the namespace of the installation: the given one, else the only one with CronJobs of kube-chores.

    Raises:
        ConfigurationError: there are several, and neither the context nor the manifests name one of them.
    """
    if session.options.namespace or not namespaces:
        return session.namespace
    for each in (session.namespace, _DEFAULT_NAMESPACE):
        if each in namespaces:
            return each
    if len(namespaces) == 1:
        return namespaces[0]
    names = listed(namespaces, _MOST_NAMED)
    raise ConfigurationError(f"kube-chores is installed in namespaces {names}; choose one with -n")


def _options(
    context: click.Context, job: str, arguments: Sequence[str], settings: Mapping[str, str]
) -> Mapping[str, Any]:
    """Return the options of a job by their names, as its CronJob sets them: arguments, settings and defaults.

    A value that is not valid is ignored: the run of the job reports it.
    """
    group = context.find_root().command
    assert isinstance(group, click.Group)
    command = group.get_command(context, job)
    assert command
    given = []
    for option in command.params:
        if isinstance(option, Option) and option.variable in option.variables and not option.is_flag:
            name = option.variable.removeprefix(PREFIX)
            given += [f"{option.flag}={settings[name]}"] if name in settings else []
    # click keeps the option --help of a command, with the names of its first context
    help_names = context.help_option_names
    return command.make_context(job, [*given, *arguments], help_option_names=help_names, resilient_parsing=True).params


def _evaluated(name: str, session: Session, given: Mapping[str, Any]) -> tuple[Evaluated, list[str]]:
    """Return the evaluation of a job with the options `given`, and the active namespaces if it lists all.

    Of the options of all jobs, only -n is that of the job.
    """
    job = import_module(f"jobs.{module(name)}")
    own = {each: given[each] for each in job.Options.__struct_fields__ if each != "run"}
    try:
        options = job.Options(run=replace(session.options, namespace=given["namespace"], verbose=True), **own)
        plan, observed = evaluate(job.job(options), session, options)
    except (ApiError, ConfigurationError) as error:
        return Evaluated(note=f"not evaluated: {why_unread(error)}"), []
    namespaces = observed.namespaces if name == "sync-copies" else ()
    return Evaluated.of(plan), sorted(each.name for each in namespaces if each.active)
