"""Sources, rules and namespaces of sync-copies, and what their users change."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from soak.invariants import copies
from soak.invariants.copies.mistakes import OPT_IN
from soak.invariants.copies.stamps import JOB
from soak.invariants.reads import annotations_of, is_managed, is_terminating, labels_of
from soak.journal import Fault
from soak.lab import Action, Lab
from soak.observed import Invariant
from soak.tenants.rules import (
    CHANGES,
    MISTAKES,
    RULES,
    SHARED,
    TARGET_NAMES,
    changed,
    edit_of,
    first_sources,
    refusal_of,
)
from tests.apis import ApiError, Object
from tests.worlds import by_name, configmap, namespace_object, resource_quota, service_account

SOURCES = ("source-1", "source-2", "source-3")
TEAMS = tuple(f"team-{number}" for number in range(1, 8))
ACCOUNTS, OWN = ("build-1", "ci"), "own"  # ServiceAccounts of each team, and what they have in imagePullSecrets
TROUBLE_SECONDS = (40.0, 120.0)
MOST_TROUBLES = 2  # at the same time
LIFT = "kubectl "
_ERRORS = (ApiError, OSError, http.client.HTTPException, AssertionError)


@dataclass
class Trouble:
    """What a user did by mistake, until it is undone at a time."""

    fault: Fault
    until: float
    undo: Callable[[], None]


@dataclass
class Copies:
    """Users of rules, sources, namespaces and copies."""

    lab: Lab
    _troubles: list[Trouble] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._api, self._random, self._numbers = self.lab.api, self.lab.random("copies"), itertools.count(1)
        self._sources = first_sources()
        for name in (*SOURCES, *TEAMS):
            self._create_namespace(name)
        for each in (*self._sources, *RULES):
            self._api.put(each)

    def actions(self) -> Mapping[str, tuple[int, Action]]:
        """Return the actions by name, each with its weight."""
        return {
            "edit-source": (4, self._edit_source),
            "delete-source": (2, self._delete_source),
            "recreate-source": (2, self._recreate_source),
            "restore-sources": (4, self._restore_sources),
            "relabel-source": (3, self._relabel_source),
            "withdraw-many": (1, self._withdraw_many),
            "edit-copy": (8, self._edit_copy),
            "delete-copy": (5, self._delete_copy),
            "disown-copy": (1, self._disown_copy),
            "object-in-the-way": (2, self._put_in_the_way),
            "clear-the-way": (2, self._clear_the_way),
            "edit-account": (4, self._edit_account),
            "delete-account": (1, self._delete_account),
            "delete-namespace": (1, self._delete_namespace),
            "restore-namespaces": (4, self._restore_namespaces),
            "relabel-namespace": (3, self._relabel_namespace),
            "opt-out": (2, self._opt_out),
            "opt-in": (2, self._opt_in),
            "edit-rule": (8, self._edit_rule),
            "delete-rule": (1, self._delete_rule),
            "restore-rules": (3, self._restore_rules),
            **{name: (1, partial(self._if_few, act)) for name, act in self._mistakes().items()},
            "undo": (5, self._undo_old),
            "lift-brake": (2, self._lift),
        }

    def invariants(self) -> Sequence[Invariant]:
        """Return the invariants of copies."""
        return copies.invariants()

    def resolve(self) -> None:
        """Undo mistakes, restore what was deleted, and confirm blocked deletions."""
        for each in list(self._troubles):
            self._end(each)
        for repair in (
            self._restore_namespaces,
            self._restore_rules,
            self._restore_sources,
            self._clear_the_way,
            self._lift,
        ):
            with contextlib.suppress(*_ERRORS):
                repair()

    def end(self) -> None:
        """End nothing: all is in the cluster."""

    # what there is

    @staticmethod
    def _namespace(name: str) -> Object:
        labels = {"tier": "web" if name in ("team-1", "team-3", "team-5") else "data"}
        return namespace_object(name, labels=labels)

    def _create_namespace(self, name: str) -> None:
        """Create a namespace, and the ServiceAccounts of a team, if they are missing."""
        found = self._api.get(namespace_object(name))
        if found and is_terminating(found):
            return
        if not found:
            self._api.put(self._namespace(name))
        for account in (self._account(name, each) for each in (ACCOUNTS if name in TEAMS else ())):
            if not self._api.get(account):
                self._api.put(account)

    @staticmethod
    def _account(team: str, name: str) -> Object:
        return service_account(team, name, labels={}, imagePullSecrets=[{"name": OWN}])

    def _source(self) -> Object:
        return self._random.choice(self._sources)

    def _team(self) -> str:
        return self._random.choice(TEAMS)

    def _copies(self) -> list[Object]:
        kind, version = self._random.choice(
            (
                ("ConfigMap", "v1"),
                ("ConfigMap", "v1"),
                ("Secret", "v1"),
                ("NetworkPolicy", "networking.k8s.io/v1"),
                ("LimitRange", "v1"),
                ("ResourceQuota", "v1"),
                ("RoleBinding", "rbac.authorization.k8s.io/v1"),
                ("ServiceAccount", "v1"),
            )
        )
        return [each for each in self._api.items(version, kind) if is_managed(each, JOB)]

    def _copy(self) -> Object:
        found = self._copies()
        if not found:
            raise OSError("there is no copy of this kind")
        return dict(self._random.choice(found))

    # sources

    def _edit_source(self) -> None:
        self._edit(self._source())

    def _edit(self, obj: Object) -> None:
        self._api.patch(obj, edit_of(obj, self._random.choice(("a", "b", "c")), next(self._numbers)))

    def _delete_source(self) -> None:
        self._api.delete(self._source())

    def _recreate_source(self) -> None:
        """Delete a source and create it at once, perhaps immutable: its UID is another one."""
        source = self._source()
        self._api.delete(source)
        is_data = source["kind"] in ("ConfigMap", "Secret")
        immutable = {"immutable": True} if is_data and self._random.random() < 0.5 else {}
        self._api.put({**source, **immutable})

    def _restore_sources(self) -> None:
        """Create the sources that are missing, replace immutable ones, and label all again."""
        for source in self._sources:
            found = self._api.get(source)
            if found and found.get("immutable"):
                self._api.delete(source)
                found = None
            if not found:
                self._api.put(source)
            elif labels_of(found) != labels_of(source):
                labels = {**dict.fromkeys(labels_of(found)), **labels_of(source)}
                self._api.patch(source, {"metadata": {"labels": labels}})

    def _relabel_source(self) -> None:
        """Change a label that rules select, or one that copies can have."""
        source = self._random.choice([each for each in self._sources if {"share", "trust"} & labels_of(each).keys()])
        key = self._random.choice([*labels_of(source)])
        self._api.patch(
            source, {"metadata": {"labels": {key: self._random.choice((None, labels_of(source)[key], "no"))}}}
        )

    def _withdraw_many(self) -> None:
        """Remove the label of all ConfigMaps at once: too many deletions for a run."""
        for source in self._sources:
            if source["kind"] == "ConfigMap":
                self._api.patch(source, {"metadata": {"labels": {"share": None}}})

    # copies

    def _edit_copy(self) -> None:
        copy = self._copy()
        edits = (
            {"metadata": {"labels": {"example.com/team": f"t{next(self._numbers)}"}}},
            {"metadata": {"annotations": {"kubechores.dev/fingerprint": "0"}}},
            {"metadata": {"annotations": {"kubechores.dev/source": "elsewhere/other"}}},
        )
        if self._random.random() < 0.6:
            self._edit(copy)
        else:
            self._api.patch(copy, self._random.choice(edits))

    def _delete_copy(self) -> None:
        self._api.delete(self._copy())

    def _disown_copy(self) -> None:
        """Remove the label by which the job recognizes a copy: it is then an object of the tenant."""
        self._api.patch(self._copy(), {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}})

    def _put_in_the_way(self) -> None:
        """Create an object of a tenant, perhaps of another tool, where a rule requires a copy, or instead of a copy."""
        source = self._source()
        place = {"namespace": self._team(), "name": source["metadata"]["name"]}
        if self._random.random() < 0.7:
            source = self._copy()
            place = {name: source["metadata"][name] for name in place}
            self._api.delete(source)
        labels = self._random.choice(({}, {}, {"app.kubernetes.io/managed-by": "Helm"}))
        fields = {key: value for key, value in source.items() if key not in ("metadata", "status")}
        made = {**fields, "metadata": {**place, "labels": labels}}
        self._api.call("POST", self._api.path(made, named=False), made)

    def _clear_the_way(self) -> None:
        """Delete the objects that tenants have where rules require copies."""
        names = {*TARGET_NAMES, *(source["metadata"]["name"] for source in self._sources)}
        for team in TEAMS:
            for version, kind in {(each["apiVersion"], each["kind"]) for each in self._sources}:
                for found in self._api.items(version, kind, team):
                    if found["metadata"]["name"] in names and not is_managed(found, JOB):
                        self._api.delete(found)

    # ServiceAccounts

    def _edit_account(self) -> None:
        """Replace imagePullSecrets, also those that the job added, or add to them."""
        account = self._api.read(self._account(self._team(), self._random.choice((*ACCOUNTS, "default"))))
        kept = (account.get("imagePullSecrets") or []) if self._random.random() < 0.5 else []
        entry = {"name": self._random.choice((OWN, "registry", f"mirror-{next(self._numbers)}"))}
        self._api.patch(account, {"imagePullSecrets": [*(each for each in kept if each != entry), entry]})

    def _delete_account(self) -> None:
        self._api.delete(self._account(self._team(), self._random.choice(ACCOUNTS)))

    # namespaces

    def _delete_namespace(self) -> None:
        self._api.delete(namespace_object(self._team()))

    def _restore_namespaces(self) -> None:
        for name in (*SOURCES, *TEAMS):
            self._create_namespace(name)

    def _relabel_namespace(self) -> None:
        tier = self._random.choice(("web", "data"))
        self._api.patch(namespace_object(self._team()), {"metadata": {"labels": {"tier": tier}}})

    def _opt_out(self) -> None:
        self._opt(self._team(), self._random.choice(("false", "False")))

    def _opt_in(self) -> None:
        out = [each for each in self._api.items("v1", "Namespace") if OPT_IN in annotations_of(each)]
        if out:
            self._opt(self._random.choice(out)["metadata"]["name"], None)

    def _opt(self, team: str, value: str | None) -> None:
        self._api.patch(namespace_object(team), {"metadata": {"annotations": {OPT_IN: value}}})

    # rules

    def _edit_rule(self) -> None:
        """Let one or two fields of a rule have other values than at first, or none."""
        chosen = self._random.choice(RULES)
        by_field: dict[str, list[Object]] = {}
        for change in CHANGES[chosen["metadata"]["name"]]:
            by_field.setdefault(next(iter(change)), []).append(change)
        fields = self._random.sample(sorted(by_field), self._random.randint(0, 2))
        self._replace_if_there(changed(chosen, *(self._random.choice(by_field[field]) for field in fields)))

    def _replace_if_there(self, obj: Object) -> None:
        if self._api.get(obj):
            self._api.replace(obj)

    def _delete_rule(self) -> None:
        self._api.delete(self._random.choice(RULES))

    def _restore_rules(self) -> None:
        for each in RULES:
            if not self._api.get(each):
                self._api.put(each)

    # mistakes, which make runs fail or copies be not as required until they are undone

    def _mistakes(self) -> Mapping[str, Action]:
        return {
            "fill-quota": self._fill_quota,
            "typo-in-rule": self._mistake,
            "refused-source": self._refuse,
            "claim-a-name": self._claim,
            "shadow-a-name": self._shadow,
            "delete-source-namespace": self._delete_source_namespace,
        }

    def _if_few(self, act: Action) -> None:
        if len(self._troubles) < MOST_TROUBLES:
            act()

    def _begin(self, kind: str, detail: str, undo: Callable[[], None]) -> None:
        until = time.time() + self._random.uniform(*TROUBLE_SECONDS)
        self._troubles.append(Trouble(self.lab.journal.begin(f"tenant-copies-{kind}", detail), until, undo))

    def _undo_old(self) -> None:
        for each in list(self._troubles):
            if each.until < time.time():
                self._end(each)

    def _end(self, trouble: Trouble) -> None:
        with contextlib.suppress(*_ERRORS):
            trouble.undo()
            self._troubles.remove(trouble)
            self.lab.journal.end(trouble.fault)

    def _fill_quota(self) -> None:
        """Let a namespace accept no more ConfigMaps and Secrets."""
        hard = {"count/configmaps": "1", "count/secrets": "0"}
        full = resource_quota(self._team(), "full", labels={}, spec={"hard": hard})
        self._api.put(full)
        self._begin("quota", full["metadata"]["namespace"], lambda: self._delete_if_there(full))

    def _mistake(self) -> None:
        """Let a rule name a label or a namespace that nothing has."""
        chosen = self._random.choice([each for each in RULES if "selector" in each["spec"]])
        self._replace_if_there(changed(chosen, self._random.choice(MISTAKES)))
        self._begin("mistake", chosen["metadata"]["name"], lambda: self._replace_if_there(chosen))

    def _refuse(self) -> None:
        """Let a source have something else than certificates: its copies stay as they are."""
        source = self._random.choice([each for each in self._sources if _has_certificates(each)])
        self._api.patch(source, refusal_of(source))

        def undo() -> None:
            self._delete_if_there(source)  # it may be immutable
            self._api.put(source)

        self._begin("refusal", f"{source['metadata']['namespace']}/{source['metadata']['name']}", undo)

    def _claim(self) -> None:
        """Create a rule and a source with the name of another source: no new copy of either is created."""
        claiming = configmap("source-2", "settings", labels={}, data={"claimed": "true"})
        of_source = by_name("claim", "source-2", "team-*", names=["settings"])
        for each in (claiming, of_source):
            self._api.put(each)

        def undo() -> None:
            for each in (of_source, claiming):
                self._delete_if_there(each)

        self._begin("claim", "source-2/settings", undo)

    def _shadow(self) -> None:
        """Create a source with the name of another one in a later namespace of the rule: the first one is copied."""
        later = configmap("source-2", "settings", labels=SHARED, data={"claimed": "true"})
        self._api.put(later)
        self._begin("shadow", "source-2/settings", lambda: self._delete_if_there(later))

    def _delete_source_namespace(self) -> None:
        name = self._random.choice(SOURCES)
        self._api.delete(namespace_object(name))
        self._begin("source-namespace", name, self._restore_sources_of_namespaces)

    def _restore_sources_of_namespaces(self) -> None:
        self._restore_namespaces()
        self._restore_sources()

    def _delete_if_there(self, obj: Object) -> None:
        if self._api.get(obj):
            self._api.delete(obj)

    def _lift(self) -> None:
        """Run the command that a run printed whose deletions were blocked, unless a later run was not blocked."""
        path = "/api/v1/namespaces/kube-chores/pods?labelSelector=app.kubernetes.io/component=sync-copies"
        pods = self._api.call("GET", path)["items"]
        ended = [each for each in pods if _exit_code(each) is not None]
        latest = max(ended, key=lambda each: str(each["metadata"]["creationTimestamp"]), default=None)
        if latest is None or _exit_code(latest) != 4 or self._troubles:
            return
        _, _, log = self._api.request("GET", f"/api/v1/namespaces/kube-chores/pods/{latest['metadata']['name']}/log")
        for line in log.decode().splitlines():
            if line.strip().startswith(LIFT):
                self.lab.kubectl.shell(line.strip())


def _has_certificates(source: Object) -> bool:
    return any(each.endswith(".crt") for each in source.get("data") or {})


def _exit_code(pod: Object) -> int | None:
    statuses = pod["status"].get("containerStatuses") or []
    return next((each["state"]["terminated"]["exitCode"] for each in statuses if "terminated" in each["state"]), None)
