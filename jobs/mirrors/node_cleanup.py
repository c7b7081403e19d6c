"""How nodes forget a mirror or its host: by its DaemonSet, which removes what it wrote. Pure."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from jobs.mirrors.actual import Object
from jobs.mirrors.containerd import CERTS
from jobs.mirrors.manifests import DAEMON_SETS

_REMOVE = "--remove"
_HOST = "--host="


class NodeCleanup(Struct, frozen=True, gc=False):
    """A DaemonSet that removes what it wrote: exactly that version of it, with other arguments.

    Its pods mount the folder of all hosts, since the folder of one cannot be removed while it is mounted.
    """

    actual: Any
    image: str

    def encode(self) -> bytes:
        """Return the object as JSON."""
        template = self.actual["spec"]["template"]
        (container,) = template["spec"]["containers"]
        args = [*whose(self.actual), _REMOVE]
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
            # Also on nodes that it was not meant for lately: what was written there is there still.
            "tolerations": [{"operator": "Exists"}],
        }
        spec = {**self.actual["spec"], "template": {**template, "spec": pod}}
        kind = {"apiVersion": DAEMON_SETS.api_version, "kind": DAEMON_SETS.kind}
        return msgspec.json.encode({**self.actual, **kind, "spec": spec})

    def changed_by_server(self, _answer: bytes) -> tuple[str, ...]:
        """Return nothing: whether nodes forgot is seen by the pods being ready."""
        return ()

    def redact(self, text: str) -> str:
        """Return the text as it is: no secret was sent."""
        return text


def is_node_cleanup(daemon_set: Object) -> bool:
    """Whether a DaemonSet removes what it wrote."""
    return _REMOVE in _args(daemon_set)


def whose(daemon_set: Object) -> list[str]:
    """Return the arguments that say which file on nodes is meant, or nothing where somebody changed them."""
    named = [arg for arg in _args(daemon_set) if arg.startswith(("--name=", _HOST))]
    return ["mirror-node", *sorted(named, reverse=True)] if len(named) == 2 else []


def host(daemon_set: Object) -> str:
    """Return the host whose file on nodes a DaemonSet writes, or nothing where somebody changed its arguments."""
    return next((arg.removeprefix(_HOST) for arg in whose(daemon_set) if arg.startswith(_HOST)), "")


def _args(daemon_set: Object) -> list[str]:
    containers = daemon_set["spec"]["template"]["spec"]["containers"]
    return list(containers[0].get("args") or []) if len(containers) == 1 else []
