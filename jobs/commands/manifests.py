"""manifests: print the manifests of an installation, without kubectl and without a copy of the repository."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

import click
import yaml

from jobs.kit.files import crd, crd_names
from jobs.kit.values.registry import ACCOUNTS, CLUSTERS, DEFAULT_JOBS, REPAIR
from jobs.kit.values.resources import is_label

COPIES = ("network-policies", "limit-ranges", "resource-quotas", "role-bindings", "service-accounts", "pull-secrets")
HOME = "kube-chores"
# Mirrors use the first two. The labels of the namespace restrict all of its pods, so it must not be one of Kubernetes.
TAKEN = ("kube-chores-mirrors", "kube-chores-nodes", "default", "kube-system", "kube-public", "kube-node-lease")
HUB = "sync-copies-hub"  # the account of a hub in another cluster
SPOKE = "spoke"  # the component of its objects
_OF_A_JOB = re.compile(rf"{HOME}-(?=(?:{'|'.join([*ACCOUNTS, HUB])})(?:-|$))")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MIRRORS = frozenset({"mirror-audit", REPAIR})
# The jobs that need the objects of a component. Every installation needs the other components.
_NEEDED_BY = {job: frozenset({job}) for job in ACCOUNTS} | {"mirrors": _MIRRORS, "mirror-nodes": _MIRRORS}

Object = dict[str, Any]


def shipped() -> list[Object]:
    """Return the objects of all ACCOUNTS, of all COPIES and of a spoke, in the order of `kubectl kustomize`.

    `make docs` writes manifests.yaml, which has all of them except the CRDs.
    """
    text = (files("jobs.commands") / "manifests.yaml").read_text()
    objects: list[Object] = list(yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    namespaces = [obj for obj in objects if obj["kind"] == "Namespace"]
    return [*namespaces, *map(crd, crd_names()), *objects[len(namespaces) :]]


def is_needed(obj: Object, jobs: Iterable[str], copies: Iterable[str]) -> bool:
    """Whether an installation of these jobs needs an object of `shipped()`, if sync-copies also copies `copies`."""
    component = obj["metadata"]["labels"].get("app.kubernetes.io/component")
    if component == SPOKE:
        return False
    of_copies = _of_copies(obj)
    return (of_copies is None or of_copies in copies) and (
        component not in _NEEDED_BY or not _NEEDED_BY[component].isdisjoint(jobs)
    )


def of_spoke(obj: Object, hub: str) -> bool:
    """Whether a cluster that gets copies from this hub needs an object of `shipped()`; set the uid of the hub in it."""
    for rule in obj.get("rules", ()):
        if rule.get("resources") == ["hubs"]:
            rule["resourceNames"] = [hub]
    labels = obj["metadata"]["labels"]
    is_home = (obj["kind"], obj["metadata"]["name"]) == ("Namespace", HOME)
    return is_home or labels.get("app.kubernetes.io/component") in (SPOKE, "policies")


def _of_copies(obj: Object) -> str | None:
    """Return which of COPIES an object is for. Its name ends with the plural of the resource."""
    return next((each for each in COPIES if obj["metadata"]["name"].endswith(f"-{each.replace('-', '')}")), None)


def move(obj: Object, namespace: str) -> None:
    """Move an object and its subjects to a namespace, and name cluster-wide roles of jobs after it.

    Objects in the namespaces of mirrors and in `default` stay there.
    """
    metadata, role = obj["metadata"], obj.get("roleRef", {})
    for place in [metadata, *obj.get("subjects", [])]:
        if place.get("namespace") == HOME:
            place["namespace"] = namespace
    if (obj["kind"], metadata["name"]) == ("Namespace", HOME):
        metadata["name"] = namespace
    if obj["kind"] in ("ClusterRole", "ClusterRoleBinding"):
        metadata["name"] = _OF_A_JOB.sub(f"{namespace}-", metadata["name"])
    if role.get("kind") == "ClusterRole":
        role["name"] = _OF_A_JOB.sub(f"{namespace}-", role["name"])


def set_image(obj: Object, image: str) -> None:
    """Set the image of all containers, if the object is a CronJob."""
    if obj["kind"] == "CronJob":
        for container in obj["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]:
            container["image"] = image


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Write texts of several lines as blocks."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


# kubectl reads YAML 1.2, where more texts are numbers: https://yaml.org/spec/1.2.2/#1032-tag-resolution
_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"([-+]?[0-9]+[eE][-+]?[0-9]+|0o[0-7]+)$"), list("-+0123456789")
)
_Dumper.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, "|" if "\n" in text else None)
)


def _jobs(_context: click.Context, _parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    from difflib import get_close_matches

    for name in set(names).difference(ACCOUNTS):
        near = get_close_matches(name, ACCOUNTS, n=1)
        remedy = f"did you mean {near[0]}?" if near else f"use one of {', '.join(ACCOUNTS)}"
        raise click.BadParameter(f"{name!r} is not a job; {remedy}")
    return names or DEFAULT_JOBS


def _copies(context: click.Context, _parameter: click.Parameter, copies: tuple[str, ...]) -> tuple[str, ...]:
    if copies and "sync-copies" not in context.params["jobs"]:
        raise click.BadParameter("only sync-copies copies; add --only sync-copies")
    return copies


def _namespace(_context: click.Context, _parameter: click.Parameter, name: str) -> str:
    if not is_label(name):
        raise click.BadParameter(f"{name!r} is not a valid namespace name.")
    if name in TAKEN:
        raise click.BadParameter(f"{name!r} has another purpose; use a namespace for the jobs alone")
    return name


def _hub(_context: click.Context, _parameter: click.Parameter, uid: str | None) -> str | None:
    if uid is not None and not _UID.fullmatch(uid):
        raise click.BadParameter(f"{uid!r} is not a uid; see 'kubectl get namespace kube-system -o yaml' in the hub")
    return uid


def _image(_context: click.Context, _parameter: click.Parameter, name: str | None) -> str | None:
    schema = crd("registrymirrors")["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    pattern = schema["properties"]["spec"]["properties"]["image"]["pattern"]
    if name is not None and not re.fullmatch(pattern, name):
        raise click.BadParameter(f"{name!r} is not an image; use a name such as registry.example.com/kube-chores:0.1.0")
    return name


@click.command("manifests")
@click.option(
    "--only",
    "jobs",
    metavar="JOB",
    multiple=True,
    callback=_jobs,
    is_eager=True,  # --copies depends on it
    help=f"Print only the objects that this job needs; repeat it for several jobs. mirror-audit, {REPAIR} and "
    f"{CLUSTERS} are printed only by name.",
)
@click.option(
    "--copies",
    type=click.Choice(COPIES),
    multiple=True,
    callback=_copies,
    help="Print also the permissions of sync-copies to copy these; repeat it for several.",
)
@click.option(
    "--namespace",
    "-n",
    metavar="NAME",
    default=HOME,
    show_default=True,
    callback=_namespace,
    help="Namespace of the jobs. It is also the prefix of the names of their ClusterRoles.",
)
@click.option(
    "--spoke",
    "hub",
    metavar="UID",
    callback=_hub,
    help="Print what a cluster needs to get copies from another one, the hub: the uid of its namespace kube-system.",
)
@click.option("--image", metavar="IMAGE", callback=_image, help="Image of all jobs, as nodes pull it.")
def command(jobs: tuple[str, ...], copies: tuple[str, ...], namespace: str, hub: str | None, image: str | None) -> None:
    """Print the manifests of an installation as YAML.

    They are the objects of 'kubectl kustomize cronjobs', without a copy of these files. Sends no request.

    \b
    Examples:
      chores manifests --image registry.example.com/kube-chores:0.1.0 | kubectl apply -f -
      chores manifests --only sync-copies --only farm-pods    two jobs, with their rights, the CRDs and the policies
      chores manifests --only mirror-repair                   in addition to the jobs above
      chores manifests --copies network-policies              all jobs; sync-copies also copies NetworkPolicies
      chores manifests --spoke "$HUB" | kubectl apply -f -    in a cluster that gets copies from the hub
    """
    objects = [obj for obj in shipped() if (of_spoke(obj, hub) if hub else is_needed(obj, jobs, copies))]
    for obj in objects:
        move(obj, namespace)
        if image:
            set_image(obj, image)
    click.echo(yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=120), nl=False)
