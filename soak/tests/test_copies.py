"""The invariants of copies, with constructed histories."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from soak.history import Key
from soak.invariants import copies
from soak.invariants.copies.brake import Brake
from soak.invariants.copies.repaired import repaired
from soak.invariants.copies.settled import Settled
from soak.journal import Fault
from soak.observed import Run
from soak.tests.story import START, Story
from tests.apis import Object
from tests.certificates import certificate
from tests.model import certificates

RULE = Key("CopyRator", "kube-chores", "settings")
SOURCE = Key("ConfigMap", "source-1", "settings")
TEAM, SOURCES = Key("Namespace", "", "team-1"), Key("Namespace", "", "source-1")
COPY = Key("ConfigMap", "team-1", "settings")
SHARED = {"share": "yes"}
STAMPS = {
    "app.kubernetes.io/managed-by": "kube-chores",
    "kubechores.dev/job": "sync-copies",
    "kubechores.dev/rule-namespace": "kube-chores",
    "kubechores.dev/rule-hash": "9444e05167cfc327",
}
ANNOTATIONS = {
    "kubechores.dev/rule": "kube-chores/settings",
    "kubechores.dev/source": "source-1/settings",
    "kubechores.dev/orphans": "Delete",
    "kubechores.dev/fingerprint": f"v1:{'a' * 64}",
}
TEAMS = {"include": ["team-*"]}
ELSEWHERE = {"kubechores.dev/source": "elsewhere/other"}


def rule(generation: int = 1, **spec: Any) -> Object:
    fields = {"ruleType": "configmap", "namespaces": ["source-1"], "selector": {"matchLabels": SHARED}, **spec}
    status = {"selectedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]}
    metadata = {"name": "settings", "namespace": "kube-chores", "generation": generation}
    return {"metadata": metadata, "spec": fields, "status": status}


def source(**fields: Any) -> Object:
    metadata = {"name": "settings", "namespace": "source-1", "labels": fields.pop("labels", SHARED)}
    return {"metadata": metadata, "data": {"a": "1"}, **fields}


def copied(name: str = "settings", namespace: str = "team-1", **fields: Any) -> Object:
    annotations = {**ANNOTATIONS, **fields.pop("annotations", {})}
    labels = {**STAMPS, **fields.pop("labels", {})}
    metadata = {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}
    return {"metadata": metadata, "data": {"a": "1"}, **fields}


def namespace(name: str, **metadata: Any) -> Object:
    return {"metadata": {"name": name, **metadata}}


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """A rule that requires one copy, 100 s ago."""
    made = Story("sync-copies", tmp_path)
    for name in (TEAM, SOURCES):
        made.past.add(-100, name, namespace(name.name))
    made.past.add(-100, SOURCE, source())
    made.past.add(-100, RULE, rule())
    return made


def found(story: Story, *, settled: bool = False) -> list[str]:
    return story.violations((each.check for each in copies.invariants()), settled=settled)


def add_copy(story: Story, obj: Object | None = None) -> None:
    story.past.add(-50, COPY, obj or copied())


# writes


def test_a_required_copy_may_be_created_and_replaced(story: Story) -> None:
    run = story.run(0)
    story.write(run, 2, COPY, copied())
    story.past.add(3, SOURCE, source(data={"a": "2"}))
    story.write(run, 4, COPY, copied(data={"a": "2"}))

    assert found(story, settled=True) == []


@pytest.mark.parametrize(
    ("key", "obj"),
    [
        (RULE, None),
        (RULE, rule(targets={"exclude": ["team-*"]})),
        (RULE, rule(targets={"namespaceSelector": {"matchLabels": {"tier": "web"}}})),
        (RULE, rule(ruleType="secret")),
        (SOURCE, source(labels={})),
        (SOURCE, None),
        (TEAM, namespace("team-1", annotations={"kubechores.dev/copies": "false"})),
        (TEAM, namespace("team-1", deletionTimestamp="2027-01-15T08:00:00Z")),
    ],
)
def test_no_copy_is_written_that_no_rule_required_during_the_run(story: Story, key: Key, obj: Object | None) -> None:
    story.past.add(-60, key, obj)
    story.write(story.run(0), 2, COPY, copied())

    assert any("no rule required it at any time of the run" in each for each in found(story))


def test_what_was_required_when_the_run_began_may_be_written(story: Story) -> None:
    story.past.add(1, RULE, None)
    story.write(story.run(0), 2, COPY, copied())

    assert found(story) == []


def test_a_copy_has_the_content_of_its_source(story: Story) -> None:
    story.write(story.run(0), 2, COPY, copied(data={"a": "other"}))

    assert any("differs in data" in each and "other" not in each for each in found(story))


def test_chosen_keys_and_another_name(story: Story) -> None:
    story.past.add(-60, SOURCE, source(data={"a": "1", "b1": "2", "c": "3", "d": "4"}))
    keys = {"include": ["a", "b*"], "rename": {"c": "x"}}
    story.past.add(-60, RULE, rule(keys=keys, targetName="app"))
    place = COPY._replace(name="app")
    story.write(story.run(0), 2, place, copied("app", data={"a": "1", "b1": "2", "x": "3"}))

    assert found(story, settled=True) == []


def test_a_write_that_changes_nothing_is_reported(story: Story) -> None:
    add_copy(story)
    story.write(story.run(0), 2, COPY, copied())

    (violation,) = found(story)
    assert "it changed nothing" in violation


def shadow(story: Story, seconds: float) -> None:
    """Create a source of the same name in a later namespace of the rule, or in one of another rule."""
    later = source(data={"later": "true"})
    later["metadata"]["namespace"] = "source-2"
    story.past.add(-90, Key("Namespace", "", "source-2"), namespace("source-2"))
    story.past.add(-90, RULE, rule(namespaces=["source-1", "source-2"], targets=TEAMS))
    story.past.add(seconds, SOURCE._replace(namespace="source-2"), later)


def claim(story: Story, seconds: float) -> None:
    """Let a source of another rule claim the name from a time on."""
    shadow(story, seconds)
    story.past.add(-90, RULE, rule(targets=TEAMS))
    story.past.add(-90, RULE._replace(name="other"), rule(namespaces=["source-2"], targets=TEAMS))


def of_later() -> Object:
    return copied(data={"later": "true"}, annotations={"kubechores.dev/source": "source-2/settings"})


def test_no_copy_is_created_that_sources_of_two_rules_claim(story: Story) -> None:
    claim(story, -80)
    story.write(story.run(0), 2, COPY, copied())

    (violation,) = found(story)
    assert "source-1/settings and source-2/settings claimed it during the whole run" in violation


def test_a_claim_during_the_run_may_be_unknown(story: Story) -> None:
    claim(story, 1)
    story.write(story.run(0), 2, COPY, copied())

    assert found(story) == []


def test_a_copy_that_exists_follows_its_source_although_another_rule_claims_it(story: Story) -> None:
    claim(story, -80)
    add_copy(story, copied(data={"a": "0"}))
    story.write(story.run(0), 2, COPY, copied())

    assert found(story) == []


def test_of_the_sources_of_a_rule_the_first_is_copied(story: Story) -> None:
    shadow(story, -80)
    story.write(story.run(0), 2, COPY, copied())
    assert found(story, settled=True) == []

    story.past.add(3, COPY, None)
    story.write(story.run(4), 5, COPY, of_later())
    assert any("differs in data" in each for each in found(story))


def test_a_copy_of_a_shadowed_source_follows_it(story: Story) -> None:
    shadow(story, -80)
    add_copy(story, of_later())
    changed = source(data={"later": "more"})
    changed["metadata"]["namespace"] = "source-2"
    story.past.add(-40, SOURCE._replace(namespace="source-2"), changed)
    story.write(story.run(0), 2, COPY, {**of_later(), "data": {"later": "more"}})
    story.past.add(60, Key("Pod", "kube-chores", "any"), {"metadata": {}})
    story.run(60)
    story.run(120, 4)

    assert found(story) == []


def test_a_copy_does_not_become_one_of_another_namespace_by_itself(story: Story) -> None:
    shadow(story, -80)
    add_copy(story, of_later())
    story.past.add(-40, SOURCE._replace(namespace="source-2"), None)
    run = story.run(0)
    story.write(run, 2, COPY, copied())

    assert found(story) == [
        f"patch of configmap/settings in team-1 by {run.pod}: it was a copy of configmap/settings in source-2"
    ]


# metadata, certificates, adoption


@pytest.mark.parametrize(
    ("metadata", "labels", "annotations"),
    [
        ({"labels": {"team": "a"}}, {"team": "a"}, {}),
        ({"annotations": {"by": "a"}}, {}, {"by": "a"}),
        ({"copyLabels": ["share"]}, SHARED, {}),
        ({"copyAnnotations": ["note"]}, {}, {"note": "n"}),
    ],
)
def test_a_copy_has_the_labels_and_annotations_of_its_rule(
    story: Story, metadata: Object, labels: Object, annotations: Object
) -> None:
    noted = source()
    noted["metadata"] = {**noted["metadata"], "annotations": {"note": "n"}}
    story.past.add(-60, SOURCE, noted)
    story.past.add(-60, RULE, rule(metadata=metadata))
    story.write(story.run(0), 2, COPY, copied(labels=labels, annotations=annotations))
    assert found(story, settled=True) == []

    story.write(story.run(3), 4, COPY, copied())
    (violation,) = found(story)
    assert violation.endswith(f"it differs in {next(iter({**labels, **annotations}))}")


ROOTS: Object = {"keys": {"include": ["*.crt"]}, "merge": {"key": "roots"}, "targetName": "settings"}
BUNDLED: Object = {"kubechores.dev/source": "CopyratorRule/kube-chores/settings"}


def bundle_of(story: Story, *names: str) -> Object:
    """Let the rule merge the certificates of two source namespaces; return the bundle of these certificates."""
    story.past.add(-90, Key("Namespace", "", "source-2"), namespace("source-2"))
    story.past.add(-90, RULE, rule(namespaces=["source-1", "source-2"], targets=TEAMS, **ROOTS))
    story.past.add(-90, SOURCE, source(data={"one.crt": certificate("one")}))
    other = source(data={"two.crt": certificate("two")})
    other["metadata"]["namespace"] = "source-2"
    story.past.add(-90, SOURCE._replace(namespace="source-2"), other)
    texts = sorted(map(certificate, names), key=lambda text: hashlib.sha256(certificates(text)[0]).digest())
    return copied(annotations=BUNDLED, data={"roots": "".join(texts)})


def test_a_bundle_has_the_certificates_of_all_sources(story: Story) -> None:
    story.write(story.run(0), 2, COPY, bundle_of(story, "one", "two"))
    assert found(story, settled=True) == []

    story.write(story.run(3), 4, COPY, bundle_of(story, "one"))
    assert any("differs in data" in each for each in found(story))


def test_no_bundle_is_written_while_a_source_namespace_is_missing(story: Story) -> None:
    made = bundle_of(story, "one")
    story.past.add(-40, SOURCE._replace(namespace="source-2"), None)
    story.past.add(-40, Key("Namespace", "", "source-2"), None)
    run = story.run(0)
    story.write(run, 2, COPY, made)

    about = f"create of configmap/settings in team-1 by {run.pod}"
    assert found(story) == [f"{about}: it is a bundle, and namespace source-2 of its rule did not exist"]


@pytest.mark.parametrize(("recorded", "number"), [("1", 0), ("2", 1)])
def test_a_bundle_stays_while_a_source_namespace_was_recreated(story: Story, recorded: str, number: int) -> None:
    add_copy(story, bundle_of(story, "one", "two"))
    story.past.add(-40, Key("Namespace", "", "source-2"), namespace("source-2", uid="2"))
    known = rule(namespaces=["source-1", "source-2"], targets=TEAMS, **ROOTS)
    known["status"]["sourceNamespaces"] = [{"name": "source-2", "uid": recorded}]
    story.past.add(-40, RULE, known)
    story.past.add(-40, SOURCE._replace(namespace="source-2"), None)
    story.past.add(-1, Key("Pod", "kube-chores", "any"), {"metadata": {}})
    story.run(0, 4)

    assert ["ended with 4" in each for each in found(story)] == [True] * number


@pytest.mark.parametrize("after", [None, "one"])
def test_a_copy_of_a_refused_source_stays(story: Story, after: str | None) -> None:
    before, made = bundle_of(story, "one", "two"), bundle_of(story, "one")
    story.past.add(-60, COPY, before)
    story.past.add(-50, SOURCE, source(data={"one.crt": "not a certificate"}))
    story.write(story.run(0), 2, COPY, made if after else None)

    (violation,) = found(story)
    expected = "no rule required it" if after else "required a copy of CopyratorRule/kube-chores/settings"
    assert expected in violation


@pytest.mark.parametrize(
    ("conflict", "before", "expected"),
    [
        ("Adopt", {}, ""),
        ("Skip", {}, "no rule adopts it"),
        ("Adopt", {"labels": {"app.kubernetes.io/managed-by": "Helm"}}, "another tool managed it"),
        ("Adopt", {"ownerReferences": [{"controller": True}]}, "it had a controller"),
        ("Adopt", {"immutable": True}, "it had to be recreated"),
    ],
)
def test_an_object_becomes_a_copy_only_if_a_rule_adopts_it(
    story: Story, conflict: str, before: Object, expected: str
) -> None:
    story.past.add(-60, RULE, rule(conflict=conflict))
    fields = {"immutable": True} if "immutable" in before else {}
    story.past.add(-50, COPY, {"metadata": {"name": "settings", "namespace": "team-1", **before}, "data": {}, **fields})
    story.write(story.run(0), 2, COPY, copied())

    assert [expected in each for each in found(story)] == [True] * bool(expected)


def test_an_object_that_was_a_copy_may_become_one_of_another_namespace(story: Story) -> None:
    story.past.add(-60, RULE, rule(conflict="Adopt", namespaces=["source-2", "source-1"]))
    story.past.add(-100, SOURCES._replace(name="source-2"), namespace("source-2"))
    disowned = copied(annotations={"kubechores.dev/source": "source-2/settings"})
    del disowned["metadata"]["labels"]["app.kubernetes.io/managed-by"]
    story.past.add(-50, COPY, disowned)
    story.write(story.run(0), 2, COPY, copied())

    assert found(story) == []


def test_a_rule_adopts_an_object_within_two_runs(story: Story) -> None:
    story.past.add(-60, RULE, rule(conflict="Adopt"))
    story.past.add(-50, COPY, {"metadata": {"name": "settings", "namespace": "team-1"}, "data": {}})
    story.run(0)
    assert found(story) == []

    story.run(60)
    (violation,) = found(story)
    assert violation.startswith("configmap/settings in team-1 is not as rule settings requires it: it differs in data")


# deletions


@pytest.mark.parametrize(
    ("orphans", "annotation", "number"),
    [("Retain", "Delete", 1), ("Delete", "Retain", 0), (None, "Retain", 1), (None, "Delete", 0)],
)
def test_an_orphan_is_retained_as_its_rule_or_else_its_annotation_has_it(
    story: Story, orphans: str | None, annotation: str, number: int
) -> None:
    add_copy(story, copied(annotations={"kubechores.dev/orphans": annotation}))
    story.past.add(-40, SOURCE, None)
    story.past.add(-40, RULE, rule(orphans=orphans) if orphans else None)
    story.write(story.run(0), 2, COPY, None)

    violations = found(story)
    assert len(violations) == number and all("it was to be retained" in each for each in violations)


def test_a_retained_copy_may_be_there_when_everything_settled(story: Story) -> None:
    add_copy(story)
    story.past.add(-40, SOURCE, None)
    story.past.add(-40, RULE, rule(orphans="Retain"))

    assert found(story, settled=True) == []


def test_a_copy_that_no_rule_requires_is_deleted(story: Story) -> None:
    add_copy(story)
    story.past.add(-40, SOURCE, None)
    story.write(story.run(0), 2, COPY, None)

    assert found(story, settled=True) == []


def test_a_copy_that_was_required_all_the_time_is_not_deleted(story: Story) -> None:
    add_copy(story)
    story.write(story.run(0), 2, COPY, None)

    assert any("required a copy of source-1/settings" in each for each in found(story))


def test_an_immutable_copy_is_deleted_to_create_it_again(story: Story) -> None:
    add_copy(story, copied(immutable=True))
    run = story.run(0)
    story.write(run, 2, COPY, None)
    story.write(run, 3, COPY, copied())

    assert found(story, settled=True) == []


def test_an_immutable_copy_that_is_equal_is_not_created_again(story: Story) -> None:
    story.past.add(-60, SOURCE, source(immutable=True))
    add_copy(story, copied(immutable=True))
    run = story.run(0)
    story.write(run, 2, COPY, None)
    story.write(run, 3, COPY, copied(immutable=True))

    (violation,) = found(story)
    assert "required a copy of source-1/settings there during the whole run" in violation


def test_no_copy_is_deleted_while_a_source_namespace_is_missing(story: Story) -> None:
    add_copy(story)
    story.past.add(-40, SOURCE, None)
    story.past.add(-40, SOURCES, None)
    story.write(story.run(0), 2, COPY, None)

    (violation,) = found(story)
    assert "namespace source-1 of rule kube-chores/settings did not exist" in violation


def delete_many(story: Story, run: Run, number: int, annotations: Object | None = None) -> None:
    keys = [Key("ConfigMap", "team-1", f"c{each}") for each in range(number)]
    for key in keys:
        story.past.add(-50, key, copied(key.name))
    if annotations:
        story.past.add(-50, TEAM, namespace("team-1", annotations=annotations))
    for each, key in enumerate(keys):
        story.write(run, 2 + each / 100, key, None)


def test_a_run_deletes_at_most_ten_copies(story: Story) -> None:
    delete_many(story, story.run(0), 10)
    assert found(story) == []


def test_more_deletions_are_reported(story: Story) -> None:
    run = story.run(0)
    delete_many(story, run, 11)
    assert found(story) == [f"{run.pod} deleted 11 copies of kind ConfigMap"]


def test_the_brake_does_not_count_namespaces_that_opted_out(story: Story) -> None:
    delete_many(story, story.run(0), 11, {"kubechores.dev/copies": "False"})
    assert found(story) == []


def test_the_brake_does_not_count_copies_that_are_deleted_to_create_them_again(story: Story) -> None:
    run = story.run(0)
    keys = [
        Key("ConfigMap", "team-1", "settings"),
        *(Key("ConfigMap", f"team-{each}", "settings") for each in range(2, 15)),
    ]
    for key in keys:
        story.past.add(-100, Key("Namespace", "", key.namespace), namespace(key.namespace))
        story.past.add(-50, key, copied(namespace=key.namespace, immutable=True))
    for key in keys:
        story.write(run, 2, key, None)
    for key in keys:
        story.write(run, 3, key, copied(namespace=key.namespace))

    assert found(story) == []


def test_a_person_may_allow_more_deletions(story: Story) -> None:
    run = story.run(0)
    args = {"spec": {"containers": [{"args": ["sync-copies", "--max-deletes=11"]}]}}
    story.past.add(0, Key("Pod", "kube-chores", run.pod), {"metadata": {"name": run.pod}, **args})
    delete_many(story, run, 11)
    assert found(story) == []


def test_a_run_that_is_stopped_by_the_brake_has_a_reason(story: Story) -> None:
    story.past.add(-1, Key("Pod", "kube-chores", "any"), {"metadata": {}})
    add_copy(story)
    run = story.run(0, 4)

    assert found(story) == [
        f"{run.pod} ended with 4, and there was no mistaken rule, no copy that would move to another namespace, "
        "and not 11 copies to delete or ServiceAccounts to change"
    ]


def test_a_mistaken_rule_is_a_reason(story: Story) -> None:
    add_copy(story)
    story.past.add(-40, RULE, rule(2, selector={"matchLabels": {"share": "yess"}}))
    story.past.add(-1, Key("Pod", "kube-chores", "any"), {"metadata": {}})
    story.run(0, 4)

    assert found(story) == []


@pytest.mark.parametrize(("uid", "number"), [("1", 1), ("2", 0)])
def test_a_source_namespace_that_was_recreated_is_a_reason(story: Story, uid: str, number: int) -> None:
    add_copy(story)
    recorded = rule()
    recorded["status"]["sourceNamespaces"] = [{"name": "source-1", "uid": "1"}]
    story.past.add(-40, RULE, recorded)
    story.past.add(-40, SOURCES, namespace("source-1", uid=uid))
    story.past.add(-40, SOURCE, None)
    story.past.add(-1, Key("Pod", "kube-chores", "any"), {"metadata": {}})
    story.run(0, 4)

    assert len(found(story)) == number


# what must be


@pytest.mark.parametrize("actual", [None, copied(data={"a": "edited"})])
def test_a_copy_is_repaired_within_two_runs(story: Story, actual: Object | None) -> None:
    story.past.add(-50, COPY, actual or copied())
    if actual is None:
        story.past.add(-40, COPY, None)
    story.run(0)
    assert found(story) == []

    story.run(60)
    (violation,) = found(story)
    assert violation.startswith("configmap/settings in team-1 is not as rule settings requires it")


def test_a_copy_whose_stamp_was_edited_is_repaired(story: Story) -> None:
    add_copy(story, copied(data={"a": "edited"}, annotations=ELSEWHERE))
    story.run(0)
    story.run(60)

    assert len(found(story)) == 1


def test_a_copy_of_another_source_stays_while_its_rule_may_be_mistaken(story: Story) -> None:
    add_copy(story, copied(data={"a": "edited"}, annotations=ELSEWHERE))
    story.past.add(-60, RULE, rule(namespaces=["source-1", "sorce-2"]))
    story.run(0)
    story.run(60)

    assert found(story) == []


def test_a_copy_of_another_source_stays_while_a_rule_selects_that_one(story: Story) -> None:
    story.past.add(-90, Key("Namespace", "", "source-2"), namespace("source-2"))
    story.past.add(-90, RULE, rule(namespaces=["source-1", "source-2"]))
    other = source()
    other["metadata"] |= {"name": "other", "namespace": "source-2"}
    story.past.add(-80, Key("ConfigMap", "source-2", "other"), other)
    add_copy(story, copied(data={"a": "edited"}, annotations={"kubechores.dev/source": "source-2/other"}))
    story.run(0)
    story.run(60)

    assert not any(each.startswith("configmap/settings in team-1") for each in found(story))


@pytest.mark.parametrize(
    ("kind", "detail", "number"),
    [
        ("admission-policy", "in team-1, team-2 for 80 s", 0),
        ("admission-policy", "in team-2, team-3 for 80 s", 1),
        ("tenant-copies-quota", "team-1", 0),
        ("tenant-copies-quota", "team-2", 1),
        ("tenant-copies-claim", "source-2/settings", 0),
        ("tenant-copies-claim", "source-2/other", 1),
        ("credentials-binding", "kube-chores-sync-copies-secrets", 0),
        ("credentials-binding", "kube-chores-farm-pods", 1),
        ("credentials-account", "fetch-rates", 1),
        ("network-down", "", 1),
    ],
)
def test_a_fault_that_refuses_writes_excuses_copies_until_two_runs_later(
    story: Story, kind: str, detail: str, number: int
) -> None:
    story.journal.faults.append(Fault(kind, detail, START - 50, START + 30))
    story.run(0)
    story.run(60)

    assert len(found(story)) == number


def test_a_quota_that_is_still_full_excuses_copies(story: Story) -> None:
    story.journal.faults.append(Fault("tenant-copies-quota", "team-1", START - 50))
    story.run(0)
    story.run(60)

    assert found(story) == []


def test_runs_count_when_all_watches_know_what_they_wrote(story: Story) -> None:
    story.run(0)
    story.run(60)
    check, observed = repaired, story.observed()

    assert list(check(replace(observed, until=START + 65))) == []
    assert len(list(check(replace(observed, until=START + 66)))) == 1


def test_the_reason_of_a_run_with_4_is_searched_when_all_watches_know_it(story: Story) -> None:
    run, check, observed = story.run(0, 4), Brake(), story.observed()

    assert list(check(replace(observed, until=START + 5))) == []
    (violation,) = check(replace(observed, runs=(), until=START + 6))
    assert violation.startswith(f"{run.pod} ended with 4")
    assert list(check(replace(observed, runs=()))) == []


def test_an_object_of_a_tenant_in_the_way_excuses_the_copy(story: Story) -> None:
    story.past.add(-50, COPY, {"metadata": {"name": "settings", "namespace": "team-1"}, "data": {}})
    story.run(0)
    story.run(60)

    assert found(story) == []


def test_all_copies_are_required_when_everything_settled(story: Story) -> None:
    add_copy(story)
    story.past.add(-40, Key("ConfigMap", "team-1", "old"), copied("old"))

    assert found(story, settled=True) == ["configmap/old in team-1 is a copy that no rule requires"]


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        ({"annotations": ELSEWHERE}, "kubechores.dev/source"),
        ({"annotations": {"kubechores.dev/rule": "kube-chores/other"}}, "differs in kubechores.dev/rule"),
        ({"annotations": {"kubechores.dev/orphans": "Retain"}}, "kubechores.dev/orphans"),
        ({"annotations": {"kubechores.dev/fingerprint": "0"}}, "kubechores.dev/fingerprint '0', which is not an HMAC"),
        ({"labels": {"kubechores.dev/rule-hash": "0"}}, "kubechores.dev/rule-hash"),
    ],
)
def test_copies_have_their_stamps_when_everything_settled(story: Story, stamp: Object, expected: str) -> None:
    add_copy(story, copied(**stamp))

    (violation,) = found(story, settled=True)
    assert expected in violation


def test_equal_copies_of_a_source_have_the_same_fingerprint(story: Story) -> None:
    add_copy(story)
    story.past.add(-100, Key("Namespace", "", "team-2"), namespace("team-2"))
    other = {"kubechores.dev/fingerprint": f"v1:{'b' * 64}"}
    story.past.add(-50, COPY._replace(namespace="team-2"), copied(namespace="team-2", annotations=other))

    (violation,) = found(story, settled=True)
    assert "than an equal copy of source-1/settings" in violation


def test_a_source_that_was_recreated_has_another_fingerprint(story: Story) -> None:
    add_copy(story)
    check = Settled()
    assert list(check(story.observed(settled=True))) == []

    recreated = source()
    recreated["metadata"]["uid"] = "another"
    story.past.add(-30, SOURCE, recreated)
    (violation,) = check(story.observed(settled=True))
    assert violation.endswith("the kubechores.dev/fingerprint of another content or an earlier source")


def test_rules_are_ready_when_everything_settled(story: Story) -> None:
    add_copy(story)
    changed = rule()
    changed["status"]["conditions"] = [{"type": "Ready", "status": "False", "reason": "Denied", "message": "no"}]
    story.past.add(-30, RULE, changed)

    assert found(story, settled=True) == ["copyrator/settings in kube-chores is not Ready: Denied no"]
