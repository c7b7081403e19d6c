"""Bindings grant only what their creator may grant: rights that it has, or a role that it may bind."""

from typing import Any
from urllib.parse import quote

import pytest

from tests import rights
from tests.contract.conftest import APPLY, MERGE, Answer, Place, forbidden, until
from tests.rights import RBAC

Object = dict[str, Any]
PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
BINDINGS = {"apiGroups": [RBAC], "resources": ["rolebindings"], "verbs": ["*"]}
USER = {"kind": "User", "name": "u"}


class Tenant:
    """A ServiceAccount with all rights on RoleBindings of its namespace, and ClusterRoles to bind."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.token = rights.create_account(place.api, place.namespace, "robot")
        self.account = rights.account(place.namespace, "robot")
        self.grant("bindings", BINDINGS)

    @property
    def user(self) -> str:
        accounts = "system:serviceaccounts"
        groups = f'["{accounts}" "{accounts}:{self.place.namespace}" "system:authenticated"]'
        return f'user "system:serviceaccount:{self.place.namespace}:robot" (groups={groups})'

    def role(self, name: str, *rules: Object) -> str:
        """Create a ClusterRole; return its name."""
        unique = f"{name}-{self.place.api.token}"
        head = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": unique}}
        self.place.api.create({**head, "rules": list(rules)})
        return unique

    def grant(self, name: str, *rules: Object) -> None:
        """Give the tenant these rights in its namespace."""
        rights.bind(self.place.api, self.role(name, *rules), self.account, self.place.namespace)

    def path(self, name: str = "") -> str:
        return self.place.path("rolebindings", quote(name), f"{RBAC}/v1")

    def body(self, role: str, name: str = "a", kind: str = "ClusterRole") -> Object:
        head = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": {"name": name}}
        return {**head, "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role}, "subjects": [USER]}

    def bind(self, role: str, name: str = "a", query: str = "", kind: str = "ClusterRole") -> Answer:
        return self.place.send("POST", self.path() + query, self.body(role, name, kind), token=self.token)

    def patch(self, fields: Object, name: str = "a") -> Answer:
        return self.place.send("PATCH", self.path(name), fields, MERGE, token=self.token)

    def can_bind(self, role: str, **where: str) -> bool:
        """Whether a review allows the verb `bind`."""
        attributes = {"verb": "bind", "group": RBAC, "resource": "clusterroles", "name": role, **where}
        head = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        body = {**head, "spec": {"resourceAttributes": attributes}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return bool(self.place.send("POST", path, body, token=self.token).body["status"]["allowed"])

    def refusal(self, *missing: str, name: str = "a") -> tuple[int, str, str]:
        why = f"{self.user} is attempting to grant RBAC permissions not currently held:\n" + "\n".join(missing)
        return forbidden(f'rolebindings.{RBAC} "{name}" is forbidden: {why}')


@pytest.fixture
def tenant(place: Place) -> Tenant:
    tenant = Tenant(place)
    path = tenant.path()
    assert until(lambda: place.send("GET", path, token=tenant.token).status == 200)
    return tenant


GET_PODS = '{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}'


def test_a_binding_to_rights_that_its_creator_lacks_is_refused(tenant: Tenant) -> None:
    role = tenant.role("pods", PODS)
    applied = tenant.place.send(
        "PATCH", f"{tenant.path('a')}?fieldManager=x", tenant.body(role), APPLY, token=tenant.token
    )
    replaced = tenant.place.send("PUT", tenant.path("a"), tenant.body(role), token=tenant.token)

    for answer in (tenant.bind(role), tenant.bind(role, query="?dryRun=All"), applied, replaced):
        assert answer.problem == tenant.refusal(GET_PODS)
        assert answer.body["details"] == {"name": "a", "group": RBAC, "kind": "rolebindings"}


def test_a_refusal_lists_each_missing_right(tenant: Tenant) -> None:
    role = tenant.role(
        "many",
        {"apiGroups": ["apps", ""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["x", "y"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["watch", "get"]},
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["/x", "/y/*"], "verbs": ["get"]},
        BINDINGS,
    )

    assert tenant.bind(role).problem == tenant.refusal(
        '{APIGroups:[""], Resources:["pods"], Verbs:["get" "list" "watch" "get"]}',
        '{APIGroups:[""], Resources:["pods/log"], Verbs:["get" "list"]}',
        '{APIGroups:[""], Resources:["secrets"], ResourceNames:["x"], Verbs:["get"]}',
        '{APIGroups:[""], Resources:["secrets"], ResourceNames:["y"], Verbs:["get"]}',
        '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}',
        '{APIGroups:["apps"], Resources:["pods"], Verbs:["get" "list"]}',
        '{APIGroups:["apps"], Resources:["pods/log"], Verbs:["get" "list"]}',
        '{NonResourceURLs:["/x"], Verbs:["get"]}',
        '{NonResourceURLs:["/y/*"], Verbs:["get"]}',
    )


def test_rights_that_the_creator_has_can_be_granted(tenant: Tenant) -> None:
    tenant.grant("wide", {"apiGroups": ["*"], "resources": ["pods", "*/log"], "verbs": ["*"]})
    role = tenant.role("pods", PODS, {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]})

    assert until(lambda: tenant.bind(role).status == 201)
    assert tenant.bind(tenant.role("none"), "b").status == 201


def test_rights_on_named_objects_do_not_cover_all_objects(tenant: Tenant) -> None:
    named = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["x"], "verbs": ["get"]}
    tenant.grant("named", named)
    same = tenant.role("same", named)

    assert until(lambda: tenant.bind(same, "b").status == 201)
    refused = tenant.bind(tenant.role("all", {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}))
    assert refused.problem == tenant.refusal('{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}')


def test_the_right_to_bind_a_role_suffices_for_this_role(tenant: Tenant) -> None:
    role, other = tenant.role("pods", PODS), tenant.role("others", PODS)
    where = {"namespace": tenant.place.namespace}
    assert not tenant.can_bind(role, **where)

    tenant.grant(
        "bind", {"apiGroups": [RBAC], "resources": ["clusterroles"], "resourceNames": [role], "verbs": ["bind"]}
    )

    assert until(lambda: tenant.can_bind(role, **where))
    assert not tenant.can_bind(role)
    assert not tenant.can_bind(other, **where)
    assert tenant.bind(role).status == 201
    assert tenant.bind(other, "b").problem == tenant.refusal(GET_PODS, name="b")
    assert tenant.patch({"subjects": None}).status == 200


def test_an_update_of_a_binding_requires_the_rights_too(tenant: Tenant) -> None:
    role = tenant.role("pods", PODS)
    assert tenant.place.send("POST", tenant.path(), tenant.body(role)).status == 201

    for fields in ({"subjects": None}, {"metadata": {"labels": {"x": "y"}}}):
        assert tenant.patch(fields).problem == tenant.refusal(GET_PODS)

    assert tenant.patch({"subjects": [{**USER, "apiGroup": RBAC}]}).status == 200  # no change
    assert tenant.patch({"metadata": {"finalizers": ["example.com/x"]}}).status == 200
    assert tenant.patch({"metadata": {"finalizers": None}}).status == 200
    assert tenant.place.send("DELETE", tenant.path("a"), token=tenant.token).status == 200


def test_the_rights_are_checked_before_all_else(tenant: Tenant) -> None:
    role, none = tenant.role("pods", PODS), tenant.role("none")
    assert tenant.bind(none).status == 201

    assert tenant.bind(role).problem == tenant.refusal(GET_PODS)  # it exists
    assert tenant.bind(role, "..").problem == tenant.refusal(GET_PODS, name="..")
    assert tenant.patch({"roleRef": {"name": role}}).problem == tenant.refusal(GET_PODS)  # it cannot change


@pytest.mark.parametrize("kind", ["ClusterRole", "Role"])
def test_a_binding_to_a_missing_role(tenant: Tenant, kind: str) -> None:
    answer = tenant.bind("none-such", kind=kind)

    assert answer.problem == (404, "NotFound", f'rolebindings.{RBAC} "none-such" not found')
    assert tenant.bind("x", kind="Other").problem == (500, "", 'unsupported role reference kind: "Other"')
    assert tenant.place.send("POST", tenant.path(), tenant.body("none-such", kind=kind)).status == 201  # as the admin


def test_a_cluster_role_binding_is_checked_for_the_whole_cluster(tenant: Tenant) -> None:
    rights.grant(tenant.place.api, tenant.account, {**BINDINGS, "resources": ["clusterrolebindings"]})
    tenant.grant("pods", PODS)
    role, path = tenant.role("more-pods", PODS), f"/apis/{RBAC}/v1/clusterrolebindings"
    body = {**tenant.body(role, f"tests-{tenant.place.api.token}"), "kind": "ClusterRoleBinding"}
    assert until(lambda: tenant.place.send("GET", path, token=tenant.token).status == 200)
    assert until(lambda: tenant.bind(role).status == 201)

    answer = tenant.place.send("POST", path, body, token=tenant.token)

    assert (answer.status, GET_PODS in answer.message) == (403, True)
