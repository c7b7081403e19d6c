"""Jobs and `chores status` decide by codes: with other words in all messages, they do and report the same."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from jobs.kit.run import runner
from jobs.kit.run.apply import apply
from jobs.kit.values.model import Plan
from tests.fault_world import Built, World, resource_of
from tests.sandbox.test_every_fault import every_world

OTHER = "in-other-words "
# Times, uids and ports: another in each run.
NOISE = re.compile(r'"[^"]*\d\d:\d\d[^"]*"|\d+ (s|min|seconds) ago|:\d{5}\b|[0-9a-f]{8,}')


@pytest.fixture
def reworded(monkeypatch: pytest.MonkeyPatch) -> None:
    """All texts of plans and of results of writes begin with another word."""

    class Run(runner.Run[Any, Any]):
        def __init__(self, job: Any, *arguments: Any) -> None:
            def plan(*given: Any) -> Plan:
                made: Plan = job.plan(*given)
                findings = [
                    structs.replace(each, reason=OTHER + each.reason, remedy=each.remedy and OTHER + each.remedy)
                    for each in made.findings
                ]
                brakes = [each._replace(message=OTHER + each.message) for each in made.brakes]
                return structs.replace(made, findings=findings, brakes=brakes)

            super().__init__(structs.replace(job, plan=plan), *arguments)

    def apply_with_other_words(*given: Any, **named: Any) -> Iterator[Any]:
        for result in apply(*given, **named):
            yield structs.replace(result, message=result.message and OTHER + result.message)

    monkeypatch.setattr(runner, "Run", Run)
    monkeypatch.setattr(runner, "apply", apply_with_other_words)


def done(cluster: World) -> list[object]:
    """What two runs and `chores status` do and report, without what is another in each run."""
    found: list[object] = []
    for job in (cluster.job, cluster.job, "status"):
        ran = replace(cluster, job=job).run()
        report = {key: value for key, value in ran.report.items() if key != "traffic"}
        found += [ran.exit_code, NOISE.sub("", json.dumps(report, indent=1)).replace(OTHER, "").splitlines()]
    # Statuses and Events have the texts: those that an earlier run wrote are written again.
    sent = ((each.method, resource_of(each), each.status) for each in cluster.requests())
    return [*found, sorted(each for each in sent if not each[1].endswith(("/status", "events")))]


@every_world
def test_other_words_change_no_decision(built: Built, request: pytest.FixtureRequest) -> None:
    with built.serve() as cluster:
        plain = done(cluster)
    request.getfixturevalue("reworded")
    with built.serve() as cluster:
        assert done(cluster) == plain
