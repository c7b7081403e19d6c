"""The situations of roll-workloads, for docs/outputs.md."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from jobs.__main__ import chores
from kubesandbox import Sandbox
from tests.apis import Api
from tests.workloads import FROM_A_VOLUME, OPT_IN, settle, workload
from tests.worlds import configmap, secret

Situation = Callable[[Sandbox, Api, Path], str]
AT_ONCE = ("--settle", "0", "--cool-down", "0")
LOGIN = {"volumes": [*FROM_A_VOLUME["volumes"], {"name": "login", "secret": {"secretName": "login"}}]}


WORKLOADS = (workload("team-shop", "api", pod=LOGIN), workload("team-shop", "db", "StatefulSet"))


def run(api: Api, *arguments: str) -> str:
    """Run the command as its ServiceAccount and return what a terminal would show, with its exit code."""
    kubeconfig = api.service_account_kubeconfig("kube-chores", "roll-workloads")
    done = CliRunner().invoke(chores, ["roll-workloads", *arguments], env={"KUBECONFIG": str(kubeconfig)})
    text = re.sub(r"^roll-workloads: writing to .*\n", "", done.output, flags=re.M)
    text = re.sub(r"\b\d+ s ago", "3 s ago", re.sub(r'"[0-9a-f]{32}"', '"0f1e2d3c"', text))
    shown = f"$ chores roll-workloads {' '.join(arguments)}".rstrip()
    return f"{shown}\n{text}(exit code {int(done.exit_code)})"


def shop(api: Api) -> None:
    """Two workloads of team-shop."""
    api.create(configmap("team-shop"))
    api.create(secret("team-shop"))
    for each in WORKLOADS:
        settle(api, api.create(each))


def adopted(api: Api) -> None:
    """The same, looked at before."""
    shop(api)
    run(api)
    for each in WORKLOADS:
        settle(api, each)


def change(api: Api) -> None:
    api.patch(configmap("team-shop"), {"data": {"a": "changed"}})


def first(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    shop(api)
    return f"{run(api)}\n{run(api)}"


def changed(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    adopted(api)
    change(api)
    api.patch(secret("team-shop"), {"data": secret("team-shop")["data"]})
    waiting = run(api)
    return f"{waiting}\n{run(api, *AT_ONCE, '--diff')}"


def on_hold(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    shop(api)
    fresh = workload("team-shop", "fresh", pod={"volumes": [{"name": "v", "configMap": {"name": "to-come"}}]})
    api.create(fresh)
    run(api)
    change(api)
    api.patch(workload("team-shop", "api"), {"spec": {"paused": True}})
    api.patch(workload("team-shop", "db", "StatefulSet"), {"spec": {"updateStrategy": {"type": "OnDelete"}}})
    return run(api, *AT_ONCE)


def budget(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    adopted(api)
    change(api)
    return f"{run(api, *AT_ONCE, '--max-rolls', '1')}\n{run(api, *AT_ONCE, '--max-rolls', '1')}"


def nobody(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    api.create(workload("team-shop", "web", asks="yes"))
    unclear = run(api)
    api.patch(workload("team-shop", "web"), {"metadata": {"annotations": {OPT_IN: None}}})
    return f"{unclear}\n{run(api)}"


def no_right(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    shop(api)
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding"}
    api.delete({**kind, "metadata": {"name": "kube-chores-roll-workloads-secrets"}})
    return run(api)


SITUATIONS: dict[str, Situation] = {
    "A first run, and a second one": first,
    "Config changed a moment ago, and is rolled at once": changed,
    "Workloads on hold": on_hold,
    "More rolls than a run may do": budget,
    "An annotation that is not clear, and none": nobody,
    "The right to read Secrets is missing": no_right,
}
