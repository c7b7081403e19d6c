"""Tenants of copies change each field of a rule, and no run of the job then violates an invariant."""

import json
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.kit.api import transport
from soak import journal
from soak.tenants import copies
from soak.tenants.rules import CHANGES, RULES, variants
from soak.tests.story import START
from soak.tests.town import Town, town
from tests.walk.crds import fields

# Not changed: a rule keeps its type, and a soak has no other cluster that a rule can select.
EXCEPTED = ("ruleType", "targets.clusters.")
SCHEMAS = fields("copyrators")
OPERATORS = {"In", "NotIn", "Exists", "DoesNotExist"}
BY_NAME = {each["metadata"]["name"]: each for each in RULES}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Town]:
    """A town of a seed; its time is that of troubles, too."""
    made: list[Town] = []
    clock = SimpleNamespace(time=lambda: START + (made[0].now if made else 0))
    for module in (copies, journal):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(transport, "IN_FLIGHT", 1)  # so that a tenant acts between two requests
    with town(tmp_path, getattr(request, "param", 1)) as there:
        made.append(there)
        yield there


def values(spec: Any, path: str) -> list[Any]:
    """The values of a field at a path such as `selector.matchExpressions[].key`."""
    name, _, rest = path.partition(".")
    found = spec.get(name.removesuffix("[]")) if isinstance(spec, dict) else None
    if found is None or not rest:
        return [found]
    return [value for each in (found if name.endswith("[]") else [found]) for value in values(each, rest)]


def test_tenants_change_each_field_of_a_rule() -> None:
    def seen(path: str, name: str) -> set[str]:
        return {json.dumps(values(each["spec"], path)) for each in variants(BY_NAME[name])}

    unchanged = {path for path in SCHEMAS if not any(len(seen(path, name)) > 1 for name in BY_NAME)}
    assert {path for path in unchanged if not path.startswith(EXCEPTED)} == set()
    assert BY_NAME.keys() == CHANGES.keys()


@pytest.mark.parametrize("path", [path for path, each in SCHEMAS.items() if "enum" in each])
def test_rules_have_each_value_of_a_field_with_few(path: str) -> None:
    found = {value for rule in RULES for each in variants(rule) for value in values(each["spec"], path)}
    assert path.startswith(EXCEPTED[1]) or {*SCHEMAS[path]["enum"]} <= found


def test_copies_follow_each_change_of_each_rule(here: Town) -> None:
    for changed in zip_longest(*map(variants, RULES)):
        for each in filter(None, changed):
            here.api.replace(each)
        here.look()
        assert here.settle() == [], changed


@pytest.mark.parametrize("here", [1, 2, 3], indirect=True)
def test_no_run_violates_an_invariant_whatever_tenants_do(here: Town) -> None:
    for _ in range(30):
        for _ in range(here.random.randint(1, 6)):
            here.act()
        run = here.run(meanwhile=here.random.choice((None, here.random.randint(0, 60))))
        assert here.violations() == [], run.log
    for _ in range(3):  # a deleted namespace comes first, then its objects
        here.tenants.resolve()
        here.look()
        here.run()
    assert here.settle() == []
