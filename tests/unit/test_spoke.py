"""Kubeconfigs in Secrets of an inventory: what is read, and all that is refused."""

import base64
import json
from typing import Any

import pytest
import yaml

from jobs.kit.api.endpoint import Certificate
from jobs.kit.api.spoke import endpoint
from jobs.kit.values.errors import ConfigurationError
from tests.canary import canary

AUTHORITY = "-----BEGIN CERTIFICATE-----\n"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def kubeconfig(cluster: Any = None, user: Any = None, **fields: Any) -> dict[str, Any]:
    """Return a kubeconfig as Cluster API writes it, with these fields of the cluster and the user."""
    given = {"server": "https://10.0.0.1:6443", "certificate-authority-data": encoded(AUTHORITY), **(cluster or {})}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "prod", "cluster": given}],
        "users": [{"name": "admin", "user": user or {"token": "t"}}],
        "contexts": [{"name": "admin@prod", "context": {"cluster": "prod", "user": "admin"}}],
        "current-context": "admin@prod",
        "preferences": {},
        **fields,
    }


def read(config: object) -> Any:
    return endpoint(json.dumps(config).encode())


def test_a_server_its_authority_and_a_token_or_a_certificate_are_read() -> None:
    found = read(kubeconfig())
    assert (found.server, found.ca_data) == ("https://10.0.0.1:6443", AUTHORITY.encode())
    assert found.authorization() == "Bearer t"
    assert (found.certificate(), found.verify, found.proxy, found.impersonation) == (None, True, None, ())
    user = {"client-certificate-data": encoded("certificate"), "client-key-data": encoded("key")}
    found = endpoint(yaml.safe_dump(kubeconfig(user=user)).encode())
    assert (found.certificate(), found.authorization()) == (Certificate(b"certificate", b"key"), "")


REFUSED: dict[str, tuple[object, str]] = {
    "a file of a token": (kubeconfig(user={"token": "t", "tokenFile": "/x"}), "user: remove tokenFile"),
    "a plugin": (kubeconfig(user={"exec": {"command": "sh"}}), "user: remove exec"),
    "an auth provider": (kubeconfig(user={"token": "t", "auth-provider": {"name": "oidc"}}), "remove auth-provider"),
    "a password": (kubeconfig(user={"username": "a", "password": "b"}), "user: remove password, username"),
    "impersonation": (kubeconfig(user={"token": "t", "as": "admin", "as-groups": ["a"]}), "user: remove as, as-groups"),
    "a file of a certificate": (kubeconfig(user={"client-certificate": "/x"}), "remove client-certificate"),
    "a file of an authority": (kubeconfig({"certificate-authority": "/x"}), "remove certificate-authority"),
    "a proxy": (kubeconfig({"proxy-url": "http://10.0.0.1"}), "cluster: remove proxy-url"),
    "no verification": (kubeconfig({"insecure-skip-tls-verify": True}), "remove insecure-skip-tls-verify"),
    "another name": (kubeconfig({"tls-server-name": "x"}), "remove tls-server-name"),
    "an authority that is no certificate": (
        kubeconfig({"certificate-authority-data": encoded("x")}),
        "as PEM in base64",
    ),
    "no authority": (kubeconfig({"certificate-authority-data": ""}), "must have the authority"),
    "http": (kubeconfig({"server": "http://10.0.0.1"}), "must be an https URL"),
    "a login": (kubeconfig({"server": "https://a:b@10.0.0.1"}), "must be an https URL"),
    "a file as the server": (kubeconfig({"server": "file:///etc/passwd"}), "must be an https URL"),
    "two lines": (kubeconfig({"server": "https://10.0.0.1\nHost: x"}), "must be an https URL"),
    "both credentials": (
        kubeconfig(user={"token": "t", "client-certificate-data": "YQ==", "client-key-data": "YQ=="}),
        "either token",
    ),
    "no credentials": (kubeconfig(user={"extensions": []}), "either token"),
    "two clusters": (kubeconfig(clusters=2 * kubeconfig()["clusters"]), "clusters: must have exactly one entry"),
    "another context": ({**kubeconfig(), "current-context": "x"}, "current-context: must be the name"),
    "a context of another user": (
        kubeconfig(contexts=[{"name": "admin@prod", "context": {"cluster": "prod", "user": "x"}}]),
        "context.user: must be the name of the user",
    ),
    "an unknown field": (kubeconfig(x=1), "it: remove the unknown fields"),
    "a plugin next to a token": (kubeconfig(user={"token": "t", "exec": None}), "user: remove exec"),
    "impersonated extras": (
        kubeconfig(user={"token": "t", "as-user-extra": {}, "as-uid": "1"}),
        "as-uid, as-user-extra",
    ),
    "fields in capitals": (kubeconfig(user={"Token": "t"}), "user: remove the unknown fields"),
    "a socket": (kubeconfig({"server": "unix:///run/docker.sock"}), "must be an https URL"),
    "no scheme": (kubeconfig({"server": "//10.0.0.1"}), "must be an https URL"),
    "no host": (kubeconfig({"server": "https://:6443"}), "must be an https URL"),
    "no port": (kubeconfig({"server": "https://10.0.0.1:0"}), "must be an https URL"),
    "a port that is not one": (kubeconfig({"server": "https://10.0.0.1:99999"}), "must be an https URL"),
    "an address that is not one": (kubeconfig({"server": "https://[::1"}), "must be an https URL"),
    "another alphabet": (kubeconfig({"server": "https://a.\u0435xample"}), "must be an https URL"),
    "a space": (kubeconfig({"server": "https://10.0.0.1 "}), "must be an https URL"),
    "a tab": (kubeconfig({"server": "https://10.0.0.1\t"}), "must be an https URL"),
    "a query": (kubeconfig({"server": "https://10.0.0.1/?a=b"}), "must be an https URL"),
    "an empty query": (kubeconfig({"server": "https://10.0.0.1?"}), "must be an https URL"),
    "an empty fragment": (kubeconfig({"server": "https://10.0.0.1/#"}), "must be an https URL"),
    "a backslash": (kubeconfig({"server": "https://10.0.0.1\\x"}), "must be an https URL"),
    "a fragment": (kubeconfig({"server": "https://10.0.0.1/#a"}), "must be an https URL"),
    "an empty token": (kubeconfig(user={"token": ""}), "either token"),
    "a token that is not text": (kubeconfig(user={"token": ["t"]}), "either token"),
    "a token of two lines": (kubeconfig(user={"token": "t\nHost: x"}), "contains a control character"),
    "an authority that is not base64": (kubeconfig({"certificate-authority-data": "a b"}), "in base64"),
    "no users": ({**kubeconfig(), "users": None}, "users: must have exactly one entry"),
    "null entries": ({**kubeconfig(), "users": [None], "clusters": [[]], "contexts": [{}]}, "exactly one entry"),
    "entries by name": ({**kubeconfig(), "users": {"admin": {"token": "t"}}}, "users: must have exactly one entry"),
    "a list": ([], "is not one YAML document"),
    "numbers": (kubeconfig({"server": 1}, {"token": 2}), "must be an https URL"),
}


@pytest.mark.parametrize(("config", "problem"), REFUSED.values(), ids=REFUSED)
def test_anything_else_is_refused(config: object, problem: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read(config)
    assert problem in str(raised.value)


CONTENTS: dict[str, bytes] = {
    "not UTF-8": b"\xff",
    "nothing": b"",
    "an alias": b"a: *b",
    "aliases of aliases": b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]",
    "a merge": b"a: &a {b: c}\nd:\n  <<: *a",
    "too much": b"x" * (70 << 10),
    "two documents": b"--- {}\n--- {}\n",
    "brackets": b"[" * 60_000,
    "questions": b"? " * 30_000,
    "minuses": b"- " * 30_000,
    "a tag of Python": b"!!python/object/apply:os.system [ls]",
    "binary": b"a: !!binary eA==",
    "a control character": b"a: \x00",
    "UTF-16": "a: b".encode("utf-16"),
    "half of a character": b'{"a": "\\ud800"}',
    "a key twice": b'{"clusters": [], "clusters": []}',
    "a number that is not one": b'{"a": 1e999}',
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_what_is_not_a_kubeconfig_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigurationError, match="the kubeconfig"):
        endpoint(content)


def test_all_problems_are_named_at_once_and_no_value() -> None:
    secret = canary()
    config = kubeconfig({"proxy-url": secret, "server": secret}, {"password": secret, "tokenFile": secret})
    with pytest.raises(ConfigurationError) as raised:
        read(config)
    text = str(raised.value)
    assert all(each in text for each in ("proxy-url", "cluster.server", "password, tokenFile", "either token"))
    assert secret not in text
