"""Read what `chores status` shows next to the evaluation of the jobs. A read that fails becomes a note."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import Raw, Struct
from msgspec.structs import replace

from jobs.core.status.custom import Custom
from jobs.core.status.installed import (
    CronJob,
    JobPod,
    RunJob,
    Served,
    cron_job,
    is_of_installation,
    job_pod,
    no_run,
    run_job,
    taints,
    warning,
)
from jobs.core.status.problems import missing_right, right_in
from jobs.core.status.runs import DEADLINE
from jobs.kit.api.cluster import Cluster, complete
from jobs.kit.api.custom_resources import from_cluster, not_installed
from jobs.kit.api.responses import error_of
from jobs.kit.values.errors import ApiError, ConfigurationError
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import Head, decode
from jobs.kit.values.resources import CONFIGMAPS, CRON_JOBS, EVENTS, EXCHANGE_RATES, JOBS, NODES, PODS, Resource
from jobs.kit.values.stamps import MANAGER
from jobs.kit.values.text import listed

_MOST_TAINTS = 3
_SELECTOR = "app.kubernetes.io/part-of=kube-chores"
Found = TypeVar("Found")
Warned = tuple[str, str, str] | None  # the time of an Event, the name of its object, and its message


class _ConfigMap(Struct):
    data: dict[str, str] | None = None


class _ManagedFields(Struct):
    manager: str = ""
    subresource: str = ""
    time: str = ""


class _RateMetadata(Struct, rename="camel"):
    name: str
    namespace: str
    managed_fields: list[_ManagedFields] | None = None


class _RateObject(Struct):
    metadata: _RateMetadata
    spec: Raw = Raw()
    status: Raw = Raw()


class Reads:
    """Reads of one installation; `notes` has what could not be read.

    `is_partial` is false if nothing but CRDs that are not installed was not read.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.notes: list[str] = []
        self.is_partial = False

    def cron_jobs(self, namespace: str) -> list[CronJob]:
        """Return the CronJobs of all installations; with rights in `namespace` only, those of it."""
        try:
            found = self._list(CRON_JOBS, cron_job, "")
        except ApiError as error:
            if not error.is_permission:
                raise
            found = self._attempt(lambda: self._list(CRON_JOBS, cron_job, namespace))
        return [each for each in found if is_of_installation(each)]

    def with_warnings(self, cronjobs: Sequence[CronJob], namespace: str) -> list[CronJob]:
        """Return the CronJobs; those of `namespace` have the last warning why no run starts."""
        own = {each.name: each for each in cronjobs if each.namespace == namespace}
        last = self._warnings(namespace, "involvedObject.kind=CronJob,type=Warning", partial(no_run, own))
        return [replace(each, warning=last.get(each.name, "")) if each in own.values() else each for each in cronjobs]

    def runs(self, namespace: str) -> tuple[list[RunJob], list[JobPod], dict[str, str]]:
        """Return Jobs, their pods, and by name the last warning about a Job without a pod, or a pod that did not start.

        Kubernetes deletes the pods of a Job at its deadline.
        """
        jobs = self._attempt(lambda: self._list(JOBS, run_job, namespace))
        pods = self._attempt(lambda: self._list(PODS, job_pod, namespace))
        active = {each.name for each in jobs if each.outcome == "running"}
        with_pod = {each.job for each in pods if not each.has_ended}
        warnings: dict[str, str] = {}
        if active - with_pod:
            warnings |= self._warnings(namespace, "involvedObject.kind=Job,reason=FailedCreate")
        lost = {each.name for each in jobs if each.reason == DEADLINE} - {each.job for each in pods}
        if lost or any(each.is_pending and not each.waiting and each.job in active for each in pods):
            warnings |= self._warnings(namespace, "involvedObject.kind=Pod,type=Warning")
        return jobs, self._with_taints(pods), warnings

    def _with_taints(self, pods: list[JobPod]) -> list[JobPod]:
        """Return the pods; those that no node takes name its taints: kube-scheduler 1.36 does not."""
        tainted = [each for each in pods if each.is_unscheduled and "untolerated taint" in each.waiting]
        if not tainted:
            return pods
        nodes = self._attempt(lambda: self._list(NODES, taints, "", selector=""))
        counts = Counter(each for found in nodes for each in found)
        named = listed([f"{taint} (nodes: {number})" for taint, number in counts.most_common()], _MOST_TAINTS)
        return [
            replace(each, waiting=f"taints of nodes: {named}; {each.waiting}") if each in tainted and named else each
            for each in pods
        ]

    def _warnings(self, namespace: str, fields: str, reduce: Callable[[Served], Warned] = warning) -> dict[str, str]:
        """Return the last message of these Events by the name of their object."""
        events = self._attempt(lambda: self._list(EVENTS, reduce, namespace, selector="", fields=fields))
        return {name: message for _, name, message in sorted(each for each in events if each)}

    def settings(self, namespace: str, job: str) -> dict[str, str]:
        """Return the settings of a job by their keys: those of all jobs, then its own."""
        found: dict[str, dict[str, str]] = {}
        names = ("kube-chores-settings", f"{job}-settings")
        for response in self._cluster.read([(CONFIGMAPS, namespace, name, True) for name in names]):
            error = error_of(response)
            if error is None:
                found[response.request.tag[2]] = decode(response.body, _ConfigMap).data or {}
            elif error.status != 404:
                self._note(error)
        return {key: value for name in names for key, value in found.get(name, {}).items()}

    def custom(self, resource: Resource) -> list[Custom]:
        """Return the custom resources of a kind, also those that are not valid."""

        def read() -> list[Custom]:
            valid, invalid, _ = from_cluster(self._cluster, resource, Custom)
            return [*valid, *(Custom(each.head) for each in invalid)]

        return self._attempt(read)

    def rates(self) -> list[Custom]:
        """Return the ExchangeRates, each with the time at which its status changed last."""
        try:
            found = self._list(EXCHANGE_RATES, _rate, "", _RateObject, selector="")
        except ApiError as error:
            self._note(not_installed(EXCHANGE_RATES) if error.status == 404 else error)
            return []
        return sorted(found, key=lambda each: each.head.key)

    def _attempt(self, read: Callable[[], list[Found]]) -> list[Found]:
        """Return what `read` lists; if it fails, nothing, with a note."""
        try:
            return read()
        except (ApiError, ConfigurationError) as error:
            self._note(error)
            return []

    def _note(self, error: ApiError | ConfigurationError) -> None:
        self.notes.append(why_unread(error))
        self.is_partial = self.is_partial or isinstance(error, ApiError)

    def _list(
        self,
        resource: Resource,
        reduce: Callable[[Any], Found],
        namespace: str,
        item: type[Struct] = Served,
        *,
        selector: str = _SELECTOR,
        fields: str = "",
    ) -> list[Found]:
        found, _ = complete(
            self._cluster.objects, resource, item, reduce, namespace=namespace, selector=selector, fields=fields
        )
        return found


def why_unread(error: ApiError | ConfigurationError) -> str:
    """Return the note about an error, short if a right is missing."""
    right = right_in(str(error))
    return missing_right(*right) if right else str(error)


def _rate(read: _RateObject) -> Custom:
    at = read.metadata
    own = (each for each in at.managed_fields or [] if (each.manager, each.subresource) == (MANAGER, "status"))
    head = Head(ObjectKey(EXCHANGE_RATES.kind, at.name, at.namespace), status=bytes(read.status))
    return Custom(head, bytes(read.spec), max((each.time for each in own), default=""))
