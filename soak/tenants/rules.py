"""The CopyratorRules of the tenants, the objects that they copy, and how users change them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from tests.apis import Object
from tests.canary import canary
from tests.certificates import certificate, issued, private_key
from tests.worlds import (
    by_name,
    configmap,
    encoded,
    limit_range,
    network_policy,
    pull_secret,
    resource_quota,
    role_binding,
    rule,
    secret,
    service_account,
)

Changes = Sequence[Object]  # fields of spec, each with another value; None removes the field
SHARED = {"share": "yes"}
PROD = {**SHARED, "stage": "prod"}
TRUST = {"trust": "internal"}
ALL: Object = {"include": ["team-*"]}
PULLS: Object = {"serviceAccounts": ["default", "build-*"]}
APP = {"a": "1", "b": "2", "b2": "3", "c": "4", "secret-part": "5"}
RULES: Sequence[Object] = (
    rule("settings", "source-1", "team-*", namespaces=["source-1", "source-2"], selector={"matchLabels": SHARED}),
    rule(
        "logins",
        "source-1",
        "team-*",
        ruleType="secret",
        selector={"matchLabels": SHARED},
        targets={**ALL, "exclude": ["team-2"]},
    ),
    rule(
        "web",
        "source-2",
        "team-*",
        ruleType="secret",
        selector={"matchLabels": SHARED},
        targets={"namespaceSelector": {"matchLabels": {"tier": "web"}}},
    ),
    by_name(
        "app",
        "source-3",
        "team-*",
        names=["app"],
        keys={"include": ["a", "b*"], "rename": {"c": "renamed"}},
        targetName="app-config",
    ),
    rule("policies", "source-3", ["team-1", "team-2"], ruleType="networkpolicy", selector={"matchLabels": SHARED}),
    rule("limits", "source-3", ["team-2", "team-3"], ruleType="limitrange", selector={"matchLabels": SHARED}),
    rule("quotas", "source-3", ["team-3", "team-4"], ruleType="resourcequota", selector={"matchLabels": SHARED}),
    rule(
        "viewers",
        "source-3",
        ["team-4", "team-5"],
        ruleType="rolebinding",
        selector={"matchLabels": SHARED},
        subjectNamespace="target",
    ),
    rule("robots", "source-3", ["team-5", "team-6"], ruleType="serviceaccount", selector={"matchLabels": SHARED}),
    by_name(
        "authority",
        "source-1",
        "team-*",
        ruleType="secret",
        names=["ca"],
        keys={"include": ["ca.crt"]},
        copyAs={"kind": "ConfigMap"},
    ),
    rule(
        "roots",
        "source-2",
        "team-*",
        namespaces=["source-2", "source-3"],
        selector={"matchLabels": TRUST},
        keys={"include": ["*.crt"]},
        merge={"key": "roots.crt"},
        targetName="roots",
    ),
    by_name("pulls", "source-1", "team-*", ruleType="secret", names=["registry"], attachTo=PULLS),
)


def _expressions(*expressions: tuple[str, str, Sequence[str]]) -> list[Object]:
    """Return matchExpressions of keys, operators and values."""
    return [{"key": key, "operator": how, **({"values": values} if values else {})} for key, how, values in expressions]


def _where(*expressions: tuple[str, str, Sequence[str]]) -> Object:
    return {"targets": {**ALL, "namespaceSelector": {"matchExpressions": _expressions(*expressions)}}}


_TARGETS: Changes = (
    {"targets": {**ALL, "exclude": ["team-1", "*-5"]}},
    {"targets": {"include": ["team-1", "team-3", "*-4"]}},
    {"targets": {**ALL, "namespaceSelector": {"matchLabels": {"tier": "data"}}}},
    {"targets": {"namespaceSelector": {"matchExpressions": _expressions(("tier", "In", ("web", "data")))}}},
    _where(("tier", "In", ["data"])),
    _where(("tier", "NotIn", ["data"]), ("kubernetes.io/metadata.name", "Exists", ())),
    _where(("kubernetes.io/metadata.name", "NotIn", ["team-3", "team-5"]), ("other", "DoesNotExist", ())),
)
_CLUSTERS: Changes = ({"targets": {**ALL, "clusters": {}, "local": True}}, {"targets": {**ALL, "clusters": {}}})
_OWN: Changes = (
    {"metadata": {"labels": {"team": "platform"}}},
    {"metadata": {"labels": {"team": "infra", "tier": "0"}, "annotations": {"by": "infra"}}},
    {"metadata": {"annotations": {"by": "platform"}}},
)
_COPIED: Changes = (
    {"metadata": {"copyLabels": ["stage"], "labels": {"team": "platform"}}},
    {"metadata": {"copyLabels": ["share", "stage"], "copyAnnotations": ["note"]}},
)
_FATE: Changes = ({"conflict": "Adopt"}, {"conflict": "Skip"}, {"orphans": "Retain"}, {"orphans": "Delete"})
_ANY: Changes = (*_TARGETS, *_OWN, *_FATE)
CHANGES: Mapping[str, Changes] = {
    "settings": (
        *_ANY,
        *_CLUSTERS,
        *_COPIED,
        {"selector": {"matchLabels": PROD}},
        {"selector": {"matchExpressions": _expressions(("share", "In", ["yes", "maybe"]))}},
        {"selector": {"matchExpressions": _expressions(("stage", "Exists", ()), ("share", "NotIn", ["no"]))}},
        {"selector": {"matchLabels": SHARED, "matchExpressions": _expressions(("stage", "DoesNotExist", ()))}},
        {"names": ["settings", "flags"]},
        {"names": ["settings", "extra"]},
        {"namespaces": ["source-1"]},
        {"namespaces": ["source-2", "source-1"]},
    ),
    "logins": (
        *_ANY,
        *_CLUSTERS,
        *_COPIED,
        {"keys": {"include": ["user"]}},
        {"keys": {"rename": {"password": "pass"}}},
        {"keys": {"include": ["user", "p*"]}, "copyAs": {"kind": "Secret"}},
        {"keys": {"include": ["user"]}, "copyAs": {"kind": "Secret", "type": "Opaque"}},
    ),
    "web": (*_ANY, *_CLUSTERS, *_COPIED),
    "app": (
        *_ANY,
        *_COPIED,
        {"keys": None},
        {"keys": {"include": ["c"]}},
        {"keys": {"include": ["?"], "rename": {"secret-part": "part", "b2": "second"}}},
        {"keys": {"rename": {"a": "first"}}},
        {"targetName": "app-settings"},
        {"targetName": None},
        {"names": ["app-next"]},
    ),
    "policies": (*_ANY, *_CLUSTERS),
    "limits": (*_ANY, *_COPIED),
    "quotas": _ANY,
    "viewers": (*_ANY, *_COPIED, {"subjectNamespace": "source"}, {"subjectNamespace": None}),
    "robots": (*_ANY, *_COPIED),
    "authority": (
        *_ANY,
        *_CLUSTERS,
        {"copyAs": {"kind": "Secret"}},
        {"copyAs": {"kind": "Secret", "type": "Opaque"}},
        {"keys": {"include": ["ca.*", "tls.crt"]}},
        {"targetName": "authority", "keys": {"include": ["ca.crt"], "rename": {"tls.crt": "leaf.crt"}}},
        {"targetName": "ca", "merge": {"key": "ca.crt"}},
        {"targetName": "ca", "merge": {"key": "all.crt"}, "copyAs": {"kind": "Secret"}},
    ),
    "roots": (*_ANY, *_CLUSTERS, {"merge": {"key": "ca.crt"}}, {"targetName": "trusted"}, {"namespaces": ["source-3"]}),
    "pulls": (
        *_ANY,
        *_COPIED,
        {"attachTo": {"serviceAccounts": ["build-*"]}},
        {"attachTo": {"serviceAccounts": ["default"]}},
        {"attachTo": None},
        {"targetName": "pull"},
    ),
}
# By rule with a selector: what a user mistypes.
MISTAKES: Changes = (
    {"selector": {"matchLabels": {"share": "yess"}}},
    {"namespaces": ["sorce-1"]},
    {"targets": {"include": ["taem-*"]}},
)


def changed(original: Object, *changes: Object) -> Object:
    """Return a rule with these changes of its original spec."""
    spec = dict(original["spec"])
    for each in changes:
        spec |= each
    return {**original, "spec": {key: value for key, value in spec.items() if value is not None}}


def variants(original: Object) -> Iterator[Object]:
    """Yield a rule as it is at first, and with each of its changes."""
    yield from (changed(original, each) for each in ({}, *CHANGES[original["metadata"]["name"]]))


TARGET_NAMES = sorted({
    str(each["spec"]["targetName"]) for original in RULES for each in variants(original) if "targetName" in each["spec"]
})  # fmt: skip


def first_sources() -> list[Object]:
    """Return the objects that rules select at first."""
    made = [
        configmap("source-1", "settings", labels=PROD, data={"a": "1"}),
        configmap("source-1", "extra", labels=SHARED, data={"b": "1"}, binaryData={"raw": encoded("raw")}),
        secret("source-1", "login", labels=PROD),
        configmap("source-2", "flags", labels=PROD, data={"on": "true"}),
        secret("source-2", "certificate", labels=SHARED),
        configmap("source-3", "app", labels={"stage": "prod"}, data=APP),
        configmap("source-3", "app-next", data={**APP, "a": "next"}),
        network_policy("source-3", labels=SHARED),
        limit_range("source-3", labels=SHARED),
        resource_quota("source-3", labels=SHARED),
        role_binding("source-3", labels=PROD),
        service_account("source-3", labels=PROD),
        issued("source-1"),
        configmap("source-2", "root-1", labels=TRUST, data={"one.crt": certificate("one"), "note": "none"}),
        configmap("source-3", "root-2", labels=TRUST, data={"two.crt": certificate("two") + certificate("one")}),
        pull_secret("source-1", "registry", labels={"stage": "prod"}),
    ]
    for each in made:
        each["metadata"]["annotations"] = {"note": each["metadata"]["name"]}
    return made


def edit_of(obj: Object, key: str, number: int) -> Object:
    """Return a patch that changes the content of a source or a copy; `key` is a key of ConfigMaps and Secrets."""
    data, is_secret = obj.get("data") or {}, obj["kind"] == "Secret"
    value, coded = (f"value-{number}", canary()), encoded if is_secret else str
    certificates = [each for each in data if each.endswith(".crt") and each != "tls.crt"]
    content: Object = {"data": {key: coded(value[is_secret])}}
    if certificates:
        content = {"data": {certificates[0]: coded(certificate(f"number-{number}"))}}
    elif ".dockerconfigjson" in data:
        content = {"data": {".dockerconfigjson": encoded(json.dumps({"auths": {"example.com": {"auth": canary()}}}))}}
    group = {"kind": "Group", "name": f"viewers-{number}", "apiGroup": "rbac.authorization.k8s.io"}
    edits: dict[str, Object] = {
        "NetworkPolicy": {"spec": {"podSelector": {"matchLabels": {"number": str(number)}}}},
        "LimitRange": {"spec": {"limits": [{"type": "Container", "default": {"cpu": f"{number}m"}}]}},
        "ResourceQuota": {"spec": {"hard": {"pods": str(100 + number)}}},
        "RoleBinding": {"subjects": [group, {"kind": "ServiceAccount", "name": "robot", "namespace": "source-3"}]},
        "ServiceAccount": {"imagePullSecrets": [{"name": f"registry-{number}"}]},
    }
    return edits.get(obj["kind"], content)


def refusal_of(source: Object) -> Object:
    """Return a patch after which no rule can copy certificates of a source."""
    key = next(each for each in source["data"] if each.endswith(".crt") and each != "tls.crt")
    return {"data": {key: encoded(private_key()) if source["kind"] == "Secret" else "not a certificate"}}
