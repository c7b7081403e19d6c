"""Each pull succeeds that would succeed without mirrors, and files of others on nodes stay as they are."""

from __future__ import annotations

import calendar
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from soak.history import Key, Object, Version
from soak.invariants.mirrors import as_specified, healthy
from soak.journal import Fault
from soak.observed import Invariant, Observed

NAMESPACE = "pulls-1"
# Without a mirror, a pull fails too. `detail` of these faults begins with the host of the upstream.
UPSTREAM_FAULTS = ("tenant-upstream-down", "tenant-upstream-hangs")
# docs/registrymirror.md, "When something breaks": the next pull works only when the damage is repaired.
DAMAGES = ("tenant-mirror-blob", "tenant-mirror-hosts-broken")
MIRROR_FAULT = "tenant-mirror-"
# The node itself is in trouble: it cannot pull, or nobody can observe it.
NODE_FAULTS = ("containerd", "kubelet", "api-", "etcd-", "node-")
# containerd pulls without the API server. But a registry that starts meanwhile is not known to be ready, nor are its
# endpoints to kube-proxy; and a server that starts keeps a small machine busy.
SERVER_FAULTS = ("api-", "etcd-")
TIMEOUTS = ("timeout", "timed out", "deadline exceeded")
# The next repair after an upgrade or a rollback restarts the registries: without a fallback, pulls fail meanwhile.
UPGRADE, ROLLOUT_SECONDS = "upgrade", 150.0
BASE_SECONDS = 60.0
EACH_PULL_SECONDS = 20.0
MIRROR_SECONDS = 60.0  # containerd waits up to 28 s for a registry that does not respond, with each request
NODE_SECONDS = 30.0
ATTEMPT_SECONDS = 60.0  # an attempt that began during a fault can fail this long after its end
BACK_OFF_SECONDS = 300.0  # the longest delay of kubelet between two attempts
# The generator annotates a pod if the mirror had its image when the pod was created, and keeps it for this long.
CACHED = "example.com/cached"
CACHED_SECONDS = 180.0
_NO_REVISION = 1 << 63  # later than all
_FIRST_LINE = "# Written by kube-chores for registrymirror "


def seconds_of(timestamp: str) -> float:
    """Return a timestamp of Kubernetes in seconds since the epoch."""
    return float(calendar.timegm(time.strptime(timestamp[:19], "%Y-%m-%dT%H:%M:%S")))


@dataclass
class _Pull:
    """A pod that pulls."""

    name: str
    host: str
    created: float
    is_cached: bool = False
    ended: float = 0.0  # the image was pulled, or the pod was deleted
    failures: list[tuple[float, str]] = field(default_factory=list)
    seen: int = 0
    reported: bool = False


class Pulls:
    """Every pull succeeds that would succeed without us.

    `fallbacks` has `spec.fallback` of the mirror by the host of its upstream, and `pods` the key of its pod.
    """

    def __init__(
        self, fallbacks: Mapping[str, str], pods: Mapping[str, Key] | None = None, namespace: str = NAMESPACE
    ) -> None:
        self._fallbacks, self._pods, self._namespace = fallbacks, pods or {}, namespace
        self._pulls: dict[Key, _Pull] = {}
        self._counts: dict[Key, int] = {}
        self._seen: dict[Key, int] = {}
        self._undecided: list[tuple[_Pull, float, str]] = []  # failures whose causes may not be known yet

    def __call__(self, observed: Observed) -> Iterator[str]:
        """Yield the pulls that failed or last too long."""
        self._read_pods(observed)
        self._read_events(observed)
        undecided, self._undecided = self._undecided, []
        for failure in undecided:
            if failure[1] + 1 > observed.until:  # a timestamp has a resolution of a second
                self._undecided.append(failure)
            else:
                yield from self._failure(observed, *failure)
        for pull in list(self._pulls.values()):
            yield from self._late(observed, pull)

    def _read_pods(self, observed: Observed) -> None:
        for key in observed.history.keys("Pod"):
            if key.namespace != self._namespace:
                continue
            versions = observed.history.versions(key)
            for version in versions[self._seen.get(key, 0) :]:
                self._read_pod(version)
            self._seen[key] = len(versions)

    def _read_pod(self, version: Version) -> None:
        pod = version.object
        if pod is None:
            if (pull := self._pulls.get(version.key)) and not pull.ended:
                pull.ended = version.seconds
            return
        if version.key not in self._pulls:
            image = pod["spec"]["containers"][0]["image"]
            created = seconds_of(pod["metadata"]["creationTimestamp"])
            is_cached = CACHED in (pod["metadata"].get("annotations") or {})
            self._pulls[version.key] = _Pull(version.key.name, image.partition("/")[0], created, is_cached)
        pull = self._pulls[version.key]
        if not pull.ended and (_has_run(pod) or pod["metadata"].get("deletionTimestamp")):
            pull.ended = version.seconds

    def _read_events(self, observed: Observed) -> None:
        for key in observed.history.keys("Event"):
            if key.namespace != self._namespace:
                continue
            versions = observed.history.versions(key)
            for version in versions[self._seen.get(key, 0) :]:
                if version.object and _is_failed_pull(version.object):
                    self._read_failure(version, version.object)
            self._seen[key] = len(versions)

    def _read_failure(self, version: Version, event: Object) -> None:
        count = event.get("count") or 1
        if count <= self._counts.get(version.key, 0):
            return
        self._counts[version.key] = count
        pull = self._pulls.get(Key("Pod", self._namespace, event["involvedObject"]["name"]))
        if not pull:
            return
        at = seconds_of(event.get("lastTimestamp") or event["metadata"]["creationTimestamp"])
        pull.failures.append((at, event["message"]))
        self._undecided.append((pull, at, event["message"]))

    def _failure(self, observed: Observed, pull: _Pull, at: float, message: str) -> Iterator[str]:
        """Yield why a pull must not have failed, when all is known that happened before."""
        excuses = self._excuses(observed, pull, at - ATTEMPT_SECONDS, at + 1)
        if not any(self._can_fail(observed, pull, each, at, message) for each in excuses):
            yield f"pod {pull.name}: at {_clock(at)}, without a reason outside of mirrors: {message}"
        elif self._needs_no_upstream(observed, pull, at):
            yield f"pod {pull.name}: at {_clock(at)}, although the mirror had the image and worked: {message}"

    def _can_fail(self, observed: Observed, pull: _Pull, excuse: Fault, at: float, message: str) -> bool:
        """Whether an excuse explains a failed attempt: that of the API server only if something else was in trouble."""
        if not excuse.kind.startswith(SERVER_FAULTS) or any(each in message for each in TIMEOUTS):
            return True
        start = min(excuse.began, at - ATTEMPT_SECONDS) - ROLLOUT_SECONDS
        return not self._was_ready(observed, pull, start) or any(
            each.kind == UPGRADE
            or (_is_of_node(each) and not each.kind.startswith(SERVER_FAULTS))
            or (each.kind.startswith(MIRROR_FAULT) and each.detail.partition(" ")[0] == pull.host)
            for each in observed.journal.faults_between(start, at + 1)
        )

    def _was_ready(self, observed: Observed, pull: _Pull, start: float) -> bool:
        """Whether the mirror's pod was ready all the time."""
        versions = observed.history.during(self._pods[pull.host], start, _NO_REVISION) if self._pods else []
        return bool(versions) and all(each.object and _is_ready(each.object) for each in versions)

    def _needs_no_upstream(self, observed: Observed, pull: _Pull, at: float) -> bool:
        """Whether the mirror had the image and worked during a failed attempt: the upstream may then be down."""
        if not pull.is_cached or at - pull.created > CACHED_SECONDS:
            return False
        start = min(pull.created, at - ATTEMPT_SECONDS) - MIRROR_SECONDS
        faults = observed.journal.faults_between(start, at + 1)
        if any(_is_of_node(each) or each.kind.startswith((MIRROR_FAULT, UPSTREAM_FAULTS[1])) for each in faults):
            return False
        return self._was_ready(observed, pull, start)

    def _excuses(self, observed: Observed, pull: _Pull, start: float, end: float) -> list[Fault]:
        """Return the faults from start to end during which pulls may fail."""
        excuses = [
            each
            for each in observed.journal.faults_between(start, end)
            if _is_of_node(each) or (each.detail.partition(" ")[0] == pull.host and self._may_break(pull, each))
        ]
        if self._fallbacks.get(pull.host) == "None":
            excuses += observed.journal.faults_between(start - ROLLOUT_SECONDS, end, UPGRADE)
        return excuses

    def _may_break(self, pull: _Pull, fault: Fault) -> bool:
        if fault.kind in (*UPSTREAM_FAULTS, *DAMAGES):
            return True
        return fault.kind.startswith(MIRROR_FAULT) and self._fallbacks.get(pull.host) == "None"

    def _late(self, observed: Observed, pull: _Pull) -> Iterator[str]:
        if pull.reported:
            return
        end = pull.ended or observed.until
        excuses = self._excuses(observed, pull, pull.created - 1, end)
        if any(not each.ended for each in excuses):
            return
        possible = max([pull.created, *(each.ended for each in excuses)])
        allowed = self._allowance(observed, pull, possible, end)
        if end - possible > allowed:
            pull.reported = True
            state = "ran" if pull.ended else "has not run"
            yield (
                f"pod {pull.name}: created at {_clock(pull.created)}, its pull was possible since {_clock(possible)}, "
                f"and it {state} {end - possible:.0f} s after that; allowed are {allowed:.0f} s"
            )

    def _allowance(self, observed: Observed, pull: _Pull, possible: float, end: float) -> float:
        """Return how long the pull may take from when it is possible."""
        others = [each for each in self._pulls.values() if each.created <= end and (each.ended or end) >= possible]
        allowed = BASE_SECONDS + EACH_PULL_SECONDS * len(others)
        node = [each for each in observed.journal.faults_between(pull.created, end) if _is_of_node(each)]
        allowed += sum((each.ended or end) - each.began + NODE_SECONDS for each in node)
        # kubelet pulls one image at a time: trouble of one registry delays the pulls from all.
        if any(each.kind.startswith(MIRROR_FAULT) for each in observed.journal.faults_between(possible - 60, end)):
            allowed += MIRROR_SECONDS
        elsewhere = (each for each in observed.journal.faults_between(possible, end, "tenant-upstream-hangs"))
        allowed += sum((each.ended or end) - each.began + NODE_SECONDS for each in elsewhere)
        if pull.failures:  # each delay is at most as long as all before it, and an attempt more
            allowed += min(BACK_OFF_SECONDS, 2 * (possible - pull.created) + NODE_SECONDS)
        if self._fallbacks.get(pull.host) == "None" and possible > pull.created:
            allowed += BACK_OFF_SECONDS  # kubelet also waits before it restarts a registry whose upstream was down
        return allowed


def _has_run(pod: Object) -> bool:
    statuses = pod.get("status", {}).get("containerStatuses") or []
    return any("running" in one.get("state", {}) or one.get("restartCount") for one in statuses)


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    is_deleted = "deletionTimestamp" in pod["metadata"]
    return not is_deleted and any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _is_failed_pull(event: Object) -> bool:
    return event.get("reason") == "Failed" and str(event.get("message", "")).startswith("Failed to pull image")


def _is_of_node(fault: Fault) -> bool:
    return fault.kind.startswith(NODE_FAULTS)


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(seconds))


class ForeignFiles:
    """Files below certs.d that kube-chores did not write never change. `files` are their contents by path."""

    def __init__(self, files: Mapping[Path, str]) -> None:
        self._files = dict(files)

    def __call__(self, observed: Observed) -> Iterator[str]:
        """Yield the files that are different."""
        for path, content in list(self._files.items()):
            found = path.read_text() if path.exists() else None
            if found != content:
                del self._files[path]
                how = "deleted" if found is None else "changed"
                yield f"{path.parent.name}/{path.name}, which others wrote, was {how}"


@dataclass(frozen=True)
class Expected:
    """A mirror: its RegistryMirror, the host of its upstream, its hosts.toml, and how to read its Service's address."""

    name: str
    host: str
    fallback: str
    hosts_toml: Path
    address: Callable[[], str]

    @property
    def pod(self) -> Key:
        """The pod of the registry."""
        return Key("Pod", "kube-chores-mirrors", f"registry-mirror-{self.name}-0")


class HostsToml:
    """A hosts.toml that kube-chores wrote has the fallback, and the mirror's address when nothing happens any more."""

    def __init__(self, mirrors: Callable[[], list[Expected]]) -> None:
        self._mirrors = mirrors
        self._reported: set[tuple[str, str]] = set()

    def __call__(self, observed: Observed) -> Iterator[str]:
        """Yield what is wrong with the files."""
        for mirror in self._mirrors():
            text = _text(mirror.hosts_toml)
            wrong = self._wrong(observed, mirror, text)
            if wrong and (mirror.name, text) not in self._reported:
                self._reported.add((mirror.name, text))
                yield f"hosts.toml of RegistryMirror {mirror.name} {wrong}: {text!r}"

    def _wrong(self, observed: Observed, mirror: Expected, text: str) -> str:
        if observed.journal.faults_between(time.time() - 5, time.time(), "tenant-mirror-hosts", *DAMAGES):
            return ""
        server = f'server = "https://{mirror.host}"'
        if text.startswith(_FIRST_LINE) and mirror.fallback == "Upstream" and server not in text.splitlines():
            return "has no fallback"
        if observed.settled and f'[host."http://{mirror.address()}:5000"]' not in text.splitlines():
            return "does not name the mirror's Service"
        return ""


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def invariants(mirrors: Callable[[], list[Expected]], foreign: Mapping[Path, str]) -> list[Invariant]:
    """Return the invariants of mirrors."""
    known = mirrors()
    fallbacks = {each.host: each.fallback for each in known}
    return [
        Invariant("pulls", Pulls(fallbacks, {each.host: each.pod for each in known})),
        Invariant("foreign-files", ForeignFiles(foreign)),
        Invariant("hosts-toml", HostsToml(mirrors)),
        Invariant("mirrors-healthy", healthy([each.name for each in known])),
        Invariant("mirrors-as-specified", as_specified),
    ]
