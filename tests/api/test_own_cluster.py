"""`python -m benchmarks --context NAME` measures, leaves nothing, and changes no object of others."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kubesandbox import Sandbox
from tests import canary, embedded
from tests.api.conftest import Run, copied
from tests.apis import OURS, Api, Object, sandbox_api, wait_for
from tests.control_plane import programs, write_kubeconfig
from tests.manifests import ROOT
from tests.rights import account, bind, create_account, grant
from tests.worlds import at, secret

PREFIX = "chores-benchmark"
COMMAND = "python -m benchmarks --context"
# What docs/performance.md#on-your-own-cluster lists.
RIGHTS = {
    ("", "namespaces"): ["list", "create", "delete"],
    ("", "secrets"): ["list", "create", "update", "deletecollection"],
    ("", "events"): ["create"],
    ("kubechores.dev", "copyrators"): ["list", "create"],
    ("kubechores.dev", "copyrators/status"): ["patch"],
}
# As CI or a shell may start tests in the background, with signals that are ignored.
DEFAULT_SIGNALS = ("/usr/bin/env", "--default-signal")
KINDS = {"Namespace": "v1", "Secret": "v1", "ConfigMap": "v1", "CopyratorRule": "kubechores.dev/v1"}


def start(api: Api, *arguments: str, token: str = "", command: str = COMMAND) -> "subprocess.Popen[str]":
    """Start the command with a kubeconfig that has a context `tests`."""
    file = write_kubeconfig(api.folder / "benchmark.kubeconfig", api.url, token or api.admin_token, api.ca_file)
    words = [*DEFAULT_SIGNALS, f"KUBECONFIG={file}", sys.executable, *command.split()[1:], *arguments]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def user(api: Api, rights: dict[tuple[str, str], list[str]]) -> str:
    """Return the token of an account with these verbs by API group and resource, and with kube-chores-restore."""
    roles = [{"apiGroups": [group], "resources": [plural], "verbs": verbs} for (group, plural), verbs in rights.items()]
    namespace = api.namespace("users")
    token = create_account(api, namespace, "user")
    grant(api, account(namespace, "user"), *roles)
    bind(api, "kube-chores-restore", account(namespace, "user"))  # for the admission policies
    return token


def ended(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Return the exit code, stdout and stderr."""
    out, err = process.communicate(timeout=300)
    canary.observed("stdout of the benchmark", out)
    canary.observed("stderr of the benchmark", err)
    return process.returncode, out, err


def objects(api: Api) -> dict[str, Object]:
    """Return all objects that the benchmark could change, by their paths, with their versions."""
    found = [each for kind, version in KINDS.items() for each in api.items(version, kind)]
    return {api.path(each): each for each in found}


def check_as(before: dict[str, Object], api: Api) -> None:
    """Check that the objects of others are unchanged, and that all others go with their namespaces."""
    assert {path: each for path, each in objects(api).items() if path in before} == before
    wait_for(lambda: objects(api) == before, "the namespaces of the benchmark to be deleted", seconds=30)


def is_settled(api: Api) -> bool:
    """Whether no controller still writes to, or deletes, what earlier tests and this one made."""
    namespaces = [each["metadata"] for each in api.items("v1", "Namespace")]
    begun = {each["metadata"]["namespace"] for each in api.items("v1", "ConfigMap")}  # each gets one from a controller
    is_begun = api.kind == "sandbox" or all(each["name"] in begun for each in namespaces)
    return is_begun and not any("deletionTimestamp" in each for each in namespaces)


@pytest.fixture
def token(api: Api) -> str:
    """The token of a user with exactly the necessary rights."""
    return user(api, RIGHTS)


@pytest.fixture
def before(api: Api, sync: Run, token: str) -> dict[str, Object]:
    """Create objects of others that look like those of the benchmark; return all that exist."""
    home, other = api.namespace("home"), api.namespace(PREFIX, labels={"kubechores.dev/benchmark": "other"})
    source = copied(api, sync, secret(home, f"{PREFIX}-0"))
    api.create(secret(other, "benchmark", labels={"kubechores.dev/benchmark": "other"}))
    assert api.get(at(other, source))
    wait_for(lambda: is_settled(api), "controllers to end their work on namespaces")
    return objects(api)


def test_it_prints_a_table_and_leaves_exactly_what_was_there(api: Api, before: dict[str, Object], token: str) -> None:
    command = "python -m benchmarks --context"

    exit_code, out, err = ended(start(api, "tests", "--namespaces", "3", "--runs", "2", token=token, command=command))

    assert err == ""
    assert exit_code == 0
    figures = re.sub(r"\d+\.\d\d( \(\d+\.\d\d-\d+\.\d\d\))? \| \d+ \|", "SECONDS | MIB |", out)
    assert figures.splitlines() == [
        "| run | size | seconds | peak MiB | requests |",
        "|---|---|---|---|---|",
        "| first | 30 copies | SECONDS | MIB | 37 |",  # 38, with a status and an Event, and 36
        "| converged | 30 copies | SECONDS | MIB | 6 |",
        "| changed | 30 copies | SECONDS | MIB | 36 |",
    ]
    check_as(before, api)


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGINT, "Secret"), (signal.SIGTERM, "Secret"), (signal.SIGHUP, "Namespace")]
)
def test_a_signal_ends_it_and_nothing_is_left(
    api: Api, before: dict[str, Object], number: signal.Signals, kind: str
) -> None:
    process = start(api, "tests", "--namespaces", "3", "--runs", "100")
    # Copies that were there before do not count: the process may not handle signals yet.
    query = {"labelSelector": OURS} if kind == "Secret" else {}
    try:
        wait_for(lambda: {api.path(each) for each in api.items("v1", kind, **query)} - {*before}, f"a new {kind}")
    finally:
        process.send_signal(number)

    assert ended(process) == (128 + number, "", "")
    check_as(before, api)


def test_a_second_ctrl_c_ends_it_at_once_and_prints_the_command_that_deletes_the_rest(
    api: Api, before: dict[str, Object]
) -> None:
    process = start(api, "tests", "--namespaces", "3", "--runs", "100")
    try:
        wait_for(lambda: {api.path(each) for each in api.items("v1", "Secret")} - {*before}, "a new Secret")
    finally:
        # While it is stopped, so that it cannot end between the two. They come in the order of their numbers.
        for number in (signal.SIGSTOP, signal.SIGHUP, signal.SIGINT, signal.SIGCONT):
            process.send_signal(number)

    exit_code, out, err = ended(process)

    assert (exit_code, out) == (128 + signal.SIGHUP, "")
    command = re.fullmatch(r"error: namespaces are left; delete them: (.* \| grep (\S+) \| .*)\n", err)
    assert command, err
    if api.kind == "real":
        path = f"{programs()}:{os.environ['PATH']}"
        env = {"PATH": path, "KUBECONFIG": str(api.folder / "benchmark.kubeconfig"), "HOME": str(api.folder)}
        subprocess.run(["bash", "-c", command[1]], env=env, check=True, capture_output=True, timeout=100)
    else:  # kubectl is not there without a real cluster
        for each in api.items("v1", "Namespace"):
            if command[2] in each["metadata"]["name"]:
                api.delete(each)
    check_as(before, api)


def test_a_failed_run_shows_its_messages_and_nothing_is_left(api: Api, sync: Run) -> None:
    token = user(api, {**RIGHTS, ("", "secrets"): ["create"]})
    wait_for(lambda: is_settled(api), "controllers to end their work on namespaces")
    before = objects(api)

    exit_code, out, err = ended(start(api, "tests", "--namespaces", "1", token=token))

    assert (exit_code, out) == (1, "")
    last = err.splitlines()[-1]
    assert last.startswith("error: run 'first' of sync-copies ended with exit code 2: its copies cannot be read: ")
    assert 'cannot list resource "secrets"' in last
    check_as(before, api)


@pytest.mark.parametrize("missing", ["list", "delete"])
def test_a_user_who_cannot_clean_up_creates_nothing(api: Api, sync: Run, missing: str) -> None:
    verbs = [each for each in RIGHTS["", "namespaces"] if each != missing]
    token = user(api, {**RIGHTS, ("", "namespaces"): verbs})
    before = {*objects(api)}

    found = ended(start(api, "tests", "--namespaces", "1", token=token))

    message = f"nothing was created, as it could not be deleted: grant {missing} on namespaces"
    assert found == (1, "", f"error: {message}\n")
    assert not [each for each in {*objects(api)} - before if PREFIX in each]


def test_namespaces_that_lost_their_labels_are_deleted(api: Api, before: dict[str, Object]) -> None:
    process = start(api, "tests", "--namespaces", "3", "--runs", "100")
    try:
        wait_for(lambda: {api.path(each) for each in api.items("v1", "Secret")} - {*before}, "a new Secret")
        for each in api.items("v1", "Namespace"):
            if api.path(each) not in before:
                api.patch(each, {"metadata": {"labels": {"kubechores.dev/benchmark": None}}})
    finally:
        process.send_signal(signal.SIGTERM)

    assert ended(process) == (128 + signal.SIGTERM, "", "")
    check_as(before, api)


def test_a_table_that_cannot_be_written_is_an_error_and_nothing_is_left(api: Api, before: dict[str, Object]) -> None:
    process = start(api, "tests", "--namespaces", "1", "--runs", "1")
    assert process.stdout
    process.stdout.close()
    assert process.stderr

    assert process.stderr.read() == "error: the table cannot be written: Broken pipe\n"
    assert process.wait(60) == 1
    check_as(before, api)


def test_a_cluster_without_the_crd_is_an_error(tmp_path: Path) -> None:
    with Sandbox(of=embedded.empty()) as sandbox:
        api = sandbox_api(sandbox, tmp_path)

        exit_code, out, err = ended(start(api, "tests"))

        assert (exit_code, out, err.count("\n")) == (1, "", 1)
        assert err.startswith("error: the CRD copyrators.kubechores.dev is not installed")
        assert "'chores install-crds'" in err
        assert api.writes() == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["other"], "kubeconfig {file} cannot be used: it has no context 'other'; its contexts are: tests"),
        (["tests", "--namespaces", "0"], "argument --namespaces: '0' is not a number from 1 to 10,000"),
        (["tests", "--namespaces=-1"], "argument --namespaces: '-1' is not a number from 1 to 10,000"),
        (["tests", "--namespaces", "many"], "argument --namespaces: 'many' is not a number from 1 to 10,000"),
        (["tests", "--runs", "0"], "argument --runs: '0' is not a number from 1 to 10,000"),
        (["tests", "--only", "latency"], "argument --only: not allowed with --context"),
        ([""], "argument --context: is empty; name a context of the kubeconfig"),
    ],
)
def test_a_wrong_argument_is_an_error_of_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    with Sandbox(of=embedded.empty()) as sandbox:
        api = sandbox_api(sandbox, tmp_path)

        found = ended(start(api, *arguments))

        assert found == (2, "", f"error: {message.format(file=tmp_path / 'benchmark.kubeconfig')}\n")
        assert api.writes() == []
