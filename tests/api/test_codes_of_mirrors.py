"""mirror-audit decides by codes: with other words in all of its messages, it decides the same."""

from datetime import datetime

import pytest
from msgspec.structs import replace

from jobs.core.mirror_audit.observed import Observed, Settings
from jobs.core.mirror_audit.plan import plan
from jobs.kit.values.model import Plan
from tests.api.conftest import Run
from tests.api.test_mirror_audit import codes, node_pod_not_ready
from tests.api.test_mirror_events import create_event, node_pods
from tests.api.test_mirror_probes import silent, test_an_upstream_that_did_not_respond_is_probed_last
from tests.api.test_mirror_repair import (
    test_a_new_mirror_is_in_progress_until_its_nodes_are_configured,
    test_a_registry_that_every_repair_changes_and_is_never_ready_is_reported,
    test_a_registry_that_this_run_rolled_is_in_progress_and_later_reported,
)
from tests.apis import Api
from tests.mirrors import NODES, Mirrors

# Tests in which a run decides by what an earlier one wrote: here they run again, with the fixture below.
__all__ = [
    "silent",
    "test_a_new_mirror_is_in_progress_until_its_nodes_are_configured",
    "test_a_registry_that_every_repair_changes_and_is_never_ready_is_reported",
    "test_a_registry_that_this_run_rolled_is_in_progress_and_later_reported",
    "test_an_upstream_that_did_not_respond_is_probed_last",
]


def _other_words(text: str) -> str:
    return " ".join(reversed(text.split()))


@pytest.fixture(autouse=True)
def _reworded(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_other_words(observed: Observed, settings: Settings, now: datetime) -> Plan:
        planned = plan(observed, settings, now)
        findings = [
            replace(each, reason=_other_words(each.reason), remedy=_other_words(each.remedy))
            for each in planned.findings
        ]
        return replace(planned, findings=findings)

    monkeypatch.setattr("jobs.mirror_audit.plan", in_other_words)


def test_the_code_in_the_output_of_a_probe_is_enough(api: Api, audit: Run, mirrors: Mirrors) -> None:
    mirror = mirrors.healthy()
    node_pod_not_ready(mirrors, mirror)
    (pod,) = node_pods(mirror, "x7k2p")
    create_event(api, "Pod", pod, "Unhealthy", "probe failed: mirror-bypassed: in other words", NODES)

    assert codes(audit()) == ["mirror-bypassed"]
