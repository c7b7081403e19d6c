"""The command-line flags of all jobs, as click decorators, and their values as RunOptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from jobs.kit.run import log, variables
from jobs.kit.values.model import DryRun, ObjectKey, RunOptions, Severity
from jobs.kit.values.names import is_label, is_name

# Not in messages that show a command: of the output or of writing, or with a URL that may contain a password.
_NOT_GIVEN = (
    "dry_run",
    "diff",
    "check",
    "output",
    "min_severity",
    "verbose",
    "log_format",
    "push_gateway",
    "metrics_file",
)
FORMATS = ("text", "json", "yaml")
F = TypeVar("F", bound=Callable[..., Any])


option = partial(click.option, cls=variables.Option)


def run_options(
    into: Callable[..., Any],
    namespace: str | None = None,
    formats: Sequence[str] = FORMATS,
    *,
    reads_only: bool = False,
    namespace_env: tuple[str, ...] = (),
) -> Callable[[F], F]:
    """Add the shared options to a command, which gets all of its options as one argument.

    `into` is the class of it: a dataclass with `run`, the RunOptions, and a field for each option of the command.
    `namespace` is the help of --namespace; None: the job has no such option. `namespace_env` are its environment
    variables. `formats` are the values of --output. A command with `reads_only` has no options about writes, and its
    own --check, --output and --verbose.
    """

    def add_to(command: F) -> F:
        @wraps(command)
        def with_options(**given: Any) -> Any:
            shared = {name: given.pop(name) for name in RunOptions.__dataclass_fields__ if name in given}
            dry_run = DryRun(shared.pop("dry_run", DryRun.CLIENT.value))
            if dry_run is DryRun.NONE and (shared["check"] or shared.get("filenames")):
                dry_run = DryRun.CLIENT
            context = click.get_current_context()
            options = RunOptions(dry_run=dry_run, given=_given_options(context), **shared)
            log.configure(options.log_format)
            variables.report(context)
            return command(context, into(run=options, **given))

        of_runs = [] if reads_only else [*_OF_RUNS, _output(formats), _VERBOSE]
        own = [_namespace_option(namespace, namespace_env)] if namespace else []
        for add in reversed([*of_runs, *_SHARED, *own]):
            with_options = add(with_options)
        return with_options  # type: ignore[return-value]

    return add_to


def _given_options(context: click.Context) -> tuple[tuple[str, ...], ...]:
    """Return the options of the command line that a command needs to do the same without a dry run."""
    given: list[tuple[str, ...]] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        typed = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if typed and name not in _NOT_GIVEN and isinstance(parameter, click.Option):
            value = context.params[name]
            for each in value if parameter.multiple else [value]:
                given.append((parameter.opts[0],) if parameter.is_flag else (parameter.opts[0], str(each)))
    return tuple(given)


def _namespace_option(text: str, env: tuple[str, ...]) -> Callable[[Any], Any]:
    return option("--namespace", "-n", env=env, settable=False, metavar="NAME", callback=_namespace, help=text)


def min_severity(text: str) -> Callable[[F], F]:
    """Return the option for the least severity in the report. `text` is its help."""
    return option(
        "--min-severity",
        type=click.Choice([each.value for each in Severity]),
        callback=lambda _context, _parameter, value: Severity(value) if value else None,
        help=text,
    )


def max_deletes(objects: str, more: str = "") -> Callable[[F], F]:
    """Return the option for the limit of the deletion brake. `objects`: what the job deletes; `more`: more help."""
    return option(
        "--max-deletes",
        type=click.IntRange(min=0),
        metavar="N",
        help=f"Delete at most N {objects}; if there are more, delete none. Default is 10, or a tenth of the desired "
        f"ones if that is more.{more}",
    )


def filenames(text: str) -> Callable[[F], F]:
    """Return the option that reads custom resources from files. It implies a dry run. `text` is its help."""
    return option("--filename", "-f", "filenames", settable=False, multiple=True, metavar="FILE", help=text)


def metrics(command: F) -> F:
    """Add the options for metrics to a command that is a job."""
    for add in (
        option(
            "--metrics-file",
            metavar="FILE",
            callback=_metrics_file,
            help="Write metrics of the run to this file, for the textfile collector of node_exporter. The name must end"
            " in .prom.",
        ),
        option(
            "--push-gateway",
            metavar="URL",
            callback=_push_gateway,
            help="Push metrics of the run to this Prometheus Pushgateway. If that fails, the run logs a warning.",
        ),
    ):
        command = add(command)
    return command


def explain(text: str) -> Callable[[F], F]:
    """Return the option that explains a namespace, or an object there, instead of a run. `text` is its help.

    Its value has no kind: objects of several kinds may have the name.
    """
    return option("--explain", settable=False, metavar="NAMESPACE[/NAME]", callback=_where, help=text)


def _where(_context: click.Context, _parameter: click.Parameter, value: str | None) -> ObjectKey | None:
    namespace, slash, name = (value or "").partition("/")
    if value is not None and not (is_label(namespace) and is_name(name) == bool(slash)):
        raise click.BadParameter(f"{value!r} is not NAMESPACE or NAMESPACE/NAME.")
    return None if value is None else ObjectKey("", name, namespace)


def url(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """Validate the value of an option that is a URL; None is an option that is not set."""
    try:
        parts = urlsplit(value or "")
        if value is None or (parts.scheme in ("http", "https") and parts.hostname and parts.port != 0):
            return value
    except ValueError:
        pass
    raise click.BadParameter("the value is not an http or https URL.")  # not shown: any part of it may be a password


def _push_gateway(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    parts = urlsplit(url(context, parameter, value) or "")
    if "@" in parts.path:
        raise click.BadParameter("the URL has @ in its path; in a password, replace / by %2F.")
    if {"?", "#"}.intersection(value or ""):
        raise click.BadParameter("the URL has a query or a fragment; use one such as http://pushgateway:9091.")
    return value


def _metrics_file(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.endswith(".prom"):
        raise click.BadParameter(f"{value!r} does not end in .prom, so the textfile collector would ignore it.")
    return value


def _namespace(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not is_label(value):
        raise click.BadParameter(f"{value!r} is not a valid namespace name.")
    return value


def _output(formats: Sequence[str]) -> Callable[[Any], Any]:
    return option(
        "--output",
        "-o",
        default="text",
        show_default=True,
        type=click.Choice(formats),
        help="Format of the report on stdout.",
    )


_VERBOSE = option("--verbose", "-v", is_flag=True, help="Also show what is unchanged, and what is skipped and why.")
_OF_RUNS: tuple[Callable[[Any], Any], ...] = (
    option(
        "--dry-run",
        is_flag=False,
        flag_value=DryRun.CLIENT.value,
        default=DryRun.NONE.value,
        type=click.Choice([mode.value for mode in DryRun]),
        help="Change nothing. client (or no value) needs only read permissions; with server, the API server validates "
        "each write.",
    ),
    option("--diff", is_flag=True, help="Show what changes, field by field; values of Secrets stay hidden."),
    option("--check", is_flag=True, help="Dry run that exits 3 if there are findings."),
)
_SHARED: tuple[Callable[[Any], Any], ...] = (
    option(
        "--log-format",
        default="text",
        show_default=True,
        type=click.Choice(["text", "json"]),
        help="Format of the messages on stderr.",
    ),
    option(
        "--kubeconfig",
        settable=False,
        metavar="FILE",
        help="Kubeconfig to use; default: $KUBECONFIG, else ~/.kube/config, else the pod's service account.",
    ),
    option("--context", settable=False, metavar="NAME", help="Context of the kubeconfig to use."),
    option(
        "--as",
        "as_user",
        settable=False,
        metavar="USER",
        help="User to impersonate, or system:serviceaccount:NAMESPACE:NAME.",
    ),
    option(
        "--as-group",
        settable=False,
        metavar="GROUP",
        multiple=True,
        help="Group to impersonate; repeat it for several.",
    ),
)
