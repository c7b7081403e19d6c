"""Every shell command in the docs runs here, or in a test that its mark names, or its mark gives the reason why not.

Marks are comments on the lines before a block:

    <!-- run by tests/node/test_by_hand.py::test_name -->    the test runs at least one command of the block
    <!-- not run by a test: REASON -->                       for all commands that no other mark covers
    <!-- one script -->                                      runs here, in one shell with the others of the page

Commands without a mark run here, in the order of the page, with kubectl and chores on the embedded cluster.
"""

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path
from uuid import uuid4

import pytest

from jobs.__main__ import chores as group
from jobs.commands import demo
from kubesandbox import Sandbox
from tests import canary, embedded, rates
from tests.apis import sandbox_api
from tests.manifests import ROOT, load
from tests.pages import Block, begins, blocks, blocks_of, commands, pages, without_comment
from tests.sandbox.conftest import any_kubectl
from tests.workloads import FROM_A_VOLUME, set_key, workload
from tests.worlds import namespace_object

REASON = "not run by a test: "
ONE_SCRIPT = "one script"
TEST = re.compile(r"run by (tests/[\w/]+\.py)::(test_\w+)")
PAGES = [path for path in pages() if blocks(path)]
# The files that commands of the docs read, by their names there.
FILES = {
    "rules.yaml": "cronjobs/samples/secret-rule.yaml",
    "mirrors.yaml": "cronjobs/samples/mirrors/registry-mirrors.yaml",
}
END = "trap 'kill $(jobs -p) 2>/dev/null' EXIT"  # ends what a script left in the background
STOP = 'status=$?; case " %s " in *" $status "*) ;; *) echo "exit code $status: "%s >&2; exit 1;; esac'


@cache
def texts(path: str, name: str) -> list[str]:
    """Return the strings in the source of a test."""
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and type(each.value) is str]
    raise AssertionError(f"the docs name {path}::{name}, which does not exist")


def runs(test: tuple[str, str], command: str) -> bool:
    """Return whether a test has a command, or at least three words of its beginning to find it in the docs."""
    return any(
        without_comment(command) in text or (len(text.split()) >= 3 and begins(command, text)) for text in texts(*test)
    )


def left(block: Block) -> list[str]:
    """Return the commands of a block that no mark covers; fail if a mark covers none."""
    rest = list(block.commands)
    if any(mark.startswith("demo: ") for mark in block.marks):
        return []  # tests/sandbox/test_demo.py compares the whole block with a run
    for mark in block.marks:
        if found := TEST.fullmatch(mark):
            covered = [each for each in block.commands if runs((found[1], found[2]), each)]
            assert covered, f"{block.where}: {found[2]} runs no command of this block"
            rest = [each for each in rest if each not in covered]
    reasons = [mark.removeprefix(REASON).strip() for mark in block.marks if mark.startswith(REASON)]
    assert all(reasons), f"{block.where}: a mark has no reason"
    assert rest or not reasons, f"{block.where}: tests run all commands, so remove the mark: {reasons}"
    return [] if reasons else rest


def scripts(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield where commands of a page are that run together, and the commands."""
    found = blocks(page)
    together = [block for block in found if ONE_SCRIPT in block.marks]
    for block in found:
        if block not in together:
            yield block.where, left(block)
    if together:
        yield together[0].where, [each for block in together for each in left(block)]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a shell at an installation of kube-chores with the objects that the docs name."""
    (tmp_path / "cronjobs").symlink_to(ROOT / "cronjobs")
    for name, source in FILES.items():
        (tmp_path / name).symlink_to(ROOT / source)
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "kubectl").symlink_to(any_kubectl())
    for name, command in {"python": sys.executable, "chores": f"{sys.executable} -m jobs"}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)
    with Sandbox(of=embedded.installed()) as sandbox, rates.serve() as providers:
        api = sandbox_api(sandbox, tmp_path)
        for obj in load(Path(demo.__file__).with_name("demo.yaml")):
            api.put(obj)
        api.put(namespace_object("shop"))
        api.put(workload("shop", opted_in=None, pod=FROM_A_VOLUME))
        api.put(workload("shop", "db", "StatefulSet", opted_in=None))
        set_key(api)
        yield {
            **os.environ,
            **providers.env(),
            "HOME": str(tmp_path),
            "KUBECONFIG": str(sandbox.kubeconfig(tmp_path / "config")),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }


def script(commands: list[str]) -> str:
    """Return a script that stops at the first command whose exit code is neither 0 nor one that its comment names."""
    lines = [END]
    for each in commands:
        codes = re.findall(r"#.*exit code (\d+)", each)
        lines += [each, STOP % (" ".join(["0", *codes]), shlex.quote(each))]
    return "\n".join(lines)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_the_docs_runs_or_has_a_mark(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for where, rest in scripts(page):
        if not rest:
            continue
        env, command = request.getfixturevalue("shell"), ["bash", "-c", script(rest)]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600, check=False)
        canary.observed(where, done.stdout + done.stderr)
        assert done.returncode == 0, f"{where}: repair or mark it (see {Path(__file__).name}):\n{done.stderr}"


def test_the_example_of_the_embedded_cluster_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "kubesandbox" / "README.md").read_text(), re.M | re.S)

    exec(example, {})

    assert (tmp_path / "kubeconfig").exists()


@pytest.mark.parametrize("command", [each for each in commands() if re.match(r"make|chores", each)])
def test_commands_of_make_and_chores_exist(command: str) -> None:
    command = re.sub(r"\$\w+", str(uuid4()), command)  # no shell replaces variables here
    words = list(takewhile(lambda word: word not in ("|", ">"), shlex.split(command, comments=True)))
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
        assert {each for each in words[1:] if "=" not in each} <= set(targets)
        return
    context = group.make_context("chores", [], resilient_parsing=True)
    found = group.get_command(context, words[1])
    assert found
    found.make_context(words[1], words[2:], parent=context)


PAGE = "{mark}\n```sh\nkubectl apply -k cronjobs   # all of it\nkubectl patch x \\\n  -p '{{}}'\n```\n"
RUN = "<!-- run by tests/repository/test_docs_commands.py::{} -->"


def left_with(mark: str) -> list[str]:
    (block,) = blocks_of(PAGE.format(mark=mark), "page.md")
    return left(block)


def test_marks_cover_commands() -> None:
    apply, patch = "kubectl apply -k cronjobs   # all of it", "kubectl patch x \\\n  -p '{}'"
    this = RUN.format("test_marks_cover_commands")

    assert left_with("") == [apply, patch]
    assert left_with("<!-- not run by a test: it needs a node -->") == []
    assert left_with(this) == []
    assert left_with(RUN.format("test_a_mark_that_is_not_valid_is_found")) == [patch]


@pytest.mark.parametrize(
    ("mark", "problem"),
    [
        (RUN.format("test_that_nobody_wrote"), "does not exist"),
        (RUN.format("test_commands_of_make_and_chores_exist"), "runs no command"),
        ("<!-- not run by a test:  -->", "has no reason"),
        (f"{RUN.format('test_marks_cover_commands')}\n<!-- not run by a test: why? -->", "remove the mark"),
    ],
)
def test_a_mark_that_is_not_valid_is_found(mark: str, problem: str) -> None:
    assert "kubectl apply -k cronjobs" in PAGE  # a string of this test, for the test above

    with pytest.raises(AssertionError, match=problem):
        left_with(mark)
