"""NetworkPolicy."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import Any

from ..causes import Cause, forbidden_field, invalid_value, not_supported, required
from ..validation import label_causes, label_key_problems
from .kind import Kind

Obj = dict[str, Any]
_CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


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


def _policy_causes(obj: Obj) -> list[Cause]:
    spec = obj["spec"]
    causes = list(_selector_causes("spec.podSelector", spec["podSelector"]))
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for number, rule in enumerate(spec.get(direction) or []):
            field = f"spec.{direction}[{number}]"
            for each, port in enumerate(rule.get("ports") or []):
                causes += _port_causes(f"{field}.ports[{each}]", port)
            for each, peer in enumerate(rule.get(peers) or []):
                causes += _peer_causes(f"{field}.{peers}[{each}]", peer)
    types = spec["policyTypes"]
    if len(types) > 2:
        return [*causes, invalid_value("spec.policyTypes", types, "may not specify more than two policyTypes")]
    for number, name in enumerate(types):
        if name not in ("Ingress", "Egress"):
            causes.append(not_supported(f"spec.policyTypes[{number}]", name, ["Ingress", "Egress"]))
    return causes


def _selector_causes(field: str, selector: Obj) -> Iterator[Cause]:
    yield from label_causes(f"{field}.matchLabels", selector.get("matchLabels") or {})
    for number, term in enumerate(selector.get("matchExpressions") or []):
        where, operator = f"{field}.matchExpressions[{number}]", term["operator"]
        if operator in ("In", "NotIn"):
            if not term.get("values"):
                yield required(f"{where}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        elif operator in ("Exists", "DoesNotExist"):
            if term.get("values"):
                why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield forbidden_field(f"{where}.values", why)
        else:
            yield invalid_value(f"{where}.operator", operator, "not a valid selector operator")
        for problem in label_key_problems(term["key"]):
            yield invalid_value(f"{where}.key", term["key"], problem)


def _port_causes(field: str, given: Obj) -> Iterator[Cause]:
    port, end = given.get("port"), given.get("endPort")
    if given["protocol"] not in ("TCP", "UDP", "SCTP"):
        yield not_supported(f"{field}.protocol", given["protocol"], ["TCP", "UDP", "SCTP"])
    if isinstance(port, int) and not 1 <= port <= 65535:
        yield invalid_value(f"{field}.port", port, "must be between 1 and 65535, inclusive")
    if end is not None and not isinstance(port, int):
        why = "may not be specified when `port` is " + ("not specified" if port is None else "non-numeric")
        yield invalid_value(f"{field}.endPort", end, why)
    elif end is not None and end < port:
        yield invalid_value(f"{field}.endPort", port, "must be greater than or equal to `port`")


def _peer_causes(field: str, peer: Obj) -> Iterator[Cause]:
    if not peer:
        yield required(field, "must specify a peer")
    for name in ("podSelector", "namespaceSelector"):
        yield from _selector_causes(f"{field}.{name}", peer.get(name, {}))
    if "ipBlock" in peer:
        if len(peer) > 1:
            yield forbidden_field(field, "may not specify both ipBlock and another peer")
        yield from _block_causes(f"{field}.ipBlock", peer["ipBlock"])


def _block_causes(field: str, block: Obj) -> Iterator[Cause]:
    if not block["cidr"]:
        yield required(f"{field}.cidr")
        return
    network = _network(block["cidr"])
    if network is None:
        yield invalid_value(f"{field}.cidr", block["cidr"], _CIDR)
        return
    for number, text in enumerate(block.get("except") or []):
        hole, where = _network(text), f"{field}.except[{number}]"
        if hole is None:
            yield invalid_value(where, text, _CIDR)
        elif not _is_within(hole, network):
            yield invalid_value(where, text, "must be a strict subset of `cidr`")


_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _network(text: str) -> _Network | None:
    try:
        return ipaddress.ip_network(text, strict=False) if "/" in text else None
    except ValueError:
        return None


def _is_within(hole: _Network, network: _Network) -> bool:
    return (
        hole.version == network.version
        and hole.prefixlen > network.prefixlen
        and hole.supernet(new_prefix=network.prefixlen) == network
    )


KINDS = {"NetworkPolicy": Kind(("spec",), _decode_policy, _policy_causes)}
