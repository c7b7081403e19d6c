"""Docs that are generated are up to date; `make docs` writes them."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import click
import pytest
from click.testing import CliRunner

from benchmarks import page
from jobs.__main__ import COMMANDS, chores
from jobs.core.mirror_audit.findings import CODES
from jobs.core.sync_copies.kinds import KINDS
from jobs.kit.files import crd
from jobs.kit.values.model import Severity
from tests.api import test_drift_of_other_kinds as other_kinds
from tests.api.test_drift import EDITS, SECRET_EDITS
from tests.generated import check, check_table
from tests.manifests import ROOT, everything
from tests.unit.test_metrics import METRICS
from tests.unit.test_places import TABLE as DECISIONS


def test_the_cli_reference_is_the_output_of_help() -> None:
    group = chores.make_context("chores", [], resilient_parsing=True, terminal_width=100)
    parts = ["# Command line\n\nWritten by `make docs` from `--help`.\n", f"```\n{chores.get_help(group)}\n```\n"]
    for name in COMMANDS:
        command = chores.get_command(group, name)
        assert command
        context = click.Context(command, info_name=name, parent=group, terminal_width=100)
        parts.append(f"## chores {name}\n\n```\n{command.get_help(context)}\n```\n")

    check(ROOT / "docs" / "cli.md", "\n".join(parts))


def grouped(rows: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return the rows of a table: kind, what the next run does, and the changes of a copy, one in each line."""
    changes: dict[tuple[str, str], list[str]] = {}
    for kind, change, end in rows:
        changes.setdefault((kind, end), []).append(change)
    return [f"| {kind} | {end} | {'<br>'.join(found)} |" for (kind, end), found in changes.items()]


def test_the_tables_of_drift_are_generated_from_their_tests() -> None:
    any_field = other_kinds.edits_of_any_field(other_kinds.SAMPLES["LimitRange"])
    rows = [
        *(("all", name, end) for name, (_, end) in EDITS.items()),
        ("ConfigMap", "binaryData added", "repaired"),
        *(("Secret", name, end) for name, (_, end) in SECRET_EDITS.items()),
    ]
    others = [*(("all", name, end) for name, (_, end) in any_field.items()), *other_kinds.documented()]

    for name, found in {"drift": rows, "drift of other kinds": others}.items():
        table = ["| kind | next run | changes of a copy |", "|---|---|---|", *grouped(found)]
        check_table(ROOT / "docs" / "drift.md", name, table)


def test_the_tables_of_decisions_and_kinds_are_those_of_the_code() -> None:
    head = "| rules require | the run finds | code | the run |"
    check_table(ROOT / "docs" / "sync-copies.md", "decisions", [head, "|---|---|---|---|", *DECISIONS])

    rows = ["| `ruleType` | copied fields | recreated if this changes | component |", "|---|---|---|---|"]
    for name, kind in KINDS.items():
        at = kind.layout
        of_data = ("type", "data", "immutable") if at.is_secret else ("data", "binaryData", "immutable")
        fields = ", ".join(f"`{each}`" for each in (of_data if at.has_data else at.fields))
        fixed = [f"`{at.fixed}`"] * bool(at.fixed) + ["an immutable copy"] * at.has_data
        rows.append(f"| `{name}` | {fields} | {', '.join(fixed)} | {f'`{kind.component}`' * bool(kind.component)} |")
    check_table(ROOT / "docs" / "copyratorrule.md", "kinds", rows)


def fields(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield a row for each field of a schema, except those of label selectors."""
    for name, field in schema["properties"].items():
        text, most = field["description"].replace("*", r"\*"), field.get("maxItems") or field.get("maxProperties")
        values = ", ".join(f"`{each}`" for each in field.get("enum", ()))
        limits = f" One of {values}." * bool(values) + (f" At most {most:,} entries." if most else "")
        yield f"| `{path}{name}` | {text}{limits} |"
        if "matchLabels" not in field.get("properties", {"matchLabels": ""}):
            yield from fields(field, f"{path}{name}.")


def test_the_table_of_fields_is_that_of_the_crd() -> None:
    schema = crd("copyrators")["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    rows = ["| field of `spec` | meaning |", "|---|---|", *fields(schema)]
    check_table(ROOT / "docs" / "copyratorrule.md", "spec", rows)


def test_the_table_of_metrics_is_that_of_the_code() -> None:
    found = sorted(METRICS, key=lambda each: each.name)
    rows = [f"| `{each.name}` | {', '.join(f'`{label}`' for label in each.labels)} | {each.help} |" for each in found]

    check_table(ROOT / "docs" / "metrics.md", "metrics", ["| metric | labels | meaning |", "|---|---|---|", *rows])


def test_the_tables_of_performance_are_those_of_its_results() -> None:
    check(page.PAGE, page.written(page.PAGE.read_text(), json.loads(page.RESULTS.read_text())))


LONGEST_RUNS = {  # at the sizes of docs/performance.md; the deadline has a reserve for a slower server
    "sync-copies": "replaces 100,000 copies: 95 s, or 130 s with admission policies: the next run writes the last ones",
    "sync-copies-clusters": "ends after 540 s",
    "sync-copies-verify": "reads 13.5 GB at 1 Gbit/s: 2 minutes; replaces 100,000 copies: 130 s",
    "farm-pods": "reads 150,000 pods: 21 s; creates 5,500 FarmPods at 20 a second",
    "roll-workloads": "writes 2,000 baselines: 7 s; retries twice for 30 s",
    "fetch-rates": "requests three providers in turn for 30 s each; writes 2,000 rates: 6 s",
    "mirror-audit": "probes 200 silent registries: 120 s",
    "mirror-repair": "the same, and waits for 120 s (`--wait`)",
}


JOBS = {
    each["metadata"]["name"]: each["spec"]["jobTemplate"]["spec"] for each in everything() if each["kind"] == "CronJob"
}
DEADLINES: dict[str, int] = {name: job["activeDeadlineSeconds"] for name, job in JOBS.items()}


def test_the_table_of_deadlines_is_that_of_the_manifests() -> None:
    rows = ["| CronJob | memory limit | deadline | longest run |", "|---|---|---|---|"]
    for name, longest in LONGEST_RUNS.items():
        (container,) = JOBS[name]["template"]["spec"]["containers"]
        memory = container["resources"]["limits"]["memory"].replace("Mi", " MiB")
        rows.append(f"| {name} | {memory} | {DEADLINES[name]} s | {longest} |")

    check_table(page.PAGE, "deadlines", rows)


def test_a_job_that_was_not_measured_has_the_shortest_deadline() -> None:
    most = min(DEADLINES[name] for name in LONGEST_RUNS)

    assert {name for name in DEADLINES.keys() - LONGEST_RUNS if DEADLINES[name] > most} == set()


def test_the_tables_of_findings_are_generated_from_the_code() -> None:
    for severity in Severity:
        found = [(code, each) for code, each in CODES.items() if each.severity is severity]
        rows = [f"| `{code}` | {each.meaning} | {each.remedy} |" for code, each in found]
        table = ["| code | meaning | what to do |", "|---|---|---|", *rows]

        check_table(ROOT / "docs" / "mirror-audit.md", f"{severity.value} findings", table)


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_and_option_has_a_help_text(name: str) -> None:
    command = chores.get_command(click.Context(chores), name)

    assert command and command.help
    assert [each.name for each in command.params if isinstance(each, click.Option) and not each.help] == []


def test_links_between_docs_are_valid() -> None:
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("kubesandbox/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.relative_to(ROOT)} links to {target}"


def test_anchors_in_pages_outside_of_docs_are_headings() -> None:
    """`make site` checks those in docs."""
    for path in ROOT.glob("*.md"):
        for target, anchor in re.findall(r"\]\(([^)#:]+\.md)#([^)]+)\)", path.read_text()):
            headings = re.findall(r"^#+ (.*)$", (path.parent / target).read_text(), re.M)
            slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, f"{path.name} links to {target}#{anchor}"


def test_the_readme_links_each_test_to_its_file() -> None:
    links = re.findall(r"\[`(test_\w+)`\]\((tests/\S+\.py)\)", (ROOT / "README.md").read_text())

    assert links
    assert [(name, file) for name, file in links if f"def {name}(" not in (ROOT / file).read_text()] == []


def test_each_summary_of_a_command_fits_in_80_columns() -> None:
    shown = CliRunner().invoke(chores, ["--help"], prog_name="chores", terminal_width=80).output
    summaries = re.findall(r"^  ([a-z-]+)  +(\S.*)$", shown.partition("Commands:")[2], re.M)

    assert [name for name, _ in summaries] == list(COMMANDS)
    assert [text for _, text in summaries if text.endswith("...") or len(text) > 55] == []
