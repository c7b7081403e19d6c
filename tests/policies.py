"""The shipped admission policies on a real API server."""

from __future__ import annotations

from typing import Any

from tests.apis import Api, wait_for
from tests.manifests import everything

Object = dict[str, Any]
ADMISSION = "admissionregistration.k8s.io/v1"
SENTINEL = "tests-sentinel"


def is_policy(obj: Object) -> bool:
    """Whether an object of the manifests is an admission policy or its binding."""
    return bool(obj["apiVersion"] == ADMISSION)


def without_policies() -> list[Object]:
    """The objects that a user can install, without the admission policies and their bindings."""
    return [obj for obj in everything() if not is_policy(obj)]


def wait_until_policies_act(api: Api) -> None:
    """Wait until the API server applies all policies that are there.

    It reads them some time after they were written, in the order of their creation: the last one refuses a trial.
    """
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    spec = {
        "matchConstraints": {"resourceRules": [{**rule, "resourceNames": [SENTINEL]}]},
        "validations": [{"expression": "false"}],
    }
    metadata = {"name": SENTINEL}
    policy = {"apiVersion": ADMISSION, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec}
    bound = {"policyName": SENTINEL, "validationActions": ["Deny"]}
    binding = {"apiVersion": ADMISSION, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata, "spec": bound}
    trial = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**metadata, "namespace": "default"}}
    api.put(policy)
    api.put(binding)
    path = f"{api.path(trial, named=False)}?dryRun=All"
    wait_for(lambda: api.request("POST", path, trial)[0] == 422, "the policies to act")
    api.delete(binding)
    api.delete(policy)


def bind_adopt(api: Api, namespace: str = "") -> None:
    """Bind kube-chores-adopt to the shipped account of sync-copies, in a namespace or in all; wait until it acts."""
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    bind(api, kind, "kube-chores-adopt", account("kube-chores", "sync-copies"), namespace)
    wait_for(lambda: can_i(api, "sync-copies", "adopt", "copyrators", namespace=namespace), "the right to adopt")


def account(namespace: str, name: str) -> Object:
    """A ServiceAccount, as the subject of a binding."""
    return {"kind": "ServiceAccount", "namespace": namespace, "name": name}


def bind(api: Api, kind: str, role: str, subject: Object, namespace: str = "") -> None:
    """Bind a ClusterRole."""
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    metadata = {"name": f"{role}-{api.token}", **({"namespace": namespace} if namespace else {})}
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata}
    api.create({**head, "roleRef": reference, "subjects": [subject]})


def can_i(api: Api, name: str, verb: str, resource: str, group: str = "kubechores.dev", namespace: str = "") -> bool:
    """Whether a shipped account has a verb, as `kubectl auth can-i` asks."""
    attributes = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
    spec = {"resourceAttributes": attributes}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    token = api.service_account_token("kube-chores", name)
    answer = api.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, token=token)
    return bool(answer["status"]["allowed"])
