"""Prometheus, promtool and Pushgateway on loopback, and the rules and the dashboard of the manifests."""

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.control_plane import free_port
from tests.manifests import ROOT, Object, load
from tests.processes import Processes

PROGRAMS = ("prometheus", "promtool", "prometheus-pushgateway")
COMPONENT = ROOT / "cronjobs" / "components" / "monitoring"
ALERTS = COMPONENT / "alerts" / "alerts.yaml"
DASHBOARD = COMPONENT / "dashboard" / "dashboard.yaml"
SAMPLE = ROOT / "cronjobs" / "samples" / "monitoring" / "alert.yaml"
SHORT_LIMIT = 10  # seconds, of farm-pods
# Grafana replaces these variables before it sends an expression.
VARIABLES = {"$installation": ".*", "$__range": "1h"}
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def missing() -> str | None:
    """Return which program is not installed, or None."""
    absent = [name for name in PROGRAMS if not shutil.which(name)]
    return f"no {', '.join(absent)}: run `make monitoring-tools` as root" if absent else None


def rules(path: Path) -> Object:
    """Return the groups of rules of a PrometheusRule, as a rule file of Prometheus."""
    (found,) = load(path)
    assert found["kind"] == "PrometheusRule"
    spec: Object = found["spec"]
    return spec


def alerts(path: Path) -> list[Object]:
    """Return the alerts of a PrometheusRule."""
    return [rule for group in rules(path)["groups"] for rule in group["rules"] if "alert" in rule]


def with_short_times(groups: Object) -> Object:
    """Return rules without `for`, with SHORT_LIMIT for farm-pods, and with seconds for first runs after an outage."""
    groups = deepcopy(groups)
    for group in groups["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
            rule["expr"] = rule["expr"].replace("[70m:1m]", "[5s:1s]")
            if rule.get("record") == "kube_chores:due_timestamp_seconds":
                farm = 'kube_chores:working_timestamp_seconds{chore="farm-pods"}'
                rule["expr"] = f"{farm} + {SHORT_LIMIT} or on (installation, chore) ({rule['expr']})"
    return groups


def dashboard() -> Object:
    """Return the dashboard, as Grafana reads it."""
    (configmap,) = load(DASHBOARD)
    (text,) = configmap["data"].values()
    decoded: Object = json.loads(text)
    return decoded


def expressions() -> dict[str, str]:
    """Return the expressions of the dashboard with values for its variables, by panel and reference."""
    found = {}
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            found[f"{panel['title']} {target['refId']}"] = expression
    return found


def metrics_of(expression: str) -> set[str]:
    """Return the names of the metrics of kube-chores in an expression."""
    return set(re.findall(r"\bkube_chores_\w+", expression))


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    """Run promtool."""
    return subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=300, check=False)


@dataclass(frozen=True)
class Monitoring:
    """The addresses of a Prometheus that reads a Pushgateway every second."""

    prometheus: str
    gateway: str

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return the labels and the value of each series of an instant query."""
        data = self._get(f"/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
        assert data["resultType"] == "vector", data
        return [(each["metric"], float(each["value"][1])) for each in data["result"]]

    def firing(self) -> list[Object]:
        """Return the alerts that fire, with their labels and annotations."""
        return [each for each in self._get("/api/v1/alerts")["alerts"] if each["state"] == "firing"]

    def delete(self, chore: str, installation: str) -> None:
        """Delete the metrics of a job from the gateway."""
        url = f"{self.gateway}/metrics/job/{chore}/installation/{installation}"
        with _NO_PROXY.open(urllib.request.Request(url, method="DELETE"), timeout=10) as answer:
            assert answer.status == 202, answer.status

    def _get(self, path: str) -> Any:
        with _NO_PROXY.open(f"{self.prometheus}{path}", timeout=10) as answer:
            return json.load(answer)["data"]


def start(run: Processes, groups: Object) -> Monitoring:
    """Start a Pushgateway, and a Prometheus with these rules; wait until both are ready."""
    gateway, prometheus = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    (run.folder / "rules.yaml").write_text(yaml.safe_dump(groups))
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "pushgateway", "static_configs": [{"targets": [gateway]}]}],
    }
    (run.folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    # Debian's gateway keeps metrics in a file of the machine by default, so they would be there in the next test.
    run("prometheus-pushgateway", f"--web.listen-address={gateway}", "--persistence.file=")
    run(
        "prometheus",
        f"--config.file={run.folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={run.folder / 'tsdb'}",
        f"--web.listen-address={prometheus}",
    )
    found = Monitoring(f"http://{prometheus}", f"http://{gateway}")
    run.wait(lambda: _is_ready(found.gateway), "the gateway is not ready", "prometheus-pushgateway")
    run.wait(lambda: _is_ready(found.prometheus), "Prometheus is not ready", "prometheus")
    return found


def _is_ready(url: str) -> bool:
    try:
        with _NO_PROXY.open(f"{url}/-/ready", timeout=10) as answer:
            return bool(answer.status == 200)
    except urllib.error.URLError:
        return False


def cases(path: Path) -> list[Object]:
    """Return the tests of alerts in a file of promtool."""
    return [case for each in yaml.safe_load(path.read_text())["tests"] for case in each["alert_rule_test"]]
