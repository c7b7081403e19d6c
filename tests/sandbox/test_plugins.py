"""Credential plugins of a kubeconfig: without a credential, no request is sent."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobs.kit.api import kubeconfig as plugins
from jobs.kit.api.connect import connect
from jobs.kit.api.responses import Request
from jobs.kit.api.transport import Transport
from kubesandbox import Fault, Sandbox
from tests.apis import sandbox_api
from tests.sandbox.test_credentials import SECRET, kubeconfig, plugin, printing, run, sent
from tests.wire import Recorder, recorder
from tests.worlds import configmap, rule

EXPIRED = "2001-01-01T00:00:00Z"
V1 = "client.authentication.k8s.io/v1"


@pytest.fixture
def expiring(monkeypatch: pytest.MonkeyPatch) -> None:
    """A credential that expired is replaced before the next request."""
    monkeypatch.setattr(plugins, "_FRESH_SECONDS", 0.0)


Configured = Callable[..., Path]


@pytest.fixture
def configured(tmp_path: Path, server: Recorder) -> Configured:
    """Write a kubeconfig of `server` whose plugin is this shell script."""

    def configured(script: str, **settings: Any) -> Path:
        return kubeconfig(tmp_path, {"server": f"http://127.0.0.1:{server.port}"}, plugin(tmp_path, script, **settings))

    return configured


def test_a_plugin_that_fails_is_shown_and_nothing_is_sent(
    configured: Configured, server: Recorder, tmp_path: Path
) -> None:
    result = run(configured('printf "log in first:\\n  \\033[31mcloud login\\033[0m\\0" >&2; exit 7'))

    assert (result.exit_code, server.requests) == (2, [])
    assert result.stderr == (
        f"error: kubeconfig {tmp_path}/kubeconfig cannot be used: context 'here': user 'me': the credential plugin"
        f" '{tmp_path}/plugin' failed: exec: process returned 7. log in first: \\x1b[31mcloud login\\x1b[0m\\x00\n"
    )


def test_the_end_of_a_long_message_is_shown(configured: Configured) -> None:
    result = run(configured('head -c 100000 /dev/zero | tr "\\0" x >&2; echo " the reason" >&2; exit 1'))

    assert result.exit_code == 2
    assert result.stderr.endswith(" the reason\n")
    assert len(result.stderr) < 1000


@pytest.mark.parametrize("command", ["absent-plugin-of-the-test", "./absent", "/nonexistent/plugin"])
@pytest.mark.parametrize(
    ("hint", "remedy"), [("brew install \x1b[1mit", "; brew install \\x1b[1mit\n"), ("", "not found\n")]
)
def test_a_plugin_that_is_not_installed(
    configured: Configured, server: Recorder, command: str, hint: str, remedy: str
) -> None:
    result = run(configured("", command=command, installHint=hint))

    assert (result.exit_code, server.requests) == (2, [])
    assert f"the credential plugin {command!r} failed: " in result.stderr
    assert command.removeprefix(".") in result.stderr.partition(" failed: ")[2]
    assert result.stderr.endswith(remedy)


def test_a_plugin_with_a_path_relative_to_the_kubeconfig(configured: Configured, server: Recorder) -> None:
    path = configured(printing(SECRET), command="./plugin")

    assert sent(connect(str(path), environ={}).endpoint).status == 200
    assert [each.values("authorization") for each in server.requests] == [[f"Bearer {SECRET}"]]


@pytest.mark.parametrize("broken", ["not executable", "a folder", "no program"])
def test_a_plugin_that_cannot_be_run(configured: Configured, server: Recorder, tmp_path: Path, broken: str) -> None:
    path = configured("")
    if broken == "not executable":
        (tmp_path / "plugin").chmod(0o644)
    elif broken == "a folder":
        (tmp_path / "plugin").unlink()
        (tmp_path / "plugin").mkdir()
    else:
        (tmp_path / "plugin").write_bytes(b"\x7fELF")

    result = run(path)

    assert (result.exit_code, server.requests) == (2, [])
    assert "the credential plugin" in result.stderr


def answer(**fields: Any) -> str:
    return json.dumps({"apiVersion": V1, "kind": "ExecCredential", **fields})


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ("", "failed to decode process output"),
        (f"token: {SECRET}", "failed to decode process output"),
        (f'["{SECRET}"]', "malformed response. missing key 'apiVersion'"),
        (f'{{"status": {{"token": "{SECRET}"}}}}', "malformed response. missing key 'apiVersion'"),
        (answer(status={"token": 7}), "did not print an ExecCredential"),
        (answer(status={"token": SECRET, "expirationTimestamp": "soon"}), "did not print an ExecCredential"),
        (answer(status={"token": SECRET, "expirationTimestamp": "2001-01-01T00:00:00"}), "did not print an ExecCred"),
        (answer(status={"token": SECRET}, apiVersion=f"{V1}beta1"), f"api version {V1}beta1 does not match {V1}"),
        (answer(), "malformed response. missing key 'status'"),
        (answer(status=None), "without token and client certificate"),
        (answer(status={}), "without token and client certificate"),
        (answer(status={"token": ""}), "without token and client certificate"),
        (answer(status={"token": SECRET, "clientKeyData": "x"}), "only one of clientCertificateData and clientKeyDat"),
        (answer(status={"clientCertificateData": "x"}), "only one of clientCertificateData and clientKeyData"),
    ],
)
def test_a_plugin_whose_output_is_not_a_credential(
    configured: Configured, server: Recorder, output: str, problem: str
) -> None:
    result = run(configured(f"cat <<'END'\n{output}\nEND"))

    assert (result.exit_code, server.requests) == (2, [])
    assert problem in result.stderr


def test_a_plugin_that_prints_bytes(configured: Configured, server: Recorder) -> None:
    result = run(configured("head -c 1000 /dev/urandom; printf '\\377'"))

    assert (result.exit_code, server.requests) == (2, [])
    assert "the credential plugin" in result.stderr


def test_a_plugin_that_fails_in_the_middle_of_a_run_ends_it(sandbox: Sandbox, tmp_path: Path, expiring: None) -> None:
    token = sandbox.admin_token
    credential = printing(token, expirationTimestamp=EXPIRED)
    script = f"{credential}\necho x >> $0.runs\n[ $(wc -l < $0.runs) -lt 3 ] || {{ echo {token} is old >&2; exit 1; }}"
    path = kubeconfig(tmp_path, {"server": sandbox.url}, plugin(tmp_path, script))
    result = run(path)

    assert (result.exit_code, token in result.output) == (2, False)
    assert "process returned 1. [token] is old" in result.stderr
    assert {request.user for request in sandbox.requests} == {"kubernetes-admin"}


def test_no_write_is_sent_once_the_plugin_fails(sandbox: Sandbox, tmp_path: Path, expiring: None) -> None:
    api = sandbox_api(sandbox, tmp_path)
    home, team = api.namespace("home"), api.namespace("team")
    for number in range(40):
        api.create(configmap(home, f"c{number}"))
    api.create(rule("r", home, team))
    script = f"[ ! -e $0.fail ] || exit 1\n{printing(sandbox.admin_token, expirationTimestamp=EXPIRED)}"
    path = kubeconfig(tmp_path, {"server": sandbox.url}, plugin(tmp_path, script))
    sandbox.inject(Fault("POST", "*/configmaps", kind="call-after", call=lambda: (tmp_path / "plugin.fail").touch()))
    api.mark()

    result = run(path, "-n", "kube-chores")
    made = [each for each in api.requests() if each.path == f"/api/v1/namespaces/{team}/configmaps"]

    assert result.exit_code == 2
    assert "process returned 1" in result.stdout
    assert "created" in result.stdout, "what was written is reported"
    assert 0 < len([each for each in made if each.method == "POST"]) < 40
    assert {each.user for each in api.requests()} == {"kubernetes-admin"}


def test_a_token_is_not_shown_even_if_the_plugin_prints_it(configured: Configured) -> None:
    jwt = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl"

    result = run(configured(f"echo 'rejected: {jwt}' >&2; exit 1"))

    assert result.exit_code == 2
    assert result.stderr.endswith("rejected: [token]\n")


@pytest.mark.usefixtures("expiring")
@pytest.mark.parametrize(("end", "tokens"), [(EXPIRED, ["t1", "t2", "t3"]), ("2999-01-01T00:00:00Z", ["t1"] * 3)])
def test_a_plugin_runs_again_once_its_token_expired(
    configured: Configured, server: Recorder, end: str, tokens: list[str]
) -> None:
    count = "echo x >> $0.runs; n=$(wc -l < $0.runs)\n"
    path = configured(count + printing("t$n", expirationTimestamp=end).replace("'END'", "END"))

    transport = Transport(connect(str(path), environ={"PATH": "/usr/bin:/bin"}).endpoint, "tests")
    server.requests.clear()
    for _ in tokens:
        transport.send(Request("GET", "/version"))
    transport.close()

    numbers = [
        int(value.removeprefix("Bearer t")) for each in server.requests for value in each.values("authorization")
    ]
    assert len(numbers) == 3
    assert len(set(numbers)) == len(set(tokens))


def test_the_environment_of_a_plugin(tmp_path: Path, certificates: Path) -> None:
    script = 'echo "$KUBERNETES_EXEC_INFO" > $0.info; echo "$ARGUMENT $*" > $0.given; cat > $0.stdin\n' + printing(
        SECRET
    )
    settings = {"args": ["a b", "c"], "env": [{"name": "ARGUMENT", "value": "v"}], "provideClusterInfo": True}
    with recorder(certificates) as server:
        cluster = {
            "server": f"https://127.0.0.1:{server.port}",
            "certificate-authority": str(certificates / "ca.crt"),
            "tls-server-name": "localhost",
            "extensions": [
                {"name": "other", "extension": {"x": 1}},
                {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "here"}},
            ],
        }
        path = kubeconfig(tmp_path, cluster, plugin(tmp_path, script, **settings))
        assert sent(connect(str(path), environ={"PATH": "/usr/bin:/bin"}).endpoint).status == 200

    info = json.loads((tmp_path / "plugin.info").read_text())
    authority = info["spec"]["cluster"].pop("certificate-authority-data")
    shown = {"server": cluster["server"], "tls-server-name": "localhost", "config": {"audience": "here"}}
    assert info == {"apiVersion": V1, "kind": "ExecCredential", "spec": {"interactive": False, "cluster": shown}}
    assert authority
    assert (tmp_path / "plugin.given").read_text() == "v a b c\n"
    assert (tmp_path / "plugin.stdin").read_text() == ""


def test_a_plugin_does_not_run_for_a_cluster_that_cannot_be_used(tmp_path: Path) -> None:
    user = plugin(tmp_path, "touch $0.ran", provideClusterInfo=True)

    result = run(kubeconfig(tmp_path, {"server": "https://one.test", "certificate-authority": "absent"}, user))

    assert result.exit_code == 2
    assert "cluster 'one': certificate-authority cannot be read" in result.stderr
    assert not (tmp_path / "plugin.ran").exists()


def test_a_plugin_gets_no_cluster_by_default(configured: Configured, tmp_path: Path) -> None:
    path = configured('echo "$KUBERNETES_EXEC_INFO" > $0.info\n' + printing(SECRET))

    connect(str(path), environ={"PATH": "/usr/bin:/bin"})

    assert json.loads((tmp_path / "plugin.info").read_text())["spec"] == {"interactive": False}


def test_a_client_certificate_of_a_plugin(tmp_path: Path, certificates: Path) -> None:
    own, key = ((certificates / name).read_text() for name in ("ca.crt", "ca.key"))
    status = {"clientCertificateData": own, "clientKeyData": key}
    with recorder(certificates, client_certificates=True) as server:
        cluster = {"server": f"https://127.0.0.1:{server.port}", "certificate-authority": str(certificates / "ca.crt")}
        user = plugin(tmp_path, f"cat <<'END'\n{answer(status=status)}\nEND")
        with_one = sent(connect(str(kubeconfig(tmp_path, cluster, user)), environ={}).endpoint)
        without = sent(connect(str(kubeconfig(tmp_path, cluster, {})), environ={}).endpoint)

    assert (with_one.status, without.status) == (200, 0)


@pytest.mark.parametrize("user", [{"token": "own"}, {"username": "me", "password": "own"}])
def test_a_plugin_does_not_run_where_the_user_has_a_token_or_password(
    tmp_path: Path, server: Recorder, user: dict[str, Any]
) -> None:
    failing = plugin(tmp_path, "exit 1")
    path = kubeconfig(tmp_path, {"server": f"http://127.0.0.1:{server.port}"}, {**user, **failing})

    assert sent(connect(str(path), environ={}).endpoint).status == 200


@pytest.mark.parametrize("missing", ["command", "apiVersion"])
def test_settings_that_a_plugin_needs(configured: Configured, server: Recorder, missing: str) -> None:
    result = run(configured(printing(SECRET), **{missing: None}))

    assert (result.exit_code, server.requests) == (2, [])
    assert f"exec: malformed request. missing key '{missing}'" in result.stderr


def test_a_plugin_that_fails_on_a_terminal_shows_its_own_messages(configured: Configured) -> None:
    path = configured("echo log in first >&2; exit 1", interactiveMode="IfAvailable")
    command = [sys.executable, "-m", "jobs", "sync-copies", "--kubeconfig", str(path)]
    leader, follower = os.openpty()

    process = subprocess.Popen(command, stdin=follower, stderr=follower, stdout=subprocess.DEVNULL)
    os.close(follower)
    shown = b""
    with contextlib.suppress(OSError):  # a terminal without a process ends so
        while part := os.read(leader, 4096):
            shown += part
    os.close(leader)

    assert process.wait() == 2
    assert b"log in first" in shown
    assert b"failed: see its messages above" in shown


def test_an_empty_variable_of_a_plugin(configured: Configured, server: Recorder) -> None:
    path = configured(printing(SECRET), env=[{"name": "PROFILE", "value": ""}])

    assert sent(connect(str(path), environ={}).endpoint).status == 200


def test_a_plugin_does_not_read_the_rules_on_stdin(configured: Configured) -> None:
    path = configured("cat > $0.stdin\n" + printing(SECRET))
    command = [sys.executable, "-m", "jobs", "sync-copies", "-f", "-", "--kubeconfig", str(path)]

    result = subprocess.run(command, capture_output=True, input=b"kind: Unknown")

    assert (result.returncode, b"-: contains no CopyratorRule" in result.stderr) == (2, True), result.stderr
    assert not (path.parent / "plugin.stdin").read_text()
