"""Who may import what: the layout that DESIGN's readers count on, checked in the code itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
MODULES = sorted([*ROOT.glob("jobs/**/*.py"), *ROOT.glob("kubesandbox/**/*.py")])
PURE = {"decoding", "diff", "errors", "manifests", "model", "objects", "selectors", "text", "stamps"}


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def importers(package: str) -> set[str]:
    return {
        str(path.relative_to(ROOT))
        for path in MODULES
        if any(name == package or name.startswith(f"{package}.") for name in imports(path))
    }


def test_one_module_knows_each_library_of_the_outside_world() -> None:
    assert importers("pycurl") == {"jobs/kit/transport.py"}
    assert importers("requests") == {"jobs/kit/web.py"}


def test_the_embedded_cluster_knows_no_job() -> None:
    assert not [path for path in importers("jobs") if path.startswith("kubesandbox")]


@pytest.mark.parametrize("path", sorted(ROOT.glob("jobs/kit/*.py")), ids=lambda path: path.stem)
def test_the_kit_knows_no_job(path: Path) -> None:
    own = {name for name in imports(path) if name.split(".")[0] == "jobs"}

    assert {
        name for name in own if name not in ("jobs", "jobs.__version__") and not name.startswith("jobs.kit")
    } == set()


@pytest.mark.parametrize("name", sorted(PURE))
def test_pure_modules_import_pure_modules_alone(name: str) -> None:
    path = ROOT / "jobs" / "kit" / f"{name}.py"
    kit = {each.split(".")[2] for each in imports(path) if each.startswith("jobs.kit.")}

    assert kit <= PURE
    assert not {"os", "time", "random", "subprocess", "socket"} & {each.split(".")[0] for each in imports(path)}
