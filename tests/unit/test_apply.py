"""Writes and what comes of them, against a server that answers as each test says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from jobs.kit.apply import DryRun, apply
from jobs.kit.manifests import Deletion, Manifest, Recreation
from jobs.kit.model import Action, Body, ExitCode, Finding, Fix, ObjectKey, Outcome, Result, Severity
from jobs.kit.objects import SECRETS, Content
from jobs.kit.transport import Answer, Request

BODY = Content("Opaque", {"password": "aHVudGVyMg=="})
DELETION = Deletion("uid", "7")


def refusal(status: int, message: str) -> tuple[int, bytes]:
    return status, json.dumps({"kind": "Status", "message": message}).encode()


@dataclass
class Server:
    """Answers each write as `says` does, by default with what was sent, and remembers them."""

    says: Callable[[Action, str], tuple[int, bytes] | None] = lambda _action, _path: None
    writes: list[tuple[Action, str, dict[str, Any], bool]] = field(default_factory=list)

    def write(self, writes: Iterable[tuple[Action, str, bytes, Any]], *, dry_run: bool) -> Iterator[Answer]:
        methods = {Action.CREATE: "POST", Action.DELETE: "DELETE"}
        for action, path, body, tag in writes:
            self.writes.append((action, path, json.loads(body), dry_run))
            status, answer = self.says(action, path) or (200, body)
            yield Answer(Request(methods.get(action, "PUT"), path, body, tag=tag), status, answer)

    def carry_out(self, *findings: Finding) -> list[Result]:
        return list(apply(self, findings, {"Secret": SECRETS}, DryRun.NONE))  # type: ignore[arg-type]


def finding(action: Action, number: int = 0) -> Finding:
    key = ObjectKey("Secret", "login", f"team-{number}")
    manifest = Manifest(SECRETS, key, {}, {}, BODY)
    bodies: dict[Action, Body] = {Action.DELETE: DELETION, Action.RECREATE: Recreation(DELETION, manifest)}
    return Finding("code", Severity.WARNING, key, "", Fix(action, bodies.get(action, manifest)))


def test_an_orphan_that_changed_meanwhile_is_left_to_the_next_run() -> None:
    server = Server(lambda _action, _path: refusal(409, "the resourceVersion in the precondition does not match"))

    (result,) = server.carry_out(finding(Action.DELETE))

    assert (result.outcome, result.exit_code) == (Outcome.SKIPPED, ExitCode.DONE)
    assert result.message == "changed meanwhile: the next run looks again"
