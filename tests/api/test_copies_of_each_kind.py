"""The kinds that sync-copies copies only with a component: what users do with each, on both API servers."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.api.conftest import Run
from tests.api.test_safety import ready
from tests.apis import Api, Object, wait_for
from tests.rights import account, bind_adopt, can_i, grant
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


class Copied(NamedTuple):
    """A kind: how a test builds an object of it, two changes of that as merge patches, and the changed field."""

    make: Callable[..., Object]
    changed: Object
    edited: Object
    field: str

    @property
    def type(self) -> str:
        """The ruleType of its rules."""
        return str(self.make("any")["kind"]).lower()


def _limits(cpu: str) -> Object:
    return {"spec": {"limits": [{"type": "Container", "default": {"cpu": cpu}}]}}


def _group(name: str) -> Object:
    return {"subjects": [{"kind": "Group", "name": name, "apiGroup": "rbac.authorization.k8s.io"}]}


KINDS = [
    Copied(
        network_policy,
        {"spec": {"policyTypes": ["Ingress", "Egress"]}},
        {"spec": {"policyTypes": ["Egress"]}},
        "spec.policyTypes",
    ),
    Copied(limit_range, _limits("2"), _limits("3"), "spec.limits"),
    Copied(resource_quota, {"spec": {"hard": {"pods": "9"}}}, {"spec": {"hard": {"pods": "99"}}}, "spec.hard.pods"),
    Copied(role_binding, _group("readers"), _group("writers"), "subjects"),
    Copied(
        service_account,
        {"automountServiceAccountToken": None},
        {"automountServiceAccountToken": True},
        "automountServiceAccountToken",
    ),
]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.type)
def kind(request: pytest.FixtureRequest) -> Copied:
    found: Copied = request.param
    return found


@pytest.fixture
def source(api: Api, kind: Copied, home: str) -> Object:
    return api.create(kind.make(home))


def rule_of(api: Api, kind: Copied, home: str, **spec: Any) -> Object:
    """Create the rule for all other namespaces of the test."""
    return api.create(rule("things", home, f"*-{api.token}", ruleType=kind.type, **spec))


def test_a_copy_follows_its_source_is_repaired_and_is_deleted_with_it(
    api: Api, sync: Run, kind: Copied, source: Object, home: str, team: str
) -> None:
    rule_of(api, kind, home)
    copy = at(team, source)
    assert sync().summary == {"created": 1}
    assert content(api.read(copy)) == content(source)
    api.mark()
    assert (sync().summary, api.writes()) == ({"unchanged": 1}, [])

    changed = api.patch(source, kind.changed)
    assert (sync().summary, content(api.read(copy))) == ({"configured": 1}, content(changed))

    api.patch(copy, kind.edited)
    ran = sync()
    assert (ran.summary, content(api.read(copy))) == ({"configured": 1}, content(changed))
    assert [each["reason"] for each in ran.results] == [f"{kind.field} changed by tests"]
    assert ready(api, "things") == {"status": "True", "reason": "Synced", "message": "1 copy"}

    api.delete(source)
    assert (sync().summary, api.get(copy)) == ({"deleted": 1}, None)


def test_an_object_of_others_stays_untouched_unless_the_rule_adopts_it(
    api: Api, sync: Run, kind: Copied, source: Object, home: str, team: str
) -> None:
    theirs = kind.make(team, labels={"team": "blue"})
    before = api.patch(api.create(theirs), kind.edited)
    rule_of(api, kind, home)
    assert (sync().summary, content(api.read(before))) == ({"conflict": 1}, content(before))

    bind_adopt(api)
    api.patch(rule("things", "", ""), {"spec": {"conflict": "Adopt"}})
    assert sync().summary == {"configured": 1}

    after = api.read(before)
    assert content(after) == content(source)
    assert (after["metadata"]["uid"], after["metadata"]["labels"]["team"]) == (before["metadata"]["uid"], "blue")
    assert sync().summary == {"unchanged": 1}


def test_the_brake_counts_the_deletions_of_each_kind(api: Api, sync: Run, home: str) -> None:
    for number in range(11):
        api.namespace(f"team-{number}")
    kind, other = KINDS[:2]
    source = api.create(kind.make(home))
    api.create(other.make(home, "other"))
    rule_of(api, kind, home)
    api.create(rule("others", home, f"team-0-{api.token}", ruleType=other.type))
    assert sync().summary == {"created": 12}
    api.delete(source)
    api.delete(other.make(home, "other"))

    ran = sync()

    assert (ran.exit_code, ran.summary) == (4, {"deleted": 1, "orphan": 11})
    assert ready(api, "things")["reason"] == "DeletionsBlocked"
    assert sync("--max-deletes", "11").summary == {"deleted": 11}


# objects that are never copied, each with the reason

NEVER_COPIED: dict[str, tuple[Callable[[str], Object], str]] = {
    "the ServiceAccount default": (
        lambda home: service_account(home, "default"),
        "every namespace has its own ServiceAccount default",
    ),
    "a RoleBinding to a Role": (
        lambda home: role_binding(home, "local", roleRef={**cluster_role_ref("local"), "kind": "Role"}),
        "it refers to a Role, and Roles are not copied; refer to a ClusterRole",
    ),
    "a RoleBinding of kube-apiserver": (
        lambda home: role_binding(
            home, "own", labels={"copyrator": "true", "kubernetes.io/bootstrapping": "rbac-defaults"}
        ),
        "kube-apiserver creates this RoleBinding itself",
    ),
    "a copy": (
        lambda home: network_policy(
            home,
            "copied",
            labels={
                "copyrator": "true",
                "app.kubernetes.io/managed-by": "kube-chores",
                "kubechores.dev/job": "sync-copies",
                "kubechores.dev/rule-namespace": "elsewhere",
            },
        ),
        "is managed by kube-chores: a copy is never a source",
    ),
}


@pytest.mark.parametrize("case", NEVER_COPIED)
def test_an_object_that_is_never_copied_has_the_reason_in_the_log_the_status_and_the_explanation(
    api: Api, sync: Run, case: str, home: str, team: str
) -> None:
    make, why = NEVER_COPIED[case]
    left = make(home)
    kind, name = left["kind"].lower(), left["metadata"]["name"]
    if name == "default":
        wait_for(lambda: api.get(left), "the ServiceAccount that each namespace has")
        api.patch(left, {"metadata": {"labels": left["metadata"]["labels"]}})
    else:
        api.create(left)
    api.create(rule("things", home, team, ruleType=kind))

    ran = sync("-v")

    assert (ran.exit_code, ran.summary) == (0, {"nothing-selected": 1, "skipped": 1})
    assert [each["reason"] for each in ran.results if each["code"] == "skipped"] == [why]
    where = f"{kind}/{name} in namespace {home}"
    is_copy = case == "a copy"  # which a run creates after it read the sources, so the status does not depend on it
    found = ready(api, "things")
    assert found["reason"] == "NothingSelected"
    only = "" if is_copy else f", only objects that are never copied: {where} ({why})"
    assert found["message"].startswith(f"selects no {kind} to copy in namespace {home}{only}; none of")
    for place in (team, f"{team}/{name}"):
        (row,) = sync("--explain", place).report["rows"]
        assert (row["code"], row["reason"]) == ("skipped", f"{where}: {why}")

    good = next(each for each in KINDS if each.type == kind).make(home, "good")
    api.create(good)
    assert sync().summary == {"created": 1}
    assert ready(api, "things") == {
        "status": "True",
        "reason": "Synced",
        "message": "1 copy" if is_copy else f"1 copy; never copied: {where} ({why})",
    }
    rows = sync("--explain", team).report["rows"]
    assert [(each["code"], each["reason"]) for each in rows] == [
        ("unchanged", f"from {home}/good"),
        ("skipped", f"{where}: {why}"),
    ]


def test_copies_of_a_source_that_is_never_copied_now_are_deleted(api: Api, sync: Run, home: str, team: str) -> None:
    source = api.create(role_binding(home))
    api.create(rule("things", home, team, ruleType="rolebinding"))
    sync()
    api.delete(source)
    api.create(role_binding(home, roleRef={**cluster_role_ref("local"), "kind": "Role"}))

    assert (sync().summary, api.get(at(team, source))) == ({"deleted": 1}, None)


# ClusterRoles


def bindable(api: Api, name: str) -> str:
    """Create a ClusterRole that the account of the job may not bind; return its name."""
    name = f"{name}-{api.token}"
    metadata = {"name": name}
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    api.create({**kind, "metadata": metadata, "rules": rules})
    return name


def test_a_role_binding_to_a_cluster_role_that_the_job_has_no_right_to_bind_is_refused(
    api: Api, sync: Run, home: str, team: str
) -> None:
    role = bindable(api, "nodes")
    refused = api.create(role_binding(home, "nodes", roleRef=cluster_role_ref(role)))
    good = api.create(role_binding(home))
    api.create(rule("things", home, team, ruleType="rolebinding"))

    ran = sync()

    why = (
        f"the account of this run has no right to bind ClusterRole {role}; add it to resourceNames in "
        "ClusterRole kube-chores-sync-copies-rolebindings"
    )
    assert (ran.exit_code, ran.summary) == (0, {"created": 1, "refused": 1})
    (found,) = (each for each in ran.results if each["code"] == "refused")
    assert (found["severity"], found["reason"], found["object"]["namespace"]) == ("warning", why, home)
    assert ready(api, "things") == {
        "status": "False",
        "reason": "SourceRefused",
        "message": f"rolebinding/nodes in namespace {home}: {why}",
    }
    assert [bool(api.get(at(team, each))) for each in (refused, good)] == [False, True]
    # A user's dry run does not check the rights of the job: the status of the rule has what the last run found.
    (missing, _) = sync("--explain", team).report["rows"]
    assert missing["reason"] == (
        f"from {home}/nodes: the next run tries again: the last run refused a source (SourceRefused), "
        "see kubectl describe copyrator things -n kube-chores"
    )

    bind_rights = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "resourceNames": [role]}
    grant(api, account("kube-chores", "sync-copies"), {**bind_rights, "verbs": ["bind"]})
    wait_for(lambda: sync().summary == {"created": 1, "unchanged": 1}, "the right to bind")
    assert content(api.read(at(team, refused))) == content(refused)
    assert ready(api, "things") == {"status": "True", "reason": "Synced", "message": "2 copies"}


# subjects


def test_service_accounts_among_the_subjects_get_the_namespace_of_the_copy(
    api: Api, sync: Run, home: str, team: str
) -> None:
    other = api.namespace("other")
    rbac = "rbac.authorization.k8s.io"
    people = [{"kind": kind, "name": "one", "apiGroup": rbac} for kind in ("User", "Group")]

    def subjects(*namespaces: str) -> list[Object]:
        return [*people, *({"kind": "ServiceAccount", "name": "robot", "namespace": name} for name in namespaces)]

    source = api.create(role_binding(home, subjects=subjects(home, "absent")))
    api.create(rule("things", home, [team, other], ruleType="rolebinding"))
    assert sync().summary == {"created": 2}
    assert api.read(at(team, source))["subjects"] == subjects(home, "absent")

    api.patch(rule("things", "", ""), {"spec": {"subjectNamespace": "target"}})
    assert sync().summary == {"configured": 2}
    for namespace in (team, other):
        assert api.read(at(namespace, source))["subjects"] == subjects(namespace, namespace)
    assert sync().summary == {"unchanged": 2}

    api.patch(rule("things", "", ""), {"spec": {"subjectNamespace": "source"}})
    assert sync().summary == {"configured": 2}
    assert api.read(at(team, source))["subjects"] == subjects(home, "absent")

    api.create(rule("moved", home, team, ruleType="rolebinding", subjectNamespace="target"))
    ran = sync()
    assert (ran.exit_code, ran.summary) == (2, {"collision": 1, "unchanged": 2})
    assert f"rules moved and things require different copies of source {home}/viewers" in ran.stdout


def test_the_token_and_the_secrets_of_a_service_account_stay_its_own(api: Api, sync: Run, home: str, team: str) -> None:
    source = api.create(service_account(home, secrets=[{"name": "of-the-source"}]))
    api.create(rule("things", home, team, ruleType="serviceaccount"))
    sync()
    copy = api.read(at(team, source))
    assert "secrets" not in copy
    api.patch(copy, {"secrets": [{"name": "of-the-copy"}], "metadata": {"labels": {"team": "blue"}}})
    assert sync().summary == {"unchanged": 1}

    api.patch(source, {"imagePullSecrets": [{"name": "other"}]})
    assert sync().summary == {"configured": 1}

    after = api.read(copy)
    assert (after["secrets"], after["imagePullSecrets"]) == ([{"name": "of-the-copy"}], [{"name": "other"}])
    assert after["metadata"]["labels"]["team"] == "blue"
    assert after["metadata"]["uid"] == copy["metadata"]["uid"], "pods would lose their tokens"


# rights


COMPONENTS = {
    "networkpolicy": ("network-policies", "networkPolicies"),
    "limitrange": ("limit-ranges", "limitRanges"),
    "resourcequota": ("resource-quotas", "resourceQuotas"),
    "rolebinding": ("role-bindings", "roleBindings"),
    "serviceaccount": ("service-accounts", "serviceAccounts"),
}


def test_without_its_rights_a_rule_names_the_component_and_other_kinds_are_copied(
    api: Api, sync: Run, kind: Copied, source: Object, home: str, team: str
) -> None:
    plural = api.path(source, named=False).rpartition("/")[2]
    name = f"kube-chores-sync-copies-{plural}"
    binding = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name}}
    api.delete(binding)
    if plural == "serviceaccounts":
        api.delete({**binding, "metadata": {"name": "kube-chores-sync-copies-pullsecrets"}})
    group = source["apiVersion"].rpartition("/")[0]
    wait_for(lambda: not can_i(api, "sync-copies", "list", plural, group), "the authorizer to forget the right")
    other = KINDS[0] if kind is not KINDS[0] else KINDS[1]
    api.create(other.make(home))
    api.create(rule("others", home, team, ruleType=other.type))
    rule_of(api, kind, home)

    ran = sync()

    folder, value = COMPONENTS[kind.type]
    remedy = (
        f"component cronjobs/components/copies/{folder} grants the permissions (Helm: jobs.sync-copies.copies.{value})"
    )
    assert (ran.exit_code, ran.summary) == (2, {"created": 1, "unreadable": 1})
    assert ready(api, "things")["reason"] == "Unreadable"
    assert ready(api, "things")["message"].endswith(f"; {remedy}")
    (row,) = (each for each in sync("--explain", team).report["rows"] if each["rule"] == "things")
    assert row["code"] == "unreadable"
    role = f"for a dry run, bind ClusterRole kube-chores-view-{plural}, which {remedy.split(' grants ')[0]} creates"
    assert row["reason"].endswith(f"; {role}"), row["reason"]
