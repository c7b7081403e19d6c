"""What is to be said of one ExchangeRate: nothing, findings with their fixes, or what must be read first. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from jobs.kit import stamps
from jobs.kit.decoding import decode_list
from jobs.kit.diff import changes, metadata_changes
from jobs.kit.errors import ApiError
from jobs.kit.manifests import Deletion, Manifest, repair
from jobs.kit.model import Action, Change, ExitCode, Finding, Fix, Need, ObjectKey, Severity
from jobs.kit.objects import CONFIGMAPS, Content, Digested, OwnerReference, ReducedObject
from jobs.rates.choice import Answers, Ask, Choice, Jump, Refusal, choose, said
from jobs.rates.exchange_rates import EXCHANGE_RATES, ExchangeRate, RateStatus
from jobs.rates.figures import Figures
from jobs.rates.observed import NAME, Observed, Settings

_LONGEST_SHOWN = 60
_MOST_FIELDS_NAMED = 4
CONFLICT = "Conflict"  # the reason of a condition, by which the next run knows where to look first


class Verdict(NamedTuple):
    """What is to be said of an ExchangeRate. `figures` are what its ConfigMap holds once `findings` are fixed."""

    findings: tuple[Finding, ...] = ()
    need: Need | Ask | None = None
    figures: Figures | None = None
    jump: Jump | None = None

    @property
    def is_missing(self) -> bool:
        """Whether the ConfigMap is still to be made."""
        return any(finding.code == "missing" for finding in self.findings)


def evaluate(rate: ExchangeRate, observed: Observed, answers: Answers, settings: Settings, today: date) -> Verdict:
    """Return what is to be said of an ExchangeRate that shares its place with no other."""
    place = rate.place
    actual = _latest(rate, observed, settings)
    if isinstance(actual, Need):
        return Verdict(need=actual)
    if isinstance(actual, ApiError):
        found = _about(rate, "unreadable", place, actual.message, actual.exit_code)
        return Verdict((structs.replace(found, severity=actual.severity),))
    if actual and (why := _why_not_ours(actual, rate)):
        return Verdict((Finding("conflict", Severity.WARNING, place, why, subjects=(rate.subject,)),))
    if actual and actual.header.terminating:
        return Verdict((Finding("skipped", Severity.WARNING, place, "is being deleted", subjects=(rate.subject,)),))
    if actual and actual.content is None:
        return Verdict(need=Need(place))
    last = _last(rate, today)
    limit = rate.spec.max_change or settings.max_change
    chosen = choose(rate.spec, last or _last_without_status(rate, actual, today), answers, limit)
    if isinstance(chosen, Ask):
        return Verdict(need=chosen)
    if isinstance(chosen, Choice):
        finding = _compare(rate, chosen.figures, chosen.instead_of, actual, settings)
        both = (finding, _contradicted(rate, chosen))
        return Verdict(tuple(each for each in both if each), figures=chosen.figures)
    restored = _compare(rate, last, (), actual, settings) if last else None
    refused = _refused(rate, last, actual, chosen)
    jump = chosen if isinstance(chosen, Jump) else None
    return Verdict((refused, restored) if restored else (refused,), figures=last, jump=jump)


def _latest(rate: ExchangeRate, observed: Observed, settings: Settings) -> ReducedObject | ApiError | Need | None:
    """Return the ConfigMap as it was read last, or that it must be looked at."""
    place = rate.place
    if place in observed.looks:
        look = observed.looks[place]
        return None if isinstance(look, ApiError) and look.status == 404 else look
    if observed.configmaps is not None and place in observed.configmaps:
        return observed.configmaps[place]
    in_the_way = any(each.reason == CONFLICT for each in rate.head.status_as(RateStatus).conditions)
    return Need(place) if observed.configmaps is None or settings.dry_run or in_the_way else None


def _is_exchange_rate(owner: OwnerReference) -> bool:
    return (owner.api_version, owner.kind) == (EXCHANGE_RATES.api_version, EXCHANGE_RATES.kind)


def _why_not_ours(actual: ReducedObject, rate: ExchangeRate) -> str:
    if not stamps.is_managed(actual.header.labels, NAME, rate.place.namespace):
        return "exists and is not ours: left untouched"
    others = [owner.name for owner in actual.header.owners if _is_exchange_rate(owner)]
    if not rate.head.uid and others and rate.head.key.name not in others:
        return f"belongs to exchangerate/{others[0]}: left untouched"
    return ""


def _last(rate: ExchangeRate, today: date) -> Figures | None:
    """Return the last figures from the status: whoever edits the ConfigMap cannot write it."""
    return _still_valid(rate, rate.head.status_as(RateStatus).figures, today)


def _last_without_status(rate: ExchangeRate, actual: ReducedObject | None, today: date) -> Figures | None:
    """Return the figures of the ConfigMap for a rate of the command line or of a file, which has no status.

    They may be forged. Without a source no provider's figures are older, so that they can block a jump and are never
    chosen themselves.
    """
    if rate.head.uid or actual is None or not isinstance(actual.content, Content) or not _is_untouched(rate, actual):
        return None
    try:
        found = msgspec.convert(dict(actual.content.data), Figures)
    except msgspec.ValidationError:
        return None
    return _still_valid(rate, structs.replace(found, source="") if found.are_whole() else None, today)


def _still_valid(rate: ExchangeRate, figures: Figures | None, today: date) -> Figures | None:
    """Return the figures if they are of the requested currency, and not of a later day: nothing would replace those."""
    if figures and figures.are_of(rate.spec.base, rate.spec.currency) and figures.date <= str(today):
        return figures
    return None


def _is_untouched(rate: ExchangeRate, actual: ReducedObject) -> bool:
    written = actual.header.annotations.get(stamps.FINGERPRINT)
    return actual.content is not None and written == stamps.fingerprint(actual.content, rate.subject)


def _compare(
    rate: ExchangeRate, figures: Figures, instead_of: Sequence[str], actual: ReducedObject | None, settings: Settings
) -> Finding | None:
    """Compare the ConfigMap with what it should be."""
    desired = _manifest(rate, figures, actual)
    differing = changes(actual.content if actual else None, desired.content, secret=False)
    if actual is None:
        fix = Fix(Action.CREATE, desired)
        return _finding(rate, "missing", _told(figures, instead_of), fix, differing, settings)
    relabelled = metadata_changes(desired.labels, desired.annotations, actual.header)
    disowned = bool(rate.head.uid) and rate.head.uid not in [each.uid for each in actual.header.owners]
    if not (differing or relabelled or disowned):
        return None
    fix = repair(desired, actual, recreated=_manifest(rate, figures, None))
    if differing and _is_untouched(rate, actual):
        reason = f"{_told(figures, instead_of)}; was {_was(actual.content)}"
        return _finding(rate, "outdated", reason, fix, differing, settings)
    others = [change for change in relabelled if "kubechores.dev/" not in change.field]
    reason = _drifted(differing or relabelled, actual)
    return _finding(rate, "drifted", reason, fix, (*differing, *others), settings)


def _contradicted(rate: ExchangeRate, chosen: Choice) -> Finding | None:
    """Return what is said of providers that disagree by more than a rate may change."""
    if not chosen.contradiction:
        return None
    held = chosen.figures
    fate = "used" if held in chosen.contradiction else "kept"
    reason = f"{', '.join(map(said, chosen.contradiction))}: {fate} is {held.rate} of {held.date} from {held.source}"
    return Finding("providers-differ", Severity.WARNING, rate.head.key, reason, subjects=(rate.subject,))


def _finding(
    rate: ExchangeRate, code: str, reason: str, fix: Fix, differing: Sequence[Change], settings: Settings
) -> Finding:
    shown = tuple(differing) if settings.diff else ()
    return Finding(code, Severity.WARNING, rate.place, reason, fix, shown, (rate.subject,))


def _told(figures: Figures, instead_of: Sequence[str] = ()) -> str:
    why = f" ({'; '.join(instead_of)})" if instead_of else ""
    return f"1 {figures.base} = {figures.rate} {figures.currency} of {figures.date} from {figures.source}{why}"


def unchanged(rate: ExchangeRate, figures: Figures) -> Finding:
    """Return the finding that all is well, for those who ask to see it."""
    return Finding("unchanged", Severity.INFO, rate.place, _told(figures), subjects=(rate.subject,))


def _manifest(rate: ExchangeRate, figures: Figures, actual: ReducedObject | None) -> Manifest:
    content = Content(data=figures.data())
    at = rate.head.key
    mark = stamps.fingerprint(content, rate.subject)
    stamp = stamps.stamp(NAME, at.namespace, at.name, figures.source, mark)
    return Manifest(
        CONFIGMAPS,
        rate.place,
        stamp.labels,
        stamp.annotations,
        content,
        owner_references=_owner_references(rate, actual),
    )


def _owner_references(rate: ExchangeRate, actual: ReducedObject | None) -> bytes:
    """Return the ConfigMap's owners as JSON: the ExchangeRate, and who else owns it that is none.

    blockOwnerDeletion stays unset: setting it takes a right on the finalizers of ExchangeRates on some clusters.
    https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#ownerreferencespermissionenforcement
    """
    if not rate.head.uid:
        return b""
    exchange_rates = (EXCHANGE_RATES.api_version, EXCHANGE_RATES.kind)
    owned = decode_list(actual.header.owner_references if actual else b"", dict[str, Any])
    others = [each for each in owned if (each.get("apiVersion"), each.get("kind")) != exchange_rates]
    ours = {
        "apiVersion": EXCHANGE_RATES.api_version,
        "kind": EXCHANGE_RATES.kind,
        "name": rate.head.key.name,
        "uid": rate.head.uid,
        "controller": not any(each.get("controller") for each in others),  # the API server takes one at most
    }
    return msgspec.json.encode([*others, ours])


def _refused(rate: ExchangeRate, last: Figures | None, actual: ReducedObject | None, why: Jump | Refusal) -> Finding:
    if isinstance(why, Jump):
        how = f"set spec.maxChange to {why.percent}" if rate.head.uid else f"use --max-change {why.percent}"
        reason = f"{why.reason}: the last rate stays; {how} to accept it"
        return _about(rate, "jump", rate.head.key, reason, ExitCode.BRAKE)
    without = "the ConfigMap stays as it is" if actual else "there is no rate yet"
    fate = f"the rate of {last.date} stays" if last else without
    exit_code = ExitCode.REFUSED if why.lasting else ExitCode.FAILED
    return _about(rate, "unavailable", rate.head.key, f"{fate}: {why.first or why.reason}", exit_code)


def _about(rate: ExchangeRate, code: str, key: ObjectKey, reason: str, exit_code: ExitCode) -> Finding:
    return Finding(code, Severity.ERROR, key, reason, subjects=(rate.subject,), exit_code=exit_code)


def _was(content: Content | Digested | None) -> str:
    data = content.data if isinstance(content, Content) else {}
    rate, day, source = (data.get(key, "?")[:_LONGEST_SHOWN] for key in ("rate", "date", "source"))
    return f"{rate} of {day} from {source}"


def _drifted(found: Sequence[Change], actual: ReducedObject) -> str:
    if not found:
        return "its owner reference is gone"
    by = ", ".join(actual.header.ownership.others)
    more = f" and {len(found) - _MOST_FIELDS_NAMED} more" if len(found) > _MOST_FIELDS_NAMED else ""
    named = ", ".join(change.field for change in found[:_MOST_FIELDS_NAMED])
    return f"{named}{more} changed" + (f" by {by}" if by else "")


def collision(rates: Sequence[ExchangeRate]) -> list[Finding]:
    """Return what is said of ExchangeRates that want the same ConfigMap."""
    subjects = tuple(sorted(rate.subject for rate in rates))
    names = " and ".join(sorted(rate.head.key.name for rate in rates))
    reason = f"exchangerates {names} both want this ConfigMap: none is written; set spec.configMapName of one"
    place = rates[0].place
    return [Finding("collision", Severity.ERROR, place, reason, subjects=subjects, exit_code=ExitCode.REFUSED)]


def leftovers(
    observed: Observed, desired: Mapping[ObjectKey, object], settled: Mapping[str, ExchangeRate]
) -> list[Finding]:
    """Return what to do with ConfigMaps of ours that nobody wants.

    One is deleted when its ExchangeRate has the ConfigMap that it names now: these are `settled`, by uid. All
    others are the garbage collector's, or were kept on purpose when their ExchangeRate was deleted.
    """
    found = []
    for key, each in sorted((observed.configmaps or {}).items()):
        if key in desired:
            continue
        if isinstance(each, ApiError):
            found.append(Finding("unreadable", each.severity, key, each.message, exit_code=each.exit_code))
            continue
        if each.header.terminating:
            continue
        owner = next((settled[one.uid] for one in each.header.owners if one.uid in settled), None)
        if owner:
            reason = f"exchangerate/{owner.head.key.name} has its rate in configmap/{owner.place.name} now"
            fix = Fix(Action.DELETE, Deletion(each.uid, each.resource_version))
            found.append(Finding("orphan", Severity.WARNING, key, reason, fix, subjects=(owner.subject,)))
        else:
            found.append(Finding("retained", Severity.INFO, key, "no ExchangeRate wants it; left as it is"))
    return found
