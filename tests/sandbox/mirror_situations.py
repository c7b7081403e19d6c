"""The situations of mirror-audit, for docs/outputs.md."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from jobs.__main__ import chores
from kubesandbox import Fault, Sandbox
from tests.apis import Api
from tests.mirrors import NAMESPACE, Mirrors, credentials, registry_mirror
from tests.rates import status
from tests.registries import Registries, serve

Situation = Callable[[Sandbox, Api, Path], str]
TABLE = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}


def run(api: Api, *arguments: str, registries: Registries | None = None, account: str = "mirror-audit") -> str:
    """Run the command as its ServiceAccount and return what a terminal would show, with its exit code."""
    kubeconfig = api.service_account_kubeconfig("kube-chores", account)
    env = {**(registries.env if registries else {}), "KUBECONFIG": str(kubeconfig)}
    done = CliRunner().invoke(chores, ["mirror-audit", *arguments], env=env)
    text = re.sub(r"^mirror-audit: writing to .*\n", "", done.output, flags=re.M)
    text = text.replace(registries.upstream, "registry.example.com") if registries else text
    shown = f"$ chores mirror-audit {' '.join(arguments)}".rstrip()
    return f"{shown}\n{text}(exit code {int(done.exit_code)})"


def listed(api: Api, upstream: str = "") -> str:
    """What `kubectl get registrymirrors` shows, without the age."""
    table = api.call("GET", "/apis/kubechores.dev/v1/registrymirrors", headers=TABLE)
    shown = [n for n, column in enumerate(table["columnDefinitions"]) if not column["priority"]][:-1]
    rows = [[table["columnDefinitions"][n]["name"].upper() for n in shown]]
    rows += [[str(row["cells"][n]) for n in shown] for row in table["rows"]]
    rows = [[cell.replace(upstream, "registry.example.com") if upstream else cell for cell in row] for row in rows]
    widths = [max(len(row[n]) for row in rows) for n in range(len(shown))]
    lines = ("   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(["$ kubectl get registrymirrors", *lines])


def two(api: Api) -> Mirrors:
    """Two mirrors that are well, on three nodes."""
    mirrors = Mirrors(api)
    for number in range(3):
        mirrors.node(f"node-{number}")
    for name, upstream in (("docker-hub", "docker.io"), ("quay", "quay.io")):
        mirrors.make(api.create(registry_mirror(name, upstream)))
    return mirrors


def well(_sandbox: Sandbox, api: Api, folder: Path) -> str:
    mirrors = Mirrors(api)
    mirrors.node()
    with serve(folder) as registries:
        mirrors.make(api.create(registry_mirror("internal", registries.upstream)))
        said = [run(api, "--reach", "network", *more, registries=registries) for more in ([], ["-v"])]
        return "\n".join([*said, listed(api, registries.upstream)])


def not_asked(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    two(api)
    return "\n".join([run(api), listed(api)])


def changed(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    mirrors = two(api)
    hub, quay = (mirrors.of(registry_mirror(*each)) for each in (("docker-hub",), ("quay", "quay.io")))
    document = quay.stateful_set.document()
    document["spec"]["replicas"] = 2
    document["spec"]["template"]["spec"]["containers"][0]["image"] = "registry:2"
    mirrors.apply(document, "kubectl-client-side-apply")
    numbers = {"replicas": 2, "updatedReplicas": 1, "readyReplicas": 2}
    mirrors.status(document, **numbers)
    mirrors.edit(registry_mirror("docker-hub"), {"spec": {"storage": {"size": "50Gi"}}})
    api.delete(quay.headless_service.document())
    mirrors.slice(hub, ready=True)
    return "\n".join([run(api, "--diff"), listed(api)])


def unanswered(_sandbox: Sandbox, api: Api, folder: Path) -> str:
    mirrors = Mirrors(api)
    mirrors.node()
    with serve(folder) as registries:
        mirror = mirrors.make(api.create(registry_mirror("internal", registries.upstream)))
        registries.answers[registries.upstream] = status(404)
        registries.answers[f"{mirror.name}.{NAMESPACE}.svc:5000"] = status(404)
        return run(api, "--reach", "network", registries=registries)


def login(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    mirrors = Mirrors(api)
    mirrors.node()
    api.create(credentials("hub-login", "quay.io"))
    mirrors.make(api.create(registry_mirror("docker-hub", credentialsSecret="hub-login")))
    return run(api)


def left(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    two(api)
    api.delete(registry_mirror("quay"))
    return run(api)


def denied(sandbox: Sandbox, api: Api, _folder: Path) -> str:
    two(api)
    sandbox.inject(Fault("GET", "/apis/apps/v1/namespaces/*/daemonsets", status=403, times=None))
    return "\n".join([run(api), listed(api)])


def repaired(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    mirrors = two(api)
    quay = mirrors.of(registry_mirror("quay", "quay.io"))
    mirrors.edit(quay.stateful_set.document(), {"spec": {"replicas": 2}})
    mirrors.edit(registry_mirror("docker-hub"), {"spec": {"storage": {"size": "10Gi"}}})
    api.create(registry_mirror("ghcr", "ghcr.io"))
    return run(api, "--repair", account="mirror-repair")


def forgotten(_sandbox: Sandbox, api: Api, _folder: Path) -> str:
    mirrors = two(api)
    quay = mirrors.of(registry_mirror("quay", "quay.io"))
    api.delete(registry_mirror("quay"))
    first = run(api, "--repair", account="mirror-repair")
    mirrors.settle(quay)
    return "\n".join([first, run(api, "--repair", account="mirror-repair")])


SITUATIONS: dict[str, Situation] = {
    "All is well": well,
    "All that is looked at from a laptop is well": not_asked,
    "Somebody changed a mirror": changed,
    "A mirror and its upstream do not answer": unanswered,
    "A login is not for this upstream": login,
    "A mirror is gone, and what was made for it is not": left,
    "Something cannot be read": denied,
    "A repair makes one mirror, sets another right, and cannot shrink the volume of a third": repaired,
    "A repair removes a mirror that is gone: nodes forget it first": forgotten,
}
