"""sync-copies in the suites that run over all jobs."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.core.sync_copies.kinds import RESOURCES
from tests import canary
from tests.api.conftest import Run, runs
from tests.apis import Api
from tests.certificates import certificate, issued
from tests.every_job import RightsWorld, Scenario, sync_copies_clusters
from tests.every_job.outputs import shown
from tests.fault_world import FaultWorld, Object, State, World, kinds, metadata, status_of
from tests.more_kinds import MORE_KINDS, VIEW, of_kind
from tests.rights import account
from tests.worlds import (
    SELECTED,
    at,
    by_name,
    cluster_role_ref,
    configmap,
    encoded,
    namespace_object,
    pull_secret,
    role_binding,
    rule,
    secret,
    service_account,
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


ROBOTS = {"serviceAccounts": ["robot-of-*", "robot"]}


# a world with certificates without their keys, a bundle of them, and ServiceAccounts that use copies for pulls


@contextmanager
def _world_of_forms(api: Api) -> Iterator[Mapping[str, str]]:
    for name in ("home", "team-a"):
        api.create(namespace_object(name))
    for name in ("one", "two"):
        api.create(issued("home", name, ca=certificate(name)))
    for name in ("login", "withdrawn"):
        api.create(pull_secret("home", name))
    form = {"ruleType": "secret", "keys": {"include": ["ca.crt"]}, "copyAs": {"kind": "ConfigMap"}}
    api.create(by_name("ca", "home", "team-a", names=["one", "two"], **form))
    api.create(
        by_name(
            "trust",
            "home",
            ["home", "team-a"],
            names=["one", "two"],
            merge={"key": "ca.pem"},
            targetName="trust",
            **form,
        )
    )
    attached = {"ruleType": "secret", "attachTo": ROBOTS}
    for name in ("login", "withdrawn"):
        api.create(by_name(name, "home", "team-a", names=[name], **attached))
    api.create(_robot("robot", "theirs"))
    first = runs(JOB, api.kubeconfig)("-n", "kube-chores")
    assert (first.exit_code, first.summary) == (0, {"created": 6, "patched": 1}), first
    api.patch(issued("home", "one"), {"data": {"ca.crt": encoded(certificate("renewed"))}})
    api.delete(rule("withdrawn", "", ""))
    api.create(_robot("robot-of-later"))
    opaque = {**form, "copyAs": {"kind": "Secret"}, "targetName": "opaque"}
    api.create(by_name("opaque", "home", "team-a", names=["two"], **opaque))
    yield {}


def _robot(name: str, *names: str) -> Object:
    return service_account("team-a", name, labels={}, imagePullSecrets=[{"name": each} for each in names])


def _with_accounts(world: World) -> State:
    """Return the state, without the fields of ServiceAccounts that each write changes."""
    accounts = {
        key: {**each, "metadata": metadata(each, "labels", "annotations")}
        for key, each in world.stored("serviceaccounts").items()
    }
    return _state(world) | accounts


FAULTS = [
    FaultWorld(
        name="sync-copies of certificates and for pulls",
        job=JOB,
        build=_world_of_forms,
        state=_with_accounts,
        untouched=lambda world: {key: each for key, each in objects(world).items() if key[1:] == ("home", "two")},
        summary={"created": 1, "configured": 3, "deleted": 1, "patched": 2, "unchanged": 2},
        sent=kinds(
            list=f"copyrators namespaces configmaps secrets {' '.join(MORE_PLURALS)}",
            create="selfsubjectrulesreviews secrets events",
            update="configmaps",
            patch="copyrators/status serviceaccounts",
            delete="secrets",
        ),
        disturbs=frozenset({"configmaps", "secrets", "serviceaccounts"}),
    ),
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
    api.create(pull_secret(home, labels={}))
    api.create(by_name("pulls", home, f"*-{api.token}", names=["login"], ruleType="secret", attachTo=ROBOTS))
    assert sync().exit_code == 0
    api.create(service_account(team, "robot-of-later", labels={}))
    for make in (configmap, secret):
        api.delete(make(home, "withdrawn"))
        api.patch(at(team, make(home, "kept")), {"data": {"extra": "eA=="}})
    for kind, (*_, change) in MORE_KINDS.items():
        api.delete(of_kind(kind, home, name="withdrawn"))
        api.patch(of_kind(kind, team, name="kept"), change)
    for number in range(2):
        api.namespace(f"new-{number}")


RIGHTS = [RightsWorld(JOB, _to_copy, "sync"), *sync_copies_clusters.RIGHTS]


# outputs


def run(api: Api, tmp_path: Path, *arguments: str) -> str:
    text = shown(api, JOB, *arguments).replace(f"{tmp_path}/", "")
    return re.sub(r"http://127\.0\.0\.1:\d+", "https://api.example.com", text)


def first(api: Api, tmp_path: Path) -> str:
    return f"{run(api, tmp_path)}\n{run(api, tmp_path)}\n{run(api, tmp_path, '-v')}"


def conflict(api: Api, tmp_path: Path) -> str:
    api.create(configmap("team-billing", "ca-bundle", labels={}))
    return f"{run(api, tmp_path)}\n{status(api, 'ca')}"


def edited(api: Api, tmp_path: Path) -> str:
    run(api, tmp_path)
    copy = at("team-shop", configmap("", "ca-bundle"))
    merge = {"Content-Type": "application/merge-patch+json"}
    body = {"data": {"ca.crt": "mine", "extra": "x"}}
    api.call("PATCH", f"{api.path(copy)}?fieldManager=kubectl-edit", body, headers=merge)
    return run(api, tmp_path, "--dry-run", "--diff")


def orphaned(api: Api, tmp_path: Path) -> str:
    run(api, tmp_path)
    api.delete(secret("platform", "login"))
    return run(api, tmp_path)


def braked(api: Api, tmp_path: Path) -> str:
    for number in range(11):
        api.create(namespace_object(f"team-{number:02}"))
    run(api, tmp_path)
    api.delete(secret("platform", "login"))
    lines = run(api, tmp_path).splitlines()
    return "\n".join([*lines[:3], "...", *lines[-4:], status(api, "logins")])


def mistaken(api: Api, tmp_path: Path) -> str:
    run(api, tmp_path)
    api.patch(rule("logins", "", ""), {"spec": {"namespaces": ["platfrom"]}})
    return f"{run(api, tmp_path)}\n{status(api, 'logins')}"


def explained(api: Api, tmp_path: Path) -> str:
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


def refused(api: Api, tmp_path: Path) -> str:
    run(api, tmp_path)
    api.patch(rule("logins", "", ""), {"spec": {"keys": {"include": ["user", "token"]}}})
    api.create(role_binding("platform", "admins", roleRef=cluster_role_ref("admin")))
    api.create(rule("admins", "platform", "team-*", ruleType="rolebinding"))
    return f"{run(api, tmp_path)}\n{status(api, 'logins')}"


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
    "A source was deleted": orphaned,
    "More would be deleted than the brake allows": braked,
    "A rule may be mistaken: its source namespace does not exist": mistaken,
    "A source cannot be copied as its rule requires": refused,
    "Why there is, or is not, a copy in a namespace": explained,
}
