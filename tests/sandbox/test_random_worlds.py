"""Random clusters: a second run writes nothing, unmanaged objects stay, and the order of reads does not matter."""

import base64
import json
import random
import tempfile
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, given
from hypothesis import strategies as st
from msgspec.structs import replace

from jobs.core.sync_copies import observe as reading
from jobs.core.sync_copies.kinds import BOOTSTRAPPING, BY_NAME, KINDS, RESOURCES
from jobs.core.sync_copies.observe import observe
from jobs.core.sync_copies.observed import Observed, Settings
from jobs.core.sync_copies.plan import plan
from jobs.kit.api.cluster import Cluster
from jobs.kit.api.endpoint import Endpoint
from jobs.kit.api.responses import error_of
from jobs.kit.api.transport import Transport
from jobs.kit.values.model import Finding, Plan, RunOptions
from jobs.kit.values.reads import ReadResult
from kubesandbox import Fault
from tests import embedded, model
from tests.api.conftest import Ran
from tests.apis import Api, sandbox_api, wait_for
from tests.canary import canary
from tests.certificates import certificate, private_key
from tests.every_job import sync_copies
from tests.every_job.sync_copies import JOB, STAMP, is_copy
from tests.fault_world import Key, Object, State, World, served
from tests.more_kinds import MORE_KINDS, VIEW, of_kind
from tests.rights import RBAC, account
from tests.sweeps import examples
from tests.worlds import configmap, encoded, rule, secret, service_account

pytestmark = pytest.mark.usefixtures("quick")

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
NAMESPACES = ("annex", "home", "kube-extra", "team-a", "team-b")
NAMES = ("x", "y")
SELECTORS: Sequence[Object] = (
    {"matchLabels": {"copyrator": "true"}},
    {"matchExpressions": [{"key": "stage", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "stage", "operator": "In", "values": ["prod", "test"]}]},
)
OTHER_STAMPS: Sequence[Mapping[str, str]] = (
    {},
    {**STAMP, "kubechores.dev/rule-namespace": "elsewhere"},
    {**STAMP, "kubechores.dev/job": "fetch-rates"},
)
NEVER_ADOPTED = ("kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token", "helm.sh/release.v1")
SELECTIONS: Sequence[Object] = (
    {"include": ["a"]},
    {"include": ["tls.*", "b"]},
    {"rename": {"a": "b"}},
    {"include": ["*"], "rename": {"a": "c"}},
)
KEYS_OF_FORM: Object = {"keys": {"include": ["ca.crt"]}}
FORM: Object = {"copyAs": {"kind": "ConfigMap"}, **KEYS_OF_FORM}
BUNDLE: Object = {"merge": {"key": "all.crt"}, **KEYS_OF_FORM}
OWN = [{"name": "own"}]
ROBOTS = ("robot", "rover")  # ServiceAccounts that rules attach copies to, and no rule copies
BY_PLURAL = {each.plural: each for each in RESOURCES}
PROFILE = examples(
    phases=[Phase.explicit, Phase.generate],  # a failing world is small, and shrinking it takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


# The parts of a world


def some(*choices: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(choices)


def optional(**fields: Any) -> st.SearchStrategy[Object]:
    """Return a strategy for a dict with any of these fields."""
    return st.fixed_dictionaries({}, optional={name: some(value) for name, value in fields.items()})


_BOTH = {"copyrator": "true", "stage": "prod"}
LABELS = some(_BOTH, _BOTH, {"copyrator": "true"}, {"stage": "prod"}, {}).map(dict)
CONFIGMAP = st.tuples(optional(data={"a": "1"}), optional(binaryData={"b": "AAEC"}), optional(immutable=True))
PULL_TYPE = "kubernetes.io/dockerconfigjson"
# The value of a key that a bundle has, and of one that no bundle may have.
CERTIFICATES = (*map(certificate, ("one", "two")), certificate("one") + certificate("two"))
SECRET_TYPES = some(
    "Opaque",
    "Opaque",
    "kubernetes.io/tls",
    PULL_TYPE,
    "bootstrap.kubernetes.io/token",
    "helm.sh/release.v1",
    "example.com/own",
)
ROLES = [{**VIEW, "name": "view"}, {**VIEW, "name": "edit"}, {**VIEW, "kind": "Role", "name": "own"}]
SUBJECTS = [{"kind": "Group", "apiGroup": RBAC, "name": "g"}, account("home", "x"), account("elsewhere", "y")]
# By kind, for kinds other than ConfigMap and Secret: the fields of an object.
FIELDS: Mapping[str, st.SearchStrategy[Object]] = {
    "NetworkPolicy": st.fixed_dictionaries(
        {
            "spec": st.fixed_dictionaries(
                {"podSelector": some({}, {"matchLabels": {"a": "b"}})},
                optional={"ingress": some([], [{}], [{"ports": [{"port": 80}]}]), "policyTypes": some(["Egress"])},
            )
        }
    ),
    "LimitRange": some(*({"spec": {"limits": [{"type": "Pod", "max": {"cpu": cpu}}]}} for cpu in ("1", "1000m", "2"))),
    "ResourceQuota": st.fixed_dictionaries(
        {},
        optional={"spec": optional(hard={"pods": "9", "count/secrets": "99"}, scopes=["NotTerminating"])},
    ),
    "RoleBinding": st.fixed_dictionaries(
        {"roleRef": some(*ROLES)}, optional={"subjects": st.lists(some(*SUBJECTS), max_size=3)}
    ),
    "ServiceAccount": optional(
        imagePullSecrets=[{"name": "x"}], automountServiceAccountToken=False, secrets=[{"name": "own"}]
    ),
}
# What most rules of a world are about, and the kinds of its objects: if there were more, few rules would select any.
BUNDLED, PULLED = "bundles", "names for pulls"
TOPICS: Sequence[tuple[str, Sequence[str]]] = (
    *[("", ("ConfigMap", "Secret"))] * 3,
    ("", ("Secret", "ServiceAccount")),
    *(("", (kind,)) for kind in FIELDS),
    *[(BUNDLED, ("ConfigMap",)), (BUNDLED, ("Secret",)), *[(PULLED, ("Secret",))] * 2] * 2,
)


@st.composite
def objects(draw: st.DrawFn, kinds: Sequence[str], namespaces: Sequence[str], topic: str = "") -> Object:
    """An object that kube-chores does not manage."""
    kind, namespace, name, labels = draw(some(*kinds)), draw(some(*namespaces)), draw(some(*NAMES)), draw(LABELS)
    if kind in FIELDS:
        bootstrapping = draw(optional(**{BOOTSTRAPPING: "rbac-defaults"})) if kind == "RoleBinding" else {}
        identity = ("apiVersion", "kind", "metadata")
        made = of_kind(kind, namespace, labels | bootstrapping, name=name)
        return {key: made[key] for key in identity} | draw(FIELDS[kind])
    if kind == "ConfigMap":
        data, binary, immutable = draw(CONFIGMAP)
        trusted = draw(some(*[{}] * (topic != BUNDLED), {"ca.crt": draw(some(*CERTIFICATES))}))
        return configmap(
            namespace, name, labels=labels, **{"data": {**data.get("data", {}), **trusted}, **binary, **immutable}
        )
    secret_type = PULL_TYPE if topic == PULLED and draw(st.integers(0, 3)) else draw(SECRET_TYPES)
    of_type = model.OF_TYPE.get(secret_type)
    keys = of_type or draw(some(("a",), ("a", "b")))
    values = {
        key: encoded(json.dumps({"auths": {canary(): {}}}) if secret_type == PULL_TYPE else canary()) for key in keys
    }
    if topic == BUNDLED or draw(st.booleans()):
        values["ca.crt"] = encoded(draw(some(*CERTIFICATES * 2, private_key())))
    return secret(namespace, name, labels=labels, type=secret_type, data=values, **draw(optional(immutable=True)))


@st.composite
def foreign(draw: st.DrawFn, kinds: Sequence[str], topic: str) -> Object:
    """An object with the name of a copy: not managed, of another job or installation, or of a deleted rule."""
    made = draw(objects(kinds, NAMESPACES, topic))
    stale = draw(st.integers(0, 3)) == 0
    made["metadata"]["labels"] |= STAMP if stale else draw(some(*OTHER_STAMPS))
    if stale:
        marks = {"kubechores.dev/rule": "kube-chores/deleted", "kubechores.dev/source": "home/deleted"}
        orphans = draw(optional(**{"kubechores.dev/orphans": "Delete"}))
        made["metadata"]["annotations"] = marks | orphans
    made["controlled"] = draw(st.integers(0, 3)) == 0
    return made


@st.composite
def rules(draw: st.DrawFn, kinds: Sequence[str], name: str, topic: str, robots: str) -> Object:
    made = rule(name, "", "")
    rule_type = draw(some(*kinds)).lower()
    named = ({"names": ["x"]},) * (topic != BUNDLED) + ({"names": ["absent", "x", "y"]},)
    made["spec"] = {
        "ruleType": rule_type,
        "namespaces": draw(some(["home"], ["annex"], ["annex", "home"])),
        **draw(some(*({"selector": each} for each in SELECTORS), *named)),
        "targets": draw(
            st.fixed_dictionaries(
                {"include": some(["*"], ["team-*"], ["team-a", "home"], ["kube-extra", "*"])},
                optional={"exclude": some(["team-b"]), "namespaceSelector": some({"matchLabels": {"tier": "web"}})},
            )
        ),
        "conflict": draw(some("Skip", "Adopt")),
        "orphans": draw(some("Delete", "Retain")),
        "metadata": draw(optional(labels={"team": name}, annotations={"by": name}, copyLabels=["stage", "note"])),
    }
    if "selector" in made["spec"] and topic != BUNDLED:
        made["spec"] |= draw(optional(names=["x"]))
    if len(made["spec"].get("names", [])) < 2:
        made["spec"] |= draw(some({}, {}, {"targetName": "y"}, {"targetName": "default"}))
    if rule_type in ("configmap", "secret"):
        made["spec"] |= draw(forms(rule_type, name, topic))
    if robots:
        made["spec"]["attachTo"] = {"serviceAccounts": [robots]}
    if rule_type == "rolebinding":
        made["spec"] |= draw(optional(subjectNamespace="target"))
    return made


@st.composite
def forms(draw: st.DrawFn, rule_type: str, name: str, topic: str) -> Object:
    """The fields of a rule that change the content of copies of ConfigMaps and Secrets."""
    selections: list[Object] = [{"keys": each} for each in SELECTIONS]
    made: Object
    if topic == BUNDLED:
        made = draw(some(BUNDLE, BUNDLE, BUNDLE, {})) | {"namespaces": ["annex", "home"]}
    elif topic == PULLED:
        made = draw(some(*[{}] * 8, *selections))
    else:
        made = draw(some({}, {}, *selections)) | draw(some({}, {}, FORM if rule_type == "secret" else {}, BUNDLE))
    if "merge" in made:
        made = made | {"targetName": draw(some(name, name, "bundle", "y"))}
    if "merge" in made and rule_type == "secret":
        made = made | {"copyAs": {"kind": draw(some("ConfigMap", "Secret"))}}
    return made | ({"metadata": {"labels": {"team": name}}} if {"copyAs", "merge"} & made.keys() else {})


# Those of content are for ConfigMaps and Secrets.
EDITS: Mapping[str, Object] = {
    "content": {"data": {"a": encoded("edited " + canary())}},
    "more": {"data": {"more": encoded("edited " + canary())}},
    "none": {"data": None},
    "label": {"metadata": {"labels": {"note": "mine"}}},
    "annotation": {"metadata": {"annotations": {"note": "mine"}}},
    "stamp": {"metadata": {"labels": {"kubechores.dev/rule-hash": None}}},
    "disowned": {"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}},
    "fingerprint": {"metadata": {"annotations": {"kubechores.dev/fingerprint": None}}},
}

# By the plural of the kind.
EDITS_OF_CONTENT: Mapping[str, Object] = {
    BY_NAME[kind].resource.plural: change for kind, (*_, change) in MORE_KINDS.items()
}


@st.composite
def worlds(draw: st.DrawFn) -> Object:
    topic, kinds = draw(some(*TOPICS))
    sources = objects(kinds, ("home", "annex"), topic)
    # The first rules attach their copies, to the same: of several that require one copy, the stamp names the first.
    robots, attaching = draw(some("robot", "robo*", "r*")), draw(st.integers(1, 3)) if topic == PULLED else 0
    globs = [robots] * attaching + [""] * (3 - attaching)
    drawn = [draw(rules(kinds, f"rule-{number}", topic, each)) for number, each in enumerate(globs)]
    changed = draw(st.lists(st.integers(0, 2), max_size=2, unique=True))
    return {
        "namespaces": {name: draw(st.tuples(optional(tier="web"), st.integers(0, 5))) for name in NAMESPACES},
        "sources": draw(st.lists(sources, min_size=2, max_size=5)),
        "foreign": draw(st.lists(foreign(kinds, topic), max_size=4)),
        "robots": ROBOTS if topic == PULLED else (),
        "rules": drawn,
        "respecified": [draw(respecified(drawn[number], topic, globs[number])) for number in changed],
        "edits": draw(st.lists(st.tuples(st.integers(0, 30), some(*EDITS, "delete")), max_size=4)),
        "changes": draw(st.lists(st.tuples(st.integers(0, 30), sources), max_size=3)),
        "labelled": draw(st.booleans()),
        "meanwhile": draw(st.none() | st.integers(0, 30)),
        "without_rule": draw(st.booleans()),
    }


@st.composite
def respecified(draw: st.DrawFn, before: Object, topic: str, robots: str) -> Object:
    """The same rule with some fields of another one, or all of them but the type, which is immutable."""
    kind = model.KINDS[before["spec"]["ruleType"]]
    again: Object = draw(rules([kind], before["metadata"]["name"], topic, robots))
    fields = draw(some(("orphans",), ("targets",), ("orphans", "targets"), again["spec"]))
    return before | {
        "spec": again["spec"] if len(fields) > 2 else before["spec"] | {k: again["spec"][k] for k in fields}
    }


# Create the world


def _namespace(name: str, labels: Object | None = None, *, willing: bool = True) -> Object:
    annotations = {} if willing else {"kubechores.dev/copies": "false"}
    metadata = {"name": name, "labels": labels or {}, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _build(api: Api, drawn: Object) -> None:
    uids = {}
    for name, (labels, unwilling) in drawn["namespaces"].items():
        uids[name] = api.create(_namespace(name, labels, willing=unwilling > 0))["metadata"]["uid"]
    # A rule may name its copies so: what the control plane creates must be there before a run.
    wait_for(lambda: all(api.get(service_account(name, "default")) for name in NAMESPACES), "ServiceAccounts")
    for each in [*drawn["sources"], *drawn["foreign"]]:
        made = {key: value for key, value in each.items() if key != "controlled"}
        if each.get("controlled"):
            owner = made["metadata"]["namespace"]
            reference = {"apiVersion": "v1", "kind": "Namespace", "name": owner, "uid": uids[owner], "controller": True}
            made["metadata"] = made["metadata"] | {"ownerReferences": [reference]}
        if api.get(made) is None:
            api.create(made)
    for name in NAMESPACES if drawn["robots"] else ():
        for robot in drawn["robots"]:
            api.create(service_account(name, robot, labels={}, imagePullSecrets=OWN))
    for each in drawn["rules"]:
        api.create(each)


def _edit(api: Api, world: World, drawn: Object) -> None:
    """Change copies by hand, and sources: some are recreated with what cannot be changed in place."""
    copies = [key for key, each in sorted(sync_copies.objects(world).items()) if is_copy(each)]
    if drawn["labelled"]:
        for each in copies:
            _try(api, "PATCH", each, EDITS["label"])
    for number, how in drawn["edits"]:
        if copies:
            key = copies[number % len(copies)]
            _try(api, *(("DELETE", key) if how == "delete" else ("PATCH", key, EDITS[how])))
    for number, source in drawn["changes"]:
        before = drawn["sources"][number % len(drawn["sources"])]
        if api.get(before) and not is_copy(api.get(before) or {}):
            api.delete(before)
            again = source["kind"] == before["kind"]
            made = source | {"metadata": before["metadata"]} if again else source
            if api.get(made) is None:
                api.create(made)
    for each in drawn["respecified"]:
        event("a rule was changed")
        api.replace(each)
    if drawn["without_rule"]:
        api.delete(drawn["rules"][0])


def _try(api: Api, method: str, key: Key, patch: Object | None = None) -> None:
    """An edit that the server may refuse: of an immutable object, of the keys of a type, of a deleted object."""
    plural, namespace, name = key
    if patch and "data" in patch:
        patch = EDITS_OF_CONTENT.get(plural, patch)
    headers = {"Content-Type": "application/merge-patch+json"} if patch else None
    path = BY_PLURAL[plural].path(namespace, name)
    assert api.request(method, path, patch, headers=headers)[0] in (200, 404, 422)


# Properties


@PROFILE
@given(drawn=worlds(), seed=st.integers(0, 1 << 32))
def test_a_second_run_writes_nothing_and_unmanaged_objects_stay(drawn: Object, seed: int) -> None:
    with served(embedded.installed(), JOB) as world, tempfile.TemporaryDirectory() as folder:
        api = sandbox_api(world.sandbox, Path(folder))
        _build(api, drawn)
        _converges(world)
        _edit(api, world, drawn)
        _is_the_same_in_any_order(world, seed)
        _is_the_same_with_one_list_of_all_namespaces(world)
        _converges(world, drawn["meanwhile"])


def _converges(world: World, meanwhile: int | None = None) -> None:
    """Run, with another run at the request of this number; the next one has nothing to write."""
    before = sync_copies.objects(world)
    specs = [each["spec"] for each in sync_copies.rules(world).values()]
    if meanwhile is not None:
        with world.run_elsewhere() as run:
            world.sandbox.inject(Fault(kind="call-before", call=run, skip=meanwhile))
            world.run()
        world.sandbox.clear_faults()
    ran = world.run()
    if "not-attached" in ran.summary:  # it waited for another copy of the ServiceAccount, whose create failed
        event("a name waited for the next run")
        ran = world.run()
    assert ran.exit_code in (0, 2, 4), ran
    for code in {each["code"] for each in ran.results} | set(ran.summary):
        event(code)
    after = sync_copies.objects(world)
    others = {key: each for key, each in before.items() if not is_copy(each) and key[2] not in ROBOTS}
    spoiled = [key for key, each in others.items() if after.get(key) != each]
    assert [key for key in spoiled if not (key in after and _may_be_adopted(before[key], specs))] == []
    writes = len(world.writes())
    _is_as_modelled(world, before, after, ran)
    again = world.run()
    assert world.writes()[writes:] == []
    assert again.exit_code == ran.exit_code
    assert [each for each in world.run("--dry-run", "-v").results if "action" in each] == []


def _is_as_modelled(world: World, before: Mapping[Key, Object], after: Mapping[Key, Object], ran: Ran) -> None:
    """Compare what a run made of a cluster with what tests/model.py requires."""
    earlier, later = ({model.place(each): each for each in found.values()} for found in (before, after))
    rules, namespaces = [*sync_copies.rules(world).values()], [*world.stored("namespaces").values()]
    assert [*model.wrong(earlier, later, rules, namespaces)] == []
    wanted = model.desired(rules, earlier.values(), namespaces)
    _count(wanted, rules, earlier)
    _are_attached_as_modelled(later, wanted, rules)
    if ran.exit_code == 0:
        left = _orphans(earlier, wanted.keys(), rules, namespaces) & later.keys()
        event(f"orphans were deleted: {bool(earlier.keys() - later.keys())}")
        assert left == set(), ran.summary


def _orphans(
    objects: State, wanted: Collection[model.Place], rules: Sequence[Object], namespaces: Sequence[Object]
) -> set[model.Place]:
    """The copies that a run deletes, if nothing blocks it; without those of a refused source, which stay."""
    everywhere = [each | {"spec": each["spec"] | {"targets": {}}} for each in rules]
    alone = [model.desired([each], [source], namespaces) for each in everywhere for source in objects.values()]
    refused = {copy.source for found in alone for every in found.values() for copy in every if copy.refused}
    of_rules = {f"kube-chores/{each['metadata']['name']}": each["spec"]["orphans"] for each in rules}
    stamps = {at: each["metadata"].get("annotations", {}) for at, each in objects.items() if is_copy(each)}
    return {
        at
        for at, stamp in stamps.items()
        if at not in wanted and stamp.get("kubechores.dev/source") not in refused
        if of_rules.get(stamp.get("kubechores.dev/rule"), stamp.get("kubechores.dev/orphans")) == "Delete"
    }


def _count(wanted: Mapping[model.Place, list[model.Copy]], rules: Sequence[Object], objects: State) -> None:
    """Report which copies a world has."""
    copies = {copy.rule for every in wanted.values() for copy in every if not copy.refused and len(every) == 1}
    for each in rules:
        if "merge" in each["spec"] and each["metadata"]["name"] in copies:
            event(f"a bundle of {sum(model.selects(each, source) for source in objects.values())} sources")


def _are_attached_as_modelled(
    later: State, wanted: Mapping[model.Place, list[model.Copy]], rules: Sequence[Object]
) -> None:
    """Compare imagePullSecrets: a copy that stays although it is not as required keeps its name, if it had one."""
    usable = {at: [each for each in every if not each.refused] for at, every in wanted.items()}
    required = {
        at: later[at]
        for at, copies in usable.items()
        if len(copies) == 1 and at in later and is_copy(later[at]) and model.is_as(later[at], copies[0])
    }
    robots = [
        each for each in later.values() if each["kind"] == "ServiceAccount" and each["metadata"]["name"] in ROBOTS
    ]
    attached = model.attached(rules, required, robots)
    event(f"names are attached: {bool(attached)}")
    for robot in robots:
        at, found = model.place(robot), {each["name"] for each in robot["imagePullSecrets"]}
        must = attached.get(at, set())
        assert {"own"} | must <= found, (at, found, must)
        for name in found - must - {"own"}:
            copy = later.get(("Secret", at[1], name))
            assert copy and is_copy(copy) and model.place(copy) not in required, (at, found, must)
            event("a name stays")


def _may_be_adopted(obj: Object, rules: Sequence[Object]) -> bool:
    """Whether a rule may adopt it: not managed, without a controller, not a source, and not a kind of object that is
    never copied.
    """
    metadata = obj["metadata"]
    of_its_kind = [each for each in rules if each["ruleType"] == obj["kind"].lower()]
    copied_as = [
        each for each in rules if each.get("copyAs", {}).get("kind", each["ruleType"]).lower() == obj["kind"].lower()
    ]
    return (
        any(each["conflict"] == "Adopt" for each in copied_as)
        and not model.is_managed(obj)
        and not any(owner.get("controller") for owner in metadata.get("ownerReferences", []))
        and obj.get("type") not in NEVER_ADOPTED
        and obj.get("roleRef", VIEW)["kind"] == "ClusterRole"
        and BOOTSTRAPPING not in metadata.get("labels", {})
        and (obj["kind"], metadata["name"]) != ("ServiceAccount", "default")
        and not any(metadata["namespace"] in each["namespaces"] and _selects(each, obj) for each in of_its_kind)
    )


def _selects(rule: Object, obj: Object) -> bool:
    label = "copyrator" if rule.get("selector") == SELECTORS[0] else "stage"
    is_named = obj["metadata"]["name"] in rule.get("names", [obj["metadata"]["name"]])
    return is_named and ("selector" not in rule or label in obj["metadata"].get("labels", {}))


def _is_the_same_in_any_order(world: World, seed: int) -> None:
    """Assert that the plan does not depend on the order of what was read."""
    settings = Settings("kube-chores", run=RunOptions(verbose=True, diff=True))
    observed = _settled(world, settings)
    shuffled = _shuffled(observed, random.Random(seed))
    assert _lines(plan(shuffled, settings, NOW)) == _lines(plan(observed, settings, NOW))


def _is_the_same_with_one_list_of_all_namespaces(world: World) -> None:
    settings = Settings("kube-chores")
    observed, requests = [], []
    for fewest in (1, 1000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading, "_FEWEST_NAMESPACES", fewest)
            before = len(world.sandbox.requests)
            observed.append(_observed(world, settings))
            requests.append(len(world.sandbox.requests) - before)
    event(f"other lists: {requests[0] != requests[1]}")
    assert observed[0].sources == observed[1].sources
    assert _lines(plan(observed[0], settings, NOW)) == _lines(plan(observed[1], settings, NOW))


def _observed(world: World, settings: Settings) -> Observed:
    transport = Transport(Endpoint(world.sandbox.url, lambda: f"Bearer {world.sandbox.admin_token}"), "tests")
    try:
        return observe(Cluster(transport, "kube-chores"), settings)
    finally:
        transport.close()


def _settled(world: World, settings: Settings) -> Observed:
    """What a run observes, with all objects that its plan needs."""
    transport = Transport(Endpoint(world.sandbox.url, lambda: f"Bearer {world.sandbox.admin_token}"), "tests")
    cluster = Cluster(transport, "kube-chores")
    kinds = {kind.name: kind.resource for kind in KINDS.values()}
    observed = observe(cluster, settings)
    while needs := plan(observed, settings, NOW).dependencies:
        requested = {(kinds[need.key.kind], need.key.namespace, need.key.name, need.full): need for need in needs}
        answers = list(cluster.read(requested))
        observed = observed.with_documents(
            {requested[each.request.tag]: ReadResult(each.body, error_of(each)) for each in answers}, {}
        )
    transport.close()
    return observed


def _shuffled(observed: Observed, by: random.Random) -> Observed:
    def mixed(items: Any) -> list[Any]:
        known = list(items)
        return by.sample(known, len(known))

    def copies(of: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Mapping[str, Any]]:
        return {name: dict(mixed(places.items())) for name, places in mixed(of.items())}

    return replace(
        observed,
        rules=tuple(mixed(observed.rules)),
        namespaces=tuple(mixed(observed.namespaces)),
        sources={query: tuple(mixed(found)) for query, found in mixed(observed.sources.items())},
        copies={kind: copies(of) for kind, of in observed.copies.items()},
        single_reads=dict(mixed(observed.single_reads.items())),
    )


def _lines(made: Plan) -> list[str]:
    return [*map(_line, made.findings), repr(replace(made, findings=()))]


def _line(finding: Finding) -> str:
    change = finding.change
    body = base64.b64encode(change.body.encode()).decode() if change else ""
    return f"{replace(finding, change=None)} {change and change.action.value} {body}"
