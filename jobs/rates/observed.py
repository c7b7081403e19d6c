"""What a run of fetch-rates is told, and what it saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial

from jobs.kit import stamps
from jobs.kit.custom_resources import Invalid
from jobs.kit.errors import ApiError
from jobs.kit.model import Finding, Need, ObjectKey
from jobs.kit.objects import ObjectReducer, ReducedObject
from jobs.kit.runner import ReadResult
from jobs.kit.web import Page
from jobs.rates.choice import Answers, Unusable, unusable_by_date
from jobs.rates.exchange_rates import ExchangeRate
from jobs.rates.figures import Table
from jobs.rates.providers import BadDocumentError, table

NAME = "fetch-rates"
MAX_CHANGE_PERCENT = 20


@dataclass(frozen=True)
class Settings:
    """What one run is told.

    `namespace` empty is all of them; `rates` are those of files or of the command line, None is those of the cluster.
    `urls` are where the document of each provider is, `max_change` is in percent.
    """

    namespace: str
    urls: Mapping[str, str]
    rates: tuple[ExchangeRate, ...] | None = None
    max_change: int = MAX_CHANGE_PERCENT
    dry_run: bool = False
    diff: bool = False
    verbose: bool = False


@dataclass(frozen=True)
class Observed:
    """What was read. `configmaps` are those that are ours; None where they are not listed but looked up.

    `blind`: they could not be listed, so nothing can be said of any. `reducer` reduces those that are looked up.
    """

    rates: tuple[ExchangeRate, ...]
    invalid_rates: tuple[Invalid, ...] = ()
    configmaps: Mapping[ObjectKey, ReducedObject | ApiError] | None = None
    failures: tuple[Finding, ...] = ()
    blind: bool = False
    looks: Mapping[ObjectKey, ReducedObject | ApiError] = field(default_factory=dict)
    pages: Mapping[str, Page] = field(default_factory=dict)
    reducer: ObjectReducer = field(default_factory=lambda: ObjectReducer(stamps.KEYS))

    def with_documents(self, documents: Mapping[Need, ReadResult], pages: Mapping[str, Page]) -> Observed:
        """Return the same, knowing these `documents` and `pages` too; a later reading replaces an earlier one."""
        looks = {
            need.key: document.reduced(partial(self.reducer.decode, full=need.full))
            for need, document in documents.items()
        }
        return replace(self, looks={**self.looks, **looks}, pages={**self.pages, **pages})

    def answers(self, urls: Mapping[str, str], today: date) -> Answers:
        """Return what the providers that were asked say."""
        asked = {provider: self.pages[url] for provider, url in urls.items() if url in self.pages}
        return {provider: _answer(provider, page, today) for provider, page in asked.items()}


def _answer(provider: str, page: Page, today: date) -> Table | Unusable:
    if page.error:
        return Unusable(f"cannot be had: {page.error}")
    try:
        found = table(provider, page.body)
    except BadDocumentError as error:
        return Unusable(str(error))
    return unusable_by_date(found, today) or found
