"""The shipped manifests, read as `kubectl kustomize` would: `resources:` and `components:` of kustomization.yaml."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
UNDERSTOOD = {"apiVersion", "kind", "resources", "components"}
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
    (kustomization,) = _parsed(path / "kustomization.yaml")
    unknown = kustomization.keys() - UNDERSTOOD
    if unknown:
        raise ValueError(f"{path}/kustomization.yaml: this loader does not understand {', '.join(sorted(unknown))}")
    entries = kustomization.get("resources", []) + kustomization.get("components", [])
    return [obj for entry in entries for obj in _read(path / entry)]


def _parsed(path: Path) -> list[Object]:
    """Return the documents of a file as objects that the caller may change: each file is parsed once a session."""
    return deepcopy(_documents(path))


@cache
def _documents(path: Path) -> list[Object]:
    return list(yaml.load_all(path.read_text(), _Loader))
