"""Which workloads opted in, themselves or by their namespace, and which annotations have no effect. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Raw, Struct, structs

from jobs.kit.decoding import decode
from jobs.kit.model import Finding, ObjectKey, Severity
from jobs.kit.objects import Metadata, PartialObject, Resource, string_map
from jobs.rolls.baseline import OPT_IN
from jobs.rolls.workloads import KINDS, kubectl

JOBS = (Resource("batch/v1", "CronJob", "cronjobs"), Resource("batch/v1", "Job", "jobs"))
_LONGEST_ANSWER = 40
_MOST_MISTAKES = 3  # of a code and namespace: tenants may make as many as they like
_WORKLOADS = {resource.kind for resource in KINDS}


class OptIn(Struct, frozen=True, gc=False):
    """An object that may have opted in.

    `answer` is the value of its annotation, `default` that of its namespace if it counts; `in_template`: somebody set
    the annotation in the object's template.
    """

    key: ObjectKey
    answer: str | None
    default: bool
    in_template: bool

    @property
    def is_opted_in(self) -> bool:
        """Whether the workload follows its config."""
        return self.key.kind in _WORKLOADS and (self.answer == "true" or (self.answer is None and self.default))

    def mistake(self) -> Finding | None:
        """Return what is wrong with its annotation, if something is."""
        if self.key.kind not in _WORKLOADS:
            return _useless_on_job(self.key) if self.in_template or self.answer not in (None, "false") else None
        if self.answer is None:
            return _useless_in_template(self.key) if self.in_template else None
        return unclear(self.key, self.answer)


def reduced(kind: str, opted_in: frozenset[str], read: PartialObject) -> OptIn | None:
    """Return what an object's metadata says, or None if nothing concerns it. Namespaces in `opted_in` opt in for all.

    Raises:
        InvalidObjectError: annotations or managedFields are not what they should be.
    """
    at = read.metadata
    answer, default = opt_in(at), at.namespace in opted_in and kind in _WORKLOADS
    in_template = _is_in_template(at)
    is_made_by_cron_job = b'"CronJob"' in bytes(at.owner_references)  # which has the same annotation, or its template
    if is_made_by_cron_job or (answer is None and not default and not in_template):
        return None
    return OptIn(ObjectKey(kind, at.name, at.namespace), answer, default, in_template)


def opt_in(at: Metadata) -> str | None:
    """Return the value of the annotation, if the object has it.

    Raises:
        InvalidObjectError: the annotations are not strings.
    """
    answer = string_map(at.annotations).get(OPT_IN)
    return None if answer is None else answer[:_LONGEST_ANSWER]


class _Fields(Struct):
    spec: Raw = msgspec.field(name="f:spec", default=Raw())


def _is_in_template(at: Metadata) -> bool:
    """Whether somebody set the annotation below `spec`: a list of metadata has no templates, but says who set what."""
    name = f'"f:{OPT_IN}"'.encode()
    entries = (bytes(each.fields_v1) for each in at.managed_fields or ())
    return any(name in bytes(decode(fields, _Fields).spec) for fields in entries if name in fields)


def unclear(key: ObjectKey, answer: str) -> Finding | None:
    """Return that an annotation says neither yes nor no, unless it does."""
    if answer in ("true", "false"):
        return None
    return Finding("invalid", Severity.WARNING, key, f'annotation {OPT_IN} is "{answer}": write "true", or "false"')


def _useless_in_template(key: ObjectKey) -> Finding:
    annotate = kubectl(key, "annotate", f"{OPT_IN}=true")
    reason = f"annotation {OPT_IN} of the pod template has no effect, the workload needs it: run {annotate}"
    return Finding("no-effect", Severity.WARNING, key, reason)


def _useless_on_job(key: ObjectKey) -> Finding:
    reason = f"annotation {OPT_IN} has no effect on a {key.kind}, whose next pod reads the new config anyway: remove it"
    return Finding("no-effect", Severity.WARNING, key, reason)


def first_of_each_namespace(mistakes: Iterable[Finding]) -> Sequence[Finding]:
    """Return the first mistakes of each code in each namespace; the last of them has the number of the others."""
    found: dict[tuple[str, str], list[Finding]] = {}
    for each in sorted(mistakes, key=lambda each: each.object):
        found.setdefault((each.code, each.object.namespace), []).append(each)
    return [each for alike in found.values() for each in _first(alike)]


def _first(mistakes: Sequence[Finding]) -> Sequence[Finding]:
    if len(mistakes) <= _MOST_MISTAKES:
        return mistakes
    *first, last = mistakes[:_MOST_MISTAKES]
    more = f"{last.reason} ({len(mistakes) - _MOST_MISTAKES} more in namespace {last.object.namespace}, see -v)"
    return [*first, structs.replace(last, reason=more)]
