"""The write of a new key."""

import pytest

from jobs.core.roll_workloads.baseline import Key, KeySecretPatch
from jobs.kit.values.errors import InvalidObjectError
from tests.worlds import encoded


@pytest.mark.parametrize(("stored", "changed"), [("k" * 32, ()), ("t" * 32, ("data[key]",))])
def test_the_key_that_the_server_stored_counts(stored: str, changed: tuple[str, ...]) -> None:
    answer = f'{{"metadata":{{}},"data":{{"key":"{encoded(stored)}"}}}}'.encode()

    assert KeySecretPatch(Key(b"k" * 32)).changed_by_server(answer) == changed


@pytest.mark.parametrize("data", ["null", "{}", '{"key":""}', f'{{"key":"{encoded("short")}"}}'])
def test_a_key_that_admission_removed_is_not_written(data: str) -> None:
    """Else the run would succeed, and each run would write another key."""
    with pytest.raises(InvalidObjectError, match="admission removed `key`"):
        KeySecretPatch(Key(b"k" * 32)).changed_by_server(f'{{"metadata":{{}},"data":{data}}}'.encode())
