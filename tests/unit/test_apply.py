"""What apply sends, without a server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from jobs.kit.apply import DryRun, apply
from jobs.kit.cluster import Cluster
from jobs.kit.manifests import Deletion, Manifest, Recreation
from jobs.kit.model import Action, Finding, Fix, ObjectKey, Severity
from jobs.kit.objects import CONFIGMAPS, Content
from jobs.kit.transport import Answer, Request


class Refusing:
    """A transport to a server that refuses everything and quotes the name, as a quota does."""

    def stream(self, requests: Iterable[Request]) -> Iterator[Answer]:
        for request in requests:
            name = msgspec.json.decode(request.body or b"")["metadata"]["name"]
            yield Answer(request, 403, msgspec.json.encode({"message": f"{name} is forbidden: exceeded quota"}))


def test_a_refused_replacement_is_told_in_the_same_words_by_each_run() -> None:
    key = ObjectKey("ConfigMap", "settings", "team")
    body = Recreation(Deletion("uid", "1"), Manifest(CONFIGMAPS, key, {}, {}, Content()))
    transport: Any = Refusing()

    def told() -> list[str]:
        finding = Finding("outdated", Severity.WARNING, key, "", Fix(Action.RECREATE, body))
        kept.append(finding)
        results = apply(Cluster(transport, "kube-chores"), [finding], {"ConfigMap": CONFIGMAPS}, DryRun.NONE)
        return [result.message for result in results]

    kept: list[Finding] = []  # so that no two have the same id
    first = told()

    assert "exceeded quota" in first[0]
    assert told() == first
