"""The base of all grounds of the walk: one custom resource, and requests to write it."""

import json
from dataclasses import dataclass
from typing import Any

from tests.apis import Api
from tests.walk.walk import Object


@dataclass
class Placed:
    """A custom resource of a walk, without its spec. In specs, `@` stands for the end of all names of the test."""

    api: Api
    obj: Object

    def put(self, spec: Object | None) -> str:
        """Write the object with this spec, or delete it if that is None; return the server's reason to refuse it."""
        there = self.api.get(self.obj)
        if spec is None:
            self.api.delete(self.obj) if there else None
            return ""
        made = self.obj | {"spec": json.loads(json.dumps(spec).replace("@", f"-{self.api.token}"))}
        if there:
            made["metadata"] = made["metadata"] | {"resourceVersion": there["metadata"]["resourceVersion"]}
        path = self.api.path(made, named=bool(there))
        status, _, body = self.api.request("PUT" if there else "POST", path, made)
        if status >= 300:
            return str(json.loads(body)["message"])
        if not there:
            self.api.made(made)
        return ""

    def ready(self) -> Object:
        """Return condition Ready of the object; its reason is empty if the object does not exist."""
        there = self.api.get(self.obj) or {"status": {"conditions": [{"type": "Ready", "status": "", "reason": ""}]}}
        found: Object = next(each for each in there["status"]["conditions"] if each["type"] == "Ready")
        return found

    def is_invalid(self, state: Any) -> bool:
        """Whether the run reported that the object is not valid."""
        return bool(state["reason"] == "Invalid")
