"""Pods of namespaces that opted in to FarmPods, and FarmPods that users edit or delete."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import time
from collections.abc import Mapping, Sequence

from soak.invariants import farm
from soak.invariants.farm.pods import JOB, OPT_IN, is_farmed
from soak.invariants.reads import is_managed
from soak.lab import Action, Lab
from soak.observed import Invariant
from tests.apis import ApiError, Object
from tests.farm import farm_pod
from tests.worlds import namespace_object

NAMESPACES = ("farm-1", "farm-2")
NAMES = ("web-0", "web-1", "web-2", "job-7", "job-8", "cache")
MOST_PODS = 10
DELETED_SECONDS = 5.0
IMAGE = "localhost/pause:1"
_ERRORS = (ApiError, OSError, http.client.HTTPException)
_FARMED = {"metadata": {"labels": {OPT_IN: "true"}}}
# What users change of a FarmPod. The last one removes it from the job.
EDITS: tuple[Object, ...] = (
    {"spec": {"containers": 17}},
    {"spec": {"pod": "another"}},
    {"metadata": {"ownerReferences": None}},
    {"metadata": {"labels": {"example.com/team": "a"}}},
    {"metadata": {"annotations": {"example.com/note": "b", "kubechores.dev/source": None}}},
    {"metadata": {"labels": {"kubechores.dev/job": None}}},
)


class Farm:
    """Up to ten pods in two namespaces, whose names are used again."""

    def __init__(self, lab: Lab, max_objects: int = 10_000) -> None:
        self._api, self._random = lab.api, lab.random("farm")
        self._max_objects = max_objects
        self._numbers = itertools.count(1)
        for name in NAMESPACES:
            self._api.put(namespace_object(name, labels={OPT_IN: "true"}))

    # the part

    def actions(self) -> Mapping[str, tuple[int, Action]]:
        """Return the actions by name, each with its weight."""
        return {
            "create-pod": (12, self._create_pod),
            "delete-pod": (2, self._delete_pod),
            "recreate-pod": (4, self._recreate_pod),
            "recreate-pod-orphan": (4, self._recreate_orphaning),
            "edit-farm-pod": (8, self._edit),
            "delete-farm-pod": (2, self._delete),
            "unmanaged-farm-pod": (2, self._create_unmanaged),
            "delete-unmanaged-farm-pods": (3, self._delete_unmanaged),
            "farm-label": (1, self._label_namespace),
        }

    def invariants(self) -> Sequence[Invariant]:
        """Return the invariants of FarmPods."""
        return farm.invariants(self._max_objects)

    def end(self) -> None:
        """End nothing: all is in the cluster."""

    def resolve(self) -> None:
        """Delete FarmPods that the job reports and does not change, and let all namespaces opt in."""
        for name in NAMESPACES:
            with contextlib.suppress(*_ERRORS):
                found = self._api.read(namespace_object(name))
                if not is_farmed(found):
                    self._api.patch(namespace_object(name), _FARMED)
        with contextlib.suppress(*_ERRORS):
            self._delete_unmanaged()
        with contextlib.suppress(*_ERRORS):
            self._delete_orphans()

    # pods

    def _pods(self) -> list[Object]:
        return [each for name in NAMESPACES for each in self._api.items("v1", "Pod", name)]

    def _farm_pods(self) -> list[Object]:
        return [each for name in NAMESPACES for each in self._api.items("kubechores.dev/v1", "FarmPod", name)]

    def _manifest(self, namespace: str, name: str) -> Object:
        containers = [
            {"name": f"c{number}", "image": IMAGE, "imagePullPolicy": "IfNotPresent"}
            for number in range(self._random.randint(1, 3))
        ]
        spec = {
            "containers": containers,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        }

    def _create(self, obj: Object) -> None:
        self._api.call("POST", self._api.path(obj, named=False), obj)

    def _create_pod(self) -> None:
        manifest = self._manifest(self._random.choice(NAMESPACES), self._random.choice(NAMES))
        if len(self._pods()) < MOST_PODS and not self._api.get(manifest):
            self._create(manifest)

    def _delete_pod(self) -> None:
        if pods := self._pods():
            self._api.delete(self._random.choice(pods))

    def _recreate_pod(self, query: str = "") -> None:
        """Delete a pod and create another one of its name, often before its FarmPod is deleted."""
        pods = self._pods()
        if not pods:
            return
        old = self._random.choice(pods)
        self._api.call("DELETE", self._api.path(old) + query)
        deadline = time.monotonic() + DELETED_SECONDS
        while self._api.get(old) and time.monotonic() < deadline:
            time.sleep(0.1)
        self._create(self._manifest(old["metadata"]["namespace"], old["metadata"]["name"]))

    def _recreate_orphaning(self) -> None:
        self._recreate_pod("?propagationPolicy=Orphan")

    # FarmPods

    def _any(self) -> Object | None:
        found = self._farm_pods()
        return self._random.choice(found) if found else None

    def _edit(self) -> None:
        edit = self._random.choice(EDITS)
        if found := self._any():
            self._api.patch(found, edit)

    def _delete(self) -> None:
        if found := self._any():
            self._api.delete(found)

    def _create_unmanaged(self) -> None:
        made = farm_pod(self._random.choice(NAMESPACES), self._random.choice(NAMES), next(self._numbers))
        if not self._api.get(made):
            self._create(made)

    def _delete_unmanaged(self) -> None:
        for each in self._farm_pods():
            if not is_managed(each, JOB):
                self._api.delete(each)

    def _delete_orphans(self) -> None:
        """Delete FarmPods without an owner whose pod does not exist, as a run reports them."""
        pods = {(each["metadata"]["namespace"], f"farm-{each['metadata']['name']}") for each in self._pods()}
        for each in self._farm_pods():
            metadata = each["metadata"]
            if not metadata.get("ownerReferences") and (metadata["namespace"], metadata["name"]) not in pods:
                self._api.delete(each)

    def _label_namespace(self) -> None:
        value = self._random.choice(["true", "true", None])
        place = namespace_object(self._random.choice(NAMESPACES))
        self._api.patch(place, {"metadata": {"labels": {OPT_IN: value}}})
