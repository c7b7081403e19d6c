"""What `chores status` reads of an installation, as values."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec

from jobs.core.status.custom import Custom
from jobs.core.status.document import Observed, Target
from jobs.core.status.installed import CronJob, JobPod, RunJob
from jobs.core.status.problems import Evaluated
from jobs.kit.values.model import Action, Change, Deletion, Finding, ObjectKey, Severity
from jobs.kit.values.reads import Head
from tests.manifests import everything

NOW = datetime(2026, 3, 4, 3, 0, 30, tzinfo=timezone.utc)
SCHEDULES = {each["metadata"]["name"]: each["spec"]["schedule"] for each in everything() if each["kind"] == "CronJob"}
TARGET = Target("0.1.0", "https://192.0.2.10:6443", "prod", "kube-chores")


def ago(**span: float) -> str:
    """Return the time so long before NOW."""
    return f"{NOW - timedelta(**span):%Y-%m-%dT%H:%M:%SZ}"


def cronjob(name: str, last: str = "", success: str | None = None, **fields: Any) -> CronJob:
    """Return a CronJob that is 30 days old; its last run succeeded unless `success` is another time."""
    found = CronJob(
        name, "kube-chores", SCHEDULES[name], "Etc/UTC", False, ago(days=30), last, last if success is None else success
    )
    return msgspec.structs.replace(found, **fields)


def run(
    cronjob: str, number: int, start: str, end: str = "", outcome: str = "", reason: str = "", message: str = ""
) -> RunJob:
    """Return a Job of a CronJob; without an end it is running."""
    outcome = outcome or ("succeeded" if end else "running")
    return RunJob(f"{cronjob}-{number}", cronjob, start, end, outcome, reason, message)


def pod(job: str, exit_code: int | None = None, message: str = "", waiting: str = "") -> JobPod:
    """Return the pod of a Job."""
    return JobPod(f"{job}-x7k2p", job, ago(minutes=3), exit_code, message, waiting)


def custom(
    kind: str,
    name: str,
    namespace: str,
    spec: Any,
    ready: tuple[str, str, str] | None,
    *,
    clusters_ready: tuple[str, str, str] | None = None,
    **status: Any,
) -> Custom:
    """Return a custom resource with a condition Ready, and of other clusters."""
    given = {"Ready": ready, "ClustersReady": clusters_ready}
    names = ("status", "reason", "message")
    conditions = [dict(zip(names, each, strict=True), type=name) for name, each in given.items() if each]
    text = msgspec.json.encode({"conditions": conditions, **status})
    return Custom(Head(ObjectKey(kind, name, namespace), "uid", 1, status=text), msgspec.json.encode(spec))


def finding(code: str, key: ObjectKey, reason: str = "", subject: str = "ca", **fields: Any) -> Finding:
    """Return a finding; a warning without a write."""
    return Finding(code, fields.pop("severity", Severity.WARNING), key, reason, subjects=(subject,), **fields)


def fleet_rule(name: str, *clusters: Any, ready: tuple[str, str, str] | None = None, **spec: Any) -> Custom:
    """Return a rule for other clusters, with what its status reports about them."""
    spec = {"ruleType": "configmap", "targets": {"clusters": {}}, **spec}
    own = ("True", "Synced", "0 copies")
    return custom("CopyratorRule", name, "kube-chores", spec, own, clusters_ready=ready, clusters=clusters)


def in_cluster(name: str, reason: str = "Synced", **fields: Any) -> Any:
    """Return the state of a rule in another cluster: 2 of 2 copies a minute ago, unless `fields` say otherwise."""
    return {"name": name, "reason": reason, "desired": 2, "copies": 2, "lastRunTime": ago(minutes=1), **fields}


def configmap(namespace: str, name: str = "ca-bundle") -> ObjectKey:
    return ObjectKey("ConfigMap", name, namespace)


def deployment(name: str) -> ObjectKey:
    return ObjectKey("Deployment", name, "team-shop")


def write() -> Change:
    """Return a planned write."""
    return Change(Action.DELETE, Deletion("uid", "1"))


def example() -> Observed:
    """Return an installation with each kind of problem."""
    log = "fetch-rates: no connection to the cluster: 192.0.2.10:6443: connection refused\n"
    jobs = [
        *(run("sync-copies", n, ago(minutes=n, seconds=30), ago(minutes=n, seconds=28)) for n in range(3)),
        *(run("fetch-rates", n, ago(hours=n, minutes=49), ago(hours=n, minutes=44), "failed") for n in range(3)),
        run("fetch-rates", 9, ago(hours=9, minutes=49), ago(hours=9, minutes=48)),
        run("sync-copies-clusters", 1, ago(seconds=30), ago(seconds=24)),
        run("mirror-audit", 1, ago(seconds=30)),
        run("mirror-audit", 2, ago(minutes=15), ago(minutes=14)),
        run("roll-workloads", 1, ago(minutes=1), ago(seconds=55)),
    ]
    rules = [
        custom(
            "CopyratorRule",
            "ca",
            "kube-chores",
            {"ruleType": "configmap", "targets": {"local": True, "clusters": {}}},
            ("False", "Conflict", "1 of 3 copies blocked by an object that is not managed by kube-chores"),
            sources=1,
            desiredCopies=3,
            copies=2,
            conflictCount=1,
            lastRunTime=ago(minutes=4),
            clusters_ready=("True", "Synced", "the copies in 3 clusters are as desired"),
            clusters=[in_cluster(name, desired=12, copies=12) for name in ("prod-eu", "prod-us", "staging")],
        ),
        custom(
            "CopyratorRule",
            "logins",
            "kube-chores",
            {"ruleType": "secret", "targets": {"local": True, "clusters": {"names": ["prod-*"]}}},
            ("False", "QuotaExceeded", "secret/login in namespace team-shop: exceeded quota: objects"),
            sources=1,
            desiredCopies=2,
            copies=1,
            conflictCount=0,
            lastRunTime=ago(minutes=2),
            clusters_ready=("False", "Conflict", "1 of 2 clusters not ready: prod-us (Conflict)"),
            clusters=[
                in_cluster("prod-us", "Conflict", desired=4, copies=3),
                in_cluster("prod-eu", desired=4, copies=4),
            ],
        ),
        custom("CopyratorRule", "stray", "team-shop", {}, None),
    ]
    return Observed(
        TARGET,
        cronjobs=[
            cronjob("sync-copies", ago(seconds=30), ago(seconds=28)),
            cronjob("fetch-rates", ago(minutes=49), ago(hours=9, minutes=48)),
            cronjob("mirror-audit", ago(seconds=30), ago(minutes=14)),
            cronjob("roll-workloads", ago(minutes=1), ago(seconds=55)),
            cronjob("mirror-repair", suspended=True),
            cronjob("sync-copies-clusters", ago(seconds=30), ago(seconds=24)),
        ],
        jobs=jobs,
        pods=[pod(f"fetch-rates-{n}", 1, log) for n in range(3)],
        rules=rules,
        mirrors=[
            custom(
                "RegistryMirror",
                "docker-hub",
                "",
                {"upstreamUrl": "docker.io"},
                (
                    "False",
                    "NoEndpoints",
                    "service/registry-mirror-docker-hub in namespace kube-chores-mirrors: has no ready endpoint",
                ),
            ),
            custom(
                "RegistryMirror", "quay", "", {"upstreamUrl": "https://quay.io"}, ("True", "Healthy", "no findings")
            ),
        ],
        rates=[
            custom(
                "ExchangeRate",
                "usd",
                "team-shop",
                {"currency": "USD"},
                ("True", "Current", "the ConfigMap contains the rate"),
                rate="1.0812",
                date="2026-03-03",
            ),
            custom(
                "ExchangeRate",
                "try",
                "team-shop",
                {"currency": "TRY"},
                ("False", "Jump", "the rate changed by 31 %, the limit is 20 %"),
                rate="41.02",
                date="2026-02-20",
            ),
        ],
        namespaces=["default", "kube-chores", "platform", "team-billing", "team-search", "team-shop"],
        evaluated={
            "sync-copies": Evaluated(
                [
                    finding("conflict", configmap("team-billing"), "exists and is not managed by kube-chores"),
                    finding("unchanged", configmap("team-search"), severity=Severity.INFO),
                    finding("unchanged", configmap("team-shop"), severity=Severity.INFO),
                    finding(
                        "missing",
                        ObjectKey("Secret", "login", "team-shop"),
                        "from platform/login",
                        "logins",
                        change=write(),
                    ),
                    finding(
                        "unchanged", ObjectKey("Secret", "login", "team-search"), "", "logins", severity=Severity.INFO
                    ),
                ],
                3,
                {"rules": 2, "sources": 2, "namespaces": 6},
                {"ca": 3, "logins": 2},
            ),
            "mirror-audit": Evaluated(
                [
                    finding(
                        "no-endpoints",
                        ObjectKey("Service", "registry-mirror-docker-hub", "kube-chores-mirrors"),
                        "has no ready endpoint",
                        "docker-hub",
                        severity=list(Severity)[-1],
                    )
                ],
                9,
                {"mirrors": 2},
            ),
            "roll-workloads": Evaluated(
                [
                    finding(
                        "deferred",
                        deployment("api"),
                        "configmap/ca-bundle changed, but the workload is paused",
                        deferral="paused",
                    ),
                    finding(
                        "deferred", deployment("web"), "secret/login changed, but this run reached --max-rolls (10)"
                    ),
                ],
                4,
                {"workloads": 6, "sources": 3},
            ),
        },
        notes=["you cannot list events; bind the ClusterRole kube-chores-view"],
    )


def with_jobs(*jobs: RunJob, cronjobs: list[CronJob], pods: tuple[JobPod, ...] = (), **fields: Any) -> Observed:
    """Return an installation of these CronJobs and Jobs only."""
    return replace(Observed(TARGET, cronjobs, jobs, pods), **fields)
