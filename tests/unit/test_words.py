"""Words and idioms that no reader should meet: in docs, help, messages, docstrings, comments and names.

Each pattern has the words to write instead. A name counts as its words: `was_told` is "was told".
"""

import re
from pathlib import Path

import pytest

from tests.manifests import ROOT

IDIOMS = {
    r"hangs? on\b": "depends on",
    r"held against": "compared with",
    r"\banew\b": "again; recreated",
    r"in vain": "without effect",
    r"th(at|is|e) very\b": "exactly that",
    r"(?<!there )\b(is|are|was|were) no (?!longer|more|less|fewer)\w+": "is not a",
    r"\bbe had\b": "request failed; not available",
    r"\bwho (may|cannot)\b": "users with, or without, permission to",
    r"\bwhat (differs|is so|was told)\b": "the difference; the actual state; the reported finding",
    r"\b(go|goes|gone) on with": "resume",
    r"\b(told|tells|tell|telling)\b": "reported, reports; name what is sent",
    r"\b(asked for|asks for|ask for|asks to|asked to)\b": "requested, requests, opts in, sets",
    r"\b(held|on hold|holds|holding)\b": "deferred (rolls), blocked (brake), contains",
    r"\ba quarter of one\b": "every 15 minutes",
    r"\bwork(s|ed)? out\b": "compute",
    r"\b(a|another|later|next|first|last|each) looks?\b|\blook(s|ed|ing)? at\b": "observation; read; observe; inspect",
    r"\bof (no |any |little )?use\b": "useful; unnecessary",
    r"as the server takes": "as the server allows",
    r"\bbeside\b": "next to; in addition to",
    r"\band the like\b": "name the others",
    r"\b(any|no) more\b(?! than)": "no longer",
    r"\bnot\b[^.;:]{1,60}\bany more\b": "no longer",
    r"\bbut once\b": "only once",
    r"\b(verdict|verdicts|judge|judged|judges)\b": "evaluate; result",
    r"\bcrowded\b": "truncated",
    r"\b(unlike|conceal|conceals)\b": "changed by the server; redact",
    r"\bwants?\b|\bwanted\b": "requires, selects, desired",
    r"\b(says|say|said)\b": "prints, reports, is set to",
    r"\bwhoever\b": "users who; the client that",
    r"\bmend(s|ed|ing)?\b": "repair, fix",
    r"\bour own\b|\bnot ours\b|\bis ours\b|\bof ours\b": "managed by kube-chores",
    r"\bgone\b": "deleted; does not exist",
    r"\bmade anew\b|\bmakes? it\b": "created; recreated",
    r"\bseen\b": "observed; found",
}

# Words of others: a term of an API, or what another tool prints.
ALLOWED = re.compile(r"\bGone\b|\bGONE\b|(?i:last seen)|terms_of_use|not currently held")

TEXTS = sorted(
    {
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob(".github/**/*.md"),
        *ROOT.glob("kubesandbox/*.md"),
        *ROOT.glob("cronjobs/**/*.yaml"),
        *ROOT.glob("jobs/**/*.py"),
        *ROOT.glob("jobs/*.yaml"),
        *ROOT.glob("kubesandbox/**/*.py"),
        *ROOT.glob("benchmarks/**/*.py"),
        *ROOT.glob("tests/**/*.py"),
        ROOT / "Makefile",
        ROOT / "setup.cfg",
    }
    - {Path(__file__), ROOT / "CHANGELOG.md"}
)


def idioms(text: str) -> list[str]:
    """Return the idioms of a text, each as `line: idiom (write ...)`."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        words = re.sub(r"(?<=\w)_|_(?=\w)", " ", ALLOWED.sub("", line))
        for idiom, instead in IDIOMS.items():
            found += [
                f"{number}: {match[0]!r} (write: {instead})" for match in re.finditer(idiom, words, re.IGNORECASE)
            ]
    return found


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_words_are_plain(path: Path) -> None:
    assert idioms(path.read_text()) == []


def test_an_idiom_is_found_in_prose_and_in_names() -> None:
    text = "It hangs on the node.\ndef was_told() -> None: ...\nThe file is no XML.\nThere is no copy."

    assert idioms(text) == [
        "1: 'hangs on' (write: depends on)",
        "2: 'told' (write: reported, reports; name what is sent)",
        "3: 'is no XML' (write: is not a)",
    ]
