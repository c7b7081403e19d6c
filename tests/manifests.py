"""The shipped manifests, read as `kubectl kustomize` would.

It reads the fields of kustomization.yaml that cronjobs/ has, and refuses others.
"""

import re
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from jobs.kit.values.registry import ACCOUNTS, CLUSTERS, REPAIR

ROOT = Path(__file__).parent.parent
UNDERSTOOD = {
    "apiVersion",
    "kind",
    "resources",
    "components",
    "patches",
    "namespace",
    "labels",
    "replacements",
}
CLUSTER_SCOPED = ("Namespace", "PriorityClass", "CustomResourceDefinition", "ClusterRole", "Validating")
Object = dict[str, Any]
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # not every platform's PyYAML has libyaml


def load(path: Path) -> list[Object]:
    """The objects of a YAML file or of a folder with a kustomization, in an order that can be created."""
    found = _read(path)
    first = ["Namespace", "CustomResourceDefinition", "ServiceAccount"]
    return sorted(found, key=lambda obj: first.index(obj["kind"]) if obj["kind"] in first else len(first))


# The manifests of commit 0161207, whose default had mirror-audit and the namespaces of mirrors.
OLD = ROOT / "tests" / "cluster" / "installed_by_0161207.yaml"


def old_accounts() -> list[str]:
    """The accounts of the old manifests, in the order of the jobs."""
    names = {each["metadata"]["name"] for each in load(OLD) if each["kind"] == "ServiceAccount"}
    return [each for each in ACCOUNTS if each in names]


# The accounts that no default has, neither of kubectl nor of the chart, each with what its CronJob runs.
OPTIONAL = {REPAIR: ("mirror-audit", "--repair"), CLUSTERS: ("sync-copies", "--clusters", "*")}
# What a kustomization of all accounts lists below cronjobs/. The namespaces of mirrors are in mirror-repair.
FOLDERS = [".", *OPTIONAL, "mirror-audit/job", "spoke/account"]
COMPONENTS = ["components/mirrors/mirror-audit", "components/secrets/mirror-audit"]


# The choices of what sync-copies copies, as folders, with the resource of each.
COPIES = {
    "network-policies": "networkpolicies",
    "limit-ranges": "limitranges",
    "resource-quotas": "resourcequotas",
    "role-bindings": "rolebindings",
    "service-accounts": "serviceaccounts",
    "pull-secrets": "pullsecrets",
}


# The components that give a job more permissions, and a flag, but no other objects.
MORE_RIGHTS = ("argo-rollouts", "images", "images/secrets")


def minutes(schedule: str) -> int:
    """Return the number of minutes of an hour at which a schedule of the manifests fires."""
    minute, hour, *_ = schedule.split()
    if hour != "*":
        return 0
    first, _, step = minute.partition("/")
    begin = 0 if first == "*" else int(first.partition("-")[0])
    return len(range(begin, 60, int(step))) if step else 60 if first == "*" else 1


def everything() -> list[Object]:
    """The objects that a user can install: the default, and each choice that adds objects of jobs or for users."""
    return [
        *without_more_copies(),
        *rights_on_copies(),
        *(each for folder in MORE_RIGHTS for each in load(ROOT / "cronjobs" / "components" / folder / "rbac.yaml")),
    ]


def without_more_copies() -> list[Object]:
    """All accounts, with that of a spoke, and without the components that let sync-copies copy more kinds."""
    built = [each for folder in FOLDERS for each in load(ROOT / "cronjobs" / folder)]
    for component in COMPONENTS:
        built = _build(ROOT / "cronjobs" / component, built)
    return built


def rights_on_copies() -> list[Object]:
    """The objects that the components of `cronjobs/components/copies` add to sync-copies."""
    job = load(ROOT / "cronjobs" / "sync-copies")
    built = job
    for folder in COPIES:
        built = _build(ROOT / "cronjobs" / "components" / "copies" / folder, built)
    return built[len(job) :]


def with_component(component: str) -> list[Object]:
    """The default installation with a component of `cronjobs/components`."""
    return _build(ROOT / "cronjobs" / "components" / component, load(ROOT / "cronjobs"))


def rights_on_secrets() -> list[Object]:
    """The objects of the default installation that an installation without Secrets does not have."""
    without = load(ROOT / "cronjobs" / "without-secrets")
    return [obj for obj in load(ROOT / "cronjobs") if obj not in without]


def dangling(objects: list[Object]) -> list[str]:
    """Return the bindings whose role or account is not among the objects."""

    def key(kind: str, name: str, namespace: str | None) -> tuple[str, str, str | None]:
        return kind, name, None if kind.startswith("Cluster") else namespace

    there = {key(obj["kind"], obj["metadata"]["name"], obj["metadata"].get("namespace")) for obj in objects}
    return [
        obj["metadata"]["name"]
        for obj in objects
        if "roleRef" in obj
        and not {
            key(obj["roleRef"]["kind"], obj["roleRef"]["name"], obj["metadata"].get("namespace")),
            *(key(each["kind"], each["name"], each["namespace"]) for each in obj["subjects"]),
        }
        <= there
    ]


def _read(path: Path) -> list[Object]:
    if path.is_file():
        return [obj for obj in _parsed(path) if obj]
    return _build(path, [])


def _build(path: Path, objects: list[Object]) -> list[Object]:
    """Return the objects, and those of a kustomization or component, as its fields change them."""
    kustomization = _kustomization(path)
    objects = objects + [obj for entry in kustomization.get("resources", []) for obj in _read(path / entry)]
    for entry in kustomization.get("components", []):
        objects = _build(path / entry, objects)
    for patch in kustomization.get("patches", []):
        objects = list(_patched(path, patch, objects))
    for obj in objects:
        if "namespace" in kustomization and not obj["kind"].startswith(CLUSTER_SCOPED):
            obj["metadata"]["namespace"] = kustomization["namespace"]
        for label in kustomization.get("labels", []):
            _label(obj, **label)
    for replacement in kustomization.get("replacements", []):
        _replace(path, replacement, objects)
    return objects


def _kustomization(path: Path) -> Object:
    (kustomization,) = _parsed(path / "kustomization.yaml")
    unknown = kustomization.keys() - UNDERSTOOD
    if unknown:
        raise ValueError(f"{path}/kustomization.yaml: this loader does not understand {', '.join(sorted(unknown))}")
    return kustomization


def _label(obj: Object, pairs: Object, includeTemplates: bool = False) -> None:  # noqa: N803
    obj["metadata"].setdefault("labels", {}).update(pairs)
    if includeTemplates and obj["kind"] == "CronJob":
        template = obj["spec"]["jobTemplate"]
        for place in (template, template["spec"]["template"]):
            place.setdefault("metadata", {}).setdefault("labels", {}).update(pairs)


def _selects(target: Object, obj: Object) -> bool:
    found = {"kind": obj["kind"], "name": obj["metadata"]["name"]}
    return all(re.fullmatch(pattern, found[key]) for key, pattern in target.items())


def _patched(path: Path, entry: Object, objects: list[Object]) -> Iterator[Object]:
    """Yield the objects as a strategic merge patch changes them."""
    text = entry["patch"] if "patch" in entry else (path / entry["path"]).read_text()
    patch = yaml.load(text, _Loader)
    target = entry.get("target") or {"kind": patch["kind"], "name": patch["metadata"]["name"]}
    if "target" not in entry and not any(_selects(target, obj) for obj in objects):
        raise ValueError(f"{path}/kustomization.yaml: no object {target['kind']} {target['name']}")
    for obj in objects:
        if not _selects(target, obj):
            yield obj
        elif patch.get("$patch") != "delete":
            yield _merged(obj, {key: value for key, value in deepcopy(patch).items() if key != "metadata"})


def _merged(value: Any, patch: Any) -> Any:
    """Return a value with a strategic merge patch: elements of a list are merged by their name, if they have one."""
    if isinstance(value, dict) and isinstance(patch, dict):
        return value | {key: _merged(value.get(key), each) for key, each in patch.items()}
    if isinstance(value, list) and isinstance(patch, list) and all("name" in each for each in (*value, *patch)):
        patches = {each["name"]: each for each in patch}
        own = [_merged(each, patches.pop(each["name"], {})) for each in value]
        return own + list(patches.values())
    return patch


def _replace(path: Path, replacement: Object, objects: list[Object]) -> None:
    source = dict(replacement["source"])
    field = source.pop("fieldPath", "metadata.name")
    try:
        (found,) = [obj for obj in objects if _selects(source, obj)]
    except ValueError:
        raise ValueError(f"{path}/kustomization.yaml: not exactly one object {source}") from None
    *_, (parent, last) = _walk(found, field)
    value = parent[last]
    for target in replacement["targets"]:
        options = target.get("options", {})
        for obj in (obj for obj in objects if _selects(target["select"], obj)):
            for where in target["fieldPaths"]:
                *_, (parent, last) = _walk(obj, where)
                if "delimiter" in options:
                    parts = parent[last].split(options["delimiter"])
                    parts[options["index"]] = value
                    parent[last] = options["delimiter"].join(parts)
                else:
                    parent[last] = value


def _walk(value: Any, field_path: str) -> Iterator[tuple[Any, Any]]:
    """Yield the containers on a field path of a replacement, each with the key or index of the next one."""
    for part in field_path.split("."):
        key: Any = part
        if isinstance(value, list):
            name = re.fullmatch(r"\[name=(.*)\]", part)
            key = next(i for i, each in enumerate(value) if each["name"] == name[1]) if name else int(part)
        yield value, key
        value = value.get(key) if isinstance(value, dict) else value[key]


def _parsed(path: Path) -> list[Object]:
    """Return the documents of a file as objects that the caller may change: each file is parsed once a session."""
    return deepcopy(_documents(path))


@cache
def _documents(path: Path) -> list[Object]:
    return list(yaml.load_all(path.read_text(), _Loader))
