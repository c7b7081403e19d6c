"""The matrix of rules and namespaces as data for page.js, which shows a part of it at a time. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.core.status.elements import SYMBOLS, level_of
from jobs.kit.values.text import brief

NO_TARGET = "no target"
MOST_PLACES = 2_000_000  # of a rule in a namespace: 4 MB of the page


def matrix(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return namespaces, rules, codes, and for each rule the index of its code in each namespace."""
    namespaces = document["namespaces"]
    rules = document["rules"][: max(1, MOST_PLACES // max(1, len(namespaces)))]
    codes = sorted(
        {code for rule in rules for code in rule["namespaces"].values()}, key=lambda code: (level_of(code).rank, code)
    )
    one_namespace = len({rule["namespace"] for rule in rules}) == 1
    index = {code: number for number, code in enumerate(codes, 1)}
    return {
        "namespaces": [brief(name) for name in namespaces],
        "rules": [brief(rule["name"] if one_namespace else f"{rule['namespace']}/{rule['name']}") for rule in rules],
        "codes": [_code(NO_TARGET, "·", "none", 9), *(_code_of(code) for code in codes)],
        "note": f"The first {len(rules)} rules are shown." if len(rules) < len(document["rules"]) else "",
        "cells": [[index.get(rule["namespaces"].get(name, ""), 0) for name in namespaces] for rule in rules],
    }


def _code_of(code: str) -> dict[str, Any]:
    level = level_of(code)
    return _code(code, SYMBOLS[level], level.value, level.rank)


def _code(word: str, symbol: str, level: str, rank: int) -> dict[str, Any]:
    return {"word": word, "symbol": symbol, "level": level, "rank": rank}
