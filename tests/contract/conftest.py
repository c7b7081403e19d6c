"""A namespace for each test, and requests in it whose answers can be compared."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.apis import Api
from tests.control_plane import minor_of, version

Object = dict[str, Any]
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
ONE_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
OTHER_NAME = "the name of the object (b) does not match the name on the URL (a)"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


# Texts of versions before 1.36, and how 1.36 and the embedded server word them.
OLDER = [
    (r'Invalid value: "null": ', "Invalid value: null: "),
    (r'Invalid value: "object": ', "Invalid value: "),
    (r"Invalid value: 0x0: ", "Invalid value: 0: "),
    (r'Invalid value: "": (kind|name|uid) must not be empty', 'Invalid value: "": must not be empty'),
    (r"Duplicate value: map\[string\]interface \{\}", "Duplicate value: "),
    (r"Too long: may not be longer than (\d+)", r"Too long: may not be more than \1 bytes"),
    (r"Too long: must have at most (\d+) bytes", r"Too long: may not be more than \1 bytes"),
    (r"must be no more than 63 characters", "must be no more than 63 bytes"),
    (r"a qualified name must consist of", "a valid label key must consist of"),
]
Problem = tuple[int, str, str]  # code, reason and message of a Status


def bad_request(message: str) -> Problem:
    return 400, "BadRequest", message


def forbidden(message: str) -> Problem:
    return 403, "Forbidden", message


def conflict(message: str) -> Problem:
    return 409, "Conflict", message


def unprocessable(message: str) -> Problem:
    return 422, "Invalid", message


@dataclass(frozen=True)
class Answer:
    """One answer, its body decoded when it is JSON."""

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Object:
        """The decoded body."""
        decoded: Object = json.loads(self.raw)
        return decoded

    @property
    def message(self) -> str:
        """The message of a Status."""
        return reworded(self.body["message"])

    @property
    def problem(self) -> Problem:
        """Code, reason and message of the answer, which must be a Status."""
        body = self.body
        assert body.items() >= {"kind": "Status", "apiVersion": "v1", "status": "Failure"}.items()
        assert (body["metadata"], body["code"]) == ({}, self.status)
        return self.status, body.get("reason", ""), self.message

    @property
    def causes(self) -> set[tuple[str, str, str]]:
        """Field, reason and message of each cause."""
        causes = self.body["details"]["causes"]
        return {(cause["field"], cause["reason"], reworded(cause["message"])) for cause in causes}

    @property
    def version(self) -> str:
        """The resourceVersion of an object."""
        return str(self.body["metadata"]["resourceVersion"])

    def owners(self) -> dict[str, str]:
        """The fieldsV1 of each manager, as in the bytes of the answer."""
        found = {}
        for entry in self.body["metadata"].get("managedFields", []):
            name = f"{entry['manager']} {entry['operation']}"
            name += f" {entry['subresource']}" if "subresource" in entry else ""
            text = json.dumps(entry["fieldsV1"], separators=(",", ":"), ensure_ascii=False)
            assert text.encode() in self.raw
            found[name] = text
        return found


@dataclass(frozen=True)
class Place:
    """A namespace on one of the servers."""

    api: Api
    namespace: str

    def path(self, plural: str, name: str = "", group: str = "") -> str:
        base = f"/apis/{group}" if group else "/api/v1"
        return f"{base}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def send(self, method: str, path: str, body: object = None, media: str = "", **options: Any) -> Answer:
        headers = {"Content-Type": media} if media else {}
        for name, option in {"Accept": "accept", "Accept-Encoding": "encoding"}.items():
            if option in options:
                headers[name] = options.pop(option)
        status, answered, raw = self.api.request(method, path, body, headers=headers, **options)
        return Answer(status, dict(answered), raw)

    def config_map(self, name: str = "a", **fields: Any) -> Answer:
        return self._create("configmaps", name, **fields)

    def secret(self, name: str = "a", **fields: Any) -> Answer:
        return self._create("secrets", name, **fields)

    def _create(self, plural: str, name: str, metadata: Object | None = None, **fields: Any) -> Answer:
        obj = {"metadata": {"name": name, **(metadata or {})}, **fields}
        return self.send("POST", f"{self.path(plural)}?fieldManager=kube-chores", obj)

    def apply(self, kind: str, manager: str, *, force: bool = False, **fields: Any) -> Answer:
        obj = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", **fields.pop("metadata", {})}, **fields}
        query = f"fieldManager={manager}" + ("&force=true" if force else "")
        return self.send("PATCH", f"{self.path(kind.lower() + 's', 'a')}?{query}", obj, APPLY)


@pytest.fixture
def place(api: Api) -> Place:
    """A new namespace."""
    return Place(api, api.namespace("contract"))


def until(found: Callable[[], bool], seconds: float = 15.0) -> bool:
    """Whether a condition becomes true: servers do some work in the background."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found():
            return True
        time.sleep(0.05)
    return False


def reworded(text: str) -> str:
    """The text as Kubernetes 1.36 words it."""
    if minor_of(version()) < 36:
        for older, newer in OLDER:
            text = re.sub(older, newer, text)
    return text


def without_ids(text: str) -> str:
    """The text with uids replaced."""
    return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", text)
