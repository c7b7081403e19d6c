"""Pods, the objects that they own, and FarmPods and Llamas, as kubectl and the job use them."""

import copy
from typing import Any

import pytest

from tests.contract.conftest import MODIFIED, TABLE, Answer, Place, conflict, until
from tests.farm import COLLECTED_SECONDS, farm_pod, farmed, llama, owner, pod
from tests.manifests import ROOT, load

GROUP = "kubechores.dev/v1"


@pytest.fixture
def farm(place: Place) -> Place:
    """A namespace in which pods, FarmPods and Llamas can be created."""
    for plural in ("farmpods", "llamas"):
        for obj in load(ROOT / "cronjobs" / "crds" / f"{plural}.yaml"):
            place.api.put(obj)
    return Place(place.api, farmed(place.api))


def cells(answer: Answer) -> tuple[list[str], list[list[Any]]]:
    """Names and values of columns, without the age."""
    columns = [column["name"] for column in answer.body["columnDefinitions"] if not column["priority"]]
    assert columns[-1] == "Age"
    return columns[:-1], [row["cells"][: len(columns) - 1] for row in answer.body["rows"]]


def test_columns(farm: Place) -> None:
    farm.api.create(farm_pod(farm.namespace, "web", containers=2))
    farm.api.create(llama(farm.namespace))
    farm.api.create(llama(farm.namespace, "whole", 30, 1))

    pods, llamas = (farm.send("GET", farm.path(each, group=GROUP), accept=TABLE) for each in ("farmpods", "llamas"))
    assert cells(pods) == (["Name", "Containers", "Pod"], [["farm-web", 2, "web"]])
    assert cells(llamas) == (["Name", "Weight", "Height"], [["dolly", 31.4, 0.5], ["whole", 30, 1]])


def test_short_names_and_categories(farm: Place) -> None:
    found = {each["name"]: each for each in farm.send("GET", f"/apis/{GROUP}").body["resources"]}

    for plural, short in (("farmpods", "fp"), ("llamas", "ll")):
        assert (found[plural]["shortNames"], found[plural]["categories"]) == ([short], ["kubechores", "farm"])


@pytest.mark.parametrize(
    ("plural", "spec", "field"),
    [
        ("farmpods", {"pod": "web"}, "spec.containers"),
        ("farmpods", {"pod": "", "containers": 1}, "spec.pod"),
        ("farmpods", {"pod": "web", "containers": -1}, "spec.containers"),
        ("farmpods", {"pod": "web", "containers": 1.5}, "spec.containers"),
        ("llamas", {"weight": 31.4}, "spec.height"),
        ("llamas", {"weight": "31.4", "height": 0.5}, "spec.weight"),
        ("llamas", {"weight": -1, "height": 0.5}, "spec.weight"),
    ],
)
def test_objects_that_the_schemas_refuse(farm: Place, plural: str, spec: dict[str, Any], field: str) -> None:
    body = farm_pod(farm.namespace, "a") if plural == "farmpods" else llama(farm.namespace)

    answer = farm.send("POST", farm.path(plural, group=GROUP), {**body, "spec": spec})

    assert answer.status == 422
    assert field in {each for each, _, _ in answer.causes}


def test_pods_by_page(farm: Place) -> None:
    for number in range(3):
        farm.api.create(pod(farm.namespace, f"web-{number}", containers=number + 1))

    first = farm.send("GET", f"{farm.path('pods')}?limit=2").body
    rest = farm.send("GET", f"{farm.path('pods')}?limit=2&continue={first['metadata']['continue']}").body

    counts = [len(each["spec"]["containers"]) for each in first["items"] + rest["items"]]
    assert (len(first["items"]), counts) == (2, [1, 2, 3])


def test_objects_are_deleted_with_their_pod_and_not_with_a_second_pod_of_its_name(farm: Place) -> None:
    first = farm.api.create(pod(farm.namespace, "web"))
    owned = farm.api.create(farm_pod(farm.namespace, "web", ownerReferences=[owner(first)]))

    farm.api.delete(first)
    assert until(lambda: farm.api.get(owned) is None, COLLECTED_SECONDS)
    second = farm.api.create(pod(farm.namespace, "web"))

    assert second["metadata"]["uid"] != first["metadata"]["uid"]


def test_an_object_owned_by_a_deleted_pod_is_deleted_at_once(farm: Place) -> None:
    first = farm.api.create(pod(farm.namespace, "web"))
    farm.api.delete(first)
    assert until(lambda: farm.api.get(first) is None)
    farm.api.create(pod(farm.namespace, "web"))

    late = farm.api.create(farm_pod(farm.namespace, "web", ownerReferences=[owner(first)]))

    assert until(lambda: farm.api.get(late) is None, COLLECTED_SECONDS)


def test_an_object_given_to_a_deleted_pod_is_deleted_and_one_given_to_a_later_pod_stays(farm: Place) -> None:
    first, second = (farm.api.create(pod(farm.namespace, name)) for name in ("web", "other"))
    given = [farm.api.create(farm_pod(farm.namespace, name)) for name in ("late", "kept")]
    farm.api.delete(first)
    assert until(lambda: farm.api.get(first) is None)

    for each, to in zip(given, (first, second), strict=True):
        farm.api.patch(each, {"metadata": {"ownerReferences": [owner(to)]}})

    assert until(lambda: farm.api.get(given[0]) is None, COLLECTED_SECONDS)
    assert farm.api.get(given[1])


def test_an_owner_is_replaced_only_in_exactly_that_version_of_an_object(farm: Place) -> None:
    first, second = (farm.api.create(pod(farm.namespace, name)) for name in ("web", "other"))
    made = farm.api.create(farm_pod(farm.namespace, "web", ownerReferences=[owner(first)]))
    path = farm.path("farmpods", "farm-web", GROUP)
    changed = copy.deepcopy(made)
    changed["metadata"]["ownerReferences"] = [owner(second)]

    assert farm.send("PUT", path, changed).body["metadata"]["ownerReferences"] == [owner(second)]
    again = farm.send("PUT", path, changed)
    failed = 'Operation cannot be fulfilled on farmpods.kubechores.dev "farm-web"'
    assert again.problem == conflict(f"{failed}: {MODIFIED}")
    stranger = {**changed, "metadata": {**changed["metadata"], "uid": "0", "resourceVersion": ""}}
    assert farm.send("PUT", path, stranger).status in (409, 422)
