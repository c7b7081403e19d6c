"""Kubeconfigs with the auth-provider oidc: an expired token is renewed, by a provider that is verified, and saved."""

import base64
import contextlib
import json
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.kit.api.connect import connect
from tests.sandbox.test_credentials import kubeconfig, run, sent
from tests.serving import QuietHandler, serving
from tests.wire import Recorder


def jwt(name: str, seconds: float) -> str:
    """A JSON Web Token that expires in so many seconds, as the API server would not accept it."""
    parts = ({"alg": "none"}, {"sub": name, "exp": int(time.time() + seconds)})
    encoded = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in parts]
    return ".".join([*encoded, "c2ln"])


@dataclass
class Provider:
    """An OIDC provider, and the paths that it was asked for."""

    url: str
    token: str
    paths: list[str] = field(default_factory=list)


@contextlib.contextmanager
def provider(certificates: Path) -> Iterator[Provider]:
    """An OIDC provider on loopback that renews each token."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
            known.paths.append(self.path)
            self._answer({"token_endpoint": f"{known.url}/token"})

        def do_POST(self) -> None:  # noqa: N802 - the same
            known.paths.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            token = {"token_type": "Bearer", "access_token": "a", "expires_in": 60}
            self._answer({**token, "id_token": known.token, "refresh_token": "next"})

        def _answer(self, document: dict[str, Any]) -> None:
            self.send(200, {"Content-Type": "application/json"}, json.dumps(document).encode())

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates / "ca.crt", certificates / "ca.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    known = Provider(f"https://localhost:{server.server_address[1]}", jwt("me", 3600))
    with serving(server):
        yield known


def user(issuer: str, token: str, **settings: str) -> dict[str, Any]:
    config = {"idp-issuer-url": issuer, "id-token": token, "refresh-token": "first", **settings}
    return {"auth-provider": {"name": "oidc", "config": {"client-id": "kubectl", "client-secret": "s", **config}}}


def test_a_valid_token_is_sent(tmp_path: Path, server: Recorder) -> None:
    token = jwt("me", 3600)
    path = kubeconfig(
        tmp_path, {"server": f"http://127.0.0.1:{server.port}"}, user("https://127.0.0.1:1/unused", token)
    )

    sent(connect(str(path), environ={}).endpoint)

    assert [each.values("authorization") for each in server.requests] == [[f"Bearer {token}"]]


@pytest.mark.parametrize("writable", [True, False])
def test_an_expired_token_is_renewed_and_saved(
    tmp_path: Path, server: Recorder, certificates: Path, writable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with provider(certificates) as issuer:
        expired = user(issuer.url, jwt("me", -60), **{"idp-certificate-authority": str(certificates / "ca.crt")})
        path = kubeconfig(tmp_path, {"server": f"http://127.0.0.1:{server.port}"}, expired)
        before = path.read_text()
        if not writable:
            monkeypatch.setattr("pathlib.Path.write_text", _refuse)
        sent(connect(str(path), environ={}).endpoint)

    assert issuer.paths == ["/.well-known/openid-configuration", "/token"]
    assert [each.values("authorization") for each in server.requests] == [[f"Bearer {issuer.token}"]]
    saved = yaml.safe_load(path.read_text())["users"][0]["user"]["auth-provider"]["config"]
    assert (path.read_text() == before) is not writable
    if writable:
        assert (saved["id-token"], saved["refresh-token"]) == (issuer.token, "next")
        assert saved.keys() == expired["auth-provider"]["config"].keys()


def _refuse(*_arguments: object) -> None:
    raise PermissionError("read-only")


def test_a_provider_that_cannot_be_verified_gets_no_secret(
    tmp_path: Path, server: Recorder, certificates: Path
) -> None:
    with provider(certificates) as issuer:
        expired = user(issuer.url, jwt("me", -60))
        result = run(kubeconfig(tmp_path, {"server": f"http://127.0.0.1:{server.port}"}, expired))

    assert (result.exit_code, server.requests, issuer.paths) == (2, [], [])
    assert "user 'me': no token of the OIDC provider: " in result.stderr
    assert "certificate verify failed" in result.stderr


def test_a_provider_that_does_not_answer_ends_the_run(
    tmp_path: Path, server: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.kit.api.kubeconfig._OIDC_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        expired = user(f"https://127.0.0.1:{silent.getsockname()[1]}", jwt("me", -60))
        result = run(kubeconfig(tmp_path, {"server": f"http://127.0.0.1:{server.port}"}, expired))

    assert (result.exit_code, server.requests) == (2, [])
    assert "user 'me': no token of the OIDC provider: no answer within 0.2 seconds" in result.stderr


@pytest.mark.parametrize("mistaken", ["certificate-authority", "idp-certificate-authorities"])
def test_a_mistaken_authority_does_not_end_the_verification(
    tmp_path: Path, server: Recorder, certificates: Path, mistaken: str
) -> None:
    with provider(certificates) as issuer:
        expired = user(issuer.url, jwt("me", -60), **{mistaken: str(certificates / "ca.crt")})
        result = run(kubeconfig(tmp_path, {"server": f"http://127.0.0.1:{server.port}"}, expired))

    assert (result.exit_code, server.requests, issuer.paths) == (2, [], [])


@pytest.mark.parametrize(
    ("token", "problem"),
    [
        ("no-token", "is not a JSON Web Token"),
        ("a.b.c", "is not a JSON Web Token"),
        (f"a.{base64.b64encode(b'xyz').decode()}.c", "no token of the OIDC provider"),
        (None, "Expected key id-tok"),
    ],
)
def test_without_a_token_nothing_is_sent(tmp_path: Path, server: Recorder, token: str, problem: str) -> None:
    path = kubeconfig(tmp_path, {"server": f"http://127.0.0.1:{server.port}"}, user("https://127.0.0.1:1", token))

    result = run(path)

    assert (result.exit_code, server.requests) == (2, [])
    assert problem in result.stderr
