"""The invariants of FarmPods, with constructed histories."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from soak.history import Key, Object
from soak.invariants.farm import invariants
from soak.invariants.farm.pods import farm_pod_key
from soak.invariants.farm.written import FarmPods
from soak.observed import Run
from soak.tests.story import START, Story
from tests.farm import FARMED, farm_pod, owner, pod

SPACE = Key("Namespace", "", "farm-1")
WEB = Key("Pod", "farm-1", "web")
PLACE = farm_pod_key("farm-1", "web")
MANAGED = {"app.kubernetes.io/managed-by": "kube-chores", "kubechores.dev/job": "farm-pods"}


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """A namespace that opted in, with a pod of two containers, 100 s ago."""
    made = Story("farm-pods", tmp_path)
    made.past.add(-100, SPACE, {"metadata": {"name": "farm-1", "labels": FARMED}})
    made.past.add(-90, WEB, web())
    return made


def web(uid: str = "p1", containers: int = 2) -> Object:
    return pod("farm-1", "web", containers, uid=uid)


def described(of: Object, containers: int = 2, **metadata: Any) -> Object:
    """Return the FarmPod that the job writes for a pod."""
    metadata = {"labels": MANAGED, "annotations": {}, "ownerReferences": [owner(of)], **metadata}
    return farm_pod("farm-1", "web", containers, **metadata)


def write(story: Story, after: Object, run: Run | None = None, seconds: float = 2, **options: Any) -> None:
    exists = bool(story.past.versions(PLACE))
    story.write(run or story.run(0), seconds, PLACE, after, verb="update" if exists else "create", **options)


def found(story: Story, *, settled: bool = False, max_objects: int = 10) -> list[str]:
    return story.violations((each.check for each in invariants(max_objects)), settled=settled)


def test_a_pod_gets_its_farm_pod(story: Story) -> None:
    write(story, described(web()))
    story.run(60)
    story.run(120)
    assert found(story, settled=True) == []


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (described(web("p0")), "uid p1"),
        (described(web(), containers=3), "pod web has 2 containers"),
        (described(web(), ownerReferences=None), "its owner is not only pod web"),
        (described(web(), labels={}), "no labels of kube-chores"),
    ],
)
def test_a_wrong_farm_pod(story: Story, after: Object, expected: str) -> None:
    write(story, after)
    (one,) = found(story)
    assert expected in one


def test_a_farm_pod_of_a_namespace_that_did_not_opt_in(story: Story) -> None:
    story.past.add(-50, SPACE, {"metadata": {"name": "farm-1"}})
    write(story, described(web()))
    (one,) = found(story)
    assert "not opted in" in one


def test_a_farm_pod_of_a_pod_that_was_deleted_before(story: Story) -> None:
    story.past.add(-50, WEB, None)
    write(story, described(web()))
    (one,) = found(story)
    assert "pod web did not exist" in one


def test_a_farm_pod_of_a_pod_that_was_deleted_during_the_run(story: Story) -> None:
    story.past.add(1, WEB, None)
    write(story, described(web()))
    assert found(story) == []


def test_a_recreated_pod_gets_the_farm_pod(story: Story) -> None:
    write(story, described(web()))
    story.past.add(10, WEB, None)
    story.past.add(11, WEB, web("p2", 1))
    write(story, described(web("p2"), 1), story.run(60), 62)
    assert found(story, settled=True) == []


def test_an_update_of_an_object_that_is_not_managed(story: Story) -> None:
    story.past.add(-50, PLACE, farm_pod("farm-1", "web"))
    write(story, described(web()))
    (one,) = found(story)
    assert "not managed by kube-chores" in one


def test_an_update_that_removes_a_label_of_others(story: Story) -> None:
    story.past.add(-50, PLACE, described(web(), 3, labels={**MANAGED, "example.com/team": "a"}))
    write(story, described(web()))
    (one,) = found(story)
    assert "of others were changed" in one


def test_an_update_without_a_change(story: Story) -> None:
    story.past.add(-50, PLACE, described(web()))
    write(story, copy.deepcopy(described(web())))
    (one,) = found(story)
    assert "nothing was changed" in one


def test_a_deletion_by_the_job(story: Story) -> None:
    story.past.add(-50, PLACE, described(web()))
    story.write(story.run(0), 2, PLACE, None)
    assert any("only creates and updates" in each for each in found(story))


def test_the_limit_of_objects(story: Story) -> None:
    for number in range(2):
        story.past.add(-80, farm_pod_key("farm-1", f"other-{number}"), described(web()))
    write(story, described(web()))
    check = FarmPods(2)
    (one,) = check(story.observed(), story.writes[0])
    assert "there are 3 FarmPods, and the limit is 2" in one
    assert list(FarmPods(3)(story.observed(), story.writes[0])) == []


def test_a_pod_without_a_farm_pod(story: Story) -> None:
    story.run(0)
    assert found(story) == []
    story.run(60)
    (one,) = found(story)
    assert "pod/web in farm-1 is unchanged, and it has no FarmPod" in one


def test_runs_whose_writes_may_not_be_known_yet_do_not_count(story: Story) -> None:
    for began in (0, 60):
        story.run(began)
    checks = [each.check for each in invariants()]
    known, unknown = (replace(story.observed(), until=START + seconds) for seconds in (66, 65))
    assert [one for check in checks for one in check(unknown)] == []
    assert len([one for check in checks for one in check(known)]) == 1


def test_a_farm_pod_that_is_not_repaired(story: Story) -> None:
    story.past.add(-50, PLACE, described(web(), 17))
    story.run(0)
    story.run(60)
    (one,) = found(story)
    assert "it describes" in one


@pytest.mark.parametrize("labels", [{}, {"kubechores.dev/job": "farm-pods"}])
def test_a_farm_pod_of_others_stays(story: Story, labels: Object) -> None:
    story.past.add(-50, PLACE, farm_pod("farm-1", "web", 17, labels=labels))
    assert found(story, settled=True) == []


def test_a_farm_pod_without_a_pod_at_the_end(story: Story) -> None:
    story.past.add(-50, PLACE, described(web()))
    story.past.add(-40, WEB, None)
    assert found(story) == []
    (one,) = found(story, settled=True)
    assert "describes no pod" in one
