"""One cause fires one alert, and two causes fire two: with the real times of the alerts, by promtool.

The alerts of the component and those on kube-state-metrics are both applied.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.manifests import Object
from tests.monitoring.outages import FAILED, GOOD, HEALTHY, LOST, MIRROR, SCHEDULES, Gateway, Run, alerts_of, series
from tests.monitoring.parts import ALERTS, SAMPLE, missing, rules

pytestmark = pytest.mark.monitoring
DAY = 86400
BEGIN = 70  # the minute in which something breaks
BOTH = {"groups": [*rules(ALERTS)["groups"], *rules(SAMPLE)["groups"]]}
STARTS_NOT = dict.fromkeys(SCHEDULES)
GATEWAY = Gateway()


@dataclass(frozen=True)
class Outage:
    """What runs do instead of working, by chore, and the alerts that fire because of it in so many `minutes`.

    A function has what the run does in each minute of the outage.
    """

    runs: Mapping[str, Run | Callable[[int], Run | None] | None]
    expected: set[str]
    minutes: int = 150
    gateway: Gateway = GATEWAY
    begin: int = BEGIN
    schedules: Mapping[str, tuple[int, int]] = field(default_factory=lambda: SCHEDULES)

    def __or__(self, other: "Outage") -> "Outage":
        runs, expected = {**self.runs, **other.runs}, self.expected | other.expected
        gateway = Gateway(self.gateway.loses + other.gateway.loses, self.gateway.down or other.gateway.down)
        return replace(self, runs=runs, expected=expected, minutes=max(self.minutes, other.minutes), gateway=gateway)


def only(*chores: str) -> dict[str, tuple[int, int]]:
    return {each: SCHEDULES[each] for each in chores}


RULE = 'rule_ready{rule="settings"}'
CLUSTER = 'cluster_ready{cluster="eu"}'
RATE = 'rate_ready{rate="shop/usd"}'
BAD_MIRROR = Run(0, dict(zip(MIRROR, (0.0, 2.0), strict=True)))
NO_RIGHT = Run(2, None, is_working=False)
ALL_RULES = dict.fromkeys(HEALTHY["sync-copies"], 0.0)
ALL_RATES = dict.fromkeys(HEALTHY["fetch-rates"], 0.0)

SYNC_FAILS = Outage({"sync-copies": FAILED}, {"ChoreNotSucceeding chore=sync-copies"}, 60)
FARM_STARTS_NOT = Outage({"farm-pods": None}, {"ChoreNotSucceeding chore=farm-pods"})
NO_START = Outage(STARTS_NOT, {"NoChoreSucceeding"}, 480)
GATEWAY_DOWN = Outage({}, {"ChoresNotReporting"}, gateway=Gateway(down=range(BEGIN, BEGIN + 150)))
DEAD_CLUSTER = Outage({"sync-copies-clusters": Run(1, {CLUSTER: 0})}, {"ClusterNotReady cluster=eu"})
CONFLICT = Outage({"sync-copies": Run(0, {RULE: 0})}, {"RuleNotReady rule=settings"})
BRAKE = Outage({"sync-copies": Run(4, {RULE: 0})}, {"RuleNotReady rule=settings"})
MIRROR_DOWN = Outage({"mirror-audit": BAD_MIRROR, "mirror-repair": BAD_MIRROR}, {"MirrorNotReady mirror=hub"})
BAD_RATE = Outage({"fetch-rates": Run(0, {RATE: 0})}, {"RateNotUpdated rate=shop/usd"}, 540)
OLD_RATE = Outage(
    {"fetch-rates": Run(0, {'rate_timestamp_seconds{rate="shop/usd"}': 9000 - 6 * DAY})},
    {"RateNotUpdated rate=shop/usd"},
    1100,
)
STUCK = Outage({"roll-workloads": Run(0, {'incomplete_rolls{reason="rollout-stuck"}': 1})}, {"RollsIncomplete"})
MISSING_SOURCE = Outage(
    {"roll-workloads": Run(0, {'deferred_rolls{reason="missing-source"}': 1})}, {"RollsDeferred reason=missing-source"}
)

OUTAGES = {
    "nothing": Outage({}, set(), 480),
    "a job always fails": SYNC_FAILS,
    "a job cannot start": FARM_STARTS_NOT,
    "a job never could start": replace(FARM_STARTS_NOT, begin=0, expected={"ChoreNotSucceeding cronjob=farm-pods"}),
    "a job fails from its first run on": Outage({"farm-pods": FAILED}, {"ChoreNotSucceeding chore=farm-pods"}, begin=0),
    "the metrics of a job do not arrive": Outage({"farm-pods": LOST}, {"ChoreNotSucceeding chore=farm-pods"}),
    "a right is missing": Outage({"roll-workloads": NO_RIGHT}, {"ChoreNotSucceeding chore=roll-workloads"}),
    "a right for some objects is missing": Outage(
        {"sync-copies": Run(2, ALL_RULES, is_working=False)}, {"ChoreNotSucceeding chore=sync-copies"}
    ),
    "no job can start": NO_START,
    "all jobs fail": Outage(dict.fromkeys(SCHEDULES, FAILED), {"NoChoreSucceeding"}, 480),
    "all jobs fail from the first run on": Outage(dict.fromkeys(SCHEDULES, FAILED), {"NoChoreSucceeding"}, begin=0),
    "the gateway is down, and loses what jobs send": Outage(
        dict.fromkeys(SCHEDULES, LOST), {"ChoresNotReporting"}, gateway=Gateway(down=range(BEGIN, BEGIN + 151))
    ),
    "no metrics arrive at the gateway": Outage(dict.fromkeys(SCHEDULES, LOST), {"NoChoreSucceeding"}, 480),
    "the gateway is down": GATEWAY_DOWN,
    "the gateway loses its metrics": Outage({}, set(), gateway=Gateway((BEGIN,))),
    "the gateway loses its metrics every ten minutes": Outage({}, set(), gateway=Gateway(tuple(range(BEGIN, 220, 10)))),
    "a cluster is dead": DEAD_CLUSTER,
    "a rule has a conflict": CONFLICT,
    "a brake blocks changes of a rule": BRAKE,
    "a rule is not valid": Outage(
        {each: Run(2, {RULE: 0}) for each in ("sync-copies", "sync-copies-clusters")}, {"RuleNotReady rule=settings"}
    ),
    "a rule is not valid without sync-copies": Outage(
        {"sync-copies-clusters": Run(2, {RULE: 0})},
        {"RuleNotReady rule=settings"},
        schedules=only("sync-copies-clusters", "fetch-rates"),
    ),
    "a brake blocks deletions of a deleted rule": Outage(
        {"sync-copies": Run(4, is_working=False)}, {"ChoreNotSucceeding chore=sync-copies"}
    ),
    "a brake blocks FarmPods": Outage({"farm-pods": Run(4, is_working=False)}, {"ChoreNotSucceeding chore=farm-pods"}),
    "a rate jumps": Outage({"fetch-rates": Run(4, {RATE: 0})}, {"RateNotUpdated rate=shop/usd"}, 540),
    "a mirror is down": MIRROR_DOWN,
    "an ExchangeRate is mistaken": BAD_RATE,
    "no provider has a newer rate": OLD_RATE,
    "the providers are down": Outage(
        {"fetch-rates": Run(1, ALL_RATES)}, {"RateNotUpdated rate=shop/usd", "RateNotUpdated rate=shop/chf"}, 600
    ),
    "all jobs get an earlier version, which sends only its last success": Outage(
        dict.fromkeys(SCHEDULES, Run(is_working=False)), set(), 480
    ),
    "a rollout is stuck": STUCK,
    "a source is missing": MISSING_SOURCE,
    "the only job fails": replace(SYNC_FAILS, schedules=only("sync-copies"), expected={"NoChoreSucceeding"}),
}
# Two causes at once. The second one of a pair must not be hidden by the first one.
PAIRS = {
    "two jobs fail": SYNC_FAILS | FARM_STARTS_NOT,
    "a job fails next to a dead cluster": DEAD_CLUSTER | FARM_STARTS_NOT,
    "a conflict and a dead cluster": CONFLICT | DEAD_CLUSTER,
    "a brake and a mirror": BRAKE | MIRROR_DOWN,
    "a conflict and a mistaken rate": CONFLICT | BAD_RATE,
    "two rules": Outage({"sync-copies": Run(4, ALL_RULES)}, {"RuleNotReady rule=settings", "RuleNotReady rule=logins"}),
    "a job that cannot start while the gateway is down": replace(
        FARM_STARTS_NOT | GATEWAY_DOWN, expected={"ChoreNotSucceeding cronjob=farm-pods", "ChoresNotReporting"}
    ),
    "the gateway loses its metrics, and a job does not come back": FARM_STARTS_NOT
    | Outage({}, set(), gateway=Gateway((BEGIN,))),
}


def with_gaps(outage: Outage, every: int) -> Outage:
    """Return the same one while each so many minutes Prometheus does not reach the gateway."""
    return replace(outage, gateway=Gateway(down=range(0, BEGIN + 2000, every)))


# A scrape that fails, or a gateway that loses its metrics, while something else is broken.
GAPS = {
    **{
        f"{name}, and a scrape fails every {every} minutes": with_gaps(outage, every)
        for name, outage, every in (
            ("nothing", Outage({}, set(), 480), 5),
            ("no job can start", NO_START, 5),
            ("a job always fails", SYNC_FAILS, 5),
            ("a rule has a conflict", CONFLICT, 5),
            ("a cluster is dead", DEAD_CLUSTER, 5),
            ("a mirror is down", MIRROR_DOWN, 15),
            ("a rollout is stuck", STUCK, 15),
            ("a source is missing", MISSING_SOURCE, 15),
            ("an ExchangeRate is mistaken", BAD_RATE, 5),
        )
    },
    "an ExchangeRate is mistaken, and the gateway loses its metrics every 6 hours": replace(
        BAD_RATE, minutes=1100, gateway=Gateway(tuple(range(BEGIN + 8, 1170, 360)))
    ),
    "no provider has a newer rate, and the gateway loses its metrics every 6 hours": replace(
        OLD_RATE, gateway=Gateway(tuple(range(BEGIN + 8, 1170, 360)))
    ),
    "a mirror is down, and the gateway loses its metrics every 15 minutes": replace(
        MIRROR_DOWN, gateway=Gateway(tuple(range(BEGIN, 220, 15)))
    ),
}
# What an alert, or a run that counts as working, could hide.
HIDDEN = {
    "the job of a dead cluster no longer starts": Outage(
        {"sync-copies-clusters": lambda minute: Run(1, {CLUSTER: 0}) if minute < 60 else None},
        {"ClusterNotReady cluster=eu", "ChoreNotSucceeding chore=sync-copies-clusters"},
    ),
    "the job of a dead cluster loses a right": Outage(
        {"sync-copies-clusters": lambda minute: Run(1, {CLUSTER: 0}) if minute < 60 else NO_RIGHT},
        {"ClusterNotReady cluster=eu", "ChoreNotSucceeding chore=sync-copies-clusters"},
    ),
    "the job of a rule with a brake no longer starts": Outage(
        {"sync-copies": lambda minute: Run(4, {RULE: 0}) if minute < 3 else None},
        {"RuleNotReady rule=settings", "ChoreNotSucceeding chore=sync-copies"},
    ),
    "a rule with a conflict stays so after runs that fail": Outage(
        {"sync-copies": lambda minute: Run(1, {RULE: 0}, is_working=False) if minute < 60 else Run(0, {RULE: 0})},
        {"RuleNotReady rule=settings", "ChoreNotSucceeding chore=sync-copies"},
    ),
    "a mistaken rate while each second run fails": Outage(
        {"fetch-rates": lambda minute: Run(1, ALL_RATES, is_working=False) if minute // 60 % 2 else Run(0, {RATE: 0})},
        {"RateNotUpdated rate=shop/usd"},
        600,
    ),
    "a mistaken rate while one namespace fails each run": Outage(
        {"fetch-rates": Run(1, {RATE: 0}, is_working=False)},
        {"RateNotUpdated rate=shop/usd", "ChoreNotSucceeding chore=fetch-rates"},
        540,
    ),
    "no provider has a newer rate while one namespace fails each run": Outage(
        {"fetch-rates": Run(1, {'rate_timestamp_seconds{rate="shop/usd"}': 9000 - 6 * DAY}, is_working=False)},
        {"RateNotUpdated rate=shop/usd", "ChoreNotSucceeding chore=fetch-rates"},
        700,
    ),
    "the job of a mistaken rate no longer starts": Outage(
        {"fetch-rates": lambda minute: Run(0, {RATE: 0}) if minute < 30 else None},
        {"RateNotUpdated rate=shop/usd", "ChoreNotSucceeding chore=fetch-rates"},
        480,
    ),
    "a job fails while the clock of another one is ahead": Outage(
        {"sync-copies": FAILED, "farm-pods": Run(ahead=7 * DAY)},
        {"ChoreNotSucceeding chore=sync-copies", "ChoreTimeInFuture"},
    ),
    "a job fails, and later no job starts": Outage(
        {each: lambda minute: GOOD if minute < 90 else None for each in SCHEDULES} | {"farm-pods": None},
        {"ChoreNotSucceeding chore=farm-pods", "NoChoreSucceeding"},
        240,
    ),
    "a job fails after no job could start": Outage(
        {each: lambda minute: GOOD if minute > 60 else None for each in SCHEDULES} | {"farm-pods": None},
        {"ChoreNotSucceeding chore=farm-pods", "NoChoreSucceeding"},
        240,
    ),
}


def of(outage: Outage, repaired: int) -> list[Object]:
    """Return the series of an outage, and of some minutes after it was repaired."""

    def runs(chore: str, minute: int) -> Run | None:
        if not outage.begin <= minute <= outage.begin + outage.minutes:
            return GOOD
        what = outage.runs.get(chore, GOOD)
        return what(minute - outage.begin) if callable(what) else what

    return series(runs, outage.begin + outage.minutes + repaired, outage.gateway, outage.schedules)


@pytest.fixture(autouse=True)
def _programs() -> None:
    if reason := missing():
        pytest.skip(reason)


@pytest.mark.parametrize("name", [*OUTAGES, *PAIRS, *GAPS, *HIDDEN])
def test_each_cause_fires_one_alert_until_it_is_repaired(name: str, tmp_path: Path) -> None:
    outage = {**OUTAGES, **PAIRS, **GAPS, **HIDDEN}[name]
    repaired = 61  # each job but sync-copies-verify runs within an hour

    fired, fires = alerts_of(tmp_path, BOTH, of(outage, repaired), outage.begin + outage.minutes + repaired)

    assert fired == outage.expected
    assert fires == set()


@pytest.mark.parametrize(
    ("outage", "expected"),
    [(SYNC_FAILS, "ChoreNotSucceeding cronjob=sync-copies"), (NO_START, "NoChoreSucceeding")],
    ids=["a job", "all jobs"],
)
def test_without_alerts_on_metrics_those_on_kube_state_metrics_report_it(
    outage: Outage, expected: str, tmp_path: Path
) -> None:
    fired, fires = alerts_of(tmp_path, rules(SAMPLE), of(outage, 61), outage.begin + outage.minutes + 61)

    assert (fired, fires) == ({expected}, set())


@pytest.mark.parametrize(
    "outage",
    [
        replace(SYNC_FAILS, minutes=80, schedules=only("sync-copies", "fetch-rates")),
        replace(SYNC_FAILS, minutes=80, gateway=Gateway(down=range(BEGIN + 10, BEGIN + 60))),
        Outage(
            {**{each: lambda minute: FAILED if minute < 60 else GOOD for each in SCHEDULES}, "sync-copies": FAILED},
            {"ChoreNotSucceeding chore=sync-copies"},
            80,
        ),
    ],
    ids=["while the other job does not run", "while the gateway is down", "while all jobs fail"],
)
def test_a_job_that_fails_again_after_an_alert_on_all_jobs_fires_one(outage: Outage, tmp_path: Path) -> None:
    _, fires = alerts_of(tmp_path, BOTH, of(outage, 0), outage.begin + outage.minutes)

    assert fires == outage.expected
