"""Find in a node's containerd configuration whether containerd reads hosts.toml. Standard library only.

Which setting applies depends on the version of containerd, which no file names. So a configuration that works with one
version is not a problem. If the files do not decide it, the answer is unknown.

https://github.com/containerd/containerd/blob/main/docs/cri/registry.md
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from jobs.core.mirror_node.hosts import BYPASSED, CERTS, FOLDER

_FILE = "config.toml"
_MOST_FILES = 32
_MOST_BYTES = 256 << 10
_IMAGES, _CRI, _CRI_OF_VERSION_1 = "io.containerd.cri.v1.images", "io.containerd.grpc.v1.cri", "cri"
# The tables with the registry's settings, by the configuration's version. containerd 2 migrates versions 1 and 2, and
# then reads the second table too.
_TABLES: Mapping[int, tuple[str, ...]] = {1: (_CRI_OF_VERSION_1, _CRI), 2: (_CRI, _IMAGES), 3: (_IMAGES,)}
_NEWEST = max(_TABLES)
# If one of these settings differs from its value here, containerd 2.1 and later pulls without its transfer service.
# https://github.com/containerd/containerd/blob/v2.2.0/internal/cri/config/config.go (CheckLocalImagePullConfigs)
_LOCAL: Mapping[str, Any] = {
    "use_local_image_pull": False,
    "disable_snapshot_annotations": True,
    "discard_unpacked_layers": False,
    "image_pull_with_sync_fs": False,
    "max_concurrent_downloads": 3,
}
Table = Mapping[str, Any]


class UnknownError(Exception):
    """The files do not decide what containerd reads."""


if sys.version_info >= (3, 11):  # as in images
    import tomllib

    def _parsed(text: str) -> Table:
        return tomllib.loads(text)

else:

    def _parsed(_text: str) -> Table:
        raise UnknownError("Python before 3.11 cannot read TOML")


class Reading(NamedTuple):
    """Why pulls do not use the mirror, or why that is unknown; both are empty if pulls use it."""

    problem: str = ""
    unknown: str = ""


def read_containerd(folder: Path) -> Reading:
    """Evaluate the configuration in `folder`, where the node's /etc/containerd is mounted."""
    try:
        files = list(_files(folder))
        version = _version(files)
        # If an imported file has the same table, containerd 1 replaces the whole table, and containerd 2 merges both.
        readings = {_of_settings(version, _merged(files, whole)) for whole in {False, version < _NEWEST}}
    except (OSError, ValueError, RecursionError, UnknownError) as error:
        return Reading(unknown=str(error) or type(error).__name__)
    if len(readings) > 1:
        return Reading(
            unknown="an imported file has the same table, which containerd 1 replaces and containerd 2 merges"
        )
    return readings.pop()


# the files


def _files(folder: Path) -> Iterator[Table]:
    """Yield the settings of config.toml and its imports in containerd's order: later files override earlier ones.

    Raises:
        UnknownError: a file is not in the folder, not plain, or too large, or there are too many files.
        OSError: a file cannot be read.
        ValueError: it is not TOML.
    """
    pending, done = [folder / _FILE], set[Path]()
    while pending:
        path = pending.pop(0)
        if path in done:
            continue
        if len(done) == _MOST_FILES:
            raise UnknownError(f"the configuration has more than {_MOST_FILES} files")
        done.add(path)
        document = _document(path, folder)
        yield document
        imports = document.get("imports")
        for each in imports if isinstance(imports, list) else ():
            pending += _imported(str(each), path.parent, folder)


def _imported(pattern: str, parent: Path, folder: Path) -> list[Path]:
    on_node = _clean(FOLDER / parent.relative_to(folder) / pattern)
    if not on_node.startswith(f"{FOLDER}/"):
        raise UnknownError(f"the configuration imports {on_node}, which is not in {FOLDER}")
    name = on_node.removeprefix(f"{FOLDER}/")
    return sorted(islice(folder.glob(name), _MOST_FILES + 1)) if "*" in name else [folder / name]


def _clean(path: str | Path) -> str:
    """Normalize a path; normpath keeps two leading slashes, as POSIX allows."""
    return os.path.normpath(path).replace("//", "/")


def _document(path: Path, folder: Path) -> Table:
    # A link on the node would resolve to a file of this container, or to none.
    if path.resolve() != folder.resolve() / path.relative_to(folder):
        raise UnknownError(f"{path} is a link")
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnknownError(f"{path} is not a plain file")
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise UnknownError(f"{path} has more than {_MOST_BYTES >> 10} KiB")
    return _parsed(content.decode())


# the settings


def _version(files: Sequence[Table]) -> int:
    found = {each["version"] for each in files if each.get("version")} or {1}
    if len(found) > 1 or not all(isinstance(each, int) for each in found):
        raise UnknownError("the configuration's files have different versions")
    return int(found.pop())


def _merged(files: Iterable[Table], whole: bool) -> Table:
    plugins: dict[str, Any] = {}
    for each in files:
        for name, table in _table(each, "plugins").items():
            plugins[name] = table if whole else _overruled(plugins.get(name), table)
    return plugins


def _overruled(before: Any, after: Any) -> Any:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    return {**before, **{name: _overruled(before.get(name), value) for name, value in after.items()}}


def _of_settings(version: int, plugins: Table) -> Reading:
    first, *others = (_table(plugins, name) for name in _TABLES[max(1, min(version, _NEWEST))])
    registry = _table(first, "registry")
    path = str(registry.get("config_path") or "")
    if registry.get("mirrors"):
        return _bypassed("registry.mirrors is set, and containerd then ignores hosts.toml; remove registry.mirrors")
    if path:
        return _of_path(path, version, locally=_pulls_locally(first))
    if any(_table(each, "registry").get("config_path") for each in others):
        return Reading(unknown="config_path is in a table that only some versions of containerd read")
    if version >= _NEWEST or _pulls_locally(first):
        return Reading(unknown="config_path is not set, and its default depends on the version of containerd")
    return _bypassed("config_path is not set")


def _of_path(path: str, version: int, *, locally: bool) -> Reading:
    """Evaluate a config_path: containerd 2.1 and later reads a list as one folder if it uses its transfer service.

    https://github.com/containerd/containerd/issues/12415
    """
    if CERTS not in [_clean(each) for each in path.split(":") if each]:
        return _bypassed(f"config_path is {path}")
    if ":" not in path or locally:
        return Reading()
    why = f"config_path is {path}, which containerd 2.1 and later reads as one folder"
    return _bypassed(why) if version >= _NEWEST else Reading(unknown=why)


def _pulls_locally(images: Table) -> bool:
    """Whether containerd 2.1 and later pulls without its transfer service."""
    settings = {**images, **_table(images, "containerd")}
    registry = _table(images, "registry")
    return any(settings.get(name, default) != default for name, default in _LOCAL.items()) or any(
        registry.get(name) for name in ("configs", "auths")
    )


def _bypassed(what: str) -> Reading:
    why = f"pulls do not use the mirror: containerd does not read {CERTS}: {what}"
    return Reading(f'{BYPASSED}: {why}; set config_path = "{CERTS}", then restart containerd')


def _table(table: Table, name: str) -> Table:
    found = table.get(name)
    return found if isinstance(found, dict) else {}
