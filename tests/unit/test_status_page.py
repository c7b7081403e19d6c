"""The page of `chores status -o html`, as text; tests/browser shows it in a browser."""

import base64
import hashlib
import json
import re
from datetime import datetime, timedelta
from html.parser import HTMLParser
from typing import Any

import pytest

from jobs.core.status import sections
from jobs.core.status.page import page
from tests import hostile_text
from tests.manifests import ROOT
from tests.status_documents import NOW, Document, empty, hostile, large, run, small

LOADING = {"src", "srcset", "href", "action", "data", "poster", "background", "style"}


class Parsed(HTMLParser):
    """The elements of a page, its texts by element, and attributes that load something or run code."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.loading: list[tuple[str, str]] = []
        self.rows = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attributes:
            if (name in LOADING and not (value or "").startswith("#")) or name.startswith("on"):
                self.loading.append((tag, name))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def ago(seconds: int) -> str:
    now = datetime.fromisoformat(NOW.replace("Z", "+00:00"))
    return f"{now - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


def text_of(document: Document) -> str:
    """The text of a page, without its style, script and data."""
    shown = re.sub(r"<(style|script)\b.*?</\1>", "", page(document), flags=re.S)
    return re.sub(r"\s+", " ", " ".join(Parsed(shown).texts))


@pytest.mark.parametrize("document", [empty(), small(), hostile()], ids=["empty", "small", "hostile"])
def test_a_page_loads_nothing_and_runs_only_its_own_script(document: Document) -> None:
    parsed = Parsed(page(document))

    assert parsed.loading == []
    assert parsed.tags.count("script") == 2 and "img" not in parsed.tags and "link" not in parsed.tags


def test_the_policy_allows_exactly_the_style_and_the_script_of_the_page() -> None:
    text = page(small())
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', text)
    inline = re.search(r"<style>(.*?)</style>", text, re.S), re.search(r"<script>(.*?)</script>", text, re.S)
    hashes = [base64.b64encode(hashlib.sha256(each[1].encode()).digest()).decode() for each in inline if each]

    assert policy
    assert policy[1].split("; ") == [
        "default-src 'none'",
        f"style-src 'sha256-{hashes[0]}'",
        f"script-src 'sha256-{hashes[1]}'",
        "base-uri 'none'",
        "form-action 'none'",
    ]


def test_hostile_text_is_escaped_in_every_place() -> None:
    text = page(hostile())

    assert "<img" not in text and text.count("</script>") == 2
    assert hostile_text.left_in(text) == []
    assert "\\u202e" in text


def test_each_part_of_a_table_has_its_role() -> None:
    """On a phone, the style is not that of a table, and some browsers then drop what the elements are."""
    text = page(small())

    for element, role in {"<table": "table", "<tr": "row", "<td": "cell", "<tbody": "rowgroup"}.items():
        written = re.findall(rf"{element}\b[^>]*", text)
        assert written and [each for each in written if f'role="{role}"' not in each] == []
    headers = [
        each for each in re.findall(r"<th [^>]*", text) if "columnheader" not in each and "rowheader" not in each
    ]
    assert headers == []


@pytest.mark.parametrize(
    "expected",
    [
        "3 problems: 2 critical, 1 warning",
        "exchangerate/eur-usd in team-shop",
        "kubectl -n team-b get configmap ca-bundle -o yaml",
        "14 min ago",
        "13 h ago",
        "no namespace opted in",
        "raise --max-deletes to allow them",
        "1 of 3",
        "no answer in 9 s",
        "2026-05-01 3 d ago",
        "deployment/shop in team-b",
        "changed 10 s ago",
        "you cannot list secrets",
        "1001 problems, the first 1000 are listed",
    ],
)
def test_a_page_without_scripts_has_what_the_document_has(expected: str) -> None:
    assert expected in text_of(small())


def test_the_page_has_all_of_the_example_of_the_status_command() -> None:
    document = json.loads((ROOT / "tests" / "status_document.json").read_text())
    text = text_of(document)

    for kind, fields in {
        "jobs": ("name", "state", "schedule"),
        "problems": ("code", "reason", "job"),
        "rules": ("name", "type", "reason", "message"),
        "clusters": ("name", "reason"),
        "mirrors": ("name", "registry", "reason"),
        "rates": ("name", "rate", "date"),
        "deferred": ("name", "reason"),
    }.items():
        assert [each[field] for each in document[kind] for field in fields if (each[field] or "") not in text] == []
    assert document["notes"][0] in text


@pytest.mark.parametrize(
    ("fields", "badge", "sentence"),
    [
        ({}, "ok", "Nothing is wrong"),
        ({"unknown": "you cannot list cronjobs"}, "off", "The status is unknown: you cannot list cronjobs"),
        ({"partial": True}, "off", "Nothing is wrong in what could be read"),
    ],
)
def test_a_page_without_problems_is_neutral_if_something_was_not_read(
    fields: Document, badge: str, sentence: str
) -> None:
    text = page({**empty(), **fields})

    assert f"<title>{sentence} · kube-chores" in text
    assert re.search(f'class="badge {badge}">.*?</span> {sentence}<', text)
    assert f"{sentence}." in text_of({**empty(), **fields})
    for part in ("No runs.", "No CopyratorRules.", "No RegistryMirrors.", "No ExchangeRates.", "No roll is deferred."):
        assert part in text


def test_the_clusters_are_a_table_with_the_rules_that_are_not_ready_there() -> None:
    shown = page(small())
    (table,) = re.findall(r'<section id="clusters".*?</section>', shown, re.S)
    rows = [" ".join(" ".join(Parsed(row).texts).split()) for row in re.findall(r"<tr.*?</tr>", table, re.S)]

    assert rows == [
        "Cluster State Copies Last run Rules not ready",
        "prod-us ✕ Unreachable 59 s ago ca-bundle (Unreachable)",
        "edge ✕ Conflict 3 of 4 59 s ago ca-bundle (Conflict)",
        "prod-eu ✓ Synced 4 of 4 59 s ago",
    ]
    assert '<a href="#clusters">Clusters</a>' in shown
    assert 'href="#clusters"' not in page({**small(), "clusters": []})
    assert "The first 500 of 510 rows." in text_of(large())


def test_many_problems_of_one_tenant_hide_no_problem_of_another() -> None:
    text = text_of(large())

    assert text.count("for ca-bundle") == 11  # 10 of the tenant with 700, and 1 of the other
    assert "secret/login in team-0999" in text
    assert "Not shown: 690 more conflict of farm-pods in team-0000." in text


def test_a_run_is_on_the_time_line_at_its_age() -> None:
    document = small()
    document["jobs"] = [{**document["jobs"][0], "runs": [run(f"r{age}", ago(age), ago(age)) for age in (0, 60, 3600)]}]
    marks = re.findall(r'<svg x="([\d.]+)%".*?<title>(r\d+): succeeded', page(document))
    ticks = re.findall(r'<text x="([\d.]+)%"[^>]*>(1 min|1 h)<', page(document))

    assert [name for _, name in marks] == ["r3600", "r60", "r0"]
    assert [at for at, _ in marks] == [*(at for at, _ in sorted(ticks, key=lambda tick: tick[1])), "98.00"]
    assert 2 <= float(marks[0][0]) < float(marks[1][0])


def test_many_rules_and_namespaces_give_a_part_of_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "MOST_PLACES", 9)

    shown = sections.matrix(small())

    assert (shown["rules"], shown["note"]) == (["ca-bundle", "registry-login"], "")
    monkeypatch.setattr(sections, "MOST_PLACES", 3)
    shown = sections.matrix(small())
    assert (shown["rules"], shown["note"]) == (["ca-bundle"], "The first 1 rules are shown.")
    assert [len(each) for each in shown["cells"]] == [4]


def test_long_tables_and_texts_are_cut_with_a_note() -> None:
    text = text_of(large())

    assert "The first 500 of 600 rows." in text
    assert page(large()).count('data-label="Pair"') == 500
    assert len(page(large())) < 1_000_000
    assert "rrr… (5000 characters)" in text_of(hostile())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lastSuccess", "2026-05-04T07:00:00Z"),
        ("lastSuccess", "0001-01-01T00:00:00Z"),
        ("lastSuccess", "yesterday"),
        ("schedule", None),
        (
            "runs",
            [run("no-pod", "2026-05-04T05:00:00Z", None, "unknown"), {**run("no-start", "", None), "start": None}],
        ),
    ],
)
def test_a_job_with_an_odd_field_is_shown(field: str, value: Any) -> None:
    document = small()
    document["jobs"][0][field] = value

    assert "sync-copies" in text_of(document)
