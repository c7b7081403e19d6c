"""Our accounts change only our objects."""

from pathlib import Path

import pytest

from soak.history import Key
from soak.invariants.ours import check
from soak.tests.story import Story
from tests.apis import Object

COPY = Key("ConfigMap", "team-1", "settings")
OURS = {"app.kubernetes.io/managed-by": "kube-chores", "kubechores.dev/job": "sync-copies"}


def configmap(labels: Object | None = None, **data: str) -> Object:
    return {"metadata": {"name": "settings", "namespace": "team-1", "labels": labels or {}}, "data": data}


def deployment(config: str = "", image: str = "a", baseline: str = "") -> Object:
    template = {"metadata": {"annotations": {"kubechores.dev/config": config}}, "spec": {"image": image}}
    metadata = {"name": "web", "annotations": {"kubechores.dev/config-baseline": baseline}}
    return {"metadata": metadata, "spec": {"template": template}}


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story("sync-copies", tmp_path)


def test_copies_are_created_replaced_and_deleted(story: Story) -> None:
    run = story.run(10)
    story.write(run, 11, COPY, configmap(OURS, a="1"))
    story.write(run, 12, COPY, configmap(OURS, a="2"))
    story.write(run, 13, COPY, None)

    assert story.violations([check]) == []


@pytest.mark.parametrize(
    ("labels", "after"),
    [({}, configmap(a="2")), ({}, None), ({**OURS, "kubechores.dev/job": "fetch-rates"}, configmap(OURS, a="2"))],
)
def test_an_object_of_a_tenant_or_another_job_stays(story: Story, labels: Object, after: Object | None) -> None:
    story.past.add(0, COPY, configmap(labels, a="1"))
    story.write(story.run(10), 11, COPY, after)

    (violation,) = story.violations([check])
    assert "the object is not managed by the job" in violation


def test_invariants_of_copies_look_for_a_rule_that_adopts_an_object(story: Story) -> None:
    story.past.add(0, COPY, configmap(a="1"))
    story.write(story.run(10), 11, COPY, configmap(OURS, a="2"))

    assert story.violations([check]) == []


@pytest.mark.parametrize(
    ("fields", "number"),
    [
        ({"imagePullSecrets": [{"name": "login"}]}, 0),
        ({"metadata": {"annotations": {"kubechores.dev/pull-secrets": "kube-chores/login"}}}, 0),
        ({"metadata": {"annotations": {"note": "other"}}}, 1),
        ({"automountServiceAccountToken": False}, 1),
    ],
)
def test_of_a_service_account_only_pull_secrets_change(story: Story, fields: Object, number: int) -> None:
    account = Key("ServiceAccount", "team-1", "default")
    story.past.add(0, account, {"metadata": {}})
    story.write(story.run(10), 11, account, {"metadata": {}, **fields})

    found = story.violations([check])
    assert len(found) == number and all("more than imagePullSecrets" in each for each in found)


def test_a_copy_has_the_labels_of_the_job(story: Story) -> None:
    story.write(story.run(10), 11, COPY, configmap(a="1"))

    (violation,) = story.violations([check])
    assert "without the labels" in violation


@pytest.mark.parametrize("account", ["fetch-rates", "farm-pods", "mirror-audit", "roll-workloads"])
def test_each_account_manages_only_its_kinds(tmp_path: Path, account: str) -> None:
    story = Story(account, tmp_path)
    story.write(story.run(10), 11, Key("Secret", "team-1", "login"), {"metadata": {"labels": OURS}})

    (violation,) = story.violations([check])
    assert f"{account} does not manage any Secret" in violation


def test_only_the_status_of_a_rule_is_written(story: Story) -> None:
    key = Key("CopyRator", "kube-chores", "settings")
    story.past.add(0, key, {"spec": {"a": 1}, "metadata": {}})
    run = story.run(10)
    story.write(run, 11, key, {"spec": {"a": 1}, "status": {"copies": 1}, "metadata": {}}, subresource="status")
    story.write(run, 12, key, {"spec": {"a": 2}, "status": {"copies": 1}, "metadata": {}}, subresource="status")
    labelled = {"labels": {"a": "1"}}
    story.write(run, 13, key, {"spec": {"a": 2}, "status": {"copies": 1}, "metadata": labelled}, subresource="status")

    assert ["more than the status changed" in each for each in story.violations([check])] == [True, True]


def test_a_roll_changes_only_its_annotations(tmp_path: Path) -> None:
    key, story = Key("Deployment", "shop", "web"), Story("roll-workloads", tmp_path)
    story.past.add(0, key, deployment())
    run = story.run(10)
    story.write(run, 11, key, deployment("1", baseline="{}"))
    story.write(run, 12, key, deployment("2", image="b"))

    (violation,) = story.violations([check])
    assert "more than the annotations of a roll changed" in violation


def test_events_are_only_created(story: Story) -> None:
    key, run = Key("Event", "team-1", "settings.1"), story.run(10)
    story.write(run, 11, key, {"metadata": {}})
    story.write(run, 12, key, None)

    (violation,) = story.violations([check])
    assert "Events are only created" in violation


@pytest.mark.parametrize(
    ("account", "key", "expected"),
    [
        ("sync-copies", Key("ExchangeRate", "kube-chores", "eur"), "sync-copies writes no status of a ExchangeRate"),
        ("roll-workloads", Key("Deployment", "shop", "web"), "roll-workloads writes no status of a Deployment"),
        ("fetch-rates", Key("ExchangeRate", "kube-chores", "eur"), ""),
        ("mirror-audit", Key("RegistryMirror", "", "hub"), ""),
    ],
)
def test_each_account_writes_only_statuses_of_its_kind(tmp_path: Path, account: str, key: Key, expected: str) -> None:
    story = Story(account, tmp_path)
    story.past.add(0, key, {"metadata": {}})
    story.write(story.run(10), 11, key, {"metadata": {}, "status": {"a": 1}}, subresource="status")

    assert [each.rpartition(": ")[2] for each in story.violations([check])] == [expected] * bool(expected)


def test_other_subresources_are_not_written(tmp_path: Path) -> None:
    story = Story("farm-pods", tmp_path)
    story.write(story.run(10), 11, Key("Pod", "shop", "web"), {"metadata": {}}, subresource="eviction")

    (violation,) = story.violations([check])
    assert "subresource eviction" in violation


@pytest.mark.parametrize(("namespace", "count"), [("kube-chores-mirrors", 0), ("kube-chores-nodes", 0), ("shop", 1)])
def test_repairs_are_only_in_namespaces_of_mirrors(tmp_path: Path, namespace: str, count: int) -> None:
    story = Story("mirror-repair", tmp_path)
    labels = {"app.kubernetes.io/managed-by": "kube-chores", "kubechores.dev/job": "mirror-audit"}
    story.write(story.run(10), 11, Key("StatefulSet", namespace, "hub"), {"metadata": {"labels": labels}})

    assert [each.rpartition(": ")[2] for each in story.violations([check])] == [
        "it is in a namespace of others"
    ] * count


def test_workloads_are_neither_created_nor_deleted(tmp_path: Path) -> None:
    key, story = Key("Deployment", "shop", "web"), Story("roll-workloads", tmp_path)
    run = story.run(10)
    story.write(run, 11, key, deployment())
    story.write(run, 12, key, None)

    assert ["neither creates nor deletes" in each for each in story.violations([check])] == [True, True]


@pytest.mark.parametrize("field", ["finalizers", "ownerReferences", "labels"])
def test_a_roll_keeps_other_metadata(tmp_path: Path, field: str) -> None:
    key, story = Key("Deployment", "shop", "web"), Story("roll-workloads", tmp_path)
    before = deployment()
    before["metadata"][field] = ["example.com/kept"]
    story.past.add(0, key, before)
    story.write(story.run(10), 11, key, deployment("1"))

    (violation,) = story.violations([check])
    assert "more than the annotations of a roll changed" in violation


def test_the_key_of_rolls_is_the_only_secret_of_its_account(tmp_path: Path) -> None:
    story = Story("roll-workloads", tmp_path)
    for name in ("roll-workloads-key", "other"):
        story.write(story.run(10), 11, Key("Secret", "kube-chores", name), {"metadata": {}})

    (violation,) = story.violations([check])
    assert violation.startswith("create of secret/other in kube-chores")
