"""Which workloads opted in, themselves or by their namespace, and which annotations have no effect. Pure."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Raw, Struct, structs

from jobs.core.roll_workloads.baseline import ROLL_OPT_IN
from jobs.core.roll_workloads.workloads import KINDS, kubectl
from jobs.kit.values.decoding import decode
from jobs.kit.values.metadata import Metadata, PartialObject, string_map
from jobs.kit.values.model import Finding, ObjectKey, Severity
from jobs.kit.values.resources import CRON_JOBS, JOBS

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
            return _mistake("no-effect", self.key, why)
        if self.value is not None:
            return invalid_value(self.key, self.value)
        if not self.in_template:
            return None
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
    spec: Raw = msgspec.field(name="f:spec", default=Raw())


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


def first_of_each_namespace(mistakes: Iterable[Finding]) -> Sequence[Finding]:
    """Return the first mistakes of each code in each namespace; the last of them reports the number of the others."""
    found: dict[tuple[str, str], list[Finding]] = {}
    for each in sorted(mistakes, key=lambda each: each.object):
        found.setdefault((each.code, each.object.namespace), []).append(each)
    return [each for group in found.values() for each in _first(group)]


def _first(mistakes: Sequence[Finding]) -> Sequence[Finding]:
    if len(mistakes) <= _MOST_MISTAKES:
        return mistakes
    *first, last = mistakes[:_MOST_MISTAKES]
    more = f"{last.reason} ({len(mistakes) - _MOST_MISTAKES} more in namespace {last.object.namespace}, see -v)"
    return [*first, structs.replace(last, reason=more)]
