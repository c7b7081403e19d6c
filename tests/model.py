"""What CopyratorRules require in a cluster: docs/copyratorrule.md without the code of jobs/."""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

Object = dict[str, Any]
Place = tuple[str, str, str]  # kind, namespace, name
FIELDS = {
    "ConfigMap": ("data", "binaryData", "immutable"),
    "Secret": ("type", "data", "immutable"),
    "NetworkPolicy": ("spec",),
    "LimitRange": ("spec",),
    "ResourceQuota": ("spec",),
    "RoleBinding": ("roleRef", "subjects"),
    "ServiceAccount": ("imagePullSecrets", "automountServiceAccountToken"),
}
KINDS = {kind.lower(): kind for kind in FIELDS}
NEVER_COPIED = ("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default"), ("Secret", "roll-workloads-key")
CREDENTIALS = re.compile(r"kubernetes\.io/service-account-token|bootstrap\.kubernetes\.io/|helm\.sh/")
RESERVED = re.compile(r"(sync-copies|fetch-rates|mirror-audit|mirror-repair|roll-workloads|farm-pods)(-\w+)?-settings$")
OF_TYPE = {  # the keys that a Secret of the type must have
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
PULLS = ("kubernetes.io/dockerconfigjson", "kubernetes.io/dockercfg")
CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----\n([A-Za-z0-9+/=\n]+?)\n?-----END CERTIFICATE-----\s*")


@dataclass(frozen=True)
class Copy:
    """A copy that a rule requires. `refused`: its source cannot be copied, and a copy that exists stays."""

    rule: str
    source: str  # as the stamp names it: namespace/name, with its kind if that is another one; of a bundle, the rule
    content: Object
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    orphans: str = "Delete"
    refused: bool = False


def desired(
    rules: Iterable[Object], objects: Iterable[Object], namespaces: Sequence[Object]
) -> dict[Place, list[Copy]]:
    """What the rules require, by place. Several copies collide; of one source and content, the first rule's is made."""
    objects = list(objects)
    found: dict[Place, list[Copy]] = {}
    for rule in sorted(rules, key=lambda each: str(each["metadata"]["name"])):
        for group in _groups(rule, [each for each in objects if selects(rule, each)]):
            for namespace in namespaces:
                if not is_target(rule, namespace, group):
                    continue
                copy = _copy(rule, group, namespace["metadata"]["name"])
                others = found.setdefault(_place(rule, group, namespace["metadata"]["name"]), [])
                if (copy.source, copy.content) not in [(each.source, each.content) for each in others]:
                    others.append(copy)
    return found


def wrong(
    before: Mapping[Place, Object], after: Mapping[Place, Object], rules: Sequence[Object], namespaces: Sequence[Object]
) -> Iterator[str]:
    """Yield what is not as rules require after a run of objects that were there before it."""
    for at, every in desired(rules, before.values(), namespaces).items():
        found, was, usable = after.get(at), before.get(at), [each for each in every if not each.refused]
        source = source_of(was) if was and is_managed(was) else ""
        # A copy of a source that another one shadows follows it.
        only = [each for each in before.values() if source.endswith("/".join(place(each)[1:]))]
        same = [each for each in every + desired(rules, only, namespaces).get(at, []) if each.source == source]
        stays = bool(same) and all(each.refused for each in same)
        if found == was:
            is_due = len(usable) == 1 and not stays and (was is None or _is_due(was, usable[0]))
            is_right = not is_due or is_as(was, usable[0])
        elif found is None:
            is_right = bool(source) and not usable and not stays
        else:
            copies = [each for each in same + usable * (len(usable) == 1) if not each.refused and not stays]
            is_right = any(is_as(found, each) for each in copies)
        if not is_right:
            yield f"{at} is not as {', '.join(each.rule for each in every)} require: {was} became {found}"


def _is_due(was: Object, copy: Copy) -> bool:
    """Whether an object must become the copy: it is one of this source, or of its rule from the same namespace."""
    rule = was["metadata"].get("annotations", {}).get("kubechores.dev/rule", "").partition("/")[2]
    namespaces = [each.split("/")[-2:-1] for each in (source_of(was), copy.source)]
    is_moved = rule == copy.rule and namespaces[0] == namespaces[1]
    return is_managed(was) and (is_moved or source_of(was) == copy.source)


def source_of(copy: Object) -> str:
    """The source of a copy, as it is annotated."""
    return str(copy["metadata"].get("annotations", {}).get("kubechores.dev/source", ""))


def is_as(obj: Object | None, copy: Copy) -> bool:
    """Whether an object is the copy that is required. Labels and annotations of others stay."""
    if obj is None:
        return False
    labels, annotations = obj["metadata"].get("labels", {}), obj["metadata"].get("annotations", {})
    return bool(
        copy.source == source_of(obj)
        and {key: obj[key] for key in FIELDS[obj["kind"]] if obj.get(key) or obj.get(key) is False} == copy.content
        and copy.labels.items() <= labels.items()
        and copy.annotations.items() <= annotations.items()
        and annotations.get("kubechores.dev/orphans") == copy.orphans
    )


def selects(rule: Object, obj: Object) -> bool:
    """Whether an object is a source of the rule."""
    spec, metadata = rule["spec"], obj["metadata"]
    return (
        obj["kind"] == KINDS[spec["ruleType"]]
        and metadata["namespace"] in spec.get("namespaces", [rule["metadata"]["namespace"]])
        and metadata["name"] in spec.get("names", [metadata["name"]])
        and matches(spec.get("selector"), metadata.get("labels") or {})
        and not is_never_copied(obj)
    )


def place(obj: Object) -> Place:
    """The place of an object."""
    return obj["kind"], obj["metadata"]["namespace"], obj["metadata"]["name"]


def is_managed(obj: Object) -> bool:
    """Whether it is a copy, or another object of kube-chores."""
    labels = obj["metadata"].get("labels") or {}
    return labels.get("app.kubernetes.io/managed-by") == "kube-chores" and "kubechores.dev/job" in labels


def is_never_copied(obj: Object) -> bool:
    """Whether no rule copies it."""
    labels, name = obj["metadata"].get("labels") or {}, obj["metadata"]["name"]
    return bool(
        is_managed(obj)
        or (obj["kind"], name) in NEVER_COPIED
        or (obj["kind"] in ("ConfigMap", "Secret") and (name.startswith("sh.helm.release.") or RESERVED.match(name)))
        or CREDENTIALS.match(obj.get("type", ""))
        or obj.get("roleRef", {}).get("kind") == "Role"
        or "kubernetes.io/bootstrapping" in labels
        or (obj["kind"] == "Secret" and "kubechores.dev/cluster" in labels)
    )


def is_target(rule: Object, namespace: Object, group: Sequence[Object]) -> bool:
    """Whether the copy of these sources belongs to a namespace."""
    targets, metadata = rule["spec"].get("targets", {}), namespace["metadata"]
    name, allowed = metadata["name"], (metadata.get("annotations") or {}).get("kubechores.dev/copies", "")
    include = targets.get("include", ["*"])
    is_elsewhere = "clusters" in targets and not targets.get("local")
    if is_elsewhere or metadata.get("deletionTimestamp") or allowed.lower() == "false":
        return False
    if name.startswith("kube-") and (name not in include or allowed.lower() != "true"):
        return False
    if "merge" not in rule["spec"] and name == group[0]["metadata"]["namespace"]:
        return False
    return (
        any(fnmatchcase(name, each) for each in include)
        and not any(fnmatchcase(name, each) for each in targets.get("exclude", []))
        and matches(targets.get("namespaceSelector"), metadata.get("labels") or {})
    )


def matches(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Whether labels match a label selector."""
    selector = selector or {}
    every = [labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or []:
        is_in, has = labels.get(each["key"]) in each.get("values", []), each["key"] in labels
        every.append({"In": is_in, "NotIn": not is_in, "Exists": has, "DoesNotExist": not has}[each["operator"]])
    return all(every)


def _groups(rule: Object, sources: list[Object]) -> list[list[Object]]:
    """The sources of each copy: all for a bundle, else one. Of those for one name, the first namespace is used."""
    order = rule["spec"].get("namespaces", [rule["metadata"]["namespace"]])
    sources = sorted(sources, key=lambda each: (order.index(each["metadata"]["namespace"]), each["metadata"]["name"]))
    if "merge" in rule["spec"]:
        return [sources] * bool(sources)
    first: dict[str, str] = {}
    for each in sources:
        first.setdefault(_name(rule, each), each["metadata"]["namespace"])
    return [[each] for each in sources if first[_name(rule, each)] == each["metadata"]["namespace"]]


def _name(rule: Object, source: Object) -> str:
    return str(rule["spec"].get("targetName", source["metadata"]["name"]))


def _place(rule: Object, group: Sequence[Object], namespace: str) -> Place:
    kind = rule["spec"].get("copyAs", {}).get("kind", group[0]["kind"])
    return kind, namespace, _name(rule, group[0])


def _copy(rule: Object, group: Sequence[Object], namespace: str) -> Copy:
    spec, source = rule["spec"], group[0]["metadata"]
    wanted = spec.get("metadata", {})
    copied = [source.get(each) or {} for each in ("labels", "annotations")]
    labels, annotations = (
        {key: of[key] for key in wanted.get(f"copy{name.title()}", []) if key in of} | wanted.get(name, {})
        for name, of in zip(("labels", "annotations"), copied, strict=True)
    )
    kind, of = ("CopyratorRule", rule["metadata"]) if "merge" in spec else (group[0]["kind"], source)
    at = f"{of['namespace']}/{of['name']}"
    at = f"{kind}/{at}" if _place(rule, group, namespace)[0] != kind else at
    contents = [content(spec, each, namespace) for each in group]
    made = contents[0] if "merge" not in spec else bundle(spec, contents)
    orphans = spec.get("orphans", "Delete")
    return Copy(
        rule["metadata"]["name"], at, made or {}, labels, annotations, orphans, made is None or None in contents
    )


def content(spec: Object, source: Object, namespace: str) -> Object | None:
    """The content of the copy of a source; None if the source is refused."""
    made = {key: source[key] for key in FIELDS[source["kind"]] if key in source}
    form = spec.get("copyAs", {})
    if not _choose_keys(made, spec.get("keys", {})):
        return None
    if form:
        made["type"] = "Opaque"
    elif not {*OF_TYPE.get(made.get("type", ""), ())} <= {*made.get("data", {})}:
        return None
    if (form.get("kind") == "ConfigMap" or "merge" in spec) and not _write_certificates(made, source["kind"], form):
        return None
    if spec.get("subjectNamespace") == "target":
        made["subjects"] = [
            each | ({"namespace": namespace} if each["kind"] == "ServiceAccount" else {})
            for each in made.get("subjects", [])
        ]
    return {key: value for key, value in made.items() if value or value is False}


def _choose_keys(made: Object, keys: Object) -> bool:
    """Select and rename keys; whether those that are named exist, and no two get one name."""
    rename, include = keys.get("rename", {}), keys.get("include", ["*"])
    there = {*made.get("data", {}), *made.get("binaryData", {})}
    chosen = {key: rename.get(key, key) for key in there if key in rename or _is_in(key, include)}
    for name in {"data", "binaryData"} & made.keys():
        made[name] = {chosen[key]: value for key, value in made[name].items() if key in chosen}
    named = {*rename, *(each for each in include if not {"*", "?"} & {*each})}
    return named <= there and len({*chosen.values()}) == len(chosen)


def _write_certificates(made: Object, kind: str, form: Object) -> bool:
    """Write all values again as certificates; whether they are."""
    texts = {key: _text(each) if kind == "Secret" else each for key, each in made.get("data", {}).items()}
    texts |= {key: _text(each) for key, each in made.pop("binaryData", {}).items()}
    written = {key: "".join(map(_pem, certificates(each))) for key, each in texts.items()}
    is_secret = form.get("kind", kind) == "Secret"
    made["data"] = {key: encoded(each) for key, each in written.items()} if is_secret else written
    if not is_secret:
        made.pop("type", None)
    return all(written.values())


def _is_in(key: str, globs: Iterable[str]) -> bool:
    return any(fnmatchcase(key, each) for each in globs)


def bundle(spec: Object, contents: Sequence[Object | None]) -> Object | None:
    """The content of a bundle: each certificate once, by digest; None without a certificate."""
    secret = spec["ruleType"] == "secret" and spec["copyAs"]["kind"] == "Secret"
    texts = [_text(each) if secret else each for made in contents if made for each in made.get("data", {}).values()]
    found = sorted(
        {each for text in texts for each in certificates(text)}, key=lambda each: hashlib.sha256(each).digest()
    )
    text = "".join(map(_pem, found))
    made = {"data": {spec["merge"]["key"]: encoded(text) if secret else text}}
    return (made | {"type": "Opaque"} if secret else made) if found else None


def certificates(text: str) -> list[bytes]:
    """The certificates of a text; none if it has anything else."""
    if CERTIFICATE.sub("", text).strip():
        return []
    return [base64.b64decode(each[1]) for each in CERTIFICATE.finditer(text)]


def _pem(der: bytes) -> str:
    text = base64.b64encode(der).decode()
    lines = [text[begin : begin + 64] for begin in range(0, len(text), 64)]
    return "\n".join(["-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----\n"])


def _text(value: str) -> str:
    return base64.b64decode(value).decode()


def encoded(value: str) -> str:
    """Return the value in Base64, as in a Secret's data."""
    return base64.b64encode(value.encode()).decode()


def attached(
    rules: Iterable[Object], copies: Mapping[Place, Object], accounts: Iterable[Object]
) -> dict[Place, set[str]]:
    """The names of copies that each ServiceAccount has because of rules. No two rules require the same copy."""
    found: dict[Place, set[str]] = {}
    by_rule = {each["metadata"]["name"]: each["spec"].get("attachTo", {}).get("serviceAccounts", []) for each in rules}
    for (_, namespace, name), copy in copies.items():
        rule = (copy["metadata"].get("annotations") or {}).get("kubechores.dev/rule", "").partition("/")[2]
        for account in accounts:
            at = account["metadata"]
            if at["namespace"] == namespace and copy.get("type") in PULLS and _is_in(at["name"], by_rule.get(rule, [])):
                found.setdefault(("ServiceAccount", namespace, at["name"]), set()).add(name)
    return found
