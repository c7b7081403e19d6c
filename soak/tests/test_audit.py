"""Writes of our accounts, from an audit log and a constructed history."""

import json
from pathlib import Path
from typing import Any

import pytest

from soak.audit import Audit
from soak.history import Key, Version
from soak.tests.story import START, Past
from tests.apis import Object

COPY = Key("ConfigMap", "team-1", "settings")
ACCOUNT = "system:serviceaccount:kube-chores:sync-copies"
EXTRA = {"authentication.kubernetes.io/pod-name": ["sync-copies-1-x"]}
LATER = START + 1000


def configmap(uid: str = "u1", **metadata: str) -> Object:
    return {"metadata": {"name": "settings", "namespace": "team-1", "uid": uid, **metadata}}


def response(version: Version) -> Object:
    """Return what the API server responds with after the change of a version."""
    obj = version.object or version.last or {}
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version.revision)}}


def deleted(uid: str) -> Object:
    return {"kind": "Status", "status": "Success", "details": {"name": "settings", "uid": uid}}


def stamp(seconds: float) -> str:
    return f"2027-01-15T08:00:{seconds:09.6f}Z"


def event(verb: str, seconds: float, responded: Object, **fields: Any) -> Object:
    """Return the event of a request that took 0.1 s."""
    return {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "stage": "ResponseComplete",
        "verb": verb,
        "user": {"username": ACCOUNT, "extra": EXTRA},
        "objectRef": {"resource": "configmaps", "namespace": "team-1", "name": "settings"},
        "requestURI": "/api/v1/namespaces/team-1/configmaps/settings",
        "responseStatus": {"code": 200},
        "responseObject": responded,
        "requestReceivedTimestamp": stamp(seconds - 0.1),
        "stageTimestamp": stamp(seconds),
        **fields,
    }


class Log:
    """An audit log of a test, and its reader."""

    def __init__(self, folder: Path) -> None:
        self.past = Past()
        self.file = folder / "audit.log"
        self.file.touch()
        history: Any = self.past
        self.audit = Audit(self.file, history)

    def add(self, text: str) -> None:
        with self.file.open("a") as file:
            file.write(text)

    def events(self, *events: Object) -> None:
        self.add("".join(line(each) for each in events))


def line(of: Object) -> str:
    return json.dumps(of, separators=(",", ":")) + "\n"


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_writes_have_the_objects_before_and_after(log: Log) -> None:
    one = log.past.add(1, COPY, configmap())
    two = log.past.add(2, COPY, configmap(note="a"))
    three = log.past.add(3, COPY, None)
    created = event("create", 1, response(one), responseStatus={"code": 201})
    del created["objectRef"]["name"]
    log.events(created, event("patch", 2, response(two)), event("delete", 3, deleted("u1")))

    create, patch, delete = log.audit.writes(LATER)
    assert (create.verb, create.before, create.after) == ("create", None, one.object)
    assert (patch.verb, patch.before, patch.after) == ("patch", one.object, two.object)
    assert (delete.verb, delete.before, delete.after) == ("delete", two.object, None)
    assert [each.revision for each in (create, patch, delete)] == [one.revision, two.revision, three.revision]
    assert {(each.account, each.pod, each.key) for each in (create, patch, delete)} == {
        ("sync-copies", "sync-copies-1-x", COPY)
    }
    assert create.seconds == START + 1
    assert log.audit.writes(LATER) == []


def test_a_status_is_a_subresource(log: Log) -> None:
    key = Key("CopyRator", "kube-chores", "settings")
    version = log.past.add(1, key, {"metadata": {"name": "settings", "uid": "u2"}})
    about = {"resource": "copyrators", "namespace": "kube-chores", "name": "settings", "subresource": "status"}
    log.events(event("patch", 1, response(version), objectRef=about))

    (write,) = log.audit.writes(LATER)
    assert (write.key, write.subresource) == (key, "status")


@pytest.mark.parametrize(
    "fields",
    [
        {"stage": "RequestReceived"},
        {"verb": "get"},
        {"user": {"username": "admin", "groups": [ACCOUNT]}},
        {"responseStatus": {"code": 409}},
        {"requestURI": "/api/v1/namespaces/team-1/configmaps/settings?dryRun=All"},
        {"requestObject": {"dryRun": ["All"]}},
        {"objectRef": {"resource": "selfsubjectaccessreviews"}},
    ],
)
def test_other_requests_are_not_writes(log: Log, fields: Object) -> None:
    version = log.past.add(1, COPY, configmap())
    log.events({**event("create", 1, response(version)), **fields})

    assert log.audit.writes(LATER) == []


def test_a_write_is_returned_when_the_history_knows_it(log: Log) -> None:
    log.events(event("create", 10, response(Version(COPY, 1, START + 10, configmap()))))
    assert log.audit.writes(START + 9.9) == []

    log.past.add(10.3, COPY, configmap())
    assert len(log.audit.writes(START + 10)) == 1


def test_a_line_is_read_when_it_is_complete(log: Log) -> None:
    text = line(event("create", 1, response(log.past.add(1, COPY, configmap()))))
    log.add(text[:50])
    assert log.audit.writes(LATER) == []

    log.add(text[50:])
    assert len(log.audit.writes(LATER)) == 1


@pytest.mark.parametrize("length", [0, 5, 300])
def test_a_line_that_a_kill_cut_off_does_not_hide_the_next(log: Log, length: int) -> None:
    text = line(event("create", 1, response(log.past.add(1, COPY, configmap()))))
    log.add(text[:length] + text)

    assert len(log.audit.writes(LATER)) == 1


# requests that changed nothing


def test_a_response_with_an_older_version_is_not_a_write(log: Log) -> None:
    tenants = log.past.add(1, COPY, configmap())
    log.events(event("patch", 5, response(tenants)))

    assert log.audit.writes(LATER) == []


def test_a_response_with_the_version_that_was_required_is_not_a_write(log: Log) -> None:
    tenants = log.past.add(5.2, COPY, configmap())  # the watch was late
    sent = {"metadata": {"resourceVersion": str(tenants.revision)}}
    log.events(event("patch", 5, response(tenants), requestObject=sent))

    assert log.audit.writes(LATER) == []


def test_a_second_response_with_the_same_version_is_not_a_write(log: Log) -> None:
    version = log.past.add(5.2, COPY, configmap())
    log.events(event("create", 5, response(version)), event("patch", 5.1, response(version)))

    (write,) = log.audit.writes(LATER)
    assert write.verb == "create"


# deletions


def test_a_deletion_that_a_finalizer_delays_is_the_first_version_with_a_time(log: Log) -> None:
    log.past.add(1, COPY, configmap())
    marked = log.past.add(2, COPY, configmap(deletionTimestamp="2027-01-15T08:00:02Z"))
    log.past.add(9, COPY, None)
    log.events(event("delete", 2, response(marked)), event("delete", 5, response(marked)))

    (write,) = log.audit.writes(LATER)
    assert (write.revision, write.after) == (marked.revision, marked.object)


def test_a_deletion_is_paired_by_uid(log: Log) -> None:
    log.past.add(1, COPY, configmap("u1"))
    first = log.past.add(2, COPY, None)
    log.past.add(3, COPY, configmap("u2"))
    log.past.add(4, COPY, None)
    log.events(event("delete", 2, deleted("u1")))

    (write,) = log.audit.writes(LATER)
    assert write.revision == first.revision


# versions that the history lost, because it listed again


def test_a_lost_version_is_that_of_the_response(log: Log) -> None:
    before = log.past.add(1, COPY, configmap())
    log.past.revision += 10
    log.past.add(20, COPY, configmap(note="of a tenant"))
    lost = response(Version(COPY, before.revision + 5, START + 10, configmap(note="ours")))
    log.events(event("patch", 10, lost))

    (write,) = log.audit.writes(LATER)
    assert (write.before, write.after, write.revision) == (before.object, lost, before.revision + 5)


def test_a_lost_deletion_is_of_the_object_before_the_next_one(log: Log) -> None:
    before = log.past.add(1, COPY, configmap("u1"))
    log.past.revision += 10
    after = log.past.add(20, COPY, configmap("u2"))
    log.events(event("delete", 10, deleted("u1")))

    (write,) = log.audit.writes(LATER)
    assert (write.before, write.after, write.revision) == (before.object, None, after.revision - 1)


def test_a_deletion_of_an_object_that_the_history_never_had(log: Log) -> None:
    about = {"resource": "leases", "namespace": "team-1", "name": "settings"}
    log.events(event("delete", 10, deleted("u3"), objectRef=about))

    (write,) = log.audit.writes(LATER)
    assert (write.key.kind, write.before, write.after) == ("leases", None, None)
