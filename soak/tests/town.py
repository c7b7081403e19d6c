"""Tenants of copies and the job on the embedded server, whose objects are the history of a story."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kubesandbox import Fault
from soak.history import KINDS, Key, Object
from soak.invariants import ours
from soak.invariants.copies import invariants
from soak.invariants.copies.stamps import JOB, RULE
from soak.invariants.ours import COPIED
from soak.invariants.reads import is_terminating
from soak.observed import Run
from soak.tenants.copies import Copies
from soak.tests.story import START, Story
from tests import embedded
from tests.apis import ApiError, sandbox_api, wait_for
from tests.fault_world import World, served

WATCHED = ("Namespace", RULE, *sorted(COPIED))
# What controllers create in each namespace, a little later.
OF_NAMESPACES = (("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default"))
BRAKE = 4


class Town:
    """A town: a run takes a second, and there is one each minute."""

    def __init__(self, world: World, folder: Path, seed: int) -> None:
        self.now, self.random = 0.0, random.Random(seed)
        self.story, self.api = Story(JOB, folder), sandbox_api(world.sandbox, folder)
        self._world, self._new = world, list[Run]()
        lab: Any = SimpleNamespace(api=self.api, journal=self.story.journal, random=lambda name: self.random)
        self.tenants = Copies(lab)
        self._checks = [each.check for each in (*ours.invariants(), *invariants())]
        self.look()

    def act(self) -> None:
        """Let a tenant act; the server may refuse it."""
        actions = self.tenants.actions()
        ((_, act),) = self.random.choices([*actions.values()], [weight for weight, _ in actions.values()])
        with contextlib.suppress(ApiError, OSError, AssertionError):
            act()
        wait_for(self._is_quiet, "deleted namespaces to be gone")
        self.look()

    def _is_quiet(self) -> bool:
        return not any(is_terminating(each) for each in self.api.items("v1", "Namespace"))

    def run(self, *arguments: str, meanwhile: int | None = None) -> Run:
        """Run the job; tenants act meanwhile, before its request of a number."""
        self.now += 50
        run = self.story.run(self.now)
        pod = {"metadata": {"name": run.pod}, "spec": {"containers": [{"args": arguments}]}}
        key = Key("Pod", "kube-chores", run.pod)
        self.story.past.add(self.now, key, pod)
        if meanwhile is not None:
            self._world.sandbox.inject(Fault(kind="call-before", call=lambda: self._meet(run), skip=meanwhile))
        ran = self._world.run(*arguments)
        self._world.sandbox.clear_faults()
        self.look(run)
        self.story.past.add(self.now, key, pod)  # its status
        ended = replace(run, exit_code=ran.exit_code, log=ran.stdout, ended=START + self.now)
        self.story.runs[-1] = ended
        self._new.append(ended)
        return ended

    def _meet(self, run: Run) -> None:
        self.look(run)
        for _ in range(self.random.randint(1, 3)):
            self.act()

    def settle(self) -> list[str]:
        """Run until everything settled, and confirm what the brake blocks; return what is wrong then."""
        for _ in range(2):
            if self.run().exit_code == BRAKE:
                self.run("--max-deletes", "1000")
        failed = [each.log for each in (self.run(),) if each.exit_code]
        return [*self.violations(), *self.violations(settled=True), *failed]

    def violations(self, *, settled: bool = False) -> list[str]:
        """Return what is wrong since the last call."""
        observed = replace(self.story.observed(settled=settled), runs=self._new)
        found = [each for check in self._checks for each in check(observed)]
        self.story.writes, self._new = [], []
        return found

    def look(self, run: Run | None = None) -> None:
        """Add all changes to the history; those by a run are also its writes."""
        self.now += 1
        there = dict(self._objects())
        before = {each.key: each.object or {} for kind in WATCHED for each in self.story.past.now(kind)}
        for key in sorted(before):
            if key not in there or _metadata(before[key])["uid"] != _metadata(there[key])["uid"]:
                self._add(key, None, run)
        new = [key for key, each in there.items() if _metadata(before.get(key, {})) != _metadata(each)]
        for key in sorted(new, key=lambda key: int(_metadata(there[key])["resourceVersion"])):
            self._add(key, there[key], run)

    def _objects(self) -> Iterator[tuple[Key, Object]]:
        for kind in WATCHED:
            for each in self.api.call("GET", KINDS[kind])["items"]:
                yield Key(kind, each["metadata"].get("namespace", ""), each["metadata"]["name"]), each

    def _add(self, key: Key, obj: Object | None, run: Run | None) -> None:
        if run is None or (key.kind, key.name) in OF_NAMESPACES:
            self.story.past.add(self.now, key, obj)
        else:
            self.story.write(run, self.now, key, obj, subresource="status" if key.kind == RULE else "")


def _metadata(obj: Object) -> Object:
    return obj.get("metadata") or {"uid": None}


@contextlib.contextmanager
def town(folder: Path, seed: int) -> Iterator[Town]:
    """Serve a town."""
    with served(embedded.installed(), JOB) as world:
        yield Town(world, folder, seed)
