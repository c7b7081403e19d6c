"""Hours of an installation, minute by minute, as the series that Prometheus reads.

An outage changes what runs do, or what the Pushgateway keeps. promtool evaluates the alerts with their real times.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.manifests import Object
from tests.monitoring.parts import promtool

# Minutes between two runs of each job, and the minute of its first one.
SCHEDULES = {
    "sync-copies": (1, 0),
    "roll-workloads": (5, 3),
    "farm-pods": (5, 4),
    "sync-copies-clusters": (5, 2),
    "mirror-audit": (15, 7),
    "mirror-repair": (15, 12),
    "fetch-rates": (60, 17),
    "sync-copies-verify": (1440, 37),
}
MIRROR = {'mirror_ready{mirror="hub"}': 1.0, 'mirror_findings{mirror="hub", severity="critical"}': 0.0}
RULES = {'rule_ready{rule="settings"}': 1.0, 'rule_ready{rule="logins"}': 1.0}
# The metrics of each job while everything is as desired.
HEALTHY = {
    "sync-copies": RULES,
    "sync-copies-clusters": RULES | {'cluster_ready{cluster="eu"}': 1.0, 'cluster_ready{cluster="us"}': 1.0},
    "mirror-audit": MIRROR,
    "mirror-repair": MIRROR,
    "fetch-rates": {'rate_ready{rate="shop/usd"}': 1.0, 'rate_ready{rate="shop/chf"}': 1.0},
    "roll-workloads": {
        'deferred_rolls{reason="missing-source"}': 0.0,
        'incomplete_rolls{reason="rollout-stuck"}': 0.0,
        'incomplete_rolls{reason="rollout-incomplete"}': 0.0,
    },
}
IDENTITY = ("chore", "cronjob", "rule", "cluster", "mirror", "rate", "reason", "persistentvolumeclaim")


@dataclass(frozen=True)
class Run:
    """The exit code of a run, and the metrics that differ from those of HEALTHY; None: it ended early, without any.

    Whether it `is_working` is what tests/unit/test_metrics.py tests. One that `is_lost` does not reach the gateway. The
    clock of its node is `ahead` by so many seconds.
    """

    code: int = 0
    differing: Mapping[str, float] | None = field(default_factory=dict)
    is_working: bool = True
    is_lost: bool = False
    ahead: int = 0


Runs = Callable[[str, int], Run | None]  # what the run of a chore in a minute does; None: it does not start
GOOD = Run()
FAILED = Run(1, None, is_working=False)
LOST = Run(is_lost=True)


@dataclass(frozen=True)
class Gateway:
    """Minutes of what a Pushgateway does: it loses its metrics, or Prometheus does not reach it."""

    loses: tuple[int, ...] = ()
    down: range = range(0)


def series(runs: Runs, minutes: int, gateway: Gateway, schedules: Mapping[str, tuple[int, int]]) -> list[Object]:
    """Return the input series of promtool: those of a Pushgateway and of kube-state-metrics."""
    values: dict[str, list[str]] = defaultdict(lambda: ["_"] * (minutes + 1))
    groups: dict[str, dict[str, float]] = {}
    succeeded: dict[str, float] = {}
    for minute in range(minutes + 1):
        for chore, (every, first) in schedules.items():
            run = runs(chore, minute) if minute >= first and (minute - first) % every == 0 else None
            if run and run.code == 0:
                succeeded[chore] = minute * 60.0
            if run and not run.is_lost:
                groups[chore] = {**({} if run.code == 0 else groups.get(chore, {})), **_sent(chore, run, minute)}
        if minute in gateway.loses:
            groups.clear()
        for chore, group in groups.items() if minute not in gateway.down else ():
            for name, value in group.items():
                metric, _, labels = name.partition("{")
                own = f'kube_chores_{metric}{{chore="{chore}", installation="kube-chores", {labels or "}"}'
                values[own.replace(", }", "}")][minute] = f"{value:.0f}"
        for chore in schedules:
            cronjob = f'{{namespace="kube-chores", cronjob="{chore}"}}'
            values[f"kube_cronjob_created{cronjob}"][minute] = "0"
            if chore in succeeded:
                values[f"kube_cronjob_status_last_successful_time{cronjob}"][minute] = f"{succeeded[chore]:.0f}"
    return [{"series": name, "values": " ".join(_ended(found))} for name, found in values.items()]


def _sent(chore: str, run: Run, minute: int) -> dict[str, float]:
    now = minute * 60.0 + run.ahead
    found = {"last_run_timestamp_seconds": now, "run_exit_code": float(run.code)}
    found |= {"last_success_timestamp_seconds": now} if run.code == 0 else {}
    found |= {"last_working_timestamp_seconds": now} if run.is_working else {}
    if run.differing is not None:
        found |= {'rate_timestamp_seconds{rate="shop/usd"}': now} if chore == "fetch-rates" else {}
        found |= {**HEALTHY.get(chore, {}), **run.differing}
    return found


def _ended(values: list[str]) -> list[str]:
    """Mark the end of a series, as Prometheus does when a target no longer has it."""
    before = ["_", *values]
    return ["stale" if each == "_" != last else each for last, each in zip(before, values, strict=False)]


def alerts_of(folder: Path, rules: Object, input_series: Sequence[Object], minutes: int) -> tuple[set[str], set[str]]:
    """Return the alerts that fired in these minutes, and those that fire at their end, each with what it is about."""
    firing, by = 'ALERTS{alertstate="firing"}', f"max by (alertname, {', '.join(IDENTITY)})"
    expressions = [f"{by} (max_over_time({firing}[{minutes + 1}m]))", f"{by} ({firing})"]
    never = [{"labels": "never", "value": 0}]  # promtool prints what it got instead
    cases = [{"expr": each, "eval_time": f"{minutes}m", "exp_samples": never} for each in expressions]
    tests = [{"interval": "1m", "input_series": input_series, "promql_expr_test": cases}]
    (folder / "rules.yaml").write_text(json.dumps(rules))
    file = folder / "tests.yaml"
    file.write_text(json.dumps({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}))
    ran = promtool("test", "rules", str(file))
    fired, fires = re.findall(r"^ +got: ?(.*)$", ran.stdout + ran.stderr, re.M)
    return _named(fired), _named(fires)


def _named(samples: str) -> set[str]:
    found = [dict(re.findall(r'(\w+)="([^"]*)"', each)) for each in re.findall(r"{[^}]*}", samples)]
    return {" ".join([each.pop("alertname"), *(f"{key}={value}" for key, value in each.items())]) for each in found}
