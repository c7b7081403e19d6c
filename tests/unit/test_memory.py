"""What a run keeps of several clusters, and the messages of their servers."""

from base64 import b64encode

import pytest

from jobs.kit.api import memory
from jobs.kit.api.memory import Memory, Share
from jobs.kit.values.errors import TooMuchError
from jobs.kit.values.hidden import Forms, Messages, quoted_forms


def test_one_cluster_takes_at_most_half() -> None:
    share = Share(Memory())

    share.take(memory.MOST_OF_ONE)

    with pytest.raises(TooMuchError):
        share.take(1)


def test_a_small_cluster_always_fits() -> None:
    all_clusters = Memory()
    for _ in range(2):
        Share(all_clusters).take(memory.MOST_OF_ONE)
    small = Share(all_clusters)

    small.take(memory.ALWAYS)

    with pytest.raises(TooMuchError):
        small.take(1)


def test_what_was_read_is_released_and_findings_that_are_kept_are_not() -> None:
    all_clusters = Memory()
    share = Share(all_clusters)
    share.take(10_000)
    share.keep_findings(500)
    share.keep_findings(100)  # a later plan takes the place of an earlier one

    share.release(findings=False)
    kept = all_clusters.used
    share.release(findings=True)

    assert (0 < kept < 500 * 700, all_clusters.used) == (True, 0)


def test_findings_take_the_place_of_earlier_ones() -> None:
    share = Share(Memory())
    most = share.most_findings()

    share.keep_findings(most)

    assert share.most_findings() == most


def messages(*values: str) -> Messages:
    forms = Forms(quoted_forms(b64encode(each.encode()).decode() for each in values))
    return Messages(lambda: forms)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("denied: password1 and password12", "denied: *** and ***"),
        ("denied: cGFzc3dvcmQx.", "denied: ***."),
        ("line1", "***"),
        (r'denied: "say \"h\u00e9\""', 'denied: "***"'),
        ("passw", "passw"),
        ("", ""),
    ],
)
def test_values_are_not_shown(message: str, shown: str) -> None:
    assert messages("password1", "password12", "line1\nline2", "a", 'say "hé"')(message) == shown


def test_a_value_is_not_shown_where_a_message_is_cut() -> None:
    value = "v" * 3000
    shown = messages(value)("-" * 2500 + value + "-" * 1000)

    assert shown == "-" * 2500 + "***… (6500 characters)"


def test_later_messages_of_many_are_short() -> None:
    short = messages("password1")

    lengths = [len(short("x" * 10_000)) for _ in range(1000)]

    assert (lengths[0] > 3000, lengths[-1] < 300, sum(lengths) < 2 << 20) == (True, True, True)
