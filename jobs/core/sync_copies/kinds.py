"""The kinds that rules copy: all that differs between them; and the keys of a source that are copied. Pure."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from msgspec import structs

from jobs.core.sync_copies.selectors import glob_matcher, is_glob
from jobs.kit.data.contents import (
    CONFIGMAP,
    SECRET,
    AnyContent,
    Content,
    FieldContent,
    Layout,
    WholeContent,
    field_content,
)
from jobs.kit.data.objects import ReducedObject
from jobs.kit.values import resources, stamps
from jobs.kit.values.registry import SETTINGS
from jobs.kit.values.resources import KEY_NAME
from jobs.kit.values.text import listed

# By the prefix of the Secret's type. The cluster or Helm acts on these Secrets: a copy would be a credential for the
# cluster, or a release. Built-in types: https://kubernetes.io/docs/concepts/configuration/secret/#secret-types
_NEVER_COPIED = {
    "kubernetes.io/service-account-token": "service-account tokens are never copied",
    "bootstrap.kubernetes.io/": "bootstrap tokens are never copied",
    "helm.sh/": "Helm releases are never copied",
}
# By the Secret's type: the API server requires one key of each group. The same page describes them.
REQUIRED_KEYS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "kubernetes.io/tls": (("tls.crt",), ("tls.key",)),
    "kubernetes.io/dockercfg": ((".dockercfg",),),
    "kubernetes.io/dockerconfigjson": ((".dockerconfigjson",),),
    "kubernetes.io/basic-auth": (("username", "password"),),
    "kubernetes.io/ssh-auth": (("ssh-privatekey",),),
}
CopyKind = Literal["ConfigMap", "Secret"]  # of copyAs
WHY_NO_COPY = "is managed by kube-chores: a copy is never a source"
# Also a ConfigMap: https://helm.sh/docs/topics/advanced/#configmap-storage-backend
_HELM_RELEASE = "sh.helm.release."
IN_INVENTORY = "kubechores.dev/cluster"  # a label of Secrets with the credentials of another cluster
BOOTSTRAPPING = "kubernetes.io/bootstrapping"  # a label of the bindings that kube-apiserver restores when it starts


def _why_no_type(content: AnyContent, _labels: Mapping[str, str]) -> str:
    return next((why for prefix, why in _NEVER_COPIED.items() if content.fixed.startswith(prefix)), "")


def _why_no_role(content: AnyContent, labels: Mapping[str, str]) -> str:
    if BOOTSTRAPPING in labels:
        return "kube-apiserver creates this RoleBinding itself"
    return "" if cluster_role(content) else "it refers to a Role, and Roles are not copied; refer to a ClusterRole"


def _role_ref(fixed: str) -> Mapping[str, Any]:
    """Return the roleRef; empty if it is not an object, as a proxy may serve it."""
    role = json.loads(fixed or "{}")
    return role if isinstance(role, dict) else {}


def _role(fixed: str) -> str:
    role = _role_ref(fixed)
    return f"{role.get('kind')} {role.get('name')}"


def cluster_role(content: AnyContent) -> str:
    """Return the name of the ClusterRole that a RoleBinding refers to; empty if it refers to another kind."""
    role = _role_ref(content.fixed)
    return str(role.get("name", "")) if role.get("kind") == resources.CLUSTER_ROLES.kind else ""


def _with_subjects_in(content: WholeContent, namespace: str) -> WholeContent:
    """Return the content with the ServiceAccounts among its subjects in this namespace.

    What is not a list of objects stays: a proxy may serve it, and the API server refuses to write it.
    """
    assert isinstance(content, FieldContent)
    fields = content.document()
    found = fields.get("subjects")
    subjects = [
        {**each, "namespace": namespace} if isinstance(each, dict) and each.get("kind") == "ServiceAccount" else each
        for each in (found if isinstance(found, list) else ())
    ]
    return field_content(content.layout, {**fields, "subjects": subjects} if subjects else fields)


class Kind(NamedTuple):
    """A kind of object that rules copy.

    - `layout`: which of its fields are copied.
    - `never_named`: by name, why an object is neither a source nor a copy.
    - `why_no_content`: why a source with this content and these labels is never copied; empty if it is copied.
    - `readers`: by name, what reads an object of that name: rules of tenants must not create it.
    - `in_target`: the content of a copy in a namespace, if rules can set `subjectNamespace: target`.
    - `shown_fixed`: for messages, the value that no update can change.
    - `component`: the folder in cronjobs/components/copies with the rights; empty if it has no folder there.
    """

    layout: Layout
    never_named: Mapping[str, str] = {}
    why_no_content: Callable[[AnyContent, Mapping[str, str]], str] = lambda _content, _labels: ""
    readers: Mapping[str, str] = {}
    in_target: Callable[[WholeContent, str], WholeContent] | None = None
    shown_fixed: Callable[[str], str] = str
    component: str = ""

    @property
    def resource(self) -> resources.Resource:
        """Where the API serves it."""
        return self.layout.resource

    @property
    def name(self) -> str:
        """Its name in manifests, such as ConfigMap."""
        return self.layout.resource.kind

    @property
    def has_subjects(self) -> bool:
        """Whether its copies have subjects, so that rules can set subjectNamespace."""
        return self.in_target is not None

    @property
    def has_type(self) -> bool:
        """Whether its objects have a type, as Secrets do: only rules of this kind can set copyAs and attachTo."""
        return self.layout is SECRET

    @property
    def is_pushed(self) -> bool:
        """Whether it is copied to other clusters: a RoleBinding or ServiceAccount would give rights there."""
        return self.resource not in (resources.ROLE_BINDINGS, resources.SERVICE_ACCOUNTS)

    @property
    def component_path(self) -> str:
        """The component with the rights of the job on it."""
        return f"cronjobs/components/copies/{self.component}"

    @property
    def view_role(self) -> str:
        """The ClusterRole of that component for users who make a dry run."""
        return f"kube-chores-view-{self.resource.plural}"

    @property
    def helm_value(self) -> str:
        """The value of the Helm chart that adds these rights."""
        first, *others = self.component.split("-")
        return f"jobs.sync-copies.copies.{first}{''.join(map(str.capitalize, others))}"

    def why_no_name(self, name: str) -> str:
        """Return why objects of this name are neither sources nor copies; empty if they may be."""
        if self.layout.has_data and name.startswith(_HELM_RELEASE):
            return _NEVER_COPIED["helm.sh/"]
        return self.never_named.get(name, "")

    def why_never_copied(self, read: ReducedObject, content: AnyContent) -> str:
        """Return why an object with this name and content is never copied; empty if it is copied.

        `content` is the whole content of the object, from which `read` may have only some keys, in another form.
        """
        why = WHY_NO_COPY if stamps.is_stamped(read.header.labels) else self.why_no_name(read.name)
        if IN_INVENTORY in read.header.labels:
            why = why or "the credentials of a cluster are never copied"
        return why or self.why_no_content(content, read.header.labels)


# By the ruleType of rules. The table in docs/copyratorrule.md#kinds is written from them.
KINDS: Mapping[str, Kind] = {
    "configmap": Kind(
        CONFIGMAP,
        {"kube-root-ca.crt": "every namespace has its own kube-root-ca.crt"},
        readers=dict.fromkeys(SETTINGS, "jobs read their settings from a ConfigMap"),
    ),
    "secret": Kind(SECRET, {}, _why_no_type, {KEY_NAME: "roll-workloads reads its key from a Secret"}),
    "networkpolicy": Kind(Layout(resources.NETWORK_POLICIES, ("spec",), maps=("spec",)), component="network-policies"),
    "limitrange": Kind(Layout(resources.LIMIT_RANGES, ("spec",), maps=("spec",)), component="limit-ranges"),
    "resourcequota": Kind(
        Layout(resources.RESOURCE_QUOTAS, ("spec",), maps=("spec", "spec.hard"), fixed="spec.scopes"),
        component="resource-quotas",
    ),
    "rolebinding": Kind(
        Layout(resources.ROLE_BINDINGS, ("roleRef", "subjects"), fixed="roleRef"),
        why_no_content=_why_no_role,
        in_target=_with_subjects_in,
        shown_fixed=_role,
        component="role-bindings",
    ),
    "serviceaccount": Kind(
        Layout(resources.SERVICE_ACCOUNTS, ("imagePullSecrets", "automountServiceAccountToken"), kept=("secrets",)),
        {"default": "every namespace has its own ServiceAccount default"},
        component="service-accounts",
    ),
}
LABELS = frozenset({BOOTSTRAPPING, IN_INVENTORY})  # of sources: they decide whether these are copied
RESOURCES = tuple(kind.resource for kind in KINDS.values())
BY_NAME: Mapping[str, Kind] = {kind.name: kind for kind in KINDS.values()}
WITH_PULL_SECRETS = resources.SERVICE_ACCOUNTS  # rules with attachTo name their copies there
LAYOUTS: Mapping[str, Layout] = {kind.name: kind.layout for kind in KINDS.values()}


class KeySelection(NamedTuple):
    """spec.keys of a rule, as a value that can be sorted and compared. The default selects all keys.

    `copy_as` is the kind of copies of a Secret: as a Secret, they are Opaque. `merge` is the key in which the copy has
    the certificates of all sources. Empty: copies have the form of their source.
    """

    include: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    copy_as: str = ""
    merge: str = ""


ALL_KEYS = KeySelection()


def select(keys: KeySelection, content: WholeContent) -> WholeContent:
    """Return the content with the keys that a rule copies, under their names in copies.

    Raises:
        ValueError: the source cannot be copied with these keys; the message has the reason.
    """
    if keys == ALL_KEYS or not isinstance(content, Content):
        return content
    names = _names(keys, [*content.data, *content.binary_data])
    if keys.merge or keys.copy_as:
        return _converted(keys, content, names)
    for group in REQUIRED_KEYS.get(content.type, ()):
        if not {*group} & {*names.values()}:
            raise ValueError(f"a Secret of type {content.type} requires key {' or '.join(group)} in copies")
    data, binary = (
        {names[key]: value for key, value in each.items() if key in names}
        for each in (content.data, content.binary_data)
    )
    return structs.replace(content, data=data, binary_data=binary)


def _converted(keys: KeySelection, content: Content, names: Mapping[str, str]) -> Content:
    """Return the content in another form: as a Secret of another type, or only the certificates in it.

    Certificates are text in the result, also those of a Secret: bundles.py encodes them.
    """
    if keys.copy_as == resources.SECRETS.kind and not keys.merge:
        return structs.replace(
            content, type="Opaque", data={names[key]: value for key, value in content.data.items() if key in names}
        )
    if binary := sorted(names.keys() & content.binary_data.keys()):
        raise ValueError(f"key {listed(binary)} is not text")
    from jobs.core.sync_copies.certificates import certificates

    found = {}
    for key, name in names.items():
        try:
            found[name] = certificates(_text(content.data[key]) if keys.copy_as else content.data[key])
        except ValueError as error:
            raise ValueError(f"key {key} {error}") from None
    return Content("", found, immutable=content.immutable and not keys.merge)


def _text(value: str) -> str:
    """Return a value of a Secret as text; an error tells nothing of the value.

    Raises:
        ValueError: it is no text.
    """
    try:
        return b64decode(value, validate=True).decode()
    except ValueError:
        raise ValueError("is not text") from None


def _names(keys: KeySelection, given: list[str]) -> dict[str, str]:
    """Return the name in copies of each key that is copied."""
    rename, included = dict(keys.rename), glob_matcher(keys.include or ("*",)).fullmatch
    required = {*rename, *(each for each in keys.include if not is_glob(each))}
    if missing := sorted(required - {*given}):
        raise ValueError(f"it has no key {listed(missing)}")
    names = {key: rename.get(key, key) for key in given if key in rename or included(key)}
    if not names:
        raise ValueError(f"none of its keys matches {listed(keys.include)}")
    by_name: dict[str, str] = {}
    for key, name in sorted(names.items()):
        if name in by_name:
            raise ValueError(f"its keys {by_name[name]} and {key} would both be {name} in copies")
        by_name[name] = key
    return names
