"""The shipped manifests, read as `kubectl kustomize` would: `resources:` and `components:` of kustomization.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
UNDERSTOOD = {"apiVersion", "kind", "resources", "components"}
Object = dict[str, Any]


def load(path: Path) -> list[Object]:
    """The objects of a YAML file or of a folder with a kustomization, in an order that can be created."""
    found = _read(path)
    first = ["Namespace", "CustomResourceDefinition", "ServiceAccount"]
    return sorted(found, key=lambda obj: first.index(obj["kind"]) if obj["kind"] in first else len(first))


def _read(path: Path) -> list[Object]:
    if path.is_file():
        return [obj for obj in yaml.safe_load_all(path.read_text()) if obj]
    kustomization = yaml.safe_load((path / "kustomization.yaml").read_text())
    unknown = kustomization.keys() - UNDERSTOOD
    if unknown:
        raise ValueError(f"{path}/kustomization.yaml: this loader does not understand {', '.join(sorted(unknown))}")
    entries = kustomization.get("resources", []) + kustomization.get("components", [])
    return [obj for entry in entries for obj in _read(path / entry)]
