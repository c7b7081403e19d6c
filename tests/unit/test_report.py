"""The report: text for people, JSON for programs."""

import json
from collections.abc import Sequence
from typing import Any

import click
import pytest
import yaml
from msgspec import structs

from jobs.kit.api.responses import Traffic
from jobs.kit.run import report
from jobs.kit.run.report import _quote
from jobs.kit.values.model import (
    Action,
    Body,
    Change,
    DryRun,
    ExitCode,
    FieldDiff,
    Finding,
    ObjectKey,
    Outcome,
    Plan,
    Result,
    RunOptions,
    Severity,
    Summary,
)
from tests.hostile_text import HOSTILE, left_in

LOGIN = ObjectKey("Secret", "login", "team-a")
CREATE = Finding("missing", Severity.WARNING, LOGIN, "from home/login", Change(Action.CREATE, Body()))
CHANGES = (
    *(FieldDiff("data.a", "1\n2\n", "1\n3\n"), FieldDiff("data.b", None, "x")),
    *(FieldDiff("data.c", "y", None), FieldDiff("data.d", "***", "***")),
)
REPLACE = Finding(
    "drifted",
    Severity.WARNING,
    ObjectKey("ConfigMap", "settings", "team-b"),
    "data.a changed",
    Change(Action.REPLACE, Body()),
    CHANGES,
    ("rule",),
)
CONFLICT = Finding("conflict", Severity.WARNING, ObjectKey("Secret", "login", "team-c"), "exists")
QUIET = Finding("unchanged", Severity.INFO, ObjectKey("Secret", "login", "team-d"), "from home/login")


def shown(capsys: pytest.CaptureFixture[str], *results: Result, unchanged: int = 0, **options: Any) -> str:
    return written(capsys, "sync-copies", Summary({"rules": 1, "sources": 2}), results, unchanged, **options)


def written(
    capsys: pytest.CaptureFixture[str],
    job: str,
    summary: Summary,
    results: Sequence[Result],
    unchanged: int = 0,
    **options: Any,
) -> str:
    plan = Plan((), unchanged, (), summary)
    report.write(report.Report(job, RunOptions(**options), plan, results, Traffic(), ExitCode.DONE))
    return capsys.readouterr().out


def test_rows_report_each_outcome_in_the_words_of_kubectl(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(
        capsys,
        Result(REPLACE, Outcome.DONE),
        Result(CREATE, Outcome.FAILED, "exceeded quota", ExitCode.FAILED),
        Result(CONFLICT, Outcome.REPORTED),
        Result(QUIET, Outcome.REPORTED),
        unchanged=7,
    )

    assert text == (
        "configmap/settings  team-b  configured  data.a changed\n"
        "secret/login        team-a  failed      from home/login; exceeded quota\n"
        "secret/login        team-c  conflict    exists\n"
        "sync-copies: 1 configured, 7 unchanged, 1 conflict, 1 failed (1 rule, 2 sources)\n"
    )


@pytest.mark.parametrize(("mode", "words"), [(DryRun.CLIENT, "dry run"), (DryRun.SERVER, "server dry run")])
def test_every_line_of_a_dry_run_contains_that_it_is_one(
    capsys: pytest.CaptureFixture[str], mode: DryRun, words: str
) -> None:
    text = shown(capsys, Result(CREATE, Outcome.PLANNED), dry_run=mode)

    assert text == (
        f"secret/login  team-a  created ({words})  from home/login\n"
        f"sync-copies ({words}): 1 created (1 rule, 2 sources)\n"
    )


def test_a_diff_shows_lines_that_change_and_hides_what_is_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, Result(REPLACE, Outcome.PLANNED), diff=True).splitlines()

    assert [line.strip() for line in lines[1:-1]] == [
        *("~ data.a:", "@@ -1,2 +1,2 @@", "1", "-2", "+3"),
        *('+ data.b: "x"', '- data.c: "y"', "~ data.d: *** (changed)"),
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("80", '"80"'),
        ('["a"]', "'[\"a\"]'"),
        ("'\"", '"\'\\""'),
        ('"\n', '"\\"\\n"'),
        ('"\\', '"\\"\\\\"'),
        ('"\x1b', '"\\"\\u001b"'),
    ],
)
def test_a_value_is_quoted_with_as_few_escapes_as_possible(value: str, shown: str) -> None:
    assert _quote(value) == shown


def test_verbose_also_shows_info_results(capsys: pytest.CaptureFixture[str]) -> None:
    result = Result(QUIET, Outcome.REPORTED)
    assert "unchanged  from home/login" in shown(capsys, result, unchanged=1, verbose=True)
    assert "home/login" not in shown(capsys, result, unchanged=1)
    assert json.loads(shown(capsys, result, output="json"))["results"] == []


def test_findings_can_be_grouped_by_custom_resource_worst_first(capsys: pytest.CaptureFixture[str]) -> None:
    def finding(code: str, severity: Severity, name: str, *subjects: str) -> Result:
        reason = "spec.replicas " + 30 * "is not as it should be "
        change = (FieldDiff("spec.replicas", "2" * 100, "1"),)
        found = Finding(code, severity, ObjectKey("Service", name), reason, diff=change, subjects=subjects)
        return Result(found, Outcome.REPORTED)

    results = [
        finding("orphan", Severity.CRITICAL, "left"),
        finding("drifted", Severity.WARNING, "a", "fair"),
        finding("drifted", Severity.WARNING, "b", "poor"),
        finding("missing", Severity.CRITICAL, "c", "poor"),
        finding("unreadable", Severity.CRITICAL, "(all)", "fair", "good", "poor", "worse"),
        finding("no-endpoints", Severity.CRITICAL, "d", "poor"),
    ]

    summary = Summary({"mirrors": 3}, by_subject=True)
    lines = written(capsys, "mirror-audit", summary, results, 3, diff=True).splitlines()

    assert [line for line in lines if not line.startswith("    ")] == [
        "poor: 2 critical, 1 warning",
        "  missing  service/c",
        "  no-endpoints  service/d",
        "  drifted  service/b",
        "fair, good, poor and 1 more: 1 critical",
        "  unreadable  service/(all)",
        "fair: 1 warning",
        "  drifted  service/a",
        "(without a custom resource): 1 critical",
        "  orphan  service/left",
        "mirror-audit: 3 unchanged, 2 drifted, 1 missing, 1 no-endpoints, 1 orphan, 1",
    ]
    assert max(map(len, lines)) <= 80


def test_json_and_yaml_have_the_same_document(capsys: pytest.CaptureFixture[str]) -> None:
    result = Result(REPLACE, Outcome.DONE)

    document = json.loads(shown(capsys, result, output="json"))

    assert yaml.safe_load(shown(capsys, result, output="yaml")) == document
    assert document["summary"] == {"configured": 1}
    assert document["results"][0]["object"] == {"kind": "ConfigMap", "name": "settings", "namespace": "team-b"}
    assert document["results"][0]["subjects"] == ["rule"]


def hostile_field(kind: Any) -> Any:
    """Return a hostile value for a field of a finding, by the type annotation."""
    values = {
        "str": HOSTILE,
        "ObjectKey": ObjectKey(HOSTILE, HOSTILE, HOSTILE),
        "tuple[str, ...]": (HOSTILE,),
        "tuple[FieldDiff, ...]": (
            FieldDiff(HOSTILE, None, HOSTILE),
            FieldDiff(HOSTILE, HOSTILE, None),
            FieldDiff(HOSTILE, HOSTILE, f"{HOSTILE}\nz"),
            FieldDiff(HOSTILE, HOSTILE.replace("\n", ""), HOSTILE.replace("\n", "z")),
        ),
        "Severity": Severity.WARNING,
        "ExitCode": ExitCode.DONE,
        "Change | None": None,
    }
    return values[kind]


@pytest.mark.parametrize("by_subject", [False, True])
def test_every_field_of_a_finding_is_escaped_on_a_terminal(
    capsys: pytest.CaptureFixture[str], by_subject: bool
) -> None:
    fields = {name: hostile_field(kind) for name, kind in Finding.__annotations__.items()}
    found = Finding(**{**fields, "code": "missing"})  # a code is always from the job itself
    summary = Summary({HOSTILE: 2}, HOSTILE, by_subject)
    results = [Result(found, Outcome.REPORTED, HOSTILE), Result(found, Outcome.FAILED, HOSTILE)]

    with click.Context(click.Command("chores"), color=True).scope():
        text = written(capsys, "sync-copies", summary, results, diff=True, verbose=True)
        text += written(capsys, "sync-copies", summary, [])

    assert left_in(text) == []
    # At least object, reason, message and fields of changes, for each of the two.
    assert text.count("forged") >= 2 * (1 + 1 + 1 + 4)


def test_a_long_cell_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    long = Finding("conflict", Severity.WARNING, ObjectKey("Secret", "n" * 5000, "team-c"), "r" * 5000)

    text = shown(capsys, Result(long, Outcome.FAILED, "m" * 5000))

    assert len(text) < 4000
    assert text.count("characters)") == 2


def test_a_diff_of_many_lines_is_cut_and_verbose_shows_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    change = FieldDiff("data.a", "\n".join(map(str, range(1000))), "\n".join(map(str, range(1000, 2000))))
    long = Finding("drifted", Severity.WARNING, ObjectKey("ConfigMap", "a", "team-c"), "", diff=(change,))

    cut = shown(capsys, Result(long, Outcome.REPORTED), diff=True).splitlines()
    whole = shown(capsys, Result(long, Outcome.REPORTED), diff=True, verbose=True).splitlines()

    assert len(cut) < 210
    assert cut[-2].strip() == "... and 1901 more lines (-v or -o json shows all of them)"
    assert len(whole) > 2000


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_documents_escape_any_string(capsys: pytest.CaptureFixture[str], output: str) -> None:
    odd = Finding("conflict", Severity.WARNING, ObjectKey("Secret", "login", "team-c"), f"{HOSTILE}\ud800")

    text = shown(capsys, Result(odd, Outcome.REPORTED), output=output)

    assert left_in(text) == []
    assert r"\ud800" in text.lower()


def test_a_least_severity_hides_nothing_that_explains_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        Result(CREATE, Outcome.DONE),
        Result(CREATE, Outcome.PLANNED),
        Result(CONFLICT, Outcome.REPORTED),
        Result(CONFLICT, Outcome.REPORTED, exit_code=ExitCode.REFUSED),
    ]

    text = shown(capsys, *results, min_severity=Severity.CRITICAL)

    assert text.splitlines()[-2:] == [
        "... and 2 findings that are less severe",
        "sync-copies: 1 created, 1 conflict (1 rule, 2 sources)",
    ]


def test_rows_that_are_left_out_hide_no_other_namespace(capsys: pytest.CaptureFixture[str]) -> None:
    keys = [ObjectKey("Secret", f"s{number:03}", "a-tenant") for number in range(60)]
    many = [Result(structs.replace(CONFLICT, object=key), Outcome.REPORTED) for key in keys]

    text = shown(capsys, *many, Result(CONFLICT, Outcome.REPORTED))

    assert (text.count("a-tenant"), text.count("team-c")) == (49, 1)
    assert "... and 11 more: secret conflict" in text
