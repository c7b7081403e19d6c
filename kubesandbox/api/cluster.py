"""The cluster's state: objects, served kinds, identities; and the request that refers to them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any

from ..schema import kinds
from ..schema.crd import Schema
from ..schema.resources import BUILT_IN, CRDS, NAMESPACES, Resource
from .rbac import Authorizer, User
from .store import Store, Stored

Obj = dict[str, Any]


def now() -> datetime:
    """The time, to the second, as the API shows it."""
    return datetime.now(timezone.utc).replace(microsecond=0)


def stamp(moment: datetime) -> str:
    """A time as the API writes it."""
    return moment.isoformat().replace("+00:00", "Z")


@dataclass(frozen=True)
class Call:
    """One request to a resource."""

    verb: str
    resource: Resource
    namespace: str
    name: str
    subresource: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    user: User
    rest: str = ""
    warnings: list[str] = field(default_factory=list)

    @property
    def dry_run(self) -> bool:
        """Whether nothing may be stored."""
        return self.query.get("dryRun") == "All"

    @property
    def manager(self) -> str:
        """The field manager: named, or the program in the User-Agent."""
        return self.query.get("fieldManager") or self.headers.get("user-agent", "").split("/", 1)[0][:128] or "unknown"

    @property
    def content_type(self) -> str:
        """The media type of the body."""
        return self.headers.get("content-type", "application/json").split(";", 1)[0].strip().lower()


@dataclass
class Answer:
    """What to send back."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    stream: Iterable[bytes] | None = None


@dataclass
class Cluster:
    """Everything the server knows."""

    store: Store = field(default_factory=Store)
    tokens: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    _served: dict[tuple[str, str, str], Resource] = field(default_factory=dict)
    _crd_revision: int = -1

    def __post_init__(self) -> None:
        self.authorizer = Authorizer(self.store)

    def copy(self) -> Cluster:
        """Another cluster with the same objects and identities."""
        with self.store.lock:
            return Cluster(self.store.copy(), dict(self.tokens))

    def resources(self) -> list[Resource]:
        """All served resources."""
        return list(self._table().values())

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource of a path."""
        return self._table().get((group, version, plural))

    def _table(self) -> dict[tuple[str, str, str], Resource]:
        revision = self.store.revision(CRDS)
        if revision != self._crd_revision:
            with self.store.lock:
                table = {(item.group, item.version, item.plural): item for item in BUILT_IN}
                for crd in self.store.items(CRDS):
                    for resource in custom_resources(crd):
                        table.setdefault((resource.group, resource.version, resource.plural), resource)
                        self.store.use_schema(resource)
                self._served = table
                self._crd_revision = revision
        return self._served

    def namespace(self, name: str) -> Stored | None:
        """A namespace."""
        return self.store.get(NAMESPACES, "", name)

    def seed(self, resource: Resource, obj: Obj) -> Stored:
        """Store an object that the server itself makes."""
        return self.store.put(resource, fresh(resource, kinds.decode(resource, obj)[0]))


def fresh(resource: Resource, obj: Obj) -> Obj:
    """An object as it is first stored: identified and prepared."""
    moment = stamp(now())
    meta = {**obj["metadata"], "uid": str(uuid.uuid4()), "creationTimestamp": moment}
    if resource.spec or resource.schema:
        meta["generation"] = 1
    return kinds.prepare_create(resource, {**obj, "metadata": meta}, moment)


# By content: clusters that begin as copies of one cluster have CRDs of the same uid, and change them differently.
@lru_cache(maxsize=64)
def _schema(version: str) -> Schema:
    parsed = json.loads(version)
    return Schema((parsed.get("schema") or {}).get("openAPIV3Schema") or {}, parsed)


def custom_resources(crd: Stored) -> list[Resource]:
    """The resources that a CRD makes the server serve."""
    spec = crd.obj["spec"]
    names = spec["names"]
    found = []
    for version in spec.get("versions") or []:
        if not version.get("served"):
            continue
        schema = _schema(json.dumps(version))
        found.append(
            Resource(
                group=spec["group"],
                version=version["name"],
                kind=names["kind"],
                plural=names["plural"],
                namespaced=spec.get("scope") == "Namespaced",
                singular=names.get("singular", ""),
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                subresources=("status",) if "status" in (version.get("subresources") or {}) else (),
                schema=schema,
                shape=schema.shape,
                list_kind=names.get("listKind", ""),
            )
        )
    return found
