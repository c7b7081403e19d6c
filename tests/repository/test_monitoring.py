"""What the alerts, their page and the dashboard repeat of each other. tests/monitoring runs them for real."""

import re
from itertools import combinations

from jobs import __version__
from tests.generated import check
from tests.manifests import ROOT
from tests.monitoring.parts import ALERTS, SAMPLE, alerts, dashboard, expressions, metrics_of, rules

TESTS = [ROOT / "tests" / "monitoring" / name for name in ("alerts_test.yaml", "sample_test.yaml")]

PAGE = (ROOT / "docs" / "alerts.md").read_text()
ALL = [*alerts(ALERTS), *alerts(SAMPLE)]
ANNOTATIONS = {"summary", "description", "command", "runbook_url"}


def test_each_alert_has_its_annotations_and_an_entry_on_its_page() -> None:
    names = [*dict.fromkeys(each["alert"] for each in ALL)]

    assert {frozenset(each["annotations"]) for each in ALL} == {frozenset(ANNOTATIONS)}
    assert {each["labels"]["severity"] for each in ALL} == {"warning"}
    assert re.findall(r"^### (\w+)$", PAGE, re.M) == names
    assert re.findall(r"^\| \[`(\w+)`\]\(#\w+\)", PAGE, re.M) == names


def test_the_runbook_of_each_alert_is_its_entry_in_the_release_with_this_version() -> None:
    for path in (ALERTS, SAMPLE, *TESTS):
        text = path.read_text()
        check(path, re.sub(r"(?<=/kube-chores/blob/)[^/]+(?=/docs/alerts\.md)", f"v{__version__}", text))
    page = rf"https://github\.com/[\w-]+/kube-chores/blob/v{re.escape(__version__)}/docs/alerts\.md"
    for each in ALL:
        assert re.fullmatch(f"{page}#{each['alert'].lower()}", each["annotations"]["runbook_url"]), each["alert"]


def test_the_command_of_each_alert_is_in_its_entry() -> None:
    places = {"installation": "NAMESPACE", "namespace": "NAMESPACE", "rule": "RULE", "mirror": "MIRROR"}
    for each in ALL:
        command = re.sub(r"{{ \$labels\.(\w+) }}", lambda found: places[found[1]], each["annotations"]["command"])
        entry = re.split(r"^##+ ", PAGE.partition(f"### {each['alert']}\n")[2], maxsplit=1, flags=re.M)[0]
        other = re.search(r"[Aa]s \[(\w+)\]", entry)  # the entry refers to the one of another alert
        assert f"`{command}`" in entry or other, each["alert"]


def test_both_sets_of_alerts_can_be_applied() -> None:
    names = [group["name"] for path in (ALERTS, SAMPLE) for group in rules(path)["groups"]]

    assert len(names) == len(set(names))


def test_no_alert_and_no_panel_has_a_label_of_namespaces() -> None:
    used = [each["expr"] for each in alerts(ALERTS)] + list(expressions().values())

    assert [each for each in used if re.search(r"\bnamespace\b", each)] == []


def test_the_dashboard_has_all_metrics_and_alerts_use_no_others() -> None:
    documented = metrics_of((ROOT / "docs" / "metrics.md").read_text())

    assert {name for each in expressions().values() for name in metrics_of(each)} == documented
    used = {name for group in rules(ALERTS)["groups"] for each in group["rules"] for name in metrics_of(each["expr"])}
    assert used <= documented


def test_panels_do_not_overlap_and_use_the_data_source_of_the_variable() -> None:
    panels = dashboard()["panels"]
    cells = {
        each["id"]: {
            (x, y)
            for x in range(each["gridPos"]["x"], each["gridPos"]["x"] + each["gridPos"]["w"])
            for y in range(each["gridPos"]["y"], each["gridPos"]["y"] + each["gridPos"]["h"])
        }
        for each in panels
    }

    assert len(cells) == len(panels) == len({each["title"] for each in panels})
    assert [pair for pair in combinations(cells, 2) if cells[pair[0]] & cells[pair[1]]] == []
    assert max(x for cell in cells.values() for x, _ in cell) == 23
    sources = [each["datasource"]["uid"] for panel in panels for each in (panel, *panel["targets"])]
    assert set(sources) == {"${datasource}"}
