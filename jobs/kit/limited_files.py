"""Files of the kubeconfig and of the pod, which may be devices without an end."""

from __future__ import annotations

import errno
from pathlib import Path

MOST_BYTES = 3 << 20  # as for a file of -f


def read_limited(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: it cannot be read, or is larger than MOST_BYTES.
    """
    with path.open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MOST_BYTES >> 20} MiB", str(path))
    return content
