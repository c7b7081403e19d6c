"""roll-workloads as users run it: the same on the embedded and the real API server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from jobs.kit import cluster
from tests.api.conftest import Ran, Run
from tests.apis import Api, Object, wait_for
from tests.canary import canary
from tests.workloads import BASELINE, FROM_A_VOLUME, KINDS, MARK, OPT_IN, marks, rollouts, settle, workload
from tests.worlds import configmap, encoded, secret

APPLY = {"Content-Type": "application/apply-patch+yaml"}


def changed(api: Api, source: Object, **data: str) -> None:
    """Change values of a ConfigMap or Secret."""
    values = {key: encoded(value) for key, value in data.items()} if source["kind"] == "Secret" else data
    api.patch(source, {"data": values or {"a": "changed"}})


def adopted(api: Api, roll: Run, made: Object) -> Object:
    """A workload whose baseline was written."""
    settle(api, made)
    assert roll().summary == {"annotated": 1}
    return settle(api, made)


def check_rolled_once(api: Api, before: Object) -> Object:
    after = api.get(before)
    assert after
    assert marks(after)[1] not in (None, marks(before)[1])
    if api.kind == "real":
        wait_for(lambda: rollouts(api, after) == 2, "the rollout")
    return settle(api, before)


def reason(ran: Ran, code: str = "deferred") -> str:
    """Why a workload is held, or what else is said."""
    (found,) = [each for each in ran.results if each["code"] == code]
    return str(found["reason"])


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_run_rolls_nothing_and_a_change_rolls_once(api: Api, roll: Run, kind: str) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    made = api.create(workload(space, kind=kind))
    before = settle(api, made)

    assert roll().summary == {"annotated": 1}
    after = settle(api, made)
    assert after["spec"] == before["spec"]
    api.mark()
    assert (roll().summary, api.writes()) == ({"unchanged": 1}, [])

    changed(api, source)
    ran = roll()

    assert (ran.exit_code, ran.summary, reason(ran, "changed")) == (0, {"restarted": 1}, "configmap/settings changed")
    check_rolled_once(api, after)
    (event,) = [each for each in api.events() if each["involvedObject"]["name"] == "web"][-1:]
    assert event["reason"] in ("ConfigChanged", "ScalingReplicaSet")
    (told,) = [each for each in api.events() if each["reason"] == "ConfigChanged"]
    assert told["message"].startswith("configmap/settings changed")
    api.mark()
    assert (roll().summary, api.writes()) == ({"unchanged": 1}, [])


def test_each_workload_of_a_name_has_an_event_of_its_own(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    for made in [api.create(workload(space, kind=kind)) for kind in KINDS]:
        settle(api, made)
    assert roll().summary == {"annotated": 3}
    for kind in KINDS:
        settle(api, workload(space, kind=kind))
    changed(api, source)

    assert roll().summary == {"restarted": 3}

    told = [each["involvedObject"]["kind"] for each in api.events() if each["reason"] == "ConfigChanged"]
    assert sorted(told) == sorted(KINDS)


def test_sources_that_change_together_are_one_rollout(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    names = [f"settings-{number}" for number in range(4)]
    sources = [*(api.create(configmap(space, name)) for name in names), api.create(secret(space))]
    volumes = [{"name": name, "configMap": {"name": name}} for name in names]
    volumes.append({"name": "login", "secret": {"secretName": "login"}})
    before = adopted(api, roll, api.create(workload(space, pod={"volumes": volumes})))
    for source in sources:
        changed(api, source, user=canary())
    api.mark()

    ran = roll()

    assert ran.summary == {"restarted": 1}
    assert [each.method for each in api.writes() if each.path.endswith("/web")] == ["PATCH"]
    assert reason(ran, "changed") == (
        "configmap/settings-0, configmap/settings-1, configmap/settings-2, configmap/settings-3, secret/login changed"
    )
    check_rolled_once(api, before)


KEY = {"name": "settings", "key": "a"}
# How pods use ConfigMap settings, with keys a and b, or Secret login, with user and password; what of it they use.
USES: dict[str, tuple[Object, str, set[str]]] = {
    "a volume": (FROM_A_VOLUME, "ConfigMap", {"a", "b", "c"}),
    "some keys of a volume": (
        {"volumes": [{"name": "v", "configMap": {"name": "settings", "items": [{"key": "a", "path": "a"}]}}]},
        "ConfigMap",
        {"a"},
    ),
    "a volume of a Secret": ({"volumes": [{"name": "v", "secret": {"secretName": "login"}}]}, "Secret", {"user", "c"}),
    "a projected volume": (
        {
            "volumes": [
                {
                    "name": "v",
                    "projected": {
                        "sources": [
                            {"configMap": {"name": "settings", "items": [{"key": "b", "path": "b"}]}},
                            {"secret": {"name": "login"}},
                        ]
                    },
                }
            ]
        },
        "ConfigMap",
        {"b"},
    ),
    "a Secret of a projected volume": (
        {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "login"}}]}}]},
        "Secret",
        {"user", "c"},
    ),
    "the environment": (
        {"container": {"envFrom": [{"configMapRef": {"name": "settings"}}]}},
        "ConfigMap",
        {"a", "b", "c"},
    ),
    "the environment of an initContainer": (
        {
            "initContainers": [
                {"name": "init", "image": "example.com/app:1", "envFrom": [{"secretRef": {"name": "login"}}]}
            ]
        },
        "Secret",
        {"user", "c"},
    ),
    "a variable": (
        {"container": {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": KEY}}]}},
        "ConfigMap",
        {"a"},
    ),
    "a variable of a Secret": (
        {"container": {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "login", "key": "user"}}}]}},
        "Secret",
        {"user"},
    ),
}


def mounting(volume: Object, *mounts: Object, init: Sequence[Object] = ()) -> Object:
    """A pod with a volume that its container and its initContainer mount so."""

    def container(name: str, mounts: Sequence[Object]) -> Object:
        paths = [{"name": "v", "mountPath": f"/{number}", **each} for number, each in enumerate(mounts)]
        return {"name": name, "image": "example.com/app:1", "volumeMounts": paths}

    return {
        "volumes": [{"name": "v", **volume}],
        "container": container("main", mounts),
        "initContainers": [container("init", init)],
    }


ALL_KEYS: Object = {"configMap": {"name": "settings"}}
IN_FOLDERS = {"name": "settings", "items": [{"key": key, "path": f"{key}/x/{key}.conf"} for key in "ab"]}
USES |= {
    "one file of a volume": (mounting(ALL_KEYS, {"subPath": "a"}), "ConfigMap", {"a"}),
    "one file of a volume of a Secret": (
        mounting({"secret": {"secretName": "login"}}, {"subPath": "user"}),
        "Secret",
        {"user"},
    ),
    "a file for each container": (
        mounting(ALL_KEYS, {"subPath": "a"}, init=[{"subPath": "b"}]),
        "ConfigMap",
        {"a", "b"},
    ),
    "a file and the volume": (mounting(ALL_KEYS, {"subPath": "a"}, {}), "ConfigMap", {"a", "b", "c"}),
    "a file whose name the node knows": (
        mounting(ALL_KEYS, {"subPathExpr": "$(HOSTNAME)"}),
        "ConfigMap",
        {"a", "b", "c"},
    ),
    "a file written with more slashes": (mounting(ALL_KEYS, {"subPath": ".//a/"}), "ConfigMap", {"a"}),
    "a file by the link of the kubelet": (mounting(ALL_KEYS, {"subPath": "..data/a"}), "ConfigMap", {"a"}),
    "the link of the kubelet": (mounting(ALL_KEYS, {"subPath": "..data"}), "ConfigMap", {"a", "b", "c"}),
    "a folder of a volume": (mounting({"configMap": IN_FOLDERS}, {"subPath": "a/x"}), "ConfigMap", {"a"}),
    "a folder of a projected volume": (
        mounting({"projected": {"sources": [{"configMap": IN_FOLDERS}]}}, {"subPath": "b"}),
        "ConfigMap",
        {"b"},
    ),
    "a file of several sources": (
        mounting(
            {"projected": {"sources": [{"secret": {"name": "login"}}, {"configMap": IN_FOLDERS}]}}, {"subPath": "b"}
        ),
        "ConfigMap",
        {"b"},
    ),
}


@pytest.mark.parametrize("use", USES)
def test_what_pods_use_rolls_and_what_they_do_not_use_does_not(api: Api, roll: Run, use: str) -> None:
    pod, kind, used = USES[use]
    space = api.namespace("shop")
    sources = {"ConfigMap": api.create(configmap(space)), "Secret": api.create(secret(space))}
    made = api.create(workload(space, pod=pod))
    adopted(api, roll, made)

    for key in ("a", "b", "c", "user"):
        if (key == "user") != (kind == "Secret") and key != "c":
            continue
        changed(api, sources[kind], **{key: canary() if kind == "Secret" else "changed"})
        assert roll().summary == ({"restarted": 1} if key in used else {"unchanged": 1}), key
        settle(api, made)


BY_SUB_PATH = mounting(ALL_KEYS, {"subPath": "a"})


@pytest.mark.parametrize("data", [{}, {"a": "changed"}, {"b": "changed"}])
def test_a_baseline_of_a_release_without_sub_paths_rolls_nothing(api: Api, roll: Run, data: dict[str, str]) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    made = api.create(workload(space, pod=BY_SUB_PATH))
    text = '{"sources":{"configmap/settings":"865fe458ce866f1bdb51431cee58b5e2"},"uid":"UID","version":1}'
    api.patch(made, {"metadata": {"annotations": {BASELINE: text.replace("UID", made["metadata"]["uid"])}}})
    api.patch(source, {"data": data})
    before = settle(api, made)

    assert roll().summary == {"annotated": 1}

    after = settle(api, made)
    assert after["spec"] == before["spec"]
    assert list(json.loads(marks(after)[0] or "")["sources"]) == ["configmap/settings[a]"]
    changed(api, source, z="changed")
    assert roll().summary == {"unchanged": 1}


def test_a_mounted_file_whose_key_is_removed_is_held(api: Api, roll: Run) -> None:
    """A kubelet would mount an empty folder in its place."""
    space = api.namespace("shop")
    source = api.create(configmap(space))
    made = api.create(workload(space, pod=BY_SUB_PATH))
    adopted(api, roll, made)
    api.patch(source, {"data": {"a": None}})

    assert held(api, roll, made) == "new pods would not start: configmap/settings has no key a, add it"


def test_binary_data_rolls_and_other_fields_do_not(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    made = api.create(workload(space))
    adopted(api, roll, made)

    api.patch(source, {"metadata": {"labels": {"theirs": "yes"}}, "immutable": False})
    assert roll().summary == {"unchanged": 1}
    api.patch(source, {"binaryData": {"c": encoded("x")}})
    assert roll().summary == {"restarted": 1}


def test_an_optional_source_that_appears_rolls_and_is_missed_by_nobody(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    optional = {"volumes": [{"name": "config", "configMap": {"name": "settings", "optional": True}}]}
    made = api.create(workload(space, pod=optional))
    before = adopted(api, roll, made)
    source = api.create(configmap(space))

    assert roll().summary == {"restarted": 1}

    check_rolled_once(api, before)
    api.delete(source)
    assert roll().summary == {"restarted": 1}


def test_an_optional_key_that_appears_rolls_and_is_missed_by_nobody(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    variable = {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "later", "optional": True}}}
    before = adopted(api, roll, api.create(workload(space, pod={"container": {"env": [variable]}})))
    changed(api, source, later="x")

    assert roll().summary == {"restarted": 1}

    check_rolled_once(api, before)
    api.patch(source, {"data": {"later": None}})
    assert roll().summary == {"restarted": 1}


def test_what_stands_on_workloads_says_nothing_of_secrets(api: Api, roll: Run) -> None:
    """Many may read workloads. Every test looks for the values; this one for what they could be guessed by."""
    space = api.namespace("shop")
    same = encoded(canary())
    for name in ("one", "other"):
        api.create(secret(space, name, data={"user": same}))
    volumes = [{"name": name, "secret": {"secretName": name}} for name in ("one", "other")]
    made = adopted(api, roll, api.create(workload(space, pod={"volumes": volumes})))

    found = json.loads(marks(made)[0] or "")["sources"]

    assert sorted(found) == ["secret/one", "secret/other"]
    assert found["secret/one"] != found["secret/other"], "the same content has not the same fingerprint"


# holds

REVISIONS = {"currentRevision": "1", "updateRevision": "2"}


def held(api: Api, roll: Run, made: Object, *arguments: str) -> str:
    """Run, check that nothing is rolled; gives why."""
    api.mark()
    ran = roll(*arguments)
    assert (ran.exit_code, ran.summary, api.writes()) == (0, {"deferred": 1}, [])
    assert roll("--check", *arguments).exit_code == 3
    return reason(ran)


def test_a_paused_deployment_is_held(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    made = api.create(workload(space))
    adopted(api, roll, made)
    api.patch(made, {"spec": {"paused": True}})
    settle(api, made)
    changed(api, source)

    resume = f"kubectl rollout resume deployment/web -n {space}"
    assert held(api, roll, made) == f"configmap/settings changed, but it is paused: run {resume}"

    api.patch(made, {"spec": {"paused": None}})
    settle(api, made)
    assert roll().summary == {"restarted": 1}


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
def test_pods_that_somebody_deletes_are_theirs(api: Api, roll: Run, kind: str) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    made = api.create(workload(space, kind=kind, updateStrategy={"type": "OnDelete"}))
    adopted(api, roll, made)
    changed(api, source)

    why = held(api, roll, made)

    forget = f"annotate {kind.lower()}/web -n {space} {BASELINE}-"
    assert why.endswith(f"its update strategy is OnDelete: delete its pods, then run kubectl {forget}")
    api.patch(made, {"metadata": {"annotations": {BASELINE: None}}})
    assert [roll().summary, roll().summary] == [{"annotated": 1}, {"unchanged": 1}]


@pytest.mark.parametrize("api", ["sandbox"], indirect=True)  # without nodes no pod is available
@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("Deployment", {"replicas": 2, "updatedReplicas": 1, "availableReplicas": 2}),
        ("StatefulSet", {"replicas": 2, "updatedReplicas": 1, "availableReplicas": 2, **REVISIONS}),
        ("DaemonSet", {"desiredNumberScheduled": 2, "updatedNumberScheduled": 1, "numberAvailable": 2}),
    ],
)
def test_a_rollout_whose_pods_are_available_is_waited_for(api: Api, roll: Run, kind: str, status: Object) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    made = api.create(workload(space, kind=kind))
    adopted(api, roll, made)
    if kind != "DaemonSet":
        api.patch(made, {"spec": {"replicas": 2}})
    changed(api, source)
    set_status(api, made, status)

    see = f"kubectl rollout status {kind.lower()}/web -n {space}"
    assert held(api, roll, made).endswith(f"but a rollout is in progress, 1 of 2 pods are new: see {see}")


@pytest.mark.parametrize("api", ["sandbox"], indirect=True)
def test_a_change_that_its_controller_has_not_seen_is_waited_for(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    made = api.create(workload(space))
    adopted(api, roll, made)
    api.patch(made, {"spec": {"replicas": 2}})
    changed(api, source)

    see = f"kubectl rollout status deployment/web -n {space}"
    assert held(api, roll, made).endswith(f"its controller has not seen the latest change yet: see {see}")


def set_status(api: Api, made: Object, status: Object) -> None:
    """Write a status, as a controller does that has seen the workload as it is."""
    found = api.get(made)
    assert found
    patch = {"status": {"observedGeneration": found["metadata"]["generation"], **status}}
    api.call("PATCH", f"{api.path(made)}/status", patch, headers={"Content-Type": "application/merge-patch+json"})


def blocked(api: Api, made: Object) -> None:
    """Have a rollout that does not end: without nodes the pod does not start."""
    if api.kind == "sandbox":
        set_status(api, made, {"replicas": 1, "unavailableReplicas": 1, **REVISIONS})

    def is_blocked() -> bool:
        found = api.get(made)
        assert found
        status = found["status"]
        return bool(status["observedGeneration"] == found["metadata"]["generation"] and status.get("replicas", 0) > 0)

    wait_for(is_blocked, "the rollout to begin")


def rolled_and_blocked(api: Api, roll: Run, kind: str) -> tuple[Object, Object]:
    """A workload whose config was rolled, and does not let its pod start; and that config."""
    space = api.namespace("shop")
    source = api.create(configmap(space))
    made = api.create(workload(space, kind=kind))
    adopted(api, roll, made)
    changed(api, source, a="bad")
    assert roll("--cool-down", "3600").summary == {"restarted": 1}
    settle(api, made)
    api.patch(made, {"spec": {"replicas": 1}})
    blocked(api, made)
    return made, source


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])  # without nodes a DaemonSet has no rollout
def test_a_rollout_that_is_blocked_does_not_hold_its_fix(api: Api, roll: Run, kind: str) -> None:
    made, source = rolled_and_blocked(api, roll, kind)
    changed(api, source, a="good")
    assert "(--settle)" in held(api, roll, made, "--settle", "3600", "--cool-down", "3600")

    ran = roll("--cool-down", "3600")

    assert ran.summary == {"restarted": 1}
    assert reason(ran, "changed").startswith("configmap/settings changed, and pods are not available")
    blocked(api, made)
    changed(api, source, a="better")
    why = held(api, roll, made, "--cool-down", "3600")
    assert "a run rolls it 60 min after that (--cool-down)" in why
    assert ("run kubectl delete pod web-0" in why) == (kind == "StatefulSet")
    assert roll("--cool-down", "0").summary == {"restarted": 1}


def test_a_pod_that_a_stateful_set_does_not_replace_is_named_until_it_is_gone(api: Api, roll: Run) -> None:
    made, source = rolled_and_blocked(api, roll, "StatefulSet")
    space = made["metadata"]["namespace"]
    changed(api, source, a="good")
    remedy = f"if pod web-0 does not become ready, no roll replaces it: run kubectl delete pod web-0 -n {space}"

    assert reason(roll(), "changed") == f"configmap/settings changed, and pods are not available ({remedy})"
    told = [each["message"] for each in api.events() if each["reason"] == "ConfigChanged"]
    assert f"not available ({remedy}): pods are replaced, as the update strategy says" in told[-1]

    blocked(api, made)
    api.mark()
    ran = roll()
    assert (ran.exit_code, ran.summary, api.writes()) == (0, {"rollout-stuck": 1}, [])
    assert reason(ran, "rollout-stuck").endswith(remedy)
    assert roll("--check").exit_code == 3
    assert roll("--settle", "3600").summary == {"unchanged": 1}, "its controller may be at it"


def pods(api: Api, made: Object, counts: tuple[int, int, int]) -> None:
    """Wait until so many of 3 pods are of the current template, of the newest and available, or write that status."""
    names = ("currentReplicas", "updatedReplicas", "availableReplicas")
    if api.kind == "sandbox":
        set_status(api, made, {"replicas": 3, **dict(zip(names, counts, strict=True)), **REVISIONS})

    def are_so() -> bool:
        found = api.get(made)
        assert found
        status = found["status"]
        observed = status["observedGeneration"] == found["metadata"]["generation"] and status["replicas"] == 3
        return bool(observed and tuple(status.get(name, 0) for name in names) == counts)

    wait_for(are_so, f"the pods to be {counts}")


def start(api: Api, space: str, name: str) -> None:
    """Have a pod ready, as a kubelet does; the embedded cluster has no pods."""
    if api.kind == "sandbox":
        return
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": space}}
    wait_for(lambda: api.get(pod) is not None, f"pod {name}")
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    headers = {"Content-Type": "application/merge-patch+json"}
    api.call("PATCH", f"{api.path(pod)}/status", {"status": status}, headers=headers)


def test_a_pod_that_may_be_of_the_newest_template_is_not_named(api: Api, roll: Run) -> None:
    """The last but one pod of a bad roll does not start; it is deleted, and starts with the fix."""
    space = api.namespace("shop")
    source = api.create(configmap(space))
    made = api.create(workload(space, kind="StatefulSet"))
    adopted(api, roll, made)
    api.patch(made, {"spec": {"replicas": 3}})
    settle(api, made)
    for number in range(3):
        start(api, space, f"web-{number}")
    if api.kind == "real":
        pods(api, made, (3, 3, 3))
    changed(api, source, a="bad")
    assert roll().summary == {"restarted": 1}
    pods(api, made, (2, 1, 2))
    changed(api, source, a="worse")
    assert "kubectl delete" not in held(api, roll, made, "--settle", "3600")
    changed(api, source, a="bad")
    start(api, space, "web-2")
    pods(api, made, (1, 2, 2))
    changed(api, source, a="good")
    assert roll().summary == {"restarted": 1}
    pods(api, made, (1, 0, 2))
    assert reason(roll(), "rollout-stuck").endswith(f"run kubectl delete pod web-1 -n {space}")

    if api.kind == "real":
        api.delete({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1", "namespace": space}})
    pods(api, made, (1, 1, 2))
    found = api.get(made)
    assert found
    older = f"statefulset.kubernetes.io/pod-name,controller-revision-hash!={found['status']['updateRevision']}"

    why = reason(roll(), "rollout-stuck")

    assert why.endswith(f"no roll replaces it: delete it, see kubectl get pods -n {space} -l {older}")
    assert "if pod web-N is of an older template and does not become ready" in why
    if api.kind == "real":
        names = [each["metadata"]["name"] for each in api.items("v1", "Pod", space, labelSelector=older)]
        assert names == ["web-0", "web-2"]
    changed(api, source, a="better")
    assert "kubectl delete" not in held(api, roll, made, "--settle", "3600")


@pytest.mark.parametrize("missing", ["object", "key"])
def test_a_workload_that_would_not_start_is_held(api: Api, roll: Run, missing: str) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    variable = {"name": "A", "valueFrom": {"configMapKeyRef": KEY}}
    made = api.create(workload(space, pod={**FROM_A_VOLUME, "container": {"env": [variable]}}))
    adopted(api, roll, made)
    if missing == "object":
        api.delete(source)
    else:
        api.patch(source, {"data": {"a": None}})

    why = {"object": "configmap/settings is not there, create it", "key": "configmap/settings has no key a, add it"}
    assert held(api, roll, made) == f"new pods would not start: {why[missing]}"

    if missing == "object":
        api.create(configmap(space))
        assert roll().summary == {"unchanged": 1}


def test_a_workload_is_not_adopted_without_what_it_needs(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    made = api.create(workload(space))

    assert held(api, roll, made) == "new pods would not start: configmap/settings is not there, create it"

    api.create(configmap(space))
    assert roll().summary == {"annotated": 1}


def test_a_change_may_be_followed_by_another(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    made = api.create(workload(space))
    adopted(api, roll, made)
    changed(api, source)

    until = "a run rolls it 60 min after the last change (--settle)"
    assert held(api, roll, made, "--settle", "3600").endswith(f"and it may change more: {until}")
    assert roll("--settle", "0").summary == {"restarted": 1}


def test_a_workload_that_was_rolled_lately_cools_down(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    made = api.create(workload(space))
    adopted(api, roll, made)
    changed(api, source)
    assert roll("--cool-down", "3600").summary == {"restarted": 1}, "an adoption is no roll"
    settle(api, made)
    changed(api, source, a="again")

    until = "a run rolls it 60 min after that (--cool-down)"
    assert held(api, roll, made, "--cool-down", "3600").endswith(f" s ago: {until}")
    assert roll().summary == {"restarted": 1}


def test_the_rolls_of_a_run_are_a_budget_that_drains_in_order(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    names = [f"web-{number}" for number in range(5)]
    made = [api.create(workload(space, name)) for name in names]
    for each in made:
        settle(api, each)
    assert roll().summary == {"annotated": 5}
    for each in made:
        settle(api, each)
    changed(api, source)
    order = []
    for _ in range(3):
        ran = roll("--max-rolls", "2")
        order.append([each["object"]["name"] for each in ran.results if each.get("action") == "restarted"])
        for each in made:
            settle(api, each)

    assert order == [names[:2], names[2:4], names[4:]]
    changed(api, source, a="again")
    ran = roll("--max-rolls", "0")
    assert ran.summary == {"deferred": 5}
    assert {each["reason"].rpartition(", but ")[2] for each in ran.results} == {
        "this run has no roll left of 0 (--max-rolls): a next run rolls it"
    }


ANNOTATIONS_BYTES = 256 << 10  # what the API server allows


def full(**annotations: str) -> dict[str, str]:
    """These annotations, and one that leaves no byte for another."""
    size = sum(len(key) + len(value) for key, value in annotations.items())
    return {**annotations, "pad": "x" * (ANNOTATIONS_BYTES - size - len("pad"))}


def forged_baseline(made: Object) -> str:
    """A baseline after which the config of a workload counts as changed."""
    return json.dumps({"version": 1, "uid": made["metadata"]["uid"], "sources": {"configmap/settings": "x"}})


def never_rolled(api: Api, space: str, names: Sequence[str]) -> None:
    """Make StatefulSets whose rolls always fail: with forged baselines, and no byte left for another annotation."""
    for name in names:
        made = api.create(workload(space, name, "StatefulSet"))
        annotations = {**made["metadata"]["annotations"], BASELINE: forged_baseline(made)}
        api.patch(made, {"metadata": {"annotations": full(**annotations)}})
        settle(api, made)


def changed_workloads(api: Api, roll: Run, space: str, names: Sequence[str]) -> list[Object]:
    """StatefulSets of a namespace that were adopted, and whose config changed since."""
    source = api.create(configmap(space))
    made = [api.create(workload(space, name, "StatefulSet")) for name in names]
    roll("-n", space)
    for each in made:
        settle(api, each)
    changed(api, source)
    return made


def rolled(api: Api, made: Sequence[Object]) -> list[bool]:
    return [marks(api.get(each))[1] is not None for each in made]


def test_rolls_that_always_fail_leave_the_budget_to_other_namespaces(api: Api, roll: Run) -> None:
    tenant, shop = api.namespace("a-tenant"), api.namespace("shop")
    made = changed_workloads(api, roll, shop, ["web-0", "web-1"])
    api.create(configmap(tenant))
    never_rolled(api, tenant, [f"a-{number}" for number in range(5)])

    ran = roll("--max-rolls", "2")

    assert ran.summary == {"restarted": 2, "failed": 2, "deferred": 3}
    assert rolled(api, made) == [True, True]
    assert [each["code"] for each in ran.results if each["outcome"] == "failed"] == ["too-large", "too-large"]


def test_rolls_that_fail_are_tried_for_as_many_more_as_a_run_may_do(api: Api, roll: Run) -> None:
    tenant = api.namespace("tenant")
    api.create(configmap(tenant))
    never_rolled(api, tenant, [f"a-{number}" for number in range(5)])
    api.mark()

    summaries = [roll("--max-rolls", "2", *mode).summary for mode in ([], ["--dry-run=server"])]

    assert summaries == 2 * [{"failed": 4, "deferred": 1}]
    assert len(api.writes()) == 2 * 4


def check_fails_no_run(roll: Run, field: str) -> None:
    ran = roll()

    assert (ran.exit_code, ran.summary) == (0, {"failed": 1})
    assert f"{field}: Too long" in ran.stdout
    assert "labels and annotations of other clients leave no room" in ran.stdout
    assert roll("--check").exit_code == 3


def test_a_workload_whose_full_annotations_take_no_baseline_fails_no_run(api: Api, roll: Run) -> None:
    space = api.namespace("tenant")
    api.create(configmap(space))
    made = api.create(workload(space, kind="StatefulSet"))
    api.patch(made, {"metadata": {"annotations": full(**made["metadata"]["annotations"])}})
    settle(api, made)

    check_fails_no_run(roll, "metadata.annotations")


def test_a_workload_whose_full_annotations_take_no_roll_fails_no_run(api: Api, roll: Run) -> None:
    space = api.namespace("tenant")
    api.create(configmap(space))
    never_rolled(api, space, ["web"])

    check_fails_no_run(roll, "metadata.annotations")


@pytest.mark.parametrize("api", [pytest.param("real", marks=pytest.mark.cluster)], indirect=True)
def test_a_pod_template_whose_full_annotations_take_no_roll_fails_no_run(api: Api, roll: Run) -> None:
    space = api.namespace("tenant")
    api.create(configmap(space))
    made = api.create(workload(space, kind="StatefulSet"))
    template = {"template": {"metadata": {"annotations": full()}}}
    api.patch(made, {"metadata": {"annotations": {BASELINE: forged_baseline(made)}}, "spec": template})
    settle(api, made)

    check_fails_no_run(roll, "spec.template.annotations")


def test_namespaces_take_turns(api: Api, roll: Run) -> None:
    """What decides within a turn, such as names, gives no namespace a second turn before the others have had theirs."""
    spaces = [api.namespace(name) for name in ("a-tenant", "shop")]
    made = {
        space: changed_workloads(api, roll, space, [f"{prefix}-{number}" for number in range(3)])
        for space, prefix in zip(spaces, ("a", "web"), strict=True)
    }

    assert roll("--max-rolls", "2").summary == {"restarted": 2, "deferred": 4}
    assert [rolled(api, made[space]) for space in spaces] == [[True, False, False], [True, False, False]]
    assert roll("--max-rolls", "3", "--dry-run").summary == {"restarted": 3, "deferred": 1, "unchanged": 2}


@pytest.mark.parametrize(
    ("ahead", "said"), [(timedelta(minutes=1), {"deferred": 1}), (timedelta(days=9999), {"restarted": 1})]
)
def test_a_roll_of_the_near_future_holds_and_one_of_the_far_future_does_not(
    api: Api, roll: Run, ahead: timedelta, said: dict[str, int]
) -> None:
    """Clocks differ, though not by much."""
    space = api.namespace("shop")
    source = api.create(configmap(space))
    made = api.create(workload(space))
    before = adopted(api, roll, made)
    rolled = f"{datetime.now(timezone.utc) + ahead:%Y-%m-%dT%H:%M:%SZ}"
    stamp = {**json.loads(marks(before)[0] or ""), "rolledAt": rolled}
    api.patch(made, {"metadata": {"annotations": {BASELINE: json.dumps(stamp)}}})
    settle(api, made)
    changed(api, source)

    assert roll("--cool-down", "3600").summary == said


def test_those_are_rolled_first_whose_last_roll_is_longest_ago(api: Api, roll: Run) -> None:
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


def test_an_update_strategy_that_keeps_all_pods_holds(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    made = api.create(workload(space, kind="StatefulSet", updateStrategy=strategy))
    adopted(api, roll, made)
    changed(api, source)

    why = "partition 1 of its update strategy keeps all its pods as they are"
    patch = """-p '{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}'"""
    assert held(api, roll, made).endswith(f"{why}: run kubectl patch statefulset/web -n {space} {patch}")


# names


NAMES = ("../../{space}/secrets/login", "a?b", "a b", "\u00e9", "..", "a/b")


@pytest.mark.parametrize("kind", ["configMap", "secret"])
def test_a_name_that_nothing_can_have_leads_nowhere(api: Api, roll: Run, kind: str) -> None:
    """The API server takes any name for that of a volume's source: none may become the path of another request."""
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
    assert f"/{names[0]} is not there" in reason(ran)
    asked = [each.path for each in api.requests() if each.method == "GET" and "/apis/apps/" not in each.path]
    assert asked == ["/api/v1/namespaces", "/apis/batch/v1/cronjobs", "/apis/batch/v1/jobs"]


# adoption


def test_a_template_that_uses_something_else_is_adopted_anew(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    api.create(secret(space))
    made = api.create(workload(space))
    adopted(api, roll, made)
    volumes = [*FROM_A_VOLUME["volumes"], {"name": "login", "secret": {"secretName": "login"}}]
    pod = workload(space, pod={"volumes": volumes})["spec"]["template"]["spec"]
    api.patch(made, {"spec": {"template": {"spec": pod}}})
    changed(api, source)
    before = settle(api, made)

    ran = roll()

    assert (ran.summary, "uses other config" in reason(ran, "baseline-recorded")) == ({"annotated": 1}, True)
    assert settle(api, made)["spec"] == before["spec"]


def test_a_template_that_names_other_keys_is_adopted_anew(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    api.create(configmap(space))
    pods = []
    for keys in ("a", "ab"):
        items = [{"key": key, "path": key} for key in keys]
        pods.append({"volumes": [{"name": "v", "configMap": {"name": "settings", "items": items}}]})
    made = api.create(workload(space, pod=pods[0]))
    adopted(api, roll, made)
    api.patch(made, {"spec": {"template": {"spec": pods[1]}}})
    before = settle(api, made)

    assert roll().summary == {"annotated": 1}

    assert settle(api, made)["spec"] == before["spec"]


def test_a_workload_that_is_adopted_anew_goes_on_cooling_down(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    made = api.create(workload(space))
    adopted(api, roll, made)
    changed(api, source)
    assert roll().summary == {"restarted": 1}
    keys = [{"key": "a", "path": "a"}]
    volumes = [{"name": "config", "configMap": {"name": "settings", "items": keys}}]
    api.patch(made, {"spec": {"template": {"spec": {"volumes": volumes}}}})
    adopted(api, roll, made)
    changed(api, source, a="again")

    assert "(--cool-down)" in held(api, roll, made, "--cool-down", "3600")


SOURCES = '"sources":{"configmap/settings":"x"}'
OTHERS = {
    "another version": f'{{"version":0,"uid":"UID",{SOURCES}}}',
    "of another workload": f'{{"version":1,"uid":"11111111-1111-1111-1111-111111111111",{SOURCES}}}',
    "a time without a zone": f'{{"version":1,"uid":"UID",{SOURCES},"rolledAt":"2026-01-01T00:00:00"}}',
    "incomplete": '{"version":1}',
    "no JSON": "nonsense",
}


@pytest.mark.parametrize("which", OTHERS)
def test_a_baseline_that_says_nothing_of_the_workload_rolls_nothing(api: Api, roll: Run, which: str) -> None:
    """As one of another version of the job, or one that came along when the workload was copied or restored."""
    space = api.namespace("shop")
    api.create(configmap(space))
    made = api.create(workload(space))
    text = OTHERS[which].replace("UID", made["metadata"]["uid"])
    api.patch(made, {"metadata": {"annotations": {BASELINE: text}}})
    before = settle(api, made)

    assert roll().summary == {"annotated": 1}

    assert settle(api, made)["spec"] == before["spec"]
    assert roll().summary == {"unchanged": 1}


def test_a_template_that_was_rolled_back_changes_with_the_next_config(api: Api, roll: Run) -> None:
    """`kubectl rollout undo` brings an older mark back; the next one must differ from that too."""
    space = api.namespace("shop")
    source = api.create(configmap(space))
    made = api.create(workload(space))
    adopted(api, roll, made)
    old = None
    for value in ("x", "y"):
        changed(api, source, a=value)
        assert roll().summary == {"restarted": 1}
        old, before = marks(settle(api, made))[1], old
    assert old != before
    api.patch(made, {"spec": {"template": {"metadata": {"annotations": {MARK: before}}}}})
    settle(api, made)
    changed(api, source, a="x")

    assert roll().summary == {"restarted": 1}

    assert marks(settle(api, made))[1] not in (before, old)


@pytest.mark.parametrize(
    ("asks", "said"),
    [(None, {}), ("false", {}), ("yes", {"invalid": 1}), ("True", {"invalid": 1}), ("", {"invalid": 1})],
)
def test_only_workloads_that_opted_in_are_read(api: Api, roll: Run, asks: str | None, said: dict[str, int]) -> None:
    space = api.namespace("shop")
    api.create(configmap(space))
    api.create(workload(space, asks=asks))

    ran = roll()

    assert (ran.exit_code, ran.summary, ran.report["facts"]) == (0, said, {"workloads": 0, "sources": 0})
    if said:
        assert reason(ran, "invalid") == f'annotation {OPT_IN} is "{asks}": write "true", or "false"'
    else:
        assert ran.report["note"] == f"no workload in any namespace has the annotation {OPT_IN}"


# a namespace that opts in, and annotations without effect


def opt_in(api: Api, space: str, answer: str | None = "true") -> Object:
    """Annotate a namespace."""
    found: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
    api.patch(found, {"metadata": {"annotations": {OPT_IN: answer}}})
    return found


def test_a_namespace_opts_in_for_its_workloads_but_those_that_opt_out(api: Api, roll: Run) -> None:
    space, other = api.namespace("shop"), api.namespace("other")
    source = api.create(configmap(space))
    api.create(configmap(other))
    made = [api.create(workload(space, kind=kind, asks=None)) for kind in KINDS]
    for name, answer in (("out", "false"), ("unclear", "yes")):
        api.create(workload(space, name, asks=answer))
    api.create(workload(other, asks=None))
    assert roll().summary == {"invalid": 1}
    opt_in(api, space)
    for each in made:
        settle(api, each)

    assert roll().summary == {"annotated": 3, "invalid": 1}
    specs = [settle(api, each)["spec"] for each in made]
    changed(api, source)
    assert roll("-n", space).summary == {"restarted": 3, "invalid": 1}

    assert [settle(api, each)["spec"] for each in made] != specs
    assert marks(api.get(workload(space, "out"))) == marks(api.get(workload(other))) == (None, None)
    opt_in(api, space, "false")
    changed(api, source, a="again")
    assert roll().summary == {"invalid": 1}


def test_a_namespace_that_opts_in_and_has_no_workload_is_reported(api: Api, roll: Run) -> None:
    shop, other, plain = api.namespace("shop"), api.namespace("other"), api.namespace("plain")
    nothing = "but no Deployment, StatefulSet or DaemonSet that follows its config"
    opt_in(api, shop)
    api.create(cron_job(shop))
    api.create(workload(plain, asks=None))

    for arguments in ((), ("-n", shop)):
        assert roll(*arguments).report["note"] == f"namespace {shop} has the annotation {OPT_IN}, {nothing}"
    assert roll("-n", plain).report["note"] == f"no workload in namespace {plain} has the annotation {OPT_IN}"
    opt_in(api, other)
    api.create(workload(other, asks="false"))
    assert roll().report["note"] == f"2 namespaces have the annotation {OPT_IN}, {nothing}"
    opt_in(api, shop, "false")
    assert roll().report["note"] == f"namespace {other} has the annotation {OPT_IN}, {nothing}"


def test_workloads_of_a_namespace_that_opts_in_share_the_budget_in_turns(api: Api, roll: Run) -> None:
    spaces = [api.namespace("a-tenant"), api.namespace("shop")]
    made: list[Object] = []
    for space in spaces:
        opt_in(api, space)
        source = api.create(configmap(space))
        made += [api.create(workload(space, f"web-{number}", "StatefulSet", asks=None)) for number in range(3)]
        roll("-n", space)
        changed(api, source)
    for each in made:
        settle(api, each)

    assert roll("--max-rolls", "2").summary == {"restarted": 2, "deferred": 4}
    assert rolled(api, made) == [True, False, False, True, False, False]


@pytest.mark.parametrize("answer", ["yes", ""])
def test_an_annotation_of_a_namespace_that_is_not_clear_is_reported(api: Api, roll: Run, answer: str) -> None:
    space = api.namespace("shop")
    api.create(configmap(space))
    api.create(workload(space, asks=None))
    opt_in(api, space, answer)

    for ran in (roll(), roll("-n", space)):
        assert (ran.exit_code, ran.summary) == (0, {"invalid": 1})
        assert reason(ran, "invalid") == f'annotation {OPT_IN} is "{answer}": write "true", or "false"'
        assert ran.results[0]["object"] == {"kind": "Namespace", "name": space}


@pytest.mark.parametrize("kind", KINDS)
def test_an_annotation_of_a_pod_template_alone_is_reported(api: Api, roll: Run, kind: str) -> None:
    space = api.namespace("shop")
    api.create(configmap(space))
    made = workload(space, kind=kind, asks=None)
    made["spec"]["template"]["metadata"]["annotations"] = {OPT_IN: "true"}
    api.create(made)

    ran = roll()

    annotate = f"kubectl annotate {kind.lower()}/web -n {space} {OPT_IN}=true"
    assert (ran.exit_code, ran.summary) == (0, {"no-effect": 1})
    assert reason(ran, "no-effect").endswith(f"the workload needs it: run {annotate}")
    assert roll("--check").exit_code == 3
    api.patch(made, {"metadata": {"annotations": {OPT_IN: "true"}}})
    settle(api, made)
    assert roll().summary == {"annotated": 1}


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
    asks: Object = {"annotations": {OPT_IN: "true"}}
    no: Object = {"annotations": {OPT_IN: "false"}}
    made = api.create(cron_job(space, **asks))
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "cron-job", "uid": made["metadata"]["uid"]}
    api.create(job(space, "of-cron-job", ownerReferences=[{**owner, "controller": True}], **asks))
    api.create(cron_job(space, "in-template", template=asks))
    api.create(job(space, "by-hand", **asks))
    for plain in (cron_job(space, "plain"), cron_job(space, "no", **no), job(space, "plain"), job(space, "no", **no)):
        api.create(plain)
    opt_in(api, space)

    ran = roll()

    assert (ran.exit_code, ran.summary) == (0, {"no-effect": 3})
    assert [each["object"]["name"] for each in ran.results] == ["cron-job", "in-template", "by-hand"]
    assert "has no effect on a CronJob, whose next pod reads the new config anyway" in ran.results[0]["reason"]


def test_mistakes_of_a_namespace_leave_those_of_others_visible(api: Api, roll: Run) -> None:
    spaces = [api.namespace("a-tenant"), api.namespace("shop")]
    for number in range(60):
        api.create(workload(spaces[0], f"web-{number:02}", asks="yes"))
    api.create(workload(spaces[1], asks="yes"))

    ran = roll()

    assert ran.summary == {"invalid": 4}
    assert {each["object"]["namespace"] for each in ran.results} == set(spaces)
    assert ran.results[-1]["reason"].endswith(f'write "true", or "false" (57 more in namespace {spaces[0]}, see -v)')


def test_annotations_without_effect_leave_invalid_ones_of_their_namespace_visible(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    asks: Object = {"annotations": {OPT_IN: "true"}}
    for number in range(4):
        api.create(cron_job(space, f"cron-job-{number}", **asks))
        api.create(job(space, f"job-{number}", **asks))
        api.create(workload(space, f"web-{number}", asks="yes"))

    ran = roll()

    assert (ran.exit_code, ran.summary) == (0, {"invalid": 3, "no-effect": 3})
    invalid = [each for each in ran.results if each["code"] == "invalid"]
    assert [each["object"]["name"] for each in invalid] == ["web-0", "web-1", "web-2"]
    more = [each["reason"].partition(" (")[2] for each in ran.results if " more in namespace" in each["reason"]]
    assert sorted(more) == [f"{number} more in namespace {space}, see -v)" for number in (1, 5)]
    every = roll("-v")
    assert every.summary == {"invalid": 4, "no-effect": 8}
    assert not [each for each in every.results if " more in namespace" in each["reason"]]


def test_one_namespace_alone(api: Api, roll: Run) -> None:
    spaces = [api.namespace("shop"), api.namespace("other")]
    for space in spaces:
        api.create(configmap(space))
        api.create(workload(space))

    assert roll("-n", spaces[0]).summary == {"annotated": 1}
    assert roll().summary == {"annotated": 1, "unchanged": 1}


def test_a_namespace_that_goes_is_left_alone(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    api.create(configmap(space))
    made = workload(space)
    made["metadata"]["finalizers"] = ["example.com/kept"]
    api.create(made)
    api.delete({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
    api.mark()

    ran = roll("-v")

    assert (ran.exit_code, ran.summary, api.writes()) == (0, {"skipped": 1}, [])
    api.patch(made, {"metadata": {"finalizers": None}})


def test_a_workload_that_is_being_deleted_is_left_alone(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    made = workload(space)
    made["metadata"]["finalizers"] = ["example.com/kept"]
    adopted(api, roll, api.create(made))
    changed(api, source)
    api.delete(made)
    api.mark()

    ran = roll("-v")
    writes = api.writes()
    api.patch(made, {"metadata": {"finalizers": None}})

    assert (ran.exit_code, ran.summary, writes) == (0, {"skipped": 1}, [])


def test_a_dry_run_says_what_the_run_then_does(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    made = api.create(workload(space))
    adopted(api, roll, made)
    changed(api, source)
    api.mark()

    assert [roll("--dry-run").summary, roll("--dry-run=server").summary] == 2 * [{"restarted": 1}]
    assert [each for each in api.writes() if each.query.get("dryRun") != "All"] == []
    (change,) = roll("--dry-run", "--diff").results[0]["changes"]
    assert change["field"] == f"spec.template.metadata.annotations[{MARK}]"
    assert roll().summary == {"restarted": 1}


# others who write the same workloads


def test_who_applies_the_same_manifest_again_rolls_nothing(api: Api, roll: Run) -> None:
    """Server-side apply of another manager; `kubectl apply` is tried in tests/cluster."""
    space = api.namespace("shop")
    source = api.create(configmap(space))
    manifest = workload(space)
    path = f"{api.path(manifest)}?fieldManager=theirs"
    api.made(api.call("PATCH", path, manifest, headers=APPLY))
    adopted(api, roll, manifest)
    changed(api, source)
    roll()
    before = settle(api, manifest)

    api.call("PATCH", path, manifest, headers=APPLY)

    after = settle(api, manifest)
    assert (after["spec"], marks(after)) == (before["spec"], marks(before))
    assert roll().summary == {"unchanged": 1}


def test_who_replaces_the_workload_rolls_it_by_that_and_it_is_adopted_anew(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    manifest = workload(space)
    made = api.create(manifest)
    adopted(api, roll, made)
    changed(api, source)
    roll()
    settle(api, made)

    api.replace(manifest)

    settle(api, made)
    assert roll().summary == {"annotated": 1}


# what it costs


def test_requests_grow_with_the_workloads_that_ask(api: Api, roll: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    space = api.namespace("shop")
    for number in range(4):
        api.create(configmap(space, f"settings-{number}"))
    for number in range(500):
        asks = "true" if number % 25 == 0 else None
        volumes = [{"name": "config", "configMap": {"name": f"settings-{number % 4}"}}]
        api.create(workload(space, f"web-{number}", asks=asks, pod={"volumes": volumes}))
    monkeypatch.setattr(cluster, "PAGE_SIZE", 100)
    assert roll().summary == {"annotated": 20}
    namespaces = len(api.items("v1", "Namespace"))
    api.mark()

    assert roll("--max-rolls", "0").summary == {"unchanged": 20}

    requests = api.requests()
    counted: dict[str, int] = {}
    for each in requests:
        parts = each.path.split("/")
        what = f"list {parts[-1]}" if parts[-1] in PLURALS else f"get {parts[-2]}"
        counted[what] = counted.get(what, 0) + 1
    assert {each.method for each in requests} == {"GET"}
    assert counted.pop("list namespaces") <= namespaces // 100 + 2
    pages = {
        f"list {plural}": counted.pop(f"list {plural}") for plural in ("deployments", "statefulsets", "daemonsets")
    }
    assert pages["list deployments"] in (5, 6)
    assert pages["list statefulsets"] == pages["list daemonsets"] == 1
    assert [counted.pop(f"list {plural}") for plural in ("cronjobs", "jobs")] == [1, 1]
    used = {number % 4 for number in range(0, 500, 25)}
    assert counted == {"get deployments": 20, "get configmaps": len(used)}


PLURALS = ("namespaces", "deployments", "statefulsets", "daemonsets", "cronjobs", "jobs")


def test_clocks(api: Api, roll: Run) -> None:
    """The time of a roll is that of the run, to the second, in the baseline alone."""
    space = api.namespace("shop")
    source = api.create(configmap(space))
    made = api.create(workload(space))
    before = adopted(api, roll, made)
    assert "rolledAt" not in json.loads(marks(before)[0] or "")
    changed(api, source)
    roll()

    stamp: dict[str, Any] = json.loads(marks(settle(api, made))[0] or "")

    rolled = datetime.fromisoformat(stamp["rolledAt"].replace("Z", "+00:00"))
    assert abs((datetime.now(timezone.utc) - rolled).total_seconds()) < 60
    assert rolled.microsecond == 0
