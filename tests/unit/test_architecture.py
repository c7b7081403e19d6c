"""Check docs/architecture.md: its tables of imports, of deletions and of labels are what the code does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text()
MODULES = sorted([*ROOT.glob("jobs/**/*.py"), *ROOT.glob("kubesandbox/**/*.py")])
PACKAGES = frozenset(path.parent.name for path in ROOT.glob("jobs/*/__init__.py"))
# What reads the outside world. `jobs.kit.cluster`, `runner` and `web` are not here: pure modules use types of them.
OUTSIDE = frozenset({"os", "pathlib", "random", "socket", "subprocess", "threading", "time"})
SHELL_OF_KIT = frozenset({"apply", "connect", "files", "log", "report", "transport"})
READERS = frozenset({"jobs.kit.custom_resources.from_files", "jobs.kit.web.fetch"})
ANYTHING = "jobs/demo"  # imports all jobs and the embedded server
KEY = re.compile(
    r"(?:(?:app|kubectl|pod-security)\.kubernetes\.io|rbac\.authorization\.k8s\.io|kubechores\.dev|meta\.helm\.sh"
    r"|argocd\.argoproj\.io)/(?!v\d)[a-z][a-z-]+"
)


def section(name: str) -> str:
    """The text between the marker of this name and the next end."""
    found = re.search(rf"<!-- {name}: .*?-->\n(.*?)<!-- end -->", PAGE, re.S)
    assert found, name
    return found[1]


def words(text: str) -> list[str]:
    """The words in backquotes."""
    return re.findall(r"`([\w./-]+)`", text)


def rows(name: str) -> dict[str, list[str]]:
    """The words in the second column of a table by the word in its first one."""
    cells = [line.split("|") for line in section(name).splitlines()[2:]]
    return {words(first)[0]: words(second) for _, first, second, *_ in cells}


def items(name: str) -> list[list[str]]:
    """The words of each item of a list."""
    return [words(item) for item in re.split(r"^- ", section(name), flags=re.M)[1:]]


IMPORTS = rows("imports")
(_, *PURE), SHELL_OF_JOBS = items("pure")  # the first word is the package
MODULES_OF_JOBS = [
    path for path in MODULES if (ROOT / "jobs") in path.parents and path.parent.name in PACKAGES - {"kit"}
]


def name_of(path: Path) -> str:
    """The name of a module as in the tables: its path without a suffix, or that of the package."""
    return str(path.relative_to(ROOT).with_suffix("")).removesuffix("/__init__")


def imports(path: Path) -> set[str]:
    """The dotted names that a module imports: `jobs.kit.model.Fix`; relative ones as if they were absolute."""
    here = name_of(path).split("/")
    package = here if path.stem == "__init__" else here[:-1]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            found |= {".".join([*base, *filter(None, [node.module]), alias.name]) for alias in node.names}
    return found


def importers(package: str) -> set[str]:
    """The modules that import a package or something in it."""
    return {
        str(path.relative_to(ROOT))
        for path in MODULES
        if any(name == package or name.startswith(f"{package}.") for name in imports(path))
    }


def row_of(module: str) -> str:
    """The row of the table that covers a module: its own, or that of its package."""
    return module if module in IMPORTS else module.rpartition("/")[0]


def rows_imported(path: Path) -> set[str]:
    """The rows of the table that cover what a module imports from this repository."""
    modules = {name_of(each) for each in MODULES}
    parts = (name.split(".") for name in imports(path))
    prefixes = (["/".join(each[:length]) for length in range(len(each), 0, -1)] for each in parts)
    return {row_of(next(each for each in some if each in modules)) for some in prefixes if some[-1] in modules}


def test_each_module_has_a_row_in_the_table_of_imports() -> None:
    assert {row_of(name_of(path)) for path in MODULES} == IMPORTS.keys()


@pytest.mark.parametrize("row", IMPORTS)
def test_a_package_imports_what_the_table_lists(row: str) -> None:
    used: dict[str, list[str]] = {}
    for path in (each for each in MODULES if row_of(name_of(each)) == row):
        for imported in rows_imported(path):
            used.setdefault(imported, []).append(name_of(path))

    if row != ANYTHING:
        assert [each for each in used.items() if each[0] not in IMPORTS[row]] == []
        assert set(IMPORTS[row]) - used.keys() <= {row}


def test_the_page_keeps_the_rules_that_the_design_depends_on() -> None:
    """An edit of the page must not relax these."""
    assert (IMPORTS["jobs/kit"], IMPORTS["kubesandbox"]) == (["jobs/kit", "jobs"], ["kubesandbox"])
    assert rows("libraries") == {"pycurl": ["jobs/kit/transport.py"], "requests": ["jobs/kit/web.py"]}
    assert {"decoding", "diff", "errors", "manifests", "model", "objects", "selectors", "stamps", "text"} <= {*PURE}


def test_one_module_imports_each_library_of_the_outside_world() -> None:
    for library, modules in rows("libraries").items():
        assert importers(library) == set(modules)


@pytest.mark.parametrize("name", PURE)
def test_pure_modules_of_the_kit_import_pure_modules_only(name: str) -> None:
    path = ROOT / "jobs" / "kit" / f"{name}.py"

    assert {each.split(".")[2] for each in imports(path) if each.startswith("jobs.kit.")} <= set(PURE)
    assert not OUTSIDE & {each.split(".")[0] for each in imports(path)}


@pytest.mark.parametrize("path", MODULES_OF_JOBS, ids=name_of)
def test_modules_of_jobs_that_are_not_in_the_list_read_nothing_outside(path: Path) -> None:
    found = imports(path)
    outside = OUTSIDE & {each.split(".")[0] for each in found}
    outside |= {each for each in found if each.startswith("jobs.kit.") and each.split(".")[2] in SHELL_OF_KIT}
    outside |= found & READERS

    assert bool(outside) == (name_of(path).removeprefix("jobs/") in SHELL_OF_JOBS), outside


def test_modules_and_functions_that_the_page_names_exist() -> None:
    named = re.findall(r"((?:jobs|tests|kubesandbox)/\w+(?:/\w+)*\.py)(?:`?: (\w+)\(\))?", PAGE)

    assert named
    for path, function in named:
        assert (ROOT / path).exists(), path
        assert not function or f"def {function}(" in (ROOT / path).read_text(), f"{path}: {function}()"


def deleting_functions() -> Iterator[str]:
    """The functions that make a Fix which deletes."""
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and re.search(
                r"\bFix\(Action\.(DELETE|RECREATE)\b", ast.unparse(node)
            ):
                yield f"{path.relative_to(ROOT)}: {node.name}()"


def test_the_page_names_each_function_that_decides_a_deletion() -> None:
    assert [each for each in deleting_functions() if f"`{each}`" not in PAGE] == []


def test_the_table_of_labels_and_annotations_is_complete() -> None:
    files = [*ROOT.glob("jobs/**/*.py"), *ROOT.glob("jobs/**/*.yaml"), *ROOT.glob("cronjobs/**/*.yaml")]

    assert rows("keys").keys() == {key for path in files for key in KEY.findall(path.read_text())}
