"""The table of README.md: each mutation of a field is tried where it is legal, and each row is one of the walk."""

from collections.abc import Iterator

import pytest

from tests.walk import mirrors, rates, rules
from tests.walk.crds import fields
from tests.walk.walk import TABLE, Field, Object, is_documented, mutations

ROWS = {
    "CopyratorRule": [*rules.FIELDS_OF_CLUSTERS, *rules.FIELDS],
    "ExchangeRate": rates.FIELDS,
    "RegistryMirror": mirrors.FIELDS,
}
SCHEMAS = {
    "CopyratorRule": fields("copyrators"),
    "ExchangeRate": fields("exchangerates"),
    "RegistryMirror": fields("registrymirrors"),
}
OF_OPERATOR = "Required by In and NotIn, forbidden with Exists and DoesNotExist."
IMMUTABLE = "cannot be changed: create another rule, and delete this one"
# Mutations that are not legal with any other fields, and the words of the CRD.
NEVER_LEGAL = {
    ("ruleType", "change to value 2"): IMMUTABLE,
    **{
        (f"{each}.matchExpressions[].values", name): OF_OPERATOR
        for each in ("selector", "targets.namespaceSelector", "targets.clusters.selector")
        for name in ("set", "remove")
    },
}


def _table() -> Iterator[tuple[str, set[str], set[str]]]:
    """Yield the row, the mutations with or without an effect, and those that are refused or invalid."""
    for line in TABLE.read_text().splitlines():
        if line.startswith("| ") and "`" in line:
            row, *cells = (each.strip() for each in line.strip("|").split("|"))
            changes, nothing, refused = ({*each.split(", ")} - {""} for each in cells)
            yield row, changes | nothing, refused


def _name(kind: str, row: Field) -> str:
    return f"{kind} `{row.path}` {row.about}".strip()


def _tried(rows: list[Field], schema: Object) -> set[str]:
    return {each.name for row in rows for each in mutations(row, schema)}


@pytest.mark.parametrize(("kind", "path"), [(kind, path) for kind, every in SCHEMAS.items() for path in every])
def test_each_mutation_of_a_field_is_tried_where_it_is_legal(kind: str, path: str) -> None:
    schema, rows = SCHEMAS[kind][path], [each for each in ROWS[kind] if each.path == path]
    names = {_name(kind, each) for each in rows}
    legal = {name for row, accepted, _ in _table() if row in names for name in accepted}

    may_be_refused = {"empty", "remove"} if schema["isRequired"] else {"empty"}
    only_refused = {each for each in _tried(rows, schema) - legal - may_be_refused if not each.startswith("invalid")}

    assert only_refused == {name for of, name in NEVER_LEGAL if of == path}


def test_the_crd_describes_what_is_never_legal() -> None:
    assert {each for each in NEVER_LEGAL.values() if not is_documented(each)} == set()


def test_the_table_has_all_rows_and_mutations_of_the_walk() -> None:
    tried = {_name(kind, row): _tried([row], SCHEMAS[kind][row.path]) for kind, rows in ROWS.items() for row in rows}
    shown = {row: accepted | refused for row, accepted, refused in _table()}

    assert shown.keys() == tried.keys()
    # The table has no "set" if the spec before it is refused.
    assert [row for row, names in tried.items() if names - {"set"} != shown[row] - {"set"}] == []
