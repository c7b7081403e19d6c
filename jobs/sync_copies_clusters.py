"""sync-copies for other clusters: the same phases in each of them, with rules and sources of this one, the hub.

Each cluster of the inventory is a world of its own: its lists, brake, mistakes, conflicts and end. The parts are in
jobs/core/sync_copies: `clusters.py` decides, `observe_clusters.py` reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from time import monotonic
from typing import Any

from msgspec.structs import replace

from jobs.core.sync_copies import clusters as core
from jobs.core.sync_copies.observe import uid_of
from jobs.core.sync_copies.observe_clusters import Hub, Observer, Spoke, inventory, one_of
from jobs.core.sync_copies.observed import NAME, Observed, Settings
from jobs.core.sync_copies.rules import Rule
from jobs.kit.api.cluster import Cluster
from jobs.kit.api.endpoint import Endpoint
from jobs.kit.api.memory import Memory, Share
from jobs.kit.run import gauges, log
from jobs.kit.run.apply import status_conflict, write_statuses
from jobs.kit.run.clusters import (
    CLUSTER_SECONDS,
    MOST_OBJECTS,
    RUN_SECONDS,
    Clusters,
    NotStartedError,
    TimedOutError,
    Visited,
    visit,
)
from jobs.kit.run.gauges import Sample
from jobs.kit.run.job import Job, Limits
from jobs.kit.run.session import Session, create_transport
from jobs.kit.values.conditions import StatusUpdate
from jobs.kit.values.errors import ChoresError, ConfigurationError, UnreachableError
from jobs.kit.values.model import DesiredCounts, DryRun, ExitCode, Finding, Outcome, Plan, Result, Summary
from jobs.kit.values.reads import invalid
from jobs.kit.values.text import brief, listed

_STATUS_ATTEMPTS = 3


class Push:
    """A run over the clusters of the inventory. After `execute()`, it has what the run found in each of them."""

    plan: Plan
    outcomes: core.Outcomes

    def __init__(self, job: Job[Any, Any, Any], session: Session, settings: Settings) -> None:
        self.job, self.session, self.settings = job, session, settings
        self.options, self.cluster = session.options, session.cluster()
        self.writes = self.options.dry_run is DryRun.NONE
        self.end = monotonic() + RUN_SECONDS
        self.problems: dict[str, Finding] = {}
        self.uids: dict[str, str] = {}
        self.valid: dict[str, bool] = {}
        self.visited: dict[str, Visited] = {}

    def execute(self) -> tuple[Plan, Sequence[Result]]:
        """Run the phases in each cluster, then write the statuses of the rules.

        Raises:
            ChoresError: the hub could not be read; nothing was written anywhere.
        """
        spokes = self._spokes()
        members = [each.member for each in spokes]
        hub = Hub(self.cluster, self.settings, members)
        chosen = self._chosen(spokes, hub)
        connections = Clusters(
            NAME, self.options, self.session.stopping, self.end, self.session.transport.traffic, hub.secrets
        )
        if self.writes and not self.session.connection.in_pod:
            log.log.info("%s: writing to clusters %s", NAME, listed([*chosen]) or "none")
        every = {each.member.name: each.endpoint for each in spokes if each.endpoint}
        asked = every if self.settings.forgotten else chosen  # another name of the same cluster must be known
        self._ask(connections, asked, hub, {each.name for each in members})
        fit = {name: each for name, each in chosen.items() if name in self.uids and name not in self.problems}
        for name, visited in connections.each(fit, lambda *given: self._visit(hub, *given)):
            self._keep(name, visited, hub.uid)
        self.outcomes = core.Outcomes(
            hub.read.selected,
            self.uids,
            {name: each.summary for name, each in self.visited.items()},
            self.problems,
            {each.name for each in members},
            self.settings,
            self._cleared(hub),
        )
        failed = self._write_statuses(hub)
        return self._report(hub, failed)

    def _spokes(self) -> list[Spoke]:
        """Return the clusters of the inventory, and the one to forget.

        Raises:
            ConfigurationError: there are no credentials of that one.
        """
        found, name = inventory(self.cluster, self.settings), self.settings.forgotten
        if not name or any(each.member.name == name for each in found):
            return found
        if gone := one_of(self.cluster, self.settings, name):
            return [*found, gone]
        where = f"namespace {self.settings.namespace}"
        raise ConfigurationError(f"no Secret or ClusterProfile {name!r} in {where} has credentials of the cluster")

    def _chosen(self, spokes: Sequence[Spoke], hub: Hub) -> Mapping[str, Endpoint]:
        """Return the clusters of this run, in their order; those that cannot be used are problems.

        Raises:
            ConfigurationError: --clusters matches none of the inventory.
        """
        found = [each for each in spokes if core.is_chosen(each.member.name, self.settings)]
        known = (name for name in core.known_uids(hub.read.home.all_rules) if core.is_chosen(name, self.settings))
        if spokes and not found and not any(known):
            names = listed(sorted(each.member.name for each in spokes))
            raise ConfigurationError(f"no cluster of the inventory matches {self.settings.clusters!r}; it has {names}")
        chosen = {each.member.name: each.endpoint for each in found if each.endpoint}
        for each in (each.member for each in found if each.member.problem):
            self.problems[each.name] = core.problem(each.name, "invalid", each.problem)
        return {name: chosen[name] for name in core.in_order(chosen, hub.read.home.all_rules)}

    def _ask(self, connections: Clusters, chosen: Mapping[str, Endpoint], hub: Hub, members: Set[str]) -> None:
        """Ask each cluster which one it is: before any write, because two names may be those of one cluster."""
        for name, answer in connections.ask(chosen, lambda _name, cluster, _is_over: uid_of(cluster)):
            if not isinstance(answer, ChoresError):
                self.uids[name] = answer
            elif core.is_chosen(name, self.settings):
                self.problems[name] = _problem(name, answer)
        known, name = core.known_uids(hub.read.home.all_rules), self.settings.forgotten
        if not name:
            found = [*core.mismatches(self.uids, known, hub.uid, members)]
        elif uid := self.uids.get(name):
            found = [*core.mismatches({name: uid}, {}, hub.uid, members)]
            found += core.shared(name, uid, {**known, **self.uids}, members)
        else:
            found = []
        self.problems |= {each.object.name: each for each in found}

    def _visit(self, hub: Hub, name: str, cluster: Cluster, is_over: Callable[[], bool]) -> Visited:
        observer, share = Observer(hub, name, self.uids[name]), cluster.share
        assert share

        def plan(observed: Observed, settings: Settings, now: datetime) -> Plan:
            made = self.job.plan(replace(observed, most_findings=share.most_findings()), settings, now)
            share.keep_findings(len(made.findings) + len(made.dependencies))
            return made

        job = replace(
            self.job,
            plan=plan,
            observe=observer.observe,
            renew=observer.renew,
            summary=core.summary,
            status_updates=None,
            limits=Limits(self.settings.max_deletes),
        )
        return visit(name, job, cluster, self.settings, self.options, is_over, self.session.namespace)

    def _keep(self, name: str, visited: Visited | ChoresError, hub: str) -> None:
        if isinstance(visited, ChoresError):
            self.problems[name] = _problem(name, visited)
            return
        self.visited[name] = visited._replace(results=[core.as_refused(each, hub) for each in visited.results])
        if not visited.is_complete and not self.session.stopping():
            self.problems[name] = _problem(name, TimedOutError(CLUSTER_SECONDS))

    def _cleared(self, hub: Hub) -> set[str]:
        """Return the names of clusters in which no orphan is left; of a cluster that is forgotten, all its names."""
        name = self.settings.forgotten
        if name:
            is_done = name in self.visited and name not in self.problems and core.is_empty(self.visited[name].results)
            known = core.known_uids(hub.read.home.all_rules)
            return {name, *(each for each, uid in known.items() if uid == self.uids[name])} if is_done else set()
        if self.settings.rule_name is not None or self.settings.rules is not None:
            return set()  # such a run evaluates no orphans
        visited = {name: each for name, each in self.visited.items() if name not in self.problems}
        return {name for name, each in visited.items() if core.has_no_orphans(each.results)}

    def _write_statuses(self, hub: Hub) -> list[Result]:
        """Write the statuses of the rules; return the results of those that failed.

        The job of this cluster may have written one meanwhile. Then the rules are read again: without its status, the
        next run would not know which clusters were its own.
        """
        if self.session.stopping():
            return []
        home, now = hub.read.home, self.session.transport.clock.now()
        updates = [*self._updates(home.rules, home.local, now)]
        if not self.settings.forgotten:
            updates += core.left_events(home.all_rules, self.outcomes, now)
        failed: list[Result] = []
        for _ in range(_STATUS_ATTEMPTS):
            conflicts: list[StatusUpdate] = []
            failed += write_statuses(self.cluster, updates, self.job.resources, self.options.dry_run, conflicts)
            if not conflicts:
                return failed
            try:
                rules, pushed = hub.rules_again({each.key for each in conflicts}), hub.read.selected
            except ChoresError:  # the report must have what was written in the clusters
                break
            local = [each for each in rules if each.name not in pushed]
            updates = [*self._updates([each for each in rules if each.name in pushed], local, now)]
        return failed + [status_conflict(each) for each in conflicts]

    def _updates(self, rules: Sequence[Rule], local: Sequence[Rule], now: datetime) -> Iterator[StatusUpdate]:
        if self.settings.forgotten:
            yield from core.forgotten(rules, self.outcomes, now)
        else:
            yield from core.status_updates(rules, self.outcomes, now)
        yield from core.without_clusters(local, self.outcomes)

    def _report(self, hub: Hub, failed: Sequence[Result]) -> tuple[Plan, Sequence[Result]]:
        home, visited = hub.read.home, [each for _, each in sorted(self.visited.items())]
        findings = [*self.problems.values(), *map(invalid, home.invalid_rules)]
        findings += core.left(home.all_rules, self.outcomes) if not self.settings.forgotten else []
        results = [Result(each, Outcome.REPORTED, exit_code=each.exit_code) for each in findings]
        results += core.once([each.results for each in visited], {each.finding.object for each in results})
        results.sort(key=lambda each: (each.finding.object, each.cluster, each.finding.code))
        self.valid = {each.name: True for each in home.all_rules if each.head.uid}  # those of files have none
        self.valid |= {each.head.key.name: False for each in home.invalid_rules}
        facts = {
            "rules": len(home.rules),
            "sources": sum(map(len, home.sources.values())),
            "clusters": len(visited),
            "namespaces": sum(each.facts["namespaces"] for each in visited),
        }
        no_rule = Counter({each.name: 0 for each in home.rules})
        self.plan = Plan(
            unchanged=sum(each.unchanged for each in visited),
            summary=Summary(facts, "" if self.outcomes.members else core.NO_CLUSTER),
            desired=DesiredCounts(
                _sum(Counter(), (each.desired.by_kind for each in visited)),
                _sum(no_rule, (each.desired.by_subject for each in visited)),
            ),
            brakes=[brake for each in visited for brake in each.brakes],
        )
        return self.plan, [*results, *failed]

    def gauges(self, results: Sequence[Result]) -> Iterator[Sample]:
        """Yield the metrics of the run after `execute()`."""
        yield from gauges.of_results(self.plan, results)
        yield from core.gauges(self.outcomes, self.valid)


def in_cluster(
    name: str, job: Job[Any, Any, Any], session: Session, settings: Settings
) -> tuple[Job[Any, Any, Any], Session]:
    """Return the job and the session that read another cluster of the inventory.

    Raises:
        ConfigurationError: it is not in the inventory, or its credentials are not valid.
        ChoresError: the hub or the cluster cannot be read.
    """
    spokes = {each.member.name: each for each in inventory(session.cluster(), settings)}
    if name not in spokes:
        raise ConfigurationError(f"no cluster {name!r} in the inventory; it has {listed([*spokes]) or 'none'}")
    endpoint = spokes[name].endpoint
    if endpoint is None:
        raise ConfigurationError(f"cluster {name}: {spokes[name].member.problem}")
    hub = Hub(session.cluster(), settings, [each.member for each in spokes.values()])
    there = replace(session.connection, endpoint=endpoint)
    session = replace(session, connection=there, transport=create_transport(NAME, there, session.stopping))
    uid, known = uid_of(session.cluster()), core.known_uids(hub.read.home.all_rules)
    if problems := list(core.mismatches({name: uid}, known, hub.uid, spokes.keys())):
        raise ConfigurationError(f"cluster {name}: {problems[0].reason}")
    observer = Observer(hub, name, uid, explains=True)

    def observe(cluster: Cluster, settings: Settings) -> Observed:
        limited = Cluster(cluster.transport, cluster.manager, most_objects=MOST_OBJECTS, share=Share(Memory()))
        return observer.observe(limited, settings)

    return replace(job, observe=observe), session


def _sum(begin: Counter[str], counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    for each in counts:
        begin.update(each)
    return begin


def _problem(name: str, error: ChoresError) -> Finding:
    """Return the finding of a cluster that could not be read."""
    codes = {UnreachableError: "unreachable", TimedOutError: "timed-out", NotStartedError: "not-read"}
    code = codes.get(type(error), "unreadable")
    exit_code = ExitCode.FAILED if error.exit_code is ExitCode.STOPPED else error.exit_code
    return core.problem(name, code, brief(str(error)), exit_code)
