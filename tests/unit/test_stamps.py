"""Stamps and fingerprints."""

import hashlib
import re

import pytest

from jobs.kit.data.contents import Content, fingerprint
from jobs.kit.values import stamps

SECRET = Content("Opaque", {"a": "MQ==", "b": "Mg=="})


def test_the_fingerprint_depends_only_on_content_and_source() -> None:
    reordered = Content("Opaque", {"b": "Mg==", "a": "MQ=="})
    others = [
        Content("kubernetes.io/tls", SECRET.data),
        Content("Opaque", {"a": "MQ==", "b": "Mw=="}),
        Content("Opaque", {"a": "MQ=="}),
        Content("Opaque", {}, SECRET.data),
        Content("Opaque", SECRET.data, immutable=True),
    ]
    prints = {fingerprint(content, "uid") for content in others} | {fingerprint(SECRET, "other uid")}

    assert fingerprint(reordered, "uid") == fingerprint(SECRET, "uid")
    assert len(prints - {fingerprint(SECRET, "uid")}) == 6


def test_the_fingerprint_is_not_a_plain_hash_of_the_content() -> None:
    assert hashlib.sha256(SECRET.canonical()).hexdigest() not in fingerprint(SECRET, "uid")


def test_label_values_are_valid_for_any_name_of_a_rule() -> None:
    stamp = stamps.stamp("sync-copies", "n" * 63, "r" * 253, "namespace/name", "v1:x")

    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", value) for value in stamp.labels.values())
    assert stamp.annotations[stamps.RULE] == f"{'n' * 63}/{'r' * 253}"


def test_an_object_is_managed_for_one_job_and_one_rule_namespace() -> None:
    labels = stamps.stamp("sync-copies", "kube-chores", "rule", "a/b", "v1:x").labels

    assert stamps.is_managed(labels, "sync-copies", "kube-chores")
    assert not stamps.is_managed(labels, "sync-copies", "another-install")
    assert not stamps.is_managed(labels, "fetch-rates", "kube-chores")
    assert not stamps.is_managed({**labels, stamps.MANAGED_BY: "Helm"}, "sync-copies", "kube-chores")
    stamped = ",".join(f"{key}={labels[key]}" for key in (stamps.MANAGED_BY, stamps.JOB, stamps.RULE_NAMESPACE))
    assert stamps.selector("sync-copies", "kube-chores") == f"{stamped},!{stamps.HUB}"
    assert stamps.selector("sync-copies", "kube-chores", "uid") == f"{stamped},{stamps.HUB}=uid"


def test_a_copy_of_a_rule_in_another_cluster_is_managed_from_there_only() -> None:
    labels = stamps.stamp("sync-copies", "kube-chores", "rule", "a/b", "v1:x", hub="uid").labels

    assert stamps.is_managed(labels, "sync-copies", "kube-chores", "uid")
    assert not stamps.is_managed(labels, "sync-copies", "kube-chores")
    assert not stamps.is_managed(labels, "sync-copies", "kube-chores", "another")


@pytest.mark.parametrize(
    ("content", "mark", "fields"),
    [
        (
            Content("Opaque", {"password": "aHVudGVyMg==", "b": ""}),
            "v1:d83d6c1fedaf07fdb3dade4bdee5962525e878b4ca8fc9ec636429c28ccf68d6",
            "7fa50027f32938989ca7e97e69f422b1",
        ),
        (
            Content(data={"a": "1", "b": "2\n"}, binary_data={"c": "AAEC"}, immutable=True),
            "v1:2efe07e3f294afbe07e87dc9e297db1473bbb676dff6d64471052547523b9128",
            "79b7fa318129b8de8ece9aa19f78f575",
        ),
        (
            Content(),
            "v1:06994ddd786bf7a071bda2c921ab08bfcab8775a811a8bbe1de0841f3ef03395",
            "cae66941d9efbd404e4d88758ea67670",
        ),
        (
            Content(data={"ü": 'ö"\\'}),
            "v1:e1380add2ac91c1a9e7f9db4e7d3388373eb8c78ff4a8f7ac6486b0d833e4b44",
            "6bfbf03e0efe249dd6af5d02928381c0",
        ),
    ],
)
def test_the_fingerprints_of_existing_copies_stay_the_same(content: Content, mark: str, fields: str) -> None:
    """Another value would make each run after an upgrade write each copy once."""
    assert fingerprint(content, "5ff9d1f0-4b5c-4f30-b3ff-5d1f6b6b2a11") == mark
    assert content.field_sets()[0].hex() == fields
