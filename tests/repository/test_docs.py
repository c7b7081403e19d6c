"""Docs that are generated are up to date; `make docs` writes them."""

import json
import os
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from benchmarks import page
from jobs.__main__ import COMMANDS, chores
from jobs.core.mirror_audit.findings import CODES
from tests.api import test_drift_of_other_kinds as other_kinds
from tests.api.test_drift import EDITS, SECRET_EDITS
from tests.manifests import ROOT


def check(path: Path, text: str) -> None:
    """Compare a generated document with what stands in the file, or write it where UPDATE_DOCS is set."""
    if os.environ.get("UPDATE_DOCS"):
        path.write_text(text)
    assert path.exists() and path.read_text() == text, f"{path.relative_to(ROOT)} is out of date: run `make docs`"


def check_table(path: Path, name: str, lines: list[str]) -> None:
    """Compare a generated table with the lines between the marks in the file, or write it there."""
    head, begin, rest = path.read_text().partition(f"<!-- {name}: written by `make docs` -->\n")
    tail = rest.partition("<!-- end -->")[2]
    check(path, "\n".join([f"{head}{begin}{lines[0]}", *lines[1:], f"<!-- end -->{tail}"]))


def test_the_cli_reference_is_the_output_of_help() -> None:
    group = chores.make_context("chores", [], resilient_parsing=True, terminal_width=100)
    parts = ["# Command line\n\nWritten by `make docs` from `--help`.\n", f"```\n{chores.get_help(group)}\n```\n"]
    for name in COMMANDS:
        command = chores.get_command(group, name)
        assert command
        context = click.Context(command, info_name=name, parent=group, terminal_width=100)
        parts.append(f"## chores {name}\n\n```\n{command.get_help(context)}\n```\n")

    check(ROOT / "docs" / "cli.md", "\n".join(parts))


def test_the_table_of_drift_is_generated_from_its_tests() -> None:
    path = ROOT / "docs" / "drift.md"
    rows = [f"| {name} | {end} |" for name, (_, end) in EDITS.items()]
    rows += ["| binaryData added to a ConfigMap | repaired |"]
    rows += [f"| {name} (Secret) | {end} |" for name, (_, end) in SECRET_EDITS.items()]

    check_table(path, "drift", ["| change of a copy | next run |", "|---|---|", *rows])


def test_the_tables_of_the_drift_of_other_kinds_are_generated_from_their_tests() -> None:
    path = ROOT / "docs" / "drift.md"
    sample = other_kinds.SAMPLES["LimitRange"]
    common = [f"| {name} | {end} |" for name, (_, end) in other_kinds.edits_of_any_field(sample).items()]
    rows = [f"| {kind} | {name} | {end} |" for kind, name, end in other_kinds.documented()]

    check_table(path, "common drift", ["| change of a copy | next run |", "|---|---|", *common])
    check_table(path, "drift of kinds", ["| kind | change of a copy | next run |", "|---|---|---|", *rows])


def test_the_tables_of_performance_are_those_of_its_results() -> None:
    text = page.PAGE.read_text()

    assert page.written(text, json.loads(page.RESULTS.read_text())) == text, "run `python -m benchmarks.page`"


def test_the_table_of_findings_is_that_of_the_code() -> None:
    text = (ROOT / "docs" / "mirror-audit.md").read_text()
    table = text.partition("<!-- codes: read by tests/repository/test_docs.py -->\n")[2].partition("<!-- end -->")[0]
    found = [row.strip("| ").split(" | ") for row in table.splitlines()[2:]]

    expected = [(f"`{code}`", each.severity.value, each.remedy) for code, each in CODES.items()]
    assert [(code, severity, todo) for code, severity, _, todo in found] == expected


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_and_option_has_a_help_text(name: str) -> None:
    command = chores.get_command(click.Context(chores), name)

    assert command and command.help
    assert [each.name for each in command.params if isinstance(each, click.Option) and not each.help] == []


def test_links_between_docs_are_valid() -> None:
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("kubesandbox/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.relative_to(ROOT)} links to {target}"


def test_the_tests_that_the_docs_name_exist() -> None:
    for path in (ROOT / "README.md", ROOT / "docs" / "security.md"):
        named = set(re.findall(r"`(test_\w+)`", path.read_text()))
        assert named
        assert named - {name for names in _tests_of_files().values() for name in names} == set(), path.name


def test_the_readme_links_each_test_to_its_file() -> None:
    links = re.findall(r"\[`(test_\w+)`\]\((tests/\S+\.py)\)", (ROOT / "README.md").read_text())

    assert links
    assert [(name, file) for name, file in links if name not in _tests_of_files()[ROOT / file]] == []


def _tests_of_files() -> dict[Path, list[str]]:
    return {path: re.findall(r"^def (test_\w+)", path.read_text(), re.M) for path in ROOT.glob("tests/**/*.py")}


def test_each_summary_of_a_command_fits_in_80_columns() -> None:
    shown = CliRunner().invoke(chores, ["--help"], prog_name="chores", terminal_width=80).output
    summaries = re.findall(r"^  ([a-z-]+)  +(\S.*)$", shown.partition("Commands:")[2], re.M)

    assert [name for name, _ in summaries] == list(COMMANDS)
    assert [text for _, text in summaries if text.endswith("...") or len(text) > 55] == []


def test_contributing_names_each_make_target() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.M)
    named = re.findall(r"`(?:make )?([a-z-]+)", (ROOT / "CONTRIBUTING.md").read_text())

    assert [each for each in targets if each not in named] == []
