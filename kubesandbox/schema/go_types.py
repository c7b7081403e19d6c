"""The Go types of some built-in kinds: the fields of an object, what a request may set them to, and how they merge.

Source: the types of k8s.io/api and the published OpenAPI documents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .fields import ANY, ATOMIC, STRUCT, Shape
from .quantities import QuantityError, canonical

Obj = dict[str, Any]
_JSON = {str: "string", bool: "bool", int: "number", float: "number", dict: "object", list: "array"}


class UndecodableError(ValueError):
    """A value of another type than the field of a built-in kind has."""


def wrong_type(value: object, where: str, expected: str) -> UndecodableError:
    """The error of Go's decoder; `where` is the struct and the path of the field."""
    found = _JSON.get(type(value), "value")
    return UndecodableError(f"json: cannot unmarshal {found} into Go struct field {where} of type {expected}")


@dataclass(frozen=True)
class GoType:
    """A type as Go's decoder sees it.

    `fields` are those of a struct, `element` is the type in a list or map, `keys` identify the items of a list. A field
    is left out if it is empty, unless it is `always` served; a `pointer` is served if it is given.
    """

    name: str
    json: tuple[type, ...]
    fields: Mapping[str, GoType] | None = None
    element: GoType | None = None
    keys: tuple[str, ...] = ()
    atomic: bool = False
    always: bool = False
    pointer: bool = False

    @property
    def zero(self) -> Any:
        """The value of a field that is not given."""
        if self.fields is not None:
            return {name: field.zero for name, field in self.fields.items() if field.always}
        return {str: "", bool: False, int: 0}.get(self.json[0]) if self is not QUANTITY else "0"

    @property
    def shape(self) -> Shape:
        """How values of the type merge."""
        if self.keys:
            return Shape(keys=self.keys, element=self.element.shape if self.element else STRUCT)
        if self.atomic or self.json == (list,):
            return ATOMIC
        if self.fields is not None:
            return Shape(fields={name: field.shape for name, field in self.fields.items()}, struct=True)
        return Shape(element=ANY) if self.element else ANY


def struct(name: str, fields: Mapping[str, GoType], atomic: bool = False) -> GoType:
    """A struct, which is served also if it is empty."""
    return GoType(name, (dict,), fields, atomic=atomic, always=True)


def text(name: str = "string") -> GoType:
    """A string or a type of strings."""
    return GoType(name, (str,))


def always(kind: GoType) -> GoType:
    """A field that is served also if it is empty."""
    return replace(kind, always=True)


def pointer(kind: GoType) -> GoType:
    """A field that is served if it is given, also if it is empty."""
    return replace(kind, pointer=True, always=False)


def items(element: GoType, *keys: str) -> GoType:
    """A list, atomic unless its items have keys."""
    return GoType(f"[]{element.name}", (list,), element=element, keys=keys)


def mapping(element: GoType, name: str = "") -> GoType:
    """A map of strings to a type."""
    return GoType(name or f"map[string]{element.name}", (dict,), element=element)


STRING, BOOL, INT = text(), GoType("bool", (bool,)), GoType("int32", (int,))
INT_OR_STRING = GoType("intstr.IntOrString", (int, str))
QUANTITY = GoType("resource.Quantity", (str, int, float))
RESOURCES = mapping(QUANTITY, "v1.ResourceList")

_SELECTOR = struct(
    "v1.LabelSelector",
    {
        "matchLabels": mapping(STRING),
        "matchExpressions": items(
            struct(
                "v1.LabelSelectorRequirement",
                {
                    "key": always(STRING),
                    "operator": always(text("v1.LabelSelectorOperator")),
                    "values": items(STRING),
                },
            )
        ),
    },
    atomic=True,
)
_PORT = {"protocol": pointer(text("v1.Protocol")), "port": pointer(INT_OR_STRING), "endPort": pointer(INT)}
_PORTS = items(struct("v1.NetworkPolicyPort", _PORT))
_PEER = {
    "podSelector": pointer(_SELECTOR),
    "namespaceSelector": pointer(_SELECTOR),
    "ipBlock": pointer(struct("v1.IPBlock", {"cidr": always(STRING), "except": items(STRING)})),
}
_PEERS = items(struct("v1.NetworkPolicyPeer", _PEER))
_POLICY = {
    "podSelector": _SELECTOR,
    "ingress": items(struct("v1.NetworkPolicyIngressRule", {"ports": _PORTS, "from": _PEERS})),
    "egress": items(struct("v1.NetworkPolicyEgressRule", {"ports": _PORTS, "to": _PEERS})),
    "policyTypes": items(text("v1.PolicyType")),
}
_LIMIT = {
    "type": always(text("v1.LimitType")),
    "max": RESOURCES,
    "min": RESOURCES,
    "default": RESOURCES,
    "defaultRequest": RESOURCES,
    "maxLimitRequestRatio": RESOURCES,
}
_SCOPE = {
    "scopeName": always(text("v1.ResourceQuotaScope")),
    "operator": always(text("v1.ScopeSelectorOperator")),
    "values": items(STRING),
}
_SCOPES = {"matchExpressions": items(struct("v1.ScopedResourceSelectorRequirement", _SCOPE))}
_QUOTA = {
    "hard": RESOURCES,
    "scopes": items(text("v1.ResourceQuotaScope")),
    "scopeSelector": pointer(struct("v1.ScopeSelector", _SCOPES, atomic=True)),
}
_SECRET = dict.fromkeys(("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"), STRING)
_SUBJECT = {"kind": always(STRING), "apiGroup": STRING, "name": always(STRING), "namespace": STRING}
_ROLE = {"apiGroup": always(STRING), "kind": always(STRING), "name": always(STRING)}
_BINDING = {
    "subjects": items(struct("v1.Subject", _SUBJECT, atomic=True)),
    "roleRef": struct("v1.RoleRef", _ROLE, atomic=True),
}
_ACCOUNT = {
    "secrets": items(struct("v1.ObjectReference", _SECRET, atomic=True), "name"),
    "imagePullSecrets": items(struct("v1.LocalObjectReference", {"name": STRING}, atomic=True)),
    "automountServiceAccountToken": pointer(BOOL),
}
# The types of kinds, without kind, apiVersion and metadata. Objects of other kinds are decoded with few checks.
TYPES: dict[str, GoType] = {
    "ClusterRoleBinding": struct("v1.ClusterRoleBinding", _BINDING),
    "LimitRange": struct(
        "v1.LimitRange",
        {"spec": struct("v1.LimitRangeSpec", {"limits": always(items(struct("v1.LimitRangeItem", _LIMIT)))})},
    ),
    "NetworkPolicy": struct("v1.NetworkPolicy", {"spec": struct("v1.NetworkPolicySpec", _POLICY)}),
    "ResourceQuota": struct(
        "v1.ResourceQuota",
        {
            "spec": struct("v1.ResourceQuotaSpec", _QUOTA),
            "status": struct("v1.ResourceQuotaStatus", {"hard": RESOURCES, "used": RESOURCES}),
        },
    ),
    "RoleBinding": struct("v1.RoleBinding", _BINDING),
    "ServiceAccount": struct("v1.ServiceAccount", _ACCOUNT),
}


@dataclass(frozen=True)
class _At:
    """Where a value is: the struct around it, its path in errors and in warnings, and the unknown fields so far."""

    struct: str
    path: str = ""
    warned: str = ""
    unknown: list[str] = field(default_factory=list)

    def child(self, of: GoType, name: str) -> _At:
        def joined(path: str) -> str:
            return f"{path}.{name}" if path else name

        return _At(of.name.removeprefix("v1."), joined(self.path), joined(self.warned), self.unknown)

    def item(self, number: int) -> _At:
        return replace(self, warned=f"{self.warned}[{number}]")


def decode(kind: str, fields: Obj) -> tuple[Obj, list[str]]:
    """The fields of an object as the server has them, and the paths of those that the kind does not have.

    Raises:
        UndecodableError: a value has another type than its field.
    """
    at = _At(kind)
    decoded: Obj = _struct(fields, TYPES[kind], at)
    return decoded, at.unknown


def _struct(value: Obj, kind: GoType, at: _At) -> Obj:
    fields = kind.fields or {}
    parts = {}
    for name, given in value.items():
        where = at.child(kind, name)
        if name not in fields:
            at.unknown.append(where.warned)
        elif given is not None:
            parts[name] = _value(given, fields[name], where)
    return {
        name: parts.get(name, field_type.zero)
        for name, field_type in fields.items()
        if field_type.always or (name in parts if field_type.pointer else parts.get(name))
    }


def _value(value: Any, kind: GoType, at: _At) -> Any:
    if value is None:
        return kind.zero
    if kind is QUANTITY:
        return _quantity(value)
    if type(value) not in kind.json:
        raise wrong_type(value, f"{at.struct}.{at.path}", kind.name)
    if kind.fields is not None:
        return _struct(value, kind, at)
    if kind.element and isinstance(value, list):
        return [_value(item, kind.element, at.item(number)) for number, item in enumerate(value)] or None
    if kind.element:
        return {key: _value(item, kind.element, at) for key, item in sorted(value.items())}
    return value


def _quantity(value: Any) -> str:
    try:
        return canonical("" if isinstance(value, bool) else str(value).strip())
    except QuantityError as error:
        raise UndecodableError(str(error)) from None
