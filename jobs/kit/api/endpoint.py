"""An API server and how to connect to it: its URL, certificates, proxy, and the headers of each request."""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from msgspec import Struct

from jobs.kit.values.errors import ConfigurationError

# To read a token costs more than the request itself; the old token stays valid for minutes after its replacement.
_FRESH_SECONDS = 5.0
_MAX_FILE_BYTES = 3 << 20  # as for a file of -f
# Characters that would end the line of a header, and surrogates, which have no UTF-8.
_INVALID_IN_HEADER = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_VALID_IN_KEY = "!#$&'*+-.^_`|~"  # in the name of a header, in addition to letters, digits and the escape itself


class Certificate(NamedTuple):
    """A client certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


class Endpoint(Struct, frozen=True):
    """An API server and how to connect to it.

    `authorization` returns the value of the header, `certificate` the client certificate; both are called for each
    request. `host` is the header Host, if that is not of `server`. `compression`: whether the server may compress
    answers.
    """

    server: str
    authorization: Callable[[], str]
    ca_file: str | None = None
    ca_data: bytes = b""
    verify: bool = True
    certificate: Callable[[], Certificate | None] = lambda: None
    connect_to: str | None = None
    host: str = ""
    proxy: str | None = None
    no_proxy: str | None = None
    impersonation: Sequence[str] = ()  # lines of headers
    compression: bool = True


def impersonation(user: str, groups: Sequence[str], uid: str, extra: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the lines of the headers that impersonate a user, as client-go sends them.

    The API server checks that the credentials have the right to do so.

    Raises:
        ConfigurationError: another field is set without a user, or a value is not valid in a header.
    """
    if user:
        extras = ((f"Extra-{quote(key, safe=_VALID_IN_KEY)}", value) for key, all in extra.items() for value in all)
        fields = (("User", user), *([("Uid", uid)] if uid else []), *(("Group", group) for group in groups), *extras)
        return [_impersonate(*each) for each in fields]
    if groups or uid or extra:
        raise ConfigurationError(
            "requesting uid, groups or user-extra without impersonating a user; set --as, or `as` in the kubeconfig"
        )
    return []


def _impersonate(name: str, value: str) -> str:
    line = f"Impersonate-{name}"
    # libcurl omits a header without a value, unless its line ends with a semicolon.
    return f"{line}: {header_value(value, f'the impersonated user: {line}')}" if value else f"{line};"


def header_value(value: str, where: str) -> str:
    """Return the value of a header, unchanged.

    Raises:
        ConfigurationError: it contains a control character or a surrogate. The message does not show the value.
    """
    if _INVALID_IN_HEADER.search(value):
        raise ConfigurationError(f"{where} contains a control character, such as a newline; remove it")
    return value


def bearer(token: str, where: str) -> str:
    """Return the value of the Authorization header; raises as `header_value` does."""
    return f"Bearer {header_value(token, where)}"


def cached(read: Callable[[], str]) -> Callable[[], str]:
    """Return a function that returns the result of `read`, and calls it again only after some seconds."""
    read_at, value = 0.0, ""

    def cached() -> str:
        nonlocal read_at, value
        now = time.monotonic()
        if not read_at or now - read_at > _FRESH_SECONDS:
            read_at, value = now, read()
        return value

    return cached


def read_limited(path: Path) -> bytes:
    """Return the content of a file of a kubeconfig or a pod: a path may name a device without an end.

    Raises:
        OSError: the file cannot be read, or is larger than _MAX_FILE_BYTES.
    """
    with path.open("rb") as file:
        content = file.read(_MAX_FILE_BYTES + 1)
    if len(content) > _MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {_MAX_FILE_BYTES >> 20} MiB", str(path))
    return content
