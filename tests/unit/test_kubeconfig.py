"""Kubeconfigs: their fields, how files merge, and the problems of invalid ones."""

import contextlib
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import fields

from jobs.__main__ import chores
from jobs.kit.api.connect import connect
from jobs.kit.api.kubeconfig.structs import Cluster, Context, Exec, Kubeconfig, User
from jobs.kit.values.errors import ConfigurationError
from tests.manifests import ROOT
from tests.sweeps import examples

# https://github.com/kubernetes/client-go/blob/v0.36.3/tools/clientcmd/api/v1/types.go
FIELDS: dict[type[Struct], str] = {
    Kubeconfig: "kind apiVersion preferences clusters users contexts current-context extensions",
    Cluster: "server tls-server-name insecure-skip-tls-verify certificate-authority certificate-authority-data"
    " proxy-url disable-compression extensions",
    User: "client-certificate client-certificate-data client-key client-key-data token tokenFile as as-uid as-groups"
    " as-user-extra username password auth-provider exec extensions",
    Exec: "command args env apiVersion installHint provideClusterInfo interactiveMode",
    Context: "cluster user namespace extensions",
}


def config(**replaced: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "one", "cluster": {"server": "https://one.test"}}],
        "users": [{"name": "me", "user": {"token": "t0ken"}}],
        "contexts": [{"name": "here", "context": {"cluster": "one", "user": "me"}}],
        **replaced,
    }


def of_user(**user: Any) -> dict[str, Any]:
    """Return a kubeconfig with these fields of its user: `client_key` stands for `client-key`."""
    return config(users=[{"name": "me", "user": hyphenated(user)}])


def of_cluster(**cluster: Any) -> dict[str, Any]:
    return config(clusters=[{"name": "one", "cluster": {"server": "https://one.test", **hyphenated(cluster)}}])


def hyphenated(fields: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "-"): value for name, value in fields.items()}


def written(folder: Path, content: Any, name: str = "kubeconfig") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def run(path: Path) -> Result:
    result = CliRunner().invoke(chores, ["sync-copies"], env={"KUBECONFIG": str(path)})
    assert isinstance(result.exception, SystemExit), result.exception
    return result


def test_each_field_of_the_client_go_types_is_defined() -> None:
    assert {struct: {each.encode_name for each in fields(struct)} for struct in FIELDS} == {
        struct: set(names.split()) for struct, names in FIELDS.items()
    }


def test_the_table_of_the_docs_has_each_field() -> None:
    rows = re.findall(r"^\| `(\S+)` \|", (ROOT / "docs" / "kubeconfig.md").read_text(), re.M)

    prefixes = {Kubeconfig: "", Cluster: "cluster.", User: "user.", Exec: "exec.", Context: "context."}
    assert rows == [f"{prefixes[struct]}{name}" for struct, names in FIELDS.items() for name in names.split()]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (of_user(**{"as": 3}), "users[0].user.as: expected `str`, got `int`"),
        (of_user(token=12345), "users[0].user.token: expected `str`, got `int`"),
        (of_user(as_groups="team"), "users[0].user.as-groups: expected `array`, got `str`"),
        (of_user(as_user_extra={"k": "v"}), "users[0].user.as-user-extra[...]: expected `array`, got `str`"),
        (of_user(exec="aws"), "users[0].user.exec: expected `object | null`, got `str`"),
        (of_user(exec={"args": "token"}), "users[0].user.exec.args: expected `array`, got `str`"),
        (of_user(exec={"env": {"A": "b"}}), "users[0].user.exec.env: expected `array`, got `object`"),
        (of_user(client_key_data="%%%"), "users[0].user.client-key-data: invalid base64"),
        (of_cluster(server=["https://one.test"]), "clusters[0].cluster.server: expected `str`, got `array`"),
        (of_cluster(insecure_skip_tls_verify="true"), "insecure-skip-tls-verify: expected `bool`, got `str`"),
        (config(clusters=[{"name": "one", "cluster": []}]), "clusters[0].cluster: expected `object`, got `array`"),
        (config(users={"me": {}}), "users: expected `array`, got `object`"),
        (config(users=[None]), "users[0]: expected `object`, got `null`"),
        (config(users=[{"user": {}}]), "users[0]: object missing required field `name`"),
        (config(users=[{"name": 3}]), "users[0].name: expected `str`, got `int`"),
        (config(users=None), "context 'here': user 'me' is not in the kubeconfig"),
        (config(clusters=None), "context 'here': cluster 'one' is not in the kubeconfig"),
        (config(contexts=None), "it has no context 'here'; its contexts are: none"),
        (config(users=[{"name": "me"}, {"name": "me"}]), "users: the name 'me' is used twice; rename or remove one"),
        (config(**{"current-context": ["here"]}), "current-context: expected `str`, got `array`"),
        (config(**{"current-context": None}), "current-context is not set; use --context"),
        (config(kind="Secret"), "kind and apiVersion are not Config and v1"),
        (config(apiVersion="v2"), "kind and apiVersion are not Config and v1"),
        (["a"], "expected `object`, got `array`"),
        ("text", "expected `object`, got `str`"),
        ("users:\n- name: me\n  user: {token: t0ken\n", "is not valid YAML at line 4, column 1"),
        ("a: !!python/object:os.system {}", "is not valid YAML at line 1, column 4: unknown tag"),
        ("\x00", "is not valid YAML at line 1"),
        ("[" * 5000, "is nested too deeply"),
        ("a: &a [x]\nb: [*a]\n", "aliases are not allowed"),
        ("users: []\nusers: []\n", "line 2, column 1: key 'users' is already set"),
        ("", "current-context is not set"),
    ],
)
def test_a_kubeconfig_that_kubectl_cannot_read(tmp_path: Path, content: Any, problem: str) -> None:
    path = written(tmp_path, content)

    result = run(path)

    assert result.exit_code == 2
    assert f"kubeconfig {path} cannot be used: " in result.stderr
    assert problem in result.stderr
    assert "t0ken" not in result.stderr


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (of_user(token="t0ken", username="me"), "user 'me' has both a token and a username or password"),
        (of_user(tokenFile="token", password="t0ken"), "user 'me' has both a token and a username or password"),
        (of_user(auth_provider={"name": "gcp"}), "has the auth-provider 'gcp', which is not supported; use a cred"),
        (of_user(client_certificate="a", client_certificate_data="YQ=="), "has both client-certificate and cl"),
        (of_user(client_certificate="a"), "has a client certificate but no key; set client-key or client-key-data"),
        (
            of_user(client_certificate="a", client_key="b", client_key_data="YQ=="),
            "has both client-key and client-key-data; remove one",
        ),
        (of_user(client_certificate="a", client_key="b"), "user 'me': client-certificate cannot be read"),
        (of_user(client_certificate_data="YQ==", client_key="b"), "'me': client-certificate-data is not PEM"),
        (of_user(tokenFile="absent"), "user 'me': tokenFile cannot be read"),
        (of_user(tokenFile="/dev/zero"), "it is larger than 3 MiB"),
        (of_user(client_certificate="/dev/zero", client_key="/dev/zero"), "it is larger than 3 MiB"),
        (of_cluster(certificate_authority="/dev/zero"), "it is larger than 3 MiB"),
        (of_user(tokenFile="empty"), "empty is empty"),
        (of_cluster(certificate_authority="absent"), "cluster 'one': certificate-authority cannot be read"),
        (of_cluster(certificate_authority="empty"), "cluster 'one': certificate-authority is not PEM"),
        (of_cluster(certificate_authority_data="YQ=="), "cluster 'one': certificate-authority-data is not PEM"),
        (
            of_cluster(certificate_authority="a", certificate_authority_data="YQ=="),
            "cluster 'one' has both certificate-authority and certificate-authority-data; remove one",
        ),
        (
            of_cluster(certificate_authority="a", insecure_skip_tls_verify=True),
            "cluster 'one' has both insecure-skip-tls-verify and a certificate authority",
        ),
        (of_cluster(tls_server_name="a/b"), "tls-server-name 'a/b' is not a host name"),
        (
            config(contexts=[{"name": "here", "context": {"cluster": "one", "user": "me", "namespace": "../x"}}]),
            "namespace '../x' is not a valid namespace name",
        ),
    ],
)
def test_fields_that_kubectl_refuses_are_named(tmp_path: Path, content: Any, problem: str) -> None:
    (tmp_path / "empty").touch()

    result = run(written(tmp_path, content))

    assert result.exit_code == 2
    assert "context 'here': " in result.stderr
    assert problem in result.stderr
    assert "t0ken" not in result.stderr


def test_bytes_are_not_a_kubeconfig(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(b"\xff\xfe\x00")

    assert "cannot be used: it is not UTF-8" in run(path).stderr


def test_a_device_without_an_end_is_not_a_kubeconfig() -> None:
    result = run(Path("/dev/zero"))

    assert (result.exit_code, result.stdout) == (2, "")
    assert "it is larger than 3 MiB" in result.stderr


def test_a_token_may_look_like_a_date(tmp_path: Path) -> None:
    text = yaml.safe_dump(of_user(token="TOKEN")).replace("TOKEN", "2001-01-01")

    endpoint = connect(str(written(tmp_path, f"\ufeff{text}")), environ={}).endpoint

    assert endpoint.authorization() == "Bearer 2001-01-01"


def test_all_problems_are_shown_at_once(tmp_path: Path) -> None:
    content = of_user(token="t0ken", username="me", auth_provider={"name": "oidc"})

    result = run(written(tmp_path, content))

    assert "2 problems:" in result.stderr


def test_a_folder_is_not_a_kubeconfig(tmp_path: Path) -> None:
    result = run(tmp_path)

    assert (result.exit_code, "cannot be used: Is a directory" in result.stderr) == (2, True)


def test_unknown_fields_are_ignored_with_a_warning(tmp_path: Path) -> None:
    content = of_user(token="t0ken", imersonate="reader", exec={"comand": "x"}, extensions=[{"name": "a", "x": 1}])
    content["users"][0]["user"]["as-user-extra"] = {"anything": []}
    content["clusters"][0]["cluster"]["extensions"] = [{"name": "minikube.sigs.k8s.io", "extension": {"version": "v1"}}]
    path = written(tmp_path, {**content, "colours": True})

    result = run(path)

    warned = [line for line in result.stderr.splitlines() if line.startswith("warning: ")]
    assert warned == [
        f"warning: kubeconfig {path}: unknown field {field} is ignored"
        for field in ("colours", *map("users[0].user.{}".format, ("exec.comand", "extensions[0].x", "imersonate")))
    ]


def test_a_null_field_counts_as_not_set(tmp_path: Path) -> None:
    content = of_user(**dict.fromkeys([each.encode_name for each in fields(User)]))
    content["preferences"] = content["extensions"] = None
    content["clusters"][0]["cluster"] |= {"proxy-url": None, "certificate-authority-data": None}

    assert connect(str(written(tmp_path, content)), environ={}).endpoint.authorization() == ""


def test_of_several_files_the_first_wins(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "token").write_text("of-the-file")
    first = written(tmp_path, {"current-context": "here", "contexts": config()["contexts"]}, "first")
    second = written(own, of_user(tokenFile="token", **{"as": "reader"}), "second")
    third = written(tmp_path, {**of_user(token="other"), "current-context": "there"}, "third")
    empty = written(tmp_path, "", "empty")
    paths = os.pathsep.join(map(str, ["", tmp_path / "absent", empty, first, second, third]))

    connection = connect(environ={"KUBECONFIG": paths})

    assert (connection.context, connection.as_user) == ("here", "reader")
    assert connection.endpoint.authorization() == "Bearer of-the-file"


def test_base64_may_have_line_ends(tmp_path: Path) -> None:
    pem = "LS0tLS1CRUdJTiBDRVJUSUZJ\nQ0FURS0tLS0tCg==\n"

    endpoint = connect(str(written(tmp_path, of_cluster(certificate_authority_data=pem))), environ={}).endpoint

    assert endpoint.ca_data == b"-----BEGIN CERTIFICATE-----\n"


# Without `command`: connect() would run it.
KEYS = sorted({name for names in FIELDS.values() for name in names.split()} - {"command"} | {"name", "extension", "x"})
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.sampled_from(["", "me", "https://h", "YQ=="]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.integers(), inner, max_size=6)
    ),
    max_leaves=30,
)


@examples(200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(top=st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4), cluster=VALUES, user=VALUES, context=VALUES)
def test_any_document_is_read_or_a_configuration_error(
    tmp_path: Path, top: Any, cluster: Any, user: Any, context: Any
) -> None:
    named = {"name": "me", "cluster": cluster, "user": user, "context": context}
    document = {"current-context": "me", "clusters": [named], "users": [named], "contexts": [named], **top}
    path = written(tmp_path, document)

    with contextlib.suppress(ConfigurationError):
        connect(str(path), environ={})
