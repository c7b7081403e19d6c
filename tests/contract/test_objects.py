"""Create, read, replace and delete: statuses, messages, conflicts, preconditions, dry runs."""

from typing import Any

import pytest

from tests.contract.conftest import (
    JSON_PATCH,
    MERGE,
    MODIFIED,
    OTHER_NAME,
    Place,
    bad_request,
    conflict,
    unprocessable,
    until,
    without_ids,
)

OTHER_UID = 'ConfigMap "a" is invalid: metadata.uid: Invalid value: "b": field is immutable'
FAILED = 'Operation cannot be fulfilled on configmaps "a": '


def test_a_created_object_is_complete(place: Place) -> None:
    answer = place.config_map(data={"a": "1"})

    meta = answer.body["metadata"]
    assert answer.status == 201
    assert answer.headers["Content-Type"] == "application/json"
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("ConfigMap", "v1")
    assert set(meta) == {"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "managedFields"}
    assert place.send("GET", place.path("configmaps", "a")).raw == answer.raw


def test_a_name_is_generated(place: Place) -> None:
    answer = place.send("POST", place.path("configmaps"), {"metadata": {"generateName": "made-"}})

    name = answer.body["metadata"]["name"]
    assert name.startswith("made-")
    assert len(name) == len("made-") + 5


def test_objects_that_do_not_exist(place: Place) -> None:
    answer = place.send("GET", place.path("configmaps", "none"))

    assert answer.problem == (404, "NotFound", 'configmaps "none" not found')
    assert answer.body["details"] == {"name": "none", "kind": "configmaps"}
    assert place.send("DELETE", place.path("configmaps", "none")).problem == answer.problem
    assert place.send("PUT", place.path("configmaps", "none"), {"metadata": {"name": "none"}}).status == 404


def test_a_name_that_is_taken(place: Place) -> None:
    place.secret()

    answer = place.secret()

    assert answer.problem == (409, "AlreadyExists", 'secrets "a" already exists')
    assert answer.body["details"] == {"name": "a", "kind": "secrets"}


def test_a_replace_of_an_old_version_conflicts(place: Place) -> None:
    old = place.config_map(data={"a": "1"}).body
    path = place.path("configmaps", "a")
    assert place.send("PUT", path, {**old, "data": {"a": "2"}}).status == 200

    answer = place.send("PUT", path, {**old, "data": {"a": "3"}})

    assert answer.problem == conflict(FAILED + MODIFIED)
    assert answer.body["details"] == {"name": "a", "kind": "configmaps"}


def test_a_replace_without_a_version_is_unconditional(place: Place) -> None:
    place.config_map(data={"a": "1"})

    answer = place.send("PUT", place.path("configmaps", "a"), {"metadata": {"name": "a"}, "data": {"a": "2"}})

    assert answer.status == 200


def test_a_replace_of_another_uid_conflicts(place: Place) -> None:
    obj = place.config_map().body
    obj["metadata"]["uid"] = "11111111-1111-1111-1111-111111111111"

    answer = place.send("PUT", place.path("configmaps", "a"), obj)

    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert without_ids(answer.message).endswith(
        "Precondition failed: UID in precondition: UID, UID in object meta: UID"
    )


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({}, "the name of the object (a based on URL) was undeterminable: name must be provided"),
        ({"name": "b"}, OTHER_NAME),
        (
            {"name": "a", "namespace": "other"},
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
    ],
)
def test_a_replace_of_another_object(place: Place, meta: dict[str, str], message: str) -> None:
    place.config_map()

    answer = place.send("PUT", place.path("configmaps", "a"), {"metadata": meta})

    assert answer.problem == bad_request(message)


def test_a_create_with_a_version(place: Place) -> None:
    answer = place.config_map(metadata={"resourceVersion": "1"})

    assert answer.problem == (500, "", "resourceVersion should not be set on objects to be created")


def test_a_create_in_a_namespace_that_does_not_exist(place: Place) -> None:
    answer = place.send("POST", "/api/v1/namespaces/none/configmaps", {"metadata": {"name": "a"}})

    assert answer.problem == (404, "NotFound", 'namespaces "none" not found')


def test_the_answer_to_a_delete_is_the_deleted_object(place: Place) -> None:
    uid = place.config_map().body["metadata"]["uid"]

    answer = place.send("DELETE", place.path("configmaps", "a"))

    details = {"name": "a", "kind": "configmaps", "uid": uid}
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    assert answer.body == {**status, "details": details}
    assert place.send("GET", place.path("configmaps", "a")).status == 404


def test_a_delete_with_a_precondition_that_does_not_match(place: Place) -> None:
    made = place.config_map().body
    uid, version = made["metadata"]["uid"], made["metadata"]["resourceVersion"]
    path = place.path("configmaps", "a")

    by_uid = place.send("DELETE", path, {"preconditions": {"uid": "x", "resourceVersion": version}})
    by_version = place.send("DELETE", path, {"preconditions": {"uid": uid, "resourceVersion": "1"}})

    failed = 'Operation cannot be fulfilled on ConfigMap "a": the'
    assert by_uid.problem == conflict(
        f"{failed} UID in the precondition (x) does not match the UID in record ({uid}). The object might have been "
        "deleted and then recreated"
    )
    assert by_version.problem == conflict(
        f"{failed} ResourceVersion in the precondition (1) does not match the ResourceVersion in record ({version}). "
        "The object might have been modified"
    )
    assert place.send("DELETE", path, {"preconditions": {"uid": uid, "resourceVersion": version}}).status == 200


@pytest.mark.parametrize(
    ("method", "suffix", "body", "media", "status"),
    [
        ("POST", "", {"metadata": {"name": "b"}}, "", 201),
        ("POST", "", {"metadata": {"name": "a"}}, "", 409),
        ("PUT", "/a", {"metadata": {"name": "a"}, "data": {"a": "2"}}, "", 200),
        ("PATCH", "/a", {"data": {"a": "2"}}, MERGE, 200),
        ("DELETE", "/a", None, "", 200),
    ],
)
def test_a_dry_run_changes_nothing(place: Place, method: str, suffix: str, body: Any, media: str, status: int) -> None:
    made = place.config_map(data={"a": "1"})
    before = config_maps(place)

    answer = place.send(method, f"{place.path('configmaps')}{suffix}?dryRun=All", body, media)

    assert answer.status == status
    if status == 201:
        assert "resourceVersion" not in answer.body["metadata"]
    if method in ("PUT", "PATCH"):
        assert answer.body["data"] == {"a": "2"}
        assert answer.version == made.version
    assert config_maps(place) == before


@pytest.mark.parametrize("collection", [False, True], ids=["one object", "all objects"])
def test_a_delete_with_a_body_ignores_its_query(place: Place, collection: bool) -> None:
    place.config_map()
    path = f"{place.path('configmaps')}{'' if collection else '/a'}?dryRun=All"
    before = config_maps(place)

    assert place.send("DELETE", path, {"dryRun": ["All"]}).status == 200
    assert config_maps(place) == before
    assert place.send("DELETE", path, {"propagationPolicy": "Background"}).status == 200
    assert config_maps(place) == []


def config_maps(place: Place) -> list[Any]:
    """The objects without the one that the real cluster creates in a new namespace after a while."""
    items = place.send("GET", place.path("configmaps")).body["items"]
    return [item for item in items if item["metadata"]["name"] != "kube-root-ca.crt"]


def test_finalizers_delay_a_deletion(place: Place) -> None:
    place.config_map(metadata={"finalizers": ["contract.test/protect"]})
    path = place.path("configmaps", "a")

    answer = place.send("DELETE", path)

    assert answer.status == 200
    assert answer.body["metadata"]["deletionTimestamp"]
    assert place.send("GET", path).status == 200
    finalizers = ["contract.test/protect", "contract.test/more"]
    more = place.send("PATCH", path, {"metadata": {"finalizers": finalizers}}, MERGE)
    assert more.problem[2] == (
        'ConfigMap "a" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is '
        'being deleted, found new finalizers []string{"contract.test/more"}'
    )
    assert place.send("PATCH", path, {"metadata": {"finalizers": None}}, MERGE).status == 200
    assert place.send("GET", path).status == 404


@pytest.fixture
def family(place: Place) -> Place:
    """A ConfigMap `owner`, and `child`, which it owns."""
    uid = place.config_map("owner").body["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    place.config_map("child", metadata={"ownerReferences": [owner]})
    return place


@pytest.mark.usefixtures("family")
def test_dependents_are_deleted_with_their_owner(place: Place) -> None:
    place.send("DELETE", place.path("configmaps", "owner"))

    assert until(lambda: place.send("GET", place.path("configmaps", "child")).status == 404)


@pytest.mark.usefixtures("family")
def test_orphaned_dependents_stay_without_their_owner_reference(place: Place) -> None:
    place.send("DELETE", place.path("configmaps", "owner"), {"propagationPolicy": "Orphan"})

    assert until(lambda: place.send("GET", place.path("configmaps", "owner")).status == 404)
    child = place.send("GET", place.path("configmaps", "child"))
    assert child.status == 200
    assert "ownerReferences" not in child.body["metadata"]


@pytest.mark.parametrize(
    ("patch", "media", "problem"),
    [
        ({"metadata": {"name": "b"}}, MERGE, bad_request(OTHER_NAME)),
        ({"metadata": {"uid": "b"}}, MERGE, unprocessable(OTHER_UID)),
        ({"metadata": {"resourceVersion": "1"}}, MERGE, conflict(FAILED + MODIFIED)),
        ({"data": {"a": "2"}}, "application/json", (415, "UnsupportedMediaType", "415: Unsupported Media Type")),
    ],
)
def test_a_patch_that_is_refused(place: Place, patch: Any, media: str, problem: tuple[int, str, str]) -> None:
    place.config_map(data={"a": "1"})

    assert place.send("PATCH", place.path("configmaps", "a"), patch, media).problem == problem


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/a", "value": "no"},
        {"op": "remove", "path": "/data/b"},
        {"op": "move", "from": "/data/b", "path": "/data/c"},
        {"op": "add", "path": "/binaryData/b", "value": "YQ=="},
        {"op": "add", "path": "/metadata/managedFields/9", "value": {}},
        {"op": "change", "path": "/data/a"},
    ],
    ids=lambda operation: f"{operation['op']} {operation['path']}",
)
def test_an_operation_of_a_json_patch_that_is_refused(place: Place, operation: dict[str, Any]) -> None:
    place.config_map(data={"a": "1"})

    answer = place.send("PATCH", place.path("configmaps", "a"), [operation], JSON_PATCH)

    assert answer.problem == unprocessable("the server rejected our request due to an error in our request")


@pytest.mark.parametrize(
    ("method", "suffix", "status", "reason"),
    [
        ("POST", "configmaps/a", 405, "MethodNotAllowed"),
        ("PUT", "configmaps", 405, "MethodNotAllowed"),
        ("GET", "nothings", 404, "NotFound"),
        ("GET", "configmaps/a/status", 404, "NotFound"),
    ],
)
def test_a_path_or_method_that_is_not_served(place: Place, method: str, suffix: str, status: int, reason: str) -> None:
    answer = place.send(method, place.path(suffix), {} if method != "GET" else None)

    assert answer.problem[:2] == (status, reason)


def test_a_group_that_is_not_served_is_plain_text(place: Place) -> None:
    answer = place.send("GET", "/apis/contract.test/v1/nothings")

    assert (answer.status, answer.raw) == (404, b"404 page not found\n")


def test_a_body_that_is_too_large(place: Place) -> None:
    body = {"metadata": {"name": "a"}, "data": {"a": "x" * (3 * 1024 * 1024)}}

    answer = place.send("POST", place.path("configmaps"), body)

    assert answer.problem == (413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")
