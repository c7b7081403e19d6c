"""The settings of a run of fetch-rates, and what it read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date

from jobs.core.fetch_rates.choice import Tables, date_failure
from jobs.core.fetch_rates.exchange_rates import ExchangeRate, Table
from jobs.core.fetch_rates.providers import BadDocumentError, table
from jobs.kit.data.contents import CONFIGMAP
from jobs.kit.data.objects import ObjectReducer, ReducedObject
from jobs.kit.values import stamps
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Finding, Need, ObjectKey, RunOptions
from jobs.kit.values.reads import Invalid, Page, ReadResult
from jobs.kit.values.resources import CONFIGMAPS

NAME = "fetch-rates"
MAX_CHANGE_PERCENT = 20


@dataclass(frozen=True)
class Settings:
    """The settings of one run.

    An empty `namespace` means all namespaces. `rates` are those of files or of the command line; None: those of the
    cluster. `urls` are the URLs of the documents by provider; `max_change` is in percent.
    """

    namespace: str
    urls: Mapping[str, str]
    rates: tuple[ExchangeRate, ...] | None = None
    max_change: int = MAX_CHANGE_PERCENT
    run: RunOptions = field(default_factory=RunOptions)


@dataclass(frozen=True)
class Observed:
    """What was read.

    `configmaps` are the listed ones, which fetch-rates manages; None: they are read one by one. `list_failed`: they
    could not be listed, so no ExchangeRate can be evaluated. `single_reads` are ConfigMaps that were read one by
    one, reduced by `reducer`; None: they do not exist. `pages` are the responses of providers by URL.
    """

    rates: tuple[ExchangeRate, ...]
    invalid_rates: tuple[Invalid, ...] = ()
    configmaps: Mapping[ObjectKey, ReducedObject | ApiError] | None = None
    failures: tuple[Finding, ...] = ()
    list_failed: bool = False
    single_reads: Mapping[ObjectKey, ReducedObject | ApiError | None] = field(default_factory=dict)
    pages: Mapping[str, Page] = field(default_factory=dict)
    reducer: ObjectReducer = field(default_factory=lambda: ObjectReducer(stamps.KEYS))

    def with_documents(self, documents: Mapping[Need, ReadResult], pages: Mapping[str, Page]) -> Observed:
        """Return a copy that includes these `documents` and `pages`; they replace those that were read before."""
        return replace(
            self,
            single_reads={**self.single_reads, **self.reducer.decode_reads(documents, {CONFIGMAPS.kind: CONFIGMAP})},
            pages={**self.pages, **pages},
        )

    def tables(self, urls: Mapping[str, str], today: date) -> Tables:
        """Return the table of each provider that was read, or why it cannot be used."""
        fetched = {provider: self.pages[url] for provider, url in urls.items() if url in self.pages}
        return {provider: _table(provider, page, today) for provider, page in fetched.items()}


def _table(provider: str, page: Page, today: date) -> Table | str:
    if page.error:
        return f"request failed: {page.error}"
    try:
        found = table(provider, page.body)
    except BadDocumentError as error:
        return str(error)
    return date_failure(found, today) or found
