"""Stamps and fingerprints."""

import hashlib
import re

from jobs.kit.data.objects import Content
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
    prints = {content.fingerprint("uid") for content in others} | {SECRET.fingerprint("other uid")}

    assert reordered.fingerprint("uid") == SECRET.fingerprint("uid")
    assert len(prints - {SECRET.fingerprint("uid")}) == 6


def test_the_fingerprint_is_not_a_plain_hash_of_the_content() -> None:
    assert hashlib.sha256(SECRET.canonical()).hexdigest() not in SECRET.fingerprint("uid")


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
    assert stamps.selector("sync-copies", "kube-chores") == ",".join(
        f"{key}={labels[key]}" for key in (stamps.MANAGED_BY, stamps.JOB, stamps.RULE_NAMESPACE)
    )
