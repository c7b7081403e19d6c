"""mirror-audit as users run it: the same on the embedded and the real API server."""

from __future__ import annotations

from tests.api.conftest import Run
from tests.apis import Api
from tests.mirrors import Mirrors


def codes(ran: object) -> list[str]:
    """The codes of a run's findings."""
    return [each["code"] for each in ran.results]  # type: ignore[attr-defined]


def test_nothing_is_found_when_all_is_well(api: Api, audit: Run, mirrors: Mirrors) -> None:
    mirrors.well()

    ran = audit()

    assert (ran.exit_code, codes(ran), ran.summary) == (0, [], {"unchanged": 5})


def test_what_is_not_there_is_found(api: Api, audit: Run, mirrors: Mirrors) -> None:
    mirrors.ask()

    ran = audit()

    assert (ran.exit_code, ran.summary) == (0, {"missing": 5})
