"""A user with read rights and a kubeconfig, outside of the cluster."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.apis import Api
from tests.conftest import Chores
from tests.node.kubectl import Jobs, Kubectl
from tests.one_node import Node
from tests.worlds import at, configmap, rule, secret

pytestmark = pytest.mark.node
READ = "--verb=get,list --resource=namespaces,configmaps,secrets,copyrators.kubechores.dev"


@pytest.fixture
def reader(node: Node, kubectl: Kubectl, tmp_path: Path) -> Path:
    """The kubeconfig of a user with a certificate, who has the read rights of sync-copies and no write rights."""
    kubectl(f"create clusterrole reader {READ}")
    kubectl("create clusterrolebinding reader --clusterrole=reader --user=reader")
    plane, key, certificate = node.plane, tmp_path / "reader.key", tmp_path / "reader.crt"
    authority = ["-CA", str(plane.ca_file), "-CAkey", str(plane.ca_file.with_suffix(".key"))]
    made = ["-newkey", "rsa:2048", "-nodes", "-subj", "/CN=reader", "-keyout", str(key), "-out", str(certificate)]
    usage = ["-addext", "basicConstraints=CA:FALSE", "-addext", "extendedKeyUsage=clientAuth"]
    command = ["openssl", "req", "-x509", "-config", "/dev/null", "-days", "1", *authority, *made, *usage]
    subprocess.run(command, capture_output=True, check=True)
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"client-certificate": str(certificate), "client-key": str(key)}
    path = tmp_path / "reader.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def test_read_rights_are_enough_for_a_plan_and_a_real_run_names_the_missing_rights(
    api: Api, jobs: Jobs, kubectl: Kubectl, chores: Chores, reader: Path
) -> None:
    home, team, other = (api.namespace(name) for name in ("home", "team", "other"))
    sources = [api.create(configmap(home)), api.create(secret(home))]
    for source in sources:
        kind = source["kind"].lower()
        api.create(rule(kind, home, [team, other], ruleType=kind))
    jobs.create("first")
    assert jobs.end("first") == "Complete"
    api.patch(at(team, sources[0]), {"data": {"a": "edited"}})
    api.delete(at(other, sources[1]))
    api.mark()

    planned = chores("sync-copies", "-n", "kube-chores", "--dry-run", "--diff", kubeconfig=reader)
    assert planned.returncode == 0, planned.stderr
    assert f"configmap/settings  {team}" in planned.stdout
    assert '~ data.a: "edited" -> "1"' in planned.stdout
    assert f"secret/login        {other}" in planned.stdout
    assert api.writes() == []

    refused = chores("sync-copies", "-n", "kube-chores", kubeconfig=reader)
    assert refused.returncode == 2
    for denied in ('cannot update resource "configmaps"', 'cannot create resource "secrets"'):
        assert f'User "reader" {denied}' in refused.stdout
    assert refused.stdout.splitlines()[-1].startswith("sync-copies: 2 unchanged, 4 failed (")
    assert {one.status for one in api.copy_writes()} == {403}
    kubectl("delete clusterrole,clusterrolebinding reader")
