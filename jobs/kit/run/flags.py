"""The command-line flags of all jobs, as click decorators, and their values as RunOptions.

Most can be set by an environment variable, CHORES_NAME for --name. Messages name those that are set.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from functools import partial, wraps
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from jobs.kit.run import log
from jobs.kit.values.model import DryRun, ObjectKey, RunOptions, Severity
from jobs.kit.values.registry import CLUSTERS, JOBS, REPAIR, SETTINGS
from jobs.kit.values.resources import is_label, is_name

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
PREFIX = "CHORES_"
# The CronJob sets it, and a settings ConfigMap cannot: its keys get the prefix.
_OF_CRONJOBS = {"--clusters": "KUBE_CHORES_CLUSTERS"}
F = TypeVar("F", bound=Callable[..., Any])


def variable(flag: str) -> str:
    """Return the environment variable of an option, as in CHORES_DRY_RUN for --dry-run."""
    return _OF_CRONJOBS.get(flag) or PREFIX + flag.lstrip("-").replace("-", "_").upper()


class Option(click.Option):
    """An option with an environment variable CHORES_NAME, and those in `env`, shown in --help.

    If it is not `settable` it has no CHORES_NAME, so that who writes a settings ConfigMap cannot set it:
    docs/security.md#settings-configmaps. Errors name the ConfigMaps that can have its value.
    """

    def __init__(
        self, names: Sequence[str], *, env: Sequence[str] = (), settable: bool = True, **settings: Any
    ) -> None:
        self.flag = next(each for each in names if each.startswith("--"))
        self.variable = variable(self.flag)
        self.variables = [self.variable, *env] if settable else [*env]
        super().__init__(names, envvar=self.variables or None, show_envvar=bool(self.variables), **settings)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Return the option for an error message."""
        return super().get_error_hint(ctx) + (origin(ctx, self) if ctx else "")


option = partial(click.option, cls=Option)


def run_options(
    into: Callable[..., Any],
    namespace: str | None = None,
    formats: Sequence[str] = FORMATS,
    *,
    reads_only: bool = False,
    namespace_env: tuple[str, ...] = (),
) -> Callable[[F], F]:
    """Add the shared options to a command, which gets all of its options as one argument.

    `into` is the class of it: a Struct with `run`, the RunOptions, and a field for each option of the command.
    `namespace` is the help of --namespace; None: the job has no such option. `namespace_env` are its environment
    variables. `formats` are the values of --output. A command with `reads_only` has no options about writes, and its
    own --check, --output and --verbose.
    """

    def add_to(command: F) -> F:
        @wraps(command)
        def with_options(**given: Any) -> Any:
            shared = {name: given.pop(name) for name in RunOptions.__struct_fields__ if name in given}
            dry_run = DryRun(shared.pop("dry_run", DryRun.CLIENT.value))
            if dry_run is DryRun.NONE and (shared["check"] or shared.get("filenames")):
                dry_run = DryRun.CLIENT
            context = click.get_current_context()
            options = RunOptions(dry_run=dry_run, given=_given_options(context), **shared)
            log.configure(options.log_format)
            report_variables(context)
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


def where(_context: click.Context, _parameter: click.Parameter, value: str | None) -> ObjectKey | None:
    """Return the namespace, or the object there, of the option that explains it.

    It has no kind: objects of several kinds may have the name.
    """
    namespace, slash, name = (value or "").partition("/")
    if value is not None and not (is_label(namespace) and is_name(name) == bool(slash)):
        raise click.BadParameter(f"{value!r} is not NAMESPACE or NAMESPACE/NAME.")
    return None if value is None else ObjectKey("", name, namespace)


def explain(text: str, metavar: str = "NAMESPACE[/NAME]", callback: Callable[..., Any] = where) -> Callable[[F], F]:
    """Return the option that explains a namespace, or an object there, instead of a run. `text` is its help."""
    return option("--explain", settable=False, metavar=metavar, callback=callback, help=text)


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


def named(context: click.Context, name: str) -> str:
    """Return the name of an option for a message, with its variable if the environment sets it."""
    option = next(each for each in _options(context.command) if each.name == name)
    return f"{option.flag} ({option.variable}){origin(context, option)}" if _is_set(context, name) else option.flag


def origin(context: click.Context, option: Option) -> str:
    """Return the key and the ConfigMaps of a variable that sets an option in a pod; else an empty string."""
    is_repair = context.get_parameter_source("repair") is click.core.ParameterSource.COMMANDLINE
    account = REPAIR if is_repair else CLUSTERS if context.params.get("clusters") else context.info_name
    own = f"{account}-settings"
    is_set = (
        option.variable.startswith(PREFIX) and option.variable in os.environ and _is_set(context, option.name or "")
    )
    if not is_set or not _is_in_pod() or own not in SETTINGS:  # other commands have no ConfigMap
        return ""
    return f" from key {option.variable.removeprefix(PREFIX)} of ConfigMap {own} or kube-chores-settings"


def report_variables(context: click.Context) -> None:
    """Log which variable makes the run a dry run, and warn of each CHORES_NAME that sets no option."""
    job, options = context.info_name, _options(context.command)
    for name in ("dry_run", "check"):
        if _is_set(context, name) and context.params[name] not in (False, DryRun.NONE.value):
            log.log.info("%s: the environment sets %s: this is a dry run, which writes nothing", job, _value(name))
    for option in options:
        used = next((each for each in option.variables if each in os.environ), "")
        if used and not used.startswith(PREFIX) and _is_set(context, option.name or "") and not _is_of_the_pod(used):
            log.log.info("%s: the environment sets %s=%s", job, used, os.environ[used])
    known = {each for option in options for each in option.variables}
    unknown = sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)
    if not unknown:
        return
    others = {option.variable for option in _options_of_all_jobs(context)}
    flags = {option.variable: option.flag for option in options}
    for name in unknown:
        if name in flags or name not in others:
            log.log.warning("%s: %s has no effect: %s", job, name, _reason(name, flags, known | others - flags.keys()))


def _is_of_the_pod(name: str) -> bool:
    """Whether the CronJob sets this variable in each of its pods."""
    return name in ("NAMESPACE", *_OF_CRONJOBS.values()) and _is_in_pod()


def _is_in_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ


def _value(name: str) -> str:
    found = variable(name.replace("_", "-"))
    return f"{found}={os.environ[found]}"


def _reason(name: str, flags: dict[str, str], known: Collection[str]) -> str:
    if name in flags:
        return f"{flags[name]} is only a flag; add it to the arguments"
    from difflib import get_close_matches  # imported only for a wrong name

    similar = name.removeprefix(PREFIX).upper().replace("-", "_")
    near = get_close_matches(similar, [each.removeprefix(PREFIX) for each in sorted(known)], n=1)
    return "no job has this option" + (f"; did you mean {PREFIX}{near[0]}?" if near else "; see --help")


def _is_set(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is click.core.ParameterSource.ENVIRONMENT


def _options(command: click.Command | None) -> Sequence[Option]:
    return [each for each in command.params if isinstance(each, Option)] if command else []


def _options_of_all_jobs(context: click.Context) -> Sequence[Option]:
    """Return the options of all jobs, which may share ConfigMap kube-chores-settings."""
    root = context.find_root()
    if not isinstance(root.command, click.Group):
        return []
    return [option for job in JOBS for option in _options(root.command.get_command(root, job))]


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
