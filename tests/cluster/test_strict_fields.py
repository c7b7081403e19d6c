"""What a version of Kubernetes no longer has, or does not have yet; `make test-versions` runs it on each version."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.apis import Api, wait_for
from tests.control_plane import ControlPlane, deprecated_requests, programs, version
from tests.manifests import ROOT
from tests.policies import has_policies

CRONJOBS = ROOT / "cronjobs"
COMPONENTS = ["network-policies", "dry-run"] + ["without-policies"] * (not has_policies(version()))
# kubectl's own warning, about objects that another test applied client-side.
MIGRATION = "Warning: failed to migrate kubectl.kubernetes.io/last-applied-configuration for Server-Side Apply"

pytestmark = [pytest.mark.cluster, pytest.mark.parametrize("api", ["real"], indirect=True)]


def test_the_server_has_each_field_of_the_manifests_and_gives_no_warning(api: Api, tmp_path: Path) -> None:
    where = os.path.relpath(CRONJOBS, tmp_path)
    own = {
        "resources": [where, f"{where}/mirror-repair"],
        "components": [f"{where}/components/{name}" for name in COMPONENTS],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))

    apply = ["apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-k"]
    kubectl = [str(programs() / "kubectl"), "--kubeconfig", str(api.kubeconfig), "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run([*kubectl, *apply, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    of_the_server = [line for line in done.stderr.splitlines() if not line.startswith(MIGRATION)]
    assert of_the_server == []
    assert "cronjob.batch/mirror-repair serverside-applied (server dry run)" in done.stdout.splitlines()


def test_a_request_to_a_deprecated_api_is_found(api: Api, plane: ControlPlane) -> None:
    """`plane` compares the same list, with the jobs' user agent, with an empty one."""
    path = "/api/v1/componentstatuses"  # deprecated since 1.19

    api.call("GET", path, headers={"User-Agent": "tests-deprecated"})

    wait_for(lambda: deprecated_requests(plane.audit_log, "tests-deprecated") == [path], f"{path} in the audit log")
