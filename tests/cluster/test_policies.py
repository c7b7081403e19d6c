"""The admission policies on a real API server: stolen tokens, tenants that forge stamps, and users without limits.

Each attack succeeds on a control plane without the policies, where RBAC alone limits the account.
"""

import base64
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import yaml

from tests.api.conftest import Run, runs
from tests.apis import Answer, Api, Object, wait_for
from tests.canary import canary
from tests.control_plane import minor_of, programs, version
from tests.manifests import COPIES as COMPONENTS
from tests.manifests import ROOT, everything
from tests.mirrors import NAMESPACE as MIRRORS
from tests.mirrors import NODES, registry_mirror
from tests.more_kinds import MORE_KINDS, NOBODY, of_kind
from tests.policies import is_policy
from tests.rights import RBAC, account, bind, bind_adopt, can_i, create_account, grant
from tests.worlds import configmap, content, encoded, namespace_object, rule, secret

BOTH = pytest.mark.parametrize("api", ["real without policies", "real"], indirect=True)
WITH = pytest.mark.parametrize("api", ["real"], indirect=True)
pytestmark = pytest.mark.cluster

COPIES, RATES, OTHERS = "kube-chores-copies", "kube-chores-rates", "kube-chores-adoption"
EITHER = f"{COPIES} or {OTHERS}"  # two policies may match a write, and the server evaluates them in any order
ROLLS, OF_MIRRORS, PODS = "kube-chores-rolls", "kube-chores-mirrors", "kube-chores-mirror-pods"
PRIORITY, UNINSTALL = "kube-chores-mirror-priority", "kube-chores-uninstall"
MERGE = {"Content-Type": "application/merge-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}
MANAGED = {"app.kubernetes.io/managed-by": "kube-chores"}
COPY = {**MANAGED, "kubechores.dev/job": "sync-copies", "kubechores.dev/rule-namespace": "kube-chores"}
OTHER_INSTALLATION = {"kubechores.dev/rule-namespace": "another"}
ANOTHER = COPY | OTHER_INSTALLATION
HUB = "kubechores.dev/hub"
UID_OF_HUB = "00000000-0000-0000-0000-000000000000"  # as in cronjobs/spoke/account
PUSHED = {**COPY, HUB: UID_OF_HUB}
OF_ANOTHER_HUB = {**COPY, HUB: "11111111-1111-4111-8111-111111111111"}
STAMP_OF_A_RATE = {**COPY, "kubechores.dev/job": "fetch-rates"}
MIRROR = {**MANAGED, "kubechores.dev/job": "mirror-audit"}
RATE_OF_ANOTHER_API = {"apiVersion": "example.com/v1", "kind": "ExchangeRate"}
RATE = {"data": {"rate": "1.1", "currency": "USD"}}
OPT_IN = {"kubechores.dev/roll-on-config-change": "true"}
DELETED_OWNER = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "name": "deleted",
    "uid": "00000000-0000-0000-0000-000000000000",
}


@dataclass(frozen=True)
class Client:
    """A client with the token of an account, and a namespace of other users."""

    api: Api
    token: str
    team: str

    def post(self, obj: Object) -> Answer:
        """Create an object."""
        self.api.made(obj)
        return self.api.request("POST", self.api.path(obj, named=False), obj, token=self.token)

    def put(self, obj: Object) -> Answer:
        """Replace an object, again if a controller writes its status at the same time, as that of a ResourceQuota."""
        while True:
            version = (self.api.get(obj) or {"metadata": {}})["metadata"].get("resourceVersion")
            body = {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}}
            answer = self.api.request("PUT", self.api.path(obj), body, token=self.token)
            if answer[0] != 409:
                return answer

    def patch(self, obj: Object, patch: Object) -> Answer:
        """Merge a patch into an object."""
        return self.api.request("PATCH", self.api.path(obj), patch, headers=MERGE, token=self.token)

    def apply(self, obj: Object) -> Answer:
        """Apply an object server-side."""
        self.api.made(obj)
        path = f"{self.api.path(obj)}?fieldManager=kubectl&force=true"
        return self.api.request("PATCH", path, obj, headers=APPLY, token=self.token)

    def delete(self, obj: Object) -> Answer:
        """Delete an object."""
        return self.api.request("DELETE", self.api.path(obj), token=self.token)

    def existing(self, obj: Object) -> Object:
        """Create an object as its owner, with the administrator's token."""
        self.api.create(obj)
        return obj


def has_policies(api: Api) -> bool:
    return any(is_policy(obj) for obj in api.kept.values())


def refused_by(answer: Answer) -> str:
    """Return the name of the policy that refused a request, or nothing."""
    status, _, body = answer
    _, found, rest = body.decode().partition("ValidatingAdmissionPolicy '")
    return rest.partition("'")[0] if status == 403 and found else ""


def is_expected(api: Api, answer: Answer, policy: str) -> bool:
    """Whether the policy, or one of "A or B", refused the request. Without policies the request must succeed."""
    if not has_policies(api):
        return answer[0] < 300
    # An expression with an error refuses all requests.
    return refused_by(answer) in policy.split(" or ") and b"resulted in error" not in answer[2]


def expect(api: Api, answer: Answer, policy: str) -> None:
    """Check that the answer is expected."""
    assert is_expected(api, answer, policy), answer


Attack = Callable[[Client], Answer]


def expect_each(client: Client, attacks: Mapping[str, tuple[str, Attack]]) -> None:
    """Check the answer of each attack, after which its objects are deleted."""
    unexpected = {}
    for what, (policy, act) in attacks.items():
        with client.api.undone():
            answer = act(client)
        if not is_expected(client.api, answer, policy):
            unexpected[what] = answer
    assert unexpected == {}


def allowed(client: Client, actions: Mapping[str, Attack]) -> None:
    """Check that each action succeeds."""
    unexpected = {}
    for what, act in actions.items():
        with client.api.undone():
            answer = act(client)
        if answer[0] >= 300:
            unexpected[what] = answer
    assert unexpected == {}


# stolen tokens


def token_of(labels: Object, namespace: str) -> Object:
    annotations = {"kubernetes.io/service-account.name": "default"}
    metadata = {"name": "minted", "namespace": namespace, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/service-account-token"}


HELM = "sh.helm.release.v1.shop.v9"


def owned(obj: Object) -> Object:
    return having(obj, ownerReferences=[DELETED_OWNER])


def finalized(obj: Object) -> Object:
    return having(obj, finalizers=["example.com/kept"])


def having(obj: Object, **metadata: Any) -> Object:
    return {**obj, "metadata": {**obj["metadata"], **metadata}}


def labelled(obj: Object, labels: Object) -> Object:
    return having(obj, labels=labels)


def controlled(obj: Object, api: Api) -> Object:
    """Give an object an owner that exists: otherwise the garbage collector would delete the object."""
    owner = api.create(configmap(obj["metadata"]["namespace"], "owner", labels={}))
    reference = {**DELETED_OWNER, "name": "owner", "uid": owner["metadata"]["uid"], "controller": True}
    return having(obj, ownerReferences=[reference])


def replaced(client: Client, before: Object, after: Object) -> Answer:
    client.existing(before)
    return client.put(after)


def a_copy(client: Client) -> Object:
    return configmap(client.team, labels=COPY)


SYNC_COPIES: Mapping[str, tuple[str, Attack]] = {
    "mints a token": (OTHERS, lambda t: t.post(token_of({}, t.team))),
    "mints a token as a copy": (COPIES, lambda t: t.post(token_of(COPY, t.team))),
    "mints a token in kube-system": (COPIES, lambda t: t.post(token_of(COPY, "kube-system"))),
    "creates what is not a copy": (OTHERS, lambda t: t.post(configmap(t.team, labels={}))),
    "replaces a Secret": (OTHERS, lambda t: t.put(t.existing(secret(t.team)))),
    "adopts a Secret": (OTHERS, lambda t: t.put(labelled(t.existing(secret(t.team)), COPY))),
    "deletes a Secret": (OTHERS, lambda t: t.delete(t.existing(secret(t.team)))),
    "replaces a rate": (RATES, lambda t: t.put(t.existing(rate(t)))),
    "creates a rate": (RATES, lambda t: t.post(rate(t))),
    "deletes a rate": (RATES, lambda t: t.delete(t.existing(rate(t)))),
    "makes a copy of a rate": (f"{COPIES} or {RATES}", lambda t: t.put(labelled(t.existing(rate(t)), COPY))),
    "creates a copy with the stamp of another job": (
        OTHERS,
        lambda t: t.post(configmap(t.team, labels={**COPY, "kubechores.dev/job": "mirror-audit"})),
    ),
    "has the garbage collector delete a ConfigMap": (OTHERS, lambda t: t.put(owned(t.existing(configmap(t.team))))),
    "deletes a copy of another installation": (
        COPIES,
        lambda t: t.delete(t.existing(configmap(t.team, labels=ANOTHER))),
    ),
    "gives a copy to another installation": (COPIES, lambda t: t.put(labelled(t.existing(a_copy(t)), ANOTHER))),
    "creates a copy of a hub": (COPIES, lambda t: t.post(configmap(t.team, labels=PUSHED))),
    "deletes a copy of a hub": (COPIES, lambda t: t.delete(t.existing(configmap(t.team, labels=PUSHED)))),
    "changes a copy of a hub": (COPIES, lambda t: t.put(t.existing(configmap(t.team, labels=PUSHED)))),
    "takes a copy of a hub": (COPIES, lambda t: t.put(labelled(t.existing(configmap(t.team, labels=PUSHED)), COPY))),
    "gives a copy to a hub": (COPIES, lambda t: t.put(labelled(t.existing(a_copy(t)), PUSHED))),
    "removes a stamp": (OTHERS, lambda t: t.put(labelled(t.existing(a_copy(t)), {}))),
    "creates a copy with a finalizer": (COPIES, lambda t: t.post(finalized(a_copy(t)))),
    "keeps a copy from being deleted": (COPIES, lambda t: t.put(finalized(t.existing(a_copy(t))))),
    "removes a finalizer of a copy": (COPIES, lambda t: replaced(t, finalized(a_copy(t)), a_copy(t))),
    "creates a copy with an owner": (COPIES, lambda t: t.post(owned(a_copy(t)))),
    "gives a copy an owner": (COPIES, lambda t: t.put(owned(t.existing(a_copy(t))))),
    "removes an owner of a copy": (COPIES, lambda t: replaced(t, controlled(a_copy(t), t.api), a_copy(t))),
    "writes to kube-system": (COPIES, lambda t: t.post(configmap("kube-system", f"x-{t.team}", labels=COPY))),
    "writes a Helm release": (
        COPIES,
        lambda t: t.post(secret(t.team, labels=COPY, data={}) | {"type": "helm.sh/release.v1"}),
    ),
    "writes a Helm release of another type": (COPIES, lambda t: t.post(secret(t.team, HELM, labels=COPY, data={}))),
    "writes a Helm release in a ConfigMap": (COPIES, lambda t: t.post(configmap(t.team, HELM, labels=COPY))),
    "writes a Helm release by its label": (
        COPIES,
        lambda t: t.post(configmap(t.team, labels={**COPY, "owner": "helm"})),
    ),
    "makes a Helm release of a copy": (
        COPIES,
        lambda t: t.put(labelled(t.existing(secret(t.team, labels=COPY)), {**COPY, "owner": "helm"})),
    ),
    "writes settings of a job": (COPIES, lambda t: t.post(configmap(t.team, "roll-workloads-settings", labels=COPY))),
    "writes the key of roll-workloads": (COPIES, lambda t: t.post(secret(t.team, "roll-workloads-key", labels=COPY))),
    "changes settings of a job": (
        COPIES,
        lambda t: t.put(t.existing(configmap(t.team, "kube-chores-settings", labels=COPY))),
    ),
    "writes a bootstrap token": (
        COPIES,
        lambda t: t.post(secret(t.team, labels=COPY, data={}) | {"type": "bootstrap.kubernetes.io/token"}),
    ),
}


def pushed(client: Client) -> Object:
    return configmap(client.team, labels=PUSHED)


# The account that a hub uses in another cluster.
SYNC_COPIES_HUB: Mapping[str, tuple[str, Attack]] = {
    "mints a token": (OTHERS, lambda t: t.post(token_of({}, t.team))),
    "mints a token as a copy": (COPIES, lambda t: t.post(token_of(PUSHED, t.team))),
    "mints a token in kube-system": (COPIES, lambda t: t.post(token_of(PUSHED, "kube-system"))),
    "creates what is not a copy": (OTHERS, lambda t: t.post(configmap(t.team, labels={}))),
    "creates a copy without a hub": (COPIES, lambda t: t.post(configmap(t.team, labels=COPY))),
    "creates a copy of another hub": (COPIES, lambda t: t.post(configmap(t.team, labels=OF_ANOTHER_HUB))),
    "creates a copy of a hub without a uid": (COPIES, lambda t: t.post(configmap(t.team, labels={**COPY, HUB: ""}))),
    "creates a copy of another manager": (
        COPIES,
        lambda t: t.post(configmap(t.team, labels={**PUSHED, "app.kubernetes.io/managed-by": "other"})),
    ),
    "creates a copy with the stamp of another job": (
        OTHERS,
        lambda t: t.post(configmap(t.team, labels={**PUSHED, "kubechores.dev/job": "mirror-audit"})),
    ),
    "changes a copy of another hub": (COPIES, lambda t: t.put(t.existing(configmap(t.team, labels=OF_ANOTHER_HUB)))),
    "deletes a copy of another hub": (
        COPIES,
        lambda t: t.delete(t.existing(configmap(t.team, labels=OF_ANOTHER_HUB))),
    ),
    "takes a copy of another hub": (
        COPIES,
        lambda t: t.put(labelled(t.existing(configmap(t.team, labels=OF_ANOTHER_HUB)), PUSHED)),
    ),
    "changes a copy of this cluster": (COPIES, lambda t: t.put(t.existing(a_copy(t)))),
    "deletes a copy of this cluster": (COPIES, lambda t: t.delete(t.existing(a_copy(t)))),
    "takes a copy of this cluster": (COPIES, lambda t: t.put(labelled(t.existing(a_copy(t)), PUSHED))),
    "removes the hub of a copy": (COPIES, lambda t: t.put(labelled(t.existing(pushed(t)), COPY))),
    "gives a copy to another hub": (COPIES, lambda t: t.put(labelled(t.existing(pushed(t)), OF_ANOTHER_HUB))),
    "removes the stamp": (OTHERS, lambda t: t.put(labelled(t.existing(pushed(t)), {}))),
    "removes the job only": (OTHERS, lambda t: t.put(labelled(t.existing(pushed(t)), {HUB: UID_OF_HUB}))),
    "replaces a Secret": (OTHERS, lambda t: t.put(t.existing(secret(t.team)))),
    "adopts a Secret": (OTHERS, lambda t: t.put(labelled(t.existing(secret(t.team)), PUSHED))),
    "adopts a ConfigMap": (OTHERS, lambda t: t.put(labelled(t.existing(configmap(t.team)), PUSHED))),
    "deletes a Secret": (OTHERS, lambda t: t.delete(t.existing(secret(t.team)))),
    "creates a rate": (RATES, lambda t: t.post(rate(t))),
    "replaces a rate": (RATES, lambda t: t.put(t.existing(rate(t)))),
    "deletes a rate": (RATES, lambda t: t.delete(t.existing(rate(t)))),
    "makes a copy of a rate": (f"{COPIES} or {RATES}", lambda t: t.put(labelled(t.existing(rate(t)), PUSHED))),
    "has the garbage collector delete a ConfigMap": (OTHERS, lambda t: t.put(owned(t.existing(configmap(t.team))))),
    "creates a copy with a finalizer": (COPIES, lambda t: t.post(finalized(pushed(t)))),
    "keeps a copy from being deleted": (COPIES, lambda t: t.put(finalized(t.existing(pushed(t))))),
    "gives a copy an owner": (COPIES, lambda t: t.put(owned(t.existing(pushed(t))))),
    "writes to kube-system": (COPIES, lambda t: t.post(configmap("kube-system", f"x-{t.team}", labels=PUSHED))),
    "writes a Helm release": (
        COPIES,
        lambda t: t.post(secret(t.team, labels=PUSHED, data={}) | {"type": "helm.sh/release.v1"}),
    ),
    "writes a Helm release by its name": (COPIES, lambda t: t.post(configmap(t.team, HELM, labels=PUSHED))),
    "writes settings of a job": (COPIES, lambda t: t.post(configmap(t.team, "roll-workloads-settings", labels=PUSHED))),
    "writes the key of roll-workloads": (COPIES, lambda t: t.post(secret(t.team, "roll-workloads-key", labels=PUSHED))),
    "writes a bootstrap token": (
        COPIES,
        lambda t: t.post(secret(t.team, labels=PUSHED, data={}) | {"type": "bootstrap.kubernetes.io/token"}),
    ),
}


def attacks_on(kind: str) -> Mapping[str, tuple[str, Attack]]:
    """Return what sync-copies must not do to objects of a kind of MORE_KINDS."""

    def foreign(client: Client) -> Object:
        return client.existing(of_kind(kind, client.team))

    return {
        f"creates a {kind} that is not a copy": (OTHERS, lambda t: t.post(of_kind(kind, t.team))),
        f"creates a {kind} with the stamp of a rate": (RATES, lambda t: t.post(of_kind(kind, t.team, STAMP_OF_A_RATE))),
        f"replaces a {kind}": (OTHERS, lambda t: t.put(foreign(t))),
        f"adopts a {kind}": (OTHERS, lambda t: t.put(labelled(foreign(t), COPY))),
        f"deletes a {kind}": (OTHERS, lambda t: t.delete(foreign(t))),
        f"deletes a {kind} of another installation": (
            COPIES,
            lambda t: t.delete(t.existing(of_kind(kind, t.team, ANOTHER))),
        ),
        f"removes the stamp of a {kind}": (
            OTHERS,
            lambda t: t.put(labelled(t.existing(of_kind(kind, t.team, COPY)), {})),
        ),
        f"writes a {kind} to kube-system": (
            COPIES,
            lambda t: t.post(of_kind(kind, "kube-system", COPY, name=f"x-{t.team}")),
        ),
        f"keeps a {kind} from being deleted": (COPIES, lambda t: t.post(finalized(of_kind(kind, t.team, COPY)))),
    }


def binding(client: Client, kind: str, role: str, labels: Object = COPY) -> Object:
    return of_kind("RoleBinding", client.team, labels, roleRef={"apiGroup": RBAC, "kind": kind, "name": role})


def binds_a_role(client: Client) -> Answer:
    """Bind a Role whose rights the account has: RBAC permits that without the verb `bind`."""
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    metadata = {"name": "theirs", "namespace": client.team}
    client.existing({"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]})
    return client.post(binding(client, "Role", "theirs"))


def rebinds(client: Client) -> Answer:
    return client.put({**client.existing(binding(client, "ClusterRole", OWN_ROLE)), "subjects": [NOBODY, NOBODY]})


OWN_ROLE = "kube-chores-sync-copies-secrets"
MORE_COPIES: Mapping[str, tuple[str, Attack]] = {
    **{what: attack for kind in MORE_KINDS for what, attack in attacks_on(kind).items()},
    "binds a Role": (COPIES, binds_a_role),
    "gives its rights on Secrets to others": (COPIES, lambda t: t.post(binding(t, "ClusterRole", OWN_ROLE))),
    "gives them to more users": (COPIES, rebinds),
}


def rate(client: Client, namespace: str = "", /, **fields: Any) -> Object:
    namespace = namespace or client.team
    labels = {**MANAGED, "kubechores.dev/job": "fetch-rates", "kubechores.dev/rule-namespace": namespace}
    return configmap(namespace, f"rate-{client.team}", labels=labels, **(fields or RATE))


def with_labels_of_a_rate(client: Client) -> Object:
    return labelled(client.existing(configmap(client.team, data=RATE["data"])), rate(client)["metadata"]["labels"])


FETCH_RATES: Mapping[str, tuple[str, Attack]] = {
    "writes to kube-system": (RATES, lambda t: t.post(rate(t, "kube-system"))),
    "creates a ConfigMap without its stamp": (OTHERS, lambda t: t.post(configmap(t.team, labels={}))),
    "creates a rate of another namespace": (
        RATES,
        lambda t: t.post(labelled(rate(t), rate(t, "other")["metadata"]["labels"])),
    ),
    "creates a rate without the name of the manager": (
        RATES,
        lambda t: t.post(labelled(rate(t), {"kubechores.dev/job": "fetch-rates"})),
    ),
    "removes a stamp": (OTHERS, lambda t: t.put(labelled(t.existing(rate(t)), {}))),
    "makes a rate of a ConfigMap": (OTHERS, lambda t: t.put(with_labels_of_a_rate(t))),
    "creates a rate with a finalizer": (RATES, lambda t: t.post(finalized(rate(t)))),
    "keeps a rate from being deleted": (RATES, lambda t: t.put(finalized(t.existing(rate(t))))),
    "removes a finalizer of a rate": (RATES, lambda t: replaced(t, finalized(rate(t)), rate(t))),
    "creates a rate with an owner": (RATES, lambda t: t.post(owned(rate(t)))),
    "gives a rate an owner": (RATES, lambda t: t.put(owned(t.existing(rate(t))))),
    "gives a rate an owner of another API": (
        RATES,
        lambda t: t.put(having(t.existing(rate(t)), ownerReferences=[{**DELETED_OWNER, **RATE_OF_ANOTHER_API}])),
    ),
    "removes an owner of a rate": (RATES, lambda t: replaced(t, controlled(rate(t), t.api), rate(t))),
    "replaces a ConfigMap": (OTHERS, lambda t: t.put(t.existing(configmap(t.team)))),
    "stamps a ConfigMap": (EITHER, lambda t: t.put(labelled(t.existing(configmap(t.team)), COPY))),
    "deletes a ConfigMap": (OTHERS, lambda t: t.delete(t.existing(configmap(t.team)))),
    "writes another key": (RATES, lambda t: t.post(rate(t, data={"Corefile": "x"}))),
    "writes binary data": (RATES, lambda t: t.post(rate(t, binaryData={"rate": encoded("1")}))),
    "writes a long value": (RATES, lambda t: t.post(rate(t, data={"rate": "1" * 65}))),
    "changes a copy": (COPIES, lambda t: t.put(t.existing(a_copy(t)))),
    "creates a copy": (COPIES, lambda t: t.post(a_copy(t))),
    "deletes a copy": (COPIES, lambda t: t.delete(t.existing(a_copy(t)))),
}


def workload(
    client: Client, kind: str = "Deployment", annotations: Object | None = None, pods: Object | None = None
) -> Object:
    labels = {"app": "web"}
    pod = {"metadata": {"labels": labels, "annotations": {"theirs": "1"}, **(pods or {})}, "spec": pod_spec()}
    spec: Object = {"selector": {"matchLabels": labels}, "template": pod}
    spec |= {"replicas": 0} if kind != "DaemonSet" else {}
    spec |= {"serviceName": "web"} if kind == "StatefulSet" else {}
    metadata = {"name": "web", "namespace": client.team, "annotations": OPT_IN if annotations is None else annotations}
    return client.existing({"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec})


def opted_out(client: Client) -> Object:
    """Create a workload that opts out, in a namespace that opts in."""
    namespace = namespace_object(f"opted-in-{client.api.token}")
    if client.api.get(namespace) is None:
        client.api.namespace("opted-in", annotations=OPT_IN)
    elsewhere = replace(client, team=namespace["metadata"]["name"])
    return workload(elsewhere, annotations=dict.fromkeys(OPT_IN, "false"))


def opt_in(api: Api, namespace: str) -> None:
    api.patch(namespace_object(namespace), {"metadata": {"annotations": OPT_IN}})


def pod_spec(**fields: Any) -> Object:
    allowed = {"allowPrivilegeEscalation": False, **fields.pop("security", {})}
    container = {"name": "web", "image": "registry.example.com/web:1", "securityContext": allowed}
    return {"containers": [{**container, **fields.pop("container", {})}], **fields}


def image(value: str) -> Object:
    return {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": value}]}}}}


def pods(**metadata: Any) -> Object:
    return {"spec": {"template": {"metadata": metadata}}}


BASELINE = {"metadata": {"annotations": {"kubechores.dev/config-baseline": "{}"}}}
KEPT = {"finalizers": ["example.com/kept"]}
ROLL_WORKLOADS: Mapping[str, Attack] = {
    **{
        f"changes the image of a {kind}": lambda t, kind=kind: t.patch(workload(t, kind), image("x"))  # type: ignore[misc]
        for kind in ("Deployment", "StatefulSet", "DaemonSet")
    },
    "marks a workload that did not opt in": lambda t: t.patch(workload(t, annotations={}), BASELINE),
    "marks a workload that opts out of its namespace": lambda t: t.patch(opted_out(t), BASELINE),
    "opts the workload of a namespace in": lambda t: t.patch(opted_out(t), {"metadata": {"annotations": OPT_IN}}),
    "opts a workload in": lambda t: t.patch(workload(t, annotations={}), {"metadata": {"annotations": OPT_IN}}),
    "removes a finalizer of pods": lambda t: t.patch(workload(t, pods=KEPT), pods(finalizers=None)),
    **{
        what: lambda t, patch=patch: t.patch(workload(t), patch)  # type: ignore[misc]
        for what, patch in {
            "opts a workload out": {"metadata": {"annotations": dict.fromkeys(OPT_IN)}},
            "has the garbage collector delete a workload": {"metadata": {"ownerReferences": [DELETED_OWNER]}},
            "keeps a workload from being deleted": {"metadata": KEPT},
            "changes the prefix of a generated name": {"metadata": {"generateName": "x-"}},
            "keeps pods from being deleted": pods(**KEPT),
            "has the garbage collector delete pods": pods(ownerReferences=[DELETED_OWNER]),
            **{f"changes the {field} of pods": pods(**{field: "x"}) for field in ("name", "generateName", "namespace")},
            "changes a label": {"metadata": {"labels": {"a": "b"}}},
            "changes the number of replicas": {"spec": {"replicas": 1}},
            "pauses a Deployment": {"spec": {"paused": True}},
            "changes another annotation of pods": pods(annotations={"theirs": "2"}),
            "removes an annotation of pods": pods(annotations={"theirs": None}),
            "changes the account of pods": {"spec": {"template": {"spec": {"serviceAccountName": "admin"}}}},
        }.items()
    },
}


def service(client: Client, labels: Object, **fields: Any) -> Object:
    metadata = {"name": f"web-{client.api.token}", "namespace": MIRRORS, "labels": labels}
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80}], **fields}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def mirror_daemon_set(client: Client, labels: Object) -> Object:
    pod = {"metadata": {"labels": {"app": "web"}}, "spec": pod_spec(nodeSelector={"no": "node"})}
    metadata = {"name": f"web-{client.api.token}", "namespace": NODES, "labels": labels}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": pod}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}


def claim(client: Client, **fields: Any) -> Object:
    metadata = {"name": f"web-{client.api.token}", "namespace": MIRRORS, "labels": MIRROR}
    spec = {**CLAIM, **fields}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def stateful_set(client: Client, **fields: Any) -> Object:
    """Return a StatefulSet without pods, which Pod Security cannot refuse."""
    metadata = {"name": f"web-{client.api.token}", "namespace": MIRRORS, "labels": MIRROR}
    pod = {"metadata": {"labels": {"app": "web"}}, "spec": pod_spec()}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "serviceName": "web", "template": pod, **fields}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec}


SNAPSHOT = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "theirs"}
EXTERNAL: Mapping[str, Object] = {
    "external addresses": {"externalIPs": ["10.9.8.7"]},
    "a port of nodes": {"type": "NodePort"},
    "a load balancer": {"type": "LoadBalancer"},
    "another name": {"type": "ExternalName", "externalName": "registry.example.com"},
    "the address of a load balancer": {"loadBalancerIP": "10.9.8.7"},
}
VOLUMES: Mapping[str, Object] = {
    "a volume": {"volumeName": "theirs"},
    "volumes by label": {"selector": {"matchLabels": {"app": "theirs"}}},
    "a snapshot": {"dataSource": SNAPSHOT},
    "data of elsewhere": {"dataSourceRef": SNAPSHOT},
}


def external(what: str, *, later: bool = False) -> Attack:
    fields = EXTERNAL[what]
    if later:
        return lambda client: client.patch(client.existing(service(client, MIRROR)), {"spec": fields})
    return lambda client: client.post(service(client, MIRROR, **fields))


def choosing(what: str) -> Attack:
    return lambda client: client.post(claim(client, **VOLUMES[what]))


MIRROR_REPAIR: Mapping[str, Attack] = {
    "creates a Service without its stamp": lambda t: t.post(service(t, {})),
    "applies a DaemonSet without its stamp": lambda t: t.apply(mirror_daemon_set(t, MANAGED)),
    "redirects a Service": lambda t: t.patch(t.existing(service(t, {})), {"spec": {"selector": {"app": "evil"}}}),
    "stamps a Service": lambda t: t.patch(t.existing(service(t, {})), {"metadata": {"labels": MIRROR}}),
    "removes a stamp": lambda t: t.patch(
        t.existing(service(t, MIRROR)), {"metadata": {"labels": dict.fromkeys(MIRROR)}}
    ),
    "deletes a DaemonSet": lambda t: t.delete(t.existing(mirror_daemon_set(t, {}))),
    **{f"creates a Service with {what}": external(what) for what in EXTERNAL},
    **{f"gives a Service {what}": external(what, later=True) for what in EXTERNAL},
    **{f"creates a claim that chooses {what}": choosing(what) for what in VOLUMES},
    "chooses the volume of a pending claim": lambda t: t.patch(
        t.existing(claim(t)), {"spec": {"volumeName": "theirs"}}
    ),
    "has a StatefulSet create a claim": lambda t: t.post(
        stateful_set(t, volumeClaimTemplates=[{"metadata": {"name": "a"}, "spec": claim(t)["spec"]}])
    ),
}
ATTACKS: Mapping[str, Mapping[str, tuple[str, Attack]]] = {
    "sync-copies": {**SYNC_COPIES, **MORE_COPIES},
    "sync-copies-hub": SYNC_COPIES_HUB,
    "fetch-rates": FETCH_RATES,
    "roll-workloads": {name: (ROLLS, attack) for name, attack in ROLL_WORKLOADS.items()},
    "mirror-repair": {name: (OF_MIRRORS, attack) for name, attack in MIRROR_REPAIR.items()},
}


@BOTH
@pytest.mark.parametrize("account", ATTACKS)
def test_a_stolen_token_writes_only_what_its_job_writes(api: Api, account: str) -> None:
    expect_each(Client(api, api.service_account_token("kube-chores", account), api.namespace("team")), ATTACKS[account])


@WITH
def test_a_namespace_that_opts_in_lets_its_workloads_be_rolled(api: Api) -> None:
    account = Client(api, api.service_account_token("kube-chores", "roll-workloads"), api.namespace("team"))
    opt_in(api, account.team)

    for kind in ("Deployment", "StatefulSet", "DaemonSet"):
        made = workload(account, kind, annotations={})
        wait_for(lambda: account.patch(made, BASELINE)[0] == 200, "the policy to see the namespace")  # noqa: B023


@WITH
def test_the_refusal_of_a_copy_gives_the_reason(api: Api) -> None:
    client = Client(api, api.service_account_token("kube-chores", "sync-copies"), api.namespace("team"))
    release, settings = "objects that Helm reads as a release", "ConfigMaps from which jobs read their settings"

    for made, message in (
        (configmap(client.team, HELM, labels=COPY), f"sync-copies cannot write {release}"),
        (configmap(client.team, labels={**COPY, "owner": "helm"}), "or label owner: helm"),
        (configmap(client.team, "sync-copies-settings", labels=COPY), f"cannot write {settings}"),
        (token_of(COPY, client.team), "cannot write Secrets of a type that Kubernetes or Helm processes"),
    ):
        assert message in client.post(made)[2].decode()


@BOTH
def test_a_stolen_token_of_sync_copies_makes_nobody_cluster_admin(api: Api) -> None:
    """The whole attack: sync-copies mints the token of a controller that can write any ClusterRole."""
    client = Client(api, api.service_account_token("kube-chores", "sync-copies"), "kube-system")
    minted = token_of(COPY, "kube-system")
    minted["metadata"]["name"] = f"minted-{api.token}"
    minted["metadata"]["annotations"]["kubernetes.io/service-account.name"] = "clusterrole-aggregation-controller"

    expect(api, client.post(minted), COPIES)

    if has_policies(api):
        return
    wait_for(lambda: (api.get(minted) or {}).get("data", {}).get("token"), "the token")
    stolen = json.loads(api.request("GET", api.path(minted), token=client.token)[2])["data"]["token"]
    escalates = {"verb": "escalate", "group": "rbac.authorization.k8s.io", "resource": "clusterroles"}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    body = {**review, "spec": {"resourceAttributes": escalates}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    assert api.call("POST", path, body, token=base64.b64decode(stolen).decode())["status"]["allowed"]


@BOTH
def test_sync_copies_writes_copies_of_each_kind(api: Api) -> None:
    client = Client(api, api.service_account_token("kube-chores", "sync-copies"), api.namespace("team"))

    for kind in MORE_KINDS:
        copy = of_kind(kind, client.team, COPY)
        assert client.post(copy)[0] == 201
        assert client.put(having(copy, annotations={"a": "b"}))[0] == 200
        assert client.delete(copy)[0] == 200


@BOTH
def test_the_account_of_a_hub_writes_its_copies(api: Api) -> None:
    opted_in = api.namespace("kube-team", annotations={"kubechores.dev/copies": "true"})
    client = Client(api, api.service_account_token("kube-chores", "sync-copies-hub"), api.namespace("team"))

    for each in (pushed(client), secret(client.team, labels=PUSHED), configmap(opted_in, labels=PUSHED)):
        assert client.post(each)[0] == 201
        assert client.put(having(each, annotations={"a": "b"}))[0] == 200
        assert client.delete(each)[0] == 200


@BOTH
def test_the_account_of_a_hub_has_no_rights_on_other_kinds(api: Api) -> None:
    client = Client(api, api.service_account_token("kube-chores", "sync-copies-hub"), api.namespace("team"))

    for kind in MORE_KINDS:
        existing = client.existing(of_kind(kind, client.team, PUSHED))
        answers = (
            client.post(of_kind(kind, client.team, PUSHED, name="y")),
            client.put(existing),
            client.delete(existing),
        )
        assert [(each[0], refused_by(each)) for each in answers] == 3 * [(403, "")], kind
    robot = f"/api/v1/namespaces/{client.team}/serviceaccounts/default/token"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    assert api.request("POST", robot, body, token=client.token)[0] == 403


@BOTH
def test_the_account_for_other_clusters_writes_nothing_here(api: Api) -> None:
    client = Client(api, api.service_account_token("kube-chores", "sync-copies-clusters"), api.namespace("team"))

    for labels in ({}, COPY, PUSHED):
        for each in (configmap(client.team, labels=labels), secret(client.team, labels=labels)):
            existing = client.existing(having(each, name="existing"))
            answers = (client.post(each), client.put(existing), client.patch(existing, {}), client.delete(existing))
            assert [(each[0], refused_by(each)) for each in answers] == 4 * [(403, "")]
            api.delete(existing)
    made = client.existing(rule("settings", client.team, "*"))
    assert client.patch(made, {"spec": {"targets": {"include": ["x"]}}})[0] == 403
    assert client.delete(made)[0] == 403


@BOTH
def test_a_stolen_token_binds_only_the_cluster_roles_that_its_role_names(api: Api) -> None:
    client = Client(api, api.service_account_token("kube-chores", "sync-copies"), api.namespace("team"))

    for role in ("edit", "cluster-admin", "kube-chores-adopt"):
        status, _, body = client.post(binding(client, "ClusterRole", role))

        message = json.loads(body)["message"]
        assert status == 403
        assert message.startswith(
            f'rolebindings.{RBAC} "x" is forbidden: user "system:serviceaccount:kube-chores:sync-copies"'
        )
        assert "is attempting to grant RBAC permissions not currently" in message


@BOTH
def test_a_stolen_token_cannot_write_roles(api: Api) -> None:
    client = Client(api, api.service_account_token("kube-chores", "sync-copies"), api.namespace("team"))
    reference = binding(client, "ClusterRole", "view")["roleRef"]

    for kind in ("Role", "ClusterRole", "ClusterRoleBinding"):
        place = {"namespace": client.team} if kind == "Role" else {}
        fields = {"rules": []} if kind.endswith("Role") else {"roleRef": reference}
        obj = {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": {"name": client.team, **place}, **fields}

        status, _, body = client.post(obj)

        assert status == 403
        assert f'cannot create resource "{kind.lower()}s" in API group "{RBAC}"' in json.loads(body)["message"]


@WITH
def test_fetch_rates_cannot_write_other_kinds_even_with_the_permissions(api: Api) -> None:
    client = Client(api, api.service_account_token("kube-chores", "fetch-rates"), api.namespace("team"))
    refused = [client.post(of_kind(kind, client.team, STAMP_OF_A_RATE)) for kind in MORE_KINDS]
    grant_more_kinds(api, account("kube-chores", "fetch-rates"), client)

    assert {(each[0], refused_by(each)) for each in refused} == {(403, "")}
    for kind in MORE_KINDS:
        for labels, policy in (({}, OTHERS), (COPY, COPIES), (rate(client)["metadata"]["labels"], RATES)):
            expect(api, client.post(of_kind(kind, client.team, labels)), policy)


def grant_more_kinds(api: Api, subject: Object, client: Client) -> None:
    """Give an account of a client all rights on MORE_KINDS in its namespace, and wait until they act."""
    groups = ["", "networking.k8s.io", RBAC]
    rules = {"apiGroups": groups, "resources": [*COMPONENTS.values()], "verbs": ["*"]}
    binds = {"apiGroups": [RBAC], "resources": ["clusterroles"], "resourceNames": ["view"], "verbs": ["bind"]}
    grant(api, subject, rules, binds, namespace=client.team)
    path = api.path(of_kind("LimitRange", client.team), named=False)
    wait_for(lambda: api.request("GET", path, token=client.token)[0] == 200, "the rights")


@WITH
def test_mirror_repair_keeps_what_others_set_on_a_service(api: Api) -> None:
    client = Client(api, api.service_account_token("kube-chores", "mirror-repair"), MIRRORS)

    for fields in EXTERNAL.values():
        with api.undone():
            made = client.existing(service(client, MIRROR, **fields))
            assert client.patch(made, {"metadata": {"labels": {"a": "b"}}})[0] == 200
            assert client.patch(made, {"spec": {"type": "ClusterIP"}})[0] == 200


# pods of mirrors, for all users


def node_pod(path: str) -> Object:
    mount = {"name": "certs", "mountPath": "/certs"}
    certs = {"name": "certs", "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
    return pod_spec(container={"volumeMounts": [mount]}, volumes=[certs])


CONTAINERD = "/etc/containerd"


def reading_containerd(
    path: str = CONTAINERD, mounts: Sequence[Object] = ({"readOnly": True},), **fields: Any
) -> Object:
    """Return a pod with containerd's configuration; the first of several mounts is read-only."""
    first = {"name": "containerd", "mountPath": "/a", "readOnly": True}
    mounted = [{**(first if number == 0 else {"name": "containerd"}), **each} for number, each in enumerate(mounts)]
    volume = {"name": "containerd", "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
    return pod_spec(container={"volumeMounts": mounted}, volumes=[volume], **fields)


def writing() -> Object:
    return {**starting(), "volumeMounts": [{"name": "containerd", "mountPath": "/a"}]}


def mounting(volume: Object) -> Object:
    return pod_spec(volumes=[{"name": "v", **volume}])


def starting(**security: Any) -> Object:
    return {"name": "init", "image": "x", "securityContext": {"allowPrivilegeEscalation": False, **security}}


CERTS = "/etc/containerd/certs.d"
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
UNCONFINED = {"type": "Unconfined"}
ELSEWHERE = {"port": 10250, "host": "10.0.0.1"}
PRIVILEGED = {"allowPrivilegeEscalation": True, "privileged": True}
REFUSED_PODS: Mapping[str, tuple[str, Object]] = {
    "mount the node": ("mirror-nodes", node_pod("/")),
    "mount another folder of containerd": ("mirror-nodes", node_pod("/etc/containerd/conf.d")),
    "mount the state of containerd": ("mirror-nodes", node_pod("/run/containerd")),
    "write the configuration of containerd": ("mirror-nodes", node_pod(CONTAINERD)),
    "write it by a second mount": ("mirror-nodes", reading_containerd(mounts=[{}, {"mountPath": "/b"}])),
    "write it at the start": ("mirror-nodes", reading_containerd(initContainers=[writing()])),
    "write it by another name": ("mirror-nodes", reading_containerd(path=f"{CONTAINERD}/")),
    "write what is in it": ("mirror-nodes", reading_containerd(mounts=[{"readOnly": False, "subPath": "conf.d"}])),
    "read the configuration of containerd next to a registry": ("mirrors", reading_containerd()),
    "mount what a pod may have linked": ("mirror-nodes", node_pod(f"{CERTS}/docker.io")),
    "mount the node's certificates next to a registry": ("mirrors", node_pod(CERTS)),
    "use the network of the node": ("mirror-nodes", pod_spec(hostNetwork=True)),
    "see processes of the node": ("mirror-nodes", pod_spec(hostPID=True)),
    "share memory with the node": ("mirror-nodes", pod_spec(hostIPC=True)),
    "are privileged": ("mirror-nodes", pod_spec(security=PRIVILEGED)),
    "gain privileges": ("mirror-nodes", pod_spec(container={"securityContext": {}})),
    "have more capabilities": ("mirrors", pod_spec(security={"capabilities": {"add": ["SYS_ADMIN"]}})),
    "listen on a port of the node": ("mirrors", pod_spec(container={"ports": [{"containerPort": 80, "hostPort": 80}]})),
    "mount a share of the network": ("mirrors", mounting({"nfs": {"server": "10.0.0.1", "path": "/"}})),
    "mount by a driver of the node": ("mirror-nodes", mounting({"csi": {"driver": "secrets-store.csi.k8s.io"}})),
    "mount a new claim": ("mirrors", mounting({"ephemeral": {"volumeClaimTemplate": {"spec": CLAIM}}})),
    "mount a claim of the node pods": ("mirror-nodes", mounting({"persistentVolumeClaim": {"claimName": "cache"}})),
    "mount an image": ("mirrors", mounting({"image": {"reference": "registry.example.com/web:1"}})),
    "see all of /proc": ("mirror-nodes", pod_spec(security={"procMount": "Unmasked"}, hostUsers=False)),
    "use every system call": ("mirror-nodes", pod_spec(security={"seccompProfile": UNCONFINED})),
    "use every system call in all containers": (
        "mirror-nodes",
        pod_spec(securityContext={"seccompProfile": UNCONFINED}),
    ),
    "run without AppArmor": ("mirror-nodes", pod_spec(security={"appArmorProfile": UNCONFINED})),
    "run without AppArmor at the start": (
        "mirror-nodes",
        pod_spec(initContainers=[starting(appArmorProfile=UNCONFINED)]),
    ),
    **{
        f"have kubelet ask another host by a {probe} of {how}": (
            "mirrors",
            pod_spec(container={probe: {how: ELSEWHERE}}),
        )
        for probe in ("livenessProbe", "readinessProbe", "startupProbe")
        for how in ("httpGet", "tcpSocket")
    },
    **{
        f"have kubelet ask another host by a hook {hook}": (
            "mirror-nodes",
            pod_spec(container={"lifecycle": {hook: {"httpGet": ELSEWHERE}}}),
        )
        for hook in ("postStart", "preStop")
    },
    "take the place of other pods": ("mirror-nodes", pod_spec(priorityClassName="system-node-critical")),
    "claim a device": ("mirrors", pod_spec(resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])),
    "are privileged at the start": ("mirror-nodes", pod_spec(initContainers=[starting(**PRIVILEGED)])),
}


def place_of_mirrors(api: Api, component: str) -> str:
    labels = {"app.kubernetes.io/part-of": "kube-chores", "app.kubernetes.io/component": component}
    return api.namespace(component, labels=labels)


def pod(namespace: str, spec: Object) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": namespace}, "spec": spec}


# An older API server drops the field: the minor version that has it.
NEWER = {"mount an image": 35, "see all of /proc": 33}


@BOTH
@pytest.mark.parametrize("component", ["mirrors", "mirror-nodes"])
def test_pods_of_mirrors_cannot(api: Api, component: str) -> None:
    admin = Client(api, api.admin_token, place_of_mirrors(api, component))

    def creates(spec: Object) -> tuple[str, Attack]:
        return PODS, lambda client: client.post(pod(client.team, spec))

    refused = {what: creates(spec) for what, (where, spec) in REFUSED_PODS.items() if where == component}
    expect_each(admin, {what: each for what, each in refused.items() if minor_of(version()) >= NEWER.get(what, 0)})


@BOTH
def test_pods_of_mirrors_cannot_disable_apparmor_by_an_annotation(api: Api) -> None:
    """The annotation is older than the field, and the server still accepts it."""
    admin = Client(api, api.admin_token, place_of_mirrors(api, "mirrors"))
    unconfined = {"container.apparmor.security.beta.kubernetes.io/web": "unconfined"}

    expect(api, admin.post(having(pod(admin.team, pod_spec()), annotations=unconfined)), PODS)


ANSWERS = {"httpGet": {"port": 80}}
CONFINED = {"seccompProfile": {"type": "RuntimeDefault"}, "appArmorProfile": {"type": "RuntimeDefault"}}
ALLOWED_PODS = {
    "a folder of the node": ("mirror-nodes", node_pod(CERTS)),
    "the configuration of containerd": ("mirror-nodes", reading_containerd()),
    "a claim": ("mirrors", mounting({"persistentVolumeClaim": {"claimName": "cache"}})),
    "a ConfigMap": ("mirror-nodes", mounting({"configMap": {"name": "settings"}})),
    "a Secret": ("mirrors", mounting({"secret": {"secretName": "login"}})),
    "labels": ("mirrors", mounting({"downwardAPI": {"items": []}})),
    "a token": ("mirrors", mounting({"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}})),
    "memory": ("mirrors", mounting({"emptyDir": {"medium": "Memory"}})),
    "probes": ("mirrors", pod_spec(container={"livenessProbe": ANSWERS, "lifecycle": {"preStop": ANSWERS}})),
    "profiles": ("mirror-nodes", pod_spec(security={**CONFINED, "procMount": "Default"}, securityContext=CONFINED)),
}


@WITH
def test_pods_of_mirrors_run_without_ephemeral_containers(api: Api) -> None:
    places = {component: place_of_mirrors(api, component) for component in ("mirrors", "mirror-nodes")}
    debug = {"name": "debug", "image": "x", "securityContext": {"allowPrivilegeEscalation": False}}
    patch = {"spec": {"ephemeralContainers": [debug]}}

    for component, spec in ALLOWED_PODS.values():
        with api.undone():
            made = api.create(pod(places[component], spec))
            answer = api.request("PATCH", f"{api.path(made)}/ephemeralcontainers", patch, headers=MERGE)

            assert refused_by(answer) == PODS
            api.patch(made, {"metadata": {"labels": {"a": "b"}}})


@BOTH
def test_only_pods_of_mirrors_can_have_their_priority(api: Api) -> None:
    team = Client(api, api.admin_token, api.namespace("team"))
    similar = {"app.kubernetes.io/component": "mirrors"}
    other = Client(api, api.admin_token, api.namespace("similar", labels=similar))
    spec = pod_spec(priorityClassName="kube-chores-mirrors")

    for client in (team, other):
        expect(api, client.post(pod(client.team, spec)), PRIORITY)
    assert team.post(pod(team.team, pod_spec()))[0] == (201 if has_policies(api) else 409)
    for component in ("mirrors", "mirror-nodes"):
        created = api.create(pod(place_of_mirrors(api, component), spec))
        assert (created["spec"]["priority"], created["spec"]["preemptionPolicy"]) == (1_000_000_000, "Never")


# an uninstall while nodes pull through mirrors

KINDS_OF_MIRRORS = ("Namespace", "PriorityClass", "CustomResourceDefinition")
NEEDED_BY_MIRRORS = [
    each
    for each in everything()
    if each["kind"] in KINDS_OF_MIRRORS
    and each["metadata"]["name"] in (MIRRORS, NODES, "registrymirrors.kubechores.dev")
]


def deletions(api: Api, objects: Sequence[Object]) -> list[Answer]:
    return [api.request("DELETE", f"{api.path(each)}?dryRun=All") for each in objects]


def are_allowed(answers: Sequence[Answer]) -> bool:
    return all(answer[0] == 200 for answer in answers)


@WITH
def test_mirrors_are_not_uninstalled_while_nodes_use_them(api: Api) -> None:
    wait_for(lambda: are_allowed(deletions(api, NEEDED_BY_MIRRORS)), "no mirror of another test to be left")
    policies = [each for each in everything() if is_policy(each) and each["metadata"]["name"] == UNINSTALL]
    for each in policies:  # an installation that follows an uninstall
        api.delete(each)
    mirror = api.create(registry_mirror(f"hub-{api.token}"))
    for each in policies:
        api.put(each)
    wait_for(lambda: not any(answer[0] == 200 for answer in deletions(api, NEEDED_BY_MIRRORS)), "the policy to act")

    assert len(NEEDED_BY_MIRRORS) == 4
    for answer in deletions(api, NEEDED_BY_MIRRORS):
        assert refused_by(answer) == UNINSTALL
        assert f"registrymirror/{mirror['metadata']['name']} exists" in json.loads(answer[2])["message"]
    others = [each for each in everything() if each["kind"] in KINDS_OF_MIRRORS and each not in NEEDED_BY_MIRRORS]
    assert are_allowed(deletions(api, others))
    all_crds = f"{api.path(others[-1], named=False)}?labelSelector=app.kubernetes.io/part-of%3Dkube-chores&dryRun=All"
    assert refused_by(api.request("DELETE", all_crds)) == UNINSTALL

    api.delete(mirror)
    wait_for(lambda: are_allowed(deletions(api, NEEDED_BY_MIRRORS)), "the policy to see the deletion")


# tenants


@pytest.fixture
def tenant(api: Api) -> Client:
    """A client with the role `edit` in one namespace."""
    team = api.namespace("team")
    tenant = Client(api, create_account(api, team, "tenant", "edit"), team)
    trial = f"{api.path(configmap(team), named=False)}?dryRun=All"
    wait_for(lambda: api.request("POST", trial, configmap(team), token=tenant.token)[0] == 201, "the role")
    return tenant


Forgery = Callable[[Client, Object], Answer]


def stamped(tenant: Client, labels: Object) -> Object:
    obj = configmap(tenant.team, labels={**labels, "kubechores.dev/rule-hash": "1"})
    obj["metadata"]["annotations"] = {f"kubechores.dev/{each}": "1" for each in ANNOTATIONS}
    return tenant.existing(obj)


def changed_stamp(key: str) -> Forgery:
    field = "annotations" if key in ANNOTATIONS else "labels"
    changed = {"metadata": {field: {f"kubechores.dev/{key}": "2"}}}
    return lambda tenant, labels: tenant.patch(stamped(tenant, labels), changed)


def stamped_again(tenant: Client, labels: Object) -> Answer:
    made = stamped(tenant, labels)
    job = "kubechores.dev/job"
    assert tenant.patch(made, {"metadata": {"labels": {job: None}}})[0] == 200
    return tenant.patch(made, {"metadata": {"labels": {job: labels[job]}}})


ANNOTATIONS = ("rule", "source", "fingerprint", "orphans")
FORGERIES: Mapping[str, Forgery] = {
    "creates": lambda t, labels: t.post(configmap(t.team, labels=labels)),
    "creates a Secret": lambda t, labels: t.post(secret(t.team, labels=labels)),
    "creates for another installation": lambda t, labels: t.post(configmap(t.team, labels=labels | OTHER_INSTALLATION)),
    "replaces": lambda t, labels: t.put(labelled(t.existing(configmap(t.team)), labels)),
    "patches": lambda t, labels: t.patch(t.existing(configmap(t.team)), {"metadata": {"labels": labels}}),
    "applies": lambda t, labels: t.apply(configmap(t.team, labels=labels)),
    "sets a stamp again that it removed": stamped_again,
    **{f"changes the {key}": changed_stamp(key) for key in ("rule-namespace", "rule-hash", *ANNOTATIONS)},
}


OF_COPIES_AND_RATES = pytest.mark.parametrize(
    ("labels", "policy"), [(COPY, COPIES), (STAMP_OF_A_RATE, RATES)], ids=["copies", "rates"]
)


@BOTH
@OF_COPIES_AND_RATES
def test_a_tenant_cannot_forge_a_stamp(tenant: Client, labels: Object, policy: str) -> None:
    def forges(forgery: Forgery) -> tuple[str, Attack]:
        return policy, lambda client: forgery(client, labels)

    expect_each(tenant, {what: forges(forgery) for what, forgery in FORGERIES.items()})


OF_A_HUB: Mapping[str, Attack] = {
    "creates a copy of a hub": lambda t: t.post(configmap(t.team, labels=PUSHED)),
    "changes the hub": lambda t: t.put(labelled(t.existing(pushed(t)), OF_ANOTHER_HUB)),
    "gives a copy a hub": lambda t: t.put(labelled(t.existing(a_copy(t)), PUSHED)),
    # Else the installation in the cluster deletes it as an orphan, and many of them block its deletions.
    "makes a copy of a hub one of this cluster": lambda t: t.put(labelled(t.existing(pushed(t)), COPY)),
    "makes it one with a patch": lambda t: t.patch(t.existing(pushed(t)), {"metadata": {"labels": {HUB: None}}}),
}


@BOTH
def test_a_tenant_cannot_forge_or_remove_the_hub_of_a_copy(tenant: Client) -> None:
    expect_each(tenant, {what: (COPIES, attack) for what, attack in OF_A_HUB.items()})


@WITH
def test_a_tenant_takes_a_copy_of_a_hub_out_of_its_management_and_deletes_it(tenant: Client) -> None:
    allowed(
        tenant,
        {
            "removes all labels": lambda t: t.put(labelled(t.existing(pushed(t)), {})),
            "removes the job": lambda t: t.put(labelled(t.existing(pushed(t)), {HUB: UID_OF_HUB})),
            "changes its data": lambda t: t.patch(t.existing(pushed(t)), {"data": {"a": "changed"}}),
            "deletes it": lambda t: t.delete(t.existing(pushed(t))),
        },
    )


FORGERIES_OF_MORE_KINDS: Mapping[str, Callable[[Client, str, Object], Answer]] = {
    "creates": lambda t, kind, labels: t.post(of_kind(kind, t.team, labels)),
    "replaces": lambda t, kind, labels: t.put(labelled(t.existing(of_kind(kind, t.team)), labels)),
    "patches": lambda t, kind, labels: t.patch(t.existing(of_kind(kind, t.team)), {"metadata": {"labels": labels}}),
    "applies": lambda t, kind, labels: t.apply(of_kind(kind, t.team, labels)),
    "changes": lambda t, kind, labels: t.patch(
        t.existing(of_kind(kind, t.team, labels)), {"metadata": {"annotations": {"kubechores.dev/fingerprint": "2"}}}
    ),
}


@BOTH
@OF_COPIES_AND_RATES
def test_a_tenant_cannot_forge_a_stamp_on_an_object_of_another_kind(
    api: Api, tenant: Client, labels: Object, policy: str
) -> None:
    grant_more_kinds(api, account(tenant.team, "tenant"), tenant)

    def forges(way: str, kind: str) -> tuple[str, Attack]:
        return policy, lambda client: FORGERIES_OF_MORE_KINDS[way](client, kind, labels)

    expect_each(
        tenant, {f"{way} a {kind}": forges(way, kind) for way in FORGERIES_OF_MORE_KINDS for kind in MORE_KINDS}
    )


@WITH
def test_a_tenant_changes_copies_of_each_kind_and_other_objects(api: Api, tenant: Client) -> None:
    grant_more_kinds(api, account(tenant.team, "tenant"), tenant)

    for kind in MORE_KINDS:
        copy = tenant.existing(of_kind(kind, tenant.team, COPY))
        assert tenant.patch(copy, {"metadata": {"annotations": {"a": "b"}}})[0] == 200
        assert tenant.patch(copy, {"metadata": {"labels": dict.fromkeys(COPY)}})[0] == 200
        assert tenant.post(of_kind(kind, tenant.team, name="another"))[0] == 201
        assert tenant.delete(copy)[0] == 200


Change = Callable[[Client, Object], Answer]


def deleted(client: Client, obj: Object, query: str) -> Answer:
    return client.api.request("DELETE", f"{client.api.path(obj)}?{query}", token=client.token)


# The API server adds a finalizer to an object that is deleted in the foreground, or whose dependents are kept.
KEEPING: Mapping[str, Change] = {
    "patches": lambda t, copy: t.patch(copy, {"metadata": KEPT}),
    "replaces": lambda t, copy: t.put(finalized(copy)),
    "applies": lambda t, copy: t.apply(finalized(copy)),
    "adds another": lambda t, copy: t.patch(
        t.api.patch(copy, {"metadata": KEPT}), {"metadata": {"finalizers": [*KEPT["finalizers"], "example.com/b"]}}
    ),
    "removes the stamp too": lambda t, copy: t.patch(copy, {"metadata": {**KEPT, "labels": dict.fromkeys(COPY)}}),
    "deletes in the foreground": lambda t, copy: deleted(t, copy, "propagationPolicy=Foreground"),
    "deletes without dependents": lambda t, copy: deleted(t, copy, "propagationPolicy=Orphan"),
    "deletes without dependents, in the old way": lambda t, copy: deleted(t, copy, "orphanDependents=true"),
}


def on_a_copy(change: Change) -> Attack:
    return lambda client: change(client, client.existing(of_kind("RoleBinding", client.team, COPY)))


@BOTH
def test_a_tenant_cannot_keep_access_by_a_finalizer(api: Api, tenant: Client) -> None:
    """RBAC permits the change of finalizers to users without the permissions of the role."""
    grant_more_kinds(api, account(tenant.team, "tenant"), tenant)

    expect_each(tenant, {what: (COPIES, on_a_copy(change)) for what, change in KEEPING.items()})


@BOTH
def test_a_user_who_is_a_tenant_cannot_keep_access_by_a_finalizer_either(api: Api) -> None:
    user = {"apiGroup": RBAC, "kind": "User", "name": f"tenant-{api.token}"}
    copy = api.create(of_kind("RoleBinding", api.namespace("team"), COPY))
    bind(api, "admin", user, copy["metadata"]["namespace"])
    headers = {"Impersonate-User": user["name"]}
    wait_for(lambda: api.request("GET", api.path(copy), headers=headers)[0] == 200, "the role")

    expect(api, api.request("PATCH", api.path(copy), {"metadata": KEPT}, headers={**MERGE, **headers}), COPIES)


KEPT_BY_ANOTHER = {"metadata": {"finalizers": ["example.com/kept", "example.com/b"]}}
NOT_KEEPING: Mapping[str, Change] = {
    "removes a finalizer": lambda t, copy: t.patch(t.api.patch(copy, KEPT_BY_ANOTHER), {"metadata": KEPT}),
    "changes a copy with a finalizer": lambda t, copy: t.patch(
        t.api.patch(copy, KEPT_BY_ANOTHER), {"metadata": {"annotations": {"a": "b"}}}
    ),
    "deletes a copy": lambda t, copy: t.delete(copy),
    "deletes a copy in the background": lambda t, copy: deleted(t, copy, "propagationPolicy=Background"),
    "adds a finalizer to another RoleBinding": lambda t, _: t.post(
        finalized(of_kind("RoleBinding", t.team, name="theirs"))
    ),
    "adds a finalizer to a copy that gives no access": lambda t, _: t.patch(
        t.existing(of_kind("LimitRange", t.team, COPY)), {"metadata": KEPT}
    ),
    "deletes a copy that gives no access in the foreground": lambda t, _: deleted(
        t, t.existing(of_kind("LimitRange", t.team, COPY)), "propagationPolicy=Foreground"
    ),
}


@WITH
def test_a_tenant_is_not_limited_otherwise_in_finalizers(api: Api, tenant: Client) -> None:
    grant_more_kinds(api, account(tenant.team, "tenant"), tenant)

    allowed(tenant, {what: on_a_copy(change) for what, change in NOT_KEEPING.items()})


def quota(namespace: str, labels: Object, name: str = "x") -> Object:
    return of_kind("ResourceQuota", namespace, labels, name, spec={"hard": {"configmaps": "9"}})


def patch_quota_status(client: Client, obj: Object, patch: Object) -> Answer:
    return client.api.request("PATCH", f"{client.api.path(obj)}/status", patch, headers=MERGE, token=client.token)


def grant_status_of_quotas(api: Api, tenant: Client) -> None:
    """Let a tenant write the status of ResourceQuotas and nothing else of them, and wait until that is in effect."""
    status = {"apiGroups": [""], "resources": ["resourcequotas/status"], "verbs": ["patch"]}
    grant(api, account(tenant.team, "tenant"), status, namespace=tenant.team)
    absent = quota(tenant.team, {}, name="absent")
    wait_for(lambda: patch_quota_status(tenant, absent, {})[0] == 404, "the rights")


# The labels of a quota, and a patch of its status that sets or changes a stamp.
FORGERIES_OF_A_STATUS: Mapping[str, tuple[Object, Object]] = {
    "sets labels": ({}, {"metadata": {"labels": COPY}}),
    "changes a label": (COPY, {"metadata": {"labels": OTHER_INSTALLATION}}),
    "sets an annotation": (COPY, {"metadata": {"annotations": {"kubechores.dev/fingerprint": "2"}}}),
    "sets both and the status": ({}, {"metadata": {"labels": COPY}, "status": {"used": {"configmaps": "7"}}}),
}


@BOTH
def test_an_account_that_writes_the_status_of_quotas_cannot_forge_a_stamp(api: Api, tenant: Client) -> None:
    grant_status_of_quotas(api, tenant)

    def forges(labels: Object, patch: Object) -> tuple[str, Attack]:
        return COPIES, lambda client: patch_quota_status(client, client.existing(quota(client.team, labels)), patch)

    expect_each(tenant, {what: forges(*each) for what, each in FORGERIES_OF_A_STATUS.items()})


@WITH
def test_an_account_that_writes_the_status_of_quotas_can_write_the_status_of_a_copy(api: Api, tenant: Client) -> None:
    grant_status_of_quotas(api, tenant)
    copy, other = (tenant.existing(quota(tenant.team, labels, name=name)) for labels, name in ((COPY, "x"), ({}, "y")))

    for made in (copy, other):
        assert patch_quota_status(tenant, made, {"status": {"used": {"configmaps": "7"}}})[0] == 200
        assert patch_quota_status(tenant, made, {"metadata": {"annotations": {"a": "b"}}})[0] == 200
    assert patch_quota_status(tenant, copy, {"metadata": {"labels": dict.fromkeys(COPY)}})[0] == 200


@BOTH
def test_a_tenant_cannot_copy_a_rate(api: Api, tenant: Client) -> None:
    """Copies of a rate would be orphans of its ExchangeRate, and the deletion brake would block its deletions."""
    made = stamped(tenant, STAMP_OF_A_RATE)
    made["metadata"] |= {"name": "another", "ownerReferences": [DELETED_OWNER]}

    expect(api, tenant.post(made), RATES)


@BOTH
def test_a_user_who_is_a_tenant_cannot_forge_a_stamp_either(api: Api) -> None:
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": f"tenant-{api.token}"}
    copy = secret(api.namespace("team"), labels=COPY)
    bind(api, "edit", user, copy["metadata"]["namespace"])
    headers = {"Impersonate-User": user["name"]}
    allowed = {**copy, "metadata": {**copy["metadata"], "labels": {}}}
    path = api.path(copy, named=False)
    wait_for(lambda: api.request("POST", f"{path}?dryRun=All", allowed, headers=headers)[0] == 201, "the role")

    expect(api, api.request("POST", path, copy, headers=headers), COPIES)


FREE: Mapping[str, Attack] = {
    "removes a stamp": lambda t: t.patch(
        t.existing(configmap(t.team, labels=COPY)), {"metadata": {"labels": dict.fromkeys(COPY)}}
    ),
    "changes the data of a copy": lambda t: t.patch(t.existing(configmap(t.team, labels=COPY)), {"data": {"a": "2"}}),
    "deletes a copy": lambda t: t.delete(t.existing(secret(t.team, labels=COPY))),
    "removes a stamp of a rate": lambda t: t.patch(
        t.existing(rate(t)), {"metadata": {"labels": dict.fromkeys(STAMP_OF_A_RATE)}}
    ),
    "changes a rate": lambda t: t.patch(t.existing(rate(t)), {"data": {"rate": "2", "note": "x"}}),
    "deletes a rate": lambda t: t.delete(t.existing(rate(t))),
    "deletes all copies": lambda t: t.delete({**configmap(t.team), "metadata": {"name": "", "namespace": t.team}}),
    "creates a Secret": lambda t: t.post(secret(t.team, labels={})),
    "creates a token": lambda t: t.post(token_of({}, t.team)),
    "changes the image of a workload that is rolled": lambda t: t.patch(workload(t), image("x")),
}


@WITH
def test_a_tenant_is_not_limited_otherwise(api: Api, tenant: Client) -> None:
    allowed(tenant, FREE)


# users, backups and controllers


@WITH
def test_a_cluster_admin_restores_copies(api: Api) -> None:
    admin = Client(api, api.admin_token, api.namespace("team"))

    assert admin.post(secret(admin.team, labels=COPY))[0] == 201


@WITH
@pytest.mark.parametrize("role", ["kube-chores-restore", "cluster-admin"])
def test_a_backup_account_restores_everything(api: Api, role: str) -> None:
    team = api.namespace("team")
    backup = Client(api, create_account(api, team, "backup"), team)
    bind(api, role, account(team, "backup"))
    if role != "cluster-admin":
        bind(api, "edit", account(team, "backup"))
    wait_for(lambda: backup.post(secret(team, labels=COPY))[0] in (201, 409), "the role")

    for obj in (rate(backup), configmap("kube-system", f"x-{team}", labels=COPY), service(backup, {})):
        assert backup.post(obj)[0] == 201
    assert backup.patch(workload(backup), image("x"))[0] == 200
    assert backup.post(configmap(team, "other", labels={}))[0] == 201


def kubectl(api: Api, *words: str, stdin: str = "") -> str:
    command = [str(programs() / "kubectl"), "--kubeconfig", str(api.kubeconfig), f"--cache-dir={api.folder}", *words]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@WITH
def test_an_owner_applies_and_undoes_a_workload_that_is_rolled(api: Api, tenant: Client) -> None:
    owner = [f"--as=system:serviceaccount:{tenant.team}:tenant", "-n", tenant.team]
    made = workload(tenant)
    for number, value in enumerate(("first", "second"), 1):
        wait_for(lambda: len(api.items("apps/v1", "ReplicaSet", tenant.team)) >= number, "its ReplicaSet")  # noqa: B023
        marked = {"kubechores.dev/config-baseline": value, "deployment.kubernetes.io/revision": str(number)}
        pods = {"template": {"metadata": {"annotations": {"kubechores.dev/config": value}}}}
        api.patch(made, {"metadata": {"annotations": marked}, "spec": pods})
    wait_for(lambda: len(api.items("apps/v1", "ReplicaSet", tenant.team)) >= 3, "the last ReplicaSet")

    assert "rolled back" in kubectl(api, *owner, "rollout", "undo", "deployment/web", "--to-revision=2")
    applied = api.get(made) or {}
    applied["spec"]["replicas"] = 1
    del applied["metadata"]["managedFields"], applied["metadata"]["resourceVersion"]
    assert "configured" in kubectl(api, *owner, "apply", "-f", "-", stdin=json.dumps(applied))


@WITH
def test_a_deleted_namespace_deletes_its_copies(api: Api) -> None:
    team = api.namespace("team")
    copies = [api.create(configmap(team, labels=COPY)), api.create(of_kind("RoleBinding", team, COPY))]

    api.delete(namespace_object(team))

    wait_for(lambda: not any(map(api.get, copies)), "the namespace controller to delete the copies")


@WITH
def test_a_quota_that_is_a_copy_counts_objects(api: Api) -> None:
    """The API server writes the status when an object is created, and the controller later."""
    client = Client(api, api.service_account_token("kube-chores", "sync-copies"), api.namespace("team"))
    copy = quota(client.team, COPY)
    assert client.post(copy)[0] == 201

    def used() -> int:
        return int((api.get(copy) or {}).get("status", {}).get("used", {}).get("configmaps", -1))

    wait_for(lambda: used() >= 0, "the first status of the quota")
    before = used()
    made = [api.create(configmap(client.team, name)) for name in ("a", "b")]
    assert used() >= before + len(made)
    for each in made:
        api.delete(each)
    wait_for(lambda: used() <= before + 1, "the controller to count again")  # kube-root-ca.crt may be created meanwhile
    assert "kubechores.dev/job" in (api.get(copy) or {})["metadata"]["labels"]


@WITH
def test_the_garbage_collector_removes_its_finalizer_of_a_role_binding(api: Api) -> None:
    admin = Client(api, api.admin_token, api.namespace("team"))
    copy = admin.existing(of_kind("RoleBinding", admin.team, COPY))

    assert deleted(admin, copy, "propagationPolicy=Foreground")[0] == 200

    wait_for(lambda: api.get(copy) is None, "the garbage collector to remove its finalizer")


@WITH
def test_the_garbage_collector_deletes_a_role_binding_without_its_owner(api: Api) -> None:
    admin = Client(api, api.admin_token, api.namespace("team"))
    copy = admin.existing(controlled(of_kind("RoleBinding", admin.team, COPY), api))

    api.delete(configmap(admin.team, "owner"))

    wait_for(lambda: api.get(copy) is None, "the garbage collector to delete the copy")


# the verbs


@WITH
@pytest.mark.parametrize(
    ("account", "verb", "resource", "group"),
    [
        ("sync-copies", "stamp", "copyrators", "kubechores.dev"),
        ("fetch-rates", "stamp", "exchangerates", "kubechores.dev"),
        ("mirror-repair", "stamp", "registrymirrors", "kubechores.dev"),
        ("roll-workloads", "roll", "deployments", "apps"),
        ("roll-workloads", "roll", "statefulsets", "apps"),
        ("roll-workloads", "roll", "daemonsets", "apps"),
    ],
)
def test_an_account_has_the_verb_that_limits_it_in_all_namespaces(
    api: Api, account: str, verb: str, resource: str, group: str
) -> None:
    assert can_i(api, account, verb, resource, group)
    assert not can_i(api, account, "restore", resource, group)
    assert not can_i(api, account, "adopt", resource, group)


# conflict: Adopt


@pytest.fixture
def sync(api: Api) -> Run:
    """Run sync-copies with the rights of the shipped ServiceAccount."""
    return runs("sync-copies", api.service_account_kubeconfig("kube-chores", "sync-copies"))


@pytest.fixture
def adopted(api: Api) -> list[Object]:
    """Two Secrets that a rule adopts, in a namespace each."""
    home, teams = api.namespace("home"), [api.namespace(name) for name in ("team-a", "team-b")]
    source = api.create(secret(home))
    found = [api.create(secret(team, labels={}, data={"old": encoded(canary())})) for team in teams]
    api.create(rule("logins", home, f"team-*-{api.token}", ruleType="secret", conflict="Adopt"))
    return [source, *found]


@WITH
def test_adopting_without_its_role_is_refused_and_exits_2(api: Api, sync: Run, adopted: list[Object]) -> None:
    ran = sync()

    assert (ran.exit_code, ran.summary) == (2, {"failed": 2})
    for result, before in zip(ran.results, adopted[1:], strict=True):
        assert result["object"]["namespace"] == before["metadata"]["namespace"]
        assert "bind ClusterRole kube-chores-adopt to the account of sync-copies" in result["message"]
        assert f"ValidatingAdmissionPolicy '{OTHERS}'" in result["message"]
        assert api.get(before) == before


@WITH
def test_adopting_works_where_its_role_is_bound(api: Api, sync: Run, adopted: list[Object]) -> None:
    source, first, second = adopted
    bind_adopt(api, first["metadata"]["namespace"])

    ran = sync()

    assert (ran.exit_code, ran.summary) == (0, {"configured": 1, "failed": 1})
    assert {each["code"] for each in ran.results} == {"adopted", "denied"}
    assert content(api.get(first)) == content(source)
    assert api.get(second) == second
    bind_adopt(api)
    assert sync().exit_code == 0
    assert content(api.get(second)) == content(source)


def annotated(obj: Object, **annotations: str) -> Object:
    keys = {"helm": "meta.helm.sh/release-name", "argo": "argocd.argoproj.io/tracking-id"}
    return {**obj, "metadata": {**obj["metadata"], "annotations": {keys[key]: annotations[key] for key in annotations}}}


# Existing objects, and the policy that refuses a PUT of the object with the stamp.
NOT_ADOPTED: Mapping[str, tuple[str, Callable[[Client], Object]]] = {
    "a Secret of Helm's type": (COPIES, lambda t: secret(t.team, labels={}) | {"type": "helm.sh/release.v1"}),
    "a release by its name": (EITHER, lambda t: secret(t.team, HELM, labels={})),
    "a release in a ConfigMap": (EITHER, lambda t: configmap(t.team, HELM, labels={})),
    "a release by its label": (OTHERS, lambda t: configmap(t.team, labels={"owner": "helm"})),
    "a part of a release": (OTHERS, lambda t: annotated(secret(t.team, labels={}), helm="shop")),
    "an object that Helm manages": (OTHERS, lambda t: secret(t.team, labels={"app.kubernetes.io/managed-by": "Helm"})),
    "an object that Argo CD applied": (
        OTHERS,
        lambda t: annotated(configmap(t.team, labels={}), argo="shop:/ConfigMap:x/y"),
    ),
    "an object that a Kustomization of Flux applied": (
        OTHERS,
        lambda t: configmap(t.team, labels={"kustomize.toolkit.fluxcd.io/name": "shop"}),
    ),
    "an object that a HelmRelease of Flux applied": (
        OTHERS,
        lambda t: secret(t.team, labels={"helm.toolkit.fluxcd.io/name": "shop"}),
    ),
    "an object that a controller owns": (EITHER, lambda t: controlled(secret(t.team, labels={}), t.api)),
}


@WITH
def test_a_stolen_token_with_the_verb_adopt_cannot_adopt(api: Api) -> None:
    client = Client(api, api.service_account_token("kube-chores", "sync-copies"), api.namespace("team"))
    bind_adopt(api, client.team)

    def adopts(make: Callable[[Client], Object]) -> Attack:
        def act(client: Client) -> Answer:
            existing = client.existing(make(client))
            bare = {**existing, "metadata": {key: existing["metadata"][key] for key in ("name", "namespace")}}
            return client.put(labelled(bare, COPY))

        return act

    def deletes(make: Callable[[Client], Object]) -> Attack:
        return lambda client: client.delete(client.existing(make(client)))

    expect_each(client, {what: (policy, adopts(make)) for what, (policy, make) in NOT_ADOPTED.items()})
    expect_each(client, {what: (OTHERS, deletes(make)) for what, (_, make) in NOT_ADOPTED.items()})


@WITH
def test_a_stolen_token_with_the_verb_adopt_writes_nothing_without_its_stamp(api: Api) -> None:
    client = Client(api, api.service_account_token("kube-chores", "sync-copies"), api.namespace("team"))
    bind_adopt(api, client.team)

    expect(api, client.put(client.existing(secret(client.team, labels={}))), OTHERS)


@WITH
def test_a_stolen_token_adopts_an_object_of_another_kind_only_with_the_verb(api: Api) -> None:
    client = Client(api, api.service_account_token("kube-chores", "sync-copies"), api.namespace("team"))
    bootstrapped = {"kubernetes.io/bootstrapping": "rbac-defaults"}
    existing = [client.existing(of_kind(kind, client.team)) for kind in MORE_KINDS]
    for each in existing:
        expect(api, client.put(labelled(each, COPY)), OTHERS)
    bind_adopt(api, client.team)

    for kind, each in zip(MORE_KINDS, existing, strict=True):
        assert client.put(labelled(each, COPY))[0] == 200
        of_the_server = client.existing(of_kind(kind, client.team, bootstrapped, name="bootstrapped"))
        expect(api, client.put(labelled(of_the_server, COPY)), OTHERS)
        expect(api, client.put(labelled(client.existing(of_kind(kind, client.team, name="other")), {})), OTHERS)


@WITH
def test_the_service_account_of_each_namespace_is_never_a_copy(api: Api) -> None:
    client = Client(api, api.service_account_token("kube-chores", "sync-copies"), api.namespace("team"))
    default = of_kind("ServiceAccount", client.team, COPY, name="default")
    bind_adopt(api, client.team)
    wait_for(lambda: api.get(default), "the account of the namespace")

    expect(api, client.put(default), COPIES)
    expect(api, client.delete(default), OTHERS)


# kube-* namespaces


@WITH
def test_a_kube_namespace_that_opted_in_gets_copies(api: Api) -> None:
    team = api.namespace("kube-team", annotations={"kubechores.dev/copies": "true"})
    other = api.namespace("kube-other", annotations={"kubechores.dev/copies": "false"})
    client = Client(api, api.service_account_token("kube-chores", "sync-copies"), team)

    assert client.post(configmap(team, labels=COPY))[0] == 201
    assert refused_by(client.post(configmap(other, labels=COPY))) == COPIES
    assert client.delete(client.existing(configmap(other, labels=COPY)))[0] == 200
    for kind in MORE_KINDS:
        assert client.post(of_kind(kind, team, COPY))[0] == 201
        assert refused_by(client.post(of_kind(kind, other, COPY))) == COPIES


# policies of others


@WITH
@pytest.mark.parametrize("reason", [None, "Forbidden"])
def test_a_run_names_the_policy_of_others_that_refuses_its_write(api: Api, sync: Run, reason: str | None) -> None:
    home, team = api.namespace("home"), api.namespace("team", labels={"closed": api.token})
    api.create(configmap(home))
    api.create(rule("settings", home, team))
    name = f"closed-{api.token}"
    policy = "ValidatingAdmissionPolicy"
    where = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
    matches = {"namespaceSelector": {"matchLabels": {"closed": api.token}}, "resourceRules": [where]}
    validation = {"expression": "false", "message": "closed", **({"reason": reason} if reason else {})}
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    api.create({**head, "kind": policy, "spec": {"matchConstraints": matches, "validations": [validation]}})
    bound = {"policyName": name, "validationActions": ["Deny"]}
    api.create({**head, "kind": f"{policy}Binding", "spec": bound})
    trial = configmap(team, "trial")
    path = f"{api.path(trial, named=False)}?dryRun=All"
    wait_for(lambda: api.request("POST", path, trial)[0] in (403, 422), "the policy to act")

    ran = sync()

    (failed,) = ran.results
    assert (ran.exit_code, failed["object"]["namespace"]) == (2, team)
    assert f"{policy} '{name}' with binding '{name}' denied request: closed" in failed["message"]


# the manifests


@WITH
def test_each_policy_compiles_and_has_no_warning(api: Api) -> None:
    def checked(policy: Object) -> Any:
        return (api.get(policy) or {}).get("status", {}).get("typeChecking")

    for policy in (obj for obj in everything() if obj["kind"] == "ValidatingAdmissionPolicy"):
        wait_for(lambda: checked(policy) is not None, "the type check")  # noqa: B023
        assert checked(policy) == {}, policy["metadata"]["name"]


def overlay(api: Api, *lines: str) -> list[Object]:
    """Return the objects that the built kubectl renders from a kustomization."""
    cronjobs = os.path.relpath(ROOT / "cronjobs", api.folder.resolve())
    text = "\n".join(lines).replace("CRONJOBS", cronjobs)
    (api.folder / "kustomization.yaml").write_text(text)
    return [each for each in yaml.safe_load_all(kubectl(api, "kustomize", str(api.folder))) if each]


@WITH
def test_a_kustomization_with_a_namespace_and_a_prefix_keeps_the_policies_whole(api: Api) -> None:
    built = overlay(
        api, "resources: [CRONJOBS/policies, CRONJOBS/sync-copies]", "namespace: x", f"namePrefix: {api.token}-"
    )
    policies = {obj["metadata"]["name"] for obj in built if obj["kind"] == "ValidatingAdmissionPolicy"}
    bound = {obj["spec"]["policyName"] for obj in built if obj["kind"] == "ValidatingAdmissionPolicyBinding"}

    applied = kubectl(
        api, "apply", "--dry-run=server", "-f", "-", stdin="\n---\n".join(map(json.dumps, filter(is_policy, built)))
    )

    assert policies == bound
    assert len(policies) == 10
    assert applied.count(" created (server dry run)") == 20
