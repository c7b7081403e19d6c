"""Who a request comes from, the tokens of ServiceAccounts, and the reviews in which a client asks about itself."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from ..api.bodies import parse
from ..api.cluster import Answer, Call, Cluster, now, stamp
from ..api.errors import bad_request, not_found, unauthorized
from ..api.rbac import ADMIN, ANONYMOUS, Attributes, User, service_account
from ..schema.resources import SERVICE_ACCOUNTS

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
