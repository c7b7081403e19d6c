"""No Secret value leaves a Secret."""

from dataclasses import replace
from pathlib import Path

import pytest

from soak.history import Key
from soak.invariants.secrets import Values
from soak.tests.story import Story
from tests.apis import Object
from tests.canary import canary
from tests.worlds import encoded


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story("sync-copies", tmp_path)


def test_a_secret_has_its_values(story: Story) -> None:
    story.past.add(0, Key("Secret", "a", "login"), {"metadata": {}, "data": {"user": encoded(canary())}})

    assert story.violations([Values()]) == []


@pytest.mark.parametrize(
    ("key", "obj"),
    [
        (Key("Event", "a", "x"), {"metadata": {}, "message": canary()}),
        (Key("CopyRator", "a", "x"), {"metadata": {}, "status": {"message": encoded(canary())}}),
        (Key("Secret", "a", "x"), {"metadata": {"annotations": {"value": canary()}}}),
    ],
)
def test_a_value_elsewhere_is_reported_once(story: Story, key: Key, obj: Object) -> None:
    story.past.add(0, key, obj)
    check = Values()

    assert len(story.violations([check])) == 1
    assert story.violations([check]) == []


def test_a_value_in_a_log_is_reported(story: Story) -> None:
    run = story.run(10)
    story.runs[0] = replace(run, log=f"created: {canary()}")

    (violation,) = story.violations([Values()])
    assert violation == f"the log of {run.pod} has a Secret value as plain"
