"""The output of a run: untrusted text is escaped on a terminal, in logs, statuses and Events."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from jobs.__main__ import chores
from jobs.kit.api import transport
from jobs.kit.api.connect import Connection
from jobs.kit.api.endpoint import Endpoint
from jobs.kit.run import session
from kubesandbox import Fault, Sandbox
from tests.api.conftest import Run, runs
from tests.apis import Api, ready_of, sandbox_api
from tests.hostile_text import HOSTILE, left_in
from tests.mirrors import Mirrors
from tests.sandbox.conftest import Limit
from tests.terminal import on_terminal
from tests.worlds import at, configmap, namespace_object, rule

COPIES = "/api/v1/namespaces/team/configmaps"


@pytest.fixture
def api(sandbox: Sandbox, tmp_path: Path) -> Api:
    """An embedded cluster with one source and one place for its copy."""
    api = sandbox_api(sandbox, tmp_path)
    for name in ("home", "team"):
        api.create(namespace_object(name))
    api.create(configmap("home"))
    api.create(rule("settings", "home", "team"))
    return api


@pytest.fixture
def account(api: Api) -> dict[str, str]:
    """The environment of a run with the account of sync-copies."""
    return {"KUBECONFIG": str(api.service_account_kubeconfig("kube-chores", "sync-copies"))}


@pytest.fixture
def sync(account: Mapping[str, str]) -> Run:
    return runs("sync-copies", Path(account["KUBECONFIG"]))


def store(sandbox: Sandbox, obj: dict[str, Any]) -> None:
    """Store an object that the server would refuse."""
    resource = sandbox.cluster.find("", "v1", "configmaps")
    assert resource
    with sandbox.cluster.store.lock:
        sandbox.cluster.store.put(resource, obj)


@pytest.fixture
def hostile(sandbox: Sandbox, api: Api, sync: Run) -> None:
    """A copy with another value, manager and source, and one with a name that every server refuses."""
    sync()
    copy = api.read(at("team", configmap("home")))
    metadata = copy["metadata"]
    fields: dict[str, Any] = {"f:data": {".": {}, "f:a": {}, f"f:{HOSTILE}": {}}}
    entry = {"manager": HOSTILE, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    entries = [*metadata["managedFields"], {**entry, "fieldsV1": fields}]
    data = {"a": f"{HOSTILE}1", "b": f"2\n{HOSTILE}\n", HOSTILE: HOSTILE}
    store(sandbox, {**copy, "metadata": {**metadata, "managedFields": entries}, "data": data})
    orphan = {**metadata, "name": HOSTILE, "uid": "another", "labels": {**metadata["labels"]}}
    annotations = {**metadata["annotations"], "kubechores.dev/rule": HOSTILE, "kubechores.dev/source": HOSTILE}
    store(sandbox, {**copy, "metadata": {**orphan, "annotations": annotations}})


def test_all_text_of_objects_is_escaped_on_a_terminal(account: dict[str, str], hostile: None) -> None:
    code, shown = on_terminal("sync-copies", "-v", "--dry-run", "--diff", env=account)

    assert code == 0
    assert left_in(shown) == []
    assert r"configmap/x\nsecret/forged  team-a  deleted\r\t\x00\x1b]52;c;Zm9v\x07\x7f\x85" in shown
    assert r"\u202e" in shown


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_documents_contain_the_text_of_objects_escaped_by_their_format(
    sync: Run, hostile: None, output: str, read: Any
) -> None:
    text = sync("-v", "--dry-run", "--diff", output=output).stdout

    assert left_in(text) == []
    report = read(text)
    assert HOSTILE in [result["object"]["name"] for result in report["results"]]
    assert f"{HOSTILE}1" in [change["actual"] for each in report["results"] for change in each.get("changes", [])]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_message_of_the_server_that_ends_the_run_is_one_line_of_the_log(
    sandbox: Sandbox, sync: Run, log_format: str
) -> None:
    sandbox.inject(Fault("GET", "*/copyrators", status=403, message=f"denied: {HOSTILE}", times=None))

    ran = sync("--log-format", log_format)

    assert (ran.exit_code, ran.stdout) == (1, "")
    last = ran.stderr.splitlines()[-1]
    message = json.loads(last)["message"] if log_format == "json" else last
    assert left_in(ran.stderr) == left_in(message) == []
    assert r"denied: x\nsecret/forged" in message


def test_a_long_message_of_the_server_is_cut(sandbox: Sandbox, sync: Run) -> None:
    sandbox.inject(Fault("GET", "*/copyrators", status=403, message="x" * 1_000_000, times=None))

    error = sync().stderr.splitlines()[-1]

    assert len(error) < 5000
    assert error.endswith("… (1000000 characters)")


def test_a_long_value_is_cut(sandbox: Sandbox, api: Api, sync: Run) -> None:
    sync()
    copy = api.read(at("team", configmap("home")))
    long = {"kubechores.dev/source": "x" * 200_000}
    metadata = {**copy["metadata"], "annotations": {**copy["metadata"]["annotations"], **long}}
    store(sandbox, {**copy, "metadata": metadata, "data": {"a": "y\n" * 100_000, "b": "z" * 200_000}})

    ran = sync("--dry-run", "--diff", output="text")

    assert " configured (dry run)" in ran.stdout
    assert len(ran.stdout) < 20_000
    assert "characters)" in ran.stdout


def test_a_hostile_message_is_escaped_in_status_and_event_which_are_written_once(
    sandbox: Sandbox, api: Api, sync: Run
) -> None:
    sandbox.inject(Fault("POST", COPIES, status=403, message=f"denied: {HOSTILE}", times=None))
    sync()
    found = api.read(rule("settings", "home", "team"))
    ready = ready_of(found["status"]["conditions"])
    (event,) = api.events()
    api.mark()

    sync()

    assert left_in(ready["message"]) == left_in(event["message"]) == []
    assert r"denied: x\nsecret/forged" in ready["message"]
    assert event["message"] in ready["message"]
    assert [write.path for write in api.writes()] == [COPIES]


@pytest.mark.parametrize(
    "words",
    [
        *("sync{}", "--{}", "sync-copies {}", "sync-copies --{}", "sync-copies -o {}", "sync-copies -n {}"),
        *("fetch-rates --currency USD --configmap {}", "mirror-node --name {}"),
    ],
    ids=["command", "option", "argument", "job's option", "choice", "namespace", "name", "mirror"],
)
def test_a_usage_error_quotes_an_argument_escaped(words: str) -> None:
    done = CliRunner().invoke(chores, [each.format(HOSTILE.replace("\x00", "")) for each in words.split()])

    assert done.exit_code == 2
    assert left_in(done.output) == []
    assert "forged" in done.stderr


def refused(sync: Run, file: Path, content: object) -> str:
    """Run with a file that is refused. Return stderr, which is escaped."""
    file.write_text(json.dumps(content))
    ran = sync("-f", str(file))
    assert ran.exit_code == 2
    assert left_in(ran.stderr) == []
    return ran.stderr


def test_problems_of_a_file_are_one_line_each(sync: Run, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    hostile = rule("settings", "home", "team", ruleType=HOSTILE, unknown=HOSTILE)

    first, *problems = refused(sync, file, hostile).splitlines()

    assert first == f"error: {len(problems)} problems:"
    assert all(line.startswith(f"  {file}: ") for line in problems)


@pytest.mark.parametrize(
    ("env", "colours"), [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colours_are_for_terminals_that_allow_them(account: dict[str, str], env: dict[str, str], colours: bool) -> None:
    code, shown = on_terminal("sync-copies", "--dry-run", env=account | env)

    assert code == 0
    assert ("\x1b[32mcreated (dry run)\x1b[0m" in shown) is colours
    assert ("\x1b" in shown) is colours
    if colours:
        on_terminal("sync-copies", env=account | env)
        _, again = on_terminal("sync-copies", "-v", env=account | env)
        assert "unchanged" in again
        assert again.count("\x1b[0m") == len(re.findall(r"\x1b\[[1-9]", again)), "each end of a color has a beginning"


@pytest.mark.parametrize(("env", "shows"), [({}, True), ({"NO_COLOR": "1"}, True), ({"TERM": "dumb"}, False)])
def test_progress_is_for_terminals_that_can_move_the_cursor(
    api: Api, account: dict[str, str], env: dict[str, str], shows: bool
) -> None:
    for number in range(101):
        api.namespace(f"team-{number}")
    api.create(rule("more", "home", f"team-*-{api.token}"))
    code, shown = on_terminal("sync-copies", env=account | env)

    assert code == 0
    assert ("sync-copies: writing  [#########-----------]  50/102" in shown) is ("\r" in shown) is shows
    assert left_in(re.sub(r"\r|\x1b\[\?25[lh]", "", shown)) == [], "the bar hides the cursor"
    assert shown.splitlines()[-1].startswith("sync-copies: 102 created")


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The kubeconfig of a server that is stopped."""
    with Sandbox() as sandbox:
        return sandbox.kubeconfig(tmp_path / "stopped.kubeconfig", context="staging")


def test_an_unreachable_server_is_named_with_the_context_and_what_to_check(stopped: Path) -> None:
    code, shown = on_terminal("sync-copies", env={"KUBECONFIG": str(stopped)})

    assert code == 1
    server = yaml.safe_load(stopped.read_text())["clusters"][0]["cluster"]["server"]
    assert shown.splitlines()[-1].startswith(f"error: no connection to the cluster of context staging: {server}: ")
    assert shown.endswith(
        "; check that the cluster is running, that the context is correct, and check the VPN or proxy\n"
    )
    assert "unreadable" not in shown


def test_a_run_without_a_terminal_logs_that_it_retries(
    stopped: Path, limit: Limit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "LONGEST_PAUSE_SECONDS", 0.01)
    limit(retry_seconds=0.5)

    ran = runs("sync-copies", stopped)()

    assert ran.exit_code == 1
    warnings = [line for line in ran.stderr.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1
    assert warnings[0].endswith(": the run tries again for 30 seconds")


@pytest.mark.parametrize(
    ("arguments", "env"), [(["--max-deletes", "0"], {}), (["--max-deletes=0"], {}), ([], {"CHORES_MAX_DELETES": "0"})]
)
def test_the_command_that_lifts_a_brake_is_printed_last_with_each_option_once(
    api: Api, account: dict[str, str], sync: Run, arguments: list[str], env: dict[str, str]
) -> None:
    sync()
    api.delete(rule("settings", "home", "team"))
    code, shown = on_terminal("sync-copies", "--verify=content", *arguments, env=account | env, columns=200)

    assert code == 4
    *_, summary, message, command = shown.splitlines()
    assert summary.startswith("sync-copies: 1 orphan")
    assert message.startswith("error: the deletion brake blocks")
    assert command == "  chores sync-copies --verify content --context tests --max-deletes 1"


@pytest.mark.parametrize(("verify", "cronjob"), [("metadata", "sync-copies"), ("content", "sync-copies-verify")])
def test_in_a_pod_the_cronjob_of_the_run_lifts_a_brake(
    sandbox: Sandbox, api: Api, sync: Run, monkeypatch: pytest.MonkeyPatch, verify: str, cronjob: str
) -> None:
    sync()
    api.delete(rule("settings", "home", "team"))
    endpoint = Endpoint(sandbox.url, lambda: f"Bearer {sandbox.admin_token}")
    monkeypatch.setattr(session, "connect", lambda *_, **__: Connection(endpoint, "kube-chores", in_pod=True))

    done = CliRunner().invoke(chores, ["sync-copies", "--verify", verify, "--max-deletes", "0"])

    assert done.exit_code == 4
    command = done.stderr.splitlines()[-1]
    assert f"kubectl create job {cronjob}-lift-" in command
    assert f" --from=cronjob/{cronjob} " in command


def test_many_rows_of_one_kind_and_outcome_are_counted_and_verbose_shows_them_all(api: Api, sync: Run) -> None:
    for number in range(60):
        api.namespace(f"team-{number:02}")
    api.create(configmap(f"team-07-{api.token}", labels={}))
    api.create(rule("more", "home", f"team-*-{api.token}"))

    text = sync("--dry-run", output="text").stdout.splitlines()

    assert len([line for line in text if " created (dry run) " in line]) == 50
    assert len([line for line in text if "  conflict  " in line]) == 1
    assert text[-2:] == [
        "... and 10 more: configmap created (dry run); -v or -o json shows all of them",
        next(line for line in text if line.startswith("sync-copies (dry run): 60 created, 1 conflict (2 rules,")),
    ]
    assert len(sync("--dry-run", "-v", output="text").stdout.splitlines()) == 62
    assert len(sync("--dry-run").results) == 61


@pytest.mark.parametrize("columns", [80, 200])
def test_a_long_name_does_not_widen_the_rows_of_others(api: Api, account: dict[str, str], columns: int) -> None:
    long = ".".join(["a" * 62] * 4)
    api.namespace("n" * 40)
    api.create(rule("more", "home", f"*{api.token}"))
    env = account | {"NO_COLOR": "1"}
    _, before = on_terminal("sync-copies", "--dry-run", env=env, columns=columns)
    api.create(configmap("home", long))

    _, shown = on_terminal("sync-copies", "--dry-run", env=env, columns=columns)

    rows = [line for line in before.splitlines() if line.startswith("configmap/")]
    assert len(rows) == 2
    assert set(rows) < set(shown.splitlines())
    overflowing = [line for line in shown.splitlines() if line.startswith(f"configmap/{long}  ")]
    assert [line.split()[1:3] for line in overflowing] == [["n" * 40 + f"-{api.token}", "created"], ["team", "created"]]


def test_rows_of_a_dry_run_repair_contain_that_it_is_one(api: Api) -> None:
    mirrors = Mirrors(api)
    mirrors.node()
    mirrors.create()
    repair = runs("mirror-audit", api.service_account_kubeconfig("kube-chores", "mirror-repair"))

    planned = repair("--repair", "--dry-run", output="text").stdout.splitlines()
    checked = repair("--repair", "--dry-run=server", output="text").stdout

    written = [line for line in planned if (line.startswith("  ") and "-created" in line) or " created" in line]
    assert written
    assert all(" created (dry run)  " in line or "mirror-audit (dry run): " in line for line in written)
    assert any(line.startswith("mirror-audit (dry run): ") for line in planned)
    assert " created (server dry run)  " in checked
    assert re.search(r"[:,] \d repaired \(server dry run\)$", checked, re.M)
    assert re.search(r"[:,] \d repaired$", repair("--repair", output="text").stdout, re.M)


def test_a_404_of_another_object_does_not_mean_that_the_namespace_is_missing(sandbox: Sandbox, api: Api) -> None:
    sandbox.inject(Fault("GET", "/api/v1/namespaces/team", status=404, message='pages "team" not found'))

    ran = runs("sync-copies", api.kubeconfig)("-n", "team")

    assert (ran.exit_code, ran.summary) == (0, {})


def test_a_run_in_a_pod_reads_a_given_namespace_unless_it_is_its_own(
    sandbox: Sandbox, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = Endpoint(sandbox.url, lambda: f"Bearer {sandbox.admin_token}")
    monkeypatch.setattr(session, "connect", lambda *_, **__: Connection(endpoint, "team", in_pod=True))

    own = CliRunner().invoke(chores, ["sync-copies"], env={"NAMESPACE": "team"})
    other = CliRunner().invoke(chores, ["sync-copies"], env={"NAMESPACE": "platfrom"})

    assert (own.exit_code, other.exit_code) == (0, 2)
    read = [each.path for each in api.requests() if each.path.startswith("/api/v1/namespaces/")]
    assert [path for path in read if path.count("/") == 4] == ["/api/v1/namespaces/platfrom"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("sync-copy", "No such command 'sync-copy'. Did you mean 'sync-copies'?"),
        ("mirrors-audit", "No such command 'mirrors-audit'. Did you mean 'mirror-audit'?"),
        ("xyz", "No such command 'xyz'."),
    ],
)
def test_an_unknown_command_suggests_the_nearest_one(name: str, hint: str) -> None:
    done = CliRunner().invoke(chores, [name])

    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1] == f"Error: {hint}"
