"""The hosts.toml that configures containerd to use a mirror: its folder, its content and its owner. Pure functions.

https://github.com/containerd/containerd/blob/main/docs/hosts.md
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple
from urllib.parse import urlsplit

from jobs.kit.values import resources

FILE = "hosts.toml"
# A client without an answer sends a second packet after one second: this timeout allows for the loss of the first.
# containerd reads the setting since 2.1. Earlier versions ignore it and wait 30 seconds where nothing answers.
_DIAL_TIMEOUT = "2s"
FOLDER = "/etc/containerd"
CERTS = f"{FOLDER}/certs.d"
# The code of a problem: pulls do not use the mirror. The audit finds it in the output of a probe.
BYPASSED = "mirror-bypassed"
_HOST = re.compile(rf"(?P<name>{resources.LABEL}(\.{resources.LABEL})*)(:(?P<port>[1-9][0-9]{{0,4}}))?")
_URL = re.compile(r"https?://[-\w.~:/%+@,;=\[\]]+", re.ASCII)
_MARK = re.compile(r"# Written by kube-chores for registrymirror (\S+): .*")
_LAST_PORT = 65535
_LONGEST_HOST = 253  # the folder's name has one character more; file systems allow 255


class Comparison(NamedTuple):
    """The problem with a file, empty if there is none, and whether a write or a removal of the file corrects it."""

    problem: str = ""
    is_correctable: bool = False


def is_host(text: str) -> bool:
    """Whether an image's name can begin with this host, and a folder can have its name."""
    found = _HOST.fullmatch(text) if len(text) <= _LONGEST_HOST else None
    return found is not None and int(found["port"] or 1) <= _LAST_PORT


def is_name(text: str) -> bool:
    """Whether a RegistryMirror whose resources can be created can have this name."""
    return resources.is_name(text) and "." not in text


def is_server(text: str) -> bool:
    """Whether this is a URL of a server that containerd uses whole: it drops a user, a query and a fragment."""
    if not _URL.fullmatch(text):
        return False
    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and parts.username is None and parts.port != 0
    except ValueError:  # brackets without an address, a port that is not a number
        return False


def folders(host: str) -> tuple[str, ...]:
    """Return the folders that containerd tries for a host, in its order: it reads only the first that exists."""
    name, colon, port = host.partition(":")
    return (f"{name}_{port}_", host) if colon else (host,)


def hosts_toml(name: str, mirror: str, upstream: str = "") -> str:
    """Return the content of the file: pull from the mirror first, then from the upstream, if there is one.

    Without an upstream the mirror is the `server` too, or containerd would pull from the host itself. The mirror has a
    [host] table nevertheless: containerd 1 rejects a file without one, and pulls from the host itself.
    """
    return (
        f"# Written by kube-chores for registrymirror {name}: changes to this file are overwritten.\n"
        f"server = {json.dumps(upstream or mirror)}\n"  # for printable ASCII, a string of JSON is one of TOML
        "\n"
        f"[host.{json.dumps(mirror)}]\n"
        'capabilities = ["pull", "resolve"]\n'
        f'dial_timeout = "{_DIAL_TIMEOUT}"\n'
    )


def written_for(text: str) -> str | None:
    """Return the RegistryMirror that kube-chores wrote this file for, or None if kube-chores did not write it."""
    found = _MARK.match(text)
    return found[1] if found else None


def compare(found: str | None, desired: str | None, name: str) -> Comparison:
    """Compare a file's content with the desired content for the RegistryMirror `name`.

    `found` is None if there is no file. `desired` is None if the mirror needs no file: then only its own is removed.
    """
    if found == desired:
        return Comparison()
    if found is None:
        return Comparison("does not exist", is_correctable=True)
    owner = written_for(found)
    if desired is None:
        return Comparison("still exists", is_correctable=True) if owner == name else Comparison()
    if owner is None:
        return Comparison(
            "was not written by kube-chores and is not changed; move it away if the node should use the mirror"
        )
    problem = "differs from its desired content" if owner == name else f"was written for registrymirror {owner}"
    return Comparison(problem, is_correctable=True)
