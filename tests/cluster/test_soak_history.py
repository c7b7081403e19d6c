"""The history of a soak has all changes that a real API server made."""

import http.client
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from soak import history
from soak.history import KINDS, History, Key
from tests.apis import Api, Object, real_api, wait_for
from tests.control_plane import ControlPlane, control_plane, missing

pytestmark = pytest.mark.cluster

WATCHED = {kind: KINDS[kind] for kind in ("Namespace", "ConfigMap")}
NAME = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "default"}}
SETTINGS = Key("ConfigMap", "default", "settings")


@pytest.fixture(scope="module")
def own_plane() -> Iterator[ControlPlane]:
    """A control plane whose API server a test may stop."""
    if reason := missing():
        pytest.skip(reason)
    with control_plane(controllers=False) as plane:
        yield plane


@pytest.fixture(autouse=True)
def _early(monkeypatch: pytest.MonkeyPatch) -> None:
    """An API server without load sends its changes at once."""
    monkeypatch.setattr(history, "LATE_SECONDS", 1.0)


@pytest.fixture
def admin(own_plane: ControlPlane, tmp_path: Path) -> Iterator[Api]:
    made = real_api(own_plane, tmp_path)
    yield made
    made.clean()


@pytest.fixture
def watched(own_plane: ControlPlane, admin: Api) -> Iterator[History]:
    """A history that knows the present state; the object of a test does not exist yet."""
    made = watch(own_plane, WATCHED)
    yield made
    made.stop()


def watch(plane: ControlPlane, kinds: dict[str, str]) -> History:
    return History(plane.url, plane.admin_token, plane.ca_file, kinds)


def wait_until_known(watched: History) -> None:
    """Wait until all changes until now are known."""
    now = time.time()
    wait_for(lambda: watched.known_until() > now, "the history to know all changes")


def add(api: Api, value: str) -> str:
    """Create or change the object, and return its resourceVersion."""
    done = api.patch(NAME, {"data": {"a": value}}) if api.get(NAME) else api.create({**NAME, "data": {"a": value}})
    return str(done["metadata"]["resourceVersion"])


def values(watched: History, key: Key = SETTINGS) -> list[str | None]:
    return [each.object["data"]["a"] if each.object else None for each in watched.versions(key)]


def test_each_change_is_a_version(admin: Api, watched: History) -> None:
    wait_until_known(watched)
    since = len(watched.changes("ConfigMap"))
    began = time.time()
    revisions = [add(admin, value) for value in ("1", "2")]
    between = time.time()
    admin.delete(NAME)
    revisions.append(add(admin, "3"))
    wait_until_known(watched)

    assert values(watched) == ["1", "2", None, "3"]
    versions = watched.versions(SETTINGS)
    assert [str(versions[index].revision) for index in (0, 1, 3)] == revisions
    assert all(one.revision < two.revision and one.seconds <= two.seconds for one, two in pairwise(versions))
    assert began <= versions[0].seconds
    assert versions[2].last
    assert versions[2].last["data"] == {"a": "2"}
    assert watched.during(SETTINGS, time.time(), versions[-1].revision) == [versions[3]]
    assert watched.during(SETTINGS, began - 60, versions[1].revision) == list(versions[:2])
    assert watched.during(SETTINGS, between + 60, versions[1].revision) == []
    # kube-apiserver itself writes ConfigMaps after its start.
    assert [each for each in watched.changes("ConfigMap", since) if each.key == SETTINGS] == list(versions)
    assert SETTINGS in watched.keys("ConfigMap")
    assert versions[3] in list(watched.now("ConfigMap"))
    assert [each for each in watched.all_versions("ConfigMap") if each.key == SETTINGS] == list(versions)


def test_an_object_that_existed_before_has_a_version(own_plane: ControlPlane, admin: Api) -> None:
    revision = add(admin, "1")
    watched = watch(own_plane, WATCHED)
    wait_until_known(watched)

    (version,) = watched.versions(SETTINGS)
    assert str(version.revision) == revision
    assert version.object
    assert version.object["kind"] == "ConfigMap"
    watched.stop()


def test_changes_before_and_after_a_restart_of_the_api_server(
    own_plane: ControlPlane, admin: Api, watched: History
) -> None:
    add(admin, "1")
    wait_until_known(watched)
    with own_plane.without_api_server():
        stopped = time.time()
        time.sleep(history.PROBE_SECONDS + history.LATE_SECONDS + 1)
        assert watched.known_until() < stopped
    add(admin, "2")
    admin.delete(NAME)
    wait_until_known(watched)

    assert values(watched)[0] == "1"
    assert values(watched)[-1] is None
    last = watched.versions(SETTINGS)[-1].last
    assert last  # a list after the restart may come too late for the change
    assert last["data"]["a"] in ("1", "2")


def test_nothing_is_known_while_a_kind_is_not_served(own_plane: ControlPlane, admin: Api) -> None:
    """The API server responds to other requests, as it does before it serves a CustomResourceDefinition."""
    crd, path = definition(), "/apis/example.com/v1/gadgets"
    began = time.time()
    watched = watch(own_plane, {**WATCHED, "Gadget": path})
    time.sleep(history.LATE_SECONDS + 2)
    assert watched.known_until() < began

    admin.create(crd)
    wait_until_known(watched)
    watched.stop()


def test_nothing_is_known_while_watches_are_refused(
    own_plane: ControlPlane, admin: Api, watched: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server responds to other requests, as it does while it fills a cache after a start."""
    wait_until_known(watched)
    request = watched._get

    def refused(connection: http.client.HTTPSConnection, path: str) -> http.client.HTTPResponse:
        if "watch=1" in path:
            raise OSError("429 Too Many Requests")
        return request(connection, path)

    with monkeypatch.context() as patched:
        patched.setattr(watched, "_get", refused)
        with own_plane.without_api_server():
            stopped = time.time()
        time.sleep(history.LATE_SECONDS + 2)
        assert watched.known_until() < stopped
    add(admin, "1")
    wait_until_known(watched)
    assert values(watched)[-1] == "1"


def definition() -> Object:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Gadget", "plural": "gadgets"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
