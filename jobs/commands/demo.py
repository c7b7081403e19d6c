"""demo: run the jobs on the embedded cluster, with a small example of teams and rules. The output is of real runs."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from jobs.core.mirror_audit.desired import NODE_NAMESPACE
from jobs.core.mirror_audit.observed import NAMESPACE
from jobs.kit.api.connect import connect
from jobs.kit.api.responses import Request, error_of
from jobs.kit.api.transport import Transport
from jobs.kit.files import crd, crd_names
from jobs.kit.values import resources

RESOURCES = {each.kind: each for each in vars(resources).values() if isinstance(each, resources.Resource)}
EVERYWHERE = "every namespace except kube-* and scratch, which opts out with an annotation"
MIRROR = "registry-mirror-docker-hub"
NOT_INSTALLED = (
    "the demo needs the embedded cluster (kubesandbox), which is not part of the image; "
    "run make demo in a clone of the repository, or install the package with the extra sandbox"
)
LOGIN = resources.SECRETS.path("platform", "registry-login")
CA_BUNDLE = resources.CONFIGMAPS.path("platform", "ca-bundle")
EDITED = resources.CONFIGMAPS.path("team-shop", "ca-bundle")


class _NotInstalledError(click.ClickException):
    exit_code = 2


@click.command("demo")
@click.option("--keep", is_flag=True, help="Leave the cluster running afterwards, until Ctrl-C.")
def command(keep: bool) -> None:
    """Show the jobs on an embedded API server. It needs no Kubernetes cluster and no container engine."""
    try:
        from kubesandbox import Sandbox

        sandbox = Sandbox()
    except ModuleNotFoundError as error:
        raise _NotInstalledError(NOT_INSTALLED if error.name == "kubesandbox" else str(error)) from error
    with tempfile.TemporaryDirectory(prefix="chores-demo-") as folder, sandbox:
        kubeconfig = Path(folder) / "kubeconfig"
        sandbox.kubeconfig(kubeconfig, namespace="kube-chores", context="demo")
        os.environ["KUBECONFIG"] = str(kubeconfig)
        _show()
        if keep:
            _keep(kubeconfig)


def _show() -> None:
    with closing(Transport(connect().endpoint, "demo")) as transport:
        _show_copies(transport)
        _show_rates()
        _show_mirror(transport)
        _show_rolls(transport)
        _show_farm(transport)


def _show_copies(transport: Transport) -> None:
    _heading("An embedded cluster with a platform team, three product teams, and two rules:")
    _create(transport, [crd(plural) for plural in crd_names()])
    _create(transport, _world())
    click.echo(_rules())
    _heading("What would be copied? A dry run changes nothing. Values of Secrets are never printed.")
    _run("sync-copies", "--dry-run", "--diff")
    _heading("Copy. team-billing already has its own ca-bundle: the job does not change it.")
    _run("sync-copies")
    _heading("Run again: nothing to do.")
    _run("sync-copies")
    _heading("A copy is edited by hand, and the registry's password changes at its source ...")
    _edit(transport, EDITED, {"data": {"ca.crt": "oops\n", "notes": "remember to undo this"}})
    _edit(transport, LOGIN, {"stringData": {"password": "another-of-the-demo"}})
    _run("sync-copies", "--diff")
    _heading("... and the next run has nothing to do.")
    _run("sync-copies")
    _heading("Why does scratch have no copy?")
    _run("sync-copies", "--explain", "scratch")


def _show_rates() -> None:
    with _rates_server() as url:
        os.environ["CHORES_ECB_URL"] = url
        _heading("Exchange rates for team-shop, from a local server in place of the ECB: its rates are invented.")
        _run("fetch-rates")
        _heading("Run again: one request to the provider, nothing is written.")
        _run("fetch-rates")
        _heading("Print one rate: this needs neither a cluster nor an ExchangeRate.")
        _run("fetch-rates", "--currency", "CHF", "--base", "USD")


def _show_mirror(transport: Transport) -> None:
    _heading("A RegistryMirror of Docker Hub whose resources do not exist yet:")
    _run("mirror-audit")
    _heading("A repair creates them step by step: nodes use the mirror once its registry is ready.")
    _run("mirror-audit", "--repair")
    _set_status(transport, resources.CLAIMS, {"phase": "Bound", "capacity": {"storage": "20Gi"}})
    _set_status(transport, resources.STATEFUL_SETS, {"observedGeneration": 1, "updatedReplicas": 1, "readyReplicas": 1})
    _run("mirror-audit", "--repair")
    _set_status(transport, resources.DAEMON_SETS, {"observedGeneration": 1, **dict.fromkeys(_OF_NODES, 1)}, "-node")
    _heading("The image of the registry is changed by hand, and a Service is deleted ...")
    image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "registry:2"}]
    _edit(transport, resources.STATEFUL_SETS.path(NAMESPACE, MIRROR), image, "application/json-patch+json")
    _send(transport, Request("DELETE", resources.SERVICES.path(NAMESPACE, f"{MIRROR}-headless")))
    _run("mirror-audit", "--repair", "--diff")


def _show_rolls(transport: Transport) -> None:
    _heading("A Deployment of team-shop opts in to restarts. The first run records its config as the baseline.")
    _run("roll-workloads")
    _edit(transport, f"{resources.DEPLOYMENTS.path('team-shop', 'shop')}/status", {"status": {"observedGeneration": 3}})
    _heading("The platform team renews the CA bundle; its copy in team-shop changes, then the Deployment restarts.")
    _edit(transport, CA_BUNDLE, {"data": {"ca.crt": "the certificate of 2027\n"}})
    _run("sync-copies")
    _run("roll-workloads", "--settle", "0")
    _run("roll-workloads", "--settle", "0")


def _show_farm(transport: Transport) -> None:
    _heading("The pods of team-shop, for users without access to pods: a pod spec may contain a password.")
    _run("farm-pods")
    _heading("A pod is deleted, its FarmPod with it, and another pod is created.")
    _send(transport, Request("DELETE", resources.PODS.path("team-shop", "web-1")))
    _create(transport, [{**each, "metadata": {**each["metadata"], "name": "web-2"}} for each in _pods()[:1]])
    _run("farm-pods")


_OF_NODES = ("desiredNumberScheduled", "updatedNumberScheduled", "numberReady")


def _set_status(transport: Transport, resource: resources.Resource, status: dict[str, Any], suffix: str = "") -> None:
    """Set a status that controllers or nodes would set: the embedded cluster has none."""
    namespace = NODE_NAMESPACE if resource is resources.DAEMON_SETS else NAMESPACE
    _edit(transport, f"{resource.path(namespace, MIRROR + suffix)}/status", {"status": status})


RATES = """<Envelope xmlns="http://www.ecb.int/vocabulary/2002-08-01/eurofxref"><Cube><Cube time="{day}">
<Cube currency="USD" rate="1.1380"/><Cube currency="CHF" rate="0.9360"/><Cube currency="GBP" rate="0.87125"/>
</Cube></Cube></Envelope>"""


class _RatesHandler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = RATES.format(day=datetime.now(timezone.utc).date()).encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Log nothing: the demo prints the output of the jobs only."""


@contextmanager
def _rates_server() -> Iterator[str]:
    """Serve rates on loopback; yield the URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _RatesHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/eurofxref-daily.xml"
        finally:
            server.shutdown()


def _world() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((files("jobs.commands") / "demo.yaml").read_text()))


def _pods() -> list[dict[str, Any]]:
    return [each for each in _world() if each["kind"] == resources.PODS.kind]


def _rules() -> str:
    lines = []
    for rule in (each for each in _world() if each["kind"] == resources.RULES.kind):
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
    response = transport.send(request)
    error = error_of(response)
    if error:
        raise click.ClickException(f"{request.method} {request.path}: {error}")
    return response.body


def _run(*arguments: str) -> None:
    from jobs.__main__ import chores

    click.secho(f"$ chores {' '.join(arguments)}", bold=True)
    chores.main(arguments, prog_name="chores", standalone_mode=False)


def _heading(text: str) -> None:
    click.secho(f"\n# {text}", fg="cyan")


def _keep(kubeconfig: Path) -> None:
    chores = "chores" if shutil.which("chores") else shlex.quote(str(Path(sys.executable).with_name("chores")))
    _heading("The cluster is still running. Try in another terminal:")
    click.echo(f"  export KUBECONFIG={kubeconfig}")
    click.echo("  kubectl get copyrators,exchangerates,registrymirrors -A")
    click.echo("  kubectl get farm -A")
    click.echo("  kubectl get configmaps,secrets -A -l app.kubernetes.io/managed-by=kube-chores")
    click.echo("  kubectl describe secret registry-login -n team-shop")
    click.echo(f"  {chores} sync-copies -v")
    click.echo("Press Ctrl-C to stop it.")
    try:
        signal.pause()
    except KeyboardInterrupt:
        click.echo()
