"""Check docs/architecture.md: its lists of deletions and of labels are what the code does."""

import ast
import re
from collections.abc import Iterator

from tests.manifests import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
MODULES = sorted([*ROOT.glob("jobs/**/*.py"), *ROOT.glob("kubesandbox/**/*.py")])
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


def test_modules_and_functions_that_the_page_names_exist() -> None:
    named = re.findall(r"((?:jobs|tests|kubesandbox)/\w+(?:/\w+)*\.py)(?:`?: (\w+)\(\))?", PAGE)

    assert named
    for path, function in named:
        assert (ROOT / path).exists(), path
        assert not function or f"def {function}(" in (ROOT / path).read_text(), f"{path}: {function}()"


def deleting_functions() -> Iterator[str]:
    """The functions that make a Change which deletes."""
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and re.search(
                r"\bChange\(Action\.(DELETE|RECREATE)\b", ast.unparse(node)
            ):
                yield f"{path.relative_to(ROOT)}: {node.name}()"


def test_the_page_names_each_function_that_decides_a_deletion() -> None:
    found = [*deleting_functions()]

    assert found
    assert [each for each in found if f"`{each}`" not in PAGE] == []


def test_the_table_of_labels_and_annotations_is_complete() -> None:
    files = [*ROOT.glob("jobs/**/*.py"), *ROOT.glob("jobs/**/*.yaml"), *ROOT.glob("cronjobs/**/*.yaml")]

    assert rows("keys").keys() == {key for path in files for key in KEY.findall(path.read_text())}
