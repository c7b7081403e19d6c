"""mirror-cache: guards the volume of a mirror's registry, so that a full volume or a damaged file breaks no pull.

It runs in each registry's pod with little memory, so it imports only click and the standard library.
"""

from __future__ import annotations

import re
from pathlib import Path

import click

from jobs.core.mirror_cache.cache import Cache
from jobs.core.mirror_cache.server import NAME, serve
from jobs.kit.run.log import configure
from jobs.kit.run.signals import exit_on_signals

VOLUME = "/var/lib/registry"
PORT = 5001
_DURATION = re.compile(r"(?=\d)(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?|(0)")


def _folder(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if value in ("", ".", "..") or "/" in value:
        raise click.BadParameter(f"{value!r} is not the name of a folder.")
    return value


def _seconds(_context: click.Context, _parameter: click.Parameter, value: str) -> float:
    found = _DURATION.fullmatch(value)
    if not found:
        raise click.BadParameter(f"{value!r} is not a duration; write it as 168h.")
    hours, minutes, seconds, _ = (int(each or 0) for each in found.groups())
    return hours * 3600.0 + minutes * 60 + seconds


@click.command(NAME)
@click.option(
    "--upstream", required=True, metavar="NAME", callback=_folder, help="The folder of the registry on the volume."
)
@click.option(
    "--ttl",
    default="0s",
    show_default=True,
    metavar="DURATION",
    callback=_seconds,
    help="Remove blobs that are older than this and that the registry has no record of; 0s removes none.",
)
@click.option(
    "--volume",
    default=VOLUME,
    show_default=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The mount path of the volume.",
)
@click.option("--port", default=PORT, show_default=True, type=click.IntRange(0, 65535), help="The HTTP port.")
def command(upstream: str, ttl: float, volume: Path, port: int) -> None:
    """Guard the volume of a mirror's registry. It runs next to the registry, in the same pod.

    GET /ready returns 503 while the volume has too little free space or too few inodes for layers. It also returns 503
    for 2 minutes after a layer was interrupted. Nodes then pull from the upstream.

    Removes blobs that do not match their digests, uploads that stopped, links without a digest, blobs that are older
    than the ttl, and a scheduler state that the registry cannot start with. Requests a blob that does not exist from
    the registry, to find out whether its upstream refuses it. GET / returns figures as JSON for mirror-audit. Runs
    until SIGTERM.

    \b
    Example:
      chores mirror-cache --upstream registry-1.docker.io --ttl 168h
    """
    configure("text")
    exit_on_signals()
    serve(Cache(volume, upstream, ttl), port)
