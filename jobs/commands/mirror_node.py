"""mirror-node: configures this node's containerd to use a mirror, and keeps that configuration.

It runs on each node in a pod with little memory. So it imports only click and the standard library.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import click

from jobs.core.mirror_node.files import DeletedError, HostsFile, configuration, reconcile
from jobs.core.mirror_node.hosts import CERTS, hosts_toml, is_host, is_name, is_server
from jobs.kit.run.log import configure, log
from jobs.kit.run.signals import exit_on_signals, sleep

NAME = "mirror-node"
INTERVAL_SECONDS = 30.0


def serve(file: HostsFile, state: Path | None = None) -> NoReturn:
    """Reconcile the file until a signal comes. Leave the file then, for the next pod of a rollout.

    `state` gets the problems that are left after each check. Probes read it. It does not exist before the first check.
    """
    exit_on_signals()
    if state:
        state.unlink(missing_ok=True)  # of a container before this one
    if unknown := configuration(file).unknown:
        log.info("not known whether pulls use the mirror: %s", unknown)
    reported = ""
    while True:
        try:
            problem = reconcile(file).encode("utf-8", "backslashreplace").decode()  # names of files need not be UTF-8
        except DeletedError as error:
            log.warning("%s; the container restarts", error)
            sys.exit(1)
        if problem and problem != reported:
            log.warning("%s; next attempt in %g seconds", problem, INTERVAL_SECONDS)
        reported = problem
        if state:
            new = state.with_name(f"{state.name}.new")
            new.write_text(problem, "utf-8")
            new.replace(state)
        sleep(INTERVAL_SECONDS)


def _checked(is_right: Callable[[str], bool], what: str) -> Callable[..., str | None]:
    def check(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
        if value is not None and not is_right(value):
            raise click.BadParameter(f"{value!r} {what}.")
        return value

    return check


@click.command(NAME)
@click.option(
    "--name",
    required=True,
    metavar="NAME",
    callback=_checked(is_name, "cannot be the name of a mirror"),
    help="The name of the RegistryMirror.",
)
@click.option(
    "--host",
    required=True,
    metavar="HOST",
    callback=_checked(is_host, "is not the host of a registry"),
    help="The registry's host in image names, with its port if there is one.",
)
@click.option(
    "--mirror",
    metavar="URL",
    callback=_checked(is_server, "is not the URL of a server"),
    help="The URL of the mirror.",
)
@click.option(
    "--upstream",
    metavar="URL",
    callback=_checked(is_server, "is not the URL of a server"),
    help="The URL of the registry that containerd pulls from if the mirror does not respond; default: none.",
)
@click.option(
    "--certs-dir",
    default=CERTS,
    show_default=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The folder that containerd's config_path is set to.",
)
@click.option(
    "--containerd-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The mount path of the node's /etc/containerd, to check that containerd reads --certs-dir; default: no check.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The file that gets the problems that are left after each check, for probes; default: none.",
)
@click.option("--remove", is_flag=True, help="Remove the files that were written for this RegistryMirror.")
@click.option(
    "--check", is_flag=True, help="Change nothing; exit 1 if the file needs a change or containerd does not read it."
)
@click.pass_context
def command(
    context: click.Context,
    name: str,
    host: str,
    mirror: str | None,
    upstream: str | None,
    certs_dir: Path,
    containerd_dir: Path | None,
    state: Path | None,
    remove: bool,
    check: bool,
) -> None:
    """Configure containerd on a node to use a mirror. The DaemonSets of mirrors run this command.

    Writes hosts.toml in the folder of the registry's host, and removes the files that it wrote for earlier hosts of the
    mirror. Checks the files every 30 seconds, and runs until SIGTERM. It never changes a hosts.toml that kube-chores
    did not write.

    \b
    Example:
      chores mirror-node --name hub --host docker.io --mirror http://10.0.0.7:5000 --check
    """
    if not mirror and not remove:
        raise click.UsageError("--mirror or --remove is required")
    configure("text")
    desired = None if remove or not mirror else hosts_toml(name, mirror, upstream or "")
    file = HostsFile(name, host, certs_dir, desired, containerd_dir)
    if not check:
        serve(file, state)
    try:
        problem = reconcile(file, change=False)
    except DeletedError as error:
        problem = str(error)
    if problem:
        log.error("%s", problem)
        context.exit(1)
