"""Which copies ServiceAccounts name in imagePullSecrets: spec.attachTo of rules. Pure.

An annotation of the ServiceAccount records the names that jobs added. Only these are removed again, and only if the
copy is known not to be there, or not to be for this ServiceAccount.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from jobs.core.sync_copies.desired import Candidate, Place
from jobs.core.sync_copies.kinds import WITH_PULL_SECRETS
from jobs.core.sync_copies.observed import NAME, Observed, Settings
from jobs.core.sync_copies.selectors import glob_matcher
from jobs.kit.data.contents import FieldContent
from jobs.kit.data.objects import ReducedObject
from jobs.kit.values import stamps
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Action, Body, Change, Dependency, FieldDiff, Finding, ObjectKey, Severity
from jobs.kit.values.reads import unreadable
from jobs.kit.values.text import listed

# https://kubernetes.io/docs/concepts/configuration/secret/#docker-config-secrets
PULL_SECRETS = frozenset({"kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg"})
_FIELD = "imagePullSecrets"
# The namespace of a rule and the name of a copy. The policy kube-chores-adoption reads records as this does.
_RECORDED = "[a-z0-9-]{1,63}/[a-z0-9.-]{1,253}"
_RECORD = re.compile(f"{_RECORDED}(?:,{_RECORDED})*")


class AccountPatch(Body, frozen=True, gc=False):
    """A merge patch of imagePullSecrets, and of the record of the names that jobs added.

    It is of exactly one version of the ServiceAccount: a list is patched as a whole. `record` is empty to remove it.
    """

    uid: str
    resource_version: str
    entries: tuple[Any, ...]
    record: str

    def encode(self) -> bytes:
        """Return the patch as JSON."""
        metadata = {
            "uid": self.uid,
            "resourceVersion": self.resource_version,
            "annotations": {stamps.ATTACHED: self.record or None},
            "labels": {stamps.ATTACHED: "true" if self.record else None},
        }
        return msgspec.json.encode({"metadata": metadata, _FIELD: self.entries})

    def fits_without_others(self) -> bool:
        """Return True: what makes the ServiceAccount too large are annotations of others."""
        return True


class Evaluated(NamedTuple):
    """A place of a Secret, and the result of its evaluation."""

    place: Place
    result: Finding | Dependency | None


class _Required(NamedTuple):
    """A copy that rules require. `is_created`: it is there once the run created it."""

    key: ObjectKey
    rules: Sequence[str]
    is_for_pulls: bool
    is_created: bool


class _Copies(NamedTuple):
    """The copies in a namespace, by name. Names of those in `kept` are not removed: they may be required."""

    required: dict[str, _Required]
    kept: set[str]


def attachments(
    observed: Observed, settings: Settings, places: Iterable[Evaluated], deleted: Collection[ObjectKey], detaches: bool
) -> Iterator[Finding]:
    """Yield the findings of ServiceAccounts. `deleted` are the copies that the run deletes.

    Names are removed only if it `detaches`: everything was read, so that no rule may require them.
    """
    copies = _copies(places, settings, deleted)
    matches = {rule.name: glob_matcher(rule.service_accounts).fullmatch for rule in observed.rules}
    active = {each.name for each in observed.namespaces if each.active}
    for account in _accounts(observed):
        if isinstance(account, Finding):
            yield account
        elif account.namespace in active:
            of_namespace = copies.get(account.namespace, _Copies({}, set()))
            wanted = {
                name: names
                for name, required in of_namespace.required.items()
                if (names := [rule for rule in required.rules if required.is_for_pulls and matches[rule](account.name)])
            }
            if found := _of_account(account, wanted, of_namespace, detaches, settings):
                yield found


def _copies(places: Iterable[Evaluated], settings: Settings, deleted: Collection[ObjectKey]) -> Mapping[str, _Copies]:
    """Return the copies by namespace."""
    found: dict[str, _Copies] = {}
    for place, result in places:
        copies = found.setdefault(place.key.namespace, _Copies({}, set()))
        is_own = isinstance(place.found, ReducedObject) and stamps.is_managed(
            place.found.header.labels, NAME, settings.namespace
        )
        is_written = isinstance(result, Finding) and bool(result.change) and result.action is not Action.DELETE
        if isinstance(place.found, ApiError):
            copies.kept.add(place.key.name)
        elif place.desired and (is_written or (is_own and result is None)):
            desired = place.desired[0]
            is_for_pulls = desired.content.fixed in PULL_SECRETS
            copies.required[place.key.name] = _Required(place.key, desired.rules, is_for_pulls, not is_own)
        elif is_own and place.key not in deleted:
            copies.kept.add(place.key.name)
    return found


def types_problems(candidates: Iterable[Candidate], settings: Settings) -> Iterator[Finding]:
    """Yield a finding for each rule with attachTo that has sources which are not for pulls."""
    found: dict[ObjectKey, tuple[str, list[str]]] = {}
    for rule, source, *_ in candidates:
        kind = source.content.fixed if source.content else ""
        if rule.spec.attach_to and kind not in PULL_SECRETS and settings.applies(rule.name):
            named = f"{source.namespace}/{source.name} ({kind})"
            found.setdefault(rule.head.key, (rule.name, []))[1].append(named)
    for key, (name, sources) in found.items():
        reason = (
            f"spec.attachTo: no pull uses the type of secret {listed(sorted(sources))}; "
            "narrow the rule to Secrets of type kubernetes.io/dockerconfigjson"
        )
        yield Finding("not-for-pulls", Severity.WARNING, key, reason, subjects=(name,))


def _accounts(observed: Observed) -> Iterator[ReducedObject | Finding]:
    for each in observed.accounts:
        if isinstance(each, Finding):
            yield each
            continue
        key = ObjectKey(WITH_PULL_SECRETS.kind, each.name, each.namespace)
        read = observed.single_reads.get(key, each)
        if isinstance(read, ApiError):
            yield unreadable(key, read)
        elif read is not None and not isinstance(read.content, FieldContent):
            reason = f"its {_FIELD} are not known: the run has no memory left for them; narrow spec.attachTo of rules"
            yield Finding("unreadable", Severity.WARNING, key, reason)
        elif read is not None and not read.header.terminating:
            yield read


class _State(NamedTuple):
    """What attachTo changes of a ServiceAccount: imagePullSecrets, and the record with its label."""

    entries: tuple[Any, ...]
    record: str
    is_labelled: bool

    @property
    def names(self) -> set[str]:
        """The names in imagePullSecrets."""
        return {*map(_name, self.entries)}


def _of_account(
    account: ReducedObject, wanted: Mapping[str, Sequence[str]], copies: _Copies, detaches: bool, settings: Settings
) -> Finding | None:
    """Return the finding of one ServiceAccount. `wanted` has the names of rules by name of the copy."""
    key, labels = ObjectKey(WITH_PULL_SECRETS.kind, account.name, account.namespace), account.header.labels
    is_labelled = labels.get(stamps.ATTACHED) == "true"
    # The policy protects a record with the label. Without it, tenants may have written it.
    record = account.header.annotations.get(stamps.ATTACHED, "") if is_labelled else ""
    actual = _State(_entries(account), record, is_labelled)
    if labels.get(stamps.JOB) == NAME:
        return _of_copy(key, {name: by for name, by in wanted.items() if name not in actual.names})
    obsolete = _records(record).get(settings.namespace, set()) - wanted.keys() - copies.kept if detaches else set()
    created = {name for name in wanted if copies.required[name].is_created} - actual.names
    # Removals wait for created copies: pods can pull at any time. Names of existing copies do not: a create may fail.
    desired = _desired(actual, wanted.keys() - created, () if created else obsolete, settings.namespace)
    after: tuple[ObjectKey, ...] = ()
    if created and desired == actual:
        desired = _desired(actual, wanted.keys(), obsolete, settings.namespace)
        after = tuple(copies.required[name].key for name in sorted(created))
    return None if desired == actual else _patched(account, actual, desired, after, wanted, copies, settings)


def _patched(
    account: ReducedObject,
    actual: _State,
    desired: _State,
    after: tuple[ObjectKey, ...],
    wanted: Mapping[str, Sequence[str]],
    copies: _Copies,
    settings: Settings,
) -> Finding:
    """Return the finding with the patch of a ServiceAccount, which is written after the copies in `after`."""
    key = ObjectKey(WITH_PULL_SECRETS.kind, account.name, account.namespace)
    added, removed = sorted(desired.names - actual.names), sorted(actual.names - desired.names)
    still = copies.required.keys() & removed  # names of copies that stay
    patch = AccountPatch(account.uid, account.resource_version, desired.entries, desired.record)
    is_shown = settings.run.diff and desired.entries != actual.entries
    diff = (FieldDiff(_FIELD, _shown(actual.entries), _shown(desired.entries)),) if is_shown else ()
    code, reason, result = "still-attached", f"annotation {stamps.ATTACHED} is not up to date", ""
    if removed:
        reason = f"{_FIELD} has {listed(removed)} of kube-chores, which no rule requires there"
        result = f"{_FIELD} no longer has {listed(removed)}"
    if added:
        code, reason, result = "not-attached", f"{_FIELD} lacks {listed(added)}", f"{_FIELD} has {listed(added)}"
    rules = {rule for name in added for rule in wanted[name]}
    rules.update(rule for name in still for rule in copies.required[name].rules)
    change = Change(Action.PATCH, patch, result, after=after, is_removal=bool(still))
    return Finding(code, Severity.WARNING, key, reason, change, diff, tuple(sorted(rules)))


def _of_copy(key: ObjectKey, missing: Mapping[str, Sequence[str]]) -> Finding | None:
    """Return the finding of a ServiceAccount that is a copy: it has what its source has."""
    if not missing:
        return None
    rules = tuple(sorted({rule for by in missing.values() for rule in by}))
    reason = f"is a copy, so {listed(sorted(missing))} is not added to its {_FIELD}; add it to its source"
    return Finding("not-attached", Severity.INFO, key, reason, subjects=rules)


def _desired(actual: _State, names: Collection[str], obsolete: Collection[str], namespace: str) -> _State:
    """Return the state with these names, and without those that are obsolete; names of other installations stay."""
    records = _records(actual.record)
    own = records.pop(namespace, set())
    of_others = {name for found in records.values() for name in found}
    kept = [each for each in actual.entries if _name(each) in of_others or _name(each) not in obsolete]
    added = sorted({*names} - actual.names)
    entries = (*kept, *({"name": name} for name in added))
    own = (own.difference(obsolete) | {*added} | of_others.intersection(names)) & {*map(_name, entries)}
    record = _record({**records, namespace: own})
    return _State(entries, record, bool(record))


def _entries(account: ReducedObject) -> tuple[Any, ...]:
    assert isinstance(account.content, FieldContent)
    found = account.content.document().get(_FIELD)
    return tuple(found) if isinstance(found, list) else ()


def _name(entry: Any) -> str:
    """Return the name of an entry; empty if it is not an object, as a proxy may serve it."""
    return str(entry.get("name", "")) if isinstance(entry, dict) else ""


def _records(text: str) -> dict[str, set[str]]:
    """Return the names in the annotation by namespace of their rules; none if it is not as this job writes it."""
    found: dict[str, set[str]] = {}
    for each in text.split(",") if _RECORD.fullmatch(text) else ():
        namespace, _, name = each.partition("/")
        found.setdefault(namespace, set()).add(name)
    return found


def _record(records: Mapping[str, Collection[str]]) -> str:
    """Return the annotation."""
    return ",".join(sorted(f"{where}/{name}" for where, names in records.items() for name in names))


def _shown(entries: Sequence[Any]) -> str | None:
    return json.dumps(entries) if entries else None
