"""Compare each pod with its FarmPod. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from jobs.core.farm_pods.brake import block_creates
from jobs.core.farm_pods.evaluate import collision, evaluate, unchanged, without_pods
from jobs.core.farm_pods.farm_pod import Pod
from jobs.core.farm_pods.observed import OPT_IN, Observed, Settings
from jobs.kit.values.model import Need, ObjectKey, Plan, Summary, WriteOrder


def plan(observed: Observed, settings: Settings, _now: datetime) -> Plan:
    """Compare each pod with its FarmPod: the same input gives the same findings in the same order."""
    places = _places(observed)
    findings = [*observed.failures, *observed.invalid, *without_pods(observed, places.keys())]
    needs: list[Need] = []
    unchanged_count = 0
    for pods in places.values():
        result = collision(pods) if len(pods) > 1 else evaluate(pods[0], observed, settings)
        if isinstance(result, Need):
            needs.append(result)
        elif result:
            findings.append(result)
        else:
            unchanged_count += 1
            findings += [unchanged(pods[0])] if settings.verbose else []
    managed = sum(each.managed for each in observed.farm_pods.values())
    sizes = Counter(place.namespace for place in places)
    braked, brakes = block_creates(findings, managed, sizes, settings.max_objects)
    return Plan(
        braked,
        unchanged_count,
        needs,
        Summary(
            {"pods": sum(1 for _ in _not_terminating(observed)), "namespaces": len(observed.namespaces)},
            _note(observed, settings),
        ),
        brakes=brakes,
        # Writes are rate limited, and a run may reach its deadline: so namespaces with many pods come last.
        order=WriteOrder(namespaces=sizes),
    )


def _not_terminating(observed: Observed) -> Iterator[Pod]:
    return (pod for pod in observed.pods if not pod.terminating)


def _places(observed: Observed) -> Mapping[ObjectKey, Sequence[Pod]]:
    places: dict[ObjectKey, tuple[Pod, ...]] = {}
    for pod in _not_terminating(observed):
        place = pod.place
        places[place] = (*places.get(place, ()), pod)
    return places


def _note(observed: Observed, settings: Settings) -> str:
    if settings.namespace:
        return f"no pod in namespace {settings.namespace}"
    return (
        "no pod in the labelled namespaces" if observed.namespaces else f"no active namespace is labelled {OPT_IN}=true"
    )
