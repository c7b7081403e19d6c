"""What the server does with each built-in kind: decoding, defaults, preparation and validation.

Source of rules and wording: k8s.io/kubernetes/pkg/apis/core/validation and pkg/registry.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any

from . import resources
from .causes import Cause, forbidden_field, invalid_value, required, too_long
from .resources import Resource
from .validation import config_key_problems

Obj = dict[str, Any]
DATA_LIMIT = 1024 * 1024
CLAIM_IS_IMMUTABLE = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)
IMMUTABLE = "field is immutable when `immutable` is set"

KNOWN_FIELDS: dict[str, tuple[str, ...]] = {
    "ConfigMap": ("data", "binaryData", "immutable"),
    "Secret": ("data", "stringData", "immutable", "type"),
    "Namespace": ("spec", "status"),
    "ServiceAccount": ("secrets", "imagePullSecrets", "automountServiceAccountToken"),
    "Role": ("rules",),
    "ClusterRole": ("rules", "aggregationRule"),
    "RoleBinding": ("subjects", "roleRef"),
    "ClusterRoleBinding": ("subjects", "roleRef"),
    "CustomResourceDefinition": ("spec", "status"),
    "CronJob": ("spec", "status"),
    "Job": ("spec", "status"),
    "Pod": ("spec", "status"),
    "NetworkPolicy": ("spec", "status"),
    "ValidatingAdmissionPolicy": ("spec", "status"),
    "ValidatingAdmissionPolicyBinding": ("spec",),
    "Service": ("spec", "status"),
    "PersistentVolumeClaim": ("spec", "status"),
    "Node": ("spec", "status"),
    "Deployment": ("spec", "status"),
    "StatefulSet": ("spec", "status"),
    "DaemonSet": ("spec", "status"),
    "EndpointSlice": ("addressType", "endpoints", "ports"),
    "StorageClass": (
        "provisioner",
        "parameters",
        "reclaimPolicy",
        "mountOptions",
        "allowVolumeExpansion",
        "volumeBindingMode",
        "allowedTopologies",
    ),
}
_ALWAYS = ("apiVersion", "kind", "metadata")
_GO_TYPES = {str: "string", bool: "bool", int: "number", float: "number", dict: "object", list: "array"}


class UndecodableError(ValueError):
    """A value of another type than the field of a built-in kind has."""


def unknown_fields(resource: Resource, obj: Obj) -> list[str]:
    """Top-level fields that a built-in kind does not have."""
    known = KNOWN_FIELDS.get(resource.kind)
    return [] if known is None else [key for key in obj if key not in known and key not in _ALWAYS]


def _string_map(resource: Resource, obj: Obj, path: str, owner: str) -> None:
    *parents, last = path.split(".")
    node: Any = obj
    for parent in parents:
        node = node.get(parent) or {}
    values = node.get(last)
    if values is None:
        node.pop(last, None)
        return
    for value in values.values() if isinstance(values, dict) else [values]:
        if (value is not None and not isinstance(value, str)) or not isinstance(values, dict):
            kind = _GO_TYPES.get(type(value), "value")
            target = "string" if isinstance(values, dict) else "map[string]string"
            raise UndecodableError(f"json: cannot unmarshal {kind} into Go struct field {owner} of type {target}")
    node[last] = {key: "" if value is None else value for key, value in values.items()}


def decode(resource: Resource, obj: Obj) -> Obj:
    """Types checked, unknown fields dropped, defaults set: what happens before an object is validated."""
    meta = dict(obj.get("metadata") or {})
    obj = {"kind": resource.kind, "apiVersion": resource.api_version, **obj, "metadata": meta}
    for name in ("labels", "annotations"):
        _string_map(
            resource,
            obj,
            f"metadata.{name}",
            f"ObjectMeta.{name}" if resource.schema else f"ObjectMeta.metadata.{name}",
        )
        if meta.get(name) == {}:
            del meta[name]
    meta.pop("selfLink", None)
    if resource.schema:
        return obj
    for name in unknown_fields(resource, obj):
        del obj[name]
    obj = {key: value for key, value in obj.items() if value is not None}
    special = _DECODERS.get(resource.kind)
    return special(resource, obj) if special else obj


def _decode_config_map(resource: Resource, obj: Obj) -> Obj:
    _string_map(resource, obj, "data", "ConfigMap.data")
    _decode_bytes(resource, obj, "binaryData")
    return _without_empty(obj, "data", "binaryData")


def _decode_secret(resource: Resource, obj: Obj) -> Obj:
    _string_map(resource, obj, "stringData", "Secret.stringData")
    _decode_bytes(resource, obj, "data")
    plain = obj.pop("stringData", None) or {}
    if plain:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}
    obj["type"] = obj.get("type") or "Opaque"
    return _without_empty(obj, "data")


def _decode_bytes(resource: Resource, obj: Obj, name: str) -> None:
    values = obj.get(name)
    if not values:
        return
    if not isinstance(values, dict):
        kind = _GO_TYPES.get(type(values), "value")
        raise UndecodableError(
            f"json: cannot unmarshal {kind} into Go struct field {resource.kind}.{name} of type map[string][]uint8",
        )
    obj[name] = {key: _canonical_base64(resource, name, value) for key, value in values.items()}


def _canonical_base64(resource: Resource, name: str, value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        kind = _GO_TYPES.get(type(value), "value")
        raise UndecodableError(
            f"json: cannot unmarshal {kind} into Go struct field {resource.kind}.{name} of type []uint8"
        )
    text = value.replace("\r", "").replace("\n", "")
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UndecodableError(f"illegal base64 data at input byte {_bad_byte(text)}") from None
    return text


def _bad_byte(text: str) -> int:
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    for position, char in enumerate(text):
        if char not in alphabet:
            return position
    return len(text) - len(text) % 4 if len(text) % 4 else len(text)


def _without_empty(obj: Obj, *names: str) -> Obj:
    return {key: value for key, value in obj.items() if key not in names or value}


def _decode_namespace(_: Resource, obj: Obj) -> Obj:
    name = obj["metadata"].get("name")
    if name:
        labels = dict(obj["metadata"].get("labels") or {})
        labels["kubernetes.io/metadata.name"] = name
        obj["metadata"]["labels"] = labels
    obj.setdefault("spec", {})
    obj.setdefault("status", {})
    return obj


def _decode_binding(_: Resource, obj: Obj) -> Obj:
    role = {"apiGroup": resources.RBAC, **(obj.get("roleRef") or {})}
    subjects = []
    for subject in obj.get("subjects") or []:
        group = "" if subject.get("kind") == "ServiceAccount" else resources.RBAC
        subjects.append({**({"apiGroup": group} if group else {}), **subject})
    return {**obj, "roleRef": role, **({"subjects": subjects} if subjects else {})}


def _decode_crd(_: Resource, obj: Obj) -> Obj:
    spec = dict(obj.get("spec") or {})
    names = dict(spec.get("names") or {})
    kind = names.get("kind") or ""
    names.setdefault("singular", kind.lower())
    names.setdefault("listKind", kind + "List")
    spec["names"] = names
    spec.setdefault("conversion", {"strategy": "None"})
    return {**obj, "spec": spec}


def _decode_cron_job(_: Resource, obj: Obj) -> Obj:
    defaults = {
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    }
    return {**obj, "spec": {**defaults, **(obj.get("spec") or {})}, "status": obj.get("status") or {}}


def _decode_service(_: Resource, obj: Obj) -> Obj:
    spec = {
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
        **(obj.get("spec") or {}),
    }
    ports = [{"protocol": "TCP", "targetPort": port.get("port"), **port} for port in spec.get("ports") or []]
    return {**obj, "spec": {**spec, **({"ports": ports} if ports else {})}, "status": obj.get("status") or {}}


def _decode_claim(_: Resource, obj: Obj) -> Obj:
    return {**obj, "spec": {"volumeMode": "Filesystem", **(obj.get("spec") or {})}, "status": obj.get("status") or {}}


def _decode_stateful_set(_: Resource, obj: Obj) -> Obj:
    defaults = {
        "replicas": 1,
        "podManagementPolicy": "OrderedReady",
        "revisionHistoryLimit": 10,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
    }
    return _decode_workload(obj, defaults)


def _decode_deployment(_resource: Resource, obj: Obj) -> Obj:
    rolling = {"maxSurge": "25%", "maxUnavailable": "25%"}
    strategy = (obj.get("spec") or {}).get("strategy") or {}
    kind = strategy.get("type") or "RollingUpdate"
    defaults = {"type": kind, **({"rollingUpdate": rolling} if kind == "RollingUpdate" else {})}
    spec = {
        "progressDeadlineSeconds": 600,
        "replicas": 1,
        "revisionHistoryLimit": 10,
        **(obj.get("spec") or {}),
        "strategy": {**defaults, **strategy},
    }
    return {**obj, "spec": spec}


def _decode_daemon_set(_: Resource, obj: Obj) -> Obj:
    update = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    return _decode_workload(obj, {"revisionHistoryLimit": 10, "updateStrategy": update})


def _decode_workload(obj: Obj, defaults: Obj) -> Obj:
    spec = {**defaults, **(obj.get("spec") or {})}
    template = spec.get("template") or {}
    pod = {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        **(template.get("spec") or {}),
    }
    return {**obj, "spec": {**spec, "template": {**template, "spec": pod}}, "status": obj.get("status") or {}}


_DECODERS: dict[str, Callable[[Resource, Obj], Obj]] = {
    "ConfigMap": _decode_config_map,
    "Secret": _decode_secret,
    "Namespace": _decode_namespace,
    "RoleBinding": _decode_binding,
    "ClusterRoleBinding": _decode_binding,
    "CustomResourceDefinition": _decode_crd,
    "CronJob": _decode_cron_job,
    "Service": _decode_service,
    "PersistentVolumeClaim": _decode_claim,
    "Deployment": _decode_deployment,
    "StatefulSet": _decode_stateful_set,
    "DaemonSet": _decode_daemon_set,
}


def validate(resource: Resource, obj: Obj) -> list[Cause]:
    """Field errors of a built-in object, except those of its metadata."""
    special = _VALIDATORS.get(resource.kind)
    return special(obj) if special else []


def _config_map_causes(obj: Obj) -> list[Cause]:
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    causes = []
    size = 0
    for key, value in sorted(data.items()):
        causes += [invalid_value(f"data[{key}]", key, problem) for problem in config_key_problems(key)]
        if key in binary:
            causes.append(invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData"))
        size += len(value.encode())
    for key, value in sorted(binary.items()):
        causes += [invalid_value(f"binaryData[{key}]", key, problem) for problem in config_key_problems(key)]
        size += decoded_length(value)
    return [*causes, too_long("[]", DATA_LIMIT)] if size > DATA_LIMIT else causes


def decoded_length(text: str) -> int:
    """The bytes that a base64 text stands for."""
    return len(text) // 4 * 3 - text[-2:].count("=")


def _secret_causes(obj: Obj) -> list[Cause]:
    data = obj.get("data") or {}
    causes = []
    for key in sorted(data):
        causes += [invalid_value(f"data[{key}]", key, problem) for problem in config_key_problems(key)]
    if sum(decoded_length(value) for value in data.values()) > DATA_LIMIT:
        causes.append(too_long("data", DATA_LIMIT))
    return causes + _typed_secret_causes(obj, data)


_REQUIRED_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


def _typed_secret_causes(obj: Obj, data: dict[str, str]) -> list[Cause]:
    kind = obj.get("type", "")
    causes = [required(f"data[{key}]") for key in _REQUIRED_KEYS.get(kind, ()) if key not in data]
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        causes += [required("data[username]"), required("data[password]")]
    if kind == "kubernetes.io/service-account-token":
        annotation = "kubernetes.io/service-account.name"
        if not (obj["metadata"].get("annotations") or {}).get(annotation):
            causes.append(required(f"metadata.annotations[{annotation}]"))
    for key in (".dockerconfigjson", ".dockercfg"):
        if key in _REQUIRED_KEYS.get(kind, ()) and key in data:
            causes += _json_causes(key, data[key])
    return causes


def _json_causes(key: str, value: str) -> list[Cause]:
    try:
        json.loads(base64.b64decode(value))
    except ValueError:
        text = base64.b64decode(value).decode(errors="replace").lstrip()
        first = text[:1]
        why = (
            "unexpected end of JSON input"
            if not first
            else (f"invalid character '{first}' looking for beginning of value")
        )
        return [invalid_value(f"data[{key}]", "<secret contents redacted>", why)]
    return []


def _binding_causes(obj: Obj) -> list[Cause]:
    role = obj.get("roleRef") or {}
    causes = []
    if role.get("kind") not in ("Role", "ClusterRole"):
        causes.append(
            Cause(
                "FieldValueNotSupported",
                f'Unsupported value: "{role.get("kind", "")}": supported values: "Role", "ClusterRole"',
                "roleRef.kind",
            )
        )
    if not role.get("name"):
        causes.append(required("roleRef.name"))
    for number, subject in enumerate(obj.get("subjects") or []):
        if not subject.get("name"):
            causes.append(required(f"subjects[{number}].name"))
    return causes


def _crd_causes(obj: Obj) -> list[Cause]:
    spec, name = obj["spec"], obj["metadata"].get("name", "")
    causes = []
    expected = f"{spec['names'].get('plural', '')}.{spec.get('group', '')}"
    if name != expected:
        causes.append(invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    for field in ("group", "scope"):
        if not spec.get(field):
            causes.append(required(f"spec.{field}"))
    for number, version in enumerate(spec.get("versions") or []):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            causes.append(required(f"spec.versions[{number}].schema.openAPIV3Schema"))
    if not spec["names"].get("plural"):
        causes.append(required("spec.names.plural"))
    if not spec["names"].get("kind"):
        causes.append(required("spec.names.kind"))
    return causes


def _cron_job_causes(obj: Obj) -> list[Cause]:
    spec = obj["spec"]
    causes = []
    if not spec.get("schedule"):
        causes.append(required("spec.schedule"))
    containers = _containers(spec.get("jobTemplate") or {})
    if not containers:
        causes.append(required("spec.jobTemplate.spec.template.spec.containers"))
    return causes


def _job_causes(obj: Obj) -> list[Cause]:
    return [] if _containers(obj) else [required("spec.template.spec.containers")]


def _containers(job: Obj) -> list[Obj]:
    template = (job.get("spec") or {}).get("template") or {}
    containers: list[Obj] = (template.get("spec") or {}).get("containers") or []
    return containers


def _event_causes(obj: Obj) -> list[Cause]:
    where = (obj.get("involvedObject") or {}).get("namespace", "")
    if (where or "default") != obj["metadata"].get("namespace"):
        return [invalid_value("involvedObject.namespace", where, "does not match event.namespace")]
    return []


_VALIDATORS: dict[str, Callable[[Obj], list[Cause]]] = {
    "ConfigMap": _config_map_causes,
    "Secret": _secret_causes,
    "RoleBinding": _binding_causes,
    "ClusterRoleBinding": _binding_causes,
    "CustomResourceDefinition": _crd_causes,
    "CronJob": _cron_job_causes,
    "Job": _job_causes,
    "Event": _event_causes,
    "Deployment": _job_causes,
    "StatefulSet": _job_causes,
    "DaemonSet": _job_causes,
}


def validate_change(resource: Resource, new: Obj, old: Obj) -> list[Cause]:
    """Field errors of an update: what may not change."""
    causes = []
    if resource.kind == "Secret" and new.get("type") != old.get("type"):
        causes.append(invalid_value("type", new.get("type", ""), "field is immutable"))
    if resource.kind in ("Secret", "ConfigMap") and old.get("immutable"):
        if not new.get("immutable"):
            causes.append(forbidden_field("immutable", IMMUTABLE))
        causes += [
            forbidden_field(field, IMMUTABLE)
            for field in ("data", "binaryData")
            if (new.get(field) or {}) != (old.get(field) or {})
        ]
    if resource.kind in ("RoleBinding", "ClusterRoleBinding") and new.get("roleRef") != old.get("roleRef"):
        role = new.get("roleRef") or {}
        shown = {"APIGroup": role.get("apiGroup", ""), "Kind": role.get("kind", ""), "Name": role.get("name", "")}
        causes.append(invalid_value("roleRef", shown, "cannot change roleRef"))
    special = _CHANGE_VALIDATORS.get(resource.kind)
    return causes + (special(new["spec"], old["spec"]) if special else [])


def _crd_change_causes(new: Obj, old: Obj) -> list[Cause]:
    causes = []
    for field in ("group", "scope"):
        if new.get(field) != old.get(field):
            causes.append(invalid_value(f"spec.{field}", new.get(field), "field is immutable"))
    for field in ("plural", "kind"):
        if new["names"].get(field) != old["names"].get(field):
            causes.append(invalid_value(f"spec.names.{field}", new["names"].get(field), "field is immutable"))
    return causes


def _stateful_set_change_causes(new: Obj, old: Obj) -> list[Cause]:
    mutable = (
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    )
    if {**new, **dict.fromkeys(mutable)} == {**old, **dict.fromkeys(mutable)}:
        return []
    names = ", ".join(f"'{name}'" for name in mutable[:-1])
    why = f"updates to statefulset spec for fields other than {names} and '{mutable[-1]}' are forbidden"
    return [forbidden_field("spec", why)]


def _selector_change_causes(new: Obj, old: Obj) -> list[Cause]:
    if new.get("selector") == old.get("selector"):
        return []
    return [invalid_value("spec.selector", new.get("selector"), "field is immutable")]


def _service_change_causes(new: Obj, old: Obj) -> list[Cause]:
    if not old.get("clusterIP") or new.get("clusterIP") == old["clusterIP"]:
        return []
    return [invalid_value("spec.clusterIPs[0]", new.get("clusterIPs"), "may not change once set")]


def _claim_change_causes(new: Obj, old: Obj) -> list[Cause]:
    if {**new, "resources": None} != {**old, "resources": None}:
        return [forbidden_field("spec", CLAIM_IS_IMMUTABLE)]
    return []


_CHANGE_VALIDATORS: dict[str, Callable[[Obj, Obj], list[Cause]]] = {
    "CustomResourceDefinition": _crd_change_causes,
    "StatefulSet": _stateful_set_change_causes,
    "Deployment": _selector_change_causes,
    "DaemonSet": _selector_change_causes,
    "Service": _service_change_causes,
    "PersistentVolumeClaim": _claim_change_causes,
}


def prepare_create(resource: Resource, obj: Obj, now: str) -> Obj:
    """What the server fills in or throws away when an object is made."""
    if resource.kind == "Namespace":
        finalizers = list(obj["spec"].get("finalizers") or [])
        if "kubernetes" not in finalizers:
            finalizers.append("kubernetes")
        return {**obj, "spec": {**obj["spec"], "finalizers": finalizers}, "status": {"phase": "Active"}}
    if resource.kind == "CustomResourceDefinition":
        return {**obj, "status": _crd_status(obj, now)}
    if resource.kind in _FIRST_STATUS:
        obj = {**obj, "status": _FIRST_STATUS[resource.kind]}
        return {**obj, "spec": _addressed(obj)} if resource.kind == "Service" else obj
    if resource.kind == "Event":
        return {"eventTime": None, "reportingComponent": "", "reportingInstance": "", **obj}
    return obj


_FIRST_STATUS: dict[str, Obj] = {
    "Pod": {"phase": "Pending"},
    "Job": {},
    "CronJob": {},
    "Service": {"loadBalancer": {}},
    "PersistentVolumeClaim": {"phase": "Pending"},
    "Deployment": {},
    "StatefulSet": {"replicas": 0, "availableReplicas": 0},
    "DaemonSet": {"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0},
}


def _addressed(service: Obj) -> Obj:
    """A Service's spec with an address of its own: by its uid, since nobody here keeps account of them."""
    spec: Obj = service["spec"]
    if spec["type"] == "ExternalName" or spec.get("clusterIP"):
        return {**spec, **({"clusterIPs": [spec["clusterIP"]]} if spec.get("clusterIP") else {})}
    number = int(service["metadata"]["uid"][:6], 16)
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return {**spec, "clusterIP": address, "clusterIPs": [address]}


def _crd_status(obj: Obj, now: str) -> Obj:
    def condition(kind: str, reason: str, message: str) -> Obj:
        return {
            "lastTransitionTime": now,
            "message": message,
            "reason": reason,
            "status": "True",
            "type": kind,
        }

    return {
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": obj["spec"]["names"],
        "storedVersions": [version["name"] for version in obj["spec"].get("versions") or [] if version.get("storage")],
    }


def before_established(crd: Obj) -> Obj:
    """A CRD as it is created: the server then fills in its status as a writer of its own."""
    status = {"acceptedNames": {}, "conditions": [], "storedVersions": crd["status"]["storedVersions"]}
    return {**crd, "status": status}


def prepare_update(resource: Resource, new: Obj, old: Obj, subresource: str) -> Obj:
    """What of an update counts: the status only through its subresource, and there nothing else."""
    if resource.kind == "Namespace":
        return _prepare_namespace(new, old, subresource)
    if "status" not in resource.subresources:
        return new
    if subresource == "status":
        kept = {key: value for key, value in old.items() if key != "status"}
        if "status" in new:
            kept["status"] = new["status"]
        meta = {**old["metadata"], "managedFields": new["metadata"].get("managedFields")}
        return {**kept, "metadata": meta}
    out = {key: value for key, value in new.items() if key != "status"}
    if "status" in old:
        out["status"] = old["status"]
    if resource.kind == "CustomResourceDefinition":
        out["status"] = {**old["status"], "acceptedNames": new["spec"]["names"]}
    return out


def _prepare_namespace(new: Obj, old: Obj, subresource: str) -> Obj:
    if subresource == "status":
        return {
            **old,
            "metadata": {**old["metadata"], "managedFields": new["metadata"].get("managedFields")},
            "status": new.get("status") or {},
        }
    if subresource == "finalize":
        return {**old, "spec": new.get("spec") or {}}
    return {**new, "spec": old.get("spec") or {}, "status": old.get("status") or {}}


def spec_of(resource: Resource, obj: Obj) -> Obj:
    """What generation counts changes of."""
    if resource.schema:
        skip = ("metadata", "status") if "status" in resource.subresources else ("metadata",)
        return {key: value for key, value in obj.items() if key not in skip}
    if resource.kind == "Deployment":
        return {"spec": obj.get("spec"), "annotations": obj["metadata"].get("annotations")}
    return {"spec": obj.get("spec")}
