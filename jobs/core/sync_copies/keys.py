"""The keys of a source that a rule copies, and their names in copies. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import structs

from jobs.core.sync_copies.kinds import Kind
from jobs.core.sync_copies.selectors import glob_matcher, is_glob
from jobs.kit.data.contents import Content, WholeContent
from jobs.kit.values.text import listed

_MOST_NAMED = 3


class KeySelection(NamedTuple):
    """spec.keys of a rule, as a value that can be sorted and compared. The default selects all keys."""

    include: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()


ALL_KEYS = KeySelection()


def select(keys: KeySelection, kind: Kind, content: WholeContent) -> WholeContent:
    """Return the content with the keys that a rule copies, under their names in copies.

    Raises:
        ValueError: the source cannot be copied with these keys; the message has the reason.
    """
    if keys == ALL_KEYS or not isinstance(content, Content):
        return content
    names = _names(keys, [*content.data, *content.binary_data])
    for group in kind.required_keys.get(content.type, ()):
        if not {*group} & {*names.values()}:
            raise ValueError(f"a {kind.name} of type {content.type} requires key {' or '.join(group)} in copies")
    data, binary = (_renamed(each, names) for each in (content.data, content.binary_data))
    return structs.replace(content, data=data, binary_data=binary)


def _names(keys: KeySelection, given: list[str]) -> dict[str, str]:
    """Return the name in copies of each key that is copied."""
    rename, included = dict(keys.rename), glob_matcher(keys.include or ("*",)).fullmatch
    required = {*rename, *(each for each in keys.include if not is_glob(each))}
    if missing := sorted(required - {*given}):
        raise ValueError(f"it has no key {listed(missing, _MOST_NAMED)}")
    names = {key: rename.get(key, key) for key in given if key in rename or included(key)}
    if not names:
        raise ValueError(f"none of its keys matches {listed(keys.include, _MOST_NAMED)}")
    by_name: dict[str, str] = {}
    for key, name in sorted(names.items()):
        if name in by_name:
            raise ValueError(f"its keys {by_name[name]} and {key} would both be {name} in copies")
        by_name[name] = key
    return names


def _renamed(values: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    return {names[key]: value for key, value in values.items() if key in names}
