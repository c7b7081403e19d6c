"""The report of a soak."""

import json
from dataclasses import replace
from pathlib import Path

from soak.history import Key
from soak.journal import Journal
from soak.report import Report
from soak.tests.story import Story


def test_the_report_has_figures_and_violations(tmp_path: Path) -> None:
    story, report = Story("sync-copies", tmp_path), Report(7, None)
    run = story.run(0)
    story.runs.append(replace(story.runs.pop(), log="1 copy was created\n"))
    story.run(60, 1)
    story.write(run, 1, Key("ConfigMap", "team-1", "settings"), {"metadata": {}})
    report.count(story.writes, story.runs)
    journal = Journal(tmp_path / "journal.jsonl")
    with journal.fault("api-kill", "for 1 s"):
        journal.action("edit-source")
        journal.action("delete-copy", error="404")

    assert len(report.violated("copies", ["one", "two"])) == 2
    assert report.violated("copies", ["one"]) == []

    report.write(tmp_path / "report.json", journal)
    found = json.loads((tmp_path / "report.json").read_text())
    assert found["runs"] == {"sync-copies 0": 1, "sync-copies 1": 1}
    assert found["without_log"] == {"sync-copies": 1}
    assert found["writes"] == {"sync-copies create configmap": 1}
    assert (found["faults"], found["failedActions"]) == ({"api-kill": 1}, {"delete-copy": 1})
    assert [each["sentence"] for each in found["violations"]] == ["one", "two"]
    text = report.text(journal)
    assert "  2 runs, of which 1 did not end with 0\n" in text
    assert "  1 run without a log: it was empty, or could not be read\n" in text
    assert "  1 action by tenants, and 1 refused\n" in text
    assert text.endswith("copies: two (seed 7)")
    assert max(map(len, report.line(journal, "chaos").splitlines())) <= 80
