"""The situations of farm-pods, for docs/outputs.md."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from jobs.__main__ import chores
from kubesandbox import Sandbox
from tests.apis import Api
from tests.farm import FARMED, farm_pod, pod

Situation = Callable[[Sandbox, Api, Path], str]


def run(api: Api, *arguments: str) -> str:
    """Run the command as its ServiceAccount and return what a terminal would show, with its exit code."""
    kubeconfig = api.service_account_kubeconfig("kube-chores", "farm-pods")
    done = CliRunner().invoke(chores, ["farm-pods", *arguments], env={"KUBECONFIG": str(kubeconfig)})
    text = re.sub(r"^farm-pods: writing to .*\n", "", done.output, flags=re.M)
    text = re.sub(r"--kubeconfig \S+", "--kubeconfig ~/.kube/config", text)
    return f"$ chores farm-pods {' '.join(arguments)}".rstrip() + f"\n{text}(exit code {int(done.exit_code)})"


def farmed(api: Api, *pods: str) -> None:
    api.patch({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-shop"}}, labelled(True))
    for name in pods:
        api.create(pod("team-shop", name, containers=2 if name.startswith("web") else 1))


def labelled(yes: bool) -> dict[str, object]:
    return {"metadata": {"labels": FARMED if yes else dict.fromkeys(FARMED)}}


def first(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    farmed(api, "web-0", "web-1", "rates-29384")
    return "\n".join([run(api), run(api), run(api, "-v")])


def renewed(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    farmed(api, "web-0", "web-1")
    run(api)
    api.patch(farm_pod("team-shop", "web-0"), {"spec": {"containers": 3}})
    api.patch(farm_pod("team-shop", "web-1"), {"metadata": {"ownerReferences": None}})
    shown = run(api, "--diff")
    return re.sub(r'"[0-9a-f-]{36}"', '"0f2d8c1e-6f0b-4a51-9d6c-6e4a7b1c2d3e"', shown)


def conflict(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    farmed(api, "web-0", "web-1")
    api.create(farm_pod("team-shop", "web-0", containers=9))
    return run(api)


def braked(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    farmed(api, "web-0", "web-1", "rates-29384")
    return run(api, "--max-objects", "2")


def stray(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    farmed(api, "web-0")
    run(api)
    api.patch(farm_pod("team-shop", "web-0"), {"metadata": {"ownerReferences": None}})
    api.delete(pod("team-shop", "web-0"))
    return run(api)


def opted_out(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    farmed(api, "web-0")
    run(api)
    api.patch({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-shop"}}, labelled(False))
    return "\n".join([run(api), run(api, "-v")])


SITUATIONS: dict[str, Situation] = {
    "A first run, a second one, and the second one with -v": first,
    "FarmPods were changed by hand": renewed,
    "A FarmPod of that name is not ours": conflict,
    "There would be more FarmPods than allowed": braked,
    "A FarmPod lost its owner before that was deleted": stray,
    "A namespace does not opt in any more": opted_out,
}
