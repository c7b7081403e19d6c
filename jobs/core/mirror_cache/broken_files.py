"""Files that the registry cannot read: links without a digest, and a damaged state of the scheduler."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from jobs.core.mirror_cache.layout import below_repositories, signature, state_path

_MOST_STATE_BYTES = 16 << 20  # some 70,000 entries; of a larger one only the ends are read, since memory is limited
_END_BYTES = 1024
_LINK = re.compile(rb"[a-z0-9]+:[0-9a-f]{32,128}")
_LONGEST_LINK = 256
_JSON_SPACE = b" \t\r\n"
_OBJECT = object()


def broken_links(root: Path, before: float) -> Iterator[Path]:
    """Yield links without a digest, which a power loss leaves: the registry answers with 500 for each.

    A link that was written since `before` is left out: it may be incomplete.
    """
    for kind in ("_layers", "_manifests"):
        for folder in below_repositories(root, kind):
            for where, _, names in os.walk(folder):
                path = Path(where) / "link"
                if "link" in names and _is_broken_link(path, before):
                    yield path


def _is_broken_link(path: Path, before: float) -> bool:
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_mtime >= before:
            return False
        with path.open("rb") as file:
            return not _LINK.fullmatch(file.read(_LONGEST_LINK))
    except OSError:
        return False


def broken_state(root: Path) -> tuple[int, ...] | None:
    """Return the signature of the scheduler's state file if the registry cannot start with it, else None."""
    path = state_path(root)
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            return None
        with path.open("rb") as file:
            if found.st_size > _MOST_STATE_BYTES:
                is_state = _is_object(file, found.st_size)
            else:
                is_state = _is_state(file.read(found.st_size))
        return None if is_state else signature(found)
    except OSError:
        return None


def _is_object(file: BinaryIO, size: int) -> bool:
    """Whether a file begins and ends as a JSON object; the registry writes less whitespace than the bytes read here."""
    begin = file.read(_END_BYTES)
    file.seek(size - _END_BYTES)
    return begin.lstrip(_JSON_SPACE).startswith(b"{") and file.read(_END_BYTES).rstrip(_JSON_SPACE).endswith(b"}")


def _is_state(content: bytes) -> bool:
    """Whether the content is a JSON object. A power loss leaves zeros, a part of it, or nothing.

    https://github.com/distribution/distribution/blob/main/registry/proxy/scheduler/scheduler.go
    """
    try:
        # Each object becomes the same one, so that many entries need little memory. Python detects UTF-16 and UTF-32 in
        # bytes; Go decodes only UTF-8, without a byte order mark.
        return json.loads(content.decode(), object_hook=lambda _: _OBJECT) is _OBJECT
    except (ValueError, RecursionError):
        return False
