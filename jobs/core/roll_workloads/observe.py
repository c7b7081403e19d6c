"""List the workloads and select those that opted in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from jobs.core.roll_workloads.key import key_secret_not_set
from jobs.core.roll_workloads.observed import Observed, Settings
from jobs.core.roll_workloads.opt_in import (
    BATCH_KINDS,
    OptIn,
    first_of_each_namespace,
    invalid_value,
    opt_in,
    opt_in_of,
    reduced,
)
from jobs.core.roll_workloads.workloads import KINDS
from jobs.kit.api.cluster import Cluster, complete
from jobs.kit.values.errors import ApiError
from jobs.kit.values.findings import read_failure, unreadable
from jobs.kit.values.metadata import NamespaceObject, PartialObject
from jobs.kit.values.model import Finding, ObjectKey, Severity
from jobs.kit.values.reads import InvalidObject
from jobs.kit.values.resources import NAMESPACES, Resource


def observe(cluster: Cluster, settings: Settings) -> Observed:
    """List the workloads and select those that opted in; a list that fails does not stop the others.

    Raises:
        ApiError: namespaces cannot be listed, which every evaluation needs.
    """
    spaces, failures = _namespaces(cluster, settings.namespace)
    candidates: list[ObjectKey] = []
    mistakes: list[Finding] = []
    for resource in (*KINDS, *BATCH_KINDS):
        try:
            found, invalid = _list_annotated(cluster, resource, settings.namespace, spaces.opted_in)
        except ApiError as error:
            failures.append(_list_failed(resource, error))
            continue
        failures += [_undecoded(each) for each in invalid]
        mistakes += [mistake for each in found if (mistake := each.mistake())]
        candidates += [each.key for each in found if each.is_opted_in]
    opted_in = tuple(sorted(key for key in candidates if key.namespace not in spaces.terminating))
    terminating = [
        Finding("skipped", Severity.INFO, key, f"namespace {key.namespace} is terminating")
        for key in candidates
        if key.namespace in spaces.terminating
    ]
    no_key = None if settings.key_secret else key_secret_not_set()
    shown = mistakes if settings.run.verbose else first_of_each_namespace(mistakes)
    findings = (*failures, *shown, *terminating)
    namespaces = tuple(sorted(spaces.opted_in - spaces.terminating))
    return Observed(opted_in, findings, settings.key_secret, settings.new_key, no_key, namespaces=namespaces)


def observe_with_listed(where: ObjectKey, cluster: Cluster, settings: Settings) -> Observed:
    """Observe as a run does, and list the workloads in a namespace, also without an annotation; or those of a name.

    Raises:
        ApiError: namespaces or the workloads cannot be listed.
        ConfigurationError: the namespace does not exist.
    """
    opted_in = _opted_in_namespaces(where, cluster, settings)
    observed = observe(cluster, settings)
    fields = f"metadata.name={where.name}" if where.name else ""
    listed: list[OptIn] = []
    for resource in KINDS:
        reduce = partial(opt_in_of, resource.kind, opted_in)
        objects = partial(cluster.objects, namespace=where.namespace, fields=fields, metadata_only=True)
        found, _ = complete(objects, resource, PartialObject, reduce)
        listed += found
    return replace(observed, listed=tuple(sorted(listed, key=lambda each: each.key)))


def _opted_in_namespaces(where: ObjectKey, cluster: Cluster, settings: Settings) -> frozenset[str]:
    try:
        found, invalid = _list_namespaces(cluster)
    except ApiError as error:
        if settings.namespace and _is_forbidden(error):
            return frozenset()  # as in a run with -n
        raise
    names = {key.name for key in (*found, *(each.key for each in invalid))}
    if where.namespace not in names:
        from jobs.kit.values.explanation import does_not_exist  # not at start-up

        raise does_not_exist(where.namespace, names)
    return frozenset(key.name for key, (value, _) in found.items() if value == "true")


class _Namespaces(NamedTuple):
    opted_in: frozenset[str]
    terminating: frozenset[str]


def _namespaces(cluster: Cluster, only: str) -> tuple[_Namespaces, list[Finding]]:
    """Return namespaces that opted in and that are terminating; with -n, permission to list namespaces is optional."""
    try:
        found, invalid = _list_namespaces(cluster)
    except ApiError as error:
        if not (only and _is_forbidden(error)):
            raise
        reason = f"annotations of namespaces cannot be read: {error.message}"
        return _Namespaces(frozenset(), frozenset()), [
            Finding("skipped", Severity.INFO, ObjectKey(NAMESPACES.kind, only), reason)
        ]
    failures = [_undecoded(each) for each in invalid if only in ("", each.key.name)]
    for key, (value, active) in found.items():
        if value is not None and active and only in ("", key.name) and (mistake := invalid_value(key, value)):
            failures.append(mistake)
    opted_in = frozenset(key.name for key, (value, _) in found.items() if value == "true" and only in ("", key.name))
    terminating = frozenset(key.name for key, (_, active) in found.items() if not active)
    return _Namespaces(opted_in, terminating), failures


def _is_forbidden(error: ApiError) -> bool:
    """Return whether only the permission is missing; with invalid credentials, all other requests fail too."""
    return error.status == 403 and error.is_permission


def _list_namespaces(cluster: Cluster) -> tuple[dict[ObjectKey, tuple[str | None, bool]], Sequence[InvalidObject]]:
    """Return the annotation of each namespace, and whether it is active."""
    found, invalid = complete(
        cluster.objects,
        NAMESPACES,
        NamespaceObject,
        lambda each: (each.metadata.name, opt_in(each.metadata), each.active),
    )
    return {ObjectKey(NAMESPACES.kind, name): (value, active) for name, value, active in found}, invalid


def _list_annotated(
    cluster: Cluster, resource: Resource, namespace: str, opted_in: frozenset[str]
) -> tuple[list[OptIn], Sequence[InvalidObject]]:
    """Return the objects with the annotation: their own, that of their template, or that of their namespace."""
    reduce = partial(reduced, resource.kind, opted_in)
    found, invalid = complete(
        lambda: cluster.objects(resource, PartialObject, reduce, namespace=namespace, metadata_only=True)
    )
    return [each for each in found if each], invalid


def _list_failed(resource: Resource, error: ApiError) -> Finding:
    """Return the finding for a kind that cannot be listed; Jobs and CronJobs are only listed to find mistakes."""
    key = ObjectKey(resource.kind, "(all)")
    if resource in BATCH_KINDS and _is_forbidden(error):
        return Finding(
            "skipped", Severity.INFO, key, f"annotations of {resource.plural} are not checked: {error.message}"
        )
    return unreadable(key, error, read_failure(error, resource.plural))


def _undecoded(found: InvalidObject) -> Finding:
    return unreadable(found.key, found.error, read_failure(found.error, "the object"))
