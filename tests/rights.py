"""Accounts of a test, and their rights."""

from tests.apis import Api, Object, wait_for

RBAC = "rbac.authorization.k8s.io"


def account(namespace: str, name: str) -> Object:
    """Return a ServiceAccount as the subject of a binding."""
    return {"kind": "ServiceAccount", "namespace": namespace, "name": name}


def create_account(api: Api, namespace: str, name: str, role: str = "") -> str:
    """Create a ServiceAccount, with a ClusterRole in its namespace if one is given; return its token."""
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}})
    if role:
        bind(api, role, account(namespace, name), namespace)
    return api.service_account_token(namespace, name)


def bind(api: Api, role: str, subject: Object, namespace: str = "", kind: str = "ClusterRole") -> None:
    """Bind a role to a subject, in a namespace or in all."""
    place = {"namespace": namespace} if namespace else {}
    head = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding" if namespace else "ClusterRoleBinding"}
    reference = {"apiGroup": RBAC, "kind": kind, "name": role}
    metadata = {"name": f"{role}-{api.token}", **place}
    api.create({**head, "metadata": metadata, "roleRef": reference, "subjects": [subject]})


def grant(api: Api, subject: Object, *rules: Object, namespace: str = "") -> None:
    """Create a role with these rules for a subject, in a namespace or in all."""
    kind, place = ("Role", {"namespace": namespace}) if namespace else ("ClusterRole", {})
    name = f"tests-{api.token}"
    api.create({"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": {"name": name, **place}, "rules": list(rules)})
    bind(api, name, subject, namespace, kind)


def bind_adopt(api: Api, namespace: str = "") -> None:
    """Bind kube-chores-adopt to the shipped account of sync-copies, in a namespace or in all; wait until it acts."""
    bind(api, "kube-chores-adopt", account("kube-chores", "sync-copies"), namespace)
    wait_for(lambda: can_i(api, "sync-copies", "adopt", "copyrators", namespace=namespace), "the right to adopt")


def can_i(
    api: Api, name: str, verb: str, resource: str, group: str = "kubechores.dev", namespace: str = "", of: str = ""
) -> bool:
    """Whether a shipped account has a verb, on all objects or the one with name `of`, as `kubectl auth can-i` asks."""
    attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace, "name": of}
    spec = {"resourceAttributes": attributes}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    token = api.service_account_token("kube-chores", name)
    answer = api.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, token=token)
    return bool(answer["status"]["allowed"])
