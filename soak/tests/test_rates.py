"""The invariants of rates, with constructed histories, and the rate server."""

import http.client
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from soak.history import Key, Object
from soak.invariants.rates import invariants
from soak.invariants.rates.documents import Document, Provided
from soak.invariants.rates.figures import Figures, Spec, may_replace
from soak.invariants.rates.written import Rates
from soak.observed import Run
from soak.rate_server import PORTS, Folder, Served
from soak.tests.story import START, Story
from tests.apis import GIVE_UP_SECONDS
from tests.control_plane import ROOT
from tests.processes import dying_with_parent
from tests.rates import PATHS, ecb
from tests.worlds import configmap, exchange_rate

SPACE = "rates-1"
USD = Key("ExchangeRate", SPACE, "usd")
PLACE = Key("ConfigMap", SPACE, "usd")
TODAY = "2027-01-15"
MANAGED = {"app.kubernetes.io/managed-by": "kube-chores", "kubechores.dev/job": "fetch-rates"}


@dataclass
class Providers:
    """What the providers sent, and what they send now."""

    documents: dict[str, Document] = field(default_factory=dict)
    served: list[Served] = field(default_factory=list)
    now: dict[str, Document] = field(default_factory=dict)
    since: float = START - 100

    def send(self, seconds: float, provider: str = "ecb", day: str = TODAY, **rates: str) -> None:
        """Send a document at this time after the start, and from then on."""
        name = f"{provider}-{len(self.documents)}"
        document = Document(provider, day, {code: Decimal(rate) for code, rate in rates.items()})
        self.documents[name] = self.now[provider] = document
        self.served.append(Served(START + seconds, provider, name))

    def provided(self) -> Provided:
        return Provided(self.documents, lambda: self.served, lambda: (self.since, self.now))


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """A namespace with an ExchangeRate, 100 s ago."""
    made = Story("fetch-rates", tmp_path)
    made.past.add(-100, Key("Namespace", "", SPACE), {"metadata": {"name": SPACE}})
    made.past.add(-90, USD, rate())
    return made


@pytest.fixture
def providers() -> Providers:
    return Providers()


def rate(last: Mapping[str, str] | None = None, uid: str = "u1", **spec: Any) -> Object:
    made = exchange_rate(SPACE, **spec)
    made["metadata"]["uid"] = uid
    return {**made, "status": dict(last)} if last else made


def data(rate: str, day: str = TODAY, source: str = "ecb", base: str = "EUR", currency: str = "USD") -> dict[str, str]:
    inverse = str(round(1 / Decimal(rate), 12))
    return {"rate": rate, "inverse": inverse, "base": base, "currency": currency, "date": day, "source": source}


def written(content: Mapping[str, str], uid: str = "u1", **metadata: Any) -> Object:
    made = configmap(SPACE, "usd", labels=MANAGED, data=dict(content))
    owner = {"apiVersion": "kubechores.dev/v1", "kind": "ExchangeRate", "name": "usd", "uid": uid}
    made["metadata"] |= {"ownerReferences": [owner], **metadata}
    return made


def write(
    story: Story, content: Mapping[str, str], run: Run | None = None, seconds: float = 3, **metadata: Any
) -> None:
    story.write(run or story.run(0), seconds, PLACE, written(content, **metadata))


def found(story: Story, providers: Providers, *, settled: bool = False) -> list[str]:
    return story.violations((each.check for each in invariants(providers.provided())), settled=settled)


def test_a_rate_of_a_provider(story: Story, providers: Providers) -> None:
    providers.send(1, USD="1.1")
    write(story, data("1.1"))
    assert found(story, providers, settled=True) == []


def test_a_cross_rate(story: Story, providers: Providers) -> None:
    providers.send(1, USD="1.1", JPY="160")
    story.past.add(-80, USD, rate(currency="JPY", base="USD"))
    content = data("145.4545455", base="USD", currency="JPY")
    write(story, {**content, "inverse": "0.006875000000"})
    assert found(story, providers, settled=True) == []


def test_a_rate_that_no_provider_sent(story: Story, providers: Providers) -> None:
    providers.send(1, USD="1.1")
    write(story, data("1.2"))
    (one,) = found(story, providers)
    assert "no provider sent this rate" in one


@pytest.mark.parametrize(
    ("day", "number"), [("2027-01-16", 1), ("2027-01-15", 0), ("2027-01-09", 0), ("2027-01-08", 1)]
)
def test_the_date_of_a_rate(story: Story, providers: Providers, day: str, number: int) -> None:
    providers.send(1, day=day, USD="1.1")
    write(story, data("1.1", day))
    assert len(found(story, providers)) == number


def test_a_rate_that_was_sent_before_the_run(story: Story, providers: Providers) -> None:
    providers.send(-60, USD="1.1")
    write(story, data("1.1"))
    (one,) = found(story, providers)
    assert "no provider sent this rate" in one


def test_the_last_rate_is_written_again(story: Story, providers: Providers) -> None:
    story.past.add(-80, USD, rate(data("1.1", "2026-12-01")))
    write(story, data("1.1", "2026-12-01"))
    assert found(story, providers) == []


def test_the_last_rate_of_another_currency(story: Story, providers: Providers) -> None:
    story.past.add(-80, USD, rate(data("0.9", currency="GBP")))
    write(story, data("0.9", currency="GBP"))
    (one,) = found(story, providers)
    assert "its spec has USD per EUR" in one


def test_an_older_rate(story: Story, providers: Providers) -> None:
    story.past.add(-80, USD, rate(data("1.1")))
    providers.send(1, day="2027-01-14", USD="1.12")
    write(story, data("1.12", "2027-01-14"))
    (one,) = found(story, providers)
    assert "the last rate is of 2027-01-15" in one


@pytest.mark.parametrize(
    ("confirmed", "max_change", "number"), [("1.1", None, 1), ("2.0", None, 0), ("1.98", None, 0), ("1.1", 100, 0)]
)
def test_a_jump(story: Story, providers: Providers, confirmed: str, max_change: int | None, number: int) -> None:
    spec: Object = {"maxChange": max_change} if max_change else {}
    story.past.add(-80, USD, rate(data("1.1", "2027-01-14"), **spec))
    providers.send(1, USD="2.0")
    providers.send(1, "frankfurter", USD=confirmed)
    write(story, data("2.0"))
    problems = found(story, providers)
    assert len(problems) == number
    assert all("no other provider confirms it" in each for each in problems)


def test_a_wrong_provider(story: Story, providers: Providers) -> None:
    story.past.add(-80, USD, rate(provider="frankfurter"))
    providers.send(1, USD="1.1")
    write(story, data("1.1"))
    (one,) = found(story, providers)
    assert "ecb is not a provider of its spec" in one


def test_a_provider_that_is_only_used_by_name(story: Story, providers: Providers) -> None:
    providers.send(1, "open-er-api", USD="1.1")
    write(story, data("1.1", source="open-er-api"))
    (one,) = found(story, providers)
    assert "open-er-api is not a provider of its spec" in one


def test_a_later_provider_does_not_replace_a_rate_of_the_same_day() -> None:
    last = Figures.of(data("1.1"))
    spec = Spec.of(rate())
    new = Figures.of(data("1.12", source="frankfurter"))
    assert last
    assert new
    assert "ecb comes before frankfurter" in may_replace(new, last, spec, [])
    assert may_replace(last, new, spec, []) == ""


def test_a_wrong_inverse(story: Story, providers: Providers) -> None:
    providers.send(1, USD="1.1")
    write(story, {**data("1.1"), "inverse": "0.9"})
    (one,) = found(story, providers)
    assert "the inverse 0.9" in one


def test_an_edit_during_the_run(story: Story, providers: Providers) -> None:
    run = story.run(0)
    story.past.add(2, USD, rate(provider="frankfurter"))
    providers.send(1, USD="1.1")
    write(story, data("1.1"), run)
    assert found(story, providers) == []


def test_a_configmap_that_is_not_managed(story: Story, providers: Providers) -> None:
    story.past.add(-80, PLACE, configmap(SPACE, "usd"))
    providers.send(1, USD="1.1")
    write(story, data("1.1"))
    (one,) = found(story, providers)
    assert "it was not managed by kube-chores" in one


def test_a_configmap_without_an_exchange_rate(story: Story, providers: Providers) -> None:
    providers.send(1, USD="1.1")
    write(story, data("1.1"), uid="other")
    problems = " ".join(found(story, providers))
    assert "no ExchangeRate of its owner named it" in problems


def test_a_configmap_that_two_exchange_rates_name(story: Story, providers: Providers) -> None:
    other = rate(uid="u2", configMapName="usd")
    other["metadata"]["name"] = "dollar"
    story.past.add(-80, Key("ExchangeRate", SPACE, "dollar"), other)
    providers.send(1, USD="1.1")
    write(story, data("1.1"))
    (one,) = found(story, providers)
    assert "exchangerate/dollar in rates-1 named it too" in one


def test_the_deletion_of_a_configmap(story: Story, providers: Providers) -> None:
    story.past.add(-80, PLACE, written(data("1.1")))
    story.past.add(-70, USD, rate(configMapName="other"))
    other = Key("ConfigMap", SPACE, "other")
    story.past.add(-60, other, written(data("1.1")))
    story.write(story.run(0), 2, PLACE, None)
    assert found(story, providers) == []


def test_the_deletion_of_a_configmap_that_is_named(story: Story, providers: Providers) -> None:
    story.past.add(-80, PLACE, written(data("1.1")))
    story.write(story.run(0), 2, PLACE, None)
    (one,) = found(story, providers)
    assert "did not name another ConfigMap" in one


def test_a_status_with_a_rate_that_no_provider_sent(story: Story, providers: Providers) -> None:
    providers.send(1, USD="1.1")
    status = {"subresource": "status"}
    story.write(story.run(0), 3, USD, rate(data("1.1")), **status)
    story.write(story.run(60), 63, USD, rate(data("1.2")), **status)
    (one,) = found(story, providers)
    assert "1.2 of 2027-01-15 from ecb" in one


def test_an_old_rate_that_stays(story: Story, providers: Providers) -> None:
    providers.send(1, USD="1.1")
    write(story, data("1.1"))
    story.past.add(4, USD, rate(data("1.1")))
    providers.send(20, USD="1.12")
    providers.since = START + 20
    story.run(60)
    assert found(story, providers) == []
    story.run(120)
    (one,) = found(story, providers)
    assert "exchangerate/usd in rates-1 is unchanged, and ConfigMap usd has" in one


def test_an_old_rate_stays_while_providers_fail(story: Story, providers: Providers) -> None:
    providers.send(1, USD="1.1")
    write(story, data("1.1"))
    providers.send(20, USD="1.12")
    story.run(60)
    story.run(120)
    fault = story.journal.begin("tenant-provider-slow", "ecb")
    fault.began, fault.ended = START + 65, START + 70
    assert found(story, providers) == []


@pytest.mark.parametrize(("space", "named", "number"), [(SPACE, "usd", 0), (SPACE, "other", 1), ("rates-2", "usd", 1)])
def test_another_exchange_rate_that_named_the_configmap(
    story: Story, providers: Providers, space: str, named: str, number: int
) -> None:
    other = Key("ExchangeRate", space, "dollar")
    story.past.add(-80, other, rate(uid="u2", configMapName=named))
    story.past.add(-70, PLACE, written(data("1.1", "2027-01-14")))
    providers.send(1, USD="1.1")
    story.past.add(70, other, None)
    story.run(60)
    story.run(120)
    assert len(found(story, providers)) == number
    story.run(180)
    assert len(found(story, providers)) == 1


def test_a_jump_that_is_blocked_is_not_late(story: Story, providers: Providers) -> None:
    story.past.add(-80, USD, rate(data("1.1", source="open-er-api"), provider="open-er-api"))
    story.past.add(-80, PLACE, written(data("1.1", source="open-er-api")))
    providers.send(1, "open-er-api", USD="3")
    providers.send(1, USD="1.1")
    assert found(story, providers, settled=True) == []
    providers.send(1, USD="3.01")
    assert len(found(story, providers, settled=True)) == 1


@pytest.mark.parametrize(
    "made", [None, written(data("1.1"), uid="u0"), written(data("1.1", "2027-01-14")), written({"rate": "1.1"})]
)
def test_a_wrong_configmap_at_the_end(story: Story, providers: Providers, made: Object | None) -> None:
    providers.send(1, USD="1.1")
    story.past.add(-50, PLACE, made)
    assert found(story, providers) == []
    assert len(found(story, providers, settled=True)) == 1


@pytest.mark.parametrize("fields", [{"deletionTimestamp": "2027-01-15T08:00:00Z"}, {"labels": {}}])
def test_a_configmap_that_may_not_be_written_at_the_end(story: Story, providers: Providers, fields: Object) -> None:
    providers.send(1, USD="1.1")
    story.past.add(-50, PLACE, written({}, **fields))
    assert found(story, providers, settled=True) == []


def test_writes_of_another_object_are_refused(story: Story, providers: Providers) -> None:
    write_of_spec = story.write(story.run(0), 3, USD, rate(currency="GBP"))
    (one,) = Rates(providers.provided())(story.observed(), write_of_spec)
    assert "only patches of the status are allowed" in one


# the server


@pytest.fixture
def address() -> str:
    """An address on loopback of this test alone: the ports of the providers are fixed."""
    return f"127.{random.randint(1, 254)}.{random.randint(0, 254)}.{random.randint(1, 254)}"


def get(address: str, provider: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(address, PORTS[provider], timeout=10)
    try:
        connection.request("GET", PATHS[provider])
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_rate_server(tmp_path: Path, address: str) -> None:
    folder = Folder(tmp_path)
    folder.add("first", ecb())
    folder.write({"ecb": ("document", "first"), "frankfurter": ("refused", ""), "open-er-api": ("status-404", "")})
    command = [*dying_with_parent(), sys.executable, "-m", "soak.rate_server", str(tmp_path), address]
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            assert eventually(address, "ecb") == (200, ecb())
            assert eventually(address, "open-er-api")[0] == 404
            with pytest.raises(OSError):
                get(address, "frankfurter")
            folder.write({"ecb": ("truncated", "first")})
            with pytest.raises(http.client.IncompleteRead):
                get(address, "ecb")
        finally:
            process.kill()
    assert [each[1:] for each in folder.served()] == [("ecb", "first")]


def eventually(address: str, provider: str) -> tuple[int, bytes]:
    """Send a request until a provider listens: each has a thread, and they start one after another."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while True:
        try:
            return get(address, provider)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
