"""Choose the next repair step for each finding: a write, or the condition for it. Pure.

Steps depend only on the observed state; a run keeps no state. A resource is created when those before it exist, the
DaemonSet when the registry is ready. A resource that cannot be changed in place is deleted; the next observation then
finds it missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus

from msgspec import structs

from jobs.core.mirror_audit.actual.objects import Object, is_terminating, rollout_problem
from jobs.core.mirror_audit.checks.findings import CODES
from jobs.core.mirror_audit.desired.mirror import Manifest, Mirror
from jobs.core.mirror_audit.observed import Observed, Settings
from jobs.core.mirror_audit.repair.claims import correct, expand, may_lose_cache, recreation_reason, replace_volume
from jobs.core.mirror_audit.repair.removals import removals
from jobs.core.mirror_audit.repair.steps import Context, Step
from jobs.core.mirror_audit.repair.writes import (
    ApplyRequest,
    NodeCleanup,
    apply,
    correction,
    delete,
    drifted_fields,
    host,
    immutable_fields,
    is_node_cleanup,
)
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Action, Finding, Fix, Need, ObjectKey, Plan
from jobs.kit.values.resources import CLAIMS, DAEMON_SETS, PRIORITY_CLASSES, SERVICES, STATEFUL_SETS

_ORDER = (SERVICES.kind, CLAIMS.kind, STATEFUL_SETS.kind, DAEMON_SETS.kind)
_REMOVALS = ("orphan", "retained")
_HOSTS = ("--host=", "--upstream=")  # arguments that set which images nodes pull through the mirror


def repairs(findings: Sequence[Finding], mirrors: Sequence[Mirror], observed: Observed, settings: Settings) -> Plan:
    """Add the next step to each finding, mirror by mirror: no mirror blocks the repair of another."""
    by_subjects: dict[tuple[str, ...], list[Finding]] = {}
    for each in findings:
        if each.code not in _REMOVALS:
            by_subjects.setdefault(each.subjects, []).append(each)
    by_name: dict[tuple[str, ...], Mirror] = {(mirror.registry_mirror.name,): mirror for mirror in mirrors}
    steps, brakes = removals([each for each in findings if each.code in _REMOVALS], observed, settings)
    for subjects, found in by_subjects.items():
        mirror = by_name.get(subjects)
        context = Context(mirror, found, observed, settings) if mirror else None
        steps += [(each, _step(context, each)) for each in found]
    needs = [step.need for _, step in steps if step.need]
    may_progress = any(step.may_progress for _, step in steps)
    return Plan(_with_steps(steps), needs=needs, brakes=brakes, may_progress=may_progress)


def _with_steps(steps: Sequence[tuple[Finding, Step]]) -> list[Finding]:
    """Return the findings with their steps, with at most one write to each object."""
    planned: list[Finding] = []
    for found, step in steps:
        planned += [step.first] if step.first else []
        exit_code = step.exit_code or found.exit_code
        planned.append(structs.replace(found, fix=step.fix, remedy=step.remedy, exit_code=exit_code))
    return _one_write_per_object(planned)


def _one_write_per_object(findings: Sequence[Finding]) -> list[Finding]:
    """Keep one write to each object. A deletion comes first, because it makes other writes unnecessary."""
    kept: dict[ObjectKey, Finding] = {}
    for each in findings:
        before = kept.get(each.object)
        if each.fix and (before is None or (each.action is Action.DELETE) > (before.action is Action.DELETE)):
            kept[each.object] = each
    return [
        structs.replace(each, fix=None, remedy="another step for this object includes it")
        if each.fix and kept[each.object] is not each
        else each
        for each in findings
    ]


def _step(context: Context | None, found: Finding) -> Step:
    """Return the step for a finding; if there is none, the remedy of its code for a person."""
    choose = _STEPS.get(found.code)
    desired = {each.key: each for each in context.mirror.resources}.get(found.object) if context else None
    if context is None or choose is None or desired is None:
        return Step(remedy=CODES[found.code].remedy)
    return _wait_for_priority_class(context, desired) or choose(context, desired)


def _wait_for_priority_class(context: Context, desired: Manifest) -> Step | None:
    """Give pods another PriorityClass only if it exists: otherwise the server refuses them after the old ones ended."""
    if desired.resource not in (STATEFUL_SETS, DAEMON_SETS):
        return None
    name, actual = desired.body["spec"]["template"]["spec"]["priorityClassName"], context.actual(desired.key)
    if actual and actual["spec"]["template"]["spec"].get("priorityClassName") == name:
        return None
    key = ObjectKey(PRIORITY_CLASSES.kind, name)
    if key not in context.observed.documents:
        return Step(need=Need(key))
    document = context.observed.documents[key]
    if not isinstance(document, ApiError):
        return None
    if document.status == HTTPStatus.NOT_FOUND:
        remedy = f"a repair continues when {key} exists: apply the manifests again, or change spec.priorityClassName"
        return Step(remedy=remedy)
    remedy = f"a repair continues when {key} is readable: {document.message}"
    return Step(remedy=remedy, exit_code=document.exit_code)


def _create(context: Context, desired: Manifest) -> Step:
    """Create a missing resource when the resources before it exist."""
    mirror = context.mirror
    for before in mirror.resources:
        comes_first = _ORDER.index(before.resource.kind) < _ORDER.index(desired.resource.kind)
        if comes_first and not context.actual(before.key):
            found = context.observed.resources.get(before.key)
            remedy = f"a repair creates it when {before.key} exists"
            return Step(remedy=remedy, may_progress=bool(found and is_terminating(found)))
    if desired is mirror.stateful_set:
        if problem := context.credentials_blocker():
            return Step(remedy=problem)
        if may_lose_cache(context) and recreation_reason(context):
            return Step(remedy=f"a repair creates it after {mirror.claim.key} is recreated", may_progress=True)
    if desired is mirror.daemon_set and not context.is_current_and_ready():
        remedy = f"a repair creates it when {mirror.stateful_set.key} is ready to serve nodes"
        return Step(remedy=remedy, may_progress=True)
    result = f"for registrymirror/{mirror.registry_mirror.name}"
    return Step(Fix(Action.APPLY_NEW, ApplyRequest(desired), result))


def _correct(context: Context, desired: Manifest) -> Step:
    """Correct drifted fields: in place where the API allows it, otherwise by deleting the object."""
    mirror, actual = context.mirror, context.actual(desired.key)
    assert actual
    if desired is mirror.claim:
        return correct(context, actual)
    if desired is mirror.stateful_set and (problem := _restart_blocker(context, actual)):
        return Step(remedy=problem)
    if desired is mirror.daemon_set and (
        step := _clean_up_old_host(context, actual) or _wait_for_registry(context, actual)
    ):
        return step
    without_address = desired is mirror.service and not mirror.cluster_ip
    if without_address or immutable_fields(desired, actual):
        return Step(delete(actual))
    return Step(apply(desired, actual, correction(desired, actual)))


def _restart_blocker(context: Context, actual: Object) -> str:
    """Return why the StatefulSet must not be corrected now, or an empty string."""
    desired = context.mirror.stateful_set
    rolls = any(field.startswith("spec.template") for field in drifted_fields(desired, actual))
    restarts = rolls or immutable_fields(desired, actual)
    return context.roll_blocker() if restarts else context.credentials_blocker()


def _clean_up_old_host(context: Context, actual: Object) -> Step | None:
    """Have the DaemonSet remove the files of an earlier host, whose folder pods of the new host do not mount."""
    before = host(actual)
    is_for_another_host = before not in ("", context.mirror.spec.host)
    if is_node_cleanup(actual):
        if is_for_another_host and rollout_problem(DAEMON_SETS.kind, actual):
            remedy = f"a repair corrects it when all nodes have removed the files of {before}"
            return Step(remedy=remedy, may_progress=True)
        return Step(delete(actual))  # after an apply it still has the mount of all folders
    if is_for_another_host:
        result = f"nodes remove the files of {before}"
        image = context.observed.node_image(context.settings)
        fix = Fix(Action.REPLACE, NodeCleanup(actual, image), result)
        return Step(fix, may_progress=True)
    return None


def _wait_for_registry(context: Context, actual: Object) -> Step | None:
    """Let nodes pull images of another host only when the registry serves them."""
    if _host_args(context.mirror.daemon_set.body) == _host_args(actual) or context.is_current_and_ready():
        return None
    key = context.mirror.stateful_set.key
    remedy = f"a repair corrects it when {key}, which still serves images of another host, is up to date and ready"
    return Step(remedy=remedy, may_progress=True)


def _host_args(daemon_set: Object) -> set[str]:
    args = [arg for each in daemon_set["spec"]["template"]["spec"]["containers"] for arg in each.get("args") or []]
    return {arg for arg in args if arg.startswith(_HOSTS)}


_STEPS: Mapping[str, Callable[[Context, Manifest], Step]] = {
    "missing": _create,
    "drifted": _correct,
    "scaled-to-zero": _correct,
    "volume-too-small": expand,
    "volume-lost": replace_volume,
    "volume-shrink": replace_volume,
}
