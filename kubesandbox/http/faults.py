"""Faults on demand: what a real server does on a bad day, chosen by method, path and query."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

import msgspec

from ..api.cluster import Answer
from ..api.errors import ApiError

_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_TEXTS = {
    401: "Unauthorized",
    429: "Too many requests, please try again later.",
    410: "The provided continue parameter is too old to display a consistent list result.",
    503: "the server is currently unable to handle the request",
}

Kind = Literal["status", "answer", "reset-before", "reset-after", "delay", "truncate", "call-before", "call-after"]
KINDS = get_args(Kind)


@dataclass
class Fault:
    """One fault. `skip` matching requests pass first, then `times` are hit (None: all that follow).

    `call-before` and `call-after` run `call` before the request is handled, or after that and before its answer is
    sent: to kill or hold the client, or to let another one in. Faults on one request act in the order of `inject`, so
    a `call-before` with a `reset-before` after it makes a client die with a request that never arrived. `answer` is
    what a proxy sends in place of the server: `status` and `body`. `message` is that of the Status which a fault of
    kind status answers; empty is the API server's for such a status.
    """

    method: str = "*"
    path: str = "*"
    query: str | None = None
    kind: Kind = "status"
    status: int = 500
    retry_after: int | None = None
    message: str = ""
    seconds: float = 0.5
    skip: int = 0
    times: int | None = 1
    call: Callable[[], object] | None = None
    body: bytes = b""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"a fault's kind is one of {', '.join(KINDS)}, not {self.kind!r}")
        if self.kind.startswith("call-") != (self.call is not None):
            raise ValueError(f"faults of kind call-before and call-after have a `call`, others do not: {self.kind}")

    @classmethod
    def parse(cls, text: str) -> Fault:
        """A fault from the command line: 'PUT /api/v1/* status=429 retry-after=1 times=2'."""
        method, _, rest = text.partition(" ")
        path, *settings = rest.split() or [""]
        if not path:
            raise ValueError(f"a fault needs a method and a path, not {text!r}")
        values: dict[str, Any] = {}
        for setting in settings:
            name, _, value = setting.partition("=")
            if name not in _READERS:
                raise ValueError(f"a fault has no {name!r}, only {', '.join(_READERS)}")
            values[name.replace("-", "_")] = _READERS[name](value)
        return cls(method, path, **values)

    def matches(self, method: str, path: str, query: str) -> bool:
        """Whether a request is one of those meant."""
        return (
            fnmatchcase(method, self.method)
            and fnmatchcase(path, self.path)
            and (self.query is None or fnmatchcase(query, self.query))
        )


_READERS: dict[str, Callable[[str], object]] = {
    "query": str,
    "kind": str,
    "status": int,
    "retry-after": int,
    "seconds": float,
    "body": str.encode,
    "skip": int,
    "times": lambda value: None if value in ("all", "none", "") else int(value),
}


@dataclass
class Faults:
    """The faults in force."""

    _active: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, fault: Fault) -> None:
        """Put a fault in force."""
        with self._lock:
            self._active.append(replace(fault))

    def clear(self) -> None:
        """Lift all faults."""
        with self._lock:
            self._active.clear()

    def take(self, method: str, path: str, query: str) -> list[Fault]:
        """The faults that hit this request; counts it against each that matches."""
        if not self._active:
            return []
        hit = []
        with self._lock:
            for fault in self._active:
                if fault.times == 0 or not fault.matches(method, path, query):
                    continue
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                if fault.times is not None:
                    fault.times -= 1
                hit.append(fault)
        return hit


def answer_of(fault: Fault) -> Answer:
    """What the client gets in place of the server's answer, from a fault of kind status or answer."""
    if fault.kind == "answer":
        return Answer(fault.status, fault.body)
    code = fault.status
    text = fault.message or _TEXTS.get(code, "a fault was injected")
    error = ApiError(code, _REASONS.get(code, ""), text)
    if fault.retry_after is not None:
        error.headers["Retry-After"] = str(fault.retry_after)
        error.details = {"retryAfterSeconds": fault.retry_after}
    return Answer(code, msgspec.json.encode(error.status()), headers=error.headers)
