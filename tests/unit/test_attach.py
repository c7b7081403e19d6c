"""ServiceAccounts in the plan of a run: spec.attachTo of rules."""

from datetime import datetime, timezone

import pytest

from jobs.core.sync_copies.kinds import LAYOUTS
from jobs.core.sync_copies.observed import Namespace, Observed, Settings
from jobs.core.sync_copies.plan import plan
from jobs.kit.data.contents import field_content, field_set
from jobs.kit.data.objects import Header, Ownership, ReducedObject
from jobs.kit.values import stamps

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
NOBODY = Ownership(field_set([]), (), False, frozenset(), frozenset())


@pytest.mark.parametrize("is_active", [True, False])
def test_service_accounts_of_a_terminating_namespace_are_left_alone(is_active: bool) -> None:
    header = Header({stamps.ATTACHED: "true"}, {stamps.ATTACHED: "kube-chores/login"}, NOBODY)
    content = field_content(LAYOUTS["ServiceAccount"], {"imagePullSecrets": [{"name": "login"}]})
    robot = ReducedObject("team", "robot", "uid 1", header, content)
    observed = Observed((), (Namespace("team", {}, is_active, False),), {}, {}, accounts=(robot,))

    found = plan(observed, Settings("kube-chores"), NOW).findings

    assert [each.code for each in found] == (["still-attached"] if is_active else [])
