"""The lifecycle of a namespace, which decides where copies can be created."""

import pytest

from tests.contract.conftest import MERGE, Place, forbidden, until


def test_a_new_namespace(place: Place) -> None:
    body = place.send("GET", f"/api/v1/namespaces/{place.namespace}").body

    assert body["metadata"]["labels"] == {"kubernetes.io/metadata.name": place.namespace}
    assert body["spec"] == {"finalizers": ["kubernetes"]}
    assert body["status"] == {"phase": "Active"}
    assert until(lambda: place.send("GET", place.path("configmaps", "kube-root-ca.crt")).status == 200)
    assert until(lambda: place.send("GET", place.path("serviceaccounts", "default")).status == 200)


def test_the_name_label_cannot_be_removed(place: Place) -> None:
    answer = place.send("PATCH", f"/api/v1/namespaces/{place.namespace}", {"metadata": {"labels": None}}, MERGE)

    assert answer.body["metadata"]["labels"] == {"kubernetes.io/metadata.name": place.namespace}


@pytest.mark.parametrize(
    ("name", "why"), [("a.b", "must not contain dots"), ("A_b", "a lowercase RFC 1123 label must consist of")]
)
def test_a_namespace_that_is_refused(place: Place, name: str, why: str) -> None:
    answer = place.send("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    assert answer.status == 422
    assert ("metadata.name", "FieldValueInvalid") in {cause[:2] for cause in answer.causes}
    assert why in answer.message


def test_a_namespace_is_emptied_and_deleted(place: Place) -> None:
    place.config_map("protected", metadata={"finalizers": ["contract.test/protect"]})
    place.secret("b", stringData={"a": "canary-1"})
    itself = f"/api/v1/namespaces/{place.namespace}"

    deleted = place.send("DELETE", itself)
    refused = place.secret("late")

    assert (deleted.status, deleted.body["status"]["phase"]) == (200, "Terminating")
    assert deleted.body["metadata"]["deletionTimestamp"]
    why = f"unable to create new content in namespace {place.namespace} because it is being terminated"
    assert refused.problem == forbidden(f'secrets "late" is forbidden: {why}')
    cause = f"namespace {place.namespace} is being terminated"
    assert refused.causes == {("metadata.namespace", "NamespaceTerminating", cause)}
    assert refused.body["details"]["kind"] == "secrets"
    assert until(lambda: place.send("GET", place.path("secrets", "b")).status == 404)
    assert place.send("GET", itself).body["status"]["phase"] == "Terminating"
    assert place.send("PATCH", place.path("configmaps", "protected"), {"data": {"a": "1"}}, MERGE).status == 200

    place.send("PATCH", place.path("configmaps", "protected"), {"metadata": {"finalizers": None}}, MERGE)
    assert until(lambda: place.send("GET", itself).status == 404, 30)
