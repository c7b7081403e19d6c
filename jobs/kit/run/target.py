"""The API server that a run writes to: the transport to it, and messages about it and its context."""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Callable
from datetime import timedelta
from itertools import chain

from jobs import __version__
from jobs.kit.api.answers import error_of
from jobs.kit.api.cluster import Cluster
from jobs.kit.api.connect import Connection
from jobs.kit.api.transport import RETRY_SECONDS, Transport
from jobs.kit.run import log
from jobs.kit.run.variables import variable
from jobs.kit.values.errors import ConfigurationError, UnreachableError
from jobs.kit.values.model import Brake, DryRun, RunOptions
from jobs.kit.values.resources import NAMESPACES
from jobs.kit.values.text import Lines, visible

_UNREACHED_SECONDS = 2.0  # with a user at a terminal: how long to retry an API server that accepts no connection


def user_agent(job: str) -> str:
    """Return the User-Agent header of a job's requests."""
    return f"kube-chores/{__version__} ({job})"


def create_transport(job: str, connection: Connection, stopping: Callable[[], bool]) -> Transport:
    """Return the transport to the API server. At a terminal, it gives up on an unreachable server sooner."""

    def announce(error: str) -> None:
        log.log.warning("%s: the run tries again for %g seconds", error, RETRY_SECONDS)

    if sys.stderr.isatty():
        return Transport(connection.endpoint, user_agent(job), stopping=stopping, unreached_seconds=_UNREACHED_SECONDS)
    return Transport(connection.endpoint, user_agent(job), stopping=stopping, on_unreached=announce)


def check_namespace(cluster: Cluster, connection: Connection, options: RunOptions) -> None:
    """Check that the namespace that was given exists. A run without the right to get it continues.

    Raises:
        ConfigurationError: the namespace does not exist.
    """
    own = connection.namespace if connection.in_pod else None
    if options.filenames or options.namespace in (None, own):  # resources of files need no namespace
        return
    for answer in cluster.read([(NAMESPACES, "", options.namespace, False)]):
        error = error_of(answer)
        if error and error.is_missing_namespace:
            raise ConfigurationError(f"namespace {options.namespace} does not exist; check --namespace")


def log_target(name: str, connection: Connection, options: RunOptions) -> None:
    """Log the context and the server that a run outside of a pod writes to."""
    if options.dry_run is DryRun.NONE and not connection.in_pod:
        acting = f", as user {connection.as_user}" if connection.as_user else ""
        log.log.info("%s: writing to context %s, %s%s", name, connection.context, connection.endpoint.server, acting)


# By parts of the messages of libcurl and OpenSSL.
_CHECKS = {
    ("certificate is not yet valid", "certificate has expired"): (
        "check the clock of this machine, then the certificate of the API server"
    ),
    ("certificate", "SSL", "TLS"): ("check that the certificate authority of this client is that of the API server"),
    ("Could not resolve",): "check the name of the API server, and the DNS",
}


def unreachable_message(connection: Connection, error: UnreachableError) -> str:
    """Return why there is no connection, and what to check."""
    check = next((check for causes, check in _CHECKS.items() if any(each in str(error) for each in causes)), "")
    if connection.in_pod:
        check = check or "check that network policies let this pod reach the API server"
        return f"no connection to the cluster: {error}; {check}"
    check = check or "check that the cluster is running, that the context is correct, and check the VPN or proxy"
    return f"no connection to the cluster of context {connection.context}: {error}; {check}"


def clock_message(ahead: timedelta) -> str:
    """Return that the clock of this machine is wrong, and what a run does."""
    word = "ahead of" if ahead > timedelta() else "behind"
    difference = timedelta(seconds=round(abs(ahead).total_seconds()))
    return f"the clock of this machine is {difference} {word} that of the API server, which the run uses; correct it"


def brake_message(job: str, cronjob: str, brake: Brake, connection: Connection, options: RunOptions) -> Lines:
    """Return what a brake blocked, and the command that allows it in one run."""
    chosen = [(brake.option, brake.value), *([brake.only] if brake.only else [])]
    if connection.in_pod:
        name = f"{cronjob}-lift-{secrets.token_hex(3)}"
        variables = " ".join(f"{variable(option)}={value}" for option, value in chosen)
        command = (
            f"kubectl create job {name} --from=cronjob/{cronjob} -n {connection.namespace}"
            f" --dry-run=client -o yaml | kubectl set env --local -f - {variables} -o yaml"
            " | kubectl create -f -"
        )
    else:
        # The kubeconfig's current context may change before the command runs.
        context = ["--context", connection.context] if connection.context and not options.context else []
        given = [part for words in options.given if words[0] not in dict(chosen) for part in words]
        command = shlex.join(["chores", job, *given, *context, *chain.from_iterable(chosen)])
    return Lines(f"{visible(brake.message)}; if the blocked change is intended, run once:\n  {visible(command)}")
