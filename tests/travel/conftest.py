"""A real cluster for each module, and what happens to it while a run is in progress."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from unittest import mock

import pytest

from jobs.kit.api.curl import Transfers
from jobs.kit.api.responses import Request
from jobs.kit.api.transport import Transport
from tests.control_plane import missing
from tests.manifests import everything
from tests.planes import Plane
from tests.policies import wait_until_policies_act
from tests.rates import serve
from tests.travel.town import Town


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A cluster with our manifests that can be restored, and whose kube-apiserver can be replaced."""
    if why := missing():
        pytest.skip(why)
    plane = Plane(tmp_path_factory.mktemp("travel") / "hub")
    try:
        plane.start()
        for each in everything():
            plane.api.put(each)
        wait_until_policies_act(plane.api)
        yield plane
    finally:
        plane.stop()


@pytest.fixture
def town(hub: Plane) -> Iterator[Town]:
    """Objects for all jobs, which no run has seen."""
    with serve() as rates:
        made = Town(hub, rates)
        made.build()
        yield made


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have runs repeat a request until kube-apiserver was replaced, which may take long on a busy machine."""
    defaults = Transport.__init__.__kwdefaults__
    assert defaults
    monkeypatch.setitem(defaults, "retry_seconds", 600.0)


def is_write(request: Request) -> bool:
    """Whether a request of a job changes something: a question for its own rights is a POST that does not."""
    return request.method != "GET" and not request.path.endswith("reviews")


@contextlib.contextmanager
def before_write(number: int, action: Callable[[], object]) -> Iterator[None]:
    """Do this once, before a run in this process sends its write of this number, the first of which is 0.

    Fails if no run had so many.
    """
    start, writes, done = Transfers.start, itertools.count(), []

    def counted(self: Transfers, request: Request, *more: object) -> object:
        if is_write(request) and next(writes) == number:
            done.append(action())
        return start(self, request, *more)  # type: ignore[arg-type]

    with mock.patch.object(Transfers, "start", counted):
        yield
    assert done, f"no run had more than {number} writes"


@contextlib.contextmanager
def connections() -> Iterator[list[int]]:
    """Collect how many connections each transfer of runs in this process began."""
    import pycurl

    release, found = Transfers.release, list[int]()

    def counted(self: Transfers, handle: pycurl.Curl) -> None:
        found.append(int(handle.getinfo(pycurl.NUM_CONNECTS)))
        release(self, handle)

    with mock.patch.object(Transfers, "release", counted):
        yield found
