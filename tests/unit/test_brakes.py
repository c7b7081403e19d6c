"""The deletion brake: how many deletions a run may do."""

import pytest

from jobs.kit.run.brakes import allowed, block_deletes
from jobs.kit.values.bodies import Deletion
from jobs.kit.values.model import Action, DesiredCounts, ExitCode, Finding, Fix, ObjectKey, Plan, Severity


@pytest.mark.parametrize(
    ("desired", "max_deletes", "most"),
    [(0, None, 10), (100, None, 10), (109, None, 10), (110, None, 11), (5000, None, 500), (5000, 3, 3), (1, 0, 0)],
)
def test_the_limit_is_max_deletes_or_10_or_a_tenth_of_the_desired_objects(
    desired: int, max_deletes: int | None, most: int
) -> None:
    assert allowed(desired, max_deletes) == most


def orphans(kind: str, number: int, code: str = "orphan", action: Action = Action.DELETE) -> list[Finding]:
    keys = [ObjectKey(kind, f"{code}-{each}", "team") for each in range(number)]
    return [Finding(code, Severity.WARNING, key, "", Fix(action, Deletion("uid", "7"))) for key in keys]


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

    blocked = [each for each in braked.findings if not each.fix]
    assert [(each.object.kind, each.exit_code) for each in blocked] == 11 * [("RoleBinding", ExitCode.BRAKE)]
    (brake,) = braked.brakes
    assert "11 RoleBindings (code orphan, limit 10); none of them is deleted" in brake.message
    assert (brake.option, brake.value) == ("--max-deletes", "11")
