"""Documents of `chores status -o json` for tests of its page: a small one, a hostile one, and a large one."""

from typing import Any

from jobs.kit.values.registry import JOBS
from tests.hostile_text import HOSTILE

Document = dict[str, Any]
NOW = "2026-05-04T06:00:00Z"
MARKUP = f"</script><script>document.title='ran'</script><img src=x onerror=alert(1)>\"'&amp;{HOSTILE}"
LONG = 253 * "n"


def run(name: str, start: str, end: str | None, outcome: str = "succeeded", **fields: Any) -> Document:
    ended = {"exitCode": None, "reason": None, "message": "", "stuck": False}
    return {"name": name, "start": start, "end": end, "outcome": outcome, **ended, **fields}


def job(name: str, state: str, schedule: str, last: str | None, **fields: Any) -> Document:
    return {
        "name": name,
        "state": state,
        "schedule": schedule or None,
        "timeZone": "Etc/UTC",
        "lastSuccess": last,
        "lastSchedule": last,
        "summary": {},
        "facts": {},
        "notes": [],
        "runs": [],
        **fields,
    }


def problem(
    of: str, severity: str, code: str, key: tuple[str, str, str] | None, reason: str, todo: str = ""
) -> Document:
    found = None if key is None else dict(zip(("kind", "name", "namespace"), key, strict=True))
    texts = {"reason": reason, "todo": todo, "subjects": ["ca-bundle"]}
    return {"job": of, "severity": severity, "code": code, "object": found, **texts}


def rule(name: str, namespaces: dict[str, str], ready: str = "True", **fields: Any) -> Document:
    copies = sum(code == "unchanged" for code in namespaces.values())
    numbers = {"sources": 1, "desiredCopies": len(namespaces), "copies": copies, "conflicts": len(namespaces) - copies}
    texts = {"reason": "Synced", "message": f"{copies} copies", "lastRun": "2026-05-04T05:59:01Z"}
    head = {"namespace": "kube-chores", "name": name, "type": "configmap", "ready": ready}
    return {**head, **texts, **numbers, "namespaces": namespaces, **fields}


def cluster(name: str, reason: str = "Synced", copies: int | None = 4, **rules: str) -> Document:
    state = {"desired": copies and 4, "copies": copies, "reason": reason, "lastRun": "2026-05-04T05:59:01Z"}
    return {"name": name, **state, "rules": {"ca-bundle": reason, "registry-login": "Synced", **rules}}


def rate(currency: str, value: str, day: str, ready: str = "True", **fields: Any) -> Document:
    head = {"namespace": "team-shop", "name": f"eur-{currency.lower()}", "base": "EUR", "currency": currency}
    texts = {"reason": "Current", "message": "", "lastChange": "2026-05-02T14:00:03Z"}
    return {**head, "rate": value, "date": day, "ready": ready, **texts, **fields}


def empty() -> Document:
    """Nothing is installed but the namespace."""
    lists = ("problems", "rules", "clusters", "namespaces", "mirrors", "rates", "deferred")
    return {
        "version": "0.1.0",
        "time": NOW,
        "server": "https://127.0.0.1:6443",
        "context": "",
        "namespace": "kube-chores",
        "unknown": None,
        "partial": False,
        "jobs": [job(name, "not-installed", "", None, timeZone=None) for name in JOBS],
        **{name: [] for name in lists},
        "notes": [],
        "limits": {},
    }


def small() -> Document:
    """An installation with each state once."""
    brake = "the deletion brake blocks 14 deletions\nraise --max-deletes to allow them"
    failed = run("fetch-rates-1", "2026-05-04T04:00:02Z", "2026-05-04T04:00:40Z", "failed", exitCode=4, message=brake)
    copies = [run(f"sync-copies-{n}", f"2026-05-04T05:5{n}:00Z", f"2026-05-04T05:5{n}:02Z") for n in (9, 8, 7)]
    audit = [run("mirror-audit-1", "2026-05-04T05:59:40Z", None, "running")]
    conflict = ("ConfigMap", "ca-bundle", "team-b")
    todo = "kubectl -n team-b get configmap ca-bundle -o yaml"
    check = {"code": "upstream-down", "severity": "warning", "object": None, "reason": "no answer in 9 s", "todo": ""}
    mirror = {"registry": "registry-1.docker.io", "reason": "Healthy", "message": "", "checks": []}
    return {
        **empty(),
        "context": "demo",
        "jobs": [
            job("sync-copies", "ok", "* * * * *", "2026-05-04T05:59:02Z", runs=copies, summary={"unchanged": 5}),
            job("fetch-rates", "failing", "0 * * * *", "2026-05-03T16:00:05Z", runs=[failed]),
            job("mirror-audit", "running", "*/15 * * * *", "2026-05-04T05:45:08Z", runs=audit),
            job("roll-workloads", "suspended", "*/5 * * * *", None),
            job("farm-pods", "never", "*/10 * * * *", None, notes=["no namespace opted in"]),
        ],
        "problems": [
            problem("fetch-rates", "critical", "job-failing", None, f"the last run failed: {brake}"),
            problem("fetch-rates", "critical", "jump", ("ExchangeRate", "eur-usd", "team-shop"), "1.13 became 11.3"),
            problem("sync-copies", "warning", "conflict", conflict, "not managed by kube-chores", todo),
        ],
        "rules": [
            rule("ca-bundle", {"team-a": "unchanged", "team-b": "conflict", "team-c": "missing"}, "False"),
            rule("registry-login", {"team-a": "unchanged", "team-c": "unchanged"}, conflicts=None),
        ],
        "clusters": [cluster("prod-us", "Unreachable", None), cluster("edge", "Conflict", 3), cluster("prod-eu")],
        "namespaces": ["kube-chores", "team-a", "team-b", "team-c"],
        "mirrors": [
            {"name": "docker-hub", "ready": "True", **mirror},
            {"name": "quay", "ready": "Unknown", **mirror, "registry": "quay.io", "checks": [check]},
        ],
        "rates": [
            rate("USD", "1.1380", "2026-05-01", "False", reason="Jump"),
            rate("CHF", "0.9360", "2026-05-03", lastChange=None),
        ],
        "deferred": [
            {
                "kind": "Deployment",
                "namespace": "team-b",
                "name": "shop",
                "code": "settling",
                "reason": "changed 10 s ago",
            }
        ],
        "notes": ["Secrets were not evaluated: you cannot list secrets"],
        "limits": {"problems": "1001 problems, the first 1000 are listed"},
    }


def hostile() -> Document:
    """Each text that a tenant, a colleague or a server controls is hostile."""
    key = {"kind": MARKUP, "name": LONG, "namespace": MARKUP}
    check = {"code": MARKUP, "severity": "warning", "object": key, "reason": MARKUP, "todo": MARKUP}
    failed = run(MARKUP, NOW, NOW, MARKUP, message=MARKUP, reason=MARKUP)
    todo = f"kubectl get {MARKUP}"
    wrong = {**problem("sync-copies", "critical", MARKUP, None, 5000 * "r", todo), "object": key, "subjects": [MARKUP]}
    return {
        **empty(),
        "server": MARKUP,
        "context": MARKUP,
        "namespace": MARKUP,
        "jobs": [job("sync-copies", MARKUP, MARKUP, NOW, runs=[failed], notes=[MARKUP], summary={MARKUP: 1})],
        "problems": [wrong],
        "rules": [
            {
                **rule(LONG, {MARKUP: MARKUP, "constructor": "__proto__", "__proto__": "collision"}, MARKUP),
                "message": MARKUP,
            },
            {**rule(MARKUP, {}, MARKUP), "type": MARKUP},
        ],
        "clusters": [{**cluster(LONG, MARKUP), "lastRun": MARKUP}, {**cluster(MARKUP), "rules": {MARKUP: MARKUP}}],
        "namespaces": [MARKUP, "__proto__", "constructor"],
        "mirrors": [
            {
                "name": MARKUP,
                "registry": MARKUP,
                "ready": "False",
                "reason": MARKUP,
                "message": MARKUP,
                "checks": [check],
            }
        ],
        "rates": [rate(MARKUP, MARKUP, "2026-05-01", reason=MARKUP, message=MARKUP)],
        "deferred": [{**key, "code": MARKUP, "reason": MARKUP}],
        "notes": [MARKUP],
        "limits": {MARKUP: MARKUP},
    }


def large(namespaces: int = 1000, rules: int = 50) -> Document:
    """An installation in which each 100th copy is in conflict, one tenant causes 700 problems, and one has another."""
    names = [f"team-{number:04}" for number in range(namespaces)]
    made = []
    for number in range(rules):
        codes = {name: "conflict" if (at + number) % 100 == 0 else "unchanged" for at, name in enumerate(names)}
        made.append(rule(f"rule-{number:02}", codes))
    key = ("FarmPod", "pod", "team-0000")
    problems = [problem("farm-pods", "warning", "conflict", key, f"pod {number}") for number in range(700)]
    problems.append(problem("sync-copies", "warning", "conflict", ("Secret", "login", "team-0999"), "the last one"))
    rates = [rate(f"C{number}", "1", "2026-05-01") for number in range(600)]
    clusters = [cluster(f"prod-{number:03}") for number in range(510)]
    made_lists = {"namespaces": names, "rules": made, "clusters": clusters, "problems": problems, "rates": rates}
    return {**small(), **made_lists}
