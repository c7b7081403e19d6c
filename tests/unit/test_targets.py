"""The target namespaces of many rules: the same as for each rule and namespace alone, with few comparisons."""

import random
from typing import Any

import pytest

from jobs.core.sync_copies import desired as module
from jobs.core.sync_copies.desired import targets_of_rules, why_no_target
from jobs.core.sync_copies.observed import Namespace
from jobs.core.sync_copies.rules import Rule, Spec, Targets
from jobs.core.sync_copies.selectors import Expression, LabelSelector, glob_matcher, names_matching
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import Head

NAMES = ["a", "aa", "ab", "abc", "b", "a-b", "a.b", "kube-system", "kube-a", "kubex", "team-1", "team-10", "team-2", ""]
PATTERNS = [
    *NAMES,
    "*",
    "?",
    "a*",
    "a?",
    "?b",
    "*b",
    "*-*",
    "kube-*",
    "kube*",
    "team-?",
    "team-1*",
    "[a]",
    "a[bc]",
    "**",
]


def rule(name: str, targets: Targets) -> Rule:
    return Rule(Head(ObjectKey("CopyratorRule", name, "home")), Spec("secret", targets=targets))


def some(rng: random.Random, values: list[str]) -> tuple[str, ...]:
    return tuple(rng.choice(values) for _ in range(rng.randrange(4)))


def random_namespaces(rng: random.Random) -> list[Namespace]:
    names = rng.sample(NAMES[:-1], rng.randrange(len(NAMES)))
    return [
        Namespace(
            name,
            {key: rng.choice(["x", "y"]) for key in some(rng, ["env", "tier"])},
            active=rng.random() < 0.8,
            opted_out=rng.random() < 0.2,
            opted_in=rng.random() < 0.5,
        )
        for name in names
    ]


def random_targets(rng: random.Random) -> Targets:
    labels = {key: rng.choice(["x", "y"]) for key in some(rng, ["env", "tier"])} if rng.random() < 0.3 else {}
    expressions = (Expression("env", rng.choice(["Exists", "DoesNotExist"])),) if rng.random() < 0.2 else ()
    include = some(rng, PATTERNS) if rng.random() < 0.8 else ("*",)
    return Targets(LabelSelector(labels, expressions), include, some(rng, PATTERNS))


def test_targets_are_those_without_a_reason_against_them() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        namespaces = random_namespaces(rng)
        rules = [rule(f"rule-{number}", random_targets(rng)) for number in range(8)]

        found = targets_of_rules(rules, namespaces)

        for each in rules:
            targets = [one.name for one in namespaces if why_no_target(each.spec.targets, one) is None]
            assert found[each.name] == sorted(targets), each.spec.targets


def test_a_glob_matches_sorted_names_as_its_pattern_does() -> None:
    names = sorted(NAMES)
    for glob in PATTERNS:
        assert list(names_matching(glob, names)) == [name for name in names if glob_matcher([glob]).fullmatch(name)]


def counted(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> list[Any]:
    """The arguments of each call of a function."""
    calls: list[Any] = []
    function = getattr(where, name)

    def noted(*arguments: Any) -> Any:
        calls.append(arguments)
        return function(*arguments)

    monkeypatch.setattr(where, name, noted)
    return calls


def test_each_glob_and_each_selector_is_compared_with_the_namespaces_once(monkeypatch: pytest.MonkeyPatch) -> None:
    globs = counted(monkeypatch, module, "names_matching")
    selectors = counted(monkeypatch, LabelSelector, "matches")
    selector = LabelSelector({"env": "x"})
    namespaces = [Namespace(f"team-{number:03}", {"env": "x"}, True, False) for number in range(100)]
    rules = [
        rule(f"rule-{number}", Targets(selector, ("team-*", f"team-{number:03}"), ("*-007", f"team-{number + 1:03}")))
        for number in range(50)
    ]

    found = targets_of_rules(rules, namespaces)

    assert {len(names) for names in found.values()} == {98, 99}
    assert [glob for glob, _ in globs] == ["team-*", "*-007"]
    assert len(selectors) == 100


def test_only_names_with_the_literal_prefix_of_a_glob_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    class Pattern:
        def fullmatch(self, name: str) -> bool:
            compared.append(name)
            return True

    monkeypatch.setattr("jobs.core.sync_copies.selectors.glob_matcher", lambda globs: Pattern())
    names = [f"team-{number:03}" for number in range(100)]

    assert names_matching("team-*", names) == names
    assert compared == []
    assert names_matching("team-04?", names) == compared == names[40:50]


def test_a_literal_name_is_compared_with_no_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    globs = counted(monkeypatch, module, "names_matching")
    namespaces = [Namespace(f"team-{number:03}", {}, True, False) for number in range(100)]
    rules = [rule(f"rule-{number}", Targets(include=(f"team-{number:03}", "absent"))) for number in range(100)]

    assert targets_of_rules(rules, namespaces) == {f"rule-{number}": [f"team-{number:03}"] for number in range(100)}
    assert globs == []


def test_rules_with_the_same_targets_share_one_list() -> None:
    namespaces = [Namespace(f"team-{number}", {}, True, False) for number in range(9)]
    same = [rule(name, Targets(include=("team-*",))) for name in ("x", "y")]

    found = targets_of_rules(same, namespaces)

    assert found["x"] is found["y"]
