"""What users read in each situation: docs/outputs.md is written by `make docs` from real runs, and checked here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from jobs.__main__ import chores
from kubesandbox import Fault, Sandbox
from tests.apis import Api, sandbox_api
from tests.canary import canary
from tests.manifests import ROOT, load
from tests.sandbox import farm_situations, mirror_situations, rate_situations, roll_situations
from tests.unit.test_docs import check
from tests.worlds import at, configmap, encoded, rule, secret

HEAD = """# What you read when

Every situation that the jobs know, as they answer. Written by `make docs` from real runs on the embedded cluster.
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[Sandbox, Api]]:
    """An embedded cluster with our manifests, a platform namespace and two teams, a source and a rule of each type."""
    with Sandbox() as sandbox:
        api = sandbox_api(sandbox, tmp_path)
        for obj in [*load(ROOT / "cronjobs"), *load(ROOT / "cronjobs" / "mirror-repair")]:
            api.put(obj)
        for name in ("platform", "team-billing", "team-shop"):
            api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        api.create(configmap("platform", "ca-bundle", data={"ca.crt": "the bundle of 2026"}))
        api.create(secret("platform", "login"))
        api.create(rule("ca", "platform", "team-*"))
        api.create(rule("logins", "platform", "team-*", ruleType="secret"))
        yield sandbox, api


def run(api: Api, tmp_path: Path, *arguments: str) -> str:
    """Run the command as its ServiceAccount and return what a terminal would show, with its exit code."""
    kubeconfig = api.service_account_kubeconfig("kube-chores", "sync-copies")
    done = CliRunner().invoke(chores, ["sync-copies", *arguments], env={"KUBECONFIG": str(kubeconfig)})
    text = re.sub(r"http://127\.0\.0\.1:\d+", "https://api.example.com", done.output).replace(f"{tmp_path}/", "")
    text = re.sub(r"\S+\.kubeconfig", "~/.kube/config", text)
    shown = f"$ chores sync-copies {' '.join(arguments)}".rstrip().replace(f"{tmp_path}/", "")
    text = re.sub(r"^sync-copies: writing to .*\n", "", text, flags=re.M)
    return f"{shown}\n{text}(exit code {int(done.exit_code)})"


Situation = Callable[[Sandbox, Api, Path], str]


def first(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    return f"{run(api, tmp_path)}\n{run(api, tmp_path)}\n{run(api, tmp_path, '-v')}"


def conflict(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    api.create(configmap("team-billing", "ca-bundle", labels={}))
    return f"{run(api, tmp_path)}\n{status(api, 'ca')}"


def adopted(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    api.create(configmap("team-billing", "ca-bundle", labels={}))
    api.patch(rule("ca", "", ""), {"spec": {"conflict": "Adopt"}})
    return run(api, tmp_path)


def edited(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    run(api, tmp_path)
    copy = at("team-shop", configmap("", "ca-bundle"))
    merge = {"Content-Type": "application/merge-patch+json"}
    body = {"data": {"ca.crt": "mine", "extra": "x"}}
    api.call("PATCH", f"{api.path(copy)}?fieldManager=kubectl-edit", body, headers=merge)
    return run(api, tmp_path, "--dry-run", "--diff")


def orphaned(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    run(api, tmp_path)
    api.delete(secret("platform", "login"))
    return run(api, tmp_path)


def retained(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    api.patch(rule("logins", "", ""), {"spec": {"orphans": "Retain"}})
    run(api, tmp_path)
    api.delete(secret("platform", "login"))
    return run(api, tmp_path, "-v")


def braked(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    for number in range(11):
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{number:02}"}})
    run(api, tmp_path)
    api.delete(secret("platform", "login"))
    lines = run(api, tmp_path).splitlines()
    return "\n".join([*lines[:3], "...", *lines[-4:], status(api, "logins")])


def replaced(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    run(api, tmp_path)
    api.delete(secret("platform", "login"))
    data = {"username": encoded(canary())}
    api.create(secret("platform", "login", type="kubernetes.io/basic-auth", data=data))
    return run(api, tmp_path)


def collision(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    api.create(configmap("default", "ca-bundle"))
    api.create(rule("second", "default", "team-shop"))
    return run(api, tmp_path)


def invalid(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    api.create(rule("odd", "platform", "team-*", metadata={"labels": {"helm.sh/chart": "x", "bad": "not valid!"}}))
    return f"{run(api, tmp_path)}\n{status(api, 'odd')}"


def empty_selector(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    file = tmp_path / "rule.yaml"
    file.write_text(yaml.safe_dump(rule("everything", "platform", "*", ruleType="secrets", selector={})))
    return run(api, tmp_path, "-f", str(file))


def old_form(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    file = tmp_path / "rule.yaml"
    old = {"kind": "CopyratorRule", "metadata": {"name": "main-rule"}, "ruleType": "configmap", "namespace": "default"}
    file.write_text(yaml.safe_dump({"apiVersion": "example.com/v1", **old, "selector": {"copyrator": "true"}}))
    return run(api, tmp_path, "-f", str(file))


def no_rule(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    for name in ("ca", "logins"):
        api.delete(rule(name, "", ""))
    return run(api, tmp_path)


def no_crd(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    api.delete(next(obj for obj in load(ROOT / "cronjobs") if obj["kind"] == "CustomResourceDefinition"))
    return run(api, tmp_path)


def no_right(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    for obj in load(ROOT / "cronjobs" / "components" / "secrets"):
        api.delete(obj)
    return run(api, tmp_path)


def failing(sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    sandbox.inject(Fault("POST", "/api/v1/namespaces/team-shop/secrets", status=500, times=None))
    return run(api, tmp_path)


def unauthorized(sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    sandbox.inject(Fault("GET", status=401, times=None))
    return run(api, tmp_path)


def unreachable(_sandbox: Sandbox, api: Api, tmp_path: Path) -> str:
    return run(api, tmp_path, "--context", "elsewhere")


OF_SYNC_COPIES: dict[str, Situation] = {
    "A first run, a second one, and the second one with -v": first,
    "A copy was changed by hand": edited,
    "An object in the way is not ours": conflict,
    "The same with `conflict: Adopt`": adopted,
    "A source is gone, and its copies with it": orphaned,
    "The same with `orphans: Retain`": retained,
    "More would be deleted than the brake allows": braked,
    "A Secret's type changed": replaced,
    "Two sources claim the same place": collision,
    "A rule cannot be followed": invalid,
    "A rule in a file has several problems": empty_selector,
    "A rule in a file has the form of an older tool": old_form,
    "There is no rule": no_rule,
    "The CRD is not installed": no_crd,
    "A right is missing": no_right,
    "A write fails": failing,
    "The credentials are not accepted": unauthorized,
    "There is no such context": unreachable,
}
SITUATIONS = {f"sync-copies: {title}": situation for title, situation in OF_SYNC_COPIES.items()} | {
    f"fetch-rates: {title}": situation for title, situation in rate_situations.SITUATIONS.items()
}
SITUATIONS |= {f"mirror-audit: {title}": situation for title, situation in mirror_situations.SITUATIONS.items()}
SITUATIONS |= {f"roll-workloads: {title}": situation for title, situation in roll_situations.SITUATIONS.items()}
SITUATIONS |= {f"farm-pods: {title}": situation for title, situation in farm_situations.SITUATIONS.items()}


def status(api: Api, name: str) -> str:
    """What the rule says of itself, as `kubectl get -o yaml` shows it."""
    found = api.get(rule(name, "", ""))
    assert found
    told: dict[str, Any] = found["status"]
    for condition in told["conditions"]:
        condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    text = yaml.safe_dump({"status": told}, sort_keys=False, width=110)
    return f"$ kubectl get copyrator {name} -n kube-chores -o yaml\n...\n{text}".rstrip()


@pytest.mark.parametrize("title", SITUATIONS)
def test_a_situation_is_answered_as_the_docs_show(world: tuple[Sandbox, Api], tmp_path: Path, title: str) -> None:
    path = ROOT / "docs" / "outputs.md"
    sections = dict(
        re.findall(r"^## (.*?)\n\n```\n(.*?)\n```$", path.read_text() if path.exists() else "", re.M | re.S)
    )
    sections[title] = SITUATIONS[title](*world, tmp_path)
    parts = [f"## {each}\n\n```\n{sections[each]}\n```\n" for each in SITUATIONS if each in sections]

    check(path, "\n".join([HEAD, *parts]))
