"""Evaluate one ExchangeRate: no finding, findings with their fixes, or what a run must read first. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from jobs.core.fetch_rates.exchange_rates import ExchangeRate, Quote, RateStatus
from jobs.core.fetch_rates.observed import NAME, Observed, Settings
from jobs.core.fetch_rates.providers import Choice, Jump, NoQuote, ProviderNeed, Tables, choose, provider_rate
from jobs.kit.data.contents import CONFIGMAP, AnyContent, Content, fingerprint
from jobs.kit.data.manifests import ContentManifest, content_diff, fields_changed, metadata_diff, repair, shown_metadata
from jobs.kit.data.objects import ReducedObject
from jobs.kit.values import stamps
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Action, Change, Deletion, Dependency, DryRun, ExitCode, Finding, ObjectKey, Severity
from jobs.kit.values.reads import decode_list, terminating, unreadable
from jobs.kit.values.resources import EXCHANGE_RATES

_EXCHANGE_RATE = (EXCHANGE_RATES.api_version, EXCHANGE_RATES.kind)


def manifest(rate: ExchangeRate, quote: Quote, actual: ReducedObject | None) -> ContentManifest:
    """Return the desired ConfigMap with this quote; of the `actual` one, owners of other kinds stay."""
    content = Content(data=quote.data())
    at = rate.head.key
    stamp = stamps.stamp(NAME, at.namespace, at.name, quote.source, fingerprint(content, rate.subject))
    return ContentManifest(
        CONFIGMAP,
        rate.configmap,
        stamp.labels,
        stamp.annotations,
        content,
        owner_references=_owner_references(rate, actual),
    )


def _owner_references(rate: ExchangeRate, actual: ReducedObject | None) -> bytes:
    """Return the owner references as JSON: the ExchangeRate, and all owners of other kinds.

    blockOwnerDeletion stays unset: some clusters require a right on the finalizers of ExchangeRates to set it.
    https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#ownerreferencespermissionenforcement
    """
    if not rate.head.uid:
        return b""
    owned = decode_list(actual.header.owner_references if actual else b"", dict[str, Any])
    others = [each for each in owned if (each.get("apiVersion"), each.get("kind")) != _EXCHANGE_RATE]
    owner = {
        "apiVersion": EXCHANGE_RATES.api_version,
        "kind": EXCHANGE_RATES.kind,
        "name": rate.head.key.name,
        "uid": rate.head.uid,
        "controller": not any(each.get("controller") for each in others),  # the API server accepts at most one
    }
    return msgspec.json.encode([*others, owner])


def conflict_reason(rate: ExchangeRate, actual: ReducedObject) -> str:
    """Return why the ConfigMap is not written: it belongs to someone else; empty if it may be written."""
    if not stamps.is_managed(actual.header.labels, NAME, rate.head.key.namespace):
        return "exists and is not managed by kube-chores: left untouched"
    if rate.head.uid:
        return ""
    others = [owner.name for owner in actual.header.owners if (owner.api_version, owner.kind) == _EXCHANGE_RATE]
    if others and rate.head.key.name not in others:
        return f"belongs to exchangerate/{others[0]}: left untouched"
    return ""


def is_untouched(rate: ExchangeRate, actual: ReducedObject) -> bool:
    """Whether the content of the ConfigMap is what a run wrote."""
    written = actual.header.annotations.get(stamps.FINGERPRINT)
    return actual.content is not None and written == fingerprint(actual.content, rate.subject)


_LONGEST_SHOWN = 60
CONFLICT = "Conflict"  # the reason of a condition: the next run reads such a ConfigMap by name


class Evaluation(NamedTuple):
    """The result for one ExchangeRate. Its ConfigMap contains `quote` once `findings` are fixed.

    `dependency` is what a run must read first; then there are no findings.
    """

    findings: tuple[Finding, ...] = ()
    dependency: Dependency | ProviderNeed | None = None
    quote: Quote | None = None
    jump: Jump | None = None


def evaluate(rate: ExchangeRate, observed: Observed, settings: Settings, tables: Tables, today: date) -> Evaluation:
    """Evaluate an ExchangeRate whose ConfigMap no other ExchangeRate names."""
    configmap = rate.configmap
    actual = _latest(rate, observed, settings)
    if isinstance(actual, Dependency):
        return Evaluation(dependency=actual)
    if isinstance(actual, ApiError):
        return Evaluation((unreadable(configmap, actual, subjects=(rate.subject,)),))
    if actual and (why := conflict_reason(rate, actual)):
        return Evaluation((Finding("conflict", Severity.WARNING, configmap, why, subjects=(rate.subject,)),))
    if actual and actual.header.terminating:
        return Evaluation((terminating(configmap, rate.subject, Severity.WARNING),))
    if actual and actual.content is None:
        return Evaluation(dependency=Dependency(configmap))
    return _evaluate_quote(rate, actual, settings, tables, today)


def _evaluate_quote(
    rate: ExchangeRate, actual: ReducedObject | None, settings: Settings, tables: Tables, today: date
) -> Evaluation:
    """Choose the quote, and compare the ConfigMap with it; with the last one if there is no new one."""
    # From the status: users who edit the ConfigMap cannot write it.
    status = rate.head.status_as(RateStatus)
    last = _still_valid(rate, status.quote, today)
    limit, rate_before = rate.spec.max_change or settings.max_change, status.rate_before(str(today)) if last else ""
    last_or_forged = last or _last_quote_without_status(rate, actual, today)
    chosen = choose(rate.spec, last_or_forged, tables, limit, rate_before)
    if isinstance(chosen, ProviderNeed):
        return Evaluation(dependency=chosen)
    quote: Quote | None
    if isinstance(chosen, Choice):
        quote, skipped, about_rate = chosen.quote, chosen.skipped, _providers_differ(rate, chosen)
    else:
        quote, skipped, about_rate = last, (), _no_rate(rate, last, actual, chosen)
    compared = _compare(rate, quote, skipped, actual, settings) if quote else None
    findings = tuple(filter(None, (about_rate, compared)))
    return Evaluation(findings, quote=quote, jump=chosen if isinstance(chosen, Jump) else None)


def _latest(rate: ExchangeRate, observed: Observed, settings: Settings) -> ReducedObject | ApiError | Dependency | None:
    """Return the ConfigMap as it was read last, or the need to read it."""
    configmap = rate.configmap
    if configmap in observed.single_reads:
        return observed.single_reads[configmap]
    if observed.configmaps is not None and configmap in observed.configmaps:
        return observed.configmaps[configmap]
    had_conflict = any(each.reason == CONFLICT for each in rate.head.status_as(RateStatus).conditions)
    is_dry_run = settings.run.dry_run is not DryRun.NONE
    return Dependency(configmap) if observed.configmaps is None or is_dry_run or had_conflict else None


def _last_quote_without_status(rate: ExchangeRate, actual: ReducedObject | None, today: date) -> Quote | None:
    """Return the quote of the ConfigMap for a rate of the command line or of a file, which has no status.

    They may be forged, so their source is removed. Without a source they can block a jump, but are never kept.
    """
    if rate.head.uid or actual is None or not isinstance(actual.content, Content) or not is_untouched(rate, actual):
        return None
    try:
        found = msgspec.convert(dict(actual.content.data), Quote)
    except msgspec.ValidationError:
        return None
    return _still_valid(rate, structs.replace(found, source="") if found.is_complete() else None, today)


def _still_valid(rate: ExchangeRate, quote: Quote | None, today: date) -> Quote | None:
    """Return the quote if currency and base match and the date is not in the future, where nothing replaces it."""
    if quote and quote.is_for(rate.spec.base, rate.spec.currency) and quote.date <= str(today):
        return quote
    return None


def _compare(
    rate: ExchangeRate, quote: Quote, skipped: Sequence[str], actual: ReducedObject | None, settings: Settings
) -> Finding | None:
    desired = manifest(rate, quote, None)
    differing = tuple(content_diff(actual.content if actual else None, desired.content, secret=False))
    why = f" ({'; '.join(skipped)})" if skipped else ""
    if actual is None:
        code, reason, change = "missing", f"{_rate_text(quote)}{why}", Change(Action.CREATE, desired)
    else:
        relabelled = metadata_diff(desired.labels, desired.annotations, actual.header)
        disowned = bool(rate.head.uid) and rate.head.uid not in [each.uid for each in actual.header.owners]
        if not (differing or relabelled or disowned):
            return None
        change = repair(manifest(rate, quote, actual), actual, recreated=desired)
        if differing and is_untouched(rate, actual):
            code, reason = "outdated", f"{_rate_text(quote)}{why}; was {_previous_text(actual.content)}"
        else:
            code, reason = "drifted", "its owner reference is missing"
            if differing or relabelled:
                reason = fields_changed(differing or relabelled, actual.header.ownership.others)
            differing += tuple(shown_metadata(relabelled))
    shown = differing if settings.run.diff else ()
    return Finding(code, Severity.WARNING, rate.configmap, reason, change, shown, (rate.subject,))


def _providers_differ(rate: ExchangeRate, chosen: Choice) -> Finding | None:
    """Return the finding for providers whose rates differ by more than the limit of a change."""
    if not chosen.differing:
        return None
    quote = chosen.quote
    used = "used" if quote in chosen.differing else "kept"
    rates = ", ".join(map(provider_rate, chosen.differing))
    reason = f"{rates}: {quote.rate} of {quote.date} from {quote.source} is {used}"
    return Finding("providers-differ", Severity.WARNING, rate.head.key, reason, subjects=(rate.subject,))


def _rate_text(quote: Quote) -> str:
    return f"1 {quote.base} = {quote.rate} {quote.currency} of {quote.date} from {quote.source}"


def unchanged(rate: ExchangeRate, quote: Quote) -> Finding:
    """Return the finding for a ConfigMap that is up to date, which only -v reports."""
    return Finding("unchanged", Severity.INFO, rate.configmap, _rate_text(quote), subjects=(rate.subject,))


def _no_rate(rate: ExchangeRate, last: Quote | None, actual: ReducedObject | None, why: Jump | NoQuote) -> Finding:
    if isinstance(why, Jump):
        how = f"set spec.maxChange to {why.percent}" if rate.head.uid else f"use --max-change {why.percent}"
        reason = f"{why.reason}: the last rate stays; {how} to accept the new rate"
        code, exit_code = "jump", ExitCode.BRAKE
    else:
        without = "the ConfigMap is left untouched" if actual else "there is no rate yet"
        reason = f"{f'the rate of {last.date} stays' if last else without}: {why.first_reason or why.reason}"
        code, exit_code = "unavailable", ExitCode.REFUSED if why.permanent else ExitCode.FAILED
    return Finding(code, Severity.CRITICAL, rate.head.key, reason, subjects=(rate.subject,), exit_code=exit_code)


def _previous_text(content: AnyContent | None) -> str:
    data = content.data if isinstance(content, Content) else {}
    rate, day, source = (data.get(key, "?")[:_LONGEST_SHOWN] for key in ("rate", "date", "source"))
    return f"{rate} of {day} from {source}"


def collision(rates: Sequence[ExchangeRate]) -> Finding:
    """Return the finding for ExchangeRates that name the same ConfigMap."""
    subjects = tuple(sorted(rate.subject for rate in rates))
    names = " and ".join(sorted(rate.head.key.name for rate in rates))
    reason = f"exchangerates {names} name this ConfigMap, so it is not written; set spec.configMapName of one of them"
    configmap = rates[0].configmap
    return Finding("collision", Severity.CRITICAL, configmap, reason, subjects=subjects, exit_code=ExitCode.REFUSED)


def orphans(observed: Observed, desired: Container[ObjectKey], moved: Mapping[str, ExchangeRate]) -> Iterator[Finding]:
    """Yield the findings for managed ConfigMaps that no ExchangeRate names.

    A run deletes one if the ConfigMap that its ExchangeRate names now exists: `moved` are these ExchangeRates, by uid.
    The garbage collector deletes all others, or a user kept them on purpose when the ExchangeRate was deleted.
    """
    for key, each in sorted((observed.configmaps or {}).items()):
        if key in desired or (isinstance(each, ReducedObject) and each.header.terminating):
            continue
        if isinstance(each, ApiError):
            yield unreadable(key, each)
        elif owner := next((moved[one.uid] for one in each.header.owners if one.uid in moved), None):
            reason = f"exchangerate/{owner.head.key.name} now uses configmap/{owner.configmap.name}"
            change = Change(Action.DELETE, Deletion(each.uid, each.resource_version))
            yield Finding("orphan", Severity.WARNING, key, reason, change, subjects=(owner.subject,))
        else:
            yield Finding("retained", Severity.INFO, key, "no ExchangeRate requires it; left untouched")
