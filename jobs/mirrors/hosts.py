"""hosts.toml, by which a node's containerd knows a mirror: where it is, what it says and whose it is. Pure.

https://github.com/containerd/containerd/blob/main/docs/hosts.md
"""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import NamedTuple
from urllib.parse import urlsplit

FILE = "hosts.toml"
# Who connects in vain sends a second packet after one second: this outlasts the loss of the first. containerd knows
# the setting since 2.1, passes over it before, and then waits 30 seconds where nothing answers at all.
_DIAL_TIMEOUT = "2s"
_LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"(?P<name>{_LABEL}(\.{_LABEL})*)(:(?P<port>[1-9][0-9]{{0,4}}))?")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_URL = re.compile(r"https?://[-\w.~:/%+@,;=\[\]]+", re.ASCII)
_OURS = re.compile(r"# Written by kube-chores for registrymirror (\S+): .*")
_LAST_PORT = 65535
_LONGEST_HOST = 253  # as a folder, it has one character more; file systems take 255


class Todo(Enum):
    """What makes a file as it should be."""

    NOTHING = "nothing"
    WRITE = "write"
    REMOVE = "remove"


class Verdict(NamedTuple):
    """What is to do about a file, and what is wrong with it, if anything is."""

    todo: Todo
    problem: str = ""


def is_host(text: str) -> bool:
    """Whether the names of images can begin with this host, and a folder have its name."""
    found = _HOST.fullmatch(text) if len(text) <= _LONGEST_HOST else None
    return found is not None and int(found["port"] or 1) <= _LAST_PORT


def is_name(text: str) -> bool:
    """Whether a RegistryMirror can have this name and what it asks for."""
    return _NAME.fullmatch(text) is not None


def is_server(text: str) -> bool:
    """Whether this is the URL of a server as containerd takes it: it would drop a user, a query and a fragment."""
    if not _URL.fullmatch(text):
        return False
    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and parts.username is None and parts.port != 0
    except ValueError:  # brackets that hold no address, a port that is none
        return False


def folders(host: str) -> tuple[str, ...]:
    """Return the folders that containerd tries for a host, in its order: the first that is there is the only one."""
    name, colon, port = host.partition(":")
    return (f"{name}_{port}_", host) if colon else (host,)


def hosts_toml(name: str, mirror: str, upstream: str = "") -> str:
    """Return what the file says: images come from the mirror and, if there is an upstream, else from there.

    Without one the mirror is the server too, or containerd would ask the host itself. It stands in a table
    nevertheless: containerd 1 takes a file without any for broken, and asks the host itself.
    """
    return (
        f"# Written by kube-chores for registrymirror {name}: what is changed here is overwritten.\n"
        f"server = {_quoted(upstream or mirror)}\n"
        "\n"
        f"[host.{_quoted(mirror)}]\n"
        'capabilities = ["pull", "resolve"]\n'
        f"dial_timeout = {_quoted(_DIAL_TIMEOUT)}\n"
    )


def _quoted(text: str) -> str:
    """Return a basic string of TOML, which is one of JSON as long as all of it is ASCII that can be seen."""
    return json.dumps(text)


def written_for(text: str) -> str | None:
    """Return the RegistryMirror that kube-chores wrote this for, or None if it did not."""
    found = _OURS.match(text)
    return found[1] if found else None


def compare(found: str | None, desired: str | None, name: str) -> Verdict:
    """Compare what is in the file, None for no file, with what this mirror wants in it, None for nothing of its own."""
    if found == desired:
        return Verdict(Todo.NOTHING)
    if found is None:
        return Verdict(Todo.WRITE, "is not there")
    owner = written_for(found)
    if desired is None:
        return Verdict(Todo.REMOVE, "is still there") if owner == name else Verdict(Todo.NOTHING)
    if owner is None:
        return Verdict(
            Todo.NOTHING,
            "was not written by kube-chores and stays as it is: move it away if nodes are to use the mirror",
        )
    return Verdict(Todo.WRITE, "is not as it should be" if owner == name else f"is that of registrymirror {owner}")
