"""`chores manifests` on a real API server, with a second installation in another namespace."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.apis import Api, Object
from tests.control_plane import programs
from tests.manifests import ROOT, load
from tests.pages import command

pytestmark = [pytest.mark.cluster, pytest.mark.parametrize("api", ["real"], indirect=True)]


def test_a_second_installation_changes_nothing_of_the_first(api: Api, installed: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "chores"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m jobs "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{programs()}:{os.environ['PATH']}"
    env = {
        **os.environ,
        "PATH": path,
        "KUBECONFIG": str(api.kubeconfig),
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }

    def run(line: str) -> list[str]:
        done = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    first = [obj for obj in load(ROOT / "cronjobs") if obj["kind"] not in ("Namespace", "Secret")]
    run("chores manifests | kubectl apply -f -")
    before = specifications(api, first)

    of_team_b = "chores manifests --only sync-copies --namespace team-b | kubectl"
    created = [line.split()[0] for line in run(command(f"{of_team_b} apply")) if line.endswith(" created")]

    roles = ["sync-copies", "team-b-sync-copies", "team-b-sync-copies-secrets"]
    names = ["team-b", "sync-copies", "sync-copies", "sync-copies-verify", *roles, *roles]
    assert sorted(each.rpartition("/")[2] for each in created) == sorted(names)
    assert specifications(api, first) == before
    subjects = {each["metadata"]["name"]: each.get("subjects") for each in bindings(api)}
    assert subjects["team-b-sync-copies-secrets"] == [
        {"kind": "ServiceAccount", "name": "sync-copies", "namespace": "team-b"}
    ]

    run(command(f"{of_team_b} delete"))
    run(command("kubectl delete namespace team-b"))

    assert specifications(api, first) == before
    assert [each for each in bindings(api) if each["metadata"]["name"].startswith("team-b")] == []


def bindings(api: Api) -> list[Object]:
    return api.items("rbac.authorization.k8s.io/v1", "ClusterRoleBinding")


def specifications(api: Api, objects: list[Object]) -> list[Object]:
    """Return the objects as the server has them, without what other programs write."""
    kept = [{key: value for key, value in (api.get(obj) or {}).items() if key != "status"} for obj in objects]
    return [obj | {"metadata": {key: obj["metadata"][key] for key in ("name", "labels", "uid")}} for obj in kept]
