"""The images that pods and CronJobs use: their references, who uses them, and which of them a run checks. Pure.

Tenants choose images, names and pull secrets, so all numbers have limits, and namespaces take turns.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from operator import itemgetter
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta, Struct

from jobs.core.mirror_audit.actual import SecretReference, secret_names
from jobs.core.mirror_audit.desired import registry_of
from jobs.core.mirror_audit.registry_mirrors import DOCKER_HUB, is_image
from jobs.core.mirror_node.hosts import is_host
from jobs.kit.run.brakes import in_turns
from jobs.kit.values.addresses import is_local_address
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.resources import CRON_JOBS, PODS, SERVICE_ACCOUNTS, is_name
from jobs.kit.values.text import brief

MOST_OF_NAMESPACE = 1000  # images
MOST_IMAGES = 20_000
MOST_REGISTRIES = 100  # in one run
_MOST_NAMED = 3
_MOST_DIGESTS = 8  # of one image
_MOST_PULLS = 100  # of one image
_LONGEST = 200  # characters of a reference that is not valid
_TURN_SECONDS = 900  # the schedule of mirror-audit
_ENDED = ("Succeeded", "Failed")
_DIGEST = re.compile(r"sha256:[a-f0-9]{64}")
_OTHER_HUB = "index.docker.io"


# references


class Image(NamedTuple):
    """A reference: the host in its name, the repository there, and the digest, or else the tag.

    https://github.com/distribution/reference/blob/main/normalize.go
    """

    host: str
    repository: str
    reference: str

    @property
    def is_digest(self) -> bool:
        """Whether the reference can never be of another manifest."""
        return ":" in self.reference


def parse_image(text: str) -> Image | None:
    """Return the parts of a reference; None if nodes cannot pull it."""
    if not is_image(text):
        return None
    host = registry_of(text)
    name, _, digest = text.partition("@")
    repository, _, tag = name.removeprefix(f"{host}/").partition(":")
    host = DOCKER_HUB if host == _OTHER_HUB else host
    if host == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    return Image(host, repository, digest or tag or "latest") if repository == repository.lower() else None


def is_of_node(host: str) -> bool:
    """Return whether a registry is one of each node, which a run does not reach, or its host is not valid."""
    name = host.partition(":")[0]
    return is_local_address(name) or not is_host(host) or name == "localhost" or name.endswith(".localhost")


# pods and CronJobs, as the API has them


class _Container(Struct):
    name: str = ""
    image: str | None = None


class _PodSpec(Struct, rename="camel"):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    image_pull_secrets: list[SecretReference] | None = None
    service_account_name: str | None = None


class _ContainerStatus(Struct):
    name: str = ""
    image_id: str = msgspec.field(name="imageID", default="")


class _PodStatus(Struct, rename="camel"):
    phase: str = ""
    container_statuses: list[_ContainerStatus] | None = None


class _Metadata(Struct):
    name: Annotated[str, Meta(min_length=1)]
    namespace: Annotated[str, Meta(min_length=1)]


class PodObject(Struct):
    """The fields of a pod that a check of images reads."""

    metadata: _Metadata
    spec: _PodSpec
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _Template(Struct):
    spec: _PodSpec


class _JobSpec(Struct):
    template: _Template


class _JobTemplate(Struct):
    spec: _JobSpec


class _CronJobSpec(Struct, rename="camel"):
    job_template: _JobTemplate


class CronJobObject(Struct):
    """The fields of a CronJob that a check of images reads."""

    metadata: _Metadata
    spec: _CronJobSpec


# who uses an image


class Pull(NamedTuple):
    """With which Secrets pods of a namespace pull an image; if none are named, those of `account` count."""

    namespace: str
    secrets: tuple[str, ...] = ()
    account: str = ""

    @property
    def account_key(self) -> ObjectKey:
        """The key of the ServiceAccount."""
        return ObjectKey(SERVICE_ACCOUNTS.kind, self.account, self.namespace)


class Use(Struct):
    """The use of one image by pods and CronJobs.

    `names` are the first CronJobs and then the first pods that use it, `running` the pods by the digest that their
    containers run: their number, and the first of them.
    """

    count: int = 0
    cron_jobs: list[ObjectKey] = []
    pods: list[ObjectKey] = []
    namespaces: set[str] = set()
    running: dict[str, tuple[int, ObjectKey]] = {}
    pulls: set[Pull] = set()

    def add(self, key: ObjectKey, pull: Pull | None, digest: str = "") -> None:
        """Add a pod or CronJob; `digest` is what the pod runs."""
        named = self.cron_jobs if key.kind == CRON_JOBS.kind else self.pods
        if len(named) < _MOST_NAMED:
            named.append(key)
        self.count += 1
        self.namespaces.add(key.namespace)
        if pull and pull not in self.pulls and self._has_room_for(pull):
            self.pulls.add(pull)
        if digest in self.running:
            number, first = self.running[digest]
            self.running[digest] = (number + 1, first)
        elif digest and len(self.running) < _MOST_DIGESTS:
            self.running[digest] = (1, key)

    def _has_room_for(self, pull: Pull) -> bool:
        of_namespace = sum(each.namespace == pull.namespace for each in self.pulls)
        return of_namespace < _MOST_NAMED and len(self.pulls) < _MOST_PULLS

    @property
    def users(self) -> str:
        """The first of its users, CronJobs before pods, and the number of the others."""
        named = [*self.cron_jobs, *self.pods][:_MOST_NAMED]
        more = f" and {self.count - len(named)} more" if self.count > len(named) else ""
        return ", ".join(map(str, named)) + more


class Images:
    """The images of all pods that have not ended, and of all CronJobs, by their references as they are written."""

    def __init__(self) -> None:
        self.uses: dict[str, Use] = {}
        self.omitted: Counter[str] = Counter()  # references beyond the limits, by namespace
        self._of_namespace: dict[str, list[str]] = {}
        self._largest = ""

    def add_pod(self, pod: PodObject) -> None:
        """Add the images of a pod, with the digests that its containers run."""
        if pod.status.phase in _ENDED:
            return
        running = {
            each.name: each.image_id.rpartition("@")[2]
            for each in pod.status.container_statuses or ()
            if "@" in each.image_id and _DIGEST.fullmatch(each.image_id.rpartition("@")[2])
        }
        key = ObjectKey(PODS.kind, pod.metadata.name, sys.intern(pod.metadata.namespace))
        # Admission adds the secrets of the ServiceAccount to a pod.
        secrets = secret_names(pod.spec.image_pull_secrets)
        pull = Pull(key.namespace, secrets) if secrets else None
        self._add(key, pod.spec, pull, running)

    def add_cron_job(self, cron_job: CronJobObject) -> None:
        """Add the images of a CronJob."""
        spec = cron_job.spec.job_template.spec.template.spec
        key = ObjectKey(CRON_JOBS.kind, cron_job.metadata.name, sys.intern(cron_job.metadata.namespace))
        secrets = secret_names(spec.image_pull_secrets)
        named = spec.service_account_name or "default"
        account = named if is_name(named) and not secrets else ""
        self._add(key, spec, Pull(key.namespace, secrets, account), {})

    def _add(self, key: ObjectKey, spec: _PodSpec, pull: Pull | None, running: Mapping[str, str]) -> None:
        seen: dict[str, str] = {}
        for each in spec.containers or ():
            seen[each.image or ""] = seen.get(each.image or "") or running.get(each.name, "")
        for each in spec.init_containers or ():
            seen.setdefault(each.image or "", "")
        for text, digest in seen.items():
            if (use := self._use(text, key.namespace)) is not None:
                use.add(key, pull, sys.intern(digest))

    def _use(self, text: str, namespace: str) -> Use | None:
        text = text if is_image(text) else brief(text, _LONGEST)
        if (found := self.uses.get(text)) is not None:
            return found
        own = self._of_namespace.setdefault(namespace, [])
        if len(own) >= MOST_OF_NAMESPACE or (len(self.uses) >= MOST_IMAGES and not self._has_room_for(own)):
            self.omitted[namespace] += 1
            return None
        own.append(text)
        return self.uses.setdefault(text, Use())

    def _has_room_for(self, own: Sequence[str]) -> bool:
        """Omit an image of the namespace that has the most, if it has more than this one; return whether it has."""
        # Without room, a namespace grows only up to the largest. So that stays it until it gives an image.
        largest = self._largest or max(self._of_namespace, key=lambda each: len(self._of_namespace[each]))
        theirs = self._of_namespace[largest]
        has_room = len(theirs) > len(own) + 1
        self._largest = "" if has_room else largest
        if has_room:
            del self.uses[theirs.pop()]
            self.omitted[largest] += 1
        return has_room


# turns: which images a run checks


def turn_of(now: datetime) -> int:
    """Return the number of the run of a schedule of 15 minutes."""
    return int(now.timestamp()) // _TURN_SECONDS


def part_of(turn: int, parts: int) -> int:
    """Return which of the parts has its turn: in each cycle of `parts` turns, each once.

    Each cycle begins with another part. So a schedule that skips turns, such as an hourly one, comes to each part too:
    by `turn % parts` it could always be the same one.
    """
    cycle = turn // parts
    return (turn + int.from_bytes(_hash(str(cycle))[:8], "big")) % parts


def choose(images: Mapping[str, Image], uses: Mapping[str, Use], most: int, turn: int) -> list[str]:
    """Return the references that a run checks, at most `most` of each registry, in the order in which to check them."""
    by_host: dict[str, list[str]] = {}
    for text in sorted(images, key=_hash):
        by_host.setdefault(images[text].host, []).append(text)
    return [text for host in _registries(by_host, uses, turn) for text in _of_registry(by_host[host], uses, most, turn)]


def _registries(by_host: Mapping[str, Sequence[str]], uses: Mapping[str, Use], turn: int) -> list[str]:
    """Return the registries to ask: first one of each namespace, then a second one, so that all namespaces have one."""
    hosts: dict[str, set[str]] = {}
    for host, texts in by_host.items():
        for text in texts:
            for namespace in uses[text].namespaces:
                hosts.setdefault(namespace, set()).add(host)
    ranks: dict[str, int] = {}
    for its_hosts in hosts.values():
        for rank, host in enumerate(sorted(its_hosts, key=lambda each: _hash(f"{turn} {each}"))):
            ranks[host] = min(rank, ranks.get(host, rank))
    return sorted(by_host, key=lambda host: (ranks[host], _hash(f"{turn} {host}")))[:MOST_REGISTRIES]


def _of_registry(texts: Sequence[str], uses: Mapping[str, Use], most: int, turn: int) -> list[str]:
    """Return the images of a registry that have their turn: equal shares of each namespace, if it has so many."""
    numbers = Counter(namespace for text in texts for namespace in uses[text].namespaces)
    of_namespace: dict[str, list[str]] = {}
    for text in texts:
        # Those of several namespaces count for the one with the fewest.
        owner = min(uses[text].namespaces, key=lambda each: (numbers[each], each))
        of_namespace.setdefault(owner, []).append(text)
    parts = -(-len(of_namespace) // most)
    namespaces = sorted(of_namespace, key=_hash)[part_of(turn, parts) :: parts]
    turn //= parts
    shares = _shares({each: len(of_namespace[each]) for each in namespaces}, most)
    chosen = [(each, text) for each in namespaces for text in _in_turn(of_namespace[each], shares[each], turn)]
    return [text for _, text in in_turns(chosen, lambda each: each[0])]


def _shares(numbers: Mapping[str, int], most: int) -> dict[str, int]:
    """Return how many images of each namespace can be chosen, at most `most` together: what one leaves, others get."""
    shares = {}
    for done, (namespace, number) in enumerate(sorted(numbers.items(), key=itemgetter(1))):
        shares[namespace] = min(number, most // (len(numbers) - done))
        most -= shares[namespace]
    return shares


def _in_turn(texts: Sequence[str], share: int, turn: int) -> Iterator[str]:
    """Yield the images of a namespace that have their turn; each time, another one is the first."""
    parts = -(-len(texts) // share)
    chosen = texts[part_of(turn, parts) :: parts]
    first = turn // parts % len(chosen)
    yield from (*chosen[first:], *chosen[:first])


def _hash(text: str) -> bytes:
    return sha256(text.encode("utf-8", "replace")).digest()
