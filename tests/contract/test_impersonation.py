"""Impersonation: the user of a request, the rights that it requires, and the messages of refusals."""

from typing import Any

import pytest

from tests import rights
from tests.apis import Object
from tests.contract.conftest import Answer, Place, forbidden, until
from tests.rights import create_account, grant

REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ACCOUNTS = "system:serviceaccounts"
AUTHENTICATED = "system:authenticated"
HOME_ROBOT, NO_ACCOUNT = "system:serviceaccount:home:robot", "system:serviceaccount:robot"
BY_VERB = pytest.mark.since(36, "rights of impersonation that are bound to a verb")
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


def send(place: Place, headers: dict[str, str], method: str = "POST", path: str = REVIEWS, token: str = "") -> Answer:
    body = REVIEW if method == "POST" else None
    status, answered, raw = place.api.request(method, path, body, headers=headers, token=token or None)
    return Answer(status, dict(answered), raw)


@pytest.fixture
def token(place: Place) -> str:
    """The token of a ServiceAccount without rights."""
    return create_account(place.api, place.namespace, "robot")


def robot(place: Place) -> Object:
    """Return the account of `token`, as the subject of a binding."""
    return rights.account(place.namespace, "robot")


def impersonating(**headers: str) -> dict[str, str]:
    """Return the headers of an impersonation, as UTF-8: http.client encodes them as Latin-1."""
    return {f"Impersonate-{name}": value.encode().decode("latin-1") for name, value in headers.items()}


def may(resource: str, *names: str, group: str = "", verb: str = "impersonate") -> Object:
    return {"apiGroups": [group], "resources": [resource], "verbs": [verb], "resourceNames": list(names)}


@pytest.mark.parametrize(
    ("headers", "info"),
    [
        ({"User": "reader"}, {"username": "reader", "groups": [AUTHENTICATED]}),
        ({"User": "müller"}, {"username": "müller", "groups": [AUTHENTICATED]}),
        ({"User": "reader", "Group": "team"}, {"username": "reader", "groups": ["team", AUTHENTICATED]}),
        ({"User": HOME_ROBOT}, {"username": HOME_ROBOT, "groups": [ACCOUNTS, f"{ACCOUNTS}:home", AUTHENTICATED]}),
        ({"User": HOME_ROBOT, "Group": "team"}, {"username": HOME_ROBOT, "groups": ["team", AUTHENTICATED]}),
        ({"User": NO_ACCOUNT}, {"username": NO_ACCOUNT, "groups": [AUTHENTICATED]}),
        (
            {"User": "reader", "Uid": "u-1", "Extra-example.com%2fScopes": "view"},
            {"username": "reader", "groups": [AUTHENTICATED], "uid": "u-1", "extra": {"example.com/scopes": ["view"]}},
        ),
    ],
)
def test_the_admin_impersonates_users_groups_and_accounts(
    place: Place, headers: dict[str, str], info: dict[str, Any]
) -> None:
    assert send(place, impersonating(**headers)).body["status"]["userInfo"] == info


@pytest.mark.parametrize(
    "headers", [{"User": "system:anonymous"}, {"User": "reader", "Group": "system:unauthenticated"}]
)
def test_an_impersonated_user_may_be_unauthenticated(place: Place, headers: dict[str, str]) -> None:
    answer = send(place, impersonating(**headers))

    assert answer.status == 403
    assert f'User "{headers["User"]}" cannot create resource "selfsubjectreviews"' in answer.message


@pytest.mark.since(36, "an answer of 400, where older versions answer 500")
@pytest.mark.parametrize("header", ["Group", "Uid", "Extra-scopes"])
def test_impersonation_without_a_user(place: Place, header: str) -> None:
    code, reason, _ = send(place, impersonating(**{header: "x"})).problem

    assert (code, reason) == (400, "BadRequest")


@BY_VERB
@pytest.mark.parametrize(
    ("headers", "path", "message"),
    [
        (
            {"User": "reader"},
            "/api/v1/namespaces/NS/configmaps",
            'configmaps is forbidden: User "ROBOT" cannot impersonate-on:user-info:list resource "configmaps"'
            ' in API group "" in the namespace "NS"',
        ),
        (
            {"User": HOME_ROBOT},
            "/api/v1/configmaps",
            'configmaps is forbidden: User "ROBOT" cannot impersonate-on:serviceaccount:list resource "configmaps"'
            ' in API group "" at the cluster scope',
        ),
        (
            {"User": HOME_ROBOT, "Group": "team"},
            "/api/v1/configmaps",
            'serviceaccounts "robot" is forbidden: User "ROBOT" cannot impersonate resource "serviceaccounts"'
            ' in API group "" in the namespace "home"',
        ),
        (
            {"User": "system:node:one"},
            "/api/v1/nodes/one",
            'nodes "one" is forbidden: User "ROBOT" cannot impersonate-on:arbitrary-node:get resource "nodes"'
            ' in API group "" at the cluster scope',
        ),
        ({"User": "reader"}, "/version", 'forbidden: User "ROBOT" cannot impersonate-on:user-info:get path "/version"'),
    ],
)
def test_impersonation_without_rights(
    place: Place, token: str, headers: dict[str, str], path: str, message: str
) -> None:
    answer = send(place, impersonating(**headers), "GET", path.replace("NS", place.namespace), token)

    robot = f"system:serviceaccount:{place.namespace}:robot"
    message = message.replace("ROBOT", robot).replace("NS", place.namespace)
    assert answer.problem == forbidden(message)


def test_each_impersonated_field_requires_its_own_right(place: Place, token: str) -> None:
    extra = may("userextras/scopes", "view", group="authentication.k8s.io")
    uid = may("uids", "u-1", group="authentication.k8s.io")
    account = may("serviceaccounts", "other")
    grant(place.api, robot(place), may("users", "reader"), may("groups", "team"), extra, uid, account)

    def status(**headers: str) -> int:
        return send(place, impersonating(**headers), "GET", "/api", token).status

    assert until(lambda: status(User="reader") == 200)
    assert status(User="writer") == 403
    assert (status(User="reader", Group="team"), status(User="reader", Group="others")) == (200, 403)
    assert (status(User="reader", Uid="u-1"), status(User="reader", Uid="u-2")) == (200, 403)
    with_scope = [status(User="reader", **{f"Extra-{key}": value}) for key, value in _SCOPES]
    assert with_scope == [200, 403, 403]
    accounts = [f"system:serviceaccount:{place.namespace}:{name}" for name in ("other", "default")]
    assert [status(User=name) for name in accounts] == [200, 403]


_SCOPES = [("scopes", "view"), ("scopes", "edit"), ("others", "view")]


def test_only_the_rights_of_the_impersonated_user_count(place: Place, token: str) -> None:
    secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}
    grant(place.api, robot(place), may("users", "reader"), secrets)
    path = place.path("secrets")
    assert until(lambda: send(place, {}, "GET", path, token).status == 200)
    assert until(lambda: send(place, {"Impersonate-User": "reader"}, "GET", "/api", token).status == 200)

    answer = send(place, {"Impersonate-User": "reader"}, "GET", path, token)

    where = f'in API group "" in the namespace "{place.namespace}"'
    assert answer.message == f'secrets is forbidden: User "reader" cannot list resource "secrets" {where}'


@BY_VERB
def test_a_right_may_be_bound_to_a_verb(place: Place, token: str) -> None:
    user = may("users", "reader", group="authentication.k8s.io", verb="impersonate:user-info")
    on = {"nonResourceURLs": ["/api"], "verbs": ["impersonate-on:user-info:get"]}
    grant(place.api, robot(place), user, on)

    def status(path: str) -> int:
        return send(place, {"Impersonate-User": "reader"}, "GET", path, token).status

    assert until(lambda: status("/api") == 200)
    assert status("/apis") == 403
