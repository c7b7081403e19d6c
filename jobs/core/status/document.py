"""The document of `chores status`, which all of its formats show. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from jobs.core.status import clusters, custom
from jobs.core.status.custom import Custom
from jobs.core.status.installed import CronJob, JobPod, RunJob, is_of_installation
from jobs.core.status.problems import (
    NOT_EVALUATED,
    Evaluated,
    Problem,
    limit,
    missing_right,
    of_cronjob,
    of_findings,
    problem,
    sort,
)
from jobs.core.status.runs import WITHOUT_CRONJOB, job_fields
from jobs.kit.values.conditions import timestamp
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.registry import CLUSTERS, JOBS, REPAIR, VERIFY
from jobs.kit.values.resources import RULES
from jobs.kit.values.text import format_count, listed, plural

_INSTALL = "install the job, or delete them"
_INSTALL_OWN = {CLUSTERS: "install cronjobs/sync-copies-clusters, or remove spec.targets.clusters from them"}
_MOST_NAMED = 5
_MOST_OF_A_KIND = 5000  # custom resources in the document; tenants create ExchangeRates
Item = TypeVar("Item")


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
    target, time = observed.target, timestamp(now)
    evaluated = {job: observed.evaluated.get(job, NOT_EVALUATED) for job in (*JOBS, VERIFY, REPAIR, CLUSTERS)}
    cut: dict[str, str] = {}
    own_rules: Sequence[Custom] = [each for each in observed.rules if each.head.key.namespace == target.namespace]
    own_rules = _most("rules", own_rules, cut)
    rules, rule_problems = custom.rules(own_rules, evaluated["sync-copies"])
    pushed = clusters.selecting(own_rules)
    others = clusters.clusters(pushed)
    if cut_rules := clusters.cut(pushed):
        cut["clusters of rules"] = cut_rules
    mirrors, mirror_problems = custom.mirrors(_most("mirrors", observed.mirrors, cut), evaluated["mirror-audit"])
    rates, rate_problems = custom.rates(_most("rates", observed.rates, cut), now)
    jobs = _jobs(observed, rates, now)
    found: list[Problem] = []
    for each in jobs:
        name, own = each["name"], evaluated[each["name"]]
        found += of_cronjob(ObjectKey("CronJob", name, target.namespace), each, time, is_braked=bool(own.brakes))
        found += of_findings(name, target.namespace, own)
    needing = {
        "sync-copies": ("custom resources", len(rules)),
        CLUSTERS: ("CopyratorRules", len(pushed)),
        "mirror-audit": ("custom resources", len(mirrors)),
        "fetch-rates": ("custom resources", len(rates)),
        "roll-workloads": ("workloads", evaluated["roll-workloads"].facts.get("workloads", 0)),
        "farm-pods": ("pods", evaluated["farm-pods"].facts.get("pods", 0)),
    }
    found += [
        *_without_job(observed, jobs, needing),
        *rule_problems,
        *clusters.problems(pushed),
        *mirror_problems,
        *rate_problems,
    ]
    problems, cut_problems = limit(sort([*found, *_unread_rules(observed)]))
    return {
        "version": target.version,
        "time": time,
        "server": target.server,
        "context": target.context,
        "namespace": target.namespace,
        "unknown": _unknown(observed),
        "partial": observed.is_partial or any(each["notes"] for each in jobs),
        "jobs": jobs,
        "problems": problems,
        "rules": rules,
        "clusters": _most("clusters", others, cut),
        "namespaces": list(observed.namespaces),
        "mirrors": mirrors,
        "rates": rates,
        "deferred": [
            {**each.object._asdict(), "code": each.deferral or each.code, "reason": each.reason}
            for each in evaluated["roll-workloads"].findings
            if each.code == "deferred"
        ],
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


def _most(name: str, read: Sequence[Item], cut: dict[str, str]) -> Sequence[Item]:
    if len(read) > _MOST_OF_A_KIND:
        cut[name] = f"{len(read)} {name}, the first {_MOST_OF_A_KIND} are listed"
    return read[:_MOST_OF_A_KIND]


def _jobs(observed: Observed, rates: Sequence[Mapping[str, Any]], now: datetime) -> list[dict[str, Any]]:
    """Return the jobs, and the other CronJobs of the manifests that exist."""
    namespace = observed.target.namespace
    own = {each.name: each for each in observed.cronjobs if each.namespace == namespace and is_of_installation(each)}
    found = []
    for name in [*JOBS, *sorted(own.keys() - {*JOBS})]:
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


def _without_job(
    observed: Observed, jobs: Sequence[Mapping[str, Any]], needing: Mapping[str, tuple[str, int]]
) -> list[Problem]:
    """Return the problems of jobs that do not run, although objects need them: by job, what they are and their number.

    Jobs other than these two of sync-copies read all namespaces, so they may run in another namespace.
    """
    of_namespace = ("sync-copies", CLUSTERS)
    elsewhere = {each.name for each in observed.cronjobs if not each.suspended and each.name not in of_namespace}
    states = {each["name"]: each["state"] for each in jobs}
    if states.get("mirror-repair", "suspended") != "suspended":  # it audits too
        states["mirror-audit"] = "ok"
    found = []
    for job, (noun, number) in needing.items():
        state = states.get(job, "not-installed" if observed.cronjobs_known else "unknown")
        if number and (state == "suspended" or (state == "not-installed" and job not in elsewhere)):
            counted = format_count(noun, number)
            reason = f"{counted} need{'s' * (number == 1)} this job, which is {state.replace('-', ' ')}"
            patch = (
                f'kubectl patch cronjob {job} -n {observed.target.namespace} -p \'{{"spec": {{"suspend": false}}}}\''
            )
            todo = patch if state == "suspended" else _INSTALL_OWN.get(job, _INSTALL)
            found.append(problem(job, "warning", f"job-{state}", None, reason, todo))
    return found


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
            f"{format_count(plural(RULES.kind), number)} in namespace {namespace}, which no sync-copies reads",
            f"move them to namespace {observed.target.namespace}, or delete them" if read_by else _INSTALL,
        )
        for namespace, number in sorted(counts.items())
        if namespace not in read_by and namespace != own
    ]
