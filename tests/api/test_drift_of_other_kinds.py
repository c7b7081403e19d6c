"""The known ways to change a copy of the other five kinds, and what the next run does about each.

The results are those of tests/api/test_drift.py. REJECTED: the API server does not accept the change. One test makes
all changes of a kind, each of another copy in the same namespace.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from tests.api.conftest import Run
from tests.api.test_copies_of_tenants import quota
from tests.api.test_drift import CONFLICT, NOT_DETECTED, OF_HELM, REJECTED, REPAIRED, UNCHANGED, ends_of
from tests.api.test_rights import Right, allowed
from tests.apis import Api, Object, wait_for
from tests.edits import (
    JSON_PATCH,
    Edit,
    FieldPath,
    annotated,
    apply,
    changed_and_changed_back,
    client_side_apply,
    created_by_hand,
    forged_by,
    in_turn,
    nested,
    nothing,
    patch,
    put,
    removing,
    restored,
    same_values,
    set_in,
    setting,
)
from tests.manifests import everything
from tests.rights import RBAC
from tests.worlds import (
    at,
    cluster_role_ref,
    content,
    limit_range,
    network_policy,
    resource_quota,
    role_binding,
    rule,
    service_account,
)

Ends = dict[str, tuple[Edit, str]]


class Sample(NamedTuple):
    """A kind of copies.

    `fields` has two values by the path of each copied field that can be changed; the source has the first one. Edits
    of any field change the first of `fields`.
    """

    build: Callable[..., Object]
    source: Object
    fields: Mapping[FieldPath, tuple[Any, Any]]
    edits: Ends
    spec: Mapping[str, Any] = MappingProxyType({})

    @property
    def path(self) -> FieldPath:
        """The path of the field that edits of any field change."""
        return next(iter(self.fields))

    @property
    def other(self) -> Any:
        """The other value of that field."""
        return self.fields[self.path][1]


def ports(number: int) -> Object:
    return {"ports": [{"protocol": "TCP", "port": number}]}


def pods(app: str) -> Object:
    return {"matchLabels": {"app": app}}


def cpus(number: int) -> Object:
    return {"type": "Container", "max": {"cpu": str(number)}}


STORAGE = {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}


def priority(name: str) -> Object:
    return {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": [name]}]}


def user(name: str) -> Object:
    return {"apiGroup": RBAC, "kind": "User", "name": name}


def added(path: FieldPath, item: Any) -> Edit:
    """Append an item to a list, as a JSON patch."""
    return patch([{"op": "add", "path": f"/{'/'.join(path)}/-", "value": item}], JSON_PATCH)


def item_removed(path: FieldPath) -> Edit:
    return patch([{"op": "remove", "path": f"/{'/'.join(path)}/0"}], JSON_PATCH)


def reordered(path: FieldPath) -> Edit:
    return put(lambda now: now[path[0]].reverse() if len(path) == 1 else now[path[0]][path[1]].reverse())


def secrets_set(api: Api, copy: Object) -> None:
    patch({"secrets": [{"name": "token"}]})(api, copy)


SUBJECTS = [user("ann"), {"kind": "ServiceAccount", "name": "robot", "namespace": "ci"}]
BINDING_EDITS: Ends = {
    "a subject added": (added(("subjects",), user("eve")), REPAIRED),
    "a subject removed": (item_removed(("subjects",)), REPAIRED),
    "the subjects in another order": (reordered(("subjects",)), REPAIRED),
    "`roleRef` changed": (patch({"roleRef": cluster_role_ref("edit")}), REJECTED),
    "`roleRef` changed by forced server-side apply": (
        apply(force=True, roleRef=cluster_role_ref("edit")),
        REJECTED,
    ),
    "copy deleted, and created by hand without labels, with another `roleRef`": (
        created_by_hand(roleRef=cluster_role_ref("edit")),
        CONFLICT,
    ),
    "copy deleted, and restored from a backup with another `roleRef`": (
        restored(("roleRef",), cluster_role_ref("edit")),
        REPAIRED,
    ),
}
BINDING = Sample(
    role_binding,
    {"subjects": SUBJECTS},
    {("subjects",): (SUBJECTS, [user("eve")])},
    BINDING_EDITS,
)
TARGET = "RoleBinding, `subjectNamespace: target`"
SAMPLES: dict[str, Sample] = {
    "NetworkPolicy": Sample(
        network_policy,
        {"spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [ports(80)]}},
        {
            ("spec", "ingress"): ([ports(80)], [ports(443)]),
            ("spec", "egress"): ([ports(53)], [{}]),
            ("spec", "podSelector"): (pods("web"), pods("db")),
            ("spec", "policyTypes"): (["Ingress", "Egress"], ["Egress"]),
        },
        {
            "a rule added to `spec.ingress`": (added(("spec", "ingress"), ports(22)), REPAIRED),
            "all rules of `spec.ingress` removed": (item_removed(("spec", "ingress")), REPAIRED),
            "a rule changed within `spec.ingress`": (
                patch([{"op": "replace", "path": "/spec/ingress/0/ports/0/port", "value": 81}], JSON_PATCH),
                REPAIRED,
            ),
            "an empty list of `spec.egress` set": (patch({"spec": {"egress": []}}), UNCHANGED),
        },
    ),
    "LimitRange": Sample(
        limit_range,
        {"spec": {"limits": [cpus(2), {"type": "Pod", "max": {"cpu": "4"}}]}},
        {("spec", "limits"): ([cpus(2)], [cpus(3)])},
        {
            "a limit added": (added(("spec", "limits"), STORAGE), REPAIRED),
            "a limit removed": (item_removed(("spec", "limits")), REPAIRED),
            "a limit changed within `spec.limits`": (
                patch([{"op": "replace", "path": "/spec/limits/1/max/cpu", "value": "8"}], JSON_PATCH),
                REPAIRED,
            ),
            "the limits in another order": (reordered(("spec", "limits")), REPAIRED),
            "the same quantity in other units": (
                patch([{"op": "replace", "path": "/spec/limits/1/max/cpu", "value": "4000m"}], JSON_PATCH),
                UNCHANGED,
            ),
        },
    ),
    "ResourceQuota": Sample(
        resource_quota,
        {"spec": {"hard": {"pods": "100", "requests.cpu": "50"}}},
        {
            ("spec", "hard", "pods"): ("100", "7"),
            ("spec", "hard", "requests.cpu"): ("50", "60"),
            ("spec", "scopeSelector"): (priority("low"), priority("high")),
        },
        {
            "`spec.hard` removed": (patch({"spec": {"hard": None}}), REPAIRED),
            "`spec` removed": (patch({"spec": None}), REPAIRED),
            "the same quantity in other units": (patch({"spec": {"hard": {"requests.cpu": "50000m"}}}), UNCHANGED),
            "`status` changed": (patch({"status": {"hard": {"pods": "3"}}}, subresource="/status"), UNCHANGED),
            "`spec.scopes` changed": (patch({"spec": {"scopes": ["Terminating"]}}), REJECTED),
            "copy deleted, and restored from a backup with other `spec.scopes`": (
                restored(("spec", "scopes"), ["Terminating"]),
                REPAIRED,
            ),
        },
    ),
    "RoleBinding": BINDING,
    TARGET: BINDING._replace(
        spec={"subjectNamespace": "target"},
        edits={
            **BINDING_EDITS,
            "the namespace of a ServiceAccount changed to that of the source": (
                patch([{"op": "replace", "path": "/subjects/1/namespace", "value": "ci"}], JSON_PATCH),
                REPAIRED,
            ),
        },
    ),
    "ServiceAccount": Sample(
        service_account,
        {"imagePullSecrets": [{"name": "registry"}, {"name": "mirror"}], "automountServiceAccountToken": False},
        {
            ("imagePullSecrets",): ([{"name": "registry"}, {"name": "mirror"}], [{"name": "other"}]),
            ("automountServiceAccountToken",): (False, True),
        },
        {
            "an imagePullSecret added": (added(("imagePullSecrets",), {"name": "other"}), REPAIRED),
            "an imagePullSecret removed": (item_removed(("imagePullSecrets",)), REPAIRED),
            "the imagePullSecrets in another order": (reordered(("imagePullSecrets",)), REPAIRED),
            "`secrets` changed": (secrets_set, UNCHANGED),
            "`secrets` and an imagePullSecret changed": (
                in_turn(secrets_set, added(("imagePullSecrets",), {"name": "other"})),
                REPAIRED,
            ),
        },
    ),
}


def edits_of_any_field(sample: Sample) -> Ends:
    """Return the edits that all kinds have."""
    change = patch(nested(sample.path, sample.other))
    cleared = patch({"metadata": {"managedFields": [{}]}})
    return {
        "no change": (nothing, UNCHANGED),
        "same values by merge patch": (same_values(patch), UNCHANGED),
        "same object by replace": (put(lambda now: None), UNCHANGED),
        "same values by client-side apply": (same_values(client_side_apply), UNCHANGED),
        "same values by server-side apply": (same_values(lambda fields: apply(**fields)), UNCHANGED),
        "same values by forced server-side apply": (same_values(lambda fields: apply(force=True, **fields)), UNCHANGED),
        "field changed and changed back": (changed_and_changed_back(sample.path, sample.other), UNCHANGED),
        "managedFields cleared": (cleared, UNCHANGED),
        "managedFields cleared, then field changed": (in_turn(cleared, change), REPAIRED),
        "field changed, then managedFields cleared": (in_turn(change, cleared), REPAIRED),
        "annotation with the fingerprint changed": (annotated("fingerprint", "v1:0"), REPAIRED),
        "annotation with the fingerprint removed": (annotated("fingerprint", None), REPAIRED),
        "label added": (patch({"metadata": {"labels": {"team": "blue"}}}), UNCHANGED),
        "annotation added": (patch({"metadata": {"annotations": {"note": "hello"}}}), UNCHANGED),
        "label managed-by changed, then field changed": (in_turn(OF_HELM, change), CONFLICT),
        "copy deleted": (lambda api, copy: api.delete(copy), REPAIRED),
        "copy deleted, and created by hand without labels": (created_by_hand(), CONFLICT),
        "copy deleted, and restored from a backup with another value": (restored(sample.path, sample.other), REPAIRED),
        "field changed by a client with the field manager kube-chores": (
            patch(nested(sample.path, sample.other), manager="kube-chores"),
            NOT_DETECTED,
        ),
        "field changed, and managedFields forged": (forged_by(change), NOT_DETECTED),
    }


def documented() -> Iterator[tuple[str, str, str]]:
    """Yield the kind, a change that only this kind has, and its end: the rows of a table in docs/drift.md."""
    for kind, sample in SAMPLES.items():
        if kind != TARGET:  # the fields are those of other RoleBindings
            yield kind, f"{listed(sample.fields)} changed, added or removed", REPAIRED
        known = SAMPLES["RoleBinding"].edits if kind == TARGET else {}
        yield from ((kind, name, end) for name, (_, end) in sample.edits.items() if name not in known)


def listed(paths: Iterable[FieldPath]) -> str:
    names = [f"`{'.'.join(path)}`" for path in paths]
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


Case = tuple[str, Object, Edit, str]  # a name, the source, the change of its copy, and what the next run does


def cases_of(kind: str) -> Iterator[Case]:
    sample = SAMPLES[kind]
    for name, (edit, end) in {**edits_of_any_field(sample), **sample.edits}.items():
        yield name, sample.source, edit, end
    for path, (value, other) in sample.fields.items():
        field = ".".join(path)
        for way, edit in setting(path, other).items():
            yield f"{field} changed by {way}", set_in(deepcopy(sample.source), path, value), edit, REPAIRED
            yield f"{field} added by {way}", set_in(deepcopy(sample.source), path, None), edit, REPAIRED
        for way, edit in removing(path, other).items():
            yield f"{field} removed by {way}", set_in(deepcopy(sample.source), path, value), edit, REPAIRED


def desired(source: Object, sample: Sample, namespace: str) -> Object:
    """Return the content of the source's copy in this namespace."""
    found = deepcopy(content(source) or {})
    for subject in found.get("subjects", ()):
        if "subjectNamespace" in sample.spec and subject["kind"] == "ServiceAccount":
            subject["namespace"] = namespace
    return found


def copies_of(api: Api, sync: Run, sample: Sample, home: str, team: str, sources: list[Object]) -> list[Object]:
    """Create sources named edit-0 and so on, a rule of their kind, and their copies; return the sources."""
    kind = sample.build("")["kind"].lower()
    created = [api.create(sample.build(home, f"edit-{number}", **each)) for number, each in enumerate(sources)]
    api.create(rule("rule", home, team, ruleType=kind, **sample.spec))
    assert sync().summary == {"created": len(created)}
    return created


@pytest.mark.parametrize("kind", SAMPLES)
def test_an_edit_of_a_copy(api: Api, sync: Run, kind: str, home: str, team: str) -> None:
    sample, cases = SAMPLES[kind], list(cases_of(kind))
    sources = copies_of(api, sync, sample, home, team, [source for _, source, _, _ in cases])
    contents = [desired(each, sample, team) for each in sources]

    found = ends_of(api, sync, [edit for _, _, edit, _ in cases], [at(team, each) for each in sources], contents)

    assert {name: end for (name, *_), end in zip(cases, found, strict=True)} == {name: end for name, *_, end in cases}


# Sources with all fields of a kind, with few, and with empty ones.
SHAPES: Mapping[str, list[Object]] = {
    "NetworkPolicy": [
        {"spec": {"podSelector": {}}},
        {"spec": {"podSelector": {}, "policyTypes": ["Egress"]}},
        {"spec": {"podSelector": pods("web"), "ingress": [{}], "egress": [{}]}},
        {"spec": {"podSelector": {"matchLabels": {}}, "ingress": [], "policyTypes": ["Ingress"]}},
        {
            "spec": {
                "podSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
                "ingress": [
                    {
                        "from": [{"podSelector": {}}, {"namespaceSelector": {}}],
                        "ports": [{"port": 80, "endPort": 90}, {"port": "https"}, {"protocol": "UDP"}],
                    }
                ],
                "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}],
            }
        },
    ],
    "LimitRange": [
        {"spec": {"limits": []}},
        {"spec": {"limits": [cpus(2), STORAGE, {"type": "Pod", "maxLimitRequestRatio": {"cpu": "2500m"}}]}},
    ],
    "ResourceQuota": [
        {"spec": {}},
        {"spec": {"hard": {}}},
        {"spec": {"hard": {"pods": "0", "requests.cpu": "1500m", "count/deployments.apps": "1k"}}},
        {"spec": {"hard": {"pods": "1"}, "scopes": ["NotTerminating", "BestEffort"]}},
        {"spec": {"scopeSelector": priority("low")}},
        {"spec": {"hard": {"pods": "1"}, "scopeSelector": {}}},
    ],
    "RoleBinding": [{"subjects": None}, {"subjects": []}, {"subjects": SUBJECTS}],
    "ServiceAccount": [
        {"imagePullSecrets": None},
        {"imagePullSecrets": [], "secrets": [{"name": "token"}]},
        {"imagePullSecrets": [{"name": "registry"}]},
        {"automountServiceAccountToken": True},
        {"automountServiceAccountToken": False},
    ],
}


@pytest.mark.parametrize("kind", SHAPES)
def test_a_converged_sweep_writes_nothing_and_reads_no_single_object(
    api: Api, sync: Run, kind: str, home: str, team: str
) -> None:
    sample = SAMPLES[kind]
    sources = copies_of(api, sync, sample, home, team, SHAPES[kind])
    assert [content(api.get(at(team, each))) for each in sources] == [content(each) for each in sources]

    def assert_converged() -> None:
        api.mark()
        assert sync().summary == {"unchanged": len(sources)}
        assert api.writes() == []
        assert [each.path for each in api.requests() if each.method == "GET" and "limit" not in each.query] == []
        assert sync("--verify=content").summary == {"unchanged": len(sources)}

    assert_converged()
    if kind != "ResourceQuota":  # whose scopes no update can change
        for number, fields in enumerate([*SHAPES[kind][1:], SHAPES[kind][0]]):
            api.replace(sample.build(home, f"edit-{number}", **fields))
        assert sync().summary.keys() <= {"configured", "unchanged"}
        assert_converged()


# By kind: two contents of a source; no update can change one to the other.
RECREATED: Mapping[str, tuple[Object, Object]] = {
    "RoleBinding": ({"roleRef": cluster_role_ref("view")}, {"roleRef": cluster_role_ref("edit")}),
    "ResourceQuota": (
        {"spec": {"hard": {"pods": "1"}}},
        {"spec": {"hard": {"pods": "1"}, "scopes": ["NotTerminating", "NotBestEffort"]}},
    ),
}


@pytest.fixture
def may_bind_edit(api: Api, installed: Path) -> None:
    """Let sync-copies bind ClusterRole edit too."""
    name = "kube-chores-sync-copies-rolebindings"
    role = next(each for each in everything() if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", name))
    lists, binds = role["rules"]
    api.patch(role, {"rules": [lists, {**binds, "resourceNames": ["view", "edit"]}]})
    right = Right("sync-copies", "ClusterRole", "", "clusterroles", "bind", name="edit")
    wait_for(lambda: allowed(api, right), "the authorizer to learn the right to bind")


@pytest.mark.usefixtures("may_bind_edit")
@pytest.mark.parametrize("kind", RECREATED)
def test_a_copy_is_recreated_if_no_update_can_change_it(api: Api, sync: Run, kind: str, home: str, team: str) -> None:
    sample, (before, after) = SAMPLES[kind], RECREATED[kind]
    [source] = copies_of(api, sync, sample, home, team, [before])
    first = api.read(at(team, source))
    api.create(sample.build(team, "kube-chores-trial", **before))  # a tenant's: it cannot have the trial's name
    api.delete(source)
    changed = api.create(sample.build(home, "edit-0", **after))
    api.mark()

    ran = sync()

    assert (ran.exit_code, ran.summary) == (0, {"replaced": 1})
    copy = api.read(at(team, source))
    assert (content(copy), copy["metadata"]["uid"] == first["metadata"]["uid"]) == (content(changed), False)
    written = [(each.method, each.query.get("dryRun"), each.status) for each in api.copy_writes()]
    assert written == [("PUT", None, 422), ("POST", "All", 201), ("DELETE", None, 200), ("POST", None, 201)]
    assert sync().summary == {"unchanged": 1}


@pytest.mark.cluster  # the embedded server does not count the objects of a quota
@pytest.mark.parametrize("api", ["real"], indirect=True)
@pytest.mark.usefixtures("may_bind_edit")
@pytest.mark.parametrize(
    ("kind", "counted"),
    [("RoleBinding", "count/rolebindings.rbac.authorization.k8s.io"), ("ResourceQuota", "resourcequotas")],
)
def test_a_copy_stays_if_the_server_does_not_accept_its_successor(
    api: Api, sync: Run, kind: str, counted: str, home: str, team: str
) -> None:
    sample, (before, after) = SAMPLES[kind], RECREATED[kind]
    [source] = copies_of(api, sync, sample, home, team, [before])
    full = quota(api, team, counted)
    first = api.read(at(team, source))
    api.delete(source)
    api.create(sample.build(home, "edit-0", **after))
    api.mark()

    ran = sync()

    assert (ran.exit_code, ran.summary, ran.results[0]["code"]) == (0, {"failed": 1}, "quota-exceeded")
    assert [(each.method, each.status) for each in api.copy_writes()] == [("PUT", 422), ("POST", 403)]
    copy = api.read(at(team, source))
    assert (copy["metadata"]["uid"], content(copy)) == (first["metadata"]["uid"], content(first))
    api.delete(full)
    wait_for(lambda: sync().summary == {"replaced": 1}, "the quota to be forgotten")


def test_the_scopes_of_a_quota_in_another_order_are_updated_in_place(api: Api, sync: Run, home: str, team: str) -> None:
    scopes = ["NotTerminating", "NotBestEffort"]
    [source] = copies_of(api, sync, SAMPLES["ResourceQuota"], home, team, [{"spec": {"scopes": scopes}}])
    patch({"spec": {"scopes": scopes[::-1]}})(api, at(team, source))

    assert sync().summary == {"configured": 1}
    assert content(api.get(at(team, source))) == content(source)


@pytest.mark.parametrize(
    ("kind", "other", "why"),
    [
        ("ResourceQuota", {"spec": {"scopes": ["Terminating"]}}, 'spec.scopes is ["Terminating"], the spec.scopes of'),
        ("ResourceQuota", {"spec": {}}, "its spec.scopes is not set, the"),
        (
            "RoleBinding",
            {"roleRef": cluster_role_ref("edit")},
            "roleRef is ClusterRole edit, the roleRef of the source is ClusterRole view",
        ),
    ],
)
def test_an_object_that_must_be_recreated_is_not_adopted(
    api: Api, sync: Run, kind: str, other: Object, why: str, home: str, team: str
) -> None:
    sample = SAMPLES[kind]
    fields = {"spec": {"scopes": ["NotTerminating"]}} if kind == "ResourceQuota" else {}
    api.create(sample.build(home, **fields))
    theirs = api.create(sample.build(team, **other))
    api.create(rule("rule", home, team, ruleType=kind.lower(), conflict="Adopt"))

    ran = sync()

    assert (ran.exit_code, ran.summary) == (0, {"conflict": 1})
    assert why in ran.results[0]["reason"]
    assert content(api.get(theirs)) == content(theirs)
