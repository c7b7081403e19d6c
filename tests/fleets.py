"""A hub and its spokes, all real, and what a run of the hub is allowed to change in the spokes."""

import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from tests.api.conftest import Ran, runs
from tests.apis import Api, wait_for
from tests.canary import canary
from tests.control_plane import ROOT
from tests.fleet_model import InCluster, Memory, Objects, Place, desired, is_as_desired, is_copy, place
from tests.manifests import everything, load
from tests.planes import OWN, PLURALS, Plane, answers, uid_of
from tests.policies import wait_until_policies_act
from tests.worlds import encoded, namespace_object, secret

Object = dict[str, Any]
HOMES = ("annex", "home")  # the namespaces of the sources in the hub
LOCAL = "local"  # that of the sources of a spoke with rules of its own
TARGETS = ("home", "ops", "team-a", "team-b", LOCAL)
LABEL = "kubechores.dev/cluster"
NO_UID = "00000000-0000-0000-0000-000000000000"
ACCOUNT = "sync-copies-clusters"


@dataclass
class Entry:
    """A cluster of the inventory, and the labels of its Secret. Without a `kubeconfig`, that has another value."""

    spoke: str
    labels: Mapping[str, str]
    kubeconfig: Object | None


@dataclass(frozen=True)
class Seen:
    """A spoke at a moment: its objects and namespaces, and what answers the credentials of its entries, by name."""

    objects: Objects
    namespaces: Mapping[str, Object]
    answers: Mapping[str, tuple[str, frozenset[str]]]


@dataclass(frozen=True)
class Facts:
    """The hub at a moment: its rules, sources and namespaces, and the kinds that the account of the job can list."""

    rules: Mapping[str, Object]
    sources: Objects
    namespaces: frozenset[str]
    kinds: frozenset[str]
    reads_rules: bool


@dataclass
class Fleet:
    """The clusters, what is in the inventory, and what runs of the hub have found so far.

    `codes` are the findings of all runs. `unsure` are entries that answered only at the beginning or only at the end
    of a run, with the uid.
    """

    hub: Plane
    spokes: Mapping[str, Plane]
    random: random.Random
    inventory: dict[str, Entry] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    unsure: dict[str, str] = field(default_factory=dict)
    uid: str = ""
    codes: Counter[str] = field(default_factory=Counter)

    def install(self) -> None:
        """Install kube-chores in the hub and in the spoke west, and the account of the hub in each spoke."""
        for each in everything():
            self.hub.api.put(each)
        for name in HOMES:
            self.hub.api.put(namespace_object(name))
        self.uid = uid_of(self.hub.api)
        for name, spoke in self.spokes.items():
            for each in everything() if name == "west" else ():
                spoke.api.put(each)
            self.install_spoke(name)
            self.enlist(name, name)

    def install_spoke(self, name: str) -> None:
        """Install what a new spoke needs, and the namespaces of the test."""
        api = self.spokes[name].api
        self._install_account(name)
        for namespace in TARGETS:
            api.put(namespace_object(namespace))
        wait_until_policies_act(api)

    def _install_account(self, name: str) -> None:
        """Install what `chores manifests --spoke` prints, where it is missing."""
        api = self.spokes[name].api
        for each in load(ROOT / "cronjobs" / "spoke"):
            api.put(json.loads(json.dumps(each).replace(NO_UID, self.uid)))

    # the inventory

    def enlist(self, name: str, spoke: str, **labels: str) -> None:
        """Add or renew an entry with new credentials of the account of the hub in a spoke."""
        api = self.spokes[spoke].api
        kubeconfig = self.spokes[spoke].kubeconfig(api.service_account_token("kube-chores", "sync-copies-hub"))
        self.write_entry(name, Entry(spoke, labels or {"env": "prod"}, kubeconfig))

    def write_entry(self, name: str, entry: Entry) -> None:
        self.inventory[name] = entry
        value = yaml.safe_dump(entry.kubeconfig) if entry.kubeconfig else canary()
        made = secret("kube-chores", name, labels={LABEL: "true", **entry.labels}, data={"value": encoded(value)})
        self.hub.api.replace(made) if self.hub.api.get(made) else self.hub.api.create(made)

    def remove_entry(self, name: str) -> None:
        del self.inventory[name]
        self.hub.api.delete(secret("kube-chores", name))

    # what is there

    def facts(self) -> Facts:
        api = self.hub.api
        found = api.items("kubechores.dev/v1", "CopyratorRule", "kube-chores")
        namespaces = frozenset(each["metadata"]["name"] for each in api.items("v1", "Namespace"))
        sources = {at: each for at, each in objects(api).items() if at[1] in HOMES}
        _, kinds = answers(self.hub.kubeconfig(self.token()))
        rules = {each["metadata"]["name"]: each for each in found}
        return Facts(rules, sources, namespaces, kinds, self.reads_rules())

    def token(self) -> str:
        return self.hub.api.service_account_token("kube-chores", ACCOUNT)

    def reads_rules(self) -> bool:
        path = "/apis/kubechores.dev/v1/namespaces/kube-chores/copyrators"
        return self.hub.api.request("GET", path, token=self.token())[0] == 200

    def seen(self, name: str) -> Seen | None:
        """The spoke as it is now; None while it is down."""
        spoke = self.spokes[name]
        if not spoke.is_up:
            return None
        namespaces = {each["metadata"]["name"]: each for each in spoke.api.items("v1", "Namespace")}
        entries = {key: each.kubeconfig for key, each in self.inventory.items() if each.spoke == name}
        return Seen(objects(spoke.api), namespaces, {key: answers(each) for key, each in entries.items() if each})

    # runs

    def run(self, *arguments: str, forget: str = "") -> Ran:
        """Run the job in the hub, and check what it changed in the spokes."""
        facts, before = self.facts(), {name: self.seen(name) for name in self.spokes}
        account = self.hub.api.service_account_kubeconfig("kube-chores", ACCOUNT)
        chosen = ("--forget-cluster", forget) if forget else ("--clusters", "*")
        ran = runs("sync-copies", account)("-n", "kube-chores", *chosen, *arguments)
        assert ran.exit_code in (0, 1, 2, 4), ran
        self.codes.update(ran.summary if ran.stdout else {"hub not read": 1})
        print("   run", *chosen, *arguments, ran.exit_code, ran.summary if ran.stdout else ran.stderr)  # noqa: T201
        for name in self.spokes:
            self._check(name, before[name], self.seen(name), facts, forget, is_confirmed=bool(arguments))
        if forget and ran.exit_code == 0:
            uids = self.memory.known(forget, facts.rules.values()) | {self.unsure.get(forget, "")}
            self.memory.forget(forget)
            self.unsure = {name: uid for name, uid in self.unsure.items() if name != forget and uid not in uids}
        return ran

    def _check(
        self, spoke: str, before: Seen | None, after: Seen | None, facts: Facts, forget: str, is_confirmed: bool
    ) -> None:
        if not before or not after:
            return
        assert before.namespaces == after.namespaces
        changed = changes(before.objects, after.objects)
        both = [each for at in changed for each in (before.objects.get(at), after.objects.get(at)) if each]
        assert [place(each) for each in both if not is_copy(each, self.uid)] == [], "not of the hub"
        answered = {name for name, (uid, _) in (*before.answers.items(), *after.answers.items()) if uid}
        uids = {name: before.answers[name][0] or after.answers[name][0] for name in answered}
        if forget:
            assert not changed or (forget in answered and not changed & after.objects.keys()), changed
        elif self._is_in_doubt(uids) or (len(answered) > 1 and before.answers != after.answers):
            self.unsure |= uids
        elif len(names := self._served(uids, facts)) != 1 or not facts.reads_rules:
            assert not changed, f"{spoke}: {answered} answered, reads rules: {facts.reads_rules}"
        else:
            self._check_one(names.pop(), before, after, facts, is_confirmed)

    def _is_in_doubt(self, uids: Mapping[str, str]) -> bool:
        """Whether a run may or may not know one of these clusters under another name."""
        return any(uid in uids.values() for name, uid in self.unsure.items() if name not in uids)

    def _served(self, uids: Mapping[str, str], facts: Facts) -> set[str]:
        """The names under which a run may write to a spoke: one that is known, or the only one.

        Names that do not answer count, and those that left.
        """
        known = {name: self.memory.names(uid, facts.rules.values()) for name, uid in uids.items()}
        return {name for name, names in known.items() if names == {name} or (not names and len(uids) == 1)}

    def _check_one(self, name: str, before: Seen, after: Seen, facts: Facts, is_confirmed: bool) -> None:
        """Check a spoke that answered, or may have answered, the credentials of one entry."""
        members = {key: each.labels for key, each in self.inventory.items()}
        state = InCluster(name, members, facts.rules, facts.sources, facts.namespaces, before.namespaces)
        changed, wanted = changes(before.objects, after.objects), state.desired()
        first, last = before.answers[name], after.answers[name]
        is_sure, uid, kinds = first == last, first[0] or last[0], first[1] | last[1]
        is_sure_before = self.unsure.get(name, uid) == uid
        known = self.memory.known(name, facts.rules.values()) if is_sure and is_sure_before else {uid}
        if known - {uid}:
            assert not changed, f"{name} is another cluster"
            return
        unread = {each["spec"]["ruleType"] for each in facts.rules.values()} - {each.lower() for each in facts.kinds}
        unread |= {each["spec"]["ruleType"] for each in state.own_rules} - {each.lower() for each in kinds}
        for at in sorted(changed):
            if at in after.objects:
                assert at in wanted and is_as_desired(after.objects[at], wanted[at]), f"{name}: {at} was written"
                continue
            copy = before.objects[at]
            assert at not in wanted, f"{name}: {at} was deleted, and is required"
            assert not unread, f"{name}: {at} was deleted, and {unread} cannot be read"
            assert not state.is_retained(copy), f"{name}: {at} was deleted, and is retained"
            assert is_confirmed or not state.is_blocked(copy, self.memory), f"{name}: {at} was deleted by mistake"
        if is_sure and is_sure_before:
            self.unsure.pop(name, None)
            found = {at: after.objects.get(at) for at in wanted if at[0] in kinds & facts.kinds}
            ours = {at: each for at, each in found.items() if each is None or is_copy(each, self.uid)}
            missing = [at for at, each in ours.items() if not (each and is_as_desired(each, wanted[at]))]
            assert missing == [], f"{name}: not as desired"
        else:
            self.unsure[name] = uid
        state.remember(uid, self.memory, kinds & facts.kinds)

    def run_local(self, name: str) -> None:
        """Run the job of a spoke with rules of its own, and check that it changed only its own copies."""
        spoke = self.spokes[name]
        before = objects(spoke.api)
        namespaces = spoke.api.items("v1", "Namespace")
        rules = spoke.api.items("kubechores.dev/v1", "CopyratorRule", "kube-chores")
        account = spoke.api.service_account_kubeconfig("kube-chores", "sync-copies")
        ran = runs("sync-copies", account)("-n", "kube-chores")
        assert ran.exit_code in (0, 2, 4), ran
        print("   run of", name, ran.exit_code, ran.summary)  # noqa: T201
        after = objects(spoke.api)
        both = [each for at in changes(before, after) for each in (before.get(at), after.get(at)) if each]
        assert [place(each) for each in both if not is_copy(each, "")] == [], "not of the spoke"
        for at, source in local_copies(rules, before, namespaces).items():
            copy = after.get(at)
            assert copy and (not is_copy(copy, "") or is_as_desired(copy, source)), at

    # how faults end

    def heal(self, name: str) -> None:
        """End the faults of a spoke: it is up, with its own data, and the hub has new credentials with all rights."""
        spoke = self.spokes[name]
        if spoke.data != OWN:
            spoke.become(OWN)
        elif not spoke.is_up:
            spoke.start()
        self._install_account(name)
        labels = self.inventory[name].labels if name in self.inventory else {}
        self.enlist(name, name, **labels)
        wait_for(lambda: self.is_healthy(name), f"{name} to answer")

    def is_healthy(self, name: str) -> bool:
        """Whether a spoke answers the credentials of its entry, and is not another cluster."""
        entry = self.inventory.get(name)
        is_answering = entry and entry.kubeconfig and answers(entry.kubeconfig)[1] == PLURALS.keys()
        return bool(is_answering) and self.spokes[name].data == OWN

    def heal_hub(self) -> None:
        for each in everything():
            if each["kind"].endswith(("Role", "RoleBinding")) and "sync-copies-clusters" in each["metadata"]["name"]:
                self.hub.api.put(each)
        wait_for(lambda: self.reads_rules(), "the right to list rules")
        wait_for(lambda: answers(self.hub.kubeconfig(self.token()))[1] == PLURALS.keys(), "the right to list sources")


def objects(api: Api) -> dict[Place, Object]:
    """All ConfigMaps and Secrets, whole."""
    return {place(each): each for kind in PLURALS for each in api.items("v1", kind)}


def changes(before: Objects, after: Objects) -> set[Place]:
    return {at for at in before.keys() | after.keys() if before.get(at) != after.get(at)}


def local_copies(rules: Iterable[Object], found: Objects, namespaces: Iterable[Object]) -> dict[Place, Object]:
    """What rules of a cluster itself require there."""
    copies = desired(rules, found, list(namespaces))
    return {at: source for at, source in copies.items() if at != place(source)}
