"""The page of `chores status -o html` in a real browser, offline. Any message of its console is a failure."""

from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import Show
from tests.status_documents import MARKUP, empty, hostile, large, rule, small

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

PHONE: dict[str, Any] = {"viewport": {"width": 320, "height": 800}}
SECTIONS = [
    "Jobs",
    "Problems",
    "Runs",
    "Copies",
    "Clusters",
    "Registry mirrors",
    "Exchange rates",
    "Deferred rolls",
    "Notes",
]


def column(page: "Page", section: str, number: int = 1) -> list[str]:
    """The cells of a column, of the rows that are shown."""
    cells = page.locator(f"{section} table > tbody > tr > :nth-child({number})")
    return list(
        cells.evaluate_all(
            "cells => cells.filter((each) => each.checkVisibility()).map((each) => each.innerText.trim())"
        )
    )


def nodes(page: "Page") -> int:
    return int(page.evaluate("document.querySelectorAll('*').length"))


def violations(page: "Page") -> list[tuple[str, list[Any]]]:
    """What axe-core finds: contrast, names, roles, order of headings and others."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [(each["help"], [node["html"] for node in each["nodes"]]) for each in found]


@pytest.mark.parametrize("document", [small(), hostile(), empty()], ids=["small", "hostile", "empty"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_barrier(show: Show, document: dict[str, Any], scheme: Any) -> None:
    page = show(document, color_scheme=scheme)
    for each in page.locator("summary").all():
        each.click()

    assert violations(page) == []
    page.set_viewport_size(PHONE["viewport"])
    assert violations(page) == []


@pytest.mark.parametrize("document", [small(), hostile(), large(60, 30)], ids=["small", "hostile", "large"])
def test_a_phone_scrolls_in_one_direction(show: Show, document: dict[str, Any]) -> None:
    page = show(document, **PHONE)

    assert page.evaluate("document.documentElement.scrollWidth") == 320


@pytest.mark.parametrize("scripts", [True, False], ids=["", "without JavaScript"])
def test_a_reader_finds_each_section(show: Show, scripts: bool) -> None:
    page = show(small(), java_script_enabled=scripts)

    assert page.get_by_role("heading", level=2).all_inner_texts() == SECTIONS
    assert column(page, "#jobs") == ["sync-copies", "fetch-rates", "mirror-audit", "roll-workloads", "farm-pods"]
    assert column(page, "#problems", 3) == ["job-failing\nfetch-rates", "jump\nfetch-rates", "conflict\nsync-copies"]
    assert column(page, "#problems", 4)[0].splitlines()[1:] == ["raise --max-deletes to allow them"]
    assert column(page, "#rates", 3) == ["1.1380", "0.9360"]
    assert column(page, "#deferred") == ["deployment/shop\nin team-b"]
    assert page.get_by_role("table", name="RegistryMirrors").is_visible()
    assert page.get_by_role("img", name="Time line").is_visible()
    assert page.get_by_text("The matrix of rules and namespaces needs JavaScript").is_visible() is not scripts
    assert page.locator("thead button").count() == (0 if not scripts else page.locator("thead th").count())


def test_a_keyboard_sorts_a_table(show: Show) -> None:
    page = show(small())
    header = page.locator("#jobs thead th").nth(2)
    header.get_by_role("button").focus()

    page.keyboard.press("Enter")
    assert header.get_attribute("aria-sort") == "ascending"
    assert column(page, "#jobs")[:3] == ["sync-copies", "mirror-audit", "fetch-rates"]  # by age, not by text
    page.keyboard.press("Space")
    assert header.get_attribute("aria-sort") == "descending"
    assert column(page, "#jobs")[2:] == ["fetch-rates", "mirror-audit", "sync-copies"]
    assert page.locator("#jobs [aria-sort=none]").count() == 4


def test_a_keyboard_reaches_the_content_first(show: Show) -> None:
    page = show(small())
    page.keyboard.press("Tab")

    link = page.get_by_role("link", name="Skip to the content")
    assert link.evaluate("link => link === document.activeElement && getComputedStyle(link).outlineStyle") == "solid"
    assert link.evaluate("link => link.getBoundingClientRect().left") > 0
    page.keyboard.press("Enter")
    assert page.url.endswith("#main")


def test_a_filter_shows_all_about_a_namespace_or_a_state(show: Show) -> None:
    page = show(small())
    text, state = page.get_by_label("Filter"), page.get_by_label("State")

    text.fill("TEAM-B")
    assert column(page, "#problems") == ["configmap/ca-bundle\nin team-b"]
    assert column(page, "#deferred") == ["deployment/shop\nin team-b"]
    assert column(page, "#rates") == []
    assert page.locator("#rates table").is_hidden()
    assert page.locator("#rates").get_by_text("Nothing matches the filter.").is_visible()
    assert column(page, "#matrix") == ["team-b"]
    assert page.get_by_role("status").inner_text() == "3 of 19 rows, 1 of 4 namespaces"
    text.fill("no such name")
    tables = page.locator("main section:not(#runs) table").count()
    assert page.get_by_text("Nothing matches the filter.").count() == tables + 1
    text.fill("")
    assert page.get_by_text("Nothing matches the filter.").count() == 0
    state.select_option("problems")
    assert column(page, "#jobs") == ["fetch-rates", "farm-pods"]
    assert column(page, "#matrix") == ["team-b"]
    state.select_option("missing")
    assert column(page, "#matrix") == ["team-c"]
    state.select_option("")
    assert page.get_by_role("status").inner_text() == ""
    assert len(column(page, "#jobs")) == 5


def test_the_matrix_names_each_state(show: Show) -> None:
    page = show(small())
    row = page.locator("#matrix tbody tr").first

    assert column(page, "#matrix") == ["team-b", "team-c", "team-a", "kube-chores"]  # the worst first
    assert [each.text_content() for each in row.locator("td").all()] == ["1", "!conflict", "·no target"]
    assert row.locator("td").nth(1).get_attribute("title") == "ca-bundle in team-b: conflict"
    assert page.locator("#matrix thead th").all_inner_texts() == [
        "Namespace",
        "Problems",
        "ca-bundle",
        "registry-login",
    ]


def test_a_thousand_namespaces_and_fifty_rules_are_shown_in_parts(show: Show) -> None:
    document = large()
    document["rules"][49] = rule("rule-49", {**document["rules"][49]["namespaces"], "team-0777": "collision"})
    page = show(document)
    first = nodes(page)

    assert first < 17_000  # 50,000 places would be 200,000
    assert column(page, "#matrix")[:1] == ["team-0777"]
    assert column(page, "#matrix", 3)[:1] == ["✕\ncollision"]  # the worst rule is the first one too
    assert len(column(page, "#matrix")) == 40
    for button in ("next namespaces", "next namespaces", "next rules"):
        page.get_by_role("button", name=button).click()
    ranges = page.locator(".pager > span").all_inner_texts()
    assert ranges == ["namespaces 81\u2013120 of 1,000", "rules 26\u201350 of 50"]
    assert page.evaluate("document.activeElement.id") == "column-previous"  # where the keyboard was, and the end is
    page.locator("#by-namespace").click()
    assert column(page, "#matrix")[:2] == ["team-0000", "team-0001"]
    page.get_by_label("Filter").fill("team-099")
    assert column(page, "#matrix") == [f"team-099{number}" for number in range(10)]
    page.get_by_label("Filter").fill("rule-07")
    assert page.locator("#matrix thead th").all_inner_texts()[2:] == ["rule-07"]
    page.get_by_label("Filter").fill("")
    page.get_by_label("State").select_option("collision")
    assert column(page, "#matrix") == ["team-0777"]
    assert nodes(page) <= first + 100


def test_hostile_text_is_only_text(show: Show) -> None:
    page = show(hostile())

    assert page.title().startswith("1 problem: 1 critical · </script><script>")
    assert page.locator("script").count() == 2 and page.locator("img, a:not(nav a):not(.skip)").count() == 0
    assert column(page, "#matrix")[-1:] == ["constructor"] or "constructor" in column(page, "#matrix")
    assert "__proto__" in column(page, "#matrix", 3)[0] or "__proto__" in page.locator("#matrix").inner_text()
    for each in MARKUP[:20], "<img src=x onerror=alert(1)>":
        page.get_by_label("Filter").fill(each)
        assert len(column(page, "#mirrors")) == 2
