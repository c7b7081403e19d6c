"""The command `chores`: the list of jobs, one line each."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from traceback import walk_tb
from typing import Any

import click

from jobs import __version__
from jobs.kit.values.registry import JOBS, module
from jobs.kit.values.text import brief

# The module of each command. It has a `command`, and is imported only when that command runs.
COMMANDS = {job: f"jobs.{module(job)}" for job in JOBS} | {
    "status": "jobs.commands.status",
    "install-crds": "jobs.commands.install_crds",
    "manifests": "jobs.commands.manifests",
    "mirror-node": "jobs.commands.mirror_node",
    "mirror-cache": "jobs.commands.mirror_cache",
    "demo": "jobs.commands.demo",
    "completion": "jobs.commands.completion",
}


class _Lazy(click.Group):
    def list_commands(self, _context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        found: click.Command = import_module(COMMANDS[name]).command
        return found

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not context.resilient_parsing:
            _suggest(context, args[0])  # click suggests names only for a group that has its commands imported
        return super().resolve_command(context, args)

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if not args:
            return super().parse_args(context, args)  # raises a usage error whose message is the help
        with _arguments_escaped():
            return super().parse_args(context, args)

    def invoke(self, context: click.Context) -> Any:
        with _arguments_escaped():
            return super().invoke(context)


def _suggest(context: click.Context, name: str) -> None:
    """Raise a usage error with the command whose name is closest, if there is one."""
    from difflib import get_close_matches  # imported only for a wrong name: a probe runs the command twice a minute

    for near in get_close_matches(name, COMMANDS, n=1):
        context.fail(f"No such command {name!r}. Did you mean {near!r}?")


@contextmanager
def _arguments_escaped() -> Iterator[None]:
    """Escape the messages of usage errors, which quote arguments."""
    try:
        yield
    except click.UsageError as error:
        raise click.UsageError(brief(error.format_message()), error.ctx) from error


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="chores")
@click.pass_context
def chores(context: click.Context) -> None:
    """Scheduled chores for a Kubernetes cluster.

    Each command reads the cluster, computes the necessary changes, writes them, reports and exits. Run it as a
    CronJob, by hand or from a laptop. A job writes to the cluster of the current context, unless --dry-run is given.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":  # https://no-color.org
        context.color = False


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. It ends with 1 if its output cannot be written, for example to a full disk."""
    try:
        try:
            chores.main(args=arguments, prog_name="chores")
        finally:
            if sys.stdout:
                sys.stdout.flush()
    except OSError as error:
        where = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]
        if click.echo.__code__ not in where and where[-1] is not main.__code__:  # the error of a file or a socket
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes again at its end
        if error.errno != errno.EPIPE:
            click.echo(f"Error: the output cannot be written: {error.strerror}; free space, or redirect it", err=True)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
