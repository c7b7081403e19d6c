"""Rules, mirrors and rates in the document: what their statuses report, next to what was evaluated now. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from jobs.core.mirror_audit.findings import CODES
from jobs.core.status.installed import parse_time
from jobs.core.status.problems import (
    UNCHANGED,
    Evaluated,
    Problem,
    denied_right,
    is_problem,
    of_findings,
    problem,
    todo,
)
from jobs.core.sync_copies.kinds import BY_NAME
from jobs.kit.values.conditions import READY, Condition
from jobs.kit.values.errors import InvalidObjectError
from jobs.kit.values.model import ExitCode, Finding, ObjectKey, Severity
from jobs.kit.values.reads import Head, decode
from jobs.kit.values.text import listed

_RATE_AGE = timedelta(days=5)  # the ECB publishes on working days: Easter has four days without rates
_UNREAD = ("Unknown", "NotRead", "no run has read it yet")
_MOST_NAMED = 3
_RANK = {Severity.CRITICAL: 0, Severity.WARNING: 1}
_REFUSED = "refused"
_CODES = {"NamespaceNotOptedIn": "not-opted-in", "SourceRefused": _REFUSED}  # by reason, where these differ
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


class _FailedNamespace(Struct):
    namespace: str = ""
    reason: str = ""


class _Status(Struct, rename="camel"):
    """The fields of the statuses of all kinds that the document shows."""

    conditions: list[Condition] | None = None
    sources: int | None = None
    desired_copies: int | None = None
    copies: int | None = None
    conflict_count: int | None = None
    failed_namespaces: list[_FailedNamespace] | None = None
    failed_namespace_count: int = 0
    last_run_time: str | None = None
    rate: str = ""
    date: str = ""
    findings: int = 0


class _Spec(Struct, rename="camel"):
    rule_type: str = ""
    base: str = "EUR"
    currency: str = ""
    upstream_url: str = ""


class Custom(Struct, frozen=True):
    """A custom resource as it was read: its head and its spec as JSON. `changed` is when its status changed last."""

    head: Head
    spec: bytes = b""
    changed: str = ""


def rules(read: Sequence[Custom], evaluated: Evaluated) -> tuple[list[dict[str, Any]], list[Problem]]:
    """Return the rules of the document, and the problems that only their statuses report."""
    found: list[dict[str, Any]] = []
    problems: list[Problem] = []
    findings = evaluated.by_subject
    for each in read:
        key, status, ready = _decoded(each)
        own = findings.get(key.name, [])
        readable = [finding for finding in own if not denied_right(finding)]
        is_evaluated = not evaluated.note and len(readable) == len(own)
        desired = evaluated.desired.get(key.name, 0) if is_evaluated else status.desired_copies
        reported = {failed.namespace: code_of(failed.reason) for failed in status.failed_namespaces or []}
        places = _places(readable) if is_evaluated else {**reported, **_places(readable)}
        found.append(
            {
                "namespace": key.namespace,
                "name": key.name,
                "type": _spec(each).rule_type,
                **ready,
                "sources": status.sources,
                "desiredCopies": desired,
                "copies": sum(f.code == UNCHANGED for f in own) if is_evaluated else status.copies,
                "conflicts": sum(f.code == "conflict" for f in own) if is_evaluated else status.conflict_count,
                "lastRun": status.last_run_time,
                "namespaces": places,
            }
        )
        problems += _of_rule(key, status, ready, own if is_evaluated else None)
    return found, problems


def mirrors(read: Sequence[Custom], evaluated: Evaluated) -> tuple[list[dict[str, Any]], list[Problem]]:
    """Return the mirrors of the document with their checks, and the problems that only their statuses report."""
    found, problems = [], []
    findings = evaluated.by_subject
    for each in read:
        key, status, ready = _decoded(each)
        own = [finding for finding in findings.get(key.name, []) if is_problem(finding)]
        last_audit = _last_audit(key, status, ready, own)
        checks = [*last_audit, *of_findings("mirror-audit", "", Evaluated(own))]
        names = ("code", "severity", "object", "reason", "todo")
        found.append(
            {
                "name": key.name,
                "registry": _spec(each).upstream_url.removeprefix("https://"),
                **ready,
                "checks": [{name: check[name] for name in names} for check in checks],
            }
        )
        problems += last_audit
    return found, _together(problems)


def _together(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems of mirrors; what an audit found about several mirrors in the same words is one."""
    found: dict[object, Problem] = {}
    for each in problems:
        same = found.setdefault((each["code"], each["reason"], each["todo"]), each)
        if same is not each:
            same["object"] = None
            same["subjects"] += each["subjects"]
    return list(found.values())


def rates(read: Sequence[Custom], now: datetime) -> tuple[list[dict[str, Any]], list[Problem]]:
    """Return the rates of the document, and the problems that their statuses report, or that are too old."""
    found, problems = [], []
    for each in read:
        (key, status, ready), spec = _decoded(each), _spec(each)
        found.append(
            {
                "namespace": key.namespace,
                "name": key.name,
                "base": spec.base,
                "currency": spec.currency,
                "rate": status.rate or None,
                "date": status.date or None,
                **ready,
                "lastChange": each.changed or None,
            }
        )
        day = parse_time(status.date)
        if ready["ready"] == "False":
            problems.append(_problem("fetch-rates", key, code_of(ready["reason"]), ready["message"]))
        elif ready["ready"] == "True" and day and (age := now.date() - day.date()) > _RATE_AGE:
            reason = f"the rate is of {day.date()}, {age.days} days ago"
            what = "name another provider in spec.provider, or check the network of the job"
            name = f"{key.namespace}/{key.name}"
            problems.append(problem("fetch-rates", "warning", "rate-too-old", key, reason, what, [name]))
    return found, problems


def summary(found: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the number of custom resources by the code of their condition; those that are Ready first."""
    counts = Counter(code_of(each["reason"]) for each in found if each["ready"] != "True")
    return {UNCHANGED: len(found) - counts.total(), **dict(sorted(counts.items()))}


def code_of(reason: str) -> str:
    """Return the code of a problem whose condition has this reason."""
    return _CODES.get(reason) or _CAPITAL.sub("-", reason).lower()


def _problem(job: str, key: ObjectKey, code: str, reason: str, severity: str = "warning") -> Problem:
    return problem(job, severity, code, key, reason, todo(job, code, key), (key.name,))


def _of_rule(
    key: ObjectKey, status: _Status, ready: Mapping[str, str], own: Sequence[Finding] | None
) -> Iterator[Problem]:
    """Yield a problem for each reason of failed writes, with its namespaces, and that of the condition.

    The evaluation (`own`) lists conflicts and other problems that it finds itself, and shows which writes are planned
    again: only these failed.
    """
    known = {finding.code for finding in own or () if is_problem(finding)}
    if any(finding.exit_code is ExitCode.BRAKE for finding in own or ()):
        known.add("deletions-blocked")
    pending = None if own is None else {finding.object.namespace for finding in own if finding.change}
    reported = status.failed_namespaces or []
    failed: dict[str, list[str]] = {}
    for one in reported:
        if code_of(one.reason) not in known and (pending is None or one.namespace in pending):
            failed.setdefault(one.reason, []).append(one.namespace)
    for reason, names in sorted(failed.items()):
        is_cut = status.failed_namespace_count > len(reported)
        number = f"at least {len(names)} of {status.failed_namespace_count}" if is_cut else str(len(names))
        noun = "namespace" if number == "1" else "namespaces"
        where = f"copies are not as desired in {number} {noun}: {listed(names, _MOST_NAMED)}"
        text = f"{where}; {ready['message']}" if ready["reason"] == reason else where
        yield _problem("sync-copies", key, code_of(reason), text)
    code = code_of(ready["reason"])
    # Of an evaluated rule, the last run tried and failed only if the next one would write again. A dry run does not
    # check the right of the job to bind ClusterRoles.
    has_failed = own is None or code == _REFUSED or any(finding.change for finding in own)
    if ready["ready"] == "False" and ready["reason"] not in failed and code not in known and has_failed:
        yield _problem("sync-copies", key, code, ready["message"])


def _last_audit(key: ObjectKey, status: _Status, ready: Mapping[str, str], own: Sequence[Finding]) -> list[Problem]:
    """Return the problem with the message of the last audit, unless `own` has as many findings and one of its code.

    That audit probed, which a status does not: only its message may have the cause, such as a full volume.
    """
    code = code_of(ready["reason"])
    found = CODES.get(code)
    is_repeated = status.findings <= len(own) and any(finding.code == code for finding in own)
    if ready["ready"] == "True" or not found or is_repeated:
        return []
    severity = "critical" if found.severity is Severity.CRITICAL else "warning"
    return [_problem("mirror-audit", key, code, f"the last audit found: {ready['message']}", severity)]


def _places(findings: Iterable[Finding]) -> dict[str, str]:
    """Return the worst code of the copies in each namespace: critical, then warnings, then planned writes."""
    worst: dict[str, tuple[int, str]] = {}
    for each in findings:
        if each.object.namespace and each.object.kind in BY_NAME:
            rank = _RANK[each.severity] if is_problem(each) else 2 if each.change else 3 + (each.code == UNCHANGED)
            namespace = each.object.namespace
            worst[namespace] = min(worst.get(namespace, (9, "")), (rank, each.code))
    return {namespace: code for namespace, (_, code) in sorted(worst.items())}


def _decoded(each: Custom) -> tuple[ObjectKey, _Status, dict[str, str]]:
    """Return the key, the status, and the fields of the condition Ready."""
    status = each.head.status_as(_Status)
    found = next((one for one in status.conditions or [] if one.type == READY), None)
    ready = (found.status, found.reason, found.message) if found else _UNREAD
    return each.head.key, status, dict(zip(("ready", "reason", "message"), ready, strict=True))


def _spec(each: Custom) -> _Spec:
    try:
        return decode(each.spec or b"{}", _Spec)
    except InvalidObjectError:
        return _Spec()
