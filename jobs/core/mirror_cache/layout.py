"""The layout of a registry's cache on its volume: one folder for each upstream.

Below it the layout is that of distribution's file system driver:
https://github.com/distribution/distribution/blob/main/registry/storage/paths.go
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def roots(volume: Path) -> Iterator[Path]:
    """Yield the folder of each upstream that is cached on the volume."""
    return (Path(each.path) for each in folders(volume))


def registry(root: Path) -> Path:
    """Return the folder of the registry's data, below the folder of an upstream."""
    return root / "docker" / "registry" / "v2"


def blob_folder(root: Path) -> Path:
    """Return the folder of the blobs."""
    return registry(root) / "blobs" / "sha256"


def blob_path(root: Path, digest: str) -> Path:
    """Return the path of the file that stores a blob."""
    return blob_folder(root) / digest[:2] / digest / "data"


def state_path(root: Path) -> Path:
    """Return the path of the registry's scheduler state, which lists the expiry times of blobs."""
    return root / "scheduler-state.json"


def is_used(root: Path) -> bool:
    """Whether an image was ever pulled through the mirror: the registry then created a folder for its repository."""
    return next(folders(registry(root) / "repositories"), None) is not None


def below_repositories(root: Path, name: str) -> Iterator[Path]:
    """Yield all folders of this name in repositories; a repository's name may have several parts."""
    left = [registry(root) / "repositories"]
    while left:
        for each in folders(left.pop()):
            if each.name == name:
                yield Path(each.path)
            elif not each.name.startswith("_"):
                left.append(Path(each.path))


def folders(path: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the folders in a folder, without links to folders; none if the folder cannot be read."""
    with contextlib.suppress(OSError), os.scandir(path) as found:
        for each in found:
            if each.is_dir(follow_symlinks=False):
                yield each


def signature(found: os.stat_result) -> tuple[int, ...]:
    """Return what a write to the file changes; the last part is the ctime in ns."""
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
