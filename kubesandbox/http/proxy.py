"""The path of a Service that leads to a pod behind it: /api/v1/namespaces/N/services/[SCHEME:]NAME[:PORT]/proxy/PATH.

No pods run here. The endpoints are those of EndpointSlices that tests write, such as a server on loopback.
"""

from __future__ import annotations

import http.client
from typing import Any

from ..api.cluster import Answer, Call, Cluster
from ..api.errors import ApiError
from ..schema.resources import ENDPOINT_SLICES, SERVICES

_SECONDS = 5.0


def proxied(cluster: Cluster, call: Call) -> Answer:
    """What the first ready endpoint answers to a GET of the path."""
    parts = call.name.split(":")
    name = parts[1] if len(parts) > 2 else parts[0]
    port_name = parts[-1] if len(parts) > 1 else ""
    address = _endpoint(cluster, call.namespace, name, port_name)
    if address is None:
        raise _unavailable(f'no endpoints available for service "{call.name}"')
    connection = http.client.HTTPConnection(*address, timeout=_SECONDS)
    try:
        connection.request("GET", f"/{call.rest}")
        answer = connection.getresponse()
        return Answer(answer.status, answer.read(), answer.getheader("Content-Type") or "text/plain")
    except OSError as error:
        raise _unavailable(f"error trying to reach service: {error}") from None
    finally:
        connection.close()


def _unavailable(message: str) -> ApiError:
    return ApiError(503, "ServiceUnavailable", message)


def _endpoint(cluster: Cluster, namespace: str, service: str, port_name: str) -> tuple[str, int] | None:
    if not cluster.store.get(SERVICES, namespace, service):
        return None
    for item in cluster.store.items(ENDPOINT_SLICES, namespace):
        labels: dict[str, Any] = item.obj["metadata"].get("labels") or {}
        ports = [port["port"] for port in item.obj.get("ports") or [] if port_name in ("", port.get("name"))]
        ready = [
            address
            for each in item.obj.get("endpoints") or []
            if (each.get("conditions") or {}).get("ready") is not False
            for address in each.get("addresses") or []
        ]
        if labels.get("kubernetes.io/service-name") == service and ports and ready:
            return ready[0], ports[0]
    return None
