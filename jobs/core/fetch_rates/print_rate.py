"""Print one rate, without a cluster or a ConfigMap."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone

import click

from jobs.core.fetch_rates.choice import Choice, Jump, ProviderNeed, choose
from jobs.core.fetch_rates.exchange_rates import Figures, Spec
from jobs.core.fetch_rates.observed import NAME, Observed
from jobs.kit.run import log
from jobs.kit.run.session import user_agent
from jobs.kit.values.model import ExitCode, RunOptions
from jobs.kit.web import fetch


def print_rate(spec: Spec, urls: Mapping[str, str], options: RunOptions) -> ExitCode:
    """Print the rate to stdout, or the reason why there is none to stderr; return the exit code."""
    today = datetime.now(timezone.utc).date()
    observed = Observed(())
    while isinstance(chosen := choose(spec, None, observed.tables(urls, today), 0), ProviderNeed):
        url = urls[chosen.provider]
        observed = replace(observed, pages={**observed.pages, url: fetch(url, user_agent(NAME))})
    if isinstance(chosen, Choice):
        click.echo(_shown(chosen.figures, options.output))
        for reason in chosen.skipped:
            log.log.warning(reason)
        return ExitCode.DONE
    assert not isinstance(chosen, Jump)  # a jump needs a last rate, and there is none here
    log.log.error("no rate: %s", chosen.reason)
    return ExitCode.REFUSED if chosen.permanent else ExitCode.FAILED


def _shown(figures: Figures, output: str) -> str:
    if output == "json":
        return json.dumps(figures.data(), indent=2)
    if output == "yaml":
        import yaml

        return str(yaml.safe_dump(figures.data(), sort_keys=False)).rstrip()
    return f"1 {figures.base} = {figures.rate} {figures.currency} ({figures.source}, {figures.date})"
