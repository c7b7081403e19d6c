"""kubectl on the embedded cluster: the commands that users of the demo type."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubesandbox import Sandbox
from tests.control_plane import programs
from tests.manifests import ROOT

Kubectl = Callable[..., str]

RULE = """\
apiVersion: kubechores.dev/v1
kind: CopyratorRule
metadata: {name: main-rule}
spec: {ruleType: configmap, selector: {matchLabels: {copyrator: "true"}}}
"""
CRON_JOB = """\
apiVersion: batch/v1
kind: CronJob
metadata: {name: chore}
spec:
  schedule: "* * * * *"
  suspend: true
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: chore, image: "chores:1", args: [sync-copies], env: [{name: A, value: "1"}]}]
"""

COPIED = """\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: a}
spec: {podSelector: {matchLabels: {tier: one}}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: a}
spec: {limits: [{type: Container, max: {memory: 1024Mi}}]}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: a}
spec: {hard: {pods: 10, limits.cpu: 2000m}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: a}
imagePullSecrets: [{name: one}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: "a:b"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: one}]
"""


@pytest.fixture(params=["built", "installed"])
def kubectl(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kubectl]:
    """Run kubectl as the admin; it must succeed."""
    built = programs() / "kubectl"
    program = str(built) if request.param == "built" else shutil.which("kubectl")
    if not program or not Path(program).exists():
        pytest.skip(f"no {request.param} kubectl here")
    with Sandbox() as sandbox:
        kubeconfig = sandbox.kubeconfig(tmp_path / "kubeconfig")
        env = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(tmp_path), "EDITOR": "sed -i s/one/two/"}

        def run(*words: str, stdin: str = "", fails: bool = False) -> str:
            done = subprocess.run(
                [program, *words], input=stdin, env=env, capture_output=True, text=True, timeout=300, check=False
            )
            assert bool(done.returncode) is fails, done.stderr
            return done.stdout + (done.stderr if fails else "")

        yield run


def test_objects(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "team")
    kubectl("create", "configmap", "settings", "--from-literal=a=one", "-n", "team")
    kubectl("create", "secret", "generic", "login", "--from-literal=p=canary-1", "-n", "team")
    kubectl("label", "configmap", "settings", "copyrator=true", "-n", "team")
    kubectl("annotate", "configmap", "settings", "note=x", "-n", "team")
    kubectl("patch", "configmap", "settings", "-n", "team", "-p", '{"data":{"b":"2"}}')
    kubectl("edit", "configmap", "settings", "-n", "team")

    listed = kubectl("get", "configmaps", "-A", "-l", "copyrator", "--no-headers").split()
    shown = kubectl("describe", "configmap", "settings", "-n", "team")
    assert listed[:3] == ["team", "settings", "2"]
    assert "two" in shown
    assert kubectl("get", "secret", "login", "-n", "team", "-o", "jsonpath={.type}") == "Opaque"
    kubectl("delete", "configmap", "settings", "-n", "team")
    assert "NotFound" in kubectl("get", "configmap", "settings", "-n", "team", fails=True)
    kubectl("delete", "namespace", "team")
    assert 'namespaces "team" not found' in kubectl("get", "namespace", "team", fails=True)


def test_custom_resources(kubectl: Kubectl) -> None:
    crds = str(ROOT / "cronjobs/crds/copyrators.yaml")
    assert "created" in kubectl("apply", "-f", crds)
    kubectl("wait", "--for=condition=Established", "crd/copyrators.kubechores.dev", "--timeout=60s")
    assert "created" in kubectl("apply", "-f", "-", stdin=RULE)
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=RULE)
    assert "configured" in kubectl("apply", "-f", "-", stdin=RULE.replace('"true"', '"yes"'))
    assert "serverside-applied" in kubectl(
        "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=RULE.replace('"true"', '"yes"')
    )

    lines = kubectl("get", "copyr").splitlines()
    assert lines[0].split() == ["NAME", "TYPE", "SOURCES", "COPIES", "CONFLICTS", "READY", "LAST", "RUN", "AGE"]
    assert lines[1].split()[:3] == ["main-rule", "configmap", "Unknown"]
    for name in ("copyratorrule", "copyratorrules", "copyrator"):
        assert "NotRead" in kubectl("get", name, "-o", "wide")
    assert "must name at least one label" in kubectl("explain", "copyrators.spec.selector")
    assert "main-rule" in kubectl("get", "kubechores")
    unknown = kubectl("apply", "-f", "-", stdin=RULE.replace("ruleType:", "extra: 1, ruleType:"), fails=True)
    assert 'strict decoding error: unknown field "spec.extra"' in unknown
    assert "deleted" in kubectl("delete", "-f", crds)


def test_a_job_by_hand(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=CRON_JOB)
    kubectl("create", "job", "by-hand", "--from=cronjob/chore")

    container = kubectl("get", "job", "by-hand", "-o", "jsonpath={.spec.template.spec.containers[0]}")
    assert '"args":["sync-copies"]' in container
    assert '"env":[{"name":"A","value":"1"}]' in container
    assert "cronjob.batch/chore" in kubectl("get", "all")


def test_rights(kubectl: Kubectl) -> None:
    kubectl("create", "serviceaccount", "reader")
    kubectl("create", "rolebinding", "reads", "--clusterrole=view", "--serviceaccount=default:reader")
    robot = "--as=system:serviceaccount:default:reader"

    assert kubectl("auth", "can-i", "list", "configmaps", robot).strip() == "yes"
    assert "no" in kubectl("auth", "can-i", "list", "secrets", robot, fails=True)
    assert 'cannot list resource "secrets"' in kubectl("get", "secrets", robot, fails=True)
    assert len(kubectl("create", "token", "reader").split(".")) == 3


def test_policies_limits_and_accounts(kubectl: Kubectl) -> None:
    for ways in ([], ["--server-side", "--force-conflicts"]):
        assert "unchanged" not in kubectl("apply", *ways, "-f", "-", stdin=COPIED)
    for kind, name in (("networkpolicy", "a"), ("serviceaccount", "a"), ("rolebinding", "a:b")):
        kubectl("edit", kind, name)
    kubectl("patch", "quota", "a", "-p", '{"spec": {"hard": {"pods": "11"}}}')
    kubectl("create", "quota", "b", "--hard=pods=2", "--scopes=BestEffort")

    assert kubectl("get", "netpol", "--no-headers").split()[:2] == ["a", "tier=two"]
    assert kubectl("get", "rolebindings", "--no-headers").split()[:2] == ["a:b", "ClusterRole/view"]
    assert kubectl("get", "quota", "a", "-o", "jsonpath={.spec.hard}") == '{"limits.cpu":"2","pods":"11"}'
    assert kubectl("get", "quota", "b", "-o", "jsonpath={.spec}") == '{"hard":{"pods":"2"},"scopes":["BestEffort"]}'
    assert kubectl("get", "sa", "a", "-o", "jsonpath={.imagePullSecrets[0].name}") == "two"
    assert kubectl("get", "limits", "a", "-o", "jsonpath={.spec.limits[0].default}") == '{"memory":"1Gi"}'
    assert "1Gi" in kubectl("describe", "limitrange", "a")
    assert "Allowing ingress traffic" in kubectl("describe", "netpol", "a")
    for kind in ("networkpolicies", "limitranges", "resourcequotas", "serviceaccounts", "rolebindings"):
        assert "KIND:" in kubectl("explain", kind)
    assert kubectl("delete", "-f", "-", stdin=COPIED).count("deleted") == 5


def test_the_program_alone(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    command = [sys.executable, "-m", "kubesandbox", "--kubeconfig", str(kubeconfig), "--fault", "GET /api/* status=500"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(2)]
    process.terminate()

    assert process.wait(60) == 0
    assert lines[0].startswith("serving on http://127.0.0.1:")
    assert lines[1] == f"export KUBECONFIG={kubeconfig}\n"
    process.stdout.close()


def test_the_farm(kubectl: Kubectl) -> None:
    for plural in ("farmpods", "llamas"):
        kubectl("apply", "-f", str(ROOT / "cronjobs" / "crds" / f"{plural}.yaml"))
    kubectl("apply", "-f", str(ROOT / "cronjobs" / "samples" / "farm.yaml"))
    spec = '{"pod": "web", "containers": 2}'
    head = '"apiVersion": "kubechores.dev/v1", "kind": "FarmPod", "metadata": {"name": "farm-web"}'
    kubectl("create", "-f", "-", stdin=f'{{{head}, "spec": {spec}}}')

    llamas, farm = kubectl("get", "ll").split("\n"), kubectl("get", "farm").split()
    assert llamas[0].split() == ["NAME", "WEIGHT", "HEIGHT", "AGE"]
    assert llamas[1].split()[:3] == ["dolly", "31.4", "0.5"]
    assert "farmpod.kubechores.dev/farm-web" in farm
    assert "llama.kubechores.dev/dolly" in farm
    assert kubectl("get", "fp", "-A", "--no-headers").split()[:4] == ["default", "farm-web", "2", "web"]
    assert "Its weight" in kubectl("explain", "llama.spec")
