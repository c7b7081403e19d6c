"""Contexts and options that impersonate: a run has the rights of the impersonated user, and no others."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.conftest import Ran, runs
from tests.apis import Api, Object, wait_for
from tests.conftest import Chores
from tests.rights import RBAC, grant
from tests.worlds import at, configmap, rule

pytestmark = pytest.mark.usefixtures("installed")
READ = [
    {"apiGroups": [""], "resources": ["namespaces", "configmaps", "secrets"], "verbs": ["get", "list"]},
    {"apiGroups": ["kubechores.dev"], "resources": ["copyrators"], "verbs": ["get", "list"]},
]


@pytest.fixture
def readers(api: Api) -> str:
    """A group with read rights."""
    name = f"readers-{api.token}"
    grant(api, {"apiGroup": RBAC, "kind": "Group", "name": name}, *READ)
    who = {"Impersonate-User": "reader", "Impersonate-Group": name}
    wait_for(lambda: api.request("GET", "/api/v1/secrets?limit=1", headers=who)[0] == 200, "the readers' rights")
    return name


@pytest.fixture
def context(api: Api, tmp_path: Path) -> Callable[..., Path]:
    """Write a kubeconfig of the admin that impersonates."""

    def context(**fields: Any) -> Path:
        config = yaml.safe_load(api.kubeconfig.read_text())
        config["users"][0]["user"] |= fields
        path = tmp_path / "impersonating"
        path.write_text(yaml.safe_dump(config))
        return path

    return context


@pytest.fixture
def world(api: Api) -> tuple[Object, str]:
    """A source that is not copied yet."""
    home, team = api.namespace("home"), api.namespace("team")
    source = api.create(configmap(home))
    api.create(rule(f"settings-{api.token}", home, team))
    return source, team


def run(path: Path, *arguments: str, **given: Any) -> Ran:
    return runs("sync-copies", path)("-n", "kube-chores", *arguments, **given)


def test_a_context_that_impersonates_a_reader_writes_nothing(
    api: Api, world: tuple[Object, str], readers: str, context: Callable[..., Path]
) -> None:
    source, team = world
    path = context(**{"as": "reader", "as-groups": [readers]})
    api.mark()

    planned = run(path, "--dry-run")
    refused = run(path, output="text")

    assert (planned.exit_code, planned.summary) == (0, {"created": 1})
    assert refused.exit_code == 2
    assert 'User "reader" cannot create resource "configmaps"' in refused.stdout
    assert ", as user reader\n" in refused.stderr
    assert api.get(at(team, source)) is None
    assert {each.status for each in api.writes()} == {403}


def test_a_server_that_does_not_allow_the_impersonation_exits_2(api: Api, installed: Path) -> None:
    ran = run(installed, "--as", "someone-else")

    assert ran.exit_code == 2
    assert 'User "system:serviceaccount:kube-chores:sync-copies" cannot impersonate' in ran.stderr


@pytest.mark.parametrize(
    ("fields", "arguments", "user"),
    [
        ({}, ["--as", "someone", "--as-group", "others", "--as-group", "READERS"], "someone"),
        ({"as": "reader"}, ["--as", "someone", "--as-group", "READERS"], "someone"),
        ({"as": "reader", "as-groups": ["READERS"]}, ["--as", "someone"], "someone"),
        ({"as": "reader", "as-groups": ["others"]}, ["--as-group", "READERS"], "reader"),
        ({"as": "müller", "as-groups": ["READERS"], "as-uid": "7", "as-user-extra": {"a/B": ["x"]}}, [], "müller"),
    ],
)
def test_options_replace_what_the_context_impersonates(
    world: tuple[Object, str],
    readers: str,
    context: Callable[..., Path],
    fields: dict[str, Any],
    arguments: list[str],
    user: str,
) -> None:
    if "as-groups" in fields:
        fields = {**fields, "as-groups": [each.replace("READERS", readers) for each in fields["as-groups"]]}

    refused = run(context(**fields), *(each.replace("READERS", readers) for each in arguments))

    assert (refused.exit_code, set(refused.summary)) == (2, {"failed"})
    messages = [each["message"] for each in refused.results]
    assert [each for each in messages if f'User "{user}" cannot create resource "configmaps"' in each]


def test_impersonation_of_a_user_with_rights_writes(
    api: Api, world: tuple[Object, str], context: Callable[..., Path]
) -> None:
    source, team = world

    done = run(context(**{"as": "system:serviceaccount:kube-chores:sync-copies"}))

    assert (done.exit_code, done.summary["created"]) == (0, 1)
    assert api.get(at(team, source))


def test_the_command_that_lifts_the_brake_impersonates_too(
    api: Api, world: tuple[Object, str], context: Callable[..., Path], chores: Chores
) -> None:
    source, _ = world
    path = context()
    acting = ["--as", "system:serviceaccount:kube-chores:sync-copies", "--as-group", "system:masters"]
    assert run(path).exit_code == 0
    api.delete(source)

    blocked = run(path, "--max-deletes", "0", *acting)
    command = shlex.split(blocked.stderr.strip().splitlines()[-1])

    assert blocked.exit_code == 4
    assert [word for word in command if word in acting] == acting
    done = chores(*command[1:], kubeconfig=path)
    assert (done.returncode, "1 deleted" in done.stdout) == (0, True), done.stderr
    assert ", as user system:serviceaccount:kube-chores:sync-copies\n" in done.stderr
