"""How the built-in kinds merge: their associative lists, sets and atomic maps.

Source: the x-kubernetes-list-type and x-kubernetes-map-type marks of the published OpenAPI documents.
"""

from __future__ import annotations

from typing import Any

from .fields import ANY, ATOMIC, STRUCT, Shape
from .go_types import TYPES


def struct(**fields: Shape) -> Shape:
    """A built-in type: what is not named here is a plain field, atomic if it is a list."""
    return Shape(fields=fields, struct=True)


def keyed(*keys: str, item: Shape = STRUCT, **defaults: object) -> Shape:
    """A list whose items are identified by keys."""
    return Shape(keys=keys, element=item, key_defaults=defaults)


MAP = Shape(element=ANY)
SET = Shape(unique=True, element=ANY)
METADATA = struct(labels=MAP, annotations=MAP, finalizers=SET, ownerReferences=keyed("uid", item=ATOMIC))
CONDITIONS = keyed("type")

_SOURCE = struct(configMapKeyRef=ATOMIC, secretKeyRef=ATOMIC, fieldRef=ATOMIC, resourceFieldRef=ATOMIC)
_CONTAINER = struct(
    env=keyed("name", item=struct(valueFrom=_SOURCE)),
    ports=keyed("containerPort", "protocol", protocol="TCP"),
    volumeMounts=keyed("mountPath"),
    volumeDevices=keyed("devicePath"),
    resources=struct(limits=MAP, requests=MAP, claims=keyed("name")),
)
_POD_SPEC = struct(
    containers=keyed("name", item=_CONTAINER),
    initContainers=keyed("name", item=_CONTAINER),
    ephemeralContainers=keyed("name", item=_CONTAINER),
    volumes=keyed("name"),
    imagePullSecrets=keyed("name", item=ATOMIC),
    hostAliases=keyed("ip"),
    topologySpreadConstraints=keyed("topologyKey", "whenUnsatisfiable"),
    nodeSelector=ATOMIC,
)
_TEMPLATE = struct(metadata=METADATA, spec=_POD_SPEC)
_JOB_SPEC = struct(template=_TEMPLATE, selector=ATOMIC)
_STATUS = struct(conditions=CONDITIONS)

_BY_KIND = {
    "ConfigMap": {"data": MAP, "binaryData": MAP},
    "Secret": {"data": MAP, "stringData": MAP},
    "Namespace": {"status": _STATUS},
    "Pod": {"spec": _POD_SPEC, "status": _STATUS},
    "Job": {"spec": _JOB_SPEC, "status": _STATUS},
    "CronJob": {"spec": struct(jobTemplate=struct(metadata=METADATA, spec=_JOB_SPEC))},
    "Service": {
        "spec": struct(ports=keyed("port", "protocol", protocol="TCP"), selector=ATOMIC),
        "status": _STATUS,
    },
    "PersistentVolumeClaim": {
        "spec": struct(resources=struct(limits=MAP, requests=MAP), selector=ATOMIC, dataSource=ATOMIC),
        "status": struct(conditions=CONDITIONS, capacity=MAP, allocatedResources=MAP),
    },
    "Deployment": {"spec": _JOB_SPEC, "status": _STATUS},
    "StatefulSet": {"spec": _JOB_SPEC, "status": _STATUS},
    "DaemonSet": {"spec": _JOB_SPEC, "status": _STATUS},
    "EndpointSlice": {},
    "Node": {
        "spec": STRUCT,
        "status": struct(conditions=CONDITIONS, addresses=keyed("type"), capacity=MAP, allocatable=MAP),
    },
    "ClusterRole": {"aggregationRule": STRUCT},
    "Event": {"involvedObject": ATOMIC, "related": ATOMIC},
    "CustomResourceDefinition": {"spec": STRUCT, "status": _STATUS},
}

BASE: dict[str, dict[str, Any]] = {
    "Namespace": {"spec": {}, "status": {}},
    "Pod": {"spec": {}, "status": {}},
    "Job": {"spec": {"template": {"metadata": {}, "spec": {}}}, "status": {}},
    "CronJob": {"spec": {"jobTemplate": {"metadata": {}, "spec": {"template": {"metadata": {}, "spec": {}}}}}},
    "Service": {"spec": {}, "status": {}},
    "PersistentVolumeClaim": {"spec": {}, "status": {}},
    "Deployment": {"spec": {"template": {"metadata": {}, "spec": {}}, "strategy": {}}, "status": {}},
    "StatefulSet": {"spec": {"template": {"metadata": {}, "spec": {}}}, "status": {}},
    "DaemonSet": {"spec": {"template": {"metadata": {}, "spec": {}}}, "status": {}},
    "Node": {"spec": {}, "status": {}},
    "CustomResourceDefinition": {"spec": {"names": {}}, "status": {}},
    "Event": {"involvedObject": {}, "source": {}},
    **{kind: go_type.zero for kind, go_type in TYPES.items()},
}


def shape_of(kind: str) -> Shape:
    """The shape of a built-in kind."""
    fields = TYPES[kind].shape.fields if kind in TYPES else _BY_KIND.get(kind, {})
    return Shape(fields={"metadata": METADATA, **fields}, struct=True)
