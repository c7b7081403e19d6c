"""ServiceAccount tokens, RBAC, and the messages of refusals."""

from dataclasses import dataclass
from typing import Any

import pytest

from tests import rights
from tests.contract.conftest import Answer, Place, forbidden, until


@dataclass(frozen=True)
class Account:
    """A ServiceAccount with a token."""

    place: Place
    token: str

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.place.namespace}:robot"

    def send(self, method: str, path: str, body: object = None) -> Answer:
        return self.place.send(method, path, body, token=self.token)

    def grant(self, *rules: dict[str, Any]) -> None:
        namespace = self.place.namespace
        rights.grant(self.place.api, rights.account(namespace, "robot"), *rules, namespace=namespace)


@pytest.fixture
def account(place: Place) -> Account:
    """A ServiceAccount without rights."""
    return Account(place, rights.create_account(place.api, place.namespace, "robot"))


def test_a_token_identifies_its_service_account(account: Account) -> None:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}

    answer = account.send("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body)

    info = answer.body["status"]["userInfo"]
    assert info["username"] == account.user
    accounts = "system:serviceaccounts"
    assert set(info["groups"]) == {accounts, f"{accounts}:{account.place.namespace}", "system:authenticated"}


def test_a_token_request_for_a_missing_service_account(place: Place) -> None:
    answer = place.send("POST", place.path("serviceaccounts", "none/token"), {"spec": {}})

    assert answer.problem == (404, "NotFound", 'serviceaccounts "none" not found')


def test_an_unknown_token(place: Place) -> None:
    answer = place.send("GET", place.path("configmaps"), token="unknown")

    assert answer.problem == (401, "Unauthorized", "Unauthorized")


def test_a_token_is_not_valid_after_its_account_is_deleted(account: Account) -> None:
    account.place.send("DELETE", account.place.path("serviceaccounts", "robot"))

    assert until(lambda: account.send("GET", "/api").status == 401)


NAMESPACE = "/api/v1/namespaces/NS"


@pytest.mark.parametrize(
    ("method", "path", "what"),
    [
        ("GET", "/api/v1/secrets", 'cannot list resource "secrets" in API group "" at the cluster scope'),
        ("GET", "/api/v1/namespaces", 'cannot list resource "namespaces" in API group "" at the cluster scope'),
        ("GET", f"{NAMESPACE}/secrets", 'cannot list resource "secrets" in API group "" in the namespace "NS"'),
        ("GET", f"{NAMESPACE}/secrets/a", 'cannot get resource "secrets" in API group "" in the namespace "NS"'),
        ("GET", NAMESPACE, 'cannot get resource "namespaces" in API group "" in the namespace "NS"'),
        (
            "POST",
            f"{NAMESPACE}/configmaps",
            'cannot create resource "configmaps" in API group "" in the namespace "NS"',
        ),
        (
            "PUT",
            "/apis/kubechores.dev/v1/namespaces/NS/copyrators/a/status",
            'cannot update resource "copyrators/status" in API group "kubechores.dev" in the namespace "NS"',
        ),
        (
            "GET",
            "/apis/absent.test/v1/nothings",
            'cannot list resource "nothings" in API group "absent.test" at the cluster scope',
        ),
    ],
)
def test_without_rights(account: Account, method: str, path: str, what: str) -> None:
    namespace = account.place.namespace

    answer = account.send(method, path.replace("NS", namespace), {} if method != "GET" else None)

    assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
    parts = path.replace("NS", namespace).split("/")
    named = {"secrets/a": 'secrets "a"', "status": 'copyrators.kubechores.dev "a"'}
    title = next((text for end, text in named.items() if path.endswith(end)), "")
    if not title:
        title = {"namespaces": "namespaces", "nothings": "nothings.absent.test"}.get(parts[-1], parts[-1])
    if path.endswith("/NS"):
        title = f'namespaces "{namespace}"'
    assert answer.message == f'{title} is forbidden: User "{account.user}" {what.replace("NS", namespace)}'


def test_rights_in_a_namespace_and_on_named_objects(account: Account) -> None:
    place = account.place
    place.secret("one", stringData={"a": "canary-1"})
    place.secret("two", stringData={"a": "canary-2"})
    account.grant(
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "create"]},
    )
    namesake = rights.create_account(place.api, place.api.namespace("other"), "robot")

    assert until(lambda: account.send("GET", place.path("configmaps")).status == 200)
    assert account.send("GET", place.path("secrets", "one")).status == 200
    assert account.send("GET", place.path("secrets", "two")).status == 403
    assert account.send("GET", place.path("secrets")).status == 403
    assert account.send("GET", "/api/v1/configmaps").status == 403
    assert place.send("GET", place.path("configmaps"), token=namesake).status == 403
    assert account.send("POST", place.path("configmaps"), {"metadata": {"name": "a"}}).status == 201
    assert account.send("DELETE", place.path("configmaps", "a")).status == 403


REQUESTS: dict[str, tuple[str, str, object, str]] = {
    "get": ("GET", "/a", None, ""),
    "list": ("GET", "", None, ""),
    "create": ("POST", "?dryRun=All", {"metadata": {"name": "b"}}, ""),
    "update": ("PUT", "/a?dryRun=All", {"metadata": {"name": "a"}}, ""),
    "patch": ("PATCH", "/a?dryRun=All", {"data": {"a": "2"}}, "application/merge-patch+json"),
    "delete": ("DELETE", "/a?dryRun=All", None, ""),
}


@pytest.mark.parametrize("verb", REQUESTS)
def test_a_verb_allows_only_its_own_requests(account: Account, verb: str) -> None:
    place = account.place
    place.config_map("a")
    account.grant({"apiGroups": [""], "resources": ["configmaps"], "verbs": [verb]})

    def allowed() -> set[str]:
        return {
            name
            for name, (method, rest, body, media) in REQUESTS.items()
            if place.send(method, place.path("configmaps") + rest, body, media, token=account.token).status < 300
        }

    assert until(lambda: allowed() == {verb})


@pytest.mark.parametrize(("verbs", "status"), [(["patch"], 403), (["create"], 403), (["create", "patch"], 201)])
def test_an_apply_that_creates_requires_two_rights(account: Account, verbs: list[str], status: int) -> None:
    place = account.place
    ready = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}
    account.grant({"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}, ready)
    assert until(lambda: account.send("GET", place.path("secrets")).status == 200)
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}
    path = place.path("configmaps", "new") + "?fieldManager=robot"

    assert place.send("PATCH", path, body, "application/apply-patch+yaml", token=account.token).status == status


@pytest.mark.parametrize(
    ("resource", "allowed"), [("persistentvolumeclaims", {"/a"}), ("persistentvolumeclaims/status", {"/a/status"})]
)
def test_a_status_has_rights_of_its_own(account: Account, resource: str, allowed: set[str]) -> None:
    place = account.place
    claims = place.path("persistentvolumeclaims")
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    assert place.send("POST", claims, {"metadata": {"name": "a"}, "spec": spec}).status == 201
    account.grant({"apiGroups": [""], "resources": [resource], "verbs": ["patch"]})

    def patched() -> set[str]:
        media, body = "application/merge-patch+json", {"metadata": {"labels": {"a": "b"}}}
        return {
            where
            for where in ("/a", "/a/status")
            if place.send("PATCH", f"{claims}{where}", body, media, token=account.token).status == 200
        }

    assert until(lambda: patched() == allowed)


def test_a_review_of_ones_own_rights(account: Account) -> None:
    place = account.place
    account.grant({"apiGroups": [""], "resources": ["secrets"], "verbs": ["patch"]})

    def allowed(**attributes: str) -> bool:
        head = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
        body = {**head, "spec": {"resourceAttributes": attributes}}
        answer = account.send("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
        return bool(answer.body["status"]["allowed"])

    assert until(lambda: allowed(verb="patch", resource="secrets", namespace=place.namespace))
    assert not allowed(verb="patch", resource="secrets")
    assert not allowed(verb="get", resource="secrets", namespace=place.namespace)


RULES_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"


def test_a_review_of_ones_own_rules(account: Account) -> None:
    place = account.place
    account.grant({"apiGroups": [""], "resources": ["secrets"], "verbs": ["patch"]})

    def rules(namespace: str) -> list[dict[str, Any]]:
        head = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
        answer = account.send("POST", RULES_REVIEWS, {**head, "spec": {"namespace": namespace}})
        assert (answer.status, answer.body["status"]["incomplete"]) == (201, False)
        return [each for each in answer.body["status"]["resourceRules"] if "secrets" in each["resources"]]

    granted = {"verbs": ["patch"], "apiGroups": [""], "resources": ["secrets"]}
    assert until(lambda: rules(place.namespace) == [granted])
    assert rules("default") == rules("-") == []
    rights.grant(place.api, rights.account(place.namespace, "robot"), {**granted, "verbs": ["list"]})
    assert until(lambda: rules("-") == [{**granted, "verbs": ["list"]}])


def test_a_review_of_ones_own_rules_names_a_namespace(account: Account) -> None:
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {}}

    assert account.send("POST", RULES_REVIEWS, body).problem == (400, "BadRequest", "no namespace on request")


def test_discovery_is_open_to_every_account(account: Account) -> None:
    for path in ("/version", "/api", "/apis", "/api/v1"):
        assert account.send("GET", path).status == 200
    message = f'forbidden: User "{account.user}" cannot get path "/metrics"'
    assert account.send("GET", "/metrics").problem == forbidden(message)
