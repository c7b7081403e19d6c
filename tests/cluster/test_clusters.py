"""A hub and two spokes, all real, in random steps and faults: what runs of the hub change in the spokes.

Spoke west has a kube-chores of its own, in a namespace of the same name and with rules of the same names. After each
run, tests/fleets.py compares what it changed with a model. CLUSTERS_SEED and CLUSTERS_STEPS set the seed and the number
of steps: 40 take about half a minute, 200 about three minutes.
"""

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.apis import wait_for
from tests.canary import canary
from tests.control_plane import audit_events, missing
from tests.fleet_model import InCluster, desired, is_copy, selects_cluster
from tests.fleets import ACCOUNT, HOMES, LOCAL, TARGETS, Entry, Fleet, changes, objects
from tests.planes import OWN, PLURALS, Plane, answers, uid_of
from tests.rights import RBAC
from tests.worlds import configmap, encoded, namespace_object, rule, secret

pytestmark = pytest.mark.cluster

Object = dict[str, Any]
SEED = int(os.environ.get("CLUSTERS_SEED") or random.randrange(10**6))
STEPS = int(os.environ.get("CLUSTERS_STEPS") or 40)
RULES = tuple(f"rule-{number}" for number in range(5))
STAMP = {
    "app.kubernetes.io/managed-by": "kube-chores",
    "kubechores.dev/job": "sync-copies",
    "kubechores.dev/rule-namespace": "kube-chores",
    "kubechores.dev/hub": "11111111-2222-3333-4444-555555555555",
}
ASKED = {("create", "selfsubjectaccessreviews"), ("create", "selfsubjectrulesreviews")}
USED_IN_HUB = ASKED | {
    *(("list", each) for each in ("namespaces", "secrets", "configmaps", "copyrators", "clusterprofiles")),
    ("get", "namespaces"),  # the one of the rules
    ("patch", "copyrators/status"),
    ("create", "events"),
}
USED_IN_SPOKES = ASKED | {("list", "namespaces")}
USED_IN_SPOKES |= {(verb, each) for each in PLURALS.values() for verb in ("list", "get", "create", "update", "delete")}
# Each makes a rule select nothing.
TYPOS: list[Object] = [
    {"targets": {"include": ["*"], "clusters": {"names": ["est"]}}},
    {"targets": {"include": ["*"], "clusters": {"selector": {"matchLabels": {"env": "prd"}}}}},
    {"targets": {"include": ["taem-*"], "clusters": {}}},
    {"selector": {"matchLabels": {"share": "typo"}}},
    {"namespaces": ["hom"]},
]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """The hub, and spokes east and west."""
    if reason := missing():
        pytest.skip(reason)
    hub, east, west = planes = [Plane(tmp_path / name) for name in ("hub", "east", "west")]
    made = Fleet(hub, {"east": east, "west": west}, random.Random(SEED))
    with ThreadPoolExecutor() as threads:  # until the end: programs die with the thread that started them
        try:
            list(threads.map(Plane.start, planes))
            made.install()
            for each in made.spokes.values():
                each.snapshot()
            yield made
        finally:
            for each in planes:
                each.stop()


# steps: sources and rules


def change_source(fleet: Fleet, name: str) -> None:
    home = fleet.random.choice(HOMES)
    _change_object(fleet, fleet.hub, home, f"{home}-{fleet.random.randrange(3)}")


def _change_object(fleet: Fleet, plane: Plane, namespace: str, name: str) -> None:
    """Create a source; or replace it, recreate it if it is immutable, or delete it."""
    choose = fleet.random
    kind, labels = choose.choice(sorted(PLURALS)), {"share": choose.choice("aaab")}
    fields = {"immutable": True} if choose.random() < 0.2 else {}
    if kind == "ConfigMap":
        made = configmap(namespace, name, labels=labels, data={"a": str(choose.randrange(10**6))}, **fields)
    else:
        made = secret(namespace, name, labels=labels, data={"a": encoded(canary())}, **fields)
    before = plane.api.get(made)
    is_deleted = choose.random() < 0.3
    if before and (is_deleted or before.get("immutable")):
        plane.api.delete(made)
        before = None
    if before:
        plane.api.replace(made)
    elif not is_deleted:
        plane.api.create(made)


def change_rule(fleet: Fleet, name: str) -> None:
    made = _rule(fleet, fleet.random.choice(RULES))
    if not fleet.hub.api.get(made):
        fleet.hub.api.create(made)
    elif fleet.random.random() < 0.3:
        fleet.hub.api.delete(made)
    else:
        fleet.hub.api.replace(made)


def _rule(fleet: Fleet, name: str, **targets: Any) -> Object:
    choose = fleet.random
    made = rule(name, choose.choice(HOMES), choose.choice([["*"], ["team-*"], ["team-a", "home"]]))
    made["spec"] |= {
        "ruleType": sorted(PLURALS)[RULES.index(name) % 2].lower(),  # a rule cannot change it
        "selector": {"matchLabels": {"share": choose.choice("aaab")}},
        "orphans": choose.choice(["Delete", "Delete", "Delete", "Retain"]),
    }
    chosen = [{}, {"names": ["east"]}, {"names": ["w*"]}, {"selector": {"matchLabels": {"env": "prod"}}}]
    made["spec"]["targets"]["clusters"] = choose.choice(chosen)
    if choose.random() < 0.2:
        made["spec"]["targets"]["namespaceSelector"] = {"matchLabels": {"tier": "web"}}
    made["spec"]["targets"] |= targets
    return made


def mistype_rule(fleet: Fleet, name: str) -> None:
    made = rule(fleet.random.choice(RULES), "", "")
    if fleet.hub.api.get(made):
        fleet.hub.api.patch(made, {"spec": fleet.random.choice(TYPOS)})


# steps: the inventory


def leave_inventory(fleet: Fleet, name: str) -> None:
    if name in fleet.inventory:
        fleet.remove_entry(name)


def relabel_entry(fleet: Fleet, name: str) -> None:
    if entry := fleet.inventory.get(name):
        fleet.write_entry(name, Entry(name, {"env": fleet.random.choice(["dev", "prod"])}, entry.kubeconfig))


def spoil_entry(fleet: Fleet, name: str) -> None:
    fleet.write_entry(name, Entry(name, {"env": "prod"}, None))


def add_twin(fleet: Fleet, name: str) -> None:
    """A second entry of the same cluster; removed if it is there."""
    twin = f"{name}-2"
    if twin in fleet.inventory:
        fleet.remove_entry(twin)
    elif fleet.spokes[name].is_up and fleet.spokes[name].data == OWN:
        fleet.enlist(twin, name)


def forget(fleet: Fleet, name: str) -> None:
    if name in fleet.inventory:
        fleet.run(forget=name)


# steps: the spokes, by their users


def change_own(fleet: Fleet, name: str) -> None:
    """An object of the spoke, at the place of a copy or elsewhere, or of another hub; or edit or delete a copy."""
    choose, api = fleet.random, fleet.spokes[name].api
    home = choose.choice([*HOMES, "own"])
    labels = choose.choice([{}, {"share": "a"}, STAMP])
    made = configmap(choose.choice(TARGETS), f"{home}-{choose.randrange(3)}", labels=labels, data={"a": "own"})
    found = api.get(made)
    if not found:
        api.create(made)
    elif is_copy(found, fleet.uid) and not found.get("immutable") and choose.random() < 0.5:
        api.patch(made, {"data": {"a": "edited", "b": "added"}})
    else:
        api.delete(made)


def change_namespace(fleet: Fleet, name: str) -> None:
    """Opt a namespace of the spoke out, or in again, or change its labels."""
    choose = fleet.random
    metadata = choose.choice(
        [
            {"annotations": {"kubechores.dev/copies": "false"}},
            {"annotations": {"kubechores.dev/copies": None}},
            {"labels": {"tier": "web"}},
            {"labels": {"tier": None}},
        ]
    )
    fleet.spokes[name].api.patch(namespace_object(choose.choice(TARGETS)), {"metadata": metadata})


def run_local(fleet: Fleet, name: str) -> None:
    """Change a source or a rule of spoke west's own, and run its own job."""
    spoke, choose = fleet.spokes["west"], fleet.random
    if not spoke.is_up or spoke.data != OWN:
        return
    if choose.random() < 0.6:
        _change_object(fleet, spoke, LOCAL, f"{choose.choice(HOMES)}-{choose.randrange(3)}")
    else:
        made = _rule(fleet, choose.choice(RULES))
        del made["spec"]["targets"]["clusters"]
        made["spec"]["namespaces"] = [LOCAL]
        if not spoke.api.get(made):
            spoke.api.create(made)
        elif choose.random() < 0.3:
            spoke.api.delete(made)
        else:
            spoke.api.replace(made)
    fleet.run_local("west")


# steps: faults


def go_down(fleet: Fleet, name: str) -> None:
    fleet.spokes[name].stop()


def snapshot(fleet: Fleet, name: str) -> None:
    if fleet.spokes[name].data == OWN:
        fleet.spokes[name].snapshot()


def restore(fleet: Fleet, name: str) -> None:
    if fleet.spokes[name].data == OWN:
        fleet.spokes[name].restore()


def replace(fleet: Fleet, name: str) -> None:
    """Another cluster at the same address, with credentials that the hub has, or not; or with none that are valid."""
    spoke = fleet.spokes[name]
    if spoke.data == OWN:
        if spoke.become("other"):
            fleet.install_spoke(name)
        if fleet.random.random() < 0.7:
            fleet.enlist(name, name)


def expire_token(fleet: Fleet, name: str) -> None:
    if (entry := fleet.inventory.get(name)) and entry.kubeconfig:
        token = fleet.spokes[name].api.service_account_token("kube-chores", "sync-copies-hub")
        kubeconfig = fleet.spokes[name].kubeconfig(fleet.spokes[name].expired(token))
        fleet.write_entry(name, Entry(name, entry.labels, kubeconfig))


def revoke_token(fleet: Fleet, name: str) -> None:
    """Recreate the account. Its tokens may be valid for 10 seconds more: the API server remembers them."""
    metadata = {"name": "sync-copies-hub", "namespace": "kube-chores"}
    made = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    fleet.spokes[name].api.delete(made)
    fleet.spokes[name].api.create(made)


def revoke_rights(fleet: Fleet, name: str) -> None:
    """The account of the hub loses all rights in the spoke, or only those on Secrets."""
    head = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": "kube-chores-sync-copies-hub"}}
    api, is_all = fleet.spokes[name].api, fleet.random.random() < 0.5
    if is_all and api.get({**head, "kind": "ClusterRoleBinding"}):
        api.delete({**head, "kind": "ClusterRoleBinding"})
    elif role := api.get({**head, "kind": "ClusterRole"}):
        left = [{**each, "resources": [one for one in each["resources"] if one != "secrets"]} for each in role["rules"]]
        api.patch(role, {"rules": left})
    wait_for(lambda: not _has_rights(fleet, name), "the rights to go")


def _has_rights(fleet: Fleet, name: str) -> bool:
    plane = fleet.spokes[name]
    token = plane.api.service_account_token("kube-chores", "sync-copies-hub")
    return answers(plane.kubeconfig(token))[1] == PLURALS.keys()


def change_certificate(fleet: Fleet, name: str) -> None:
    fleet.spokes[name].new_certificate()


def revoke_rights_in_hub(fleet: Fleet, name: str) -> None:
    """The account of the job loses the right to list sources that are Secrets, or all of its namespace."""
    api = fleet.hub.api
    head = {"apiVersion": f"{RBAC}/v1"}
    if fleet.random.random() < 0.6:
        bound = {**head, "kind": "ClusterRoleBinding", "metadata": {"name": f"kube-chores-{ACCOUNT}-secrets"}}
        gone = lambda: answers(fleet.hub.kubeconfig(fleet.token()))[1] != PLURALS.keys()  # noqa: E731
    else:
        bound = {**head, "kind": "RoleBinding", "metadata": {"name": ACCOUNT, "namespace": "kube-chores"}}
        gone = lambda: not fleet.reads_rules()  # noqa: E731
    if api.get(bound):
        api.delete(bound)
        wait_for(gone, "the right to go")


def heal(fleet: Fleet, name: str) -> None:
    """End the faults of all spokes, and remove second entries."""
    for each in fleet.spokes:
        if (twin := f"{each}-2") in fleet.inventory:
            fleet.remove_entry(twin)
        if not fleet.is_healthy(each):
            fleet.heal(each)


def heal_hub(fleet: Fleet, name: str) -> None:
    fleet.heal_hub()


def confirm(fleet: Fleet, name: str) -> None:
    """A person confirms all deletions."""
    fleet.run("--max-deletes", "1000")


# By weight. The second number: whether the step needs a spoke that is up.
STEP_WEIGHTS: dict[Callable[[Fleet, str], None], tuple[int, bool]] = {
    change_source: (8, False),
    change_rule: (8, False),
    mistype_rule: (3, False),
    leave_inventory: (2, False),
    relabel_entry: (3, False),
    spoil_entry: (1, False),
    add_twin: (2, False),
    forget: (1, False),
    change_own: (7, True),
    change_namespace: (4, True),
    run_local: (5, False),
    go_down: (2, True),
    snapshot: (2, True),
    restore: (2, True),
    replace: (2, True),
    expire_token: (2, True),
    revoke_token: (1, True),
    revoke_rights: (2, True),
    change_certificate: (2, False),
    revoke_rights_in_hub: (2, False),
    heal: (10, False),
    heal_hub: (4, False),
    confirm: (2, False),
}


def test_random_steps_change_nothing_of_the_spokes_and_end_as_the_model_requires(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        print(f"\nclusters: CLUSTERS_SEED={SEED} CLUSTERS_STEPS={STEPS} repeats this")  # noqa: T201
    _begin(fleet)
    taken: Counter[str] = Counter()
    steps, weights = list(STEP_WEIGHTS), [weight for weight, _ in STEP_WEIGHTS.values()]
    while taken.total() < STEPS:
        (step,) = fleet.random.choices(steps, weights)
        name = fleet.random.choice(sorted(fleet.spokes))
        if STEP_WEIGHTS[step][1] and not fleet.spokes[name].is_up:
            continue
        taken[step.__name__] += 1
        print(taken.total(), step.__name__, name)  # noqa: T201
        step(fleet, name)
        if fleet.random.random() < 0.7:
            fleet.run()
    _end_faults(fleet)
    _converges(fleet)
    assert _requests(fleet.hub, ACCOUNT) - USED_IN_HUB == set()
    for each in fleet.spokes.values():
        assert _requests(each, "sync-copies-hub") - USED_IN_SPOKES == set()
        assert _forbidden_writes(each) == []  # the policies had nothing to prevent
    with capsys.disabled():
        print(f"clusters: steps {dict(sorted(taken.items()))}")  # noqa: T201
        print(f"clusters: findings {dict(sorted(fleet.codes.items()))}")  # noqa: T201


def _begin(fleet: Fleet) -> None:
    """Sources, rules and first copies, so that the first steps have something to break."""
    for _ in range(14):
        change_source(fleet, "")
    for name in RULES[:4]:
        fleet.hub.api.create(_rule(fleet, name))
    for _ in range(3):
        run_local(fleet, "")
    fleet.run()


def _end_faults(fleet: Fleet) -> None:
    """All clusters are as they were at the beginning, and no rule is mistaken."""
    print("faults end")  # noqa: T201
    fleet.heal_hub()
    for home in HOMES:
        for share in "ab":
            fleet.hub.api.put(configmap(home, f"{home}-{share}", labels={"share": share}))
            fleet.hub.api.put(secret(home, f"{home}-{share}", labels={"share": share}))
    heal(fleet, "")
    for name in fleet.spokes:
        fleet.write_entry(name, Entry(name, {"env": "prod"}, fleet.inventory[name].kubeconfig))
    facts = fleet.facts()
    for name, each in facts.rules.items():
        selected = [one for one in fleet.spokes if selects_cluster(each, one, {"env": "prod"})]
        namespaces = [one for spoke in selected for one in fleet.spokes[spoke].api.items("v1", "Namespace")]
        if not desired([each], facts.sources, namespaces):
            fleet.hub.api.replace(_rule(fleet, name, include=["*"], namespaceSelector={}))
    for name, spoke in fleet.spokes.items():
        uid, rules = uid_of(spoke.api), facts.rules.values()
        others = (fleet.memory.known(name, rules) - {uid}) | (fleet.memory.names(uid, rules) - {name})
        if name in fleet.unsure or uid in fleet.unsure.values() or others:
            fleet.run(forget=name)


def _state(fleet: Fleet, name: str) -> InCluster:
    facts, seen = fleet.facts(), fleet.seen(name)
    assert seen
    members = {key: each.labels for key, each in fleet.inventory.items()}
    return InCluster(name, members, facts.rules, facts.sources, facts.namespaces, seen.namespaces)


def _converges(fleet: Fleet) -> None:
    """A run, and one that a person confirms, lead to the end that the model requires; a third one writes nothing."""
    fleet.run()
    assert fleet.run("--max-deletes", "1000").exit_code == 0
    fleet.run_local("west")
    before = {name: objects(plane.api) for name, plane in fleet.spokes.items()}
    rules = fleet.facts().rules
    assert fleet.run().exit_code == 0
    assert fleet.facts().rules == rules
    for name, spoke in fleet.spokes.items():
        found = objects(spoke.api)
        assert changes(before[name], found) == set()
        state = _state(fleet, name)
        copies = {at: each for at, each in found.items() if is_copy(each, fleet.uid)}
        wanted = {at for at in state.desired() if at in copies or at not in found}
        assert [at for at in copies.keys() ^ wanted if at not in copies or not state.is_retained(copies[at])] == []


def _requests(plane: Plane, account: str) -> set[tuple[str, str]]:
    """The verbs and resources of the requests of a job with this account, by the audit log."""
    user = f"system:serviceaccount:kube-chores:{account}"
    found = (each for each in audit_events(plane.plane.audit_log) if each["user"].get("username") == user)
    return {(each["verb"], _resource(each)) for each in found if each["userAgent"].startswith("kube-chores")}


def _forbidden_writes(plane: Plane) -> list[str]:
    """The writes of jobs in a spoke that its policies or roles refused."""
    sent = (each for each in audit_events(plane.plane.audit_log) if each.get("userAgent", "").startswith("kube-chores"))
    writes = (each for each in sent if each["verb"] in ("create", "update", "delete"))
    return [each["requestURI"] for each in writes if each.get("responseStatus", {}).get("code") == 403]


def _resource(event: Object) -> str:
    at = event["objectRef"]
    return "/".join(filter(None, [at["resource"], at.get("subresource")]))
