"""Which user has which rights: RBAC as https://kubernetes.io/docs/reference/access-authn-authz/rbac/ describes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ..schema.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from .store import Store

Obj = dict[str, Any]
PUBLIC_PATHS = ("/version", "/version/", "/healthz", "/livez", "/readyz")
DISCOVERY_PATHS = ("/api", "/apis", "/openapi")


@dataclass(frozen=True)
class User:
    """Who sends a request."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def authenticated(self) -> bool:
        """Whether this is anybody we know."""
        return "system:unauthenticated" not in self.groups


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
ADMIN = User("kubernetes-admin", ("system:masters", "system:authenticated"))


def service_account(namespace: str, name: str, uid: str) -> User:
    """The user that a ServiceAccount is."""
    groups = (*account_groups(namespace), "system:authenticated")
    return User(f"system:serviceaccount:{namespace}:{name}", groups, uid)


def account_groups(namespace: str) -> tuple[str, str]:
    """The groups that all ServiceAccounts of a namespace are in."""
    return "system:serviceaccounts", f"system:serviceaccounts:{namespace}"


@dataclass(frozen=True)
class Attributes:
    """The attributes of a request that are authorized."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def target(self) -> str:
        """secrets, or serviceaccounts/token."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def denial(self, user: User) -> str:
        """The reason in a 403."""
        if self.path:
            return f'User "{user.name}" cannot {self.verb} path "{self.path}"'
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return f'User "{user.name}" cannot {self.verb} resource "{self.target}" in API group "{self.group}" {where}'


@dataclass
class Authorizer:
    """Evaluates the roles and bindings in the store."""

    store: Store
    _answers: dict[tuple[User, Attributes], bool] = field(default_factory=dict)
    _version: int = -1

    def allowed(self, user: User, what: Attributes) -> bool:
        """Whether the user may."""
        if "system:masters" in user.groups or _open_to_all(user, what):
            return True
        with self.store.lock:
            self._forget_if_stale()
            key = (user, what)
            if key not in self._answers:
                self._answers[key] = any(_covers(rule, what) for rule in self._rules(user, what.namespace))
            return self._answers[key]

    def has_right(self, user: User, namespace: str, what: Attributes) -> bool:
        """Whether a role gives the user a right in the namespace, or everywhere if that is empty."""
        return any(_covers(rule, what) for rule in self._rules(user, namespace))

    def rules(self, user: User, namespace: str) -> tuple[list[Obj], list[Obj]]:
        """The rules of a user in a namespace about resources, and those about paths."""
        found = list(self._rules(user, namespace))
        return [each for each in found if each.get("resources")], [
            each for each in found if each.get("nonResourceURLs")
        ]

    def _forget_if_stale(self) -> None:
        newest = max(self.store.revision(kind) for kind in (ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS))
        if newest != self._version:
            self._answers.clear()
            self._version = newest

    def _rules(self, user: User, namespace: str) -> Iterator[Obj]:
        for item in self.store.items(CLUSTER_ROLE_BINDINGS):
            if any(_is_subject(subject, user, "") for subject in item.obj.get("subjects") or []):
                yield from self._role_rules(item.obj["roleRef"], "")
        if not namespace:
            return
        for item in self.store.items(ROLE_BINDINGS, namespace):
            if any(_is_subject(subject, user, namespace) for subject in item.obj.get("subjects") or []):
                yield from self._role_rules(item.obj["roleRef"], namespace)

    def _role_rules(self, reference: Obj, namespace: str) -> list[Obj]:
        if reference.get("kind") == "ClusterRole":
            role = self.store.get(CLUSTER_ROLES, "", reference.get("name", ""))
        else:
            role = self.store.get(ROLES, namespace, reference.get("name", ""))
        rules: list[Obj] = (role.obj.get("rules") or []) if role else []
        return rules


def _open_to_all(user: User, what: Attributes) -> bool:
    if what.path:
        if what.path in PUBLIC_PATHS or what.path.startswith(("/healthz/", "/livez/", "/readyz/")):
            return what.verb == "get"
        return user.authenticated and what.verb == "get" and what.path.startswith(DISCOVERY_PATHS)
    return user.authenticated and what.verb == "create" and what.resource.startswith("selfsubject")


def _is_subject(subject: Obj, user: User, namespace: str) -> bool:
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "User":
        return bool(name == user.name)
    if kind == "Group":
        return name in user.groups
    where = subject.get("namespace") or namespace
    return user.name == f"system:serviceaccount:{where}:{name}"


def _covers(rule: Obj, what: Attributes) -> bool:
    verbs = rule.get("verbs") or []
    if "*" not in verbs and what.verb not in verbs:
        return False
    if what.path:
        return any(
            path == "*" or path == what.path or (path.endswith("*") and what.path.startswith(path[:-1]))
            for path in rule.get("nonResourceURLs") or []
        )
    groups = rule.get("apiGroups") or []
    if "*" not in groups and what.group not in groups:
        return False
    expected = {"*", what.target, f"*/{what.subresource}" if what.subresource else "*"}
    if not expected & set(rule.get("resources") or []):
        return False
    names = rule.get("resourceNames") or []
    return not names or what.name in names
