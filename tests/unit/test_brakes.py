"""The deletion brake: how many deletions a run may do."""

from typing import Any

import pytest

from jobs.kit.run.brakes import allowed, block_deletes
from jobs.kit.values.model import Action, Change, Deletion, DesiredCounts, ExitCode, Finding, ObjectKey, Plan, Severity


@pytest.mark.parametrize(
    ("desired", "max_deletes", "most"),
    [(0, None, 10), (100, None, 10), (109, None, 10), (110, None, 11), (5000, None, 500), (5000, 3, 3), (1, 0, 0)],
)
def test_the_limit_is_max_deletes_or_10_or_a_tenth_of_the_desired_objects(
    desired: int, max_deletes: int | None, most: int
) -> None:
    assert allowed(desired, max_deletes) == most


def orphans(
    kind: str,
    number: int,
    code: str = "orphan",
    action: Action = Action.DELETE,
    *,
    rule: str = "r",
    source: str = "home",
    namespace: str = "team",
) -> list[Finding]:
    """Return findings that delete objects; with a `*`, each of them has another rule, source or namespace."""

    def made(each: int) -> Finding:
        change = Change(action, Deletion("uid", "7"), origin=source.replace("*", str(each)))
        key = ObjectKey(kind, f"{code}-{each}", namespace.replace("*", str(each)))
        return Finding(code, Severity.WARNING, key, "", change, subjects=(rule.replace("*", str(each)),))

    return [made(each) for each in range(number)]


def test_each_kind_and_code_has_a_limit_of_its_own_for_deletions_only() -> None:
    findings = [
        *orphans("Secret", 11),
        *orphans("ConfigMap", 10),
        *orphans("ConfigMap", 10, "retired"),
        *orphans("ConfigMap", 20, "replaced", Action.RECREATE),
        *orphans("RoleBinding", 11),
    ]
    desired = DesiredCounts({"Secret": 110, "RoleBinding": 109})

    braked = block_deletes(Plan(findings, desired=desired), None)

    blocked = [each for each in braked.findings if not each.change]
    assert [(each.object.kind, each.exit_code) for each in blocked] == 11 * [("RoleBinding", ExitCode.BRAKE)]
    (brake,) = braked.brakes
    assert "11 RoleBindings (code orphan, limit 10); none of them is deleted" in brake.message
    assert (brake.option, brake.value) == ("--max-deletes", "11")


@pytest.mark.parametrize(
    ("many", "others", "still_blocked"),
    [
        ({"rule": "*", "namespace": "*"}, 10, 345),  # of one source namespace
        ({"source": "*", "namespace": "*"}, 10, 345),  # of one rule
        ({"rule": "*", "source": "*"}, 10, 345),  # in one namespace
        ({"rule": "*", "namespace": "*"}, 11, 356),  # the others are too many as well
        ({"rule": "o-*", "source": "o-*", "namespace": "o-*"}, 10, 355),  # nobody alone has too many
        ({"rule": "o-1", "namespace": "*"}, 10, 345),  # of one source namespace of a rule that has others
        ({"source": "o-1", "namespace": "*"}, 10, 345),  # of one rule of a source namespace that has others
        ({"rule": "many", "source": "tenant", "namespace": "o-1"}, 10, 345),  # in a namespace that has others
        ({"number": 10, "source": "tenant"}, 1, 10),  # within the limit, but not with those of others
        ({"number": 10, "rule": "*", "source": ""}, 1, 10),  # of one namespace
        ({"number": 12, "source": "tenant"}, 9, 12),
        ({"number": 5, "source": "tenant"}, 9, 14),  # there is no cause of most of them
    ],
)
def test_too_many_deletions_block_none_of_others_unless_those_are_too_many_as_well(
    many: dict[str, Any], others: int, still_blocked: int
) -> None:
    findings = orphans("RoleBinding", **{"number": 345, **many})
    findings += orphans("RoleBinding", others, rule="o-*", source="o-*", namespace="o-*")

    braked = block_deletes(Plan(findings), None)

    assert sum(not each.change for each in braked.findings) == still_blocked
    (brake,) = braked.brakes
    assert f"{still_blocked} RoleBindings (code orphan, limit 10)" in brake.message
    assert block_deletes(Plan(findings), int(brake.value)).brakes == ()
