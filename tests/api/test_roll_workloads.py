"""roll-workloads on the embedded and on a real API server."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from jobs.kit.api import transport
from tests.api.conftest import Ran, Run
from tests.apis import Api, Object, wait_for
from tests.canary import canary
from tests.workloads import (
    BASELINE,
    FROM_A_VOLUME,
    KINDS,
    OPT_IN,
    ROLL_ID,
    roll_annotations,
    rollouts,
    settle,
    workload,
)
from tests.worlds import configmap, encoded, namespace_object, secret

APPLY = {"Content-Type": "application/apply-patch+yaml"}


def changed(api: Api, source: Object, **data: str) -> None:
    """Change values of a ConfigMap or Secret."""
    values = {key: encoded(value) for key, value in data.items()} if source["kind"] == "Secret" else data
    api.patch(source, {"data": values or {"a": "changed"}})


def with_baseline(api: Api, roll: Run, made: Object) -> Object:
    """Run once to record the baseline of a new workload, and return the workload."""
    settle(api, made)
    assert roll().summary == {"annotated": 1}
    return settle(api, made)


def new_web(api: Api, **given: Any) -> tuple[str, Object, Object]:
    """Create workload `web` and the ConfigMap that it uses; return their namespace, the ConfigMap, the workload."""
    space = api.namespace("shop")
    return space, api.create(configmap(space)), api.create(workload(space, **given))


def web_with_baseline(api: Api, roll: Run, **given: Any) -> tuple[str, Object, Object]:
    """Create the same, and run once to record the baseline of the workload."""
    space, source, made = new_web(api, **given)
    return space, source, with_baseline(api, roll, made)


def check_rolled_once(api: Api, before: Object) -> Object:
    after = api.read(before)
    assert roll_annotations(after)[1] not in (None, roll_annotations(before)[1])
    if api.kind == "real":
        wait_for(lambda: rollouts(api, after) == 2, "the rollout")
    return settle(api, before)


CODES = {
    "but the workload is paused": "paused",
    "a rollout is in progress": "rollout-in-progress",
    "and more may follow": "settling",
    "the workload was rolled": "cooling-down",
    "new pods would not start": "missing-source",
}


def reason(ran: Ran, code: str = "deferred") -> str:
    """Return the reason of the only finding with this code."""
    (found,) = [each for each in ran.results if each["code"] == code]
    return str(found["reason"])


def test_the_first_run_rolls_nothing_and_a_change_rolls_once(api: Api, roll: Run) -> None:
    """Workloads of one name and of each kind."""
    space = api.namespace("shop")
    source = api.create(configmap(space))
    before = [settle(api, api.create(workload(space, kind=kind))) for kind in KINDS]

    assert roll().summary == {"annotated": 3}
    after = [settle(api, each) for each in before]
    assert [each["spec"] for each in after] == [each["spec"] for each in before]
    api.mark()
    assert (roll().summary, api.writes()) == ({"unchanged": 3}, [])

    changed(api, source)
    ran = roll()

    assert (ran.exit_code, ran.summary) == (0, {"restarted": 3})
    assert {each["reason"] for each in ran.results} == {"configmap/settings changed"}
    for each in after:
        check_rolled_once(api, each)
    events = [each for each in api.events() if each["reason"] == "ConfigChanged"]
    assert sorted(each["involvedObject"]["kind"] for each in events) == sorted(KINDS)
    assert {each["message"].partition(":")[0] for each in events} == {"configmap/settings changed"}
    api.mark()
    assert (roll().summary, api.writes()) == ({"unchanged": 3}, [])


KEY = {"name": "settings", "key": "a"}
ALL, OF_THE_SECRET = {"a", "b", "c"}, {"user", "d"}
ALL_KEYS: Object = {"configMap": {"name": "settings"}}
IN_FOLDERS = {"name": "settings", "items": [{"key": key, "path": f"{key}/x/{key}.conf"} for key in "ab"]}


def volume(**source: Object) -> Object:
    return {"volumes": [{"name": "v", **source}]}


def projected(*sources: Object) -> Object:
    return {"projected": {"sources": list(sources)}}


def variable(**source: Object) -> Object:
    return {"container": {"env": [{"name": "A", "valueFrom": source}]}}


def mounting(volume: Object, *mounts: Object, init: Sequence[Object] = ()) -> Object:
    """Return a pod with a volume, and the mounts of its container and its initContainer."""

    def container(name: str, mounts: Sequence[Object]) -> Object:
        paths = [{"name": "v", "mountPath": f"/{number}", **each} for number, each in enumerate(mounts)]
        return {"name": name, "image": "example.com/app:1", "volumeMounts": paths}

    return {
        "volumes": [{"name": "v", **volume}],
        "container": container("main", mounts),
        "initContainers": [container("init", init)],
    }


ENVIRONMENT_OF_INIT = {"name": "init", "image": "example.com/app:1", "envFrom": [{"secretRef": {"name": "login"}}]}
LOGIN = {"secret": {"name": "login"}}
# Pods, and the keys that they use: of ConfigMap settings (a, b, and new c) and of Secret login (user, and new d).
USES: dict[str, tuple[Object, set[str]]] = {
    "a volume": (FROM_A_VOLUME, ALL),
    "some keys of a volume": (volume(configMap={"name": "settings", "items": [{"key": "a", "path": "a"}]}), {"a"}),
    "a volume of a Secret": (volume(secret={"secretName": "login"}), OF_THE_SECRET),
    "a projected volume": (
        volume(**projected({"configMap": {"name": "settings", "items": [{"key": "b", "path": "b"}]}}, LOGIN)),
        {"b", *OF_THE_SECRET},
    ),
    "a Secret of a projected volume": (volume(**projected(LOGIN)), OF_THE_SECRET),
    "the environment": ({"container": {"envFrom": [{"configMapRef": {"name": "settings"}}]}}, ALL),
    "the environment of an initContainer": ({"initContainers": [ENVIRONMENT_OF_INIT]}, OF_THE_SECRET),
    "a variable": (variable(configMapKeyRef=KEY), {"a"}),
    "a variable of a Secret": (variable(secretKeyRef={"name": "login", "key": "user"}), {"user"}),
    "one file of a volume": (mounting(ALL_KEYS, {"subPath": "a"}), {"a"}),
    "one file of a volume of a Secret": (mounting({"secret": {"secretName": "login"}}, {"subPath": "user"}), {"user"}),
    "a file for each container": (mounting(ALL_KEYS, {"subPath": "a"}, init=[{"subPath": "b"}]), {"a", "b"}),
    "a file and the volume": (mounting(ALL_KEYS, {"subPath": "a"}, {}), ALL),
    "a file whose name is only known on the node": (mounting(ALL_KEYS, {"subPathExpr": "$(HOSTNAME)"}), ALL),
    "a file whose path has extra slashes": (mounting(ALL_KEYS, {"subPath": ".//a/"}), {"a"}),
    "a file by the link of the kubelet": (mounting(ALL_KEYS, {"subPath": "..data/a"}), {"a"}),
    "the link of the kubelet": (mounting(ALL_KEYS, {"subPath": "..data"}), ALL),
    "a folder of a volume": (mounting({"configMap": IN_FOLDERS}, {"subPath": "a/x"}), {"a"}),
    "a folder that no key is in": (mounting(ALL_KEYS, {"subPath": "x/a"}), set()),
    "a folder of a projected volume": (mounting(projected({"configMap": IN_FOLDERS}), {"subPath": "b"}), {"b"}),
    "a file of several sources": (mounting(projected(LOGIN, {"configMap": IN_FOLDERS}), {"subPath": "b"}), {"b"}),
}


def test_only_changes_of_used_keys_roll(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    settings, login = api.create(configmap(space)), api.create(secret(space))
    names = {use: f"web-{number}" for number, use in enumerate(USES)}
    made = [settle(api, api.create(workload(space, names[use], pod=pod))) for use, (pod, _) in USES.items()]
    assert roll().summary == {"annotated": len(made)}

    for key in ("a", "b", "c", "user", "d"):
        for each in made:
            settle(api, each)
        source, value = (login, canary()) if key in OF_THE_SECRET else (settings, "changed")
        changed(api, source, **{key: value})
        ran = roll("--max-rolls", str(len(made)))
        rolled = {each["object"]["name"] for each in ran.results if each.get("action") == "restarted"}
        assert [use for use in USES if (names[use] in rolled) != (key in USES[use][1])] == [], key


BY_SUB_PATH = mounting(ALL_KEYS, {"subPath": "a"})


def test_a_baseline_of_a_release_without_sub_paths_rolls_nothing(api: Api, roll: Run) -> None:
    _, source, made = new_web(api, pod=BY_SUB_PATH)
    text = '{"sources":{"configmap/settings":"865fe458ce866f1bdb51431cee58b5e2"},"uid":"UID","version":1}'
    api.patch(made, {"metadata": {"annotations": {BASELINE: text.replace("UID", made["metadata"]["uid"])}}})
    changed(api, source)
    before = settle(api, made)

    assert roll().summary == {"annotated": 1}

    after = settle(api, made)
    assert after["spec"] == before["spec"]
    assert list(json.loads(roll_annotations(after)[0] or "")["sources"]) == ["configmap/settings[a]"]
    changed(api, source, z="changed")
    assert roll().summary == {"unchanged": 1}


def test_binary_data_rolls_and_other_fields_do_not(api: Api, roll: Run) -> None:
    _, source, _ = web_with_baseline(api, roll)

    api.patch(source, {"metadata": {"labels": {"theirs": "yes"}}, "immutable": False})
    assert roll().summary == {"unchanged": 1}
    api.patch(source, {"binaryData": {"c": encoded("x")}})
    assert roll().summary == {"restarted": 1}


LATER = {"name": "settings", "key": "later", "optional": True}


@pytest.mark.parametrize(
    "pod",
    [volume(configMap={"name": "settings", "optional": True}), variable(configMapKeyRef=LATER)],
    ids=["all", "key"],
)
def test_an_optional_source_rolls_when_it_is_created_and_deleted(api: Api, roll: Run, pod: Object) -> None:
    space = api.namespace("shop")
    before = with_baseline(api, roll, api.create(workload(space, pod=pod)))
    source = api.create(configmap(space, data={"later": "x"}))

    assert roll().summary == {"restarted": 1}

    check_rolled_once(api, before)
    api.delete(source)
    assert roll().summary == {"restarted": 1}


# deferred rolls

REVISIONS = {"currentRevision": "1", "updateRevision": "2"}


def deferred(api: Api, roll: Run, made: Object, *arguments: str) -> str:
    """Run twice, check that one Event reports the deferral and nothing else is written, and return its reason.

    A deferral that ends within minutes has no Event.
    """
    api.mark()
    ran = roll(*arguments)
    assert (ran.exit_code, ran.summary) == (0, {"deferred": 1})
    assert roll(*arguments).summary == {"deferred": 1}
    assert [(each.method, each.path.split("/")[-1], each.status) for each in api.writes()] == [
        ("POST", "events", status)
        for status in (201, 409)
        if ran.results[0]["deferral"] not in ("settling", "cooling-down")
    ]
    assert roll("--check", *arguments).exit_code == 3
    why = reason(ran)
    assert [ran.results[0]["deferral"]] == [code for words, code in CODES.items() if words in why]
    return why


@pytest.mark.parametrize(("hours", "words"), [(2, r"2:00:0\d ahead of"), (-2, r"(1:59:5|2:00:0)\d behind")])
def test_waits_are_measured_on_the_clock_of_the_server(
    api: Api, roll: Run, monkeypatch: pytest.MonkeyPatch, hours: int, words: str
) -> None:
    _, source, made = web_with_baseline(api, roll)
    changed(api, source)
    monkeypatch.setattr(transport, "local_time", lambda: datetime.now(timezone.utc) + timedelta(hours=hours))

    waits = roll("--settle", "3600")
    rolls = roll("--settle", "0")

    assert (waits.summary, rolls.summary) == ({"deferred": 1}, {"restarted": 1})
    assert re.search(f"warning: the clock of this machine is {words} that of the API server", waits.stderr)
    rolled = json.loads(api.read(made)["metadata"]["annotations"][BASELINE])["rolledAt"]
    assert abs(datetime.fromisoformat(rolled.replace("Z", "+00:00")) - datetime.now(timezone.utc)) < timedelta(hours=1)
    changed(api, source, a="again")
    settle(api, made)
    assert "--cool-down" in reason(roll("--cool-down", "3600"))


def test_a_paused_deployment_is_deferred(api: Api, roll: Run) -> None:
    space, source, made = web_with_baseline(api, roll)
    api.patch(made, {"spec": {"paused": True}})
    settle(api, made)
    changed(api, source)

    resume = f"kubectl rollout resume deployment/web -n {space}"
    assert deferred(api, roll, made) == f"configmap/settings changed, but the workload is paused; run {resume}"

    api.patch(made, {"spec": {"paused": None}})
    settle(api, made)
    assert roll().summary == {"restarted": 1}


@pytest.mark.parametrize("api", ["sandbox"], indirect=True)  # without nodes no pod is available
def test_a_roll_waits_for_a_rollout_whose_pods_are_available(api: Api, roll: Run) -> None:
    space, source, made = web_with_baseline(api, roll)
    api.patch(made, {"spec": {"replicas": 2}})
    changed(api, source)
    set_status(api, made, {"replicas": 2, "updatedReplicas": 1, "availableReplicas": 2})

    see = f"kubectl rollout status deployment/web -n {space}"
    assert deferred(api, roll, made).endswith(f"but a rollout is in progress, 1 of 2 pods are new; see {see}")


def set_status(api: Api, made: Object, status: Object) -> None:
    """Write a status with the current generation, as a controller does."""
    found = api.read(made)
    api.patch_status(made, {"observedGeneration": found["metadata"]["generation"], **status})


def make_stuck(api: Api, made: Object) -> None:
    """Wait until the rollout is stuck: without nodes the pod does not start."""
    if api.kind == "sandbox":
        set_status(api, made, {"replicas": 1, "unavailableReplicas": 1, **REVISIONS})

    def is_stuck() -> bool:
        found = api.read(made)
        status = found["status"]
        return bool(status["observedGeneration"] == found["metadata"]["generation"] and status.get("replicas", 0) > 0)

    wait_for(is_stuck, "the rollout to begin")


def rolled_and_stuck(api: Api, roll: Run, kind: str) -> tuple[Object, Object]:
    """Return a workload whose rollout is stuck after a roll, and its ConfigMap."""
    _, source, made = web_with_baseline(api, roll, kind=kind)
    changed(api, source, a="bad")
    assert roll("--cool-down", "3600").summary == {"restarted": 1}
    settle(api, made)
    api.patch(made, {"spec": {"replicas": 1}})
    make_stuck(api, made)
    return made, source


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])  # without nodes a DaemonSet has no rollout
def test_the_fix_of_a_stuck_rollout_is_not_deferred(api: Api, roll: Run, kind: str) -> None:
    made, source = rolled_and_stuck(api, roll, kind)
    changed(api, source, a="good")
    assert "(--settle)" in deferred(api, roll, made, "--settle", "3600", "--cool-down", "3600")

    ran = roll("--cool-down", "3600")

    assert ran.summary == {"restarted": 1}
    assert reason(ran, "changed").startswith("configmap/settings changed, and pods are not available")
    make_stuck(api, made)
    changed(api, source, a="better")
    why = deferred(api, roll, made, "--cool-down", "3600")
    assert "a run rolls it again 60 min after that roll (--cool-down)" in why
    assert ("then delete it" in why) == (kind == "StatefulSet")
    assert roll("--cool-down", "0").summary == {"restarted": 1}


def test_how_to_find_the_stuck_pod_of_a_stateful_set_is_reported_until_it_is_deleted(api: Api, roll: Run) -> None:
    made, source = rolled_and_stuck(api, roll, "StatefulSet")
    space = made["metadata"]["namespace"]
    changed(api, source, a="good")
    pods = f"kubectl get pods -n {space} -l statefulset.kubernetes.io/pod-name"
    remedy = f"if a pod of web does not become ready, no roll replaces it; find it with {pods}, then delete it"

    assert reason(roll(), "changed") == f"configmap/settings changed, and pods are not available ({remedy})"
    messages = [each["message"] for each in api.events() if each["reason"] == "ConfigChanged"]
    assert f"not available ({remedy}): pods are replaced according to the update strategy" in messages[-1]

    make_stuck(api, made)
    api.mark()
    ran = roll()
    assert (ran.exit_code, ran.summary) == (0, {"rollout-stuck": 1})
    assert reason(ran, "rollout-stuck").endswith(remedy)
    assert [each.path.split("/")[-1] for each in api.writes()] == ["events"]
    assert roll("--check").exit_code == 3
    api.mark()
    assert (roll("--settle", "3600").exit_code, api.writes()) == (0, []), "the controller may be replacing the pod"
    recent = roll("--settle", "3600", "--check", "-v")
    why = reason(recent, "rollout-stuck")
    assert (recent.exit_code, why) == (0, f"a rollout is not complete, 0 of 1 pods are new; {remedy}")


def start_all(api: Api, made: Object) -> None:
    """Start the pods of a Deployment that has 2, and wait until they are available."""
    if api.kind == "sandbox":
        found = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
        set_status(api, made, {**found, "conditions": [progressing("NewReplicaSetAvailable")]})
    else:
        wait_for(lambda: len(pods_of(api, made)) == 2, "two pods")
        for each in pods_of(api, made):
            start(api, made["metadata"]["namespace"], each)
    wait_for(lambda: api.read(made)["status"].get("availableReplicas") == 2, "two available pods")


def pods_of(api: Api, made: Object) -> list[str]:
    return [each["metadata"]["name"] for each in api.items("v1", "Pod", made["metadata"]["namespace"])]


def progressing(why: str) -> Object:
    return {"type": "Progressing", "status": "True", "reason": why, "message": "as a controller writes it"}


def begin(api: Api, made: Object, new: int, *conditions: Object) -> None:
    """Wait until the rollout of a Deployment with 2 available pods began; on the embedded server, write its status."""
    if api.kind == "sandbox":
        counts = {"replicas": 2 + new, "updatedReplicas": new, "availableReplicas": 2, "unavailableReplicas": new}
        set_status(api, made, {**counts, "conditions": [progressing("ReplicaSetUpdated"), *conditions]})
    expected = {each["type"] for each in conditions}

    def has_begun() -> bool:
        found = api.read(made)
        status = found["status"]
        observed = status["observedGeneration"] == found["metadata"]["generation"]
        types = {each["type"] for each in status["conditions"]}
        return bool(observed and status.get("updatedReplicas", 0) == new and expected <= types)

    wait_for(has_begun, "the rollout to begin")


QUOTA = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}, "spec": {"hard": {"pods": "2"}}}
EXCEEDED = {
    "type": "ReplicaFailure",
    "status": "True",
    "reason": "FailedCreate",
    "message": 'pods "web-1" is forbidden: exceeded quota: small',
}


@pytest.mark.parametrize(
    ("full", "code", "new"), [(True, "rollout-stuck", 0), (False, "rollout-incomplete", 1)], ids=["quota", "not-ready"]
)
def test_a_roll_that_does_not_complete_is_reported(api: Api, roll: Run, full: bool, code: str, new: int) -> None:
    """With maxUnavailable 0: a quota allows no new pod, or the new pod is never ready."""
    space, source, made = web_with_baseline(api, roll)
    api.patch(made, {"spec": {"replicas": 2}})
    start_all(api, made)
    if full:
        quota = api.create({**QUOTA, "metadata": {"name": "small", "namespace": space}})
        wait_for(lambda: api.kind == "sandbox" or api.read(quota).get("status"), "the quota to be observed")
    changed(api, source)
    assert roll().summary == {"restarted": 1}
    begin(api, made, new, *([EXCEEDED] if full else []))

    ran = roll()

    state = f"{new} of 2 pods are new"
    why = reason(ran, code)
    assert (ran.exit_code, ran.summary) == (0, {code: 1})
    assert why.startswith(f"a rollout is not complete, {state}")
    assert ("FailedCreate: pods" in why and "exceeded quota: small" in why) == full
    assert why.endswith(f"; see kubectl get events -n {space} --field-selector type=Warning")
    (row,) = roll("--explain", f"{space}/web").report["rows"]
    assert (row["code"], state in row["reason"]) == (code, True)
    assert roll("--check").exit_code == 3
    kind = "RolloutStuck" if full else "RolloutIncomplete"
    (event,) = [each for each in api.events() if each["reason"] == kind]
    assert (event["type"], event["involvedObject"]["name"], state in event["message"]) == ("Warning", "web", True)


def with_available_pods(api: Api, roll: Run, replicas: int) -> tuple[str, Object, Object]:
    """Return a namespace, a ConfigMap, and a StatefulSet whose pods are available; the embedded cluster has no pods."""
    space, source, made = web_with_baseline(api, roll, kind="StatefulSet")
    api.patch(made, {"spec": {"replicas": replicas}})
    settle(api, made)
    for number in range(replicas):
        start(api, space, f"web-{number}")
    if api.kind == "real":
        wait_for(lambda: api.read(made)["status"].get("availableReplicas") == replicas, "available pods")
    return space, source, made


# What changes the spec of a workload without a change of its pods, and what the report then says.
CHANGES: Mapping[str, tuple[Object, str, str]] = {
    "scaled": ({"replicas": 3}, "rollout-incomplete", "of 3 pods are new"),
    "minReadySeconds": ({"minReadySeconds": 5}, "rollout-incomplete", "1 of 2 pods are new"),
    "paused": (
        {"paused": True},
        "rollout-stuck",
        "; the workload is paused; run kubectl rollout resume deployment/web -n ",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_roll_is_reported_until_it_is_complete_although_another_field_changed(api: Api, roll: Run, what: str) -> None:
    patch, code, state = CHANGES[what]
    _, source, made = web_with_baseline(api, roll)
    api.patch(made, {"spec": {"replicas": 2}})
    start_all(api, made)
    changed(api, source)
    assert roll().summary == {"restarted": 1}
    begin(api, made, 1)
    api.patch(made, {"spec": patch})
    begin(api, made, 1)

    ran = roll()

    assert (ran.exit_code, ran.summary) == (0, {code: 1})
    assert state in reason(ran, code)


@pytest.mark.parametrize("api", ["sandbox"], indirect=True)  # the real one runs controllers
@pytest.mark.parametrize("spec", [{"replicas": 3}, {"paused": True}], ids=["scaled", "paused"])
def test_a_change_that_no_controller_has_observed_is_no_incomplete_roll(api: Api, roll: Run, spec: Object) -> None:
    """An autoscaler scales a workload whose last roll is complete."""
    _, source, made = web_with_baseline(api, roll)
    changed(api, source)
    assert roll().summary == {"restarted": 1}
    settle(api, made)

    api.patch(made, {"spec": spec})

    assert roll().summary == {"unchanged": 1}


@pytest.mark.parametrize("api", ["sandbox"], indirect=True)  # without nodes a DaemonSet has no rollout
def test_a_roll_of_a_daemon_set_is_reported_although_another_field_changed(api: Api, roll: Run) -> None:
    _, source, made = web_with_baseline(api, roll, kind="DaemonSet")
    changed(api, source)
    assert roll().summary == {"restarted": 1}
    api.patch(made, {"spec": {"minReadySeconds": 5}})
    set_status(api, made, {"desiredNumberScheduled": 3, "updatedNumberScheduled": 1, "numberAvailable": 3})

    assert "1 of 3 pods are new" in reason(roll(), "rollout-incomplete")


def test_a_pod_of_a_stateful_set_that_cannot_be_created_is_not_a_pod_to_delete(api: Api, roll: Run) -> None:
    """The roll deletes the last pod, and a quota does not allow the new one."""
    space, source, made = with_available_pods(api, roll, 2)
    hard = {"spec": {"hard": {"pods": "1"}}}
    quota = api.create({**QUOTA, **hard, "metadata": {"name": "small", "namespace": space}})
    wait_for(lambda: api.kind == "sandbox" or api.read(quota).get("status"), "the quota to be observed")
    changed(api, source)
    assert roll().summary == {"restarted": 1}
    if api.kind == "sandbox":
        set_status(api, made, {"replicas": 1, "currentReplicas": 1, "availableReplicas": 1, **REVISIONS})
    wait_for(lambda: api.read(made)["status"]["replicas"] == 1, "the end of web-1")

    why = reason(roll(), "rollout-incomplete")

    state = "a rollout is not complete, 0 of 2 pods are new, 1 of 2 pods exist"
    assert why == f"{state}; see kubectl get events -n {space} --field-selector type=Warning"


def test_the_rollout_of_another_client_is_not_reported(api: Api, roll: Run) -> None:
    """A user changes the image after a roll is complete."""
    _, source, made = web_with_baseline(api, roll)
    changed(api, source)
    roll()
    settle(api, made)
    (container,) = api.read(made)["spec"]["template"]["spec"]["containers"]
    template = {"spec": {"containers": [{**container, "image": "example.com/app:2"}]}}
    api.patch(made, {"spec": {"replicas": 1, "template": template}})
    make_stuck(api, made)

    assert roll().summary == {"unchanged": 1}

    (row,) = roll("--explain", made["metadata"]["namespace"]).report["rows"]
    assert row["reason"].startswith("its config is unchanged; a rollout is not complete, 0 of 1 ")


@pytest.mark.parametrize("api", ["sandbox"], indirect=True)  # the real one runs controllers
def test_a_controller_that_does_not_run_is_reported(api: Api, roll: Run) -> None:
    _, source, _ = web_with_baseline(api, roll)
    changed(api, source)
    assert roll().summary == {"restarted": 1}

    why = reason(roll(), "rollout-incomplete")

    assert why.startswith(
        "a rollout is not complete, its controller has not observed the latest change yet; see kubectl"
    )


def pods(api: Api, made: Object, counts: tuple[int, int, int]) -> None:
    """Wait until the numbers of pods, of 3, are: of the current template, of the newest, available.

    On the embedded server, write that status.
    """
    names = ("currentReplicas", "updatedReplicas", "availableReplicas")
    if api.kind == "sandbox":
        set_status(api, made, {"replicas": 3, **dict(zip(names, counts, strict=True)), **REVISIONS})

    def have_counts() -> bool:
        found = api.read(made)
        status = found["status"]
        observed = status["observedGeneration"] == found["metadata"]["generation"] and status["replicas"] == 3
        return bool(observed and tuple(status.get(name, 0) for name in names) == counts)

    wait_for(have_counts, f"the pods to be {counts}")


def start(api: Api, space: str, name: str) -> None:
    """Set a pod to ready, as a kubelet does; the embedded cluster has no pods."""
    if api.kind == "sandbox":
        return
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": space}}
    wait_for(lambda: api.get(pod) is not None, f"pod {name}")
    api.patch_status(pod, {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})


def test_a_pod_that_may_be_of_the_newest_template_is_not_one_to_delete(api: Api, roll: Run) -> None:
    """The second to last pod of a bad roll does not start; it is deleted and starts with the fix."""
    space, source, made = with_available_pods(api, roll, 3)
    if api.kind == "real":
        pods(api, made, (3, 3, 3))
    changed(api, source, a="bad")
    assert roll().summary == {"restarted": 1}
    pods(api, made, (2, 1, 2))
    changed(api, source, a="worse")
    assert "delete it" not in deferred(api, roll, made, "--settle", "3600")
    changed(api, source, a="bad")
    start(api, space, "web-2")
    pods(api, made, (1, 2, 2))
    changed(api, source, a="good")
    assert roll().summary == {"restarted": 1}
    pods(api, made, (1, 0, 2))
    assert reason(roll(), "rollout-stuck").endswith("-l statefulset.kubernetes.io/pod-name, then delete it")

    if api.kind == "real":
        api.delete({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1", "namespace": space}})
    pods(api, made, (1, 1, 2))
    found = api.read(made)
    older = f"statefulset.kubernetes.io/pod-name,controller-revision-hash!={found['status']['updateRevision']}"

    why = reason(roll(), "rollout-stuck")

    assert why.endswith(f"no roll replaces it; find it with kubectl get pods -n {space} -l {older}, then delete it")
    assert "if a pod of web with an older template does not become ready" in why
    if api.kind == "real":
        names = [each["metadata"]["name"] for each in api.items("v1", "Pod", space, labelSelector=older)]
        assert names == ["web-0", "web-2"]
    changed(api, source, a="better")
    assert f"-l {older}, then delete it" in deferred(api, roll, made, "--settle", "3600")


@pytest.mark.parametrize("missing", ["object", "key", "file"])
def test_a_roll_is_deferred_if_new_pods_would_not_start(api: Api, roll: Run, missing: str) -> None:
    """A kubelet mounts an empty directory in place of a missing file."""
    pod = BY_SUB_PATH if missing == "file" else {**FROM_A_VOLUME, **variable(configMapKeyRef=KEY)}
    space, source, made = web_with_baseline(api, roll, pod=pod)
    if missing == "object":
        api.delete(source)
    else:
        api.patch(source, {"data": {"a": None}})

    why = "does not exist; create it" if missing == "object" else "has no key a; add it"
    assert deferred(api, roll, made) == f"new pods would not start: configmap/settings {why}"

    if missing == "object":
        api.create(configmap(space))
        assert roll().summary == {"unchanged": 1}


def test_a_baseline_is_not_recorded_if_new_pods_would_not_start(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    made = api.create(workload(space))

    assert deferred(api, roll, made) == "new pods would not start: configmap/settings does not exist; create it"

    api.create(configmap(space))
    assert roll().summary == {"annotated": 1}


ANNOTATIONS_BYTES = 256 << 10  # what the API server allows


def full(**annotations: str) -> dict[str, str]:
    """Return these annotations, and one that uses all remaining bytes."""
    size = sum(len(key) + len(value) for key, value in annotations.items())
    return {**annotations, "pad": "x" * (ANNOTATIONS_BYTES - size - len("pad"))}


def forged_baseline(made: Object) -> str:
    """Return a baseline that differs from the config of the workload."""
    return json.dumps({"version": 1, "uid": made["metadata"]["uid"], "sources": {"configmap/settings": "x"}})


def never_rolled(api: Api, space: str, names: Sequence[str]) -> None:
    """Create StatefulSets whose rolls always fail: with forged baselines and no space for another annotation."""
    for name in names:
        made = api.create(workload(space, name, "StatefulSet"))
        annotations = {**made["metadata"]["annotations"], BASELINE: forged_baseline(made)}
        api.patch(made, {"metadata": {"annotations": full(**annotations)}})
        settle(api, made)


def changed_workloads(api: Api, roll: Run, space: str, names: Sequence[str]) -> list[Object]:
    """Return StatefulSets of a namespace with baselines and a changed config."""
    source = api.create(configmap(space))
    made = [api.create(workload(space, name, "StatefulSet")) for name in names]
    roll("-n", space)
    for each in made:
        settle(api, each)
    changed(api, source)
    return made


def rolled(api: Api, made: Sequence[Object]) -> list[bool]:
    return [roll_annotations(api.get(each))[1] is not None for each in made]


def test_rolls_that_always_fail_do_not_stop_other_namespaces(api: Api, roll: Run) -> None:
    tenant, shop = api.namespace("a-tenant"), api.namespace("shop")
    made = changed_workloads(api, roll, shop, ["web-0", "web-1"])
    api.create(configmap(tenant))
    never_rolled(api, tenant, [f"a-{number}" for number in range(5)])

    ran = roll("--max-rolls", "2")

    assert ran.summary == {"restarted": 2, "failed": 2, "deferred": 3}
    assert rolled(api, made) == [True, True]
    assert [each["code"] for each in ran.results if each["outcome"] == "failed"] == ["too-large", "too-large"]


def test_failed_rolls_have_at_most_max_rolls_substitutes(api: Api, roll: Run) -> None:
    tenant = api.namespace("tenant")
    api.create(configmap(tenant))
    never_rolled(api, tenant, [f"a-{number}" for number in range(5)])
    api.mark()

    summaries = [roll("--max-rolls", "2", *mode).summary for mode in ([], ["--dry-run=server"])]

    assert summaries == 2 * [{"failed": 4, "deferred": 1}]
    assert len([each for each in api.writes() if each.method == "PATCH"]) == 2 * 4


def check_run_does_not_fail(roll: Run, field: str) -> None:
    ran = roll()

    assert (ran.exit_code, ran.summary) == (0, {"failed": 1})
    assert f"{field}: Too long" in ran.stdout
    assert "labels and annotations of other clients leave no room" in ran.stdout
    assert roll("--check").exit_code == 3


@pytest.mark.parametrize("write", ["baseline", "roll"])
def test_a_workload_without_space_for_an_annotation_does_not_fail_the_run(api: Api, roll: Run, write: str) -> None:
    space = api.namespace("tenant")
    api.create(configmap(space))
    if write == "roll":
        never_rolled(api, space, ["web"])
    else:
        made = api.create(workload(space, kind="StatefulSet"))
        api.patch(made, {"metadata": {"annotations": full(**made["metadata"]["annotations"])}})
        settle(api, made)

    check_run_does_not_fail(roll, "metadata.annotations")


@pytest.mark.parametrize("api", [pytest.param("real", marks=pytest.mark.cluster)], indirect=True)
def test_a_pod_template_without_space_for_a_roll_does_not_fail_the_run(api: Api, roll: Run) -> None:
    space = api.namespace("tenant")
    api.create(configmap(space))
    made = api.create(workload(space, kind="StatefulSet"))
    template = {"template": {"metadata": {"annotations": full()}}}
    api.patch(made, {"metadata": {"annotations": {BASELINE: forged_baseline(made)}}, "spec": template})
    settle(api, made)

    check_run_does_not_fail(roll, "spec.template.annotations")


def test_namespaces_take_turns(api: Api, roll: Run) -> None:
    """No namespace has a second roll before each other namespace has had its first."""
    spaces = [api.namespace(name) for name in ("a-tenant", "shop")]
    made = {
        space: changed_workloads(api, roll, space, [f"{prefix}-{number}" for number in range(3)])
        for space, prefix in zip(spaces, ("a", "web"), strict=True)
    }

    assert roll("--max-rolls", "2").summary == {"restarted": 2, "deferred": 4}
    assert [rolled(api, made[space]) for space in spaces] == [[True, False, False], [True, False, False]]
    for each in (found for space in spaces for found in made[space] if rolled(api, [found]) == [True]):
        settle(api, each)
    assert roll("--max-rolls", "3", "--dry-run").summary == {"restarted": 3, "deferred": 1, "unchanged": 2}
    none = roll("--max-rolls", "0")
    assert none.summary == {"deferred": 4, "unchanged": 2}
    over = "this run reached --max-rolls (0): a later run rolls the workload"
    found = {(each["reason"].rpartition(", but ")[2], each["deferral"]) for each in none.results}
    assert found == {(over, "max-rolls")}


@pytest.mark.parametrize(
    ("ahead", "summary"), [(timedelta(minutes=1), {"deferred": 1}), (timedelta(days=9999), {"restarted": 1})]
)
def test_a_last_roll_in_the_near_future_defers_and_one_in_the_far_future_does_not(
    api: Api, roll: Run, ahead: timedelta, summary: dict[str, int]
) -> None:
    """Clocks differ, but only slightly."""
    _, source, before = web_with_baseline(api, roll)
    rolled = f"{datetime.now(timezone.utc) + ahead:%Y-%m-%dT%H:%M:%SZ}"
    stamp = {**json.loads(roll_annotations(before)[0] or ""), "rolledAt": rolled}
    api.patch(before, {"metadata": {"annotations": {BASELINE: json.dumps(stamp)}}})
    settle(api, before)
    changed(api, source)

    assert roll("--cool-down", "3600").summary == summary


def test_workloads_with_the_oldest_last_roll_are_rolled_first(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    sources = [api.create(configmap(space, f"settings-{number}")) for number in range(2)]
    made = []
    for number in range(2):
        pod = {"volumes": [{"name": "config", "configMap": {"name": f"settings-{number}"}}]}
        made.append(api.create(workload(space, f"web-{number}", pod=pod)))
        settle(api, made[-1])
    assert roll().summary == {"annotated": 2}
    settle(api, made[0])
    changed(api, sources[0])
    assert roll().summary == {"restarted": 1, "unchanged": 1}
    for each in made:
        settle(api, each)
    for source in sources:
        changed(api, source, a="again")

    ran = roll("--max-rolls", "1")

    assert [each["object"]["name"] for each in ran.results if each.get("action")] == ["web-1"]


# names


NAMES = ("../../{space}/secrets/login", "a?b", "a b", "\u00e9", "..", "a/b")


@pytest.mark.parametrize("kind", ["configMap", "secret"])
def test_an_invalid_name_of_a_source_is_not_requested(api: Api, roll: Run, kind: str) -> None:
    """The API server accepts any name for the source of a volume; it must not become the path of a request."""
    theirs = api.namespace("theirs")
    api.create(secret(theirs))
    space = api.namespace("shop")
    names = [name.format(space=theirs) for name in NAMES]
    field = "name" if kind == "configMap" else "secretName"
    for number, name in enumerate(names):
        volume = {"name": "config", kind: {field: name, "optional": number > 0}}
        api.create(workload(space, f"web-{number}", pod={"volumes": [volume]}))
    api.mark()

    ran = roll()

    assert (ran.exit_code, ran.summary) == (0, {"annotated": len(names) - 1, "deferred": 1})
    assert f"/{names[0]} does not exist" in reason(ran)
    requested = [each.path for each in api.requests() if each.method == "GET" and "/apis/apps/" not in each.path]
    assert sorted(requested) == ["/api/v1/namespaces", "/apis/batch/v1/cronjobs", "/apis/batch/v1/jobs"]


# new baselines


ONE_KEY = USES["some keys of a volume"][0]["volumes"]
OTHERS_OF_A_TEMPLATE = {
    "sources": [*ONE_KEY, {"name": "login", "secret": {"secretName": "login"}}],
    "keys": volume(configMap={"name": "settings", "items": [{"key": key, "path": key} for key in "ab"]})["volumes"],
}


@pytest.mark.parametrize("others", OTHERS_OF_A_TEMPLATE)
def test_a_template_with_other_sources_or_keys_has_a_new_baseline(api: Api, roll: Run, others: str) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    api.create(secret(space))
    made = api.create(workload(space, pod={"volumes": ONE_KEY}))
    with_baseline(api, roll, made)
    pod = workload(space, pod={"volumes": OTHERS_OF_A_TEMPLATE[others]})["spec"]["template"]["spec"]
    api.patch(made, {"spec": {"template": {"spec": pod}}})
    changed(api, source)
    before = settle(api, made)

    ran = roll()

    assert (ran.summary, "uses other config" in reason(ran, "baseline-recorded")) == ({"annotated": 1}, True)
    assert settle(api, made)["spec"] == before["spec"]


def test_a_new_baseline_keeps_the_time_of_the_last_roll(api: Api, roll: Run) -> None:
    _, source, made = web_with_baseline(api, roll)
    changed(api, source)
    assert roll().summary == {"restarted": 1}
    keys = [{"key": "a", "path": "a"}]
    volumes = [{"name": "config", "configMap": {"name": "settings", "items": keys}}]
    api.patch(made, {"spec": {"template": {"spec": {"volumes": volumes}}}})
    with_baseline(api, roll, made)
    changed(api, source, a="again")

    assert "(--cool-down)" in deferred(api, roll, made, "--cool-down", "3600")


SOURCES = '"sources":{"configmap/settings":"x"}'
OTHERS = {
    "another version": f'{{"version":0,"uid":"UID",{SOURCES}}}',
    "of another workload": f'{{"version":1,"uid":"11111111-1111-1111-1111-111111111111",{SOURCES}}}',
    "a time without a zone": f'{{"version":1,"uid":"UID",{SOURCES},"rolledAt":"2026-01-01T00:00:00"}}',
    "incomplete": '{"version":1}',
    "not JSON": "nonsense",
}


def test_a_baseline_that_cannot_be_compared_rolls_nothing(api: Api, roll: Run) -> None:
    """It is of another version of the job, or was copied or restored with the workload."""
    space = api.namespace("shop")
    api.create(configmap(space))
    before = []
    for number, text in enumerate(OTHERS.values()):
        made = api.create(workload(space, f"web-{number}"))
        annotation = text.replace("UID", made["metadata"]["uid"])
        api.patch(made, {"metadata": {"annotations": {BASELINE: annotation}}})
        before.append(settle(api, made))

    assert roll().summary == {"annotated": len(OTHERS)}

    assert [settle(api, each)["spec"] for each in before] == [each["spec"] for each in before]
    assert roll().summary == {"unchanged": len(OTHERS)}


def test_a_template_that_was_rolled_back_changes_with_the_next_config(api: Api, roll: Run) -> None:
    """`kubectl rollout undo` restores an older roll ID; the next one must differ from that too."""
    _, source, made = web_with_baseline(api, roll)
    old = None
    for value in ("x", "y"):
        changed(api, source, a=value)
        assert roll().summary == {"restarted": 1}
        old, before = roll_annotations(settle(api, made))[1], old
    assert old != before
    api.patch(made, {"spec": {"template": {"metadata": {"annotations": {ROLL_ID: before}}}}})
    settle(api, made)
    changed(api, source, a="x")

    assert roll().summary == {"restarted": 1}

    assert roll_annotations(settle(api, made))[1] not in (before, old)


@pytest.mark.parametrize(
    ("value", "summary"),
    [(None, {}), ("false", {}), ("yes", {"invalid": 1}), ("True", {"invalid": 1}), ("", {"invalid": 1})],
)
def test_only_workloads_that_opted_in_are_read(api: Api, roll: Run, value: str | None, summary: dict[str, int]) -> None:
    space = api.namespace("shop")
    api.create(configmap(space))
    api.create(workload(space, opted_in=value))

    ran = roll()

    assert (ran.exit_code, ran.summary, ran.report["facts"]) == (0, summary, {"workloads": 0, "sources": 0})
    if summary:
        assert reason(ran, "invalid") == f'annotation {OPT_IN} is "{value}"; set it to "true" or "false"'
    else:
        assert ran.report["note"] == f"no workload in any namespace has the annotation {OPT_IN}"


# namespaces that opt in, and annotations without effect


def opt_in(api: Api, space: str, value: str | None = "true") -> Object:
    """Set the annotation of a namespace, and return the namespace."""
    found: Object = namespace_object(space)
    api.patch(found, {"metadata": {"annotations": {OPT_IN: value}}})
    return found


def test_a_namespace_opts_in_for_its_workloads_except_those_that_opt_out(api: Api, roll: Run) -> None:
    space, other = api.namespace("shop"), api.namespace("other")
    source = api.create(configmap(space))
    api.create(configmap(other))
    made = [api.create(workload(space, kind=kind, opted_in=None)) for kind in KINDS]
    for name, value in (("out", "false"), ("invalid", "yes")):
        api.create(workload(space, name, opted_in=value))
    api.create(workload(other, opted_in=None))
    assert roll().summary == {"invalid": 1}
    opt_in(api, space)
    for each in made:
        settle(api, each)

    assert roll().summary == {"annotated": 3, "invalid": 1}
    specs = [settle(api, each)["spec"] for each in made]
    changed(api, source)
    assert roll("-n", space).summary == {"restarted": 3, "invalid": 1}

    assert [settle(api, each)["spec"] for each in made] != specs
    assert (
        roll_annotations(api.get(workload(space, "out"))) == roll_annotations(api.get(workload(other))) == (None, None)
    )
    opt_in(api, space, "false")
    changed(api, source, a="again")
    assert roll().summary == {"invalid": 1}


def test_a_namespace_that_opts_in_without_workloads_is_reported(api: Api, roll: Run) -> None:
    shop, other, plain = api.namespace("shop"), api.namespace("other"), api.namespace("plain")
    nothing = "but no Deployment, StatefulSet or DaemonSet that opted in"
    opt_in(api, shop)
    api.create(cron_job(shop))
    api.create(workload(plain, opted_in=None))

    for arguments in ((), ("-n", shop)):
        assert roll(*arguments).report["note"] == f"namespace {shop} has the annotation {OPT_IN}, {nothing}"
    assert roll("-n", plain).report["note"] == f"no workload in namespace {plain} has the annotation {OPT_IN}"
    opt_in(api, other)
    api.create(workload(other, opted_in="false"))
    assert roll().report["note"] == f"2 namespaces have the annotation {OPT_IN}, {nothing}"
    opt_in(api, shop, "false")
    assert roll().report["note"] == f"namespace {other} has the annotation {OPT_IN}, {nothing}"


@pytest.mark.parametrize("value", ["yes", ""])
def test_an_invalid_annotation_of_a_namespace_is_reported(api: Api, roll: Run, value: str) -> None:
    space = api.namespace("shop")
    api.create(configmap(space))
    api.create(workload(space, opted_in=None))
    opt_in(api, space, value)

    for ran in (roll(), roll("-n", space)):
        assert (ran.exit_code, ran.summary) == (0, {"invalid": 1})
        assert reason(ran, "invalid") == f'annotation {OPT_IN} is "{value}"; set it to "true" or "false"'
        assert ran.results[0]["object"] == {"kind": "Namespace", "name": space}


def test_an_annotation_of_a_pod_template_alone_is_reported(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    api.create(configmap(space))
    for kind in KINDS:
        made = workload(space, kind=kind, opted_in=None)
        made["spec"]["template"]["metadata"]["annotations"] = {OPT_IN: "true"}
        api.create(made)

    ran = roll()

    assert (ran.exit_code, ran.summary) == (0, {"no-effect": 3})
    for kind, found in zip(sorted(KINDS), ran.results, strict=True):
        annotate = f"kubectl annotate {kind.lower()}/web -n {space} {OPT_IN}=true"
        assert found["reason"].endswith(f"set it on the workload: run {annotate}")
    assert roll("--check").exit_code == 3


def job(space: str, name: str = "job", **metadata: Any) -> Object:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/app:1"}]}
    metadata = {"name": name, "namespace": space, **metadata}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod}}}


def cron_job(space: str, name: str = "cron-job", template: Object | None = None, **metadata: Any) -> Object:
    of_job = {"metadata": template or {}, "spec": job(space)["spec"]}
    spec = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": of_job}
    metadata = {"name": name, "namespace": space, **metadata}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}


def test_annotations_of_jobs_and_cron_jobs_are_reported_once(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    yes: Object = {"annotations": {OPT_IN: "true"}}
    no: Object = {"annotations": {OPT_IN: "false"}}
    made = api.create(cron_job(space, **yes))
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "cron-job", "uid": made["metadata"]["uid"]}
    api.create(job(space, "of-cron-job", ownerReferences=[{**owner, "controller": True}], **yes))
    api.create(cron_job(space, "in-template", template=yes))
    api.create(job(space, "by-hand", **yes))
    for plain in (cron_job(space, "plain"), cron_job(space, "no", **no), job(space, "plain"), job(space, "no", **no)):
        api.create(plain)
    opt_in(api, space)

    ran = roll("-v")

    assert (ran.exit_code, ran.summary) == (0, {"no-effect": 3})
    assert [each["object"]["name"] for each in ran.results] == ["cron-job", "in-template", "by-hand"]
    assert "has no effect on a CronJob, whose next pod reads the new config anyway" in ran.results[0]["reason"]


def test_mistakes_of_one_namespace_or_code_do_not_hide_those_of_others(api: Api, roll: Run) -> None:
    space, other = api.namespace("a-tenant"), api.namespace("shop")
    yes: Object = {"annotations": {OPT_IN: "true"}}
    for number in range(4):
        api.create(cron_job(space, f"cron-job-{number}", **yes))
        api.create(job(space, f"job-{number}", **yes))
        api.create(workload(space, f"web-{number}", opted_in="yes"))
    api.create(workload(other, "theirs", opted_in="yes"))

    ran = roll()

    assert (ran.exit_code, ran.summary) == (0, {"invalid": 4, "no-effect": 3})
    invalid = [each for each in ran.results if each["code"] == "invalid"]
    assert sorted(each["object"]["name"] for each in invalid) == ["theirs", "web-0", "web-1", "web-2"]
    more = [each["reason"].partition(" (")[2] for each in ran.results if " more in namespace" in each["reason"]]
    assert sorted(more) == [f"{number} more in namespace {space}, see -v)" for number in (1, 5)]
    every = roll("-v")
    assert every.summary == {"invalid": 5, "no-effect": 8}
    assert not [each for each in every.results if " more in namespace" in each["reason"]]


def test_a_run_serves_one_namespace(api: Api, roll: Run) -> None:
    spaces = [api.namespace("shop"), api.namespace("other")]
    for space in spaces:
        api.create(configmap(space))
        api.create(workload(space))

    assert roll("-n", spaces[0]).summary == {"annotated": 1}
    assert roll().summary == {"annotated": 1, "unchanged": 1}


@pytest.mark.parametrize("deleted", ["namespace", "workload"])
def test_a_workload_that_is_being_deleted_is_skipped(api: Api, roll: Run, deleted: str) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    made = workload(space)
    made["metadata"]["finalizers"] = ["example.com/kept"]
    with_baseline(api, roll, api.create(made))
    changed(api, source)
    api.delete(made if deleted == "workload" else namespace_object(space))
    api.mark()

    ran = roll("-v")
    writes = api.writes()
    api.patch(made, {"metadata": {"finalizers": None}})

    assert (ran.exit_code, ran.summary, writes) == (0, {"skipped": 1}, [])


def test_a_dry_run_reports_what_the_run_then_does(api: Api, roll: Run) -> None:
    _, source, _ = web_with_baseline(api, roll)
    changed(api, source)
    api.mark()

    assert [roll("--dry-run").summary, roll("--dry-run=server").summary] == 2 * [{"restarted": 1}]
    assert [each for each in api.writes() if each.query.get("dryRun") != "All"] == []
    (change,) = roll("--dry-run", "--diff").results[0]["changes"]
    assert change["field"] == f"spec.template.metadata.annotations[{ROLL_ID}]"
    assert roll().summary == {"restarted": 1}


# other clients that write the same workloads


def test_applying_the_same_manifest_again_rolls_nothing(api: Api, roll: Run) -> None:
    """Server-side apply of another field manager; tests/cluster tests `kubectl apply`."""
    space = api.namespace("shop")
    source = api.create(configmap(space))
    manifest = workload(space)
    path = f"{api.path(manifest)}?fieldManager=theirs"
    api.made(api.call("PATCH", path, manifest, headers=APPLY))
    with_baseline(api, roll, manifest)
    changed(api, source)
    roll()
    before = settle(api, manifest)

    api.call("PATCH", path, manifest, headers=APPLY)

    after = settle(api, manifest)
    assert (after["spec"], roll_annotations(after)) == (before["spec"], roll_annotations(before))
    assert roll().summary == {"unchanged": 1}
