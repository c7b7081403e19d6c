"""The settings of a run of fetch-rates, and what it read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date

from jobs.core.fetch_rates.exchange_rates import ExchangeRate, Table
from jobs.core.fetch_rates.providers import BadDocumentError, Tables, date_failure, table
from jobs.kit.data.contents import CONFIGMAP
from jobs.kit.data.objects import ObjectReducer, ReducedObject
from jobs.kit.values import stamps
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Dependency, Finding, ObjectKey, RunOptions
from jobs.kit.values.reads import Download, Invalid, ReadResult
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
    one, reduced by `reducer`; None: they do not exist. `downloads` are the responses of providers by URL.
    """

    rates: tuple[ExchangeRate, ...]
    invalid_rates: tuple[Invalid, ...] = ()
    configmaps: Mapping[ObjectKey, ReducedObject | ApiError] | None = None
    failures: tuple[Finding, ...] = ()
    list_failed: bool = False
    single_reads: Mapping[ObjectKey, ReducedObject | ApiError | None] = field(default_factory=dict)
    downloads: Mapping[str, Download] = field(default_factory=dict)
    reducer: ObjectReducer = field(default_factory=lambda: ObjectReducer(stamps.KEYS))

    def with_documents(self, documents: Mapping[Dependency, ReadResult], downloads: Mapping[str, Download]) -> Observed:
        """Return a copy that includes these `documents` and `downloads`; they replace those that were read before."""
        return replace(
            self,
            single_reads={**self.single_reads, **self.reducer.decode_reads(documents, {CONFIGMAPS.kind: CONFIGMAP})},
            downloads={**self.downloads, **downloads},
        )

    def tables(self, urls: Mapping[str, str], today: date) -> Tables:
        """Return the table of each provider that was read, or why it cannot be used."""
        fetched = {provider: self.downloads[url] for provider, url in urls.items() if url in self.downloads}
        return {provider: _table(provider, download, today) for provider, download in fetched.items()}


def _table(provider: str, download: Download, today: date) -> Table | str:
    if download.error:
        return f"request failed: {download.error}"
    try:
        found = table(provider, download.body)
    except BadDocumentError as error:
        return str(error)
    return date_failure(found, today) or found
