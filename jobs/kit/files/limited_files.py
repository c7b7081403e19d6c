"""Read files of a kubeconfig or a pod up to a limit: a path may name a device without an end."""

from __future__ import annotations

import errno
from pathlib import Path

MAX_BYTES = 3 << 20  # as for a file of -f


def read_limited(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: the file cannot be read, or is larger than MAX_BYTES.
    """
    with path.open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MAX_BYTES >> 20} MiB", str(path))
    return content
