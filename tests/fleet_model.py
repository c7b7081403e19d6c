"""What rules require in a cluster, and which of its copies stay: on a page, and without the code of jobs/.

It is simpler than the job: names of sources differ between namespaces, so that no two sources claim one place.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from tests.worlds import content

Object = dict[str, Any]
Place = tuple[str, str, str]  # kind, namespace, name
Objects = Mapping[Place, Object]


def place(obj: Object) -> Place:
    return obj["kind"], obj["metadata"]["namespace"], obj["metadata"]["name"]


def is_copy(obj: Object | None, hub: str) -> bool:
    """Whether it is a copy of rules in namespace kube-chores of a hub; of the cluster itself if that is empty."""
    labels = obj["metadata"].get("labels", {}) if obj else {}
    names = ("app.kubernetes.io/managed-by", "kubechores.dev/job", "kubechores.dev/rule-namespace")
    stamp = [labels.get(each) for each in names]
    return stamp == ["kube-chores", "sync-copies", "kube-chores"] and labels.get("kubechores.dev/hub", "") == hub


def selects_cluster(rule: Object, name: str, labels: Mapping[str, str]) -> bool:
    clusters = rule["spec"]["targets"]["clusters"]
    return _matches(name, clusters.get("names", ["*"])) and _has(labels, clusters.get("selector", {}))


def sources(rule: Object, objects: Objects) -> list[Object]:
    spec = rule["spec"]
    return [
        each
        for (kind, namespace, _), each in objects.items()
        if kind.lower() == spec["ruleType"] and namespace in spec["namespaces"]
        if _has(each["metadata"].get("labels", {}), spec["selector"]) and not is_copy(each, "")
        if "kubechores.dev/hub" not in each["metadata"].get("labels", {})
    ]


def targets(rule: Object, namespaces: Iterable[Object]) -> list[str]:
    spec = rule["spec"]["targets"]
    return [
        each["metadata"]["name"]
        for each in namespaces
        if _matches(each["metadata"]["name"], spec["include"]) and not each["metadata"]["name"].startswith("kube-")
        if _has(each["metadata"].get("labels", {}), spec.get("namespaceSelector", {})) and not is_opted_out(each)
    ]


def is_opted_out(namespace: Object) -> bool:
    return bool(namespace["metadata"].get("annotations", {}).get("kubechores.dev/copies") == "false")


def desired(rules: Iterable[Object], objects: Objects, namespaces: Collection[Object]) -> dict[Place, Object]:
    """The source of each place where the rules require a copy."""
    return {
        (source["kind"], namespace, source["metadata"]["name"]): source
        for rule in rules
        for source in sources(rule, objects)
        for namespace in targets(rule, namespaces)
    }


def is_as_desired(obj: Object, source: Object) -> bool:
    annotations, at = obj["metadata"].get("annotations", {}), source["metadata"]
    is_of_it = annotations.get("kubechores.dev/source") == f"{at['namespace']}/{at['name']}"
    return is_of_it and content(obj) == content(source)


@dataclass
class Memory:
    """What runs found: by the uid of a rule and cluster, the uid that answered, and the generation that had a copy."""

    uids: dict[tuple[str, str], str] = field(default_factory=dict)
    selected: dict[tuple[str, str], int] = field(default_factory=dict)

    def known(self, cluster: str, rules: Iterable[Object]) -> set[str]:
        """The uids that a cluster had."""
        found = {self.uids.get((each["metadata"]["uid"], cluster), "") for each in rules}
        return found - {""}

    def names(self, uid: str, rules: Iterable[Object]) -> set[str]:
        """The names under which a cluster is known."""
        existing = {each["metadata"]["uid"] for each in rules}
        return {name for (rule, name), known in self.uids.items() if known == uid and rule in existing}

    def forget(self, cluster: str) -> None:
        """Forget a cluster, under all its names."""
        uids = {uid for key, uid in self.uids.items() if key[1] == cluster}
        names = {cluster} | {key[1] for key, uid in self.uids.items() if uid in uids}
        self.uids = {key: uid for key, uid in self.uids.items() if key[1] not in names}
        self.selected = {key: generation for key, generation in self.selected.items() if key[1] not in names}


@dataclass(frozen=True)
class InCluster:
    """What is true of a cluster of the inventory while a run reads it. `members` are the labels of all, by name."""

    name: str
    members: Mapping[str, Mapping[str, str]]
    rules: Mapping[str, Object]
    sources: Objects
    source_namespaces: Collection[str]
    namespaces: Mapping[str, Object]

    @property
    def own_rules(self) -> list[Object]:
        """The rules that select it."""
        return [each for each in self.rules.values() if selects_cluster(each, self.name, self.members[self.name])]

    def desired(self) -> dict[Place, Object]:
        return desired(self.own_rules, self.sources, self.namespaces.values())

    def is_retained(self, copy: Object) -> bool:
        """Whether a copy stays although no rule requires it."""
        orphans, rule = copy["metadata"]["annotations"]["kubechores.dev/orphans"], self._rule_of(copy)
        return bool((rule["spec"].get("orphans") if rule else orphans) == "Retain")

    def is_blocked(self, copy: Object, memory: Memory) -> bool:
        """Whether a copy stays until a person confirms its deletion: the rule that it was made for may be mistaken."""
        rule = self._rule_of(copy)
        opted_out = is_opted_out(self.namespaces[copy["metadata"]["namespace"]])
        return rule is not None and not opted_out and self._may_be_mistaken(rule, memory)

    def _rule_of(self, copy: Object) -> Object | None:
        return self.rules.get(copy["metadata"]["annotations"]["kubechores.dev/rule"].partition("/")[2])

    def _may_be_mistaken(self, rule: Object, memory: Memory) -> bool:
        """Whether it selects no cluster, names a missing namespace, or never selected anything here as it is now."""
        is_about = rule in self.own_rules
        if not is_about and any(selects_cluster(rule, *each) for each in self.members.items()):
            return False
        if not is_about or not {*rule["spec"]["namespaces"]} <= {*self.source_namespaces}:
            return True
        found = memory.selected.get((rule["metadata"]["uid"], self.name))
        return not self._selects(rule) and found != rule["metadata"]["generation"]

    def remember(self, uid: str, memory: Memory, kinds: Collection[str]) -> None:
        """Remember what a run found that could read sources and copies of these kinds."""
        for each in self.own_rules:
            key = each["metadata"]["uid"], self.name
            memory.uids[key] = uid
            if not {*each["spec"]["namespaces"]} <= {*self.source_namespaces}:
                memory.selected.pop(key, None)
            elif each["spec"]["ruleType"] in map(str.lower, kinds) and self._selects(each):
                memory.selected[key] = each["metadata"]["generation"]

    def _selects(self, rule: Object) -> bool:
        return bool(desired([rule], self.sources, self.namespaces.values()))


def _matches(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, each) for each in globs)


def _has(labels: Mapping[str, str], selector: Object) -> bool:
    return bool(selector.get("matchLabels", {}).items() <= labels.items())
