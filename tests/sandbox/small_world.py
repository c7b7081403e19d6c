"""Embedded clusters that runs are killed and disturbed in; and a small world in which sync-copies makes every write."""

from __future__ import annotations

import os
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner

from jobs.__main__ import chores
from jobs.kit import cluster, runner, transport
from jobs.kit.connect import Connection, Endpoint
from kubesandbox import Fault, Request, Sandbox
from tests import canary
from tests.api.conftest import Ran
from tests.apis import Api, sandbox_api
from tests.manifests import ROOT, load
from tests.worlds import at, configmap, encoded, rule, secret

Object = dict[str, Any]
Key = tuple[str, str, str]

PAGE = 3  # so that lists have several pages
STAMP = {
    "app.kubernetes.io/managed-by": "kube-chores",
    "kubechores.dev/job": "sync-copies",
    "kubechores.dev/rule-namespace": "kube-chores",
}
FIXED, KEPT, WANTED = {"copy": "fixed"}, {"copy": "kept"}, {"copy": "wanted"}
# What nobody but its owner may change.
FOREIGN = {
    ("secrets", "team-a", "taken"),  # has the name of a copy
    ("configmaps", "team-a", "other-install"),
    ("configmaps", "team-a", "other-job"),
    ("configmaps", "team-b", "unrelated"),
}


@dataclass(frozen=True)
class World:
    """An embedded cluster that is being served, and what the job did to it."""

    sandbox: Sandbox
    job: str = "sync-copies"
    env: Mapping[str, str] = field(default_factory=dict)

    def run(self, *arguments: str) -> Ran:
        """Run the job as the admin, without the detour over a kubeconfig: that is most of a small run's time."""
        endpoint = Endpoint(self.sandbox.url, lambda: f"Bearer {self.sandbox.admin_token}")
        connection = Connection(endpoint, "kube-chores", "sandbox")
        with mock.patch.object(runner, "connect", return_value=connection):
            done = CliRunner().invoke(chores, [self.job, "-o", "json", *arguments], env=self.env)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Ran(done.exit_code, done.stdout, done.stderr)

    def run_killed(self, number: int, when: str) -> bool:
        """Run the job in a process that dies by SIGKILL at its request `number`: before or after that is handled.

        Return whether it did: a run with fewer requests ends by itself.
        """
        gate, opener = os.pipe()
        child = forked(lambda: os.read(gate, 1) and self.run())

        def kill() -> None:
            os.kill(child, signal.SIGKILL)

        self.sandbox.inject(Fault(kind="call-before" if when == "before" else "call-after", call=kill, skip=number))
        self.sandbox.inject(Fault(kind="reset-before" if when == "before" else "reset-after", skip=number))
        os.write(opener, b".")
        _, status = os.waitpid(child, 0)
        os.close(gate)
        os.close(opener)
        self.sandbox.clear_faults()
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL

    def requests(self) -> list[Request]:
        """What the job asked for so far."""
        return [each for each in self.sandbox.requests if each.user_agent.startswith("kube-chores")]

    def writes(self) -> list[Request]:
        """Those requests that change something."""
        asked = "selfsubjectaccessreviews"
        return [each for each in self.requests() if each.method != "GET" and not each.path.endswith(asked)]

    def stored(self, plural: str, group: str = "") -> dict[Key, Object]:
        """All objects of a resource, whole, as the embedded cluster holds them."""
        cluster = self.sandbox.cluster
        resource = cluster.find(group, "v1", plural)
        assert resource
        with cluster.store.lock:
            return {(plural, each.namespace, each.name): each.obj for each in cluster.store.items(resource)}

    def objects(self) -> dict[Key, Object]:
        """All ConfigMaps and Secrets, whole."""
        return self.stored("configmaps") | self.stored("secrets")

    def rules(self) -> dict[Key, Object]:
        """All CopyratorRules, whole."""
        return self.stored("copyrators", "kubechores.dev")

    def end(self) -> dict[Key, Object]:
        """The state that counts: what rules say, copies without what a second making changes, all else as it is."""
        objects, rules = self.objects(), self.rules()
        copies = {key: _of_a_copy(each) for key, each in objects.items() if is_ours(each)}
        public = [rules.values(), self.stored("events").values(), [each["metadata"] for each in copies.values()]]
        canary.seen("what many may read", repr(list(map(list, public))))
        return objects | copies | {key: _told(each) for key, each in rules.items()}


def differing(one: dict[Key, Object], other: dict[Key, Object]) -> list[Key]:
    """The objects in which two states differ."""
    return sorted(key for key in one.keys() | other.keys() if one.get(key) != other.get(key))


def forked(call: Callable[[], object]) -> int:
    """Run `call` in a copy of this process that ends without the endings of this one; return its pid."""
    with warnings.catch_warnings():
        # Newer Pythons warn of threads that hold locks: the child uses nothing of the embedded cluster's.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return child
    try:
        call()
    finally:
        os._exit(0)


def is_ours(obj: Object) -> bool:
    """Whether sync-copies made the object for rules in kube-chores."""
    return STAMP.items() <= (obj["metadata"].get("labels") or {}).items()


def _told(rule: Object) -> Object:
    status = rule.get("status", {})
    conditions = [(each["type"], each["status"], each["reason"]) for each in status.get("conditions", [])]
    return {"conditions": conditions, "conflicts": status.get("conflicts")}


def _of_a_copy(copy: Object) -> Object:
    return {**copy, "metadata": {name: copy["metadata"].get(name) for name in ("labels", "annotations")}}


@contextmanager
def served(template: Sandbox, job: str = "sync-copies", env: Mapping[str, str] | None = None) -> Iterator[World]:
    """A world of its own that begins as `template` was left."""
    with Sandbox(of=template) as sandbox:
        yield World(sandbox, job, env or {})


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pages, one request after the other, and no pauses before a retry."""
    monkeypatch.setattr(cluster, "PAGE_SIZE", PAGE)
    monkeypatch.setattr(transport, "IN_FLIGHT", 1)
    monkeypatch.setattr(transport, "LONGEST_PAUSE_SECONDS", 0.0)


@pytest.fixture(scope="session")
def small_world() -> Sandbox:
    """The small world before the run that tests look at; never served itself."""
    with tempfile.TemporaryDirectory() as folder, Sandbox() as sandbox:
        api = sandbox_api(sandbox, Path(folder))
        _found(api)
        first = World(sandbox).run()
        assert (first.exit_code, first.summary) == (0, {"created": 13}), first
        _change(api)
        return Sandbox(of=sandbox)


@pytest.fixture(scope="session")
def undisturbed(small_world: Sandbox) -> dict[Key, Object]:
    """How the small world is after a run."""
    with served(small_world) as world:
        ran = world.run()
        written = {"created": 1, "configured": 5, "replaced": 2, "deleted": 5}
        assert (ran.exit_code, ran.summary) == (0, {**written, "unchanged": 1, "conflict": 1}), ran
        return world.end()


def trace(small_world: Sandbox) -> list[Request]:
    """The requests of a run that nothing disturbs."""
    with served(small_world) as world:
        world.run()
        return world.requests()


def _found(api: Api) -> None:
    """Make the world as it is before the first run."""
    for obj in load(ROOT / "cronjobs" / "crds"):
        api.put(obj)
    for name in ("kube-chores", "home", "annex", "team-a", "team-b", "leaver"):
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for name in ("settings", "theme", "gone"):
        api.create(configmap("home", name))
    api.create(configmap("home", "fixed", labels=FIXED, immutable=True, data={"a": "1"}))
    api.create(configmap("annex", "kept", labels=KEPT))
    for name in ("login", "cert"):
        api.create(secret("home", name))
    api.create(rule("settings", "home", "team-*", metadata={"labels": {"from": "home"}}))
    api.create(rule("fixed", "home", ["team-a", "leaver"], selector={"matchLabels": FIXED}))
    api.create(rule("kept", "annex", "team-b", selector={"matchLabels": KEPT}, orphans="Retain"))
    api.create(rule("logins", "home", "team-a", ruleType="secret"))
    api.create(rule("old", "home", "leaver", ruleType="secret", selector={"matchLabels": {"copyrator": "true"}}))
    api.create(configmap("team-a", "other-install", labels={**STAMP, "kubechores.dev/rule-namespace": "elsewhere"}))
    api.create(configmap("team-a", "other-job", labels={**STAMP, "kubechores.dev/job": "fetch-rates"}))
    api.create(configmap("team-b", "unrelated"))


def _change(api: Api) -> None:
    """Leave the next run a write of each kind to do, and something in its way."""
    api.patch(at("home", configmap("home", "settings")), {"data": {"a": "new", "b": None}})
    api.patch(at("team-a", configmap("home", "theme")), {"data": {"a": "by hand"}})
    api.delete(configmap("home", "gone"))
    api.delete(configmap("annex", "kept"))
    api.delete(configmap("home", "fixed"))
    api.create(configmap("home", "fixed", labels=FIXED, immutable=True, data={"a": "2"}))
    api.patch(secret("home", "login"), {"data": {"password": encoded(canary.canary())}})
    api.delete(secret("home", "cert"))
    pair = {"tls.crt": encoded(canary.canary()), "tls.key": encoded(canary.canary())}
    api.create(secret("home", "cert", type="kubernetes.io/tls", data=pair))
    for name in ("fresh", "taken"):
        api.create(secret("home", name))
    api.create(secret("team-a", "taken", labels={}))
    api.delete(rule("old", "home", ""))
    opted_out = {"metadata": {"annotations": {"kubechores.dev/copies": "false"}}}
    api.patch({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "leaver"}}, opted_out)
    api.create(configmap("annex", "wanted", labels=WANTED))
    api.create(configmap("team-a", "wanted", labels={}, data={"a": "theirs"}))
    api.create(rule("wanted", "annex", "team-a", selector={"matchLabels": WANTED}, conflict="Adopt"))
