"""The writes of a repair: server-side applies of desired resources, deletions, and the cleanup of nodes. Pure.

The files of a mirror, or of its host, are removed from nodes by its DaemonSet, which wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from jobs.core.mirror_audit.actual.objects import Object
from jobs.core.mirror_audit.checks.drift import resource_drift
from jobs.core.mirror_audit.checks.resources import named
from jobs.core.mirror_audit.desired.mirror import Manifest
from jobs.core.mirror_node.hosts import CERTS
from jobs.kit.values.bodies import Deletion
from jobs.kit.values.decoding import decode_plain
from jobs.kit.values.model import Action, Body, Fix
from jobs.kit.values.resources import CLAIMS, DAEMON_SETS, SERVICES, STATEFUL_SETS

# The fields that kube-chores sets and that the API does not allow to change.
# https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#updating-statefulsets
_IMMUTABLE: Mapping[str, tuple[str, ...]] = {
    SERVICES.kind: ("spec.clusterIP",),
    CLAIMS.kind: ("spec.accessModes", "spec.storageClassName"),
    STATEFUL_SETS.kind: ("spec.selector", "spec.serviceName", "spec.podManagementPolicy"),
    DAEMON_SETS.kind: ("spec.selector",),
}
_REMOVE = "--remove"
_HOST = "--host="


class ApplyRequest(Body, frozen=True, gc=False):
    """The body of a server-side apply. With `uid` it changes exactly that object, and never creates one."""

    manifest: Manifest
    uid: str = ""

    def encode(self) -> bytes:
        """Return the object as JSON."""
        document = self.manifest.document()
        if self.uid:
            document["metadata"]["uid"] = self.uid
        return msgspec.json.encode(document)

    def changed_by_server(self, answer: bytes) -> tuple[str, ...]:
        """Return the fields that differ in the server's response: admission changed them."""
        return tuple(drifted_fields(self.manifest, decode_plain(answer)))


def apply(desired: Manifest, actual: Object, result: str) -> Fix:
    """Return the apply of a desired resource to exactly this object."""
    return Fix(Action.APPLY, ApplyRequest(desired, actual["metadata"]["uid"]), result)


def delete(actual: Object) -> Fix:
    """Return the deletion of exactly this version of an object."""
    meta = actual["metadata"]
    return Fix(Action.DELETE, Deletion(meta["uid"], meta["resourceVersion"]))


def drifted_fields(desired: Manifest, actual: Object) -> list[str]:
    """Return the fields of a resource that drifted."""
    return [each.change.field for each in resource_drift(desired, actual)]


def immutable_fields(desired: Manifest, actual: Object) -> list[str]:
    """Return the drifted fields that the API does not allow to change."""
    return [field for field in drifted_fields(desired, actual) if field.startswith(_IMMUTABLE[desired.resource.kind])]


def correction(desired: Manifest, actual: Object) -> str:
    """Return the result of an apply: the fields that it corrects, and who changed them."""
    found = resource_drift(desired, actual)
    by = ", ".join(sorted({each.by for each in found if each.by}))
    fields = named([each.change.field for each in found])
    return f"{fields} corrected" + (f"; was changed by {by}" if by else "")


class NodeCleanup(Body, frozen=True, gc=False):
    """A DaemonSet that removes the files it wrote: exactly the observed version, with other arguments.

    Its pods mount the folder of all hosts: the folder of one host cannot be removed while it is mounted. Pods
    that become ready show that nodes removed the files, so the answer to the write is not checked.
    """

    actual: Any
    image: str

    def encode(self) -> bytes:
        """Return the object as JSON."""
        template = self.actual["spec"]["template"]
        (container,) = template["spec"]["containers"]
        args = [*file_args(self.actual), _REMOVE]
        changed = {
            **{field: value for field, value in container.items() if not field.endswith("Probe")},
            "image": self.image or container["image"],
            "args": args,
            "readinessProbe": {
                "exec": {"command": ["chores", *args, "--check"]},
                "periodSeconds": 10,
                "timeoutSeconds": 10,
            },
            "volumeMounts": [{"name": "certs", "mountPath": CERTS}],
        }
        pod = {
            **template["spec"],
            "containers": [changed],
            "volumes": [{"name": "certs", "hostPath": {"path": CERTS, "type": "DirectoryOrCreate"}}],
            # Also on nodes that it no longer tolerates: files that it wrote there still exist.
            "tolerations": [{"operator": "Exists"}],
        }
        spec = {**self.actual["spec"], "template": {**template, "spec": pod}}
        kind = {"apiVersion": DAEMON_SETS.api_version, "kind": DAEMON_SETS.kind}
        return msgspec.json.encode({**self.actual, **kind, "spec": spec})


def is_node_cleanup(daemon_set: Object) -> bool:
    """Return whether a DaemonSet is a NodeCleanup, which removes the files it wrote."""
    return _REMOVE in _args(daemon_set)


def file_args(daemon_set: Object) -> list[str]:
    """Return the arguments that name the files on nodes, or nothing if somebody changed them."""
    named = [arg for arg in _args(daemon_set) if arg.startswith(("--name=", _HOST))]
    return ["mirror-node", *sorted(named, reverse=True)] if len(named) == 2 else []


def host(daemon_set: Object) -> str:
    """Return the host whose files on nodes a DaemonSet writes, or nothing if somebody changed its arguments."""
    return next((arg.removeprefix(_HOST) for arg in file_args(daemon_set) if arg.startswith(_HOST)), "")


def _args(daemon_set: Object) -> list[str]:
    containers = daemon_set["spec"]["template"]["spec"]["containers"]
    return list(containers[0].get("args") or []) if len(containers) == 1 else []
