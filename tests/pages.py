"""Shell commands in the README and the other pages for people, with the marks that name what runs them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.manifests import ROOT

GENERATED = {"cli.md", "outputs.md"}  # written by `make docs` from real runs
SHELLS = {"sh", "bash", "shell", "console", ""}
_FENCE = re.compile(r"^(?P<marks>(?: *<!--[^\n]*-->\n)*) *```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.M | re.S)
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)")


@dataclass(frozen=True)
class Block:
    """A block of shell commands: where it is, the comments on the lines before it, and its commands in order."""

    where: str
    marks: tuple[str, ...]
    commands: tuple[str, ...]


def pages() -> list[Path]:
    """Return all pages with commands for users and developers."""
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "kubesandbox" / "README.md"]
    return sorted(path for path in found if path.name not in GENERATED)


def blocks(path: Path) -> list[Block]:
    """Return the shell blocks of a page."""
    return list(blocks_of(path.read_text(), str(path.relative_to(ROOT))))


def blocks_of(text: str, name: str) -> Iterator[Block]:
    """Return the shell blocks of a text; in a block with prompts, only the lines after `$ ` are commands."""
    for found in _FENCE.finditer(text):
        if found["language"] not in SHELLS:
            continue
        prompted = re.findall(r"^ *\$ (.+)", found["text"], re.M)
        commands = prompted or (list(_split(found["text"])) if found["language"] else [])
        if commands:
            line = text.count("\n", 0, found.start("text"))
            marks = tuple(re.findall(r"<!-- (.*?) -->", found["marks"]))
            yield Block(f"{name}:{line}", marks, tuple(commands))


def kustomizations(page: str) -> list[tuple[str, str]]:
    """Return the kustomizations of a page in order: the folder that their first line names, and the text."""
    found = re.findall(r"```yaml\n((?:# (\S*)/kustomization\.yaml\n)?[^`]*?)```", (ROOT / page).read_text())
    return [(folder or ".", text) for text, folder in found if "kind: Kustomization" in text]


def _split(script: str) -> Iterator[str]:
    """Split a script into commands: one may have several lines with `\\`, quotes or a here-document."""
    command = ""
    for line in script.splitlines():
        command += line
        heredoc = _HEREDOC.search(command)
        if command.endswith("\\") or (heredoc and line.strip() != heredoc[1]) or _is_open(command, bool(heredoc)):
            command += "\n"
            continue
        if command.strip() and not command.lstrip().startswith("#"):
            yield command.strip()
        command = ""
    assert not command, f"a block ends inside of the command {command!r}"


def _is_open(command: str, heredoc: bool) -> bool:
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return not heredoc
    return False


def commands() -> list[str]:
    """Return the commands of all pages."""
    return [each for page in pages() for block in blocks(page) for each in block.commands]


def command(beginning: str) -> str:
    """Return the one command in the docs that begins like this; several pages may have it."""
    found = {without_comment(each) for each in commands() if begins(each, beginning)}
    assert len(found) == 1, f"the docs have {len(found)} commands that begin with {beginning!r}"
    return found.pop()


def begins(command: str, beginning: str) -> bool:
    """Return whether a command begins with these whole words."""
    return re.match(rf"{re.escape(beginning.strip())}(?:\s|$)", command) is not None


def without_comment(command: str) -> str:
    """Return a command without the comment at its end."""
    return re.sub(r"\s+# .*\Z", "", command)
