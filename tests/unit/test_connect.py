"""Find the API server and the credentials, in kubeconfigs and pods."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.kit.api.connect import connect
from jobs.kit.values.errors import ConfigurationError


def kubeconfig(tmp_path: Path, **cluster: Any) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "first",
        "clusters": [
            {"name": "one", "cluster": {"server": "https://one.test:6443/", **cluster}},
            {"name": "two", "cluster": {"server": "https://two.test"}},
        ],
        "users": [
            {"name": "token", "user": {"token": "t0ken"}},
            {"name": "basic", "user": {"username": "me", "password": "pass"}},
            {"name": "plugin", "user": {"exec": _plugin(tmp_path)}},
        ],
        "contexts": [
            {"name": "first", "context": {"cluster": "one", "user": "token", "namespace": "chores"}},
            {"name": "second", "context": {"cluster": "two", "user": "basic"}},
            {"name": "third", "context": {"cluster": "two", "user": "plugin"}},
        ],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def _plugin(tmp_path: Path) -> dict[str, Any]:
    script = tmp_path / "plugin"
    version = "client.authentication.k8s.io/v1"
    credential = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": "from-plugin"}}
    script.write_text(f"#!/bin/sh\necho '{json.dumps(credential)}'\n")
    script.chmod(0o755)
    return {"apiVersion": version, "command": str(script), "interactiveMode": "Never"}


def test_the_current_context_of_a_kubeconfig(tmp_path: Path) -> None:
    connection = connect(environ={"KUBECONFIG": str(kubeconfig(tmp_path))})

    assert (connection.context, connection.namespace, connection.in_pod) == ("first", "chores", False)
    assert connection.endpoint.server == "https://one.test:6443"
    assert connection.endpoint.authorization() == "Bearer t0ken"


@pytest.mark.parametrize(
    ("context", "authorization"), [("second", "Basic bWU6cGFzcw=="), ("third", "Bearer from-plugin")]
)
def test_a_named_context_with_its_own_credentials(tmp_path: Path, context: str, authorization: str) -> None:
    connection = connect(str(kubeconfig(tmp_path)), context, environ={})

    assert (connection.endpoint.server, connection.namespace) == ("https://two.test", "default")
    assert connection.endpoint.authorization() == authorization


def test_a_tls_server_name_is_verified_instead_of_the_host(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, **{"tls-server-name": "api.internal", "insecure-skip-tls-verify": True})
    endpoint = connect(str(path), environ={}).endpoint

    assert endpoint.server == "https://api.internal:6443"
    assert endpoint.connect_to == "api.internal:6443:one.test:6443"
    assert endpoint.verify is False


IN_A_POD = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443", "HOME": "/nonexistent"}


@pytest.fixture
def service_account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_text("certificate")
    (tmp_path / "namespace").write_text("kube-chores\n")
    return tmp_path


def test_a_pod_uses_its_service_account(service_account: Path) -> None:
    connection = connect(environ={**IN_A_POD, "POD_NAME": "audit-1"}, service_account=service_account)

    assert (connection.endpoint.server, connection.in_pod) == ("https://[fd00::1]:443", True)
    assert (connection.namespace, connection.pod_namespace, connection.pod_name) == (*2 * ["kube-chores"], "audit-1")
    assert connection.endpoint.ca_file == str(service_account / "ca.crt")
    assert connection.endpoint.authorization() == "Bearer first"


def test_a_replaced_token_is_used(service_account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = connect(environ=IN_A_POD, service_account=service_account).endpoint
    now = time.monotonic()
    observed = endpoint.authorization()
    (service_account / "token").write_text("second")

    monkeypatch.setattr(time, "monotonic", lambda: now + 60)

    assert (observed, endpoint.authorization()) == ("Bearer first", "Bearer second")


@pytest.mark.parametrize("name", ["token", "ca.crt", "namespace"])
def test_an_empty_file_of_the_service_account_is_an_error(service_account: Path, name: str) -> None:
    (service_account / name).write_text("\n")

    with pytest.raises(ConfigurationError, match=rf"the pod's service account cannot be used: .*/{name} is empty"):
        connect(environ=IN_A_POD, service_account=service_account)


def test_a_run_in_a_pod_imports_no_library_that_it_does_not_need(service_account: Path) -> None:
    code = f"""if True:
        import pathlib, sys
        import jobs.__main__, jobs.sync_copies
        from jobs.kit.api.connect import connect
        connect(environ={IN_A_POD}, service_account=pathlib.Path({str(service_account)!r})).endpoint.authorization()
        print(*sorted({{"certifi", "jsonschema", "kubernetes", "requests", "ssl", "yaml"}} & sys.modules.keys()))
    """

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"\n"


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"HOME": "/nonexistent"}, "no cluster: not in a pod, and no kubeconfig found"),
        ({"HOME": "/nonexistent", "KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"}, "service account"),
        ({"KUBECONFIG": "/nonexistent"}, "kubeconfig /nonexistent cannot be used: the file does not exist"),
    ],
)
def test_without_a_cluster_the_error_is_one_sentence(tmp_path: Path, environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        connect(environ=environ, service_account=tmp_path)
