"""Read the ServiceAccounts to whose imagePullSecrets spec.attachTo of rules adds copies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from jobs.core.sync_copies.kinds import LAYOUTS, WITH_PULL_SECRETS
from jobs.core.sync_copies.observed import Settings
from jobs.core.sync_copies.rules import Rule, used_keys
from jobs.core.sync_copies.selectors import glob_matcher
from jobs.kit.api.cluster import Cluster, List
from jobs.kit.data.objects import ObjectReducer, ReducedObject, WholeObject
from jobs.kit.values import stamps
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import DryRun, Finding, ObjectKey, Severity
from jobs.kit.values.reads import InvalidObject, Metadata, read_failure, string_map, unreadable

ATTACH = "patch", WITH_PULL_SECRETS
# Tenants write ServiceAccounts: those of one namespace leave memory for others.
_LONGEST, _LONGEST_OF_NAMESPACE = 16 << 10, 256 << 10


def attached_accounts(
    cluster: Cluster, settings: Settings, rules: Sequence[Rule], attached: bool
) -> tuple[tuple[ReducedObject | Finding, ...], list[Finding]]:
    """Return the ServiceAccounts that rules attach copies to, or why these are not known.

    Without such rules, return those that have names of earlier rules, if there may be some (`attached`).
    """
    matches = {each.name: glob_matcher(each.service_accounts).fullmatch for each in rules if each.spec.attach_to}
    if not (matches or attached):
        return (), []
    layout, reducer = LAYOUTS[WITH_PULL_SECRETS.kind], ObjectReducer(used_keys(rules))  # sources leave it its memory
    totals: Counter[str] = Counter()  # by namespace
    lengths: dict[str, dict[str, int]] = {}

    def reduce(read: WholeObject) -> ReducedObject | Finding | None:
        at, length = read.metadata, len(read.image_pull_secrets)
        by = tuple(name for name, is_named in matches.items() if is_named(at.name))
        if not by and stamps.ATTACHED not in string_map(at.labels):
            return None
        of_namespace = lengths.setdefault(at.namespace, {})  # a list may begin again
        of_others = totals[at.namespace] - of_namespace.pop(at.name, 0)
        totals[at.namespace] = of_others
        if length > _LONGEST:
            return _too_large(at, f"they have more than {_LONGEST >> 10} KiB", by)
        if of_others + length > _LONGEST_OF_NAMESPACE:
            most = f"{_LONGEST_OF_NAMESPACE >> 10} KiB"
            return _too_large(at, f"together with those before it in its namespace, they have more than {most}", by)
        of_namespace[at.name] = length
        totals[at.namespace] += length
        return reducer.reduce(layout, read)

    selector = "" if matches else stamps.ATTACHED
    (_, found), *_ = cluster.lists([List(WITH_PULL_SECRETS, WholeObject, reduce, selector=selector)])
    if isinstance(found, ApiError):
        reason = read_failure(found, "ServiceAccounts, for attachTo", _remedy(settings))
        unread = [unreadable(each.head.key, found, reason, (each.name,)) for each in rules if each.spec.attach_to]
        return (), unread or [unreadable(ObjectKey(WITH_PULL_SECRETS.kind, "(all)"), found, reason)]
    known = (unreadable(each.key, each.error) if isinstance(each, InvalidObject) else each for each in found if each)
    return tuple(known), []


def _too_large(at: Metadata, why: str, rules: tuple[str, ...]) -> Finding:
    key = ObjectKey(WITH_PULL_SECRETS.kind, at.name, at.namespace)
    reason = f"its imagePullSecrets are not read: {why}; remove entries that no pod needs"
    return Finding("unreadable", Severity.WARNING, key, reason, subjects=rules)


def _remedy(settings: Settings) -> str:
    component = "component cronjobs/components/copies/pull-secrets"
    if settings.run.dry_run is DryRun.CLIENT:
        return f"for a dry run, bind ClusterRole kube-chores-view-pullsecrets, which {component} creates"
    return f"{component} grants the permissions (Helm: jobs.sync-copies.copies.pullSecrets)"
