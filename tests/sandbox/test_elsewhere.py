"""A copy of the test's process, in which another run happens."""

import os
import threading
from collections.abc import Callable
from time import sleep

import pytest

from tests.fault_world import elsewhere, threads


class SlowToEnd:
    """What a thread owns that ends some time after Python has forgotten it."""

    def __del__(self) -> None:
        sleep(0.3)


def test_no_thread_ends_while_the_process_is_copied() -> None:
    owned = threading.local()
    thread = threading.Thread(target=lambda: setattr(owned, "slow", SlowToEnd()))
    thread.start()
    thread_id = str(thread.native_id)
    while thread in threading.enumerate():
        sleep(0.001)
    ending = threads()

    with elsewhere(lambda: None) as other:
        left = threads()
        status = other.ran()

    assert (thread_id in ending, thread_id in left, status) == (True, False, 0)


@pytest.mark.parametrize(("call", "status"), [(lambda: None, 0), (lambda: 1 // 0, 1)])
def test_a_call_elsewhere_has_a_status(call: Callable[[], object], status: int) -> None:
    with elsewhere(call) as other:
        assert os.waitstatus_to_exitcode(other.ran()) == status


def test_a_copy_that_never_begins_ends() -> None:
    calls = os.pipe()
    with elsewhere(lambda: os.write(calls[1], b"called")) as other:
        pass
    os.close(calls[1])

    assert os.read(calls[0], 6) == b""
    os.close(calls[0])
    with pytest.raises(ProcessLookupError):
        other.kill()
