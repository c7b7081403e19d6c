"""The credentials of a kubeconfig that are sent, and to which server."""

import base64
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from msgspec.structs import replace

from jobs.__main__ import chores
from jobs.kit.api.connect import connect
from jobs.kit.api.endpoint import Endpoint
from jobs.kit.api.responses import Request, Response
from jobs.kit.api.transport import Transport
from jobs.kit.values.errors import ConfigurationError, UnreachableError
from kubesandbox import Sandbox
from tests.control_plane import expire, make_certificates
from tests.wire import Recorder, Sent, recorder, socks_proxy

GET = Request("GET", "/version")
SECRET = "t0ken-of-the-test"


def kubeconfig(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    """Write a kubeconfig with one context."""
    path = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "one", "cluster": cluster}],
        "users": [{"name": "me", "user": user}],
        "contexts": [{"name": "here", "context": {"cluster": "one", "user": "me"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path


def plugin(folder: Path, script: str, **settings: Any) -> dict[str, Any]:
    """A user with a credential plugin that is this shell script."""
    path = folder / "plugin"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": str(path), "interactiveMode": "Never", **settings}}


def printing(token: str, **status: str) -> str:
    """The script of a plugin that prints a token."""
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    return f"cat <<'END'\n{json.dumps({**credential, 'status': {'token': token, **status}})}\nEND"


def user_with(credential: str, folder: Path, secret: str = SECRET) -> dict[str, Any]:
    """A user with a credential of this type."""
    (folder / "token").write_text(secret)
    users = {
        "token": {"token": secret},
        "tokenFile": {"tokenFile": "token"},
        "password": {"username": "me", "password": secret},
        "plugin": plugin(folder, printing(secret)),
    }
    return users[credential]


def run(path: Path, *arguments: str, **env: str) -> Result:
    """Run sync-copies with a kubeconfig, and no proxy of the environment except those in `env`."""
    none = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"))
    result = CliRunner().invoke(chores, ["sync-copies", *arguments], env={**none, **env, "KUBECONFIG": str(path)})
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert SECRET not in result.output
    return result


def sent(endpoint: Endpoint) -> Response:
    """Send one request; status 0: the server was never reached."""
    transport = Transport(endpoint, "tests", retry_seconds=0)
    try:
        return transport.send(GET)
    except UnreachableError as error:
        return Response(GET, 0, error=str(error))
    finally:
        transport.close()


@pytest.mark.parametrize("credential", ["token", "tokenFile", "password", "plugin"])
@pytest.mark.parametrize("host", ["api.test", "127.0.0.1"])
def test_no_credential_goes_over_http_to_another_machine(
    tmp_path: Path, server: Recorder, credential: str, host: str
) -> None:
    # A proxy counts as another machine, also on loopback.
    cluster = {"server": f"http://{host}:8080", "proxy-url": f"http://127.0.0.1:{server.port}"}

    result = run(kubeconfig(tmp_path, cluster, user_with(credential, tmp_path)))

    assert (result.exit_code, server.requests) == (2, [])
    assert f"context 'here': cluster 'one': server http://{host}:8080: a token or password is not sent" in result.stderr
    assert "use https" in result.stderr


@pytest.mark.parametrize("host", ["10.0.0.1", "api.test", "localhost.test", "127.0.0.1.test", "[2001:db8::1]"])
def test_a_token_is_refused_over_http(tmp_path: Path, host: str) -> None:
    path = kubeconfig(tmp_path, {"server": f"http://{host}"}, {"token": SECRET})

    with pytest.raises(ConfigurationError, match="not sent over http; use https"):
        connect(str(path), environ={})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "[::1]"])
def test_a_token_is_sent_over_http_on_loopback(tmp_path: Path, host: str) -> None:
    path = kubeconfig(tmp_path, {"server": f"http://{host}"}, {"token": SECRET})

    assert connect(str(path), environ={}).endpoint.authorization() == f"Bearer {SECRET}"


def test_a_server_without_credentials_may_be_reached_over_http(tmp_path: Path, server: Recorder) -> None:
    proxy = f"http://127.0.0.1:{server.port}"
    path = kubeconfig(tmp_path, {"server": "http://api.test", "proxy-url": proxy}, {})

    assert sent(connect(str(path), environ={}).endpoint).status == 200
    assert [each.path for each in server.requests] == ["http://api.test/version"]


@pytest.mark.parametrize(
    "url",
    [
        *("file:///etc/hostname", "ftp://127.0.0.1", "127.0.0.1:6443", "api.test", "https://", "https:///x", ""),
        *("https://a b", "https://h:port", "https://h\n.test", f"https://me:{SECRET}@api.test"),
    ],
)
def test_a_server_that_is_not_an_http_url_is_refused(tmp_path: Path, url: str) -> None:
    result = run(kubeconfig(tmp_path, {"server": url, "disable-compression": True}, {"token": SECRET}))

    assert result.exit_code == 2
    assert "context 'here': cluster 'one': server" in result.stderr


def test_the_transport_allows_only_http_and_https(tmp_path: Path) -> None:
    (tmp_path / "version").write_text("content")

    answer = sent(Endpoint(f"file://{tmp_path}", lambda: ""))

    assert (answer.status, answer.body) == (0, b"")
    assert 'Protocol "file"' in answer.error


def test_a_redirect_is_not_followed(server: Recorder) -> None:
    with recorder(location=f"http://127.0.0.1:{server.port}/elsewhere") as first:
        answer = sent(Endpoint(f"http://127.0.0.1:{first.port}", lambda: f"Bearer {SECRET}"))

    assert (answer.status, len(first.requests), server.requests) == (302, 1, [])


def through(proxy: str, folder: Path, certificates: Path, server: Recorder) -> Response:
    authority = str(certificates / "ca.crt")
    cluster = {"server": f"https://localhost:{server.port}", "certificate-authority": authority, "proxy-url": proxy}
    return sent(connect(str(kubeconfig(folder, cluster, {"token": SECRET})), environ={}).endpoint)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_tunnels_https_and_sees_no_credentials(tmp_path: Path, certificates: Path, scheme: str) -> None:
    own = certificates if scheme == "https" else None
    with recorder(certificates) as server, recorder(own) as proxy:
        answer = through(f"{scheme}://u:p@localhost:{proxy.port}", tmp_path, certificates, server)

    assert answer.status == 200, answer.error
    (tunnel,) = proxy.requests
    assert (tunnel.method, tunnel.path) == ("CONNECT", f"localhost:{server.port}")
    assert tunnel.values("authorization") == []
    assert tunnel.values("proxy-authorization") == ["Basic dTpw"]
    assert [each.values("authorization") for each in server.requests] == [[f"Bearer {SECRET}"]]
    assert [each.values("proxy-authorization") for each in server.requests] == [[]]


def test_a_socks5_proxy_resolves_the_name(tmp_path: Path, certificates: Path) -> None:
    with recorder(certificates) as server, socks_proxy() as proxy:
        answer = through(f"socks5://127.0.0.1:{proxy.port}", tmp_path, certificates, server)

    assert answer.status == 200, answer.error
    assert proxy.requests == [Sent("SOCKS5", f"localhost:{server.port}")]
    assert [each.values("authorization") for each in server.requests] == [[f"Bearer {SECRET}"]]


@pytest.mark.parametrize(
    "url",
    ["ftp://proxy.test", "socks4://proxy.test", "file:///etc", "proxy.test:3128", f"ftp://me:{SECRET}@proxy.test"],
)
def test_a_proxy_of_another_scheme_is_refused(tmp_path: Path, url: str) -> None:
    result = run(kubeconfig(tmp_path, {"server": "https://api.test", "proxy-url": url}, {"token": SECRET}))

    assert result.exit_code == 2
    assert "cluster 'one': proxy-url is not the URL of a proxy; its scheme must be http, https, socks5" in result.stderr


def test_the_proxy_of_the_environment_depends_on_the_scheme(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"server": "https://api.test"}, {})
    environ = {"HTTPS_PROXY": "proxy.test:3128", "http_proxy": "http://other.test", "no_proxy": "own.test"}

    endpoint = connect(str(path), environ=environ).endpoint

    assert (endpoint.proxy, endpoint.no_proxy) == ("http://proxy.test:3128", "own.test")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_the_proxy_of_the_environment_is_not_used_for_loopback(tmp_path: Path, server: Recorder, host: str) -> None:
    path = kubeconfig(tmp_path, {"server": f"http://{host}:{server.port}"}, {"token": SECRET})

    with recorder() as proxy:
        answer = sent(connect(str(path), environ={"http_proxy": f"http://127.0.0.1:{proxy.port}"}).endpoint)

    assert (answer.status, len(server.requests), proxy.requests) == (200, 1, [])


@pytest.mark.parametrize("character", ["\n", "\r\n", "\0", "\x7f"])
@pytest.mark.parametrize("credential", ["token", "tokenFile", "plugin"])
def test_a_token_cannot_add_a_header(tmp_path: Path, server: Recorder, credential: str, character: str) -> None:
    user = user_with(credential, tmp_path, f"{SECRET}{character}Impersonate-User: admin")

    result = run(kubeconfig(tmp_path, {"server": f"http://127.0.0.1:{server.port}"}, user))

    assert (result.exit_code, server.requests) == (2, [])
    named = "the token of the credential plugin" if credential == "plugin" else credential
    assert f"user 'me': {named}" in result.stderr
    assert "contains a control character, such as a newline; remove it" in result.stderr


def impersonated(request: Sent) -> dict[str, list[str]]:
    """The impersonation headers of a request."""
    return {name: request.values(name) for name, _ in request.headers if name.startswith("impersonate-")}


@pytest.mark.parametrize("credential", ["token", "password", "plugin"])
def test_impersonation_goes_with_every_credential(tmp_path: Path, server: Recorder, credential: str) -> None:
    acting = {
        **user_with(credential, tmp_path),
        "as": "müller, anna",
        "as-groups": ["one", "two, three", ""],
        "as-uid": "u-1",
        "as-user-extra": {"scopes": ["view", "edit"], "Example.com/a b%é": ["é", ""]},
    }
    path = kubeconfig(tmp_path, {"server": f"http://127.0.0.1:{server.port}"}, acting)

    sent(connect(str(path), environ={}).endpoint)

    (request,) = server.requests
    assert len(request.values("authorization")) == 1
    assert impersonated(request) == {
        "impersonate-user": ["müller, anna"],
        "impersonate-uid": ["u-1"],
        "impersonate-group": ["one", "two, three", ""],
        "impersonate-extra-scopes": ["view", "edit"],
        "impersonate-extra-example.com%2fa%20b%25%c3%a9": ["é", ""],
    }


def test_a_service_account_impersonates_by_options(tmp_path: Path, server: Recorder) -> None:
    for name in ("token", "ca.crt", "namespace"):
        (tmp_path / name).write_text(SECRET)
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "HOME": "/nonexistent"}

    connection = connect(as_user="reader", as_groups=["a", "b"], environ=environ, service_account=tmp_path)
    sent(replace(connection.endpoint, server=f"http://127.0.0.1:{server.port}"))

    (request,) = server.requests
    assert request.values("authorization") == [f"Bearer {SECRET}"]
    assert impersonated(request) == {"impersonate-user": ["reader"], "impersonate-group": ["a", "b"]}


@pytest.mark.parametrize(
    "user", [{"as-groups": ["team"]}, {"as-uid": "u-1"}, {"as-user-extra": {"scopes": ["view"]}}, {}]
)
def test_a_group_without_a_user_is_refused(tmp_path: Path, server: Recorder, user: dict[str, Any]) -> None:
    path = kubeconfig(tmp_path, {"server": f"http://127.0.0.1:{server.port}"}, {"token": SECRET, **user})

    result = run(path, *([] if user else ["--as-group", "team"]))

    assert (result.exit_code, server.requests) == (2, [])
    assert "requesting uid, groups or user-extra without impersonating a user; set --as" in result.stderr


@pytest.mark.parametrize("user", [{"as-groups": ["team"], "as": "reader"}, {"as-groups": ["team"]}])
def test_a_user_may_come_from_the_option_and_the_groups_from_the_context(
    tmp_path: Path, server: Recorder, user: dict[str, Any]
) -> None:
    run(kubeconfig(tmp_path, {"server": f"http://127.0.0.1:{server.port}"}, user), "--as", "other", "--dry-run")

    assert {json.dumps(impersonated(each)) for each in server.requests} == {
        '{"impersonate-user": ["other"], "impersonate-group": ["team"]}'
    }


@pytest.mark.parametrize("value", ["a\nX-Other: b", "a\r", "a\0b"])
@pytest.mark.parametrize("field", ["as", "as-uid", "as-groups", "as-user-extra"])
def test_an_impersonated_name_cannot_add_a_header(tmp_path: Path, server: Recorder, field: str, value: str) -> None:
    fields: dict[str, Any] = {"as": "reader"}
    fields[field] = {"as-groups": [value], "as-user-extra": {"k": [value]}}.get(field, value)
    path = kubeconfig(tmp_path, {"server": f"http://127.0.0.1:{server.port}"}, {"token": SECRET, **fields})

    result = run(path)

    assert (result.exit_code, server.requests) == (2, [])
    assert "the impersonated user: Impersonate-" in result.stderr
    assert "contains a control character, such as a newline; remove it" in result.stderr


@pytest.mark.parametrize(
    ("cluster", "status"),
    [
        ({"certificate-authority": "ca.crt"}, 200),
        ({"certificate-authority-data": "ca.crt"}, 200),
        ({}, 0),
        ({"insecure-skip-tls-verify": True}, 200),
        ({"certificate-authority": "ca.crt", "tls-server-name": "localhost"}, 200),
        ({"certificate-authority": "ca.crt", "tls-server-name": "other.test"}, 0),
    ],
)
def test_the_server_is_verified(tmp_path: Path, certificates: Path, cluster: dict[str, Any], status: int) -> None:
    (tmp_path / "ca.crt").write_bytes((certificates / "ca.crt").read_bytes())
    with recorder(certificates) as server:
        named = of_files(tmp_path, {"server": f"https://127.0.0.1:{server.port}", **cluster})
        answer = sent(connect(str(kubeconfig(tmp_path, named, {"token": SECRET})), environ={}).endpoint)

    assert (answer.status, len(server.requests)) == (status, status // 200), answer.error


def test_a_tls_server_name_does_not_change_the_header_host(tmp_path: Path, certificates: Path) -> None:
    with recorder(certificates) as server:
        host = f"127.0.0.1:{server.port}"
        cluster = {
            "server": f"https://{host}",
            "certificate-authority": str(certificates / "ca.crt"),
            "tls-server-name": "localhost",
        }
        sent(connect(str(kubeconfig(tmp_path, cluster, {})), environ={}).endpoint)

    assert [each.values("host") for each in server.requests] == [[host]]


def test_without_the_package_a_kubeconfig_is_an_error(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"server": "https://one.test"}, {})
    code = "import sys; sys.modules['kubernetes'] = None; from jobs.__main__ import main; main()"

    result = subprocess.run([sys.executable, "-c", code, "sync-copies", "--kubeconfig", path], capture_output=True)

    assert (result.returncode, result.stdout) == (2, b"")
    assert b"error: a kubeconfig needs the Python package kubernetes" in result.stderr
    assert b"install kube-chores with pip" in result.stderr


def test_no_key_is_written_to_a_file(tmp_path: Path, certificates: Path) -> None:
    for name in ("ca.crt", "ca.key"):
        (tmp_path / name).write_bytes((certificates / name).read_bytes())
    names = {"client-certificate-data": "ca.crt", "client-key-data": "ca.key"}
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority-data": "ca.crt"}
    path = kubeconfig(tmp_path, of_files(tmp_path, cluster), of_files(tmp_path, names))
    opened = []

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR):
            opened.append(arguments[0])

    sys.addaudithook(lambda event, arguments: audit(event, arguments) if recording else None)
    recording = True
    connect(str(path), environ={}).endpoint.certificate()
    recording = False

    assert opened == []


def test_a_certificate_that_is_not_accepted_is_not_retried(tmp_path: Path, certificates: Path) -> None:
    with recorder(certificates) as server:
        path = kubeconfig(tmp_path, {"server": f"https://127.0.0.1:{server.port}"}, {"token": SECRET})
        transport = Transport(connect(str(path), environ={}).endpoint, "tests")
        with pytest.raises(UnreachableError, match="self-signed certificate"):
            transport.send(GET)
        transport.close()

    assert transport.traffic.retries == 0


@pytest.mark.parametrize(
    ("expired", "trusted", "check"),
    [
        (
            False,
            False,
            "check that the certificate authority of this client is that of the API server",
        ),
        (
            True,
            True,
            "check the clock of this machine, then the certificate of the API server",
        ),
    ],
)
def test_an_error_of_a_certificate_has_its_own_remedy(tmp_path: Path, expired: bool, trusted: bool, check: str) -> None:
    make_certificates(tmp_path)
    if expired:
        expire(tmp_path)
    with recorder(tmp_path) as server:
        authority = of_files(tmp_path, {"certificate-authority": "ca.crt"}) if trusted else {}
        path = kubeconfig(tmp_path, {"server": f"https://127.0.0.1:{server.port}", **authority}, {"token": SECRET})
        result = run(path)

    assert (result.exit_code, server.requests) == (1, [])
    assert result.stderr.endswith(f"; {check}\n")


@pytest.mark.parametrize("suffix", ["", "-data"])
def test_a_client_certificate_is_presented(tmp_path: Path, certificates: Path, suffix: str) -> None:
    for name in ("ca.crt", "ca.key"):
        (tmp_path / name).write_bytes((certificates / name).read_bytes())
    user = of_files(tmp_path, {f"client-certificate{suffix}": "ca.crt", f"client-key{suffix}": "ca.key"})
    with recorder(certificates, client_certificates=True) as server:
        cluster = {"server": f"https://127.0.0.1:{server.port}", "certificate-authority": "ca.crt"}
        answer = sent(connect(str(kubeconfig(tmp_path, cluster, user)), environ={}).endpoint)

    assert answer.status == 200, answer.error


def of_files(folder: Path, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields; those that end in -data have the content of the file."""
    return {
        name: base64.b64encode((folder / value).read_bytes()).decode() if name.endswith("-data") else value
        for name, value in fields.items()
    }


def test_a_password_is_sent_to_the_server(tmp_path: Path, server: Recorder) -> None:
    user = {"username": "mé", "password": "p:w"}

    sent(connect(str(kubeconfig(tmp_path, {"server": f"http://127.0.0.1:{server.port}"}, user)), environ={}).endpoint)

    (request,) = server.requests
    assert request.values("authorization") == [f"Basic {base64.b64encode('mé:p:w'.encode()).decode()}"]
    assert request.values("accept-encoding") == []


def test_a_token_file_is_read_again_and_overrides_the_token(
    tmp_path: Path, server: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.kit.api.endpoint._FRESH_SECONDS", -1.0)
    user = {"token": "fixed", "tokenFile": "token"}
    path = kubeconfig(tmp_path, {"server": f"http://127.0.0.1:{server.port}"}, user)
    endpoint = connect(str(path), environ={}).endpoint
    for content in ("", "first\n", "second"):
        (tmp_path / "token").write_text(content)
        sent(endpoint)

    tokens = [each.values("authorization") for each in server.requests]
    assert tokens == [["Bearer fixed"], ["Bearer first"], ["Bearer second"]]


# compression


@pytest.mark.parametrize(("disabled", "encodings"), [(True, {""}), (False, {"", "gzip"})])
def test_lists_are_not_compressed_with_disable_compression(
    sandbox: Sandbox, tmp_path: Path, disabled: bool, encodings: set[str]
) -> None:
    cluster = {"server": sandbox.url, "disable-compression": disabled}
    path = kubeconfig(tmp_path, cluster, {"token": sandbox.admin_token})

    assert run(path, "-n", "kube-chores").exit_code == 0
    assert {each.accept_encoding for each in sandbox.requests} == encodings
