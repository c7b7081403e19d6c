"""sync-copies in the suites that run over all jobs."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.core.sync_copies.kinds import RESOURCES
from jobs.kit.values.resources import RULES
from kubesandbox import Fault, Sandbox
from tests import canary
from tests.api.conftest import Run, runs
from tests.apis import Api
from tests.every_job import RightsWorld, Scenario
from tests.every_job.outputs import listed, shown
from tests.fault_world import FaultWorld, Object, State, World, kinds, metadata, status_of
from tests.manifests import ROOT, load, rights_on_secrets
from tests.more_kinds import MORE_KINDS, VIEW, of_kind
from tests.rights import RBAC, account
from tests.worlds import (
    SELECTED,
    at,
    by_name,
    cluster_role_ref,
    configmap,
    encoded,
    namespace_object,
    network_policy,
    resource_quota,
    role_binding,
    rule,
    secret,
)

JOB = "sync-copies"


# a world for runs with faults

STAMP = {
    "app.kubernetes.io/managed-by": "kube-chores",
    "kubechores.dev/job": "sync-copies",
    "kubechores.dev/rule-namespace": "kube-chores",
}
FIXED, KEPT, ADOPTED = {"copy": "fixed"}, {"copy": "kept"}, {"copy": "adopted"}
# Objects that only their owner may change.
FOREIGN = {
    ("secrets", "team-a", "taken"),  # has the name of a copy
    ("configmaps", "team-a", "other-install"),
    ("configmaps", "team-a", "other-job"),
    ("configmaps", "team-b", "unrelated"),
}


@contextmanager
def _world(api: Api) -> Iterator[Mapping[str, str]]:
    """Build a world in which a run has a write of each kind, and a conflict."""
    _first_sources(api)
    first = runs(JOB, api.kubeconfig)("-n", "kube-chores")
    assert (first.exit_code, first.summary) == (0, {"created": 13}), first
    _changes(api)
    yield {}


def _first_sources(api: Api) -> None:
    for name in ("home", "annex", "team-a", "team-b", "leaver"):
        api.create(namespace_object(name))
    for name in ("settings", "theme", "withdrawn"):
        api.create(configmap("home", name))
    api.create(configmap("home", "fixed", labels=FIXED, immutable=True, data={"a": "1"}))
    api.create(configmap("annex", "kept", labels=KEPT))
    for name in ("login", "cert"):
        api.create(secret("home", name))
    api.create(rule("settings", "home", "team-*", metadata={"labels": {"from": "home"}}))
    api.create(rule("fixed", "home", ["team-a", "leaver"], selector={"matchLabels": FIXED}))
    api.create(rule("kept", "annex", "team-b", selector={"matchLabels": KEPT}, orphans="Retain"))
    api.create(rule("logins", "home", "team-a", ruleType="secret"))
    api.create(rule("old", "home", "leaver", ruleType="secret", selector={"matchLabels": {"copyrator": "true"}}))
    api.create(configmap("team-a", "other-install", labels={**STAMP, "kubechores.dev/rule-namespace": "elsewhere"}))
    api.create(configmap("team-a", "other-job", labels={**STAMP, "kubechores.dev/job": "fetch-rates"}))
    api.create(configmap("team-b", "unrelated"))


def _changes(api: Api) -> None:
    api.patch(at("home", configmap("home", "settings")), {"data": {"a": "new", "b": None}})
    api.patch(at("team-a", configmap("home", "theme")), {"data": {"a": "by hand"}})
    api.delete(configmap("home", "withdrawn"))
    api.delete(configmap("annex", "kept"))
    api.delete(configmap("home", "fixed"))
    api.create(configmap("home", "fixed", labels=FIXED, immutable=True, data={"a": "2"}))
    api.patch(secret("home", "login"), {"data": {"password": encoded(canary.canary())}})
    api.delete(secret("home", "cert"))
    pair = {"tls.crt": encoded(canary.canary()), "tls.key": encoded(canary.canary())}
    api.create(secret("home", "cert", type="kubernetes.io/tls", data=pair))
    for name in ("fresh", "taken"):
        api.create(secret("home", name))
    api.create(secret("team-a", "taken", labels={}))
    api.delete(rule("old", "home", ""))
    opted_out = {"metadata": {"annotations": {"kubechores.dev/copies": "false"}}}
    api.patch(namespace_object("leaver"), opted_out)
    api.create(configmap("annex", "adopted", labels=ADOPTED))
    api.create(configmap("team-a", "adopted", labels={}, data={"a": "theirs"}))
    api.create(rule("adopted", "annex", "team-a", selector={"matchLabels": ADOPTED}, conflict="Adopt"))


def is_copy(obj: Object) -> bool:
    """Whether the object is a copy of rules in kube-chores."""
    return STAMP.items() <= (obj["metadata"].get("labels") or {}).items()


def objects(world: World) -> State:
    """Return all objects of the kinds that rules copy, with all fields."""
    found: State = {}
    for resource in RESOURCES:
        found |= world.stored(resource.plural, resource.api_version.rpartition("/")[0])
    return found


def rules(world: World) -> State:
    """Return all CopyratorRules, with all fields."""
    return world.stored("copyrators", "kubechores.dev")


def _state(world: World) -> State:
    """Return the statuses of rules, copies without fields that change if they are recreated, and all other objects."""
    found, of_rules = objects(world), rules(world)
    copies = {
        key: {**each, "metadata": metadata(each, "labels", "annotations")}
        for key, each in found.items()
        if is_copy(each)
    }
    public = [of_rules.values(), world.stored("events").values(), [each["metadata"] for each in copies.values()]]
    canary.observed("what many may read", repr(list(map(list, public))))
    return found | copies | {key: _status(each) for key, each in of_rules.items()}


def _status(rule: Object) -> Object:
    status = status_of(rule)
    reasons = [(each["type"], each["status"], each["reason"]) for each in status["conditions"]]
    return {"conditions": reasons, "conflicts": status.get("conflicts")}


def _untouched(world: World) -> State:
    found = objects(world)
    return {key: found[key] for key in FOREIGN}


# a world with the other kinds, sources by name and chosen keys: copies that are created, updated and deleted, and
# conflicts

MORE_PLURALS = tuple(each.plural for each in RESOURCES if each.kind in MORE_KINDS)


@contextmanager
def _world_of_more_kinds(api: Api) -> Iterator[Mapping[str, str]]:
    _first_of_each_kind(api)
    first = runs(JOB, api.kubeconfig)("-n", "kube-chores")
    assert (first.exit_code, first.summary) == (0, {"created": 2 * len(MORE_KINDS) + 3, "source-missing": 1}), first
    _change_each_kind(api)
    yield {}


def _first_of_each_kind(api: Api) -> None:
    for name in ("home", "team-a"):
        api.create(namespace_object(name))
    for kind in MORE_KINDS:
        for name in ("changed", "withdrawn"):
            api.create(of_kind(kind, "home", SELECTED, name=name))
        spec = {"subjectNamespace": "target"} if kind == "RoleBinding" else {}
        api.create(rule(kind.lower(), "home", "team-a", ruleType=kind.lower(), **spec))
    api.create(_binding("view"))
    api.create(configmap("home", "settings"))
    api.create(by_name("named", "home", "team-a", names=["settings", "fresh"]))
    part = {"targetName": "part", "keys": {"include": ["a"], "rename": {"b": "c"}}}
    api.create(by_name("part", "home", "team-a", names=["settings"], **part))


def _binding(role: str) -> Object:
    """Return a RoleBinding whose copies have another subject; no update can change the role."""
    subjects = [account("home", "robot")]
    return of_kind("RoleBinding", "home", SELECTED, name="bound", roleRef={**VIEW, "name": role}, subjects=subjects)


def _change_each_kind(api: Api) -> None:
    for kind, (*_, change) in MORE_KINDS.items():
        api.patch(of_kind(kind, "home", name="changed"), change)
        api.delete(of_kind(kind, "home", name="withdrawn"))
        for name in ("fresh", "taken"):
            api.create(of_kind(kind, "home", SELECTED, name=name))
        api.create(of_kind(kind, "team-a", name="taken"))
    api.patch(of_kind("ServiceAccount", "team-a", name="changed"), {"secrets": [{"name": "token"}]})
    api.delete(_binding("view"))
    api.create(_binding("edit"))
    api.patch(configmap("home", "settings"), {"data": {"a": "new", "b": "new"}})
    api.create(configmap("home", "fresh"))


def _taken(world: World) -> State:
    return {key: each for key, each in objects(world).items() if key[1:] == ("team-a", "taken")}


FAULTS = [
    FaultWorld(
        name=JOB,
        job=JOB,
        build=_world,
        state=_state,
        untouched=_untouched,
        summary={"created": 1, "configured": 5, "replaced": 2, "deleted": 5, "unchanged": 1, "conflict": 1},
        sent=kinds(
            list="copyrators namespaces configmaps secrets",
            get="configmaps secrets",
            create="configmaps secrets events",
            update="configmaps secrets",
            patch="copyrators/status",
            delete="configmaps secrets",
        )
        | {"create configmaps (dry run)", "create secrets (dry run)"}
        | kinds(list=" ".join(MORE_PLURALS), create="selfsubjectrulesreviews"),
        disturbs=frozenset({"copyrators", "copyrators/status", "namespaces", "configmaps", "secrets", "events"}),
        read_by_name=frozenset({"taken", "adopted"}),  # in the place of a copy; waits for somebody to confirm
    ),
    FaultWorld(
        name="sync-copies of more kinds",
        job=JOB,
        build=_world_of_more_kinds,
        state=_state,
        untouched=_taken,
        summary={"created": 6, "configured": 7, "replaced": 1, "deleted": 5, "conflict": 5},
        sent=kinds(
            list=f"copyrators namespaces configmaps secrets {' '.join(MORE_PLURALS)}",
            get=" ".join(MORE_PLURALS),
            create=f"selfsubjectaccessreviews selfsubjectrulesreviews configmaps events {' '.join(MORE_PLURALS)}",
            update=f"configmaps {' '.join(MORE_PLURALS)}",
            patch="copyrators/status",
            delete=" ".join(MORE_PLURALS),
        )
        | {"create rolebindings (dry run)"},
        disturbs=frozenset({"selfsubjectaccessreviews", "selfsubjectrulesreviews", "configmaps", *MORE_PLURALS}),
        read_by_name=frozenset({"taken"}),
    ),
]


# a world in which a run uses all its permissions


def _to_copy(request: pytest.FixtureRequest, sync: Run) -> None:
    api: Api = request.getfixturevalue("api")
    home, team = api.namespace("home"), api.namespace("team")
    for make, kind in ((configmap, "configmap"), (secret, "secret")):
        for name in ("kept", "withdrawn"):
            api.create(make(home, name))
        api.create(rule(f"{kind}s", home, f"*-{api.token}", ruleType=kind))
    for kind in MORE_KINDS:
        for name in ("kept", "withdrawn"):
            api.create(of_kind(kind, home, SELECTED, name=name))
        api.create(rule(f"{kind.lower()}s", home, f"*-{api.token}", ruleType=kind.lower()))
    assert sync().exit_code == 0
    for make in (configmap, secret):
        api.delete(make(home, "withdrawn"))
        api.patch(at(team, make(home, "kept")), {"data": {"extra": "eA=="}})
    for kind, (*_, change) in MORE_KINDS.items():
        api.delete(of_kind(kind, home, name="withdrawn"))
        api.patch(of_kind(kind, team, name="kept"), change)
    for number in range(2):
        api.namespace(f"new-{number}")


RIGHTS = [RightsWorld(JOB, _to_copy, "sync")]


# outputs


def run(api: Api, tmp_path: Path, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    text = shown(api, JOB, *arguments, env=env).replace(f"{tmp_path}/", "")
    return re.sub(r"http://127\.0\.0\.1:\d+", "https://api.example.com", text)


def first(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    return f"{run(api, tmp_path)}\n{run(api, tmp_path)}\n{run(api, tmp_path, '-v')}"


def conflict(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    api.create(configmap("team-billing", "ca-bundle", labels={}))
    return f"{run(api, tmp_path)}\n{status(api, 'ca')}"


def listed_rules(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    api.create(configmap("team-billing", "ca-bundle", labels={}))
    api.create({**rule("lost", "team-shop", "*"), "metadata": {"name": "lost", "namespace": "team-shop"}})
    run(api, tmp_path)
    get = "kubectl get copyrators -n"
    return "\n".join(
        listed(api, RULES.path(name), f"{get} {name}", lambda cell: re.sub(r"^\d+s$", "12s", cell))
        for name in ("kube-chores", "team-shop")
    )


def adopted(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    api.create(configmap("team-billing", "ca-bundle", labels={}))
    api.patch(rule("ca", "", ""), {"spec": {"conflict": "Adopt"}})
    return run(api, tmp_path)


def edited(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    run(api, tmp_path)
    copy = at("team-shop", configmap("", "ca-bundle"))
    merge = {"Content-Type": "application/merge-patch+json"}
    body = {"data": {"ca.crt": "mine", "extra": "x"}}
    api.call("PATCH", f"{api.path(copy)}?fieldManager=kubectl-edit", body, headers=merge)
    return run(api, tmp_path, "--dry-run", "--diff")


def orphaned(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    run(api, tmp_path)
    api.delete(secret("platform", "login"))
    return run(api, tmp_path)


def retained(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    api.patch(rule("logins", "", ""), {"spec": {"orphans": "Retain"}})
    run(api, tmp_path)
    api.delete(secret("platform", "login"))
    return run(api, tmp_path, "-v")


def braked(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    for number in range(11):
        api.create(namespace_object(f"team-{number:02}"))
    run(api, tmp_path)
    api.delete(secret("platform", "login"))
    lines = run(api, tmp_path).splitlines()
    return "\n".join([*lines[:3], "...", *lines[-4:], status(api, "logins")])


def mistaken(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    run(api, tmp_path)
    api.patch(rule("logins", "", ""), {"spec": {"namespaces": ["platfrom"]}})
    return f"{run(api, tmp_path)}\n{status(api, 'logins')}"


def selects_nothing(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    api.create(rule("early", "platform", "team-*", selector={"matchLabels": {"share": "later"}}))
    return run(api, tmp_path)


def not_opted_in(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    api.patch(rule("logins", "", ""), {"spec": {"targets": {"include": ["kube-system"]}}})
    return run(api, tmp_path)


def replaced(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    run(api, tmp_path)
    api.delete(secret("platform", "login"))
    data = {"username": encoded(canary.canary())}
    api.create(secret("platform", "login", type="kubernetes.io/basic-auth", data=data))
    return run(api, tmp_path)


def collision(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    api.create(configmap("default", "ca-bundle"))
    api.create(rule("second", "default", "team-shop"))
    return run(api, tmp_path)


def invalid(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    api.create(rule("odd", "platform", "team-*", metadata={"labels": {"helm.sh/chart": "x", "bad": "not valid!"}}))
    return f"{run(api, tmp_path)}\n{status(api, 'odd')}"


def empty_selector(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    file = tmp_path / "rule.yaml"
    file.write_text(yaml.safe_dump(rule("everything", "platform", "*", ruleType="secrets", selector={})))
    return run(api, tmp_path, "-f", str(file))


def explained(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    run(api, tmp_path)
    api.create(configmap("platform", "proxy"))
    api.create(configmap("team-billing", "proxy", labels={}))
    for name, targets in {
        "tiers": {"namespaceSelector": {"matchLabels": {"tier": "web"}}},
        "old": {"exclude": ["team-*"]},
    }.items():
        api.create(rule(name, "platform", "", targets=targets))
    api.create(rule("later", "platform", "team-*", ruleType="secret", selector={"matchLabels": {"share": "all"}}))
    return f"{run(api, tmp_path, '--explain', 'team-billing')}\n{run(api, tmp_path, '--explain', 'team-billing/login')}"


def explained_wrongly(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    return run(api, tmp_path, "--explain", "team-shpo")


def ignored_choice(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    run(api, tmp_path)
    api.patch(namespace_object("team-shop"), {"metadata": {"annotations": {"kubechores.dev/copies": "no"}}})
    return run(api, tmp_path)


def no_rule(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    for name in ("ca", "logins"):
        api.delete(rule(name, "", ""))
    return run(api, tmp_path)


def other_namespace(_sandbox: Sandbox, api: Api, _tmp_path: Path) -> str:
    return shown(api, JOB, "-n", "platform", "--dry-run", kubeconfig=api.kubeconfig)


def no_crd(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    api.delete(next(obj for obj in load(ROOT / "cronjobs") if obj["kind"] == "CustomResourceDefinition"))
    return run(api, tmp_path)


def no_right(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    for obj in rights_on_secrets():
        api.delete(obj)
    return run(api, tmp_path)


def other_kinds(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}]
    policy = network_policy("platform", spec={"podSelector": {}, "ingress": [{"from": peers}]})
    for source in (policy, resource_quota("platform"), role_binding("platform")):
        kind = api.create(source)["kind"].lower()
        api.create(rule(kind, "platform", "team-*", ruleType=kind))
    run(api, tmp_path)
    api.patch(at("team-shop", policy), {"spec": {"ingress": [{"from": peers}, {}]}})
    api.patch(at("team-shop", resource_quota("")), {"spec": {"hard": {"pods": "1000"}}})
    api.delete(at("team-billing", role_binding("")))
    return run(api, tmp_path, "--dry-run", "--diff")


def chosen(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    run(api, tmp_path)
    named = {"selector": None, "names": ["login"], "keys": {"rename": {"user": "username"}}}
    api.patch(rule("logins", "", ""), {"spec": {**named, "targetName": "registry-login"}})
    return f"{run(api, tmp_path, '--diff')}\n{run(api, tmp_path, '--explain', 'team-shop/registry-login')}"


def refused(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    run(api, tmp_path)
    api.patch(rule("logins", "", ""), {"spec": {"keys": {"include": ["user", "token"]}}})
    api.create(role_binding("platform", "admins", roleRef=cluster_role_ref("admin")))
    api.create(rule("admins", "platform", "team-*", ruleType="rolebinding"))
    return f"{run(api, tmp_path)}\n{status(api, 'logins')}"


def never_copied(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    local = role_binding("platform", "deployers", roleRef={**cluster_role_ref("deployer"), "kind": "Role"})
    api.create(local)
    api.create(rule("deployers", "platform", "team-*", ruleType="rolebinding"))
    return f"{run(api, tmp_path, '-v')}\n{run(api, tmp_path, '--explain', 'team-shop/deployers')}"


def no_component(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    name = "kube-chores-sync-copies-networkpolicies"
    api.delete({"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name}})
    api.create(network_policy("platform"))
    api.create(rule("isolation", "platform", "team-*", ruleType="networkpolicy"))
    return run(api, tmp_path)


def failing(sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    sandbox.inject(Fault("POST", "/api/v1/namespaces/team-shop/secrets", status=500, times=None))
    return run(api, tmp_path)


def unauthorized(sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    sandbox.inject(Fault("GET", status=401, times=None))
    return run(api, tmp_path)


def unreachable(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    return run(api, tmp_path, "--context", "elsewhere")


def with_metrics(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    file, direct = tmp_path / "sync-copies.prom", {"NO_PROXY": "localhost"}
    sent = run(api, tmp_path, "--metrics-file", str(file), "--push-gateway", "http://localhost:9", env=direct)
    dry = run(api, tmp_path, "--dry-run", "--metrics-file", str(file))
    shown = [line for line in file.read_text().splitlines() if re.search("^kube_chores_(rule|run_exit)", line)]
    return "\n".join([sent, f"$ grep -E '^kube_chores_(rule|run_exit)' {file.name}", *shown, dry])


def status(api: Api, name: str) -> str:
    """Return the status of a rule as `kubectl get -o yaml` prints it."""
    found = api.read(rule(name, "", ""))
    found_status: dict[str, Any] = found["status"]
    for condition in found_status["conditions"]:
        condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    found_status["lastRunTime"] = "2026-01-01T00:00:00Z"
    if "selectedUid" in found_status:
        found_status["selectedUid"] = "1f6c3b0e-7a52-4c59-9d0f-3c1f7a1f2b11"
    for namespace in found_status.get("sourceNamespaces", ()):
        namespace["uid"] = "8c1d4f7a-90e3-4b5e-a6c2-5d2b9e7f1a04"
    text = yaml.safe_dump({"status": found_status}, sort_keys=False, width=110)
    return f"$ kubectl get copyrator {name} -n kube-chores -o yaml\n...\n{text}".rstrip()


SCENARIOS: dict[str, Scenario] = {
    "A first run, a second one, and the second one with -v": first,
    "A copy was changed by hand": edited,
    "An object with the name of a copy is not managed by kube-chores": conflict,
    "The rules of a namespace, and a rule that no run reads": listed_rules,
    "Such an object, and a rule with `conflict: Adopt`": adopted,
    "A source was deleted": orphaned,
    "A source was deleted, and its rule has `orphans: Retain`": retained,
    "More would be deleted than the brake allows": braked,
    "A rule may be mistaken: its source namespace does not exist": mistaken,
    "A new rule selects nothing": selects_nothing,
    "A rule names a kube-* namespace that did not opt in": not_opted_in,
    "A Secret's type changed": replaced,
    "Two sources would be copied to the same place": collision,
    "A source is selected by name, and copied with other keys and another name": chosen,
    "Copies of other kinds were changed": other_kinds,
    "A source cannot be copied as its rule requires": refused,
    "The only source of a rule is never copied": never_copied,
    "The component for a kind is not installed": no_component,
    "A rule is not valid": invalid,
    "A rule in a file has several problems": empty_selector,
    "Why there is, or is not, a copy in a namespace": explained,
    "The namespace to explain does not exist": explained_wrongly,
    "The annotation of a namespace is neither true nor false": ignored_choice,
    "Metrics in a file, a Pushgateway that does not answer, and a dry run": with_metrics,
    "There is no rule": no_rule,
    "The rules are in another namespace": other_namespace,
    "The CRD is not installed": no_crd,
    "A permission is missing": no_right,
    "A write fails": failing,
    "The credentials are not accepted": unauthorized,
    "The context does not exist": unreachable,
}
