"""The servers of the walk: the embedded one in `make test`, and the real one in `make test-walk`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apis import Api
from tests.conftest import served


@pytest.fixture(params=["sandbox", pytest.param("real", marks=pytest.mark.walk)])
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Api]:
    """An API server: the embedded one, fresh, or the real one, shared by all tests of a worker."""
    yield from served(request, tmp_path)
