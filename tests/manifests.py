"""The shipped manifests, read as `kubectl kustomize` would.

Of kustomization.yaml it reads `resources:`, `components:`, and `patches:` that delete objects by kind and name.
"""

import re
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
UNDERSTOOD = {"apiVersion", "kind", "resources", "components", "patches"}
Object = dict[str, Any]
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # not every platform's PyYAML has libyaml


def load(path: Path) -> list[Object]:
    """The objects of a YAML file or of a folder with a kustomization, in an order that can be created."""
    found = _read(path)
    first = ["Namespace", "CustomResourceDefinition", "ServiceAccount"]
    return sorted(found, key=lambda obj: first.index(obj["kind"]) if obj["kind"] in first else len(first))


def everything() -> list[Object]:
    """The objects that a user can install: all jobs, with mirror-repair, which is a choice of its own."""
    return [*load(ROOT / "cronjobs"), *load(ROOT / "cronjobs" / "mirror-repair")]


def _read(path: Path) -> list[Object]:
    if path.is_file():
        return [obj for obj in _parsed(path) if obj]
    kustomization = _kustomization(path)
    resources = [obj for entry in kustomization.get("resources", []) for obj in _read(path / entry)]
    return _with_components(path, kustomization, resources)


def _kustomization(path: Path) -> Object:
    (kustomization,) = _parsed(path / "kustomization.yaml")
    unknown = kustomization.keys() - UNDERSTOOD
    if unknown:
        raise ValueError(f"{path}/kustomization.yaml: this loader does not understand {', '.join(sorted(unknown))}")
    return kustomization


def _with_components(path: Path, kustomization: Object, objects: list[Object]) -> list[Object]:
    """Return the objects as the components and patches of a kustomization change them."""
    for entry in kustomization.get("components", []):
        component = _kustomization(path / entry)
        added = [obj for each in component.get("resources", []) for obj in _read(path / entry / each)]
        objects = _with_components(path / entry, component, objects + added)
    for patch in kustomization.get("patches", []):
        objects = [obj for obj in objects if not _deletes(path, patch, obj)]
    return objects


def _deletes(path: Path, patch: Object, obj: Object) -> bool:
    if patch.keys() != {"target", "patch"} or patch["target"].keys() != {"kind", "name"}:
        raise ValueError(f"{path}/kustomization.yaml: this loader understands patches with target kind and name alone")
    if yaml.load(patch["patch"], _Loader).get("$patch") != "delete":
        raise ValueError(f"{path}/kustomization.yaml: this loader does not understand patches but $patch: delete")
    target = patch["target"]
    return bool(re.fullmatch(target["kind"], obj["kind"]) and re.fullmatch(target["name"], obj["metadata"]["name"]))


def _parsed(path: Path) -> list[Object]:
    """Return the documents of a file as objects that the caller may change: each file is parsed once a session."""
    return deepcopy(_documents(path))


@cache
def _documents(path: Path) -> list[Object]:
    return list(yaml.load_all(path.read_text(), _Loader))
