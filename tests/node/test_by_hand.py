"""Runs by hand, with the lines of the README."""

from __future__ import annotations

import pytest

from tests.apis import Api
from tests.node.hands import Hands, Jobs
from tests.worlds import at, configmap, content, rule

pytestmark = pytest.mark.node


def test_the_job_runs_once_by_hand_and_its_twin_writes_nothing(api: Api, jobs: Jobs, kubectl: Hands) -> None:
    home, team = api.namespace("home"), api.namespace("team")
    source = api.create(configmap(home))
    api.create(rule("settings", home, team))

    kubectl.from_readme("kubectl create job try-dry --from=cronjob/sync-copies-dry-run")
    assert jobs.end("try-dry") == "Complete"
    assert api.writes() == []
    assert api.get(at(team, source)) is None
    planned = jobs.log("try-dry")

    kubectl.from_readme("kubectl create job try --from=cronjob/sync-copies")
    done = kubectl.from_readme("kubectl wait job/try")
    assert content(api.get(at(team, source))) == content(source)

    row = f"configmap/settings  {team}  created{{}}  from {home}/settings"
    assert row.format(" (dry run)") in planned
    assert row.format("") in done
