"""The environment variables of options, CHORES_NAME for --name, and messages about those that are set."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any

import click

from jobs.kit.run import log
from jobs.kit.values.model import DryRun
from jobs.kit.values.registry import JOBS, REPAIR, SETTINGS

PREFIX = "CHORES_"


def variable(flag: str) -> str:
    """Return the environment variable of an option, as in CHORES_DRY_RUN for --dry-run."""
    return PREFIX + flag.lstrip("-").replace("-", "_").upper()


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


def named(context: click.Context, name: str) -> str:
    """Return the name of an option for a message, with its variable if the environment sets it."""
    option = next(each for each in _options(context.command) if each.name == name)
    return f"{option.flag} ({option.variable}){origin(context, option)}" if _is_set(context, name) else option.flag


def origin(context: click.Context, option: Option) -> str:
    """Return the key and the ConfigMaps of a variable that sets an option in a pod; else an empty string."""
    is_repair = context.get_parameter_source("repair") is click.core.ParameterSource.COMMANDLINE
    own = f"{REPAIR if is_repair else context.info_name}-settings"
    is_set = option.variable in os.environ and _is_set(context, option.name or "")
    if not is_set or not _is_in_pod() or own not in SETTINGS:  # other commands have no ConfigMap
        return ""
    return f" from key {option.variable.removeprefix(PREFIX)} of ConfigMap {own} or kube-chores-settings"


def report(context: click.Context) -> None:
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
    return name == "NAMESPACE" and _is_in_pod()


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
