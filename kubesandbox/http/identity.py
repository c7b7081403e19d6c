"""Who a request comes from: tokens, the reviews in which a client asks about itself, and impersonation."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from urllib.parse import unquote

import msgspec

from ..api.bodies import parse
from ..api.cluster import Answer, Call, Cluster, now, stamp
from ..api.errors import ApiError, bad_request, forbidden, not_found, unauthorized
from ..api.rbac import ADMIN, ANONYMOUS, Attributes, Authorizer, User, account_groups, service_account
from ..schema.resources import SERVICE_ACCOUNTS, Resource

Obj = dict[str, Any]


def user_of(cluster: Cluster, admin_token: str, headers: Mapping[str, str]) -> User:
    """The user behind the Authorization header; an unknown token is a 401."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if not token:
        # kubectl sends no credentials over plain HTTP: it is taken for the admin, as `kubectl proxy` would have it
        return ADMIN if headers.get("user-agent", "").startswith("kubectl") else ANONYMOUS
    if scheme.lower() != "bearer":
        raise unauthorized()
    return ADMIN if secrets.compare_digest(token.strip(), admin_token) else _of_token(cluster, token.strip())


def _of_token(cluster: Cluster, token: str) -> User:
    namespace, name, uid = cluster.tokens.get(token) or ("", "", "")
    account = cluster.store.get(SERVICE_ACCOUNTS, namespace, name) if name else None
    if account is None or account.obj["metadata"]["uid"] != uid:
        raise unauthorized()
    return service_account(namespace, name, uid)


def _segment(value: Obj) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")


def token_request(cluster: Cluster, call: Call) -> Answer:
    """POST to the token subresource of a ServiceAccount: https://kubernetes.io/docs/reference/kubernetes-api/."""
    account = cluster.store.get(SERVICE_ACCOUNTS, call.namespace, call.name)
    if account is None:
        raise not_found(SERVICE_ACCOUNTS, call.name)
    body = parse(call) if call.body.strip() else {}
    seconds = (body.get("spec") or {}).get("expirationSeconds") or 3600
    uid, start = account.obj["metadata"]["uid"], now()
    end = start + timedelta(seconds=seconds)
    claims = {
        "aud": ["https://kubernetes.default.svc"],
        "exp": int(end.timestamp()),
        "iat": int(start.timestamp()),
        "sub": f"system:serviceaccount:{call.namespace}:{call.name}",
    }
    token = f"{_segment({'alg': 'none', 'typ': 'JWT'})}.{_segment(claims)}.{secrets.token_urlsafe(24)}"
    if not call.dry_run:
        cluster.tokens[token] = (call.namespace, call.name, uid)
    answer = {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"name": call.name, "namespace": call.namespace, "creationTimestamp": stamp(start)},
        "spec": {"audiences": claims["aud"], "expirationSeconds": seconds, "boundObjectRef": None},
        "status": {"token": token, "expirationTimestamp": stamp(end)},
    }
    return Answer(201, msgspec.json.encode(answer))


def review(cluster: Cluster, call: Call) -> Answer:
    """SelfSubjectReview, SelfSubjectAccessReview and SelfSubjectRulesReview."""
    body = parse(call) if call.body.strip() else {}
    head = {
        "kind": call.resource.kind,
        "apiVersion": call.resource.api_version,
        "metadata": {"creationTimestamp": None},
    }
    if call.resource.kind == "SelfSubjectReview":
        info: Obj = {"username": call.user.name, "groups": list(call.user.groups)}
        if call.user.uid:
            info["uid"] = call.user.uid
        if call.user.extra:
            info["extra"] = {key: list(values) for key, values in call.user.extra}
        head["metadata"] = {"creationTimestamp": stamp(now())}
        return Answer(201, msgspec.json.encode({**head, "status": {"userInfo": info}}))
    spec = body.get("spec") or {}
    if call.resource.kind == "SelfSubjectRulesReview":
        if not spec.get("namespace"):
            raise bad_request("no namespace on request")
        resources, paths = cluster.authorizer.rules(call.user, spec["namespace"])
        status = {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}
        return Answer(201, msgspec.json.encode({**head, "spec": {}, "status": status}))
    asked = spec.get("resourceAttributes") or {}
    path = (spec.get("nonResourceAttributes") or {}).get("path", "")
    what = Attributes(
        verb=asked.get("verb") or (spec.get("nonResourceAttributes") or {}).get("verb", ""),
        group=asked.get("group", ""),
        resource=asked.get("resource", ""),
        subresource=asked.get("subresource", ""),
        namespace=asked.get("namespace", ""),
        name=asked.get("name", ""),
        path=path,
    )
    allowed = cluster.authorizer.allowed(call.user, what)
    return Answer(201, msgspec.json.encode({**head, "spec": spec, "status": {"allowed": allowed}}))


# Impersonation: the headers by which a request acts as another user, and the rights which that takes.
# https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/
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
