"""Copies are as rules require: an independent model of sync-copies, as docs/sync-copies.md describes it."""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from soak.history import LATE_SECONDS, History, Key, Object
from soak.invariants.ours import COPIED
from soak.invariants.reads import (
    MARGIN_SECONDS,
    annotations_of,
    changed_at,
    each_write,
    is_known,
    is_managed,
    is_terminating,
    labels_of,
    latest,
    possible,
    runs_since,
    shown,
    window_start,
)
from soak.journal import Fault
from soak.observed import Invariant, Observed, Run, Write

JOB = "sync-copies"
RULE = "CopyRator"
OPT_IN = "kubechores.dev/copies"
BRAKE = 10
LIFTED = "max-deletes"
STAMPED_RULE = "kubechores.dev/rule"
KIND_OF = {kind.lower(): kind for kind in COPIED}
FIELDS = {
    "ConfigMap": ("data", "binaryData", "immutable"),
    "Secret": ("type", "data", "immutable"),
    "NetworkPolicy": ("spec",),
    "LimitRange": ("spec",),
    "ResourceQuota": ("spec",),
    "RoleBinding": ("roleRef", "subjects"),
    "ServiceAccount": ("imagePullSecrets", "automountServiceAccountToken"),
}
STAMPED_SOURCE = "kubechores.dev/source"
FINGERPRINT = "kubechores.dev/fingerprint"
HMAC_SHA256 = re.compile("[0-9a-f]{64}$")  # docs/drift.md
HUB = "kubechores.dev/hub"  # no copy of a rule in its own cluster has it
# docs/architecture.md, "Labels and annotations": the stamp of a copy, without the fingerprint.
STAMP = (
    "app.kubernetes.io/managed-by",
    "kubechores.dev/job",
    "kubechores.dev/rule-namespace",
    "kubechores.dev/rule-hash",
    STAMPED_RULE,
    STAMPED_SOURCE,
    "kubechores.dev/orphans",
)
RUNS = 2
NO_REVISION = 1 << 63  # later than all
QUOTA = "tenant-copies-quota"
CLAIM = "tenant-copies-claim"  # of a name by sources of two rules: no new copy of either is created
REFUSALS = ("admission-", "credentials-", QUOTA, CLAIM)


class Wanted(NamedTuple):
    """A copy that a rule requires of a source."""

    rule: Key
    source: Key
    content: Object


# what rules require


def content_of(obj: Object, kind: str) -> Object:
    """Return the fields of an object that copies have too."""
    return {name: obj[name] for name in FIELDS[kind] if obj.get(name) or (name in obj and obj[name] is False)}


def matches(selector: Object | None, labels: dict[str, str]) -> bool:
    """Whether labels match a selector that has matchLabels only."""
    return all(labels.get(key) == value for key, value in ((selector or {}).get("matchLabels") or {}).items())


def selects(rule: Object, source: Object) -> bool:
    """Whether a rule selects an object of its kind as a source."""
    spec, metadata = rule["spec"], source["metadata"]
    return (
        metadata["namespace"] in spec.get("namespaces", [rule["metadata"]["namespace"]])
        and metadata["name"] in spec.get("names", [metadata["name"]])
        and ("selector" not in spec or matches(spec["selector"], labels_of(source)))
        and not is_terminating(source)
    )


def targets(rule: Object, namespace: Object) -> bool:
    """Whether a rule requires copies in a namespace, for sources in others."""
    targeted, name = rule["spec"].get("targets", {}), namespace["metadata"]["name"]
    return (
        is_open(namespace)
        and (not name.startswith("kube-"))
        and any(fnmatch.fnmatchcase(name, each) for each in targeted.get("include", ["*"]))
        and not any(fnmatch.fnmatchcase(name, each) for each in targeted.get("exclude", []))
        and matches(targeted.get("namespaceSelector"), labels_of(namespace))
    )


def is_open(namespace: Object | None) -> bool:
    """Whether a namespace is active and did not opt out."""
    if namespace is None or is_terminating(namespace):
        return False
    return annotations_of(namespace).get(OPT_IN, "").lower() != "false"


def copy_name(rule: Object, source: Object) -> str:
    """Return the name of the copies of a source."""
    return str(rule["spec"].get("targetName", source["metadata"]["name"]))


def copy_content(rule: Object, source: Object, kind: str, namespace: str) -> Object:
    """Return the content of a copy in a namespace."""
    content = content_of(source, kind)
    if keys := rule["spec"].get("keys"):
        for field_name in ("data", "binaryData"):
            if field_name in content:
                content[field_name] = _chosen(content[field_name], keys)
    if rule["spec"].get("subjectNamespace") == "target":
        content["subjects"] = [
            {**each, "namespace": namespace} if each["kind"] == "ServiceAccount" else each
            for each in content.get("subjects", [])
        ]
    return {name: value for name, value in content.items() if value or value is False}


def _chosen(data: dict[str, str], keys: Object) -> dict[str, str]:
    rename = keys.get("rename", {})
    included = keys.get("include", ["*"])
    return {
        rename.get(key, key): value
        for key, value in data.items()
        if key in rename or any(fnmatch.fnmatchcase(key, each) for each in included)
    }


def kind_of(rule: Object) -> str:
    """Return the kind of a rule's sources."""
    return KIND_OF[rule["spec"]["ruleType"]]


def wants(rule: Object | None, source: Object | None, namespace: Object | None, place: Key) -> Object | None:
    """Return the content of the copy at a place that a rule requires of a source, None if it requires none there."""
    if rule is None or source is None or namespace is None or kind_of(rule) != place.kind:
        return None
    if source["metadata"]["namespace"] == place.namespace or copy_name(rule, source) != place.name:
        return None
    if not selects(rule, source) or not targets(rule, namespace):
        return None
    return copy_content(rule, source, place.kind, place.namespace)


def desired(history: History) -> dict[Key, list[Wanted]]:
    """Return what all rules require now, by place."""
    rules = [(each.key, each.object) for each in history.now(RULE) if each.object]
    spaces = [each.object for each in history.now("Namespace") if each.object]
    found: dict[Key, list[Wanted]] = {}
    for rule_key, rule in rules:
        kind = kind_of(rule)
        of_rule: dict[Key, Wanted] = {}
        for version in sorted(history.now(kind), key=lambda each: _rank(rule, each.key)):
            source = version.object
            if source is None or not selects(rule, source):
                continue
            for namespace in spaces:
                place = Key(kind, namespace["metadata"]["name"], copy_name(rule, source))
                content = wants(rule, source, namespace, place)
                if content is not None:
                    of_rule.setdefault(place, Wanted(rule_key, version.key, content))
        for place, wanted in of_rule.items():
            found.setdefault(place, []).append(wanted)
    return found


def _rank(rule: Object, source: Key) -> int:
    """Return the position of a source's namespace in a rule: of sources with one name, the first one is copied."""
    names = _spaces(rule)
    return names.index(source.namespace) if source.namespace in names else len(names)


def stamp_of(copy: Object | None) -> dict[str, str]:
    """Return the labels and annotations by which a copy is managed, without the fingerprint, which depends on a uid."""
    found = {**labels_of(copy), **annotations_of(copy)}
    return {key: found[key] for key in (*STAMP, HUB) if key in found}


def required_stamp(history: History, wanted: Wanted) -> dict[str, str]:
    """Return the stamp of a copy, without the fingerprint."""
    rule, source = (f"{each.namespace}/{each.name}" for each in (wanted.rule, wanted.source))
    orphans = (latest(history, wanted.rule) or {"spec": {}})["spec"].get("orphans", "Delete")
    rule_hash = hashlib.sha256(rule.encode()).hexdigest()[:16]
    return dict(zip(STAMP, ("kube-chores", JOB, wanted.rule.namespace, rule_hash, rule, source, orphans), strict=True))


# what was possible in a run


@dataclass(frozen=True)
class Window:
    """What a run can have read from a time up to a revision, about one place."""

    history: History
    place: Key
    start: float
    revision: int

    def pairs(self) -> Iterator[tuple[Key, list[Object | None], Key, list[Object | None]]]:
        """Yield the rules and sources that can be about this place, each with its possible states."""
        for rule_key in self.history.keys(RULE):
            rules = possible(self.history, rule_key, self.start, self.revision)
            names = {name for rule in rules if rule and kind_of(rule) == self.place.kind for name in _spaces(rule)}
            for source_key in self.history.keys(self.place.kind) if names else ():
                if source_key.namespace in names:
                    yield rule_key, rules, source_key, possible(self.history, source_key, self.start, self.revision)

    def namespaces(self) -> list[Object | None]:
        """Return the possible states of the namespace."""
        return possible(self.history, Key("Namespace", "", self.place.namespace), self.start, self.revision)

    def copies(self) -> list[Object | None]:
        """Return the possible states of the copy before the last revision."""
        return possible(self.history, self.place, self.start, self.revision - 1)

    def kept(self) -> set[Key]:
        """Return the sources that the copy can have had: it stays a copy of its source."""
        return {_stamped(each, self.place.kind)[1] for each in self.copies() if is_managed(each, JOB)}

    def wanted(self) -> Iterator[Wanted]:
        """Yield what rules can have required, except of a source that another one of the same rule shadowed."""
        spaces, kept = self.namespaces(), self.kept()
        first = {each.rule: each.source for each in self.always()}
        for rule_key, rules, source_key, sources in self.pairs():
            for rule, source, namespace in itertools.product(rules, sources, spaces):
                content = wants(rule, source, namespace, self.place)
                if rule is None or content is None:
                    continue
                is_shadowed = _rank(rule, first.get(rule_key, source_key)) < _rank(rule, source_key)
                if not is_shadowed or source_key in kept:
                    yield Wanted(rule_key, source_key, content)

    def always(self) -> list[Wanted]:
        """Return what was required all the time: of each rule, the copy of the first source."""
        spaces = self.namespaces()
        first: dict[Key, tuple[int, Wanted]] = {}
        for rule_key, rules, source_key, sources in self.pairs():
            found = [wants(*each, self.place) for each in itertools.product(rules, sources, spaces)]
            if found and all(each is not None for each in found):
                one = _rank(rules[-1] or {}, source_key), Wanted(rule_key, source_key, found[-1] or {})
                first[rule_key] = min(first.get(rule_key, one), one, key=lambda each: each[0])
        return [wanted for _, wanted in first.values()]


def _spaces(rule: Object) -> list[str]:
    return list(rule["spec"].get("namespaces", [rule["metadata"]["namespace"]]))


# invariants


def invariants() -> list[Invariant]:
    """Return the invariants of copies."""
    return [
        each_write("a copy is written only if a rule requires it", JOB, COPIED, written),
        each_write("a copy is not deleted that a rule requires", JOB, COPIED, deleted),
        Invariant("the brake limits the deletions of a run", Brake()),
        Invariant("each copy is repaired within two runs", repaired),
        Invariant("copies are exactly those that rules require", Settled()),
    ]


def written(observed: Observed, write: Write) -> Iterator[str]:
    """Check a create or an update of a copy."""
    if write.after is None or write.verb == "delete":
        return
    about = f"{write.verb} of {shown(write.key)} by {write.pod}"
    window = Window(observed.history, write.key, window_start(observed, write), write.revision)
    content = content_of(write.after, write.key.kind)
    allowed = [each.content for each in window.wanted()]
    if not allowed:
        yield f"{about}: no rule required it at any time of the run"
    elif content not in allowed:
        yield f"{about}: its content is not that of its source at any time of the run, but {_summary(content, allowed)}"
    claiming = {each.source for each in window.always()}
    if len(claiming) > 1 and not claiming & window.kept():
        yield f"{about}: {' and '.join(sorted(map(shown, claiming)))} claimed it during the whole run"
    yield from _moved(observed, write, window)
    if write.before and _compared(write.before, write.key.kind) == _compared(write.after, write.key.kind):
        yield f"{about}: it changed nothing"


def _moved(observed: Observed, write: Write, window: Window) -> Iterator[str]:
    """Yield that a copy became one of a source in another namespace, although its rule named that of the old one."""
    rule_key, before = _stamped(write.before, write.key.kind)
    _, after = _stamped(write.after, write.key.kind)
    if not before.name or before.namespace == after.namespace or _is_lifted(observed, write.pod):
        return
    rules = possible(observed.history, rule_key, window.start, write.revision)
    if all(rule and before.namespace in _spaces(rule) for rule in rules):
        yield f"{write.verb} of {shown(write.key)} by {write.pod}: it was a copy of {shown(before)}"


def _summary(content: Object, allowed: list[Object]) -> str:
    """Return which fields differ, without values."""
    return "differs in " + ", ".join(
        sorted({name for each in allowed for name in {*content, *each} if content.get(name) != each.get(name)})
    )


def _compared(obj: Object, kind: str) -> tuple[Object, dict[str, str], dict[str, str]]:
    return content_of(obj, kind), labels_of(obj), annotations_of(obj)


def deleted(observed: Observed, write: Write) -> Iterator[str]:
    """Check a deletion of a copy."""
    if write.verb != "delete" or write.before is None:
        return
    window = Window(observed.history, write.key, window_start(observed, write), write.revision)
    if required := next(iter(window.always()), None):
        contents = [required.content, *(each.content for each in window.wanted())]
        if not any(_needs_recreation(write.before, content, write.key.kind) for content in contents):
            yield (
                f"delete of {shown(write.key)} by {write.pod}: {shown(required.rule)} required a copy of "
                f"{shown(required.source)} there during the whole run"
            )
    yield from _rule_is_mistaken(observed, write, window)


def _rule_is_mistaken(observed: Observed, write: Write, window: Window) -> Iterator[str]:
    """Yield why no copy of a rule may be deleted: a namespace of its sources did not exist during the whole run."""
    stamped = annotations_of(write.before).get(STAMPED_RULE, "")
    if not all(map(is_open, window.namespaces())) or _is_lifted(observed, write.pod):
        return
    rules = possible(window.history, Key(RULE, *stamped.partition("/")[::2]), window.start, write.revision)
    if any(rule is None for rule in rules):
        return
    for name in _spaces(rules[-1] or {}):
        states = possible(window.history, Key("Namespace", "", name), window.start, write.revision)
        if all(is_terminating(each) for each in states) and all(name in _spaces(rule or {}) for rule in rules):
            yield f"delete of {shown(write.key)} by {write.pod}: namespace {name} of rule {stamped} did not exist"


def _needs_recreation(copy: Object, content: Object, kind: str) -> bool:
    if kind == "ResourceQuota":
        return bool(copy["spec"].get("scopes") != content["spec"].get("scopes"))
    fixed = FIELDS[kind] if copy.get("immutable") else ("type", "roleRef")
    return any(copy.get(name) != content.get(name) for name in fixed if name in FIELDS[kind])


@dataclass
class Brake:
    """Count the deletions of each run, and check that a run that was stopped by the brake had a reason."""

    _deleted: dict[tuple[str, str], list[Write]] = field(default_factory=dict)
    _stopped: list[Run] = field(default_factory=list)  # of which not all is known yet that they can have read

    def __call__(self, observed: Observed) -> Iterator[str]:
        """Yield a sentence for each run that deleted too much, or that did not for no reason."""
        for write in observed.writes:
            if write.account == JOB and write.key.kind in COPIED:
                yield from self._count(observed, write)
        stopped = [*self._stopped, *(run for run in observed.runs if run.job.startswith(JOB) and run.exit_code == 4)]
        self._stopped = [run for run in stopped if not is_known(observed, run)]
        for run in stopped:
            if is_known(observed, run) and not _has_reason(observed, run):
                yield (
                    f"{run.pod} ended with 4, and there was no mistaken rule, no copy that would move to another "
                    f"namespace, and not {BRAKE + 1} copies to delete"
                )

    def _count(self, observed: Observed, write: Write) -> Iterator[str]:
        group = write.pod, write.key.kind
        if write.verb == "create":  # a copy that was deleted to create it again
            self._deleted[group] = [each for each in self._deleted.get(group, []) if each.key != write.key]
        elif write.verb == "delete" and not self._opted_out(observed, write) and not _is_recreated(observed, write):
            self._deleted.setdefault(group, []).append(write)
            managed = sum(1 for each in observed.history.now(write.key.kind) if is_managed(each.object, JOB))
            number = len(self._deleted[group])
            # Copies that the run deleted are not there any more.
            if number > max(BRAKE, (managed + number) / 10 + 1) and not _is_lifted(observed, write.pod):
                yield f"{write.pod} deleted {number} copies of kind {write.key.kind}"

    def _opted_out(self, observed: Observed, write: Write) -> bool:
        key = Key("Namespace", "", write.key.namespace)
        states = possible(observed.history, key, window_start(observed, write), write.revision)
        return not all(is_open(each) for each in states)


def _is_recreated(observed: Observed, write: Write) -> bool:
    """Whether a copy can only change by a deletion: a run deletes several of these before it creates them."""
    window = Window(observed.history, write.key, window_start(observed, write), write.revision)
    return any(_needs_recreation(write.before or {}, each.content, write.key.kind) for each in window.wanted())


def _is_lifted(observed: Observed, pod: str) -> bool:
    """Whether a person ran the Job with another limit."""
    versions = observed.history.versions(Key("Pod", "kube-chores", pod))
    return any(LIFTED in json.dumps((each.object or {}).get("spec", {})).lower().replace("_", "-") for each in versions)


def _has_reason(observed: Observed, run: Run) -> bool:
    start, revision = run.created - MARGIN_SECONDS, _revision_at(observed.history, run.ended)
    doubtful: Counter[str] = Counter()
    for kind in COPIED:
        for key in observed.history.keys(kind):
            window = Window(observed.history, key, start, revision)
            if any(is_managed(each, JOB) for each in window.copies()):
                doubtful[kind] += not window.always()
                if any(_is_held(window, copy, each) for copy in window.copies() for each in window.wanted()):
                    return True
    if any(number > BRAKE for number in doubtful.values()):
        return True
    return any(doubtful.values()) and any(
        _may_be_mistaken(observed, key, start, revision) for key in observed.history.keys(RULE)
    )


def _is_held(window: Window, copy: Object | None, wanted: Wanted) -> bool:
    """Whether a copy does not become one of this source by itself: its rule may name the namespace of another one."""
    rule_key, source = _stamped(copy, window.place.kind)
    if not is_managed(copy, JOB) or source.namespace == wanted.source.namespace:
        return False
    rules = possible(window.history, rule_key, window.start, window.revision)
    return any(rule and source.namespace in _spaces(rule) for rule in rules)


def _may_be_mistaken(observed: Observed, key: Key, start: float, revision: int) -> bool:
    """Whether a rule may be mistaken.

    It named a namespace that does not exist, or that was recreated, or has not selected anything since it was edited.
    """
    history = observed.history
    for rule in possible(history, key, start, revision):
        if rule is None:
            continue
        status = rule.get("status", {})
        uids = {each["name"]: each["uid"] for each in status.get("sourceNamespaces", [])}
        for name in _spaces(rule):
            states = possible(history, Key("Namespace", "", name), start, revision)
            existing = [each for each in states if each and not is_terminating(each)]
            recorded = uids.get(name)
            if len(existing) < len(states) or (recorded and any(_uid(each) != recorded for each in existing)):
                return True
        if status.get("selectedGeneration") != rule["metadata"]["generation"]:
            return True
    return False


def _revision_at(history: History, seconds: float) -> int:
    """Return a revision that is not earlier than a time."""
    revisions = [each.revision for each in history.changes("Pod") if each.seconds <= seconds + LATE_SECONDS]
    return max(revisions, default=0)


def repaired(observed: Observed) -> Iterator[str]:
    """Yield a sentence for each copy that is not as required although two runs could repair it."""
    if observed.settled:
        return
    for place, wanted in desired(observed.history).items():
        if len({each.source for each in wanted}) > 1 or _is_equal(observed.history, place, wanted):
            continue
        actual = latest(observed.history, place)
        if actual is not None and not is_managed(actual, JOB):
            continue
        keys = [place, Key("Namespace", "", place.namespace), *(key for each in wanted for key in each[:2])]
        keys += _stamped(actual, place.kind)
        since = max(_excused_until(observed, place), *(changed_at(observed.history, key) for key in keys))
        if _complete_runs(observed, since) >= RUNS and not _may_stay(observed, place, wanted, since):
            yield f"{shown(place)} is not as {shown(wanted[0].rule)} requires it, {_what(actual)}"


def _stamped(copy: Object | None, kind: str) -> tuple[Key, Key]:
    """Return the rule and the source that a copy is stamped with."""
    annotations = annotations_of(copy)
    rule, source = (annotations.get(name, "").partition("/")[::2] for name in (STAMPED_RULE, STAMPED_SOURCE))
    return Key(RULE, *rule), Key(kind, *source)


def _may_stay(observed: Observed, place: Key, wanted: list[Wanted], since: float) -> bool:
    """Whether a copy of another source may stay one, as docs/sync-copies.md describes it under "Decisions".

    The source may be in another namespace of the rule; a rule may have selected that source since then, and claims the
    place or refuses the source; or the rule that the copy is stamped with may be mistaken.
    """
    copy = latest(observed.history, place)
    rule_key, source_key = _stamped(copy, place.kind)
    if not source_key.name or source_key == wanted[0].source:
        return False
    window = Window(observed.history, place, since - MARGIN_SECONDS, NO_REVISION)
    if _is_held(window, copy, wanted[0]):
        return True
    for _, rules, key, sources in window.pairs():
        states = itertools.product(rules, sources) if key == source_key else ()
        if any(rule and source and selects(rule, source) for rule, source in states):
            return True
    return _may_be_mistaken(observed, rule_key, since, NO_REVISION)


def _complete_runs(observed: Observed, since: float) -> int:
    """Return the number of runs after a time that did all but what a brake blocked."""
    return len(runs_since(observed, JOB, since, (0, 4)))


def _what(actual: Object | None) -> str:
    return "but missing" if actual is None else "but has other content"


def _excused_until(observed: Observed, place: Key) -> float:
    """Return the end of the last fault that lets the API server refuse a copy, or that claims its name."""
    faults = (each for each in observed.journal.faults if each.kind.startswith(REFUSALS) and _refuses(each, place))
    return max((each.ended or math.inf for each in faults), default=0.0)


def _refuses(fault: Fault, place: Key) -> bool:
    if fault.kind.startswith("credentials-"):
        return JOB in fault.detail  # else of another job
    if fault.kind == QUOTA:
        return fault.detail == place.namespace
    if fault.kind == CLAIM:
        return fault.detail.rpartition("/")[2] == place.name
    names, _, is_for = fault.detail.removeprefix("in ").rpartition(" for ")
    return not is_for or place.namespace in names.split(", ")


def _is_equal(history: History, place: Key, wanted: list[Wanted]) -> bool:
    actual = latest(history, place)
    return is_managed(actual, JOB) and content_of(actual or {}, place.kind) == wanted[0].content


@dataclass
class Settled:
    """Check that copies are exactly those that rules require, with their stamps, after everything settled."""

    _fingerprints: dict[str, tuple[str, str]] = field(default_factory=dict)  # the source's UID and the content of each

    def __call__(self, observed: Observed) -> Iterator[str]:
        """Yield a sentence for each difference from what rules require."""
        if not observed.settled:
            return
        required = desired(observed.history)
        for place, wanted in required.items():
            if len({each.source for each in wanted}) > 1:
                yield f"{len(wanted)} sources claim {shown(place)}: the tenants of the soak did not resolve this"
            elif not _is_equal(observed.history, place, wanted):
                actual = latest(observed.history, place)
                yield f"{shown(place)} is not as {shown(wanted[0].rule)} requires it, {_what(actual)}"
        yield from self._stamps(observed.history, required)
        for kind in COPIED:
            for version in observed.history.now(kind):
                if is_managed(version.object, JOB) and version.key not in required:
                    yield f"{shown(version.key)} is a copy that no rule requires"
        yield from _not_ready(observed.history, {each.rule for wanted in required.values() for each in wanted})

    def _stamps(self, history: History, required: dict[Key, list[Wanted]]) -> Iterator[str]:
        fingerprints: dict[tuple[str, str], str] = {}  # each content of each source has one
        for place, wanted in required.items():
            first = min(wanted, key=lambda each: each.rule)  # the stamp names the first rule by name
            if len({each.source for each in wanted}) > 1 or not _is_equal(history, place, wanted):
                continue
            copy, expected = latest(history, place), required_stamp(history, first)
            if wrong := sorted(key for key in STAMP if stamp_of(copy).get(key) != expected[key]):
                yield f"{shown(place)} has another {' and '.join(wrong)} than {shown(first.rule)} requires"
            uid = _uid(latest(history, first.source))
            of = uid, json.dumps(first.content, sort_keys=True)
            found = annotations_of(copy).get(FINGERPRINT, "")
            if not HMAC_SHA256.search(found):
                yield f"{shown(place)} has {FINGERPRINT} {found!r}, which is not an HMAC"
            elif self._fingerprints.setdefault(found, of) != of:
                yield f"{shown(place)} has the {FINGERPRINT} of another content or an earlier source"
            elif fingerprints.setdefault(of, found) != found:
                yield f"{shown(place)} has another {FINGERPRINT} than an equal copy of {shown(first.source)}"


def _uid(obj: Object | None) -> str:
    return str(((obj or {}).get("metadata") or {}).get("uid"))


def _not_ready(history: History, rules: Iterable[Key]) -> Iterator[str]:
    for key in sorted(rules):
        conditions = (latest(history, key) or {}).get("status", {}).get("conditions", [])
        ready: Object = next((each for each in conditions if each["type"] == "Ready"), {})
        if ready.get("status") != "True":
            yield f"{shown(key)} is not Ready: {ready.get('reason')} {ready.get('message')}"
