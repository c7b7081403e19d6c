"""The ConfigMap of an ExchangeRate: the desired one, and to whom an existing one belongs. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from jobs.core.fetch_rates.exchange_rates import ExchangeRate
from jobs.core.fetch_rates.figures import Figures
from jobs.core.fetch_rates.observed import NAME
from jobs.kit.data.contents import CONFIGMAP, Content
from jobs.kit.data.manifests import ContentManifest
from jobs.kit.data.objects import ReducedObject
from jobs.kit.values import stamps
from jobs.kit.values.decoding import decode_list
from jobs.kit.values.resources import EXCHANGE_RATES

_EXCHANGE_RATE = (EXCHANGE_RATES.api_version, EXCHANGE_RATES.kind)


def manifest(rate: ExchangeRate, figures: Figures, actual: ReducedObject | None) -> ContentManifest:
    """Return the desired ConfigMap with these figures; of the `actual` one, owners of other kinds stay."""
    content = Content(data=figures.data())
    at = rate.head.key
    stamp = stamps.stamp(NAME, at.namespace, at.name, figures.source, content.fingerprint(rate.subject))
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
    if not stamps.is_managed(actual.header.labels, NAME, rate.configmap.namespace):
        return "exists and is not managed by kube-chores: left untouched"
    others = [owner.name for owner in actual.header.owners if (owner.api_version, owner.kind) == _EXCHANGE_RATE]
    if not rate.head.uid and others and rate.head.key.name not in others:
        return f"belongs to exchangerate/{others[0]}: left untouched"
    return ""


def is_untouched(rate: ExchangeRate, actual: ReducedObject) -> bool:
    """Whether the content of the ConfigMap is what a run wrote."""
    written = actual.header.annotations.get(stamps.FINGERPRINT)
    return actual.content is not None and written == actual.content.fingerprint(rate.subject)
