"""Remove the files of a mirror or of its host from nodes, by its DaemonSet, which wrote them. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from jobs.core.mirror_audit.actual.objects import Object
from jobs.core.mirror_node.hosts import CERTS
from jobs.kit.values.model import Body
from jobs.kit.values.resources import DAEMON_SETS

_REMOVE = "--remove"
_HOST = "--host="


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
            **container,
            "image": self.image or container["image"],
            "args": args,
            "readinessProbe": {
                **container.get("readinessProbe", {}),
                "exec": {"command": ["chores", *args, "--check"]},
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
