"""The kinds that sync-copies copies besides ConfigMaps and Secrets: who owns which field, defaults, refusals."""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from tests.apis import wait_for
from tests.contract.conftest import (
    APPLY,
    JSON_PATCH,
    MERGE,
    METADATA_LIST,
    MODIFIED,
    STRATEGIC,
    TABLE,
    Answer,
    Place,
    bad_request,
    conflict,
    until,
)
from tests.rights import RBAC

Object = dict[str, Any]
NETWORKING = "networking.k8s.io/v1"
VIEW = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"}
USER, GROUP = {"kind": "User", "name": "u"}, {"kind": "Group", "name": "g"}
ACCOUNT = {"kind": "ServiceAccount", "name": "s", "namespace": "q"}
CPU = {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}
# kind: (API version, plural, fields of an object)
KINDS: dict[str, tuple[str, str, Object]] = {
    "NetworkPolicy": (NETWORKING, "networkpolicies", {"spec": {"podSelector": {"matchLabels": {"a": "b"}}}}),
    "LimitRange": ("v1", "limitranges", {"spec": CPU}),
    "ResourceQuota": ("v1", "resourcequotas", {"spec": {"hard": {"cpu": "2", "pods": "10"}}}),
    "ServiceAccount": (
        "v1",
        "serviceaccounts",
        {"imagePullSecrets": [{"name": "x"}, {"name": "y"}], "automountServiceAccountToken": False},
    ),
    "RoleBinding": (f"{RBAC}/v1", "rolebindings", {"roleRef": VIEW, "subjects": [USER, ACCOUNT]}),
}
MANAGER, OTHER, APPLIER = "kube-chores Update", "other Update", "applier Apply"


def at(place: Place, kind: str, name: str = "") -> str:
    version, plural, _ = KINDS[kind]
    return place.path(plural, quote(name, safe=""), version if "/" in version else "")


def create(place: Place, kind: str, fields: Object | None = None, name: str = "a", query: str = "") -> Answer:
    body = {"metadata": {"name": name}, **(KINDS[kind][2] if fields is None else fields)}
    return place.send("POST", f"{at(place, kind)}?fieldManager=kube-chores{query}", body)


def served(answer: Answer) -> Object:
    """The fields of an object without its metadata, or of its only status."""
    assert answer.status in (200, 201), answer.body
    return {name: value for name, value in answer.body.items() if name not in ("kind", "apiVersion", "metadata")}


Edit = Callable[[Place, str], Answer]


def patch(fields: Any, media: str = MERGE) -> Edit:
    return lambda place, kind: place.send("PATCH", f"{at(place, kind, 'a')}?fieldManager=other", fields, media)


def replace(manager: str = "other", **fields: Any) -> Edit:
    def edit(place: Place, kind: str) -> Answer:
        while True:
            live = place.send("GET", at(place, kind, "a")).body
            answer = place.send("PUT", f"{at(place, kind, 'a')}?fieldManager={manager}", {**live, **fields})
            if answer.status != 409:  # otherwise the controller of quotas wrote their status in between
                return answer

    return edit


def apply(force: bool = False, **fields: Any) -> Edit:
    def edit(place: Place, kind: str) -> Answer:
        body = {"apiVersion": KINDS[kind][0], "kind": kind, "metadata": {"name": "a"}, **fields}
        query = "fieldManager=applier" + ("&force=true" if force else "")
        return place.send("PATCH", f"{at(place, kind, 'a')}?{query}", body, APPLY)

    return edit


def in_turn(*edits: Edit) -> Edit:
    return lambda place, kind: [edit(place, kind) for edit in edits][-1]


def again(kind: str) -> Edit:
    """The first content, replaced by its owner."""
    return replace("kube-chores", **KINDS[kind][2])


POLICY = '{"f:spec":{"f:podSelector":{},"f:policyTypes":{}}}'
QUOTA = '{"f:spec":{"f:hard":{".":{},"f:cpu":{},"f:pods":{}}}}'
LIMITS = '{"f:spec":{"f:limits":{}}}'
BINDING = '{"f:roleRef":{},"f:subjects":{}}'
BOTH = '{"f:automountServiceAccountToken":{},"f:imagePullSecrets":{}}'
AUTOMOUNT, PULL, SUBJECTS = '{"f:automountServiceAccountToken":{}}', '{"f:imagePullSecrets":{}}', '{"f:subjects":{}}'
OF_CPU = '{"f:spec":{"f:hard":{".":{},"f:cpu":{}}}}'
OF_PODS = '{"f:spec":{"f:hard":{"f:pods":{}}}}'
POD_SELECTOR = patch({"spec": {"podSelector": {"matchLabels": {"c": "d"}}}})
PODS, SUBJECT = patch({"spec": {"hard": {"pods": "11"}}}), patch({"subjects": [USER]})
THREE_CPUS = {"spec": {"limits": [{"type": "Container", "max": {"cpu": "3"}}]}}
EDITS: list[tuple[str, str, Edit | None, dict[str, str]]] = [
    ("NetworkPolicy", "nothing", None, {MANAGER: POLICY}),
    (
        "NetworkPolicy",
        "a label of the podSelector",
        POD_SELECTOR,
        {MANAGER: '{"f:spec":{"f:policyTypes":{}}}', OTHER: '{"f:spec":{"f:podSelector":{}}}'},
    ),
    ("NetworkPolicy", "edited and replaced", in_turn(POD_SELECTOR, again("NetworkPolicy")), {MANAGER: POLICY}),
    (
        "NetworkPolicy",
        "rules, strategically",
        in_turn(
            patch({"spec": {"ingress": [{}], "egress": [{}]}}, STRATEGIC),
            patch([{"op": "replace", "path": "/spec/ingress/0", "value": {"ports": [{"port": 1}]}}], JSON_PATCH),
        ),
        {MANAGER: POLICY, OTHER: '{"f:spec":{"f:egress":{},"f:ingress":{}}}'},
    ),
    (
        "NetworkPolicy",
        "applied by force and withdrawn",
        in_turn(apply(True, spec={"podSelector": {}, "ingress": [{}]}), apply(spec={})),
        {MANAGER: '{"f:spec":{"f:policyTypes":{}}}', APPLIER: '{"f:spec":{}}'},
    ),
    ("LimitRange", "nothing", None, {MANAGER: LIMITS}),
    ("LimitRange", "a limit", patch(THREE_CPUS), {OTHER: LIMITS}),
    ("LimitRange", "a limit, strategically", patch(THREE_CPUS, STRATEGIC), {OTHER: LIMITS}),
    ("LimitRange", "edited and replaced", in_turn(patch(THREE_CPUS), again("LimitRange")), {MANAGER: LIMITS}),
    ("LimitRange", "applied by force", apply(True, **THREE_CPUS), {APPLIER: LIMITS}),
    ("LimitRange", "applied in another notation", apply(True, spec=CPU), {APPLIER: LIMITS}),
    ("ResourceQuota", "nothing", None, {MANAGER: QUOTA}),
    ("ResourceQuota", "an amount", PODS, {MANAGER: OF_CPU, OTHER: OF_PODS}),
    ("ResourceQuota", "an equal amount", patch({"spec": {"hard": {"cpu": "2000m"}}}), {MANAGER: QUOTA}),
    ("ResourceQuota", "an amount removed", patch({"spec": {"hard": {"pods": None}}}), {MANAGER: OF_CPU}),
    (
        "ResourceQuota",
        "an amount added",
        patch({"spec": {"hard": {"services": "1"}}}, STRATEGIC),
        {MANAGER: QUOTA, OTHER: '{"f:spec":{"f:hard":{"f:services":{}}}}'},
    ),
    ("ResourceQuota", "edited and replaced", in_turn(PODS, again("ResourceQuota")), {MANAGER: QUOTA}),
    (
        "ResourceQuota",
        "an amount applied, and withdrawn",
        in_turn(apply(spec={"hard": {"services": "1"}}), apply(spec={"hard": {}})),
        {MANAGER: QUOTA, APPLIER: '{"f:spec":{"f:hard":{}}}'},
    ),
    (
        "ResourceQuota",
        "an equal amount applied",
        apply(spec={"hard": {"pods": "10"}}),
        {MANAGER: QUOTA, APPLIER: OF_PODS},
    ),
    ("ServiceAccount", "nothing", None, {MANAGER: BOTH}),
    (
        "ServiceAccount",
        "imagePullSecrets",
        patch({"imagePullSecrets": [{"name": "z"}]}),
        {MANAGER: AUTOMOUNT, OTHER: PULL},
    ),
    (
        "ServiceAccount",
        "imagePullSecrets, strategically",
        patch({"imagePullSecrets": [{"name": "z"}]}, STRATEGIC),
        {MANAGER: AUTOMOUNT, OTHER: PULL},
    ),
    (
        "ServiceAccount",
        "a secret",
        patch({"secrets": [{"name": "s"}]}),
        {MANAGER: BOTH, OTHER: '{"f:secrets":{".":{},"k:{\\"name\\":\\"s\\"}":{}}}'},
    ),
    (
        "ServiceAccount",
        "automount",
        patch({"automountServiceAccountToken": True}),
        {MANAGER: PULL, OTHER: AUTOMOUNT},
    ),
    ("ServiceAccount", "automount removed", patch({"automountServiceAccountToken": None}), {MANAGER: PULL}),
    ("ServiceAccount", "no imagePullSecrets", replace(imagePullSecrets=[]), {MANAGER: AUTOMOUNT}),
    (
        "ServiceAccount",
        "edited and replaced",
        in_turn(patch({"imagePullSecrets": None}), again("ServiceAccount")),
        {MANAGER: BOTH},
    ),
    ("RoleBinding", "nothing", None, {MANAGER: BINDING}),
    ("RoleBinding", "subjects", SUBJECT, {MANAGER: '{"f:roleRef":{}}', OTHER: SUBJECTS}),
    (
        "RoleBinding",
        "subjects, strategically",
        patch({"subjects": [GROUP]}, STRATEGIC),
        {MANAGER: '{"f:roleRef":{}}', OTHER: SUBJECTS},
    ),
    ("RoleBinding", "subjects removed", patch({"subjects": None}), {MANAGER: '{"f:roleRef":{}}'}),
    ("RoleBinding", "edited and replaced", in_turn(SUBJECT, again("RoleBinding")), {MANAGER: BINDING}),
    (
        "RoleBinding",
        "subjects applied",
        apply(True, roleRef=VIEW, subjects=[ACCOUNT]),
        {MANAGER: '{"f:roleRef":{}}', APPLIER: BINDING},
    ),
    (
        "RoleBinding",
        "labels",
        patch({"metadata": {"labels": {"x": "y"}}}),
        {MANAGER: BINDING, OTHER: '{"f:metadata":{"f:labels":{".":{},"f:x":{}}}}'},
    ),
]


@pytest.mark.parametrize(("kind", "edit", "owners"), [pytest.param(*(k, e, o), id=f"{k}: {n}") for k, n, e, o in EDITS])
def test_the_owners_of_fields(place: Place, kind: str, edit: Edit | None, owners: dict[str, str]) -> None:
    assert create(place, kind).status == 201

    if edit:
        assert edit(place, kind).status == 200

    found = place.send("GET", at(place, kind, "a")).owners()
    # The controller of quotas writes their status in the background.
    assert {name: fields for name, fields in found.items() if not name.endswith(" status")} == owners


CONFLICTS: list[tuple[str, Object, str]] = [
    ("NetworkPolicy", {"spec": {"podSelector": {}}}, ".spec.podSelector"),
    ("LimitRange", THREE_CPUS, ".spec.limits"),
    ("ResourceQuota", {"spec": {"hard": {"cpu": "2", "pods": "11"}}}, ".spec.hard.pods"),
    ("ResourceQuota", {"spec": {"hard": {"cpu": "2000m"}}}, ".spec.hard.cpu"),
    ("ResourceQuota", {"spec": {"hard": {"pods": 10}}}, ".spec.hard.pods"),
    ("ServiceAccount", {"automountServiceAccountToken": True}, ".automountServiceAccountToken"),
    ("RoleBinding", {"roleRef": VIEW, "subjects": [ACCOUNT]}, ".subjects"),
]


@pytest.mark.parametrize(("kind", "fields", "path"), CONFLICTS)
def test_an_apply_conflicts_also_in_another_notation(place: Place, kind: str, fields: Object, path: str) -> None:
    create(place, kind)

    answer = apply(**fields)(place, kind)

    by = f'conflict with "kube-chores" using {KINDS[kind][0]}'
    assert answer.problem == conflict(f"Apply failed with 1 conflict: {by}: {path}")


RULE = {"ports": [{"port": 80}, {"port": "http", "protocol": "UDP"}], "from": [{"namespaceSelector": {}}]}
LIMIT = {"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "2"}, "max": {"cpu": "2"}}
FULL_VIEW = {"roleRef": VIEW, "subjects": [{**USER, "apiGroup": RBAC}, {**GROUP, "apiGroup": RBAC}, ACCOUNT]}
BY_SCOPE = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}


def policy(**spec: Any) -> Object:
    return {"spec": {"podSelector": {}, **spec}}


def limits(**fields: Any) -> Object:
    return {"spec": {"limits": [{"type": "Container", **fields}]}}


def quota(**hard: Any) -> Object:
    return {"spec": {"hard": hard}}


DEFAULTS: list[tuple[str, Object, Object]] = [
    ("NetworkPolicy", {}, policy(policyTypes=["Ingress"])),
    ("NetworkPolicy", policy(ingress=[], egress=[], policyTypes=[]), policy(policyTypes=["Ingress"])),
    ("NetworkPolicy", policy(egress=[{}]), policy(egress=[{}], policyTypes=["Ingress", "Egress"])),
    ("NetworkPolicy", policy(policyTypes=["Egress"]), policy(policyTypes=["Egress"])),
    (
        "NetworkPolicy",
        policy(ingress=[RULE]),
        policy(
            ingress=[{**RULE, "ports": [{"port": 80, "protocol": "TCP"}, {"port": "http", "protocol": "UDP"}]}],
            policyTypes=["Ingress"],
        ),
    ),
    ("NetworkPolicy", {"spec": {"podSelector": None, "x": 1}, "status": {}}, policy(policyTypes=["Ingress"])),
    ("LimitRange", {}, {"spec": {"limits": None}}),
    ("LimitRange", limits(max={"cpu": "2000m"}), {"spec": {"limits": [LIMIT]}}),
    (
        "LimitRange",
        limits(min={"cpu": 0.1}, default={"memory": "1024Mi"}),
        limits(min={"cpu": "100m"}, default={"memory": "1Gi"}, defaultRequest={"cpu": "100m", "memory": "1Gi"}),
    ),
    (
        "LimitRange",
        {"spec": {"limits": [{"type": "Pod", "max": {"cpu": 4}, "min": {}}]}},
        {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "4"}}]}},
    ),
    ("ResourceQuota", {}, {"spec": {}, "status": {}}),
    ("ResourceQuota", {"spec": {"hard": {}}, "status": {"used": {"pods": "1"}}}, {"spec": {}, "status": {}}),
    (
        "ResourceQuota",
        {"spec": {"hard": {"pods": 1}, "scopes": ["BestEffort"]}},
        {"spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort"]}, "status": {}},
    ),
    (
        "ResourceQuota",
        {"spec": {"hard": {"pods": "1"}, "scopeSelector": BY_SCOPE}},
        {"spec": {"hard": {"pods": "1"}, "scopeSelector": BY_SCOPE}, "status": {}},
    ),
    ("ServiceAccount", {}, {}),
    ("ServiceAccount", {"imagePullSecrets": [], "secrets": None}, {}),
    ("ServiceAccount", {"imagePullSecrets": [{}, {"name": "x"}]}, {"imagePullSecrets": [{}, {"name": "x"}]}),
    ("RoleBinding", {"roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": []}, {"roleRef": VIEW}),
    ("RoleBinding", {"roleRef": {**VIEW, "apiGroup": ""}, "subjects": [USER, GROUP, ACCOUNT]}, FULL_VIEW),
    (
        "RoleBinding",
        {"roleRef": VIEW, "subjects": [{"kind": "ServiceAccount", "name": "s", "apiGroup": ""}]},
        {"roleRef": VIEW, "subjects": [{"kind": "ServiceAccount", "name": "s"}]},
    ),
]


def test_what_the_server_makes_of_an_object(place: Place) -> None:
    for kind, given, expected in DEFAULTS:
        answer = create(place, kind, given)
        assert answer.status == 201
        assert served(answer) == expected
        assert place.send("DELETE", at(place, kind, "a")).status == 200


QUANTITIES: list[tuple[object, str]] = [
    *(("2000m", "2"), ("2.0", "2"), ("1.5", "1500m"), ("0.0001", "1m"), ("0", "0"), ("1000", "1k")),
    *(("1e3", "1e3"), ("12e4", "120e3"), ("1E", "1E"), ("1500k", "1500k"), ("100000m", "100"), (".5", "500m")),
    *(("1024Mi", "1Gi"), ("1000Ki", "1000Ki"), ("1.5Gi", "1536Mi"), ("0.5Ki", "512"), ("2048", "2048")),
    *((1.5, "1500m"), (3, "3"), (" 4 ", "4"), ("1e-2", "10e-3"), ("3000000u", "3"), ("1.0001Ki", "1024103m")),
]


def test_the_notation_of_a_quantity(place: Place) -> None:
    for given, expected in QUANTITIES:
        made = create(place, "ResourceQuota", quota(cpu=given), query="&dryRun=All")
        assert served(made)["spec"] == {"hard": {"cpu": expected}}


QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def undecodable(what: str, where: str, expected: str) -> str:
    return f"json: cannot unmarshal {what} into Go struct field {where} of type {expected}"


UNDECODABLE: list[tuple[str, Object, str]] = [
    ("NetworkPolicy", {"spec": []}, undecodable("array", "NetworkPolicy.spec", "v1.NetworkPolicySpec")),
    (
        "NetworkPolicy",
        policy(ingress=[{"ports": [{"protocol": 1}]}]),
        undecodable("number", "NetworkPolicyPort.spec.ingress.ports.protocol", "v1.Protocol"),
    ),
    ("LimitRange", limits(max=[]), undecodable("array", "LimitRangeItem.spec.limits.max", "v1.ResourceList")),
    ("LimitRange", limits(max={"cpu": "abc"}), QUANTITY),
    ("ResourceQuota", quota(cpu=True), QUANTITY),
    ("ResourceQuota", quota(cpu="1x"), QUANTITY),
    ("ResourceQuota", quota(cpu="1ki"), "unable to parse quantity's suffix"),
    (
        "ResourceQuota",
        {"spec": {"scopes": {}}},
        undecodable("object", "ResourceQuotaSpec.spec.scopes", "[]v1.ResourceQuotaScope"),
    ),
    (
        "ServiceAccount",
        {"imagePullSecrets": ["x"]},
        undecodable("string", "ServiceAccount.imagePullSecrets", "v1.LocalObjectReference"),
    ),
    (
        "ServiceAccount",
        {"automountServiceAccountToken": "no"},
        undecodable("string", "ServiceAccount.automountServiceAccountToken", "bool"),
    ),
    ("RoleBinding", {"roleRef": "view"}, undecodable("string", "RoleBinding.roleRef", "v1.RoleRef")),
]


def test_values_of_another_type(place: Place) -> None:
    for kind, fields, why in UNDECODABLE:
        answer = create(place, kind, fields)

        assert answer.problem == bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {why}')


UNKNOWN: list[tuple[str, Object, list[str]]] = [
    (
        "NetworkPolicy",
        {"spec": {"podSelector": {"x": 1}, "y": 1}, "status": {}},
        ["spec.podSelector.x", "spec.y", "status"],
    ),
    ("LimitRange", {"spec": {"limits": [{"type": "Pod"}, {"type": "Container", "x": 1}]}}, ["spec.limits[1].x"]),
    ("ResourceQuota", {"spec": {"x": 1}}, ["spec.x"]),
    ("ServiceAccount", {"imagePullSecrets": [{"x": 1}], "y": 1}, ["imagePullSecrets[0].x", "y"]),
    ("RoleBinding", {"roleRef": {**VIEW, "x": 1}, "subjects": [{**USER, "x": 1}]}, ["roleRef.x", "subjects[0].x"]),
]


@pytest.mark.parametrize(("kind", "fields", "paths"), UNKNOWN)
def test_unknown_fields(place: Place, kind: str, fields: Object, paths: list[str]) -> None:
    strict = create(place, kind, fields, query="&fieldValidation=Strict")
    applied = apply(**{**fields, **({"roleRef": VIEW, "x": 1} if kind == "RoleBinding" else {})})(place, kind)

    listed = ", ".join(f'unknown field "{path}"' for path in paths)
    why = f'{kind} in version "v1" cannot be handled as a {kind}: strict decoding error: {listed}'
    assert strict.problem == bad_request(why)
    assert create(place, kind, fields).status == 201
    assert (applied.status, "field not declared in schema" in applied.message) == (500, True)


def value(field: str, given: Any, why: str) -> tuple[str, str, str]:
    text = given if isinstance(given, str) and given.startswith(("[", "{")) else f'"{given}"'
    return field, "FieldValueInvalid", f"Invalid value: {text if isinstance(given, str) else given}: {why}"


EDIT = {"APIGroup": RBAC, "Kind": "ClusterRole", "Name": "edit"}
CHANGE = '{"APIGroup":"rbac.authorization.k8s.io","Kind":"ClusterRole","Name":"edit"}'
TO_EDIT: dict[str, Edit] = {
    "merge patch": patch({"roleRef": {"name": "edit"}}),
    "strategic merge patch": patch({"roleRef": {"name": "edit"}}, STRATEGIC),
    "replace": replace(roleRef={**VIEW, "name": "edit"}),
    "apply": apply(True, roleRef={**VIEW, "name": "edit"}),
}


@pytest.mark.parametrize("way", TO_EDIT)
def test_the_role_of_a_binding_cannot_change(place: Place, way: str) -> None:
    create(place, "RoleBinding")

    answer = TO_EDIT[way](place, "RoleBinding")

    assert answer.status == 422
    assert answer.message == (
        f'RoleBinding.{RBAC} "a" is invalid: roleRef: Invalid value: {CHANGE}: cannot change roleRef'
    )
    assert answer.causes == {value("roleRef", CHANGE, "cannot change roleRef")}


def test_the_scopes_of_a_quota_cannot_change(place: Place) -> None:
    create(place, "ResourceQuota", {"spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort"]}})

    answer = patch({"spec": {"scopes": None}})(place, "ResourceQuota")

    assert answer.causes == {("spec.scopes", "FieldValueInvalid", "Invalid value: null: field is immutable")}


@pytest.mark.parametrize("kind", KINDS)
def test_names(place: Place, kind: str) -> None:
    allowed = [
        name for name in ("a:b", "A_b", "system:x", "a.b", "a b") if create(place, kind, name=name).status == 201
    ]

    assert allowed == (["a:b", "A_b", "system:x", "a.b", "a b"] if kind == "RoleBinding" else ["a.b"])
    for name in allowed:
        query = f"{at(place, kind)}?fieldSelector=metadata.name={quote(name)}"
        (found,) = place.send("GET", query, accept=METADATA_LIST).body["items"]
        assert found["metadata"]["name"] == name
        assert place.send("GET", at(place, kind, name)).status == 200


@pytest.mark.parametrize("name", ["a/b", "a%b", "..", "."])
def test_names_that_no_path_can_have(place: Place, name: str) -> None:
    assert create(place, "RoleBinding", name=name).status == 422


@pytest.mark.parametrize("kind", KINDS)
def test_lists(place: Place, kind: str) -> None:
    for name in ("a", "b", "c"):
        labels = {"set": place.namespace, **({"odd": "yes"} if name == "b" else {})}
        body = {"metadata": {"name": name, "labels": labels}, **KINDS[kind][2]}
        assert place.send("POST", at(place, kind), body).status == 201
    base = f"{at(place, kind)}?labelSelector=set={place.namespace}"

    whole = place.send("GET", base)
    first = place.send("GET", f"{base}&limit=2", accept=METADATA_LIST)
    rest = place.send("GET", f"{base}&limit=2&continue={first.body['metadata']['continue']}", accept=METADATA_LIST)
    odd = place.send("GET", f"{base},odd")

    assert (whole.body["kind"], whole.body["apiVersion"]) == (f"{kind}List", KINDS[kind][0])
    assert [item["metadata"]["name"] for item in whole.body["items"]] == ["a", "b", "c"]
    names = [[item["metadata"]["name"] for item in page.body["items"]] for page in (first, rest, odd)]
    assert names == [["a", "b"], ["c"], ["b"]]
    assert set(first.body["items"][0]) == {"kind", "apiVersion", "metadata"}
    everywhere = place.send(
        "GET", f"/{base.split('/namespaces/')[0].lstrip('/')}/{KINDS[kind][1]}?{base.split('?')[1]}"
    )
    assert len(everywhere.body["items"]) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_dry_run_stores_nothing(place: Place, kind: str) -> None:
    made = create(place, kind, query="&dryRun=All")
    assert made.status == 201
    assert place.send("GET", at(place, kind, "a")).status == 404

    create(place, kind)
    patched = place.send("PATCH", f"{at(place, kind, 'a')}?dryRun=All", {"metadata": {"labels": {"x": "y"}}}, MERGE)
    deleted = place.send("DELETE", f"{at(place, kind, 'a')}?dryRun=All")

    assert (patched.body["metadata"]["labels"], deleted.status) == ({"x": "y"}, 200)
    assert "labels" not in place.send("GET", at(place, kind, "a")).body["metadata"]
    assert create(place, kind, query="&dryRun=All").status == 409


RETURNED = ("ResourceQuota", "ServiceAccount")  # a deletion answers with the object


@pytest.mark.parametrize("kind", KINDS)
def test_a_deletion_with_preconditions(place: Place, kind: str) -> None:
    made = create(place, kind).body["metadata"]
    path = at(place, kind, "a")

    old = place.send("DELETE", path, {"preconditions": {"uid": made["uid"], "resourceVersion": "1"}})
    other = place.send("DELETE", path, {"preconditions": {"uid": "11111111-1111-1111-1111-111111111111"}})
    deleted = place.send("DELETE", path, {"preconditions": {"uid": made["uid"]}})

    assert [old.status, other.status, deleted.status] == [409, 409, 200]
    assert "the ResourceVersion in the precondition (1) does not match" in old.message
    assert deleted.body["kind"] == (kind if kind in RETURNED else "Status")
    assert place.send("GET", path).status == 404


@pytest.mark.parametrize("kind", KINDS)
def test_a_replacement_of_an_older_version_conflicts(place: Place, kind: str) -> None:
    made = create(place, kind).body
    patch({"metadata": {"labels": {"x": "y"}}})(place, kind)

    answer = place.send("PUT", at(place, kind, "a"), made)

    plural = KINDS[kind][1] + (f".{KINDS[kind][0].split('/')[0]}" if "/" in KINDS[kind][0] else "")
    assert answer.problem == conflict(f'Operation cannot be fulfilled on {plural} "a": {MODIFIED}')


@pytest.mark.parametrize("kind", KINDS)
def test_discovery(place: Place, kind: str) -> None:
    version, plural, _ = KINDS[kind]
    resources = place.send("GET", f"/apis/{version}" if "/" in version else f"/api/{version}").body["resources"]

    (found,) = [each for each in resources if each["name"] == plural]
    verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    short = {
        "NetworkPolicy": ["netpol"],
        "LimitRange": ["limits"],
        "ResourceQuota": ["quota"],
        "ServiceAccount": ["sa"],
    }
    assert (found["kind"], found["singularName"], found["verbs"]) == (kind, kind.lower(), verbs)
    assert found.get("shortNames", []) == short.get(kind, [])


def test_only_policies_have_a_generation(place: Place) -> None:
    made = {kind: create(place, kind).body["metadata"].get("generation") for kind in KINDS}
    patched = POD_SELECTOR(place, "NetworkPolicy")
    labelled = patch({"metadata": {"labels": {"x": "y"}}})(place, "NetworkPolicy")

    assert made == {**dict.fromkeys(KINDS), "NetworkPolicy": 1}
    assert [each.body["metadata"]["generation"] for each in (patched, labelled)] == [2, 2]


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("NetworkPolicy", ["Name", "Pod-Selector", "Age"]),
        ("LimitRange", ["Name", "Created At"]),
        ("ResourceQuota", ["Name", "Request", "Limit", "Age"]),
        ("RoleBinding", ["Name", "Role", "Age"]),
    ],
)
def test_tables(place: Place, kind: str, columns: list[str]) -> None:
    definitions = place.send("GET", at(place, kind), accept=TABLE).body["columnDefinitions"]

    assert [each["name"] for each in definitions if each["priority"] == 0] == columns


@pytest.fixture
def counted(place: Place) -> Place:
    """A quota whose status its controller has written; the embedded server has no such controller."""
    create(place, "ResourceQuota", quota(pods="10"))
    path = at(place, "ResourceQuota", "a")
    if place.api.kind == "sandbox":
        status = {"status": {"hard": {"pods": "10"}, "used": {"pods": "0"}}}
        place.send("PATCH", f"{path}/status?fieldManager=kube-controller-manager", status, MERGE)
    wait_for(lambda: place.send("GET", path).body["status"].get("used") == {"pods": "0"}, "the status of the quota")
    return place


COUNTED = '{"f:status":{"f:hard":{".":{},"f:pods":{}},"f:used":{".":{},"f:pods":{}}}}'
CONTROLLER = "kube-controller-manager Update status"


def test_the_status_of_a_quota_has_its_own_owner(counted: Place) -> None:
    path = at(counted, "ResourceQuota", "a")
    assert counted.send("GET", path).owners() == {
        MANAGER: '{"f:spec":{"f:hard":{".":{},"f:pods":{}}}}',
        CONTROLLER: COUNTED,
    }

    both = {"status": {"used": {"pods": "2"}}, "spec": {"hard": {"pods": "99"}}, "metadata": {"labels": {"x": "y"}}}
    answer = counted.send("PATCH", f"{path}/status?fieldManager=other", both, MERGE)

    assert answer.body["spec"] == {"hard": {"pods": "10"}}
    assert answer.body["status"] == {"hard": {"pods": "10"}, "used": {"pods": "2"}}
    assert answer.body["metadata"]["labels"] == {"x": "y"}  # a write of the status can set labels
    assert answer.owners() == {
        MANAGER: '{"f:spec":{"f:hard":{".":{},"f:pods":{}}}}',
        CONTROLLER: '{"f:status":{"f:hard":{".":{},"f:pods":{}},"f:used":{}}}',
        "other Update status": '{"f:metadata":{"f:labels":{".":{},"f:x":{}}},"f:status":{"f:used":{"f:pods":{}}}}',
    }


def test_a_replacement_of_a_quota_leaves_its_status(counted: Place) -> None:
    body = {"metadata": {"name": "a"}, "spec": {"hard": {"pods": "10"}}, "status": {"used": {"pods": "9"}}}

    answer = counted.send("PUT", f"{at(counted, 'ResourceQuota', 'a')}?fieldManager=kube-chores", body)

    assert answer.body["status"] == {"hard": {"pods": "10"}, "used": {"pods": "0"}}
    assert answer.owners() == {MANAGER: '{"f:spec":{"f:hard":{".":{},"f:pods":{}}}}', CONTROLLER: COUNTED}


def test_the_default_account_of_a_namespace_comes_back(place: Place) -> None:
    path = at(place, "ServiceAccount", "default")
    assert until(lambda: place.send("GET", path).status == 200)
    first = place.send("GET", path).body
    assert served(place.send("GET", path)) == {}

    place.send("DELETE", path)

    assert until(lambda: place.send("GET", path).body["metadata"].get("uid") not in (None, first["metadata"]["uid"]))


def test_a_deleted_namespace_takes_them_along(place: Place) -> None:
    for kind in KINDS:
        assert create(place, kind).status == 201

    place.send("DELETE", f"/api/v1/namespaces/{place.namespace}")

    refused = create(place, "LimitRange", name="late")
    assert (refused.status, refused.body["reason"]) in ((403, "Forbidden"), (404, "NotFound"))
    assert until(lambda: place.send("GET", f"/api/v1/namespaces/{place.namespace}").status == 404, 30)
    for kind in KINDS:
        assert place.send("GET", at(place, kind)).body["items"] == []


RECREATED = ("LimitRange", "RoleBinding")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", [{}, {"resourceVersion": "1"}])
def test_a_replacement_of_a_missing_object_may_create_it(place: Place, kind: str, version: Object) -> None:
    body = {"metadata": {"name": "a", **version}, **KINDS[kind][2]}

    dry = place.send("PUT", f"{at(place, kind, 'a')}?dryRun=All", body)
    answer = place.send("PUT", f"{at(place, kind, 'a')}?fieldManager=kube-chores", body)

    assert (dry.status, answer.status) == ((201, 201) if kind in RECREATED else (404, 404))
    if kind in RECREATED:
        assert MANAGER in answer.owners()


@pytest.mark.parametrize("kind", KINDS)
def test_a_replacement_with_a_uid_creates_nothing(place: Place, kind: str) -> None:
    uid = "11111111-1111-1111-1111-111111111111"
    body = {"metadata": {"name": "a", "uid": uid, "resourceVersion": "1"}, **KINDS[kind][2]}

    answer = place.send("PUT", at(place, kind, "a"), body)

    assert (answer.status, answer.body["reason"]) == ((409, "Conflict") if kind in RECREATED else (404, "NotFound"))
    assert (
        kind not in RECREATED
        or f"Precondition failed: UID in precondition: {uid}, UID in object meta: " in answer.message
    )
