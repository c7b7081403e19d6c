"""Impersonation: the headers by which a request acts as another user, and the rights which that takes.

https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from urllib.parse import unquote

from ..api.errors import ApiError, bad_request, forbidden
from ..api.rbac import ANONYMOUS, Attributes, Authorizer, User, account_groups
from ..schema.resources import Resource

AUTHENTICATION = "authentication.k8s.io"
_EXTRA = "impersonate-extra-"
_NODE = "system:node:"


@dataclass(frozen=True)
class Mode:
    """A way to be allowed: by verbs of its own, or by the verb `impersonate` alone."""

    verb: str = "impersonate"
    group: str = ""
    name: str = ""


def acting(authorizer: Authorizer, user: User, headers: Mapping[str, str], what: Attributes) -> User:
    """The user as whom a request is answered: the one of the headers, if `user` may impersonate it for `what`."""
    target = _target(headers)
    if target is None:
        return user
    denied = []
    for mode in _modes(target):
        refused = next((each for each in _needed(mode, target, what) if not authorizer.allowed(user, each)), None)
        if refused is None:
            return _completed(mode, target)
        denied.append(refused)
    raise _denial(user, denied[0])


def _denial(user: User, what: Attributes) -> ApiError:
    if what.path:
        return ApiError(403, "Forbidden", f"forbidden: {what.denial(user)}", {})
    return forbidden(Resource(what.group, "v1", "", what.resource), what.name, what.denial(user))


def _target(headers: Mapping[str, str]) -> User | None:
    name, uid = headers.get("impersonate-user", ""), headers.get("impersonate-uid", "")
    groups = tuple(headers["impersonate-group"].split("\n")) if "impersonate-group" in headers else ()
    extra = tuple(
        (unquote(header.removeprefix(_EXTRA)), tuple(values.split("\n")))
        for header, values in headers.items()
        if header.startswith(_EXTRA)
    )
    if not name and (uid or groups or extra):
        raise bad_request("requested groups, a uid or extra fields without impersonating a user name")
    return User(name, groups, uid, extra) if name else None


def _modes(target: User) -> Iterator[Mode]:
    """The modes in the order in which the server tries them; of several denials the first is the answer."""
    only_name = not (target.groups or target.uid or target.extra)
    is_node = target.name.startswith(_NODE)
    name = "serviceaccount" if _account(target) else "arbitrary-node" if is_node else "user-info"
    if (name == "user-info" or only_name) and "system:masters" not in target.groups:
        yield Mode(f"impersonate:{name}", AUTHENTICATION, name)
    yield Mode()


def _account(user: User) -> tuple[str, str] | None:
    """Namespace and name of the ServiceAccount that a user is."""
    parts = user.name.split(":")
    return (parts[2], parts[3]) if parts[:2] == ["system", "serviceaccount"] and len(parts) == 4 else None


def _needed(mode: Mode, target: User, what: Attributes) -> Iterator[Attributes]:
    """The rights that impersonation in this mode takes."""
    if mode.name:
        yield replace(what, verb=f"impersonate-on:{mode.name}:{what.verb}")
    if account := _account(target):
        yield Attributes(mode.verb, mode.group, "serviceaccounts", "", *account)
    elif mode.name == "arbitrary-node":
        yield Attributes(mode.verb, mode.group, "nodes", name=target.name.removeprefix(_NODE))
    else:
        yield Attributes(mode.verb, mode.group, "users", name=target.name)
    if target.uid:
        yield Attributes(mode.verb, AUTHENTICATION, "uids", name=target.uid)
    for group in target.groups:
        yield Attributes(mode.verb, mode.group, "groups", name=group)
    for key, values in target.extra:
        for value in values:
            yield Attributes(mode.verb, AUTHENTICATION, "userextras", key, name=value)


def _completed(mode: Mode, target: User) -> User:
    """The user with the groups that the server adds."""
    groups = list(target.groups)
    account = _account(target)
    if not groups and account:
        groups = list(account_groups(account[0]))
    elif mode.name == "arbitrary-node":
        groups = ["system:nodes"]
    (unauthenticated,) = ANONYMOUS.groups
    added = unauthenticated if target.name == ANONYMOUS.name else "system:authenticated"
    if not {added, unauthenticated} & set(groups):
        groups.append(added)
    return replace(target, groups=tuple(groups))
