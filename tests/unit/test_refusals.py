"""Which refused writes fail a run: those that the operator has to correct, and not those of one tenant."""

import pytest

from jobs.kit.run.results import with_causes
from jobs.kit.values.errors import DENIED, QUOTA_EXCEEDED, WEBHOOK_FAILED, ApiError
from jobs.kit.values.model import ExitCode, Finding, ObjectKey, Outcome, Result, Severity

OWN = "kube-chores"


def refused(namespace: str, cause: str = DENIED, by: str = "policy") -> Result:
    finding = Finding("missing", Severity.CRITICAL, ObjectKey("ConfigMap", "settings", namespace), "")
    return Result(finding, Outcome.FAILED, "refused", ExitCode.FAILED, cause, by)


@pytest.mark.parametrize(
    ("results", "unchanged", "written", "fail"),
    [
        ([refused("team")], 1, 0, []),
        ([refused("team"), refused("team")], 1, 0, []),
        ([refused("team"), refused(OWN)], 1, 1, [OWN]),
        ([refused("team"), refused("other")], 1, 0, ["team", "other"]),
        ([refused("team"), refused("other")], 1, 1, []),
        ([refused("team"), refused("other", by="another")], 1, 0, []),
        ([refused("team"), refused("other"), refused("third", by="another")], 1, 0, ["team", "other"]),
        ([refused("team")], 0, 0, ["team"]),
        ([refused("team", WEBHOOK_FAILED)], 0, 0, ["team"]),
        ([refused("team", QUOTA_EXCEEDED, by="")], 0, 0, []),
        ([refused("team", cause="")], 1, 1, ["team"]),
    ],
)
def test_refusals_fail_a_run_in_its_own_namespace_or_if_they_are_of_the_whole_cluster(
    results: list[Result], unchanged: int, written: int, fail: list[str]
) -> None:
    found = with_causes(results, OWN, unchanged, written)

    assert [each.finding.object.namespace for each in found if each.exit_code is ExitCode.FAILED] == fail
    assert [each.finding.code for each in found] == [each.cause or "missing" for each in results]
    assert {each.finding.severity for each in found if not each.exit_code} <= {Severity.WARNING}


@pytest.mark.parametrize(
    ("status", "message", "name"),
    [
        (403, "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not here", "p"),
        (422, "ValidatingAdmissionPolicy 'q' denied request: no such key", "q"),
        (400, 'admission webhook "v" denied the request: not here', "v"),
        (500, 'Internal error occurred: failed calling webhook "w": refused', "w"),
        (500, 'admission webhook "v" denied the request: not here', ""),
        (403, 'secrets "fresh" is forbidden: exceeded quota: q, requested: count/secrets=1', ""),
    ],
)
def test_refusals_of_two_tenants_are_told_apart_by_the_name_of_the_policy_or_webhook(
    status: int, message: str, name: str
) -> None:
    assert ApiError(status, message).refused_by == name
