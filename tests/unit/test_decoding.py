"""Any text is decoded or refused: tenants write the text of annotations, and a proxy may write that of answers."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.kit.values import reads
from jobs.kit.values.errors import InvalidObjectError
from jobs.kit.values.reads import MAX_LEVELS, decode, decode_any, decode_plain, shallow

# Parts of JSON, each repeated: balanced, never closed, closed too often, or a string that never ends.
PARTS = st.sampled_from(
    ["{", "}", "[", "]", '{"a":', '"a"', '"', '\\"', "\\", ",", "1", "null", "[1,", "\x00", "\u20ac"]
)
REPEATED = st.builds(lambda part, times: part * times, PARTS, st.sampled_from([1, 1, 2, 99, 101, 1_500, 5_000]))
TEXTS = st.lists(REPEATED, max_size=6).map("".join)
pytestmark = pytest.mark.usefixtures("recursion_as_in_a_pod")


@given(text=TEXTS, kind=st.sampled_from([dict[str, Any], object, list[int]]))
def test_any_text_is_decoded_or_refused(text: str, kind: Any) -> None:
    for read in (lambda: decode(text, kind), lambda: decode_any(text.encode()), lambda: decode_plain(text.encode())):
        try:
            read()
        except InvalidObjectError:
            continue


@pytest.mark.parametrize("more", ["", '"' + '\\"' * 14_000, "]" * 5_000, '"a' + "\\"])
def test_a_text_that_is_never_closed_is_refused(more: str) -> None:
    with pytest.raises(InvalidObjectError):
        decode('{"a":' * 5_000 + more, dict[str, Any])


def test_what_is_nested_too_deep_is_null() -> None:
    deep = json.loads("[" * MAX_LEVELS + "null" + "]" * MAX_LEVELS)

    assert decode_any(b'{"a": [' + b"[" * 5_000 + b"1" + b"]" * 5_000 + b'], "b": 2}') == {"a": deep[0], "b": 2}


@given(text=TEXTS)
def test_each_character_is_read_once(text: str) -> None:
    """A search that finds nothing reads all that follows, and the next one reads it again."""
    found = list(reads._TOKEN.finditer(text.encode()))
    rest = reads._TOKEN.sub(b"", text.encode())

    assert b'"' not in rest
    assert len(shallow(text.encode())) <= len(text.encode()) + 4 * len(found)
