"""Idioms that are always wrong, in whatever people read: docs, help, messages, docstrings, comments and names."""

import re
from pathlib import Path

from tests.manifests import ROOT

# Each with the words to write instead. In names, `_` separates words.
IDIOMS = {
    r"hangs? on\b": "depends on",
    r"held against": "compared with",
    r"\banew\b": "again; recreated",
    r"in vain": "without effect",
    r"th(at|is|e) very\b": "exactly that",
    r"(?<!there )\b(is|are|was|were) no (xml|json|yaml|list|label|copy|source|rule)\b": "is not a",
    r"\bbe had\b": "request failed; not available",
    r"\bwho may not\b": "users without permission to",
    r"\bwhat (differs|is so|was told)\b": "the difference; the actual state; the reported finding",
    r"\b(go|goes|gone) on with": "resume",
    r"\ba quarter of one\b": "every 15 minutes",
    r"as the server takes": "as the server allows",
    r"\band the like\b": "name the others",
    r"\bbut once\b": "only once",
}
PATTERNS = ["*.md", "docs/**/*.md", "cronjobs/**/*.yaml", "*/*.md", "setup.cfg", "Makefile"]
PATTERNS += [f"{folder}/**/*.py" for folder in ("jobs", "kubesandbox", "benchmarks", "soak", "tests")]


def idioms(text: str) -> list[str]:
    """Return the idioms of a text, each as `line: idiom (write ...)`."""
    text = text.lower().replace("_", " ")
    return [
        f"{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r} (write: {instead})"
        for idiom, instead in IDIOMS.items()
        for match in re.finditer(idiom, text)
    ]


def test_words_are_plain() -> None:
    paths = {path for pattern in PATTERNS for path in ROOT.glob(pattern)} - {Path(__file__)}

    assert {str(path): found for path in sorted(paths) if (found := idioms(path.read_text()))} == {}
    assert idioms("It hangs on the node.\ndef what_is_so() -> None: ...\nThere is no copy.") == [
        "1: 'hangs on' (write: depends on)",
        "2: 'what is so' (write: the difference; the actual state; the reported finding)",
    ]
