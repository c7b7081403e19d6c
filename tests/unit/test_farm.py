"""The pure parts of farm-pods: names, reduced pods, plans and the brake."""

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from jobs.core.farm_pods.farm_pod import (
    FarmPod,
    FarmPodManifest,
    Pod,
    PodMetadata,
    PodObject,
    place,
    reduce_farm_pod,
    reduce_pod,
)
from jobs.core.farm_pods.observed import Observed, Settings
from jobs.core.farm_pods.plan import compare, different, plan, to_read_in_full
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Action, Change, Dependency, ExitCode, Finding, ObjectKey, Plan, RunOptions, Severity
from jobs.kit.values.reads import ReadResult
from jobs.kit.values.resources import is_name
from tests.canary import TOKEN
from tests.farm import pod

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
WEB = Pod("shop", "web", "uid-web", 2)
WEB_READ = (Dependency(WEB.key), json.dumps(pod("shop", "web", 2, uid="uid-web")).encode())
LABELS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
NAMES = st.lists(LABELS, min_size=1, max_size=8).map(".".join).filter(lambda name: len(name) <= 253)


def document(of: Pod, **metadata: Any) -> bytes:
    """Return the FarmPod of a pod as the API serves it."""
    created = json.loads(FarmPodManifest(of).encode())
    created["metadata"] |= {"uid": "uid-farm", "resourceVersion": "7", "generation": 1, **metadata}
    return json.dumps(created).encode()


STALE = document(Pod("shop", "web", "uid-before", 2))


def observed(*pods: Pod, **farm_pods: bytes) -> Observed:
    read = [reduce_farm_pod(each) for each in farm_pods.values()]
    return Observed(["shop"], pods, {each.key: each for each in read})


def planned(of: Observed, *, verbose: bool = False, **settings: Any) -> Plan:
    return plan(of, Settings(**settings, run=RunOptions(verbose=verbose)), NOW)


def outdated() -> Observed:
    """Return an observation of a FarmPod of an earlier pod, which was read again."""
    return with_documents(observed(WEB, web=STALE), (Dependency(WEB.place), STALE))


def codes(of: Plan) -> list[tuple[str, str]]:
    return [(finding.object.name, finding.code) for finding in of.findings]


def with_documents(of: Observed, *documents: tuple[Dependency, bytes | int]) -> Observed:
    answers: Mapping[Dependency, ReadResult] = {
        need: ReadResult(error=ApiError(answer, "no")) if isinstance(answer, int) else ReadResult(answer)
        for need, answer in documents
    }
    return of.with_documents(answers, {})


@given(NAMES)
def test_every_pod_name_results_in_a_valid_name(name: str) -> None:
    found = place("shop", name).name

    assert is_name(found)
    assert found == f"farm-{name}" or (len(name) > 248 and found.startswith("farm-"))


@given(st.sets(st.text("ab", min_size=1, max_size=3), min_size=2))
def test_long_names_with_the_same_prefix_have_different_names(ends: set[str]) -> None:
    assert len({place("shop", "x" * 250 + end) for end in ends}) == len(ends)


def test_only_names_uid_and_number_of_containers_of_a_pod_are_decoded() -> None:
    with_pod = pod("shop", "web", containers=2, uid="uid-web")
    body = json.dumps(with_pod)
    assert TOKEN in body

    read = msgspec.json.decode(body, type=PodObject)

    assert reduce_pod(read) == WEB
    assert TOKEN not in repr(msgspec.to_builtins(read))
    assert msgspec.json.encode(read.spec) == b'{"containers":[{},{}]}'


def test_of_a_list_of_metadata_the_number_of_containers_is_not_known() -> None:
    metadata = json.dumps({"metadata": pod("shop", "web", uid="uid-web")["metadata"]})

    read = msgspec.json.decode(metadata, type=PodMetadata)

    assert reduce_pod(read) == structs.replace(WEB, containers=None)


def owned(*, manager: str = "kube-chores", containers: bool = True, uid: str = "uid-web") -> dict[str, Any]:
    """Return an entry of managedFields of a FarmPod."""
    references: Any = {"f:ownerReferences": {".": {}, f'k:{{"uid":"{uid}"}}': {}}} if uid else {}
    spec: Any = {"f:spec": {".": {}, **({"f:containers": {}} if containers else {}), "f:pod": {}}}
    fields = {"f:metadata": {"f:labels": {}, **references}, **spec}
    return {"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields}


def farm_pod_of(of: Pod, *entries: Any) -> FarmPod:
    return reduce_farm_pod(document(of, managedFields=[*entries]))


@pytest.mark.parametrize(
    ("entries", "as_written"),
    [
        ([owned()], True),
        ([owned(), {"manager": "kubectl-label", "fieldsV1": {"f:metadata": {"f:labels": {"f:team": {}}}}}], True),
        ([owned(), owned(manager="kubectl-edit", containers=False, uid="")], True),
        ([owned(containers=False), owned(manager="kubectl-edit", uid="")], False),
        ([owned(uid=""), owned(manager="kubectl-edit", containers=False)], False),
        ([owned(), owned(manager="kubectl-apply", uid="")], False),
        ([owned(manager="velero")], False),
        ([owned(uid="uid-before")], False),
        ([owned(), {"manager": "forged", "fieldsV1": 3}], False),
        ([owned(), {"manager": "forged", "fieldsV1": {"f:spec": 3}}], False),
        ([], False),
    ],
)
def test_the_number_of_containers_is_known_only_if_this_job_alone_wrote_it(entries: Any, as_written: bool) -> None:
    of_metadata = structs.replace(WEB, containers=None)

    found = farm_pod_of(WEB, *entries)

    assert found.as_written is as_written
    assert found.is_desired(of_metadata) is as_written
    assert (found.is_desired(WEB), found.is_desired(structs.replace(WEB, containers=3))) == (True, False)
    before = planned(Observed(["shop"], [of_metadata], {found.key: found}))
    assert (before.unchanged, before.dependencies) == ((1, ()) if as_written else (0, (Dependency(WEB.place),)))


@pytest.mark.parametrize("name", ["web", "x" * 250])
@pytest.mark.parametrize(
    ("metadata", "changed"),
    [
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"terminating": True}),
        ({"labels": {}}, {"managed": False}),
        ({"labels": None, "annotations": None}, {"managed": False, "has_source": False}),
        ({"annotations": {"kubechores.dev/source": "shop/other"}}, {"has_source": False}),
        (
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "other", "uid": "uid-web"}]},
            {"owner": "", "as_written": False},
        ),
        ({"ownerReferences": []}, {"owner": "", "owned": False, "as_written": False}),
        ({"managedFields": None}, {"as_written": False}),
    ],
)
def test_each_change_of_a_farm_pod_is_known(name: str, metadata: Any, changed: Any) -> None:
    of = structs.replace(WEB, name=name)
    before = reduce_farm_pod(document(of, managedFields=[owned()]))
    assert (before.managed, before.owner, before.has_source, before.as_written) == (True, "uid-web", True, True)

    found = reduce_farm_pod(document(of, **{"managedFields": [owned()], **metadata}))

    assert found == structs.replace(before, **changed)


CONTROLLER = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "uid-web", "controller": True}


@pytest.mark.parametrize(
    ("metadata", "is_known"), [({}, True), ({"generation": 2}, False), ({"ownerReferences": [CONTROLLER]}, False)]
)
def test_the_number_of_containers_is_not_known_after_a_change_of_spec_or_owner(metadata: Any, is_known: bool) -> None:
    assert reduce_farm_pod(document(WEB, managedFields=[owned()], **metadata)).as_written is is_known


def test_a_pod_without_a_farm_pod_is_read_before_the_write() -> None:
    of_metadata = observed(structs.replace(WEB, containers=None))
    assert planned(of_metadata).dependencies == (Dependency(WEB.key),)

    found = planned(with_documents(of_metadata, WEB_READ))

    assert [(each.code, each.reason) for each in found.findings] == [("missing", "2 containers")]
    assert found.findings[0].change == Change(Action.CREATE, FarmPodManifest(WEB))
    blocked = planned(of_metadata, max_objects=0)
    assert (codes(blocked), blocked.dependencies) == ([("shop", "over-limit")], ())


def test_a_pod_that_a_server_lists_twice_is_one_pod() -> None:
    known = farm_pod_of(WEB, owned())
    other = structs.replace(WEB, name="other", uid="uid-other")

    found = different([known.key, known.key, other, other], {known.key: known})

    assert found == ([other], {}, {"shop": 1})


def test_with_v_pods_that_have_their_farm_pods_are_not_read_in_full() -> None:
    known = farm_pod_of(WEB, owned())

    assert list(to_read_in_full({"shop": [structs.replace(WEB, containers=None)]}, {known.key: known}, 10)) == []


@pytest.mark.parametrize(("missing", "expected"), [(0, []), (2, []), (3, ["shop"]), (4, ["shop"])])
def test_more_than_half_of_the_pods_of_a_namespace_are_read_in_one_list(missing: int, expected: list[str]) -> None:
    pods = [Pod("shop", f"web-{n}", f"uid-{n}", 1) for n in range(4)]
    known = {each.place: farm_pod_of(each, owned(uid=each.uid)) for each in pods[missing:]}
    compared = {"shop": [compare(structs.replace(each, containers=None), known) for each in pods]}

    assert list(to_read_in_full(compared, known, 10)) == expected
    assert list(to_read_in_full(compared, known, 3)) == [], "the brake blocks the creates"


class _World(NamedTuple):
    pods: list[Pod]
    farm_pods: Mapping[ObjectKey, FarmPod]


@st.composite
def worlds(draw: st.DrawFn) -> _World:
    """Return pods, two of them with FarmPods of the same name, and FarmPods: many as desired, others not."""
    long = "b" * 250
    names = ["a", "b", "c", "d", long, place("x", long).name.removeprefix("farm-")]
    flag = st.sampled_from([False, False, False, True])
    pods, farm_pods = [], {}
    for namespace in ("shop", "team"):
        for name in draw(st.sets(st.sampled_from(names))):
            each = Pod(namespace, name, f"uid-{namespace}-{name}", draw(st.integers(1, 2)), draw(flag))
            pods.append(each)
            if draw(flag):
                continue
            farm_pod = farm_pod_of(structs.replace(each, uid="uid-other") if draw(flag) else each, owned(uid=each.uid))
            changes = {"managed": not draw(flag), "terminating": draw(flag), "containers": draw(st.integers(1, 2))}
            farm_pods[farm_pod.key] = structs.replace(farm_pod, **(changes if draw(flag) else {}))
    return _World(pods, farm_pods)


@given(worlds(), st.booleans(), st.integers(0, 12))
def test_the_plan_is_the_same_without_pods_that_have_their_farm_pods(world: _World, in_full: bool, most: int) -> None:
    pods = world.pods if in_full else [structs.replace(each, containers=None) for each in world.pods]
    left, farm_pods, unchanged = different([compare(each, world.farm_pods) for each in pods], world.farm_pods)

    found = planned(Observed(["shop", "team"], left, farm_pods, unchanged=unchanged), max_objects=most)

    assert not [each for each in left if each.place in farm_pods and is_alone(each, left) and served_by(each, world)]
    expected = planned(Observed(["shop", "team"], pods, world.farm_pods), max_objects=most)
    assert codes(found) == codes(expected)
    assert found.dependencies == expected.dependencies
    assert (found.unchanged, found.summary, found.brakes) == (expected.unchanged, expected.summary, expected.brakes)
    assert found.order == expected.order


def is_alone(of: Pod, pods: Sequence[Pod]) -> bool:
    return not any(each.place == of.place and each != of and not each.terminating for each in pods)


def served_by(of: Pod, world: _World) -> bool:
    """Whether the FarmPod of a pod is as desired."""
    found = world.farm_pods[of.place]
    return found.managed and not found.terminating and not of.terminating and found.is_desired(of)


@pytest.mark.parametrize("containers", [1, 3])
def test_a_farm_pod_that_was_written_and_read_is_as_desired(containers: int) -> None:
    of = Pod("shop", "web", "uid-web", containers)

    assert FarmPodManifest(of).changed_by_server(document(of)) == ()
    assert planned(observed(of, web=document(of))).unchanged == 1


@pytest.mark.parametrize(
    "spec", [None, {}, {"pod": 1, "containers": "x"}, {"pod": "web"}, {"pod": "web", "containers": 9}]
)
def test_any_wrong_spec_is_read_and_repaired(spec: object) -> None:
    broken = json.dumps({**json.loads(document(WEB)), "spec": spec}).encode()
    before = observed(WEB, web=broken)
    assert planned(before).dependencies == (Dependency(WEB.place),)
    before = with_documents(before, (Dependency(WEB.place), broken))
    assert planned(before).dependencies == (Dependency(WEB.key),)

    found = planned(with_documents(before, WEB_READ))

    assert codes(found) == [("farm-web", "drifted")]
    change = found.findings[0].change
    assert change and change.action is Action.REPLACE
    written = json.loads(change.body.encode())
    assert (written["spec"], written["metadata"]["resourceVersion"]) == ({"pod": "web", "containers": 2}, "7")


def test_of_two_pods_of_one_name_the_one_that_was_read_last_counts() -> None:
    later = Pod("shop", "web", "uid-later", 1)
    before = with_documents(observed(WEB, web=document(later)), (Dependency(WEB.place), document(later)))

    found = planned(
        with_documents(before, (Dependency(WEB.key), json.dumps(pod("shop", "web", uid="uid-later")).encode()))
    )

    assert (codes(found), found.unchanged) == ([], 1)


def test_a_pod_is_read_again_after_its_farm_pod_was_read_again() -> None:
    with_pod = with_documents(outdated(), WEB_READ)
    assert codes(planned(with_pod)) == [("farm-web", "drifted")]
    assert planned(with_pod).findings[0].reason == "pod/web was recreated"

    assert planned(with_documents(with_pod, (Dependency(WEB.place), STALE))).dependencies == (Dependency(WEB.key),)


def test_a_farm_pod_that_was_deleted_and_that_another_run_recreated_is_as_desired() -> None:
    with_pod = with_documents(observed(WEB, web=STALE), (Dependency(WEB.place), 404), WEB_READ)
    assert codes(planned(with_pod)) == [("farm-web", "missing")]

    found = planned(with_documents(with_pod, (Dependency(WEB.place, full=False), document(WEB))))

    assert (codes(found), found.dependencies, found.unchanged) == ([], (), 1)


@pytest.mark.parametrize(
    ("need", "status"),
    [(Dependency(WEB.place), 500), (Dependency(WEB.place, full=False), 500), (Dependency(WEB.key), 403)],
)
def test_an_object_that_cannot_be_read_is_reported_and_not_written(need: Dependency, status: int) -> None:
    found = planned(with_documents(outdated(), (need, status)))

    assert codes(found) == [("farm-web", "unreadable")]
    assert found.findings[0].change is None
    assert found.findings[0].exit_code is not ExitCode.DONE


def test_a_farm_pod_that_is_too_large_to_keep_is_not_written() -> None:
    large = document(WEB, annotations={"theirs": "x" * (64 << 10)}, ownerReferences=[])

    (found,) = planned(with_documents(observed(WEB, web=STALE), (Dependency(WEB.place), large))).findings

    assert (found.code, found.change, "the limit is 64 KiB" in found.reason) == ("unreadable", None, True)


def test_a_pod_that_is_deleted_during_a_run_is_only_an_info() -> None:
    (found,) = planned(with_documents(outdated(), (Dependency(WEB.key), 404))).findings
    assert (found.code, found.severity, found.change) == ("retained", Severity.INFO, None)


def test_farm_pods_of_a_namespace_whose_pods_cannot_be_read_are_not_reported() -> None:
    failure = Finding(
        "unreadable", Severity.CRITICAL, WEB.key._replace(kind="Namespace", name="shop", namespace=""), "no"
    )
    unowned = document(WEB, ownerReferences=[])
    read = observed(web=unowned)

    assert codes(planned(Observed(["shop"], (), read.farm_pods, (failure,)), verbose=True)) == [("shop", "unreadable")]
    assert codes(planned(read)) == [("farm-web", "orphan")]
    assert codes(planned(Observed([], (), read.farm_pods), verbose=True)) == [("farm-web", "retained")]


def test_the_plan_does_not_depend_on_the_order_of_what_was_read() -> None:
    pods = [Pod("shop", f"web-{number}", f"uid-{number}", 1) for number in range(20)]
    existing = {f"p{number}": document(pods[number]) for number in range(0, 20, 3)}
    plans = []
    for seed in range(5):
        mixed = random.Random(seed).sample(pods, len(pods))
        read = dict(random.Random(seed).sample(list(existing.items()), len(existing)))
        plans.append(planned(observed(*mixed, **read)))

    assert all(each == plans[0] for each in plans)
    assert len(plans[0].findings) == 13


@pytest.mark.parametrize(("most", "created"), [(0, 0), (3, 0), (4, 3), (5, 3)])
def test_the_brake_counts_existing_and_missing_farm_pods(most: int, created: int) -> None:
    pods = [Pod("shop", name, f"uid-{name}", 1) for name in "abcd"]
    of_others = document(Pod("shop", "other", "uid-other", 1), labels={})

    found = planned(observed(*pods, a=document(pods[0]), other=of_others), max_objects=most)

    assert sum(finding.change is not None for finding in found.findings) == created
    assert {finding.exit_code for finding in found.findings} == {ExitCode.DONE if created else ExitCode.BRAKE}
    assert [(brake.option, brake.value) for brake in found.brakes] == ([] if created else [("--max-objects", "4")])


def farm_of(creates: Mapping[str, int], existing: Mapping[str, int]) -> Observed:
    """Return namespaces with these numbers of pods without and with a FarmPod."""
    served = [Pod(name, f"old-{n}", f"uid-{n}", 1) for name, number in existing.items() for n in range(number)]
    new = [Pod(name, f"new-{n}", f"uid-{n}", 1) for name, number in creates.items() for n in range(number)]
    read = [reduce_farm_pod(document(each)) for each in served]
    farm_pods = {each.key: each for each in read}
    return Observed(sorted({*creates, *existing}), [*served, *new], farm_pods)


def served(of: Plan) -> Mapping[str, int]:
    return dict(Counter(found.object.namespace for found in of.findings if found.change))


@pytest.mark.parametrize(
    ("creates", "existing", "created"),
    [
        ({"big": 30, "small": 2, "tiny": 1}, {}, {"small": 2, "tiny": 1}),
        ({"big": 8, "small": 2}, {}, {"big": 8, "small": 2}),
        ({"a": 5, "b": 5, "c": 5}, {}, {"a": 5, "b": 5}),
        # A namespace that does not fit does not stop a larger one with few new pods.
        ({"large": 1, "middle": 5}, {"large": 8}, {"large": 1}),
        # All pods of a namespace count for its size, not only new ones.
        ({"large": 2, "small": 4}, {"large": 5}, {"small": 4}),
        ({"other": 1}, {"full": 12}, {}),
    ],
)
def test_the_brake_serves_whole_namespaces_and_the_smallest_first(
    creates: Mapping[str, int], existing: Mapping[str, int], created: Mapping[str, int]
) -> None:
    found = planned(farm_of(creates, existing), max_objects=10)

    blocked = creates.keys() - created.keys()
    assert served(found) == created
    over = {each.object.name: each.exit_code for each in found.findings if each.code == "over-limit"}
    assert over == dict.fromkeys(blocked, ExitCode.BRAKE)
    total = sum(creates.values()) + sum(existing.values())
    brake = [("--max-objects", str(total + total // 10))]
    assert [(each.option, each.value) for each in found.brakes] == (brake if blocked else [])


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 12)),
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 12)),
    st.integers(0, 40),
    st.data(),
)
def test_a_run_that_is_cut_anywhere_is_resumed_with_the_same_namespaces(
    creates: dict[str, int], existing: dict[str, int], most: int, data: st.DataObject
) -> None:
    first = served(planned(farm_of(creates, existing), max_objects=most))
    done = {name: data.draw(st.integers(0, number)) for name, number in first.items()}
    left = {name: number - done.get(name, 0) for name, number in creates.items()}
    grown = {name: existing.get(name, 0) + done.get(name, 0) for name in {*existing, *creates}}

    then = served(planned(farm_of(left, grown), max_objects=most))

    assert then == {name: first[name] - done[name] for name in first if done[name] < first[name]}
    assert sum(existing.values()) + sum(first.values()) <= max(most, sum(existing.values()))
