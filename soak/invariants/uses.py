"""The ConfigMaps and Secrets that a pod template uses, and their content: a model of docs/roll-workloads.md.

It covers what soak/tenants/workloads.py uses: env, envFrom, volumes, projected volumes, items, and subPath of a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from soak.history import Key, Object

# The bytes of one key: the field, the key, its value, and the uid of a Secret.
Content = frozenset[tuple[str, str, str, str]]


@dataclass(frozen=True)
class Use:
    """A ConfigMap or Secret, and the keys that pods use; None: all keys.

    Pods do not start without the object if it is `required`, nor without the `required_keys`.
    """

    kind: str
    name: str
    keys: frozenset[str] | None
    required: bool
    required_keys: frozenset[str]

    @property
    def text(self) -> str:
        """The use as a baseline names it."""
        source = f"{self.kind.lower()}/{self.name}"
        return source if self.keys is None else f"{source}[{','.join(sorted(self.keys))}]"

    def key(self, namespace: str) -> Key:
        """Return the place of the source."""
        return Key(self.kind, namespace, self.name)

    def is_satisfied(self, source: Object | None) -> bool:
        """Whether pods can start with this source."""
        if source is None:
            return not self.required
        return self.required_keys <= {*(source.get("data") or {}), *(source.get("binaryData") or {})}

    def content(self, source: Object | None) -> Content:
        """Return what pods use of a source; nothing if it does not exist."""
        if source is None:
            return frozenset()
        uid = source["metadata"]["uid"] if self.kind == "Secret" else ""
        return frozenset(
            (field, key, value or "", uid)
            for field in ("data", "binaryData")
            for key, value in (source.get(field) or {}).items()
            if self.keys is None or key in self.keys
        )


def uses(pod: Object) -> list[Use]:
    """Return what pods with this spec use, each source once."""
    found: dict[tuple[str, str], list[Use]] = {}
    for use in (*_of_volumes(pod), *_of_containers(pod)):
        found.setdefault((use.kind, use.name), []).append(use)
    return [_together(each) for _, each in sorted(found.items())]


def _together(parts: Sequence[Use]) -> Use:
    first = parts[0]
    named = [each.keys for each in parts if each.keys is not None]
    keys = None if len(named) < len(parts) else frozenset().union(*named)
    required_keys: frozenset[str] = frozenset().union(*(each.required_keys for each in parts))
    return Use(first.kind, first.name, keys, any(each.required for each in parts), required_keys)


def _use(kind: str, name: str, source: Mapping[str, object], keys: set[str] | None, required_keys: set[str]) -> Use:
    required = not source.get("optional")
    return Use(
        kind, name, None if keys is None else frozenset(keys), required, frozenset(required_keys if required else ())
    )


def _containers(pod: Object) -> list[Object]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def _of_containers(pod: Object) -> Iterator[Use]:
    for container in _containers(pod):
        for each in container.get("envFrom", []):
            for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
                if source := each.get(field):
                    yield _use(kind, source["name"], source, None, set())
        for each in container.get("env", []):
            for field, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
                if source := each.get("valueFrom", {}).get(field):
                    yield _use(kind, source["name"], source, {source["key"]}, {source["key"]})


def _of_volumes(pod: Object) -> Iterator[Use]:
    paths: dict[str, set[str]] = {}
    for container in _containers(pod):
        for mount in container.get("volumeMounts", []):
            paths.setdefault(mount["name"], set()).add(mount.get("subPath", ""))
    for volume in pod.get("volumes", []):
        if volume["name"] in paths:
            for kind, source in _sources(volume):
                yield _of_files(kind, source, paths[volume["name"]])


def _sources(volume: Object) -> Iterator[tuple[str, Object]]:
    for source in (volume, *volume.get("projected", {}).get("sources", [])):
        if "configMap" in source:
            yield "ConfigMap", source["configMap"]
        if "secret" in source:
            yield "Secret", source["secret"]


def _of_files(kind: str, source: Object, paths: set[str]) -> Use:
    name = source.get("name") or source["secretName"]
    if items := source.get("items"):
        mounted = {each["key"] for each in items if "" in paths or each["path"] in paths}
        return _use(kind, name, source, mounted, {each["key"] for each in items})
    files = paths - {""}
    return _use(kind, name, source, None if "" in paths else files, files)
