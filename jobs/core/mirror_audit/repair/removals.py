"""Remove the resources of deleted mirrors: first the files on nodes, then the rest; the cache is retained. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobs.core.mirror_audit.actual.objects import UNKNOWN, Object, is_terminating, mirror_name, rollout_problem
from jobs.core.mirror_audit.desired.names import NODE_NAMESPACE
from jobs.core.mirror_audit.observed import Observed, Settings
from jobs.core.mirror_audit.repair.steps import Step
from jobs.core.mirror_audit.repair.writes import NodeCleanup, delete, file_args, is_node_cleanup
from jobs.kit.run.brakes import allowed
from jobs.kit.values import stamps
from jobs.kit.values.model import Action, Brake, ExitCode, Finding, Fix, ObjectKey
from jobs.kit.values.resources import CLAIMS, DAEMON_SETS, SERVICES, STATEFUL_SETS

_DELETED_AFTER: Mapping[str, tuple[str, ...]] = {
    STATEFUL_SETS.kind: (DAEMON_SETS.kind,),
    SERVICES.kind: (DAEMON_SETS.kind, STATEFUL_SETS.kind),
    CLAIMS.kind: (DAEMON_SETS.kind, STATEFUL_SETS.kind),
}
_BLOCKED = Step(remedy="blocked by the deletion brake", exit_code=ExitCode.BRAKE)


def removals(
    orphans: Sequence[Finding], observed: Observed, settings: Settings
) -> tuple[list[tuple[Finding, Step]], Sequence[Brake]]:
    """Choose the next step for each orphan, unless too many mirrors would be removed at once.

    The deletion brake counts mirrors. It blocks no removal in progress.
    """
    by_mirror: dict[str, list[ObjectKey]] = {}
    for each in orphans:
        by_mirror.setdefault(_name(each, observed), []).append(each.object)
    steps = [(each, _removal(each, by_mirror[_name(each, observed)], observed, settings)) for each in orphans]
    removed = {_name(each, observed) for each, step in steps if step.fix and _starts_removal(each, step.fix)}
    most = allowed(len(observed.mirrors) + len(observed.invalid_mirrors), settings.max_deletes)
    if len(removed) <= most:
        return steps, ()
    what = f"{len(removed)} mirror{'s' * (len(removed) != 1)}"
    brake = Brake(f"the deletion brake blocks the removal of {what}", "--max-deletes", str(len(removed)))
    return [(each, step if each.code == "retained" else _BLOCKED) for each, step in steps], (brake,)


def _name(orphan: Finding, observed: Observed) -> str:
    return mirror_name(observed.resources[orphan.object])


def _starts_removal(orphan: Finding, fix: Fix) -> bool:
    """Return whether a removal starts with this write, or loses a cache."""
    return isinstance(fix.body, NodeCleanup) or orphan.object.kind == CLAIMS.kind


def _removal(orphan: Finding, others: Sequence[ObjectKey], observed: Observed, settings: Settings) -> Step:
    """Return the next step for one orphan; `others` are all orphans of its mirror.

    Nodes remove the files of the mirror before the mirror is deleted. The cache is retained unless its loss is allowed.
    """
    key = orphan.object
    actual = observed.resources[key]
    if is_terminating(actual):
        return Step(remedy="being deleted", may_progress=True)
    if mirror_name(actual) == UNKNOWN:
        return Step(remedy=f"restore its annotation {stamps.RULE}, which names its mirror, or delete it manually")
    if key.kind == DAEMON_SETS.kind and key.namespace != NODE_NAMESPACE:
        return _remove_moved(orphan, actual, observed)
    # If the mirror exists, the nodes' files must stay: the mirror's own DaemonSet writes them.
    mirror_exists = bool(orphan.subjects)
    if key.kind == DAEMON_SETS.kind and not mirror_exists:
        return _clean_up_nodes(actual, observed.node_image(settings))
    if key.kind == CLAIMS.kind and not settings.allow_cache_loss:
        return Step(remedy="retained for a later mirror of this name; with --allow-cache-loss, a repair deletes it")
    before = _DELETED_AFTER.get(key.kind, ())
    if unlisted := [kind for kind in before if kind in observed.list_errors]:
        return Step(remedy=f"a repair deletes it when {unlisted[0]}s, which may use it, are readable")
    if blockers := [other for other in others if other.kind in before]:
        return Step(remedy=f"a repair deletes it when {blockers[0]} no longer exists", may_progress=True)
    return Step(delete(actual))


def _remove_moved(orphan: Finding, actual: Object, observed: Observed) -> Step:
    """Delete a DaemonSet of an earlier version in the registries' namespace, when its successor is on all nodes.

    That namespace does not allow new pods of it, so it cannot remove the files of a deleted mirror.
    """
    successor = orphan.object._replace(namespace=NODE_NAMESPACE)
    if found := observed.managed(successor):
        is_ready = not rollout_problem(DAEMON_SETS.kind, found)
        remedy = f"a repair deletes it when {successor} is ready"
        return Step(delete(actual)) if is_ready else Step(remedy=remedy, may_progress=True)
    if orphan.subjects:
        return Step(remedy=f"a repair deletes it when {successor} is ready")
    return Step(remedy=f"recreate registrymirror/{mirror_name(actual)}; when {successor} is ready, delete the mirror")


def _clean_up_nodes(actual: Object, image: str) -> Step:
    """Have the DaemonSet remove the files of the mirror; delete it when all nodes have."""
    if is_node_cleanup(actual):
        if rollout_problem(DAEMON_SETS.kind, actual):
            remedy = "a repair deletes it when all nodes have removed the files of the mirror"
            return Step(remedy=remedy, may_progress=True)
        return Step(delete(actual))
    if not file_args(actual):
        return Step(remedy="its arguments do not name its files on nodes: delete the files and the DaemonSet manually")
    result = f"nodes remove the files of registrymirror/{mirror_name(actual)}, which does not exist"
    return Step(Fix(Action.REPLACE, NodeCleanup(actual, image), result), may_progress=True)
