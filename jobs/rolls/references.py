"""What a pod template takes from ConfigMaps and Secrets, key by key where it names keys. Pure.

https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct

from jobs.kit.objects import CONFIGMAPS, SECRETS, is_name


class Reference(NamedTuple):
    """One ConfigMap or Secret of the workload's namespace and what pods use of it; sorts by kind and name.

    `keys` None is all of them. Pods do not start without the object if it is `required`, nor without `required_keys`.
    """

    kind: str
    name: str
    keys: tuple[str, ...] | None
    required: bool
    required_keys: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.name}"

    @property
    def can_be(self) -> bool:
        """Whether anything can have this name. The API server takes any for a volume's; no request is to hold it."""
        return is_name(self.name)

    @property
    def named_keys(self) -> tuple[str, ...]:
        """The keys that it names, also where pods use all others too."""
        return (*(self.keys or ()), *self.required_keys)

    @property
    def used(self) -> str:
        """The reference with the keys that it names: another one, once it names others."""
        return str(self) if self.keys is None else f"{self}[{','.join(self.keys)}]"


class _Item(Struct):
    key: str = ""


class _Object(Struct):
    """A ConfigMap or Secret as an envFrom or a projected volume names it, or a ConfigMap that is a volume."""

    name: str = ""
    optional: bool | None = None
    items: list[_Item] | None = None


class _SecretVolume(Struct, rename="camel"):
    secret_name: str = ""
    optional: bool | None = None
    items: list[_Item] | None = None


class _Projection(Struct, rename="camel"):
    config_map: _Object | None = None
    secret: _Object | None = None


class _Projected(Struct):
    sources: list[_Projection] | None = None


class _Volume(Struct, rename="camel"):
    name: str = ""
    config_map: _Object | None = None
    secret: _SecretVolume | None = None
    projected: _Projected | None = None


class _EnvFrom(Struct, rename="camel"):
    config_map_ref: _Object | None = None
    secret_ref: _Object | None = None


class _Key(Struct):
    name: str = ""
    key: str = ""
    optional: bool | None = None


class _ValueFrom(Struct, rename="camel"):
    config_map_key_ref: _Key | None = None
    secret_key_ref: _Key | None = None


class _Env(Struct, rename="camel"):
    value_from: _ValueFrom | None = None


class _Mount(Struct):
    name: str = ""


class _Container(Struct, rename="camel"):
    volume_mounts: list[_Mount] | None = None
    env_from: list[_EnvFrom] | None = None
    env: list[_Env] | None = None


class PodSpec(Struct, rename="camel"):
    """A pod's spec as far as it refers to ConfigMaps and Secrets; values of its environment are not kept."""

    volumes: list[_Volume] | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None


class _Use(NamedTuple):
    """One place of a pod spec that names a ConfigMap or Secret."""

    kind: str
    name: str
    keys: tuple[str, ...] | None
    optional: bool


def references(spec: PodSpec) -> tuple[Reference, ...]:
    """Return what pods of this spec use, sorted, each ConfigMap and Secret once."""
    uses: dict[tuple[str, str], list[_Use]] = {}
    for use in (*_of_volumes(spec), *_of_containers(spec)):
        if use.name:
            uses.setdefault((use.kind, use.name), []).append(use)
    return tuple(_merged(kind, name, found) for (kind, name), found in sorted(uses.items()))


def _merged(kind: str, name: str, uses: Iterable[_Use]) -> Reference:
    uses = list(uses)
    keys: set[str] | None = set()
    for use in uses:
        keys = None if keys is None or use.keys is None else keys | set(use.keys)
    needed = {key for use in uses if not use.optional for key in use.keys or ()}
    required = any(not use.optional for use in uses)
    return Reference(kind, name, None if keys is None else tuple(sorted(keys)), required, tuple(sorted(needed)))


def _of_volumes(spec: PodSpec) -> Iterator[_Use]:
    """Yield what is used by volumes that a container mounts: kubelets pass over others."""
    mounted = {mount.name for each in _containers(spec) for mount in each.volume_mounts or ()}
    for volume in (each for each in spec.volumes or () if each.name in mounted):
        if volume.config_map:
            yield _of_object(CONFIGMAPS.kind, volume.config_map.name, volume.config_map)
        if volume.secret:
            yield _of_object(SECRETS.kind, volume.secret.secret_name, volume.secret)
        for source in (volume.projected.sources if volume.projected else None) or ():
            if source.config_map:
                yield _of_object(CONFIGMAPS.kind, source.config_map.name, source.config_map)
            if source.secret:
                yield _of_object(SECRETS.kind, source.secret.name, source.secret)


def _of_object(kind: str, name: str, named: _Object | _SecretVolume) -> _Use:
    keys = tuple(item.key for item in named.items) if named.items else None
    return _Use(kind, name, keys, bool(named.optional))


def _containers(spec: PodSpec) -> Iterable[_Container]:
    return (*(spec.init_containers or ()), *(spec.containers or ()))


def _of_containers(spec: PodSpec) -> Iterator[_Use]:
    for container in _containers(spec):
        for source in container.env_from or ():
            if source.config_map_ref:
                yield _of_object(CONFIGMAPS.kind, source.config_map_ref.name, source.config_map_ref)
            if source.secret_ref:
                yield _of_object(SECRETS.kind, source.secret_ref.name, source.secret_ref)
        for value in (env.value_from for env in container.env or () if env.value_from):
            if value.config_map_key_ref:
                yield _of_key(CONFIGMAPS.kind, value.config_map_key_ref)
            if value.secret_key_ref:
                yield _of_key(SECRETS.kind, value.secret_key_ref)


def _of_key(kind: str, named: _Key) -> _Use:
    return _Use(kind, named.name, (named.key,), bool(named.optional))
