"""Check docs/architecture.md: its tables of imports, of deletions and of labels are what the code does."""

import ast
import itertools
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.manifests import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
MODULES = sorted([*ROOT.glob("jobs/**/*.py"), *ROOT.glob("kubesandbox/**/*.py")])
# What reads the outside world, of Python's standard library and of third-party packages.
OUTSIDE = frozenset(
    {"os", "pathlib", "pycurl", "random", "requests", "secrets", "socket", "subprocess", "threading", "time"}
)
LAYERS_OF_SANDBOX = ["kubesandbox", *(f"kubesandbox/{layer}" for layer in ("http", "api", "schema/kinds", "schema"))]
ANYTHING = "jobs/commands/demo"  # imports all jobs and the embedded server
LAYERS_OF_MIRRORS = [
    f"jobs/core/mirror_audit/{layer}"
    for layer in ("registry_mirrors", "desired", "actual", "observed", "checks", "repair")
]
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
PURE_PACKAGES, SHELL = items("pure")


def name_of(path: Path) -> str:
    """The name of a module as in the tables: its path without a suffix, or that of the package."""
    return str(path.relative_to(ROOT).with_suffix("")).removesuffix("/__init__")


def imports(path: Path) -> set[str]:
    """The dotted names that a module imports: `jobs.kit.values.model.Fix`; relative ones as if they were absolute."""
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
    of_package = re.compile(rf"{re.escape(package)}(\.|$)")
    return {str(path.relative_to(ROOT)) for path in MODULES if any(map(of_package.match, imports(path)))}


def row_of(module: str) -> str:
    """The row of the table that covers a module: its own, or that of its nearest package; not `jobs`, a single file."""
    row = module
    while row not in IMPORTS or (row == "jobs" != module):
        row = row.rpartition("/")[0]
        if not row:
            return module
    return row


def modules_imported(path: Path) -> set[str]:
    """The modules of this repository that a module imports, those for types included."""
    modules = {name_of(each) for each in MODULES}
    parts = (name.split(".") for name in imports(path))
    prefixes = (["/".join(each[:length]) for length in range(len(each), 0, -1)] for each in parts)
    return {next(each for each in some if each in modules) for some in prefixes if some[-1] in modules}


def is_pure(module: str) -> bool:
    """Whether the page lists a module, or its package, as pure."""
    return any(module == each or module.startswith(f"{each}/") for each in PURE_PACKAGES) and module not in SHELL


def rows_imported(path: Path) -> set[str]:
    """The rows of the table that cover what a module imports from this repository."""
    return {row_of(each) for each in modules_imported(path)}


def test_each_module_has_a_row_in_the_table_of_imports() -> None:
    packages = {name_of(path) for path in MODULES if path.stem == "__init__"} - IMPORTS.keys()  # only docstrings

    assert {row_of(name_of(path)) for path in MODULES} - packages == IMPORTS.keys()


@pytest.mark.parametrize("row", IMPORTS)
def test_a_package_imports_what_the_table_lists(row: str) -> None:
    used: dict[str, list[str]] = {}
    for path in (each for each in MODULES if row_of(name_of(each)) == row):
        for imported in map(row_of, modules_imported(path)):
            used.setdefault(imported, []).append(name_of(path))

    if row != ANYTHING:
        assert [each for each in used.items() if each[0] not in IMPORTS[row]] == []
        assert set(IMPORTS[row]) - used.keys() <= {row}


def test_the_page_keeps_the_rules_that_the_design_depends_on() -> None:
    """An edit of the page must not relax these."""
    assert IMPORTS["jobs/kit/values"] == ["jobs/kit/values"]
    # Only jobs about ConfigMaps and Secrets use the code that is specific to them.
    assert {row for row, allowed in IMPORTS.items() if "jobs/kit/data" in allowed} == {
        "jobs/kit/data",
        "jobs/core/sync_copies",
        "jobs/core/fetch_rates",
    }
    assert {row for row in IMPORTS if row.startswith("kubesandbox")} == set(LAYERS_OF_SANDBOX)
    for number, row in enumerate(LAYERS_OF_SANDBOX):
        assert set(IMPORTS[row]) <= {*LAYERS_OF_SANDBOX[number:]}
    for layer, later in itertools.combinations(LAYERS_OF_MIRRORS, 2):
        assert later not in IMPORTS[layer]
    assert rows("libraries") == {"pycurl": ["jobs/kit/api/curl.py"], "requests": ["jobs/kit/web.py"]}
    assert {"jobs/kit/values", "jobs/kit/data", "jobs/core"} <= set(PURE_PACKAGES)
    assert not any(each.endswith(("/plan", "/evaluate", "/status")) for each in SHELL)


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for types count."""
    graph = {name_of(path): modules_imported(path) - {name_of(path)} for path in MODULES}

    TopologicalSorter(graph).prepare()  # raises CycleError, with the modules of the circle


def test_one_module_imports_each_library_of_the_outside_world() -> None:
    for library, modules in rows("libraries").items():
        assert importers(library) == set(modules)


@pytest.mark.parametrize("path", [each for each in MODULES if is_pure(name_of(each))], ids=name_of)
def test_pure_modules_import_pure_modules_only(path: Path) -> None:
    assert not {each for each in modules_imported(path) if not is_pure(each) and each != "jobs"}
    assert not OUTSIDE & {each.split(".")[0] for each in imports(path)}


def test_modules_that_call_themselves_pure_are_pure() -> None:
    claims = [path for path in MODULES if re.search(r"\bPure\b", ast.get_docstring(ast.parse(path.read_text())) or "")]

    assert claims
    assert [name_of(each) for each in claims if not is_pure(name_of(each))] == []


def test_the_list_of_modules_that_are_not_pure_has_no_other() -> None:
    for module in SHELL:
        path = ROOT / f"{module}.py"
        outside = OUTSIDE & {each.split(".")[0] for each in imports(path)}
        assert outside or any(not is_pure(each) for each in modules_imported(path)), module


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
