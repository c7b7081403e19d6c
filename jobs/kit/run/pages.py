"""Documents of the web that a run fetches in the background, so that slow ones do not delay the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING

from jobs.kit.run import log
from jobs.kit.run.session import user_agent
from jobs.kit.values.model import Fetch
from jobs.kit.values.reads import Page
from jobs.kit.values.text import listed

if TYPE_CHECKING:
    from jobs.kit.web import Fetcher

_FAST_PAGES_SECONDS = 3.0  # for pages; before it waits for slower ones, the run reports what it knows without them
_PROBES_SECONDS = 120.0  # for all probes; with `wait_seconds` and the writes, 120 less than the deadlines of CronJobs


class Pages:
    """Fetches what plans need: once in a run, or at each observation if a Fetch has `again`.

    `wait_seconds` is how long the run may wait for its next step: probes may be sent during that time too.
    """

    def __init__(self, job: str, stopping: Callable[[], bool], wait_seconds: float) -> None:
        self._job, self._stopping = job, stopping
        self._probes_end = monotonic() + wait_seconds + _PROBES_SECONDS
        self._probes: set[str] = set()
        self._pages: dict[str, Page] = {}
        self._slow: frozenset[str] = frozenset()

    def are_slow(self, fetches: Sequence[Fetch]) -> bool:
        """Return whether the run has to report what it knows without these pages, before it waits for them.

        True also if there are none.
        """
        return all(each.subject and each.url in self._slow for each in fetches)

    def fetch(self, fetches: Sequence[Fetch]) -> Mapping[str, Page]:
        """Return the pages by URL. Slow ones are not in it, if other findings do not depend on them."""
        urls = dict.fromkeys(each.url for each in fetches)
        again = {each.url for each in fetches if each.again}
        self._probes.update(each.url for each in fetches if each.is_probe)
        new = [url for url in urls if url not in self._pages or url in again]
        fetched = self._fetch(new, _FAST_PAGES_SECONDS if all(each.subject for each in fetches) else None)
        return {url: self._pages[url] for url in urls if url in fetched or url not in new}

    def wait(self) -> None:
        """Wait for the slow pages."""
        named = listed(sorted(self._slow), 1)
        log.log.info("%s: no answer yet from %s: the run reports the others first", self._job, named)
        self._fetcher.wait(self._slow)
        self._slow = frozenset()

    @cached_property
    def _fetcher(self) -> Fetcher:
        from jobs.kit.web import Fetcher

        return Fetcher(user_agent(self._job), self._stopping, self._probes.__contains__, self._probes_end)

    def _fetch(self, urls: Sequence[str], seconds: float | None) -> Mapping[str, Page]:
        if not urls:
            return {}
        self._fetcher.start(urls)
        self._fetcher.wait(urls if seconds is None else set(urls) - self._slow, seconds)
        pages = self._fetcher.take()
        for url in sorted(self._probes & pages.keys()):
            if pages[url].error:
                log.log.info("%s: %s: %s", self._job, url, pages[url].error)
        self._pages |= pages
        self._slow = self._fetcher.pending()
        return pages
