"""roll-workloads with Rollouts of Argo Rollouts; no controller runs, so tests write the statuses."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.api.conftest import Run
from tests.api.test_roll_workloads import changed, opt_in, reason
from tests.apis import Api, Object, wait_for
from tests.workloads import (
    BASELINE,
    ROLLOUTS,
    install_rollouts,
    roll_annotations,
    rollout,
    settle,
    with_status,
    workload,
)
from tests.worlds import configmap

# Not every CRD validates times.
ANY_TIME: Object = json.loads(json.dumps(ROLLOUTS).replace(', "format": "date-time"', ""))


@pytest.fixture
def argo(api: Api, request: pytest.FixtureRequest) -> Iterator[None]:
    """Install the CRD."""
    install_rollouts(api, getattr(request, "param", ROLLOUTS))
    yield
    api.delete(ROLLOUTS)
    wait_for(lambda: api.get(ROLLOUTS) is None, "the CRD to be deleted")


def web_with_baseline(api: Api, roll: Run, **spec: Any) -> tuple[Object, Object]:
    """Create a Rollout and its ConfigMap, and run once; return the ConfigMap and the Rollout."""
    space = api.namespace("shop")
    source, web = api.create(configmap(space)), api.create(rollout(space, **spec))
    with_status(api, web)
    assert roll("--argo-rollouts").summary == {"annotated": 1}
    return source, web


@pytest.mark.usefixtures("argo")
def test_a_rollout_is_restarted_once_when_its_config_changed(api: Api, roll: Run) -> None:
    source, web = web_with_baseline(api, roll)
    before = api.read(web)
    assert (roll("--argo-rollouts").summary, roll().summary) == ({"unchanged": 1}, {})
    changed(api, source)

    ran = roll("--argo-rollouts", "--diff")

    assert ran.summary == {"restarted": 1}
    after = api.read(web)
    assert [each["field"] for each in ran.results[0]["changes"]] == ["spec.restartAt"]
    assert {**after["spec"], "restartAt": None} == {**before["spec"], "restartAt": None}
    assert after["spec"]["restartAt"] == json.loads(after["metadata"]["annotations"][BASELINE])["rolledAt"]
    assert [each["reason"] for each in api.events()] == ["ConfigChanged"]
    assert "its controller has not observed the latest change" in reason(
        roll("--argo-rollouts", "-v"), "rollout-incomplete"
    )
    with_status(api, web, restartedAt=None)
    assert "its pods are restarted" in reason(roll("--argo-rollouts"), "rollout-incomplete")
    with_status(api, web)
    assert roll("--argo-rollouts").summary == {"unchanged": 1}


@pytest.mark.usefixtures("argo")
def test_a_run_that_finds_no_workload_names_all_kinds_that_it_lists(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    opt_in(api, space)

    kinds = "Deployment, StatefulSet, DaemonSet or Rollout"
    assert roll("--argo-rollouts").report["note"].endswith(f"but no {kinds} that opted in")
    assert f"no {kinds} in namespace {space}" in roll("--argo-rollouts", "--explain", space, output="text").stdout


@pytest.mark.parametrize(
    ("status", "code", "what"),
    [
        ({"phase": "Paused", "message": "CanaryPauseStep"}, "paused", "kubectl argo rollouts promote web"),
        (
            {"phase": "Progressing", "message": "more replicas need to be updated"},
            "rollout-in-progress",
            "is Progressing",
        ),
        ({"observedGeneration": "0"}, "rollout-in-progress", "kubectl argo rollouts status web"),
        ({"observedGeneration": "9" * 40}, "rollout-in-progress", "has not observed"),
        ({"phase": "Degraded", "message": "RolloutAborted"}, "", "and pods are not available"),
        ({"phase": "Progressing", "availableReplicas": 0}, "", "and pods are not available"),
    ],
    ids=["paused", "progressing", "not-observed", "hostile", "degraded", "no-pod-available"],
)
@pytest.mark.usefixtures("argo")
def test_the_status_of_a_rollout_decides_whether_it_is_deferred(
    api: Api, roll: Run, status: Object, code: str, what: str
) -> None:
    source, web = web_with_baseline(api, roll)
    with_status(api, web, **status)
    changed(api, source)

    ran = roll("--argo-rollouts")

    if code:
        assert (ran.summary, ran.results[0]["deferral"]) == ({"deferred": 1}, code)
        assert what in reason(ran)
        assert "restartAt" not in api.read(web)["spec"]
    else:
        assert (ran.summary, what in reason(ran, "changed")) == ({"restarted": 1}, True)


@pytest.mark.usefixtures("argo")
def test_a_degraded_rollout_is_reported_after_its_roll_and_its_cool_down_never_doubles(api: Api, roll: Run) -> None:
    source, web = web_with_baseline(api, roll)
    degraded = {"phase": "Degraded", "message": "RolloutAborted"}
    for value in ("2", "3"):
        with_status(api, web, **degraded)
        changed(api, source, a=value)
        assert roll("--argo-rollouts").summary == {"restarted": 1}
    with_status(api, web, **degraded)

    assert "its phase is Degraded: RolloutAborted" in reason(roll("--argo-rollouts"), "rollout-stuck")
    changed(api, source, a="4")
    explained = json.loads(
        roll("--argo-rollouts", "--cool-down", "600", "--explain", f"{web['metadata']['namespace']}/web").stdout
    )
    (row,) = explained["rows"]
    until, last = (datetime.fromisoformat(row[key].replace("Z", "+00:00")) for key in ("until", "lastRoll"))
    assert until - last == timedelta(seconds=600)


@pytest.mark.parametrize("argo", [ANY_TIME], indirect=True, ids=["any-time"])
@pytest.mark.parametrize(
    ("restart", "restarted"),
    [("2026-01-01T00:00:00", "2026-01-01T00:00:00Z"), ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00")],
)
@pytest.mark.usefixtures("argo")
def test_a_time_without_a_zone_only_fails_the_workload_that_has_it(
    api: Api, roll: Run, restart: str, restarted: str
) -> None:
    space = api.namespace("shop")
    api.create(configmap(space))
    for name in ("web", "other"):
        with_status(api, api.create(rollout(space, name)))
    with_status(api, api.patch(rollout(space), {"spec": {"restartAt": restart}}), restartedAt=restarted)

    ran = roll("--argo-rollouts")

    assert (ran.exit_code, ran.summary) == (0, {"annotated": 1, "unreadable": 1})


@pytest.mark.usefixtures("argo")
def test_a_rollout_can_have_the_pod_template_of_a_deployment(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    source = api.create(configmap(space))
    web = rollout(space)
    del web["spec"]["template"], web["spec"]["selector"]
    web["spec"]["workloadRef"] = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "template"}
    web = api.create(web)
    with_status(api, web)
    ran = roll("--argo-rollouts")
    assert "deployment/template" in str(ran.results)
    assert ran.summary == {"unreadable": 1}

    template = api.create(workload(space, "template", opted_in=None))
    assert roll("--argo-rollouts").summary == {"annotated": 1}
    opt_in(api, space)
    changed(api, source)
    explained = json.loads(roll("--argo-rollouts", "--settle", "60", "--explain", f"{space}/web").stdout)
    (row,) = explained["rows"]
    assert (row["object"]["kind"], row["uses"][0]["state"], row["until"] is None) == ("Rollout", "changed", False)

    ran = roll("--argo-rollouts", "-v")

    assert ran.summary == {"restarted": 1, "skipped": 1}
    assert f"its pod template is that of rollout/web in namespace {space}, which is restarted" in reason(ran, "skipped")
    assert api.read(template)["spec"] == template["spec"], "a change of it would be a new revision of the Rollout"

    api.patch(web, {"spec": {"workloadRef": {"kind": "ReplicaSet"}}})
    assert "'ReplicaSet' 'template' is not a Deployment" in str(roll("--argo-rollouts").results)


def with_template(api: Api, roll: Run) -> tuple[str, Object, Object]:
    """Create a Rollout with the pod template of a Deployment that opted in too, and change their config.

    Return the namespace, the Rollout and the Deployment.
    """
    space = api.namespace("shop")
    source = api.create(configmap(space))
    template = settle(api, api.create(workload(space, "template")))
    assert roll().summary == {"annotated": 1}
    web = rollout(space)
    del web["spec"]["template"], web["spec"]["selector"]
    web["spec"]["workloadRef"] = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "template"}
    web = api.create(web)
    with_status(api, web)
    settle(api, template)
    changed(api, source)
    return space, web, template


@pytest.mark.usefixtures("argo")
def test_now_does_not_roll_a_deployment_whose_pod_template_a_rollout_uses(api: Api, roll: Run) -> None:
    space, web, template = with_template(api, roll)
    before = api.read(web)

    ran = roll("--argo-rollouts", "--now", f"{space}/template", "-v")

    assert (ran.exit_code, ran.summary) == (0, {"skipped": 1})
    assert [each["object"]["name"] for each in ran.results] == ["template"]
    assert roll_annotations(api.read(template))[1] is None
    assert api.read(web) == before, "only workloads of the name are processed"


@pytest.mark.usefixtures("argo")
def test_a_rollout_that_is_being_deleted_does_not_prevent_the_roll_of_its_deployment(api: Api, roll: Run) -> None:
    _, web, template = with_template(api, roll)
    api.patch(web, {"metadata": {"finalizers": ["example.com/test"]}})
    api.delete(web)

    ran = roll("--argo-rollouts")

    api.patch(web, {"metadata": {"finalizers": None}})
    assert ran.summary == {"restarted": 1}
    assert roll_annotations(api.read(template))[1]


def test_without_argo_rollouts_the_other_kinds_are_processed(api: Api, roll: Run) -> None:
    space = api.namespace("shop")
    api.create(configmap(space))
    api.create(workload(space))

    ran = roll("--argo-rollouts", "-v")

    assert (ran.exit_code, ran.summary["annotated"]) == (0, 1)
    assert reason(ran, "skipped") == "Argo Rollouts is not installed"
    assert roll("--argo-rollouts", "--explain", space).exit_code == 0
