"""Valid objects that few clients expect, and malformed objects that no API server sends."""

import copy
import reprlib
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import strategies as st

from jobs.core.sync_copies.kinds import BY_NAME, RESOURCES
from kubesandbox.api.patch import merge_patch
from kubesandbox.api.store import Stored
from tests.every_job.sync_copies import STAMP
from tests.farm import FARMED, farm_pod, pod
from tests.fault_world import Key, Object, State, World
from tests.mirrors import NAMESPACE as MIRRORS
from tests.mirrors import credentials, registry_mirror
from tests.more_kinds import MORE_KINDS, NOBODY, of_kind
from tests.workloads import BASELINE, workload
from tests.worlds import by_name, configmap, exchange_rate, namespace_object, rule, secret

NAME = "hostile"
NAMES = string.ascii_lowercase + string.digits
NAMESPACES = ("namespaces", "")
MANAGED = {"app.kubernetes.io/managed-by": "kube-chores", "app.kubernetes.io/part-of": "kube-chores"}


@dataclass(frozen=True)
class Slot:
    """A hostile object in a world: the object, the objects that it needs, and the result of a job.

    `result` is the State key of the object that the job writes because of it. A `managed` object has the labels of the
    job, so that the job may delete it.
    """

    name: str
    plural: str
    group: str
    obj: Object
    others: Sequence[tuple[str, str, Object]] = ()
    result: Key | None = None
    reported: bool = False
    managed: bool = False

    @property
    def key(self) -> Key:
        """The key of the hostile object."""
        place = self.obj["metadata"]
        return self.plural, place.get("namespace", ""), place["name"]

    def __repr__(self) -> str:
        return self.name


class Drawn:
    """An object that hypothesis drew; failures print it truncated."""

    def __init__(self, obj: Object, changed: tuple[Any, ...] = ()) -> None:
        self.obj, self.changed = obj, changed

    @property
    def opts_out(self) -> bool:
        """Whether a job may ignore the object without a finding."""
        out = self.changed[:2] in (
            ("metadata", "annotations"),
            ("metadata", "labels"),
            ("status", "phase"),
            ("status",),
            ("spec", "namespaces"),
            ("spec", "targets"),
            ("spec", "selector"),
        )
        return out or "deletionTimestamp" in self.changed or bool(self.obj["metadata"].get("deletionTimestamp"))

    def __repr__(self) -> str:
        return f"{self.changed} {_SHORT.repr(self.obj)}"


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxdict = self.maxlevel = 12
        self.maxstring = self.maxother = 100
        self.maxlist = 3

    def repr_Raw(self, raw: msgspec.Raw, _level: int) -> str:  # noqa: N802 - named after the type
        return f"Raw({self.repr_str(bytes(raw).decode(), 1)})"


_SHORT = _Short()


# The hostile objects of each job


def _child(kind: str) -> Object:
    version = "apps/v1" if kind in ("StatefulSet", "DaemonSet") else "v1"
    specs: Mapping[str, Object] = {
        "Service": {"ports": [{"port": 80}]},
        "PersistentVolumeClaim": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    spec = specs.get(kind) or workload(MIRRORS, NAME, kind)["spec"]
    labels = {**MANAGED, "kubechores.dev/job": "mirror-audit", "app.kubernetes.io/instance": NAME}
    metadata = {"name": f"registry-mirror-{NAME}", "namespace": MIRRORS, "labels": labels}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _slice() -> Object:
    metadata = {"name": NAME, "namespace": MIRRORS, "labels": {"kubernetes.io/service-name": NAME}}
    endpoints = [{"addresses": ["10.0.0.1"]}]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": "IPv4",
        "endpoints": endpoints,
    }


def _sync() -> list[Slot]:
    source = configmap("home", NAME, labels={"copy": NAME})
    login = secret("home", NAME, labels={"copy": NAME})
    followed = rule(NAME, "home", "team-a", selector={"matchLabels": {"copy": NAME}})
    logins = rule(NAME, "home", "team-a", ruleType="secret", selector={"matchLabels": {"copy": NAME}})
    rules, sources = ("copyrators", "kubechores.dev"), ("configmaps", "")
    copied, target = ("configmaps", "team-a", NAME), f"team-{NAME}"
    in_the_way = configmap("team-a", NAME, labels={})
    return [
        Slot("Namespace", *NAMESPACES, namespace_object(target, labels={}), result=("configmaps", target, "settings")),
        Slot("ConfigMap", *sources, source, [(*rules, followed)], result=copied),
        Slot("Secret", "secrets", "", login, [(*rules, logins)], result=("secrets", "team-a", NAME)),
        Slot("CopyratorRule", *rules, followed, [(*sources, source)], result=copied),
        Slot("copy", *sources, configmap("team-b", NAME, labels=STAMP), managed=True),
        Slot("conflict", *sources, in_the_way, [(*sources, source), (*rules, followed)], reported=True),
        *_sync_by_name(),
        *(slot for kind in MORE_KINDS for slot in _sync_kind(kind)),
    ]


def _sync_by_name() -> list[Slot]:
    """Return a rule that selects a source by name, and keys of it."""
    keys = {"include": ["a"], "rename": {"b": "c"}}
    named = by_name(NAME, "home", "team-a", names=["other"], targetName=NAME, keys=keys)
    source = ("configmaps", "", configmap("home", "other", labels={}))
    return [Slot("rule with names", "copyrators", "kubechores.dev", named, [source], ("configmaps", "team-a", NAME))]


def _sync_kind(kind: str) -> list[Slot]:
    """Return a source, a copy and an object with the name of a copy, of a kind."""
    resource = BY_NAME[kind].resource
    at = resource.plural, group_of(resource.plural)
    source = of_kind(kind, "home", {"copy": NAME}, name=NAME)
    spec = {"subjectNamespace": "target"} if kind == "RoleBinding" else {}
    followed = rule(NAME, "home", "team-a", ruleType=kind.lower(), selector={"matchLabels": {"copy": NAME}}, **spec)
    rules = [("copyrators", "kubechores.dev", followed)]
    in_the_way = of_kind(kind, "team-a", name=NAME)
    return [
        Slot(kind, *at, source, rules, result=(resource.plural, "team-a", NAME)),
        Slot(f"{kind} copy", *at, of_kind(kind, "team-b", STAMP, name=NAME), managed=True),
        Slot(f"{kind} conflict", *at, in_the_way, [(*at, source), *rules], reported=True),
    ]


def _rates() -> list[Slot]:
    labels = {**MANAGED, "kubechores.dev/job": "fetch-rates"}
    rates, rate = ("exchangerates", "kubechores.dev"), exchange_rate("shop", NAME)
    return [
        Slot("ExchangeRate", *rates, rate, result=("configmaps", "shop", NAME)),
        Slot("ConfigMap", "configmaps", "", configmap("shop", NAME, labels=labels), managed=True),
        Slot("conflict", "configmaps", "", configmap("shop", NAME, labels={}), [(*rates, rate)], reported=True),
    ]


def _mirrors() -> list[Slot]:
    children = {"Service": "services", "PersistentVolumeClaim": "persistentvolumeclaims"}
    workloads = {"StatefulSet": "statefulsets", "DaemonSet": "daemonsets"}
    storage_class = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": NAME}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME}}
    mirrors, uses = ("registrymirrors", "kubechores.dev"), registry_mirror(NAME, "example.org", credentialsSecret=NAME)
    return [
        Slot("RegistryMirror", *mirrors, registry_mirror(NAME, "example.org"), reported=True),
        *(Slot(kind, plural, "", _child(kind), managed=True) for kind, plural in children.items()),
        *(Slot(kind, plural, "apps", _child(kind), managed=True) for kind, plural in workloads.items()),
        Slot("EndpointSlice", "endpointslices", "discovery.k8s.io", _slice()),
        Slot("Node", "nodes", "", node),
        Slot("StorageClass", "storageclasses", "storage.k8s.io", {**storage_class, "provisioner": "example.com/none"}),
        Slot("Secret", "secrets", "", credentials(NAME, "example.org"), [(*mirrors, uses)]),
    ]


def _rolls() -> list[Slot]:
    plurals = {"Deployment": "deployments", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets"}
    uses = workload("shop", "uses", pod={"volumes": [{"name": "config", "configMap": {"name": NAME}}]})
    reads = workload("shop", "reads", pod={"volumes": [{"name": "login", "secret": {"secretName": NAME}}]})
    inside, deployments = workload(NAME, "inside"), ("deployments", "apps")

    def used_by(reader: Object) -> Mapping[str, Any]:
        place = reader["metadata"]
        return {"others": [(*deployments, reader)], "result": ("deployments", place["namespace"], place["name"])}

    return [
        Slot("Namespace", *NAMESPACES, namespace_object(NAME, labels={}), **used_by(inside)),
        *(
            Slot(kind, plural, "apps", workload("shop", NAME, kind), result=(plural, "shop", NAME))
            for kind, plural in plurals.items()
        ),
        Slot("ConfigMap", "configmaps", "", configmap("shop", NAME), **used_by(uses)),
        Slot("Secret", "secrets", "", secret("shop", NAME), **used_by(reads)),
    ]


def _farm() -> list[Slot]:
    farm_pods, pods = ("farmpods", "kubechores.dev"), ("pods", "")
    inside, outside = ("farmpods", NAME, "farm-inside"), ("farmpods", "shop", f"farm-{NAME}")
    there, opted_in = farm_pod("shop", NAME), namespace_object(NAME, labels=FARMED)
    return [
        Slot("Namespace", *NAMESPACES, opted_in, [(*pods, pod(NAME, "inside"))], result=inside),
        Slot("Pod", *pods, pod("shop", NAME), result=outside),
        Slot("FarmPod", *farm_pods, there),
        Slot("conflict", *farm_pods, there, [(*pods, pod("shop", NAME))], reported=True),
    ]


SLOTS: Mapping[str, Callable[[], list[Slot]]] = {
    "sync-copies": _sync,
    "fetch-rates": _rates,
    "mirror-audit": _mirrors,
    "roll-workloads": _rolls,
    "farm-pods": _farm,
}


# Objects that an API server accepts

DEPTHS = (3, 90, 400, 1100, 3000, 9000)
OPEN, CLOSE = "[{", "]}"


def some(*choices: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(choices)


_FIELDS = ("f:a", "f:data", "f:metadata", "f:\\u0000", "f:", "f:" + "x" * 999)
ELEMENTS = (*_FIELDS, 'k:{\\"a\\":{\\"b\\":[1]}}', "v:null", "i:-1")


@st.composite
def fields_v1(draw: st.DrawFn) -> Any:
    """Draw a fieldsV1 that a server stores: elements of the four kinds, deeply nested or very many."""
    element = draw(some(*ELEMENTS))
    if draw(st.booleans()):
        depth = draw(some(*DEPTHS))
        depth = min(depth, 60_000 // len(element))
        return msgspec.Raw((f'{{"{element}":' * depth + "{}" + "}" * depth).encode())
    wide = draw(some(1, 50, 3000))
    inner = draw(some("{}", '{".":{}}', '{"f:a":{}}', '{".":{},"f:a":{".":{}}}'))
    parent = draw(some("f:data", "f:metadata", "f:spec", "f:type", "f:immutable", "f:x"))
    names = ",".join(f'"f:{number}":{inner}' for number in range(wide))
    return msgspec.Raw(f'{{"{parent}":{{{names}}},"{element}":{inner}}}'.encode())


MANAGERS = ("kube-chores", "kubectl", "", "x" * 128, "kube-chores ")


@st.composite
def entries(draw: st.DrawFn, version: str) -> Object:
    made: Object = {"operation": draw(some("Update", "Apply")), "apiVersion": version, "fieldsType": "FieldsV1"}
    if manager := draw(some(*MANAGERS)):
        made["manager"] = manager
    made |= draw(some({}, {"subresource": "status"}, {"subresource": "scale"}))
    made |= draw(
        some({}, {"time": "2026-01-01T00:00:00Z"}, {"time": "0001-01-01T00:00:00Z"}, {"time": "9999-12-31T23:59:59Z"})
    )
    return {**made, "fieldsV1": draw(fields_v1())}


ANNOTATIONS = (
    BASELINE,
    "kubechores.dev/config",
    "kubechores.dev/copies",
    "kubechores.dev/rule",
    "kubechores.dev/source",
    "kubechores.dev/fingerprint",
    "kubechores.dev/orphans",
    "kubechores.dev/upstream",
    "kubechores.dev/" + "x" * 63,
    "kubectl.kubernetes.io/last-applied-configuration",
    "a",
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Draw the value of an annotation: a server accepts any text up to a length."""
    depth = draw(some(*DEPTHS))
    key = draw(some('{"a":', '{"sources":', '{"version":1,"uid":"u","sources":'))
    control = ("", " ", "\ufeff{}", "\0", "\x1b[2J\n\u202e")
    odd = draw(some("null", "[]", "{}", "5", "1e999", '"x"', "true", "[" * depth, "9" * 5000, *control))
    baseline = draw(
        some(
            '{"version":1,"uid":null}',
            '{"version":1e999,"uid":"u","sources":{}}',
            '{"version":1,"uid":"u","sources":{"a":1}}',
            '{"version":1,"uid":"u","sources":{},"rolledAt":"9999-12-31T23:59:59Z"}',
        )
    )
    value: str = draw(
        st.one_of(
            st.just(odd),
            st.just(baseline),
            st.just("[" * depth + "]" * depth),
            st.just(key * depth + "1" + "}" * depth),
            st.just(key * depth + draw(some("", '"' + '\\"' * 9000, "]" * depth))),  # never closed
            st.just("é" * 60_000),
            st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        )
    )
    return value


def owner(**changed: Any) -> Object:
    """Return an owner reference. `place` sets the uid of an existing namespace, so that it is not collected."""
    return {"apiVersion": "v1", "kind": "Namespace", "name": "kube-system", "uid": "", **changed}


OWNERS = (
    [owner()],
    [owner(), owner(uid="x" * 60_000)],
    [owner(), *(owner(uid=f"uid-{number}") for number in range(500))],
    [owner(controller=True, blockOwnerDeletion=False)],
    [owner(), owner(apiVersion="other.example.com/v9", kind="\u202e", uid="\0")],
)
LABELS = (
    {f"l{number}": "v" for number in range(3000)},
    {"x" * 253 + "/" + "y" * 63: "z" * 63},
    {"a": ""},
    {"kubechores.dev/rule-hash": "a.b_c"},
)
TIMES = ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999+23:59", "2026-01-01T00:00:00.5-12:00")
_READY = {"type": "Ready", "status": "Unknown", "reason": "R" * 1024, "message": "\0\x1b" * 999}
CONDITIONS: Sequence[Sequence[Object]] = ([], *([{**_READY, "lastTransitionTime": time}] for time in TIMES))
_IMAGE = {"image": "example.com/app:1"}
_OPTIONAL = {"name": "settings", "optional": True}
# The container of a workload mounts the volume `config`.
_VOLUMES: Sequence[Sequence[Object]] = (
    [{"name": "config"}, {"name": "e", "emptyDir": {}}, {"name": "p", "projected": {"sources": None}}],
    [{"name": "config", "projected": {"sources": [{"configMap": {"name": "settings", "items": []}}]}}],
    [{"name": "config", "configMap": {"name": "settings", "items": [{"key": "k", "path": "p"}] * 2}}],
    [{"name": "config", "secret": {"secretName": "login", "optional": True, "defaultMode": 0}}],
    [{"name": "config", "downwardAPI": {"items": []}}],
)
_CONTAINERS: Sequence[Sequence[Object]] = (
    [{"name": f"c{number}", **_IMAGE, "envFrom": [{"configMapRef": _OPTIONAL}]} for number in range(300)],
    [{"name": "c", **_IMAGE, "env": [{"name": "A", "value": "\0"}, {"name": "A"}] * 500}],
    [{"name": "c", **_IMAGE, "env": [{"name": "A", "valueFrom": {"secretKeyRef": {**_OPTIONAL, "key": "k"}}}]}],
    [{"name": "c", **_IMAGE, "envFrom": [{"prefix": "a.b-", "secretRef": {"name": "settings"}}] * 9}],
)
_POD_SPECS: Sequence[Object] = (
    *({"volumes": each} for each in _VOLUMES),
    *({"containers": each, "initContainers": [], "imagePullSecrets": [{}]} for each in _CONTAINERS),
)
_WORKLOADS: Sequence[Object] = (
    *({"spec": {"template": {"spec": spec}}} for spec in _POD_SPECS),
    {"spec": {"template": {"metadata": {"annotations": {"kubechores.dev/config": "\0" * 9999}}}}},
    {"spec": {"replicas": 2**31 - 1}},
    {"spec": {"paused": True, "strategy": {}, "updateStrategy": {}}},
    {"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2**31 - 1}}}},
    {"status": {"observedGeneration": 2**63 - 1, "replicas": 2**31 - 1, "conditions": [{"type": "Progressing"}] * 3}},
    {"status": {"observedGeneration": 0, "conditions": [{}]}},
)
_OF_MIRRORS: Sequence[Object] = tuple(
    {"status": {"findings": 2**31 - 1, "observedGeneration": 2**63 - 1, "conditions": each}} for each in CONDITIONS
)


def _rate_status(rate: str, inverse: str, date: str, source: str) -> Object:
    pair = {"base": "EUR", "currency": "USD"}
    return {"status": {"rate": rate, "inverse": inverse, **pair, "date": date, "source": source}}


# By kind: fields other than metadata that a server accepts.
CONTENT: Mapping[str, Sequence[Object]] = {
    "ConfigMap": (
        {"data": {}},
        {"data": {"k": "\0\x1b[2J\u202e", "x" * 253: ""}},
        {"binaryData": {"raw": "AP8="}},
        {"immutable": True},
        {"data": {"big": "x" * 900_000}},
        {"data": {f"k{number}": "" for number in range(5000)}},
        {"data": {"rate": "1e999", "date": "0000-00-00", "deep": "[" * 9000}},
    ),
    "Secret": (
        {"type": "example.com/" + "x" * 99},
        {"data": {}},
        {"data": {"username": "", "password": "AP8="}},
        {"data": {f"k{number}": "" for number in range(5000)}},
        {"immutable": True},
    ),
    "NetworkPolicy": (
        {"spec": {"ingress": [{"ports": [{"port": port}]} for port in range(1, 2000)]}},
        {"spec": {"ingress": [], "egress": [{}], "policyTypes": []}},
        {"spec": {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}] * 999}}},
        {"spec": {"ingress": [{"from": [{"ipBlock": {"cidr": "::/0", "except": ["fd00::/8"] * 99}}]}]}},
        {"spec": {"ingress": [{"ports": [{"port": "x-y", "protocol": "SCTP"}, {"port": 1, "endPort": 65535}]}]}},
    ),
    "LimitRange": (
        {"spec": {"limits": []}},
        {"spec": {"limits": [{"type": f"example.com/{number}"} for number in range(2000)]}},
        {"spec": {"limits": [{"type": "Container", "max": {"example.com/x": "9223372036854775807"}}]}},
        {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "0.1"}, "min": {"cpu": "1e-3"}}]}},
    ),
    "ResourceQuota": (
        {"spec": {"hard": None}},
        {"spec": {"hard": {f"count/x{number}.example.com": "1" for number in range(2000)}}},
        {"spec": {"hard": {"pods": "1e3"}, "scopes": ["NotTerminating"]}},
        {"spec": {"hard": {"pods": "10.000000000"}}},
        {"status": {"hard": {"pods": "1"}, "used": {"pods": "9223372036854775807"}}},
    ),
    "RoleBinding": (
        {"subjects": None},
        {"subjects": [{**NOBODY, "name": f"{number}\u202e"} for number in range(2000)]},
        {"subjects": [{**NOBODY, "kind": "User", "name": "\0\x1b[2J"}, NOBODY, NOBODY]},
        {"subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "elsewhere"}]},
        {"roleRef": {"kind": "Role", "name": "absent"}},
        {"metadata": {"labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}},
    ),
    "ServiceAccount": (
        {"imagePullSecrets": [{}, {"name": ""}, {"name": "\0"}]},
        {"imagePullSecrets": [{"name": f"s{number}"} for number in range(2000)]},
        {"secrets": [{"name": f"s{number}", "fieldPath": "\u202e"} for number in range(2000)]},
        {"automountServiceAccountToken": None},
    ),
    "Namespace": ({"spec": {}}, {"spec": {"finalizers": []}}, {"status": {"conditions": [{"type": "x"}] * 2}}),
    "CopyratorRule": (
        *({"status": {"conditions": each}} for each in CONDITIONS),
        {"status": {"conflictCount": 2**63 - 1, "conflicts": [{"namespace": "", "name": "\0"}] * 100}},
        {"status": {"copies": 2**63 - 1, "failedNamespaces": [{"namespace": "\0", "reason": ""}] * 100}},
        *({"status": {"lastRunTime": time}} for time in ("9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00")),
        {"status": {"observedGeneration": -(2**63)}},
        {"spec": {"metadata": {"annotations": {"deep": "[" * 9000, "a" * 63: "\0" * 99_999}}}},
    ),
    "ExchangeRate": (
        *({"status": {"conditions": each, "rate": "1e999", "date": "\0"}} for each in CONDITIONS),
        _rate_status("NaN", "-0", "9999-99-99", "\0"),
        _rate_status("1", "1", "0001-01-01", "x"),
        _rate_status("9" * 100, "1", "2026-01-01", "x"),
    ),
    "RegistryMirror": _OF_MIRRORS,
    "FarmPod": ({"spec": {"pod": "x", "containers": 2**31 - 1}}, {"status": {}}),
    "Pod": (*({"spec": spec} for spec in _POD_SPECS), {"status": {"phase": "", "conditions": [{"type": "Ready"}] * 2}}),
    "Deployment": _WORKLOADS,
    "StatefulSet": _WORKLOADS,
    "DaemonSet": _WORKLOADS,
    "Service": (
        {"spec": {"type": "ExternalName", "externalName": "example.com", "ports": None}},
        {"spec": {"clusterIP": "None", "selector": {}}},
        {"spec": {"ports": [{"port": number, "name": f"p{number}", "targetPort": "x"} for number in range(1, 99)]}},
        {"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": [{}]}}},
    ),
    "EndpointSlice": (
        {"endpoints": None, "ports": None},
        {"endpoints": [{"addresses": ["10.0.0.1"], "conditions": None}] * 1000},
        {"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": None}}], "ports": [{}]},
    ),
    "PersistentVolumeClaim": (
        {"spec": {"resources": {"requests": {"storage": "1e3"}}}},
        {"spec": {"resources": {"requests": {"storage": "9223372036854775807"}}, "storageClassName": ""}},
        {"spec": {"resources": {"requests": {"storage": "0.5m"}, "limits": None}}},
        {"status": {"phase": "Lost", "capacity": {"storage": "12345678901234567890Ei"}, "conditions": [{}]}},
    ),
    "Node": (
        {"spec": {"taints": None}},
        {"spec": {"taints": [{"key": f"k{number}", "effect": "NoSchedule"} for number in range(99)]}},
        {"status": {"conditions": [{"type": "Ready", "status": "x"}] * 2, "nodeInfo": {}}},
    ),
    "StorageClass": ({"allowVolumeExpansion": True, "parameters": {"a": "\0"}}, {"mountOptions": [""] * 999}),
}
FINALIZERS = (["example.com/f"], ["example.com/f"] * 3, [f"example.com/{number}" for number in range(500)])


@st.composite
def hostile(draw: st.DrawFn, base: Object) -> Drawn:
    """Draw the object with metadata that a server accepts."""
    made = merge_patch(copy.deepcopy(base), draw(some({}, *CONTENT[base["kind"]])))
    metadata = made["metadata"]
    version = made["apiVersion"]
    if draw(st.booleans()):
        metadata["managedFields"] = draw(st.lists(entries(version), min_size=1, max_size=3))
    given = draw(st.dictionaries(some(*ANNOTATIONS), texts(), max_size=3))
    metadata["annotations"] = {**given, **metadata.get("annotations", {})}
    if draw(st.booleans()):
        metadata["labels"] = {**draw(some(*LABELS)), **(metadata.get("labels") or {})}
    if draw(st.booleans()):
        metadata["ownerReferences"] = draw(some(*OWNERS))
    if draw(st.booleans()):
        metadata["finalizers"] = draw(some(*FINALIZERS))
        if made["kind"] != "Namespace" and draw(st.booleans()):
            metadata |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}
    return Drawn(made)


def worst(base: Object) -> Object:
    """Return the object with the largest and deepest metadata that a server accepts."""
    made = copy.deepcopy(base)
    deep = msgspec.Raw(b'{"f:a":' * 9000 + b"{}" + b"}" * 9000)
    entry = {"operation": "Update", "apiVersion": base["apiVersion"], "fieldsType": "FieldsV1", "fieldsV1": deep}
    made["metadata"] |= {
        "managedFields": [{"manager": f"m{number}", **entry} for number in range(10)],
        "annotations": {BASELINE: "[" * 60_000, "a": '{"a":' * 20_000, **made["metadata"].get("annotations", {})},
        "labels": {**LABELS[0], **made["metadata"].get("labels", {})},
        "ownerReferences": OWNERS[2],
    }
    return made


# Objects that no API server sends

WRONG: Sequence[Any] = (
    *(None, 5, -1.5, 1e300, True, "x", "", [], [None], [[]], {}, {"a": None}, {"": 5}, [{"a": 1}, {"a": 1}]),
    *map(msgspec.Raw, (b"[" * 3000 + b"]" * 3000, b'{"a":' * 3000 + b"1" + b"}" * 3000, b"9" * 5000, b"1e999")),
    *map(msgspec.Raw, (b'"\\u0000\\u001b[2J"', b'{"a":"1","a":2}')),
    "x" * 100_000,
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all parts of an object."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(each for name, part in parts for each in paths(part, (*path, name)))][0 if path else 1 :]


@st.composite
def malformed(draw: st.DrawFn, stored: Object) -> Drawn:
    """Draw the stored object with one part of another type, or without it. Its name does not change."""
    made = copy.deepcopy(stored)
    made["metadata"] = {
        "managedFields": [{"manager": "m", "operation": "Update", "fieldsV1": {"f:data": {}}}],
        "ownerReferences": [owner()],
        "finalizers": ["example.com/f"],
        "deletionTimestamp": None,
        **made["metadata"],
    }
    made["metadata"]["annotations"] = {"a": "b", **made["metadata"].get("annotations", {})}
    made.setdefault("status", {"conditions": [{"type": "Ready"}], "observedGeneration": 1, "replicas": 1})
    named = {("metadata", "name"), ("metadata", "namespace"), ("metadata",)}
    path = draw(st.sampled_from([each for each in paths(made) if each not in named]))
    parent = made
    for name in path[:-1]:
        parent = parent[name]
    if draw(st.integers(0, 5)):
        parent[path[-1]] = draw(st.sampled_from(WRONG))
    else:
        del parent[path[-1]]
    return Drawn(made, path)


# Objects in a world


def place(world: World, slot: Slot, obj: Object) -> None:
    """Store the object and the objects that it needs, without the validation of the server."""
    cluster = world.sandbox.cluster
    with cluster.store.lock:
        owning = cluster.namespace("kube-system")
        assert owning
        for plural, group, other in [(slot.plural, slot.group, obj), *slot.others]:
            resource = cluster.find(group, "v1", plural)
            assert resource
            made = copy.deepcopy(other)
            for each in made["metadata"].get("ownerReferences", ()):
                each["uid"] = each["uid"] or owning.obj["metadata"]["uid"]
            cluster.seed(resource, made)


def serve_instead(world: World, slot: Slot, obj: Object) -> None:
    """Make the server send other JSON for the stored object."""
    stored = stored_in(world, slot)
    stored.raw = msgspec.json.encode(obj)
    stored._metadata_only = msgspec.json.encode(
        {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj.get("metadata")}
    )


def stored_in(world: World, slot: Slot) -> Stored:
    """Return the object as the server stores it."""
    cluster = world.sandbox.cluster
    resource = cluster.find(slot.group, "v1", slot.plural)
    assert resource
    stored = cluster.store.get(resource, *slot.key[1:])
    assert stored
    return stored


def is_processed(world: World, slot: Slot) -> bool:
    """Whether the job wrote the result for this object."""
    assert slot.result
    plural = slot.result[0]
    found = world.stored(plural, group_of(plural)).get(slot.result)
    rolled = plural in ("deployments", "statefulsets", "daemonsets")
    return found is not None and (not rolled or BASELINE in (found["metadata"].get("annotations") or {}))


def group_of(plural: str) -> str:
    """Return the API group of the object that a job writes."""
    copied = {each.plural: each.api_version.rpartition("/")[0] for each in RESOURCES}
    apps = dict.fromkeys(("deployments", "statefulsets", "daemonsets"), "apps")
    return {**copied, **apps, "farmpods": "kubechores.dev"}[plural]


def fixed_fields(world: World, slot: Slot) -> State:
    """Return the fields that no job may change: all except status and annotations, since jobs write some of these."""
    found = world.stored(slot.plural, slot.group).get(slot.key)
    if found is None:
        return {}
    own = ("annotations", "managedFields", "resourceVersion", "generation")
    metadata = {name: value for name, value in found["metadata"].items() if name not in own}
    template: Object = {"spec": {}} if slot.group == "apps" else {}
    return {
        slot.key: {
            **{name: value for name, value in found.items() if name != "status"},
            "metadata": metadata,
            **template,
        }
    }
