"""The one copy of all sources of a rule with spec.merge. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Iterable, Sequence

from jobs.core.sync_copies.kinds import BY_NAME
from jobs.core.sync_copies.observed import Observed, Source
from jobs.core.sync_copies.rules import Rule
from jobs.kit.data.contents import Content
from jobs.kit.data.objects import NO_HEADER, ReducedObject
from jobs.kit.values.model import Finding

_UID = "merged"  # a key of fingerprints: certificates are public, and the same of a rule in a file


def merged(
    rule: Rule, sources: Sequence[Source], observed: Observed, *, confirmed: bool
) -> tuple[ReducedObject, Sequence[ReducedObject]] | None:
    """Return all sources of a rule as one, and these; None if there is none, or if not all of them are known.

    A copy without the certificates of one of them would refuse connections that it accepts today. A person can have
    `confirmed` that a source namespace is gone.
    """
    found = [each for each in sources if not isinstance(each, Finding)]
    is_refused = any(isinstance(each, Finding) and each.code in ("refused", "unreadable") for each in sources)
    if not found or is_refused or not _has_read(rule, observed):
        return None
    if not confirmed and not _have_namespaces(rule, found, observed):
        return None
    return ReducedObject(rule.namespace, rule.name, _UID, NO_HEADER, _content(rule, found)), found


def _has_read(rule: Rule, observed: Observed) -> bool:
    return observed.sources.keys() >= {*rule.queries()}


def _have_namespaces(rule: Rule, found: Sequence[ReducedObject], observed: Observed) -> bool:
    """Whether no source namespace was deleted, or recreated and has no source yet."""
    uids = {each.name: each.uid for each in observed.source_namespaces if each.active}
    recorded = {each.name: each.uid for each in rule.status.source_namespaces}
    with_source = {each.namespace for each in found}
    return all(
        name in with_source or (name in uids and uids[name] in ("", recorded.get(name, uids[name])))
        for name in rule.source_namespaces
    )


def texts_of(source: ReducedObject) -> Collection[str]:
    """Return the texts with the certificates of a source."""
    return source.content.data.values() if isinstance(source.content, Content) else ()


def _content(rule: Rule, sources: Iterable[ReducedObject]) -> Content:
    """Return the certificates of all sources, each once, in the order of their digests: not of names, or of time."""
    from jobs.core.sync_copies.certificates import bundle

    keys = rule.key_selection
    text = bundle(text for each in sources for text in texts_of(each))
    if keys.copy_as and BY_NAME[keys.copy_as].has_type:
        return Content("Opaque", {keys.merge: b64encode(text.encode()).decode()})
    return Content("", {keys.merge: text})
