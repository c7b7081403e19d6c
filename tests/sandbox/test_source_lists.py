"""Sources in many namespaces when one of the lists of all namespaces fails, and when objects change between both."""

import json
from collections.abc import Iterator
from functools import partial

import pytest

from jobs.core.sync_copies import observe
from jobs.core.sync_copies.desired import name_of
from jobs.core.sync_copies.observe import Sources, read_sources
from jobs.core.sync_copies.observed import NAME, Settings, Source
from jobs.core.sync_copies.rules import Rule, SourceQuery, parse_rule
from jobs.kit.api.cluster import Cluster
from jobs.kit.api.endpoint import Endpoint
from jobs.kit.api.responses import Request
from jobs.kit.api.transport import Transport
from jobs.kit.data.objects import ObjectReducer
from jobs.kit.values import stamps
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Finding, ObjectKey
from jobs.kit.values.reads import Head
from jobs.kit.values.resources import CONFIGMAPS, NAMESPACES, ROLE_BINDINGS, SECRETS, Resource
from kubesandbox import Fault, Sandbox
from tests.apis import Object
from tests.canary import canary
from tests.more_kinds import of_kind
from tests.worlds import configmap, encoded, rule, secret

TEAMS = [f"team-{number}" for number in range(5)]
EXPECTED = {team: ["x"] for team in TEAMS[:-1]} | {TEAMS[-1]: []}
LABELS = {"made": "yes"}
METADATA, FULL = 0, 1  # the first and the second list of all namespaces


@pytest.fixture
def cluster(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cluster with a source in all namespaces but the last, and an object with its labels in another one."""
    monkeypatch.setattr("jobs.kit.api.transport.LONGEST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(observe, "_FEWEST_NAMESPACES", 2)
    transport = Transport(Endpoint(sandbox.url, lambda: f"Bearer {sandbox.admin_token}"), "tests", retry_seconds=0.1)
    cluster = Cluster(transport, "tests")
    for team in [*TEAMS, "other"]:
        create(cluster, NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": team}})
        if team != TEAMS[-1]:
            create(cluster, SECRETS, secret(team, "x", labels=LABELS, data={"a": encoded(canary())}))
    sandbox.requests.clear()
    yield cluster
    transport.close()


def create(cluster: Cluster, resource: Resource, obj: Object) -> None:
    path = resource.path(obj["metadata"].get("namespace", ""))
    assert cluster.transport.send(Request("POST", path, json.dumps(obj).encode(), max_bytes=8 << 20)).status == 201


def delete(cluster: Cluster, path: str) -> None:
    assert cluster.transport.send(Request("DELETE", path)).status == 200


def read(cluster: Cluster, rule_type: str = "secret") -> Sources:
    queries = [SourceQuery(rule_type, team, "made=yes") for team in TEAMS]
    return read_sources(cluster, queries, frozenset(), ObjectReducer(frozenset()))


def names(read: Sources) -> dict[str, list[str]]:
    return {
        query.namespace: [name_of(each) for each in found]
        for query, found in read.items()
        if not isinstance(found, ApiError)
    }


def all_of(read: Sources) -> list[tuple[Source, ...]]:
    return [found for _, found in sorted(read.items()) if not isinstance(found, ApiError)]


def errors(read: Sources) -> dict[SourceQuery, ApiError]:
    return {query: found for query, found in read.items() if isinstance(found, ApiError)}


def paths(sandbox: Sandbox) -> list[str]:
    return [each.path for each in sandbox.requests]


def test_sources_are_two_lists(sandbox: Sandbox, cluster: Cluster) -> None:
    found = read(cluster)

    assert (names(found), errors(found)) == (EXPECTED, {})
    assert paths(sandbox) == ["/api/v1/secrets"] * 2
    assert [each.query.get("fieldSelector") for each in sandbox.requests] == [None, "metadata.namespace!=other"]


@pytest.mark.parametrize("status", [403, 410, 500])
@pytest.mark.parametrize("failed", [METADATA, FULL])
def test_a_list_of_all_namespaces_that_fails_becomes_one_for_each(
    sandbox: Sandbox, cluster: Cluster, failed: int, status: int
) -> None:
    sandbox.inject(Fault("GET", "/api/v1/secrets", status=status, skip=failed, times=None))

    found = read(cluster)

    assert (names(found), errors(found)) == (EXPECTED, {})
    assert sorted(set(paths(sandbox))) == sorted(["/api/v1/secrets", *(SECRETS.path(team) for team in TEAMS)])


def test_lists_of_namespaces_that_fail_are_errors_of_their_queries(sandbox: Sandbox, cluster: Cluster) -> None:
    sandbox.inject(Fault("GET", "/api/v1/secrets", status=403))
    sandbox.inject(Fault("GET", SECRETS.path(TEAMS[1]), status=403))

    found = read(cluster)

    assert {query: error.status for query, error in errors(found).items()} == {
        SourceQuery("secret", TEAMS[1], "made=yes"): 403
    }
    assert names(found) == {team: each for team, each in EXPECTED.items() if team != TEAMS[1]}


def test_a_source_that_is_created_between_the_lists_is_read(sandbox: Sandbox, cluster: Cluster) -> None:
    late = partial(create, Cluster(cluster.transport, "tests"), SECRETS, secret(TEAMS[-1], "late", labels=LABELS))
    sandbox.inject(Fault("GET", "/api/v1/secrets", kind="call-after", call=lambda: in_thread(sandbox, late)))

    assert names(read(cluster)) == {**EXPECTED, TEAMS[-1]: ["late"]}


def test_an_object_that_gets_the_labels_between_the_lists_in_another_namespace_is_dropped(
    sandbox: Sandbox, cluster: Cluster
) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}
    create(cluster, NAMESPACES, namespace)
    foreign = secret("new", "foreign", labels=LABELS, data={"a": encoded(canary())})
    late = partial(create, cluster, SECRETS, foreign)
    sandbox.inject(Fault("GET", "/api/v1/secrets", kind="call-after", call=lambda: in_thread(sandbox, late)))

    found = read(cluster)

    assert (names(found), errors(found)) == (EXPECTED, {})


def in_thread(sandbox: Sandbox, call: partial[None]) -> None:
    """Call a function with a transport of its own: a transport is for one thread."""
    transport = Transport(Endpoint(sandbox.url, lambda: f"Bearer {sandbox.admin_token}"), "other")
    call.func(Cluster(transport, "other"), *call.args[1:])
    transport.close()


def answer(*items: object, of: int = FULL) -> bytes:
    kind = {METADATA: ("meta.k8s.io/v1", "PartialObjectMetadataList"), FULL: ("v1", "SecretList")}[of]
    head = {"apiVersion": kind[0], "kind": kind[1], "metadata": {"resourceVersion": "1"}}
    return json.dumps({**head, "items": items}).encode()


@pytest.mark.parametrize("namespace", ["", None])
@pytest.mark.parametrize("broken_list", [METADATA, FULL])
def test_an_object_without_a_namespace_makes_one_list_for_each(
    sandbox: Sandbox, cluster: Cluster, broken_list: int, namespace: str | None
) -> None:
    broken = {"metadata": {"name": "x", "namespace": namespace}}
    body = answer(broken, of=broken_list)
    sandbox.inject(Fault("GET", "/api/v1/secrets", kind="answer", status=200, body=body, skip=broken_list))

    found = read(cluster)

    assert (names(found), errors(found)) == (EXPECTED, {})
    assert SECRETS.path(TEAMS[0]) in paths(sandbox)


def test_an_object_that_cannot_be_decoded_belongs_to_the_query_of_its_namespace(
    sandbox: Sandbox, cluster: Cluster
) -> None:
    body = answer(*({"metadata": {"name": "bad", "namespace": each}, "data": 3} for each in (TEAMS[0], "other")))
    sandbox.inject(Fault("GET", "/api/v1/secrets", kind="answer", status=200, body=body, skip=FULL))

    found = read(cluster)

    assert names(found) == {team: ["bad"] if team == TEAMS[0] else [] for team in TEAMS}
    assert [type(each) for sources in all_of(found) for each in sources] == [Finding]


def test_which_role_bindings_are_too_large_does_not_depend_on_the_order_of_answers(
    sandbox: Sandbox, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "_BYTES_OF_SUBJECTS", 12_000)
    monkeypatch.setattr(observe, "_FEWEST_NAMESPACES", 1000)
    for team in TEAMS:
        subjects = [
            {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": f"{team}-{each}"} for each in range(50)
        ]
        create(cluster, ROLE_BINDINGS, of_kind("RoleBinding", team, LABELS, name="x", subjects=subjects))
    expected = types(cluster, "rolebinding", ObjectReducer(frozenset()))
    sandbox.inject(Fault("GET", ROLE_BINDINGS.path(TEAMS[0]), kind="delay", seconds=0.3, times=None))

    assert set(expected) == {"Finding", "ReducedObject"}
    assert types(cluster, "rolebinding", ObjectReducer(frozenset())) == expected == sorted(expected, reverse=True)


def types(cluster: Cluster, rule_type: str, reducer: ObjectReducer, *used: str) -> list[str]:
    """Read the sources of all teams; return what each of them is."""
    queries = [SourceQuery(rule_type, team, "made=yes") for team in TEAMS]
    found = read_sources(cluster, queries, frozenset(used), reducer)
    return [type(each).__name__ for sources in all_of(found) for each in sources]


@pytest.mark.parametrize(("rule_type", "encodings"), [("secret", ["", ""]), ("configmap", ["", "gzip"])])
def test_metadata_of_all_namespaces_are_not_compressed(
    sandbox: Sandbox, cluster: Cluster, rule_type: str, encodings: list[str]
) -> None:
    for team in TEAMS:
        create(cluster, CONFIGMAPS, configmap(team, "x", labels=LABELS))
    sandbox.requests.clear()

    read(cluster, rule_type)

    # Annotations of other namespaces may have values, and the length of compressed text would show which.
    assert [(each.path, each.accept_encoding) for each in sandbox.requests] == [
        (f"/api/v1/{rule_type}s", encoding) for encoding in encodings
    ]


@pytest.mark.parametrize(("namespace", "lists"), [(TEAMS[0], 2), ("other", 1)])
def test_large_annotations_in_other_namespaces_make_one_list_for_each(
    sandbox: Sandbox, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, namespace: str, lists: int
) -> None:
    monkeypatch.setattr(observe, "_MOST_ANNOTATIONS", 40_000)
    for number in range(2):
        large = secret(namespace, f"large-{number}", labels=LABELS)
        large["metadata"]["annotations"] = {"a": "x" * 25_000}
        create(cluster, SECRETS, large)
    sandbox.requests.clear()

    found = read(cluster)

    own = {TEAMS[0]: ["large-0", "large-1", "x"]} if namespace == TEAMS[0] else {}
    assert (names(found), errors(found)) == (EXPECTED | own, {})
    assert paths(sandbox).count("/api/v1/secrets") == lists


def test_after_a_list_of_all_namespaces_failed_no_other_is_tried(sandbox: Sandbox, cluster: Cluster) -> None:
    sandbox.inject(Fault("GET", "/api/v1/secrets", status=500, times=None))
    queries = [SourceQuery("secret", team, f"made={value}") for team in TEAMS for value in ("no", "yes")]

    found = read_sources(cluster, queries, frozenset(), ObjectReducer(frozenset()))

    assert names({query: found[query] for query in queries[1::2]}) == EXPECTED
    selectors = {each.query["labelSelector"] for each in sandbox.requests if each.path == "/api/v1/secrets"}
    assert selectors == {"made=no"}


def test_with_matches_in_too_many_other_namespaces_each_namespace_is_listed(
    sandbox: Sandbox, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "_MOST_EXCLUDED", 0)

    assert names(read(cluster)) == EXPECTED

    assert sorted(paths(sandbox)) == sorted(["/api/v1/secrets", *(SECRETS.path(team) for team in TEAMS)])


def with_notes(obj: Object, notes: int = 5000) -> Object:
    """Return an object with a long annotation."""
    obj["metadata"]["annotations"] = {"notes": "x" * (notes - 10) + obj["metadata"]["namespace"][-10:]}
    return obj


def test_which_long_annotations_are_too_large_does_not_depend_on_the_order_of_answers(
    sandbox: Sandbox, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "_FEWEST_NAMESPACES", 1000)
    for team in TEAMS:
        create(cluster, CONFIGMAPS, with_notes(configmap(team, "x", labels=LABELS)))

    def kinds() -> list[str]:
        return types(cluster, "configmap", ObjectReducer({"notes"}, 12_000), "notes")

    expected = kinds()
    sandbox.inject(Fault("GET", CONFIGMAPS.path(TEAMS[0]), kind="delay", seconds=0.3, times=None))

    assert kinds() == expected == 2 * ["ReducedObject"] + 3 * ["Finding"]


def test_which_copies_are_too_large_does_not_depend_on_the_order_of_answers(
    sandbox: Sandbox, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observe, "ObjectReducer", lambda used, take=None: ObjectReducer(used, 12_000, take))
    stamp = stamps.stamp(NAME, "kube-chores", "any", "home/copy", "0" * 32).labels
    rules = []
    for rule_type, resource, make in (("configmap", CONFIGMAPS, configmap), ("secret", SECRETS, secret)):
        for team in TEAMS[:2]:
            create(cluster, resource, with_notes(make(team, "copy", labels=stamp)))
        spec = rule("x", "home", "*", ruleType=rule_type, metadata={"copyAnnotations": ["notes"]})["spec"]
        made = parse_rule(Head(ObjectKey("CopyratorRule", "x", "kube-chores")), json.dumps(spec).encode())
        assert isinstance(made, Rule)
        rules.append(made)

    def failed() -> list[tuple[str, bool]]:
        copies = observe.observe(cluster, Settings("kube-chores", rules=tuple(rules))).copies
        found = [(rule_type, each) for rule_type, by_name in copies.items() for each in by_name["copy"].values()]
        return sorted((rule_type, isinstance(each, ApiError)) for rule_type, each in found)

    expected = failed()
    sandbox.inject(Fault("GET", "/api/v1/configmaps", kind="delay", seconds=0.3, times=None))

    assert failed() == expected == 2 * [("configmap", False)] + 2 * [("secret", True)]
