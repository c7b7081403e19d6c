"""Check docs/architecture.md: what it names exists, and its table of deletions is what the code does."""

import ast
import re
from collections.abc import Iterator

from tests.generated import check_table
from tests.manifests import ROOT

PAGE = ROOT / "docs" / "architecture.md"


def test_modules_and_functions_that_the_page_names_exist() -> None:
    named = re.findall(r"((?:jobs|tests|kubesandbox)/\w+(?:/\w+)*\.py)(?:`?: (\w+)\(\))?", PAGE.read_text())

    assert named
    for path, function in named:
        assert (ROOT / path).exists(), path
        assert not function or f"def {function}(" in (ROOT / path).read_text(), f"{path}: {function}()"


def deleting_functions() -> Iterator[str]:
    """The functions that make a Change which deletes, as rows of the table."""
    for path in sorted(ROOT.glob("jobs/**/*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and re.search(
                r"\bChange\(Action\.(DELETE|RECREATE)\b", ast.unparse(node)
            ):
                purpose = (ast.get_docstring(node) or "").partition("\n")[0]
                yield f"| `{path.relative_to(ROOT)}: {node.name}()` | {purpose} |"


def test_the_table_of_functions_that_delete_is_generated() -> None:
    check_table(PAGE, "deletions", ["| function | docstring |", "|---|---|", *deleting_functions()])
