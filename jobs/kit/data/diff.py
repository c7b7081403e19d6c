"""Compare actual with desired content, field by field, in a stable order. The result has no values of Secrets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from jobs.kit.data.contents import AnyContent, Digested, FieldContent, digested
from jobs.kit.data.objects import Header
from jobs.kit.values.model import Change
from jobs.kit.values.text import HIDDEN, listed

_MOST_FIELDS_NAMED = 4
_LONGEST_LINE = 66  # of JSON: with the indentation of a report, it fits a terminal
TOO_LARGE = "(too large to be shown)"


def changes(actual: AnyContent | None, desired: AnyContent, *, secret: bool) -> tuple[Change, ...]:
    """Return the changed fields. `actual` None: the object does not exist. `secret`: show values in `data` as `***`."""
    if isinstance(actual, Digested) or isinstance(desired, Digested):
        return _changed_digests(actual, desired)
    before, after = dict(actual.values()) if actual else {}, dict(desired.values())
    found = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old == new:
            continue
        hidden = secret and name.startswith("data.")
        if isinstance(desired, FieldContent) and old and new and max(len(old), len(new)) > _LONGEST_LINE:
            old, new = _in_lines(old), _in_lines(new)
        found.append(Change(name, _hide(old, hidden), _hide(new, hidden)))
    return tuple(found)


def _in_lines(text: str) -> str:
    """Return a list, which is JSON, in several lines, so that a diff shows the items that changed."""
    try:
        value = json.loads(text) if text.startswith("[") else None
    except ValueError:  # a name that begins with a bracket
        return text
    return json.dumps(value, indent=1, ensure_ascii=False) if isinstance(value, list) else text


def _changed_digests(actual: AnyContent | None, desired: AnyContent) -> tuple[Change, ...]:
    """Return the changed fields without values: the values of one side were too large to keep in memory."""
    old, new = _digests(actual), _digests(desired)
    return tuple(
        Change(name, TOO_LARGE if name in old else None, TOO_LARGE if name in new else None)
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    )


def _digests(content: AnyContent | None) -> dict[str, str]:
    if content is None:
        return {"immutable": str(False)}
    found = digested(content)
    return {**found.digests, "immutable": str(found.immutable)}


def metadata_changes(labels: Mapping[str, str], annotations: Mapping[str, str], actual: Header) -> tuple[Change, ...]:
    """Return the changed labels and annotations; those that other managers own do not count."""
    found = []
    for where, desired, present, owned in (
        ("label", labels, actual.labels, actual.ownership.labels),
        ("annotation", annotations, actual.annotations, actual.ownership.annotations),
    ):
        if present == desired:
            continue  # the usual case, ten times faster this way
        for key in sorted(desired.keys() | (owned & present.keys())):
            if present.get(key) != desired.get(key):
                found.append(Change(f"{where} {key}", present.get(key), desired.get(key)))
    return tuple(found)


def shown_metadata(found: Iterable[Change], *, secret: bool = False) -> list[Change]:
    """Return the changed labels and annotations to show: those of the stamp are left out.

    `secret`: without values, since an annotation of a Secret may contain its data.
    """
    shown = [change for change in found if "kubechores.dev/" not in change.field]
    if not secret:
        return shown
    return [each._replace(actual=each.actual and HIDDEN, desired=each.desired and HIDDEN) for each in shown]


def fields_changed(found: Sequence[Change], managers: Iterable[str]) -> str:
    """Return which fields changed, and the managers that changed them: "data.a, data.b changed by kubectl"."""
    named = listed([change.field for change in found], _MOST_FIELDS_NAMED)
    by = ", ".join(managers)
    return f"{named} changed{f' by {by}' if by else ''}"


def _hide(value: str | None, hidden: bool) -> str | None:
    return HIDDEN if hidden and value is not None else value
