"""The ConfigMaps and Secrets that a pod template uses, with single keys where it names or mounts keys. Pure.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from posixpath import normpath
from typing import NamedTuple

from msgspec import Struct

from jobs.kit.values.names import is_name
from jobs.kit.values.resources import CONFIGMAPS, SECRETS

# A kubelet stores the files of a volume in a directory with a timestamp as its name. This link points to it:
# https://pkg.go.dev/k8s.io/kubernetes/pkg/volume/util#AtomicWriter
_CURRENT = "..data"


class Reference(NamedTuple):
    """One ConfigMap or Secret of the workload's namespace, and the keys that pods use; sorts by kind and name.

    `keys` None: all keys. Pods do not start without the object if it is `required`, nor without the `required_keys`.
    """

    kind: str
    name: str
    keys: tuple[str, ...] | None
    required: bool
    required_keys: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.name}"

    @property
    def has_valid_name(self) -> bool:
        """Whether an object can have this name.

        The API server accepts any name for the source of a volume. An invalid name must not become part of a request.
        """
        return is_name(self.name)

    @property
    def named_keys(self) -> tuple[str, ...]:
        """The keys that it names, also if pods use all keys."""
        return (*(self.keys or ()), *self.required_keys)

    @property
    def used(self) -> str:
        """The reference with its keys, as in a baseline: another value if it names other keys."""
        return str(self) if self.keys is None else f"{self}[{','.join(self.keys)}]"


class _Item(Struct):
    key: str = ""
    path: str = ""


class _ObjectReference(Struct, rename="camel"):
    """A ConfigMap or Secret of an envFrom or a volume. A volume of a Secret has `secret_name` instead of `name`."""

    name: str = ""
    secret_name: str = ""
    optional: bool | None = None
    items: list[_Item] | None = None


class _Projection(Struct, rename="camel"):
    config_map: _ObjectReference | None = None
    secret: _ObjectReference | None = None


class _Projected(Struct):
    sources: list[_Projection] | None = None


class _Volume(_Projection, rename="camel"):
    name: str = ""
    projected: _Projected | None = None


class _EnvFrom(Struct, rename="camel"):
    config_map_ref: _ObjectReference | None = None
    secret_ref: _ObjectReference | None = None


class _Key(Struct):
    name: str = ""
    key: str = ""
    optional: bool | None = None


class _ValueFrom(Struct, rename="camel"):
    config_map_key_ref: _Key | None = None
    secret_key_ref: _Key | None = None


class _Env(Struct, rename="camel"):
    value_from: _ValueFrom | None = None


class _Mount(Struct, rename="camel"):
    name: str = ""
    sub_path: str = ""
    sub_path_expr: str = ""


class _Container(Struct, rename="camel"):
    volume_mounts: list[_Mount] | None = None
    env_from: list[_EnvFrom] | None = None
    env: list[_Env] | None = None


class PodSpec(Struct, rename="camel"):
    """The fields of a pod's spec that refer to ConfigMaps and Secrets; values of its environment are not kept."""

    volumes: list[_Volume] | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None


class _Use(NamedTuple):
    """One field of a pod spec that names a ConfigMap or Secret. Pods do not start without the `needed` keys."""

    kind: str
    name: str
    keys: frozenset[str] | None
    needed: frozenset[str]
    optional: bool


def references(spec: PodSpec) -> tuple[Reference, ...]:
    """Return the ConfigMaps and Secrets that pods of this spec use, sorted, each one once."""
    uses: dict[tuple[str, str], list[_Use]] = {}
    for use in (*_of_volumes(spec), *_of_containers(spec)):
        if use.name:
            uses.setdefault((use.kind, use.name), []).append(use)
    return tuple(_merged(kind, name, found) for (kind, name), found in sorted(uses.items()))


def _merged(kind: str, name: str, uses: Sequence[_Use]) -> Reference:
    keys: frozenset[str] | None = frozenset()
    for use in uses:
        keys = None if keys is None or use.keys is None else keys | use.keys
    needed = {key for use in uses if not use.optional for key in use.needed}
    required = any(not use.optional for use in uses)
    return Reference(kind, name, None if keys is None else tuple(sorted(keys)), required, tuple(sorted(needed)))


def _of_volumes(spec: PodSpec) -> Iterator[_Use]:
    """Yield the uses by volumes that a container mounts: kubelets ignore other volumes."""
    mounted: dict[str, set[str]] = {}
    for mount in (mount for each in _containers(spec) for mount in each.volume_mounts or ()):
        mounted.setdefault(mount.name, set()).add(_mounted_path(mount))
    for volume in (each for each in spec.volumes or () if each.name in mounted):
        parts = (volume.projected.sources if volume.projected else None) or ()
        for source in (volume, *parts):
            for kind, named in ((CONFIGMAPS.kind, source.config_map), (SECRETS.kind, source.secret)):
                if named:
                    yield _of_files(kind, named, mounted[volume.name], is_part=source is not volume)


def _mounted_path(mount: _Mount) -> str:
    """Return the mounted path in the volume; "." for all of it, or if the path is only known on the node."""
    if mount.sub_path_expr:
        return "."
    path = normpath(mount.sub_path)
    if path == _CURRENT or path.startswith(f"{_CURRENT}/"):
        path = normpath(path[len(_CURRENT) + 1 :])
    return "." if path.startswith("..") else path


def _of_files(kind: str, named: _ObjectReference, paths: set[str], *, is_part: bool) -> _Use:
    """Return the keys that the mounted `paths` of a volume use; without items, the file of a key has the key's name.

    A kubelet mounts an empty directory in place of a missing file, so pods need that key too. `is_part`: the volume has
    several sources, and another one can contain the file.
    """
    name = named.name or named.secret_name
    if named.items:
        keys = frozenset(item.key for item in named.items if any(_is_in(item.path, path) for path in paths))
        return _Use(kind, name, keys, frozenset(item.key for item in named.items), bool(named.optional))
    files = frozenset(path for path in paths if "/" not in path and path != ".")
    needed = frozenset() if is_part else files
    return _Use(kind, name, None if "." in paths else files, needed, bool(named.optional))


def _is_in(file: str, path: str) -> bool:
    file = normpath(file)
    return path in (".", file) or file.startswith(f"{path}/")


def _containers(spec: PodSpec) -> Iterable[_Container]:
    return (*(spec.init_containers or ()), *(spec.containers or ()))


def _of_containers(spec: PodSpec) -> Iterator[_Use]:
    for container in _containers(spec):
        for source in container.env_from or ():
            if source.config_map_ref:
                yield _of_object(CONFIGMAPS.kind, source.config_map_ref)
            if source.secret_ref:
                yield _of_object(SECRETS.kind, source.secret_ref)
        for value in (env.value_from for env in container.env or () if env.value_from):
            if value.config_map_key_ref:
                yield _of_key(CONFIGMAPS.kind, value.config_map_key_ref)
            if value.secret_key_ref:
                yield _of_key(SECRETS.kind, value.secret_key_ref)


def _of_object(kind: str, named: _ObjectReference) -> _Use:
    return _Use(kind, named.name, None, frozenset(), bool(named.optional))


def _of_key(kind: str, named: _Key) -> _Use:
    key = frozenset([named.key])
    return _Use(kind, named.name, key, key, bool(named.optional))
