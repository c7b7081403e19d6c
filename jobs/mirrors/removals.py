"""How what is left of a mirror that is gone goes: nodes forget it first, and the cache stays. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from jobs.kit import stamps
from jobs.kit.brakes import allowed
from jobs.kit.model import Action, Brake, ExitCode, Finding, Fix, ObjectKey
from jobs.mirrors.actual import Object
from jobs.mirrors.manifests import CLAIMS, DAEMON_SETS, SERVICES, STATEFUL_SETS
from jobs.mirrors.mirror import NODE_NAMESPACE
from jobs.mirrors.node_cleanup import NodeCleanup, is_node_cleanup, whose
from jobs.mirrors.observed import Observed, Settings
from jobs.mirrors.repairs import Repairs, Step, delete, with_steps
from jobs.mirrors.resources import UNKNOWN, behind, is_ours, made_for


def removals(orphans: Sequence[Finding], observed: Observed, settings: Settings) -> Repairs:
    """Return what is left of mirrors that are gone, with what is done about it, unless too many are gone at once."""
    left: dict[str, list[ObjectKey]] = {}
    for each in orphans:
        left.setdefault(made_for(observed.children[each.object]), []).append(each.object)
    steps = [
        (each, _removal(each, left[made_for(observed.children[each.object])], observed, settings)) for each in orphans
    ]
    going = {made_for(observed.children[each.object]) for each, step in steps if step.fix and _begins(each, step.fix)}
    most = allowed(len(observed.mirrors) + len(observed.invalid_mirrors), settings.max_deletes)
    if len(going) <= most:
        return with_steps(steps)
    brake = Brake(
        f"the deletion brake holds: {len(going)} mirrors would be removed, and none is",
        "--max-deletes",
        str(len(going)),
    )
    return Repairs([_held(each) for each in orphans], brakes=[brake])


def _begins(orphan: Finding, fix: Fix) -> bool:
    """Whether a removal begins with this write, or a cache is lost by it; what has begun goes on."""
    return isinstance(fix.body, NodeCleanup) or orphan.object.kind == CLAIMS.kind


def _held(found: Finding) -> Finding:
    return structs.replace(found, remedy="held by the deletion brake", exit_code=ExitCode.BRAKE)


def _removal(orphan: Finding, others: Sequence[ObjectKey], observed: Observed, settings: Settings) -> Step:
    """Return the next step for one resource; `others` are all that is left of its mirror.

    Nodes forget the mirror before it goes; the cache stays unless its loss is allowed.
    """
    key = orphan.object
    actual = observed.children[key]
    if actual["metadata"].get("deletionTimestamp"):
        return Step(remedy="being deleted", may_progress=True)
    if made_for(actual) == UNKNOWN:
        return Step(remedy=f"whose it is cannot be told: restore its annotation {stamps.RULE}, or delete it by hand")
    if key.kind == DAEMON_SETS.kind and key.namespace != NODE_NAMESPACE:
        return _moved(orphan, actual, observed)
    is_gone = not orphan.subjects  # of a mirror that is there nodes must not forget what its own DaemonSet tells
    if key.kind == DAEMON_SETS.kind and is_gone:
        return _forget(actual, settings)
    if key.kind == CLAIMS.kind and not settings.allow_cache_loss:
        return Step(remedy="kept, for a mirror of this name to come; with --allow-cache-loss it is deleted")
    before = _BEFORE.get(key.kind, ())
    if denied := [kind for kind in before if kind in observed.denied]:
        return Step(remedy=f"deleted once it can be seen that no {denied[0]} needs it")
    if waited_for := [other for other in others if other.kind in before]:
        return Step(remedy=f"deleted once {waited_for[0]} is gone", may_progress=True)
    return Step(delete(actual))


def _moved(orphan: Finding, actual: Object, observed: Observed) -> Step:
    """Delete a DaemonSet that an earlier version made where registries are, once its successor is on all nodes.

    Pods of a new version of it are refused there, so it cannot have nodes forget a mirror that is gone.
    """
    successor = orphan.object._replace(namespace=NODE_NAMESPACE)
    found = observed.children.get(successor)
    if found and is_ours(found):
        is_ready = not behind(DAEMON_SETS.kind, found)
        return (
            Step(delete(actual)) if is_ready else Step(remedy=f"deleted once {successor} is ready", may_progress=True)
        )
    if orphan.subjects:
        return Step(remedy=f"deleted once {successor} is ready")
    name = made_for(actual)
    remedy = f"create registrymirror/{name} again until this is in namespace {NODE_NAMESPACE}, then delete the mirror"
    return Step(remedy=remedy)


_BEFORE: Mapping[str, tuple[str, ...]] = {
    STATEFUL_SETS.kind: (DAEMON_SETS.kind,),
    SERVICES.kind: (DAEMON_SETS.kind, STATEFUL_SETS.kind),
    CLAIMS.kind: (DAEMON_SETS.kind, STATEFUL_SETS.kind),
}


def _forget(actual: Object, settings: Settings) -> Step:
    """Have nodes forget the mirror; the DaemonSet goes when all have."""
    if is_node_cleanup(actual):
        if behind(DAEMON_SETS.kind, actual):
            return Step(remedy="deleted once all nodes have forgotten the mirror", may_progress=True)
        return Step(delete(actual))
    if not whose(actual):
        return Step(remedy="its arguments do not say which file on nodes it wrote: remove that, and delete it, by hand")
    result = f"nodes forget registrymirror/{made_for(actual)}, which is not there"
    return Step(Fix(Action.REPLACE, NodeCleanup(actual, settings.node_image), result), may_progress=True)
