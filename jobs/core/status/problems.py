"""What is wrong, and what to do: from the findings of an evaluation, and from the runs of a CronJob. Pure."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs.core.mirror_audit.findings import CODES, RANK
from jobs.core.status.runs import DEADLINE, last_lines, seconds_between, span
from jobs.core.sync_copies.kinds import KINDS
from jobs.kit.run import results
from jobs.kit.run.brakes import first_of_each
from jobs.kit.values.model import Brake, ExitCode, Finding, ObjectKey, Plan, Severity
from jobs.kit.values.registry import CLUSTERS
from jobs.kit.values.resources import KEY_NAME
from jobs.kit.values.text import listed

Problem = dict[str, Any]
UNCHANGED = "unchanged"
LOGGED = ("job-failing", "job-stuck")  # codes whose reason ends with lines of a log
MOST_OF_A_CODE = 100  # problems of one job and code in one namespace: tenants cause some of them
_LONGEST_REASON = 2000
_DEADLINE_SECONDS = 3600  # since a deadline ended a run: later runs succeeded, but objects were old
_MOST_NAMED = 3
_COMMAND = re.compile(r"(?:(?<=^)|(?<=: )|(?<=see ))(?:kubectl|chores) .*", re.DOTALL)
_DENIED = re.compile(r'cannot (\w+) resource "([a-z]+)"')
# Codes of rules that may be mistaken: they block deletions.
_MISTAKES = ("source-namespace-missing", "source-namespace-recreated", "nothing-selected")
_MISSING_SOURCE = "missing-source"  # the only deferral that ends neither by itself nor by a user who caused it
_WITH_FINALIZERS = ("opted-out", "orphan", "terminating")  # codes of objects that wait for the owner of a finalizer
_TODO: Mapping[str, Mapping[str, str]] = {
    "sync-copies": {
        "conflict": "rename or delete the object, exclude its namespace, or set conflict: Adopt in the rule",
        "collision": "narrow the targets of one rule, or set its targetName",
        "shadowed": "rename one of the two sources, or narrow the rule",
        "source-changed": "delete the copy if the new source is right; else create the old one again",
        "refused": "correct the source, spec.keys of the rule, or the rights of the job, as the message describes",
        "reserved-name": "rename the source, set another targetName, or change what the rule selects",
        "source-namespace-missing": "correct spec.namespaces of the rule, or delete the rule",
        "source-namespace-recreated": "create the sources again, or run once with --max-deletes",
        "large-writes": "copy smaller objects, or to fewer namespaces",
        "source-missing": "correct spec.names of the rule, or create the source",
        "nothing-selected": "correct the selectors of the rule, or create its source and target",
        "not-opted-in": 'annotate the namespace with kubechores.dev/copies: "true", or remove it from the rule',
        "expired": "remove the certificates that are no longer valid from the source",
        "not-for-pulls": "narrow the rule to Secrets of type kubernetes.io/dockerconfigjson",
    },
    # Reasons of a whole cluster; those of copies in it are those of sync-copies.
    CLUSTERS: {
        "unreachable": "check that the API server of each of these clusters answers, and the address in its kubeconfig",
        "unreadable": "renew the credentials of these clusters, or apply cronjobs/spoke there again",
        "timed-out": "nothing, if the next run reads them",
        "replaced": "only if these clusters were replaced on purpose, run sync-copies --forget-cluster once for each",
        "duplicate": "remove all but one name of each of these clusters from the inventory",
        "invalid": "correct the kubeconfig in the Secret of each of these clusters",
        "nothing-selected": "correct spec.targets of the rule, or label the Secret of a cluster "
        "kubechores.dev/cluster=true",
        "not-read": "nothing, if the next run reads them",
    },
    "fetch-rates": {
        "conflict": "rename or delete the object, or set spec.configMapName",
        "collision": "set spec.configMapName of one of the ExchangeRates",
        "jump": "compare it elsewhere; raise spec.maxChange only if it is right",
        "too-many": "delete some ExchangeRates, or create them in another namespace",
        "unavailable": "wait for the next run; or correct the URL of the provider in the settings of the job, or name "
        "another provider in spec.provider",
        "providers-differ": "compare the rates in the message; spec.provider selects one",
    },
    "roll-workloads": {
        _MISSING_SOURCE: "create the object that the message names, or correct the reference in the pod template",
        **dict.fromkeys(("rollout-stuck", "rollout-incomplete"), "run the command of the message"),
        "too-many": "opt out some workloads of the namespace, or have them use fewer ConfigMaps and Secrets",
        "no-effect": "move the annotation to the workload, or remove it",
        "invalid": "set the annotation to true or false, or remove it",
    },
    "farm-pods": {
        "conflict": "leave the object, or delete it: the next run creates the FarmPod",
        "collision": "rename one of the pods",
        "over-limit": "raise --max-objects, or delete pods",
        "orphan": "delete the object, as the message describes",
    },
    "mirror-audit": {
        **{code: each.remedy for code, each in CODES.items()},
        "missing": "nothing, if the CronJob mirror-repair runs: it creates the resource; else run "
        "chores mirror-audit --repair",
    },
}
_TODO_OF_ALL = {
    "invalid": "correct the field that the message names",
    "quota-exceeded": "raise the quota (kubectl describe quota), or delete something there",
    "denied": "follow the message of the policy, or exempt the account of the job",
    "webhook-failed": "repair the webhook, or delete its configuration",
    "too-large": "remove labels or annotations of the object",
    "write-conflict": "find the other writer in metadata.managedFields of the object",
}
_METRICS_TODO = (
    "correct PUSH_GATEWAY in the settings of the job; check that the gateway runs, and that NetworkPolicies allow it"
)
_ROLES = {
    "secrets": "kube-chores-view-secrets",
    "farmpods": "kube-chores-farm-view",
    **{each.resource.plural: each.view_role for each in KINDS.values() if each.component},
}


@dataclass(frozen=True)
class Evaluated:
    """What `evaluate()` of one job returned, or why nothing was evaluated (`note`)."""

    findings: Sequence[Finding] = ()
    unchanged: int = 0
    facts: Mapping[str, int] = field(default_factory=dict)
    desired: Mapping[str, int] = field(default_factory=dict)
    brakes: Sequence[Brake] = ()
    note: str = ""

    @classmethod
    def of(cls, plan: Plan) -> Evaluated:
        """Return what a plan found; a mirror without any resource has one finding in place of one for each."""
        absent = plan.summary.absent
        findings = [each for each in plan.findings if not (each.code == "missing" and absent.keys() & each.subjects)]
        return cls(
            [*findings, *absent.values()], plan.unchanged, plan.summary.facts, plan.desired.by_subject, plan.brakes
        )

    @property
    def by_subject(self) -> dict[str, list[Finding]]:
        """The findings by the name of the custom resource that they are about."""
        found: dict[str, list[Finding]] = {}
        for each in self.findings:
            for name in each.subjects:
                found.setdefault(name, []).append(each)
        return found

    @property
    def summary(self) -> dict[str, int]:
        """The number of objects by code; the planned writes of the next run too."""
        counts = Counter(each.code for each in self.findings if each.code != UNCHANGED and not denied_right(each))
        return {UNCHANGED: self.unchanged, **dict(sorted(counts.items()))}

    @property
    def notes(self) -> list[str]:
        """What was not evaluated, and why."""
        objects: dict[tuple[str, str], list[Finding]] = {}
        for each in self.findings:
            if right := denied_right(each):
                objects.setdefault(right, []).append(each)
        missing = [
            f"not evaluated: {listed(found, _MOST_NAMED, lambda each: str(each.object))}: {missing_right(*right)}"
            for right, found in sorted(objects.items())
        ]
        return [*([self.note] if self.note else []), *missing]


NOT_EVALUATED = Evaluated(note="not evaluated")


def denied_right(finding: Finding) -> tuple[str, str] | None:
    """Return the verb and the resource of a right that the user lacks, if that is the reason of a finding."""
    return right_in(finding.reason) if finding.code == "unreadable" else None


def with_command(todo: str) -> tuple[str, str]:
    """Return the words of what to do, and the command at its end, or an empty text."""
    found = _COMMAND.search(todo)
    return (todo[: found.start()], todo[found.start() :]) if found else (todo, "")


def right_in(message: str) -> tuple[str, str] | None:
    """Return the verb and the resource of a right that the API server did not find, or None."""
    found = _DENIED.search(message)
    return (found[1], found[2]) if found else None


def missing_right(verb: str, resource: str) -> str:
    """Return which right the user lacks, and the role that has it."""
    return f"you cannot {verb} {resource}; bind the ClusterRole {_ROLES.get(resource, 'kube-chores-view')}"


def is_problem(finding: Finding) -> bool:
    """Whether a person may have to act: the next run does not resolve the finding by a write."""
    is_pending = finding.change is not None or (finding.code == "deferred" and finding.deferral != _MISSING_SOURCE)
    return finding.severity is not Severity.INFO and not is_pending and not denied_right(finding)


def of_findings(job: str, namespace: str, evaluated: Evaluated) -> list[Problem]:
    """Return the problems of an evaluation; what a brake blocks is one problem, with the rules that may be mistaken."""
    found = [each for each in evaluated.findings if is_problem(each)]
    if evaluated.brakes:
        found = [each for each in found if each.exit_code is not ExitCode.BRAKE]
    blocked = {name for each in evaluated.findings if each.exit_code is ExitCode.BRAKE for name in each.subjects}
    mistaken = [each for each in found if each.code in _MISTAKES and blocked & {*each.subjects}]
    if evaluated.brakes and len(mistaken) <= _MOST_NAMED:  # the brake's message names them all
        found = [each for each in found if each not in mistaken]
    subjects = sorted({name for each in mistaken for name in each.subjects})[:_MOST_NAMED]
    first = _TODO["sync-copies"][mistaken[0].code] if mistaken else "correct what causes this"
    brakes = [
        problem(job, "critical", "brake", None, each.message, _brake_todo(job, namespace, each, first), subjects)
        for each in evaluated.brakes
    ]
    return [*brakes, *(_of_finding(job, namespace, each) for each in found)]


def _of_finding(job: str, namespace: str, found: Finding) -> Problem:
    code, key = found.deferral or found.code, found.object
    remedy = found.remedy or todo(job, code, key)
    explain = {
        ("sync-copies", "conflict"): ["-n", namespace],
        ("roll-workloads", _MISSING_SOURCE): ["--key-secret", f"{namespace}/{KEY_NAME}"],
    }.get((job, code))
    if explain and key.namespace and not found.remedy:
        remedy += f"; see {shlex.join(['chores', job, *explain, '--explain', f'{key.namespace}/{key.name}'])}"
    return problem(job, found.severity.value, code, key, found.reason, remedy, found.subjects)


def _brake_todo(job: str, namespace: str, brake: Brake, first: str) -> str:
    rules = ["-n", namespace] if job == "sync-copies" else []
    command = shlex.join(["chores", job, *rules, brake.option, brake.value, *brake.only])
    return f"{first}; only if this is intended, run once, with the rights of the job: {command}"


def todo(job: str, code: str, key: ObjectKey | None) -> str:
    """Return what to do about a code; a command that explains the object if there is no other remedy."""
    if found := remedy(job, code):
        return found
    owner = "find the owner of its finalizers" if code in _WITH_FINALIZERS else ""
    if not key:
        return owner or f"chores {job} --dry-run -v"
    named = (key.kind.lower(), key.name)
    if owner:
        return f"{owner}: {_kubectl(key.namespace, 'get', *named, '-o', 'jsonpath={.metadata.finalizers}')}"
    return _kubectl(key.namespace, "describe", *named)


def remedy(job: str, code: str) -> str:
    """Return what to do about a code of a job, or an empty text."""
    return _TODO.get(job, {}).get(code) or _TODO_OF_ALL.get(code, "")


def _kubectl(namespace: str, *words: str) -> str:
    """Return a command with `-n` at its end, unless `namespace` is empty."""
    return shlex.join(["kubectl", *words, *(("-n", namespace) if namespace else ())])


def problem(
    job: str, severity: str, code: str, key: ObjectKey | None, reason: str, todo: str, subjects: Iterable[str] = ()
) -> Problem:
    """Return one problem of the document."""
    return {
        "job": job,
        "severity": severity,
        "code": code,
        "object": {name: value for name, value in key._asdict().items() if value} if key else None,
        "reason": reason[:_LONGEST_REASON],
        "todo": todo,
        "subjects": list(subjects),
    }


def all_clear(document: Mapping[str, Any]) -> str:
    """Return the sentence of a document without problems."""
    if document["unknown"]:
        return f"the status is unknown: {document['unknown']}"
    return "nothing is wrong in what could be read" if document["partial"] else "nothing is wrong"


def sort(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems, the worst first: those of runs before those of objects, then by job, code and object.

    The codes of mirror-audit are in the order of their impact, so the cause comes before what follows from it.
    """

    def key(each: Problem) -> tuple[object, ...]:
        named = each["object"] or {}
        place = (named.get("namespace", ""), named.get("kind", ""), named.get("name", ""))
        rank = RANK.get(each["code"], 0) if each["job"] == "mirror-audit" else 0
        is_object = not each["code"].startswith("job-")
        return (each["severity"] != "critical", is_object, each["job"], rank, each["code"], place)

    return sorted(problems, key=key)


def by_namespace(problem: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return job, code and namespace of a problem: tenants cause some of them, and must not crowd out others."""
    return problem["job"], problem["code"], (problem["object"] or {}).get("namespace", "")


def limit(problems: Sequence[Problem]) -> tuple[list[Problem], dict[str, str]]:
    """Return at most `MOST_OF_A_CODE` problems of each job and code in each namespace, and what was cut.

    So no tenant hides the problems of others.
    """
    kept, more = first_of_each(problems, by_namespace, MOST_OF_A_CODE)
    cut: dict[str, str] = {}
    for (job, code, namespace), number in sorted(more.items()):
        where = f" in {namespace}" if namespace else ""
        total = number + MOST_OF_A_CODE
        cut[f"problems {job} {code}{where}"] = f"{total} problems, the first {MOST_OF_A_CODE} are listed"
    return kept, cut


def of_cronjob(key: ObjectKey, fields: Mapping[str, Any], now: str, *, is_braked: bool) -> list[Problem]:
    """Return the problems of a CronJob, whose `fields` are those of a job in the document.

    It fails, is late, or failed and starts no run now; its runs take too long; or its last run left problems in the
    status of its pod. If a brake is a problem already (`is_braked`), its runs that failed for it are none.
    """
    state, runs = fields["state"], fields["runs"]
    ended = [each for each in runs if each["outcome"] != "running"]
    stuck = next((each for each in runs if each["stuck"]), None)
    found = []
    if state == "failing" and (stuck or not (is_braked and ended[0]["exitCode"] == ExitCode.BRAKE)):
        found.append(_failing(key, stuck, ended))
    if state == "late" or (state == "failing" and fields["warning"] and len(ended) == len(runs)):
        found.append(_late(key, fields))
    found += [each for run in runs for each in _of_long_run(key, run, now, is_failing=state == "failing")]
    if ended and ended[0]["outcome"] == "succeeded":
        found += _of_pod_message(key, ended[0])
    return found


def _late(key: ObjectKey, fields: Mapping[str, Any]) -> Problem:
    last = f"the last success was at {fields['lastSuccess']}" if fields["lastSuccess"] else "it never succeeded"
    before = f"the last run was scheduled for {fields['lastSchedule']}" if fields["lastSchedule"] else "none started"
    late = f"no run succeeded since the schedule was due three times: {last}, {before}"
    reason = f"no run starts: {fields['warning']}" if fields["warning"] else late
    todo = _kubectl(key.namespace, "describe", "cronjob", key.name)
    return problem(key.name, "critical", "job-late", key, reason, todo)


def _of_pod_message(key: ObjectKey, run: Mapping[str, Any]) -> Iterator[Problem]:
    writes_todo = f"correct what the message names; the next run tries again; see {_log(key, run)}"
    words = {
        results.METRICS_NOT_SENT: ("no alert can see it: ", _METRICS_TODO),
        results.WRITES_FAILED: ("", writes_todo),
    }
    for code, text in results.read_lines(run["message"]):
        what, todo = words[code]
        yield problem(key.name, "warning", code, key, f"run {run['name']} succeeded, but {what}{text}", todo)


def _of_long_run(key: ObjectKey, run: Mapping[str, Any], now: str, *, is_failing: bool) -> Iterator[Problem]:
    """Yield the problem of a run that takes too long, or that its deadline ended, also before a success."""
    took = span(seconds_between(run["start"], run["end"] or now) or 0.0)
    if run["slow"]:
        node = f" on node {run['node']}" if run["node"] else ""
        reason = f"run {run['name']}{node} has not ended after {took}, longer than usual"
        todo = (
            "nothing before its deadline, if it has more to do than usual; else check its node, and let the next "
            f"run replace it: {_kubectl(key.namespace, 'delete', 'job', run['name'])}"
        )
        yield problem(key.name, "warning", "job-slow", key, reason, todo)
    elif run["reason"] == DEADLINE and not is_failing and (seconds_between(run["end"], now) or 0.0) < _DEADLINE_SECONDS:
        why = last_lines(run["message"]) or "no message"
        reason = f"run {run['name']} was ended by its deadline after {took}: {why}"
        yield problem(key.name, "warning", "job-failing", key, reason, _failing_todo(key, run))


def _failing(key: ObjectKey, stuck: Mapping[str, Any] | None, ended: Sequence[Mapping[str, Any]]) -> Problem:
    number = next((n for n, each in enumerate(ended) if each["outcome"] != "failed"), len(ended))
    what = "the last run" if number == 1 else f"the last {number} runs"
    if stuck:
        starts = stuck["exitCode"] is not None
        now = f"a pod of run {stuck['name']} failed{_code(stuck)}" if starts else f"run {stuck['name']} does not start"
        before = f"; {what} failed" if number else ""
        reason = f"{now}{before}: {stuck['message'] or 'no message'}"
        return problem(key.name, "critical", "job-stuck", key, reason, _stuck_todo(key, stuck))
    last = ended[0]
    reason = f"{what} failed{_code(last)}: {last_lines(last['message']) or 'no message'}"
    worst = "warning" if number == 1 and len(ended) > 1 and last["exitCode"] in (1, 143) else "critical"
    return problem(key.name, worst, "job-failing", key, reason, _failing_todo(key, last))


def _code(run: Mapping[str, Any]) -> str:
    """Return exit code and reason of a run in brackets, such as (exit code 137, OOMKilled)."""
    code = "" if run["exitCode"] is None else f"exit code {run['exitCode']}"
    words = ", ".join(filter(None, (code, run["reason"])))
    return f" ({words})" if words else ""


def _stuck_todo(key: ObjectKey, run: Mapping[str, Any]) -> str:
    pod_or_job = ("pod", run["pod"]) if run["pod"] else ("job", run["name"])
    return _kubectl(key.namespace, "describe", *(["quota"] if "quota" in run["message"] else pod_or_job))


def _log(key: ObjectKey, run: Mapping[str, Any]) -> str:
    return shlex.join(["kubectl", "logs", "-n", key.namespace, f"job/{run['name']}"])


def _failing_todo(key: ObjectKey, run: Mapping[str, Any]) -> str:
    if run["reason"] == DEADLINE:
        events = shlex.join(["kubectl", "get", "events", "-n", key.namespace, "--field-selector", "type=Warning"])
        longer = "if runs need longer, raise activeDeadlineSeconds of the CronJob; else check the nodes"
        return f"if no pod of the run started, find out why; {longer}; see {events}"
    if run["exitCode"] is None:  # no pod has a log
        return _kubectl(key.namespace, "describe", "job", run["name"])
    log = _log(key, run)
    if run["reason"] == "OOMKilled":
        return f"raise the memory limit of the CronJob; see {log}"
    return {
        1: f"nothing, if the next run succeeds; else see {log}",
        2: f"correct what the message names; see {log}",
        4: f"correct what caused the changes that the brake blocked; the log names them: {log}",
        137: f"the run was killed: if it reached its memory limit, raise the limit of the CronJob; see {log}",
        143: f"the run was stopped, by its deadline or a drained node; see {log}",
    }.get(run["exitCode"], log)
