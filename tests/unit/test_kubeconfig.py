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

from jobs.__main__ import chores
from jobs.kit.api.connect import connect
from jobs.kit.values.errors import ConfigurationError
from tests.sweeps import examples


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


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (of_user(**{"as": 3}), "user 'me'.as: expected `str`, got `int`"),
        (of_user(token=12345), "user 'me'.token: expected `str`, got `int`"),
        (of_user(as_groups="team"), "user 'me'.as-groups: expected `array`, got `str`"),
        (of_user(exec="aws"), "user 'me'.exec: expected `object | null`, got `str`"),
        (of_user(exec={"command": "x", "apiVersion": "v1", "args": 3}), "the credential plugin 'x' failed"),
        (of_user(exec={"command": "x", "apiVersion": "v1", "env": {"A": "b"}}), "the credential plugin 'x' failed"),
        (of_user(client_certificate_data="x", client_key_data="%%%"), "client-certificate is not valid"),
        (of_cluster(server=["https://one.test"]), "cluster 'one'.server: expected `str`, got `array`"),
        (of_cluster(insecure_skip_tls_verify="true"), "insecure-skip-tls-verify: expected `bool`, got `str`"),
        (config(clusters=[{"name": "one", "cluster": ["x"]}]), "cluster 'one': expected `object`, got `array`"),
        (config(users={"me": {}}), "it is not a YAML object with lists of clusters, users and contexts"),
        (config(users=[None]), "each with a name"),
        (config(users=[{"user": {"token": "t0ken"}}]), "each with a name"),
        (config(users=[{"name": None}, {"name": "me"}]), "each with a name"),
        (of_cluster(extensions=["x"]), "cluster 'one'.extensions[0]: expected `object`, got `str`"),
        (of_user(auth_provider={"name": "oidc", "config": "x"}), "auth-provider.config: expected `object`, got `str`"),
        (of_user(tokenFile="a\0b"), "cannot be read: embedded null byte"),
        (config(users=[{"name": "me"}, {"name": "me"}]), "more than one user has the name me; rename one"),
        (config(users=None), "context 'here': user 'me' is not in the kubeconfig"),
        (config(clusters=None), "context 'here': cluster 'one' is not in the kubeconfig"),
        (config(contexts=None), "it has no context 'here'; its contexts are: none"),
        (config(**{"current-context": None}), "current-context is not set; use --context"),
        (["a"], "it is not a YAML object"),
        ("text", "it is not a YAML object"),
        ("users:\n- name: me\n  user: {token: t0ken\n", "is not valid YAML at line 4, column 1"),
        ("a: !!python/object:os.system {}", "is not valid YAML at line 1, column 4: could not determine a constructor"),
        ("\x00", "it is not a YAML object"),
        ("[" * 5000, "it is not a YAML object"),
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
        (of_user(auth_provider={"name": "gcp"}), "user 'me': only the auth-provider oidc is supported; use a cred"),
        (of_user(client_certificate="a"), "has a client certificate but no key; set client-key or client-key-data"),
        (of_user(client_certificate="a", client_key="b"), "user 'me': client-certificate cannot be read"),
        (of_user(client_certificate_data="YQ==", client_key="b"), "'me': client-certificate is not PEM"),
        (of_user(tokenFile="absent"), "absent cannot be read"),
        (of_user(tokenFile="/dev/zero"), "it is larger than 3 MiB"),
        (of_user(client_certificate="/dev/zero", client_key="/dev/zero"), "it is larger than 3 MiB"),
        (of_cluster(certificate_authority="/dev/zero"), "it is larger than 3 MiB"),
        (of_user(tokenFile="empty"), "empty is empty"),
        (of_cluster(certificate_authority="absent"), "cluster 'one': certificate-authority cannot be read"),
        (of_cluster(certificate_authority_data="YQ=="), "cluster 'one': certificate-authority is not PEM"),
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

    assert "cannot be used: it is not a YAML object" in run(path).stderr


def test_the_option_names_one_file_also_with_a_colon(tmp_path: Path) -> None:
    path = written(tmp_path, config(), "prod:eu.yaml")

    assert connect(str(path), environ={}).endpoint.authorization() == "Bearer t0ken"


def test_a_token_may_look_like_a_date(tmp_path: Path) -> None:
    text = yaml.safe_dump(of_user(token="TOKEN")).replace("TOKEN", "2001-01-01")

    endpoint = connect(str(written(tmp_path, f"\ufeff{text}")), environ={}).endpoint

    assert endpoint.authorization() == "Bearer 2001-01-01"


def test_all_problems_are_shown_at_once(tmp_path: Path) -> None:
    content = of_user(token="t0ken", username="me", auth_provider={"name": "azure"})

    result = run(written(tmp_path, content))

    assert "2 problems:" in result.stderr


def test_a_folder_is_not_a_kubeconfig(tmp_path: Path) -> None:
    result = run(tmp_path)

    assert (result.exit_code, "cannot be used: Is a directory" in result.stderr) == (2, True)


def test_a_null_field_counts_as_not_set(tmp_path: Path) -> None:
    content = of_user(**dict.fromkeys(["token", "exec", "as", "as-groups", "client-key-data", "auth-provider"]))
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
KEYS = re.findall(
    r"\S+",
    """
    clusters users contexts current-context extensions server tls-server-name insecure-skip-tls-verify name cluster
    x certificate-authority certificate-authority-data proxy-url disable-compression client-certificate client-key-
    data client-certificate-data client-key token tokenFile as as-uid as-groups as-user-extra username password exec
    args auth-provider env apiVersion installHint provideClusterInfo interactiveMode user namespace config id-token
    kind
    """,
)
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
