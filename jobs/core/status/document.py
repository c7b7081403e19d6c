"""The document of `chores status`, which all of its formats show. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import chain
from typing import Any

from jobs.core.status import custom
from jobs.core.status.custom import Custom
from jobs.core.status.installed import CronJob, JobPod, RunJob, is_of_installation, order
from jobs.core.status.problems import (
    Evaluated,
    Problem,
    limit,
    missing_right,
    numbered,
    of_findings,
    of_job,
    of_long_runs,
    of_pod_message,
    problem,
    sort,
)
from jobs.core.status.runs import WITHOUT_CRONJOB, job_fields
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.registry import JOBS
from jobs.kit.values.resources import EXCHANGE_RATES, RULES
from jobs.kit.values.text import listed

RATE_AGE = timedelta(days=5)  # the ECB publishes on working days: Easter has four days without rates
_INSTALL = "install the job, or delete them"
_MOST_NAMED = 5
_MOST_OF_A_KIND = 5000  # custom resources in the document; tenants create ExchangeRates


@dataclass(frozen=True)
class Target:
    """The installation that a document is about."""

    version: str
    server: str
    context: str
    namespace: str


@dataclass(frozen=True)
class Observed:
    """What was read. `evaluated` is by job; a job that is missing was not evaluated.

    `cronjobs_known` is false if CronJobs could not be listed. `notes` name what could not be read.
    `cronjobs` are those of all namespaces that could be read. `warnings` has the
    last Event of Jobs without a pod, and of pending pods.
    `is_partial` is true if something could not be read.
    """

    target: Target
    cronjobs: Sequence[CronJob] = ()
    jobs: Sequence[RunJob] = ()
    pods: Sequence[JobPod] = ()
    warnings: Mapping[str, str] = field(default_factory=dict)
    rules: Sequence[Custom] = ()
    mirrors: Sequence[Custom] = ()
    rates: Sequence[Custom] = ()
    namespaces: Sequence[str] = ()
    evaluated: Mapping[str, Evaluated] = field(default_factory=dict)
    notes: Sequence[str] = ()
    cronjobs_known: bool = True
    is_partial: bool = False


def document(observed: Observed, now: datetime) -> dict[str, Any]:
    """Return the document; its fields are described in docs/status.md."""
    cut: dict[str, str] = {}
    own_rules = [each for each in observed.rules if each.head.key.namespace == observed.target.namespace]
    rules, rule_problems = custom.rules(_most("rules", own_rules, cut), observed.evaluated.get("sync-copies"))
    mirrors, mirror_problems = custom.mirrors(
        _most("mirrors", observed.mirrors, cut), observed.evaluated.get("mirror-audit")
    )
    rates, rate_problems = custom.rates(_most("rates", observed.rates, cut))
    jobs = _jobs(observed, rates, now)
    needing = {
        "sync-copies": ("custom resources", len(rules)),
        "mirror-audit": ("custom resources", len(mirrors)),
        "fetch-rates": ("custom resources", len(rates)),
        "roll-workloads": _fact(observed, "roll-workloads", "workloads"),
        "farm-pods": _fact(observed, "farm-pods", "pods"),
    }
    elsewhere = {each.name for each in observed.cronjobs if not each.suspended} & {*JOBS}
    found = [
        *_of_jobs(observed, jobs, now),
        *_without_job(jobs, elsewhere, observed.target.namespace, needing),
        *(
            each
            for job, evaluated in observed.evaluated.items()
            for each in of_findings(job, observed.target.namespace, evaluated)
        ),
        *rule_problems,
        *mirror_problems,
        *rate_problems,
        *_old_rates(rates, now),
        *_unread_rules(observed),
    ]
    problems, cut_problems = limit(sort(found))
    return {
        "version": observed.target.version,
        "time": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        "server": observed.target.server,
        "context": observed.target.context,
        "namespace": observed.target.namespace,
        "unknown": _unknown(observed),
        "partial": observed.is_partial or any(each["notes"] for each in jobs),
        "jobs": jobs,
        "problems": problems,
        "rules": rules,
        "namespaces": list(observed.namespaces),
        "mirrors": mirrors,
        "rates": rates,
        "deferred": _deferred(observed.evaluated.get("roll-workloads")),
        "notes": list(dict.fromkeys(observed.notes)),
        "limits": {**cut, **cut_problems},
    }


def _unknown(observed: Observed) -> str | None:
    """Return why the document does not report how an installation is; None if it does."""
    namespace = observed.target.namespace
    if not observed.cronjobs_known:
        return missing_right("list", "cronjobs")
    installations = sorted({each.namespace for each in observed.cronjobs})
    if namespace in installations:
        return None
    others = f"; it is in {listed(installations, _MOST_NAMED)}" if installations else ""
    return f"kube-chores is not installed in namespace {namespace}{others}"


def _of_jobs(observed: Observed, jobs: Sequence[Mapping[str, Any]], now: datetime) -> list[Problem]:
    braked = {name for name, evaluated in observed.evaluated.items() if evaluated.brakes}
    namespace = observed.target.namespace
    found = (of_job(each["name"], namespace, each, is_braked=each["name"] in braked) for each in jobs)
    long_runs = (of_long_runs(each["name"], namespace, each, f"{now:%Y-%m-%dT%H:%M:%SZ}") for each in jobs)
    messages = (of_pod_message(each["name"], namespace, each["runs"]) for each in jobs)
    return list(chain(*found, *long_runs, *messages))


def _most(name: str, read: Sequence[Custom], cut: dict[str, str]) -> Sequence[Custom]:
    if len(read) > _MOST_OF_A_KIND:
        cut[name] = f"{len(read)} {name}, the first {_MOST_OF_A_KIND} are listed"
    return read[:_MOST_OF_A_KIND]


def _jobs(observed: Observed, rates: Sequence[Mapping[str, Any]], now: datetime) -> list[dict[str, Any]]:
    """Return the jobs, and the other CronJobs of the manifests that exist."""
    namespace = observed.target.namespace
    own = {each.name: each for each in observed.cronjobs if each.namespace == namespace and is_of_installation(each)}
    found = []
    for name in sorted({*JOBS, *own}, key=order):
        cronjob, evaluated = own.get(name), observed.evaluated.get(name)
        fields = (
            job_fields(cronjob, observed.jobs, observed.pods, observed.warnings, now)
            if cronjob
            else {"state": "not-installed" if observed.cronjobs_known else "unknown", **WITHOUT_CRONJOB}
        )
        notes = evaluated.notes if evaluated else []
        summary, facts = (evaluated.summary, dict(evaluated.facts)) if evaluated else ({}, {})
        if name == "fetch-rates":
            summary, facts = custom.summary(rates), {"rates": len(rates)}
        found.append({"name": name, **fields, "summary": summary, "facts": facts, "notes": notes})
    return found


def _fact(observed: Observed, job: str, noun: str) -> tuple[str, int]:
    found = observed.evaluated.get(job)
    return noun, found.facts.get(noun, 0) if found else 0


def _without_job(
    jobs: Sequence[Mapping[str, Any]], elsewhere: Set[str], namespace: str, needing: Mapping[str, tuple[str, int]]
) -> list[Problem]:
    """Return the problems of jobs that do not run, although objects need them: by job, what they are and their number.

    `elsewhere` are the jobs that run in another namespace.
    """
    states = {each["name"]: each["state"] for each in jobs}
    for each in elsewhere - {"sync-copies"}:  # the other jobs read all namespaces
        if states[each] == "not-installed":
            states[each] = "ok"
    if states.get("mirror-repair", "suspended") != "suspended":  # it audits too
        states["mirror-audit"] = "ok"
    return [
        problem(
            job,
            "warning",
            f"job-{states[job]}",
            None,
            f"{numbered(number, noun)} need{'s' * (number == 1)} this job, which is {states[job].replace('-', ' ')}",
            f'kubectl patch cronjob {job} -n {namespace} -p \'{{"spec": {{"suspend": false}}}}\''
            if states[job] == "suspended"
            else _INSTALL,
        )
        for job, (noun, number) in needing.items()
        if number and states[job] in ("suspended", "not-installed")
    ]


def _old_rates(rates: Sequence[Mapping[str, Any]], now: datetime) -> list[Problem]:
    found = []
    for each in rates:
        if each["ready"] == "True" and (day := _day(each["date"])) and now.date() - day > RATE_AGE:
            key = ObjectKey(EXCHANGE_RATES.kind, each["name"], each["namespace"])
            reason = f"the rate is of {day}, {(now.date() - day).days} days ago"
            name = f"{each['namespace']}/{each['name']}"
            todo = "name another provider in spec.provider, or check the network of the job"
            found.append(problem("fetch-rates", "warning", "rate-too-old", key, reason, todo, [name]))
    return found


def _day(text: str | None) -> date | None:
    try:
        return date.fromisoformat(text or "")
    except ValueError:
        return None


def _unread_rules(observed: Observed) -> list[Problem]:
    """Return a problem for each namespace with rules that no CronJob reads."""
    read_by = {each.namespace for each in observed.cronjobs if each.name == "sync-copies" and not each.suspended}
    own = observed.target.namespace  # if no CronJob reads it, that is another problem
    counts = Counter(each.head.key.namespace for each in observed.rules)
    return [
        problem(
            "sync-copies",
            "warning",
            "not-read",
            ObjectKey("Namespace", namespace),
            f"{number} {RULES.kind}{'' if number == 1 else 's'} in namespace {namespace}, which no sync-copies reads",
            f"move them to namespace {observed.target.namespace}, or delete them" if read_by else _INSTALL,
        )
        for namespace, number in sorted(counts.items())
        if namespace not in read_by and namespace != own
    ]


def _deferred(evaluated: Evaluated | None) -> list[dict[str, Any]]:
    found = (each for each in (evaluated.findings if evaluated else ()) if each.code == "deferred")
    return [{**each.object._asdict(), "code": each.deferral or each.code, "reason": each.reason} for each in found]
