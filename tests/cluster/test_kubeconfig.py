"""Kubeconfigs, read by the jobs and by the real kubectl: the same server gets the same identity, or both refuse."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from jobs.kit.api.connect import connect
from jobs.kit.api.responses import Request
from jobs.kit.api.transport import Transport
from jobs.kit.values.errors import ConfigurationError, UnreachableError
from tests.control_plane import make_certificates, programs
from tests.wire import Recorder, recorder

pytestmark = pytest.mark.cluster

V1 = "client.authentication.k8s.io/v1"
REFUSED = "refused"
OWN = "A /version 127.0.0.1:PORT [('authorization', 'Bearer own')]"
PLUGIN = OWN.replace("own", "t")
ANONYMOUS = "A /version 127.0.0.1:PORT []"  # kubectl asks for a name and password


class Case(NamedTuple):
    """Files of a kubeconfig. `jobs`: what the jobs do, if kubectl does something else."""

    name: str
    files: tuple[Any, ...]
    flag: bool = False
    context: str = ""
    as_user: str = ""
    jobs: str = ""


def config(user: Any = None, cluster: dict[str, Any] | None = None, **replaced: Any) -> dict[str, Any]:
    server = {"server": "https://127.0.0.1:PORT-A", "certificate-authority": "ca.crt"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "one", "cluster": server if cluster is None else {**server, **cluster}}],
        "users": [{"name": "me", "user": {"token": "own"} if user is None else user}],
        "contexts": [{"name": "here", "context": {"cluster": "one", "user": "me"}}],
        **replaced,
    }


def other(token: str = "other", **replaced: Any) -> dict[str, Any]:
    """Another file with entries of the same names, for the other server."""
    return config({"token": token}, {"server": "https://127.0.0.1:PORT-B"}, **replaced)


def exec_of(status: Any, script: str = "", **settings: Any) -> dict[str, Any]:
    credential = json.dumps({"apiVersion": settings.get("apiVersion", V1), "kind": "ExecCredential", "status": status})
    script = script or f"printf '%s' '{credential}'"
    words = {"command": "/bin/sh", "args": ["-c", script], "apiVersion": V1, "interactiveMode": "Never"}
    return {"exec": {key: value for key, value in {**words, **settings}.items() if value is not None}}


def named(kind: str, *entries: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"name": name, kind: entry} for name, entry in entries]


def in_context(**context: Any) -> dict[str, Any]:
    return config(contexts=named("context", ("here", {"cluster": "one", "user": "me", **context})))


TWO = named("context", ("here", {"cluster": "one", "user": "me"}), ("there", {"cluster": "one", "user": "you"}))
USERS = named("user", ("me", {"token": "own"}), ("you", {"token": "yours"}))
THERE: dict[str, Any] = {"current-context": "there"}
NOWHERE: dict[str, Any] = {"current-context": ""}
PEM = {"client-certificate": "ca.crt", "client-key": "ca.key"}
DATA = {"client-certificate-data": "DATA-CRT", "client-key-data": "DATA-KEY"}
OF_C: dict[str, Any] = {"server": "https://127.0.0.1:PORT-C"}

CASES = [
    Case("token", (config(),)),
    Case("flag", (config(),), flag=True),
    Case("no user", (config(contexts=named("context", ("here", {"cluster": "one"}))),), jobs=ANONYMOUS),
    Case("absent user", (config(users=[]),)),
    Case("empty user", (config({}),), jobs=ANONYMOUS),
    Case("absent cluster", (config(clusters=[]),)),
    Case("absent context", (config(),), context="absent"),
    Case("no current context", (config(**NOWHERE),)),
    Case("option context", (config(contexts=TWO, users=USERS),), context="there"),
    Case("first context of two files", (config(contexts=TWO, users=USERS), other(**THERE))),
    Case("context in second file", (config(**NOWHERE), other())),
    Case("first file wins", (config(), other())),
    Case("first file wins, turned", (other(), config())),
    Case("cluster in second file", (config(clusters=[]), other())),
    Case("user in second file", (config(users=[]), other())),
    Case("absent file first", ("absent", config())),
    Case("absent file last", (config(), "absent")),
    Case("empty file first", ("", config())),
    Case("username", (config({"username": "me", "password": "p:q"}),)),
    Case("username without password", (config({"username": "me"}),)),
    Case(
        "password without username",
        (config({"password": "me"}),),
        jobs="A /version 127.0.0.1:PORT [('authorization', 'Basic Om1l')]",
    ),
    Case("token and username", (config({"token": "own", "username": "me", "password": "p"}),)),
    Case("tokenFile", (config({"tokenFile": "token"}),)),
    Case("tokenFile and token", (config({"tokenFile": "token", "token": "own"}),)),
    Case("tokenFile absent, with token", (config({"tokenFile": "absent", "token": "own"}),)),
    Case("tokenFile absent", (config({"tokenFile": "absent"}),)),
    Case("as", (config({"token": "own", "as": "jane"}),)),
    Case(
        "as everything",
        (
            config(
                {
                    "token": "own",
                    "as": "jane",
                    "as-uid": "7",
                    "as-groups": ["a", "b"],
                    "as-user-extra": {"Scopes": ["view", "edit"], "a/b": ["c"]},
                }
            ),
        ),
    ),
    Case("as-groups alone", (config({"token": "own", "as-groups": ["a"]}),)),
    Case("as-uid alone", (config({"token": "own", "as-uid": "a"}),)),
    Case("as by option", (config({"token": "own", "as": "jane", "as-groups": ["a"]}),), as_user="joe"),
    Case("certificate", (config(PEM, OF_C),)),
    Case("certificate data", (config(DATA, OF_C),)),
    Case(
        "certificate of both",
        (config({**PEM, **DATA, "client-certificate": "absent"}, OF_C),),
        jobs=ANONYMOUS.replace("A", "C", 1),
    ),
    Case("certificate without key", (config({"client-certificate": "ca.crt"}, OF_C),)),
    Case("certificate absent", (config({**PEM, "client-key": "absent"}, OF_C),)),
    Case("certificate and token", (config({**PEM, "token": "own"}, OF_C),)),
    Case("certificate and plugin", (config({**PEM, **exec_of({"token": "t"})}, OF_C),)),
    Case("plugin", (config(exec_of({"token": "from-plugin"})),)),
    Case("plugin and token", (config({"token": "own", **exec_of({"token": "from-plugin"})}),)),
    Case("plugin and username", (config({"username": "me", "password": "p", **exec_of({"token": "t"})}),)),
    Case("plugin fails", (config(exec_of({}, "exit 3")),)),
    Case("plugin prints nothing", (config(exec_of({}, "true")),)),
    Case("plugin without status", (config(exec_of(None)),)),
    Case("plugin without token", (config(exec_of({})),)),
    Case("plugin absent", (config(exec_of({}, command="absent-plugin")),)),
    Case("plugin without interactiveMode", (config(exec_of({"token": "t"}, interactiveMode=None)),), jobs=PLUGIN),
    Case("plugin always interactive", (config(exec_of({"token": "t"}, interactiveMode="Always")),), jobs=PLUGIN),
    Case("plugin of another mode", (config(exec_of({"token": "t"}, interactiveMode="Sometimes")),), jobs=PLUGIN),
    Case(
        "plugin of v1alpha1",
        (config(exec_of({"token": "t"}, apiVersion="client.authentication.k8s.io/v1alpha1")),),
        jobs=PLUGIN,
    ),
    Case("plugin of another version", (config(exec_of({"token": "t"}, apiVersion="example.com/v1")),), jobs=PLUGIN),
    Case("plugin without command", (config(exec_of({"token": "t"}, command=None)),)),
    Case(
        "plugin with env",
        (
            config(
                exec_of(
                    {},
                    'printf \'{"apiVersion":"%s","kind":"ExecCredential","status":{"token":"%s"}}\' ' + V1 + ' "$T"',
                    env=[{"name": "T", "value": "of-env"}],
                )
            ),
        ),
    ),
    Case("authority data", (config(None, {"certificate-authority-data": "DATA-CRT", "certificate-authority": ""}),)),
    Case("authority of both", (config(None, {"certificate-authority-data": "DATA-CRT"}),), jobs=OWN),
    Case("authority absent", (config(None, {"certificate-authority": "absent"}),)),
    Case("authority unknown", (config(None, {"certificate-authority": ""}),)),
    Case("insecure", (config(None, {"certificate-authority": "", "insecure-skip-tls-verify": True}),)),
    Case("insecure and authority", (config(None, {"insecure-skip-tls-verify": True}),)),
    Case("tls-server-name", (config(None, {"tls-server-name": "localhost"}),)),
    Case("wrong tls-server-name", (config(None, {"tls-server-name": "absent.test"}),)),
    Case("path of server", (config(None, {"server": "https://127.0.0.1:PORT-A/k8s/one/"}),)),
    Case("server without scheme", (config(None, {"server": "127.0.0.1:PORT-A"}),)),
    Case("proxy-url", (config(None, {"proxy-url": "http://127.0.0.1:PORT-P"}),)),
    Case("proxy-url of another scheme", (config(None, {"proxy-url": "ftp://127.0.0.1:PORT-P"}),)),
    Case(
        "http on loopback",
        (config(None, {"server": "http://127.0.0.1:PORT-P", "certificate-authority": ""}),),
        jobs="P GET  [('authorization', 'Bearer own')]",
    ),
    Case("unknown field", (config({"token": "own", "tokne": "x"}),)),
    Case("token is a number", (config({"token": 12345}),)),
    Case("other kind", (config(kind="Other"),), jobs=OWN),
    Case("other apiVersion", (config(apiVersion="v2"),), jobs=OWN),
    Case("two users of one name", (config(users=[*USERS, {"name": "me", "user": {"token": "last"}}]),)),
    Case("auth-provider gcp", (config({"auth-provider": {"name": "gcp"}}),)),
    Case("no YAML", ("{",)),
    Case("namespace", (in_context(namespace="team"),)),
    Case("no valid namespace", (in_context(namespace="Team/1"),), jobs=REFUSED),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kubeconfigs")
    make_certificates(folder)
    (folder / "token").write_text("of-file\n")
    return folder


@pytest.fixture(scope="module")
def servers(folder: Path) -> Iterator[dict[str, Recorder]]:
    """Two servers, one that wants client certificates, and a proxy."""
    with (
        recorder(folder) as first,
        recorder(folder) as second,
        recorder(folder, client_certificates=True) as strict,
        recorder() as proxy,
    ):
        yield {"A": first, "B": second, "C": strict, "P": proxy}


@pytest.mark.parametrize("case", [pytest.param(each, id=each.name) for each in CASES])
def test_the_jobs_and_kubectl_send_the_same(case: Case, folder: Path, servers: dict[str, Recorder]) -> None:
    kubectl = programs() / "kubectl"
    if not kubectl.exists():
        pytest.skip("no kubectl: make control-plane")
    paths = written(case, folder, servers)
    joined = os.pathsep.join(paths)
    none = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    env = {**{key: value for key, value in os.environ.items() if key not in none}, "HOME": str(folder)}
    if not case.flag:
        env["KUBECONFIG"] = joined
    options = [("--kubeconfig", joined if case.flag else ""), ("--context", case.context), ("--as", case.as_user)]
    words = [f"{name}={value}" for name, value in options if value]

    command = [str(kubectl), "get", "--raw", "/version", *words]
    done = subprocess.run(
        command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False
    )
    wanted = taken(servers) if done.returncode == 0 else REFUSED
    taken(servers)
    problem = ""
    try:
        found = connect(joined if case.flag else None, case.context or None, as_user=case.as_user or None, environ=env)
        transport = Transport(found.endpoint, "tests", retry_seconds=0)
        answer = transport.send(Request("GET", "/version"))
        transport.close()
        got, problem = taken(servers) if answer.status == 200 else REFUSED, answer.error
    except (ConfigurationError, UnreachableError) as error:
        got, problem = REFUSED, str(error)
        taken(servers)

    assert got == (case.jobs or wanted), (done.stderr, problem)
    assert not case.jobs or got != wanted, "kubectl does the same now"


def written(case: Case, folder: Path, servers: dict[str, Recorder]) -> list[str]:
    paths = []
    for number, content in enumerate(case.files):
        path = folder / f"config-{number}"
        paths.append(str(folder / "absent" if content == "absent" else path))
        text = content if isinstance(content, str) else yaml.safe_dump(content)
        for name, server in servers.items():
            text = text.replace(f"PORT-{name}", str(server.port))
        for name in ("crt", "key"):
            encoded = base64.b64encode((folder / f"ca.{name}").read_bytes()).decode()
            text = text.replace(f"DATA-{name.upper()}", encoded)
        path.write_text(text)
    return paths


def taken(servers: dict[str, Recorder]) -> str:
    """Return which server was sent which identity, and forget it."""
    lines = []
    for name, server in servers.items():
        for each in server.requests:
            headers = sorted(pair for pair in each.headers if pair[0] == "authorization" or "impersonate" in pair[0])
            host = each.values("host")
            port = host[0].replace(f"{server.port}", "PORT") if host and name != "P" else ""
            lines.append(f"{name} {each.method if name == 'P' else each.path} {port} {headers}")
        server.requests.clear()
    return "; ".join(lines)
