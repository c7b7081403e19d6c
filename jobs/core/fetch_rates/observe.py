"""Read the ExchangeRates and their ConfigMaps."""

from __future__ import annotations

from functools import partial

from jobs.core.fetch_rates.exchange_rates import parse_exchange_rate, subject
from jobs.core.fetch_rates.observed import NAME, Observed, Settings
from jobs.kit.api.cluster import Cluster, complete
from jobs.kit.api.custom_resources import from_cluster
from jobs.kit.data.contents import CONFIGMAP
from jobs.kit.data.objects import ObjectReducer, ReducedObject, WholeObject
from jobs.kit.values import stamps
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Finding, ObjectKey, Severity
from jobs.kit.values.reads import invalid, read_failure, unreadable
from jobs.kit.values.resources import CONFIGMAPS, EXCHANGE_RATES, NAMESPACES

MOST_OF_NAMESPACE = 1000  # a run has memory for about 9,000


def observe(cluster: Cluster, settings: Settings) -> Observed:
    """Read the managed ConfigMaps, then the ExchangeRates.

    In this order a ConfigMap that an overlapping run creates for a new `configMapName` is never taken for an orphan.

    Raises:
        ConfigurationError: the CRD is missing.
        ApiError: ExchangeRates cannot be read, which every evaluation needs.
    """
    if settings.rates is not None:
        return Observed(settings.rates)
    try:
        configmaps, denied = _configmaps(cluster, settings.namespace), None
    except ApiError as error:
        configmaps, denied = {}, error
    rates, invalid_rates, left_out = from_cluster(
        cluster, EXCHANGE_RATES, parse_exchange_rate, settings.namespace, MOST_OF_NAMESPACE
    )
    failures = [invalid(each, subject(each.head.key)) for each in invalid_rates]
    failures += [_too_many(namespace, number) for namespace, number in sorted(left_out.items())]
    if denied:
        heads = [*(each.head for each in rates), *(each.head for each in invalid_rates)]
        subjects = tuple(sorted(subject(head.key) for head in heads))
        every_configmap = ObjectKey(CONFIGMAPS.kind, "(all of this job)")
        failures.append(unreadable(every_configmap, denied, read_failure(denied), subjects))
    named = {each.configmap for each in rates}
    # Of a namespace with too many, it is not known whether an ExchangeRate names the others.
    configmaps = {key: each for key, each in configmaps.items() if key.namespace not in left_out or key in named}
    return Observed(rates, invalid_rates, configmaps, tuple(failures), list_failed=denied is not None)


def _too_many(namespace: str, left_out: int) -> Finding:
    reason = (
        f"has {left_out + MOST_OF_NAMESPACE} ExchangeRates, and a run evaluates the first {MOST_OF_NAMESPACE} by name; "
        "delete some, or create them in another namespace"
    )
    return Finding("too-many", Severity.WARNING, ObjectKey(NAMESPACES.kind, namespace), reason)


def _configmaps(cluster: Cluster, namespace: str) -> dict[ObjectKey, ReducedObject | ApiError]:
    reduce, selector = partial(ObjectReducer(stamps.KEYS).reduce, CONFIGMAP), stamps.selector(NAME)
    found, undecoded = complete(
        cluster.objects, CONFIGMAPS, WholeObject, reduce, namespace=namespace, selector=selector
    )
    by_key = {ObjectKey(CONFIGMAPS.kind, each.name, each.namespace): each for each in found}
    return {**by_key, **{each.key: each.error for each in undecoded}}
