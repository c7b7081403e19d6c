"""Admission of a test's own in one namespace of a real API server: policies, and webhooks behind real TLS."""

import base64
import json
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import Any

from tests.apis import Api, wait_for
from tests.control_plane import free_port
from tests.serving import QuietHandler, serving

Object = dict[str, Any]
Review = Callable[[Object], Object]
GROUP = "admissionregistration.k8s.io/v1"
RULE = {
    "apiGroups": ["*"],
    "apiVersions": ["*"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["*"],
    "scope": "Namespaced",  # no selector of namespaces keeps others from a webhook
}
LATE_SECONDS = 1.5
# Only writes of the jobs, so that tests can prepare and clean up.
_BY_JOBS = "request.userInfo.username.startsWith('system:serviceaccount:kube-chores:')"
_AS_A_JOB = {"Impersonate-User": "system:serviceaccount:kube-chores:trial", "Impersonate-Group": "system:masters"}


@contextmanager
def refusing(api: Api, *namespaces: str) -> Iterator[None]:
    """Have a policy refuse the jobs' writes in these namespaces, without any in the whole cluster."""
    spec = {
        "matchConstraints": {"namespaceSelector": _selected(namespaces), "resourceRules": [RULE]},
        "validations": [{"expression": f"!{_BY_JOBS}", "message": "not here"}],
    }
    policy = _create(api, "ValidatingAdmissionPolicy", spec=spec)
    bound = {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    binding = _create(api, "ValidatingAdmissionPolicyBinding", spec=bound)
    try:
        wait_for(lambda: not _is_accepted(api, namespaces), "the policy to act")
        yield
    finally:
        api.delete(binding)
        api.delete(policy)
        wait_for(lambda: _is_accepted(api, namespaces), "the policy to be deleted")


@contextmanager
def webhook(api: Api, review: Review | None, *namespaces: str, mutating: bool = False) -> Iterator[list[Object]]:
    """Have a webhook review the jobs' writes in these namespaces, without any in the whole cluster.

    Yield what it was asked. A review that is None does not listen.
    """
    port = free_port()
    assert api.ca_file
    authority = base64.b64encode(api.ca_file.read_bytes()).decode()
    hook = {
        "name": f"tests-{api.token}.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/", "caBundle": authority},
        "rules": [RULE],
        "namespaceSelector": _selected(namespaces),
        "matchConditions": [{"name": "jobs", "expression": _BY_JOBS}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    asked: list[Object] = []
    with _served(api, port, review, asked) if review else nullcontext():
        kind = "MutatingWebhookConfiguration" if mutating else "ValidatingWebhookConfiguration"
        made = _create(api, kind, webhooks=[hook])
        try:
            wait_for(lambda: not _is_accepted(api, namespaces) or asked, "the webhook to act")
            asked.clear()
            yield asked
        finally:
            api.delete(made)
            wait_for(lambda: _is_accepted(api, namespaces) and not _is_asked(api, namespaces, asked), "its end")


def denied(_request: Object) -> Object:
    """Deny."""
    return {"allowed": False, "status": {"code": 403, "message": "not here"}}


def patched(*operations: Object) -> Review:
    """Return what allows a write and patches it."""
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda _request: {"allowed": True, "patchType": "JSONPatch", "patch": patch}


def silent(_request: Object) -> Object:
    """Answer too late."""
    time.sleep(LATE_SECONDS)
    return {"allowed": True}


def _is_accepted(api: Api, namespaces: tuple[str, ...]) -> bool:
    """Whether a write as a job's account is accepted in all these namespaces; nothing is kept."""
    return all(_tried(api, namespace) == HTTPStatus.CREATED for namespace in namespaces or ("default",))


def _is_asked(api: Api, namespaces: tuple[str, ...], asked: list[Object]) -> bool:
    before = len(asked)
    return not _is_accepted(api, namespaces) or len(asked) > before


def _tried(api: Api, namespace: str) -> int:
    trial = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tests-trial", "namespace": namespace}}
    status, _, _ = api.request("POST", f"{api.path(trial, named=False)}?dryRun=All", trial, headers=_AS_A_JOB)
    return status


def _selected(namespaces: tuple[str, ...]) -> Object:
    if not namespaces:
        return {}
    expression = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(namespaces)}
    return {"matchExpressions": [expression]}


def _create(api: Api, kind: str, **fields: Any) -> Object:
    return api.create({"apiVersion": GROUP, "kind": kind, "metadata": {"name": f"tests-{api.token}"}, **fields})


@contextmanager
def _served(api: Api, port: int, review: Review, requests: list[Object]) -> Iterator[None]:
    class Handler(QuietHandler):
        def do_POST(self) -> None:  # noqa: N802 - the name that http.server calls
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append(asked["request"])
            answer = {"uid": asked["request"]["uid"], **review(asked["request"])}
            body = json.dumps({"apiVersion": asked["apiVersion"], "kind": asked["kind"], "response": answer}).encode()
            with suppress(OSError):  # the API server does not wait for a late answer
                self.send(HTTPStatus.OK, {"Content-Type": "application/json"}, body)

    assert api.ca_file
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(api.ca_file, api.ca_file.with_suffix(".key"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with serving(server):
        yield
