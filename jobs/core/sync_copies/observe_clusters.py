"""Read the inventory of clusters, and what a run compares in each of them.

The rules and sources of the hub are read once for all clusters. A run that deletes in one of them reads them again
after the copies there: a copy that an overlapping run created meanwhile is never an orphan.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, structs

from jobs.core.sync_copies.clusters import Member, Selected, rules_about, selected
from jobs.core.sync_copies.kinds import IN_INVENTORY, KINDS
from jobs.core.sync_copies.observe import Home, Listed, combine, list_copies, read_home, rules_of, uid_of
from jobs.core.sync_copies.observed import Observed, Settings, Source
from jobs.core.sync_copies.rules import Rule
from jobs.kit.api import spoke
from jobs.kit.api.cluster import Cluster, complete
from jobs.kit.api.endpoint import Endpoint
from jobs.kit.api.responses import error_of
from jobs.kit.data.contents import Content
from jobs.kit.data.objects import ReducedObject, WholeObject
from jobs.kit.values.errors import ApiError, ConfigurationError
from jobs.kit.values.hidden import Forms, quoted_forms
from jobs.kit.values.model import ObjectKey
from jobs.kit.values.reads import Metadata, decode, string_map
from jobs.kit.values.resources import CLUSTER_PROFILES, SECRETS, is_name
from jobs.kit.values.text import brief

_MOST_CLUSTERS = 500
_LONGEST_KEY = 253
_KEYS = ("value", "kubeconfig")  # of a Secret; Cluster API writes `value`
# https://github.com/kubernetes-sigs/cluster-inventory-api/tree/main/plugins
_TOKENS, _KUBECONFIGS = "secretreader", "kubeconfig-secretreader"
_OF_ACCOUNTS = "kubernetes.io/service-account-token"
_EXTENSION = "client.authentication.k8s.io/exec"


@dataclass(frozen=True)
class Spoke:
    """A cluster of the inventory, and how to connect to it; None if that is not known, because of its problem."""

    member: Member
    endpoint: Endpoint | None = field(default=None, repr=False)


class _Provider(Struct, frozen=True):
    """An access provider of a ClusterProfile: `cluster` has the fields of that of a kubeconfig."""

    name: str = ""
    cluster: dict[str, Any] = msgspec.field(default_factory=dict)

    def argument(self, name: str) -> str:
        """Return an argument of the provider; empty if it is not set."""
        extensions = self.cluster.get("extensions")
        for each in extensions if isinstance(extensions, list) else ():
            if isinstance(each, dict) and each.get("name") == _EXTENSION and isinstance(each.get("extension"), dict):
                value = each["extension"].get(name, "")
                return value if isinstance(value, str) else ""
        return ""


class _ProfileStatus(Struct, frozen=True, rename="camel"):
    access_providers: tuple[_Provider, ...] = ()
    credential_providers: tuple[_Provider, ...] = ()  # the name of the field before


class _ClusterProfile(Struct):
    metadata: Metadata
    status: _ProfileStatus = _ProfileStatus()


def inventory(cluster: Cluster, settings: Settings) -> list[Spoke]:
    """Read the clusters of the inventory, by name: labelled Secrets, and ClusterProfiles.

    Raises:
        ApiError: they cannot be listed.
    """
    found = [*_of_secrets(cluster, settings, IN_INVENTORY), *_of_profiles(cluster, settings)]
    names = [each.member.name for each in found]
    spokes = []
    for number, each in enumerate(sorted(found, key=lambda each: each.member.name)):
        problem = ""
        if names.count(each.member.name) > 1:
            problem = "a Secret and a ClusterProfile have this name; rename one of them"
        elif number >= _MOST_CLUSTERS:
            problem = f"the inventory has more than {_MOST_CLUSTERS} clusters; use a second installation"
        spokes.append(_refused(each, problem) if problem else each)
    return spokes


def one_of(cluster: Cluster, settings: Settings, name: str) -> Spoke | None:
    """Read one cluster, also if it left the inventory while its credentials still exist.

    Raises: as `inventory`.
    """
    secrets = list(_of_secrets(cluster, settings, fields=f"metadata.name={name}"))
    profiles = [] if secrets else [each for each in _of_profiles(cluster, settings) if each.member.name == name]
    return next(iter([*secrets, *profiles]), None)


def _refused(of: Spoke, problem: str) -> Spoke:
    return Spoke(structs.replace(of.member, problem=problem))


def _of_secrets(cluster: Cluster, settings: Settings, selector: str = "", fields: str = "") -> Iterator[Spoke]:
    def reduce(each: WholeObject) -> Spoke:  # page by page: together, Secrets may be larger than the memory of a run
        return _spoke(each.metadata, lambda: _of_secret(each, bool(selector)))

    found, invalid = complete(
        cluster.objects,
        SECRETS,
        WholeObject,
        reduce,
        namespace=settings.namespace,
        selector=selector,
        fields=fields,
    )
    yield from (each for each in found if not (selector and each.member.labels.get(IN_INVENTORY) == "false"))
    for undecoded in invalid:
        yield Spoke(Member(undecoded.key.name, {}, undecoded.error.message))


def _spoke(metadata: Metadata, connect: Callable[[], Endpoint]) -> Spoke:
    member = Member(metadata.name, string_map(metadata.labels))
    try:
        return Spoke(member, connect())
    except (ApiError, ConfigurationError) as error:
        return Spoke(structs.replace(member, problem=str(error)))


def _of_secret(secret: WholeObject, is_labelled: bool) -> Endpoint:
    if is_labelled and string_map(secret.metadata.labels).get(IN_INVENTORY) != "true":
        raise ConfigurationError(f'label {IN_INVENTORY} must be "true", or "false" to leave it out')
    key = next((each for each in _KEYS if (secret.data or {}).get(each)), "")
    if not key:
        raise ConfigurationError(f"the Secret has neither key {' nor '.join(_KEYS)}")
    return spoke.endpoint(_value(secret, key))


def _value(secret: WholeObject, key: str) -> bytes:
    try:
        value = b64decode((secret.data or {}).get(key) or "", validate=True)
    except ValueError:
        value = b""
    if not value:
        raise ConfigurationError(f"Secret {secret.metadata.name} has no key {brief(key, _LONGEST_KEY)}")
    return value


def _of_profiles(cluster: Cluster, settings: Settings) -> Iterable[Spoke]:
    def reduce(each: _ClusterProfile) -> Spoke:
        return _spoke(each.metadata, lambda: _of_profile(cluster, settings, each.status))

    try:
        found, invalid = complete(
            cluster.objects, CLUSTER_PROFILES, _ClusterProfile, reduce, namespace=settings.namespace
        )
    except ApiError as error:
        if error.status != 404:  # the CRD is not installed
            raise
        return
    yield from found
    for undecoded in invalid:
        yield Spoke(Member(undecoded.key.name, {}, undecoded.error.message))


def _of_profile(cluster: Cluster, settings: Settings, status: _ProfileStatus) -> Endpoint:
    providers = {each.name: each for each in (*status.credential_providers, *status.access_providers)}
    if provider := providers.get(_TOKENS):
        secret = _secret(cluster, settings, provider.argument("clusterName"), f"{_TOKENS}: clusterName")
        try:
            user = {"token": _value(secret, "token").decode().strip()}
        except UnicodeDecodeError:
            raise ConfigurationError(f"key token of Secret {secret.metadata.name} is not text") from None
        return spoke.endpoint_of(_config(provider, user))
    if provider := providers.get(_KUBECONFIGS):
        if provider.argument("namespace") not in ("", settings.namespace):
            raise ConfigurationError(f"{_KUBECONFIGS}: namespace must be {settings.namespace}, or not set")
        secret = _secret(cluster, settings, provider.argument("name"), f"{_KUBECONFIGS}: name")
        return spoke.endpoint_of(_config(provider, _user(_value(secret, provider.argument("key") or "value"))))
    raise ConfigurationError(f"status.accessProviders has neither {_TOKENS} nor {_KUBECONFIGS}")


def _secret(cluster: Cluster, settings: Settings, name: str, argument: str) -> WholeObject:
    if not is_name(name):
        raise ConfigurationError(f"{argument} must be the name of a Secret")
    for response in cluster.read([(SECRETS, settings.namespace, name, True)]):
        if error := error_of(response):
            raise error
        secret = decode(response.body, WholeObject)
        # Who writes a ClusterProfile chooses the server, and must not receive the token of an account of this cluster.
        if secret.type == _OF_ACCOUNTS:
            raise ConfigurationError(f"Secret {name} has a token of this cluster, which no other one gets")
        return secret
    raise ApiError(0, f"Secret {name} was not read: the run was stopped")


def _config(provider: _Provider, user: object) -> dict[str, Any]:
    fields = {key: value for key, value in provider.cluster.items() if key != "extensions"}
    return {
        "clusters": [{"name": "spoke", "cluster": fields}],
        "users": [{"name": "spoke", "user": user}],
        "contexts": [{"name": "spoke", "context": {"cluster": "spoke", "user": "spoke"}}],
    }


def _user(kubeconfig: bytes) -> object:
    """Return the only user of a kubeconfig; `endpoint_of` finds what is wrong with it."""
    try:
        (user,) = spoke.document(kubeconfig)["users"]
        return user["user"]
    except (KeyError, TypeError, ValueError):
        raise ConfigurationError("the kubeconfig has not exactly one user") from None


class HomeOfClusters(NamedTuple):
    """What was read in the hub, and which clusters its rules select.

    `pushed` are the clusters that had copies of rules which a cluster may also pull, by NAMESPACE/NAME.
    """

    home: Home
    selected: Selected
    pushed: Mapping[str, frozenset[str]]


class Hub:
    """The rules and sources of the hub, as several threads read them: a lock protects its connection."""

    def __init__(self, cluster: Cluster, settings: Settings, members: Sequence[Member]) -> None:
        self._cluster, self._settings, self._members, self._lock = cluster, settings, members, Lock()
        self._lock_of_secrets = Lock()
        self._secrets: tuple[HomeOfClusters, Forms] | None = None
        self.uid = uid_of(cluster)
        self.read = self._read()

    def _read(self, before: Home | None = None) -> HomeOfClusters:
        begin = monotonic()
        home = read_home(self._cluster, self._settings, None, self.uid)
        self._read_at = begin  # only now: a read that failed is none
        if before:
            home = _sharing(home, before)
        pushed = {
            rule.stamp: frozenset(each.name for each in rule.status.pushed.clusters)
            for rule in home.all_rules
            if rule.is_local
        }
        return HomeOfClusters(home, selected(home.rules, self._members), pushed)

    def secrets(self) -> Forms:
        """Return the values of all Secrets that the run copies; made only for errors."""
        with self._lock_of_secrets:
            read = self.read
            if self._secrets is None or self._secrets[0] is not read:
                self._secrets = read, Forms(_secrets(read.home))
            return self._secrets[1]

    def after(self, moment: float) -> HomeOfClusters:
        """Return what was read after a moment of time.monotonic().

        Raises: as `read_home`.
        """
        with self._lock:
            if self._read_at <= moment:
                self.read = self._read(self.read.home)
            return self.read

    def rules_again(self, keys: Collection[ObjectKey]) -> list[Rule]:
        """Read these rules again, and return those that exist and are valid.

        Raises: as `read_home`.
        """
        rules, _ = rules_of(self._cluster, self._settings, self.uid)
        return [each for each in rules if each.head.key in keys]


def _sharing(home: Home, before: Home) -> Home:
    """Return what was read again, with the sources of the first time that are equal: threads keep both."""
    every = chain.from_iterable(before.sources.values())
    known = {each.version: each for each in every if isinstance(each, ReducedObject)}

    def shared(source: Source) -> Source:
        earlier = known.get(source.version) if isinstance(source, ReducedObject) else None
        return earlier if earlier is not None and earlier == source else source

    sources = {query: tuple(map(shared, found)) for query, found in home.sources.items()}
    return structs.replace(home, sources=sources)


def _secrets(home: Home) -> set[str]:
    found: set[str] = set()
    for query, sources in home.sources.items():
        for each in sources if KINDS[query.rule_type].layout.is_secret else ():
            if isinstance(each, ReducedObject) and isinstance(each.content, Content):
                found |= quoted_forms(each.content.data.values())
    return found


@dataclass
class Observer:
    """Observes one cluster; `uid` is what it answered at the beginning of the run.

    With `explains`, also rules that do not select it: nothing is written there.
    """

    hub: Hub
    name: str
    uid: str
    explains: bool = False
    _listed: Listed = field(init=False)
    _listed_at: float = field(init=False)

    def observe(self, cluster: Cluster, settings: Settings) -> Observed:
        """Read the copies and namespaces of the cluster.

        Raises: as `combine`.
        """
        read = self.hub.read
        rules = self._known(read) if settings.forgotten else self._rules(read, settings)
        self._listed = list_copies(cluster, settings, rules, self.hub.uid)
        self._listed_at = monotonic()
        return self._combined(cluster, settings, read)

    def renew(self, cluster: Cluster, settings: Settings) -> Observed:
        """Return the same copies, with rules and sources that were read after them.

        Raises: as `combine`.
        """
        return self._combined(cluster, settings, self.hub.after(self._listed_at))

    def _combined(self, cluster: Cluster, settings: Settings, read: HomeOfClusters) -> Observed:
        types = {*self._listed.copies, *self._listed.denied}
        rules = tuple(each for each in self._rules(read, settings) if each.copy_type in types)
        # It may have pulled copies of rules that were never pushed to it.
        may_pull = {} if settings.forgotten else read.pushed
        pulled = {stamp: "Retain" for stamp, clusters in may_pull.items() if self.name not in clusters}
        home = structs.replace(read.home, orphans={**read.home.orphans, **pulled})
        return combine(cluster, settings, self._listed, home, rules, self.uid)

    def _known(self, read: HomeOfClusters) -> tuple[Rule, ...]:
        """Return the rules that may have copies in the cluster."""
        selected = {name for name, clusters in read.selected.items() if self.name in clusters}
        return tuple(
            each for each in read.home.all_rules if each.name in selected or each.status.pushed.cluster(self.name)
        )

    def _rules(self, read: HomeOfClusters, settings: Settings) -> tuple[Rule, ...]:
        return () if settings.forgotten else rules_about(self.name, read.home.rules, read.selected, self.explains)
