"""A minimal client for the work of roll-workloads.

It annotates workloads that opted in with a hash of their config, and rolls those whose config changed. It has no
checks of rollouts, no Events, no retries, no report, no safety. Prints requests and bytes as JSON.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from benchmarks.bare.client import METADATA_ONLY, Client, Head, Metadata, Request

OPT_IN = "kubechores.dev/roll-on-config-change"
HASH, ROLL_ID = "example.com/config-baseline", "example.com/config"
MERGE = "application/merge-patch+json"


class _Name(Struct):
    name: str = ""


class _Volume(Struct, rename="camel"):
    config_map: _Name | None = None


class _ValueFrom(Struct, rename="camel"):
    secret_key_ref: _Name | None = None


class _Env(Struct, rename="camel"):
    value_from: _ValueFrom | None = None


class _Container(Struct):
    env: list[_Env] | None = None


class _Pod(Struct):
    containers: list[_Container]
    volumes: list[_Volume] | None = None


class _Template(Struct):
    spec: _Pod


class _Spec(Struct):
    template: _Template


class _Workload(Struct):
    metadata: Metadata
    spec: _Spec


class _Source(Struct):
    data: msgspec.Raw


def _sources(workload: _Workload) -> list[str]:
    """Return the paths of the ConfigMaps and Secrets that pods use, sorted."""
    pod = workload.spec.template.spec
    found = {f"configmaps/{each.config_map.name}" for each in pod.volumes or () if each.config_map}
    for env in (env.value_from for container in pod.containers for env in container.env or ()):
        if env and env.secret_key_ref:
            found.add(f"secrets/{env.secret_key_ref.name}")
    return [f"/api/v1/namespaces/{workload.metadata.namespace}/{each}" for each in sorted(found)]


def main(kubeconfig: str, most: int) -> None:
    """Run one sweep, with at most so many rolls."""
    client = Client.of(kubeconfig)
    opted_in = [
        f"/apis/apps/v1/namespaces/{one.metadata.namespace}/{plural}/{one.metadata.name}"
        for plural in ("deployments", "statefulsets", "daemonsets")
        for one in client.objects(f"/apis/apps/v1/{plural}", Head, METADATA_ONLY)
        if (one.metadata.annotations or {}).get(OPT_IN) == "true"
    ]
    workloads: dict[str, tuple[str, list[str]]] = {}
    decoder = msgspec.json.Decoder(_Workload)
    for (_, path, _), body in client.answers(("GET", path, b"") for path in opted_in):
        found = decoder.decode(body)
        workloads[path] = (found.metadata.annotations or {}).get(HASH, ""), _sources(found)
    digests = {
        path: hashlib.sha256(msgspec.json.decode(body, type=_Source).data).digest()
        for (_, path, _), body in client.answers(
            ("GET", path, b"") for path in sorted({each for _, used in workloads.values() for each in used})
        )
    }

    def patches() -> Iterator[Request]:
        rolls = 0
        for path, (before, used) in sorted(workloads.items()):
            mark = hashlib.sha256(b"".join(digests[each] for each in used)).hexdigest()
            if before == mark or (before and rolls == most):
                continue
            rolls += bool(before)
            patch: dict[str, object] = {"metadata": {"annotations": {HASH: mark}}}
            if before:
                patch["spec"] = {"template": {"metadata": {"annotations": {ROLL_ID: mark[:16]}}}}
            yield "PATCH", path, msgspec.json.encode(patch)

    client.print_traffic(len(client.send(patches(), content=MERGE)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
