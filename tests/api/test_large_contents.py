"""Contents of which a run keeps only digests, as of large ones, on the embedded and the real API server."""

from __future__ import annotations

import pytest

from jobs.kit.data.objects import ObjectReducer
from jobs.kit.run.apply import _Writer
from jobs.kit.values.model import ObjectKey
from tests.api.conftest import Run
from tests.apis import Api
from tests.worlds import at, configmap, content, rule, secret


@pytest.fixture(autouse=True)
def _no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ObjectReducer.__init__, "__defaults__", (0,))


def test_values_that_are_too_large_to_keep_are_read_again_for_each_write(api: Api, sync: Run) -> None:
    home, team, other = (api.namespace(name) for name in ("home", "team-a", "team-b"))
    sources = [api.create(configmap(home)), api.create(secret(home))]
    for kind in ("configmap", "secret"):
        api.create(rule(f"large-{kind}", home, f"team-*-{api.token}", ruleType=kind))

    made = sync()
    api.patch(at(team, sources[0]), {"data": {"a": "theirs"}, "metadata": {"labels": {"theirs": "yes"}}})
    verified = sync("--verify", "content")
    api.patch(sources[0], {"data": {"a": "new"}})
    changed, again = sync(), sync()

    assert [made.summary, verified.summary["configured"], changed.summary["configured"]] == [{"created": 4}, 1, 2]
    assert (again.exit_code, again.summary) == (0, {"unchanged": 4})
    for source in sources:
        assert [content(api.get(at(each, source))) for each in (team, other)] == [content(api.get(source))] * 2
    copy = api.get(at(team, sources[0]))
    assert copy and copy["metadata"]["labels"]["theirs"] == "yes"


def test_a_source_that_changes_before_it_is_read_again_is_left_to_the_next_run(
    api: Api, sync: Run, monkeypatch: pytest.MonkeyPatch, home: str, team: str
) -> None:
    source = api.create(configmap(home))
    api.create(rule("large", home, team))
    read = _Writer._read

    def change_first(self: _Writer, key: ObjectKey) -> bytes:
        api.patch(source, {"data": {"a": "changed meanwhile"}})
        return read(self, key)

    with monkeypatch.context() as patch:
        patch.setattr(_Writer, "_read", change_first)
        ran = sync()
        kept = api.get(at(team, source))
    again = sync()

    assert (ran.exit_code, ran.summary, kept) == (0, {"skipped": 1}, None)
    assert "changed meanwhile: the next run reads it again" in str(ran.results)
    assert (again.summary, content(api.get(at(team, source)))) == ({"created": 1}, content(api.get(source)))
