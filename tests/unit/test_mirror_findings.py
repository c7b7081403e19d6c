"""Findings of mirror-audit that depend on values only: duplicates, credentials, endpoints and quotes of Events."""

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from jobs.core.mirror_audit.actual import (
    Endpoints,
    Event,
    Quoted,
    Quotes,
    Slice,
    by_service,
    keep,
    most_informative,
    quoted,
    ready,
)
from jobs.core.mirror_audit.desired import Mirror
from jobs.core.mirror_audit.observe import is_own
from jobs.core.mirror_audit.observed import Observed, Settings
from jobs.core.mirror_audit.plan import plan
from jobs.core.mirror_audit.repair import Context
from jobs.kit.values.errors import ApiError
from jobs.kit.values.model import Dependency
from jobs.kit.values.reads import ReadResult
from tests.canary import canary
from tests.unit.test_mirror import PINNED, mirror
from tests.worlds import encoded

HERE = "mirrors"
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def codes(*mirrors: Mirror, secret: ReadResult | None = None) -> list[str]:
    """Return the codes of the findings about mirrors without resources, except that these are missing."""
    observed = Observed(tuple(each.registry_mirror for each in mirrors))
    if secret:
        observed = observed.with_documents({Dependency(mirrors[0].secret): secret}, {})
    found = plan(observed, Settings(HERE, "kube-chores:1"), NOW).findings
    return [each.code for each in found if each.code != "missing"]


# duplicates and credentials


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("r9.example.com", "r9.example.com:443"),
        ("https://r9.example.com:443", "r9.example.com"),
        ("docker.io", "registry-1.docker.io:443"),
        ("docker.io", "index.docker.io:443"),
    ],
)
def test_a_host_with_port_443_is_the_same_registry(one: str, other: str) -> None:
    assert codes(mirror(one, "first"), mirror(other, "second")) == ["duplicate-upstream"]


def login(images: str | None = None, upstream: str | None = "quay.io", **data: str) -> ReadResult:
    """Return the Secret of a login, with these annotations and values."""
    annotations = {"kubechores.dev/images": images, "kubechores.dev/upstream": upstream}
    metadata = {"annotations": {name: each for name, each in annotations.items() if each is not None}}
    data = data or {"username": encoded(canary()), "password": encoded(canary())}
    return ReadResult(json.dumps({"metadata": metadata, "data": data}).encode())


@pytest.mark.parametrize(
    ("secret", "expected"),
    [
        (login(), []),
        (login(upstream="quay.io:443"), []),
        (ReadResult(error=ApiError(404, "not found")), ["credentials-missing"]),
        (login(username=encoded(canary())), ["credentials-missing"]),
        (login(username="", password=""), ["credentials-missing"]),
        (login(upstream=None), ["credentials-upstream-not-allowed"]),
        (login(upstream="docker.io"), ["credentials-upstream-not-allowed"]),
        (ReadResult(error=ApiError(403, "denied")), ["unreadable"]),
    ],
)
@pytest.mark.parametrize("upstream", ["quay.io", "quay.io:443"])
def test_a_login_is_valid_for_its_upstream_with_and_without_port_443(
    upstream: str, secret: ReadResult, expected: list[str]
) -> None:
    of = mirror(upstream, credentialsSecret="login", allowUnauthenticatedReaders=True)
    assert codes(of, secret=secret) == expected


@pytest.mark.parametrize(
    ("secret", "is_blocked"),
    [(login(), False), *((ReadResult(error=ApiError(status, "failed")), True) for status in (403, 404, 500))],
)
def test_no_registry_starts_before_its_login_was_read(secret: ReadResult, is_blocked: bool) -> None:
    of = mirror(credentialsSecret="login", allowUnauthenticatedReaders=True)
    settings = Settings(HERE, "kube-chores:1", repair=True)
    observed = Observed((of.registry_mirror,)).with_documents({Dependency(of.secret): secret}, {})

    blocker = Context(of, list(plan(observed, settings, NOW).findings), observed, settings).credentials_blocker()

    assert blocker == (f"a repair continues when {of.secret} is usable" if is_blocked else "")


MINE = "registry.example.com/mine:3"


@pytest.mark.parametrize(
    ("images", "image", "is_allowed"),
    [
        (None, "", True),
        (None, MINE, False),
        ("", MINE, False),
        (MINE, MINE, True),
        (f"registry.example.com/other:3, {MINE}", MINE, True),
        (f"registry.example.com/other:3\n{MINE}\n", MINE, True),
        (f"{MINE}1", MINE, False),
        (f"{MINE}@sha256:{64 * 'a'}", MINE, False),
        (MINE, f"{MINE}@sha256:{64 * 'a'}", False),
        (MINE, "registry:3", False),
        (f"{MINE},registry:3", "registry:3", True),
        ("*", MINE, False),
        (None, PINNED, False),
    ],
)
def test_only_an_image_that_the_secret_names_gets_the_credentials(
    images: str | None, image: str, is_allowed: bool
) -> None:
    of = mirror(credentialsSecret="login", allowUnauthenticatedReaders=True, image=image)
    assert codes(of, secret=login(images)) == ([] if is_allowed else ["credentials-image-not-allowed"])


# endpoints


def counted(**pods: list[dict[str, Any]]) -> Endpoints:
    """Return the endpoints of the Service of mirror m, which has one replica; `pods` are their targets by family."""
    slices = []
    for family, targets in pods.items():
        endpoints = [{"addresses": [f"10.1.0.{number}"], "targetRef": each} for number, each in enumerate(targets)]
        metadata = {"labels": {"kubernetes.io/service-name": mirror().name}}
        document = {"metadata": metadata, "addressType": family, "endpoints": endpoints}
        slices.append(ready(HERE, msgspec.convert(document, Slice)))
    return by_service(slices, lambda service, pod: is_own({}, HERE, service, pod))[mirror().name]


OWN = {"kind": "Pod", "namespace": HERE, "name": "registry-mirror-m-0"}


@pytest.mark.parametrize(
    "reference",
    [
        {"name": "other-0"},
        {"name": "registry-mirror-m-1"},
        {"name": "registry-mirror-m-00"},
        {"name": "registry-mirror-m-x"},
        {"namespace": "other"},
        {"namespace": None},
        {"kind": "Node"},
        {},  # the pod of the registry at another address
    ],
)
def test_only_pods_of_the_stateful_set_count_as_the_registry(reference: dict[str, str | None]) -> None:
    found = counted(IPv4=[OWN, {**OWN, **reference}])
    assert (found.own, found.foreign) == (1, 1)


def test_both_addresses_of_a_pod_are_one_endpoint() -> None:
    assert counted(IPv4=[OWN], IPv6=[OWN]) == Endpoints(own=1)


# Events


def event(reason: str, message: str, minutes: float = 0, pod: str = "registry-mirror-m-0", **fields: Any) -> Quoted:
    """Return the quote of an Event about a pod, by default that of the registry."""
    document = {
        "involvedObject": {"kind": "Pod", "name": pod, "uid": "1-2-3"},
        "metadata": {},
        "reason": reason,
        "message": message,
        "lastTimestamp": f"{NOW + timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%SZ}",
    }
    return quoted(msgspec.convert({**document, **fields}, Event), HERE)


def text(*events: Quoted) -> str:
    """Return the text that explains the state of the workload of these Events."""
    kept: Quotes = {}
    for each in events:
        keep(kept, each.quote, each.event)
    (found,) = most_informative(kept).values()
    return found.text


@pytest.mark.parametrize(
    "message", ["in pod p_ns({uid})", "in pod {pod} of it", "read tcp 10.0.0.1:{port}->10.0.0.2:443: reset"]
)
def test_a_quote_omits_the_parts_that_change(message: str) -> None:
    quotes = set()
    for suffix, port in (("x7k2p", 40001), ("b2b2b", 5002)):
        pod, uid = f"registry-mirror-m-node-{suffix}", f"6cd5a1ee-6d4f-4b6c-a2f9-{port:012x}"
        quotes.add(event("Failed", message.format(uid=uid, pod=pod, port=port), pod=pod).quote)

    assert len(quotes) == 1


BACK_OFF = "Back-off restarting failed container"
LONG = "MountVolume.SetUp failed: exit status 32"
REFUSED = "Startup probe failed: Get http://10.0.0.1:5000/v2/: dial tcp 10.0.0.1:5000: connect: connection refused"
FULL = "Readiness probe failed: HTTP probe failed with statuscode: 503"
BYPASSED = "Readiness probe failed: error: mirror-bypassed: config_path is not set"


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # the newest, not the longest
        ([event("FailedMount", LONG, 0), event("Unhealthy", "short", 5)], "Unhealthy: short"),
        # of two texts that alternate, always the same
        ([event("BackOff", BACK_OFF, 0), event("Unhealthy", FULL, 5)], f"Unhealthy: {FULL}"),
        ([event("BackOff", BACK_OFF, 5), event("Unhealthy", FULL, 0)], f"Unhealthy: {FULL}"),
        ([event("BackOff", BACK_OFF, 15.1), event("Unhealthy", FULL, 0)], f"BackOff: {BACK_OFF}"),
        # of failed probes the newest, except that a bypass is more important
        ([event("Unhealthy", FULL, 5), event("Unhealthy", REFUSED, 0)], f"Unhealthy: {FULL}"),
        ([event("Unhealthy", BYPASSED, 0), event("Unhealthy", REFUSED, 5)], f"Unhealthy: {BYPASSED}"),
        ([event("Unhealthy", BYPASSED, 0), event("Unhealthy", REFUSED, 99)], f"Unhealthy: {REFUSED}"),
    ],
)
def test_one_text_of_several_events_is_quoted(events: list[Quoted], expected: str) -> None:
    assert text(*events) == text(*reversed(events)) == expected


def test_an_event_of_an_earlier_object_of_the_same_name_is_not_quoted() -> None:
    metadata = {"uid": "7", "creationTimestamp": f"{NOW:%Y-%m-%dT%H:%M:%SZ}"}
    now = {"metadata": metadata, "spec": {"replicas": 1}, "status": {"replicas": 0}}
    involved = {"kind": "StatefulSet", "name": "registry-mirror-m"}

    assert event("Failed", "of its pod", 0).is_of(now)
    assert not event("Failed", "of a pod before", -1).is_of(now)
    assert event("Failed", "of it", -1, involvedObject={**involved, "uid": "7"}).is_of(now)
    assert not event("Failed", "of the one before", 1, involvedObject={**involved, "uid": "6"}).is_of(now)


def test_few_of_many_events_are_kept() -> None:
    kept: Quotes = {}
    for number in range(1100):
        found = event(f"Reason{number}", "a")
        keep(kept, found.quote, found.event)

    assert len(kept) == 1024
