"""The invariants of rolls, with constructed histories."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from soak.history import Key, Object
from soak.invariants.rolls import invariants
from soak.invariants.rolls.fingerprints import Fingerprints
from soak.invariants.rolls.rolled import Rolled
from soak.invariants.rolls.workloads import BASELINE, OPT_IN, ROLL_ID, Settings
from soak.invariants.rolls.written import Rolls
from soak.invariants.uses import uses
from soak.observed import Run
from soak.tests.story import Story
from tests.canary import canary
from tests.workloads import workload
from tests.worlds import configmap, encoded, secret

WEB = Key("Deployment", "shop-1", "web")
SPACE = Key("Namespace", "", "shop-1")
SETTINGS = Key("ConfigMap", "shop-1", "settings")
LOGIN = Key("Secret", "shop-1", "login")
FROM_LOGIN: Object = {"container": {"envFrom": [{"secretRef": {"name": "login"}}]}}


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """A namespace with a ConfigMap, 100 s ago."""
    made = Story("roll-workloads", tmp_path)
    made.past.add(-100, SPACE, {"metadata": {"name": "shop-1"}})
    source(made, -100, a="1")
    return made


def source(story: Story, seconds: float, uid: str = "s1", labels: Any = None, **data: str) -> None:
    """Add a version of ConfigMap `settings`."""
    made = configmap("shop-1", labels=labels or {}, data=data)
    made["metadata"]["uid"] = uid
    story.past.add(seconds, SETTINGS, made)


def web(*, level: int = 1, **options: Any) -> Object:
    """Return the workload, with its pod available."""
    made = workload("shop-1", **options)
    made["metadata"] |= {"uid": "w1", "generation": level}
    made["spec"]["replicas"] = 1
    counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas"), 1)
    made["status"] = {"observedGeneration": level, **counts}
    return made


def recorded(made: Object, rolled_at: float | None = None, key: str = "", **fingerprints: str) -> Object:
    """Return the workload with a baseline, and with another roll ID if it was rolled."""
    made = copy.deepcopy(made)
    names = {each.name: each.text for each in uses(made["spec"]["template"]["spec"])}
    sources = {names[name]: value for name, value in fingerprints.items()}
    baseline: Object = {"version": 1, "uid": "w1", "sources": sources, "key": key}
    if rolled_at is not None:
        hours, rest = divmod(int(rolled_at), 3600)
        baseline["rolledAt"] = f"2027-01-15T{8 + hours:02}:{rest // 60:02}:{rest % 60:02}Z"
        template = made["spec"]["template"].setdefault("metadata", {})
        template["annotations"] = {ROLL_ID: f"{rolled_at}"}
    made["metadata"]["annotations"][BASELINE] = json.dumps(baseline)
    return made


def begin(story: Story, made: Object | None = None) -> Object:
    """Create the workload, and let a run record its baseline."""
    made = made or web()
    story.past.add(-90, WEB, made)
    first = recorded(made, settings="f1")
    story.write(story.run(-60), -58, WEB, first)
    return first


def found(story: Story, *, settled: bool = False) -> list[str]:
    return story.violations((each.check for each in invariants(Settings())), settled=settled)


def test_a_change_rolls_once(story: Story) -> None:
    first = begin(story)
    source(story, 0, a="2")
    story.write(story.run(20), 22, WEB, recorded(first, 22, settings="f2"))
    story.run(60)
    story.run(120)
    assert found(story, settled=True) == []


def test_a_second_roll_for_one_change(story: Story) -> None:
    first = begin(story)
    source(story, 0, a="2")
    rolled = recorded(first, 22, settings="f2")
    story.write(story.run(20), 22, WEB, rolled)
    story.write(story.run(60), 62, WEB, recorded(rolled, 62, settings="f2"))
    (one,) = found(story)
    assert "no fingerprint changed" in one


def test_a_fingerprint_that_changes_without_its_content(story: Story) -> None:
    first = begin(story)
    source(story, 0, a="2")
    rolled = recorded(first, 22, settings="f2")
    story.write(story.run(20), 22, WEB, rolled)
    story.write(story.run(60), 62, WEB, recorded(rolled, 62, settings="f3"))
    (one,) = found(story)
    assert "does not correspond to its fingerprint f3" in one


def test_a_change_during_the_run_that_records_it(story: Story) -> None:
    """The run may have read either version, and the next one rolls for the change if it was not recorded."""
    made = web()
    story.past.add(-90, WEB, made)
    source(story, -59, a="2")
    first = recorded(made, settings="f1")
    story.write(story.run(-60), -58, WEB, first)
    story.write(story.run(0), 2, WEB, recorded(first, 2, settings="f2"))
    assert found(story) == []


def test_a_roll_after_only_labels_changed(story: Story) -> None:
    first = begin(story)
    source(story, 0, labels={"example.com/level": "2"}, a="1")
    story.write(story.run(20), 22, WEB, recorded(first, 22, settings="f2"))
    (one,) = found(story)
    assert "does not correspond" in one


def test_a_change_of_a_key_that_pods_do_not_use(story: Story) -> None:
    of_a = {"container": {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}}]}}
    first = begin(story, web(pod=of_a))
    source(story, 0, a="1", b="2")
    story.run(20)
    story.run(60)
    assert found(story, settled=True) == []
    story.write(story.run(90), 92, WEB, recorded(first, 92, settings="f2"))
    assert len(found(story)) == 1


def test_a_change_back_needs_no_roll(story: Story) -> None:
    begin(story)
    source(story, 0, a="2")
    source(story, 5, a="1")
    story.run(60)
    story.run(120)
    assert found(story, settled=True) == []


def test_a_secret_that_was_recreated_rolls(story: Story) -> None:
    made, same = web(pod=FROM_LOGIN), secret("shop-1", data={"user": encoded(canary())})
    same["metadata"]["uid"] = "1"
    story.past.add(-100, LOGIN, same)
    story.past.add(-90, WEB, made)
    first = recorded(made, key="k", login="f1")
    story.write(story.run(-60), -58, WEB, first)
    story.past.add(0, LOGIN, None)
    story.past.add(0, LOGIN, {**same, "metadata": {**same["metadata"], "uid": "2"}})
    story.write(story.run(20), 22, WEB, recorded(first, 22, key="k", login="f2"))
    assert found(story) == []


def test_a_roll_with_another_key(story: Story) -> None:
    made, same = web(pod=FROM_LOGIN), secret("shop-1", data={"user": encoded(canary())})
    same["metadata"]["uid"] = "1"
    story.past.add(-100, LOGIN, same)
    story.past.add(-90, WEB, made)
    first = recorded(made, key="k", login="f1")
    story.write(story.run(-60), -58, WEB, first)
    story.write(story.run(20), 22, WEB, recorded(first, 22, key="other", login="f2"))
    (one,) = found(story)
    assert "no baseline to compare with" in one


def test_a_roll_of_a_new_workload(story: Story) -> None:
    made = web()
    story.past.add(-90, WEB, made)
    story.write(story.run(-60), -58, WEB, recorded(made, 3, settings="f1"))
    (one,) = found(story)
    assert "no baseline to compare with" in one


def test_a_change_that_became_part_of_the_baseline(story: Story) -> None:
    first = begin(story)
    source(story, 0, a="2")
    story.write(story.run(20), 22, WEB, recorded(first, settings="f2"))
    (one,) = found(story)
    assert "without a roll" in one


@pytest.mark.parametrize(("own", "of_namespace", "number"), [("false", "true", 1), (None, None, 1), (None, "true", 0)])
def test_a_roll_needs_the_annotation(story: Story, own: str | None, of_namespace: str | None, number: int) -> None:
    made = web(opted_in=own)
    annotations = {OPT_IN: of_namespace} if of_namespace else {}
    story.past.add(-90, SPACE, {"metadata": {"name": "shop-1", "annotations": annotations}})
    first = recorded(made, settings="f1")
    story.past.add(-90, WEB, made)
    story.write(story.run(-60), -58, WEB, first)
    assert len([each for each in found(story) if "not opted in" in each]) == number


def test_a_workload_that_opted_out_during_the_run(story: Story) -> None:
    first = begin(story)
    source(story, 0, a="2")
    run = story.run(20)
    out = copy.deepcopy(first)
    out["metadata"]["annotations"][OPT_IN] = "false"
    story.past.add(21, WEB, out)
    story.write(run, 22, WEB, recorded(out, 22, settings="f2"))
    assert found(story) == []


def test_another_field_was_changed(story: Story) -> None:
    first = begin(story)
    source(story, 0, a="2")
    after = recorded(first, 22, settings="f2")
    after["spec"]["replicas"] = 2
    story.write(story.run(20), 22, WEB, after)
    (one,) = found(story)
    assert "other fields" in one


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"paused": True}, "paused prevents"),
        ({"updateStrategy": {"type": "OnDelete"}}, "OnDelete prevents"),
        ({"updateStrategy": {"rollingUpdate": {"partition": 1}}}, "partition prevents"),
    ],
)
def test_a_roll_that_the_spec_prevents(story: Story, fields: Object, expected: str) -> None:
    first = begin(story, web(**fields))
    source(story, 0, a="2")
    story.write(story.run(20), 22, WEB, recorded(first, 22, settings="f2"))
    (one,) = found(story)
    assert expected in one


def test_a_roll_while_a_source_is_missing(story: Story) -> None:
    first = begin(story)
    story.past.add(0, SETTINGS, None)
    story.write(story.run(20), 22, WEB, recorded(first, 22, settings="f2"))
    (one,) = found(story)
    assert "was missing all the time" in one


def test_a_roll_before_the_end_of_the_cool_down(story: Story) -> None:
    first = begin(story)
    source(story, 0, a="2")
    rolled = recorded(first, 20, settings="f2")
    story.write(story.run(18), 20, WEB, rolled)
    source(story, 22, a="3")
    story.write(story.run(25), 26, WEB, recorded(rolled, 26, settings="f3"))
    (one,) = found(story)
    assert "6 s after the last roll" in one


def test_too_many_rolls_in_one_run(story: Story) -> None:
    first = begin(story)
    run = story.run(20)
    for number in range(4):
        source(story, 21 + number, a=f"{number + 2}")
        first = recorded(first, 100 * (number + 1), settings=f"f{number + 2}")
        story.write(run, 22 + number, WEB, first)
    checks = Rolls(Settings(max_rolls=3), Fingerprints())
    problems = [each for write in story.writes for each in checks(story.observed(), write)]
    assert problems == ["deployment/web in shop-1 by roll-workloads-20 rolled: more than 3 rolls in one run"]


def test_a_change_that_no_run_rolls(story: Story) -> None:
    begin(story)
    source(story, 0, a="2")
    story.run(60)
    assert found(story) == []
    story.run(120)
    (one,) = found(story)
    assert "was not rolled after configmap/settings changed" in one


@pytest.mark.parametrize(
    "deferred",
    [
        {"spec": {"paused": True}},
        {"metadata": {"annotations": {OPT_IN: "false"}}},
        {"metadata": {"annotations": {OPT_IN: "yes"}}},
        {"metadata": {"deletionTimestamp": "2027-01-15T08:00:00Z"}},
        {"status": {"updatedReplicas": 0}},
    ],
)
def test_a_deferred_roll_is_not_late(story: Story, deferred: dict[str, Object]) -> None:
    made = begin(story)
    made = copy.deepcopy(made)
    for field, values in deferred.items():
        made[field] |= values
    story.past.add(-1, WEB, made)
    source(story, 0, a="2")
    story.run(60)
    story.run(120)
    assert found(story) == []


def test_a_workload_without_a_baseline_at_the_end(story: Story) -> None:
    story.past.add(-90, WEB, web())
    assert found(story) == []
    (one,) = found(story, settled=True)
    assert "has no baseline" in one


def test_runs_that_failed_do_not_count(story: Story) -> None:
    begin(story)
    source(story, 0, a="2")
    for began in (60, 120, 180):
        story.run(began, exit_code=1)
    assert found(story) == []


def test_a_late_roll_is_reported_once(story: Story) -> None:
    begin(story)
    checks = invariants(Settings())
    writes, rolled = (each.check for each in checks)
    assert list(writes(story.observed())) == []
    source(story, 0, a="2")
    assert len(list(rolled(story.observed(settled=True)))) == 1
    assert list(rolled(story.observed(settled=True))) == []


def test_a_stuck_workload_extends_the_cool_down(story: Story) -> None:
    begin(story)
    fingerprints = Fingerprints()
    source(story, 0, a="2")
    stuck = recorded(web(), 10, settings="f1")
    annotations = stuck["metadata"]["annotations"]
    annotations[BASELINE] = json.dumps({**json.loads(annotations[BASELINE]), "early": 5})
    stuck["status"] = {"observedGeneration": 1, "unavailableReplicas": 1}
    story.past.add(11, WEB, stuck)
    fingerprints.learn(("shop-1", "configmap/settings", ""), "f1", {frozenset({("data", "a", "1", "")})})
    for began in (60, 120):
        story.run(began)
    late = Rolled(Settings(), fingerprints, "shop-")

    assert list(late(story.observed())) == list(late(story.observed(settled=True))) == []
    for began in (550, 600):
        story.run(began)
    assert len(list(late(story.observed()))) == 1


def test_the_uses_of_a_template() -> None:
    pod = {
        "volumes": [
            {"name": "all", "projected": {"sources": [{"configMap": {"name": "a"}}, {"secret": {"name": "b"}}]}},
            {"name": "file", "configMap": {"name": "c"}},
            {"name": "items", "secret": {"secretName": "d", "items": [{"key": "k", "path": "p"}], "optional": True}},
            {"name": "unmounted", "configMap": {"name": "e"}},
        ],
        "initContainers": [{"envFrom": [{"configMapRef": {"name": "f", "optional": True}}]}],
        "containers": [
            {
                "volumeMounts": [
                    {"name": "all"},
                    {"name": "file", "subPath": "x"},
                    {"name": "file", "subPath": "w"},
                    {"name": "items"},
                ],
                "env": [
                    {"name": "A"},
                    {"name": "B", "valueFrom": {"secretKeyRef": {"name": "g", "key": "z"}}},
                    {"name": "C", "valueFrom": {"secretKeyRef": {"name": "g", "key": "y", "optional": True}}},
                ],
            }
        ],
    }
    found = uses(pod)
    assert [each.text for each in found] == [
        "configmap/a",
        "configmap/c[w,x]",
        "configmap/f",
        "secret/b",
        "secret/d[k]",
        "secret/g[y,z]",
    ]
    assert [each.name for each in found if not each.required] == ["f", "d"]
    (of_g,) = [each for each in found if each.name == "g"]
    assert of_g.required_keys == {"z"}


def test_a_run_that_has_not_ended(story: Story) -> None:
    """The pod of the run is in the history."""
    first = begin(story)
    source(story, 0, a="2")
    run = Run("roll-workloads", "", "running", 0, 0, 0, None, "", "", 240.0, 0)
    pod = {"metadata": {"creationTimestamp": "2027-01-15T08:00:40Z"}}
    story.past.add(40, Key("Pod", "kube-chores", "running"), pod)
    story.write(run, 42, WEB, recorded(first, 42, settings="f1"))
    problems = " ".join(found(story))
    assert "no fingerprint changed" in problems
    assert "does not correspond to its fingerprint f1" in problems
