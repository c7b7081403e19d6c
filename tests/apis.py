"""One face for both API servers of the tests: the embedded one and a real control plane."""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import re
import secrets
import select
import ssl
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jobs.kit.values.reads import shallow
from tests import canary
from tests.control_plane import ControlPlane, audit_events, write_kubeconfig

if TYPE_CHECKING:
    from kubesandbox import Sandbox

Object = dict[str, Any]
Answer = tuple[int, Mapping[str, str], bytes]
OURS = "app.kubernetes.io/managed-by=kube-chores"
GIVE_UP_SECONDS = 60.0
BUSY = 3  # times as long as on an idle machine
MANY = 20  # objects, which are deleted with one request
_IN_NAMESPACE = re.compile(r"(/api/v1|/apis/[^/]+/[^/]+)/namespaces/([^/]+)/([^/]+)")
# What controllers create in each namespace, and what no controller reacts to.
_IN_EACH = {"/api/v1 configmaps": {"kube-root-ca.crt"}, "/api/v1 serviceaccounts": {"default"}}
_WITHOUT_CONTROLLERS = frozenset(
    {*_IN_EACH, "/api/v1 events", "/api/v1 secrets", "/api/v1 resourcequotas", "/api/v1 limitranges"}
    | {f"/apis/kubechores.dev/v1 {plural}" for plural in ("copyrators", "exchangerates")}
    | {f"/apis/rbac.authorization.k8s.io/v1 {plural}" for plural in ("roles", "rolebindings")}
    | {"/apis/networking.k8s.io/v1 networkpolicies"}
)
# What sync-copies copies.
_COPIED = (
    *(f"/api/v1 {plural}" for plural in ("configmaps", "secrets", "limitranges", "resourcequotas", "serviceaccounts")),
    "/apis/rbac.authorization.k8s.io/v1 rolebindings",
    "/apis/networking.k8s.io/v1 networkpolicies",
)
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Request:
    """A request that a server answered."""

    method: str
    path: str
    query: dict[str, str]
    status: int
    user: str
    user_agent: str
    name: str = ""  # of the object; in the embedded server's requests, and if the server chose it, it is empty


class ApiError(Exception):
    """The server refused a request of one of the helpers."""

    def __init__(self, method: str, path: str, status: int, body: bytes) -> None:
        super().__init__(f"{method} {path}: {status} {body.decode(errors='replace')}")
        self.status = status


@dataclass
class Api:
    """An API server with helpers for small test worlds of plain dicts.

    `kept` are objects of the session by their path: `clean()` restores those that the test changed.
    """

    kind: Literal["sandbox", "real"]
    url: str
    admin_token: str
    ca_file: Path | None
    kubeconfig: Path
    folder: Path
    log_position: Callable[[], int]
    log_since: Callable[[int], list[Request]]
    kept: Mapping[str, Object] = field(default_factory=dict)
    token: str = field(default_factory=lambda: secrets.token_hex(3))

    def __post_init__(self) -> None:
        self._made: list[str] = []
        self._changed: set[str] = set()
        self._of_thread = threading.local()
        self._resources: dict[tuple[str, str], tuple[str, bool]] = {}
        self.mark()
        self._begin = self._start
        self._old_events = {event["metadata"]["uid"] for event in self._all_events()}

    # requests

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> Answer:
        """Send one request, as admin or with a token, and read the whole answer."""
        if method != "GET":
            self._changed |= self.kept.keys() & {path.partition("?")[0]}
        sent = {
            "Authorization": f"Bearer {token or self.admin_token}",
            "User-Agent": "tests",
            "Accept": "application/json",
        }
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if content is not None:
            sent["Content-Type"] = "application/json"
        connection = self._connection()
        try:
            connection.request(method, path, content, {**sent, **(headers or {})})
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()
        except BaseException:
            connection.close()
            raise

    def _connection(self) -> http.client.HTTPConnection:
        """That of this thread, which it keeps: a new one takes longer than most requests."""
        if not hasattr(self._of_thread, "connection"):
            scheme, _, host = self.url.partition("://")
            self._of_thread.connection = (
                http.client.HTTPSConnection(host, timeout=120, context=self._tls)
                if scheme == "https"
                else http.client.HTTPConnection(host, timeout=120)
            )
        kept: http.client.HTTPConnection = self._of_thread.connection
        if kept.sock and select.select([kept.sock], [], [], 0)[0]:
            kept.close()  # the server did, and the next request connects again
        return kept

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca_file))

    def answer(self, path: str, **options: Any) -> Answer:
        """Read what is at a path, once its resource is served: for a moment after its CRD changed, it is not."""
        answers: list[Answer] = []

        def is_served() -> bool:
            answers.append(self.request("GET", path, **options))
            return answers[-1][0] != 429

        wait_for(is_served, f"{path} to be served, after its CRD changed")
        return answers[-1]

    def call(self, method: str, path: str, body: object = None, **options: Any) -> Object:
        """Send a request that must succeed."""
        status, _, content = self.request(method, path, body, **options)
        if status >= 300:
            raise ApiError(method, path, status, content)
        return _decoded(content)

    # objects

    def path(self, obj: Object, *, named: bool = True) -> str:
        """Where an object lives, by the server's own discovery."""
        version = obj["apiVersion"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        plural, namespaced = self._resource(base, obj["kind"])
        place = f"/namespaces/{obj['metadata'].get('namespace', 'default')}" if namespaced else ""
        name = "/" + urllib.parse.quote(obj["metadata"]["name"]) if named else ""
        return f"{base}{place}/{plural}{name}"

    def _resource(self, base: str, kind: str) -> tuple[str, bool]:
        if (base, kind) not in self._resources:
            for resource in self.call("GET", base)["resources"]:
                if "/" not in resource["name"]:
                    self._resources[base, resource["kind"]] = (resource["name"], resource["namespaced"])
        return self._resources[base, kind]

    def create(self, obj: Object) -> Object:
        """Create an object; it is deleted after the test."""
        _look_for_canaries(obj)
        made = self.call("POST", self.path(obj, named=False), obj)
        self.made(made)
        if obj["kind"] == "CustomResourceDefinition":
            self._wait_until_served(obj)
        return made

    def made(self, obj: Object) -> None:
        """Have an object deleted after the test, unless it is one of `kept`, which the test deleted before."""
        path = self.path(obj)
        if path not in self.kept:
            self._made.append(path)

    def get(self, obj: Object) -> Object | None:
        """The object as it is now, or None."""
        path = self.path(obj)
        status, _, body = self.answer(path)
        if status == 404:
            return None
        if status != 200:
            raise ApiError("GET", path, status, body)
        return _decoded(body)

    def read(self, obj: Object) -> Object:
        """The object as it is now; it must be there."""
        found = self.get(obj)
        assert found, f"nothing at {self.path(obj)}"
        return found

    def items(self, api_version: str, kind: str, namespace: str | None = None, **query: str) -> list[Object]:
        """The objects of a kind, everywhere or in one namespace, with query parameters such as labelSelector."""
        obj = {"apiVersion": api_version, "kind": kind, "metadata": {"namespace": namespace or "-"}}
        path = self.path(obj, named=False)
        path = path if namespace else path.replace("/namespaces/-/", "/")
        found = self.call("GET", f"{path}?{urllib.parse.urlencode(query)}")["items"]
        return [{"apiVersion": api_version, "kind": kind} | one for one in found]

    def replace(self, obj: Object) -> Object:
        """PUT the object over whatever is there."""
        _look_for_canaries(obj)
        version = self.read(obj)["metadata"]["resourceVersion"]
        return self.call("PUT", self.path(obj), obj | {"metadata": obj["metadata"] | {"resourceVersion": version}})

    def patch(self, obj: Object, patch: Object) -> Object:
        """JSON merge patch."""
        return self.call("PATCH", self.path(obj), patch, headers={"Content-Type": "application/merge-patch+json"})

    def patch_status(self, obj: Object, status: Object | None) -> Object:
        """Merge into the object's status; None removes it."""
        media = {"Content-Type": "application/merge-patch+json"}
        return self.call("PATCH", f"{self.path(obj)}/status", {"status": status}, headers=media)

    def delete(self, obj: Object) -> None:
        """Delete the object; it must be there."""
        self.call("DELETE", self.path(obj))

    def put(self, obj: Object) -> Object:
        """Create the object or replace it if it is another, as `kubectl apply` would; it stays after the test."""
        current = self.get(obj)
        if current:
            return current if _is_within(obj, current) else self.replace(obj)
        made = self.call("POST", self.path(obj, named=False), obj)
        if obj["kind"] == "CustomResourceDefinition":
            self._wait_until_served(obj)
        return made

    def namespace(self, name: str, **metadata: Any) -> str:
        """Create a namespace `NAME-TOKEN` (labels=..., annotations=...) that no other test has; gives its name."""
        unique = f"{name}-{self.token}"
        metadata = {"name": unique, **metadata}
        self.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        return unique

    def _wait_until_served(self, crd: Object) -> None:
        spec = crd["spec"]
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        wait_for(lambda: self.request("GET", path)[0] == 200, f"{path} to be served")

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Delete at the end what is made meanwhile, but no namespaces; wait until it does not exist."""
        start = len(self._made)
        yield
        made, self._made = self._made[start:], self._made[:start]
        for path in reversed(made):
            if path.startswith("/api/v1/namespaces/") and path.count("/") == 4:
                self._made.append(path)
            elif not self._remove(path):
                wait_for(lambda: self.request("GET", path)[0] == 404, f"{path} to be deleted")  # noqa: B023

    def clean(self) -> None:
        """Restore `kept` and delete what the test and its jobs made, rules first; namespaces go in the background."""
        try:
            for path in self.kept:  # in the order in which they can be created
                if path in self._changed:
                    self._restore(self.kept[path])
        finally:
            self._delete_made()

    def _restore(self, obj: Object) -> None:
        """Write the whole object, so that fields which it does not set are as by default; one that goes comes back."""

        def going() -> bool:
            return "deletionTimestamp" in (self.get(obj) or {"metadata": {}})["metadata"]

        wait_for(lambda: not going(), f"{obj['kind']} {obj['metadata']['name']} to be deleted")
        self.replace(obj) if self.get(obj) else self.put(obj)

    def _delete_made(self) -> None:
        """Delete by name: a list waits until the cache of its resource is as new as the last write of any other.

        That takes 0.1 s, since the API server requests the progress of its watches ten times a second.
        """
        rules = [path for path in self._made if "/kubechores.dev/" in path]
        namespaces = [path for path in self._made if path.startswith("/api/v1/namespaces/") and path.count("/") == 4]
        others = [path for path in self._made[::-1] if path not in namespaces]
        deleted = {path for path in _with_collections(rules + others, namespaces) if self._remove(path)}
        written = self._written()
        for place in [place for place in written if place not in namespaces]:
            for base, plural in (each.split() for each in _COPIED):
                for name in written[place].get(f"{base} {plural}", ()):
                    self._remove_copy(f"{base}/namespaces/{place.rpartition('/')[2]}/{plural}/{name}")
        for each in namespaces:
            self._delete_namespace(each, written.get(each, {}), deleted)

    def _written(self) -> dict[str, dict[str, set[str]]]:
        """What the test and its jobs wrote: names by namespace and resource. An unknown name is empty."""
        found: dict[str, dict[str, set[str]]] = {}
        for each in self.log_since(self._begin):
            if each.method != "GET" and (place := _IN_NAMESPACE.match(each.path)):
                resources = found.setdefault(f"/api/v1/namespaces/{place[2]}", {})
                resources.setdefault(f"{place[1]} {place[3]}", set()).add(urllib.parse.quote(each.name))
        return found

    def _remove_copy(self, path: str) -> None:
        """Delete a copy that is not in a namespace of the test."""
        status, _, body = self.request("GET", path) if path not in self.kept else (0, {}, b"")
        if status == 200 and OURS in map("=".join, json.loads(body)["metadata"].get("labels", {}).items()):
            self._remove(path)

    def _remove(self, path: str) -> bool:
        """Delete an object, also one that a finalizer of a test keeps: otherwise its namespace stays.

        Return whether it does not exist now.
        """
        status, _, body = self.request("DELETE", path)
        if b'"finalizers":["example.com/' in body:
            merge = {"Content-Type": "application/merge-patch+json"}
            found = json.loads(body)
            names = [urllib.parse.quote(each["metadata"]["name"]) for each in found.get("items", ())]
            paths = [f"{path}/{name}" for name in names] if "items" in found else [path]
            released = {"metadata": {"finalizers": None}}
            return {self.request("PATCH", each, released, headers=merge)[0] for each in paths} <= {200, 404}
        return status in (200, 404) and b'"finalizers":[' not in body

    def _delete_namespace(self, path: str, written: Mapping[str, set[str]], deleted: set[str]) -> None:
        """Delete a namespace, and its content where no controller has to react to it.

        The namespace controller sends about 90 requests for each namespace, which are most of the work of the real
        server in a session.
        """
        status, _, _ = self.request("DELETE", path)
        content = {each: _IN_EACH.get(each, set()) | written.get(each, set()) for each in {*_IN_EACH, *written}}
        for each in ("/api/v1 finalize", "/api/v1 status"):
            content.pop(each, None)
        if status != 200 or not content.keys() <= _WITHOUT_CONTROLLERS:
            return
        left = set()
        for each, names in content.items():
            base, plural = each.split()
            place = f"{base}{path.removeprefix('/api/v1')}/{plural}"
            left |= {f"{place}/{name}" for name in names} - deleted if "" not in names else {place}
        if all(self._remove(each) for each in _with_collections(sorted(left), [path])):
            body = {"metadata": {"name": path.rpartition("/")[2]}, "spec": {"finalizers": []}}
            self.request("PUT", f"{path}/finalize", body)

    def lost(self) -> list[str]:
        """The objects in namespaces that do not exist. Neither a controller nor a user would find them.

        What a controller creates in each namespace may come late, after the namespace was deleted.
        """
        names = {each["metadata"]["name"] for each in self.items("v1", "Namespace")}
        groups = self.call("GET", "/apis")["groups"]
        found = []
        for base in ("/api/v1", *(f"/apis/{each['preferredVersion']['groupVersion']}" for each in groups)):
            for each in self._served(base, "resources"):
                if each["namespaced"] and "list" in each["verbs"]:
                    objects = self._served(f"{base}/{each['name']}", "items", headers=METADATA_ONLY)
                    late = _IN_EACH.get(f"{base} {each['name']}", ())
                    metadata = (one["metadata"] for one in objects if one["metadata"]["name"] not in late)
                    found += [one | {"plural": each["name"]} for one in metadata]
        return [f"{one['plural']} {one['namespace']}/{one['name']}" for one in found if one["namespace"] not in names]

    def _served(self, path: str, field: str, **options: Any) -> list[Object]:
        """The list in a field of the answer; empty for a path of a CRD whose deletion ends only now."""
        status, _, content = self.answer(path, **options)
        if status == 404:
            return []
        if status >= 300:
            raise ApiError("GET", path, status, content)
        found: list[Object] = json.loads(content)[field] or []
        return found

    # identities

    def service_account_kubeconfig(self, namespace: str, name: str, default_namespace: str | None = None) -> Path:
        """A kubeconfig with a fresh token of a ServiceAccount; its context's namespace is its own by default."""
        path = self.folder / f"{namespace}-{name}-{next(_numbers)}.kubeconfig"
        token = self.service_account_token(namespace, name)
        return write_kubeconfig(path, self.url, token, self.ca_file, default_namespace or namespace)

    def service_account_token(self, namespace: str, name: str) -> str:
        """A token of a ServiceAccount, from the TokenRequest API."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        return str(self.call("POST", path, body)["status"]["token"])

    # what happened

    def mark(self) -> None:
        """Forget the requests so far."""
        self._start = self.log_position()

    def requests(self, user_agent_prefix: str = "kube-chores") -> list[Request]:
        """The requests since the test began or since `mark()`, in the order they were completed."""
        return [one for one in self.log_since(self._start) if one.user_agent.startswith(user_agent_prefix)]

    def writes(self, user_agent_prefix: str = "kube-chores") -> list[Request]:
        """Those requests that change something; asking about one's own rights is a POST that does not."""
        reads = ("GET", "HEAD", "OPTIONS")
        asked = ("/selfsubjectaccessreviews", "/selfsubjectrulesreviews")
        return [
            one for one in self.requests(user_agent_prefix) if one.method not in reads and not one.path.endswith(asked)
        ]

    def copy_writes(self) -> list[Request]:
        """Writes of copies, not of a rule's status or Events."""
        plurals = {each.split()[1] for each in _COPIED}
        return [one for one in self.writes() if plurals & set(one.path.split("/"))]

    def events(self) -> list[Object]:
        """Events that kube-chores wrote since the test began. Controllers may report what other tests removed later."""
        return [event for event in self._new_events() if event.get("source", {}).get("component") == "kube-chores"]

    def _new_events(self) -> list[Object]:
        return [event for event in self._all_events() if event["metadata"]["uid"] not in self._old_events]

    def _all_events(self) -> list[Object]:
        status, _, body = self.request("GET", "/api/v1/events")
        items: list[Object] = json.loads(body)["items"] if status == 200 else []
        return items

    def public(self) -> dict[str, str]:
        """What many may read and no Secret value may be in: Events, rules with their status, our copies' metadata.

        On the real server nothing is read if only the test itself wrote.
        """
        if self.kind == "real" and {one.user_agent for one in self.log_since(self._begin)} <= {"tests"}:
            return {}
        query = urllib.parse.urlencode({"labelSelector": OURS})
        paths = {
            "a rule": "/apis/kubechores.dev/v1/copyrators",
            "an ExchangeRate": "/apis/kubechores.dev/v1/exchangerates",
            "a RegistryMirror": "/apis/kubechores.dev/v1/registrymirrors",
            "a FarmPod": "/apis/kubechores.dev/v1/farmpods",
            "the metadata of a ConfigMap copy": f"/api/v1/configmaps?{query}",
            "the metadata of a Secret copy": f"/api/v1/secrets?{query}",
        }
        texts = {"an Event": json.dumps(self._new_events())}
        for where, path in paths.items():
            status, _, body = self.request("GET", path, headers=METADATA_ONLY if "metadata" in where else None)
            texts[where] = body.decode() if status == 200 else ""
        return texts


def _decoded(text: bytes) -> Object:
    """An object from its JSON, null in place of what is nested too deep for Python."""
    try:
        decoded: Object = json.loads(text)
    except RecursionError:
        decoded = json.loads(shallow(text))
    return decoded


def _with_collections(paths: list[str], namespaces: list[str]) -> list[str]:
    """Return the paths once each, and in place of many objects of one resource in a namespace that of the resource."""
    counts = Counter(path.rpartition("/")[0] for path in paths)
    places = tuple(f"/{each.removeprefix('/api/v1/')}/" for each in namespaces)
    many = {each for each, count in counts.items() if count > MANY and any(place in each for place in places)}
    return list(dict.fromkeys(parent if (parent := path.rpartition("/")[0]) in many else path for path in paths))


def _is_within(expected: Any, actual: Any) -> bool:
    """Whether `actual` has all of `expected`. It may have more fields, but not more items of a list."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return all(_is_within(value, actual.get(name)) for name, value in expected.items())
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(_is_within, expected, actual))
    return bool(expected == actual)


METADATA_ONLY = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}


def wait_for(
    condition: Callable[[], object],
    what: str,
    seconds: float = GIVE_UP_SECONDS,
    detail: Callable[[], object] = lambda: "",
) -> None:
    """Wait until the condition is true; after `seconds`, or thrice that, as on a busy machine, fail with `what`."""
    seconds *= BUSY
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s for {what} {detail()}")
        time.sleep(0.05)


def ready_of(conditions: list[Object]) -> Object:
    """Return condition Ready."""
    (ready,) = (each for each in conditions if each["type"] == "Ready")
    return ready


def _look_for_canaries(obj: Object) -> None:
    """Every Secret value must be a canary, or its leak would go unseen; certificates are public."""
    if obj["kind"] != "Secret":
        return
    values = [base64.b64decode(value) for value in (obj.get("data") or {}).values()]
    values += [value.encode() for value in (obj.get("stringData") or {}).values()]
    for value in values:
        if canary.TOKEN.encode() not in value and not value.startswith(b"-----BEGIN CERTIFICATE-----"):
            raise ValueError(f"Secret {obj['metadata']['name']}: use canary() in every value")
        canary.remember(value)


# servers


def real_api(plane: ControlPlane, folder: Path, kept: Mapping[str, Object] | None = None) -> Api:
    """A test's view of the control plane, with the objects that `clean()` restores."""

    def position() -> int:
        return plane.audit_log.stat().st_size

    def since(start: int) -> list[Request]:
        return _audited(plane.audit_log, start)

    return Api(
        "real", plane.url, plane.admin_token, plane.ca_file, plane.kubeconfig, folder, position, since, kept or {}
    )


def _audited(log: Path, start: int) -> list[Request]:
    """Requests that began after a position of the audit log, once each is completed."""
    done: dict[str, Object] = {}

    def completed() -> bool:
        events = [event for event in audit_events(log, start) if event["verb"] != "watch"]
        received = {event["auditID"] for event in events if event["stage"] == "RequestReceived"}
        ended = (event for event in events if event["stage"] != "RequestReceived")
        done.update((event["auditID"], event) for event in ended if event["auditID"] in received)
        return len(done) == len(received)

    wait_for(completed, "the audit log to be complete")
    return [_audited_request(event) for event in done.values()]


METHODS = {"list": "GET", "create": "POST", "update": "PUT", "deletecollection": "DELETE"}


def _audited_request(event: Object) -> Request:
    url = urllib.parse.urlsplit(event["requestURI"])
    return Request(
        method=METHODS.get(event["verb"], event["verb"].upper()),
        path=url.path,
        query=dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True)),
        status=event.get("responseStatus", {}).get("code", 0),
        user=event["user"]["username"],
        user_agent=event.get("userAgent", ""),
        name=event.get("objectRef", {}).get("name", ""),
    )


def sandbox_api(sandbox: Sandbox, folder: Path) -> Api:
    """A test's view of its own embedded API server."""

    def position() -> int:
        return len(sandbox.requests)

    def since(start: int) -> list[Request]:
        return [
            Request(one.method, one.path, dict(one.query), one.status, one.user, one.user_agent)
            for one in sandbox.requests[start:]
        ]

    kubeconfig = folder / "admin.kubeconfig"
    sandbox.kubeconfig(kubeconfig)
    authority = None
    if sandbox.authority:
        authority = folder / "ca.crt"
        authority.write_bytes(sandbox.authority)
    return Api("sandbox", sandbox.url, sandbox.admin_token, authority, kubeconfig, folder, position, since)
