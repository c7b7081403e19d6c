"""demo: the jobs at work on the embedded cluster, in a small believable setting. Every line of output is a real run."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from jobs.copies.rules import RULES
from jobs.farm.farm_pod import PODS
from jobs.install_crds import CRDS
from jobs.kit.cluster import error_of
from jobs.kit.connect import connect
from jobs.kit.objects import CONFIGMAPS, NAMESPACES, SECRETS, Resource
from jobs.kit.schema import crd, crd_names
from jobs.kit.transport import Request, Transport
from jobs.mirrors.manifests import CLAIMS, DAEMON_SETS, SERVICES, STATEFUL_SETS
from jobs.mirrors.mirror import NODE_NAMESPACE
from jobs.mirrors.observed import NAMESPACE, NODES, SLICES
from jobs.mirrors.registry_mirrors import REGISTRY_MIRRORS
from jobs.rates.exchange_rates import EXCHANGE_RATES
from jobs.rolls.workloads import DEPLOYMENTS

LLAMAS = Resource("kubechores.dev/v1", "Llama", "llamas")
KINDS = (
    NAMESPACES,
    CONFIGMAPS,
    SECRETS,
    RULES,
    EXCHANGE_RATES,
    CRDS,
    REGISTRY_MIRRORS,
    NODES,
    SLICES,
    DEPLOYMENTS,
    PODS,
    LLAMAS,
)
RESOURCES: dict[str, Resource] = {each.kind: each for each in KINDS}
EVERYWHERE = "every namespace but kube-* and scratch, which is annotated to get none"
MIRROR = "registry-mirror-docker-hub"
EDITED = CONFIGMAPS.path("team-shop", "ca-bundle")


@click.command("demo")
@click.option("--keep", is_flag=True, help="Leave the cluster running afterwards, until Ctrl-C.")
def command(keep: bool) -> None:
    """Show the jobs on an embedded API server. It needs no Kubernetes cluster and no container engine."""
    try:
        from kubesandbox import Sandbox

        sandbox = Sandbox()
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    with tempfile.TemporaryDirectory(prefix="chores-demo-") as folder, sandbox:
        kubeconfig = Path(folder) / "kubeconfig"
        sandbox.kubeconfig(kubeconfig, namespace="kube-chores", context="demo")
        os.environ["KUBECONFIG"] = str(kubeconfig)
        _show()
        if keep:
            _keep(kubeconfig)


def _show() -> None:
    transport = Transport(connect().endpoint, "demo")
    _say("An embedded cluster with a platform team, three product teams, and two rules:")
    _create(transport, [crd(plural) for plural in crd_names()])
    _create(transport, _world())
    click.echo(_rules())
    _say("What would be copied? A dry run changes nothing. Values of Secrets never show.")
    _run("sync-copies", "--dry-run", "--diff")
    _say("Copy. team-billing has a ca-bundle of its own: it stays untouched.")
    _run("sync-copies")
    _say("Run again: nothing to do.")
    _run("sync-copies")
    _say("A copy is edited by hand, and the registry's password changes at its source ...")
    _edit(transport, EDITED, {"data": {"ca.crt": "oops\n", "notes": "remember to undo this"}})
    _edit(transport, SECRETS.path("platform", "registry-login"), {"stringData": {"password": "another-of-the-demo"}})
    _run("sync-copies", "--diff")
    _say("... and all is well again.")
    _run("sync-copies")
    transport.close()
    with _publisher() as url:
        os.environ["CHORES_ECB_URL"] = url
        _say("Exchange rates for team-shop, from a stand-in for the ECB on this machine: its figures are made up.")
        _run("fetch-rates")
        _say("Run again: the provider is asked once, nothing is written.")
        _run("fetch-rates")
        _say("A rate to look at takes neither a cluster nor an ExchangeRate.")
        _run("fetch-rates", "--currency", "CHF", "--base", "USD")
    transport = Transport(connect().endpoint, "demo")
    _say("A mirror of Docker Hub that nobody has made yet:")
    _run("mirror-audit")
    _say("A repair makes it step by step: nodes are told of it once its registry is ready.")
    _run("mirror-audit", "--repair")
    _be_at_work(transport, CLAIMS, {"phase": "Bound", "capacity": {"storage": "20Gi"}})
    _be_at_work(transport, STATEFUL_SETS, {"observedGeneration": 1, "updatedReplicas": 1, "readyReplicas": 1})
    _run("mirror-audit", "--repair")
    _be_at_work(transport, DAEMON_SETS, {"observedGeneration": 1, **dict.fromkeys(_OF_NODES, 1)}, "-node")
    _say("Somebody tries another image, and a Service is lost ...")
    image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "registry:2"}]
    _edit(transport, STATEFUL_SETS.path(NAMESPACE, MIRROR), image, "application/json-patch+json")
    _send(transport, Request("DELETE", SERVICES.path(NAMESPACE, f"{MIRROR}-headless")))
    _run("mirror-audit", "--repair", "--diff")
    _say("A Deployment of team-shop asks to follow its config. The first run takes note of that, and restarts nothing.")
    _run("roll-workloads")
    _edit(transport, f"{DEPLOYMENTS.path('team-shop', 'shop')}/status", {"status": {"observedGeneration": 2}})
    _say("The platform team renews the CA bundle; its copy in team-shop follows, and then the Deployment.")
    _edit(transport, CONFIGMAPS.path("platform", "ca-bundle"), {"data": {"ca.crt": "the certificate of 2027\n"}})
    _run("sync-copies")
    _run("roll-workloads", "--settle", "0")
    _run("roll-workloads", "--settle", "0")
    _say("The pods of team-shop, for people who may not read pods: their environment holds a password.")
    _run("farm-pods")
    _say("A pod goes, its FarmPod with it, and another pod comes.")
    _send(transport, Request("DELETE", PODS.path("team-shop", "web-1")))
    _create(transport, [{**each, "metadata": {**each["metadata"], "name": "web-2"}} for each in _pods()[:1]])
    _run("farm-pods")
    transport.close()


_OF_NODES = ("desiredNumberScheduled", "updatedNumberScheduled", "numberReady")


def _be_at_work(transport: Transport, resource: Resource, status: dict[str, Any], suffix: str = "") -> None:
    """Say of a resource of the mirror what controllers and nodes would, which the embedded cluster has none of."""
    namespace = NODE_NAMESPACE if resource is DAEMON_SETS else NAMESPACE
    _edit(transport, f"{resource.path(namespace, MIRROR + suffix)}/status", {"status": status})


RATES = """<Envelope xmlns="http://www.ecb.int/vocabulary/2002-08-01/eurofxref"><Cube><Cube time="{day}">
<Cube currency="USD" rate="1.1380"/><Cube currency="CHF" rate="0.9360"/><Cube currency="GBP" rate="0.87125"/>
</Cube></Cube></Envelope>"""


class _Publisher(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = RATES.format(day=datetime.now(timezone.utc).date()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None:
        """Say nothing: the demo shows what the job says."""


@contextmanager
def _publisher() -> Iterator[str]:
    """Publish rates on loopback; yield the URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Publisher) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/eurofxref-daily.xml"
        finally:
            server.shutdown()


def _world() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((files("jobs") / "demo.yaml").read_text()))


def _pods() -> list[dict[str, Any]]:
    return [each for each in _world() if each["kind"] == PODS.kind]


def _rules() -> str:
    lines = []
    for rule in (each for each in _world() if each["kind"] == RULES.kind):
        spec = rule["spec"]
        (label,) = spec["selector"]["matchLabels"].items()
        targets = ", ".join(spec.get("targets", {}).get("include", [EVERYWHERE]))
        lines.append(f"  {spec['ruleType']}s of {spec['namespaces'][0]} with {'='.join(label)} -> {targets}")
    return "\n".join(lines)


def _create(transport: Transport, objects: Sequence[dict[str, Any]]) -> None:
    for each in objects:
        path = RESOURCES[each["kind"]].path(each["metadata"].get("namespace", ""))
        _send(transport, Request("POST", path, msgspec.json.encode(each)))


def _edit(transport: Transport, path: str, patch: Any, media: str = "application/merge-patch+json") -> None:
    body = msgspec.json.encode(patch)
    _send(transport, Request("PATCH", f"{path}?fieldManager=kubectl-edit", body, content_type=media))


def _send(transport: Transport, request: Request) -> bytes:
    answer = transport.send(request)
    error = error_of(answer)
    if error:
        raise click.ClickException(f"{request.method} {request.path}: {error}")
    return answer.body


def _run(*arguments: str) -> None:
    from jobs.__main__ import chores

    click.secho(f"$ chores {' '.join(arguments)}", bold=True)
    chores.main(arguments, prog_name="chores", standalone_mode=False)


def _say(text: str) -> None:
    click.secho(f"\n# {text}", fg="cyan")


def _keep(kubeconfig: Path) -> None:
    chores = "chores" if shutil.which("chores") else shlex.quote(str(Path(sys.executable).with_name("chores")))
    _say("The cluster is still running. In another terminal:")
    click.echo(f"  export KUBECONFIG={kubeconfig}")
    click.echo("  kubectl get copyrators,exchangerates,registrymirrors -A")
    click.echo("  kubectl get farm -A")
    click.echo("  kubectl get configmaps,secrets -A -l app.kubernetes.io/managed-by=kube-chores")
    click.echo("  kubectl describe secret registry-login -n team-shop")
    click.echo(f"  {chores} sync-copies -v")
    click.echo("Ctrl-C ends it.")
    try:
        signal.pause()
    except KeyboardInterrupt:
        click.echo()
