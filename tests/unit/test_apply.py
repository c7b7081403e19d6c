"""Apply findings against a fake server, and check requests and results."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec import structs

from jobs.core.roll_workloads.baseline import BASELINE, ROLL_ID, BaselinePatch
from jobs.kit.api.cluster import Write
from jobs.kit.api.responses import Request, Response
from jobs.kit.data.contents import SECRET, Content
from jobs.kit.data.manifests import ContentManifest
from jobs.kit.run.apply import apply
from jobs.kit.values.model import (
    Action,
    Body,
    Change,
    Deletion,
    DryRun,
    ExitCode,
    Finding,
    ObjectKey,
    Outcome,
    Recreation,
    Result,
    Severity,
)
from jobs.kit.values.resources import DEPLOYMENTS, SECRETS

BODY = Content("Opaque", {"password": "aHVudGVyMg=="})
DELETION = Deletion("uid", "7")
WEB = ObjectKey("Deployment", "web", "shop")


def refusal(status: int, message: str) -> tuple[int, bytes]:
    return status, json.dumps({"apiVersion": "v1", "kind": "Status", "message": message}).encode()


@dataclass
class Server:
    """A fake server: answers each write with `respond`, by default with its body, and records the writes."""

    respond: Callable[[Action, str], tuple[int, bytes] | None] = lambda _action, _path: None
    writes: list[tuple[Action, str, dict[str, Any], bool]] = field(default_factory=list)

    def write(self, writes: Iterable[Write], *, dry_run: bool) -> Iterator[Response]:
        methods = {Action.CREATE: "POST", Action.DELETE: "DELETE"}
        for each in writes:
            path = each.resource.path(each.namespace, each.name)
            self.writes.append((each.action, path, json.loads(each.body), dry_run))
            status, answer = self.respond(each.action, path) or (200, each.body)
            yield Response(Request(methods.get(each.action, "PUT"), path, each.body, tag=each), status, answer)

    def apply_findings(self, *findings: Finding) -> list[Result]:
        resources = {"Secret": SECRETS, "Deployment": DEPLOYMENTS}
        return list(apply(self, findings, resources, DryRun.NONE))  # type: ignore[arg-type]


def finding(action: Action, number: int = 0) -> Finding:
    key = ObjectKey("Secret", "login", f"team-{number}")
    manifest = ContentManifest(SECRET, key, {}, {}, BODY)
    bodies: dict[Action, Body] = {Action.DELETE: DELETION, Action.RECREATE: Recreation(DELETION, manifest)}
    return Finding("code", Severity.WARNING, key, "", Change(action, bodies.get(action, manifest)))


def baseline(mark: str = "", action: Action | None = None) -> Finding:
    """A finding whose fix sets the baseline of a workload, and its roll ID if `mark` is set."""
    action = action or (Action.ROLL if mark else Action.ANNOTATE)
    return Finding("changed", Severity.WARNING, WEB, "", Change(action, BaselinePatch("uid", "7", "new", mark)))


def test_an_orphan_that_changed_meanwhile_is_left_to_the_next_run() -> None:
    server = Server(lambda _action, _path: refusal(409, "the resourceVersion in the precondition does not match"))

    (result,) = server.apply_findings(finding(Action.DELETE))

    assert (result.outcome, result.exit_code) == (Outcome.SKIPPED, ExitCode.DONE)
    assert result.message == "changed meanwhile: the next run reads it again"
    assert [body["preconditions"] for _, _, body, _ in server.writes] == [{"uid": "uid", "resourceVersion": "7"}]


def test_few_objects_are_missing_at_a_time_while_many_are_replaced() -> None:
    server = Server()

    results = server.apply_findings(*(finding(Action.RECREATE, number) for number in range(50)))

    missing, most = 0, 0
    for action, _, _, dry_run in server.writes:
        missing += 0 if dry_run else {Action.DELETE: 1, Action.CREATE: -1}[action]
        most = max(most, missing)
    assert {result.outcome for result in results} == {Outcome.DONE}
    assert (missing, most) == (0, 16)


def test_the_dry_run_before_a_replacement_has_a_name_that_nobody_can_take_and_no_message_has_it() -> None:
    def respond(action: Action, _path: str) -> tuple[int, bytes] | None:
        name = refused.writes[-1][2]["metadata"]["name"]
        return refusal(403, f'configmaps "{name}" is forbidden: exceeded quota') if action is Action.CREATE else None

    refused = Server(respond)

    results = [result for _ in range(2) for result in refused.apply_findings(finding(Action.RECREATE))]

    message = f'configmaps "{results[0].finding.object.name}" is forbidden: exceeded quota'
    assert [(each.outcome, each.message) for each in results] == [(Outcome.FAILED, message)] * 2
    names = {body["metadata"]["name"] for _, _, body, dry_run in refused.writes if dry_run}
    assert len(names) == 2
    assert all(re.fullmatch("kube-chores-trial-[0-9a-f]{16}", name) for name in names)


def test_a_deleted_object_is_created_again_also_while_a_webhook_fails_in_its_namespace() -> None:
    def respond(action: Action, _path: str) -> tuple[int, bytes] | None:
        is_trial = server.writes[-1][3]
        down = refusal(500, 'Internal error occurred: failed calling webhook "w": refused')
        return down if action is Action.CREATE and not is_trial else None

    server = Server(respond)
    first = finding(Action.RECREATE)
    second = structs.replace(first, object=first.object._replace(name="other"))

    results = server.apply_findings(first, second)

    assert [(each.outcome, each.cause) for each in results] == 2 * [(Outcome.FAILED, "webhook-failed")]
    sent = [action for action, _, _, is_trial in server.writes if not is_trial]
    assert sent == [Action.DELETE, Action.DELETE, Action.CREATE, Action.CREATE]


@pytest.mark.parametrize("action", [Action.CREATE, Action.REPLACE, Action.RECREATE])
def test_a_webhook_that_quotes_the_secret_is_not_quoted(action: Action) -> None:
    quoted = 'admission webhook "w" denied the request: "hunter2" (aHVudGVyMg==) is too short'
    server = Server(lambda action, _path: None if action is Action.DELETE else refusal(400, quoted))

    (result,) = server.apply_findings(finding(action))

    assert result.message == 'admission webhook "w" denied the request: "***" (***) is too short'


STORED: dict[str, Any] = {"metadata": {"annotations": {BASELINE: "new"}}, "spec": {"template": {}}}


@pytest.mark.parametrize(("mark", "outcome"), [("", Outcome.DONE), ("mark", Outcome.FAILED)])
def test_a_restart_that_admission_removed_has_failed(mark: str, outcome: Outcome) -> None:
    """The baseline is already recorded, so no later run would repeat the roll, and no report may show a restart."""
    server = Server(lambda _action, _path: (200, json.dumps(STORED).encode()))

    (result,) = server.apply_findings(baseline(mark))

    assert (result.outcome, ROLL_ID in result.message) == (outcome, bool(mark))


@pytest.mark.parametrize(("mark", "outcome"), [("", Outcome.DONE), ("mark", Outcome.FAILED)])
def test_a_baseline_that_admission_removed_is_reported(mark: str, outcome: Outcome) -> None:
    stored = {"metadata": {}, "spec": {"template": {"metadata": {"annotations": {ROLL_ID: "mark"}}}}}
    server = Server(lambda _action, _path: (200, json.dumps(stored).encode()))

    (result,) = server.apply_findings(baseline(mark))

    assert (result.outcome, BASELINE in result.message) == (outcome, True)


@pytest.mark.parametrize("action", [Action.CREATE, Action.REPLACE])
def test_other_changes_by_admission_are_reported_and_the_write_is_done(action: Action) -> None:
    stored = {"metadata": {"name": "login", "namespace": "team-0"}, "type": "Opaque", "data": {}}
    server = Server(lambda _action, _path: (200, json.dumps(stored).encode()))

    (result,) = server.apply_findings(finding(action))

    assert (result.outcome, result.exit_code) == (Outcome.DONE, ExitCode.DONE)
    assert "the server stored other values than the run sent" in result.message


@pytest.mark.parametrize("action", [Action.ANNOTATE, Action.ROLL])
def test_a_deleted_workload_is_neither_annotated_nor_restarted(action: Action) -> None:
    server = Server(lambda _action, _path: refusal(404, "not found"))

    (result,) = server.apply_findings(baseline(action=action))

    assert (result.outcome, result.exit_code) == (Outcome.SKIPPED, ExitCode.DONE)


def create(name: str, namespace: str, rule: str, origin: str) -> Finding:
    made = structs.replace(finding(Action.CREATE), object=ObjectKey("Secret", name, namespace), subjects=(rule,))
    assert made.change
    return structs.replace(made, change=structs.replace(made.change, origin=origin))


def test_updates_and_deletes_come_before_creates_which_take_turns_by_rule_and_source_namespace() -> None:
    many = [create(f"m{number:03}", "team", "many", "tenant") for number in range(200)]
    few = [create("few", "team", "few", "home"), create("other", "team", "many", "home")]
    deletes = [structs.replace(finding(Action.DELETE, number), subjects=("r",)) for number in range(2)]
    server = Server()

    server.apply_findings(*many, *few, *deletes, finding(Action.REPLACE, 7), finding(Action.RECREATE, 8))

    sent = [(action.name, path.rpartition("/")[2]) for action, path, _, dry_run in server.writes if not dry_run]
    assert [action for action, _ in sent[:5]] == ["REPLACE", "DELETE", "DELETE", "DELETE", "CREATE"]
    names = [name for _, name in sent[5:]]
    assert names.index("few") == 64
    assert names.index("other") == 65
    assert len(names) == 202


@pytest.mark.parametrize("one", [Action.REPLACE, Action.DELETE, Action.RECREATE])
@pytest.mark.parametrize("many", [Action.REPLACE, Action.RECREATE])
def test_updates_and_deletes_take_turns_too(many: Action, one: Action) -> None:
    def of(origin: str, made: Finding) -> Finding:
        assert made.change
        return structs.replace(made, change=structs.replace(made.change, origin=origin), subjects=("r",))

    server = Server()

    server.apply_findings(
        *(of("tenant", finding(many, number)) for number in range(200)), of("home", finding(one, 200))
    )

    spaces = list(dict.fromkeys(path.split("/namespaces/")[1] for _, path, _, dry_run in server.writes if not dry_run))
    assert spaces.index("team-200/secrets/login") <= 128, "not after all others"
    assert len(spaces) == 201


def test_writes_without_a_source_take_turns_by_namespace() -> None:
    def at(namespace: str, number: int) -> Finding:
        key = ObjectKey("Secret", f"s{number}", namespace)
        return structs.replace(finding(Action.ANNOTATE), object=key, subjects=(f"{namespace}/s{number}",))

    server = Server()

    server.apply_findings(*(at("a-tenant", number) for number in range(200)), at("shop", 0))

    assert [path for _, path, _, _ in server.writes].index("/api/v1/namespaces/shop/secrets/s0") == 64


def test_a_delete_waits_for_the_creates_of_its_rule_in_its_namespace() -> None:
    old = structs.replace(finding(Action.DELETE), object=ObjectKey("Secret", "old", "team"), subjects=("r",))
    elsewhere = structs.replace(old, object=ObjectKey("Secret", "old", "elsewhere"))
    server = Server()

    server.apply_findings(old, elsewhere, create("new", "team", "r", "home"))

    assert [path.partition("/namespaces/")[2] for _, path, _, _ in server.writes] == [
        "elsewhere/secrets/old",
        "team/secrets/new",
        "team/secrets/old",
    ]
