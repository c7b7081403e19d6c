"""What a run of roll-workloads reads, reduced to what it uses, and which workloads opted in. Pure."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property, partial

from msgspec import Raw, Struct, field, structs

from jobs.core.roll_workloads.baseline import ROLL_OPT_IN, Key, read_key
from jobs.core.roll_workloads.references import Source, source
from jobs.core.roll_workloads.schedule import Annotations, Window
from jobs.core.roll_workloads.workloads import BUILT_IN, KINDS, Workload, kubectl, workload
from jobs.kit.run.brakes import first_of_each
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Dependency, Finding, ObjectKey, RunOptions, Severity
from jobs.kit.values.reads import Download, Metadata, PartialObject, ReadResult, decode, string_map
from jobs.kit.values.resources import CRON_JOBS, JOBS, SECRETS, Resource

BATCH_KINDS = (CRON_JOBS, JOBS)
_LONGEST_VALUE = 40
_MOST_MISTAKES = 3  # of each code and namespace: a tenant can create any number of them
_OF_WORKLOADS = {resource.kind for resource in KINDS}


class OptIn(Struct, frozen=True, gc=False):
    """An object that may have opted in.

    `value` is the value of its annotation; None: not set. `default`: its namespace opted in. `in_template`: the
    annotation is set in the object's template.
    """

    key: ObjectKey
    value: str | None
    default: bool
    in_template: bool

    @property
    def is_opted_in(self) -> bool:
        """Whether a run rolls the workload when its config changes."""
        return self.key.kind in _OF_WORKLOADS and (self.value == "true" or (self.value is None and self.default))

    def mistake(self) -> Finding | None:
        """Return the finding for an invalid annotation or one without effect, or None."""
        if self.key.kind not in _OF_WORKLOADS:
            if not self.in_template and self.value in (None, "false"):
                return None
            why = f"has no effect on a {self.key.kind}, whose next pod reads the new config anyway; remove it"
        elif self.value is not None:
            return invalid_value(self.key, self.value)
        elif not self.in_template:
            return None
        else:
            command = kubectl(self.key, "annotate", f"{ROLL_OPT_IN}=true")
            why = f"on the pod template has no effect; set it on the workload: run {command}"
        return _mistake("no-effect", self.key, why)


def reduced(kind: str, opted_in: frozenset[str], read: PartialObject) -> OptIn | str:
    """Return the opt-in from an object's metadata, or only its namespace if no annotation applies to it.

    Namespaces in `opted_in` opt in for all their workloads.

    Raises:
        InvalidObjectError: annotations or managedFields are not valid.
    """
    found = opt_in_of(kind, opted_in, read)
    is_owned_by_cron_job = b'"CronJob"' in bytes(read.metadata.owner_references)  # the CronJob is reported instead
    if is_owned_by_cron_job or (found.value is None and not found.default and not found.in_template):
        return sys.intern(read.metadata.namespace)
    return found


def opt_in_of(kind: str, opted_in: frozenset[str], read: PartialObject) -> OptIn:
    """Return the opt-in of an object that has an annotation or none; arguments and errors as for `reduced`."""
    at = read.metadata
    default = at.namespace in opted_in and kind in _OF_WORKLOADS
    return OptIn(ObjectKey(kind, at.name, at.namespace), opt_in(at), default, _is_in_template(at))


def opt_in(at: Metadata) -> str | None:
    """Return the value of the annotation, truncated, or None if it is not set.

    Raises:
        InvalidObjectError: the annotations are not strings.
    """
    value = string_map(at.annotations).get(ROLL_OPT_IN)
    return None if value is None else value[:_LONGEST_VALUE]


class _Fields(Struct):
    spec: Raw = field(name="f:spec", default=Raw())


def _is_in_template(at: Metadata) -> bool:
    """Return whether managedFields contain the annotation below `spec`: lists of metadata have no templates."""
    name = f'"f:{ROLL_OPT_IN}"'.encode()
    entries = (bytes(each.fields_v1) for each in at.managed_fields or ())
    return any(name in bytes(decode(fields, _Fields).spec) for fields in entries if name in fields)


def invalid_value(key: ObjectKey, value: str) -> Finding | None:
    """Return the finding for an annotation that is neither "true" nor "false", or None."""
    if value in ("true", "false"):
        return None
    return _mistake("invalid", key, f'is "{value}"; set it to "true" or "false"')


def _mistake(code: str, key: ObjectKey, why: str) -> Finding:
    return Finding(code, Severity.WARNING, key, f"annotation {ROLL_OPT_IN} {why}")


def first_of_each_namespace(mistakes: Iterable[Finding]) -> Iterable[Finding]:
    """Return the first mistakes of each code in each namespace; the last of them reports the number of the others."""
    by_object = sorted(mistakes, key=lambda each: each.object)
    first, more = first_of_each(by_object, lambda each: (each.code, each.object.namespace), _MOST_MISTAKES)
    found = {(each.code, each.object): each for each in first}
    last = {(each.code, each.object.namespace): each for each in first}
    for (code, namespace), number in more.items():
        each = last[code, namespace]
        reason = f"{each.reason} ({number} more in namespace {namespace}, see -v)"
        found[code, each.object] = structs.replace(each, reason=reason)
    return found.values()


NAME = "roll-workloads"
SETTLE_SECONDS = 30
COOL_DOWN_SECONDS = 600
MAX_ROLLS = 10


class Settings(Struct, frozen=True):
    """The settings of one run. An empty `namespace` means all namespaces.

    `key_secret` is the Secret with the key for fingerprints; None: not set. `new_key` is written to it if it is empty.
    `windows` are for workloads without windows of their own. Only the workloads of `only`, whose kind is not set, are
    rolled, at once; None: all. `argo_rollouts`: also process Rollouts.
    """

    namespace: str = ""
    settle: timedelta = timedelta()
    cool_down: timedelta = timedelta()
    max_rolls: int = 1
    key_secret: ObjectKey | None = None
    new_key: str = ""
    run: RunOptions = field(default_factory=RunOptions)
    windows: tuple[Window, ...] = ()
    only: ObjectKey | None = None
    argo_rollouts: bool = False

    def __repr__(self) -> str:
        return "Settings()"  # new_key is secret

    @property
    def kinds(self) -> Sequence[Resource]:
        """The kinds of workloads that the run lists."""
        return KINDS if self.argo_rollouts else BUILT_IN

    @property
    def any_kind(self) -> str:
        """These kinds, for a message that no workload was found."""
        *first, last = (each.kind for each in self.kinds)
        return f"{', '.join(first)} or {last}"


class Observed(Struct, frozen=True, dict=True):
    """What was read.

    `opted_in` are the workloads that opted in, in active namespaces. `workloads` are those that were read, `sources`
    the ConfigMaps and Secrets that they use; None: the object does not exist. `key` is the key for fingerprints of
    Secrets, or why there is none. It is None until a run reads `key_secret`, which it does before any other Secret.
    `new_key` is written there if the Secret is empty. `namespaces` are the active namespaces that opted in. `listed`
    are the workloads to explain, whether or not they opted in. `used_keys` are the keys that `workloads` name, by
    ConfigMap or Secret, once a source was read. `schedules` are annotations of namespaces, by name. `other_rollouts`
    opted in, and are only read for their pod templates.
    """

    opted_in: tuple[ObjectKey, ...]
    failures: tuple[Finding, ...] = ()
    key_secret: ObjectKey | None = None
    new_key: str = ""
    key: Key | ApiError | None = None
    workloads: Mapping[ObjectKey, Workload | ApiError | None] = field(default_factory=dict)
    sources: Mapping[ObjectKey, Source | ApiError | None] = field(default_factory=dict)
    namespaces: tuple[str, ...] = ()
    listed: tuple[OptIn, ...] = ()
    used_keys: Mapping[ObjectKey, frozenset[str]] = field(default_factory=dict)
    schedules: Mapping[str, Annotations] = field(default_factory=dict)
    other_rollouts: tuple[ObjectKey, ...] = ()

    def __repr__(self) -> str:
        return "Observed()"  # new_key is secret

    def with_documents(
        self, documents: Mapping[Dependency, ReadResult], _downloads: Mapping[str, Download]
    ) -> Observed:
        """Return a copy that includes these `documents`.

        If a workload is read again, its sources are read again too: it was rolled meanwhile, and its config may be
        newer than the one that was read before.
        """
        workloads: dict[ObjectKey, Workload | ApiError | None] = {}
        sources: dict[ObjectKey, Source | ApiError | None] = {}
        has_sources = any(dependency.key.kind not in _OF_WORKLOADS for dependency in documents)
        used = (self.used_keys or self._used_keys()) if has_sources else {}
        key_read = next((each for dependency, each in documents.items() if dependency.key == self.key_secret), None)
        key = self.key
        if key_read and self.key_secret:
            key = read_key(self.key_secret, key_read.body, key_read.error, self.new_key)
        for dependency, document in documents.items():
            if dependency.key.kind in _OF_WORKLOADS:
                workloads[dependency.key] = document.reduced_if_exists(partial(workload, dependency.key))
            elif dependency.key != self.key_secret or (dependency.key in used and isinstance(key, Key)):
                keys = used.get(dependency.key, frozenset())
                sources[dependency.key] = document.reduced_if_exists(
                    partial(source, dependency.key.kind, keys, key=key)
                )
        stale = {each.namespace for each in workloads}
        kept = {each: found for each, found in self.sources.items() if each.namespace not in stale}
        if not _is_same(key, self.key):
            kept = {each: found for each, found in kept.items() if each.kind != SECRETS.kind}
        return structs.replace(
            self,
            key=key,
            workloads={**self.workloads, **workloads},
            sources={**kept, **sources},
            used_keys={} if workloads else used,  # the next batch of sources needs them too
        )

    @cached_property
    def rollouts(self) -> Mapping[ObjectKey, ObjectKey]:
        """The Rollouts that opted in, by the workload whose pod template they use."""
        found = (each for each in self.workloads.values() if isinstance(each, Workload) and not each.terminating)
        return {each.template_of: each.key for each in found if each.template_of}

    def _used_keys(self) -> Mapping[ObjectKey, frozenset[str]]:
        """Return the keys that workloads name, by ConfigMap or Secret; all workloads that use it are merged."""
        found: dict[ObjectKey, frozenset[str]] = {}
        for each in (each for each in self.workloads.values() if isinstance(each, Workload)):
            for reference in each.references:
                key = ObjectKey(reference.kind, reference.name, each.key.namespace)
                found[key] = found.get(key, frozenset()).union(reference.named_keys)
        return found


def _is_same(one: Key | ApiError | None, other: Key | ApiError | None) -> bool:
    """Return whether both keys give the same digests, also if one was written meanwhile."""
    if isinstance(one, Key) and isinstance(other, Key):
        return one.value == other.value
    return one is other
