"""Remove a fault, also if the API server or a program does not respond at once."""

from __future__ import annotations

import http.client
import subprocess
import time
from collections.abc import Callable

from tests.apis import ApiError

ERRORS = (ApiError, OSError, http.client.HTTPException, subprocess.SubprocessError, AssertionError)
SECONDS = 60.0
PAUSE_SECONDS = 2.0


def until_done(act: Callable[[], object], seconds: float = SECONDS) -> None:
    """Repeat what is idempotent until it succeeds.

    Raises:
        RuntimeError: it did not succeed in this time. The cluster stays broken, and the soak must end.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            act()
            return
        except ERRORS as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"a fault cannot be removed: {error}") from error
            time.sleep(PAUSE_SECONDS)
