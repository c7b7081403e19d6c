"""ExchangeRates, what users do to them and to their ConfigMaps, and providers that fail or send wrong rates."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from soak.invariants import rates
from soak.invariants.rates.current import TROUBLE
from soak.invariants.rates.documents import Document, Provided
from soak.invariants.rates.figures import DEFAULTS, JOB, Spec
from soak.invariants.reads import is_managed
from soak.journal import Fault
from soak.lab import Action, Lab
from soak.observed import Invariant
from soak.rate_server import PORTS, Folder
from tests.apis import ApiError, Object
from tests.control_plane import ROOT
from tests.namespaces import ADDRESS
from tests.processes import Processes
from tests.rates import DOCUMENTS, PATHS, RATES, ago
from tests.worlds import configmap, exchange_rate, namespace_object

NAMESPACES = ("rates-1", "rates-2")
NAMES = ("usd", "gbp", "yen")
CONFIGMAPS = (*NAMES, "rate", "shared")
CURRENCIES = ("USD", "GBP", "JPY", "PLN", "CHF", "XXX")  # no provider has the last one
FIRST_DAY = 5  # days ago; each new day is closer to the current one
TROUBLE_SECONDS = (30.0, 120.0)
MODES = ("slow", "truncated", "status-500", "status-404", "refused")
# What users change of a ConfigMap. The last one removes it from the job.
EDITS: tuple[Object, ...] = (
    {"data": {"rate": "99.9"}},
    {"data": {"date": "2020-01-01", "rate": "1.5"}},
    {"data": {"note": "by hand"}},
    {"data": None},
    {"metadata": {"ownerReferences": None}},
    {"metadata": {"labels": {"example.com/team": "a"}}},
    {"metadata": {"annotations": {"kubechores.dev/fingerprint": "0"}}},
    {"metadata": {"labels": {"kubechores.dev/job": None}}},
)
_ERRORS = (ApiError, OSError, http.client.HTTPException)


def env() -> dict[str, str]:
    """Return the environment variables with which fetch-rates uses the rate server."""
    names = {name: f"CHORES_{name.upper().replace('-', '_')}_URL" for name in PORTS}
    return {names[name]: f"http://{ADDRESS}:{port}{PATHS[name]}" for name, port in PORTS.items()}


@dataclass
class Trouble:
    """A provider that does not serve the current rates, until a timer ends it."""

    fault: Fault
    timer: threading.Timer


class Providers:
    """The providers: the current rates, and what each of them serves."""

    def __init__(self, lab: Lab) -> None:
        self._journal = lab.journal
        self._folder = Folder(lab.folder / "providers")
        self._folder.path.mkdir()
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self._troubles: dict[str, Trouble] = {}
        self._state: dict[str, tuple[str, str]] = {}
        self._documents: dict[str, Document] = {}
        self._rates = {code: Decimal(rate) for code, rate in RATES.items()}
        self._days_ago = FIRST_DAY
        self._since = time.time()
        self._good: dict[str, str] = {}
        self.publish({})
        self._processes = Processes(self._folder.path, lab.node.enter)
        arguments = ("-m", "soak.rate_server", str(self._folder.path), ADDRESS)
        self._processes(sys.executable, *arguments, name="rate-server", env={"PYTHONPATH": str(ROOT)})

    def provided(self) -> Provided:
        """Return what the invariants compare with."""
        return Provided(self._documents, self._folder.served, self._current)

    def end(self) -> None:
        """End the server; no action may follow."""
        self.recover()
        self._processes.end()

    def _current(self) -> tuple[float, Mapping[str, Document]]:
        with self._lock:
            served = {name: document for name, (mode, document) in self._state.items() if mode == "document"}
            documents = {name: self._documents[document] for name, document in served.items()}
            return self._since, {name: each for name, each in documents.items() if each.rates}

    def publish(self, factors: Mapping[str, Decimal], *, new_day: bool = False) -> None:
        """Change the current rates, perhaps with the next day, and let all providers in no trouble serve them."""
        with self._lock:
            self._days_ago = max(0, self._days_ago - new_day)
            for code, factor in factors.items():
                self._rates[code] = _rounded(self._rates[code] * factor)
            for name in PORTS:
                self._good[name] = self._add(name, self._days_ago, self._rates_of(name))
                if name not in self._troubles:
                    self._state[name] = ("document", self._good[name])
            self._write()

    def _rates_of(self, provider: str) -> dict[str, Decimal]:
        """Return the rates of a provider: those of open-er-api differ a little."""
        factor = Decimal(1) if provider in DEFAULTS else Decimal("1.002")
        return {code: _rounded(rate * factor) for code, rate in self._rates.items()}

    def _add(self, provider: str, days_ago: int, rates_of_day: Mapping[str, Decimal], body: bytes = b"") -> str:
        """Add a document; `body` replaces that of the rates and is not valid."""
        name, day = f"{provider}-{next(self._numbers)}", ago(days_ago)
        content = body or DOCUMENTS[provider](day, {code: str(rate) for code, rate in rates_of_day.items()})
        self._documents[name] = Document(provider, str(day), {} if body else dict(rates_of_day))
        self._folder.add(name, content)
        return name

    def _write(self) -> None:
        self._since = time.time()
        self._folder.write(self._state)

    # troubles

    def fail(self, provider: str, mode: str, seconds: float) -> None:
        """Let a provider fail in this mode for a time."""
        self._begin(provider, mode, (mode, self._good[provider]), seconds)

    def date(self, provider: str, days_ago: int, seconds: float) -> None:
        """Let a provider send the current rates with another date."""
        document = self._add(provider, days_ago, self._rates_of(provider))
        self._begin(provider, "old" if days_ago > 0 else "future", ("document", document), seconds)

    def garbage(self, provider: str, seconds: float) -> None:
        """Let a provider send something else."""
        document = self._add(provider, 0, {}, b"<html><p>not rates</html>")
        self._begin(provider, "garbage", ("document", document), seconds)

    def wrong(self, providers: Sequence[str], factors: Mapping[str, Decimal], seconds: float) -> None:
        """Let providers send wrong rates of the current day."""
        for each in providers:
            wrong = {code: _rounded(rate * factors.get(code, 1)) for code, rate in self._rates_of(each).items()}
            self._begin(each, "wrong", ("document", self._add(each, self._days_ago, wrong)), seconds)

    def _begin(self, provider: str, kind: str, state: tuple[str, str], seconds: float) -> None:
        with self._lock:
            if provider in self._troubles:
                return
            timer = threading.Timer(seconds, self._end, [provider])
            timer.daemon = True
            self._troubles[provider] = Trouble(self._journal.begin(TROUBLE + kind, provider), timer)
            self._state[provider] = state
            self._write()
            timer.start()

    def _end(self, provider: str) -> None:
        with self._lock:
            if trouble := self._troubles.pop(provider, None):
                trouble.timer.cancel()
                self._state[provider] = ("document", self._good[provider])
                self._write()
                self._journal.end(trouble.fault)

    def recover(self) -> None:
        """Let all providers serve the current rates."""
        for each in PORTS:
            self._end(each)


def _rounded(rate: Decimal) -> Decimal:
    """Return a rate with six significant digits, as providers publish them."""
    return Decimal(f"{rate:.6g}") if rate < 100_000 else rate.quantize(Decimal(1))


class Rates:
    """Up to six ExchangeRates in two namespaces."""

    def __init__(self, lab: Lab) -> None:
        self._api, self._random = lab.api, lab.random("rates")
        self._providers = Providers(lab)
        for namespace in NAMESPACES:
            self._api.put(namespace_object(namespace))
            for name, currency in zip(NAMES, CURRENCIES, strict=False):
                self._api.put(exchange_rate(namespace, name, currency))

    # the part

    def actions(self) -> Mapping[str, tuple[int, Action]]:
        """Return the actions by name, each with its weight."""
        return {
            "publish-rates": (8, self._publish),
            "publish-day": (2, self._publish_day),
            "publish-jump": (2, self._publish_jump),
            "provider-fails": (5, self._fail),
            "provider-garbage": (2, self._garbage),
            "provider-date": (4, self._date),
            "provider-wrong": (6, self._wrong),
            "providers-wrong": (4, self._all_wrong),
            "create-rate": (6, self._create),
            "edit-rate": (2, self._edit),
            "delete-rate": (2, self._delete),
            "edit-rate-configmap": (4, self._edit_configmap),
            "delete-rate-configmap": (3, self._delete_configmap),
            "unmanaged-configmap": (2, self._create_unmanaged),
            "delete-unmanaged-configmaps": (3, self._delete_unmanaged),
        }

    def invariants(self) -> Sequence[Invariant]:
        """Return the invariants of rates."""
        return rates.invariants(self._providers.provided())

    def resolve(self) -> None:
        """Let the providers recover, delete ConfigMaps in the way, and let each ExchangeRate have its own ConfigMap."""
        self._providers.recover()
        for repair in (self._delete_unmanaged, self._separate, self._accept):
            with contextlib.suppress(*_ERRORS):
                repair()

    def end(self) -> None:
        """End the rate server; no action may follow."""
        self._providers.end()

    def _separate(self) -> None:
        """Remove spec.configMapName of ExchangeRates that name the ConfigMap of another one."""
        for namespace in NAMESPACES:
            found = self._exchange_rates(namespace)
            names = [Spec.of(each).configmap for each in found]
            for each in found:
                if "configMapName" in each["spec"] and names.count(Spec.of(each).configmap) > 1:
                    self._api.patch(each, {"spec": {"configMapName": None}})

    def _accept(self) -> None:
        """Accept each change that a run blocked, as its message describes it."""
        for each in (rate for namespace in NAMESPACES for rate in self._exchange_rates(namespace)):
            conditions = each.get("status", {}).get("conditions", [])
            if any(one["reason"] == "Jump" for one in conditions) and each["spec"].get("maxChange") != 100_000:
                self._api.patch(each, {"spec": {"maxChange": 100_000}})

    # providers

    def _factor(self, least: float, most: float) -> Decimal:
        return Decimal(f"{1 + self._random.uniform(least, most):.5f}")

    def _seconds(self) -> float:
        return self._random.uniform(*TROUBLE_SECONDS)

    def _provider(self) -> str:
        return self._random.choice(list(PORTS))

    def _publish(self) -> None:
        self._providers.publish({code: self._factor(-0.03, 0.03) for code in RATES})

    def _publish_day(self) -> None:
        self._providers.publish({code: self._factor(-0.03, 0.03) for code in RATES}, new_day=True)

    def _publish_jump(self) -> None:
        """Publish a real change of one currency that is over the limit."""
        self._providers.publish({self._random.choice(CURRENCIES[:-1]): self._factor(0.25, 0.6)})

    def _fail(self) -> None:
        mode, provider = self._random.choice(MODES), self._random.choice(["both", *PORTS])
        seconds = self._seconds()
        for each in DEFAULTS if provider == "both" else (provider,):
            self._providers.fail(each, mode, seconds)

    def _garbage(self) -> None:
        self._providers.garbage(self._provider(), self._seconds())

    def _date(self) -> None:
        self._providers.date(self._provider(), self._random.choice([-1, -2, 7, 8, 30]), self._seconds())

    def _wrong(self) -> None:
        code = self._random.choice(CURRENCIES[:-1])
        self._providers.wrong([self._provider()], {code: self._factor(0.3, 10)}, self._seconds())

    def _all_wrong(self) -> None:
        """Let both default providers send a wrong rate: the same one, or two that differ."""
        code, seconds = self._random.choice(CURRENCIES[:-1]), self._seconds()
        factor, other = self._factor(0.3, 2), self._factor(3, 10)
        other = self._random.choice([factor, other])
        self._providers.wrong(["ecb"], {code: factor}, seconds)
        self._providers.wrong(["frankfurter"], {code: other}, seconds)

    # ExchangeRates

    def _exchange_rates(self, namespace: str) -> list[Object]:
        return self._api.items("kubechores.dev/v1", "ExchangeRate", namespace)

    def _spec(self) -> Object:
        """Return a spec at random; it may name the ConfigMap of another ExchangeRate."""
        currency = self._random.choice(CURRENCIES)
        fields: Object = {
            "currency": currency,
            "base": self._random.choice([each for each in ("EUR", "EUR", "USD", "GBP") if each != currency]),
            "provider": self._random.choice([None, None, *PORTS]),
            "maxChange": self._random.choice([None, None, 1, 50, 1_000_000]),
            "configMapName": self._random.choice([None, None, *CONFIGMAPS]),
        }
        return fields

    def _create(self) -> None:
        spec = {name: value for name, value in self._spec().items() if value is not None}
        made = exchange_rate(self._random.choice(NAMESPACES), self._random.choice(NAMES), **spec)
        if not self._api.get(made):
            self._api.call("POST", self._api.path(made, named=False), made)

    def _any(self) -> Object | None:
        found = self._exchange_rates(self._random.choice(NAMESPACES))
        return self._random.choice(found) if found else None

    def _edit(self) -> None:
        spec = self._spec()
        names = [("currency", "base"), ("provider",), ("maxChange",), ("configMapName",)]
        chosen = self._random.choice(names)
        if found := self._any():
            self._api.patch(found, {"spec": {name: spec[name] for name in chosen}})

    def _delete(self) -> None:
        if found := self._any():
            self._api.delete(found)

    # ConfigMaps

    def _configmaps(self) -> list[Object]:
        found = [each for name in NAMESPACES for each in self._api.items("v1", "ConfigMap", name)]
        return [each for each in found if each["metadata"]["name"] != "kube-root-ca.crt"]

    def _any_managed(self) -> Object | None:
        found = [each for each in self._configmaps() if is_managed(each, JOB)]
        return self._random.choice(found) if found else None

    def _edit_configmap(self) -> None:
        edit = self._random.choice(EDITS)
        if found := self._any_managed():
            self._api.patch(found, edit)

    def _delete_configmap(self) -> None:
        if found := self._any_managed():
            self._api.delete(found)

    def _create_unmanaged(self) -> None:
        made = configmap(self._random.choice(NAMESPACES), self._random.choice(CONFIGMAPS), labels={})
        if not self._api.get(made):
            self._api.call("POST", self._api.path(made, named=False), made)

    def _delete_unmanaged(self) -> None:
        for each in self._configmaps():
            if not is_managed(each, JOB):
                self._api.delete(each)
