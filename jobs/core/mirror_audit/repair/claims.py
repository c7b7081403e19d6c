"""Choose the next step for the claim of a mirror: expand it, or recreate it, empty, if it cannot be corrected. Pure."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus

from msgspec import structs

from jobs.core.mirror_audit.actual.objects import Object, status_of
from jobs.core.mirror_audit.checks.findings import finding
from jobs.core.mirror_audit.checks.resources import storage
from jobs.core.mirror_audit.desired.mirror import Manifest
from jobs.core.mirror_audit.observed import StorageClass
from jobs.core.mirror_audit.quantities import quantity
from jobs.core.mirror_audit.repair.steps import Context, Step
from jobs.core.mirror_audit.repair.writes import apply, correction, delete, immutable_fields
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Need, ObjectKey
from jobs.kit.values.resources import STATEFUL_SETS, STORAGE_CLASSES


def correct(context: Context, actual: Object) -> Step:
    """Correct drifted fields of the claim, but not its size: expand() and replace_volume() change the size."""
    claim = context.mirror.claim
    spec = {**claim.body["spec"], "resources": {"requests": {"storage": _requested(actual)}}}
    desired = replace(claim, body={**claim.body, "spec": spec})
    return _recreate(context, actual) or Step(apply(desired, actual, correction(desired, actual)))


def expand(context: Context, desired: Manifest) -> Step:
    """Request more storage for the claim if its storage class allows expansion."""
    actual = context.claim
    assert actual
    if not _requests_other_size(context, actual):
        return Step(remedy="expansion requested; if its capacity does not grow, see kubectl describe")
    if not _is_bound(actual):
        return Step(remedy="a repair expands it when the claim is bound")
    key = _storage_class(actual)
    if key and key not in context.observed.documents:
        return Step(need=Need(key))
    document = context.observed.documents.get(key) if key else None
    if isinstance(document, ApiError) and document.status != HTTPStatus.NOT_FOUND:
        # Not a separate finding: an audit does not read storage classes, so it does not report it.
        what = f"{key}, which sets whether volumes can expand,"
        remedy = f"a repair continues when {what} is readable: {document.message}"
        return Step(remedy=remedy, exit_code=document.exit_code)
    size = context.mirror.spec.storage.size
    return _recreate(context, actual) or Step(apply(desired, actual, f"requests {size}"))


def replace_volume(context: Context, _desired: Manifest) -> Step:
    """Recreate the claim, because its volume is lost or too large."""
    assert context.claim
    step = _recreate(context, context.claim)
    assert step
    return step


def _requested(claim: Object) -> str:
    return storage(claim["spec"].get("resources", {}).get("requests", {}))


def _requests_other_size(context: Context, claim: Object) -> bool:
    """Return whether the claim requests another size than the mirror. If not, only the volume is too small."""
    return quantity(_requested(claim)) != quantity(context.mirror.spec.storage.size)


def _is_bound(claim: Object) -> bool:
    return bool(status_of(claim).get("phase") == "Bound")


def _storage_class(claim: Object) -> ObjectKey | None:
    name = claim["spec"].get("storageClassName")
    return ObjectKey(STORAGE_CLASSES.kind, name) if name else None


def _recreate(context: Context, claim: Object) -> Step | None:
    """Recreate the claim if it cannot be corrected and its loss is allowed: delete the StatefulSet, then the claim."""
    why = recreation_reason(context)
    if not why:
        return None
    if not may_lose_cache(context):
        return Step(remedy=f"{why}: the claim can only be recreated, empty; a repair with --allow-cache-loss does that")
    if STATEFUL_SETS.kind in context.observed.list_errors:
        return Step(remedy=f"a repair recreates it when {STATEFUL_SETS.kind}s, which may use it, are readable")
    key = context.mirror.stateful_set.key
    remedy = f"a repair recreates it when {key} no longer exists"
    if context.registry is None:
        return Step(remedy=remedy) if key in context.observed.invalid else Step(delete(claim))
    if problem := context.roll_blocker():
        return Step(remedy=problem)
    reason = f"uses {context.mirror.claim.key}, which is to be recreated"
    first = finding("drifted", reason, key, context.mirror.registry_mirror)
    return Step(remedy=remedy, may_progress=True, first=structs.replace(first, fix=delete(context.registry)))


def may_lose_cache(context: Context) -> bool:
    """Return whether the claim may be deleted: --allow-cache-loss is set, or the cache is lost already."""
    return context.settings.allow_cache_loss or "volume-lost" in context.codes


def recreation_reason(context: Context) -> str:
    """Return why the claim must be recreated, or an empty string."""
    claim = context.claim
    if claim is None:
        return ""
    if "volume-lost" in context.codes:
        return "its volume was deleted"
    if immutable := immutable_fields(context.mirror.claim, claim):
        return f"{', '.join(immutable)} cannot be changed"
    if "volume-shrink" in context.codes:
        return "a volume cannot shrink"
    if "volume-too-small" in context.codes and _is_bound(claim) and _requests_other_size(context, claim):
        key = _storage_class(claim)
        document = context.observed.documents.get(key) if key else None
        if key is None:
            return "it has no storage class that allows expansion"
        if isinstance(document, ApiError) and document.status == HTTPStatus.NOT_FOUND:
            return f"{key}, which sets whether it can expand, does not exist"
        if isinstance(document, StorageClass) and not document.allow_volume_expansion:
            return f"{key} does not allow volumes to expand"
    return ""
