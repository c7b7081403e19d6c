"""The ConfigMaps and Secrets that a pod template uses, and the digests of their keys, never a value. Pure.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from posixpath import normpath
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from jobs.core.roll_workloads.baseline import Key
from jobs.kit.values.errors import ApiError, InvalidObjectError
from jobs.kit.values.reads import decode, decode_map
from jobs.kit.values.resources import CONFIGMAPS, SECRETS, is_name

_FINGERPRINT_DIGITS = 32  # hexadecimal digits: 128 bits
_CONTENT_FIELDS = ("f:data", "f:binaryData")


class Source(Struct, frozen=True):
    """A ConfigMap or Secret: `digests` of those `keys` that are used, and one `digest` of all keys.

    `changed` is the time of the last change of its content, if its metadata contains one.
    """

    digest: str
    keys: frozenset[str]
    digests: Mapping[str, str]
    changed: datetime | None = None

    def covers(self, reference: Reference) -> bool:
        """Return whether all keys of the reference have been digested."""
        return self.keys.issuperset(reference.named_keys)


class _Entry(Struct, rename="camel"):
    time: datetime | None = None
    fields_v1: Raw = msgspec.field(name="fieldsV1", default=Raw())


class _Metadata(Struct, rename="camel"):
    uid: str = ""
    creation_timestamp: datetime | None = None
    managed_fields: list[_Entry] | None = None


class _Document(Struct, rename="camel"):
    metadata: _Metadata
    data: dict[str, str | None] | None = None
    binary_data: dict[str, str | None] | None = None

    def __repr__(self) -> str:
        return "_Document()"


def source(kind: str, keys: frozenset[str], body: bytes, key: Key | ApiError | None = None) -> Source:
    """Return a ConfigMap or Secret from its JSON, reduced to digests of these `keys` and of all keys.

    Digests of a Secret are computed with the `key`: many users can read annotations of workloads, and could find a
    short password by trial. The Secret's uid is part of its digests. Otherwise a tenant could compare them
    with digests of values in a Secret of their own.
    """
    document = decode(body, _Document)
    digest = Key(b"").digest
    if kind == SECRETS.kind:
        assert isinstance(key, Key), "the key is read before Secrets"
        digest = partial(key.digest, document.metadata.uid)
    digests = {name: digest("data", name, value or "") for name, value in (document.data or {}).items()}
    digests |= {name: digest("binaryData", name, value or "") for name, value in (document.binary_data or {}).items()}
    used = {name: digest for name, digest in digests.items() if name in keys}
    return Source(_fingerprint(digests), keys, used, _changed(document.metadata))


def _changed(metadata: _Metadata) -> datetime | None:
    """Return the time of the last change of the content, or a later one.

    The time of an entry is that of its manager's last change to any field that the manager owns.
    https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
    """
    owned = (entry.time for entry in metadata.managed_fields or () if _owns_content(entry))
    return max(filter(None, (metadata.creation_timestamp, *owned)), default=None)


def _owns_content(entry: _Entry) -> bool:
    try:
        fields = decode_map(entry.fields_v1, Raw)
    except InvalidObjectError:  # a client can send an invalid entry
        return True
    return any(name in fields for name in _CONTENT_FIELDS)


def fingerprint(reference: Reference, found: Source | None) -> str:
    """Return a hash of the keys of the source that pods use; a source that does not exist has no keys."""
    if reference.keys is None:
        return found.digest if found else _fingerprint({})
    digests = found.digests if found else {}
    return _fingerprint({name: digests[name] for name in reference.keys if name in digests})


def _fingerprint(digests: Mapping[str, str]) -> str:
    used = "\n".join(f"{name} {digests[name]}" for name in sorted(digests))
    return hashlib.sha256(used.encode()).hexdigest()[:_FINGERPRINT_DIGITS]


def missing(reference: Reference, found: Source | None) -> str:
    """Return what pods need to start and is missing, with the remedy, or an empty string."""
    if found is None:
        return f"{reference} does not exist; create it" if reference.required else ""
    absent = [key for key in reference.required_keys if key not in found.digests]
    return f"{reference} has no key {', '.join(absent)}; add it" if absent else ""


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


class _Named(Struct, rename="camel"):
    """A ConfigMap or Secret, or a `key` of one. A volume of a Secret has `secret_name` instead of `name`."""

    name: str = ""
    secret_name: str = ""
    key: str = ""
    optional: bool | None = None
    items: list[_Item] | None = None


class _Projection(Struct, rename="camel"):
    config_map: _Named | None = None
    secret: _Named | None = None


class _Projected(Struct):
    sources: list[_Projection] | None = None


class _Volume(_Projection, rename="camel"):
    name: str = ""
    projected: _Projected | None = None


class _EnvSource(Struct, rename="camel"):
    """An item of `envFrom`, or a `valueFrom`, which names a key too."""

    config_map_ref: _Named | None = None
    secret_ref: _Named | None = None
    config_map_key_ref: _Named | None = None
    secret_key_ref: _Named | None = None


class _Env(Struct, rename="camel"):
    value_from: _EnvSource | None = None


class _Mount(Struct, rename="camel"):
    name: str = ""
    sub_path: str = ""
    sub_path_expr: str = ""


class _Container(Struct, rename="camel"):
    volume_mounts: list[_Mount] | None = None
    env_from: list[_EnvSource] | None = None
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
    uses_all = any(use.keys is None for use in uses)
    keys = {key for use in uses for key in use.keys or ()}
    needed = {key for use in uses if not use.optional for key in use.needed}
    required = any(not use.optional for use in uses)
    return Reference(kind, name, None if uses_all else tuple(sorted(keys)), required, tuple(sorted(needed)))


def _of_volumes(spec: PodSpec) -> Iterator[_Use]:
    """Yield the uses by volumes that a container mounts: kubelets ignore other volumes."""
    mounted: dict[str, set[str]] = {}
    for mount in (mount for each in _containers(spec) for mount in each.volume_mounts or ()):
        mounted.setdefault(mount.name, set()).add(_mounted_path(mount))
    for volume in (each for each in spec.volumes or () if each.name in mounted):
        parts = (volume.projected.sources if volume.projected else None) or ()
        for source in (volume, *parts):
            for kind, named in _named(source.config_map, source.secret):
                yield _of_files(kind, named, mounted[volume.name], is_part=source is not volume)


def _named(config_map: _Named | None, secret: _Named | None) -> Iterator[tuple[str, _Named]]:
    """Yield those that are set, each with its kind."""
    if config_map:
        yield CONFIGMAPS.kind, config_map
    if secret:
        yield SECRETS.kind, secret


def _mounted_path(mount: _Mount) -> str:
    """Return the mounted path in the volume; "." for all of it, or if the path is only known on the node."""
    if mount.sub_path_expr:
        return "."
    path = normpath(mount.sub_path)
    if path == _CURRENT or path.startswith(f"{_CURRENT}/"):
        path = normpath(path[len(_CURRENT) + 1 :])
    return "." if path.startswith("..") else path


def _of_files(kind: str, named: _Named, paths: set[str], *, is_part: bool) -> _Use:
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
            for kind, named in _named(source.config_map_ref, source.secret_ref):
                yield _Use(kind, named.name, None, frozenset(), bool(named.optional))
        for value in (env.value_from for env in container.env or () if env.value_from):
            for kind, named in _named(value.config_map_key_ref, value.secret_key_ref):
                key = frozenset([named.key])
                yield _Use(kind, named.name, key, key, bool(named.optional))
