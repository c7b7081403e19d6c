"""The fields of a custom resource's spec, from its CRD."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]
FOLDER = Path(__file__).parents[2] / "cronjobs/crds"


def fields(plural: str) -> dict[str, Object]:
    """Return the schema of each field, by its path such as `selector.matchExpressions[].key`.

    `isRequired` is added to the schema of a field without which its parent is not valid.
    """
    (version,) = yaml.safe_load((FOLDER / f"{plural}.yaml").read_text())["spec"]["versions"]
    return dict(_below("", version["schema"]["openAPIV3Schema"]["properties"]["spec"]))


def _below(path: str, schema: Object) -> Iterator[tuple[str, Object]]:
    for name, each in schema.get("properties", {}).items():
        here = f"{path}.{name}".lstrip(".")
        yield here, each | {"isRequired": name in schema.get("required", ())}
        yield from _below(f"{here}[]" if "items" in each else here, each.get("items", each))
