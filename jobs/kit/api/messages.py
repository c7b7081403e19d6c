"""HTTP requests, their answers and the counts of both."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

ANSWER_BYTES = 512 << 10  # the longest answer that is read, unless the request sets another limit


@dataclass(frozen=True)
class Request:
    """One HTTP request. `repeatable`: idempotent, so that it is retried if its answer is lost.

    A body of more than `max_bytes` in the answer is not read to its end. `compressed`: the server may compress the
    answer.
    """

    method: str
    path: str
    body: bytes | None = None
    accept: str = "application/json"
    content_type: str = "application/json"
    repeatable: bool = True
    tag: Any = None
    max_bytes: int = ANSWER_BYTES
    compressed: bool = False

    @property
    def weight(self) -> int:
        """The bytes that the request and its answer may need: the answer to a write has about the size of its body."""
        return self.max_bytes if self.body is None else 2 * len(self.body)


@dataclass(frozen=True)
class Answer:
    """The answer to a request. `status` is 0 without a complete answer; `error` then has the reason.

    `attempts` counts from 1. `is_too_long`: the body has more than the `max_bytes` of the request; `start` is
    its first part. `is_unsent`: the request was not sent, since its credentials are missing.
    """

    request: Request
    status: int
    body: bytes = b""
    error: str = ""
    attempts: int = 1
    is_too_long: bool = False
    start: bytes = b""
    is_unsent: bool = False

    @property
    def is_success(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


@dataclass
class Traffic:
    """Counts of a run: requests by method (with retries), and bytes of bodies as they were received and sent."""

    requests: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
