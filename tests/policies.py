"""The shipped admission policies on a real API server."""

from typing import Any

from tests.apis import Api, wait_for
from tests.control_plane import minor_of
from tests.manifests import everything

Object = dict[str, Any]
ADMISSION = "admissionregistration.k8s.io/v1"
SENTINEL = "tests-sentinel"


def has_policies(version: str) -> bool:
    """Whether a version of Kubernetes, as v1.30.14, has admission policies, which are stable since 1.30."""
    return minor_of(version) >= 30


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
