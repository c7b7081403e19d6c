"""NetworkPolicy."""

from __future__ import annotations

from typing import Any

from .kind import Kind

Obj = dict[str, Any]


def _decode_policy(obj: Obj) -> Obj:
    spec = dict(obj["spec"])
    for direction in ("ingress", "egress"):
        if direction in spec:
            spec[direction] = [_with_protocols(rule) for rule in spec[direction]]
    if "policyTypes" not in spec:
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    return {**obj, "spec": spec}


def _with_protocols(rule: Obj) -> Obj:
    if "ports" not in rule:
        return rule
    return {**rule, "ports": [{"protocol": "TCP", **port} for port in rule["ports"]]}


KINDS = {"NetworkPolicy": Kind(("spec",), _decode_policy)}
