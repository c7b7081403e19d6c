"""The alerts with their real times on invented series, by promtool."""

from pathlib import Path

import pytest
import yaml

from tests.monitoring.parts import ALERTS, SAMPLE, alerts, cases, missing, promtool, rules

pytestmark = pytest.mark.monitoring
TESTS = {"alerts_test.yaml": ALERTS, "sample_test.yaml": SAMPLE}
HERE = Path(__file__).parent


@pytest.fixture(params=TESTS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a folder with rules.yaml and its tests.yaml."""
    if reason := missing():
        pytest.skip(reason)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules(TESTS[request.param])))
    (tmp_path / "tests.yaml").write_text((HERE / request.param).read_text())
    return tmp_path


def test_promtool_accepts_the_rules_and_each_alert_fires_as_its_tests_require(folder: Path) -> None:
    checked = promtool("check", "rules", "--lint-fatal", str(folder / "rules.yaml"))
    assert checked.returncode == 0, checked.stdout + checked.stderr

    tested = promtool("test", "rules", str(folder / "tests.yaml"))

    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.parametrize("name", TESTS)
def test_each_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not(name: str) -> None:
    fires = {case["alertname"] for case in cases(HERE / name) if case.get("exp_alerts")}
    silent = {case["alertname"] for case in cases(HERE / name) if not case.get("exp_alerts")}

    assert fires == silent == {each["alert"] for each in alerts(TESTS[name])}
